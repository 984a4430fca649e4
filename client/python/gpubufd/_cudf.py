"""cuDF's columns as Nodes, and columns as cuDF's, by way of pylibcudf.Column in both directions.

Of a cuDF column base, offset and length are asked for, never its capsule: that of a slice has the bitmap, the offsets and
the children of the whole column (docs/reports/cudf-device-capsules.md). Nothing is copied unless it says so. cuDF computes
on the legacy default stream, or on one that waits for it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _core, _frames, _labels, _series, _values, _zones, cuda
from ._layout import DATA, at_column, called
from ._nodes import OFFSET_WIDTHS, Node

UNITS = {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}
# Types of a fixed width, by pylibcudf's names. cuDF has one byte for a bool, and packs it.
DTYPES = {
    **{name.upper(): name for name in (*_values.INTEGERS, "float32", "float64")},
    **{f"{kind.upper()}_{name}": f"{kind}[{unit}]" for kind in ("timestamp", "duration") for unit, name in UNITS.items()},
    "TIMESTAMP_DAYS": "date32", "BOOL8": "bool",
}
TYPES = {dtype: name for name, dtype in DTYPES.items()}
TYPES.update({"bool8": "BOOL8", "date64": "TIMESTAMP_MILLISECONDS"})
DIGITS = {"DECIMAL32": 9, "DECIMAL64": 18, "DECIMAL128": 38}
ADVICE = {
    "float16": "put it as float32", "fixed_list": "put it as a list", "time32": "put it as a duration",
    "time64": "put it as a duration",
}


# ---- from cuDF ----


def node_of(value: Any, where: str) -> Node:
    """The Node of a cuDF Series or Index, or of a pylibcudf.Column.

    Copied by cuDF, on its stream: bools, which it packs, and decimals of 32 and 64 bits, which become wider.
    """
    if getattr(value, "nlevels", 1) > 1:
        raise TypeError(f"{at_column(where)}it is a MultiIndex: put index.to_frame(index=False)")
    column = value.to_pylibcudf()[0] if hasattr(value, "to_pylibcudf") else value
    return _node(column, getattr(value, "dtype", None), where, _device_of(column) or 0)


def _address(span: Any) -> int:
    return 0 if span is None else int(span.ptr)


def _device_of(column: Any) -> Optional[int]:
    """The ordinal of the GPU that a column is on; None: it has no memory."""
    for address in filter(None, (_address(column.data()), _address(column.null_mask()))):
        found = cuda.pointer_device(address)
        if found is not None:
            return found
    return next((at for at in map(_device_of, column.children()) if at is not None), None)


def _node(column: Any, dtype: Any, where: str, device: int) -> Node:
    """`dtype`: cuDF's, or pyarrow's of an ArrowDtype; None: only the column is known, which has no names."""
    import pylibcudf

    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    kind, children = column.type().id().name, column.children()
    if kind in ("DECIMAL32", "DECIMAL64"):
        digits = getattr(dtype, "precision", DIGITS[kind])
        wide = pylibcudf.DataType(pylibcudf.TypeId.DECIMAL128, column.type().scale())
        made = _node(pylibcudf.unary.cast(column, wide), None, where, device)
        made.dtype = f"decimal128({digits},{-column.type().scale()})"
        return made
    node = Node(
        DTYPES.get(kind, "struct"), column.size(), offset=column.offset(), null_count=column.null_count(), device=device,
        data=_address(column.data()), mask=_address(column.null_mask()), keep=column,
    )
    if hasattr(dtype, "categories"):
        return _dictionary(node, node_of(dtype.categories, where))
    if kind == "BOOL8":
        _pack(node, column)
    elif kind == "DECIMAL128":
        node.dtype = f"decimal128({getattr(dtype, 'precision', 38)},{-column.type().scale()})"
    elif kind.startswith("TIMESTAMP") and getattr(dtype, "tz", None) is not None:
        zone = dtype.tz if isinstance(dtype.tz, str) else _zones.name_of(dtype.tz, where)
        node.dtype = f"{node.dtype[:-1]},{zone}]"
    elif kind in ("STRING", "LIST"):
        node.dtype = "list" if kind == "LIST" else "utf8"
        if children:
            if kind == "STRING" and children[0].type().id().name == "INT64":
                node.dtype = "large_utf8"
            node.offsets = _address(children[0].data()) + children[0].offset() * OFFSET_WIDTHS[node.dtype]
        if kind == "LIST":
            below = getattr(dtype, "element_type", getattr(dtype, "value_type", None))
            node.children = [_node(children[1], below, where, device)]
    elif kind == "STRUCT":
        for child, (name, below) in zip(children, _fields(dtype, len(children)).items()):
            node.children.append(_node(child, below, where, device))
            node.children[-1].name = name
        if hasattr(dtype, "closed"):
            node.metadata = _series.extension("pandas.interval", subtype=str(dtype.subtype), closed=dtype.closed)
    elif kind == "DICTIONARY32":
        indices = _node(children[0], None, where, device)
        node.dtype, node.data = indices.dtype, indices.data + indices.offset * _core.itemsize(indices.dtype)
        return _dictionary(node, _node(children[1], None, where, device))
    elif kind == "EMPTY":
        node.dtype = "null"
    elif kind not in DTYPES:
        raise TypeError(f"{at_column(where)}pylibcudf's {kind} cannot be put: cast it")
    return node


def _dictionary(indices: Node, values: Node) -> Node:
    return Node("dictionary", indices.length, null_count=indices.null_count, device=indices.device, children=[indices, values])


def _pack(node: Node, column: Any) -> None:
    """Makes bits of the bytes of a column of bools, from bit 0 on."""
    import pylibcudf

    if not node.length:
        return
    bits = pylibcudf.transform.bools_to_mask(column)[0]
    mask = pylibcudf.null_mask.copy_bitmask(column) if node.null_count else None
    node.data, node.mask, node.offset, node.keep = _address(bits), _address(mask), 0, (bits, mask)


def _fields(dtype: Any, count: int) -> Dict[str, Any]:
    """The dtypes of a struct's fields by name; of a column alone numbers, as cuDF has it."""
    if dtype is None:
        return dict.fromkeys(map(str, range(count)))
    fields = getattr(dtype, "fields", None)
    return fields if isinstance(fields, dict) else {field.name: field.type for field in dtype}


