"""Calls go one way between the rooms of the daemon, as docs/ARCHITECTURE.md has them.

A room is a name, the files that are in it, and the other rooms that it may include and call. They stand
from the ground up, and none may know a room above it. A call that has to go up goes through a function that was
handed down, as in serve/service.h.
"""

import fnmatch
import functools
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
    ("store", "store/*", "base memory"),
    ("objects", "objects/*", "base memory store"),
    ("spill", "spill/*", "base memory store objects"),
    ("survive", "survive/*", "base memory store objects spill"),
    ("config", "config", "base memory store spill"),
    ("serve", "serve/*", "base memory store objects spill survive config"),
    ("methods", "methods/*", "base memory store objects spill survive serve"),
    ("supervise", "supervise", "base survive config"),
    ("main", "main", "base memory store spill config survive serve methods supervise"),
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


@functools.cache
def calls(part=PART):
    """(stem, stem, symbol): what the compiler's objects want of each other."""
    objects, defines, wants, stem = BUILD / "obj" / part, {}, [], None
    # Others are of files that have gone since.
    paths = [path for path in sorted(objects.rglob("*.o")) if (ROOT / path.relative_to(BUILD / "obj")).with_suffix(".c").exists()]
    listed = subprocess.run(["nm", "-A", *paths], capture_output=True, text=True, check=True).stdout if paths else ""
    for line in listed.splitlines():
        path, _, rest = line.partition(":")
        stem = str(pathlib.Path(path).relative_to(objects).with_suffix(""))
        *_, letter, symbol = rest.split()
        if letter == "U":
            wants.append((stem, symbol))
        elif letter in "TDBRV" and not symbol.startswith("_"):
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


# ---- structs ----

MOST_MEMBERS = 40
# Members of a struct that only rooms above use. Some are handed down on purpose: functions, and tables that are made
# in one room and read in another. The rest is what a room above still keeps in a struct of a lower one.
FOR_ROOMS_ABOVE = {
    "gb_limits": "a table", "gb_config": "options for all rooms", "gb_device_spec": "an option", "gb_figure": "a table",
    "gb_method_metrics.calls": "counted when served", "gb_method_metrics.params": "the same", "gb_service": "functions handed down",
    "gb_device.moving": "an account", "gb_device.freeing": "an account", "gb_device.mapped": "an account",
    "gb_device.pinned_leased": "an account", "gb_device.needed_ms": "of that account", "gb_device.asked_ms": "the same",
    "gb_device.segment_list": "the store's", "gb_device.retiring": "the same", "gb_storage.objects": "whose place it is",
    "gb_storage.idles": "its idle leases", "gb_storage.of_state": "the journal's", "gb_watches.news": "watches",
    "gb_copy.storage": "whose it is", "gb_storage.number": "the journal's",
    "gb_device.stages": "memory of the lanes", "gb_device.stage_pinned": "the same", "gb_storage.out": "moves",
    "gb_storage.failure": "of the last move", "gb_storage.in": "moves", "gb_storage.used_ms": "a figure",
    "gb_storage.idle": "holds", "gb_storage.text": "an account", "gb_storage.needs": "holds",
    "gb_store.on_storage": "a function handed down", "gb_store.on_page": "another", "gb_store.handed_over": "said of them",
    "gb_user.slots": "a walk over leases", "gb_user.writers": "an account",
    "gb_segment.forecast": "a mark of one", "gb_store.forecasts": "how many there were", "gb_entry": "handed down",
    "gb_unsealed.layout": "of a request", "gb_produced.session": "a session", "gb_session_watches": "watches", "gb_served.told": "the same",
    "gb_session.greeted": "set by hello", "gb_session.task": "whose input it holds", "gb_wait.task": "it has the message",
}


def without_comments(text):
    return re.sub(r"^\s*#.*(?:\\\n.*)*$", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S), flags=re.M)


def structs(text):
    """(name, body) of each struct that is defined in the text."""
    for match in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match[1], text[match.end():end - 1]


def members(body):
    """(name, declaration) of each member; those of a struct inside count, too."""
    for declaration in body.split(";"):
        function = re.search(r"\(\*(\w+)\)", declaration)
        if function:
            yield function[1], declaration
            continue
        for declarator in re.sub(r"\[[^]]*\]", "", declaration).split(","):
            words = re.findall(r"\w+", declarator)
            if words:
                yield words[-1], declaration


def test_no_struct_is_a_hub():
    texts = [path for folder in ("daemon", "proto", "client", "include") for path in (ROOT / folder).rglob("*.[ch]")]
    large = [f"{path.relative_to(ROOT)}: struct {name} has {count} members"
             for path in texts for name, body in structs(without_comments(path.read_text()))
             if (count := len(list(members(body)))) > MOST_MEMBERS]
    assert not large, f"{large}: at most {MOST_MEMBERS}. Give the members of each file a struct of their own"


def test_no_struct_keeps_what_is_a_room_s_above_it():
    """Neither by the type of a member, nor by a member that no file of its own room uses."""
    texts = {path: without_comments(path.read_text()) for path in SOURCES}
    room_of = {path: rooms_of(stem_of(path))[0] for path in SOURCES}
    defined = {name: room_of[path] for path, text in texts.items() for name, _ in structs(text)}
    names = [name for name, _, _ in ROOMS]
    wrong = []
    for path, text in texts.items():
        own = "\n".join(other for where, other in texts.items() if room_of[where] == room_of[path])
        for struct, body in structs(text) if path.suffix == ".h" else ():
            for member, declaration in members(body):
                tags = [defined.get(tag, names[0]) for tag in re.findall(r"struct (\w+)", declaration)]
                above = any(names.index(tag) > names.index(room_of[path]) for tag in tags)
                used = re.search(r"(?:->|\.)\s*" + member + r"\b", own)
                if (above or not used) and not {struct, f"{struct}.{member}"} & set(FOR_ROOMS_ABOVE):
                    wrong.append(f"{path.relative_to(ROOT)}: struct {struct}, {member}: only a room above {room_of[path]} "
                                 f"uses it. Keep it there, in a struct found by an index")
    assert not wrong, "\n" + "\n".join(wrong)


# ---- docs/ARCHITECTURE.md ----


def table():
    """Rows of the page for each room: the rooms that it may know."""
    section = TEXT.split("\n## The rooms of the daemon")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)/?` \| .* \| (.*) \|$", section, re.M))


def test_the_page_says_what_each_room_may_know():
    known = table()
    assert {room: set(re.findall(r"\w+", text)) - {"nothing"} for room, text in known.items()} == {
        room: set(names) for room, names in MAY_KNOW.items()}


def test_every_file_says_what_it_is_for():
    """Its header does, or else it: the page has no list of files."""
    for path in SOURCES:
        if path.suffix == ".h" or not path.with_suffix(".h").exists():
            first = path.read_text().partition("*/")[0].split()
            assert first[0].startswith("/*") and len(first) > 3, path.relative_to(ROOT)


def test_the_page_names_no_file_that_is_gone():
    there = {path.name for folder in ("daemon", "proto", "client", "include", "tests", "examples")
             for path in (ROOT / folder).rglob("*.*")}
    named = re.findall(r"`(?:[\w/.]+/)?([\w*.-]+\.(?:c|h|js|py|cjs))`", TEXT)
    assert named
    assert sorted({name for name in named if not fnmatch.filter(there, name)}) == []
