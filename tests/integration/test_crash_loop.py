"""A daemon that dies again and again, each time before the grace period is over: what survived one
crash survives the next ones, nobody is refused, and nobody's memory is given to another."""

import json
import math
import mmap
import os
import time
from random import Random

import device
import pytest
from peer import DEADLINE, Closed, Peer, RpcError, at, bytes_layout, wait_until
from restarts import supervised  # noqa: F401 (a fixture)

GRACE = ("--grace", "600000")
GOES_ON_S = 2  # a client may write as long after it has noticed the daemon's death: less than the grace period


def content(name, number, count):
    return (f"{name}@{number} " * (count // 8 + 1)).encode()[:count]


class Putter:
    """A process that puts objects as fast as it can, `least` of them, whatever dies meanwhile, and has another
    one that it writes to without end and never seals. It knows what must be there, and looks at last."""

    def __init__(self, path, prefix, sizes, names, least, uid=None, slow=0.0, seed=1):
        self.path, self.prefix, self.sizes, self.names = path, prefix, sizes, names
        self.least, self.slow, self.seed = least, slow, seed
        self.latest = time.monotonic() + DEADLINE
        self.going = mmap.mmap(-1, 4096)
        self.going[0] = 1
        self.acknowledged, self.refused = {}, []
        self.written = []  # [until when, descriptor, offset, bytes]
        self.read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(write_end)
            return
        status = 1
        try:
            os.closerange(3, write_end)
            if uid is not None:  # else whoever runs the test
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            self.run()
            told = json.dumps({"lost": self.lost(), "refused": self.refused,
                               "there": len(self.acknowledged)}).encode()
            with os.fdopen(write_end, "wb") as file:
                file.write(told)
            status = 0
        finally:
            os._exit(status)

    def goes_on(self):
        return self.going[0] or (len(self.acknowledged) < self.least and time.monotonic() < self.latest)

    def run(self):
        rng, number = Random(self.seed), 0
        while self.goes_on():
            try:
                with Peer(self.path) as peer:
                    self.create_open(peer, rng.choice(self.sizes))
                    while self.goes_on():
                        number += 1
                        self.put(peer, f"{self.prefix}/{number % self.names}", number,
                                 rng.choice(self.sizes))
                        self.scribble()
                        time.sleep(self.slow)
            except (Closed, OSError):  # the daemon died: what was under way may be there or not
                for written in self.written:
                    written[0] = min(written[0], time.monotonic() + GOES_ON_S)

    def create_open(self, peer, size):
        made = peer.call("create", name=f"{self.prefix}/open", layout=bytes_layout(size))
        buffer = at(made["object"]["layout"], "data")
        fd = os.dup(peer.segments[(buffer["segment"], "rw")].fd)
        self.written.append([math.inf, fd, buffer["offset"], buffer["bytes"]])

    def scribble(self):
        for until, fd, offset, count in self.written:
            if time.monotonic() < until:
                os.pwrite(fd, b"?" * count, offset)

    def put(self, peer, name, number, size):
        before = self.acknowledged.pop(name, None)
        try:
            peer.put(name, content(name, number, size), replace=True)
        except RpcError as error:
            self.refused.append(str(error))
            if before:
                self.acknowledged[name] = before
            return
        self.acknowledged[name] = (number, size)
        self.going[8:16] = (self.put_count() + 1).to_bytes(8, "little")

    def put_count(self):
        """How many puts were acknowledged so far; for both processes."""
        return int.from_bytes(self.going[8:16], "little")

    def lost(self):
        """Names of what was acknowledged, and is not there with each of its bytes."""
        found = []
        with Peer(self.path) as peer:
            for name, (number, size) in self.acknowledged.items():
                try:
                    opened = peer.open_object(name)
                    if opened.read() != content(name, number, size):
                        found.append(f"{name} has {opened.read()[:40]}")
                    opened.release()
                except RpcError as error:
                    found.append(f"{name}: {error}")
        return found

    def end(self):
        """{"lost", "refused", "there"}"""
        self.going[0] = 0
        with os.fdopen(self.read_end, "rb") as file:
            told = file.read()
        assert os.waitpid(self.pid, 0)[1] == 0
        return json.loads(told)


def kill_in_a_row(daemon, count, seconds, *putters):
    """Each of the daemons has taken something from each of the putters."""
    for _ in range(count):
        before = [putter.put_count() for putter in putters]
        time.sleep(seconds / count)  # the clients go on meanwhile
        wait_until(lambda: all(putter.put_count() > count for putter, count in zip(putters, before)))
        daemon.crash()


def of_device(daemon, key):
    return daemon.connect().call("stats")["devices"][0][key]


@pytest.mark.hunt
# RELIABILITY.md: The daemon ends 4
def test_kills_in_a_row(supervised):  # noqa: F811
    """Ten in four seconds, with room for all that is put: nothing is lost, nothing is refused."""
    daemon = supervised(*GRACE, device=device.OPTION.replace("64M", "250M"))
    putter = Putter(daemon.path, "p", [8000], 15000, 100)
    kill_in_a_row(daemon, 10, 4, putter)
    told = putter.end()
    assert told["there"] >= 100
    assert told["lost"] == [] and told["refused"] == []
    assert of_device(daemon, "evictions") == 0


# RELIABILITY.md: The daemon ends 4
def test_memory_does_not_run_out(supervised):  # noqa: F811
    """Free memory stays free, however often the daemon dies."""
    daemon = supervised(*GRACE)
    peer = daemon.connect()
    for i in range(20):
        peer.put(f"there/{i}", content("there", i, 80_000))
    peer.create("open", bytes_layout(8000))
    before = of_device(daemon, "free")
    for i in range(10):
        daemon.crash()
        daemon.connect().put(f"later/{i}", b"l" * 8000)
        assert of_device(daemon, "free") == before
    peer = daemon.connect()
    for i in range(20):
        assert peer.open_object(f"there/{i}").read() == content("there", i, 80_000)


def place_of(made):
    buffer = at(made["object"]["layout"], "data")
    return buffer["segment"], buffer["offset"]


# RELIABILITY.md: The daemon ends 5
def test_what_is_written_to_is_nobody_elses(supervised):  # noqa: F811
    """A range that somebody writes to as the daemon dies is left alone by its successors until the
    grace period is over. The free ranges beside it are handed out at once."""
    daemon = supervised(*GRACE)
    writer = daemon.connect()
    writer.put("a", b"a" * 8000)
    written = writer.create("w", bytes_layout(8000))
    writer.put("b", b"b" * 8000)
    for i in range(3):
        daemon.crash()
        peer = daemon.connect()
        for j in range(50):
            writer.write(at(written["object"]["layout"], "data"), b"?" * 8000)
            peer.put(f"n{i}/{j}", b"n" * 8000)
    writer.write(at(written["object"]["layout"], "data"), b"?" * 8000)
    contents = {name: peer.open_object(name).read() for name in peer.names()}
    places = {name: place_of(peer.call("open", name=name)) for name in contents}
    assert contents == {name: name[:1].encode() * 8000 for name in contents}
    assert len(contents) == 152
    assert len(set(places.values())) == 152 and place_of(written) not in places.values()
    assert {segment for segment, _ in places.values()} == {place_of(written)[0]}


def test_it_is_handed_out_in_the_end(supervised):  # noqa: F811
    daemon = supervised("--grace", "300")
    peer = daemon.connect()
    peer.put("a", b"a" * 8000)
    place = place_of(peer.create("w", bytes_layout(8000)))
    peer.put("b", b"b" * 8000)
    daemon.crash()
    peer = daemon.connect()

    def is_handed_out():
        made = peer.create("w", bytes_layout(8000))
        peer.call("release", lease=made["lease"])
        return place_of(made) == place

    wait_until(is_handed_out)
    assert peer.open_object("b").read() == b"b" * 8000


@pytest.mark.hunt
@pytest.mark.root
# RELIABILITY.md: The daemon ends 4
def test_several_users(supervised):  # noqa: F811
    """Kills at random moments while three users put and write: each has all that was sealed."""
    daemon = supervised(*GRACE, device=device.OPTION.replace("64M", "250M"))
    sizes = [1, 100, 4096, 30_000, 200_000]
    putters = [Putter(daemon.path, f"u{uid}", sizes, 40, 5, uid, 0.002, uid)
               for uid in (0, 1001, 1002)]
    rng = Random(7)
    wait_until(lambda: all(putter.put_count() for putter in putters))
    for _ in range(25):
        time.sleep(rng.random() * 0.2)
        daemon.crash()
    told = [putter.end() for putter in putters]
    assert all(one["there"] >= 5 for one in told)
    assert [one["lost"] for one in told] == [[]] * 3
    assert [one["refused"] for one in told] == [[]] * 3