# ---- to cuDF ----


class Span:
    """Memory as pylibcudf and cuDF take it; it holds the lease."""

    def __init__(self, address: int, size: int, keep: Any):
        self.ptr, self.size, self.keep = address, size, keep

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {"data": (self.ptr, True), "shape": (self.size,), "typestr": "|u1", "strides": None, "version": 3}


def series(held: Any, node: Node) -> Any:
    """A cuDF Series of a Column, or of an Array of one axis."""
    import cudf

    return cudf.Series._from_column(_made(held, node, {}), name=held._column_name)


def frame(table: Any, node: Node) -> Any:
    """A cuDF DataFrame of a table; a plain one if its metadata make no sense, since a table is anybody's."""
    try:
        return _told_frame(table, node, _frames.read(table))
    except _frames.MALFORMED:
        return _told_frame(table, node, _frames.NOTHING)


def _told_frame(table: Any, node: Node, told: _frames.Told) -> Any:
    made = _frame(table, node, told.entries, *_frames.index_of(table, told))
    if not _labels.are_names(told.labels):
        made.columns = _labels.read(list(made.columns), told.labels)
    made.attrs = told.attrs or {}
    return made


def partition(table: Any, node: Node, spec: Dict[str, Any]) -> Any:
    """The DataFrame or Series of a partition: what _frames.put_together() makes on the host."""
    entries = {one["name"]: _entry(one) for one in spec["columns"]}
    index = spec["index"]
    if "range" in index:
        made = _frame(table, node, entries, [], (*index["range"], index["label"]))
    else:
        made = _frame(table, node, {**entries, index["name"]: _entry(index)}, [index["name"]], ())
    made.columns = _frames.labels_of_spec(spec)
    return next(iter(made.items()))[1] if spec.get("series") else made


