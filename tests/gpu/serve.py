#!/usr/bin/env python3
"""vLLM serves a model with gpubufd's weights: the same tokens, one copy, kills, new versions under graphs, sleep.

    . /tmp/gpubufd-carry/vllm.sh     # of tests/gpu/carry gpubufd vllm
    tests/gpu/serve.py --daemon gpubufd --out DIR [--only NAME...] [--size 100m] [--seconds 500]

A line for each check, a table of figures, and a line that counts the checks. Each engine is a process of its own
(serve_worker.py); the model is a Llama of random weights that is made here, and one of 16 GiB for `big`. Without a GPU,
and with vLLM's build for CPUs, it is a rehearsal of what needs none: --size small --prompts 20.
"""

import argparse
import contextlib
import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
from common import Skip, expect
from weights import Measured, Worker, WorkerError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GPUBUFD = {"load_format": "gpubufd"}
VIEW = {"load_format": "gpubufd", "model_loader_extra_config": {"view": True}}
# Graphs of single steps, without torch.compile, which takes a minute.
GRAPHS = {"enforce_eager": False,
          "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16]}}
MODELS = {"bf16": (1, False), "fp8": (1, True), "other": (2, False), "big": (3, False)}  # seed, FP8
FEW, GRAPHED = 100, 16
CHECKS = []
check = common.check(CHECKS)


class Cold(Worker):
    """An engine in a process that begins with nothing."""

    script = "serve_worker.py"


class Forked:
    """A process that another one has forked, as Worker knows one."""

    def __init__(self, connection):
        self.connection, self.pid = connection, None
        self.stdin, self.stdout = connection.makefile("wb"), connection.makefile("rb")

    def poll(self):
        if self.pid and os.path.exists(f"/proc/{self.pid}"):
            return None
        return -signal.SIGKILL

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds=30):
        Place.wait_for(lambda: self.poll() is not None, seconds, f"process {self.pid} ends")
        return self.poll()


class Engine(Worker):
    """An engine in a process that has imported vLLM."""

    def __init__(self, place):
        self.log = place.directory / f"worker{len(place.workers)}.log"
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(place.nursery)
        connection.sendall(f"{self.log}\n".encode())
        self.process = Forked(connection)
        self.process.pid = self.pid()
        place.workers.append(self)


