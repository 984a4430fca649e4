"""Each dtype and index of pandas, and what becomes of it: the table of PYTHON-TYPES.md, against the pandas that is installed.

It holds for pandas 1.5, 2 and 3: `make interop` runs this file in an environment of each.
`python3 tests/python/test_pandas_table.py` writes the table anew.
"""

import datetime
import decimal
import re
import zoneinfo

import conftest
import pytest

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

GUIDE = conftest.ROOT / "docs" / "PYTHON-TYPES.md"
MAJOR = int(pd.__version__.partition(".")[0])
D, T = datetime.date, datetime.datetime
UTC, EAST = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=5, minutes=30))
SAME = "="


def arrow():
    return pytest.importorskip("pyarrow")


def objects(*values):
    return pd.Series(values, dtype=object)


def in_chunks(series):
    return pd.concat([series, series], ignore_index=True)


def zoned(zone, unit="ns"):
    times = pd.Series(pd.to_datetime(["2020-07-01 01:02:03.000004", None]).astype(f"M8[{unit}]"))
    return times.dt.tz_localize("UTC").dt.tz_convert(zone)


def dateutil(name):
    return pytest.importorskip("dateutil.tz").gettz(name)


def arrow_typed(kind, values):
    return lambda: pd.Series(values, dtype=pd.ArrowDtype(kind(arrow())))


NUMBERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]

