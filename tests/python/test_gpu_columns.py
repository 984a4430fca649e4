"""Columns and tables on a GPU: nested ones, batches, masks of other libraries, and memory that is shared in place.

cuDF itself is not asked for: test_cudf_columns.py says how its columns are stood in for.
"""

import os
import pathlib

import pytest
from conftest import fake_only

NESTED = """
rows = 60
values = {
    "i": [None if i % 7 == 3 else i for i in range(rows)],
    "f": [i / 2 for i in range(rows)],
    "b": [None if i % 5 == 1 else i % 3 == 0 for i in range(rows)],
    "s": [None if i % 4 == 2 else f"s{i}" for i in range(rows)],
    "l": [None if i % 6 == 1 else list(range(i % 4)) for i in range(rows)],
    "ls": [["x" * j for j in range(i % 3)] for i in range(rows)],
    "st": [None if i % 8 == 5 else {"a": i, "b": None if i % 3 else f"b{i}"} for i in range(rows)],
    "lst": [[{"n": j, "t": None if j % 2 else "t"} for j in range(i % 5)] for i in range(rows)],
    "n": [None] * rows,
}

def rows_of(values, a, b):
    return [dict(zip(values, row)) for row in zip(*(column[a:b] for column in values.values()))]
"""


def test_nested_columns_both_ways(gpu_run):
    gpu_run(
        NESTED
        + """
client.put("t", values, device="cuda:0")
t = client["t"]
assert t.device.startswith("GPU-") and arrowc.read_device(t) == rows_of(values, 0, rows)
assert arrowc.read_device_stream(t[3:9]) == (2, rows_of(values, 3, 9), 1)
assert arrowc.read_device_stream(t["lst"][:7]) == (2, values["lst"][:7], 1)
assert arrowc.read_device(t[["s", "st"]][4:]) == [{k: row[k] for k in ("s", "st")} for row in rows_of(values, 4, rows)]
for a, b in ((0, rows), (3, 41), (8, 16), (59, 60), (10, 10), (1, 60)):
    expected = rows_of(values, a, b)
    for source in (t[a:b], arrowc.OnlyDevice(t[a:b], table=True), arrowc.DeviceStreamOf(t[a:b]),
                   [arrowc.OnlyDevice(t[a:b], table=True)]):
        client.put("again", source, replace=True)
        again = client["again"]
        assert again.device == t.device and again.shape == (b - a, len(values)), again
        assert arrowc.read_device(again) == expected
    client.put("host", t[a:b], device="host", replace=True)
    assert client["host"].tolist() == expected
for name, column in values.items():
    client.put("c", t[name][5:17], replace=True)
    c = client["c"]
    assert type(c).__name__ == "Column" and arrowc.read_device(c) == column[5:17], name
    assert c.copy_to_host().shape == (12,)
    client.put("c", arrowc.OnlyDevice(t[name][5:17]), replace=True)
    assert arrowc.read_device(client["c"]) == column[5:17]
assert t["s"].copy_to_host().tolist() == values["s"] and t["lst"].copy_to_host()[4] == values["lst"][4]
found = t["b"][3:].copy_to_host().tolist()
assert all(a == b for a, b in zip(found, values["b"][3:]) if b is not None)
"""
    )


def test_batches_on_a_gpu_are_joined(gpu_run):
    gpu_run(
        NESTED
        + """
client.put("t", values, device="cuda:0")
t = client["t"]
cuts = (0, 3, 3, 11, 24, 40, 60)
parts = [t[a:b] for a, b in zip(cuts, cuts[1:])]
for source in (arrowc.DeviceStreamOf(*parts), [arrowc.OnlyDevice(part, table=True) for part in parts]):
    client.put("joined", source, replace=True)
    joined = client["joined"]
    assert type(joined).__name__ == "Table" and len(joined) == rows
    assert arrowc.read_device(joined) == rows_of(values, 0, rows)
for name, column in values.items():
    source = arrowc.DeviceStreamOf(t[name][3:9], t[name][20:21], t[name][30:60], dtype="x")
    client.put("c", source, replace=True)
    assert type(client["c"]).__name__ == "Column"
    assert arrowc.read_device(client["c"]) == column[3:9] + column[20:21] + column[30:60], name
# A stream on the host by the device form.
client.put("h", values, device="host")
client.put("again", arrowc.DeviceStreamOf(client["h"][:30], client["h"][30:], device_type=1), device="host")
assert client["again"].tolist() == rows_of(values, 0, rows)
other = client["t"][["i"]]
assert "schemas" in raises(ValueError, lambda: client.put("x", [
    arrowc.OnlyDevice(t, table=True), arrowc.OnlyDevice(other, table=True)]))
"""
    )


