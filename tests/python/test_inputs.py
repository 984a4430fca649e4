"""Values of users that are not plain: each either goes in and comes out as they expect, as an array, as a
column and in a table, or is refused with a TypeError or ValueError that names the column and says what to do.
"""

import array
import datetime
import decimal
import struct

import arrowc
import pytest

import gpubufd

np = pytest.importorskip("numpy")


def same(found, expected):
    """Whether values are those expected: NaN is NaN, NaT is NaT, and types have not changed."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("="), (found.dtype, expected.dtype)
    np.testing.assert_array_equal(found, expected)


BASE = np.arange(24, dtype="f8").reshape(4, 6)


def read_only(values):
    values.flags.writeable = False
    return values


# name: (value, what it is to be); an array of any number of axes, each put as it is
ARRAYS = {
    "negative strides": (BASE[::-1, ::-1], None),
    "Fortran order": (np.asfortranarray(BASE), None),
    "byte-swapped": (BASE.astype(">f8"), None),
    "byte-swapped integers": (np.arange(5).astype(">i4"), None),
    "read-only": (np.frombuffer(bytes(range(8)), "u1"), None),
    "zero-size": (np.zeros((0, 3)), None),
    "zero-size, last axis": (np.zeros((3, 0), "i2"), None),
    "0-d": (np.array(7, "i2"), None),
    "scalar": (np.float32(1.5), np.array(1.5, "f4")),
    "Python number": (5, np.array(5)),
    "gaps": (BASE[:, ::3], None),
    "transposed view": (BASE.T[1:4], None),
    "broadcast": (np.broadcast_to(np.arange(3), (4, 3)), None),
    "overlapping windows": (np.lib.stride_tricks.sliding_window_view(np.arange(6), 3), None),
    "void": (np.array([b"ab\0", b"cde"], "V3"), None),
    "NaN and infinities": (np.array([np.nan, np.inf, -np.inf, -0.0]), None),
    "NaT": (np.array(["2020-01-01", "NaT"], "M8[ns]"), None),
    "NaT durations": (np.array([5, "NaT"], "m8[s]"), None),
    "byte-swapped times": (np.array(["2020-01-01"], ">M8[us]"), None),
    "days": (np.array(["2020-02-29", "1969-12-31"], "M8[D]"), None),
    "months": (np.array(["2020-02"], "M8[M]"), np.array(["2020-02-01"], "M8[s]")),
    "hours past nanoseconds' range": (np.array([2**33], "M8[h]"), np.array([2**33 * 3600], "M8[s]")),
    "tens of milliseconds, far away": (np.array([2**50 + 1], "M8[10ms]"), np.array([(2**50 + 1) * 10], "M8[ms]")),
    "25 seconds": (np.array([2], "m8[25s]"), np.array([50], "m8[s]")),
    "half floats": (np.array([1.5, -2], "f2"), None),
    "booleans with gaps": (np.array([True, False, True, True])[::2], None),
    "complex": (np.array([1 + 2j, -3j], "c8"), None),
    "memoryview of 2 axes, reversed": (memoryview(bytes(range(6))).cast("B", (2, 3)), np.arange(6, dtype="u1").reshape(2, 3)),
    "array.array": (array.array("h", [1, -2]), np.array([1, -2], "i2")),
    "subclass": (np.array([1, 2]).view(type("Mine", (np.ndarray,), {})), np.array([1, 2])),
    "read-only subclass of times": (read_only(np.array(["2020-01-01"], "M8[s]").view(type("Mine", (np.ndarray,), {}))), None),
    "recarray field": (np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]).b, np.array([2.0])),
    "subclass of 2 axes": (np.array([[1, 2], [3, 4]]).view(type("Mine", (np.ndarray,), {})).T, np.array([[1, 3], [2, 4]])),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(client, name):
    value, expected = ARRAYS[name]
    expected = np.asarray(value if expected is None else expected)
    client.put("a", value)
    a = client["a"]
    assert isinstance(a, gpubufd.Array) and a.shape == expected.shape
    same(a.to_numpy(), expected)
    same(np.asarray(a), expected)
    if expected.dtype.kind in "biuf" and expected.dtype.itemsize > 1 or expected.dtype.kind in "iu":
        same(np.from_dlpack(a), expected)
        same(memoryview(a), expected)
    client.put("again", a)
    same(client["again"].to_numpy(), expected)


# name: (value, the values of the column that it becomes)
COLUMNS = {
    "objects that are strings": (np.array(["a", None, "ü"], object), ["a", None, "ü"]),
    "objects that are numbers": (np.array([1, None, 3], object), [1, None, 3]),
    "objects: numbers of two types": (np.array([1, 2.5, None], object), [1.0, 2.5, None]),
    "NaN among strings": (np.array(["a", float("nan")], object), ["a", None]),
    "ragged lists": ([[1, 2], [], None, [3]], [[1, 2], [], None, [3]]),
    "ragged arrays": ([np.array([1, 2]), np.array([3])], [[1, 2], [3]]),
    "objects that are arrays": (np.array([np.array([1, 2]), None, np.array([3])], object), [[1, 2], None, [3]]),
    "lists in lists": ([[[1], []], [[2, 3]]], [[[1], []], [[2, 3]]]),
    "masked": (np.ma.masked_array([1, 2, 3], [0, 1, 0]), [1, None, 3]),
    "masked floats": (np.ma.masked_array([1.5, 2, 3], [0, 1, 0]), [1.5, None, 3]),
    "masked with gaps": (np.ma.masked_array(np.arange(6), [0, 1, 0, 0, 1, 0])[::2], [0, 2, None]),
    "masked, none is": (np.ma.masked_array([1, 2]), [1, 2]),
    "masked times": (np.ma.masked_array(np.array([0, 1], "M8[us]"), [1, 0]),
                     [None, datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "fixed strings": (np.array(["ab", "", "cde"]), ["ab", "", "cde"]),
    "byte-swapped strings": (np.array(["ab", "c"], ">U2"), ["ab", "c"]),
    "fixed bytes": (np.array([b"ab", b"c"]), [b"ab", b"c"]),
    "all missing": ([None, None], [None, None]),
    "range": (range(3), [0, 1, 2]),
    "empty": ([], []),
    "decimals": ([decimal.Decimal("1.10"), None], [decimal.Decimal("1.10"), None]),
    "dicts with different keys": ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(client, name):
    value, expected = COLUMNS[name]
    client.put("c", value)
    assert isinstance(client["c"], gpubufd.Column) and client["c"].tolist() == expected
    client.put("t", {"first": list(range(len(expected))), "c": value})
    assert client["t"]["c"].tolist() == expected
    assert client["t"]["c"].null_count == expected.count(None)
    client.put("again", client["t"])
    assert client["again"]["c"].tolist() == expected


# name: (value, the values of the column in a table)
IN_TABLES = {
    "negative strides": (np.arange(4)[::-1], [3, 2, 1, 0]),
    "gaps": (np.arange(6)[::2], [0, 2, 4]),
    "byte-swapped": (np.arange(3).astype(">i2"), [0, 1, 2]),
    "read-only": (np.frombuffer(b"\1\2", "u1"), [1, 2]),
    "broadcast": (np.broadcast_to(5, (3,)), [5, 5, 5]),
    "NaT becomes null": (np.array(["2020-01-01", "NaT"], "M8[us]"), [datetime.datetime(2020, 1, 1), None]),
    "NaT days": (np.array(["2020-01-01", "NaT"], "M8[D]"), [datetime.datetime(2020, 1, 1), None]),
    "NaN stays": (np.array([1.0, np.nan]), [1.0, pytest.approx(float("nan"), nan_ok=True)]),
    "booleans with gaps": (np.array([True, False] * 5)[::3], [True, False, True, False]),
    "half floats": (np.array([1.5, 2], "f2"), [1.5, 2.0]),
    "zero-size": (np.zeros(0, "f4"), []),
    "generator of numbers in a tuple": (tuple(i * 2 for i in range(3)), [0, 2, 4]),
    "array.array": (array.array("d", [1.5, 2.5]), [1.5, 2.5]),
    "memoryview": (memoryview(array.array("i", [1, 2, 3]))[::2], [1, 3]),
}


@pytest.mark.parametrize("name", IN_TABLES)
def test_in_tables(client, name):
    value, expected = IN_TABLES[name]
    client.put("t", {"c": value})
    assert client["t"]["c"].tolist() == expected


def test_structured_arrays(client):
    packed = np.array([(1, 2.5, b"ab", [1, 2])][0:0], dtype=[("i", ">i4"), ("f", "f8"), ("s", "S2")])
    client.put("none", packed)
    assert client["none"].names == ["i", "f", "s"] and len(client["none"]) == 0
    aligned = np.array([(1, 2.5), (2, 3.5), (3, 4.5)], dtype=np.dtype([("i", "i1"), ("f", "f8")], align=True))
    client.put("t", aligned[::2])
    assert client["t"].tolist() == [{"i": 1, "f": 2.5}, {"i": 3, "f": 4.5}]


REFUSED = {
    "objects of mixed types": (lambda: np.array([1, "a"], object), TypeError, "convert the column to one type"),
    "objects of no known type": (lambda: np.array([object()]), TypeError, "cannot be put"),
    "sets": (lambda: [{1, 2}], TypeError, r"row 0 is a set, which cannot be put: str\(…\) or pickle"),
    "masked of several axes": (lambda: np.ma.masked_array([[1, 2]], [[0, 1]]), TypeError, "filled"),
    "long doubles": (lambda: np.zeros(2, "g"), TypeError, "astype"),
    "long double complex": (lambda: np.zeros(2, "G"), TypeError, "astype"),
    "strings of several axes": (lambda: np.array([["a", "b"]]), TypeError, "one axis"),
    "objects of several axes": (lambda: np.array([["a", None]], object), TypeError, "one axis"),
    "structured of several axes": (lambda: np.zeros((2, 2), [("a", "i4")]), TypeError, "one axis"),
    "nested structured": (lambda: np.zeros(2, [("a", [("b", "i4")])]), (TypeError, ValueError), "'a'"),
    "structured with subarrays": (lambda: np.zeros(2, [("a", "i4", (3,))]), ValueError, "column 'a'.*one axis"),
    "times without a unit": (lambda: np.array([1], "m8"), TypeError, "unit"),
    "years of duration": (lambda: np.array([1], "m8[Y]"), TypeError, "days"),
    "picoseconds": (lambda: np.array([1], "M8[ps]"), TypeError, "ns"),
    "times that no unit of ours holds": (lambda: np.array([2**62], "M8[D]"), ValueError, "64 bits"),
    "None": (lambda: None, TypeError, "NoneType"),
    "a function": (len, TypeError, "can be put"),
    "a generator": (lambda: (i for i in range(3)), TypeError, r"list\(…\) of it can be"),
    "integers past 64 bits": (lambda: [2**64], ValueError, "64 bits"),
    "a lone surrogate": (lambda: ["\ud800"], ValueError, "Unicode"),
    "numbers and strings": (lambda: [1, "x"], TypeError, "row 1 a str"),
    "times with and without a zone": (
        lambda: [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)],
        TypeError, "time zone"),
    "a time of day with a zone": (lambda: [datetime.time(1, tzinfo=datetime.timezone.utc)], TypeError, "zone"),
    "decimals of too many digits": (lambda: [decimal.Decimal(10) ** 40], ValueError, "38"),
    "decimals that are not finite": (lambda: [decimal.Decimal("NaN")], ValueError, "finite"),
    "pointers": (lambda: memoryview((__import__("ctypes").c_void_p * 2)()), TypeError, "format"),
    "keys that are no strings": (lambda: [{1: 2}], TypeError, "keys"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(client, name):
    make, error, words = REFUSED[name]
    value = make if make is len else make()
    with pytest.raises(error, match=words):
        client.put("bad", value)
    if getattr(value, "dtype", None) is None or value.dtype.names is None:
        with pytest.raises((TypeError, ValueError), match="column 'which'"):
            client.put("bad", {"good": [1], "which": value})
    assert "bad" not in client


TABLES = {
    "rows of different number": (lambda: {"a": [1], "b": [1, 2]}, ValueError, "column 'b'.* 2 rows"),
    "a number": (lambda: {"a": 5}, TypeError, r"column 'a': 5 is one value: \[5\] is a column of one row.*json"),
    "a string": (lambda: {"a": "xyz"}, TypeError, r"column 'a': 'xyz' is one value: \['xyz'\]"),
    "too many columns": (lambda: {str(i): [i] for i in range(4097)}, ValueError, "at most 4096 columns, these are 4097: put_bundle"),
    "a 0-d array": (lambda: {"a": np.array(5)}, ValueError, "column 'a'.*one axis"),
    "two axes": (lambda: {"a": np.zeros((2, 2))}, ValueError, "column 'a'.*one axis"),
    "complex": (lambda: {"a": np.zeros(2, "c8")}, TypeError, "column 'a'.*array of its own"),
    "no str as a name": (lambda: {1: [1]}, TypeError, "column's name"),
    "a dict in a dict": (lambda: {"a": {"b": [1]}}, TypeError, "column 'a'"),
    "an empty name": (lambda: {"": [1], "b": [object()]}, TypeError, "column 'b'"),
}


@pytest.mark.parametrize("name", TABLES)
def test_refused_tables(client, name):
    make, error, words = TABLES[name]
    with pytest.raises(error, match=words):
        client.put("bad", make())
    assert "bad" not in client


# ---- pandas ----

PANDAS = {  # each dtype is in test_pandas_table.py
    "every second row": (lambda pd: pd.Series(range(10))[::2].reset_index(drop=True), None),
    "reversed": (lambda pd: pd.Series(range(4))[::-1].reset_index(drop=True), None),
    "an Index": (lambda pd: pd.Index([3, 1]), [3, 1]),
    "empty": (lambda pd: pd.Series([], dtype="f8"), None),
    "mixed numbers as objects": (lambda pd: pd.Series([1, 2.5], dtype=object), [1.0, 2.5]),
}


@pytest.mark.parametrize("name", PANDAS)
def test_pandas(client, pd, name):
    make, expected = PANDAS[name]
    value = make(pd)
    client.put("s", value)
    if expected is not None:
        assert client["s"].tolist() == expected
    else:
        pd.testing.assert_series_equal(client["s"].to_pandas(), value, check_names=False)
        client.put("t", pd.DataFrame({"x": value}))
        pd.testing.assert_frame_equal(client["t"].to_pandas(), pd.DataFrame({"x": value}))


PANDAS_REFUSED = {
    "sparse": (lambda pd: pd.Series(pd.arrays.SparseArray([0, 1])), "sparse.*dense"),
    "mixed types": (lambda pd: pd.Series([1, "x"]), "convert the column"),
    "an index that means something": (lambda pd: pd.Series([1, 2], index=["a", "b"]), "reset_index"),
    "a column called as the index would be": (lambda pd: pd.DataFrame({"__index_level_0__": [1]}, index=["k"]), "kept for the index"),
    "a MultiIndex": (lambda pd: pd.Series([1], index=pd.MultiIndex.from_tuples([(1, 2)])), "reset_index"),
    "two columns of one name": (lambda pd: pd.DataFrame([[1, 2]], columns=["a", "a"]), "same name"),
}


@pytest.mark.parametrize("name", PANDAS_REFUSED)
def test_pandas_refused(client, pd, name):
    make, words = PANDAS_REFUSED[name]
    value = make(pd)
    with pytest.raises((TypeError, ValueError), match=words):
        client.put("bad", value)
    if not hasattr(value, "columns") and "index" not in words:
        with pytest.raises((TypeError, ValueError), match="column 'which'.*" + words):
            client.put("bad", pd.DataFrame({"which": value}))
    assert "bad" not in client


def test_times_that_have_no_room(client, pd):
    """Far away in seconds: Python's and pandas' types cannot say it, and nothing wraps around."""
    far = np.array([2**40, 0], "M8[s]")
    client.put("t", {"when": far, "took": far.view("m8[s]"), "day": np.array([2**30, 0], "M8[D]")})
    t = client["t"]
    same(t["when"].to_numpy(), far)
    assert t["when"].tolist() == [far[0], datetime.datetime(1970, 1, 1)]
    assert t["took"].tolist()[1] == datetime.timedelta(0) and t["took"].tolist()[0] == far.view("m8[s]")[0]
    assert t["day"].tolist() == [np.datetime64(2**30, "D"), datetime.date(1970, 1, 1)]
    if int(pd.__version__.partition(".")[0]) < 2:
        with pytest.raises(ValueError, match="column 'when' of 't'.*to_numpy"):
            t.to_pandas()
    else:
        assert t["when"].to_pandas().dtype == "M8[s]"


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_matrix", "csr_array"])
def test_scipy_sparse(client, kind):
    sparse = pytest.importorskip("scipy.sparse")
    value = getattr(sparse, kind)(np.eye(3))
    with pytest.raises(TypeError, match="toarray"):
        client.put("s", value)
    with pytest.raises((TypeError, ValueError), match="column 'which'.*toarray"):
        client.put("s", {"which": value})


def test_sparse_like(client):
    """As SciPy's, which need not be here."""

    class Sparse:
        shape = (3, 3)

        def toarray(self):
            return np.eye(3)

    for value in (Sparse(), {"which": Sparse()}):
        with pytest.raises(TypeError, match="toarray"):
            client.put("s", value)


