"""The clients of pairs.py: sessions of processes that the test speaks for, and their part in streams (proto/wire/stream.h)."""

import collections
import os
import struct

from pairs_model import Content
from peer import Peer

SLOT_BYTES = 1000  # of a stream
# Errors that say that there is not enough of something.
SCARCE = {"limit", "no_space", "timeout"}


class Difference(AssertionError):
    """The daemon does something else than the model."""


class Ended(Exception):
    """The daemon has ended the client's session in the middle of a step."""


class Former:
    """A lease that a client had when its connection ended."""

    def __init__(self, lease, place):
        self.version, self.number, self.name = lease.version, lease.version.number, lease.version.name
        self.write, self.parked, self.place = lease.write, lease.parked, place
        self.exclusive, self.part, self.stays = lease.exclusive, lease.part, lease.stays
        self.stamp = getattr(lease, "stamp", None)


class Client(Peer):
    """A session, and the process that it is of."""

    def __init__(self, world, actor, connected):
        super().__init__(None, connected=connected)
        self.world, self.actor = world, actor
        self.uid, self.gid = (actor.uid, actor.gid) if actor.uid is not None else (os.geteuid(), os.getegid())
        self.pid = actor.pid
        self.leases = {}
        self.places = {}  # lease -> its data's buffer
        self.former = []  # what it had in a session that has ended
        self.number = self.instance = None
        self.connected = True
        self.waits = []  # Waiting
        self.watches = {}  # number -> (prefix, kinds)
        self.told = collections.deque()
        self.provides = {}  # prefix -> when
        self.wanted = {}  # name -> the request's number and prefix
        self.retiring = set()  # segments that it was asked to unmap when it does not use them any more
        self.side = None  # what it knows of the stream that it takes part in
        self.holds = []  # sides of before, with frames that it has not given back

    def in_use(self, cached=True):
        """Segments in which it has leases that it reads or writes, or caches."""
        return {self.places[ident]["segment"] for ident, lease in self.leases.items()
                if not lease.parked and (cached or not lease.cached) and self.places[ident]["bytes"]}

    def mapped(self):
        return {ident for ident, _ in self.segments}

    def bytes_of(self, place, offset, length):
        return os.pread(self.segment(place["segment"]).fd, length, place["offset"] + offset)

    def fill(self, place, data, offset=0):
        fd = self.segments[(place["segment"], "rw")].fd
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], place["offset"] + offset + done)


class Waiting:
    """A request that is answered later. `act(result or RpcError)`."""

    def __init__(self, client, ident, kind, name, act, exclusive=False):
        self.client, self.ident, self.kind, self.name, self.act = client, ident, kind, name, act
        self.exclusive = exclusive


class Side:
    """The pages and the memory of frames by which a session takes part in a stream (proto/wire/stream.h)."""

    SLOT, AT, CLAIM_FROM = 64 + 128 * 8, 64, 16
    OUT = 1 << 63

    def __init__(self, world, client, lease, slots, told):
        self.world, self.client, self.lease, self.slots = world, client, lease, slots
        self.name = lease.version.name
        place = client.places[lease.ident]
        self.memory, self.start = os.dup(client.segment(place["segment"]).fd), place["offset"]
        self.fds, client.joined = client.joined, {}
        self.joined(told)

    def word(self, page, at):
        return struct.unpack("<Q", os.pread(self.fds[page], 8, at))[0]

    def put(self, page, at, value):
        os.pwrite(self.fds[page], struct.pack("<Q", value), at)

    def roster(self):
        """(active, epoch, writer, over, hold, lag)"""
        active, epoch, writer, over = struct.unpack_from("<QIII", data := os.pread(self.fds["roster"], 256, 0))
        return active, epoch, writer, over, data[20:84], data[84:148]

    def ask_again(self, since):
        """The pages of those who have come since."""
        if not self.client.connected:
            return None
        told = self.world.ask(self.client, "join", None, lease=self.lease.ident, since=since)
        for key, fd in self.client.joined.items():
            if key in self.fds:
                os.close(self.fds[key])
            self.fds[key] = fd
        self.client.joined = {}
        return told

    def close(self):
        os.close(self.memory)
        while self.fds:
            os.close(self.fds.popitem()[1])

    def check(self):
        """The daemon's page says who takes part, and whether the last writer is over."""
        stream = self.lease.version.stream
        if self.lease.part is None or not stream:
            return
        active, _, writer, over = self.roster()[:4]
        if (active, writer, over) != (stream.active, stream.writer, stream.over):
            raise Difference(f"{self.name}: the roster says {active:#x}, writer {writer}, over {over}; expected "
                             f"{stream.active:#x}, {stream.writer}, {stream.over}")


