"""gpubufd.fsspec and gpubufd.zarr, held by the tests that fsspec and zarr have for everybody's stores."""

import asyncio
import io
import os
import pickle

import conftest
import pytest

np = pytest.importorskip("numpy")
fsspec = pytest.importorskip("fsspec")
zarr = pytest.importorskip("zarr")
pytest.importorskip("pytest_asyncio")
from fsspec.tests import abstract  # noqa: E402
from zarr.abc.store import Store  # noqa: E402
from zarr.core.buffer import Buffer, cpu  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

gpubufd = conftest.gpubufd
import gpubufd.fsspec  # noqa: E402
import gpubufd.zarr  # noqa: E402


# ---- fsspec ----


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, at_daemon, daemon):
        return gpubufd.fsspec.GpubufFileSystem(socket=daemon.path, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self):
        return "files"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


def test_libraries_read_and_write_by_the_protocol(at_daemon, tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(1000), "b": ["x", "y"] * 500})
    frame.to_parquet("gpubuf://tables/a.parquet")
    assert pd.read_parquet("gpubuf://tables/a.parquet").equals(frame)
    frame.to_csv("gpubuf://tables/a.csv", index=False)
    assert pd.read_csv("gpubuf://tables/a.csv").equals(frame)
    assert isinstance(at_daemon["tables/a.csv"], gpubufd.Bytes)


def test_what_others_published_is_a_file(at_daemon, tmp_path):
    fs = fsspec.filesystem("gpubuf")
    assert pickle.loads(pickle.dumps(fs)) == fs
    at_daemon.put("array", np.arange(10, dtype="u2"))
    at_daemon.put_bundle("models/m", {"w": np.ones(3)})
    at_daemon.put("table", {"a": [1, 2]})
    assert fs.cat_file("array", 2, 4) == b"\1\0" and fs.size("gpubuf://array") == 20
    assert fs.ls("models") == [fs.info("models/m")] and fs.isdir("models")
    with fs.open("models/m") as file:
        assert b"F64" in file.read(200) and file.seek(-8, io.SEEK_END) and file.read() == np.ones(1).tobytes()
    with pytest.raises(TypeError, match="Table.*no file"):
        fs.cat_file("table")
    with pytest.raises(FileNotFoundError):
        fs.open("none")
    with pytest.raises(ZeroDivisionError), fs.open("broken", "wb") as file:
        file.write(b"half")
        1 / 0
    assert not fs.exists("broken")
    with fs.open("gone", "rb") if fs.exists("gone") else fs.open("array", "rb") as file:
        fs.rm("array")
        assert len(file.read()) == 20  # what is open stays
    with fs.open("log", "wb") as file:
        file.write(b"a")
    with fs.open("log", "ab") as file:
        file.write(b"b")
    with pytest.raises(FileExistsError), fs.open("log", "xb") as file:
        file.write(b"c")
    assert fs.cat("log") == b"ab"
    at_daemon.put("models/../../out", b"x")  # a copy of it would lie elsewhere
    assert fs.ls("models", detail=False) == ["models/m"] and fs.cat_file("models/../../out") == b"x"
    fs.get("models", str(tmp_path / "copy"), recursive=True)
    assert os.listdir(tmp_path / "copy") == ["m"]
    at_daemon.delete("models/../../out")
    fs.rm("models", recursive=True)
    assert not fs.exists("models")


# ---- zarr ----


class TestZarrsOfStores(StoreTests[gpubufd.zarr.GpubufStore, cpu.Buffer]):
    store_cls, buffer_cls = gpubufd.zarr.GpubufStore, cpu.Buffer

    @pytest.fixture(autouse=True)
    def there(self, at_daemon):
        self.client = at_daemon

    @pytest.fixture
    def store_kwargs(self, at_daemon):
        return {"prefix": "zarr"}

    async def set(self, store: Store, key: str, value: Buffer) -> None:
        self.client.put(f"zarr/{key}", value.to_bytes(), replace=True)

    async def get(self, store: Store, key: str) -> Buffer:
        return cpu.Buffer.from_bytes(bytes(self.client[f"zarr/{key}"]))

    def test_store_repr(self, store):
        assert repr(store) == "GpubufStore('zarr')"

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


def test_arrays_and_groups(at_daemon):
    store = gpubufd.zarr.GpubufStore("run")
    group = zarr.create_group(store)
    given = np.random.rand(50, 60).astype("f4")
    for name, codecs in (("plain", None), ("packed", "auto")):
        group.create_array(name, data=given, chunks=(20, 20), compressors=codecs)
    again = zarr.open_group(pickle.loads(pickle.dumps(store)), mode="r")
    assert sorted(again.keys()) == ["packed", "plain"] and "run/plain/c/2/2" in at_daemon
    for name in ("plain", "packed"):
        assert np.array_equal(again[name][:], given) and np.array_equal(again[name][30:, ::7], given[30:, ::7])
    group["plain"][0, 0] = 5
    assert again["plain"][0, 0] == 5
    with pytest.raises(ValueError, match="read-only"):
        again["plain"][0, 0] = 6
    del group["plain"]
    assert sorted(again.keys()) == ["packed"] and not at_daemon.list("run/plain")


def test_a_chunk_is_read_where_it_lies(at_daemon):
    store = gpubufd.zarr.GpubufStore("run")
    at_daemon.put("run/c", np.arange(100, dtype="u1"))
    held = at_daemon["run/c"]
    found = asyncio.run(store.get("c")).as_numpy_array()
    assert found.ctypes.data == held._buffer(0).pointer and not found.flags.writeable
    del held, found
