"""A consumer and a producer of Arrow's C structs, by ctypes: what pyarrow would be."""

import ctypes
import struct
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p


class Schema(Structure):
    pass


Schema._fields_ = [
    ("format", c_char_p), ("name", c_char_p), ("metadata", c_void_p), ("flags", c_int64),
    ("n_children", c_int64), ("children", POINTER(POINTER(Schema))), ("dictionary", POINTER(Schema)),
    ("release", CFUNCTYPE(None, POINTER(Schema))), ("private_data", c_void_p),
]


class Array(Structure):
    pass


Array._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64),
    ("n_children", c_int64), ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(Array))),
    ("dictionary", POINTER(Array)), ("release", CFUNCTYPE(None, POINTER(Array))),
    ("private_data", c_void_p),
]


class DeviceArray(Structure):
    _fields_ = [
        ("array", Array), ("device_id", c_int64), ("device_type", c_int32), ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    ]


class Stream(Structure):
    pass


Stream._fields_ = [
    ("get_schema", CFUNCTYPE(c_int, POINTER(Stream), POINTER(Schema))),
    ("get_next", CFUNCTYPE(c_int, POINTER(Stream), POINTER(Array))),
    ("get_last_error", CFUNCTYPE(c_char_p, POINTER(Stream))),
    ("release", CFUNCTYPE(None, POINTER(Stream))), ("private_data", c_void_p),
]

class DeviceStream(Structure):
    pass


DeviceStream._fields_ = [
    ("device_type", c_int32),
    ("get_schema", CFUNCTYPE(c_int, POINTER(DeviceStream), POINTER(Schema))),
    ("get_next", CFUNCTYPE(c_int, POINTER(DeviceStream), POINTER(DeviceArray))),
    ("get_last_error", CFUNCTYPE(c_char_p, POINTER(DeviceStream))),
    ("release", CFUNCTYPE(None, POINTER(DeviceStream))), ("private_data", c_void_p),
]

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


def struct_of(capsule, kind):
    """The struct in a capsule, as what it is."""
    names = {Schema: b"arrow_schema", Array: b"arrow_array", DeviceArray: b"arrow_device_array",
             Stream: b"arrow_array_stream"}
    return kind.from_address(_get(capsule, names[kind]))


def bit(bits, i):
    return bits[i >> 3] >> (i & 7) & 1


def bytes_at(address, count):
    return read(address, count) if count else b""


read = ctypes.string_at  # conftest.GPU_HEAD has it read GPUs, too


WIDTHS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q", "f": "f",
          "g": "d", "tdD": "i", "tts": "i", "ttm": "i", "tiM": "i", "e": "e"}


