"""Streams: frames in place, from a writer to readers, for loops of both kinds."""

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
import time

import numpy
import pytest

import gpubufd
import gpubufd.aio
from conftest import BUILD
from peer import wait_until


@pytest.fixture
def writer(client):
    with client.stream("cam0", "int32", (4, 5), slots=12, device="host") as one:
        yield one
    client.delete("cam0")


def publish(writer, value):
    with writer.next() as frame:
        frame.array[:] = value
    return frame.number


def test_newest(client, writer):
    reader = client.read("cam0")
    assert (reader.dtype, reader.shape) == ("int32", (4, 5))
    with pytest.raises(gpubufd.Timeout):
        reader.read(timeout=0.001)
    for value in range(3):
        number = publish(writer, value)
    with reader.read() as frame:
        assert frame.number == number and frame.time_ns > 0 and frame.bytes == 80
        assert not frame.array.flags.writeable and numpy.asarray(frame).tolist() == [[2] * 5] * 4
        for value in range(20):
            publish(writer, value)
        assert (frame.array == 2).all(), "it changed while it was held"
        with pytest.raises(gpubufd.Busy):
            reader.read()
    assert reader.read(timeout=10).missed == 19
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read()


def test_what_raises_is_not_published(client, writer):
    reader = client.read("cam0")
    with pytest.raises(ZeroDivisionError), writer.next() as frame:
        frame.array[:] = 1 / 0
    with pytest.raises(gpubufd.Error):
        reader.read(timeout=0)
    frame = writer.next()
    frame.array[:] = 7
    frame.publish(bytes=40)
    assert reader.read(timeout=10).bytes == 40
    reader.close()


def test_frames_of_one_number(client):
    with client.stream("one", "uint8", slots=3, device="host") as writer, client.read("one") as reader:
        with writer.next() as frame:
            frame.array[...] = 7
        with reader.read(timeout=10) as frame:
            assert frame.array.shape == () and frame.array == 7 and frame.bytes == 1
    client.delete("one")


def each(reader, found, ready):
    for frame in reader:
        found.append(int(frame.array[0, 0]))
        assert (frame.array == found[-1]).all()
        ready.set()


def test_each(client, writer):
    """The loop ends with the writer."""
    reader, found, ready = client.read("cam0", each=True, waits=True, lag=4), [], threading.Event()
    thread = threading.Thread(target=each, args=(reader, found, ready))
    thread.start()
    for value in range(500):
        with writer.next(timeout=None) as frame:
            frame.array[:] = value
    writer.close()
    thread.join()
    assert found == list(range(500))
    reader.close()


def test_asyncio(daemon, writer):
    async def follow():
        async with await gpubufd.aio.connect(daemon.path) as other:
            reader, found = await other.read("cam0", each=True), []
            publish(writer, 5)
            writer.close()
            async for frame in reader:
                found.append(int(frame.array.sum()))
            reader.close()
        return found

    assert asyncio.run(follow()) == [100]


def test_dlpack(client, writer):
    """As an Array has it: marked as read-only for those that ask for a version with that mark."""
    publish(writer, 3)
    with client.read("cam0") as reader, reader.read(timeout=10) as frame:
        assert frame.__dlpack_device__() == (1, 0)
        array = numpy.from_dlpack(frame)
        assert array.shape == (4, 5) and (array == 3).all()
        assert '"dltensor"' in repr(frame.__dlpack__())
        assert '"dltensor_versioned"' in repr(frame.__dlpack__(max_version=(1, 0)))


def test_torch(client, writer):
    torch = pytest.importorskip("torch")
    reader = client.read("cam0")
    publish(writer, 3)
    with reader.read(timeout=10) as frame:
        assert isinstance(frame.to_torch(), torch.Tensor) and frame.to_torch().sum() == 60
    reader.close()


def test_gpu(gpu_run):
    gpu_run(
        """
        class Copied:
            def __init__(self, frame):
                self.frame = frame
            def __dlpack_device__(self):
                return (1, 0)
            def __dlpack__(self, stream=None):
                return self.frame.__dlpack__(dl_device=(1, 0), copy=True)
        stream = cuda.Stream()
        with client.stream("cam0", "int32", (4, 5), device="cuda:0") as writer:
            reader, ahead = client.read("cam0"), client.read("cam0", ahead=True, hold=2)
            frame = writer.next()
            interface = frame.__cuda_array_interface__
            assert interface["shape"] == (4, 5) and not interface["data"][1]
            values, out = np.arange(20, dtype="i4").reshape(4, 5), np.empty((4, 5), "i4")
            cuda.copy(frame, values, stream=stream)
            frame.publish(stream=stream)
            with reader.read(timeout=60) as one:
                interface = one.__cuda_array_interface__
                assert interface["shape"] == (4, 5) and interface["data"][1]
                assert one.__dlpack_device__() == (2, 0) and one.__dlpack__(stream=1)
                assert (np.from_dlpack(Copied(one)) == values).all()
                cuda.copy(out, one)
                assert (out == values).all()
            other = ahead.read(timeout=60)
            other.wait(stream=stream)
            other.done(stream=stream)
            stream.synchronize()
            for _ in range(20):
                with writer.next() as frame:
                    pass
                ahead.read(timeout=60).done(stream=stream)
            reader.close()
            ahead.close()
        """
    )