class Place(Measured):
    """A supervised daemon, engines, checkpoints, and what was measured."""

    def __init__(self, options):
        self.options = options
        self.out = Path(options.out or tempfile.mkdtemp(prefix="gpubuf-serve-"))
        self.out.mkdir(parents=True, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix="gpubuf-serve-"))
        self.files = Path(tempfile.mkdtemp(prefix="gpubuf-serve-", dir="/dev/shm"))
        self.socket = str(self.directory / "s")
        self.workers, self.rows, self.known, self.tokens = [], [], {}, {}
        self.gpu = shutil.which("nvidia-smi") is not None
        self.kind = Engine
        plugin = self.directory / "plugin"
        self.install_plugin(plugin)
        paths = [str(plugin), str(ROOT / "client" / "vllm"), os.environ.get("PYTHONPATH", "")]
        self.environment = dict(
            os.environ, GPUBUFD_SOCKET=self.socket, PYTHONPATH=":".join(filter(None, paths)), HF_HUB_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1", VLLM_HOST_IP="127.0.0.1", GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo",
            VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_CPU_KVCACHE_SPACE="1", TMPDIR=str(self.directory),
            VLLM_CACHE_ROOT=str(self.directory / "cache"), VLLM_LOGGING_LEVEL="INFO", PYTHONUNBUFFERED="1")
        self.daemon = self.start_daemon()
        try:
            self.process = self.start_nursery()
        except BaseException:
            self.daemon.terminate()
            raise
        try:
            probe = Engine(self)
            probe.allocated()
            probe.stop()
        except WorkerError as error:
            self.kind = Cold
            self.row("engines are processes that begin with nothing", "", "", str(error)[-200:])

    @staticmethod
    def install_plugin(place):
        """Makes the entry point of client/vllm, by which vLLM finds it, as pip does."""
        import tomllib

        project = tomllib.loads((ROOT / "client" / "vllm" / "pyproject.toml").read_text())["project"]
        made = place / f"gpubufd_vllm-{project['version']}.dist-info"
        made.mkdir(parents=True)
        (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        lines = []
        for group, entries in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        (made / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def start_daemon(self):
        capacity, command = self.options.gib * 1024, [self.options.daemon, "--socket", self.socket, "--supervise", "--grace", "0"]
        command += ["--device", f"cuda:0:{capacity}M"] if self.gpu else []
        command += ["--device", f"host:{capacity}M", "--tier", f"host:{capacity}M"] if self.gpu else ["--device", "host:2G"]
        with open(self.out / "gpubufd.log", "wb") as log:
            daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=self.environment)
        self.wait_for(lambda: os.path.exists(self.socket), 30, "the daemon listens")
        return daemon

    @staticmethod
    def wait_for(condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            expect(time.monotonic() < end, f"not within {seconds} s: {what}")
            time.sleep(0.005)

    def ctl(self, *arguments):
        done = subprocess.run([Path(self.options.daemon).with_name("gpubufctl") if "/" in self.options.daemon else "gpubufctl",
                               "--socket", self.socket, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout

    def serving(self):
        """The daemon under its supervisor."""
        found = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        return int(found[0]) if found else None

    def kill_daemon(self):
        """kill -9; seconds until another one answers."""
        before, begun = self.serving(), time.monotonic()
        os.kill(before, signal.SIGKILL)
        self.wait_for(lambda: self.serving() not in (None, before) and self.ctl("ping")[0] == 0, 30, "a daemon serves again")
        return time.monotonic() - begun

    def start_nursery(self):
        """The process that engines are forked from."""
        self.nursery = str(self.directory / "nursery")
        with open(self.out / "nursery.log", "wb") as log:
            process = subprocess.Popen([sys.executable, HERE / Cold.script, self.nursery], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, env=self.environment, cwd=self.directory)
        self.wait_for(lambda: os.path.exists(self.nursery) or process.poll() is not None, 600, "vLLM is imported")
        expect(process.poll() is None, (self.out / "nursery.log").read_text()[-1500:])
        return process

    def worker(self, kind=None):
        """A process that has imported vLLM."""
        worker = (kind or self.kind)(self)
        if isinstance(worker, Cold):
            worker.start()
        worker.at(self.socket)
        return worker

    def engine(self, model, **options):
        worker = self.worker()
        worker.told = worker.load(str(model), {**self.options.engine, **options})
        return worker

    def model(self, name):
        """The directory of a checkpoint, which is made once."""
        place = self.files / name
        if not place.exists():
            maker, begun = self.worker(), time.monotonic()
            self.known[name] = maker.checkpoint(str(place), "16g" if name == "big" else self.options.size, *MODELS[name])
            maker.stop()
            print(f"          {name} is made: {mb(self.known[name])}, {s(time.monotonic() - begun)}", flush=True)
        return place

    def wanted(self, model):
        """Greedy and seeded tokens by --load-format auto, and by nothing of gpubufd."""
        if model.name not in self.tokens:
            engine = self.engine(model)
            self.tokens[model.name] = {
                (count, temperature): engine.tokens(count, temperature)
                for count in (self.options.prompts, FEW) for temperature in (0, 0.8)}
            self.row(f"{model.name}: weights loaded by auto", s(engine.told["seconds"]), mb(engine.told["bytes"]), "of the GPU taken")
            engine.stop()
        return self.tokens[model.name]

    def same(self, engine, model, what, count=FEW):
        """As many prompts at once: which of them are computed together changes what bfloat16 rounds."""
        for temperature in (0, 0.8):
            wanted, found = self.wanted(model)[count, temperature], engine.tokens(count, temperature)
            wrong = sum(a != b for a, b in zip(found, wanted))
            expect(wrong == 0 and len(found) == len(wanted), f"{what}: {wrong} of {len(wanted)} prompts have other tokens ({temperature})")

    def close(self):
        for worker in self.workers:
            worker.stop()
            with contextlib.suppress(OSError):
                shutil.copy(worker.log, self.out)
        self.process.kill()
        self.process.wait()
        return self.end_daemon()


def s(seconds):
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def mb(count):
    return f"{count / 1e6:.1f} MB"


def need_gpu(place):
    if not place.gpu:
        raise Skip("needs a GPU")


def served(place, model):
    """An engine that publishes, and one that maps: the same tokens as with weights of its own. Both stay."""
    wanted = place.wanted(model)[place.options.prompts, 0]
    expect(len({tuple(one) for one in wanted}) > len(wanted) // 2, "the model says the same to all prompts")
    engines = []
    for what in ("published, then mapped", "mapped"):
        engine = place.engine(model, **GPUBUFD)
        place.row(f"{model.name}: weights {what}", s(engine.told["seconds"]), mb(engine.told["bytes"]), "of the GPU taken")
        place.same(engine, model, what, place.options.prompts)
        engines.append(engine)
    if place.gpu:
        share = engines[1].told["own"] / place.known[model.name]
        place.row(f"{model.name}: what the second engine's weights take", f"{share * 100:.2f} %", "", "by PyTorch; aim 1 %")
        expect(share <= 0.01, f"they take {share * 100:.2f} %")
    return engines


@check("bf16: greedy and seeded, the same tokens as --load-format auto; a second engine's weights take 1 % at most")
def bf16(place):
    place.engines = served(place, place.model("bf16"))


@check("kill -9 of the engine that published: the other one serves on, and the next one begins")
def kill_engine(place):
    killed, place.other = place.engines
    killed.stop()
    place.row("engine killed: next token of the other", s(place.other.next_token()))
    next_engine(place, "engine killed", Cold)


def next_engine(place, what, kind=None):
    """A new engine: seconds from its start to its first token, and its tokens. `kind`: Cold imports vLLM first."""
    begun = time.monotonic()
    engine = place.worker(kind)
    imported = time.monotonic()
    told = engine.load(str(place.model("bf16")), {**place.options.engine, **GPUBUFD})
    loaded = time.monotonic()
    engine.next_token()
    end = time.monotonic()
    place.row(f"{what}: next engine, first token", s(end - begun), "", f"process {s(imported - begun)}, engine "
              f"{s(loaded - imported)} of which its weights {s(told['seconds'])}, token {s(end - loaded)}")
    place.same(engine, place.model("bf16"), what)
    engine.stop()


@check("kill -9 of the daemon: the engine serves on, during it and after it")
def kill_daemon(place):
    count = place.options.prompts
    place.other.begin("tokens", count, 0)
    back = place.kill_daemon()
    expect(place.other.end() == place.wanted(place.model("bf16"))[count, 0], "other tokens during it")
    place.row("daemon killed: another one serves", s(back), f"next token {s(place.other.next_token())}")
    place.same(place.other, place.model("bf16"), "after it")
    next_engine(place, "daemon killed")


@check("kill -9 of both: the next engine has the weights")
def kill_both(place):
    place.other.stop()
    place.row("both killed: another daemon serves", s(place.kill_daemon()))
    next_engine(place, "both killed")


@check("sleep of level 1 and 2, tags, and the tokens after it")
def sleep(place):
    need_gpu(place)
    engine = place.engine(place.model("bf16"), **GPUBUFD, **GRAPHS, enable_sleep_mode=True)
    wanted = engine.tokens(GRAPHED, 0)
    # After level 2 the weights' tag comes first: with any tag vLLM 0.25 copies the model's buffers back, which have it.
    for level, tags in ((1, None), (2, None), (1, ["weights", "kv_cache"]), (1, ["kv_cache", "weights"]), (2, ["weights", "kv_cache"])):
        told = engine.sleep(level)
        expect(engine.parked() == [True], "the view is not parked")
        times = [engine.wake()] if tags is None else [engine.wake([tag]) for tag in tags]
        place.row(f"sleep of level {level}; wake {tags or ''}", s(told["seconds"]), " + ".join(s(one) for one in times),
                  f"{mb(told['freed'])} freed")
        expect(engine.parked() == [False], "the view is still parked")
        found = engine.tokens(GRAPHED, 0)
        expect(found == wanted, f"level {level}, {tags}: other tokens for {sum(a != b for a, b in zip(found, wanted))} of {GRAPHED}")
    place.sleeper, place.sleeper_wanted = engine, wanted


@check("kv_cache alone is woken: the weights sleep on")
def tags(place):
    need_gpu(place)
    place.sleeper.sleep(1)
    place.sleeper.wake(["kv_cache"])
    expect(place.sleeper.parked() == [True], "the weights woke")
    place.sleeper.wake(["weights"])
    expect(place.sleeper.tokens(GRAPHED, 0) == place.sleeper_wanted, "other tokens")


@check("an engine killed asleep: its successor has the weights, and the tokens")
def killed_asleep(place):
    need_gpu(place)
    place.sleeper.sleep(2)
    place.sleeper.stop()
    engine = place.engine(place.model("bf16"), **GPUBUFD, **GRAPHS, enable_sleep_mode=True)
    place.row("killed asleep: the successor's weights", s(engine.told["seconds"]))
    expect(engine.tokens(GRAPHED, 0) == place.sleeper_wanted, "other tokens")
    engine.stop()


@check("versions switched under captured graphs: tokens of the one or of the other, never of both")
def versions(place):
    count, graphs = GRAPHED, GRAPHS if place.gpu else {}
    engine = place.engine(place.model("bf16"), **VIEW, **graphs, weight_transfer_config={"backend": "gpubufd"})
    name, facts = engine.key()
    wanted = {}
    for label, model in (("a", "bf16"), ("b", "other")):
        publisher = place.engine(place.model(model), **graphs)
        wanted[label] = publisher.tokens(count, 0)
        publisher.publish(name, facts, label)
        publisher.stop()
    expect(all(a != b for a, b in zip(wanted["a"], wanted["b"])), "both say the same")
    rounds, times = 100 if place.gpu else 10, []
    for i in range(rounds):
        label = "ba"[i % 2]
        times.append(engine.switch(label))
        found = engine.tokens(count, 0)
        expect(found == wanted[label], f"round {i}: {sum(a != b for a, b in zip(found, wanted[label]))} of {count} are not of {label}")
    times.sort()
    place.row(f"{rounds} switches: median, longest", f"{s(times[len(times) // 2])}, {s(times[-1])}", "", "vLLM's calls included")
    engine.stop()


@check("two models of which one fits: the other one sleeps")
def two_models(place):
    need_gpu(place)
    model, other = place.model("bf16"), place.model("other")
    room = int(place.known["bf16"] * 1.5) >> 20
    small = copy.copy(place)  # with a daemon of its own
    small.socket = str(place.directory / "small")
    with open(place.out / "small.log", "wb") as log:
        daemon = subprocess.Popen(
            [place.options.daemon, "--socket", small.socket, "--device", f"cuda:0:{room}M", "--tier", f"host:{8 * room}M"],
            stdout=subprocess.DEVNULL, stderr=log, env=place.environment)
    place.wait_for(lambda: os.path.exists(small.socket), 30, "the small daemon listens")
    try:
        first = small.engine(model, **GPUBUFD, enable_sleep_mode=True)
        wanted = first.tokens(50, 0)
        first.sleep(1)
        second = small.engine(other, **GPUBUFD, enable_sleep_mode=True)
        others = second.tokens(50, 0)
        for _ in range(3):
            second.sleep(1)
            woke = first.wake()
            expect(first.tokens(50, 0) == wanted, "the first has other tokens")
            first.sleep(1)
            again = second.wake()
            expect(second.tokens(50, 0) == others, "the second has other tokens")
        place.row("two models in the room of one: wake of each", s(woke), s(again))
    finally:
        daemon.terminate()
        daemon.wait(30)


@check("the start of an engine: gpubufd, auto, safetensors' prefetch; one after the other")
def starts(place):
    model = place.model("bf16")
    place.wanted(model)  # kernels are compiled
    for what, options in (("gpubufd, the first or not", GPUBUFD), ("gpubufd", GPUBUFD), ("auto", {}),
                          ("auto, prefetch", {"safetensors_load_strategy": "prefetch"})):
        engine = place.engine(model, **options)
        place.row(f"start, {what}; its weights", s(engine.told["start"]), s(engine.told["seconds"]))
        engine.stop()


@check("an operation in place on a mapped weight fails in that process alone")
def written(place):
    need_gpu(place)
    engine = place.engine(place.model("bf16"), **GPUBUFD)
    said = engine.write()
    engine.stop()
    expect("illegal" in said.lower() or "invalid" in said.lower(), f"it said: {said}")
    next_engine(place, "after a write")


@check("FP8: greedy and seeded, the same tokens as --load-format auto; a second engine's weights take 1 % at most")
def fp8(place):
    need_gpu(place)
    for engine in served(place, place.model("fp8")):
        engine.stop()


@check("wake of 16 GiB with graphs kept")
def big(place):
    need_gpu(place)
    model = place.model("big")
    engine = place.engine(model, **GPUBUFD, **GRAPHS, enable_sleep_mode=True)
    place.row("16 GiB: published, then mapped", s(engine.told["seconds"]), mb(place.known["big"]))
    wanted = engine.tokens(GRAPHED, 0)
    for level, spilled in ((1, False), (2, False), (1, True), (2, True)):
        told = engine.sleep(level)
        if spilled:
            status, said = place.ctl("spill", engine.name())
            expect(status == 0, f"spill: {said}")
        woke = engine.wake()
        place.row(f"16 GiB, level {level}{', weights in the host tier' if spilled else ''}: sleep, wake", s(told["seconds"]), s(woke),
                  f"{mb(told['freed'])} freed by the engine; aim 0.35 s")
        expect(engine.tokens(GRAPHED, 0) == wanted, "other tokens")
    engine.stop()
    engine = place.engine(model, **GPUBUFD)
    place.row("16 GiB: the next engine's weights", s(engine.told["seconds"]), mb(engine.told["bytes"]))
    engine.stop()
    engine = place.engine(model)
    place.row("16 GiB: by auto, from memory", s(engine.told["seconds"]))
    engine.stop()


def run(place):
    chosen = [(title, function) for title, function in CHECKS if not place.options.only or function.__name__ in place.options.only]
    return common.make_checks(chosen, place, place.options.seconds, place.options.limit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", default=str(ROOT / "build/bin/gpubufd"))
    parser.add_argument("--out", help="where logs go")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of checks: bf16 kill_engine …")
    parser.add_argument("--size", default="100m", choices=("small", "100m"), help="of the model")
    parser.add_argument("--gib", type=int, default=48, help="of the daemon's memory on the GPU")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--engine", type=json.loads, default={}, metavar="JSON", help="more options of vLLM's LLM for each engine")
    parser.add_argument("--seconds", type=float, default=500, help="no check is begun after these")
    parser.add_argument("--limit", type=int, default=600, help="seconds of one check")
    options = parser.parse_args()
    unknown = set(options.only) - {function.__name__ for _, function in CHECKS}
    if unknown:
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was told to end"))
    place = Place(options)
    try:
        counts = run(place)
    finally:
        status = place.close()
        print(f"the daemon ended with {status}; logs: {place.out}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or status else 0


if __name__ == "__main__":
    sys.exit(main())
