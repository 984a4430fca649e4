#!/usr/bin/env python3
"""numba's kernels, ufuncs and calls for memory over gpubufd's objects, on a real GPU.

    tests/gpu/numba_memory.py --daemon build/bin/gpubufd [--package build/python] [--only WORD]

The kernel is the one of numba's user guide, "Writing CUDA Kernels"; the calls are those of its page "Memory management",
the ufunc that of its tutorial.
"""

import os
import sys

import frameworks
from frameworks import check, child, equal, need, need_numba, same_memory

frameworks.CHECKS.clear()

KERNEL = """
from numba import cuda

@cuda.jit
def increment_by_one(an_array):
    # Thread id in a 1D block
    tx = cuda.threadIdx.x
    # Block id in a 1D grid
    ty = cuda.blockIdx.x
    # Block width, i.e. number of threads per block
    bw = cuda.blockDim.x
    # Compute flattened index inside the array
    pos = tx + ty * bw
    if pos < an_array.size:  # Check array boundaries
        an_array[pos] += 1

def launch(an_array, stream=0):
    threadsperblock = 32
    blockspergrid = (an_array.size + (threadsperblock - 1)) // threadsperblock
    increment_by_one[blockspergrid, threadsperblock, stream](an_array)
"""
# numba compiles from a file.
PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("increment", sys.argv[1])
increment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(increment)
import gpubufd
client = gpubufd.connect()
"""


def kernel(directory):
    """(path, module) of the kernel's source."""
    import importlib.util

    path = os.path.join(directory, "increment.py")
    with open(path, "w") as file:
        file.write(KERNEL)
    spec = importlib.util.spec_from_file_location("increment", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return path, module


def with_kernel(function):
    def run(client, device):
        import tempfile

        need("numpy")
        need_numba()
        with tempfile.TemporaryDirectory() as directory:
            function(client, device, *kernel(directory))

    run.__name__ = function.__name__
    return run


@check("increment_by_one on an object by edit(): the next version has it, and readers keep the one before")
@with_kernel
def edit_increments(client, device, path, increment):
    numpy = need("numpy")
    client.put("an_array", numpy.arange(1000, dtype="f4"), device=device)
    before = client.get("an_array")
    with client.edit("an_array") as an_array:
        increment.launch(an_array)
    equal(client.get("an_array").copy_to_host(), range(1, 1001))
    equal(before.copy_to_host(), range(1000))
    stream = increment.cuda.stream()
    again = client.edit("an_array")
    increment.launch(again, stream)
    again.seal(stream=stream)
    equal(client.get("an_array").copy_to_host(), range(2, 1002))
    child(PROGRAM + f"""
with client.edit("an_array") as an_array:
    increment.launch(an_array)
""", path)
    equal(client.get("an_array").copy_to_host(), range(3, 1003))


@check("increment_by_one on a live object: two processes increment the same memory, a reader sees it")
@with_kernel
def live_increments(client, device, path, increment):
    numpy = need("numpy")
    live = client.create("live", "float32", 1000, live=True, device=device)
    live.write(numpy.arange(1000, dtype="f4"))
    increment.launch(live)
    increment.cuda.synchronize()
    reader = client.get("live")
    equal(reader.copy_to_host(), range(1, 1001))
    child(PROGRAM + """
live = client.open("live", write=True)
increment.launch(live)
increment.cuda.synchronize()
with_none = live.copy_to_host()
assert with_none.tolist() == list(range(2, 1002)), with_none
live.release()
""", path)
    equal(reader.copy_to_host(), range(2, 1002))
    live.release()  # claim() waits for all writers, this one too
    with client.claim("live", timeout=10) as mine:
        increment.launch(mine)
        increment.cuda.synchronize()
    equal(reader.copy_to_host(), range(3, 1003))


@check("a ufunc of numba's takes columns, with out= of an object that is being created")
def ufunc_out(client, device):
    numpy, cuda = need("numpy"), need_numba()
    from numba import vectorize

    @vectorize(["float32(float32, float32)"], target="cuda")
    def add_ufunc(x, y):
        return x + y

    n = 100000
    x = numpy.arange(n).astype(numpy.float32)
    y = 2 * x
    client.put("x", x, device=device)
    client.put("y", y, device=device)
    x_device, y_device = client.get("x"), client.get("y")
    equal(add_ufunc(x_device, y_device).copy_to_host()[:5], [0, 3, 6, 9, 12])
    for name, as_out in (("object", lambda made: made), ("numba's array", cuda.as_cuda_array)):
        with client.create("out", "float32", n, device=device, replace=True) as out_device:
            add_ufunc(x_device, y_device, out=as_out(out_device))
        assert (client.get("out").copy_to_host() == x + y).all(), name
    equal(add_ufunc(x_device, cuda.to_device(y)).copy_to_host()[-2:], (x + y)[-2:])
    same_memory(x_device.to_numba().device_ctypes_pointer.value, x_device)


@check("a ufunc of CuPy's, with out= of an object that is being created")
def cupy_ufunc_out(client, device):
    cupy, numpy = need("cupy"), need("numpy")
    a, b = cupy.arange(1000, dtype="f4"), cupy.ones(1000, "f4")
    with client.create("out", "float32", 1000, device=device) as new:
        cupy.add(a, b, out=cupy.asarray(new))
    assert (client.get("out").copy_to_host() == numpy.arange(1, 1001)).all()


@check("device_array_like, pinned_array_like and mapped_array_like of a column; what they made is put")
def likes(client, device):
    numpy, cuda = need("numpy"), need_numba()
    values = numpy.arange(24, dtype="i4").reshape(4, 6)
    client.put("a", values, device=device)
    held = client.get("a")
    like = cuda.device_array_like(held.to_numba())
    assert like.shape == (4, 6) and like.dtype == numpy.int32
    like.copy_to_device(held.to_numba())
    client.put("like", like)
    assert (client.get("like").copy_to_host() == values).all()
    for make in (cuda.pinned_array_like, cuda.mapped_array_like):
        made = make(values)
        assert made.shape == (4, 6) and made.dtype == numpy.int32
        # numba-cuda 0.30 cannot copy into its own mapped array (MappedNDArray.squeeze() wants a _dummy that it has not).
        on_host = numpy.asarray(made)
        held.to_numba().copy_to_host(on_host)
        assert (on_host == values).all(), make.__name__
        on_host += 1
        client.put("made", made, device=device, replace=True)
        assert (client.get("made").copy_to_host() == values + 1).all(), make.__name__
    for make in (cuda.pinned_array, cuda.mapped_array):
        made = make((3, 2), dtype=numpy.float64)
        made[:] = 1.5
        client.put("made", made, device=device, replace=True)
        equal(client.get("made").copy_to_host().ravel(), [1.5] * 6)


@check('order="F": numba\'s arrays are put and come back; gpubufd\'s are made, and taken by numba')
def fortran(client, device):
    numpy, cuda = need("numpy"), need_numba()
    from gpubufd import cuda as ours

    values = numpy.asfortranarray(numpy.arange(12, dtype="f8").reshape(3, 4))
    made = cuda.device_array((3, 4), "f8", order="F")
    made.copy_to_device(values)
    client.put("f", made, device=device)
    assert (client.get("f").copy_to_host() == values).all()
    client.put("f", cuda.to_device(values), device=device, replace=True)
    assert (client.get("f").copy_to_host() == values).all()
    for empty in (cuda.pinned_array((3, 4), "f8", order="F"), cuda.mapped_array((3, 4), "f8", order="F")):
        empty[:] = values
        client.put("f", empty, device=device, replace=True)
        assert (client.get("f").copy_to_host() == values).all()
    mine = ours.empty((3, 4), "f8", order="F")
    mine.copy_to_device(values)
    assert (cuda.as_cuda_array(mine).copy_to_host() == values).all()
    assert ours.empty_like(mine).strides == mine.strides
    assert (ours.zeros_like(mine).copy_to_host() == 0).all()


@check("to_device(): of an object on the host, with a stream, into an object that is being created")
def to_device(client, device):
    numpy, cuda = need("numpy"), need_numba()
    stream = cuda.stream()
    values = numpy.arange(1000, dtype="i8")
    client.put("host", values, device="host")
    on_gpu = cuda.to_device(client.get("host").to_numpy(), stream=stream)
    stream.synchronize()
    equal(on_gpu.copy_to_host(), range(1000))
    made = client.create("made", "int64", 1000, device=device)
    cuda.to_device(values, stream=stream, to=cuda.as_cuda_array(made))
    made.seal(stream=stream)
    equal(client.get("made").copy_to_host(), range(1000))
    client.put("again", on_gpu, stream=stream, device=device)
    equal(client.get("again").copy_to_host(), range(1000))


@check("copy_to_host(), copy_to_host(ary), copy_to_host(ary, stream), copy_to_host(stream=…): numba's over an object, and ours")
def copy_to_host(client, device):
    numpy, cuda = need("numpy"), need_numba()
    from gpubufd import cuda as ours

    stream = cuda.stream()
    values = numpy.arange(1000, dtype="f4")
    client.put("a", values, device=device)
    held = client.get("a")
    for array in (held.to_numba(), ours.to_device(values)):
        assert (array.copy_to_host() == values).all()
        ary = numpy.empty_like(values)
        array.copy_to_host(ary)
        assert (ary == values).all()
        ary = numpy.empty_like(values)
        array.copy_to_host(ary, stream)
        stream.synchronize()
        assert (ary == values).all()
        found = array.copy_to_host(stream=stream)
        stream.synchronize()
        assert (found == values).all()
    found = held.copy_to_host(stream=stream)
    stream.synchronize()
    assert (found == values).all()


@check("pinned(*arrays): numba's and ours, for copies by a stream of what is put and got")
def pinned(client, device):
    numpy, cuda = need("numpy"), need_numba()
    from gpubufd import cuda as ours

    for module in (cuda, ours):
        left, right = numpy.arange(1 << 18, dtype="f4"), numpy.empty(1 << 18, "f4")
        stream = cuda.stream()
        with module.pinned(left, right):
            made = client.create("made", "float32", 1 << 18, device=device, replace=True)
            made.write(left, stream=stream)
            made.seal(stream=stream)
            client.get("made").to_numba().copy_to_host(right, stream)
            stream.synchronize()
        assert (left == right).all(), module.__name__


@check("stream.auto_synchronize(): numba's and ours, around a kernel over an object")
@with_kernel
def auto_synchronize(client, device, path, increment):
    numpy = need("numpy")
    from gpubufd import cuda as ours

    for stream, its in ((increment.cuda.stream(), None), (ours.Stream(), increment.cuda.external_stream)):
        made = client.create("made", "float32", 1000, device=device, replace=True)
        made.write(numpy.zeros(1000, "f4"))
        with stream.auto_synchronize() as same:
            assert same is stream
            increment.launch(made, stream if its is None else its(int(stream)))
        assert made.copy_to_host().tolist() == [1] * 1000
        made.release()


@check("defer_cleanup(): numba's and ours; the leases of what was dropped inside end")
def defer_cleanup(client, device):
    numpy, cuda = need("numpy"), need_numba()
    from gpubufd import cuda as ours

    client.put("a", numpy.arange(1000), device=device)
    for module in (cuda, ours):
        with module.defer_cleanup():
            array = client.get("a").to_numba()
            own = module.to_device(numpy.arange(10))
            equal(own.copy_to_host(), range(10))
            assert int(array.copy_to_host().sum()) == 499500
            del array, own
        in_use = [lease for lease in client.leases("a") if "cached_ms" not in lease]  # what was got twice is cached for a while
        assert not in_use, (module.__name__, in_use)


@check("IPC: numba's own array is opened in another process by its name, where numba has get_ipc_handle()")
@with_kernel
def ipc(client, device, path, increment):
    numpy = need("numpy")
    cuda = increment.cuda
    mine = cuda.to_device(numpy.arange(1000, dtype="f4"))
    client.share_mine("mine", mine[100:200])
    out = child(PROGRAM + """
held = client.get("mine")
array = held.to_numba()
out = increment.cuda.device_array_like(array)
out.copy_to_device(array)
increment.launch(out)
print(int(out.copy_to_host().sum()), array.shape)
""", path)
    assert out.split(None, 1)[0] == str(sum(range(101, 201))), out
    increment.launch(mine)
    cuda.synchronize()
    equal(client.get("mine")[:3].copy_to_host(), [101, 102, 103])
    client.delete("mine")


if __name__ == "__main__":
    if "--device" not in sys.argv:
        sys.argv += ["--device", "cuda:0:2G"]
    sys.exit(frameworks.main())
