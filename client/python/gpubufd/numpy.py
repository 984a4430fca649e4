"""Files of tensors for NumPy, with the safetensors package's own signatures, and shared by all processes.

    from gpubufd.numpy import load_file

    weights = load_file("model.safetensors")     # a dict of arrays, in the memory that everybody has

The first process that loads a file publishes it; the others map it, and copy nothing. The arrays are read-only:
`writable="copy"` makes private copies of them.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _weights
from ._bundle import Bundle
from ._client import Client
from ._files import FilePath

DTYPES = {
    "bool8": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float6_e2m3fn": "F6_E2M3",
    "float6_e3m2fn": "F6_E3M2", "float4_e2m1fn": "F4",
}

__all__ = ["load_file", "safe_open", "save_file"]


def _copies(bundle: Bundle, writable: Optional[str]) -> bool:
    return writable == "copy" or bundle.ordinal >= 0


def _check(writable: Optional[str]) -> None:
    if writable not in (None, "copy"):
        raise ValueError(f'writable is "copy" or None, not {writable!r}: what is shared cannot be written to')


def load_file(
    filename: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None,
    writable: Optional[str] = None, device: str = "host", **options: Any,
) -> Dict[str, Any]:
    """A safetensors file's tensors by name, as NumPy arrays; nothing is copied but by the first who loads it.

    `writable="copy"`: private copies, which may be changed. `device`: where to publish it; from a GPU each array
    is a copy. `name`, `client` and the other options: see open_bundle().
    """
    _check(writable)
    bundle = _weights.load(filename, client=client, name=name, device=device, **options)
    return bundle._arrays(_copies(bundle, writable))


def save_file(
    tensor_dict: Mapping[str, Any], filename: FilePath, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Writes arrays into a safetensors file; it takes the place of one that is there when all is written.

    NumPy arrays, and whatever else a client could put() as an array, on a GPU too. A Bundle without new metadata
    is written as it is, byte for byte. TypeError: with the tensor's name, it is of a dtype that there is none for.
    """
    _weights.save(tensor_dict, filename, metadata)


class Slice:
    """A tensor that is looked at before it is taken, or taken in parts: f.get_slice(name)[:, 10:20]."""

    def __init__(self, bundle: Bundle, name: str, writable: Optional[str]):
        self._bundle, self._name, self._writable = bundle, name, writable
        _, self._dtype, self._shape, *_ = bundle._entry(bundle._number(name))

    def get_shape(self) -> List[int]:
        """Its extents."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Its dtype, as safetensors spells it: "F32"."""
        return DTYPES[self._dtype]

    def __getitem__(self, key: Any) -> Any:
        part = self._bundle._numpy(self._name, _copies(self._bundle, None))[key]
        return part.copy() if self._writable else part


class safe_open:  # the name is that of the package's
    """A safetensors file, mapped as by load_file(), of which single tensors are taken:

        with safe_open("model.safetensors", framework="np") as f:
            for name in f.keys():
                tensor = f.get_tensor(name)

    What was taken stays after the end of the `with`.
    """

    def __init__(
        self, filename: FilePath, framework: str = "np", device: str = "host", *, client: Optional[Client] = None,
        name: Optional[str] = None, writable: Optional[str] = None, **options: Any,
    ):
        if framework not in ("np", "numpy"):
            raise ValueError(f'framework is "np", not {framework!r}')
        _check(writable)
        self._writable = writable
        self._bundle: Bundle = _weights.load(
            filename, client=client, name=name, device="host" if device == "cpu" else device, **options)

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bundle.release()

    def keys(self) -> List[str]:
        """The tensors' names, in order."""
        return sorted(self._bundle)

    def offset_keys(self) -> List[str]:
        """The same in the order of the file."""
        return [entry[0] for entry in sorted(self._bundle._entries(), key=lambda entry: entry[3:])]

    def metadata(self) -> Optional[Dict[str, str]]:
        """The file's metadata; None: it has none."""
        return self._bundle.metadata or None

    def get_tensor(self, name: str) -> Any:
        """A tensor as a NumPy array. KeyError."""
        return self._bundle._numpy(name, _copies(self._bundle, self._writable))

    def get_slice(self, name: str) -> Slice:
        """A tensor, to be taken in parts. KeyError."""
        if name not in self._bundle:
            raise KeyError(name)
        return Slice(self._bundle, name, self._writable)
