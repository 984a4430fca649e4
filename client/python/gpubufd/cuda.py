"""The glue around a GPU program: devices, streams, events, pinned memory, copies, and when to free.

    from gpubufd import cuda

    stream = cuda.Stream()
    staging = cuda.pinned((1000,), "float32")      # a NumPy array in page-locked memory
    mine = cuda.to_device(staging, stream=stream)  # has __cuda_array_interface__
    cuda.copy(staging, mine, stream=stream)        # queued
    stream.synchronize()

Everything belongs to the primary context of a device, which CuPy, numba, PyTorch and JAX use too. Needs
the driver (libcuda.so.1) and nothing else; it is loaded when something here is first used. Sizes are in
bytes, device numbers CUDA's ordinals in this process. Errors of the driver are CudaError.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar

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
        """ "GPU-…" (or "MIG-…"), as gpubufd names devices."""
        raw = (ctypes.c_ubyte * 16)()
        _call("cuDeviceGetUuid_v2", ctypes.byref(raw), self._handle)
        digits = bytes(raw).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return ("MIG-" if "MIG " in self.name else "GPU-") + "-".join(parts)

    def memory_info(self) -> Tuple[int, int]:
        """(free, total) bytes of its memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self:
            _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        """Waits for all work in its primary context."""
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
    """Whether there is a driver and at least one device."""
    try:
        return bool(devices())
    except (DeviceError, Unsupported):
        return False


def devices() -> List[Device]:
    """The GPUs that this process sees."""
    count = ctypes.c_int()
    _call("cuDeviceGetCount", ctypes.byref(count))
    return [Device(i) for i in range(count.value)]


def pointer_device(pointer: int) -> Optional[int]:
    """The ordinal of the GPU that an address is on; None: it is memory of the host."""
    kind, ordinal = ctypes.c_uint(), ctypes.c_int()
    library = _driver.load()
    if library.cuPointerGetAttribute(ctypes.byref(kind), _POINTER_MEMORY_TYPE, _pointer(pointer)):
        return None
    if kind.value != 2:  # CU_MEMORYTYPE_DEVICE
        return None
    _call("cuPointerGetAttribute", ctypes.byref(ordinal), _POINTER_DEVICE_ORDINAL, _pointer(pointer))
    return ordinal.value


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
    """Until the end of the `with`, this thread frees no memory, streams and events of this module.

    Freeing memory waits for the device: use this around code that must not wait.
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

    def close(self) -> None:
        """Frees it now."""
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
        """Another library's stream (an object or a handle). close() does not destroy it."""
        made = cls.__new__(cls)
        made.device, made.handle = device, handle_of(stream)
        made._end = lambda: None
        return made

    def __cuda_stream__(self) -> Tuple[int, int]:
        return 0, self.handle

    def synchronize(self) -> None:
        """Waits until the work queued so far is done."""
        with Device(self.device):
            _call("cuStreamSynchronize", _pointer(self.handle))

    def done(self) -> bool:
        """Whether all work queued so far is done."""
        with Device(self.device):
            try:
                _call("cuStreamQuery", _pointer(self.handle))
            except CudaError as error:
                if error.status == _NOT_READY:
                    return False
                raise
        return True

    def record(self, timing: bool = False) -> "Event":
        """A new event, recorded behind the work queued so far."""
        event = Event(self.device, timing=timing)
        event.record(self)
        return event

    def wait(self, event: "Event") -> None:
        """Makes the work queued from now on wait for an event."""
        with Device(self.device):
            _call("cuStreamWaitEvent", _pointer(self.handle), _pointer(event.handle), 0)

    def __int__(self) -> int:
        return self.handle


