"""gpubufctl save and load: objects as files, on another daemon again as they were."""

import json
import os
import random
import signal
import subprocess

import pytest

import device as test_device
from ctl import FAILED, OK, USAGE, Ctl
from peer import DEADLINE, Peer, wait_until
from test_bundle import FILE, publish as publish_bundle
from test_gpubufctl_types import nested, register_by_columns, words

SMALL = "name,count,flag\nx,1,true\n,2,\n\"\",,false\n\"a\n\"\"b\",4,true\n"
PARTS = ["1:3", "9:20", "3:", "7:7"]


def rows(count):
    lines = [f"{'' if i % 7 == 3 else 'text ' + str(i)},{i},{['true', 'false', ''][i % 3]}" for i in range(count)]
    return "name,count,flag\n" + "\n".join(lines) + "\n"


def contents(ctl):
    """Each object's content: text; bundles, bytes and long arrays as they are."""
    shown = {}
    with Peer(ctl.path) as peer:
        for name in ctl.names():
            layout = peer.call("stat", name=name)["object"]["layout"]
            if layout["kind"] in ("bundle", "bytes") or layout["kind"] == "array" and layout["shape"][0] > 100_000:
                ctl("get", name, "-f", "raw", "-o", "bytes")  # as text, millions of numbers take seconds
                shown[name] = ctl.read("bytes")
            else:
                shown[name] = ctl("--json", "get", name)
    return shown


def options(ctl):
    kept = ("mode", "evict", "pinned", "ttl_ms", "share", "device", "final", "label", "keep")
    with Peer(ctl.path) as peer:
        return {name: {key: value for key, value in peer.call("stat", name=name)["object"].items() if key in kept}
                for name in ctl.names()}


def publish_all(ctl, peer):
    ctl("put", "d/small", ctl.file("small.csv", SMALL), "--mode", "644", "--evict", "drop",
        "--label", "run ä", "--keep", "2")
    ctl("put", "d/rows", ctl.file("rows.csv", rows(100)), "--ttl", "1h")
    ctl("put", "d/empty", ctl.file("empty", ""))
    ctl("put", "d/none", ctl.file("none.csv", "a,b\n"))
    ctl("put", "d/large", ctl.file("large", random.Random(5).randbytes(2_500_001)), "-e", "keep")
    ctl("put", "d/array", "large", "-d", "uint8", "-s", "2500001")
    ctl("pin", "d/large")
    for i, part in enumerate(PARTS):
        ctl("alias", f"d/rows.{i}", "d/rows", "--slice", part)
        ctl("alias", f"d/array.{i}", "d/array", "--slice", part)
    nested(peer)
    ctl("alias", "d/nested", "n")
    for i, part in enumerate(["0:1", "1:3", "2:3"]):
        ctl("alias", f"d/nested.{i}", "n", "--slice", part)
    mask = {"kind": "array", "dtype": "int16", "shape": [5, 5], "mask": {}}
    peer.create_object("d/masked", mask, {"data": words("h", *range(25)), "mask": b"\x2e\x9a\x55\x01"})
    ctl("alias", "d/masked.1", "d/masked", "--slice", "2:4")
    meta = {"kind": "table", "length": 1, "metadata": {"made": "by ä \"test\""},
            "columns": [{"name": "a", "dtype": "int8", "length": 1, "metadata": {"unit": "m"}}]}
    peer.create_object("d/meta", meta, {"columns[0].data": b"\x07"})
    publish_bundle(peer, "d/model", FILE)
    ctl("rm", "n")


@pytest.mark.on_gpus
def test_a_snapshot_on_another_daemon(daemon_factory, tmp_path):
    daemon, another = daemon_factory(), daemon_factory()
    ctl, other = Ctl(daemon.path, str(tmp_path)), Ctl(another.path, str(tmp_path))
    with daemon.connect() as peer:
        publish_all(ctl, peer)
    before, kept = contents(ctl), options(ctl)
    said = ctl("save", "d/", "snap")
    assert said.startswith(f"saved {len(before)} objects, ") and said.endswith(" in snap\n")
    assert sorted(os.listdir(ctl.directory)).count("snap") == 1
    assert [name for name in os.listdir(ctl.directory) if name.startswith(".snap")] == []
    manifest = json.loads(ctl.read("snap", "manifest.json"))
    (model,) = [entry for entry in manifest["objects"] if entry["name"] == "d/model"]
    assert ctl.read("snap", model["file"]) == FILE
    assert other("load", "snap").startswith(f"loaded {len(before)} objects, ")
    assert contents(other) == before
    assert options(other) == kept
    with another.connect() as peer:
        layout = peer.call("stat", name="d/meta")["object"]["layout"]
    assert layout["metadata"] == {"made": "by ä \"test\""}
    assert layout["columns"][0]["metadata"] == {"unit": "m"}
    # Loaded objects are saved as the same.
    other("save", "d/", "again")
    for name in os.listdir(os.path.join(ctl.directory, "snap")):
        if name.endswith(".data"):
            assert ctl.read("snap", name) == ctl.read("again", name), name


