"""hello with cache, keep, leases.recall: leases that a session has at hand without using them."""

import fcntl
import mmap
import os
import signal
import time

import pytest

from peer import DEADLINE, Peer, RpcError, bytes_layout, wait_until

MIB = 1 << 20
SIZE = 18 * MIB  # three of these fit in 64 MiB, each in a segment of its own

PATIENT = ("--limit", "recall_ms=1000000")

F_GET_SEALS = 1034
SEALS = 0x1 | 0x2 | 0x4 | 0x10  # SEAL, SHRINK, GROW, FUTURE_WRITE


@pytest.fixture
def daemon(daemon_factory):
    """One that waits for answers for as long as the tests do."""
    return daemon_factory(*PATIENT)


@pytest.fixture
def hasty(daemon_factory):
    """One that does not wait for long, as by default."""
    return daemon_factory()


@pytest.fixture
def reader(daemon):
    """A session that keeps leases."""
    return keeper(daemon)


@pytest.fixture
def put(daemon):
    """put(name): see put_in."""
    return lambda name: put_in(daemon, name)


def put_in(daemon, name):
    """A large object, published by a session that ends, so that nobody maps it."""
    with Peer(daemon.path) as peer:
        peer.create_object(name, bytes_layout(SIZE), name.encode(), evict="drop")


def keeper(daemon):
    peer = daemon.connect()
    peer.call("hello", protocol=1, client="reader", cache=True)
    return peer


def keep(reader, name):
    """Opens an object and keeps the lease, with nothing mapped."""
    opened = reader.open_object(name)
    if reader.segments:
        reader.unmap()
    reader.call("cache", leases=[opened.lease])
    return opened


def put_in_background(daemon, name, size=SIZE, **params):
    """A session that has asked for memory, and the number of the request."""
    peer = daemon.connect()
    return peer, peer.request("create", name=name, layout=bytes_layout(size), **params)


def recalled(reader):
    return reader.notification("leases.recall")["params"]["leases"]


# ---- the page ----------------------------------------------------------------------------


def test_only_who_asks_has_a_page(daemon, peer):
    peer.put("a")
    assert peer.page is None and peer.open_object("a").slot is None
    other = daemon.connect()
    assert "cache" not in other.call("hello", protocol=1, cache=False)
    assert other.open_object("a").slot is None


def test_a_page_may_be_asked_for_later(daemon, peer):
    """Leases that were granted before have no slot."""
    peer.put("a")
    reader = daemon.connect()
    reader.call("hello", protocol=1, client="reader")
    reader.error("busy", "hello", protocol=1)
    assert reader.open_object("a").slot is None
    assert reader.call("hello", protocol=1, cache=True)["cache"]["slots"] > 0
    opened = reader.open_object("a")
    assert reader.slot(opened.slot) == opened.lease
    assert "cache" not in reader.call("hello", protocol=1, cache=True)  # it has one
    session, = [s for s in peer.call("sessions")["sessions"] if s["leases"] == 2]
    assert session["client"] == "reader"


def opened_anew(fd):
    """The same memory by a description of its own, which root alone gets to write; [] for others."""
    try:
        return [os.open(f"/proc/self/fd/{fd}", os.O_RDWR)]
    except PermissionError:
        assert os.geteuid() != 0
        return []


# RELIABILITY.md: Hostile clients 21
def test_nobody_writes_the_page(reader):
    assert fcntl.fcntl(reader.page_fd, F_GET_SEALS) == SEALS
    anew = opened_anew(reader.page_fd)
    for fd in (reader.page_fd, *anew):
        with pytest.raises(PermissionError):
            mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        for attempt in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0),
                        lambda: os.ftruncate(fd, 1 << 20)):
            with pytest.raises(PermissionError):
                attempt()
    for fd in anew:
        os.close(fd)


@pytest.mark.root
# RELIABILITY.md: Hostile clients 21
def test_another_user_cannot_open_the_page_anew(daemon, as_user):
    """Its own descriptor is all that it has of it."""

    def work(peer):
        peer.call("hello", protocol=1, cache=True)
        try:
            os.close(os.open(f"/proc/self/fd/{peer.page_fd}", os.O_RDWR))
            return "opened"
        except PermissionError:
            return "denied"

    assert as_user(daemon, 4711, 4711, work) == "denied"


def test_a_session_has_one_of_an_object(peer, reader):
    """A second lease would be of no use, and cannot be kept."""
    peer.put("a")
    first, second = reader.open_object("a"), reader.open_object("a")
    assert second.slot is None and reader.slot(first.slot) == first.lease
    assert "slot" in reader.error("busy", "cache", leases=[second.lease]).message
    both = reader.call("open", names=["a", "a"])["objects"]
    assert not any("slot" in one for one in both)
    peer.put("a", b"new", replace=True)
    assert reader.open_object("a").slot is not None
    first.release()
    peer.call("alias", name="b", of="a")
    assert reader.open_object("b").slot is not None


