#!/usr/bin/env python3
"""Opens a column that lies on a GPU and reads it there, or publishes one, with nothing but a socket,
JSON, a descriptor and the CUDA driver.

    examples/raw_cuda.py NAME [COLUMN]    (NAME a column of float64 or int64, or a table that has one)
    examples/raw_cuda.py --put NAME COUNT    publishes the numbers from 0 to COUNT - 1 as float64

With CuPy the work is done on the GPU; without it values are copied to the host. The twenty lines of
protocol are those of raw.py, once more, so that each example can be read and copied as one file.
"""
import array, ctypes, json, os, socket, sys

try:
    import cupy
except ImportError:
    cupy = None

# ---- the protocol: a line of JSON each way, descriptors with the first byte ----

daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def call(method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    daemon.sendall(json.dumps(request).encode() + b"\n")
    line, descriptors = b"", array.array("i")
    while not line.endswith(b"\n"):
        data, extras, flags, _ = daemon.recvmsg(65536, socket.CMSG_SPACE(16 * 4))
        if not data or flags & socket.MSG_CTRUNC:
            sys.exit("the daemon closed the connection")
        line += data
        for _, _, payload in extras:
            descriptors.frombytes(payload)
    reply = json.loads(line)
    if "error" in reply:
        sys.exit(reply["error"]["message"])
    return reply["result"], descriptors


# ---- the driver: a descriptor becomes memory of this process ----

cuda = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [(name, ctypes.c_int) for name in ("location_type", "device", "flags")]


def check(result):
    if result:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(result, ctypes.byref(name))
        sys.exit(f"the CUDA driver says {(name.value or b'error').decode()}")


def use_gpu(uuid):
    """Makes the primary context of the GPU with this UUID current, the one that CuPy uses too."""
    check(cuda.cuInit(0))
    count, raw, context = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.c_void_p()
    check(cuda.cuDeviceGetCount(ctypes.byref(count)))
    for ordinal in range(count.value):
        check(cuda.cuDeviceGetUuid_v2(raw, ordinal))
        if bytes(raw).hex() == uuid[4:].replace("-", ""):
            check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal))
            return check(cuda.cuCtxPushCurrent_v2(context)) or ordinal
    sys.exit(f"{uuid} is not visible to this process")


def map_segment(segment, fd, gpu):
    """Maps a segment, for writing if this session may; its address."""
    size, handle, pointer = u64(segment["bytes"]), u64(), u64()
    posix_fd, read, read_write = 1, 1, 3
    check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), posix_fd))
    os.close(fd)
    check(cuda.cuMemAddressReserve(ctypes.byref(pointer), size, u64(0), u64(0), u64(0)))
    check(cuda.cuMemMap(pointer, size, u64(0), handle, u64(0)))
    check(cuda.cuMemRelease(handle))  # the mapping keeps it
    access = Access(1, gpu, read_write if segment["access"] == "rw" else read)
    check(cuda.cuMemSetAccess(pointer, size, ctypes.byref(access), u64(1)))
    return pointer.value


class Values:
    """Numbers on a GPU. CuPy, numba and PyTorch take it as it is: cupy.asarray(values)."""

    def __init__(self, pointer, length, dtype, owner):
        self.pointer, self.length, self.dtype, self.owner = pointer, length, dtype, owner
        typestr = {"float64": "<f8", "int64": "<i8"}[dtype]
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (length,), "typestr": typestr, "data": (pointer, False),
        }

    def to_host(self):
        values = array.array({"float64": "d", "int64": "q"}[self.dtype], bytes(8 * self.length))
        address = ctypes.c_void_p(values.buffer_info()[0])
        check(cuda.cuMemcpyDtoH_v2(address, u64(self.pointer), u64(8 * self.length)))
        return values

    def from_host(self, values):
        address = ctypes.c_void_p(values.buffer_info()[0])
        check(cuda.cuMemcpyHtoD_v2(u64(self.pointer), address, u64(8 * self.length)))


def find_values(result, descriptors, wanted=None):
    """(a column's Values, the address of its mask or None, its first element), by a reply of open or create."""
    layout = result["object"]["layout"]
    columns = layout.get("columns", [layout])
    column = next((c for c in columns if wanted in (None, c.get("name"))), None)
    if column is None or column.get("dtype") not in ("float64", "int64"):
        sys.exit("there is no such column of float64 or int64")
    if result["object"]["share"] != "fd" or result["object"]["device"] == "host":
        sys.exit("the object is not shared by descriptor on a GPU")
    gpu = use_gpu(result["object"]["device"])
    at = {
        s["id"]: map_segment(s, descriptors[s["handle"]["fd"]], gpu) for s in result["segments"]
    }
    first = column.get("offset", 0)
    data, mask = column["data"], column.get("mask")
    pointer = at[data["segment"]] + data["offset"] + 8 * first
    bits = at[mask["segment"]] + mask["offset"] if mask else None
    return Values(pointer, column["length"], column["dtype"], at), bits, first


def read(name, wanted):
    values, mask, first = find_values(*call("open", name=name), wanted)
    valid = [True] * values.length
    if mask is not None:
        bits = ctypes.create_string_buffer((first + values.length + 7) // 8)
        check(cuda.cuMemcpyDtoH_v2(bits, u64(mask), u64(len(bits))))
        rows = range(first, first + values.length)
        valid = [bits.raw[i >> 3] >> (i & 7) & 1 == 1 for i in rows]
    if cupy:
        total = cupy.where(cupy.asarray(valid), cupy.asarray(values), 0).sum().item()
    else:
        total = sum(value for value, good in zip(values.to_host(), valid) if good)
    print(f"{len(valid)} rows, {valid.count(False)} null, sum {total}")


def put(name, count):
    layout = {"kind": "column", "dtype": "float64", "length": count}
    result, descriptors = call("create", name=name, layout=layout)
    values, _, _ = find_values(result, descriptors)
    if cupy:
        cupy.asarray(values)[:] = cupy.arange(count, dtype="float64")
        cupy.cuda.Device().synchronize()  # sealed means written, on the GPU too
    else:
        values.from_host(array.array("d", range(count)))
    call("seal", lease=result["lease"])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    daemon.connect(os.environ.get("GPUBUFD_SOCKET", "/run/gpubufd/gpubufd.sock"))
    if sys.argv[1] == "--put":
        put(sys.argv[2], int(sys.argv[3]))
    else:
        read(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
