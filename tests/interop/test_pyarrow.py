"""pyarrow: each type of PYTHON-TYPES.md's table both ways, by pyarrow's own equality, and in place where that is promised."""

import datetime
import decimal
import re

import conftest
import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

GUIDE = (conftest.ROOT / "docs" / "PYTHON-TYPES.md").read_text()
SECONDS = datetime.datetime(2020, 2, 29, 1, 2, 3)
DAY = datetime.date(2020, 2, 29)


def rows_of_the_guide():
    """{type: (is published as, as Arrow again)}"""
    part = re.search(r"<!-- types of arrow -->\n\n(.*?)\n<!-- -->", GUIDE, re.S)[1]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in part.splitlines()[2:]]
    return {name: (name if row[1] == "=" else row[1].strip("`"), row[2] if len(row) > 2 else "")
            for row in cells for name in row[0].split(" · ")}


def numbers(kind):
    return lambda: pa.array([1, None, 3, 0, 100], kind)


def times(kind, *values):
    return lambda: pa.array([*values, None, values[0]], kind)


def of(kind, *values):
    return lambda: pa.array([*values, None], kind)


def newer(name, *arguments):
    """A type that older releases lack: a reason to skip."""
    kind = getattr(pa, name, None)
    if kind is None:
        pytest.skip(f"pyarrow {pa.__version__} has no {name}")
    return kind(*arguments)


# Of each row of the table an array with a null, where the type has one.
EXAMPLES = {
    "null": lambda: pa.nulls(4), "bool": of(pa.bool_(), True, False, True),
    **{str(kind): numbers(kind) for kind in (
        pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(),
        pa.float64())},
    "halffloat": lambda: pa.array(np.array([1.5, -2, 0], "f2"), mask=np.array([False, True, False])),
    "string": of(pa.string(), "a", "", "äöü" * 9), "large_string": of(pa.large_string(), "a", "", "äöü" * 9),
    "string_view": lambda: pa.array(["a", None, "äöü" * 9], newer("string_view")),
    "binary_view": lambda: pa.array([b"a", None, b"\0" * 99], newer("binary_view")),
    "binary": of(pa.binary(), b"a", b"", b"\0\xff"), "large_binary": of(pa.large_binary(), b"a", b"", b"\0\xff"),
    "fixed_size_binary[2]": of(pa.binary(2), b"ab", b"\0\xff"),
    "date32": of(pa.date32(), DAY), "date64": of(pa.date64(), DAY),
    "time32[s]": of(pa.time32("s"), datetime.time(1, 2)), "time32[ms]": of(pa.time32("ms"), datetime.time(1, 2, 3, 4000)),
    "time64[us]": of(pa.time64("us"), datetime.time(1, 2, 3, 4)), "time64[ns]": lambda: pa.array([1, None], pa.int64()).cast(pa.time64("ns")),
    **{f"timestamp[{unit}]": times(pa.timestamp(unit), SECONDS) for unit in ("s", "ms", "us", "ns")},
    "timestamp[us, tz=UTC]": times(pa.timestamp("us", "UTC"), SECONDS),
    "duration[s]": of(pa.duration("s"), datetime.timedelta(1)), "duration[ns]": of(pa.duration("ns"), datetime.timedelta(1)),
    "month_interval": None, "day_time_interval": None,  # pyarrow has no such types
    "month_day_nano_interval": lambda: pa.array([pa.MonthDayNano([1, -2, 3]), None]),
    "decimal128(5, 2)": of(pa.decimal128(5, 2), decimal.Decimal("1.10"), decimal.Decimal("-999.99")),
    "decimal256(50, 2)": of(pa.decimal256(50, 2), decimal.Decimal("1.10")),
    "dense_union": lambda: pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]),
    "run_end_encoded": lambda: pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "list": of(pa.list_(pa.int32()), [1, None], []), "large_list": of(pa.large_list(pa.string()), ["a", None], []),
    "fixed_size_list[1]": of(pa.list_(pa.float32(), 1), [1.5]),
    "struct": of(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x"]}, {"a": None, "b": None}),
    "map": of(pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], []),
    "dictionary": lambda: pa.array(["a", None, "b", "a"]).dictionary_encode(),
}
ROWS = rows_of_the_guide()


def test_the_table_is_the_one_that_is_tested():
    assert set(EXAMPLES) == set(ROWS)


def without_nulls(array):
    whole = [i for i in range(len(array)) if array[i].is_valid]
    return pa.concat_arrays([array.slice(i, 1) for i in whole]) if whole else array


def back_as(array, again):
    """The array as the guide says that it comes back."""
    return array if again == "=" else pa.array(array.to_pylist(), getattr(pa, again)())


