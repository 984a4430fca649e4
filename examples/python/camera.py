#!/usr/bin/env python3
"""One camera, a viewer and a detector, each a process: camera.py [--frames N] [--rate HZ]

The camera's pictures are made by NumPy, in a slot of the stream. The viewer looks at the newest one, and skips what
it is too slow for. The detector asks for each, and for the camera to wait for it. Neither copies a picture.
"""

import argparse
import multiprocessing
import time
from typing import Any

import numpy as np

import gpubufd

NAME = "camera/front"
SHAPE = (480, 640, 3)


def draw(picture: Any, number: int) -> None:
    """A bright square that moves over a dark ground; in one picture of ten there is none."""
    picture[:] = 20
    if number % 10:
        x = 8 * number % (SHAPE[1] - 40)
        picture[200:240, x:x + 40] = (250, 250, 200)


def camera(stream: gpubufd.StreamWriter, frames: int, rate: float) -> None:
    for number in range(frames):
        with stream.next(timeout=5) as frame:
            draw(frame.array, number)
        time.sleep(1 / rate)


def viewer(ready: Any) -> None:
    with gpubufd.connect() as client, client.read(NAME, timeout=10) as frames:
        ready.set()
        for frame in frames:
            rows = frame.array[::60, ::16].mean(axis=2)
            picture = "\n".join("".join("#" if value > 128 else "." for value in row) for row in rows)
            time.sleep(0.05)  # a slow screen
            print(f"{picture}\n{frame.missed} pictures skipped", flush=True)


def detector(ready: Any, found: Any) -> None:
    seen = 0
    with gpubufd.connect() as client, client.read(NAME, each=True, waits=True, timeout=10) as frames:
        ready.set()
        for frame in frames:
            seen += bool((frame.array.max(axis=2) > 128).any())
    found.put(seen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--rate", type=float, default=30)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    found = spawn.Queue()
    waiting = [spawn.Event(), spawn.Event()]
    with gpubufd.connect() as client:
        stream = client.stream(NAME, "uint8", SHAPE, slots=8, device="host")
        processes = [spawn.Process(target=viewer, args=(waiting[0],)),
                     spawn.Process(target=detector, args=(waiting[1], found))]
        for process in processes:
            process.start()
        for event in waiting:
            event.wait()
        camera(stream, options.frames, options.rate)
        stream.close()  # which ends the readers' loops
        print(f"the square was in {found.get()} of {options.frames} pictures")
        for process in processes:
            process.join()
        client.delete(NAME)


if __name__ == "__main__":
    main()
