"""libgpubuf by ctypes, as far as the checks need it: the calls of include/gpubuf.h about GPUs.

Functions that take a worker's `work` run in a worker, by way of Work.run.
"""

import ctypes
import json
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint, c_uint64, c_void_p

import gpu_driver as cuda

CODES = {-32602: "invalid", -32001: "not_found", -32005: "busy", -32009: "device",
         -32010: "unsupported", -32003: "no_space", -2: "connect", -3: "closed"}
KIND_BYTES, DATA = 0, 0


class ConnectOptions(Structure):
    _fields_ = [("size", c_size_t), ("path", c_char_p), ("client_name", c_char_p),
                ("timeout_ms", c_int), ("cache_bytes", c_uint64), ("answer_timeout_ms", c_int),
                ("resume_ms", c_int), ("cache_leases", c_int)]


class CreateOptions(Structure):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("share", c_char_p), ("mode", c_uint),
                ("replace", c_bool), ("ttl_ms", c_int64), ("evict", c_int), ("wait_ms", c_int64)]


class OpenOptions(Structure):
    _fields_ = [("size", c_size_t), ("version", c_uint64), ("wait_ms", c_int64)]


class Memory(Structure):
    _fields_ = [("pointer", c_void_p), ("bytes", c_uint64), ("writable", c_bool)]


class ColumnSpec(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("length", c_uint64), ("offset", c_uint64),
                ("null_count", c_int64), ("mask", c_bool), ("data_bytes", c_uint64),
                ("children", c_void_p), ("child_count", c_size_t), ("metadata", c_void_p)]


class LayoutSpec(Structure):
    _fields_ = [("kind", c_int), ("bytes", c_uint64), ("manifest_bytes", c_uint64), ("dtype", c_char_p),
                ("ndim", c_uint), ("shape", c_void_p), ("mask", c_bool), ("column", ColumnSpec)]


class ArrowSchema(Structure):
    _fields_ = [("format", c_char_p), ("name", c_char_p), ("metadata", c_char_p),
                ("flags", c_int64), ("n_children", c_int64), ("children", c_void_p),
                ("dictionary", c_void_p), ("release", c_void_p), ("private_data", c_void_p)]


class ArrowArray(Structure):
    _fields_ = [("length", c_int64), ("null_count", c_int64), ("offset", c_int64),
                ("n_buffers", c_int64), ("n_children", c_int64), ("buffers", POINTER(c_void_p)),
                ("children", c_void_p), ("dictionary", c_void_p), ("release", c_void_p),
                ("private_data", c_void_p)]


class ArrowDeviceArray(Structure):
    _fields_ = [("array", ArrowArray), ("device_id", c_int64), ("device_type", c_int32),
                ("sync_event", c_void_p), ("reserved", c_int64 * 3)]


class Error(Exception):
    def __init__(self, function, code, text):
        super().__init__(f"{function}: {text}")
        self.name = CODES.get(code, str(code))


class Client:
    def __init__(self, path, library=None):
        self.library = ctypes.CDLL(library or os.environ["GPUBUF_LIBRARY"])
        for name in ("gpubuf_errmsg", "gpubuf_device"):
            getattr(self.library, name).restype = c_char_p
        self.library.gpubuf_length.restype = c_uint64
        self.client = c_void_p()
        options = ConnectOptions(size=ctypes.sizeof(ConnectOptions), path=path.encode())
        self.call("gpubuf_connect", byref(self.client), byref(options))

    def raw(self, function, *arguments):
        words = [c_uint64(a) if isinstance(a, int) and a >= 0 else a for a in arguments]
        return getattr(self.library, function)(*words)

    def call(self, function, *arguments):
        code = self.raw(function, *arguments)
        if code < 0:
            text = self.library.gpubuf_errmsg(self.client) or b""
            raise Error(function, code, text.decode())
        return code

    def create(self, name, count, **options):
        layout = LayoutSpec(kind=KIND_BYTES, bytes=count)
        return self._create(name, layout, options)

    def create_column(self, name, dtype, length, mask=False):
        column = ColumnSpec(dtype=dtype.encode(), length=length, null_count=-1, mask=mask)
        return self._create(name, LayoutSpec(kind=2, column=column), {})

    def _create(self, name, layout, options):
        made = c_void_p()
        filled = create_options(options)
        self.call("gpubuf_create", self.client, name.encode(), byref(layout), byref(filled),
                  byref(made))
        return made

    def open(self, name, wait_ms=0):
        made = c_void_p()
        options = OpenOptions(size=ctypes.sizeof(OpenOptions), wait_ms=wait_ms)
        self.call("gpubuf_open", self.client, name.encode(), byref(options), byref(made))
        return made

    def memory(self, made, which=DATA):
        found = Memory()
        self.call("gpubuf_memory", made, which, byref(found))
        return found.pointer or 0, found.bytes, found.writable

    def release(self, made):
        self.library.gpubuf_release(made)

