"""The sessions of pairs.py: they begin, end, and come back, and the daemon ends and is there again."""

import collections
import os
import signal
import time

from actors import Actor
from keeper import Failpoints
from pairs_clients import Client, Difference, Former
from peer import DEADLINE, Closed
from restarts import daemons_of

USERS = [(0, 0), (1001, 1001), (1002, 1002), (1003, 1002)]  # the last two are of one group
if os.geteuid() != 0:
    USERS = [(None, None)] * 4

ACTIONS = []


def action(weight):
    """Enters a method among the kinds of step, as often as its weight says."""
    def enter(function):
        ACTIONS.append((weight, function.__name__))
        return function
    return enter


class Sessions:
    """A part of pairs.World."""

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
        elif former.part is not None:
            told["reader"] = former.part
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
            self.resume_lease(client, former, one, ident)
            if one.parked or not one.version.storage.size:
                continue
            if one.place["bytes"]:
                segments.add(one.place["segment"])
            else:  # a part without bytes: its segment counts as mapped all the same
                unread.add(one.version.storage.place[0])
        for version in list(self.model.versions):  # what it does not know of has ended; not what it writes, too
            writes = any(l.write and l.client is client for l in version.leases)
            for lease in [l for l in version.leases if l.left and l.client is former and not (l.write and writes)]:
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
        if one.stays:
            return True if self.left_of(former, one) else None
        if not self.model.may(client, version, 4):
            return False
        if not version.named and not version.graced:
            return False
        return (one.parked or version.storage.lies_at(one.place, version.start)) and not self.nofile

    @staticmethod
    def left_of(former, one):
        """The lease for writing, or the part in the stream, that the session has left."""
        return next((l for l in one.version.leases if l.left and l.client is former and l.write == one.write
                     and (one.write or l.part == one.part)), None)

    def resume_lease(self, client, former, one, ident):
        version = one.version
        if one.stays:
            lease = self.left_of(former, one)
            lease.left, lease.client, lease.ident, lease.slot = False, client, ident, None
            client.leases[ident] = lease
        else:
            lease = self.model.grant(client, ident, version)
            if one.parked:
                lease.parked = True
                if version.named:
                    self.model.expect_event("parked", version)
        lease.stamp = one.stamp
        client.places[ident] = one.place

    # ---- the daemon's end ----

    @action(1)
    def crash(self, rng):
        self.end_daemon(rng, signal.SIGKILL)

    @action(0.6)
    def hand_over(self, rng):
        self.end_daemon(rng, signal.SIGHUP)

    def end_daemon(self, rng, how):
        self.await_due()
        self.wait_for_journal()
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

    def wait_for_journal(self):
        """A daemon that was starved may have given it up, and begins another before long."""
        end = time.monotonic() + DEADLINE
        while (log := self.daemon.stderr()).rfind("journal discarded") > log.rfind("journal rewritten"):
            if time.monotonic() > end:
                raise Difference("no journal was begun again")
            self.eye.call("stats")
            self.await_due()
            time.sleep(0.01)

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
        """Clients that are not back by now read no more."""
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
