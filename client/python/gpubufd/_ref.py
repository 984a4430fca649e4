"""Ref: one version of a name, small enough to send to other processes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from . import _core

if TYPE_CHECKING:
    from ._kinds import AnyKind

_connect: List[Callable[[Optional[str]], Any]] = []  # default_client()


def set_connect(connect: Callable[[Optional[str]], Any]) -> None:
    """The function that gives this process' connection, which is above this module."""
    _connect[:] = [connect]


@dataclasses.dataclass(frozen=True)
class Ref:
    """A name and a version, which can be pickled; put() and Client.ref() return it.

    get() opens the version in any process of this machine, without a copy. Refs of the same version are equal, and can
    be keys. A Ref does not keep its object alive: your program must not delete or replace the version meanwhile.
    `instance`: the daemon that has the version; "": any. `path`: the daemon's socket; None: where connect() looks.
    """

    name: str
    version: int
    instance: str = ""
    path: Optional[str] = dataclasses.field(default=None, compare=False)

    def __init__(self, name: str, version: int, instance: str = "", path: Optional[str] = None) -> None:
        vars(self).update(name=name, version=version, instance=instance, path=path)  # in a third of dataclass' own time

    def get(self, client: Optional[_core.Client] = None) -> AnyKind:
        """Open the version through a client, or through a connection that this process makes for all Refs.

        Stale: the version was deleted or replaced.
        """
        own: Any = client or _connect[0](self.path)
        return own.get(self)

    def __repr__(self) -> str:
        return f"gpubufd.Ref({self.name!r}, {self.version})"
