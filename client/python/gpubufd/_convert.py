"""What users publish, taken apart: arrays by address and strides, columns as Arrow sources.

A source is what `_core.Client._put_arrow` takes: (schema capsule, [array capsules]), or
(format, length, null_count, buffers, children, dictionary).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Dict, Optional, Tuple

from . import _core
from ._lists import at_column, list_source
from ._objects import CPU, CUDA, DATA, Array, Bytes, Column, Held, Table

ADVICE = (
    "Things that can be put: NumPy arrays, anything with DLPack, Arrow, the buffer protocol or "
    "__cuda_array_interface__, pandas frames, a dict of columns, a list of values"
)


class Plan:
    """What is to be done for a value. `keep` holds what the rest points to.

    `kind` says which members mean something: "array" (dtype, shape in elements, strides in bytes or None,
    address), "bytes" (buffer), "arrow" (source, table), "device_arrow" (a node as source, table),
    "device_table" (columns; {"": value} is a column).
    """

    def __init__(
        self, kind: str, keep: Any, *, dtype: str = "", shape: Tuple[int, ...] = (),
        strides: Optional[Tuple[int, ...]] = None, address: int = 0, buffer: Any = None,
        source: tuple = (), table: bool = False, columns: Optional[Dict[str, Any]] = None,
        stream: Optional[int] = None,
    ):
        self.kind = kind
        self.keep = keep
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.address = address
        self.buffer = buffer
        self.source = source
        self.table = table
        self.columns = columns or {}
        self.stream = stream  # what the value is being made on
        self.device: Optional[int] = None  # the ordinal of the GPU that the value is on


def plan(value: Any) -> Plan:
    """What a value is to become: an array, a column, a table or bytes."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, Held):
        return _plan_held(value)
    if module == "pandas":
        return _plan_pandas(value)
    if isinstance(value, Mapping):
        return _plan_dict(value)
    if _is_numpy(value):
        return _plan_numpy(value)
    if isinstance(value, (bytes, bytearray, memoryview)) and _is_plain_bytes(value):
        return Plan("bytes", value, buffer=value)
    if module == "cudf" and hasattr(value, "columns"):
        columns = {name: value[name] for name in value.columns}
        if columns and all(_is_on_gpu(column) for column in columns.values()):
            return _plan_dict(columns)
    if _is_on_gpu(value):
        return _plan_cuda(value)
    if hasattr(value, "__arrow_c_device_array__"):
        return _plan_device(value)
    source, table = _arrow_of(value)
    if source:
        return Plan("arrow", value, source=source, table=table)
    if hasattr(value, "__dlpack__"):
        return _plan_view(_from_dlpack(value), value)
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return _plan_numpy(_numpy().asarray(value))
    if isinstance(value, (list, tuple, range)):
        return _plan_list(value)
    if isinstance(value, (bool, int, float, complex)):
        return _plan_numpy(_numpy().asarray(value))
    try:
        view = _core.from_buffer(value)
    except TypeError:
        hint = ": call toarray() on it" if hasattr(value, "toarray") else f". {ADVICE}"
        raise TypeError(f"{type(value).__name__} cannot be put{hint}") from None
    return _plan_buffer(view, value)


