"""Tiers below a device: what leaves it comes back as it was, and nothing is lost that need not be."""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import device as test_device
from conftest import GPUBUFD
from peer import DEADLINE, Peer, RpcError, bytes_layout

MIB = 1 << 20
SIZE = 18 * MIB  # three of these fit in 64 MiB, each in a segment of its own
BELOW = "host" if test_device.ON_GPU else "disk"  # the first tier below the device


def content(name, size):
    """So many bytes that no other name has."""
    block = hashlib.sha256(name.encode()).digest() * 2048
    return (block * (size // len(block) + 1))[:size]


class Tiered:
    """A daemon with tiers, and objects whose content their names tell."""

    def __init__(self, daemon, directory):
        self.daemon, self.directory = daemon, directory
        self.peer = daemon.connect()
        self.sizes = {}

    def put(self, name, size=SIZE, **params):
        """By a session that ends, so that nobody maps its memory."""
        with Peer(self.daemon.path) as peer:
            peer.create_object(name, bytes_layout(size), content(name, size), **params)
        self.sizes[name] = size

    def check(self, *names):
        """They are there, with every byte."""
        for name in names:
            with Peer(self.daemon.path) as peer:
                opened = peer.open_object(name)
                assert opened.read() == content(name, self.sizes[name]), name
                opened.release()

    def tier_of(self, name):
        return self.peer.call("stat", name=name)["object"]["tier"]

    def tiers_of(self, names):
        return [self.tier_of(name) for name in names]

    def stats(self):
        stats = self.peer.call("stats")
        for one in stats["devices"]:
            assert one["capacity"] == (one["free"] + one["used"] + one["retained"]
                                       + one["pinned_by_clients"]), one
        for one in stats["tiers"]:
            assert one["capacity"] == one["free"] + one["used"], one
        return stats

    def tier(self, name):
        return {tier["tier"]: tier for tier in self.stats()["tiers"]}[name]

    def files(self):
        return sorted(f for f in os.listdir(self.directory) if f.endswith(".spill"))

    def settle(self):
        """Until nothing is on its way."""
        self.peer.wait_for_stats(lambda s: all(d["leaving"] == 0 for d in s["devices"]))


@pytest.fixture
def start(daemon_factory, directory):
    """start(…): tiers of the sizes given; by default room for everything, and no copies ahead."""

    def run(host="128M", disk="512M", watermarks="100:100", place=None, **settings):
        if not place:
            place = os.path.join(directory, f"spill{len(os.listdir(directory))}")
            os.mkdir(place)
        options = ["--watermarks", watermarks]
        if host and test_device.ON_GPU:
            options += ["--tier", f"host:{host}"]
        if disk:
            options += ["--tier", f"disk:{disk}:{place}"]
        return Tiered(daemon_factory(*options, **settings), place)

    return run


@pytest.fixture
def tiered(start):
    return start()


# ---- leaving and coming back -------------------------------------------------------------------


# RELIABILITY.md: Memory is short
def test_nothing_is_lost(tiered):
    names = [f"o/{i}" for i in range(8)]
    for name in names:
        tiered.put(name)
    assert tiered.peer.names() == names
    assert tiered.tiers_of(names) == [BELOW] * 5 + ["device"] * 3
    tiered.check(*names)
    tiered.check(*reversed(names))
    stats = tiered.stats()["devices"][0]
    assert stats["evictions"] == 0 and stats["restores"] >= 10


def test_small_ones_among_large_ones(tiered):
    """Ranges of shared segments leave too, and come back to other places."""
    sizes = [1, 255, 256, 4097, 65536, MIB, 3 * MIB - 1, 7 * MIB]
    names = []
    for turn in range(6):
        for size in sizes:
            names.append(f"{turn}/{size}")
            tiered.put(names[-1], size)
    tiered.check(*names)
    tiered.check(*names[::3])
    tiered.check(*names[::-1])
    assert tiered.peer.names() == sorted(names)


def test_the_least_recently_used_leaves(tiered):
    for name in "abc":
        tiered.put(name)
    tiered.check("a")
    tiered.put("d")
    assert tiered.tiers_of("abcd") == ["device", BELOW] + ["device"] * 2
    tiered.check("b")  # c leaves for it
    assert tiered.tiers_of("abcd") == ["device"] * 2 + [BELOW] + ["device"]


def test_what_was_restored_leaves_again_without_being_copied(tiered):
    for name in "abcd":
        tiered.put(name)
    tiered.check("a")
    written = tiered.tier(BELOW)["writes"]
    tiered.check("b", "c", "d", "a")
    tiered.check("b", "c", "d", "a")
    assert tiered.tier(BELOW)["writes"] <= written + 3  # each of them once
    assert tiered.tier(BELOW)["reads"] >= 5


def test_what_is_held_stays(tiered):
    tiered.put("kept", evict="keep")
    tiered.put("leased")
    reader = tiered.daemon.connect()
    opened = reader.open_object("leased")
    for name in "abc":
        tiered.put(name)
    assert tiered.tiers_of(["kept", "leased", "a", "b", "c"]) == [
        "device", "device", BELOW, BELOW, "device"]
    assert opened.read()[:64] == content("leased", 64)
    error = tiered.peer.error("no_space", "create", name="d", layout=bytes_layout(2 * SIZE))
    assert "holds most" in error.message and str(os.getpid()) in error.message


def test_drop_is_dropped_all_the_same(tiered):
    tiered.put("dropped", evict="drop")
    for name in "abc":
        tiered.put(name)
    assert tiered.peer.names() == ["a", "b", "c"]
    assert tiered.tiers_of("abc") == ["device"] * 3


def test_events(tiered):
    watch = tiered.daemon.connect()
    watch.call("watch", kinds=["spilled", "restored", "evicted"])
    for name in "abcd":
        tiered.put(name)
    tiered.check("a")
    told = watch.events(3)
    assert [(kind, name) for kind, name, _ in told] == [
        ("spilled", "a"), ("spilled", "b"), ("restored", "a")]
    assert told[0][2]["object"]["tier"] == BELOW
    assert told[2][2]["object"]["tier"] == "device"


def test_what_stat_says_of_one_that_is_away(tiered):
    layout = {"kind": "table", "length": 3, "columns": [
        {"name": "a", "dtype": "int32", "length": 3, "mask": {}},
        {"name": "b", "dtype": "float64", "length": 3}]}
    peer = tiered.peer
    peer.create_object("t", layout, {"columns[0].data": b"abcdefghijkl",
                                     "columns[0].mask": b"\x05", "columns[1].data": b"x" * 24})
    before = peer.call("stat", name="t")["object"]
    peer.call("spill", name="t")
    away = peer.call("stat", name="t")["object"]
    assert (away["tier"], away["version"]) == (BELOW, before["version"])
    buffers = [c[k] for c in away["layout"]["columns"] for k in ("data", "mask") if k in c]
    assert {b["segment"] for b in buffers} == {0}
    opened = peer.open_object("t")
    columns = opened.layout["columns"]
    assert peer.read(columns[0]["data"]) == b"abcdefghijkl"
    assert peer.read(columns[0]["mask"])[:1] == b"\x05"
    assert peer.read(columns[1]["data"]) == b"x" * 24
    changes = ("layout", "leases", "idle_ms")
    assert {k: v for k, v in opened.object.items() if k not in changes} == {
        k: v for k, v in before.items() if k not in changes}


def test_many_at_once(tiered):
    """`open` of names brings back those that are away, and none of them leaves for another."""
    for name in "abcdef":
        tiered.put(name)
    reader = tiered.daemon.connect()
    result = reader.call("open", names=["a", "b", "c"])
    for name, entry in zip("abc", result["objects"]):
        data = entry["object"]["layout"]["data"]
        assert reader.read(data) == content(name, SIZE)


# RELIABILITY.md: Memory is short
def test_more_at_once_than_the_device_holds(tiered):
    for name in "abcde":
        tiered.put(name)
    reader = tiered.daemon.connect()
    objects = reader.call("open", names=list("abcde"))["objects"]
    kinds = [entry.get("error", {}).get("data", {}).get("kind", "ok") for entry in objects]
    assert sorted(kinds) == ["no_space"] * 2 + ["ok"] * 3
    reader.call("release", leases=[e["lease"] for e in objects if "lease" in e])
    tiered.check(*"abcde")


# ---- names and memory --------------------------------------------------------------------------


def test_aliases_are_moved_once(tiered):
    tiered.put("a")
    tiered.peer.call("alias", name="b", of="a")
    tiered.sizes["b"] = SIZE
    tiered.peer.call("spill", name="b")
    assert tiered.tiers_of("ab") == [BELOW] * 2
    assert tiered.tier(BELOW)["copies"] == 1
    tiered.peer.call("alias", name="c", of="a")  # of what is away
    opened = tiered.peer.open_object("c")
    assert opened.read() == content("a", SIZE)
    opened.release()
    assert tiered.tiers_of("abc") == ["device"] * 3
    assert tiered.stats()["devices"][0]["used"] < 2 * SIZE
    tiered.peer.call("delete", names=["a", "b"])
    assert tiered.tier(BELOW)["copies"] == 1
    tiered.peer.call("delete", name="c")
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))


