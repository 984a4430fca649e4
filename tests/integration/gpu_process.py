"""A process that uses GPUs through the driver alone: see Gpu in device.py.

Reads lines [method, arguments] from the socket whose descriptor is its argument, answers each with
{"result"} or {"error"} and maybe a descriptor, and ends with the socket.
"""

import base64
import contextlib
import ctypes
import json
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import gpu_driver  # noqa: E402


class Process:
    def __init__(self):
        self.cu = gpu_driver.Driver()
        self.cu.cuInit(0)
        self.contexts = {}  # ordinal -> what the device's memory was before, and with, our context
        self.allocated = {}  # handle -> (ordinal, pointer)

    @contextlib.contextmanager
    def current(self, ordinal):
        """While it is so, the device's context is current; what it costs is not anybody else's."""
        if ordinal not in self.contexts:
            context = ctypes.c_void_p()
            self.cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal)
            self.contexts[ordinal] = context
        self.cu.cuCtxPushCurrent(self.contexts[ordinal])
        try:
            yield
        finally:
            self.cu.cuCtxPopCurrent(ctypes.byref(ctypes.c_void_p()))

    def used(self, ordinal):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current(ordinal):
            self.cu.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        own = int(os.environ.get("FAKECUDA_CONTEXT", 8 << 20))
        return total.value - free.value - own

    def create(self, count, ordinal):
        handle = self.cu.create(count, ordinal)
        fd = self.cu.export(handle)
        self.cu.cuMemRelease(handle)
        return None, fd

    def allocate(self, count, byte, ordinal):
        with self.current(ordinal):
            pointer = self.cu.allocate(count)
            self.cu.fill(pointer, byte, count)
            self.cu.cuCtxSynchronize()
            handle = base64.b64encode(self.cu.ipc_handle(pointer)).decode()
        self.allocated[handle] = (ordinal, pointer)
        return handle

    def event(self, milliseconds, ordinal):
        """The handle of an event that comes after so long, if this process is still there."""
        with self.current(ordinal):
            stream = self.cu.stream()
            self.cu.fakecuda_delay(milliseconds, stream)
            event, handle = self.cu.event()
            self.cu.cuEventRecord(event, stream)
        return base64.b64encode(handle).decode()

    def free(self, handle):
        ordinal, pointer = self.allocated.pop(handle)
        with self.current(ordinal):
            self.cu.cuMemFree(pointer)

    @contextlib.contextmanager
    def opened(self, handle, ordinal):
        """The address of another process's memory."""
        with self.current(ordinal):
            pointer = self.cu.ipc_open(base64.b64decode(handle))
            try:
                yield pointer
            finally:
                self.cu.cuIpcCloseMemHandle(pointer)

    def write(self, handle, text, ordinal):
        with self.opened(handle, ordinal) as pointer:
            self.cu.write(pointer, bytes.fromhex(text))

    def read(self, handle, count, ordinal):
        with self.opened(handle, ordinal) as pointer:
            return self.cu.read(pointer, count).hex()


def main():
    peer = socket.socket(fileno=int(sys.argv[1]))
    process = Process()
    for line in peer.makefile("r", encoding="utf-8"):
        method, arguments = json.loads(line)
        fds = []
        try:
            result = getattr(process, method)(*arguments)
            if isinstance(result, tuple):
                result, fd = result
                fds = [fd]
            answer = {"result": result}
        except Exception as error:  # noqa: BLE001  (told to who asked)
            answer = {"error": f"{type(error).__name__}: {error}"}
        socket.send_fds(peer, [json.dumps(answer).encode() + b"\n"], fds)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    main()