def _is_numpy(value: Any) -> bool:
    """Whether it is an array or scalar of NumPy's, which need not be imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _numpy():
    import numpy

    return numpy


def _is_plain_bytes(value: Any) -> bool:
    return not isinstance(value, memoryview) or (
        value.format in ("B", "b", "c") and value.ndim == 1 and value.contiguous
    )


def _plan_held(value: Held) -> Plan:
    if isinstance(value, (Table, Column)):
        if value._ordinal >= 0:
            return _plan_device(value)
        return Plan("arrow", value, source=_capsules(value), table=isinstance(value, Table))
    if value._has_mask:
        raise TypeError(f"{value.name!r} is an array with nulls: use alias()")
    if isinstance(value, Bytes) and value._ordinal < 0:
        whole: Any = value
        return Plan("bytes", value, buffer=memoryview(whole))
    return _plan_view(value._view(), value)


def _plan_view(view, keep: Any) -> Plan:
    """Of a View: its own memory, here or on a GPU."""
    kind, ordinal = view.device
    if kind not in (CPU, CUDA, 3, 13):
        raise TypeError(f"memory on DLPack device type {kind} cannot be put")
    made = Plan(
        "array", (view, keep), dtype=view.dtype, shape=view.shape,
        strides=None if view.contiguous else view.strides, address=view.pointer,
    )
    if kind == CUDA:
        made.device = ordinal
    return made


def _from_dlpack(value: Any):
    stream = {} if value.__dlpack_device__()[0] == CPU else {"stream": 1}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # older than max_version
        capsule = value.__dlpack__(**stream)
    return _core.from_dlpack(capsule)


BUFFER_DTYPES = {
    "?": "bool8", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16",
    "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64", "l": "int64", "L": "uint64",
    "n": "int64", "N": "uint64",
    "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128",
}


def _plan_buffer(view, keep: Any) -> Plan:
    format_ = view.format
    if format_[:1] in "@=<" and len(format_) > 1:
        format_ = format_[1:]
    dtype = BUFFER_DTYPES.get(format_)
    sizes = {"int64": 8, "uint64": 8}
    if dtype is None or sizes.get(dtype, view.itemsize) != view.itemsize:
        raise TypeError(f"a buffer of format {view.format!r} cannot be put")
    return Plan(
        "array", (view, keep), dtype=dtype, shape=view.shape,
        strides=None if view.contiguous else view.strides, address=view.pointer,
    )


# ---- NumPy ----

NUMPY_UNITS = ("s", "ms", "us", "ns")


def _time_array(array, where: str):
    """(array of int64 or int32, dtype) of datetime64 and timedelta64 in any unit."""
    numpy = _numpy()
    unit, count = numpy.datetime_data(array.dtype)
    kind = "timestamp" if array.dtype.kind == "M" else "duration"
    if unit == "generic":
        raise TypeError(f"{at_column(where)}{array.dtype} has no unit: astype('{array.dtype.kind}8[us]')")
    if unit in NUMPY_UNITS and count == 1:
        return array.view("<i8"), f"{kind}[{unit}]"
    if unit == "D" and kind == "timestamp" and not numpy.isnat(array).any():
        days = array.astype("M8[D]").view("<i8")
        small = days.astype("<i4")
        if (small == days).all():
            return small, "date32"
    if unit in ("ps", "fs", "as"):
        raise TypeError(f"{at_column(where)}{array.dtype} is finer than nanoseconds: convert it to ns")
    if unit in ("Y", "M") and kind == "duration":
        raise TypeError(f"{at_column(where)}{array.dtype} has no fixed length: convert it to days")
    seconds = array.astype(f"{array.dtype.kind}8[s]")
    if (seconds.astype(array.dtype) != array)[~numpy.isnat(array)].any():
        finer = array.astype(f"{array.dtype.kind}8[ns]")
        return finer.view("<i8"), f"{kind}[ns]"
    return seconds.view("<i8"), f"{kind}[s]"


def _native(array, where: str):
    """The array with elements that we know how to name, and their dtype."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array, "bool8"
    if kind in "iu" and size <= 8:
        return array, f"{'u' if kind == 'u' else ''}int{size * 8}"
    if kind == "f" and size <= 8:
        return array, f"float{size * 8}"
    if kind == "c" and size <= 16:
        return array, f"complex{size * 8}"
    if kind in "Mm":
        return _time_array(array, where)
    if array.dtype.name == "bfloat16":
        return array, "bfloat16"
    if kind == "V" and array.dtype.names is None and size:
        return array, f"fixed_binary({size})"
    raise TypeError(f"{at_column(where)}NumPy's {array.dtype} cannot be put; convert it with astype()")


