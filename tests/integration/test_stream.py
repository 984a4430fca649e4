"""join: who takes part in a stream, and the pages by which they do."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import resource
import signal
import struct
import subprocess
import threading
import time

import pytest

from child import Child
from conftest import BUILD, skip_without_root
from peer import RpcError, wait_until
from restarts import Kept, supervised  # noqa: F401  (a fixture)
from restarts import releasing as daemon  # noqa: F401  (a fixture)

PAGE = 16384
F_GET_SEALS = 1034
SHRINK, GROW = 0x2, 0x4


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
        for fd in peer.joined.values():
            seals = fcntl.fcntl(fd, F_GET_SEALS)
            assert seals & SHRINK and seals & GROW
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


@pytest.mark.parametrize("sessions", [1, 2])  # an odd and an even number of descriptors are left
def test_a_refused_join_leaves_nothing(daemon_factory, sessions):
    """There are no descriptors for its answer: the stream has had no writer then, and keeps no pages."""
    daemon = daemon_factory("--limit", "user_sessions=100",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    peer, *_ = [daemon.connect() for _ in range(sessions)]
    leases, kind = [], None

    def state(i):
        return peer.call("stat", name=f"cam{i}")["object"].get("stream"), peer.call("stats")["descriptors"]["open"]

    for i in range(64):
        make(peer, f"cam{i}")
        for _ in range(i % 3):
            with contextlib.suppress(RpcError):
                leases.append(read(peer, f"cam{i}")[0])
        leases.append(peer.call("open", name=f"cam{i}", access="write", exclusive=True)["lease"])
        before = state(i)
        try:
            peer.call("join", lease=leases[-1])
        except RpcError as refused:
            kind = refused.kind
            assert state(i) == before
            break
    assert kind == "limit"
    peer.call("release", leases=leases)


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
    assert "page" not in peer.call("join", lease=lease, since=0)
    assert "page" in peer.call("join", lease=lease)  # as for whoever has lost the first answer
    peer.call("hello", protocol=1, cache=True)
    reads = peer.call("open", name="cam0")
    peer.call("cache", leases=[reads["lease"]])
    peer.call("join", lease=reads["lease"])
    peer.error("busy", "release", lease=reads["lease"], park=True)  # it would keep its slots
    peer.error("busy", "cache", leases=[reads["lease"]])
    parked = peer.call("open", name="cam0")["lease"]
    peer.call("release", lease=parked, park=True)
    peer.error("busy", "join", lease=parked)


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


def pages(peer):
    """The pages that this peer was sent last, by what the kernel knows them by."""
    return {name: os.fstat(fd).st_ino for name, fd in peer.joined.items()}


def end_daemon(daemon, how):
    """The daemon is killed, or hands over; returns when its successor serves."""
    before = daemon.child
    os.kill(before, how)
    daemon.wait_for_another(before)


def resume(daemon, hello, *objects):
    """A session that comes back for leases: (it, the leases)."""
    back = daemon.connect()
    told = back.call("hello", protocol=1, resume={
        "instance": hello["instance"], "session": hello["session"], "objects": list(objects)})
    back.hello = {**hello, "session": told["session"]}
    return back, told["resumed"]


# RELIABILITY.md: The daemon ends 28
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_a_successor_has_the_same_pages(supervised, how):  # noqa: F811
    """Whoever takes part goes on with the pages that it has, and who has ended meanwhile takes part no more."""
    daemon = supervised()
    author, reader = daemon.connect(), daemon.connect()
    hellos = [peer.call("hello", protocol=1) for peer in (author, reader)]
    make(author, slots=16)
    mine, _ = write(author)
    version = author.call("stat", name="cam0")["object"]["version"]
    read(reader, hold=2, lag=3)
    stopped, dead = [Child(daemon.path, lambda peer: read(peer)[1]["reader"]) for _ in range(2)]
    author.call("join", lease=mine)
    before, was = pages(author), roster(author)
    assert was[0] == [0, 1, 2] and (stopped.result, dead.result) == (1, 2)
    claims = {name: inode for name, inode in before.items() if isinstance(name, int)}
    os.pwrite(reader.joined["page"], b"held", 0)
    os.kill(stopped.pid, signal.SIGSTOP)
    dead.kill()
    end_daemon(daemon, how)
    wait_until(lambda: roster(author)[0] == [0, 1])  # the page that it has had all the time
    one = {"name": "cam0", "version": version}
    author, (lease,) = resume(daemon, hellos[0], {**one, "write": True})
    told = author.call("join", lease=lease)
    assert pages(author) == {"page": before["page"], "roster": before["roster"], 0: claims[0], 1: claims[1]}
    assert (told["writer"], told["epoch"]) == (1, 3) and os.pread(author.joined[0], 4, 0) == b"held"
    assert roster(author)[1:] == was[1:]
    reader, leases = resume(daemon, hellos[1], {**one, "reader": 2}, {**one, "reader": 0}, {**one, "reader": 0})
    assert leases[0] is None and leases[1] and leases[2] is None
    reader.call("join", lease=leases[1], since=0)
    assert pages(reader) == {"front": before["page"]}
    _, joined = read(daemon.connect())
    assert joined["reader"] == 2 and roster(author)[:2] == ([0, 1, 2], 4)
    # Another writer is given the claims of all, too.
    author.call("release", lease=lease)
    other = daemon.connect()
    assert [claim["reader"] for claim in write(other)[1]["claims"]] == [0, 1, 2]
    assert pages(other)[1] == claims[1] and roster(other)[2:4] == (2, 1)
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.kill()
    reader.call("release", lease=leases[1])
    wait_until(lambda: roster(other)[0] == [2])


def test_what_a_reader_does_not_come_back_for_ends(supervised):  # noqa: F811
    daemon = supervised()
    peer = daemon.connect()
    hello = peer.call("hello", protocol=1)
    make(peer)
    for _ in range(2):
        read(peer)
    end_daemon(daemon, signal.SIGKILL)
    version = daemon.connect().call("stat", name="cam0")["object"]["version"]
    back, leases = resume(daemon, hello, {"name": "cam0", "version": version, "reader": 1})
    assert leases[0] and back.call("stat", name="cam0")["object"]["stream"]["readers"] == 1
    # An answer that nobody read takes nothing away.
    hello = {**hello, "session": back.call("hello", protocol=1, resume={
        "instance": hello["instance"], "objects": []})["session"]}
    back.close()
    back, leases = resume(daemon, hello, {"name": "cam0", "version": version, "reader": 1})
    assert leases[0]
    back.call("release", lease=leases[0])
    assert "stream" not in back.call("stat", name="cam0")["object"]  # nobody has ever written it


@pytest.mark.parametrize("lost", ["roster", "front", "claim"])
def test_a_page_that_is_not_handed_over(directory, lost):
    """Nobody can tell what its readers hold: so nobody can join, before it is made anew; and the manager keeps no claims."""
    kept = Kept(directory)
    try:
        peer = kept.start()
        make(peer)
        write(peer)
        for _ in range(2):
            read(peer)
        peer.call("stats")
        kept.crash()
        gone = dict(zip(["roster", "front", "claim", "other"], kept.pages(), strict=True))[lost]
        kept.fds = [one for one in kept.fds if one[1] != gone]
        os.close(gone)
        for _ in range(2):
            peer = kept.start()
            lease = peer.call("open", name="cam0")["lease"]
            assert "delete it" in str(peer.error("stale", "join", lease=lease))
            kept.crash()
            assert len(kept.pages()) == (2 if lost == "claim" else 1)
        peer = kept.start()
        peer.call("delete", name="cam0")
        make(peer)
        read(peer)
    finally:
        kept.close()


def test_those_that_end_while_no_daemon_runs(directory):
    """A writer learns that they are gone; a stream that was there for its readers alone goes, and its pages with it."""
    kept = Kept(directory)
    try:
        author = kept.start()
        for name in ("cam0", "cam1"):
            make(author, name)
        write(author, "cam1")
        dead = Child(f"{directory}/s", lambda peer: [read(peer, name)[1]["reader"] for name in ("cam0", "cam1")])
        assert roster(author)[0] == [0]
        kept.crash()
        dead.kill()
        assert "stream" not in kept.start().call("stat", name="cam0")["object"]
        assert roster(author)[0] == []
        kept.crash()
        assert len(kept.pages()) == 2  # roster and front of the other
    finally:
        kept.close()


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
@pytest.mark.parametrize("how", [None, signal.SIGKILL, signal.SIGHUP])
def test_kills(supervised, how, monkeypatch):  # noqa: F811
    """Readers and writers are killed at any moment, and the daemon, too: no frame is torn, and readers that are waited for
    miss none."""
    # A daemon that does not end is aborted by its supervisor, and then says where it was.
    monkeypatch.setenv("ASAN_OPTIONS", f"{os.environ.get('ASAN_OPTIONS', '')}:handle_abort=1".lstrip(":"))
    daemon = supervised(device="host:64M")  # where the program's frames lie
    frames = os.environ.get("GPUBUF_FRAMES", "500000" if how is None else "200000")
    with subprocess.Popen([BUILD / "tests/bench/bench_stream_kills", daemon.path, frames, "64"]) as process:
        while process.poll() is None:
            time.sleep(0.3)
            if how is not None and process.poll() is None:
                end_daemon(daemon, how)
        assert process.returncode == 0
