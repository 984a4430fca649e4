"""Users' values, taken apart: arrays by address and strides, columns as Arrow sources or Nodes.

A source is what `_core.Client._put_arrow` takes: (schema capsule, [array capsules]), or
(format, length, null_count, buffers, children, dictionary).
"""

from __future__ import annotations

import datetime
import itertools
import math
import numbers
import sys
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import _core, _fetch, _floats, _frames, _gpu, _labels, _nodes, _series, _zones, cuda
from ._cuda_array import CudaArray
from ._gpu import is_on_gpu
from ._layout import (
    ARRAY, BUNDLE, BYTES, COLUMN, CPU, DATA, GPUS, MASK, NUMPY_UNITS, TABLE, at_column, kind_of,
)
from ._lists import list_source
from ._values import NUMBERS, numpy_module

ADVICE = (
    "Things that can be put: NumPy arrays, anything with DLPack, Arrow, the buffer protocol or "
    "__cuda_array_interface__, pandas frames, a dict of columns, a list of values, bytes. Of any other object "
    "pickle.dumps(…) makes bytes"
)

ONE_VALUE = (str, bytes, numbers.Number, datetime.date, datetime.time, datetime.timedelta, type(None))  # no column

Columns = List[Tuple[str, List[_nodes.Piece]]]


class Plan:
    """A plan to publish a value. `keep` holds what the rest points to.

    `kind` says which members mean something: "array" (dtype, shape in elements, strides in bytes or None,
    address, mask), "bytes" (buffer), "arrow" (source, table: all on the host), "columns" (columns, rows,
    table: some of them on a GPU; a column has the name ""), "bundle" (layout, parts).
    """

    kind: str
    keep: Any
    dtype: str
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    address: int
    nbytes: Optional[int]  # to be copied, where that is known at once
    mask: Optional[Tuple[int, int]] = None  # (address, first bit)
    buffer: Any = None
    source: Tuple[Any, ...] = ()
    table: bool = False
    columns: Any = ()  # Columns
    pieces: Any = ()  # Pieces of structs that settled() takes the columns out of
    rows: int = 0
    metadata: Optional[Tuple[bytes, ...]] = None  # key, value, key, …; a column's node may have others
    layout: Tuple[Any, ...] = ()  # of a bundle, as `_core` takes it
    parts: Sequence[Tuple[int, Any]] = ()  # of a bundle: (place, the Plan or Part there)
    device: Optional[int] = None  # the ordinal of the GPU that the value is on
    streams: Any = ()  # CUDA streams whose queued work makes the value
    events: Any = ()  # (address of a CUevent, device)

    def __init__(
        self, kind: str, keep: Any, dtype: str = "", shape: Tuple[int, ...] = (), strides: Optional[Tuple[int, ...]] = None,
        address: int = 0, nbytes: Optional[int] = None, **members: Any,
    ) -> None:
        self.kind, self.keep, self.nbytes = kind, keep, nbytes
        self.dtype, self.shape, self.strides, self.address = dtype, shape, strides, address
        if kind != "array":  # to whose streams nothing is added
            self.columns, self.streams, self.events = [], [], []
        if members:
            vars(self).update(members)

    def take(self, name: str, found: _gpu.Found) -> None:
        """Adds a column."""
        self.columns.append((name, found.pieces))
        self.streams += found.streams
        self.events += found.events
        if self.device is None and found.device >= 0:
            self.device = found.device

    def into_columns(self) -> None:
        """Turns a Plan of kind "arrow" into one of kind "columns"."""
        source = self.source
        if self.table and len(source) != 2:
            self.columns = [(name, _nodes.pieces_of(child)) for name, child in _nodes.columns_in(source[4])]
            self.rows = source[1]
        else:
            self.take("", _gpu.Found(_nodes.pieces_of(source)))
            if self.table:
                self.open_structs()
        self.kind = "columns"

    def open_structs(self) -> None:
        """Makes a table of the only column, which has structs. settled() takes its columns out of them."""
        self.pieces = self.columns.pop()[1]
        self.rows = sum(piece.rows for piece in self.pieces)
        self.metadata = self.pieces[0].node.metadata

    def settled(self) -> Columns:
        """The columns. The caller has waited for the streams and events that make the value."""
        if self.pieces:
            self.columns = _nodes.columns_of(self.pieces)
        found: Columns = self.columns
        return found

    def build(self, stream: int) -> Tuple[Tuple[Any, ...], List[_nodes.Copy]]:
        """For kind "columns": the layout to create, and the copies into it."""
        building = _nodes.Building(stream)
        if self.table:
            layout = building.table(self.settled(), self.rows, self.metadata)
        else:
            layout = building.column(self.columns[0][1])
            if self.metadata:
                layout = (*layout[:5], (*layout[5][:-1], _merged(layout[5][-1], self.metadata)))
        return layout, building.copies

    def spec(self) -> Optional[Tuple[Any, ...]]:
        """The spec of a column that says the metadata of an array or bytes; None: there are none."""
        return metadata_spec(self.metadata)

    def add_metadata(self, more: Mapping[str, str]) -> None:
        """Has the object say these pairs, too. TypeError."""
        if self.kind == "bundle":
            raise TypeError("a bundle's metadata are those of its file: put_bundle(name, tensors, metadata)")
        told = pairs(more)
        if self.kind == "arrow":
            self.into_columns()
        self.metadata = _merged(self.metadata, told)

    def share(self) -> Tuple[Dict[str, Any], List[Tuple[int, int]]]:
        """For kind "columns": the layout of `register`, and the parts of memory that it refers to."""
        sharing = _nodes.Sharing()
        if self.table:
            layout = sharing.table(self.settled(), self.rows, self.metadata)
        else:
            layout = sharing.column(self.columns[0][1])
        return layout, sharing.parts


