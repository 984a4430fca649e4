"""tests/gpu/frameworks.py itself: a check that fails does not keep the others from being made."""

import os
import re
import subprocess
import sys

from conftest import BUILD, PACKAGE, ROOT

sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import frameworks  # noqa: E402

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
        done = subprocess.run([sys.executable, tmp_path / "checks.py", "--daemon", BUILD / "bin" / "gpubufd", "--device", "host",
                               *options], text=True, stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=":".join(paths)), check=False, timeout=300)
        return done.returncode, [re.sub(r" \([0-9.]+ s\)$", "", line) for line in done.stdout.splitlines()]

    status, lines = run()
    assert status == 1 and lines[-1] == "2 passed, 3 failed, 1 skipped", lines
    for line in ("it holds: ok", "it fails: FAILED", "ValueError: this is why", "it ends its process: FAILED, its process ended (-9)",
                 "it has no library: skipped (none here)", "it comes last: ok",
                 "it stands still, with a child that holds the output: FAILED, not done after 10 s"):
        assert line in lines, lines
    assert run("--only", "it holds")[0] == 0
    assert run("--part", "1/3", "--list") == (0, ["holds                        it holds", "lacks                        it has no library"])
