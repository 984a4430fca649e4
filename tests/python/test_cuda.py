"""GPUs: on the driver of tests/fakecuda, each test in a process of its own (its device pointers are
addresses that the tests may read); on a real GPU with GPUBUF_TEST_GPU=real. See conftest.gpu_run."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import GPU_HEAD, REAL_GPU, environment, fake_only


def test_put_from_the_host(gpu_run):
    gpu_run(
        """
        values = np.arange(12, dtype="f4").reshape(3, 4)
        client.put("a", values, device="cuda:0")
        a = client["a"]
        assert a.device.startswith("GPU-") and a._ordinal == 0, (a.device, a._ordinal)
        assert a.device == cuda.Device(0).uuid
        assert (a.copy_to_host() == values).all()
        assert (a[1:].copy_to_host() == values[1:]).all()
        assert "on cuda:0" in repr(a) and "on cuda:0" in a._repr_html_()
        """
    )


def test_cuda_array_interface(gpu_run):
    gpu_run(
        """
        client.put("a", np.arange(12, dtype="f4").reshape(3, 4), device="cuda:0")
        a = client["a"][1:]
        cai = a.__cuda_array_interface__
        assert cai["version"] == 3 and cai["shape"] == (2, 4) and cai["typestr"] == "<f4"
        assert cai["strides"] is None and cai["stream"] is None and "mask" not in cai
        assert cai["data"] == (a.buffers.values.pointer, True)
        assert cuda.pointer_device(cai["data"][0]) == 0
        client.put("host", np.arange(3), device="host")
        assert not hasattr(client["host"], "__cuda_array_interface__")
        assert client["host"].sum is not None and not hasattr(a, "sum")
        client.put("empty", np.zeros((0, 3)), device="cuda:0")
        assert client["empty"].__cuda_array_interface__["data"][0] == 0
        client.put("s", ["a", "b"], device="cuda:0")
        assert not hasattr(client["s"], "__cuda_array_interface__")
        """
    )


def test_dlpack(gpu_run):
    gpu_run(
        """
        client.put("a", np.arange(6, dtype="i4"), device="cuda:0")
        a = client["a"]
        assert a.__dlpack_device__() == (2, 0)
        for stream in (None, -1, 1, 2):
            assert "dltensor_versioned" in repr(a.__dlpack__(stream=stream, max_version=(1, 0)))
        assert "ambiguous" in raises(BufferError, lambda: a.__dlpack__(stream=0))
        raises(BufferError, lambda: a.__dlpack__(dl_device=(2, 7)))
        raises(BufferError, lambda: a.__dlpack__(copy=True))

        class OnHost:
            def __dlpack__(self, **keywords):
                return a.__dlpack__(dl_device=(1, 0))
            def __dlpack_device__(self):
                return 1, 0

        assert np.from_dlpack(OnHost()).tolist() == [0, 1, 2, 3, 4, 5]
        client.put("again", a)  # device to device
        assert client["again"].device == a.device
        assert client["again"].copy_to_host().tolist() == [0, 1, 2, 3, 4, 5]
        """
    )


def test_nothing_of_the_host_is_offered(gpu_run):
    gpu_run(
        """
        client.put("t", {"x": [1, None, 3], "s": ["a", "b", "c"]}, device="cuda:0")
        t = client["t"]
        for name in ("__arrow_c_array__", "__arrow_c_stream__"):
            assert not hasattr(t, name) and not hasattr(t["x"], name)
        for work in (lambda: np.asarray(t["x"]), lambda: t["x"].tolist(), lambda: t["x"].to_numpy(),
                     lambda: t["x"] == 1, lambda: t.to_pandas()):
            assert "GPU" in raises(TypeError, work)
        raises(BufferError, lambda: memoryview(t["x"].buffers.values))
        assert [t["x"][i] for i in (0, 1, -1)] == [1, None, 3] and t["s"][1] == "b"
        assert t["x"].null_count == 1 and t["x"][1:].null_count == -1
        assert t["x"].copy_to_host()[2] == 3
        raises(BufferError, lambda: t["x"].__dlpack__())
        assert t["x"].buffers.validity.bits.__cuda_array_interface__["typestr"] == "|u1"
        assert t["s"].copy_to_host().tolist() == ["a", "b", "c"]
        assert "<gpubufd.Table 't': 3 rows × 2 columns, on cuda:0>" in repr(t) and "null" in repr(t)
        assert "'b'" in repr(t) and "'b'" in repr(t["s"]) and "<svg" in t._repr_html_()
        """
    )


def test_arrow_device(gpu_run):
    gpu_run(
        """
        client.put("t", {"x": np.arange(3), "y": np.arange(3.0)}, device="cuda:0")
        schema, array = client["t"][1:].__arrow_c_device_array__()
        got = arrowc.struct_of(array, arrowc.DeviceArray)
        assert (got.device_type, got.device_id) == (2, 0)
        head = arrowc.struct_of(schema, arrowc.Schema)
        assert head.format == b"+s" and head.children[1][0].format == b"g"
        x = got.array.children[0][0]
        assert x.buffers[1] + 8 * (x.offset + got.array.offset) == client["t"]["x"].buffers.values.pointer + 8
        del array
        assert len(client.leases("t")) == 0
        schema = arrowc.struct_of(client["t"].__arrow_c_schema__(), arrowc.Schema)
        """
    )


def test_strided_gpu_arrays(gpu_run):
    gpu_run(
        """
        mine = cuda.to_device(np.arange(24, dtype="i4").reshape(4, 6))

        class Sliced:
            __cuda_array_interface__ = dict(mine.__cuda_array_interface__, shape=(4, 3), strides=(24, 8))

        client.put("a", Sliced())
        assert (client["a"].copy_to_host() == np.arange(24).reshape(4, 6)[:, ::2]).all()
        assert "contiguous" in raises(ValueError, lambda: client.put("t", {"x": type("S", (), {
            "__cuda_array_interface__": dict(mine.__cuda_array_interface__, shape=(4,), strides=(24,))})()}))
        assert "ambiguous" in raises(ValueError, lambda: client.put("x", type("S", (), {
            "__cuda_array_interface__": dict(mine.__cuda_array_interface__, stream=0)})()))
        """
    )


def test_create_write_seal_on_a_stream(gpu_run):
    gpu_run(
        """
        stream = cuda.Stream()
        staging = cuda.pinned(1000, "f8")
        staging[:] = np.arange(1000)
        with client.create("a", "float64", 1000, device="cuda:0") as a:
            assert not a.__cuda_array_interface__["data"][1]
            a.write(staging, stream=stream.handle)
            a.seal(stream=stream.handle)
        b = client["a"]
        b.wait_ready(stream.handle)
        got = cuda.pinned(1000, "f8")
        cuda.copy(got, b, stream=stream)
        b.release_on(stream.handle)
        stream.synchronize()
        assert (got == np.arange(1000)).all()
        """
    )


def test_share_mine_and_versions(gpu_run):
    """The client holds a value until its name goes, and not only until one of the name's versions does."""
    gpu_run(
        """
        import weakref

        client.put("mine", np.zeros(4), keep=1)
        mine = cuda.to_device(np.arange(1 << 19, dtype="f4"))
        holds = weakref.ref(mine)
        shared = client.share_mine("mine", mine, replace=True)
        client.put("mine", np.ones(4), replace=True, label="after", keep=1)
        del mine
        client.delete("mine", version=shared.version)
        assert holds() is not None  # nobody knows which version of the name it was
        client.delete("mine", label="after")
        assert holds() is None and "mine" not in client
        """
    )