def create_options(options):
    words = {k: v.encode() if isinstance(v, str) else v for k, v in options.items()}
    return CreateOptions(size=ctypes.sizeof(CreateOptions), **words)


# ---- in a worker ----


def connect(work, path):
    work.kept["client"] = Client(path)


def put(work, name, count, value, **options):
    """create, a kernel that fills it, seal, release."""
    client = work.kept["client"]
    made = client.create(name, count, **options)
    pointer, size, writable = client.memory(made)
    assert size == count and writable, (size, writable)
    work.cu.fill(pointer, value, count)
    work.cu.cuCtxSynchronize()
    client.call("gpubuf_seal", made, None)
    client.release(made)


def open_and_sum(work, name, keep=False):
    """[sum by a kernel, whether it is writable, its device, its ordinal]"""
    client = work.kept["client"]
    made = client.open(name)
    pointer, size, writable = client.memory(made)
    found = [work.cu.sum(pointer, size), writable, client.library.gpubuf_device(made).decode(),
             client.raw("gpubuf_device_ordinal", made)]
    if keep:
        work.kept[name] = made
    else:
        client.release(made)
    return found


def release_kept(work, name):
    work.kept["client"].release(work.kept.pop(name))


def write_kernel(work, name):
    """The driver's answer to a kernel that writes to an object that is kept open."""
    pointer, size, _ = work.kept["client"].memory(work.kept[name])
    work.cu.fill(pointer, 1, size)
    return work.cu.result("cuCtxSynchronize")


def put_bytes(work, name, count, value, where):
    """gpubuf_put_bytes of device or host memory."""
    client = work.kept["client"]
    if where == "device":
        source = work.cu.allocate(count)
        work.cu.fill(source, value, count)
        work.cu.cuCtxSynchronize()
    else:
        keep = ctypes.create_string_buffer(bytes([value]) * count, count)
        source = ctypes.addressof(keep)
    client.call("gpubuf_put_bytes", client.client, name.encode(), source, count, None)


def copy(work, name, count):
    """gpubuf_write in two halves from host and device, on a stream and not; seals; gpubuf_read of
    both into host memory. [first half's sum, second's, whether writing is refused now]"""
    client, half = work.kept["client"], count // 2
    made = client.create(name, count)
    host = ctypes.create_string_buffer(bytes([3]) * half, half)
    device = work.cu.allocate(half)
    work.cu.fill(device, 4, half)
    work.cu.cuCtxSynchronize()
    stream = c_void_p(work.cu.stream())
    client.call("gpubuf_write", made, DATA, 0, host, half, None)
    client.call("gpubuf_write", made, DATA, half, device, half, stream)
    work.cu.cuStreamSynchronize(stream)
    client.call("gpubuf_seal", made, None)
    back = ctypes.create_string_buffer(count)
    client.call("gpubuf_read", made, DATA, 0, back, half, None)
    client.call("gpubuf_read", made, DATA, half, ctypes.addressof(back) + half, half, stream)
    work.cu.cuStreamSynchronize(stream)
    refused = client.raw("gpubuf_write", made, DATA, 0, host, half, None)
    past = client.raw("gpubuf_read", made, DATA, 1, back, count, None)
    client.release(made)
    return [sum(back.raw[:half]), sum(back.raw[half:]), CODES.get(refused), CODES.get(past)]


