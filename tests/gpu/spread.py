#!/usr/bin/env python3
"""Models from one GPU to the next, published anew, and moved to the host's memory: how fast, beside plain copies in the
same run.

    PYTHONPATH=build/python tests/gpu/spread.py --daemon build/bin/gpubufd [--gib 8] [--only spread|publish|small|tier]

Needs PyTorch, and for `spread` two GPUs that reach each other. A line for each figure; those that have an aim say whether
it is met, and one that is missed makes the status 1. A minute or two with 8 GiB.
"""

import argparse
import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import fill  # noqa: E402
from fill import GIB, MISSED, machine, output, rate, row, write  # noqa: E402
from weights import llama, mixture  # noqa: E402

READERS = 3  # processes on each GPU
POPULATE_WRITE = 23

# Loads a file onto a GPU when a line comes: (seconds, bytes that the process has read, a sum of its content). It has the
# contexts of all GPUs, as the plain copy beside it has, if it is told to: the first line is what they take.
LOADER = """
import json, sys, time
import torch
import gpubufd, gpubufd.torch as gt
path, device, *others = sys.argv[1:]
torch.zeros(1, device=device).add_(1)
begun = time.monotonic()
for other in others:
    torch.zeros(1, device=other).add_(1)
    torch.cuda.synchronize(other)
contexts = time.monotonic() - begun
client = gpubufd.connect(cache_bytes=1 << 36)
def read():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])
print(contexts, flush=True)
for line in sys.stdin:
    before, begun = read(), time.monotonic()
    state = gt.load_file(path, device=device, client=client)
    torch.cuda.synchronize(device)
    seconds, bytes = time.monotonic() - begun, read() - before
    print(json.dumps([seconds, bytes, sum(int(one.view(torch.uint8)[::4099].sum()) for one in state.values())]), flush=True)
    del state
"""

# A plain copy from cuda:0 to cuda:1 by PyTorch, which is cudaMemcpyPeerAsync: seconds, the first time and the best.
PEER = """
import json, sys, time
import torch
one = torch.ones(int(sys.argv[1]), dtype=torch.uint8, device="cuda:0")
def copy():
    torch.cuda.synchronize("cuda:0"), torch.cuda.synchronize("cuda:1")
    begun = time.monotonic()
    other.copy_(one)
    torch.cuda.synchronize("cuda:0"), torch.cuda.synchronize("cuda:1")
    return time.monotonic() - begun
other = torch.empty(one.numel(), dtype=torch.uint8, device="cuda:1")
rounds = [copy() for _ in range(6)]
print(json.dumps([rounds[0], min(rounds)]))
"""

PUBLISHER = """
import json, sys, time
import torch
import gpubufd, gpubufd.torch as gt
specs, turns = json.load(sys.stdin), 7
client = gpubufd.connect(cache_bytes=int(sys.argv[1]))
state = {name: torch.ones(shape, dtype=torch.bfloat16, device="cuda") for name, shape in specs}
def timed(work):
    torch.cuda.synchronize()
    begun = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - begun
put = lambda: gt.put_state_dict(client, "m", state, replace=True)
first = timed(put)
timed(put)
again = [timed(put) for _ in range(turns)]
size = sum(one.nbytes for one in state.values())
state = next(iter(state.values())).clone() if size < 1 << 32 else None
source = torch.empty(size, dtype=torch.uint8, device="cuda")
target = torch.empty_like(source)
plain = [timed(lambda: target.copy_(source)) for _ in range(turns)]
print(json.dumps([size, first, min(again), min(plain)]))
"""

READER = """
import json, sys, time
import torch
import gpubufd, gpubufd.torch as gt
torch.zeros(1, device="cuda").add_(1)
client = gpubufd.connect()
begun = time.monotonic()
bundle = client.get("m")
tensor = bundle[next(iter(bundle))].to_torch()
first = time.monotonic() - begun
del tensor, bundle
begun = time.monotonic()
state = gt.get_state_dict(client, "m")
print(json.dumps([first, time.monotonic() - begun, len(state)]))
"""

SMALL = """
import json, sys, time
import gpubufd
client = gpubufd.connect()
size, count, each = int(sys.argv[1]), int(sys.argv[2]), []
for i in range(count):
    begun = time.perf_counter()
    made = client.create(f"small/{i % 8}", "uint8", size, device="cuda:0", replace=True)
    middle = time.perf_counter()
    made.seal()
    each.append((middle - begun, time.perf_counter() - middle))
    made.release()
fresh, kept = each[:8], sorted(each[16:], key=sum)
print(json.dumps([sum(map(sum, fresh)) / len(fresh), *kept[len(kept) // 2]]))
"""


