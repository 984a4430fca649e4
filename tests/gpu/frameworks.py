#!/usr/bin/env python3
"""gpubufd among the libraries that it is for, on a GPU: CuPy, numba, PyTorch, JAX, cuda.core. On the host tests/interop has them.

    tests/gpu/frameworks.py --daemon build/bin/gpubufd [--device cuda:0] [--only WORD]

Needs the package gpubufd (installed, or on PYTHONPATH) and no pytest. A check whose library is missing is skipped; one line
for each, and at the end one that counts them.
"""

import argparse
import contextlib
import faulthandler
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback

from common import Skip, end_with_parent, mend_numba, need, serving

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CHECKS = []
LIMIT, STARTING = 240, 300  # seconds that one check may take, and that a process may until its first begins


def check(title):
    """Adds a check, a function of (client, device)."""

    def add(function):
        CHECKS.append((title, function))
        return function

    return add


def need_numba():
    """numba.cuda with the compiler that it wants, or Skip: Debian's package comes without one."""
    mend_numba()
    numba_cuda = need("numba.cuda")
    if not need("numba.cuda.cudadrv.nvvm").is_available():
        raise Skip("numba has no nvvm to compile with")
    return numba_cuda


def equal(found, expected):
    if list(found) != list(expected):
        raise AssertionError(f"found {list(found)[:10]}, expected {list(expected)[:10]}")