def gpubufctl(daemon, *words, **options):
    command = [BUILD / "bin/gpubufctl", "--socket", daemon.path, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60, **options).stdout


def test_tail(daemon, client, writer):
    """gpubufctl tells frames as they come, and ends with the writer."""
    command = [BUILD / "bin/gpubufctl", "--socket", daemon.path, "tail", "cam0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        wait_until(lambda: json.loads(gpubufctl(daemon, "stat", "cam0", "--json"))["stream"]["readers"] == 1)
        numbers = [publish(writer, value) for value in range(3)]
        frames = [json.loads(tail.stdout.readline()) for _ in numbers]
        assert [frame["number"] for frame in frames] == numbers
        assert frames[2]["first"] == [2] * 8 and frames[2]["bytes"] == 80 and frames[2]["missed"] == 0
        frame = writer.next()
        frame.publish(bytes=8)
        assert len(json.loads(tail.stdout.readline())["first"]) == 2
        writer.close()
        assert tail.wait(60) == 0


def test_tail_in_words(daemon, client, writer):
    publish(writer, 7)
    told = gpubufctl(daemon, "tail", "cam0", "--newest", "--count", "1")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  1  80 B  7, 7, 7, 7, 7, 7, 7, 7, …\n", told), told


def test_who_takes_part(daemon, client, writer):
    """ls and why tell of the writer and of each reader, how far behind it is, and what it has missed."""
    with client.read("cam0", hold=2) as newest, client.read("cam0", each=True, lag=3) as each:
        for value in range(2):
            publish(writer, value)
        frame = newest.read(timeout=10)
        publish(writer, 2)
        stat = json.loads(gpubufctl(daemon, "stat", "cam0", "--json"))
        assert stat["stream"] == {"readers": 2, "frames": 3, "writer": os.getpid()}
        assert "stream: frame 3, 2 readers" in gpubufctl(daemon, "ls", "-l")
        leases = json.loads(gpubufctl(daemon, "call", "leases", '{"name":"cam0"}'))["leases"]
        parts = [lease["stream"] for lease in leases]
        assert {"frames": 3} in parts
        assert {"reader": 0, "hold": 2, "lag": 0, "held": 1, "frames": 1, "missed": 1} in parts
        assert {"reader": 1, "hold": 1, "lag": 3, "held": 0, "frames": 0, "missed": 0, "behind": 3} in parts
        told = " ".join(gpubufctl(daemon, "why", "cam0").split())
        assert "it writes the stream: frame 3" in told and "0 frames read, 0 missed, 0 of 1 held, 3 behind" in told
        frame.done()
    writer.close()
    wait_until(lambda: "no writer" in gpubufctl(daemon, "ls", "-l"))  # the release is not waited for


def test_examples_in_c(daemon, client):
    """examples/streams: a writer, and a reader that ends with it."""
    examples, env = BUILD / "bin/examples/streams", {**os.environ, "GPUBUFD_SOCKET": daemon.path}
    for program in ("writer", "reader"):
        said = subprocess.run([examples / program, "--help"], env=env, capture_output=True, text=True, timeout=60, check=True)
        assert said.stdout.startswith("usage:")
    with subprocess.Popen([examples / "writer", "camera", "40"], env=env) as made:
        told = subprocess.run([examples / "reader", "camera"], env=env, stdout=subprocess.PIPE, text=True, check=True,
                              timeout=60).stdout
        assert made.wait(60) == 0
    assert re.match(r"mean \d+\.\d, \d+ missed\n", told), told
    client.delete("camera")


STOPPED = """
import gpubufd
with gpubufd.connect() as client, client.read("cam0", each=True, waits=True, lag=4) as reader:
    print("ready", flush=True)
    print(*(frame.missed for frame in reader))
"""


def test_a_stopped_reader(daemon, client, writer, begin):
    """The writer waits for it once, and others read on; when it goes on, it is told what it has missed."""
    reader = begin(daemon.path, STOPPED)
    with client.read("cam0") as other:
        assert reader.stdout.readline() == "ready\n"
        publish(writer, 0)
        reader.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        for value in range(50):
            with writer.next(timeout=0.5) as frame:
                frame.array[:] = value
            with other.read(timeout=10) as frame:
                assert (frame.array == value).all()
        assert time.monotonic() - begin < 15, "it was waited for again and again"
        reader.send_signal(signal.SIGCONT)
        writer.close()
        missed = [int(word) for word in reader.stdout.read().split()]
        assert reader.wait(60) == 0
    assert sum(missed) > 0 and len(missed) + sum(missed) == 51