# ---- objects that misbehave ----


class Lying:
    def __init__(self, **interface):
        self.__array_interface__ = interface


def refuse(self, **keywords):
    raise BufferError("it requires a gradient: detach() it")


@pytest.mark.parametrize(
    "value",
    [
        Lying(version=3, shape=(2,), typestr="<f8", data=None),
        Lying(version=3, shape="x", typestr="<f8", data=(0, False)),
        type("Raises", (), {"__array__": lambda self, dtype=None: 1 / 0})(),
        type("NotArray", (), {"__array__": lambda self, dtype=None: 5})(),
        type("Stream", (), {"__arrow_c_stream__": lambda self, requested_schema=None: object()})(),
        type("Array", (), {"__arrow_c_array__": lambda self, requested_schema=None: (1, 2)})(),
        type("Device", (), {"__arrow_c_device_array__": lambda self, **keywords: (None, None)})(),
        type("Tensor", (), {"__dlpack__": lambda self, **keywords: None, "__dlpack_device__": lambda self: (1, 0)})(),
        type("Far", (), {"__dlpack__": lambda self, **keywords: None, "__dlpack_device__": lambda self: (99, 0)})(),
        type("Cuda", (), {"__cuda_array_interface__": {"shape": (1,), "typestr": "<f8"}})(),
        type("Cuda", (), {"__cuda_array_interface__": {"shape": (1,), "typestr": "|O8", "data": (0, True)}})(),
        type("Cuda", (), {"__cuda_array_interface__": 5})(),
        type("Gradient", (), {"__dlpack__": refuse, "__dlpack_device__": lambda self: (1, 0)})(),
    ],
    ids=range(13),
)
def test_misbehaving(client, value):
    for given in (value, {"which": value}):
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):  # the last is its own
            client.put("bad", given)
    assert "bad" not in client
    client.put("good", [1])


