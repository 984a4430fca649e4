"""The daemon dies between two steps (daemon/base/failpoint.h): what tests/soak has found, one by one. Needs a
build that has failpoints, as those with sanitizers have."""

import os
import sys

import device
import pytest
from peer import Closed, Peer, wait_until
from restarts import Supervised, register

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


# RELIABILITY.md: The daemon ends
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


# RELIABILITY.md: The daemon ends
def test_what_leaves_its_segment_is_found_below(dying, directory):
    """The segment is gone for good as the object leaves it, whose copy is all that there is."""
    place = os.path.join(directory, "below")
    os.mkdir(place)
    one = dying("--tier", f"disk:64M:{place}")
    peer = one.daemon.connect()
    register(peer, "a", b"r" * 5000)
    peer = one.at("SEGMENT_GONE", peer, "move", name="a", tier="disk")
    assert peer.open_object("a", wait_ms=10000).read()[:5000] == b"r" * 5000


# RELIABILITY.md: The daemon ends
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
