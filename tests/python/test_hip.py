"""A GPU of AMD's, on the driver of tests/fakecuda: an object of it, as other libraries see it."""

import pytest
from conftest import FAKE_GPU, fake_only, with_gpus

pytestmark = [fake_only, pytest.mark.skipif(not (FAKE_GPU / "libamdhip64.so").exists(), reason="needs tests/fakecuda")]


@pytest.fixture
def gpu():
    with with_gpus("hip:0:64M", "host:64M") as daemon:
        yield daemon


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
