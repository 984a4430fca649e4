"""alias: new names for parts, over the same memory."""

import struct

import pytest

from peer import at, column, table


def array(*shape, dtype="int32"):
    return {"kind": "array", "dtype": dtype, "shape": list(shape)}


@pytest.fixture
def movies(peer):
    """A table of 100 rows: int32 row numbers, int8 with a mask of every second, strings."""
    layout = table(
        100,
        n={"dtype": "int32"},
        m={"dtype": "int8", "mask": {}, "null_count": 50},
        s={"dtype": "utf8", "data": {"bytes": 200}},
    )
    data = {
        "columns[0].data": struct.pack("<100i", *range(100)),
        "columns[1].data": bytes(range(100)),
        "columns[1].mask": b"\x55" * 13,
        "columns[2].offsets": struct.pack("<101i", *range(0, 202, 2)),
        "columns[2].data": b"".join(b"%02d" % i for i in range(100)),
    }
    return peer.create_object("movies", layout, data)


def numbers(opened, path=""):
    """The int32 values of a column, by its offset and length."""
    node = at(opened.layout, path) if path else opened.layout
    data = opened.read(f"{path}.data" if path else "data")
    offset, length = node.get("offset", 0), node["length"]
    return list(struct.unpack_from(f"<{length}i", data, 4 * offset))


def test_whole(daemon, peer, movies):
    version = peer.call("alias", name="again", of="movies")["version"]
    assert version > movies
    opened = daemon.connect().open_object("again")
    assert opened.layout == daemon.connect().open_object("movies").layout
    assert opened.version == version


