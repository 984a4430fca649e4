"""CMake finds what `make install` has installed."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_find_package(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")

    def run(*words):
        return subprocess.run(words, capture_output=True, text=True, timeout=900, check=True).stdout

    run("make", "-C", ROOT, "install", f"PREFIX={tmp_path / 'prefix'}")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(own C)\nfind_package(gpubuf 0.2 REQUIRED)\n"
        "add_executable(own own.c)\ntarget_link_libraries(own gpubuf::gpubuf)\n")
    (tmp_path / "own.c").write_text(
        "#include <gpubuf.h>\n#include <stdio.h>\nint main(void) { return puts(gpubuf_version()) < 0; }\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "own").startswith("0.2")
    run("make", "-C", ROOT, "uninstall", f"PREFIX={tmp_path / 'prefix'}")
    assert not [*tmp_path.glob("prefix/**/*.cmake")]
