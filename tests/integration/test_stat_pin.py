"""stat and set."""

import os
import time

import device as test_device
from peer import DEADLINE, bytes_layout


def test_stat(peer):
    version = peer.put("a", b"12345")
    result = peer.call("stat", name="a")
    assert set(result) == {"object"}
    told = result["object"]
    assert told["name"] == "a" and told["version"] == version and told["state"] == "sealed"
    assert told["layout"]["kind"] == "bytes" and told["layout"]["bytes"] == 5


def test_stat_takes_no_lease(daemon, peer):
    peer.put("a")
    other = daemon.connect()
    session = other.call("hello", protocol=1)["session"]
    for _ in range(3):
        assert other.call("stat", name="a")["object"]["leases"] == 0
    leases = peer.call("leases")
    assert leases["leases"] == []
    assert session not in [m["session"] for m in leases["mapped"]]


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
    fd, size = test_device.own_memory(bytes(4096))
    layout = {"kind": "bytes", "bytes": 8, "data": {"handle": 0, "offset": 0, "bytes": 8}}
    peer.call("register", name="r", layout=layout, handles=[test_device.handle(size)], fds=[fd],
              device=test_device.ID)
    os.close(fd)
    assert peer.call("stat", name="r")["object"]["idle_ms"] <= (time.monotonic() - began) * 1000 + 1


def test_pin(peer):
    peer.put("a")
    assert peer.call("set", pinned=True, name="a") == {}
    assert peer.call("stat", name="a")["object"]["pinned"] is True
    assert peer.call("set", pinned=False, name="a") == {}
    assert peer.call("stat", name="a")["object"]["pinned"] is False


def test_pin_twice(peer):
    """A pin is a state, not a count."""
    peer.put("a")
    peer.call("set", pinned=True, name="a")
    peer.call("set", pinned=True, name="a")
    peer.call("set", pinned=False, name="a")
    assert peer.call("stat", name="a")["object"]["pinned"] is False
    assert peer.call("set", pinned=False, name="a") == {}


def test_a_pin_outlives_its_session(daemon, peer):
    peer.put("a")
    other = daemon.connect()
    other.call("set", pinned=True, name="a")
    other.close()
    assert peer.call("stat", name="a")["object"]["pinned"] is True


def test_missing(peer):
    for method, more in (("stat", {}), ("set", {"pinned": True}), ("set", {"ttl_ms": 1})):
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
