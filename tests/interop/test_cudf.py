"""The real cuDF over the fake driver's memory: what it makes without a GPU, which are dtypes, columns, indices and frames.

tests/python/cudf_columns.py computes in place of a GPU. On a GPU tests/gpu/rapids.py has the same types.
"""

import pytest
from conftest import forks

# Of the process that the programs are forked from, since it takes seconds.
FIRST = """
import os
os.environ["RAPIDS_NO_INITIALIZE"] = "1"
import cudf, pandas, pyarrow
"""
HEAD = """
import random
import pandas as pd, pyarrow as pa
import cudf, pylibcudf as plc
import cudf_columns as cc
from cudf.core.column import ColumnBase
cc.kernels(plc)
cuda.Device(0).__enter__()  # cuDF asks for a current context
read = arrowc.read_device
cudf.Index.is_unique = property(lambda self: len(set(values(self))) == len(self))
cudf.Index.hasnans = property(lambda self: None in values(self))

def dtype_of(kind, column=None):
    head, below = kind if isinstance(kind, tuple) else (kind, None)
    if head == "category":
        return cudf.CategoricalDtype(cudf.Index._from_column(ColumnBase.create(column.values, dtype_of(below))))
    if head == "list":
        return cudf.ListDtype(dtype_of(below))
    if head == "struct":
        return cudf.StructDtype({name: dtype_of(one) for name, one in below.items()})
    if head.startswith("decimal"):
        name, _, told = head[:-1].partition("(")
        return getattr(cudf, name.capitalize() + "Dtype")(*map(int, told.split(",")))
    name = head.replace("timestamp", "datetime64").replace("duration", "timedelta64").replace("large_", "")
    return cudf.dtype(name)

def column(kind, given):
    made = cc.make(plc, kind, given)
    return ColumnBase.create(getattr(made, "codes", made), dtype_of(kind, made))

def series(kind, given, **options):
    return cudf.Series._from_column(column(kind, given), **options)

def part(one, a, b):
    try:
        return one.iloc[a:b]  # cuDF itself, where it has no nulls to count
    except Exception:
        return cudf.Series._from_column(ColumnBase.create(cc.part(plc, one.to_pylibcudf()[0], a, b), one.dtype))

def values(one):
    return cc.values_of(one.to_pylibcudf()[0], names_in(one.dtype)) if not hasattr(one.dtype, "categories") else [
        None if code is None else values(one.dtype.categories)[code] for code in cc.values_of(one.to_pylibcudf()[0])]

def names_in(dtype):
    for name, below in (getattr(dtype, "fields", None) or {}).items():
        yield name
        yield from names_in(below)
    if hasattr(dtype, "element_type"):
        yield from names_in(dtype.element_type)

def kinds(kind):
    return [kind, *(one for below in (kind[1].values() if kind[0] == "struct" else kind[1:]) for one in kinds(below))
            ] if isinstance(kind, tuple) else [kind]

def pointers(one):
    def of(column):
        found = [span.ptr for span in (column.data(), column.null_mask()) if span is not None]
        return found + [pointer for child in column.children() for pointer in of(child)]
    return of(one.to_pylibcudf()[0])
"""


@pytest.fixture(scope="module")
def forking(tmp_path_factory):
    pytest.importorskip("pylibcudf")
    with forks(tmp_path_factory, FIRST) as run:
        yield run


@pytest.fixture
def cudf_run(gpu_run):
    return lambda code: gpu_run(HEAD + code)


def test_series_of_all_types_both_ways(cudf_run):
    """Random slices of slices are put, and come back as cuDF's with the same dtype and values."""
    cudf_run("""
for seed, kind in enumerate([*cc.KINDS * 3, *[None] * 60]):
    rng = random.Random(seed)
    kind = kind or cc.random_kind(rng)
    if {"date32", ("dictionary", "str")} & {one if isinstance(one, str) or one[0] == "dictionary" else "" for one in kinds(kind)}:
        continue
    expected = cc.random_values(rng, kind, rng.choice((0, 1, 9, 59, 60, 60)), rng.choice((0, 0, 0.3, 0.3, 1)))
    one = series(kind, expected)
    for _ in range(rng.randrange(3)):
        a, b = sorted((rng.randint(0, len(expected)), rng.randint(0, len(expected))))
        one, expected = part(one, a, b), expected[a:b]
    assert values(one) == expected, (seed, kind)
    client.put("c", one, replace=True)
    assert read(client["c"]) == expected, (seed, kind)
    a, b = sorted((rng.randint(0, len(expected)), rng.randint(0, len(expected))))
    client.alias("alias", "c", rows=(a, b))
    wanted = series(cc.wider(kind), [None]).dtype if not hasattr(one.dtype, "categories") else "category"
    for held, there in ((client["c"], expected), (client["c"][a:b], expected[a:b]), (client["alias"], expected[a:b]),
                        (client["c"][:b], expected[:b])):
        back = held.to_cudf()
        assert values(back) == there, (seed, kind, a, b)
        assert back.dtype == wanted, (seed, kind, back.dtype, wanted)
    client.delete("alias", "c")
""")


