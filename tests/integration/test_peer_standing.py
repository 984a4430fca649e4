"""A lane of UCX that stands still: its cable is pulled, while that of the TLS connection is not."""

import contextlib
import os
import subprocess

import device
import etcds
import pytest
from certificates import Authority
from cluster import PeerProcess
from peer import wait_until

MIB = 1 << 20
OBJECTS, BYTES = 25, 3 * MIB  # a chunk for each MiB: more than the machine that is asked takes on at a time, 64
WAIT = 300_000
OPTION = "cuda:{}:256M" if device.ON_GPU else "host:256M"  # a GPU for each machine: one has no room for both
CABLES = {"second": "10.78.0", "first": "10.77.0"}  # and what goes by them


def refusal():
    """Why there can be no networks here; "": there can."""
    if not etcds.ETCD:
        return "needs etcd"
    script = "ip link add one type veth peer name two"
    try:
        run = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return "" if run.returncode == 0 else f"network namespaces are not permitted: {run.stderr.strip()}"


REFUSAL = refusal()
pytestmark = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "never")


class Network:
    """Machines 1 and 2, namespaces that two cables join. UCX reads in /sys which devices there are, where it sees those of
    another network: all it finds is `lo`. It takes the first address of that, and so the second cable."""

    def __init__(self):
        # Of a process that sleeps: a namespace lives as long as somebody is in it.
        self.machines = {i: subprocess.Popen(["unshare", "--net", "sleep", "1000000"]) for i in (1, 2)}
        own = os.readlink("/proc/self/ns/net")
        for number, machine in self.machines.items():
            wait_until(lambda pid=machine.pid: os.readlink(f"/proc/{pid}/ns/net") != own)
            self.ip(number, "link", "set", "lo", "up")
            self.ip(number, "address", "flush", "dev", "lo")
            for net in CABLES.values():
                self.ip(number, "address", "add", f"{net}.{number}/32", "dev", "lo")
        for cable in CABLES:
            self.ip(1, "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", self.machines[2].pid)
            self.ip(1, "link", "set", cable, "up")
            self.ip(2, "link", "set", cable, "up")
        for cable, net in CABLES.items():
            for near, far in ((1, 2), (2, 1)):
                self.ip(near, "route", "add", f"{net}.{far}/32", "dev", cable, "src", f"{net}.{near}")

    def inside(self, number):
        """The words that a command begins with to run there."""
        return ["nsenter", f"--net=/proc/{self.machines[number].pid}/ns/net"]

    def ip(self, number, *command):
        subprocess.run([*self.inside(number), "ip", *map(str, command)], check=True)

    def close(self):
        for machine in self.machines.values():
            machine.kill()
            machine.wait()


def start_peer(network, number, daemon, authority, url, *options):
    """A peer in the network of machine 1 or 2, with a lane by the second cable."""
    return PeerProcess(
        daemon.directory, daemon, authority.certificate, authority.sign(f"n{number}"),
        ["--etcd", url, "--advertise", f"{CABLES['first']}.{number}:9470", "--lease-seconds", "600",
         "--ucx=trusted-network", *options,
         *(["--gpu", f"cuda:{number - 1}"] if device.ON_GPU else [])],
        listen=f"{CABLES['first']}.{number}:9470", inside=network.inside(number), env={"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"})


@contextlib.contextmanager
def machines(daemon_factory, directory, patience_s):
    """(network, sessions of 1 and 2, their peers)."""
    network, authority, peers = Network(), Authority(directory), []
    etcd = etcds.Etcd(inside=network.inside(1), place=(f"{CABLES['first']}.1", 2379))
    try:
        daemons = [daemon_factory(device=OPTION.format(number)) for number in range(2)]
        for number, daemon in enumerate(daemons, 1):
            peers.append(start_peer(network, number, daemon, authority, etcd.url, f"--patience-ms={patience_s * 1000}"))
        with daemons[0].connect() as here, daemons[1].connect() as there:
            yield network, here, there, peers
        for peer in peers:
            peer.stop()
    finally:
        for peer in peers:
            peer.kill()
        etcd.close()
        network.close()


@pytest.mark.parametrize("patience_s, said_by_the_reader", [(5, "nothing comes that way"), (60, "")],
                         ids=["the reader leaves it first", "the owner leaves it first"])
def test_25_large_objects_over_a_lane_that_stands_still(daemon_factory, tmp_path, patience_s, said_by_the_reader):
    """The owner, whose chunks wait on the lane, reads no more requests: that the reader has left comes to it late."""
    with machines(daemon_factory, tmp_path, patience_s) as (network, here, there, peers):
        def put(name, seed, size):
            here.put(name, bytes([seed]) * size, scope="cluster", mode="0644")

        put("first", 0, MIB)
        there.open_object("first", wait_ms=WAIT).release()
        peers[1].wait_for("chunks come by UCX")
        network.ip(1, "link", "set", "second", "down")
        for i in range(OBJECTS):
            put(f"x{i}", i + 1, BYTES)
        waiting = [there.request("open", name=f"x{i}", wait_ms=WAIT) for i in range(OBJECTS)]
        for request in waiting:
            assert there.reply(request, WAIT / 1000)["object"]["bytes"] == BYTES
        for i in range(OBJECTS):
            opened = there.open_object(f"x{i}")
            assert bytes(opened.read()) == bytes([i + 1]) * BYTES
            opened.release()
        peers[0].wait_for("UCX sends nothing")
        peers[1].wait_for("UCX not used .*" + said_by_the_reader)
