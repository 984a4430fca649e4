"""gpubufd.Client's calls for asyncio, driven by the connection's own socket.

    async with await gpubufd.aio.connect() as client:
        await client.put("a", values)
        a = await client.get("b", timeout=10)
        async for event in client.watch("sales/"):
            ...

Calls do not block the event loop while they wait for the daemon or for a GPU, except for one round trip in connect()
and in put(wait=False). Another thread reads and writes the files of save() and load(). Copies from or to the host are
made in the loop's thread, 16 MiB at a time, with other tasks in between. A client belongs to the loop that it was
connected in.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import select
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, Deque, Dict, Iterable, List, Optional
from typing import Sequence, Tuple, Type, TypeVar, Union, overload

from . import _client, _convert, _core, _errors, _nodes, _params, _provide, _provide_aio, _repr, _told, cuda
from ._calls import Calls
from ._layout import HOST
from ._provide import Wanted
from ._provide_aio import Provider
from ._ref import Ref
from ._told import Event, Info
from ._views import AsyncView

if TYPE_CHECKING:
    from ._kinds import AnyKind
    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")
_R = TypeVar("_R")

__all__ = ["Client", "Provider", "Watch", "connect"]

Provider.__module__ = __name__
TURN = 0.5  # seconds after which a get() that found no room among the waiting ones tries again
CHUNK = 16 << 20  # bytes that are copied before other tasks have their turn


def _in_thread(work: Callable[Concatenate[Any, _P], _R]) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]]:
    """The method for one of gpubufd.Client's that waits in C; the calls of its result are not awaited."""

    waits: Any = work

    @functools.wraps(work)
    async def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return await asyncio.to_thread(waits, self._client, *arguments, **keywords)

    return method  # type: ignore[return-value]


