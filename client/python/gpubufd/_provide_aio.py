"""Providers for asyncio: a coroutine makes the absent objects that clients wait for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from typing import Any, Awaitable, Callable, Dict, Optional, Set

from . import _provide
from ._client import Client
from ._provide import Wanted, overdue


class _Loads:
    """The calls of `load` in the loop. It has no reference to the Provider, which ends when it is collected."""

    def __init__(self, load: Callable[[Wanted], Awaitable[Any]], timeout: Optional[float]):
        self._loop = asyncio.get_running_loop()
        self._load = load
        self._timeout = timeout
        self.tasks: "Set[asyncio.Task[Any]]" = set()

    def wait_for(self, wanted: Wanted) -> Any:
        """The value of a name; called by the provider's threads."""
        return asyncio.run_coroutine_threadsafe(self._in_time(wanted), self._loop).result()

    async def _in_time(self, wanted: Wanted) -> Any:
        task: Any = asyncio.current_task()
        self.tasks.add(task)
        try:
            value = self._load(wanted)
            return await asyncio.wait_for(value, self._timeout) if inspect.isawaitable(value) else value
        except asyncio.TimeoutError as error:
            if str(error) or self._timeout is None:  # of the load's own
                raise
            raise overdue(self._timeout) from None
        finally:
            self.tasks.discard(task)


class Provider:
    """A provider, made by aio.Client.provide(). close(), aclose() or the end of an `async with` ends it."""

    def __init__(self, inner: _provide.Provider, loads: _Loads):
        self._inner, self._loads = inner, loads

    @property
    def prefix(self) -> str:
        """The beginning of the names that it provides."""
        return self._inner.prefix

    @property
    def closed(self) -> bool:
        """Whether the provider has ended."""
        return self._inner.closed

    def close(self) -> None:
        """End the provider, and cancel loads in progress."""
        self._inner._abandon()
        for task in self._loads.tasks:
            task.cancel()

    async def aclose(self) -> None:
        """End the provider, and wait for loads in progress."""
        own = concurrent.futures.ThreadPoolExecutor(1)  # the loop's may be full of loads
        await asyncio.get_running_loop().run_in_executor(own, self._inner.close)
        own.shutdown(wait=False)

    async def __aenter__(self) -> "Provider":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<gpubufd.aio.Provider of {self.prefix!r}{', closed' if self.closed else ''}>"


async def provide(
    connecting: Dict[str, Any], prefix: str, load: Callable[[Wanted], Awaitable[Any]], tasks: int,
    load_timeout: Optional[float], keep_refusals: float, options: Dict[str, Any],
) -> Provider:
    """A provider with a connection of its own."""
    loads = _Loads(load, load_timeout)

    def begin() -> _provide.Provider:
        own = Client(**{**connecting, "patient": True})
        return _provide.Provider(own, prefix, loads.wait_for, tasks, None, keep_refusals, options)

    return Provider(await asyncio.to_thread(begin), loads)
