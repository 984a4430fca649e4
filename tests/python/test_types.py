"""Each type of NumPy and Arrow, there and back: these tables of PYTHON-TYPES.md are made here; that of pandas in
test_pandas_table.py.

`python3 tests/python/test_types.py SOCKET` writes them anew.
"""

import re
import struct
import sys

import conftest
import pytest

import arrowc
import gpubufd

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

GUIDE = conftest.ROOT / "docs" / "PYTHON-TYPES.md"
REFUSED, SAME = "refused: ", "="


def code(word):
    return f"`{str(word).lstrip('|')}`"


def table(head, rows):
    """Rows that say the same of several types are one."""
    together = {}
    for first, *rest in rows:
        together.setdefault(tuple(rest), []).append(first)
    lines = [head, ["---"] * len(head), *([" · ".join(firsts), *rest] for rest, firsts in together.items())]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def refusal(work):
    """The end of the sentence that says what to do."""
    with pytest.raises((TypeError, ValueError)) as caught:
        work()
    return REFUSED + str(caught.value).rpartition(": ")[2].rpartition("; ")[2]


# ---- NumPy ----

# dtype, and what a value of it is like where arange() has none
DTYPES = {
    "?": [True, False], "i1": [1, -2], "i2": [1, -2], "i4": [1, -2], "i8": [1, -2], "u1": [1, 2], "u2": [1, 2],
    "u4": [1, 2], "u8": [1, 2**64 - 1], "f2": [1.5, -2], "f4": [1.5, -2], "f8": [1.5, -2], "g": [1.5, -2],
    "c8": [1j, 2], "c16": [1j, 2], "G": [1j, 2], ">i4": [1, -2], ">f8": [1.5, -2], "S3": [b"ab", b"c"],
    "U3": ["ab", "ü"], "V3": [b"abc", b"def"], "O": ["a", None], "M8[D]": ["2020-02-29", "1960-01-01"],
    "M8[M]": ["2020-02", "1960-01"], "M8[s]": [1, 2], "M8[ms]": [1, 2], "M8[us]": [1, 2], "M8[ns]": [1, 2],
    "m8[h]": [1, 2], "m8[s]": [1, 2], "m8[ns]": [1, 2], "M8[ps]": [1, 2], "i4,f8": [(1, 1.5), (2, 2.5)],
}


def numpy_rows(client, path):
    rows = []
    for dtype, values in DTYPES.items():
        array = np.array(values, dtype)
        shown, same = code(dtype), code(np.dtype(dtype).name)
        try:
            client["n"] = array
        except TypeError:
            said = refusal(lambda: client.put("n", array, replace=True))
            rows.append([shown, said, ""])
            continue
        held = client["n"]
        kind = type(held).__name__
        dtype_of = SAME if code(held._dtype) == same else code(held._dtype)
        what = kind if isinstance(held, gpubufd.Table) else f"{kind} of {dtype_of}"
        back = held.to_numpy()
        if isinstance(held, gpubufd.Table):
            found = ", ".join(str(one.dtype) for one in back.values())
            assert [list(one) for one in back.values()] == [list(array[name]) for name in array.dtype.names]
        else:
            found = str(back.dtype)
            assert back.tolist() == array.tolist() or (back == array).all(), dtype
        rows.append([shown, what, SAME if what.endswith(SAME) and code(found) == same else code(found)])
        if dtype == "O":
            continue
        np.save(path, array)  # a file of it comes to the same
        client.load(path, "npy", replace=True)
        assert client["npy"].tolist() == held.tolist() and type(client["npy"]) is type(held)
        if isinstance(held, gpubufd.Array):
            client.save("npy", path)
            assert np.array_equal(np.load(path), back) and np.load(path).dtype == back.dtype
    return table(["dtype of an array", "is published as", "`to_numpy()`"], rows)


# ---- Arrow ----


def packed(letter, *values):
    return struct.pack(f"<{len(values)}{letter}", *values)


