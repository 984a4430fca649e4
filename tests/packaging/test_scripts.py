"""The scripts that people call: --help prints the usage and does nothing else; what a script does not know
is refused with status 2."""

import os
import pathlib
import re
import subprocess

import pytest

from outside import ENVIRONMENT

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in [
    *(path for path in ROOT.glob("scripts/*") if path.suffix != ".mk"), *ROOT.glob(".ci/*"),
    ROOT / "tests" / "packaging" / "check-bare"])


@pytest.fixture
def run(tmp_path):
    """run(script, *arguments): none of what installs, builds or asks for rights may be called."""
    for name in ("apt-get", "make", "sudo", "mmdebstrap", "gpubufd", "tar"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/called\nexit 1\n")
        (tmp_path / name).chmod(0o755)

    def run(script, *arguments):
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run([ROOT / script, *arguments], env=env, cwd=tmp_path, text=True,
                              capture_output=True, check=False, stdin=subprocess.DEVNULL)
        assert not (tmp_path / "called").exists()
        return done

    return run


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(run, script):
    done = run(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ") and pathlib.Path(script).name in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_unknown_argument(run, script):
    done = run(script, "--nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: " in done.stderr


def make(*words):
    return subprocess.run(["make", *words], cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("header, package", [("cmocka.h", "libcmocka-dev"), ("uv.h", "libuv1-dev"),
                                             ("ucp/api/ucp.h", "libucx-dev")])
def test_a_missing_header_is_told_by_its_package(tmp_path, header, package):
    """-nostdinc hides what is installed."""
    done = make(f"BUILD={tmp_path}", "CPPFLAGS=-nostdinc", f"{tmp_path}/has/{header}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"{header} is not installed: it is in the package {package}"


@pytest.mark.parametrize("goals, told", [((), "libuv1-dev libcsv-dev"), (("wheel",), "libuv1-dev libcsv-dev python3-dev")])
def test_a_whole_build_names_all_that_is_missing(tmp_path, goals, told):
    (tmp_path / "cc").write_text("#!/bin/sh\nread -r line\ncase $line in\n*'<uv.h>'|*'<csv.h>'|*'<Python.h>') exit 1 ;;\n"
                                 "*) exec gcc -E -x c /dev/null ;;\nesac\n")
    (tmp_path / "cc").chmod(0o755)
    done = make("-j4", f"BUILD={tmp_path}/build", f"CC={tmp_path}/cc", *goals)
    assert done.returncode == 2
    assert f"not installed: {told}; sudo scripts/deps build installs what is missing" in done.stderr.splitlines()
    assert done.stderr.count("installed") == 1 and not re.search(r"CC +(daemon|client|proto)", done.stdout)
    none = make(f"BUILD={tmp_path}/none", f"CC={tmp_path}/nothing", *goals)
    assert none.stderr.startswith(f"there is no {tmp_path}/nothing: sudo scripts/deps build installs it, and what else")


@pytest.mark.parametrize("target, tool, package", [("lint-format", "CLANG_FORMAT", "clang-format"),
                                                   ("lint-shell", "SHELLCHECK", "shellcheck")])
def test_a_missing_tool_is_told_by_its_package(tmp_path, target, tool, package):
    done = make(f"BUILD={tmp_path}", f"{tool}=/nonexistent/it", target)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"/nonexistent/it is not installed: it is in the package {package}"


def test_a_python_without_pytest_is_told_once(tmp_path):
    """By the runner of all suites, before any of them."""
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run([ROOT / "scripts" / "run-tests", "--python", tmp_path / "python", "--build", tmp_path,
                           "--suites", "fault"], text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (f"{tmp_path}/python lacks pytest, hypothesis or pyte: they are in the packages "
                           "python3-pytest, python3-hypothesis and python3-pyte\n")
