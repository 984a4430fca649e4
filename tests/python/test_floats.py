"""Floats of 8, 6 and 4 bits: bytes in, bytes out, by every interface; the packed ones counted in elements."""

import dlpack
import pytest
import small_floats
from conftest import TYPES

import gpubufd
from gpubufd import _floats

# dtype -> DLPack's code
FLOAT8 = {row["name"]: row["dlpack"] for row in TYPES if row["name"].startswith("float8_")}
PACKED = {"float4_e2m1fn": (2, 1), "float6_e2m3fn": (4, 3), "float6_e3m2fn": (4, 3)}


class OnlyDlpack:
    """An object of another library: it has DLPack and nothing else."""

    def __init__(self, held):
        self.held = held

    def __dlpack__(self, **asked):
        return self.held.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()


def publish(client, name, dtype, shape, content):
    with client.create(name, dtype, shape, replace=True) as made:
        made.write(content)
    return client[name]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_single_bytes(client, dtype):
    a = publish(client, "a", dtype, (2, 3), bytes(range(6)))
    assert a.shape == (2, 3) and a.strides == (3, 1) and a.nbytes == 6 and a.itemsize == 1
    assert bytes(memoryview(a).cast("B")) == bytes(range(6))
    tensor = dlpack.tensor_of(capsule := a.__dlpack__())
    assert (tensor.code, tensor.bits, tensor.lanes) == (FLOAT8[dtype], 8, 1)
    del capsule
    client.put("b", OnlyDlpack(a))
    b = client["b"]
    assert b.shape == (2, 3) and b._dtype == dtype and bytes(memoryview(b).cast("B")) == bytes(range(6))
    assert bytes(memoryview(a[1:]).cast("B")) == bytes([3, 4, 5])


@pytest.mark.parametrize("dtype", PACKED)
def test_packed(client, dtype):
    elements, filled = PACKED[dtype]
    shape, row = (3, 2 * elements), 2 * filled
    content = bytes(range(3 * row))
    a = publish(client, "a", dtype, shape, content)
    assert a.shape == shape and a.strides == (row, 1) and a.nbytes == len(content)
    view = memoryview(a)
    assert view.shape == (3, row) and view.format == "B" and bytes(view) == content
    assert bytes(memoryview(a[1:])) == content[row:]
    client.put("b", a)
    assert client["b"].shape == shape and bytes(memoryview(client["b"])) == content
    with pytest.raises(gpubufd.Error, match="no whole bytes"):
        client.create("c", dtype, (3, elements + 1))
    line = publish(client, "line", dtype, (4 * elements,), bytes(range(4 * filled)))
    assert bytes(memoryview(line[elements:])) == bytes(range(filled, 4 * filled))
    with pytest.raises((gpubufd.Error, ValueError), match="whole bytes"):
        line[1:]


def test_packed_dlpack_is_in_pairs(client):
    a = publish(client, "a", "float4_e2m1fn", (3, 4), bytes(range(6)))
    tensor = dlpack.tensor_of(capsule := a.__dlpack__())
    assert (tensor.code, tensor.bits, tensor.lanes) == (17, 4, 2)
    assert tensor.shape[:2] == [3, 2] and tensor.strides[:2] == [2, 1]
    del capsule
    client.put("b", OnlyDlpack(a))
    assert client["b"].shape == (3, 4) and bytes(memoryview(client["b"])) == bytes(range(6))
    six = publish(client, "six", "float6_e2m3fn", (4,), b"abc")
    with pytest.raises(BufferError, match="DLPack does not say how float6_e2m3fn is packed"):
        six.__dlpack__()


class Changed(OnlyDlpack):
    """A tensor of pairs whose description somebody has changed."""

    def __init__(self, held, **members):
        super().__init__(held)
        self.members = members

    def __dlpack__(self, **asked):
        capsule = self.held.__dlpack__()
        for name, value in self.members.items():
            if name in ("shape", "strides"):
                for i, extent in enumerate(value):
                    getattr(dlpack.tensor_of(capsule), name)[i] = extent
            else:
                setattr(dlpack.tensor_of(capsule), name, value)
        return capsule


class Padded(OnlyDlpack):
    def __dlpack__(self, **asked):
        capsule = self.held.__dlpack__(max_version=(1, 0))
        dlpack.managed_of(capsule).flags |= 4
        return capsule


