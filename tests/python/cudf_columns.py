"""Columns as libcudf lays them out, made and read without libcudf: in GPU memory that this process can read.

`plc` is pylibcudf, the real one or the stand-in: no GPU is asked, and kernels() has what a GPU would be asked for.
A kind of column is a key of FIXED, "bool", "str", "large_str", "decimal32(7,2)" and the like, ("category", kind),
("dictionary", kind), ("list", kind), or ("struct", {name: kind}). Values are Python's; times and decimals are whole numbers.
"""

import ctypes
import struct
import types

import arrowc
from gpubufd import cuda

FIXED = {  # kind: (pylibcudf's type, format of struct, Arrow's format)
    "int8": ("INT8", "b", "c"), "int16": ("INT16", "h", "s"), "int32": ("INT32", "i", "i"), "int64": ("INT64", "q", "l"),
    "uint8": ("UINT8", "B", "C"), "uint16": ("UINT16", "H", "S"), "uint32": ("UINT32", "I", "I"),
    "uint64": ("UINT64", "Q", "L"), "float32": ("FLOAT32", "f", "f"), "float64": ("FLOAT64", "d", "g"),
    "bool": ("BOOL8", "?", "b"), "date32": ("TIMESTAMP_DAYS", "i", "tdD"),
    **{f"{kind}[{unit}]": (f"{kind.upper()}_{name}", "q", f"{arrow}{unit[0]}{end}")
       for kind, arrow, end in (("timestamp", "ts", ":"), ("duration", "tD", ""))
       for unit, name in {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}.items()},
}
DECIMALS = {"decimal32": ("DECIMAL32", 4), "decimal64": ("DECIMAL64", 8), "decimal128": ("DECIMAL128", 16)}
WIDTHS = {type_: struct.calcsize(form) for type_, form, _ in FIXED.values()}
WIDTHS.update(DECIMALS.values())
FORMS = {type_: form for type_, form, _ in FIXED.values()}


class Span:
    """Memory on a GPU with these bytes."""

    def __init__(self, data):
        self.array = cuda.empty(max(len(data), 1), "u1")
        self.ptr, self.size = self.array.handle, len(data)
        if data:
            source = (ctypes.c_ubyte * len(data)).from_buffer_copy(data)
            cuda.copy(self.array[: len(data)], memoryview(source))

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.ptr, False), "shape": (self.size,), "typestr": "|u1", "strides": None, "version": 3}


