"""docs/RELIABILITY.md names a test for every promise, and each of them is there."""

import re

import pytest

from device import ROOT

PAGE = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w./]+)::(\w+)`", PAGE)
ROWS = [line for table in PAGE.split("| promise | test |\n|---|---|\n")[1:]
        for line in table.split("\n\n")[0].splitlines()]


@pytest.mark.parametrize("file,test", sorted(set(NAMED)))
def test_it_exists(file, test):
    path = ROOT / "tests" / file
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = re.search(rf"^(def|class) {test}\b|^{test} = ", text, re.M)
    elif f"OPERATION({test.removesuffix('_fails')})" in text and test.endswith("_fails"):
        found = f"cmocka_unit_test({test})" in text
    else:
        found = re.search(rf"^(static void|int) {test}\(", text, re.M) and (
            file.startswith("fuzz/") or re.search(rf"(cmocka_unit_test\w*|COUNTED)\({test}\b", text))
    assert found, f"there is no test {test} in tests/{file}"


def test_every_promise_names_one():
    assert len(ROWS) > 50
    for row in ROWS:
        assert re.search(r"`[\w./]+::\w+`", row), row