def test_rows(daemon, peer, movies):
    peer.call("alias", name="part", of="movies", slice={"offset": 10, "length": 20})
    opened = daemon.connect().open_object("part")
    assert opened.layout["length"] == 20
    assert [c["length"] for c in opened.layout["columns"]] == [20] * 3
    assert numbers(opened, "columns[0]") == list(range(10, 30))
    m = opened.layout["columns"][1]
    mask = opened.read("columns[1].mask")
    valid = [mask[(m["offset"] + i) // 8] >> (m["offset"] + i) % 8 & 1 for i in range(20)]
    assert valid == [1, 0] * 10
    assert m["null_count"] in (-1, 10)
    s = opened.layout["columns"][2]
    ends = struct.unpack_from("<21i", opened.read("columns[2].offsets"), 4 * s["offset"])
    assert opened.read("columns[2].data")[ends[0] : ends[1]] == b"10"


def test_slices_of_slices(daemon, peer, movies):
    peer.call("alias", name="p1", of="movies", slice={"offset": 10, "length": 80})
    peer.call("alias", name="p2", of="p1", slice={"offset": 10, "length": 60})
    peer.call("alias", name="p3", of="p2", slice={"offset": 50, "length": 10})
    reader = daemon.connect()
    assert numbers(reader.open_object("p2"), "columns[0]") == list(range(20, 80))
    assert numbers(reader.open_object("p3"), "columns[0]") == list(range(70, 80))


def test_columns(daemon, peer, movies):
    peer.call("alias", name="cols", of="movies", columns=["s", "n"])
    opened = daemon.connect().open_object("cols")
    assert [c["name"] for c in opened.layout["columns"]] == ["s", "n"]
    assert numbers(opened, "columns[1]") == list(range(100))


def test_rows_of_columns(daemon, peer, movies):
    peer.call("alias", name="both", of="movies", columns=["n"], slice={"offset": 99, "length": 1})
    assert numbers(daemon.connect().open_object("both"), "columns[0]") == [99]


def test_no_columns_and_no_rows(daemon, peer, movies):
    peer.call("alias", name="none", of="movies", columns=[])
    peer.call("alias", name="empty", of="movies", slice={"offset": 100, "length": 0})
    reader = daemon.connect()
    assert reader.open_object("none").layout["columns"] == []
    assert reader.open_object("none").layout["length"] == 100
    assert reader.open_object("empty").layout["length"] == 0


def test_bytes(daemon, peer):
    peer.put("b", b"0123456789")
    peer.call("alias", name="part", of="b", slice={"offset": 3, "length": 4})
    opened = daemon.connect().open_object("part")
    assert opened.layout["bytes"] == 4 and opened.read()[:4] == b"3456"


def test_arrays_along_the_first_axis(daemon, peer):
    peer.create_object("a", array(6, 4), struct.pack("<24i", *range(24)))
    peer.call("alias", name="part", of="a", slice={"offset": 2, "length": 3})
    opened = daemon.connect().open_object("part")
    assert opened.layout["shape"] == [3, 4]
    assert list(struct.unpack_from("<12i", opened.read())) == list(range(8, 20))


def test_columns_by_elements(daemon, peer):
    peer.create_object("c", column("int32", 10, offset=2), struct.pack("<12i", *range(12)))
    peer.call("alias", name="part", of="c", slice={"offset": 5, "length": 5})
    assert numbers(daemon.connect().open_object("part")) == [7, 8, 9, 10, 11]


def test_structs_children_are_sliced_alike(daemon, peer):
    layout = column("struct", 10, children=[{"name": "x", "dtype": "int32", "length": 10}])
    peer.create_object("s", layout, {"children[0].data": struct.pack("<10i", *range(10))})
    peer.call("alias", name="part", of="s", slice={"offset": 4, "length": 3})
    opened = daemon.connect().open_object("part")
    child = opened.layout["children"][0]
    # As in Arrow the parent's offset counts in the child too.
    first = opened.layout.get("offset", 0) + child.get("offset", 0)
    data = opened.read("children[0].data")
    assert list(struct.unpack_from("<3i", data, 4 * first)) == [4, 5, 6]


def test_the_source_may_go(daemon, peer, movies):
    peer.call("alias", name="part", of="movies", slice={"offset": 90, "length": 10})
    peer.call("delete", name="movies")
    peer.put("scribble", b"\xff" * 4096)
    assert numbers(daemon.connect().open_object("part"), "columns[0]") == list(range(90, 100))


def test_of_itself(daemon, peer, movies):
    """A table may be replaced by a part of itself."""
    peer.error("exists", "alias", name="movies", of="movies")
    peer.call("alias", name="movies", of="movies", slice={"offset": 50, "length": 2}, replace=True)
    assert numbers(daemon.connect().open_object("movies"), "columns[0]") == [50, 51]


@pytest.mark.parametrize("params,path", [
    ({"slice": {"offset": 0, "length": 101}}, "params.slice"),
    ({"slice": {"offset": 101, "length": 0}}, "params.slice"),
    ({"slice": {"offset": 1, "length": (1 << 52) - 1}}, "params.slice"),
    ({"slice": {"offset": -1, "length": 1}}, "params.slice.offset"),
    ({"slice": {"offset": 0}}, "params.slice.length"),
    ({"slice": {"length": 1}}, "params.slice.offset"),
    ({"slice": {"offset": 0, "length": 1, "step": 2}}, "params.slice.step"),
    ({"slice": [0, 1]}, "params.slice"),
    ({"columns": ["none"]}, "params.columns[0]"),
    ({"columns": ["n", "s", "n"]}, "params.columns[2]"),
    ({"columns": [0]}, "params.columns[0]"),
    ({"columns": "n"}, "params.columns"),
    ({"name": "a/"}, "params.name"),
    ({"mode": "0888"}, "params.mode"),
    ({"of": "scalar", "slice": {"offset": 0, "length": 1}}, "params.slice"),
    ({"of": "scalar", "columns": ["x"]}, "params.columns"),
], ids=str)
def test_bad_params(peer, movies, params, path):
    peer.create_object("scalar", array(), b"\1\0\0\0")
    error = peer.error("invalid", "alias", **{"name": "bad", "of": "movies", **params})
    assert error.message.startswith(path), error.message
    assert peer.names() == ["movies", "scalar"]


@pytest.mark.root
def test_a_reader_cannot_keep_the_memory(daemon, peer):
    """`keep` is for who may change an object; an alias made by a mere reader does not inherit it."""
    peer.put("kept", evict="keep", mode="0644")
    reader = daemon.connect_as(1234, 1234)
    reader.call("alias", name="theirs", of="kept")
    assert reader.call("stat", name="theirs")["object"]["evict"] == "drop"
    peer.call("alias", name="mine", of="kept")
    assert peer.call("stat", name="mine")["object"]["evict"] == "keep"
