#!/usr/bin/env python3
# %% [markdown]
# # Handing a column from one process to another
#
# One notebook has a column on the GPU, and another process wants to work on it. The way without gpubufd:
# `copy_to_host()`, send the bytes, `to_device()` over there. With gpubufd the second process opens the
# column by its name, and nothing is copied. This runs both, and prints the times.
#
# Needs a daemon (`gpubufd --device cuda:0`), and numba for the GPU. Where there is no GPU the same is done
# on the host: pickle through a pipe, against a column in shared memory. As a script:
# `notebook.py [--rows N] [--device host|cuda:0]`.

# %%
import argparse
import os
import pickle
import subprocess
import sys
import time
from typing import Any, Callable, Tuple

import numpy as np

import gpubufd

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=10_000_000)
parser.add_argument("--device", help="host or cuda:N; the GPU if the daemon has one")
parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
options, _ = parser.parse_known_args()  # a notebook has arguments of its own

client = gpubufd.connect()
gpus = [device["id"] for device in client.devices() if device["id"] != "host"]
place = options.device or (gpus[0] if gpus else "host")
on_gpu = place != "host"

# %% [markdown]
# ## Something to do with a column
#
# On a GPU a numba kernel that adds it up; on the host, and where numba or its compiler is missing, NumPy's sum.

# %%
cuda: Any = None
if on_gpu:
    try:
        import numba.cuda
        from numba.cuda.cudadrv import nvvm

        if not nvvm.is_available():
            raise ImportError("numba has no compiler for GPUs here")
        cuda = numba.cuda
    except ImportError:
        import gpubufd.cuda

        cuda = gpubufd.cuda  # to_device and copy_to_host are there as well


def add_up(column: Any, sums: Any) -> None:
    total = 0.0
    for i in range(cuda.grid(1), column.size, cuda.gridsize(1)):
        total += column[i]
    sums[cuda.grid(1)] = total


if hasattr(cuda, "jit"):
    partial_sums = cuda.jit(add_up)

    def use(column: Any) -> float:
        sums = cuda.device_array(64 * 256, "f8")
        partial_sums[64, 256](column, sums)
        return float(sums.copy_to_host().sum())

else:

    def use(column: Any) -> float:
        return float((column.copy_to_host() if on_gpu else np.asarray(column)).sum())


# %% [markdown]
# ## The other process
#
# It is warm: everything is imported and compiled. For each line on its input it fetches the column in one
# way or the other, uses it, and prints the result and the seconds that this took.


# %%
def read_for_ever() -> None:
    small = np.ones(1000)
    use(cuda.to_device(small) if on_gpu else small)
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in sys.stdin.buffer:
        start = time.perf_counter()
        if line == b"today\n":
            column = pickle.load(sys.stdin.buffer)
            if on_gpu:
                column = cuda.to_device(column)
        else:
            column = client.get("notebook/column")
        result = use(column)
        print(result, time.perf_counter() - start, file=answers, flush=True)
        del column


if options.reader:
    read_for_ever()
    sys.exit()

script = globals().get("__file__", "notebook.py")  # in a notebook: this file beside it
reader = subprocess.Popen(
    [sys.executable, script, "--reader", "--device", place], stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
assert reader.stdin and reader.stdout and reader.stdout.readline() == b"ready\n"

# %% [markdown]
# ## The column

# %%
values = np.random.default_rng(1).random(options.rows)
mine = cuda.to_device(values) if on_gpu else values
expected = use(mine)


def ask(begin: Callable[[], None]) -> Tuple[float, float]:
    """(result, seconds from the beginning of our part to the end of the reader's)"""
    assert reader.stdin and reader.stdout
    start = time.perf_counter()
    begin()
    reader.stdin.flush()
    result, _ = map(float, reader.stdout.readline().split())
    return result, time.perf_counter() - start


# %% [markdown]
# ## Today


# %%
def send_today() -> None:
    assert reader.stdin
    reader.stdin.write(b"today\n")
    pickle.dump(mine.copy_to_host() if on_gpu else mine, reader.stdin, protocol=5)


today = min(seconds for _, seconds in [ask(send_today) for _ in range(3)])

# %% [markdown]
# ## With gpubufd
#
# Once it is put, every process has it. (A column that was made by `create()`, or shared by `share_mine()`,
# need not be put at all.)

# %%
start = time.perf_counter()
client.put("notebook/column", mine, device=place, replace=True)
put = time.perf_counter() - start


def send_name() -> None:
    assert reader.stdin
    reader.stdin.write(b"shared\n")


answers = [ask(send_name) for _ in range(3)]
shared = min(seconds for _, seconds in answers)
assert all(result == expected for result, _ in answers), (answers, expected)

# %%
size = values.nbytes / 2**20
print(f"{options.rows:,} rows, {size:,.0f} MiB, on {'the GPU' if on_gpu else 'the host'}")
print(f"  copied and sent:   {today * 1e3:9.2f} ms, for every reader, every time")
print(f"  opened by name:    {shared * 1e3:9.2f} ms (after one put of {put * 1e3:.2f} ms)")
print(f"  {today / shared:.1f} times as fast")

# %%
reader.stdin.close()
reader.wait()
client.delete("notebook/column")
client.close()
