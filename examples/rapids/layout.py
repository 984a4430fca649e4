#!/usr/bin/env python3
"""Lays out a graph on the GPU, and shows each epoch to Node: layout.py [--nodes N] [--epochs N]

It does what the demo modules/demo/ipc/umap of rapidsai/node does, with cuML's UMAP. Without cuML the nodes wander to the
middles of their classes.
"""

import argparse
from typing import Any, Callable

import numpy as np

import gpubufd

try:
    import cupy as xp
except ImportError:
    xp = np

COLORS = np.array([0xFF4201AF, 0xFF4F3FF4, 0xFF437518, 0xFF61AEFD, 0xFF8BE0FE, 0xFF98F5E6, 0xFFA4DDAB, 0xFFA5C266,
                   0xFFBD8832, 0xFFA24F5E], "u4")


def with_cuml(data: Any, epochs: int, show: Callable[..., None]) -> None:
    from cuml.internals import GraphBasedDimRedCallback
    from cuml.manifold import UMAP

    class Callback(GraphBasedDimRedCallback):  # type: ignore[misc]
        def on_preprocess_end(self, positions: Any) -> None:
            show(positions)

        def on_epoch_end(self, positions: Any) -> None:
            show(positions)

        def on_train_end(self, positions: Any) -> None:
            show(positions, label="done")

    UMAP(n_neighbors=5, init="spectral", n_epochs=epochs, callback=Callback()).fit(data)


def without_cuml(classes: Any, epochs: int, show: Callable[..., None]) -> None:
    angle = classes * (2 * np.pi / len(COLORS))
    middles = xp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1), dtype="f4")
    positions = xp.asarray(np.random.default_rng(1).normal(size=middles.shape), dtype="f4")
    for epoch in range(epochs):
        positions += (middles - positions) * np.float32(0.1)
        show(positions, label="done" if epoch == epochs - 1 else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    classes = np.arange(options.nodes) % len(COLORS)
    data = np.random.default_rng(0).normal(size=(options.nodes, 50)) + 3 * classes[:, None]
    with gpubufd.connect() as client:
        client.put("rapids/nodes", {"color": COLORS[classes], "size": np.full(options.nodes, 20, "u1")}, replace=True)

        def show(positions: Any, label: Any = None) -> None:
            client.put("rapids/positions", positions, replace=True, label=label)

        try:
            with_cuml(data, options.epochs, show)
        except ImportError:
            without_cuml(classes, options.epochs, show)
        print(f"rapids/positions is at version {client.stat('rapids/positions').version}")


if __name__ == "__main__":
    main()
