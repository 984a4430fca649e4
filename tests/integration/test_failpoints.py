"""The daemon dies between two steps (daemon/base/failpoint.h): what tests/soak has found, one by one. Needs a
build that has failpoints, as those with sanitizers have."""

import contextlib
import os
import sys

import device
import pytest
from child import Child
from peer import Closed, Peer, wait_until
from restarts import Supervised, register
from test_stream import make, pages, read, resume, roster

sys.path.insert(0, str(device.ROOT / "tests" / "soak"))

from keeper import Failpoints  # noqa: E402

MIB = 1 << 20


class Dying:
    def __init__(self, directory, *options):
        self.points = Failpoints(os.path.join(directory, "failpoints"))
        self.daemon = Supervised(directory, options, env={"GPUBUFD_FAILPOINTS": self.points.path})
        wait_until(lambda: any(self.points.hits().values()) or self.ready())
        if not any(self.points.hits().values()):
            self.daemon.stop()
            pytest.skip("this daemon was built without failpoints")

    def ready(self):
        """Waits until the daemon answers: it has passed some failpoints by then."""
        with Peer(self.daemon.path) as peer:
            peer.call("stats")
        return True

    def at(self, name, peer, method, /, **params):
        """Makes a call that gets no reply, since the daemon dies at that failpoint; a session with the next daemon."""
        before = self.daemon.child
        self.points.arm(name, 1)
        with pytest.raises((Closed, ConnectionError)):
            peer.call(method, **params)
        wait_until(lambda: self.points.fired())
        self.daemon.wait_for_another(before)
        return self.daemon.connect()

    @contextlib.contextmanager
    def armed(self, name):
        """The daemon may die at that failpoint; returns when another serves, if it did."""
        before, fired = self.daemon.child, self.points.fired()
        self.points.arm(name, 1)
        yield
        if self.points.fired() > fired:
            self.daemon.wait_for_another(before)
        self.points.disarm()

    def crash(self):
        self.daemon.crash()
        return self.daemon.connect()


@pytest.fixture
def dying(directory):
    made = []

    def start(*options):
        made.append(Dying(directory, *options))
        return made[-1]

    yield start
    for one in made:
        one.daemon.close_peers()
        one.daemon.stop()


# RELIABILITY.md: The daemon ends 10
def test_a_former_version_does_not_come_back(dying):
    """It had lost its name to another when no record said so yet, and that other is deleted."""
    one = dying()
    peer = one.daemon.connect()
    peer.put("a", b"old")
    made = peer.create("a", {"kind": "bytes", "bytes": 3}, b"new", replace=True)
    peer = one.at("PUBLISH_NAMED", peer, "seal", lease=made["lease"])
    assert peer.open_object("a").read() == b"new"
    peer.call("delete", name="a")
    peer.close()
    peer = one.crash()
    assert peer.names() == []


# RELIABILITY.md: The daemon ends 10
def test_what_leaves_its_segment_is_found_below(dying, directory):
    """The segment is gone for good as the object leaves it, whose copy is all that there is."""
    place = os.path.join(directory, "below")
    os.mkdir(place)
    one = dying("--tier", f"disk:64M:{place}")
    peer = one.daemon.connect()
    register(peer, "a", b"r" * 5000)
    peer = one.at("SEGMENT_GONE", peer, "move", name="a", tier="disk")
    assert peer.open_object("a", wait_ms=10000).read()[:5000] == b"r" * 5000


