#!/usr/bin/env python3
"""Kills the daemon, its clients, and both, at random moments and at every failpoint, and looks each time
whether everything that was sealed is there, and nothing else. Needs Python and nothing else.

    tests/soak/soak.py --build build --seconds 60           on host memory
    tests/soak/soak.py --build build --fake --rounds 1000   on the driver of tests/fakecuda
    tests/soak/soak.py --bundle DIR --device cuda:0:2G      what `make dist` made, on a real GPU

As root and on the host, clients are those of several users. The last line is `N kills of the daemon, N rounds,
N failed`; a failure prints its seed, what was done in the round, and leaves
its directory. `--seed S --worlds 1` makes the choices of that world again.
"""

import argparse
import collections
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import client  # noqa: E402
import keeper  # noqa: E402
import world  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SUBREAPER = 36


class Place:
    """The binaries, the device, and the intensity of a run."""

    def __init__(self, options):
        base = options.bundle or options.build
        self.gpubufd = Path(options.daemon or base / "bin" / "gpubufd").resolve()
        self.library = client.load((base / "lib" / "libgpubuf.so").resolve())
        self.device = options.device
        self.real = self.device.startswith("cuda") and not options.fake
        self.failpoints = options.failpoints
        # On the fake driver memory is files, which only their owner may open.
        many = os.geteuid() == 0 and self.device.startswith("host")
        self.uids = world.UIDS if many else [0]
        self.grace_ms = 10000 if options.failpoints else 1500
        self.root = "/dev/shm" if roomy("/dev/shm") else tempfile.gettempdir()
        self.root_of_fake = os.environ.get("FAKECUDA_DIR", "-")
        self._serial = os.getpid() << 16

    def serial(self):
        """A number that no other client has had."""
        self._serial += 1
        return self._serial & 0xffffff


def roomy(path):
    try:
        space = os.statvfs(path)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize > 2 << 30


def wanted(device):
    """The failpoints that are passed: nothing goes from host memory to the tier that is host memory, and
    so nothing goes down from there."""
    return [n for n in keeper.failpoints() if n not in ("DOWN_TAKEN", "FORGET_DONE") or device.startswith("cuda")]


class Chooser:
    """Takes the failpoints that have killed least, give or take two, as far as this process knows."""

    def __init__(self, device):
        self.names = wanted(device)
        self.tried = collections.Counter()
        self.kills = collections.Counter()

    def __call__(self, rng, names=None):
        """One [of `names`]; None if none of them is wanted."""
        left = [n for n in self.names if names is None or n in names]
        # One that was tried often and never passed must not be all that is tried.
        name = min(left, key=lambda n: self.kills[n] + self.tried[n] / 16 + 2 * rng.random(),
                   default=None)
        self.tried[name] += 1
        return name


def free_memory():
    """Bytes free on the GPU, as a process of its own sees it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            import gpu_driver

            cu = gpu_driver.Driver()
            cu.cuInit(0)
            context = ctypes.c_void_p()
            cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            cu.cuCtxPushCurrent(context)
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            cu.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
            os.write(write, str(free.value).encode())
        finally:
            os._exit(0)
    os.close(write)
    data = os.read(read, 64)
    os.close(read)
    os.waitpid(pid, 0)
    return int(data)


# RELIABILITY.md: The daemon ends 6
def run_worlds(place, options, number, counts):
    """One process' worlds; what it found goes to `counts`, a file."""
    chooser = Chooser(place.device)
    end = time.monotonic() + options.seconds
    done = collections.Counter()
    # On a GPU that others use, too, it cannot be told who has it: then it is looked at in the end.
    alone = options.fake or options.jobs == 1
    before = free_memory() if place.device.startswith("cuda") and alone else None
    serial = 0

    def over():
        return time.monotonic() > end or done["rounds"] >= options.rounds

    while not over() and serial < options.worlds and not done["failed"]:
        seed = options.seed * 1000003 + number * 10007 + serial
        serial += 1
        one = world.World(place, seed, chooser)
        try:
            one.start()
            rounds = random.Random(seed).randrange(10, 61)
            for _ in range(rounds):
                if over():
                    break
                one.round()
                done["rounds"] += 1
                chooser.kills.update(one.kills)
                done.update(read=one.read[True], unread=one.read[False])
                one.read = [0, 0]
                done.update({"point " + name: count for name, count in one.kills.items()})
                one.kills.clear()
                done["kills"] += one.daemon_kills
                one.daemon_kills = 0
                if done["rounds"] % 20 == 0:
                    Path(counts).write_text(json.dumps(done))
            one.end()
            if before is not None:
                check_free(before)
        except BaseException as error:
            done["failed"] += 1
            kind = "" if isinstance(error, world.Failure) else traceback.format_exc()
            print(f"FAILED in round {done['rounds']} of seed {options.seed} --worker {number} "
                  f"(world {serial - 1}): {error}\n{kind}{one.tell()}\n", flush=True)
            try:
                one.kill_all()
            except Exception:
                traceback.print_exc()
    Path(counts).write_text(json.dumps(done))


