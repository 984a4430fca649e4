"""Columns taken apart: where each buffer lies, on the host or on a GPU, and how they are put together.

A Node is a column of the caller's. A Piece is a range of its elements. A published column is made of one or more
pieces, such as the batches of a stream, which become one column. Building has the layout to create for them, and the
copies that fill it. Sharing describes Nodes in place, to be registered.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import struct
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import _core, cuda
from ._layout import COLUMN, CPU, DATA, GPUS, HOST, MASK, OFFSETS, TABLE, at_column

VIEWS = {"vu": "large_utf8", "vz": "large_binary"}  # copied as the strings that they show
# Formats that cannot be put: (what to call them, what to do instead).
OTHERS = {
    "v": ("views of strings on a GPU", "cast it to large_string"),
    "+vl": ("views of lists", "cast it to list"), "+vL": ("views of lists", "cast it to large_list"),
    "+r": ("runs of equal values", "decode it"), "+u": ("unions", "make a column of each type"),
    "d:": ("decimals of other than 128 bits", "cast it to decimal128"),
}
BUFFERS = ("data", "mask", "offsets")  # as a layout calls them, by their numbers
OFFSET_WIDTHS = {name: width for name, _, width, *_ in _core.dtypes() if width}


@functools.lru_cache(None)
def dtype_of(format_: str) -> Optional[str]:
    """The protocol's dtype for one of Arrow's formats; None: there is none."""
    return VIEWS.get(format_) or _core.dtype_of(format_)


def sizes(dtype: str, count: int, masked: bool, characters: int) -> Iterator[Tuple[int, int]]:
    """(which, bytes) of each buffer that a column of `count` elements has of its own. `characters`: of all texts, in bytes."""
    width = OFFSET_WIDTHS.get(dtype)
    if masked:
        yield MASK, (count + 7) // 8
    if width:
        yield OFFSETS, (count + 1) * width
    if width and not dtype.endswith(("list", "map")):
        yield DATA, characters
    elif dtype == "bool":
        yield DATA, (count + 7) // 8
    elif _core.itemsize(dtype):
        yield DATA, count * _core.itemsize(dtype)


@dataclasses.dataclass(eq=False)
class Node:
    """A column on the host or on a GPU. The address of a buffer that it lacks is 0."""

    dtype: str
    length: int
    name: str = ""
    offset: int = 0  # in elements, of all its buffers
    null_count: int = 0  # -1: unknown
    counted: bool = True  # whether null_count is known to be the bitmap's; else another library says so, of a GPU's
    device: int = HOST  # a GPU's ordinal, or HOST
    data: int = 0
    mask: int = 0
    offsets: int = 0
    characters: int = -1  # of strings: bytes of data; -1: unknown
    children: List["Node"] = dataclasses.field(default_factory=list)  # of a dictionary: indices, values
    metadata: Optional[Tuple[bytes, ...]] = None
    keep: Any = None  # holds the memory

    def read(self, address: int, count: int, stream: int) -> bytearray:
        """Bytes of one of its buffers."""
        if self.device == HOST:
            return bytearray(ctypes.string_at(address, count))
        return cuda.read_bytes(address, count, self.device, stream)

    def offset_at(self, i: int, stream: int) -> int:
        """The i-th of its offsets."""
        width = OFFSET_WIDTHS[self.dtype]
        return int.from_bytes(self.read(self.offsets + i * width, width, stream), "little", signed=True)


class Piece(NamedTuple):
    """Elements [start, start + rows) of a Node."""

    node: Node
    start: int
    rows: int

    @property
    def first(self) -> int:
        """The number of its first element in the Node's buffers."""
        return self.node.offset + self.start


def whole(node: Node) -> Piece:
    return Piece(node, 0, node.length)


# ---- the caller's columns as Nodes ----


