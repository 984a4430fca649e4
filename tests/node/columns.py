"""The Python package's side of what passes between languages: see languages.test.mjs.

    ["tell", NAME]      {columns: [[name, dtype, nulls], …], rows}
    ["text", NAME]      the first column of a table as pandas has it: [categories or null, values]
    ["put", WHAT, NAME, DEVICE, [FILE]]     movies (a CSV file), nested, dictionary

Each line of its input is one of these, and answered by a line.
"""

import json
import sys

import gpubufd
import pandas


def tell(held):
    columns = held.items() if isinstance(held, gpubufd.Table) else [("", held)]
    return {"columns": [[name, column.dtype, column.null_count] for name, column in columns], "rows": held.to_host().tolist()}


def movies(path):
    """Whole numbers stay such where some are missing."""
    return {
        name: [None if pandas.isna(value) else value for value in column.convert_dtypes()]
        for name, column in pandas.read_csv(path).items()
    }


def nested():
    return [
        {"id": 1, "tags": ["a", None, "größer"], "at": {"x": 1.5, "ok": True}},
        None,
        {"id": None, "tags": [], "at": None},
        {"id": 4, "tags": None, "at": {"x": None, "ok": False}},
    ]


def dictionary():
    return pandas.Series(pandas.Categorical(["b", None, "a", "b", "c", None, "a"]))


def text(series):
    categories = [*series.cat.categories] if series.dtype == "category" else None
    return [categories, [None if value != value else value for value in series]]


def work(client, way, *words):
    if way == "tell":
        return tell(client.get(*words))
    if way == "text":
        return text(client.get(*words).to_pandas().iloc[:, 0])
    what, name, device, *path = words
    client.put(name, globals()[what](*path), device=device, replace=True)


with gpubufd.connect() as client:
    for line in sys.stdin:
        print(json.dumps(work(client, *json.loads(line)), default=str), flush=True)
