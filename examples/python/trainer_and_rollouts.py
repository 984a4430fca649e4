#!/usr/bin/env python3
"""A trainer publishes weights each step, rollout workers switch to them: trainer_and_rollouts.py [--steps N] [--workers N]

A step is one object, a bundle of all arrays, so that a worker never has weights of two steps. No process stops for
the switch: a worker keeps its weights until it opens newer ones, and the daemon frees a step after its last reader.
With `keep=1` the step before the current one can still be opened.
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
barrier: Any = None  # in each worker, so that all begin together


def begin(everybody: Any) -> None:
    global barrier
    barrier = everybody


def weights_of(step: int) -> Dict[str, "np.ndarray[Any, Any]"]:
    """Stand-ins for trained weights: their values tell the step and the layer."""
    return {f"layers.{i}.weight": np.full((256, 64 + i), step + i / 100, "float32") for i in range(LAYERS)}


def rollout(steps: int) -> Tuple[int, int]:
    """Follows the policy to its last step; (steps that it saw, steps that had weights of two)."""
    seen = mixed = 0
    with gpubufd.connect() as client:
        barrier.wait(60)
        for info in client.versions(NAME, timeout=60):
            try:
                weights = client.get(NAME, version=info.version)
            except (gpubufd.NotFound, gpubufd.Stale):
                continue  # the trainer is two steps ahead: the next version is about to come
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
    parser.add_argument("--training", type=float, default=0.01, metavar="SECONDS", help="time of a step")
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
