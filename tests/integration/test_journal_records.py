"""Journals whose frames are whole and whose records say what no daemon says: each costs what it is about."""

import ctypes
import os
import shutil
import struct

import pytest

from device import MIB
from peer import wait_until
from restarts import Kept, journals, register, segments_of

pytestmark = pytest.mark.host_only("it damages the journal, which is the same on a GPU")
COUNTERS, SEGMENT, SEGMENT_GONE, STORAGE, STORAGE_GONE, FLEETING = range(1, 7)
XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits_withSeed.restype = ctypes.c_uint64
XXH.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh(data, seed=0):
    return XXH.XXH3_64bits_withSeed(data, len(data), seed)


def read_records(fd):
    """(the header, [(type, payload)])"""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    records, at = [], 64
    while at < len(data):
        length, kind = struct.unpack_from("<II", data, at)
        records.append((kind, data[at + 16:at + 16 + length]))
        at += 16 + (length + 7) // 8 * 8
    return data[:64], records


def write_journal(header, records):
    seed, data = xxh(header[24:56]), bytearray(header)
    for kind, payload in records:
        head = struct.pack("<II", len(payload), kind)
        data += head + struct.pack("<Q", xxh(payload, xxh(head, seed ^ len(data)))) + payload
        data += bytes(-len(payload) % 8)
    fd = os.memfd_create("gpubufd-journal")
    os.write(fd, data)
    return fd


def number_of(payload):
    return struct.unpack_from("<Q", payload)[0]


DAMAGES = {
    "cut": lambda kind, payload: (kind, payload[:len(payload) // 2]),
    "longer": lambda kind, payload: (kind, payload + b"\0"),
    "zeros": lambda kind, payload: (kind, payload[:8] + bytes(len(payload) - 8)),
    "ones": lambda kind, payload: (kind, payload[:16] + b"\xff" * (len(payload) - 16)),
    "nothing": lambda kind, payload: (kind, b""),
    "of no kind": lambda kind, payload: (99, payload),
    "its texts": lambda kind, payload: (kind, payload.replace(b'"name":', b'"name" ')),
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
        peer.call("alias", name="a/slice", of="a", slice={"offset": 3, "length": 5})
        peer.put("large", b"l" * 3 * MIB)
        register(peer, "registered", b"r" * 100)
        peer.put("spilled", b"s" * MIB)
        peer.call("spill", name="spilled")
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
        kind, payload = self.records[i]
        groups = [{SEGMENT, SEGMENT_GONE}, {STORAGE, STORAGE_GONE, FLEETING}]
        same = next((g for g in groups if kind in g), set())
        if any(k in same and number_of(p) == number_of(payload) for k, p in self.records[i + 1:]):
            return set()
        if kind == SEGMENT:
            return {n for n in self.names if number_of(payload) in self.segments[n]}
        return {n for n in self.names if kind == STORAGE and f'"name":"{n}"'.encode() in payload}

    def start(self, records):
        shutil.rmtree(self.place)
        shutil.copytree(self.saved, self.place)
        self.kept.fds = [(name, write_journal(self.header, records) if name.startswith("journal")
                          else os.dup(fd)) for name, fd in self.fds]
        return self.kept.start(*self.options)

    def try_one(self, i, change):
        lost = self.victims(i)
        changed = change(*self.records[i])
        peer = self.start(self.records[:i] + [changed] + self.records[i + 1:])
        there = set(peer.names())
        assert set(self.names) - lost <= there <= set(self.names) | {"deleted"}, (i, self.records[i])
        for name in set(self.names) - lost:
            data = peer.open_object(name).read()
            assert data == (b"aaaaa" if name == "a/slice" else name[:1].encode() * len(data))
        assert peer.put("new", b"n") > self.version
        there = peer.names()
        wait_until(lambda: len(journals(self.kept.process.pid)) == 1)  # while it is written anew there are two
        peer.close()
        first = self.kept.crash()
        peer = self.kept.start(*self.options)
        assert peer.names() == there
        peer.close()
        second = self.kept.crash()
        assert "not believed" not in second, "the journal was written anew"
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
    lost, log = damaged.try_one(0, lambda kind, payload: (kind, payload))
    assert not lost and "not believed" not in log


@pytest.mark.parametrize("damage", DAMAGES)
# RELIABILITY.md: The daemon ends
def test_each_record_in_turn(damaged, damage):
    """It is told, it costs what it is about, and the next daemon does not meet it again."""
    found = set()
    for i in range(len(damaged.records)):
        lost, log = damaged.try_one(i, DAMAGES[damage])
        found |= lost
        assert lost <= damaged.victims(i)
        if lost:
            assert "not believed" in log
    if damage in ("cut", "longer", "zeros", "ones", "its texts"):
        assert found == set(damaged.names), "each of them was hit once"


# RELIABILITY.md: The daemon ends
def test_an_alias_alone(damaged):
    """The storage stays, and its other names."""
    for i, (kind, payload) in enumerate(damaged.records):
        if kind == STORAGE and damaged.victims(i) == {"a", "a/slice"}:
            lost, log = damaged.try_one(
                i, lambda kind, payload: (kind, payload.replace(b'"name":"a/slice"', b'"name" "a/slice"')))
            assert lost == {"a/slice"}
            assert log.count("record not believed") == 1 and "name=a/slice" in log
            return
    assert False, "no such record"


# RELIABILITY.md: The daemon ends
def test_two_in_one_place(damaged):
    """The one that was recorded later is what is there."""
    gone = [i for i, (kind, _) in enumerate(damaged.records) if kind == STORAGE_GONE]
    assert gone
    for i in gone:
        lost, _ = damaged.try_one(i, lambda kind, payload: (kind, b""))
        assert not lost
