#!/usr/bin/env python3
"""Two stages of a model in two processes, on one GPU or on the host: two_stages.py [--frames N] [--device cuda:0]

The first stage makes features, in a slot of the stream; the second takes them from there. On a GPU the second stage's
work is queued behind the first's, and no processor waits in between: frames are read ahead, and to_torch() lets the
current stream wait.
"""

import argparse
import multiprocessing
from typing import Any

import torch

import gpubufd

NAME = "model/features"
SHAPE = (64, 256)


def stream_of(device: str) -> Any:
    return torch.cuda.current_stream() if device != "host" else None


def first(stream: gpubufd.StreamWriter, frames: int, device: str) -> None:
    where = device if device != "host" else "cpu"
    torch.manual_seed(1)
    layer = torch.nn.Linear(32, SHAPE[1]).to(where)
    with torch.no_grad():
        for number in range(frames):
            frame = stream.next(timeout=None)
            frame.to_torch().copy_(torch.relu(layer(torch.full((SHAPE[0], 32), float(number), device=where))))
            frame.publish(stream=stream_of(device))


def second(ready: Any, done: Any, device: str) -> None:
    sums = []
    with gpubufd.connect() as client, client.read(
            NAME, each=True, waits=True, lag=3, hold=2, ahead=device != "host", timeout=10) as frames:
        ready.set()
        for frame in frames:  # which gives each back on the default stream, behind this work
            sums.append(frame.to_torch().sum())
    done.put([float(one) for one in sums])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--device", default="host")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Queue()
    with gpubufd.connect() as client:
        stream = client.stream(NAME, "float32", SHAPE, device=options.device)
        stage = spawn.Process(target=second, args=(ready, done, options.device))
        stage.start()
        ready.wait()
        first(stream, options.frames, options.device)
        stream.close()  # which waits for the GPU, and ends the reader's loop
        sums = done.get()
        stage.join()
        client.delete(NAME)
    print(f"{len(sums)} frames, the last one's sum is {sums[-1]:.1f}")


if __name__ == "__main__":
    main()