def test_module_cuda(gpu_run):
    gpu_run(
        """
        device = cuda.devices()[0]
        free, total = device.memory_info()
        assert 0 < free <= total and device.name and cuda.is_available()
        assert cuda.pointer_device(np.zeros(1).ctypes.data) is None
        stream, other = cuda.Stream(), cuda.Stream()
        values = cuda.pinned((4, 5), "i4")
        values[:] = 3
        there = cuda.to_device(values, stream=stream)
        event = stream.record()
        other.wait(event)
        copy = cuda.empty((4, 5), "i4")
        cuda.copy(copy, there, stream=other)
        back = copy.copy_to_host(stream=other)
        other.synchronize()
        assert (back == 3).all() and event.done() and other.done()
        event.synchronize()
        device.synchronize()
        assert "bytes" in raises(ValueError, lambda: cuda.copy(copy, np.zeros(3)))
        assert "read-only" in raises(ValueError, lambda: cuda.copy(bytes(80), there))
        error = None
        try:
            cuda.Device(99)
        except cuda.CudaError as caught:
            error = caught
        assert error.name == "CUDA_ERROR_INVALID_DEVICE" and isinstance(error, gpubufd.DeviceError)
        assert error.kind == "device" and "cuDeviceGet" in str(error)
        """
    )


