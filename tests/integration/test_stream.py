"""join: who takes part in a stream, and the pages by which they do."""

import ctypes
import fcntl
import mmap
import os
import platform
import resource
import struct
import subprocess
import threading

import pytest

from child import Child
from conftest import BUILD, skip_without_root
from peer import RpcError, wait_until
from restarts import releasing as daemon  # noqa: F401  (a fixture)

PAGE = 16384
F_GET_SEALS = 1034
SHRINK, GROW, FUTURE_WRITE = 0x2, 0x4, 0x10


def make(peer, name="cam0", slots=8, **params):
    """A stream, with nobody who takes part."""
    layout = {"kind": "array", "dtype": "uint8", "shape": [slots, 1000]}
    peer.call("release", lease=peer.call("create", name=name, layout=layout, live=True, **params)["lease"])


def write(peer, name="cam0", **params):
    """Takes part as the writer. Returns the lease, and the answer."""
    lease = peer.call("open", name=name, access="write", exclusive=True, **params)["lease"]
    return lease, peer.call("join", lease=lease)


def read(peer, name="cam0", **params):
    lease = peer.call("open", name=name)["lease"]
    return lease, peer.call("join", lease=lease, **params)


def roster(peer):
    """(readers, epoch, writer, over, hold, lag), as the daemon has written it."""
    active, epoch, writer, over = struct.unpack_from("<QIII", os.pread(peer.joined["roster"], PAGE, 0))
    numbers = os.pread(peer.joined["roster"], 128, 20)
    return [i for i in range(64) if active >> i & 1], epoch, writer, over, numbers[:64], numbers[64:]


def test_who_takes_part(daemon):
    """The roster says who, and each is given the others' pages."""
    writer, first, second = daemon.connect(), daemon.connect(), daemon.connect()
    make(writer)
    lease, told = read(first, hold=2, lag=3)
    assert told["reader"] == 0 and told["writer"] == 0 and "front" not in told
    mine, told = write(writer)
    assert told["writer"] == 1 and told["epoch"] == 1 and [claim["reader"] for claim in told["claims"]] == [0]
    told = first.call("join", lease=lease, since=0)
    assert told["writer"] == 1 and "front" in told and "page" not in told
    assert "front" not in first.call("join", lease=lease, since=1)
    other, _ = read(second)
    told = writer.call("join", lease=mine, since=1)
    assert told["epoch"] == 2 and [claim["reader"] for claim in told["claims"]] == [1]
    readers, epoch, number, over, hold, lag = roster(writer)
    assert (readers, epoch, number, over) == ([0, 1], 2, 1, 0)
    assert tuple(hold[:2]) == (2, 1) and tuple(lag[:2]) == (3, 0)
    second.call("release", lease=other)
    assert roster(writer)[0] == [0]
    writer.call("release", lease=mine)
    assert roster(first)[2:4] == (1, 1)
    _, told = write(second)
    assert told["writer"] == 2 and roster(first)[2:4] == (2, 1)
    second.call("delete", name="cam0")


def can(fd, flags):
    try:
        mmap.mmap(fd, PAGE, mmap.MAP_SHARED, flags).close()
    except PermissionError:
        return False
    return True


def test_each_page_has_one_writer(daemon):
    """The kernel lets nobody else write a page, and nobody shrink it."""
    writer, reader = daemon.connect(), daemon.connect()
    make(writer)
    lease, _ = write(writer)
    read(reader)
    writer.call("join", lease=lease)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    for peer, others in ((writer, ("roster", 0)), (reader, ("roster", "front"))):
        assert can(peer.joined["page"], both)
        for name in others:
            assert can(peer.joined[name], mmap.PROT_READ) and not can(peer.joined[name], both)
        for name, fd in peer.joined.items():
            seals = fcntl.fcntl(fd, F_GET_SEALS)
            assert seals & SHRINK and seals & GROW and bool(seals & FUTURE_WRITE) == (name == "roster")
            with pytest.raises(OSError):
                os.ftruncate(fd, 0)
    # The pages are those of the others.
    os.pwrite(reader.joined["page"], b"claim", 0)
    assert os.pread(writer.joined[0], 5, 0) == b"claim"
    os.pwrite(writer.joined["page"], b"front", 0)
    assert os.pread(reader.joined["front"], 5, 0) == b"front"