def begin_slow_seal(work, name, count, old, new):
    """As Work.begin_slow_seal, by gpubuf_seal_on: the object holds `old` until the gate opens."""
    client = work.kept["client"]
    made = client.create(name, count)
    pointer = client.memory(made)[0]
    work.cu.fill(pointer, old, count)
    work.cu.cuCtxSynchronize()
    stream, gate = work.cu.stream(), work.cu.pinned(4)
    work.cu.wait_gate(gate, stream)
    work.cu.fill(pointer, new, count, stream)
    client.call("gpubuf_seal_on", made, None, c_void_p(stream))
    work.kept["slow"] = (stream, gate)
    work.kept[name] = made


def dispatch(work):
    work.kept["client"].call("gpubuf_dispatch", work.kept["client"].client)


def begin_sum(work, name, wait):
    """As Work.begin_sum, by gpubuf_wait_ready."""
    client = work.kept["client"]
    made = client.open(name)
    stream = work.cu.stream()
    if wait:
        client.call("gpubuf_wait_ready", made, c_void_p(stream))
    work.kept[name] = made
    work.kept["sum"] = (stream, work.cu.sum_async(*client.memory(made)[:2], stream))


def release_on(work, name):
    """Releases an object while a stream of ours still waits at a gate; opens the gate."""
    client = work.kept["client"]
    stream, gate = work.cu.stream(), work.cu.pinned(4)
    made = client.open(name)
    work.cu.wait_gate(gate, stream)
    work.kept["release"] = (stream, gate)
    client.call("gpubuf_release_on", made, c_void_p(stream))


def end_release(work):
    stream, gate = work.kept.pop("release")
    ctypes.c_int.from_address(gate).value = 1
    work.cu.cuStreamSynchronize(stream)


def register(work, name, kind, count, value, offset=0):
    """gpubuf_register_device of memory of our own of some kind."""
    cu, pointer = work.cu, c_uint64()
    if kind == "vmm":
        pointer.value = cu.map(cu.create(count), count, cuda.READWRITE)
    elif kind == "vmm, not exportable":
        pointer.value = cu.map(cu.create(count, handle_types=0), count, cuda.READWRITE)
    elif kind == "alloc":
        pointer.value = cu.allocate(count)
    elif kind == "managed":
        cu.cuMemAllocManaged(byref(pointer), count, 1)
    elif kind == "stream-ordered":
        cu.cuMemAllocAsync(byref(pointer), count, 0)
    elif kind == "host":
        pointer.value = cu.pinned(count)
    if kind not in ("managed", "host"):
        cu.fill(pointer.value, value, count)
        cu.cuCtxSynchronize()
    work.kept["own"] = (pointer.value, count)
    register_pointer(work, name, pointer.value + offset, count - offset)


def register_pointer(work, name, pointer, count):
    client = work.kept["client"]
    layout = {"kind": "bytes", "bytes": count, "data": {"handle": 0, "offset": 0, "bytes": count}}
    client.call("gpubuf_register_device", client.client, name.encode(), pointer, count,
                json.dumps(layout).encode(), None)


def arrow(work, name, length):
    """A column of float64 by ArrowDeviceArray: what a kernel and the struct's members say."""
    client = work.kept["client"]
    made = client.create_column(name, "float64", length)
    pointer = client.memory(made)[0]
    work.cu.write(pointer, (ctypes.c_double * length)(*range(length)))
    client.call("gpubuf_seal", made, None)
    schema, array = ArrowSchema(), ArrowDeviceArray()
    client.call("gpubuf_export_arrow_device", made, byref(schema), byref(array))
    client.release(made)  # the export holds it
    data = array.array.buffers[1] or 0
    total, _ = work.cu.column_sum(data, 0, array.array.offset, array.array.length)
    found = [schema.format.decode(), array.device_type, array.device_id, array.array.n_buffers,
             bool(array.sync_event), total]
    for struct, where in ((schema, schema), (array.array, array)):
        ctypes.CFUNCTYPE(None, c_void_p)(struct.release)(ctypes.addressof(where))
    return found + [schema.release, array.array.release]


def lacks(_, functions):
    """Which of these functions the library has not."""
    library = ctypes.CDLL(os.environ["GPUBUF_LIBRARY"])
    return [name for name in functions if not hasattr(library, name)]
