"""The examples in other projects' interfaces, run with these."""

import os
import subprocess
import sys

import conftest
import pytest

EXAMPLES = {
    "torch_queue.py": (["torch"], ["10 tensors of a process that has ended, whose sum is 45,000,000"]),
    "checkpoint.py": (["torch"], ["went on at step 4", "ended at step 10, with weights of 10.0"]),
    "processed_weights.py": (["torch"], ["one loads, and lays out", *[f"engine {i} has 4 weights of torch.int8" for i in range(3)]]),
    "transformers_model.py": (["torch", "transformers"], ["numbers, 1 object"]),
    "ray_actors.py": (["torch", "ray"], ["the rollouts found [2000000.0, 2000000.0]"]),
    "files_and_chunks.py": (["fsspec", "zarr", "pandas"],
                            ["40.5", "['example/weather.csv']", "9999.0 4 chunks (100, 100)"]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, client, daemon):
    packages, expected = EXAMPLES[name]
    for package in packages:
        pytest.importorskip(package)
    env = dict(os.environ, GPUBUFD_SOCKET=daemon.path, PYTHONPATH=str(conftest.PACKAGE), OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, conftest.ROOT / "examples" / "python" / name], env=env, capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in expected:
        assert words in done.stdout, done.stdout + done.stderr
    if name == "processed_weights.py":
        assert done.stdout.count("one loads") == 1
    if name == "transformers_model.py":
        assert done.stdout.count("numbers, 1 object") == 2
    client.delete(*client.keys(), missing_ok=True)


def test_snapshot(client, daemon, tmp_path):
    """Every kind comes back with its options; a live object and names that are taken are named."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    env, place = dict(os.environ, GPUBUFD_SOCKET=daemon.path, PYTHONPATH=str(conftest.PACKAGE)), tmp_path / "saved"

    def snapshot(*words):
        done = subprocess.run([sys.executable, conftest.ROOT / "examples/python/snapshot.py", *words], env=env,
                              capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    values = {"array": np.arange(12.0).reshape(3, 4), "bytes": b"as they are", "column": ["a", None, "c"],
              "table": {"n": [1, 2], "t": ["x", None]}}
    for name, value in values.items():
        client.put(name, value, mode=0o640, label="one", keep=2)
    client.put_bundle("bundle", {"w": np.ones((2, 2), "f4")}, {"made": "here"}, mode=0o640, label="one", keep=2)
    client.pin("array")
    client.create("live", "int8", 4, live=True).release()
    shown = {name: str(client.get(name)) for name in client.keys() if name != "live"}
    code, said, complaints = snapshot("save", place)
    assert code == 1 and "live: left out" in complaints and "5 saved, 1 left out" in said, complaints
    client.delete(*client.keys())
    assert snapshot("load", place) == (0, f"{place}: 0 were there already\n", "")
    assert {name: str(client.get(name)) for name in client.keys()} == shown
    assert client.get("bundle").metadata == {"made": "here"} and (client.get("bundle")["w"].to_numpy() == 1).all()
    assert client.stat("array").pinned and not client.stat("table").pinned
    assert {(one.mode, one.label, one.keep) for one in client.list()} == {(0o640, "one", 2)}
    code, said, complaints = snapshot("load", place)
    assert code == 1 and "5 were there already" in said, complaints
