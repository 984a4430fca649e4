"""Collections of Dask's as they lie in one daemon: manifests, publications, partitions.

A manifest is what is published under the collection's name, as JSON. A publication is what one call of
publish() made: objects named `<name>/dask-<id>/…`. Each process that makes or reads the publication has a lease
on one of them, `…/lease`; if that has no leases, the publication is in use nowhere. The functions here run in
workers; those without an underscore are sent there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import re
import sys
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

from . import _cudf, _errors, _frames, _gpu
from ._client import Client
from ._dask_places import Cluster, delete_here, found_here, host_name, is_here, local_daemon
from ._errors import failure
from ._objects import Bytes
from ._told import Info

FORMAT = 1
PUBLICATION = re.compile(r"/(dask-[0-9a-f]{16})/[^/]+$")
LOCKED = 30.0  # seconds, at most, that one writer locks a name's manifests
PATIENCE = 60.0  # seconds that gpubufd-peer has to bring a partition

MADE = re.compile(r"(.+)/dask-[0-9a-f]{16}/lease")

Manifest = Dict[str, Any]
Summary = Dict[str, Any]  # what list() needs of a manifest: its partitions as counts


def read_manifest(name: str) -> Optional[Manifest]:
    try:
        held = local_daemon().get(name)
    except _errors.NotFound:
        return None
    with held:
        try:
            manifest = json.loads(held.copy_to_host().tobytes()) if isinstance(held, Bytes) else None
        except ValueError:
            manifest = None
    if not isinstance(manifest, dict) or "gpubufd.dask" not in manifest:
        raise failure("invalid", f"{name!r} is not a publication of Dask's, but {held.__class__.__name__}")
    if manifest["gpubufd.dask"] != FORMAT:
        raise failure("unsupported", f"{name!r} has a manifest of format {manifest['gpubufd.dask']}, "
                     f"expected {FORMAT}: it was published by another version of gpubufd")
    return manifest


def homes(entry: Dict[str, Any]) -> List[str]:
    """The daemons that have a partition: the one that it was made on, and those of its replicas."""
    return [str(one["instance"]) for one in (entry, *entry.get("replicas", ()))]


def summary_of(manifest: Manifest) -> Summary:
    hosts: Dict[str, str] = {}
    counts: Dict[Tuple[str, ...], int] = {}
    for entry in manifest["partitions"]:
        hosts.update({str(one["instance"]): str(one["host"]) for one in (entry, *entry.get("replicas", ()))})
        counts[tuple(homes(entry))] = counts.get(tuple(homes(entry)), 0) + 1
    is_frame = manifest["kind"] == "frame"
    return {
        "kind": "series" if manifest.get("series") else str(manifest["kind"]),
        "rows": sum(int(entry["rows"]) for entry in manifest["partitions"]) if is_frame else None,
        "name": str(manifest["name"]), "hosts": hosts, "homes": [*counts.items()],
        "bytes": sum(int(entry["bytes"]) for entry in manifest["partitions"]),
        "generation": int(manifest["generation"]), "publication": str(manifest["publication"]),
    }


def summaries(prefix: str) -> List[Summary]:
    """The collections published in this daemon under names with that prefix, found by their objects `…/lease`."""
    made = (MADE.fullmatch(info.name) for info in found_here(prefix))
    found = []
    for name in sorted({match[1] for match in made if match and match[1].startswith(prefix)}):
        try:
            manifest = read_manifest(name)
        except (_errors.Denied, _errors.Invalid, _errors.Unsupported):  # another user's, or not made by publish()
            continue
        if manifest is None:  # being published, or deleted and still read
            continue
        try:
            found.append({**summary_of(manifest), "name": name})
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue  # any program may write a bad manifest: list() leaves it out
    return found


def write_manifest(manifest: Manifest, replace: bool) -> None:
    daemon = local_daemon()
    daemon.put(
        manifest["name"], json.dumps(manifest).encode(), replace=replace, mode=manifest["mode"],
        evict="keep", device=_small_device(daemon),
    )


def unwrite_manifest(manifest: Manifest, before: Optional[Manifest]) -> None:
    """Takes back a manifest just written: writes `before` again, if no other has replaced it."""
    if age(read_manifest(manifest["name"])) != age(manifest):
        return
    if before is None:
        delete_here(manifest["name"])
    else:
        write_manifest(before, True)


def _small_device(daemon: Client) -> Optional[str]:
    """The device for manifests and other small objects: "host" if the daemon has it; None: its default."""
    return "host" if any(device["id"] == "host" for device in daemon.devices()) else None


def by_peers(manifest: Manifest) -> bool:
    """Whether gpubufd-peer, where it runs, brings the partitions of other machines."""
    return manifest.get("scope") == "cluster"


def _schema(manifest: Manifest) -> str:
    return f"{manifest['name']}/{manifest['publication']}/schema"


def _lease(manifest: Manifest) -> str:
    return f"{manifest['name']}/{manifest['publication']}/lease"


def age(manifest: Optional[Manifest]) -> Tuple[int, str]:
    return (manifest["generation"], manifest["publication"]) if manifest else (0, "")


def _publications(name: str) -> Dict[str, List[Info]]:
    """The objects of each publication under a name, in this daemon."""
    found: Dict[str, List[Info]] = {}
    for info in found_here(f"{name}/"):
        match = PUBLICATION.match(info.name, len(name))
        if match:
            found.setdefault(match[1], []).append(info)
    return found


def purge(name: str, publication: str) -> None:
    """Deletes a publication from this daemon. Its lease goes first: put_partition() looks for that after the put."""
    delete_here(f"{name}/{publication}/lease")
    for info in _publications(name).get(publication, ()):
        with contextlib.suppress(_errors.Denied):  # a copy that gpubufd-peer brought: it goes with its source
            delete_here(info.name)


def sweep(name: str) -> None:
    """Deletes the publications that no process makes or reads, except for the current one."""
    idle = [publication for publication, objects in _publications(name).items() if not _in_use(objects)]
    current = read_manifest(name)  # later, so that a publication that is being made is not among the idle
    for publication in idle:
        lease = f"{name}/{publication}/lease"
        # Asked again: one may have been loaded while it was current. A program that loads it from now on sees that it is not.
        if (current is None or publication != current["publication"]) and not _in_use(found_here(lease)):
            with contextlib.suppress(_errors.Denied):  # another user's: that user will
                purge(name, publication)


def _in_use(objects: List[Info]) -> bool:
    return any(info.leases for info in objects if info.name.endswith("/lease"))


def keep_only(manifest: Manifest) -> None:
    """Checks that this daemon has its partitions, and deletes those that Dask made in two daemons."""
    daemon = local_daemon()
    wanted = {p["name"] for p in manifest["partitions"] if daemon.instance in homes(p)}
    there = {info.name for info in _publications(manifest["name"]).get(manifest["publication"], ())}
    if wanted - there:
        raise failure("stale", f"{min(wanted - there)!r} is no longer in the daemon of host {host_name()!r}: "
                     "it was evicted, or deleted")
    delete_here(*sorted(there - wanted - {_schema(manifest), _lease(manifest)}))


def forget(name: str) -> None:
    delete_here(name)
    sweep(name)


def lock(name: str) -> Optional[int]:
    """Locks a name's manifests; returns the lock's version, or None: another has it. Ends after LOCKED seconds."""
    daemon = local_daemon()
    try:
        daemon.put(f"{name}/dask-lock", b"", ttl=LOCKED, device=_small_device(daemon))
    except _errors.Exists:
        return None
    return daemon.stat(f"{name}/dask-lock").version


def unlock(name: str, version: int) -> None:
    local_daemon().call("delete", {"name": f"{name}/dask-lock", "version": version})


class _Hold:
    """A publication in one daemon, and a lease on it, which ends with this object.

    A pickled copy, such as another worker gets, has no lease; nor has one that Dask computes anew on another daemon's
    worker when the first has ended. `held`: whether the original has a lease.
    """

    def __init__(self, manifest: Manifest, instance: str, held: bool = False):
        self.manifest = manifest
        self.instance = instance
        self.held = held

    def __reduce__(self) -> Tuple[Any, ...]:
        return _Hold, (self.manifest, self.instance, self.held)

    def begin(self) -> None:
        """Creates the object `…/lease`, which has this lease from its beginning."""
        daemon = local_daemon()
        made = daemon.create(_lease(self.manifest), "uint8", 1, replace=True, evict="keep",
                             mode=self.manifest["mode"], device=_small_device(daemon))
        made.write(b"\0")
        made.seal()
        self._keep(daemon, made)

    def take(self) -> None:
        """Takes a lease. NotFound: the publication is deleted. Stale: it was replaced before the lease began."""
        daemon = local_daemon()
        self._keep(daemon, daemon.get(_lease(self.manifest)))
        current = read_manifest(self.manifest["name"])
        if current is None or age(current) > age(self.manifest):
            raise failure("stale", f"{self.manifest['name']!r} has been replaced or deleted")

    def _keep(self, daemon: Client, lease: Any) -> None:
        self.held = True
        weakref.finalize(self, _let_go, daemon, lease, self.manifest)


def _let_go(daemon: Client, lease: Any, manifest: Manifest) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _release(daemon, lease, manifest)
    else:  # a worker's loop, which must not wait
        threading.Thread(target=_release, args=(daemon, lease, manifest), daemon=True).start()


def _release(daemon: Client, lease: Any, manifest: Manifest) -> None:
    """Ends a lease. If it was the last one on a publication that is not current, deletes the publication."""
    try:
        lease.release()
        name, publication = manifest["name"], manifest["publication"]
        current = read_manifest(name)
        if current is None or current["publication"] != publication:
            if daemon.stat(_lease(manifest)).leases == 0:
                purge(name, publication)
    except Exception:  # the object or the daemon is gone; a finalizer has no caller to tell
        pass


# ---- what tasks do ----


def begin_publication(manifest: Manifest, instance: str, meta: Any) -> _Hold:
    """Makes lease and schema in this worker's daemon. The returned _Hold keeps the publication there."""
    hold = _Hold(manifest, instance)
    if is_here(instance):
        hold.begin()
        daemon = local_daemon()
        value = _frames.take_apart(meta)[0] if manifest["kind"] == "frame" else manifest["dtype"].encode()
        daemon.put(_schema(manifest), value, replace=True, evict="keep", mode=manifest["mode"],
                   device=_small_device(daemon))
    return hold


