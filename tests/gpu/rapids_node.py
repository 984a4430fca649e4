#!/usr/bin/env python3
"""Plays examples/rapids: frames of cuDF in Node and back, an LRU past the GPU's room, Dask's collections, a layout.

    . /tmp/gpubufd-carry/rapids.sh            # of tests/gpu/carry and unpack
    tests/gpu/rapids_node.py --daemon gpubufd --node "$NODE_SMOKE" --cudf

--node is the folder that `make node-smoke` packs, or build/node. Python's package and cuDF are this Python's, or on
PYTHONPATH. Without cuDF pandas stands for it, unless --cudf. A line for each check, and one that counts them; each
program has its time, and writes to files, so that none that is left can hold up whoever waits for this script's output.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from common import serving

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "rapids"
# Steps that need the ones before them: (title, programs that run beside each other, each with what it must say).
STORIES = [
    [("Python publishes a frame, and a slice of it", [("frames.py publish", r"rapids/trips, 100000 rows, on GPU-")]),
     ("Node reads both by pointer and by copy, and publishes on the GPU",
      [("frames.mjs summary", r"(?s)of float64 from 0 on, at 0x.*rows 20 to 40 are 20, miles of row 24: (null|NaN).*Graz: 133929464.125")]),
     ("another Node reads that", [("frames.mjs again", r'another Node, on GPU-.*"Wien"')]),
     ("Python reads it, and its own groupby says the same", [("frames.py summary", r"Node's sums are right")])],
    [("columns are made when Node asks for them, past the GPU's room",
      [("frames.py columns", r"made 24 columns, 2 of them again; [1-8] of Node's are there, and right"),
       ("frames.mjs columns", r"read 26 columns")])],
    [("Dask publishes a collection", [("frames.py parts", r"rapids/parts, 4 partitions")]),
     ("Node reads it, and publishes one", [("frames.mjs parts", r"4 partitions, 100000 rows, 200000 riders")]),
     ("Dask loads that", [("frames.py halves", r"2 partitions have 400000 riders")])],
    [("a layout is shown while it is computed",
      [("layout.py", r"rapids/positions is at version"), ("layout.mjs", r"20000 nodes within .*\nshown \d+ versions")])],
]


def play(place, options, programs):
    """Runs programs beside each other; what is wrong with them, or None."""
    running = []
    for words, expected in programs:
        name, *arguments = words.split()
        output = place / f"{words.replace(' ', '-')}.log"
        program, environment = options.node_with if name.endswith(".mjs") else (sys.executable, options.environment)
        with open(output, "wb") as file:
            child = subprocess.Popen([program, place / name, *arguments], stdin=subprocess.DEVNULL, stdout=file,
                                     stderr=subprocess.STDOUT, env=environment)
        running.append((words, expected, output, child))
    wrong = []
    end = time.monotonic() + options.seconds
    for words, expected, output, child in running:
        try:
            status = child.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            status = f"not done after {options.seconds} s"
        said = output.read_text(errors="replace")
        if status or not re.search(expected, said) or options.cudf and "pandas" in said:
            wrong.append(f"{words}: {status or 'said something else'}\n{said[-3000:]}")
        elif options.verbose:
            print(said, end="")
    return "\n".join(wrong) or None


def tell_all(place, options):
    """[passed, failed]"""
    counts = [0, 0]
    for story in STORIES:
        wrong = None
        for title, programs in story:
            begin = time.monotonic()
            wrong = "not tried" if wrong else play(place, options, programs)
            counts[wrong is not None] += 1
            state = "ok" if wrong is None else "FAILED"
            print(f"{title}: {state} ({time.monotonic() - begin:.1f} s)" + (f"\n{wrong}" if wrong else ""), flush=True)
    play(place, options, [("frames.py clean", "")])
    return counts


def prepare(place, options):
    """The example beside node_modules, and the environments of Python and of Node."""
    for file in EXAMPLE.iterdir():
        shutil.copy(file, place)
    (place / "node_modules").mkdir()
    for package in [*(options.node / "node_modules").iterdir(), options.node / "gpubufd"]:
        if package.is_dir() and not package.name.startswith("."):
            (place / "node_modules" / package.name).symlink_to(package.resolve())
    environment = options.environment = dict(os.environ)
    if options.daemon:
        environment["GPUBUFD_SOCKET"] = str(place / "s")
    if options.package:
        packages = [str(options.package.resolve()), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, packages))
    options.node_with = shutil.which("node"), environment
    packed = options.node.resolve() / "node"
    if packed.is_file():
        libraries = [environment.get("LD_LIBRARY_PATH"), str(packed.with_name("lib"))]
        options.node_with = packed, {**environment, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", help="the daemon's program; without it, that of $GPUBUFD_SOCKET is used")
    parser.add_argument("--device", default="cuda:0:1G")
    parser.add_argument("--node", type=pathlib.Path, required=True, help="node-smoke, or build/node")
    parser.add_argument("--package", type=pathlib.Path, help="a folder to import gpubufd from")
    parser.add_argument("--cudf", action="store_true", help="fail without cuDF")
    parser.add_argument("--seconds", type=float, default=120, help="for each check")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        prepare(place, options)
        log = place / "daemon.log"
        with contextlib.ExitStack() as stack:
            if options.daemon:
                devices = [options.device] if options.device.startswith("host") else [options.device, "host:1G"]
                words = [word for device in devices for word in ("--device", device)]
                stack.callback(lambda: print(log.read_text(errors="replace"), end=""))
                stack.enter_context(serving(options.daemon, options.environment["GPUBUFD_SOCKET"], "--log-level", "error", *words, log=log))
            counts = tell_all(place, options)
    print(f"{counts[0]} passed, {counts[1]} failed")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