# RELIABILITY.md: The daemon ends 10
def test_a_file_that_is_gone_is_not_relied_upon(dying, directory):
    """A copy makes room for another: before its file goes, the journal says so."""
    place = os.path.join(directory, "below")
    os.mkdir(place)
    one = dying("--tier", f"disk:2M:{place}")
    peer = one.daemon.connect()
    peer.put("held", b"h" * MIB)
    peer.call("move", name="held", tier="disk")
    peer.open_object("held", wait_ms=10000)  # now it is in both places, and will not leave
    peer.put("wanting", b"w" * (MIB + MIB // 2))
    peer = one.at("FILE_REMOVED", peer, "move", name="wanting", tier="disk")
    one.points.set(Failpoints.END_GRACE, 1)
    peer.call("stats")
    peer.call("stats")
    peer.call("move", name="held", tier="disk")
    assert peer.open_object("held", wait_ms=10000).read() == b"h" * MIB
    assert peer.open_object("wanting", wait_ms=10000).read() == b"w" * (MIB + MIB // 2)


# ---- live memory: never two writers, no generation twice, nothing lost ---------------------------------------------

WRITING = ("APPEND_BEGIN", "APPEND_TORN", "APPEND_WRITTEN", "APPEND_DONE", "COMPACT_BEGIN", "COMPACT_WRITTEN",
           "COMPACT_KEPT", "COMPACT_DONE", "SEGMENT_MADE", "SEGMENT_GONE", "SEGMENT_DESTROYED", "UNSTORE_DONE",
           "STORE_DONE", "PUBLISH_BEGIN", "PUBLISH_DONE")
BYTES = {"kind": "bytes", "bytes": 64}


def writing(peer):
    """The pids of those who write, by `why`."""
    return [reason["pid"] for reason in peer.call("stat", name="pool", why=True)["reasons"]
            if reason["kind"] == "leased" and reason["access"] == "rw"]


def claiming(peer):
    """A child's work: its generation; None where the daemon died before it answered."""
    try:
        return peer.call("open", name="pool", access="write", exclusive=True, wait_ms=60000)["generation"]
    except (Closed, ConnectionError):
        return None


class Pool:
    """A live object, and the generations that were answered."""

    def __init__(self, one):
        self.one, self.last = one, 0
        Child(one.daemon.path, lambda peer: peer.call("create", name="pool", layout=BYTES, live=True)["lease"]).kill()

    def claimed(self, child):
        if child.result is not None:
            assert child.result > self.last
            self.last = child.result
        return child

    def check(self, alive, holds):
        """With the daemon that serves now: who is alive and holds the claim keeps it, and another waits."""
        with Peer(self.one.daemon.path) as peer:
            assert peer.call("stat", name="pool")["object"]["generation"] >= self.last
            found = writing(peer)
            assert len(found) <= 1 and set(found) <= {child.pid for child in alive}
            if holds:
                assert found == [holds.pid]
                peer.error("timeout", "open", name="pool", access="write", exclusive=True, wait_ms=2)


@pytest.fixture
def children():
    made = []
    yield made
    for one in made:
        one.kill()


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
# RELIABILITY.md: The daemon ends 11
def test_claims_at_failpoints(dying, children):
    """The daemon dies as it grants a claim, and as one passes from a killed writer to who waits for it."""
    one = dying()
    pool = Pool(one)
    for point in WRITING:
        with one.armed(point):
            holder = pool.claimed(Child(one.daemon.path, claiming))
            children.append(holder)
        pool.check([holder], holder if holder.result else None)
        with one.armed(point):
            holder.kill()
            next_one = pool.claimed(Child(one.daemon.path, claiming))
            children.append(next_one)
        pool.check([next_one], next_one if next_one.result else None)
        next_one.kill()
    assert pool.last > 0 and one.points.fired() > 4


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
# RELIABILITY.md: The daemon ends 11
def test_coming_back_at_failpoints(dying):
    """The daemon dies once more as a writer comes back, and as the time for that ends: the claim stays its own."""
    one = dying()
    Pool(one)
    peer = one.daemon.connect()
    hello = peer.call("hello", protocol=1)
    held = peer.call("open", name="pool", access="write", exclusive=True, wait_ms=60000)
    resume = {"instance": hello["instance"], "session": hello["session"], "objects": [
        {"name": "pool", "version": held["object"]["version"], "write": True}]}
    one.daemon.crash()
    for point in ("RESUME_BEGIN", "RESUME_LEASE", "RESUME_DONE", "GRACE_BEGIN", "GRACE_DONE", "RESTORE_READ",
                  "RESTORE_SEGMENTS", "RESTORE_DONE", "DROP_DONE", "READY_DONE"):
        before, fired = one.daemon.child, one.points.fired()
        one.points.arm(point, 1)
        if point.startswith("RESUME"):
            with pytest.raises((Closed, ConnectionError)):
                one.daemon.connect().call("hello", protocol=1, resume=resume)
        elif point.startswith("GRACE"):
            one.points.set(Failpoints.END_GRACE, 1)
            with Peer(one.daemon.path) as other:
                wait_until(lambda: one.points.fired() > fired or tick(other))
            one.points.set(Failpoints.END_GRACE, 0)
        else:
            os.kill(before, 9)
        wait_until(lambda: one.points.fired() > fired)
        one.daemon.wait_for_another(before)
        with Peer(one.daemon.path) as other:
            assert writing(other) == [os.getpid()], point
            other.error("timeout", "open", name="pool", access="write", exclusive=True, wait_ms=2)
    back = one.daemon.connect()
    lease = back.call("hello", protocol=1, resume=resume)["resumed"][0]
    back.call("release", lease=lease)
    assert back.call("open", name="pool", access="write", exclusive=True)["generation"] > held["generation"]


JOINING = ("STORE_BEGIN", "STORE_DONE", "UNSTORE_BEGIN", "UNSTORE_DONE", *(one for one in WRITING if one.startswith("APPEND")))


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
@pytest.mark.parametrize("who", ["writer", "reader"])
# RELIABILITY.md: The daemon ends 28
def test_joining_at_failpoints(dying, who):
    """The daemon dies as somebody joins a stream, and as they leave. One that comes back takes part by the numbers and
    pages that the others are told, and a reader from before is still there."""
    one = dying()
    peer = one.daemon.connect()
    make(peer, slots=16)
    stays = read(peer)[1]["reader"]
    version = peer.call("stat", name="cam0")["object"]["version"]
    how = {"access": "write", "exclusive": True, "wait_ms": 60000} if who == "writer" else {}
    for point in (point for point in JOINING for _ in range(2)):  # the second time it is an earlier one's stream
        peer = one.daemon.connect()
        hello = peer.call("hello", protocol=1)
        lease = peer.call("open", name="cam0", **how)["lease"]
        peer.hello, fired = hello, one.points.fired()
        with one.armed(point), contextlib.suppress(Closed, ConnectionError):
            peer.call("join", lease=lease)
        if one.points.fired() > fired:
            part = {"write": True} if who == "writer" else {"reader": stays + 1}
            peer, (lease,) = resume(one.daemon, hello, {"name": "cam0", "version": version, **part})
        if not lease:  # it had no part yet
            lease = peer.call("open", name="cam0", **how)["lease"]
        told = peer.call("join", lease=lease)
        assert roster(peer)[0] == [stays] + [stays + 1] * (who == "reader"), point
        assert told["writer"] == roster(peer)[2]
        if who == "writer":
            assert [claim["reader"] for claim in told["claims"]] == [stays]
            other = one.daemon.connect()
            reads, seen = read(other)
            assert seen["writer"] == told["writer"] > roster(peer)[3] and pages(other)["front"] == pages(peer)["page"]
            other.call("release", lease=reads)
        with one.armed(point), contextlib.suppress(Closed, ConnectionError):
            peer.call("release", lease=lease)
        peer.close()
        resume(one.daemon, peer.hello)  # what was released in vain ends
    assert one.points.fired() > len(JOINING)


def tick(peer):
    try:
        peer.call("stats")
    except (Closed, ConnectionError):
        pass
    return False