def test_events_tell_the_time(gpu_run):
    gpu_run(
        """
        stream = cuda.Stream()
        begin = stream.record(timing=True)
        there = cuda.to_device(cuda.pinned(1 << 20, "u1"), stream=stream)
        end = cuda.Event(timing=True)
        end.record(stream)
        end.synchronize()
        assert 0 < end.seconds_since(begin) < 10
        with cuda.Event() as plain:
            plain.record()
            assert "CUDA_ERROR_INVALID_HANDLE" in raises(cuda.CudaError, lambda: end.seconds_since(plain))
        """
    )


@fake_only
def test_everything_is_given_back(gpu_run, tmp_path):
    """Each thing of the driver's with its last reference; pinned memory with the last array over it."""
    trace = tmp_path / "trace"
    gpu_run(
        """
        pinned = cuda.pinned((10, 10), "f4")
        part = pinned[3:, ::2]
        del pinned
        part[:] = 1
        stream, event, memory = cuda.Stream(), cuda.Event(), cuda.empty(100)
        theirs = cuda.Stream.of(stream)
        del part, event, memory, stream
        gc.collect()
        """,
        FAKECUDA_TRACE=str(trace),
    )
    calls = [line.split()[1] for line in trace.read_text().splitlines()]
    for make, free in (("cuMemHostAlloc", "cuMemFreeHost"), ("cuStreamCreate", "cuStreamDestroy"),
                       ("cuEventCreate", "cuEventDestroy"), ("cuMemAlloc", "cuMemFree")):
        assert calls.count(make) == calls.count(free) >= 1, (make, calls.count(make), calls.count(free))


@fake_only
def test_each_error_has_its_cuda_name(gpu_run):
    """A refusal of the driver is told with its name, its number, and the function."""
    for function, work in (("cuMemAlloc", "cuda.empty(10)"), ("cuStreamCreate", "cuda.Stream()"),
                           ("cuEventCreate", "cuda.Event()"), ("cuMemHostAlloc", "cuda.pinned(10)"),
                           ("cuMemGetInfo", "cuda.Device(0).memory_info()"),
                           ("cuMemcpyHtoDAsync", "cuda.to_device(np.arange(3))"),
                           ("cuStreamSynchronize", "cuda.Stream.of(None).synchronize()")):
        gpu_run(
            f"""
            error = None
            try:
                {work}
            except cuda.CudaError as caught:
                error = caught
            assert error and error.name == "CUDA_ERROR_OUT_OF_MEMORY" and error.status == 2, error
            assert {function!r} in str(error) and error.kind == "device" and isinstance(error, gpubufd.DeviceError)
            """,
            FAKECUDA_FAIL=f"{function}:*:2",
        )


def test_deferred_cleanup(gpu_run):
    gpu_run(
        """
        def used():
            free, total = cuda.Device(0).memory_info()
            return total - free
        keep = cuda.empty(1)
        before = used()
        with cuda.defer_cleanup():
            array = cuda.empty(8 << 20, "u1")
            with cuda.defer_cleanup():
                del array
            gc.collect()
            assert used() >= before + (8 << 20)
        assert used() == before
        with cuda.empty(8 << 20, "u1"):
            assert used() > before
        assert used() == before
        """
    )


def test_at_exit_and_in_a_child(gpu_run):
    gpu_run(
        """
        import os
        client.put("a", np.arange(3), device="cuda:0")
        a = client["a"]
        values, stream, mine = a.buffers.values, cuda.Stream(), cuda.to_device(np.arange(3))
        pid = os.fork()
        if pid == 0:
            raises(gpubufd.Forked, lambda: client["a"])
            raises(gpubufd.Forked, cuda.devices)
            del a, values, stream, mine
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        import builtins
        builtins.keep = (a, values, stream, mine, a.__dlpack__())
        client.delete("a")
        """
    )


def test_without_a_driver():
    program = GPU_HEAD.replace("client = gpubufd.connect()", "") + textwrap.dedent(
        """
        assert not cuda.is_available()
        assert "driver" in raises(gpubufd.Unsupported, cuda.devices)
        """
    )
    if REAL_GPU:
        pytest.skip("there is one")
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True, timeout=60)


