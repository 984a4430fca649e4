"""Under a service manager: told when ready, alive and stopping, and given a socket to listen on."""

import os
import select
import signal
import socket
import subprocess
import time

import pytest

from conftest import GPUBUFD, SANITIZER, test_device
from device import MIB
from manager import Manager, handed_over
from peer import DEADLINE, Peer, bytes_layout, wait_until


@pytest.fixture
def manager(directory):
    one = Manager(f"{directory}/notify")
    yield one
    one.close()


def test_it_is_told(daemon_factory, manager):
    daemon = daemon_factory(env=manager.environment())
    assert manager.wait_for("STATUS") == f"listening on {daemon.path}"
    assert manager.wait_for("READY") == "1"
    daemon.connect().put("a")
    assert manager.wait_for("FDNAME") == "s1", "the segment is given to be kept"
    assert manager.receive(0) is None, "without a watchdog there is nothing more to say"
    daemon.stop()
    assert manager.wait_for("STOPPING") == "1"


def test_signs_of_life(daemon_factory, manager):
    begun = time.monotonic()
    daemon = daemon_factory(env=manager.environment(watchdog_ms=300))
    manager.wait_for("READY")
    for _ in range(12):
        manager.wait_for("WATCHDOG")
    assert time.monotonic() - begun > 0.6, "they are not sent for each turn of the loop"
    peer = daemon.connect()
    peer.put("a", b"x" * MIB)
    while not manager.wait_for("STATUS").startswith("1 objects, 1 sessions, 1 of 64 MiB"):
        pass


# RELIABILITY.md: Time 7
def test_no_sign_of_life_from_a_stopped_daemon(daemon_factory, manager):
    daemon = daemon_factory(env=manager.environment(watchdog_ms=300))
    manager.wait_for("WATCHDOG")
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)
    manager.drain()
    assert manager.receive(0.5) is None
    daemon.process.send_signal(signal.SIGCONT)
    manager.wait_for("WATCHDOG")


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has no driver that could hang")
# RELIABILITY.md: Time 7
def test_no_sign_of_life_while_the_driver_hangs(daemon_factory, manager, directory):
    """The loop turns, but the GPU's thread does not come back."""
    gate = f"{directory}/slow"
    env = manager.environment(watchdog_ms=1500) | {"FAKECUDA_DELAY": f"cuMemCreate:60000@{gate}"}
    daemon = daemon_factory(env=env)
    writer, other = daemon.connect(), daemon.connect()
    with open(gate, "w", encoding="ascii"):
        pass
    ident = writer.request("create", name="b", layout=bytes_layout(20 * MIB))
    writer.wait_until_read()
    end = time.monotonic() + DEADLINE
    while "driver hangs" not in daemon.stderr():
        assert time.monotonic() < end
        other.call("stats")
    manager.drain()
    assert manager.receive(1) is None and ident not in writer.replies
    os.unlink(gate)
    assert writer.reply(ident)["lease"]
    manager.wait_for("WATCHDOG")
    assert daemon.stderr().count("driver hangs") == 1
    assert daemon.stderr().count("driver responds again") == 1


def test_without_its_manager(daemon_factory, manager):
    """It serves on when nobody listens to it any more, and tells whoever listens there later what was missed."""
    daemon = daemon_factory(env=manager.environment(watchdog_ms=30))
    manager.wait_for("READY")
    manager.close()
    os.unlink(manager.path)
    peer = daemon.connect()
    assert peer.put("a")
    wait_until(lambda: peer.call("stats")["handover"] == "lost")
    manager.__init__(manager.path)
    assert manager.wait_for("FDNAME") == "s1"
    wait_until(lambda: peer.call("stats")["handover"] == "kept")


def test_a_manager_that_is_not_there(directory):
    done = subprocess.run([str(GPUBUFD), "--socket", f"{directory}/s"], capture_output=True, text=True,
                          env={**os.environ, "NOTIFY_SOCKET": f"{directory}/nowhere"}, check=False,
                          timeout=DEADLINE)
    assert done.returncode == 2
    assert "NOTIFY_SOCKET" in done.stderr and done.stderr.count("\n") == 1


