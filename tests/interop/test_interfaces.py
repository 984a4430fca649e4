"""Arrow's C interfaces and DLPack, held by the libraries that are made of them, and by the tests that wheels bring.

nanoarrow and arro3, Arrow in C and in Rust, check what they are given. The tests of pyarrow and of NumPy about these
interfaces run with objects of gpubufd's in the place of their own.
"""

import conftest
import pytest
import test_pyarrow

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
gpubufd, differs = conftest.gpubufd, conftest.differs
TYPES = [name for name, make in test_pyarrow.EXAMPLES.items() if make and not test_pyarrow.ROWS[name][0].startswith("refused")]


def cases(name):
    """(an array, as it comes back) of a type: whole, from an offset, and empty."""
    array = test_pyarrow.EXAMPLES[name]()
    return [(case, test_pyarrow.back_as(case, test_pyarrow.ROWS[name][1])) for case in (array, array[1:], array[:0])]


# ---- nanoarrow ----

ABORTS = {"string_view", "binary_view"}  # nanoarrow 0.9.0 does when it passes on pyarrow's own


def test_nanoarrow_reads_values(there):
    na = pytest.importorskip("nanoarrow")
    for name in TYPES:
        if name not in ("map", "decimal128(5, 2)"):  # which its iterator lacks, or reads wrongly
            for given, expected in cases(name):
                assert list(na.Array(there({"c": given})["c"]).iter_py()) == expected.to_pylist(), name


@pytest.mark.parametrize("name", TYPES)
def test_nanoarrow_there_and_back(there, name):
    na = pytest.importorskip("nanoarrow")
    for given, expected in cases(name):
        batch = pa.record_batch({"c": given})
        table = there(batch if name in ABORTS else na.c_array(batch))
        assert pa.table(na.ArrayStream(table))["c"].combine_chunks().equals(expected)
        if name == "struct" and given.null_count:  # its arrays are batches, too
            with pytest.raises(ValueError, match="a struct array with nulls of its own cannot become a table"):
                there(na.Array(given))
            continue
        held = there(given if name in ABORTS else na.Array(given))
        got = na.Array(held)
        assert isinstance(held, gpubufd.Table if name == "struct" else gpubufd.Column)
        assert repr(got.schema) == repr(na.Schema(pa.field("", expected.type, nullable=name != "struct")))
        na.c_array(held).view()  # checks the buffers
        assert pa.array(got).equals(expected) and pa.array(there(got)).equals(expected)


@pytest.mark.parametrize("name", ["months", "day_time"])
def test_intervals_that_pyarrow_lacks(there, name):
    na = pytest.importorskip("nanoarrow")
    kind = getattr(na, f"interval_{name}")()
    values = np.array([1, 0, -3], "i4") if name == "months" else np.array([[1, 2], [0, 0], [-3, 4]], "i4")
    array = na.c_array_from_buffers(kind, 3, [bytes([0b101]), values], null_count=1)
    column = there(array)
    assert column.tolist()[::2] == ([(1, 0, 0), (-3, 0, 0)] if name == "months" else [(0, 1, 2000000), (0, -3, 4000000)])
    got = na.c_array(column)
    assert repr(na.Schema(got.schema)) == repr(kind) and got.null_count == 1
    assert bytes(got.view().buffer(1)) == values.tobytes()


# ---- arro3 ----


@pytest.mark.parametrize("name", TYPES)
def test_arro3_there_and_back(there, name):
    core = pytest.importorskip("arro3.core")
    for given, expected in cases(name):
        column = there(core.Array(given))
        got = core.Array(column)  # checks the buffers, and that text is UTF-8
        assert got == core.Array(expected)
        assert pa.array(there(core.ChunkedArray([core.Array(given), core.Array(given)]))).equals(
            pa.concat_arrays([expected, expected]))
        table = core.Table(pa.table({"c": given}))
        back = core.Table(there(table))
        assert back.combine_chunks() == core.Table(pa.table({"c": expected})).combine_chunks()
        assert core.Table(there(table.to_reader())).num_rows == len(given)


# ---- pyarrow's tests ----


def pyarrows(name):
    pytest.importorskip("hypothesis")
    return pytest.importorskip(f"pyarrow.tests.{name}")


@pytest.fixture
def by(there, monkeypatch):
    """by(class, attribute): an object of this class of a test's, which passes capsules on, makes them by put and get."""

    def by(kind, attribute):
        for name in [one for one in vars(kind) if one.startswith("__arrow_c_")]:
            def capsule(self, *arguments, name=name, **options):
                value = getattr(self, attribute)
                held = there(value.empty_table() if isinstance(value, pa.Schema) else value)
                return getattr(held, name)(*arguments, **options)

            monkeypatch.setattr(kind, name, capsule)
        return kind

    return by


