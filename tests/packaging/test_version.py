"""The version stands in include/gpubuf.h; whatever else names it says the same, and scripts/version sets them all."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = {
    "include/gpubuf.h": r'run time, such as "(.*?)"',
    "client/node/package.json": r'"version": "(.*?)"',
    "client/rust/Cargo.toml": r'^version = "(.*?)"$',
    "debian/changelog": r"\Agpubufd \((.*?)\)",
    "CHANGELOG.md": r"## \[Unreleased\]: (\S+)",
    "README.md": r"gpubufd (\d\S+) answers|^(\d\S+), not released yet",
    "docs/NODE.md": r"gpubufd-(\d+\.\d+\.\d+)",
    "docs/HTTP.md": r'"version": "(.*?)"',
    "packaging/conda/recipe.yaml": r'^  version: "(.*?)"$',
    "examples/kubernetes/kustomization.yaml": r'newTag: "(.*?)"',
    "docs/PROTOCOL-METHODS.md": r'"gpubufd (\d.*?)"',
}


def versions(root, place):
    found = re.findall(PLACES[place], (root / place).read_text(), re.M)
    return {"".join(one) for one in found}


def of_header(root):
    text = (root / "include/gpubuf.h").read_text()
    numbers = [re.search(rf"GPUBUF_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    assert f'#define GPUBUF_VERSION "{".".join(numbers)}"' in text
    return ".".join(numbers)


@pytest.mark.parametrize("place", PLACES)
def test_each_place_has_the_version(place):
    assert versions(ROOT, place) == {of_header(ROOT)}


def test_a_new_version_is_written_everywhere(tmp_path):
    for place in [*PLACES, "scripts/version"]:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)

    def run(*words):
        return subprocess.run([tmp_path / "scripts/version", *words], capture_output=True, text=True, check=False)

    assert run().stdout == of_header(ROOT) + "\n"
    for wrong in ("1", "1.2", "1.2.3.4", "1..2", "1.2.", "v1.2.3", "1.2.3-rc"):
        assert run(wrong).returncode == 2, wrong
    assert run("12.30.4").returncode == 0 and run().stdout == "12.30.4\n"
    assert {place: versions(tmp_path, place) for place in PLACES} == {place: {"12.30.4"} for place in PLACES}
    assert of_header(tmp_path) == json.loads((tmp_path / "client/node/package.json").read_text())["version"] == "12.30.4"
