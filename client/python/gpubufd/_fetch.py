"""Copies of objects in the process' own memory: by these the host reads objects on a GPU."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Dict, List, Sequence, Tuple

from . import _core, _floats, _gpu, _nodes, _values, cuda
from ._layout import ARRAY, BUNDLE, COLUMN, DATA, HOST, MASK, OFFSETS, TABLE

Path = Tuple[int, ...]  # numbers of children, from the top
Buffers = Dict[Tuple[Path, int], bytearray]


class HostCopy:
    """The members of `_core.Object`, over a copy in the process' own memory, from element 0 on.

    `spec` is a column's specification as `_core` takes it; for a table, that of a struct with its columns.
    """

    kind, released, stale, _foreign = COLUMN, False, False, False
    _device, _ordinal, _offset = "host", HOST, 0

    def __init__(self, spec: Tuple[Any, ...], buffers: Buffers, paths: Sequence[Path], like: Any):
        self._column_name, self._dtype, self._length, _, _, self._has_mask = spec[:6]
        self._spec, self._buffers = spec, buffers
        self._path, self._paths = paths[0], paths[1:]  # of itself, and of its children
        self.name, self.version = like.name, like.version
        self._shape: Tuple[int, ...] = (self._length,)
        self._child_names = [child[0] for child in spec[7]]
        self._child_count = len(spec[7])
        pairs = [text.decode() for text in spec[8] or ()]
        self.metadata = dict(zip(pairs[::2], pairs[1::2]))

    def release(self) -> None:
        """Does nothing: the memory is freed with the last reference."""

    def _buffer(self, which: int) -> Any:
        data = self._buffers.get((self._path, which))
        if data is None:
            return None
        return _core.from_memory(memoryview(data).toreadonly(), "uint8", (len(data),))

    def _plain_numbers(self) -> None:
        """None: a copy has no memoryview of its own."""

    def _view(self) -> Any:
        size = _core.itemsize(self._dtype)
        if not size:
            raise BufferError(f"{self._dtype} is no whole number of bytes for each element")
        data = memoryview(self._buffers.get((self._path, DATA), b"")).toreadonly()
        return _core.from_memory(data, self._dtype, _floats.items(self._dtype, self._shape))

    @property
    def _null_count(self) -> int:
        count: int = self._spec[4]
        if count >= 0:
            return count
        if self._dtype == "dictionary":
            count = self._child(0)._null_count
            return count
        return _core.count_nulls(_core.address(self._buffers[self._path, MASK])[0], 0, math.prod(self._shape))

    def _child(self, i: int) -> Any:
        path = self._paths[i]
        inner = [path + (k,) for k in range(len(self._spec[7][i][7]))]
        return _kinds[COLUMN](self._spec[7][i], self._buffers, [path, *inner], self)

    def _column(self, name: str) -> Any:
        if name not in self._child_names:
            raise KeyError(name)
        return self._child(self._child_names.index(name))

    def _select(self, names: Sequence[str]) -> Any:
        numbers = [self._child_names.index(name) if name in self._child_names else -1 for name in names]
        if -1 in numbers:
            raise KeyError(names[numbers.index(-1)])
        spec = (*self._spec[:7], tuple(self._spec[7][i] for i in numbers), self._spec[8])
        return type(self)(spec, self._buffers, [self._path, *(self._paths[i] for i in numbers)], self)

    def _slice(self, start: int, length: int) -> Any:
        """A slice is copied once more, so that its bitmaps and offsets begin at 0."""
        building = _nodes.Building()
        if self.kind == TABLE:
            parts = [(self._child_names[i], [_nodes.Piece(self._child(i).node(), start, length)])
                     for i in range(self._child_count)]
            return _made(building, building.table(parts, length, self._spec[8])[5], TABLE, self)
        spec = building.column([_nodes.Piece(self.node(), start, length)])[5]
        return _made(building, (self._column_name, *spec[1:8], self._spec[8]), COLUMN, self)

    def node(self) -> _nodes.Node:
        """The copy as a Node, to make further copies of."""
        schema, array = _core.capsules(self._source())
        (piece,) = _nodes.pieces_of((schema, [array]))
        return piece.node

    def _source(self) -> Tuple[Any, ...]:
        """The column in Arrow's layout, for `_core.capsules`."""
        children = [self._child(i) for i in range(self._child_count)]
        more = (_nodes.encoded(self._spec[8]),) if self._spec[8] else ()
        if self._dtype == "dictionary":
            return (*children[0]._source()[:5], children[1]._source(), *more)
        found = [self._buffers.get((self._path, which)) for which in (MASK, OFFSETS, DATA)]
        wanted = [True, self._dtype in _nodes.OFFSET_WIDTHS, not children and self._dtype != "struct"]
        buffers = () if self._dtype == "null" else tuple(
            b"" if data is None and i else data for i, (data, want) in enumerate(zip(found, wanted)) if want)
        unnamed = "entries" if self._dtype == "map" else "item"
        named = tuple((child._column_name or unnamed, child._source()) for child in children)
        return (_core.format_of(self._dtype), self._length, self._null_count, buffers, named, None, *more)

    def _arrow_schema(self) -> Any:
        return _core.capsules(self._source())[0]

    def _arrow_array(self) -> Any:
        return _core.capsules(self._source())[1]

    def _read(self, which: int, offset: int, address: int, count: int, stream: int) -> None:
        data = self._buffers[self._path, which]
        ctypes.memmove(address, bytes(memoryview(data)[offset : offset + count]), count)

    def _wait_ready(self, stream: int) -> None:
        """Does nothing: the copy is complete."""

    _release_on = _wait_ready


