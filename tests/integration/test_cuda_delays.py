"""A slow driver: only the client whose request it works on waits for it."""

import os
import random
import select
import time

import pytest

from device import MIB
from peer import DEADLINE, RpcError, bytes_layout
from test_cuda_faults import Switch, memory_of


def answered(peer):
    """Whether anything has come that was not read."""
    return bool(peer.input) or bool(select.select([peer.socket], [], [], 0)[0])


def account(peer):
    told = peer.call("stats")["devices"][0]
    assert told["free"] + told["used"] + told["retained"] == told["capacity"], told
    return told


@pytest.fixture
def slow(daemon_factory):
    """slow(function, milliseconds, …): a daemon on a driver with slow functions."""

    def start(*delays, **options):
        rules = ",".join(f"{f}:{ms}" for f, ms in zip(delays[::2], delays[1::2]))
        return daemon_factory(env={"FAKECUDA_DELAY": rules, **options.pop("env", {})}, **options)

    return start


@pytest.fixture
def gate(directory):
    """A call of the driver that finds it on goes on when it is off; `rule` says so."""
    one = Switch(f"{directory}/gate")
    one.rule = f"{int(DEADLINE * 3000)}@{one.path}"
    return one


@pytest.mark.parametrize("share,function", [("fd", "cuMemCreate"), ("ipc", "cuMemAlloc")])
# RELIABILITY.md: Devices 3
def test_the_loop_does_not_wait(slow, gate, share, function):
    daemon = slow(function, gate.rule)
    writer, reader = daemon.connect(), daemon.connect()
    writer.put("a", b"x", share="ipc" if share == "fd" else "fd")
    gate.on()
    ident = writer.request("create", name="b", layout=bytes_layout(20 * MIB), share=share)
    writer.wait_until_read()
    for _ in range(10):
        reader.open_object("a").release()
        daemon.connect().call("hello", protocol=1)
    assert writer.call("stats") and writer.open_object("a"), "nor do other requests of the session"
    assert ident not in writer.replies and not answered(writer)
    told = account(reader)
    assert told["used"] + told["retained"] == 22 * MIB, "under way, and charged"
    gate.off()
    assert writer.reply(ident)["lease"]


# RELIABILITY.md: Devices 3
def test_giving_back_does_not_hold_up_either(slow, gate):
    daemon = slow("cuMemFree", gate.rule)
    peer = daemon.connect()
    for i in range(2):
        made = peer.create(f"a/{i}", bytes_layout(20 * MIB), share="ipc")
        peer.call("release", lease=made["lease"])
        peer.unmap()
    gate.on()
    assert peer.call("trim") == {"freed": 20 * MIB}
    assert account(peer)["retained"] == 20 * MIB
    assert peer.call("trim") == {"freed": 0}, "each is given back once"
    gate.off()
    peer.wait_until_given_back()
    assert account(peer)["free"] == 64 * MIB


def test_registering_does_not_hold_up_either(slow, gate, gpu):
    daemon = slow("cuMemImportFromShareableHandle", gate.rule)
    peer, other = daemon.connect(), daemon.connect()
    other.put("a", b"x")
    fd = gpu.create(2 * MIB, b"r")
    gate.on()
    ident = peer.request("register", fds=[fd], name="r", **memory_of(0))
    peer.wait_until_read()
    os.close(fd)
    assert other.open_object("a").read() == b"x"
    assert not answered(peer) and other.names() == ["a"]
    gate.off()
    assert peer.reply(ident)["version"]
    assert other.open_object("r").read() == b"r"


def test_wait_ms_is_about_space_not_about_the_driver(slow):
    daemon = slow("cuMemCreate", 300)
    peer = daemon.connect()
    ids = [peer.request("create", name=f"a/{i}", layout=bytes_layout(17 * MIB), **wait)
           for i, wait in enumerate(({}, {"wait_ms": 0}, {"wait_ms": 1}))]
    for ident in ids:
        assert peer.reply(ident)["lease"]
    error = peer.error("no_space", "create", name="b", layout=bytes_layout(17 * MIB))
    assert "leased" in error.message
    peer.error("timeout", "create", name="b", layout=bytes_layout(17 * MIB), wait_ms=1)


def test_one_segment_for_all_who_fit_in_it(slow):
    """Small objects of one domain that come while it is being made."""
    daemon = slow("cuMemCreate", 300)
    peers = [daemon.connect() for _ in range(5)]
    ids = [(p, p.request("create", name=f"{i}/{j}", layout=bytes_layout(1000)))
           for i, p in enumerate(peers) for j in range(10)]
    segments = {p.reply(ident)["object"]["layout"]["data"]["segment"] for p, ident in ids}
    assert len(segments) == 1
    assert account(peers[0])["segments_created"] == 1


def test_who_waits_for_space_does_not_take_what_is_made_for_another(slow):
    daemon = slow("cuMemCreate", 200)
    holder, waiter, peer = [daemon.connect() for _ in range(3)]
    held = holder.create("held", bytes_layout(30 * MIB))
    ident = waiter.request("create", name="w", layout=bytes_layout(40 * MIB), wait_ms=60000)
    waiter.wait_until_read()
    waiter.call("stats")
    for i in range(2):
        made = peer.create(f"a/{i}", bytes_layout(17 * MIB))
        peer.call("release", lease=made["lease"])
        peer.unmap()
    assert ident not in waiter.replies and not answered(waiter)
    holder.call("release", lease=held["lease"])
    holder.unmap()
    assert waiter.reply(ident)["lease"]


