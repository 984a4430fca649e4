"""A process of its own that uses a GPU and speaks to the daemon, by order of a check.

Reads lines of JSON from standard input, [method, arguments, keywords], calls that method of `Work`,
and answers each with a line, {"result"} or {"error", "name"}. Ends with its input, without ceremony.
"""

import base64
import ctypes
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu_driver as cuda  # noqa: E402
from peer import Peer, RpcError, Segment  # noqa: E402


def gpu_kernels():
    """kernels.cu as nvcc made it; None without nvcc."""
    path = os.environ.get("GPUBUF_GPU_KERNELS")
    return Path(path).read_bytes() if path else None


class Session(Peer):
    """A peer that is given memory of GPUs."""

    def _keep_segments(self, message):
        result = message.get("result")
        segments = result.get("segments") if isinstance(result, dict) else None
        used = 0
        for info in segments if isinstance(segments, list) else []:
            handle = info["handle"]
            fd = message["_fds"][handle["fd"]] if "fd" in handle else -1
            used += fd >= 0
            segment = Segment(info, fd)
            segment.handle = handle
            old = self.segments.pop((segment.id, segment.access), None)
            if old:
                old.close()
            self.segments[(segment.id, segment.access)] = segment
        assert used == len(message["_fds"]), "descriptors that no segment uses"


class Mapping:
    def __init__(self, pointer, count, writable, unmap):
        self.pointer = pointer
        self.bytes = count
        self.writable = writable
        self.unmap = unmap


