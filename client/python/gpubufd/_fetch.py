"""Copies of columns in the process' own memory: how those on a GPU are looked at."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Tuple

from . import _core, _floats, _gpu, _nodes, _values, cuda
from ._buffers import Validity
from ._layout import COLUMN, DATA, HOST, MASK, OFFSETS, TABLE

Buffers = Dict[Tuple[Tuple[int, ...], int], bytearray]


class Fetched:
    """What a Column on the host has for _values, over a copy: elements from 0 on."""

    def __init__(self, spec: Tuple[Any, ...], path: Tuple[int, ...], buffers: Buffers):
        self._column_name, self._dtype, self._length, _, self._null_count, self._has_mask = spec[:6]
        self.kind = COLUMN
        self._spec, self._path, self._buffers = spec, path, buffers
        self.name = self._column_name or ""
        self._offset, self._ordinal = 0, -1
        self._shape = self.shape = (self._length,)
        self.ndim = 1
        self._child_names = [child[0] for child in spec[7]]

    def _buffer(self, which: int) -> Any:
        data = self._buffers.get((self._path, which))
        if data is None:
            return None
        return _core.from_memory(data, "uint8", (len(data),))

    def _view(self) -> Any:
        size = _core.itemsize(self._dtype)
        if not size:
            raise BufferError(f"{self._dtype} is not so many bytes for each element")
        data = self._buffers.get((self._path, DATA), bytearray())
        return _core.from_memory(data, self._dtype, (self._length,))

    values = property(_view)

    @property
    def validity(self) -> Optional[Validity]:
        bits = self._buffer(MASK)
        return None if bits is None else Validity(bits, 0, self._length, self._shape)

    def _is_valid(self, i: int) -> bool:
        validity = self.validity
        return validity is None or validity[i]

    def _child(self, i: int) -> "Fetched":
        return Fetched(self._spec[7][i], self._path + (i,), self._buffers)

    def _slice(self, start: int, length: int) -> "Fetched":
        """Of the few rows that are fetched a part is fetched anew."""
        return _gather([_nodes.Piece(self.node(), start, length)])

    def node(self) -> _nodes.Node:
        """The copy, as something to be copied."""
        addresses = [
            _core.address(self._buffers[self._path, which])[0] if (self._path, which) in self._buffers else 0
            for which in (DATA, MASK, OFFSETS)
        ]
        children = [self._child(i).node() for i in range(len(self._spec[7]))]
        return _nodes.Node(self._dtype, self._length, name=self.name, null_count=-1 if self._has_mask else 0,
                           data=addresses[0], mask=addresses[1], offsets=addresses[2],
                           children=children, keep=self)

    def tolist(self) -> List[Any]:
        return _values.to_list(self)


def _sizes(spec: Tuple[Any, ...]) -> List[Tuple[int, int]]:
    """(which, bytes) of the buffers that a column's specification has."""
    _, dtype, length, _, _, mask, data_bytes, _, _ = spec
    found = [(MASK, (length + 7) // 8)] if mask else []
    width = _nodes.OFFSET_WIDTHS.get(dtype)
    if width:
        found.append((OFFSETS, (length + 1) * width))
        if "list" not in dtype:
            found.append((DATA, data_bytes))
    elif dtype == "bool":
        found.append((DATA, (length + 7) // 8))
    elif _core.itemsize(dtype):
        found.append((DATA, length * _core.itemsize(dtype)))
    return found


def _gather(pieces: List[_nodes.Piece]) -> Fetched:
    building = _nodes.Building()
    spec = building.column(pieces)[5]
    buffers: Buffers = {}

    def allocate(part: Tuple[Any, ...], path: Tuple[int, ...]) -> None:
        for which, count in _sizes(part):
            buffers[path, which] = bytearray(count)
        for i, child in enumerate(part[7]):
            allocate(child, path + (i,))

    allocate(spec, ())
    for path, which, at, address, count, keep in building.copies:
        target = buffers[path, which]
        device = keep.device if isinstance(keep, _nodes.Node) else HOST
        if device == HOST:
            target[at : at + count] = ctypes.string_at(address, count)
        else:
            target[at : at + count] = cuda.read_bytes(address, count, device)
    return Fetched(spec, (), buffers)


def fetch(column: Any) -> Fetched:
    """A copy of a Column, or of an Array of one axis, that is on a GPU."""
    found = _gpu.column_on_gpu(column, "")
    assert found is not None
    for event, ordinal in found.events:
        cuda.wait_for_event(event, ordinal)
    fetched = _gather(found.pieces)
    fetched.name, fetched._column_name = column.name, column._column_name
    return fetched


def copy_to_host(held: Any, stream: Any) -> Any:
    """A new NumPy array, from wherever it is; with a stream the copy is queued there."""
    import numpy

    try:
        view = held._view()
    except BufferError:  # strings, bits, nested columns
        if stream is not None:
            raise
        there = held if held._ordinal < 0 else fetch(held)
        array = _values.plain(there)
        return _values.objects_array(_values.to_list(there)) if array is None else array
    array = numpy.empty(view.nbytes, dtype="u1")
    address, count = _core.address(array)
    at = held._offset * view.itemsize if held.kind == COLUMN else 0
    if count:
        if stream is not None:
            held._wait_ready(int(stream))
        else:
            held._wait_ready(0)
        held._read(DATA, at, address, count, 0 if stream is None else int(stream))
    if view.dtype in _floats.FOREIGN:
        items = array.view(f"V{view.itemsize}").reshape(view.shape)
        return _floats.to_numpy(items, view.dtype)
    if view.typestr:
        return array.view(view.typestr).reshape(view.shape)
    return array.view(f"V{view.itemsize}").reshape(view.shape)


def to_list(held: Any) -> List[Any]:
    """tolist() of anything but Bytes, wherever it is."""
    if held._ordinal < 0:
        return list(held.tolist())
    if held.kind == TABLE:
        return [dict(zip(held.names, row)) for row in zip(*(fetch(column).tolist() for column in held.values()))]
    return fetch(held).tolist()
