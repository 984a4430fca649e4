"""docs/RELIABILITY.md names a test for every promise, and each of them names its promise back.

The line before such a test is a comment: `RELIABILITY.md: ` and the section that the promise is in.
A change of the test then begins with a look at what depends on it, and a test that is taken out leaves
a row that fails.
"""

import re

import pytest

from device import ROOT

PAGE = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.M))
ROWS = re.findall(r"^- (?!\[).*\n(?:  .*\n)*", PAGE, re.M)
NAMED = sorted(set(re.findall(r"`([\w./]+)::(\w+)`", PAGE)))


def sections_of(file, test):
    return ", ".join(title for title, text in SECTIONS.items() if f"`{file}::{test}`" in text)


def definition(text, file, test):
    """The line where a test is defined."""
    if file.endswith(".py"):
        return re.search(rf"^(def|class) {test}\b|^{test} = ", text, re.M)
    macro = re.escape(f"OPERATION({test.removeprefix('test_').removesuffix('_fails')})")
    return re.search(rf"^([A-Z_]+\({test}[,)]|(static void|int) {test}\()|^{macro}", text, re.M)


@pytest.mark.parametrize("file,test", NAMED)
def test_it_names_its_promise(file, test):
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    found = definition(text, file, test)
    assert found, f"there is no test {test} in tests/{file}"
    mark = f"RELIABILITY.md: {sections_of(file, test)}"
    expected = f"# {mark}" if file.endswith(".py") else f"/* {mark} */"
    assert text[:found.start()].splitlines()[-1] == expected, f"{file}: line before {test}"


def test_no_other_names_one():
    """A test that lost its row, or was renamed in one of the two places."""
    files = [path for suffix in ("c", "py") for path in (ROOT / "tests").glob(f"*/*.{suffix}")]
    marks = [mark for path in files for mark in re.findall(
        r"^(?:#|/\*) RELIABILITY\.md: ", path.read_text(encoding="utf-8"), re.M)]
    assert len(marks) == len(NAMED)


def test_every_promise_names_one():
    assert len(ROWS) > 50
    for row in ROWS:
        assert re.search(r"\n  <sub>`[\w./]+::\w+`", row), row
