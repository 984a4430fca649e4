"""The same calls for asyncio, driven by the connection's own socket: no threads.

    async with await gpubufd.aio.connect() as client:
        await client.put("a", values)
        a = await client.get("b", timeout=10)
        async for event in client.watch("sales/"):
            ...

What waits for somebody else (get, create, list, stat, watch …) never blocks the loop. put() allocates and
seals without blocking, too, where the value becomes an array or bytes; of tables and columns it blocks
for the copy and two round trips. A client belongs to the loop that it was connected in.
"""

from __future__ import annotations

import asyncio
import json
import select
from typing import Any, AsyncIterator, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from . import _client, _convert, _core, _errors
from ._client import Event, Info


class Client:
    """A connection for asyncio; made by `await connect()`. The calls are those of gpubufd.Client."""

    def __init__(self, client: _client.Client, loop: asyncio.AbstractEventLoop):
        self._client = client
        self._loop = loop
        self._fd = client.fileno()
        self._writing = False
        self._queues: List[asyncio.Queue] = []
        loop.add_reader(self._fd, self._ready)

    # ---- the loop ----

    def _ready(self) -> None:
        try:
            self._client._dispatch()
        except _errors.Error:
            # The connection is lost; every request has been ended with that.
            self._detach()
            for queue in self._queues:
                queue.put_nowait(None)
            return
        self._arm()

    def _arm(self) -> None:
        """Waits for room in the socket while there is something to be sent."""
        if self._client.closed or self._fd < 0:
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
            self._fd = -1

    async def _request(self, begin: Any, *args: Any) -> Any:
        """What a request answers. If the waiting task is cancelled, so is the request."""
        future = self._loop.create_future()

        def settle(error, result):
            if future.done():
                return  # cancelled: what came all the same is released with `result`
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def done(error, result):  # in whichever thread dispatches
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
        """Whether it was closed here."""
        return self._client.closed

    @property
    def sync(self) -> _client.Client:
        """The same connection with blocking calls."""
        return self._client

    def close(self) -> None:
        """As gpubufd.Client.close(). Requests under way end with Canceled, watches end."""
        self._detach()
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

    async def call(self, method: str, params: Optional[dict] = None) -> Any:
        """Any method of the protocol that carries no descriptors."""
        text = None if params is None else json.dumps(params)
        return json.loads(await self._request(self._client._call_async, method, text))

    async def get(self, name: str, timeout: Optional[float] = None, *, version: int = 0) -> Any:
        """Opens what was published under a name; see gpubufd.Client.get."""
        wait = _client._ms(timeout) if timeout else 0
        return await self._request(self._client._open_async, name, version, wait)

    async def get_many(
        self, names: Iterable[str], timeout: Optional[float] = None, *, errors: str = "raise"
    ) -> List[Any]:
        """Opens many objects at once, in the order of `names`."""
        if errors not in ("raise", "return"):
            raise ValueError('errors is "raise" or "return"')
        return await asyncio.gather(
            *(self.get(name, timeout) for name in names), return_exceptions=errors == "return"
        )

    async def create(
        self, name: str, dtype: Any, shape: Union[int, Sequence[int]], *, nulls: bool = False,
        device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: str = "spill",
        replace: bool = False, timeout: Optional[float] = None,
    ) -> Any:
        """Allocates an object to be filled in place; `await client.seal(it)` publishes it."""
        opts = _client.options(device, share, mode, ttl, evict, replace, timeout)
        layout = _client.layout_of(dtype, shape, nulls)
        return await self._request(self._client._create_async, name, layout, opts)

    async def seal(self, created: Any) -> None:
        """Publishes what create() made."""
        await self._request(self._client._seal_async, created)

    async def put(
        self, name: str, value: Any, *, device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: str = "spill",
        replace: bool = False, stream: Optional[int] = None, timeout: Optional[float] = None,
    ) -> None:
        """Publishes a copy of a value; see gpubufd.Client.put. `timeout` holds for arrays and bytes."""
        plan = _convert.plan(value)
        simple = plan.kind == "array" and plan.strides is None and plan.device is None
        if plan.kind != "bytes" and not simple:
            self._client.put(
                name, value, device=device, share=share, mode=mode, ttl=ttl, evict=evict,
                replace=replace, stream=stream,
            )
            self._arm()
            return
        opts = _client.options(device, share, mode, ttl, evict, replace, timeout)
        if plan.kind == "bytes":
            address, count = _core.address(plan.buffer)
            layout: Tuple = (_client.KIND_BYTES, count, None, (), False, None)
        else:
            address = plan.address
            layout = (_client.KIND_ARRAY, 0, plan.dtype, tuple(plan.shape), False, None)
        with await self._request(self._client._create_async, name, layout, opts) as made:
            size = made._view().nbytes
            if size:
                made._write(0, 0, address, size, 0)
            await self.seal(made)
        del plan

    async def list(self, prefix: str = "") -> List[Info]:
        """What is published under names that begin with `prefix`, in the order of names."""
        found: List[Info] = []
        params: Dict[str, Any] = {"prefix": prefix} if prefix else {}
        while True:
            answer = await self.call("list", params)
            found += [Info._of(record) for record in answer["objects"]]
            if "cursor" not in answer:
                return found
            params["cursor"] = answer["cursor"]

    async def stat(self, name: str) -> Info:
        """What the daemon knows of an object. NotFound."""
        return Info._of((await self.call("stat", {"name": name}))["object"])

    async def delete(self, *names: str, missing_ok: bool = False) -> None:
        """Removes names. NotFound, unless `missing_ok`."""
        for name in names:
            try:
                await self.call("delete", {"name": name})
            except _errors.NotFound:
                if not missing_ok:
                    raise

    async def pin(self, name: str) -> None:
        """Keeps an object from being evicted."""
        await self.call("pin", {"name": name})

    async def unpin(self, name: str) -> None:
        """Takes a pin back."""
        await self.call("unpin", {"name": name})

    async def alias(
        self, name: str, of: str, *, rows: Optional[Tuple[int, int]] = None,
        columns: Optional[Sequence[str]] = None, mode: Union[int, str, None] = None,
        replace: bool = False,
    ) -> None:
        """Gives an object, or a part of it, another name."""
        await self.call("alias", _client._alias(name, of, rows, columns, mode, replace))

    async def leases(self, name: Optional[str] = None) -> List[dict]:
        """Who holds what."""
        return (await self.call("leases", {"name": name} if name else {}))["leases"]

    async def stats(self) -> dict:
        """The daemon's counters."""
        return await self.call("stats")

    async def watch(self, prefix: str = "") -> AsyncIterator[Event]:
        """What happens to names that begin with `prefix`: what exists first, then "synced"."""
        queue: asyncio.Queue = asyncio.Queue()
        loop = self._loop

        def on_event(*fields):  # in whichever thread dispatches
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, _client._event(*fields))

        watch = self._client._watch(prefix or None, on_event)
        self._arm()
        self._queues.append(queue)
        try:
            while True:
                event = await queue.get()
                if event is None:
                    return
                yield event
        finally:
            self._queues.remove(queue)
            self._client._unwatch(watch)


def _remove(loop: asyncio.AbstractEventLoop, fd: int, client: Any) -> None:
    """`client` is kept so that nobody else has its descriptor by now."""
    loop.remove_reader(fd)
    loop.remove_writer(fd)
    del client


async def connect(
    path: Optional[str] = None, *, timeout: Optional[float] = 5.0, name: Optional[str] = None
) -> Client:
    """Connects in the running loop; see gpubufd.connect. The greeting itself, one round trip, blocks."""
    return Client(_client.connect(path, timeout=timeout, name=name), asyncio.get_running_loop())