class Client(Calls):
    """A connection for asyncio; made by `await connect()`. It has the calls of gpubufd.Client as coroutines."""

    def __init__(self, client: _client.Client, loop: asyncio.AbstractEventLoop):
        self._client = client
        self._loop = loop
        self._fd = -1
        self._connection = 0  # the client's number of the connection that the loop polls
        self._writing = False
        self._queues: "List[asyncio.Queue[Optional[Event]]]" = []
        self._waits = 0  # requests that may wait, under way
        self._turns: "Deque[asyncio.Future[None]]" = collections.deque()  # of those that found no room
        self._copying: Dict[int, Any] = {}  # a stream for each GPU
        self._providers: List[Provider] = []
        self._arm()

    def __repr__(self) -> str:
        return repr(self._client).replace("gpubufd.Client", "gpubufd.aio.Client")

    def _repr_html_(self) -> str:
        return _repr.of_client(self._client, repr(self))

    # ---- the loop ----

    def _ready(self) -> None:
        try:
            self._client._dispatch()
        except _errors.Error:
            # The connection is lost, and every request on it has ended.
            self._detach()
            for queue in self._queues:
                queue.put_nowait(None)
            return
        self._arm()

    def _arm(self) -> None:
        """Polls the current connection; for room to write, too, while there is something to be sent."""
        if self._client.closed:
            return
        if self._connection != self._client._connections:  # the first connection, or a new one after a loss
            self._detach()
            self._fd, self._connection = self._client.fileno(), self._client._connections
            self._loop.add_reader(self._fd, self._ready)
        if self._fd < 0:
            return
        writing = bool(self._client._events() & select.POLLOUT)
        if writing and not self._writing:
            self._loop.add_writer(self._fd, self._ready)
        elif self._writing and not writing:
            self._loop.remove_writer(self._fd)
        self._writing = writing

    def _detach(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._fd, self._writing = -1, False

    async def _request(self, begin: Any, *args: Any) -> Any:
        """The answer to a request. If the waiting task is cancelled, so is the request."""
        future = self._loop.create_future()

        def settle(error: Optional[BaseException], result: Any) -> None:
            if future.done():
                return  # cancelled: an object that came all the same is released with `result`
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def done(error: Optional[BaseException], result: Any) -> None:  # in whichever thread dispatches
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(settle, error, result)

        until = self._loop.time() + self._client._resume_seconds
        while True:
            try:
                request = begin(*args, done)
                break
            except _errors.ConnectFailed:  # connect(start=True): a daemon is being started
                if not self._client._starts or self._loop.time() >= until:
                    raise
                await asyncio.sleep(0.02)
        self._arm()
        try:
            return await future
        except asyncio.CancelledError:
            if not self._client.closed:
                self._client._cancel(request)
                self._arm()
            raise

    async def _waiting(self, name: str, version: int, wait_ms: int, label: Optional[str]) -> Any:
        """An open that may wait. More of them than the daemon lets a session have take turns."""
        until = self._loop.time() + wait_ms / 1000
        while True:
            limit: Optional[_errors.Limit] = None
            self._waits += 1
            try:
                return await self._do("_open", name, version, wait_ms, label, False, False)
            except _errors.Limit as error:
                limit = error
            finally:
                self._waits -= 1
                if limit is None and self._turns:
                    self._turns.popleft().set_result(None)
            left = until - self._loop.time()
            if "waits" not in str(limit) or not self._waits or left <= 0:
                raise limit
            turn = self._loop.create_future()
            self._turns.append(turn)
            try:
                await asyncio.wait([turn], timeout=min(left, TURN))
            finally:
                if not turn.done():
                    self._turns.remove(turn)
            wait_ms = max(int((until - self._loop.time()) * 1000), 1)

    # ---- the life of a client ----

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._client.closed

    @property
    def instance(self) -> str:
        """The identity of this run of the daemon, in hexadecimal."""
        return self._client.instance

    @property
    def session(self) -> int:
        """The number of this connection."""
        return self._client.session

    def fileno(self) -> int:
        """Return the descriptor of the socket, which the loop polls."""
        return self._client.fileno()

    def close(self) -> None:
        """Close the client, as gpubufd.Client.close() does. Pending requests raise Canceled, watches end."""
        self._detach()
        for provider in self._providers:
            provider.close()
        self._client.close()
        for queue in self._queues:
            queue.put_nowait(None)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0 and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_remove, self._loop, self._fd, self._client)

    # ---- the steps of calls ----

    async def _do(self, what: str, *arguments: Any) -> Any:
        return await self._request(getattr(self._client, what + "_async"), *arguments)

    async def _answer(self, method: str, text: Optional[str], timeout: Optional[float]) -> str:
        answer: Any = self._do("_call", method, text)
        try:
            return await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError as error:
            if isinstance(error, _errors.Error):
                raise
            raise _errors.failure("timeout", f"{method} was not answered in {timeout} s") from None

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(work, *arguments)

    async def _publish(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> int:
        if not wait and plan.device is not None and plan.strides is None:
            return await self._queue(name, plan, on, opts)
        await self._settle(plan, on)
        if plan.kind == "arrow":
            plan.into_columns()
        layout, copies = _client.layout_and_copies(plan, 0)
        made = await self._do("_create", name, layout, opts)
        try:
            await self._fill(made, plan, copies)
            await self.seal(made)
            return made.version
        finally:
            made.release()

    async def _queue(self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...]) -> int:
        """Publishes with the copies under way."""
        queue = _client.queue_of(plan, on)
        layout, copies = _client.layout_and_copies(plan, queue)
        with await self._do("_create", name, layout, opts) as made:
            return _client.fill_and_seal(made, plan.device, copies, queue, False)

    async def _settle(self, plan: _convert.Plan, stream: Optional[int]) -> None:
        """Waits for the streams and events that make the value."""
        if not (plan.streams or plan.events or stream is not None):
            return
        device = plan.device or 0
        streams = set(plan.streams) if stream is None else {stream, *plan.streams}
        waiting = [cuda.Stream.of(one, device).record() for one in streams]
        waiting += [cuda.Event.at(event, ordinal) for event, ordinal in plan.events]
        for event in waiting:
            await _reached(event)

    async def _fill(self, made: Any, plan: _convert.Plan, copies: Iterable[_nodes.Copy]) -> None:
        """Makes the copies; those that a GPU can make, on a stream of this client's."""
        queue = None
        if plan.device is not None and made._ordinal in (HOST, plan.device):
            if plan.device not in self._copying:
                self._copying[plan.device] = cuda.Stream(plan.device)
            queue = self._copying[plan.device]
        found: Dict[Tuple[int, ...], Any] = {}
        keep, done = [], 0
        try:
            for path, which, at, address, count, kept in copies:
                target = _nodes.target_of(made, path, found)
                for start in range(0, count, CHUNK):
                    part = min(CHUNK, count - start)
                    target._write(which, at + start, address + start, part, queue.handle if queue else 0)
                    done += part + 4096
                    if done >= CHUNK:
                        await asyncio.sleep(0)
                        done = 0
                if queue:
                    keep.append(kept)
            if queue:
                await _reached(queue.record())
        except BaseException:
            if queue:  # the memory is released only after the copies
                queue.synchronize()
            raise
        del keep

    # ---- the calls that it has in a form of its own ----

    @overload
    async def get(
        self, name: Union[str, Ref], *, timeout: Optional[float] = ..., version: Optional[int] = ...,
        label: Optional[str] = ...,
    ) -> AnyKind: ...

    @overload
    async def get(
        self, name: Union[str, Ref], *, timeout: Optional[float] = ..., version: Optional[int] = ...,
        label: Optional[str] = ..., kind: Type[_client._Kind],
    ) -> _client._Kind: ...

    async def get(
        self, name: Union[str, Ref], *, timeout: Optional[float] = None, version: Optional[int] = None,
        label: Optional[str] = None, kind: Optional[type] = None,
    ) -> Any:
        """Open what was published under a name, without a copy; see gpubufd.Client.get."""
        at, number, label = _client.asked(name, version, label, kind)
        try:
            held = await self._waiting(at, number, _params.ms(timeout), label)
        except (_errors.NotFound, _errors.Stale) as error:
            raise _client.gone(name, error) from None
        return _client.opened(held, name, kind, self.instance)

    async def seal(self, created: Any, null_counts: Optional[Sequence[int]] = None) -> None:
        """Publish an object that create() made; for a table `null_counts` has one count for each column."""
        counts = None if null_counts is None else tuple(null_counts)
        created._check_alive()
        await self._do("_seal", created, counts)
        created._sealed()

    async def provide(
        self, prefix: str, load: Callable[[Wanted], Awaitable[Any]], *, tasks: int = 16,
        load_timeout: Optional[float] = _provide.LOAD_TIMEOUT, keep_refusals: float = 0.0, **options: Any,
    ) -> Provider:
        """Make absent names that begin with `prefix` when clients wait for them; see gpubufd.Client.provide.

        `load` is a coroutine function; at most `tasks` calls of it run at once. One that takes longer than
        `load_timeout` seconds is cancelled.
        """
        _provide.check(load, tasks, load_timeout, keep_refusals, Client.put, options)
        provider = await _provide_aio.provide(
            self._client._connecting, prefix, load, tasks, load_timeout, keep_refusals, options)
        self._providers = [one for one in self._providers if not one.closed] + [provider]
        return provider

    async def versions(self, name: str, *, timeout: Optional[float] = None) -> AsyncIterator[Info]:
        """Iterate over a name's versions with `async for`; see gpubufd.Client.versions."""
        async with self.watch(name, timeout=timeout) as watch:
            newer = _told.newer_of(name)
            async for event in watch:
                if newer(event):
                    yield event.info  # type: ignore[misc]

    async def follow(
        self, name: str, *, timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None
    ) -> AsyncView:
        """Open a name as a View, which shows one version after another; see gpubufd.Client.follow."""
        if timeout is not None:
            (await self.get(name, timeout=timeout, version=version, label=label)).release()
        return await asyncio.to_thread(AsyncView, self, name, None, version, label)

    stream = _in_thread(_client.Client.stream)
    read = _in_thread(_client.Client.read)

    def watch(self, prefix: str = "", *, timeout: Optional[float] = None) -> "Watch":
        """Iterate over the Events of names that begin with `prefix`, with `async for`.

        First, each existing object comes as "sealed"; then comes "synced". With a `timeout` the iteration ends when
        nothing has happened for that time. The watch ends when the daemon stops: start a new one. An `async with` ends
        it in time.
        """
        return Watch(self, prefix or None, timeout)


