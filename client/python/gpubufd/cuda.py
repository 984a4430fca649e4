"""Devices, streams, events, arrays, pinned memory and copies: the host side of a GPU program.

    from gpubufd import cuda

    stream = cuda.Stream()
    staging = cuda.pinned((1000,), "float32")      # a NumPy array in page-locked memory
    mine = cuda.to_device(staging, stream=stream)  # has __cuda_array_interface__
    cuda.copy(staging, mine, stream=stream)        # queued
    stream.synchronize()

It uses a device's primary context, as CuPy, numba, PyTorch and JAX do, and needs only the driver (libcuda.so.1), which
is loaded at first use. Sizes are in bytes; device numbers are CUDA's ordinals in this process. Errors of the driver
are CudaError.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type, TypeVar

from ._cuda_array import CudaArray
from ._errors import DeviceError, Error, Unsupported, failure

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
_EVENT_NO_TIMING = 2
_STREAM_NON_BLOCKING = 1
_POINTER_DEVICE_ORDINAL = 9
_POINTER_MEMORY_TYPE = 2
_NOT_READY = 600


class CudaError(DeviceError):
    """A call of the driver failed. `name` is the CUDA error's ("CUDA_ERROR_INVALID_VALUE"), `status` its number."""

    name: str = ""
    status: int = 0
    kind = "device"
    code = -32009


def _unsupported(message: str) -> Error:
    return failure("unsupported", message)


class _Driver:
    """libcuda, loaded once."""

    def __init__(self) -> None:
        self.pid = 0
        self.lock = threading.Lock()
        self.contexts: Dict[int, ctypes.c_void_p] = {}
        self.library: Any = None

    def load(self) -> Any:
        if self.pid == os.getpid():
            return self.library
        with self.lock:
            if self.pid and self.pid != os.getpid():
                raise failure("forked", "CUDA was in use before the fork, and cannot be used in the child: spawn it")
            if not self.pid:
                try:
                    library = ctypes.CDLL("libcuda.so.1")
                except OSError as error:
                    raise _unsupported(f"there is no CUDA driver here: {error}") from None
                status = library.cuInit(0)
                if status:
                    raise _error(library, status, "cuInit")
                self.library, self.pid = library, os.getpid()
        return self.library

    def call(self, name: str, *args: Any) -> None:
        status = getattr(self.load(), name)(*args)
        if status:
            raise _error(self.library, status, name)


def _error(library: Any, status: int, function: str) -> CudaError:
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(name))
    library.cuGetErrorString(status, ctypes.byref(text))
    known = (name.value or b"CUDA error %d" % status).decode()
    error = CudaError(f"{known}: {(text.value or b'unknown').decode()} ({function})")
    error.name, error.status = known, status
    return error


_driver = _Driver()
_call = _driver.call


