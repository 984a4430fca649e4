"""The test's side of shim.c, which makes system calls of a daemon or a client fail."""

import mmap
import os
import pathlib
import shutil
import struct
import subprocess

import device

LIBRARY = device.BUILD / "fault" / "shim.so"
CALLS = ("accept", "memfd", "truncate", "duplicate", "open", "pwrite", "receive", "send", "pidfd",
         "map", "openat")
HEAD = 24  # realtime_ns, most, send_buffer
EACH = 32  # skip, count, error, failed


class Shim:
    """The settings of one process, or of several; a change takes effect at once."""

    def __init__(self, directory):
        # Copied to where there are no blanks, which part the names in LD_PRELOAD.
        self.library = shutil.copy(LIBRARY, directory)
        self.path = pathlib.Path(directory) / "shim"
        self.path.write_bytes(bytes(4096))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)

    def environment(self, alarm_us=0):
        """The environment of the process. Programs with sanitizers must be told to accept a library before theirs."""
        options = os.environ.get("ASAN_OPTIONS", "")
        env = {"LD_PRELOAD": str(self.library), "GPUBUF_SHIM": str(self.path),
               "ASAN_OPTIONS": f"{options}:verify_asan_link_order=0".lstrip(":")}
        if alarm_us:
            env["GPUBUF_SHIM_ALARM"] = str(alarm_us)
        return env

    def _put(self, offset, value):
        struct.pack_into("q", self.map, offset, value)

    def jump(self, seconds):
        """The wall clock is wrong by that much from now on."""
        self._put(0, int(seconds * 1e9))

    def most(self, count):
        """One call receives or sends at most `count` bytes; 0: as many as it likes."""
        self._put(8, count)

    def send_buffer(self, count):
        """Connections accepted from now on have a socket buffer of `count` bytes."""
        self._put(16, count)

    def fail(self, call, error, count=1, skip=0):
        """`skip` of the next calls succeed, then `count` fail."""
        at = HEAD + CALLS.index(call) * EACH
        self._put(at + 8, 0)  # nothing happens while it is being told
        self._put(at, skip)
        self._put(at + 16, error)
        self._put(at + 24, 0)
        self._put(at + 8, count)

    def failed(self, call):
        return struct.unpack_from("q", self.map, HEAD + CALLS.index(call) * EACH + 24)[0]

    def run(self, *command, alarm_us=0, **options):
        """Runs a client program under the shim."""
        return subprocess.run(
            [str(word) for word in command], env={**os.environ, **self.environment(alarm_us)},
            capture_output=True, timeout=120, check=False, **options)
