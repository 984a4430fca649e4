"""Live memory from Python: written while it is read, claimed, taken over; and it outlives the daemon."""

import asyncio
import gc
import os
import signal
import subprocess
import sys

import conftest
import pytest

import gpubufd
import gpubufd.aio

HOLDS = """
import gpubufd, signal
client = gpubufd.connect()
memory = client.claim("pool", timeout=60)
array = memory.to_numpy()
array[:] = memory.generation
print(memory.generation, flush=True)
signal.pause()
"""


def program(path, code=HOLDS):
    env = dict(os.environ, GPUBUFD_SOCKET=path, PYTHONPATH=str(conftest.PACKAGE))
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)


def test_written_while_it_is_read(client, np):
    """Readers see what writers write, and cannot write it."""
    made = client.create("pool", "float64", 1000, live=True)
    assert made.live and made.version and made.to_numpy().flags.writeable
    reader = client.get("pool").to_numpy()
    assert not reader.flags.writeable
    made.to_numpy()[:] = 7
    assert (reader == 7).all()
    with client.open("pool", write=True) as other:
        other.write(np.arange(3.0), offset=1)
    assert reader[:4].tolist() == [7, 0, 1, 2]
    with pytest.raises(gpubufd.Busy):
        made.seal()
    made.release()


def test_tables(client):
    with client.create("table", {"x": "int64", "y": "float32"}, 100, live=True) as table:
        table["x"].to_numpy()[:] = 3
        assert client.get("table")["x"].to_numpy().sum() == 300


def test_claims(client):
    client.create("pool", "int64", 10, live=True).release()
    with client.claim("pool") as memory:
        assert memory.generation == 1
        with pytest.raises(gpubufd.Busy, match="is claimed by session"):
            client.claim("pool")
        with pytest.raises(gpubufd.Timeout, match="is claimed"):
            client.open("pool", write=True, timeout=0.01)
    assert client.claim("pool").generation == 2
    gc.collect()
    assert client.get("pool").generation == 0


def test_what_arrays_hold(client, np):
    """A claim lasts as long as an array of its memory does."""
    client.create("pool", "int64", 10, live=True).release()
    with client.claim("pool") as memory:
        array = memory.to_numpy()
    with pytest.raises(gpubufd.Busy):
        client.claim("pool")
    del array, memory
    gc.collect()
    client.claim("pool", timeout=60).release()


def test_not_live(client):
    client.put("sealed", b"x")
    with pytest.raises(gpubufd.Unsupported, match="never changes"):
        client.open("sealed", write=True)
    with pytest.raises(gpubufd.Invalid, match="goes without live"):
        client.create("x", "int64", 1, live=True, label="a")


def test_edit(client, np):
    """The next version is the last one, changed; readers keep what they have."""
    client.put("array", np.arange(12.0).reshape(3, 4), mode=0o640)
    client.put("table", {"x": np.arange(4), "y": np.arange(4, dtype="f4")})
    before = client.get("array")
    with client.edit("array") as array:
        array.to_numpy()[1] = 7
    after = client.get("array")
    assert after.version > before.version and client.stat("array").mode == 0o640
    assert before.to_numpy()[1].tolist() == [4, 5, 6, 7] and after.to_numpy()[1].tolist() == [7] * 4
    assert after.to_numpy()[0].tolist() == [0, 1, 2, 3]
    with client.edit("table") as table:
        table["y"].to_numpy()[2] = 9
    assert client.get("table")["y"].tolist() == [0, 1, 9, 3] and client.get("table")["x"].tolist() == [0, 1, 2, 3]


def test_edit_that_fails(client, np):
    """Nothing is left of it."""
    client.put("array", np.arange(3))
    version = client.stat("array").version
    with pytest.raises(ZeroDivisionError), client.edit("array") as array:
        array.to_numpy()[0] = 1 / 0
    assert client.stat("array").version == version and client.get("array").tolist() == [0, 1, 2]
    client.put("text", ["a", None])
    with pytest.raises(gpubufd.Unsupported, match="no array or table of numbers"):
        client.edit("text")
    with pytest.raises(gpubufd.NotFound):
        client.edit("none")


def test_asyncio(daemon):
    async def work():
        async with await gpubufd.aio.connect(daemon.path) as client:
            (await client.create("pool", "int64", 10, live=True)).release()
            with await client.claim("pool", timeout=60) as memory:
                memory.to_numpy()[:] = 1
                return memory.generation

    assert asyncio.run(work()) == 1
    with gpubufd.connect(daemon.path) as client:
        client.delete("pool")


def test_killed(daemon, client):
    """The next claim is there as soon as the process is over."""
    client.create("pool", "int64", 10, live=True).release()
    reader = client.get("pool")
    for generation in range(1, 6, 2):
        writer = program(daemon.path)
        assert writer.stdout.readline() == f"{generation}\n"
        assert reader.tolist() == [generation] * 10
        writer.kill()
        with client.claim("pool", timeout=60) as memory:
            assert memory.generation == generation + 1
        writer.wait()
        writer.stdout.close()


def test_child_of_fork(daemon, client):
    """A child does not have the memory, nor the connection: its parent's end is the end of the claim."""
    client.create("pool", "int64", 10, live=True).release()
    code = HOLDS.replace("print(", """
import os, sys
if os.fork() == 0:
    if os.fork() == 0:  # lives longer than the writer, and a while
        os.close(1)
        signal.alarm(5)
        signal.pause()
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # not a sanitizer's word for it
    try:
        array[0] = 1
    finally:
        os._exit(0)
print(os.wait()[1] & 127, end=" ")
print(""")
    writer = program(daemon.path, code)
    assert writer.stdout.readline() == f"{int(signal.SIGSEGV)} 1\n"
    writer.kill()
    client.claim("pool", timeout=60).release()
    writer.wait()
    writer.stdout.close()


def crash(daemon):
    """kill -9 of the daemon below its supervisor, which starts another."""
    pid = daemon.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        for child in file.read().split():
            with open(f"/proc/{child}/comm") as comm:
                if comm.read() == "gpubufd\n":
                    os.kill(int(child), signal.SIGKILL)


@pytest.fixture
def supervised(tmp_path):
    one = conftest.Daemon(str(tmp_path), ["--supervise"], device="host:64M")
    yield one
    gc.collect()
    crash(one)
    one.kill()


def test_daemon_dies(supervised, np):
    """The writer goes on, and has its claim again when it is connected anew."""
    client = gpubufd.connect(supervised.path)
    client.create("pool", "int64", 10, live=True).release()
    memory = client.claim("pool")
    array = memory.to_numpy()
    crash(supervised)
    array[:] = 5
    assert client.get("pool").tolist() == [5] * 10
    assert not memory.stale and array.flags.writeable
    other = gpubufd.connect(supervised.path)
    with pytest.raises(gpubufd.Timeout, match="is claimed"):
        other.claim("pool", timeout=0.05)
    del array
    memory.release()
    with other.claim("pool", timeout=60) as after:
        assert after.generation == 2
    client.close()
    other.close()
