"""gpubufd-peer: pages of a copy that are made ahead of its bytes, by a thread."""

import os
import re

import pytest

from peer import wait_until
from test_peer import MIB, WAIT, cluster, fetched, is_nowhere, leave, share  # noqa: F401

AHEAD = 24  # chunks, of ahead.c


def resident(process, size):
    """Resident bytes of the mapping of a memfd of that size."""
    mapped = 0
    with open(f"/proc/{process.pid}/smaps") as file:
        for line in file:
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) .*memfd", line):
                mapped = int(found[2], 16) - int(found[1], 16)
            elif re.match(r"[0-9a-f]+-", line):
                mapped = 0
            elif mapped >= size and line.startswith("Rss:"):
                return int(line.split()[1]) << 10
    return 0


@pytest.mark.host_only("pages of a memfd")
def test_pages_are_made_ahead_but_not_far(cluster):  # noqa: F811
    a, b = cluster.start("a", "b")
    size = 48 * MIB
    data = os.urandom(size)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        a.lane.hold(MIB // 2)
        ident = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        wait_until(lambda: resident(b.peer.process, size) >= AHEAD * MIB)
        # The object may begin in the middle of a page, and a page may have 2 MiB.
        assert resident(b.peer.process, size) < (AHEAD + 4) * MIB
        a.lane.release()
        there.reply(ident)
        assert fetched(there, "x") == data


def test_a_reader_that_leaves_while_pages_are_made(cluster):  # noqa: F811
    """At any moment of what the thread does."""
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", bytes(40 * MIB))
    for count in range(4096, 30 * MIB, 3 * MIB):
        a.lane.hold(count)
        reader = b.connect()
        reader.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        with b.connect() as there:
            leave(reader, there)
            a.lane.release()
            is_nowhere(there, "x")


def test_a_stop_while_pages_are_made(cluster):  # noqa: F811
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", bytes(40 * MIB))
    for _ in range(5):
        a.lane.hold(MIB)
        with b.connect() as there:
            there.request("open", name="x", wait_ms=WAIT)
            a.lane.wait_held()
            b.peer.stop()
            a.lane.release()
            is_nowhere(there, "x")
        os.truncate(b.peer.stderr_path, 0)  # what says that it listens is to be the next one's
        cluster.run(b)
