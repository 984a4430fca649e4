"""How pairs.py holds a daemon against its model, after each step."""

import array
import contextlib
import os
import random
import re
import time

from pairs_clients import Difference
from peer import DEADLINE, RpcError

MIB = 1 << 20
GRANULE = 256


def rounded(size, unit=GRANULE):
    return -(-size // unit) * unit


class Comparing:
    """A part of pairs.World."""

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

    def await_due(self):
        """Waits for all that must come now."""
        while True:
            while self.pump():
                pass
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
                self.settled, self.log_size = time.monotonic(), os.path.getsize(self.daemon.stderr_path)
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
        return self.model.in_line(version)[0] == (waiting.client, waiting.exclusive) and self.model.may_write(version, waiting.exclusive)

    def compare(self):
        """Holds the daemon against the model; what ends by itself has a moment for it."""
        end = time.monotonic() + DEADLINE
        looks = 0  # the lists of one look are of several moments, and something may happen between them
        while True:
            self.await_due()
            self.look_for_providers()
            found = self.differ()
            if not found:
                break
            self.eye.call("stats")
            while self.pump():
                pass
            if any(w.ident in c.replies for c in self.clients for w in c.waits):
                continue  # a request that waited was served just now
            looks += 1
            if (not self.late and looks > 5) or time.monotonic() > end:
                raise Difference(found)
            time.sleep(0.002)
        self.late = self.fresh = False
        self.check_contents()

    def differ(self):
        """The first difference, as a text; None: there is none."""
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
        self.lose_parked({e["lease"] for e in answer["leases"]})
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

    def lose_parked(self, there):
        """Parked leases on versions without a name end where others lack room, while their user is past its quota."""
        for client in self.clients:
            for lease in list(client.leases.values()):
                if lease.ident not in there and self.may_end(client, lease):
                    self.end_parked(client, lease)

    def may_end(self, client, lease):
        return lease.parked and not lease.version.named and self.excess(client.uid, lease.version.storage.device)

    def end_parked(self, client, lease):
        self.say(f"  lease {lease.ident} of {self.who(client)} has ended")
        client.places.pop(lease.ident)
        self.model.end_lease(lease)

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
            self.check_page(client)
            for former in client.former:
                if not former.parked and client.remembers:
                    self.check_content(client, former.version, former.place, rng, former.stamp)
            for side in [*client.holds, *([client.side] if client.side else [])]:
                side.check()

    def check_page(self, client):
        """It has leases of the client's alone, and on what their names mean now."""
        if not client.connected or client.page is None:
            return
        for ident in filter(None, array.array("Q", client.page[:])):
            version = client.leases[ident].version if ident in client.leases else None
            if not version or not version.named or self.model.names[version.name][0] is not version:
                raise Difference(f"the page of {self.who(client)} has lease {ident}, on {version and version.name}")

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
        if self.starved:
            return
        if error.kind == "limit":
            limit = error.data["limit"]
            known = {"open_files", "stored_files", "user_bytes", "user_segments", "session_unsealed", "held_fds",
                     "sessions", "user_sessions"}
            if limit not in known:
                raise Difference(f"refused for {limit}: {error}")
            if limit in ("open_files", "stored_files", "sessions", "user_sessions", "held_fds") and not self.nofile:
                raise Difference(f"{error}, with descriptors to spare")
            if limit == "user_segments" and self.unmaps == self.unmaps_before:
                self.check_segments(client, error)
        elif "layout" in params and not self.model.in_grace:
            # Since then clients may have given back, as they were asked, memory that they had mapped; and what was being made
            # for a session that has ended is free.
            told = re.search(r"(\d+) bytes", error.message)  # those that it lacks room for
            size = int(told[1]) if told else params["layout"].get("bytes", 0)
            coming = re.findall(r"(\d+) (?:mapped by clients|being made or given back)", error.message)
            wanted = rounded(size, 2 * MIB) + 4 * MIB + sum(map(int, coming))
            for one in self.eye.call("stats")["devices"]:
                if one["id"] == params.get("device", "host") and one["free"] >= wanted:
                    raise Difference(f"{one['free']} bytes are free of {one['id']}: {error}")

    def check_segments(self, client, error):
        """Segments of its user that are empty, and that nobody else maps, could have gone."""
        mapped = {s for c in self.clients if c.connected for s in c.mapped()}
        empty = [s["id"] for s in self.eye.call("segments")["segments"]
                 if s["domain"] and s["domain"]["uid"] == client.uid and s["state"] == "empty" and s["id"] not in mapped]
        if empty:
            raise Difference(f"{error}, and its segments {empty} are empty")