class Work:
    """Orders that a check may give."""

    def __init__(self):
        self.cu = None
        self.kernels = None  # the compiled kernels, where they were read early
        self.peer = None
        self.mappings = {}  # (segment, access) -> Mapping
        self.objects = {}  # name -> result of create or open
        self.kept = {}  # what a later order refers to, by name

    # ---- the device ----

    def start(self, ordinal=0):
        """cuInit and a context; the GPUs that this process sees."""
        if self.kernels is None:
            self.kernels = gpu_kernels()
        self.init()
        self.cu.enter(ordinal)
        return self.cu.devices()

    def become(self, uid):
        """Another user, from now on; before anything else."""
        self.kernels = gpu_kernels()  # while they can be read
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    def init(self):
        self.cu = cuda.Driver(self.kernels)
        self.cu.cuInit(0)
        return self.cu.devices()

    def free(self):
        return self.cu.free_bytes()

    def about(self):
        version = ctypes.c_int()
        self.cu.cuDriverGetVersion(ctypes.byref(version))
        return {"cuda": version.value, "names": [self.cu.device_name(i)
                                                 for i in range(len(self.cu.devices()))]}

    # ---- the daemon ----

    def connect(self, path):
        self.peer = Session(path)
        return self.peer.call("hello", protocol=1, client="gpu-check")

    def call(self, method, **params):
        return self.peer.call(method, **params)

    def notified(self, method):
        """The params of the next notification of that name."""
        return self.peer.notification(method)["params"]

    # ---- objects ----

    def map_segment(self, ident, access="r", ordinals=None):
        """The mapping of a segment; its descriptor is closed, as it is no longer needed."""
        for key in ((ident, "rw"), (ident, access)):
            if key in self.mappings:
                return self.mappings[key]
        segment = self.peer.segments[(ident, access)]
        if segment.handle["kind"] == "cuda_ipc":
            pointer = self.cu.ipc_open(base64.b64decode(segment.handle["ipc"]))
            unmap = lambda: self.cu.cuIpcCloseMemHandle(pointer)  # noqa: E731
        else:
            flags = cuda.READWRITE if access == "rw" else cuda.READ
            handle = self.cu.import_fd(segment.fd)
            os.close(segment.fd)
            segment.fd = -1
            pointer = self.cu.map(handle, segment.bytes, flags, ordinals)
            unmap = lambda: self.cu.unmap(pointer, segment.bytes)  # noqa: E731
        self.mappings[(ident, access)] = Mapping(pointer, segment.bytes, access == "rw", unmap)
        return self.mappings[(ident, access)]

    def buffer(self, name, which="data", access="r", ordinals=None):
        """Address and size of a buffer of an object that is open."""
        where = self.objects[name]["object"]["layout"][which]
        mapping = self.map_segment(where["segment"], access, ordinals)
        assert where["offset"] + where["bytes"] <= mapping.bytes
        return mapping.pointer + where["offset"], where["bytes"]

    def create(self, name, layout, **params):
        """Returns `object`; its segments are mapped for writing."""
        if isinstance(layout, int):
            layout = {"kind": "bytes", "bytes": layout}
        self.objects[name] = self.peer.call("create", name=name, layout=layout, **params)
        self.buffer(name, access="rw")
        return self.objects[name]["object"]

    def seal(self, name, release=True, **params):
        lease = self.objects[name]["lease"]
        return self.peer.call("seal", lease=lease, release=release, **params)["version"]

    def put(self, name, count, value, **params):
        """An object of `count` bytes, all of them `value`, by a kernel."""
        self.create(name, count, **params)
        self.fill(name, value)
        self.seal(name)

    def open(self, name, ordinals=None, **params):
        self.objects[name] = self.peer.call("open", name=name, **params)
        for where in self.objects[name]["object"]["layout"].values():
            if isinstance(where, dict) and "segment" in where:
                self.map_segment(where["segment"], "r", ordinals)
        return self.objects[name]["object"]

    def open_many(self, names):
        """Opens them in one call; how many segments that took."""
        result = self.peer.call("open", names=names)
        for name, item in zip(names, result["objects"]):
            assert "error" not in item, item
            self.objects[name] = item
            self.buffer(name)
        return len(result["segments"])

    def release(self, *names):
        self.peer.call("release", leases=[self.objects.pop(name)["lease"] for name in names])

    def unmap(self, tell=True):
        """Unmaps everything, and says so."""
        segments = sorted({ident for ident, _ in self.mappings})
        for mapping in self.mappings.values():
            mapping.unmap()
        self.mappings.clear()
        for segment in self.peer.segments.values():
            segment.close()
        self.peer.segments.clear()
        if tell and segments:
            self.peer.call("unmap", segments=segments)

    def forget(self):
        """The daemon is gone, and with it the session: unmaps everything, and tells nobody."""
        self.unmap(tell=False)
        self.objects.clear()
        self.peer.close()

    # ---- work on the device ----

    def fill(self, name, value):
        self.cu.fill(*self.swap(name, value, "rw"))
        self.cu.cuCtxSynchronize()

    def swap(self, name, value, access):
        pointer, count = self.buffer(name, access=access)
        return pointer, value, count

    def write_column(self, name, values, mask=None):
        """The doubles and the bitmap (in hexadecimal) of a column that is being made."""
        pointer, _ = self.buffer(name, access="rw")
        self.cu.write(pointer, (ctypes.c_double * len(values))(*values))
        if mask:
            self.cu.write(self.buffer(name, "mask", "rw")[0], bytes.fromhex(mask))

    def sum(self, name):
        """The sum of the object's bytes, added up by a kernel."""
        return self.cu.sum(*self.buffer(name))

    def column_sum(self, name):
        layout = self.objects[name]["object"]["layout"]
        mask = self.buffer(name, "mask")[0] if "mask" in layout else 0
        data, offset = self.buffer(name)[0], layout.get("offset", 0)
        return self.cu.column_sum(data, mask, offset, layout["length"])

    def try_to_write(self, name, how):
        """The name of the driver's answer to an attempt to change an object."""
        pointer, count = self.buffer(name)
        if how == "kernel":
            try:
                self.cu.fill(pointer, 0xEE, count)
            except cuda.CudaError as error:
                return error.name
            return self.cu.result("cuCtxSynchronize")
        if how == "HtoD":
            result = self.cu.result("cuMemcpyHtoD", pointer, b"x" * 64, 64)
        elif how == "DtoD":
            result = self.cu.result("cuMemcpyDtoD", pointer, self.cu.allocate(4096), 4096)
        else:
            result = self.cu.result("cuMemsetD8Async", pointer, 0xEE, 4096, 0)
        return result if result != "CUDA_SUCCESS" else self.cu.result("cuCtxSynchronize")

    # ---- order ----

    def begin_slow_seal(self, name, value):
        """Queues a kernel that waits at a gate, one that fills the object, and an event; seals
        at once. Returns the seconds that this took."""
        stream, gate = self.cu.stream(), self.cu.pinned(4)
        event, octets = self.cu.event()
        started = time.monotonic()
        self.cu.wait_gate(gate, stream)
        self.cu.fill(*self.swap(name, value, "rw"), stream)
        self.cu.cuEventRecord(event, stream)
        self.seal(name, release=False, ready=base64.b64encode(octets).decode())
        self.kept["slow"] = (stream, gate)
        return time.monotonic() - started

    def open_gate(self):
        """Lets the kernel go on, and waits for the work behind it."""
        stream, gate = self.kept.pop("slow")
        ctypes.c_int.from_address(gate).value = 1
        self.cu.cuStreamSynchronize(stream)

    def begin_sum(self, name, wait):
        """Queues a sum on a stream of its own that waits, or not, until the object is ready.
        Returns the seconds that this took."""
        started = time.monotonic()
        stream = self.cu.stream()
        if wait:
            octets = base64.b64decode(self.objects[name]["object"]["ready"])
            self.cu.cuStreamWaitEvent(stream, self.cu.open_event(octets), 0)
        self.kept["sum"] = (stream, self.cu.sum_async(*self.buffer(name), stream))
        return time.monotonic() - started

    def sum_is_done(self):
        answer = self.cu.result("cuStreamQuery", self.kept["sum"][0])
        assert answer in ("CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"), answer
        return answer == "CUDA_SUCCESS"

    def end_sum(self):
        stream, result = self.kept.pop("sum")
        self.cu.cuStreamSynchronize(stream)
        return result()

    # ---- memory of one's own ----

    def own_fd(self, count, value, handle_types=cuda.FD):
        """Memory of cuMemCreate, filled; mapped here as "own", its descriptor kept."""
        handle = self.cu.create(count, self.cu.ordinal, handle_types)
        self.kept["fd"] = self.cu.export(handle)
        self.kept["own"] = (self.cu.map(handle, count, cuda.READWRITE), count)
        self.cu.fill(self.kept["own"][0], value, count)
        self.cu.cuCtxSynchronize()

    def own_ipc(self, count, value):
        """Memory of cuMemAlloc, filled; its handle as base64."""
        pointer = self.cu.allocate(count)
        self.kept["own"] = (pointer, count)
        self.cu.fill(pointer, value, count)
        self.cu.cuCtxSynchronize()
        return base64.b64encode(self.cu.ipc_handle(pointer)).decode()

    def fill_own(self, value, offset=0, count=None):
        pointer, whole = self.kept["own"]
        self.cu.fill(pointer + offset, value, whole - offset if count is None else count)
        self.cu.cuCtxSynchronize()

    def free_own(self):
        self.cu.cuMemFree(self.kept.pop("own")[0])

    def register(self, name, layout, handles, file=None, **params):
        """`register`, with the descriptor of own_fd, or of a file, where a handle says "fd"."""
        fds = []
        if any("fd" in handle for handle in handles):
            fds = [self.kept["fd"] if file is None else self.some_file(file)]
        return self.peer.call("register", fds=fds, name=name, layout=layout, handles=handles,
                              **params)

    def some_file(self, file):
        if file == "memfd":
            fd = os.memfd_create("not a GPU's")
            os.ftruncate(fd, cuda.GRANULE)
            return fd
        return os.open(file, os.O_RDWR)

    def open_ipc(self, text):
        """The driver's answer to the attempt to open a handle."""
        pointer = ctypes.c_uint64()
        handle = cuda.Handle64.from_buffer_copy(base64.b64decode(text))
        return self.cu.result("cuIpcOpenMemHandle", ctypes.byref(pointer), handle, 1)

    # ---- more, in other modules ----

    def run(self, module, function, *arguments, **keywords):
        """function(work, …) of a module beside this one."""
        return getattr(importlib.import_module(module), function)(self, *arguments, **keywords)


def main():
    # A framework's own output must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work = Work()
    for line in sys.stdin:
        method, arguments, keywords = json.loads(line)
        try:
            answer = {"result": getattr(work, method)(*arguments, **keywords)}
        except Exception as error:  # noqa: BLE001  (told to who ordered it)
            traceback.print_exc()
            kind = error.kind if isinstance(error, RpcError) else type(error).__name__
            answer = {"error": str(error) or kind, "name": getattr(error, "name", kind)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.flush()
    os._exit(0)  # without tearing down what a failed context cannot tear down


if __name__ == "__main__":
    main()