def metadata_spec(metadata: Optional[Tuple[bytes, ...]]) -> Optional[Tuple[Any, ...]]:
    """The spec of a column that says the metadata of an array or bytes; None: there are none."""
    return (None, "", 0, 0, 0, False, 0, (), metadata) if metadata else None


def pairs(metadata: Mapping[str, str]) -> Tuple[bytes, ...]:
    """key, value, key, … of a dict. TypeError."""
    told = [text for pair in metadata.items() for text in pair]
    if not all(isinstance(text, str) for text in told):
        raise TypeError("metadata: expected a dict of strings")
    return tuple(text.encode() for text in told)


def _merged(first: Optional[Tuple[bytes, ...]], then: Tuple[bytes, ...]) -> Tuple[bytes, ...]:
    """Pairs of both; of a key that both have, the second's value."""
    told = first or ()
    found = {**dict(zip(told[::2], told[1::2])), **dict(zip(then[::2], then[1::2]))}
    return tuple(text for pair in found.items() for text in pair)


def _without_nan(value: Any) -> Any:
    """The value with NaN masked in floats of one axis on the host, in a dict of columns too."""
    if isinstance(value, Mapping):
        return {name: _without_nan(column) for name, column in value.items()}
    if isinstance(value, (list, tuple)):
        return [None if isinstance(item, float) and item != item else item for item in value]
    if _frames.is_cudf(value) or hasattr(value, "columns"):
        return value
    array = value.to_numpy() if hasattr(value, "iloc") and hasattr(value, "dtype") else value
    if not _is_numpy(array) or array.dtype.kind != "f" or array.ndim != 1:
        return value
    numpy = numpy_module()
    return numpy.ma.MaskedArray(array, numpy.ma.getmaskarray(array) | numpy.isnan(numpy.ma.getdata(array)))


def plan(value: Any, stream: Optional[int] = None, nan_as_null: bool = False) -> Plan:
    """The Plan of a value: as an array, column, table, bytes or bundle. `stream`: the one that makes the value."""
    if nan_as_null:
        value = _without_nan(value)
    if _is_numpy(value):
        return _plan_numpy(value)
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, _core.Object):
        return _plan_held(value)
    if isinstance(value, _fetch.HostArray):
        return _plan_array(value)
    if isinstance(value, _fetch.HostBundle):
        return _plan_bundle(value)
    if module in ("pandas", "cudf") and hasattr(value, "columns") and hasattr(value, "iloc"):
        return _plan_cudf(value) if module == "cudf" else _plan_frame(value, nan_as_null)
    if module == "pandas":
        return _plan_pandas(value)
    if isinstance(value, Mapping):
        return _plan_dict(value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)) and _is_plain_bytes(value):
        return Plan("bytes", value, buffer=value, nbytes=memoryview(value).nbytes)
    if module == "pylibcudf" and hasattr(value, "columns"):
        return _plan_dict({str(i): column for i, column in enumerate(value.columns())})
    if hasattr(value, "to_pylibcudf") or module == "pylibcudf":
        return _plan_found(value, _gpu.column_on_gpu(value, ""))
    tensor = _floats.torch_bytes(value)
    if tensor:
        return _plan_bytes(*tensor, stream)
    if is_on_gpu(value):
        return _plan_cuda(value)
    source = _gpu.arrow_source(value)
    if source:
        return _plan_source(value, source)
    if hasattr(value, "__dlpack__"):
        return _plan_view(_from_dlpack(value, stream), value)
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return _plan_numpy(numpy_module().asarray(value))
    if isinstance(value, (list, tuple, range)):
        return _plan_list(value)
    if isinstance(value, (bool, int, float, complex)):
        return _plan_numpy(numpy_module().asarray(value))
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"{type(value).__name__} cannot be put{_way_to_put(value)}") from None
    return _plan_buffer(view)


