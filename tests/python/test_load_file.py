"""gpubufd.numpy: safetensors files, which one process reads and all others map."""

import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import pytest

import gpubufd
import weights
from conftest import PACKAGE, environment
from gpubufd import _client, _weights
from peer import DEADLINE, wait_until

np = pytest.importorskip("numpy")

from gpubufd.numpy import DTYPES, load_file, safe_open, save_file  # noqa: E402

TENSORS = {"w": np.arange(600, dtype="f4").reshape(20, 30), "b": np.array([True, False]), "s": np.float64(2)}


@pytest.fixture
def here(client, daemon, monkeypatch):
    """The daemon is the one that is found without a client."""
    monkeypatch.setenv("GPUBUFD_SOCKET", daemon.path)
    yield client
    for key, one in list(_client._clients.items()):
        if key[1] == daemon.path:
            one.close()
            del _client._clients[key]


@pytest.fixture
def path(tmp_path):
    save_file(TENSORS, tmp_path / "m.safetensors", {"format": "np"})
    return tmp_path / "m.safetensors"


def puts(client):
    """The number of objects made so far."""
    return client.stats()["methods"]["create"]["calls"]


def same(found, expected=TENSORS):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


# ---- files ----


def test_a_file_is_loaded_once(here, path):
    before = puts(here)
    first = load_file(path)
    again = load_file(str(path))
    same(first)
    same(again)
    assert puts(here) == before + 1 and len(here) == 1
    assert not first["w"].flags.writeable and type(first) is dict
    (name,) = here.keys()
    assert name.startswith("safetensors/m.safetensors-") and here[name].metadata == {"format": "np"}


def test_arrays_stay_when_all_else_goes(here, path):
    w = load_file(path)["w"]
    here.delete(*here.keys())
    gc.collect()
    assert np.array_equal(w, TENSORS["w"])


def test_private_copies(here, path):
    found = load_file(path, writable="copy")
    found["w"][0] = 7
    same(load_file(path))
    with pytest.raises(ValueError, match='writable is "copy"'):
        load_file(path, writable=True)


def test_a_changed_file_is_another(here, path):
    load_file(path)
    save_file({"w": np.ones(3)}, path)
    same(load_file(path), {"w": np.ones(3)})
    os.utime(path, ns=(1, 1))
    load_file(path)
    assert len(here) == 3


@pytest.mark.parametrize("name", [
    pytest.param("a\nb \x01", id="control"), pytest.param("ü" * 120, id="long"),
    pytest.param("\udcff\udcfe", id="no UTF-8"), pytest.param("-", id="dash"), pytest.param("x" * 255, id="longest")])
def test_odd_names_of_files(here, path, tmp_path, name):
    os.rename(path, tmp_path / name)
    same(load_file(tmp_path / name))
    os.symlink(tmp_path / name, tmp_path / "link")
    same(load_file(tmp_path / "link"))
    same(load_file(os.fsencode(tmp_path / name)))
    assert len(here) == 1


def test_names_clients_and_options(here, path, tmp_path):
    same(load_file(path, name="llama", client=here, ttl=60, mode=0o644))
    info = here.stat("llama")
    assert info.ttl == 60 and info.mode == 0o644
    save_file({"x": np.ones(2)}, tmp_path / "other.safetensors")
    same(load_file(tmp_path / "other.safetensors", name="llama", client=here))  # the name decides
    here.put("bytes", b"abc")
    with pytest.raises(TypeError, match="'bytes' is a Bytes, no bundle"):
        load_file(path, name="bytes", client=here)


