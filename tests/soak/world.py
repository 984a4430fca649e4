"""A daemon, its clients, and rounds: in each something is killed, and then everything is looked at."""

import json
import os
import random
import select
import shutil
import signal
import socket
import tempfile
import time
from mmap import mmap

import truth
import busy
from keeper import DEADLINE, Failpoints, Managed, Supervised, descriptors, failpoints

from peer import Closed, Peer  # noqa: E402 (keeper knows where it is)

NAMESPACES = 4
CLIENTS = 4
NAMES = busy.ALL
WORK, PATIENCE = 0.025, 0.15  # seconds before a kill, and for a failpoint, at most
UIDS = [0, 71001, 71002, 71003]  # of clients, where they may be others'
# Where a daemon dies only as it starts, as the clients come back, or when told to hand over.
STARTING = {"RESTORE_READ", "RESTORE_SEGMENTS", "RESTORE_DONE", "CLEAN_DONE", "DROP_DONE",
            "READY_DONE", "RESUME_BEGIN", "RESUME_LEASE", "RESUME_DONE"}
ENDING_GRACE = {"GRACE_BEGIN", "GRACE_DONE"}
HANDING_OVER = {"HAND_OVER_BEGIN", "HAND_OVER_TOLD", "HAND_OVER_DONE"}
# All others it passes as it serves; those that are seldom, when clients are in the mood for them.
SERVING = set(failpoints()) - STARTING - ENDING_GRACE - HANDING_OVER
MOODS = {"COMPACT": "changes", "STORE": "segments", "UNSTORE": "segments", "SEGMENT": "segments",
         "OUT": "tiers", "VACATE": "tiers", "DOWN": "tiers", "FORGET": "tiers", "IN": "tiers",
         "FILE": "tiers"}


def mood_for(point):
    return MOODS.get(point.split("_")[0], "any")


# Where clients still hold something when they come back.
LEAVING_LEASES = {p for p in SERVING if mood_for(p) != "segments"}


class Failure(Exception):
    """The daemon's objects are not those that must be."""


class Child:
    """A client's process, as the harness sees it."""

    def __init__(self, world, number, uid=0):
        self.number = number
        self.uid = uid
        self.notes = truth.Notes()
        self.held = []
        self.busy = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            world.close_in_child()
            busy.run(world.library, world.path, world.device, theirs, self.notes, world.running,
                       number, uid)
        theirs.close()
        self.control = ours

    def send(self, **order):
        self.control.send(json.dumps(order).encode())
        self.busy = True

    def receive(self):
        try:
            data = self.control.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        self.busy = False
        if not data:
            raise Failure(f"client {self.number}: {self.notes.failure() or 'ended by itself'}")
        return json.loads(data)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def bury(self):
        os.waitpid(self.pid, 0)
        self.control.close()
        self.busy = False


