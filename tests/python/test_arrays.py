"""Arrays: what goes in comes out, by every interface, and nothing is copied on the way out."""

import array
import gc

import dlpack
import pytest
from conftest import TYPES

import gpubufd

DTYPES = [row["numpy"] for row in TYPES if row["numpy"] and row["dlpack"] is not None]
TIMES = ["M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ns]", "M8[D]", "M8[h]"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3), (2, 0, 3), (2, 3, 4)])
def test_round_trip(client, np, dtype, shape):
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)
    client.put("a", values)
    a = client["a"]
    assert isinstance(a, gpubufd.Array)
    assert a.shape == shape and a.ndim == len(shape) and a.size == values.size
    assert a.nbytes == values.nbytes and a.itemsize == values.itemsize
    got = a.to_numpy()
    assert got.dtype == values.dtype and got.shape == shape and got.dtype.char == values.dtype.char  # zarr compares it
    np.testing.assert_array_equal(got, values)
    np.testing.assert_array_equal(np.asarray(a), values)
    assert not np.asarray(a).flags.writeable
    assert np.array(a).flags.writeable and not np.shares_memory(np.array(a), got)  # a copy
    if values.nbytes and (values.dtype != bool or np.__version__ >= "1.25"):
        assert got.__array_interface__["data"][0] == a.buffers.values.pointer
        taken = np.from_dlpack(a)
        np.testing.assert_array_equal(taken, values)
        assert taken.dtype == values.dtype and np.shares_memory(taken, got)
    if shape:
        assert a.tolist() == values.tolist()
        assert len(a) == shape[0]


@pytest.mark.parametrize("dtype", TIMES)
def test_times(client, np, dtype):
    values = np.array([0, 1, -5, 3600 * 24], "i8").astype(dtype)
    client.put("t", values)
    t = client["t"]
    np.testing.assert_array_equal(np.asarray(t), values)
    assert np.asarray(t).dtype.kind == dtype[0] and np.array(t).flags.writeable  # a copy
    assert np.asarray(memoryview(t.buffers.values)).dtype.kind == "i"
    with pytest.raises(BufferError, match="dtype"):
        memoryview(t)



def test_metadata_go_with_arrays_and_bytes(tiered, np):
    """Through each path that tells of an object, or makes another of it."""
    said = {"unit": "m", "é": 'ü"'}
    with gpubufd.connect(tiered.daemon.path) as client:
        values = {"array": np.arange(12.0).reshape(3, 4), "fortran": np.asfortranarray(np.ones((3, 4))), "bytes": b"hello",
                  "text": "hello", "column": [1, None], "table": {"x": [1, 2]}}
        for name, value in values.items():
            client.put(name, value, metadata=said)
            client.alias("alias", name, replace=True)
            client.put("copy", client[name], replace=True)
            client.spill(name)
            assert [client[each].metadata for each in (name, "alias", "copy")] == [said] * 3, name
            assert client.stat(name).layout["metadata"] == said
        assert client["array"].tolist() == values["array"].tolist() and client["fortran"].tolist() == [[1.0] * 4] * 3
        assert bytes(client["bytes"]) == b"hello" and client["column"].tolist() == [1, None]
        client.alias("rows", "array", rows=(1, 3))
        assert client["rows"].metadata == client["array"][1:].metadata == said and client["rows"].tolist()[0] == [4, 5, 6, 7]
        with client.edit("array") as array:
            array.to_numpy()[0, 0] = 9
        assert client["array"].metadata == said and client["array"].tolist()[0][0] == 9
        for name, dtype in ("created", "u1"), ("rows of it", {"a": "u1"}):
            client.create(name, dtype, 2, metadata=said).seal()
            assert client[name].metadata == said
        client.put("plain", b"")
        assert client["plain"].metadata == {}
        with pytest.raises(TypeError, match="expected a dict of strings"):
            client.put("plain", b"", metadata={"a": 1}, replace=True)
        client.put_bundle("bundle", {"w": values["array"]})
        with pytest.raises(TypeError, match="put_bundle"):
            client.put("plain", client["bundle"], metadata=said, replace=True)


def test_nat_stays_in_numpy_and_does_not_become_a_time_in_arrow(client, np):
    values = np.array(["2020-01-01", "NaT"], "M8[us]")
    client.put("t", values)
    t = client["t"]
    assert np.isnat(np.asarray(t)).tolist() == [False, True]
    assert t.tolist()[1] is None
    with pytest.raises(ValueError, match="NaT"):
        t.__arrow_c_array__()
    client.put("c", {"x": values})
    assert client["c"]["x"].null_count == 1


