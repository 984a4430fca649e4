"""why: what keeps an object where it is, or what leaves before it does."""

import os

import pytest

import device as test_device
from peer import Peer

BELOW = "host" if test_device.ON_GPU else "disk"


@pytest.fixture
def daemon(daemon_factory):
    """A cache: what is not said to be needed may go."""
    return daemon_factory("--evict", "drop")


def kinds(told):
    return [reason["kind"] for reason in told["reasons"]]


def test_a_lease(daemon, peer):
    peer.put("a")
    reader = daemon.connect()
    session = reader.call("hello", protocol=1, client="reader")["session"]
    opened = reader.open_object("a")
    told = peer.call("stat", why=True, name="a")
    assert told["evictable"] is False and "before" not in told
    (reason,) = told["reasons"]
    (lease,) = peer.call("leases", name="a")["leases"]
    assert 0 <= reason.pop("age_ms") <= lease.pop("age_ms")
    assert reason == {"kind": "leased", **lease} and reason["session"] == session
    assert reason["pid"] == os.getpid()
    opened.release()
    told = peer.call("stat", why=True, name="a")
    assert told["evictable"] is True and told["reasons"] == []


def test_it_takes_no_lease_and_is_no_use(daemon, peer):
    peer.put("a")
    peer.put("b")
    for _ in range(3):
        peer.call("stat", name="a")
        told = peer.call("stat", why=True, name="a")
    assert told["before"]["objects"] == 0 and peer.call("leases")["leases"] == []
    listed = peer.call("list", limit=1)["objects"][0]
    assert told["object"].pop("idle_ms") <= listed.pop("idle_ms")
    assert told["object"] == listed


def test_pins_and_keep(peer):
    peer.put("a", evict="keep")
    peer.put("b")
    peer.call("set", pinned=True, name="b")
    peer.call("set", pinned=True, name="a")
    assert peer.call("stat", why=True, name="a")["reasons"] == [
        {"kind": "pinned", "name": "a"}, {"kind": "keep", "name": "a"}, {"kind": "no_tier"}]
    assert peer.call("stat", why=True, name="b")["reasons"] == [{"kind": "pinned", "name": "b"}]
    peer.call("set", pinned=False, name="b")
    assert peer.call("stat", why=True, name="b")["evictable"] is True


def test_aliases_hold_too(daemon, peer):
    peer.put("a", b"12345678")
    peer.call("alias", name="b", of="a", slice={"offset": 0, "length": 4})
    peer.call("alias", name="c", of="b")
    assert peer.call("stat", why=True, name="b")["aliases"] == ["a", "c"]
    peer.call("set", pinned=True, name="c")
    opened = daemon.connect().open_object("b")
    told = peer.call("stat", why=True, name="a")
    assert [(r["kind"], r["name"]) for r in told["reasons"]] == [("leased", "b"), ("pinned", "c")]
    peer.call("delete", names=["b", "c"])
    assert kinds(peer.call("stat", why=True, name="a")) == ["leased"], "a name that is gone, still open"
    assert peer.call("stat", why=True, name="a")["aliases"] == []
    opened.release()
    assert peer.call("stat", why=True, name="a")["evictable"] is True