# RELIABILITY.md: The daemon ends 6
class World:
    """`place`: see soak.py."""

    def __init__(self, place, seed, wanted):
        self.place = place
        self.seed = seed
        self.rng = random.Random(seed)
        self.wanted = wanted  # which failpoint to take: a function
        self.directory = tempfile.mkdtemp(prefix="gpubuf-soak-", dir=place.root)
        self.path = os.path.join(self.directory, "s")
        self.disk = os.path.join(self.directory, "disk")
        os.mkdir(self.disk, 0o700)
        os.chmod(self.directory, 0o711)  # clients of other users have to come in
        self.device = place.device.split(":")[0]
        if self.device == "cuda":
            self.device = ":".join(place.device.split(":")[:2])
        self.library = place.library
        self.running = mmap(-1, 4096)
        self.states = [[{None} for _ in range(NAMES)] for _ in range(NAMESPACES)]
        self.children = []
        self.serial = 0
        self.peer = None
        self.checker = None
        self.history = []
        self.killed = []
        self.kills = {}
        self.daemon_kills = 0
        self.versions = {}  # of each that was told: [name, when it was made]
        self.read = [0, 0]  # how many objects could not, and could be read
        self.in_grace = False
        self.failpoints = None
        environment = dict(os.environ)
        if place.failpoints:
            self.failpoints = Failpoints(os.path.join(self.directory, "failpoints"))
            environment["GPUBUFD_FAILPOINTS"] = self.failpoints.path
        argv = [place.gpubufd, "--socket", self.path, "--mode", "0666", "--device", place.device, "--grace",
                str(place.grace_ms), "--tier", f"disk:512M:{self.disk}"]
        if self.device != "host":
            argv += ["--tier", "host:8M"]
        self.keeper_type = Supervised if self.rng.random() < 0.5 else Managed
        if self.failpoints and self.rng.random() < 0.5:  # one that dies before it ever served
            self.failpoints.arm(self.rng.choice(["STORE_BEGIN", "STORE_DONE", "COMPACT_BEGIN",
                                                 "COMPACT_WRITTEN", "COMPACT_KEPT", "COMPACT_DONE",
                                                 "DROP_DONE", "READY_DONE"]), 1)
        self.keeper = self.keeper_type(argv, self.directory, environment)

    # ---- its parts ----

    def close_in_child(self):
        """Closes sockets that a client must not have of ours: kept open they would hide that we ended."""
        for child in [*self.children, *([self.checker] if self.checker else [])]:
            child.control.close()
        self.keeper.leave()
        if self.peer:
            self.peer.socket.close()

    def new_child(self, uid=0):
        self.serial += 1
        return Child(self, self.place.serial() << 8 | self.serial % 256, uid)

    def wait(self, condition, what, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while not (got := condition()):
            if time.monotonic() > end:
                raise Failure(f"not within {seconds} s: {what()}")
            self.keeper.pump(0.001)
        return got

    def connect(self):
        """A session of the harness' own; the daemon may die while it is asked."""
        if self.peer:
            self.peer.close()
            self.peer = None

        def attempt():
            peer = None
            try:
                peer = Peer(self.path)
                request = peer.request("stats")
                while not select.select([peer.socket], [], [], 0)[0]:
                    self.keeper.pump(0.0005)
                peer.reply(request)
                return peer
            except (OSError, Closed):
                if peer:
                    peer.close()
                return None

        self.peer = self.wait(attempt, lambda: f"the daemon serves. {self.keeper.last_words()}")

    def are_back(self):
        """Whether every client has said hello to the present daemon, and what it had leases on."""
        self.connect()
        greeted = {s["pid"] for s in self.ask("sessions")["sessions"] if s["client"]}
        return greeted >= {c.pid for c in [*self.children, self.checker]}

    def answer_of(self, child, what):
        """Clients that find no room wait for the end of the grace period; it is over once all are back."""
        late = time.monotonic() + 0.1

        def answered():
            nonlocal late
            if select.select([child.control], [], [], 0)[0]:
                return True
            if self.in_grace and self.failpoints and time.monotonic() > late:
                late = time.monotonic() + 0.1
                if self.are_back():
                    self.end_grace(None)
            return False

        self.wait(answered, lambda: f"client {child.number} {what}")
        return child.receive()

    def ask(self, method, **params):
        """The daemon's answer. The daemon may have to wait for its manager, which is this process."""
        request = self.peer.request(method, **params)
        self.wait(lambda: self.peer.replies or select.select([self.peer.socket], [], [], 0)[0],
                  lambda: f"{method} is answered")
        return self.peer.reply(request)

    # ---- a round ----

    def plan(self):
        """(what is killed, by which failpoints, one after the other, the clients concerned)"""
        what = self.rng.choices(["daemon", "clients", "both", "hand over"], [45, 25, 20, 10])[0]
        points = []
        if self.failpoints and self.rng.random() < 0.8:
            points = [self.wanted(self.rng)]
            what = self.rng.choice(["daemon", "daemon", "both"])
            if points[0] in HANDING_OVER:
                what = "hand over"
            elif points[0] not in SERVING:  # another death comes before it
                resumes = points[0].startswith("RESUME")
                points.insert(0, self.wanted(self.rng, LEAVING_LEASES if resumes else SERVING))
        victims = [c for c in self.children if self.rng.random() < 0.4]
        if what in ("daemon", "hand over"):
            victims = []
        elif what == "clients" and not victims:
            victims = [self.rng.choice(self.children)]
        return what, [p for p in points if p], victims

    def populate(self):
        for uid in self.place.uids * (CLIENTS // len(self.place.uids)):
            if len(self.of_user(uid)) < CLIENTS // len(self.place.uids):
                self.children.append(self.new_child(uid))
        if not self.checker:
            self.checker = self.new_child()

    def of_user(self, uid):
        return [child for child in self.children if child.uid == uid]

    def give_namespaces(self):
        """Each user has some of its own; which client has which changes."""
        turn, users = self.rng.randrange(NAMESPACES), self.place.uids
        for i, uid in enumerate(users):
            for k, child in enumerate(self.of_user(uid)):
                child.namespace = i + len(users) * ((k + turn) % (NAMESPACES // len(users)))

    def begin(self, mood):
        self.running[0] = 1
        self.give_namespaces()
        for child in self.children:
            child.notes.clear()
            child.send(what="work", mood=mood, seed=self.rng.randrange(1 << 60),
                       namespace=child.namespace, namespaces=NAMESPACES,
                       states=[sorted(states, key=repr) for states in self.states[child.namespace]])

    def pause(self, most):
        """Lets the clients run for up to that long."""
        end = time.monotonic() + self.rng.random() * most
        while (left := end - time.monotonic()) > 0:
            self.keeper.pump(min(left, 0.005))

    def kill_daemon(self):
        daemon = self.wait(self.keeper.daemon, lambda: "there is a daemon")
        try:
            os.kill(daemon, signal.SIGKILL)
        except ProcessLookupError:
            pass  # a failpoint was faster
        self.wait(lambda: self.keeper.daemon() not in (daemon,), lambda: "it is dead")
        self.daemon_kills += 1

    def fire(self, point):
        """Arms a failpoint and waits until it has fired; False if it did not."""
        before = self.failpoints.fired()
        count = 1
        if point == "RESUME_LEASE":
            count = self.rng.choice([1, 2, 3])
        elif point in SERVING:
            count = self.rng.choice([1, 1, 2, 3, 5, 8] if mood_for(point) == "any" else [1, 1, 1, 2])
        self.failpoints.arm(point, count)
        if point in HANDING_OVER:
            self.keeper.hand_over()
        elif point in STARTING:
            self.kill_daemon()
        end = time.monotonic() + (PATIENCE if point in SERVING else 2)
        while self.failpoints.fired() == before and time.monotonic() < end:
            self.keeper.pump(0.001)
        self.failpoints.disarm()
        self.daemon_kills += self.failpoints.fired() - before
        return self.failpoints.fired() != before

    def kill(self, what, points, victims):
        """Which of the failpoints did."""
        self.pause(WORK)
        daemon = what in ("daemon", "both")
        if daemon and not self.rng.getrandbits(2):
            for child in victims:
                child.kill()
            victims = []
        fired = [p for p in points if p not in ENDING_GRACE and self.fire(p)]
        for point in fired:
            self.kills[point] = self.kills.get(point, 0) + 1
        for child in victims:
            child.kill()
        if what == "hand over" and not fired:
            before = self.wait(self.keeper.daemon, lambda: "there is a daemon")
            self.connect()  # it is one that listens to signals
            self.keeper.hand_over()
            self.wait(lambda: self.keeper.daemon() not in (before,), lambda: "it has handed over")
        if daemon and not fired:
            self.kill_daemon()
        if daemon and self.rng.random() < 0.15:  # once more
            self.pause(0.02)
            self.kill_daemon()
        if daemon:
            self.in_grace = True
        if what == "hand over":
            self.in_grace = True
        if daemon and self.rng.random() < 0.3:
            self.pause(WORK)
        return fired

    def settle(self, killed):
        """Everybody stops; what was killed is buried; the notes are read."""
        self.running[0] = 0
        for child in killed:
            child.bury()
            self.children.remove(child)
        for child in [*self.children, *killed]:
            if child in self.children:
                child.held = self.answer_of(child, "stops")["held"]
            for version, number in child.notes.versions():
                self.see_version(version, busy.name_of(child.namespace, number))
            states = self.states[child.namespace]
            for kind, outcome, number, value in child.notes.read():
                value = value if value[0] else None
                states[number] = truth.after(kind, outcome, value, states[number])

    def round(self):
        self.populate()
        what, points, victims = self.plan()
        if self.in_grace and points and points[0] in SERVING and self.rng.random() < 0.9:
            self.end_grace(None)  # during which there is little room, and so little happens
        mood = mood_for(points[0]) if points else "any"
        self.history = [f"kill {what}" + "".join(f" at {p}" for p in points) +
                        f", clients {[c.number for c in victims]}, in the mood for {mood}"]
        self.begin(mood)
        self.killed = killed = list(victims)
        fired = self.kill(what, points, victims)
        self.settle(killed)
        ending = next((p for p in points if p in ENDING_GRACE), None)
        self.history += [f"{p} was not passed" for p in points if p not in (*fired, ending)]
        self.connect()
        self.look()
        if self.in_grace and (ending or self.rng.random() < 0.5):
            self.end_grace(ending)
            self.look()
        return 1

    def end_grace(self, point):
        """Waits for the end of the grace period. `point`: the failpoint at which the daemon dies then; None: it does not."""
        if not self.failpoints:
            # It began when the daemon started, which is not longer ago than that.
            self.pause_for(self.place.grace_ms / 1000)
        else:
            before = self.failpoints.fired()
            if point:
                self.failpoints.arm(point, 1)
            self.failpoints.set(Failpoints.END_GRACE, 1)
            self.connect()
            self.connect()  # the turn after it
            self.failpoints.set(Failpoints.END_GRACE, 0)
            self.failpoints.disarm()
            if self.failpoints.fired() != before:
                self.kills[point] = self.kills.get(point, 0) + 1
                for child in self.children:  # back again, all of them
                    child.notes.clear()
                    child.send(what="work", mood="any", seed=0, namespace=child.namespace,
                               namespaces=NAMESPACES, states=[[] for _ in range(NAMES)])
                    self.wait(lambda child=child: select.select([child.control], [], [], 0)[0],
                              lambda child=child: f"client {child.number} comes back")
                    child.held = child.receive()["held"]
                self.connect()
                return
        self.in_grace = False

    def pause_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keeper.pump(0.01)

    # ---- looking ----

    def list(self, **params):
        """Objects as listed."""
        found = []
        while True:
            page = self.ask("list", **params)
            found += page["objects"]
            if "cursor" not in page:
                return found
            params["cursor"] = page["cursor"]

    def look_at_versions(self):
        """{(name, version)}: all that there are, of names that keep no more than they may."""
        found, keep = set(), 0
        for told in self.list(versions=True):
            current = not told.get("older") and not told.get("gone")
            keep = told.get("keep", 0) if current else keep - bool(told.get("older"))
            if keep < 0:
                raise Failure(f"more older versions than it keeps: {told}")
            self.see_version(told["version"], told["name"], told["created_ms"])
            found.add((told["name"], told["version"]))
        return found

    def look_at_names(self):
        """The list has no object that may not be; returns the objects to be read."""
        listed, reading = {told["name"]: told for told in self.list()}, []
        for namespace, names in enumerate(self.states):
            for number, states in enumerate(names):
                name = busy.name_of(namespace, number)
                there = listed.pop(name, None)
                if not there:
                    if None not in states:
                        raise Failure(f"{name} is lost: it must be one of {states}")
                    names[number] = {None}
                    continue
                self.see_version(there["version"], name, there["created_ms"])
                values = [s for s in states if s and s[3] == there["bytes"] and
                          s[4] == there["pinned"]]
                if values and truth.has_layout_alone(values[0]):
                    values = self.of_its_layout(name, values)
                if not values:
                    raise Failure(f"{name} is {there}, which must be one of {states}")
                if there["state"] != "sealed":
                    raise Failure(f"{name} is {there}: not sealed")
                reading.append((namespace, number, name, values))
        if listed:
            raise Failure(f"objects that nobody made: {listed}")
        return reading

    def of_its_layout(self, name, values):
        """The first of the values that has the object's layout, in a list."""
        identity = truth.identity_of(self.ask("stat", name=name)["object"])
        return [value for value in values if value[0] == identity][:1]

    def see_version(self, version, name, made=None):
        """A version is told of one object, ever: at its seal (`made` is None), and in lists."""
        known = self.versions.get(version)
        if known and (not made or known[0] != name or made != (known[1] or made)):
            raise Failure(f"version {version} is that of {known}, and of {name}, made at {made}")
        self.versions[version] = [name, made]

    def look_at_content(self, strict=False):
        """An object in a tier may have no room to come back; `strict`: it must have."""
        reading = self.look_at_names()
        self.checker.notes.clear()
        self.checker.send(what="verify", patient=strict,
                          objects=[(name, values) for _, _, name, values in reading])
        found = self.answer_of(self.checker, "has read all objects")["found"]
        for (namespace, number, _, values), i in zip(reading, found):
            self.read[i >= 0] += 1
            if i >= 0:
                self.states[namespace][number] = {values[i]}

    def look_at_leases(self):
        """Checks that the leases are those that clients say they have, and no others."""
        alive = {c.pid: sorted(map(tuple, c.held)) for c in [*self.children, self.checker]}
        found = {}

        def same():
            nonlocal found
            found = {pid: [] for pid in alive}
            for lease in self.ask("leases")["leases"]:
                found.setdefault(lease["pid"], []).append((lease["name"], lease["version"]))
            found = {pid: sorted(leases) for pid, leases in found.items()}
            return found == alive

        self.wait(same, lambda: f"leases are as they must be: {alive}, found {found}", 10)

    def look_at_account(self):
        """Sessions, segments, descriptors and bytes."""
        sessions = {c.pid for c in [*self.children, self.checker]}
        stats = {}
        why = ""

        def right():
            nonlocal stats, why
            stats = self.ask("stats")
            device = stats["devices"][0]
            held = {tuple(h) for c in self.children for h in c.held}
            current = self.look_at_versions()
            segments, memory = device["segments"], self.memory()
            tiers = 1 + (self.device != "host")
            kept = self.keeper.kept() - self.kept_before if self.kept_before is not None else None
            wrong = []
            if stats["sessions"] != len(sessions) + 1:
                wrong.append(f"{stats['sessions']} sessions of {len(sessions) + 1} clients")
            if not self.in_grace and stats["objects"] != len(current | held):
                wrong.append(f"{stats['objects']} objects, of {len(current)} and {len(held - current)} held")
            if kept is not None and kept != segments:
                wrong.append(f"{kept} segments kept of {segments}")
            if memory is not None and len(memory) != segments + tiers:
                wrong.append(f"{len(memory)} pieces of memory for {segments} segments: {memory}")
            files = [os.path.getsize(os.path.join(self.disk, f)) for f in os.listdir(self.disk)
                     if f.endswith(".spill")]
            disk = next(t for t in stats["tiers"] if t["tier"] == "disk")
            packed = disk["copies"] - len(files)  # small ones: up to 64 KiB, rounded up, with a header
            if not 256 * packed <= disk["used"] - sum(files) <= (65536 + 256) * packed:
                wrong.append(f"{len(files)} files of {disk['copies']} copies, {sum(files)} bytes")
            if device["free"] + device["used"] + device["retained"] + device["pinned_by_clients"] \
                    != device["capacity"]:
                wrong.append("the device's account")
            why = ", ".join(wrong)
            return not wrong

        self.wait(right, lambda: f"the account is right: {why}: {stats['devices']}, {stats['tiers']}",
                  10)

    def memory(self):
        """The pieces of memory that the daemon has open; None where it cannot be seen."""
        if self.place.real:
            return None
        daemon = self.keeper.daemon()
        return {inode: what for what, inode in descriptors(daemon)
                if ("/memfd:" in what and "/memfd:gpubufd-page" not in what) or
                ("/v-" in what and self.place.root_of_fake in what)}

    def wait_for_sessions(self):
        """Waits until requests of killed clients are done: one may have asked for something just before."""
        sessions = len(self.children) + 2
        self.checker.notes.clear()
        self.checker.send(what="come_back")
        self.answer_of(self.checker, "comes back")
        self.wait(lambda: self.ask("stats")["sessions"] == sessions,
                  lambda: f"there are {sessions} sessions")

    def look(self):
        self.wait_for_sessions()
        self.look_at_content()
        self.look_at_leases()
        self.look_at_account()

    # ---- beginning and end ----

    def start(self):
        self.connect()
        if self.failpoints:
            self.failpoints.disarm()
        # Nothing is made yet: what is kept now is the journal, and what is below.
        self.kept_before = None
        self.wait(lambda: self.ask("stats")["devices"][0]["segments"] == 0, lambda: "empty")
        self.kept_before = self.settled_kept()

    def settled_kept(self):
        """Bytes that stay kept when nothing more comes."""
        self.connect()
        kept = -1
        while kept != (kept := self.keeper.kept()):
            self.pause_for(0.02)
        return kept

    def end(self):
        """Everybody leaves and everything is deleted: nothing is left behind."""
        self.populate()
        for child in self.children:
            child.kill()
            child.bury()
        self.children = []
        if self.in_grace:
            self.end_grace(None)
        self.connect()
        names = [told["name"] for told in self.list()]
        for name in names:
            self.ask("set", pinned=False, name=name)
        for states in (states for names in self.states for states in names):
            states.update([s and (*s[:4], False) for s in states])
        self.look_at_content(strict=True)
        self.checker.kill()
        self.checker.bury()
        self.checker = None
        if names:
            self.ask("delete", names=names)
        self.states = [[{None} for _ in range(NAMES)] for _ in range(NAMESPACES)]
        stats, tiers = {}, 1 + (self.device != "host")

        def empty():
            nonlocal stats
            self.ask("trim")
            stats = self.ask("stats")
            device = stats["devices"][0]
            return (device["free"] == device["capacity"] and device["segments"] == 0 and
                    stats["objects"] == 0 and stats["leases"] == 0 and
                    not any(t["copies"] or t["used"] for t in stats["tiers"]) and
                    self.keeper.kept() == self.kept_before and
                    not [f for f in os.listdir(self.disk) if f.endswith(".spill")] and
                    len(self.memory() or range(tiers)) == tiers)

        self.wait(empty, lambda: f"nothing is left: {stats}, {self.keeper.kept()} kept of "
                  f"{self.kept_before}, memory {self.memory()}, files {os.listdir(self.disk)}", 20)
        self.peer.close()
        self.peer = None
        status = self.keeper.stop()
        if status != 0:
            raise Failure(f"it stopped with {status}: {self.keeper.last_words()}")
        self.look_at_log()
        shutil.rmtree(self.directory)

    def look_at_log(self):
        with open(self.keeper.log, errors="replace") as file:
            text = file.read()
        for word in ("Sanitizer", "runtime error:", "Assertion", " error   "):
            if word in text:
                at = text.index(word)
                raise Failure(f"the log says {text[max(0, at - 200):at + 4000]}")

    def tell(self):
        """All that is known of the round that failed."""
        lines = [f"directory {self.directory}, {type(self.keeper).__name__}, seed {self.seed}",
                 *self.history]
        for child in [*self.children, *self.killed, self.checker]:
            if not child:
                continue
            lines.append(f"client {child.number} (pid {child.pid}): {child.notes.failure()}")
            for kind, outcome, number, value in child.notes.read()[-200:]:
                name = busy.name_of(getattr(child, "namespace", 0), number)
                lines.append(f"    {kind} {name} {value if value[0] else ''} "
                             f"{truth.OUTCOMES[outcome]}")
        if isinstance(self.keeper, Managed):
            lines += [f"kept: {name} {os.fstat(fd).st_ino}" for name, fd in self.keeper.stored]
        lines += [f"{what} {inode[1]}" for what, inode in descriptors(self.keeper.daemon())]
        lines += [f"{busy.name_of(n, k)}: {s}" for n, names in enumerate(self.states)
                  for k, s in enumerate(names) if s != {None}]
        return "\n".join(lines) + "\nthe daemon's last words:\n" + self.keeper.last_words(80)

    def kill_all(self):
        for child in [*self.children, *([self.checker] if self.checker else [])]:
            try:
                child.kill()
                child.bury()
            except (ProcessLookupError, ChildProcessError):
                pass
        self.keeper.kill()