def hold_publication(manifest: Manifest, instance: str) -> _Hold:
    """Keeps a publication in this worker's daemon for as long as the returned _Hold lives."""
    hold = _Hold(manifest, instance)
    if is_here(instance):
        hold.take()
    return hold


def put_partition(value: Any, number: int, manifest: Manifest, options: Dict[str, Any]) -> Dict[str, Any]:
    """Puts a partition into this worker's daemon; returns its entry in the manifest."""
    what = f"partition {number} of {manifest['name']!r}, on host {host_name()!r}"
    name = f"{manifest['name']}/{manifest['publication']}/{number:05d}"
    try:
        daemon = local_daemon()
        entry = _put(daemon, name, value, manifest, options)
        info = daemon.stat(name)
        try:
            daemon.stat(_lease(manifest))
        except _errors.NotFound:
            delete_here(name)
            raise failure("stale", "its publication has ended, or began without this daemon") from None
    except _errors.Error as error:
        raise _errors.make(error.code, error.kind, f"{what}: {error}") from error
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}: {error}") from error
    return {"name": name, "instance": daemon.instance, "host": host_name(), "device": info.device,
            "bytes": info.bytes, **entry}


def read_original(manifest: Manifest, number: int, entry: Dict[str, Any]) -> Any:
    """Reads a partition where it was made, to make a replica of it; `manifest` has no partitions yet."""
    return _open_partition(_Hold({**manifest, "partitions": {number: entry}}, entry["instance"]), number)