def _pointer(value: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


# ---- devices ----


class Device:
    """A GPU that this process sees. `with device:` makes its primary context current in the thread."""

    def __init__(self, ordinal: int = 0):
        self.ordinal = int(ordinal)
        self._handle = ctypes.c_int()
        _call("cuDeviceGet", ctypes.byref(self._handle), self.ordinal)

    @property
    def name(self) -> str:
        """The device's name, such as "NVIDIA H100"."""
        text = ctypes.create_string_buffer(256)
        _call("cuDeviceGetName", text, 256, self._handle)
        return text.value.decode()

    @property
    def uuid(self) -> str:
        """The name that gpubufd uses for it: "GPU-…" or "MIG-…"."""
        raw = (ctypes.c_ubyte * 16)()
        _call("cuDeviceGetUuid_v2", ctypes.byref(raw), self._handle)
        digits = bytes(raw).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return ("MIG-" if "MIG " in self.name else "GPU-") + "-".join(parts)

    def memory_info(self) -> Tuple[int, int]:
        """Return (free, total) bytes of its memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self:
            _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        """Wait for all work in its primary context."""
        with self:
            _call("cuCtxSynchronize")

    def _context(self) -> ctypes.c_void_p:
        """Its primary context, which is kept until the process ends."""
        with _driver.lock:
            context = _driver.contexts.get(self.ordinal)
            if context is None:
                context = ctypes.c_void_p()
                status = _driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._handle)
                if status:
                    raise _error(_driver.library, status, "cuDevicePrimaryCtxRetain")
                _driver.contexts[self.ordinal] = context
        return context

    def __enter__(self) -> "Device":
        _call("cuCtxPushCurrent_v2", self._context())
        return self

    def __exit__(self, *exception: Any) -> None:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def __repr__(self) -> str:
        return f"<gpubufd.cuda.Device {self.ordinal}: {self.name}>"


def is_available() -> bool:
    """Return whether there is a driver and at least one device."""
    try:
        return bool(devices())
    except (DeviceError, Unsupported):
        return False


def devices() -> List[Device]:
    """Return the GPUs that this process sees."""
    count = ctypes.c_int()
    _call("cuDeviceGetCount", ctypes.byref(count))
    return [Device(i) for i in range(count.value)]


def pointer_device(pointer: int) -> Optional[int]:
    """Return the ordinal of the GPU that an address is on; None: it is host memory."""
    kind, ordinal = ctypes.c_uint(), ctypes.c_int()
    library = _driver.load()
    if library.cuPointerGetAttribute(ctypes.byref(kind), _POINTER_MEMORY_TYPE, _pointer(pointer)):
        return None
    if kind.value != 2:  # CU_MEMORYTYPE_DEVICE
        return None
    _call("cuPointerGetAttribute", ctypes.byref(ordinal), _POINTER_DEVICE_ORDINAL, _pointer(pointer))
    return ordinal.value


def end_of(pointer: int, device: int) -> int:
    """Where the GPU memory ends that was allocated, or mapped, together with an address. 0: the driver does not tell."""
    base, count = ctypes.c_uint64(), ctypes.c_size_t()
    arguments = ctypes.byref(base), ctypes.byref(count), _pointer(pointer)
    failed = _driver.load().cuMemGetAddressRange_v2(*arguments)
    if failed:  # the thread may have no context
        with Device(device):
            failed = _driver.library.cuMemGetAddressRange_v2(*arguments)
    return 0 if failed else base.value + count.value


# ---- when things are freed ----

_deferring = threading.local()


def _free(ordinal: int, function: str, handle: int) -> None:
    """Runs as a finalizer, perhaps after CUDA has been shut down: errors do not matter then."""
    if _driver.pid != os.getpid():
        return
    waiting = getattr(_deferring, "waiting", None)
    if waiting is not None:
        waiting.append((ordinal, function, handle))
        return
    with contextlib.suppress(DeviceError):
        with Device(ordinal):
            _call(function, _pointer(handle))


@contextlib.contextmanager
def defer_cleanup() -> Iterator[None]:
    """Keep this thread from freeing memory, streams and events of this module until the end of the `with`.

    Freeing memory waits for the device: use it around code that must not wait.
    """
    outer = getattr(_deferring, "waiting", None)
    if outer is not None:  # the outermost one frees
        yield
        return
    _deferring.waiting = []
    try:
        yield
    finally:
        waiting, _deferring.waiting = _deferring.waiting, None
        for entry in waiting:
            _free(*entry)


_Self = TypeVar("_Self", bound="_Owned")


class _Owned:
    """A resource of the driver, freed with its last reference, or by close()."""

    def __init__(self, device: int, function: str, handle: int):
        self.device = device
        self.handle = handle
        end = weakref.finalize(self, _free, device, function, handle)
        end.atexit = False  # the driver frees all at the exit
        self._end: Callable[[], Any] = end

    @classmethod
    def _foreign(cls: Type[_Self], device: int, handle: int) -> _Self:
        """One of somebody else's; close() does not destroy it."""
        made = cls.__new__(cls)
        made.device, made.handle = device, handle
        made._end = lambda: None
        return made

    def _is_done(self, query: str) -> bool:
        with Device(self.device):
            try:
                _call(query, _pointer(self.handle))
            except CudaError as error:
                if error.status == _NOT_READY:
                    return False
                raise
        return True

    def close(self) -> None:
        """Free it now."""
        self._end()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


# ---- streams and events ----


def handle_of(stream: Any) -> int:
    """The handle of any library's stream, or a number; None is the legacy default stream."""
    if stream is None:
        return LEGACY_STREAM
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):  # CuPy, PyTorch, numba
        if hasattr(stream, name):
            value = getattr(stream, name)
            return int(getattr(value, "value", value) or 0)
    if not isinstance(stream, int):
        raise TypeError(f"stream is {stream!r}: expected a library's stream, or its handle")
    return int(stream)


def handle_or_zero(stream: Any) -> int:
    """As handle_of(), but None is 0: no stream. For the package's `stream` arguments."""
    return 0 if stream is None else handle_of(stream)


