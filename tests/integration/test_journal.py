"""A daemon that is started after another finds the journal, whole, damaged or of a later version, the
descriptors that were kept with it, and the disk tier as it is by then."""

import json
import os
import shutil
import struct

import pytest

from ctl import Ctl
from device import MIB
from peer import DEADLINE, Closed, wait_until
from restarts import Kept, journals, supervised  # noqa: F401  (one is a fixture)


# RELIABILITY.md: The daemon ends 18
def test_a_journal_does_not_grow_for_ever(supervised):
    daemon = supervised()
    peer = daemon.connect()
    for i in range(2500):
        peer.put(f"n{i % 50}", b"%d" % i, replace=True)
    assert max(journals(daemon.child)) < 2 * MIB
    wait_until(lambda: len(journals(daemon.child)) == 1)  # it may just be written anew
    wait_until(lambda: len(journals(daemon.pid)) == 1)  # the former one is kept no more
    daemon.crash()
    peer = daemon.connect()
    assert len(peer.names()) == 50
    for i in range(2450, 2500):
        assert peer.open_object(f"n{i % 50}").read() == b"%d" % i


@pytest.fixture
def kept(directory):
    one = Kept(directory)
    yield one
    one.close()


# RELIABILITY.md: Time 5
def test_a_long_restore_shows_signs_of_life(kept):
    """The manager is asked to wait on, again and again while objects are restored."""
    with kept.start() as peer:
        for i in range(300):
            peer.put(f"n{i}", evict="keep")
    kept.crash()
    with kept.start(watchdog_ms=1) as peer:
        assert len(peer.names()) == 300
    assert kept.extended >= 8  # every 64 steps; at least as many fit into the manager's queue
    kept.crash()
    kept.start().close()
    assert kept.extended == 1, "it is asked every ten seconds, or three times in the watchdog's time"


# RELIABILITY.md: The daemon ends 13
def test_what_was_lost_does_not_come_again(kept):
    """An object whose descriptor is missing once is lost, also if a later daemon gets the descriptor."""
    with kept.start() as peer:
        peer.put("lost", b"1", mode="0600")
        peer.put("stays", b"2", mode="0640")
        segment = peer.call("open", name="lost")["object"]["layout"]["data"]["segment"]
    kept.crash()
    (found,) = [one for one in kept.fds if one[0] == f"s{segment}"]
    kept.fds.remove(found)
    with kept.start() as peer:
        assert peer.names() == ["stays"]
    assert "segment lost" in kept.crash()
    kept.fds.append(found)
    with kept.start() as peer:
        assert peer.names() == ["stays"]
        assert peer.open_object("stays").read() == b"2"
    assert "lost=" not in kept.crash().replace("lost=0", ""), "it is told once"
    assert found[0] not in dict(kept.fds), "what nobody knows is kept no more"


def test_a_descriptor_that_is_there_twice(kept):
    """The first is taken; that the other is not needed does not have the manager forget both."""
    with kept.start() as peer:
        peer.put("a", b"hello")
    kept.crash()
    kept.fds += [(name, memfd(b"x")) for name, _ in kept.fds if name != "journal-1"]
    for _ in range(3):
        with kept.start() as peer:
            assert peer.open_object("a").read() == b"hello"
        kept.crash()


# RELIABILITY.md: The daemon ends 13
def test_a_tier_that_is_not_there_once(kept, place):
    """Objects on disk are lost to the daemons that come meanwhile, and are there again with the tier."""
    with kept.start("--tier", f"disk:16M:{place}") as peer:
        peer.put("a", b"a" * 3 * MIB)
        peer.call("move", name="a", tier="disk")
    kept.crash()
    for _ in range(2):
        with kept.start() as peer:
            assert peer.names() == []
        assert "lost=1" in kept.crash()
    with kept.start("--tier", f"disk:16M:{place}") as peer:
        assert peer.open_object("a", wait_ms=10000).read() == b"a" * 3 * MIB


