"""Calls go downwards: in the daemon, proto, the library, the programs and the bindings nothing knows what is above it.

A part is a folder, and a list of floors from the ground up; a floor is a name and the files that stand
on it. A file may name files of its own floor, as long as no circle comes of it, and of floors below. All
of a part's files stand somewhere. A floor of the daemon is a room, which knows the rooms below it that docs/ARCHITECTURE.md
says; a call that has to go up goes through a function that was handed down, as in serve/service.h.
"""

import ast
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

PARTS = {
    "daemon": [
        ("base", "base/*"),
        ("memory", "memory/*"),
        ("store", "store/*"),
        ("objects", "objects/*"),
        ("spill", "spill/*"),
        ("survive", "survive/*"),
        ("config", "config"),
        ("serve", "serve/*"),
        ("methods", "methods/*"),
        ("supervise", "supervise"),
        ("main", "main"),
    ],
    "proto": [
        ("base", "base/*"),
        ("driver", "driver/*"),
        ("wire", "wire/*"),
        ("layout", "layout/*"),
    ],
    "client/lib": [
        ("base", "base/*"),
        ("memory", "memory/*"),
        ("wire", "wire/*"),
        ("objects", "objects/*"),
        ("session", "session/*"),
        ("data", "data/*"),
    ],
    "client/gpubufctl": [
        ("output", "output/*"),
        ("cli", "cli/*"),
        ("data", "data/*"),
        ("answers", "answers/*"),
        ("doctor", "doctor/*"),
        ("commands", "commands/*"),
        ("program", "main"),
    ],
    "client/gateway": [
        ("base", "base/*"),
        ("events", "events/*"),
        ("http", "http/*"),
        ("program", "main"),
    ],
    "client/peer": [
        ("base", "base/*"),
        ("directory", "directory/*"),
        ("link", "link/*"),
        ("content", "content/*"),
        ("options", "options"),
        ("fetch", "fetch/*"),
        ("serve", "serve/*"),
        ("local", "local/*"),
        ("program", "main"),
    ],
    "client/node/src": [
        ("environment", "addon"),
        ("values", "values table completion job"),
        ("turns", "deliver watching client turn"),
        ("methods", "request create object bundle memory copy watch provide view stream"),
        ("module", "module"),
    ],
    "client/node/lib": [
        ("ground", "native errors dtypes arguments"),
        ("data", "elements to-arrow from-arrow raw requests"),
        ("objects", "objects"),
        ("values", "content"),
        ("client", "watch provide views streams client"),
        ("package", "index cluster dask rapids"),
    ],
    "client/python/src": [
        ("core", "core progress pybuffer dlpack"),
        ("connection", "link"),
        ("elements", "element bits text"),
        ("objects", "object options pending view"),
        ("calls", "reconnect bundle fill follow pool exchange"),
        ("arrow", "arrow arrow_stream"),
        ("types", "async client object_type stream"),
        ("module", "module"),
    ],
    "client/python/gpubufd": [
        ("words", "_layout _errors _params _progress"),
        ("values", "_floats _zones _values _lists _cuda_array _series _labels _frames"),
        ("driver", "cuda"),
        ("columns", "_nodes _buffers _cudf _gpu"),
        ("conversion", "_fetch _convert _packing _repr"),
        ("objects", "_held _objects _bundle _kinds"),
        ("files", "_files _told _views _streams _provide _start"),
        ("client", "_ref _calls _names _client _provide_aio aio _gpubufctl"),
        ("weights", "_safetensors _states _reading _shards _weights _pool numpy torch/__init__ jax rmm"),
        ("frameworks", "torch/* ray transformers fsspec zarr"),
        ("dask", "_dask_places _dask_partitions dask"),
        ("cluster", "cluster"),
        ("package", "__init__ __main__"),
    ],
}
# Other parts of this repository that those in C may name.
OTHERS = {
    "daemon": ("include/", "proto/"),
    "proto": ("include/",),
    "client/lib": ("include/", "proto/"),
    "client/gpubufctl": ("include/", "proto/", "client/common/remake"),
    "client/gateway": ("include/", "proto/", "client/common/stale_socket"),
    "client/peer": (
        "include/", "proto/", "client/common/remake", "client/common/stale_socket",
        "client/lib/objects/pinned"),
    "client/node/src": (
        "include/", "client/lib/objects/hold", "client/lib/objects/open", "client/lib/objects/pinned",
        "client/lib/objects/stream", "client/lib/wire/client", "client/lib/wire/gather", "proto/layout/dtype",
    ),
    "client/python/src": (
        "include/", "proto/base/limits", "proto/base/place", "proto/base/pool", "proto/layout/dtype", "proto/wire/json"),
}
# Files that call each other: one reader in two; in the daemon circles of at most MOST_IN_A_CIRCLE files.
HALVES = [["layout/layout_columns", "layout/layout_read"]]
MOST_IN_A_CIRCLE = {"daemon": 3}
SUFFIXES = (".c", ".h", ".py", ".cjs", ".mjs")
SOURCES = sorted((ROOT / "daemon").rglob("*.[ch]"))


@functools.cache
def rooms(part):
    """Each file of a part without its suffix, so that a source and its header are one, and its floor."""
    found = {}
    for path in sorted((ROOT / part).rglob("*")):
        if path.suffix in SUFFIXES:
            stem = str(path.relative_to(ROOT / part).with_suffix(""))
            floors = [
                number for number, (_, patterns) in enumerate(PARTS[part])
                if any(fnmatch.fnmatch(stem, pattern) for pattern in patterns.split())
            ]
            # Of two patterns that fit, that of a single file is meant.
            named = [number for number in floors if stem in PARTS[part][number][1].split()]
            found[stem] = named or floors
    return found


