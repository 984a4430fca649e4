"""A GPU of AMD's, on the driver of tests/fakecuda: an object of it, as other libraries see it."""

import os
import shutil
import tempfile

import pytest
from conftest import FAKE_GPU, Daemon, fake_only, needs_numpy

pytestmark = [fake_only, pytest.mark.skipif(not (FAKE_GPU / "libamdhip64.so").exists(), reason="needs tests/fakecuda")]


@pytest.fixture
def gpu():
    directory = tempfile.mkdtemp(prefix="gpubuf-py-hip-")
    os.chmod(directory, 0o755)
    devices = tempfile.mkdtemp(prefix="gpubuf-gpu-", dir="/dev/shm")
    env = {"LD_LIBRARY_PATH": str(FAKE_GPU), "FAKECUDA_DIR": devices}
    daemon = Daemon(directory, device=["hip:0:64M", "host:64M"], env=env)
    daemon.client_env = env
    try:
        yield daemon
        daemon.stop()
    finally:
        daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(devices, ignore_errors=True)


@needs_numpy
def test_objects(gpu, gpu_run):
    gpu_run(
        """
        values = np.arange(12, dtype="f4").reshape(3, 4)
        client.put("a", values, device="hip:0")
        a = client["a"]
        assert a.device.startswith("HIP-") and a.__dlpack_device__() == (10, 0), a.device
        assert "on hip:0" in repr(a) and a.__cuda_array_interface__["shape"] == (3, 4)
        assert (a.copy_to_host() == values).all() and (a[1:].copy_to_host() == values[1:]).all()
        client.put("c", a, device="host")  # by what says that it is on ROCm
        assert (client["c"].to_numpy() == values).all()
        client.put("n", [1, 2, None], device="hip:0")
        assert client["n"].null_count == 1 and len(client["n"]) == 3
        """
    )
