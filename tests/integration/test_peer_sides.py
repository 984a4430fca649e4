"""gpubufd-peer: large objects, whose chunks threads move over several links of a machine."""

import os
import socket

from cluster import WAIT, fetched
from test_peer import MIB, is_nowhere, leave, share

SIDES_AFTER = 16  # chunks in a row, of remote.c


def test_a_large_object_comes_over_several_links(cluster):
    a, b = cluster.start("a", "b")
    data = os.urandom(2 * SIDES_AFTER * MIB)
    with a.connect() as here, b.connect() as there:
        share(here, "small", bytes(4 * MIB))
        share(here, "x", data)
        fetched(there, "small")
        assert a.lane.connections == 2  # one for what is small
        for _ in range(8):  # the first may be here before a side link is made
            assert fetched(there, "x") == data
            there.call("delete", name="x")
            if a.lane.connections == 5:
                break
        assert a.lane.connections == 5


def test_a_small_object_passes_a_large_one(cluster):
    """However long that takes: by a link that has none of it."""
    a, b = cluster.start("a", "b")
    data = os.urandom(12 * MIB)
    with a.connect() as here, b.connect() as there, b.connect() as other:
        for name, content in (("large", data), ("medium", data[:200_000]), ("small", b"small")):
            share(here, name, content)
        a.lane.stall(100_000)
        asked = {name: there.request("open", name=name, wait_ms=WAIT) for name in ("large", "medium")}
        a.lane.wait_held()
        assert fetched(other, "small") == b"small"
        a.lane.release()
        for ident in asked.values():
            there.reply(ident)
        assert fetched(other, "large") == data and fetched(other, "medium") == data[:200_000]


def test_a_side_link_that_breaks(cluster):
    """Its chunks come over the first one, which alone is used from then on."""
    a, b = cluster.start("a", "b")
    data = os.urandom(3 * SIDES_AFTER * MIB)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        for count in (44, 40, 36, 30):
            a.lane.hold_after(count * MIB)
            ident = there.request("open", name="x", wait_ms=WAIT)
            a.lane.wait_held()
            if sides := a.lane.pairs[2:]:
                sides[-1].shutdown(socket.SHUT_RDWR)
            a.lane.release()
            there.reply(ident)
            assert fetched(there, "x") == data
            if sides:
                break
            there.call("delete", name="x")
        assert sides


def test_a_reader_that_leaves_in_the_middle(cluster):
    """At any moment of what the threads do."""
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", bytes(48 * MIB))
    for count in range(4096, 46 * MIB, 5 * MIB):
        a.lane.hold_after(count)
        reader = b.connect()
        reader.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        with b.connect() as there:
            leave(reader, there)
            a.lane.release()
            is_nowhere(there, "x")


def test_a_stop_in_the_middle(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", bytes(48 * MIB))
    for at in (1, 8, 40):
        a.lane.hold_after(at * MIB)
        with b.connect() as there:
            there.request("open", name="x", wait_ms=WAIT)
            a.lane.wait_held()
            b.peer.stop()
            a.lane.release()
            is_nowhere(there, "x")
        cluster.run(b)
