"""Content of another user: whatever offsets, codes and bitmaps say, a reader stays within the object.

`GPUBUF_TEST_PROGRAMS=200` reads 10 000 objects; GPUBUF_TEST_SEED chooses others.
"""

import json
import os
import random
import struct
import subprocess
import sys
import threading

import pytest

import arrowc
import gpubufd
import wild
from conftest import environment
from peer import DEADLINE

OTHER = 61803  # a uid that no account has
OBJECTS = 50 * int(os.environ.get("GPUBUF_TEST_PROGRAMS", 6))
SEED = int(os.environ.get("GPUBUF_TEST_SEED", 6))
BATCH = 25

# Reads the objects that each line of its input names, in every way that is there; says what came of each of them.
READER = """
import collections, faulthandler, importlib.util, json, os, sys
faulthandler.enable()
import arrowc, gpubufd

SECRET = b"SECRET-OF-THE-READER"
client = gpubufd.connect()
for i in range(8):
    client.put(f"private/{i}", SECRET * 50_000)
mine = [client.get(f"private/{i}") for i in range(8)]
assert all(one.tobytes().startswith(SECRET) for one in mine)

def module(name):
    return __import__(name) if importlib.util.find_spec(name) else None

numpy, pandas, pyarrow, polars = map(module, ("numpy", "pandas", "pyarrow", "polars"))

def arrow(held):
    return (pyarrow.table if isinstance(held, gpubufd.Table) else pyarrow.array)(held)

def checked(held):
    made = arrow(held)
    made.validate(full=True)
    return made.to_pylist()

WAYS = {
    "repr": repr, "tolist": lambda held: held.tolist(), "first": lambda held: held[0],
    "slice": lambda held: held[1:3].tolist(), "arrow": arrowc.read_array,
    "a slice's arrow": lambda held: arrowc.read_array(held[max(len(held) - 3, 0):]),
}
if numpy:
    WAYS["numpy"] = lambda held: held.to_numpy()
if pandas:
    WAYS["pandas"] = lambda held: str(held.to_pandas())
if pyarrow:
    WAYS["pyarrow"] = checked
    WAYS["unchecked"] = lambda held: arrow(held).to_pylist()
    WAYS["pandas by pyarrow"] = lambda held: str(arrow(held).to_pandas())
if polars:
    WAYS["polars"] = lambda held: polars.DataFrame(held).rows() if isinstance(held, gpubufd.Table) else polars.Series(held).to_list()

for line in sys.stdin:
    said = collections.Counter()
    for name in json.loads(line):
        try:
            held = client.get(name)
        except gpubufd.NotFound:
            continue
        for way, read in WAYS.items():
            print(name, way, flush=True)
            try:
                made = read(held)
                assert SECRET.decode() not in str(made), (name, way)
                said["read"] += 1
            except (Exception if not polars else BaseException) as error:
                if isinstance(error, (AssertionError, KeyboardInterrupt)):
                    raise
                said["refused" if "another user wrote" in str(error) else type(error).__name__] += 1
        del held
    print(json.dumps(said), flush=True)
"""


@pytest.fixture
def others(daemon):
    """A session of another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with daemon.connect_as(OTHER, OTHER) as peer:
        yield peer


def read_batch(reader, names):
    """Has a reader read these objects; returns how often each thing came of it."""
    reader.stdin.write(json.dumps(names) + "\n")
    reader.stdin.flush()
    last, late = "", threading.Timer(DEADLINE, reader.kill)
    late.start()
    try:
        for line in reader.stdout:
            if line.startswith("{"):
                return json.loads(line)
            last = line
    finally:
        late.cancel()
    pytest.fail(f"ended by {reader.wait()}, a SIGKILL after {DEADLINE} s: {last}")


@pytest.mark.programs
def test_no_content_leads_astray(daemon, others, client, tmp_path):
    chance = random.Random(SEED)
    path = os.path.dirname(os.path.abspath(__file__))
    variables = environment(GPUBUFD_SOCKET=daemon.path)
    variables.update(PYTHONPATH=variables["PYTHONPATH"] + os.pathsep + path, RUST_BACKTRACE="0")
    said = {"read": 0, "refused": 0}
    with open(tmp_path / "errors", "w+") as errors:
        with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                              env=variables, text=True) as reader:
            try:
                for _ in range(0, OBJECTS, BATCH):
                    names = [f"wild/{i}" for i in range(BATCH)]
                    for name in names:
                        while wild.publish(others, chance, name, True) is None:
                            pass
                    for key, count in read_batch(reader, names).items():
                        said[key] = said.get(key, 0) + count
                reader.stdin.close()
                assert reader.wait(DEADLINE) == 0
            except BaseException:
                reader.kill()
                errors.seek(0)
                print(errors.read()[-8000:])
                raise
    assert said["read"] > OBJECTS and said["refused"] > OBJECTS // 5, said
    assert not said.keys() & {"SystemError", "InternalError"}, said


def as_other(path):
    """A client of the other user's, in this process."""
    os.seteuid(OTHER)
    try:
        return gpubufd.connect(path)
    finally:
        os.seteuid(0)