def test_packed_dlpack_one_by_one(client):
    """DLPack's default for elements below a byte: packed, and counted in elements."""
    a = publish(client, "a", "float4_e2m1fn", (3, 4), bytes(range(6)))
    client.put("b", Changed(a, lanes=1, shape=[3, 4], strides=[4, 1]))
    assert client["b"].shape == (3, 4) and bytes(memoryview(client["b"])) == bytes(range(6))
    client.put("b", Changed(a, lanes=1, shape=[3, 0], strides=[1, 1]), replace=True)
    assert client["b"].shape == (3, 0) and client["b"].nbytes == 0
    for shape, strides in (([3, 3], [4, 1]), ([3, 4], [5, 1]), ([2, 2], [4, 2])):
        with pytest.raises(TypeError, match="do not fill whole bytes"):
            client.put("c", Changed(a, lanes=1, shape=shape, strides=strides))
    line = publish(client, "line", "float4_e2m1fn", (4,), b"ab")
    with pytest.raises(TypeError, match="do not fill whole bytes"):
        client.put("c", Changed(line, lanes=1, ndim=0))
    with pytest.raises(TypeError, match="do not lie in C order"):
        client.put("c", Changed(a, lanes=1, shape=[3, 2], strides=[4, 1]))


def test_dlpack_that_is_refused(client):
    a = publish(client, "a", "float4_e2m1fn", (3, 4), bytes(range(6)))
    with pytest.raises(TypeError, match="4 bits are padded to bytes"):
        client.put("c", Padded(a))
    eight = publish(client, "eight", "float8_e5m2", (3, 4), bytes(range(12)))
    client.put("b", Padded(eight))  # says nothing of whole bytes
    assert bytes(memoryview(client["b"]).cast("B")) == bytes(range(12))
    for held, members in ((a, {"lanes": 4}), (a, {"code": 0}), (a, {"lanes": 0}), (eight, {"lanes": 2})):
        with pytest.raises(TypeError, match="is not supported"):
            client.put("c", Changed(held, **members))


def test_write_in_the_middle(client):
    with client.create("a", "float4_e2m1fn", (8,), replace=True) as made:
        made.write(bytes(4))
        made.write(b"\x12", offset=4)
        with pytest.raises(ValueError, match="does not begin a byte"):
            made.write(b"\x12", offset=3)
        with pytest.raises(ValueError, match="the object has 4 in all"):
            made.write(b"\x12\x12", offset=6)
    assert bytes(memoryview(client["a"])) == b"\0\0\x12\0"


def test_bytes_of_numpy(client, np):
    a = publish(client, "a", "float8_e5m2", (4,), np.arange(4, dtype="u1"))
    assert bytes(memoryview(a)) == bytes(range(4))
    with pytest.raises(TypeError, match="the object holds float8_e5m2, the values are int8"):
        publish(client, "b", "float8_e5m2", (4,), np.arange(4, dtype="i1"))