def child(code, *arguments, mended=False):
    """Output of a Python program in another process; a path runs that file. Its status 77 skips."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    if os.path.exists(code):
        command = [sys.executable, code, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as directory:
        env = dict(os.environ)
        if mended:  # see mend_numba
            with open(os.path.join(directory, "sitecustomize.py"), "w") as file:
                file.write("import numpy\nif not hasattr(numpy, 'row_stack'):\n"
                           "    numpy.row_stack = numpy.vstack\n")
            env["PYTHONPATH"] = os.pathsep.join(p for p in (directory, env.get("PYTHONPATH")) if p)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def same_memory(pointer, held):
    if pointer != held.buffers.values.pointer:
        raise AssertionError(f"it is at {pointer:#x}, the column at {held.buffers.values.pointer:#x}: a copy")


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
    base = torch.arange(24, device="cuda", dtype=torch.float32).reshape(4, 6)
    client.put("a", base[:, ::2], device=device)
    equal(client["a"].copy_to_host().ravel(), base[:, ::2].cpu().numpy().ravel())
    client.put("b", torch.ones(3, dtype=torch.bfloat16, device="cuda"), device=device)
    assert client["b"].dtype == "bfloat16"
    equal(client["b"].to_torch().float().cpu().tolist(), [1, 1, 1])
    client.put("c", torch.tensor(5, device="cuda"), device=device)
    assert client["c"].shape == ()


@check("PyTorch tensors of floats of 8 and 4 bits, both ways")
def torch_small_floats(client, device):
    torch = need("torch")
    content = torch.arange(24, device="cuda", dtype=torch.uint8).reshape(4, 6)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"):
        kind = getattr(torch, name, None)
        if kind is None:
            continue
        pair = 2 if name.endswith("_x2") else 1
        client.put("a", content.view(kind), device=device, replace=True)
        assert client["a"].shape == (4, 6 * pair)
        got = client["a"].to_torch()
        assert got.dtype == kind and got.shape == (4, 6) and got.device.type == "cuda"
        equal(got.view(torch.uint8).cpu().numpy().tobytes(), content.cpu().numpy().tobytes())
        if pair == 1:
            client.put("b", content.view(kind)[:, ::2], device=device, replace=True)
            got = client["b"].to_torch().view(torch.uint8)
            equal(got.cpu().numpy().tobytes(), content[:, ::2].cpu().numpy().tobytes())


@check("PyTorch on a stream of its own: what is put is what the stream makes")
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


def receive_expandable(queue, answers):
    """(in a process of its own) Receives tensors, and looks at them again when their sender has freed its own."""
    import torch

    torch.zeros(1, device="cuda")  # a context, which takes memory, before the sender looks at what is free
    answers.put(None)
    large, small = queue.get()
    for _ in range(2):
        answers.put([str(large.device), int(large.sum()), small.cpu().tolist()])
        queue.get()
    del large, small
    answers.put(None)


@check("PyTorch's own memory is shared without a copy, at its offset in the pool")
def torch_shares(client, device):
    torch = need("torch")
    if not torch.cuda.is_available():
        raise Skip("this PyTorch sees no GPU")
    mine = [torch.full((1000,), value, dtype=torch.uint8, device="cuda") for value in (4, 5, 6)][1]
    client.share_mine("mine", mine)
    got = client["mine"]
    equal(got[:3].copy_to_host(), [5, 5, 5])
    mine.fill_(7)
    torch.cuda.synchronize()
    equal(got[:3].copy_to_host(), [7, 7, 7])
    got.release()
    client.delete("mine")


@check("PyTorch's expandable segments: through a queue, put, and registered where one allocation has it")
def torch_expandable(client, device):
    torch = need("torch")
    if not torch.cuda.is_available():
        raise Skip("this PyTorch sees no GPU")
    print(textwrap.indent(child(
        f"""
        import os, sys
        os.environ.update(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", PYTORCH_ALLOC_CONF="expandable_segments:True")
        sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        import torch
        import frameworks, gpubufd, gpubufd.torch.multiprocessing as mp

        client, count = gpubufd.connect(), 24 << 20
        large = torch.arange(count, dtype=torch.int32, device="cuda")  # 96 MiB: over several of the segment's allocations
        small = torch.arange(5000, dtype=torch.int16, device="cuda")
        assert all(one["is_expandable"] for one in torch.cuda.memory_snapshot()), "no expandable segments"
        told = [str(large.device), count * (count - 1) // 2, list(range(5000))]

        client.put("copy", large)
        assert int(client["copy"].to_torch().sum()) == told[1]
        try:
            client.share_mine("large", large)
        except gpubufd.Unsupported as error:
            assert "put() publishes a copy" in str(error), error
            print("in several allocations:", error)
        else:
            raise AssertionError("what lies in several allocations was registered")
        try:
            client.share_mine("small", small)
        except gpubufd.Unsupported as error:  # this PyTorch makes them without a descriptor
            print("in one allocation:", error)
        else:
            assert client["small"].to_torch().cpu().tolist() == told[2]
            print("in one allocation: registered")
        client.delete("copy", "small", missing_ok=True)

        context = mp.get_context("spawn")
        queue, answers = context.SimpleQueue(), context.SimpleQueue()
        reader = context.Process(target=frameworks.receive_expandable, args=(queue, answers))
        reader.start()
        answers.get()
        queue.put([large, small])
        assert answers.get() == told, "not what was sent"
        before = torch.cuda.mem_get_info()[0]
        del large, small
        torch.cuda.empty_cache()
        freed = torch.cuda.mem_get_info()[0] - before
        assert freed >= 4 * count, f"the sender has {{4 * count - freed}} bytes yet"
        queue.put(None)
        assert answers.get() == told, "what has arrived has changed with the sender's memory"
        queue.put(None)
        answers.get()
        reader.join()
        assert reader.exitcode == 0 and not client.list(), client.list()
        print("freed by the sender:", freed >> 20, "MiB")
        """
    ).strip(), "    "))


# ---- CuPy ----


@check("CuPy reads a column in place, by __cuda_array_interface__ and by DLPack")
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


@check("CuPy arrays and a dict of them are put; what is under a mask is refused")
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


@check("CuPy's own memory is shared without a copy")
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


@check("a ufunc over a column opened in another process takes no longer than over its own array")
def cupy_speed(client, device):
    cupy = need("cupy")
    client.put("a", cupy.random.random(1 << 26, dtype="f4"), device=device)
    ratio = float(child(
        """
        import cupy, gpubufd
        client = gpubufd.connect()
        held = client["a"]
        free = cupy.cuda.runtime.memGetInfo()[0]
        column = held.to_cupy()
        assert column.data.ptr == held.buffers.values.pointer
        assert free - cupy.cuda.runtime.memGetInfo()[0] < 16 << 20, "opening took memory"
        own = column.copy()
        out = cupy.empty_like(own)

        def measure(array):
            best = 1e9
            for _ in range(50):
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                cupy.multiply(array, 2, out=out)
                end.record()
                end.synchronize()
                best = min(best, cupy.cuda.get_elapsed_time(begin, end))
            return best

        measure(own)
        print(measure(column) / measure(own))
        """
    ))
    print(f"    ratio {ratio:.4f}")
    assert ratio <= 1.02, ratio


@check("CuPy: nulls are refused, and the bitmap is at hand")
def cupy_nulls(client, device):
    cupy = need("cupy")
    column = table(client, device, nulls=True)["f"]
    for take in (column.to_cupy, column.__dlpack__):
        try:
            take()
        except BufferError as error:
            assert "nulls" in str(error)
        else:
            raise AssertionError("nulls went through")
    bits = cupy.asarray(column.buffers.validity.bits)
    valid = cupy.unpackbits(bits, bitorder="little")[: len(column)]
    equal(valid.get(), [i != 3 for i in range(10)])
    values = cupy.where(valid.astype(bool), cupy.asarray(column.buffers.values), 0)
    equal(values.get(), [0 if i == 3 else i * 1.5 for i in range(10)])


# ---- numba ----


@check("numba: slices and streams; what it made is put, strided and shared")
def numba_both_ways(client, device):
    numpy = need("numpy")
    numba_cuda = need_numba()
    stream = numba_cuda.stream()
    values = numpy.arange(60, dtype="f4").reshape(6, 10)
    made = numba_cuda.to_device(values, stream=stream)
    client.put("a", made, stream=stream, device=device)
    client.put("s", made[:, ::2], stream=stream, device=device)
    equal(client["a"].copy_to_host().ravel(), values.ravel())
    equal(client["s"].copy_to_host().ravel(), values[:, ::2].ravel())
    part = client["a"][2:4].to_numba()
    equal(part.copy_to_host().ravel(), values[2:4].ravel())
    assert client.leases("a"), "the lease ended under numba's array"
    del part
    client.share_mine("mine", made)
    equal(client["mine"].to_numba().copy_to_host().ravel(), values.ravel())
    client.delete("mine")
    client.put("t", {"x": numba_cuda.to_device(values[0]), "names": [f"n{i}" for i in range(10)]}, device=device)
    equal(client["t"]["names"].copy_to_host(), [f"n{i}" for i in range(10)])


# ---- JAX ----


@check("JAX reads a column in place")
def jax_reads(client, device):
    jax = need("jax")
    jax.config.update("jax_enable_x64", True)
    if jax.default_backend() != "gpu":
        raise Skip("this JAX has no GPU")
    column = table(client, device)["i"]
    array = column.to_jax()
    equal(array.tolist(), range(10))
    client.put("again", array + 1, device=device)
    equal(client["again"].copy_to_host(), range(1, 11))


@check("JAX: bfloat16, several axes, the lease")
def jax_more(client, device):
    jax = need("jax")
    numpy = need("numpy")
    if jax.default_backend() != "gpu":
        raise Skip("this JAX has no GPU")
    array = jax.numpy.arange(12, dtype=jax.numpy.bfloat16).reshape(3, 4)
    client.put("b", array, device=device)
    assert client["b"].dtype == "bfloat16" and client["b"].shape == (3, 4)
    client.put("f", numpy.arange(24, dtype="f4").reshape(4, 6), device=device)
    held = client["f"]
    got = held.to_jax()
    equal(got.ravel().tolist(), range(24))
    del held
    assert client.leases("f"), "the lease ended under JAX's array"


# ---- cuda.core ----


@check("cuda.core: a stream of its is taken, and memory of a column is viewed")
def cuda_core(client, device):
    core = need("cuda.core.experimental" if _missing("cuda.core", "Device") else "cuda.core")
    dev = core.Device(0)
    dev.set_current()
    stream = dev.create_stream()
    column = table(client, device)["i"]
    view = core.utils.StridedMemoryView(column, stream_ptr=int(stream.handle))
    assert view.ptr == column.buffers.values.pointer and view.readonly and view.is_device_accessible
    from gpubufd import cuda

    made = cuda.to_device([1.5, 2.5], stream=stream)
    client.put("a", made, stream=stream, device=device)
    equal(client["a"].copy_to_host(stream=None), [1.5, 2.5])
    column.wait_ready(stream)
    buffer = dev.allocate(80, stream=stream)
    stream.sync()
    client.put("b", buffer, device=device)  # DLPack of bytes
    assert client["b"].nbytes == 80
    buffer.close(stream)


def _missing(module, name):
    try:
        return not hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


# ---- examples ----


@check("the example: by hand and by gpubufd, and both times")
def example_notebook(client, device):
    need_numba()
    out = child(os.path.join(ROOT, "examples", "python", "notebook.py"), "--device", device, mended=True)
    assert "times as fast" in out
    print(textwrap.indent(out.strip(), "    "))


@check("the example: from CuPy to PyTorch")
def example_cupy_to_torch(client, device):
    out = child(os.path.join(ROOT, "examples", "python", "cupy_to_torch.py"), "--device", device)
    assert re.search(r"mean square 0\.[45]", out), out


@check("the example: an Arrow table, a kernel, and a query in another process")
def example_arrow_kernel(client, device):
    need("pyarrow")
    need_numba()
    out = child(os.path.join(ROOT, "examples", "python", "arrow_kernel.py"), "--device", device, mended=True)
    assert re.search(r"[1-9][0-9,]* flights were over an hour late", out) and "speed: float" in out, out


def run_all(client, device, chosen, progress):
    """Makes the checks of these numbers; a line of `progress` when one begins, and one when it has ended."""
    for number in chosen:
        title, function = CHECKS[number]
        print(f"{number} begins", file=progress, flush=True)
        begin = time.monotonic()
        try:
            function(client, device)
            state = "passed"
        except Skip as why:
            state, said = "skipped", f" ({why})"
        except Exception:
            state, said = "failed", "\n" + traceback.format_exc()
        words = {"passed": "ok", "skipped": "skipped", "failed": "FAILED"}[state] + ("" if state == "passed" else said)
        print(f"{title}: {words} ({time.monotonic() - begin:.1f} s)", flush=True)
        print(f"{number} {state}", file=progress, flush=True)
        client.delete(*(info.name for info in client.list()), missing_ok=True)


def supervise(chosen, path):
    """How many checks passed, failed, were skipped. They run in a process of its own; another one goes on after a check
    that ends it, or that is not done after LIMIT seconds."""
    states, left = {}, list(chosen)
    while left:
        open(path, "w").close()
        process = subprocess.Popen([sys.executable, *sys.argv, "--checks", ",".join(map(str, left)), "--progress", path],
                                   stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent)
        seen, since, ended = [], time.monotonic(), False
        while not ended:
            ended = process.poll() is not None
            with open(path) as file:
                lines = [line.split() for line in file.read().splitlines()]
            if len(lines) > len(seen):
                seen, since = lines, time.monotonic()
            late = time.monotonic() - since > (LIMIT if seen else STARTING)
            if late and not ended:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                ended = True
            time.sleep(0 if ended else 0.05)
        if not seen:
            print(f"no check began; the process ended ({process.returncode})", flush=True)
            states.update(dict.fromkeys(left, "failed"))
        states.update((int(number), state) for number, state in seen)
        first = next((number for number in left if states.get(number, "begins") == "begins"), None)
        if first is not None:
            how = f"not done after {LIMIT} s" if late else f"its process ended ({process.returncode})"
            print(f"{CHECKS[first][0]}: FAILED, {how}", flush=True)
            states[first] = "failed"
        left = [number for number in left if number not in states]
    return [sum(state == word for state in states.values()) for word in ("passed", "failed", "skipped")]


@contextlib.contextmanager
def daemon_with(program, *devices, tier=None):
    """The socket of a daemon that serves these devices; what it said is printed at its end."""
    with tempfile.TemporaryDirectory() as directory:
        path, log = os.path.join(directory, "s"), os.path.join(directory, "log")
        words = [word for device in devices for word in ("--device", device)] + (["--tier", tier] if tier else [])
        try:
            with serving(program, path, "--log-level", "error", *words, log=log):
                yield path
        finally:
            with open(log, errors="replace") as file:
                print(textwrap.indent(file.read()[-4000:], "    daemon: "), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", default="gpubufd", help="the daemon's program")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default="", help="checks whose name or title contains this")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every N-th check, beginning with the K-th")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    parser.add_argument("--package", help="a directory to import gpubufd from")
    parser.add_argument("--checks", help=argparse.SUPPRESS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.package:
        sys.path.insert(0, os.path.abspath(options.package))
        os.environ["PYTHONPATH"] = os.path.abspath(options.package)
    parts = options.device.split(":")  # without a capacity
    device = "host" if parts[0] == "host" else ":".join(parts[:2])
    part, of = map(int, options.part.split("/"))
    chosen = [number for number, (title, function) in enumerate(CHECKS) if options.only in function.__name__ + " " + title]
    chosen = chosen[part - 1::of]
    if options.list:
        print("\n".join(f"{CHECKS[number][1].__name__:28} {CHECKS[number][0]}" for number in chosen))
        return 0
    import gpubufd

    os.environ["GPUBUFD_DAEMON"] = options.daemon
    if options.checks:
        faulthandler.enable()
        with gpubufd.connect(timeout=30) as client, open(options.progress, "w") as progress:
            client.delete(*(info.name for info in client.list()), missing_ok=True)
            run_all(client, device, list(map(int, options.checks.split(","))), progress)
        return 0
    # Some checks look on the host at what was on the GPU; test_frameworks.py has no GPU.
    devices = [options.device] if device == "host" else [options.device, "host:4G"]
    with tempfile.TemporaryDirectory() as directory, daemon_with(options.daemon, *devices) as path:
        os.environ["GPUBUFD_SOCKET"] = path
        print(f"gpubufd {gpubufd.__version__}, Python {sys.version.split()[0]}", flush=True)
        passed, failed, skipped = supervise(chosen, os.path.join(directory, "progress"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
