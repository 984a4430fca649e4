#!/usr/bin/env python3
"""One random program that plays all that holds state together, on a daemon that is killed and has too little of everything.

Clients of several users publish, read, park, cache, claim, stream, watch, provide, alias, pin, move and expire objects, on
devices and tiers that are too small, beside quotas and few descriptors. Clients are killed and hang up; the daemon is
killed, and hands over. After each step names, versions, leases, who takes part, accounts, events and every byte that a
client may read are those of the model (pairs_model.py).

    pairs.py --seed 7 --steps 1000          one world
    pairs.py --steps 100000                 worlds of random seeds, one after the other, until so many steps are done
    pairs.py --seed 7 --steps 1000 --shrink finds fewer steps that fail in the same way

A step draws its choices from the seed and its own number, and passes where it has nothing to do: so any of a program's
steps make a program. A failure prints the command that plays it again.
"""

import argparse
import bisect
import collections
import contextlib
import errno
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))

if __name__ == "__main__":  # by itself it takes the build whose grace period can be ended
    os.environ.setdefault("GPUBUF_BUILD", str(Path(__file__).resolve().parents[2] / "build/fail"))

import device as test_device  # noqa: E402
from actors import Actor  # noqa: E402
from keeper import Failpoints, end_with_parent  # noqa: E402
from pairs_model import Content, Lease, Model, Refused, Storage, Version  # noqa: E402
from peer import DEADLINE, Closed, Peer, RpcError, bytes_layout  # noqa: E402
from restarts import Supervised, daemons_of  # noqa: E402

MIB = 1 << 20
USERS = [(0, 0), (1001, 1001), (1002, 1002), (1003, 1002)]  # the last two are of one group
NAMES = ["a", "b", "b/c", "d", "e/f/g", "h"]
LIVE = ["live/1", "live/2", "live/3"]
STREAMS = ["s/1", "s/2"]
PROVIDED = ["p/1", "p/2", "p/q/3"]
LONG = 600_000  # ms: longer than any program takes
GRANULE = 256
SLOT_BYTES = 1000  # of a stream
PAGE = 16384
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
        self.exclusive = lease.exclusive
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


ACTIONS = []


def action(weight):
    def enter(function):
        ACTIONS.append((weight, function.__name__))
        return function
    return enter