def test_nothing_is_copied_that_cudf_has_a_form_for(cudf_run):
    """Series and frames lie in the object's own memory, and hold its lease as long as they are there."""
    cudf_run("""
columns = {"i": [1, None, 3, 4], "f": [0.5, 1.5, None, 2.5], "s": ["a", None, "äöü", ""], "l": [[1, 2], None, [], [3]],
           "d": [None, {"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 2, "b": "y"}]}
client.put("t", columns, device="cuda:0")
client.put("u8", pd.Series(["a", "b", None, "a"], dtype="category"), device="cuda:0")  # codes of 8 bits
client.put("a", np.arange(5.0), device="cuda:0")
for held in (client["a"], client["a"][2:]):
    there = held.to_cudf().to_pylibcudf()[0]
    assert there.data().ptr + there.offset() * 8 == held.buffers.values.pointer
for held in (client["t"], client["t"][1:3], client["u8"], client["u8"][2:]):
    made = held.to_cudf()
    mine = {b.pointer for c in arrowc_buffers(held) for b in c}
    found = {p for one in ([made[name] for name in made] if hasattr(made, "columns") else [made]) for p in pointers(one)}
    assert found <= mine, (held, found, mine)
client.put("once", columns, device="cuda:0")
frame = client["once"].to_cudf()
series = frame["s"]
assert client["once"]["s"].to_cudf().name == "s" and client["a"].to_cudf().name is None
del frame
gc.collect()
assert ["cached_ms" in lease for lease in client.leases("once")] == [False], "the lease ended under the Series"
del series
gc.collect()
assert ["cached_ms" in lease for lease in client.leases("once")] in ([], [True]), "the lease stayed"
assert "is on the host" in raises(TypeError, lambda: client.put("h", [1], device="host") and client["h"].to_cudf())
""".replace("client.put(\"t\"", """
def arrowc_buffers(held):
    parts = held.children if type(held).__name__ == "Column" else held.values() if type(held).__name__ == "Table" else []
    own = [held._buffer(which) for which in range(3)] if type(held).__name__ != "Table" else []
    yield [b for b in own if b is not None]
    for child in parts:
        yield from arrowc_buffers(child)

client.put("t\"""", 1))


