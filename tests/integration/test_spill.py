"""Tiers below a device: what leaves it comes back as it was, and nothing is lost that need not be."""

import fcntl
import os
import re
import signal

import pytest

import device as test_device
from device import MIB
from peer import bytes_layout, wait_until
from restarts import register
from tiers import BELOW, SIZE, content, start, tiered  # noqa: F401  (fixtures)

# ---- leaving and coming back -------------------------------------------------------------------


# RELIABILITY.md: Memory is short 5
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


def test_what_was_restored_leaves_again_without_being_copied(tiered):
    for name in "abcd":
        tiered.put(name)
    tiered.check("a")
    written = tiered.tier(BELOW)["writes"]
    tiered.check("b", "c", "d", "a")
    tiered.check("b", "c", "d", "a")
    assert tiered.tier(BELOW)["writes"] <= written + 3  # each of them once
    assert tiered.tier(BELOW)["reads"] >= 5


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
    peer.call("move", name="t")
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


def test_a_name_that_goes_while_another_comes_back(tiered):
    """`open` of both waits for it as for any name, and is told when it is there again."""
    tiered.put("a")
    tiered.put("b", 4096)
    tiered.peer.call("move", name="a")
    reader = tiered.daemon.connect()
    tiered.daemon.process.send_signal(signal.SIGSTOP)  # both come in one turn: "a" is on its way
    opening = reader.request("open", names=["a", "b"], wait_ms=600_000)
    deleting = reader.request("delete", name="b")
    tiered.daemon.process.send_signal(signal.SIGCONT)
    reader.reply(deleting)
    wait_until(lambda: tiered.tier_of("a") == "device")
    tiered.put("b", 4096)
    assert [entry["object"]["name"] for entry in reader.reply(opening)["objects"]] == ["a", "b"]
    tiered.check("a", "b")


# ---- names and memory --------------------------------------------------------------------------


def test_registered_memory(tiered):
    """The memory was the producer's; the restored object has memory of the daemon's."""
    register(tiered.peer, "mine", content("mine", 4 * MIB))
    tiered.sizes["mine"] = 4 * MIB
    tiered.peer.call("move", name="mine")
    assert tiered.tier_of("mine") == BELOW
    tiered.check("mine")


# ---- by hand -----------------------------------------------------------------------------------


def test_spill_and_restore_by_hand(tiered):
    tiered.put("a")
    peer = tiered.peer
    assert peer.call("move", name="a") == {}
    assert peer.call("move", name="a") == {}
    assert tiered.tier_of("a") == BELOW
    assert peer.call("move", tier="device", name="a") == {}
    assert tiered.tier_of("a") == "device"
    assert peer.call("move", tier="device", name="a") == {}
    assert peer.call("move", name="a", tier="disk") == {}
    assert tiered.tier_of("a") == "disk" and len(tiered.files()) == 1
    tiered.check("a")
    peer.error("not_found", "move", name="nothing")
    peer.error("not_found", "move", tier="device", name="nothing")


def test_a_tier_that_there_is_not(start, peer):
    peer.put("a")
    assert "--tier" in peer.error("unsupported", "move", name="a").message
    peer.error("unsupported", "move", name="a", tier="disk")
    error = peer.error("invalid", "move", name="a", tier="tape")
    assert error.message.startswith("params.tier: ")


# ---- when the tiers are full -------------------------------------------------------------------


# RELIABILITY.md: Memory is short 5
def test_full_tiers_lose_nothing(start):
    """A request for room is told why the tiers have too little; all that is there can be read, in any order."""
    tiered = start(host=None, disk="64M")
    names = [f"o/{i}" for i in range(5)]  # three on the device, two on the disk, and room for one more
    for name in names:
        tiered.put(name)
    error = tiered.peer.error("no_space", "create", name="more", layout=bytes_layout(SIZE))
    room, least = map(int, re.search(r"the tiers have room for (\d+) bytes, and a new object of this size is refused below "
                                     r"(\d+), so that others can come back: .* --tier", error.message).groups())
    assert room == tiered.tier("disk")["free"] < least == 2 * SIZE + 4 * MIB
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
    tiered.peer.call("move", name="below", tier="disk")
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


