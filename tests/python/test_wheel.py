"""The package as it is installed: from the tree with a compiler alone, and as a wheel with nothing at all."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest
from conftest import ROOT

needs_tools = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("setuptools", "wheel", "ensurepip"))
    or not shutil.which("gcc") or not shutil.which("make"),
    reason="needs setuptools, wheel, venv, make and a compiler",
)

PROGRAM = textwrap.dedent(
    """
    import gpubufd, gpubufd.aio, gpubufd.cuda, sys
    try:
        import numpy
    except ImportError:
        print("no NumPy")
    with gpubufd.connect() as client:
        client.put("wheel", {"x": [1, None, 3], "s": ["a", "b", None]}, replace=True)
        with client["wheel"] as table:
            print(table[["s"]][1:].tolist(), table["x"].null_count)
            print(table)
        client.delete("wheel")
    print(gpubufd.__version__, gpubufd.__file__.startswith(sys.prefix))
    """
)


def plain_environment(**more):
    """Without sanitizers, and without what the tests set for themselves."""
    gone = ("LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {**{k: v for k, v in os.environ.items() if k not in gone}, **more}


def run(*command, **options):
    options.setdefault("env", plain_environment())
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900,
                          check=False, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def check(archive):
    """The findings of scripts/check-manylinux in an archive."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "check-manylinux", archive], capture_output=True,
                          text=True, check=False)
    assert done.returncode == (1 if done.stderr else 0), done.stderr
    return done.stderr


def files_of(directory):
    return {path for path in directory.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    run("make", "wheel", f"BUILD={directory}", f"PYTHON={sys.executable}", cwd=ROOT)
    (made,) = (directory / "wheel").glob("*.whl")
    return made


@needs_tools
def test_what_is_in_it(wheel, tmp_path):
    version = re.search(r'#define GPUBUF_VERSION "(.*)"', (ROOT / "include" / "gpubuf.h").read_text())[1]
    machine = os.uname().machine
    assert wheel.name == f"gpubufd-{version}-cp39-abi3-manylinux_2_28_{machine}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("gpubufd/")}
        archive.extractall(tmp_path)
    source = ROOT / "client" / "python" / "gpubufd"
    assert names == {f"gpubufd/{path.name}" for path in source.iterdir() if path.is_file()} | {
        "gpubufd/_core.abi3.so"}
    # It needs the C library and nothing else, and shows nothing but its module.
    needed = run("ldd", tmp_path / "gpubufd" / "_core.abi3.so").split()
    libraries = {word.split("/")[-1].split(".so")[0] for word in needed if ".so" in word}
    assert libraries <= {"linux-vdso", "libc", "libpthread", "libdl", "libm", "ld-linux-x86-64",
                         "ld-linux-aarch64"}, libraries
    if shutil.which("nm"):
        shown = run("nm", "-D", "--defined-only", tmp_path / "gpubufd" / "_core.abi3.so").split()
        names = {word for word in shown if len(word) > 1 and not re.fullmatch("[0-9a-f]+", word)}
        assert names == {"PyInit__core", "gpubufd_pool_alloc", "gpubufd_pool_free"}  # two that PyTorch calls


@needs_tools
def test_it_obeys_manylinux(wheel, tmp_path):
    assert check(wheel) == ""
    # As of another machine, with other tags, or with what glibc 2.28 lacks.
    machine = os.uname().machine
    other = tmp_path / wheel.name.replace(machine, "riscv64")
    shutil.copy(wheel, other)
    assert f"it is for {machine}" in check(other) and "other tags" in check(other)
    source = tmp_path / "new.c"
    source.write_text("int pthread_join(); double sqrt(double); int f(void) { return pthread_join() + (int)sqrt(2); }")
    run("gcc", "-shared", "-x", "c", "/dev/null", "-o", tmp_path / "libown.so")
    run("gcc", "-fno-builtin", "-shared", "-fPIC", source, "-o", tmp_path / "new.so", "-Wl,--no-as-needed",
        "-pthread", "-lm", tmp_path / "libown.so", "-Wl,-soname,new.so")
    bad = tmp_path / wheel.name
    with zipfile.ZipFile(bad, "w") as archive:
        archive.write(tmp_path / "new.so", "gpubufd/new.so")
    said = check(bad)
    assert "it needs GLIBC_2.34: pthread_join\n" in said and "libown.so\n" in said
    assert "libm" not in said and "libc.so" not in said
    with zipfile.ZipFile(bad, "w") as archive:
        archive.write(source, "new.c")
    assert "no native library" in check(bad)


@needs_tools
def test_a_clean_venv_without_a_compiler(wheel, daemon, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    bare = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path), "GPUBUFD_SOCKET": daemon.path}
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "-q", wheel, env=bare)
    out = run(python, "-I", "-c", PROGRAM, env=bare, cwd=tmp_path)
    assert out.startswith("no NumPy\n[{'s': 'b'}, {'s': None}] 1\n<gpubufd.Table 'wheel': 3 rows × 2 columns")
    assert out.endswith("True\n")


@needs_tools
def test_from_the_tree(daemon, tmp_path):
    """`pip install ./client/python`, with the setuptools that are here instead of those of a network."""
    run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    environment = plain_environment(GPUBUF_PYTHON_BUILD=str(tmp_path / "build"))
    before = files_of(ROOT / "client" / "python")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "-q",
        "--disable-pip-version-check", "./client/python", cwd=ROOT, env=environment)
    out = run(python, "-c", PROGRAM, cwd=tmp_path, env=plain_environment(GPUBUFD_SOCKET=daemon.path))
    assert out.endswith("True\n")
    assert files_of(ROOT / "client" / "python") == before