# Kind: (the oldest pandas that has it, what it is published as, what comes back: SAME, another kind or the end of the
# refusal; examples)
COLUMNS = {
    "int8 … uint64, float16 … float64": (1, "the same type", SAME, [
        lambda kind=kind: pd.Series(np.array([1, 2, 3]), dtype=kind) for kind in [*NUMBERS, "f2", "f4", "f8"]] + [
        lambda: pd.Series([np.nan, -0.0, np.inf])]),
    "bool": (1, "`bool`", SAME, [lambda: pd.Series([True, False])]),
    "complex128": (1, "", "refused: put it as an array of its own", [lambda: pd.Series([1j, 2])]),
    "Int8 … UInt64, Float32, Float64": (1, "`int8` … `float64`, nulls", SAME, [
        lambda kind=kind, last=last: pd.Series([1, last], dtype=kind)
        for kind in ["Int8", "Int64", "UInt8", "UInt64", "Float32", "Float64"] for last in (None, 2)]),
    "boolean": (1, "`bool`, nulls", SAME, [lambda: pd.Series([True, None], dtype="boolean"),
                                           lambda: pd.Series([True, False], dtype="boolean")]),
    "string": (1, "`utf8` or `large_utf8`", SAME, [lambda: pd.Series(["a", None], dtype="string"),
                                 lambda: pd.Series(["a", None], dtype="string[python]"),
                                 lambda: arrow() and pd.Series(["a", None], dtype="string[pyarrow]"),
                                 lambda: arrow() and in_chunks(pd.Series(["a" * 99, None], dtype="string[pyarrow]"))]),
    "str (pandas 3)": (3, "`utf8` or `large_utf8`", SAME, [lambda: pd.Series(["a", None], dtype="str")]),
    "object: str": (1, "`utf8`", SAME, [lambda: objects("a", None), lambda: objects("a", "b")]),
    "object: bytes": (1, "`binary`", SAME, [lambda: objects(b"a", None)]),
    "object: int": (1, "`int64` or `uint64`", SAME, [lambda: objects(1, None), lambda: objects(2**63, 1),
                                                   lambda: objects(2**53 + 1, None)]),
    "object: int and float": (1, "`float64`", "equal floats", [lambda: objects(1, 0.5, None), lambda: objects(2**53, 0.5)]),
    "object: int and float, where a float would round the int": (
        1, "", "refused: convert the column to one type, for example to Decimal or with astype(str)", [
            lambda: objects(2**53 + 1, 0.5)]),
    "object: float, bool": (1, "`float64`, `bool`", SAME, [lambda: objects(0.5, None), lambda: objects(True, None)]),
    "object: Decimal": (1, "`decimal128`", SAME, [lambda: objects(decimal.Decimal("1.10"), None)]),
    "object: date": (1, "`date32`", SAME, [
        lambda: objects(D(2020, 1, 1), None), lambda: objects(D(9999, 12, 31), D(1, 1, 1), None)]),
    "object: datetime, Timestamp": (1, "`timestamp[us]`, with nanoseconds `timestamp[ns]`", SAME, [
        lambda: objects(T(2020, 1, 1, 2), None), lambda: objects(T(9999, 12, 31), None),
        lambda: objects(pd.Timestamp("2020-01-01 00:00:00.000000001"), None)]),
    "object: the same with one zone": (1, "`timestamp[us,ZONE]`", SAME, [
        lambda: objects(T(2020, 1, 1, tzinfo=UTC), None), lambda: objects(T(9999, 12, 31, tzinfo=EAST), None),
        lambda: objects(T(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), None),
        lambda: objects(pd.Timestamp("2020-01-01", tz="Europe/Berlin"), pd.Timestamp("2020-07-01", tz="Europe/Berlin"))]),
    "object: the same with several zones": (
        1, "", "refused: convert them to one, for example with pandas.to_datetime(…, utc=True)", [
            lambda: objects(T(2020, 1, 1, tzinfo=UTC), T(2020, 1, 1, tzinfo=EAST)),
            lambda: objects(T(2020, 1, 1), T(2020, 1, 1, tzinfo=UTC))]),
    "object: timedelta": (1, "`duration[us]`, with nanoseconds `duration[ns]`", SAME, [
        lambda: objects(datetime.timedelta(1), None), lambda: objects(pd.Timedelta(1, "ns"), None)]),
    "object: time": (1, "`time64[us]`", SAME, [lambda: objects(datetime.time(1, 2), None)]),
    "object: list": (1, "`list`", SAME, [lambda: objects([1], [2, 3], None)]),
    "object: tuple, array": (1, "`list`", "lists", [
        lambda: objects((1, 2), None), lambda: objects(np.array([1, 2]), None)]),
    "object: dict": (1, "`struct`", SAME, [lambda: objects({"a": 1}, {"a": 2}, None)]),
    "object: dicts of different keys": (1, "`struct`", "all keys in each, None where one was not", [
        lambda: objects({"a": 1}, {"b": 2})]),
    "object: of several other types": (1, "", "refused: convert the column to one type, for example with astype(str)", [
        lambda: objects(1, "a"), lambda: objects("a", b"a"), lambda: objects(D(2020, 1, 1), T(2020, 1, 1))]),
    "category": (1, "`dictionary`", SAME, [
        lambda: pd.Series(pd.Categorical(["x", "y", None])), lambda: pd.Series(pd.Categorical([3, 1])),
        lambda: pd.Series(pd.Categorical(["x", "y"], ["y", "x"], ordered=True)), lambda: pd.Series(pd.Categorical([])),
        lambda: pd.Series(pd.Categorical(pd.to_datetime(["2020", "2021"]))), lambda: pd.Series(pd.Categorical([None])),
        lambda: pd.Series(pd.Categorical([D(2020, 1, 1), D(9999, 1, 1)])),
        lambda: pd.Series(pd.Categorical(pd.array([1, 2], dtype="Int64"))),
        lambda: pd.Series(pd.Categorical(pd.array(["a", "b"], dtype="string")))]),
    "category of intervals, as of `pd.cut`": (1, "`dictionary` of `struct`", SAME, [
        lambda: pd.Series(pd.cut([1, 5, 9], 3)), lambda: pd.Series(pd.cut([1, 5, np.nan], [0, 2, 6], right=False)),
        lambda: pd.Series(pd.qcut(range(8), 4))]),
    "datetime64[ns]": (1, "`timestamp[ns]`", SAME, [
        lambda: pd.Series(pd.to_datetime(["2020-01-01 01:02:03.000000004", None]))]),
    "datetime64[s, ms, us] (pandas 2)": (2, "`timestamp[s]` …", SAME, [
        lambda unit=unit: pd.Series(np.array(["9999-12-31", "NaT"], f"M8[{unit}]")) for unit in ("s", "ms", "us")]),
    "datetime64[ns, ZONE]": (1, "`timestamp[ns,ZONE]`", SAME, [
        lambda: zoned("Europe/Berlin"), lambda: zoned("UTC"), lambda: zoned(zoneinfo.ZoneInfo("Asia/Kolkata"))]),
    "the same, a fixed offset": (1, "`timestamp[ns,+05:30]`", SAME, [
        lambda: zoned(EAST), lambda: pd.Series(pd.to_datetime(["2020-01-01T00:00:00+05:30", None])),
        lambda: pd.Series(pd.to_datetime(["2020-01-01T00:00:00-03:30"])), lambda: zoned(UTC),
        lambda: zoned(pytest.importorskip("pytz").FixedOffset(330)),
        lambda: zoned(pytest.importorskip("dateutil.tz").tzoffset(None, -3600))]),
    "the same, dateutil's zones": (1, "`timestamp[ns,ZONE]`", SAME, [
        lambda: zoned(dateutil("America/New_York")), lambda: zoned("dateutil/Europe/Berlin"), lambda: zoned(dateutil("UTC"))]),
    "the same, an offset with seconds": (
        1, "", "refused: convert the times to another, for example with dt.tz_convert('UTC') or "
        "astimezone(datetime.timezone.utc)", [lambda: zoned(datetime.timezone(datetime.timedelta(seconds=61)))]),
    "timedelta64": (1, "`duration[ns]`", SAME, [lambda: pd.Series(pd.to_timedelta([1, None], "ns"))]),
    "period": (1, "`int64`", SAME, [
        lambda freq=freq: pd.Series(pd.period_range("2020-01", periods=2, freq=freq)) for freq in ("M", "D", "Q-DEC", "2D")]
        + [lambda: pd.Series(pd.PeriodIndex(["2020-01", None], freq="M"))]),
    "interval": (1, "`struct`", SAME, [
        lambda: pd.Series(pd.interval_range(0, 2)), lambda: pd.Series(pd.interval_range(0.0, 2, closed="left")),
        lambda: pd.Series(pd.arrays.IntervalArray.from_tuples([(0.5, 1), None])),
        lambda: pd.Series(pd.interval_range(pd.Timestamp("2020"), periods=2)),
        lambda: pd.Series(pd.interval_range(pd.Timestamp("2020", tz="Europe/Berlin"), periods=2))]),
    "Sparse": (1, "", "refused: series.sparse.to_dense() makes it dense", [lambda: pd.Series(pd.arrays.SparseArray([0, 1]))]),
    "ArrowDtype": (1, "Arrow's type", SAME, [
        arrow_typed(lambda pa: pa.int64(), [1, None]), arrow_typed(lambda pa: pa.float32(), [1, None]),
        arrow_typed(lambda pa: pa.bool_(), [True, None]), arrow_typed(lambda pa: pa.timestamp("us", "UTC"), [T(2020, 1, 1), None]),
        arrow_typed(lambda pa: pa.date32(), [D(2020, 1, 1), None]), arrow_typed(lambda pa: pa.list_(pa.int8()), [[1], None]),
        arrow_typed(lambda pa: pa.decimal128(5, 2), [decimal.Decimal("1.1"), None]),
        arrow_typed(lambda pa: pa.struct([("a", pa.int64())]), [{"a": 1}, None]),
        arrow_typed(lambda pa: pa.large_string(), ["a", None])]),
    "ArrowDtype of string": (1, "`utf8`", "string[pyarrow]: pandas has one name for both", [
        arrow_typed(lambda pa: pa.string(), ["a", None])]),
}


