"""create, seal, abort: an object from nothing to published."""

import time

import pytest

import device as test_device
from peer import buffers, bytes_layout, column, table

MIB = 1 << 20


def test_leases_that_cannot_be_sealed(daemon, peer):
    """One that was, a reader's, and another session's: numbers of leases mean something to their own session only."""
    lease = peer.create("a", bytes_layout(1))["lease"]
    other = daemon.connect()
    for method in ("seal", "release"):
        other.error("stale", method, lease=lease)
    peer.call("seal", lease=lease)
    peer.error("busy", "seal", lease=lease)
    other.error("busy", "seal", lease=other.open_object("a").lease)
    assert peer.call("stat", name="a")["object"]["leases"] == 2


@pytest.mark.on_gpus
def test_the_whole_way(daemon, peer):
    result = peer.create("a/b", bytes_layout(5), b"hello")
    made = result["object"]
    assert made["name"] == "a/b" and made["state"] == "open"
    assert made["tier"] == "device" and made["device"] == test_device.ID
    assert made["share"] == "fd"
    assert made["producer"] == "daemon"
    (segment,) = result["segments"]
    assert segment["access"] == "rw" and segment["device"] == test_device.ID

    sealed = peer.call("seal", lease=result["lease"])
    assert sealed["version"] > 0

    opened = daemon.connect().open_object("a/b")
    assert opened.read() == b"hello"
    assert opened.version == sealed["version"]
    assert opened.object["state"] == "sealed"


def test_object_members(peer):
    before = int(time.time() * 1000)
    peer.create_object("a", bytes_layout(5), mode="0640", ttl_ms=100000, evict="keep")
    made = peer.call("stat", name="a")["object"]
    assert made["mode"] == "0640" and made["ttl_ms"] == 100000 and made["evict"] == "keep"
    assert made["uid"] >= 0 and made["gid"] >= 0
    assert before - 1000 <= made["created_ms"] <= time.time() * 1000 + 1000
    assert made["leases"] == 0 and made["pinned"] is False
    assert made["bytes"] >= 5


def test_defaults(peer):
    peer.put("a")
    made = peer.call("stat", name="a")["object"]
    assert made["mode"] == "0600" and made["ttl_ms"] == 0 and made["evict"] == "spill"


def test_nobody_sees_it_before_the_seal(daemon, peer):
    lease = peer.create("a", bytes_layout(1))["lease"]
    other = daemon.connect()
    for method, more in (("open", {}), ("stat", {}), ("delete", {}), ("set", {"pinned": True})):
        other.error("not_found", method, name="a", **more)
    other.error("not_found", "alias", name="b", of="a")
    assert other.names() == [] and peer.names() == []
    peer.call("seal", lease=lease)
    assert other.names() == ["a"]


def test_a_taken_name_is_refused(peer):
    peer.put("a")
    error = peer.error("exists", "create", name="a", layout=bytes_layout(1))
    assert error.data["name"] == "a" and "replace" in error.message


def test_null_counts(daemon, peer):
    layout = table(
        10,
        a={"dtype": "int32", "mask": {}, "null_count": -1},
        b={"dtype": "int8", "mask": {}, "null_count": 3},
        c={"dtype": "int8"},
    )
    lease = peer.create("a", layout)["lease"]
    for counts in ({"d": 1}, {"a": 11}, {"a": -2}, {"a": "1"}, {"c": 1}, [1]):
        error = peer.error("invalid", "seal", lease=lease, null_counts=counts)
        assert error.message.startswith("params.null_counts")
    peer.call("seal", lease=lease, null_counts={"a": 4})
    columns = daemon.connect().open_object("a").layout["columns"]
    assert [c.get("null_count", 0) for c in columns] == [4, 3, 0]


# RELIABILITY.md: The daemon ends 1
def test_null_counts_of_dictionaries(daemon, peer):
    """Their nulls are those of their indices: without a mask there are none, whoever says so."""
    values = {"dtype": "utf8", "length": 2, "data": {"bytes": 10}}
    for mask, nulls in (({}, 2), (None, 0)):
        indices = {"dtype": "int8", "length": 3, **({"mask": mask} if mask is not None else {})}
        layout = column("dictionary", 3, children=[indices, values])
        lease = peer.create("a", layout, replace=True)["lease"]
        error = peer.error("invalid", "seal", lease=lease, null_counts={"": 4})
        assert error.message.startswith("params.null_counts.: 4 is more than the length, 3")
        if not nulls:
            error = peer.error("invalid", "seal", lease=lease, null_counts={"": 1})
            assert error.message.startswith("params.null_counts.: 1, but there is no mask")
            peer.error("invalid", "create", name="c", layout={**layout, "null_count": 1})
        peer.call("seal", lease=lease, null_counts={"": nulls or -1})
        told = daemon.connect().open_object("a").layout
        assert told.get("null_count", 0) == nulls, "nobody need count where there can be none"
        peer.call("alias", name="b", of="a", replace=True)


