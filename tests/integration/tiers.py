"""Tiers below a device, as tests of more than one file want them: fixtures that start a daemon with
tiers, and objects whose content their names tell."""

import hashlib
import os

import pytest

import device as test_device
from device import MIB
from peer import Peer, bytes_layout

SIZE = 18 * MIB  # three of these fit in 64 MiB, each in a segment of its own
BELOW = "host" if test_device.ON_GPU else "disk"  # the first tier below the device


def content(name, size):
    """`size` bytes that no other name has."""
    block = hashlib.sha256(name.encode()).digest() * 2048
    return (block * (size // len(block) + 1))[:size]


class Tiered:
    """A daemon with tiers, and objects whose content their names tell."""

    def __init__(self, daemon, directory):
        self.daemon, self.directory = daemon, directory
        self.peer = daemon.connect()
        self.sizes = {}

    def put(self, name, size=SIZE, **params):
        """Publishes by a session that ends, so that no session maps the memory."""
        with Peer(self.daemon.path) as peer:
            peer.create_object(name, bytes_layout(size), content(name, size), **params)
        self.sizes[name] = size

    def check(self, *names):
        """Checks that the objects have every byte."""
        for name in names:
            with Peer(self.daemon.path) as peer:
                opened = peer.open_object(name)
                assert opened.read() == content(name, self.sizes[name]), name
                opened.release()

    def tier_of(self, name):
        return self.peer.call("stat", name=name)["object"]["tier"]

    def tiers_of(self, names):
        return [self.tier_of(name) for name in names]

    def stats(self):
        stats = self.peer.call("stats")
        for one in stats["devices"]:
            assert one["capacity"] == (one["free"] + one["used"] + one["retained"]
                                       + one["pinned_by_clients"]), one
        for one in stats["tiers"]:
            assert one["capacity"] == one["free"] + one["used"], one
        return stats

    def tier(self, name):
        return {tier["tier"]: tier for tier in self.stats()["tiers"]}[name]

    def files(self):
        return sorted(f for f in os.listdir(self.directory) if f.endswith(".spill"))

    def wait_for_moves(self):
        """Waits until no content moves."""
        self.peer.wait_for_stats(lambda s: all(d["leaving"] == 0 for d in s["devices"]))


@pytest.fixture
def start(daemon_factory, directory):
    """start(…): tiers of the sizes given; by default room for everything, and no copies ahead."""

    def run(host="128M", disk="512M", watermarks="100:100", place=None, **settings):
        if not place:
            place = os.path.join(directory, f"spill{len(os.listdir(directory))}")
            os.mkdir(place)
        options = ["--watermarks", watermarks]
        if host and test_device.ON_GPU:
            options += ["--tier", f"host:{host}"]
        if disk:
            options += ["--tier", f"disk:{disk}:{place}"]
        return Tiered(daemon_factory(*options, **settings), place)

    return run


@pytest.fixture
def tiered(start):
    return start()
