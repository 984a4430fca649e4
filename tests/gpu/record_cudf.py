#!/usr/bin/env python3
"""Records what pylibcudf's Arrow device capsules say of cuDF's columns, on a GPU, for tests that have none.

    tests/gpu/record_cudf.py --daemon gpubufd --out tests/python/data/cudf_capsules.json

The file is JSON:

    about         versions, GPU and day
    allocations   a list of {"bytes", "content"}: the memory that the columns lie in; `content` is the hex of its beginning
    columns       a list of what is one column each:
        name, made      what it is, and the Python expression that made it of `array`, which has the values of `rows`
        dtype           cuDF's
        device_type     of the ArrowDeviceArray
        schema          format, name, flags, children, dictionary
        array           length, null_count, offset, n_buffers, buffers, children, dictionary
        column          pylibcudf's own account: type, size, offset, null_count, data, mask, children
        arrow           what cuDF's to_arrow() has: type and values. This is the truth
        host            what its host capsule has (__arrow_c_array__), as pyarrow reads it: the values, or the error
    accepts       a list of what pylibcudf.Column.from_arrow() and cudf.Series.from_pylibcudf() make of device arrays that
                  gpubufd gives: name, type, and either what came out or the error, of each step

A buffer is null, [number of its allocation, offset in it], or text where the pointer is none of the GPU's. A value is JSON's own where it has one, else its repr().
A slice's `column` shows where its values are: `offset` elements behind `data`, bit `offset` of `mask`.
"""

import argparse
import contextlib
import ctypes
import datetime
import faulthandler
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "python")]

import arrowc  # noqa: E402
import rapids  # noqa: E402
from frameworks import daemon_with  # noqa: E402

ROWS, CONTENT = 24, 1024
SLICES = [(0, ROWS), (1, 3), (3, 20), (8, 16), (17, ROWS), (5, 5)]


class Memory:
    """The allocations that pointers lie in, each recorded once; their columns must be kept meanwhile."""

    def __init__(self):
        self.driver, self.known, self.recorded = ctypes.CDLL("libcuda.so.1"), {}, []

    def place(self, pointer):
        """[allocation, offset] of a pointer; None: it is NULL."""
        if not pointer:
            return None
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        status = self.driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
        if status:
            return f"no memory of the GPU ({status})"
        if base.value not in self.known:
            data = (ctypes.c_ubyte * min(size.value, CONTENT))()
            status = self.driver.cuMemcpyDtoH_v2(data, ctypes.c_uint64(base.value), ctypes.c_size_t(len(data)))
            if status:
                raise RuntimeError(f"cuMemcpyDtoH: {status}")
            self.known[base.value] = len(self.recorded)
            self.recorded.append({"bytes": size.value, "content": bytes(data).rstrip(b"\0").hex()})
        return [self.known[base.value], pointer - base.value]


def schema_of(schema):
    return {"format": schema.format.decode(), "name": None if schema.name is None else schema.name.decode(), "flags": schema.flags,
            "children": [schema_of(schema.children[i].contents) for i in range(schema.n_children)],
            "dictionary": schema_of(schema.dictionary.contents) if schema.dictionary else None}


def array_of(array, memory):
    return {"length": array.length, "null_count": array.null_count, "offset": array.offset, "n_buffers": array.n_buffers,
            "buffers": [memory.place(array.buffers[i]) for i in range(array.n_buffers)],
            "children": [array_of(array.children[i].contents, memory) for i in range(array.n_children)],
            "dictionary": array_of(array.dictionary.contents, memory) if array.dictionary else None}


def column_of(column, memory):
    data, mask = column.data(), column.null_mask()
    return {"type": str(column.type().id()), "size": column.size(), "offset": column.offset(), "null_count": column.null_count(),
            "data": None if data is None else memory.place(data.ptr), "mask": None if mask is None else memory.place(mask.ptr),
            "children": [column_of(child, memory) for child in column.children()]}


def values_of(array):
    def one(value):
        value = rapids.plain(value)
        if isinstance(value, list):
            return [one(item) for item in value]
        if isinstance(value, dict):
            return {key: one(item) for key, item in value.items()}
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return repr(value)
        return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)

    return {"type": str(array.type), "values": [one(value) for value in array.to_pylist()]}


def tried(function, *arguments):
    """The result of a function, or {"error": …}."""
    try:
        return function(*arguments)
    except Exception as error:  # whatever it raises is recorded
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}


def record(found, name, made, series, memory, keep):
    found.append({"name": name, "made": made, **tried(record_column, series, memory, keep)})


def record_column(series, memory, keep):
    import pyarrow

    column = series.to_pylibcudf()[0]
    schema, array = column.__arrow_c_device_array__()
    device = arrowc.struct_of(array, arrowc.DeviceArray)
    keep.append((series, column, schema, array))
    return {
        "dtype": str(series.dtype), "device_type": device.device_type,
        "schema": schema_of(arrowc.struct_of(schema, arrowc.Schema)), "array": array_of(device.array, memory),
        "column": column_of(column, memory), "arrow": values_of(series.to_arrow()),
        "host": tried(lambda: values_of(pyarrow.Array._import_from_c_capsule(*column.__arrow_c_array__()))),
    }


