"""Memory for RAPIDS to make arrays in, which are published in place; the only module that imports RMM.

    pool = gpubufd.rmm.mem_pool(client, "features", 8 << 30)
    with pool:                                # RMM's allocations of this process lie in the pool
        x = cupy.empty(…)                     # with rmm's allocator for CuPy
    pool.publish({"x": x})

The pool's memory belongs to the daemon.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import rmm.mr

from . import _params, _pool
from ._client import Client
from ._params import Evict, Mode, Scope, Seconds
from ._ref import Ref

__all__ = ["MemPool", "mem_pool"]


class MemPool:
    """Made by mem_pool(). `resource` is its rmm.mr.CallbackMemoryResource; `with` makes it the device's."""

    def __init__(self, pool: _pool.Pool):
        self._pool = pool
        pieces = pool.pieces
        self.resource = rmm.mr.CallbackMemoryResource(
            lambda size, *stream: pieces.take(max(size, 1)), lambda address, size, *stream: pieces.give_back(address))

    def __enter__(self) -> "MemPool":
        self._outer = rmm.mr.get_per_device_resource(self._pool.object._ordinal)
        rmm.mr.set_per_device_resource(self._pool.object._ordinal, self.resource)
        return self

    def __exit__(self, *exception: Any) -> None:
        rmm.mr.set_per_device_resource(self._pool.object._ordinal, self._outer)

    def publish(
        self, arrays: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None, *,
        label: Optional[str] = None, keep: Optional[int] = None,
    ) -> Ref:
        """Publish arrays of the pool as a Bundle, in place. ValueError names an array that is not in the pool."""
        return self._pool.publish(arrays, metadata, label, keep)

    def __repr__(self) -> str:
        return repr(self._pool)


def mem_pool(
    client: Client, name: str, size: int, *, device: Optional[str] = None, mode: Mode = None,
    ttl: Optional[Seconds] = None, evict: Evict = None, replace: bool = False,
    timeout: Optional[float] = None, scope: Scope = "local",
) -> MemPool:
    """Return a MemPool of `size` bytes on a GPU. Freed memory is not allocated again.

    `device` and the other options are those of Client.put().
    """
    options = _params.options(device, mode, ttl, evict, replace, timeout, scope=scope)
    return MemPool(_pool.Pool(client, name, size, options))
