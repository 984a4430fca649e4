"""The package, the examples and a user's code are as mypy --strict and pyright want them; mistakes are found."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT

HERE = pathlib.Path(__file__).resolve().parent / "typing"
EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")


def wrong():
    """The places in bad.py that are marked."""
    lines = (HERE / "bad.py").read_text().splitlines()
    return {("bad.py", number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def test_the_package_and_what_users_write(tmp_path):
    """Mistakes are found, and nothing else."""
    assert (PACKAGE / "gpubufd" / "py.typed").exists()
    environment = {name: value for name, value in os.environ.items() if "PRELOAD" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", HERE / "mypy.ini", "--cache-dir", tmp_path, PACKAGE / "gpubufd",
         HERE / "good.py", HERE / "bad.py", *EXAMPLES],
        cwd=ROOT, env=dict(environment, MYPYPATH=str(PACKAGE)), capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    found = {(name, int(number)) for name, number in re.findall(r"(\w+\.py):(\d+):", "\n".join(errors))}
    assert found == wrong(), "\n".join(errors) + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="needs pyright")
def test_pyright_finds_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", HERE / "good.py", HERE / "bad.py",
         *EXAMPLES],
        cwd=PACKAGE, capture_output=True, text=True, timeout=300, check=False,
    )
    errors = [one for one in json.loads(done.stdout)["generalDiagnostics"]
              if one["severity"] == "error" and not one["rule"].startswith("reportMissing")]  # libraries that are not there
    assert {(pathlib.Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors} == wrong()
