"""Objects as NumPy arrays, pandas frames and Python values."""

from __future__ import annotations

import datetime
import decimal
import functools
import re
import struct
from typing import Any, Callable, Dict, List, Tuple

from . import _core, _errors, _floats, _zones
from ._layout import ARRAY, BYTES, COLUMN, DATA, EPOCH, MASK, OFFSETS, Interval, called

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NAT = -(2**63)
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMBERS = {"float16", "float32", "float64", *INTEGERS}
# (struct format of an element, function from its fields to an Interval)
INTERVALS: Dict[str, Tuple[str, Callable[..., Interval]]] = {
    "month_interval": ("<i", Interval), "month_day_nano_interval": ("<iiq", Interval),
    "day_time_interval": ("<ii", lambda days, milliseconds: Interval(0, days, milliseconds * 10**6)),
}


@functools.lru_cache(None)
def head(dtype: str) -> str:
    """ "timestamp[us,UTC]" → "timestamp" """
    return re.split(r"[\[(]", dtype, maxsplit=1)[0]


def arguments(dtype: str) -> List[Any]:
    """ "timestamp[us,UTC]" → ["us", "UTC"] """
    match = re.search(r"[\[(](.*)[\])]$", dtype)
    return match[1].split(",") if match else []


def on_host(held: Any) -> None:
    if held._ordinal >= 0:
        raise TypeError(f"{called(held)} is on a GPU: to_host() copies it here, copy_to_host() as a NumPy array")


# ---- NumPy ----


@functools.lru_cache(None)
def numpy_module() -> Any:
    """NumPy, in a tenth of the time of an import that finds it."""
    import numpy

    return numpy


def buffer_to_numpy(buffer: Any) -> Any:
    """An array over a Buffer on the host."""
    import numpy

    if buffer.device[0] != 1:
        raise TypeError("the Buffer is on a GPU: copy_to_host() of its object makes a NumPy array")
    if buffer.dtype in _floats.FOREIGN:
        return _floats.to_numpy(numpy.asarray(memoryview(buffer)), buffer.dtype)
    array = numpy.asarray(memoryview(buffer))
    if array.dtype.kind == "S":
        return array.view(f"V{buffer.itemsize}")
    if buffer.typestr and array.dtype.str != buffer.typestr:
        return array.view(buffer.typestr)
    return array


def numpy_dtype(held: Any) -> Any:
    """The dtype that to_numpy() has for an Array; the protocol's name where NumPy has none."""
    view = held._view()
    try:
        import numpy

        if view.dtype in _floats.FOREIGN:
            return _floats.numpy_dtype(view.dtype)
    except (ImportError, TypeError):
        return held._dtype
    found = numpy.dtype("M8[D]" if view.dtype == "date32" else view.typestr or f"V{view.itemsize}")
    return numpy.dtype(f"V{view.itemsize}") if found.kind == "S" else found


def bits_to_numpy(bits: Any, offset: int, length: int) -> Any:
    """Bits [offset, offset + length) of a Buffer as a new array of bool."""
    import numpy

    data = numpy.asarray(memoryview(bits))[offset >> 3 : (offset + length + 7) >> 3]
    return numpy.unpackbits(data, bitorder="little")[offset & 7 :][:length].astype(bool)


def as_asked(array: Any, dtype: Any, copy: Any, shared: bool) -> Any:
    """The result of `__array__(dtype, copy)`; `shared`: the array lies over our memory."""
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError("a conversion needs a copy")
        return array.astype(dtype)
    if copy is False and not shared:
        raise ValueError("the object's NumPy form needs a copy")
    return array.copy() if copy and shared else array


def has_nat(buffer: Any) -> bool:
    """Whether times in a Buffer have a NaT."""
    try:
        return bool((buffer_to_numpy(buffer).view("<i8") == NAT).any())
    except ImportError:
        return NAT in memoryview(buffer).tolist()


def plain(column: Any) -> Any:
    """The column's elements as an array, undefined under nulls; None: NumPy has no dtype for them."""
    import numpy

    dtype = column._dtype
    if dtype == "bool":
        return bits_to_numpy(column._buffer(DATA), column._offset, column._length)
    if dtype == "date32":
        return buffer_to_numpy(column._view()).astype("M8[D]")
    if head(dtype) in ("time32", "time64", "decimal128", *INTERVALS) or dtype == "null":
        return None
    try:
        view = column._view()
    except BufferError:
        return None
    return numpy.asarray(buffer_to_numpy(view))


