"""docs/RELIABILITY.md numbers its promises, and each has a test that names it.

The line before such a test is a comment: `RELIABILITY.md: `, the section, and the promise's number there, as in
`# RELIABILITY.md: Time 2, 3, Devices 1`. A change of the test then begins with a look at what depends on it, and a
promise whose last test is taken out fails here.
"""

import re

import pytest

from device import ROOT

PAGE = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
SECTIONS = {title: [int(number) for number in re.findall(r"^(\d+)\. ", text, re.M)]
            for title, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.M)}
PROMISES = [(title, number) for title, numbers in SECTIONS.items() for number in numbers]
MARK = re.compile(r"^(?:# RELIABILITY\.md: (.*)|/\* RELIABILITY\.md: (.*) \*/)\n(.*)\n", re.M)
FILES = sorted(path for suffix in ("c", "py") for path in (ROOT / "tests").glob(f"*/*.{suffix}"))
MARKED = [(f"{path.parent.name}/{path.name}", python or c, after)
          for path in FILES for python, c, after in MARK.findall(path.read_text(encoding="utf-8"))]


def promises_of(mark):
    """[(section, number), …]"""
    found, title = [], None
    for part in mark.split(", "):
        words = re.fullmatch(r"(?:(\D+) )?(\d+)", part)
        assert words and (words[1] or title), f"no section and number: {part}"
        title = words[1] or title
        found.append((title, int(words[2])))
    return found


def test_the_numbers_go_up_by_one():
    assert len(PROMISES) > 100
    for title, numbers in SECTIONS.items():
        assert numbers == list(range(1, len(numbers) + 1)), title


@pytest.mark.parametrize("file,mark,after", MARKED)
def test_each_mark_names_a_promise_and_is_a_tests(file, mark, after):
    assert set(promises_of(mark)) <= set(PROMISES), f"{file}: no such promise: {mark}"
    assert re.match(r"@|(async )?def |class |\w+ = |[A-Z_]+\(|(static void|int) ", after), f"{file}: no test after {mark}"


def test_every_promise_has_a_test():
    assert set(PROMISES) - {one for _, mark, _ in MARKED for one in promises_of(mark)} == set()


def test_every_mark_is_read():
    """One with a slip in its form would count for nothing."""
    named = sum(len(re.findall(r"^\s*(?:#|/\*) RELIABILITY\.md", path.read_text(encoding="utf-8"), re.M)) for path in FILES)
    assert named == len(MARKED)