class Stream(_Owned):
    """A queue of work on a GPU; `handle` is what gpubufd's `stream` arguments take."""

    def __init__(self, device: int = 0):
        handle = ctypes.c_void_p()
        with Device(device):
            _call("cuStreamCreate", ctypes.byref(handle), _STREAM_NON_BLOCKING)
        super().__init__(device, "cuStreamDestroy_v2", handle.value or 0)

    @classmethod
    def of(cls, stream: Any, device: int = 0) -> "Stream":
        """Wrap another library's stream (an object or a handle). close() does not destroy it."""
        return cls._foreign(device, handle_of(stream))

    def __cuda_stream__(self) -> Tuple[int, int]:
        return 0, self.handle

    def synchronize(self) -> None:
        """Wait until the work queued so far is done."""
        with Device(self.device):
            _call("cuStreamSynchronize", _pointer(self.handle))

    def done(self) -> bool:
        """Return whether all work queued so far is done."""
        return self._is_done("cuStreamQuery")

    @contextlib.contextmanager
    def auto_synchronize(self) -> "Iterator[Stream]":
        """Return a context manager that waits at its end until the queued work is done."""
        try:
            yield self
        finally:
            self.synchronize()

    def record(self, timing: bool = False) -> "Event":
        """Return a new event, recorded after the work queued so far."""
        event = Event(self.device, timing=timing)
        event.record(self)
        return event

    def wait(self, event: "Event") -> None:
        """Make work queued from now on wait for an event."""
        with Device(self.device):
            _call("cuStreamWaitEvent", _pointer(self.handle), _pointer(event.handle), 0)

    def __int__(self) -> int:
        return self.handle


@functools.lru_cache(None)
def _other(device: int) -> Stream:
    return Stream(device)


@contextlib.contextmanager
def beside(stream: int, device: int) -> Iterator[int]:
    """A second stream for a part of what is queued on `stream` in the block: it begins after what was queued before, and
    what is queued after waits for it. So that one copy of many begins before another ends."""
    mine, other = Stream._foreign(device, stream), _other(device)
    other.wait(mine.record())
    try:
        yield other.handle
    finally:
        mine.wait(other.record())


class Event(_Owned):
    """A mark in a stream."""

    def __init__(self, device: int = 0, *, timing: bool = False):
        handle = ctypes.c_void_p()
        with Device(device):
            _call("cuEventCreate", ctypes.byref(handle), 0 if timing else _EVENT_NO_TIMING)
        super().__init__(device, "cuEventDestroy_v2", handle.value or 0)

    @classmethod
    def at(cls, pointer: int, device: int) -> "Event":
        """Wrap the event that an Arrow device array's sync_event points to. close() does not destroy it."""
        return cls._foreign(device, ctypes.c_void_p.from_address(pointer).value or 0)

    def record(self, stream: Any = None) -> None:
        """Record the event after the work queued on a stream so far."""
        with Device(self.device):
            _call("cuEventRecord", _pointer(self.handle), _pointer(handle_of(stream)))

    def synchronize(self) -> None:
        """Wait until the event is reached."""
        with Device(self.device):
            _call("cuEventSynchronize", _pointer(self.handle))

    def done(self) -> bool:
        """Return whether the event is reached."""
        return self._is_done("cuEventQuery")

    def seconds_since(self, earlier: "Event") -> float:
        """Return the seconds between two reached events, both made with timing=True."""
        passed = ctypes.c_float()
        with Device(self.device):
            _call("cuEventElapsedTime", ctypes.byref(passed), _pointer(earlier.handle),
                  _pointer(self.handle))
        return passed.value / 1000


def wait_for_event(pointer: int, device: int) -> None:
    """Wait for the event that an Arrow device array's sync_event points to."""
    Event.at(pointer, device).synchronize()


# ---- memory ----


def read_bytes(address: int, count: int, device: int, stream: int = 0) -> bytearray:
    """Bytes from a GPU, read behind the work queued on a stream (0: the legacy default one)."""
    data = bytearray(count)
    if count:
        target = (ctypes.c_ubyte * count).from_buffer(data)
        on = _pointer(stream or LEGACY_STREAM)
        with Device(device):
            _call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), _size(count), on)
            _call("cuStreamSynchronize", on)
    return data


