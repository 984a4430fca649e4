"""CuPy, numba, PyTorch and JAX over memory that gpubufd shares. This module runs in workers.

`View` is all the glue that is needed: it says where the memory is in the two ways that these
libraries understand, CUDA Array Interface and DLPack.
"""

import base64
import ctypes
import os
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, pointer

import library

COUNT = 1024  # elements; small enough that sums of float32 are exact
FACTORS = {"cupy": 1, "numba": 2, "torch": 3, "jax": 4}


class Tensor(Structure):  # DLTensor
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Managed(Structure):  # DLManagedTensor
    _fields_ = [("tensor", Tensor), ("context", c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, c_void_p))]


class View:
    """`length` float32 at an address on a GPU. The memory is the object's, which stays open."""

    def __init__(self, address, length, ordinal):
        self.ordinal = ordinal
        # Read-only as it is for readers: PyTorch refuses what is said to be, so it is not said.
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (length,), "typestr": "<f4", "data": (address, False),
        }
        self.shape = (c_int64 * 1)(length)
        self.managed = Managed(
            Tensor(address, 2, ordinal, 1, 2, 32, 1, self.shape, None, 0), None,
            ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None),
        )

    def __dlpack_device__(self):
        return 2, self.ordinal

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (c_void_p, ctypes.c_char_p, c_void_p)
        return new(ctypes.cast(pointer(self.managed), c_void_p), b"dltensor", None)


def view(work, name, access):
    address, size = work.buffer(name, access=access)
    made = View(address, size // 4, work.cu.ordinal)
    work.kept[f"view of {name}"] = made
    return made


def prepare():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def load(work, framework):
    """Imports it; its version, or None where it has no GPU."""
    prepare()
    if framework == "numba":
        import numpy

        if not hasattr(numpy, "row_stack"):  # NumPy 2.5 dropped it; numba 0.68 still overloads it
            numpy.row_stack = numpy.vstack
        import numba
        from numba import cuda

        return numba.__version__ if cuda.is_available() else None
    module = __import__(framework)
    if framework == "torch" and not module.cuda.is_available():
        return None
    if framework == "jax" and module.default_backend() != "gpu":
        return None
    return module.__version__


def produce(work, framework, name):
    """An object of COUNT float32 that the framework wrote: i times its factor."""
    factor = FACTORS[framework]
    work.create(name, {"kind": "array", "dtype": "float32", "shape": [COUNT]})
    target = view(work, name, "rw")
    if framework == "cupy":
        import cupy

        cupy.asarray(target)[:] = cupy.arange(COUNT, dtype="float32") * factor
    elif framework == "numba":
        from numba import cuda

        @cuda.jit
        def write(out, times):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = i * times

        write[COUNT // 128, 128](cuda.as_cuda_array(target), factor)
    elif framework == "torch":
        import torch

        made = torch.arange(COUNT, dtype=torch.float32, device="cuda") * factor
        torch.as_tensor(target, device="cuda").copy_(made)
    else:
        import jax.numpy

        made = (jax.numpy.arange(COUNT, dtype="float32") * factor).block_until_ready()
        source = made.unsafe_buffer_pointer()
        work.cu.cuMemcpyDtoD(work.buffer(name, access="rw")[0], source, 4 * COUNT)
    work.cu.cuCtxSynchronize()
    work.seal(name)


def consume(work, framework, name):
    """The sum that the framework finds."""
    work.open(name)
    source = view(work, name, "r")
    if framework == "cupy":
        import cupy

        return float(cupy.asarray(source).sum())
    if framework == "numba":
        import numpy
        from numba import cuda

        @cuda.jit
        def add(values, out):
            i = cuda.grid(1)
            if i < values.size:
                cuda.atomic.add(out, 0, values[i])

        total = cuda.to_device(numpy.zeros(1, dtype="float64"))
        add[COUNT // 128, 128](cuda.as_cuda_array(source), total)
        return float(total.copy_to_host()[0])
    if framework == "torch":
        import torch

        return float(torch.as_tensor(source, device="cuda").sum().item())
    import jax

    return float(jax.dlpack.from_dlpack(source).sum())


def own_array(work, framework, size):
    """The address of `size` bytes, each 5, in the middle of what a framework's pool has."""
    if framework == "cupy":
        import cupy

        arrays = [cupy.full(size, value, dtype="uint8") for value in (4, 5, 6)]
        address = arrays[1].data.ptr
    else:
        import torch

        arrays = [torch.full((size,), value, dtype=torch.uint8, device="cuda")
                  for value in (4, 5, 6)]
        address = arrays[1].data_ptr()
    work.kept["arrays"] = arrays
    work.cu.cuCtxSynchronize()
    return address


def register_raw(work, framework, name, size, uuid):
    """`register` of a framework's array by its legacy handle; its offset in its allocation."""
    address = own_array(work, framework, size)
    base, whole = work.cu.address_range(address)
    handle = {"kind": "cuda_ipc", "ipc": base64.b64encode(work.cu.ipc_handle(address)).decode(),
              "bytes": whole, "device": uuid}
    layout = {"kind": "bytes", "bytes": size,
              "data": {"handle": 0, "offset": address - base, "bytes": size}}
    work.register(name, layout, [handle])
    return address - base


def register_library(work, framework, name, size):
    library.register_pointer(work, name, own_array(work, framework, size), size)


def rawkernel(work, name):
    """A column's sum and number of valid elements by a kernel that CuPy compiles (NVRTC)."""
    import cupy

    source = r"""
    extern "C" __global__ void column_sum(const double *data, const unsigned char *mask,
                                          long long offset, long long length, double *out)
    {
        long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, at = offset + i;
        if (i < length && (!mask || mask[at >> 3] >> (at & 7) & 1)) {
            atomicAdd(&out[0], data[at]);
            atomicAdd(&out[1], 1.0);
        }
    }"""
    layout = work.open(name)["layout"]
    data = work.buffer(name)[0]
    mask = work.buffer(name, "mask")[0] if "mask" in layout else 0
    out, length = cupy.zeros(2), layout["length"]
    kernel = cupy.RawKernel(source, "column_sum")
    arguments = (cupy.uint64(data), cupy.uint64(mask), cupy.int64(layout.get("offset", 0)),
                 cupy.int64(length), out)
    kernel(((length + 255) // 256,), (256,), arguments)
    return [float(value) for value in out.get()]