def to_numpy(held: Any, fill: Any, masked: bool) -> Any:
    import numpy

    on_host(held)
    array = plain(held)
    if array is None:
        if fill is not None or masked:
            raise TypeError(f"{called(held)}: fill and masked are for numbers and times")
        return objects(held)
    if not held._has_mask or held._null_count == 0:
        return _masked(array, numpy.ma.nomask) if masked else array
    nulls = ~held._validity().to_numpy()
    if masked:
        return _masked(array, nulls)
    if fill is None:
        if array.dtype.kind in "fc":
            fill = numpy.nan
        elif array.dtype.kind in "Mm":
            fill = numpy.array("NaT", dtype=array.dtype)
        else:
            raise ValueError(
                f"{called(held)} has {int(nulls.sum())} nulls, for which NumPy's {array.dtype} has no "
                "value: pass fill=…, or masked=True, or use .buffers"
            )
    array = array.copy()
    array[nulls] = fill
    return array


def _masked(array: Any, nulls: Any) -> Any:
    import numpy

    make: Any = numpy.ma.MaskedArray
    return make(array, mask=nulls)


def objects(held: Any) -> Any:
    """The elements as an array of Python objects, None for nulls."""
    if held.kind == COLUMN and _is_text(head(held._dtype)) and held._length:
        return _strings(held, numpy_module().empty(held._length, dtype=object))
    return objects_array(held.tolist())


def objects_array(values: List[Any]) -> Any:
    import numpy

    array = numpy.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


# ---- Python values ----


def _bit_list(buffer: Any, offset: int, length: int) -> List[Any]:
    bits = memoryview(buffer)
    return [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(offset, offset + length)]


def _number_list(view: Any) -> List[Any]:
    if view.format in ("Zf", "Zd"):
        pairs = [v for v in struct.iter_unpack("<2" + view.format[1], bytes(view))]
        return [complex(*pair) for pair in pairs]
    if view.format == "e":
        return [v for (v,) in struct.iter_unpack("<e", bytes(view))]
    if view.dtype in _floats.FOREIGN:
        return _floats.decode(bytes(view), view.dtype)
    if view.dtype.startswith("fixed_binary"):
        data, size = bytes(view), view.itemsize
        return [data[i : i + size] for i in range(0, len(data), size)]
    return memoryview(view).tolist()


def _timestamp(value: int, unit: Any, zone: Any) -> Any:
    per_us = UNITS[unit] // 10**6 or 1
    if UNITS[unit] > 10**6 and value % per_us:
        try:
            import pandas

            stamp = pandas.Timestamp(value, unit=unit)
            return stamp.tz_localize("UTC").tz_convert(zone) if zone else stamp
        except ImportError:
            import numpy

            return numpy.datetime64(value, unit)
    us = value // per_us if UNITS[unit] > 10**6 else value * (10**6 // UNITS[unit])
    try:
        naive = EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:
        import numpy

        return numpy.datetime64(value, unit)
    if not zone:
        return naive
    return naive.replace(tzinfo=datetime.timezone.utc).astimezone(_zones.of_name(zone))