@pytest.mark.parametrize("kind", ["ArrayWrapper", "ArrayDeviceWrapper"])
def test_pyarrows_arrays(by, kind):
    arrays = pyarrows("test_array")
    with pytest.raises(AttributeError, match="has no attribute 'cast'"):  # pyarrow 26.0.1 casts nothing that does not itself
        arrays.test_c_array_protocol(by(getattr(arrays, kind), "data"))


@pytest.mark.parametrize("kind", ["BatchWrapper", "BatchDeviceWrapper"])
def test_pyarrows_batches(by, kind):
    tables = pyarrows("test_table")
    for test in (tables.test_recordbatch_c_array_interface, tables.test_table_c_array_interface):
        test(by(getattr(tables, kind), "batch"))


def test_pyarrows_schemas(by):
    types = pyarrows("test_types")
    for kind in (types.SchemaWrapper, types.SchemaMapping):
        types.test_schema_import_c_schema_interface(by(kind, "schema"))


def test_pyarrows_datasets(by, tmp_path):
    datasets = pyarrows("test_dataset")
    by(datasets.TableStreamWrapper, "table")
    for threads in (False, True):
        datasets.test_scan_iterator(threads)
    datasets.test_write_table(tmp_path)


# ---- NumPy's tests ----

numpys = pytest.importorskip("numpy._core.tests.test_dlpack")


class Through:
    """NumPy whose from_dlpack() puts what it is given, and takes what is got; or whose arange() is an Array that was got."""

    def __init__(self, there, made):
        self.there, self.made = there, made

    def __getattr__(self, name):
        return getattr(np, name)

    def from_dlpack(self, value, **options):
        return np.from_dlpack(value if self.made else self.there(value), **options)

    def arange(self, *numbers, **options):
        array = np.arange(*numbers, **options)
        return self.there(array) if self.made else array


class TestNumpysOfWhatIsPut(numpys.TestDLPack):
    """Both orders of bytes and any strides are put; what is published is read-only, and a copy."""

    @pytest.fixture(autouse=True)
    def through(self, there, monkeypatch):
        monkeypatch.setattr(numpys, "np", Through(there, False))

    test_strides_not_multiple_of_itemsize = differs(numpys.TestDLPack.test_strides_not_multiple_of_itemsize, "DID NOT RAISE")
    test_invalid_byte_swapping = differs(numpys.TestDLPack.test_invalid_byte_swapping, "DID NOT RAISE")
    test_writeable = differs(numpys.TestDLPack.test_writeable, "WRITEABLE : False")
    test_copy = differs(numpys.TestDLPack.test_copy, "may_share_memory")
    test_from_dlpack_refcount = None  # of the array that was put


class TestNumpysOfAnArray:
    """A capsule keeps the memory, not the Array. Another error refuses a stream."""

    @pytest.fixture(autouse=True)
    def through(self, there, monkeypatch):
        monkeypatch.setattr(numpys, "np", Through(there, True))

    test_dunder_dlpack_refcount = differs(numpys.TestDLPack.test_dunder_dlpack_refcount, r"\(2 - 2\) == 1")
    test_dunder_dlpack_stream = differs(numpys.TestDLPack.test_dunder_dlpack_stream, "stream must be None")
    test_dunder_dlpack_copy = numpys.TestDLPack.test_dunder_dlpack_copy
    test_dlpack_device = numpys.TestDLPack.test_dlpack_device
    test_dlpack_destructor_exception = numpys.TestDLPack.test_dlpack_destructor_exception
    dlpack_deleter_exception = numpys.TestDLPack.dlpack_deleter_exception
    test_copy = numpys.TestDLPack.test_copy
    test_device = numpys.TestDLPack.test_device


# ---- the array API's strict implementation ----


def test_array_api_strict_takes_arrays(there):
    strict = pytest.importorskip("array_api_strict")
    for dtype in ("bool", "int8", "uint64", "float32", "float64", "complex64", "complex128"):
        given = np.arange(24).reshape(4, 6).astype(dtype)
        held = there(given)
        taken = strict.from_dlpack(held)
        assert taken.dtype == getattr(strict, dtype) and taken.shape == (4, 6)
        assert strict.all(taken == strict.asarray(given))
        np.testing.assert_array_equal(there(taken).to_numpy(), given, strict=True)
        del held, taken
