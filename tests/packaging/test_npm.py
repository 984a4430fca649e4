"""The npm tarball, installed from a file: the addon, and the programs that npx runs."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from outside import ENVIRONMENT, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'#define GPUBUF_VERSION "(.*)"', (ROOT / "include" / "gpubuf.h").read_text())[1]

pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("npm", "make", "gcc"))), reason="needs npm, make and gcc")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project that has the tarball of this machine's build installed."""
    if "is not built" in run("make", "all", "node", cwd=ROOT).stdout:
        pytest.skip("there are no headers of Node")
    place = tmp_path_factory.mktemp("npm")
    run(sys.executable, ROOT / "packaging" / "pack", "npm", place, f"{os.uname().machine}={ROOT / 'build'}")
    (place / "package.json").write_text('{"private": true}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--omit=peer", place / f"gpubufd-{VERSION}.tgz",
        cwd=place)
    return place


def test_npx_runs_the_daemon_until_it_is_told_to_stop(project, tmp_path):
    own = {**ENVIRONMENT, "GPUBUFD_SOCKET": str(tmp_path / "s"), "LD_LIBRARY_PATH": str(ROOT / "build" / "lib")}
    npx = ("npx", "--offline", "--no-install")
    assert run(*npx, "gpubufd", "serve", "--version", cwd=project).stdout == f"gpubufd {VERSION}\n"
    assert run(*npx, "gpubufd", "--version", cwd=project).stdout == f"gpubufd {VERSION}\n"
    daemon = subprocess.Popen([project / "node_modules" / ".bin" / "gpubufd", "serve", "--device", "host:64M"], env=own,
                              stderr=subprocess.PIPE, text=True)
    try:
        run(*npx, "gpubufctl", "ping", "--wait", "60s", cwd=project, env=own)
        program = ("const { connect } = require('gpubufd'); connect().then(async client => {"
                   "await client.put('x', Float64Array.of(1.5, 2.5)); client.close() })")
        run("node", "-e", program, cwd=project, env=own)
        supervisor = pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()[0]
        assert pathlib.Path(f"/proc/{supervisor}/cmdline").read_text().startswith("gpubufd: supervisor\0")
        assert "float64" in run(*npx, "gpubufctl", "show", "x", cwd=project, env=own).stdout
    finally:
        daemon.send_signal(signal.SIGTERM)
        said = daemon.communicate(timeout=60)[1]
    assert daemon.returncode == 0, said


def test_a_program_that_the_package_lacks(project):
    place = project / "node_modules" / "gpubufd" / "prebuilds"
    kept = place.rename(place.with_name("away"))
    try:
        done = subprocess.run([project / "node_modules" / ".bin" / "gpubufctl", "ls"], capture_output=True, text=True,
                              check=False, env=ENVIRONMENT)
        assert done.returncode == 2 and "built without it" in done.stderr
    finally:
        kept.rename(place)
