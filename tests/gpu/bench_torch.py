"""torch.multiprocessing: what it costs to hand tensors of a GPU to another process.

    bench_torch.py COUNT BYTES     prints {"receive", "whole"}, microseconds for each tensor
"""

import json
import sys
import time

import torch
import torch.multiprocessing as mp


def consume(tensors, ready, results, count):
    torch.zeros(1, device="cuda")  # a context, before the clock runs
    kept, times = [], []
    ready.put(True)
    for _ in range(count):
        begun = time.monotonic()
        kept.append(tensors.get())
        times.append(time.monotonic() - begun)
    ended = time.monotonic()
    assert int(kept[-1][0]) == (count - 1) % 251
    results.put((sorted(times)[count // 2], ended))
    del kept
    ready.get()


def main(count, size):
    mp.set_start_method("spawn")
    tensors, ready, results = mp.Queue(), mp.Queue(), mp.Queue()
    made = [torch.full((size,), i % 251, dtype=torch.uint8, device="cuda") for i in range(count)]
    torch.cuda.synchronize()
    consumer = mp.Process(target=consume, args=(tensors, ready, results, count))
    consumer.start()
    ready.get()
    begun = time.monotonic()
    for tensor in made:
        tensors.put(tensor)
    receive, ended = results.get(timeout=100)
    ready.put(True)
    consumer.join(30)
    print(json.dumps({"receive": receive * 1e6, "whole": (ended - begun) * 1e6 / count}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