def test_a_delete_frees_the_tier(tiered):
    for name in "abcdef":
        tiered.put(name)
    assert tiered.tier(BELOW)["used"] >= 3 * SIZE
    tiered.peer.call("delete", names=list("abcdef"))
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))
    assert tiered.files() == []


def test_replacing_one_that_is_away(tiered):
    for name in "abcd":
        tiered.put(name)
    assert tiered.tier_of("a") == BELOW
    tiered.put("a", size=MIB, replace=True)
    assert tiered.tier_of("a") == "device"
    tiered.check(*"abcd")


def test_one_that_expires_while_it_is_away(tiered):
    tiered.put("a", ttl_ms=4000)
    tiered.peer.call("spill", name="a")
    tiered.peer.wait_for_stats(lambda s: s["names"] == 0)
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))
    assert tiered.peer.used() == 0


def test_registered_memory(tiered):
    """It was its producer's; what comes back is the daemon's own."""
    fd, count = test_device.own_memory(content("mine", 4 * MIB))
    handle = {"kind": test_device.HANDLE, "bytes": count, "device": test_device.ID}
    try:
        tiered.peer.call("register", name="mine", fds=[fd],
                         layout={"kind": "bytes", "bytes": 4 * MIB,
                                 "data": {"handle": 0, "offset": 0, "bytes": 4 * MIB}},
                         handles=[{**handle, "fd": 0}])
    finally:
        os.close(fd)
    tiered.sizes["mine"] = 4 * MIB
    tiered.peer.call("spill", name="mine")
    assert tiered.tier_of("mine") == BELOW
    tiered.check("mine")


