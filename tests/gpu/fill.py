#!/usr/bin/env python3
"""How fast a file gets onto a GPU through gpubufd, beside a parallel reader without it and beside safetensors' own load,
in one run.

    PYTHONPATH=build/python tests/gpu/fill.py --daemon build/bin/gpubufd [--gib 16] [--disk-gib 4] [--files DIR]

Needs nvcc, PyTorch and safetensors. A line for each figure; those that have an aim say whether it is met, and one that
is missed makes the status 1. About 100 seconds with 16 GiB, most of them to write the files.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import serving

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
MISSED = []

READER = """
import json, sys, time
import torch
torch.zeros(1, device="cuda").add_(1)
torch.cuda.synchronize()
path, what = sys.argv[1:]
if what == "safetensors":
    from safetensors.torch import load_file
    begun = time.monotonic()
    state = load_file(path, device="cuda")
else:
    import gpubufd, gpubufd.torch as gt
    client = gpubufd.connect()
    create, made = gpubufd.Client._create, []
    def timed_create(*arguments):
        at = time.monotonic()
        found = create(*arguments)
        made.append(time.monotonic() - at)
        return found
    gpubufd.Client._create = timed_create
    begun = time.monotonic()
    state = gt.load_file(path, device="cuda", client=client)
torch.cuda.synchronize()
seconds = time.monotonic() - begun
tensors = [state[name] for name in sorted(state)]
sums = [int(tensor.view(torch.uint8)[::4099].sum(dtype=torch.int64)) for tensor in tensors]
again = []
if what == "gpubufd":
    for _ in range(2):  # with the ring pinned already
        del state, tensors
        client.delete(*[name for name in client if name.startswith("safetensors/")])
        begun = time.monotonic()
        state = gt.load_file(path, device="cuda", client=client)
        torch.cuda.synchronize()
        again.append(time.monotonic() - begun)
        tensors = list(state.values())
    del state, tensors
    client.delete(*[name for name in client if name.startswith("safetensors/")])
if what == "gpubufd":
    print("  create and map:", *(f"{one * 1e3:.1f} ms" for one in made), "of", f"{seconds * 1e3:.1f} ms", file=sys.stderr)
print(json.dumps([seconds, min(again, default=seconds), sums]))
"""


PINNED = """
import json, sys, time
import torch
import gpubufd
size = int(sys.argv[1])
target = torch.empty(size, dtype=torch.uint8, device="cuda")
def timed(source):
    torch.cuda.synchronize()
    begun = time.monotonic()
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.monotonic() - begun
own = torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(3)
best = min(timed(own) for _ in range(5))
del own
client = gpubufd.connect()
if "shared" not in client:
    with client.create("shared", "uint8", size, device="host") as made:
        made.to_numpy()[:] = 5