def test_safe_open(here, path):
    with safe_open(path, framework="np") as f:
        assert f.keys() == ["b", "s", "w"] and sorted(f.offset_keys()) == f.keys()
        assert f.metadata() == {"format": "np"}
        w, part = f.get_tensor("w"), f.get_slice("w")
        assert part.get_shape() == [20, 30] and part.get_dtype() == "F32" and f.get_slice("b").get_dtype() == "BOOL"
        cut = part[2:4, 5]
        assert cut.base is not None and not cut.flags.writeable
        same(f.get_tensors())
        assert f.get_tensor_meta("s") == ("F64", [], (2400, 2408))
        for name in ("x", "w\0"):
            for get in (f.get_tensor, f.get_slice, f.get_tensor_meta):
                with pytest.raises(KeyError, match=f"{path} has no tensor .* among its 3: ") as caught:
                    get(name)
                assert isinstance(caught.value, gpubufd.numpy.SafetensorError)
    assert np.array_equal(w, TENSORS["w"]) and np.array_equal(cut, TENSORS["w"][2:4, 5])
    with safe_open(path, "numpy", "cpu", writable="copy") as f:
        f.get_slice("w")[0][:] = 1
        f.get_tensor("w")[:] = 1
    same(load_file(path, backend="pread"))
    with pytest.raises(ValueError, match='backend is "mmap" or "pread"'):
        load_file(path, backend="gds")
    with pytest.raises(ValueError, match='framework is "np"'):
        safe_open(path, framework="pt")


def test_a_file_without_metadata(here, tmp_path):
    save_file({"a": np.zeros(2)}, tmp_path / "m")
    with safe_open(tmp_path / "m") as f:
        assert f.metadata() is None
    header = b'{"__metadata__":{},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "empty").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    with safe_open(tmp_path / "empty") as f:
        assert f.metadata() == {}
    (tmp_path / "wrong").write_bytes(b"x")
    with pytest.raises(gpubufd.numpy.SafetensorError, match="is no safetensors file"):
        load_file(tmp_path / "wrong")


