#!/usr/bin/env python3
"""A column that CuPy made in one process becomes a PyTorch tensor in another, with no copy.

    cupy_to_torch.py [--device cuda:0]

Needs CuPy, PyTorch and a daemon that has a GPU. If one of them is missing, it says which and exits with
status 77.
"""

import argparse
import subprocess
import sys

import gpubufd

ROWS = 1_000_000


def produce(device: str) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        angles = cupy.linspace(0, 2 * cupy.pi, ROWS, dtype="f4")
        table = {"angle": angles, "sine": cupy.sin(angles)}
    with gpubufd.connect() as client:  # the copies are queued behind the work that makes the columns
        client.put("cupy/waves", table, device=device, stream=stream, replace=True)
        print(client.get("cupy/waves"))


def consume() -> None:
    import torch

    with gpubufd.connect() as client:
        table = client.get("cupy/waves", timeout=30)
        sine = table["sine"].to_torch()  # no copy; it holds the lease
        assert sine.is_cuda and sine.data_ptr() == table["sine"].buffers.values.pointer
        print(f"PyTorch has {len(sine):,} values on {sine.device} at {sine.data_ptr():#x}")
        print(f"mean square {float((sine * sine).mean()):.4f}")
        with torch.no_grad():
            assert abs(float((sine * sine).mean()) - 0.5) < 1e-3
        client.delete("cupy/waves")


def missing() -> str:
    """Why this cannot run here; empty if it can."""
    for name in ("cupy", "torch"):
        try:
            __import__(name)
        except ImportError as error:
            return str(error)
    import torch

    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    with gpubufd.connect() as client:
        if all(device["id"] == "host" for device in client.devices()):
            return "the daemon has no GPU"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("role", nargs="?", choices=("produce", "consume"))
    options = parser.parse_args()
    if options.role == "produce":
        produce(options.device)
    elif options.role == "consume":
        consume()
    else:
        why_not = missing()
        if why_not:
            print(f"skipped: {why_not}")
            return 77
        for role in ("produce", "consume"):  # each in a process of its own
            subprocess.run([sys.executable, __file__, role, "--device", options.device], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