held = client.get("shared")
shared = torch.from_numpy(held.to_numpy())
pageable = min(timed(shared) for _ in range(2))
begun = time.monotonic()
held.pin_memory()
pinning = time.monotonic() - begun
print(json.dumps([best, pageable, pinning, min(timed(shared) for _ in range(5)), int(target[::4096].sum()) == 5 * (size // 4096)]))
"""


def row(what, value, beside="", ratio=None, aim=None):
    verdict = ""
    if aim is not None:
        verdict = f"{ratio:.2f}, aim {aim}: {'met' if ratio >= aim else 'MISSED'}"
        if ratio < aim:
            MISSED.append(what)
    print(f"{what}: {value}{' | ' + beside if beside else ''}{' | ' + verdict if verdict else ''}", flush=True)


def rate(size, seconds):
    return f"{size / seconds / 1e9:.1f} GB/s ({seconds:.3f} s)"


def write(path, gib, tensors=64):
    """A safetensors file of that size; its bytes."""
    size = int(gib * GIB) // tensors // 4096 * 4096
    entries = {f"layer.{i}.weight": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
               for i in range(tensors)}
    head = json.dumps(entries).encode()
    head += b" " * (-(8 + len(head)) % 4096)
    noise = os.urandom(size)
    with open(path, "wb", buffering=0) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for i in range(tensors):
            view = memoryview(noise[i * 509:] + noise[:i * 509])
            while view:
                view = view[file.write(view):]
    return os.path.getsize(path)


def forget(path):
    """Takes the file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def machine():
    for line in output("lscpu").splitlines():
        if line.startswith(("Model name", "CPU(s)", "NUMA node")):
            print(" ".join(line.split()))
    print(output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").strip())


def floor(load, path, size, direct, shapes):
    """GB/s of the best reader without gpubufd."""
    found = []
    for line in output(load, path, size, direct, *shapes).splitlines():
        shape, speed, pinning, whole = line.split()
        found.append(float(speed))
        print(f"  {shape} MiB{' O_DIRECT' if direct else ''}: {speed} GB/s; its ring pinned in {pinning} s; with that and "
              f"cudaMalloc {whole} GB/s")
    return max(found), float(whole)


def cached(place, load):
    path = place.files / "cached.safetensors"
    size = write(path, place.gib)
    print("  first streams:", *(f"{count}: {output(load, 'streams', count).strip()} ms" for count in (1, 2, 8)))
    _, fresh = floor(load, path, size, 0, ["8:4"])
    best, _ = floor(load, path, size, 0, ["1:4", "4:4", "8:2", "8:4", "8:4s", "16:2", "16:4", "8:4s", "8:4"])
    seconds, again, sums = place.python(READER, path, "gpubufd")
    theirs, _, others = place.python(READER, path, "safetensors")
    assert sums == others, "other bytes than safetensors'"
    row("load_file from the page cache, a fresh process", rate(size, seconds), f"best reader without it {best:.1f} GB/s",
        size / seconds / 1e9 / best, 0.9)
    row("the same beside that reader in a fresh process", rate(size, seconds), f"with cudaMalloc and pinning {fresh:.1f} GB/s",
        size / seconds / 1e9 / fresh, 0.9)
    row("the same, its ring pinned before", rate(size, again), "", size / again / 1e9 / best, 0.9)
    row("the same beside 20 GB/s", rate(size, seconds), "", size / seconds / 20e9, 1)
    row("safetensors.torch.load_file", rate(size, theirs), "", theirs / seconds, 1)
    begun = time.monotonic()
    said = output(place.ctl, "put", "--device", "cuda:0", "ctl", path, env=place.environment)
    row("gpubufctl put, the whole program", rate(size, time.monotonic() - begun), said.strip())
    output(place.ctl, "rm", "ctl", env=place.environment)
    path.unlink()


def pinned(place):
    size = 4 * GIB
    for who in ("its writer", "a reader"):
        own, pageable, pinning, ours, right = json.loads(output(
            sys.executable, "-W", "ignore", "-c", PINNED, size, env=place.environment).splitlines()[-1])
        assert right, "other bytes"
        row(f"from a shared object on the host that {who} has pinned", rate(size, ours),
            f"from own pinned memory {rate(size, own)}, not pinned {rate(size, pageable)}, pinning {pinning:.3f} s", own / ours, 0.95)
    output(place.ctl, "rm", "shared", env=place.environment)


def disk(place, load):
    path = place.files / "disk.safetensors"
    size = write(path, place.disk_gib)
    best, ours, theirs = 0.0, 1e9, 1e9
    for _ in range(2):  # alternately: the disk is other people's, too
        forget(path)
        best = max(best, floor(load, path, size, 1, ["8:4"])[0])
        forget(path)
        ours = min(ours, place.python(READER, path, "gpubufd")[0])
    forget(path)
    theirs = place.python(READER, path, "safetensors")[0]
    row("load_file from the disk", rate(size, ours), f"O_DIRECT without it {best:.1f} GB/s", size / ours / 1e9 / best, 0.9)
    row("safetensors.torch.load_file from the disk", rate(size, theirs), "", theirs / ours, 1)
    path.unlink()


class Place:
    """A daemon of its own, and programs that find it."""

    def __init__(self, options, files, *words):
        self.files, self.ctl = files, Path(options.daemon).with_name("gpubufctl")
        self.gib, self.disk_gib = options.gib, getattr(options, "disk_gib", 0)
        path = str(files / "s")
        self.environment = dict(os.environ, GPUBUFD_SOCKET=path)
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(serving(options.daemon, path, *words))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stack.close()

    def python(self, code, *words, text=""):
        return json.loads(output(sys.executable, "-W", "ignore", "-c", code, *words, env=self.environment,
                                 input=text).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--disk-gib", type=float, default=4)
    parser.add_argument("--files", default="/var/tmp")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpubuf-fill-", dir=options.files) as directory:
        files = Path(directory)
        load = files / "load"
        output("nvcc", "-O2", "-o", load, HERE / "load.cu")
        machine()
        with Place(options, files, "--device", f"cuda:0:{int(options.gib * 1024) + 3072}M", "--device", "host:12G") as place:
            cached(place, load)
            pinned(place)
            disk(place, load)
    print(f"{time.monotonic() - begun:.0f} s; missed: {', '.join(MISSED) or 'nothing'}")
    return bool(MISSED)


if __name__ == "__main__":
    sys.exit(main())