def test_saving(here, tmp_path):
    tensors = {"t": np.arange(12).reshape(3, 4).T, "e": np.zeros((0, 2)), "ü/": np.ones(3, "i1"), "v": b"abc"}
    target = tmp_path / "m.safetensors"
    target.write_bytes(b"before")
    save_file(tensors, target, metadata={"a": "b"})
    found, metadata = weights.read(target.read_bytes())
    assert metadata == {"a": "b"} and found["t"] == ("I64", (4, 3), np.arange(12).reshape(3, 4).T.tobytes())
    assert found["v"] == ("U8", (3,), b"abc") and found["e"][1] == (0, 2)
    before = target.read_bytes()
    with pytest.raises(TypeError, match="tensor 'x'"):
        save_file({"x": np.array(["a"])}, target)
    assert target.read_bytes() == before and os.listdir(tmp_path) == ["m.safetensors"]
    with pytest.raises(FileNotFoundError):
        save_file(tensors, tmp_path / "no" / "where")
    save_file(tensors, os.fsencode(tmp_path / ("ü" * 127)))
    (tmp_path / "link").symlink_to("m.safetensors")
    save_file({}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and weights.read(target.read_bytes()) == ({}, {})


def test_a_bundle_is_saved_as_it_is(here, tmp_path):
    data = weights.make(weights.EVERY, {"a": "b"}, pad=3)
    (tmp_path / "m").write_bytes(data)
    bundle = _weights.load(tmp_path / "m", client=here, device="host")
    save_file(bundle, tmp_path / "n")
    assert (tmp_path / "n").read_bytes() == data


def test_a_tensor_at_an_odd_place_is_an_array(here, tmp_path):
    """Other writers may place a tensor at no multiple of its elements' size. It is a copy, which lives on its own, and has
    all that an Array has."""
    values = np.arange(5, dtype="f8")
    half = (np.arange(3, dtype="f4").view("u4") >> 16).astype("u2")  # as bfloat16
    (tmp_path / "m").write_bytes(weights.make({
        "a": ("U8", (3,), b"abc"), "x": ("F64", (5,), values.tobytes()), "h": ("BF16", (3,), half.tobytes()),
        "b": ("U8", (1,), b"d"), "y": ("F64", (5,), values.tobytes())}))
    bundle = _weights.load(tmp_path / "m", client=here, device="host")
    assert bundle.to_host() is bundle
    for name in ("x", "y"):  # at least one of them lies at an odd place
        tensor = bundle[name]
        part = tensor[2:]
        assert tensor.tolist() == values.tolist() and tensor.dtype == "float64" and tensor.shape == (5,)
        assert tensor.to_numpy().ctypes.data % 8 == 0 and not tensor.to_numpy().flags.writeable
        array = tensor.to_numpy()
        again = np.from_dlpack(part)
        here.put("again", tensor, replace=True)
        tensor.release()
        assert array.tolist() == values.tolist() and again.tolist() == part.tolist() == values[2:].tolist()
        assert here["again"].tolist() == values.tolist()
    with safe_open(tmp_path / "m") as f, safe_open(tmp_path / "m", writable="copy") as own:
        own.get_tensor("x")[0] = 9
        assert f.get_tensor("x").tolist() == values.tolist() and not f.get_tensor("x").flags.writeable
    assert dict(bundle)["h"].tolist() == [0, 1, 2]
    assert bytes(bundle["h"]._view()) == half.tobytes()
    if importlib.util.find_spec("ml_dtypes"):
        assert load_file(tmp_path / "m")["h"].tolist() == [0, 1, 2]
    else:  # as if it were aligned
        with pytest.raises(TypeError, match="install ml_dtypes"):
            load_file(tmp_path / "m")


def test_twenty_thousand(here, tmp_path):
    (tmp_path / "m").write_bytes(weights.make({f"l.{i}.weight": ("F32", (2, 2), b"%016d" % i) for i in range(20000)}))
    found = load_file(tmp_path / "m")
    assert len(found) == 20000 and all(found[f"l.{i}.weight"].tobytes() == b"%016d" % i for i in range(20000))


def test_every_dtype(here, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(weights.make(weights.EVERY, {"a": "b"}))
    bundle = _weights.load(path, client=here, device="host")
    found, _ = weights.read(path.read_bytes())
    names = {}
    for name, (dtype, shape, data) in found.items():
        names[dtype] = bundle.dtypes[name]
        assert bundle.shapes[name] == shape
        tensor = bundle[name]
        assert tensor.shape == shape and bytes(tensor._view()) == data
    assert {ours: theirs for theirs, ours in names.items()} == DTYPES


# ---- files that are none ----


@pytest.mark.parametrize("what", [what for what, _ in weights.lies()])
def test_lies(here, tmp_path, what):
    (tmp_path / "m").write_bytes(dict(weights.lies())[what])
    before = puts(here)
    with pytest.raises(ValueError, match=f"{tmp_path}/m: is no safetensors file: "):
        load_file(tmp_path / "m")
    assert puts(here) == before and len(here) == 0


def test_files_that_are_not_there(here, tmp_path):
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "m")
    with pytest.raises(IsADirectoryError):
        load_file(tmp_path)


@pytest.mark.parametrize("change", [-1, 4096])
def test_a_file_that_changes_while_it_is_read(here, path, monkeypatch, change):
    fill = _weights.File.fill

    def changed_first(file, made):
        os.truncate(path, os.path.getsize(path) + change)
        fill(file, made)

    monkeypatch.setattr(_weights.File, "fill", changed_first)
    with pytest.raises(ValueError, match="was (changed|cut short) while it was read"):
        load_file(path)
    assert len(here) == 0
    monkeypatch.undo()
    wait_until(lambda: here.stats()["objects"] == 0)


def test_no_daemon(path, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUBUFD_SOCKET", str(tmp_path / "nobody"))
    with pytest.raises(ConnectionError):
        load_file(path)


# ---- several at once ----


LOAD = """
    import sys, zlib
    from gpubufd.numpy import load_file
    print("ready", flush=True)
    sys.stdin.readline()
    found = load_file(sys.argv[1])
    print(zlib.crc32(b"".join(found[name].tobytes() for name in sorted(found))), flush=True)
    sys.stdin.readline()
"""


def test_four_race_and_one_publishes(here, daemon, begin, tmp_path):
    path = tmp_path / "m"
    save_file({f"w{i}": np.random.default_rng(i).random(100_000) for i in range(20)}, path)  # 16 MB
    before = puts(here)
    loaders = [begin(daemon.path, LOAD, path) for _ in range(4)]
    for one in loaders:
        assert one.stdout.readline() == "ready\n"
    for one in loaders:
        one.stdin.write("\n")
        one.stdin.flush()
    found = {one.stdout.readline() for one in loaders}
    assert len(found) == 1 and found.pop().strip().isdigit()
    (name,) = here.keys()
    assert puts(here) == before + 1
    assert sum(one["name"] == name for one in here.leases()) >= 4  # all of them hold that one
    for one in loaders:
        one.communicate("\n", DEADLINE)
        assert one.returncode == 0


def test_threads_race_and_one_publishes(here, path):
    before, found = puts(here), []
    threads = [threading.Thread(target=lambda: found.append(load_file(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(found) == 8 and puts(here) == before + 1
    for one in found:
        same(one)


HANG = """
    import sys
    from gpubufd import _weights
    from gpubufd.numpy import load_file

    write = _weights.File.fill

    def fill(file, made):
        print("reading", flush=True)
        sys.stdin.readline()
        write(file, made)

    _weights.File.fill = fill
    load_file(sys.argv[1])
    print("done", flush=True)
"""


def waiters(path):
    """How many processes wait for a lock on the file."""
    number = os.stat(path).st_ino
    with open("/proc/locks", encoding="ascii") as locks:
        return sum("->" in line and f":{number} " in line for line in locks)


@pytest.mark.parametrize("killed", [True, False])
def test_a_loader_that_ends_in_the_middle_blocks_nobody(here, daemon, begin, path, killed):
    before = puts(here)
    first = begin(daemon.path, HANG, path)
    assert first.stdout.readline() == "reading\n"
    second = begin(daemon.path, LOAD, path)
    assert second.stdout.readline() == "ready\n"
    second.stdin.write("\n")
    second.stdin.flush()
    wait_until(lambda: waiters(path) == 1)
    assert len(here) == 0
    if killed:
        first.kill()
        first.wait(DEADLINE)
    else:
        first.communicate("\n", DEADLINE)
    assert second.stdout.readline().strip().isdigit() and len(here) == 1
    assert puts(here) == before + (2 if killed else 1)
    second.communicate("\n", DEADLINE)
    same(load_file(path))


def test_a_file_system_without_locks(here, path, monkeypatch):
    """It may be read twice then; who comes second takes what there is."""
    def no_locks(*arguments):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(_weights.fcntl, "flock", no_locks)
    fill = _weights.File.fill

    def beaten(file, made):
        monkeypatch.setattr(_weights.File, "fill", fill)
        load_file(path)
        fill(file, made)

    monkeypatch.setattr(_weights.File, "fill", beaten)
    same(load_file(path))
    assert len(here) == 1


def test_a_name_that_a_stranger_has_taken(here, path, daemon):
    """The name can be guessed, so what another user has put there is not taken for the file's content."""
    if os.getuid() != 0:
        pytest.skip("needs root, to be another user")
    load_file(path)
    (name,) = here.keys()
    here.delete(name)
    os.chmod(daemon.path, 0o666)
    directory = os.path.dirname(daemon.path)
    os.chmod(directory, 0o711)
    code = f"import os, gpubufd.numpy; os.setuid(1001); c = gpubufd.connect({daemon.path!r}); "
    code += f"c.put_bundle({name!r}, {{}}, mode=0o644)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=DEADLINE)
    with pytest.raises(PermissionError, match="published by user 1001"):
        load_file(path)
    here.delete(name)
    same(load_file(path))


def test_onto_a_gpu(gpu_run, tmp_path):
    path = tmp_path / "m"
    save_file({"w": np.arange(3_000_000, dtype="f4"), "b": np.ones((2, 3), "f2")}, path)
    gpu_run("""
        import os
        from gpubufd import _weights
        from gpubufd.numpy import load_file, safe_open, save_file
        path = os.environ["FILE"]
        bundle = _weights.load(path, device="cuda:0")
        assert bundle._ordinal == 0 and bundle["w"][1000:1003].copy_to_host().tolist() == [1000, 1001, 1002]
        with client.get(bundle.name):
            client.delete(bundle.name)
        late = load_file(path, device="cuda:0", wait=False)
        assert np.array_equal(late["w"], np.arange(3_000_000)) and late["b"].shape == (2, 3)
        late.wait()
        client.put("pinned", np.arange(100_000), device="host")
        held = client.get("pinned")
        assert held.pin_memory() is held and held[10:].pin_memory()[0] == 10
        there = cuda.to_device(held.to_numpy(), stream=(stream := cuda.Stream()))
        stream.synchronize()
        assert there.copy_to_host()[-1] == 99_999
        assert "is on a GPU" in raises(ValueError, client.get(bundle.name).pin_memory)
        found = load_file(path, device="cuda:0")
        assert np.array_equal(found["w"], np.arange(3_000_000)) and found["b"].shape == (2, 3)
        with safe_open(path, "np", "cuda:0") as f:
            assert f.get_slice("w")[7:9].tolist() == [7, 8]
        save_file(bundle, path + "2")
        assert open(path, "rb").read() == open(path + "2", "rb").read()
        save_file(dict(bundle), path + "3")
        assert np.array_equal(load_file(path + "3")["w"], found["w"])
    """, FILE=str(path))


# ---- an index of shards ----


@pytest.fixture
def index(tmp_path):
    """Two shards, one of whose tensors begins at no multiple of its elements' size there."""
    odd = {"o": ("U8", (1,), b"x"), "w": ("F32", (2, 3), np.arange(6, dtype="f4").tobytes()), "e": ("F64", (0, 2), b"")}
    (tmp_path / "a.safetensors").write_bytes(weights.make(odd, {"format": "pt", "of": "a"}))
    (tmp_path / "b.safetensors").write_bytes(weights.make({"b": ("BOOL", (2,), b"\1\0")}, {"of": "b", "more": "x"}))
    where = {"o": "a.safetensors", "w": "a.safetensors", "e": "a.safetensors", "b": "b.safetensors"}
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 27}, "weight_map": where}))
    return path


SHARDED = {"w": np.arange(6, dtype="f4").reshape(2, 3), "o": np.array([120], "u1"), "e": np.zeros((0, 2)),
           "b": np.array([True, False])}


def test_an_index_becomes_one_bundle(here, index):
    before = puts(here)
    same(load_file(index), SHARDED)
    same(load_file(str(index)), SHARDED)
    assert puts(here) == before + 1
    (name,) = here.keys()
    assert here[name].metadata == {"format": "pt", "of": "a", "more": "x"}
    with safe_open(index) as f:
        assert f.keys() == ["b", "e", "o", "w"]
    shard = index.parent / "b.safetensors"
    os.utime(shard, ns=(1, 1))
    load_file(index)
    assert puts(here) == before + 2, "a shard that was changed is another content"


def test_the_command_line_makes_the_same_of_an_index(here, index, daemon):
    subprocess.run([PACKAGE.parent / "bin" / "gpubufctl", "--socket", daemon.path, "put", index, "by-ctl"], check=True,
                   capture_output=True)
    theirs, ours = here["by-ctl"], _weights.load(index, client=here)
    assert list(theirs) == list(ours) and theirs.metadata == ours.metadata
    same(ours.to_numpy(), theirs.to_numpy())
    ours.release()
    theirs.release()


@pytest.mark.parametrize("change, said", [
    ({"w": "b.safetensors"}, "it says that b.safetensors has the tensor 'w', but a.safetensors has it"),
    ({"x": "b.safetensors"}, "it names the tensor 'x', which no shard has"),
    ({"x": "../b.safetensors"}, "'../b.safetensors', which is no file beside the index"),
    ({"x": ".hidden"}, "'.hidden', which is no file beside the index"),
    ({"x": 3}, "weight_map has no file's name for 'x'")])
def test_an_index_that_is_wrong(here, index, change, said):
    content = json.loads(index.read_text())
    content["weight_map"].update(change)
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(said)):
        load_file(index)
    assert len(here) == 0


def test_shards_that_are_wrong(here, index):
    (index.parent / "b.safetensors").write_bytes((index.parent / "a.safetensors").read_bytes())
    with pytest.raises(ValueError, match="both a.safetensors and b.safetensors have the tensor"):
        load_file(index)
    (index.parent / "b.safetensors").write_bytes(b"abc")
    with pytest.raises(ValueError, match="b.safetensors: is no safetensors file"):
        load_file(index)
    os.unlink(index.parent / "b.safetensors")
    with pytest.raises(FileNotFoundError, match="b.safetensors"):
        load_file(index)
    for text in ("", "[]", "{}", '{"weight_map": []}', "\0"):
        index.write_text(text)
        with pytest.raises(ValueError, match="is no index of .safetensors files"):
            load_file(index)
    assert len(here) == 0


# ---- tensors that are used before all are there ----


def test_without_waiting(here, path):
    before = puts(here)
    found = load_file(path, wait=False)
    same(dict(found))
    assert len(found) == 3 and "w" in found and list(found) == list(load_file(path))
    with pytest.raises(KeyError):
        found["nothing"]
    with pytest.raises(ValueError):
        found["w"][0, 0] = 1
    found.wait()
    (name,) = here.keys()
    assert puts(here) == before + 1
    again = load_file(path, wait=False)  # it is published
    same(dict(again))
    again.wait()
    here.delete(name)
    w = load_file(path, wait=False, writable="copy")["w"]
    w[0, 0] = 7
    wait_until(lambda: len(here) == 1)
    same(load_file(path))


class Held:
    """A _core.Fill that has all bytes up to the one given, and the rest when it is let go."""

    def __init__(self, fill, until):
        self.fill, self.until, self.gate, self.waits = fill, until, threading.Event(), 0
        fill.wait()

    def wait(self, at=0, count=-1):
        self.waits += 1
        if count < 0 or at + count > self.until:
            assert self.gate.wait(DEADLINE)
        self.fill.wait()

    def end(self):
        self.fill.end()


@pytest.fixture
def fills(monkeypatch):
    """The fills that have begun, each Held behind the manifest."""
    begin, made = _weights.File.begin, []

    def slow(file, into):
        made.append(Held(begin(file, into), 8 + len(file.manifest)))
        return made[-1]

    monkeypatch.setattr(_weights.File, "begin", slow)
    return made


def test_a_tensor_is_there_before_the_next(here, path, fills):
    found = load_file(path, wait=False)
    places = {entry[0]: entry[3] + entry[4] for _, entry in found._entries.values()}
    fills[0].until = sorted(places.values())[1]
    for name in sorted(places, key=places.get)[:2]:
        assert np.array_equal(found[name], TENSORS[name])
    assert len(here) == 0 and not fills[0].gate.is_set()
    fills[0].gate.set()
    found.wait()
    same(dict(found))
    assert len(here) == 1


def test_a_file_that_changes_while_its_tensors_are_used(here, path, fills):
    found = load_file(path, wait=False)
    fills[0].until = 1 << 20
    kept = found["w"]
    with open(path, "ab") as file:
        file.write(b"more")
    fills[0].gate.set()
    for look in (found.wait, lambda: found["w"]):
        with pytest.raises(ValueError, match="was changed while it was read"):
            look()
    assert len(here) == 0 and np.array_equal(kept, TENSORS["w"])


def test_a_program_that_ends_while_it_reads_has_published(here, daemon, begin, path):
    one = begin(daemon.path, "import sys, gpubufd.numpy\ngpubufd.numpy.load_file(sys.argv[1], wait=False)", path)
    one.communicate(timeout=DEADLINE)
    assert one.returncode == 0 and len(here) == 1