def test_views_of_a_device_array(gpu_run):
    """Each is what NumPy makes of the same key, and keeps the memory that it is of."""
    gpu_run(
        """
        values = np.arange(24, dtype="f4").reshape(2, 3, 4)
        for order in "CF":
            here = np.asarray(values, order=order)
            array = cuda.to_device(here)
            assert array.strides == here.strides and array.size == 24 and array.ndim == 3 and len(array) == 2
            assert (array.is_c_contiguous(), array.is_f_contiguous()) == (order == "C", order == "F")
            assert array.ptr == array.__cuda_array_interface__["data"][0]
            for key in (1, -1, (0, 2, 3), slice(1, None), (..., slice(None, None, -2)), (slice(None), 1), None,
                        (slice(None, None, -1), ..., 0), slice(0, 0), (np.int64(1), None, slice(3, 0, -1))):
                view, expected = array[key], here[key]
                got = view.copy_to_host()
                assert view.shape == expected.shape and got.dtype == here.dtype and (got == expected).all(), key
                given = np.empty(expected.shape, "f4")
                assert view.copy_to_host(given) is given and (given == expected).all(), key
            assert (array.ravel(order).copy_to_host() == here.ravel(order)).all()
            assert (array.reshape(4, -1, order=order).copy_to_host() == here.reshape(4, -1, order=order)).all()
            assert (array.T.copy_to_host() == here.T).all() and array.T.is_f_contiguous() == (order == "C")
        part = cuda.to_device(values)[1, ::2]
        assert (part.copy_to_host() == values[1, ::2]).all()  # the array itself has gone
        part.close()
        assert (part.copy_to_host() == values[1, ::2]).all()
        client.put("part", part)
        assert (client["part"].copy_to_host() == values[1, ::2]).all()

        array = cuda.to_device(values)
        raises(IndexError, lambda: array[2])
        for key in ([0, 1], np.array([True, False]), True, 1.5, "a"):
            assert "expected a number, a slice" in raises(TypeError, lambda: array[key]), key
        assert "not contiguous" in raises(ValueError, lambda: array[:, ::2].ravel())
        assert "not contiguous" in raises(ValueError, lambda: array.reshape(6, 4, order="F"))
        assert "has gaps" in raises(ValueError, lambda: array[:, ::2].copy_to_host(stream=cuda.Stream()))
        assert "ary is float64 (3,)" in raises(ValueError, lambda: array.copy_to_host(np.empty(3)))
        assert "order is 'A'" in raises(ValueError, lambda: cuda.empty(3, order="A"))
        """
    )


def test_arrays_like_others(gpu_run):
    gpu_run(
        """
        for order in "CF":
            model = cuda.empty((2, 3), "i2", order=order)
            assert model.strides == np.empty((2, 3), "i2", order).strides
            for of in (model, np.empty((2, 3), "i2", order)):
                made = cuda.zeros_like(of)
                assert (made.shape, made.dtype, made.strides) == (model.shape, model.dtype, model.strides)
                assert not made.copy_to_host().any()
                assert cuda.empty_like(of).strides == model.strides
            model.copy_to_device(np.arange(6, dtype="i2").reshape(2, 3))
            assert model.get().tolist() == [[0, 1, 2], [3, 4, 5]]
            into = cuda.empty((2, 3), "i2", order=order)
            stream = cuda.Stream()
            with stream.auto_synchronize() as same:
                assert same is stream
                host = np.asarray([[6, 7, 8], [9, 10, 11]], "i2", order=order)
                assert cuda.to_device(host, to=into, stream=stream) is into
            assert (into.copy_to_host() == host).all()
        assert "to is int16" in raises(ValueError, lambda: cuda.to_device(np.arange(3), to=into))
        assert cuda.zeros((0, 3)).copy_to_host().shape == (0, 3)
        assert cuda.zeros(()).copy_to_host().tolist() == 0.0
        """
    )


def test_arrays_that_exist_are_pinned_for_a_block(gpu_run):
    gpu_run(
        """
        values, other = np.arange(100_000.0), np.ones((300, 300), order="F")
        stream = cuda.Stream()
        with cuda.pinned(values, other):
            assert "ALREADY_REGISTERED" in raises(cuda.CudaError, lambda: cuda.pinned(values).__enter__())
            array = cuda.to_device(values, stream=stream)
            stream.synchronize()
        assert (array.copy_to_host() == values).all()
        with cuda.pinned(values):  # not any more
            pass
        assert "has gaps" in raises(ValueError, lambda: cuda.pinned(other, values[::2]).__enter__())
        with cuda.pinned(other):
            pass
        assert cuda.pinned((3, 2), "f4").shape == (3, 2) and cuda.pinned(4).dtype == np.float64
        assert "shape" in raises(TypeError, cuda.pinned)
        """
    )
