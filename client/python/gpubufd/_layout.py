"""Shared by all modules: numbers of the protocol and of DLPack, kinds of objects, beginnings of messages."""

from __future__ import annotations

import datetime
import operator
from typing import Any, NamedTuple, Optional

from . import _core

DATA, MASK, OFFSETS = 0, 1, 2  # an object's buffers
BYTES, ARRAY, COLUMN, TABLE, BUNDLE = range(5)  # its kinds
CPU, CUDA, ROCM = 1, 2, 10  # DLPack's devices
KINDS = {CUDA: "cuda", ROCM: "hip"}
GPUS = tuple(KINDS)
HOST = -1  # in the place of a GPU's ordinal
NUMPY_UNITS = ("s", "ms", "us", "ns")
EPOCH = datetime.datetime(1970, 1, 1)


class Interval(NamedTuple):
    """An element of Arrow's interval types. It is not a timedelta, since months and days have no fixed length."""

    months: int = 0
    days: int = 0
    nanoseconds: int = 0


def kind_of(value: Any) -> Optional[int]:
    """The kind of an object that a client handed out; None: it is something else."""
    return value.kind if isinstance(value, _core.Object) else None


def index_of(key: Any, count: int) -> int:
    """The number of one of `count` elements, which may be counted from the end. IndexError."""
    i = operator.index(key)
    if i < 0:
        i += count
    if not 0 <= i < count:
        raise IndexError(f"index {key} is out of range: there are {count}")
    return i


def at_column(where: str) -> str:
    """The beginning of a message about a column; "" is no column."""
    return f"column {where!r}: " if where else ""


def a_kind(held: Any) -> str:
    """For messages: "a gpubufd.Table"."""
    return f"a gpubufd.{type(held).__name__}"


def called(held: Any) -> str:
    """For messages: the object, with the column if it is one."""
    column = held._column_name
    return f"column {column!r} of {held.name!r}" if column else repr(held.name)
