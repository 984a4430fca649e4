"""The calls of gpubufd.Client for asyncio, driven by the connection's own socket.

    async with await gpubufd.aio.connect() as client:
        await client.put("a", values)
        a = await client.get("b", timeout=10)
        async for event in client.watch("sales/"):
            ...

Calls do not block the loop while they wait for the daemon or for a GPU. Three exceptions block it for a round trip:
connect(), put(wait=False), and put() of a dictionary column in several pieces. Another thread reads and writes files,
for save() and load(). Copies from or to the host are made in the loop's thread, 16 MiB at a time, with other tasks in
between. A client belongs to the loop that it was connected in.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import select
import weakref
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence
from typing import Tuple, Type, Union, overload

from . import _client, _convert, _core, _errors, _files, _nodes, _packing, _params, _provide, _told, cuda
from ._client import Ref
from ._files import FilePath
from ._layout import HOST
from ._provide import Wanted
from ._provide_aio import Provider
from ._told import Event, Info

CHUNK = 16 << 20  # bytes that are copied before other tasks have their turn


class Client:
    """A connection for asyncio; made by `await connect()`. The calls are those of gpubufd.Client."""

    def __init__(self, client: _client.Client, loop: asyncio.AbstractEventLoop):
        self._client = client
        self._loop = loop
        self._fd = -1
        self._connection = 0  # the client's number of the connection that the loop polls
        self._writing = False
        self._queues: "List[asyncio.Queue[Optional[Event]]]" = []
        self._copying: Dict[int, Any] = {}  # a stream for each GPU
        self._providers: List[Provider] = []
        self._on_lost: Callable[[], None] = lambda: None
        self._arm()

    # ---- the loop ----

    def _ready(self) -> None:
        try:
            self._client._dispatch()
        except _errors.Error:
            # The connection is lost, and every request on it has ended.
            self._detach()
            for queue in self._queues:
                queue.put_nowait(None)
            self._on_lost()
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
            self._on_lost()
        if self._fd < 0:
            return
        writing = bool(self._client._events() & select.POLLOUT)
        if writing and not self._writing:
            self._loop.add_writer(self._fd, self._ready)
        elif self._writing and not writing:
            self._loop.remove_writer(self._fd)
        self._writing = writing

    def _polled(self) -> int:
        """The number of the connection that the loop polls; 0: of none."""
        return self._connection if self._fd >= 0 else 0

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

        request = begin(*args, done)
        self._arm()
        try:
            return await future
        except asyncio.CancelledError:
            if not self._client.closed:
                self._client._cancel(request)
                self._arm()
            raise

    # ---- the life of a client ----

    @property
    def closed(self) -> bool:
        """Whether the client was closed here."""
        return self._client.closed

    @property
    def instance(self) -> str:
        """The daemon's identity of this run, hexadecimal."""
        return self._client.instance

    @property
    def session(self) -> int:
        """The number of this connection."""
        return self._client.session

    def fileno(self) -> int:
        """The socket, which the loop polls."""
        return self._client.fileno()

    @property
    def sync(self) -> _client.Client:
        """The same connection with blocking calls."""
        return self._client

    def close(self) -> None:
        """As gpubufd.Client.close(). Requests under way end with Canceled, watches end."""
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

    # ---- calls ----

    async def call(
        self, method: str, params: Optional[Dict[str, Any]] = None, *, timeout: Optional[float] = None
    ) -> Any:
        """Calls any method of the protocol that carries no descriptors. `timeout`: in seconds; None: for ever."""
        text = None if params is None else json.dumps(params)
        answer = self._request(self._client._call_async, method, text)
        try:
            return json.loads(await asyncio.wait_for(answer, timeout))
        except asyncio.TimeoutError as error:
            if isinstance(error, _errors.Error):
                raise
            raise _errors.failure("timeout", f"{method} was not answered in {timeout} s") from None

    @overload
    async def get(
        self, name: Union[str, Ref], timeout: Optional[float] = ..., *, version: int = ...,
        label: Optional[str] = ...,
    ) -> Any: ...

    @overload
    async def get(
        self, name: Union[str, Ref], timeout: Optional[float] = ..., *, version: int = ...,
        label: Optional[str] = ..., kind: Type[_client._Kind],
    ) -> _client._Kind: ...

    async def get(
        self, name: Union[str, Ref], timeout: Optional[float] = None, *, version: int = 0,
        label: Optional[str] = None, kind: Optional[type] = None,
    ) -> Any:
        """Opens what was published under a name; see gpubufd.Client.get."""
        wait = _params.ms(timeout) if timeout else 0
        try:
            held = await self._request(
                self._client._open_async, *_client.asked(name, version), wait, label
            )
        except (_errors.NotFound, _errors.Stale) as error:
            raise _client.gone(name, error) from None
        return _client.opened(held, name, kind, self.instance)

    async def ref(self, name: str) -> Ref:
        """A reference to the version that a name has now, for other processes. NotFound."""
        return self._client._ref(name, (await self.stat(name)).version)

    async def get_many(
        self, names: Iterable[str], timeout: Optional[float] = None, *, errors: str = "raise"
    ) -> List[Any]:
        """Opens many objects in one round trip, in the order of `names`; see gpubufd.Client.get_many."""
        if errors not in ("raise", "return"):
            raise ValueError('errors is "raise" or "return"')
        asked = tuple(names)
        results = await self._request(self._client._open_many_async, asked, _params.ms(timeout))
        return _client.named_errors(asked, results, errors)

    async def create(
        self, name: str, dtype: Any, shape: Union[int, Sequence[int]], *, nulls: bool = False,
        device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: Optional[str] = None,
        replace: bool = False, timeout: Optional[float] = None, final: bool = False,
        label: Optional[str] = None, keep: int = 0,
        scope: str = "local",
    ) -> Any:
        """Allocates an object to be filled in place; `await client.seal(made)` publishes it."""
        opts = _client.options(
            device, share, mode, ttl, evict, replace, timeout, final, label, keep,
            scope,
        )
        layout = _client.layout_of(dtype, shape, nulls)
        return await self._request(self._client._create_async, name, layout, opts)

    async def seal(self, created: Any, null_counts: Optional[Sequence[int]] = None) -> None:
        """Publishes an object of create(); for a table `null_counts` has one count for each column."""
        counts = None if null_counts is None else tuple(null_counts)
        created._check_alive()
        await self._request(self._client._seal_async, created, counts)
        created._sealed()

    async def put(
        self, name: str, value: Any, *, device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: Optional[str] = None,
        replace: bool = False, stream: Any = None, timeout: Optional[float] = None,
        final: bool = False, nan_as_null: bool = False, label: Optional[str] = None, keep: int = 0,
        scope: str = "local", wait: bool = True,
    ) -> Ref:
        """Publishes a copy of a value; see gpubufd.Client.put."""
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on, nan_as_null)
        opts = _client.options(
            _client.place_of(plan, device), share, mode, ttl, evict, replace, timeout, final, label,
            keep, scope,
        )
        return await self._put(name, plan, on, opts, wait)

    async def put_bundle(
        self, name: str, tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None, *,
        device: Optional[str] = None, share: Optional[str] = None, mode: Union[int, str, None] = None,
        ttl: Optional[float] = None, evict: Optional[str] = None, replace: bool = False, stream: Any = None,
        timeout: Optional[float] = None, final: bool = False, label: Optional[str] = None, keep: int = 0,
        scope: str = "local", wait: bool = True,
    ) -> Ref:
        """Publishes copies of many arrays as one Bundle; see gpubufd.Client.put_bundle."""
        on = None if stream is None else cuda.handle_of(stream)
        plan = _packing.tensors(tensors, metadata, on)
        opts = _client.options(
            _client.place_of(plan, device), share, mode, ttl, evict, replace, timeout, final, label,
            keep, scope,
        )
        return await self._put(name, plan, on, opts, wait)

    async def _put(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> Ref:
        if not wait and plan.device is not None and plan.strides is None:
            return await self._queue(name, plan, on, opts)
        await self._settle(plan, on)
        if plan.kind == "arrow":
            try:
                plan.into_columns()
            except _nodes.Joined:  # a dictionary in several pieces, which only the library joins
                return self._client._ref(name, self._client._put_arrow(name, plan.source, plan.table, opts))
        layout, copies = _layout_and_copies(plan)
        made = await self._request(self._client._create_async, name, layout, opts)
        try:
            await self._fill(made, plan, copies)
            await self.seal(made)
            return self._client._ref(name, made.version)
        finally:
            made.release()

    async def _queue(self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...]) -> Ref:
        """Publishes with the copies under way."""
        queue = _client.queue_of(plan, on)
        layout, copies = _client.layout_and_copies(plan, queue)
        with await self._request(self._client._create_async, name, layout, opts) as made:
            return self._client._ref(name, _client.fill_and_seal(made, plan.device, copies, queue, False))

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

    async def save(
        self, name: str, path: FilePath, *, format: Optional[str] = None, compression: Optional[str] = None
    ) -> None:
        """Writes a published object into a file, in another thread; see gpubufd.Client.save."""
        with await self.get(name) as held:
            await asyncio.to_thread(_files.write, held, path, format, compression)

    async def load(
        self, path: FilePath, name: Optional[str] = None, *, format: Optional[str] = None, **options: Any
    ) -> str:
        """Publishes the content of a file, which is read in another thread; see gpubufd.Client.load."""
        found = pathlib.Path(path).stem if name is None else name
        await self.put(found, await asyncio.to_thread(_files.read, path, format), **options)
        return found

    async def provide(
        self, prefix: str, load: Callable[[Wanted], Awaitable[Any]], *, tasks: int = 16, **options: Any
    ) -> Provider:
        """Makes absent names that begin with `prefix` when clients wait for them; see gpubufd.Client.provide.

        `load` is a coroutine function; at most `tasks` calls of it run at a time.
        """
        _provide.check(load, tasks, Client.put, options)
        own = Client(_client.Client(**self._client._connecting), self._loop)
        provider = Provider(own, prefix, load, tasks, options)
        try:
            await provider._begin()
        except BaseException:
            provider.close()
            raise
        self._providers = [one for one in self._providers if not one.closed] + [provider]
        return provider

    async def share_mine(
        self, name: str, value: Any, *, mode: Union[int, str, None] = None,
        ttl: Optional[float] = None, replace: bool = False, stream: Any = None,
    ) -> Ref:
        """Publishes GPU memory of the caller's own without copying it; see gpubufd.Client.share_mine."""
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on)
        await self._settle(plan, on)
        layout, parts = _client.memory_of(plan)
        opts = _client.options(None, None, mode, ttl, "spill", replace, None)
        await self._request(self._client._register_async, name, parts, json.dumps(layout), opts)
        self._client._mine[name] = plan
        return await self.ref(name)

    async def list(self, prefix: str = "", *, versions: bool = False) -> List[Info]:
        """The objects whose names begin with `prefix`; see gpubufd.Client.list."""
        found: List[Info] = []
        params: Dict[str, Any] = {"prefix": prefix, "versions": versions}
        while True:
            answer = await self.call("list", params)
            found += [Info._of(record) for record in answer["objects"]]
            if "cursor" not in answer:
                return found
            params["cursor"] = answer["cursor"]

    async def stat(self, name: str, *, version: int = 0, label: Optional[str] = None) -> Info:
        """An object's Info, with its layout. NotFound, Stale."""
        return Info._of((await self.call("stat", _params.which(name, version, label)))["object"])

    async def delete(
        self, *names: str, missing_ok: bool = False, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Removes names, or a version of one; see gpubufd.Client.delete."""
        one = _params.deleted(names, version, label)
        mine = self._client._mine
        for name in names:
            if not one:
                mine.pop(name, None)
            try:
                await self.call("delete", _params.which(name, version, label))
            except (_errors.NotFound, _errors.Stale):
                if not missing_ok:
                    raise
            if one and name in mine and not await self._has(name):
                mine.pop(name, None)

    async def _has(self, name: str) -> bool:
        try:
            await self.stat(name)
        except _errors.NotFound:
            return False
        return True

    async def pin(self, name: str) -> None:
        """Keeps an object from being evicted."""
        await self.call("pin", {"name": name})

    async def unpin(self, name: str) -> None:
        """Takes a pin back."""
        await self.call("unpin", {"name": name})

    async def expire(
        self, name: str, ttl: Optional[float], *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """The daemon deletes the object in `ttl` seconds; see gpubufd.Client.expire."""
        await self.call("expire", _params.expire(name, ttl, version, label))

    async def spill(
        self, name: str, tier: Optional[str] = None, *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Moves an object off its device now; see gpubufd.Client.spill."""
        await self.call("spill", _params.spill(name, tier, version, label))

    async def restore(
        self, name: str, timeout: Optional[float] = None, *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Brings an object back to its device; see gpubufd.Client.restore."""
        await self.call("restore", _params.restore(name, timeout, version, label))

    async def alias(
        self, name: str, of: str, *, rows: Optional[Tuple[int, int]] = None,
        columns: Optional[Sequence[str]] = None, parts: Optional[Sequence[str]] = None,
        layout: Optional[Mapping[str, Any]] = None, mode: Union[int, str, None] = None,
        replace: bool = False, label: Optional[str] = None, keep: int = 0, scope: str = "local",
    ) -> None:
        """Gives an object, or a part of it, another name; see gpubufd.Client.alias."""
        await self.call("alias", _params.alias(
            name, of, rows, columns, parts, layout, mode, replace, label, keep, scope))

    async def leases(self, name: Optional[str] = None) -> List[Dict[str, Any]]:
        """The leases; see gpubufd.Client.leases."""
        return (await self.call("leases", {"name": name} if name else {}))["leases"]

    async def stats(self) -> Dict[str, Any]:
        """The daemon's counters."""
        return await self.call("stats")

    async def devices(self) -> List[Dict[str, Any]]:
        """The daemon's devices: dicts with at least id, capacity and used, in bytes."""
        return (await self.stats())["devices"]

    async def versions(self, name: str, *, timeout: Optional[float] = None) -> AsyncIterator[Info]:
        """A name's versions, for `async for`; see gpubufd.Client.versions."""
        async with self.watch(name, timeout=timeout) as watch:
            newer = _told.newer_of(name)
            async for event in watch:
                if newer(event):
                    yield event.info  # type: ignore[misc]

    def watch(self, prefix: str = "", *, timeout: Optional[float] = None) -> "Watch":
        """Events of names that begin with `prefix`: "sealed" for each existing object first, then "synced".

        Use it with `async for`, and in an `async with` to end it before it is collected. The watch ends when the daemon
        stops; a new watch sees the next daemon. With a `timeout` the iteration ends when nothing has happened for that
        time.
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
        """Ends the watch."""
        self._finalize()

    async def aclose(self) -> None:
        """Ends the watch."""
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


def _layout_and_copies(plan: _convert.Plan) -> Tuple[Tuple[Any, ...], Iterable[_nodes.Copy]]:
    if plan.kind == "bytes":
        address, count = _core.address(plan.buffer)
        layout: Tuple[Any, ...] = (_client.KIND_BYTES, count, None, (), False, None)
        return layout, [_nodes.Copy((), 0, 0, address, count, plan)] if count else []
    if plan.kind == "array" and plan.strides is not None and plan.mask is None:
        layout = (_client.KIND_ARRAY, 0, plan.dtype, tuple(plan.shape), False, None)
        return layout, _convert.strided_copies(plan, CHUNK)
    return _client.layout_and_copies(plan, 0)


def _remove(loop: asyncio.AbstractEventLoop, fd: int, client: Any) -> None:
    """Stops polling. `client` is kept until now, so that its descriptor is not another file's."""
    loop.remove_reader(fd)
    loop.remove_writer(fd)
    del client


async def connect(
    path: Optional[str] = None, *, timeout: Optional[float] = 5.0, name: Optional[str] = None,
    resume_timeout: Optional[float] = 10.0, cache_leases: Union[bool, int] = True,
) -> Client:
    """Connects in the running loop; see gpubufd.connect. The greeting itself, one round trip, blocks."""
    client = _client.open_client(path, timeout, name, 0, 60.0, resume_timeout, False,
                                 cache_leases)
    return Client(client, asyncio.get_running_loop())