def _put(daemon: Client, name: str, value: Any, manifest: Manifest, options: Dict[str, Any]) -> Dict[str, Any]:
    on_gpu = type(value).__module__.partition(".")[0] in ("cudf", "cupy")
    if options["device"] is None and not on_gpu:
        options = {**options, "device": "host"}
    if manifest["kind"] == "array":
        if not hasattr(value, "dtype") or value.dtype.names or hasattr(value, "mask"):
            raise TypeError(f"a block is a {type(value).__name__}: expected an array of plain elements")
        daemon.put(name, value, replace=True, **options)
        return {"shape": list(value.shape)}
    if not hasattr(value, "index") or not hasattr(value, "iloc"):
        raise TypeError(f"it is a {type(value).__name__}: expected a DataFrame or a Series")
    columns, spec = _frames.take_apart(value)
    daemon.put(name, columns, replace=True, **options)
    entry: Dict[str, Any] = {"rows": len(value), "index": spec["index"]}
    if spec["columns"] != manifest["columns"]:
        entry["columns"] = spec["columns"]
    return entry


def _where(manifest: Manifest, number: int) -> str:
    entry = manifest["partitions"][number]
    return f"partition {number} of {manifest['name']!r} ({entry['name']}), on host {entry['host']!r}"


def _open_partition(hold: _Hold, number: int, timeout: Optional[float] = None) -> Any:
    """Opens a partition in this process's daemon. `timeout`: how long gpubufd-peer may take to bring it there."""
    manifest = hold.manifest
    entry = manifest["partitions"][number]
    try:
        held = local_daemon().get(entry["name"], timeout=timeout)
        if manifest["kind"] == "frame":
            spec = _spec(manifest, entry)
            if held._ordinal >= 0:
                return _cudf.partition(held, _gpu.opened(held, ""), spec)
            return _frames.put_together(held, spec)
        if held._ordinal >= 0:
            return held.to_cupy()
        return held.to_numpy().astype(manifest["dtype"], copy=False)
    except _errors.Error as error:
        raise _errors.make(error.code, error.kind, f"{_where(manifest, number)}: {error}") from error


