"""The device of the suite: host memory, or a simulated GPU.

GPUBUF_TEST_DEVICE=cuda starts every daemon with `--device cuda:0` on the driver of tests/fakecuda, hip with
`--device hip:0` on the same as HIP's. Its descriptors can be mapped as they are: byte 0 of the memory is byte 0 of the file. The daemon, and what
else is under test, gets the driver of its own build (GPUBUF_BUILD), the tests' own processes the one
that was built without sanitizers; they share the devices of FAKECUDA_DIR.
"""

import atexit
import fcntl
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build")).resolve()

KIND = os.environ.get("GPUBUF_TEST_DEVICE", "host")
if KIND not in ("host", "cuda", "hip"):
    raise SystemExit(f"GPUBUF_TEST_DEVICE: expected host, cuda or hip, found {KIND}")
ON_GPU = KIND != "host"

MIB = 1 << 20
UUIDS = [f"HIP-fa4ecada{i:08x}" if KIND == "hip" else f"GPU-fa4ecada-0000-4000-8000-{i:012x}"
         for i in range(4)]  # as fakecuda numbers them

ID = UUIDS[0] if ON_GPU else "host"
OPTION = f"{KIND}:0:64M" if ON_GPU else "host:64M"
SHARES = ["fd", "ipc"] if ON_GPU else ["fd"]
HANDLE = f"{KIND}_fd" if ON_GPU else "memfd"
LEAST = 2 * MIB if ON_GPU else 4096  # bytes of memory of one's own that is registered


def _no_sanitizer():
    """The directory of the driver that any program can load."""
    variants = ("asan", "tsan", "fuzz")
    return (BUILD.parent if BUILD.name in variants else BUILD) / "fakecuda"


def _remove(path):
    shutil.rmtree(path, ignore_errors=True)


def new_directory():
    """A place for GPUs that nobody else has. In shared memory, where it is large enough: what tests
    write there must not go to a disk."""
    space = os.statvfs("/dev/shm")
    root = "/dev/shm" if space.f_bavail * space.f_frsize > 1 << 30 else None
    path = tempfile.mkdtemp(prefix="gpubuf-gpu-", dir=root)
    os.chmod(path, 0o777)
    atexit.register(_remove, path)
    return path


_shared_directory = None


def directory():
    """The GPUs of every test that does not want some of its own."""
    global _shared_directory
    if _shared_directory is None:
        _shared_directory = new_directory()
    return _shared_directory


def environment(sanitized=True, **more):
    """The environment of a program that is to find the driver. Nothing else may get it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FAKECUDA_", "CUDA_"))}
    if ON_GPU:
        library = BUILD / "fakecuda" if sanitized else _no_sanitizer()
        before = os.environ.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = f"{library}:{before}" if before else str(library)
        env["FAKECUDA_DIR"] = directory()
        if KIND == "hip":  # whose contexts last as long as the process: they are not what is counted
            env["FAKECUDA_CONTEXT"] = "0"
    return {**env, **{k: str(v) for k, v in more.items()}}


class Gpu:
    """Another process that uses the GPUs by the driver itself: gpu_process.py."""

    def __init__(self, **env):
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        self.socket = ours
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).parent / "gpu_process.py"),
             str(theirs.fileno())],
            env=environment(sanitized=False, **env), pass_fds=[theirs.fileno()])
        theirs.close()
        self.before = {}

    def call(self, method, *arguments):
        """(result, descriptor or None)"""
        self.socket.sendall(json.dumps([method, arguments]).encode() + b"\n")
        fd, answer = None, bytearray()
        while not answer.endswith(b"\n"):  # one answer for each call
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
            if not data:
                raise AssertionError("the process with the GPUs died")
            fd = fds[0] if fds else fd
            answer += data
        answer = json.loads(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"], fd

    def used(self, ordinal=0):
        """Bytes of a GPU that anybody uses but this process' own context."""
        return self.call("used", ordinal)[0]

    def create(self, count, data=b"", ordinal=0):
        """A descriptor of new memory, CLOEXEC; this process keeps nothing of it."""
        fd = self.call("create", count, ordinal)[1]
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        if data:
            os.pwrite(fd, data, 0)
        return fd

    def allocate(self, count, byte=0, ordinal=0):
        """Legacy memory, every byte of it `byte`; its handle in base64."""
        return self.call("allocate", count, byte, ordinal)[0]

    def event(self, milliseconds, ordinal=0):
        """The handle in base64 of an event that comes after so long, and never if this process has ended."""
        return self.call("event", milliseconds, ordinal)[0]

    def free(self, handle):
        self.call("free", handle)

    def write(self, handle, data, ordinal=0):
        """Writes where the memory that a legacy handle of another process names begins."""
        self.call("write", handle, data.hex(), ordinal)

    def read(self, handle, count, ordinal=0):
        """The first bytes of the memory that a legacy handle of another process names."""
        return bytes.fromhex(self.call("read", handle, count, ordinal)[0])

    def end(self):
        self.socket.close()
        self.process.wait(60)


_gpu = None


def gpu():
    """The one for all tests."""
    global _gpu
    if _gpu is None:
        _gpu = Gpu()
        atexit.register(_gpu.end)
    return _gpu


def own_memory(data):
    """(descriptor, bytes) of memory that begins with `data` and can be registered."""
    count = -(-max(len(data), 1) // LEAST) * LEAST if ON_GPU else len(data)
    if ON_GPU:
        return gpu().create(count, data), count
    fd = os.memfd_create("mine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o600)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd, count


def kind_of(device):
    """The kind of a descriptor for memory of a device."""
    return "memfd" if device == "host" else "hip_fd" if device[:3].lower() == "hip" else "cuda_fd"


def handle(count, fd=0, **members):
    """One of a descriptor that is registered."""
    return {"kind": HANDLE, "fd": fd, "bytes": count, "device": ID, **members}