@pytest.mark.programs
def test_right_content_reads_as_ones_own(daemon, others, client):
    chance = random.Random(SEED)
    compared = 0
    with as_other(daemon.path) as own:
        for _ in range(OBJECTS):
            if not wild.publish(others, chance, "x", False):
                continue
            here, there = client.get("x"), own.get("x")
            if isinstance(here, gpubufd.Array) and here.ndim != 1:
                continue
            for start, stop in [(0, None), (1, 3), (chance.randrange(70), chance.randrange(200))]:
                try:
                    wanted = arrowc.read_array(there[start:stop])
                except (gpubufd.Unsupported, ValueError) as error:
                    with pytest.raises(type(error)):
                        arrowc.read_array(here[start:stop])
                    break
                assert arrowc.read_array(here[start:stop]) == wanted, (start, stop)
                compared += 1
    assert compared > OBJECTS // 2


def sealed(peer, made, final=False):
    wild.seal(peer, made, final)
    return made


@pytest.mark.parametrize("final", [False, True])
def test_offsets_and_codes_are_refused_with_a_sentence(client, others, final):
    sealed(others, wild.text_table(others, "x", [0, 8, 41], final=final), final)
    with pytest.raises(gpubufd.Invalid, match="x, which another user wrote, cannot be read: "
                       "in a column of utf8 offset 2 is 41, expected ascending ones up to 40"):
        client["x"].__arrow_c_stream__()
    sealed(others, wild.text_table(others, "x", [0, 8, 4, 8], final=final, replace=True), final)
    with pytest.raises(gpubufd.Invalid, match="offset 2 is 4, expected ascending"):
        client["x"].__arrow_c_array__()
    sealed(others, wild.categories(others, "c", [0, 2, -1], final=final), final)
    with pytest.raises(gpubufd.Invalid, match="in a column of int32 code 2 is -1, expected one below 3"):
        client["c"].__arrow_c_array__()
    with pytest.raises(ValueError, match="'c', which another user wrote, cannot be read: its codes are not below 3"):
        client["c"].tolist()
    sealed(others, others.create("l", wild.column("list", 2, children=[{"dtype": "int8", "length": 4}]),
                                 {"offsets": struct.pack("<3i", 0, 4, 0)}, mode="0644", final=final), final)
    with pytest.raises(ValueError, match="'l', which another user wrote, cannot be read: its offsets do not ascend"):
        client["l"].tolist()


def test_what_was_exported_stays_as_it_was_checked(client, others):
    """The writer goes on writing: offsets, codes and bitmaps are the reader's own by then."""
    made = sealed(others, wild.text_table(others, "x", [0, 1, 2, 3]))
    capsules = client["x"].__arrow_c_array__()
    others.write(made["object"]["layout"]["columns"][0]["offsets"], struct.pack("<4i", 1 << 30, 0, 1 << 30, 1 << 30))
    text = arrowc.struct_of(capsules[1], arrowc.Array).children[0][0]
    assert struct.unpack("<4i", arrowc.read(text.buffers[1], 16)) == (0, 1, 2, 3)

    made = sealed(others, wild.categories(others, "c", [0, 1, 2]))
    pandas = pytest.importorskip("pandas")
    series = client["c"].to_pandas()
    others.write(made["object"]["layout"]["children"][0]["data"], struct.pack("<3i", 1 << 30, 1 << 30, 1 << 30))
    assert series.tolist() == ["a", "b", "c"] and isinstance(series.dtype, pandas.CategoricalDtype)


def test_nulls_are_counted_anew(client, others):
    """Another user's number of them need not be theirs; a reader may take it for room."""
    layout = wild.column("int32", 8, mask={}, null_count=0)
    sealed(others, others.create("x", layout, {"mask": b"\x0f", "data": bytes(32)}, mode="0644"))
    _, array = capsules = client["x"].__arrow_c_array__()
    assert arrowc.struct_of(capsules[1], arrowc.Array).null_count == 4


def test_an_edited_copy_is_right_before_it_is_ones_own(client, others):
    sealed(others, wild.text_table(others, "x", [0, 8, 41]))
    with pytest.raises(gpubufd.Invalid, match="another user wrote"):
        client.edit("x")
    sealed(others, wild.text_table(others, "x", [0, 8, 40], replace=True))
    with client.edit("x"):
        pass
    assert client.stat("x").uid == os.geteuid() and not client["x"]._foreign
    assert arrowc.read_array(client["x"]) == [{"u": "abcdefgh"}, {"u": "abcdefgh" * 4}]


def test_whose_content_it_is(daemon, client, others):
    """An alias is of its source's content, and a live object of all who may write it."""
    sealed(others, wild.text_table(others, "theirs", [0, 1]))
    client.alias("alias", "theirs")
    client.put("mine", [1])
    client.create("live", "int32", 4, live=True, mode=0o666)
    client.create("own", "int32", 4, live=True, mode=0o644)
    assert {name: client[name]._foreign for name in ("theirs", "alias", "mine", "live", "own")} == {
        "theirs": True, "alias": True, "mine": False, "live": True, "own": False}