def _count(shape: Any, itemsize: int) -> Tuple[Tuple[int, ...], int]:
    extents = (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ValueError(f"shape is {extents}: expected extents of 0 or more")
    return extents, itemsize * math.prod(extents)


def _numbers_at(address: int, shape: Any, typestr: str, strides: Any) -> Any:
    """A NumPy array over a device's addresses, to compute with them. Nobody may look at its elements."""
    import numpy

    class Here:
        __array_interface__ = {
            "version": 3, "shape": tuple(shape), "typestr": typestr, "strides": strides, "data": (address, False),
        }

    return numpy.asarray(Here())


class DeviceArray(_Owned):
    """Memory on a GPU with a shape and a NumPy dtype; made by empty(), zeros(), their *_like() and to_device().

    `shape` and `size` are in elements, `strides` and `nbytes` in bytes. `order` "F" is Fortran's: the first axis is
    dense. Slices, ravel(), reshape() and T are views, which keep the memory; close() of a view does nothing.
    """

    base: Optional["DeviceArray"] = None  # the array that a view is of

    def __init__(self, shape: Any, dtype: Any = "float64", device: int = 0, *, order: str = "C"):
        import numpy

        if order not in ("C", "F"):
            raise ValueError(f"order is {order!r}: expected 'C' or 'F'")
        self.dtype = numpy.dtype(dtype)
        self.shape, self.nbytes = _count(shape, self.dtype.itemsize)
        strides, step = [], self.dtype.itemsize
        for extent in self.shape if order == "F" else reversed(self.shape):
            strides.append(step)
            step *= extent
        self.strides = tuple(strides if order == "F" else reversed(strides))
        pointer = ctypes.c_uint64()
        with Device(device):
            _call("cuMemAlloc_v2", ctypes.byref(pointer), _size(max(self.nbytes, 1)))
        super().__init__(device, "cuMemFree_v2", pointer.value)

    @property
    def ptr(self) -> int:
        """The address of the first element on the device."""
        return self.handle

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.nbytes // self.dtype.itemsize if self.dtype.itemsize else 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "strides": None if self.is_c_contiguous() else self.strides,
            "stream": None, "data": (self.handle if self.nbytes else 0, False), "version": 3,
        }

    # ---- views: NumPy computes them, over the device's addresses, which it never follows ----

    def _numbers(self) -> Any:
        return _numbers_at(self.handle, self.shape, self.dtype.str, self.strides)

    def _view(self, numbers: Any) -> "DeviceArray":
        made = DeviceArray.__new__(DeviceArray)
        made.dtype, made.shape, made.strides, made.nbytes = self.dtype, numbers.shape, numbers.strides, numbers.nbytes
        made.device, made.handle = self.device, numbers.__array_interface__["data"][0]
        made.base, made._end = self, lambda: None
        return made

    def is_c_contiguous(self) -> bool:
        """Return whether the elements have no gaps, with the last axis dense."""
        return bool(self._numbers().flags.c_contiguous)

    def is_f_contiguous(self) -> bool:
        """Return whether the elements have no gaps, with the first axis dense."""
        return bool(self._numbers().flags.f_contiguous)

    def __getitem__(self, key: Any) -> "DeviceArray":
        """A view, by numbers, slices, `...` and None; numbers alone give an array without axes."""
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if one is not None and one is not ... and not isinstance(one, slice) and (
                    isinstance(one, bool) or not hasattr(one, "__index__") or getattr(one, "ndim", False)):
                raise TypeError(f"an index is {one!r}: expected a number, a slice, ... or None; take others with a kernel")
        return self._view(self._numbers()[keys if ... in keys else (*keys, ...)])

    def reshape(self, *shape: Any, order: str = "C") -> "DeviceArray":
        """Return a view of another shape; one extent may be -1. ValueError: it would need a copy."""
        if not (self.is_c_contiguous() if order == "C" else self.is_f_contiguous()):
            raise ValueError(f"the array is not contiguous in order {order!r}: a view cannot have another shape")
        return self._view(self._numbers().reshape(*shape, order=order))

    def ravel(self, order: str = "C") -> "DeviceArray":
        """Return a view with one axis. ValueError: it would need a copy."""
        return self.reshape(-1, order=order)

    @property
    def T(self) -> "DeviceArray":
        """A view with the axes reversed."""
        return self._view(self._numbers().T)

    def _dense(self) -> Optional["DeviceArray"]:
        """The same memory in C order, if it has no gaps."""
        return self if self.is_c_contiguous() else self.T if self.is_f_contiguous() else None

    def copy_to_host(self, ary: Any = None, stream: Any = None) -> Any:
        """Copy to a NumPy array: `ary`, of the same shape and dtype, or a new one in the same order.

        With a stream the copy is queued. An array with gaps, or of another order than `ary`, is copied through the
        host, and cannot be queued: ValueError with a stream.
        """
        import numpy

        out = numpy.empty(self.shape, self.dtype, "F" if self.is_f_contiguous() else "C") if ary is None else ary
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError(f"ary is {out.dtype} {out.shape}, the array {self.dtype} {self.shape}")
        dense = self._dense()
        order = "C" if dense is self else "F"
        if dense is not None and (out.flags.c_contiguous if order == "C" else out.flags.f_contiguous):
            copy(out if order == "C" else out.T, dense, stream=stream)
            return out
        if stream is not None:
            raise ValueError("the array has gaps, or another order than ary: copy it without a stream")
        if self.nbytes:
            low, high = _extent(self)
            part = read_bytes(self.handle + low, high - low, self.device)
            out[...] = numpy.ndarray(self.shape, self.dtype, part, -low, self.strides)
        return out

    def copy_to_device(self, ary: Any, stream: Any = None) -> None:
        """Copy `ary`, on the host or a GPU, into this array, which has no gaps; with a stream the copy is queued."""
        if hasattr(ary, "__cuda_array_interface__"):
            copy(self, ary, stream=stream)
        else:
            to_device(ary, to=self, stream=stream)

    get, set = copy_to_host, copy_to_device  # as PyCUDA and CuPy call them