@pytest.mark.root
def test_others_cannot_open_a_page_for_writing(daemon):
    skip_without_root()
    make(daemon.connect(), mode="0644")
    write(daemon.connect())

    def upgrade(peer):
        _, told = read(peer)
        failed = 0
        for name in ("roster", "front"):
            try:
                os.close(os.open(f"/proc/self/fd/{peer.joined[name]}", os.O_RDWR))
            except PermissionError:
                failed += 1
        return failed

    child = Child(daemon.path, upgrade, uid=2001, gid=2001)
    assert child.result == 2
    child.kill()


def test_slots_are_not_promised_twice(daemon):
    """One is written, the newest frames are kept for the reader that may lag most, readers hold others."""
    peer = daemon.connect()
    make(peer, slots=8)
    readers = [daemon.connect() for _ in range(5)]
    read(readers[0], hold=2, lag=3)
    read(readers[1], hold=1, lag=1)
    leases = [read(readers[2])[0]]
    with pytest.raises(RpcError) as refused:
        read(readers[3])
    assert refused.value.kind == "busy" and "8 slots" in str(refused.value)
    readers[2].call("release", lease=leases[0])
    read(readers[4])


def test_at_most_64_readers(daemon):
    peer = daemon.connect()
    make(peer, slots=66)  # 64 are held, one is the newest, one is written
    leases = [peer.call("open", name="cam0")["lease"] for _ in range(65)]
    for lease in leases[:64]:
        peer.call("join", lease=lease)
    peer.error("limit", "join", lease=leases[64])
    lease, told = write(daemon.connect())
    peer.call("release", leases=leases)
    # Claims come twelve at a time.
    assert len(told["claims"]) == 12 and told["epoch"] == 12


def test_what_is_open(daemon):
    """Whoever may only read takes none of the owner's descriptors: before a writer there is a stream for readers alone."""
    peer = daemon.connect()
    make(peer)

    def used():
        return peer.call("stats")["descriptors"]["open"]["used"]

    before = used()
    lease, _ = read(peer)
    assert used() == before + 2  # the roster and the claim
    peer.call("release", lease=lease)
    lease = peer.call("open", name="cam0")["lease"]
    peer.error("busy", "join", lease=lease, hold=128)
    assert used() == before
    peer.call("release", lease=write(peer)[0])
    lease, _ = read(peer)
    peer.call("release", lease=lease)
    assert read(peer)[1]["writer"] == 1  # its last frames are there


@pytest.mark.root
def test_others_open_no_more_than_there_is(daemon_factory):
    """Writers that may write another's objects fill the daemon's descriptors no more than their owner could."""
    skip_without_root()
    daemon = daemon_factory("--mode", "0666",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    owner = daemon.connect()
    for i in range(200):
        make(owner, f"cam{i}", mode="0666")

    def join(peer):
        for i in range(200):
            try:
                peer.call("release", lease=write(peer, f"cam{i}")[0])
            except RpcError as refused:
                return refused.kind
        return "none"

    child = Child(daemon.path, join, uid=2001, gid=2001)
    assert child.result == "limit"
    used = owner.call("stats")["descriptors"]["open"]
    assert used["used"] < used["most"] * 3 / 4
    child.kill()


def test_what_is_refused(daemon):
    peer = daemon.connect()
    peer.put("sealed")
    make(peer)
    peer.error("unsupported", "join", lease=peer.call("open", name="sealed")["lease"])
    shared = peer.call("open", name="cam0", access="write")["lease"]
    peer.error("unsupported", "join", lease=shared)
    peer.call("release", lease=shared)
    make(peer, name="wide", slots=129)
    peer.error("unsupported", "join", lease=peer.call("open", name="wide")["lease"])
    peer.error("stale", "join", lease=99)
    lease, _ = write(peer)
    assert "page" not in peer.call("join", lease=lease)


def test_the_dead_do_not_take_part(daemon):
    """Killed, a reader is cleared and a writer is over; another takes its place."""
    watcher = daemon.connect()
    make(watcher)
    read(watcher)
    children = [Child(daemon.path, lambda peer: read(peer)[1]["reader"]) for _ in range(2)]
    author = Child(daemon.path, lambda peer: write(peer)[1]["writer"])
    assert sorted(child.result for child in children) == [1, 2] and author.result == 1
    for child in [*children, author]:
        child.kill()
    wait_until(lambda: roster(watcher)[0] == [0] and roster(watcher)[2:4] == (1, 1))
    successor = daemon.connect()
    _, told = write(successor, wait_ms=60000)
    assert told["writer"] == 2 and [claim["reader"] for claim in told["claims"]] == [0]


LIBC = ctypes.CDLL(None)
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())