def test_arrow_types_that_there_are_not(client):
    advice = {
        "+vl": "cast it to list", "+r": "decode it", "+ud:0": "make a column of each type", "x": "cast it",
        "d:5,2,256": "cast it to decimal128",
    }
    for format_, way in advice.items():
        producer = arrowc.StreamProducer([("good", "i", []), ("which", format_, [])])
        with pytest.raises(TypeError, match=f"column 'which': .*{way}"):
            client.put("bad", producer)
        with pytest.raises(TypeError, match=f"column 'which.*{way}"):
            client.put("bad", {"which": arrowc.StreamProducer([("x", format_, [])])})
    assert "bad" not in client


def test_a_map_comes_back_as_a_map(client, pd):
    rows = [[{"key": "a", "value": 1}, {"key": "b", "value": None}], None, [], [{"key": "c", "value": 2}]]
    pairs = [row and [tuple(entry.values()) for entry in row] for row in rows]
    client.put("lists", {"x": rows})
    for start in (0, 1):
        part = client["lists"]["x"][start:]
        for value in (arrowc.Map(part), {"m": arrowc.Map(part)}):
            client.put("map", value, replace=True)
            held = client["map"] if isinstance(value, arrowc.Map) else client["map"]["m"]
            assert held.dtype == "map" and held.tolist() == pairs[start:] and held[3 - start] == pairs[3]
            assert held.to_pandas().tolist() == pairs[start:]
            told = held.__arrow_c_schema__()
            schema = arrowc.struct_of(told, arrowc.Schema)
            entries = schema.children[0].contents
            assert (schema.format, entries.format, entries.name) == (b"+m", b"+s", b"entries")
            assert [schema.flags & 2, entries.flags & 2] == [2, 0]  # what pyarrow insists on: keys are there
            assert [entries.children[i].contents.flags & 2 for i in range(2)] == [0, 2]
            client.put("again", held, replace=True)
            assert client["again"].dtype == "map" and client["again"].tolist() == pairs[start:]
    client.put("ints", {"x": [[1], [2]]})
    with pytest.raises(gpubufd.Invalid, match="a map is of structs of two fields"):
        client.put("bad", {"x": arrowc.Map(client["ints"]["x"])})


