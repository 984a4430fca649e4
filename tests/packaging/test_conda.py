"""The conda recipe, as far as it can be tried without conda: its form, and its commands on this machine."""

import pathlib
import sys

import pytest
import yaml

from outside import ENVIRONMENT, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "packaging" / "conda" / "recipe.yaml"


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
    run(sys.executable, "-m", "venv", "--system-site-packages", prefix)
    environment = {**ENVIRONMENT, "BUILD": str(tmp_path / "build"), "GPUBUF_PYTHON_BUILD": str(tmp_path / "python"),
                   "PREFIX": str(prefix), "PYTHON": str(prefix / "bin" / "python"),
                   "PATH": f"{prefix}/bin:{ENVIRONMENT['PATH']}"}
    for command in recipe["build"]["script"]:
        run("bash", "-euc", command, cwd=ROOT, env=environment)

    tests = {name: test[name] for test in recipe["tests"] for name in test}
    for file in tests["package_contents"]["files"]:
        assert (prefix / file).is_file(), file
    for module in tests["python"]["imports"]:
        shown = run(prefix / "bin" / "python", "-c", f"import {module}; print({module}.__file__)", cwd=tmp_path,
                    env=environment).stdout
        assert shown.startswith(str(prefix))
    (command,) = tests["script"]
    assert recipe["context"]["version"] in run("bash", "-euc", command, cwd=tmp_path, env=environment).stdout
