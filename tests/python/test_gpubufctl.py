"""Files that gpubufctl hands to the package: .npy, .npz, lines of JSON; of Arrow's and Parquet, which need pyarrow, what is
recognised."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, PACKAGE

GPUBUFCTL = BUILD / "bin" / "gpubufctl"
FAILED, USAGE, NO_DAEMON = 1, 2, 3


@pytest.fixture
def ctl(daemon, client, tmp_path):
    """ctl(words…): gpubufctl in a directory of its own, whose python3 is this Python."""
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python3").chmod(0o755)

    def run(*words, status=0, path=f"{programs}:/usr/bin:/bin", package=str(PACKAGE), stdin=subprocess.DEVNULL):
        env = dict(os.environ, GPUBUFD_SOCKET=daemon.path, PATH=path, PYTHONPATH=package)
        done = subprocess.run([str(GPUBUFCTL), *words], env=env, cwd=work, capture_output=True, text=True, timeout=120,
                              check=False, stdin=stdin)
        assert done.returncode == status, done
        assert (done.stderr == "") == (status == 0) and done.stderr.count("\n") <= 1, done.stderr
        return done.stdout if status == 0 else done.stderr

    run.work = work
    return run


def test_npz(ctl, client, np):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b/c": np.array([1, 2], "i2"), "none": np.zeros((0, 2))}
    np.savez_compressed(ctl.work / "w.npz", **arrays)
    said = ctl("put", "w", "w.npz").splitlines()
    assert [line.partition(",")[0] for line in said] == [
        "w/a: array of float64", "w/b/c: array of int16", "w/none: array of float64"]
    for name, array in arrays.items():
        assert (client[f"w/{name}"].to_numpy() == array).all() and client[f"w/{name}"].shape == array.shape
    assert 'w.npz: "w/a" exists; --replace' in ctl("put", "w", "w.npz", status=FAILED)
    names = json.loads(ctl("--json", "put", "w", "w.npz", "--replace", "--mode", "644", "--ttl", "90s", "-e", "drop"))
    assert names == ["w/a", "w/b/c", "w/none"]
    info = client.stat("w/a")
    assert (info.mode, info.ttl, info.evict) == (0o644, 90, "drop")
    ctl("get", "w/a", "back.npz", "-s", "1:")
    with np.load(ctl.work / "back.npz") as back:
        assert back.files == ["a"] and (back["a"] == arrays["a"][1:]).all()
    client.put("t", {"x": [1, 2, 3], "y": [0.5, 1.5, 2.5]})
    ctl("get", "t", "t.npz", "--slice=-2:")
    with np.load(ctl.work / "t.npz") as back:
        assert {name: back[name].tolist() for name in back.files} == {"x": [2, 3], "y": [1.5, 2.5]}
    client.put("n", {"x": [1, None]})
    assert "'x' has nulls" in ctl("get", "n", "n.npz", status=FAILED)
    assert sorted(os.listdir(ctl.work)) == ["back.npz", "t.npz", "w.npz"]


def test_npz_that_is_none(ctl, client, np):
    np.savez(ctl.work / "good.npz", a=np.arange(1000), b=np.arange(3))
    good = (ctl.work / "good.npz").read_bytes()
    np.savez(ctl.work / "objects.npz", a=np.arange(3), b=np.array([{}]))
    contents = {"cut.npz": good[:-50], "empty.npz": b"", "text.npz": b"a,b\n1,2\n",
                "spoilt.npz": good[:500] + bytes([good[500] ^ 1]) + good[501:]}
    for name, content in contents.items():
        (ctl.work / name).write_bytes(content)
    for name in [*contents, "objects.npz"]:
        assert ctl("put", "w", name, status=FAILED).startswith(f"gpubufctl: {name}: ")
    assert client.list() == []


def test_without_the_package(ctl, np):
    np.savez(ctl.work / "w.npz", a=np.arange(3))
    for ways in ({"package": ""}, {"path": "/nonexistent"}):
        if ways == {"package": ""} and os.environ.get("GPUBUF_PYTHON_INSTALLED"):
            continue  # it is there
        said = ctl("put", "w", "w.npz", status=FAILED, **ways)
        assert "w.npz" in said and "pip install ./client/python" in said and "--format raw" in said
    # Modules in the directory are not run.
    (ctl.work / "gpubufd.py").write_text("open('run', 'w')\n")
    (ctl.work / "json.py").write_text("open('run', 'w')\n")
    ctl("put", "w", "w.npz")
    assert not (ctl.work / "run").exists()


def test_what_is_recognised(ctl, client):
    for name, content in (("a.parquet", b"x"), ("c.feather", b"x"), ("e", b"PAR1" + bytes(20) + b"PAR1"),
                          ("f", b"ARROW1\0\0" + bytes(20))):
        (ctl.work / name).write_bytes(content)
        ctl("put", "x", name, status=FAILED)
        assert client.list() == []
        ctl("put", "x", name, "--format", "raw")
        assert client["x"].tobytes() == content
        client.delete("x")
    assert "from a file only" in ctl("put", "x", "-", "--format", "parquet", status=USAGE)
    assert "--dtype is for raw files" in ctl("put", "x", "a.parquet", "-d", "int8", status=USAGE)
    assert "--kind" in ctl("put", "x", "a.parquet", "-k", "array", status=USAGE)
    assert "--delimiter" in ctl("put", "x", "a.parquet", "-f", "parquet", "--delimiter", ";", status=USAGE)
    assert "needs a FILE" in ctl("get", "x", "-f", "arrow", status=USAGE)
    assert '"x"' in ctl("get", "x", "x.npz", status=FAILED)
    assert "no daemon listens at /nonexistent/s" in ctl("-S", "/nonexistent/s", "get", "x", "x.npz", status=NO_DAEMON)


def test_lines_of_json(ctl, client):
    (ctl.work / "t.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": null, "b": "y"}\n')
    assert ctl("put", "t", "t.jsonl").startswith("t: table, 2 rows × 2 columns")
    ctl("get", "t", "back.jsonl")
    assert [json.loads(line) for line in (ctl.work / "back.jsonl").read_text().splitlines()] == [
        {"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    (ctl.work / "bad.ndjson").write_text('{"a": 1}\n{"a":\n')
    assert "bad.ndjson" in ctl("put", "u", "bad.ndjson", status=FAILED) and "u" not in client


def test_npy(ctl, client, np):
    """Arrays become what put() of the package makes of them."""
    np.save(ctl.work / "f.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert ctl("put", "f", "f.npy").startswith("f: array of float64, 2 × 3")
    ctl("get", "f", "back.npy", "-s", "1:")
    assert np.load(ctl.work / "back.npy").tolist() == [[3, 4, 5]]
    (ctl.work / "unnamed").write_bytes((ctl.work / "f.npy").read_bytes())
    assert ctl("put", "g", "unnamed").startswith("g: array of float64, 2 × 3")
    arrays = {"u": np.array(["a", "", "bc"]), "s": np.array([(1, 0.5), (2, 1.5)], [("a", "i4"), ("b", "f8")]),
              "d": np.array(["2020-01-01", "NaT"], "M8[D]")}
    for name, array in arrays.items():
        np.save(ctl.work / f"{name}.npy", array)
        ctl("put", name, f"{name}.npy")
        client.put("same", array, replace=True)
        assert client[name].tolist() == client["same"].tolist() and client[name].kind == client["same"].kind
    np.save(ctl.work / "o.npy", np.array([{}]))
    assert "Python objects" in ctl("put", "o", "o.npy", status=FAILED)
    assert "from a file only" in ctl("put", "o", "-", "-f", "npy", status=USAGE, stdin=(ctl.work / "s.npy").open("rb"))


def test_its_own_environment_comes_first(client, daemon, tmp_path, np):
    """That of a wheel: Python is beside it, whatever PATH has."""
    programs = tmp_path / "own" / "bin"
    programs.mkdir(parents=True)
    shutil.copy(GPUBUFCTL, programs / "gpubufctl")
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python3").chmod(0o755)
    np.save(tmp_path / "x.npy", np.arange(3))

    def put(status):
        env = dict(os.environ, GPUBUFD_SOCKET=daemon.path, PATH="/nowhere", PYTHONPATH=str(PACKAGE),
                   LD_LIBRARY_PATH=str(BUILD / "lib"))
        done = subprocess.run([programs / "gpubufctl", "put", tmp_path / "x.npy"], env=env, timeout=120, check=False)
        assert done.returncode == status

    put(FAILED)
    (tmp_path / "own" / "pyvenv.cfg").touch()
    put(0)
    assert client["x"].tolist() == [0, 1, 2]