def check_free(before):
    """Every byte of the GPU is back; a real driver takes its time."""
    end = time.monotonic() + 30
    while (now := free_memory()) < before:
        if time.monotonic() > end:
            raise world.Failure(f"{before - now} bytes of the GPU are lost")
        time.sleep(0.1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="what `make` made")
    parser.add_argument("--bundle", type=Path, help="what `make dist` made, unpacked")
    parser.add_argument("--daemon", help="this gpubufd, in place of theirs")
    parser.add_argument("--device", help="default: host:24M")
    parser.add_argument("--fake", type=Path, nargs="?", const=Path("fakecuda"),
                        help="on the driver of tests/fakecuda [in this directory]")
    parser.add_argument("--failpoints", action="store_true",
                        help="the daemon was built with them (build/fail, build/asan)")
    parser.add_argument("--seconds", type=float, default=1e9, help="no round is begun after these")
    parser.add_argument("--rounds", type=int, default=1 << 60, help="how many, of all processes")
    parser.add_argument("--worlds", type=int, default=1 << 60, help="how many daemons, of each process")
    parser.add_argument("--least", type=int, default=0, help="kills at each failpoint, or it fails")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="so many daemons side by side")
    parser.add_argument("--seed", type=int, help="default: drawn, and printed")
    parser.add_argument("--worker", type=int, default=0, help="the number of the first process")
    options = parser.parse_args()
    options.device = options.device or ("cuda:0:24M" if options.fake else "host:24M")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    return options


def enter_fake(options):
    """Starts this program again with the driver in front of any other."""
    if os.environ.get("GPUBUF_SOAK_FAKE"):
        return
    where = options.fake if options.fake.is_absolute() else options.build / options.fake
    directory = tempfile.mkdtemp(prefix="gpubuf-soak-gpu-", dir="/dev/shm" if roomy("/dev/shm")
                                 else None)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FAKECUDA_")}
    environment.update(GPUBUF_SOAK_FAKE="1", FAKECUDA_DIR=directory, FAKECUDA_MEMORY="512M",
                       LD_LIBRARY_PATH=str(where.resolve()))
    pid = os.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    status = os.waitpid(pid, 0)[1]
    shutil.rmtree(directory, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status))


def report(options, files, began, failed):
    total = collections.Counter(failed=failed)
    for file in files:
        try:
            total.update(json.loads(Path(file).read_text()))
        except (OSError, ValueError):
            total["failed"] += 1
    kills = {n: total["point " + n] for n in wanted(options.device)}
    seconds = time.monotonic() - began
    if options.failpoints:
        print("kills at failpoints: " + ", ".join(f"{n} {k}" for n, k in kills.items()))
        seldom = [n for n, k in kills.items() if k < options.least]
        if seldom:
            print(f"fewer than {options.least} kills at: {', '.join(seldom)}")
            total["failed"] += 1
    print(f"seed {options.seed}, {seconds:.0f} s, {total['rounds'] / seconds:.1f} rounds a second, "
          f"{total['read']} objects read, {total['unread']} times no room for one to come back")
    print(f"{total['kills']} kills of the daemon, {total['rounds']} rounds, {total['failed']} failed",
          flush=True)
    return 1 if total["failed"] or not total["rounds"] else 0


def main():
    options = arguments()
    if options.fake:
        enter_fake(options)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    options.rounds = -(-options.rounds // options.jobs)
    before = free_memory() if options.device.startswith("cuda") and not options.fake else None
    with tempfile.TemporaryDirectory(prefix="gpubuf-soak-counts-") as directory:
        files, pids = [], []
        for number in range(options.worker, options.worker + options.jobs):
            files.append(os.path.join(directory, str(number)))
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    keeper.end_with_parent()
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    if options.fake:  # GPUs of its own
                        os.environ["FAKECUDA_DIR"] += f"/{number}"
                        os.mkdir(os.environ["FAKECUDA_DIR"])
                    run_worlds(Place(options), options, number, files[-1])
                    status = 0
                except Exception:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        failed = 0
        try:
            if before is not None:
                check_free(before)
        except world.Failure as failure:
            print(f"FAILED in the end: {failure}")
            failed = 1
        return report(options, files, began, failed)


if __name__ == "__main__":
    sys.exit(main())
