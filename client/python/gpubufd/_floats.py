"""Floats that NumPy lacks: bfloat16, and those of 8, 6 and 4 bits. NumPy has them through ml_dtypes.

Views show packed ones, of 6 and 4 bits, as the bytes that they fill; ml_dtypes has them in a byte each.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

PACKED = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}  # bits of an element
SMALL = frozenset(PACKED) | {
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
}
FOREIGN = SMALL | {"bfloat16"}


def name_of(dtype: Any) -> str:
    """The protocol's name of another library's dtype, such as torch.float4_e2m1fn_x2; "": not of these."""
    name = str(dtype).rpartition(".")[2].partition("_x2")[0]
    return name if name in FOREIGN else ""


def elements(dtype: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """A view's shape, counted in elements."""
    bits = PACKED.get(dtype)
    return shape[:-1] + (shape[-1] * 8 // bits,) if bits else shape


def numpy_dtype(dtype: str) -> Any:
    """TypeError: there is no ml_dtypes, or none that has it."""
    import numpy

    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, dtype))
    except (ImportError, AttributeError):
        raise TypeError(f"NumPy has no {dtype}: install ml_dtypes, or use to_torch()") from None


def unpack(packed: Any, bits: int) -> Any:
    """Elements of `bits` bits as bytes of their own; both arrays are of uint8."""
    import numpy

    single = numpy.unpackbits(packed.reshape(-1), bitorder="little").reshape(-1, bits)
    shape = packed.shape[:-1] + (packed.shape[-1] * 8 // bits,)
    return numpy.packbits(single, axis=-1, bitorder="little").reshape(shape)


def pack(wide: Any, bits: int) -> Any:
    """The way back; the last axis must fill whole bytes."""
    import numpy

    if not wide.ndim or wide.shape[-1] * bits % 8:
        raise ValueError(f"packed elements of {bits} bits fill whole bytes along the last axis")
    single = numpy.unpackbits(wide.reshape(-1, 1), axis=-1, bitorder="little")[:, :bits]
    shape = wide.shape[:-1] + (wide.shape[-1] * bits // 8,)
    return numpy.packbits(single.reshape(-1), bitorder="little").reshape(shape)


def to_numpy(items: Any, dtype: str) -> Any:
    """An array over `items`, what a view has as NumPy sees it; of packed elements a new one."""
    import numpy

    found = numpy_dtype(dtype)
    if dtype in PACKED:
        return unpack(items.view(numpy.uint8), PACKED[dtype]).view(found)
    return items.view(found)


def from_numpy(array: Any, dtype: str) -> Any:
    """The bytes of an array of ml_dtypes', as the protocol has them; in C order if they are packed."""
    import numpy

    if dtype not in PACKED:
        return array
    return pack(numpy.ascontiguousarray(array).view(numpy.uint8), PACKED[dtype])


def torch_bytes(value: Any) -> Optional[Tuple[Any, str]]:
    """(tensor of uint8 over the same memory, dtype) of a tensor of these; None of any other value.

    By bytes, since only late versions of PyTorch have them in DLPack, and none in
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