ARROW = """
import datetime, decimal
days = [datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31), datetime.date(2000, 1, 1)]
stamps = [datetime.datetime(2024, 2, 29, 23, 59, 58), None, datetime.datetime(1969, 12, 31), datetime.datetime(2000, 1, 1)]
def whole(type_, number):
    return [None if value is None else number(value) for value in pa.array(stamps, pa.timestamp("s")).cast(type_).cast("int64").to_pylist()]
numbers, text = [1, None, 3, 4], ["a", None, "äöü", ""]
# Arrow's type, what is given, cuDF's dtype, and its values (None: as given)
TAKEN = [
    *((pa.type_for_alias(name), numbers, name, None) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()),
    (pa.bool_(), [True, None, False, True], "bool", None),
    (pa.string(), text, "str", None), (pa.large_string(), text, "str", None), (pa.string_view(), text, "str", None),
    *((pa.timestamp(unit), stamps, f"datetime64[{unit}]", whole(pa.timestamp(unit), int)) for unit in ("s", "ms", "us", "ns")),
    *((pa.timestamp("us", zone), stamps, f"datetime64[us, {zone}]", whole(pa.timestamp("us"), int)) for zone in ("UTC", "Europe/Berlin")),
    *((pa.duration(unit), numbers, f"timedelta64[{unit}]", None) for unit in ("s", "ms", "us", "ns")),
    (pa.date32(), days, "datetime64[s]", [None if day is None else (day - datetime.date(1970, 1, 1)).days * 86400 for day in days]),
    (pa.date64(), days, "datetime64[ms]", [None if day is None else (day - datetime.date(1970, 1, 1)).days * 86400000 for day in days]),
    (pa.decimal128(7, 2), [decimal.Decimal("1.25"), None, decimal.Decimal("-3"), decimal.Decimal(0)], cudf.Decimal128Dtype(7, 2),
     [125, None, -300, 0]),
    (pa.list_(pa.int16()), [[1, None], None, [], [2]], cudf.ListDtype("int16"), None),
    (pa.large_list(pa.string()), [["a"], None, [], [None, "b"]], cudf.ListDtype("str"), None),
    (pa.list_(pa.list_(pa.int8())), [[[1], None], None, [], [[]]], cudf.ListDtype(cudf.ListDtype("int8")), None),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None)]],
     cudf.ListDtype(cudf.StructDtype({"key": "str", "value": "int64"})),
     [[{"key": "a", "value": 1}], None, [], [{"key": "b", "value": None}]]),
    (pa.struct({"a": pa.int64(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
     [{"a": 1, "b": [{"c": "x"}, None]}, None, {"a": None, "b": []}, {"a": 2, "b": None}],
     cudf.StructDtype({"a": "int64", "b": cudf.ListDtype(cudf.StructDtype({"c": "str"}))}), None),
    (pa.struct({"t": pa.timestamp("ns", "UTC"), "k": pa.dictionary(pa.int8(), pa.string())}),
     [{"t": 5, "k": "x"}, None, {"t": None, "k": "y"}, {"t": 6, "k": None}],
     cudf.StructDtype({"t": pd.DatetimeTZDtype("ns", "UTC"), "k": "str"}), None),
    (pa.dictionary(pa.int32(), pa.string()), ["x", None, "y", "x"], "category", None),
    (pa.dictionary(pa.uint8(), pa.int64()), [7, None, 5, 7], "category", None),
]
"""


def test_columns_of_arrow(cudf_run):
    """Each type of PYTHON-TYPES.md's table that cuDF has: with nulls and without, empty, one row, all null, sliced."""
    cudf_run(ARROW + """
for type_, given, dtype, wanted in TAKEN:
    wanted = given if wanted is None else wanted
    for rows in ([0, 1, 2, 3] * 3, [0, 2, 3], [], [0], [1] * 9):
        array = pa.array([given[i] for i in rows], type_)
        expected = [wanted[i] for i in rows]
        client.put("c", {"c": array}, device="cuda:0", replace=True)
        held = client["c"]["c"]
        for a, b in ((0, len(rows)), (1, len(rows)), (3, 9), (0, len(rows) // 2), (len(rows), len(rows))):
            back = held[a:b].to_cudf()
            assert back.dtype == dtype and str(back.dtype) == str(cudf.dtype(dtype)), (type_, back.dtype)
            assert values(back) == expected[a:b], (type_, rows, a, b, values(back))
            client.put("again", back, replace=True)
            assert values(client["again"].to_cudf()) == expected[a:b], (type_, rows, a, b)
""")


def test_what_cudf_lacks_is_refused(cudf_run):
    cudf_run(ARROW + """
LACKED = [
    (pa.float16(), [np.float16(1)], "float16", "put it as float32"), (pa.time32("s"), [1], "time32[s]", "put it as a duration"),
    (pa.time64("us"), [1], "time64[us]", "put it as a duration"), (pa.binary(), [b"a"], "binary", "to_host()"),
    (pa.large_binary(), [b"a"], "large_binary", "to_host()"), (pa.binary(2), [b"ab"], "fixed_binary(2)", "to_host()"),
    (pa.list_(pa.int8(), 2), [[1, 2]], "fixed_list(2)", "put it as a list"),
    (pa.month_day_nano_interval(), [(1, 2, 3)], "month_day_nano_interval", "to_host()"),
    (pa.timestamp("s", "+05:30"), [1], "time zone '+05:30'", "dt.tz_convert('UTC')"),
]
for type_, given, what, advice in LACKED:
    for array, where in ((pa.array(given, type_), "x"), (pa.array([{"inside": given[0]}], pa.struct({"inside": type_})), "inside")):
        client.put("t", {"x": array}, device="cuda:0", replace=True)
        said = raises(TypeError, client["t"].to_cudf)
        assert said.startswith(f"column '{where}' of 't': cuDF has no {what}") and advice in said, said
client.put("t", pd.DataFrame({"p": pd.period_range("2024-01", periods=3, freq="M")}), device="cuda:0", replace=True)
assert "column 'p' of 't': cuDF has no periods" in raises(TypeError, client["t"].to_cudf)
client.put("z", np.ones(3, "c8"), device="cuda:0")
assert "'z': cuDF has no complex64" in raises(TypeError, client["z"].to_cudf)
client.put("m", np.ones((3, 2)), device="cuda:0")
assert "'m' has 2 axes" in raises(ValueError, client["m"].to_cudf)
""")