def test_dictionaries_and_fixed_lists(gpu_run):
    pytest.importorskip("pandas")
    gpu_run(
        """
        import pandas as pd
        series = pd.Series(pd.Categorical(["x", "y", None, "x", "z", "y"] * 4))
        expected = [None if value != value else value for value in series]
        client.put("c", series, device="cuda:0")
        c = client["c"]
        assert c.dtype == "dictionary" and c.null_count == 4 and arrowc.read_device(c) == expected
        for a, b in ((0, 24), (3, 9), (8, 24), (5, 5)):
            client.put("again", c[a:b], replace=True)
            assert arrowc.read_device(client["again"]) == expected[a:b]
            assert client["again"].dtype == "dictionary"
        client.put("again", arrowc.DeviceStreamOf(c[1:4], c[9:21], dtype="x"), replace=True)
        assert arrowc.read_device(client["again"]) == expected[1:4] + expected[9:21]
        client.put("d", series, device="cuda:0")
        other = arrowc.DeviceStreamOf(c, client["d"], dtype="x")
        assert "unify" in raises(ValueError, lambda: client.put("x", other))

        mine = cuda.to_device(np.arange(30, dtype="i4"))
        bits = cuda.to_device(np.array([0b11011010, 0xff], "u1"))
        items = arrowc.DeviceColumn("i", 30, [None, mine.handle], name="item")
        lists = arrowc.DeviceColumn("+w:3", 7, [bits.handle], offset=2, null_count=-1, children=(items,))
        client.put("w", lists)
        expected = [[3 * i, 3 * i + 1, 3 * i + 2] if 0b1111111111011010 >> i & 1 else None for i in range(2, 9)]
        assert client["w"].dtype == "fixed_list(3)" and arrowc.read_device(client["w"]) == expected
        assert client["w"].to_host().tolist() == expected and client["w"].to_host()[2:].tolist() == expected[2:]
        """
    )


STANDINS = pathlib.Path(__file__).resolve().parent / "standins"
CUDF = f"""
sys.path.insert(0, {str(STANDINS)!r})
import pylibcudf as plc
""" + """
class Mask:  # as cuDF's wrapper: the shape counts the bytes that were allocated
    def __init__(self, address, rows):
        self.__cuda_array_interface__ = dict(
            shape=(-(-rows // 512) * 64,), typestr="<t1", data=(address, True), version=1)

class Span:
    def __init__(self, array):
        self.array, self.ptr, self.size = array, array.handle, array.nbytes

class Series:  # as cuDF's: a slice is base, offset and length
    def __init__(self, base, bits, offset, rows):
        self.base, self.bits, self.offset, self.rows = base, bits, offset, rows
        self.dtype = base.dtype
    def __len__(self):
        return self.rows
    def to_pylibcudf(self):
        nulls = 0 if self.bits is None else int((~valid[self.offset : self.offset + self.rows]).sum())
        mask = None if self.bits is None else Span(self.bits)
        return plc.Column(plc.DataType(plc.TypeId.INT64), self.rows, Span(self.base), mask, nulls, self.offset, []), {"name": None}

class Old(Series):  # nothing but the CUDA Array Interface, with a mask that was copied for the slice
    to_pylibcudf = property()
    @property
    def __cuda_array_interface__(self):
        size = self.base.dtype.itemsize
        interface = dict(shape=(self.rows,), strides=(size,), typestr=self.base.dtype.str, version=1,
                         data=(self.base.handle + self.offset * size, False))
        if self.bits is not None:
            interface["mask"] = Mask(self.bits.handle, self.rows)
        return interface

base = cuda.to_device(np.arange(100))
words = np.arange(64, dtype="u1") * 37
bits = cuda.to_device(words)
valid = np.unpackbits(words, bitorder="little").astype(bool)
def expected(offset, rows):
    return [offset + i if valid[offset + i] else None for i in range(rows)]
"""


def test_masks_of_the_cuda_array_interface(gpu_run):
    gpu_run(
        CUDF
        + """
from gpubufd import _fetch
client.put("o", Old(base, bits, 0, 50))
assert _fetch.to_list(client["o"]) == expected(0, 50)
client.put("o", Old(base, None, 10, 50), replace=True)
assert client["o"].copy_to_host().tolist() == list(range(10, 60))

class Byte:  # one byte for each element, as other libraries have it: what does True mean?
    __cuda_array_interface__ = dict(shape=(100,), typestr="|b1", data=(bits.handle, True), version=3)
class Masked:
    __cuda_array_interface__ = dict(base.__cuda_array_interface__, mask=Byte())
assert "nothing says whether its True" in raises(ValueError, lambda: client.put("x", Masked()))
assert "column 'c'" in raises(ValueError, lambda: client.put("x", {"c": Masked()}))
"""
    )


