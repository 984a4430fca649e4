#!/usr/bin/env python3
"""A frame from one Python process to another, in an array of NumPy's: bench_streams.py SOCKET [--quick].

The time from a frame's publication until the other process has it as an array: by a stream whose reader looks all the
time; then by one whose reader sleeps, as do those of a multiprocessing.Queue, ZeroMQ (if pyzmq is installed) and Redis'
pub/sub (if redis-server is). The next frame is made when the last one has come. Each process has a core of its own.
Prints rows for scripts/run-bench.
"""

import contextlib
import json
import mmap
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import gpubufd
from report import summary

SIZES = {"1k": 1024, "64k": 65536, "4m": 4 << 20}


class Stream:
    def __init__(self, place, size, writes):
        self.client = gpubufd.connect(place.socket)
        if writes:
            self.stream = self.client.stream(f"streams/python/{size}", "uint8", (size,), device="host", timeout=10)
        else:
            self.stream = self.client.read(f"streams/python/{size}", timeout=10)
        self.frame = None

    def begin(self):
        self.frame = self.stream.next()
        return self.frame.array

    def write(self, array):
        self.frame.publish()

    def read(self):
        if self.frame:
            self.frame.done()
        self.frame = self.stream.read()
        return self.frame.array

    def close(self):
        self.stream.close()
        self.client.close()


class Copied:
    """The frame is the writer's own memory, and is sent from there."""

    def __init__(self, place, size, writes):
        self.array = numpy.ones(size, "uint8")
        self.start(place, writes)

    def begin(self):
        return self.array


class Queue(Copied):
    def start(self, place, writes):
        self.queue = place.queue

    def write(self, array):
        self.queue.put(array)

    def read(self):
        return self.queue.get()

    def close(self):
        pass


class ZeroMQ(Copied):
    def start(self, place, writes):
        import zmq

        self.context = zmq.Context()
        self.pipe = self.context.socket(zmq.PUSH if writes else zmq.PULL)
        (self.pipe.bind if writes else self.pipe.connect)(f"ipc://{place.folder}/zmq")

    def write(self, array):
        self.pipe.send(array)

    def read(self):
        return numpy.frombuffer(self.pipe.recv(copy=False).buffer, "uint8")

    def close(self):
        self.context.destroy(linger=0)


class Redis(Copied):
    """In its own words, so that no package of ours is measured."""

    def start(self, place, writes):
        self.writes = writes
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{place.folder}/redis")
        self.file = self.socket.makefile("rb", buffering=1 << 20)
        if not writes:
            self.socket.sendall(b"SUBSCRIBE frames\r\n")
            self.lines(6)

    def lines(self, count):
        return [self.file.readline() for _ in range(count)][-1]

    def write(self, array):
        head = b"*3\r\n$7\r\nPUBLISH\r\n$6\r\nframes\r\n$%d\r\n" % array.nbytes
        if array.nbytes < 1 << 16:
            self.socket.sendall(head + array.tobytes() + b"\r\n")
        else:
            self.socket.sendall(head)
            self.socket.sendall(array)
            self.socket.sendall(b"\r\n")
        self.lines(1)

    def read(self):
        size = int(self.lines(6)[1:])  # *3 $7 message $6 frames $SIZE
        return numpy.frombuffer(self.file.read(size + 2), "uint8", size)

    def close(self):
        self.file.close()
        self.socket.close()


class Place:
    def __init__(self, path, folder):
        self.socket, self.folder = path, folder
        self.queue = multiprocessing.Queue()


def read_frames(way, place, size, frames, seen, times):
    end = way(place, size, False)
    seen[0] = 1
    for i in range(frames):
        array = end.read()
        published = int.from_bytes(array[:8].tobytes(), "little")
        times[i] = time.monotonic_ns() - published
        del array
        seen[0] = i + 2
    end.close()


def rest(gap):
    """Lets the process's other threads, which some ways have, do their work."""
    if gap > 1e-4:
        time.sleep(0)


def one_round(way, place, size, frames, gap=300e-6):
    """The times of some frames, in us."""
    seen = numpy.frombuffer(mmap.mmap(-1, 4096), "int64")
    times = numpy.frombuffer(mmap.mmap(-1, 8 * frames), "int64")
    end = way(place, size, True) if way is Stream else None
    cores = sorted(os.sched_getaffinity(0))
    reader = os.fork()
    if reader == 0:
        signal.alarm(60)
        os.sched_setaffinity(0, {cores[-1]})
        status = 1
        try:
            read_frames(way, place, size, frames, seen, times)
            status = 0
        finally:
            os._exit(status)
    os.sched_setaffinity(0, {cores[0]})
    try:
        end = end or way(place, size, True)
        for i in range(frames + 1):
            deadline = time.monotonic() + 30
            while seen[0] <= i:
                if time.monotonic() > deadline:
                    sys.exit(f"{way.__name__}: frame {i} did not come")
                rest(gap)
            if i == frames:
                break
            until = time.monotonic() + gap
            while time.monotonic() < until:
                rest(gap)
            array = end.begin()
            array[:8] = numpy.frombuffer(time.monotonic_ns().to_bytes(8, "little"), "uint8")
            end.write(array)
    finally:
        os.sched_setaffinity(0, set(cores))
    _, status = os.waitpid(reader, 0)
    if status:
        sys.exit(f"{way.__name__}: the reader failed")
    end.close()
    return statistics.median(times.tolist()) / 1e3


@contextlib.contextmanager
def redis(folder):
    """A server of this bench's own."""
    with subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", f"{folder}/redis", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL, cwd=folder,
    ) as server:
        try:
            end = time.monotonic() + 10
            while not os.path.exists(f"{folder}/redis") and time.monotonic() < end:
                time.sleep(0.01)
            yield
        finally:
            server.terminate()


def main():
    path, quick = sys.argv[1], "--quick" in sys.argv[2:]
    rounds, frames = (3, 100) if quick else (7, 300)
    others = {"queue": Queue}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if shutil.which("redis-server"):
            stack.enter_context(redis(folder))
            others["redis"] = Redis
        with contextlib.suppress(ImportError):
            import zmq  # noqa: F401

            others["zmq"] = ZeroMQ
        place = Place(path, folder)
        for size, bytes_ in SIZES.items():
            busy = [one_round(Stream, place, bytes_, frames, 5e-6) for _ in range(rounds)]
            print(json.dumps({"id": f"streams.python.busy.{size}", "unit": "us", "measured": summary(busy)}), flush=True)
            for name, way in others.items():
                pairs = [[one_round(one, place, bytes_, frames // (20 if bytes_ > 1 << 20 else 1))
                          for one in (Stream, way)] for _ in range(rounds)]
                mine, theirs = zip(*pairs)
                print(json.dumps({
                    "id": f"streams.python.{name}.{size}", "unit": "us", "measured": summary(mine),
                    "floor": summary(theirs), "ratio": summary([a / b for a, b in pairs])}), flush=True)


if __name__ == "__main__":
    main()
