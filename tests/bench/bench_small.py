#!/usr/bin/env python3
"""Small calls from Python, and the floors of frames: bench_small.py SOCKET [--quick].

A put of 1 kB beside a SharedMemory that is made, written and unlinked; its *own* part is what Python does beside the one call
of the C library. to_numpy() beside numpy.asarray() of a memoryview, which it cannot do without. Floors: a put of the bytes of
the wide frame and of the categories' codes as plain arrays, beside pickle.dumps of the frames; and the dates of an index read
once, which the check of its `freq` cannot do without, beside joblib's whole frame. Times are this process's processor time; the
rows of small calls are of 1000.
"""

import os
import pickle
import sys
import tempfile
import time
from multiprocessing import shared_memory

import numpy
from bench_frames import FRAMES, joblib, row

import gpubufd
from gpubufd import _params

TIMES = 1000


def own_part(whole, part, rounds):
    """The median of what `whole` takes more than `part`, in µs, of rounds that alternate."""
    found = []
    for _ in range(rounds):
        took = []
        for work in (whole, part):
            start = time.process_time()
            for _ in range(TIMES):
                work()
            took.append((time.process_time() - start) / TIMES * 1e6)
        found.append(took[0] - took[1])
    found.sort()
    print(f"put of 1 kB, Python's own: {found[rounds // 2]:.1f} us ({found[0]:.1f} … {found[-1]:.1f})", file=sys.stderr)


def main():
    rounds = 5 if "--quick" in sys.argv else 41
    with gpubufd.connect(sys.argv[1], name="bench") as client, tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        small = numpy.ones(128)
        options = _params.options(replace=True)

        def shared():
            memory = shared_memory.SharedMemory(create=True, size=small.nbytes)
            numpy.ndarray(small.shape, buffer=memory.buf)[:] = small
            memory.close()
            memory.unlink()

        def put():
            client.put("small", small, replace=True)

        def many(work):
            return lambda: [work() for _ in range(TIMES)] and None

        row("small.put", many(put), {"shared_memory_": many(shared)}, rounds)
        own_part(put, lambda: client._put_array("small", "float64", (128,), None, small.ctypes.data, options), rounds)
        held, memory = client["small"], memoryview(bytes(1024)).cast("d")
        row("small.to_numpy", many(held.to_numpy), {"memoryview_": many(lambda: numpy.asarray(memory))}, rounds)
        row("small.asarray", many(lambda: numpy.asarray(held)), {"memoryview_": many(lambda: numpy.asarray(memory))}, rounds)
        for name, values in (("wide", lambda frame: frame.to_numpy().T), ("codes", lambda frame: frame.c.array.codes)):
            frame = FRAMES[f"{'frame' if name == 'wide' else 'text'}.{{}}.{name}"]()
            array = values(frame)
            row(f"floor.{name}", lambda: client.put("floor", array, replace=True), {"": lambda: pickle.dumps(frame, 5)}, rounds)
        if joblib:
            frame = FRAMES["frame.{}.dates"]()
            path = os.path.join(place, "frame")
            joblib.dump(frame, path)
            client.put("dates", frame.index.asi8, replace=True)
            row("floor.dates", lambda: client["dates"].to_numpy().max(), {"joblib_": lambda: joblib.load(path, mmap_mode="r")}, rounds)


if __name__ == "__main__":
    main()
