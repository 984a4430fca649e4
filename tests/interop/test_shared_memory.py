"""CPython's tests of multiprocessing.shared_memory, over live objects (shared_memory.py).

They come with the interpreter; with Debian's in libpython3-testsuite.
"""

import importlib.util
import os
import subprocess
import venv

import conftest
import pytest

if not importlib.util.find_spec("test._test_multiprocessing"):
    pytest.skip("CPython's tests are not here: apt-get install libpython3-testsuite", allow_module_level=True)
PROGRAM = """
import test._test_multiprocessing, unittest
test._test_multiprocessing.install_tests_in_module_dict(globals(), "fork")
unittest.main(argv=["", "-v", "WithProcessesTestSharedMemory"])
"""


def test_cpythons_own(daemon, tmp_path):
    venv.create(tmp_path, symlinks=True)
    [site] = tmp_path.glob("lib/python3*/site-packages")
    (site / "first.pth").write_text(f"{conftest.PACKAGE}\n{os.path.dirname(__file__)}\nimport sys; sys.dont_write_bytecode = True; import shared_memory\n")
    done = subprocess.run([tmp_path / "bin" / "python", "-c", PROGRAM], capture_output=True, text=True, check=False,
                          env={**os.environ, "GPUBUFD_SOCKET": daemon.path}, cwd=tmp_path, timeout=600)
    assert done.returncode == 0 and done.stderr.count(" ... ok\n") >= 13, done.stderr