def test_slices_share_memory(client, np):
    client.put("a", np.arange(20).reshape(10, 2))
    a = client["a"]
    part = a[3:7]
    assert isinstance(part, gpubufd.Array) and part.shape == (4, 2)
    assert part.buffers.values.pointer == a.buffers.values.pointer + 3 * 16
    assert a[3:7][1:2].tolist() == [[8, 9]]
    assert a[-2:].tolist() == [[16, 17], [18, 19]] and a[5:2].shape == (0, 2)
    np.testing.assert_array_equal(a[3], [6, 7])
    np.testing.assert_array_equal(a[:, 1], np.arange(1, 20, 2))
    with pytest.raises(ValueError, match="step 1"):
        a[::2]
    client.put("v", np.arange(5))
    v = client["v"]
    assert v[2] == 2 and v[-1] == 4 and list(v) == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError):
        v[5]
    del a
    gc.collect()
    assert part.tolist()[0] == [6, 7]


def test_buffer_protocol(client):
    client.put("b", array.array("d", [1.5, 2.5, 3.5]))
    b = client["b"]
    view = memoryview(b)
    assert view.readonly and view.format == "d" and view.tolist() == [1.5, 2.5, 3.5]
    with pytest.raises(TypeError):
        view[0] = 1.0
    assert bytes(b) == array.array("d", [1.5, 2.5, 3.5]).tobytes()


def test_bytes(client):
    for data in (b"", b"hello", bytearray(b"hello"), memoryview(b"hello")):
        client.put("b", data, replace=True)
        b = client["b"]
        assert isinstance(b, gpubufd.Bytes)
        assert bytes(b) == bytes(data) and len(b) == len(data) and b.tobytes() == bytes(data)
    assert bytes(b[1:3]) == b"el" and b[0] == ord("h") and b.dtype == "uint8"


def test_dlpack_both_ways(client, np):
    values = np.arange(12, dtype="f4").reshape(3, 4)
    client.put("a", values)
    a = client["a"]
    assert a.__dlpack_device__() == (1, 0)
    got = np.from_dlpack(a)
    np.testing.assert_array_equal(got, values)
    assert got.ctypes.data == a.buffers.values.pointer

    class Tensor:  # nothing but DLPack
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            return a.__dlpack__(max_version=max_version)

        def __dlpack_device__(self):
            return 1, 0

    client.put("again", Tensor())
    np.testing.assert_array_equal(client["again"].to_numpy(), values)

    class Old(Tensor):  # from before max_version
        def __dlpack__(self, stream=None):
            return a.__dlpack__()

    client.put("old", Old())
    np.testing.assert_array_equal(client["old"].to_numpy(), values)


def test_versioned_dlpack_says_read_only(client, np):
    client.put("a", np.arange(6, dtype="i2").reshape(2, 3))
    a = client["a"][1:]
    managed = dlpack.managed_of(capsule := a.__dlpack__(max_version=(1, 0)))
    tensor = managed.tensor
    assert (managed.major, managed.flags) == (1, 1)
    assert (tensor.code, tensor.bits, tensor.lanes) == (0, 16, 1)
    assert tensor.shape[:2] == [1, 3] and tensor.strides[:2] == [3, 1]
    assert tensor.data == a.buffers.values.pointer and tensor.byte_offset == 0
    assert "dltensor_versioned" not in repr(a.__dlpack__())
    copied = dlpack.managed_of(capsule := a.__dlpack__(max_version=(1, 1), copy=True))
    assert copied.flags == 2 and copied.tensor.data != a.buffers.values.pointer
    del capsule


def test_dlpack_refuses(client, np):
    client.put("a", np.arange(3))
    a = client["a"]
    with pytest.raises(BufferError, match="stream"):
        a.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="device"):
        a.__dlpack__(dl_device=(2, 0))
    client.put("t", np.array([0], "M8[s]"))
    with pytest.raises(BufferError):
        client["t"].__dlpack__()


def test_create_fill_seal(client, np):
    with client.create("a", "float32", (4, 5)) as a:
        assert a.version == 0
        with pytest.raises(gpubufd.NotFound):
            client.get("a")
        a.to_numpy()[:] = 3
        a.write(np.arange(5, dtype="f4"), offset=10)
        a.seal()
        assert a.version > 0
        with pytest.raises(gpubufd.Busy):
            a.seal()
    got = client["a"].to_numpy()
    assert got[2].tolist() == [0, 1, 2, 3, 4] and (got[[0, 1, 3]] == 3).all()
    with pytest.raises(ZeroDivisionError):
        with client.create("gone", int, 10):
            raise ZeroDivisionError
    assert "gone" not in client and "a" in client


