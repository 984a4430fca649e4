"""Builds gpubufd from this tree: the extension has libgpubuf in it, and needs a C compiler alone."""

import os
import pathlib
import re

from setuptools import Extension, setup

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Everything that is made goes here; nothing is written into the tree.
OUTPUT = pathlib.Path(os.environ.get("GPUBUF_PYTHON_BUILD", ROOT / "build" / "python-package"))
OUTPUT.mkdir(parents=True, exist_ok=True)

os.chdir(HERE)  # the paths below count from here


def sources(*directories):
    return [
        os.path.relpath(path, HERE)
        for directory in directories
        for path in sorted(directory.rglob("*.c"))
    ]


version = re.search(
    r'#define GPUBUF_VERSION "(.*)"', (ROOT / "include" / "gpubuf.h").read_text()
)[1]

setup(
    version=version,
    packages=["gpubufd", "gpubufd.torch"],
    package_data={"gpubufd": ["py.typed", "*.pyi"]},
    zip_safe=False,
    ext_modules=[
        Extension(
            "gpubufd._core",
            sources(HERE / "src", ROOT / "client" / "lib", ROOT / "proto"),
            include_dirs=["../../include", "../.."],
            define_macros=[("_GNU_SOURCE", None), ("Py_LIMITED_API", "0x03090000")],
            undef_macros=["NDEBUG"],
            extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden", "-pthread"],
            extra_link_args=[
                "-pthread", "-ldl", "-Wl,-z,relro,-z,now", "-Wl,--version-script=src/core.map",
            ],
            depends=["src/core.h", "src/core.map"],
            py_limited_api=True,
        )
    ],
    options={
        "bdist_wheel": {"py_limited_api": "cp39"},
        "build": {"build_base": str(OUTPUT)},
        "egg_info": {"egg_base": str(OUTPUT)},
    },
)
