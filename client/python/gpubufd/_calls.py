"""The calls that gpubufd.Client and gpubufd.aio.Client share, each written once, as a coroutine.

They are the methods of aio.Client. Client has blocking() of each: there no member of Steps suspends the coroutine, so
that it runs to its end at once.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar
from typing import Union

from . import _convert, _errors, _files, _packing, _params, cuda
from ._files import FilePath
from ._layout import ARRAY, TABLE
from ._params import Errors, Evict, Mode, Options, Rows, Scope, Seconds
from ._ref import Ref
from ._told import Info, Listing

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    from ._kinds import AnyKind

    _P = ParamSpec("_P")
_R = TypeVar("_R")

ANSWER = 60.0  # seconds that an answer may take
MOVE = 120.0  # the same where an object moves: the daemon gives its own work one minute


def blocking(work: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]]) -> Callable[Concatenate[Any, _P], _R]:
    """The method of Client that a coroutine of Calls describes."""

    @functools.wraps(work)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            work(self, *arguments, **keywords).send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a blocking call was suspended")

    return method  # type: ignore[return-value]


class Steps:
    """The steps of calls; each client has these members in a form of its own."""

    _client: Any  # the gpubufd.Client
    _commits = False  # whether the end of a `with` publishes an object of create()

    async def _do(self, what: str, *arguments: Any) -> Any:
        """A request of `_core.Client`."""

    async def _answer(self, method: str, text: Optional[str], timeout: Optional[float]) -> str:
        """The text of an answer."""
        raise NotImplementedError

    async def _publish(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> int:
        """Creates, fills and seals an object; its version."""
        raise NotImplementedError

    async def _put(
        self, name: str, plan: _convert.Plan, on: Optional[int], wait: bool, opts: Tuple[Any, ...]
    ) -> Ref:
        if not isinstance(name, str):
            raise TypeError(f"put(name, value): the name is a str, not {type(name).__name__}")
        if plan.device is not None and opts[0] is None:  # it goes to the GPU that it is on
            opts = (cuda.Device(plan.device).uuid, *opts[1:])
        return self._client._ref(name, await self._publish(name, plan, on, opts, wait))

    async def _settle(self, plan: _convert.Plan, stream: Optional[int]) -> None:
        """Waits for the streams and events that make the value."""

    async def _aside(self, work: Callable[..., _R], *arguments: Any) -> _R:
        """Reads or writes a file."""
        raise NotImplementedError

    async def _ask(
        self, method: str, params: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = ANSWER
    ) -> Any:
        text = None if params is None else json.dumps(params)
        return json.loads(await self._answer(method, text, timeout))

    async def _stat(self, name: str, version: Optional[int] = None, label: Optional[str] = None) -> Info:
        return Info._of((await self._ask("stat", _params.which(name, version, label)))["object"])

    async def _list(self, names: str, versions: bool = False) -> List[Info]:
        found: List[Info] = Listing()
        params: Dict[str, Any] = {"prefix": _params.prefix_of(names), "versions": versions}
        while True:
            answer = await self._ask("list", params)
            found += [Info._of(record) for record in answer["objects"] if _params.matches(record["name"], names)]
            if "cursor" not in answer:
                return found
            params["cursor"] = answer["cursor"]

    async def _each(
        self, method: str, names: Sequence[str], version: Optional[int] = None, label: Optional[str] = None,
        missing_ok: bool = False, timeout: float = ANSWER, params: Mapping[str, Any] = {},
    ) -> List[str]:
        """Calls a method for each name, or those that match it; returns them. A name that an object has is no pattern.
        """
        one = version is not None or label is not None
        if one and len(names) != 1:
            raise ValueError(f"version and label are about one name, not {len(names)}")
        done = []
        for name in names:
            done.append(name)
            try:
                await self._ask(method, {**_params.which(name, version, label), **params}, timeout)
                continue
            except (_errors.NotFound, _errors.Stale, _errors.Invalid) as error:
                pattern = not one and _params.is_pattern(name)
                if not pattern and (not missing_ok or isinstance(error, _errors.Invalid)):
                    raise
            found = [info.name for info in await self._list(name)] if pattern else []
            if pattern and not found and not missing_ok:
                raise _errors.failure("not_found", f"no object matches {name!r}")
            done += found
            for each in found:
                try:
                    await self._ask(method, {"name": each, **params}, timeout)
                except _errors.NotFound:  # deleted meanwhile
                    pass
        return done


class Calls(Steps):
    """The calls. Times are in seconds; a `ttl` may also be a timedelta, or text such as "90s", "15m", "1h", "2d"."""

    async def call(
        self, method: str, params: Optional[Mapping[str, Any]] = None, *, timeout: Optional[float] = ANSWER
    ) -> Any:
        """Call any method of the protocol that carries no descriptors; return its result as Python values.

        `timeout`: how many seconds the answer may take; None: no limit.
        """
        return await self._ask(method, params, timeout)

    # ---- reading ----

    async def ref(self, name: str) -> Ref:
        """Return a Ref to the version that a name has now, for other processes. NotFound."""
        return self._client._ref(name, (await self._stat(name)).version)

    async def get_many(
        self, names: Iterable[str], *, timeout: Optional[float] = None, errors: Errors = "raise"
    ) -> List[AnyKind]:
        """Open many objects in one round trip; return them in the order of `names`.

        With errors="return" the list has an exception in the place of each object that could not be opened. Otherwise
        the first exception is raised, and nothing stays open.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f'errors is {errors!r}: expected "raise" or "return"')
        if isinstance(names, str):
            raise TypeError(f"names is {names!r}: expected several names, such as a list")
        asked = tuple(names)
        if not asked:
            return []
        results: List[Any] = await self._do("_open_many", asked, _params.ms(timeout))
        for name, result in zip(asked, results):
            if isinstance(result, _errors.Error):
                result.args = (f"{name!r}: {result}",)
                if errors == "raise":
                    raise result
        return results

    # ---- publishing ----

    async def put(
        self, name: str, value: Any, *, device: Optional[str] = None, mode: Mode = None,
        ttl: Optional[Seconds] = None, evict: Evict = None, replace: bool = False, stream: Any = None,
        timeout: Optional[float] = None, final: bool = False, nan_as_null: bool = False,
        label: Optional[str] = None, keep: int = 0, scope: Scope = "local", own: bool = False,
        wait: bool = True, metadata: Optional[Mapping[str, str]] = None,
    ) -> Ref:
        """Publish a copy of a value under a name; return a Ref, which has the version.

        An Array is made of NumPy arrays, tensors and anything with DLPack, the buffer protocol or
        `__cuda_array_interface__`; a Column of lists, arrays of strings, masked arrays, pandas and cuDF Series, Arrow
        arrays; a Table of a dict of columns, frames, Arrow tables and streams, a list of record batches, structured
        arrays. Bytes are made of bytes, bytearray and str (UTF-8; decode() returns the str). A Bundle stays one;
        put_bundle() makes one.

        `device`: "host", "cuda:0" (in the daemon's numbering) or a GPU's UUID; None: the GPU that the value is on,
        else the daemon's default. `mode`: the rights of others to read (0o640) and to replace or delete (0o660).
        `ttl`: delete the object after this time. `evict`: what happens when memory is short, "spill", "drop" or
        "keep"; None: the daemon's --evict, "spill" unless set. `replace`: take the name from an object that has it.
        `timeout`: how long to wait for memory.

        `stream`: the CUDA stream that the value is being made on, a handle or a stream of CuPy, PyTorch, numba,
        cuda.core or gpubufd.cuda. Copies on the GPU are queued there, and waited for. With wait=False put() returns
        when they are queued: readers' streams wait for them on the GPU. Keep the value, and this client, until the
        stream is done; let only work on that stream change the value.

        `label`: your label for this version, such as "step-42". `keep`: how many older versions of the name can still
        be opened, 0 to 8; others are freed with their last reader. `scope`: with "cluster" other machines can open the
        object, through gpubufd-peer. `own`: a segment of its own, for Client.follow(). `final`: the kernel protects
        the memory from every writer, this program included; on the host only. `nan_as_null`: NaN in columns of floats
        on the host is null. `metadata`: up to 256 strings by string, which `client[name].metadata` has.

        A DataFrame's index is kept, as columns unless it is 0, 1, 2, …; to_pandas() restores it, and dtypes that Arrow
        lacks. With `replace`, a put that a crash of the daemon interrupts is repeated within the client's
        `resume_timeout`.

        TypeError, ValueError: the value cannot be published; the message names the column and a remedy. Exists (a
        FileExistsError), NoSpace (a MemoryError), Denied (a PermissionError).
        """
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on, nan_as_null)
        if metadata:
            plan.add_metadata(metadata)
        return await self._put(name, plan, on, wait, _params.options(
            device, mode, ttl, evict, replace, timeout, final, label, keep, scope, own))

    async def put_many(self, /, values: Mapping[str, Any], **options: Any) -> Dict[str, Ref]:
        """Publish many values by name, one after the other, with the options of put(); return the Refs by name.

        After an exception the values before it stay published. put_bundle() publishes many arrays at once.
        """
        return {name: await Calls.put(self, name, value, **options) for name, value in values.items()}

    async def put_bundle(
        self, /, name: str, tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None, *,
        stream: Any = None, wait: bool = True, **options: Unpack[Options],
    ) -> Ref:
        """Publish copies of many arrays as one Bundle, all of them or nothing; return a Ref.

        `tensors`: arrays by name, of a dtype that safetensors has; what put() makes an Array of. `metadata`: strings
        by string. `options` and errors are those of put().
        """
        on = None if stream is None else cuda.handle_of(stream)
        return await self._put(name, _packing.tensors(tensors, metadata, on), on, wait, _params.options(**options))

    async def create(
        self, /, name: str, dtype: Any, shape: Union[int, Sequence[int]], *, nulls: bool = False,
        metadata: Optional[Mapping[str, str]] = None, **options: Unpack[Options],
    ) -> Any:
        """Allocate an object to be filled in place; seal() publishes it.

        It is an Array of `shape`, in elements. If `dtype` is a dict of dtypes by column name, it is a Table of `shape`
        rows. dtypes are the protocol's ("float64", "timestamp[us]") or NumPy's ("f8", numpy.float64), of a fixed
        width. The memory is not zeroed. On the host write to `a.to_numpy()`; on a GPU pass `a`, which has
        `__cuda_array_interface__`, or call `a.write(values)`. nulls=True adds bitmaps of valid elements, all to be
        written: `a.buffers.validity.bits`.

        Until seal() nobody else sees the object, and release() discards it. A `with` block that ends normally seals
        it; an exception in the block discards it. With an asyncio client no block seals it: `await client.seal(a)`.
        `metadata`, `options` and errors are those of put(), without `stream` and `wait`.

        With live=True it is never sealed. It has its name at once, others read it while it is written, and those whom
        its `mode` allows (0o660: its group) write it through open() and claim(). It stays when its creator exits.
        """
        layout = _layout_of(dtype, shape, nulls, _convert.pairs(metadata or {}) or None)
        made = await self._do("_create", name, layout, _params.options(**options))
        made._commits = self._commits
        return made

    async def open(self, name: str, *, write: bool = False, timeout: Optional[float] = None) -> AnyKind:
        """Open a live object for writing; without `write`: as get().

        Other writers may be active. Arrays made of it can be written, on a GPU too. Others see each write at once:
        your program must tell them which parts are complete. `timeout`: how long to wait for the name, and for a claim
        to end. Release it only when your work on the GPU is done.

        Denied: its mode does not allow it. Unsupported: it is not live. Busy, with a timeout Timeout: it is claimed.
        """
        return await self._do("_open", name, 0, _params.ms(timeout), None, write, False)

    async def claim(self, name: str, *, timeout: Optional[float] = None) -> AnyKind:
        """Open a live object as its only writer; its `generation` counts the claims.

            with client.claim("pool", timeout=10) as memory:
                print(memory.generation, memory.to_numpy())

        `timeout`: how long to wait for other writers to end. A writer ends when it releases the object, or when its
        connection and its process have ended: a killed one at once, a stopped one not. Arrays made of the object keep
        its lease. Errors as of open().
        """
        return await self._do("_open", name, 0, _params.ms(timeout), None, True, True)

    async def edit(
        self, name: str, *, timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None
    ) -> AnyKind:
        """Return a copy of a sealed object, to change and publish as the name's next version.

            with client.edit("weights") as array:
                array.to_numpy()[3] = 0

        The copy is on the same device. The end of the `with` block publishes it; an exception in the block discards
        it. Its layout cannot change: an array keeps its shape, a text its length. Readers keep the version that they
        have. The new one has the old one's device, mode, `evict`, `keep`, `ttl`, `scope`, `final`, `own` and metadata,
        and no label. Of two editors the last one wins. `timeout`: how long to wait for the object, and for memory.
        `version`, `label`: which version to copy; None: the current one.

        Errors as of get() and create(). Denied: its mode does not let you replace it. Unsupported: it is live.
        """
        which = _params.which(name, version, label)
        made = await self._aside(self._client._edit, name, which.get("version", 0), label, _params.ms(timeout))
        made._commits = self._commits
        return made

    async def share_mine(
        self, name: str, value: Any, *, mode: Mode = None, ttl: Optional[Seconds] = None, replace: bool = False,
        stream: Any = None,
    ) -> Ref:
        """Publish GPU memory of your own without copying it; return a Ref.

        `value` is anything on a GPU that put() takes: an array with `__cuda_array_interface__` or DLPack, a column
        with its nulls, a cuDF Series or frame, an Arrow array or record batch, a dict of columns. A slice is shared as
        it lies. The memory must be in at most 16 allocations.

        Keep the value unchanged until the object is deleted and its readers have released it. The client holds a
        reference to it until the name is deleted or shared anew through this client, or the client is closed. The
        object is withdrawn with the client, unless the memory can be exported (cuMemCreate).

        Unsupported: managed memory, and memory of a stream-ordered pool. ValueError: no layout describes how the
        elements lie, or the value is several batches; use put().
        """
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on)
        await self._settle(plan, on)
        layout, parts = _memory_of(plan)
        opts = _params.options(mode=mode, ttl=ttl, evict="spill", replace=replace)
        await self._do("_register", name, parts, json.dumps(layout), opts)
        self._client._mine[name] = plan  # which holds the value
        return self._client._ref(name, (await self._stat(name)).version)

    # ---- files ----

    async def save(
        self, name: str, path: FilePath, *, format: Optional[str] = None, compression: Optional[str] = None
    ) -> None:
        """Write a published object to a file; the suffix selects the format.

        - tables, columns, arrays of one axis: .arrow, .feather, .ipc (Arrow's file format), .arrows (its stream), .parquet
        - tables: .jsonl, .ndjson, one line a row; dates, times and decimals become text, NaN becomes null
        - arrays, columns of numbers without nulls: .npy; these, or all columns of a table: .npz

        For other file names give `format`: "arrow", "arrows", "parquet", "jsonl", "npy", "npz". `compression`: "lz4"
        or "zstd" for Arrow's files (default: none); for Parquet a name that pyarrow has ("snappy").
        gpubufd.numpy.save_file() writes bundles.

        The file appears when it is complete, and replaces an existing one. ModuleNotFoundError: the format's library
        is not installed. TypeError: the format cannot hold this object. OSError.
        """
        with await self._do("_open", name, 0, 0, None, False, False) as held:
            await self._aside(_files.write, held, path, format, compression)

    async def load(
        self, /, path: FilePath, name: Optional[str] = None, *, format: Optional[str] = None, **options: Any
    ) -> str:
        """Publish the content of a file; return the name: by default the file's own, without its suffix.

        Formats are those of save(); `options` those of put(). ValueError: the content is not what the suffix says.
        Errors as of save() and put().
        """
        found = pathlib.Path(path).stem if name is None else name
        await Calls.put(self, found, await self._aside(_files.read, path, format), **options)
        return found

    # ---- names ----

    async def list(self, names: str = "", *, versions: bool = False) -> List[Info]:
        """Return the Info of each object whose name begins with `names`, in the order of names.

        With a * or ? in it, `names` is a pattern. With `versions` each name's older versions follow its current one,
        newest first.
        """
        return await self._list(names, versions)

    async def stat(self, name: str, *, version: Optional[int] = None, label: Optional[str] = None) -> Info:
        """Return an object's Info, with its layout; the object is not opened. NotFound, Stale."""
        return await self._stat(name, version, label)

    async def delete(
        self, *names: str, missing_ok: bool = False, version: Optional[int] = None, label: Optional[str] = None
    ) -> None:
        """Delete names with all their versions. NotFound, unless `missing_ok`.

        The memory is freed when the last reader releases it. A name with a * or ? that no object has stands for all
        names that match it, here and in pin(), unpin(), expire(), spill() and restore(). `version`, or `label` for the
        newest version with it, of one name: an older version is deleted alone, the current one with the name and its
        older versions. Stale, unless `missing_ok`: the name does not have that version.
        """
        mine = self._client._mine
        for name in await self._each("delete", names, version, label, missing_ok):
            if version is None and label is None:
                mine.pop(name, None)
            elif name in mine:
                try:
                    await self._stat(name)
                except _errors.NotFound:
                    mine.pop(name, None)

    async def pin(self, *names: str) -> None:
        """Keep objects from being evicted, until unpin(). NotFound, Denied."""
        await self._each("set", names, params={"pinned": True})

    async def unpin(self, *names: str) -> None:
        """Undo pin(). NotFound, Denied."""
        await self._each("set", names, params={"pinned": False})

    async def expire(
        self, *names: str, ttl: Optional[Seconds], version: Optional[int] = None, label: Optional[str] = None
    ) -> None:
        """Set a time to live: the daemon deletes the objects in `ttl` seconds; None: never.

        It replaces an earlier setting. `version`, or `label` for the newest version with it: this version, not the
        current one. NotFound, Denied, Stale.
        """
        await self._each("set", names, version, label, params={"ttl_ms": _params.ttl_ms(ttl)})

    async def spill(
        self, *names: str, tier: Optional[str] = None, version: Optional[int] = None, label: Optional[str] = None
    ) -> None:
        """Move objects off their device now, to the tier "host" or "disk"; None: the first that the daemon has.

        The daemon spills by itself when memory is short. `version`, or `label` for the newest version with it: this
        version, not the current one.

        Busy: a program has the object open. NoSpace: the tier is full. Unsupported: there is no such tier. Stale.
        """
        await self._each("move", names, version, label, timeout=MOVE, params={} if tier is None else {"tier": tier})

    async def restore(
        self, *names: str, timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None
    ) -> None:
        """Bring objects back to their device before they are opened.

        The daemon may spill them again. `timeout`: how long to wait for room on the device. `version`, or `label` for
        the newest version with it: this version, not the current one. NotFound, NoSpace (a MemoryError), Timeout,
        Stale.
        """
        wait_ms = _params.ms(timeout)
        params = {"tier": "device", "wait_ms": wait_ms}
        await self._each("move", names, version, label, timeout=MOVE + wait_ms / 1000, params=params)

    async def alias(
        self, name: str, of: str, *, rows: Optional[Rows] = None, columns: Optional[Sequence[str]] = None,
        mode: Mode = None, replace: bool = False, label: Optional[str] = None, keep: int = 0, scope: Scope = "local",
    ) -> None:
        """Give an object, or a part of it, a second name; both share the memory.

        `rows`: (start, stop) or a slice, in rows, elements, or along an array's first axis. `columns`: names of a
        table's columns, in the order you want. `mode`: by default that of `of`. `replace`, `label`, `keep` and
        `scope`: as put() has them, for the new name. NotFound, Exists, Denied.
        """
        await self._ask("alias", _params.alias(name, of, rows, columns, mode, replace, label, keep, scope))

    # ---- the daemon ----

    async def leases(self, name: Optional[str] = None) -> List[Dict[str, Any]]:
        """Return the leases on all objects, or on one, as dicts.

        Each has lease, session, pid, uid, client, name, version, bytes, …
        """
        return Listing((await self._ask("leases", {"name": name} if name else {}))["leases"])

    async def stats(self) -> Dict[str, Any]:
        """Return the daemon's counters, which may differ between versions."""
        return await self._ask("stats")

    async def devices(self) -> List[Dict[str, Any]]:
        """Return the daemon's devices: dicts with at least id, capacity and used, in bytes."""
        return Listing((await self._ask("stats"))["devices"])


