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


def test_columns(daemon, peer, movies):
    peer.call("alias", name="cols", of="movies", columns=["s", "n"])
    opened = daemon.connect().open_object("cols")
    assert [c["name"] for c in opened.layout["columns"]] == ["s", "n"]
    assert numbers(opened, "columns[1]") == list(range(100))


def test_of_itself(daemon, peer, movies):
    """A table may be replaced by a part of itself."""
    peer.error("exists", "alias", name="movies", of="movies")
    peer.call("alias", name="movies", of="movies", slice={"offset": 50, "length": 2}, replace=True)
    assert numbers(daemon.connect().open_object("movies"), "columns[0]") == [50, 51]


# unit/test_layout_parts.c has every slice and choice of columns.
BAD = [
    ({"slice": {"offset": 0, "length": 101}}, "params.slice"),
    ({"slice": {"offset": 0}}, "params.slice.length"),
    ({"columns": ["n", "s", "n"]}, "params.columns[2]"),
    ({"columns": [0]}, "params.columns[0]"),
]


def test_bad_params(peer, movies):
    for params, path in BAD:
        error = peer.error("invalid", "alias", **{"name": "bad", "of": "movies", **params})
        assert error.message.startswith(path), (params, error.message)
    assert peer.names() == ["movies"]


@pytest.mark.root
def test_a_reader_cannot_keep_the_memory(daemon, peer):
    """`keep` is for who may change an object; an alias made by a mere reader does not inherit it."""
    peer.put("kept", evict="keep", mode="0644")
    reader = daemon.connect_as(1234, 1234)
    reader.call("alias", name="theirs", of="kept")
    assert reader.call("stat", name="theirs")["object"]["evict"] == "drop"
    peer.call("alias", name="mine", of="kept")
    assert peer.call("stat", name="mine")["object"]["evict"] == "keep"
