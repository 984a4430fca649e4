"""Daemons that another follows: `Supervised`, which its supervisor starts again, and `Kept`, which the test
does; and what tests of more than one file put into them."""

import contextlib
import os
import signal
import subprocess
import time

import pytest

import device
from conftest import GPUBUFD, Daemon
from manager import Manager, handed_over
from peer import DEADLINE, Closed, Peer, RpcError, wait_until


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def name_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return None


def daemons_of(pid):
    """The daemon among a supervisor's children, if it runs; the others are what an earlier one left."""
    return [child for child in children_of(pid) if not (name_of(child) or "gpubufd-").startswith("gpubufd-")]


def journals(pid):
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            if "gpubufd-journal" in os.readlink(f"/proc/{pid}/fd/{entry}"):
                found.append(os.stat(f"/proc/{pid}/fd/{entry}").st_size)
        except FileNotFoundError:
            pass
    return found


class Supervised(Daemon):
    """A daemon with its supervisor, which `pid` is."""

    def __init__(self, directory, options=(), **settings):
        super().__init__(directory, ["--supervise", *options], **settings)

    def _baseline(self):
        """The daemon serves when it has sent the journal; its supervisor may not have got it yet."""
        wait_until(lambda: journals(self.pid))
        return super()._baseline()

    @property
    def child(self):
        """The daemon's own process, once there is one."""
        def is_there():
            assert self.process.poll() is None, self.stderr()
            return daemons_of(self.pid)

        wait_until(is_there)
        return daemons_of(self.pid)[0]

    def kill(self):
        """The daemon, too: it would serve on without its supervisor."""
        children = daemons_of(self.process.pid) if self.process.poll() is None else []
        super().kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def crash(self):
        """kill -9; returns when another serves."""
        before = self.child
        os.kill(before, signal.SIGKILL)
        self.wait_for_another(before)

    def wait_for_another(self, before):
        end = time.monotonic() + DEADLINE
        while daemons_of(self.pid) in ([], [before]):
            assert time.monotonic() < end, self.stderr()
            time.sleep(0.002)
        with Peer(self.path) as peer:  # waits in the queue of the socket, which is the supervisor's
            peer.call("stats")


@pytest.fixture
def supervised(directory, daemon_factory):
    """start(*options): killed after the test, and before `daemon_factory` looks whether GPU memory is left."""
    daemons = []

    def start(*options, **settings):
        daemons.append(Supervised(directory, options, **settings))
        return daemons[-1]

    yield start
    for one in daemons:
        one.close_peers()
        one.kill()
        text = one.stderr()
        assert "Sanitizer" not in text and "runtime error:" not in text, text[-4000:]


@pytest.fixture
def releasing(daemon_factory):
    """A daemon. This process writes, and takes part in streams, for as long as it lives and has not released that, so
    it is released after the test."""
    one = daemon_factory()
    yield one
    for peer in one.peers:
        with contextlib.suppress(RpcError, Closed):  # leases of the other peers are none of its own
            leases = [held["lease"] for held in peer.call("leases")["leases"] if held["access"] == "rw" or "stream" in held]
            peer.call("release", leases=leases)


class Kept:
    """A daemon whose manager is the test: `fds` is what the next one is handed, [(name, fd)…]."""

    def __init__(self, directory):
        self.directory, self.fds, self.process, self.extended = directory, [], None, 0
        self.manager = Manager(os.path.join(directory, "notify"))

    def launch(self, *options, watchdog_ms=None):
        argv = [str(GPUBUFD), "--socket", f"{self.directory}/s", "--device", "host:64M", *options]
        self.process = subprocess.Popen(handed_over(self.fds, argv),
                                        pass_fds=[fd for _, fd in self.fds], stderr=subprocess.PIPE,
                                        env={**os.environ, **self.manager.environment(watchdog_ms)})

    def start(self, *options, **settings):
        """A session on the next daemon, once that is ready; `extended` is how often it asked to be waited for."""
        self.launch(*options, **settings)
        self.extended = 0
        while not self._act_on(self.manager.receive()):
            pass
        return Peer(f"{self.directory}/s")

    def _act_on(self, told):
        """Acts on a message of the daemon; True: it is ready."""
        assert told, "no word in time"
        message, fds = told
        name = message.get("FDNAME")
        self.extended += "EXTEND_TIMEOUT_USEC" in message
        if "FDSTORE" in message:
            self.fds.append((name, fds[0]))
        if "FDSTOREREMOVE" in message:
            for _, fd in [one for one in self.fds if one[0] == name]:
                os.close(fd)
            self.fds = [one for one in self.fds if one[0] != name]
        return "READY" in message

    def crash(self):
        """kill -9; returns the messages that the daemon had sent."""
        self.process.kill()
        _, stderr = self.process.communicate(timeout=DEADLINE)
        while told := self.manager.receive(0):
            self._act_on(told)
        return stderr.decode()

    def pages(self):
        """Those of streams, in the order in which they were made."""
        return [fd for name, fd in self.fds if name.startswith("s") and os.fstat(fd).st_size == 16384]

    def close(self):
        if self.process and self.process.poll() is None:
            self.crash()
        for _, fd in self.fds:
            os.close(fd)
        self.manager.close()


def register(peer, name, data, **params):
    """Memory of the caller's own, which is adopted and so outlives both."""
    memory, count = device.own_memory(data)
    layout = {"kind": "bytes", "bytes": len(data),
              "data": {"handle": 0, "offset": 0, "bytes": len(data)}}
    try:
        peer.call("register", fds=[memory], name=name, layout=layout, handles=[device.handle(count)], **params)
    finally:
        os.close(memory)


def segments_of(peer, name):
    layout = peer.call("stat", name=name)["object"]["layout"]
    return {layout["data"]["segment"]} if layout["data"]["bytes"] else set()