for _name, _call in vars(Calls).items():
    if not _name.startswith("_"):
        _call.__qualname__ = f"Client.{_name}"  # in the sentence of a TypeError


def _dtype_name(dtype: Any) -> str:
    """A dtype in the protocol's spelling, from that or from one of NumPy's."""
    if isinstance(dtype, str) and not re.fullmatch(r"[<=|]?([?]|[biufc]\d{1,2}|[mM]8\[\w+\])", dtype):
        return {"bool": "bool8"}.get(dtype, dtype)
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        return {bool: "bool8", int: "int64", float: "float64", complex: "complex128"}[dtype]
    import numpy

    return _convert._native(numpy.empty(0, dtype), "")[1]


def _layout_of(dtype: Any, shape: Any, nulls: bool, metadata: Optional[Tuple[bytes, ...]] = None) -> Tuple[Any, ...]:
    """The tuple that `_core` takes for struct gpubuf_layout_spec."""
    if isinstance(dtype, Mapping):
        if not hasattr(shape, "__index__") or int(shape) < 0:
            raise ValueError(f"shape is {shape!r}: expected a table's number of rows, 0 or more")
        rows = int(shape)
        columns = tuple(
            (name, "bool" if kind in (bool, "bool") else _dtype_name(kind), rows, 0,
             -1 if nulls else 0, nulls, 0, (), None)
            for name, kind in dtype.items()
        )
        return (TABLE, 0, None, (), False, (None, "struct", rows, 0, 0, False, 0, columns, metadata))
    extents = (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ValueError(f"shape is {extents}: an extent is 0 or more")
    return (ARRAY, 0, _dtype_name(dtype), extents, nulls, _convert.metadata_spec(metadata))


def _memory_of(plan: _convert.Plan) -> Tuple[Dict[str, Any], Tuple[Tuple[int, int], ...]]:
    """The layout of `register` for a value, and the parts of memory that it is about."""
    if plan.kind == "columns":
        layout, parts = plan.share()
    elif plan.kind == "array" and 0 in plan.shape:
        layout, parts = {}, []
    elif plan.kind == "array" and plan.device is not None and plan.mask is None:
        layout, parts = _convert.share_array(plan)
    else:
        raise TypeError("it is not on a GPU, whose memory share_mine() is for: put() copies it")
    if not parts:
        raise ValueError("there are no elements to share: put() it")
    return layout, tuple(parts)
