"""Fixtures: a daemon for each file of tests, watched for leaks, and clients of the Python package.

GPUBUF_BUILD names the build directory (default: build/), which has the package in python/. Where that
is missing the installed package is tested (a wheel). A test that needs a missing library is skipped.
"""

import gc
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTEGRATION = ROOT / "tests" / "integration"
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
SANITIZER = _module.SANITIZER


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.parent.any_failed = True


@pytest.fixture(scope="module")
def daemon(request):
    """One daemon with 256 MiB of host memory; nothing may be left when the file's tests are done."""
    directory = tempfile.mkdtemp(prefix="gpubuf-py-")
    daemon = Daemon(directory, device="host:256M")
    try:
        yield daemon
        if not getattr(request.node, "any_failed", False):  # a traceback holds what its test had
            gc.collect()
            daemon.check_no_leaks()
            daemon.stop()
    finally:
        daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def tiered(tmp_path):
    """A daemon with a tier on disk below its host memory."""
    place = tmp_path / "tier"
    place.mkdir()
    daemon = Daemon(str(tmp_path), ["--tier", f"disk:64M:{place}"], device="host:64M")
    try:
        yield daemon
        daemon.stop()
    finally:
        daemon.kill()


@pytest.fixture
def client(daemon):
    """A connection; what it published is deleted after the test, and no lease may be left."""
    client = gpubufd.connect(daemon.path)
    yield client
    client.close()
    with gpubufd.connect(daemon.path) as other:
        other.delete(*(info.name for info in other.list()), missing_ok=True)


@pytest.fixture
def run(daemon):
    """run(code): a Python program in a process of its own that finds the daemon; what it printed."""

    def run(code, status=0, timeout=300):
        env = dict(os.environ, GPUBUFD_SOCKET=daemon.path)
        env["PYTHONPATH"] = os.pathsep.join(p for p in (str(PACKAGE), env.get("PYTHONPATH")) if p)
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
            env=env, capture_output=True, text=True, timeout=timeout, check=False,
        )
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    return run


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


@pytest.fixture
def pd():
    return pytest.importorskip("pandas")


# ---- GPUs ----

REAL_GPU = os.environ.get("GPUBUF_TEST_GPU") == "real"
FAKE_GPU = BUILD / "fakecuda"
needs_gpu = pytest.mark.skipif(
    not REAL_GPU and not (FAKE_GPU / "libcuda.so.1").exists(), reason="needs a GPU, or tests/fakecuda"
)
fake_only = pytest.mark.skipif(REAL_GPU, reason="looks at, or holds up, the fake driver")
needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs NumPy")


@pytest.fixture(scope="module")
def gpu():
    """A daemon with 64 MiB of GPU 0, and the environment of its clients."""
    directory = tempfile.mkdtemp(prefix="gpubuf-py-gpu-")
    env = {}
    if not REAL_GPU:
        os.chmod(directory, 0o755)
        devices = tempfile.mkdtemp(prefix="gpubuf-gpu-", dir="/dev/shm")
        env = {"LD_LIBRARY_PATH": str(FAKE_GPU), "FAKECUDA_DIR": devices}
    daemon = Daemon(directory, device=["cuda:0:64M", "host:64M"], env=env)
    daemon.client_env = env
    try:
        yield daemon
        daemon.check_no_leaks()
        daemon.stop()
    finally:
        daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)
        if not REAL_GPU:
            shutil.rmtree(devices, ignore_errors=True)


GPU_HEAD = f"""
import ctypes, gc, sys, numpy as np, gpubufd
from gpubufd import cuda
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
client = gpubufd.connect()

def raises(error, work):
    try:
        work()
    except error as caught:
        return str(caught)
    raise AssertionError("nothing was raised")
"""


@pytest.fixture
def gpu_run(gpu):
    """gpu_run(code): a Python program of its own, after GPU_HEAD, that finds a daemon with a GPU."""

    def run(code, timeout=300, head=GPU_HEAD, **variables):
        env = dict(os.environ, GPUBUFD_SOCKET=gpu.path, **gpu.client_env, **variables)
        env["PYTHONPATH"] = os.pathsep.join(p for p in (str(PACKAGE), env.get("PYTHONPATH")) if p)
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(code)], env=env,
            capture_output=True, text=True, timeout=timeout, check=False,
        )
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    yield run
    with gpubufd.connect(gpu.path) as client:
        client.delete(*(info.name for info in client.list()), missing_ok=True)