def test_share_a_sliced_series(gpu_run):
    """Exactly base, offset, length and mask; nothing is copied, and the lease outlives the name."""
    gpu_run(
        CUDF
        + """
from gpubufd import _fetch
client.share_mine("s", Series(base, bits, 5, 80))
s = client["s"]
assert (s.buffers.offset, len(s), s.dtype) == (5, 80, "int64")
layout = client.stat("s").layout
assert (layout["offset"], layout["length"], layout["null_count"]) == (5, 80, expected(5, 80).count(None))
assert layout["data"]["bytes"] == 85 * 8 and layout["mask"]["bytes"] == 11
# In this process it is the very same memory.
assert s.buffers.values.pointer == base.handle + 5 * 8 and s._buffer(0).pointer == base.handle and s.buffers.validity.bits.pointer == bits.handle
assert s.__cuda_array_interface__["data"] == (base.handle + 40, True)
assert _fetch.to_list(s) == expected(5, 80)
cuda.copy(base, np.full(100, 7))
assert s.copy_to_host()[0] == 7
cuda.copy(base, np.arange(100))

client.share_mine("o", Old(base, bits, 0, 64))
assert client["o"].buffers.values.pointer == base.handle and _fetch.to_list(client["o"]) == expected(0, 64)

more = [cuda.to_device(np.arange(100) * k) for k in range(3)]
client.share_mine("t", {"a": Series(base, bits, 3, 90), "b": Old(more[1], None, 4, 90), "c": Old(more[2], bits, 0, 90)})
t = client["t"]
assert t.names == ["a", "b", "c"] and len(t) == 90
assert _fetch.to_list(t["a"]) == expected(3, 90) and t["b"].copy_to_host()[0] == 4
assert _fetch.to_list(t["c"][:3]) == [2 * v if v is not None else None for v in expected(0, 3)]
del s, t

# The client holds the memory until the name is gone.
import weakref
own = cuda.to_device(np.arange(10.0))
ref = client.share_mine("own", own)
assert ref == client.ref("own") and ref.version == client.stat("own").version
gone = weakref.ref(own)
del own
gc.collect()
assert gone() is not None and client["own"].copy_to_host().tolist() == list(range(10))
client.delete("own")
gc.collect()
assert gone() is None

assert "put() copies" in raises(TypeError, lambda: client.share_mine("x", np.arange(3)))
assert "column 'h'" in raises(TypeError, lambda: client.share_mine("x", {"g": Old(base, None, 0, 3), "h": [1, 2, 3]}))
assert "no elements" in raises(ValueError, lambda: client.share_mine("x", cuda.empty(0)))
lots = {f"c{i}": cuda.to_device(np.arange(5)) for i in range(17)}
said = raises(gpubufd.Limit, lambda: client.share_mine("x", lots))
assert "16 allocations" in said and "put() publishes a copy" in said
"""
    )


def test_share_nested_and_strided(gpu_run):
    gpu_run(
        """
        offsets, items = cuda.to_device(np.array([0, 2, 2, 5, 9], "i4")), cuda.to_device(np.arange(9, dtype="i2"))
        text = cuda.to_device(np.frombuffer(b"onetwothree", "u1"))
        ends = cuda.to_device(np.array([0, 3, 6, 11, 11], "i4"))
        bits = cuda.to_device(np.array([0b0111], "u1"))
        lists = arrowc.DeviceColumn("+l", 3, [None, offsets.handle], offset=1, name="l", children=(
            arrowc.DeviceColumn("s", 9, [None, items.handle], name="item"),))
        strings = arrowc.DeviceColumn("u", 3, [bits.handle, ends.handle, text.handle], offset=1, null_count=1,
                                      name="s")
        client.share_mine("l", lists)
        assert arrowc.read_device(client["l"]) == [[], [2, 3, 4], [5, 6, 7, 8]]
        assert client["l"].buffers.offsets.pointer == offsets.handle and client["l"].children[0].buffers.values.pointer == items.handle
        client.share_mine("s", strings)
        assert arrowc.read_device(client["s"]) == ["two", "three", None] and client["s"].null_count == 1
        whole = arrowc.DeviceColumn("+s", 3, [None], children=(
            arrowc.DeviceColumn("+l", 4, [None, offsets.handle], name="l", children=lists.children), strings))
        whole.num_columns = 2
        client.share_mine("t", whole)
        assert arrowc.read_device(client["t"]) == [
            {"l": [0, 1], "s": "two"}, {"l": [], "s": "three"}, {"l": [2, 3, 4], "s": None}]
        assert client["t"]["s"].buffers.values.pointer == text.handle

        mine = cuda.to_device(np.arange(24, dtype="i4").reshape(4, 6))
        class Fortran:
            __cuda_array_interface__ = dict(mine.__cuda_array_interface__, shape=(6, 4), strides=(4, 24))
        client.share_mine("f", Fortran())
        f = client["f"]
        assert f.shape == (6, 4) and f.strides == (4, 24) and f.buffers.values.pointer == mine.handle
        assert f.__cuda_array_interface__["strides"] == (4, 24)
        class EverySecond:
            __cuda_array_interface__ = dict(mine.__cuda_array_interface__, shape=(12,), strides=(8,))
        client.share_mine("half", EverySecond())
        assert "not contiguous" in raises(ValueError, lambda: client.put("x", {"column": client["half"]}))
        class Backwards:
            __cuda_array_interface__ = dict(mine.__cuda_array_interface__, shape=(6,), strides=(-4,))
        assert "put() copies" in raises(ValueError, lambda: client.share_mine("x", Backwards()))
        """
    )


