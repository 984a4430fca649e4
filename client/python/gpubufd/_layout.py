"""Words that all modules share: numbers of the protocol's and of DLPack's, kinds, sentences' beginnings."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple, Optional

from . import _core

DATA, MASK, OFFSETS = 0, 1, 2  # an object's buffers
BYTES, ARRAY, COLUMN, TABLE, BUNDLE = range(5)  # its kinds
CPU, CUDA = 1, 2  # DLPack's devices
HOST = -1  # where others say a GPU's ordinal
NUMPY_UNITS = ("s", "ms", "us", "ns")
EPOCH = datetime.datetime(1970, 1, 1)


class Interval(NamedTuple):
    """An element of Arrow's interval types. Months and days have no fixed length, so that it is no timedelta."""

    months: int = 0
    days: int = 0
    nanoseconds: int = 0


def kind_of(value: Any) -> Optional[int]:
    """The kind of an object that a client handed out; None: it is something else."""
    return value.kind if isinstance(value, _core.Object) else None


def at_column(where: str) -> str:
    """The beginning of a message."""
    return f"column {where!r}: " if where else ""


def a_kind(held: Any) -> str:
    """For messages: "a gpubufd.Table"."""
    return f"a gpubufd.{type(held).__name__}"


def called(held: Any) -> str:
    """For messages: which column of what."""
    column = held._column_name
    return f"column {column!r} of {held.name!r}" if column else repr(held.name)
