"""The connection: Client and connect()."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import re
import time
from typing import (
    Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, overload,
)

from . import _convert, _core, _errors, _files, _nodes, _packing, _params, _provide, cuda
from ._files import FilePath
from ._held import Held
from ._layout import DATA, HOST, MASK
from ._names import Names
from ._provide import Provider, Wanted
from ._told import Info, Watch, newer_of

_Kind = TypeVar("_Kind", bound=Held)
SCOPE = {"local": 0, "cluster": 1}
EVICT = {None: 0, "spill": 1, "drop": 2, "keep": 3}
KIND_BYTES, KIND_ARRAY, KIND_COLUMN, KIND_TABLE = range(4)

_NO_RESUME = -2
_NO_CACHE = -1


def options(
    device: Optional[str], share: Optional[str], mode: Union[int, str, None],
    ttl: Optional[float], evict: Optional[str], replace: bool, timeout: Optional[float],
    final: bool = False, label: Optional[str] = None, keep: int = 0, scope: str = "local",
) -> Tuple[Any, ...]:
    """The tuple that `_core` takes for struct gpubuf_create_options."""
    if evict not in EVICT:
        raise ValueError(f"evict is {evict!r}: expected one of {', '.join(filter(None, EVICT))}")
    if scope not in SCOPE:
        raise ValueError(f"scope is {scope!r}: expected local or cluster")
    return (
        device, share, _params.mode_bits(mode), bool(replace), _params.ttl_ms(ttl), EVICT[evict], _params.ms(timeout),
        bool(final), label, keep, SCOPE[scope],
    )


def dtype_name(dtype: Any) -> str:
    """A dtype in the protocol's spelling, from that or from one of NumPy's."""
    if isinstance(dtype, str) and not re.fullmatch(r"[<=|]?([?]|[biufc]\d{1,2}|[mM]8\[\w+\])", dtype):
        return {"bool": "bool8"}.get(dtype, dtype)
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        return {bool: "bool8", int: "int64", float: "float64", complex: "complex128"}[dtype]
    import numpy

    return _convert._native(numpy.empty(0, dtype), "")[1]


def layout_of(dtype: Any, shape: Any, nulls: bool) -> Tuple[Any, ...]:
    """The tuple that `_core` takes for struct gpubuf_layout_spec."""
    if isinstance(dtype, Mapping):
        rows = int(shape)
        columns = tuple(
            (name, "bool" if kind in (bool, "bool") else dtype_name(kind), rows, 0,
             -1 if nulls else 0, nulls, 0, (), None)
            for name, kind in dtype.items()
        )
        return (KIND_TABLE, 0, None, (), False, (None, "struct", rows, 0, 0, False, 0, columns, None))
    extents = (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ValueError(f"shape is {extents}: an extent is 0 or more")
    return (KIND_ARRAY, 0, dtype_name(dtype), extents, nulls, None)


# ---- what is put ----


def named_errors(names: Sequence[str], results: List[Any], errors: str) -> List[Any]:
    """The result of get_many(): errors say which name they are about, or the first is raised."""
    for name, result in zip(names, results):
        if isinstance(result, _errors.Error):
            result.args = (f"{name!r}: {result}",)
            if errors == "raise":
                raise result
    return results


def place_of(plan: _convert.Plan, device: Optional[str]) -> Optional[str]:
    """The device to put it on: the one that was asked for, else where the value is if that is a GPU."""
    if device is not None or plan.device is None:
        return device
    return cuda.Device(plan.device).uuid


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
    """The layout to be created for an array on a GPU, or one with nulls, for columns or a bundle; and its copies."""
    if plan.kind == "bundle":
        return plan.layout, _packing.copies(plan)
    if plan.kind != "array":
        return plan.build(stream)
    layout = (KIND_ARRAY, 0, plan.dtype, tuple(plan.shape), plan.mask is not None, None)
    count = 1
    for extent in plan.shape:
        count *= extent
    copies: List[_nodes.Copy] = []
    if plan.mask is not None:
        if plan.strides is not None:
            raise ValueError("it has nulls and is not contiguous: copy it first")
        address, bit = plan.mask
        bits = _nodes.Node("bool", count, offset=bit, device=HOST if plan.device is None else plan.device,
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
        _nodes.fill(made, copies, queue)
        if queue and wait:
            wait_for(queue, device)
        made._seal(None, 0 if wait else queue)
    except BaseException:
        if queue:
            wait_for(queue, device)  # the memory is not given up under copies
        raise
    version: int = made.version
    if queue and not wait:
        made._release_on(queue)  # nobody else gets the memory before the copies are done
    return version


def memory_of(plan: _convert.Plan) -> Tuple[Dict[str, Any], Tuple[Tuple[int, int], ...]]:
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


# ---- what is opened ----


@dataclasses.dataclass(frozen=True)
class Ref:
    """One version of what is published under a name; put() returns it, and Client.ref().

    It is small, can be pickled and be a key, and equals another Ref of the same version. In any process
    of this machine get() opens the version, without a copy. A Ref holds no lease: the program must see to it that the
    version is not deleted or replaced meanwhile. `instance`: the daemon that has the version; "": any. `path`: the
    daemon's socket; None: where connect() looks.
    """

    name: str
    version: int
    instance: str = ""
    path: Optional[str] = dataclasses.field(default=None, compare=False)

    def get(self, client: "Optional[Client]" = None) -> Any:
        """Opens it by a client, or by a connection that this process makes for all Refs.

        Stale: the version is gone, since its name was deleted or has another object now.
        """
        return (client or _client_of(self.path, os.getpid())).get(self)

    def __repr__(self) -> str:
        return f"gpubufd.Ref({self.name!r}, {self.version})"


@functools.lru_cache(maxsize=None)
def _client_of(path: Optional[str], process: int) -> "Client":
    """The connection of a process, which its children by fork() do not share."""
    return connect(path)


def asked(name: Union[str, Ref], version: int) -> Tuple[str, int]:
    """The name and the version to open."""
    return (name.name, name.version) if isinstance(name, Ref) else (name, version)


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


class Client(_core.Client, Names):
    """A connection to the daemon; made by connect(). Any thread may use it at any time.

    The connection is the lease: it lasts until the client and all that was taken through it are gone.
    close(), or the end of a `with`, releases every object of the client that Python holds; what NumPy,
    Arrow or DLPack took of them stays readable, and keeps the connection, until that goes too.

    Times are in seconds. A `timeout` of None means not to wait at all.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._mine: Dict[str, Any] = {}  # what share_mine() shares, by name
        self._providers: List[Provider] = []
        self._connecting = keywords
        self._path: Optional[str] = keywords["path"]
        resume_ms: int = keywords["resume_ms"]
        self._resumes = resume_ms != _NO_RESUME
        self._resume_seconds = 10.0 if not resume_ms else float("inf") if resume_ms < 0 else resume_ms / 1000

    def close(self) -> None:
        """Ends it, and releases what Python holds of it. More than once is fine."""
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

    def call(
        self, method: str, params: Optional[Dict[str, Any]] = None, *, timeout: Optional[float] = 60.0
    ) -> Any:
        """Calls any method of the protocol that carries no descriptors; returns its result as Python values.

        `timeout`: how long the answer may take, in seconds; None: for ever.
        """
        text = None if params is None else json.dumps(params)
        return json.loads(self._call(method, text, -1 if timeout is None else max(_params.ms(timeout), 1)))

    # ---- reading ----

    @overload  # type: ignore[override]  # a timeout where a Mapping has a default
    def get(
        self, name: Union[str, Ref], timeout: Optional[float] = ..., *, version: int = ...,
        label: Optional[str] = ...,
    ) -> Any: ...

    @overload
    def get(
        self, name: Union[str, Ref], timeout: Optional[float] = ..., *, version: int = ...,
        label: Optional[str] = ..., kind: Type[_Kind],
    ) -> _Kind: ...

    def get(
        self, name: Union[str, Ref], timeout: Optional[float] = None, *, version: int = 0,
        label: Optional[str] = None, kind: Optional[type] = None,
    ) -> Any:
        """Opens what was published under a name: an Array, Column, Table, Bytes or Bundle, with no copy.

        `timeout`: how many seconds to wait until the name, or the label, exists. `version`: only this version; a
        Ref has both name and version. `label`: the newest version with this label.
        `kind`: gpubufd.Table, Array, Column or Bytes, for type checkers, too; a TypeError if the object is another.

        NotFound (a KeyError): there is no such object, or none that this user may read. Timeout (a
        TimeoutError). Stale: the name does not have that version any more; the sentence says which it has.
        """
        wait_ms = _params.ms(timeout) if timeout else 0
        if kind is None and not isinstance(name, Ref):
            return self._open(name, version, wait_ms, label)
        try:
            held = self._open(*asked(name, version), wait_ms, label)
        except (_errors.NotFound, _errors.Stale) as error:
            raise gone(name, error) from None
        return opened(held, name, kind, self.instance)

    def __getitem__(self, name: Union[str, Ref]) -> Any:
        """get(name)"""
        return self.get(name) if isinstance(name, Ref) else self._open(name, 0, 0, None)

    def ref(self, name: str) -> Ref:
        """A reference to the version that a name has now, for other processes. NotFound."""
        return self._ref(name, self.stat(name).version)

    def _ref(self, name: str, version: int) -> Ref:
        return Ref(name, version, self.instance, self._path and os.path.abspath(self._path))

    def __setitem__(self, name: str, value: Any) -> None:
        """put(name, value, replace=True)"""
        self.put(name, value, replace=True)

    def __contains__(self, name: object) -> bool:
        """Whether a name, or the version of a Ref, is published."""
        if not isinstance(name, (str, Ref)):
            return False
        if isinstance(name, Ref) and name.instance not in ("", self.instance):
            return False
        wanted, version = asked(name, 0)
        try:
            self.stat(wanted, version=version)
        except (_errors.NotFound, _errors.Stale, _errors.Invalid):
            return False
        return True

    def get_many(
        self, names: Iterable[str], timeout: Optional[float] = None, *, errors: str = "raise"
    ) -> List[Any]:
        """Opens many objects in one round trip, in the order of `names`.

        With errors="return" the list has an exception in the place of each object that could not be opened;
        otherwise the first exception is raised and nothing is open.
        """
        if errors not in ("raise", "return"):
            raise ValueError('errors is "raise" or "return"')
        asked = tuple(names)
        results = self._open_many(asked, _params.ms(timeout))
        return named_errors(asked, results, errors)

    # ---- publishing ----

    def put(
        self, name: str, value: Any, *, device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: Optional[str] = None,
        replace: bool = False, stream: Any = None, timeout: Optional[float] = None,
        final: bool = False, nan_as_null: bool = False, label: Optional[str] = None, keep: int = 0,
        scope: str = "local", wait: bool = True,
    ) -> Ref:
        """Publishes a copy of a value under a name; returns a Ref, which has the version.

        Becomes an Array: NumPy arrays, tensors and whatever speaks DLPack, the buffer protocol or
        `__cuda_array_interface__`. A Column: lists, arrays of strings, masked arrays, pandas and cuDF
        Series, Arrow arrays. A Table: a dict of columns, which may lie in different places, frames, Arrow
        tables and streams, a list of record batches, structured arrays. Bytes: bytes and bytearray. A Bundle
        becomes one; put_bundle() makes one.

        `device`: "host", "cuda:0" (in the daemon's numbering) or a GPU's UUID; None: where the value is
        if that is a GPU, else the daemon's default. `share`: "fd" or "ipc". `mode`: who else may read
        (0o640) and replace or delete (0o660) it. `ttl`: delete it after that many seconds. `evict`: its fate
        when memory is short, "spill", "drop" or "keep"; None: the daemon's --evict, "spill" unless set.
        `replace`: take the name from an object that has it.
        `stream`: the CUDA stream that the value is being made on, a handle or one of
        CuPy's, PyTorch's, numba's, cuda.core's or gpubufd.cuda's; copies on the GPU are queued there, and
        waited for. `timeout`: how long to wait for memory. `final`: the kernel keeps everybody from changing
        it, this program too; on the host only. With `replace` a put that a crash of the daemon interrupts is done
        again, within the client's `resume_timeout`. `nan_as_null`: NaN in columns of floats on the host is null.
        `label`: your label for this version, such as "step-42". `keep`: how many older versions of the name can
        still be opened, 0 to 8; others go when their last reader does. `scope`: with "cluster" other machines can open
        the object, by way of gpubufd-peer.
        `wait=False`, for a value on a GPU: put() returns when the copies are queued on the stream; the object is
        published with them under way, and readers' streams wait for them on the GPU. Keep the value until the stream is
        done, and let only work on that stream change it. The object needs this client until then.

        A DataFrame's index is kept: one that is not 0, 1, 2, … as columns of its own, which to_pandas()
        takes for the index again. Dtypes that a column alone would not say come back likewise.

        TypeError, ValueError: the value cannot be published; the sentence names the column and says what
        to do. Exists (a FileExistsError), NoSpace (a MemoryError), Denied (a PermissionError).
        """
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on, nan_as_null)
        opts = options(
            place_of(plan, device), share, mode, ttl, evict, replace, timeout, final, label, keep,
            scope,
        )
        return self._put(name, plan, on, opts, wait)

    def put_bundle(
        self, name: str, tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None, *,
        device: Optional[str] = None, share: Optional[str] = None, mode: Union[int, str, None] = None,
        ttl: Optional[float] = None, evict: Optional[str] = None, replace: bool = False, stream: Any = None,
        timeout: Optional[float] = None, final: bool = False, label: Optional[str] = None, keep: int = 0,
        scope: str = "local", wait: bool = True,
    ) -> Ref:
        """Publishes copies of many arrays as one Bundle, all of them or nothing; returns a Ref, as put() does.

        `tensors`: arrays by name; put() would make an Array of each, of a dtype that safetensors has.
        `metadata`: strings by string. The others, and errors, are those of put(), which takes a Bundle as it is.
        """
        on = None if stream is None else cuda.handle_of(stream)
        plan = _packing.tensors(tensors, metadata, on)
        opts = options(
            place_of(plan, device), share, mode, ttl, evict, replace, timeout, final, label, keep,
            scope,
        )
        return self._put(name, plan, on, opts, wait)

    def _put(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool = True
    ) -> Ref:
        replace = opts[3]
        until = time.monotonic() + self._resume_seconds if replace and self._resumes else 0.0
        while True:
            try:
                return self._ref(name, self._put_plan(name, plan, on, opts, wait))
            except (_errors.Closed, _errors.Stale):  # the daemon went meanwhile: done again, it comes to the same
                if self.closed or time.monotonic() >= until:
                    raise

    def _put_plan(
        self, name: str, plan: _convert.Plan, on: Optional[int], opts: Tuple[Any, ...], wait: bool
    ) -> int:
        if plan.kind == "bytes":
            return self._put_bytes(name, plan.buffer, opts)
        if plan.kind == "arrow":
            wait_for_streams(plan, on)
            return self._put_arrow(name, plan.source, plan.table, opts)
        if plan.kind == "array" and (plan.strides is not None or plan.device is None) and not plan.mask:
            wait_for_streams(plan, on)
            return self._put_array(name, plan.dtype, plan.shape, plan.strides, plan.address, opts)
        queue = queue_of(plan, on)
        layout, copies = layout_and_copies(plan, queue)
        with self._create(name, layout, opts) as made:
            return fill_and_seal(made, plan.device, copies, queue, wait)

    def create(
        self, name: str, dtype: Any, shape: Union[int, Sequence[int]], *, nulls: bool = False,
        device: Optional[str] = None, share: Optional[str] = None,
        mode: Union[int, str, None] = None, ttl: Optional[float] = None, evict: Optional[str] = None,
        replace: bool = False, timeout: Optional[float] = None, final: bool = False,
        label: Optional[str] = None, keep: int = 0,
        scope: str = "local",
    ) -> Any:
        """Allocates an object to be filled in place, and published by its seal().

        An Array of `shape`, in elements; or, where `dtype` is a dict of dtypes by column name, a Table
        of `shape` rows. dtypes are the protocol's ("float64", "timestamp[us]") or NumPy's ("f8", numpy.float64), of a
        fixed width. On the host `a.to_numpy()` (a column's `values`) can be written to; on a GPU `a.values`
        has a `__cuda_array_interface__`, or use `a.write(values)`. `nulls=True` adds bitmaps of valid
        elements, all to be written: `a.validity.bits`.

        Until seal() nobody else sees the object, and a release discards it. A `with` block that ends normally seals
        it; one that ends by an exception discards it. Errors as of put().
        """
        opts = options(device, share, mode, ttl, evict, replace, timeout, final, label, keep, scope)
        made = self._create(name, layout_of(dtype, shape, nulls), opts)
        made._commits = True
        return made

    def provide(
        self, prefix: str, load: Callable[[Wanted], Any], *, threads: int = 4, **options: Any
    ) -> Provider:
        """Makes absent names that begin with `prefix` when clients wait for them.

            client.provide("cols/", lambda name: read(name[len("cols/"):]), evict="drop")

        `load` gets the name, a str with the `uid` and `gid` of the client that asked first. It returns a value for
        put(), which is published with `options`, those of put(); None: `load` has published the name itself. Any get()
        or get_many() with a timeout asks for the name; `load` runs once, however many wait. An exception of `load` ends
        the waiting calls with its sentence: as NotFound for a LookupError or a FileNotFoundError, else as Unavailable.
        The next get() asks again.

        It runs in `threads` threads, over a connection of its own, so that this client's get() may ask for names, too.
        The Provider's close(), the end of a `with`, or the client's close() ends it; until then it outlives restarts of
        the daemon. Denied: this user may not provide the prefix: `gpubufd --provider`.
        """
        _provide.check(load, threads, Client.put, options)
        provider = Provider(Client(**self._connecting), prefix, load, threads, options)
        self._providers = [one for one in self._providers if not one.closed] + [provider]
        return provider

    def share_mine(
        self, name: str, value: Any, *, mode: Union[int, str, None] = None,
        ttl: Optional[float] = None, replace: bool = False, stream: Any = None,
    ) -> Ref:
        """Publishes GPU memory of the caller's own without copying it; returns a Ref, as put() does.

        `value` is anything on a GPU that put() takes: an array with `__cuda_array_interface__` or DLPack, a
        column with its nulls, a cuDF Series or frame, an Arrow array or record batch, a dict of columns. A
        sliced one is shared as it lies. Its memory is in one allocation or in at most 16.

        Leave the value unchanged until the object is deleted and its readers are gone. The client holds it
        until the name is deleted or shared anew through this client, or the client is closed. Unless
        the memory can be exported (cuMemCreate) the object is withdrawn with the client.

        Unsupported: managed memory, and memory of a stream-ordered pool. ValueError: no layout describes how the
        elements lie, or the value is several batches; put() copies such a value.
        """
        on = None if stream is None else cuda.handle_of(stream)
        plan = _convert.plan(value, on)
        wait_for_streams(plan, on)
        layout, parts = memory_of(plan)
        opts = options(None, None, mode, ttl, "spill", replace, None)
        self._register(name, parts, json.dumps(layout), opts)
        self._mine[name] = plan  # which holds the value
        return self.ref(name)

    # ---- files ----

    def save(
        self, name: str, path: FilePath, *, format: Optional[str] = None, compression: Optional[str] = None
    ) -> None:
        """Writes what is published under a name into a file, in the format that the file's name says.

        Tables, and columns and arrays of one axis: .arrow, .feather and .ipc (Arrow's file format), .arrows (its
        stream), .parquet or .pq. Tables: .jsonl or .ndjson, a line for each row. Arrays, and columns of numbers
        without nulls: .npy; all columns of a table, or one of these: .npz. For other file names give `format`: "arrow",
        "arrows", "parquet", "jsonl", "npy", "npz".
        `compression`: "lz4" or "zstd" for Arrow's files (default: none); for Parquet a name that
        pyarrow has ("snappy").

        The file appears when all of it is written, and takes the place of one that is there. In lines of JSON dates,
        times and decimals become text, NaN null. ModuleNotFoundError: the library of the format is not installed
        (pyarrow, for Arrow's and Parquet files). TypeError: the format has no place for this. OSError.
        """
        with self.get(name) as held:
            _files.write(held, path, format, compression)

    def load(
        self, path: FilePath, name: Optional[str] = None, *, format: Optional[str] = None, **options: Any
    ) -> str:
        """Publishes the content of a file; returns the name: by default the file's own, without its suffix.

        Formats as of save(), and all columns as pyarrow, NumPy or json read them; `options` are those of put().
        Arrow's files are mapped and copied once. A column or an array that save() wrote comes back as such.
        ValueError: the file is not what its name says. Errors as of save() and put().
        """
        found = pathlib.Path(path).stem if name is None else name
        self.put(found, _files.read(path, format), **options)
        return found

    # ---- watching ----

    def versions(self, name: str, *, timeout: Optional[float] = None) -> Iterator[Info]:
        """An iterator over a name's versions: the current one, if there is one, then each that is sealed.

            for info in client.versions("weights"):
                use(client.get("weights", version=info.version))

        Each version comes once, and never an older one after a newer one. With a `timeout` the iteration ends when
        none has come for that time; without one it goes on. close() ends it.
        """
        with self.watch(name, timeout=timeout) as watch:
            newer = newer_of(name)
            for event in watch:
                if newer(event):
                    yield event.info  # type: ignore[misc]

    def watch(self, prefix: str = "", *, timeout: Optional[float] = None) -> Watch:
        """An iterator over the events of names that begin with `prefix`.

        First, each existing object comes as "sealed"; then comes "synced". With a `timeout` the iteration
        ends when nothing has happened for that time; otherwise it goes on for ever.
        """
        return Watch(self, prefix or None, timeout)


