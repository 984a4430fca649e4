"""What the guide shows works, and so do the examples."""

import os
import re
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT


@pytest.fixture
def env(daemon):
    env = dict(os.environ, GPUBUFD_SOCKET=daemon.path)
    env["PYTHONPATH"] = os.pathsep.join(p for p in (str(PACKAGE), env.get("PYTHONPATH")) if p)
    return env


def run(env, *arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], env=env, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_guide(client, env, np):
    text = (ROOT / "docs" / "PYTHON.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) >= 7
    out = run(env, "-c", "\n".join(blocks))
    assert "gpubufd.Table 'prices': 5 rows × 3 columns" in out and "synced None" in out


def test_publish_and_read(client, env):
    examples = ROOT / "examples" / "python"
    assert "3,201 rows" in run(env, examples / "publish.py")
    out = run(env, examples / "read.py")
    assert out.startswith("3201 rows of 16 columns: Title") and "995 values, 5 nulls" in out
    assert "rows 10 to 20: 10 values" in run(env, examples / "read.py", "movies", "Title", 10, 20)
