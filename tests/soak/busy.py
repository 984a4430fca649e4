"""A client that is there to be killed: it publishes, replaces, deletes, pins, aliases, moves, reads and
holds objects until it is told to stop; then it says what it holds, having looked at all of it.

It is forked from the harness, before which no CUDA has been used and no connection made.
"""

import ctypes
import fcntl
import json
import os
import random
import traceback
from typing import NamedTuple

import truth
from client import BUSY, CLOSED, DENIED, NO_SPACE, NOT_FOUND, STALE, TIMEOUT, UNSUPPORTED, Client
from truth import ALIAS, DELETE, DONE, NOT_DONE, PIN, PUT, UNKNOWN, UNPIN

from layouts import a_layout, counts, replaced  # (client.py knows where they are)
from peer import Closed, Peer, RpcError

NAMES = 6  # of a namespace, that are published; and as many that are aliases of them
ALL = 2 * NAMES + 4  # and those that have any layout
SIZES = [1, 31, 100, 4000, 4096, 60_000, 300_000, 700_000, 1_100_000, 2_500_000]
HELD = 4  # objects that it has open, at most
WAIT_MS = 20

NOISE = ctypes.create_string_buffer(truth.NOISE, truth.NOISE_BYTES)
NOISE_ADDRESS = ctypes.addressof(NOISE)
memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Mood(NamedTuple):
    """Clients' preferences in a round: the odds of Worker.DEEDS, and of SIZES."""
    deeds: list
    sizes: list


MOODS = {
    "any": Mood([30, 8, 6, 8, 25, 6, 6, 12, 1, 0, 12], [1, 1, 4, 4, 4, 6, 4, 3, 2, 1]),
    # Small ones change so often that the journal has to be written anew.
    "changes": Mood([40, 4, 30, 20, 2, 1, 3, 0, 0, 0, 10], [1, 1, 4, 4, 4, 0, 0, 0, 0, 0]),
    # Little is there for long: segments are made, and go.
    "segments": Mood([50, 0, 0, 2, 2, 0, 0, 0, 0, 60, 5], [1, 1, 1, 1, 1, 2, 2, 4, 4, 4]),
    # More than the device and the host tier hold, and hardly anything that must stay there.
    "tiers": Mood([20, 2, 1, 2, 20, 2, 15, 35, 0, 0, 5], [0, 0, 1, 1, 2, 4, 4, 6, 6, 4]),
}


class Wrong(Exception):
    """Something that must not be."""


def name_of(namespace, number):
    if number < NAMES:
        return f"n{namespace}/{number}"
    if number < 2 * NAMES:
        return f"n{namespace}/alias/{number - NAMES}"
    return f"n{namespace}/layout/{number - 2 * NAMES}"


