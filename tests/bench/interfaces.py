"""gpubufd in other projects' interfaces beside the things that it replaces there, in one run: on host memory, and on a GPU.

    interfaces.py [--only multiprocessing checkpoint files processed transformers fsspec zarr dask ray arrays results]

It needs a daemon ($GPUBUFD_SOCKET) and the package in PYTHONPATH. A part whose packages are missing is left out. Files lie in
/dev/shm, so that no disk is measured. Each figure is the least of some rounds; in brackets the processor time of this process.
"""

import argparse
import functools
import multiprocessing as processes
import os
import pathlib
import tempfile
import time

import numpy as np

MIB = 1 << 20


def least(work, rounds=7):
    """(milliseconds, milliseconds of processor time), the least of some calls."""
    found = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        kept = work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
        del kept
    return tuple(min(column) * 1e3 for column in zip(*found))


def line(what, **ways):
    """A row of the table: ways are calls, or pairs of milliseconds."""
    told = {name: way if isinstance(way, tuple) else least(way) for name, way in ways.items()}
    shown = "; ".join(f"{name.replace('_', ' ')} {wall:.2f} ({cpu:.2f})" for name, (wall, cpu) in told.items())
    print(f"| {what} | {shown} |", flush=True)


def multiprocessing(client, place):
    import torch
    import torch_multiprocessing as bench

    tensors = [torch.full((16384,), float(i)) for i in range(100)]
    told = {kind: bench.measure(kind, tensors, None)["a list"] for kind in ("torch", "gpubufd")}
    line("torch.multiprocessing: each of 100 tensors of 64 KiB in a list, both processes",
         **{kind: (us / 1e3, cpu / 1e3) for kind, (us, cpu) in told.items()})


def state(torch):
    return {f"w{i}": torch.rand(1024, 1024) for i in range(16)}  # 64 MiB


def checkpoint(client, place):
    import torch
    import torch.distributed.checkpoint as dcp
    from gpubufd.torch.checkpoint import Reader, Writer

    given, into = state(torch), state(torch)
    line("torch.distributed.checkpoint: save 64 MiB",
         files=lambda: dcp.save(given, checkpoint_id=str(place / "dcp"), no_dist=True),
         gpubufd=lambda: dcp.save(given, storage_writer=Writer(client, "bench/dcp"), no_dist=True))
    line("load it",
         files=lambda: dcp.load(into, checkpoint_id=str(place / "dcp"), no_dist=True),
         gpubufd=lambda: dcp.load(into, storage_reader=Reader(client, "bench/dcp"), no_dist=True))


def files(client, place):
    import safetensors.torch
    import torch
    import gpubufd.torch

    path = str(place / "m.safetensors")
    safetensors.torch.save_file(state(torch), path)
    line("safetensors: 64 MiB in a process that is not the first, each tensor read",
         safetensors=lambda: [one.sum() for one in safetensors.torch.load_file(path).values()],
         gpubufd=lambda: [one.sum() for one in gpubufd.torch.load_file(path, client=client, name="bench/file").values()])


def processed(client, place):
    """As gpubufd-vllm and gpubufd-sglang do it, without an engine around it."""
    import safetensors.torch
    import torch
    from gpubufd.torch.processed import share_module

    def make(device="meta"):
        with torch.device(device):
            return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(16)])

    def load():
        model = make("cpu")
        model.load_state_dict(safetensors.torch.load_file(path))
        for layer in model:  # what an engine does to its weights
            layer.weight = torch.nn.Parameter((layer.weight / layer.weight.abs().amax()).t().contiguous(), requires_grad=False)
        return model

    path = str(place / "p.safetensors")
    safetensors.torch.save_file(make("cpu").state_dict(), path)
    share = functools.partial(share_module, client, "bench/processed", {}, load, make, device=torch.device("cpu"))
    share()
    line("processed weights (vLLM, SGLang): 64 MiB, loaded and laid out, in an engine that is not the first",
         itself=load, gpubufd=share)


def transformers(client, place):
    import torch
    import transformers as theirs
    import gpubufd.transformers

    config = theirs.LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=8,
                                vocab_size=16000)
    theirs.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(str(place / "llama"))
    kind, path = theirs.AutoModelForCausalLM, str(place / "llama")

    def whole(load):
        model = load()
        return model, [one.sum() for one in model.parameters()]

    whole(lambda: gpubufd.transformers.from_pretrained(kind, path, dtype="auto"))
    line("transformers: from_pretrained of 70 MB in a process that is not the first, each weight read",
         transformers=lambda: whole(lambda: kind.from_pretrained(path, dtype="auto")),
         gpubufd=lambda: whole(lambda: gpubufd.transformers.from_pretrained(kind, path, dtype="auto")))


def fsspec(client, place):
    import fsspec as theirs
    import gpubufd.fsspec  # noqa: F401

    content = os.urandom(16 * MIB)
    ways = {"file": f"file://{place}/f", "memory": "memory://f", "gpubufd": "gpubuf://bench/f"}

    def write(url):
        with theirs.open(url, "wb") as file:
            file.write(content)

    def read(url):
        with theirs.open(url, "rb") as file:
            return file.read()

    line("fsspec: write 16 MiB", **{name: functools.partial(write, url) for name, url in ways.items()})
    line("read it", **{name: functools.partial(read, url) for name, url in ways.items()})


