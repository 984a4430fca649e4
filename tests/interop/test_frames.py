"""polars and DuckDB: each type that they have, both ways, by their own equality."""

import datetime
import decimal

import pytest

DAY, TIME = datetime.date(2020, 2, 29), datetime.time(1, 2, 3, 4)
NOON = datetime.datetime(2020, 2, 29, 12, 0, 0, 5)


# ---- polars ----


@pytest.fixture
def pl():
    return pytest.importorskip("polars")


def polars_columns(pl):
    """{type: values}, each with a null."""
    whole = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
    made = {str(kind): pl.Series([1, None, 100], dtype=kind) for kind in whole}
    made.update({
        "Float32": pl.Series([1.5, None, -0.0], dtype=pl.Float32), "Float64": pl.Series([1.5, None, float("inf")]),
        "Boolean": pl.Series([True, None, False]), "String": pl.Series(["a", None, "äöü" * 9]),
        "Binary": pl.Series([b"a", None, b"\0" * 99]), "Date": pl.Series([DAY, None, DAY]),
        "Time": pl.Series([TIME, None, TIME]), "Null": pl.Series([None, None, None]),
        **{f"Datetime {unit}": pl.Series([NOON, None, NOON], dtype=pl.Datetime(unit)) for unit in ("ms", "us", "ns")},
        "Datetime UTC": pl.Series([NOON, None, NOON], dtype=pl.Datetime("us")).dt.replace_time_zone("UTC"),
        "Datetime Europe/Berlin": pl.Series([NOON, None, NOON], dtype=pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin"),
        **{f"Duration {unit}": pl.Series([datetime.timedelta(1), None, datetime.timedelta(0)], dtype=pl.Duration(unit))
           for unit in ("ms", "us", "ns")},
        "Decimal": pl.Series([decimal.Decimal("1.10"), None, decimal.Decimal("-2.20")], dtype=pl.Decimal(20, 2)),
        "Categorical": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "Enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])),
        "List": pl.Series([[1, None], None, []], dtype=pl.List(pl.Int64)),
        "List of String": pl.Series([["a"], None, [None, "b"]], dtype=pl.List(pl.String)),
        "Array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int32, 2)),
        "Struct": pl.Series([{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}]),
    })
    return made


def test_polars_types_there_and_back(there, pl):
    from polars.testing import assert_frame_equal

    for name, series in polars_columns(pl).items():
        frame = pl.DataFrame({"c": series})
        for case in (frame, frame.drop_nulls() if name != "Null" else frame, frame[1:], frame[:0],
                     pl.concat([frame, frame], rechunk=False)):
            expected = case.cast({"c": pl.String}) if name in ("Categorical", "Enum") else case
            table = there(case)
            for got in (pl.DataFrame(table), pl.from_arrow(table.to_pyarrow())):
                if name in ("Categorical", "Enum"):  # a dictionary of text, which polars takes for one of these
                    got = got.cast({"c": pl.String})
                assert_frame_equal(got, expected)
            alone = pl.Series(there(case["c"]))
            assert alone.rename("").cast(expected["c"].dtype).to_list() == expected["c"].to_list(), name


def test_polars_reads_in_place(client, there, pl):
    column = there({"n": list(range(1000))})["n"]
    series = pl.Series(column)
    view = series.to_numpy(allow_copy=False)
    assert view.__array_interface__["data"] == (column.buffers.values.pointer, True)
    del column, view
    client.delete("x")
    assert series.sum() == 499500
    grown = series.clone()
    grown[0] = 7  # polars copies what it shares
    assert grown[0] == 7 and series[0] == 0


def test_polars_computes(there, pl):
    frame = pl.DataFrame(there({"k": ["a", "b", "a"], "n": [1, None, 3]}))
    assert frame.group_by("k").agg(pl.col("n").sum()).sort("k").rows() == [("a", 4), ("b", 0)]
    assert frame.lazy().filter(pl.col("n") > 1).collect().rows() == [("a", 3)]


# ---- DuckDB ----


@pytest.fixture
def duckdb():
    return pytest.importorskip("duckdb")


DUCK_TYPES = {
    "BOOLEAN": "true", "TINYINT": "-1", "SMALLINT": "-2", "INTEGER": "-3", "BIGINT": "-4", "UTINYINT": "1",
    "USMALLINT": "2", "UINTEGER": "3", "UBIGINT": "4", "FLOAT": "1.5", "DOUBLE": "2.5", "VARCHAR": "'äöü'",
    "BLOB": "'\\x00\\xFF'", "DATE": "'2020-02-29'", "TIME": "'01:02:03.000004'", "TIMESTAMP": "'2020-02-29 01:02:03.000004'",
    "TIMESTAMP_S": "'2020-02-29 01:02:03'", "TIMESTAMP_MS": "'2020-02-29 01:02:03.004'",
    "TIMESTAMP_NS": "'2020-02-29 01:02:03.000000004'", "TIMESTAMPTZ": "'2020-02-29 01:02:03+00'",
    "INTERVAL": "'1 month 2 days 3 seconds'", "DECIMAL(9,2)": "1.10", "DECIMAL(38,2)": "-1.10", "INTEGER[]": "[1, NULL]",
    "INTEGER[2]": "[1, 2]", "STRUCT(a INTEGER, b VARCHAR)": "{'a': 1, 'b': 'x'}", "MAP(VARCHAR, INTEGER)": "MAP {'a': 1}",
}


def rows(connection, source):
    return connection.sql(f"select * from {source}").fetchall()


def type_of(connection, source):
    return connection.sql(f"select typeof(c) from {source} limit 1").fetchall()[0][0]


def test_duckdb_types_there_and_back(client, there, duckdb):
    with duckdb.connect() as connection:
        connection.sql("set timezone = 'UTC'")
        for kind, value in DUCK_TYPES.items():
            connection.sql(f"create or replace table given as select c::{kind} c from (values ({value}), (NULL)) v(c)")
            expected = rows(connection, "given")
            assert expected[1] == (None,)
            table = there(connection.sql("from given").to_arrow_table())
            connection.register("got", table.to_pyarrow())
            assert rows(connection, "got") == expected, kind
            assert type_of(connection, "got") == type_of(connection, "given"), kind
            connection.unregister("got")
            relation = connection.sql("from given")  # itself a stream of Arrow's
            client.put("again", relation, replace=True)
            assert client.get("again").tolist() == table.tolist(), kind


def test_duckdb_reads_a_table_by_its_stream(there, duckdb):
    shared = there({"k": ["a", "b", "a"], "n": [1, None, 3]})
    with duckdb.connect() as connection:
        assert connection.sql("select k, sum(n) from shared group by k order by k").fetchall() == [("a", 4), ("b", None)]
        connection.register("named", shared.to_pyarrow())
        assert rows(connection, "named") == [("a", 1), ("b", None), ("a", 3)]
