#!/usr/bin/env python3
"""One random program that plays all that holds state together, on a daemon that is killed and has too little of everything.

Clients of several users publish, read, park, cache, claim, stream, watch, provide, alias, pin, move and expire objects, on
devices and tiers that are too small, beside quotas and few descriptors. Clients are killed and hang up; the daemon is
killed, and hands over. After each step names, versions, leases, who takes part, accounts, events and every byte that a
client may read are those of the model (pairs_model.py).

    pairs.py --seed 7 --steps 1000          one world
    pairs.py --steps 100000                 that many in all, in worlds of random seeds, 1000 in each
    pairs.py --seed 7 --steps 1000 --shrink finds fewer steps that fail in the same way

A step draws its choices from the seed and its own number, and passes where it has nothing to do: so any of a program's
steps make a program. A failure prints the command that plays it again.
"""

import argparse
import bisect
import collections
import contextlib
import os
import random
import re
import resource
import select
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fault"))

if __name__ == "__main__":  # by itself it takes the build whose grace period can be ended
    os.environ.setdefault("GPUBUF_BUILD", str(Path(__file__).resolve().parents[2] / "build/fail"))

import device as test_device  # noqa: E402
from actors import Actor  # noqa: E402
from keeper import Failpoints, end_with_parent  # noqa: E402
from pairs_clients import SCARCE, Difference, Ended  # noqa: E402
from pairs_compare import MIB, Comparing  # noqa: E402
from pairs_model import Model, Refused, Root  # noqa: E402
from pairs_sessions import ACTIONS, USERS, Sessions  # noqa: E402
from pairs_steps import LONG, Steps  # noqa: E402
from peer import DEADLINE, Closed, Peer, RpcError  # noqa: E402
from restarts import Supervised  # noqa: E402
from shim import LIBRARY, Shim  # noqa: E402

NAMES_OF_ACTIONS = [name for _, name in ACTIONS]
WEIGHTS = [sum(weight for weight, _ in ACTIONS[:i + 1]) for i in range(len(ACTIONS))]


class NoFailpoints(Exception):
    """The grace period of this daemon cannot be ended."""