def test_objects_of_users_come_back_to_their_domains(tiered):
    tiered.put("private")
    tiered.put("public", mode="0644")
    for name in ("private", "public"):
        tiered.peer.call("spill", name=name)
    tiered.check("public", "private")
    reader = tiered.daemon.connect()
    result = reader.call("open", names=["private", "public"])
    data = [e["object"]["layout"]["data"] for e in result["objects"]]
    assert data[0]["segment"] != data[1]["segment"]


# ---- by hand -----------------------------------------------------------------------------------


def test_spill_and_restore_by_hand(tiered):
    tiered.put("a")
    peer = tiered.peer
    assert peer.call("spill", name="a") == {}
    assert peer.call("spill", name="a") == {}
    assert tiered.tier_of("a") == BELOW
    assert peer.call("restore", name="a") == {}
    assert tiered.tier_of("a") == "device"
    assert peer.call("restore", name="a") == {}
    assert peer.call("spill", name="a", tier="disk") == {}
    assert tiered.tier_of("a") == "disk" and len(tiered.files()) == 1
    tiered.check("a")
    peer.error("not_found", "spill", name="nothing")
    peer.error("not_found", "restore", name="nothing")


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has one tier below it")
def test_from_the_host_tier_to_the_disk(tiered):
    tiered.put("a")
    tiered.peer.call("spill", name="a")
    assert tiered.tier_of("a") == "host" and tiered.files() == []
    tiered.peer.call("spill", name="a", tier="disk")
    assert tiered.tier_of("a") == "disk" and len(tiered.files()) == 1
    assert tiered.tier("host")["used"] == 0
    tiered.check("a")


def test_one_that_is_held_is_busy(tiered):
    tiered.put("a")
    opened = tiered.peer.open_object("a")
    error = tiered.peer.error("busy", "spill", name="a")
    assert "1 leases" in error.message, error.message
    opened.release()
    tiered.peer.call("pin", name="a")
    tiered.peer.error("busy", "spill", name="a")
    tiered.peer.call("unpin", name="a")
    tiered.peer.call("spill", name="a")


def test_a_tier_that_there_is_not(start, peer):
    peer.put("a")
    assert "--tier" in peer.error("unsupported", "spill", name="a").message
    peer.error("unsupported", "spill", name="a", tier="disk")
    error = peer.error("invalid", "spill", name="a", tier="tape")
    assert error.message.startswith("params.tier: ")


@pytest.mark.root
def test_who_may(tiered, child):
    tiered.put("public", mode="0644")
    tiered.put("private")

    def kinds(peer):
        return [peer.error(("denied", "not_found"), method, name=name).kind
                for method, name in (("spill", "public"), ("spill", "private"),
                                     ("restore", "private"))] + [peer.call("restore", name="public")]

    assert child(tiered.daemon, kinds, uid=4242, gid=4242).result == [
        "denied", "not_found", "not_found", {}]


# ---- when the tiers are full -------------------------------------------------------------------


# RELIABILITY.md: Memory is short
def test_full_tiers_lose_nothing(start):
    """Who wants room is told that the tiers are full; all that is there can be read, in any order."""
    tiered = start(host=None, disk="64M")
    names = [f"o/{i}" for i in range(5)]  # three on the device, two on the disk, and room for one more
    for name in names:
        tiered.put(name)
    error = tiered.peer.error("no_space", "create", name="more", layout=bytes_layout(SIZE))
    assert "the tiers are full" in error.message and "--tier" in error.message, error.message
    for _ in range(3):
        tiered.check(*names)
        tiered.check(*reversed(names))
    tiered.peer.error("no_space", "create", name="more", layout=bytes_layout(SIZE))
    assert tiered.stats()["devices"][0]["evictions"] == 0
    tiered.peer.call("delete", name=names[0])
    tiered.put("more")
    tiered.check("more", *names[1:])