def rows(count):
    return np.arange(count) * 0.5


def indexed(index):
    return lambda: pd.DataFrame({"x": rows(len(index()))}, index=index())


INDEXES = {
    "RangeIndex": (1, "nothing", SAME, [indexed(lambda: pd.RangeIndex(3)), indexed(lambda: pd.RangeIndex(5, 15, 2, name="r"))]),
    "of int64": (1, "a column", SAME, [indexed(lambda: pd.Index([5, 7], name="key")), indexed(lambda: pd.Index([1, 1, 0]))]),
    "of int64 that is 0, 1, 2, … without a name": (1, "nothing", "RangeIndex", [indexed(lambda: pd.Index([0, 1, 2]))]),
    "of other numbers, bool": (1, "a column", SAME, [
        indexed(lambda: pd.Index([0.5, 1.5])), indexed(lambda: pd.Index(np.array([0, 1], "u1"))),
        indexed(lambda: pd.Index([True, False])), indexed(lambda: pd.Index(np.array([0, 1], "f4")))]),
    "of Int64, Float64, boolean, string": (1, "a column", SAME, [
        indexed(lambda: pd.Index([1, None], dtype="Int64")), indexed(lambda: pd.Index([0, 1], dtype="Int64")),
        indexed(lambda: pd.Index([0.5, None], dtype="Float64")), indexed(lambda: pd.Index([True, None], dtype="boolean")),
        indexed(lambda: pd.Index(["a", None], dtype="string"))]),
    "of text": (1, "a column", SAME, [indexed(lambda: pd.Index(["a", "b"])), indexed(lambda: pd.Index(["a", "b"], dtype=object))]),
    "of other objects of one type": (1, "a column", SAME, [
        indexed(lambda: pd.Index([D(2020, 1, 1), D(9999, 1, 1)], dtype=object)),
        indexed(lambda: pd.Index([1, None], dtype=object))]),
    "DatetimeIndex, with its `freq` and zone": (1, "a column", SAME, [
        indexed(lambda: pd.date_range("2020-01-01", periods=4, freq="D", name="day")),
        indexed(lambda: pd.date_range("2020-03-28", periods=4, freq="D", tz="Europe/Berlin")),
        indexed(lambda: pd.to_datetime(["2020-01-01T00:00:00+05:30"])),
        indexed(lambda: pd.to_datetime(["2020-01-01", None])), indexed(lambda: pd.date_range("2020", periods=2, tz="UTC"))]),
    "TimedeltaIndex": (1, "a column", SAME, [indexed(lambda: pd.to_timedelta(range(3), "s")),
                                             indexed(lambda: pd.timedelta_range("1D", periods=3, freq="D"))]),
    "PeriodIndex, IntervalIndex": (1, "a column", SAME, [
        indexed(lambda: pd.period_range("2020-01", periods=2, freq="M")), indexed(lambda: pd.interval_range(0, 2))]),
    "CategoricalIndex": (1, "a column", SAME, [
        indexed(lambda: pd.CategoricalIndex(["q", "r", "q"], ["r", "q"], ordered=True)),
        indexed(lambda: pd.CategoricalIndex(["q", None]))]),
    "MultiIndex, of levels of all these kinds": (1, "a column of `dictionary` for each level", SAME, [
        indexed(lambda: pd.MultiIndex.from_product([["x", "y"], [1, 2, 3]], names=["letter", None])),
        indexed(lambda: pd.MultiIndex.from_arrays([["x", None], [1.5, np.nan], pd.to_datetime(["2020", None])])),
        indexed(lambda: pd.MultiIndex.from_arrays([pd.Categorical(["x", "y"], ["y", "x"], ordered=True), [D(2020, 1, 1)] * 2])),
        indexed(lambda: pd.MultiIndex.from_arrays([pd.date_range("2020", periods=2, tz="Europe/Berlin"), [0, 1]])),
        indexed(lambda: pd.MultiIndex.from_arrays([pd.array([1, None], dtype="Int64"), ["a", "b"]])),
        indexed(lambda: pd.MultiIndex.from_arrays([pd.interval_range(0, 2), pd.period_range("2020", periods=2, freq="D")])),
        indexed(lambda: pd.MultiIndex.from_product([["x", "y"], [1, 2, 3]])[[1, 4]]),
        indexed(lambda: pd.MultiIndex.from_arrays([[], []]))]),
    "MultiIndex of one level": (
        1, "", "refused: frame.index.get_level_values(0) makes a plain one of it", [
            indexed(lambda: pd.MultiIndex.from_arrays([[1, 2]]))]),
    "of objects of several types": (1, "", "refused: convert the column to one type, for example with astype(str)", [
        indexed(lambda: pd.Index([1, "a"], dtype=object))]),
}