def _way_to_put(value: Any) -> str:
    """The end of the sentence that refuses a value: what makes one of it that can be put."""
    for method, what in (("toarray", "an array"), ("collect", "a frame")):  # sparse matrices, lazy frames
        if hasattr(value, method):
            return f": {method}() makes {what} of it"
    return ": list(…) of it can be" if isinstance(value, Iterable) else f". {ADVICE}"


def _is_numpy(value: Any) -> bool:
    """Whether the value is a NumPy array or scalar; does not import NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _is_plain_bytes(value: Any) -> bool:
    return not isinstance(value, memoryview) or (
        value.format in ("B", "b", "c") and value.ndim == 1 and value.contiguous
    )


def _plan_held(value: Any) -> Plan:
    if value.kind == BYTES and value._ordinal < 0:
        whole: Any = value
        made = Plan("bytes", value, buffer=memoryview(whole), nbytes=value.nbytes)
        made.add_metadata(value.metadata)
        return made
    if value.kind in (TABLE, COLUMN) and value._ordinal < 0:
        return Plan("arrow", value, source=_capsules(value), table=value.kind == TABLE)
    if value.kind == TABLE:
        _gpu.check_own(value)
        schema, array = value.__arrow_c_device_array__()
        return _plan_source(value, (schema, [array]))
    if value.kind == COLUMN:
        return _plan_found(value, _gpu.column_on_gpu(value, ""))
    value._wait_ready(0)
    return _plan_bundle(value) if value.kind == BUNDLE else _plan_array(value)


def _plan_bundle(value: Any) -> Plan:
    """The Plan of a bundle: one part, which is all of its memory."""
    memory, device = value._buffer(DATA), None if value._ordinal < 0 else value._ordinal
    part = bytes_at(memory.pointer, memory.nbytes, memory)
    part.device = device
    layout = (BUNDLE, memory.nbytes, None, (), False, None, value._manifest_bytes)
    return Plan("bundle", value, layout=layout, parts=[(0, part)], device=device, nbytes=memory.nbytes)


def bytes_at(address: int, size: int, keep: Any) -> Plan:
    """The Plan of bytes on the host, as an array of uint8."""
    return Plan("array", keep, dtype="uint8", shape=(size,), address=address, nbytes=size)


def _plan_array(value: Any) -> Plan:
    made = _plan_view(value._view(), value)
    if value.metadata:
        made.add_metadata(value.metadata)
    if value._has_mask and value._null_count != 0:
        made.mask = value._buffer(MASK).pointer, value._offset
    return made


def _plan_found(keep: Any, found: Optional[_gpu.Found]) -> Plan:
    """The Plan of a column on a GPU."""
    assert found is not None
    made = Plan("columns", (keep, found))
    made.take("", found)
    return made


def _plan_source(value: Any, source: Tuple[Any, ...]) -> Plan:
    """A Plan of Arrow's capsules, on the host or on a GPU."""
    table = _is_table(value, source)
    if not _gpu.is_gpu_source(source) and not _nodes.check_types(source[0]):
        return Plan("arrow", value, source=source, table=table)
    found = _gpu.of_capsules(source, value)
    if not table:
        return _plan_found(value, found)
    made = Plan("columns", (value, found), table=True)
    made.take("", found)
    made.open_structs()
    return made


def _plan_view(view: Any, keep: Any) -> Plan:
    """The Plan of a View, on the host or on a GPU."""
    kind, ordinal = view.device
    if kind not in (CPU, *GPUS, 3, 13):
        raise TypeError(f"memory on DLPack device type {kind} cannot be put")
    return _check_packed(Plan(
        "array", (view, keep), dtype=view.dtype, shape=_floats.elements(view.dtype, view.shape),
        strides=None if view.contiguous else view.strides, address=view.pointer, nbytes=view.nbytes,
        device=ordinal if kind in GPUS else None,
    ))


def _plan_bytes(tensor: Any, dtype: str, stream: Optional[int]) -> Plan:
    """The Plan of elements of `dtype`, given as a tensor of their bytes."""
    made = plan(tensor, stream)
    made.dtype, made.shape = dtype, _floats.elements(dtype, made.shape)
    return _check_packed(made)


def _check_packed(made: Plan) -> Plan:
    if made.dtype in _floats.PACKED and made.strides is not None:
        raise TypeError(f"packed elements of {made.dtype} do not lie in C order: copy them first")
    return made