class Worker:
    def __init__(self, library, path, device, control, notes, running, number):
        self.client = Client(library, path, device)
        self.path = path
        self.device = device
        self.control = control
        self.notes = notes
        self.running = running
        self.buffer = ctypes.create_string_buffer(1 << 16)
        self.held = []  # [object, what must be in it]
        self.identities = number << 32
        self.states = {}
        self.mood = MOODS["any"]

    # ---- content ----

    def room(self, count):
        if len(self.buffer) < count:
            self.buffer = ctypes.create_string_buffer(count)
        return ctypes.addressof(self.buffer)

    def content(self, made):
        """Reads it all: (address, bytes)"""
        count = self.client.length(made)
        address = self.room(count)
        code = self.client.read(made, address, count) if count else 0
        if code < 0:
            raise Wrong(f"read: {code} {self.client.why()}")
        return address, count

    def check(self, made, value, what):
        """Checks that the content is what it must be: (identity, bytes, offset, length)."""
        address, count = self.content(made)
        identity, whole, offset, length = value
        if count != length:
            raise Wrong(f"{what}: {count} bytes, expected {value}")
        head = truth.head_of(identity, whole)[offset:offset + length]
        if ctypes.string_at(address, len(head)) != head:
            raise Wrong(f"{what}: begins with {ctypes.string_at(address, min(count, 32)).hex()}, "
                        f"expected {value}")
        start = truth.noise_at(identity) - len(truth.head_of(identity, whole))
        if memcmp(address + len(head), NOISE_ADDRESS + start + offset + len(head),
                  count - len(head)):
            data, wanted = ctypes.string_at(address, count), truth.expected(*value)
            bad = [i for i in range(count) if data[i] != wanted[i]]
            found = data[bad[0]:bad[0] + 32]
            raise Wrong(f"{what}: {len(bad)} of {count} bytes differ, from {bad[0]} to {bad[-1]}, "
                        f"where {found.hex()} is ({'zeros' if not any(data[bad[0]:bad[-1]]) else 'other content'}"
                        f"); expected {value}")

    def check_any(self, made, what):
        """Of a whole object, which says itself what it is."""
        address, count = self.content(made)
        if count < truth.HEAD.size:
            return None
        said = truth.identity_in(ctypes.string_at(address, truth.HEAD.size))
        if not said or said[1] != count:
            raise Wrong(f"{what}: {count} bytes that begin with "
                        f"{ctypes.string_at(address, 32).hex()}")
        value = (*said, 0, count)
        self.check(made, value, what)
        return value

    # ---- changing ----

    def note(self, kind, number, value, code, fails=()):
        """Notes the outcome `code` of a change; `fails`: codes of changes that were not made."""
        if code >= 0:
            outcome = DONE
        elif code == CLOSED:
            outcome = UNKNOWN
        elif code in fails:
            outcome = NOT_DONE
        else:
            raise Wrong(f"{kind} {name_of(self.namespace, number)} {value}, which may be "
                        f"{self.states[number]}: {code} {self.client.why()}")
        self.notes.end(self.noted, outcome)
        self.states[number] = truth.after(kind, outcome, value, self.states[number])
        return outcome

    def put(self, rng, number):
        name = name_of(self.namespace, number)
        self.identities += 1
        count = rng.choices(SIZES, self.mood.sizes)[0]
        value = (self.identities, count, 0, count)
        if self.device == "host" and rng.random() < 0.1:
            self.register(rng, number, name, value)
            return
        made = self.client.create(name, count, rng.choice([0o600, 0o640, 0o644]), WAIT_MS)
        if isinstance(made, int):
            if made not in (NO_SPACE, TIMEOUT, CLOSED):
                raise Wrong(f"create {name} of {count}: {made} {self.client.why()}")
            return
        if not self.fill(made, value):
            return
        if rng.random() < 0.1:  # given up
            self.client.release(made)
            return
        self.noted = self.notes.intend(PUT, number, value)
        code = self.client.seal(made)
        if code >= 0:
            self.notes.told(self.noted, self.client.identity(made)[1])
        outcome = self.note(PUT, number, value, code, (STALE,))
        if outcome == DONE and rng.random() < 0.3:
            self.hold(made, value)
        else:
            self.client.release(made)

    def fill(self, made, value):
        identity, count = value[:2]
        head = truth.head_of(identity, count)
        code = self.client.write(made, 0, head, len(head))
        rest = count - len(head)
        if code == 0 and rest:
            code = self.client.write(made, len(head), NOISE_ADDRESS + truth.noise_at(identity), rest)
        if code < 0:
            why = self.client.why()
            self.client.release(made)
            if code not in (STALE, CLOSED):  # the connection broke
                raise Wrong(f"write: {code} {why}")
        return code >= 0

    def register(self, rng, number, name, value):
        fd = os.memfd_create("soak", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(fd, truth.expected(*value))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.noted = self.notes.intend(PUT, number, value)
        code = self.client.register(name, fd, value[1], 0o600)
        os.close(fd)
        self.note(PUT, number, value, code, (NO_SPACE,))

    def layout(self, rng, number):
        """An object of any layout, by hand: what is accepted has to stay. Nothing is written to it."""
        number, peer = rng.randrange(2 * NAMES, ALL), None
        try:
            with Peer(self.path) as peer:
                self.publish(rng, number, peer)
        except RpcError as error:
            if error.kind not in ("invalid", "limit", "no_space"):
                raise Wrong(f"layout {name_of(self.namespace, number)}: {error}") from error
        except (OSError, Closed):
            pass  # the daemon was killed; what is noted tells how far it came
        except AssertionError:
            if not peer or not peer.eof:  # in the middle of an answer
                raise

    def publish(self, rng, number, peer):
        layout = a_layout(rng)
        made = peer.create(name_of(self.namespace, number), layout, replace=True,
                           mode=rng.choice(["0600", "0644"]), keep=rng.choice([0, 0, 1, 3]),
                           label=rng.choice(["", "of the soak", '"keep":8,\\', f"é {number}"]))
        buffers = []
        replaced(made["object"]["layout"], buffers.append)
        value = (truth.identity_of(made["object"]), 0, 0, sum(b["bytes"] for b in buffers))
        for told in (counts(rng, layout), {}):
            self.noted = self.notes.intend(PUT, number, value)
            code = CLOSED
            try:
                sealed = peer.call("seal", lease=made["lease"], release=True, null_counts=told)
                self.notes.told(self.noted, sealed["version"])
                code = 0
            except RpcError as error:
                if error.kind != "invalid" or not told:
                    raise
                code = STALE
            finally:
                self.note(PUT, number, value, code, (STALE,))
            if code == 0:
                return

    def missing(self, number):
        """Codes by which a name is said not to be there, if that may be."""
        return (NOT_FOUND,) if None in self.states[number] else ()

    def delete(self, rng, number):
        self.noted = self.notes.intend(DELETE, number)
        code = self.client.call("delete", name=name_of(self.namespace, number))
        if code == NOT_FOUND and None in self.states[number]:
            code = 0  # now it is known
        self.note(DELETE, number, None, code)

    def pin(self, rng, number):
        kind = PIN if rng.random() < 0.3 else UNPIN
        self.noted = self.notes.intend(kind, number)
        code = self.client.call("set", name=name_of(self.namespace, number), pinned=kind == PIN)
        self.note(kind, number, None, code, self.missing(number))

    def alias(self, rng, number):
        """Makes an alias of an object whose state is known."""
        if len(self.states[number]) > 1 or None in self.states[number]:
            return
        identity, count, start, whole, _ = next(iter(self.states[number]))
        offset = rng.choice([0, 0, rng.randrange(whole)])
        length = rng.choice([whole - offset, rng.randrange(whole - offset) + 1])
        target = NAMES + number % NAMES
        value = (identity, count, start + offset, length)
        self.noted = self.notes.intend(ALIAS, target, value)
        code = self.client.call("alias", name=name_of(self.namespace, target), of=name_of(self.namespace, number),
                                slice={"offset": offset, "length": length}, replace=True)
        # A spilled object has to come back first, and there may be no room for it.
        self.note(ALIAS, target, value, code, (NO_SPACE, TIMEOUT))

    # ---- reading ----

    def hold(self, made, value):
        while len(self.held) >= HELD:
            self.client.release(self.held.pop(0)[0])
        self.held.append([made, value])

    def open(self, rng, number):
        name = name_of(rng.randrange(self.namespaces), rng.randrange(NAMES))
        made = self.client.open(name, WAIT_MS if rng.random() < 0.1 else 0)
        if isinstance(made, int):
            if made not in (NOT_FOUND, NO_SPACE, TIMEOUT, CLOSED):
                raise Wrong(f"open {name}: {made} {self.client.why()}")
            return
        try:
            value = self.check_any(made, f"open {name}")
        except Wrong:
            if not self.client.is_stale(made):
                raise
            value = None
        if value and rng.random() < 0.5:
            self.hold(made, value)
        else:
            self.client.release(made)

    def look(self, rng, number):
        """Checks that held objects have not changed."""
        if self.held:
            self.check_held(rng.choice(self.held))

    def check_held(self, entry):
        made, value = entry
        name, version = self.client.identity(made)
        if self.client.is_stale(made):
            raise Wrong(f"{name} version {version}: its lease was not resumed")
        self.check(made, value, f"held {name} version {version}")

    def give_back(self, rng, number):
        if self.held:
            self.client.release(self.held.pop(rng.randrange(len(self.held)))[0])

    # ---- moving ----

    def move(self, rng, number):
        name = name_of(rng.randrange(self.namespaces), rng.randrange(ALL))
        if rng.random() < 0.3:
            code = self.client.call("move", name=name, tier="device", wait_ms=WAIT_MS)
        else:
            code = self.client.call("move", name=name, tier=rng.choice(["host", "disk", "disk"]))
        if code < 0 and code not in (NOT_FOUND, BUSY, NO_SPACE, TIMEOUT, CLOSED, UNSUPPORTED, STALE,
                                     DENIED):
            raise Wrong(f"move {name}: {code} {self.client.why()}")

    def trim(self, rng, number):
        code = self.client.call("trim")
        if code not in (0, CLOSED, DENIED):
            raise Wrong(f"trim: {code} {self.client.why()}")

    def clear(self, rng, number):
        """Releases and unmaps everything, so that its segments are empty."""
        while self.held:
            self.give_back(rng, number)
        for each in range(ALL):
            self.delete(rng, each)
        self.trim(rng, number)

    # ---- rounds ----

    DEEDS = [put, delete, pin, alias, open, look, give_back, move, trim, clear, layout]

    def work(self, order):
        self.notes.begin()
        rng = random.Random(order["seed"])
        self.mood = MOODS[order["mood"]]
        self.namespace, self.namespaces = order["namespace"], order["namespaces"]
        self.states = {i: {tuple(s) if s else None for s in states}
                       for i, states in enumerate(order["states"])}
        while self.running[0] and not self.notes.full():
            deed = rng.choices(self.DEEDS, self.mood.deeds)[0]
            deed(self, rng, rng.randrange(NAMES) if deed is not Worker.delete else rng.randrange(ALL))
        self.come_back()
        for entry in self.held:
            self.check_held(entry)
        return {"held": [self.client.identity(made) for made, _ in self.held]}

    def come_back(self, order=None):
        """A call that is answered has made the connection anew, where it broke."""
        code = self.client.call("stats")
        if code < 0:
            raise Wrong(f"stats: {code} {self.client.why()}")
        return {}

    def verify(self, order):
        """Which of its possible states each object is in: [index…]; -1: there is no room to bring it
        back, and with `patient` there must be."""
        found = []
        for name, values in order["objects"]:
            made = self.client.open(name, 10000 if order["patient"] else 0)
            if isinstance(made, int) and made in (NO_SPACE, TIMEOUT) and not order["patient"]:
                found.append(-1)
                continue
            if isinstance(made, int):
                raise Wrong(f"open {name}, which must be one of {values}: {made} {self.client.why()}")
            if truth.has_layout_alone(values[0]):  # which the harness has compared
                self.client.release(made)
                found.append(0)
                continue
            count = self.client.length(made)
            errors = []
            for i, value in enumerate(values):
                try:
                    self.check(made, tuple(value[:4]), name)
                    found.append(i)
                    break
                except Wrong as error:
                    errors.append(str(error))
            else:
                raise Wrong(f"{name}, {count} bytes: " + "; ".join(errors))
            self.client.release(made)
        return {"found": found}

    def serve(self):
        while True:
            data = self.control.recv(1 << 20)
            if not data:
                return
            order = json.loads(data)
            answer = getattr(self, order["what"])(order)
            self.control.send(json.dumps(answer).encode())


def run(library, path, device, control, notes, running, number, uid):
    """Never returns."""
    status = 0
    try:
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        Worker(library, path, device, control, notes, running, number).serve()
    except BaseException as error:  # whatever it is, the harness is to know
        notes.fail(str(error) if isinstance(error, Wrong) else traceback.format_exc())
        status = 1
    os._exit(status)
