"""Calls go downwards: in proto, the library, the programs and the bindings nothing imports what is above it.

A part is a folder, and a list of floors from the ground up; a floor is a name and the files that stand
on it. A file may name files of its own floor, as long as no circle comes of it, and of floors below. All
of a part's files stand somewhere. docs/ARCHITECTURE.md says what is on each floor.
"""

import ast
import fnmatch
import os
import pathlib
import re

import pytest

from test_rooms import calls, circles

ROOT = pathlib.Path(os.environ.get("GPUBUF_ROOT", pathlib.Path(__file__).resolve().parents[2]))

PARTS = {
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
# One reader in two files that call each other.
HALVES = [["layout/layout_columns", "layout/layout_read"]]
SUFFIXES = (".c", ".h", ".py", ".cjs", ".mjs")


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


def running_up(part, arrows):
    floors = {stem: numbers[0] for stem, numbers in rooms(part).items()}
    names = [name for name, _ in PARTS[part]]
    return sorted(
        f"{a} ({names[floors[a]]}) -> {b} ({names[floors[b]]})" for a, b in arrows if floors[a] < floors[b]
    )


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


@pytest.mark.parametrize("part", PARTS)
def test_no_files_import_each_other(part):
    assert circles(imports(part)[0]) == []


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
    assert [circle for circle in circles(arrows) if circle not in HALVES] == []


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
