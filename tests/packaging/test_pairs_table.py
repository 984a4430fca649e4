"""The tests that docs/TESTING.md names for pairs of mechanisms are there, the random program plays the other pairs,
and the changes of tests/mutants fit the source."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs/TESTING.md").read_text(encoding="utf-8").split("\n## Pairs\n")[1].split("\n## ")[0]
TESTS = ROOT / "tests"
# The steps of pairs.py with which a mechanism, or an event, comes into play.
STEPS = {
    "leases": "open open_names release", "cached": "cache", "parked": "park wake", "claims": "open_writing claim_many create_live",
    "streams": "take_part join frame", "aliases": "alias", "history": "publish open delete", "pins": "pin",
    "tiers": "move create_and_wait", "quotas": "hoard insist", "watches": "watch unwatch",
    "providers": "provide open_absent make_wanted", "killed": "kill close come_back", "crash": "crash end_grace",
    "handover": "hand_over", "descriptors": "claim_many", "deleted": "delete", "replaced": "publish", "expired": "set_time",
}
MECHANISMS, EVENTS = (re.search(rf"\*{kind}\*: (.*?\.)\n", SECTION, re.S)[1] for kind in ("Mechanisms", "Events"))


def rows():
    """[(mechanisms, what they meet, text)] of the table, with "all but copies" in full."""
    return [([one for one in STEPS if one in words(MECHANISMS)] if left == "all but copies" else left.split(", "), right.split(", "), text)
            for left, right, text in re.findall(r"^\| (?!mechanism)([a-z, ]+) \| ([a-z, ]+) \| (.*) \|$", SECTION, re.M)]


def words(text):
    return set(re.findall(r"\w+", text))


def test_a_pair_is_of_known_names_and_there_once():
    pairs = [frozenset((one, other)) for left, right, _ in rows() for one in left for other in right]
    assert len(rows()) >= 15 and len(pairs) == len(set(pairs))
    assert {name for left, _, _ in rows() for name in left} <= words(MECHANISMS)
    assert {name for _, right, _ in rows() for name in right} <= words(MECHANISMS + EVENTS)


def test_each_pair_of_the_table_has_a_test_that_is_there():
    for left, right, text in rows():
        named = re.findall(r"`([\w/]+\.(?:py|c))(?:::(\w+))?`", text)
        assert named or text.startswith("as locally"), (left, right)
        for file, function in named:
            assert (TESTS / file).exists(), file
            assert not function or f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), f"{file}::{function}"


def test_the_random_program_plays_the_others():
    assert set(STEPS) <= words(MECHANISMS + EVENTS)
    source = "".join(file.read_text(encoding="utf-8") for file in (TESTS / "integration").glob("pairs*.py"))
    for steps in STEPS.values():
        for step in steps.split():
            assert re.search(rf"@action\([\d.]+\)\n    def {step}\(", source), step


def test_mutations_fit_the_source():
    """As many as there must be, each of a line that is there once."""
    checked = subprocess.run([TESTS / "mutants/run", "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert int(checked.stdout.split()[0]) >= 60
