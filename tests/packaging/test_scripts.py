"""The scripts that people call: --help prints the usage and does nothing else; what a script does not know
is refused with status 2."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in [
    *ROOT.glob("scripts/*"), *ROOT.glob(".ci/*"), ROOT / "tests" / "packaging" / "check-bare"])


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
