"""Calls go one way between the rooms of the daemon, and docs/ARCHITECTURE.md names every file.

A room is a name, the files that are in it, and the other rooms that it may include and call. They stand
from the ground up, and none may know a room above it. A call that has to go up goes through a function that was
handed down, as in serve/service.h.
"""

import fnmatch
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(os.environ.get("GPUBUF_ROOT", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build"))
TEXT = (ROOT / "docs/ARCHITECTURE.md").read_text()

PART = "daemon"
ROOMS = [
    ("base", "base/*", ""),
    ("memory", "memory/*", "base"),
    ("objects", "objects/*", "base memory"),
    ("spill", "spill/*", "base memory objects"),
    ("survive", "survive/*", "base memory objects spill"),
    ("config", "config", "base memory spill"),
    ("serve", "serve/*", "base memory objects spill survive config"),
    ("methods", "methods/*", "base memory objects spill survive serve"),
    ("supervise", "supervise", "base survive config"),
    ("main", "main", "base memory config survive serve methods supervise"),
]
OTHERS = ("proto/", "include/")  # what else of this repository they may include
MOST_IN_A_CIRCLE = 3

MAY_KNOW = {name: known.split() for name, _, known in ROOMS}
SOURCES = sorted((ROOT / PART).rglob("*.[ch]"))


def stem_of(path):
    """A source and its header are one."""
    return str(path.relative_to(ROOT / PART).with_suffix(""))


def rooms_of(stem):
    return [name for name, patterns, _ in ROOMS if any(fnmatch.fnmatch(stem, p) for p in patterns.split())]


def includes():
    """(file, line, path of what it includes) of all sources."""
    for path in SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"(.*)"', line)
            if match:
                places = [ROOT / match[1], path.parent / match[1], ROOT / "include" / match[1]]
                yield path, number, next((place for place in places if place.exists()), places[0])


def calls():
    """(stem, stem, symbol): what the compiler's objects want of each other."""
    defines, wants = {}, []
    for path in sorted((BUILD / "obj" / PART).rglob("*.o")):
        stem = str(path.relative_to(BUILD / "obj" / PART).with_suffix(""))
        if not (ROOT / PART / f"{stem}.c").exists():
            continue  # of a file that has gone since
        listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            *_, letter, symbol = line.split()
            if letter == "U":
                wants.append((stem, symbol))
            elif letter in "TDBR" and not symbol.startswith("_"):
                defines[symbol] = stem
    return [(stem, defines[s], s) for stem, s in wants if defines.get(s, stem) != stem]


def strangers(stem, other):
    """Whether the first may not know the second."""
    (room,), (named,) = rooms_of(stem), rooms_of(other)
    return room != named and named not in MAY_KNOW[room]


def advice(stem, other):
    (room,), (named,) = rooms_of(stem), rooms_of(other)
    return (f"{room} may not know {named}. Move what both need to a room that {room} may know, or have a function "
            f"handed down (see serve/service.h); what each room may know is in docs/ARCHITECTURE.md")


def circles(arrows):
    """Sets of files; in a set each leads to all others."""
    ends = {}
    for a, b in arrows:
        ends.setdefault(a, set()).add(b)
    reached = {}
    for start in ends:
        found, left = set(), [start]
        while left:
            for end in ends.get(left.pop(), ()):
                if end not in found:
                    found.add(end)
                    left.append(end)
        reached[start] = found
    groups = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in reached if a in reached[a]}
    return sorted(sorted(group) for group in groups)


def test_each_file_is_in_one_room():
    assert SOURCES, "nothing was read"
    assert {stem_of(p): rooms_of(stem_of(p)) for p in SOURCES if len(rooms_of(stem_of(p))) != 1} == {}


def test_no_room_knows_one_above_it():
    below = []
    for name, _, known in ROOMS:
        assert [other for other in known.split() if other not in below] == [], name
        below.append(name)


def test_includes():
    wrong = []
    for path, number, named in includes():
        where = f"{path.relative_to(ROOT)}:{number}"
        if not named.is_relative_to(ROOT / PART):
            name = os.path.relpath(named, ROOT)
            if not name.startswith(OTHERS):
                wrong.append(f"{where}: includes {name}; besides the daemon only {' and '.join(OTHERS)} may be")
        elif strangers(stem_of(path), stem_of(named)):
            wrong.append(f"{where}: includes {named.relative_to(ROOT)}, but {advice(stem_of(path), stem_of(named))}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_calls():
    """A function may be called through a header that another header includes."""
    arrows = calls()
    if not arrows:
        pytest.skip("this build has no objects of the daemon")
    wrong = [f"{PART}/{a}.c: calls {symbol} of {b}.c, but {advice(a, b)}" for a, b, symbol in arrows if strangers(a, b)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_circles():
    arrows = {(a, b) for a, b, _ in calls()}
    for path, _, named in includes():
        if named.is_relative_to(ROOT / PART) and stem_of(path) != stem_of(named):
            arrows.add((stem_of(path), stem_of(named)))
    large = [group for group in circles(arrows) if len(group) > MOST_IN_A_CIRCLE]
    assert not large, f"more than {MOST_IN_A_CIRCLE} files know each other: {large}. Hand one of them what it needs"


def test_circles_are_found():
    assert circles([("a", "b"), ("b", "c"), ("c", "d")]) == []
    assert circles([("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]) == [["b", "c"]]
    assert circles([("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]) == [["a", "b"], ["c", "d"]]


# ---- docs/ARCHITECTURE.md ----


def tables():
    """Rows of the page for each room: the rooms that it may know, and its files."""
    section = TEXT.split("\n## The rooms of the daemon")[1].split("\n## ")[0]
    known = dict(re.findall(r"^\| `(\w+)/?` \| .* \| (.*) \|$", section, re.M))
    files = {}
    for head, body in re.findall(r"^### `(\w+)/`\n(.*?)(?=^### |\Z)", section, re.M | re.S):
        first = "".join(re.findall(r"^\| (`.*?) \|", body, re.M))
        files[head] = re.findall(r"`(\w+)`", first)
    return known, files


def test_the_page_says_what_each_room_may_know():
    known, _ = tables()
    assert {room: set(re.findall(r"\w+", text)) - {"nothing"} for room, text in known.items()} == {
        room: set(names) for room, names in MAY_KNOW.items()}


def test_the_page_names_every_file():
    _, files = tables()
    for room, patterns, _ in ROOMS:
        if patterns.endswith("/*"):
            there = {path.stem for path in SOURCES if rooms_of(stem_of(path)) == [room]}
            told = files.get(room, [])
            assert len(told) == len(set(told)), room
            lacks, gone = sorted(there - set(told)), sorted(set(told) - there)
            assert (lacks, gone) == ([], []), f"docs/ARCHITECTURE.md, the table of {room}/: lacks {lacks}; gone: {gone}"


def test_the_page_names_no_file_that_is_gone():
    there = {path.name for folder in ("daemon", "proto", "client", "include", "tests", "examples")
             for path in (ROOT / folder).rglob("*.*")}
    named = re.findall(r"`(?:[\w/.]+/)?([\w*.-]+\.(?:c|h|js|py|cjs))`", TEXT)
    assert named
    assert sorted({name for name in named if not fnmatch.filter(there, name)}) == []
