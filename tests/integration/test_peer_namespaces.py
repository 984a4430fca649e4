"""Machines with a network each. One is parted from the others for longer than its lease."""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile

import device
import etcds
import namespaces
import pytest
from certificates import Authority
from cluster import PeerProcess
from peer import RpcError, wait_until
from test_peer_cluster import fetched

REFUSAL = namespaces.refusal()
pytestmark = [pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "never"),
              pytest.mark.skipif(not etcds.ETCD, reason="needs etcd")]

PATIENCE = 60_000
LEASE = 10
SHARED = {"scope": "cluster", "mode": "0644"}


def start_peer(network, number, daemon, authority):
    """A peer in the network of a machine."""
    return PeerProcess(
        daemon.directory, daemon, authority.certificate, authority.sign(f"n{number}"),
        ["--advertise", f"{network.address(number)}:9470", "--etcd", f"http://{network.address(3)}:2379",
         "--lease-seconds", LEASE, *(["--gpu", "cuda:0"] if device.ON_GPU else [])], network, number)


@contextlib.contextmanager
def etcd_at(network, number):
    directory = tempfile.mkdtemp(prefix="gpubufd-etcd-", dir="/dev/shm")
    url, peers = f"http://{network.address(number)}:2379", "http://127.0.0.1:2380"
    with open(f"{directory}/log", "wb") as log:
        process = subprocess.Popen(
            [*network.inside(number), etcds.ETCD, "--data-dir", f"{directory}/d", "--listen-client-urls", url,
             "--advertise-client-urls", url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
             "--initial-cluster", f"default={peers}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def machines(daemon_factory, tmp_path):
    """(network, [daemon of 1, 2, 3], [their peers]); etcd is on 3."""
    network, authority = namespaces.Network(3), Authority(tmp_path)
    daemons = [daemon_factory() for _ in range(3)]
    peers = []
    try:
        with etcd_at(network, 3):
            for number, daemon in enumerate(daemons, 1):
                peers.append(start_peer(network, number, daemon, authority))
            for peer in peers:
                peer.wait_for("names of other machines are known")
            yield network, daemons, peers
            for peer in peers:
                peer.stop()
    finally:
        for peer in peers:
            peer.kill()
        network.close()


def fetches(peer, name, expected):
    """Whether an open of it gets that; where the cluster is not there for now, it does not."""
    try:
        return fetched(peer, name, 1000) == expected
    except RpcError as error:
        assert error.kind in ("unavailable", "timeout", "not_found"), error
        return False


def test_a_partition_that_is_longer_than_the_lease(machines):
    network, daemons, peers = machines
    one, two, three = (daemon.connect() for daemon in daemons)
    for name in ("copied", "taken", "kept"):
        one.put(name, b"of 1: " + name.encode(), **SHARED)
    assert fetched(two, "copied") == b"of 1: copied"

    network.pull(1, 2)
    network.pull(1, 3)
    peers[0].wait_for("no names of other machines for now")
    assert fetched(one, "kept") == b"of 1: kept", "local work goes on"
    one.put("made", b"meanwhile", **SHARED)
    refused = one.error("unavailable", "open", name="elsewhere", wait_ms=PATIENCE)
    assert "the lease could not be renewed" in refused.message or "etcd at" in refused.message

    def taken():
        two.put("taken", b"of 2", replace=True, **SHARED)  # each version is offered anew
        return fetches(three, "taken", b"of 2")

    wait_until(taken)  # once the lease is over
    assert fetched(two, "copied") == b"of 1: copied", "a copy stays"
    three.error("timeout", "open", name="kept", wait_ms=500)

    network.plug(1, 2)
    network.plug(1, 3)
    for name, expected in (("kept", b"of 1: kept"), ("made", b"meanwhile"), ("copied", b"of 1: copied")):
        wait_until(lambda name=name, expected=expected: fetches(three, name, expected))
    peers[0].wait_for('not published name=taken ')
    assert fetched(three, "taken") == b"of 2" and fetched(one, "taken") == b"of 1: taken"
    assert not re.search("fetched name=taken origin=n1 ", peers[2].stderr()), "no old name comes back"


COUNT = """
import base64, json, sys, urllib.request
key = sys.argv[2].encode()
ends = {"key": key, "range_end": key[:-1] + bytes([key[-1] + 1])}
asked = {name: base64.b64encode(end).decode() for name, end in ends.items()}
with urllib.request.urlopen(sys.argv[1] + "/v3/kv/range", json.dumps(dict(asked, count_only=True)).encode()) as answer:
    sys.exit(not json.load(answer).get("count"))
"""


def is_copied(network, name):
    """Whether etcd has a copy's place."""
    url, prefix = f"http://{network.address(3)}:2379", f"/gpubufd/copies/{name}@"
    return subprocess.run([*network.inside(3), sys.executable, "-c", COUNT, url, prefix], timeout=60).returncode == 0


def test_a_cable_that_is_pulled_in_the_middle(machines):
    """Of two that have it; the transfer goes on with the other."""
    network, daemons, peers = machines
    one, two, three = (daemon.connect() for daemon in daemons)
    data = bytes(range(256)) * (48 << 12)
    one.put("x", data, **SHARED)
    assert fetched(two, "x") == data
    wait_until(lambda: is_copied(network, "x"))
    waiting = three.request("open", name="x", wait_ms=PATIENCE)
    network.pull(1, 3)
    assert three.reply(waiting)["object"]["bytes"] == len(data)
    assert fetched(three, "x") == data
    network.plug(1, 3)
