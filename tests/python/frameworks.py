#!/usr/bin/env python3
"""gpubufd among the libraries that it is for: CuPy, numba, PyTorch, JAX, pyarrow, pandas, cuda.core.

    tests/python/frameworks.py --daemon build/bin/gpubufd [--device cuda:0] [--only WORD]

Needs the package gpubufd (installed, or on PYTHONPATH) and no pytest. Without --device, or with
"--device host", it is about the host. A check whose library is missing is skipped; one line for each, and
at the end one that counts them.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
import traceback

CHECKS = []


class Skip(Exception):
    """The check cannot be made here; the text says why."""


def check(title, on="both"):
    """Adds a check, a function of (client, device); `on`: "host", "gpu" or "both"."""

    def add(function):
        CHECKS.append((title, on, function))
        return function

    return add


def mend_numba():
    """numba 0.68 overloads a function that NumPy 2.5 has no more."""
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack


def need(name):
    """A module, or Skip."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(f"{name} is not here: {error}") from None


def equal(found, expected):
    if list(found) != list(expected):
        raise AssertionError(f"found {list(found)[:10]}, expected {list(expected)[:10]}")


def same_memory(pointer, held):
    if pointer != held.values.pointer:
        raise AssertionError(f"it is at {pointer:#x}, the column at {held.values.pointer:#x}: a copy")


def table(client, device, nulls=False):
    """Ten rows, published anew."""
    third = [None if nulls and i == 3 else i * 1.5 for i in range(10)]
    client.put(
        "t", {"i": list(range(10)), "f": third, "s": [f"s{i}" for i in range(10)]}, device=device,
        replace=True,
    )
    return client.get("t")


# ---- PyTorch ----


@check("PyTorch reads a column in place, by DLPack, and keeps the lease")
def torch_reads(client, device):
    torch = need("torch")
    column = table(client, device)["i"][2:6]
    tensor = column.to_torch()
    equal(tensor.cpu().tolist(), [2, 3, 4, 5])
    same_memory(tensor.data_ptr(), column)
    del column
    assert client.leases("t"), "the lease ended under the tensor"
    equal((tensor * 2).cpu().tolist(), [4, 6, 8, 10])
    del tensor
    assert not client.leases("t"), "the lease stayed"
    assert torch.__version__


@check("PyTorch tensors are put: strided, bfloat16, 0-d")
def torch_puts(client, device):
    torch = need("torch")
    place = "cuda" if device != "host" else "cpu"
    base = torch.arange(24, device=place, dtype=torch.float32).reshape(4, 6)
    client.put("a", base[:, ::2], device=device)
    equal(client["a"].copy_to_host().ravel(), base[:, ::2].cpu().numpy().ravel())
    client.put("b", torch.ones(3, dtype=torch.bfloat16, device=place), device=device)
    assert client["b"].dtype == "bfloat16"
    equal(client["b"].to_torch().float().cpu().tolist(), [1, 1, 1])
    client.put("c", torch.tensor(5, device=place), device=device)
    assert client["c"].shape == ()


@check("PyTorch on a stream of its own: what is put is what the stream makes", on="gpu")
def torch_stream(client, device):
    torch = need("torch")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(1 << 24, device="cuda")
        for _ in range(200):
            tensor += 1
        client.put("a", tensor, stream=stream.cuda_stream, device=device)
    got = client["a"].to_torch()
    assert float(got.min()) == float(got.max()) == 200.0


# ---- CuPy ----


@check("CuPy reads a column in place, by __cuda_array_interface__ and by DLPack", on="gpu")
def cupy_reads(client, device):
    cupy = need("cupy")
    column = table(client, device)["f"][1:]
    for array in (column.to_cupy(), cupy.from_dlpack(column), cupy.asarray(column)):
        equal(array.get(), [i * 1.5 for i in range(1, 10)])
        same_memory(array.data.ptr, column)
    del column
    assert client.leases("t")
    assert float(array.sum()) == 67.5
    del array
    assert not client.leases("t"), "the lease stayed"


