"""`__cuda_array_interface__` of other libraries' arrays."""

from __future__ import annotations

import math
from typing import Any

from . import _core
from ._floats import PACKED, name_of
from ._layout import NUMPY_UNITS, at_column

CUDA_DTYPES = {
    numpy[1:]: name for name, _, _, numpy, _ in _core.dtypes() if numpy and numpy[2:].isdigit() and numpy[1] not in "Mm"
}


class CudaArray:
    """The members of a `__cuda_array_interface__`, checked. Shapes in elements, strides in bytes."""

    def __init__(self, value: Any, where: str = ""):
        self.keep = value
        try:
            interface = value.__cuda_array_interface__
            typestr: str = interface["typestr"]
            self.shape = tuple(int(extent) for extent in interface["shape"])
            self.pointer = int(interface["data"][0] or 0)
            self.stream = interface.get("stream")
            self.mask = interface.get("mask")
            strides = interface.get("strides")
            self.strides = None if strides is None else tuple(int(s) for s in strides)
            if self.strides is not None and len(self.strides) != len(self.shape):
                raise ValueError("as many strides as extents are needed")
        except Exception as error:
            raise TypeError(
                f"{at_column(where)}its __cuda_array_interface__ cannot be used: {error!r}"
            ) from None
        kind, rest = typestr[1:2], typestr[1:]
        if typestr[:1] == ">" and rest not in ("b1", "i1", "u1"):
            raise TypeError(f"{at_column(where)}big-endian elements ({typestr}) cannot be put")
        if kind in "Mm" and "[" in rest and rest[3:-1] in NUMPY_UNITS:
            self.dtype = f"{'timestamp' if kind == 'M' else 'duration'}[{rest[3:-1]}]"
            self.itemsize = 8
        elif rest in CUDA_DTYPES:
            self.dtype = CUDA_DTYPES[rest]
            self.itemsize = int(rest[1:])
        elif rest in ("V1", "V2") and name_of(getattr(value, "dtype", "")) not in ("", *PACKED):
            self.dtype = name_of(getattr(value, "dtype", ""))  # NumPy has no name for it
            self.itemsize = int(rest[1:])
        else:
            raise TypeError(f"{at_column(where)}elements of type {typestr!r} cannot be put")
        if self.stream == 0:
            raise ValueError(f"{at_column(where)}__cuda_array_interface__ gives stream 0, which is ambiguous")
        if self.strides is not None and self._is_c_order():
            self.strides = None

    def _is_c_order(self) -> bool:
        step = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides or ())):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.shape)