def _from_dlpack(value: Any, stream: Optional[int] = None) -> Any:
    """A View. The producer makes the stream (None: the legacy default one) wait for the memory."""
    try:
        where = {} if value.__dlpack_device__()[0] == CPU else {"stream": stream or 1}
        try:
            capsule = value.__dlpack__(max_version=(1, 0), **where)
        except TypeError:  # older than max_version
            capsule = value.__dlpack__(**where)
        return _core.from_dlpack(capsule)
    except (BufferError, RuntimeError, AttributeError) as error:  # a PyTorch tensor with a gradient, for example
        raise TypeError(f"{type(value).__name__} cannot be put: {error}") from None


BUFFER_DTYPES = {
    "?": "bool8", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16",
    "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64", "l": "int64", "L": "uint64",
    "n": "int64", "N": "uint64",
    "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128",
}


def _plan_buffer(view: memoryview) -> Plan:
    format_ = view.format
    if format_[:1] in "@=<" and len(format_) > 1:
        format_ = format_[1:]
    dtype = BUFFER_DTYPES.get(format_)
    sizes = {"int64": 8, "uint64": 8}
    if dtype is None or sizes.get(dtype, view.itemsize) != view.itemsize:
        raise TypeError(f"a buffer of format {view.format!r} cannot be put")
    memory = view if view.c_contiguous else view.tobytes()
    address, size = _core.address(memory)
    return Plan("array", memory, dtype=dtype, shape=view.shape or (), address=address, nbytes=size)


# ---- NumPy ----

def _time_array(array: Any, where: str) -> Tuple[Any, str]:
    """(array of int64 or int32, dtype) of datetime64 and timedelta64 in any unit."""
    numpy = numpy_module()
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
    there = ~numpy.isnat(array)
    for ours in NUMPY_UNITS:  # NumPy does not say what it cannot convert
        converted = array.astype(f"{array.dtype.kind}8[{ours}]")
        if (converted.astype(array.dtype) == array)[there].all():
            return converted.view("<i8"), f"{kind}[{ours}]"
    raise ValueError(f"{at_column(where)}{array.dtype}: not all of it fits into 64 bits of s, ms, us or ns")


def _native(array: Any, where: str) -> Tuple[Any, str]:
    """(array in native byte order, the protocol's dtype of its elements)"""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.num >= 256 and _floats.name_of(array.dtype):  # none of NumPy's own
        return array, array.dtype.name
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
    if kind == "V" and array.dtype.names is None and size:
        return array, f"fixed_binary({size})"
    raise TypeError(f"{at_column(where)}NumPy's {array.dtype} cannot be put; convert it with astype()")


_plain: Dict[Any, str] = {}  # the protocol's names of NumPy's own dtypes of numbers that were put


def _plan_numpy(array: Any) -> Plan:
    numpy = numpy_module()
    if type(array) is numpy.ndarray:  # in a quarter of the time of what follows
        found = _plain.get(array.dtype)
        if found and array.flags.c_contiguous:
            address, size = _core.address(array)
            return Plan("array", array, found, array.shape, None, address, size)
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
    if isinstance(array, numpy.ma.MaskedArray) or array.dtype.kind in "OSUT":
        if array.ndim != 1:
            raise TypeError(
                f"an array of {array.dtype} becomes a column, and so must have one axis, not "
                f"{array.ndim}"
            )
        return Plan("arrow", array, source=column_source(array, ""), table=False)
    array, dtype = _native(array, "")
    shape, array = array.shape, _floats.from_numpy(array, dtype)
    if dtype in NUMBERS:
        _plain[array.dtype] = dtype
    return Plan(
        "array", array, dtype=dtype, shape=shape, strides=None if array.flags.c_contiguous else array.strides,
        address=array.__array_interface__["data"][0], nbytes=array.nbytes,
    )


def _bitmap(valid: Any) -> Any:
    numpy = numpy_module()
    return numpy.packbits(valid, bitorder="little")


def _numpy_source(array: Any, where: str, nulls: Any = None) -> Tuple[Any, ...]:
    """The source of an array of one axis; `nulls`: an array of bool, or None."""
    numpy = numpy_module()
    if array.ndim != 1:
        raise ValueError(f"{at_column(where)}a column has one axis, not {array.ndim}")
    if isinstance(array, numpy.ma.MaskedArray):
        masked = numpy.ma.getmaskarray(array)
        nulls = masked if nulls is None else nulls | masked
        array = array.data
    kind = array.dtype.kind
    if kind in "OSUT":  # T: StringDType of NumPy 2
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
    try:
        format_ = _core.format_of(dtype)
    except TypeError as error:
        raise TypeError(f"{at_column(where)}{error}: put it as an array of its own") from None
    return (format_, len(array), count, (mask, array.view("u1")), (), None)


