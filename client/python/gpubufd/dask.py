"""Dask frames and arrays by name, each partition in the daemon of the machine that computed it.

    import gpubufd.dask

    gpubufd.dask.publish(ddf, "sales")     # each worker puts its partitions into its own daemon
    ddf = gpubufd.dask.load("sales")       # in this program or another; nothing is read yet
    gpubufd.dask.list()                    # the published collections, and where they are

A task that reads a partition runs on a worker of the same machine, which maps it. With a distributed.Client a
collection is in the daemons of a whole cluster, without one in this machine's daemon.

A published collection has these names in each daemon: `sales`, the manifest, in JSON; for each publication
`sales/dask-<id>/00000` and so on, the partitions; `…/schema`, an empty table; and `…/lease`, which each process that
makes or reads the publication has open. A publication that was replaced or not completed is deleted when the last of
them closes it.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
import time
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from . import _errors, _frames
from ._dask_partitions import (
    FORMAT,
    LOCKED,
    Manifest,
    Summary,
    age,
    begin_publication,
    by_peers,
    forget,
    hold_publication,
    homes,
    keep_only,
    lock,
    purge,
    put_partition,
    read_manifest,
    read_original,
    read_partition,
    read_schema,
    summaries,
    summary_of,
    sweep,
    unlock,
    unwrite_manifest,
    write_manifest,
)
from ._dask_places import TRIES, Place, places_of
from ._errors import failure


@dataclasses.dataclass(frozen=True)
class Published:
    """A published collection, as publish() and list() return it."""

    name: str
    kind: str  # "frame", "series" or "array"
    partitions: int
    bytes: int  # of one replica
    rows: Optional[int]  # None: it is an array
    hosts: Tuple[str, ...]  # of the daemons that have partitions
    workers: Tuple[str, ...]  # addresses of the workers that read partitions in place; none without a cluster
    unreachable: int  # partitions in daemons that no worker reaches


def publish(
    value: Any, name: str, *, client: Any = None, device: Optional[str] = None,
    mode: Union[int, str, None] = None, evict: Optional[str] = None, replace: bool = False,
    progress: Optional[Callable[[int, int], None]] = None, scope: str = "local", replicas: int = 1,
) -> Published:
    """Publish a Dask DataFrame, Series or Array, each partition where it is computed.

    Index, divisions, labels and dtypes are kept. The name appears in all daemons of the cluster when all partitions
    are there. If the call fails, nothing is published. With `replace` it takes the place of an earlier collection,
    which processes that have loaded it still read; its partitions are deleted when no process does.

    `client`: a distributed.Client; None: the current one, else this machine's daemon and Dask's own scheduler.
    `device`: "cuda:0" and so on, in each worker's daemon; None: where a partition is. `mode`, `evict`: as for
    Client.put(). `scope`: with "cluster" gpubufd-peer fetches partitions from daemons that no worker reaches; `mode`
    must let it read them.

    `replicas`: how many daemons store each partition, on different hosts if there are enough. The collection stays
    whole as long as one of them runs. ValueError: there are fewer daemons.

    `progress`: called as progress(done, total), in this thread, as partitions and replicas are put; an exception from
    it ends the publication. `done` may fall: the partitions of a worker that dies are put again.

    Exists (a FileExistsError): the name is taken. TypeError, ValueError: a partition cannot be published; the message
    names it and the column. ConnectFailed: no worker reaches a daemon.
    """
    places = places_of(client)
    kind, meta, parts, manifest = _plan(value)
    daemons = places.survey()
    if not 1 <= replicas <= len(daemons):
        raise ValueError(f"replicas is {replicas}, expected 1 to {len(daemons)}, as there are daemons")
    _check_free(name, places.each(daemons, read_manifest, name), replace)
    publication = f"dask-{secrets.token_hex(8)}"
    manifest.update({"name": name, "publication": publication, "kind": kind, "mode": mode, "scope": scope})
    tell = _teller(progress, len(parts) * replicas)
    try:
        import dask

        holds = places.hold(daemons, begin_publication, manifest, meta)
        put = dask.delayed(put_partition, pure=False)
        options = {"device": device, "mode": mode, "evict": evict, "scope": scope}
        with _beside(daemons.values(), False):
            tasks = [put(part, i, _Quiet(manifest), _Quiet(options)) for i, part in enumerate(parts)]
        tell(0)
        entries = places.compute(tasks, daemons, tell)
        tell(len(tasks))
        if replicas > 1:
            _replicate(places, daemons, manifest, entries, replicas, {**options, "scope": "local"}, tell)
        manifest["partitions"] = entries
        places.each(daemons, keep_only, manifest)
        with _locked(places, daemons, name):
            _commit(places, daemons, manifest, replace)
    except BaseException:
        _quietly(places.each, daemons, purge, name, publication)
        raise
    del holds
    _quietly(places.each, daemons, sweep, name)
    return _published(summary_of(manifest), daemons)


def _replicate(
    places: Any, daemons: Dict[str, Place], manifest: Manifest, entries: List[Dict[str, Any]], replicas: int,
    options: Dict[str, Any], tell: Callable[[int], None],
) -> None:
    """Puts partitions into further daemons, and notes that in their entries."""
    copies = []
    for number, entry in enumerate(entries):
        others = [one for one in sorted(daemons) if one != entry["instance"]]
        others = others[number % len(others) :] + others[: number % len(others)]
        hosts = [entry["host"]]
        for _ in range(replicas - 1):
            one = min(others, key=lambda one: hosts.count(daemons[one].host))  # the first of those
            others.remove(one)
            hosts.append(daemons[one].host)
            copies.append((number, entry, one))
    tasks = [
        places.client.submit(
            put_partition,
            places.client.submit(read_original, _Quiet(manifest), number, _Quiet(entry), pure=False,
                                 workers=daemons[entry["instance"]].workers),
            number, _Quiet(manifest), _Quiet(options), pure=False, workers=daemons[one].workers)
        for number, entry, one in copies
    ]
    needed = [[daemons[entry["instance"]].workers, daemons[one].workers] for _, entry, one in copies]
    done = places.gather(tasks, needed, lambda count: tell(len(entries) + count))
    for (_, entry, _), put in zip(copies, done):
        entry.setdefault("replicas", []).append({"instance": put["instance"], "host": put["host"]})


def _teller(progress: Optional[Callable[[int, int], None]], total: int) -> Callable[[int], None]:
    """The function tell(done), which calls `progress` when `done` has changed."""
    before: List[int] = []

    def tell(done: int) -> None:
        if progress is not None and before != [done]:
            before[:] = [done]
            progress(done, total)

    return tell


def _published(summary: Summary, daemons: Dict[str, Place]) -> Published:
    hosts, counts = summary["hosts"], summary["homes"]
    return Published(
        name=summary["name"],
        kind=summary["kind"],
        partitions=sum(count for _, count in counts),
        bytes=summary["bytes"],
        rows=summary["rows"],
        hosts=tuple(sorted(set(hosts.values()))),
        workers=tuple(sorted(w for i in hosts if i in daemons for w in daemons[i].workers)),
        unreachable=sum(count for having, count in counts if not daemons.keys() & having),
    )


def list(prefix: str = "", *, client: Any = None) -> List[Published]:
    """Return the collections published under names that begin with `prefix`, in order.

    They are those that this user, or the workers' user, may read. `client`: as for publish().
    """
    places = places_of(client)
    daemons = places.survey()
    newest: Dict[str, Summary] = {}
    for found in places.each(daemons, summaries, prefix).values():
        for summary in found:
            if age(summary) > age(newest.get(summary["name"])):
                newest[summary["name"]] = summary
    return [_published(newest[name], daemons) for name in sorted(newest)]


def _beside(places: Iterable[Place], others: bool) -> Any:
    """A context: tasks made in it run on workers of these places; with `others`, preferably there."""
    import dask

    workers = [worker for place in places for worker in place.workers]
    return dask.annotate(workers=workers, allow_other_workers=others) if workers else nullcontext()


class _Quiet(Dict[str, Any]):
    """A dict that Dask does not look into for collections."""


def _quietly(function: Callable[..., Any], *args: Any) -> None:
    """Calls a function, and ignores its errors: to clean up after a success, or after an error to be raised."""
    try:
        function(*args)
    except Exception:
        pass


@contextmanager
def _locked(places: Any, daemons: Dict[str, Place], name: str) -> Iterator[None]:
    """A context in which no other program changes the manifests of a name. The first daemon has the lock."""
    first = min(daemons)
    one = {first: daemons[first]}
    end = time.monotonic() + 2 * LOCKED
    version = places.each(one, lock, name)[first]
    while version is None:
        if time.monotonic() > end:
            raise failure("busy", f"other programs have kept {name!r} locked for {2 * LOCKED:.0f} s")
        time.sleep(0.02)
        version = places.each(one, lock, name)[first]
    try:
        yield
    finally:
        _quietly(places.each, one, unlock, name, version)


def _commit(places: Any, daemons: Dict[str, Place], manifest: Manifest, replace: bool) -> None:
    """Writes the manifest everywhere, and takes it back if that fails."""
    before = places.each(daemons, read_manifest, manifest["name"])
    _check_free(manifest["name"], before, replace)
    manifest["generation"] = max(age(one)[0] for one in before.values()) + 1
    written = []
    try:
        for instance in sorted(daemons):
            written.append(instance)
            places.each({instance: daemons[instance]}, write_manifest, manifest, replace)
    except BaseException:
        for instance in written:
            one = {instance: daemons[instance]}
            _quietly(places.each, one, unwrite_manifest, manifest, before[instance])
        raise


def _check_free(name: str, copies: Dict[str, Optional[Manifest]], replace: bool) -> None:
    if any(copies.values()) and not replace:
        raise failure("exists", f"{name!r} is published already: pass replace=True")


def _plan(value: Any) -> Tuple[str, Any, List[Any], Manifest]:
    """(kind, meta, partitions as Delayed, the manifest so far)"""
    module = type(value).__module__
    if module.startswith(("dask.array", "dask_expr.array")) and hasattr(value, "numblocks"):
        if value.dtype.names:
            raise TypeError("an array of a structured dtype cannot be published: make a frame of it")
        parts = value.to_delayed().ravel().tolist()
        told = {"dtype": value.dtype.str, "blocks": [*value.numblocks]}
        return "array", None, parts, {"gpubufd.dask": FORMAT, **told}
    if not (hasattr(value, "npartitions") and hasattr(value, "divisions") and hasattr(value, "to_delayed")
            and hasattr(value, "_meta") and hasattr(value._meta, "iloc")):
        raise TypeError(
            f"{type(value).__name__} is not of Dask: expected a Dask DataFrame, Series or Array. "
            "dask.dataframe.from_pandas() makes one of a frame; Client.put() publishes a frame whole"
        )
    meta = value._meta
    if type(meta).__module__.partition(".")[0] == "cudf":
        meta = meta.to_pandas()
    spec = _frames.take_apart(meta)[1]
    divisions = [_write_division(one) for one in value.divisions] if value.known_divisions else None
    return "frame", meta, value.to_delayed(), {"gpubufd.dask": FORMAT, **spec, "divisions": divisions}


def _write_division(value: Any) -> Any:
    """A division as JSON."""
    import numpy
    import pandas

    if isinstance(value, (numpy.datetime64, datetime.datetime)):
        value = pandas.Timestamp(value)
        zone = None if value.tz is None else str(value.tz)
        naive = value if zone is None else value.tz_convert("UTC").tz_localize(None)
        return {"timestamp": naive.isoformat(), "zone": zone}
    if isinstance(value, (numpy.timedelta64, datetime.timedelta)):
        return {"timedelta": pandas.Timedelta(value).isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"divisions of {type(value).__name__} cannot be published: clear_divisions() drops them")


def _read_division(value: Any) -> Any:
    import pandas

    if not isinstance(value, dict):
        return value
    if "timestamp" in value:
        stamp = pandas.Timestamp(value["timestamp"])
        return stamp if value["zone"] is None else stamp.tz_localize("UTC").tz_convert(value["zone"])
    if "timedelta" in value:
        return pandas.Timedelta(value["timedelta"])
    return datetime.date.fromisoformat(value["date"])


def load(name: str, *, client: Any = None) -> Any:
    """Return the Dask DataFrame, Series or Array that was published under a name. Nothing is read yet.

    A worker on the same machine maps a partition; numbers without nulls are read-only, over the shared memory.
    Partitions on a GPU become cuDF frames or CuPy arrays. They stay as long as the collection, or one computed lazily
    from it, exists, even if the name is replaced or deleted.

    `client`: as for publish(). NotFound (a KeyError): no collection has that name, or no worker reaches the daemon of
    some partitions; the message names them and the host. compute() may raise it too, if a machine has failed. With
    scope="cluster" gpubufd-peer fetches such partitions, if it can.
    """
    places = places_of(client)
    for last in [False] * TRIES + [True]:
        daemons = places.survey()
        copies = places.each(daemons, read_manifest, name)
        newest = max(copies.values(), key=age)
        if newest is None:
            hosts = ", ".join(sorted({place.host for place in daemons.values()}))
            raise failure("not_found", f"no collection is published as {name!r} in the daemons of {hosts}")
        try:
            return _load(places, daemons, newest, copies)
        except _Unreachable as error:
            raise failure("not_found", str(error)) from None
        except (_errors.Stale, _errors.NotFound) as error:  # replaced meanwhile, most likely
            if last:
                what = f"{name!r} is not whole: its publication did not end, or parts of it were deleted"
                raise failure("stale", f"{what}; publish it again ({error})") from error
        time.sleep(0.05)


class _Unreachable(_errors.NotFound):
    """Partitions are in daemons that no worker reaches: trying again does not help."""


def _load(
    places: Any, daemons: Dict[str, Place], manifest: Manifest, copies: Dict[str, Optional[Manifest]]
) -> Any:
    partitions = manifest["partitions"]
    near = [[home for home in homes(entry) if home in daemons] for entry in partitions]
    for instance, entry in {one["instance"]: one for one, here in zip(partitions, near) if not here}.items():
        if not by_peers(manifest):
            numbers = [str(i) for i, one in enumerate(partitions) if one["instance"] == instance and not near[i]]
            some = ", ".join(numbers[:5]) + (", …" if len(numbers) > 5 else "")
            raise _Unreachable(f"partition {some} of {manifest['name']!r}: in the daemon {instance} of "
                               f"host {entry['host']!r}. {places.advice}")
    here = {i: daemons[i] for i in daemons if any(i in some for some in near)}
    if not here:  # peers bring all of them
        here = {i: daemons[i] for i in daemons if age(copies[i]) == age(manifest)}
    holds = places.hold(here, hold_publication, manifest)
    first = next(iter(here))
    beside = [some[i % len(some)] if some else first for i, some in enumerate(near)]
    parts = [_read_task(holds[instance], here[instance], i) for i, instance in enumerate(beside)]
    if manifest["kind"] == "array":
        return _array(manifest, parts)
    meta = places.each({first: here[first]}, read_schema, manifest)[first]
    return _frame(manifest, meta, parts)


def _read_task(hold: Any, place: Place, number: int) -> Any:
    import dask

    # Others are allowed, or the task would wait for ever for workers that have ended.
    with _beside([place], True):
        return dask.delayed(read_partition, pure=False)(hold, number)


def _frame(manifest: Manifest, meta: Any, parts: List[Any]) -> Any:
    import dask.dataframe

    if any(entry["device"] != "host" for entry in manifest["partitions"]):
        import cudf
        import dask_cudf  # noqa: F401  makes Dask know cuDF

        if type(meta).__module__.partition(".")[0] == "pandas":
            meta = cudf.from_pandas(meta)
    divisions = manifest["divisions"]
    if divisions is not None:
        divisions = tuple(_read_division(one) for one in divisions)
    return dask.dataframe.from_delayed(
        parts, meta=meta, divisions=divisions, prefix="gpubufd", verify_meta=False
    )


def _array(manifest: Manifest, parts: List[Any]) -> Any:
    import dask.array
    import numpy

    shapes = [tuple(entry["shape"]) for entry in manifest["partitions"]]
    blocks = [
        dask.array.from_delayed(part, shape, dtype=numpy.dtype(manifest["dtype"]))
        for part, shape in zip(parts, shapes)
    ]
    return dask.array.block(_nest(manifest["blocks"], blocks))


def _nest(extents: List[int], flat: List[Any]) -> Any:
    """Blocks in C order as nested lists."""
    if not extents:
        return flat[0]
    step = len(flat) // extents[0]
    return [_nest(extents[1:], flat[i * step : (i + 1) * step]) for i in range(extents[0])]


def delete(name: str, *, client: Any = None, missing_ok: bool = False) -> None:
    """Delete a collection. Its memory is freed when no process that has loaded it reads it any more.

    NotFound (a KeyError), unless `missing_ok`. `client`: as for publish().
    """
    places = places_of(client)
    daemons = places.survey()
    if not any(places.each(daemons, read_manifest, name).values()):
        if not missing_ok:
            raise failure("not_found", f"no collection is published as {name!r}")
        return
    with _locked(places, daemons, name):
        places.each(daemons, forget, name)


__all__ = ["Published", "delete", "list", "load", "publish"]