FRAMES = """
def frame_of(index, **options):
    rows = len(index)
    data = {"x": column("float64", [float(i) for i in range(rows)]), "s": column("str", [f"s{i}" for i in range(rows)])}
    return cudf.DataFrame._from_data(data, index=index, **options)

def index_of(kind, given, name=None):
    return cudf.Index._from_column(column(kind, given), name=name)

def shape_of(index):
    levels = [index.get_level_values(i) for i in range(index.nlevels)] if index.nlevels > 1 else [index]
    told = (index.start, index.stop, index.step) if type(index) is cudf.RangeIndex else [values(level) for level in levels]
    freq = index.freq if isinstance(index, cudf.DatetimeIndex) else None
    return type(index).__name__, told, list(index.names), [str(level.dtype) for level in levels], freq

def same(frame, back):
    assert shape_of(back.index) == shape_of(frame.index), (shape_of(back.index), shape_of(frame.index))
    assert back.columns.equals(frame.columns) and back.columns.name == frame.columns.name and back.columns.dtype == frame.columns.dtype
    assert [values(back[name]) for name in back] == [values(frame[name]) for name in frame]
    found, wanted = ({name: str(one[name].dtype) for name in one} for one in (back, frame))
    assert found == wanted, (found, wanted)
    assert back.attrs == frame.attrs
"""


def test_frames_with_any_index_both_ways(cudf_run):
    cudf_run(FRAMES + """
def multi(names, *levels):
    made = cudf.MultiIndex._from_data({i: column(*level) for i, level in enumerate(levels)})
    made.names = names
    return made

dates = cudf.DatetimeIndex._from_column(column("timestamp[ns]", [i * 86400 * 10**9 for i in range(4)]), name="day", freq="D")
INDEXES = [
    cudf.RangeIndex(4), cudf.RangeIndex(20, 24), cudf.RangeIndex(4, name="n"), cudf.RangeIndex(3, 11, 2, name="n"),
    index_of("int64", [5, 0, 7, 2]), index_of("int64", [0, 1, 2, 3]), index_of("int8", [5, 0, 7, 2], "k"), index_of("float64", [.5, 1, 2, 3]),
    index_of("str", ["a", "b", "a", "c"]), index_of("str", ["a", "b", None, "c"], "name"), dates,
    index_of("timestamp[us]", [1, 2, None, 4]), index_of("duration[ns]", [1, 2, 3, 4], "d"), index_of("bool", [True, False, True, None]),
    index_of(("category", "str"), ["x", "y", "x", "x"], "c"),
    multi(["a", "b"], ("int64", [1, 1, 2, 2]), ("str", ["x", "y", "x", None])),
    multi(["a", None], ("timestamp[ns]", [1, 1, 2, 2]), (("category", "str"), ["x", "y", "x", "y"])),
]
for index in INDEXES:
    frame = frame_of(index)
    client.put("f", frame, replace=True)
    same(frame, client["f"].to_cudf())
    pandas = client["f"].to_host().to_pandas()
    assert pandas.index.names == list(index.names) and pandas.columns.tolist() == ["x", "s"], pandas
    assert isinstance(pandas.index, pd.RangeIndex) == isinstance(index, cudf.RangeIndex)
    client.put("g", client["f"], replace=True)
    same(frame, client["g"].to_cudf())
    part = client["f"][1:3].to_cudf()
    assert values(part["x"]) == [1.0, 2.0] and len(part.index) == 2
    nothing = cudf.DataFrame._from_data({}, index=index)
    if index.nlevels == 1 and not isinstance(index, cudf.RangeIndex):
        client.put("e", nothing, replace=True)
        same(nothing, client["e"].to_cudf())
assert client["f"].names == ["x", "s", "a", "__index_level_1__"]

labelled = frame_of(cudf.RangeIndex(4))
labelled.columns = pd.Index([3, 7], name="sizes")
labelled.attrs = {"unit": "m"}
client.put("f", labelled, replace=True)
same(labelled, client["f"].to_cudf())
frame = frame_of(cudf.RangeIndex(0))
client.put("f", frame, replace=True)
assert client["f"].device.startswith("GPU-")
same(frame, client["f"].to_cudf())
for labels in ([(1, 2), "b"], [1.5, 2.5]):
    labelled.columns = pd.Index(labels, tupleize_cols=False)
    client.put("f", labelled, replace=True)
    same(labelled, client["f"].to_cudf())
assert "MultiIndex" in raises(TypeError, lambda: client.put("x", INDEXES[-1]))
client.put("i", index_of("int64", [5, None, 7], "k"))
assert read(client["i"]) == [5, None, 7]
""")