def test_columns_of_several_places(gpu_run):
    gpu_run(
        """
        from gpubufd import _fetch
        mine = cuda.to_device(np.arange(3))
        client.put("t", {"gpu": mine, "names": ["a", None, "c"], "flags": np.array([True, False, True]),
                         "there": [1.5, None, 2.5]})
        t = client["t"]
        assert t.device == cuda.Device(0).uuid
        assert _fetch.to_list(t) == [
            {"gpu": 0, "names": "a", "flags": True, "there": 1.5},
            {"gpu": 1, "names": None, "flags": False, "there": None},
            {"gpu": 2, "names": "c", "flags": True, "there": 2.5}]
        client.put("u", {"x": t["gpu"], "s": t["names"][:], "more": mine})
        assert _fetch.to_list(client["u"]["s"]) == ["a", None, "c"]
        assert "column 'short'" in raises(ValueError, lambda: client.put("x", {"gpu": mine, "short": [1]}))
        client.put("h", {"gpu": mine, "names": ["a", None, "c"]}, device="host")
        assert client["h"].tolist()[1] == {"gpu": 1, "names": None}
        """
    )


def test_arrays_with_nulls_are_put_again(gpu_run):
    gpu_run(
        """
        for device in ("cuda:0", "host"):
            with client.create("a", "int16", (4, 5), nulls=True, device=device) as a:
                a.write(np.arange(20, dtype="i2"))
                bits = np.array([0b10110101, 0b01100110, 0b1111], "u1")
                a._write(1, 0, bits.ctypes.data, 3, 0)
                a.seal()
            a = client["a"]
            for part, first in ((a, 0), (a[1:3], 5), (a[3:], 15)):
                client.put("b", part, device=device, replace=True)
                b = client["b"]
                assert b.shape == part.shape and b.device == a.device
                assert (b.copy_to_host() == np.arange(20, dtype="i2").reshape(4, 5)[first // 5:][:len(part)]).all()
                got = np.zeros(3, "u1")
                b._read(1, 0, got.ctypes.data, (part.size + 7) // 8, 0)
                want = np.unpackbits(bits, bitorder="little")[first : first + part.size]
                assert (np.unpackbits(got, bitorder="little")[: part.size] == want).all()
            client.delete("a", "b")
        """
    )


def test_put_on_a_stream(gpu_run):
    """put() waits for work on the user's stream, in each form that a stream has."""
    gpu_run(
        """
        stream = cuda.Stream()
        class Foreign:  # as cuda.core's
            def __cuda_stream__(self):
                return 0, stream.handle
        class Pointer:  # as CuPy's
            ptr = stream.handle
        target = cuda.empty(1 << 20, "i4")
        for i, on in enumerate((stream, stream.handle, Foreign(), Pointer())):
            staging = cuda.pinned(1 << 20, "i4")
            staging[:] = i + 1
            cuda.copy(target, staging, stream=stream)
            client.put_bundle("b", dict.fromkeys("xyz", target), stream=on, replace=True)  # by two streams
            assert [client["b"][name].copy_to_host()[-1] for name in "xyz"] == [i + 1] * 3
            client.put("a", target, stream=on, replace=True)
            assert client["a"].copy_to_host()[-1] == i + 1
            client.put("t", {"x": target}, stream=on, replace=True)
            assert client["t"]["x"].copy_to_host()[-1] == i + 1
        with cuda.beside(stream.handle, 0) as other:
            for _ in range(3):
                cuda.copy(target, staging, stream=other)
            last = cuda.Stream.of(other).record()
        stream.synchronize()
        assert last.done()
        class OnStream:
            __cuda_array_interface__ = dict(target.__cuda_array_interface__, stream=stream.handle)
        staging = cuda.pinned(1 << 20, "i4")
        staging[:] = 99
        cuda.copy(target, staging, stream=stream)
        client.put("a", OnStream(), replace=True)
        assert client["a"].copy_to_host()[-1] == 99
        """,
        FAKECUDA_STREAM_DELAY="20",
    )


def test_gets_and_puts_leave_nothing(gpu_run):
    gpu_run(
        CUDF
        + """
import os
client.put("t", {"x": np.arange(100), "s": ["a"] * 100}, device="cuda:0")
def work(count):
    for i in range(count):
        t = client["t"]
        t["x"].__cuda_array_interface__, t[["x"]][1:].__arrow_c_device_array__(), t["x"].__dlpack__()
        if i % 10 == 0:
            client.put("again", t[3:50], replace=True)
            client.share_mine("mine", Series(base, bits, 5, 80), replace=True)
def fds():
    return len(os.listdir("/proc/self/fd"))
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
work(300)
before, files = rss(), fds()
free = cuda.Device(0).memory_info()[0]
work(3000)
gc.collect()
assert all("cached_ms" in lease for lease in client.leases()), client.leases()  # cached ones
assert fds() == files, (fds(), files)
assert cuda.Device(0).memory_info()[0] == free
if "asan" not in os.environ.get("GPUBUF_BUILD", ""):
    assert rss() - before < 2 << 20, rss() - before
"""
    )