class Watch(AsyncIterator[Event]):
    """Events, in order. The end of an `async with`, close() and del end the watch."""

    def __init__(self, client: Client, prefix: Optional[str], timeout: Optional[float]):
        self._client = client
        self._prefix = prefix
        self._timeout = timeout
        self._queue: "asyncio.Queue[Optional[Event]]" = asyncio.Queue()
        self._watches: List[Tuple[int, int]] = []  # (its number, that of the client's connection)
        self._begun = False
        client._queues.append(self._queue)
        self._finalize = weakref.finalize(self, _end_watch, client, self._queue, self._watches)
        self._finalize.atexit = False

    def __aiter__(self) -> "Watch":
        return self

    async def _begin(self) -> None:
        client, queue = self._client, self._queue
        loop = client._loop

        def on_event(*fields: Any) -> None:  # in whichever thread dispatches
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, _told.event_of(*fields))

        self._begun = True
        begin = client._client._watch_async
        self._watches.append((await client._request(begin, self._prefix, on_event), client._connection))

    async def __anext__(self) -> Event:
        if not self._begun and self._finalize.alive:
            await self._begin()
        if not self._finalize.alive and self._queue.empty():
            raise StopAsyncIteration
        try:
            event = await asyncio.wait_for(self._queue.get(), self._timeout)
        except asyncio.TimeoutError:
            raise StopAsyncIteration from None
        if event is None:  # the client is closed, or its connection lost
            self.close()
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        """End the watch."""
        self._finalize()

    async def aclose(self) -> None:
        """End the watch."""
        self._finalize()

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self._finalize()