def test_what_is_on_its_way_back_is_waited_for(slow):
    """However slow the driver: it is no lack of space, and wait_ms is not needed."""
    daemon = slow("cuMemFree", 600)
    peer = daemon.connect()
    made = peer.create("a", bytes_layout(40 * MIB), share="ipc")
    peer.call("release", lease=made["lease"])
    peer.unmap()
    assert peer.create("b", bytes_layout(60 * MIB))


def test_nobody_stands_behind_one_who_waits_for_others(slow):
    """Memory on its way back is enough for the second request, not for the first, which gets its memory
    no later for that."""
    daemon = slow("cuMemFree", 600)
    holder, waiter, peer = [daemon.connect() for _ in range(3)]
    held = holder.create("held", bytes_layout(20 * MIB))
    made = peer.create("a", bytes_layout(40 * MIB), share="ipc")
    peer.call("release", lease=made["lease"])
    ident = waiter.request("create", name="w", layout=bytes_layout(50 * MIB), wait_ms=60000)
    waiter.wait_until_read()
    waiter.call("stats")
    peer.unmap()
    second = peer.create("b", bytes_layout(14 * MIB))
    assert ident not in waiter.replies and not answered(waiter)
    for one, session in ((held, holder), (second, peer)):
        session.call("release", lease=one["lease"])
        session.unmap()
    assert waiter.reply(ident)["lease"]


def test_what_is_being_made_for_another_is_no_space_to_come(slow, gate):
    """Eviction makes room at once; it does not look to a segment that another will have."""
    daemon = slow("cuMemAlloc", gate.rule)
    peer = daemon.connect()
    peer.create_object("old", bytes_layout(20 * MIB), evict="drop")
    peer.unmap()
    gate.on()
    slow_one = peer.request("create", name="slow", layout=bytes_layout(30 * MIB), share="ipc")
    made = peer.create("new", bytes_layout(19 * MIB))
    assert made["lease"] and slow_one not in peer.replies and not answered(peer)
    assert peer.names() == []
    gate.off()
    assert peer.reply(slow_one)["lease"]


def test_the_segment_of_one_who_was_killed_is_not_lost(slow, gpu, child):
    daemon = slow("cuMemCreate", 300)

    def ask_and_stay(peer):
        peer.request("create", name="mine", layout=bytes_layout(20 * MIB))
        peer.wait_until_read()

    one = child(daemon, ask_and_stay)
    one.kill()
    peer = daemon.connect()
    told = peer.wait_for_stats(lambda s: s["devices"][0]["segments"] == 1)["devices"][0]
    assert told["retained"] == 20 * MIB and gpu.used() == 20 * MIB
    assert account(peer)["free"] == 44 * MIB
    assert peer.create("next", bytes_layout(20 * MIB))
    assert account(peer)["segments_created"] == 1, "it serves the next"


def test_a_daemon_that_stops_while_its_driver_works(slow, gpu):
    daemon = slow("cuMemCreate", 500, "cuMemAlloc", 500)
    for share in ("fd", "ipc"):
        peer = daemon.connect()
        for i in range(2):
            peer.request("create", name=f"{share}/{i}", layout=bytes_layout(10 * MIB), share=share)
        peer.wait_until_read()
    daemon.stop()
    assert gpu.used() == 0


# RELIABILITY.md: Devices 4
def test_killed_at_any_moment(slow, gpu, child):
    """kill -9 while segments are made, taken, sealed and given back: the accounts add up."""
    daemon = slow("cuMemCreate", 15, "cuMemExportToShareableHandle", 5, "cuMemAlloc", 10, "cuMemFree", 5,
                  device="cuda:0:128M")
    rng = random.Random(3)
    peer = daemon.connect()
    for round_ in range(36):
        size, share = rng.choice([100, 3 * MIB, 17 * MIB, 40 * MIB]), rng.choice(["fd", "ipc"])

        def work(session):
            for i in range(3):
                session.request("create", name=f"k/{round_}/{i}", layout=bytes_layout(size),
                                share=share, wait_ms=1000)
            session.wait_until_read()

        one = child(daemon, work)
        time.sleep(rng.random() * 0.04)  # the moment is the point
        one.kill()
        account(peer)
        if round_ % 6 == 5:
            try:
                made = peer.create("mine", bytes_layout(100 * MIB), wait_ms=60000)
                peer.call("release", lease=made["lease"])
                peer.unmap()
            except RpcError as error:
                raise AssertionError(f"space is lost: {account(peer)}") from error
    assert peer.call("leases")["leases"] == [] and peer.names() == []
    peer.wait_for_stats(lambda s: s["sessions"] == 1)

    def all_given_back(_):
        peer.call("trim")
        return account(peer)["segments"] == 0

    peer.wait_for_stats(all_given_back)
    assert account(peer)["free"] == 128 * MIB and gpu.used() == 0
