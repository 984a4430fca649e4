"""Mechanisms with state mostly fail where two of them meet. Every two of MECHANISMS meet, and every mechanism meets every
event, in the random program of tests/integration/pairs.py, or in a test that EXCEPT names. The changes of tests/mutants
fit the source.
"""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
# Parked leases are views too, claims all write leases of live objects, copies those of other machines' objects.
MECHANISMS = set("leases cached parked claims streams aliases history pins tiers quotas watches providers copies".split())
EVENTS = set("killed crash handover descriptors memory deleted replaced expired".split())
# The steps of pairs.py with which a mechanism, or an event, comes into play.
STEPS = {
    "leases": "open open_names release", "cached": "cache", "parked": "park wake", "claims": "open_writing claim_many create_live",
    "streams": "take_part join frame", "aliases": "alias", "history": "publish open delete", "pins": "pin",
    "tiers": "move create_and_wait", "quotas": "hoard insist", "watches": "watch unwatch",
    "providers": "provide open_absent make_wanted", "killed": "kill close come_back", "crash": "crash end_grace",
    "handover": "hand_over", "descriptors": "claim_many", "deleted": "delete", "replaced": "publish", "expired": "set_time",
}
REFUSED, CLUSTER, PEER = "integration/test_live.py", "integration/test_peer_cluster.py", "integration/test_peer.py"
# (mechanisms, what they meet, tests of that)
EXCEPT = [
    (" ".join(MECHANISMS - {"copies"}), "memory", ["unit/test_no_memory.c", "fuzz/fuzz_request.c"]),
    ("claims streams", "aliases", [f"{REFUSED}::test_what_cannot_be_done_with_it"]),
    ("claims streams", "history copies", [f"{REFUSED}::test_what_it_cannot_have"]),
    ("claims streams", "tiers", [f"{REFUSED}::test_it_stays_on_its_device"]),
    # As locally: for its daemon a copy is an object of the peer's session.
    ("copies", "cached parked aliases pins descriptors expired", []),
    ("copies", "leases watches", [f"{CLUSTER}::test_what_is_shared_is_read_elsewhere_until_it_is_deleted"]),
    ("copies", "history replaced", [f"{CLUSTER}::test_a_newer_version_takes_the_place_of_a_copy"]),
    ("copies", "tiers", [f"{PEER}::test_a_copy_gives_way_to_what_is_made_here"]),
    ("copies", "quotas", ["integration/test_peer_query.py::test_names_that_a_user_may_have_in_the_cluster"]),
    ("copies", "providers", [f"{CLUSTER}::test_a_name_that_nobody_has_is_waited_for"]),
    ("copies", "copies", [f"{CLUSTER}::test_of_two_machines_one_has_the_name"]),
    ("copies", "killed", ["integration/test_peer_sides.py::test_a_reader_that_leaves_in_the_middle"]),
    ("copies", "crash handover", [f"{PEER}::test_a_daemon_that_is_killed"]),
    ("copies", "memory", [f"{PEER}::test_no_room_for_a_copy"]),
    ("copies", "deleted", [f"{CLUSTER}::test_a_name_that_is_deleted_and_made_again_while_it_is_asked_for"]),
]


def test_a_pair_is_of_known_names_and_there_once():
    pairs = [frozenset((one, other)) for left, right, _ in EXCEPT for one in left.split() for other in right.split()]
    assert len(pairs) == len(set(pairs))
    assert set().union(*pairs) <= MECHANISMS | EVENTS


def test_each_pair_apart_has_a_test_that_is_there():
    for named in (name for _, _, names in EXCEPT for name in names):
        file, _, function = named.partition("::")
        assert (TESTS / file).exists(), file
        assert not function or f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), named


def test_the_random_program_plays_the_others():
    """All but copies, and memory, whose pairs are in EXCEPT."""
    assert set(STEPS) == (MECHANISMS | EVENTS) - {"copies", "memory"}
    source = "".join(file.read_text(encoding="utf-8") for file in (TESTS / "integration").glob("pairs*.py"))
    for steps in STEPS.values():
        for step in steps.split():
            assert re.search(rf"@action\([\d.]+\)\n    def {step}\(", source), step


def test_mutations_fit_the_source():
    """As many as there must be, each of a line that is there once."""
    checked = subprocess.run([TESTS / "mutants/run", "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert int(checked.stdout.split()[0]) >= 60
