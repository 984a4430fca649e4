#!/usr/bin/env python3
"""From a producer's kernel to a consumer's on a real GPU, between two processes: what a word that streams wait for
costs, beside two streams of one process, beside processors that look, and as frames of gpubufd; under time slicing, and
under MPS.

    tests/gpu/streams.py [--rounds 300] [--build build]

Needs nvcc, and what `make` made. At most 120 seconds; a line a way, and a status other than 0 if one of them failed (but for MPS, which may
be missing).
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import serving

SOURCE = Path(__file__).with_name("streams.cu")
WAYS = (["one"], ["device"], ["host"], ["cpu"], ["host", "behind"], ["ours"], ["device", "busy"], ["host", "busy"],
        ["cpu", "busy"], ["ours", "busy"])
UNDER_MPS = (["device"], ["host"], ["host", "behind"], ["ours"], ["host", "busy"], ["ours", "busy"])
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120


@contextlib.contextmanager
def daemon(build, env, path):
    """The environment for clients of a daemon of this script's own."""
    with serving(build / "bin/gpubufd", path, "--device", "cuda:0", env=env):
        yield {**env, "GPUBUFD_SOCKET": path}


def run(program, rounds, way, env, end):
    left = min(30, end - time.monotonic())
    if left < 1:
        print(f"{' '.join(way)}: no time is left", flush=True)
        return False
    process = subprocess.Popen([program, str(rounds), *way], env=env, start_new_session=True)
    try:
        return process.wait(timeout=left) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"{' '.join(way)}: not done within {left:.0f} s", flush=True)
        return False


def under_mps(build, program, rounds, env, folder, end):
    """The same ways as clients of an MPS server of this script's own."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        print("MPS: nvidia-cuda-mps-control is not here")
        return
    env = {**env, "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    os.makedirs(env["CUDA_MPS_PIPE_DIRECTORY"])
    os.makedirs(env["CUDA_MPS_LOG_DIRECTORY"])
    if subprocess.run([control, "-d"], env=env, timeout=15, check=False).returncode:
        print("MPS: it does not start here")
        return
    try:
        print("under MPS:", flush=True)
        with daemon(build, env, f"{folder}/mps.sock") as ours:
            for way in UNDER_MPS:
                if not run(program, rounds, way, ours, end):
                    print(f"MPS: {' '.join(way)} failed")
                    break
    finally:
        subprocess.run([control], input="quit\n", text=True, env=env, timeout=15, check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    options = parser.parse_args()
    rounds, build = options.rounds, options.build.resolve()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    end = time.monotonic() + LIMIT_S
    env = {**os.environ, "CUDA_MODULE_LOADING": "EAGER"}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/streams"
        subprocess.run([nvcc, "-O2", "-arch=native", f"-I{ROOT}/include", "-o", program, SOURCE, f"-L{build}/lib",
                        "-lgpubuf", "-Xlinker", f"-rpath={build}/lib", "-lcuda"], check=True, timeout=90)
        with daemon(build, env, f"{folder}/s.sock") as ours:
            good = [run(program, rounds, way, ours, end) for way in WAYS]
        under_mps(build, program, rounds, env, folder, end)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
