"""The daemon's answers about objects: Info of list() and stat(), Event of a Watch."""

from __future__ import annotations

import collections
import dataclasses
import os
import select
import time
import weakref
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, TypeVar

from . import _errors, _repr


class Mode(int):
    """Permissions, which repr() shows in octal: 0o640."""

    def __repr__(self) -> str:
        return oct(self)


@dataclasses.dataclass(frozen=True)
class Info:
    """The daemon's description of an object.

    Sizes are in bytes, `created` is in seconds since 1970, `ttl` in seconds (0: for ever). `idle` is the number of
    seconds since the object was last opened or released, 0 while it is open. Only stat() has `layout`; only stat() and
    list() have `idle`.
    """

    name: str
    version: int
    state: str  # "open" or "sealed"
    tier: str  # where the bytes are: "device", "host" or "disk"
    device: str  # "host" or "GPU-…"
    bytes: int
    mode: int
    uid: int
    gid: int
    created: float
    leases: int
    pinned: bool
    ttl: float
    final: bool = False  # the kernel keeps every program from writing its memory
    share: str = ""
    evict: str = ""
    when_short: str = ""  # when memory is short and it has no leases, it "spills", "stays" or "drops"
    producer: str = ""
    layout: Optional[Dict[str, Any]] = None
    idle: Optional[float] = None
    label: Optional[str] = None  # the producer's label for this version
    keep: int = 0  # how many older versions the name keeps while this one is current
    older: bool = False  # not current, and can be opened by version or label
    gone: bool = False  # cannot be opened any more, and stays until its last lease ends
    scope: str = "local"  # "cluster": other machines can open it, by gpubufd-peer

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> "Info":
        known = {field.name: record[field.name] for field in dataclasses.fields(cls) if field.name in record}
        known.update(mode=Mode(record["mode"], 8), created=record["created_ms"] / 1000)
        known.update(ttl=record.get("ttl_ms", 0) / 1000)
        if "idle_ms" in record:
            known["idle"] = record["idle_ms"] / 1000
        return cls(**known)


_Record = TypeVar("_Record")


class Listing(List[_Record]):
    """A list that is a table in notebooks."""

    def _repr_html_(self) -> str:
        return _repr.records(self)


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to an object.

    `kind` is "sealed", "deleted", "evicted", "spilled", "restored", "withdrawn", "parked" or "resumed" (by View.park()
    and resume()). With `info` None it is one of these:

    - "synced": all objects that existed when the watch began have been reported.
    - "reconnected": the connection broke and was made anew. Events may be missing; all objects are reported again.
    - "refused": the daemon refused the watch after a reconnect, for a limit perhaps. Events follow after the next one.

    Later daemons may send other kinds.
    """

    kind: str
    info: Optional[Info] = None

    @property
    def name(self) -> Optional[str]:
        """The object's name."""
        return self.info.name if self.info else None


def of_this_user(info: Info, advice: str = "") -> Info:
    """An object that this user, or root, has published. Denied: another user has, who could guess the name."""
    if info.uid not in (os.getuid(), 0):
        raise _errors.failure(
            "denied", f"{info.name!r} has been published by user {info.uid}: expected this user or root{advice}")
    return info


FIELDS = ("name", "version", "bytes", "device", "state", "tier", "mode", "uid", "gid", "created", "leases", "pinned",
          "ttl", "label", "keep", "scope")  # of an Info, in the order in which _core tells them


def event_of(kind: str, *fields: Any) -> Event:
    if not fields:
        return Event(kind)
    known = dict(zip(FIELDS, fields))
    known.update(mode=Mode(known["mode"]), created=known["created"] / 1000, ttl=known["ttl"] / 1000,
                 label=known["label"] or None, scope="cluster" if known["scope"] else "local")
    return Event(kind, Info(**known))


def newer_of(name: str) -> Callable[[Event], bool]:
    """A function that says whether an event is the seal of a newer version of that name than all before."""
    last = 0

    def newer(event: Event) -> bool:
        nonlocal last
        info = event.info
        if event.kind != "sealed" or info is None or info.name != name or info.version <= last:
            return False
        last = info.version
        return True

    return newer


class Watch(Iterator[Event]):
    """Events, in order, as an iterator. close(), the end of a `with`, and del end it.

    next() waits for an event, at most the watch's `timeout` in seconds; then the iteration ends. Other threads may use
    the client meanwhile.
    """

    def __init__(self, client: Any, prefix: Optional[str], timeout: Optional[float]):
        self._client = client
        self._prefix = prefix
        self._timeout = timeout
        self._events: Deque[Event] = collections.deque()
        read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._read_end = read_end
        events = self._events

        def on_event(*fields: Any) -> None:  # in whichever thread dispatches
            events.append(event_of(*fields))
            try:
                os.write(write_end, b"!")
            except BlockingIOError:
                pass  # the pipe is full: the reader is awake already

        watches: List[Tuple[int, int]] = []  # (its number, that of the client's connection)

        def begin() -> None:
            watch = client._now("_watch", prefix, on_event)
            watches[:] = [(watch, client._connections)]

        self._watches, self._begin = watches, begin
        self._finalize = weakref.finalize(self, _end_watch, client, watches, read_end, write_end)
        self._finalize.atexit = False
        try:
            begin()
        except BaseException:
            self._finalize()
            raise

    def __repr__(self) -> str:
        names = f"names that begin with {self._prefix!r}" if self._prefix else "all names"
        return f"<gpubufd.Watch of {names}{'' if self._finalize.alive else ', ended'}>"

    def __iter__(self) -> "Watch":
        return self

    def poll(self) -> Optional[Event]:
        """Return the next event that has arrived; None if there is none."""
        if not self._events and self._finalize.alive:
            self._receive()
        return self._events.popleft() if self._events else None

    def _receive(self) -> None:
        """Takes in events. After a loss, watches the client's next connection, and makes it unless another call has."""
        try:
            self._client._dispatch()
            if self._watches[0][1] == self._client._connections:
                return
        except _errors.Closed:
            if self._client.closed or not self._client._resumes:
                raise
        self._events.append(Event("reconnected"))
        try:
            self._begin()
        except BaseException:
            self._events.pop()
            raise

    def __next__(self) -> Event:
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while self._finalize.alive:
            event = self.poll()
            if event is not None:
                return event
            poller = select.poll()
            poller.register(self._client.fileno(), self._client._events())
            poller.register(self._read_end, select.POLLIN)
            left = None if end is None else max(0.0, end - time.monotonic()) * 1000
            if not poller.poll(left) and end is not None and time.monotonic() >= end:
                break
            try:
                os.read(self._read_end, 4096)
            except BlockingIOError:
                pass
        raise StopIteration

    def close(self) -> None:
        """End the watch."""
        self._finalize()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _end_watch(client: Any, watches: List[Any], read_end: int, write_end: int) -> None:
    for watch, connection in watches:
        if connection == client._connections:  # else it ended with its connection
            client._unwatch(watch)
    os.close(read_end)
    os.close(write_end)