class WriterSide(Side):
    def joined(self, told):
        self.number, self.epoch, self.count = told["writer"], told["epoch"], 0
        self.claims = {claim["reader"] for claim in told["claims"]}
        self.frames, self.newest = [0] * self.slots, None

    def act(self, rng):
        active, epoch, _, _, hold, lag = self.roster()
        while epoch != self.epoch and self.client.connected:
            told = self.ask_again(self.epoch)
            if told is None:
                return  # for want of descriptors: it writes nothing meanwhile
            self.claims |= {claim["reader"] for claim in told["claims"]}
            self.epoch = told["epoch"]
        if epoch != self.epoch:
            return
        self.publish(active, hold, lag)

    def publish(self, active, hold, lag):
        busy, kept = set(), 1 << 62
        head = self.number << 40 | self.count
        for reader in (i for i in range(64) if active >> i & 1):
            held = self.word(reader, 0) | self.word(reader, 8) << 64
            slots = [i for i in range(128) if held >> i & 1]
            busy.update(slots[:hold[reader]])
            wanted = self.word(reader, self.CLAIM_FROM)
            if wanted:
                kept = min(kept, max(wanted, head + 1 - lag[reader]))
        free = [i for i in range(self.slots) if i != self.newest and i not in busy and self.frames[i] < kept]
        if not free:
            raise Difference(f"no slot of {self.name} is free: {busy} are held, {self.newest} is the newest")
        slot = min(free, key=lambda i: self.frames[i])
        self.put("page", self.SLOT + 64 * slot, self.frames[slot] | self.OUT)
        self.count += 1
        frame = head + 1
        self.world.counter += 1
        data = struct.pack("<QQ", frame, self.world.counter) + Content(self.world.counter, SLOT_BYTES).read(16, SLOT_BYTES - 16)
        os.pwrite(self.memory, data, self.start + slot * SLOT_BYTES)
        self.put("page", self.SLOT + 64 * slot, frame)
        self.put("page", self.AT + 8 * (frame % 128), frame << 7 | slot)
        self.put("page", 0, frame << 7 | slot)
        self.frames[slot], self.newest = frame, slot


class ReaderSide(Side):
    def joined(self, told):
        self.number, self.writer = told["reader"], told["writer"]
        self.last, self.missed = 0, 0
        self.held = {}  # slot -> its content
        stream = self.lease.version.stream
        self.hold, self.lag = stream.readers[self.number][1:]
        if self.lag:
            self.put("page", self.CLAIM_FROM, 1)
        if "front" in self.fds:
            self.follow(told["writer"])

    def follow(self, writer):
        self.writer = writer
        first = (writer << 40) + 1
        head = self.word("front", 0) >> 7
        if not self.last and head > first:
            first = head
        self.last = first - 1
        if self.lag:
            self.put("page", self.CLAIM_FROM, first)

    def act(self, rng):
        if self.held and (len(self.held) >= self.hold or rng.random() < 0.3):
            self.done(rng.choice(sorted(self.held)))
            return
        writer = self.roster()[2]
        if writer and (writer != self.writer or "front" not in self.fds):
            told = self.ask_again(self.writer if "front" in self.fds else 0)
            if not told or "front" not in told:
                return
            self.follow(told["writer"])
        if "front" in self.fds:
            self.read()

    def read(self):
        head = self.word("front", 0)
        newest, wants = head >> 7, self.last + 1
        if newest <= self.last:
            return
        kept = self.lag and newest - self.last <= self.lag
        for number in range(max(wants, newest - 127), newest + 1) if self.lag else [newest]:
            both = head if number == newest else self.word("front", self.AT + 8 * (number % 128))
            if both >> 7 == number and self.claim(number, both & 127):
                if kept and number != wants:
                    raise Difference(f"{self.name}: {wants} to {number - 1} are missed, and {self.lag} are kept")
                self.last = number
                if self.lag:
                    self.put("page", self.CLAIM_FROM, number + 1)
                return
        raise Difference(f"{self.name}: the newest frame cannot be claimed")

    def claim(self, number, slot):
        word = 8 * (slot // 64)
        held = self.word("page", word)
        if slot in self.held:
            raise Difference(f"{self.name}: frame {number} is in slot {slot}, which is held")
        self.put("page", word, held | 1 << slot % 64)
        if self.word("front", self.SLOT + 64 * slot) != number:
            self.put("page", word, held)
            return False
        self.held[slot] = data = self.content(slot)
        frame, ident = struct.unpack_from("<QQ", data)
        if frame != number or data[16:] != Content(ident, SLOT_BYTES).read(16, SLOT_BYTES - 16):
            raise Difference(f"{self.name}: frame {number} in slot {slot} is torn: {data[:32].hex()}")
        return True

    def content(self, slot):
        return os.pread(self.memory, SLOT_BYTES, self.start + slot * SLOT_BYTES)

    def done(self, slot):
        word = 8 * (slot // 64)
        self.put("page", word, self.word("page", word) & ~(1 << slot % 64))
        del self.held[slot]

    def check(self):
        super().check()
        for slot, data in self.held.items():
            if self.content(slot) != data:
                raise Difference(f"{self.name}: a frame that {self.world.who(self.client)} holds was overwritten")