def connect(
    path: Optional[str] = None, *, timeout: Optional[float] = 5.0, name: Optional[str] = None,
    cache_bytes: int = 0, answer_timeout: Optional[float] = 60.0,
    resume_timeout: Optional[float] = 10.0, cache_leases: Union[bool, int] = True,
) -> Client:
    """Connects to the daemon.

    `path`: its socket; None: $GPUBUFD_SOCKET, else $NVIDIA_DRA_LOCAL_IPC_DIR/gpubufd.sock or
    /run/gpubufd/gpubufd.sock if it exists, else $XDG_RUNTIME_DIR/gpubufd.sock. `timeout`: how long to try, in
    seconds; None: for ever. `name`: what `gpubufctl ps` shows. `cache_bytes`: mappings to keep for later opens, in
    bytes; 0: 1 GiB. `answer_timeout`: how long an answer may take; None: for ever. `resume_timeout`: how long to try
    to reconnect when the connection broke (the daemon was killed, or restarts), before calls raise Closed or
    ConnectFailed; None: for ever; 0: not at all. Meanwhile open objects stay readable.

    `cache_leases`: how many objects that were got twice stay open after their last use, for ten seconds, so that the
    next get() of the name needs no request; True: 1024; False: none. A get() that begins after a change of the name
    sees the change, and the daemon takes such objects back when it lacks room.

    A daemon that was stopped and started again is another one, and its objects are gone: the next call, whenever
    it comes, connects to the new one, and `client.instance` changes. Held objects stay readable and are `stale`.

    ConnectFailed (a ConnectionError): no daemon is there. Timeout. Unsupported: it speaks another
    version of the protocol.
    """
    return open_client(path, timeout, name, cache_bytes, answer_timeout, resume_timeout, True,
                       cache_leases)


def open_client(
    path: Optional[str], timeout: Optional[float], name: Optional[str], cache_bytes: int,
    answer_timeout: Optional[float], resume_timeout: Optional[float], patient: bool,
    cache_leases: Union[bool, int],
) -> Client:
    """connect(); `patient`: calls wait for a daemon that is being started anew."""
    for what, number in (("cache_bytes", cache_bytes), ("cache_leases", cache_leases)):
        if number < 0:
            raise ValueError(f"{what} is {number}: expected 0 or more")
    return Client(
        path=None if path is None else os.fspath(path),
        patient=patient,
        name=name,
        timeout_ms=-1 if timeout is None else max(_params.ms(timeout), 1),
        cache_bytes=cache_bytes,
        answer_timeout_ms=-1 if answer_timeout is None else max(_params.ms(answer_timeout), 1),
        resume_ms=-1 if resume_timeout is None else _params.ms(resume_timeout) or _NO_RESUME,
        cache_leases=0 if cache_leases is True else int(cache_leases) or _NO_CACHE,
    )

