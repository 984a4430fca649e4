"""The objects that must be there: kept from what clients were told, never from what the daemon says.

A client notes in shared memory what it is about to do, and how it went; the notes outlive it. Only one
client at a time changes the objects of a namespace, so that its notes, in their order, are their history.
A change that it was not told of may have happened or not: the name then has several possible states, until
the daemon is asked, which must say one of them and stay with it.
"""

import hashlib
import json
import mmap
import random
import struct

# ---- content ----

NOISE_BYTES = 8 << 20
NOISE = random.Random(20).randbytes(NOISE_BYTES)  # every object is a piece of it, after its head
HEAD = struct.Struct("<QQQQ")  # of an object: magic, identity, bytes, identity again
MAGIC = 0x6b616f7366756267


def noise_at(identity):
    """Where in NOISE the content of an object lies, which no other is likely to share."""
    return identity * 2654435761 % (NOISE_BYTES // 2)


def head_of(identity, count):
    return HEAD.pack(MAGIC, identity, count, identity)[:count]


def expected(identity, count, offset, length):
    """The bytes [offset, offset + length) of an object."""
    head = head_of(identity, count)
    start = noise_at(identity) - len(head)
    body = NOISE[start + max(offset, len(head)):start + max(offset + length, len(head))]
    return head[offset:offset + length] + body


def identity_in(data):
    """(identity, bytes) that the head of a whole object says; None if it is none."""
    magic, identity, count, again = HEAD.unpack_from(data)
    return (identity, count) if magic == MAGIC and identity == again else None


def identity_of(made):
    """Identity of an object with a known layout and label, and unknown content; its whole bytes are 0."""

    def said(value):
        if isinstance(value, list):
            return [said(one) for one in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"segment", "offset", "bytes"}:
            return value["bytes"]  # where it lies changes
        return {key: said(one) for key, one in value.items() if key != "null_count"}  # and that at the seal

    text = json.dumps([said(made["layout"]), made.get("label")], sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") | 1


def has_layout_alone(value):
    return value[1] == 0


# ---- what may be under a name: None, or (identity, bytes, offset, length, pinned) ----

PUT, DELETE, PIN, UNPIN, ALIAS = "put", "delete", "pin", "unpin", "alias"
KINDS = [None, PUT, DELETE, PIN, UNPIN, ALIAS]
INTENDED, DONE, NOT_DONE, UNKNOWN = 1, 2, 3, 4
OUTCOMES = [None, "no answer", "done", "not done", "not known"]


def apply(kind, value, state):
    """The state after what was done."""
    if kind in (PUT, ALIAS):
        return (*value, False)
    if kind == DELETE or state is None:
        return None
    return (*state[:4], kind == PIN)


def after(kind, outcome, value, states):
    """The possible states after it."""
    if outcome == NOT_DONE:
        return states
    done = {apply(kind, value, state) for state in states}
    return done if outcome == DONE else states | done


class Notes:
    """A client's, in memory that it shares with the harness.

    A note is there from when its outcome is, which is one byte: a client is killed before that is written,
    or after. Nothing longer may decide that, since struct.pack_into() writes zeros before what it packs.
    """

    RECORD = struct.Struct("<BBHIQQQQ")  # kind, outcome, name, version, identity, bytes, offset, length
    OUTCOME, VERSION = 1, 4  # their offsets
    TEXT = 192 << 10

    def __init__(self):
        self.memory = mmap.mmap(-1, 256 << 10)
        self.used = 0

    def clear(self):
        """(in the harness) While the client does nothing; it then has to begin()."""
        self.memory[:self.TEXT + 1] = bytes(self.TEXT + 1)

    def begin(self):
        """(in the client)"""
        self.used = 0

    def intend(self, kind, name, value=(0, 0, 0, 0)):
        """Its number, for end()."""
        number = self.used
        assert (number + 1) * self.RECORD.size <= self.TEXT, "too many notes in one round"
        self.RECORD.pack_into(self.memory, number * self.RECORD.size, KINDS.index(kind), 0, name, 0,
                              *value)
        self.end(number, INTENDED)
        self.used += 1
        return number

    def end(self, number, outcome):
        self.memory[number * self.RECORD.size + self.OUTCOME] = outcome

    def told(self, number, version):
        """The version that was given, before end()."""
        struct.pack_into("<I", self.memory, number * self.RECORD.size + self.VERSION, version)

    def versions(self):
        """[(version, name)…] that clients were told of; 0: it may have been told, and was not noted."""
        found = []
        for at in range(0, len(self.read()) * self.RECORD.size, self.RECORD.size):
            _, outcome, name, version, *_ = self.RECORD.unpack_from(self.memory, at)
            if outcome == DONE and version:
                found.append((version, name))
        return found

    def read(self):
        """[(kind, outcome, name, value)…]"""
        records = []
        for at in range(0, self.TEXT - self.RECORD.size + 1, self.RECORD.size):
            kind, outcome, name, _, *value = self.RECORD.unpack_from(self.memory, at)
            if not outcome:
                break
            records.append((KINDS[kind], outcome, name, tuple(value)))
        return records

    def full(self):
        return (self.used + 16) * self.RECORD.size > self.TEXT

    def fail(self, text):
        data = text.encode(errors="replace")[:32 << 10] + b"\0"
        self.memory[self.TEXT:self.TEXT + len(data)] = data

    def failure(self):
        data = bytes(self.memory[self.TEXT:])
        return data[:data.index(b"\0")].decode(errors="replace")
