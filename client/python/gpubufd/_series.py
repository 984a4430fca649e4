"""Columns as the arrays of pandas: over the column's own memory wherever pandas has a type for it."""

from __future__ import annotations

import functools
import json
from typing import Any, Dict, Mapping, Optional, Tuple

from . import _values, _zones
from ._layout import ARRAY, called

EXTENSION, EXTENDED = "ARROW:extension:name", "ARROW:extension:metadata"  # keys of a field's metadata


def lies_in_arrow(dtype: Any) -> bool:
    """Whether arrays of a pandas dtype lie over Arrow arrays: ArrowDtype, and strings since pandas 3 with pyarrow."""
    return hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", None) == "pyarrow"


@functools.lru_cache(None)
def text_dtype() -> Any:
    """This pandas' own dtype of text; None before version 3, where text is objects."""
    import pandas

    return None if before(3) else pandas.StringDtype(na_value=float("nan"))


def maker_of(zone: Any) -> Any:
    """_zones.maker_of(), but None for the library whose zones pandas itself makes of names."""
    maker = _zones.maker_of(zone)
    fixed = maker == "pytz" and not zone.zone
    return maker if fixed or maker != ("pytz" if before(3) else "zoneinfo") else None


@functools.lru_cache(None)
def before(major: int) -> bool:
    """Whether this pandas is older than a version."""
    import pandas

    return int(pandas.__version__.partition(".")[0]) < major


def to_series(held: Any) -> Any:
    """A pandas Series."""
    import pandas

    _values.on_host(held)
    if held.kind == ARRAY and held.ndim != 1:
        raise TypeError(f"{called(held)} has {held.ndim} axes, a pandas Series has one")
    made = to_array(held)
    return pandas.Series(made, name=held._column_name, dtype=made.dtype, copy=False)


def to_array(held: Any, entry: Any = None) -> Any:
    """A NumPy array, or one of pandas' own. `entry`: what a frame's metadata say of its dtype, by anybody."""
    entry = entry or {}
    dtype, kind = held._dtype, _values.head(held._dtype)
    nulls = held._has_mask and held._null_count != 0
    if kind == "dictionary":
        return categorical(held, entry) if entry.get("pandas_type") == "categorical" else _distinct(held)
    if kind in ("struct", "int64") and EXTENSION in held.metadata:
        made = _extended(held)
        if made is not None:
            return made
    if entry.get("numpy_type") == "object" and entry.get("pandas_type") not in ("unicode", "bytes"):
        return _values.objects(held)
    if kind == "timestamp" and "," in dtype:
        zone = _zones.for_pandas(dtype.partition(",")[2][:-1], (entry.get("metadata") or {}).get("tzinfo"))
        return _index(_times(held)).tz_localize("UTC").tz_convert(zone).array
    if nulls and (dtype in _values.INTEGERS or kind in ("bool", "bool8")):
        return _masked(held)
    if kind == "date32" and before(2) and not _fits(held):
        return _values.objects(held)
    if kind in ("timestamp", "date32", "date64", "duration"):
        return _times(held)
    if kind == "fixed_binary":
        return _values.objects(held)
    text = text_dtype() if kind in ("utf8", "large_utf8") else None
    if text is None:
        return held.to_numpy()
    return arrow_array(held, text) if lies_in_arrow(text) else text.construct_array_type()._from_sequence(
        held.to_numpy(), dtype=text)


def _index(values: Any) -> Any:
    import pandas

    return pandas.Index(values, copy=False)


def arrow_array(held: Any, dtype: Any) -> Any:
    """An array of a dtype that lies in Arrow; over the column's own memory where the types agree."""
    import pyarrow

    return dtype.__from_arrow__(pyarrow.array(held))


def _masked(held: Any, dtype: Any = None) -> Any:
    """An array with a mask; its values are shared. `dtype`: that of the values."""
    import numpy
    import pandas

    values = _values.plain(held)
    values = values if dtype is None else values.astype(dtype, copy=False)
    valid = held._validity().to_numpy() if held._has_mask and held._null_count else None
    mask = numpy.zeros(len(values), bool) if valid is None else ~valid
    kind = {"b": "BooleanArray", "f": "FloatingArray"}.get(values.dtype.kind, "IntegerArray")
    return getattr(pandas.arrays, kind)(values, mask, copy=False)


def of_dtype(column: Any, text: str) -> Any:
    """An array of the dtype of that name, which is none of NumPy's. TypeError: it is unknown here."""
    import numpy
    import pandas

    if text.endswith("[pyarrow]") and not text.startswith("string"):
        import pyarrow

        return arrow_array(column, pandas.ArrowDtype(pyarrow.array(column).type))
    dtype = pandas.api.types.pandas_dtype(text)
    if isinstance(dtype, numpy.dtype):
        return column.to_numpy().astype(dtype, copy=False)
    if hasattr(dtype, "numpy_dtype") and not hasattr(dtype, "pyarrow_dtype"):
        if _values.plain(column) is None:
            raise TypeError(f"{called(column)} is no {text}")
        return _masked(column, dtype.numpy_dtype)
    if lies_in_arrow(dtype):
        return arrow_array(column, dtype)
    return pandas.array(column.tolist(), dtype=dtype)


def own_dtype(entry: Mapping[str, Any]) -> Optional[str]:
    """The name of the dtype in a column's entry, where it is one of pandas' own that the usual one is not equal to."""
    text = entry.get("numpy_type")
    if isinstance(text, str) and (text[:1].isupper() or text.startswith(("string", "boolean")) or "[pyarrow]" in text):
        return text
    return None


