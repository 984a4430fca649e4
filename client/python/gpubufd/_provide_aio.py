"""Providers for asyncio: a coroutine makes the absent objects that clients wait for."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Awaitable, Callable, Dict, Optional, Set

from . import _errors
from ._provide import PAUSE, Book, Requests, Turns, Wanted, overdue


class Provider(Requests):
    """The result of aio.Client.provide(): close(), aclose() or the end of an `async with` ends it.

    It has a connection of its own, which it closes.
    """

    def __init__(
        self, client: Any, prefix: str, load: Callable[[Wanted], Awaitable[Any]], tasks: int,
        load_timeout: Optional[float], keep_refusals: float, options: Dict[str, Any],
    ):
        self._client, self._core = client, client._client
        self._prefix = prefix
        self._load = load
        self._load_timeout = load_timeout
        self._options = options
        self._book = Book(keep_refusals)
        self._room = asyncio.Semaphore(tasks)
        self._turns = Turns()  # of names whose task waits for room
        self._tasks: "Set[asyncio.Task[None]]" = set()
        self._lost = asyncio.Event()
        self._keeper: "Optional[asyncio.Task[None]]" = None
        self._connection = 0  # the client's number of the connection that provides
        client._on_lost = self._lost.set

    @property
    def prefix(self) -> str:
        """The beginning of the names that it makes."""
        return self._prefix

    @property
    def closed(self) -> bool:
        """Whether the provider has ended."""
        return self._client.closed

    async def _begin(self) -> None:
        await self._say()
        self._keeper = asyncio.ensure_future(self._keep())

    async def _say(self) -> None:
        loop = self._client._loop

        def on_wanted(*request: Any) -> None:  # in whichever thread dispatches
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._on_wanted, *request)

        await self._client._request(self._core._provide_async, self._prefix, on_wanted)
        self._connection = self._core._connections

    async def _keep(self) -> None:
        """Provides again on each connection that takes the place of one that was lost."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            while not self.closed and self._connection != self._client._polled():
                self._book.over(0)
                try:
                    await self._say()
                except _errors.Error:
                    await asyncio.sleep(PAUSE)

    def _load_later(self, wanted: Wanted) -> None:
        if not self.closed:
            self._turns.put(wanted)
            task = asyncio.ensure_future(self._serve())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        async with self._room:
            wanted = self._turns.take()
            seen = wanted.request
            if seen == 0 and self._book.drop(wanted, 0):
                return
            try:
                while True:
                    await self._make_in_time(wanted)
                    # The object answers requests that came meanwhile, too, unless it is deleted already.
                    while not self._book.drop(wanted, seen):
                        seen = wanted.request
                        if seen and not await self._is_there(wanted):
                            break
                    else:
                        return
            except BaseException as error:
                self._decline(wanted, error)
                if not isinstance(error, Exception):
                    raise

    async def _is_there(self, name: str) -> bool:
        try:
            await self._client.stat(name)
        except _errors.NotFound:
            return False
        return True

    async def _make_in_time(self, wanted: Wanted) -> None:
        try:
            await asyncio.wait_for(self._make(wanted), self._load_timeout)
        except asyncio.TimeoutError as error:
            if str(error) or self._load_timeout is None:  # of the load's own
                raise
            raise overdue(self._load_timeout) from None

    async def _make(self, wanted: Wanted) -> None:
        value = self._load(wanted)
        if inspect.isawaitable(value):
            value = await value
        if value is not None:
            try:
                await self._client.put(str(wanted), value, **self._options)
            except _errors.Exists:
                pass  # another program was quicker
        elif not await self._is_there(wanted):
            raise LookupError(f"the provider of {self._prefix!r} gave nothing")

    def _sent(self) -> None:
        self._client._arm()

    def _stop(self) -> None:
        """Ends the provider's requests; loads under way go on."""
        if self._keeper is not None:
            self._keeper.cancel()
        if not self.closed:
            try:
                self._core._provide_end(self._prefix)
            except _errors.Error:
                pass

    def close(self) -> None:
        """Ends the provider; loads under way are cancelled."""
        self._stop()
        for task in self._tasks:
            task.cancel()
        self._client.close()

    async def aclose(self) -> None:
        """Ends the provider, and waits for loads under way."""
        self._stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._client.close()

    async def __aenter__(self) -> "Provider":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<gpubufd.aio.Provider of {self._prefix!r}{', closed' if self.closed else ''}>"
