"""Steps of the clients of pairs.py: a method for each kind."""

import errno
import random
import time

from pairs_clients import SCARCE, SLOT_BYTES, Difference, ReaderSide, Waiting, WriterSide
from pairs_compare import MIB
from pairs_model import Content, Refused, Root, Storage
from pairs_sessions import action
from peer import RpcError, bytes_layout

NAMES = ["a", "b", "b/c", "d", "e/f/g", "h"]
LIVE = ["live/1", "live/2", "live/3"]
STREAMS = ["s/1", "s/2"]
PROVIDED = ["p/1", "p/2", "p/q/3"]
LONG = 600_000  # ms: longer than any program takes


class Steps:
    """A part of pairs.World."""

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

    # ---- publishing ----

    def a_device(self, rng):
        return rng.choice(list(self.tiers))

    def create_it(self, client, rng, name, size, live=False, layout=None, **params):
        """The unsealed version's lease, or that of a live one."""
        device = params.setdefault("device", self.a_device(rng))
        mode = params.setdefault("mode", self.a_mode(rng))
        if name in PROVIDED and params.get("ttl_ms", LONG) < LONG:
            del params["ttl_ms"]  # it could be over before the second of two that wait for it has its answer
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
            self.publish_it(client, version, told["object"]["version"])
        elif data.size:
            client.fill(place, data.whole())
        return lease

    def publish_it(self, client, version, number):
        self.model.publish(version, number)
        if self.asked.get(version.name, (None,))[0] is client:  # a provider is not told of what it makes itself
            client.wanted.pop(version.name, None)

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
        self.publish_it(client, version, told["version"])
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
            self.create_it(client, rng, self.a_name(rng), self.a_size(rng), replace=rng.random() < 0.7, **self.title(rng))

    @action(18)
    def publish(self, rng):
        client = self.some_client(rng)
        if not client:
            return
        lease = self.create_it(client, rng, self.a_name(rng), self.a_size(rng), replace=True, **self.title(rng))
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
            elif result.kind not in (*SCARCE, "denied") and not (self.starved and result.kind == "device"):
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
            self.await_due()  # a request that waited may have been granted a segment just now
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
        self.compare()  # which learns what is on its device
        found = {uid: self.excess(uid, device, there=True) for uid in self.quota}
        lacked = not lease and self.last_error in ("no_space", "timeout")
        if lacked and name not in self.model.names and sum(found.values()) >= size + 4 * MIB:
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

    @staticmethod
    def a_name(rng):
        return rng.choice([*NAMES, *NAMES, *NAMES, *PROVIDED])

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
        name = rng.choice([*NAMES, *NAMES, *LIVE, *STREAMS, *PROVIDED])
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
        client, lease = self.some_lease(rng, lambda l: l.version.number)
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
        told = self.ask(client, "open", None, ends=self.may_end(client, lease), lease=lease.ident)
        if not told:
            if self.last_error == "stale":
                self.end_parked(client, lease)
            return
        if version.named:
            self.model.expect_event("resumed", version)
        self.opened(client, told, version)
        if self.ask(client, "release", None, scarce=False, lease=lease.ident) is not None:
            self.released(client, lease)

    @action(8)
    def cache(self, rng):
        client, lease = self.some_lease(rng, lambda l: l.slot is not None and not l.parked)
        if not lease:
            return
        used = rng.random() < 0.3
        self.model.cache(lease, used)
        self.ask(client, "cache", None, scarce=False, leases=[lease.ident], used=used)

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
        name, of = self.a_name(rng), rng.choice([*NAMES, *NAMES, *LIVE, *PROVIDED])
        start, length = rng.choice([0, 0, 1, 100]), rng.choice([0, 1, 100, 3000])
        mode = rng.choice([None, None, self.a_mode(rng)])
        replace, keep, label = rng.random() < 0.7, rng.choice([0, 0, 0, 2]), rng.choice(["", "", "one"])
        version, refused = self.allowed(self.model.alias, client, name, of, start, length, mode, replace, keep, label)
        told = self.ask(client, "alias", refused, name=name, of=of, slice={"offset": start, "length": length},
                        replace=replace, keep=keep, label=label, **({} if mode is None else {"mode": f"{mode:04o}"}))
        if told:
            self.model.add(version)
            self.publish_it(client, version, told["version"])

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

    @action(6)
    def starve(self, rng):
        """The system refuses the daemon memory: once, or for as long as the step takes."""
        if self.shim:
            self.starved = True
            self.shim.fail("memfd", errno.ENOMEM, count=rng.choice([1, 1, 1000]), skip=rng.choice([0, 0, 1]))
            for _ in range(3):
                getattr(self, rng.choice(["publish", "create", "create_live", "open", "wake", "move", "take_part"]))(rng)
                self.await_due()
                self.catch_up()

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

    def writing(self, client, version, told, exclusive=False):
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
        waits = version and (self.model.in_line(version) or not self.model.may_write(version, exclusive))
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
        self.await_due()
        self.catch_up()
        told = self.ask(client, "watch", None, prefix=prefix, existing=False, **({"kinds": kinds} if kinds else {}))
        if told:
            client.watches[told["watch"]] = (prefix, kinds, told["seq"])

    @action(0.7)
    def unwatch(self, rng):
        client = self.some_client(rng, lambda c: c.watches)
        if client:
            self.await_due()
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
            if asked and (not asked.connected or not waiting or prefix not in asked.provides
                          or name in self.model.names):
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
        """For reading, or for writing what may turn out to be live."""
        client = self.some_client(rng)
        name, write = rng.choice(PROVIDED), rng.random() < 0.3
        if not client or name in self.model.names:
            return

        def act(result):
            version = self.model.names.get(name, [None])[0]
            if not isinstance(result, RpcError):
                if write:
                    self.writing(client, version, result)
                else:
                    self.opened(client, result, version)
            elif version is None:
                if result.kind not in SCARCE and name not in self.declined:
                    raise Difference(f"{name}: {result}")
            elif result.kind not in SCARCE and not (write and (
                    result.kind == "unsupported" and not version.live
                    or result.kind == "denied" and not self.model.may(client, version, 2))):
                raise Difference(f"{name}: {result}")

        self.say(f"{self.who(client)} waits for {name}{', to write it' if write else ''}")
        ident = client.request("open", name=name, wait_ms=LONG, **({"access": "write"} if write else {}))
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
        live = rng.random() < 0.3
        lease = self.create_it(client, rng, name, 3000, live=live, replace=True, evict="spill",
                               mode=rng.choice([0o644, 0o666]))
        if lease and live and rng.random() < 0.5:
            self.release_it(client, lease)
        elif lease and not live:
            self.seal_it(client, rng, lease, True)

    def decline(self, client, name):
        waits = [w for c in self.clients for w in c.waits if w.kind == "name" and w.name == name]
        self.asked.pop(name, None)
        self.ask(client, "decline", None, scarce=False, request=client.wanted.pop(name)[0], message="no")
        self.declined = (name,)
        for waiting in waits:
            self.answered(waiting)
        self.declined = ()