def bits(flags):
    data = bytearray((len(flags) + 511) // 512 * 64)  # as libcudf pads a bitmap
    for i, flag in enumerate(flags):
        data[i // 8] |= bool(flag) << i % 8
    return bytes(data)


def bit_list(address, start, count):
    data = arrowc.read(address, (start + count + 7) // 8) if count else b""
    return [data[i // 8] >> i % 8 & 1 for i in range(start, start + count)]


# ---- at random ----


PLAIN = [*FIXED, "str", "large_str", "decimal32(7,2)", "decimal64(12,3)", "decimal128(30,4)", ("dictionary", "str")]
KINDS = [*PLAIN, ("category", "str"), ("category", "int64"), ("list", "int8"), ("list", "str"), ("struct", {"a": "bool", "b": "str"})]


def random_kind(rng, depth=2):
    nested = [("list", None), ("struct", None)] if depth else []
    kind = rng.choice(PLAIN + 12 * nested)
    if kind == ("list", None):
        return "list", random_kind(rng, depth - 1)
    if kind == ("struct", None):
        return "struct", {name: random_kind(rng, depth - 1) for name in "abc"[: rng.randint(1, 3)]}
    return kind


def random_values(rng, kind, rows, nulls):
    """`nulls`: how many of them are None, 0 to 1; also below."""
    return [None if rng.random() < nulls else _random(rng, kind, nulls) for _ in range(rows)]


def _random(rng, kind, nulls):
    if kind[0] == "list":
        return random_values(rng, kind[1], rng.choice((0, 0, 1, 2, 5)), nulls)
    if kind[0] == "struct":
        return {name: random_values(rng, below, 1, nulls)[0] for name, below in kind[1].items()}
    if kind[0] in ("category", "dictionary"):
        return rng.choice(["a", "äöü", "", "longer text"]) if kind[1] == "str" else rng.randrange(5)
    if kind in ("str", "large_str"):
        return rng.choice(["", "a", "äöü", "some text", "x" * 20])
    if kind.startswith("float"):
        return rng.randrange(-100, 100) / 4
    return rng.random() < 0.5 if kind == "bool" else rng.randrange(100)


def wider(kind):
    """The kind that a column has when it comes back: decimals of 128 bits."""
    if isinstance(kind, tuple):
        return kind[0], {name: wider(one) for name, one in kind[1].items()} if kind[0] == "struct" else wider(kind[1])
    return "decimal128" + kind[kind.index("("):] if kind.startswith("decimal") else kind


# ---- making ----


def make(plc, kind, values):
    """A whole column, with a bitmap if a value is None."""
    size, nulls = len(values), sum(value is None for value in values)
    mask = Span(bits([value is not None for value in values])) if nulls else None

    def column(type_, data=None, children=(), scale=0, masked=True):
        return plc.Column(plc.DataType(plc.TypeId[type_], scale), size, data, mask if masked else None, nulls if masked else 0, 0,
                          list(children))

    def ends(lengths, type_="INT32"):
        found, at = [0], 0  # behind a number that is not of them, in every second column
        lead = size % 2
        for length in lengths:
            at += length
            found.append(at)
        data = Span(struct.pack(f"<{lead + len(found)}{FORMS[type_]}", *[-1] * lead, *found))
        return plc.Column(plc.DataType(plc.TypeId[type_], 0), len(found), data, None, 0, lead, [])

    if isinstance(kind, tuple) and kind[0] in ("category", "dictionary"):
        there = list(dict.fromkeys(value for value in values if value is not None)) or [0 if kind[1] == "int64" else ""]
        codes = [None if value is None else there.index(value) for value in values]
        if kind[0] == "category":  # the codes; the values are in its dtype
            made = make(plc, "uint8", codes)
            made_values = make(plc, kind[1], there)
            return Category(made, made_values)
        indices = make(plc, "int32", [code or 0 for code in codes])
        return column("DICTIONARY32", None, [indices, make(plc, kind[1], there)])
    if isinstance(kind, tuple) and kind[0] == "list":
        items = [item for value in values for item in value or ()]
        return column("LIST", None, [ends([len(value or ()) for value in values]), make(plc, kind[1], items)])
    if isinstance(kind, tuple):
        return column("STRUCT", None, [
            make(plc, below, [None if value is None else value[name] for value in values]) for name, below in kind[1].items()])
    if kind in ("str", "large_str"):
        texts = [(value or "").encode() for value in values]
        offsets = ends(map(len, texts), "INT64" if kind == "large_str" else "INT32")
        return column("STRING", Span(b"".join(texts)), [offsets])
    if kind.startswith("decimal"):
        type_, width = DECIMALS[kind.partition("(")[0]]
        data = b"".join((value or 0).to_bytes(width, "little", signed=True) for value in values)
        return column(type_, Span(data), scale=-int(kind[:-1].partition(",")[2]))
    type_, form, _ = FIXED[kind]
    return column(type_, Span(struct.pack(f"<{size}{form}", *(0 if value is None else value for value in values))))


class Category:
    """Codes, and the values that a cuDF dtype has for them."""

    def __init__(self, codes, values):
        self.codes, self.values = codes, values


def part(plc, column, start, stop):
    """Rows of a column as cudf::slice() has them: another offset and length over the same memory, children as they are."""
    if isinstance(column, Category):
        return Category(part(plc, column.codes, start, stop), column.values)
    at, size = column.offset() + start, stop - start
    nulls = size - sum(bit_list(column.null_mask().ptr, at, size)) if column.null_count() else 0
    return plc.Column(column.type(), size, column.data(), column.null_mask(), nulls, at, column.children())


class Series:
    """A stand-in for cuDF's Series and Index: a column, and a dtype of that kind."""

    def __init__(self, column, kind):
        self.column, self.dtype = getattr(column, "codes", column), _dtype(kind, column)

    def to_pylibcudf(self):
        return self.column, {}


def _dtype(kind, column=None):
    head, below = kind if isinstance(kind, tuple) else (kind, None)
    told = types.SimpleNamespace()
    if head == "category":
        told.categories, told.ordered = Series(column.values, below), False
    elif head == "struct":
        told.fields = {name: _dtype(one) for name, one in below.items()}
    elif head == "list":
        told.element_type = _dtype(below)
    elif head.startswith("decimal"):
        told.precision = int(head.partition("(")[2].partition(",")[0])
    return told


# ---- reading ----


def values_of(column, names=()):
    """The values of a column as libcudf reads them. `names`: of the fields of all structs, in the order met."""
    return _values(column, column.offset(), column.size(), iter(names))


def _values(column, start, size, names):
    """`start` counts from the beginning of its buffers."""
    type_ = column.type().id().name
    data, mask = column.data(), column.null_mask()
    valid = bit_list(mask.ptr, start, size) if mask is not None and size else [1] * size
    if start == column.offset() and size == column.size():
        assert column.null_count() == size - sum(valid), (type_, column.null_count(), valid)
        assert mask is not None or not column.null_count()
    if type_ == "STRUCT":
        found = [(next(names, str(i)), _values(child, child.offset() + start, size, names))
                 for i, child in enumerate(column.children())]
        rows = [{name: below[i] for name, below in found} for i in range(size)]
    elif type_ in ("LIST", "STRING"):
        ends = _values(column.child(0), column.child(0).offset() + start, size + 1, names) if size else [0]
        if type_ == "STRING":
            text = arrowc.read(data.ptr, ends[-1]) if ends[-1] else b""
            rows = [text[a:b].decode() for a, b in zip(ends, ends[1:])]
        else:
            child = column.child(1)
            # lists_column_view::get_sliced_child(): the whole child is its items, if neither offset nor length says else.
            if size and column.offset() == 0 and column.size() == column.child(0).size() - 1:
                assert child.size() == ends[-1] or start or size < column.size(), "the last offset is not the number of items"
            items = _values(child, child.offset() + ends[0], ends[-1] - ends[0], names)
            rows = [items[a - ends[0] : b - ends[0]] for a, b in zip(ends, ends[1:])]
    elif type_ == "DICTIONARY32":
        codes, keys = _values(column.child(0), column.child(0).offset() + start, size, names), values_of(column.child(1))
        rows = [keys[code] for code in codes]
    else:
        width = WIDTHS[type_]
        raw = arrowc.read(data.ptr + start * width, size * width) if size else b""
        parts = [raw[i * width : (i + 1) * width] for i in range(size)]
        if type_ in FORMS:
            rows = [struct.unpack("<" + FORMS[type_], one)[0] for one in parts]
        else:
            rows = [int.from_bytes(one, "little", signed=True) for one in parts]
    return [row if ok else None for row, ok in zip(rows, valid)]


# ---- what a GPU computes ----


def kernels(plc):
    """Puts what gpubufd has pylibcudf compute into it, computed here."""

    def gather(table, codes, policy):
        assert not codes.null_count(), "a gather map has no nulls"
        (there,) = table.columns()
        values = values_of(there)
        kind = "large_str" if there.num_children() and there.child(0).type().id().name == "INT64" else "str"
        if there.type().id().name != "STRING":
            kind = next(name for name, (type_, _, _) in FIXED.items() if type_ == there.type().id().name)
        found = [values[code] if 0 <= code < len(values) else None for code in values_of(codes)]
        return plc.Table([make(plc, kind, found)])

    def bitmask_and(columns):
        valid = [all(row) for row in zip(*([value is not None for value in values_of(column)] for column in columns))]
        return Span(bits(valid)), valid.count(False)

    def fixed(type_, scale, values, nulls):
        form = FORMS.get(type_.name)
        data = struct.pack(f"<{len(values)}{form}", *values) if form else b"".join(
            value.to_bytes(16, "little", signed=True) for value in values)
        mask = Span(bits([not null for null in nulls])) if any(nulls) else None
        return plc.Column(plc.DataType(type_, scale), len(values), Span(data), mask, sum(nulls), 0, [])

    def plain(column):
        """(values, nulls), undefined values under nulls included"""
        bare = plc.Column(column.type(), column.size(), column.data(), None, 0, column.offset(), column.children())
        return values_of(bare), [value is None for value in values_of(column)]

    def bools_to_mask(column):
        values, nulls = plain(column)
        return Span(bits([value and not null for value, null in zip(values, nulls)])), 0

    def mask_to_bools(address, begin, end):
        return fixed(plc.TypeId.BOOL8, 0, list(map(bool, bit_list(address, begin, end - begin))), [False] * (end - begin))

    def copy_bitmask(column):
        return Span(bits(bit_list(column.null_mask().ptr, column.offset(), column.size())))

    def cast(column, to):
        values, nulls = plain(column)
        if column.type().id().name == "TIMESTAMP_DAYS":
            values = [value * 86400 for value in values]
        wanted = to.id().name
        if wanted in FORMS:
            limit = 1 << 8 * WIDTHS[wanted]
            values = [value % limit if wanted.startswith("U") else value for value in values]
        return fixed(to.id(), to.scale(), values, nulls)

    plc.transform.bools_to_mask, plc.transform.mask_to_bools = bools_to_mask, mask_to_bools
    plc.null_mask.copy_bitmask, plc.unary.cast = copy_bitmask, cast
    plc.copying.gather, plc.null_mask.bitmask_and = gather, bitmask_and
    plc.null_mask.null_count = lambda mask, start, stop: stop - start - sum(bit_list(mask.ptr, start, stop - start))
    plc.null_mask.bitmask_allocation_size_bytes = lambda count: (count + 511) // 512 * 64


# ---- capsules ----


def capsule_of(column, kind):
    """The capsule that libcudf's to_arrow_device() makes of a column, by its source, as an arrowc.DeviceColumn.

    Of a slice the data is where it begins, but bitmaps, offsets and children of structs are those of the whole column.
    """
    mask = None if column.null_mask() is None else column.null_mask().ptr
    told, type_ = {"null_count": column.null_count()}, column.type().id().name
    if type_ == "STRUCT":
        told["children"] = [capsule_of(child, below) for child, below in zip(column.children(), kind[1].values())]
        return arrowc.DeviceColumn("+s", column.size(), [mask], **told)
    if type_ == "LIST":
        told["children"] = [capsule_of(column.child(1), kind[1])]
        return arrowc.DeviceColumn("+l", column.size(), [mask, offsets_of(column)], **told)
    if type_ == "STRING":
        form = "U" if kind == "large_str" else "u"
        return arrowc.DeviceColumn(form, column.size(), [mask, offsets_of(column), column.data().ptr], **told)
    if kind == "bool":
        packed = Span(bits(values_of(plain_of(column))))
        made = arrowc.DeviceColumn("b", column.size(), [mask, packed.ptr], **told)
        made.keep.append(packed)
        return made
    at = column.data().ptr + column.offset() * WIDTHS[type_]
    return arrowc.DeviceColumn(FIXED[kind][2], column.size(), [mask, at], **told)


def offsets_of(column):
    offsets = column.child(0)
    return offsets.data().ptr + offsets.offset() * WIDTHS[offsets.type().id().name]


def plain_of(column):
    """A column without its bitmap."""
    return type(column)(column.type(), column.size(), column.data(), None, 0, column.offset(), column.children())