class HostArray(HostCopy):
    """A HostCopy of an array."""

    def __init__(self, dtype: str, shape: Tuple[int, ...], buffers: Buffers, like: Any):
        length = shape[0] if shape else 1
        masked = ((), MASK) in buffers
        super().__init__((None, dtype, length, 0, -1 if masked else 0, masked, 0, (), None), buffers, [()], like)
        self._shape = shape
        self._strides = self._view().strides

    def _source(self) -> Tuple[Any, ...]:
        if len(self._shape) != 1:
            raise TypeError("only arrays of one axis are Arrow arrays")
        return super()._source()

    def _slice(self, start: int, length: int) -> Any:
        rest, group = self._shape[1:], _floats.group(self._dtype)
        if not rest and (start % group or length % group):
            raise ValueError(f"elements {start} + {length}: those of {self._dtype} are packed, and a slice of them "
                             "begins and ends at whole bytes")
        item = _core.itemsize(self._dtype)
        at, count = (math.prod(_floats.items(self._dtype, (rows, *rest))) * item for rows in (start, length))
        buffers: Buffers = {((), DATA): self._buffers[(), DATA][at : at + count]}
        if self._has_mask:
            row = math.prod(rest)
            bits = bytearray((length * row + 7) // 8)
            _nodes.copy_bits(bits, 0, self._buffers[(), MASK], start * row, length * row)
            buffers[(), MASK] = bits
        return type(self)(self._dtype, (length, *rest), buffers, self)


class HostBundle(HostCopy):
    """A copy of a whole bundle; each of its tensors is one more."""

    _column_name = None

    def __init__(self, bundle: Any):
        self.name, self.version, self.label = bundle.name, bundle.version, bundle.label
        self._path: Path = ()
        view = bundle._buffer(DATA)
        self._buffers = {((), DATA): bytearray(view.nbytes)}
        bundle._wait_ready(0)
        bundle._read(DATA, 0, _core.address(self._buffers[(), DATA])[0], view.nbytes, 0)
        self._all = bundle._entries()
        self._index_of = {entry[0]: i for i, entry in enumerate(self._all)}
        self._tensor_count, self._manifest_bytes = len(self._all), bundle._manifest_bytes
        self.metadata = bundle.metadata

    def _entries(self) -> List[Any]:
        return self._all

    def _entry(self, i: int) -> Any:
        return self._all[i]

    def _find(self, name: str) -> int:
        return self._index_of.get(name, -1)

    def _tensor(self, i: int) -> Any:
        _, dtype, shape, offset, size = self._all[i]
        return _kinds[ARRAY](dtype, shape, {((), DATA): self._buffers[(), DATA][offset : offset + size]}, self)


_kinds: Dict[int, Any] = {COLUMN: HostCopy, TABLE: HostCopy, ARRAY: HostArray}


def set_kinds(array: Any, column: Any, table: Any, bundle: Any) -> None:
    """The classes that copies are made of."""
    _kinds.update({ARRAY: array, COLUMN: column, TABLE: table, BUNDLE: bundle})


def _made(building: _nodes.Building, spec: Tuple[Any, ...], kind: int, like: Any) -> Any:
    """Makes the copies; returns the column or table of them."""
    buffers: Buffers = {}

    def allocate(part: Tuple[Any, ...], path: Path) -> None:
        _, dtype, length, _, _, mask, characters, children, _ = part
        for which, count in _nodes.sizes(dtype, length, mask, characters):
            buffers[path, which] = bytearray(count)
        for i, child in enumerate(children):
            allocate(child, path + (i,))

    allocate(spec, ())
    for path, which, at, address, count, keep in building.copies:
        target = buffers[path, which]
        device = keep.device if isinstance(keep, _nodes.Node) else HOST
        if device == HOST:
            target[at : at + count] = ctypes.string_at(address, count)
        else:
            target[at : at + count] = cuda.read_bytes(address, count, device)
    if like._foreign:
        _check(spec, buffers, (), like)
    return _kinds[kind](spec, buffers, [(), *((i,) for i in range(len(spec[7])))], like)


def _check(spec: Tuple[Any, ...], buffers: Buffers, path: Path, like: Any) -> None:
    """Invalid: in the copy of another user's column offsets or codes lead outside of it."""
    _, dtype, length, _, _, _, characters, children, _ = spec
    limit = children[0][2] if children else characters
    if dtype in _nodes.OFFSET_WIDTHS:
        view = memoryview(buffers[path, OFFSETS])
        offsets = (view.cast("q") if _nodes.OFFSET_WIDTHS[dtype] == 8 else view.cast("i")).tolist()
        if offsets != sorted(offsets) or offsets[0] < 0 or offsets[-1] > limit:
            raise _values.misled(like, "offsets do not ascend within it")
    elif dtype == "dictionary" and any(
            code is not None and not 0 <= code < children[1][2] for code in _kinds[COLUMN](children[0], buffers, [path + (0,)], like).tolist()):
        raise _values.misled(like, f"codes are not below {children[1][2]}")
    for i, child in enumerate(children):
        _check(child, buffers, path + (i,), like)


def _pieces(column: Any) -> List[_nodes.Piece]:
    """The pieces of a Column on a GPU, when its producer's work is done."""
    found = _gpu.of_held(column)
    for event, ordinal in found.events:
        cuda.wait_for_event(event, ordinal)
    return found.pieces


def fetch(column: Any) -> Any:
    """A copy of a Column that is on a GPU."""
    building = _nodes.Building()
    spec = building.column(_pieces(column))[5]
    return _made(building, (column._column_name, *spec[1:]), COLUMN, column)


def to_host(held: Any) -> Any:
    """An object of the same kind on the host: itself if it is there, else a copy."""
    if held._ordinal < 0:
        return held
    if held.kind == COLUMN:
        return fetch(held)
    if held.kind == BUNDLE:
        return _kinds[BUNDLE](held)
    if held.kind == TABLE:
        building = _nodes.Building()
        columns = [(name, _pieces(column)) for name, column in held.items()]
        pairs = tuple(word.encode() for pair in held.metadata.items() for word in pair)
        return _made(building, building.table(columns, len(held), pairs or None)[5], TABLE, held)
    view, count = held._view(), held.size
    buffers: Buffers = {((), DATA): bytearray(view.nbytes)}
    held._wait_ready(0)
    if view.nbytes:
        held._read(DATA, 0, _core.address(buffers[(), DATA])[0], view.nbytes, 0)
    if held._has_mask and held._null_count:
        bits = _nodes.Node("bool", count, offset=held._offset, device=held._ordinal,
                           data=held._buffer(MASK).pointer, keep=held)
        building = _nodes.Building()
        spec = building.column([_nodes.whole(bits)])[5]
        buffers[(), MASK] = _made(building, spec, COLUMN, held)._buffers[(), DATA]
    return _kinds[ARRAY](held._dtype, held._shape, buffers, held)


def copy_to_host(held: Any, stream: Any) -> Any:
    """A new NumPy array of an object on the host or on a GPU; with a stream the copy is queued on it."""
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
    on = 0 if stream is None else int(stream)
    if count:
        held._wait_ready(on)
        held._read(DATA, at, address, count, on)
    if view.dtype in _floats.FOREIGN:
        items = array.view(f"V{view.itemsize}").reshape(view.shape)
        return _floats.to_numpy(items, view.dtype)
    if view.dtype == "date32":  # of 64 bits in NumPy
        return array.view("i4").astype("M8[D]").reshape(view.shape)
    return array.view(view.typestr or f"V{view.itemsize}").reshape(view.shape)


def to_list(held: Any) -> List[Any]:
    """tolist() of any object but Bytes, on the host or on a GPU."""
    return list(to_host(held).tolist())


def elements(held: Any, start: int, count: int) -> List[Any]:
    """Elements of a column, or of an array of one axis, as Python values. Packed ones are fetched by whole bytes."""
    group = _floats.group(held._dtype)
    skipped = start % group
    end = -(-(start + count) // group) * group
    values = to_list(held._slice(start - skipped, end - start + skipped))
    return values[skipped : skipped + count]
