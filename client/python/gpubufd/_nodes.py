"""Arrow arrays on a GPU: what is to be created for them, and which of their bytes go where.

A node is what `_core.device_nodes` tells: (format, name, length, offset, null_count, addresses of the
buffers, children, dictionary). A copy is (path, which, address, bytes), path being the children's numbers
from the top.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from ._objects import DATA, MASK, OFFSETS

WIDTHS = {
    "c": ("int8", 1), "C": ("uint8", 1), "s": ("int16", 2), "S": ("uint16", 2), "i": ("int32", 4),
    "I": ("uint32", 4), "l": ("int64", 8), "L": ("uint64", 8), "e": ("float16", 2),
    "f": ("float32", 4), "g": ("float64", 8), "tdD": ("date32", 4), "tdm": ("date64", 8),
    "tts": ("time32[s]", 4), "ttm": ("time32[ms]", 4), "ttu": ("time64[us]", 8),
    "ttn": ("time64[ns]", 8),
}
STRINGS = {"u": ("utf8", 4), "z": ("binary", 4), "U": ("large_utf8", 8), "Z": ("large_binary", 8)}
UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}

Copies = List[Tuple[Tuple[int, ...], int, int, int]]


def _fixed(format_: str) -> Optional[Tuple[str, int]]:
    """(dtype, bytes of an element)"""
    if format_ in WIDTHS:
        return WIDTHS[format_]
    if format_[:2] == "ts":
        zone = f",{format_[4:]}" if format_[4:] else ""
        return f"timestamp[{UNITS[format_[2]]}{zone}]", 8
    if format_[:2] == "tD":
        return f"duration[{UNITS[format_[2]]}]", 8
    if format_[:2] == "w:":
        return f"fixed_binary({format_[2:]})", int(format_[2:])
    if format_[:2] == "d:" and format_.count(",") == 1:
        return f"decimal128({format_[2:]})", 16
    return None


def column_spec(
    node: tuple, name: Optional[str], path: Tuple[int, ...] = (), start: int = 0,
    rows: Optional[int] = None,
) -> Tuple[tuple, Copies]:
    """A column's specification, and its copies. `start`, `rows`: the part of it that a table shows."""
    format_, own_name, length, offset, null_count, buffers, children, dictionary = node
    if rows is not None and (start, rows) != (0, length):
        null_count = 0 if null_count == 0 else -1
        length = rows
    first = offset + start
    keep = first % 8  # so that bitmaps begin at a byte
    first -= keep
    total = keep + length
    mask = len(buffers) > 0 and buffers[0] != 0 and null_count != 0
    copies: Copies = []
    if mask:
        copies.append((path, MASK, buffers[0] + first // 8, (total + 7) // 8))
    if dictionary is not None:
        plain = (format_, own_name, length, offset + start, null_count, buffers, (), None)
        indices, copies = column_spec(plain, None, path + (0,))
        values, more = column_spec(dictionary, None, path + (1,))
        spec = (name, "dictionary", length, 0, null_count, False, 0, (indices, values), None)
        return spec, copies + more
    data_bytes = 0
    fixed = _fixed(format_)
    if format_ == "b":
        dtype = "bool"
        copies.append((path, DATA, buffers[1] + first // 8, (total + 7) // 8))
    elif fixed:
        dtype, width = fixed
        copies.append((path, DATA, buffers[1] + first * width, total * width))
    elif format_ in STRINGS:
        dtype, width = STRINGS[format_]
        if length:
            from . import cuda

            data_bytes = cuda.read_integer(buffers[1] + (first + total) * width, width)
            copies.append((path, OFFSETS, buffers[1] + first * width, (total + 1) * width))
            copies.append((path, DATA, buffers[2], data_bytes))
    else:
        what = f"column {own_name!r}" if own_name else "it"
        raise TypeError(
            f"{what} is on a GPU and of Arrow format {format_!r}; nested columns are put from the host "
            "alone: copy it there"
        )
    if length == 0:
        keep, copies = 0, []
    return (name, dtype, length, keep, null_count, mask, data_bytes, (), None), copies


def table_spec(node: tuple) -> Tuple[tuple, Copies]:
    """As column_spec, of a struct array that is a table."""
    format_, _, length, offset, null_count, _, children, _ = node
    if format_ != "+s" or null_count > 0:
        raise TypeError("only a struct array without nulls of its own can become a table")
    specs, copies = [], []
    for i, child in enumerate(children):
        spec, more = column_spec(child, child[1], (i,), offset, length)
        specs.append(spec)
        copies += more
    return (None, "struct", length, 0, 0, False, 0, tuple(specs), None), copies


def fill(made: Any, copies: Copies) -> None:
    """Copies what belongs into an unsealed object."""
    for path, which, address, count in copies:
        target = made
        for i in path:
            target = target._child(i)
        if count:
            target._write(which, 0, address, count, 0)
