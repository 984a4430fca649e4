"""release with park, open with lease and own: claims without memory, and segments of one's own."""

import pytest

from device import MIB
from peer import Peer, bytes_layout, wait_until
from restarts import supervised  # noqa: F401
from tiers import BELOW, SIZE, content, start, tiered  # noqa: F401


def parked(daemon, name, **params):
    """A session that has the object parked, and its lease."""
    peer = daemon.connect()
    opened = peer.open_object(name, **params)
    if peer.segments:
        peer.unmap()
    peer.call("release", lease=opened.lease, park=True)
    return peer, opened.lease


def state(peer, name):
    return peer.call("stat", name=name)["object"]


def test_what_is_told(daemon, peer):
    peer.put("a")
    reader, lease = parked(daemon, "a")
    found = state(peer, "a")
    assert found["leases"] == 0 and found["parked"] == 1
    (row,) = peer.call("leases", name="a")["leases"]
    assert row["lease"] == lease and row["parked_ms"] >= 0 and "cached_ms" not in row
    why = peer.call("stat", name="a", why=True)
    assert [reason["lease"] for reason in why["reasons"] if reason["kind"] == "parked"] == [lease]
    stats = peer.call("stats")
    assert stats["parked"] == 1 and stats["leases"] == 0
    (session,) = [s for s in peer.call("sessions")["sessions"] if s["parked"]]
    assert session["leases"] == 0 and session["parked"] == 1
    reader.call("release", lease=lease, park=True)  # once more changes nothing
    assert state(peer, "a")["parked"] == 1
    reader.call("release", lease=lease)
    assert "parked" not in state(peer, "a") and peer.call("stats")["parked"] == 0


def test_refused(peer, daemon):
    peer.put("a")
    created = peer.call("create", name="b", layout=bytes_layout(10))
    peer.error("busy", "release", lease=created["lease"], park=True)
    peer.error("busy", "open", lease=created["lease"])
    peer.error("stale", "release", lease=999, park=True)
    peer.error("stale", "open", lease=999)
    opened = peer.open_object("a")
    other = daemon.connect()
    other.error("stale", "open", lease=opened.lease)  # another's
    peer.error("invalid", "open", lease=opened.lease, name="a")
    peer.error("invalid", "open", lease=opened.lease, version=1)
    peer.error("invalid", "open", names=["a"], own=True)
    assert "create it with own" in peer.error("unsupported", "open", name="a", own=True).message
    assert state(peer, "a")["leases"] == 1


def test_own_is_a_segment_alone(peer):
    peer.put("shared")
    for name in ("a", "b"):
        peer.create_object(name, bytes_layout(100), b"x" * 100, own=True)
        assert peer.open_object(name, own=True).object["layout"]["data"]["offset"] == 0
    segments = {peer.open_object(name).object["layout"]["data"]["segment"] for name in ("shared", "a", "b")}
    assert len(segments) == 3


def test_its_segment_after_a_crash(supervised, place):  # noqa: F811
    """Content that was opened with `own` comes back to a segment of exactly its size under the next daemon, too."""
    size = 20 * MIB
    daemon = supervised("--tier", f"disk:64M:{place}", "--grace", "0", device="host:64M")
    peer = daemon.connect()
    hello = peer.call("hello", protocol=1)
    version = peer.put("a", bytes(size))
    peer.call("open", name="a", own=True)
    daemon.crash()
    peer = daemon.connect()
    wanted = {"name": "a", "version": version, "parked": True}
    (lease,) = peer.call("hello", protocol=1, resume={"instance": hello["instance"], "objects": [wanted]})["resumed"]
    peer.call("move", name="a")
    with Peer(daemon.path) as other:
        other.put("in its place", bytes(size))
        other.put("larger", bytes(size + 2 * MIB))
        other.call("delete", name="larger")  # its segment would do, with 2 MiB more
    told = peer.call("open", lease=lease, own=True)
    assert [one["bytes"] for one in told["segments"]] == [size]


