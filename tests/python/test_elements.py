"""The extension's table of elements against the protocol's own, proto/protocol.json."""

import re

import pytest
import small_floats
from conftest import ROOT, TYPES

from gpubufd import _core, _floats

NAMED = {"timestamp": "timestamp[us]", "duration": "duration[us]", "time32": "time32[s]", "time64": "time64[us]",
         "decimal128": "decimal128(5,2)"}


def types():
    return [(row["name"], row["bits"], row["numpy"], 255 if row["dlpack"] is None else row["dlpack"], row["array"])
            for row in TYPES]


def test_the_extension_has_the_protocols_table():
    columns = ("name", "bits", "offset_bytes", "numpy", "safetensors")
    assert list(_core.dtypes()) == [tuple(row[column] for column in columns) for row in TYPES]


def test_the_same_types_and_widths():
    for name, bits, _, _, array in types():
        known = (array or "interval" in name) and name != "fixed_binary"  # whose width is a parameter
        assert _core.itemsize(NAMED.get(name, name)) == (max(bits // 8, 1) if known else 0), name


def test_every_number_has_a_view(client):
    """Its bits as memoryview has them, NumPy's type, and the DLPack code by which it comes back."""
    letters = {1: "b?B", 2: "hHe", 4: "iIf", 8: "lLd"}
    for name, bits, typestr, code, array in types():
        if code == 255 or not array:
            continue
        made = client.create(name, name, (8,))
        view = memoryview(made)
        assert view.itemsize == max(bits // 8, 1) and view.nbytes == bits, name
        assert "complex" in name or view.format in letters[view.itemsize], (name, view.format)
        if typestr:
            assert made.to_numpy().dtype.str == typestr
        made.seal()
        if bits >= 8:
            assert _core.from_dlpack(made.__dlpack__()).dtype == name


def test_arrows_formats_both_ways():
    text = (ROOT / "proto/layout/dtype.c").read_text()
    for name, format_ in re.findall(r'\{"(\w+)", *\d+, *\d, *\w+, *\w+, *-?\d+, *"([^"]+)",', text):
        more = {"fixed_binary": "3", "fixed_list": "3", "decimal128": "5,2", "timestamp": "u:UTC", "duration": "n",
                "time32": "s", "time64": "n"}.get(name, "")
        dtype = _core.dtype_of(format_ + more)
        assert dtype and re.match(rf"{name}\W|{name}$", dtype) and _core.format_of(dtype) == format_ + more
    assert _core.dtype_of("+us:0") is None and _core.dtype_of("d:5,2,256") is None
    for none in ("bfloat16", "dictionary", "nonsense"):
        with pytest.raises(TypeError, match=f"Arrow has no {none}"):
            _core.format_of(none)


def test_the_floats_that_numpy_lacks():
    """Their names and bits, and that their values are tried."""
    lacking = {name: bits for name, bits, numpy, _, array in types() if "float" in name and not numpy}
    assert _floats.FOREIGN == set(lacking)
    assert _floats.PACKED == {name: bits for name, bits in lacking.items() if bits < 8}
    assert set(small_floats.DTYPES) == _floats.SMALL
    for name in small_floats.DTYPES:
        assert small_floats.bits_of(name) == lacking[name]