# ---- columns ----


def _capsules(held: Any) -> Tuple[Any, ...]:
    schema, array = held.__arrow_c_array__()
    return schema, [array]


def _is_table(value: Any, source: Tuple[Any, ...]) -> bool:
    """Whether a source of structs is a table: `value` has columns. A column of structs has none."""
    if isinstance(value, _core.Object):
        return value.kind == TABLE
    if hasattr(value, "column_names") or hasattr(value, "num_columns"):
        return True
    if type(value).__name__ in ("DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader"):
        return True
    # An unknown type: Arrow's specification calls a stream of structs a table.
    streams = hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_device_stream__")
    return streams and _core.nodes(source[0], None)[0] == "+s" and not (
        hasattr(value, "type") or hasattr(value, "dtype")
    )


def column_source(value: Any, where: str) -> Tuple[Any, ...]:
    """The source of anything that can be a column of a table."""
    if isinstance(value, ONE_VALUE):
        text = repr(value) if len(repr(value)) < 40 else "…"
        raise TypeError(f"{at_column(where)}{text} is one value: [{text}] is a column of one row. A dict that is no "
                        "table goes as json.dumps(…) or pickle.dumps(…) of it")
    module = type(value).__module__.partition(".")[0]
    if kind_of(value) in (COLUMN, ARRAY):
        if value.kind == ARRAY:
            return _numpy_source(numpy_module().asarray(value.to_numpy(masked=value._has_mask)), where)
        return _capsules(value)
    if module == "pandas":
        return _pandas_source(value, where)
    if _is_numpy(value):
        return _numpy_source(numpy_module().asanyarray(value), where)
    source = _gpu.arrow_source(value)
    if source:
        _nodes.check_types(source[0], where)
        return source
    if isinstance(value, Mapping):
        raise TypeError(f"{at_column(where)}{type(value).__name__} is not a column: expected a sequence")
    if isinstance(value, (list, tuple, range)):
        return list_source(list(value), where)
    if hasattr(value, "__dlpack__"):
        try:
            view = _from_dlpack(value)
        except TypeError as error:
            raise TypeError(f"{at_column(where)}{error}") from None
        if view.device[0] in GPUS:
            raise TypeError(
                f"{at_column(where)}the value is on a GPU and has neither __cuda_array_interface__ nor Arrow's device "
                "form: make it a CuPy or PyTorch array"
            )
        try:
            return _numpy_source(view.to_numpy(), where)
        except TypeError as error:
            raise error if str(error).startswith("column") else TypeError(f"{at_column(where)}{error}")
    if hasattr(value, "toarray"):
        raise TypeError(f"{at_column(where)}it is sparse: toarray() makes it dense")
    try:
        return _numpy_source(numpy_module().asarray(value), "")
    except (TypeError, ValueError) as error:
        raise TypeError(f"{at_column(where)}{type(value).__name__} cannot be a column: {error}") from None


def _plan_dict(
    value: Mapping[Any, Any], metadata: Optional[Tuple[bytes, ...]] = None, rows: Optional[int] = None
) -> Plan:
    """The Plan of a dict of columns. `rows`: the number of rows, for a frame that may have no columns."""
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"a column's name is a str, not {name!r}")
    there = {name: _gpu.column_on_gpu(column, name) for name, column in value.items()}
    sources = {name: column_source(column, name) for name, column in value.items() if there[name] is None}
    for name, source in sources.items():
        found = _rows_of(source, value[name])
        if rows is not None and found != rows:
            raise ValueError(f"{at_column(name)}it has {found} rows, the columns before it {rows}")
        rows = found
    return _plan_columns(value, sources, {name: found for name, found in there.items() if found}, metadata, rows or 0)


def _rows_of(source: Tuple[Any, ...], column: Any) -> int:
    if len(source) != 2:
        return int(source[1])
    return len(column) if hasattr(column, "__len__") else sum(piece.rows for piece in _nodes.pieces_of(source))


