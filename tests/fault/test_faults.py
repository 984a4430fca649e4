"""The kernel lets the daemon, or a client, down: calls fail, are interrupted, take a byte at a time; the
wall clock jumps; a process is stopped. The daemon does what it can, tells of the rest, and loses nothing."""

import contextlib
import errno
import os
import resource
import select
import signal
import threading
import time

import pytest

from conftest import needs
from device import BUILD, ROOT
from peer import DEADLINE, Closed, RpcError, bytes_layout, table, wait_until
from restarts import supervised  # noqa: F401

MIB = 1 << 20
CTL = BUILD / "bin" / "gpubufctl"
WEATHER = ROOT / "examples" / "data" / "weather.csv"


def everyday(peer, prefix="day"):
    """A little of everything, with every answer checked."""
    data = bytes(range(256)) * 8
    peer.put(f"{prefix}/a", data)
    assert peer.open_object(f"{prefix}/a").read() == data
    peer.create_object(f"{prefix}/t", table(4, x={"dtype": "int32", "mask": {}}))
    peer.call("alias", name=f"{prefix}/b", of=f"{prefix}/t", columns=["x"])
    assert peer.names(prefix) == [f"{prefix}/a", f"{prefix}/b", f"{prefix}/t"]
    watch = peer.call("watch", prefix=prefix)["watch"]
    assert [kind for kind, _, _ in peer.events(4)] == ["sealed"] * 3 + ["synced"]
    peer.call("unwatch", watch=watch)
    peer.call("delete", names=[f"{prefix}/a", f"{prefix}/b", f"{prefix}/t"])


# ---- calls that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("call,code", [
    (call, code) for call, codes in (
        ("memfd", (errno.EMFILE, errno.ENFILE, errno.ENOMEM)), ("truncate", (errno.ENOSPC,)),
        ("open", (errno.EMFILE, errno.ENFILE)),
    ) for code in codes
])
# RELIABILITY.md: The kernel says no 1
def test_no_descriptor_and_no_space(shimmed, call, code):
    """A create that the kernel refuses fails with a sentence; the next goes well."""
    peer = shimmed.connect()
    peer.put("before", b"before")
    shimmed.shim.fail(call, code, skip=call == "open")  # the second, of the writer's descriptor
    error = peer.error(("limit", "device", "no_space"), "create", name="a", mode="0640",
                       layout=bytes_layout(20 * MIB))
    assert shimmed.shim.failed(call) == 1
    assert os.strerror(code) in error.message, error.message
    peer.put("a", b"a" * MIB, mode="0640")
    assert peer.open_object("a").read(path="data") == b"a" * MIB
    assert shimmed.connect().open_object("before").read() == b"before"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["memfd", "truncate", "map", "duplicate", "open"])
# RELIABILITY.md: The kernel says no 1
def test_a_stream_that_the_kernel_refuses(shimmed, call, code):
    """Whichever call fails, the request that needs it fails with a sentence, and the next goes well."""
    refused = skip = 0

    def again(peer, method, **params):
        nonlocal refused
        try:
            return peer.call(method, **params)
        except RpcError as error:
            assert error.kind in ("limit", "device") and os.strerror(code) in error.message, error
            refused += 1
            return peer.call(method, **params)

    def stream(peer):
        again(peer, "create", name="cam", live=True, layout={"kind": "array", "dtype": "uint8", "shape": [8, 4096]})
        told = again(peer, "open", name="cam")
        again(peer, "join", lease=told["lease"])
        peer.call("release", leases=[lease["lease"] for lease in peer.call("leases")["leases"]])
        told = again(peer, "open", name="cam", access="write", exclusive=True)
        again(peer, "join", lease=told["lease"])
        peer.call("release", lease=told["lease"])
        peer.call("delete", name="cam")

    while shimmed.shim.failed(call) or not skip:
        shimmed.shim.fail(call, code, skip=skip)
        with contextlib.closing(shimmed.connect()) as peer:
            stream(peer)
        skip += 1
    assert refused


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
# RELIABILITY.md: The kernel says no 1
def test_an_open_without_a_descriptor(shimmed, code):
    peer, reader = shimmed.connect(), shimmed.connect()
    peer.put("a", b"a")
    shimmed.shim.fail("duplicate", code)
    assert os.strerror(code) in reader.error("limit", "open", name="a").message
    assert peer.call("leases")["mapped"] and not reader.segments
    assert reader.open_object("a").read() == b"a"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