@pytest.mark.parametrize("evict", ["spill", "drop"])
def test_it_leaves_for_a_tier_and_comes_back(tiered, evict):  # noqa: F811
    tiered.put("a", evict=evict, own=True)
    reader, lease = parked(tiered.daemon, "a", own=True)
    for name in ("b", "c", "d"):
        tiered.put(name)
    assert state(tiered.peer, "a")["tier"] != "device"
    tiered.peer.call("delete", names=["a"])
    again = reader.call("open", lease=lease, own=True, wait_ms=60000)
    data = again["object"]["layout"]["data"]
    assert data["offset"] == 0 and reader.read(data) == content("a", SIZE)
    reader.call("release", leases=[lease, again["lease"]])
    reader.unmap()
    reader.error("stale", "open", lease=lease)


def test_what_has_a_copy_leaves_for_it(tiered):  # noqa: F811
    """Also what may be dropped: it was copied while it was parked. `stat` says what becomes of it."""
    tiered.put("a", evict="drop")
    reader, lease = parked(tiered.daemon, "a")
    tiered.peer.call("move", name="a", tier=BELOW)
    again = reader.call("open", lease=lease, wait_ms=60000)
    reader.call("release", leases=[lease, again["lease"]])
    reader.unmap()
    told = tiered.peer.call("stat", name="a", why=True)
    assert told["goes_to"] == BELOW and told["object"]["when_short"] == "spills"
    for name in ("b", "c", "d"):
        tiered.put(name)
    told = tiered.peer.call("stat", name="a", why=True)
    assert told["object"]["tier"] == BELOW
    assert told["goes_to"] == "nowhere" and told["object"]["when_short"] == "drops"


def test_events(daemon, peer):
    """Whoever watches is told when a claim sleeps and wakes, and not of one that merely ends."""
    peer.put("a")
    peer.call("watch", prefix="a", kinds=["parked", "resumed", "deleted"])
    reader, lease = parked(daemon, "a")
    reader.call("release", lease=lease, park=True)
    again = reader.call("open", lease=lease)
    reader.call("release", leases=[lease, again["lease"]])
    parked(daemon, "a")[0].close()
    peer.call("delete", name="a")
    told = peer.events(4)
    assert [event[:2] for event in told] == [("parked", "a"), ("resumed", "a"), ("parked", "a"), ("deleted", "a")]
    assert told[0][2]["object"]["parked"] == 1 and told[0][2]["object"]["leases"] == 0


def test_without_a_tier_it_stays(daemon, peer):
    """Also what may be dropped, as long as somebody has a claim on it."""
    peer.create_object("a", bytes_layout(40 * MIB), b"", evict="drop")
    peer.unmap()
    reader, lease = parked(daemon, "a")
    with Peer(daemon.path) as other:
        other.error("no_space", "create", name="b", layout=bytes_layout(40 * MIB))
        reader.close()
        wait_until(lambda: state(peer, "a").get("parked", 0) == 0)
        other.call("create", name="b", layout=bytes_layout(40 * MIB))
    peer.error("not_found", "stat", name="a")


def test_a_name_that_went(daemon, peer):
    peer.put("a")
    reader, lease = parked(daemon, "a")
    peer.call("delete", names=["a"])
    assert peer.call("stats")["objects"] == 1
    again = reader.call("open", lease=lease)
    assert reader.read(again["object"]["layout"]["data"]) == b"x"
    reader.close()
    wait_until(lambda: peer.call("stats")["objects"] == 0)


@pytest.mark.parametrize("uid, watches", [
    (None, None), (None, {}), (None, {"existing": False, "prefix": "elsewhere"}), (None, {"kinds": ["sealed"]}),
    pytest.param(2001, {"existing": False}, marks=pytest.mark.root)])
def test_a_session_that_comes_back_has_it_parked(daemon, peer, uid, watches):
    """Whoever watches meanwhile, and whatever."""
    names = ["a", "b", "c"]
    for name in names:
        peer.put(name, name.encode())
    watcher = daemon.connect_as(uid, uid) if uid else daemon.connect()
    if watches is not None:
        watcher.call("watch", **watches)
    with Peer(daemon.path) as other:
        instance = other.call("hello", protocol=1)["instance"]
    objects = [{"name": name, "version": state(peer, name)["version"], "parked": True} for name in names]
    with Peer(daemon.path) as again:
        resumed = again.call("hello", protocol=1, resume={"instance": instance, "objects": objects})["resumed"]
        for name, lease in zip(names, resumed):
            assert state(peer, name)["parked"] == 1
            assert again.read(again.call("open", lease=lease)["object"]["layout"]["data"]) == name.encode()
