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

    def __init__(self, name: str, version: int, instance: str = "", path: Optional[str] = None) -> None:
        vars(self).update(name=name, version=version, instance=instance, path=path)  # in a third of dataclass' own time

    def get(self, client: Optional[_core.Client] = None) -> AnyKind:
        """Opens it by a client, or by a connection that this process makes for all Refs.

        Stale: the version is gone, since its name was deleted or has another object now.
        """
        own: Any = client or _connect[0](self.path)
        return own.get(self)

    def __repr__(self) -> str:
        return f"gpubufd.Ref({self.name!r}, {self.version})"
