"""Consumers take arrays without a call of Python's: DLPack's table of functions on a type. And cuda.core's Buffer."""

import ctypes
import gc

import dlpack
import pytest
from conftest import GPU_HEAD, ROOT

import gpubufd

POINTER = ctypes.c_void_p
SET_ERROR = ctypes.CFUNCTYPE(None, POINTER, ctypes.c_char_p, ctypes.c_char_p)


class Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", POINTER),
        ("allocate", ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, SET_ERROR)),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(dlpack.Managed)))),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, POINTER, ctypes.POINTER(POINTER))),
        ("borrow", POINTER),
        ("current_stream", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(POINTER)))]


def table(kind):
    return Table.from_address(dlpack.pointer_of(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


def exported(value):
    out = ctypes.POINTER(dlpack.Managed)()
    assert table(type(value)).from_object(value, ctypes.byref(out)) == 0
    return out


def end(managed):
    managed.contents.deleter(ctypes.cast(managed, POINTER))


def test_a_consumer_takes_an_array(client, np):
    client.put("a", np.arange(6, dtype="i4").reshape(2, 3))
    found = client.get("a")
    managed = exported(found)
    tensor = managed.contents.tensor
    assert (table(type(found)).major, managed.contents.major, managed.contents.flags) == (1, 1, 1)  # read-only
    assert (tensor.device_type, tensor.code, tensor.bits, tensor.lanes) == (1, 0, 32, 1)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 3], [3, 1])
    assert tensor.data == found.buffers.values.pointer and tensor.byte_offset == 0
    del found
    gc.collect()
    assert len(client.leases("a")) == 1  # it holds the lease
    assert list((ctypes.c_int32 * 6).from_address(tensor.data)) == list(range(6))
    end(managed)
    assert client.leases("a") == []


def test_what_is_no_array_is_refused(client, np):
    client.put("t", {"x": [1, None], "y": [1.5, 2.5], "s": ["a", "b"], "m": np.ma.MaskedArray([1, 2], [False, False])})
    held = client.get("t")
    end(exported(held["y"]))
    end(exported(held["m"]))
    for value, said in ((held["x"], "nulls"), (held["s"], "")):
        with pytest.raises(BufferError, match=said):
            exported(value)
    with pytest.raises(BufferError, match="no object"):
        table(type(held["y"])).from_object(3, ctypes.byref(ctypes.POINTER(dlpack.Managed)()))
    released = held["y"]
    released.release()
    with pytest.raises(gpubufd.Closed):
        exported(released)
    assert not hasattr(type(held), "__dlpack_c_exchange_api__")


def test_nothing_is_made_of_others_tensors(client, np):
    client.put("a", np.arange(3))
    functions = table(type(client.get("a")))
    told = []
    tell = SET_ERROR(lambda context, kind, message: told.append((context, kind, message)))
    assert functions.allocate(None, None, 7, tell) == -1
    assert told[0][:2] == (7, b"NotImplementedError")
    with pytest.raises(NotImplementedError):
        functions.to_object(None, ctypes.byref(POINTER()))
    stream = POINTER(1)
    assert functions.current_stream(2, 0, ctypes.byref(stream)) == 0 and stream.value is None
    assert functions.borrow is None


def test_on_a_gpu(gpu_run):
    gpu_run("""
        import test_exchange
        client.put("a", cuda.to_device(np.arange(4, dtype="f4")))
        found = client.get("a")
        managed = test_exchange.exported(found)
        tensor = managed.contents.tensor
        assert (tensor.device_type, tensor.device_id, tensor.code, tensor.bits) == (2, 0, 2, 32)
        assert tensor.data == found.buffers.values.pointer
        test_exchange.end(managed)
    """)


CORE = GPU_HEAD + f"""
sys.path.insert(0, {str(ROOT / "tests" / "python" / "standins")!r})
"""


def test_a_buffer_of_cuda_core(gpu_run):
    gpu_run("""
        client.put("a", cuda.to_device(np.arange(4, dtype="f4")))
        client.put("t", {"x": cuda.to_device(np.arange(4, dtype="i8"))})
        client.put("h", np.arange(4), device="host")
        found = client.get("a")
        buffer = found.to_cuda_core()
        assert (int(buffer.handle), buffer.size) == (found.buffers.values.pointer, 16)
        column = client.get("t")["x"].to_cuda_core()
        assert column.size == 32
        assert "on the host" in raises(TypeError, client.get("h").to_cuda_core)
        del found
        gc.collect()
        assert len(client.leases("a")) == len(client.leases("t")) == 1
        buffer.close()
        column.close()
        assert client.leases() == []
    """, head=CORE)
