"""Layouts of every type, by the daemon: sizes, bytes, depth. unit/test_layout.c and test_layout_parts.c have what is refused, with
its sentence, packed floats, and slices."""

import os
import re

import pytest

from layouts import DTYPES, spelled
from peer import buffers, column, table

# From the protocol's table, whose numbers unit/test_dtype.c and test_protocol_json.c hold.
FIXED = {spelled(d): d["bits"] or 24 for d in DTYPES if d["data"] and not d["offset_bytes"]}  # bits of an element
WIDTHS = {dtype: bits for dtype, bits in FIXED.items() if bits not in (4, 6)}  # the others are packed, and of arrays alone
STRINGS = {spelled(d): d["offset_bytes"] for d in DTYPES if d["data"] and d["offset_bytes"]}
ARRAYS = [spelled(d) for d in DTYPES if d["array"] and d["bits"] not in (4, 6)]


@pytest.fixture
def make(shared_peer):
    """make(layout): the layout that the daemon answers; the object is aborted."""

    def run(layout):
        result = shared_peer.call("create", name="layout", layout=layout)
        shared_peer.call("release", lease=result["lease"])
        return result["object"]["layout"]

    return run


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("length,offset", [(0, 0), (1, 0), (13, 0), (1000, 9)])
def test_fixed_width_columns(make, dtype, length, offset):
    layout = make(column(dtype, length, offset=offset, mask={}))
    assert layout["kind"] == "column" and layout["dtype"] == dtype
    assert layout["length"] == length and layout.get("offset", 0) == offset
    elements = length + offset
    assert layout["data"]["bytes"] == (elements * WIDTHS[dtype] + 7) // 8
    assert layout["mask"]["bytes"] >= (elements + 7) // 8
    assert layout["mask"]["bytes"] % 64 == 0
    assert "offsets" not in layout and not layout.get("children")


@pytest.mark.parametrize("dtype", STRINGS)
def test_string_columns(make, dtype):
    layout = make(column(dtype, 10, offset=3, data={"bytes": 55}, null_count=2, mask={}))
    assert layout["offsets"]["bytes"] == 14 * STRINGS[dtype]
    assert layout["data"]["bytes"] == 55
    assert layout["null_count"] == 2


@pytest.mark.parametrize("dtype", ARRAYS)
def test_arrays(make, dtype):
    layout = make({"kind": "array", "dtype": dtype, "shape": [3, 5, 7], "mask": {}})
    assert layout["shape"] == [3, 5, 7] and layout["dtype"] == dtype
    assert layout["data"]["bytes"] == 105 * WIDTHS[dtype] // 8
    assert layout["mask"]["bytes"] >= 14
    size = WIDTHS[dtype] // 8
    assert layout.get("strides", [35 * size, 7 * size, size]) == [35 * size, 7 * size, size]


# what -> (layout, {path of a buffer: its bytes}): these buffers and no others
MADE = {
    "C-order strides": ({"kind": "array", "dtype": "int32", "shape": [2, 3], "strides": [12, 4]}, {"data": 24}),
    "a scalar array": ({"kind": "array", "dtype": "float64", "shape": []}, {"data": 8}),
    "as many axes as there may be": ({"kind": "array", "dtype": "int8", "shape": [1] * 32}, {"data": 1}),
    "null": (column("null", 9, null_count=9), {}),
    "without a mask": (column("int8", 5), {"data": 5}),
    "list": (column("list", 3, mask={}, children=[{"dtype": "int16", "length": 8}]),
             {"mask": 64, "offsets": 16, "children[0].data": 16}),
    "large_list of strings": (column("large_list", 3, children=[{"dtype": "utf8", "length": 8, "data": {"bytes": 20}}]),
                              {"offsets": 32, "children[0].data": 20, "children[0].offsets": 36}),
    "fixed_list": (column("fixed_list(3)", 4, children=[{"dtype": "float32", "length": 12}]), {"children[0].data": 48}),
    "struct": (column("struct", 4, mask={}, children=[
        {"name": "x", "dtype": "int32", "length": 4},
        {"name": "y", "dtype": "utf8", "length": 4, "data": {"bytes": 9}, "mask": {}}]),
        {"mask": 64, "children[0].data": 16, "children[1].data": 9, "children[1].mask": 64, "children[1].offsets": 20}),
    "dictionary": (column("dictionary", 100, children=[
        {"dtype": "int8", "length": 100, "mask": {}}, {"dtype": "utf8", "length": 3, "data": {"bytes": 12}}]),
        {"children[0].data": 100, "children[0].mask": 64, "children[1].data": 12, "children[1].offsets": 16}),
}