def of_arrow(told: Tuple[Any, ...], device: int, keep: Any, counted: bool = True) -> Node:
    """The Node of an Arrow array, as `_core.nodes` describes it."""
    format_, name, length, offset, null_count, buffers, children, dictionary, metadata = told
    dtype = dtype_of(format_)
    if dtype is None or format_ in VIEWS and device != HOST:
        raise refused(format_, name)
    if length < 0 or offset < 0 or null_count < -1:
        raise ValueError(f"{at_column(name)}the Arrow array has a negative length or offset")
    node = Node(
        dtype, length, name=name, offset=offset, null_count=null_count, counted=counted, device=device, keep=keep,
        metadata=_text_pairs(metadata), children=[of_arrow(child, device, keep, counted) for child in children],
    )
    if len(buffers) > 0 and dtype != "null":
        node.mask = buffers[0]
    if format_ in VIEWS and buffers:  # a stream without batches has none
        made = _core.text_of_views(buffers, offset, offset + length)
        node.offsets, node.data = (_core.address(one)[0] for one in made)
        node.keep = (made, keep)
        return node
    if dtype in OFFSET_WIDTHS and len(buffers) > 1:
        node.offsets = buffers[1]
    if len(buffers) > 1 and not format_.startswith("+"):
        node.data = buffers[-1]
    if dictionary is None:
        return node
    node.name, node.metadata, pairs = "", None, node.metadata
    values = of_arrow(dictionary, device, keep, counted)
    return Node("dictionary", length, name=name, null_count=null_count, device=device,
                children=[node, values], metadata=pairs, keep=keep)


def refused(format_: str, where: str) -> TypeError:
    """The exception for an Arrow format that the protocol has no dtype for."""
    what, advice = next((told for begin, told in OTHERS.items() if format_.startswith(begin)),
                        (f"format {format_!r}", "cast it"))
    return TypeError(f"{at_column(where)}Arrow's {what} cannot be put: {advice}")


def check_types(schema: Any, where: str = "") -> bool:
    """Whether a schema has views. TypeError, with the column's name: a type is not supported."""

    def check(told: Tuple[Any, ...], path: str) -> bool:
        if dtype_of(told[0]) is None:
            raise refused(told[0], path)
        children = told[6] + ((told[7],) if told[7] else ())
        found = [check(child, ".".join(name for name in (path, child[1]) if name)) for child in children]
        return told[0] in VIEWS or any(found)

    told = _core.nodes(schema, None)
    return check(told, where or told[1])


