"""Layouts of all kinds, at random: most of them are accepted. Needs Python and nothing else."""

import json

from device import ROOT

DTYPES = json.loads((ROOT / "proto/protocol.json").read_text(encoding="utf-8"))["dtypes"]
PARAMS = {"fixed_binary": "(3)", "fixed_list": "(2)", "decimal128": "(10,2)", "time32": "[ms]",
          "time64": "[us]", "timestamp": "[ns,Europe/Vienna]", "duration": "[s]"}
INDICES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXTS = ["", "a", "\"\\\n\t", "ä€😀", "\x01\x7f\u0085\u202e", "a/b", "name", "x" * 200]


def spelled(dtype):
    name = dtype["name"].partition("(")[0].partition("[")[0]
    return name + PARAMS.get(name, "")


FLAT = [spelled(d) for d in DTYPES if d["children"] == 0]
ELEMENTS = [spelled(d) for d in DTYPES if d["array"]]
MASKED = {spelled(d) for d in DTYPES if d["mask"]}
TEXT = {"utf8", "binary", "large_utf8", "large_binary"}


def null_count(random, length, possible):
    """A null count, mostly a possible one."""
    if random.random() < 0.05:
        return random.choice([length + 1, 1])
    return random.choice([-1, 0, length, random.randint(0, length)]) if possible else random.choice([-1, 0])


def of_children(random, dtype, needed, depth):
    some = random.randint(0, 40)
    if dtype in ("list", "large_list"):
        return [a_column(random, some, depth)]
    if dtype == "map":
        fields = [{"name": name, **a_column(random, some, depth + 1)} for name in ("key", "value")]
        return [{"dtype": "struct", "length": some, "children": fields}]
    if dtype == "fixed_list(2)":
        return [a_column(random, 2 * needed + random.choice([0, 0, 3]), depth)]
    if dtype == "dictionary":
        indices = a_column(random, needed + random.choice([0, 0, 5]), depth, INDICES)
        return [indices, a_column(random, some, depth)]
    return [{"name": name, **a_column(random, needed + random.choice([0, 0, 7]), depth)}
            for name in random.sample(TEXTS, random.randint(0, 3))]


def a_column(random, length, depth=1, dtypes=None):
    nested = [] if depth > 4 else ["list", "large_list", "map", "fixed_list(2)", "struct", "dictionary"] * 3
    dtype = random.choice(dtypes or FLAT + nested)
    made = {"dtype": dtype, "length": length}
    if random.random() < 0.3:
        made["offset"] = random.randint(1, 70)
    needed = length + made.get("offset", 0)
    if dtype in MASKED and random.random() < 0.5:
        made["mask"] = {} if random.random() < 0.8 else {"bytes": needed // 8 + 1 + random.randint(0, 99)}
    if dtype in TEXT:
        made["data"] = {"bytes": random.randint(0, 100)}
    if dtype in nested:
        made["children"] = of_children(random, dtype, needed, depth + 1)
    can_be_null = "mask" in made or dtype == "null" or (
        dtype == "dictionary" and "mask" in made["children"][0])
    if random.random() < 0.4:
        made["null_count"] = null_count(random, length, can_be_null)
    if random.random() < 0.2:
        made["metadata"] = {key: random.choice(TEXTS) for key in random.sample(TEXTS, 2)}
    return made


def a_layout(random):
    length = random.choice([0, 0, 1, 2, 7, 8, 9, 63, 64, 65, 200])
    kind = random.choice(["bytes", "bundle", "array", "column", "column", "table", "table"])
    if kind == "bytes":
        return {"kind": "bytes", "bytes": length}
    if kind == "bundle":
        return {"kind": kind, "bytes": length + 9, "manifest_bytes": random.choice([1, length + 1, length // 2 + 1])}
    if kind == "array":
        shape = [random.choice([0, 1, 2, 3, 5]) for _ in range(random.choice([0, 1, 2, 3, 6]))]
        made = {"kind": kind, "dtype": random.choice(ELEMENTS), "shape": shape}
        return {**made, "mask": {}} if random.random() < 0.4 else made
    if kind == "column":
        return {"kind": kind, **a_column(random, length)}
    made = {"kind": kind, "length": length, "columns": [
        {"name": name, **a_column(random, length)}
        for name in random.sample(TEXTS, random.randint(0, 4))]}
    if random.random() < 0.3:
        made["metadata"] = {key: random.choice(TEXTS) for key in random.sample(TEXTS, 2)}
    return made


def counts(random, layout):
    """Null counts for `seal`: mostly, but not always, possible ones."""
    if layout["kind"] == "column":
        return {"": null_count(random, layout["length"], True)} if random.random() < 0.5 else {}
    return {c["name"]: null_count(random, layout["length"], True)
            for c in layout.get("columns", []) if random.random() < 0.3}


def replaced(value, change):
    """The layout, with its buffers changed."""
    if isinstance(value, list):
        return [replaced(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"segment", "offset", "bytes"}:
        return change(value)
    return {key: one if key == "metadata" else replaced(one, change) for key, one in value.items()}