def test_a_full_tier_and_one_who_waits(start):
    tiered = start(host=None, disk="64M")
    names = [f"o/{i}" for i in range(5)]
    for name in names:
        tiered.put(name)
    waiting = tiered.daemon.connect()
    ident = waiting.request("create", name="more", layout=bytes_layout(SIZE), wait_ms=20000)
    waiting.wait_until_read()
    assert tiered.tier_of(names[0]) == "disk"
    tiered.peer.call("delete", name=names[0])
    assert waiting.reply(ident)["object"]["name"] == "more"


def test_what_may_be_dropped_goes_when_the_tiers_are_full(start):
    """On the device, and below it where somebody has put it."""
    tiered = start(host=None, disk="64M")
    watch = tiered.daemon.connect()
    watch.call("watch", kinds=["evicted"])
    tiered.put("below", evict="drop")
    tiered.peer.call("spill", name="below", tier="disk")
    for i in range(4):
        tiered.put(f"o/{i}")
    assert tiered.tier_of("below") == "disk"
    tiered.put("o/4")
    tiered.put("dropped", 4 * MIB, evict="drop")
    tiered.peer.error("no_space", "create", name="more", layout=bytes_layout(SIZE))
    assert "dropped" in tiered.peer.names(), "it would not have made room"
    tiered.put("small", 10 * MIB)
    assert watch.events(1)
    assert tiered.peer.names() == ["below", *[f"o/{i}" for i in range(5)], "small"]
    tiered.check("small", "o/0")


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has one tier below it")
def test_the_host_tier_makes_room_on_the_disk(start):
    tiered = start(host="40M")
    names = [f"o/{i}" for i in range(9)]
    for name in names:
        tiered.put(name)
    assert tiered.tiers_of(names) == ["disk"] * 4 + ["host"] * 2 + ["device"] * 3
    tiered.check(*names)


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has one tier below it")
def test_a_host_tier_alone(start):
    tiered = start(host="40M", disk=None)
    names = [f"o/{i}" for i in range(4)]  # three on the device, one below, and room for one more
    for name in names:
        tiered.put(name)
    tiered.peer.error("no_space", "create", name="more", layout=bytes_layout(SIZE))
    for _ in range(3):
        tiered.check(*names)
        tiered.check(*reversed(names))


def test_one_that_no_tier_can_hold(start):
    """It stays, and room is made by others, later ones too."""
    tiered = start(host="8M", disk="16M")
    for name in "abc":
        tiered.put(name)
    tiered.peer.error("no_space", "spill", name="b")
    tiered.put("small", 9 * MIB)
    tiered.peer.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    tiered.put("smaller", 2 * MIB)
    tiered.check("a", "b", "c", "small", "smaller")
    assert tiered.peer.names() == ["a", "b", "c", "small", "smaller"]


def test_one_that_fits_a_tier_but_for_what_a_file_begins_with(start):
    """Nothing leaves the tier for the sake of one that would not fit into all of it."""
    tiered = start(host=None, disk="20M")
    tiered.put("a", 5 * MIB)
    tiered.peer.call("spill", name="a", tier="disk")
    tiered.put("b", 20 * MIB - 2048)
    tiered.peer.error("no_space", "spill", name="b", tier="disk")
    assert tiered.tiers_of("ab") == ["disk", "device"]
    tiered.check("a", "b")


def test_a_pinned_one_that_is_away_stays_in_its_tier(start):
    tiered = start(host=None, disk="40M")
    tiered.put("a")
    tiered.peer.call("spill", name="a")
    tiered.peer.call("pin", name="a")
    for i in range(8):
        tiered.put(f"o/{i}", evict="drop")
    assert tiered.tier_of("a") == "disk"
    tiered.check("a")
    assert tiered.tier_of("a") == "device"


@pytest.mark.host_only("GPU memory has no flags")
def test_a_writers_flags_are_its_own(start):
    """O_APPEND where its creator writes does not reach the daemon, which writes when content comes back."""
    tiered = start(host=None)
    peer = tiered.peer
    lease = peer.create("a", bytes_layout(SIZE), b"a" * SIZE)["lease"]
    for segment in peer.segments.values():
        flags = fcntl.fcntl(segment.fd, fcntl.F_GETFL)
        fcntl.fcntl(segment.fd, fcntl.F_SETFL, flags | os.O_APPEND)
    peer.call("seal", lease=lease, release=True)
    peer.call("spill", name="a")
    opened = peer.open_object("a")
    assert opened.read() == b"a" * SIZE


