"""Random programs against a model that is too simple to be wrong.

Three sessions do whatever comes; the model is a dict of names and the content of every version that
somebody can still see. Every answer must agree, every byte that can be read is read, and at the end
everything is given back and the device is empty.
"""

import hashlib

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from peer import bytes_layout

ANY = st.integers(0, 1 << 20)
NAMES = st.sampled_from(["a", "b", "b/c", "d", "e/f/g"])
SESSIONS = st.integers(0, 2)
# Small ones share a segment; large ones have their own (a quarter of the largest segment and up).
SIZES = st.one_of(st.integers(0, 3000), st.sampled_from([255, 256, 257, 65536, 18 << 20]))


def content(seed, size):
    """Bytes that no other object has."""
    block = hashlib.sha256(str(seed).encode()).digest()
    return (block * (min(size, 8192) // 32 + 1))[: min(size, 8192)]


class Version:
    """What a sealed version holds."""

    def __init__(self, number, data, size, of=None):
        self.number, self.data, self.size = number, data, size
        self.pinned = False
        self.root = of.root if of else self  # whose memory it is

    def part(self, number, offset, length):
        return Version(number, self.data[offset : offset + length], length, self)


class Machine(RuleBasedStateMachine):
    daemon = None  # set by the test

    @initialize()
    def start(self):
        self.peers = [self.daemon.connect() for _ in range(3)]
        self.names = {}  # name -> Version
        self.unsealed = [{} for _ in range(3)]  # lease -> (name, data, size, replace)
        self.leases = [{} for _ in range(3)]  # lease -> (Version, object)
        self.last_version = 0
        self.count = 0

    def refused(self, session, kind, method, **params):
        self.peers[session].error(kind, method, **params)

    def new_version(self, number):
        assert number > self.last_version
        self.last_version = number
        return number

    @rule(session=SESSIONS, name=NAMES, size=SIZES, replace=st.booleans())
    def create(self, session, name, size, replace):
        params = {"name": name, "layout": bytes_layout(size), "replace": replace, "evict": "keep"}
        if name in self.names and not replace:
            self.refused(session, "exists", "create", **params)
            return
        if size > 1 << 20 and self.large():
            return  # never near the device's capacity: eviction has its own tests
        self.count += 1
        data = content(self.count, size)
        result = self.peers[session].create(name, bytes_layout(size), data, replace=replace,
                                            evict="keep")
        self.unsealed[session][result["lease"]] = (name, data, size, replace)

    def large(self):
        """Whether there is a large one, sealed or not, named or merely leased."""
        versions = list(self.names.values())
        versions += [v for leases in self.leases for v, _ in leases.values()]
        sizes = [v.root.size for v in versions]
        sizes += [size for made in self.unsealed for _, _, size, _ in made.values()]
        return any(size > 1 << 20 for size in sizes)

    def any_of(self, groups, pick):
        """One (session, lease) of those that there are."""
        pairs = [(i, lease) for i, group in enumerate(groups) for lease in group]
        return pairs[pick % len(pairs)]

    @rule(session=SESSIONS, name=NAMES, size=SIZES)
    def publish(self, session, name, size):
        """create and seal at once, so that programs have something to be about."""
        before = set(self.unsealed[session])
        self.create(session, name, size, replace=True)
        for lease in set(self.unsealed[session]) - before:
            self.seal_lease(session, lease, release=True)

    @precondition(lambda self: any(self.unsealed))
    @rule(pick=ANY, release=st.booleans())
    def seal(self, pick, release):
        self.seal_lease(*self.any_of(self.unsealed, pick), release)

    def seal_lease(self, session, lease, release):
        name, data, size, replace = self.unsealed[session][lease]
        if name in self.names and not replace:
            self.refused(session, "exists", "seal", lease=lease)
            self.peers[session].call("abort", lease=lease)
            del self.unsealed[session][lease]
            return
        number = self.peers[session].call("seal", lease=lease, release=release)["version"]
        del self.unsealed[session][lease]
        version = Version(self.new_version(number), data, size)
        self.names[name] = version
        if not release:
            self.leases[session][lease] = (version, None)

    @precondition(lambda self: any(self.unsealed))
    @rule(pick=ANY)
    def abort(self, pick):
        session, lease = self.any_of(self.unsealed, pick)
        self.peers[session].call("abort", lease=lease)
        del self.unsealed[session][lease]
        self.refused(session, "stale", "abort", lease=lease)

    @rule(session=SESSIONS, name=NAMES)
    def open(self, session, name):
        if name not in self.names:
            self.refused(session, "not_found", "open", name=name)
            return
        version = self.names[name]
        opened = self.peers[session].open_object(name)
        assert opened.version == version.number
        assert opened.layout["bytes"] == version.size
        self.leases[session][opened.lease] = (version, opened)

    @rule(session=SESSIONS, names=st.lists(NAMES, max_size=6))
    def open_many(self, session, names):
        entries = self.peers[session].call("open", names=names)["objects"]
        assert len(entries) == len(names)
        leases = []
        for name, entry in zip(names, entries):
            assert ("error" in entry) == (name not in self.names)
            if name in self.names:
                assert entry["object"]["version"] == self.names[name].number
                leases.append(entry["lease"])
        self.peers[session].call("release", leases=leases)

    @precondition(lambda self: any(self.leases))
    @rule(pick=ANY)
    def release(self, pick):
        session, lease = self.any_of(self.leases, pick)
        self.peers[session].call("release", lease=lease)
        del self.leases[session][lease]
        self.refused(session, "stale", "release", lease=lease)

    @rule(session=SESSIONS, name=NAMES)
    def delete(self, session, name):
        if name in self.names:
            self.peers[session].call("delete", name=name)
            del self.names[name]
        else:
            self.refused(session, "not_found", "delete", name=name)

    @rule(session=SESSIONS, name=NAMES, of=NAMES, offset=st.integers(0, 300),
          length=st.integers(0, 300), replace=st.booleans())
    def alias(self, session, name, of, offset, length, replace):
        params = {"name": name, "of": of, "replace": replace,
                  "slice": {"offset": offset, "length": length}}
        if of not in self.names:
            # Of two faults any may be told.
            self.refused(session, ("not_found", "exists"), "alias", **params)
        elif offset + length > self.names[of].size:
            taken = name in self.names and not replace
            self.refused(session, ("invalid", "exists") if taken else "invalid", "alias", **params)
        elif name in self.names and not replace:
            self.refused(session, "exists", "alias", **params)
        else:
            source = self.names[of]
            number = self.peers[session].call("alias", **params)["version"]
            self.names[name] = source.part(self.new_version(number), offset, length)

    @rule(session=SESSIONS, name=NAMES, on=st.booleans())
    def pin(self, session, name, on):
        method = "pin" if on else "unpin"
        if name in self.names:
            self.peers[session].call(method, name=name)
            self.names[name].pinned = on
        else:
            self.refused(session, "not_found", method, name=name)

    @rule(session=SESSIONS)
    def kill(self, session):
        self.peers[session].close()
        self.unsealed[session].clear()
        self.leases[session].clear()
        self.peers[session] = self.daemon.connect()

    @rule()
    def trim(self):
        self.peers[0].call("trim")

    @invariant()
    def the_names_are_right(self):
        if not hasattr(self, "peers"):
            return
        told = self.peers[0].call("list")["objects"]
        expected = sorted(self.names)
        assert [o["name"] for o in told] == expected
        for one in told:
            version = self.names[one["name"]]
            assert one["version"] == version.number and one["state"] == "sealed"
            assert one["pinned"] == version.pinned
            assert one["leases"] == sum(
                v is version for leases in self.leases for v, _ in leases.values())

    @invariant()
    def the_leases_are_right(self):
        if not hasattr(self, "peers"):
            return
        told = self.peers[1].call("leases")["leases"]
        expected = [("r", v.number) for leases in self.leases for v, _ in leases.values()]
        assert sorted(e["version"] for e in told if e["access"] == "r") == sorted(
            n for _, n in expected)
        assert sum(e["access"] == "rw" for e in told) == sum(map(len, self.unsealed))

    @invariant()
    def every_byte_is_right(self):
        if not hasattr(self, "peers"):
            return
        for leases in self.leases:
            for version, opened in leases.values():
                if opened is not None:
                    buffer = {**opened.layout["data"], "bytes": len(version.data)}
                    assert opened.peer.read(buffer) == version.data

    def teardown(self):
        if not hasattr(self, "peers"):
            return
        self.every_byte_is_right()
        for name in self.names:
            self.peers[2].call("delete", name=name)
        for peer, leases, unsealed in zip(self.peers, self.leases, self.unsealed):
            peer.call("release", leases=list(leases))
            for lease in unsealed:
                peer.call("abort", lease=lease)
            segments = sorted({s.id for s in peer.segments.values()})
            peer.call("unmap", segments=segments)
        assert self.peers[0].call("leases") == {"leases": [], "mapped": []}
        self.peers[0].call("trim")
        assert self.peers[0].used() == 0
        for peer in self.peers:
            peer.close()


@pytest.fixture
def machine(daemon):
    class OnThisDaemon(Machine):
        pass

    OnThisDaemon.daemon = daemon
    return OnThisDaemon


def test_random_programs(machine):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