def test_dtypes_of_frames_both_ways(cudf_run):
    """Those that a column alone would not say: ordered categories, pandas' own with nulls, Arrow's, intervals."""
    cudf_run(FRAMES + """
def of(kind, given, dtype):
    made = cc.make(plc, kind, given)
    return ColumnBase.create(getattr(made, "codes", made), dtype(made) if callable(dtype) else dtype)

cats = lambda made: cudf.CategoricalDtype(cudf.Index._from_column(ColumnBase.create(made.values, cudf.dtype("str"))), True)
data = {
    "ordered": of(("category", "str"), ["a", "b", None], cats), "Int64": of("int64", [1, None, 3], pd.Int64Dtype()),
    "boolean": of("bool", [True, None, False], pd.BooleanDtype()), "Float32": of("float32", [1.5, None, 3], pd.Float32Dtype()),
    "arrow": of("int8", [1, None, 3], pd.ArrowDtype(pa.int8())),
    "arrow_list": of(("list", "int64"), [[1], None, []], pd.ArrowDtype(pa.list_(pa.int64()))),
    "arrow_struct": of(("struct", {"a": "int64"}), [{"a": 1}, None, {"a": None}], pd.ArrowDtype(pa.struct({"a": pa.int64()}))),
    "string": of("str", ["a", None, "b"], pd.StringDtype("pyarrow")),
    "zone": of("timestamp[ns]", [1, None, 3], pd.DatetimeTZDtype("ns", "Europe/Berlin")),
    "interval": of(("struct", {"left": "int64", "right": "int64"}), [{"left": 1, "right": 2}, None, {"left": 3, "right": 4}],
                   cudf.IntervalDtype("int64", "left")),
}
frame = cudf.DataFrame._from_data(data, index=cudf.RangeIndex(3))
client.put("f", frame)
back = client["f"].to_cudf()
same(frame, back)
for name in frame.columns[1:]:  # of categories only a GPU says whether they are equal
    assert back[name].dtype == frame[name].dtype and type(back[name].dtype) is type(frame[name].dtype), name
assert back["ordered"].dtype.ordered and back["interval"].dtype.closed == "left"
pandas = client["f"].to_host().to_pandas()
assert pandas["ordered"].cat.ordered
found = {name: str(pandas[name].dtype) for name in pandas}
assert found == {**{name: str(frame[name].dtype) for name in frame}, "interval": "interval[float64, left]"}, found
assert pandas["interval"].isna().tolist() == [False, True, False] and pandas["interval"][2].right == 4
narrow = cudf.DataFrame._from_data({"d": column("decimal32(7,2)", [125, None])}, index=cudf.RangeIndex(2))
client.put("n", narrow)
assert client["n"].to_cudf()["d"].dtype == cudf.Decimal128Dtype(7, 2) and values(client["n"].to_cudf()["d"]) == [125, None]
""")


