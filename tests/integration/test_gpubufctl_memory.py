"""gpubufctl on what memory holds: spill, restore."""

import os

import pytest

import device as test_device
from ctl import FAILED, TIMEOUT, USAGE, Ctl

MIB = 1 << 20
BELOW = "host" if test_device.ON_GPU else "disk"  # the first tier below the device


@pytest.fixture
def tiered(daemon_factory, directory, tmp_path):
    """gpubufctl on a daemon with tiers below its device, which makes no copies ahead."""
    place = os.path.join(directory, "spill")
    os.mkdir(place)
    options = ["--watermarks", "100:100", "--tier", f"disk:128M:{place}"]
    if test_device.ON_GPU:
        options += ["--tier", "host:64M"]
    ctl = Ctl(daemon_factory(*options).path, str(tmp_path))
    ctl.put = lambda name, size, *words: ctl(
        "put", *words, name, ctl.file("content", os.urandom(size)))
    return ctl


def tier_of(ctl, name):
    return ctl.json("stat", name)["tier"]


def test_spill_and_restore(tiered):
    for name in ("a", "b", "c"):
        tiered.put(name, 1000)
    assert tiered("spill", "a", "b") == ""
    assert [tier_of(tiered, name) for name in "abc"] == [BELOW, BELOW, test_device.TIER]
    tiered("spill", "--tier", "disk", "a", "c")
    assert [tier_of(tiered, name) for name in "abc"] == ["disk", BELOW, "disk"]
    tiered("restore", "a", "c")
    assert [tier_of(tiered, name) for name in "abc"] == [test_device.TIER, BELOW, test_device.TIER]
    assert "nosuch" in tiered.fails(FAILED, "spill", "a", "nosuch", "c")
    assert [tier_of(tiered, name) for name in "ac"] == [BELOW, BELOW]  # all the same
    assert "nosuch" in tiered.fails(FAILED, "restore", "nosuch", "c")
    assert tier_of(tiered, "c") == test_device.TIER


def test_restore_waits_for_room(tiered):
    tiered.put("cold", 30 * MIB)
    tiered("spill", "cold")
    tiered.put("kept", 40 * MIB, "--evict", "keep")
    assert "has no room" in tiered.fails(FAILED, "restore", "cold")
    tiered.fails(TIMEOUT, "restore", "cold", "--wait", "30ms")
    tiered("rm", "kept")
    tiered("restore", "cold", "--wait", "20s")
    assert tier_of(tiered, "cold") == test_device.TIER


def test_wrong_usage(tiered):
    assert "tape" in tiered.fails(USAGE, "spill", "a", "--tier", "tape")
    assert "soon" in tiered.fails(USAGE, "restore", "a", "--wait", "soon")
    tiered.fails(USAGE, "spill")
