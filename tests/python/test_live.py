"""Live memory from Python: written while it is read, claimed, taken over."""

import gc
import signal

import pytest

import gpubufd

HOLDS = """
import gpubufd, signal
client = gpubufd.connect()
memory = client.claim("pool", timeout=60)
array = memory.to_numpy()
array[:] = memory.generation
print(memory.generation, flush=True)
signal.pause()
"""


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


KINDS = {
    "bytes": lambda np: b"some bytes",
    "array": lambda np: np.arange(12.0).reshape(3, 4),
    "empty": lambda np: np.zeros((0, 4)),
    "scalar": lambda np: np.float32(4.5),
    "masked": lambda np: np.ma.masked_array(np.arange(100), np.arange(100) % 3 == 0),
    "text": lambda np: ["a", None, "Linz", ""],
    "lists": lambda np: [[1, 2], None, [], [3]],
    "structs": lambda np: [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}],
    "table": lambda np: {"x": np.arange(4), "y": [None, 1.5, 2.5, None], "z": ["p", "q", None, "rr"]},
}


def test_edit(client, np):
    """The next version is the last one, whatever its kind, where nothing was changed; readers keep what they have."""
    for name, make in KINDS.items():
        client.put(name, make(np), mode=0o640, evict="keep", ttl="1h", keep=2, own=name == "table")
        before, info = client.get(name), client.stat(name)
        with client.edit(name) as copy:
            assert copy.version == 0 and copy.kind == before.kind
        after, told = client.get(name), client.stat(name)
        assert after.version > before.version
        assert bytes(after) == bytes(before) if name == "bytes" else after.tolist() == before.tolist(), name
        assert (told.mode, told.evict, told.ttl, told.keep) == (info.mode, info.evict, info.ttl, info.keep)
        client.get(name, version=before.version).release()
    assert client.call("stat", {"name": "table"})["object"]["own"]


def test_edit_changes(client, np):
    client.put("array", np.arange(12.0).reshape(3, 4), label="first", keep=1)
    before = client.get("array")
    with client.edit("array") as array:
        array.to_numpy()[1] = 7
    assert before.to_numpy()[1].tolist() == [4, 5, 6, 7] and client.get("array").to_numpy()[1].tolist() == [7] * 4
    assert client.stat("array").label is None
    with client.edit("array", label="first") as array:
        assert array.to_numpy()[1].tolist() == [4, 5, 6, 7]
    with client.edit("array", timeout=60) as array:
        array.write(np.ones(2), offset=10)
    assert client.get("array").to_numpy()[2].tolist() == [8, 9, 1, 1]
    client.put("table", {"x": np.arange(4), "y": [None, 1.5, 2.5, 3.5]})
    with client.edit("table") as table:
        table["x"].to_numpy()[2] = 9
        np.frombuffer(table["y"].buffers.validity.bits, "u1")[0] = 0b1011
    table = client.get("table")
    assert table["x"].tolist() == [0, 1, 9, 3] and table["y"].tolist()[1:] == [1.5, None, 3.5]
    assert table["y"].null_count == 1


def test_edit_bundle(client, np):
    client.put_bundle("model", {"a": np.arange(5.0), "b": np.ones((3, 3), "f4")}, {"step": "1"})
    with client.edit("model") as bundle:
        bundle["a"].to_numpy()[0] = 7
    after = client.get("model")
    assert after["a"].tolist() == [7, 1, 2, 3, 4] and after["b"].tolist() == [[1] * 3] * 3
    assert after.metadata == {"step": "1"}


def test_edit_of_slices(client, np):
    """Of an alias of a part: what the part has, also where its mask begins within a byte."""
    client.put("masked", np.ma.masked_array(np.arange(100), np.arange(100) % 3 == 0))
    client.put("table", {"x": np.arange(100), "z": [None if i % 7 == 0 else str(i) for i in range(100)]})
    with client.create("array", "int64", (100, 3), nulls=True) as array:
        array.write(np.arange(300).reshape(100, 3))
        np.frombuffer(array.buffers.validity.bits, "u1")[:38] = np.arange(38) * 7 % 256
    for of in "masked", "table", "array":
        client.alias("part", of, rows=slice(13, 50), replace=True)
        before = client.get("part").tolist()
        client.edit("part").__exit__()
        assert client.get("part").tolist() == before and len(before) == 37


def test_edit_on_a_gpu(gpu_run):
    gpu_run("""
        client.put("array", np.arange(1000.0), device="cuda:0", mode=0o640)
        client.put("table", {"x": np.arange(4), "z": [None, "p", "qq", None]}, device="cuda:0")
        client.put_bundle("model", {"a": np.arange(5.0)}, device="cuda:0")
        client.put("masked", np.ma.masked_array(np.arange(100), np.arange(100) % 3 == 0), device="cuda:0")
        client.alias("part", "masked", rows=slice(13, 50))
        with client.edit("array") as array:
            array.write(np.ones(3), offset=1)
        for name in "table", "model", "part":
            before = client.get(name)
            with client.edit(name) as copy:
                assert copy.device == before.device != "host"
            after = client.get(name)
            assert after.version > before.version
            before, after = ((one["a"] if name == "model" else one).to_host() for one in (before, after))
            assert after.tolist() == before.tolist(), name
        assert client.get("array").copy_to_host()[:5].tolist() == [0, 1, 1, 1, 4]
        assert client.stat("array").mode == 0o640
    """)


def test_edit_that_fails(client, np):
    """Nothing is left of it."""
    client.put("array", np.arange(3))
    gc.collect()
    version, used = client.stat("array").version, client.call("stats")["devices"]
    with pytest.raises(ZeroDivisionError), client.edit("array") as array:
        array.to_numpy()[0] = 1 / 0
    del array
    gc.collect()
    assert client.stat("array").version == version and client.get("array").tolist() == [0, 1, 2]
    assert [one["used"] for one in client.call("stats")["devices"]] == [one["used"] for one in used]
    with pytest.raises(gpubufd.NotFound):
        client.edit("none")
    with pytest.raises(gpubufd.Timeout):
        client.edit("none", timeout=0.01)
    client.create("pool", "int64", 10, live=True).release()
    with pytest.raises(gpubufd.Unsupported, match="is live, and has no next version"):
        client.edit("pool")


# RELIABILITY.md: The daemon ends 11
def test_child_of_fork(daemon, client, begin):
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
    writer = begin(daemon.path, code)
    assert writer.stdout.readline() == f"{int(signal.SIGSEGV)} 1\n"
    writer.kill()
    client.claim("pool", timeout=60).release()


CONNECTS_ANEW = """
import gpubufd, gc, mmap, os
client = gpubufd.connect()
memory = client.create("pool", "int64", 10, live=True)
array = memory.to_numpy()
array[:] = 0
if os.fork() == 0:
    mine = os.fork() == 0
    others = [mmap.mmap(-1, 1 << 20) for _ in range(8)]  # some where the parent's memory was
    if mine:
        del array, memory  # what it never had is not unmapped
        gc.collect()
    with gpubufd.connect() as own, own.open("pool", write=True) as pool:
        pool.to_numpy()[int(mine)] = 7
    os._exit(any(one[:] != bytes(len(one)) for one in others))
while (array[:2] != 7).any():
    pass
print(array.tolist())
"""


def test_child_connects_anew(daemon, client, begin):
    """A child of fork that connects anew opens the same memory, and does not take its parent's addresses for its own."""
    child = begin(daemon.path, CONNECTS_ANEW)
    assert child.stdout.readline() == f"{[7, 7] + [0] * 8}\n"
    assert child.wait() == 0