def labelled(*labels, **more):
    return lambda: pd.DataFrame([rows(len(labels))], columns=pd.Index(labels, **more))


def levels(*parts, **more):
    return lambda: pd.DataFrame([rows(len(parts[0]))], columns=pd.MultiIndex.from_arrays(parts, **more))


def many():
    frame = pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 2, 3], "c": [0.5, 1.5, 2.5]})
    return frame.groupby("a").agg({"b": ["mean", "sum"], "c": "max"})


def with_label():
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3))
    frame["label"] = ["a", "b", "a", "b"]
    return frame


LABELS = {
    "text": (1, "", SAME, [labelled("a", "b"), labelled("a", "b", name="what"), labelled("a", "b", dtype=object)]),
    "whole numbers": (1, "", SAME, [labelled(0, 1), labelled(7, 3, name="n"), lambda: pd.DataFrame([rows(3)]),
                                    lambda: pd.DataFrame([rows(3)]).rename_axis(columns=3), labelled(0, 5, dtype="u1")]),
    "text as a CategoricalIndex or `string`": (1, "", SAME, [
        labelled("a", "b", dtype="category"), labelled("a", "b", dtype="string"), labelled(2, 1, dtype="category")]),
    "floats, bool, Int64": (1, "", SAME, [
        labelled(0.5, -1e300), labelled(0.1, np.nan), labelled(True, False), labelled(1, 0, dtype="Int64"),
        labelled(0.5, dtype="f4")]),
    "dates, times, periods, intervals": (1, "", SAME, [
        labelled(pd.Timestamp("2020"), pd.Timestamp("2021-01-01 00:00:00.000000001")),
        lambda: pd.DataFrame([rows(3)], columns=pd.to_datetime(["2020", "2021", None])),
        lambda: pd.DataFrame([rows(2)], columns=pd.to_datetime(["2020", "2021"]).tz_localize("Europe/Berlin")),
        labelled(D(2020, 1, 1), D(9999, 1, 1), dtype=object), labelled(T(2020, 1, 1), T(2020, 1, 1, 1), dtype=object),
        labelled(pd.Timedelta(1, "s")), lambda: pd.DataFrame([rows(2)], columns=pd.period_range("2020-01", periods=2, freq="M")),
        lambda: pd.DataFrame([rows(3)], columns=pd.interval_range(0, 3)),
        lambda: pd.DataFrame([rows(2)], columns=pd.cut([1, 5, 9], 2).categories)]),
    "of several types, or tuples": (1, "", SAME, [
        with_label, labelled("a", 1, 0.5, None, dtype=object), labelled(1, "1", "1'", dtype=object),
        labelled(decimal.Decimal("1.10"), D(2020, 1, 1), dtype=object), labelled(1, pd.Timestamp("2020"), pd.NaT, dtype=object),
        lambda: pd.DataFrame([[1, 2]], columns=pd.Index([("a", 1), ("a",)], tupleize_cols=False))]),
    "of several levels": (1, "", SAME, [
        many, levels(["a", "a"], ["b", "c"], names=["x", None]), levels([0, 1], ["b", "b"]), levels([0.5, 1], [2, 3], [4, 5]),
        levels(pd.to_datetime(["2020", "2021"]), ["a", "b"]), levels(["a", 1], [True, False]),
        levels(["x's", 'y"'], ["(", ","]), levels(pd.Categorical(["a", "b"], ["b", "a"]), [D(2020, 1, 1)] * 2),
        lambda: many().reset_index()]),
    "others": (1, "", "refused: frame.rename(columns=str) makes text of the labels", [
        labelled(b"a"), labelled(frozenset()), labelled(1, object(), dtype=object)]),
    "the same twice": (1, "", "refused: several columns have the same name", [lambda: pd.DataFrame([[1, 2]], columns=["a", "a"])]),
    "`attrs` that JSON can say": (1, "", SAME, [lambda: with_attrs({"unit": "m", "n": [1, {"a": None}]})]),
}


