"""Fixtures: a daemon for each file of tests, watched for leaks, and clients of the Python package.

GPUBUF_BUILD names the build directory (default: build/), which has the package in python/. Where that
is missing the installed package is tested (a wheel). A test that needs a missing library is skipped.
"""

import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTEGRATION = ROOT / "tests" / "integration"
TYPES = json.loads((ROOT / "proto" / "protocol.json").read_text())["dtypes"]  # the protocol's table
sys.path.insert(0, str(INTEGRATION))

BUILD = pathlib.Path(os.environ.get("GPUBUF_BUILD", ROOT / "build")).resolve()
PACKAGE = BUILD / "python"
if PACKAGE.exists() and not os.environ.get("GPUBUF_PYTHON_INSTALLED"):
    sys.path.insert(0, str(PACKAGE))

import gpubufd  # noqa: E402

_spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
Daemon = _module.Daemon


def environment(**variables):
    """That of a program that imports this package."""
    path = os.pathsep.join(p for p in (str(PACKAGE), os.environ.get("PYTHONPATH")) if p)
    return {**os.environ, "PYTHONPATH": path, **variables}


def pytest_configure(config):
    config.addinivalue_line("markers", "hunt: in `make hunt` and not in `make test`")
    config.addinivalue_line("markers", "programs: random programs, as many as GPUBUF_TEST_PROGRAMS; in both")


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.parent.any_failed = True


class Place:
    """Where one daemon comes after the other, in a directory that every user may enter."""

    def __init__(self, *options, device="host:64M", env=None):
        self.directory = tempfile.mkdtemp(prefix="gpubuf-py-")
        os.chmod(self.directory, 0o755)
        self.path = os.path.join(self.directory, "s")
        self.options, self.device, self.env = options, device, env
        self.start()

    def start(self):
        self.daemon = Daemon(self.directory, self.options, device=self.device, env=self.env)

    def stop(self):
        self.daemon.stop()

    def restart(self):
        self.stop()
        self.start()

    def kill_and_start(self):
        self.daemon.kill()
        self.start()


@contextlib.contextmanager
def standing(*options, **more):
    """A Place. Its daemon is killed at the end, if it has not been stopped."""
    place = Place(*options, **more)
    try:
        yield place
    finally:
        gc.collect()
        place.daemon.kill()
        shutil.rmtree(place.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def daemon(request):
    """One daemon with 256 MiB of host memory; nothing may be left when the file's tests are done."""
    with standing(device="host:256M") as place:
        yield place.daemon
        if not getattr(request.node, "any_failed", False):  # a traceback holds what its test had
            gc.collect()
            place.daemon.check_no_leaks()
            place.stop()


@pytest.fixture
def place():
    """A daemon of the test's own."""
    with standing() as one:
        yield one


def crash(daemon):
    """kill -9 of the daemon below its supervisor, which starts another."""
    pid = daemon.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        for child in file.read().split():
            with open(f"/proc/{child}/comm") as comm:
                if comm.read() == "gpubufd\n":
                    os.kill(int(child), signal.SIGKILL)


@pytest.fixture
def tiered(tmp_path):
    """A daemon with a tier on disk below its host memory."""
    with standing("--tier", f"disk:64M:{tmp_path}") as place:
        yield place
        place.stop()


@pytest.fixture
def client(daemon):
    """A connection; what it published is deleted after the test, and no lease may be left."""
    client = gpubufd.connect(daemon.path)
    yield client
    client.close()
    with gpubufd.connect(daemon.path) as other:
        other.delete(*(info.name for info in other.list()), missing_ok=True)


@pytest.fixture
def run(daemon, request):
    """run(code): a Python program in a process of its own that finds the daemon; what it said. `fresh`: it imports all
    itself; what it printed."""

    def run(code, status=0, timeout=300, fresh=False):
        code, variables = textwrap.dedent(code), {"GPUBUFD_SOCKET": daemon.path}
        if fresh:
            done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], env=environment(**variables),
                                  capture_output=True, text=True, timeout=timeout, check=False)
            ended, output = done.returncode, done.stdout
            assert ended == status, (ended, output, done.stderr)
        else:
            ended, output = request.getfixturevalue("forking")(code, variables, timeout)
            assert ended == status, (ended, output)
        return output

    return run


