"""The cluster as this machine's gpubufd-peer knows it: its names, where they are, and its machines.

    import gpubufd.cluster

    for place in gpubufd.cluster.where("cols/price"):
        print(place.node, place.bytes)

get() with a timeout opens these names like any others. Each function asks gpubufd-peer at `socket`; None:
$GPUBUFD_PEER_SOCKET, else /run/gpubufd-peer/peer.sock. ConnectFailed: no answer within `timeout` seconds. Unavailable:
the peer cannot answer now.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket as _socket
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _core, _errors

__all__ = ["Name", "Peer", "Place", "Places", "list", "peers", "stats", "where"]

SOCKET = "/run/gpubufd-peer/peer.sock"
LINE_BYTES = 64 << 20  # of an answer, at most


@dataclasses.dataclass(frozen=True)
class Place:
    """A machine that has a name's content.

    `origin`: the machine that published it. `since`: when this one published or copied it, in seconds since 1970 by
    its own clock; 0: unknown.
    """

    node: str
    origin: str
    version: int  # of the object in that machine's daemon
    bytes: int
    since: float
    host: Optional[str] = None  # where it is reached; None: it is this machine
    port: Optional[int] = None

    @property
    def is_copy(self) -> bool:
        return self.node != self.origin


class Places(List[Place]):
    """The machines that have a name. `why`: why other machines could not be asked, so that some may be missing."""

    why: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Name:
    """A name that a machine has published."""

    name: str
    node: str
    version: int
    bytes: int
    since: float
    copies: int  # on other machines


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another machine of the cluster."""

    node: str
    host: str
    port: int


def _exchange(connection: _socket.socket, question: Dict[str, Any], path: str) -> bytes:
    """Asks a question; returns the answer, a line. Each part of it must come within the connection's timeout."""
    answer = bytearray()
    connection.sendall(json.dumps(question).encode() + b"\n")
    while not answer.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more or len(answer) > LINE_BYTES:
            raise _errors.failure("connect", f"gpubufd-peer at {path} does not answer: it has hung up")
        answer += more
    return bytes(answer)


def _ask(socket: Optional[str], timeout: float, question: Dict[str, Any]) -> Dict[str, Any]:
    path = socket or os.environ.get("GPUBUFD_PEER_SOCKET") or SOCKET
    try:
        with _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            answer = json.loads(_exchange(connection, question, path))
    except OSError as error:
        if isinstance(error, _errors.Error):
            raise
        hint = ("are you in the group of its socket, gpubufd?" if isinstance(error, PermissionError)
                else "does it run with --query? $GPUBUFD_PEER_SOCKET names its socket")
        raise _errors.failure("connect", f"cannot ask gpubufd-peer at {path}: {error.strerror or error}; {hint}") from error
    except ValueError as error:
        raise _errors.failure("protocol", f"the answer of gpubufd-peer at {path} makes no sense") from error
    with _sensible():
        if "error" not in answer:
            return answer
        kind, message = str(answer["error"]["kind"]), str(answer["error"]["message"])
    raise _errors.failure(kind if hasattr(_core, f"E_{kind.upper()}") else "internal", message)


@contextlib.contextmanager
def _sensible() -> Iterator[None]:
    """ProtocolError: the answer lacks a member, or has one of another type."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise _errors.failure("protocol", f"the answer of gpubufd-peer makes no sense: {error!r}") from error


def _record(kind: Any, told: Dict[str, Any]) -> Any:
    """A record of the members that are known here: a later peer may send more. Times become seconds."""
    known = {field.name: told[field.name] for field in dataclasses.fields(kind) if field.name in told}
    if "since" in known:
        known["since"] /= 1000
    return kind(**known)


def where(name: str, *, socket: Optional[str] = None, timeout: float = 30) -> Places:
    """Return the machines that have the name, this one first. NotFound: none has it.

    A name that is not published yet can be opened too: get() with a timeout waits for it.
    """
    answer = _ask(socket, timeout, {"method": "where", "name": name})
    with _sensible():
        places = Places(_record(Place, place) for place in answer["places"])
        places.why = answer.get("why")
        return places


def list(prefix: str = "", *, socket: Optional[str] = None, timeout: float = 30) -> List[Name]:
    """Return the names of the cluster that begin with `prefix`, in order."""
    found: List[Name] = []
    question = {"method": "list", "prefix": prefix}
    while True:
        answer = _ask(socket, timeout, question)
        with _sensible():
            found += [_record(Name, name) for name in answer["names"]]
        if "after" not in answer:
            return found
        question["after"] = answer["after"]


def peers(*, socket: Optional[str] = None, timeout: float = 30) -> List[Peer]:
    """Return the other machines of the cluster that are reachable now, in the order of their names."""
    answer = _ask(socket, timeout, {"method": "peers"})
    with _sensible():
        return sorted((_record(Peer, peer) for peer in answer["peers"]), key=lambda peer: peer.node)


def stats(*, socket: Optional[str] = None, timeout: float = 30) -> Dict[str, Union[float, Dict[str, float]]]:
    """Return the peer's metrics as METRICS.md names them, without `gpubufd_peer_`; `fetch_failures_total` is a dict."""
    told: Dict[str, Union[float, Dict[str, float]]] = {}
    answer = _ask(socket, timeout, {"method": "metrics"})
    with _sensible():
        for family in answer["families"]:
            name, samples = family["name"].removeprefix("gpubufd_peer_"), family["samples"]
            if samples and "labels" not in samples[0]:
                told[name] = samples[0]["value"]
            else:
                told[name] = {sample["labels"]["kind"]: sample["value"] for sample in samples}
    return told
