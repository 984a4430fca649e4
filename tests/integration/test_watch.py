"""watch and unwatch: what happens, in order, and only what one may see."""

import pytest


def told(events):
    return [(kind, name) for kind, name, _ in events]


def test_what_exists_is_told_first(daemon, peer):
    for name in ("b", "a", "c/d"):
        peer.put(name)
    watcher = daemon.connect()
    watch = watcher.call("watch")["watch"]
    events = watcher.events(4)
    assert sorted(told(events[:3])) == [("sealed", "a"), ("sealed", "b"), ("sealed", "c/d")]
    assert events[3][0] == "synced"
    assert all(e[2]["watch"] == watch for e in events)


def test_the_object_is_told_without_its_layout(daemon, peer):
    watcher = daemon.connect()
    watcher.call("watch")
    peer.put("a", b"123")
    told_object = watcher.events(2)[1][2]["object"]
    stat = peer.call("stat", name="a")["object"]
    del stat["layout"], stat["idle_ms"]
    assert {**told_object, "leases": 0} == {**stat, "leases": 0}  # the writer held one just then


def test_prefix(daemon, peer):
    peer.put("x/old")
    peer.put("y/old")
    watcher = daemon.connect()
    watcher.call("watch", prefix="x/")
    peer.put("y/new")
    peer.put("x/new")
    peer.put("x")
    peer.call("delete", name="y/old")
    peer.call("delete", name="x/old")
    assert told(watcher.events(4)) == [
        ("sealed", "x/old"), ("synced", None), ("sealed", "x/new"), ("deleted", "x/old")]
    watcher.no_notification()


def test_kinds(daemon, peer):
    peer.put("old")
    watcher = daemon.connect()
    watcher.call("watch", kinds=["deleted"])
    peer.put("new")
    peer.call("delete", name="old")
    peer.call("delete", name="new")
    events = [e for e in told(watcher.events(2)) if e[0] != "synced"]
    events += told(watcher.events(2 - len(events)))
    assert events == [("deleted", "old"), ("deleted", "new")]
    watcher.no_notification()


def test_a_watch_belongs_to_its_session(daemon, peer):
    watch = peer.call("watch")["watch"]
    daemon.connect().error(("stale", "not_found"), "unwatch", watch=watch)
    assert peer.call("unwatch", watch=watch) == {}


# ---- numbers -----------------------------------------------------------------------------------


def test_numbers_go_up_by_one(daemon, peer):
    peer.put("old")
    watcher, other = daemon.connect(), daemon.connect()
    begun = watcher.call("watch")["seq"]
    other.call("watch", prefix="n/1")
    assert [e[2]["seq"] for e in watcher.events(2)] == [begun, begun] == [1, 1]  # old, synced
    for i in range(5):
        peer.put(f"n/{i}")
        peer.call("delete", name=f"n/{i}")
    assert [e[2]["seq"] for e in watcher.events(10)] == list(range(begun + 1, begun + 11))
    # Another watch sees fewer of them, under the same numbers.
    assert [(e[0], e[2]["seq"]) for e in other.events(3)] == [
        ("synced", 1), ("sealed", begun + 3), ("deleted", begun + 4)]
    assert peer.call("stats")["seq"] == peer.call("list")["seq"] == begun + 10


@pytest.mark.root
def test_numbers_tell_no_more_than_that_something_was(daemon, peer):
    other = daemon.connect_as(12345, 12345)
    other.call("watch")
    peer.put("secret")
    peer.put("shown", mode="0604")
    assert [(kind, name, params["seq"]) for kind, name, params in other.events(2)] == [
        ("synced", None, 0), ("sealed", "shown", 2)]


def test_without_what_exists(daemon, peer):
    for i in range(3):
        peer.put(f"a/{i}")
    watcher = daemon.connect()
    assert watcher.call("watch", existing=False)["seq"] == 3
    peer.put("a/1", replace=True)
    peer.put("b")
    events = watcher.events(2)
    assert told(events) == [("sealed", "a/1"), ("sealed", "b")]
    assert [e[2]["seq"] for e in events] == [4, 5]
    watcher.no_notification()


def test_placements(daemon, peer):
    watcher = daemon.connect()
    watcher.call("watch", existing=False, placements=True)
    peer.put("a", b"x" * 1000)
    ((_, _, params),) = watcher.events(1)
    data = peer.call("stat", name="a")["object"]["layout"]["data"]
    ((segment, offset, length),) = params["placements"]
    assert (segment, offset) == (data["segment"], data["offset"]) and length >= 1000
    (listed,) = peer.call("list", placements=True)["objects"]
    assert listed["placements"] == params["placements"]
    assert "placements" not in peer.call("list")["objects"][0]
