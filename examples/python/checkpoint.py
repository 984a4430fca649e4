"""A checkpoint of torch.distributed.checkpoint in memory: a trainer is killed, and the next one goes on.

It needs a daemon and PyTorch:

    python3 examples/python/checkpoint.py
"""

import multiprocessing
import os
import signal

import torch
import torch.distributed.checkpoint as dcp

import gpubufd
from gpubufd.torch.checkpoint import Reader, Writer


def train(kill_at: int) -> None:
    client = gpubufd.connect()
    state = {"weight": torch.zeros(256, 256), "step": torch.zeros(1)}
    if "example/run" in client:
        dcp.load(state, storage_reader=Reader(client, "example/run"), no_dist=True)
        print(f"went on at step {int(state['step'])}", flush=True)
    for step in range(int(state["step"]) + 1, 11):
        state["weight"] += 1
        state["step"].fill_(step)
        dcp.save(state, storage_writer=Writer(client, "example/run", label=f"step-{step}"), no_dist=True)
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"ended at step {int(state['step'])}, with weights of {float(state['weight'].mean())}", flush=True)


def main() -> None:
    for kill_at in (4, 0):
        trainer = multiprocessing.get_context("spawn").Process(target=train, args=(kill_at,))
        trainer.start()
        trainer.join()
    gpubufd.connect().delete("example/run", "example/run/*")


if __name__ == "__main__":
    main()
