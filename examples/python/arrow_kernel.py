#!/usr/bin/env python3
"""An Arrow table goes to the GPU with its types, a kernel takes its columns, and other processes query the result.

    arrow_kernel.py [--device cuda:0]

The first process reads the file and publishes it. The second computes each flight's speed with a kernel of numba's and
publishes that. The third opens both, asks CuPy a question, and takes the answer back as Arrow. The columns stay on the
GPU all the time. Needs pyarrow, numba-cuda, CuPy and a daemon that has a GPU; else it says what is missing and exits
with status 77.
"""

import argparse
import pathlib
import subprocess
import sys

import gpubufd

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "flights-200k.arrow"


def publish(device: str) -> None:
    import pyarrow

    with pyarrow.memory_map(str(DATA)) as file, gpubufd.connect() as client:
        flights = pyarrow.ipc.open_file(file).read_all()
        client.put("flights", flights, device=device, replace=True)
        print(client.get("flights"))


def compute(device: str) -> None:
    from numba import cuda

    @cuda.jit
    def speed_of(distance, time, speed):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < speed.size and time[i] > 0:
            speed[i] = distance[i] / time[i]

    with gpubufd.connect() as client:
        flights = client.get("flights")
        with client.create("flights/speed", "float32", len(flights), device=device, replace=True) as speed:
            speed_of[(len(flights) + 255) // 256, 256](  # pyright: ignore[reportIndexIssue]
                cuda.as_cuda_array(flights["distance"]), cuda.as_cuda_array(flights["time"]), cuda.as_cuda_array(speed))
            cuda.synchronize()  # the work is done before the seal


def ask() -> None:
    import cupy

    with gpubufd.connect() as client:
        flights, speed = client.get("flights"), client.get("flights/speed")
        late = cupy.asarray(flights["delay"]) > 60
        fast = cupy.asarray(speed)[late]
        print(f"{int(late.sum()):,} flights were over an hour late; the fastest of them flew {float(fast.max()):.0f} per hour")
        client.put("flights/late", {"speed": fast}, replace=True)  # stays on the GPU, under a name
        found = client.get("flights/late").to_host()
        print(found.to_pyarrow().schema)
        client.delete("flights", "flights/speed", "flights/late")


def missing() -> str:
    """Why this cannot run here; empty if it can."""
    for name in ("pyarrow", "numba.cuda", "cupy"):
        try:
            __import__(name)
        except ImportError as error:
            return str(error)
    with gpubufd.connect() as client:
        if all(device["id"] == "host" for device in client.devices()):
            return "the daemon has no GPU"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("role", nargs="?", choices=("publish", "compute", "ask"))
    options = parser.parse_args()
    if options.role == "ask":
        ask()
    elif options.role:
        {"publish": publish, "compute": compute}[options.role](options.device)
    else:
        why_not = missing()
        if why_not:
            print(f"skipped: {why_not}")
            return 77
        for role in ("publish", "compute", "ask"):  # each in a process of its own
            subprocess.run([sys.executable, __file__, role, "--device", options.device], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
