"""Client and connect(): the connection to the daemon."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from typing import (
    TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar,
    Union, overload,
)

from . import _convert, _core, _errors, _nodes, _packing, _params, _progress, _provide, _repr, _start, cuda
from ._calls import Calls, Steps, _layout_of, blocking
from ._held import Held
from ._layout import ARRAY, BYTES, DATA, HOST, MASK
from ._names import Names
from ._objects import Array, Table
from ._params import Options
from ._provide import Provider, Wanted
from ._ref import Ref, set_connect
from ._streams import StreamReader, StreamWriter
from ._told import Info, Watch, newer_of
from ._views import View

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from ._kinds import AnyKind

_Kind = TypeVar("_Kind", bound=Held)
_NO_RESUME = -2
_NO_CACHE = -1


# ---- what is put ----


def wait_for(stream: int, device: Optional[int]) -> None:
    cuda.Stream.of(stream, device or 0).synchronize()


def wait_for_streams(plan: _convert.Plan, stream: Optional[int]) -> None:
    """Waits for what the value is being made on."""
    streams = set(plan.streams) if stream is None else {stream, *plan.streams}
    for one in streams:
        wait_for(one, plan.device)
    for event, ordinal in plan.events:
        cuda.wait_for_event(event, ordinal)


def queue_of(plan: _convert.Plan, stream: Optional[int]) -> int:
    """The stream to copy on, behind what makes the value. 0: each copy is done at once."""
    streams = set(plan.streams)
    if stream is None and len(streams) == 1 and not plan.events:
        return streams.pop()
    queue = stream or 0
    plan.streams = [one for one in streams if one != queue]
    wait_for_streams(plan, None)
    return queue


def layout_and_copies(plan: _convert.Plan, stream: int) -> Tuple[Tuple[Any, ...], Iterable[_nodes.Copy]]:
    """The layout to be created for a value, and the copies that fill it."""
    if plan.kind == "bundle":
        return plan.layout, _packing.copies(plan)
    if plan.kind == "bytes":
        address, count = _core.address(plan.buffer)
        copy = _nodes.Copy((), DATA, 0, address, count, plan)
        return (BYTES, count, None, (), False, plan.spec()), [copy] if count else []
    if plan.kind != "array":
        return plan.build(stream)
    layout = (ARRAY, 0, plan.dtype, tuple(plan.shape), plan.mask is not None, plan.spec())
    if plan.strides is not None and plan.mask is None:
        return layout, _convert.strided_copies(plan, _progress.PIECE)
    copies: List[_nodes.Copy] = []
    if plan.mask is not None:
        if plan.strides is not None:
            raise ValueError("it has nulls and is not contiguous: copy it first")
        address, bit = plan.mask
        bits = _nodes.Node("bool", math.prod(plan.shape), offset=bit, device=HOST if plan.device is None else plan.device,
                           data=address, keep=plan)
        copies += [copy._replace(which=MASK) for copy in _nodes.bits(bits, stream)]
    size = _convert.bytes_of(plan.dtype, plan.shape)
    if size:
        copies.append(_nodes.Copy((), DATA, 0, plan.address, size, plan))
    return layout, copies


def fill_and_seal(made: Any, device: Optional[int], copies: Iterable[_nodes.Copy], queue: int, wait: bool) -> int:
    """Fills what was created, by copies of a value on a GPU that are queued on its stream; the version."""
    if queue and made._ordinal not in (HOST, device):
        wait_for(queue, device)  # it is of no use on another GPU
        queue = 0
    try:
        if queue and device is not None and isinstance(copies, list) and len(copies) > 1:  # nothing is queued between them
            with cuda.beside(queue, device) as other:
                _nodes.fill(made, copies, queue, other)
        else:
            _nodes.fill(made, copies, queue)
        if queue and wait:
            wait_for(queue, device)
        made._seal(None, 0 if wait else queue)
    except BaseException:
        if queue:
            wait_for(queue, device)  # the memory is not given up under copies
        raise
    version = made.version
    if queue and not wait:
        made._release_on(queue)  # nobody else gets the memory before the copies are done
    return version


# ---- what is opened ----


def asked(
    name: Union[str, Ref], version: Optional[int], label: Optional[str], kind: Optional[type]
) -> Tuple[str, int, Optional[str]]:
    """The name, version and label to open."""
    if kind is not None and not isinstance(kind, type):
        raise TypeError(f"kind is {kind!r}: expected gpubufd.Table, Array, Column, Bytes or Bundle")
    wanted, number = (name.name, name.version) if isinstance(name, Ref) else (name, version)
    return wanted, _params.which(wanted, number, label).get("version", 0), label


def gone(name: Union[str, Ref], error: Any) -> _errors.Error:
    """The exception where there is no such object; of a Ref, which there was, a Stale."""
    if isinstance(name, Ref):
        error = _errors.failure("stale", f"{name!r} is gone: {error}")
    return error


def opened(held: Any, name: Union[str, Ref], kind: Optional[type], instance: str) -> Any:
    """The opened object, if it is the one that was meant: of that kind, and of that daemon."""
    if isinstance(name, Ref) and name.instance not in ("", instance):
        held.release()
        raise gone(name, "its daemon was stopped, and the one that is there now has never had it")
    if kind is not None and not isinstance(held, kind):
        told = f"{held.name!r} is of the kind {type(held).__name__}, not {kind.__name__}"
        held.release()
        raise TypeError(told)
    return held


_create = blocking(Calls.create)


class Client(_core.Client, Steps, Names):
    """A connection to the daemon; made by connect(). Any thread may use it at any time.

    Objects that it opens stay leased until they are released, or until the connection ends. close(), or the end of a
    `with`, releases every object that Python holds of the client. Arrays that NumPy, Arrow or DLPack made of them stay
    readable, and keep the connection until they are released too.

    Times are in seconds; a `ttl` may also be a timedelta, or text such as "90s", "15m", "1h", "2d". A `timeout` of
    None means not to wait.
    """

    _commits = True

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._mine: Dict[str, Any] = {}  # what share_mine() shares, by name
        self._providers: List[Provider] = []
        self._connecting = keywords
        self._path: Optional[str] = keywords["path"] and os.path.abspath(keywords["path"])
        resume_ms: int = keywords["resume_ms"]
        self._resumes = resume_ms != _NO_RESUME
        self._starts = keywords["start"] is not None
        self._resume_seconds = 10.0 if not resume_ms else float("inf") if resume_ms < 0 else resume_ms / 1000

    def close(self) -> None:
        """Close the connection, and release what Python holds of it. Closing twice is allowed."""
        for provider in self._providers:
            provider._abandon()
        super().close()
        self._mine.clear()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Client cannot be pickled: connect() in the other process")

    def __repr__(self) -> str:
        if self.closed:
            return "<gpubufd.Client, closed>"
        return f"<gpubufd.Client, session {self.session}>"

    def _repr_html_(self) -> str:
        return _repr.of_client(self)

    # ---- the steps of calls ----

    @property
    def _client(self) -> "Client":
        return self

    def _now(self, what: str, *arguments: Any) -> Any:
        """Makes a request of `_core.Client`, and waits for its answer."""
        outcome: List[Any] = []
        self._wait(getattr(self, what + "_async")(*arguments, lambda *answer: outcome.append(answer)), outcome)
        error, result = outcome.pop()
        if error is None:
            return result
        try:
            closed = self.closed and isinstance(error, _errors.Canceled)
            raise _errors.failure("closed", "the connection was closed") if closed else error
        finally:
            del error  # whose traceback has this frame

    async def _do(self, what: str, *arguments: Any) -> Any:
        return self._now(what, *arguments)

    def _create(self, name: str, layout: Tuple[Any, ...], opts: Tuple[Any, ...]) -> Any:
        return self._now("_create", name, layout, opts)

    async def _answer(self, method: str, text: Optional[str], timeout: Optional[float]) -> str:
        return self._call(method, text, -1 if timeout is None else max(_params.ms(timeout), 1))

    async def _settle(self, plan: _convert.Plan, stream: Optional[int]) -> None:
        wait_for_streams(plan, stream)

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    async def _publish(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> int:
        replace = opts[2]
        until = time.monotonic() + self._resume_seconds if replace and self._resumes else 0.0
        while True:
            try:
                if plan.nbytes is not None and plan.nbytes < _progress.PIECE:
                    return self._put_plan(name, plan, on, opts, wait)
                with _progress.of(name, plan.nbytes):
                    return self._put_plan(name, plan, on, opts, wait)
            except (_errors.Closed, _errors.Stale):  # the daemon went meanwhile: done again, it comes to the same
                if self.closed or time.monotonic() >= until:
                    raise

    def _put_plan(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> int:
        if plan.kind == "bytes" and not plan.metadata:
            return self._put_bytes(name, plan.buffer, opts)
        if plan.kind == "arrow":
            wait_for_streams(plan, on)
            version = self._put_arrow(name, plan.source, plan.table, opts)
            if version is not None:
                return version
            plan.into_columns()
        in_one_go = plan.strides is not None or plan.device is None
        if plan.kind == "array" and in_one_go and not plan.mask and not plan.metadata:
            wait_for_streams(plan, on)
            return self._put_array(name, plan.dtype, plan.shape, plan.strides, plan.address, opts)
        queue = queue_of(plan, on)
        layout, copies = layout_and_copies(plan, queue)
        with self._create(name, layout, opts) as made:
            return fill_and_seal(made, plan.device, copies, queue, wait)

    def _ref(self, name: str, version: int) -> Ref:
        return Ref(name, version, self.instance, self._path)

    # ---- the calls ----

    call = blocking(Calls.call)
    ref = blocking(Calls.ref)
    get_many = blocking(Calls.get_many)
    put = blocking(Calls.put)
    put_many = blocking(Calls.put_many)
    put_bundle = blocking(Calls.put_bundle)
    open = blocking(Calls.open)
    claim = blocking(Calls.claim)
    edit = blocking(Calls.edit)
    share_mine = blocking(Calls.share_mine)
    save = blocking(Calls.save)
    load = blocking(Calls.load)
    list = blocking(Calls.list)
    stat = blocking(Calls.stat)
    delete = blocking(Calls.delete)
    pin = blocking(Calls.pin)
    unpin = blocking(Calls.unpin)
    expire = blocking(Calls.expire)
    spill = blocking(Calls.spill)
    restore = blocking(Calls.restore)
    alias = blocking(Calls.alias)
    leases = blocking(Calls.leases)
    stats = blocking(Calls.stats)
    devices = blocking(Calls.devices)

    @overload
    def create(
        self, name: str, dtype: Mapping[str, Any], shape: Union[int, Sequence[int]], *, nulls: bool = ...,
        metadata: Optional[Mapping[str, str]] = ..., **options: Unpack[Options],
    ) -> Table: ...

    @overload
    def create(
        self, name: str, dtype: Union[str, type, "numpy.dtype[Any]"], shape: Union[int, Sequence[int]], *,
        nulls: bool = ..., metadata: Optional[Mapping[str, str]] = ..., **options: Unpack[Options],
    ) -> Array: ...

    @functools.wraps(Calls.create)
    def create(self, *arguments: Any, **keywords: Any) -> Any:
        return _create(self, *arguments, **keywords)

    @overload  # type: ignore[override]  # a Mapping's has a default
    def get(
        self, name: Union[str, Ref], *, timeout: Optional[float] = ..., version: Optional[int] = ...,
        label: Optional[str] = ...,
    ) -> AnyKind: ...

    @overload
    def get(
        self, name: Union[str, Ref], *, timeout: Optional[float] = ..., version: Optional[int] = ...,
        label: Optional[str] = ..., kind: Type[_Kind],
    ) -> _Kind: ...

    def get(
        self, name: Union[str, Ref], *default: Any, timeout: Optional[float] = None, version: Optional[int] = None,
        label: Optional[str] = None, kind: Optional[type] = None,
    ) -> Any:
        """Open what was published under a name, without a copy: an Array, Column, Table, Bytes or Bundle.

        `name`: a name, or a Ref, which names one version. `timeout`: how many seconds to wait until the name, or the
        label, exists. `version`: only this version. `label`: the newest version with this label. `kind`:
        gpubufd.Table, Array, Column, Bytes or Bundle, which type checkers understand; TypeError if the object is
        another.

        NotFound (a KeyError): there is no such object, or none that this user may read. Timeout (a TimeoutError).
        Stale: the name does not have that version any more.
        """
        if default:
            raise TypeError("get() takes one name, and no default: catch gpubufd.NotFound, or ask `name in client`; "
                            "get(name, timeout=seconds) waits, get_many(names) opens several")
        wait_ms = 0 if timeout is None else _params.ms(timeout)
        if kind is None and version is None and label is None and not isinstance(name, Ref):
            return self._now("_open", name, 0, wait_ms, None, False, False) if wait_ms else self._open(name, 0, None)
        at, number, label = asked(name, version, label, kind)
        try:
            held = self._now("_open", at, number, wait_ms, label, False, False)
        except (_errors.NotFound, _errors.Stale) as error:
            raise gone(name, error) from None
        return opened(held, name, kind, self.instance)

    def __getitem__(self, name: Union[str, Ref]) -> AnyKind:
        """get(name)"""
        return self.get(name) if isinstance(name, Ref) else self._open(name, 0, None)

    def __contains__(self, name: object) -> bool:
        """Whether a name, or the version of a Ref, is published."""
        if not isinstance(name, (str, Ref)):
            return False
        if isinstance(name, Ref) and name.instance not in ("", self.instance):
            return False
        try:
            if isinstance(name, Ref):
                self.stat(name.name, version=name.version)
            else:
                self.stat(name)
        except (_errors.NotFound, _errors.Stale, _errors.Invalid):
            return False
        return True

    def provide(
        self, prefix: str, load: Callable[[Wanted], Any], *, threads: int = 4,
        load_timeout: Optional[float] = _provide.LOAD_TIMEOUT, keep_refusals: float = 0.0, **options: Any,
    ) -> Provider:
        """Make objects on demand, when a client waits for an absent name that begins with `prefix`; return a Provider.

            client.provide("cols/", lambda name: read(name[len("cols/"):]), evict="drop")

        `load` is called with the name, a str with the `uid` and `gid` of the client that asked first. It returns a
        value, which is published with `options`, those of put(); None: it has published the name itself. It runs once,
        however many wait. Any get() or get_many() with a timeout asks, on this machine only. An exception of `load`
        ends the waiting calls with its message: a LookupError or FileNotFoundError as NotFound, others as Unavailable.
        Calls within the next `keep_refusals` seconds get the same error.

        After `load_timeout` seconds (None: no limit) waiting calls raise Unavailable, as do later ones until that load
        has ended. Its thread cannot be stopped: another takes its place, up to `threads` times, and its value is still
        published.

        `load` runs in `threads` threads, over a connection of its own, so it may use this client. The Provider's
        close(), the end of a `with`, or the client's close() ends it; it survives restarts of the daemon. Denied:
        `gpubufd --provider` does not let this user provide the prefix.
        """
        _provide.check(load, threads, load_timeout, keep_refusals, Client.put, options)
        provider = Provider(
            Client(**self._connecting), prefix, load, threads, load_timeout, keep_refusals, options
        )
        self._providers = [one for one in self._providers if not one.closed] + [provider]
        return provider

    # ---- watching ----

    def versions(self, name: str, *, timeout: Optional[float] = None) -> Iterator[Info]:
        """Iterate over the Infos of a name's versions: the current one, then each that is published.

            for info in client.versions("weights"):
                use(client.get("weights", version=info.version))

        Each version comes once, in order. With a `timeout` the iteration ends when none has come for that time;
        close() ends it too.
        """
        with self.watch(name, timeout=timeout) as watch:
            newer = newer_of(name)
            for event in watch:
                if newer(event):
                    yield event.info  # type: ignore[misc]

    def follow(
        self, name: str, *, timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None
    ) -> View:
        """Open a name as a View, which shows one version after another at the same addresses.

        All versions must have one layout, and a segment of their own: put(own=True), or Bundles of 16 MiB and more.
        Arguments as of get(). Unsupported: the object shares its segment.
        """
        return View(self, name, timeout, version, label)

    def stream(
        self, name: str, dtype: Any, shape: Any = (), *, slots: int = 8, device: Optional[str] = None,
        mode: _params.Mode = None, timeout: Optional[float] = None,
    ) -> StreamWriter:
        """Create a stream, or take it over, and become its writer; return a StreamWriter.

            with client.stream("cam0", "uint8", (480, 640, 3)) as camera:
                with camera.next() as frame:
                    frame.array[:] = picture

        Frames have this dtype and shape. `slots`: how many frames the memory holds, 2 to 128; readers keep some of
        them. `mode`: who may read (0o640: the group). `timeout`: how long to wait for the former writer to end. The
        stream stays when its writer ends; delete() removes it. Busy, with a timeout Timeout: it has a writer. Exists:
        the name has another kind of object.
        """
        found = _layout_of(dtype, shape, False)
        return StreamWriter(
            self, name, found[2], found[3], device, _params.mode_bits(mode), slots, _params.ms(timeout), False, False,
            0, 0, False)

    def read(
        self, name: str, *, each: bool = False, waits: bool = False, lag: int = 0, hold: int = 1,
        ahead: bool = False, timeout: Optional[float] = None,
    ) -> StreamReader:
        """Join a stream as a reader; return a StreamReader, an iterator over its frames, in place.

            for frame in client.read("cam0"):
                show(frame.array)

        By default each frame is the newest one. `each`: every frame, in order; the newest `lag` (default 2) are kept
        for this reader. `waits`: ask the writer to wait before this reader misses one. `hold`: how many frames it may
        hold at once. `ahead`: take frames on a GPU before the writer's work on them is done, see Frame.wait() and
        StreamReader.read(). `timeout`: how long to wait for the stream to exist. Busy: too few slots for one more
        reader.
        """
        return StreamReader(self, name, None, (), None, 0, 0, _params.ms(timeout), each, waits, lag, hold, ahead)

    def watch(self, prefix: str = "", *, timeout: Optional[float] = None) -> Watch:
        """Iterate over the Events of names that begin with `prefix`; return a Watch.

        First, each existing object comes as "sealed"; then comes "synced". With a `timeout` the iteration ends when
        nothing has happened for that time; otherwise it never ends.
        """
        return Watch(self, prefix or None, timeout)


def connect(
    path: Optional[str] = None, *, timeout: Optional[float] = 5.0, name: Optional[str] = None,
    cache_bytes: int = 0, resume_timeout: Optional[float] = 10.0, cache_leases: Union[bool, int] = True,
    start: Union[bool, Sequence[str]] = False,
) -> Client:
    """Connect to the daemon; return a Client.

    `path`: its socket; None: $GPUBUFD_SOCKET, else $NVIDIA_DRA_LOCAL_IPC_DIR/gpubufd.sock or /run/gpubufd/gpubufd.sock
    if it exists, else $XDG_RUNTIME_DIR/gpubufd.sock, else /tmp/gpubufd-UID/gpubufd.sock. `timeout`: how many seconds
    to try; None: no limit. `name`: what `gpubufctl ps` shows. `cache_bytes`: how many bytes of mappings to keep for
    later opens; 0: 1 GiB. `resume_timeout`: how many seconds to try to reconnect after the connection broke, before
    calls raise Closed or ConnectFailed; None: no limit; 0: do not try. Meanwhile open objects stay readable.

    `cache_leases`: how many objects that were opened twice stay open for ten seconds after their last use, so that the
    next get() needs no request; True: 1024; False: none. A get() that begins after a name changed sees the change, and
    the daemon takes such objects back when it lacks room.

    `start`: start a daemon for this user if none answers; True, or the daemon's options, such as ["--device",
    "cuda:0:8G"]. It outlives this process. It exits, and frees its objects, on `gpubufctl stop` or after ten minutes
    without a connection; this client then starts another. If it crashes it is restarted, and published objects
    survive. A running daemon keeps its options: a RuntimeWarning names those that it lacks. The log is
    ~/.local/state/gpubufd/log. Denied: a daemon of another user answers at `path`.

    After a restart without its objects, the daemon is a new one: calls connect to it, `client.instance` changes, and
    held objects stay readable and are `stale`.

    ConnectFailed (a ConnectionError): no daemon is there. Timeout. Unsupported: it speaks another version of the
    protocol.
    """
    return open_client(path, timeout, name, cache_bytes, resume_timeout, True, cache_leases, start)


def open_client(
    path: Optional[str], timeout: Optional[float], name: Optional[str], cache_bytes: int,
    resume_timeout: Optional[float], patient: bool, cache_leases: Union[bool, int],
    start: Union[bool, Sequence[str]] = False,
) -> Client:
    """connect(); `patient`: calls wait for a daemon that is being started anew."""
    for what, number in (("cache_bytes", cache_bytes), ("cache_leases", cache_leases)):
        if number < 0:
            raise ValueError(f"{what} is {number}: expected 0 or more")
    if isinstance(start, str):
        raise TypeError(f"start is {start!r}: expected True, or a list of the daemon's options")
    place = None if path is None else os.fspath(path)
    starter = None if start is False else _start.Starter(place, [] if start is True else start)
    client = Client(
        path=place,
        patient=patient,
        name=name,
        timeout_ms=-1 if timeout is None else max(_params.ms(timeout), 1),
        cache_bytes=cache_bytes,
        resume_ms=-1 if resume_timeout is None else _params.ms(resume_timeout) or _NO_RESUME,
        cache_leases=0 if cache_leases is True else int(cache_leases) or _NO_CACHE,
        own_daemon=starter is not None and place is not None,
        start=starter,
    )
    if starter:
        starter.tell_missing()
    return client


_clients: Dict[Tuple[Any, ...], Client] = {}
_connecting = threading.Lock()


def _forked() -> None:
    global _connecting
    _connecting = threading.Lock()  # a thread that the child does not have may hold the parent's


os.register_at_fork(after_in_child=_forked)


def default_client(path: Optional[str] = None, **options: Any) -> Client:
    """This process' own connection, made at its first use with these options of connect(). A child of fork() has its own."""
    key = os.getpid(), path or os.environ.get("GPUBUFD_SOCKET"), *sorted(options.items())
    with _connecting:
        found = _clients.get(key)
        if found is None or found.closed:
            found = _clients[key] = connect(path, **options)
        return found


def forget(client: Client) -> None:
    """Has default_client() make another connection, and leaves this one to those who hold objects of it."""
    with _connecting:
        for key in [key for key, one in _clients.items() if one is client]:
            del _clients[key]


set_connect(default_client)
