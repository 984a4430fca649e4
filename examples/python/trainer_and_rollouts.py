#!/usr/bin/env python3
"""A trainer publishes weights each step, rollout workers switch to them: trainer_and_rollouts.py [--steps N] [--workers N]

A step is one object, a bundle of all arrays, so that a worker has all of a step's weights or all of another's.
Nobody stops for the switch: a worker goes on with what it has until it asks for more, and the daemon lets a step
go when its last reader does. `keep=1` leaves the step before at hand, to go back to.
"""

import argparse
import concurrent.futures
import multiprocessing
import time
from typing import Any, Dict, Tuple

import numpy as np

import gpubufd

NAME = "policy/weights"
LAYERS = 8
barrier: Any = None  # in each worker: all begin together


def begin(everybody: Any) -> None:
    global barrier
    barrier = everybody


def weights_of(step: int) -> Dict[str, "np.ndarray[Any, Any]"]:
    """As if they had been trained: each layer is another place's, and all are this step's."""
    return {f"layers.{i}.weight": np.full((256, 64 + i), step + i / 100, "float32") for i in range(LAYERS)}


def rollout(steps: int) -> Tuple[int, int]:
    """Follows the policy to its last step. How many steps it saw, and how many were mixed of two."""
    seen = mixed = 0
    with gpubufd.connect() as client:
        barrier.wait(60)
        for info in client.versions(NAME, timeout=60):
            try:
                weights = client.get(NAME, version=info.version)
            except (gpubufd.NotFound, gpubufd.Stale):
                continue  # two steps further already: the next one is about to be told
            step = int((info.label or "").removeprefix("step-"))
            expected = weights_of(step)
            mixed += any(not np.array_equal(weights[name].to_numpy(), expected[name]) for name in expected)
            seen += 1
            del weights
            if step == steps - 1:
                break
    return seen, mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--training", type=float, default=0.01, metavar="SECONDS", help="what a step takes")
    options = parser.parse_args()

    with gpubufd.connect() as client:
        context = multiprocessing.get_context("spawn")
        everybody = context.Barrier(options.workers + 1)
        with concurrent.futures.ProcessPoolExecutor(
            options.workers, context, initializer=begin, initargs=(everybody,)
        ) as pool:
            workers = [pool.submit(rollout, options.steps) for _ in range(options.workers)]
            everybody.wait(60)
            for step in range(options.steps):
                time.sleep(options.training)
                client.put_bundle(NAME, weights_of(step), replace=True, label=f"step-{step}", keep=1)
            seen, mixed = zip(*(worker.result() for worker in workers))
        labels = [info.label for info in client.list(NAME, versions=True)]
        client.delete(NAME)
    print(f"{options.steps} steps were published; the workers saw {', '.join(map(str, seen))} of them, "
          f"{sum(mixed)} mixed of two")
    print(f"left at the end: {' and '.join(filter(None, labels))}")


if __name__ == "__main__":
    main()
