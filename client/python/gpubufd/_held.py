"""The bases of the objects: a lease, slices, Arrow's capsules."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, TypeVar

from . import _core, _errors, _fetch, _repr
from ._layout import BYTES, TABLE, a_kind
from .cuda import handle_or_zero

Self = TypeVar("Self", bound="Held")
Part = TypeVar("Part", bound="Parts")


class _HostOnly:
    """A method that objects on a GPU lack, so that a library that looks for it takes another way."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if instance._ordinal >= 0:
            raise AttributeError(f"{self.function.__name__}: the object is on a GPU")
        return self.function.__get__(instance, owner)


def _refuse_keywords(keywords: Dict[str, Any]) -> None:
    for key, value in keywords.items():
        if value is not None:
            raise NotImplementedError(f"{key}={value!r} is not supported")


if TYPE_CHECKING:
    _Parts = _core.Object
else:

    class _Parts:
        """Stands for what _kinds adds: _core.Object, a lease, or HostCopy, a copy on the host."""

        __slots__ = ()


class Held(_Parts):
    """The base of Array, Column, Table, Bytes and Bundle: an object with a lease.

    The lease ends when the last reference is released: the object itself, its slices and columns, and the arrays that
    NumPy, Arrow or DLPack made of it. release(), the end of a `with`, and del release the object.
    """

    __slots__ = ()

    def __new__(cls, *arguments: Any) -> Any:
        if not issubclass(cls, _fetch.HostCopy):  # leases are made in C
            raise TypeError(f"a {cls.__name__} is not made by hand: see Client.get and Client.create")
        return super().__new__(cls)

    @property
    def device(self) -> str:
        """Where the memory is: "host", or the GPU's UUID ("GPU-…")."""
        return self._device

    def _note_written(self, array: Any) -> Any:
        """Notes an array, which the seal makes read-only; returns the array."""
        if not self.version and array.flags.writeable and not array.flags.owndata:
            self._written = [*getattr(self, "_written", ()), weakref.ref(array)]
        return array

    def _check_alive(self) -> None:
        """Stale: the connection was lost before the seal, so that the object cannot be published any more."""
        if not self.version and self.stale:
            raise _errors.failure("stale", f"{self.name!r} was discarded unsealed, since its connection was "
                                            "lost: create() it anew")

    def _publish(self, null_counts: Optional[Tuple[int, ...]], stream: int) -> None:
        self._check_alive()
        self._seal(null_counts, stream)
        self._sealed()

    def _sealed(self) -> None:
        for array in [reference() for reference in getattr(self, "_written", ())]:
            if array is not None:
                array.flags.writeable = False
        self._written = []

    def wait_ready(self, stream: Any = None) -> None:
        """Make a CUDA stream wait for the producer's work; None: make this thread wait.

        It costs nothing on the host, or if the work was done when the object was opened.
        """
        self._wait_ready(handle_or_zero(stream))

    def release_on(self, stream: Any) -> None:
        """Release the object once the work queued on a CUDA stream so far is done."""
        self._release_on(handle_or_zero(stream))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any = None, *exception: Any) -> None:
        """Releases the object. An unsealed object of create() is sealed first, unless there is an exception."""
        try:
            if kind is None and getattr(self, "_commits", False) and not self.released and not self.version:
                self._publish(None, 0)
        finally:
            self.release()

    if not TYPE_CHECKING:  # a type checker would believe that it has any attribute

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised: its own sentence again
                return object.__getattribute__(self, name)
            if name.startswith("_") or self.released:
                raise AttributeError(f"{a_kind(self)} has no {name!r}")
            raise AttributeError(f"{a_kind(self)} has no {name!r}{self._instead(name)}")

    def _instead(self, name: str) -> str:
        """The end of the sentence on a missing attribute: advice to users of pandas, NumPy and others."""
        return ""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            f"elements of {a_kind(self)} are not set by an index: a published object never changes, put() publishes "
            "a new version; an object of create() is written by write() or through to_numpy()"
        )

    def __delitem__(self, key: Any) -> None:
        raise TypeError("a published object never changes: put() publishes a new version, delete() removes a name")

    def __bool__(self) -> bool:
        raise TypeError(
            f"{a_kind(self)} is neither true nor false: for its length use len(), "
            "for its content to_numpy()"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: send its name, or client.ref(name), and "
            "open that in the other process"
        )

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _repr.html(self)

    def to_host(self: Self) -> Self:
        """Return the object on the host, with its nulls and nesting: itself if it is there, else a copy.

        A copy has the same methods as the object. It is in this process' own memory, needs neither lease nor daemon,
        and waits for the producer's work. Unsupported: Bytes on a GPU; use copy_to_host().
        """
        if self.kind == BYTES and self._ordinal >= 0:
            raise _errors.failure("unsupported", "bytes on a GPU: copy_to_host() makes a NumPy array of them")
        made: Self = _fetch.to_host(self)
        return made


class Parts(Held):
    """The base of Array, Column, Table and Bytes, which can be sliced and exported to Arrow."""

    __slots__ = ()

    # ---- slicing ----

    def _range(self: Part, key: slice, count: int) -> Part:
        start, stop, step = key.indices(count)
        if step != 1:
            raise ValueError("a slice without a copy has step 1; take every n-th of "
                             f"{'to_pandas()' if self.kind == TABLE else 'to_numpy()'}")
        part: Part = self._slice(start, max(stop - start, 0))
        return part

    def _count(self) -> int:
        return self._length

    # ---- Arrow ----

    def _check_arrow(self) -> None:
        pass

    def __arrow_c_schema__(self) -> Any:
        """A capsule of Arrow's C schema."""
        return self._arrow_schema()

    @_HostOnly
    def __arrow_c_array__(self, requested_schema: Any = None) -> Tuple[Any, Any]:
        """Capsules of Arrow's C schema and array, with nothing copied."""
        self._check_arrow()
        return self._arrow_schema(), self._arrow_array()

    @_HostOnly
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A capsule of an Arrow C stream that has this as its only array."""
        self._check_arrow()
        return self._arrow_stream()

    def __arrow_c_device_array__(self, requested_schema: Any = None, **keywords: Any) -> Tuple[Any, Any]:
        """Capsules of Arrow's C schema and device array: on the host and on a GPU, nothing copied."""
        _refuse_keywords(keywords)
        self._check_arrow()
        return self._arrow_schema(), self._arrow_device_array()

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **keywords: Any) -> Any:
        """A capsule of an Arrow C device stream that has this as its only array: on the host and on a GPU."""
        _refuse_keywords(keywords)
        self._check_arrow()
        return self._arrow_device_stream()

    def to_pyarrow(self) -> Any:
        """Return a pyarrow Array or Table over the same memory; of a table on a GPU a RecordBatch."""
        import pyarrow

        if self._ordinal >= 0:
            kind = pyarrow.RecordBatch if self.kind == TABLE else pyarrow.Array
            return kind._import_from_c_device_capsule(*self.__arrow_c_device_array__())
        make = pyarrow.table if self.kind == TABLE else pyarrow.array
        return make(self)


class Rows(Parts):
    """The base of Array, Column and Table."""

    __slots__ = ()

    def head(self: Part, n: int = 5) -> Part:
        """Return the first `n` rows or elements, without a copy; with a negative `n` all but the last -n."""
        return self._range(slice(None, n), self._count())

    def tail(self: Part, n: int = 5) -> Part:
        """Return the last `n` rows or elements, without a copy; with a negative `n` all but the first -n."""
        count = self._count()
        return self._range(slice(max(count - n, 0) if n >= 0 else -n, None), count)
