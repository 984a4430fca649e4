"""Machines of a cluster on this one: each a daemon and a gpubufd-peer, behind a lane of the test's own."""

import base64
import itertools
import json
import os
import socket
import subprocess

import pytest

import device as test_device
import etcds
from device import BUILD
from peer import DEADLINE, wait_until
from program import Program
from relay import Lane

WAIT = 60_000
SHARED = {"scope": "cluster", "mode": "0644"}
PEER = BUILD / "bin" / "gpubufd-peer"
PATIENT = "--patience-ms=30000"  # a process that waits for a processor is no machine that stands still


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
    """cluster = Cluster(...); a, b = cluster.start("a", "b"): machines that know each other by etcd, and answer an Asker."""

    def __init__(self, daemon_factory, authority, etcd):
        self.daemon_factory, self.authority, self.etcd, self.machines = daemon_factory, authority, etcd, {}
        self.marks = itertools.count(1)

    def start(self, *nodes, certificates=None, **how):
        """`certificates`: of nodes that are to have others than their own."""
        for node in nodes:
            self.machines[node] = Machine(node, self.daemon_factory(), Lane())
        for node in nodes:
            self.run(self.machines[node], certificate=(certificates or {}).get(node), **how)
        return [self.machines[node] for node in nodes]

    def add(self, node, **how):
        return self.start(node, **how)[0]

    def play(self, node, port, *names, version=7, size=4):
        """Enters a machine that a test plays into etcd, as one that has published those names."""
        self.etcd.put(f"/gpubufd/nodes/{node}", {"host": "127.0.0.1", "port": port})
        for name in names:
            self.etcd.put(f"/gpubufd/names/{name}", {"node": node, "version": version, "bytes": size, "serial": 1, "since": 1})

    def keys(self, kind):
        return [key for key in self.etcd.keys() if key.startswith(f"/gpubufd/{kind}/")]

    def revision_of(self, name):
        key = base64.b64encode(f"/gpubufd/names/{name}".encode()).decode()
        return int(self.etcd.post("kv/range", {"key": key})["kvs"][0]["mod_revision"])

    def await_copy(self, name, node):
        wait_until(lambda: any(key.startswith(f"/gpubufd/copies/{name}@") and key.endswith(f"/{node}") for key in self.etcd.keys()))

    def await_names(self, *names):
        """Until they are published."""
        wait_until(lambda: {f"/gpubufd/names/{name}" for name in names} <= set(self.etcd.keys()))

    def await_news(self, machine):
        """Until the machine knows all that is in etcd now: what is told in order."""
        mark = f"mark/{next(self.marks)}"
        self.play("mark", 1, mark)
        with Asker(machine) as asker:
            wait_until(lambda: asker.ask("list", prefix=mark).get("names"))

    def run(self, machine, options=(), certificate=None, lease=60, url=None):
        """`url`: where it reaches etcd, if not directly."""
        log = os.path.join(machine.daemon.directory, "peer-stderr")
        if os.path.exists(log):  # of a peer that ran here before
            os.unlink(log)
        machine.peer = PeerProcess(
            machine.daemon.directory, machine.daemon, self.authority.certificate,
            certificate or self.authority.sign(machine.node),
            [PATIENT, "--etcd", url or self.etcd.url, "--advertise", f"127.0.0.1:{machine.lane.port}",
             "--lease-seconds", lease, "--query", path_of(machine), *(["--gpu=cuda:0"] if test_device.ON_GPU else []),
             *options])
        machine.lane.target = ("127.0.0.1", machine.peer.port)
        machine.peer.wait_for("names of other machines received")

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


@pytest.fixture
def cluster(daemon_factory, authority, request):
    if not etcds.ETCD:
        pytest.skip("needs etcd")
    one = Cluster(daemon_factory, authority, request.getfixturevalue("etcd"))
    yield one
    one.stop()


# ---- what programs do on them -----------------------------------------------------------------------


def fetched(peer, name, wait_ms=WAIT, **params):
    opened = peer.open_object(name, wait_ms=wait_ms, **params)
    data = bytes(opened.read())
    opened.release()
    return data