def zarr(client, place):
    import zarr as theirs
    import gpubufd.zarr

    given = np.random.rand(2048, 2048).astype("f4")
    ways = {"LocalStore": theirs.storage.LocalStore(place / "z"), "MemoryStore": theirs.storage.MemoryStore(),
            "gpubufd": gpubufd.zarr.GpubufStore("bench/z")}
    arrays = {name: theirs.create_array(store, shape=given.shape, chunks=(256, 256), dtype="f4", compressors=None)
              for name, store in ways.items()}
    line("zarr: write 16 MiB in 64 chunks",
         **{name: functools.partial(array.__setitem__, slice(None), given) for name, array in arrays.items()})
    line("read them", **{name: functools.partial(array.__getitem__, slice(None)) for name, array in arrays.items()})


def ray(client, place):
    import ray as theirs
    import torch
    import gpubufd.ray

    theirs.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    gpubufd.ray.register()

    class Source:
        def plain(self):
            return torch.ones(4 * MIB)

        @theirs.method(tensor_transport="gpubufd")
        def ours(self):
            return torch.ones(4 * MIB)

    class Reader:
        def read(self, tensor):
            return float(tensor[-1])

    source = theirs.remote(Source).remote()
    readers = [theirs.remote(enable_tensor_transport=True)(Reader).remote() for _ in range(2)]

    def passed(method):
        made = method.remote()
        return theirs.get([reader.read.remote(made) for reader in readers])

    line("Ray: 16 MiB from one actor to two", ray=lambda: passed(source.plain), gpubufd=lambda: passed(source.ours))
    theirs.shutdown()


def dask(client, place):
    """A frame that is made once, and that two workers and further programs read."""
    import dask.dataframe as dd
    import distributed
    import pandas as pd
    import gpubufd.dask

    frame = pd.DataFrame({"x": np.random.rand(1 << 20), "y": np.random.rand(1 << 20)})
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, \
            distributed.Client(cluster) as theirs:
        made = dd.from_pandas(frame, npartitions=8).persist()
        distributed.wait(made)

        def publish():
            theirs.unpublish_dataset("bench")
            theirs.publish_dataset(bench=(made + 0).persist())
            distributed.wait(theirs.get_dataset("bench"))

        theirs.publish_dataset(bench=made)
        line("Dask: publish 16 MiB in 8 partitions", dask=publish,
             gpubufd=lambda: gpubufd.dask.publish(made + 0, "bench/dask", replace=True))
        line("load it by name, and sum a column", dask=lambda: theirs.get_dataset("bench")["x"].sum().compute(),
             gpubufd=lambda: gpubufd.dask.load("bench/dask")["x"].sum().compute())


# ---- on a GPU ----


def arrays(client, place):
    """numba's names in gpubufd.cuda."""
    np.row_stack = getattr(np, "row_stack", np.vstack)  # which numba 0.68 overloads, and NumPy 2.5 has no more
    from numba import cuda as numba
    from gpubufd import cuda

    if not numba.is_available():
        raise ImportError("numba sees no GPU")
    given = np.random.rand(4 << 20).astype("f4")
    out, theirs, ours = np.empty_like(given), numba.to_device(given), cuda.to_device(given)
    line("arrays on a GPU: 16 MiB made", numba=lambda: numba.device_array(4 << 20, "f4"),
         gpubufd=lambda: cuda.empty(4 << 20, "f4"))
    line("copied there", numba=lambda: numba.to_device(given, to=theirs), gpubufd=lambda: cuda.to_device(given, to=ours))
    line("copied back", numba=lambda: theirs.copy_to_host(out), gpubufd=lambda: ours.copy_to_host(out))
    line("a slice", numba=lambda: theirs[10:2000:3], gpubufd=lambda: ours[10:2000:3])


def sum_results(pipe):
    """(in a process of its own) Sums what is told by name or by path, until the pipe ends."""
    import cupy
    import gpubufd

    client = gpubufd.connect()
    for where in iter(pipe.recv, None):
        pipe.send(float((cupy.load(where) if where.endswith(".npy") else cupy.asarray(client.get(where))).sum()))


def results(client, place):
    """The result of a query that stays on a GPU, summed there by another process."""
    import cupy

    made = cupy.random.rand(16 << 20, dtype="f4")
    pipe, theirs = processes.get_context("spawn").Pipe()
    child = processes.get_context("spawn").Process(target=sum_results, args=(theirs,))
    child.start()

    def told(where):
        pipe.send(where)
        return pipe.recv()

    def by_file():
        cupy.save(str(place / "made.npy"), made)
        return told(str(place / "made.npy"))

    def by_name():
        client.put("bench/result", made, replace=True)
        return told("bench/result")

    assert by_file() == by_name()
    line("CuPy: 64 MiB on a GPU, summed by another process", file=by_file, gpubufd=by_name)
    pipe.send(None)
    child.join()


PARTS = {part.__name__: part for part in (
    multiprocessing, checkpoint, files, processed, transformers, fsspec, zarr, dask, ray, arrays, results)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    import gpubufd

    client = gpubufd.connect()
    print("| | milliseconds (of processor time) |\n|---|---|")
    for name in options.only:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
            try:
                PARTS[name](client, pathlib.Path(place))
            except ImportError as error:
                print(f"{name}: left out: {error}", flush=True)
        client.delete("bench/*", missing_ok=True)


if __name__ == "__main__":
    main()