def _entry(spec: Dict[str, Any]) -> Dict[str, Any]:
    """A column of a spec, as a frame's metadata would describe it."""
    more = {"freq": spec.get("freq"), "ordered": spec.get("ordered"), "categories": {"numpy_type": spec.get("categories")}}
    kind = "categorical" if spec["dtype"] == "category" else ""
    return {"name": spec["label"], "numpy_type": spec["dtype"], "pandas_type": kind, "metadata": more}


def _frame(table: Any, node: Node, entries: Mapping[str, Any], levels: List[str], index: Tuple[Any, ...]) -> Any:
    """`levels`: the names of the index's columns; without any `index` has the arguments of a RangeIndex."""
    import cudf

    columns = {name: _made(table._child(i), child, entries.get(name, {}), len(levels) > 1 and name in levels)
               for i, (name, child) in enumerate(zip(table.names, node.children))}
    chosen, told = [columns.pop(level) for level in levels], [entries[level] for level in levels]
    if not levels:
        made: Any = cudf.RangeIndex(*index[:3], name=index[3])
    elif len(levels) == 1:
        made = cudf.Index._from_column(chosen[0], name=told[0]["name"])
        freq = (told[0].get("metadata") or {}).get("freq")
        if freq is not None and isinstance(made, cudf.DatetimeIndex):
            made = cudf.DatetimeIndex._from_column(chosen[0], name=told[0]["name"], freq=freq)
    else:
        made = cudf.MultiIndex._from_data(dict(enumerate(chosen)))
        made.names = [entry["name"] for entry in told]
    return cudf.DataFrame._from_data(columns, index=made)


def _made(held: Any, node: Node, entry: Mapping[str, Any], level: bool = False) -> Any:
    """A cuDF column. `entry`: what a frame's metadata say of it; `level`: of a MultiIndex, as values."""
    from cudf.core.column import ColumnBase

    column, dtype = _column(held, node, entry, level and entry.get("pandas_type") != "categorical")
    wanted = _series.own_dtype(entry)
    if wanted and node.dtype != "dictionary":
        try:
            return ColumnBase.create(column, _dtype_named(wanted, held))
        except (ImportError, KeyError, TypeError, ValueError):  # a dtype that is not known here, or of something else
            pass
    return ColumnBase.create(column, dtype)


def _dtype_named(text: str, held: Any) -> Any:
    import pandas

    if text.endswith("[pyarrow]") and not text.startswith("string"):
        import pyarrow

        return pandas.ArrowDtype(pyarrow.DataType._import_from_c_capsule(held.__arrow_c_schema__()))
    return pandas.api.types.pandas_dtype(text)


def _column(held: Any, node: Node, entry: Mapping[str, Any], decoded: bool) -> Tuple[Any, Any]:
    """(pylibcudf.Column, cuDF's dtype). `held`: the object that the Node is of; `decoded`: values, not categories."""
    kind = _values.head(node.dtype)
    if kind == "dictionary":
        return _categories(held, node, entry, decoded)
    if kind == "struct":
        return _struct(held, node)
    if node.children:
        return _list(held, node)
    if kind == "null":
        return _nothing(node)
    return _text(held, node) if node.dtype in OFFSET_WIDTHS else _fixed(held, node)


def _plain(type_: str, node: Node, data: Any, children: Any = (), scale: int = 0) -> Any:
    """A pylibcudf.Column with the Node's offset, length and nulls. Where nobody has counted these, cuDF does."""
    import pylibcudf

    end = node.offset + node.length
    count, mask = node.null_count if node.mask and node.length else 0, None
    if count:
        mask = Span(node.mask, pylibcudf.null_mask.bitmask_allocation_size_bytes(end), node.keep)
    if count < 0:
        count = pylibcudf.null_mask.null_count(mask, node.offset, end)
    return pylibcudf.Column(pylibcudf.DataType(pylibcudf.TypeId[type_], scale), node.length, data if node.length else None,
                            mask if count else None, count, node.offset, list(children))


