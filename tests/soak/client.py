"""libgpubuf by ctypes, as far as the killing test needs it. A failure is a negative code."""

import ctypes
import json
import os
import sys
from ctypes import byref, c_bool, c_char_p, c_int, c_uint64
from ctypes import c_void_p
from pathlib import Path

for room in ("gpu", "integration"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / room))

from library import ConnectOptions, CreateOptions, LayoutSpec, OpenOptions  # noqa: E402

NOT_FOUND, NO_SPACE, DENIED, BUSY, TIMEOUT = -32001, -32003, -32004, -32005, -32006
STALE, UNSUPPORTED, CONNECT, CLOSED = -32007, -32010, -2, -3
NO_CACHE = -1  # the leases that the daemon tells are those that clients hold


def load(path):
    library = ctypes.CDLL(os.fspath(path))
    library.gpubuf_errmsg.restype = c_char_p
    library.gpubuf_name.restype = c_char_p
    for name in ("gpubuf_length", "gpubuf_object_version", "gpubuf_session"):
        getattr(library, name).restype = c_uint64
    library.gpubuf_is_stale.restype = c_bool
    library.gpubuf_read.argtypes = [c_void_p, c_int, c_uint64, c_void_p, c_uint64, c_void_p]
    library.gpubuf_write.argtypes = library.gpubuf_read.argtypes
    library.gpubuf_release.restype = None
    library.gpubuf_disconnect.restype = None
    library.gpubuf_free.restype = None
    library.gpubuf_free.argtypes = [c_void_p]
    return library


class Client:
    def __init__(self, library, path, device):
        self.library = library
        self.device = device.encode()
        self.handle = c_void_p()
        options = ConnectOptions(size=ctypes.sizeof(ConnectOptions), path=path.encode(),
                                 timeout_ms=30000, cache_leases=NO_CACHE)
        code = library.gpubuf_connect(byref(self.handle), byref(options))
        if code < 0:
            raise RuntimeError(f"connect: {self.why()}")

    def why(self):
        return self.library.gpubuf_errmsg(self.handle or None).decode(errors="replace")

    def _options(self, mode, wait_ms):
        return CreateOptions(size=ctypes.sizeof(CreateOptions), device=self.device, mode=mode,
                             replace=True, wait_ms=wait_ms)

    def create(self, name, count, mode, wait_ms):
        """An object, or a code."""
        made = c_void_p()
        layout = LayoutSpec(kind=0, bytes=count)
        code = self.library.gpubuf_create(self.handle, name.encode(), byref(layout),
                                          byref(self._options(mode, wait_ms)), byref(made))
        return made if code == 0 else code

    def write(self, made, offset, address, count):
        return self.library.gpubuf_write(made, 0, offset, address, count, None)

    def read(self, made, address, count):
        return self.library.gpubuf_read(made, 0, 0, address, count, None)

    def seal(self, made):
        return self.library.gpubuf_seal(made, None)

    def open(self, name, wait_ms):
        made = c_void_p()
        options = OpenOptions(size=ctypes.sizeof(OpenOptions), wait_ms=wait_ms)
        code = self.library.gpubuf_open(self.handle, name.encode(), byref(options), byref(made))
        return made if code == 0 else code

    def length(self, made):
        return self.library.gpubuf_length(made)

    def identity(self, made):
        """[name, version]"""
        return [self.library.gpubuf_name(made).decode(), self.library.gpubuf_object_version(made)]

    def is_stale(self, made):
        return self.library.gpubuf_is_stale(made)

    def release(self, made):
        self.library.gpubuf_release(made)

    def register(self, name, fd, count, mode):
        layout = f'{{"kind":"bytes","bytes":{count},"data":{{"handle":0,"offset":0,"bytes":{count}}}}}'
        return self.library.gpubuf_register_memfd(self.handle, name.encode(), fd, c_uint64(count),
                                                  layout.encode(), byref(self._options(mode, 0)))

    def call(self, method, **params):
        """A code."""
        result = c_void_p()
        code = self.library.gpubuf_call(self.handle, method.encode(), json.dumps(params).encode(), 30000, byref(result))
        if code == 0:
            self.library.gpubuf_free(result)
        return code

