"""Reads Arrow files of plain numbers without nulls, with NumPy alone; pyarrow reads all Arrow files.

An Arrow file is batches of buffers, each behind a header, and a footer that says where they are. Headers
are flatbuffers: tables whose fields are found through a list of offsets.
"""

import struct

import numpy as np

INT, FLOAT = 2, 3  # of the union Type in Arrow's Schema.fbs


class Node:
    """A flatbuffers table."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def _field(self, i):
        vtable = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        (size,) = struct.unpack_from("<H", self.data, vtable)
        place = vtable + 4 + 2 * i
        (offset,) = struct.unpack_from("<H", self.data, place) if place < vtable + size else (0,)
        return self.at + offset if offset else None

    def number(self, i, format_, missing=0):
        at = self._field(i)
        return missing if at is None else struct.unpack_from("<" + format_, self.data, at)[0]

    def table(self, i):
        at = self._field(i)
        return Node(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def vector(self, i):
        """(place of its first element, number of elements)"""
        at = self._field(i)
        at += struct.unpack_from("<I", self.data, at)[0]
        return at + 4, struct.unpack_from("<I", self.data, at)[0]

    def tables(self, i):
        at, count = self.vector(i)
        return [Node(self.data, place + struct.unpack_from("<I", self.data, place)[0])
                for place in range(at, at + 4 * count, 4)]

    def text(self, i):
        at, length = self.vector(i)
        return self.data[at : at + length].decode()


def _root(data, at):
    return Node(data, at + struct.unpack_from("<I", data, at)[0])


def _dtype(field):
    kind, type_ = field.number(2, "B"), field.table(3)
    if kind == INT:
        return f"<{'i' if type_.number(1, '?', False) else 'u'}{type_.number(0, 'i') // 8}"
    if kind == FLOAT:
        return f"<f{(2, 4, 8)[type_.number(0, 'h')]}"
    raise ValueError(f"{field.text(0)}: only numbers are read without pyarrow")


def _batch(data, offset, dtypes):
    """The arrays of one batch: its header lies at `offset`, its buffers behind that."""
    (length,) = struct.unpack_from("<i", data, offset + 4)
    batch = _root(data, offset + 8).table(2)
    rows = batch.number(0, "q")
    at, _ = batch.vector(2)
    body = offset + 8 + length
    for i, dtype in enumerate(dtypes):  # two buffers a column: the validity bitmap, and the values
        (where,) = struct.unpack_from("<q", data, at + 32 * i + 16)
        yield np.frombuffer(data, dtype, rows, body + where)


def read(path):
    """{name: array}"""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = _root(data, len(data) - 10 - length)
    fields = footer.table(1).tables(1)
    dtypes = [_dtype(field) for field in fields]
    at, count = footer.vector(3)
    offsets = [struct.unpack_from("<q", data, at + 24 * i)[0] for i in range(count)]
    batches = [list(_batch(data, offset, dtypes)) for offset in offsets]
    return {field.text(0): np.concatenate(parts) for field, parts in zip(fields, zip(*batches))}
