"""The classes that a client makes objects of: each kind's methods, over a lease or over a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple, Union, overload

from . import _core, _fetch
from ._bundle import Bundle
from ._objects import Array, Bytes, Column, Table


class _Lease(_core.Object):
    """A lease on what the daemon has."""

    # Whether the end of a `with` publishes it; arrays over its memory while it is written.
    __slots__ = ("__weakref__", "_commits", "_written")


class _Copy(_fetch.HostCopy):
    """A copy on the host, which Arrow takes by its plain form alone."""

    @property
    def __arrow_c_stream__(self) -> Any:
        raise AttributeError("__arrow_c_stream__: see __arrow_c_array__")

    __arrow_c_device_array__ = __arrow_c_device_stream__ = __arrow_c_stream__


def _over(what: type, kind: type, *more: type) -> Any:
    """A class with a kind's methods, over a lease or a copy; to its users it is the kind itself."""
    slots: Dict[str, Any] = {"__slots__": ()} if what is _Lease else {"kind": _KINDS.index(kind)}
    if what is _Lease and kind in (Bytes, Array, Column):
        slots["__dlpack_c_exchange_api__"] = _core.exchange_api
    slots.update({name: what.__dict__[name] for name in what.__dict__ if name.startswith("__arrow")})
    return type(kind.__name__, (kind, *more, what), {**slots, "__module__": "gpubufd", "__doc__": kind.__doc__})


_KINDS = (Bytes, Array, Column, Table, Bundle)
_core.set_kinds(*(_over(_Lease, kind) for kind in _KINDS))
_fetch.set_kinds(_over(_Copy, Array, _fetch.HostArray), _over(_Copy, Column), _over(_Copy, Table),
                 _over(_Copy, Bundle, _fetch.HostBundle))

if TYPE_CHECKING:

    class Opened(Array, Column, Table, Bytes, Bundle):  # type: ignore[misc]
        """For type checkers: an object of a kind that is not known before it is opened.

        It has what any kind has, so that a misspelt name is found, and is taken where one kind is expected.
        """

        names: List[str]
        shape: Tuple[int, ...]  # type: ignore[assignment]
        dtype: Any
        __eq__: Any

        @overload
        def __getitem__(self, key: Union[str, slice]) -> "AnyKind": ...
        @overload
        def __getitem__(self, key: Any) -> Any: ...
        def __getitem__(self, key: Any) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def seal(self, null_counts: Any = None, *, stream: Any = None) -> None: ...
        def to_numpy(self, **options: Any) -> Any: ...
        def to_pandas(self) -> Any: ...
        def tolist(self) -> List[Any]: ...

    AnyKind = Union[Opened, Any]  # Any: isinstance() with one kind does not exclude the others
