#!/usr/bin/env python3
"""Frames, published and taken back as pandas' own, beside pickle: bench_frames.py SOCKET [--quick].

Text: one row of 10 000 × 14, ten columns of text with values that repeat themselves and one in five missing, one whose
strings are all different, and 100 000 categories. Numbers: a million rows of ten columns with each kind of index, and
1000 × 1000. Times are this process's processor time, so that the machine's load counts little. Prints rows for
scripts/run-bench.
"""

import json
import pickle
import random
import statistics
import sys
import time

import numpy
import pandas

import gpubufd

ROWS = 10_000
MANY = 1_000_000


def frame_of(distinct, seed=1):
    draw = random.Random(seed)
    columns = {}
    for i in range(10):
        values = [f"{'place' if i % 2 else 'événement'} number {n} of {i}" for n in range(ROWS if distinct else 300)]
        picked = values if distinct else draw.choices(values, k=ROWS)
        columns[f"text{i}"] = [None if draw.random() < 0.2 else value for value in picked]
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


FRAMES = {
    "text.{}.repeated": lambda: frame_of(False),
    "text.{}.distinct": lambda: frame_of(True),
    "text.{}.categories": lambda: pandas.DataFrame({"c": pandas.Categorical([f"row {i}" for i in range(100_000)])}),
    **{f"frame.{{}}.{kind}": lambda kind=kind: many(kind) for kind in (
        "plain", "filtered", "dates", "labels", "levels", "nullable")},
    "frame.{}.wide": lambda: numbers(1000, 1000),
}


def timed(work):
    start = time.process_time()
    kept = work()
    took = (time.process_time() - start) * 1000
    del kept
    return took


def figure(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def row(name, ours, theirs, rounds):
    pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    print(json.dumps({
        "id": name, "unit": "ms", "measured": figure([ours for ours, _ in pairs]),
        "floor": figure([theirs for _, theirs in pairs]), "ratio": figure([a / b for a, b in pairs]),
    }), flush=True)


def main():
    rounds = 5 if "--quick" in sys.argv else 41
    with gpubufd.connect(sys.argv[1], name="bench") as client:
        for name, make in FRAMES.items():
            frame = make()
            pickled = pickle.dumps(frame, 5)
            row(name.format("put"), lambda: client.put("frame", frame, replace=True), lambda: pickle.dumps(frame, 5), rounds)
            pandas.testing.assert_frame_equal(client["frame"].to_pandas(), frame)
            row(name.format("to_pandas"), lambda: client["frame"].to_pandas(), lambda: pickle.loads(pickled), rounds)


if __name__ == "__main__":
    main()