def _fixed(held: Any, node: Node) -> Tuple[Any, Any]:
    """Elements of a fixed width. Copied are bits, one byte for each, and days, which become seconds: cuDF lacks both."""
    import cudf
    import numpy
    import pylibcudf

    kind, told = _values.head(node.dtype), _values.arguments(node.dtype)
    data = Span(node.data, (node.offset + node.length) * _core.itemsize(node.dtype), node.keep)
    if kind == "decimal128":
        digits, places = map(int, told)
        return _plain("DECIMAL128", node, data, scale=-places), cudf.Decimal128Dtype(digits, places)
    type_ = TYPES.get(f"{kind}[{told[0]}]" if kind in ("timestamp", "duration") else node.dtype)
    if type_ is None or _extension_of(node) == "pandas.period":
        raise _lacks(held, "periods" if type_ else node.dtype, kind)
    if kind == "bool":
        return _unpacked(node), numpy.dtype("bool")
    column = _plain(type_, node, data)
    if kind == "date32":
        column = pylibcudf.unary.cast(column, pylibcudf.DataType(pylibcudf.TypeId.TIMESTAMP_SECONDS))
    if len(told) > 1:
        return column, _zoned(held, *told)
    kinds = {"timestamp": "M8[{}]", "duration": "m8[{}]", "date32": "M8[s]", "date64": "M8[ms]", "bool8": "bool"}
    return column, numpy.dtype(kinds.get(kind, node.dtype).format(*told))


def _unpacked(node: Node) -> Any:
    import pylibcudf

    if not node.length:
        return _plain("BOOL8", node, None)
    end = node.offset + node.length
    nulls = _plain("BOOL8", node, Span(node.data, end, node.keep))  # for its mask, and the number of nulls
    made = pylibcudf.transform.mask_to_bools(node.data, node.offset, end)
    return made.with_mask(pylibcudf.null_mask.copy_bitmask(nulls), nulls.null_count()) if nulls.null_count() else made


def _zoned(held: Any, unit: str, zone: str) -> Any:
    import zoneinfo

    import pandas

    try:
        return pandas.DatetimeTZDtype(unit, zoneinfo.ZoneInfo(zone))
    except (KeyError, ValueError):
        raise TypeError(f"{called(held)}: cuDF has no time zone {zone!r}: put the times in UTC, dt.tz_convert('UTC')") from None


def _lacks(held: Any, what: str, kind: str) -> TypeError:
    advice = ADVICE.get(kind, "to_host() copies it to the host, for pandas and pyarrow")
    return TypeError(f"{called(held)}: cuDF has no {what}: {advice}")


def _extension_of(node: Node) -> str:
    pairs = node.metadata or ()
    return dict(zip(pairs[::2], pairs[1::2])).get(_series.EXTENSION.encode(), b"").decode() if pairs else ""


def _nothing(node: Node) -> Tuple[Any, Any]:
    """Text with nothing but nulls, as cuDF has a column without a type."""
    import cudf
    import pylibcudf

    null = pylibcudf.Scalar.from_py(None, pylibcudf.DataType(pylibcudf.TypeId.STRING))
    return pylibcudf.Column.from_scalar(null, node.length), cudf.dtype("str")


def _offsets(node: Node) -> Any:
    width, count = OFFSET_WIDTHS[node.dtype], node.offset + node.length + 1 if node.length else 0
    whole = Node("", count, data=node.offsets, keep=node.keep)
    return _plain(f"INT{8 * width}", whole, Span(node.offsets, count * width, node.keep))


