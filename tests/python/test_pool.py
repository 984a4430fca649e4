"""Pools: memory of an object that is being made, given out in pieces and published where it lies."""

import pytest
from conftest import GPU_HEAD, ROOT, fake_only

HEAD = GPU_HEAD + """
from gpubufd import _core, _params, _pool
MIB = 1 << 20
library = ctypes.CDLL(_core.__file__)
library.gpubufd_pool_alloc.restype = ctypes.c_void_p
library.gpubufd_pool_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.gpubufd_pool_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

def alloc(count, device=0):
    return library.gpubufd_pool_alloc(count, device, None)

def free(address):
    library.gpubufd_pool_free(address, 1, 0, None)

class Mine:
    def __init__(self, address, shape, typestr="<f4", strides=None):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3}

def fill(address, array):
    cuda.copy(Mine(address, array.shape, array.dtype.str), array)
    cuda.Device(0).synchronize()

def pool(name="m", size=8 * MIB, room=_pool.MANIFEST, **options):
    place = cuda.Device(0).uuid
    given = _params.options(place, replace=options.get("replace", False))
    return _pool.Pool(client, name, size, given, room)

def shown(bundle):
    return {name for name in bundle if not name.startswith("__gap__")}
"""


@pytest.fixture
def pool_run(gpu_run):
    return lambda code, head=HEAD: gpu_run(code, head=head)


def test_pieces_are_given_out_to_the_thread_that_has_entered(pool_run):
    pool_run("""
        import threading
        one = pool()
        assert alloc(10) is None
        one.pieces.enter()
        first, second = alloc(10), alloc(MIB)
        assert first == one.object._buffer(0).pointer + one.start
        assert second == first + 512 and one.pieces.used == 512 + MIB
        assert alloc(1, 1) is None and alloc(0) is None and alloc(-1) is None and alloc(8 * MIB) is None
        assert "already" in raises(ValueError, one.pieces.enter)
        found = []
        thread = threading.Thread(target=lambda: found.append(alloc(10)))
        thread.start()
        thread.join()
        assert found == [None]
        rest = alloc(one.pieces.size - one.pieces.used)
        assert rest and alloc(1) is None and one.pieces.used == one.pieces.size
        one.pieces.leave()
        assert alloc(10) is None
        for address in (first, second, rest, 4096, None):
            free(address)
        assert one.pieces.pieces == 0
        raises(MemoryError, lambda: one.pieces.take(1))
    """)


def test_arrays_are_published_where_they_lie(pool_run):
    pool_run("""
        one = pool()
        w, b, scratch, e = one.pieces.take(4000), one.pieces.take(24), one.pieces.take(MIB), one.pieces.take(8)
        values = np.arange(1000, dtype="f4").reshape(10, 100)
        fill(w, values)
        fill(b, np.arange(3, dtype="i8"))
        fill(e, np.array([7.0]))
        arrays = {
            "e": Mine(e, (1,), "<f8"), "w": Mine(w, (10, 100)), "b": Mine(b, (3,), "<i8"), "none": Mine(0, (0, 2))}
        assert not client.list() and raises(KeyError, lambda: client.get("m"))
        ref = one.publish(arrays, {"step": "1"}, "step-1", 1)
        found = client.get("m")
        assert (ref.name, ref.version, client.stat("m").label) == ("m", found.version, "step-1")
        assert shown(found) == set(arrays) and found.metadata == {"step": "1"}
        assert found["w"].buffers.values.pointer == w and found["none"].shape == (0, 2)
        assert (found["w"].copy_to_host() == values).all() and found["b"].copy_to_host().tolist() == [0, 1, 2]
        assert found["e"].copy_to_host().tolist() == [7.0]
        from gpubufd.numpy import load_file, save_file
        import json, struct, tempfile, os
        path = os.path.join(tempfile.mkdtemp(), "m.safetensors")
        save_file(found, path)
        data = open(path, "rb").read()
        head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        places = sorted(entry["data_offsets"] for name, entry in head.items() if name != "__metadata__")
        assert all(left[1] == right[0] for left, right in zip(places, places[1:]))
        assert (load_file(path)["w"] == values).all()
        assert "published" in repr(one) and "published" in raises(MemoryError, lambda: one.pieces.take(1))
    """)


def test_nobody_writes_to_what_is_published(pool_run):
    pool_run("""
        one = pool(size=64 * MIB - 2 * MIB - 2 * MIB)
        w = one.pieces.take(4096)
        fill(w, np.ones(1024, "f4"))
        flags = ctypes.c_ulonglong()
        class Location(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
        def access():
            cuda._call("cuMemGetAccess", ctypes.byref(flags), ctypes.byref(Location(1, 0)), ctypes.c_uint64(w))
            return flags.value
        assert access() == 3
        one.publish({"w": Mine(w, (1024,))}, None, None, None)
        assert access() == 1 and client.get("m")["w"].copy_to_host().sum() == 1024
        one.pieces.give_back(w)
        del one
        gc.collect()
        client.delete("m")
        again = pool(size=64 * MIB - 2 * MIB - 2 * MIB)  # the same segment, to be written anew
        w = again.pieces.take(4096)
        assert access() == 3
        fill(w, np.zeros(1024, "f4"))
    """)


