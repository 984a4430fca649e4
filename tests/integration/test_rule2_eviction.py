"""Rule 2: what may be evicted, and in which order."""

import re
import time

import pytest

import device as test_device
from peer import Peer, bytes_layout

MIB = 1 << 20
SIZE = 18 * MIB  # three of these fit in 64 MiB, each in a segment of its own


@pytest.fixture
def put(daemon):
    """put(name, …): an object published by a session that ends, so that nobody maps its memory."""

    def run(name, size=SIZE, **params):
        with Peer(daemon.path) as peer:
            peer.create_object(name, bytes_layout(size), name.encode(),
                               **{"evict": "drop", **params})

    return run


@pytest.fixture
def full(put):
    """full(…): three objects that fill the device."""

    def run(**params):
        for name in "abc":
            put(name, **params)

    return run


@pytest.mark.on_gpus
def test_as_many_go_as_must_and_no_more(peer, full, put):
    full()
    put("d", size=17 * MIB)
    assert peer.names() == ["b", "c", "d"]
    put("e", size=34 * MIB)
    assert peer.names() == ["d", "e"]


# RELIABILITY.md: Memory is short 5
def test_what_is_not_to_be_dropped_stays(peer, full, put):
    """By default, and where there is no tier: whoever wants the room is told what to do."""
    full(evict="spill")
    error = peer.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    assert "there is no tier" in error.message and "--evict drop" in error.message
    assert f"{3 * SIZE} not to be dropped" in error.message, error.message
    assert peer.names() == ["a", "b", "c"] and peer.call("stats")["devices"][0]["evictions"] == 0
    peer.call("delete", name="b")
    put("d", evict="spill")
    assert peer.names() == ["a", "c", "d"]


def test_only_what_may_be_dropped_is(peer, put):
    """The others are passed over, though they were used before."""
    put("a", evict="spill")
    put("b")
    put("c")
    put("d")
    assert peer.names() == ["a", "c", "d"]
    put("e", evict="spill")
    put("f", evict="spill")
    assert peer.names() == ["a", "e", "f"]
    peer.error("no_space", "create", name="g", layout=bytes_layout(SIZE))


def test_a_cache(daemon_factory):
    """With --evict drop only what is said to be needed stays."""
    daemon = daemon_factory("--evict", "drop")
    peer = daemon.connect()
    assert peer.call("hello", protocol=1)["evict"] == "drop"
    for name in "abcde":
        with Peer(daemon.path) as publisher:
            publisher.create_object(name, bytes_layout(SIZE),
                                    **({"evict": "spill"} if name == "a" else {}))
    assert peer.names() == ["a", "d", "e"]
    assert peer.call("stat", name="d")["object"]["evict"] == "drop"


# RELIABILITY.md: Memory is short 5
def test_what_is_dropped_is_told(daemon, peer, full, put):
    """In the log, by an event, and by a counter. At most one line a minute."""
    watch = daemon.connect()
    watch.call("watch", kinds=["evicted"])
    full()
    for name in "def":
        put(name)
    assert [name for _, name, _ in watch.events(3)] == ["a", "b", "c"]
    (device,) = peer.call("stats")["devices"]
    assert (device["evictions"], device["evicted_bytes"]) == (3, 3 * SIZE)
    lines = [line for line in daemon.stderr().splitlines() if "info    dropped" in line]
    assert len(lines) == 1 and f"objects=1 bytes={SIZE}" in lines[0], lines
    assert "no room" in lines[0]


def test_nothing_goes_in_vain_for_the_rest_of_a_segment(daemon_factory):
    """A segment of one's own is a multiple of 2 MiB, which the device need not be."""
    daemon = daemon_factory(device=test_device.OPTION.replace("64M", "65M"))
    peer = daemon.connect()
    peer.create_object("kept", bytes_layout(2 * MIB), evict="keep")
    for name in "abc":
        peer.create_object(name, bytes_layout(SIZE), evict="drop")
    peer.unmap()
    peer.error("no_space", "create", name="d", layout=bytes_layout(62 * MIB + 1))
    assert peer.names() == ["a", "b", "c", "kept"]
    assert peer.create("d", bytes_layout(62 * MIB))


# RELIABILITY.md: Memory is short 4
def test_nothing_goes_in_vain_for_holes_beside_what_stays(daemon_factory):
    """Two holes with an object between them are no place for what needs both."""
    daemon = daemon_factory(device=test_device.OPTION.replace("64M", "6M"))
    peer = daemon.connect()
    peer.create_object("held", bytes_layout(4 * MIB), evict="keep")
    for name, size in (("a", 992 << 10), ("between", 64 << 10), ("b", 992 << 10)):
        peer.create_object(name, bytes_layout(size), evict="keep" if size < MIB // 2 else "drop")
    peer.unmap()
    peer.error("no_space", "create", name="d", layout=bytes_layout(MIB))
    assert peer.names() == ["a", "b", "between", "held"]
    assert peer.create("d", bytes_layout(992 << 10))["lease"]
    assert peer.names() == ["b", "between", "held"]
    peer.call("delete", name="between")
    assert peer.create("e", bytes_layout(MIB))["lease"]
    assert peer.names() == ["held"]


def account(message):
    """The figures of a no_space sentence, which add up to the capacity."""
    capacity, rest = re.search(r": of (\d+), (.*?)(?:;|$)", message).groups()
    figures = {}
    for part in rest.split(", "):
        number, what = part.split(" ", 1)
        figures[what.removeprefix("are ")] = int(number)
    assert sum(figures.values()) == int(capacity), message
    return figures


# RELIABILITY.md: Memory is short 4
def test_no_space_adds_up(daemon, peer, put):
    """Whatever the device is full of."""
    def refused(size=40 * MIB):
        return account(peer.error("no_space", "create", name="z", layout=bytes_layout(size)).message)

    put("leased")
    put("pinned", size=5 * MIB)
    put("both", size=3 * MIB)
    put("needed", size=4 * MIB, evict="spill")
    put("drop", size=7 * MIB)
    for i in range(8):
        put(f"small/{i}", size=100000, evict="keep")
    reader = daemon.connect()
    reader.open_object("leased")
    reader.open_object("both")
    peer.call("set", pinned=True, name="pinned")
    peer.call("set", pinned=True, name="both")
    told = refused()
    assert told["leased"] >= 21 * MIB and told["pinned or kept"] >= 5 * MIB + 800000
    assert told["not to be dropped and with no tier to go to"] >= 4 * MIB
    assert told["of objects that may leave"] >= 7 * MIB and told["free but split"] > 0
    opened = reader.open_object("needed")
    told = refused()
    assert "not to be dropped and with no tier to go to" not in told
    opened.release()
    peer.call("delete", names=["drop", "needed"])
    writer = daemon.connect()
    writer.create("open", bytes_layout(9 * MIB))
    refused()
    holds = daemon.connect()  # maps what is deleted, and does not unmap it
    holds.create_object("gone", bytes_layout(20 * MIB))
    peer.call("delete", name="gone")
    told = refused()
    assert told["mapped by clients after their release"] >= 20 * MIB, told


# RELIABILITY.md: Time 2
def test_a_waiting_create_ends(peer, full):
    full(evict="keep")
    start = time.monotonic()
    peer.error("timeout", "create", name="d", layout=bytes_layout(SIZE), wait_ms=100)
    assert time.monotonic() - start >= 0.08