def _extent(array: DeviceArray) -> Tuple[int, int]:
    """The bytes that the elements lie in, counted from the first element."""
    steps = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + array.dtype.itemsize


def empty(shape: Any, dtype: Any = "float64", device: int = 0, *, order: str = "C") -> DeviceArray:
    """Return uninitialised memory on a GPU."""
    return DeviceArray(shape, dtype, device, order=order)


def zeros(
    shape: Any, dtype: Any = "float64", device: int = 0, *, order: str = "C", stream: Any = None
) -> DeviceArray:
    """Return memory on a GPU that is set to 0; with a stream that is queued."""
    made = DeviceArray(shape, dtype, device, order=order)
    if made.nbytes:
        on = _pointer(handle_of(stream))
        with Device(device):
            _call("cuMemsetD8Async", ctypes.c_uint64(made.handle), 0, _size(made.nbytes), on)
            if stream is None:
                _call("cuStreamSynchronize", on)
    return made


def _like(values: Any, device: Optional[int]) -> Tuple[Any, Any, int, str]:
    """(shape, dtype, device, order) of another array of a GPU or the host."""
    import numpy

    there = getattr(values, "__cuda_array_interface__", None)
    if there is None:
        values = numpy.asarray(values)
    else:
        pointer = there["data"][0]
        if device is None and pointer:
            device = pointer_device(pointer)
        values = _numbers_at(pointer or 1, there["shape"], there["typestr"], there.get("strides"))
    dense = values.flags.f_contiguous and not values.flags.c_contiguous
    return values.shape, values.dtype, device or 0, "F" if dense else "C"


def empty_like(values: Any, device: Optional[int] = None) -> DeviceArray:
    """Return uninitialised memory of another array's shape, dtype and order, on its GPU."""
    shape, dtype, device, order = _like(values, device)
    return DeviceArray(shape, dtype, device, order=order)


def zeros_like(values: Any, device: Optional[int] = None, *, stream: Any = None) -> DeviceArray:
    """Return what empty_like() returns, set to 0."""
    shape, dtype, device, order = _like(values, device)
    return zeros(shape, dtype, device, order=order, stream=stream)


def to_device(values: Any, *, device: int = 0, stream: Any = None, to: Optional[DeviceArray] = None) -> DeviceArray:
    """Copy a NumPy array to a GPU, in its order: to a new array, or to `to`, of the same shape and dtype.

    With a stream the copy is queued: keep `values` until it is done.
    """
    import numpy

    values = numpy.asarray(values)
    if not (values.flags.c_contiguous or values.flags.f_contiguous):
        if stream is not None:
            raise ValueError("with a stream the values must be contiguous: copy them into C order first")
        values = numpy.ascontiguousarray(values)
    order = "C" if values.flags.c_contiguous else "F"
    made = DeviceArray(values.shape, values.dtype, device, order=order) if to is None else to
    if made.shape != values.shape or made.dtype != values.dtype:
        raise ValueError(f"to is {made.dtype} {made.shape}, the values {values.dtype} {values.shape}")
    turned = made.is_f_contiguous() and not made.is_c_contiguous()
    target, source = (made.T, values.T) if turned else (made, values)
    copy(target, numpy.ascontiguousarray(source), stream=stream)
    return made


