#!/usr/bin/env python3
"""Two models on a device that has room for one: two_models.py [--mib N] [--device cuda:0] [--turns N]

The model that does not work is parked: its content moves to a tier when the other one needs the room, and its arrays
stay where they are, for the graphs and the code that know their addresses. For example

    gpubufd --device cuda:0:20G --tier host:40G &
    two_models.py --mib 16000 --device cuda:0

moves each model between the GPU and pinned host memory.
"""

import argparse
import time
from typing import Any, Dict

import numpy as np

import gpubufd

NAMES = ("models/chat", "models/code")


def publish(client: gpubufd.Client, name: str, value: int, mib: int, device: Any) -> None:
    """Stand-ins for weights, 16 arrays."""
    arrays: Dict[str, Any] = {f"layer.{i}": np.full(mib << 16, value, "uint8") for i in range(16)}
    client.put_bundle(name, arrays, device=device, replace=True, own=True)


def first_bytes(view: gpubufd.View) -> int:
    """The one value that the model has: a stand-in for work."""
    found = {int(array.copy_to_host()[-1]) for array in view.values()}
    assert len(found) == 1, found
    return found.pop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--device", default=None)
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    with gpubufd.connect() as client:
        views = []
        for value, name in enumerate(NAMES):
            publish(client, name, value, options.mib, options.device)
            views.append(client.follow(name))
            views[-1].park()
        for turn in range(options.turns):
            view = views[turn % 2]
            begun = time.monotonic()
            view.resume(timeout=60)
            took = time.monotonic() - begun
            assert first_bytes(view) == turn % 2
            print(f"{view.name} works, after {took * 1000:.1f} ms; the other one sleeps")
            view.park()
        for view in views:
            view.close()
        client.delete(*NAMES)


if __name__ == "__main__":
    main()
