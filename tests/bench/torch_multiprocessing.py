"""A tensor through a queue of torch.multiprocessing beside gpubufd's, in one run: microseconds for each tensor.

    torch_multiprocessing.py [--device cuda] [--count 200] [--mib 0.0625 1 16]

It needs PyTorch, a daemon ($GPUBUFD_SOCKET), and the package in PYTHONPATH. `one by one`: each tensor is a message of its
own. `a list`: all tensors are in one message. `published`: they lie in an object of gpubufd's, so that references are
sent. The receiver adds up the last elements of a message, in one step, before it answers. In brackets: the processor time of both processes.
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
        if message:
            float(torch.cat([one[-1:] for one in message]).sum())
        del message
        answers.put(time.process_time())


def measured(queue, answers, messages):
    """(microseconds, of both processes' processor time) for each tensor, the medians of some messages."""
    queue.put([])
    theirs, found = answers.get(), []
    for message in messages:
        start, ours = time.perf_counter(), time.process_time()
        queue.put(message)
        told = answers.get()
        spent = time.process_time() - ours + told - theirs
        found.append([x * 1e6 / max(len(message), 1) for x in (time.perf_counter() - start, spent)])
        theirs = told
    return tuple(map(statistics.median, zip(*found)))


def measure(kind, tensors, published):
    """{what: measured()}, with a receiver of its own."""
    module = importlib.import_module(KINDS[kind])
    module.init_reductions() if kind == "gpubufd" else torch.multiprocessing.reductions.init_reductions()
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=receive, args=(KINDS[kind], queue, answers))
    child.start()
    answers.get()
    told = {"nothing": measured(queue, answers, [[]] * 200)}
    for what, given in (("", tensors), ("published, ", published)):
        if given:
            own = (lambda one: one) if given is published else torch.clone
            measured(queue, answers, [[own(given[0])]])
            told[f"{what}one by one"] = measured(queue, answers, ([own(one)] for one in given))
            told[f"{what}a list"] = measured(queue, answers, ([own(one) for one in given] for _ in range(5)))
    queue.put(None)
    child.join()
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--mib", type=float, nargs="+", default=[0.0625, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
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
            print(f"{mib:g} MiB on {options.device}, {kind}: " + ", ".join(f"{what} {us:.1f} ({cpu:.1f})" for what, (us, cpu) in told.items()),
                  flush=True)
        del published
        client.delete("bench/torch.mp")


if __name__ == "__main__":
    main()