def values(schema, array):
    """Python values of an Arrow array, None for nulls."""
    format_ = schema.format.decode()
    n, at = array.length, array.offset
    if format_ == "n":
        return [None] * n
    mask = array.buffers[0]
    if mask:
        bits = bytes_at(mask, (at + n + 7) // 8)
        valid = [bit(bits, at + i) for i in range(n)]
        assert array.null_count in (-1, n - sum(valid))
    else:
        assert array.null_count == 0
        valid = [1] * n
    found = _content(schema, array, format_)
    return [v if ok else None for v, ok in zip(found, valid)]


def _content(schema, array, format_):
    n, at = array.length, array.offset
    if schema.dictionary:
        entries = values(schema.dictionary[0], array.dictionary[0])
        return [entries[i] if 0 <= i < len(entries) else None for i in _numbers(array, format_)]
    if format_ == "b":
        bits = bytes_at(array.buffers[1], (at + n + 7) // 8)
        return [bool(bit(bits, at + i)) for i in range(n)]
    if format_ in ("u", "z", "U", "Z", "+l", "+L", "+m"):
        wide = format_ in ("U", "Z", "+L")
        ends = memoryview(bytes_at(array.buffers[1], (at + n + 1) * (8 if wide else 4)))
        ends = ends.cast("q" if wide else "i")[at : at + n + 1].tolist()
        if format_.startswith("+"):
            items = values(schema.children[0][0], array.children[0][0])
            return [items[a:b] for a, b in zip(ends, ends[1:])]
        data = bytes_at(array.buffers[2], ends[-1] if ends else 0)
        pieces = [data[a:b] for a, b in zip(ends, ends[1:])]
        return [p.decode() for p in pieces] if format_ in "uU" else pieces
    if format_.startswith("+w:"):
        size = int(format_[3:])
        items = values(schema.children[0][0], array.children[0][0])
        return [items[i * size : i * size + size] for i in range(at, at + n)]
    if format_ == "+s":
        names = [schema.children[i][0].name.decode() for i in range(schema.n_children)]
        fields = [values(schema.children[i][0], array.children[i][0])[at : at + n]
                  for i in range(schema.n_children)]
        return [dict(zip(names, row)) for row in zip(*fields)] if names else [{}] * n
    return _numbers(array, format_)


def _numbers(array, format_):
    if format_.startswith("d:"):
        data = bytes_at(array.buffers[1], (array.offset + array.length) * 16)
        return [int.from_bytes(data[i * 16 : i * 16 + 16], "little", signed=True)
                for i in range(array.offset, array.offset + array.length)]
    wide = {"tin": 16, "w": int(format_[2:] or 0) if format_[0] == "w" else 0}.get(format_.partition(":")[0])
    if wide:  # the elements' bytes
        data = bytes_at(array.buffers[1], (array.offset + array.length) * wide)
        return [data[i : i + wide] for i in range(array.offset * wide, len(data), wide)]
    letter = WIDTHS.get(format_) or ("q" if format_[0] == "t" else None)
    assert letter, format_
    data = bytes_at(array.buffers[1], (array.offset + array.length) * struct.calcsize(letter))
    return memoryview(data).cast(letter)[array.offset :].tolist()


def read_array(owner):
    """Values by `__arrow_c_array__`."""
    schema, array = owner.__arrow_c_array__()
    return values(struct_of(schema, Schema), struct_of(array, Array))


def _batches(stream, kind):
    """(values, number of batches) of a stream whose arrays are of that kind."""
    schema = Schema()
    assert stream.get_schema(stream, schema) == 0
    found, batches = [], 0
    while True:
        made = kind()
        array = made.array if kind is DeviceArray else made
        assert stream.get_next(stream, made) == 0
        if not array.release:
            break
        assert kind is Array or made.device_type == stream.device_type
        found += values(schema, array)
        batches += 1
        array.release(array)
    schema.release(schema)
    return found, batches


def read_stream(owner):
    """(values, number of batches) by `__arrow_c_stream__`."""
    capsule = owner.__arrow_c_stream__()
    return _batches(struct_of(capsule, Stream), Array)


def move(theirs, mine):
    """As a consumer takes an array, or a schema, out of its place."""
    kind = type(theirs)
    ctypes.memmove(ctypes.addressof(mine), ctypes.addressof(theirs), ctypes.sizeof(kind))
    base = Array if kind is DeviceArray else kind
    ctypes.memset(ctypes.addressof(theirs) + base.release.offset, 0, 8)
    return mine


class Producer:
    """Offers batches of columns by `__arrow_c_stream__`, and the first by `__arrow_c_array__`.

    `columns`: (name, format, [batch, …]), a batch being (length, offset, null_count, [bytes or None…]).
    """

    column_names = ()  # as a pyarrow table has it

    def __init__(self, columns, dictionary=None):
        self.columns = columns
        self.dictionary = dictionary  # for every column: (format, batch)
        self.keep = []
        self.released = 0

    def _keep(self, value):
        self.keep.append(value)
        return value

    def _on_release(self, kind):
        def release(pointer):
            self.released += 1
            pointer[0].release = kind._fields_[[n for n, _ in kind._fields_].index("release")][1](0)

        return self._keep(CFUNCTYPE(None, POINTER(kind))(release))

    def _fill_schema(self, schema):
        count = len(self.columns)
        children = self._keep((POINTER(Schema) * max(count, 1))())
        for i, (name, format_, _) in enumerate(self.columns):
            child = self._keep(Schema(format=format_.encode(), name=name.encode(), flags=2))
            child.release = self._on_release(Schema)
            if self.dictionary:
                entries = self._keep(Schema(format=self.dictionary[0].encode(), name=b""))
                entries.release = self._on_release(Schema)
                child.dictionary = ctypes.pointer(entries)
            children[i] = ctypes.pointer(child)
        schema.format, schema.name, schema.n_children = b"+s", b"", count
        schema.children = ctypes.cast(children, POINTER(POINTER(Schema)))
        schema.release = self._on_release(Schema)

    def _make_array(self, batch):
        length, offset, null_count, buffers = batch
        pointers = self._keep((c_void_p * max(len(buffers), 1))())
        for i, data in enumerate(buffers):
            if data is not None:
                pointers[i] = ctypes.addressof(self._keep(ctypes.create_string_buffer(data, len(data) + 1)))
        array = self._keep(Array(length=length, offset=offset, null_count=null_count,
                                 n_buffers=len(buffers)))
        array.buffers = ctypes.cast(pointers, POINTER(c_void_p))
        array.release = self._on_release(Array)
        return array

    def _fill_array(self, array, which):
        count = len(self.columns)
        children = self._keep((POINTER(Array) * max(count, 1))())
        length = 0
        for i, (_, _, batches) in enumerate(self.columns):
            child = self._make_array(batches[which])
            if self.dictionary:
                entries = self.dictionary[1]
                child.dictionary = ctypes.pointer(
                    self._make_array(entries[which] if isinstance(entries, list) else entries))
            length = child.length
            children[i] = ctypes.pointer(child)
        array.length, array.null_count, array.offset, array.n_buffers = length, 0, 0, 1
        array.buffers = ctypes.cast(self._keep((c_void_p * 1)()), POINTER(c_void_p))
        array.n_children = count
        array.children = ctypes.cast(children, POINTER(POINTER(Array)))
        array.release = self._on_release(Array)

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = self._keep(Schema()), self._keep(Array())
        self._fill_schema(schema)
        self._fill_array(array, 0)
        return (_new(ctypes.addressof(schema), b"arrow_schema", None),
                _new(ctypes.addressof(array), b"arrow_array", None))


class StreamProducer(Producer):
    def __arrow_c_stream__(self, requested_schema=None):
        stream = self._keep(Stream())
        self.position = 0

        def get_schema(_, out):
            self._fill_schema(out[0])
            return 0

        def get_next(_, out):
            if self.position == len(self.columns[0][2]):
                ctypes.memset(out, 0, ctypes.sizeof(Array))
                return 0
            self._fill_array(out[0], self.position)
            self.position += 1
            return 0

        stream.get_schema = self._keep(CFUNCTYPE(c_int, POINTER(Stream), POINTER(Schema))(get_schema))
        stream.get_next = self._keep(CFUNCTYPE(c_int, POINTER(Stream), POINTER(Array))(get_next))
        stream.get_last_error = self._keep(CFUNCTYPE(c_char_p, POINTER(Stream))(lambda _: None))
        stream.release = self._on_release(Stream)
        return _new(ctypes.addressof(stream), b"arrow_array_stream", None)


class Map:
    """A list of structs of key and value, by the name of a map: an Arrow map, as pyarrow and others make one."""

    def __init__(self, held):
        self.held = held

    def __len__(self):
        return len(self.held)

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = self.held.__arrow_c_array__()
        struct_of(schema, Schema).format = b"+m"
        return schema, array


# ---- on devices ----


def read_device(owner):
    """Values by `__arrow_c_device_array__`, of memory that this process can read."""
    schema, array = owner.__arrow_c_device_array__()
    return values(struct_of(schema, Schema), struct_of(array, DeviceArray).array)


def read_device_stream(owner):
    """(device type, values, number of batches) by `__arrow_c_device_stream__`."""
    capsule = owner.__arrow_c_device_stream__()
    stream = DeviceStream.from_address(_get(capsule, b"arrow_device_array_stream"))
    return stream.device_type, *_batches(stream, DeviceArray)


class OnlyDevice:
    """Nothing but Arrow's device form of what another has; `table`: it has columns."""

    def __init__(self, owner, table=False):
        self.owner = owner
        if table:
            self.num_columns = len(owner.names)

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        return self.owner.__arrow_c_device_array__()


class DeviceStreamOf:
    """Offers what others have, of one schema, as the batches of `__arrow_c_device_stream__`."""

    def __init__(self, first, *others, device_type=2, dtype=None):
        self.owners = (first, *others)
        self.device_type = device_type
        self.keep = []
        if dtype:  # it is a column
            self.dtype = dtype

    def __arrow_c_device_stream__(self, requested_schema=None, **keywords):
        stream, waiting = DeviceStream(device_type=self.device_type), list(self.owners)

        def get_schema(_, out):
            capsule = self.owners[0].__arrow_c_schema__()
            move(struct_of(capsule, Schema), out[0])
            return 0

        def get_next(_, out):
            if not waiting:
                ctypes.memset(out, 0, ctypes.sizeof(DeviceArray))
                return 0
            _, capsule = waiting.pop(0).__arrow_c_device_array__()
            move(struct_of(capsule, DeviceArray), out[0])
            return 0

        types = {name: kind for name, kind in DeviceStream._fields_}
        stream.get_schema = types["get_schema"](get_schema)
        stream.get_next = types["get_next"](get_next)
        stream.get_last_error = types["get_last_error"](lambda _: None)
        stream.release = types["release"](lambda pointer: None)
        self.keep.append((stream, get_schema, get_next))
        return _new(ctypes.addressof(stream), b"arrow_device_array_stream", None)


class DeviceColumn:
    """A column over device memory as pylibcudf has it: bases, and an offset and a length.

    `buffers`: addresses, or None, in Arrow's order; `children` are DeviceColumns.
    """

    def __init__(self, format_, length, buffers, offset=0, null_count=0, children=(), device=0, name=""):
        self.format, self.length, self.buffers, self.offset = format_, length, buffers, offset
        self.null_count, self.children, self.device, self.name = null_count, children, device, name
        self.keep = []

    def _keep(self, value):
        self.keep.append(value)
        return value

    def _schema(self):
        schema = self._keep(Schema(format=self.format.encode(), name=self.name.encode(), flags=2))
        children = self._keep((POINTER(Schema) * max(len(self.children), 1))())
        for i, child in enumerate(self.children):
            children[i] = ctypes.pointer(child._schema())
        schema.n_children, schema.children = len(self.children), ctypes.cast(children, POINTER(POINTER(Schema)))
        schema.release = self._keep(CFUNCTYPE(None, POINTER(Schema))(lambda pointer: None))
        return schema

    def _array(self):
        pointers = self._keep((c_void_p * max(len(self.buffers), 1))(*self.buffers))
        array = self._keep(Array(length=self.length, null_count=self.null_count, offset=self.offset,
                                 n_buffers=len(self.buffers)))
        array.buffers = ctypes.cast(pointers, POINTER(c_void_p))
        children = self._keep((POINTER(Array) * max(len(self.children), 1))())
        for i, child in enumerate(self.children):
            children[i] = ctypes.pointer(child._array())
        array.n_children, array.children = len(self.children), ctypes.cast(children, POINTER(POINTER(Array)))
        array.release = self._keep(CFUNCTYPE(None, POINTER(Array))(lambda pointer: None))
        return array

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        device = self._keep(DeviceArray(array=self._array(), device_id=self.device, device_type=2))
        return (_new(ctypes.addressof(self._schema()), b"arrow_schema", None),
                _new(ctypes.addressof(device), b"arrow_device_array", None))