def _spec(manifest: Manifest, entry: Dict[str, Any]) -> Dict[str, Any]:
    spec = {"columns": entry.get("columns", manifest["columns"]), "index": entry["index"]}
    return {**spec, **{key: manifest[key] for key in ("label", "labels", "series") if key in manifest}}


def read_here(hold: _Hold, number: int) -> Any:
    """A partition from this worker's daemon alone, where gpubufd-peer may bring it."""
    entry = hold.manifest["partitions"][number]
    if any(map(is_here, homes(entry))):
        return _open_partition(hold, number)
    where = f"its daemon ({entry['instance']}) has ended, or no worker beside it is left"
    if not by_peers(hold.manifest):
        raise failure("not_found", f"{_where(hold.manifest, number)}: {where}")
    try:
        return _open_partition(hold, number, PATIENCE)
    except _errors.Error as error:
        raise failure("not_found", f"{error}. {where[0].upper()}{where[1:]}, and gpubufd-peer has not "
                     "brought the partition") from error


def read_partition(hold: _Hold, number: int) -> Any:
    """A partition: in place if this process's daemon has it, else by a task on a worker whose daemon has it."""
    having = homes(hold.manifest["partitions"][number])
    if any(map(is_here, having)) or not _in_worker():
        return read_here(hold, number)
    import distributed

    with distributed.worker_client() as client:
        cluster = Cluster(client)
        try:
            daemons = cluster.survey()
        except _errors.ConnectFailed:
            daemons = {}
        near = [daemons[home] for home in having if home in daemons]
        if not near and by_peers(hold.manifest):
            near = [*daemons.values()]
        workers = [worker for place in near for worker in place.workers]
        if workers:
            future = client.submit(read_here, hold, number, workers=workers,
                                   allow_other_workers=False, pure=False)
            if cluster.wait(future, workers):
                return future.result()
    return read_here(hold, number)  # raises the error that says where it was


def _in_worker() -> bool:
    if "distributed" not in sys.modules:
        return False
    import distributed

    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def read_schema(manifest: Manifest) -> Any:
    """A copy of the empty frame that has the published frame's types."""
    held = local_daemon().get(_schema(manifest))
    if held._ordinal >= 0:  # Node's is no rows of a partition, where that lies
        held = held.to_host()
    frame = _frames.put_together(held, _spec(manifest, {"index": manifest["index"]}))
    return pickle.loads(pickle.dumps(frame))
