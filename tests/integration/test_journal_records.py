"""Journals whose frames are whole and whose records say what no daemon says: each costs what it is about."""

import ctypes
import os
import re
import shutil
import struct

import pytest

from device import MIB
from peer import bytes_layout, wait_until
from restarts import Kept, journals, register, segments_of

pytestmark = pytest.mark.host_only("it damages the journal, which is the same on a GPU")
SEGMENT, SEGMENT_GONE, STORAGE, STORAGE_GONE, FLEETING = range(2, 7)
XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits_withSeed.restype = ctypes.c_uint64
XXH.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh(data, seed=0):
    return XXH.XXH3_64bits_withSeed(data, len(data), seed)


HEADER, HEAD, FIRST = 112, 40, 224


def read_records(fd):
    """(the header, [(type, number, payload)])"""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    records, at = [], FIRST
    while at < len(data):
        length, kind, number = struct.unpack_from("<IIQ", data, at)
        records.append((kind, number, data[at + HEAD:at + HEAD + length]))
        at += HEAD + (length + 7) // 8 * 8
    return data[:HEADER], records


def write_journal(header, records):
    """The journal's descriptor, and where each record begins, and the last one ends."""
    seed, data, before, begins = xxh(header[24:56]), bytearray(FIRST), bytes(16), []
    for kind, number, payload in records:
        begins.append(len(data))
        subject = struct.pack("<IIQ", len(payload), kind, number)
        data += subject + before
        data += struct.pack("<Q", xxh(payload, xxh(subject + before, seed ^ begins[-1]))) + payload
        data += bytes(-len(payload) % 8)
        before = subject
    one = header[:56] + before + struct.pack("<Q", len(data)) + header[80:104]
    data[:FIRST] = 2 * (one + struct.pack("<Q", xxh(one)))
    fd = os.memfd_create("gpubufd-journal")
    os.write(fd, data)
    return fd, begins + [len(data)]


