"""The Python package's side of what passes between languages: see languages.test.mjs.

    ["dump", NAME]
    ["text", NAME]      the first column of a table as pandas has it: [categories or null, values]
    ["put", WHAT, NAME, DEVICE, [FILE]]     movies (a CSV file), flights (raw buffers), nested, dictionary

Each line of its input is one of these, and answered by a line.
"""

import json
import sys
import zlib

import gpubufd
import numpy as np

DATA, MASK, OFFSETS = 0, 1, 2
WIDTHS = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float32": 4, "float64": 8, "date32": 4,
}


def fetch(column, which, start, count):
    """A copy of a stretch of a buffer, wherever it is."""
    out = np.empty(max(count, 1), "u1")
    if count:
        column._read(which, start, out.ctypes.data, count, 0)
    return out[:count].tobytes()


def bits(column, which):
    first, length = column.buffers.offset, len(column)
    raw = np.frombuffer(fetch(column, which, first // 8, (first % 8 + length + 7) // 8), "u1")
    chosen = np.unpackbits(raw, bitorder="little")[first % 8 : first % 8 + length]
    return zlib.crc32((chosen + ord("0")).astype("u1").tobytes())


def dump(held):
    told = {"length": len(held), "children": []}
    if isinstance(held, gpubufd.Table):
        told["children"] = [dump(held[name]) for name in held.names]
        return told
    if held._column_name is not None:
        told["name"] = held._column_name
    dtype = held.dtype
    told |= {"dtype": dtype, "nulls": held.null_count}
    if held.buffers.validity is not None:
        told["mask"] = bits(held, MASK)
    if dtype == "bool":
        told["data"] = bits(held, DATA)
    if held.buffers.offsets is not None:
        raw = fetch(held, OFFSETS, held.buffers.offset * 4, (len(held) + 1) * 4)
        offsets = np.frombuffer(raw, "i4")
        told["offsets"] = zlib.crc32((offsets - offsets[0]).tobytes())
        if dtype in ("utf8", "binary"):
            told["data"] = zlib.crc32(fetch(held, DATA, int(offsets[0]), int(offsets[-1] - offsets[0])))
    if dtype in WIDTHS:
        width = WIDTHS[dtype]
        told["data"] = zlib.crc32(fetch(held, DATA, held.buffers.offset * width, len(held) * width))
    told["children"] = [dump(child) for child in held.children]
    return told


def movies(path):
    """Whole numbers stay such where some are missing."""
    import pandas

    return {
        name: [None if pandas.isna(value) else value for value in column.convert_dtypes()]
        for name, column in pandas.read_csv(path).items()
    }


def flights(path):
    raw = np.fromfile(path, "u1")
    rows = len(raw) // 8
    delay, distance, time = raw[: 2 * rows], raw[2 * rows : 4 * rows], raw[4 * rows :]
    return {"delay": delay.view("i2"), "distance": distance.view("i2"), "time": time.view("f4")}


def nested(_):
    return [
        {"id": 1, "tags": ["a", None, "größer"], "at": {"x": 1.5, "ok": True}},
        None,
        {"id": None, "tags": [], "at": None},
        {"id": 4, "tags": None, "at": {"x": None, "ok": False}},
    ]


def dictionary(_):
    import pandas

    return pandas.Series(pandas.Categorical(["b", None, "a", "b", "c", None, "a"]))


def text(series):
    categories = [*series.cat.categories] if series.dtype == "category" else None
    return [categories, [None if value != value else value for value in series]]


def work(client, way, *words):
    if way == "dump":
        return dump(client.get(*words))
    if way == "text":
        return text(client.get(*words).to_pandas().iloc[:, 0])
    what, name, device, *path = words
    make = {"movies": movies, "flights": flights, "nested": nested, "dictionary": dictionary}[what]
    client.put(name, make(*path or [None]), device=device, replace=True)


with gpubufd.connect() as client:
    for line in sys.stdin:
        print(json.dumps(work(client, *json.loads(line))), flush=True)
