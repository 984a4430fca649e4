"""The CUDA driver by ctypes: its functions, memory that other processes gave, and kernels.

`Driver()` loads libcuda.so.1 (a real one, or tests/fakecuda), and has every function under its plain
name: `cu.cuMemAlloc(…)` raises CudaError, `cu.result("cuMemAlloc", …)` returns the result's name.
"""

import ctypes
from ctypes import Structure, byref, c_char, c_double, c_int, c_size_t, c_ubyte, c_uint
from ctypes import c_uint64, c_ushort, c_void_p

FD = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
READ, READWRITE = 1, 3  # CU_MEM_ACCESS_FLAGS_PROT_…
INTERPROCESS_EVENT = 2 | 4  # CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS
GRANULE = 2 << 20
GATE_LIMIT = 30_000_000_000  # nanoseconds after which a kernel no longer waits

SUFFIXES = {
    "_v2": "cuDevicePrimaryCtxRelease cuCtxPushCurrent cuCtxPopCurrent cuMemGetInfo cuMemAlloc "
    "cuMemFree cuMemGetAddressRange cuMemHostRegister cuMemcpyHtoD cuMemcpyDtoH cuMemcpyDtoD "
    "cuMemcpyHtoDAsync cuMemcpyDtoHAsync cuMemcpyDtoDAsync cuMemsetD8 cuStreamDestroy cuEventDestroy "
    "cuIpcOpenMemHandle cuDeviceTotalMem cuDeviceGetUuid",
}
SYMBOLS = {name: name + suffix for suffix, names in SUFFIXES.items() for name in names.split()}


class Location(Structure):
    _fields_ = [("type", c_uint), ("id", c_int)]


