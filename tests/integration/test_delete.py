"""delete: the name goes at once, the memory with the last lease."""


def test_many_with_a_missing_one(peer):
    """The error names it."""
    peer.put("a")
    peer.put("b")
    error = peer.error("not_found", "delete", names=["a", "none", "b"])
    assert error.data["name"] == "none"
    peer.put("a", replace=True)
    assert peer.call("delete", names=["a"]) == {}


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