def test_a_slice_is_saved_without_the_rest(ctl):
    ctl("put", "t", ctl.file("rows.csv", rows(20000)))
    ctl("alias", "part", "t", "-s", "15001:15004")
    ctl("save", "part", "snap")
    assert os.path.getsize(os.path.join(ctl.directory, "snap", "000001.data")) < 1000
    before = ctl("get", "part")
    ctl("rm", "part")
    ctl("load", "snap")
    assert ctl("get", "part") == before


def test_what_exists_is_skipped(ctl):
    path = ctl.file("small.csv", SMALL)
    for name in ("a", "b", "c"):
        ctl("put", name, path)
    ctl("save", "", "snap")
    ctl("rm", "b")
    ctl("put", "-r", "c", ctl.file("bytes", "other"))
    done = ctl.raw("load", "snap")
    assert done.returncode == FAILED and b"2 names that exist were skipped; --replace" in done.stderr
    assert done.stdout.startswith(b"loaded 1 object, ") and done.stdout.count(b"\n") == 1
    done = ctl.raw("load", "-v", "snap")
    assert done.returncode == FAILED
    assert done.stdout.splitlines()[1:] == [b"skipped %s, which exists" % name for name in (b"a", b"b", b"c")]
    assert ctl("get", "c", "-f", "raw") == "other"
    assert ctl.json("load", "snap", "--replace") == {"loaded": ["a", "b", "c"], "skipped": [], "failed": []}
    assert ctl("get", "c") == ctl("get", "a")


def test_a_directory_that_is_there(ctl):
    ctl("put", "a", ctl.file("small.csv", SMALL))
    os.mkdir(os.path.join(ctl.directory, "empty"))
    ctl("save", "a", "empty/")
    assert "--replace takes its place" in ctl.fails(FAILED, "save", "a", "empty")
    ctl("put", "b", "small.csv")
    assert ctl.json("save", "", "empty", "-r")["saved"] == ["a", "b"]
    assert sorted(os.listdir(os.path.join(ctl.directory, "empty"))) == ["000001.data", "000002.data", "manifest.json"]
    os.mkdir(os.path.join(ctl.directory, "other"))
    ctl.file("other/mine", "x")
    assert "no snapshot" in ctl.fails(FAILED, "save", "a", "other", "--replace")
    assert "no snapshot" in ctl.fails(FAILED, "save", "a", "small.csv", "--replace")
    assert os.listdir(os.path.join(ctl.directory, "other")) == ["mine"]
    assert "starts with \"zz\"" in ctl.fails(FAILED, "save", "zz", "new")
    assert "no object matches" in ctl.fails(FAILED, "save", "z*", "new")
    assert "cannot write none/new" in ctl.fails(FAILED, "save", "a", "none/new")
    assert not os.path.exists(os.path.join(ctl.directory, "new"))
    assert ctl.json("save", "[b-z]*", "new")["saved"] == ["b"]
    assert [name for name in os.listdir(ctl.directory) if name.startswith(".")] == []


def test_what_is_damaged_is_refused(ctl):
    """Each byte of a buffer counts; the rest is loaded."""
    for name in ("a", "b"):
        ctl("put", name, ctl.file("small.csv", SMALL))
    ctl("save", "", "snap")
    ctl("rm", "a", "b")
    good = ctl.read("snap", "000002.data")

    def spoilt(content, sentence):
        ctl.file("snap/000002.data", content)
        done = ctl.raw("load", "-r", "snap")
        assert done.returncode == FAILED and b"loaded 1 object, " in done.stdout
        told = done.stderr.decode()
        assert told.startswith("gpubufctl: cannot load b: snap/000002.data ") and sentence in told
        assert ctl.names() == ["a"]

    spoilt(good[:-1], f"is cut short at byte {len(good) - 1}")
    spoilt(b"", "is cut short at byte 0")
    spoilt(good + b"x", f"goes on after byte {len(good)}")
    manifest = json.loads(ctl.read("snap", "manifest.json"))
    columns = manifest["objects"][1]["layout"]["columns"]
    assert [column["name"] for column in columns] == ["name", "count", "flag"]
    end = len(good) - 1  # of the last column's data
    spoilt(good[:end] + bytes([good[end] ^ 1]), "(data of column flag)")
    spoilt(bytes([good[0] ^ 4]) + good[1:], "is damaged between its bytes 0 and 64 (mask of column name)")
    os.remove(os.path.join(ctl.directory, "snap", "000002.data"))
    os.mkfifo(os.path.join(ctl.directory, "snap", "000002.data"))
    done = ctl.raw("load", "-r", "snap")
    assert done.returncode == FAILED and b"no regular file" in done.stderr
    os.remove(os.path.join(ctl.directory, "snap", "000002.data"))
    assert b"No such file" in ctl.raw("load", "-r", "snap").stderr
    os.symlink("000001.data", os.path.join(ctl.directory, "snap", "000002.data"))
    assert b"cannot read snap/000002.data" in ctl.raw("load", "-r", "snap").stderr