def _text(held: Any, node: Node) -> Tuple[Any, Any]:
    import cudf

    if not node.dtype.endswith("utf8"):
        raise _lacks(held, node.dtype, node.dtype)
    characters = held._buffer(DATA)
    data = Span(node.data, 0 if characters is None else characters.nbytes, node.keep)
    return _plain("STRING", node, data, [_offsets(node)]), cudf.dtype("str")


def _list(held: Any, node: Node) -> Tuple[Any, Any]:
    """A list, large list or map. libcudf takes the last offset for the number of items; of large lists it copies offsets."""
    import cudf
    import pylibcudf

    if node.dtype not in OFFSET_WIDTHS:
        raise _lacks(held, node.dtype, _values.head(node.dtype))
    last = node.offset_at(node.offset + node.length, cuda.LEGACY_STREAM) if node.length else 0
    items = _first(node.children[0], last)
    offsets = _offsets(node)
    if OFFSET_WIDTHS[node.dtype] == 8:
        offsets = pylibcudf.unary.cast(offsets, pylibcudf.DataType(pylibcudf.TypeId.INT32))
    column, dtype = _column(held._child(0), items, {}, True)
    return _plain("LIST", node, None, [offsets, column]), cudf.ListDtype(dtype)


def _first(node: Node, count: int) -> Node:
    """The first elements of a Node."""
    if node.length == count:
        return node
    below = node.children
    if node.dtype == "dictionary":
        below = [_first(below[0], count), below[1]]
    return dataclasses.replace(node, length=count, null_count=-1 if node.null_count else 0, children=below)


def _struct(held: Any, node: Node) -> Tuple[Any, Any]:
    import cudf

    found = [_column(held._child(i), child, {}, True) for i, child in enumerate(node.children)]
    dtype: Any = cudf.StructDtype({child.name: dtype for child, (_, dtype) in zip(node.children, found)})
    if _extension_of(node) == "pandas.interval":
        dtype = cudf.IntervalDtype(found[0][1], json.loads(held.metadata[_series.EXTENDED])["closed"])
    return _plain("STRUCT", node, None, [column for column, _ in found]), dtype


def _categories(held: Any, node: Node, entry: Mapping[str, Any], decoded: bool) -> Tuple[Any, Any]:
    """The codes, and a CategoricalDtype; of a nested column, or where a value is there twice, the values, copied.

    Codes are copied if cuDF has another width for this number of categories.
    """
    import cudf
    import pylibcudf

    indices, values = node.children
    codes = _fixed(held._child(0), indices)[0]
    if decoded:
        return _decoded(codes, *_column(held._child(1), values, {}, True))
    more = entry.get("metadata") or {}
    found = _made(held._child(1), values, more.get("categories") or {})
    categories = cudf.Index._from_column(found)
    if entry.get("pandas_type") != "categorical" and (categories.hasnans or not categories.is_unique):
        return _decoded(codes, found.to_pylibcudf(), found.dtype)
    dtype = cudf.CategoricalDtype(categories, bool(more.get("ordered")))
    type_ = pylibcudf.DataType(pylibcudf.TypeId[dtype._codes_dtype.name.upper()])
    if _core.itemsize(indices.dtype) != dtype._codes_dtype.itemsize:
        return pylibcudf.unary.cast(codes, type_), dtype
    column = pylibcudf.Column(type_, codes.size(), codes.data(), codes.null_mask(), codes.null_count(), codes.offset(), [])
    return column, dtype


def _decoded(codes: Any, values: Any, dtype: Any) -> Tuple[Any, Any]:
    """The values of codes. Under a null, also the parent's, a code may be out of range."""
    import pylibcudf

    policy = pylibcudf.copying.OutOfBoundsPolicy.NULLIFY
    (made,) = pylibcudf.copying.gather(pylibcudf.Table([values]), codes.with_mask(None, 0), policy).columns()
    if codes.null_count():
        made = made.with_mask(*pylibcudf.null_mask.bitmask_and([made, codes]))
    return made, dtype