ENDS, WIDE = packed("i", 0, 1, 1), packed("q", 0, 1, 1)
# Two elements of each type that has no children, the second null: its Arrow name, format and buffers.
FLAT = {
    "null": ("n", []), "bool": ("b", [b"\1"]), "int8": ("c", [b"\1\2"]), "uint8": ("C", [b"\1\2"]),
    "int16": ("s", [packed("h", 1, 2)]), "uint16": ("S", [packed("H", 1, 2)]), "int32": ("i", [packed("i", 1, 2)]),
    "uint32": ("I", [packed("I", 1, 2)]), "int64": ("l", [packed("q", 1, 2)]), "uint64": ("L", [packed("Q", 1, 2)]),
    "halffloat": ("e", [packed("e", 1, 2)]), "float": ("f", [packed("f", 1, 2)]), "double": ("g", [packed("d", 1, 2)]),
    "string": ("u", [ENDS, b"a"]), "large_string": ("U", [WIDE, b"a"]), "string_view": ("vu", [bytes(32), b""]),
    "binary_view": ("vz", [bytes(32), b""]),
    "binary": ("z", [ENDS, b"a"]), "large_binary": ("Z", [WIDE, b"a"]), "fixed_size_binary[2]": ("w:2", [b"abcd"]),
    "date32": ("tdD", [packed("i", 1, 2)]), "date64": ("tdm", [packed("q", 86_400_000, 0)]),
    "time32[s]": ("tts", [packed("i", 1, 2)]), "time32[ms]": ("ttm", [packed("i", 1, 2)]),
    "time64[us]": ("ttu", [packed("q", 1, 2)]), "time64[ns]": ("ttn", [packed("q", 1000, 2)]),
    "timestamp[s]": ("tss:", [packed("q", 1, 2)]), "timestamp[ms]": ("tsm:", [packed("q", 1, 2)]),
    "timestamp[us]": ("tsu:", [packed("q", 1, 2)]), "timestamp[ns]": ("tsn:", [packed("q", 1000, 2)]),
    "timestamp[us, tz=UTC]": ("tsu:UTC", [packed("q", 1, 2)]), "duration[s]": ("tDs", [packed("q", 1, 2)]),
    "duration[ns]": ("tDn", [packed("q", 1000, 2)]), "month_interval": ("tiM", [packed("i", 1, 2)]),
    "day_time_interval": ("tiD", [bytes(16)]), "month_day_nano_interval": ("tin", [bytes(32)]),
    "decimal128(5, 2)": ("d:5,2", [packed("q", 110, 0, 0, 0)]), "decimal256(50, 2)": ("d:50,2,256", [bytes(64)]),
    "dense_union": ("+ud:0", []), "run_end_encoded": ("+r", []),
}


def of_kind(dtype, children, offsets=None):
    """put(client, name): a column of two elements, whose child has two."""

    def put(client, name):
        column = ("x", dtype, 2, 0, 0, False, 0, children, None)
        layout = (3, 0, None, (), False, (None, "struct", 2, 0, 0, False, 0, (column,), None))
        with client._create(name, layout, gpubufd._params.options(replace=True)) as made:
            if offsets:
                data = bytearray(offsets)
                made["x"]._write(2, 0, gpubufd._core.address(data)[0], len(data), 0)
            for child in made["x"].children:
                child.write(np.arange(len(child), dtype=child.dtype))
            made.seal()

    return put


ITEMS = (("item", "int32", 2, 0, 0, False, 0, (), None),)
NESTED = {
    "list": of_kind("list", ITEMS, packed("i", 0, 1, 2)), "large_list": of_kind("large_list", ITEMS, packed("q", 0, 1, 2)),
    "fixed_size_list[1]": of_kind("fixed_list(1)", ITEMS), "struct": of_kind("struct", ITEMS),
    "dictionary": lambda client, name: client.put(name, {"x": pd.Categorical(["a", "b"])}, replace=True),
}


