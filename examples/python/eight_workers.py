#!/usr/bin/env python3
"""One pandas table, eight worker processes, one copy of the data: eight_workers.py [--rows N] [--workers N]

Each worker takes a slice of rows as pandas Series over the shared memory, and works on them as on any others. To
send the frame to each worker would copy it eight times.
"""

import argparse
import concurrent.futures
import multiprocessing
from typing import Dict, Tuple

import numpy as np
import pandas as pd

import gpubufd

NAME = "workers/trips"


def make(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "distance": random.gamma(2.0, 3.0, rows),
            "minutes": random.integers(2, 60, rows),
            "zone": pd.Categorical.from_codes(random.integers(0, 5, rows), list("ABCDE")),
            "tip": pd.array(random.integers(0, 9, rows), dtype="Int64"),
        }
    )


def own_memory() -> int:
    """Bytes of this process' private memory."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def work(bounds: Tuple[int, int]) -> Tuple[Dict[str, float], float, int]:
    """(mean distance by zone, km in all, bytes of private memory that this took) of some rows."""
    before = own_memory()
    with gpubufd.connect() as client:
        part = client.get(NAME)[bounds[0] : bounds[1]]  # rows of the shared table: nothing is copied
        distance = part["distance"].to_pandas()
        assert distance.to_numpy().ctypes.data == part["distance"].buffers.values.pointer
        total = float(distance.sum())
        grown = own_memory() - before
        means = distance.groupby(part["zone"].to_pandas(), observed=False).mean().to_dict()
        del distance, part
    return means, total, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()

    frame = make(options.rows)
    size = frame["distance"].to_numpy().nbytes
    with gpubufd.connect() as client:
        client.put(NAME, frame, replace=True)
        print(client.get(NAME))
        ends = np.linspace(0, options.rows, options.workers + 1).astype(int)
        # No fork: a connection belongs to the process that made it.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
            results = list(pool.map(work, zip(ends[:-1].tolist(), ends[1:].tolist())))
        client.delete(NAME)

    total = sum(result[1] for result in results)
    assert abs(total - frame["distance"].to_numpy().sum()) < 1e-6 * total
    zones = pd.DataFrame([result[0] for result in results]).mean()
    print(f"{options.workers} workers, {total:,.0f} km, mean by zone: {zones.round(2).to_dict()}")
    grown = max(result[2] for result in results)
    print(f"a worker's own memory grew by {grown / 2**20:.1f} MiB at most to read its part of {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
