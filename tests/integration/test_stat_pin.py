"""stat and set."""

import time

import device as test_device
from peer import DEADLINE, bytes_layout
from restarts import register


def test_stat_and_open_say_the_same(daemon, peer):
    peer.put("a")
    told = peer.call("stat", name="a")["object"]
    opened = daemon.connect().open_object("a").object
    assert {**opened, "leases": 0, "idle_ms": 0} == {**told, "leases": 0, "idle_ms": 0}


def test_idle(daemon, peer):
    """Since the last use of the memory, by whichever of its names; nothing while somebody holds it."""
    def idle(name):
        (listed,) = [o["idle_ms"] for o in peer.call("list", prefix=name)["objects"] if o["name"] == name]
        return listed, peer.call("stat", name=name)["object"]["idle_ms"]

    began = time.monotonic()
    peer.put("a")
    while idle("a")[0] < 50:  # being looked at is no use
        assert time.monotonic() - began < DEADLINE
    peer.call("alias", name="b", of="a")
    assert 50 <= idle("a")[0] <= idle("a")[1] <= (time.monotonic() - began) * 1000 + 1
    assert idle("b")[0] >= 50, "naming it is no use"
    opened = daemon.connect().open_object("b")
    assert idle("a") == idle("b") == (0, 0)
    opened.release()
    assert idle("a")[0] < 50 + (time.monotonic() - began) * 1000


def test_idle_of_registered_memory(peer):
    """From when it was registered."""
    began = time.monotonic()
    register(peer, "r", bytes(8), device=test_device.ID)
    assert peer.call("stat", name="r")["object"]["idle_ms"] <= (time.monotonic() - began) * 1000 + 1


def test_missing(peer):
    for method, more in (("stat", {}), ("stat", {"why": True}), ("open", {}), ("set", {"pinned": True}),
                         ("set", {"ttl_ms": 1})):
        assert peer.error("not_found", method, name="none", **more).data["name"] == "none"


def test_only_the_current_version_has_a_pin(peer):
    first = peer.put("a", keep=True)[0]
    peer.call("release", lease=peer.call("leases")["leases"][0]["lease"])
    peer.call("set", name="a", version=first, pinned=True)
    lease = peer.create("a", bytes_layout(1), replace=True)["lease"]
    peer.call("seal", lease=lease, keep=1)
    assert peer.error("invalid", "set", name="a", version=first, pinned=True).message.startswith("params.pinned: ")
    peer.call("set", name="a", version=first, ttl_ms=3600000)
    assert peer.call("stat", name="a", version=first)["object"]["pinned"] is False


def test_one_of_two_is_set(peer):
    peer.put("a")
    peer.call("set", name="a", pinned=True, ttl_ms=3600000)
    peer.call("set", name="a", pinned=False)
    told = peer.call("stat", name="a")["object"]
    assert (told["pinned"], told["ttl_ms"]) == (False, 3600000)
    peer.call("set", name="a", ttl_ms=0)
    assert "expires_ms" not in peer.call("stat", name="a", why=True)
    assert peer.call("set", name="a") == {}
