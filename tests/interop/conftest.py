"""Fixtures of the python suite, and `tidy`, which counts what a test leaves behind."""

import functools
import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import pytest

PYTHON_TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
sys.path.insert(0, str(PYTHON_TESTS))

_spec = importlib.util.spec_from_file_location("python_conftest", PYTHON_TESTS / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
PACKAGE, ROOT, gpubufd = _module.PACKAGE, _module.ROOT, _module.gpubufd
daemon, run, forking, standing = _module.daemon, _module.run, _module.forking, _module.standing
forks, gpu, gpu_run = _module.forks, _module.gpu, _module.gpu_run
from gpubufd import _client  # noqa: E402
pytest_runtest_makereport = _module.pytest_runtest_makereport


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.pluginmanager.hasplugin("asyncio"):  # for zarr's tests, whose fixtures are coroutines, too
        config.option.asyncio_mode = "auto"


def memory_of_daemons():
    """The descriptors and mappings of this process that are memory of a daemon."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # listdir's own
            continue
    with open("/proc/self/maps") as maps:
        return sum("memfd:gpubufd" in one for one in [*found, *maps])


def end_own_connections(client, daemon):
    """Ends this process' own connections to the daemon, and waits until their leases are over."""
    gc.collect()
    for key, one in list(_client._clients.items()):
        if key[1] == daemon.path:
            one.close()
            del _client._clients[key]
    leases_left(client.leases)


def leases_left(leases):
    """The leases, as soon as there are none, else at a deadline: libgpubuf reports unused ones within a second."""
    until = time.monotonic() + 10
    while (left := leases()) and time.monotonic() < until:
        time.sleep(0.01)
    return left


@pytest.fixture
def client(daemon):
    """A connection. After the test nobody holds a lease, and this process has no memory of the daemon's."""
    before = memory_of_daemons()
    client = gpubufd.connect(daemon.path)
    yield client
    gc.collect()
    left = leases_left(lambda: [lease for lease in client.leases() if "cached_ms" not in lease])
    client.delete(*client.keys(), missing_ok=True)
    names = list(client.keys())
    client.close()
    gc.collect()
    assert (left, names) == ([], []), "a lease or a name stayed"
    assert memory_of_daemons() <= before, "memory stayed mapped, or a descriptor open"


@pytest.fixture
def there(client):
    """there(value): the object that it is when it was put; a later one replaces it."""

    def put_and_get(value, **options):
        client.put("x", value, replace=True, **options)
        return client.get("x")

    return put_and_get


@pytest.fixture
def at_daemon(client, daemon, monkeypatch):
    """The test's client, where modules connect to the same daemon by themselves."""
    monkeypatch.setenv("GPUBUFD_SOCKET", daemon.path)
    yield client
    end_own_connections(client, daemon)


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="another user takes root")


def as_another_user(daemon, code):
    """Runs code as the user 1001, who has a connection `c`."""
    os.chmod(daemon.path, 0o666)
    os.chmod(os.path.dirname(daemon.path), 0o711)
    code = f"import os, numpy.ma, gpubufd.numpy; os.setuid(1001); c = gpubufd.connect({daemon.path!r}); {code}"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)})


def differs(test, words):
    """A test of another project's that has to fail with these words, where gpubufd differs on purpose."""

    @functools.wraps(test)
    def fails(*arguments, **named):
        with pytest.raises((Exception, pytest.fail.Exception), match=words):
            test(*arguments, **named)

    return fails
