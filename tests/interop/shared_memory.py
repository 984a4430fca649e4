"""multiprocessing.shared_memory over gpubufd's live objects, for CPython's own tests: see test_shared_memory.py.

Each interpreter of the tests imports this first, those that they start with -c and the resource tracker, too.
"""

import functools
import os
from multiprocessing import resource_tracker, shared_memory

import gpubufd

Original = shared_memory.SharedMemory


@functools.lru_cache(None)
def connected(process):
    return gpubufd.connect(os.environ["GPUBUFD_SOCKET"])


def daemon():
    return connected(os.getpid())


def unlink(name):
    try:
        daemon().delete(name[1:])
    except gpubufd.NotFound:
        raise FileNotFoundError(name) from None


class SharedMemory(Original):
    """The original's, but where its memory comes from and goes to."""

    def __init__(self, name=None, create=False, size=0):
        if size < 0 or create and not size:
            raise ValueError("'size' must be a positive number different from zero")
        if name is None and not create:
            raise ValueError("'name' can only be None if create=True")
        self._name = name and "/" + name
        while True:
            tried = self._name or shared_memory._make_filename()
            try:
                self._held = (daemon().create(tried[1:], "uint8", size, live=True) if create
                              else daemon().open(tried[1:], write=True))
                break
            except gpubufd.Exists:
                if name:
                    raise FileExistsError(name) from None
            except gpubufd.NotFound:
                raise FileNotFoundError(name) from None
        self._name, self._size, self._process = tried, self._held.nbytes, os.getpid()
        self._buf = memoryview(self._held).cast("B")
        resource_tracker.register(self._name, "shared_memory")

    @property
    def buf(self):
        if self._process != os.getpid():  # a child of fork: memory for writing is its parent's
            self._held, self._process = daemon().open(self.name, write=True), os.getpid()
            self._buf = memoryview(self._held).cast("B")
        return self._buf

    def close(self):
        self._buf = self._held = None

    def unlink(self):
        unlink(self._name)
        resource_tracker.unregister(self._name, "shared_memory")


shared_memory.SharedMemory = SharedMemory
resource_tracker._CLEANUP_FUNCS["shared_memory"] = unlink