def restored(column: Any, entry: Dict[str, Any]) -> Any:
    """A column as an array of the dtype that its entry in a frame's metadata names, or of the usual one."""
    text = own_dtype(entry)
    if text and column._dtype != "dictionary":
        try:
            return of_dtype(column, text)
        except (ImportError, TypeError):  # a dtype that is not known here
            pass
    return to_array(column, entry)


# ---- categories ----


def categorical_of(codes: Any, categories: Any, ordered: bool) -> Any:
    """A Categorical of an Index that is known to have each value once: pandas would look at all of them.

    `codes`: numbers of categories, -1 for none. ValueError: a number is out of range, which pandas would follow.
    """
    import numpy
    import pandas

    count = len(categories)
    if len(codes) and not -1 <= int(codes.min()) <= int(codes.max()) < max(count, 1) or not count and (codes != -1).any():
        raise ValueError(f"a dictionary of {count} values has indices from {codes.min()} to {codes.max()}")
    kind = next(kind for kind, limit in (("i1", 7), ("i2", 15), ("i4", 31), ("i8", 63)) if count < 1 << limit)
    dtype = pandas.CategoricalDtype.__new__(pandas.CategoricalDtype)
    dtype.__setstate__({"categories": categories, "ordered": ordered})  # both as pickle does
    made = pandas.Categorical.__new__(pandas.Categorical)
    made.__setstate__({"_codes": numpy.asarray(codes).astype(kind, copy=False), "_dtype": dtype})
    return made


def codes_of(column: Any) -> Any:
    """The indices of a dictionary, -1 for nulls."""
    codes = column._child(0)
    made = codes.to_numpy(masked=True) if codes._null_count else codes.to_numpy()
    if codes._null_count:
        made = (made if made.dtype.kind == "i" else made.astype("i8")).filled(-1)
    return made.copy() if column._foreign else made


def categories_of(column: Any, entry: Any = None) -> Any:
    """The values of a dictionary, as an Index."""
    import pandas

    values = restored(column._child(1), entry or {})
    return pandas.Index(values, dtype=values.dtype, copy=False)


def categorical(column: Any, entry: Dict[str, Any]) -> Any:
    """A Categorical of a dictionary that was one."""
    more = entry.get("metadata") or {}
    categories = categories_of(column, more.get("categories"))
    return categorical_of(codes_of(column), categories, bool(more.get("ordered")))


def _distinct(column: Any) -> Any:
    """A Categorical of a dictionary; its values if one is there twice."""
    categories = categories_of(column)
    if categories.is_unique and not categories.hasnans:
        return categorical_of(codes_of(column), categories, False)
    return column.to_numpy()


# ---- periods and intervals, as pandas and pyarrow keep them ----


def extension(name: str, **told: Any) -> Tuple[bytes, ...]:
    """The metadata of a column of one of Arrow's extension types."""
    return (EXTENSION.encode(), name.encode(), EXTENDED.encode(), json.dumps(told).encode())


def _extended(column: Any) -> Any:
    """An array of the extension type that a column's metadata name; None: it is unknown, or they are malformed."""
    import numpy
    import pandas

    try:
        told = json.loads(column.metadata[EXTENDED])
        if column.metadata[EXTENSION] == "pandas.period":
            kind = pandas.PeriodDtype(told["freq"])
            codes = column.to_numpy(fill=_values.NAT) if column._null_count else column.to_numpy()
            return pandas.arrays.PeriodArray(codes, dtype=kind)
        if column.metadata[EXTENSION] != "pandas.interval":
            return None
        left, right = (_index(to_array(column._column(side))) for side in ("left", "right"))
        if column._null_count:
            there = column._validity().to_numpy()
            left, right = left.where(there), right.where(there)
        dtype = None if "," in told["subtype"] else numpy.dtype(told["subtype"])  # a time zone
        if column._null_count and dtype is not None and dtype.kind in "iu":
            dtype = numpy.dtype("float64")  # cuDF has null intervals of integers
        left, right = (left, right) if dtype is None else (left.astype(dtype), right.astype(dtype))
        return pandas.arrays.IntervalArray.from_arrays(left, right, told["closed"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


# ---- times ----


def _fits(held: Any) -> bool:
    """Whether dates are among those that nanoseconds can count."""
    import numpy

    days = held.to_numpy()
    return not (numpy.abs(days[~numpy.isnat(days)].view("<i8")) > 106751).any()


def _times(held: Any) -> Any:
    """Times in a unit that this pandas has: before version 2, nanoseconds alone."""
    import numpy
    import pandas

    array = held.to_numpy()
    kind, unit = array.dtype.kind, numpy.datetime_data(array.dtype)[0]
    if unit == "ns" or not before(2):
        return array if unit in _values.UNITS else array.astype(f"{kind}8[s]")
    converted = array.astype(f"{kind}8[ns]")
    if (converted.astype(array.dtype) != array)[~numpy.isnat(array)].any():
        raise ValueError(
            f"{called(held)} has times that pandas {pandas.__version__}, which counts nanoseconds, has no room "
            "for: use to_numpy()"
        )
    return converted


# ---- several columns in one array ----


def block(column: Any, count: int, apart: int) -> Any:
    """A column of numbers, and those after it at that distance in bytes, as one array: a row for each."""
    import numpy

    first = column.to_numpy()
    return numpy.lib.stride_tricks.as_strided(first, (count, len(first)), (apart, first.itemsize), writeable=False)


def unpacked(column: Any, count: int) -> Any:
    """The columns that one of lists of a fixed size has: a row for each. ValueError: it has not that many."""
    if column._dtype != f"fixed_list({count})":
        raise ValueError(f"{called(column)} has not {count} columns in it")
    return column._child(0).to_numpy().reshape(len(column), count).T
