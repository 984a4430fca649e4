"""Machines of a cluster on this one: each a daemon and a gpubufd-peer, on lanes of the test's own.

A lane is a TCP proxy before a peer: its port is known before the peer runs, and the test may look at,
hold, spoil and cut what goes through.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading

import device as test_device
from device import BUILD
from peer import DEADLINE
from program import Program

PEER = BUILD / "bin" / "gpubufd-peer"
PATIENT = "--patience-ms=30000"  # a process that waits for a processor is no machine that stands still
QUERY = "--query={directory}/peer.sock"  # for Cluster.start() and run(): it answers an Asker


# ---- lanes ----------------------------------------------------------------------------------------


class Lane:
    """A relay to the port `target`, with a port of its own. `towards` counts the bytes of answers,
    `turns` the answers that follow a request: round trips, where one waits for the other. At `hold_at` bytes it waits
    for release(); `spoil_at`: one bit of that byte is another."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.target = None
        self.towards = self.turns = 0
        self.asked = False
        self.connections = self.refused = 0
        self.hold_at = self.spoil_at = None
        self.released = threading.Event()
        self.held = threading.Event()
        self.open = True
        self.pairs = []
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                if not self.open or self.target is None:
                    raise OSError("cut")
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                self.refused += 1
                near.close()
                continue
            with self.lock:
                self.connections += 1
                self.pairs += [near, far]
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source, sink, answers):
        try:
            while data := source.recv(1 << 16):
                self.turns += answers and self.asked
                self.asked = not answers
                if answers:
                    data = self._look(data)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _look(self, data):
        before, self.towards = self.towards, self.towards + len(data)
        if self.spoil_at is not None and before <= self.spoil_at < self.towards:
            data = bytearray(data)
            data[self.spoil_at - before] ^= 1
        if self.hold_at is not None and self.towards >= self.hold_at:
            self.held.set()
            self.released.wait()
        return data

    def hold(self, count):
        """Holds everything back after `count` more bytes."""
        self.released.clear()
        self.held.clear()
        self.hold_at = self.towards + count

    def wait_held(self):
        assert self.held.wait(DEADLINE), "it was never reached"

    def release(self):
        self.hold_at = None
        self.released.set()

    def cut(self):
        """Connections end, and no new one is made; held bytes are lost."""
        self.open = False
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for end in pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.release()

    def close(self):
        self.cut()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


# ---- machines -------------------------------------------------------------------------------------


class PeerProcess(Program):
    """A running gpubufd-peer. `inside`: what its command begins with."""

    def __init__(self, directory, daemon, authority, certificate, options, listen="127.0.0.1:0", inside=(), env=()):
        self.stderr_path = os.path.join(directory, "peer-stderr")
        with open(self.stderr_path, "ab") as stderr:
            self.process = subprocess.Popen(
                [*inside, str(PEER), "--socket", daemon.path, "--listen", listen, "--authority", authority,
                 "--certificate", certificate[0], "--key", certificate[1], *map(str, options)],
                stdin=subprocess.DEVNULL, stderr=stderr, env=test_device.environment(**dict(env)),
            )
        self.port = int(self.wait_for(r'listening\b.*\bport"?[=:](\d+)').group(1))


class Machine:
    def __init__(self, node, daemon, lane):
        self.node, self.daemon, self.lane, self.peer = node, daemon, lane, None

    def connect(self):
        return self.daemon.connect()


def path_of(machine):
    """Where its peer answers questions."""
    return os.path.join(machine.daemon.directory, "peer.sock")


class Asker:
    """A connection to a peer's socket."""

    def __init__(self, machine):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(path_of(machine))
        self.file = self.socket.makefile("rb")

    def line(self, text):
        self.socket.sendall(text + b"\n")
        return json.loads(self.file.readline())

    def ask(self, method, **params):
        return self.line(json.dumps({"method": method, **params}).encode())

    def refused(self, text):
        error = self.line(text)["error"]
        assert error["message"]
        return error["kind"]

    def figure(self, name):
        """One without labels, of its metrics."""
        (found,) = (family for family in self.ask("metrics")["families"] if family["name"] == f"gpubufd_peer_{name}")
        return found["samples"][0]["value"]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()
        self.socket.close()


class Cluster:
    """cluster = Cluster(...); a, b = cluster.start("a", "b")"""

    def __init__(self, daemon_factory, authority):
        self.daemon_factory, self.authority, self.machines = daemon_factory, authority, {}

    def start(self, *nodes, options=(), certificates=None):
        """Machines that know each other. `certificates`: of nodes that are to have others than their own."""
        for node in nodes:
            self.machines[node] = Machine(node, self.daemon_factory(), Lane())
        for node in nodes:
            self.run(self.machines[node], options, (certificates or {}).get(node))
        return [self.machines[node] for node in nodes]

    def run(self, machine, options=(), certificate=None):
        """`options` may name the directory of the machine's daemon as "{directory}"."""
        others = [f"--peer={other.node}=127.0.0.1:{other.lane.port}" for other in self.machines.values()
                  if other is not machine]
        if test_device.ON_GPU:
            others.append("--gpu=cuda:0")
        machine.peer = PeerProcess(
            machine.daemon.directory, machine.daemon, self.authority.certificate,
            certificate or self.authority.sign(machine.node),
            [PATIENT, *others, *(str(option).format(directory=machine.daemon.directory) for option in options)],
        )
        machine.lane.target = machine.peer.port

    def stop(self):
        try:
            for machine in self.machines.values():
                if machine.peer and machine.peer.process.returncode is None:
                    machine.peer.stop()
        finally:
            for machine in self.machines.values():
                machine.lane.close()
                if machine.peer:
                    machine.peer.kill()
