"""Memory of objects: Buffers, bitmaps of nulls, DLPack."""

from __future__ import annotations

import operator
from typing import Any, Dict, Optional, Tuple

from . import _core, _floats, _values
from ._layout import CPU, DATA, GPUS, KINDS, OFFSETS, called, index_of

NO_COPY = "no copy is made on a GPU: take the memory with copy=None, and copy it with your own library"


def dlpack(
    view: Any, owner: Any, stream: Optional[int], max_version: Optional[Tuple[int, int]],
    dl_device: Optional[Tuple[int, int]], copy: Optional[bool],
) -> Any:
    """`__dlpack__` of a Buffer, on behalf of `owner` (None: nothing to wait for)."""
    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    device = view.device
    if dl_device is not None and tuple(dl_device) != device:
        if tuple(dl_device) != (CPU, 0) or copy is False:
            raise BufferError(f"the memory is on DLPack device {device}, not {tuple(dl_device)}")
        copy = True
    if device[0] == CPU:
        if stream is not None and not copy:
            raise BufferError("the memory is on the host, where there are no streams: stream must be None")
        if copy:
            return _core.from_memory(bytearray(view), view.dtype, view.shape)._dlpack(versioned, True)
        return view._dlpack(versioned, False)
    if copy:
        if dl_device is None or tuple(dl_device) == device:
            raise BufferError(NO_COPY)
        host = bytearray(view.nbytes)
        address, count = _core.address(host)
        owner._read(DATA, 0, address, count, 0)
        return _core.from_memory(host, view.dtype, view.shape)._dlpack(versioned, True)
    if stream == 0:
        raise BufferError("stream 0 is ambiguous: say 1 (legacy) or 2 (per thread)")
    if owner is not None and stream != -1:
        owner._wait_ready(1 if stream is None else operator.index(stream))
    return view._dlpack(versioned, False)


def cuda_interface(view: Any) -> Dict[str, Any]:
    if view.device[0] not in GPUS:
        raise AttributeError("__cuda_array_interface__: the memory is on the host")
    if not view.typestr:
        raise AttributeError(
            f"__cuda_array_interface__ has no name for {view.dtype}: use to_torch(), __dlpack__(), or "
            "to_cupy(), which has floats of 8 bits and fewer as uint8"
        )
    return {
        "shape": view.shape,
        "typestr": view.typestr,
        "data": (view.pointer if view.nbytes else 0, view.readonly),
        "strides": None if view.contiguous else view.strides,
        "stream": None,
        "version": 3,
    }


class Exchange:
    """Memory as other libraries take it, of whatever has `_dtype`, `_view()`, `_wait_ready()` and `_read()`."""

    __slots__ = ()

    def _no_nulls(self, what: str) -> None:
        """BufferError: there are nulls, for which an interface has no place."""

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        held: Any = self
        try:
            interface = cuda_interface(held._view())
        except BufferError as error:
            raise AttributeError(f"__cuda_array_interface__: {error}") from None
        held._wait_ready(0)
        return interface

    def __dlpack__(
        self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None,
    ) -> Any:
        """A DLPack capsule; marked read-only if the consumer asks for a version with that mark.

        BufferError: there are nulls, or the elements are strings or of another type that DLPack lacks.
        """
        held: Any = self
        self._no_nulls("DLPack")
        return dlpack(held._view(), held, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> Tuple[int, int]:
        held: Any = self
        device: Tuple[int, int] = held._view().device
        return device

    def to_torch(self) -> Any:
        """Return a PyTorch tensor over the same memory. Do not write to a published object: it is a fault."""
        import torch

        held: Any = self
        if held._dtype not in _floats.SMALL:
            return torch.from_dlpack(held)
        self._no_nulls("PyTorch")
        return torch.from_dlpack(AsBytes(held)).view(_floats.torch_dtype(held._dtype))


class AsBytes(Exchange):
    """An object's items of one byte as uint8, for libraries that do not know its dtype."""

    def __init__(self, held: Any):
        view = held._view()._as_uint8()
        self._view, self._wait_ready, self._read = lambda: view, held._wait_ready, held._read


class Buffer(_core.View):
    """Memory with a shape and an element type, without nulls.

    It offers the buffer protocol and NumPy on the host, DLPack and `__cuda_array_interface__`. A Buffer of an object
    holds the object's lease.
    """

    __slots__ = ("__weakref__",)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return cuda_interface(self)

    def __dlpack__(
        self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None,
    ) -> Any:
        if copy and self.device[0] != CPU:
            raise BufferError(NO_COPY)
        return dlpack(self, None, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.device

    def to_numpy(self) -> Any:
        """Return a NumPy array over the memory, without a copy. Host only."""
        return _values.buffer_to_numpy(self)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        return _values.as_asked(self.to_numpy(), dtype, copy, True)

    def __getitem__(self, key: Any) -> Any:
        """An element or a slice of to_numpy(). Host only."""
        return self.to_numpy()[key]

    def tobytes(self) -> bytes:
        """Return a copy of the memory. Host only."""
        return bytes(self)

    def __repr__(self) -> str:
        where = "host" if self.device[0] == CPU else f"{KINDS[self.device[0]]}:{self.device[1]}"
        return f"<gpubufd.Buffer {self.dtype} {self.shape} on {where} at {self.pointer:#x}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Buffer cannot be pickled: send the object's name, and open it there")


class Validity:
    """The nulls as a bitmap in Arrow's format: least significant bit first, 1 = valid.

    `bits` is the whole bitmap as a Buffer of uint8; element i has bit `offset + i`.
    """

    __slots__ = ("bits", "offset", "length", "_shape")

    def __init__(self, bits: Buffer, offset: int, length: int, shape: Tuple[int, ...]):
        self.bits = bits
        self.offset = offset
        self.length = length
        self._shape = shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> bool:
        bit = self.offset + index_of(i, self.length)
        bits: Any = self.bits
        return bool(memoryview(bits)[bit >> 3] >> (bit & 7) & 1)

    def to_numpy(self) -> Any:
        """Return a new array of bool, True where the element is valid. Host only."""
        return _values.bits_to_numpy(self.bits, self.offset, self.length).reshape(self._shape)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        return _values.as_asked(self.to_numpy(), dtype, copy, False)

    def __repr__(self) -> str:
        return f"<gpubufd.Validity of {self.length} elements, from bit {self.offset}>"


class Buffers:
    """The memory of an Array, a Column or Bytes as Arrow lays it out, without a copy."""

    __slots__ = ("_held",)

    def __init__(self, held: Any):
        self._held = held

    @property
    def values(self) -> Buffer:
        """The elements; the value under a null is undefined.

        Of strings: all characters. Of booleans: all bits of the column, as bytes. BufferError: the column is nested,
        and its memory is in its children.
        """
        self._held._check_alive()
        try:
            return self._held._view()
        except BufferError:  # strings, bits, nested columns
            found = self._held._buffer(DATA)
            if found is None:
                raise
            return found

    @property
    def validity(self) -> Optional[Validity]:
        """The bitmap of nulls; None if there is no null."""
        return self._held._validity()

    @property
    def offsets(self) -> Optional[Buffer]:
        """The offsets of strings and lists: bytes of int32, or of int64 for dtypes that begin with "large"."""
        return self._held._buffer(OFFSETS)

    @property
    def offset(self) -> int:
        """The position of the first element in `offsets`, and in bits."""
        return self._held._offset

    def __repr__(self) -> str:
        return f"<gpubufd.Buffers of {called(self._held)}>"


_core.set_view_class(Buffer)
