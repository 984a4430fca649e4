"""The conda recipe, as far as it can be tried without conda: its form, and its commands on this machine."""

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "packaging" / "conda" / "recipe.yaml"


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_what_it_names_is_there():
    recipe = yaml.safe_load(PLACE.read_text())
    assert (PLACE.parent / recipe["source"]["path"]).resolve() == ROOT
    assert (ROOT / recipe["about"]["license_file"]).is_file()
    header = (ROOT / "include" / "gpubuf.h").read_text()
    assert f'#define GPUBUF_VERSION "{recipe["context"]["version"]}"' in header
    assert recipe["package"] == {"name": "gpubufd", "version": "${{ version }}"}


@pytest.mark.hunt  # they compile all of it once more
def test_its_commands(tmp_path):
    recipe = yaml.safe_load(PLACE.read_text())
    prefix = tmp_path / "prefix"
    run([sys.executable, "-m", "venv", "--system-site-packages", prefix])
    gone = ("LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {**{name: value for name, value in os.environ.items() if name not in gone},
                   "BUILD": str(tmp_path / "build"), "GPUBUF_PYTHON_BUILD": str(tmp_path / "python"),
                   "PREFIX": str(prefix), "PYTHON": str(prefix / "bin" / "python"),
                   "PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    for command in recipe["build"]["script"]:
        run(["bash", "-euc", command], cwd=ROOT, env=environment)

    tests = {name: test[name] for test in recipe["tests"] for name in test}
    for file in tests["package_contents"]["files"]:
        assert (prefix / file).is_file(), file
    for module in tests["python"]["imports"]:
        shown = run([prefix / "bin" / "python", "-c", f"import {module}; print({module}.__file__)"], cwd=tmp_path,
                    env=environment)
        assert shown.startswith(str(prefix))
    (command,) = tests["script"]
    assert recipe["context"]["version"] in run(["bash", "-euc", command], cwd=tmp_path, env=environment)
