"""Clients that mean ill: limits hold, what they took is given back, and others are served meanwhile.

How fast the others are served is measured by tests/bench/bench_hostile.c, which test_others_are_served
runs for short: 3 times the quiet 99th percentile is the aim there, on a quiet machine. Here it is that
nobody is kept waiting, with room for a machine of two cores that does other things besides.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import time

import pytest

from device import BUILD
from peer import DEADLINE, Closed, Peer, RpcError, bytes_layout
from restarts import supervised  # noqa: F401

MIB = 1 << 20
BENCH = BUILD / "tests" / "bench" / "bench_hostile"
SANITIZED = BUILD.name in ("asan", "tsan")
ATTACKS = ["requests", "lists", "leases_asked", "opens", "garbage", "deep", "wide", "columns",
           "no_reader", "slowloris", "connects", "hit_and_run", "descriptors", "lingers", "watches", "waits",
           "leases", "flood", "absent_and_away", "holders", "slots", "lives", "joins", "claims",
           "rings", "ended_waits", "segments", "parks"]


def run_bench(daemon, *names):
    done = subprocess.run([BENCH, daemon.path, "--quick", *names], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {row["id"].split(".")[1]: row for row in map(json.loads, done.stdout.splitlines())}


def peaceful_us(daemon):
    """The time that the same client waits beside as many clients that are as busy and do no harm."""
    rows = run_bench(daemon, "spin", "honest")
    return max(row[part]["median"] for row in rows.values() for part in ("measured", "floor"))


@pytest.fixture(scope="module")
def earlier():
    """Holds what peaceful_us measured last."""
    return []


@pytest.mark.parametrize("attack", ATTACKS)
# RELIABILITY.md: Hostile clients 1
def test_others_are_served(daemon_factory, earlier, attack):
    """Held against peace as it was measured once; where that does not do, as it is just now. The best of
    three rounds counts: an attack that starves others does so in each, another program in one."""
    margin_us = 500e3 if SANITIZED else 50e3
    row = run_bench(daemon_factory(device="host:256M"), attack)[attack]
    attacked = row["measured"]["min"]
    if not earlier or attacked > 3 * earlier[0] + margin_us:
        earlier[:] = [peaceful_us(daemon_factory(device="host:256M"))]
    assert attacked <= 3 * earlier[0] + margin_us, row


# RELIABILITY.md: Hostile clients 1
def test_others_are_served_beside_a_stopped_supervisor(supervised):  # noqa: F811
    row = run_bench(supervised(device="host:256M"), "manager_stopped")["manager_stopped"]
    assert row["measured"]["min"] <= 3 * row["floor"]["max"] + (500e3 if SANITIZED else 50e3), row


# RELIABILITY.md: Clients that end 2
def test_a_killed_client_is_gone_soon(daemon_factory):
    """10 000 leases: 10 ms is the aim, on a quiet machine."""
    row = run_bench(daemon_factory(device="host:256M"), "killed")["killed"]
    assert row["measured"]["median"] <= (500 if SANITIZED else 50), row


# ---- half messages ------------------------------------------------------------------------------


def served(peer):
    """A well-behaved client gets what it asks for."""
    peer.put("served", b"served", replace=True)
    opened = peer.open_object("served")
    assert opened.read() == b"served"
    opened.release()


# RELIABILITY.md: Hostile clients 13
def test_bytes_of_half_lines_are_limited(daemon_factory):
    daemon = daemon_factory("--limit", "held_bytes=4M")
    peer = daemon.connect()
    hoarders = [daemon.connect() for _ in range(8)]
    for one in hoarders:
        with contextlib.suppress(OSError):
            one.send_raw(b"[" + b" " * 900000)
            one.wait_until_read()
        served(peer)
    closed = sum(closed_by_the_daemon(one) for one in hoarders)
    assert closed == 4
    for one in hoarders:
        one.close()
    served(peer)


def closed_by_the_daemon(one):
    try:
        one.socket.setblocking(False)
        return one.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# RELIABILITY.md: Hostile clients 13
def test_descriptors_of_half_lines_are_limited(daemon_factory):
    daemon = daemon_factory("--limit", "held_fds=64")
    peer = daemon.connect()
    served(peer)
    before = sum(daemon.fds().values())
    hoarders = [daemon.connect() for _ in range(20)]
    for one in hoarders:
        with contextlib.suppress(OSError):
            one.send_raw(b"{", [0] * 16)
            one.wait_until_read()
        served(peer)
    assert sum(closed_by_the_daemon(one) for one in hoarders) == 16
    assert daemon.comes_to(lambda fds: sum(fds.values()) <= before + 64 + 4)
    for one in hoarders:
        one.close()
    served(peer)


# RELIABILITY.md: Hostile clients 13
def test_bytes_of_requests_that_wait_are_limited(daemon_factory):
    daemon = daemon_factory("--limit", "held_bytes=1M")
    peer, waiting = daemon.connect(), daemon.connect()
    names = [f"{'x' * 200}/{i}" for i in range(64)]
    waits = 0
    while True:
        ident = waiting.request("open", names=names, wait_ms=60000)
        waiting.call("stats")  # comes after the answer, if there is one
        if ident in waiting.replies:
            break
        waits += 1
    with pytest.raises(RpcError) as refused:
        waiting.reply(ident)
    assert refused.value.kind == "limit" and refused.value.data["limit"] == "held_bytes"
    assert 4 < waits < 80, waits  # of 13 KB each, kept with its names
    served(peer)
    waiting.close()
    again = daemon.connect()
    again.request("open", names=names, wait_ms=60000)
    assert again.call("stats") and not again.replies


# RELIABILITY.md: Hostile clients 13
def test_answers_that_nobody_reads_are_limited_for_all_of_a_user(daemon_factory):
    daemon = daemon_factory("--limit", "held_bytes=2M")
    peer = daemon.connect()
    deaf = [daemon.connect() for _ in range(16)]
    for one in deaf:
        for _ in range(8):
            one.call("watch", prefix="told")
    end = time.monotonic() + DEADLINE
    while sum(one.unread() == 0 and closed_soon(one) for one in deaf) < 4:
        for i in range(100):
            peer.put("told", replace=True)
        assert time.monotonic() < end
    served(peer)


def closed_soon(one):
    """Whether the daemon has hung up, without reading what came before."""
    try:
        return one.socket.send(b"\n", socket.MSG_DONTWAIT) < 0
    except BlockingIOError:
        return False
    except OSError:
        return True


# ---- nonsense -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [
    b"[" * 1000000, b'{"a":' * 150000, b"[" * 33 + b"]" * 33, b"[[]," * 200000, b'"' + b"\\u0041" * 150000,
])
# RELIABILITY.md: Hostile clients 14
def test_deep_and_long(daemon, peer, line):
    other = daemon.connect()
    other.send_raw(line + b"\n")
    assert other.recv_message()["error"]["data"]["kind"] in ("parse", "request")
    served(peer)
    served(other)


def new_epoll():
    with select.epoll() as one:
        return os.dup(one.fileno())


KINDS = {
    "pipe": lambda peer, directory: os.pipe()[0],
    "socket": lambda peer, directory: socket.socketpair()[0].detach(),
    "file": lambda peer, directory: os.open(os.path.join(directory, "file"), os.O_RDWR | os.O_CREAT),
    "epoll": lambda peer, directory: new_epoll(),
    "event": lambda peer, directory: os.eventfd(0),
    "directory": lambda peer, directory: os.open(directory, os.O_RDONLY),
    "device": lambda peer, directory: os.open("/dev/zero", os.O_RDWR),
    "memfd without a seal": lambda peer, directory: os.memfd_create("x"),
    "the daemon's own socket": lambda peer, directory: os.dup(peer.socket.fileno()),
}


@pytest.mark.parametrize("kind", KINDS)
# RELIABILITY.md: Hostile clients 15
def test_sixteen_descriptors_of_the_wrong_kind(daemon, peer, directory, kind):
    before = daemon.settled_fds()
    fds = [KINDS[kind](peer, directory) for _ in range(16)]
    if kind.startswith("memfd"):
        for fd in fds:
            os.ftruncate(fd, 4096)
    handles = [{"kind": "memfd", "fd": i, "bytes": 4096, "device": "host"} for i in range(16)]
    layout = {**bytes_layout(16), "data": {"handle": 0, "offset": 0, "bytes": 16}}
    for _ in range(20):
        peer.error(("invalid", "unsupported"), "register", fds=fds, name="r", layout=layout,
                   handles=handles)
    for fd in fds:
        os.close(fd)
    served(peer)
    peer.unmap()
    peer.call("delete", name="served")
    peer.call("trim")
    assert daemon.comes_to(lambda fds: fds == before)


# RELIABILITY.md: Hostile clients 16
def test_a_memfd_that_would_shrink(daemon, peer):
    """Without the seal it is refused; with it nobody can take away what readers map."""
    reader = daemon.connect()
    fd = os.memfd_create("shrinks", os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o600)
    os.ftruncate(fd, 4096)
    os.pwrite(fd, b"x" * 4096, 0)
    layout = {**bytes_layout(4096), "data": {"handle": 0, "offset": 0, "bytes": 4096}}
    handles = [{"kind": "memfd", "fd": 0, "bytes": 4096, "device": "host"}]
    error = peer.error("invalid", "register", fds=[fd], name="r", layout=layout, handles=handles)
    assert "F_SEAL_SHRINK" in error.message
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    peer.call("register", fds=[fd], name="r", layout=layout, handles=handles)
    opened = reader.open_object("r")
    with pytest.raises(OSError) as refused:
        os.ftruncate(fd, 0)
    assert refused.value.errno == errno.EPERM
    os.close(fd)
    assert opened.read() == b"x" * 4096


# ---- floods -------------------------------------------------------------------------------------


# RELIABILITY.md: Hostile clients 1
def test_the_listening_queue_is_short(daemon):
    """Each connection takes a turn of the loop, so a client that connects is behind few of them."""
    with contextlib.ExitStack() as stack:
        os.kill(daemon.pid, signal.SIGSTOP)
        stack.callback(os.kill, daemon.pid, signal.SIGCONT)
        waiting = []
        with pytest.raises(BlockingIOError):
            while len(waiting) < 1000:
                waiting.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                waiting[-1].setblocking(False)
                waiting[-1].connect(daemon.path)
        assert 128 <= len(waiting) - 1 <= 129
        os.kill(daemon.pid, signal.SIGCONT)
        for one in waiting[:-1]:
            one.settimeout(DEADLINE)
            one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"stat","params":{"name":"none"}}\n')
            assert b"not_found" in one.recv(4096)



# RELIABILITY.md: Hostile clients 18
def test_ten_thousand_sessions(daemon_factory):
    count = 10000  # of two users: one alone gets half of what there is
    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 1500:
        pytest.skip(f"RLIMIT_NOFILE may not be raised above {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sockets = []
    try:
        daemon = daemon_factory("--limit", f"sessions={count + 100}",
                                "--limit", f"user_sessions={count + 100}", "--log-level", "warning")
        peer = daemon.connect()
        for i in range(count):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            os.seteuid(1001 if i % 2 else 0)
            try:
                one.connect(daemon.path)
            finally:
                os.seteuid(0)
            one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"stat","params":{"name":"none"}}\n')
            sockets.append(one)
        served(peer)
        peer.wait_for_stats(lambda stats: stats["sessions"] > count)
        for one in sockets:
            one.settimeout(DEADLINE)
            assert b"not_found" in one.recv(4096)
        for _ in range(200):
            extra = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            extra.connect(daemon.path)
            sockets.append(extra)
        served(peer)
        for one in sockets:
            one.close()
        peer.wait_for_stats(lambda stats: stats["sessions"] == 1)
        served(peer)
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# RELIABILITY.md: Hostile clients 19
def test_a_watch_flood(daemon_factory):
    daemon = daemon_factory("--limit", "user_watches=500")
    peer = daemon.connect()
    flood = [daemon.connect() for _ in range(10)]
    made = 0
    for one in flood:
        for _ in range(64):
            try:
                one.call("watch", prefix="told")
                made += 1
            except Exception as error:
                assert error.data["limit"] == "user_watches", error
    assert made == 500
    for _ in range(20):
        peer.put("told", replace=True)
        served(peer)
    flood[0].close()
    assert peer.call("watch", prefix="mine")["watch"]


@pytest.mark.root
def test_watches_of_another_user_delay_no_events(daemon_factory):
    """A user's watches that cannot keep up end; another's are told of everything, in order."""
    daemon = daemon_factory("--limit", "output_bytes=262144")
    os.chmod(daemon.path, 0o666)
    peer, watcher = daemon.connect(), daemon.connect_as(1002, 1002)
    flood = [daemon.connect_as(1001, 1001) for _ in range(16)]
    names = [f"told/{i}" for i in range(64)]
    for one in (watcher, *flood):
        for _ in range(1 if one is watcher else 64):
            one.call("watch", prefix="told/", kinds=["deleted"], existing=False)
    for _ in range(10):
        for name in names:
            peer.put(name, mode="0644")
        peer.call("delete", names=names)
        assert [name for _, name, _ in watcher.events(64)] == names
    for one in flood:  # they have not read
        one.expect_closed_anyhow()
    assert daemon.connect_as(1001, 1001).call("watch")["watch"]


# RELIABILITY.md: Hostile clients 19
def test_a_waits_flood(daemon):
    """Many wait for the same name, which comes and goes: others are served in between."""
    peer = daemon.connect()
    flood = [daemon.connect() for _ in range(4)]
    for one in flood:
        for i in range(256):
            one.request("open", names=["told"] + [f"none/{i}/{k}" for k in range(50)], wait_ms=600000)
        assert one.error("limit", "open", name="n", wait_ms=1).data["limit"] == "session_waits"
    assert peer.error("limit", "open", name="n", wait_ms=1).data["limit"] == "user_waits"
    for _ in range(5):
        peer.put("told", replace=True)
        served(peer)


@pytest.mark.root
def test_a_tier_flood(daemon_factory, directory):
    """A user that fills device and tiers within its quota takes nothing from users within theirs."""
    tier = os.path.join(directory, "tier")
    os.mkdir(tier)
    daemon = daemon_factory("--tier", f"disk:32M:{tier}", "--quota", "1001:bytes=16M",
                            device="host:32M")
    os.chmod(daemon.path, 0o666)
    victim, flood = daemon.connect_as(1002, 1002), daemon.connect_as(1001, 1001)
    for i in range(4):
        victim.put(f"mine/{i}", bytes([i]) * (3 * MIB))
    victim.unmap()
    refused = 0
    for i in range(40):
        try:
            flood.put(f"flood/{i}", b"f" * (2 * MIB), wait_ms=0)
        except Exception as error:
            assert error.kind in ("limit", "no_space"), error
            refused += 1
        flood.unmap()
        served(victim)
    assert refused >= 30
    for i in range(4):
        opened = victim.open_object(f"mine/{i}", wait_ms=20000)
        assert opened.read() == bytes([i]) * (3 * MIB)
        opened.release()


# ---- what belongs to others ---------------------------------------------------------------------


def test_the_wrong_end_of_everything(daemon):
    """Leases, segments and watches of another session are not one's own, whatever their numbers."""
    one, two = daemon.connect(), daemon.connect()
    lease = one.create("a", bytes_layout(8))["lease"]
    watch = one.call("watch", prefix="none")["watch"]
    segment = next(iter(one.segments))[0]
    for number in range(1, 10):
        two.error("stale", "release", lease=number)
        two.error("stale", "seal", lease=number)
        two.error("stale", "release", lease=number)
        two.error("stale", "unwatch", watch=number)
        two.error("stale", "unmap", segments=[number])
    one.call("unwatch", watch=watch)
    one.call("seal", lease=lease)
    assert segment in [entry["segment"] for entry in one.call("leases")["mapped"]]


def test_requests_of_one_session_are_answered_in_order(daemon, peer):
    """A session's requests are served in order, also if they take several turns."""
    other = daemon.connect()
    ids = [other.request("stat", name=f"none/{i}") for i in range(1000)]
    served(peer)
    for ident in ids:
        message = other.recv_message()
        assert message["id"] == ident


# RELIABILITY.md: Clients that end 3
def test_hung_up_with_much_to_do(daemon, peer):
    """Its unread input is served to the last line. Since there is much of it others have their turn
    meanwhile, but none of them sees the objects that it held."""
    with contextlib.suppress(Closed):
        one = Peer(daemon.path)
        one.put("last", b"0")
        one.call("open", name="last")
        lines = b"".join(
            json.dumps({"jsonrpc": "2.0", "method": "set",
                        "params": {"name": "last", "pinned": i % 2 == 1}}).encode() + b"\n" for i in range(1500))
        one.send_raw(lines + b'{"jsonrpc":"2.0","method":"delete","params":{"name":"last"}}\n')
        one.close()
        assert peer.call("leases")["leases"] == []
        peer.wait_for_stats(lambda stats: stats["objects"] == 0 and stats["sessions"] == 1)
