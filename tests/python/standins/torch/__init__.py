"""A stand-in for PyTorch, for what gpubufd.torch does beside PyTorch itself: names, facts, read-through.

Tensors are arrays of NumPy's with a dtype of their own, on the host. It stands in for what is called here, by
PyTorch's names and meanings, and says nothing of what the real one does: tests/gpu/weights.py is made with that.
"""

import contextlib
import ctypes

import numpy

strided = "torch.strided"


class dtype:
    def __init__(self, name, items):
        self.name, self.items = name, numpy.dtype(items)

    @property
    def is_complex(self):
        return self.items.kind == "c"

    def __repr__(self):
        return f"torch.{self.name}"


for _name in ("uint8 int8 int16 int32 int64 float16 float32 float64 complex64 bool".split()):
    globals()[_name] = dtype(_name, _name)
bfloat16, float8_e4m3fn, float4_e2m1fn_x2 = (
    dtype("bfloat16", "u2"), dtype("float8_e4m3fn", "u1"), dtype("float4_e2m1fn_x2", "u1"))


class device:
    def __init__(self, kind, index=None):
        self.type, _, number = str(kind).partition(":")
        self.index = int(number) if number else index
        if self.type not in ("cpu", "cuda", "meta"):
            raise RuntimeError(f"no device: {kind}")

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __repr__(self):
        return self.type


class Tensor:
    layout, is_quantized, requires_grad = strided, False, False

    def __init__(self, items, kind, where=device("cpu"), keep=None):
        self.items, self.dtype, self.device, self.keep = items, kind, where, keep

    @property
    def shape(self):
        return self.items.shape

    def numel(self):
        return self.items.size

    def data_ptr(self):
        return self.items.__array_interface__["data"][0] if self.items.size else 0

    def stride(self):
        return tuple(step // self.items.itemsize for step in self.items.strides)

    def is_contiguous(self):
        return self.items.flags.c_contiguous

    def detach(self):
        return self

    resolve_conj = detach

    def is_neg(self):
        return False

    is_conj = is_neg

    def dim(self):
        return self.items.ndim

    def element_size(self):
        return self.items.itemsize

    def contiguous(self):
        return self if self.is_contiguous() else Tensor(numpy.ascontiguousarray(self.items), self.dtype)

    def clone(self):
        return Tensor(self.items.copy(), self.dtype)

    def view(self, kind):
        return Tensor(self.items.view(kind.items), kind, keep=self)

    def reshape(self, shape):
        return Tensor(self.items.reshape(shape), self.dtype, self.device, keep=self)

    def __getitem__(self, key):
        return Tensor(self.items[key], self.dtype, self.device, keep=self)

    def copy_(self, other, non_blocking=False):
        self.items[...] = other.items

    def tolist(self):
        return self.items.tolist()

    item = tolist


class cuda:
    """A pool asks its allocator for 2 MiB and more at a time, and gives nothing back before release()."""

    class OutOfMemoryError(RuntimeError):
        pass

    class memory:
        class CUDAPluggableAllocator:
            def __init__(self, path, alloc, free):
                library = ctypes.CDLL(path)
                self.alloc = ctypes.CFUNCTYPE(
                    ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)((alloc, library))
                self.free = ctypes.CFUNCTYPE(
                    None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)((free, library))

            def allocator(self):
                return self

    class MemPool:
        def __init__(self, allocator):
            self.allocator, self.pieces, self.room = allocator, [], 0

        def take(self, size):
            if size > self.room:
                self.room = max(2 << 20, size)
                self.at = self.allocator.alloc(self.room, 0, None)
                if not self.at:
                    self.room = 0
                    raise cuda.OutOfMemoryError("CUDA out of memory")
                self.pieces.append(self.at)
            at, used = self.at, (size + 511) // 512 * 512
            self.at, self.room = at + used, self.room - used
            return at

        def release(self):
            while self.pieces:
                self.allocator.free(self.pieces.pop(), 0, 0, None)

    pool = None

    @staticmethod
    @contextlib.contextmanager
    def use_mem_pool(pool, device=None):
        cuda.pool = pool
        try:
            yield
        finally:
            cuda.pool = None

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def made(values, dtype):
        """A tensor on the GPU, whose memory the fake driver's processes can read."""
        items = numpy.asarray(values, dtype.items)
        at = cuda.pool.take(items.nbytes)
        there = numpy.frombuffer((ctypes.c_char * items.nbytes).from_address(at), dtype.items).reshape(items.shape)
        there[...] = items
        return Tensor(there, dtype, device("cuda", 0))


class nn:
    class Parameter(Tensor):
        pass


class _Capsule:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def tensor(values, dtype):
    return Tensor(numpy.array(values, dtype.items), dtype)


def empty(shape, dtype, device):
    return Tensor(numpy.empty(shape, dtype.items), dtype, device)


def from_dlpack(capsule):
    """The dtype is the bytes' where NumPy has no other, as it is asked for by view() then."""
    items = numpy.from_dlpack(_Capsule(capsule))
    return Tensor(items, globals()[str(items.dtype)], keep=items)


@contextlib.contextmanager
def no_grad():
    yield