def _duration(value: int, unit: Any) -> Any:
    """A timedelta; out of its range, or finer than microseconds, pandas' or NumPy's type."""
    if UNITS[unit] > 10**6 and value % 1000:
        try:
            import pandas

            return pandas.Timedelta(value, unit=unit)
        except ImportError:
            import numpy

            return numpy.timedelta64(value, unit)
    try:
        return datetime.timedelta(microseconds=value * 10**6 // UNITS[unit])
    except OverflowError:
        import numpy

        return numpy.timedelta64(value, unit)


def _date(days: int) -> Any:
    try:
        return (EPOCH + datetime.timedelta(days=days)).date()
    except OverflowError:
        import numpy

        return numpy.datetime64(days, "D")


def _time(value: int, unit: str) -> Any:
    us = value * 10**6 // UNITS[unit]
    return (EPOCH + datetime.timedelta(microseconds=us)).time()


def _meaning(dtype: str) -> Any:
    """A function from the stored number to a Python value; None: the number is the value."""
    kind, args = head(dtype), arguments(dtype)
    if kind == "timestamp":
        zone = ",".join(args[1:])
        return lambda v: None if v == NAT else _timestamp(v, args[0], zone)
    if kind == "duration":
        return lambda v: None if v == NAT else _duration(v, args[0])
    if kind == "date32":
        return _date
    if kind == "date64":
        return lambda v: _date(v // 86_400_000)
    if kind in ("time32", "time64"):
        return lambda v: _time(v, args[0])
    return None


def _elements(held: Any) -> List[Any]:
    """The values of what has one number for each."""
    numbers, meaning = _number_list(held._view()), _meaning(held._dtype)
    return [meaning(v) for v in numbers] if meaning else numbers


def _decimals(column: Any) -> List[Any]:
    scale = int(arguments(column._dtype)[1])
    data = bytes(column._view())
    with decimal.localcontext() as context:
        context.prec = 60
        return [
            decimal.Decimal(int.from_bytes(data[i : i + 16], "little", signed=True)).scaleb(-scale)
            for i in range(0, len(data), 16)
        ]


def _is_text(kind: str) -> bool:
    """Whether the elements have offsets into characters or bytes."""
    return kind in ("utf8", "large_utf8", "binary", "large_binary")


def _strings(column: Any, target: Any = None) -> Any:
    """Strings or bytes, None for nulls, in a list or in `target`, an array of objects."""
    kind = head(column._dtype)
    data, mask = column._buffer(DATA), column._buffer(MASK)
    return _core.text_list(
        kind.endswith("utf8"), kind.startswith("large"), memoryview(column._buffer(OFFSETS)),
        b"" if data is None else memoryview(data), None if mask is None else memoryview(mask),
        column._offset, column._length, target,
    )


def misled(column: Any, what: str) -> Exception:
    """Another user's offsets or codes lead somewhere else than to the column's own elements."""
    return _errors.failure("invalid", f"{called(column)}, which another user wrote, cannot be read: its {what}")


def _lists(column: Any) -> List[Any]:
    offsets = memoryview(column._buffer(OFFSETS))
    offsets = offsets.cast("q" if column._dtype.startswith("large") else "i")
    start, length = column._offset, column._length
    ends = offsets[start : start + length + 1].tolist()
    if column._foreign and ends != sorted(ends):
        raise misled(column, "offsets do not ascend")
    if not ends or ends[0] == ends[-1]:
        return [[] for _ in range(length)]
    items = column._child(0)._slice(ends[0], ends[-1] - ends[0]).tolist()
    return [items[a - ends[0] : b - ends[0]] for a, b in zip(ends, ends[1:])]


def _column_list(column: Any) -> List[Any]:
    """The values, undefined under nulls."""
    dtype, kind, length = column._dtype, head(column._dtype), column._length
    if kind == "null":
        return [None] * length
    if length == 0:
        return []
    if kind == "bool":
        return _bit_list(column._buffer(DATA), column._offset, length)
    if _is_text(kind):
        return _strings(column)
    if kind in ("list", "large_list"):
        return _lists(column)
    if kind == "map":
        return [[entry and tuple(entry.values()) for entry in entries] for entries in _lists(column)]
    if kind in INTERVALS:
        format_, make = INTERVALS[kind]
        return [make(*row) for row in struct.iter_unpack(format_, bytes(column._view()))]
    if kind == "fixed_list":
        size = int(arguments(dtype)[0])
        items = column._child(0).tolist()
        return [items[i * size : i * size + size] for i in range(length)]
    if kind == "struct":
        names = column._child_names
        fields = [column._child(i).tolist() for i in range(len(names))]
        return [dict(zip(names, row)) for row in zip(*fields)] if names else [{}] * length
    if kind == "dictionary":
        values, codes = column._child(1).tolist(), column._child(0).tolist()
        if column._foreign and not all(code is None or 0 <= code < len(values) for code in codes):
            raise misled(column, f"codes are not below {len(values)}")
        return [None if i is None else values[i] for i in codes]
    if kind == "decimal128":
        return _decimals(column)
    return _elements(column)


def to_list(held: Any) -> List[Any]:
    on_host(held)
    if held.kind in (ARRAY, BYTES) and not held._has_mask:
        view = held._view()
        if view.dtype in _floats.FOREIGN:
            return _floats.nested(_number_list(view), held.shape)
        special = view.format in ("Zf", "Zd", "e") or view.dtype.startswith("fixed_binary")
        if _meaning(held._dtype) is None and not special:
            return memoryview(view).tolist()
        return held.to_numpy().tolist() if held.ndim != 1 else _elements(held)
    if held.kind == ARRAY:
        if held.ndim != 1:
            return held.to_numpy(masked=True).tolist()
        values = _elements(held)
    elif _is_text(head(held._dtype)) and held._length:
        return _strings(held)
    elif held._has_mask and held._null_count:
        values = _valid_values(held)
    else:
        return _column_list(held)
    validity = held._validity()
    valid = _bit_list(validity.bits, validity.offset, len(values))
    return [v if ok else None for v, ok in zip(values, valid)]


def _valid_values(column: Any) -> List[Any]:
    """_column_list() of a column with nulls, under which a value may be invalid."""
    try:
        return _column_list(column)
    except (OverflowError, ValueError, IndexError) as error:
        if column._foreign and isinstance(error, _errors.Invalid):
            raise
        validity = column._validity()
        return [_column_list(column._slice(i, 1))[0] if validity[i] else None for i in range(column._length)]