@fake_only
def test_a_slow_gpu_does_not_hold_up_the_loop(gpu_run):
    """While a stream that the value is made on is held, other tasks of the loop go on."""
    gpu_run(
        """
        import asyncio, gpubufd.aio
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fakecuda_wait.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        target, flag = cuda.to_device(np.arange(1000)), ctypes.c_int(0)

        async def main():
            async with await gpubufd.aio.connect() as c:
                for put in (lambda s: c.put("a", target, stream=s, replace=True),
                            lambda s: c.put("a", {"x": target, "s": ["t"] * 1000}, stream=s, replace=True),
                            lambda s: c.share_mine("a", {"x": target}, stream=s, replace=True)):
                    stream = cuda.Stream()
                    flag.value = 0
                    with cuda.Device(0):
                        assert driver.fakecuda_wait(ctypes.addressof(flag), stream.handle) == 0
                    task = asyncio.ensure_future(put(stream))
                    for _ in range(20):
                        await c.stats()
                    assert not task.done()
                    flag.value = 1
                    await asyncio.wait_for(task, 60)
                    a = await c.get("a")
                    column = a["x"] if hasattr(a, "names") else a
                    assert column.copy_to_host().tolist() == list(range(1000))
                    del a, column

        asyncio.run(main())
        """
    )


def test_with_asyncio(gpu_run):
    """Arrays with gaps, nested columns, and a table of another client's."""
    gpu_run(
        """
        import asyncio, gpubufd.aio
        target = cuda.to_device(np.arange(1000))

        class Sliced:
            __cuda_array_interface__ = dict(target.__cuda_array_interface__, shape=(100, 5), strides=(80, 16))

        async def main():
            async with await gpubufd.aio.connect() as c:
                await c.put("z", Sliced())
                want = np.lib.stride_tricks.as_strided(np.arange(1000), (100, 5), (80, 16))
                assert ((await c.get("z")).copy_to_host() == want).all()
                await c.share_mine("mine", {"x": target})
                assert (await c.get("mine"))["x"].copy_to_host()[-1] == 999
                await c.put("n", {"l": [[1], None, [2, 3]], "s": ["a", None, "c"]}, device="cuda:0")
                n = await c.get("n")
                assert n._ordinal == 0 and arrowc.read_device(n)[2] == {"l": [2, 3], "s": "c"}
                await c.put("m", n[1:])
                assert arrowc.read_device(await c.get("m"))[0] == {"l": None, "s": None}
                assert (await c.devices())[0]["capacity"] > 0

        asyncio.run(main())
        """
    )


@fake_only
def test_put_without_waiting(gpu_run):
    """An object put behind a held stream is published at once; readers' streams wait, and nobody else gets the memory."""
    gpu_run(
        """
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fakecuda_wait.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        target, flag = cuda.to_device(np.arange(1000)), ctypes.c_int(0)
        other = gpubufd.connect()

        def hold(stream):
            flag.value = 0
            with cuda.Device(0):
                assert driver.fakecuda_wait(ctypes.addressof(flag), stream.handle) == 0

        stream, theirs, got = cuda.Stream(), cuda.Stream(), cuda.pinned(1000, "i8")  # to free them would be to wait
        for value in (target, {"x": target}):
            got[:] = 0
            hold(stream)
            put = client.put("a", value, stream=stream, wait=False, replace=True)
            assert client.stat("a").version == put.version and not stream.done()
            a = other.get("a")
            column = a["x"] if isinstance(a, gpubufd.Table) else a
            column.wait_ready(theirs)
            column._read(0, 0, got.ctypes.data, got.nbytes, theirs.handle)
            assert not theirs.done()
            client.delete("a")
            flag.value = 1
            theirs.synchronize()
            assert (got == np.arange(1000)).all()
        hold(stream)
        client.put_bundle("b", {"w": target, "v": target}, stream=stream, wait=False)
        b = other.get("b")
        flag.value = 1
        assert b["v"].copy_to_host().tolist() == list(range(1000))
        client.delete("b")
        a = b = column = None
        gc.collect()
        before = client.devices()[0]["used"]
        hold(stream)
        client.put("c", target, stream=stream, wait=False)
        client.delete("c")
        assert client.devices()[0]["used"] > before  # the copy is still to come
        flag.value = 1
        stream.synchronize()

        import asyncio, gpubufd.aio
        async def main():
            async with await gpubufd.aio.connect() as c:
                hold(stream)
                await c.put("d", target, stream=stream, wait=False)
                assert not stream.done()
                await c.put("e", [1, 2], wait=False)  # nothing to queue
                flag.value = 1
                assert (await c.get("d")).copy_to_host().tolist() == list(range(1000))
        asyncio.run(main())
        """
    )


