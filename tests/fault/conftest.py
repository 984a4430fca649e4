"""Fixtures of tests/integration, which this suite shares, and a daemon whose system calls fail."""

import importlib.util
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
INTEGRATION = HERE.parent / "integration"
sys.path[:0] = [str(HERE), str(INTEGRATION)]

_spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items()
                  if not name.startswith("__")})

from shim import Shim  # noqa: E402

# ThreadSanitizer bears nothing before it.
collect_ignore = ["test_faults.py"] if _module.BUILD.name == "tsan" else []


@pytest.fixture
def shim(directory):
    return Shim(directory)


@pytest.fixture
def shimmed(daemon_factory, shim):
    """A daemon under the shim; its settings may be changed at any time."""
    daemon = daemon_factory(env=shim.environment())
    daemon.shim = shim
    return daemon
