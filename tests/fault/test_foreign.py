"""Descriptors that block whoever closes them hold up nobody but their sender: docs/decisions/0006.

A close of a socket that lingers lasts LINGER_S here, one of a file in user space until it is let go. A good
client's calls have a third of the first: far more than a busy machine takes, far less than one close.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import time

import pytest

from conftest import Daemon
from foreign import LINGER_S, FileSystem, Lingering, Nested, OfFileSystem, send
from peer import DEADLINE, Closed, bytes_layout, wait_until
from test_hostile import served

WORST_S = LINGER_S / 3


@pytest.fixture
def file_system(directory):
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    try:
        one = FileSystem(directory)
    except OSError as error:
        pytest.skip(f"this kernel mounts no file system in user space: {error}")
    yield one
    one.end()


@pytest.fixture(params=["lingers", "nested", "in user space"])
def trap(request):
    """trap(): a new descriptor that blocks."""
    if request.param == "in user space":
        file_system = request.getfixturevalue("file_system")
        return lambda: OfFileSystem(file_system)
    return Lingering if request.param == "lingers" else Nested


class Good:
    """A client that asks one thing after another, and notes its worst."""

    def __init__(self, daemon, ask=served):
        self.peer = daemon.connect()
        self.ask = ask
        self.worst = 0
        self.calls = 0

    def call(self):
        begun = time.monotonic()
        self.ask(self.peer)
        self.worst = max(self.worst, time.monotonic() - begun)
        self.calls += 1

    def call_until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            self.call()
            assert self.worst < WORST_S, self.worst
            assert time.monotonic() < end, "it does not come to that"
            time.sleep(0.001)
        self.call()
        return self.worst


@contextlib.contextmanager
def stopped(daemon):
    """The daemon is stopped: messages reach it together later, and it has the last references to their descriptors."""
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def request(method, count, **params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params,
                       "fds": count}).encode() + b"\n"


def give(target, line, *traps):
    """Sends a line with traps, so that the daemon has the last reference to each before it can close it."""
    send(target, line[:1], [one.fileno() for one in traps])
    for one in traps:
        one.drop()
    target.sendall(line[1:])


REGISTER = {"name": "r", "layout": {**bytes_layout(16), "data": {"handle": 0, "offset": 0, "bytes": 16}},
            "handles": [{"kind": "memfd", "fd": 0, "bytes": 4096, "device": "host"}]}


def hang_up_behind_lines(bad, fd):
    bad.sendall(request("stats", 0) * 200)
    send(bad, b"{", [fd])
    bad.close()


def unread_and_hung_up(bad, fd):
    """The session ends by the first message; the second is never received."""
    send(bad, b"{\n", [0])
    send(bad, b"{", [fd])
    bad.close()


def out_of_band(bad, fd):
    send(bad, b"{", [fd], socket.MSG_OOB)
    bad.sendall(b" \n")


PATHS = {
    "register": lambda bad, fd: send(bad, request("register", 1, **REGISTER), [fd]),
    "register, sixteen": lambda bad, fd: send(bad, request("register", 16, **REGISTER), [fd] * 16),
    "no such method": lambda bad, fd: send(bad, request("nope", 1), [fd]),
    "a method that takes none": lambda bad, fd: send(bad, request("stats", 1), [fd]),
    "not JSON": lambda bad, fd: send(bad, b"{]\n", [fd]),
    "no message takes it": lambda bad, fd: send(bad, request("stats", 0), [fd]),
    "half a line, then gone": lambda bad, fd: (send(bad, b"{", [fd]), bad.close()),
    "behind lines, then gone": hang_up_behind_lines,
    "never received": unread_and_hung_up,
    "too many": lambda bad, fd: send(bad, b"{", [fd] * 100),
    "as many as the kernel lets through": lambda bad, fd: send(bad, b"{", [fd] * 253),
    "out of band": out_of_band,
}


@pytest.mark.parametrize("path", PATHS)
# RELIABILITY.md: Hostile clients 3
def test_closed_elsewhere(daemon, trap, path):
    good, bad = Good(daemon), socket.socket(socket.AF_UNIX)
    bad.connect(daemon.path)
    good.call()
    before = good.peer.call("stats")["sessions"]
    assert before == 2
    one = trap()
    with stopped(daemon):
        PATHS[path](bad, one.fileno())
        one.drop()
    if bad.fileno() >= 0:
        bad.settimeout(WORST_S)
        with contextlib.suppress(ConnectionResetError):
            bad.recv(65536)  # an answer, or the end
        bad.close()
    assert good.call_until(lambda: good.peer.call("stats")["sessions"] == 1) < WORST_S


# RELIABILITY.md: Hostile clients 3
def test_held_until_the_line_is_late(daemon_factory, trap):
    daemon = daemon_factory("--limit", "half_line_ms=200")
    good, bad = Good(daemon), daemon.connect()
    give(bad.socket, b"{ ", trap())
    assert good.call_until(lambda: good.peer.call("stats")["sessions"] == 1) < WORST_S


# RELIABILITY.md: Hostile clients 3
def test_held_by_a_request_that_waits(daemon_factory, trap):
    """A request waits for space with its descriptors, and ends with its session."""
    daemon = daemon_factory(device="host:4M")
    good, bad = Good(daemon, lambda peer: peer.call("stats")), daemon.connect()
    lease = good.peer.create("full", bytes_layout(1 << 20))
    handles = [{"kind": "memfd", "fd": 0, "bytes": 4 << 20, "device": "host"}]
    give(bad.socket, request("register", 1, **{**REGISTER, "handles": handles, "wait_ms": 60000}), trap())
    bad.wait_until_read()
    good.call()
    bad.close()
    worst = good.call_until(lambda: good.peer.call("stats")["sessions"] == 1)
    good.peer.call("release", lease=lease["lease"])
    assert worst < WORST_S


# RELIABILITY.md: Hostile clients 3
def test_turned_away(daemon_factory, trap):
    daemon = daemon_factory("--limit", "sessions=1")
    good = Good(daemon)
    good.call()
    with stopped(daemon):
        for _ in range(5):
            bad, one = socket.socket(socket.AF_UNIX), trap()
            bad.connect(daemon.path)
            send(bad, b"{", [one.fileno()])
            one.drop()
            bad.close()
        after = socket.socket(socket.AF_UNIX)  # turned away after the others
        after.connect(daemon.path)
        after.setblocking(False)

    def answered():
        try:
            return b'"limit"' in after.recv(4096)
        except BlockingIOError:
            return False

    assert good.call_until(answered) < WORST_S
    assert daemon.stderr().count("session turned away") == 1  # of one kind, in a minute
    after.close()


# RELIABILITY.md: Hostile clients 3
def test_it_stops_in_time(daemon_factory, trap):
    """Also with connections that nobody has accepted."""
    daemon = daemon_factory()
    good, bad = Good(daemon), daemon.connect()
    good.call()
    good.peer.close()
    give(bad.socket, request("nope", 1), trap())
    bad.wait_until_read()
    with stopped(daemon):
        last, one = socket.socket(socket.AF_UNIX), trap()
        last.connect(daemon.path)
        send(last, b"{", [one.fileno()])
        one.drop()
        last.close()
        daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(WORST_S) == 0


# RELIABILITY.md: Hostile clients 3
def test_killed_in_the_middle(daemon_factory, directory, file_system):
    """A close that cannot be ended keeps neither connections nor the lock of a daemon that was killed."""
    daemon = daemon_factory()
    good, bad = Good(daemon), daemon.connect()
    good.call()
    give(bad.socket, request("nope", 1), OfFileSystem(file_system))
    file_system.wait_for_held(1, WORST_S)
    good.call()
    daemon.process.kill()
    daemon.process.wait(WORST_S)
    with pytest.raises((Closed, OSError)):
        good.peer.recv_message(WORST_S)
    again = Daemon(daemon.directory, socket_path=daemon.path)
    try:
        with again.connect() as peer:
            served(peer)
            peer.unmap()
            peer.call("delete", name="served")
        again.stop()
    finally:
        again.kill()
    assert again.process.returncode == 0


# ---- among users --------------------------------------------------------------------------------


def in_the_daemon(daemon, target):
    """The number of these descriptors in the daemon."""
    count = 0
    for entry in pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(entry).startswith(target)
    return count


@pytest.mark.root
# RELIABILITY.md: Hostile clients 4
def test_stuck_closes_are_their_senders(daemon_factory, file_system):
    """Past held_fds the user is refused. Descriptors of another user are closed meanwhile."""
    daemon = daemon_factory("--limit", "held_fds=40")
    os.chmod(daemon.path, 0o666)
    good = Good(daemon)
    good.call()
    refused = 0
    for _ in range(12):
        bad = daemon.connect_as(1001, 1001)
        with contextlib.suppress(OSError):
            give(bad.socket, request("nope", 8), *(OfFileSystem(file_system) for _ in range(8)))
        good.call()
        try:
            bad.recv_message(WORST_S)
        except (Closed, OSError):
            refused += 1
    assert refused >= 6
    assert in_the_daemon(daemon, file_system.directory) <= 40 + 8
    with daemon.connect_as(1002, 1002) as other:
        for _ in range(20):
            give(other.socket, request("nope", 1), Lingering())
        good.call_until(lambda: daemon.fds()["socket"] <= daemon.baseline["socket"] + 14)
    with daemon.connect_as(1001, 1001) as bad:  # what needs no closer goes on
        bad.put("his")
    file_system.let_go()
    good.call_until(lambda: in_the_daemon(daemon, file_system.directory) == 0)
    with daemon.connect_as(1001, 1001) as bad:
        give(bad.socket, request("nope", 1), Lingering())
        answer = bad.recv_message()
    assert answer["error"]["data"]["kind"] == "method"


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def helpers(daemon):
    """Its sweeper and its closers that are alive."""
    (sweeper,) = children(daemon.pid)
    return sweeper, [pid for pid in children(sweeper)
                     if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"]


@pytest.mark.parametrize("killed", ["closers", "sweeper"])
# RELIABILITY.md: Hostile clients 5
def test_killed_closers_are_replaced(daemon, killed):
    """Nothing that is sent afterwards stays open, and the log says what has ended."""
    wait_until(lambda: len(helpers(daemon)[1]) == 8)
    sweeper, closers = helpers(daemon)
    for pid in closers if killed == "closers" else [sweeper]:
        os.kill(pid, signal.SIGKILL)
    with daemon.connect() as peer:
        for _ in range(60):
            with socket.socket(socket.AF_INET) as foreign:
                send(peer.socket, request("nope", 1), [foreign.fileno()])
            assert peer.recv_message()["error"]["data"]["kind"] == "method"
    good = Good(daemon)
    good.call_until(lambda: daemon.fds()["socket"] == daemon.baseline["socket"])
    good.call_until(lambda: children(daemon.pid) and len(helpers(daemon)[1]) == 8)
    line = "closer ended: another is started" if killed == "closers" else "sweeper ended: another is started"
    assert line in daemon.stderr()


# ---- the supervisor -----------------------------------------------------------------------------


def unix_names(pid):
    """Of the process's unix sockets, those to which others may send."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    rows = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    return sorted(row.split()[7] for row in rows if len(row.split()) > 7 and row.split()[6] in inodes)


# RELIABILITY.md: Hostile clients 3
def test_nobody_can_send_to_a_supervisor(directory):
    daemon = Daemon(directory, ["--supervise"])
    try:
        with daemon.connect() as peer:
            served(peer)
        names = set(unix_names(daemon.pid))
    finally:
        daemon.process.terminate()
        daemon.process.wait(DEADLINE)
        daemon.kill()
    assert names == {daemon.path}