def test_reprs_of_a_gpu(gpu_run):
    gpu_run(
        """
        client.put("t", {"x": np.arange(1000.0), "s": [f"<{i}>" for i in range(1000)],
                         "n": [None if i % 3 else i for i in range(1000)]}, device="cuda:0")
        t = client["t"]
        text, html = repr(t), t._repr_html_()
        assert "1,000 rows × 3 columns, on cuda:0" in text and "'<999>'" in text and "null" in text and "…" in text
        assert html.count("<svg") == 2 and "from 0 to 999" in html and "&lt;999&gt;" in html
        assert "999" in repr(t["x"]) and "500" not in repr(t["x"])
        client.put("m", np.arange(6).reshape(2, 3), device="cuda:0")
        assert "[3 4 5]" in repr(client["m"]) and "[3 4 5]" in client["m"]._repr_html_()
        client.put("z", np.zeros(0), device="cuda:0")
        assert "(0,)" in repr(client["z"])
        """
    )


def test_what_others_took_keeps_the_lease(gpu_run):
    gpu_run(
        """
        client.put("t", {"x": np.arange(100), "s": ["a"] * 100}, device="cuda:0")
        takes = [
            lambda t: t["x"].__dlpack__(), lambda t: t["x"].__arrow_c_device_array__(), lambda t: t[["s"]],
            lambda t: t[3:].__arrow_c_device_stream__(), lambda t: t["x"].buffers.values, lambda t: t["x"][5:],
            lambda t: t["s"].buffers.offsets, lambda t: t.values(),
        ]
        for i, take in enumerate(takes):
            other = gpubufd.connect(name="taker")
            taken = take(other["t"])
            gc.collect()
            del other
            gc.collect()
            assert len(client.leases("t")) == 1, i
            del taken
            gc.collect()
            assert client.leases("t") == [], i
        # The last of a moved child's memory.
        other = gpubufd.connect()
        schema, array = other["t"].__arrow_c_device_array__()
        moved = arrowc.move(arrowc.struct_of(array, arrowc.DeviceArray).array.children[0][0], arrowc.Array())
        del schema, array, other
        gc.collect()
        assert len(client.leases("t")) == 1
        moved.release(moved)
        assert client.leases("t") == []
        """
    )


def test_cancelled_and_broken_off(gpu_run):
    """A put that is cancelled, or whose loop ends, leaves nothing behind."""
    gpu_run(
        """
        import asyncio, gpubufd.aio
        target = cuda.to_device(np.arange(1 << 20))

        async def cancelled(c, put):
            task = asyncio.ensure_future(put())
            await asyncio.sleep(0)
            await asyncio.sleep(0.005)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass

        async def main(close):
            c = await gpubufd.aio.connect(name="cancelled")
            for put in (lambda: c.put("a", target), lambda: c.put("a", {"x": target, "y": target}),
                        lambda: c.put("a", np.zeros(4 << 20), device="cuda:0"), lambda: c.get("never", timeout=60),
                        lambda: c.create("b", "int8", 1000)):
                await cancelled(c, put)
                await c.delete("a", missing_ok=True)
            waiting = asyncio.ensure_future(c.get("never", timeout=60))
            await c.stats()
            if close:
                c.close()
                try:
                    await waiting
                except gpubufd.Error:
                    pass

        for close in (True, False):
            asyncio.run(main(close))
            gc.collect()
        while any(session["client"] == "cancelled" for session in client.leases()):
            pass
        assert client.leases() == [] and client.list() == []
        used = [device["used"] for device in client.devices()]
        assert used == [0, 0], used
        """,
        FAKECUDA_STREAM_DELAY="10",
    )


