"""Lists of Python values as Arrow sources, of the type that the values suggest."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import _core, _zones
from ._layout import EPOCH, Interval, at_column


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant")


def _mask_of(values: List[Any]) -> Tuple[Optional[bytes], int]:
    missing = [_is_missing(v) for v in values]
    count = sum(missing)
    return (_pack([not m for m in missing]) if count else None), count


def _pack(bits: List[Any]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        if bit:
            out[i >> 3] |= 1 << (i & 7)
    return bytes(out)


def _fixed(format_: str, letter: str, values: List[Any], zero: Any = 0) -> Tuple[Any, ...]:
    mask, count = _mask_of(values)
    present = (zero if _is_missing(v) else v for v in values)
    try:
        data = struct.pack(f"<{len(values)}{letter}", *present)
    except (struct.error, OverflowError):
        raise ValueError(f"a value is out of the range of Arrow's format {format_!r}") from None
    return (format_, len(values), count, (mask, data), (), None)


def _missing_types() -> Tuple[type, ...]:
    """The types of pandas' and NumPy's words for "missing", where those are loaded."""
    words = (("pandas", "NA"), ("pandas", "NaT"), ("numpy.ma", "masked"))
    return tuple(type(getattr(sys.modules[module], word)) for module, word in words if module in sys.modules)


def _quick_text_source(values: List[Any]) -> Optional[Tuple[Any, ...]]:
    """The source of a list of str, or of one of bytes, made in C; None: it is another list."""
    found = _core.text_of(values, _missing_types())
    if found is None:
        return None
    is_text, nulls, mask, offsets, data = found
    wide = len(offsets) == 8 * (len(values) + 1)
    return (("uU" if is_text else "zZ")[wide], len(values), nulls, (mask, offsets, data), (), None)


def _text_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    """The source of a list of str, or of bytes, whose missing values _quick_text_source() did not know."""
    plain = [None if _is_missing(v) else v if isinstance(v, str) else bytes(v) for v in values]
    found = _quick_text_source(plain)
    if found is None:
        _check_unicode(plain, where)
    return found or ()


def _integer_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    present = [int(v) for v in values if not _is_missing(v)]
    low, high = min(present), max(present)
    values = [None if _is_missing(v) else int(v) for v in values]
    if -(2**63) <= low and high < 2**63:
        return _fixed("l", "q", values)
    if low >= 0 and high < 2**64:
        return _fixed("L", "Q", values)
    raise ValueError(f"{at_column(where)}an integer does not fit into 64 bits")


def _micros(delta: datetime.timedelta) -> int:
    return (delta.days * 86400 + delta.seconds) * 10**6 + delta.microseconds


def _nanos(delta: Any) -> int:
    return _micros(delta) * 1000 + getattr(delta, "nanoseconds", 0)


def _deltas_source(head: str, zone: str, deltas: List[Any]) -> Tuple[Any, ...]:
    """The source of times, as what lies between them and 1970, or of durations: finer than microseconds if one is."""
    fine = any(getattr(delta, "nanoseconds", 0) for delta in deltas)
    count = _nanos if fine else _micros
    return _fixed(f"{head}{'n' if fine else 'u'}{zone}", "q", [None if d is None else count(d) for d in deltas])


def _datetime_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    found: Dict[Any, Any] = {}  # a row for each zone, by the zone and by its name
    for row, value in enumerate(values):
        if not _is_missing(value) and value.tzinfo not in found:
            found[value.tzinfo] = "" if value.tzinfo is None else _zones.name_of(value.tzinfo, where), row
    (name, i), *others = dict(reversed(list(found.values()))).items()
    if others:
        raise TypeError(
            f"{at_column(where)}the time of row {others[0][1]} has {others[0][0] or 'no time zone'!r}, that of row {i} "
            f"{name or 'none'!r}: convert them to one, for example with pandas.to_datetime(…, utc=True)"
        )
    base = EPOCH.replace(tzinfo=datetime.timezone.utc) if name else EPOCH
    return _deltas_source("ts", f":{name}", [None if _is_missing(v) else v - base for v in values])


def _decimal_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    present = [v for v in values if not _is_missing(v)]
    if not all(v.is_finite() for v in present):
        raise ValueError(f"{at_column(where)}a decimal that is not finite cannot be put")
    scale = max(0, max(-v.as_tuple().exponent for v in present))
    with decimal.localcontext() as context:
        context.prec = 200
        numbers = [0 if _is_missing(v) else int(v.scaleb(scale)) for v in values]
    digits = max(len(str(abs(n))) for n in numbers)
    if max(digits, scale) > 38:
        raise ValueError(f"{at_column(where)}the decimals need {max(digits, scale)} digits; 38 are possible")
    mask, count = _mask_of(values)
    data = b"".join(n.to_bytes(16, "little", signed=True) for n in numbers)
    format_ = f"d:{max(digits, scale, 1)},{scale}"
    return (format_, len(values), count, (mask, data), (), None)


def _nested_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    mask, count = _mask_of(values)
    items, ends = [], [0]
    for value in values:
        if not _is_missing(value):
            items.extend(value)
        ends.append(len(items))
    offsets = struct.pack(f"<{len(ends)}i", *ends)
    child = list_source(items, f"{where}[]" if where else "[]")
    return ("+l", len(values), count, (mask, offsets), (("item", child),), None)


def _struct_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    mask, count = _mask_of(values)
    names = list(dict.fromkeys(key for v in values if not _is_missing(v) for key in v))
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{at_column(where)}the keys of a struct are strings")
    rows = [{} if _is_missing(v) else v for v in values]
    children = tuple(
        (name, list_source([row.get(name) for row in rows], f"{where}.{name}" if where else name))
        for name in names
    )
    return ("+s", len(values), count, (mask,), children, None)


def _unwrap(value: Any) -> Any:
    """NumPy's scalars as Python's; float NaN stays."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 0):
        item = value.item()
        if isinstance(item, int) and value.dtype.kind in "Mm":  # nanoseconds
            raise TypeError("datetime64[ns] among other objects: make it an array of datetime64")
        return item
    return value