def format_of(column):
    capsule = column.__arrow_c_schema__()
    return arrowc.struct_of(capsule, arrowc.Schema).format.decode()


KEPT = []  # producers: the traceback of an error may hold what calls them when it is freed


def arrow_row(column, name, again):
    value = column[0]
    pandas, numpy = str(column.to_pandas().dtype), str(column[:1].to_numpy().dtype)
    return [name, SAME if column.dtype == name else code(column.dtype), again, code(type(value).__name__),
            SAME if numpy == name else code(numpy), "nullable" if pandas.lower() == name else code(pandas)]


def arrow_rows(client):
    rows = []
    for name, (format_, buffers) in FLAT.items():
        mask = [] if format_ == "n" else [b"\1"]
        producer = arrowc.StreamProducer([("x", format_, [(2, 0, 2 if format_ == "n" else 1, mask + buffers)])])
        KEPT.append(producer)
        try:
            client["a"] = producer
        except TypeError:
            rows.append([name, refusal(lambda: client.put("a", producer, replace=True)), "", "", "", ""])
            continue
        column = client["a"]["x"]
        again = {"vu": "U", "vz": "Z"}.get(format_, format_)
        said = format_of(column), column.tolist()[1], column.null_count
        assert said == (again, None, 2 - len(mask))
        rows.append(arrow_row(column, name, "=" if again == format_ else "large_" + name.replace("_view", "")))
    for name, put in NESTED.items():
        put(client, "a")
        column = client["a"]["x"]
        client["again"] = client["a"]  # by Arrow's structs
        assert client["again"]["x"].tolist() == column.tolist() and format_of(client["again"]["x"]) == format_of(column)
        rows.append(arrow_row(column, name, "="))
    client["pairs"] = {"x": [[{"key": "a", "value": 1}], []]}
    client["a"] = {"x": arrowc.Map(client["pairs"]["x"])}
    assert client["a"]["x"].tolist() == [[("a", 1)], []] and format_of(client["a"]["x"]) == "+m"
    client["again"] = client["a"]
    assert client["again"]["x"].tolist() == client["a"]["x"].tolist() and format_of(client["again"]["x"]) == "+m"
    rows.insert(-1, arrow_row(client["a"]["x"], "map", "="))
    return table(["type", "is published as", "as Arrow again", "an element", "`to_numpy()`", "`to_pandas()`"], rows)


# ---- the guide ----


def tables(client, directory):
    return {"numpy": numpy_rows(client, str(directory / "x.npy")), "arrow": arrow_rows(client)}


def parts_of(text, name):
    return re.fullmatch(rf"(.*<!-- types of {name} -->\n\n)(.*?)(\n<!-- -->\n.*)", text, re.S).groups()


@pytest.mark.parametrize("name", ["numpy", "arrow"])
def test_the_tables_of_the_guide(client, tmp_path, name):
    make = {"numpy": lambda: numpy_rows(client, str(tmp_path / "x.npy")), "arrow": lambda: arrow_rows(client)}[name]
    lines, shown = make().splitlines(), parts_of(GUIDE.read_text(), name)[1].splitlines()
    if not pd.__version__.startswith("1."):  # from 2 on it counts in other units, too
        lines, shown = ([re.sub(r"64\[\w+", "64[…", line) for line in some] for some in (lines, shown))
    if int(pd.__version__.partition(".")[0]) > 2:  # from 3 on text has a dtype of its own
        lines = [re.sub(r"`str` \|$", "`object` |", line) for line in lines]
    assert len(shown) > 15 and lines == shown


if __name__ == "__main__":
    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as place, gpubufd.connect(sys.argv[1]) as found:
        for one, made in tables(found, pathlib.Path(place)).items():
            before, _, after = parts_of(GUIDE.read_text(), one)
            GUIDE.write_text(before + made + after)