def _plan_numpy(array: Any) -> Plan:
    numpy = _numpy()
    array = numpy.asanyarray(array)
    if isinstance(array, numpy.ma.MaskedArray) and array.ndim != 1:
        if numpy.ma.is_masked(array):
            raise TypeError(
                "a masked array of several axes cannot be put: put filled() and the mask, each by "
                "itself"
            )
        array = array.data
    if array.dtype.names is not None:
        if array.ndim != 1:
            raise TypeError("a structured array becomes a table, and so must have one axis")
        return _plan_dict({name: array[name] for name in array.dtype.names})
    if isinstance(array, numpy.ma.MaskedArray) or array.dtype.kind in "OSU":
        if array.ndim != 1:
            raise TypeError(
                f"an array of {array.dtype} becomes a column, and so must have one axis, not "
                f"{array.ndim}"
            )
        return Plan("arrow", array, source=column_source(array, ""), table=False)
    array, dtype = _native(array, "")
    interface = array.__array_interface__
    return Plan(
        "array", array, dtype=dtype, shape=array.shape,
        strides=None if array.flags.c_contiguous else array.strides, address=interface["data"][0],
    )


FORMATS = {
    "bool8": "b", "int8": "c", "uint8": "C", "int16": "s", "uint16": "S", "int32": "i",
    "uint32": "I", "int64": "l", "uint64": "L", "float16": "e", "float32": "f", "float64": "g",
    "date32": "tdD",
}
TIME_LETTERS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}


def _bitmap(valid) -> Any:
    numpy = _numpy()
    return numpy.packbits(valid, bitorder="little")


def _numpy_source(array: Any, where: str, nulls: Any = None) -> tuple:
    """The source of an array of one axis; `nulls`: an array of bool, or None."""
    numpy = _numpy()
    if array.ndim != 1:
        raise ValueError(f"{at_column(where)}a column has one axis, not {array.ndim}")
    if isinstance(array, numpy.ma.MaskedArray):
        masked = numpy.ma.getmaskarray(array)
        nulls = masked if nulls is None else nulls | masked
        array = array.data
    kind = array.dtype.kind
    if kind in "OSU":
        values = array.tolist()
        if nulls is not None:
            values = [None if null else v for v, null in zip(values, nulls.tolist())]
        return list_source(values, where)
    if kind in "Mm":
        nat = numpy.isnat(array)
        if nat.any():
            nulls = nat if nulls is None else nulls | nat
    if kind == "c":
        raise TypeError(f"{at_column(where)}Arrow has no complex numbers: put it as an array of its own")
    array, dtype = _native(array, where)
    mask = None if nulls is None or not nulls.any() else _bitmap(~nulls)
    count = 0 if mask is None else int(nulls.sum())
    if dtype == "bool8":
        return ("b", len(array), count, (mask, numpy.packbits(array, bitorder="little")), (), None)
    array = numpy.ascontiguousarray(array)
    name, _, rest = dtype.partition("[")
    if name == "timestamp":
        format_ = f"ts{TIME_LETTERS[rest[:-1]]}:"
    elif name == "duration":
        format_ = f"tD{TIME_LETTERS[rest[:-1]]}"
    elif name.startswith("fixed_binary"):
        format_ = f"w:{array.dtype.itemsize}"
    elif dtype in FORMATS:
        format_ = FORMATS[dtype]
    else:
        raise TypeError(f"{at_column(where)}Arrow has no {dtype}: put it as an array of its own")
    return (format_, len(array), count, (mask, array.view("u1")), (), None)


# ---- columns ----


def _capsules(held: Held) -> tuple:
    schema, array = held.__arrow_c_array__()
    return schema, [array]


def _arrow_of(value: Any) -> Tuple[Optional[tuple], bool]:
    """(source, whether it is a table) of what speaks Arrow and lies on the host; else (None, False)."""
    if hasattr(value, "__arrow_c_stream__"):
        source = _core.read_stream(value.__arrow_c_stream__())
    elif hasattr(value, "__arrow_c_array__"):
        schema, array = value.__arrow_c_array__()
        source = (schema, [array])
    elif hasattr(value, "__arrow_c_device_array__"):
        schema, array = value.__arrow_c_device_array__()
        source = (schema, [array])
    else:
        return None, False
    return source, _is_table(value, source)


