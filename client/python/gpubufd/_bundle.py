"""Bundle: many arrays under one name; a client hands out one at a time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple

from . import _core
from ._held import Held
from ._layout import DATA
from ._objects import Array

if TYPE_CHECKING:
    import numpy


@functools.lru_cache(None)
def _typestr(dtype: str) -> str:
    """NumPy's name of a dtype; empty: it has none."""
    name: str = _core.from_memory(bytes(16), dtype, (1,)).typestr
    return name


class Bundle(Held, Mapping[str, Array]):
    """Arrays by name, such as the tensors of a model, which are published, read and replaced as one. Read-only.

    A mapping whose values are Arrays over the same memory, in the order of the file. Each is made on access, and holds
    the lease. `metadata`: a dict of strings. The memory has the format of a safetensors file. A tensor that its file
    does not align is copied on each access; on a GPU it raises Unsupported: use copy_to_host().
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> Array:
        if not isinstance(name, str):
            raise TypeError(f"{name!r}: a tensor is taken by its name")
        i = self._number(name)
        if i < 0:
            some = ", ".join([repr(name) for name in self][:5])
            raise KeyError(f"{self.name!r} has no tensor {name!r} among its {len(self)}: {some}, …")
        found: Array = self._tensor(i)
        return found

    def __iter__(self) -> Iterator[str]:
        return (self._entry(i)[0] for i in range(len(self)))

    def __len__(self) -> int:
        return self._tensor_count

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._number(name) >= 0

    def _number(self, name: str) -> int:
        try:
            return self._find(name)
        except ValueError:  # no text that a manifest could have
            return -1

    def __bool__(self) -> bool:
        """Whether the bundle has tensors."""
        return len(self) > 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise TypeError("two bundles are compared tensor by tensor")

    __hash__ = object.__hash__

    def _ipython_key_completions_(self) -> List[str]:
        return list(self)

    @property
    def dtypes(self) -> Dict[str, str]:
        """The tensors' types by name, such as "float32"."""
        return {name: dtype for name, dtype, *_ in self._entries()}

    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        """The tensors' shapes by name."""
        return {name: shape for name, _, shape, *_ in self._entries()}

    @property
    def nbytes(self) -> int:
        """The size of all tensors, in bytes."""
        return sum(size for *_, size in self._entries())

    def _manifest(self) -> bytes:
        """The header of the safetensors file that the memory is."""
        head = bytearray(self._manifest_bytes)
        if self._ordinal < 0:
            return bytes(memoryview(self._buffer(DATA))[8 : 8 + len(head)])
        self._wait_ready(0)
        self._read(DATA, 8, _core.address(head)[0], len(head), 0)
        return bytes(head)

    def to_numpy(self) -> "Dict[str, numpy.ndarray[Any, Any]]":
        """Return a dict of read-only NumPy arrays over the same memory. Host only."""
        return self._arrays(False)

    def _arrays(self, copy: bool) -> Dict[str, Any]:
        """NumPy arrays of all tensors, in a fraction of the time that an Array for each would take."""
        content = self._content(copy)
        return {entry[0]: self._array(content, i, entry, copy) for i, entry in enumerate(self._entries())}

    def _numpy(self, name: str, copy: bool) -> Any:
        """A tensor for NumPy, or a copy of it."""
        i = self._number(name)
        if i < 0:
            self[name]  # raises
        return self._array(self._content(copy), i, self._entry(i), copy)

    def _content(self, copy: bool) -> Any:
        """The whole content as a NumPy array; None: it is on a GPU, and the producer's work on it is done."""
        if self._ordinal < 0:
            return self._buffer(DATA).to_numpy()
        if not copy:
            raise TypeError(f"{self.name!r} is on a GPU: to_host() copies it here")
        self._wait_ready(0)
        return None

    def _array(self, content: Any, i: int, entry: Tuple[str, str, Tuple[int, ...], int, int], copy: bool) -> Any:
        _, dtype, shape, offset, size = entry
        typestr = _typestr(dtype)
        if not typestr:  # NumPy lacks the dtype
            tensor = self._tensor(i)
            return tensor.copy_to_host() if copy else tensor.to_numpy()
        if content is not None:
            # A tensor of a file that another program wrote may be unaligned. NumPy accepts that.
            found = content[offset : offset + size].view(typestr).reshape(shape)
            return found.copy() if copy else found
        import numpy

        found = numpy.empty(shape, typestr)
        if size:
            self._read(DATA, offset, _core.address(found)[0], size, 0)
        return found

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("a Bundle is no single array: to_numpy() makes a dict of arrays")