def _plan_columns(
    value: Any, sources: Mapping[Any, Any], there: Dict[str, _gpu.Found], metadata: Optional[Tuple[bytes, ...]], rows: int
) -> Plan:
    """The Plan of a table's columns: of sources on the host, and of others by name; in the order of `value`.

    Without others the sources may be blocks, by their tuples of names.
    """
    for name, source in sources.items():
        if len(source) == 2 and _nodes.check_types(source[0], name):
            there[name] = _gpu.of_capsules(source, source)
    if len(sources) > _core.COLUMNS:
        raise ValueError(
            f"a table has at most {_core.COLUMNS} columns, these are {len(sources)}: put_bundle() has room for more arrays, and a "
            "pandas DataFrame for more columns of numbers"
        )
    if there:  # the table is made there, too
        made = Plan("columns", (value, there), table=True, metadata=metadata)
        for name, source in _nodes.columns_in((name, sources.get(name)) for name in value):
            made.take(name, there.get(name) or _gpu.Found(_nodes.pieces_of(source), keep=source))
        made.rows = sum(piece.rows for piece in made.columns[0][1])
        return made
    source = ("+s", rows, 0, (None,), tuple(sources.items()), None)
    if metadata:
        source += (_nodes.encoded(metadata),)
    return Plan("arrow", value, source=source, table=True, metadata=metadata)


def _plan_list(value: Any) -> Plan:
    """A list of record batches is a table, any other a column."""
    names = ("__arrow_c_array__", "__arrow_c_device_array__")
    if value and all(any(hasattr(item, name) for name in names) for item in value):
        if not any(isinstance(item, _core.Object) for item in value):
            return _plan_batches(value)
    return Plan("arrow", value, source=list_source(list(value), ""), table=False)


def _types(told: Any) -> Any:
    """A node of a schema without its metadata, in which record batches may differ."""
    return told and (told[0], told[1], tuple(map(_types, told[6])), _types(told[7]))


def _plan_batches(value: Any) -> Plan:
    sources = [_gpu.arrow_source(item) for item in value]
    if len({_types(_core.nodes(source[0], None)) for source in sources if source}) > 1:
        raise ValueError("the record batches have different schemas")
    arrays = [array for source in sources if source for array in source[1]]
    source = (sources[0][0], arrays) if sources[0] else ()
    made = _plan_source(value[0], source)
    made.keep = (value, sources, made.keep)
    return made


# ---- pandas ----


def _plan_cudf(value: Any) -> Plan:
    names, labels = _labels.written(value.columns)
    columns = dict(zip(names, (column for _, column in value.items())))
    levels, metadata = _frames.metadata_of(value, names, columns.values(), labels)
    return _plan_dict({**columns, **levels}, metadata, len(value))


def _plan_frame(value: Any, nan_as_null: bool) -> Plan:
    """The Plan of a DataFrame of pandas, block by block. In one with too many columns each block of numbers is a column."""
    names, labels = _labels.written(value.columns)
    blocks, wide = _frames.blocks_of(value), len(names) + value.index.nlevels > _core.COLUMNS
    columns: List[Any] = [None] * len(names)  # those that are more than numbers
    found: List[Any] = [None] * len(names)  # names and sources; blocks where they begin
    packed: Dict[str, Any] = {}
    for places, values in _frames.merged(blocks) if wide else blocks:
        first = names[places[0]] if places else ""
        if wide and _frames.is_numbers(values):
            name = _labels.unique(str(values.dtype), {*names, *packed})
            packed[name] = [names[place] for place in places], _frames.runs_of(places)
            found[places[0]] = name, _packed_source(values, first, nan_as_null)
        elif _frames.is_numbers(values) and not nan_as_null:
            for start, source in _number_sources(values, places, first):
                found[start] = tuple(names[start : start + len(source[3][1])]), source
        else:
            for place, row in zip(places, [values] if values.ndim == 1 else values):
                columns[place] = row
                found[place] = names[place], _pandas_source(row, names[place], nan_as_null)
    levels, metadata = _frames.metadata_of(value, names, columns, labels, packed)
    sources = dict(pair for pair in found if pair)
    if wide and len(sources) + len(levels) > _core.COLUMNS:
        text = next(name for name in sources if name not in packed)
        raise ValueError(
            f"the frame has {len(sources) - len(packed)} columns that are not numbers, such as {text!r}, and a table has at "
            f"most {_core.COLUMNS}: put parts of the frame, such as frame.iloc[:, :1000]")
    sources.update((field, column_source(level, field)) for field, level in levels.items())
    return _plan_columns(sources, sources, {}, metadata, len(value))


def _number_sources(values: Any, places: List[int], where: str) -> Iterator[Tuple[int, Tuple[Any, ...]]]:
    """(the first column, source of a block) of each run of columns of numbers, that are the rows of an array."""
    array, dtype = _native(values, where)
    rows, format_, at = values.shape[1], _core.format_of(dtype), 0
    data = numpy_module().ascontiguousarray(array).view("u1")
    for start, stop in _frames.runs_of(places):
        yield start, (format_, rows, 0, (None, data[at : at + stop - start]), (), None)
        at += stop - start


