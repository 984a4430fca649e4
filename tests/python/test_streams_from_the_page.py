"""A stream by docs/PROTOCOL-METHODS.md alone: stream.go reads and writes one with libgpubuf at the other end."""

import os
import pathlib
import shutil
import subprocess

import pytest

import gpubufd

from conftest import BUILD
from peer import wait_until

SOURCE = pathlib.Path(__file__).with_name("stream.go")


@pytest.fixture(scope="module")
def stream(daemon):
    """stream(words): the program, which takes a line and says one."""
    go = shutil.which("go") or shutil.which("go", path="/usr/lib/go/bin:/usr/local/go/bin")
    if not go:
        pytest.skip("needs go, of the package golang-go")
    program, caches = BUILD / "go/stream", {"GOCACHE": str(BUILD / "go/cache"), "GOPATH": str(BUILD / "go"), "GO111MODULE": "off"}
    subprocess.run([go, "build", "-o", program, SOURCE], env={**os.environ, **caches}, timeout=600, check=True)
    started = []

    def start(*words):
        environment = {**os.environ, "GPUBUFD_SOCKET": daemon.path}
        process = subprocess.Popen([program, *map(str, words)], env=environment, text=True, bufsize=1,
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE)  # Go's println() writes there
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stderr.close()


def ask(process, line):
    process.stdin.write(f"{line}\n")
    return [int(word) for word in process.stderr.readline().split()]


def readers(daemon):
    with daemon.connect() as peer:
        return peer.call("stat", name="go")["object"]["stream"]["readers"]


def publish(writer, value):
    with writer.next(timeout=10) as frame:
        frame.array[:] = value


def test_it_reads(daemon, client, stream):
    """Every frame, as long as it keeps up; then it misses the oldest. A held frame does not change."""
    with client.stream("go", "uint8", (100000,), slots=8, device="host") as writer:
        reader, newest = stream("read", "go", 4), stream("read", "go", 0)
        wait_until(lambda: readers(daemon) == 2)
        publish(writer, 1)
        assert ask(reader, "take") == [1, 0, 1, 100000]
        for value in range(2, 30):
            publish(writer, value)
        assert ask(reader, "done") == [1, 1]
        assert ask(newest, "take")[:3:2] == [29, 29] and ask(newest, "done") == [29, 29]
        first, missed, *_ = ask(reader, "take")
        assert first <= 26 and missed == first - 2, "the four newest are kept for it"
        assert ask(reader, "done") == [first, first]
        for value in range(first + 1, 30):
            assert ask(reader, "take") == [value, 0, value, 100000]
            assert ask(reader, "done") == [value, value]
        reader.stdin.write("take\n")  # it sleeps
        newest.stdin.write("take\n")
        publish(writer, 30)
        assert reader.stderr.readline().split() == newest.stderr.readline().split() == ["30", "0", "30", "100000"]
        assert ask(reader, "done") == [30, 30]
        reader.stdin.write("take\n")
    assert reader.wait(60) == 0, "the writer has ended, and so does its reader"
    newest.kill()


def test_it_writes(client, stream):
    """Frames for libgpubuf's readers, one that is behind among them, until it is killed; another writer takes over."""
    writer = stream("write", "go", 8, 100000)
    assert ask(writer, 1) == [1]
    with client.read("go", each=True, lag=4) as each, client.read("go") as newest:
        with each.read(timeout=10) as frame:
            assert (frame.array == 1).all(), "the newest frame that there was"
        held = newest.read(timeout=10)
        for value in range(2, 31):
            assert ask(writer, value) == [value]
        assert (held.array == 1).all(), "it changed while it was held"
        held.done()
        with newest.read(timeout=10) as frame:
            assert (frame.array == 30).all() and frame.missed == 28
        with each.read(timeout=10) as frame:
            first = int(frame.array[0])
            assert first <= 27 and frame.missed == first - 2, "the four newest are kept for it"
        for value in range(first + 1, 31):
            with each.read(timeout=10) as frame:
                assert (frame.array == value).all() and frame.missed == 0
        writer.kill()
        with pytest.raises(gpubufd.Unavailable):
            each.read(timeout=60)
        with client.stream("go", "uint8", (100000,), slots=8) as another:
            publish(another, 7)
            with each.read(timeout=60) as frame:
                assert (frame.array == 7).all() and frame.missed == 0
