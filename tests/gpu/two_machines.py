#!/usr/bin/env python3
"""The speed of gpubufd-peer from one GPU to another over loopback: two daemons and two peers on this machine, beside
plain copies of the same bytes to pinned memory of the host and up again, iperf3 (where it is installed) and a bare stream
of TLS. Prints a line of JSON for each way; of_iperf3 is to be 0.6 or more.

    tests/gpu/two_machines.py DIR [FROM [TO [MIB]]]

DIR is what `make dist` made, unpacked, or `build`. FROM and TO are cuda:0 where nothing is said, MIB is 1024. Needs
openssl, which makes the certificates; with UCX where libucp.so.0 is installed.
"""

import contextlib
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "bench")]

if len(sys.argv) < 2:
    sys.exit(__doc__)
os.environ["GPUBUF_BUILD"] = sys.argv[1]

import bench_peer  # noqa: E402
from gpu_driver import Driver  # noqa: E402

ROUNDS, PIECE = 5, 64 << 20


class Copier:
    """Memory on a GPU, and pinned memory of the host, to copy between."""

    def __init__(self, ordinal):
        self.cu, self.ordinal = Driver(), ordinal
        self.cu.cuInit(0)

    def bytes_a_second(self, size, down):
        host, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.ordinal)
        self.cu.cuCtxPushCurrent(context)
        device = ctypes.c_uint64()
        self.cu.cuMemAlloc(ctypes.byref(device), PIECE)
        self.cu.cuMemHostAlloc(ctypes.byref(host), PIECE, 0)
        rates = []
        for _ in range(ROUNDS + 1):
            begin = time.perf_counter()
            for _ in range(0, size, PIECE):
                if down:
                    self.cu.cuMemcpyDtoH(host, device, PIECE)
                else:
                    self.cu.cuMemcpyHtoD(device, host, PIECE)
            rates.append(size / (time.perf_counter() - begin))
        self.cu.cuMemFreeHost(host)
        self.cu.cuMemFree(device)
        self.cu.cuCtxPopCurrent(ctypes.byref(context))
        self.cu.cuDevicePrimaryCtxRelease(self.ordinal)
        return statistics.median(rates[1:])


def fetched(size, devices, options):
    """Bytes a second, of each round; the first one, which connects, is left out."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        paths, _ = bench_peer.machines(stack, directory, size, devices, options)
        stack.enter_context(contextlib.closing(bench_peer.publish(paths[0], size, devices[0])))
        return [size / bench_peer.fetch(paths[1], "large") for _ in range(ROUNDS + 1)][1:]


def main():
    devices = tuple((sys.argv[2:4] + ["cuda:0"] * 2)[:2])
    size = int(sys.argv[4] if len(sys.argv) > 4 else 1024) << 20
    down, up = (Copier(int(device.split(":")[1])).bytes_a_second(size, which)
                for device, which in zip(devices, (True, False)))
    plain = 1 / (1 / down + 1 / up)
    with tempfile.TemporaryDirectory() as directory:
        link, pump = bench_peer.carried(), bench_peer.pumped(directory, size)
    ways = {"tls": []}
    with contextlib.suppress(OSError):
        ctypes.CDLL("libucp.so.0")
        ways["ucx"] = ["--ucx=trusted-network"]
    for way, options in ways.items():
        rates = fetched(size, devices, options)
        print(json.dumps({
            "way": way, "from": devices[0], "to": devices[1], "mib": size >> 20,
            "fetch_gb_s": [round(rate / 1e9, 2) for rate in rates],
            "down_gb_s": round(down / 1e9, 2), "up_gb_s": round(up / 1e9, 2),
            "down_and_up_gb_s": round(plain / 1e9, 2),
            "ratio": round(statistics.median(rates) / plain, 3),
            **bench_peer.beside(statistics.median(rates), link, pump),
        }), flush=True)


if __name__ == "__main__":
    main()