def test_intervals(client, pd):
    Interval = gpubufd.Interval
    given = {
        "month_interval": ("tiM", struct.pack("<3i", 14, 0, -1), [Interval(14), None, Interval(-1)]),
        "day_time_interval": ("tiD", struct.pack("<6i", 2, 1500, 0, 0, -1, -1),
                              [Interval(0, 2, 1_500_000_000), None, Interval(0, -1, -1_000_000)]),
        "month_day_nano_interval": ("tin", struct.pack("<iiqiiqiiq", 1, -2, 3, 0, 0, 0, 5, 0, -2**63),
                                    [Interval(1, -2, 3), None, Interval(5, 0, -2**63)]),
    }
    for dtype, (format_, data, values) in given.items():
        producer = arrowc.StreamProducer([("x", format_, [(3, 0, 1, [b"\5", data])])])
        client.put("i", producer, replace=True)
        column = client["i"]["x"]
        assert column.dtype == dtype and column.tolist() == values and column[2] == values[2]
        assert column[1:].tolist() == values[1:] and column.to_numpy().tolist() == values
        assert column.to_pandas().tolist() == values and dtype in repr(column)
        client.put("again", client["i"], replace=True)  # by Arrow's structs
        assert client["again"]["x"].dtype == dtype and client["again"]["x"].tolist() == values
    client.put("made", [Interval(1, 2, 3), None])
    assert client["made"].dtype == "month_day_nano_interval" and client["made"].tolist() == [Interval(1, 2, 3), None]
    with pytest.raises(ValueError, match="an interval is out of the range"):
        client.put("bad", [Interval(2**40)])
