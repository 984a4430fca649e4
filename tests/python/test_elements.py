"""The extension's table of elements against the protocol's own: proto/dtype.c has each type once."""

import re

import small_floats
from conftest import ROOT

from gpubufd import _core, _floats

ROW = re.compile(r'^ *\[GB_TYPE_\w+\] *=\s*\{"(\w+)", *(\d+), *\d, *\w+, *\w+, *-?\d+, *(NULL|"[^"]*"), *'
                 r'(NULL|"[^"]*"), *(DL_\w+), *(true|false)\},?$', re.M)
CODE = re.compile(r"^    (DL_\w+) = (\d+),?$", re.M)
NAMED = {"timestamp": "timestamp[us]", "duration": "duration[us]", "time32": "time32[s]", "time64": "time64[us]"}


def types():
    text = (ROOT / "proto" / "dtype.c").read_text()
    codes = {name: int(value) for name, value in CODE.findall(text)}
    rows = ROW.findall(text)
    assert len(rows) == len(re.findall(r"^ *\[GB_TYPE_\w+\] *=", text, re.M)) >= 40
    return [(name, int(bits), None if numpy == "NULL" else numpy[1:-1], codes[code], array == "true")
            for name, bits, _, numpy, code, array in rows]


def test_the_same_types_and_widths():
    for name, bits, _, _, array in types():
        known = (array or "interval" in name) and name != "fixed_binary"  # whose width is a parameter
        assert _core.itemsize(NAMED.get(name, name)) == (max(bits // 8, 1) if known else 0), name


def test_the_same_types_in_the_extension():
    """Names, bits and DLPack codes of its table, and NumPy's types of those that are numbers."""
    text = (ROOT / "client" / "python" / "src" / "element.c").read_text()
    codes = {name: int(value) for name, value in CODE.findall(text)}
    found = {
        name: (int(bits), codes[code] if code in codes else int(code), numpy)
        for name, code, bits, numpy in re.findall(r"\{\"(\w+)\", \{[^,]+, (\w+), (\d+), true, \"([^\"]*)\"\}\}", text)
    }
    times = {"date32", "date64", "time32", "time64", "timestamp", "duration", "fixed_binary", "decimal128"}
    expected = {name: (bits, code, numpy or "") for name, bits, numpy, code, array in types() if array and name not in times}
    for name in ("float6_e2m3fn", "float6_e3m2fn"):  # DLPack's code for them is not offered: no consumer packs alike
        expected[name] = (6, codes["DL_NONE"], "")
    assert found == expected


def test_the_floats_that_numpy_lacks():
    """Their names and bits, and that their values are tried."""
    lacking = {name: bits for name, bits, numpy, _, array in types() if "float" in name and not numpy}
    assert _floats.FOREIGN == set(lacking)
    assert _floats.PACKED == {name: bits for name, bits in lacking.items() if bits < 8}
    assert set(small_floats.DTYPES) == _floats.SMALL
    for name in small_floats.DTYPES:
        assert small_floats.bits_of(name) == lacking[name]
