"""The daemon's behaviour, as plainly as it can be said: dicts, lists, no clock and no threads.

A `Model` is told what a session asks for and either does it or raises `Refused`; what a watch would be
told is in `events`. It knows who may do what, the order of use, what leaves a device and where it is
then, and every byte of the account.

How much memory leaves depends on how objects lie in their segments. The exact model (`predict=True`)
is for objects that all have segments of their own, tiers with room for everything, and sessions that
unmap what they do not use: it says what leaves, and when. The other one is handed what left
(`told`), and holds it against the order of use.
"""

import collections
import random


class Refused(Exception):
    """The request fails with an error of one of these kinds."""

    def __init__(self, *kinds):
        super().__init__(", ".join(kinds))
        self.kinds = kinds


class Content:
    """Bytes that no other object has, here and there in an object of that size: as dense as the
    parts in which content is copied, and the beginning and the end of it."""

    APART, LENGTH = 256 << 10, 4096

    def __init__(self, seed, size):
        self.size = size
        starts = [*range(0, size, self.APART), max(0, size - self.LENGTH)]
        rng = random.Random(seed)
        self.pieces = [(at, rng.randbytes(min(self.LENGTH, size - at)))
                       for at in dict.fromkeys(starts) if size]
        if len(self.pieces) > 1 and self.pieces[-2][0] + self.LENGTH > self.pieces[-1][0]:
            del self.pieces[-2 if len(self.pieces) > 2 else -1]


class Storage:
    """The memory of an object and its aliases."""

    def __init__(self, data, occupied, key):
        self.data = data
        self.size = data.size
        self.occupied = occupied  # bytes on its device, while it is there
        self.key = key  # of its domain
        self.resident = True
        self.copies = set()  # tiers that have its content as well
        self.versions = []  # with a name or a lease, the oldest first
        self.named_once = False  # from then on it is in the order of use
        self.leases = 0
        self.pins = 0  # and keeps
        self.used = 0  # when it was last let go of
        self.passed = False  # it got its room before an older request did

    @property
    def held(self):
        return self.leases + self.pins > 0

    @property
    def spills(self):
        """Whether it has a name that must not be dropped, so that it spills."""
        return self.size > 0 and any(v.named and v.evict != "drop" for v in self.versions)


class Version:
    def __init__(self, name, storage, owner, gid, mode, evict):
        self.name, self.storage = name, storage
        self.owner, self.gid, self.mode, self.evict = owner, gid, mode, evict
        self.start, self.length = 0, storage.size
        self.number = 0  # unsealed
        self.named = self.pinned = False
        self.leases = 0
        self.replace = False
        self.ttl_ms = 0

    def pieces(self):
        """(offset, bytes) of what is known of its content."""
        for at, piece in self.storage.data.pieces:
            first, end = max(at, self.start), min(at + len(piece), self.start + self.length)
            if first < end:
                yield first - self.start, piece[first - at : end - at]


class Lease:
    def __init__(self, version, write):
        self.version, self.write = version, write


class Session:
    """A client that asks. `leases`: by id, in the order in which they were given."""

    def __init__(self, uid=0, gid=0):
        self.uid, self.gid = uid, gid
        self.leases = {}

    def may(self, version, bit):
        if self.uid in (0, version.owner):
            return True
        return bool(version.mode & (bit << 3 if self.gid == version.gid else bit))


class Wait:
    """A create that waits for space."""

    def __init__(self, session, version, ident):
        self.session, self.version, self.ident = session, version, ident


