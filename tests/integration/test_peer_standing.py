"""A lane of UCX that stands still: its cable is pulled, while that of the TLS connection is not."""

import contextlib

import device
import namespaces
import pytest
from certificates import Authority
from cluster import PeerProcess

REFUSAL = namespaces.refusal()
pytestmark = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "never")

MIB = 1 << 20
OBJECTS, BYTES = 25, 3 * MIB  # a chunk for each MiB: more than the machine that is asked takes on at a time, 64
WAIT = 300_000
OPTION = "cuda:{}:256M" if device.ON_GPU else "host:256M"  # a GPU for each machine: one has no room for both


def start_peer(network, number, daemon, authority, *options):
    """A peer in the network of machine 1 or 2, with a lane by the second cable."""
    other = 3 - number
    return PeerProcess(
        daemon.directory, daemon, authority.certificate, authority.sign(f"n{number}"),
        [f"--peer=n{other}={network.address(other)}:9470", "--ucx=trusted-network", *options,
         *(["--gpu", f"cuda:{number - 1}"] if device.ON_GPU else [])],
        network, number, {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"})


def second_cable(network):
    """UCX reads in /sys which devices there are, where it sees those of another network: all it finds is `lo`. So its
    address is the first one of that, and the way to the other's is the second cable."""
    network.ip(1, "link", "add", "second", "type", "veth", "peer", "name", "second",
               "netns", network.machines[2].pid)
    for number in (1, 2):
        network.ip(number, "address", "flush", "dev", "lo")
        for address in (f"10.78.0.{number}", network.address(number)):
            network.ip(number, "address", "add", f"{address}/32", "dev", "lo")
        network.ip(number, "link", "set", "second", "up")
    for number in (1, 2):
        network.ip(number, "route", "add", f"10.78.0.{3 - number}/32", "dev", "second", "src", f"10.78.0.{number}")
        network.plug(1, 2)


@contextlib.contextmanager
def machines(daemon_factory, directory, patience_s):
    """(network, sessions of 1 and 2, their peers)."""
    network, authority, peers = namespaces.Network(2), Authority(directory), []
    try:
        second_cable(network)
        daemons = [daemon_factory(device=OPTION.format(number)) for number in range(2)]
        for number, daemon in enumerate(daemons, 1):
            peers.append(start_peer(network, number, daemon, authority, f"--patience-ms={patience_s * 1000}"))
        with daemons[0].connect() as here, daemons[1].connect() as there:
            yield network, here, there, peers
        for peer in peers:
            peer.stop()
    finally:
        for peer in peers:
            peer.kill()
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
        peers[1].wait_for("no chunks by UCX .*" + said_by_the_reader)
