"""Objects on a GPU: segments of both kinds, when there is a context, and accounts that add up."""

import base64
import random

import pytest

import device as test_device
from device import ID, KIND, MIB
from peer import at, bytes_layout, wait_until

CONTEXT = 0 if KIND == "hip" else 8 * MIB  # not counted there: see device.py


def account(peer, index=0):
    """The device's figures, which must add up at any time."""
    told = peer.call("stats")["devices"][index]
    assert told["free"] + allocated(told) == told["capacity"], told
    return told


def allocated(told):
    return told["used"] + told["retained"] + told["pinned_by_clients"]


def settle_account(peer, gpu, context=0):
    """The daemon's figure of its memory and the driver's are the same."""
    told = peer.wait_for_stats(
        lambda s: gpu.used() - context == allocated(s["devices"][0]))["devices"][0]
    assert allocated(told) % (2 * MIB) == 0
    return told


def ipc_segment(result):
    (segment,) = result["segments"]
    handle = segment["handle"]
    assert handle["kind"] == f"{KIND}_ipc" and handle["uuid"] == ID
    assert len(base64.b64decode(handle["ipc"], validate=True)) == 64
    assert segment["bytes"] % (2 * MIB) == 0
    return segment


def test_fd_segments_take_no_context(peer, gpu):
    for i in range(4):
        peer.put(f"small/{i}", b"x" * 1000)
    peer.create_object("big", bytes_layout(20 * MIB + 1))
    assert gpu.used() == allocated(account(peer)) == (2 + 22) * MIB


def test_a_segment_comes_zeroed_and_is_shared(daemon, peer):
    made = peer.create("a", bytes_layout(3 * MIB))
    assert not any(peer.read(made["object"]["layout"]["data"]))
    peer.write(made["object"]["layout"]["data"], b"written")
    peer.call("seal", lease=made["lease"])
    assert daemon.connect().open_object("a").read()[:8] == b"written\0"


def test_the_memory_outlives_the_daemon(daemon_factory, gpu):
    """A process that has mapped it goes on reading; when that ends too, the memory is the device's again."""
    daemon = daemon_factory()
    peer = daemon.connect()
    opened = None
    peer.put("a", b"still here")
    opened = peer.open_object("a")
    segment = peer.segment(opened.layout["data"]["segment"])
    segment.map()
    daemon.process.kill()
    daemon.process.wait()
    assert opened.read() == b"still here"
    assert gpu.used() == 2 * MIB
    peer.close()
    wait_until(lambda: gpu.used() == 0)  # the closers, who share its descriptors, end just after it


def test_ipc(daemon, peer, gpu):
    made = peer.create("a", bytes_layout(100), share="ipc")
    assert made["object"]["share"] == "ipc"
    segment = ipc_segment(made)
    assert segment["access"] == "rw"
    where = made["object"]["layout"]["data"]
    gpu.write(segment["handle"]["ipc"], bytes(where["offset"]) + b"by handle")
    peer.call("seal", lease=made["lease"])
    result = daemon.connect().call("open", name="a")
    again = ipc_segment(result)
    assert again["access"] == "r" and again["handle"] == segment["handle"]
    where = at(result["object"]["layout"], "data")
    assert gpu.read(again["handle"]["ipc"], where["offset"] + 9)[where["offset"]:] == b"by handle"


@pytest.mark.skipif(KIND == "hip", reason="needs CUDA: a context of HIP's lasts as long as the process")
def test_a_context_only_while_there_are_ipc_segments(peer, gpu):
    def used_by(segments, context):
        peer.wait_for_stats(lambda s: gpu.used() == segments + (CONTEXT if context else 0))

    peer.put("fd", b"x")
    used_by(2 * MIB, False)
    one = peer.create("a", bytes_layout(100), share="ipc")
    used_by(4 * MIB, True)
    two = peer.create("b", bytes_layout(30 * MIB - 5), share="ipc")
    assert ipc_segment(two)["bytes"] == 30 * MIB
    used_by(34 * MIB, True)
    for made in (one, two):
        peer.call("release", lease=made["lease"])
        peer.unmap(made["object"]["layout"]["data"]["segment"])
        assert gpu.used() > CONTEXT, "retained"
    assert peer.call("trim")["freed"] == 32 * MIB
    used_by(2 * MIB, False)
    peer.create("c", bytes_layout(100), share="ipc")
    used_by(4 * MIB, True)


def test_kinds_do_not_mix(daemon, peer):
    """Small objects share segments, but not with those that are shared otherwise."""
    ids = set()
    for share in ("fd", "ipc"):
        for i in range(3):
            made = peer.create(f"{share}/{i}", bytes_layout(100), share=share)
            ids.add((share, made["object"]["layout"]["data"]["segment"]))
    assert len(ids) == 2