def rounded(size, unit=GRANULE):
    return -(-size // unit) * unit


class World:
    def __init__(self, seed, directory, log=None):
        self.seed, self.directory = seed, directory
        self.lines = log if log is not None else []
        self.rng = random.Random(seed)
        self.step_number = 0
        self.contents = 0
        self.clients, self.actors, self.gone = [], [], []
        self.ignored = []  # (client, id) of replies that nobody waits for
        self.coming = collections.deque()  # events that must come next
        self.late = False  # whether something that ends by itself may not have ended yet
        self.restarts = 0
        self.fresh = False  # whether the daemon is another than at the last look
        self.asked = {}  # absent name -> the client that was asked to provide it, and by which prefix
        self.counter = 0
        self.choose_limits()
        self.start()
        for user in USERS:
            self.connect_actor(Actor(self.daemon.path, *user), self.rng)

    # ---- the daemon ----

    def choose_limits(self):
        rng = self.rng
        self.nofile = rng.choice([None, None, None, 48, 64, 96, 128, 256])
        if test_device.ON_GPU:
            self.devices = ["cuda:0:24M", "cuda:1:12M", "host:16M"]
            ids = [*test_device.UUIDS[:2], "host"]
        else:
            self.devices, ids = ["host:24M"], ["host"]
        disk = rng.choice(["256M", "256M", "12M", None])
        self.roomy = disk == "256M"
        tiers = ["disk"] if disk else []
        # Where readers past their quotas are pressed: after so long their sessions end.
        presses = rng.random() < 0.2
        self.unmap_ms = 150 if presses else LONG
        self.options = ["--grace", str(LONG), "--limit", f"unmap_ms={self.unmap_ms}",
                        "--watermarks", rng.choice(["100:100", "40:60", "80:90"])]
        self.tiers = {ident: list(tiers) for ident in ids}
        if disk:
            self.place = os.path.join(self.directory, "tier")
            os.mkdir(self.place)
            self.options += ["--tier", f"disk:{disk}:{self.place}"]
        if test_device.ON_GPU:
            self.options += ["--tier", "host:8M"]
            self.tiers = {ident: [*(["host"] if ident != "host" else []), *tiers] for ident in ids}
        self.quota = {}
        if presses or rng.random() < 0.3:
            self.quota = {1001: 8 * MIB, 1002: 12 * MIB}
            self.options += ["--quota", "1001:bytes=8M", "--quota", "1002:bytes=12M"]
        self.segment_quota = None if presses else rng.choice([None, None, None, 4])
        if self.segment_quota:
            self.options += ["--limit", f"user_segments={self.segment_quota}"]
        self.crowded = bool(self.nofile) and rng.random() < 0.5
        self.config = os.path.join(self.directory, "config")
        self.write_config(rng)
        self.options += ["--config", self.config]

    def write_config(self, rng):
        """What the next daemon reads: a limit that may be lower than what clients have."""
        with open(self.config, "w") as file:
            file.write(f"limit = session_unsealed={rng.choice([1, 2, 4, 1000, 1000, 1000])}\n")

    def start(self):
        self.failpoints = Failpoints(os.path.join(self.directory, "failpoints"))
        limit = self.nofile

        def prepare():
            end_with_parent()
            if limit:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        self.daemon = Supervised(self.directory, self.options, device=self.devices,
                                 env={"GPUBUFD_FAILPOINTS": self.failpoints.path}, preexec_fn=prepare)
        self.say(f"devices {self.devices} tiers {self.tiers} nofile {limit} {' '.join(self.options)}")
        self.model = Model(self.tiers)
        self.open_eye()
        if not any(self.failpoints.hits().values()):
            raise RuntimeError("this daemon was built without failpoints")
        self.capacity = {d["id"]: d["capacity"] for d in self.eye.call("stats")["devices"]}
        self.base_fds = None

    def open_eye(self):
        """A session of the test's own, which sees everything."""
        end = time.monotonic() + DEADLINE
        while True:
            self.eye = Peer(self.daemon.path)
            try:
                self.hello = self.eye.call("hello", protocol=1, client="eye")
                self.seq = self.eye.call("watch", existing=False)["seq"]
                self.eye.events_seen = 0
                return
            except (Closed, OSError, RpcError):
                self.eye.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.002)

    def say(self, text):
        self.lines.append(f"{self.step_number:6} {text}")

    # ---- requests ----

    def pump(self, timeout=0.0):
        """Takes what has come to the clients, and answers what they are asked."""
        found = False
        waiting = {c.socket.fileno(): c for c in self.clients if c.connected}
        ready = [c for c in waiting.values() if b"\n" in c.input]
        if not ready:
            poll = select.poll()
            for fd in waiting:
                poll.register(fd, select.POLLIN)
            ready = [waiting[fd] for fd, _ in poll.poll(1000 * timeout)]
        for client in ready:
            if not client.connected:
                continue
            try:
                message = client.recv_message()
            except Closed:
                self.was_ended(client)
                continue
            found = True
            if "method" in message:
                self.notified(client, message["method"], message["params"])
            else:
                client.replies[message["id"]] = message
        return found

    def was_ended(self, client):
        """By the daemon: of a user past its quota, whose nameless versions others want."""
        if self.unmap_ms == LONG or not any(self.excess(client.uid, device) for device in self.tiers):
            raise Difference(f"the daemon has closed {self.who(client)}: {self.last_words()}")
        self.say(f"{self.who(client)} was ended")
        self.hang_up(client, remember=False)

    def excess(self, uid, device):
        """Bytes of versions without a name by which a user is past its quota."""
        used, nameless = self.model.accounts()[0].get((uid, device), 0), 0
        for storage in self.model.storages():
            if storage.device == device and uid in self.model.payers(storage) and not any(
                    v.named or not v.number for v in storage.versions):
                nameless += storage.charged or 0
        return min(nameless, max(0, used - self.quota.get(uid, used)))

    def last_words(self):
        return "".join(self.daemon.stderr().splitlines(True)[-5:])

    def reply(self, client, ident):
        """The reply, while other clients do what they are asked to."""
        end = time.monotonic() + DEADLINE
        late = time.monotonic() + 0.25
        while ident not in client.replies:
            if not client.connected:
                raise Ended
            self.pump(0.05)
            now = time.monotonic()
            if ident not in client.replies and self.model.in_grace and now > late:
                self.say("the request waits for the end of grace")
                self.over_grace()
            if now > end:
                raise Difference(f"no answer for {self.who(client)}")
        return client.reply(ident)

    def notified(self, client, method, params):
        if method == "segments.retire":
            client.retiring |= set(params["segments"])
            self.retire(client)
        elif method == "leases.recall":
            self.give_back(client, [client.leases[i] for i in params["leases"]
                                    if i in client.leases and client.leases[i].cached])
            for i in params["leases"]:  # those that have lost their slots
                if i in client.leases and not client.leases[i].cached:
                    client.leases[i].slot = None
        elif method == "event":
            client.told.append(params)
        elif method == "wanted":
            if params["name"] in client.wanted:
                raise Difference(f"{self.who(client)} is asked twice for {params['name']}")
            client.wanted[params["name"]] = params["request"], params["prefix"]
        elif method == "unwanted":
            client.wanted = {n: told for n, told in client.wanted.items() if told[0] != params["request"]}
        elif method != "shutdown":
            raise Difference(f"{method} {params}")

    def give_back(self, client, leases):
        """Leases that it has merely cached."""
        for lease in leases:
            self.send(client, "release", lease=lease.ident)
            self.model.end_lease(lease)
            client.places.pop(lease.ident)

    def retire(self, client):
        """Unmaps what it was asked for, as far as it does not read or write there."""
        used = client.in_use(cached=False)
        self.give_back(client, [lease for ident, lease in client.leases.items() if lease.cached
                                and client.places[ident]["segment"] in client.retiring - used])
        self.unmap(client, client.retiring - used)

    def send(self, client, method, **params):
        """A request whose reply nobody waits for at once."""
        self.ignored.append((client, client.request(method, **params)))

    def unmap(self, client, segments):
        mine = segments & client.mapped()
        client.retiring -= segments
        for key in [key for key in client.segments if key[0] in mine]:
            client.segments.pop(key).close()
        if mine:
            self.send(client, "unmap", segments=sorted(mine))

    def ask(self, client, method, refused=None, scarce=True, **params):
        """The result; None if it was refused, as the model says it must be (`refused`: a Refused), or for want of
        something."""
        if not client.connected:
            raise Ended
        ident = client.request(method, **params)
        try:
            result = self.reply(client, ident)
        except RpcError as error:
            self.say(f"  {self.who(client)} {method} {params}: {error}")
            if refused and error.kind in refused.kinds:
                return None
            if scarce and error.kind in SCARCE or (self.nofile and "cannot see the process" in error.message):
                self.check_refusal(client, error, params)
                return None
            expected = f"expected {refused.kinds}" if refused else "expected to be done"
            raise Difference(f"{method} {params}: {expected}: {error}") from None
        self.say(f"  {self.who(client)} {method} {params}")
        if refused:
            raise Difference(f"{method} {params}: expected {refused.kinds}, but it was done")
        return result

    def allowed(self, check, *args, **more):
        """(what the model's check gives, None), or (None, why it is refused)."""
        try:
            return check(*args, **more), None
        except Refused as refused:
            return None, refused

    def who(self, client):
        return f"uid {client.uid} pid {client.pid} session {client.number}"

    # ---- events ----

    def catch_up(self, seq=None):
        """Reads all events that have been, and tells the model."""
        if seq is None:
            seq = self.eye.call("list", limit=1)["seq"]
        while self.eye.notifications or self.seq < seq:
            message = self.eye.notification()
            if message["method"] != "event":
                raise Difference(f"{message['method']} to the eye")
            params = message["params"]
            self.seq = params["seq"]
            told = params["object"]
            self.happened(params["kind"], told["name"], told["version"])
            for client in self.clients:
                self.expect_event(client, params)

    def happened(self, kind, name, number):
        event = (kind, name, number)
        self.say(f"  event {kind} {name} {number}")
        model = self.model
        if self.coming:
            if self.coming[0] != event:
                raise Difference(f"event {event}, expected {self.coming[0]}")
            self.coming.popleft()
        elif kind == "evicted":
            told = model.evicted(self.version_of(number))
            if event in told:
                told.remove(event)
            self.coming.extend(told)
        elif kind == "spilled":
            model.left(self.version_of(number))
        elif kind == "restored":
            model.returned(self.version_of(number))
        elif model.expected and model.expected[0] == event:
            model.expected.pop(0)
        elif kind == "deleted" and self.may_expire(number):
            self.expire(self.version_of(number), event)
        else:
            raise Difference(f"event {event}, expected {model.expected[:1]}")

    def version_of(self, number):
        return next((v for v in self.model.versions if v.number == number), None)

    def may_expire(self, number):
        """From when its time was set on: the daemon may have stood still since it last read its clock."""
        return number in self.model.deadlines

    def expires_soon(self, number):
        return time.monotonic() + 0.2 >= self.model.deadlines.get(number, float("inf"))

    def expire(self, version, event):
        """Its time was over: maybe just before the request that the model has done already, and that replaced it."""
        if not version or not version.named:
            return
        versions = self.model.names[version.name]
        if versions[0] is version:
            self.model.unname(version, "deleted")
            self.model.expected.remove(event)
        else:
            for older in reversed(versions[versions.index(version):]):
                self.model.lose_name(older)

    def expect_event(self, client, params):
        """Each watch of a client is told what its user may see."""
        told = params["object"]
        for number, (prefix, kinds, since) in client.watches.items():
            owner, mode = told.get("uid"), int(told["mode"], 8)
            may = client.uid in (0, owner) or mode & (0o40 if client.gid == told["gid"] else 0o4)
            if params["seq"] > since and told["name"].startswith(prefix) and may and (
                    not kinds or params["kind"] in kinds):
                client.expects.append((number, params["seq"], params["kind"], told["name"], told["version"]))

    # ---- the end of a step ----

    def settle(self):
        """Waits for all that must come now."""
        while True:
            self.pump()
            for client in self.clients:
                if client.connected and client.retiring:
                    self.retire(client)
            for client, ident in self.ignored:
                if client.connected:
                    with contextlib.suppress(RpcError):
                        self.reply(client, ident)
            self.ignored = []
            due = next((w for c in self.clients for w in c.waits if w.ident in c.replies or self.is_due(w)), None)
            if not due:
                return
            self.answered(due)

    def answered(self, waiting):
        client = waiting.client
        try:
            result = self.reply(client, waiting.ident)
        except RpcError as error:
            result = error
        self.say(f"  {self.who(client)}: {waiting.kind} {waiting.name} is answered: "
                 f"{result if isinstance(result, RpcError) else result.get('lease')}")
        client.waits.remove(waiting)
        if waiting.kind == "claim":
            self.model.waiting[waiting.name].remove((client, waiting.exclusive))
        if waiting.kind != "room":
            self.catch_up()
        waiting.act(result)

    def is_due(self, waiting):
        """Whether the request must be answered by now."""
        if waiting.kind == "room":
            return False
        version = self.model.names.get(waiting.name, [None])[0]
        if not version or not self.model.may(waiting.client, version, 4):
            return False
        if waiting.kind == "name":
            return version.storage.resident or not version.storage.size
        return (not version.live or not self.model.may(waiting.client, version, 2)
                or self.first_that_waits(version, waiting))

    def first_that_waits(self, version, waiting):
        queue = self.model.waiting[waiting.name]
        return queue[0] == (waiting.client, waiting.exclusive) and self.model.may_write(version, waiting.exclusive)

    def compare(self):
        """Holds the daemon against the model; what ends by itself has a moment for it."""
        end = time.monotonic() + DEADLINE
        while True:
            self.settle()
            found = self.differ()
            if not found:
                break
            self.eye.call("stats")
            self.pump()
            if any(w.ident in c.replies for c in self.clients for w in c.waits):
                continue  # a request that waited was served just now
            if not self.late or time.monotonic() > end:
                raise Difference(found)
            time.sleep(0.002)
        self.late = self.fresh = False
        self.check_contents()

    def differ(self):
        """What is different, as a text; None: nothing."""
        listed = self.eye.call("list", versions=True, placements=True)
        self.catch_up(listed["seq"])
        if self.coming or self.model.expected:
            return f"events that did not come: {list(self.coming)} {self.model.expected}"
        leases = self.eye.call("leases")
        stats = self.eye.call("stats")
        sessions = self.eye.call("sessions")["sessions"]
        if stats["seq"] != listed["seq"]:
            return self.differ()  # an object has expired meanwhile
        return (self.differ_names(listed["objects"]) or self.differ_leases(leases)
                or self.differ_account(stats) or self.differ_sessions(sessions) or self.differ_events())

    def differ_names(self, listed):
        told, gone = [], []
        for one in listed:
            if one.get("gone"):
                gone.append(one)
            else:
                told.append(self.described(one))
        self.lose_silently({one["version"] for one in listed if not one.get("gone")})
        wanted = [self.expected_object(v) for name in sorted(self.model.names, key=str.encode)
                  for v in self.model.names[name]]
        if told != wanted:
            for a, b in zip(told, wanted):
                if a != b:
                    return f"object {a}\nexpected {b}"
            return f"objects {[t[:2] for t in told]}, expected {[w[:2] for w in wanted]}"
        nameless = {v.number: v for v in self.model.versions if not v.named and v.number}
        for one in gone:
            version = nameless.get(one["version"])
            if not version or version.name != one["name"]:
                return f"a version that is not there: {one}"
        return self.differ_places([o for o in listed])

    def lose_silently(self, numbers):
        """Older versions end without an event: those whose time is over, and dropped ones."""
        self.late |= any(self.may_expire(v.number) for v in self.model.versions if v.named)
        if self.fresh:  # and what has expired before the eye could watch
            for versions in list(self.model.names.values()):
                if versions[0].number not in numbers and self.may_expire(versions[0].number):
                    self.model.unname(versions[0], "deleted")
            self.model.expected.clear()
        for versions in list(self.model.names.values()):
            for version in versions[1:]:
                if version.number not in numbers and (self.may_expire(version.number) or not (
                        version.storage.held or version.storage.needed)):
                    self.say(f"  version {version.number} of {version.name} is no more")
                    self.model.lose_name(version)

    @staticmethod
    def described(one):
        stream = one.get("stream")
        return (one["name"], one["version"], one["state"], one["uid"], one["gid"], one["mode"], one["pinned"],
                one["leases"], one.get("cached", 0), one.get("parked", 0), one.get("label"), one.get("keep", 0),
                one["evict"], one["bytes"], one["ttl_ms"], one.get("older", False), one.get("live", False),
                one.get("generation"), one.get("writers"), stream and (stream["readers"], stream.get("writer")))

    def expected_object(self, v):
        stream = v.stream and (len(v.stream.readers), next((l.client.pid for l in v.leases if l.part == "writer"), None))
        return (v.name, v.number, "live" if v.live else "sealed", v.owner, v.gid, f"{v.mode:04o}", v.pinned,
                sum(lease.in_use for lease in v.leases), sum(lease.cached for lease in v.leases),
                sum(lease.parked for lease in v.leases), v.label or None, v.keep, v.evict, v.length, v.ttl_ms,
                self.model.names[v.name][0] is not v, v.live, v.generation if v.live else None,
                len(v.writers) if v.live else None, stream)

    def differ_places(self, listed):
        """Storages lie apart, those that are held lie where they lay."""
        byid = {v.number: v for v in self.model.versions if v.number}
        spans = {}
        for one in listed:
            version = byid[one["version"]]
            storage = version.storage
            if not storage.size:
                continue
            places = one["placements"]
            if (one["tier"] == "device") != bool(places):
                return f"{one['name']} is in {one['tier']}, at {places}"
            if not places and storage.resident and (storage.was_held if self.fresh else storage.held):
                return f"{one['name']} version {one['version']} is held, and is in {one['tier']}"
            storage.resident, storage.place = bool(places), tuple(places[0][:2]) if places else None
            if not places:
                if one["tier"] not in self.tiers[storage.device]:
                    return f"{one['name']} is in {one['tier']}"
                continue
            (place,) = places
            known = spans.setdefault(id(storage), (storage, place))
            if known[1] != place:
                return f"{one['name']} lies at {place} and at {known[1]}"
            if storage.charged is None:
                unit = 2 * MIB
                own = place[1] == 0 and place[2] % unit == 0
                storage.charged = rounded(storage.size, unit) if own else place[2]
        ordered = sorted((place[0], place[1], place[1] + place[2], storage.versions[0].name)
                         for storage, place in spans.values())
        for a, b in zip(ordered, ordered[1:]):
            if a[0] == b[0] and b[1] < a[2]:
                return f"{a} and {b} overlap"
        for client in self.clients:
            for ident, lease in client.leases.items():
                known = spans.get(id(lease.version.storage))
                at = client.places[ident]
                if known and not lease.parked and not lease.cached and (
                        at["segment"] != known[1][0] or not known[1][1] <= at["offset"] < known[1][1] + known[1][2]):
                    return f"{lease.version.name} lies at {known[1]}, and {self.who(client)} reads it at {at}"
        return None

    def differ_leases(self, answer):
        told = sorted((e["lease"], e["pid"], e["version"], e["access"], e.get("exclusive", False), "parked_ms" in e,
                       "cached_ms" in e, self.part_told(e.get("stream"))) for e in answer["leases"])
        wanted = sorted((lease.ident, c.pid, lease.version.number, "rw" if lease.write else "r", lease.exclusive,
                         lease.parked, lease.cached, self.part_expected(lease))
                        for c in self.clients for lease in c.leases.values())
        if told != wanted:
            return f"leases {sorted(set(told) - set(wanted))}, expected {sorted(set(wanted) - set(told))}"
        mapped = sorted((e["session"], e["segment"]) for e in answer["mapped"])
        expected = sorted((c.number, s) for c in self.clients if c.connected for s in c.mapped())
        if mapped != expected:
            return f"mapped {mapped}, expected {expected}"
        return None

    @staticmethod
    def part_told(stream):
        if not stream:
            return ()
        return (stream["reader"], stream["hold"], stream["lag"]) if "reader" in stream else ("writer",)

    @staticmethod
    def part_expected(lease):
        if lease.part is None:
            return ()
        if lease.part == "writer":
            return ("writer",)
        return (lease.part, *lease.version.stream.readers[lease.part][1:])

    def differ_account(self, stats):
        used, leases = self.model.accounts()
        self.late |= any(d["leaving"] for d in stats["devices"])  # what is being copied counts until that is done
        for one in stats["devices"]:
            if one["capacity"] != one["free"] + one["used"] + one["retained"] + one["pinned_by_clients"]:
                return f"the account of {one}"
        for tier in stats["tiers"]:
            if tier["capacity"] != tier["free"] + tier["used"]:
                return f"the account of {tier}"
        if stats["wanted"] < 0:
            return "wanted"
        if self.model.in_grace:
            return None  # ranges of unsealed objects are kept, and count for nobody
        objects = sum(d["objects"] for d in stats["devices"])
        if objects != len(self.model.versions):
            return f"{objects} objects, expected {len(self.model.versions)}"
        unknown = {(uid, s.device) for s in self.model.storages() if s.charged is None and s.size
                   for uid in self.model.payers(s)}
        for user in stats["users"]:
            uid = user["uid"]
            if user["leases"]["used"] != leases.get(uid, 0):
                return f"{user['leases']['used']} leases of uid {uid}, expected {leases.get(uid, 0)}"
            count = sum(v.owner == uid for v in self.model.versions)
            if user["objects"]["used"] != count:
                return f"{user['objects']['used']} objects of uid {uid}, expected {count}"
            for place in user["bytes"]:
                wanted = used.get((uid, place["device"]), 0)
                if (uid, place["device"]) not in unknown and place["used"] != wanted:
                    counted = [(v.name, v.number, s.charged, s.place) for s in self.model.storages() for v in s.versions
                               if uid in self.model.payers(s)]
                    return f"uid {uid} uses {place['used']} bytes of {place['device']}, expected {wanted}: {counted}"
                if place["used"] - place["nameless"] > place["quota"]:
                    return f"uid {uid} is past its quota: {place}"
        return None

    def differ_sessions(self, sessions):
        told = sorted((s["session"], s["pid"], s["uid"], s["leases"], s["cached"], s["parked"],
                       tuple(sorted(s.get("provides", ()))), s.get("wanted", 0))
                      for s in sessions if s["client"] != "eye")
        wanted = sorted((c.number, c.pid, c.uid, sum(l.in_use for l in c.leases.values()),
                         sum(l.cached for l in c.leases.values()), sum(l.parked for l in c.leases.values()),
                         tuple(sorted(c.provides)), sum(asked is c for asked, _ in self.asked.values()))
                        for c in self.clients if c.connected)
        if told != wanted:
            return f"sessions {sorted(set(told) - set(wanted))}, expected {sorted(set(wanted) - set(told))}"
        return None

    def differ_events(self):
        """Watches of clients were told what they must be, in its order."""
        end = time.monotonic() + DEADLINE
        for client in self.clients:
            while client.connected and client.expects:
                if not client.told:
                    if time.monotonic() > end:
                        return f"{self.who(client)} was not told of {client.expects}"
                    self.pump(0.01)
                    continue
                params = client.told.popleft()
                told = (params["watch"], params["seq"], params["kind"], params["object"]["name"],
                        params["object"]["version"])
                if told != client.expects[0]:
                    return f"{self.who(client)} was told {told}, expected {client.expects[0]}"
                client.expects.popleft()
            if client.told:
                return f"{self.who(client)} was told {client.told}"
        return None

    # ---- content ----

    def check_contents(self):
        rng = random.Random(self.seed ^ self.step_number)
        for client in self.clients:
            for ident, lease in client.leases.items():
                if lease.in_use and lease.version.number:
                    self.check_content(client, lease.version, client.places[ident], rng, getattr(lease, "stamp", None))
            for former in client.former:
                if not former.parked and client.remembers:
                    self.check_content(client, former.version, former.place, rng, former.stamp)
            for side in [*client.holds, *([client.side] if client.side else [])]:
                side.check()

    def check_content(self, client, version, place, rng, stamp=None, whole=False):
        if version.live:
            if stamp and client.bytes_of(place, 0, len(stamp)) != stamp:
                raise Difference(f"{version.name}: {self.who(client)} has the claim, and somebody else wrote "
                                 f"{client.bytes_of(place, 0, len(stamp))!r}")
            return
        length = version.length
        spans = [(0, 64), (length - 64, 64), (rng.randrange(max(1, length)), 4096)]
        if whole:
            spans = [(at, 1 << 16) for at in range(0, length, 1 << 16)]
        for at, count in spans:
            at = max(0, at)
            count = min(count, length - at)
            if count <= 0:
                continue
            got, wanted = client.bytes_of(place, at, count), version.storage.data.read(version.start + at, count)
            if got != wanted:
                raise Difference(f"{version.name} version {version.number} of {self.who(client)} at {at} of {length}: "
                                 f"{got[:16].hex()}, expected {wanted[:16].hex()}")

    def check_refusal(self, client, error, params):
        """That it was short of something is true."""
        if error.kind == "limit":
            limit = error.data["limit"]
            known = {"open_files", "stored_files", "user_bytes", "user_segments", "session_unsealed", "held_fds",
                     "sessions", "user_sessions"}
            if limit not in known:
                raise Difference(f"refused for {limit}: {error}")
            if limit in ("open_files", "stored_files", "sessions", "user_sessions", "held_fds") and not self.nofile:
                raise Difference(f"{error}, with descriptors to spare")
            if limit == "user_segments":
                self.check_segments(client, error)
        elif "layout" in params and not self.model.in_grace:
            size = params["layout"].get("bytes", 0)
            for one in self.eye.call("stats")["devices"]:
                if one["id"] == params.get("device", "host") and one["free"] >= rounded(size, 2 * MIB) + 4 * MIB:
                    raise Difference(f"{one['free']} bytes are free of {one['id']}: {error}")

    def check_segments(self, client, error):
        """Segments of its user that are empty, and that nobody else maps, could have gone."""
        mapped = {s for c in self.clients if c.connected for s in c.mapped()}
        empty = [s["id"] for s in self.eye.call("segments")["segments"]
                 if s["domain"] and s["domain"]["uid"] == client.uid and s["state"] == "empty" and s["id"] not in mapped]
        if empty:
            raise Difference(f"{error}, and its segments {empty} are empty")

    # ---- choosing ----

    def some_client(self, rng, condition=lambda client: True):
        found = [c for c in self.clients if c.connected and condition(c)]
        return rng.choice(found) if found else None

    def some_lease(self, rng, condition):
        found = [(c, lease) for c in self.clients if c.connected for lease in c.leases.values() if condition(lease)]
        return rng.choice(found) if found else (None, None)

    def new_content(self, size):
        self.contents += 1
        return Content(self.seed * 1000003 + self.contents, size)

    @staticmethod
    def a_size(rng):
        return rng.choice([0, 1, 31, 255, 256, 257, 3000, 65536, 300_000, 700_000, MIB, 2 * MIB + 1, 3 * MIB, 5 * MIB])

    @staticmethod
    def a_mode(rng):
        return rng.choice([0o600, 0o600, 0o644, 0o640, 0o666, 0o660])

    # ---- clients ----

    def new_client(self, actor):
        try:
            connected = actor.connect()
        except OSError as error:
            raise Difference(f"cannot connect: {error}") from None
        client = Client(self, actor, connected)
        client.expects = collections.deque()
        client.remembers = False
        return client

    def greet(self, client, cache=False, **params):
        """Says hello; False if the daemon turned the session away."""
        try:
            ident = client.request("hello", protocol=1, client=f"pid {client.pid}", cache=cache, **params)
            end = time.monotonic() + DEADLINE
            while ident not in client.replies:
                message = client.recv_message()
                if message.get("id") is None and "error" in message:
                    self.say(f"  pid {client.pid} is turned away: {message['error']['message']}")
                    if not self.nofile:
                        raise Difference(f"turned away: {message}")
                    raise Closed
                client.replies[message.get("id")] = message
                assert time.monotonic() < end
            result = client.reply(ident)
        except (Closed, OSError):
            if not self.nofile:
                raise Difference("the daemon has closed a new session") from None
            client.close()
            return None
        client.number, client.instance = result["session"], result["instance"]
        return result

    def forget_client(self, client):
        """The test's side of a session that has ended."""
        for actor_clients in (self.clients, self.gone):
            if client in actor_clients:
                actor_clients.remove(client)
        client.close()

    @action(6)
    def connect(self, rng):
        if len(self.clients) >= 9:
            return
        actors = [a for a in self.actors if a.alive]
        if actors and (rng.random() < 0.3 or len(actors) > 8):
            actor = rng.choice(actors)
        else:
            actor = Actor(self.daemon.path, *rng.choice(USERS))
        self.connect_actor(actor, rng)

    def connect_actor(self, actor, rng):
        if actor not in self.actors:
            self.actors.append(actor)
        client = self.new_client(actor)
        if self.greet(client, cache=rng.random() < 0.5):
            self.say(f"connect {self.who(client)}")
            self.clients.append(client)

    def hang_up(self, client, remember):
        """Its connection ends, and its process does not."""
        was = [Former(lease, client.places.get(ident)) for ident, lease in client.leases.items()]
        client.socket.close()
        client.connected = False
        self.end_waits(client)
        self.model.end_session(client, process_is_over=False)
        client.places.clear()
        client.holds.clear()
        client.former = was if remember else []
        client.former_number = client.number
        client.remembers = False  # nothing keeps it in its place
        client.side = None
        if not remember:
            self.forget_client(client)

    def end_waits(self, client):
        client.waits.clear()
        client.wanted.clear()
        client.expects.clear()
        client.told.clear()
        client.watches.clear()
        client.provides.clear()
        for queue in self.model.waiting.values():
            queue[:] = [one for one in queue if one[0] is not client]
        self.look_for_providers()

    @action(1)
    def close(self, rng):
        client = self.some_client(rng)
        if client:
            self.say(f"hang up {self.who(client)}")
            self.hang_up(client, rng.random() < 0.5)

    @action(1.5)
    def kill(self, rng):
        actors = [a for a in self.actors if a.alive]
        if not actors:
            return
        actor = rng.choice(actors)
        self.say(f"kill pid {actor.pid}")
        self.kill_actor(actor)

    def kill_actor(self, actor):
        pid = actor.pid
        actor.kill()
        self.actors.remove(actor)
        for client in [c for c in self.clients if c.actor is actor]:
            if client.connected:
                client.socket.close()
                client.connected = False
                self.end_waits(client)
                self.late |= any(lease.write and lease.version.live for lease in client.leases.values())
                self.model.end_session(client, process_is_over=True)
            self.forget_client(client)
        self.late |= any(lease.left and lease.client.pid == pid for v in self.model.versions for lease in v.leases)
        self.model.end_process(pid)

    @action(8)
    def come_back(self, rng):
        """A client whose connection has ended says what it had."""
        found = [c for c in self.clients if not c.connected]
        if not found:
            return
        former = rng.choice(found)
        client = self.new_client(former.actor)
        keeps = [one for one in former.former if rng.random() < 0.9]
        objects = [self.resumed(one) for one in keeps]
        self.say(f"come back pid {client.pid} for {objects}")
        told = self.greet(client, cache=rng.random() < 0.3, resume={
            "instance": former.instance, "objects": objects, "session": former.former_number})
        if told is None:
            return
        self.clients.remove(former)
        self.clients.append(client)
        client.segments, former.segments = former.segments, {}
        self.resume(client, former, keeps, told["resumed"])
        if former.side and former.side.lease in client.leases.values() and getattr(former.side, "held", None):
            client.holds.append(former.side)
        client.holds += former.holds
        former.close()

    @staticmethod
    def resumed(former):
        told = {"name": former.name, "version": former.number}
        if former.parked:
            told["parked"] = True
        elif former.write:
            told["write"] = True
        elif former.place["bytes"]:
            told.update(segment=former.place["segment"], offset=former.place["offset"])
        return told

    def resume(self, client, former, keeps, resumed):
        segments, unread = set(), set()
        for one, ident in zip(keeps, resumed):
            must = self.must_resume(client, former, one)
            if ident is None:
                if must:
                    raise Difference(f"{one.name} version {one.number} is not resumed for {self.who(client)}")
                continue
            if must is None:
                raise Difference(f"{one.name} version {one.number} is resumed for {self.who(client)}, and is not there")
            self.take_again(client, former, one, ident)
            if one.parked or not one.version.storage.size:
                continue
            if one.place["bytes"]:
                segments.add(one.place["segment"])
            else:  # a part without bytes: its segment counts as mapped all the same
                unread.add(one.version.storage.place[0])
        for version in list(self.model.versions):  # what it does not know of has ended
            for lease in [l for l in version.leases if l.left and l.client is former]:
                self.model.end_lease(lease)
        for key in [key for key in client.segments if key[0] not in segments]:
            client.segments.pop(key).close()
        if unread - segments:
            self.send(client, "unmap", segments=sorted(unread - segments))

    def must_resume(self, client, former, one):
        """True: it must be granted; False: it may be; None: it must not."""
        version = one.version
        if version not in self.model.versions:
            return None
        if one.write:
            return True if any(l.left and l.client is former for l in version.leases) else None
        if not self.model.may(client, version, 4):
            return False
        if not version.named and not version.graced:
            return False
        return (one.parked or version.storage.lies_at(one.place, version.start)) and not self.nofile

    def take_again(self, client, former, one, ident):
        version = one.version
        if one.write:
            lease = next(l for l in version.leases if l.left and l.client is former)
            lease.left, lease.client, lease.ident = False, client, ident
            client.leases[ident] = lease
        else:
            lease = self.model.grant(client, ident, version)
            if one.parked:
                lease.parked = True
                if version.named:
                    self.model.tell("parked", version)
        lease.stamp = one.stamp
        client.places[ident] = one.place

    # ---- publishing ----

    def a_device(self, rng):
        return rng.choice(list(self.tiers))

    def create_it(self, client, rng, name, size, live=False, layout=None, **params):
        """The unsealed version's lease, or that of a live one."""
        device = params.setdefault("device", self.a_device(rng))
        mode = params.setdefault("mode", self.a_mode(rng))
        own = bool(size) and not live and rng.random() < 0.1
        data = self.new_content(size)
        _, refused = self.allowed(self.model.check_name, client, name, params.get("replace", False))
        if not refused and size > self.capacity[device]:
            refused = Refused("no_space")
        told = self.ask(client, "create", refused, name=name, layout=layout or bytes_layout(size),
                        **{**params, "mode": f"{mode:04o}"}, **({"own": True} if own else {}),
                        **({"live": True} if live else {}))
        if not told:
            return None
        return self.created(client, name, data, live, own, params, told)

    def created(self, client, name, data, live, own, params, told):
        if not live:
            self.catch_up()
        key = (params["device"], client.uid, client.gid, params["mode"], live, own)
        storage = Storage(data, params["device"], key, client.uid, live, own)
        params.pop("wait_ms", None)
        known = {k: params[k] for k in ("mode", "evict", "keep", "label", "ttl_ms", "replace") if k in params}
        version = self.model.create(client, storage, name, **known)
        lease = self.model.grant(client, told["lease"], version, write=True)
        place = client.places[lease.ident] = told["object"]["layout"]["data"]
        if told["object"]["tier"] != "device" or told["object"]["uid"] != client.uid:
            raise Difference(f"created {told['object']}")
        if live:
            self.model.publish(version, told["object"]["version"])
        elif data.size:
            client.fill(place, data.whole())
        return lease

    def begin_ttl(self, version, asked):
        """`asked`: when it was asked for. A long time is never over."""
        self.model.deadlines.pop(version.number, None)
        if 0 < version.ttl_ms < LONG:
            self.model.deadlines[version.number] = asked + version.ttl_ms / 1000

    def seal_it(self, client, rng, lease, release):
        version = lease.version
        _, refused = self.allowed(self.model.check_name, client, version.name, version.replace)
        asked = time.monotonic()
        told = self.ask(client, "seal", refused, scarce=False, lease=lease.ident, release=release)
        if not told:
            return False
        lease.write = False
        self.model.publish(version, told["version"])
        self.begin_ttl(version, asked)
        if release:
            self.model.end_lease(lease)
            client.places.pop(lease.ident)
        return True

    def title(self, rng):
        found = {"evict": rng.choice(["spill", "spill", "spill", "drop", "keep"])}
        if rng.random() < 0.3:
            found["keep"] = rng.choice([1, 2, 3])
        if rng.random() < 0.2:
            found["label"] = rng.choice(["one", "two", "step-3"])
        if rng.random() < 0.1:
            found["ttl_ms"] = rng.choice([20, 400, 3_600_000])
        return found

    @action(5)
    def create(self, rng):
        client = self.some_client(rng)
        if client:
            self.create_it(client, rng, rng.choice(NAMES), self.a_size(rng), replace=rng.random() < 0.7, **self.title(rng))

    @action(18)
    def publish(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        lease = self.create_it(client, rng, rng.choice(NAMES), self.a_size(rng), replace=True, **self.title(rng))
        if lease:
            self.seal_it(client, rng, lease, rng.random() < 0.7)

    @action(4)
    def seal(self, rng):
        client, lease = self.some_lease(rng, lambda l: l.write and not l.version.live)
        if lease:
            self.seal_it(client, rng, lease, rng.random() < 0.5)

    @action(1.5)
    def create_and_wait(self, rng):
        """For memory, for as long as it takes."""
        client = self.some_client(rng)
        if not client or any(w.kind == "room" for c in self.clients for w in c.waits):
            return
        name, size, mode = rng.choice(NAMES), rng.choice([3, 5, 8]) * MIB, self.a_mode(rng)
        _, refused = self.allowed(self.model.check_name, client, name, True)
        if refused or self.model.in_grace:
            return
        params = {"device": self.a_device(rng), "mode": mode, "replace": True, "evict": "spill"}
        ident = client.request("create", name=name, layout=bytes_layout(size), wait_ms=LONG,
                               **{**params, "mode": f"{mode:04o}"})
        data = self.new_content(size)

        def act(result):
            if not isinstance(result, RpcError):
                self.created(client, name, data, False, False, params, result)
            elif result.kind not in (*SCARCE, "denied"):
                raise Difference(f"create of {name}: {result}")

        self.say(f"create {name} of {size} waits for {self.who(client)}")
        client.waits.append(Waiting(client, ident, "room", name, act))

    @action(0.5)
    def hoard(self, rng):
        """A reader keeps, asleep or not, what its publisher deletes."""
        reader = self.some_client(rng, lambda c: c.uid in self.quota)
        writer = self.some_client(rng, lambda c: c.uid not in self.quota)
        if not reader or not writer or self.unmap_ms == LONG or self.model.in_grace:
            return
        for _ in range(rng.randrange(6)):
            lease = self.create_it(writer, rng, "hoard", 5 * MIB, device=self.a_device(rng), replace=True, mode=0o644)
            if not lease or not self.seal_it(writer, rng, lease, True):
                return
            version = self.model.names["hoard"][0]
            told = self.ask(reader, "open", None, name="hoard")
            if told:
                lease = self.opened(reader, told, version)
                if rng.random() < 0.8 and self.ask(reader, "release", None, scarce=False, lease=lease.ident, park=True) is not None:
                    self.model.park(lease)
            self.unmap(writer, writer.mapped() - writer.in_use())
            self.unmap(reader, reader.mapped() - reader.in_use())
            self.compare()  # which learns what it counts for its users
            self.eye.call("delete", name="hoard")
            self.model.delete(Root, "hoard")

    @action(0.5)
    def insist(self, rng):
        """Waits for memory for longer than anybody past his quota may keep others from it."""
        client = self.some_client(rng, lambda c: c.uid not in self.quota)
        if not client or self.unmap_ms == LONG or not self.quota:
            return
        if self.model.in_grace:
            self.over_grace()
        name, size, device = rng.choice(NAMES), rng.choice([5, 8]) * MIB, self.a_device(rng)
        lease = self.create_it(client, rng, name, size, device=device, replace=True, wait_ms=10 * self.unmap_ms)
        self.settle()
        found = {uid: self.excess(uid, device) for uid in self.quota}
        if not lease and name not in self.model.names and sum(found.values()) >= size + 4 * MIB:
            raise Difference(f"no room for {size} bytes, and past their quotas are {found}")

    # ---- reading ----

    def opened(self, client, told, version):
        """Enters what an open has granted."""
        self.catch_up()
        if version not in self.model.versions:
            raise Difference(f"opened {told['object']['name']}, which is not there")
        lease = self.model.grant(client, told["lease"], version)
        lease.slot = told.get("slot")
        client.places[lease.ident] = told["object"]["layout"]["data"]
        if told["object"]["version"] != version.number:
            raise Difference(f"opened version {told['object']['version']} of {version.name}, expected {version.number}")
        self.check_content(client, version, client.places[lease.ident], random, whole=version.length < 4 * MIB)
        return lease

    def a_which(self, rng, name):
        """A version or label that the name has, or not."""
        versions = self.model.names.get(name, [])
        draw = rng.random()
        if draw < 0.7:
            return {}
        if draw < 0.85:
            numbers = [v.number for v in versions] + [rng.randrange(1, self.model.last_version + 2)]
            return {"version": rng.choice(numbers)}
        return {"label": rng.choice(["one", "two", "step-3"])}

    @action(15)
    def open(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name = rng.choice([*NAMES, *NAMES, *LIVE, *STREAMS])
        which = self.a_which(rng, name)
        version, refused = self.allowed(self.model.find, client, name, which.get("version"), which.get("label"))
        told = self.ask(client, "open", refused, name=name, **which)
        if told:
            self.opened(client, told, version)

    @action(3)
    def open_names(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        names = rng.sample(NAMES, 3)
        found = [self.allowed(self.model.find, client, name) for name in names]
        told = self.ask(client, "open", None, names=names)
        for (version, refused), one in zip(found, told["objects"] if told else ()):
            if "error" in one:
                kind = one["error"]["data"]["kind"]
                if kind not in SCARCE and not (refused and kind in refused.kinds):
                    raise Difference(f"open of {names}: {one}, expected {refused}")
            elif refused:
                raise Difference(f"open of {names}: {one}, expected {refused.kinds}")
            else:
                self.opened(client, one, version)

    @action(7)
    def release(self, rng):
        client, lease = self.some_lease(rng, lambda l: True)
        if not lease:
            return
        if self.ask(client, "release", None, scarce=False, lease=lease.ident) is not None:
            self.released(client, lease)

    def released(self, client, lease):
        client.holds = [side for side in client.holds if side.lease is not lease]
        if client.side and client.side.lease is lease:
            client.side = None
        client.places.pop(lease.ident)
        self.model.end_lease(lease)

    @action(7)
    def park(self, rng):
        client, lease = self.some_lease(rng, lambda l: l.part is None and not l.version.live)
        if not lease:
            return
        _, refused = self.allowed(lambda: self.model.park(lease))
        if self.ask(client, "release", refused, scarce=False, lease=lease.ident, park=True) is not None:
            place = client.places[lease.ident]
            if place["segment"] not in client.in_use():
                self.unmap(client, {place["segment"]})

    @action(7)
    def wake(self, rng):
        """Opens what is parked."""
        client, lease = self.some_lease(rng, lambda l: l.parked)
        if not lease:
            return
        version = lease.version
        told = self.ask(client, "open", None, lease=lease.ident)
        if not told:
            return
        if version.named:
            self.model.tell("resumed", version)
        self.opened(client, told, version)
        if self.ask(client, "release", None, scarce=False, lease=lease.ident) is not None:
            self.released(client, lease)

    @action(8)
    def cache(self, rng):
        client, lease = self.some_lease(rng, lambda l: l.slot is not None and not l.parked)
        if not lease:
            return
        used = rng.random() < 0.3
        version = lease.version
        self.model.cache(lease, used)
        self.ask(client, "cache", None, scarce=False, leases=[lease.ident], used=used)
        self.check_slot(client, lease, version)

    def check_slot(self, client, lease, version):
        if lease.slot is None or lease.ident not in client.leases:
            return
        good = version.named and self.model.names[version.name][0] is version
        if (client.slot(lease.slot) == lease.ident) and not good:
            raise Difference(f"the slot of {version.name} version {version.number} is good")

    @action(3)
    def unmap_unused(self, rng):
        client = self.some_client(rng)
        if client:
            self.unmap(client, client.mapped() - client.in_use())

    # ---- looking after objects ----

    @action(6)
    def delete(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name = rng.choice([*NAMES, *NAMES, *LIVE, *STREAMS, *PROVIDED])
        which = self.a_which(rng, name)
        _, refused = self.allowed(self.model.find_changeable, client, name, which.get("version"), which.get("label"))
        if self.ask(client, "delete", refused, scarce=False, name=name, **which) is not None:
            self.model.delete(client, name, which.get("version"), which.get("label"))

    @action(6)
    def alias(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name, of = rng.choice(NAMES), rng.choice([*NAMES, *NAMES, *LIVE])
        start, length = rng.choice([0, 0, 1, 100]), rng.choice([0, 1, 100, 3000])
        mode = rng.choice([None, None, self.a_mode(rng)])
        replace, keep, label = rng.random() < 0.7, rng.choice([0, 0, 0, 2]), rng.choice(["", "", "one"])
        version, refused = self.allowed(self.model.alias, client, name, of, start, length, mode, replace, keep, label)
        told = self.ask(client, "alias", refused, name=name, of=of, slice={"offset": start, "length": length},
                        replace=replace, keep=keep, label=label, **({} if mode is None else {"mode": f"{mode:04o}"}))
        if told:
            self.model.add(version)
            self.model.publish(version, told["version"])

    @action(2.5)
    def pin(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name, on = rng.choice([*NAMES, *LIVE]), rng.random() < 0.4
        _, refused = self.allowed(self.model.find_changeable, client, name)
        if self.ask(client, "set", refused, scarce=False, name=name, pinned=on) is not None:
            self.model.pin(client, name, on)

    @action(2)
    def set_time(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name, ttl = rng.choice(NAMES), rng.choice([0, 0, 20, 400, 3_600_000])
        which = self.a_which(rng, name)
        version, refused = self.allowed(self.model.find_changeable, client, name, which.get("version"), which.get("label"))
        asked = time.monotonic()
        if self.ask(client, "set", refused, scarce=False, name=name, ttl_ms=ttl, **which) is not None:
            version.ttl_ms = ttl
            self.begin_ttl(version, asked)

    @action(4)
    def move(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name, tier = rng.choice([*NAMES, *NAMES, *LIVE]), rng.choice([None, "device", "host", "disk"])
        if tier == "device":
            _, refused = self.allowed(self.model.find, client, name)
        else:
            _, refused = self.allowed(self.model.check_move_out, client, tier, name)
        self.ask(client, "move", refused, name=name, **({"tier": tier} if tier else {}))

    @action(0.5)
    def trim(self, rng):
        self.eye.call("trim")

    # ---- live objects ----

    @action(5)
    def create_live(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        replace = rng.random() < 0.4
        if rng.random() < 0.4:
            slots = rng.choice([2, 4, 8])
            lease = self.create_it(client, rng, rng.choice(STREAMS), slots * SLOT_BYTES, live=True, replace=replace,
                                   layout={"kind": "array", "dtype": "uint8", "shape": [slots, SLOT_BYTES]})
        else:
            lease = self.create_it(client, rng, rng.choice(LIVE), rng.choice([64, 4096, 3 * MIB]), live=True,
                                   replace=replace, evict=rng.choice(["spill", "drop"]))
        if lease and rng.random() < 0.8:
            self.release_it(client, lease)

    def release_it(self, client, lease):
        self.ask(client, "release", None, scarce=False, lease=lease.ident)
        self.released(client, lease)

    def writing(self, client, version, told, exclusive):
        self.catch_up()
        lease = self.model.grant(client, told["lease"], version, write=True, exclusive=exclusive)
        client.places[lease.ident] = told["object"]["layout"]["data"]
        if told.get("generation") != (version.generation if exclusive else None):
            raise Difference(f"generation {told.get('generation')} of {version.name}, expected {version.generation}")
        if exclusive and version.name not in STREAMS:
            self.counter += 1
            lease.stamp = b"%d %d;" % (client.pid, self.counter)
            client.fill(client.places[lease.ident], lease.stamp)

    @action(12)
    def open_writing(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        name, exclusive = rng.choice([*LIVE, *STREAMS]), rng.random() < 0.8
        wait_ms = rng.choice([0, 0, 15, LONG])
        version, refused = self.allowed(self.model.check_writing, client, name, exclusive, wait_ms > 0)
        params = {"name": name, "access": "write", "exclusive": exclusive, "wait_ms": wait_ms}
        waits = version and (self.model.waiting.get(name) or not self.model.may_write(version, exclusive))
        if wait_ms and refused and "not_found" in refused.kinds:
            return
        if waits and wait_ms == LONG:
            self.wait_to_write(client, version, params)
            return
        if waits:
            refused = Refused("timeout")
        told = self.ask(client, "open", refused, **params)
        if told:
            self.writing(client, version, told, exclusive)

    def wait_to_write(self, client, version, params):
        name, exclusive = params["name"], params["exclusive"]

        def act(result):
            version = self.model.names.get(name, [None])[0]
            if not isinstance(result, RpcError):
                if version is None or not self.model.may_write(version, exclusive):
                    raise Difference(f"{self.who(client)} is granted {name}, which is not free")
                self.writing(client, version, result, exclusive)
            elif result.kind not in SCARCE and not (
                    version and (not version.live and result.kind == "unsupported" or
                                 not self.model.may(client, version, 2) and result.kind == "denied")):
                raise Difference(f"{name}: {result}")

        self.say(f"{self.who(client)} waits to write {name}, {'alone' if exclusive else 'beside others'}")
        self.model.waiting.setdefault(name, []).append((client, exclusive))
        ident = client.request("open", **params)
        client.waits.append(Waiting(client, ident, "claim", name, act, exclusive))

    @action(1)
    def claim_many(self, rng):
        """More than there are descriptors for each."""
        client = self.some_client(rng) if self.crowded else None
        for i in range(rng.randrange(10, 40) if client else 0):
            name = f"pool/{i}"
            if name not in self.model.names:
                lease = self.create_it(client, rng, name, 64, live=True, device="host", mode=0o666)
                if lease:
                    self.release_it(client, lease)
            version, refused = self.allowed(self.model.check_writing, client, name, True, False)
            told = self.ask(client, "open", refused, name=name, access="write", exclusive=True)
            if told:
                self.writing(client, version, told, True)

    # ---- streams ----

    @action(8)
    def join(self, rng):
        client, lease = self.some_lease(rng, lambda l: l.version.name in STREAMS and l.version.live and l.part is None
                                        and l.in_use and l.client.side is None and l.version.number)
        if lease:
            self.join_it(client, rng, lease)

    def join_it(self, client, rng, lease):
        slots = lease.version.length // SLOT_BYTES
        hold, lag = rng.choice([1, 1, 2]), rng.choice([0, 0, 1, 3])
        _, refused = self.allowed(self.model.check_join, lease, slots, hold, lag)
        told = self.ask(client, "join", refused, lease=lease.ident, hold=hold, lag=lag)
        if not told:
            return
        number = self.model.join(lease, hold, lag)
        client.side = (WriterSide if lease.write else ReaderSide)(self, client, lease, slots, told)
        if client.side.number != number:
            raise Difference(f"{self.who(client)} takes part as {client.side.number}, expected {number}")

    @action(7)
    def take_part(self, rng):
        """Opens a stream, and joins it."""
        client = self.some_client(rng, lambda c: c.side is None)
        name = rng.choice(STREAMS)
        version, refused = self.allowed(self.model.find, client, name) if client else (None, None)
        if not version or not version.live:
            return
        if rng.random() < 0.4:
            self.write_stream(client, rng, name)
            return
        told = self.ask(client, "open", refused, name=name)
        if told:
            self.opened(client, told, version)
            self.join_it(client, rng, client.leases[told["lease"]])

    def write_stream(self, client, rng, name):
        version, refused = self.allowed(self.model.check_writing, client, name, True, False)
        told = self.ask(client, "open", refused, name=name, access="write", exclusive=True)
        if told:
            self.writing(client, version, told, True)
            self.join_it(client, rng, client.leases[told["lease"]])

    @action(16)
    def frame(self, rng):
        """Somebody who takes part in a stream writes, reads, or gives a frame back."""
        sides = [c.side for c in self.clients if c.side]
        if sides:
            side = rng.choice(sides)
            self.say(f"  {self.who(side.client)} {type(side).__name__} of {side.name}")
            for _ in range(rng.choice([1, 1, 3, 6])):
                side.act(rng)
        for client in self.clients:
            if client.holds and rng.random() < 0.3:
                client.holds.pop().close()

    # ---- watching ----

    @action(2)
    def watch(self, rng):
        client = self.some_client(rng, lambda c: len(c.watches) < 3)
        if not client:
            return
        prefix = rng.choice(["", "", "b", "live", "s/"])
        kinds = rng.choice([[], [], ["sealed", "deleted"], ["parked", "resumed", "sealed"]])
        self.settle()
        self.catch_up()
        told = self.ask(client, "watch", None, prefix=prefix, existing=False, **({"kinds": kinds} if kinds else {}))
        if told:
            client.watches[told["watch"]] = (prefix, kinds, told["seq"])

    @action(0.7)
    def unwatch(self, rng):
        client = self.some_client(rng, lambda c: c.watches)
        if client:
            self.settle()
            self.catch_up()
            found = self.differ_events()
            if found:
                raise Difference(found)
            number = rng.choice(sorted(client.watches))
            self.ask(client, "unwatch", None, scarce=False, watch=number)
            del client.watches[number]

    # ---- providing ----

    def look_for_providers(self):
        """Each absent name that is waited for is asked of one provider."""
        for name in PROVIDED:
            waiting = {w.client for c in self.clients for w in c.waits if w.kind == "name" and w.name == name}
            asked, prefix = self.asked.get(name, (None, None))
            if asked and (not asked.connected or not waiting or prefix not in asked.provides):
                del self.asked[name]
                asked = None
            if asked or not waiting or name in self.model.names:
                continue
            found = [(-len(prefix), when, c, prefix) for c in self.clients if c.connected and waiting != {c}
                     for prefix, when in c.provides.items() if name.startswith(prefix)]
            if found:
                self.asked[name] = min(found, key=lambda one: one[:2])[2:]

    @action(1.5)
    def provide(self, rng):
        client = self.some_client(rng, lambda c: c.uid == 0)
        if not client:
            return
        prefix = rng.choice(["p/", "p/q/", "p/"])
        end = prefix in client.provides
        self.ask(client, "provide", None, scarce=False, prefix=prefix, **({"end": True} if end else {}))
        if end:
            del client.provides[prefix]
            client.wanted = {n: told for n, told in client.wanted.items() if told[1] != prefix}
        else:
            self.counter += 1
            client.provides[prefix] = self.counter
        self.look_for_providers()

    @action(3)
    def open_absent(self, rng):
        client = self.some_client(rng)
        name = rng.choice(PROVIDED)
        if not client or name in self.model.names:
            return

        def act(result):
            version = self.model.names.get(name, [None])[0]
            if not isinstance(result, RpcError):
                self.opened(client, result, version)
            elif result.kind not in SCARCE and not (version is None and name in self.declined):
                raise Difference(f"{name}: {result}")

        self.say(f"{self.who(client)} waits for {name}")
        ident = client.request("open", name=name, wait_ms=LONG)
        client.waits.append(Waiting(client, ident, "name", name, act))
        self.look_for_providers()

    declined = ()

    @action(5)
    def make_wanted(self, rng):
        """A provider makes what it was asked for, or says that it cannot."""
        client = self.some_client(rng, lambda c: c.wanted)
        if not client:
            return
        name = rng.choice(sorted(client.wanted))
        if rng.random() < 0.3:
            self.decline(client, name)
            return
        lease = self.create_it(client, rng, name, 3000, replace=True, evict="spill", mode=0o644)
        if lease and self.seal_it(client, rng, lease, True):
            client.wanted.pop(name, None)
            self.asked.pop(name, None)

    def decline(self, client, name):
        waits = [w for c in self.clients for w in c.waits if w.kind == "name" and w.name == name]
        self.asked.pop(name, None)
        self.ask(client, "decline", None, scarce=False, request=client.wanted.pop(name)[0], message="no")
        self.declined = (name,)
        for waiting in waits:
            self.answered(waiting)
        self.declined = ()

    # ---- the daemon's end ----

    @action(0.7)
    def crash(self, rng):
        self.end_daemon(rng, signal.SIGKILL)

    @action(0.4)
    def hand_over(self, rng):
        self.end_daemon(rng, signal.SIGHUP)

    def end_daemon(self, rng, how):
        self.settle()
        if how == signal.SIGHUP:
            self.catch_up()
        self.say("kill the daemon" if how == signal.SIGKILL else "hand over")
        self.write_config(rng)
        before = self.daemon.child
        if how == signal.SIGKILL:
            os.kill(before, signal.SIGKILL)
        else:
            os.kill(self.daemon.pid, signal.SIGHUP)
        end = time.monotonic() + DEADLINE
        while daemons_of(self.daemon.pid) in ([], [before]):
            if time.monotonic() > end or self.daemon.process.poll() is not None:
                raise Difference(f"no successor: {self.daemon.stderr()[-3000:]}")
            time.sleep(0.001)
        self.restarts += 1
        self.fresh = True
        self.eye.close()
        self.lose_daemon()
        self.open_eye()
        if self.hello["instance"] != self.instance():
            raise Difference("another instance")

    def instance(self):
        self.first_instance = getattr(self, "first_instance", self.hello["instance"])
        return self.first_instance

    def lose_daemon(self):
        """Clients go on with what they had, or end."""
        for client in self.clients:
            if not client.connected:
                client.remembers = False
                continue
            client.former = [Former(lease, client.places[ident]) for ident, lease in client.leases.items()
                             if lease.version.number and not lease.cached]
            client.former_number = client.number
            client.remembers = True
            client.connected = False
            client.socket.close()
            client.places.clear()
            self.end_waits(client)
        self.asked.clear()
        self.ignored.clear()
        self.coming.clear()
        self.model.crash()

    @action(3)
    def end_grace(self, rng):
        if self.model.in_grace:
            self.over_grace()

    def over_grace(self):
        """Who is not back by now does not read any more."""
        self.say("grace is over")
        self.failpoints.set(Failpoints.END_GRACE, 1)
        for _ in range(3):
            self.eye.call("stats")
        self.failpoints.set(Failpoints.END_GRACE, 0)
        for client in self.clients:
            if not client.connected:
                client.remembers = False
                client.side = None
                client.holds.clear()
        self.model.end_grace()

    # ---- playing ----

    def step(self, number):
        self.step_number = number
        rng = random.Random(self.seed << 24 ^ number)
        name = rng.choices(NAMES_OF_ACTIONS, cum_weights=WEIGHTS)[0]
        if rng.random() < 0.15 and any(not c.connected for c in self.clients):
            name = "come_back"
        elif self.unmap_ms != LONG and rng.random() < 0.06:
            name = rng.choice(["hoard", "insist"])
        self.say(f"- {name}")
        self.wait_for_ends()
        with contextlib.suppress(Ended):
            getattr(self, name)(rng)
        self.compare()

    def wait_for_ends(self):
        """Of objects whose time is over in a moment: a step shall not have to know on which side of it they are."""
        while any(v.named and self.expires_soon(v.number) for v in self.model.versions):
            time.sleep(0.002)
            self.compare()

    def play(self, numbers):
        for number in numbers:
            self.step(number)

    def end(self):
        """Everybody leaves, everything is deleted: nothing is left."""
        self.step_number += 1
        if self.model.in_grace:
            self.over_grace()
        for actor in list(self.actors):
            self.kill_actor(actor)
        self.compare()
        for name in list(self.model.names):
            self.eye.call("delete", name=name)
            self.model.delete(Root, name)
        self.compare()
        self.daemon.peers.append(self.eye)
        self.daemon.close_peers()
        self.daemon.check_no_leaks()
        self.daemon.stop()

    def close_all(self):
        for actor in self.actors:
            actor.kill()
        for client in self.clients:
            client.close()
        self.eye.close()
        self.daemon.kill()


class Side:
    """What somebody who takes part in a stream has: the pages, and the memory of the frames (proto/stream.h)."""

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
        pass


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
        for slot, data in self.held.items():
            if self.content(slot) != data:
                raise Difference(f"{self.name}: a frame that {self.world.who(self.client)} holds was overwritten")


class Root:
    uid = gid = 0


NAMES_OF_ACTIONS = [name for _, name in ACTIONS]
WEIGHTS = [sum(weight for weight, _ in ACTIONS[:i + 1]) for i in range(len(ACTIONS))]


def shrink(play, numbers, say):
    """Fewer steps that fail as well: by leaving out halves, then quarters, and so on."""
    size = len(numbers) // 2
    while size:
        at = 0
        while at < len(numbers):
            fewer = numbers[:at] + numbers[at + size:]
            failed = play(fewer)
            if failed is not None:
                numbers = fewer[:bisect.bisect_right(fewer, failed)]
                say(f"{len(numbers)} steps")
            else:
                at += size
        size //= 2
    return numbers


def play(seed, numbers, end=True):
    """(the failure or None, the number of its step, its log, restarts)"""
    directory = tempfile.mkdtemp(prefix="gpubuf-pairs-")
    os.chmod(directory, 0o755)
    lines, failure, world = [], None, None
    try:
        world = World(seed, directory, lines)
        world.play(numbers)
        if end:
            world.end()
    except Exception as error:  # whatever it is: it is told with the steps that led to it
        failure = error
        if not isinstance(error, Difference):
            lines += traceback.format_exc().splitlines()
    finally:
        if world and hasattr(world, "eye"):
            words = world.daemon.stderr()
            world.close_all()
            if "Sanitizer" in words or "runtime error:" in words or "ssertion" in words:
                failure = failure or Difference("the daemon's log has an error")
            if failure:
                lines += ["the daemon's last words:", *words.splitlines()[-30:]]
        shutil.rmtree(directory, ignore_errors=True)
    return failure, world.step_number if world else 0, lines, world.restarts if world else 0


def tell(seed, failure, lines, steps, last=60):
    print("\n".join(lines[-last:]))
    print(f"FAILED {type(failure).__name__}: {failure}")
    again = f"--steps {len(steps)}" if steps == list(range(len(steps))) else f"--only {','.join(map(str, steps))}"
    print(f"again: tests/integration/pairs.py --seed {seed} {again}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="of one world; without it worlds are drawn")
    parser.add_argument("--steps", type=int, default=1000, help="how many in all")
    parser.add_argument("--each", type=int, default=1000, help="how many in a world at most")
    parser.add_argument("--only", help="numbers of steps, with commas")
    parser.add_argument("--seconds", type=float, default=1e9, help="no world begins after these")
    parser.add_argument("--shrink", action="store_true", help="find fewer steps that fail")
    parser.add_argument("--log", action="store_true", help="print all that was done")
    parser.add_argument("--go-on", action="store_true", help="do not end with the first failure")
    options = parser.parse_args()
    began, done, restarts, failed = time.monotonic(), 0, 0, 0
    draw = random.SystemRandom()
    while done < options.steps and time.monotonic() - began < options.seconds:
        seed = draw.randrange(1 << 30) if options.seed is None else options.seed
        steps = list(range(min(options.steps - done, options.each) if options.seed is None else options.steps))
        if options.only:
            steps = [int(word) for word in options.only.split(",")]
        failure, last, lines, ends = play(seed, steps)
        done += len(steps)
        restarts += ends
        if failure:
            failed += 1
            done -= len(steps) - len([n for n in steps if n <= last])
            steps = [n for n in steps if n <= last]
            if options.shrink:
                def fails(numbers, seed=seed):
                    found, at, text, _ = play(seed, numbers)
                    if found:
                        lines[:] = text
                    return at if found else None

                steps = shrink(fails, steps, lambda text: print(text, flush=True))
            tell(seed, failure, lines, steps, 10**9 if options.log else 60)
        elif options.log:
            print("\n".join(lines))
        if options.seed is not None or options.only or (failed and not options.go_on):
            break
    seconds = time.monotonic() - began
    print(f"{done} steps, {restarts} restarts, {failed} failed, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