def test_the_order(daemon, peer):
    """The order is that in which `create` lets them go."""
    sizes = {"a": 100, "b": 3000, "c": 20000, "d": 7}
    for name, size in sizes.items():
        peer.put(name, bytes(size))
    peer.open_object("a").release()
    before = {name: peer.call("stat", why=True, name=name)["before"] for name in sizes}
    assert [before[name]["objects"] for name in "bcda"] == [0, 1, 2, 3]
    (device,) = peer.call("stats")["devices"]
    for told in before.values():
        assert told["of_objects"] == 4 and told["of_bytes"] == device["evictable"]
    rounded = {name: -(-size // 256) * 256 for name, size in sizes.items()}
    assert before["a"]["bytes"] == rounded["b"] + rounded["c"] + rounded["d"]
    assert before["b"]["bytes"] == 0 and "more" not in before["a"]


def test_without_a_tier(daemon, peer):
    """An object to be dropped goes nowhere; a needed one stays, also when nobody holds it."""
    peer.put("a", evict="spill")
    peer.put("b", evict="drop")
    told = peer.call("stat", why=True, name="a")
    assert told["evictable"] is False and told["reasons"] == [{"kind": "no_tier"}]
    assert "goes_to" not in told and "before" not in told
    assert told["object"]["when_short"] == "stays"
    told = peer.call("stat", why=True, name="b")
    assert told["evictable"] and told["goes_to"] == "nowhere" and told["reasons"] == []
    assert told["object"]["when_short"] == "drops"
    peer.put("none", b"")
    assert peer.call("stat", why=True, name="none")["object"]["when_short"] == "stays"
    daemon.connect().open_object("a")
    assert kinds(peer.call("stat", why=True, name="a")) == ["leased", "no_tier"]


def test_an_alias_that_is_needed(peer):
    """The memory is needed as long as one of its names is."""
    peer.put("a")
    peer.put("needed", b"y", evict="spill")
    peer.call("alias", name="b", of="needed")
    assert kinds(peer.call("stat", why=True, name="b")) == ["no_tier"]
    peer.call("delete", name="needed")
    assert kinds(peer.call("stat", why=True, name="b")) == ["no_tier"]
    peer.call("delete", name="b")
    assert peer.call("stats")["devices"][0]["evictable"] == 256


def test_one_without_bytes_stays(peer):
    """Its leaving would make no room for others."""
    peer.put("none", b"")
    peer.put("kept", b"", evict="keep")
    told = peer.call("stat", why=True, name="none")
    assert told["evictable"] is False and told["reasons"] == [{"kind": "empty"}]
    assert "before" not in told
    assert kinds(peer.call("stat", why=True, name="kept")) == ["keep", "empty"]


@pytest.fixture
def tiered(daemon_factory, place):
    options = ["--watermarks", "100:100", "--tier", f"disk:128M:{place}"]
    if test_device.ON_GPU:
        options += ["--tier", "host:128M"]
    return daemon_factory(*options)


@pytest.mark.on_gpus
def test_tiers(tiered):
    peer = tiered.connect()
    for name in "abc":
        with Peer(tiered.path) as producer:
            producer.put(name, bytes(1000), evict="drop" if name == "c" else "spill")
    assert peer.call("stat", why=True, name="a")["goes_to"] == BELOW
    assert peer.call("stat", why=True, name="a")["object"]["when_short"] == "spills"
    told = peer.call("stat", why=True, name="c")
    assert told["goes_to"] == "nowhere" and told["object"]["when_short"] == "drops"
    peer.call("move", name="b")
    peer.call("move", name="a")
    told = peer.call("stat", why=True, name="a")
    assert told["object"]["tier"] == BELOW
    if test_device.ON_GPU:
        assert told["before"]["objects"] == 1 and told["before"]["of_objects"] == 2
        assert told["goes_to"] == "disk"
        peer.call("move", name="a", tier="disk")
        told = peer.call("stat", why=True, name="a")
    assert told["evictable"] is False and kinds(told) == ["last_tier"] and "goes_to" not in told
    assert told["object"]["when_short"] == "stays"
    peer.call("set", pinned=True, name="a")
    told = peer.call("stat", why=True, name="a")
    assert told["evictable"] is False and kinds(told) == ["pinned", "last_tier"] and "before" not in told


@pytest.mark.root
def test_what_one_may_not_open_is_only_counted(daemon, as_user):
    """Aliases of one's own of what others have, and the other way round."""
    as_user(daemon, 1001, 1001, lambda p: p.put("secret", b"12345678", mode="0604"))

    def other(peer):
        peer.call("alias", name="mine", of="secret", mode="0600")
        peer.call("set", pinned=True, name="mine")
        return peer.call("stat", why=True, name="mine")

    told = as_user(daemon, 1003, 1003, other)
    assert told["aliases"] == ["secret"]
    opened = daemon.connect_as(1003, 1003).open_object("mine")

    told = as_user(daemon, 1001, 1001, lambda p: p.call("stat", why=True, name="secret"))
    assert told["aliases"] == [] and told["other_aliases"] == 1
    assert told["reasons"] == [{"kind": "leased", "others": 1}, {"kind": "pinned", "others": 1}]
    assert as_user(daemon, 1002, 1002, lambda p: p.error("not_found", "stat", why=True, name="mine").kind)
    opened.release()