def _packed_source(values: Any, where: str, nan_as_null: bool) -> Tuple[Any, ...]:
    """The source of a column of lists of a fixed size, which are the columns of an array."""
    count, rows = values.shape
    items = _pandas_source(values.T.ravel(), where, nan_as_null)
    return (f"+w:{count}", rows, 0, (None,), (("item", items),), None)


def _plan_pandas(value: Any) -> Plan:
    if hasattr(value, "iloc"):
        if not _frames.is_plain_index(value.index):
            raise ValueError(
                "a Series becomes a column, which has no index, and this one is not 0, 1, 2, …: put "
                "series.to_frame(), which keeps it, or series.reset_index(drop=True)"
            )
    elif not hasattr(value, "isna"):
        raise TypeError(f"pandas' {type(value).__name__} cannot be put. {ADVICE}")
    return Plan("arrow", value, source=_pandas_source(value, ""), table=False)


def _pandas_source(value: Any, where: str, nan_as_null: bool = False) -> Tuple[Any, ...]:
    """The source of a Series, an Index, or an array of a frame."""
    numpy = numpy_module()
    import pandas

    dtype = value.dtype
    if isinstance(dtype, numpy.dtype):
        plain = value if isinstance(value, numpy.ndarray) else value.to_numpy()
        return _numpy_source(plain, where, numpy.isnan(plain) if nan_as_null and dtype.kind == "f" else None)
    array = value if isinstance(value, pandas.api.extensions.ExtensionArray) else value.array
    held = _gpu.arrow_source(array.__arrow_array__()) if _series.lies_in_arrow(dtype) else None
    if held is not None:  # an old pyarrow has no streams of chunked arrays
        return held
    if isinstance(dtype, pandas.CategoricalDtype):
        codes, nulls = array.codes, None
        if len(codes) and codes.min() < 0:
            nulls = codes < 0
            codes = numpy.where(nulls, codes.dtype.type(0), codes)
        indices = _numpy_source(codes, where, nulls)
        return indices[:5] + (_one_piece(array.categories, where),)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        source = _numpy_source(array.asi8.view(f"M8[{dtype.unit}]"), where)
        return (source[0] + _zones.name_of(dtype.tz, where),) + source[1:]
    if isinstance(dtype, pandas.SparseDtype):
        raise TypeError(f"{at_column(where)}it is sparse: series.sparse.to_dense() makes it dense")
    if isinstance(dtype, pandas.StringDtype):
        return list_source(array.tolist(), where)
    nulls = numpy.asarray(array.isna())
    if isinstance(dtype, pandas.PeriodDtype):
        source = _numpy_source(numpy.where(nulls, 0, array.asi8), where, nulls)
        return source + (_nodes.encoded(_series.extension("pandas.period", freq=str(dtype)[7:-1])),)
    if isinstance(dtype, pandas.IntervalDtype):
        return _interval_source(array, nulls, where)
    if hasattr(dtype, "numpy_dtype") and not hasattr(dtype, "pyarrow_dtype"):
        zero = numpy.zeros(1, dtype.numpy_dtype)[0]
        return _numpy_source(array.to_numpy(dtype.numpy_dtype, na_value=zero), where, nulls)
    if hasattr(array, "__arrow_array__"):
        import pyarrow

        schema, made = pyarrow.array(array.__arrow_array__()).__arrow_c_array__()
        return schema, [made]
    raise TypeError(f"{at_column(where)}pandas' {dtype} cannot be put: convert it with astype()")


def _one_piece(index: Any, where: str) -> Tuple[Any, ...]:
    """The source of an Index that is a part of a column."""
    source = column_source(index, where)
    if len(source) == 2 and len(source[1]) != 1:
        source = column_source(index.array.__arrow_array__().combine_chunks(), where)
    return source


def _interval_source(array: Any, nulls: Any, where: str) -> Tuple[Any, ...]:
    told = _series.extension("pandas.interval", subtype=str(array.dtype.subtype), closed=array.closed)
    sides = tuple((side, _one_piece(getattr(array, side), where)) for side in ("left", "right"))
    mask = _bitmap(~nulls) if nulls.any() else None
    return ("+s", len(array), int(nulls.sum()), (mask,), sides, None, _nodes.encoded(told))


# ---- GPUs ----


def _plan_cuda(value: Any) -> Plan:
    array = CudaArray(value)
    if array.mask is not None:
        return _plan_found(value, _gpu.column_on_gpu(value, ""))
    return Plan(
        "array", (array, value), dtype=array.dtype, shape=array.shape, strides=array.strides, address=array.pointer,
        streams=[] if array.stream is None else [array.stream],
        device=cuda.pointer_device(array.pointer) if array.pointer else None,
    )