@check("CuPy arrays and a dict of them are put; what is under a mask is refused", on="gpu")
def cupy_puts(client, device):
    cupy = need("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.arange(1000, dtype="f4").reshape(10, 100) * 2
        client.put("a", values, stream=stream.ptr)
        client.put("b", values.T, stream=stream.ptr)
    equal(client["a"].copy_to_host().ravel(), [2 * i for i in range(1000)])
    equal(client["b"].copy_to_host().ravel(), values.T.get().ravel())
    client.put("t", {"x": cupy.arange(5), "y": cupy.arange(5.0)}, replace=True)
    equal(client["t"]["y"].to_cupy().get(), range(5))


@check("CuPy's own memory is shared without a copy", on="gpu")
def cupy_shares(client, device):
    cupy = need("cupy")
    mine = cupy.arange(1 << 20)
    client.share_mine("mine", mine)
    got = client["mine"]
    equal(got[5:8].copy_to_host(), [5, 6, 7])
    mine[:] = 7
    cupy.cuda.Device().synchronize()
    equal(got[5:8].copy_to_host(), [7, 7, 7])
    got.release()
    client.delete("mine")


@check("a ufunc over a column takes no longer than over an array of CuPy's own", on="gpu")
def cupy_speed(client, device):
    cupy = need("cupy")
    own = cupy.random.random(1 << 26, dtype="f4")
    client.put("a", own)
    column = client["a"].to_cupy()
    out = cupy.empty_like(own)

    def measure(array):
        best = 1e9
        for _ in range(30):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            cupy.multiply(array, 2, out=out)
            end.record()
            end.synchronize()
            best = min(best, cupy.cuda.get_elapsed_time(begin, end))
        return best

    measure(own)
    ratio = measure(column) / measure(own)
    print(f"    ratio {ratio:.4f}")
    assert ratio <= 1.02, ratio


# ---- numba ----


@check("a numba kernel takes a column", on="gpu")
def numba_kernel(client, device):
    need("numpy")
    mend_numba()
    numba_cuda = need("numba.cuda")

    @numba_cuda.jit
    def double(source, target):
        i = numba_cuda.grid(1)
        if i < source.size:
            target[i] = source[i] * 2

    column = table(client, device)["i"]
    out = numba_cuda.device_array(10, "i8")
    double[1, 32](column, out)
    equal(out.copy_to_host(), range(0, 20, 2))
    same_memory(column.to_numba().device_ctypes_pointer.value, column)
    client.put("b", numba_cuda.to_device(column.copy_to_host()))
    equal(client["b"].copy_to_host(), range(10))


# ---- JAX ----


@check("JAX reads a column in place")
def jax_reads(client, device):
    jax = need("jax")
    jax.config.update("jax_enable_x64", True)
    if device != "host" and jax.default_backend() != "gpu":
        raise Skip("this JAX has no GPU")
    column = table(client, device)["i"]
    array = column.to_jax()
    equal(array.tolist(), range(10))
    client.put("again", array + 1, device=device)
    equal(client["again"].copy_to_host(), range(1, 11))


# ---- pyarrow ----


@check("pyarrow takes a table in place, and gives it back", on="host")
def pyarrow_host(client, device):
    pa = need("pyarrow")
    published = table(client, device, nulls=True)
    got = published.to_pyarrow()
    equal(got.column("f").to_pylist(), published["f"].tolist())
    equal(got.column("s").to_pylist(), published["s"].tolist())
    same_memory(got.column("i").chunk(0).buffers()[1].address, published["i"])
    for value in (got, got.to_batches(), got.to_batches(max_chunksize=3), got.to_reader(4),
                  got.to_batches()[0], pa.concat_tables([got.slice(0, 5), got.slice(5)])):
        client.put("again", value, replace=True)
        again = client["again"]
        assert type(again).__name__ == "Table", type(again)
        equal(again.tolist(), published.tolist())
    types = {
        "d": pa.array([1, None], pa.decimal128(10, 2)), "l": pa.array([[1], None]),
        "t": pa.array([1, None], pa.timestamp("us", "Europe/Vienna")),
        "c": pa.array(["a", "b"]).dictionary_encode(), "b": pa.array([True, None]),
        "ls": pa.array(["x", None], pa.large_string()), "st": pa.array([{"a": 1}, None]),
        "fl": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), "n": pa.nulls(2),
        "w": pa.array([b"ab", None], pa.binary(2)), "t32": pa.array([1, None], pa.time32("s")),
    }
    for name, array in types.items():
        client.put(name, array, replace=True)
        back = client[name].to_pyarrow()
        assert back.equals(array) and back.type == array.type, (name, back, array)
        chunks = pa.chunked_array([array, array.slice(1)])
        client.put(name, chunks, replace=True)
        equal(client[name].to_pyarrow().to_pylist(), chunks.to_pylist())