# RELIABILITY.md: The kernel says no 1
def test_a_tier_without_a_descriptor(daemon_factory, shim, directory, code):
    """Content in a file that cannot be opened now is not lost; content that cannot be copied there stays."""
    os.mkdir(f"{directory}/tier")
    daemon = daemon_factory("--tier", f"disk:256M:{directory}/tier", env=shim.environment())
    peer = daemon.connect()
    for name, size in (("large", 3 * MIB), ("small", 1000)):
        peer.put(name, name.encode() * (size // len(name)))
        shim.fail("openat", code)
        assert os.strerror(code) in peer.error("device", "move", name=name).message
        peer.call("move", name=name)
        shim.fail("openat", code)
        assert os.strerror(code) in peer.error("device", "open", name=name).message
        assert shim.failed("openat") == 1
        assert peer.open_object(name).read() == name.encode() * (size // len(name))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM,
                                  errno.ECONNABORTED, errno.EINTR])
# RELIABILITY.md: The kernel says no 1
def test_accepting_fails(shimmed, code):
    """New clients are turned away or served a little later; connected ones notice nothing."""
    peer = shimmed.connect()
    peer.put("a", b"a")
    shimmed.shim.fail("accept", code, count=3)
    late = []
    while shimmed.shim.failed("accept") < 3:
        with contextlib.suppress(OSError):
            late.append(shimmed.connect())
        assert peer.open_object("a").read() == b"a"
    assert shimmed.connect().open_object("a").read() == b"a"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
# RELIABILITY.md: The kernel says no 1
def test_a_client_without_a_descriptor_is_told_why(shimmed, code):
    """By one line, before the close, if no session has just ended and left one."""
    shimmed.connect().call("stats")
    shimmed.shim.fail("accept", code)
    late = shimmed.connect()
    error = late.recv_message()["error"]
    assert (error["data"]["kind"], error["data"]["limit"]) == ("limit", "open_files"), error
    late.expect_closed()
    assert shimmed.connect().call("stats")


@pytest.mark.parametrize("call", ["receive", "send"])
# RELIABILITY.md: The kernel says no 4
def test_interrupted_receiving_and_sending(shimmed, call):
    peer = shimmed.connect()
    failed = 0
    for skip in range(20):
        shimmed.shim.fail(call, errno.EINTR, count=3, skip=skip)
        everyday(peer)
        failed += shimmed.shim.failed(call)
    assert failed > 20


# RELIABILITY.md: The disk 3
def test_a_full_disk(daemon_factory, shim, directory):
    """Writing to the tier fails: what may be dropped is, which is told; the rest stays, and is whole."""
    tier = os.path.join(directory, "tier")
    os.mkdir(tier)
    daemon = daemon_factory("--tier", f"disk:64M:{tier}", device="host:16M", env=shim.environment())
    peer = daemon.connect()
    peer.put("b", b"b" * (6 * MIB))
    peer.put("a", b"a" * (6 * MIB), evict="drop")
    peer.unmap()
    watch = daemon.connect()
    watch.call("watch", kinds=["evicted"])
    shim.fail("pwrite", errno.ENOSPC, count=1 << 40)
    peer.put("c", b"c" * (6 * MIB), wait_ms=10000)
    assert shim.failed("pwrite") > 0
    assert watch.events(1)[0][:2] == ("evicted", "a")
    peer.unmap()
    for name in ("b", "c"):
        opened = peer.open_object(name)
        assert opened.read() == name.encode() * (6 * MIB)
        opened.release()


# ---- a byte at a time ---------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
# RELIABILITY.md: The kernel says no 4
def test_short_reads_and_writes(shimmed, most):
    peer = shimmed.connect()
    shimmed.shim.most(most)
    everyday(peer)
    assert shimmed.connect().call("hello", protocol=1)["limits"]


# RELIABILITY.md: The kernel says no 5
def test_a_socket_with_hardly_any_buffer(shimmed):
    """Pipelined replies that are far larger than the buffer, to a client that reads slowly."""
    shimmed.shim.send_buffer(1)
    peer = shimmed.connect()
    everyday(peer)
    ids = [peer.request("describe") for _ in range(20)]
    other = shimmed.connect()
    everyday(other, "other")
    answers = [peer.reply(ident) for ident in ids]
    assert all(answer == answers[0] for answer in answers)


# RELIABILITY.md: The kernel says no 4
def test_the_command_line_a_byte_at_a_time(daemon, shim):
    """The library reads and writes as little at a time, too."""
    needs("gpubufctl")
    shim.most(1)
    put = shim.run(CTL, "--socket", daemon.path, "put", "film", WEATHER)
    assert put.returncode == 0, put.stderr
    got = shim.run(CTL, "--socket", daemon.path, "get", "film", "--format", "csv")
    shim.most(0)
    plain = shim.run(CTL, "--socket", daemon.path, "get", "film", "--format", "csv")
    assert got.returncode == 0 and got.stdout == plain.stdout and got.stdout.count(b"\n") > 100


# ---- signals ------------------------------------------------------------------------------------


# RELIABILITY.md: The kernel says no 4
def test_a_storm_of_signals(daemon_factory, shim):
    """Every call that can be interrupted is, on both sides."""
    needs("gpubufctl")
    daemon = daemon_factory(env=shim.environment(alarm_us=200))
    for i in range(10):
        everyday(daemon.connect(), f"storm{i}")
    put = shim.run(CTL, "--socket", daemon.path, "put", "film", WEATHER, alarm_us=200)
    assert put.returncode == 0, put.stderr
    got = shim.run(CTL, "--socket", daemon.path, "get", "film", "--format", "csv", alarm_us=200)
    assert got.returncode == 0, got.stderr
    plain = shim.run(CTL, "--socket", daemon.path, "get", "film", "--format", "csv")
    assert got.stdout == plain.stdout


def test_a_daemon_that_does_not_hand_over_serves_on(supervised, shim):  # noqa: F811
    """Its supervisor kills none that refuses, which would cost objects; here it says why it kills one."""
    daemon = supervised("--watchdog", "3000", env=shim.environment())
    before, peer = daemon.child, daemon.connect()
    shim.fail("pwrite", errno.ENOSPC, 1 << 40)
    peer.put("a")  # which no journal has
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: "handover refused" in daemon.stderr())
    os.kill(before, signal.SIGSTOP)
    assert daemon.wait_for('daemon killed why="(.*)"')[1] == "no sign of life"