def openers(connect, count):
    """Sessions that keep `a`, each with its lease."""
    opened = []
    for _ in range(count):
        session = connect()
        session.call("hello", protocol=1, cache=True)
        opened.append(session.open_object("a"))
    return opened


def slotted(opened):
    return [one for one in opened if one.slot is not None and one.peer.slot(one.slot) == one.lease]


def test_an_object_has_a_limited_number(daemon, peer):
    """All are cleared in one request, so there are not any number. Other leases cannot be kept."""
    peer.put("a")
    opened = openers(daemon.connect, 130)
    assert slotted(opened) == opened[:128]
    opened[5].release()
    assert len(slotted(openers(daemon.connect, 2))) == 1


@pytest.mark.root
# RELIABILITY.md: Hostile clients 21
def test_users_take_turns_at_slots(daemon, peer):
    """A user who has all of an object's gives way, its oldest first, until others have as many."""
    peer.put("a", mode="0604")
    theirs = openers(lambda: daemon.connect_as(1001, 1001), 128)
    assert len(slotted(theirs)) == 128
    for one in theirs[:2]:
        one.peer.call("cache", leases=[one.lease])
    mine = openers(lambda: daemon.connect_as(1002, 1002), 66)
    assert len(slotted(mine)) == 64 and slotted(mine) == mine[:64]
    assert slotted(theirs) == theirs[64:]
    for one in theirs[:2]:  # kept: they are asked for, and count as in use until they are given back
        assert recalled(one.peer) == [one.lease]
        assert one.peer.error("busy", "cache", leases=[one.lease])
        one.release()
    assert peer.call("stat", name="a")["object"]["leases"] == 126 + 66
    assert len(slotted(openers(lambda: daemon.connect_as(1001, 1001), 2))) == 0
    assert len(slotted(openers(lambda: daemon.connect_as(1003, 1003), 3))) == 3


def test_a_page_has_a_limited_number(daemon, peer):
    """Leases beyond that have no slot."""
    reader = daemon.connect()
    slots = reader.call("hello", protocol=1, cache=True)["cache"]["slots"]
    peer.put("a")
    names = [f"n{i}" for i in range(slots + 64)]
    for at in range(0, len(names), 64):
        asked = [peer.request("alias", name=name, of="a") for name in names[at:at + 64]]
        assert all(peer.reply(one) for one in asked)
        entries = reader.call("open", names=names[at:at + 64])["objects"]
        assert ["slot" in one for one in entries] == [at < slots] * 64
    assert os.fstat(reader.page_fd).st_size == 16 << 10  # nobody is charged for it


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
# RELIABILITY.md: The daemon ends 3
def test_the_pulse_tells_of_a_daemons_end(daemon, reader, end):
    """Before its sockets do: a successor may tell others of changes that the page does not know."""
    alive = reader.pulse[:4]
    assert any(alive)
    daemon.process.send_signal(end)
    reader.expect_closed_anyhow()
    assert reader.pulse[:4] != alive
    daemon.kill()


# ---- keeping -----------------------------------------------------------------------------


def test_what_is_kept_is_told_apart(peer, reader):
    peer.put("a")
    opened = reader.open_object("a")
    assert reader.call("cache", leases=[opened.lease]) == {}
    lease, = peer.call("leases")["leases"]
    assert lease["lease"] == opened.lease and lease["cached_ms"] >= 0
    told = peer.call("stat", name="a")["object"]
    assert (told["leases"], told["cached"]) == (0, 1)
    stats = peer.call("stats")
    assert (stats["leases"], stats["cached"], stats["devices"][0]["leased"]) == (0, 1, 0)
    session, = [s for s in peer.call("sessions")["sessions"] if s["client"] == "reader"]
    assert (session["leases"], session["cached"]) == (0, 1)
    reason = peer.call("stat", why=True, name="a")["reasons"][0]
    assert reason["kind"] == "cached" and reason["cached_ms"] >= 0
    reader.call("cache", leases=[opened.lease], used=True)
    lease, = peer.call("leases")["leases"]
    assert "cached_ms" not in lease
    told = peer.call("stat", name="a")["object"]
    assert told["leases"] == 1 and "cached" not in told
    assert peer.call("stat", why=True, name="a")["reasons"][0]["kind"] == "leased"


def test_only_ones_own_leases(daemon, peer, reader):
    peer.put("a")
    opened = reader.open_object("a")
    other = daemon.connect()
    other.call("hello", protocol=1, cache=True)
    other.error("stale", "cache", leases=[opened.lease])
    reader.error("stale", "cache", leases=[opened.lease, 1 << 40])
    assert peer.call("stat", name="a")["object"]["cached"] == 1  # the others all the same
    peer.error("busy", "cache", leases=[peer.open_object("a").lease])  # without a page
    write = reader.call("create", name="b", layout=bytes_layout(1))["lease"]
    reader.error("busy", "cache", leases=[write])