def test_frames_of_pandas_on_a_gpu(cudf_run):
    """Frames of pandas come back as cuDF's, with their index; levels that are numbered as their values."""
    cudf_run(FRAMES + """
for index in (pd.RangeIndex(20, 23), pd.Index([5, 0, 7]), pd.Index(["a", "b", "c"], name="k"), pd.date_range("2024-01-01", periods=3),
              pd.CategoricalIndex(["x", "y", "x"]), pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["p", None])):
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "n": pd.array([1, None, 3], "Int64")}, index=index)
    client.put("f", frame, device="cuda:0", replace=True)
    back = client["f"].to_cudf()
    levels = [back.index.get_level_values(i) for i in range(back.index.nlevels)] if back.index.nlevels > 1 else [back.index]
    found = list(range(20, 23)) if isinstance(index, pd.RangeIndex) else list(zip(*map(values, levels))) if len(levels) > 1 else values(levels[0])
    wanted = index.asi8.tolist() if isinstance(index, pd.DatetimeIndex) else index.tolist()
    assert found == wanted, (found, wanted)
    assert type(back.index).__name__ == type(index).__name__ and list(back.index.names) == list(index.names)
    assert values(back["x"]) == [1.5, 2.5, 3.5] and back["n"].dtype == "Int64" and values(back["n"]) == [1, None, 3]
    if isinstance(index, pd.DatetimeIndex):
        assert back.index.freq == index.freq
""")


def test_categories_of_others(cudf_run):
    """A dictionary becomes categories: codes in place where cuDF has that width, values where one is there twice."""
    cudf_run("""
def dictionary(indices, there, kind):
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind), pa.array(there))

for kind in ("int8", "int16", "int32", "int64", "uint8"):
    client.put("d", dictionary([1, None, 0, 1], ["x", "y"], kind), device="cuda:0", replace=True)
    back = client["d"].to_cudf()
    assert back.dtype == "category" and values(back) == ["y", None, "x", "y"]
    in_place = back.to_pylibcudf()[0].data().ptr == client["d"].children[0]._buffer(0).pointer
    assert in_place == (kind in ("int8", "uint8")), kind
    assert values(client["d"][1:3].to_cudf()) == [None, "x"]
client.put("many", dictionary([299, 0], [str(i) for i in range(300)], "int32"), device="cuda:0")
assert values(client["many"].to_cudf()) == ["299", "0"] and client["many"].to_cudf().to_pylibcudf()[0].type().id().name == "UINT16"
client.put("twice", dictionary([0, 1, 2, None], ["x", "y", "x"], "int32"), device="cuda:0")
back = client["twice"].to_cudf()
assert back.dtype == "str" and values(back) == ["x", "y", "x", None]
client.put("null", dictionary([0, 1, None], ["x", None], "int32"), device="cuda:0")
assert values(client["null"].to_cudf()) == ["x", None, None]
client.put("none", dictionary([None, None], [], "int32").cast(pa.dictionary(pa.int32(), pa.string())), device="cuda:0")
assert values(client["none"].to_cudf()) == [None, None]
client.put("list", pa.array([["x"], ["y", None], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))), device="cuda:0")
for a, b in ((0, 3), (0, 1), (1, 3), (1, 2), (3, 3)):
    assert values(client["list"][a:b].to_cudf()) == [["x"], ["y", None], None][a:b], (a, b)
""")


def test_partitions_of_dask(cudf_run):
    """take_apart() and partition(), by which gpubufd.dask publishes and loads cuDF's frames."""
    cudf_run(FRAMES + """
from gpubufd import _cudf, _frames, _gpu

def there_and_back(value):
    columns, spec = _frames.take_apart(value)
    client.put("p", columns, replace=True)
    return _cudf.partition(client["p"], _gpu.opened(client["p"], ""), spec)

dates = cudf.DatetimeIndex._from_column(column("timestamp[ns]", [i * 86400 * 10**9 for i in range(4)]), name="day", freq="D")
for index in (cudf.RangeIndex(4, 8, name="n"), index_of("int64", [5, 0, 7, 2]), index_of("str", ["a", "b", None, "c"], "x"), dates,
              index_of(("category", "str"), ["x", "y", "x", "x"], "c"), index_of("duration[ns]", [1, 2, 3, 4])):
    data = {"s": column("str", ["a", None, "b", "c"]), "category": column(("category", "str"), ["b", None, "a", "b"])}
    frame = cudf.DataFrame._from_data(data, index=index)
    same(frame, there_and_back(frame))
    one = there_and_back(frame["s"])
    assert isinstance(one, cudf.Series) and one.name == "s" and values(one) == values(frame["s"])
    assert shape_of(one.index) == shape_of(index)
frame.columns = pd.Index([1, 2], name="sizes")
same(frame, there_and_back(frame))
""")