# RELIABILITY.md: Memory is short 4
def test_an_open_of_many_drops_none_of_them(start):
    """Neither is there room on the disk for what would have to leave, unless the other one is dropped."""
    tiered = start(host=None, disk="40M")
    tiered.put("kept")
    tiered.put("dropped", evict="drop")
    for name in ("kept", "dropped"):
        tiered.peer.call("move", name=name)
    for name in "xyz":
        tiered.put(name)
    told = tiered.peer.call("open", names=["kept", "dropped"])["objects"]
    assert [one["error"]["data"]["kind"] for one in told] == ["no_space"] * 2
    tiered.peer.call("delete", name="x")
    tiered.check("kept", "y", "z")
    tiered.peer.call("delete", names=["kept", "y", "z"])
    tiered.check("dropped")


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has one tier below it")
def test_the_host_tier_makes_room_on_the_disk(start):
    tiered = start(host="40M")
    names = [f"o/{i}" for i in range(9)]
    for name in names:
        tiered.put(name)
    assert tiered.tiers_of(names) == ["disk"] * 4 + ["host"] * 2 + ["device"] * 3
    tiered.check(*names)


def test_one_that_no_tier_can_hold(start):
    """The object stays, and others, later ones too, make room."""
    tiered = start(host="8M", disk="16M")
    for name in "abc":
        tiered.put(name)
    tiered.peer.error("no_space", "move", name="b")
    tiered.put("small", 9 * MIB)
    tiered.peer.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    tiered.put("smaller", 2 * MIB)
    tiered.check("a", "b", "c", "small", "smaller")
    assert tiered.peer.names() == ["a", "b", "c", "small", "smaller"]


def test_one_that_fits_a_tier_but_for_what_a_file_begins_with(start):
    """Nothing leaves the tier for the sake of one that would not fit into all of it."""
    tiered = start(host=None, disk="20M")
    tiered.put("a", 5 * MIB)
    tiered.peer.call("move", name="a", tier="disk")
    tiered.put("b", 20 * MIB - 2048)
    tiered.peer.error("no_space", "move", name="b", tier="disk")
    assert tiered.tiers_of("ab") == ["disk", "device"]
    tiered.check("a", "b")


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
    peer.call("move", name="a")
    opened = peer.open_object("a")
    assert opened.read() == b"a" * SIZE


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
    tiered.wait_for_moves()
    assert tiered.stats()["devices"][0]["spills"] == 0
    assert tiered.tiers_of(names) == ["device"] * 9
    assert tiered.tier(BELOW)["writes"] == 5
    tiered.check(names[0])  # used again: it was there all the time
    tiered.put("large", 60 * MIB)
    assert tiered.tiers_of(names) == ["device"] + [BELOW] * 2 + ["device"] * 6
    assert tiered.tier(BELOW)["reads"] == 0
    tiered.check(*names, "large")


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
    tiered.peer.call("move", name="below", tier="disk")
    names = [f"o/{i}" for i in range(20)]
    for name in names:
        tiered.put(name, 3 * MIB)
        tiered.peer.call("move", name=name, tier="host")
    tiered.peer.wait_for_stats(lambda s: s["tiers"][1]["writes"] >= 2)
    for _ in range(20):  # each of these is a turn at least, with a copy that is made meanwhile
        tiered.put("other", MIB, replace=True)
        tiered.peer.call("move", name="other", tier="host")
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
            tiered.peer.call("move", name="x")
        for mode in ("0600", "0640"):
            tiered.put(f"large/{mode}", MIB, mode=mode, evict=evict)
            tiered.put(f"small/{mode}", 64 << 10, mode=mode)
        tiered.peer.call("trim")
        return tiered

    return run


# RELIABILITY.md: Memory is short 4
def test_nothing_is_dropped_in_vain(split):
    """An object that the tier has no room for stays, and with it the segments."""
    tiered = split("2M", "drop")
    before = tiered.peer.names()
    tiered.peer.error("no_space", "create", name="d", layout=bytes_layout(4 * MIB), mode="0604")
    assert len(before) == 4 and tiered.peer.names() == before


# RELIABILITY.md: Memory is short 4
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


# RELIABILITY.md: Memory is short 7
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
    holder.call("release", lease=held)
    holder.unmap()
    lease = large.reply(ident)["lease"]
    assert not answered(small, waiting)
    small.call("release", lease=first)
    small.unmap()
    assert small.reply(waiting)["lease"]
    large.call("release", lease=lease)


# RELIABILITY.md: Memory is short 7
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
        holder.call("release", lease=lease)
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