class Place(fill.Place):
    def loader(self, path, device, *others):
        one = subprocess.Popen([sys.executable, "-W", "ignore", "-c", LOADER, str(path), device, *others],
                               env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        one.contexts = float(one.stdout.readline())
        return one

    def names(self):
        listed = json.loads(output(self.ctl, "ls", "safetensors/*", "--json", env=self.environment))
        return {one["name"] for one in listed["objects"]}

    def forget(self, but=()):
        for name in self.names().difference(but):
            output(self.ctl, "rm", name, env=self.environment)


def told(loader):
    return json.loads(loader.stdout.readline())


def load(loader):
    loader.stdin.write("\n")
    loader.stdin.flush()


def spread(options, files):
    if len(output("nvidia-smi", "-L").splitlines()) < 2:
        print("spread: skipped, there is one GPU")
        return
    path = files / "model.safetensors"
    size = write(path, options.gib)
    room = int(options.gib * 1024) + 3072
    with Place(options, files, "--device", f"cuda:0:{room}M", "--device", f"cuda:1:{room}M") as place:
        first, best = place.python(PEER, size)
        loaders = [place.loader(path, "cuda:0"), place.loader(path, "cuda:1", "cuda:0")]
        load(loaders[0])
        seconds, _, whole = told(loaders[0])
        row("load_file on the first GPU", rate(size, seconds))
        sums, first_gpu = {whole}, place.names()
        for what in ("which is new", "again"):  # again: the daemon's segments are there
            load(loaders[1])
            seconds, read, total = told(loaders[1])
            sums.add(total)
            row(f"the same file on the second GPU, {what}, copied from the first", rate(size, seconds),
                f"cuMemcpyPeer {rate(size, best)}, its first {rate(size, first)}; {read >> 20} MiB read; without the "
                f"first GPU's context, which takes {loaders[1].contexts:.3f} s", best / seconds, 0.9)
            place.forget(first_gpu)
        assert len(sums) == 1, "other bytes on the second GPU"
        place.forget()
        many = loaders + [place.loader(path, f"cuda:{i % 2}") for i in range(2 * READERS - 2)]
        for loader in many:
            load(loader)
        answers = [told(loader) for loader in many]
        assert {total for *_, total in answers} == sums, "other bytes in one of many"
        read = sum(count for _, count, _ in answers)
        row(f"{len(many)} processes on two GPUs that begin together read the file", f"{read / size:.2f} times",
            f"the last was done after {max(seconds for seconds, *_ in answers):.3f} s", 1.1 / (read / size), 1)
        for loader in many:
            loader.stdin.close()
            loader.wait(60)
    path.unlink()


def publish(options, files):
    with Place(options, files, "--device", f"cuda:0:{int(2 * options.gib * 1024) + 4096}M") as place:
        for what, specs in ((f"{options.gib:g} GiB of a Llama's tensors", [(name, shape) for name, _, shape in llama(options.gib)]),
                            ("18 900 tensors", [(name, shape) for name, _, shape in mixture()])):
            for kept in (0, 1 << 36):
                size, first, again, plain = place.python(PUBLISHER, kept, text=json.dumps(specs))
                row(f"publish version n + 1, {what}{', which stay mapped' if kept else ''}", rate(size, again),
                    f"plain copy {rate(size, plain)}; the first {first * 1e3:.1f} ms", plain / again,
                    0.9 if kept and size > GIB else None)
        firsts, alls = zip(*(place.python(READER)[:2] for _ in range(3)))
        row("18 900 tensors in a fresh process, the first", f"{min(firsts) * 1e3:.1f} ms", "", 5e-3 / min(firsts), 1)
        row("18 900 tensors in a fresh process, all", f"{min(alls) * 1e3:.1f} ms", "", 60e-3 / min(alls), 1)


def small(options, files):
    with Place(options, files, "--device", f"cuda:0:{int(options.gib * GIB)}") as place:
        fresh, create, seal = place.python(SMALL, 64 << 20, 500)
        row("create + seal of 64 MiB", f"{(create + seal) * 1e6:.0f} µs",
            f"create {create * 1e6:.0f}, seal {seal * 1e6:.0f}; of memory that is new {fresh * 1e6:.0f} µs",
            120e-6 / (create + seal), 1)


def made_by_threads(size, count):
    """Seconds in which threads make the pages of a memfd."""
    fd = os.memfd_create("pages")
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as memory:
        libc, first = ctypes.CDLL(None), ctypes.c_char.from_buffer(memory)
        start, each = ctypes.addressof(first), size // count
        threads = [threading.Thread(target=libc.madvise, args=(ctypes.c_void_p(start + i * each), ctypes.c_size_t(each),
                                                               POPULATE_WRITE)) for i in range(count)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        del first
    os.close(fd)
    return seconds


def tier(options, files):
    size = int(options.gib * GIB)
    floors = {count: made_by_threads(size, count) for count in (1, 2, 4, 8)}
    for count, seconds in floors.items():
        print(f"  {count} threads make pages at {size / seconds / 1e9:.1f} GB/s")
    with Place(options, files, "--device", f"cuda:0:{2 * size}", "--tier", f"host:{size + (1 << 30)}") as place:
        code = ("import sys, gpubufd; c = gpubufd.connect(); m = c.create('m', 'uint8', int(sys.argv[1]), device='cuda:0'); "
                "m.seal(); m.release()")
        times = []
        for count in (64 << 20, size, size):  # the first has the daemon make its context
            output(sys.executable, "-c", code, count, env=place.environment)
            begun = time.monotonic()
            output(place.ctl, "call", "move", '{"name":"m","tier":"host"}', env=place.environment)
            times.append(time.monotonic() - begun)
            output(place.ctl, "rm", "m", env=place.environment)
        best = min(floors.values())
        row(f"to the host tier, {options.gib:g} GiB, its memory new", rate(size, times[1]), f"threads that make pages {rate(size, best)}",
            best / times[1], 0.7)
        row("the same again, into memory that is there", rate(size, times[2]))


def main():
    parts = {"spread": spread, "publish": publish, "small": small, "tier": tier}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--files", default="/var/tmp")
    options = parser.parse_args()
    begun = time.monotonic()
    machine()
    for name, part in parts.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="gpubuf-spread-", dir=options.files) as directory:
                part(options, Path(directory))
    print(f"{time.monotonic() - begun:.0f} s; missed: {', '.join(MISSED) or 'nothing'}")
    return bool(MISSED)


if __name__ == "__main__":
    sys.exit(main())