DAMAGES = {
    "cut": lambda kind, number, payload: (kind, number, payload[:len(payload) // 2]),
    "longer": lambda kind, number, payload: (kind, number, payload + b"\0"),
    "zeros": lambda kind, number, payload: (kind, number, bytes(len(payload))),
    "ones": lambda kind, number, payload: (kind, number, payload[:8] + b"\xff" * (len(payload) - 8)),
    "nothing": lambda kind, number, payload: (kind, number, b""),
    "of nothing": lambda kind, number, payload: (kind, 0, payload),
    "of no kind": lambda kind, number, payload: (99, number, payload),
    "its texts": lambda kind, number, payload: (kind, number, payload.replace(b'"name":', b'"name" ')),
}


class Damaged:
    """The remains of a daemon, to be handed to others with one record changed."""

    def __init__(self, directory):
        self.kept, self.place = Kept(directory), os.path.join(directory, "tier")
        self.saved = self.place + ".saved"
        os.mkdir(self.place)
        self.options = ("--tier", f"disk:64M:{self.place}", "--grace", "60000")
        peer = self.kept.start(*self.options)
        peer.put("a", b"a" * 1000)
        peer.call("alias", name="a/slice", of="a", slice={"offset": 400, "length": 500})
        peer.put("former", b"f" * 1000, mode="0640")  # in a segment of its own: what is lost is written over
        place = peer.call("stat", name="former")["object"]["layout"]["data"]
        peer.call("delete", name="former")
        peer.put("later", b"l" * 1000, mode="0640")
        assert peer.call("stat", name="later")["object"]["layout"]["data"] == place
        peer.put("large", b"l" * 3 * MIB)
        register(peer, "registered", b"r" * 100)
        peer.put("spilled", b"s" * MIB)
        peer.call("move", name="spilled")
        peer.put("empty", b"")
        peer.put("deleted", b"d" * 5 * MIB)
        peer.call("delete", name="deleted")
        peer.call("trim")
        self.names = peer.names()
        self.segments = {name: segments_of(peer, name) for name in self.names}
        self.version = max(peer.call("stat", name=n)["object"]["version"] for n in self.names)
        peer.close()
        self.kept.crash()
        self.fds = self.kept.fds
        shutil.copytree(self.place, self.saved)
        (journal,) = [fd for name, fd in self.fds if name.startswith("journal")]
        self.header, self.records = read_records(journal)

    def victims(self, i):
        """The objects that the record is about, if it is the last word on them."""
        kind, number, payload = self.records[i]
        groups = [{SEGMENT, SEGMENT_GONE}, {STORAGE, STORAGE_GONE, FLEETING}]
        same = next((g for g in groups if kind in g), set())
        if any(k in same and n == number for k, n, _ in self.records[i + 1:]):
            return set()
        if kind == SEGMENT:
            return {n for n in self.names if number in self.segments[n]}
        return {n for n in self.names if kind == STORAGE and f'"name":"{n}"'.encode() in payload}

    def start(self, records, spoil=None):
        """`spoil` gets the journal's descriptor, and where the records are."""
        shutil.rmtree(self.place)
        shutil.copytree(self.saved, self.place)
        journal, begins = write_journal(self.header, records)
        if spoil:
            spoil(journal, begins)
        self.kept.fds = [(name, journal if name.startswith("journal") else os.dup(fd))
                         for name, fd in self.fds]
        return self.kept.start(*self.options)

    def try_one(self, i, change):
        """One record says something else; returns what is lost, and the log."""
        changed = change(*self.records[i])
        return self.try_all(self.start(self.records[:i] + [changed] + self.records[i + 1:]), self.victims(i))

    def try_all(self, peer, lost):
        """Checks that nothing is lost but what may be, and that the next daemon has the same."""
        there = set(peer.names())
        assert set(self.names) - lost <= there <= set(self.names) | {"former", "deleted"}
        for name in set(self.names) - lost:
            data = peer.open_object(name).read()
            assert data == name[:1].encode() * len(data)
        assert peer.put("new", b"n") > self.version
        there = peer.names()
        wait_until(lambda: len(journals(self.kept.process.pid)) == 1)  # while it is written anew there are two
        peer.close()
        first = self.kept.crash()
        peer = self.kept.start(*self.options)
        assert peer.names() == there
        peer.close()
        second = self.kept.crash()
        assert "record ignored" not in second, "the journal was written anew"
        for _, fd in self.kept.fds:
            os.close(fd)
        return set(self.names) - set(there), first

    def close(self):
        self.kept.fds = self.fds
        self.kept.close()


@pytest.fixture
def damaged(directory):
    one = Damaged(directory)
    yield one
    one.close()


def test_nothing_wrong(damaged):
    lost, log = damaged.try_one(0, lambda *record: record)
    assert not lost and "record ignored" not in log


# RELIABILITY.md: The daemon ends 7
def test_each_record_in_turn(damaged):
    """It is told, it costs what it is about, and the next daemon does not meet it again. Each record is damaged in one
    way, as `fuzz_restore` does in any; there are several records of each kind, which meet several ways."""
    found, ways = set(), list(DAMAGES)
    for i in range(len(damaged.records)):
        damage = ways[i % len(ways)]
        lost, log = damaged.try_one(i, DAMAGES[damage])
        found |= lost
        assert lost <= damaged.victims(i), damage
        if lost:
            assert "record ignored" in log, damage
        if DAMAGES[damage](*damaged.records[i])[2] != damaged.records[i][2]:
            assert lost or not damaged.victims(i), (damage, damaged.records[i])
    assert found == set(damaged.names), "each of them was hit once"


# RELIABILITY.md: The daemon ends 7
@pytest.mark.parametrize("old, new", [(rb'"name":"a/slice"', rb'"name" "a/slice"'),
                                      (rb'("name":"a/slice".*?"offset":)\d{3}', rb"\g<1>999")],
                         ids=["its text", "its buffer lies elsewhere"])
def test_an_alias_alone(damaged, old, new):
    """The storage stays, and its other names."""
    for i, (kind, _, _) in enumerate(damaged.records):
        if kind == STORAGE and damaged.victims(i) == {"a", "a/slice"}:
            lost, log = damaged.try_one(
                i, lambda kind, number, payload: (kind, number, re.sub(old, new, payload)))
            assert lost == {"a/slice"}
            assert log.count("journal record ignored") == 1 and "name=a/slice" in log
            return
    assert False, "no such record"


# RELIABILITY.md: The daemon ends 7
def test_two_in_one_place(damaged):
    """The one that was recorded later is what is there."""
    gone = [i for i, (kind, _, _) in enumerate(damaged.records) if kind == STORAGE_GONE]
    assert len(gone) == 2
    for i in gone:
        lost, _ = damaged.try_one(i, lambda kind, number, payload: (kind, 0, b""))
        assert not lost


# ---- frames that are not whole -----------------------------------------------------------------


def flip(journal, at):
    (byte,) = os.pread(journal, 1, at)
    os.pwrite(journal, bytes([byte ^ 0x10]), at)


# RELIABILITY.md: The daemon ends 16
def test_one_flipped_byte(damaged):
    """It costs the objects of the record that it is in, as far as that was the last word on them. It is in the head
    and in the payload by turns."""
    found = set()
    for i, (_, _, payload) in enumerate(damaged.records):
        at = i % HEAD if i % 2 or not payload else HEAD + i * 7 % len(payload)
        peer = damaged.start(damaged.records, lambda journal, begins, i=i, at=at: flip(journal, begins[i] + at))
        assert "deleted" not in peer.names()
        lost, log = damaged.try_all(peer, damaged.victims(i))
        assert log.count("journal record ignored") == 1 and "it is damaged" in log
        found |= lost
    assert found == set(damaged.names), "each of them was hit once"


# RELIABILITY.md: The daemon ends 17
def test_cut_between_records(damaged):
    """It is noticed. Without its last record alone the journal tells what that was about; else no storage is
    believed, since any of them may have changed."""
    for i in [*range(0, len(damaged.records) - 1, 3), len(damaged.records) - 1]:
        last = i == len(damaged.records) - 1
        peer = damaged.start(damaged.records, lambda journal, begins, i=i: os.truncate(journal, begins[i]))
        if not last:
            assert peer.names() == []
        _, log = damaged.try_all(peer, damaged.victims(i) if last else set(damaged.names))
        assert log.count("journal record ignored") == 1
        assert ("it is damaged" if last else "more than one is damaged or missing") in log


# RELIABILITY.md: The daemon ends 8
def test_numbers_after_cuts(directory):
    """An instance that goes on gives no version twice, and no segment's number, wherever its journal is cut, time and
    again."""
    kept, seen, instances = Kept(directory), set(), []
    for cut in (0.9, 0.1, 0.5, 0.02, 0.7, 0, -1):
        peer = kept.start("--grace", "60000")
        instance = peer.call("hello", protocol=1)["instance"]
        instances += [instance] if instance not in instances else []
        anew = peer.names() == []
        for i in range(12):
            number = (instance, "version", peer.put(f"{cut}/{i}", b"x"))
            assert number not in seen
            seen.add(number)
        numbers = {(instance, "segment", segment) for segment in segments_of(peer, f"{cut}/0")}
        assert not (anew and numbers & seen)
        seen |= numbers
        peer.close()
        kept.crash()
        (journal,) = [fd for name, fd in kept.fds if name.startswith("journal")]
        os.truncate(journal, max(0, FIRST + int((os.fstat(journal).st_size - FIRST) * cut)))
    peer = kept.start()
    assert peer.call("hello", protocol=1)["instance"] not in instances, "without a header it is another"
    assert len(instances) == 1
    peer.close()
    kept.close()


# RELIABILITY.md: The daemon ends 5
def test_memory_that_no_record_has_is_nobodys(directory):
    """Whoever writes to a range whose record is lost harms nobody before the grace period is over."""
    kept = Kept(directory)
    peer = kept.start("--grace", "60000")
    peer.put("a", b"a" * 1000)
    lease = peer.call("create", name="written", layout=bytes_layout(1000))
    at = lease["object"]["layout"]["data"]
    kept.crash()
    (journal,) = [fd for name, fd in kept.fds if name.startswith("journal")]
    header, records = read_records(journal)
    spoiled, begins = write_journal(header, records)
    place = [begins[i] for i, (kind, _, _) in enumerate(records) if kind == FLEETING][-1]
    flip(spoiled, place + HEAD)
    kept.fds = [(name, spoiled if fd == journal else fd) for name, fd in kept.fds]
    os.close(journal)
    for i in range(3):
        with kept.start("--grace", "60000") as peer:
            wait_until(lambda: len(journals(kept.process.pid)) == 1)
            for j in range(20):
                peer.put(f"n{i}/{j}", b"n" * 1000)
                found = peer.call("stat", name=f"n{i}/{j}")["object"]["layout"]["data"]
                assert (found["segment"] != at["segment"] or found["offset"] >= at["offset"] + 1000
                        or found["offset"] + 1000 <= at["offset"])
            assert "a" in peer.names()
        kept.crash()
    with kept.start("--grace", "1") as peer:

        def is_handed_out():
            made = peer.call("create", name="written", layout=bytes_layout(1000))
            peer.call("release", lease=made["lease"])
            return made["object"]["layout"]["data"]["segment"] == at["segment"]

        wait_until(is_handed_out)
        assert len(peer.names()) == 61
    kept.close()
