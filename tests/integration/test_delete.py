"""delete: the name goes at once, the memory with the last lease."""


def test_many_with_a_missing_one(peer):
    """The error names it."""
    peer.put("a")
    peer.put("b")
    error = peer.error("not_found", "delete", names=["a", "none", "b"])
    assert error.data["name"] == "none"
    peer.put("a", replace=True)
    assert peer.call("delete", names=["a"]) == {}
