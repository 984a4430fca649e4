"""The safetensors package's way to open a file, for any library's tensors.

A library's module makes a subclass of SafeOpen, which says how a tensor of a Bundle becomes one of the library's.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _bundle, _core
from ._errors import NoTensor
from ._files import FilePath

DTYPES = {name: theirs for name, *_, theirs in _core.dtypes() if theirs}  # safetensors' name of each dtype


def check_writable(writable: Optional[str]) -> None:
    if writable not in (None, "copy"):
        raise ValueError(f'writable is "copy" or None, not {writable!r}: shared memory cannot be written')


class TensorMeta(NamedTuple):
    """A tensor as the header of its file describes it."""

    dtype: str  # as safetensors spells it
    shape: List[int]
    data_offsets: Tuple[int, int]  # its first byte, and the one after its last, from the end of the head


class Slice:
    """A tensor's shape and dtype, and parts of it: f.get_slice(name)[:, 10:20]."""

    def __init__(self, opened: "SafeOpen", name: str):
        self._opened, self._name = opened, name
        bundle = opened._bundle
        _, self._dtype, self._shape, *_ = bundle._entry(bundle._number(name))

    def get_shape(self) -> List[int]:
        """Return its shape."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Return its dtype, as safetensors spells it: "F32"."""
        return DTYPES[self._dtype]

    def __getitem__(self, key: Any) -> Any:
        return self._opened._part(self._name, key)


class SafeOpen:
    """A bundle with the methods of the safetensors package's safe_open, which take single tensors."""

    _frameworks: Tuple[str, ...] = ()

    def __init__(self, bundle: _bundle.Bundle, writable: Optional[str], filename: FilePath):
        self._bundle, self._writable, self._filename = bundle, writable, filename

    @classmethod
    def _check(cls, framework: str, writable: Optional[str]) -> None:
        if framework not in cls._frameworks:
            raise ValueError(f'framework is "{cls._frameworks[0]}", not {framework!r}')
        check_writable(writable)

    def _whole(self, name: str) -> Any:
        """A tensor for the library. KeyError."""
        raise NotImplementedError

    def _part(self, name: str, key: Any) -> Any:
        """A part of a tensor."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._bundle.release()

    def keys(self) -> List[str]:
        """Return the tensors' names, in order."""
        return sorted(self._bundle)

    def offset_keys(self) -> List[str]:
        """Return the tensors' names, in the order of the file."""
        return [entry[0] for entry in sorted(self._bundle._entries(), key=lambda entry: entry[3:])]

    def metadata(self) -> Optional[Dict[str, str]]:
        """Return the file's metadata; None: it has none."""
        return self._bundle.metadata or ({} if b'"__metadata__"' in self._bundle._manifest() else None)

    def _known(self, name: str) -> str:
        if name not in self._bundle:
            some = ", ".join([repr(name) for name in self._bundle][:5])
            raise NoTensor(f"{os.fsdecode(self._filename)} has no tensor {name!r} among its {len(self._bundle)}: {some}, …")
        return name

    def get_tensor(self, name: str) -> Any:
        """Return a tensor. SafetensorError, a KeyError."""
        return self._whole(self._known(name))

    def get_tensors(self) -> Dict[str, Any]:
        """Return all tensors by name, in the order of the file."""
        return {name: self._whole(name) for name in self.offset_keys()}

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """Return a tensor's dtype, shape and place. SafetensorError, a KeyError."""
        _, dtype, shape, at, size = self._bundle._entry(self._bundle._number(self._known(name)))
        start = at - 8 - self._bundle._manifest_bytes
        return TensorMeta(DTYPES[dtype], list(shape), (start, start + size))

    def get_slice(self, name: str) -> Slice:
        """Return a Slice of a tensor, to take parts of it. SafetensorError, a KeyError."""
        return Slice(self, self._known(name))