def test_what_does_not_lie_in_the_pool_is_named(pool_run):
    pool_run("""
        one = pool(room=1)
        w = one.pieces.take(4000)
        other = cuda.to_device(np.ones(4, "f4"))
        def refused(**arrays):
            return raises(ValueError, lambda: one.publish(arrays, None, None, None))
        assert "tensor 'x' does not lie in the pool" in refused(w=Mine(w, (10,)), x=other)
        assert "tensor 'x' does not lie in the pool" in refused(x=np.ones(3))
        assert "tensor 'x' does not lie in the pool" in refused(x=Mine(w, (4096,)))
        assert "tensor 'x' is not in C order" in refused(x=Mine(w, (10, 10), strides=(4, 40)))
        assert "tensors 'w' and 'x' overlap" in refused(w=Mine(w, (10,)), x=Mine(w + 36, (10,)))
        assert "__gap__" in refused(__gap__1=Mine(w, (10,)))
        many = {f"{i:0100}": Mine(w + 4 * i, (1,)) for i in range(1000)}
        assert "publish fewer" not in raises(KeyError, lambda: client.get("m"))
        small = pool("small", room=1)
        assert small.start == 2 * MIB
        far = {f"{i:03000}": Mine(w + 4 * i, (1,)) for i in range(1000)}
        assert "publish fewer" in refused(**far)
        one.publish(many, None, None, None)
        assert len(shown(client.get("m"))) == 1000
        v = small.pieces.take(4096)
        fill(v, np.arange(4, dtype="f4"))
        small.publish({"b": Mine(v, (1,)), "": Mine(v + 8, (2,))}, None, None, None)
        held = client.get("small")
        assert [held[name].copy_to_host().tolist() for name in ("", "b")] == [[2, 3], [0]]
        assert "expected 1 byte or more" in raises(ValueError, lambda: pool(size=0))
        host = _params.options("host")
        assert "for a GPU" in raises(gpubufd.Unsupported, lambda: _pool.Pool(client, "h", MIB, host))
    """)


def test_the_memory_stays_until_all_pieces_are_given_back(pool_run):
    pool_run("""
        one = pool()
        w, x = one.pieces.take(4000), one.pieces.take(4000)
        fill(w, np.ones(1000, "f4"))
        one.publish({"w": Mine(w, (1000,))}, None, None, None)
        del one
        gc.collect()
        assert len(client.leases("m")) == 1
        free(w)
        assert len(client.leases("m")) == 1
        free(x)
        assert client.leases("m") == [] and client.get("m")["w"].copy_to_host().sum() == 1000
        gone = pool("gone")
        x = gone.pieces.take(4)
        del gone
        gc.collect()
        free(x)
        assert client.list("gone") == []
        left = pool("left")  # the client closed, and the memory still there
        x = left.pieces.take(4000)
        client.close()
        fill(x, np.ones(1000, "f4"))
        free(x)
    """)


TORCH = HEAD + f"""
sys.path.insert(0, {str(ROOT / "tests" / "python" / "standins")!r})
import torch
import gpubufd.torch as gt
"""


@fake_only
def test_pytorch_makes_its_tensors_in_the_pool(pool_run):
    pool_run("""
        made = torch.cuda.made
        with gt.mem_pool(client, "m", 16 * MIB) as pool:
            w = made(np.arange(600000).reshape(2, 300000), torch.float32)
            b = made([1, 2, 3], torch.int64)
            raises(ValueError, pool.__enter__)
            raises(torch.cuda.OutOfMemoryError, lambda: made(np.zeros(16 * MIB), torch.uint8))
        assert not client.list() and "being made" in repr(pool)
        state = {"w": w, "b": b, "tied": w, "part": b[1:]}
        def refused(error=ValueError, **more):
            return raises(error, lambda: pool.publish({"b": b, **more}))
        assert "tensor 'x' is not in C order" in refused(x=w[:, ::2])
        assert "tensor 'x' does not lie in the pool" in refused(x=torch.tensor([1], torch.int8))
        assert "'b' and 'part' overlap" in refused(part=b[1:]), refused(part=b[1:])
        assert "tensor 'x'" in refused(TypeError, x=1)
        del state["part"]
        ref = pool.publish(state, metadata={"rank": 0}, label="step-0")
        found = client.get("m", label="step-0")
        assert shown(found) == {"w", "b"} and found.version == ref.version and found.metadata["rank"] == "0"
        assert found["w"].buffers.values.pointer == w.data_ptr() and found["b"].copy_to_host().tolist() == [1, 2, 3]
        assert (found["w"].copy_to_host() == np.arange(600000).reshape(2, 300000)).all()
        assert "is published" in raises(ValueError, pool.__enter__)
        pool._torch.release()
        del pool, found
        gc.collect()
        assert client.leases("m") == []
        with gt.mem_pool(client, "m", 4 * MIB, device="cuda:0", replace=True) as pool:
            b = made([4], torch.int64)
        pool.publish({"b": b})
        assert client.get("m")["b"].copy_to_host().tolist() == [4]
        pool._torch.release()
    """, head=TORCH)


RMM = HEAD + f"""
sys.path.insert(0, {str(ROOT / "tests" / "python" / "standins")!r})
import rmm.mr
import gpubufd.rmm
"""


def test_rmm_makes_its_buffers_in_the_pool(pool_run):
    pool_run("""
        outer = rmm.mr.get_per_device_resource(0)
        with gpubufd.rmm.mem_pool(client, "m", 4 * MIB, device=cuda.Device(0).uuid) as pool:
            current = rmm.mr.get_per_device_resource(0)
            assert current is pool.resource is not outer
            x, scratch = current.allocate(400), current.allocate(0, None)
        assert rmm.mr.get_per_device_resource(0) is outer
        fill(x, np.arange(100, dtype="f4"))
        pool.publish({"x": Mine(x, (100,))}, {"k": "v"}, label="one")
        assert client.get("m", label="one")["x"].copy_to_host().tolist() == list(range(100))
        raises(MemoryError, lambda: pool.resource.allocate(1))
        for piece in x, scratch:
            pool.resource.deallocate(piece, 400)
        del pool, current
        gc.collect()
        assert client.leases("m") == []
    """, head=RMM)