def test_to_host(gpu_run):
    """The same kind, by each of its ways out, nulls and nesting kept; slices, columns, and back to the daemon."""
    pytest.importorskip("pandas")
    gpu_run(
        """
        import pandas as pd
        values = {
            "i": [1, None, 3, 4, 5] * 5, "f": [1.5, float("inf"), None, 2.0, -1.0] * 5, "b": [True, None, False, True, True] * 5,
            "s": ["a", None, "größer", "", "x" * 50] * 5, "l": [[1, 2], None, [], [3], [None]] * 5,
            "r": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": 2, "b": None}, {"a": 3, "b": ["y", "z"]}] * 5,
        }
        rows = [dict(zip(values, row)) for row in zip(*values.values())]
        client.put("t", values, device="cuda:0")
        t = client["t"]
        assert t._ordinal >= 0
        h = t.to_host()
        assert isinstance(h, gpubufd.Table) and type(h).__name__ == "Table" and h.device == "host" and h._ordinal == -1
        assert (h.name, h.shape, h.names, h.dtypes, h.version) == ("t", t.shape, t.names, t.dtypes, t.version)
        t.release()
        assert client.leases("t") == []
        assert h.tolist() == rows and h.to_host() is h
        assert arrowc.read_array(h) == rows
        for start, stop in ((0, 25), (3, 9), (8, 24), (5, 5), (24, 25)):
            part = h[start:stop]
            assert part.tolist() == rows[start:stop] and arrowc.read_array(part) == rows[start:stop]
            assert part[1:].tolist() == rows[start + 1 : stop]
            for name in values:
                assert h[name][start:stop].tolist() == values[name][start:stop], name
                assert arrowc.read_array(h[name][start:stop]) == values[name][start:stop], name
        assert h[["s", "i"]].head(2).tolist() == [{"s": "a", "i": 1}, {"s": None, "i": None}]
        assert "no column 'z'" in raises(KeyError, lambda: h["z"]) and "no column 'z'" in raises(KeyError, lambda: h[["z"]])
        assert h["i"].null_count == 5 and h["r"].null_count == 5 and h["s"][2] == "größer" and h["l"][0] == [1, 2]
        assert h["i"].to_numpy(fill=0).sum() == 65 and h["f"][h["f"].buffers.validity.to_numpy()].sum() == float("inf")
        assert (h["s"] == "").sum() == 5 and not h["i"].to_numpy(masked=True).data.flags.writeable
        assert "5 null" in repr(h["i"]) and "25 rows × 6 columns, on host" in repr(h) and "<table" in h._repr_html_()
        client.put("again", h, device="cuda:0")
        assert client["again"].to_host().tolist() == rows
        client.put("again", h["r"][3:], device="host", replace=True)
        assert client["again"].tolist() == values["r"][3:]
        h.release(), h.release()

        frame = pd.DataFrame({"c": pd.Categorical(["x", None, "y"]), "n": pd.array([1, None, 3], dtype="Int64"),
                              "d": pd.date_range("2020", periods=3, tz="UTC"), "p": pd.period_range("2020", periods=3, freq="M"),
                              "v": pd.interval_range(0, 3)}, index=list("pqr"))
        client.put("f", frame, device="cuda:0")
        pd.testing.assert_frame_equal(client["f"].to_host().to_pandas(), frame)
        pd.testing.assert_frame_equal(client["f"].to_host()[1:].to_pandas(), frame[1:])
        c = client["f"]["c"].to_host()
        assert c.tolist() == ["x", None, "y"] and c[1:].tolist() == [None, "y"] and c.null_count == 1
        assert arrowc.read_array(c) == ["x", None, "y"]
        """
    )


def test_arrays_to_host(gpu_run):
    gpu_run(
        """
        cube = np.arange(24, dtype="i4").reshape(2, 3, 4)
        client.put("cube", cube, device="cuda:0")
        h = client["cube"].to_host()
        assert isinstance(h, gpubufd.Array) and h.shape == (2, 3, 4) and h.dtype == np.dtype("i4") and h.strides == (48, 16, 4)
        assert (h.to_numpy() == cube).all() and (h[1:].to_numpy() == cube[1:]).all() and h[1, 2, 3] == 23
        assert (np.from_dlpack(h) == cube).all() and (np.asarray(h) + h == cube * 2).all() and h.nbytes == 96
        client.put("again", h[1:], device="host")
        assert (client["again"].to_numpy() == cube[1:]).all()
        with client.create("m", "f8", (3, 5), nulls=True, device="cuda:0") as made:
            made.write(np.arange(15.0))
            bits = np.packbits(np.arange(15) % 4 != 0, bitorder="little")
            made._write(1, 0, bits.__array_interface__["data"][0], 2, 0)
        h = client["m"].to_host()
        expected = np.ma.masked_array(np.arange(15.0).reshape(3, 5), np.arange(15).reshape(3, 5) % 4 == 0)
        assert h.null_count == 4 and h.to_numpy(masked=True).tolist() == expected.tolist()
        assert h[1:].to_numpy(masked=True).tolist() == expected[1:].tolist() and h[1:][1:].null_count == 1
        client.put("again", h[1:], device="host", replace=True)
        assert client["again"].to_numpy(masked=True).tolist() == expected[1:].tolist()
        assert "one axis" in raises(TypeError, h.__arrow_c_array__)
        for value in (np.zeros((0, 3)), np.array(5), np.array("2020-01-01", "M8[s]")):
            client.put("a", value, device="cuda:0", replace=True)
            h = client["a"].to_host()
            assert h.shape == value.shape and h.dtype == value.dtype and (h.to_numpy() == value).all()
        client.put("bytes", b"xyz", device="cuda:0")
        assert "copy_to_host" in raises(gpubufd.Unsupported, lambda: client["bytes"].to_host())
        client.put("here", [1, None], device="host")
        here = client["here"]
        assert here.to_host() is here
        """
    )