@pytest.mark.on_gpus
def test_buffers_are_aligned_and_apart(peer):
    layout = table(
        1001,
        a={"dtype": "int8", "mask": {}},
        b={"dtype": "bool", "mask": {}},
        c={"dtype": "utf8", "data": {"bytes": 77}, "mask": {}},
        d={"dtype": "float64"},
    )
    made = peer.create("a", layout)["object"]
    ranges = []
    for path, buffer in buffers(made["layout"]):
        assert buffer["offset"] % 256 == 0, path
        ranges.append((buffer["segment"], buffer["offset"], buffer["offset"] + buffer["bytes"]))
    ranges.sort()
    for (s, _, end), (t, start, _) in zip(ranges, ranges[1:]):
        assert s != t or end <= start
    sizes = {p: b["bytes"] for p, b in buffers(made["layout"])}
    assert sizes["columns[0].data"] >= 1001
    assert sizes["columns[0].mask"] >= 128 and sizes["columns[0].mask"] % 64 == 0
    assert sizes["columns[1].data"] >= 126
    assert sizes["columns[2].offsets"] >= 1002 * 4
    assert sizes["columns[2].data"] >= 77
    assert sizes["columns[3].data"] >= 8008
    assert made["bytes"] >= sum(sizes.values())


def test_a_given_size_is_kept(peer):
    """A producer may ask for more than the type needs."""
    made = peer.create("a", column("int32", 4, data={"bytes": 1000}))["object"]
    assert made["layout"]["data"]["bytes"] >= 1000


@pytest.mark.on_gpus
def test_nothing_at_all(daemon, peer):
    """Objects without a byte are objects."""
    peer.create_object("bytes", bytes_layout(0))
    peer.create_object("column", column("int32", 0))
    peer.create_object("table", table(0))
    peer.create_object("rows", table(7))
    peer.create_object("array", {"kind": "array", "dtype": "int8", "shape": [3, 0]})
    peer.create_object("null", column("null", 12, null_count=12))
    reader = daemon.connect()
    assert reader.open_object("bytes").layout["bytes"] == 0
    assert reader.open_object("rows").layout["length"] == 7
    assert reader.open_object("array").layout["shape"] == [3, 0]
    assert reader.open_object("null").layout["length"] == 12
    for name in ("column", "table"):
        assert reader.open_object(name).layout["length"] == 0


@pytest.mark.on_gpus
def test_large_and_small(daemon, peer):
    """A segment of its own for what is large; many small ones share one."""
    large = peer.create("large", bytes_layout(32 * MIB), b"L")
    small = [peer.create(f"small/{i}", bytes_layout(100), b"s%d" % i) for i in range(100)]
    segments = {r["object"]["layout"]["data"]["segment"] for r in small}
    assert len(segments) == 1
    assert large["object"]["layout"]["data"]["segment"] not in segments
    for result in [large, *small]:
        peer.call("seal", lease=result["lease"], release=True)
    reader = daemon.connect()
    assert reader.open_object("large").read()[:1] == b"L"
    for i in range(100):
        assert reader.open_object(f"small/{i}").read().startswith(b"s%d" % i)


@pytest.mark.on_gpus
def test_a_writer_is_given_a_segment_again_for_writing(daemon, peer):
    """A session that only reads a segment needs the writable handle when it creates in it."""
    peer.put("a")
    other = daemon.connect()
    other.open_object("a")
    made = other.create("b", bytes_layout(1), b"2")
    assert made["object"]["layout"]["data"]["segment"] in [k[0] for k in other.segments]
    other.call("seal", lease=made["lease"])
    assert daemon.connect().open_object("b").read() == b"2"


def test_ttl_counts_from_the_seal(daemon, peer):
    """An object of the same life, sealed at once, ends while this one is unsealed."""
    watcher = daemon.connect()
    watcher.call("watch", prefix="")
    lease = peer.create("a", bytes_layout(1), ttl_ms=250)["lease"]
    peer.put("b", ttl_ms=250)
    assert [name for _, name, _ in watcher.events(3)] == [None, "b", "b"], "synced, sealed, gone"
    start = time.monotonic()
    peer.call("seal", lease=lease, release=True)
    assert [name for _, name, _ in watcher.events(2)] == ["a", "a"], "sealed, gone"
    assert time.monotonic() - start >= 0.24
    assert peer.names() == []


@pytest.mark.on_gpus
@pytest.mark.parametrize("device", ["cuda:1", "cuda:99", "GPU-00000000-0000-0000-0000-000000000000",
                                    "hosts", "", "disk"])
def test_no_such_device(shared_peer, device):
    error = shared_peer.error(("unsupported", "invalid", "not_found"), "create", name="a",
                              layout=bytes_layout(1), device=device)
    assert "device" in error.message


@pytest.mark.host_only("a GPU shares by ipc")
def test_ipc_is_not_for_host_memory(shared_peer):
    error = shared_peer.error("unsupported", "create", name="a", layout=bytes_layout(1),
                              share="ipc")
    assert "ipc" in error.message


@pytest.mark.parametrize("mode", ["0600", "0640", "0644", "0660", "0666", "0604", "600", "0620"])
def test_modes(shared_peer, mode):
    made = shared_peer.create("mode", bytes_layout(1), mode=mode)
    assert int(made["object"]["mode"], 8) == int(mode, 8)
    shared_peer.call("release", lease=made["lease"])


@pytest.mark.parametrize("mode", ["", "rw", "0800", "0x1ff", "-1", "+600", " 600", "0600 ", "07777",
                                  "10666", "0" * 300])
def test_bad_modes(shared_peer, mode):
    error = shared_peer.error("invalid", "create", name="a", layout=bytes_layout(1), mode=mode)
    assert error.message.startswith("params.mode: ")