class Model:
    def __init__(self, capacity, tiers, device_tier, predict, roomy=True):
        self.capacity = capacity
        self.tiers = tiers  # below the device, the next one first
        self.device_tier = device_tier
        self.predict = predict
        self.roomy = roomy  # the tiers have room for everything
        self.names = {}
        self.clock = 0
        self.last_version = 0
        self.waiting = None
        self.spares = []  # (key, bytes) of segments without an object, the oldest first
        self.storages = []  # all that there are
        self.begin()

    def begin(self, told=(), full=False):
        """The next request. `told`: what has left meanwhile, and what has come back. `full`: it was
        answered that there is no room."""
        self.events = []
        self.told = collections.deque(told)
        self.full = full

    # ---- who may, and what there is ----

    def seen(self, session, name):
        version = self.names.get(name)
        if version is None or not session.may(version, 4):
            raise Refused("not_found")
        return version

    def changeable(self, session, name):
        version = self.names.get(name)
        if version is None or not (session.may(version, 4) or session.may(version, 2)):
            raise Refused("not_found")
        if not session.may(version, 2):
            raise Refused("denied")
        return version

    def check_name(self, session, name, replace):
        former = self.names.get(name)
        if former and not session.may(former, 2):
            raise Refused("denied")
        if former and not replace:
            raise Refused("exists")

    def lease_of(self, session, ident, write=False):
        lease = session.leases.get(ident)
        if lease is None:
            raise Refused("stale")
        if lease.write != write:
            raise Refused("busy")
        return lease

    # ---- the order of use ----

    def tick(self):
        self.clock += 1
        return self.clock

    def evictable(self):
        """Storages that may leave, the least recently used first."""
        return sorted((s for s in self.storages
                       if s.resident and s.named_once and not s.held and s.occupied),
                      key=lambda s: s.used)

    def let_go(self, storage):
        """The end of a lease, a pin or a keep."""
        if not storage.held:
            storage.used = self.tick()
            storage.passed = False

    # ---- room ----

    def used(self):
        return sum(s.occupied for s in self.storages if s.resident)

    def free(self):
        return self.capacity - self.used() - sum(bytes_ for _, bytes_ in self.spares)

    def copy(self, storage):
        if not storage.copies:
            storage.copies.add(self.tiers[0])

    def vacate(self, storage):
        assert storage.copies and not storage.held
        storage.resident = storage.passed = False
        self.spares.append((storage.key, storage.occupied))
        self.add_event("spilled", storage)

    def lose(self, storage, kind):
        self.add_event(kind, storage)
        for version in [v for v in storage.versions if v.named]:
            self.lose_name(version)

    def add_event(self, kind, storage):
        self.events += [(kind, v.name) for v in storage.versions if v.named]

    def trim(self, wanted=None):
        """Gives spares back, the oldest first."""
        going = 0
        while self.spares and (wanted is None or going < wanted):
            going += self.spares.pop(0)[1]
        return going

    def make_room(self, lacking):
        """One step: the least recently used leaves, or what must be copied before it can is."""
        order = self.evictable()
        if not order:
            return False
        oldest = order[0]
        if not oldest.copies and oldest.spills:
            coming = 0
            for storage in [s for s in order if s.spills and not s.copies]:
                self.copy(storage)
                coming += storage.occupied
                if coming >= lacking:
                    break
        if oldest.copies:
            self.vacate(oldest)
        else:
            self.lose(oldest, "evicted")
        return True

    def stays(self):
        """Bytes that are on the device whatever leaves."""
        return self.used() - sum(s.occupied for s in self.evictable())

    def find_room(self, key, size, occupied):
        """Room for `size` bytes in a domain, or Refused."""
        if size > self.capacity:
            raise Refused("no_space")
        if not self.predict:
            self.take_told()
            if self.full:
                raise Refused("no_space")
            return
        if occupied == 0:
            return
        stays = self.stays()
        while True:
            if (key, occupied) in self.spares:
                self.spares.remove((key, occupied))
                return
            if self.free() < occupied:
                self.trim(occupied - self.free())
            if self.free() >= occupied:
                return
            if stays + size > self.capacity or not self.make_room(occupied - self.free()):
                raise Refused("no_space")

    def check_queue(self, size):
        """Whether it may be served before the one that waits."""
        wait = self.waiting
        if wait is None or size == 0:
            return
        passed = sum(s.occupied for s in self.storages if s.passed and s.resident)
        if size > self.capacity - wait.version.storage.size - passed:
            raise Refused("no_space")

    def restore(self, storage):
        """Back to its device, held until its end."""
        if storage.resident:
            return False
        self.check_queue(storage.size)
        storage.leases += 1  # the request holds it
        try:
            self.find_room(storage.key, storage.size, storage.occupied)
            if not self.predict:
                for version in [v for v in storage.versions if v.named]:
                    assert self.told.popleft() == ("restored", version.name)
            storage.resident = True
        finally:
            storage.leases -= 1
        storage.used = self.tick()
        self.add_event("restored", storage)
        return True

    # ---- what has left, when that is not predicted ----

    def take_told(self, until=None):
        """Takes the events up to that of one storage."""
        while self.told and self.told[0][0] in ("spilled", "evicted"):
            kind, name = self.told[0]
            if until and name in [v.name for v in until.versions]:
                break
            assert name in self.names, f"{kind} is told of {name}, which there is not"
            storage = self.names[name].storage
            assert not storage.held, f"{name} is held, and {kind}"
            if storage.resident and self.roomy:
                first = self.evictable()[0]
                assert storage is first, (
                    f"{kind}: {name}, though {first.versions[0].name} was used longer ago")
            before = len(self.events)
            if kind == "spilled":
                self.copy(storage)
                self.vacate(storage)
            else:
                assert not storage.spills, f"{name} is lost, though it is not to be dropped"
                assert not self.roomy or not storage.copies, f"{name} is lost, though it has a copy"
                self.lose(storage, kind)
            for event in self.events[before:]:
                assert self.told.popleft() == event

    # ---- names ----

    def gain_name(self, version):
        storage = version.storage
        former = self.names.get(version.name)
        self.last_version = version.number
        self.names[version.name] = version
        version.named = True
        if version.evict == "keep":
            storage.pins += 1
        if not storage.named_once:
            storage.named_once = True
            storage.used = self.tick()
        if former:
            self.lose_name(former, replaced=True)
        self.events.append(("sealed", version.name))

    def lose_name(self, version, replaced=False):
        storage = version.storage
        version.named = False
        if not replaced:
            del self.names[version.name]
        for held in (version.pinned, version.evict == "keep"):
            if held:
                storage.pins -= 1
                self.let_go(storage)
        version.pinned = False
        self.forget_unused(version)

    def forget_unused(self, version):
        """Removes versions without a name and a lease, and each storage with its last version."""
        storage = version.storage
        if version.named or version.leases:
            return
        storage.versions.remove(version)
        if not storage.versions:
            self.storages.remove(storage)
            if storage.resident and storage.occupied:
                self.spares.append((storage.key, storage.occupied))

    # ---- requests ----

    def create(self, session, name, data, occupied, replace, evict, mode, ttl_ms=0):
        """The unsealed version; its lease is the caller's to enter. Raises Refused("no_space") with
        `version` where it could wait."""
        self.check_name(session, name, replace)
        key = (session.uid, session.gid, mode)
        version = Version(name, Storage(data, occupied, key), session.uid, session.gid, mode, evict)
        version.replace, version.ttl_ms = replace, ttl_ms
        try:
            self.check_queue(data.size)
            self.place_new(version, late=False)
        except Refused as refused:
            refused.version = version
            raise
        return version

    def place_new(self, version, late):
        storage = version.storage
        self.find_room(storage.key, storage.size, storage.occupied)
        self.storages.append(storage)
        storage.versions.append(version)
        storage.passed = self.waiting is not None and not late

    def grant(self, session, ident, version, write=False):
        version.leases += 1
        version.storage.leases += 1
        session.leases[ident] = Lease(version, write)

    def serve_waiting(self):
        """The lease that the request that waits would get now, or None."""
        wait = self.waiting
        if wait is None:
            return None
        if self.predict and self.stays() + wait.version.storage.size > self.capacity:
            return None  # it is not even tried: nothing, spares included, goes in vain
        try:
            self.place_new(wait.version, late=True)
        except Refused:
            return None
        self.waiting = None
        return wait

    def seal(self, session, ident, number, release):
        lease = self.lease_of(session, ident, write=True)
        version = lease.version
        self.check_name(session, version.name, version.replace)
        assert number is None or number > self.last_version
        version.number = number
        lease.write = False
        self.gain_name(version)
        if release:
            self.end_lease(session, ident)

    def abort(self, session, ident):
        self.lease_of(session, ident, write=True)
        self.end_lease(session, ident)

    def open(self, session, name):
        """The version; the lease is the caller's to enter."""
        version = self.seen(session, name)
        self.restore(version.storage)
        return version

    def release(self, session, ident):
        self.lease_of(session, ident)
        self.end_lease(session, ident)

    def end_lease(self, session, ident):
        version = session.leases.pop(ident).version
        version.leases -= 1
        version.storage.leases -= 1
        self.let_go(version.storage)
        self.forget_unused(version)

    def kill(self, session):
        if self.waiting and self.waiting.session is session:
            self.waiting = None
        for ident in list(session.leases):
            self.end_lease(session, ident)

    def delete(self, session, name):
        version = self.changeable(session, name)
        self.events.append(("deleted", name))
        self.lose_name(version)

    def expire(self, name):
        self.events.append(("deleted", name))
        self.lose_name(self.names[name])

    def alias(self, session, name, of, start, length, mode, replace, number):
        faults = []
        try:
            self.check_name(session, name, replace)
        except Refused as refused:
            faults += refused.kinds
        try:
            source = self.seen(session, of)
            if mode is None:
                mode = source.mode
            if mode & ~source.mode:
                faults.append("denied")
            if start + length > source.length:
                faults.append("invalid")
        except Refused as refused:
            faults += refused.kinds
        if faults:
            raise Refused(*faults)  # any of them may be told
        evict = source.evict
        if evict == "keep" and not session.may(source, 2):
            evict = "drop"
        version = Version(name, source.storage, session.uid, source.gid, mode, evict)
        version.start, version.length = source.start + start, length
        version.number = number
        source.storage.versions.append(version)
        self.gain_name(version)

    def pin(self, session, name, on):
        version = self.changeable(session, name)
        if version.pinned == on:
            return
        version.pinned = on
        version.storage.pins += 1 if on else -1
        if not on:
            self.let_go(version.storage)

    def spill(self, session, name, tier):
        storage = self.changeable(session, name).storage
        if tier is not None and tier not in self.tiers or not self.tiers:
            raise Refused("unsupported")
        if storage.resident and storage.held:
            raise Refused("busy")
        if not storage.size:
            raise Refused("unsupported")
        tier = tier or self.tiers[0]
        if not self.predict:
            self.take_told(until=storage)
            if self.full and not self.roomy:
                raise Refused("no_space")
        if storage.resident:
            storage.copies.add(tier)
            self.vacate(storage)
        if tier == "disk":
            storage.copies = {"disk"}

    def restore_name(self, session, name):
        self.restore(self.seen(session, name).storage)

    # ---- what can be asked ----

    def tier(self, storage):
        """The tiers that the object may be in."""
        if storage.resident:
            return [self.device_tier]
        if not self.roomy:
            return self.tiers
        return [tier for tier in self.tiers if tier in storage.copies][:1]

    def figures(self):
        """Of the device, in bytes."""
        here = [s for s in self.storages if s.resident]
        away = [s for s in self.storages if not s.resident]
        return {
            "free": self.free(),
            "used": self.used(),
            "retained": sum(bytes_ for _, bytes_ in self.spares),
            "pinned_by_clients": 0,
            "leased": sum(s.occupied for s in here if s.leases),
            "pinned": sum(s.occupied for s in here if s.pins),
            "evictable": sum(s.occupied for s in self.evictable()),
            "spilled": len(away),
            "spilled_bytes": sum(s.size for s in away),
            "objects": sum(len(s.versions) for s in self.storages),
        }

    def payers(self, storage, sessions):
        """The uids that it counts for: those with a name for it, or its writer; else those that hold it open."""
        named = {v.owner for v in storage.versions if v.named or not v.number}
        return named or {s.uid for s in sessions
                         if any(lease.version.storage is storage for lease in s.leases.values())}

    def accounts(self, sessions):
        """The account of each uid that has something: (bytes, leases). And by how much the users' sum exceeds
        the memory of the device: storages count several times that several users keep and the maker does not."""
        accounts, more = {session.uid: [0, 0] for session in sessions}, 0
        for storage in self.storages:
            payers = self.payers(storage, sessions)
            for uid in payers:
                accounts[uid][0] += storage.occupied
            if storage.resident and storage.key[0] not in payers:
                more += (len(payers) - 1) * storage.occupied
        for session in sessions:
            accounts[session.uid][1] += len(session.leases)
        return {uid: tuple(account) for uid, account in accounts.items()}, more

    def in_tier(self, tier, occupies):
        """Bytes that a tier's copies occupy."""
        return sum(occupies(s.size) for s in self.storages if tier in s.copies)
