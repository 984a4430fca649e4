#!/usr/bin/env python3
"""Measures gpubufd on a GPU: opening, publishing, putting, handing over, and reading by a kernel,
each against what would be done without it, in the same run. Prints a table, and writes bench.json to
--out. A missed aim is told in the table and is no failure; what cannot be measured is.

    tests/gpu/bench.py --bundle DIR --out FOLDER
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]
sys.dont_write_bytecode = True

import harness  # noqa: E402
from harness import MIB, Failure, Skip  # noqa: E402
from peer import Peer  # noqa: E402
from report import judge, print_table, summary  # noqa: E402

# id: (what, which figure the aim is about, aim, at least or at most, what the floor is)
ROWS = {
    "open.1": ("open 1 column of 1 MiB, cold", None, None, None, "cuIpcOpenMemHandle"),
    "open.1000": ("open 1000 in one call, cold, each", "measured", 3, "<=", "cuIpcOpenMemHandle"),
    "create_seal": ("create + seal of 1 MiB", "measured", 40, "<=", None),
    "large.make": ("create + seal of 50 of 64 MiB in new memory, each", "measured", 120, "<=", None),
    "large.open": ("open these in one call, cold, each", "measured", 40, "<=", None),
    "together": ("256 of 64 MiB, opened by 6 processes at once, until all have them", "measured", 20, "<=", None),
    "put.256mib": ("put 256 MiB", "ratio", 0.8, ">=", "plain copy"),
    "put.1024mib": ("put 1 GiB", "ratio", 0.8, ">=", "plain copy"),
    "kernel": ("a reduction over an object", "ratio", 0.98, ">=", "own memory"),
    "handover.used": ("hand over 256 MiB, until a byte is read", "ratio", 500, ">=",
                      "by host memory"),
    "spill.64mib": ("spill 64 MiB to the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "spill.256mib": ("spill 256 MiB to the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "spill.1024mib": ("spill 1 GiB to the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "restore.64mib": ("restore 64 MiB from the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "restore.256mib": ("restore 256 MiB from the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "restore.1024mib": ("restore 1 GiB from the host tier, 8 at once", "ratio", 0.85, ">=", "pinned copies"),
    "reopen.spilling": ("open + release while 8 GiB are being spilled", "ratio", 2, "<=", "idle"),
    "vram": ("memory that the daemon itself takes", "measured", 16, "<=", None),
    "vram.spilling": ("the same once it has spilled", None, None, None, None),
}
COUNTS = (1, 1000)


def row(ident, unit, measured, floor=None, ratio=None, note=None):
    out = {"id": ident, "unit": unit, "measured": summary(measured)}
    if floor:
        out["floor"] = summary(floor)
    if ratio:
        out["ratio"] = summary(ratio)
    if note:
        out["note"] = note
    return out


class Bench:
    def __init__(self, place, case, quick):
        self.place = place
        self.case = case
        self.quick = quick
        self.program = place.compile("bench.c", "tests/bench/measure.c", "proto/driver/cuda.c", "proto/driver/hip.c",
                                     "proto/base/errors.c")
        self.rounds = 2 if quick else 7

    def size(self, real, small):
        return (small if self.case.fake else real) * MIB

    def daemon(self):
        return self.case.daemon(f"cuda:0:{self.size(16384, 256) // MIB}M")

    # ---- programs ----

    def start(self, *arguments, **options):
        """bench.c with a command, under way; its pipes are text."""
        log = open(self.case.directory / "bench.log", "a", encoding="utf-8")
        with log:
            return subprocess.Popen(
                [str(word) for word in (self.program, *arguments)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=self.case.environment(),
                preexec_fn=harness.end_with_parent, **options,
            )

    def run(self, *arguments, given=None, timeout=120):
        """The lines that it prints, as JSON."""
        process = self.start(*arguments)
        try:
            out, _ = process.communicate(given, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"bench {arguments[0]} is not done after {timeout} s") from None
        if process.returncode != 0:
            raise Failure(f"bench {arguments[0]} ended with status {process.returncode}; see "
                          f"{self.case.directory}/bench.log")
        return [json.loads(line) for line in out.splitlines()]

    # ---- what is measured ----

    def opens(self):
        daemon, rows = self.daemon(), []
        size = self.size(1, 0) or 64 << 10
        for count in COUNTS:
            self.run("make", daemon.path, f"c{count}", count, size)
            cold = [self.run("open", daemon.path, f"c{count}", count)[0]["cold"] for _ in range(self.rounds)]
            with self.lender(count, size) as handles:
                floor = [self.run("borrow", given=handles)[0]["cold"] for _ in range(self.rounds)]
            rows.append(row(f"open.{count}", "us", cold, floor,
                            [f / c for c, f in zip(cold, floor)]))
        daemon.stop()
        return rows

    @contextlib.contextmanager
    def lender(self, count, size):
        """A process with `count` allocations of its own; their handles, a line each."""
        process = self.start("lend", count, size)
        try:
            yield "".join(process.stdout.readline() for _ in range(count))
        finally:
            process.kill()
            process.communicate()

    def create(self):
        daemon = self.daemon()
        rows = self.run("create", daemon.path, MIB, 20 if self.quick else 300)
        daemon.stop()
        return rows

    def large(self):
        """On a device that is not large, and none of it has been used."""
        made, cold = [], []
        for _ in range(min(self.rounds, 3)):
            daemon = self.case.daemon(f"cuda:0:{self.size(8192, 256) // MIB}M")
            size = self.size(64, 1)
            made.append(self.run("make", daemon.path, "large", 50, size)[0]["each"])
            cold += [self.run("open", daemon.path, "large", 50)[0]["cold"] for _ in range(3)]
            daemon.stop()
        return [row("large.make", "us", made), row("large.open", "us", cold)]

    def together(self):
        """As the workers of a machine do that begin at once. Each has its context, and has mapped nothing."""
        count, size = (256, 64 * MIB) if not self.case.fake else (64, MIB)
        daemon, found = self.case.daemon(f"cuda:0:{count * size * 5 // 4 // MIB}M"), []
        self.run("make", daemon.path, "shared", count, size)
        for _ in range(self.rounds):
            readers = [self.start("together", daemon.path, "shared", count) for _ in range(6)]
            try:
                for reader in readers:
                    self.line(reader)
                for reader in readers:
                    reader.stdin.write("g")
                    reader.stdin.flush()
                times = [self.line(reader) for reader in readers]
            finally:
                for reader in readers:
                    reader.kill()
                    reader.communicate()
            found.append((max(t["opened"] for t in times) - min(t["begun"] for t in times)) / 1000)
        daemon.stop()
        return [row("together", "ms", found)]

    def puts(self):
        daemon, rows = self.daemon(), []
        for mib in (16,) if self.case.fake else (256, 1024):
            rounds = 3 if self.quick else max(10, min(200, 8192 // mib))
            rows += self.run("put", daemon.path, mib * MIB, rounds)
        daemon.stop()
        return rows

    def kernel(self):
        cubin = self.place.environment.get("GPUBUF_GPU_KERNELS")
        if not cubin:
            raise Skip("no kernels here")
        daemon = self.daemon()
        self.run("make", daemon.path, "k", 1, 1024 * MIB)
        rows = self.run("kernel", daemon.path, "k/0", cubin, 5 if self.quick else 30)
        daemon.stop()
        return rows

    def pair(self, one, other, rounds):
        """A hand-over between two processes: for each round the time until a byte was read."""
        producer, consumer = self.start(*one), self.start(*other)
        found = []
        try:
            for _ in range(rounds):
                self.line(consumer)
                time.sleep(0.05)  # until it waits inside its call; it says so before
                producer.stdin.write("g")
                producer.stdin.flush()
                begun = self.line(producer)["begun"]
                found.append(self.line(consumer)["used"] - begun)
        finally:
            for process in (producer, consumer):
                process.kill()
                process.communicate()
        return found

    def line(self, process):
        text = process.stdout.readline()
        if not text:
            raise Failure(f"bench has ended; see {self.case.directory}/bench.log")
        return json.loads(text)

    def handover(self):
        daemon = self.daemon()
        size = self.size(256, 8)
        side = (daemon.path, size, self.rounds)
        ours = self.pair(("produce", *side), ("consume", *side), self.rounds)
        daemon.stop()
        by_host = []
        for _ in range(2 if self.quick else 3):
            with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="gpubuf-bench-") as folder:
                side = (f"{folder}/box", size)
                by_host += self.pair(("send", *side), ("receive", *side), 1)
        middle = statistics.median(by_host)
        return [row("handover.used", "us", ours, by_host, [middle / value for value in ours])]

    def tiered(self):
        """A daemon with a host tier that pins as it goes."""
        return self.case.daemon(
            f"cuda:0:{self.size(24576, 288) // MIB}M",
            options=("--tier", f"host:{self.size(16384, 256) // MIB}M", "--watermarks", "100:100"))

    def spill(self):
        daemon, rows = self.tiered(), []
        for mib in (4,) if self.case.fake else (64, 256, 1024):
            rows += self.run("move", daemon.path, mib * MIB, 2 if self.quick else 12)
        daemon.stop()
        return rows

    def crowd(self):
        """The time of an open while 8 GiB of other users' objects leave."""
        daemon = self.tiered()
        count, size = 8, self.size(1024, 16)
        self.run("make", daemon.path, "big", count, size)
        self.run("make", daemon.path, "small", 1, MIB)
        with self.lasting("reopen", daemon.path, "small/0") as idle:
            time.sleep(1 if self.case.fake else 3)  # that long it is measured
        found = []
        for _ in range(1 if self.quick else 3):
            with Peer(daemon.path) as peer:
                for i in range(count):  # all of them on the device, and dirty or not yet below
                    peer.call("move", tier="device", name=f"big/{i}")
                with self.lasting("reopen", daemon.path, "small/0") as busy:
                    asked = [peer.request("move", name=f"big/{i}", tier="host")
                             for i in range(count)]
                    for one in asked:
                        peer.reply(one, 60)
                found.append(busy[0]["measured"]["median"])
            daemon.delete([f"big/{i}" for i in range(count)])
            self.run("make", daemon.path, "big", count, size)
        daemon.stop()
        quiet = idle[0]["measured"]["median"]
        return [row("reopen.spilling", "us", found, [quiet], [f / quiet for f in found])]

    @contextlib.contextmanager
    def lasting(self, *arguments):
        """A command that goes on until the block ends; what it printed is in the list then."""
        process, found = self.start(*arguments), []
        try:
            self.line(process)
            yield found
            out, _ = process.communicate("stop\n", 60)
            found += [json.loads(line) for line in out.splitlines()]
        finally:
            process.kill()
            process.communicate()

    def vram(self):
        """With objects and sessions, what is in use less what was there before and the segments."""
        t = self.case
        before = t.free()
        daemon = self.daemon()
        rows = [self.taken(daemon, before, 16)]
        daemon.stop()
        daemon = self.tiered()
        with Peer(daemon.path) as peer:
            self.run("make", daemon.path, "first", 1, MIB)
            peer.call("move", name="first/0")
        line = self.taken(daemon, before, 0)
        daemon.stop()
        return rows + [dict(line, id="vram.spilling")]

    def taken(self, daemon, before, enough):
        t = self.case
        self.run("make", daemon.path, "v", 64, MIB)
        daemon.sessions(0)
        figures = daemon.figures()
        segments = figures["used"] + figures["retained"]
        taken = []

        def settled():
            taken[:] = [(before - t.free() - segments) / MIB]
            return taken[0] <= enough

        with contextlib.suppress(Failure):  # the program's own context goes in its own time
            harness.eventually(settled, "", 20 if enough else 5)
        return row("vram", "MiB", taken)