def encoded(pairs: Tuple[bytes, ...]) -> bytes:
    """Metadata, (key, value, …), in the form of Arrow's C interface."""
    return struct.pack("=i", len(pairs) // 2) + b"".join(struct.pack("=i", len(text)) + text for text in pairs)


def _text_pairs(pairs: Optional[Tuple[bytes, ...]]) -> Optional[Tuple[bytes, ...]]:
    """The metadata that a layout has room for: UTF-8 without NUL."""
    if not pairs:
        return None
    kept: List[bytes] = []
    for key, value in zip(pairs[::2], pairs[1::2]):
        try:
            if b"\0" not in key + value and (key + value).decode() is not None:
                kept += (key, value)
        except UnicodeDecodeError:
            pass
    return tuple(kept) or None


def _told_of(source: Tuple[Any, ...], name: str) -> Tuple[Any, ...]:
    """A source (see _convert) that is in one piece, as `_core.nodes` describes an array."""
    if len(source) == 2:
        schema, arrays = source
        told = _core.nodes(schema, *(arrays or [None]))
        return (told[0], name, *told[2:])
    format_, length, null_count, buffers, children, dictionary = source[:6]
    addresses = [0 if b is None else _core.address(b)[0] for b in buffers]
    below = tuple(_told_of(child, child_name) for child_name, child in children)
    return (format_, name, length, 0, null_count, addresses, below, dictionary and _told_of(dictionary, ""), None)


def columns_in(children: Iterable[Tuple[Any, Any]]) -> Iterator[Tuple[str, Any]]:
    """The columns of a table's source by name, with each of a block by itself."""
    for name, source in children:
        if isinstance(name, str):
            yield name, source
        else:
            for one, data in zip(name, source[3][1]):
                yield one, (*source[:3], (None, data), *source[4:])


def pieces_of(source: Tuple[Any, ...], counted: bool = False) -> List[Piece]:
    """A source as pieces of one type; there is at least one. `counted`: of capsules, whether they are this package's."""
    if len(source) != 2:
        return [whole(of_arrow(_told_of(source, ""), HOST, source))]
    schema, arrays = source
    nodes = []
    for capsule in arrays or [None]:
        kind, ordinal, _ = (CPU, HOST, 0) if capsule is None else _core.array_device(capsule)
        if kind not in (CPU, *GPUS):
            raise TypeError(f"an Arrow array on a device of type {kind} cannot be put: copy it to the host")
        told = _core.nodes(schema, capsule)
        nodes.append(of_arrow(told, HOST if kind == CPU else ordinal, (schema, capsule), counted or kind == CPU))
    return [whole(node) for node in nodes]


def columns_of(pieces: List[Piece]) -> List[Tuple[str, List[Piece]]]:
    """The columns of struct pieces that are a table."""
    for node, _, _ in pieces:
        if node.dtype != "struct" or (node.mask and node.null_count != 0 and _has_nulls(node)):
            raise TypeError("only a struct array without nulls of its own can become a table")
    return [
        (child.name, [Piece(p.node.children[i], p.first, p.rows) for p in pieces])
        for i, child in enumerate(pieces[0].node.children)
    ]


def _has_nulls(node: Node) -> bool:
    if node.null_count > 0 or node.length == 0:
        return node.length > 0
    bits = node.read(node.mask, (node.offset + node.length + 7) // 8, 0)
    return _core.count_nulls(_core.address(bits)[0], node.offset, node.length) > 0


def check_nulls(node: Node, where: str, stream: int) -> None:
    """ValueError: the bitmap of another library's column has other nulls than that says. The check reads the bitmap."""
    if node.counted or node.null_count <= 0 or node.dtype in ("dictionary", "null"):
        return
    found = 0
    if node.mask:
        bits = node.read(node.mask + node.offset // 8, (node.offset % 8 + node.length + 7) // 8, stream)
        found = _core.count_nulls(_core.address(bits)[0], node.offset % 8, node.length)
    if found != node.null_count:
        raise ValueError(
            f"{at_column(where)}the Arrow array has {node.null_count} nulls by its null_count and {found} by its bitmap, as "
            "libcudf's capsule of a slice: put a copy of it, or the cuDF object itself"
        )


# ---- copies ----


class Copy(NamedTuple):
    """Bytes to be written into an unsealed object; `path` are numbers of children from the top."""

    path: Tuple[int, ...]
    which: int
    at: int
    address: int
    size: int
    keep: Any


def copy_bits(target: bytearray, at: int, source: bytearray, start: int, length: int) -> None:
    """Copies bits [start, start + length) to those from `at` on, which are 0."""
    if not length:
        return
    first, end = at // 8, (at + length + 7) // 8
    bits = int.from_bytes(source[start // 8 : (start + length + 7) // 8], "little") >> start % 8 << at % 8
    target[first:end] = (bits | target[first]).to_bytes(end - first + 1, "little")[: end - first]
    target[end - 1] &= 0xFF >> -(at + length) % 8  # those of the source after the last


class Building:
    """Layouts to be created, and in `copies` the copies into them. `stream`: the CUDA stream to read GPU memory on."""

    def __init__(self, stream: int = 0):
        self.stream = stream
        self.copies: List[Copy] = []

    def table(
        self, columns: List[Tuple[str, List[Piece]]], rows: int, metadata: Optional[Tuple[bytes, ...]] = None
    ) -> Tuple[Any, ...]:
        """The layout of a table, as `_core` takes it."""
        specs = []
        for i, (name, pieces) in enumerate(columns):
            found = sum(piece.rows for piece in pieces)
            if found != rows:
                raise ValueError(f"{at_column(name)}it has {found} rows, the columns before it {rows}")
            specs.append(self._column(pieces, name, (i,)))
        top = (None, "struct", rows, 0, 0, False, 0, tuple(specs), metadata)
        return (TABLE, 0, None, (), False, top)

    def column(self, pieces: List[Piece]) -> Tuple[Any, ...]:
        """The layout of a column."""
        return (COLUMN, 0, None, (), False, self._column(pieces, None, ()))

    def _column(self, pieces: List[Piece], name: Optional[str], path: Tuple[int, ...]) -> Tuple[Any, ...]:
        node = pieces[0].node
        where = name or node.name
        for piece in pieces[1:]:
            if piece.node.dtype != node.dtype or len(piece.node.children) != len(node.children):
                raise ValueError(f"{at_column(where)}the batches have different types")
        for piece in pieces:
            self._check(piece, where)
            check_nulls(piece.node, where, self.stream)
        rows = sum(piece.rows for piece in pieces)
        masked, null_count = self._nulls(pieces)
        dtype, data_bytes = node.dtype, 0
        specs: List[Tuple[Any, ...]] = []
        if masked:
            self._bits(pieces, path, MASK, rows)
        if dtype == "null":
            null_count = rows
        elif dtype == "dictionary":
            specs = self._dictionary(pieces, path, where)
            null_count = specs[0][4]
        elif dtype == "struct":
            for i, child in enumerate(node.children):
                inner = [Piece(p.node.children[i], p.first, p.rows) for p in pieces]
                specs.append(self._column(inner, child.name, path + (i,)))
        elif dtype.startswith("fixed_list"):
            size = int(dtype[len("fixed_list("):-1])
            inner = [Piece(p.node.children[0], p.first * size, p.rows * size) for p in pieces]
            specs = [self._column(inner, None, path + (0,))]
        elif dtype in OFFSET_WIDTHS:
            inner = self._offsets(pieces, path, rows, where)
            if node.children:
                specs = [self._column(inner, None, path + (0,))]
            else:
                data_bytes = self._characters(inner, path)
        elif dtype == "bool":
            self._bits(pieces, path, DATA, rows)
        else:
            self._fixed(pieces, path)
        return (name, dtype, rows, 0, null_count, masked, data_bytes, tuple(specs), node.metadata)

    @staticmethod
    def _check(piece: Piece, where: str) -> None:
        node = piece.node
        if piece.start < 0 or piece.start + piece.rows > node.length:
            raise ValueError(f"{at_column(where)}an Arrow child is shorter than its parent")
        needs_data = node.dtype == "bool" or _core.itemsize(node.dtype)
        if piece.rows and (needs_data and not node.data or node.dtype in OFFSET_WIDTHS and not node.offsets):
            raise ValueError(f"{at_column(where)}the Arrow array has no data")

    @staticmethod
    def _nulls(pieces: List[Piece]) -> Tuple[bool, int]:
        """(whether a mask is needed, how many nulls there are; -1: unknown)"""
        total, known = 0, True
        for piece in pieces:
            node = piece.node
            if not node.mask or node.null_count == 0 or not piece.rows:
                continue
            if node.device == HOST:
                total += _core.count_nulls(node.mask, piece.first, piece.rows)
            elif node.null_count > 0 and piece.rows == node.length:
                total += node.null_count
            else:
                known = False
        return total > 0 or not known, total if known else -1

    def _add(self, path: Tuple[int, ...], which: int, at: int, address: int, count: int, keep: Any) -> None:
        if count:
            self.copies.append(Copy(path, which, at, address, count, keep))

    def _staged(self, path: Tuple[int, ...], which: int, data: bytearray) -> None:
        self._add(path, which, 0, _core.address(data)[0], len(data), data)

    def _bits(self, pieces: List[Piece], path: Tuple[int, ...], which: int, rows: int) -> None:
        """Copies bitmaps. Those that do not begin at a whole byte are shifted on the host."""
        full = [piece for piece in pieces if piece.rows]
        if not full:
            return
        node = full[0].node
        if len(full) == 1 and full[0].first % 8 == 0:
            address = (node.mask if which == MASK else node.data) + full[0].first // 8
            self._add(path, which, 0, address, (rows + 7) // 8, node)
            return
        target, at = bytearray((rows + 7) // 8), 0
        for piece in full:
            node, first = piece.node, piece.first
            address = node.mask if which == MASK else node.data
            count = (first % 8 + piece.rows + 7) // 8
            if which == MASK and (not address or node.null_count == 0):
                source = bytearray(b"\xff" * count)
            else:
                source = node.read(address + first // 8, count, self.stream)
            copy_bits(target, at, source, first % 8, piece.rows)
            at += piece.rows
        self._staged(path, which, target)

    def _fixed(self, pieces: List[Piece], path: Tuple[int, ...]) -> None:
        width, at = _core.itemsize(pieces[0].node.dtype), 0
        for piece in pieces:
            count = piece.rows * width
            self._add(path, DATA, at, piece.node.data + piece.first * width, count, piece.node)
            at += count

    def _offsets(
        self, pieces: List[Piece], path: Tuple[int, ...], rows: int, where: str
    ) -> List[Piece]:
        """Copies offsets, counted from 0; returns pieces of the items or characters that they point to."""
        dtype = pieces[0].node.dtype
        width = OFFSET_WIDTHS[dtype]
        full = [piece for piece in pieces if piece.rows]
        if not full:
            self._staged(path, OFFSETS, bytearray(width))
            return [self._behind(piece.node, 0, 0) for piece in pieces[:1]]
        staged, behind, base = bytearray(), [], 0
        for piece in full:
            node, first = piece.node, piece.first
            begin = node.offset_at(first, self.stream)
            end = node.offset_at(first + piece.rows, self.stream)
            if begin < 0 or end < begin:
                raise ValueError(f"{at_column(where)}an Arrow array's offsets go backwards")
            if 0 <= node.characters < end:
                raise ValueError(f"{at_column(where)}an Arrow array's offsets lead beyond its characters")
            behind.append(self._behind(node, begin, end - begin))
            if len(full) == 1 and begin == 0:
                self._add(path, OFFSETS, 0, node.offsets + first * width, (rows + 1) * width, node)
                return behind
            if width == 4 and base + end - begin > 2**31 - 1:
                raise ValueError(
                    f"{at_column(where)}the batches together have more than 2**31 - 1 characters or items: "
                    "cast to a large_ type first"
                )
            part = node.read(node.offsets + first * width, (piece.rows + 1) * width, self.stream)
            _core.add_to_integers(part, width, base - begin)
            staged += part[width if staged else 0 :]
            base += end - begin
        self._staged(path, OFFSETS, staged)
        return behind

    @staticmethod
    def _behind(node: Node, start: int, count: int) -> Piece:
        """Items of a list; or characters, as a Node of bytes."""
        if node.children:
            return Piece(node.children[0], start, count)
        characters = Node("uint8", start + count, device=node.device, data=node.data, keep=node)
        return Piece(characters, start, count)

    def _characters(self, pieces: List[Piece], path: Tuple[int, ...]) -> int:
        at = 0
        for piece in pieces:
            self._add(path, DATA, at, piece.node.data + piece.start, piece.rows, piece.node)
            at += piece.rows
        return at

    def _dictionary(self, pieces: List[Piece], path: Tuple[int, ...], where: str) -> List[Tuple[Any, ...]]:
        indices = [Piece(p.node.children[0], p.first, p.rows) for p in pieces]
        values = [p.node.children[1] for p in pieces]
        if any(not _same(values[0], other) for other in values[1:]):
            raise ValueError(
                f"{at_column(where)}the batches have different dictionaries; unify them first (of a pyarrow "
                "table: unify_dictionaries())"
            )
        return [
            self._column(indices, None, path + (0,)),
            self._column([whole(values[0])], None, path + (1,)),
        ]


def bits(node: Node, stream: int) -> List[Copy]:
    """The copies of a column of bits."""
    building = Building(stream)
    building.column([whole(node)])
    return building.copies


def _same(a: Node, b: Node) -> bool:
    """Whether two dictionaries surely have the same values in the same order."""
    if (a.length, a.offset, len(a.children)) != (b.length, b.offset, len(b.children)):
        return False
    if (a.data, a.offsets, a.mask) == (b.data, b.offsets, b.mask):
        return all(_same(x, y) for x, y in zip(a.children, b.children))
    end, width, size = a.offset + a.length, OFFSET_WIDTHS.get(a.dtype, 0), _core.itemsize(a.dtype)
    if a.null_count or b.null_count or a.children or not (width or size) or {a.device, b.device} != {HOST}:
        return False
    count = (end + 1) * width
    if width and a.read(a.offsets, count, 0) != b.read(b.offsets, count, 0):
        return False
    count = a.offset_at(end, 0) if width else end * size
    return a.read(a.data, count, 0) == b.read(b.data, count, 0)


def target_of(made: Any, path: Tuple[int, ...], found: Dict[Tuple[int, ...], Any]) -> Any:
    """The part of an unsealed object at a path; `found` caches the parts."""
    if path not in found:
        found[path] = target_of(made, path[:-1], found)._child(path[-1]) if path else made
    return found[path]


def fill(made: Any, copies: Iterable[Copy], *streams: int) -> None:
    """Makes the copies; with streams other than 0 they are queued there, in turn."""
    found: Dict[Tuple[int, ...], Any] = {}
    for (path, which, at, address, count, _), stream in zip(copies, itertools.cycle(streams)):
        target_of(made, path, found)._write(which, at, address, count, stream)


# ---- shared in place ----


class Sharing:
    """Nodes on one GPU, shared in place: their layout for `register`; `parts` of memory become its handles."""

    def __init__(self) -> None:
        self.parts: List[Tuple[int, int]] = []

    def table(
        self, columns: List[Tuple[str, List[Piece]]], rows: int, metadata: Optional[Tuple[bytes, ...]] = None
    ) -> Dict[str, Any]:
        described = []
        for name, pieces in columns:
            if len(pieces) != 1:
                raise ValueError(f"{at_column(name)}it lies in several batches: put() joins them")
            if pieces[0].rows != rows:
                raise ValueError(f"{at_column(name)}it has {pieces[0].rows} rows, the columns before it {rows}")
            described.append({"name": name, **self._column(pieces[0], name)})
        return {"kind": "table", "length": rows, "columns": described, **_said_of(metadata)}

    def column(self, pieces: List[Piece]) -> Dict[str, Any]:
        if len(pieces) != 1:
            raise ValueError("the column lies in several batches: put() joins them")
        return {"kind": "column", **self._column(pieces[0], "")}

    def buffer(self, address: int, count: int) -> Dict[str, Any]:
        """A buffer of that many bytes."""
        if not count:
            return {"handle": 0, "offset": 0, "bytes": 0}
        self.parts.append((address, count))
        return {"handle": len(self.parts) - 1, "offset": 0, "bytes": count}

    def _column(self, piece: Piece, where: str) -> Dict[str, Any]:
        node, end = piece.node, piece.first + piece.rows
        if node.device == HOST:
            raise TypeError(f"{at_column(where)}it is on the host: share_mine() is for GPU memory, put() copies")
        Building._check(piece, where)
        check_nulls(node, where, 0)
        masked = bool(node.mask) and node.null_count != 0
        is_whole = piece.start == 0 and piece.rows == node.length
        said: Dict[str, Any] = {"dtype": node.dtype, "length": piece.rows, "offset": piece.first}
        if masked or node.dtype == "dictionary":
            said["null_count"] = node.null_count if is_whole else -1
        width = OFFSET_WIDTHS.get(node.dtype)
        if width and not node.offsets or end and not piece.rows and not (node.data or node.children):
            raise ValueError(f"{at_column(where)}it has no memory to be shared: put() it")
        characters = node.offset_at(end, 0) if width and not node.children and piece.rows else 0
        for which, count in sizes(node.dtype, end, masked, characters):
            said[BUFFERS[which]] = self.buffer((node.data, node.mask, node.offsets)[which], count)
        if node.children:
            said["children"] = [
                dict(self._column(whole(child), where), **({"name": child.name} if node.dtype == "struct" else {}))
                for child in node.children
            ]
        return {**said, **_said_of(node.metadata)}


def _said_of(metadata: Optional[Tuple[bytes, ...]]) -> Dict[str, Any]:
    """A layout's member for metadata; empty without any."""
    pairs = [text.decode() for text in metadata or ()]
    return {"metadata": dict(zip(pairs[::2], pairs[1::2]))} if pairs else {}
