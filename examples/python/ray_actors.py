"""A trainer's weights to two of Ray's actors, which map what the trainer has put once.

It needs a daemon, PyTorch and Ray:

    python3 examples/python/ray_actors.py
"""

from typing import Dict

import ray
import torch

import gpubufd.ray

gpubufd.ray.register()  # before a method names it


class Trainer:
    @ray.method(tensor_transport="gpubufd")  # type: ignore
    def weights(self) -> Dict[str, torch.Tensor]:
        return {"w": torch.full((1000, 1000), 2.0)}


class Rollout:
    def load(self, weights: Dict[str, torch.Tensor]) -> float:
        return float(weights["w"].sum())


def main() -> None:
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    trainer = ray.remote(num_cpus=0)(Trainer).remote()
    rollouts = [ray.remote(num_cpus=0, enable_tensor_transport=True)(Rollout).remote() for _ in range(2)]
    weights = trainer.weights.remote()
    print("the rollouts found", ray.get([rollout.load.remote(weights) for rollout in rollouts]))
    ray.shutdown()


if __name__ == "__main__":
    main()