@pytest.mark.parametrize("layout, sizes", MADE.values(), ids=MADE)
def test_other_layouts(make, layout, sizes):
    made = make(layout)
    assert {path: buffer["bytes"] for path, buffer in buffers(made)} == sizes
    for key in ("shape", "dtype", "length"):
        assert made.get(key) == layout.get(key)


def deep(levels):
    node = {"dtype": "int8", "length": 1}
    for _ in range(levels - 1):
        node = {"dtype": "struct", "length": 1, "children": [{"name": "a", **node}]}
    return {"kind": "column", **node}


def nesting(text):
    """Levels of nesting of a JSON text."""
    level = deepest = 0
    for character in re.sub(r'"(\\.|[^"\\])*"', "", text):
        level += (character in "[{") - (character in "]}")
        deepest = max(deepest, level)
    return deepest


def test_no_reply_nests_deeper_than_a_line_may(shared_daemon, shared_peer):
    """As deep as create allows, with metadata at the bottom, through every method that tells it."""
    layout = deep(12)
    bottom = layout
    while "children" in bottom:
        bottom = bottom["children"][0]
    bottom["metadata"] = {"a": "b"}
    reader = shared_daemon.connect()
    shared_peer.create_object("deepest", layout)
    for method, params in (("stat", {"name": "deepest"}), ("open", {"name": "deepest"}),
                           ("open", {"names": ["deepest"]})):
        reader.request(method, **params)
        assert nesting(reader.recv_line().decode()) <= 32
    for fd in reader.fds:
        os.close(fd)
    reader.fds.clear()


def test_metadata(make):
    metadata = {"unit": "km/h", "ü": "", "": "empty key", "a\nb": '"quoted"'}
    layout = make(table(1, a={"dtype": "int8", "metadata": metadata}))
    assert layout["columns"][0]["metadata"] == metadata and "metadata" not in layout
    layout = make({**table(1, a={"dtype": "int8"}), "metadata": metadata})
    assert layout["metadata"] == metadata and "metadata" not in layout["columns"][0]


def test_a_part_of_a_table_has_its_metadata(shared_peer):
    noted = {**table(3, a={"dtype": "int8"}, b={"dtype": "int8"}), "metadata": {"k": "v"}}
    shared_peer.create_object("noted", noted)
    shared_peer.call("alias", name="noted/part", of="noted", columns=["b"],
                     slice={"offset": 1, "length": 1})
    layout = shared_peer.call("stat", name="noted/part")["object"]["layout"]
    assert layout["metadata"] == {"k": "v"} and [c["name"] for c in layout["columns"]] == ["b"]


def test_the_bytes_of_every_type(shared_daemon, shared_peer):
    """One table with every fixed-width type, written by one session and read by another."""
    columns = {d: {"dtype": d, "mask": {}} for d in WIDTHS}
    data, length = {}, 33
    for i, dtype in enumerate(columns):
        size = (WIDTHS[dtype] * length + 7) // 8
        data[f"columns[{i}].data"] = bytes((i * 31 + j) % 256 for j in range(size))
        data[f"columns[{i}].mask"] = bytes([i, 255 - i, 1, 2, 1])
    shared_peer.create_object("types", table(length, **columns), data)
    opened = shared_daemon.connect().open_object("types")
    for path, content in data.items():
        assert opened.read(path)[: len(content)] == content
