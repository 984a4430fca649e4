#!/usr/bin/env python3
"""gpubufd under MPS: put and get, views, and what a client's fault does to the others. streams.py has streams under it.

    PYTHONPATH=build/python tests/gpu/mps.py --daemon build/bin/gpubufd --out DIR
    tests/gpu/mps.py -- tests/gpu/serve.py --daemon gpubufd --only bf16 kill_engine    # any program under a server

Starts nvidia-cuda-mps-control with directories of its own, runs each part as a child below it, and ends it. Two ways: the
daemon is a client of the server, too, and it is not. Skips all where the program is not there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import serving

HERE = Path(__file__).resolve().parent
CONTROL = "nvidia-cuda-mps-control"
# A reader that keeps working, and says what it sees when it is asked.
READER = """
import sys, torch, gpubufd, gpubufd.torch as gt
client = gpubufd.connect()
state = gt.get_state_dict(client, "weights")
print("sum", int(state["w"].sum()), flush=True)
for line in sys.stdin:
    try:
        torch.cuda.synchronize()
        print("sum", int((state["w"] + 0).sum()), flush=True)
    except RuntimeError as error:
        print("lost", str(error).splitlines()[0], flush=True)
"""
WRITER = """
import torch, gpubufd, gpubufd.torch as gt
state = gt.get_state_dict(gpubufd.connect(), "weights")
try:
    state["w"].add_(1)
    torch.cuda.synchronize()
    print("written")
except RuntimeError as error:
    print("lost", str(error).splitlines()[0])
"""
PUT = """
import sys, torch, gpubufd, gpubufd.torch as gt
client = gpubufd.connect()
gt.put_state_dict(client, sys.argv[1], {"w": torch.ones(1 << 24, dtype=torch.int32, device="cuda")}, device="cuda:0", replace=True)
print("sum", int(gt.get_state_dict(client, sys.argv[1])["w"].sum()))
"""


class Server:
    """An MPS server of this script's own."""

    def __enter__(self):
        self.place = Path(tempfile.mkdtemp(prefix="mps-"))
        self.environment = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=str(self.place / "pipe"),
                                CUDA_MPS_LOG_DIRECTORY=str(self.place / "log"), PYTHONUNBUFFERED="1")
        for name in ("pipe", "log"):
            (self.place / name).mkdir()
        subprocess.run([CONTROL, "-d"], env=self.environment, check=True, timeout=30, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def ask(self, words):
        return subprocess.run([CONTROL], input=words + "\n", text=True, env=self.environment, timeout=60, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.strip()

    def __exit__(self, *exception):
        self.ask("quit -t 10")
        shutil.rmtree(self.place, ignore_errors=True)


def python(code, environment, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True,
                          timeout=120, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"status {done.returncode}"


def faults(options, server, daemon_is_client, say):
    """Puts and gets; then a client writes what is read-only. Lines of what the others see; whether puts and gets were right."""
    outside = {name: value for name, value in server.environment.items() if name != "CUDA_MPS_PIPE_DIRECTORY"}
    # Without a server at its pipe a process is no client of MPS.
    outside["CUDA_MPS_PIPE_DIRECTORY"] = str(server.place / "none")
    path = str(server.place / "s")
    environment = dict(server.environment, GPUBUFD_SOCKET=path)
    total = f"sum {1 << 24}"
    with serving(options.daemon, path, "--device", "cuda:0:4G", env=server.environment if daemon_is_client else outside,
                 log=options.out / "mps-daemon.log") as daemon:
        found = python(PUT, environment, "weights")
        say("put and get", "right" if found == total else f"WRONG: {found}")
        reader = subprocess.Popen([sys.executable, "-c", READER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, stderr=subprocess.DEVNULL)
        right = found == reader.stdout.readline().strip() == total
        say("clients of the server", server.ask(f"get_client_list {server.ask('get_server_list').split()[0]}").replace("\n", " "))
        say("a write to read-only memory: the writer", python(WRITER, environment))
        reader.stdin.write("again\n")
        reader.stdin.flush()
        say("a reader beside it", reader.stdout.readline().strip() or "has ended")
        reader.kill()
        reader.wait()
        say("a new client, through the same daemon", python(PUT, environment, "after"))
        say("what was published, by a new client", python(READER, environment))
        say("the daemon", "runs" if daemon.poll() is None else f"has ended with {daemon.returncode}")
    say("the daemon's end", daemon.returncode)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", default="gpubufd")
    parser.add_argument("command", nargs="*", help="is run under a server, in the place of all else")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "gpubuf-mps")
    options = parser.parse_args()
    if options.command:
        with Server() as server:
            status = subprocess.run(options.command, env=server.environment, check=False).returncode
            print("clients of the server at its end:", server.ask("get_server_list"), flush=True)
        return status
    options.out.mkdir(parents=True, exist_ok=True)
    parts = ["a client's fault; the daemon is a client", "a client's fault; the daemon is none", "views"]
    if not shutil.which(CONTROL):
        print(f"{CONTROL} is not there\n0 passed, 0 failed, {len(parts)} skipped")
        return 0
    counts = {"passed": 0, "failed": 0}

    def outcome(part, right, seconds):
        counts["passed" if right else "failed"] += 1
        print(f"{'passed' if right else 'failed'}  {part} ({seconds:.1f} s)", flush=True)

    for part, is_client in zip(parts, (True, False)):
        begun, right = time.monotonic(), False
        try:
            with Server() as server:  # a fault may leave a server that takes no clients
                right = faults(options, server, is_client, lambda what, found: print(f"        {what}: {found}", flush=True))
        except Exception as error:  # noqa: BLE001: the next one is made all the same
            print(f"        {type(error).__name__}: {error}", flush=True)
        outcome(part, right, time.monotonic() - begun)
    command = [HERE / "views.py", "--daemon", options.daemon, "--gib", "1", "--rounds", "1000", "--seconds", "15"]
    begun, log = time.monotonic(), options.out / "mps-views.log"
    with Server() as server, open(log, "wb") as file:
        try:
            status = subprocess.run([sys.executable, *map(str, command)], env=server.environment, stdout=file, stderr=file,
                                    stdin=subprocess.DEVNULL, timeout=100, check=False).returncode
        except subprocess.TimeoutExpired:
            status = "timeout"
    print(f"        views: status {status}; {log}", flush=True)
    outcome("views", status == 0, time.monotonic() - begun)
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