def _end_watch(client: Client, queue: "asyncio.Queue[Optional[Event]]", watches: List[Tuple[int, int]]) -> None:
    if queue in client._queues:
        client._queues.remove(queue)
    for watch, connection in watches:
        if connection == client._client._connections:  # else it ended with its connection
            client._client._unwatch(watch)
    if not client._loop.is_closed():
        client._loop.call_soon_threadsafe(queue.put_nowait, None)


async def _reached(event: Any) -> None:
    """Waits for a CUDA event, by polling: CUDA does not wake the loop."""
    pause = 0.0
    while not event.done():
        await asyncio.sleep(pause)
        pause = min(pause + 0.0001, 0.002)


def _remove(loop: asyncio.AbstractEventLoop, fd: int, client: Any) -> None:
    """Stops polling. `client` is kept until now, so that its descriptor is not another file's."""
    loop.remove_reader(fd)
    loop.remove_writer(fd)
    del client


async def connect(
    path: Optional[str] = None, *, timeout: Optional[float] = 5.0, name: Optional[str] = None, cache_bytes: int = 0,
    resume_timeout: Optional[float] = 10.0, cache_leases: Union[bool, int] = True,
    start: Union[bool, Sequence[str]] = False,
) -> Client:
    """Connect in the running loop; see gpubufd.connect.

    The first round trip, and starting a daemon, block the loop.
    """
    client = _client.open_client(path, timeout, name, cache_bytes, resume_timeout, False, cache_leases, start)
    return Client(client, asyncio.get_running_loop())
