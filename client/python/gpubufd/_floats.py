"""Floats that NumPy lacks: bfloat16, and those of 8, 6 and 4 bits. The package ml_dtypes adds them to NumPy.

Floats of 6 and 4 bits are packed: views show their bytes. In ml_dtypes each element fills a byte.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, List, Optional, Sequence, Tuple

from . import _core

# Bits of the exponent and of the mantissa, the exponent's bias, and which codes are no numbers: "ieee": as in IEEE
# 754; "largest": the largest alone; "zero": that of the negative zero; "": none.
FORMATS = {
    "float8_e3m4": (3, 4, 3, "ieee"), "float8_e4m3": (4, 3, 7, "ieee"), "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "largest"), "float8_e4m3b11fnuz": (4, 3, 11, "zero"),
    "float8_e4m3fnuz": (4, 3, 8, "zero"), "float8_e5m2fnuz": (5, 2, 16, "zero"),
    "float6_e2m3fn": (2, 3, 1, ""), "float6_e3m2fn": (3, 2, 3, ""), "float4_e2m1fn": (2, 1, 1, ""),
}
SMALL = frozenset(FORMATS) | {"float8_e8m0fnu"}
PACKED = {name: bits for name, bits, *_ in _core.dtypes() if name in SMALL and bits < 8}  # bits of an element
FOREIGN = SMALL | {"bfloat16"}


def name_of(dtype: Any) -> str:
    """The protocol's name of another library's dtype, such as torch.float4_e2m1fn_x2; "": none of FOREIGN."""
    name = str(dtype).rpartition(".")[2].partition("_x2")[0]
    return name if name in FOREIGN else ""


def elements(dtype: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """A view's shape, counted in elements."""
    bits = PACKED.get(dtype)
    return shape[:-1] + (shape[-1] * 8 // bits,) if bits else shape


def items(dtype: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """A view's shape for one counted in elements: the inverse of elements()."""
    bits = PACKED.get(dtype)
    return shape[:-1] + (shape[-1] * bits // 8,) if bits else shape


def group(dtype: str) -> int:
    """The smallest number of elements that fills whole bytes. Slices begin and end at multiples of it."""
    return {4: 2, 6: 4}.get(PACKED.get(dtype, 8), 1)


# ---- Python's floats, without any package ----


def _value(code: int, dtype: str) -> float:
    exponent_bits, mantissa_bits, bias, specials = FORMATS[dtype]
    sign = 1 << (exponent_bits + mantissa_bits)
    exponent, mantissa = divmod(code & (sign - 1), 1 << mantissa_bits)
    at_top = exponent == (1 << exponent_bits) - 1
    if specials == "ieee" and at_top:
        value = math.nan if mantissa else math.inf
    elif specials == "largest" and code & (sign - 1) == sign - 1 or specials == "zero" and code == sign:
        value = math.nan
    elif exponent:
        value = math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
    else:
        value = math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return -value if code & sign else value


@functools.lru_cache(maxsize=None)
def values(dtype: str) -> Tuple[float, ...]:
    """The value of each code of one of SMALL."""
    if dtype == "float8_e8m0fnu":  # neither sign nor mantissa
        return tuple(math.ldexp(1, code - 127) for code in range(255)) + (math.nan,)
    return tuple(_value(code, dtype) for code in range(1 << PACKED.get(dtype, 8)))


def decode(data: bytes, dtype: str) -> List[float]:
    """The elements of bytes in C order."""
    if dtype == "bfloat16":  # the upper half of a float32
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    table, bits = values(dtype), PACKED.get(dtype)
    if not bits:
        return [table[code] for code in data]
    step = group(dtype) * bits // 8  # bytes
    shifts, mask = range(0, 8 * step, bits), (1 << bits) - 1
    numbers = (int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step))
    return [table[number >> shift & mask] for number in numbers for shift in shifts]


def element(view: Any, place: Tuple[int, ...]) -> float:
    """One element of a view, by its number along each axis."""
    memory: Any = memoryview(view)
    dtype = view.dtype
    if dtype not in PACKED:
        return decode(memory[place].to_bytes(view.itemsize, "little"), dtype)[0]
    together = group(dtype)
    step = together * PACKED[dtype] // 8
    start = place[-1] // together * step
    return decode(bytes(memory[place[:-1] + (start + k,)] for k in range(step)), dtype)[place[-1] % together]


def nested(flat: List[float], shape: Sequence[int]) -> Any:
    """Nested lists of an array of that shape; without axes the element itself."""
    if len(shape) < 2:
        return flat if shape else flat[0]
    row = len(flat) // shape[0] if shape[0] else 0
    return [nested(flat[i * row : (i + 1) * row], shape[1:]) for i in range(shape[0])]


# ---- NumPy ----


def numpy_dtype(dtype: str) -> Any:
    """NumPy's dtype of that name. TypeError: ml_dtypes is not installed, or lacks it."""
    import numpy

    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, dtype))
    except (ImportError, AttributeError):
        raise TypeError(
            f"NumPy has no {dtype}: install ml_dtypes, or use to_torch(), tolist(), or memoryview() for its bits"
        ) from None


def unpack(packed: Any, bits: int) -> Any:
    """Elements of `bits` bits as bytes of their own; both arrays are of uint8."""
    import numpy

    single = numpy.unpackbits(packed.reshape(-1), bitorder="little").reshape(-1, bits)
    shape = packed.shape[:-1] + (packed.shape[-1] * 8 // bits,)
    return numpy.packbits(single, axis=-1, bitorder="little").reshape(shape)


def pack(wide: Any, bits: int) -> Any:
    """The inverse of unpack(). The last axis must fill whole bytes."""
    import numpy

    if not wide.ndim or wide.shape[-1] * bits % 8:
        raise ValueError(f"packed elements of {bits} bits fill whole bytes along the last axis")
    single = numpy.unpackbits(wide.reshape(-1, 1), axis=-1, bitorder="little")[:, :bits]
    shape = wide.shape[:-1] + (wide.shape[-1] * bits // 8,)
    return numpy.packbits(single.reshape(-1), bitorder="little").reshape(shape)


def to_numpy(items: Any, dtype: str) -> Any:
    """An array of `dtype` over `items`, a view's memory as NumPy sees it; for packed elements a new array."""
    import numpy

    found = numpy_dtype(dtype)
    if dtype in PACKED:
        return unpack(items.view(numpy.uint8), PACKED[dtype]).view(found)
    return items.view(found)


def from_numpy(array: Any, dtype: str) -> Any:
    """An ml_dtypes array as the protocol stores it: a packed dtype as new bytes in C order, others unchanged."""
    import numpy

    if dtype not in PACKED:
        return array
    return pack(numpy.ascontiguousarray(array).view(numpy.uint8), PACKED[dtype])


# ---- PyTorch ----


def torch_bytes(value: Any) -> Optional[Tuple[Any, str]]:
    """(tensor of uint8 over the same memory, dtype) of a PyTorch tensor of SMALL; None: it is any other value.

    As uint8, since only recent versions of PyTorch export these dtypes by DLPack, and none by
    `__cuda_array_interface__`.
    """
    if not type(value).__module__.startswith("torch") or not hasattr(value, "dtype"):
        return None
    name = name_of(value.dtype)
    if name not in SMALL:
        return None
    import torch

    return value.detach().view(torch.uint8), name


def torch_dtype(dtype: str) -> Any:
    import torch

    found = getattr(torch, dtype + ("_x2" if dtype == "float4_e2m1fn" else ""), None)
    if found is None:
        raise TypeError(f"this PyTorch has no {dtype}")
    return found
