"""DataFrames come back as they went: index, labels, dtypes."""

import datetime
import decimal
import json
import tracemalloc

import pytest

import gpubufd

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")


def some(index):
    return pd.DataFrame({"a": np.arange(len(index)), "s": [f"row {i}" for i in range(len(index))]}, index=index)


FRAMES = {
    "rows picked by a condition": lambda: some(range(10)).query("a % 2 == 0"),
    "texts": lambda: some(["x", "y"]),
    "a name": lambda: some(pd.Index([5, 7], name="key")),
    "a column's name": lambda: some(pd.Index([5, 7], name="a")),
    "the same twice": lambda: some([1, 1, 2]),
    "a range": lambda: some(pd.RangeIndex(5, 15, 2, name="r")),
    "a range from 0 with a name": lambda: some(pd.RangeIndex(3, name="r")),
    "floats": lambda: some([0.5, 1.5]),
    "dates with a frequency": lambda: some(pd.date_range("2020-01-01", periods=4, freq="D", name="day")),
    "times with a zone": lambda: some(pd.date_range("2020-03-28", periods=4, freq="2D", tz="Europe/Berlin")),
    "durations": lambda: some(pd.to_timedelta(range(3), "s")),
    "categories": lambda: some(pd.CategoricalIndex(["q", "r", "q"], ["r", "q"], ordered=True)),
    "levels": lambda: some(pd.MultiIndex.from_product([["x", "y"], [1, 2, 3]], names=["letter", None])),
    "levels of other kinds": lambda: some(pd.MultiIndex.from_arrays([
        pd.Categorical(["x", "y"]), pd.to_datetime(["2020", "2021"]), [1.5, 2.5]], names=["c", "when", "c"])),
    "numbers for names": lambda: pd.DataFrame(np.arange(6).reshape(3, 2)),
    "a name for the columns": lambda: some(range(2)).rename_axis("what", axis=1),
    "groups": lambda: some(range(6)).assign(g=list("xyzxyz")).groupby("g")[["a"]].sum(),
    "a pivot": lambda: pd.DataFrame({"k": list("xxyy"), "n": [1, 2, 1, 2], "v": [1.0, 2, 3, 4]}).pivot(
        index="k", columns="n", values="v"),
    "nothing": pd.DataFrame,
    "rows without columns": lambda: pd.DataFrame(index=pd.RangeIndex(7)),
    "an index alone": lambda: pd.DataFrame(index=["a", "b"]),
    "columns without rows": lambda: some([]),
    "string": lambda: pd.DataFrame({"s": pd.array(["a", None], dtype="string")}),
    "nullable": lambda: pd.DataFrame({
        "I": pd.array([1, None], dtype="Int64"), "u": pd.array([1, 2], dtype="UInt8"),
        "F": pd.array([1.5, None], dtype="Float64"), "f": pd.array([1.5, 2], dtype="Float32"),
        "b": pd.array([True, None], dtype="boolean"), "B": pd.array([True, False], dtype="boolean")}),
    "ordered categories": lambda: pd.DataFrame({"c": pd.Categorical(["x", "y", None], ["y", "x"], ordered=True)}),
    "days": lambda: pd.DataFrame({"d": [datetime.date(2020, 1, 1), None]}),
    "two types in turn": lambda: pd.DataFrame({f"c{i}": np.arange(3, dtype="f8" if i % 3 else "i4") + i for i in range(10)}),
    "texts between numbers": lambda: pd.DataFrame({f"c{i}": np.arange(3.0) + i if i % 3 else list("abc") for i in range(10)}),
    "objects": lambda: pd.DataFrame({
        "b": pd.Series([True, None], dtype=object), "i": pd.Series([1, None], dtype=object),
        "s": ["a", None], "x": [b"a", None], "l": [[1], [2, 3]]}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_back_as_it_was(client, name):
    frame = FRAMES[name]()
    client.put("f", frame)
    back = client["f"].to_pandas()
    pd.testing.assert_frame_equal(back, frame)
    assert getattr(back.index, "freq", None) == getattr(frame.index, "freq", None)
    client.put("again", back)
    pd.testing.assert_frame_equal(client["again"].to_pandas(), frame)


def test_what_needs_no_telling_is_not_told(client):
    client.put("f", pd.DataFrame({"i": [1, 2], "x": [1.5, 2], "s": ["a", None]}))
    assert client["f"].metadata == {}
    client.put("g", some([7, 8]))
    told = json.loads(client["g"].metadata["pandas"])
    assert told["index_columns"] == ["__index_level_0__"] and len(told["columns"]) == 1
    assert client["g"].names == ["a", "s", "__index_level_0__"]


def test_parts_of_a_frame(client):
    frame = some(pd.Index(list("pqrst"), name="key"))
    client.put("f", frame)
    table = client["f"]
    pd.testing.assert_frame_equal(table[1:3].to_pandas(), frame[1:3])
    pd.testing.assert_frame_equal(table[["a"]].to_pandas(), frame[["a"]].reset_index(drop=True))
    pd.testing.assert_frame_equal(table[["key", "a"]].to_pandas(), frame[["a"]])
    client.alias("part", "f", rows=(2, 4), columns=["s", "key"])
    pd.testing.assert_frame_equal(client["part"].to_pandas(), frame[["s"]][2:4])


def test_labels_are_each_frames_own(client):
    client.put("f", pd.DataFrame({"a": [1], "b": [2]}))
    first = client["f"].to_pandas().columns
    first.name = "changed"
    try:
        first.array[0] = first.values[0] = "changed"
    except ValueError:  # since pandas 3.1
        pass
    then = client["f"].to_pandas().columns
    assert then.tolist() == ["a", "b"] and then.name is None


def test_with_an_index_it_still_shares_memory(client):
    client.put("f", some(list("ab")))
    table = client["f"]
    address = table["a"].buffers.values.pointer
    assert table.to_pandas()["a"].to_numpy().ctypes.data == address


def wide(count=5000, rows=3):
    return pd.DataFrame(np.arange(float(count * rows)).reshape(rows, count))


def among(**others):
    """A wide frame with columns of several types, mixed."""
    frame = pd.concat([wide(2500), wide(1700).astype("i4").add_prefix("i"), pd.DataFrame(others)], axis=1)
    return frame.iloc[:, np.random.default_rng(1).permutation(len(frame.columns))].copy()


WIDE = {  # frames of more columns than a table has
    "floats": wide, "floats by column": lambda: pd.DataFrame(np.asfortranarray(wide().to_numpy()), copy=False),
    "no rows": lambda: wide(rows=0), "with an index": lambda: wide().set_axis(list("xyz")),
    "names": lambda: wide().rename(columns=lambda i: f"c{i}").rename_axis(columns="what"),
    "dates for labels": lambda: wide().set_axis(pd.DatetimeIndex(pd.date_range("2000", periods=5000), freq=None), axis=1),
    "two types and others": lambda: among(s=["a", None, "c"], b=[True, False, True], d=pd.to_datetime(["2020"] * 3),
                                          float64=pd.array([1, None, 2], dtype="Int64")),
    "of several blocks": lambda: pd.concat([wide(3000), wide(2000).add_prefix("x")], axis=1),
    "texts that just fit": lambda: pd.concat([wide(4000), wide(96).astype(str).add_prefix("s")], axis=1),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_frames(client, name):
    def check(back, frame):
        assert back.equals(frame) and back.index.equals(frame.index)
        pd.testing.assert_index_equal(back.columns, frame.columns)

    frame = WIDE[name]()
    client.put("f", frame)
    assert len(client["f"].names) <= 4096
    check(client["f"].to_pandas(), frame)
    check(client["f"][1:].to_pandas(), frame[1:] if name == "with an index" else frame[1:].reset_index(drop=True))
    client.put("g", client["f"].to_pandas())
    check(client["g"].to_pandas(), frame)


def test_blocks_are_shared_and_nan_may_be_null(client):
    client.put("f", wide())
    client.put("g", wide(5))
    for name in "fg":
        assert np.shares_memory(client[name].to_pandas().to_numpy(), client[name].to_pandas().to_numpy())
    for count in (5, 5000):
        frame = wide(count)
        frame.iloc[1, 2] = np.nan
        client.put("n", frame, nan_as_null=True, replace=True)
        pd.testing.assert_frame_equal(client["n"].to_pandas(), frame)


@pytest.mark.parametrize("index", [
    pd.date_range("2020", periods=50, freq="D"), pd.date_range("2020-03-28", periods=50, freq="D", tz="Europe/Berlin"),
    pd.date_range("2020", periods=50, freq="90s"), pd.date_range("2020", periods=50, freq="MS"),
    pd.date_range("2020-03-28", periods=50, freq="2h", tz="Europe/Berlin"), pd.timedelta_range("1h", periods=50, freq="90s"),
    pd.date_range("2020", periods=50, freq="-1D"), pd.date_range("2020", periods=1, freq="D")], ids=str)
def test_a_frequency_is_only_told_of_even_rows(client, index):
    frame = some(index)
    client.put("f", frame)
    back = client["f"].to_pandas().index
    assert back.freq == index.freq and back.equals(index) and type(back.freq) is type(index.freq)
    assert (back + back.freq).equals(index + index.freq)
    assert client["f"][3:7].to_pandas().index.freq == index[3:7].freq
    for at in (1, 2, 3, 4, 25, 49) if len(index) > 1 else ():
        with client.edit("f") as table:
            values = table["__index_level_0__"].to_numpy().view("i8")
            values[:] = index.asi8
            values[at] = values[0]
        assert client["f"].to_pandas().index.freq is None


def test_too_many_texts(client):
    with pytest.raises(ValueError, match="5000 columns that are not numbers, such as 'c0', and a table has at most 4096: put parts"):
        client.put("f", wide().astype(str).rename(columns=lambda i: f"c{i}"))


ODD = ["", "{", "[]", "null", '{"columns": 5}', '{"columns": [{}]}', '{"index_columns": ["a", "nothing"], "columns": []}',
       '{"columns": [{"name": "a", "field_name": "a", "pandas_type": "x", "numpy_type": "Made[up]"}]}',
       '{"columns": [{"name": "a", "field_name": "a", "pandas_type": "date", "numpy_type": "Int128"}]}',
       *(json.dumps({"columns": [{"name": "a", "field_name": "a", **odd}], "index_columns": levels})
         for levels in ([], ["a"], ["a", "a"]) for odd in (
             {"name": ["x"]}, {"metadata": 5}, {"metadata": {"freq": ["D"], "tzinfo": 7}}, {"numpy_type": "string[python]"},
             {"numpy_type": "Int64", "pandas_type": {}}, {"numpy_type": "list<x>[pyarrow]"}, {"numpy_type": 5},
             {"pandas_type": "categorical", "metadata": {"categories": "x"}}, {"numpy_type": "Period[M]"})),
       '{"column_indexes": [{"name": ["x"]}]}', '{"column_indexes": [{"numpy_type": "int8"}]}', '{"column_indexes": [5]}',
       *(json.dumps({"creator": {"library": "gpubufd"}, **odd}) for odd in (
           {"labels": 5}, {"labels": {"words": {"a": {"Timestamp": []}}, "dtypes": ["object"]}}, {"labels": {"words": {}, "dtypes": []}},
           {"labels": {"words": {"a": ["x", 1]}, "dtypes": ["object"] * 3}}, {"labels": {"words": {"a": 1}, "dtypes": [{}]}},
           {"packed": {"a": [["x"], [[0, 1]]]}}, {"packed": {"a": 5}}, {"packed": [1]})),
       '{"column_indexes": [{"name": null, "numpy_type": "object"}, {"name": null, "numpy_type": "int64"}]}',
       '{"index_columns": [{"kind": "range"}]}', '{"index_columns": [{"kind": "range", "start": 0, "stop": 9, "step": 1, '
       '"name": null}]}', '{"column_indexes": [{"numpy_type": "int64", "name": null}]}']


@pytest.mark.parametrize("text", ODD)
def test_odd_metadata_do_no_harm(client, text):
    """A table is anybody's: what its metadata say need not make sense."""
    column = ("a", "int64", 2, 0, 0, False, 0, (), None)
    layout = (3, 0, None, (), False, (None, "struct", 2, 0, 0, False, 0, (column,), (b"pandas", text.encode())))
    with client._create("odd", layout, gpubufd._params.options(replace=True)) as made:
        made["a"].write(np.array([3, 4]))
        made.seal()
    assert client["odd"].metadata == {"pandas": text}
    back = client["odd"].to_pandas()
    values = back["a"] if len(back.columns) else back.index.get_level_values(0)
    assert [int(value) for value in values] == [3, 4]


def test_a_series_has_no_place_for_an_index(client):
    series = pd.Series([1, 2], index=["x", "y"], name="v")
    with pytest.raises(ValueError, match="to_frame"):
        client.put("s", series)
    client.put("s", series.to_frame())
    pd.testing.assert_series_equal(client["s"].to_pandas()["v"], series)


@pytest.mark.parametrize("value", [
    True, "text", b"bytes", datetime.date(2020, 1, 1), datetime.time(1), decimal.Decimal("1.5"), [1], {"a": 1}])
def test_nan_is_pandas_word_for_a_missing_object(client, value):
    """A file of booleans in which one is missing is read so."""
    for values in ([value, np.nan, None], [np.nan, np.nan, value]):
        client.put("m", pd.DataFrame({"x": pd.Series(values, dtype=object)}), replace=True)
        there = [value if one is value else None for one in values]
        assert client["m"]["x"].tolist() == there and client["m"].to_pandas()["x"].tolist() == there
    for wrong in ([value, np.nan, 1.5], [value, np.nan, 1]):
        with pytest.raises(TypeError, match="column 'x': row 0 is a "):
            client.put("m", {"x": np.array(wrong + [None], dtype=object)}, replace=True)


def test_nan_as_null(client):
    frame = pd.DataFrame({"x": [1.5, np.nan, np.inf], "s": ["a", None, "c"], "i": [1, 2, 3]}, index=[7, 8, 9])
    client.put("nan", frame)
    client.put("null", frame, nan_as_null=True)
    assert (client["nan"]["x"].null_count, client["null"]["x"].null_count) == (0, 1)
    assert client["null"]["x"].tolist() == [1.5, None, float("inf")]
    pd.testing.assert_frame_equal(client["null"].to_pandas(), frame)
    for value in ({"x": [1.5, float("nan")]}, {"x": np.array([1.5, np.nan])}, {"x": pd.Series([1.5, np.nan])}):
        client.put("d", value, nan_as_null=True, replace=True)
        assert client["d"]["x"].tolist() == [1.5, None]
    client.put("c", np.ma.masked_array([1.0, np.nan, 3], [True, False, False]), nan_as_null=True)
    assert client["c"].tolist() == [None, None, 3.0]


def test_pyarrow_understands_it(client):
    pa = pytest.importorskip("pyarrow")
    for name, make in FRAMES.items():
        frame = make()
        if name in ("objects", "a range from 0 with a name"):
            continue  # pyarrow makes its own choices
        client.put("f", frame, replace=True)
        # Arrow's dictionaries are all that it sees of the levels of an index, and their order is not among them.
        there = client["f"].to_pyarrow().to_pandas()
        if frame.index.nlevels > 1:
            assert there.index.tolist() == frame.index.tolist()
            there.index = frame.index
        pd.testing.assert_frame_equal(there, frame, check_freq=False, check_categorical=False)
        if name not in ("rows without columns", "nothing", "levels of other kinds"):  # pyarrow calls two of these "c"
            client.put("g", pa.Table.from_pandas(frame), replace=True)
            pd.testing.assert_frame_equal(client["g"].to_pandas(), frame, check_freq=False)


# ---- frames of numbers: nothing is copied ----

ROWS = 20_000


def numbers(index=None, columns=tuple("abcdefghij")):
    return pd.DataFrame(np.random.default_rng(1).random((ROWS, len(columns))), index=index, columns=list(columns))


SHARED = {
    "plain": numbers,
    "filtered": lambda: numbers().query("a > 0.001"),
    "a named index": lambda: numbers().rename_axis("key"),
    "dates as index": lambda: numbers(pd.date_range("2020-01-01", periods=ROWS, freq="D")[::-1]),
    "numbers for names": lambda: numbers(columns=range(10)),
    "Int64": lambda: numbers().assign(k=pd.array(range(ROWS), dtype="Int64")),
    "Int64 with nulls": lambda: numbers().assign(k=pd.array([None, *range(ROWS - 1)], dtype="Int64")),
    "levels": lambda: numbers(pd.MultiIndex.from_product([range(ROWS // 100), range(100)])),
    "categories": lambda: numbers().assign(c=pd.Categorical(["x", "y"] * (ROWS // 2))),
    "two types": lambda: numbers().assign(i=range(ROWS), j=range(ROWS)),
}


def peak_of(work):
    """(result, the most bytes that Python and NumPy had allocated at a time)"""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", SHARED)
def test_numbers_are_shared(client, name):
    frame = SHARED[name]()
    size = frame.memory_usage(deep=False).sum()
    client.put("f", frame)
    table = client["f"]
    table.to_pandas()  # imports what it needs
    back, peak = peak_of(table.to_pandas)
    # pandas checks that dates have the frequency that is said, and makes such dates for it.
    assert peak < size * (0.75 if "dates" in name else 0.25), (peak, size)
    pd.testing.assert_frame_equal(back, frame, check_freq=False)
    for label in back.columns:
        if back[label].dtype.kind == "f":
            assert back[label].to_numpy().ctypes.data == table[str(label)].buffers.values.pointer
    if "Int64" in name:
        assert back.k.sum() == frame.k.sum() and back.groupby("k").a.sum().equals(frame.groupby("k").a.sum())


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_frame_of_one_type_is_one_array(client, order):
    """It has not a block for each column, neither here nor there."""
    values = np.array(np.random.default_rng(1).random((50, 300)), order=order)
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(300)], copy=False)
    client.put("f", frame)
    table = client["f"]
    assert table["c7"].tolist() == values[:, 7].tolist()
    back = table.to_pandas()
    pd.testing.assert_frame_equal(back, frame)
    assert back.to_numpy().ctypes.data == table["c0"].buffers.values.pointer
    for part, same in ((table[10:30], frame[10:30]), (table[["c9", "c3"]], frame[["c9", "c3"]]), (table[:0], frame[:0]),
                       (table[["c1", "c2", "c5"]], frame[["c1", "c2", "c5"]]), (table[49:], frame[49:])):
        pd.testing.assert_frame_equal(part.to_pandas().reset_index(drop=True), same.reset_index(drop=True))
    assert not back.to_numpy().flags.writeable


def test_to_put_one_array_copies_nothing_beside(client):
    frame = pd.DataFrame(np.asfortranarray(numbers()), copy=False)  # column by column, as pandas has its own
    client.put("f", frame)
    assert peak_of(lambda: client.put("g", frame))[1] < ROWS * 8
    assert peak_of(lambda: client.put("g", client["f"].to_pandas(), replace=True))[1] < ROWS * 8


def test_one_array_beside_a_view_of_strings(client):
    """The index alone is copied in another way."""
    pa = pytest.importorskip("pyarrow")
    if int(pd.__version__.partition(".")[0]) < 2:
        pytest.skip("no such dtype")
    frame = numbers(columns="ab")[:3]
    frame.index = pd.Index(["x", None, "y"], dtype=pd.ArrowDtype(pa.string_view()))
    client.put("f", frame)
    assert client["f"].names == ["a", "b", "__index_level_0__"] and client["f"]["__index_level_0__"].tolist() == ["x", None, "y"]
    assert client["f"].to_pandas()["b"].tolist() == frame["b"].tolist()


@pytest.mark.parametrize("change", [
    lambda a: a[:, ::-1], lambda a: a[::-1], lambda a: a[::3, ::2], lambda a: a.astype(">f8"), lambda a: a[:1],
    lambda a: a[:, :1], lambda a: a > 0.5, lambda a: (a * 100).astype("u1"), lambda a: a.astype("f2"),
    lambda a: np.where(a > 0.5, np.nan, a)])
def test_numbers_that_lie_otherwise(client, change):
    values = change(np.random.default_rng(1).random((30, 20)))
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(values.shape[1])], copy=False)
    client.put("f", frame)
    expected = frame.astype(frame.dtypes.iloc[0].newbyteorder("=")) if frame.dtypes.iloc[0].kind != "b" else frame
    pd.testing.assert_frame_equal(client["f"].to_pandas(), expected)
    client.put("n", frame, nan_as_null=True)
    pd.testing.assert_frame_equal(client["n"].to_pandas(), expected)


def test_attrs(client):
    frame = some(range(2))
    frame.attrs["unit"] = "m"
    client.put("f", frame)
    assert json.loads(client["f"].metadata["PANDAS_ATTRS"]) == {"unit": "m"}
    assert client["f"].to_pandas().attrs == {"unit": "m"}
    for odd in ({"a": object()}, {1: "a"}, {"a": (1, 2)}):
        frame.attrs = odd
        with pytest.warns(UserWarning, match="attrs are not kept") as caught:
            client.put("f", frame, replace=True)
        assert caught[0].filename == __file__
        assert client["f"].to_pandas().attrs == {}


@pytest.mark.parametrize("values", [
    [{"x": 1}, {"x": 2}], [[1], [2]], [None, None], ["a", "b"], [True, False], [b"a", None], [decimal.Decimal(1), None],
    [datetime.date(2020, 1, 1), None], [1, None], [1, 2], [0.5, 1.5]])
def test_a_table_of_equal_columns(client, values):
    """Without metadata, as other programs make them."""
    client.put("t", {"a": values, "b": values, "c": values})
    back = client["t"].to_pandas()
    assert back.columns.tolist() == ["a", "b", "c"] and len(back) == 2
    for name in "abc":
        pd.testing.assert_series_equal(back[name], client["t"][name].to_pandas())


def put_dictionaries(client, told, indices):
    """A table of two columns, "a" and "b", with the values 5 and 6."""
    values = ("values", "int64", 2, 0, 0, False, 0, (), None)
    numbers = ("indices", "int64", 2, 0, 0, False, 0, (), None)
    columns = tuple((name, "dictionary", 2, 0, 0, False, 0, (numbers, values), None) for name in "ab")
    layout = (3, 0, None, (), False, (None, "struct", 2, 0, 0, False, 0, columns, (b"pandas", json.dumps(told).encode())))
    with client._create("d", layout, gpubufd._params.options(replace=True)) as made:
        for name in "ab":
            made[name].children[0].write(np.array(indices))
            made[name].children[1].write(np.array([5, 6]))
        made.seal()


def test_columns_of_categories_alone(client):
    """Their indices, too, are numbers of one type at equal distances."""
    put_dictionaries(client, {}, [1, 0])
    pd.testing.assert_frame_equal(client["d"].to_pandas(), pd.DataFrame({n: pd.Categorical([6, 5]) for n in "ab"}))


@pytest.mark.parametrize("index", [False, True])
def test_a_dictionary_that_lies_is_refused(client, index):
    """pandas would follow its numbers to anywhere."""
    told = {"columns": [{"name": name, "field_name": name, "pandas_type": "int64", "numpy_type": "int64"} for name in "ab"],
            "index_columns": ["a", "b"] if index else [], "creator": {"library": "gpubufd"}}
    for wrong in ([0, 2], [0, -2], [0, 2**40]):
        put_dictionaries(client, told, wrong)
        with pytest.raises(ValueError, match="2 values has indices from"):
            client["d"].to_pandas()


def test_dates_far_away_come_out_of_any_table(client):
    """Here nothing in the metadata says that they were objects."""
    client.put("t", {"d": [datetime.date(9999, 12, 31), None]})
    day = client["t"].to_pandas()["d"][0]
    assert day == datetime.date(9999, 12, 31) or day == pd.Timestamp(9999, 12, 31)


def test_a_column_of_pandas_is_not_asked_for_what_it_lacks(client, monkeypatch):
    """Each such question takes microseconds, in frames of many columns a good part of put()."""
    asked = []

    def missing(self, name):
        asked.append(name)
        return before(self, name)

    before = pd.Series.__getattr__
    monkeypatch.setattr(pd.Series, "__getattr__", missing)
    client.put("t", pd.DataFrame({"a": ["x", "y"], "b": [1, 2], "c": pd.Categorical(["x", "x"])}))
    assert not {"to_pylibcudf", "__cuda_array_interface__", "__arrow_c_device_array__"} & set(asked)