class World(Comparing, Sessions, Steps):
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
        self.unmaps = self.unmaps_before = 0  # how often clients have unmapped segments; when the last request was sent
        self.starved = False  # whether the system refuses the daemon memory in this step
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
        self.nofile = rng.choice([None, None, None, *([] if test_device.ON_GPU else [40, 44, 48, 64]), 96, 128, 256])
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
        self.settled = time.monotonic()  # when all that was asked for was last unmapped
        self.log_size = 0  # then
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
        """The next daemon reads it: a limit may be lower than what clients have."""
        with open(self.config, "w") as file:
            file.write(f"limit = session_unsealed={rng.choice([1, 2, 4, 1000, 1000, 1000])}\n")

    def start(self):
        self.failpoints = Failpoints(os.path.join(self.directory, "failpoints"))
        self.shim = Shim(self.directory) if LIBRARY.exists() else None
        environment = self.shim.environment() if self.shim else {}
        limit = self.nofile

        def prepare():
            end_with_parent()
            if limit:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        self.daemon = Supervised(self.directory, self.options, device=self.devices,
                                 env={"GPUBUFD_FAILPOINTS": self.failpoints.path, **environment}, preexec_fn=prepare)
        self.say(f"devices {self.devices} tiers {self.tiers} nofile {limit} {' '.join(self.options)}")
        self.model = Model(self.tiers)
        self.open_eye()
        if not any(self.failpoints.hits().values()):
            self.eye.close()
            self.daemon.kill()
            raise NoFailpoints("this daemon was built without failpoints")
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

    def excess(self, uid, device, there=False):
        """Bytes of versions without a name by which a user is past its quota; of those on their device (`there`)."""
        used, nameless = self.model.accounts()[0].get((uid, device), 0), 0
        if not there:  # what is being written has no size yet
            used += sum(s.size for s in self.model.storages()
                        if s.charged is None and s.device == device and uid in self.model.payers(s))
        for storage in self.model.storages():
            if storage.device == device and uid in self.model.payers(storage) and not any(
                    v.named or not v.number for v in storage.versions) and (storage.resident or not there):
                nameless += storage.charged or 0
        return min(nameless, max(0, used - self.quota.get(uid, used)))

    def last_words(self):
        return "".join(self.daemon.stderr().splitlines(True)[-5:])

    def reply(self, client, ident):
        """The reply, while other clients do what they are asked to."""
        end = time.monotonic() + DEADLINE
        late, patience = time.monotonic() + 0.25, float("inf")
        while ident not in client.replies:
            if not client.connected:
                raise Ended
            self.pump(0.05)
            now = time.monotonic()
            if ident not in client.replies and self.model.in_grace and now > late:
                self.say("the request waits for the end of grace")
                self.over_grace()
                patience = time.monotonic() + 5
            elif ident not in client.replies and now > patience:
                # Its time was reckoned from the whole grace period, which only a test ends early.
                self.say("the request still waits, and its client leaves")
                self.hang_up(client, remember=False)
            if now > end:
                raise Difference(f"no answer for {self.who(client)}: {client.asked.get(ident)}")
        return client.reply(ident)

    def notified(self, client, method, params):
        if method == "segments.retire":
            client.retiring |= set(params["segments"])
            self.retire(client)
        elif method == "leases.recall":
            self.release_cached(client, [client.leases[i] for i in params["leases"]
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

    def release_cached(self, client, leases):
        """Leases that it has merely cached."""
        for lease in leases:
            self.send(client, "release", lease=lease.ident)
            self.model.end_lease(lease)
            client.places.pop(lease.ident)

    def retire(self, client):
        """Unmaps what it was asked for, as far as it does not read or write there."""
        used = client.in_use(cached=False)
        self.release_cached(client, [lease for ident, lease in client.leases.items() if lease.cached
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
            self.unmaps += 1
            self.send(client, "unmap", segments=sorted(mine))

    def ask(self, client, method, refused=None, scarce=True, ends=False, **params):
        """The result; None if it was refused, as the model says it must be (`refused`: a Refused), for want of something,
        or as `stale` where the daemon may have ended what the request is for (`ends`)."""
        if not client.connected:
            raise Ended
        self.unmaps_before = self.unmaps
        ident = client.request(method, **params)
        try:
            result = self.reply(client, ident)
        except RpcError as error:
            self.say(f"  {self.who(client)} {method} {params}: {error}")
            self.last_error = error.kind
            if (refused and error.kind in refused.kinds) or (ends and error.kind == "stale"):
                return None
            if scarce and (error.kind in SCARCE or (self.starved and error.kind == "device")):
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
        if self.starved:
            self.shim.fail("memfd", 0, 0)
        self.compare()
        self.starved = False

    def wait_for_ends(self):
        """Of objects whose time is over in a moment: a step shall not have to know on which side of it they are."""
        while any(v.named and self.expires_soon(v.number) for v in self.model.versions):
            time.sleep(0.002)
            self.compare()

    def play(self, numbers):
        for number in numbers:
            self.step(number)

    def stood_still(self):
        """Whether this program was so slow that the daemon has ended a session of its clients, and rightly."""
        with open(self.daemon.stderr_path, "rb") as log:
            log.seek(self.log_size)
            ended = re.search(rb"session ended: it (does not unmap|holds deleted objects past)", log.read())
        return (time.monotonic() - self.settled) * 1000 >= self.unmap_ms and ended

    def end(self):
        """Everybody leaves, everything is deleted: nothing is left."""
        self.step_number += 1
        if self.model.in_grace:
            self.over_grace()
        for actor in list(self.actors):
            self.kill_actor(actor)
            self.compare()
        while self.model.names:
            self.wait_for_ends()
            for name in list(self.model.names)[:1]:
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
        failure = None if isinstance(error, (OSError, Difference)) and world and world.stood_still() else error
        if failure and not isinstance(error, Difference):
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


def print_failure(seed, failure, lines, steps, last=60):
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
            print_failure(seed, failure, lines, steps, 10**9 if options.log else 60)
        elif options.log:
            print("\n".join(lines))
        if options.seed is not None or options.only or (failed and not options.go_on):
            break
    seconds = time.monotonic() - began
    print(f"{done} steps, {restarts} restarts, {failed} failed, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
