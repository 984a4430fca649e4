"""cuDF's columns, slices above all: by pylibcudf's accessors, and as libcudf's capsules have them.

cuDF itself is not asked for: tests/interop/test_cudf.py does, and tests/gpu/rapids.py on a GPU.
"""

import pathlib

STANDINS = pathlib.Path(__file__).resolve().parent / "standins"
HEAD = f"""
sys.path.insert(0, {str(STANDINS)!r})
import itertools, random
import pylibcudf as plc
import cudf_columns as cc
cc.kernels(plc)
read = arrowc.read_device

def slices(rng, rows):
    a, b = sorted((rng.randint(0, rows), rng.randint(0, rows)))
    return (a, b) if rng.random() < 0.8 else (0, rows)
"""


def test_slices_of_slices_of_all_types(gpu_run):
    """put() and share_mine() of a part of a column, and what is taken of that by slices, aliases, copies and capsules."""
    gpu_run(HEAD + """
pandas = __import__("importlib.util").util.find_spec("pandas")
for seed, kind in enumerate([*cc.KINDS * 5, *[None] * 60]):
    rng = random.Random(seed)
    kind = kind or cc.random_kind(rng)
    values = cc.random_values(rng, kind, rng.choice((0, 1, 9, 59, 60, 60, 60)), rng.choice((0, 0.3, 0.3, 0.3, 1)))
    column, expected = cc.make(plc, kind, values), values
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        a, b = slices(rng, len(expected))
        column, expected = cc.part(plc, column, a, b), expected[a:b]
    series, rows = cc.Series(column, kind), len(expected)
    client.put("c", series, replace=True)
    c = client["c"]
    assert read(c) == expected, (seed, kind)
    a, b = slices(rng, rows)
    assert read(c[a:b]) == expected[a:b], (seed, kind)
    client.alias("alias", "c", rows=(a, b))
    assert read(client["alias"]) == expected[a:b], (seed, kind)
    k, n = slices(rng, b - a)
    for part in (c[a:b][k:n], arrowc.OnlyDevice(c[a:b][k:n]), client["alias"][k:n]):
        client.put("again", part, replace=True)
        assert read(client["again"]) == expected[a:b][k:n], (seed, kind)
    host = c[a:b].to_host()
    assert arrowc.read_array(host) == expected[a:b], (seed, kind)
    if kind[0] == "category" and pandas:
        assert [None if value != value else value for value in host.to_pandas().tolist()] == expected[a:b], (seed, kind)
    client.put("t", {"x": np.arange(rows), "c": series, "again": series}, replace=True)
    assert [row["c"] for row in read(client["t"])] == expected == [row["again"] for row in read(client["t"][0:])]
    assert [row["again"] for row in read(client["t"][a:b])] == expected[a:b], (seed, kind)
    client.delete("alias", "again", "c", "t")
    try:
        client.share_mine("c", series)
    except ValueError as error:  # nothing to share
        assert not rows or "no memory" in str(error), error
    except gpubufd.Limit:
        assert kind[0] in ("struct", "list")
    else:
        assert read(client["c"]) == expected and read(client["c"][a:b]) == expected[a:b], (seed, kind)
    client.delete("c", missing_ok=True)
""")


def test_a_column_without_a_dtype(gpu_run):
    """Of a pylibcudf.Column or Table nothing has names: fields and columns have numbers, as cuDF numbers them."""
    gpu_run(HEAD + """
kind = ("struct", {"a": "int64", "b": ("struct", {"c": "str"}), "d": "decimal64(12,3)"})
values = [{"a": i, "b": {"c": str(i)}, "d": i} for i in range(5)]
column = cc.make(plc, kind, values)
client.put("c", cc.part(plc, column, 1, 4))
assert read(client["c"]) == [{"0": i, "1": {"0": str(i)}, "2": i} for i in range(1, 4)]
assert client["c"].children[2].dtype == "decimal128(18,3)"
client.put("t", plc.Table([column, cc.make(plc, "int8", [1, None, 3, 4, 5])]))
assert client["t"].names == ["0", "1"] and read(client["t"]["1"]) == [1, None, 3, 4, 5]
days = plc.Column(plc.DataType(plc.TypeId.DURATION_DAYS), 0, None, None, 0, 0, [])
assert "DURATION_DAYS" in raises(TypeError, lambda: client.put("x", days))
""")


def test_capsules_of_slices(gpu_run):
    """A capsule whose bitmap has other nulls than it says is refused, with the column; others are taken."""
    gpu_run(HEAD + """
kinds = ("float64", "bool", "str", ("struct", {"a": "int8"}), ("list", "int32"), "timestamp[ns]")
refused = 0
for seed, kind in enumerate(kinds * 5):
    rng = random.Random(seed)
    values = cc.random_values(rng, kind, 40, 0.3)
    column = cc.make(plc, kind, values)
    client.put("whole", cc.capsule_of(column, kind), replace=True)
    if kind[0] != "struct":  # whose capsule has no names of fields
        assert read(client["whole"]) == values, kind
    a, b = slices(rng, 40)
    part = cc.part(plc, column, a, b)
    capsule = cc.capsule_of(part, kind)
    told = [value is not None for value in values[: b - a]]
    if part.null_count() and told.count(False) != part.null_count():
        refused += 1
        for work in (lambda: client.put("x", capsule), lambda: client.put("x", {"col": capsule}),
                     lambda: client.share_mine("x", capsule)):
            said = raises(ValueError, work)
            assert f"{part.null_count()} nulls by its null_count and {told.count(False)} by its bitmap" in said, said
        assert "column 'col'" in raises(ValueError, lambda: client.put("x", {"col": capsule}))
    else:
        client.put("x", capsule, replace=True)
        assert len(client["x"]) == b - a and client["x"].null_count in (-1, part.null_count())
        client.delete("x")
assert refused > 5
none = arrowc.DeviceColumn("l", 3, [None, column.data().ptr], null_count=1)
assert "1 nulls by its null_count and 0" in raises(ValueError, lambda: client.put("x", none))
""")
