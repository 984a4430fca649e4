"""Quotas: what a user may have, who is told what is left, and that others are not in the way."""

import os

import pytest

import device as test_device
from peer import RpcError, bytes_layout
from restarts import register

MIB = 1 << 20
DEVICE = test_device.ID


def used_by(peer, uid):
    """A user in `stats`: {name: (used, quota)}, and of bytes by device."""
    (user,) = [u for u in peer.call("stats")["users"] if u["uid"] == uid]
    told = {name: (user[name]["used"], user[name]["quota"])
            for name in ("sessions", "objects", "segments")}
    return told | {d["device"]: (d["used"], d["quota"]) for d in user["bytes"]}


def past(peer, limit, words, method, /, **params):
    """The call meets that limit, and is told so with the words."""
    error = peer.error("limit", method, **params)
    assert error.data["limit"] == limit
    for word in words:
        assert word in error.message, error.message


def test_bytes(daemon_factory):
    peer = daemon_factory("--quota", "default:bytes=24M").connect()
    uid = os.geteuid()
    for i in range(4):
        peer.create_object(f"o/{i}", bytes_layout(4 * MIB))
    peer.put("small")
    assert used_by(peer, uid)[DEVICE] == (16 * MIB + 256, 24 * MIB)
    past(peer, "user_bytes",
         [f"uid {uid} ", str(16 * MIB + 256), str(24 * MIB), str(8 * MIB - 256), str(9 * MIB)],
         "create", name="more", layout=bytes_layout(9 * MIB))
    # A request past the limit does not wait, and nothing was evicted in vain.
    past(peer, "user_bytes", [], "create", name="more", layout=bytes_layout(9 * MIB), wait_ms=60000)
    assert len(peer.names()) == 5
    peer.call("delete", name="o/0")
    peer.unmap()
    peer.create_object("more", bytes_layout(9 * MIB))


def test_registered_memory_counts(daemon_factory):
    peer = daemon_factory("--quota", "default:bytes=4M").connect()
    with pytest.raises(RpcError, match=str(5 * MIB)) as refused:
        register(peer, "a", bytes(5 * MIB))
    assert refused.value.data["limit"] == "user_bytes"


@pytest.mark.root
def test_one_users_own_quota(daemon_factory):
    """By number and by name, over everybody's; and each is told of their own."""
    daemon = daemon_factory("--quota", "default:objects=3,bytes=16M",
                            "--quota", f"1001:objects=5,bytes=8M@{DEVICE}",
                            "--quota", "nobody:sessions=2")
    one, two = daemon.connect_as(1001, 1001), daemon.connect_as(1002, 1002)
    nobody = daemon.connect_as(65534, 65534)
    for i in range(5):
        one.put(f"one/{i}")
    for i in range(3):
        two.put(f"two/{i}")
    past(one, "user_objects", ["uid 1001", "5 of its 5", " 0 are left", " 1 more"],
         "create", name="more", layout=bytes_layout(1))
    past(two, "user_objects", ["uid 1002", "3 of its 3"],
         "create", name="more", layout=bytes_layout(1))
    past(one, "user_bytes", [str(8 * MIB)], "create", name="x", layout=bytes_layout(8 * MIB))
    most = one.call("hello", protocol=1, resume={"instance": "", "objects": []})["limits"]
    assert used_by(one, 1001) == {"sessions": (1, most["user_sessions"]), "objects": (5, 5),
                                  "segments": (1, most["user_segments"]), DEVICE: (5 * 256, 8 * MIB)}
    assert used_by(two, 1002)[DEVICE] == (3 * 256, 16 * MIB)
    assert used_by(nobody, 65534)["sessions"] == (1, 2)
    assert [u["uid"] for u in one.call("stats")["users"]] == [1001]
    admin = daemon.connect()
    assert {u["uid"] for u in admin.call("stats")["users"]} == {0, 1001, 1002, 65534}
    assert used_by(admin, 1001)["objects"] == (5, 5)
    limits = daemon.connect_as(1001, 1001).call("hello", protocol=1)["limits"]
    assert limits["user_objects"] == 5 and limits["user_bytes"] == 8 * MIB
    admin.call("delete", names=[f"one/{i}" for i in range(5)])
    assert used_by(one, 1001)["objects"] == (0, 5)


@pytest.mark.parametrize("maps", [False, True], ids=["unmapped", "mapped"])
@pytest.mark.parametrize("kind", [{}, {"own": True}, {"live": True}] +
                         [{"final": True}] * (not test_device.ON_GPU), ids=str)
def test_empty_segments_go_before_a_quota_refuses(daemon_factory, kind, maps):
    """Of whatever domain they are; those that a session maps, as soon as it has unmapped them."""
    layout = bytes_layout(4096)
    peer = daemon_factory("--limit", "user_segments=2").connect()
    for mode in ("0640", "0620"):
        peer.call("release", lease=peer.call("create", name="o", layout=layout, mode=mode)["lease"])
    if not maps:
        peer.unmap()
    leases = []
    for name, how in (("a", kind), ("b", {"mode": "0604"})):
        created = peer.request("create", name=name, layout=layout, **how)
        if maps:
            peer.unmap(*peer.notification("segments.retire")["params"]["segments"])
        leases.append(peer.reply(created)["lease"])
    past(peer, "user_segments", ["uses 2 of its 2 segments"], "create", name="c", layout=layout, mode="0644")
    peer.call("release", leases=leases)


def test_objects_larger_than_the_device(daemon_factory):
    """Refused at once, whatever wait_ms says, and nothing has gone for it."""
    peer = daemon_factory().connect()
    peer.put("a")
    for size in (64 * MIB + 1, 65 * MIB, 1 << 50):
        for wait_ms in (0, 86400000):
            error = peer.error("no_space", "create", name="b", layout=bytes_layout(size),
                               wait_ms=wait_ms)
            assert str(64 * MIB) in error.message and "can never fit" in error.message
    assert peer.names() == ["a"]


def test_limits_and_quotas_are_one_thing(daemon_factory, directory):
    """--limit user_… is everybody's quota; the command line wins over the file."""
    path = f"{directory}/gpubufd.conf"
    with open(path, "w") as file:
        file.write("quota = default:objects=7,segments=8\nquota = default:bytes=4M\n")
    peer = daemon_factory("--config", path, "--limit", "user_objects=9").connect()
    limits = peer.call("hello", protocol=1)["limits"]
    assert (limits["user_objects"], limits["user_segments"]) == (9, 8)
    assert limits["user_bytes"] == 4 * MIB
    assert used_by(peer, os.geteuid())["objects"] == (0, 9)
