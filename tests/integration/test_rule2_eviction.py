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


def test_the_least_recently_used_goes_first(peer, full, put):
    full()
    put("d")
    assert peer.names() == ["b", "c", "d"]
    put("e")
    assert peer.names() == ["c", "d", "e"]


def test_an_open_and_a_leases_end_are_uses(daemon, peer, full, put):
    full()
    reader = daemon.connect()
    reader.open_object("a").release()
    put("d")
    assert peer.names() == ["a", "c", "d"]
    opened = reader.open_object("c")
    reader.open_object("a").release()
    opened.release()
    put("e")
    assert peer.names() == ["a", "c", "e"]
    put("f")
    assert peer.names() == ["c", "e", "f"]


def test_stat_and_list_are_no_uses(peer, full, put):
    full()
    peer.call("stat", name="a")
    peer.call("list")
    put("d")
    assert "a" not in peer.names()


def test_leased_ones_stay(daemon, peer, full, put):
    full()
    reader = daemon.connect()
    opened = reader.open_object("a")
    put("d")
    put("e")
    assert peer.names() == ["a", "d", "e"]
    assert opened.read()[:1] == b"a"


def test_pinned_ones_stay(peer, full, put):
    full()
    peer.call("set", pinned=True, name="a")
    put("d")
    put("e")
    assert peer.names() == ["a", "d", "e"]
    peer.call("set", pinned=False, name="a")
    put("f")
    put("g")
    put("h")
    assert "a" not in peer.names()


def test_kept_ones_stay(peer, put):
    put("a", evict="keep")
    put("b")
    put("c")
    put("d")
    put("e")
    assert peer.names() == ["a", "d", "e"]


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


def test_no_more_goes_than_must(peer, full, put):
    full()
    put("d", size=17 * MIB)
    assert peer.names() == ["b", "c", "d"]


def test_as_many_go_as_must(peer, full, put):
    full()
    put("d", size=34 * MIB)
    assert peer.names() == ["c", "d"]


# RELIABILITY.md: Memory is short 4
def test_nothing_goes_in_vain(daemon, peer, full):
    """When evicting all that may go would not suffice, it is still there afterwards."""
    full()
    reader = daemon.connect()
    reader.open_object("a")
    peer.call("set", pinned=True, name="b")
    peer.error("no_space", "create", name="d", layout=bytes_layout(40 * MIB))
    assert peer.names() == ["a", "b", "c"]


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


# RELIABILITY.md: Memory is short 4
def test_no_space_says_the_figures(daemon, peer, full):
    """Needed, free, leased and pinned bytes."""
    full()
    reader = daemon.connect()
    reader.open_object("a")
    peer.call("set", pinned=True, name="b")
    error = peer.error("no_space", "create", name="d", layout=bytes_layout(40 * MIB))
    for word in ("free", "leased", "pinned"):
        assert word in error.message, error.message
    figures = [int(n) for n in re.findall(r"\d+", error.message)]
    assert 40 * MIB in figures and figures.count(SIZE) >= 2, error.message


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


def test_more_than_the_device_evicts_nothing(peer, full):
    full()
    peer.error("no_space", "create", name="d", layout=bytes_layout(65 * MIB))
    assert peer.names() == ["a", "b", "c"]


def test_small_objects(peer):
    """Hundreds in shared segments, evicted in order until the next fits."""
    count = 400
    for i in range(count):
        peer.create_object(f"n/{i:03}", bytes_layout(256 << 10), b"%03d" % i, evict="drop")
    names = peer.names()
    assert 100 <= len(names) <= 256
    assert names == [f"n/{i:03}" for i in range(count - len(names), count)]
    for name in names[:: len(names) // 10]:
        assert peer.open_object(name).read()[:3] == name[2:].encode()


def test_an_old_version_that_is_held_stays(daemon, peer, put):
    put("a")
    reader = daemon.connect()
    old = reader.open_object("a")
    put("a", replace=True)
    put("b")
    put("c")
    assert old.read()[:1] == b"a"
    assert peer.names() == ["b", "c"]


def test_an_alias_keeps_the_memory(daemon, peer, put):
    """Evicting one of two names frees nothing; the bytes stay right for the other."""
    put("a")
    peer.call("alias", name="alias", of="a")
    reader = daemon.connect()
    opened = reader.open_object("alias")
    for name in "bcde":
        put(name)
    assert opened.read()[:1] == b"a"


def test_a_waiting_create_gets_the_space(daemon, peer, full):
    full(evict="keep")
    other = daemon.connect()
    ident = other.request("create", name="d", layout=bytes_layout(SIZE), wait_ms=20000)
    other.wait_until_read()
    assert peer.call("stats") and other.call("stats") and ident not in other.replies
    peer.call("delete", name="b")
    assert other.reply(ident)["object"]["name"] == "d"


def test_a_waiting_create_gets_the_space_of_a_released_lease(daemon, peer, full):
    full()
    reader = daemon.connect()
    opened = [reader.open_object(n) for n in "abc"]
    ident = peer.request("create", name="d", layout=bytes_layout(SIZE), wait_ms=20000)
    peer.wait_until_read()
    opened[1].release()
    peer.call("release", lease=peer.reply(ident)["lease"])
    assert peer.names() == ["a", "c"]


# RELIABILITY.md: Time 2
def test_a_waiting_create_ends(peer, full):
    full(evict="keep")
    start = time.monotonic()
    peer.error("timeout", "create", name="d", layout=bytes_layout(SIZE), wait_ms=100)
    assert time.monotonic() - start >= 0.08


def test_waiting_creates_are_served_first_come_first_served(daemon, peer, full):
    full(evict="keep")
    others = [daemon.connect() for _ in range(3)]
    ids = []
    for i, other in enumerate(others):
        ids.append(other.request("create", name=f"w{i}", layout=bytes_layout(SIZE), evict="keep",
                                 wait_ms=20000))
        other.wait_until_read()
        assert other.call("stats")
    for i, name in enumerate("abc"):
        peer.call("delete", name=name)
        lease = others[i].reply(ids[i])["lease"]
        others[i].call("seal", lease=lease)
    assert peer.names() == ["w0", "w1", "w2"]