def measure(place, options):
    found = place.find()
    place.compile_kernels(found["capability"])
    case = harness.Case(place, "bench")
    report = {"gpus": found["names"], "cuda": found["cuda"], "fake": place.fake,
              "quick": options.quick}
    rows, failures = [], []
    try:
        bench = Bench(place, case, options.quick)
        case.free()  # the observer is there from the start, and keeps the driver awake
        for name in ("opens", "create", "large", "together", "puts", "kernel", "handover", "spill", "crowd", "vram"):
            if options.only not in name:
                continue
            started = time.monotonic()
            try:
                with harness.alarm(options.each, name):
                    more = getattr(bench, name)()
            except Skip as skip:
                print(f"{name}: skipped: {skip}", flush=True)
                continue
            except Exception as error:  # noqa: BLE001  (the others are measured all the same)
                failures.append(f"{name}: {error}")
                print(f"{name}: FAILED: {error}", flush=True)
                continue
            for line in more:
                # The fake driver's memory is small: its sizes have no rows, and no aims.
                judge(line, ROWS.get(line["id"], (line["id"], None, None, None, "floor")))
            rows += more
            print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
            report |= {"rows": rows, "failures": failures}
            (place.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    finally:
        case.close()
        case.clear()
    report |= {"rows": rows, "failures": failures}
    (place.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    print_table(rows)
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures or not rows else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--each", type=int, default=120, help="seconds for each part at most")
    place = harness.place_of_options(parser)
    try:
        return measure(place, place.options)
    except Skip as skip:
        print(f"skipped: no GPU to measure on here ({skip})")
        return 0
    finally:
        place.close()
        print(f"results: {place.out}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
