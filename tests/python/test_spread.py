"""A file on two GPUs: read once, however many processes want it, and copied from one GPU to the other."""

import collections
import os

import pytest

import gpubufd
from conftest import fake_only, with_gpus
from peer import DEADLINE

np = pytest.importorskip("numpy")

from gpubufd.numpy import save_file  # noqa: E402

pytestmark = fake_only

LOAD = """
    import sys, gpubufd
    from gpubufd import _weights
    client = gpubufd.connect()
    ids = [device["id"] for device in client.devices() if device["id"] != "host"]
    print("ready", flush=True)
    sys.stdin.readline()
    place = ids[int(sys.argv[2])]
    bundle = _weights.load(sys.argv[1], client=client, device=place, place=place)
    print(bundle._device == place, int(sum(bundle[name].copy_to_host().sum() for name in bundle)), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def two():
    """A daemon with two GPUs, and the environment of its clients."""
    with with_gpus("cuda:0:64M", "cuda:1:64M") as daemon:
        trace = os.path.join(daemon.directory, "trace")
        daemon.client_env = dict(daemon.client_env, FAKECUDA_TRACE=trace)
        yield daemon


def load(loaders):
    """The words that each printed; all begin at the same time, and hold what they have until all are there."""
    for one in loaders:
        assert one.stdout.readline() == "ready\n"
    for one in loaders:
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.stdout.readline().split() for one in loaders]
    for one in loaders:
        one.communicate("\n", DEADLINE)
        assert one.returncode == 0
    return said


def who_read(daemon):
    """The processes that have copied from the host to a GPU, and how often."""
    with open(daemon.client_env["FAKECUDA_TRACE"], encoding="ascii") as trace:
        return collections.Counter(line.split()[0] for line in trace if line.split()[1] == "cuMemcpyHtoDAsync")


def test_processes_on_two_gpus_read_the_file_once(two, begin, tmp_path):
    path = tmp_path / "m.safetensors"
    tensors = {f"w{i}": np.arange(i, i + 1_000_000, dtype="u4") for i in range(4)}  # 16 MB
    save_file(tensors, path)
    said = load([begin(two.path, LOAD, path, number, **two.client_env) for number in (0, 1, 0, 1)])
    assert said == [["True", str(sum(int(tensor.sum()) for tensor in tensors.values()))]] * 4
    read = who_read(two)
    assert len(read) == 1 and sum(read.values()) == 4  # pieces of 4 MiB
    with gpubufd.connect(two.path) as client:
        assert client.stats()["methods"]["create"]["calls"] == 2
        client.delete(*client)


def test_a_gpu_that_is_hidden_is_not_copied_from(two, begin, tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"w": np.arange(1000, dtype="u4")}, path)
    assert load([begin(two.path, LOAD, path, 0, **two.client_env)]) == [["True", "499500"]]
    assert load([begin(two.path, LOAD, path, 1, **two.client_env, CUDA_VISIBLE_DEVICES="1")]) == [["True", "499500"]]
    assert len(who_read(two)) == 2
    with gpubufd.connect(two.path) as client:
        client.delete(*client)
