"""Columns and tables: from lists, NumPy, pandas and Arrow, and back."""

import contextlib
import datetime
import decimal
import gc
import io
import struct

import arrowc
import pytest

import gpubufd

UTC = datetime.timezone.utc
D = decimal.Decimal

LISTS = {
    "int64": [1, None, -3],
    "uint64": [2**63, None, 1],
    "float64": [1.5, None, float("inf")],
    "bool": [True, None, False] * 5,
    "utf8": ["a", None, "", "größer", "x" * 100],
    "binary": [b"a", None, b"\0\xff"],
    "timestamp[us]": [datetime.datetime(2020, 1, 2, 3, 4, 5, 6), None],
    "timestamp[us,UTC]": [datetime.datetime(1960, 1, 1, tzinfo=UTC), None],
    "date32": [datetime.date(2020, 2, 29), None],
    "duration[us]": [datetime.timedelta(days=-1, microseconds=5), None],
    "time64[us]": [datetime.time(1, 2, 3, 4), None],
    "decimal128(5,2)": [D("1.25"), None, D("-100")],
    "list": [[1, 2], None, [], [3]],
    "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
    "null": [None, None],
}


@pytest.mark.parametrize("dtype", LISTS)
def test_lists(client, dtype):
    values = LISTS[dtype]
    client.put("c", values)
    column = client["c"]
    assert isinstance(column, gpubufd.Column) and column.dtype == dtype
    assert column.tolist() == values
    assert column.null_count == values.count(None)
    assert column[1:].tolist() == values[1:] and column[0] == values[0]
    assert column[-1] == values[-1]
    for i, value in enumerate(values):
        assert column[i : i + 1].tolist() == [value]
    if "decimal" not in dtype and "t" not in dtype[:1]:
        assert column.to_numpy(fill=0).tolist()[0] == values[0] if dtype in ("int64", "bool") else True


@pytest.mark.parametrize("dtype", [d for d in LISTS if d in ("int64", "uint64", "float64", "bool",
                                                             "utf8", "binary", "list", "struct", "null")])
def test_arrow_export(client, dtype):
    values = LISTS[dtype]
    client.put("c", values)
    column = client["c"]
    assert arrowc.read_array(column) == values
    assert arrowc.read_array(column[1:]) == values[1:]
    assert arrowc.read_stream(column) == (values, 1)
    client.put("again", column[1:])
    assert client["again"].tolist() == values[1:]


def test_out_of_range(client):
    for values in ([datetime.timedelta.max], [2**64, 1], [-1, 2**63], [10**400, 0.5]):
        with pytest.raises(ValueError, match="range|64 bits"):
            client.put("x", values)


def test_table(client, np):
    rows = 1000
    price = np.linspace(1, 2, rows, dtype="f4")
    client.put("t", {"i": np.arange(rows), "price": price, "s": [f"s{i}" for i in range(rows)]})
    t = client["t"]
    assert isinstance(t, gpubufd.Table)
    assert len(t) == rows and t.shape == (rows, 3) and t.names == ["i", "price", "s"]
    with pytest.raises(AttributeError, match="table.names has the columns' names"):
        t.columns
    assert "price" in t and "cost" not in t
    np.testing.assert_array_equal(t["price"].to_numpy(), price)
    assert t["price"].to_numpy().ctypes.data == t["price"].buffers.values.pointer
    part = t[100:200]
    assert len(part) == 100 and part["s"][0] == "s100"
    assert part["price"].buffers.values.pointer == t["price"].buffers.values.pointer + 400
    assert part[10:20].tolist()[0]["i"] == 110
    assert t[1]._column_name == "price" and [c._column_name for c in t.values()] == t.names == list(t)
    assert set(dict(t)) == set(t.names)
    with pytest.raises(KeyError, match="no column 'cost'; there are i, price, s"):
        t["cost"]
    with pytest.raises(IndexError):
        t[3]
    assert arrowc.read_array(t)[1] == {"i": 1, "price": float(price[1]), "s": "s1"}
    assert arrowc.read_stream(part)[0][0]["s"] == "s100"


