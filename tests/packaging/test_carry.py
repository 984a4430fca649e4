"""tests/gpu/carry, unpack and prune: what is packed here is there on a machine without a network."""

import importlib.machinery
import importlib.util
import os
import pathlib
import struct
import subprocess
import sys

import pytest

GPU = pathlib.Path(__file__).resolve().parents[1] / "gpu"
sys.path.insert(0, str(GPU))

import prune  # noqa: E402

PTX, MACHINE_CODE = 1, 2


def container(*entries):
    """As fatbinary writes it: entries of (kind, architecture, payload)."""
    content = b"".join(struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(payload), 0, 0, 7, 0, architecture).ljust(64, b"\1")
                       + payload for kind, architecture, payload in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def library(directory, section):
    """A shared library that has the section."""
    (directory / "section").write_bytes(section)
    source = directory / "source.s"
    source.write_text(f'.section .nv_fatbin,"a"\n.incbin "{directory}/section"\n.text\n.globl f\nf: ret\n.space 999, 7\n')
    made = directory / "lib.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", made, source], check=True)
    return made


def test_code_for_other_gpus_is_blanked(tmp_path):
    kept, other = b"sm_90 " * 50, b"sm_80 " * 70
    section = container((PTX, 90, b"ptx " * 9), (MACHINE_CODE, 80, other), (MACHINE_CODE, 90, kept)) + bytes(24) + container(
        (MACHINE_CODE, 90, kept), (MACHINE_CODE, 120, other))
    made = library(tmp_path, section)
    before = made.read_bytes()
    assert prune.prune(made, {90}) == (600, 36 + 2 * 420)
    expected = before.replace(b"ptx " * 9, bytes(36)).replace(other, bytes(420))
    assert made.read_bytes() == expected != before
    assert prune.prune(made, {90})[0] == 600, "once more changes nothing"
    assert made.read_bytes() == expected


def test_a_library_without_code_for_the_gpu_is_refused(tmp_path):
    made = library(tmp_path, container((MACHINE_CODE, 80, b"sm_80 " * 8)))
    before = made.read_bytes()
    with pytest.raises(ValueError, match="no code for sm_90"):
        prune.prune(made, {90})
    assert made.read_bytes() == before
    made = library(tmp_path, container((MACHINE_CODE, 90, b"x" * 8))[:-4])
    with pytest.raises(ValueError, match="does not lie in its section"):
        prune.prune(made, {90})
    (tmp_path / "text.so").write_text("INPUT(libm.so.6)")
    assert prune.prune(tmp_path / "text.so", {90}) == (0, 0)


@pytest.fixture
def carry(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("carry", str(GPU / "carry"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("carry", loader))
    loader.exec_module(module)
    (tmp_path / "carry").mkdir()
    monkeypatch.setattr(module, "PLACE", tmp_path / "carry")

    def install(name, told, site):
        (site / "carried").mkdir()
        (site / "carried" / "__init__.py").write_text(f"version = {told['packages']!r}\n")
        (site / "carried" / "noise").write_bytes(os.urandom(5 << 20))
        (site / "carried.pth").write_text("import os; os.environ['CARRIED'] = 'yes'\n")
        # In front of what the machine has.
        (site / "_pytest").mkdir()
        (site / "_pytest" / "__init__.py").write_text("carried = True\n")

    monkeypatch.setattr(module, "install", install)
    return module


def unpack(tmp_path, *parcels):
    return subprocess.run([sys.executable, GPU / "unpack", "--into", tmp_path / "there", *parcels], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300)


def in_environment(tmp_path, program):
    return subprocess.run(["sh", "-c", f'. {tmp_path}/there/small.sh; python -c "$1"', "sh", program], text=True,
                          stdout=subprocess.PIPE, check=True, timeout=300).stdout


def test_an_environment_is_packed_carried_and_put_together(tmp_path, carry):
    told = {"python": "3.12", "cards": [90], "packages": ["a==1"]}
    archive = carry.archive_of_environment("small", told)
    assert carry.archive_of_environment("small", told) == archive, "it is packed once"
    assert carry.fill({"small": archive}, 4 << 20) == 2
    parcels = sorted((tmp_path / "carry").glob("0?"))
    assert [parcel.name for parcel in parcels] == ["00", "01"]
    assert all(sum(file.stat().st_size for file in parcel.iterdir()) <= 4 << 20 for parcel in parcels)

    done = unpack(tmp_path, parcels[1])
    assert done.returncode == 3 and "small: 1 of 5 MiB are here" in done.stdout, done.stdout
    done = unpack(tmp_path, parcels[0])
    assert done.returncode == 0 and f". {tmp_path}/there/small.sh" in done.stdout, done.stdout
    program = ("import os, sys, carried, _pytest; print(carried.version, os.environ['CARRIED'], _pytest.carried); "
               "import pytest")
    told_there = subprocess.run(["sh", "-c", f'. {tmp_path}/there/small.sh; python -c "$1"', "sh", program], text=True,
                                capture_output=True, check=False, timeout=300)
    assert told_there.stdout == "['a==1'] yes True\n", told_there
    assert "_pytest" in told_there.stderr, "the machine's pytest was found, over the carried _pytest"

    newer = carry.archive_of_environment("small", dict(told, packages=["a==2"]))
    assert newer != archive and not archive.exists()
    carry.fill({"small": newer}, 58 << 20)
    assert unpack(tmp_path, tmp_path / "carry" / "00").returncode == 0
    assert in_environment(tmp_path, "import carried; print(carried.version)") == "['a==2']\n"


def test_a_damaged_parcel_is_refused(tmp_path, carry):
    archive = carry.archive_of_environment("small", {"packages": []})
    assert carry.fill({"small": archive}, 58 << 20) == 1
    piece = next(path for path in (tmp_path / "carry" / "00").iterdir() if path.suffix != ".json")
    with open(piece, "r+b") as file:
        file.seek(3 << 20)
        file.write(b"\0" * 64)
    done = unpack(tmp_path, tmp_path / "carry" / "00")
    assert done.returncode == 1 and "do not make what was packed" in done.stdout, done.stdout
