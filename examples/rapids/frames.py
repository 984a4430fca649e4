#!/usr/bin/env python3
"""Python's side of the example in README.md: frames.py publish | summary | columns | parts | halves | clean

Without cuDF its frames are those of pandas, which are copied to the GPU and back.
"""

import collections
import sys
from typing import Any, Dict

import numpy as np

import gpubufd

try:
    import cudf as frames
except ImportError:
    import pandas as frames

WAIT = 60.0  # seconds
ROWS = 100_000
CITIES = ["Linz", "Graz", None, "Wien"]


def trips() -> Any:
    return frames.DataFrame({
        "city": frames.Series([CITIES[k % 4] for k in range(ROWS)]),
        "miles": frames.Series([None if k % 7 == 3 else k / 8 for k in range(ROWS)], dtype="float64"),
        "riders": np.arange(ROWS, dtype="int32") % 5,
    })


def opened(held: Any) -> Any:
    """A frame or Series of an object: of cuDF's over its memory, where there is cuDF."""
    return held.to_cudf() if frames.__name__ == "cudf" else held.to_host().to_pandas()


def on_host(value: Any) -> Any:
    return value.to_pandas() if hasattr(value, "to_pandas") else value


def publish(client: gpubufd.Client) -> None:
    frame = trips()
    client.put("rapids/trips", frame, replace=True)
    client.put("rapids/trips/20-40", frame[20:40], replace=True)
    print(f"{frames.__name__}: rapids/trips, {len(frame)} rows, on {client.stat('rapids/trips').device}")


def summary(client: gpubufd.Client) -> None:
    """Node's result, beside cuDF's own."""
    theirs = on_host(opened(client.get("rapids/by-city", timeout=WAIT)))
    ours = on_host(opened(client.get("rapids/trips")).groupby("city")["miles"].sum())
    found = dict(zip(theirs["city"], theirs["miles"]))
    assert found == dict(ours.items()), (found, ours)
    print(f"{frames.__name__}: Node's sums are right: {found}")


def columns(client: gpubufd.Client) -> None:
    """A cache of columns that are made when somebody opens them; each takes an eighth of the GPU."""
    rows = client.devices()[0]["capacity"] // 64
    made: Dict[str, int] = collections.Counter()

    def column(name: str) -> Any:
        made[name] += 1
        return frames.Series(np.arange(rows, dtype="float64") + int(name.rpartition("/")[2]))

    with client.provide("rapids/columns/", column, evict="drop"):
        print(f"{frames.__name__}: provides rapids/columns/N, {rows * 8 >> 20} MiB each", flush=True)
        client.get("rapids/columns-read", timeout=10 * WAIT)  # which Node puts at its end
    left = client.list("rapids/doubled/")
    for info in left:
        series, number = opened(client.get(info.name)), int(info.name.rpartition("/")[2])
        assert (series.min(), series.max()) == (2 * number, 2 * (rows - 1 + number)), info.name
        del series
    again = sum(count > 1 for count in made.values())
    assert left and again, (left, made)
    print(f"{frames.__name__}: made {len(made)} columns, {again} of them again; {len(left)} of Node's are there, and right")


def parts(client: gpubufd.Client) -> None:
    import gpubufd.dask

    if frames.__name__ == "cudf":
        import dask_cudf

        collection = dask_cudf.from_cudf(trips(), npartitions=4)
    else:
        import dask.dataframe

        collection = dask.dataframe.from_pandas(trips(), npartitions=4)
    gpubufd.dask.publish(collection, "rapids/parts", replace=True)
    print(f"dask and {frames.__name__}: rapids/parts, {collection.npartitions} partitions")


def halves(client: gpubufd.Client) -> None:
    import gpubufd.dask

    loaded = gpubufd.dask.load("rapids/halves")
    riders = int(loaded["riders"].sum().compute())
    assert riders == 2 * int(trips()["riders"].sum()), riders
    print(f"dask: Node's {loaded.npartitions} partitions have {riders} riders, which is right")


def clean(client: gpubufd.Client) -> None:
    client.delete(*(info.name for info in client.list("rapids/")), missing_ok=True)


if __name__ == "__main__":
    steps = [publish, summary, columns, parts, halves, clean]
    named = {step.__name__: step for step in steps}
    if len(sys.argv) != 2 or sys.argv[1] not in named:
        sys.exit(f"usage: frames.py {' | '.join(named)}")
    with gpubufd.connect() as connected:
        named[sys.argv[1]](connected)