def test_a_map_on_a_gpu(gpu_run):
    gpu_run(
        """
        client.put("lists", [[{"key": "a", "value": 1}], None, [], [{"key": "b", "value": None}]], device="host")
        pairs = [[("a", 1)], None, [], [("b", None)]]
        client.put("m", arrowc.Map(client["lists"]), device="cuda:0")
        h = client["m"].to_host()
        assert h.dtype == "map" and h.tolist() == pairs and h[1:].tolist() == pairs[1:] and client["m"][3] == pairs[3]
        client.put("back", h[1:], device="host")  # by Arrow's structs
        assert client["back"].dtype == "map" and client["back"].tolist() == pairs[1:]
        client.put("copy", arrowc.OnlyDevice(client["m"]), replace=True)  # on the GPU
        assert client["copy"].dtype == "map" and client["copy"].to_host().tolist() == pairs
        """
    )


def test_elements_of_arrays_of_every_dtype(gpu_run):
    gpu_run(
        """
bits = np.arange(12 * 16, dtype="u1")
dtypes = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "V3", "V16", "M8[D]", "M8[us]", "m8[ns]"]
for dtype in dtypes:
    size = np.dtype(dtype).itemsize
    values = np.arange(12).astype("i8") if dtype[0] in "Mm" else bits[: 12 * size] % (2 if dtype == "?" else 64)
    values = values.view(dtype).reshape(3, 4)
    for one in (values, values[:, 1].copy(), values[1, 1:2].reshape(()), values[:0]):
        client.put("a", one, device="cuda:0", replace=True)
        client.put("h", one, device="host", replace=True)
        a, h = client["a"], client["h"]
        assert a.device.startswith("GPU-") and a.dtype == a.to_host().dtype == h.dtype == h.to_numpy().dtype, dtype
        assert a.copy_to_host().dtype == h.dtype and a.copy_to_host().tolist() == h.to_numpy().tolist(), dtype
        assert a.to_host().tolist() == h.tolist() and (a.to_host().to_numpy() == h.to_numpy()).all(), dtype
        assert repr(a).split("\\n")[1:] == repr(h).split("\\n")[1:], dtype
        if one.ndim == 1 and len(one):
            assert [a[i] for i in range(-3, 3)] == [h[i] for i in range(-3, 3)], dtype
"""
    )


def test_a_frame_of_a_copy_keeps_its_columns(gpu_run):
    """They lie in memory of their own each, though two always lie at an equal distance."""
    gpu_run("""
        import pytest
        pd = pytest.importorskip("pandas")
        values = {name: np.arange(1000.0) + i for i, name in enumerate("abcd")}
        client.put("t", values, device="cuda:0")
        frames = [client["t"][["a", name]].to_host().to_pandas() for name in "bcd"]
        gc.collect()
        kept = [bytearray(b"\\xff" * 8000) for _ in range(100)]
        for frame, name in zip(frames, "bcd"):
            assert frame["a"].tolist() == values["a"].tolist() and frame[name].tolist() == values[name].tolist()
    """)


def test_a_copy_of_another_users_column_is_checked(gpu_run):
    """The copy on the host is, and what would become this user's own on the GPU is refused."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    gpu_run(
        """
import os, struct
from gpubufd._layout import DATA, OFFSETS

os.seteuid(61803)
other = gpubufd.connect()
os.seteuid(0)

def publish(value, column, which, numbers):
    other.put("x", value, device="cuda:0", mode=0o644, replace=True)
    data = struct.pack(f"<{len(numbers)}i", *numbers)
    with other.edit("x") as made:
        held = column(made)
        held._write(which, 0, gpubufd._core.address(data)[0], len(data), 0)
    return client.get("x")

def check(value, column, which, right, *wrong):
    held = publish(value, column, which, right)
    assert held.to_host().tolist() == value
    assert "put its to_host()" in raises(TypeError, lambda: client.put("mine", held))
    assert "put its to_host()" in raises(TypeError, lambda: client.put("mine", {"a": held}))
    client.put("mine", held.to_host(), replace=True)
    for numbers in wrong:
        held = publish(value, column, which, numbers)
        sentence = raises(ValueError, held.to_host)
        assert "another user wrote" in sentence or "beyond its characters" in sentence or "backwards" in sentence or "shorter" in sentence

itself = lambda made: made
check(["ab", "c"], itself, OFFSETS, (0, 2, 3), (0, 2, 1 << 20), (0, 4, 3), (-1, 2, 3), (2, 1, 3))
check([[1], [2, 3]], itself, OFFSETS, (0, 1, 3), (0, 1, 1 << 20), (0, 4, 3), (-1, 2, 3))
publish({"n": [1, None]}, lambda made: made["n"], DATA, (1, 2))
client.put("mine", client.get("x"), replace=True)   # there is nothing to follow
assert client["mine"].to_host().tolist() == [{"n": 1 | 2 << 32}, {"n": None}]
"""
    )