def bytes_of(dtype: str, shape: Tuple[int, ...]) -> int:
    """Bytes of an array without gaps."""
    return math.prod(_floats.items(dtype, shape)) * _core.itemsize(dtype)


def strided_copies(made: Plan, limit: int) -> Iterator[_nodes.Copy]:
    """Copies of an array that is not in C order: of each contiguous run on a GPU, of collected parts on the host."""
    size = _core.itemsize(made.dtype)
    if 0 in made.shape:
        return
    if made.device is None:
        yield from _collected(made, limit)
        return
    shape, strides = list(made.shape), list(made.strides or ())
    run = size
    while shape and (strides[-1] == run or shape[-1] == 1):
        run *= shape.pop()
        strides.pop()
    at = 0
    for place in itertools.product(*(range(extent) for extent in shape)):
        address = made.address + sum(i * stride for i, stride in zip(place, strides))
        yield _nodes.Copy((), DATA, at, address, run, made)
        at += run


def _collected(made: Plan, limit: int) -> Iterator[_nodes.Copy]:
    """An array on the host, in parts of about `limit` bytes that are in C order."""
    numpy = numpy_module()
    array = made.keep if _is_numpy(made.keep) else made.keep[0].to_numpy()
    rows = max(1, limit // max(array.nbytes // len(array), 1))
    at = 0
    for start in range(0, len(array), rows):
        part = numpy.ascontiguousarray(array[start : start + rows])
        yield _nodes.Copy((), DATA, at, part.__array_interface__["data"][0], part.nbytes, part)
        at += part.nbytes


def share_array(made: Plan) -> Tuple[Dict[str, Any], List[Tuple[int, int]]]:
    """(layout of `register`, parts of memory that it refers to) for an array on a GPU."""
    count = bytes_of(made.dtype, made.shape)
    layout: Dict[str, Any] = {"kind": "array", "dtype": made.dtype, "shape": list(made.shape)}
    if made.strides is not None and count:
        size = count = _core.itemsize(made.dtype)
        if any(stride < 0 or stride % size for stride in made.strides):
            raise ValueError("the strides are negative, or no multiples of an element's size: put() copies the array")
        layout["strides"] = list(made.strides)
        count += sum((extent - 1) * stride for extent, stride in zip(made.shape, made.strides))
    sharing = _nodes.Sharing()
    layout["data"] = sharing.buffer(made.address, count)
    return layout, sharing.parts


def write(target: Any, values: Any, offset: int, stream: Optional[int]) -> None:
    """Copies values into an unsealed array, column or bytes."""
    view = target._view()
    if isinstance(values, (list, tuple, bool, int, float, complex)) and view.typestr:
        values = numpy_module().asarray(values, view.typestr)
    given = values
    if hasattr(values, "__array_interface__"):
        values = numpy_module().ascontiguousarray(values)
    made = plan(values, stream)
    if made.kind == "bytes":
        made = bytes_at(*_core.address(made.buffer), made)
    if made.kind != "array" or made.mask is not None:
        raise TypeError(f"{type(given).__name__} cannot be written: expected an array or bytes without nulls")
    if made.strides is not None:
        raise ValueError("the values are not contiguous: copy them first")
    if stream is not None and _is_numpy(given) and made.keep is not given:
        raise ValueError("with a stream the values must be contiguous and of the same type")
    for one in made.streams:
        if one != stream:
            cuda.Stream.of(one, made.device or 0).synchronize()
    dtype, count = made.dtype, bytes_of(made.dtype, made.shape)
    at = (target._offset if target.kind == COLUMN else 0) + offset
    if isinstance(given, (bytes, bytearray)) or dtype == "uint8" and view.dtype in _floats.SMALL:  # their bytes
        dtype = view.dtype
    if dtype != view.dtype and not (dtype == "uint8" and target.kind == BYTES):
        if dtype.partition("[")[0] != view.dtype.partition("[")[0] or "," not in view.dtype:
            raise TypeError(f"the object holds {view.dtype}, the values are {dtype}: convert them")
    if view.dtype in _floats.PACKED:
        if offset * _floats.PACKED[view.dtype] % 8:
            raise ValueError(f"element {offset} of {view.dtype} does not begin a byte")
        at = offset = offset * _floats.PACKED[view.dtype] // 8
    if offset < 0 or offset * view.itemsize + count > view.nbytes:
        raise ValueError(f"{count} bytes do not fit from element {offset} on: the object has {view.nbytes} in all")
    if count:
        target._write(DATA, at * view.itemsize, made.address, count, 0 if stream is None else int(stream))