@pytest.mark.parametrize("how", ["renamed", "a file", "another directory"])
# RELIABILITY.md: The daemon ends 14
def test_a_tier_that_is_out_of_order(supervised, directory, how):
    """The next daemon serves without it, and hands over to one that has it when it is mended."""
    place, saved = os.path.join(directory, "tier"), os.path.join(directory, "saved")
    os.mkdir(place)
    daemon = supervised("--tier", f"disk:64M:{place}", "--grace", "200")
    ctl, peer = Ctl(daemon.path, directory), daemon.connect()
    peer.put("stays", b"s" * MIB)
    peer.put("small", b"hello")
    peer.put("below", b"b" * 3 * MIB)
    for name in ("small", "below"):
        peer.call("move", name=name, tier="disk")
    os.rename(place, saved)
    if how == "a file":
        os.close(os.open(place, os.O_CREAT))
    elif how == "another directory":
        os.mkdir(place)
    for _ in range(2):
        daemon.crash()
        peer = daemon.connect()
        assert peer.names() == ["stays"] and peer.open_object("stays").read() == b"s" * MIB
        (tier,) = peer.call("stats")["tiers"]
        assert (tier["tier"], tier["capacity"]) == ("disk", 0) and place in tier["fault"]
        told = json.loads(ctl.raw("--json", "doctor").stdout)
        (finding,) = (one for one in told["findings"] if one["text"].startswith("tier disk"))
        assert finding["health"] == "fail" and not told["healthy"]
        assert finding["text"] == f"tier disk: the daemon runs without it: {tier['fault']}"
        assert "mend the directory" in finding["advice"]
        assert f"takes nothing: {tier['fault']}"[:60] in ctl("top", "--once")
        wait_until(lambda: "tier out of order" in daemon.stderr())
        assert place in daemon.stderr() and "lost=2" in daemon.stderr()
    for i in range(3000 if how == "renamed" else 10):  # until it is written anew, the records are only in the former journal
        peer.put(f"n{i % 10}", b"%d" % i, replace=True)
    assert "tier usable again" not in daemon.stderr()
    if how == "a file":
        os.unlink(place)
    elif how == "another directory":
        assert os.listdir(place) == []
        os.rmdir(place)
    os.rename(saved, place)
    wait_until(lambda: "tier usable again" in daemon.stderr())

    def is_back():
        try:
            return "below" in daemon.connect().names()
        except (Closed, ConnectionError):
            return False

    wait_until(is_back)
    peer = daemon.connect()
    assert peer.names() == ["below", *(f"n{i}" for i in range(10)), "small", "stays"]
    assert peer.open_object("below", wait_ms=10000).read() == b"b" * 3 * MIB
    assert peer.open_object("small", wait_ms=10000).read() == b"hello"
    assert peer.open_object("stays").read() == b"s" * MIB
    (tier,) = peer.call("stats")["tiers"]
    assert tier["tier"] == "disk" and tier["capacity"] == 64 * MIB and "fault" not in tier


# RELIABILITY.md: The daemon ends 14
def test_a_directory_that_is_given_up(kept, place):
    """Where the former one does not come again, a file says that the objects are given up."""
    options = ("--tier", f"disk:16M:{place}")
    with kept.start(*options) as peer:
        peer.put("a", b"a" * 3 * MIB)
        peer.call("move", name="a", tier="disk")
    kept.crash()
    shutil.rmtree(place)
    os.mkdir(place)
    with kept.start(*options) as peer:
        assert peer.names() == []
    assert "make a file gpubufd.lock in it" in kept.crash()
    os.close(os.open(f"{place}/gpubufd.lock", os.O_CREAT, 0o600))
    with kept.start(*options) as peer:
        assert peer.names() == ["a"]
        assert peer.error(("device", "not_found"), "open", name="a")
        peer.put("b", b"b" * 3 * MIB)
        peer.call("move", name="b", tier="disk")
    assert "object lost" in kept.crash()


# RELIABILITY.md: The daemon ends 15
def test_a_tier_that_has_become_smaller(kept, place):
    """Nothing goes for that; but there is no room until less is in use than there may be."""
    with kept.start("--tier", f"disk:16M:{place}") as peer:
        for name in "abcd":
            peer.put(name, name.encode() * 3 * MIB)
            peer.call("move", name=name, tier="disk")
    kept.crash()
    with kept.start("--grace", "600000", "--tier", f"disk:8M:{place}") as peer:
        (tier,) = [one for one in peer.call("stats")["tiers"] if one["tier"] == "disk"]
        assert tier["capacity"] == 8 * MIB and tier["used"] > 12 * MIB and tier["free"] == 0
        assert peer.names() == ["a", "b", "c", "d"]
        peer.open_object("a", wait_ms=10000)
        peer.put("e", b"e" * 3 * MIB)
        error = peer.error("no_space", "move", name="e", tier="disk")
        assert f"of {8 * MIB} bytes" in str(error)
        assert peer.names() == ["a", "b", "c", "d", "e"]


def memfd(data):
    fd = os.memfd_create("journal")
    os.write(fd, data)
    return fd


def of_version(version, rest):
    """The beginning of a journal, as an earlier daemon's manager hands it over."""
    return [("journal-7", memfd(b"gpubufdJ" + struct.pack("<IIQ", version, 112, 7) + rest))]


# RELIABILITY.md: The daemon ends 18
def test_a_journal_of_a_later_version(kept):
    kept.fds = of_version(8, bytes(208))
    kept.launch()
    _, stderr = kept.process.communicate(timeout=DEADLINE)
    assert kept.process.returncode == 2
    assert b"format version 8" in stderr and b"start the daemon that wrote it" in stderr


# RELIABILITY.md: The daemon ends 17
def test_a_damaged_journal(kept):
    kept.fds = of_version(7, b"0" * 208)
    with kept.start() as peer:
        assert peer.names() == []
        peer.put("a", b"b")
    assert "state of the earlier daemon unusable" in kept.crash()
    assert [name for name, _ in kept.fds if name.startswith("journal")] == ["journal-8"], "the new one is another"