KINDS: Tuple[Tuple[Any, str], ...] = (
    (bool, "bool"), (int, "int"), (float, "float"), (str, "str"), ((bytes, bytearray), "bytes"),
    (datetime.datetime, "datetime"), (datetime.date, "date"), (datetime.timedelta, "timedelta"),
    (datetime.time, "time"), (decimal.Decimal, "Decimal"), (dict, "dict"),
    (Interval, "interval"), ((list, tuple), "list"),
)


def _kind(value: Any, where: str, row: int) -> str:
    for types, name in KINDS:
        if isinstance(value, types):
            return name
    raise TypeError(f"{at_column(where)}row {row} is a {type(value).__name__}, which cannot be put: str(…) or pickle.dumps(…) "
                    "of it can be")


def list_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    """The source of a list of Python values; None is a null."""
    text = _quick_text_source(values)
    if text:
        return text
    values = [_unwrap(v) for v in values]
    values = [v.tolist() if hasattr(v, "tolist") else v for v in values]  # arrays in a list
    first: Dict[str, int] = {}
    for row, value in enumerate(values):
        if not _is_missing(value):
            first.setdefault(_kind(value, where, row), row)
    # NaN is pandas' way to say that a string, a boolean or a date is missing.
    if "float" in first and not first.keys() <= {"float", "int"}:
        values = [None if isinstance(v, float) and math.isnan(v) else v for v in values]
        if not any(isinstance(v, float) for v in values):
            del first["float"]
    if not first:
        return ("n", len(values), len(values), (), (), None)
    kinds = set(first)
    if kinds == {"int", "float"}:
        _check_rounding(values, where)
        return _fixed("g", "d", values, 0.0)
    if len(kinds) > 1:
        (a, i), (b, j) = sorted(first.items(), key=lambda item: item[1])[:2]
        raise TypeError(
            f"{at_column(where)}row {i} is a {a} and row {j} a {b}: convert the column to one type, for "
            "example with astype(str)"
        )
    return _SOURCES[kinds.pop()](values, where)


def _check_rounding(values: List[Any], where: str) -> None:
    for row, value in enumerate(values):
        if isinstance(value, int) and 53 < value.bit_length() < 1024 and int(float(value)) != value:
            raise ValueError(
                f"{at_column(where)}row {row} is {value}, which a float64 would round, and other rows are floats: convert "
                "the column to one type, for example to Decimal or with astype(str)"
            )


def _bool_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    mask, count = _mask_of(values)
    bits = _pack([not _is_missing(v) and v for v in values])
    return ("b", len(values), count, (mask, bits), (), None)


def _time_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    def micros(v: datetime.time) -> int:
        if v.tzinfo is not None:
            raise TypeError(f"{at_column(where)}a time of day with a time zone cannot be put")
        return ((v.hour * 60 + v.minute) * 60 + v.second) * 10**6 + v.microsecond

    return _fixed("ttu", "q", [None if _is_missing(v) else micros(v) for v in values])


def _interval_source(values: List[Any], where: str) -> Tuple[Any, ...]:
    mask, count = _mask_of(values)
    try:
        data = b"".join(struct.pack("<iiq", *(Interval() if _is_missing(v) else v)) for v in values)
    except struct.error:
        raise ValueError(f"{at_column(where)}an interval is out of the range of Arrow's") from None
    return ("tin", len(values), count, (mask, data), (), None)


_SOURCES = {
    "bool": _bool_source,
    "int": _integer_source,
    "float": lambda values, where: _fixed("g", "d", values, 0.0),
    "str": _text_source,
    "bytes": _text_source,
    "datetime": _datetime_source,
    "date": lambda values, where: _fixed(
        "tdD", "i", [None if _is_missing(v) else (v - EPOCH.date()).days for v in values]
    ),
    "timedelta": lambda values, where: _deltas_source("tD", "", [None if _is_missing(v) else v for v in values]),
    "time": _time_source,
    "Decimal": _decimal_source,
    "interval": _interval_source,
    "list": _nested_source,
    "dict": _struct_source,
}


def _check_unicode(texts: List[Any], where: str) -> None:
    try:
        "".join(text for text in texts if text).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{at_column(where)}a string is not Unicode text: {error}") from None
