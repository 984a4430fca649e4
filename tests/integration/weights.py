"""Safetensors files, made and read by the standard library alone."""

import json
import struct

# Each dtype of safetensors 0.8, with the bits of an element.
DTYPES = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F16": 16,
    "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}


def framed(text, data=b""):
    """A file with this manifest, whatever it says."""
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text + data


def size_of(dtype, shape):
    bits = DTYPES[dtype]
    for extent in shape:
        bits *= extent
    return bits // 8


def make(tensors, metadata=None, pad=0):
    """A file of {name: (dtype, shape, data)}, in their order; data None: bytes that tell where they are."""
    header = {} if metadata is None else {"__metadata__": metadata}
    parts, at = [], 0
    for number, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        size = size_of(dtype, shape)
        if data is None:
            data = bytes((number * 31 + i) % 2 if dtype == "BOOL" else (number * 31 + i) % 251 for i in range(size))
        assert len(data) == size, name
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        parts.append(data)
        at += size
    return framed(json.dumps(header, ensure_ascii=False) + " " * pad, b"".join(parts))


def read(content):
    """({name: (dtype, shape, data)}, metadata) of a file; checks that its data have neither holes nor overlaps."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length :]
    found, end = {}, 0
    for name, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = one["data_offsets"]
        assert start == end and stop - start == size_of(one["dtype"], one["shape"]), name
        found[name] = (one["dtype"], tuple(one["shape"]), data[start:stop])
        end = stop
    assert end == len(data)
    return found, metadata


EVERY = {
    **{f"t.{dtype}": (dtype, (2, 8), None) for dtype in sorted(DTYPES, key=DTYPES.get, reverse=True)},
    "empty": ("F32", (0, 7), b""), "scalar": ("F32", (), b"\0\0\x80?"), "": ("U8", (1,), b"x"),
    "ключ/a b\n\"'\\": ("U8", (3,), b"abc"), "n" * 4096: ("U8", (2,), b"zz"), "..": ("U8", (0,), b""),
}


def lies():
    """(what, file): files that are none, each in another way."""
    def one(**more):
        tensor = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], **more}
        return framed(json.dumps({"a": {k: v for k, v in tensor.items() if v is not None}}), b"abcd")

    def two(first, second, data=8):
        tensor = {"dtype": "U8"}
        return framed(json.dumps({
            "a": {**tensor, "shape": [first[1] - first[0]], "data_offsets": first},
            "b": {**tensor, "shape": [second[1] - second[0]], "data_offsets": second}}), b"x" * data)

    good = one()
    yield "nothing", b""
    yield "seven bytes", good[:7]
    yield "no manifest", struct.pack("<Q", 0)
    yield "a length past the end", struct.pack("<Q", 2**63) + good[8:]
    yield "a length by one too large", struct.pack("<Q", len(good) - 7) + good[8:]
    yield "no JSON", framed("hello")
    yield "half of it", framed(good[8:30])
    yield "no object", framed("[]")
    yield "space before it", framed(" {}")
    yield "more behind it", framed("{}{}")
    yield "no UTF-8", framed(b'{"\xff":1}')
    yield "a number for a tensor", framed('{"a":1}')
    yield "deep", framed('{"a":' + "[" * 100000)
    yield "cut data", good[:-1]
    yield "more data", good + b"x"
    yield "a hole", two([0, 4], [5, 8])
    yield "a hole at the start", two([1, 4], [4, 8])
    yield "an overlap", two([0, 5], [4, 8])
    yield "the same place", two([0, 8], [0, 8])
    yield "a name twice", framed('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                                 '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
    yield "another size", one(shape=[5])
    yield "a huge shape", one(shape=[2**40, 2**40])
    yield "a negative extent", one(shape=[-4])
    yield "half an extent", one(shape=[4.0])
    yield "33 axes", one(shape=[1] * 32 + [4])
    yield "offsets the wrong way", one(data_offsets=[4, 0])
    yield "one offset", one(data_offsets=[4])
    yield "offsets past the end", one(shape=[5], data_offsets=[0, 5])
    yield "offsets that overflow", one(data_offsets=[2**64 - 4, 2**64])
    yield "no dtype", one(dtype=None)
    yield "no shape", one(shape=None)
    yield "an unknown dtype", one(dtype="F7")
    yield "half a byte", framed('{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}', b"x")
    yield "metadata of numbers", framed('{"__metadata__":{"a":1}}')
    yield "metadata that are a list", framed('{"__metadata__":[]}')