# ---- when they fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["flipped", "cut", "gone", "header", "empty", "another's", "pipe", "directory"]
)
# RELIABILITY.md: The disk
def test_a_file_that_is_not_what_was_written(start, how):
    tiered = start(host=None)
    watch = tiered.daemon.connect()
    watch.call("watch", kinds=["withdrawn"])
    tiered.put("a")
    tiered.put("b")
    tiered.peer.call("spill", name="a")
    tiered.peer.call("spill", name="b")
    path, other = (os.path.join(tiered.directory, file) for file in tiered.files())
    with open(path, "r+b") as file:
        if how == "flipped":
            file.seek(4096 + 5 * MIB)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        elif how == "cut":
            file.truncate(4096 + SIZE - 1)
        elif how == "header":
            file.seek(17)
            file.write(b"\xff")
        elif how == "empty":
            file.truncate(0)
    if how == "another's":  # whole, of the same size, and not what it should be
        shutil.copy(other, path)
    if how in ("gone", "pipe", "directory"):
        os.unlink(path)
    if how == "pipe":  # which nobody ever writes to
        os.mkfifo(path)
    elif how == "directory":
        os.mkdir(path)
    error = tiered.peer.error("device", "open", name="a")
    assert "lost" in error.message and path in error.message, error.message
    assert watch.events(1)[0][:2] == ("withdrawn", "a")
    assert tiered.peer.names() == ["b"]
    tiered.check("b")
    assert tiered.tier("disk")["failures"] == 1
    tiered.put("a")
    tiered.check("a")


# ---- small ones, which share a file ------------------------------------------------------------


def pack_of(tiered):
    return os.path.join(tiered.directory, "gpubufd.pack")


