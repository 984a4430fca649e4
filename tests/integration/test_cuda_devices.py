"""GPUs at the start: which one is meant, what is said of it, and what is wrong in one sentence."""

import ctypes
import json
import os
import subprocess

import pytest

import device as test_device
from conftest import GPUBUFD, SANITIZER
from device import MIB, UUIDS
from peer import DEADLINE, bytes_layout

CUDA_ERRORS = {2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE",
               304: "CUDA_ERROR_OPERATING_SYSTEM"}


def run(*argv, driver=True, **settings):
    env = test_device.environment(**settings)
    if not driver:
        env.pop("LD_LIBRARY_PATH")
    done = subprocess.run([str(GPUBUFD), *argv], env=env, capture_output=True, text=True,
                          timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL)
    assert not SANITIZER.search(done.stderr), done.stderr
    return done


def probe(*devices, **settings):
    argv = [word for one in devices for word in ("--device", one)]
    done = run("--probe", *argv, **settings)
    assert done.returncode == 0 and done.stderr == "", done
    return json.loads(done.stdout)["devices"]


def refused(*devices, words=(), **settings):
    """Exit status 2 and one sentence that has the words."""
    argv = [word for one in devices for word in ("--device", one)]
    for mode in (["--probe"], ["--socket", "/dev/null/never"]):
        done = run(*mode, *argv, **settings)
        assert done.returncode == 2 and done.stdout == "", done
        (line,) = done.stderr.strip().split("\n")
        for word in words:
            assert word in line, line
    return line


@pytest.mark.parametrize("spec,index", [("cuda:0", 0), ("cuda:1", 1), (UUIDS[0], 0), (UUIDS[1], 1)])
def test_one(spec, index):
    (told,) = probe(f"{spec}:64M")
    assert told == {"id": UUIDS[index], "uuid": UUIDS[index], "name": "fakecuda", "used": 0,
                    "capacity": 64 * MIB, "share": ["fd", "ipc"], "default": True}


def test_all():
    assert [d["id"] for d in probe("cuda:all:32M")] == UUIDS[:2]
    assert [d["id"] for d in probe("cuda:all:32M", FAKECUDA_DEVICES=4)] == UUIDS[:4]
    told = probe("host:8M", "cuda:all:25%")
    assert [d["id"] for d in told] == ["host", *UUIDS[:2]]
    assert [d["default"] for d in told] == [True, False, False]
    assert "uuid" not in told[0]
    assert told[1]["capacity"] == pytest.approx(64 * MIB, abs=256)


def test_a_beginning_of_a_uuid():
    (told,) = probe(f"{UUIDS[0][:-1]}:64M", FAKECUDA_DEVICES=1)
    assert told["id"] == UUIDS[0]
    refused(f"{UUIDS[0][:-1]}:64M", words=["2 GPUs", "more"])


def test_the_daemons_own_numbering():
    """cuda:0 is the first that the daemon sees."""
    (told,) = probe("cuda:0:64M", CUDA_VISIBLE_DEVICES=1)
    assert told["id"] == UUIDS[1]
    refused("cuda:1:64M", words=["cuda:1", "no such GPU"], CUDA_VISIBLE_DEVICES=1)
    refused(f"{UUIDS[0]}:64M", words=[UUIDS[0]], CUDA_VISIBLE_DEVICES=1)


def test_an_instance_is_called_what_it_is():
    (told,) = probe("cuda:0:64M", FAKECUDA_MIG=1)
    assert told["id"].startswith("MIG-") and told["name"].startswith("fakecuda MIG ")
    (again,) = probe(f"{told['id']}:64M", FAKECUDA_MIG=1)
    assert again == told


@pytest.mark.parametrize("attribute,share", [(102, ["ipc"]), (103, ["ipc"]), (18, ["fd"])],
                         ids=["no virtual memory management", "no descriptors", "integrated"])
def test_what_it_cannot_share(attribute, share):
    value = 1 if attribute == 18 else 0
    (told,) = probe("cuda:0:64M", FAKECUDA_ATTRIBUTE=f"{attribute}:{value}")
    assert told["share"] == share


def test_what_it_cannot_share_is_unsupported(daemon_factory):
    daemon = daemon_factory(env={"FAKECUDA_ATTRIBUTE": "102:0"})
    peer = daemon.connect()
    error = peer.error("unsupported", "create", name="a", layout=bytes_layout(1))
    assert "fd" in error.message and UUIDS[0] in error.message, error.message
    assert peer.call("create", name="a", layout=bytes_layout(1), share="ipc")


BAD = {
    "no such number": (["cuda:7:64M"], ["cuda:7", "2"]),
    "no such uuid": ([f"{UUIDS[3]}:64M"], [UUIDS[3]]),
    "more than it has": (["cuda:0:257M"], ["cuda:0:257M", "256 MiB"]),
    "more than all have": (["cuda:all:1T"], ["cuda:all:1T", "256 MiB"]),
    "less than one segment": (["cuda:0:1M"], ["2M"]),
    "twice": (["cuda:0:64M", f"{UUIDS[0]}:64M"], ["twice", UUIDS[0]]),
    "all and one": (["cuda:all:64M", "cuda:1:64M"], ["twice", UUIDS[1]]),
}


@pytest.mark.parametrize("devices,words", BAD.values(), ids=BAD.keys())
def test_bad_devices(devices, words):
    assert refused(*devices, words=words)


def test_no_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a driver")
    except OSError:
        pass
    assert "no CUDA driver" in refused("cuda:0:64M", words=["libcuda.so.1"], driver=False)


