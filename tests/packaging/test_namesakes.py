"""One name, one thing: no two structs, enums or include guards of one name, and what is the peer's or
the gateway's says so."""

import collections
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = [ROOT / name for name in subprocess.check_output(
    ["git", "ls-files", "*.c", "*.h"], cwd=ROOT, text=True).split() if (ROOT / name).exists()]
TEXTS = {path.relative_to(ROOT).as_posix(): re.sub(r"/\*.*?\*/", "", path.read_text(errors="replace"), flags=re.S)
         for path in FILES}
# A test may play a part of the product, and then has its structs.
PLAYED = ("tests/sim/", "tests/fuzz/", "tests/unit/")


def twice(found):
    return {name: sorted(files) for name, files in found.items() if len(files) > 1}


def test_no_two_types_have_one_name():
    """Of those with a prefix; a struct without one is its file's own."""
    found = collections.defaultdict(set)
    for name, text in TEXTS.items():
        if name.startswith(PLAYED):
            continue
        for kind, tag in re.findall(r"^(struct|enum|union) ((?:gb|gpubuf)_\w+) \{", text, re.M):
            found[tag].add(f"{name} ({kind})")
    assert found and twice(found) == {}


def test_no_two_include_guards_have_one_name():
    found = collections.defaultdict(set)
    for name, text in TEXTS.items():
        for guard in re.findall(r"^#ifndef (\w+_H)\n#define \1$", text, re.M):
            found[guard].add(name)
    assert found and twice(found) == {}


def test_each_header_has_a_guard():
    none = [name for name, text in TEXTS.items()
            if name.endswith(".h") and name.startswith(("proto/", "daemon/", "client/", "include/"))
            and not re.search(r"^#(?:ifndef \w+_H\n#define \w+_H|pragma once)$", text, re.M)]
    assert none == []


@pytest.mark.parametrize("part", ["peer", "gateway"])
def test_names_say_whose_they_are(part):
    """All that a part names with gb_ or GB_ is its own, or of what it stands on."""
    below = {token for name, text in TEXTS.items()
             if name.startswith(("proto/", "include/", "client/lib/", "client/common/"))
             for token in re.findall(r"\b(?:gb|GB)_\w+", text)}
    own = {token for name, text in TEXTS.items() if name.startswith(f"client/{part}/")
           for token in re.findall(r"\b(?:gb|GB)_\w+", text)}
    prefix = (f"gb_{part}_", f"GB_{part.upper()}_")
    assert sorted(token for token in own - below if not token.startswith(prefix)) == []
    assert any(token.startswith(prefix) for token in own)
