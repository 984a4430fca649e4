"""The classes that a client makes objects of: each kind's methods, over a lease or over a copy."""

from __future__ import annotations

from typing import Any, Dict

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