def test_two_kinds_in_one_open(daemon, peer):
    """The indices of descriptors count descriptors, not segments."""
    for name, share in (("a", "ipc"), ("b", "fd"), ("c", "ipc"), ("d", "fd")):
        peer.create_object(name, bytes_layout(17 * MIB // 2 if name in "ab" else 10), share=share)
    result = daemon.connect().call("open", names=["a", "b", "c", "d"])
    kinds = sorted(s["handle"]["kind"] for s in result["segments"])
    assert kinds == [f"{KIND}_fd", f"{KIND}_ipc"] or len(kinds) > 2, kinds


def test_many_ipc_segments_in_one_open(daemon_factory):
    """They bring no descriptors, so as many as fit the line may come."""
    daemon = daemon_factory(device=f"{KIND}:0:200M")
    peer = daemon.connect()
    names = [f"a/{i}" for i in range(9)]
    for name in names:
        peer.create_object(name, bytes_layout(17 * MIB), share="ipc")
    result = daemon.connect().call("open", names=names)
    assert len(result["segments"]) == len(names)
    assert all("error" not in entry for entry in result["objects"])


def test_more_than_there_is(daemon_factory, gpu):
    """The device is fuller than the budget knows: others use it too."""
    taken = gpu.create(200 * MIB)
    daemon = daemon_factory(device=f"{KIND}:0:128M")
    peer = daemon.connect()
    for share in ("fd", "ipc"):
        error = peer.error("device", "create", name="a", layout=bytes_layout(60 * MIB), share=share)
        assert error.data["cuda"] == "CUDA_ERROR_OUT_OF_MEMORY"
        assert "CUDA_ERROR_OUT_OF_MEMORY" in error.message
        assert account(peer)["free"] == 128 * MIB
    assert gpu.used() == 200 * MIB
    assert peer.put("small", b"x")
    test_device.os.close(taken)
    assert peer.create("a", bytes_layout(60 * MIB))


def test_accounts_add_up(daemon_factory, gpu):
    """A random life; after each step the figures add up, and the driver's own agree."""
    daemon = daemon_factory(device=f"{KIND}:0:128M")
    watch, rng = daemon.connect(), random.Random(7)
    peers, count, context = [daemon.connect() for _ in range(3)], 0, CONTEXT
    watch.create("keeps the context", bytes_layout(1), share="ipc")
    for step in range(150):
        peer = rng.choice(peers)
        what = rng.randrange(10)
        names = watch.names()
        if what < 5:
            count += 1
            size = rng.choice([10, 5000, MIB, 5 * MIB, 17 * MIB, 40 * MIB])
            share = rng.choice(["fd", "fd", "ipc"])
            try:
                made = peer.call("create", name=f"o/{count}", layout=bytes_layout(size), share=share)
                if rng.random() < 0.2:
                    peer.call("release", lease=made["lease"])
                else:
                    peer.call("seal", lease=made["lease"], release=rng.random() < 0.7)
            except Exception as error:
                assert getattr(error, "kind", None) == "no_space", error
        elif what < 7 and names:
            watch.call("delete", name=rng.choice(names))
        elif what < 8:
            watch.call("trim")
        elif what < 9 and peer.segments:
            peer.unmap(rng.choice(sorted(peer.segments))[0])
        else:
            peers.remove(peer)
            peer.close()
            peers.append(daemon.connect())
        account(watch)
        if step % 10 == 0:
            settle_account(watch, gpu, context)
    for peer in peers:
        peer.close()
    watch.close()
    peer = daemon.connect()
    peer.delete(peer.names())
    peer.call("trim")
    peer.wait_until_given_back()
    assert gpu.used() == 0
    assert account(peer)["free"] == 128 * MIB


@pytest.mark.parametrize("share", ["fd", "ipc"])
def test_what_is_deleted_is_used_again(peer, gpu, share):
    """A segment costs the driver milliseconds: it is kept."""
    for _ in range(5):
        made = peer.create("a", bytes_layout(20 * MIB), share=share)
        peer.call("release", lease=made["lease"])
    assert peer.call("stats")["devices"][0]["segments_created"] == 1
    assert account(peer)["retained"] == 20 * MIB


def test_versions_take_turns(daemon_factory, directory, gpu):
    """A name's next version goes into the memory of the one before the last, more than a quarter of the device
    too: the driver is asked for no memory."""
    calls = f"{directory}/calls"
    daemon = daemon_factory(device=f"{KIND}:0:240M", env={"FAKECUDA_TRACE": calls})
    peer = daemon.connect()

    def publish(count):
        for _ in range(count):
            peer.create_object("model", bytes_layout(80 * MIB), replace=True)
        told = account(peer)
        with open(calls) as lines:
            return [line.split()[1] for line in lines].count("cuMemCreate"), told["retained"], told["used"]

    assert publish(3)[1:] == (80 * MIB, 80 * MIB)
    before = publish(1)
    assert publish(5) == before
    peer.unmap()
    peer.create_object("other", bytes_layout(150 * MIB), wait_ms=30000)  # who needs the room has it
    assert account(peer)["used"] == 230 * MIB


def test_memory_of_a_gpu_cannot_be_final(peer, gpu):
    """A process with its descriptor can write it, and nothing can take that away."""
    for share in ("fd", "ipc"):
        error = peer.error("unsupported", "create", name="f", layout=bytes_layout(100), share=share,
                           final=True)
        assert "final" in error.message
    assert gpu.used() == 0 and peer.names() == []
