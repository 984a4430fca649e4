#!/usr/bin/env python3
"""Model weights through gpubufd with the real PyTorch, JAX and safetensors, on a GPU.

    PYTHONPATH=build/python tests/gpu/weights.py --daemon build/bin/gpubufd [--gib 8] [--only WORD]

A line for each check, and a table of figures beside those of peers in the same run; at the end a line that counts
the checks. Workers (weights_worker.py) do what needs a process of its own: those that read are fresh, and have a
context on the GPU before any clock runs. tests/interop and tests/python check PyTorch on the host; fill.py and spread.py
measure loading a file, publishing the next version, and models of many tensors.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
from common import Skip, expect

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GIB = 1 << 30
CHECKS = []
check = common.check(CHECKS)


class WorkerError(Exception):
    """A worker could not do its order."""


def llama(gib):
    """(name, dtype, shape) of a model like Llama-8B, of about that size: with 16 GiB it has its 291 tensors."""
    hidden, inner, vocabulary = 4096, 14336, 128256
    layers = max(1, round((gib * GIB / 2 - 2 * vocabulary * hidden) / 218_112_000))
    specs = [("model.embed_tokens.weight", "bfloat16", (vocabulary, hidden))]
    for i in range(layers):
        at = f"model.layers.{i}."
        specs += [(at + f"self_attn.{part}_proj.weight", "bfloat16", (size, hidden))
                  for part, size in (("q", hidden), ("k", 1024), ("v", 1024), ("o", hidden))]
        specs += [(at + "mlp.gate_proj.weight", "bfloat16", (inner, hidden)),
                  (at + "mlp.up_proj.weight", "bfloat16", (inner, hidden)),
                  (at + "mlp.down_proj.weight", "bfloat16", (hidden, inner)),
                  (at + "input_layernorm.weight", "bfloat16", (hidden,)),
                  (at + "post_attention_layernorm.weight", "bfloat16", (hidden,))]
    return specs + [("model.norm.weight", "bfloat16", (hidden,)), ("lm_head.weight", "bfloat16", (vocabulary, hidden))]


def mixture(count=18900):
    """(name, dtype, shape) as a mixture of experts has them, each small."""
    return [(f"model.layers.{i // 394}.experts.{i % 394 // 3}.{('gate', 'up', 'down')[i % 3]}.weight", "bfloat16",
             (96, 512)) for i in range(count)]


class Worker:
    """A Python process that does what weights_worker.py has functions for."""

    script = "weights_worker.py"

    def __init__(self, place):
        self.log = place.directory / f"worker{len(place.workers)}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", HERE / self.script], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, env=place.environment, cwd=place.directory)
        place.workers.append(self)

    def begin(self, method, *arguments):
        self.process.stdin.write(json.dumps([method, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def end(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait(30)
            tail = self.log.read_text(errors="replace")[-600:]
            raise WorkerError(f"the worker has ended ({status}): {tail}")
        answer = json.loads(line)
        if "skip" in answer:
            raise Skip(answer["skip"])
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)

        def order(*arguments):
            self.begin(method, *arguments)
            return self.end()

        return order

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Measured:
    """Figures that are measured with `self.daemon`, whose files lie in `self.files`."""

    def row(self, what, value, beside="", note=""):
        self.rows.append((what, value, beside, note))
        print(f"          {what}: {value} {beside and '| ' + str(beside)} {note}", flush=True)

    def end_daemon(self):
        """SIGTERM; its status, or "killed"."""
        self.daemon.send_signal(signal.SIGTERM)
        try:
            status = self.daemon.wait(30)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            status = "killed"
        shutil.rmtree(self.files, ignore_errors=True)
        return status


class Place(Measured):
    """A daemon, workers, and what was measured."""

    def __init__(self, options):
        self.options = options
        self.directory = Path(tempfile.mkdtemp(prefix="gpubuf-weights-"))
        self.files = Path(tempfile.mkdtemp(prefix="gpubuf-weights-", dir="/dev/shm"))
        self.socket = str(self.directory / "s")
        self.environment = dict(os.environ, GPUBUFD_SOCKET=self.socket, XLA_PYTHON_CLIENT_PREALLOCATE="false",
                                PYTHONDONTWRITEBYTECODE="1")
        self.workers, self.rows, self.waiting, self.others = [], [], [], []
        capacity = f"{int(options.gib * 2.6 + 4) * 1024}M"
        command = [options.daemon, "--socket", self.socket, "--device", f"host:{int(options.gib + 4) * 1024}M"]
        command += ["--device", f"cuda:0:{capacity}"]
        with open(self.directory / "gpubufd.log", "wb") as log:
            self.daemon = subprocess.Popen(command, stderr=log, env=self.environment)
        end = time.monotonic() + 30
        while not os.path.exists(self.socket):
            if self.daemon.poll() is not None or time.monotonic() > end:
                raise SystemExit((self.directory / "gpubufd.log").read_text())
            time.sleep(0.01)

    def warm(self, count):
        """Starts workers that a later fresh() takes."""
        for _ in range(count):
            self.waiting.append(Worker(self))
            self.waiting[-1].begin("start")

    def fresh(self):
        """A worker that has not opened anything yet."""
        if not self.waiting:
            self.warm(1)
        worker = self.waiting.pop(0)
        worker.end()
        return worker

    def close(self):
        for worker in self.workers:
            worker.stop()
        for process in self.others:
            process.kill()
            process.wait()
        return self.end_daemon()


# ---- on the GPU ----


@check("every dtype, and every way to lie in memory, comes back the same (GPU)")
def gpu_tensors(place):
    place.one.many_kinds("cuda")


@check("copies wait for the stream that makes the tensors")
def gpu_stream(place):
    place.one.side_stream()


@check("files on the GPU: read-through, and the same as safetensors' own")
def gpu_files(place):
    place.one.files("cuda", str(place.files / "gpu.safetensors"))


@check("a meta model takes the tensors with assign=True (GPU)")
def gpu_model(place):
    place.one.meta_model("cuda")


@check("expect, into, versions on the GPU")
def gpu_mismatch(place):
    place.one.mismatch("cuda")


@check("an operation in place on shared memory fails in that process alone (GPU)")
def gpu_fault(place):
    worker = place.fresh()
    place.one.put_ones("fault", "cuda")
    said = worker.write_in_place("fault")
    expect("illegal" in said.lower() or "invalid" in said.lower(), f"it said: {said}")
    expect(place.one.is_ones("fault"), "others see the change")


@check("JAX: trees and files, on the GPU and on the host")
def jax(place):
    for kind in ("gpu", "cpu"):
        worker = place.fresh()
        worker.jax_trees(kind, str(place.files / f"jax-{kind}.safetensors"))
        worker.stop()


@check("a model is made in the daemon's memory, and published without a copy")
def gpu_pool(place):
    seconds = place.one.pool("pool")
    place.row("publish 256 MiB that lie in a pool", ms(seconds))
    reader = place.fresh()
    expect(reader.pool_state("pool") > 5, "tensors are missing")
    reader.stop()


@check("a pool's maker cannot write what it has published")
def gpu_pool_written(place):
    worker = place.fresh()
    said = worker.pool_written("written")
    expect("illegal" in said.lower() or "invalid" in said.lower(), f"it said: {said}")
    expect(place.one.is_ones("written"), "others see the change")


@check("pools whose tensors are gone leave nothing")
def gpu_pools(place):
    worker = place.fresh()
    worker.pools_come_and_go("pools")
    worker.stop()


# ---- figures ----


def ms(seconds):
    return f"{seconds * 1e3:.1f} ms"


@check("weights of the full size: published, mapped by a fresh process, all equal")
def full_size(place):
    specs = llama(place.options.gib)
    place.big = str(place.files / "big.safetensors")
    place.row("model", f"{len(specs)} tensors of a Llama")
    size = place.one.make(specs, place.big)
    place.bytes = size
    place.row("its size", f"{size / 1e9:.2f} GB")
    place.one.publish("llama")
    times = []
    for _ in range(2):
        reader = place.fresh()
        times.append(reader.get("llama"))
        expect(reader.equal_to(place.big) == len(specs), "not all are there")
        reader.stop()
    connect, until = min(times, key=lambda pair: pair[1])
    place.row("usable in a fresh process", ms(until), f"connect() {ms(connect)}", "aim 5 ms for 291")


@check("the same by the peers")
def peers(place):
    reader = place.fresh()
    place.row("safetensors.torch.load_file, from memory", ms(reader.peer_safetensors(place.big)))
    reader.stop()
    path = str(place.directory / "peer")
    (place.directory / "specs").write_text(json.dumps(llama(place.options.gib)))
    place.others.append(subprocess.Popen(
        [sys.executable, ROOT / "tests/bench/weight_cache.py", path, place.directory / "specs"],
        stdout=subprocess.PIPE, env=place.environment, stderr=open(place.directory / "peer.log", "wb")))
    if place.others[-1].stdout.readline() != b"ready\n":
        raise AssertionError((place.directory / "peer.log").read_text()[-600:])
    for wish, what in (("tensors", "weight cache daemon: pickle and a cudaIpc handle for each tensor"),
                       ("flat", "one flat buffer by cudaIpc, and views of it")):
        reader = place.fresh()
        try:
            place.row(what, ms(reader.peer_cache(path, wish)))
        except WorkerError as error:
            place.row(what, f"failed: {str(error)[:120]}")
        reader.stop()
    place.others.pop().kill()


@check("four readers take the memory of one")
def memory(place):
    readers = [place.fresh() for _ in range(4)]
    before = place.one.free()
    for reader in readers:
        reader.get("llama")
    taken = before - place.one.free()
    place.row("VRAM that four readers take", f"{taken / 1e6:.1f} MB", f"the weights {place.bytes / 1e9:.2f} GB",
              "aim 1 % of them")
    place.row("a matmul over mapped weights", "{:.3f} of its speed over own memory".format(
        readers[0].matmul("llama")), "", "aim 0.98")
    for reader in readers:
        reader.stop()
    expect(taken <= 0.01 * place.bytes, f"they take {taken / 1e6:.1f} MB")


@check("steps of publish and switch: a reader is never half in two, and two versions are the peak")
def steps(place):
    reader = place.fresh()
    reader.begin("follow", "policy")
    latencies, peak, count = place.one.train("policy", 200)
    seen, mixed, times = reader.end()
    expect(mixed == 0, f"{mixed} of {seen} were of two versions")
    known = [times[str(version)] - sealed for version, sealed in latencies if str(version) in times]
    known.sort()
    expect(seen == count + 1, f"the reader saw {seen} of {count} steps")
    place.row("seal to the reader's first kernel on it, median", ms(known[len(known) // 2]), "", "aim 1 ms")
    place.row("peak of the device's account over 200 steps", f"{peak:.3f} versions", "", "aim 2.01")
    reader.stop()


@check("kill -9 of a publisher in the middle leaves what was sealed")
def killed(place):
    worker = place.fresh()
    worker.publish_small("survivor", 7)
    worker.begin("publish_for_ever", "survivor")
    time.sleep(1)
    worker.stop()
    expect(place.one.all_same("survivor"), "what is there is of two versions")


def run(place):
    def warm():
        if len(place.waiting) < 2:
            place.warm(2)

    place.warm(1)
    place.one = place.fresh()
    place.warm(3)
    chosen = [(title, function) for title, function in CHECKS if place.options.only in title + function.__name__]
    counts = common.make_checks(chosen, place, place.options.seconds, after=warm)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    return counts["failed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", default=str(ROOT / "build/bin/gpubufd"))
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=140, help="no check is begun after these")
    place = Place(parser.parse_args())
    try:
        failed = run(place)
    finally:
        status = place.close()
        print(f"the daemon ended with {status}; logs: {place.directory}")
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main())