def on_disk(size):
    """What a small object takes: a header of 96, and all of it rounded up."""
    return -(-(size + 96) // 256) * 256


def test_small_ones_share_a_file(start):
    """They take of the tier hardly more than their bytes, and so of the disk, also when some have gone."""
    tiered = start(host=None, disk="2M")
    sizes = [480] * 300 + [1, 160, 161, 4000, 4096, 20_000, 65_536]
    names = [f"s/{i:03}" for i in range(len(sizes))]
    for name, size in zip(names, sizes):
        tiered.put(name, size)
        tiered.peer.call("spill", name=name, tier="disk")
    assert tiered.files() == [] and tiered.tier("disk")["copies"] == len(names)
    assert tiered.tier("disk")["used"] == sum(on_disk(size) for size in sizes)
    tiered.put("large", 65_537)
    tiered.peer.call("spill", name="large", tier="disk")
    assert len(tiered.files()) == 1
    tiered.check(*names, "large")
    gone = [name for i, name in enumerate(names) if i % 100]
    for at in range(0, len(gone), 64):
        tiered.peer.call("delete", names=gone[at:at + 64])
    left = [name for name in names if name not in gone]
    used = sum(on_disk(tiered.sizes[name]) for name in left) + 65_537 + 4096
    tiered.peer.wait_for_stats(lambda s: s["tiers"][-1]["used"] == used)
    assert os.stat(pack_of(tiered)).st_blocks * 512 <= 8192 * len(left)
    tiered.check(*left)
    for name in names[1:50]:  # in place of what has gone
        tiered.put(name, 480)
        tiered.peer.call("spill", name=name, tier="disk")
    tiered.check(*left, *names[1:50])


@pytest.mark.parametrize("how", ["flipped", "cut", "header", "another's", "gone", "pipe", "directory"])
# RELIABILITY.md: The disk
def test_a_pack_that_is_not_what_was_written(start, how):
    """What is damaged is lost, and nothing else in the pack is."""
    tiered = start(host=None)
    for name in "abc":
        tiered.put(name, 1000)
        tiered.peer.call("spill", name=name, tier="disk")
    path, room = pack_of(tiered), on_disk(1000)
    with open(path, "r+b") as file:
        data = file.read()
        if how == "flipped":
            file.seek(96 + 500)
            file.write(bytes([data[96 + 500] ^ 1]))
        elif how == "cut":
            file.truncate(0)
        elif how == "header":
            file.seek(17)
            file.write(b"\xff")
        elif how == "another's":
            file.seek(0)
            file.write(data[room:2 * room])
    if how in ("gone", "pipe", "directory"):
        os.unlink(path)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "directory":
        os.mkdir(path)
    error = tiered.peer.error("device", "open", name="a")
    assert "lost" in error.message and path in error.message, error.message
    if how in ("flipped", "header", "another's"):
        tiered.check("b", "c")
    else:
        for name in "bc":
            assert tiered.peer.error("device", "open", name=name)
        assert tiered.peer.names() == []


# RELIABILITY.md: The disk
def test_a_disk_that_fails_keeps_what_can_be_kept(start):
    """Nothing can be written there: what may be dropped is, and all else stays."""
    tiered = start(host=None)
    tiered.put("kept", evict="keep")
    tiered.put("a")
    os.chmod(tiered.directory, 0o700)
    os.rename(tiered.directory, tiered.directory + "x")
    os.unlink(os.path.join(tiered.directory + "x", "gpubufd.lock"))
    os.rmdir(tiered.directory + "x")
    tiered.directory = None
    error = tiered.peer.error("device", "spill", name="a")
    assert "cannot open" in error.message, error.message
    tiered.check("a", "kept")
    tiered.put("b", evict="drop")
    tiered.put("c", evict="drop")
    assert tiered.peer.names() == ["a", "c", "kept"]
    tiered.check("a", "c", "kept")
    reader = tiered.daemon.connect()
    reader.open_object("c")
    error = reader.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    assert "failed lately" in error.message, error.message
    assert tiered.tier("disk")["failures"] >= 1


@pytest.mark.root
# RELIABILITY.md: The disk
def test_a_disk_that_is_full(start, directory):
    place = os.path.join(directory, "small")
    os.mkdir(place)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", place],
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount")
    try:
        tiered = start(host=None, disk="30M", place=place)
        with open(os.path.join(place, "other"), "wb") as other:
            other.write(bytes(20 * MIB))
        tiered.put("a")
        error = tiered.peer.error("device", "spill", name="a")
        assert "No space left" in error.message, error.message
        assert tiered.tier_of("a") == "device" and tiered.files() == []
        tiered.check("a")
        tiered.peer.error("no_space", "spill", name="a")  # it is left alone for a while
        for name in "bcd":
            tiered.put(name, evict="drop")
        assert tiered.peer.names() == ["a", "c", "d"]
        tiered.check("a", "c", "d")
        assert tiered.tier("disk")["used"] == 0
        tiered.daemon.check_no_leaks()
        tiered.daemon.stop()
    finally:
        tiered.daemon.kill()
        subprocess.run(["umount", place], check=True)


# ---- ahead of time -----------------------------------------------------------------------------


def test_copies_are_made_ahead(start):
    """Above the high watermark, until no more than the low one would stay; nothing leaves."""
    tiered = start(watermarks="40:80", device=test_device.OPTION.replace("64M", "200M"))
    names = [f"o/{i}" for i in range(9)]
    for name in names[:8]:  # 144 of 200 MiB
        tiered.put(name)
    assert tiered.stats()["devices"][0]["clean"] == 0
    tiered.put(names[8])
    tiered.peer.wait_for_stats(
        lambda s: s["devices"][0]["used"] - s["devices"][0]["clean"] <= 80 * MIB)
    tiered.settle()
    assert tiered.stats()["devices"][0]["spills"] == 0
    assert tiered.tiers_of(names) == ["device"] * 9
    assert tiered.tier(BELOW)["writes"] == 5
    tiered.check(names[0])  # used again: it was there all the time
    tiered.put("large", 60 * MIB)
    assert tiered.tiers_of(names) == ["device"] + [BELOW] * 2 + ["device"] * 6
    assert tiered.tier(BELOW)["reads"] == 0
    tiered.check(*names, "large")


def test_none_are_at_100_percent(start):
    """However full the device is."""
    tiered = start()
    for name, size in (("a", 22 * MIB), ("b", 22 * MIB), ("c", 20 * MIB)):
        tiered.put(name, size)
    assert tiered.stats()["devices"][0]["free"] == 0
    tiered.peer.call("stats")
    tiered.settle()
    assert tiered.tier(BELOW)["writes"] == 0


def test_one_without_bytes_does_not_leave(start):
    """That would make no room."""
    tiered = start()
    tiered.put("nothing", 0)
    tiered.put("nothing/to/drop", 0, evict="drop")
    names = [f"o/{i}" for i in range(6)]
    for name in names:
        tiered.put(name)
    tiered.check("nothing", "nothing/to/drop", *names)
    assert tiered.stats()["devices"][0]["evictions"] == 0


def test_the_host_tier_is_tended_too(start):
    if not test_device.ON_GPU:
        pytest.skip("the host has one tier below it")
    tiered = start(host="64M", watermarks="50:75")
    names = [f"o/{i}" for i in range(22)]
    for name in names:
        tiered.put(name, 5 * MIB)
    tiered.peer.wait_for_stats(
        lambda s: s["tiers"][0]["used"] - s["tiers"][0]["clean"] <= 48 * MIB)
    tiered.check(*names)
    assert tiered.peer.names() == sorted(names)


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has one tier below it")
def test_copies_do_not_take_turns_where_not_all_have_room(start):
    """The disk has room for one more of what the host tier has too much of. Which that is does not
    change for ever."""
    tiered = start(host="64M", disk="54M", watermarks="80:90")
    tiered.put("below", 50 * MIB)
    tiered.peer.call("spill", name="below", tier="disk")
    names = [f"o/{i}" for i in range(20)]
    for name in names:
        tiered.put(name, 3 * MIB)
        tiered.peer.call("spill", name=name, tier="host")
    tiered.peer.wait_for_stats(lambda s: s["tiers"][1]["writes"] >= 2)
    for _ in range(20):  # each of these is a turn at least, with a copy that is made meanwhile
        tiered.put("other", MIB, replace=True)
        tiered.peer.call("spill", name="other", tier="host")
    assert tiered.tier("disk")["writes"] == 2
    tiered.check("below", *names)


# ---- nothing leaves in vain ---------------------------------------------------------------------


@pytest.fixture
def split(start):
    """split(disk, evict): two shared segments of 2 MiB on a device of 6 MiB, with a large and a small
    object in each, and `x`, which was moved below before and needs more than the 2 MiB that are left."""

    def run(disk, evict):
        device = test_device.OPTION.replace("64M", "6M")
        tiered = start(host=None, disk=disk, device=device)
        if evict == "spill":
            tiered.put("x", 4 * MIB, mode="0604")
            tiered.peer.call("spill", name="x")
        for mode in ("0600", "0640"):
            tiered.put(f"large/{mode}", MIB, mode=mode, evict=evict)
            tiered.put(f"small/{mode}", 64 << 10, mode=mode)
        tiered.peer.call("trim")
        return tiered

    return run


# RELIABILITY.md: Memory is short
def test_nothing_is_dropped_in_vain(split):
    """What the tier has no room for stays, and with it the segments."""
    tiered = split("2M", "drop")
    before = tiered.peer.names()
    tiered.peer.error("no_space", "create", name="d", layout=bytes_layout(4 * MIB), mode="0604")
    assert len(before) == 4 and tiered.peer.names() == before


# RELIABILITY.md: Memory is short
def test_nothing_leaves_in_vain_for_what_comes_back(split):
    tiered = split("64M", "spill")
    readers = [tiered.peer.open_object(f"small/{mode}") for mode in ("0600", "0640")]
    tiered.peer.error("no_space", "open", name="x")
    assert tiered.tiers_of(tiered.peer.names()) == ["device"] * 4 + ["disk"]
    readers[0].release()
    tiered.peer.unmap()
    tiered.check("x")
    assert tiered.tier_of("x") == "device"


# ---- who waits, and in which order -------------------------------------------------------------


def answered(peer, ident):
    peer.call("stats")
    return ident in peer.replies


# RELIABILITY.md: Memory is short
def test_a_large_one_is_not_starved_by_small_ones(start):
    """They may take what the large one leaves of the device, and no more."""
    tiered = start()
    holder, large, small = [tiered.daemon.connect() for _ in range(3)]
    held = holder.create("held", bytes_layout(30 * MIB))["lease"]
    ident = large.request("create", name="large", layout=bytes_layout(40 * MIB), wait_ms=60000)
    large.wait_until_read()
    large.call("stats")
    first = small.create("s/1", bytes_layout(18 * MIB))["lease"]  # 40 + 18 fit together
    small.error("no_space", "create", name="s/2", layout=bytes_layout(10 * MIB))
    waiting = small.request("create", name="s/3", layout=bytes_layout(10 * MIB), wait_ms=60000)
    holder.call("abort", lease=held)
    holder.unmap()
    lease = large.reply(ident)["lease"]
    assert not answered(small, waiting)
    small.call("abort", lease=first)
    small.unmap()
    assert small.reply(waiting)["lease"]
    large.call("abort", lease=lease)


# RELIABILITY.md: Memory is short
def test_a_small_one_is_not_starved_by_a_large_one(start):
    tiered = start()
    holder, large, small = [tiered.daemon.connect() for _ in range(3)]
    holder.create("held", bytes_layout(30 * MIB))
    ident = large.request("create", name="large", layout=bytes_layout(40 * MIB), wait_ms=60000)
    large.wait_until_read()
    large.call("stats")
    for i in range(20):  # one after the other: each makes room for the next
        lease = small.create("small", bytes_layout(4 * MIB), replace=True)["lease"]
        small.call("seal", lease=lease, release=True)
    assert not answered(large, ident)
    small.call("delete", name="small")
    tiered.peer.call("stats")


def test_those_of_one_size_are_served_in_order(start):
    tiered = start()
    holder = tiered.daemon.connect()
    leases = [holder.create(f"held/{i}", bytes_layout(SIZE))["lease"] for i in range(3)]
    waiting = [tiered.daemon.connect() for _ in range(3)]
    idents = []
    for i, peer in enumerate(waiting):
        idents.append(peer.request("create", name=f"w/{i}", layout=bytes_layout(SIZE),
                                   wait_ms=60000))
        peer.wait_until_read()
        peer.call("stats")
    for i, lease in enumerate(leases):
        holder.call("abort", lease=lease)
        holder.unmap()
        assert waiting[i].reply(idents[i])["lease"]
        assert not any(answered(waiting[j], idents[j]) for j in range(i + 1, 3))


def test_a_wait_that_ends_lets_the_next_one_go(start):
    tiered = start()
    holder, first, second = [tiered.daemon.connect() for _ in range(3)]
    holder.create("held", bytes_layout(30 * MIB))
    first.request("create", name="first", layout=bytes_layout(60 * MIB), wait_ms=60000)
    first.wait_until_read()
    first.call("stats")
    ident = second.request("create", name="second", layout=bytes_layout(20 * MIB), wait_ms=60000)
    assert not answered(second, ident)
    first.close()
    assert second.reply(ident)["lease"]


# ---- beginning and ending ----------------------------------------------------------------------


def test_files_are_removed_at_the_end(start):
    tiered = start(host=None)
    for name in "abcdef":
        tiered.put(name)
    assert len(tiered.files()) == 3
    tiered.daemon.stop()
    assert tiered.files() == []


# RELIABILITY.md: The disk
def test_files_that_were_left_are_removed_at_the_start(start, directory):
    place = os.path.join(directory, "left")
    os.mkdir(place)
    for name in ("0000000000000007.spill", "gpubufd.pack", "mine.spill", "notes"):
        with open(os.path.join(place, name), "wb"):
            pass
    tiered = start(place=place)
    assert comes_to(lambda: sorted(os.listdir(place)) == ["gpubufd.lock", "mine.spill", "notes"])
    tiered.put("a")
    assert tiered.daemon.stop() == 0


# RELIABILITY.md: The disk
def test_many_files_that_were_left_keep_nobody_waiting(start, directory):
    """It serves first, and new files have names of their own."""
    place = os.path.join(directory, "left")
    os.mkdir(place)
    for i in range(4000):
        with open(os.path.join(place, f"{i:016x}.spill"), "wb"):
            pass
    tiered = start(host=None, place=place)
    for name in "abcdef":
        tiered.put(name)
    assert comes_to(lambda: tiered.files() == [f"{4000 + i:016x}.spill" for i in range(3)])
    for name in "abcdef":
        tiered.check(name)
    log = tiered.daemon.stderr()
    assert re.search("files of an earlier daemon removed files=4000 left=0", log)
    assert log.index("listening socket=") < log.index("files of an earlier daemon removed")


def comes_to(condition):
    end = time.monotonic() + DEADLINE
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def refused(*options, device=test_device.OPTION):
    done = subprocess.run([GPUBUFD, "--socket", "/nonexistent/s", "--device", device, *options],
                          env=test_device.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    return done.stderr


@pytest.mark.parametrize("spec, says", [
    ("disk:1G:/nonexistent/place", "cannot look at the directory /nonexistent/place"),
    ("disk:1G:/etc/hostname", "cannot open the directory /etc/hostname"),
    ("disk:1G", "expected disk:SIZE:DIRECTORY"),
    ("disk:1G:", "expected disk:SIZE:DIRECTORY"),
    ("disk:lots:/tmp", "no size"),
    ("disk:1M:/tmp", "at least 2M"),
    ("disk:900T:/tmp", "more than the file system has"),
    ("host:900T", "more than the machine has"),
    ("host:101%", "1% to 100%"),
    ("host:0", "at least 2M"),
    ("tape:1G", "expected host:SIZE or disk:SIZE:DIRECTORY"),
])
def test_tiers_that_cannot_be(spec, says):
    assert says in refused("--tier", spec)


def test_a_directory_that_cannot_be_written():
    said = refused("--tier", "disk:2M:/proc/self")
    assert "/proc/self" in said


@pytest.mark.parametrize("marks", ["90", "90:80", "80:101", "a:b", "80:90:95", ""])
def test_watermarks_that_cannot_be(marks):
    assert "expected LOW:HIGH" in refused("--watermarks", marks)


def test_two_daemons_and_one_directory(start):
    tiered = start()
    assert "another daemon" in refused("--tier", f"disk:2M:{tiered.directory}")


def test_it_stops_while_it_spills(start):
    """What is under way is given up, and nothing is left behind."""
    tiered = start(host=None)
    for name in "abc":
        tiered.put(name)
    peers = [tiered.daemon.connect() for _ in range(3)]
    for peer, name in zip(peers, "abc"):
        peer.request("spill", name=name)
        peer.wait_until_read()
    tiered.daemon.process.send_signal(signal.SIGTERM)
    assert tiered.daemon.process.wait(DEADLINE) == 0
    assert tiered.files() == []


def test_clients_that_come_and_go_while_memory_is_short(tiered):
    """Readers are killed in the middle of what they do; the account stays exact, nothing is lost."""
    names = [f"o/{i}" for i in range(10)]
    for name in names:
        tiered.put(name, 9 * MIB)
    for turn in range(4):
        pids = []
        for i in range(4):
            pid = os.fork()
            if pid == 0:
                try:
                    with Peer(tiered.daemon.path) as peer:
                        for j in range(1000):
                            try:
                                opened = peer.open_object(names[(i * 3 + j * 7) % len(names)])
                            except RpcError as error:
                                assert error.kind == "no_space", error
                                continue
                            assert opened.read()[:64] == content(opened.object["name"], 64)
                            opened.release()
                            peer.unmap()
                finally:
                    os._exit(1)
            pids.append(pid)
        restores = tiered.stats()["devices"][0]["restores"]
        tiered.peer.wait_for_stats(lambda s, r=restores: s["devices"][0]["restores"] > r + 10)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        tiered.stats()
    tiered.check(*names)
    assert tiered.stats()["devices"][0]["evictions"] == 0
