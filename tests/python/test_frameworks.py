"""The checks of frameworks.py, as far as their libraries are here: on the host, and on the fake driver."""

import os
import re
import subprocess
import sys

import frameworks
import pytest
from conftest import BUILD, PACKAGE

HOST = [entry for entry in frameworks.CHECKS if entry[1] in ("both", "host")]
GPU = [entry for entry in frameworks.CHECKS if entry[1] in ("both", "gpu")]


@pytest.mark.parametrize("entry", HOST, ids=[entry[2].__name__ for entry in HOST])
def test_host(client, daemon, monkeypatch, entry):
    monkeypatch.setenv("GPUBUFD_SOCKET", daemon.path)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE), prepend=":")
    try:
        entry[2](client, "host")
    except frameworks.Skip as why:
        pytest.skip(str(why))
    assert not client.closed, "what a check found is asserted in it"


@pytest.mark.parametrize("name", [entry[2].__name__ for entry in GPU])
def test_gpu(gpu_run, name):
    out = gpu_run(
        f"""
        import frameworks
        try:
            frameworks.{name}(client, "cuda:0")
        except frameworks.Skip as why:
            print("skipped:", why)
        else:
            print("it holds")
        """
    )
    if "skipped:" in out:
        pytest.skip(out.partition("skipped:")[2].strip())
    assert "it holds" in out


CHECKS = """
import os, signal, subprocess, sys, time
import frameworks
from frameworks import Skip, check

frameworks.CHECKS.clear()
frameworks.LIMIT = 10

@check("it holds")
def holds(client, device):
    client.put("a", [1, 2])

@check("it fails")
def fails(client, device):
    raise ValueError("this is why")

@check("it ends its process")
def ends(client, device):
    os.kill(os.getpid(), signal.SIGKILL)

@check("it has no library")
def lacks(client, device):
    raise Skip("none here")

@check("it stands still, with a child that holds the output")
def stands(client, device):
    subprocess.run([sys.executable, "-c", "import time; time.sleep(10000)"])

@check("it comes last")
def last(client, device):
    assert "a" not in client, "what a check put stayed"

sys.exit(frameworks.main())
"""


def test_a_check_that_ends_or_stands_still_does_not_keep_the_others_from_it(tmp_path):
    (tmp_path / "checks.py").write_text(CHECKS)
    paths = [os.path.dirname(frameworks.__file__), str(PACKAGE), os.environ.get("PYTHONPATH", "")]

    def run(*options):
        done = subprocess.run([sys.executable, tmp_path / "checks.py", "--daemon", BUILD / "bin" / "gpubufd", *options], text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=":".join(paths)), check=False, timeout=300)
        return done.returncode, [re.sub(r" \([0-9.]+ s\)$", "", line) for line in done.stdout.splitlines()]

    status, lines = run()
    assert status == 1 and lines[-1] == "2 passed, 3 failed, 1 skipped", lines
    for line in ("it holds: ok", "it fails: FAILED", "ValueError: this is why", "it ends its process: FAILED, its process ended (-9)",
                 "it has no library: skipped (none here)", "it comes last: ok",
                 "it stands still, with a child that holds the output: FAILED, not done after 10 s"):
        assert line in lines, lines
    assert run("--only", "it holds")[0] == 0
    assert run("--part", "1/3", "--list") == (0, ["holds                        it holds", "lacks                        it has no library"])