class AllocationFlags(Structure):
    _fields_ = [
        ("compressionType", c_ubyte),
        ("gpuDirectRDMACapable", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class Properties(Structure):
    _fields_ = [
        ("type", c_uint),
        ("requestedHandleTypes", c_uint),
        ("location", Location),
        ("win32HandleMetaData", c_void_p),
        ("allocFlags", AllocationFlags),
    ]


class Access(Structure):
    _fields_ = [("location", Location), ("flags", c_uint)]


class Handle64(Structure):
    """CUipcMemHandle and CUipcEventHandle: 64 octets."""

    _fields_ = [("reserved", c_char * 64)]

    def octets(self):
        return ctypes.string_at(byref(self), 64)


class CudaError(Exception):
    def __init__(self, name, function):
        super().__init__(f"{function}: {name}")
        self.name = name


def exportable(ordinal, handle_types=FD):
    return Properties(1, handle_types, Location(1, ordinal))


class Driver:
    def __init__(self, image=None):
        """`image`: the compiled kernels of kernels.cu, which a fake driver does without."""
        self.image = image
        self.library = ctypes.CDLL("libcuda.so.1")
        self.fake = hasattr(self.library, "fakecuda_fill")
        self.ordinal = None
        self.kernels = None

    def __getattr__(self, name):
        if not name.startswith(("cu", "fakecuda_")):
            raise AttributeError(name)

        def call(*arguments):
            code = self.code(name, *arguments)
            if code:
                raise CudaError(self.name_of(code), name)

        return call

    def code(self, name, *arguments):
        # An int that ctypes is left to itself with would be cut to 32 bits.
        words = [c_uint64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
        return getattr(self.library, SYMBOLS.get(name, name))(*words)

    def result(self, name, *arguments):
        return self.name_of(self.code(name, *arguments))

    def name_of(self, code):
        text = ctypes.c_char_p()
        if self.library.cuGetErrorName(code, byref(text)):
            return f"CUDA_ERROR_{code}"
        return text.value.decode()

    # ---- devices and contexts ----

    def uuid(self, ordinal):
        raw = (c_ubyte * 16)()
        self.cuDeviceGetUuid(raw, ordinal)
        text = bytes(raw).hex()
        name = self.device_name(ordinal)
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return ("MIG-" if "MIG " in name else "GPU-") + "-".join(parts)

    def device_name(self, ordinal):
        name = ctypes.create_string_buffer(128)
        self.cuDeviceGetName(name, 128, ordinal)
        return name.value.decode()

    def devices(self):
        count = c_int()
        self.cuDeviceGetCount(byref(count))
        return [self.uuid(i) for i in range(count.value)]

    def attribute(self, which, ordinal):
        value = c_int()
        self.cuDeviceGetAttribute(byref(value), which, ordinal)
        return value.value

    def enter(self, ordinal=0):
        """The primary context of a device, current in this thread."""
        context = c_void_p()
        self.cuDevicePrimaryCtxRetain(byref(context), ordinal)
        self.cuCtxPushCurrent(context)
        self.ordinal = ordinal
        # All that might wait for the device is done now, not while something is to be timed.
        self.slots = Slots(self)
        if self.image and not self.fake:
            self.kernels = Kernels(self, self.image)

    def free_bytes(self):
        free, total = c_size_t(), c_size_t()
        self.cuMemGetInfo(byref(free), byref(total))
        return free.value

    # ---- memory ----

    def allocate(self, count):
        pointer = c_uint64()
        self.cuMemAlloc(byref(pointer), count)
        return pointer.value

    def create(self, count, ordinal=0, handle_types=FD):
        handle = c_uint64()
        self.cuMemCreate(byref(handle), count, byref(exportable(ordinal, handle_types)), 0)
        return handle.value

    def export(self, handle):
        fd = c_int(-1)
        self.cuMemExportToShareableHandle(byref(fd), handle, FD, 0)
        return fd.value

    def import_fd(self, fd):
        handle = c_uint64()
        self.cuMemImportFromShareableHandle(byref(handle), c_void_p(fd), FD)
        return handle.value

    def map(self, handle, count, flags, ordinals=None):
        """Maps a whole allocation and gives it up: the mapping keeps it."""
        pointer = c_uint64()
        self.cuMemAddressReserve(byref(pointer), count, 0, 0, 0)
        try:
            self.cuMemMap(pointer.value, count, 0, handle, 0)
        except CudaError:
            self.cuMemAddressFree(pointer.value, count)
            raise
        finally:
            self.cuMemRelease(handle)
        try:
            self.set_access(pointer.value, count, flags, ordinals)
        except CudaError:
            self.unmap(pointer.value, count)
            raise
        return pointer.value

    def set_access(self, pointer, count, flags, ordinals=None):
        which = [self.ordinal] if ordinals is None else ordinals
        access = (Access * len(which))(*[Access(Location(1, i), flags) for i in which])
        self.cuMemSetAccess(pointer, count, access, len(which))

    def unmap(self, pointer, count):
        self.cuMemUnmap(pointer, count)
        self.cuMemAddressFree(pointer, count)

    def ipc_handle(self, pointer):
        handle = Handle64()
        self.cuIpcGetMemHandle(byref(handle), pointer)
        return handle.octets()

    def ipc_open(self, octets):
        pointer = c_uint64()
        handle = Handle64.from_buffer_copy(octets)
        self.cuIpcOpenMemHandle(byref(pointer), handle, 1)
        return pointer.value

    def address_range(self, pointer):
        base, count = c_uint64(), c_size_t()
        self.cuMemGetAddressRange(byref(base), byref(count), pointer)
        return base.value, count.value

    def pinned(self, count):
        """Host memory that kernels reach at the same address."""
        pointer = c_void_p()
        self.cuMemHostAlloc(byref(pointer), count, 2)
        ctypes.memset(pointer, 0, count)
        return pointer.value

    def read(self, pointer, count):
        buffer = ctypes.create_string_buffer(count)
        self.cuMemcpyDtoH(buffer, pointer, count)
        return buffer.raw

    def write(self, pointer, data):
        data = bytes(data)
        self.cuMemcpyHtoD(pointer, data, len(data))

    # ---- streams and events ----

    def stream(self):
        stream = c_void_p()
        self.cuStreamCreate(byref(stream), 1)
        return stream.value

    def event(self):
        """An interprocess event, and its 64 octets."""
        event, handle = c_void_p(), Handle64()
        self.cuEventCreate(byref(event), INTERPROCESS_EVENT)
        self.cuIpcGetEventHandle(byref(handle), event)
        return event.value, handle.octets()

    def open_event(self, octets):
        event = c_void_p()
        self.cuIpcOpenEventHandle(byref(event), Handle64.from_buffer_copy(octets))
        return event.value

    # ---- kernels ----

    def launch(self, name, threads, stream, *arguments):
        if self.kernels is None:
            raise RuntimeError("no compiled kernels: nvcc was not found")
        self.kernels.launch(name, threads, stream, arguments)

    def fill(self, pointer, value, count, stream=0):
        if self.fake:
            self.fakecuda_fill(pointer, value, count, stream)
        else:
            self.launch("fill", count, stream, c_uint64(pointer), c_ubyte(value), c_size_t(count))

    def sum_async(self, pointer, count, stream=0):
        """Adds `count` bytes up. Returns a function that reads the sum, once the stream is done."""
        host, device = self.slots.take()
        if self.fake:
            self.fakecuda_sum(pointer, count, host, stream)
        else:
            self.cuMemsetD8Async(device, 0, 8, stream)
            self.launch("sum", count, stream, c_uint64(pointer), c_size_t(count), c_uint64(device))
            self.cuMemcpyDtoHAsync(host, device, 8, stream)
        return lambda: c_uint64.from_address(host).value

    def sum(self, pointer, count):
        result = self.sum_async(pointer, count)
        self.cuCtxSynchronize()
        return result()

    def wait_gate(self, gate, stream):
        """Keeps the stream busy until the int at `gate`, of pinned memory, is not 0."""
        if self.fake:
            self.fakecuda_wait(gate, stream)
        else:
            self.launch("wait_gate", 1, stream, c_uint64(gate), c_uint64(GATE_LIMIT))

    def column_sum(self, data, mask, offset, length):
        """Sum and number of the valid elements of a column of float64."""
        if self.fake:
            values = (c_double * length).from_buffer_copy(self.read(data + offset * 8, length * 8))
            bits = self.read(mask, (offset + length + 7) // 8) if mask else None
            at = range(offset, offset + length)
            valid = [i - offset for i in at if not bits or bits[i >> 3] >> (i & 7) & 1]
            return sum(values[i] for i in valid), len(valid)
        result = self.allocate(16)
        self.write(result, bytes(16))
        words = (c_uint64(data), c_uint64(mask), c_size_t(offset), c_size_t(length))
        self.launch("column_sum", length, 0, *words, c_uint64(result))
        self.cuCtxSynchronize()
        pair = (c_double * 2).from_buffer_copy(self.read(result, 16))
        self.cuMemFree(result)
        return pair[0], int(pair[1])


class Slots:
    """Pairs of 8 bytes, pinned on the host and on the device, for what kernels find out."""

    COUNT = 256

    def __init__(self, cu):
        self.host = cu.pinned(8 * self.COUNT)
        self.device = 0 if cu.fake else cu.allocate(8 * self.COUNT)
        self.taken = 0

    def take(self):
        at = 8 * (self.taken % self.COUNT)
        self.taken += 1
        return self.host + at, self.device + at


class Kernels:
    """The module made of kernels.cu."""

    NAMES = ("fill", "sum", "reduce", "column_sum", "wait_gate")
    THREADS = 256

    def __init__(self, cu, image):
        self.cu = cu
        self.module = c_void_p()
        cu.cuModuleLoadData(byref(self.module), image)
        self.functions = {name: c_void_p() for name in self.NAMES}
        for name, function in self.functions.items():
            cu.cuModuleGetFunction(byref(function), self.module, name.encode())

    def launch(self, name, threads, stream, arguments):
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        blocks = max(1, min(2048, -(-threads // self.THREADS)))
        size = (blocks, 1, 1, self.THREADS, 1, 1)
        function = self.functions[name]
        self.cu.cuLaunchKernel(function, *size, 0, c_void_p(stream), pointers, None)
