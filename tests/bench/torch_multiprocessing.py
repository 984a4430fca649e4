"""A tensor through a queue of torch.multiprocessing beside gpubufd's, in one run: microseconds for each tensor.

    torch_multiprocessing.py [--device cuda] [--count 200] [--mib 0.0625 1 16]

It needs PyTorch, a daemon ($GPUBUFD_SOCKET), and the package in PYTHONPATH. `one by one`: each tensor is a message of its own,
and is summed by the receiver before it answers. `a list`: all tensors are in one message. `published`: they lie in an
object of gpubufd's, so that references are sent.
"""

import argparse
import importlib
import statistics
import time

import torch
import torch.multiprocessing

KINDS = {"torch": "torch.multiprocessing", "gpubufd": "gpubufd.torch.multiprocessing"}


def receive(module, queue, answers):
    importlib.import_module(module)
    answers.put(None)
    while True:
        message = queue.get()
        if message is None:
            return
        found = sum(float(one[-1]) for one in (message if isinstance(message, list) else [message]))
        del message
        answers.put(found)


def timed(queue, answers, message):
    start = time.perf_counter()
    queue.put(message)
    answers.get()
    return (time.perf_counter() - start) * 1e6


def measure(kind, tensors, published):
    """{what: microseconds for each tensor}, with a receiver of its own."""
    module = importlib.import_module(KINDS[kind])
    module.init_reductions() if kind == "gpubufd" else torch.multiprocessing.reductions.init_reductions()
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=receive, args=(KINDS[kind], queue, answers))
    child.start()
    answers.get()
    told = {"nothing": statistics.median(timed(queue, answers, [torch.zeros(0)] * 0) for _ in range(200))}
    for what, given in (("one by one", tensors), ("published, one by one", published)):
        if given:
            timed(queue, answers, given[0].clone() if given is tensors else given[0])
            told[what] = statistics.median(timed(queue, answers, one) for one in given)
    for what, given in (("a list", tensors), ("published, a list", published)):
        if given:
            told[what] = statistics.median(
                timed(queue, answers, [one.clone() for one in given] if given is tensors else given) for _ in range(3)
            ) / len(given)
    queue.put(None)
    child.join()
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--mib", type=float, nargs="+", default=[0.0625, 1])
    options = parser.parse_args()
    import gpubufd
    import gpubufd.torch as gt

    client = gpubufd.connect()
    for mib in options.mib:
        made = {str(i): torch.full((int(mib * 2**18),), float(i), device=options.device) for i in range(options.count)}
        gt.put_state_dict(client, "bench/torch.mp", made, replace=True)
        published = list(gt.get_state_dict(client, "bench/torch.mp").values())
        for kind in KINDS:
            tensors = [one.clone() for one in made.values()]
            told = measure(kind, tensors, published if kind == "gpubufd" else None)
            print(f"{mib:g} MiB on {options.device}, {kind}: " + ", ".join(f"{what} {us:.1f}" for what, us in told.items()),
                  flush=True)
        del published
        client.delete("bench/torch.mp")


if __name__ == "__main__":
    main()
