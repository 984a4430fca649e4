"""The names of a daemon as a mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, ItemsView, Iterator, MutableMapping, Tuple, ValuesView

from . import _errors, _params
from ._calls import Calls, blocking

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
    """A mutable mapping of the daemon's names: all that this user may see, of any owner.

    `client[name]` is get(), `client[name] = value` is put(replace=True), `del client[name]` is delete(). get() raises
    NotFound without a default. update() puts one value after the other; it is not a transaction.
    """

    _mine: Dict[str, Any]  # the values that share_mine() shares, by name

    if TYPE_CHECKING:
        list = blocking(Calls.list)
        put = blocking(Calls.put)
        delete = blocking(Calls.delete)

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

    def __setitem__(self, name: str, value: Any) -> None:
        """put(name, value, replace=True)"""
        self.put(name, value, replace=True)

    def __delitem__(self, name: str) -> None:
        """delete(name), whose name is no pattern here"""
        if _params.is_pattern(name) and name not in self:
            raise _errors.failure("not_found", f"there is no object {name!r}")
        self.delete(name)

    def items(self) -> ItemsView[str, Any]:
        """Return pairs of a name and its object, which is opened when the iteration reaches it."""
        return Items(self)

    def values(self) -> ValuesView[Any]:
        """Return the objects of items()."""
        return Values(self)

    def pop(self, name: str, default: Any = _REQUIRED) -> Any:
        """Open an object and delete that version of its name. NotFound, unless a `default` is given."""
        while True:
            try:
                held = self[name]
            except _errors.NotFound:
                if default is _REQUIRED:
                    raise
                return default
            try:
                self.delete(name, version=held.version)
            except (_errors.NotFound, _errors.Stale):  # deleted or replaced since it was opened
                held.release()
                continue
            except BaseException:
                held.release()
                raise
            return held

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Open an object; if the name is absent, publish `default` first."""
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
        """Raise TypeError: it would delete an arbitrary object."""
        raise TypeError("the names are everybody's: pop(name) deletes one that you choose")

    def clear(self) -> None:
        """Raise TypeError: it would delete other programs' objects, too."""
        raise TypeError("the names are everybody's: delete(*client.keys()) deletes all that you may delete")
