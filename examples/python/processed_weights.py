"""Processed weights: one engine loads, quantises and lays out, and the others map the result without a copy.

gpubufd-vllm and gpubufd-sglang do this inside those engines. It needs a daemon and PyTorch:

    python3 examples/python/processed_weights.py
"""

import multiprocessing

import torch

import gpubufd
from gpubufd.torch.processed import share_module


def make() -> torch.nn.Module:
    with torch.device("meta"):
        return torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)])


def load() -> torch.nn.Module:
    print("one loads, and lays out", flush=True)
    model = make().to_empty(device="cpu")
    for number, layer in enumerate(model.children()):
        quantised = torch.full((512, 512), number, dtype=torch.int8).t()
        layer.weight = torch.nn.Parameter(quantised, requires_grad=False)
        layer.register_buffer("scale", torch.tensor(0.5))
    return model


def engine(number: int) -> None:
    facts = {"model": "example", "dtype": "int8", "tp_rank": 0}  # compared: another layout is a Mismatch
    client = gpubufd.connect()
    model, _ = share_module(client, "example/processed", facts, load, make, device=torch.device("cpu"))
    print(f"engine {number} has {sum(1 for _ in model.parameters())} weights of {next(model.parameters()).dtype}", flush=True)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    engines = [context.Process(target=engine, args=(number,)) for number in range(3)]
    for one in engines:
        one.start()
    for one in engines:
        one.join()
    gpubufd.connect().delete("example/processed")


if __name__ == "__main__":
    main()