@pytest.fixture
def begin():
    """begin(path, code, *words, **variables): a program of its own that finds the daemon at the path, and is killed at the end."""
    begun = []

    def begin(path, code, *words, **variables):
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *map(str, words)], text=True,
            env=environment(GPUBUFD_SOCKET=path, **variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


@pytest.fixture
def pd():
    return pytest.importorskip("pandas")


# ---- GPUs ----

REAL_GPU = os.environ.get("GPUBUF_TEST_GPU") == "real"
FAKE_GPU = BUILD / "fakecuda"
fake_only = pytest.mark.skipif(REAL_GPU, reason="looks at, or holds up, the fake driver")


@contextlib.contextmanager
def driver():
    """The environment of programs that see GPUs of tests/fakecuda, or the real ones."""
    if not REAL_GPU and not (FAKE_GPU / "libcuda.so.1").exists():
        pytest.skip("needs a GPU, or tests/fakecuda")
    if REAL_GPU:
        yield {}
        return
    memory = tempfile.mkdtemp(prefix="gpubuf-gpu-", dir="/dev/shm")
    try:
        yield {"LD_LIBRARY_PATH": str(FAKE_GPU), "FAKECUDA_DIR": memory}
    finally:
        shutil.rmtree(memory, ignore_errors=True)


@contextlib.contextmanager
def with_gpus(*devices):
    """A daemon of these devices; `client_env`: the environment of its clients."""
    with driver() as env, standing(device=devices, env=env) as place:
        place.daemon.client_env = env
        yield place.daemon
        place.daemon.check_no_leaks()
        place.stop()


@pytest.fixture(scope="module")
def gpu():
    """A daemon with 64 MiB of GPU 0, and the environment of its clients."""
    with with_gpus("cuda:0:64M", "host:64M") as daemon:
        yield daemon


GPU_HEAD = f"""
import ctypes, gc, sys, numpy as np, gpubufd
from gpubufd import cuda
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import arrowc
client = gpubufd.connect()

def on_gpu_or_host(address, count):
    return ctypes.string_at(address, count) if cuda.pointer_device(address) is None else bytes(cuda.read_bytes(address, count, 0))

arrowc.read = on_gpu_or_host

def raises(error, work):
    try:
        work()
    except error as caught:
        return str(caught)
    raise AssertionError("nothing was raised")
"""


# A process that has imported what GPU_HEAD does, and becomes a program each time: imports cost more than most of them.
FORKING = """
import contextlib, ctypes, gc, json, os, sys, gpubufd
from gpubufd import cuda
with contextlib.suppress(ImportError):
    import numpy
exec(os.environ.pop("GPUBUF_FIRST", ""))
for line in sys.stdin:
    code, variables, output = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
os.environ.update(variables)
for number, path, how in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY), (2, 1, None)):
    os.dup2(path if how is None else os.open(path, how), number)
exec(compile(code, "<string>", "exec"))
"""


@contextlib.contextmanager
def forks(tmp_path_factory, first=""):
    """run(code, variables, timeout): (exit status, output) of a program in a process of its own, after `first`."""
    output = tmp_path_factory.mktemp("forking") / "output"
    driver = {} if REAL_GPU else {"LD_LIBRARY_PATH": str(FAKE_GPU)}
    with subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=environment(**driver, GPUBUF_FIRST=first), text=True, start_new_session=True) as process:

        def run(code, variables, timeout):
            output.write_bytes(b"")
            process.stdin.write(json.dumps([code, variables, str(output)]) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], timeout)[0]:
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail(f"not done after {timeout} s: {output.read_text()}")
            return int(process.stdout.readline()), output.read_text()

        yield run


@pytest.fixture(scope="session")
def forking(tmp_path_factory):
    with forks(tmp_path_factory) as run:
        yield run


@pytest.fixture
def gpu_run(gpu, request):
    """gpu_run(code): a Python program of its own, after GPU_HEAD, that finds a daemon with a GPU."""
    pytest.importorskip("numpy")

    def run(code, timeout=300, head=GPU_HEAD, **variables):
        code = head + textwrap.dedent(code)
        status, output = request.getfixturevalue("forking")(code, dict(variables, GPUBUFD_SOCKET=gpu.path, **gpu.client_env), timeout)
        assert status == 0, (status, output)
        return output

    yield run
    with gpubufd.connect(gpu.path) as client:
        client.delete(*(info.name for info in client.list()), missing_ok=True)