def buffers_of(array):
    """Addresses of the validity and of what follows it; 0: none."""
    return [0 if one is None else one.address for one in array.buffers()]


@pytest.mark.parametrize("name", [name for name, make in EXAMPLES.items() if make])
def test_a_type_there_and_back(client, there, name):
    published, again = ROWS[name]
    array = EXAMPLES[name]()
    for case in (array, without_nulls(array), array[1:], array[:0]):
        if published.startswith("refused"):
            with pytest.raises(TypeError, match=re.escape(published[len("refused: "):])):
                there(pa.table({"c": case}))
            continue
        expected = back_as(case, again)
        column = there(pa.table({"c": case}))["c"]
        assert column.dtype.split("(")[0] == published.split("(")[0]
        got = column.to_pyarrow()
        got.validate(full=True)
        assert got.equals(expected) and got.type == expected.type and got.null_count == expected.null_count
        assert pa.array(column).equals(expected)
        alone = there(case)  # an array by itself is a column
        assert alone.to_pyarrow().equals(expected)
        assert there(pa.chunked_array([case, case])).to_pyarrow().equals(pa.concat_arrays([expected, expected]))



@pytest.mark.parametrize("name", ["int64", "double", "string", "list", "timestamp[us, tz=UTC]", "decimal128(5, 2)"])
def test_nothing_is_copied_on_the_way_out(client, there, name):
    column = there(pa.table({"c": EXAMPLES[name]()}))["c"]
    got = column.to_pyarrow()
    addresses = buffers_of(got)
    memory = column.buffers
    assert addresses[0] == memory.validity.bits.pointer
    assert (memory.offsets if name in ("string", "list") else memory.values).pointer == addresses[1]
    assert not got.buffers()[1].is_mutable, "what is published is read-only"
    assert buffers_of(column.to_pyarrow()) == addresses
    client.delete("x")
    del column, memory
    assert got.equals(EXAMPLES[name]()), "the array keeps the memory that it lies over"


def test_streams_of_several_batches(client, there):
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("d", pa.dictionary(pa.int32(), pa.string()))])
    batches = [pa.record_batch([pa.array([n, None]), pa.array([str(n), None]),
                                pa.array([f"k{n}", "b"]).dictionary_encode()], schema) for n in range(5)]
    expected = pa.Table.from_batches(batches).unify_dictionaries()
    apart = pa.Table.from_batches(batches)
    with pytest.raises(ValueError, match=r"unify_dictionaries\(\)"):
        there(apart)
    reader = pa.RecordBatchReader.from_batches(schema, expected.to_batches())
    for value in (reader, expected, expected.to_batches()):
        got = there(value).to_pyarrow()
        got.validate(full=True)
        assert got.select(["i", "s"]).combine_chunks().equals(expected.select(["i", "s"]).combine_chunks())
        assert got["d"].to_pylist() == expected["d"].to_pylist()
    assert pa.RecordBatchReader.from_stream(client.get("x")).read_all().num_rows == 10


def test_metadata_of_a_schema_and_of_fields(there):
    field = pa.field("i", pa.int64(), metadata={"unit": "mm"})
    table = pa.table([pa.array([1, 2])], pa.schema([field], metadata={"made by": "a test"}))
    got = there(table).to_pyarrow()
    assert got.schema.metadata == table.schema.metadata and got.schema.field("i").metadata == field.metadata


def test_computing_over_shared_memory(there):
    import pyarrow.compute as compute

    table = there({"k": ["a", "b", "a"], "n": [1, None, 3]}).to_pyarrow()
    assert compute.sum(table["n"]).as_py() == 4
    assert table.group_by("k").aggregate([("n", "sum")]).sort_by("k").to_pydict() == {"k": ["a", "b"], "n_sum": [4, None]}


def test_the_tables_of_pyarrow_that_are_written_by_it(there, tmp_path):
    """Files of Arrow's and of Parquet that hold each type are read as they are."""
    import pyarrow.parquet as parquet

    arrays = {name: make() for name, make in EXAMPLES.items()
              if make and ROWS[name][1] == "=" and name not in ("month_day_nano_interval",)}
    rows = max(map(len, arrays.values()))
    filled = {name: pa.concat_arrays([array, pa.nulls(rows - len(array), array.type)]) for name, array in arrays.items()}
    table = pa.table(filled)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert there(pa.ipc.open_file(pa.memory_map(str(tmp_path / "t.arrow"))).read_all()).to_pyarrow().equals(table)
    table = table.drop_columns(["fixed_size_list[1]"])  # whose nulls pyarrow 16 does not read again
    parquet.write_table(table, tmp_path / "t.parquet")
    read = parquet.read_table(tmp_path / "t.parquet")
    assert there(read).to_pyarrow().combine_chunks().equals(read.combine_chunks())