def _plan_device(value: Any) -> Plan:
    """Of what has Arrow's device form: on a GPU, or on the host all the same."""
    capsules = value.__arrow_c_device_array__()
    kind, ordinal, event, node = _core.device_nodes(*capsules)
    source = (capsules[0], [capsules[1]])
    table = isinstance(value, Table) or _is_table(value, source)
    if kind == CPU:
        return Plan("arrow", value, source=source, table=table)
    if kind != CUDA:
        raise TypeError(f"an Arrow array on a device of type {kind} cannot be put")
    if event:
        from . import cuda

        cuda.wait_for_event(event, ordinal)
    made = Plan("device_arrow", (value, capsules), source=node, table=table)
    made.device = ordinal
    return made


def _is_table(value: Any, source: tuple) -> bool:
    """Structs are tables where what they come from has columns; a column of structs has not."""
    if hasattr(value, "column_names") or hasattr(value, "num_columns"):
        return True
    if type(value).__name__ in ("DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader"):
        return True
    # Nothing is known of it: a stream of structs is what the specification calls a table.
    return hasattr(value, "__arrow_c_stream__") and _core.schema_format(source[0]) == "+s" and not (
        hasattr(value, "type") or hasattr(value, "dtype")
    )


def column_source(value: Any, where: str) -> tuple:
    """The source of anything that can be a column of a table."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, (Column, Array)):
        if value._ordinal >= 0:
            raise TypeError(f"{at_column(where)}it is on a GPU; a table lies on one device")
        if isinstance(value, Array):
            return _numpy_source(_numpy().asarray(value.to_numpy(masked=value._has_mask)), where)
        return _capsules(value)
    if module == "pandas":
        return _pandas_source(value, where)
    if _is_numpy(value):
        return _numpy_source(_numpy().asanyarray(value), where)
    source, _ = _arrow_of(value)
    if source:
        return source
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{at_column(where)}{type(value).__name__} is not a column: expected a sequence")
    if isinstance(value, (list, tuple, range)):
        return list_source(list(value), where)
    if hasattr(value, "__dlpack__"):
        view = _from_dlpack(value)
        if view.device[0] == CUDA:
            raise TypeError(f"{at_column(where)}it is on a GPU, and other columns are not")
        return _numpy_source(view.to_numpy(), where)
    try:
        return _numpy_source(_numpy().asarray(value), where)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{at_column(where)}{type(value).__name__} cannot be a column: {error}") from None


def _plan_dict(value: Mapping) -> Plan:
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"a column's name is a str, not {name!r}")
    if value and all(_is_on_gpu(column) for column in value.values()):
        return Plan("device_table", value, columns=dict(value))
    children, length = [], None
    for name, column in value.items():
        source = column_source(column, name)
        rows = source[1] if len(source) == 6 else len(column)
        if length is not None and rows != length:
            raise ValueError(f"{at_column(name)}it has {rows} rows, the columns before it {length}")
        length = rows
        children.append((name, source))
    source = ("+s", length or 0, 0, (None,), tuple(children), None)
    return Plan("arrow", value, source=source, table=True)


def _plan_list(value: Any) -> Plan:
    """A list of record batches is a table, any other a column."""
    if value and all(hasattr(item, "__arrow_c_array__") for item in value):
        capsules = [item.__arrow_c_array__() for item in value]
        formats = {_core.schema_text(schema) for schema, _ in capsules}
        if len(formats) > 1:
            raise ValueError("the record batches have different schemas")
        source = (capsules[0][0], [array for _, array in capsules])
        return Plan("arrow", value, source=source, table=_is_table(value[0], source))
    return Plan("arrow", value, source=list_source(list(value), ""), table=False)


# ---- pandas ----


def _check_index(value: Any) -> None:
    index = value.index
    if type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1:
        return
    if index.nlevels == 1 and index.dtype.kind in "iu" and index.name is None:
        if (index.to_numpy() == _numpy().arange(len(index))).all():
            return
    raise ValueError(
        "the index is not 0, 1, 2, … and would be lost: reset_index() makes it a column, "
        "reset_index(drop=True) drops it"
    )


def _plan_pandas(value: Any) -> Plan:
    kind = type(value).__name__
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        _check_index(value)
        if not value.columns.is_unique:
            raise ValueError("several columns have the same name")
        return _plan_dict({name: value[name] for name in value.columns})
    if hasattr(value, "iloc"):
        _check_index(value)
    elif not hasattr(value, "isna"):
        raise TypeError(f"pandas' {kind} cannot be put. {ADVICE}")
    return Plan("arrow", value, source=_pandas_source(value, ""), table=False)


def _pandas_source(value: Any, where: str) -> tuple:
    """Of a Series, Index or extension array."""
    numpy = _numpy()
    import pandas

    series = value if hasattr(value, "iloc") else pandas.Series(value)
    dtype = series.dtype
    if isinstance(dtype, numpy.dtype):
        return _numpy_source(series.to_numpy(), where)
    nulls = series.isna().to_numpy()
    if isinstance(dtype, pandas.CategoricalDtype):
        return _category_source(series, nulls, where)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        utc = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        source = _numpy_source(utc, where, nulls)
        return (source[0] + str(dtype.tz),) + source[1:]
    if isinstance(dtype, pandas.SparseDtype):
        raise TypeError(f"{at_column(where)}it is sparse: series.sparse.to_dense() makes it dense")
    if isinstance(dtype, (pandas.PeriodDtype, pandas.IntervalDtype)):
        raise TypeError(f"{at_column(where)}pandas' {dtype} cannot be put: convert it, for example with "
                        "dt.to_timestamp() or astype(str)")
    if hasattr(dtype, "numpy_dtype") and not hasattr(dtype, "pyarrow_dtype"):
        zero = numpy.zeros(1, dtype.numpy_dtype)[0]
        return _numpy_source(series.to_numpy(dtype.numpy_dtype, na_value=zero), where, nulls)
    if isinstance(dtype, pandas.StringDtype):
        return list_source([None if null else v for v, null in zip(series.tolist(), nulls)], where)
    if hasattr(series.array, "__arrow_array__"):
        import pyarrow

        schema, array = pyarrow.array(series.array.__arrow_array__()).__arrow_c_array__()
        return schema, [array]
    raise TypeError(f"{at_column(where)}pandas' {dtype} cannot be put: convert it with astype()")


def _category_source(series: Any, nulls: Any, where: str) -> tuple:
    codes = series.cat.codes.to_numpy()
    indices = _numpy_source(_numpy().where(nulls, 0, codes).astype(codes.dtype), where, nulls)
    return indices[:5] + (column_source(series.cat.categories, where),)


# ---- GPUs ----


def _is_on_gpu(value: Any) -> bool:
    if isinstance(value, Held):
        return value._ordinal >= 0
    try:
        return value.__cuda_array_interface__ is not None
    except Exception:  # no such attribute; or, of strings in cuDF and the like, none that can be had
        return False


CUDA_DTYPES = {
    "b1": "bool8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
    "u2": "uint16", "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32",
    "f8": "float64", "c8": "complex64", "c16": "complex128",
}


class CudaArray:
    """What a `__cuda_array_interface__` says, checked. Shapes in elements, strides in bytes."""

    def __init__(self, value: Any, where: str = ""):
        interface = value.__cuda_array_interface__
        typestr = interface["typestr"]
        self.keep = value
        self.shape = tuple(int(extent) for extent in interface["shape"])
        self.pointer = int(interface["data"][0] or 0)
        self.stream = interface.get("stream")
        self.mask = interface.get("mask")
        kind, rest = typestr[1:2], typestr[1:]
        if typestr[:1] == ">" and rest not in ("b1", "i1", "u1"):
            raise TypeError(f"{at_column(where)}big-endian elements ({typestr}) cannot be put")
        if kind in "Mm" and "[" in rest and rest[3:-1] in NUMPY_UNITS:
            self.dtype = f"{'timestamp' if kind == 'M' else 'duration'}[{rest[3:-1]}]"
            self.itemsize = 8
        elif rest in CUDA_DTYPES:
            self.dtype = CUDA_DTYPES[rest]
            self.itemsize = int(rest[1:])
        elif rest == "V2" and str(getattr(value, "dtype", "")).endswith("bfloat16"):
            self.dtype, self.itemsize = "bfloat16", 2  # NumPy has no name for it
        else:
            raise TypeError(f"{at_column(where)}elements of type {typestr!r} cannot be put")
        strides = interface.get("strides")
        self.strides = None if strides is None else tuple(int(s) for s in strides)
        if self.stream == 0:
            raise ValueError(f"{at_column(where)}__cuda_array_interface__ gives stream 0, which is ambiguous")
        if self.strides is not None and self._is_c_order():
            self.strides = None

    def _is_c_order(self) -> bool:
        step = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides or ())):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def nbytes(self) -> int:
        count = self.itemsize
        for extent in self.shape:
            count *= extent
        return count

    def bitmap(self, where: str) -> Optional["CudaMask"]:
        """The mask, if it is a bitmap; ValueError if it is of a kind that says not enough."""
        return None if self.mask is None else CudaMask(self.mask, self.shape, where)


class CudaMask:
    """A bitmap of valid elements, as cuDF gives it: typestr "<t1", one bit for each element."""

    def __init__(self, value: Any, shape: tuple, where: str):
        interface = value.__cuda_array_interface__
        if interface["typestr"][1:2] != "t" or tuple(interface["shape"]) != shape:
            raise ValueError(
                f"{at_column(where)}the mask of its __cuda_array_interface__ is not a bitmap of its elements, "
                "and whether True is valid or null nobody knows: put the values, and write the "
                "validity with create()"
            )
        self.keep = value
        self.pointer = int(interface["data"][0])
        self.nbytes = (shape[0] + 7) // 8


def _plan_cuda(value: Any) -> Plan:
    from . import cuda

    array = CudaArray(value)
    if array.mask is not None:
        return Plan("device_table", value, columns={"": value})
    made = Plan(
        "array", (array, value), dtype=array.dtype, shape=array.shape, strides=array.strides,
        address=array.pointer, stream=array.stream,
    )
    if array.pointer:
        made.device = cuda.pointer_device(array.pointer)
    return made


def write(target: Any, values: Any, offset: int, stream: Optional[int]) -> None:
    """Copies values into an unsealed array, column or bytes."""
    view = target._view()
    at = (target._offset if isinstance(target, Column) else 0) + offset
    keep: Any
    if _is_on_gpu(values):
        there = CudaArray(values)
        if there.strides is not None:
            raise ValueError("the values are not contiguous: copy them first")
        dtype, pointer, count, keep = there.dtype, there.pointer, there.nbytes, there
        if there.stream is not None and there.stream != stream:
            from . import cuda

            cuda.Stream.of(there.stream).synchronize()
    elif hasattr(values, "__array_interface__"):
        array, dtype = _native(_numpy().ascontiguousarray(values), "")
        pointer, count, keep = array.__array_interface__["data"][0], array.nbytes, array
        if stream is not None and array is not values:
            raise ValueError("with a stream the values must be contiguous and of the same type")
    else:
        plan_ = _plan_buffer(_core.from_buffer(values), values)
        if plan_.strides is not None:
            raise ValueError("the values are not contiguous")
        source = plan_.keep[0]
        dtype, pointer, count, keep = plan_.dtype, source.pointer, source.nbytes, plan_
        if isinstance(values, (bytes, bytearray)):
            dtype = view.dtype
    if dtype != view.dtype and not (dtype == "uint8" and isinstance(target, Bytes)):
        if dtype.partition("[")[0] != view.dtype.partition("[")[0] or "," not in view.dtype:
            raise TypeError(f"it holds {view.dtype}, the values are {dtype}: convert them")
    if offset < 0 or offset * view.itemsize + count > view.nbytes:
        raise ValueError(f"{count} bytes from element {offset} on: there are {view.nbytes} in all")
    if count:
        target._write(DATA, at * view.itemsize, pointer, count, 0 if stream is None else int(stream))
    del keep