@pytest.mark.parametrize("change, sentence", [
    (lambda text: b"", "no JSON"),
    (lambda text: text[: len(text) // 2], "no JSON"),
    (lambda text: text.replace(b'"0600"', b'"0666"'), "another checksum"),
    (lambda text: text.replace(b"gpubufd snapshot", b"gpubufd snapshop"), "no manifest of a snapshot"),
    (lambda text: text.replace(b'"version":1', b'"version":2'), "later version"),
    (lambda text: text.replace(b'"objects"', b'"object"'), "another checksum"),
    (lambda text: b"{}", "no manifest of a snapshot"),
    (lambda text: b"[" * 100000, "no JSON"),
    (lambda text: text.replace(b"gpubufd", b"gpu\0ufd"), "is no text"),
])
def test_a_damaged_manifest(ctl, change, sentence):
    ctl("put", "a", ctl.file("small.csv", SMALL))
    ctl("save", "a", "snap")
    ctl("rm", "a")
    ctl.file("snap/manifest.json", change(ctl.read("snap", "manifest.json")))
    assert sentence in ctl.fails(FAILED, "load", "snap")
    assert ctl.names() == []


def test_no_snapshot_at_all(ctl):
    assert "none/manifest.json" in ctl.fails(FAILED, "load", "none")
    assert "manifest.json" in ctl.fails(FAILED, "load", ctl.directory)
    ctl.fails(USAGE, "load", "x", "--wait", "soon")


def test_a_signal_leaves_nothing(ctl, tmp_path):
    """The object is large enough for the signal to come while it is written, mostly."""
    ctl("put", "a", ctl.file("large", bytes(48 << 20)))
    run = ctl.start("save", "a", "snap", stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def under_way():
        return run.poll() is not None or any(name.startswith(".snap") for name in os.listdir(ctl.directory))

    wait_until(under_way)
    run.send_signal(signal.SIGTERM)
    out, error = run.communicate(timeout=DEADLINE)
    assert [name for name in os.listdir(ctl.directory) if name.startswith(".")] == []
    if run.returncode == OK:  # it was done already
        assert os.path.exists(os.path.join(ctl.directory, "snap", "manifest.json"))
    else:
        assert b"interrupted" in error and not os.path.exists(os.path.join(ctl.directory, "snap"))


def test_an_array_with_strides(ctl, shared_peer):
    os.close(register_by_columns(shared_peer))
    before = ctl("get", "f", "-f", "csv")
    ctl("save", "f", "snap")
    ctl("rm", "f")
    ctl("load", "snap")
    assert ctl("get", "f", "-f", "csv") == before


def test_offsets_that_make_no_sense(ctl, shared_peer):
    layout = {"kind": "column", "dtype": "utf8", "length": 2, "data": {"bytes": 3}}
    shared_peer.create_object("bad", layout, {"offsets": words("i", 0, 1, 99), "data": b"abc"})
    assert "cannot save bad: its offsets 0 to 99 are not within 0 to 3" in ctl.fails(FAILED, "save", "bad", "snap")
    assert os.listdir(ctl.directory) == []


@pytest.mark.on_gpus
def test_where_it_is_put(ctl):
    """--device is for what was on a GPU: what was on the host is on the host again."""
    ctl("put", "a", ctl.file("small.csv", SMALL))
    before = ctl("get", "a")
    ctl("save", "a", "snap")
    ctl("rm", "a")
    ctl("load", "snap", "--device", "cuda:0")
    assert ctl.json("stat", "a")["device"] == test_device.ID and ctl("get", "a") == before
    if test_device.ON_GPU:
        ctl("rm", "a")
        assert "cannot load a: --device: " in ctl.raw("load", "snap", "-D", "cuda:7").stderr.decode()