def read_c(path):
    for name in re.findall(r'^\s*#\s*include\s+"(.*)"', path.read_text(), re.M):
        beside = path.parent / name
        places = [beside, ROOT / name, ROOT / "include" / name]
        yield next((place for place in places if place.exists()), beside)


def read_python(path):
    package = next(place for place in path.parents if place.name == "gpubufd")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("gpubufd")):
            place = path.parents[node.level - 1] if node.level else package.parent
            place = place.joinpath(*(node.module or "").split("."))
            names = [place / alias.name for alias in node.names] + [place]
        elif isinstance(node, ast.Import):
            names = [package.parent.joinpath(*alias.name.split(".")) for alias in node.names]
        else:
            continue
        for name in names:
            for file in (name.with_suffix(".py"), name / "__init__.py"):
                if file.exists() and file not in (path, package / "__init__.py"):
                    yield file


def read_javascript(path):
    for name in re.findall(r"""(?:require\(|from |import\()\s*['"](\.[^'"]*)['"]""", path.read_text()):
        yield path.parent / name


READERS = {".c": read_c, ".h": read_c, ".py": read_python, ".cjs": read_javascript, ".mjs": read_javascript}


@functools.cache
def imports(part):
    """(file, what it names), both without suffix; and what is named outside the part."""
    inside, outside = set(), set()
    for path in sorted((ROOT / part).rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        here = str(path.relative_to(ROOT / part).with_suffix(""))
        for named in READERS[path.suffix](path):
            named = pathlib.Path(os.path.normpath(named))
            if named.is_relative_to(ROOT / part):
                inside.add((here, str(named.relative_to(ROOT / part).with_suffix(""))))
            else:
                outside.add((here, os.path.relpath(named, ROOT)))
    return {(a, b) for a, b in inside if a != b}, outside


@functools.cache
def calls(part):
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


def running_up(part, arrows):
    floors = {stem: numbers[0] for stem, numbers in rooms(part).items()}
    names = [name for name, _ in PARTS[part]]
    return sorted(
        f"{a} ({names[floors[a]]}) -> {b} ({names[floors[b]]})" for a, b in arrows if floors[a] < floors[b]
    )


def too_many_in_a_circle(part, arrows):
    return [group for group in circles(arrows) if len(group) > MOST_IN_A_CIRCLE.get(part, 1) and group not in HALVES]


@pytest.mark.parametrize("part", PARTS)
def test_each_file_has_one_floor(part):
    assert {stem: numbers for stem, numbers in rooms(part).items() if len(numbers) != 1} == {}


@pytest.mark.parametrize("part", PARTS)
def test_each_pattern_means_a_file(part):
    stems = rooms(part)
    patterns = [pattern for _, patterns in PARTS[part] for pattern in patterns.split()]
    assert [pattern for pattern in patterns if not fnmatch.filter(stems, pattern)] == []


@pytest.mark.parametrize("part", PARTS)
def test_nothing_imports_what_is_above(part):
    arrows, _ = imports(part)
    assert arrows, "nothing was read"
    assert running_up(part, arrows) == []
    assert too_many_in_a_circle(part, arrows) == []


@pytest.mark.parametrize("part", OTHERS)
def test_nothing_else_is_named(part):
    """Of other parts only what is meant for it."""
    strays = [(a, b) for a, b in imports(part)[1] if not b.startswith(OTHERS[part])]
    assert strays == []


@pytest.mark.parametrize("part", OTHERS)
def test_nothing_calls_what_is_above(part):
    """A function may be called without an include of its file's header: gpubuf.h declares many."""
    arrows = {(a, b) for a, b, _ in calls(part)}
    if not arrows:
        pytest.skip("this build has no objects of it")
    assert running_up(part, arrows) == []
    if part in MOST_IN_A_CIRCLE:
        arrows = arrows | imports(part)[0]
    assert too_many_in_a_circle(part, arrows) == []


def known():
    """The page's table: {room: the rooms that it may know}."""
    section = TEXT.split("\n## The rooms of the daemon")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)/?` \| .* \| (.*) \|$", section, re.M)
    return {room: set(re.findall(r"\w+", text)) - {"nothing"} for room, text in rows}


def test_rooms_of_the_daemon_know_what_the_page_says():
    names, stems, may_know = [name for name, _ in PARTS["daemon"]], rooms("daemon"), known()
    assert set(may_know) == set(names)
    assert {room: others for room, others in may_know.items() if not others <= set(names[:names.index(room)])} == {}
    wrong = []
    for a, b in sorted(imports("daemon")[0] | {(a, b) for a, b, _ in calls("daemon")}):
        room, named = (names[stems[stem][0]] for stem in (a, b))
        if room != named and named not in may_know[room]:
            wrong.append(f"daemon/{a}.c knows {b}, but {room} may not know {named}. Move what both need to a room that {room} may "
                         f"know, or have a function handed down (see serve/service.h)")
    assert not wrong, "\n" + "\n".join(wrong)


def test_python_imports_itself_at_the_top():
    """An import in a function would hide a circle, not untie it."""
    hidden = []
    for path in sorted((ROOT / "client/python/gpubufd").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                hidden += [
                    f"{path.name}:{node.lineno}" for node in ast.walk(function)
                    if isinstance(node, ast.ImportFrom) and node.level
                ]
    assert hidden == []


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
    names, floor_of = [name for name, _ in PARTS["daemon"]], rooms("daemon")
    room_of = {path: names[floor_of[str(path.relative_to(ROOT / "daemon").with_suffix(""))][0]] for path in SOURCES}
    defined = {name: room_of[path] for path, text in texts.items() for name, _ in structs(text)}
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