def test_gpus_of_amd():
    ids = ["HIP-fa4ecada00000000", "HIP-fa4ecada00000001"]
    assert [d["id"] for d in probe("hip:all:32M")] == ids
    assert [d["id"] for d in probe(f"{ids[1]}:32M", "hip:0:32M")] == ids[::-1]
    (told,) = probe("hip:0:32M", FAKECUDA_NAME="nameless")  # GPUs without a number of their own
    assert told["id"] == "HIP-0000-f0-00.0"
    assert [d["id"] for d in probe("cuda:0:32M", "hip:1:32M")] == [UUIDS[0], ids[1]]
    refused("hip:0:32M", words=["too old", "7.0", "7.1"], FAKECUDA_VERSION=70000000)
    refused("hip:0:32M", "HIP-fa4e:32M", words=["twice", ids[0]])
    refused("hip:0:32M", words=["no HIP driver"], driver=False)
    refused("hip:x", words=["unknown device", "hip:N"])


def test_a_driver_that_is_too_old():
    assert "too old" in refused("cuda:0:64M", words=["11.3", "11.4"], FAKECUDA_VERSION=11030)


@pytest.mark.parametrize("function,error", [
    ("cuInit", 100), ("cuInit", 2), ("cuDeviceGetCount", 304), ("cuDeviceGet", 304),
    ("cuDeviceGetUuid", 304), ("cuDeviceGetName", 304), ("cuDeviceTotalMem", 304),
    ("cuMemGetAllocationGranularity", 304)])
def test_a_driver_that_fails(function, error):
    for devices in (["cuda:0:64M"], ["host:8M", "cuda:all:64M"]):
        line = refused(*devices, FAKECUDA_FAIL=f"{function}:*:{error}")
        assert CUDA_ERRORS[error] in line


def test_no_gpu_at_all():
    assert "CUDA_ERROR_NO_DEVICE" in refused("cuda:0:64M", CUDA_VISIBLE_DEVICES="-1")
    assert "CUDA_ERROR_NO_DEVICE" in refused("cuda:all:64M", FAKECUDA_DEVICES=0)


def test_a_driver_that_is_not_ready_yet(daemon_factory):
    """As at boot: tried again each second, with a line in the log."""
    daemon = daemon_factory(env={"FAKECUDA_FAIL": "cuInit:1:802"})
    assert "waiting for the CUDA driver" in daemon.stderr()
    assert daemon.connect().put("a", b"x")


def test_hello_and_the_names_of_devices(daemon_factory):
    daemon = daemon_factory(device=["cuda:1:64M", "host:8M"])
    peer = daemon.connect()
    gpu, host = peer.call("hello", protocol=1)["devices"]
    assert gpu["id"] == gpu["uuid"] == UUIDS[1] and gpu["default"] and not host["default"]
    for name in (None, "cuda:1", UUIDS[1]):
        params = {"device": name} if name else {}
        made = peer.create("a", bytes_layout(1), **params)
        assert made["object"]["device"] == UUIDS[1] and made["object"]["tier"] == "device"
        (segment,) = made["segments"] or [None]
        if segment:
            assert segment["device"] == UUIDS[1] and segment["handle"]["kind"] == "cuda_fd"
        peer.call("release", lease=made["lease"])
        peer.unmap(made["object"]["layout"]["data"]["segment"])
    made = peer.create("h", bytes_layout(1), device="host")
    assert made["object"]["device"] == "host" and made["object"]["tier"] == "device"
    for name in ("cuda:0", UUIDS[0], UUIDS[1][:-1], "cuda:01", "cuda", ""):
        error = peer.error("invalid", "create", name="b", layout=bytes_layout(1), device=name)
        assert error.message.startswith("params.device: "), error.message


def test_objects_on_two(daemon_factory, gpu):
    daemon = daemon_factory(device=["cuda:0:32M", "cuda:1:48M", "host:8M"])
    peer, reader = daemon.connect(), daemon.connect()
    for device in ("cuda:0", "cuda:1", "host"):
        peer.put(device.replace(":", ""), device.encode() * 3, device=device)
    for device in ("cuda:0", "cuda:1", "host"):
        opened = reader.open_object(device.replace(":", ""))
        assert opened.read() == device.encode() * 3
        assert opened.object["device"] == {"cuda:0": UUIDS[0], "cuda:1": UUIDS[1]}.get(device, "host")
    assert gpu.used(0) == gpu.used(1) == 2 * MIB
    peer.create_object("big", bytes_layout(40 * MIB), device="cuda:1")
    assert gpu.used(1) == 42 * MIB and gpu.used(0) == 2 * MIB
    error = peer.error("no_space", "create", name="too big", layout=bytes_layout(40 * MIB),
                       device="cuda:0")
    assert UUIDS[0] in error.message
    stats = {d["id"]: d for d in peer.call("stats")["devices"]}
    assert stats[UUIDS[1]]["objects"] == 2 and stats[UUIDS[0]]["objects"] == 1
    peer.call("alias", name="small", of="big", slice={"offset": 0, "length": 5})
    assert peer.call("stat", name="small")["object"]["device"] == UUIDS[1]
    reader.close()
    peer.call("delete", names=["cuda0", "cuda1", "host", "big", "small"])
    peer.unmap()
    assert peer.call("trim", device="cuda:1")["freed"] >= 40 * MIB
    peer.wait_for_stats(lambda s: s["devices"][1]["segments"] == 0)
    assert gpu.used(1) == 0 and gpu.used(0) == 2 * MIB


def test_the_driver_is_not_touched_for_the_host(directory):
    trace = f"{directory}/trace"
    done = run("--probe", "--device", "host:8M", FAKECUDA_TRACE=trace)
    assert done.returncode == 0 and not os.path.exists(trace)
