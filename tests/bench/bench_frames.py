#!/usr/bin/env python3
"""Frames, published and taken back as pandas' own, beside pickle, and beside joblib's mapped file in /dev/shm where joblib
is installed: bench_frames.py SOCKET [--quick].

Text: one row of 10 000 × 14, ten columns of text with values that repeat themselves and one in five missing, one whose
strings are all different, both again as Python's own objects, 100 000 categories, and a million values of 300. Numbers:
a million rows of ten columns with each kind of index, and 1000 × 1000. Small: 10 rows of five kinds, and one row of floats.
Times are this process's processor time, so that the machine's load counts little. Prints rows for scripts/run-bench.
"""

import json
import os
import pickle
import random
import statistics
import sys
import tempfile
import time

import numpy
import pandas

import gpubufd

try:
    import joblib
except ImportError:
    joblib = None
ROWS = 10_000
MANY = 1_000_000


def frame_of(distinct, seed=1, dtype=None):
    draw = random.Random(seed)
    columns = {}
    for i in range(10):
        values = [f"{'place' if i % 2 else 'événement'} number {n} of {i}" for n in range(ROWS if distinct else 300)]
        picked = values if distinct else draw.choices(values, k=ROWS)
        columns[f"text{i}"] = pandas.Series([None if draw.random() < 0.2 else value for value in picked], dtype=dtype)
    for i in range(4):
        columns[f"number{i}"] = [draw.random() for _ in range(ROWS)]
    return pandas.DataFrame(columns)


def numbers(rows, columns):
    # As pandas keeps what it has made itself: column by column.
    values = numpy.asfortranarray(numpy.random.default_rng(1).random((rows, columns)))
    return pandas.DataFrame(values, columns=[f"c{i}" for i in range(columns)], copy=False)


def many(kind):
    frame = numbers(MANY, 10)
    if kind == "filtered":
        return frame[frame.c0 > 0.0001]
    if kind == "dates":
        frame.index = pandas.date_range("2020-01-01", periods=MANY, freq="s")
    elif kind == "labels":
        frame.columns = range(10)
    elif kind == "levels":
        frame.index = pandas.MultiIndex.from_product([range(MANY // 100), range(100)], names=["a", "b"])
    elif kind == "nullable":
        frame["n"] = pandas.array([None, *range(MANY - 1)], dtype="Int64")
    return frame


def small():
    return pandas.DataFrame({
        "id": range(10), "value": numpy.linspace(0, 1, 10), "name": [f"name {i}" for i in range(10)],
        "day": pandas.date_range("2026-01-01", periods=10), "good": [i % 2 == 0 for i in range(10)]})


def categories():
    codes = numpy.random.default_rng(1).integers(0, 300, MANY)
    return pandas.DataFrame({"c": pandas.Categorical.from_codes(codes, [f"k{i}" for i in range(300)])})


FRAMES = {
    "text.{}.repeated": lambda: frame_of(False),
    "text.{}.distinct": lambda: frame_of(True),
    "text.{}.objects": lambda: frame_of(False, dtype=object),
    "text.{}.codes": categories,
    "text.{}.categories": lambda: pandas.DataFrame({"c": pandas.Categorical([f"row {i}" for i in range(100_000)])}),
    **{f"frame.{{}}.{kind}": lambda kind=kind: many(kind) for kind in (
        "plain", "filtered", "dates", "labels", "levels", "nullable")},
    "frame.{}.wide": lambda: numbers(1000, 1000),
    "frame.{}.small": small,
    "frame.{}.row": lambda: numbers(1, 3),
}


def timed(work, times):
    start = time.process_time()
    for _ in range(times):
        kept = work()
    took = (time.process_time() - start) * 1000 / times
    del kept
    return took


def figure(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def row(name, ours, peers, rounds):
    """A line for each peer, of the same rounds."""
    started = time.perf_counter()
    ours()
    times = 1 if time.perf_counter() - started > 0.003 else 20
    found = [(timed(ours, times), *(timed(peer, times) for peer in peers.values())) for _ in range(rounds)]
    for i, peer in enumerate(peers, 1):
        print(json.dumps({
            "id": name.replace(".", f".{peer}", 1) if peer else name, "unit": "ms",
            "measured": figure([took[0] for took in found]), "floor": figure([took[i] for took in found]),
            "ratio": figure([took[0] / took[i] for took in found]),
        }), flush=True)


def main():
    rounds = 5 if "--quick" in sys.argv else 41
    with gpubufd.connect(sys.argv[1], name="bench") as client, tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        path = os.path.join(place, "frame")
        for name, make in FRAMES.items():
            frame = make()
            pickled = pickle.dumps(frame, 5)
            writers, readers = {"": lambda: pickle.dumps(frame, 5)}, {"": lambda: pickle.loads(pickled)}
            if joblib:
                writers["joblib_"] = lambda: joblib.dump(frame, path)
                readers["joblib_"] = lambda: joblib.load(path, mmap_mode="r")
            row(name.format("put"), lambda: client.put("frame", frame, replace=True), writers, rounds)
            pandas.testing.assert_frame_equal(client["frame"].to_pandas(), frame)
            row(name.format("to_pandas"), lambda: client["frame"].to_pandas(), readers, rounds)


if __name__ == "__main__":
    main()
