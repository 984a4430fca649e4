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
