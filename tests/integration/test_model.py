"""Random programs against a model that is too simple to be wrong: model.py.

Sessions of several users do whatever comes, on a daemon with tiers. Every answer must agree with the
model's, and so must every event, every figure of the account, the tier of every object, and every
byte that can be read. A program that fails is printed as the calls of its rules, as short as it could
be made.

    GPUBUF_TEST_PROGRAMS=2000 GPUBUF_TEST_SEED=7 /usr/bin/python3 -m pytest tests/integration/test_model.py

runs 2000 of each kind, others for each seed; without a seed they are the same every time.
GPUBUF_TEST_SHRINK=0 tells the first that fails as it is; to make it shorter takes up to five minutes.
"""

import os
import select
import sys
import time

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import device as test_device
from model import Content, Model, Refused, Session, Wait
from peer import DEADLINE, RpcError, Timeout, bytes_layout

pytestmark = pytest.mark.programs
ROOT = os.geteuid() == 0
# The last two are of one group.
USERS = [(0, 0), (0, 0), (4242, 4242), (4243, 4242)] if ROOT else [(os.geteuid(), os.getegid())] * 4
TIERS = ["host", "disk"] if test_device.ON_GPU else ["disk"]
SHRINK = os.environ.get("GPUBUF_TEST_SHRINK", "1") != "0"
FILE_HEADER, PACK_HEADER, PACKED, GRANULE = 4096, 96, 64 << 10, 256