def test_a_with_block_that_ends_well_publishes(client, np):
    with client.create("a", int, 3) as made:
        made.to_numpy()[:] = [4, 5, 6]
    assert made.released and client["a"].tolist() == [4, 5, 6]
    with client.create("b", int, 3) as made:
        made.release()
    assert "b" not in client


@pytest.mark.parametrize("take", ["kept", "released", "opened"])
def test_what_is_sealed_cannot_be_changed(run, client, take):
    """The array that filled it included, as long as there is one."""
    took = {"kept": "v = view", "released": "v = view[20000:]; del a, filled, view",
            "opened": "v = numpy.frombuffer(client['fill'], 'f8'); v.flags.writeable"}[take]
    run(f"""
        import ctypes, gpubufd, numpy
        client = gpubufd.connect()
        a = client.create("fill", "float64", 100000)
        filled = a.to_numpy()
        filled[:] = 1
        view = filled.view()
        a.seal()
        {took}
        print(v.sum())
        import signal
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # not a sanitizer's word for it
        ctypes.memset(v.ctypes.data + v.nbytes // 2, 0, 8)
    """, status=-11)
    assert client["fill"].to_numpy().sum() == 100000
    assert not client["fill"].to_numpy().flags.writeable


def test_the_array_that_filled_it_is_read_only(client, np):
    with client.create("small", "float64", 4) as a:
        filled, copy = a.to_numpy(), a.to_numpy().copy()
        filled[:] = 1
        a.seal()
        with pytest.raises(ValueError, match="read-only"):
            filled[:] = 5
        copy[:] = 5
    with client.create("committed", "float64", 4) as a:
        filled = a.to_numpy()
    assert not filled.flags.writeable and client["small"].tolist() == [1] * 4


def test_final(client, np):
    with client.create("f", "int64", 1000, final=True) as made:
        made.to_numpy()[:] = 7
        made.seal()
        assert made.to_numpy().sum() == 7000 and not made.to_numpy().flags.writeable
    client.put("p", np.arange(9), final=True)
    client.put("t", {"a": np.arange(9), "b": ["x"] * 9}, final=True)
    client.put("plain", b"x")
    assert [client.stat(name).final for name in ("f", "p", "t", "plain")] == [True, True, True, False]
    assert client["t"]["b"].tolist() == ["x"] * 9


def test_masks_are_clear_at_first(client, np):
    """Of reused memory as well: a program may set bits only."""
    for _ in range(4):
        for _ in range(3):
            with client.create("dirt", "uint8", 40000) as dirt:
                dirt.to_numpy()[:] = 0xff
                dirt.release()
        with client.create("c", {"x": "int32"}, 2000, nulls=True) as table:
            assert not bytes(memoryview(table["x"].buffers.validity.bits)).strip(b"\0")
            table.release()


def test_create_tables_and_nulls(client, np):
    with client.create("t", {"x": "int32", "when": "timestamp[ms]"}, 3, nulls=True) as t:
        t["x"].write(np.array([1, 2, 3], "i4"))
        np.asarray(t["when"].buffers.values)[:] = [0, 1, 2]
        for column in t.values():
            memoryview(column.buffers.validity.bits)[0] = 0b101
        t.seal([1, 1])
    assert client["t"]["x"].tolist() == [1, None, 3]
    assert client["t"]["x"].null_count == 1


def test_write_is_checked(client, np):
    with client.create("a", "int32", 4) as a:
        with pytest.raises(TypeError, match="int32"):
            a.write(np.arange(4.0))
        with pytest.raises(ValueError, match="bytes"):
            a.write(np.arange(5, dtype="i4"))
        with pytest.raises(ValueError):
            a.write(np.arange(2, dtype="i4"), offset=-1)
        a.write(array.array("i", [1, 2, 3, 4]))
        a.seal()
    with pytest.raises(gpubufd.Busy):
        client["a"].write(np.arange(4, dtype="i4"))


def test_copy_to_host(client, np):
    client.put("a", np.arange(10))
    copy = client["a"][2:5].copy_to_host()
    copy[0] = 99
    assert copy.tolist() == [99, 3, 4] and client["a"][2] == 2


def test_no_numpy_needed(run):
    run(
        """
        import sys
        sys.modules["numpy"] = None
        import array, gpubufd
        client = gpubufd.connect()
        client.put("a", array.array("i", [1, 2, 3]))
        client.put("t", {"x": [1, None], "s": ["a", "b"]})
        assert client["a"].tolist() == [1, 2, 3]
        assert client["t"].tolist() == [{"x": 1, "s": "a"}, {"x": None, "s": "b"}]
        print(client["t"], client["a"])
        client.delete("a", "t")
        """,
        fresh=True,
    )
