"""Weights that are larger than their reader's quota are exchanged, with leases cached as they are by default."""

import os
import time

import pytest

import conftest
import gpubufd

MIB = 1 << 20
READER = 4711


@pytest.fixture
def guarded():
    """A daemon on which users have 8 MiB each, and root 48, and which hardly waits for answers."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    options = ["--quota", "default:bytes=8M", "--quota", "0:bytes=48M", "--limit", "recall_ms=1"]
    with conftest.standing(*options) as place:
        yield place
        place.stop()


def connect_as(daemon, uid):
    """The kernel notes who connects when it connects."""
    os.seteuid(uid)
    try:
        return gpubufd.connect(daemon.path)
    finally:
        os.seteuid(0)


def test_weights_larger_than_a_quota_are_swapped(guarded, np):
    """The reader publishes something, and so gives back the version that it merely keeps, before it opens the next.
    A count of rounds; $GPUBUF_SWAP_SECONDS says for how long instead."""
    until = time.monotonic() + float(os.environ.get("GPUBUF_SWAP_SECONDS", 0))
    with gpubufd.connect(guarded.path) as writer, connect_as(guarded, READER) as reader:
        rounds = 0
        while rounds < 50 or time.monotonic() < until:
            writer.put("weights", np.full(2 * MIB, rounds), mode=0o644, replace=True)
            reader.put("step", np.full(8, rounds), replace=True)
            for _ in range(4):
                weights = reader["weights"]
                assert weights.nbytes == 16 * MIB and weights[:1].tolist() == [rounds]
                weights.release()
            rounds += 1
        stats = writer.stats()
        assert stats["methods"]["cache"]["calls"] >= rounds  # it did keep each
        assert stats["methods"]["open"]["calls"] < 4 * rounds