@check("pyarrow takes a table on a GPU by its device capsules", on="gpu")
def pyarrow_gpu(client, device):
    pa = need("pyarrow")
    need("pyarrow.cuda")
    column = table(client, device)["i"]
    array = pa.array(column)
    equal(array.copy_to(pa.default_cpu_memory_manager()).to_pylist(), range(10))
    assert array.buffers()[1].address == column.data.pointer


@check("polars takes a table", on="host")
def polars_reads(client, device):
    polars = need("polars")
    published = table(client, device, nulls=True)
    frame = polars.DataFrame(published)
    equal(frame["i"].to_list(), range(10))
    client.put("again", frame, replace=True)
    equal(client["again"]["i"].tolist(), range(10))


@check("pandas: a frame goes in and comes out", on="host")
def pandas_round_trip(client, device):
    pandas = need("pandas")
    frame = table(client, device, nulls=True).to_pandas()
    client.put("again", frame, replace=True)
    pandas.testing.assert_frame_equal(client["again"].to_pandas(), frame)


# ---- cuDF, cuda.core ----


@check("cuDF takes a column in place, and its slices are put", on="gpu")
def cudf_both(client, device):
    cudf = need("cudf")
    column = table(client, device)["i"]
    series = column.to_cudf()
    equal(series.to_pandas(), range(10))
    client.put("slice", series[3:7])
    equal(client["slice"].copy_to_host(), [3, 4, 5, 6])
    assert cudf.__version__


@check("cuda.core: a stream of its is taken, and memory of a column is viewed", on="gpu")
def cuda_core(client, device):
    core = need("cuda.core.experimental" if _missing("cuda.core", "Device") else "cuda.core")
    dev = core.Device(0)
    dev.set_current()
    stream = dev.create_stream()
    column = table(client, device)["i"]
    view = core.utils.StridedMemoryView(column, stream_ptr=int(stream.handle))
    assert view.ptr == column.values.pointer and view.readonly and view.is_device_accessible


def _missing(module, name):
    try:
        return not hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


# ---- between processes ----


@check("what CuPy or PyTorch publishes in one process another reads", on="both")
def two_processes(client, device):
    torch = need("torch")
    place = "cuda" if device != "host" else "cpu"
    client.put("a", torch.arange(1000, device=place), device=device)
    code = "import gpubufd, torch; print(int(gpubufd.connect()['a'].to_torch().sum()))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "499500", out.stdout + out.stderr


def run_all(client, device, only=""):
    """(passed, failed, skipped)"""
    counts = [0, 0, 0]
    for title, on, function in CHECKS:
        if on not in ("both", "host" if device == "host" else "gpu") or only not in function.__name__:
            continue
        begin = time.monotonic()
        try:
            function(client, device)
            state, which = "ok", 0
        except Skip as why:
            state, which = f"skipped ({why})", 2
        except Exception:
            state, which = "FAILED\n" + traceback.format_exc(), 1
        counts[which] += 1
        print(f"{title}: {state} ({time.monotonic() - begin:.1f} s)", flush=True)
        client.delete(*(info.name for info in client.list()), missing_ok=True)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", default="gpubufd", help="the daemon's program")
    parser.add_argument("--device", default="host")
    parser.add_argument("--only", default="")
    parser.add_argument("--package", help="a directory to import gpubufd from")
    options = parser.parse_args()
    if options.package:
        sys.path.insert(0, os.path.abspath(options.package))
        os.environ["PYTHONPATH"] = os.path.abspath(options.package)
    import gpubufd

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "s")
        daemon = subprocess.Popen(
            [options.daemon, "--socket", path, "--device", options.device, "--log-level", "error"]
        )
        os.environ["GPUBUFD_SOCKET"] = path
        try:
            end = time.monotonic() + 60
            while not os.path.exists(path) and daemon.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            with gpubufd.connect(timeout=30) as client:
                print(f"gpubufd {gpubufd.__version__}, Python {sys.version.split()[0]}")
                passed, failed, skipped = run_all(client, options.device.split(":64")[0], options.only)
        finally:
            daemon.terminate()
            daemon.wait(60)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