@pytest.mark.parametrize("bits,elements", [(4, 2), (6, 4)])
def test_pack_and_unpack(np, bits, elements):
    wide = np.arange(6 * elements, dtype="u1").reshape(2, 3 * elements) % (1 << bits)
    packed = _floats.pack(wide, bits)
    assert packed.shape == (2, 3 * elements * bits // 8)
    for row in range(2):  # one by one: the first element in the lowest bits
        number = sum(int(value) << (bits * i) for i, value in enumerate(wide[row]))
        assert packed[row].tobytes() == number.to_bytes(packed.shape[1], "little")
    np.testing.assert_array_equal(_floats.unpack(packed, bits), wide)
    with pytest.raises(ValueError, match="whole bytes"):
        _floats.pack(wide[:, 1:], bits)


def test_arrow_and_tables_refuse_them(client):
    a = publish(client, "a", "float8_e4m3fn", (4,), bytes(4))
    packed = publish(client, "p", "float4_e2m1fn", (4,), bytes(2))
    for held in (a, packed):
        with pytest.raises((TypeError, BufferError, gpubufd.Error), match="Arrow"):
            held.__arrow_c_array__()
        with pytest.raises(TypeError, match="Arrow|install ml_dtypes"):  # what stands first in its way
            client.put("t", {"x": held})


@pytest.mark.parametrize("dtype", small_floats.DTYPES)
def test_every_value(client, dtype):
    """All codes, as Python's floats: no package is needed for them."""
    expected = small_floats.values(dtype)
    a = publish(client, "a", dtype, (len(expected),), small_floats.every_code(dtype))
    assert small_floats.same(a.tolist(), expected)
    assert small_floats.same([a[i] for i in range(len(expected))], expected)
    assert small_floats.same([float(a[-1])], expected[-1:])
    assert repr(a).endswith(f"{expected[4]:.6g}, …, " + ", ".join(f"{v:.6g}" for v in expected[-5:]) + "]")
    assert "<svg" in a._repr_html_()
    with pytest.raises(IndexError):
        a[len(expected)]
    rows = publish(client, "rows", dtype, (2, len(expected) // 8, 4), small_floats.every_code(dtype))
    first, second = rows.tolist()
    assert small_floats.same(sum(first + second, []), expected)
    assert small_floats.same(rows[1:].tolist()[0][0], expected[len(expected) // 2 :][:4])
    count = len(expected) // 8
    places = [(i, j, k) for i in (0, 1) for j in range(count) for k in range(4)]
    assert small_floats.same([rows[place] for place in places], expected)
    assert small_floats.same([rows[-1, -1, -1]], expected[-1:])
    for place in ((2, 0, 0), (0, count, 0), (0, 0, 4), (0, 0, -5)):
        with pytest.raises(IndexError):
            rows[place]


def test_shapes_of_values(client):
    content = b"\x38\x40"
    none = publish(client, "none", "float8_e4m3fn", (), content[:1])
    assert none.tolist() == none[()] == 1.0
    assert publish(client, "empty", "float8_e4m3fn", (0,), b"").tolist() == []
    assert publish(client, "flat", "float8_e4m3fn", (2, 0), b"").tolist() == [[], []]
    assert publish(client, "deep", "float8_e4m3fn", (0, 2), b"").tolist() == []
    assert publish(client, "column", "float8_e4m3fn", (2, 1), content).tolist() == [[1.0], [2.0]]
    assert publish(client, "wide", "bfloat16", (2, 1), b"\x80\x3f\x80\xff").tolist() == [[1.0], [float("-inf")]]
    assert client["wide"][1, 0] == float("-inf")


def test_packed_elements_next_to_one_another(client):
    """An element that shares its byte can be had, a slice that begins within one cannot."""
    a = publish(client, "a", "float6_e3m2fn", (12,), small_floats.packed(range(12), 6))
    assert [a[i] for i in (0, 3, 4, 7, -1)] == [i / 16 for i in (0, 3, 4, 7)] + [0.875]
    assert repr(a).endswith("[0, 0.0625, 0.125, 0.1875, 0.25, …, 0.4375, 0.5, 0.625, 0.75, 0.875]")
    assert a[4:8].tolist() == [0.25, 0.3125, 0.375, 0.4375]
    for begin, end in ((1, 4), (0, 3), (2, 6)):
        with pytest.raises(gpubufd.Error, match="whole bytes"):
            a[begin:end]


def test_numpy_without_ml_dtypes(client, np):
    try:
        import ml_dtypes  # noqa: F401

        pytest.skip("ml_dtypes is here")
    except ImportError:
        pass
    a = publish(client, "a", "float8_e4m3fn", (4,), bytes(4))
    assert a.dtype == "float8_e4m3fn"
    for use in (a.to_numpy, a.copy_to_host):
        with pytest.raises(TypeError, match=r"NumPy has no float8_e4m3fn: install ml_dtypes, or use to_torch\(\)"):
            use()


def test_bits_for_numpy(client, np):
    """NumPy's view by the buffer protocol: integers as wide, and the bytes of packed ones."""
    for dtype, shape, found in (
        ("float8_e4m3fn", (2, 3), "u1"), ("float4_e2m1fn", (2, 6), "u1"), ("bfloat16", (1, 3), "<u2"),
    ):
        array = np.asarray(memoryview(publish(client, "a", dtype, shape, bytes(range(6)))))
        assert array.dtype == found and array.tobytes() == bytes(range(6)) and len(array) == shape[0]


def test_on_a_gpu(gpu_run):
    gpu_run("""
        from gpubufd._buffers import AsBytes
        content = bytes(range(12))
        for dtype, shape, third in (("float8_e4m3fn", (3, 4), 2**-8), ("float4_e2m1fn", (3, 8), 0.5)):
            with client.create("a", dtype, shape, device="cuda:0", replace=True) as made:
                made.write(content)
            a = client["a"]
            assert a.shape == shape and a.nbytes == 12
            assert not hasattr(a, "__cuda_array_interface__")  # no type of NumPy's
            sentence = raises(AttributeError, lambda: a.__cuda_array_interface__)
            assert f"has no name for {dtype}: use to_torch()" in sentence
            line = client.create("line", dtype, (shape[0] * shape[1],), device="cuda:0", replace=True)
            line.write(content)
            line.seal()
            here = line.to_host()
            assert line[2] == here[2] == a.to_host().tolist()[0][2] == third
            assert here[8:].tolist() == line[8:].to_host().tolist() == here.tolist()[8:]
            if dtype == "float4_e2m1fn":
                assert "whole bytes" in raises(ValueError, lambda: here[1:])
            client.put("again", here, replace=True)
            assert client["again"].shape == line.shape and client["again"].to_host().tolist() == here.tolist()
            assert repr(line).count("…") == 1 and f", {third:.6g}, " in repr(line)
            seen = AsBytes(a).__cuda_array_interface__  # as to_cupy() has it
            assert seen["shape"] == (3, 4) and seen["typestr"] == "|u1"
            client.put("b", a, replace=True)  # from one GPU object to another
            for held in (a, client["b"]):
                assert held.shape == shape and held.device == a.device
                host = bytearray(12)
                address, count = gpubufd._core.address(host)
                held._read(0, 0, address, count, 0)
                assert bytes(host) == content
    """)