@contextlib.contextmanager
def _pinned_block(arrays: Tuple[Any, ...], device: int = 0) -> Iterator[None]:
    with contextlib.ExitStack() as done:
        for array in arrays:
            if not (array.flags.c_contiguous or array.flags.f_contiguous):
                raise ValueError("an array to be pinned has gaps: pin the array that it is a view of")
            pointer = array.__array_interface__["data"][0]
            if array.nbytes:
                with Device(device):
                    _call("cuMemHostRegister_v2", _pointer(pointer), _size(array.nbytes), 1)  # PORTABLE
                done.callback(_unpin, device, pointer)
        yield


def _unpin(device: int, pointer: int) -> None:
    with Device(device):
        _call("cuMemHostUnregister", _pointer(pointer))


def _pinned_array(shape: Any, dtype: Any = "float64", device: int = 0) -> Any:
    import numpy

    dtype = numpy.dtype(dtype)
    extents, count = _count(shape, dtype.itemsize)
    pointer = ctypes.c_void_p()
    with Device(device):
        _call("cuMemHostAlloc", ctypes.byref(pointer), _size(max(count, 1)), 1)  # PORTABLE
    memory: Any = (ctypes.c_ubyte * max(count, 1)).from_address(pointer.value or 0)
    memory.owner = _Owned(device, "cuMemFreeHost", pointer.value or 0)  # lives as long as the memory
    return numpy.frombuffer(memory, "u1", count).view(dtype).reshape(extents)


def pinned(*arguments: Any, **options: Any) -> Any:
    """Page-lock host memory, so that copies run while other work does.

    pinned(shape, dtype="float64", device=0) returns a new NumPy array in page-locked memory. pinned(*arrays, device=0)
    is a context manager, which page-locks existing NumPy arrays for its block:

        with cuda.pinned(left, right):
            cuda.to_device(left, stream=stream)
            stream.synchronize()

    Copies from and to them must be done before the block ends. CudaError: an array is page-locked already.
    """
    import numpy

    if arguments and all(isinstance(one, numpy.ndarray) for one in arguments):
        return _pinned_block(arguments, **options)
    return _pinned_array(*arguments, **options)


def _place(value: Any, writing: bool) -> Tuple[int, int, Any]:
    """(address, bytes, the owner to keep) of one side of a copy."""
    if hasattr(value, "__cuda_array_interface__"):
        there = CudaArray(value)
        if there.strides is not None:
            raise ValueError("the memory is not contiguous: copy it into C order first")
        if writing and value.__cuda_array_interface__["data"][1]:
            raise ValueError("the target is read-only")
        return there.pointer, there.nbytes, there
    import numpy

    array = numpy.asarray(value)
    if not array.flags.c_contiguous:
        raise ValueError("the memory is not contiguous: copy it into C order first")
    if writing and (array is not value or not array.flags.writeable):
        raise ValueError("the target is read-only, or no array")
    return array.__array_interface__["data"][0], array.nbytes, array


def copy(target: Any, source: Any, *, stream: Any = None) -> None:
    """Copy between any two host and GPU arrays of the same number of bytes.

    Without a stream the copy is done when the call returns. With a stream it is queued: keep both arrays until it is
    done. With pageable host memory the call may wait all the same: see pinned().
    """
    to, room, keep_to = _place(target, True)
    from_, count, keep_from = _place(source, False)
    if room != count:
        raise ValueError(f"the target has {room} bytes, the source {count}")
    if count == 0:
        return
    there, here = pointer_device(to), pointer_device(from_)
    if there is None and here is None:
        ctypes.memmove(to, from_, count)
        return
    on = _pointer(handle_of(stream))
    with Device(there if there is not None else here or 0):
        if there is None:
            _call("cuMemcpyDtoHAsync_v2", _pointer(to), ctypes.c_uint64(from_), _size(count), on)
        elif here is None:
            _call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), _pointer(from_), _size(count), on)
        else:
            _call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(from_), _size(count), on)
        if stream is None:
            _call("cuStreamSynchronize", on)
    del keep_to, keep_from


__all__ = [
    "CudaError", "Device", "DeviceArray", "Event", "LEGACY_STREAM", "PER_THREAD_STREAM", "Stream", "copy",
    "defer_cleanup", "devices", "empty", "empty_like", "is_available", "pinned", "pointer_device", "to_device", "zeros",
    "zeros_like",
]