def test_some_columns(client, np):
    """A projection is a table like any other, over the same memory, and outlives what it is of."""
    client.put("t", {"a": np.arange(10), "b": [None if i == 3 else i * 1.5 for i in range(10)], "c": list("abcdefghij")})
    t = client["t"]
    some = t[["c", "a"]]
    assert isinstance(some, gpubufd.Table) and some.names == ["c", "a"] and some.shape == (10, 2)
    assert some["a"].buffers.values.pointer == t["a"].buffers.values.pointer and t.select("b").names == ["b"]
    part = some[2:5]
    assert part.tolist() == [{"c": "c", "a": 2}, {"c": "d", "a": 3}, {"c": "e", "a": 4}]
    assert t[2:6][["b"]][1:].tolist() == [{"b": None}, {"b": 6.0}, {"b": 7.5}]
    assert part[["a"]].tolist() == [{"a": 2}, {"a": 3}, {"a": 4}] and t[("a",)].names == ["a"]
    assert t[[]].shape == (10, 0) and t[[]].tolist() == []
    del t, some
    gc.collect()
    assert len(client.leases("t")) == 1
    assert arrowc.read_array(part) == part.tolist() and arrowc.read_stream(part)[1] == 1
    assert arrowc.read_device_stream(part) == (1, part.tolist(), 1)
    client.put("again", part)
    assert client["again"].tolist() == [{"c": "c", "a": 2}, {"c": "d", "a": 3}, {"c": "e", "a": 4}]
    assert "2 columns" in repr(part)
    column = part["c"]
    del part
    assert column.tolist() == ["c", "d", "e"]
    for wrong, error in ((["a", "x"], KeyError), (["a", "a"], ValueError), ([1], TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="x.*a, b, c" if error is KeyError else ""):
            client["t"][wrong]
    with client.create("made", {"a": "int8"}, 2) as made, pytest.raises(gpubufd.Busy):
        made[["a"]]


def test_empty_tables(client):
    client.put("none", {})
    assert client["none"].shape == (0, 0)
    client.put("rows", {"a": [], "b": []})
    assert client["rows"].shape == (0, 2) and client["rows"].tolist() == []
    assert arrowc.read_array(client["rows"]) == []


def test_nulls_in_numpy(client, np):
    client.put("t", {"i": [1, None, 3], "f": [1.5, None, 2.5], "d": [datetime.date(2020, 1, 1), None, None]})
    t = client["t"]
    with pytest.raises(ValueError, match=r"column 'i' of 't' has 1 nulls.*fill"):
        t["i"].to_numpy()
    assert t["i"].to_numpy(fill=-1).tolist() == [1, -1, 3]
    masked = t["i"].to_numpy(masked=True)
    assert masked.mask.tolist() == [False, True, False]
    assert np.isnan(t["f"].to_numpy()).tolist() == [False, True, False]
    assert np.isnat(t["d"].to_numpy()).tolist() == [False, True, True]
    for what in (memoryview, lambda c: c.__dlpack__(), lambda c: np.from_dlpack(c)):
        with pytest.raises(BufferError, match="nulls"):
            what(t["i"])
    assert t["i"].buffers.validity.to_numpy().tolist() == [True, False, True]
    assert t["i"][1:].buffers.validity.to_numpy().tolist() == [False, True]
    assert [t["i"].buffers.validity[k] for k in range(3)] == [True, False, True]
    assert t["f"].buffers.values.to_numpy()[2] == 2.5
    assert t["i"][2:].to_numpy().tolist() == [3] and memoryview(t["i"][2:]).tolist() == [3]


# ---- pandas ----


def test_pandas_shares_memory(client, np, pd):
    client.put("df", pd.DataFrame({"x": np.arange(1000.0)}))
    table = client["df"]
    series = table["x"].to_pandas()
    assert series.to_numpy().ctypes.data == table["x"].buffers.values.pointer
    del table
    assert series.sum() == 499500


# ---- Arrow, by C structs ----


def ints(*values):
    return struct.pack(f"<{len(values)}i", *values)


def bits(text):
    """ "1011" → a bitmap of valid elements, the first one first."""
    return int(text[::-1], 2).to_bytes((len(text) + 7) // 8, "little")


BATCHES = [
    ("i", "i", [(3, 1, 1, [bits("1101"), ints(9, 1, 2, 3)]), (2, 0, 0, [None, ints(4, 5)])]),
    ("s", "u", [(3, 1, 0, [None, ints(0, 1, 2, 4, 4), b"zabb"]), (2, 0, 1, [bits("01"), ints(0, 0, 2), b"xy"])]),
    ("b", "b", [(3, 0, 0, [None, bits("101")]), (2, 1, 0, [None, bits("001")])]),
]
JOINED = [
    {"i": 1, "s": "a", "b": True}, {"i": None, "s": "bb", "b": False}, {"i": 3, "s": "", "b": True},
    {"i": 4, "s": None, "b": False}, {"i": 5, "s": "xy", "b": True},
]


def test_batches_are_joined(client):
    producer = arrowc.StreamProducer(BATCHES)
    client.put("t", producer)
    t = client["t"]
    assert isinstance(t, gpubufd.Table) and t.tolist() == JOINED
    assert t["i"].null_count == 1
    assert arrowc.read_array(t) == JOINED
    one = arrowc.Producer([(n, f, b[:1]) for n, f, b in BATCHES])
    client.put("one", one)
    assert client["one"].tolist() == JOINED[:3]
    other = arrowc.Producer([(n, f, b[1:]) for n, f, b in BATCHES])
    client.put("many", [one, other])
    assert client["many"].tolist() == JOINED
    assert producer.released >= 2


def test_no_batches(client):
    client.put("t", arrowc.StreamProducer([(n, f, []) for n, f, _ in BATCHES]))
    assert client["t"].shape == (0, 3) and client["t"].names == ["i", "s", "b"]
    client.put("v", arrowc.StreamProducer([("s", "vu", []), ("z", "vz", [])]))
    assert client["v"].dtypes == {"s": "large_utf8", "z": "large_binary"} and len(client["v"]) == 0


def test_batches_of_intervals(client):
    """Their elements have 4, 8 and 16 bytes."""
    for format_, size in (("tiM", 4), ("tiD", 8), ("tin", 16)):
        data = bytes(range(1, 1 + 2 * size))
        client.put("t", arrowc.StreamProducer([("x", format_, [(2, 0, 0, [None, data]), (1, 1, 0, [None, data])])]),
                   replace=True)
        found = client["t"]["x"]
        assert found.tolist() == [*found[:2].tolist(), found[1]]
        assert bytes(memoryview(found.buffers.values).cast("B")) == data + data[size:]


def test_batches_with_dictionaries(client):
    entries = (2, 0, 0, [None, ints(0, 1, 3), b"abb"])
    columns = [("d", "i", [(2, 0, 0, [None, ints(0, 1)]), (1, 0, 0, [None, ints(1)])])]
    client.put("d", arrowc.StreamProducer(columns, ("u", entries)))
    assert client["d"]["d"].tolist() == ["a", "bb", "bb"]
    different = [entries, (2, 0, 0, [None, ints(0, 1, 3), b"xyz"])]
    with pytest.raises(ValueError, match="unify"):
        client.put("e", arrowc.StreamProducer(columns, ("u", different)))


def test_broken_batches(client):
    backwards = [("s", "u", [(2, 0, 0, [None, ints(0, 5, 1), b"abcde"])] * 2)]
    with pytest.raises(ValueError, match="backwards"):
        client.put("x", arrowc.StreamProducer(backwards))
    assert "x" not in client


def views(rows, offset=0):
    """A batch of views of strings: short ones lie in them, long ones in two buffers; before `offset` is nonsense."""
    data, made, bits = [b"##", b""], b"\xff" * 16 * offset, 0
    for i, text in enumerate(rows, offset):
        text, which = (b"", 0) if text is None else (text.encode(), i % 2)
        bits |= (rows[i - offset] is not None) << i
        if len(text) <= 12:
            made += struct.pack("<i12s", len(text), text)
        else:
            made += struct.pack("<i4sii", len(text), text[:4], which, len(data[which]))
            data[which] += text
    mask = bits.to_bytes((offset + len(rows)) // 8 + 1, "little") if None in rows else None
    sizes = struct.pack("<2q", *map(len, data))
    return len(rows), offset, rows.count(None), [mask, made, *data, sizes]


LONG = ["a", None, "", "twelve bytes", "thirteen byte", "größer als zwölf", "x" * 100, "ends"]


def test_views_of_strings(client):
    """As polars has them."""
    batches = [views(LONG), views(LONG[::-1], 3), views([]), views(["only one"])]
    numbers = [(batch[0], 0, 0, [None, bytes(8 * batch[0])]) for batch in batches]
    expected = LONG + LONG[::-1] + ["only one"]
    frame = arrowc.StreamProducer([("n", "l", numbers), ("s", "vu", batches)])
    client.put("frame", frame)
    assert client["frame"]["s"].tolist() == expected and client["frame"].dtypes == {"n": "int64", "s": "large_utf8"}
    assert client["frame"]["s"].null_count == 2 and client["frame"]["n"].tolist() == [0] * len(expected)

    client.put("bytes", arrowc.StreamProducer([("b", "vz", batches)]))
    assert client["bytes"]["b"].tolist() == [None if text is None else text.encode() for text in expected]
    client.put("dict", {"x": arrowc.StreamProducer([("s", "vu", batches)]), "n": list(range(len(expected)))})
    assert client["dict"].tolist() == [{"x": {"s": text}, "n": i} for i, text in enumerate(expected)]
    dictionary = arrowc.StreamProducer([("d", "I", [(3, 0, 0, [None, struct.pack("<3I", 1, 0, 1)])])],
                                       ("vu", views(["a", "a text of some length"])))
    client.put("dictionary", dictionary)
    assert client["dictionary"]["d"].tolist() == ["a text of some length", "a", "a text of some length"]


@pytest.mark.parametrize("which", ["length", "buffer", "offset", "past the end"])
def test_views_that_are_not_within_their_data(client, which):
    view = {"length": (-1, 0, 0, 0), "buffer": (13, 0, 2, 0), "offset": (13, 0, 0, -1), "past the end": (13, 0, 0, 1)}
    buffers = [None, struct.pack("<4i", *view[which]), b"thirteen byte", b"", struct.pack("<2q", 13, 0)]
    with pytest.raises(ValueError, match="not within its data"):
        client.put("bad", arrowc.StreamProducer([("s", "vu", [(1, 0, 0, buffers)])]))
    assert "bad" not in client


def test_export_outlives_all_else(client, daemon):
    """A moved child, released by itself, is the last thing that holds the lease."""
    client.put("t", {"a": [1, 2, 3], "b": ["x", "y", "z"]})
    other = gpubufd.connect(daemon.path, name="other")
    _, array = other.get("t").__arrow_c_array__()
    moved = arrowc.move(arrowc.struct_of(array, arrowc.Array), arrowc.Array())
    del other, array
    held = [lease for lease in client.leases("t") if lease["client"] == "other"]
    assert len(held) == 1
    child = arrowc.move(moved.children[0][0], arrowc.Array())
    moved.release(moved)
    assert [lease for lease in client.leases("t") if lease["client"] == "other"]
    assert arrowc.bytes_at(child.buffers[1], 24) == struct.pack("<3q", 1, 2, 3)
    child.release(child)
    assert not [lease for lease in client.leases("t") if lease["client"] == "other"]


def test_device_array_on_the_host(client):
    client.put("t", {"a": [1, None, 3]})
    schema, array = client["t"].__arrow_c_device_array__()
    device = arrowc.struct_of(array, arrowc.DeviceArray)
    assert (device.device_type, device.device_id, device.sync_event) == (1, -1, None)
    assert list(device.reserved) == [0, 0, 0]
    assert arrowc.values(arrowc.struct_of(schema, arrowc.Schema), device.array)[2] == {"a": 3}
    with pytest.raises(NotImplementedError):
        client["t"].__arrow_c_device_array__(stream=1)


# ---- reprs ----


def test_reprs(client, np):
    client.put("t", {"x": np.arange(100), "<s>": [f"<{i}>" for i in range(100)]})
    t = client["t"]
    text = repr(t)
    assert text.startswith("<gpubufd.Table 't': 100 rows × 2 columns, on host>") and "…" in text
    assert "99" in text and "50" not in text
    html = t._repr_html_()
    assert "<svg" in html and "from 0 to 99" in html and "&lt;s&gt;" in html and "<s>" not in html
    assert "int64 × 100" in repr(t["x"])
    assert "<path" in t["x"]._repr_html_()
    client.put("n", [float("nan"), None, 1e308, -1e308])
    assert "<svg" in client["n"]._repr_html_() and "null" in repr(client["n"])
    client.put("told apart", {"s": ["null", None, "…", "plain"]})
    shown = client["told apart"]._repr_html_()
    assert shown.count(">null<") == 1 and "&#x27;null&#x27;" in shown and "&#x27;…&#x27;" in shown and ">plain<" in shown
    with client.create("new", int, 3) as new:
        assert "not sealed" in repr(new) and "not sealed" in new._repr_html_()
    assert "released" in repr(new) and "released" in new._repr_html_()


def test_text_of_a_wide_table(client):
    """Columns that a terminal has no room for are left out, from the middle."""
    from gpubufd import _repr

    client.put("wide", {f"column {i}": ["x" * i, "y"] for i in range(9)})
    with client.get("wide") as table:
        blocks = [[name, column._dtype, *map(repr, column.tolist())] for name, column in table.items()]
        with contextlib.redirect_stdout(io.StringIO()):  # which is no terminal
            assert _repr._room() == 0 and all(f"column {i}" in repr(table) for i in range(9))
    widths = [2 + max(map(len, block)) for block in blocks]
    for room in range(1, sum(widths) + 3):
        shown = _repr._fitting(blocks, room)
        used = sum(2 + max(map(len, block)) for block in shown)
        if room >= sum(widths):
            assert shown == blocks
            continue
        left = shown.index(_repr.LEFT_OUT)
        right = len(shown) - left - 1
        assert 0 <= left - right <= 1 and left > 0
        assert shown == blocks[:left] + [_repr.LEFT_OUT] + blocks[len(blocks) - right:]
        assert used <= room or left + right == 1
        following = left if left <= right else len(blocks) - 1 - right
        assert used + widths[following] > room, "there was room for another"