def rounded(size):
    return -(-size // GRANULE) * GRANULE


def on_disk(size):
    return size + FILE_HEADER if size > PACKED else rounded(size + PACK_HEADER)


ANY = st.integers(0, 1 << 20)
NAMES = st.sampled_from(["a", "b", "b/c", "d", "e/f/g"])
SESSIONS = st.integers(0, len(USERS) - 1)
MODES = st.sampled_from([0o600, 0o600, 0o644, 0o640, 0o666])
EVICT = st.sampled_from(["spill", "spill", "spill", "spill", "drop", "keep"])

class Machine(RuleBasedStateMachine):
    """Common part of both kinds of program."""

    daemon = None  # set by the test
    capacity = None
    predict = True
    roomy = True
    failure = None  # the first one

    @initialize()
    def start(self):
        self.peers = [self.connect(user) for user in USERS]
        self.watch = self.daemon.connect()
        self.clear()
        self.seq = self.watch.call("watch")["seq"]
        self.events_told()
        self.sessions = [Session(*user) for user in USERS]
        self.model = Model(self.capacity, TIERS, "device", self.predict, self.roomy)
        self.objects = [{} for _ in USERS]  # lease -> object, as it was told
        self.ignored = []  # (peer, id) of replies that nobody waits for
        self.count = 0
        self.broken = False

    def clear(self):
        """As it was: a program that failed leaves something."""
        for name in self.watch.names():
            self.watch.call("delete", name=name)

        def all_given_back(stats):
            self.watch.call("trim")
            return (stats["devices"][0]["free"] == self.capacity
                    and all(tier["used"] == 0 for tier in stats["tiers"]))

        self.watch.wait_for_stats(all_given_back)

    def connect(self, user):
        return self.daemon.connect_as(*user) if ROOT else self.daemon.connect()

    # ---- asking ----

    def reply(self, peer, ident):
        """The reply to a request, while the other sessions do what is asked of them."""
        end = time.monotonic() + DEADLINE
        while ident not in peer.replies:
            ready = [p for p in self.peers if b"\n" in p.input]
            ready = ready or select.select([p.socket for p in self.peers], [], [], 0.1)[0]
            assert time.monotonic() < end, "no answer"
            for one in [p for p in self.peers if p in ready or p.socket in ready]:
                message = one.recv_message()
                if "method" in message:
                    self.notified(one, message)
                else:
                    one.replies[message["id"]] = message
        return peer.reply(ident)

    def notified(self, peer, message):
        assert message["method"] == "segments.retire", message
        retired = set(message["params"]["segments"])
        assert not retired & self.in_use(self.peers.index(peer)), "an object lies in a retired segment"
        self.unmap(peer, retired & {key[0] for key in peer.segments})  # one that was asked for may be asked for again

    def in_use(self, session, without=None):
        """The segments in which a session has leases."""
        return {o["layout"]["data"]["segment"] for lease, o in self.objects[session].items()
                if lease != without and o["layout"]["data"]["bytes"]}

    def unmap(self, peer, segments):
        for key in [key for key in peer.segments if key[0] in segments]:
            peer.segments.pop(key).close()
        if segments:
            self.ignored.append((peer, peer.request("unmap", segments=sorted(segments))))

    def events_told(self):
        told, last = [], self.watch.call("list", limit=1)["seq"]
        while self.watch.notifications or self.seq < last:  # events may come after a reply
            params = self.watch.notification("event")["params"]
            self.seq = params["seq"]
            if params["kind"] != "synced":
                told.append((params["kind"], params["object"]["name"]))
        return told

    def do(self, session, method, act, let_go=(), **params):
        """The daemon does it, then the model by act(result), and they must agree. `let_go`: segments
        that the session will not use after it, and unmaps before. Returns the result, or None if it was refused."""
        peer, result, error = self.peers[session], None, None
        self.broken = True  # until the end of finish()
        self.unmap(peer, let_go)
        ident = peer.request(method, **params)
        try:
            result = self.reply(peer, ident)
        except RpcError as caught:
            error = caught
        told = self.events_told()
        self.model.begin([t for t in told if t[0] in ("spilled", "restored", "evicted")],
                         error is not None and error.kind == "no_space")
        self.compare(error, act, result or {})
        self.finish(told)
        return result

    def compare(self, error, act, result):
        try:
            act(result)
        except Refused as refused:
            assert error is not None, f"expected {refused.kinds}, but it was done"
            assert error.kind in refused.kinds, f"expected {refused.kinds}: {error}"
        else:
            assert error is None, f"expected to be done: {error}"

    def finish(self, told):
        """Further effects of the request."""
        served = self.model.serve_waiting()
        if served:
            session = self.sessions.index(served.session)
            self.created(session, self.reply(self.peers[session], served.ident), served.version)
            told = told + self.events_told()
        own = self.model.events
        late = told[:len(told) - len(own)]
        if not self.predict and late and all(kind == "spilled" for kind, _ in late):
            self.model.begin(late)  # moves that an earlier request began, and whose room came before they were done
            self.model.take_told()
            self.model.events += own
        assert told == self.model.events
        for peer, ident in self.ignored:
            self.reply(peer, ident)
        self.ignored = []
        self.check()
        self.broken = False

    # ---- what the rules are made of ----

    def new_content(self, size):
        self.count += 1
        return Content(self.count, size)

    def occupied(self, size):
        raise NotImplementedError

    def create_it(self, session, name, size, replace, evict, mode, ttl_ms=0):
        """The lease, or None."""
        data = self.new_content(size)

        def act(result):
            version = self.model.create(self.sessions[session], name, data, self.occupied(size),
                                        replace, evict, mode, ttl_ms)
            if result:
                self.created(session, result, version)

        result = self.do(session, "create", act, name=name, layout=bytes_layout(size),
                         replace=replace, evict=evict, mode=f"{mode:04o}", ttl_ms=ttl_ms)
        return result["lease"] if result else None

    def created(self, session, result, version):
        told = result["object"]
        assert (told["name"], told["state"], told["bytes"]) == (version.name, "open", version.length)
        self.model.grant(self.sessions[session], result["lease"], version, write=True)
        self.objects[session][result["lease"]] = told
        data = told["layout"]["data"]
        for offset, piece in version.pieces():
            self.peers[session].write({**data, "offset": data["offset"] + offset}, piece)

    def unused_after(self, session, lease):
        """Segments that the session may unmap when that lease has ended."""
        if not self.predict or lease not in self.objects[session]:
            return ()
        data = self.objects[session][lease]["layout"]["data"]
        return {data["segment"]} - self.in_use(session, lease) if data["bytes"] else ()

    def seal_it(self, session, lease, release):
        def act(result):
            self.model.seal(self.sessions[session], lease, result.get("version"), release)
            if release:
                del self.objects[session][lease]

        version = self.sessions[session].leases[lease].version
        try:
            self.model.check_name(self.sessions[session], version.name, version.replace)
            let_go = self.unused_after(session, lease) if release else ()
        except Refused:
            let_go = ()  # it stays unsealed
        self.do(session, "seal", act, lease=lease, release=release, let_go=let_go)

    def abort_it(self, session, lease):
        def act(_):
            self.model.abort(self.sessions[session], lease)
            del self.objects[session][lease]

        self.do(session, "release", act, lease=lease, let_go=self.unused_after(session, lease))

    def any_lease(self, pick, write):
        """One (session, lease) of those that there are."""
        pairs = [(i, ident) for i, session in enumerate(self.sessions)
                 for ident, lease in session.leases.items() if lease.write == write]
        return pairs[pick % len(pairs)]

    def has_leases(self, write):
        return any(lease.write == write for s in self.sessions for lease in s.leases.values())

    # ---- rules ----

    @precondition(lambda self: self.has_leases(True))
    @rule(pick=ANY, release=st.booleans())
    def seal(self, pick, release):
        session, lease = self.any_lease(pick, True)
        self.seal_it(session, lease, release)

    @precondition(lambda self: self.has_leases(True))
    @rule(pick=ANY)
    def abort(self, pick):
        session, lease = self.any_lease(pick, True)
        self.abort_it(session, lease)
        self.peers[session].error("stale", "release", lease=lease)

    @rule(session=SESSIONS, name=NAMES)
    def open(self, session, name):
        def act(result):
            version = self.model.open(self.sessions[session], name)
            if not result:
                return
            told = result["object"]
            assert (told["version"], told["bytes"]) == (version.number, version.length)
            self.model.grant(self.sessions[session], result["lease"], version)
            self.objects[session][result["lease"]] = told

        self.do(session, "open", act, name=name)

    @precondition(lambda self: self.has_leases(False))
    @rule(pick=ANY)
    def release(self, pick):
        session, lease = self.any_lease(pick, False)

        def act(_):
            self.model.release(self.sessions[session], lease)
            del self.objects[session][lease]

        self.do(session, "release", act, lease=lease, let_go=self.unused_after(session, lease))
        self.peers[session].error("stale", "release", lease=lease)

    @rule(session=SESSIONS, name=NAMES)
    def delete(self, session, name):
        self.do(session, "delete", lambda _: self.model.delete(self.sessions[session], name),
                name=name)

    @rule(session=SESSIONS, name=NAMES, of=NAMES, start=st.integers(0, 300),
          length=st.integers(0, 300), mode=st.one_of(st.none(), MODES), replace=st.booleans())
    def alias(self, session, name, of, start, length, mode, replace):
        params = {} if mode is None else {"mode": f"{mode:04o}"}
        self.do(session, "alias", lambda result: self.model.alias(
            self.sessions[session], name, of, start, length, mode, replace, result.get("version")),
            name=name, of=of, slice={"offset": start, "length": length}, replace=replace, **params)

    @rule(session=SESSIONS, name=NAMES, on=st.booleans())
    def pin(self, session, name, on):
        self.do(session, "set", lambda _: self.model.pin(self.sessions[session], name, on), name=name, pinned=on)

    @rule(session=SESSIONS, name=NAMES, tier=st.sampled_from([None, None, "host", "disk"]))
    def spill(self, session, name, tier):
        self.do(session, "move", lambda _: self.model.spill(self.sessions[session], name, tier),
                name=name, **({"tier": tier} if tier else {}))

    @rule(session=SESSIONS, name=NAMES)
    def restore(self, session, name):
        self.do(session, "move", lambda _: self.model.restore_name(self.sessions[session], name), name=name, tier="device")

    @rule(session=SESSIONS)
    def kill(self, session):
        self.peers[session].close()
        self.daemon.peers.remove(self.peers[session])
        self.model.begin()
        self.model.kill(self.sessions[session])
        self.objects[session].clear()
        told = self.events_told()
        self.peers[session] = self.connect(USERS[session])
        self.finish(told)

    @rule()
    def trim(self):
        self.model.begin()
        self.peers[0].call("trim")
        self.model.trim()
        self.finish(self.events_told())

    # ---- what must hold ----

    def check(self):
        self.the_names_are_right()
        self.the_leases_are_right()
        self.every_byte_is_right()
        self.the_account_is_right()

    def the_names_are_right(self):
        for peer, session in zip(self.peers[1:], self.sessions[1:]):
            told = peer.call("list")["objects"]
            seen = [v for _, v in sorted(self.model.names.items()) if session.may(v, 4)]
            assert [(o["name"], o["version"], o["pinned"], o["leases"], o["evict"],
                     o["uid"], o["gid"], o["mode"], o["bytes"], o["ttl_ms"]) for o in told] == [
                (v.name, v.number, v.pinned, v.leases, v.evict,
                 v.owner, v.gid, f"{v.mode:04o}", v.length, v.ttl_ms) for v in seen]
            for one, version in zip(told, seen):
                assert one["tier"] in self.model.tier(version.storage), one["name"]

    def the_leases_are_right(self):
        told = self.peers[0].call("leases")
        assert sorted((e["lease"], e["version"], e["access"]) for e in told["leases"]) == sorted(
            (ident, lease.version.number, "rw" if lease.write else "r")
            for session in self.sessions for ident, lease in session.leases.items())

    def every_byte_is_right(self):
        for peer, session, objects in zip(self.peers, self.sessions, self.objects):
            for ident, told in objects.items():
                data = told["layout"]["data"]
                for offset, piece in session.leases[ident].version.pieces():
                    assert peer.read({"segment": data["segment"], "offset": data["offset"] + offset,
                                      "bytes": len(piece)}) == piece

    def the_account_is_right(self):
        try:
            self.watch.wait_for_stats(self.agrees)
        except Timeout:
            self.agrees(self.watch.call("stats"), say=True)

    def agrees(self, stats, say=False):
        device = stats["devices"][0]
        parts = ("free", "used", "retained", "pinned_by_clients")
        assert device["capacity"] == self.capacity == sum(device[part] for part in parts)
        for tier in stats["tiers"]:
            assert tier["capacity"] == tier["free"] + tier["used"]
        expected = self.figures_expected()
        told = {key: device[key] for key in expected}
        if self.predict:  # which knows what objects occupy
            expected["users"], more = self.model.accounts(self.sessions)
            told["users"] = {user["uid"]: (user["bytes"][0]["used"], user["leases"]["used"])
                             for user in stats["users"]}
            expected["held"] = self.capacity - device["free"] + more
            told["held"] = sum(user["bytes"][0]["held"] for user in stats["users"])
        if say:
            assert told == expected
        return told == expected

    def figures_expected(self):
        return {key: value for key, value in self.model.figures().items()
                if key in ("spilled", "spilled_bytes", "objects")}

    def teardown(self):
        if isinstance(error := sys.exc_info()[1], Exception):
            type(self).failure = self.failure or error
        if not hasattr(self, "model"):
            return
        try:
            if not self.broken:
                self.end()
        finally:
            for peer in (*self.peers, self.watch):
                peer.close()
                if peer in self.daemon.peers:
                    self.daemon.peers.remove(peer)

    def end(self):
        """Every object once more; then all is given back."""
        for session, objects in zip(range(len(USERS)), self.objects):
            for lease in list(objects):
                if self.sessions[session].leases[lease].write:
                    self.abort_it(session, lease)
        for session in range(len(USERS)):
            if self.objects[session] or self.model.waiting:
                self.kill(session)
        for name in sorted(self.model.names):
            if name in self.model.names:
                self.open(0, name)
                self.every_byte_is_right()
                for lease in list(self.objects[0]):
                    self.release(0)
        for name in sorted(self.model.names):
            self.delete(0, name)
        for peer in self.peers:
            self.unmap(peer, {s.id for s in peer.segments.values()})
        self.model.begin()
        self.finish(self.events_told())
        assert self.peers[0].call("leases") == {"leases": [], "mapped": []}
        assert self.watch.names() == []
        self.clear()



# ---- what leaves, and when, is predicted ----------------------------------------------------------

# Every object has a segment of its own: they are larger than a quarter of the device. None of these is
# so little larger than another that it would be placed in the other's segment.
UNIT, UNITS = 2 << 20, 12
LARGE = st.sampled_from([4, 4, 5, 6, 8, 12])


class Exact(Machine):
    capacity = UNIT * UNITS

    def occupied(self, size):
        return -(-size // UNIT) * UNIT

    @rule(session=SESSIONS, name=NAMES, units=LARGE, less=st.sampled_from([0, 77, UNIT - 1]),
          replace=st.booleans(), evict=EVICT, mode=MODES)
    def create(self, session, name, units, less, replace, evict, mode):
        self.create_it(session, name, units * UNIT - less, replace, evict, mode)

    @rule(session=SESSIONS, name=NAMES, units=LARGE, evict=EVICT, mode=MODES)
    def publish(self, session, name, units, evict, mode):
        """create and seal at once, so that programs have something to be about."""
        lease = self.create_it(session, name, units * UNIT, True, evict, mode)
        if lease is not None:
            self.seal_it(session, lease, release=True)

    @rule(session=SESSIONS, name=NAMES, evict=EVICT)
    def publish_nothing(self, session, name, evict):
        lease = self.create_it(session, name, 0, True, evict, 0o644)
        if lease is not None:
            self.seal_it(session, lease, release=True)

    @rule(session=SESSIONS, name=NAMES)
    def too_large(self, session, name):
        self.create_it(session, name, UNITS * UNIT + 1, False, "spill", 0o600)

    @precondition(lambda self: self.model.waiting is None)  # or who of both is the first?
    @rule(session=SESSIONS, name=NAMES, units=LARGE, leased=st.booleans())
    def publish_for_a_moment(self, session, name, units, leased):
        """An object with a time to live, until that is over."""
        lease = self.create_it(session, name, units * UNIT, True, "spill", 0o600, ttl_ms=20)
        if lease is None:
            return
        number = self.peers[session].call("seal", lease=lease, release=not leased)["version"]
        told = []
        self.watch.wait_for_stats(
            lambda stats: told.extend(self.events_told()) or ("deleted", name) in told)
        self.model.begin()
        self.model.seal(self.sessions[session], lease, number, False)
        if not leased:
            let_go = self.unused_after(session, lease)
            del self.objects[session][lease]
            self.model.end_lease(self.sessions[session], lease)
        self.model.expire(name)
        if not leased:  # it was mapped when it went
            self.unmap(self.peers[session], let_go)
        self.finish(told)

    @precondition(lambda self: self.model.waiting is None)
    @rule(session=st.integers(0, 1), name=NAMES, units=LARGE)
    def create_waiting(self, session, name, units):
        data = self.new_content(units * UNIT)
        self.model.begin()
        version = None
        try:
            version = self.model.create(self.sessions[session], name, data, data.size, True,
                                        "spill", 0o600)
        except Refused as refused:
            if refused.kinds != ("no_space",):
                raise AssertionError(f"root is refused: {refused.kinds}") from refused
            self.model.waiting = Wait(self.sessions[session], refused.version, None)
        peer = self.peers[session]
        ident = peer.request("create", name=name, layout=bytes_layout(data.size), replace=True,
                             mode="0600", wait_ms=600000)
        if version is None:
            self.model.waiting.ident = ident
            peer.wait_until_read()
            peer.call("stats")
            assert ident not in peer.replies
        else:
            self.created(session, self.reply(peer, ident), version)
        self.finish(self.events_told())

    def agrees(self, stats, say=False):
        good = super().agrees(stats, say)
        used = {"disk": self.model.in_tier("disk", on_disk), "host": self.model.in_tier("host", rounded)}
        for tier in stats["tiers"]:
            if say:
                assert (tier["tier"], tier["used"]) == (tier["tier"], used[tier["tier"]])
            good &= tier["used"] == used[tier["tier"]]
        return good

    def figures_expected(self):
        return self.model.figures()


# ---- what leaves is held against the order of use -----------------------------------------------------

SMALL = st.one_of(st.integers(0, 3000), st.sampled_from(
    [255, 256, 257, 65536, 300000, 1 << 20, (2 << 20) + 1, 3 << 20, 5 << 20]))


class Ahead(Machine):
    """Many sizes, shared segments, copies made ahead, and sessions that unmap when they are asked to."""

    capacity = (24 << 20) if test_device.ON_GPU else (8 << 20)
    predict = False

    def occupied(self, size):
        return rounded(size)  # at least: no figure is made of it

    @rule(session=SESSIONS, name=NAMES, size=SMALL, replace=st.booleans(), evict=EVICT, mode=MODES)
    def create(self, session, name, size, replace, evict, mode):
        self.create_it(session, name, size, replace, evict, mode)

    @rule(session=SESSIONS, name=NAMES, size=SMALL, evict=EVICT, mode=MODES)
    def publish(self, session, name, size, evict, mode):
        lease = self.create_it(session, name, size, True, evict, mode)
        if lease is not None:
            self.seal_it(session, lease, release=True)

    @rule(session=SESSIONS)
    def unmap_unused(self, session):
        self.unmap(self.peers[session], {s.id for s in self.peers[session].segments.values()}
                   - self.in_use(session))
        self.model.begin()
        self.finish(self.events_told())


class Tight(Ahead):
    """The same with tiers that are too small: what is not to be dropped stays, and others go before it."""

    roomy = False


def run(machine, programs, steps=30):
    programs = int(os.environ.get("GPUBUF_TEST_PROGRAMS", programs))
    chosen = os.environ.get("GPUBUF_TEST_SEED")
    if chosen:
        seed(int(chosen))(machine)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=programs,
                stateful_step_count=steps,
                derandomize=not chosen,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=False,
                phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
            ),
        )
    except Flaky as flaky:  # the program went well when it was played again
        raise flaky from machine.failure


@pytest.fixture
def on_a_daemon(daemon_factory, directory):
    def start(machine, watermarks, host, disk):
        options = ["--watermarks", watermarks, "--tier", f"disk:{disk}:{directory}"]
        if test_device.ON_GPU:
            options += ["--tier", f"host:{host}"]
        kind = "cuda:0" if test_device.ON_GPU else "host"
        daemon = daemon_factory(*options, device=f"{kind}:{machine.capacity >> 20}M")
        return type(machine.__name__, (machine,), {"daemon": daemon})

    return start


# RELIABILITY.md: Clients that end 7
def test_what_leaves_is_predicted(on_a_daemon):
    machine = on_a_daemon(Exact, "100:100", "512M", "1G")
    run(machine, 40)
    assert machine.daemon.connect().names() == []


# RELIABILITY.md: Clients that end 7
def test_with_copies_made_ahead(on_a_daemon):
    machine = on_a_daemon(Ahead, "40:60", "128M", "1G")
    run(machine, 40)
    assert machine.daemon.connect().names() == []


def test_with_tiers_that_are_too_small(on_a_daemon):
    machine = on_a_daemon(Tight, "40:60", "4M", "6M")
    run(machine, 40)
    assert machine.daemon.connect().names() == []