def record_kind(found, kind, memory, keep):
    import cudf
    import pyarrow as pa

    for nullable in (True, False):
        array = rapids.array_of(pa, kind, ROWS, nullable)
        series = cudf.Series.from_arrow(array)
        keep.append(series)
        nulls = ", nullable" if nullable else ""
        for a, b in SLICES:
            part, made = (series, "Series.from_arrow(array)") if (a, b) == (0, ROWS) else (
                series[a:b], f"Series.from_arrow(array)[{a}:{b}]")
            record(found, f"{kind}{nulls} [{a}:{b}]", made, part, memory, keep)
    twice = series.iloc[3:20].iloc[5:12]
    record(found, f"{kind} [3:20][5:12]", "….iloc[3:20].iloc[5:12]", twice, memory, keep)
    none = cudf.Series.from_arrow(pa.nulls(9, array.type))
    for part, made in ((none, ""), (none[2:5], "[2:5]")):
        record(found, f"{kind}, all null {made}", f"Series.from_arrow(nulls(9)){made}", part, memory, keep)


def record_categories(found, memory, keep):
    import cudf

    series = cudf.Series(["b", "a", None, "b", "c"] * 4).astype("category")
    for what, part in (("codes", series.cat.codes), ("codes [3:9]", series[3:9].cat.codes),
                       ("categories", cudf.Series(series.cat.categories))):
        record(found, f"a category's {what}", f"category.cat.{what}", part, memory, keep)


def record_columns(memory, keep):
    found = []
    for kind in rapids.TYPES:
        failed = tried(record_kind, found, kind, memory, keep)
        if failed:
            found.append({"name": kind, **failed})
    failed = tried(record_categories, found, memory, keep)
    if failed:
        found.append({"name": "a category's parts", **failed})
    return found


def of_column(column, given):
    """A column of from_arrow(), and whether it lies in the memory that was given."""
    data, mask = column.data(), column.null_mask()
    validity, pointers = given.buffers.validity, []
    if validity is not None:
        pointers.append(validity.bits.pointer)
    with contextlib.suppress(BufferError):  # nested columns have no values of their own
        pointers.append(given.buffers.values.pointer)
    return {"type": str(column.type().id()), "size": column.size(), "offset": column.offset(), "null_count": column.null_count(),
            "children": [of_child(child) for child in column.children()],
            "in place": [None if one is None else one.ptr in pointers for one in (data, mask)]}


def of_child(column):
    return {"type": str(column.type().id()), "size": column.size(), "offset": column.offset(),
            "children": [of_child(child) for child in column.children()]}


def record_accepts(client, device, found, save):
    import cudf
    import pyarrow as pa
    import pylibcudf

    arrays = {**{kind: rapids.array_of(pa, kind, ROWS) for kind in rapids.TYPES}, **rapids.arrow_columns(pa)}
    for name, array in arrays.items():
        for a, b in ((0, len(array)), (1, 9)):
            told = {"name": f"{name} [{a}:{b}]", "type": str(array.type)}
            found.append(told)
            put = tried(lambda: client.put("a", pa.table({"c": array}), device=device, replace=True))
            if isinstance(put, dict):
                told["put"] = put
                continue
            held = client.get("a")["c"][a:b]
            capsules = held.__arrow_c_device_array__()
            told["format"] = schema_of(arrowc.struct_of(capsules[0], arrowc.Schema))
            save()  # if the process ends now, the last entry says where
            made = tried(pylibcudf.Column.from_arrow, held)
            if isinstance(made, dict):
                told["from_arrow"] = made
                continue
            told["from_arrow"] = tried(of_column, made, held)
            series = tried(cudf.Series.from_pylibcudf, made)
            if isinstance(series, dict):
                told["from_pylibcudf"] = series
                continue
            told["from_pylibcudf"] = {"dtype": str(series.dtype)}
            told["to_arrow"] = tried(lambda: values_of(series.to_arrow()))
            told["right"] = rapids.plain(array[a:b].to_pylist()) == tried(lambda: rapids.plain(series.to_arrow().to_pylist()))


def about():
    import cudf
    import numpy
    import pandas
    import pyarrow

    from gpubufd import cuda

    versions = {module.__name__: module.__version__ for module in (cudf, numpy, pandas, pyarrow)}
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"day": day, "gpu": cuda.Device(0).name, "versions": versions, "rows": ROWS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", default="gpubufd")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    import rmm.mr

    import gpubufd
    import gpubufd.cuda

    faulthandler.enable()
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())  # so that each buffer is an allocation of its own
    memory, keep = Memory(), []
    with gpubufd.cuda.Device(0):
        columns = record_columns(memory, keep)
    made = {"about": about(), "allocations": memory.recorded, "columns": columns, "accepts": []}
    write(options.out, made)
    with daemon_with(options.daemon, f"{options.device}:1G", "host:1G") as path, gpubufd.connect(path) as client:
        record_accepts(client, options.device, made["accepts"], lambda: write(options.out, made))
    write(options.out, made)
    failed = sum("error" in one for one in made["columns"])
    print(f"{len(made['columns'])} columns, {failed} errors, {len(made['allocations'])} allocations, "
          f"{len(made['accepts'])} accepts: {os.path.getsize(options.out)} bytes")
    return 0


def write(path, made):
    """A line for each column, so that a difference of two recordings can be read."""
    with open(path, "w") as file:
        file.write("{\n")
        for i, (key, value) in enumerate(made.items()):
            comma = "," if i + 1 < len(made) else ""
            if isinstance(value, list):
                lines = ",\n ".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in value)
                file.write(f'"{key}": [\n {lines}\n]{comma}\n')
            else:
                file.write(f'"{key}": {json.dumps(value)}{comma}\n')
        file.write("}\n")


if __name__ == "__main__":
    sys.exit(main())