# ---- a socket that the manager listens on ------------------------------------------------------


def listening(path, kind=socket.SOCK_STREAM, listens=True):
    one = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    one.bind(path)
    if listens:
        one.listen()
    return one


def start(fds, *options, **env):
    argv = [str(GPUBUFD), "--device", test_device.OPTION, *options]
    return subprocess.Popen(handed_over(fds, argv), env=test_device.environment(**env),
                            pass_fds=[fd for _, fd in fds], stderr=subprocess.PIPE, text=True)


def stop(process):
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and not SANITIZER.search(text), text
    return text


@pytest.mark.parametrize("name", ["gpubufd.socket", "listen"])
def test_a_socket_that_was_handed_over(directory, manager, name):
    """A client that connected before the daemon was there is served; the socket stays for the next daemon."""
    path = f"{directory}/s"
    with listening(path) as listener:
        for _ in range(2):
            with Peer(path) as peer:
                ident = peer.request("hello", protocol=1)
                process = start([(name, listener.fileno())], **manager.environment())
                assert manager.wait_for("STATUS") == f"listening on {path}"
                assert peer.reply(ident)["protocol"] == 1
                peer.put("a", b"x")
            assert path in stop(process)
            assert os.path.exists(path) and not os.path.exists(f"{path}.lock")


def test_the_socket_is_said_twice(directory, manager):
    """The same path is fine; another one is a mistake that is told."""
    path = f"{directory}/s"
    with listening(path) as listener:
        fds = [("gpubufd.socket", listener.fileno())]
        process = start(fds, "--socket", path, **manager.environment())
        manager.wait_for("READY")
        stop(process)
        process = start(fds, "--socket", f"{directory}/other")
        assert f"{directory}/other" in process.communicate(timeout=DEADLINE)[1]
        assert process.returncode == 2 and not os.path.exists(f"{directory}/other")


@pytest.mark.parametrize("kind,listens", [(socket.SOCK_STREAM, False), (socket.SOCK_DGRAM, False),
                                          (socket.SOCK_SEQPACKET, True)])
def test_a_socket_of_the_wrong_kind(directory, kind, listens):
    with listening(f"{directory}/s", kind, listens) as listener:
        process = start([("listen", listener.fileno())])
        assert "no listening unix stream socket" in process.communicate(timeout=DEADLINE)[1]
        assert process.returncode == 2


def test_other_descriptors_are_closed(directory, manager):
    """Unknown descriptors are neither kept nor handed over again."""
    read, write = os.pipe()
    with listening(f"{directory}/s") as listener:
        process = start([("what", write), ("listen", listener.fileno())], **manager.environment())
        os.close(write)
        assert manager.receive()[0] == {"FDSTOREREMOVE": "1", "FDNAME": "what"}
        assert manager.receive()[0]["FDNAME"] == "journal-1"
        assert select.select([read], [], [], DEADLINE)[0] and os.read(read, 1) == b""
        os.close(read)
        manager.wait_for("READY")
        stop(process)


def test_a_slow_manager(directory, manager):
    """Its queue is full before it is told of all: the daemon waits, and leaves nothing out."""
    read, write = os.pipe()
    names = [f"foreign-{i}" for i in range(40)]
    with listening(f"{directory}/s") as listener:
        fds = [("listen", listener.fileno())] + [(name, os.dup(write)) for name in names]
        process = start(fds, **manager.environment())
        for fd in [write, *(fd for _, fd in fds[1:])]:
            os.close(fd)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.connect(manager.path)
            with pytest.raises(BlockingIOError):  # as soon as it is full
                while process.poll() is None:
                    if not select.select([], [other], [], 0)[1]:
                        other.send(b"X=1")
        removed = []
        while len(removed) < len(names):
            message = manager.receive()[0]
            removed += [message["FDNAME"]] if "FDSTOREREMOVE" in message else []
        assert removed == names
        manager.wait_for("READY")
        stop(process)
    os.close(read)