# RELIABILITY.md: Time 2
def test_a_daemon_that_is_stopped_again_and_again(daemon):
    """SIGSTOP and SIGCONT at any moment: all is as if nothing had been."""
    over = threading.Event()

    def disturb():
        while not over.wait(0.002):
            daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(0.001)
            daemon.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for i in range(20):
            everyday(daemon.connect(), f"stop{i}")
    finally:
        over.set()
        thread.join()
    assert daemon.connect().names() == []


# RELIABILITY.md: Time 2
def test_a_stopped_daemon_goes_on(daemon, peer):
    """Requests that came while it was stopped are served, and waits that ended then end."""
    for _ in range(5):  # it is stopped before the wait has ended, unless this machine is busy
        wait = peer.request("open", name="none", wait_ms=3000)
        peer.wait_until_read()
        daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)
        if not select.select([peer.socket], [], [], 0)[0]:
            break
        daemon.process.send_signal(signal.SIGCONT)
        with pytest.raises(RpcError):
            peer.reply(wait)
    put = peer.request("create", name="a", layout=bytes_layout(1))
    assert not select.select([peer.socket], [], [], 3.2)[0]  # its clock goes on
    daemon.process.send_signal(signal.SIGCONT)
    with pytest.raises(RpcError) as error:
        peer.reply(wait)
    assert error.value.kind == "timeout"
    assert peer.reply(put)["lease"]


