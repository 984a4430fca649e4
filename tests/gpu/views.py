#!/usr/bin/env python3
"""Views on a real GPU: switches under captured graphs, from a seal to the first replay, park and resume, and beside them
what else brings new weights into a model: copies in place, and load_state_dict of a safetensors file.

    PYTHONPATH=build/python tests/gpu/views.py --daemon build/bin/gpubufd [--gib 16] [--rounds 10000] [--host-only]

Needs PyTorch; safetensors where it is installed. A line for each figure; those that have an aim say whether it is met,
and one that is missed makes the status 1. A reader checks after each switch that all of its results are of one version.
About 100 seconds with 16 GiB and 10 000 rounds; the rounds end after --seconds (30).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from common import serving

import gpubufd

try:
    import torch

    import gpubufd.torch
except ImportError:
    torch = None  # --host-only goes without

GIB = 1 << 30
MISSED = []
TENSORS = 32
PUBLISHER = """
import sys, time
import torch, gpubufd, gpubufd.torch as gt
sealed = 0.0
seal = gpubufd._core.Object._seal
def timed(self, *arguments):
    global sealed
    sealed = time.monotonic()
    return seal(self, *arguments)
gpubufd.Bundle._seal = timed
count, size, device = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
client = gpubufd.connect()
weights = {f"layer.{i}.weight": torch.empty(size, dtype=torch.int32, device=device) for i in range(count)}
for line in sys.stdin:
    name, value, keep = line.split()
    for tensor in weights.values():
        tensor.fill_(int(value))
    gt.put_state_dict(client, name, weights, replace=True, own=True, keep=int(keep), label=value)
    print(sealed, flush=True)
