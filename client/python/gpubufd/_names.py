"""The names of a daemon as a mapping, and the calls on objects that do not open them."""

from __future__ import annotations

import abc
from typing import (
    Any, Dict, ItemsView, Iterator, List, Mapping, MutableMapping, Optional, Sequence, Tuple, Union, ValuesView,
)

from . import _errors, _params
from ._told import Info

MOVE_TIMEOUT = 120.0  # seconds: the daemon gives its own work one minute
_REQUIRED: Any = object()


class Items(ItemsView[str, Any]):
    """Pairs (name, object). The iteration opens each object in its turn, and leaves out those deleted by then."""

    _mapping: "Names"

    def __iter__(self) -> Iterator[Tuple[str, Any]]:
        for name in self._mapping:
            try:
                held = self._mapping[name]
            except _errors.NotFound:
                continue
            yield name, held


class Values(ValuesView[Any]):
    _mapping: "Names"

    def __iter__(self) -> Iterator[Any]:
        return (held for _, held in self._mapping.items())


class Names(MutableMapping[str, Any]):
    """A mutable mapping of the daemon's names: all that this user may see, whoever published them.

    `client[name]` is get(), `client[name] = value` is put(replace=True), `del client[name]` is delete(). get() takes
    a timeout where a dict's takes a default. update() puts one value after the other; it is no transaction.
    """

    _mine: Dict[str, Any]  # the values that share_mine() shares, by name

    @abc.abstractmethod
    def call(self, method: str, params: Optional[Dict[str, Any]] = None, *, timeout: Optional[float] = 60.0) -> Any: ...

    @abc.abstractmethod
    def put(self, name: str, value: Any) -> Any: ...

    __eq__ = object.__eq__  # a client equals itself alone, whatever is published
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[str]:
        """The names of the published objects, in order."""
        return iter([info.name for info in self.list()])

    def __len__(self) -> int:
        """The number of published objects that this user may see."""
        return len(self.list())

    def __bool__(self) -> bool:
        return True

    def __delitem__(self, name: str) -> None:
        """delete(name)"""
        self.delete(name)

    def items(self) -> ItemsView[str, Any]:
        """Pairs of a name and its object, which is opened when the iteration comes to it."""
        return Items(self)

    def values(self) -> ValuesView[Any]:
        """The objects of items()."""
        return Values(self)

    def pop(self, name: str, default: Any = _REQUIRED) -> Any:
        """Opens an object and deletes that version of its name. If there is none: `default`, or NotFound."""
        while True:
            try:
                held = self[name]
            except _errors.NotFound:
                if default is _REQUIRED:
                    raise
                return default
            try:
                self.call("delete", {"name": name, "version": held.version})
            except (_errors.NotFound, _errors.Stale):  # deleted or replaced since it was opened
                held.release()
                continue
            except BaseException:
                held.release()
                raise
            self._mine.pop(name, None)
            return held

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Opens an object. If there is none, publishes `default` first, unless another program is quicker."""
        while True:
            try:
                return self[name]
            except _errors.NotFound:
                pass
            try:
                self.put(name, default)
            except _errors.Exists:
                pass

    def popitem(self) -> Any:
        """A TypeError: it would delete an arbitrary object."""
        raise TypeError("the names are everybody's: pop(name) deletes one that you choose")

    def clear(self) -> None:
        """A TypeError: it would delete other programs' objects, too."""
        raise TypeError("the names are everybody's: delete(*client.keys()) deletes all that you may delete")

    def list(self, prefix: str = "", *, versions: bool = False) -> List[Info]:
        """The objects whose names begin with `prefix`, in the order of names.

        With `versions` each name's older versions follow its current one, newest first.
        """
        found: List[Info] = []
        params: Dict[str, Any] = {"prefix": prefix, "versions": versions}
        while True:
            answer = self.call("list", params)
            found += [Info._of(record) for record in answer["objects"]]
            if "cursor" not in answer:
                return found
            params["cursor"] = answer["cursor"]

    def stat(self, name: str, *, version: int = 0, label: Optional[str] = None) -> Info:
        """An object's Info, with its layout; the object is not opened. NotFound, Stale."""
        return Info._of(self.call("stat", _params.which(name, version, label))["object"])

    def delete(
        self, *names: str, missing_ok: bool = False, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Removes names with all their versions; the memory is freed with the last lease. NotFound, unless `missing_ok`.

        Of one name a `version`, or the newest with a `label`: an older one goes alone, the current one takes the name
        and the older ones along. Stale, unless `missing_ok`: the name does not have that version any more.
        """
        one = _params.deleted(names, version, label)
        for name in names:
            if not one:
                self._mine.pop(name, None)
            try:
                self.call("delete", _params.which(name, version, label))
            except (_errors.NotFound, _errors.Stale):
                if not missing_ok:
                    raise
            if one and name in self._mine and name not in self:
                self._mine.pop(name, None)

    def pin(self, name: str) -> None:
        """Keeps an object from being evicted, until unpin(). NotFound, Denied."""
        self.call("pin", {"name": name})

    def unpin(self, name: str) -> None:
        """Takes a pin back."""
        self.call("unpin", {"name": name})

    def expire(
        self, name: str, ttl: Optional[float], *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """The daemon deletes the object in `ttl` seconds, whatever was set before; None, 0: never. NotFound, Denied.

        Of a `version`, or the newest with a `label`, in place of the current one: Stale.
        """
        self.call("expire", _params.expire(name, ttl, version, label))

    def spill(
        self, name: str, tier: Optional[str] = None, *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Moves an object off its device now, to a tier below: "host" or "disk"; None: the first there is.

        A `version`, or the newest with a `label`, in place of the current one: Stale.

        The daemon spills by itself when memory is short. Busy: a program has a lease on the object. NoSpace: the tier
        is full. Unsupported: there is no such tier.
        """
        self.call("spill", _params.spill(name, tier, version, label), timeout=MOVE_TIMEOUT)

    def restore(
        self, name: str, timeout: Optional[float] = None, *, version: int = 0, label: Optional[str] = None
    ) -> None:
        """Brings an object back to its device before it is opened. The daemon may spill it again.

        `timeout`: how long to wait for room on the device. A `version`, or the newest with a `label`, in place of the
        current one: Stale. NotFound, NoSpace (a MemoryError), Timeout.
        """
        params = _params.restore(name, timeout, version, label)
        self.call("restore", params, timeout=MOVE_TIMEOUT + (timeout or 0))

    def alias(
        self, name: str, of: str, *, rows: Optional[Tuple[int, int]] = None,
        columns: Optional[Sequence[str]] = None, parts: Optional[Sequence[str]] = None,
        layout: Optional[Mapping[str, Any]] = None, mode: Union[int, str, None] = None,
        replace: bool = False, label: Optional[str] = None, keep: int = 0, scope: str = "local",
    ) -> None:
        """Gives an object, or a part of it, another name; both share the memory.

        `rows`: (start, stop), in rows, elements, or along an array's first axis. `columns`: names of a
        table's columns, in the order you want. `parts`: names of a bundle's tensors; "layers.0.*" stands for
        all that begin with "layers.0.". `layout`: how to read the content of bytes, an array
        or a bundle, in the protocol's form; its buffers are {"offset": …, "bytes": …} in that content. `mode`: by
        default that of `of`. `replace`, `label`, `keep` and `scope`: as put() has them, for the new name.
        """
        self.call("alias", _params.alias(
            name, of, rows, columns, parts, layout, mode, replace, label, keep, scope))

    def leases(self, name: Optional[str] = None) -> List[Dict[str, Any]]:
        """The leases: dicts with lease, session, pid, uid, client, name, version, bytes, …"""
        return self.call("leases", {"name": name} if name else {})["leases"]

    def stats(self) -> Dict[str, Any]:
        """The daemon's counters, which may differ between versions."""
        return self.call("stats")

    def devices(self) -> List[Dict[str, Any]]:
        """The daemon's devices: dicts with at least id, capacity and used, in bytes."""
        return self.stats()["devices"]
