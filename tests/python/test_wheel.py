"""The package as it is installed: from the tree with a compiler alone, and as a wheel with nothing at all."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile

import pytest
from conftest import ROOT
from peer import wait_until

WHEN = "315532800"  # as packages have it unless somebody says otherwise
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


def files_of(directory):
    return {path for path in directory.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel():
    """A wheel for this machine, of the build without sanitizers."""
    run("make", "wheel", f"PYTHON={sys.executable}", cwd=ROOT, env=plain_environment(SOURCE_DATE_EPOCH=WHEN))
    (made,) = (ROOT / "build" / "wheel").glob("*.whl")
    return made


@needs_tools
def test_what_is_in_it(wheel, tmp_path):
    version = re.search(r'#define GPUBUF_VERSION "(.*)"', (ROOT / "include" / "gpubuf.h").read_text())[1]
    machine = os.uname().machine
    assert wheel.name == f"gpubufd-{version}-cp39-abi3-linux_{machine}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path)
    source = ROOT / "client" / "python" / "gpubufd"
    assert {name for name in names if name.startswith("gpubufd/")} == {
        f"gpubufd/{path.relative_to(source)}" for path in source.rglob("*")
        if path.is_file() and path.suffix != ".pyc"} | {"gpubufd/_core.abi3.so"}
    data = f"gpubufd-{version}.data/"
    assert {name[len(data):] for name in names if name.startswith(data)} == {
        "scripts/gpubufd", "scripts/gpubufctl", "scripts/gpubufd-gateway", "data/include/gpubuf.h",
        "data/lib/libgpubuf.so", "data/lib/libgpubuf.so.0", "data/lib/pkgconfig/gpubuf.pc"}
    # The module needs the C library and nothing else, and shows nothing but itself.
    needed = run("ldd", tmp_path / "gpubufd" / "_core.abi3.so").split()
    libraries = {word.split("/")[-1].split(".so")[0] for word in needed if ".so" in word}
    assert libraries <= {"linux-vdso", "libc", "libpthread", "libdl", "libm", "ld-linux-x86-64",
                         "ld-linux-aarch64"}, libraries
    if shutil.which("nm"):
        shown = run("nm", "-D", "--defined-only", tmp_path / "gpubufd" / "_core.abi3.so").split()
        names = {word for word in shown if len(word) > 1 and not re.fullmatch("[0-9a-f]+", word)}
        assert names == {"PyInit__core", "gpubufd_pool_alloc", "gpubufd_pool_free"}  # two that PyTorch calls


@needs_tools
def test_its_bytes_depend_on_the_content_alone(wheel, tmp_path):
    made = {}
    for when in (WHEN, "1800000000"):
        run(sys.executable, ROOT / "packaging" / "pack", "wheel", ROOT / "build", os.uname().machine, "linux", tmp_path,
            env=plain_environment(SOURCE_DATE_EPOCH=when))
        made[when] = (tmp_path / wheel.name).read_bytes()
    assert made[WHEN] == wheel.read_bytes() != made["1800000000"]


@needs_tools
def test_a_clean_venv_without_a_compiler(wheel, tmp_path):
    """One line to install, one to run: all is in the environment, and a daemon is started from it."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    bare = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path), "GPUBUFD_SOCKET": str(tmp_path / "s")}
    run(programs / "python", "-m", "pip", "install", "--no-index", "--no-deps", "-q", wheel, env=bare)
    version = wheel.name.split("-")[1]
    for program in ("gpubufd", "gpubufctl", "gpubufd-gateway"):
        assert run(programs / program, "--version", env=bare) == f"{program} {version}\n"
    assert run(programs / "python", "-m", "gpubufd", "serve", "--version", env=bare) == f"gpubufd {version}\n"
    first, second = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[:2]
    try:
        run(programs / "python", "-I", "-c", first.replace("start=True", "start=True, timeout=60"), env=bare, cwd=tmp_path)
        (said,) = re.findall(r"print\(.*\)\s+# ([^:\n]*)", second)
        assert run(programs / "python", "-I", "-c", second, env=bare, cwd=tmp_path) == said + "\n"
        out = run(programs / "python", "-I", "-c", PROGRAM, env=bare, cwd=tmp_path)
        assert out.startswith("no NumPy\n[{'s': 'b'}, {'s': None}] 1\n<gpubufd.Table 'wheel': 3 rows × 2 columns")
        assert out.endswith("True\n")
    finally:
        run(programs / "gpubufctl", "stop", env=bare)
        wait_until(lambda: not os.path.exists(tmp_path / "s"))
    source = tmp_path / "version.c"
    source.write_text("#include <gpubuf.h>\n#include <stdio.h>\nint main(void) { puts(gpubuf_version()); }\n")
    prefix = tmp_path / "venv"
    run("gcc", source, f"-I{prefix}/include", f"-L{prefix}/lib", "-lgpubuf", f"-Wl,-rpath,{prefix}/lib", "-o",
        tmp_path / "version")
    assert run(tmp_path / "version") == f"{version}\n"


@pytest.mark.hunt  # it compiles all of it once more
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