"""


def row(what, value, unit, aim=None, least=False):
    verdict = ""
    if aim is not None:
        met = value >= aim if least else value <= aim
        verdict = f" | aim {'>=' if least else '<='} {aim:g} {unit}: {'met' if met else 'MISSED'}"
        if not met:
            MISSED.append(what)
    print(f"{what}: {value:.4g} {unit}{verdict}", flush=True)


def percentile(times, part):
    return sorted(times)[min(int(len(times) * part), len(times) - 1)]


def timed(work, *arguments, **keywords):
    begun = time.monotonic()
    work(*arguments, **keywords)
    return time.monotonic() - begun


class Publisher:
    """Another process, which has written what is followed here."""

    def __init__(self, size, device):
        self.process = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(TENSORS), str(size // 4 // TENSORS), device],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def publish(self, value, name="policy", keep=1):
        """When it was sealed, by the clock that all processes have."""
        self.process.stdin.write(f"{name} {value} {keep}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


# ---- a reader whose results are of one version ----


def sample(tensors, out):
    """The least and the greatest of what is looked at in each tensor: begin, end, and places in between."""
    for i, tensor in enumerate(tensors):
        part = torch.cat([tensor[:: max(tensor.numel() // 4096, 1)], tensor[-1:]])
        out[2 * i] = part.min()
        out[2 * i + 1] = part.max()


class Graphs:
    def __init__(self, state, count):
        self.stream = torch.cuda.Stream()
        self.out = torch.zeros(2 * TENSORS, dtype=torch.int32, device="cuda")
        tensors = list(state.values())
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            sample(tensors, self.out)
        self.stream.synchronize()
        self.graphs = []
        for _ in range(count):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                sample(tensors, self.out)
            self.graphs.append(graph)

    def replay(self, i):
        with torch.cuda.stream(self.stream):
            self.graphs[i % len(self.graphs)].replay()
        self.stream.synchronize()

    def one_version(self):
        found = set(self.out.tolist())
        return found.pop() if len(found) == 1 else None


def switches(client, publisher, rounds, seconds):
    publisher.publish(1)
    publisher.publish(2)
    state = gpubufd.torch.follow(client, "policy")
    graphs = Graphs(state, 20)
    for label in "1212":
        state.switch(label=label)
    times, mixed, end = [], 0, time.monotonic() + seconds
    for i in range(rounds):
        label = "12"[i % 2]
        times.append(timed(state.switch, label=label, streams=[graphs.stream]))
        graphs.replay(i)
        mixed += graphs.one_version() != int(label)
        if time.monotonic() > end:
            break
    gib = state.value.nbytes / GIB
    row(f"switches of {gib:.0f} GiB under 20 graphs of {2 * TENSORS} parts", len(times), "times", rounds, least=True)
    row("  p50", percentile(times, 0.5) * 1e3, "ms")
    row("  p99", percentile(times, 0.99) * 1e3, "ms", 2)
    row("  longest", max(times) * 1e3, "ms")
    row("  results of another version, or of two", mixed, "times", 0)
    return state, graphs


def first_replay(state, graphs, publisher, rounds=30):
    times, mixed = [], 0
    versions = state.versions(timeout=60)
    for i in range(rounds):
        sealed = publisher.publish(100 + i)
        next(versions)
        state.switch(streams=[graphs.stream])
        graphs.replay(i)
        times.append(time.monotonic() - sealed)
        mixed += graphs.one_version() != 100 + i
    row("from the seal in another process to the end of the first replay, p50", percentile(times, 0.5) * 1e3, "ms", 3)
    row("  longest", max(times) * 1e3, "ms")
    row("  results of another version, or of two", mixed, "times", 0)


def sleep(client, state, graphs, publisher):
    publisher.publish(7, keep=0)
    state.switch()
    state.park()
    row("to the host tier, by the daemon", timed(client.spill, "policy", tier="host"), "s")
    times = []
    for i in range(3):
        times.append(timed(state.resume, timeout=60))
        graphs.replay(i)
        assert graphs.one_version() == 7, graphs.out
        row(f"  park, with a copy in the tier ({i + 1})", timed(state.park, streams=[graphs.stream]) * 1e3, "ms", 5)
        client.spill("policy", tier="host")
    size = state.value.nbytes
    state.resume(timeout=60)
    pinned = torch.empty(size // 4, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size // 4, dtype=torch.uint8, device="cuda")
    plain = []
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.monotonic()
        for _ in range(4):
            target.copy_(pinned, non_blocking=True)
        torch.cuda.synchronize()
        plain.append(time.monotonic() - begun)
    row(f"resume of {size / GIB:.0f} GiB from pinned host memory", min(times), "s", 0.35 * size / (16 * GIB))
    row("  a plain copy of as much", min(plain), "s")
    row("  its part of that speed", min(plain) / min(times), "times", 0.9, least=True)


def beside(client, state, gib):
    """Ways without a view."""
    model = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        found = gpubufd.torch.get_state_dict(client, "policy")
        begun = time.monotonic()
        for name, tensor in model.items():
            tensor.copy_(found[name], non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.monotonic() - begun)
        del found
    row(f"copying {gib:.0f} GiB into place on the GPU, by torch", min(times) * 1e3, "ms")
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        print("safetensors is not installed: load_state_dict of it was not measured")
        return
    names = list(model)[:8]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/part.safetensors"
        save_file({name: model[name].cpu() for name in names}, path)
        module = torch.nn.Module()
        for i, name in enumerate(names):
            module.register_buffer(f"b{i}", model[name])

        def load():
            part = load_file(path, device="cuda")
            module.load_state_dict({f"b{i}": part[name] for i, name in enumerate(names)})
            torch.cuda.synchronize()

        times = [timed(load) for _ in range(2)]
        size = os.path.getsize(path)
    row(f"load_state_dict of a safetensors file of {size / GIB:.0f} GiB, from the page cache", min(times), "s")


def compiled(state, publisher):
    """torch.compile reads by address, too."""
    tensors = list(state.values())[:2]
    try:
        function = torch.compile(lambda: tensors[0][:1000].float().mean() + tensors[1][-1000:].float().mean())
        before = float(function())
        publisher.publish(31)
        state.switch()
        after = float(function())
    except Exception as error:  # no compiler for it here
        print(f"torch.compile: not tried: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        return
    print(f"torch.compile: {before:g} before a switch, {after:g} after it (expected 62)")
    if abs(after - 62) > 0.01:
        MISSED.append("torch.compile")


def host(client, size=GIB, rounds=2000):
    """On the host: the whole call from Python, and that of a request alone beside it."""
    import numpy

    for value in (1, 2):
        client.put("host", numpy.full(size, value, "uint8"), device="host", own=True, replace=True, keep=1, label=str(value))
    view = client.follow("host")
    array = view.value.to_numpy()
    times, asks, mixed = [], [], 0
    for i in range(rounds):
        label = "12"[i % 2]
        times.append(timed(view.switch, label=label))
        mixed += {int(x) for x in (array[0], array[size // 2], array[-1])} != {int(label)}
        asks.append(timed(client.stat, "host"))
    touched = [timed(view.switch, label="1")]
    int(array[::4096].sum())
    for i in range(10):
        view.switch(label="2")
        int(array[::4096].sum())
        touched.append(timed(view.switch, label="1"))
        int(array[::4096].sum())
    row(f"host: switch of {size / GIB:g} GiB, p50, the whole call", percentile(times, 0.5) * 1e6, "us")
    row("  a request that changes nothing (stat), beside it", percentile(asks, 0.5) * 1e6, "us")
    row("  the switch with every page read before", percentile(touched, 0.5) * 1e6, "us")
    row("  results of another version, or of two", mixed, "times", 0)
    del array
    view.close()
    client.delete("host")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--rounds", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--host-only", action="store_true")
    options = parser.parse_args()
    size = int(options.gib * GIB) // (TENSORS << 20) * (TENSORS << 20)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        os.environ["GPUBUFD_SOCKET"] = path
        gpus = [] if options.host_only else ["--device", f"cuda:0:{4 * size + GIB}", "--tier", f"host:{2 * size + GIB}"]
        with serving(options.daemon, path, *gpus, "--device", "host:4G"):
            with gpubufd.connect(timeout=30, cache_bytes=8 * size + GIB) as client:
                host(client)
                if not options.host_only:
                    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
                    publisher = Publisher(size, "cuda")
                    state, graphs = switches(client, publisher, options.rounds, options.seconds)
                    first_replay(state, graphs, publisher)
                    compiled(state, publisher)
                    beside(client, state, options.gib)
                    sleep(client, state, graphs, publisher)
                    publisher.end()
                    torch.cuda.synchronize()
                    del graphs, state
    print(f"{time.monotonic() - begun:.0f} s in all; {len(MISSED)} missed{': ' if MISSED else ''}{', '.join(MISSED)}")
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