# RELIABILITY.md: Clients that end 6
def test_a_stopped_client_is_in_nobodys_way(daemon, child):
    """A stopped client keeps its lease, its watch fills up, and the other clients are served."""
    peer = daemon.connect()
    peer.put("held", b"held")

    def work(mine):
        mine.call("watch")
        mine.open_object("held")
        mine.request("open", name="later", wait_ms=60000)
        return True

    one = child(daemon, work)
    os.kill(one.pid, signal.SIGSTOP)
    for i in range(500):
        peer.put("many", bytes([i % 256]), replace=True)
    assert [lease["name"] for lease in peer.call("leases", name="held")["leases"]] == ["held"]
    peer.put("later", b"x")
    assert len(peer.call("leases", name="later")["leases"]) == 1
    one.kill()
    assert peer.call("leases")["leases"] == []


# ---- descriptors that do not arrive -------------------------------------------------------------


# RELIABILITY.md: The kernel says no 2
def test_the_daemon_loses_descriptors(daemon_factory):
    """The daemon has no room for a message's descriptors: that session ends, the others go on."""

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    daemon = daemon_factory(preexec_fn=few)
    peer = daemon.connect()
    peer.put("a", b"a")
    hoarders = []
    ended = 0
    for _ in range(10):
        one = daemon.connect()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.send_raw(b"{", [0] * 16)
            one.wait_until_read()
        hoarders.append(one)
        assert peer.call("stat", name="a")
    for one in hoarders:
        with contextlib.suppress(Closed, OSError):
            one.socket.setblocking(False)
            ended += one.socket.recv(1) == b""
    assert ended > 0
    for one in hoarders:
        one.close()

    def is_read():
        """The descriptors that the others sent are charged until processes of the daemon's have closed them."""
        with daemon.connect() as other:
            try:
                return other.open_object("a").read() == b"a"
            except RpcError as error:
                assert error.kind == "limit", error
                return False

    wait_until(is_read)


# RELIABILITY.md: The kernel says no 2
def test_a_client_without_room_for_a_descriptor(daemon, shim):
    """MSG_CTRUNC in the library: an error, no crash, and nothing left at the daemon."""
    needs("gpubufctl")
    peer = daemon.connect()
    peer.put("a", b"x" * 1000)
    outcomes = set()
    for files in range(4, 24):
        done = shim.run(CTL, "--socket", daemon.path, "get", "a", "--format", "raw",
                        preexec_fn=lambda n=files: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        outcomes.add(done.returncode)
        assert done.returncode in (0, 1, 3), (done.returncode, done.stderr)
        assert (done.stdout == b"x" * 1000) == (done.returncode == 0)
        assert (done.returncode == 0) or done.stderr
        assert [lease for lease in peer.call("leases")["leases"]] == []
    assert 0 in outcomes and len(outcomes) > 1


# ---- the wall clock jumps -----------------------------------------------------------------------


YEAR = 365 * 86400


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
# RELIABILITY.md: Time 1
def test_the_wall_clock_jumps(shimmed, jump):
    """Times to live, waits and half lines know the monotonic clock alone."""
    peer = shimmed.connect()
    before = peer.call("stat", name="a")["object"]["created_ms"] if peer.put("a") else 0
    peer.put("short", ttl_ms=300)
    peer.put("long", ttl_ms=3600000)
    started = time.monotonic()
    wait = peer.request("open", name="none", wait_ms=1000)
    half = shimmed.connect()
    half.send_raw(b'{"jsonrpc":')
    half.wait_until_read()
    shimmed.shim.jump(jump)
    peer.put("b")
    after = peer.call("stat", name="b")["object"]["created_ms"]
    assert abs(after - before - jump * 1000) < 60000  # it is the wall clock that jumped
    with pytest.raises(RpcError) as error:
        peer.reply(wait)
    assert error.value.kind == "timeout" and time.monotonic() - started > 0.95
    while "short" in peer.names():
        time.sleep(0.01)
        assert time.monotonic() - started < DEADLINE
    assert "long" in peer.names()
    half.send_raw(b'"2.0","id":1,"method":"stats"}\n')
    assert half.recv_message()["result"]
