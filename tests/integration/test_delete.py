"""delete: the name goes at once, the memory with the last lease."""

import pytest

from peer import bytes_layout


def test_one(daemon, peer):
    peer.put("a")
    assert peer.call("delete", name="a") == {}
    assert peer.names() == []
    for method in ("delete", "open", "stat"):
        assert peer.error("not_found", method, name="a").data["name"] == "a"


def test_the_name_is_free_again(daemon, peer):
    peer.put("a", b"1")
    peer.call("delete", name="a")
    peer.put("a", b"2")
    assert daemon.connect().open_object("a").read() == b"2"


def test_many(peer):
    for name in "abcd":
        peer.put(name)
    assert peer.call("delete", names=["a", "c"]) == {}
    assert peer.names() == ["b", "d"]


def test_many_with_a_missing_one(peer):
    """The error names it."""
    peer.put("a")
    peer.put("b")
    error = peer.error("not_found", "delete", names=["a", "none", "b"])
    assert error.data["name"] == "none"


def test_leased(daemon, peer):
    peer.put("a", b"content")
    reader = daemon.connect()
    opened = reader.open_object("a")
    peer.call("delete", name="a")
    reader.error("not_found", "open", name="a")
    peer.put("a", b"another")
    for i in range(20):
        peer.put(f"fill/{i}", b"\xff" * 1000)
    assert opened.read() == b"content"
    (lease,) = peer.call("leases")["leases"]
    assert lease["version"] == opened.version
    opened.release()
    assert peer.call("leases")["leases"] == []


def test_by_version(peer):
    old = peer.put("a", b"1")
    new = peer.put("a", b"2", replace=True)
    peer.error(("stale", "not_found"), "delete", name="a", version=old)
    assert peer.names() == ["a"]
    peer.call("delete", name="a", version=new)
    assert peer.names() == []


def test_by_anybody_of_the_same_user(daemon, peer):
    peer.put("a")
    daemon.connect().call("delete", name="a")
    assert peer.names() == []


def test_pinned_and_kept(peer):
    """Neither protects from its owner."""
    peer.put("pinned")
    peer.call("set", pinned=True, name="pinned")
    peer.put("kept", evict="keep")
    peer.call("delete", names=["pinned", "kept"])
    assert peer.names() == []


def test_space_comes_back(peer):
    for i in range(30):
        peer.create_object("a", bytes_layout(40 << 20), b"%d" % i, evict="keep")
        peer.call("delete", name="a")
        assert peer.used() == 0


@pytest.mark.parametrize("params", [
    {}, {"name": "a", "names": ["a"]}, {"name": 1}, {"names": "a"}, {"names": [1]},
    {"name": "a", "version": -1}, {"name": "x" * 256},
], ids=str)
def test_bad_params(shared_peer, params):
    assert "params" in shared_peer.error("invalid", "delete", **params).message
