"""The model that pairs.py compares a daemon with: names, versions, leases, claims, streams and grace, as plainly as they can
be said. There is no clock, no socket and no memory in it.

A client is anything that has `uid`, `gid`, `pid` and `leases`. A method either does what it is asked or raises `Refused`
and changes nothing. How objects lie in memory is not predicted: `pairs.py` reports what has left its device (`left`,
`returned`, `evicted`), and the model says whether it may have.
"""

import random

PIECE = 1 << 20
NOISE = random.Random(20).randbytes(PIECE) * 2


class Root:
    """A client that may do everything."""

    uid = gid = 0


class Refused(Exception):
    """The request fails with an error of one of these kinds."""

    def __init__(self, *kinds):
        super().__init__(", ".join(kinds))
        self.kinds = kinds


class Content:
    """Bytes that no other content has at the same place."""

    def __init__(self, ident, size):
        self.ident, self.size = ident, size
        self.start = ident * 2654435761 % PIECE

    def read(self, offset, length):
        """At most a piece of it."""
        at = (self.start + offset) % PIECE
        return NOISE[at:at + length]

    def whole(self):
        return (NOISE[self.start:self.start + PIECE] * (self.size // PIECE + 1))[:self.size]


class Storage:
    """The memory of an object and its aliases."""

    def __init__(self, data, device, key, maker, live=False, own=False):
        self.data, self.device, self.key, self.maker, self.live, self.own = data, device, key, maker, live, own
        self.size = data.size
        self.versions = []  # all that there are, with a name or without
        self.charged = None  # bytes that it counts for a user, once known
        self.resident = True
        self.place = None  # (segment, offset) while it is resident and has bytes
        self.used = 0  # when it was last let go of
        self.named_once = False
        self.was_held = False  # when the last daemon ended

    @property
    def held(self):
        """Whether anything keeps it on its device."""
        return any(v.held for v in self.versions)

    def lies_at(self, place, start):
        """Whether a buffer that begins at `start` of it is at that place."""
        if not place["bytes"]:
            return self.resident
        return self.place == (place["segment"], place["offset"] - start)

    @property
    def needed(self):
        """Whether it must not be dropped."""
        return any((v.named and v.evict != "drop") or any(lease.parked for lease in v.leases) for v in self.versions)


class Version:
    def __init__(self, name, storage, client, mode, evict="spill", keep=0, label="", ttl_ms=0, replace=False):
        self.name, self.storage, self.mode, self.evict = name, storage, mode, evict
        self.owner, self.gid = client.uid, client.gid
        self.keep, self.label, self.ttl_ms, self.replace = keep, label, ttl_ms, replace
        self.start, self.length = 0, storage.size
        self.number = 0  # unsealed
        self.named = self.pinned = self.graced = False
        self.leases = []  # of sessions, those that wrote and have left included
        self.generation = 0
        self.stream = None

    @property
    def live(self):
        return self.storage.live

    @property
    def held(self):
        return (self.graced or self.pinned or (self.named and self.evict == "keep")
                or any(lease.in_use for lease in self.leases))

    @property
    def writers(self):
        return [lease for lease in self.leases if lease.write]

    @property
    def claimed(self):
        return any(lease.exclusive for lease in self.leases)


class Lease:
    def __init__(self, ident, version, client, write=False, exclusive=False):
        self.ident, self.version, self.client = ident, version, client
        self.write, self.exclusive = write, exclusive
        self.parked = self.cached = self.left = False
        self.slot = None
        self.part = None  # "writer", or a reader's number

    @property
    def in_use(self):
        return not (self.parked or self.cached)

    @property
    def stays(self):
        """Whether it outlives its session, for as long as its process lives."""
        return (self.write and self.version.live) or self.part is not None


class Stream:
    """The writer and the readers that take part."""

    def __init__(self):
        self.writer = self.over = 0
        self.readers = {}  # number -> (lease, hold, lag)

    @property
    def active(self):
        return sum(1 << number for number in self.readers)


class Model:
    def __init__(self, tiers):
        self.tiers = tiers  # {device: tiers below it, the next one first}
        self.names = {}  # name -> versions, the current one first
        self.versions = []  # all that there are
        self.expected = []  # events that are to come, in their order
        self.waiting = {}  # name of a live object -> [(client, exclusive)…] that wait to write it
        self.deadlines = {}  # number of a version that lives for a moment -> until when, by the test's clock
        self.in_grace = False
        self.clock = 0
        self.last_version = 0

    # ---- who may, and what there is ----

    @staticmethod
    def may(client, version, bit):
        if client.uid in (0, version.owner):
            return True
        return bool(version.mode & (bit << 3 if client.gid == version.gid else bit))

    def find(self, client, name, number=None, label=None):
        """A version that can be opened."""
        versions = self.names.get(name, [])
        if number is None and label is None:
            if versions and self.may(client, versions[0], 4):
                return versions[0]
            raise Refused("not_found")
        seen = [v for v in versions if self.may(client, v, 4)]
        for version in seen:
            if version.number == number or (label is not None and version.label == label):
                return version
        raise Refused("stale" if seen and number is not None else "not_found")

    def find_changeable(self, client, name, number=None, label=None):
        version = self.find(client, name, number, label)
        if not self.may(client, version, 2):
            raise Refused("denied")
        return version

    def check_name(self, client, name, replace):
        versions = self.names.get(name)
        if versions and not self.may(client, versions[0], 2):
            raise Refused("denied")
        if versions and not replace:
            raise Refused("exists")

    def lease_of(self, client, ident):
        lease = client.leases.get(ident)
        if lease is None:
            raise Refused("stale")
        return lease

    # ---- names ----

    def expect_event(self, kind, version):
        self.expected.append((kind, version.name, version.number))

    def tick(self):
        self.clock += 1
        return self.clock

    def let_go(self, storage):
        if not storage.held:
            storage.used = self.tick()

    def publish(self, version, number):
        """Gives it its name."""
        assert number > self.last_version, f"version {number} after {self.last_version}"
        self.last_version = version.number = number
        former = self.names.get(version.name, [])
        version.named = True
        if not version.storage.named_once:
            version.storage.named_once = True
            version.storage.used = self.tick()
        self.names[version.name] = [version, *former]
        if former and former[0].pinned:
            former[0].pinned = False
            self.let_go(former[0].storage)
        for older in reversed([version, *former][version.keep + 1:]):
            self.lose_name(older)
        self.expect_event("sealed", version)

    def lose_name(self, version):
        versions = self.names[version.name]
        versions.remove(version)
        if not versions:
            del self.names[version.name]
        held = version.held
        version.named = version.pinned = False
        if held:
            self.let_go(version.storage)
        self.forget(version)

    def unname(self, version, kind):
        """A current version takes the older ones along."""
        if self.names[version.name][0] is version:
            self.expect_event(kind, version)
            for older in reversed(self.names[version.name][1:]):
                self.lose_name(older)
        self.lose_name(version)

    def forget(self, version):
        """Removes a version without a name that nobody holds."""
        if version.named or version.leases or version.graced or version not in self.versions:
            return
        self.versions.remove(version)
        version.storage.versions.remove(version)

    # ---- leases ----

    def grant(self, client, ident, version, write=False, exclusive=False):
        assert ident not in client.leases
        lease = client.leases[ident] = Lease(ident, version, client, write, exclusive)
        version.leases.append(lease)
        version.generation += exclusive
        return lease

    def end_lease(self, lease):
        version = lease.version
        self.leave_stream(lease)
        version.leases.remove(lease)
        lease.client.leases.pop(lease.ident, None)
        if lease.in_use:
            self.let_go(version.storage)
        self.forget(version)

    def park(self, lease):
        if lease.write or lease.part is not None:
            raise Refused("busy")
        if lease.parked:
            return
        lease.cached, lease.slot, lease.parked = False, None, True
        self.let_go(lease.version.storage)
        if lease.version.named:
            self.expect_event("parked", lease.version)

    def cache(self, lease, used):
        if lease.slot is None:
            raise Refused("busy")
        lease.cached = not used
        if lease.cached:
            lease.version.storage.used = self.tick()

    def end_session(self, client, process_is_over):
        """Its connection has ended."""
        for waiting in self.waiting.values():
            waiting[:] = [one for one in waiting if one[0] is not client]
        for lease in list(client.leases.values()):
            if lease.stays and not process_is_over:
                lease.left = True
                del client.leases[lease.ident]
            else:
                self.end_lease(lease)

    def end_process(self, pid):
        """It writes nothing, and takes part in nothing, any more."""
        for version in list(self.versions):
            for lease in [one for one in version.leases if one.left and one.client.pid == pid]:
                self.end_lease(lease)

    # ---- requests ----

    def create(self, client, storage, name, **params):
        """The unsealed version, or a live one with its name; its lease is the caller's to grant."""
        version = Version(name, storage, client, **params)
        self.versions.append(version)
        storage.versions.append(version)
        return version

    def alias(self, client, name, of, start, length, mode, replace, keep, label):
        """The version, which is the caller's to publish."""
        faults = []
        try:
            self.check_name(client, name, replace)
        except Refused as refused:
            faults += refused.kinds
        try:
            source = self.find(client, of)
        except Refused as refused:
            raise Refused(*faults, *refused.kinds) from None
        mode = source.mode if mode is None else mode
        if mode & ~source.mode:
            faults.append("denied")
        if source.live:
            faults.append("unsupported")
        elif start + length > source.length:
            faults.append("invalid")
        if faults:
            raise Refused(*faults)  # any of them may be told
        evict = "drop" if source.evict == "keep" and not self.may(client, source, 2) else source.evict
        version = Version(name, source.storage, client, mode, evict, keep, label)
        version.gid = source.gid
        version.start, version.length = source.start + start, length
        return version

    def add(self, version):
        self.versions.append(version)
        version.storage.versions.append(version)

    def delete(self, client, name, number=None, label=None):
        version = self.find_changeable(client, name, number, label)
        self.unname(version, "deleted")

    def pin(self, client, name, on):
        version = self.find_changeable(client, name)
        held = version.held
        version.pinned = on
        if held:
            self.let_go(version.storage)

    def check_move_out(self, client, tier, *which):
        storage = self.find_changeable(client, *which).storage
        tiers = self.tiers[storage.device]
        if not tiers or (tier and tier not in tiers):
            raise Refused("unsupported")
        if storage.resident and storage.held:
            raise Refused("busy", *["unsupported"] * (storage.live or not storage.size))
        if storage.live or not storage.size:
            raise Refused("unsupported")
        return storage

    # ---- live objects ----

    def check_writing(self, client, name, exclusive, waits):
        """The live version to write. With `waits` it may be one for which the request has to wait."""
        version = self.find_changeable(client, name)
        if not version.live:
            raise Refused("unsupported")
        if not waits and (self.in_line(version) or not self.may_write(version, exclusive)):
            raise Refused("busy")
        return version

    def in_line(self, version):
        """Those who wait to write it. Whoever may not open what has the name now waits for another, behind nobody."""
        return [one for one in self.waiting.get(version.name, ()) if self.may(one[0], version, 4)]

    @staticmethod
    def may_write(version, exclusive):
        return not version.writers if exclusive else not version.claimed

    # ---- streams ----

    @staticmethod
    def check_join(lease, slots, hold, lag):
        version = lease.version
        if not version.live or slots < 2 or (lease.write and not lease.exclusive):
            raise Refused("unsupported")
        readers = version.stream.readers.values() if version.stream else ()
        if not lease.write and 1 + max([1, lag, *[one[2] for one in readers]]) + hold + sum(
                one[1] for one in readers) > slots:
            raise Refused("busy")

    @staticmethod
    def join(lease, hold, lag):
        """The number of a reader, or of a writer, that takes part."""
        stream = lease.version.stream = lease.version.stream or Stream()
        lease.cached, lease.slot = False, None
        if lease.write:
            stream.writer += 1
            lease.part = "writer"
            return stream.writer
        lease.part = next(i for i in range(64) if i not in stream.readers)
        stream.readers[lease.part] = (lease, hold, lag)
        return lease.part

    @staticmethod
    def leave_stream(lease):
        stream = lease.version.stream
        if lease.part is None:
            return
        if lease.part == "writer":
            stream.over = stream.writer
        else:
            del stream.readers[lease.part]
        lease.part = None
        if not stream.readers and not stream.writer:
            lease.version.stream = None

    # ---- what is reported ----
    # None: a version that a later request of the same step, which the model has done already, has taken away.

    def left(self, version):
        """Its storage has left the device."""
        if version:
            assert not version.storage.held, f"{version.name} is held (or in grace), and has left its device"
            assert not version.live, f"{version.name} is live, and was moved"
            version.storage.resident, version.storage.place = False, None

    def returned(self, version):
        if version:
            version.storage.resident, version.storage.place = True, None
            version.storage.used = self.tick()

    def evicted(self, version):
        """It was dropped, to make room. Returns the events of all its storage's names."""
        if not version:
            return []
        assert not version.storage.held, f"{version.name} is held, and was dropped"
        assert not version.storage.needed, f"{version.name} was dropped, and is not {version.evict}"
        before = len(self.expected)
        for one in [v for v in version.storage.versions if v.named]:
            if one.named:
                self.unname(one, "evicted")
        told = self.expected[before:]
        del self.expected[before:]
        return told

    # ---- the daemon's end ----

    def crash(self):
        """The daemon has ended, and its successor serves. Only sessions know what they had."""
        self.expected.clear()
        self.waiting.clear()
        self.in_grace = True
        for storage in self.storages():
            storage.was_held = storage.held
        for version in list(self.versions):
            for lease in list(version.leases):
                if lease.stays:
                    lease.left = True
                else:
                    version.leases.remove(lease)
                lease.client.leases.pop(lease.ident, None)
            if not version.number:
                self.versions.remove(version)
                version.storage.versions.remove(version)
            version.graced = True

    def end_grace(self):
        self.in_grace = False
        for version in list(self.versions):
            version.graced = False
            self.let_go(version.storage)
            self.forget(version)

    # ---- accounts ----

    def storages(self):
        return list(dict.fromkeys(v.storage for v in self.versions))

    @staticmethod
    def payers(storage):
        """The uids that it counts for: those with a name for it, or its writer; else those that have it open."""
        named = {v.owner for v in storage.versions if v.named or not v.number}
        return named or {lease.client.uid for v in storage.versions for lease in v.leases}

    def accounts(self):
        """{(uid, device): bytes} and {uid: leases}. Storages that are not known to have a size count for nobody."""
        used, leases = {}, {}
        for storage in self.storages():
            for uid in self.payers(storage):
                used[uid, storage.device] = used.get((uid, storage.device), 0) + (storage.charged or 0)
        for version in self.versions:
            for lease in version.leases:
                leases[lease.client.uid] = leases.get(lease.client.uid, 0) + 1
        return used, leases
