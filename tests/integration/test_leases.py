"""leases, unmap, trim: who holds what, and giving it back."""

import os

import device as test_device
from peer import bytes_layout

MIB = 1 << 20


def test_members(daemon, peer):
    version = peer.put("a", b"x" * 100)
    reader = daemon.connect()
    session = reader.call("hello", protocol=1, client="reader")["session"]
    reader.open_object("a")
    (lease,) = peer.call("leases")["leases"]
    assert lease["session"] == session and lease["client"] == "reader"
    assert lease["pid"] == os.getpid()
    assert lease["uid"] == os.geteuid()
    assert lease["name"] == "a" and lease["version"] == version and lease["access"] == "r"
    assert lease["bytes"] >= 100
    assert 0 <= lease["age_ms"] < 60000


def test_by_name(daemon, peer):
    peer.put("a")
    peer.put("b")
    reader = daemon.connect()
    for name in "aab":
        reader.open_object(name)
    assert [e["name"] for e in peer.call("leases", name="a")["leases"]] == ["a", "a"]
    assert len(peer.call("leases")["leases"]) == 3


def test_mapped(daemon, peer):
    peer.create_object("a", bytes_layout(20 * MIB))
    reader = daemon.connect()
    session = reader.call("hello", protocol=1, client="reader")["session"]
    opened = reader.open_object("a")
    segment = opened.layout["data"]["segment"]

    def mine():
        return [m for m in peer.call("leases")["mapped"] if m["session"] == session]

    told = {"session": session, "pid": os.getpid(), "uid": os.geteuid(), "client": "reader",
            "segment": segment, "bytes": reader.segment(segment).bytes}
    assert mine() == [told]
    opened.release()
    peer.call("delete", name="a")
    peer.unmap()
    peer.call("trim")
    assert mine() == [{**told, "retiring": True}]
    assert peer.pinned_by_clients() == told["bytes"]


def test_unmap_of_what_was_never_had(daemon, peer):
    peer.put("a")
    segment = peer.call("stat", name="a")["object"]["layout"]["data"]["segment"]
    other = daemon.connect()
    other.error("stale", "unmap", segments=[segment])
    other.error("stale", "unmap", segments=[1 << 50])
    peer.call("unmap", segments=[segment])
    peer.error("stale", "unmap", segments=[segment])
    assert peer.call("unmap", segments=[]) == {}


def test_trim_of_a_device(peer):
    assert peer.call("trim", device=test_device.ID) == {"freed": 0}
    peer.error(("invalid", "unsupported", "not_found"), "trim", device="cuda:1")


def test_trim_frees_all_that_is_unused(daemon):
    producer = daemon.connect()
    for i in range(3):
        producer.create_object(f"a/{i}", bytes_layout(17 * MIB), b"x")
    producer.call("delete", names=[f"a/{i}" for i in range(3)])
    producer.close()
    peer = daemon.connect()
    assert peer.call("trim")["freed"] >= 3 * 17 * MIB
    assert peer.used() == 0