class Event(_Owned):
    """A mark in a stream."""

    def __init__(self, device: int = 0, *, timing: bool = False):
        handle = ctypes.c_void_p()
        with Device(device):
            _call("cuEventCreate", ctypes.byref(handle), 0 if timing else _EVENT_NO_TIMING)
        super().__init__(device, "cuEventDestroy_v2", handle.value or 0)

    @classmethod
    def at(cls, pointer: int, device: int) -> "Event":
        """The event that an Arrow device array's sync_event points to. close() does not destroy it."""
        made = cls.__new__(cls)
        made.device, made.handle = device, ctypes.c_void_p.from_address(pointer).value or 0
        made._end = lambda: None
        return made

    def record(self, stream: Any = None) -> None:
        """Records the event behind the work queued on a stream so far."""
        with Device(self.device):
            _call("cuEventRecord", _pointer(self.handle), _pointer(handle_of(stream)))

    def synchronize(self) -> None:
        """Waits until the event is reached."""
        with Device(self.device):
            _call("cuEventSynchronize", _pointer(self.handle))

    def done(self) -> bool:
        """Whether the event is reached."""
        with Device(self.device):
            try:
                _call("cuEventQuery", _pointer(self.handle))
            except CudaError as error:
                if error.status == _NOT_READY:
                    return False
                raise
        return True

    def seconds_since(self, earlier: "Event") -> float:
        """Seconds between two events, both made with timing=True and reached."""
        passed = ctypes.c_float()
        with Device(self.device):
            _call("cuEventElapsedTime", ctypes.byref(passed), _pointer(earlier.handle),
                  _pointer(self.handle))
        return passed.value / 1000


def wait_for_event(pointer: int, device: int) -> None:
    """Waits for the event that an Arrow device array's sync_event points to."""
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
    count = itemsize
    for extent in extents:
        count *= extent
    return extents, count


class DeviceArray(_Owned):
    """Memory on a GPU with a shape and a NumPy dtype, in C order; empty() and to_device() make it."""

    def __init__(self, shape: Any, dtype: Any = "float64", device: int = 0):
        import numpy

        self.dtype = numpy.dtype(dtype)
        self.shape, self.nbytes = _count(shape, self.dtype.itemsize)
        pointer = ctypes.c_uint64()
        with Device(device):
            _call("cuMemAlloc_v2", ctypes.byref(pointer), _size(max(self.nbytes, 1)))
        super().__init__(device, "cuMemFree_v2", pointer.value)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "strides": None, "stream": None,
            "data": (self.handle if self.nbytes else 0, False), "version": 3,
        }

    def copy_to_host(self, stream: Any = None) -> Any:
        """A new NumPy array; with a stream the copy is queued there."""
        import numpy

        out = numpy.empty(self.shape, self.dtype)
        copy(out, self, stream=stream)
        return out


def empty(shape: Any, dtype: Any = "float64", device: int = 0) -> DeviceArray:
    """Uninitialised memory on a GPU."""
    return DeviceArray(shape, dtype, device)


def to_device(values: Any, *, device: int = 0, stream: Any = None) -> DeviceArray:
    """A copy of a NumPy array on a GPU; with a stream the copy is queued: keep `values` until it is done."""
    import numpy

    values = numpy.asarray(values)
    if stream is not None and not values.flags.c_contiguous:
        raise ValueError("with a stream the values must be contiguous: copy them into C order first")
    values = numpy.ascontiguousarray(values)
    made = DeviceArray(values.shape, values.dtype, device)
    copy(made, values, stream=stream)
    return made


def pinned(shape: Any, dtype: Any = "float64", device: int = 0) -> Any:
    """A NumPy array in page-locked memory, for copies that run beside other work."""
    import numpy

    dtype = numpy.dtype(dtype)
    extents, count = _count(shape, dtype.itemsize)
    pointer = ctypes.c_void_p()
    with Device(device):
        _call("cuMemHostAlloc", ctypes.byref(pointer), _size(max(count, 1)), 1)  # PORTABLE
    memory: Any = (ctypes.c_ubyte * max(count, 1)).from_address(pointer.value or 0)
    memory.owner = _Owned(device, "cuMemFreeHost", pointer.value or 0)  # lives as long as the memory
    return numpy.frombuffer(memory, "u1", count).view(dtype).reshape(extents)


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
    """Copies between any two of host arrays and GPU arrays of the same number of bytes.

    With a stream the copy is queued: keep both arrays until it is done. With pageable host memory the call may wait
    for the copy all the same: see pinned(). Without a stream the copy is done when the call returns.
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
    "defer_cleanup", "devices", "empty", "is_available", "pinned", "pointer_device", "to_device",
]
