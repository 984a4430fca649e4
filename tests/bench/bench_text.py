#!/usr/bin/env python3
"""Frames of text, published and taken back as pandas' own, beside pickle: bench_text.py SOCKET [--quick].

One row of 10 000 × 14, ten columns of text with values that repeat themselves and one in five missing, and
one whose strings are all different. Prints rows for scripts/run-bench.
"""

import json
import pickle
import random
import statistics
import sys
import time

import pandas

import gpubufd

ROWS = 10_000


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


def timed(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


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
        for kind, distinct in (("repeated", False), ("distinct", True)):
            frame = frame_of(distinct)
            pickled = pickle.dumps(frame, 5)
            row(f"text.put.{kind}", lambda: client.put("text", frame, replace=True),
                lambda: pickle.dumps(frame, 5), rounds)
            table = client["text"]
            pandas.testing.assert_frame_equal(table.to_pandas(), frame)
            row(f"text.to_pandas.{kind}", table.to_pandas, lambda: pickle.loads(pickled), rounds)


if __name__ == "__main__":
    main()
