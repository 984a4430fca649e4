"""The table of pairs in docs/TESTING.md is whole, and its tests are there; and the changes of tests/mutants fit the source."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs/TESTING.md").read_text(encoding="utf-8").split("\n## Pairs\n")[1].split("\n## ")[0]
TESTS = ROOT / "tests"
# The steps of pairs.py with which a mechanism, or an event, comes into play.
STEPS = {
    "le": "open open_names release", "ca": "cache", "pa": "park wake", "cl": "open_writing claim_many create_live",
    "st": "take_part join frame", "al": "alias", "hi": "publish open delete", "pi": "pin", "ti": "move create_and_wait",
    "qu": "hoard insist", "wa": "watch unwatch", "pr": "provide open_absent make_wanted", "kc": "kill close come_back",
    "kd": "crash end_grace", "pl": "hand_over", "fd": "claim_many", "de": "delete", "re": "publish", "ex": "set_time",
}


def rows():
    """The table's head, and its rows by their names."""
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in SECTION.splitlines()
             if re.match(r"\|  \| le|\| \*\*", line)]
    return lines[0][1:], {line[0]: line[1:] for line in lines[1:]}


def keys():
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", SECTION, re.M))


def test_each_pair_has_a_key():
    head, table = rows()
    mechanisms = head[:head.index("")]
    assert list(table) == mechanisms and len(head) - len(mechanisms) - 1 == 8
    for i, (name, cells) in enumerate(table.items()):
        for other, cell in zip(head, cells):
            wanted = other and not (other in mechanisms and mechanisms.index(other) < i)
            assert (cell in keys()) if wanted else cell == "", f"{name} and {other}: {cell!r}"


def test_each_key_has_a_test_that_is_there():
    assert set(keys()) == {cell for cells in rows()[1].values() for cell in cells} - {""}
    for key, text in keys().items():
        named = re.findall(r"`([\w/]+\.(?:py|c))(?:::(\w+))?`", text)
        assert named or key == "o", text
        for file, function in named:
            assert not function or f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), f"{file}::{function}"
            assert (TESTS / file).exists(), file


def test_the_random_program_plays_what_it_is_said_to():
    head, table = rows()
    played = {name for row, cells in table.items() for other, cell in zip(head, cells) if cell == "m" for name in (row, other)}
    assert played == set(STEPS)
    source = "".join(file.read_text(encoding="utf-8") for file in (TESTS / "integration").glob("pairs*.py"))
    for steps in STEPS.values():
        for step in steps.split():
            assert re.search(rf"@action\([\d.]+\)\n    def {step}\(", source), step


def test_mutations_fit_the_source():
    """As many as there must be, each of a line that is there once."""
    checked = subprocess.run([TESTS / "mutants/run", "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert int(checked.stdout.split()[0]) >= 60