def with_attrs(attrs):
    frame = pd.DataFrame({"a": [1, 2]})
    frame.attrs.update(attrs)
    return frame


PARTS = {"a column of": COLUMNS, "an index": INDEXES, "labels of columns": LABELS}


def as_frame(made):
    return made.rename("x").to_frame() if hasattr(made, "to_frame") and not hasattr(made, "columns") else made


def plainly(value):
    """A value with lists for tuples and arrays."""
    return list(value) if isinstance(value, (tuple, np.ndarray)) else value


def check_change(frame, back, to):
    """One of the rows that do not come back the same."""
    if to == "lists":
        assert back.x.tolist() == [plainly(value) for value in frame.x]
    elif to == "equal floats":
        assert back.x.dropna().tolist() == frame.x.dropna().tolist() and {type(value) for value in back.x.dropna()} == {float}
    elif to.startswith("all keys"):
        assert back.x.tolist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    elif to == "RangeIndex":
        assert isinstance(back.index, pd.RangeIndex)
        pd.testing.assert_frame_equal(back, frame)
    else:
        assert to.startswith("string[pyarrow]") and back.x.dtype == "string[pyarrow]" and back.x.tolist() == frame.x.tolist()


def same(back, frame):
    exact = {"check_index_type": "exact"} if not isinstance(frame.index, pd.RangeIndex) else {}
    pd.testing.assert_frame_equal(back, frame, check_freq=True, check_exact=True, **exact)
    assert back.attrs == frame.attrs
    assert [type(label) for label in back.columns] == [type(label) for label in frame.columns]
    if frame.index.nlevels > 1:
        found, expected = ([getattr(level, "freq", None) for level in one.index.levels] for one in (back, frame))
        assert found == expected
    for i in range(len(frame.columns)):
        if frame.dtypes.iloc[i] == object:
            for a, b in zip(back.iloc[:, i], frame.iloc[:, i]):
                missing = [pd.isna(one) if not isinstance(one, (list, dict)) else False for one in (a, b)]
                assert missing[0] == missing[1] and (missing[0] or a == b), (a, b)
                if isinstance(b, T) and not missing[0]:
                    assert a.utcoffset() == b.utcoffset()