class Crowd:
    """Threads that sleep on a word of a page, and are counted by the kernel."""

    WAIT, WAKE, REQUEUE = 0, 1, 3

    def __init__(self, count):
        self.count = count
        self.meeting = mmap.mmap(-1, PAGE)
        self.threads = [threading.Thread(target=self._futex, args=(self.WAIT, self._at(self.meeting)), daemon=True)
                        for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _at(self, memory):
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def _futex(self, operation, at, count=0, more=0, to=0):
        return LIBC.syscall(FUTEX, ctypes.c_void_p(at), operation, count, ctypes.c_void_p(more), ctypes.c_void_p(to), 0)

    def _move(self, start, end):
        return self._futex(self.REQUEUE, start, 0, self.count, end)

    def settle_at(self, word):
        """All sleep at that address from now on."""
        asleep = 0

        def all_sleep():
            nonlocal asleep
            asleep += self._move(self._at(self.meeting), word)
            return asleep == self.count

        wait_until(all_sleep)

    def leave(self, word):
        """Wakes those that still sleep there, and says how many these were."""
        left = self._futex(self.WAKE, word, self.count)
        for thread in self.threads:
            thread.join()
        return left


# RELIABILITY.md: Hostile clients 12
@pytest.mark.skipif(not FUTEX, reason="the number of the call is not known here")
@pytest.mark.parametrize("word", ["roster.writer", "front.bell"])
def test_a_crowd_costs_the_daemon_one_wake(daemon, word):
    """However many threads a reader has sleep where the daemon wakes readers, it wakes as many as take part."""
    LIBC.mmap.restype = ctypes.c_void_p
    author, reader = daemon.connect(), daemon.connect()
    make(author)
    mine, _ = write(author)
    read(reader)
    page, offset = {"roster.writer": ("roster", 12), "front.bell": ("front", 8)}[word]
    at = LIBC.mmap(None, ctypes.c_size_t(PAGE), mmap.PROT_READ, mmap.MAP_SHARED, reader.joined[page], ctypes.c_long(0))
    crowd = Crowd(100)
    if word == "roster.writer":
        author.call("release", lease=mine)
    crowd.settle_at(at + offset)
    if word == "roster.writer":
        author.call("release", lease=write(author)[0])
    else:
        author.call("release", lease=mine)
    assert crowd.leave(at + offset) == 99
    LIBC.munmap(ctypes.c_void_p(at), ctypes.c_size_t(PAGE))


@pytest.mark.hunt
def test_kills(daemon_factory):
    """Readers and writers are killed at any moment: no frame is torn, and readers that are waited for miss none."""
    daemon = daemon_factory(device="host:64M")  # where the program's frames lie
    frames = os.environ.get("GPUBUF_FRAMES", "500000")
    subprocess.run([BUILD / "tests/bench/bench_stream_kills", daemon.path, frames, "64"], check=True, timeout=1600)
