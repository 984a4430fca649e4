"""no_space is no passing thing: a create without a timeout succeeds if what may leave is enough."""

import threading

import pytest

import device as test_device
from peer import DEADLINE, Peer, bytes_layout

MIB = 1 << 20


@pytest.fixture
def tiered(daemon_factory, place):
    return daemon_factory("--tier", f"disk:400M:{place}",
                          device=test_device.OPTION.replace("64M", "32M"))


def wait_for_moves(peer):
    """Nothing is being copied any more, ahead of time, which would outlast the test."""
    peer.wait_for_stats(lambda stats: stats["devices"][0]["leaving"] == 0)


@pytest.mark.parametrize("unmaps", [True, False], ids=["unmaps", "does not unmap"])
# RELIABILITY.md: Memory is short 6
def test_large_ones_after_many_small_ones(tiered, unmaps):
    """All of one session, which maps all of it, and may not answer when it is asked to unmap."""
    peer = Peer(tiered.path)
    for i in range(1000):
        peer.create_object(f"small/{i}", bytes_layout(19200), b"%08d" % i)
    for i in range(12):
        if unmaps:
            peer.unmap()
        peer.create_object(f"large/{i}", bytes_layout(3200000), b"%08d" % i)
    with Peer(tiered.path) as reader:
        assert len(reader.names()) == 1012
        for name, text in (("small/7", b"00000007"), ("large/0", b"00000000")):
            assert reader.open_object(name).read()[:8] == text
        wait_for_moves(reader)
    peer.close()


# RELIABILITY.md: Memory is short 6
def test_one_who_keeps_what_is_retired(tiered):
    """Memory that others map is no obstacle either, as long as the rest is enough."""
    holder = tiered.connect()
    holder.create_object("gone", bytes_layout(12 * MIB))
    holder.call("delete", name="gone")
    with Peer(tiered.path) as peer:
        for i in range(20):
            peer.create_object(f"o/{i}", bytes_layout(4 * MIB), b"%02d" % i)
            peer.unmap()
        assert len(peer.names()) == 20
        wait_for_moves(peer)
        figures = peer.call("stats")["devices"][0]
        assert figures["pinned_by_clients"] + figures["retained"] >= 12 * MIB, figures


def test_several_at_once(tiered):
    """Requests that come while others' memory is on its way wait for that as well."""
    failures = []

    def put(who):
        try:
            with Peer(tiered.path) as peer:
                for i in range(15):
                    peer.create_object(f"{who}/{i}", bytes_layout(2 * MIB), b"%02d" % i)
                    peer.unmap()
        except Exception as failure:  # noqa: BLE001: told by the test
            failures.append(failure)

    threads = [threading.Thread(target=put, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * DEADLINE)
    assert failures == []
    with Peer(tiered.path) as peer:
        assert len(peer.names()) == 60
        wait_for_moves(peer)


def test_a_tier_that_nothing_can_use(daemon_factory):
    """The host tier is for what leaves a GPU."""
    said = daemon_factory("--tier", "host:64M", device="host:64M").stderr()
    assert "warning tier not used tier=host" in said and "--tier disk" in said, said
    if test_device.ON_GPU:
        said = daemon_factory("--tier", "host:64M", device=["host:64M", "cuda:0:64M"]).stderr()
        assert "tier not used" not in said