def check_published(held, frame, part, published):
    """The second cell: dtypes without their parameters, or how many columns the index makes."""
    beside = len(held.names) - len(frame.columns)
    if part == "an index":
        assert beside == {"nothing": 0, "a column": 1}.get(published, frame.index.nlevels)
        assert "dictionary" not in published or {held[name].dtype for name in held.names[1:]} == {"dictionary"}
    elif part == "a column of" and "…" not in published and published != "Arrow's type":
        there = held["x"].dtype.partition("[")[0].partition("(")[0]
        assert there in re.findall(r"`([a-z0-9_]+)", published) or (published, there) == ("the same type", str(frame.x.dtype))


@pytest.mark.parametrize("part,kind", [(part, kind) for part in PARTS for kind in PARTS[part]])
def test_it_comes_back(client, part, kind):
    since, published, to, examples = PARTS[part][kind]
    if MAJOR < since:
        pytest.skip(f"pandas {pd.__version__} has no such kind")
    done = 0
    for example in examples:
        try:
            frame = as_frame(example())
        except pytest.skip.Exception:  # a library is not there
            continue
        done += 1
        if to.startswith("refused: "):
            with pytest.raises((TypeError, ValueError)) as caught:
                client.put("f", frame, replace=True)
            assert str(caught.value).endswith(to[len("refused: "):]), str(caught.value)
            assert part != "a column of" or "'x'" in str(caught.value)
            continue
        client.put("f", frame, replace=True)
        check_published(client["f"], frame, part, published)
        back = client["f"].to_pandas()
        if to != SAME:
            check_change(frame, back, to)
            continue
        same(back, frame)
        client.put("again", back, replace=True)
        same(client["again"].to_pandas(), frame)
        if part == "a column of":
            same(client["f"][:0].to_pandas(), frame[:0])
            twice = pd.concat([frame, frame.rename(columns={"x": "y"})], axis=1)
            client.put("f", twice, replace=True)
            same(client["f"].to_pandas(), twice)
    if not done:
        pytest.skip("needs a library that is not installed")


def table():
    lines = ["| | is published as | `to_pandas()` |", "| --- | --- | --- |"]
    for part, kinds in PARTS.items():
        lines.append(f"| **{part}** | | |")
        lines += [f"| {kind} | {published} | {to} |" for kind, (_, published, to, _) in kinds.items()]
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- types of pandas -->\n\n", "\n<!-- -->\n"


def test_the_guide_has_this_table():
    assert GUIDE.read_text().partition(BEGIN)[2].partition(END)[0] == table()


if __name__ == "__main__":
    before, _, after = GUIDE.read_text().partition(BEGIN)
    GUIDE.write_text(before + BEGIN + table() + END + after.partition(END)[2])
