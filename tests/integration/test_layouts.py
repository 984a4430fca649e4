"""Layouts: every type, nested, and each way to get one wrong, with the path that is named."""

import json
import os
import re

import pytest

from conftest import ROOT
from peer import at, buffers, column, table

# dtype -> bits of an element, as the protocol's table of Arrow types fixes them.
WIDTHS = {
    "bool": 1, "bool8": 8,
    "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    "complex64": 64, "complex128": 128,
    "float8_e3m4": 8, "float8_e4m3": 8, "float8_e4m3b11fnuz": 8, "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "fixed_binary(1)": 8, "fixed_binary(7)": 56, "fixed_binary(1000)": 8000,
    "date32": 32, "date64": 64,
    "time32[s]": 32, "time32[ms]": 32, "time64[us]": 64, "time64[ns]": 64,
    "timestamp[s]": 64, "timestamp[ms]": 64, "timestamp[us]": 64, "timestamp[ns]": 64,
    "timestamp[us,UTC]": 64, "timestamp[ns,Europe/Vienna]": 64, "timestamp[s,+02:00]": 64,
    "duration[s]": 64, "duration[ms]": 64, "duration[us]": 64, "duration[ns]": 64,
    "decimal128(38,10)": 128, "decimal128(1,0)": 128, "decimal128(5,-2)": 128,
    "month_interval": 32, "day_time_interval": 64, "month_day_nano_interval": 128,
}
STRINGS = {"utf8": 4, "binary": 4, "large_utf8": 8, "large_binary": 8}

ARRAYS = ["bool8", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
          "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
          "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
# dtype -> elements, and the bytes that they fill together
PACKED = {"float4_e2m1fn": (2, 1), "float6_e2m3fn": (4, 3), "float6_e3m2fn": (4, 3)}
NESTED = {"list", "large_list", "fixed_list", "map", "struct", "dictionary", "null"}


def test_every_type_is_tried():
    types = json.loads((ROOT / "proto/protocol.json").read_text())["dtypes"]
    tried = {re.split(r"[\[(]", dtype)[0] for dtype in [*WIDTHS, *STRINGS, *PACKED, *NESTED]}
    assert tried == {dtype["name"] for dtype in types}
    arrays = {dtype["name"] for dtype in types if dtype["array"] and dtype["numpy"] != "|S"}
    times = {"date32", "date64", "time32", "time64", "timestamp", "duration", "decimal128"}
    assert {*ARRAYS, *PACKED} | times == arrays


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


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_arrays(make, dtype):
    elements, filled = PACKED[dtype]
    for extent in range(0, 13):
        array = {"kind": "array", "dtype": dtype, "shape": [3, extent], "mask": {}}
        if extent % elements:
            with pytest.raises(Exception, match=r"params\.layout\.shape\[1\]: .* no whole bytes"):
                make(array)
            continue
        layout = make(array)
        assert layout["shape"] == [3, extent] and "strides" not in layout
        assert layout["data"]["bytes"] == 3 * extent // elements * filled
        assert layout["mask"]["bytes"] == (64 if extent else 0)
    with pytest.raises(Exception, match="has an axis"):
        make({"kind": "array", "dtype": dtype, "shape": []})
    with pytest.raises(Exception, match="the dtype of arrays alone"):
        make(column(dtype, 12))


def test_packed_arrays_are_aliased_by_whole_bytes(shared_peer):
    # The other axes may be cut anywhere, the packed one between bytes.
    for name, shape in (("packed/line", [12]), ("packed/rows", [5, 4])):
        made = shared_peer.call("create", name=name, replace=True,
                                layout={"kind": "array", "dtype": "float4_e2m1fn", "shape": shape})
        shared_peer.call("seal", lease=made["lease"], release=True)
    for offset, length, good in ((2, 4, True), (2, 3, False), (1, 4, False), (12, 0, True)):
        params = {"name": "packed/part", "of": "packed/line", "slice": {"offset": offset, "length": length},
                  "replace": True}
        if not good:
            with pytest.raises(Exception, match="begins and ends at whole bytes"):
                shared_peer.call("alias", **params)
            continue
        shared_peer.call("alias", **params)
        opened = shared_peer.call("open", name="packed/part")
        assert opened["object"]["layout"]["shape"] == [length]
        assert opened["object"]["layout"]["data"]["bytes"] == length // 2
        shared_peer.call("release", lease=opened["lease"])
    shared_peer.call("alias", name="packed/part", of="packed/rows", slice={"offset": 1, "length": 3},
                     replace=True)
    opened = shared_peer.call("open", name="packed/part")
    assert opened["object"]["layout"]["data"]["bytes"] == 6
    shared_peer.call("release", lease=opened["lease"])


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


def arrays(**members):
    return {"kind": "array", "dtype": "int32", "shape": [2, 3], **members}


def columns(*nodes, length=4):
    return {"kind": "table", "length": length, "columns": list(nodes)}


INT8 = {"dtype": "int8", "length": 4}
# name -> (layout, the path that the message must begin with, below params.layout). unit/test_layout.c has every way.
BAD = {
    "not an object": ([], ""),
    "kind unknown": ({"kind": "tensor"}, ".kind"),
    "unknown member": ({"kind": "bytes", "bytes": 1, "size": 2}, ".size"),
    "bytes past 2^52": ({"kind": "bytes", "bytes": 1 << 52}, ".bytes"),
    "data too small": ({"kind": "bytes", "bytes": 9, "data": {"bytes": 8}}, ".data"),
    "shape negative": (arrays(shape=[2, -3]), ".shape[1]"),
    "nulls without a mask": (column("int8", 3, null_count=1), ".null_count"),
    "grandchild's length": (
        column("list", 4, children=[{"dtype": "list", "length": 1, "children": [
            {"dtype": "int8", "length": -4}]}]),
        ".children[0].children[0].length"),
    "third column's dtype": (
        columns(*({"name": n, **INT8} for n in "ab"), {"name": "c", **INT8, "dtype": "int33"}),
        '.columns[2].dtype: unknown dtype "int33"'),
    "metadata number": (column("int8", 1, metadata={"a": 1}), ".metadata"),
}


@pytest.mark.parametrize("layout,path", BAD.values(), ids=BAD.keys())
def test_bad_layouts(shared_peer, layout, path):
    error = shared_peer.error("invalid", "create", name="bad", layout=layout)
    assert error.message.startswith("params.layout" + path), error.message
    rest = error.message[len("params.layout" + path) :]
    assert ": " in error.message and (": " in path or path == "" or rest[0] in ":[."), error.message


def test_too_many_and_too_deep(shared_peer):
    cases = [
        table(1, **{f"c{i}": {"dtype": "int8"} for i in range(4097)}),
        deep(13),
        {"kind": "array", "dtype": "int8", "shape": [1] * 33},
        column("int8", 1, metadata={str(i): "" for i in range(257)}),
        # 2 levels of 64 and 65 columns: nested ones count
        {"kind": "table", "length": 1, "columns": [
            {"name": str(i), "dtype": "struct", "length": 1, "children": [
                {"name": str(j), "dtype": "int8", "length": 1} for j in range(64)]}
            for i in range(64)]},
    ]
    for layout in cases:
        shared_peer.request("create", name="bad", layout=layout)
        # Too deep for a line, it cannot be told whose it was: a reply to nobody.
        message = shared_peer.recv_message()
        assert message["error"]["data"]["kind"] in ("invalid", "limit", "parse"), message
    assert shared_peer.call("stats")