# ---- giving back -------------------------------------------------------------------------


def test_what_was_used_in_between_leaves_later(daemon, peer, reader, put):
    """`keep`, said again, is a use; a release of what is kept is none."""
    kept = {}
    for name in "abc":
        put(name)
        kept[name] = keep(reader, name)
    reader.call("cache", leases=[kept["a"].lease])  # now b, c, a
    reader.call("release", leases=[o.lease for o in kept.values()])
    put("d")
    assert peer.names() == ["a", "c", "d"]


def test_what_is_kept_is_recalled_and_what_is_used_again_stays(daemon, peer, reader, put):
    kept = {}
    for name in "abc":
        put(name)
        kept[name] = keep(reader, name)
    writer, request = put_in_background(daemon, "d")
    assert recalled(reader) == [kept["a"].lease]
    assert peer.names() == ["a", "b", "c"], "nothing has left while it was not given back"
    reader.call("cache", leases=[kept["a"].lease], used=True)
    assert recalled(reader) == [kept["b"].lease]
    reader.call("release", lease=kept["b"].lease)
    writer.reply(request)
    assert peer.names() == ["a", "c"]


def test_who_does_not_answer_uses_it(hasty):
    """The request goes on without it: after a while, and the next one at once."""
    reader, peer, writer = keeper(hasty), hasty.connect(), hasty.connect()
    opened = {}
    for name in "abc":
        put_in(hasty, name)
        opened[name] = keep(reader, name)
    begun = time.monotonic()
    writer.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    assert time.monotonic() - begun >= 0.09
    assert peer.call("stats")["cached"] == 0 and peer.call("stats")["leases"] == 3
    writer.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    # A late answer is good all the same.
    reader.call("release", lease=opened["a"].lease)
    writer.call("create", name="d", layout=bytes_layout(SIZE))
    assert peer.names() == ["b", "c"]


def test_something_else_leaves_instead(hasty):
    """Of what nobody holds, where who keeps the oldest does not answer."""
    reader, peer = keeper(hasty), hasty.connect()
    put_in(hasty, "a")
    keep(reader, "a")
    for name in "bcd":
        put_in(hasty, name)
    assert peer.names() == ["a", "c", "d"]
    put_in(hasty, "e")  # it is held: nobody is waited for again
    assert peer.names() == ["a", "d", "e"]
    assert peer.call("stat", name="a")["object"]["leases"] == 1


def test_a_version_without_a_name_is_given_back(daemon, peer, reader):
    """It would count for who keeps it, and nobody can open it any more."""
    peer.put("a", b"1")
    kept = reader.open_object("a")
    peer.put("a", b"2", replace=True)
    reader.call("cache", leases=[kept.lease])  # the message was on its way
    assert recalled(reader) == [kept.lease]
    reader.call("release", leases=[kept.lease])
    assert peer.call("stats")["objects"] == 1


def test_spill_has_it_given_back(daemon_factory, tmp_path):
    daemon = daemon_factory(*PATIENT, "--tier", f"disk:64M:{tmp_path}")
    peer, reader = daemon.connect(), keeper(daemon)
    peer.put("a", b"content")
    kept = keep(reader, "a")
    request = peer.request("move", name="a", tier="disk")
    assert recalled(reader) == [kept.lease]
    reader.call("release", lease=kept.lease)
    assert peer.reply(request) == {}
    assert peer.call("stat", name="a")["object"]["tier"] == "disk"
    kept = keep(reader, "a")
    request = peer.request("move", name="a", tier="disk")
    assert recalled(reader) == [kept.lease]
    reader.call("cache", leases=[kept.lease], used=True)
    with pytest.raises(RpcError, match="busy"):
        peer.reply(request)


# RELIABILITY.md: Memory is short 6
def test_hoarders_cost_others_nothing(daemon_factory):
    """Sessions that keep all that there is, and do not answer: a create goes on in a moment."""
    daemon = daemon_factory("--evict", "drop")
    peer = daemon.connect()
    names = [f"n{i}" for i in range(400)]
    for name in names:
        peer.create_object(name, bytes_layout(100_000))
    hoarders = []
    for _ in range(20):
        hoarder = keeper(daemon)
        for first in range(0, len(names), 50):
            entries = hoarder.call("open", names=names[first:first + 50])["objects"]
            hoarder.notify("cache", leases=[e["lease"] for e in entries])
        hoarders.append(hoarder)
    wait_until(lambda: peer.call("stats")["cached"] == 20 * len(names))
    begun = time.monotonic()
    peer.error(("no_space",), "create", name="large", layout=bytes_layout(60 * MIB))
    assert time.monotonic() - begun < DEADLINE / 2
    for hoarder in hoarders:
        hoarder.close()
    peer.unmap()
    peer.call("create", name="large", layout=bytes_layout(60 * MIB), wait_ms=60_000)
