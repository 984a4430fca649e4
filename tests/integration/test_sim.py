"""The peer's own code for fetching, behind a network, an etcd and a clock of a program's own: tests/sim."""

import json
import subprocess

import pytest
from device import BUILD

pytestmark = pytest.mark.host_only("nothing here knows of memory")

MB = 1 << 20


def storm(*options):
    run = subprocess.run([str(BUILD / "tests" / "sim" / "storm"), *map(str, options)], capture_output=True,
                         text=True, check=True)
    return json.loads(run.stdout)


def test_a_hot_name_spreads_as_a_tree():
    all_at_once = storm("-m", 100, "-b", 100 * MB, "-u")
    assert all_at_once["done"] == 99 and all_at_once["owner_sent"] == 99
    tree = storm("-m", 100, "-b", 100 * MB)
    assert tree["done"] == 99 and tree["failed"] == 0
    assert tree["owner_readers"] == tree["other_readers"] == 4
    assert tree["depth"] > 2 and tree["owner_sent"] < 20
    assert tree["all_s"] < 0.6 * all_at_once["all_s"]
    assert storm("-m", 100, "-b", 100 * MB) == tree, "a run depends on its options alone"


def test_more_machines_than_one_serves_have_a_place_in_the_tree():
    one = storm("-m", 60, "-b", 100 * MB, "-c", 10)
    assert one["done"] == 59 and one["failed"] == 0


def test_what_is_small_goes_to_all_at_once():
    one = storm("-m", 60, "-b", MB)
    assert one["done"] == 59 and one["owner_readers"] > 4


@pytest.mark.parametrize("seed", range(4))
def test_every_fetch_ends_while_machines_die(seed):
    """Those that live have it in the end, from whoever is left."""
    one = storm("-m", 60, "-b", 400 * MB, "-d", 20, "-s", seed)
    assert one["dead"] > 10
    assert one["done"] == 59 - one["dead"] and one["failed"] == 0
