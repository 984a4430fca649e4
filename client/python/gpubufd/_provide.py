"""Providers: a function makes the absent objects that clients wait for."""

from __future__ import annotations

import inspect
import os
import queue
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

from . import _errors

NOT_FOUND, UNAVAILABLE = -32001, -32011
ANSWER = 60.0  # seconds that the daemon has to answer `provide`
PAUSE = 0.5  # seconds between two attempts to provide again


class Wanted(str):
    """A name that a client waits for: a str. `uid` and `gid` are those of the client that asked first."""

    uid: int
    gid: int
    request: int  # the daemon's number of it; 0: no client waits any more

    @property
    def wanted(self) -> bool:
        """Whether a client still waits: a loader that takes long may look, and stop."""
        return self.request != 0


def refusal(error: BaseException) -> Tuple[int, str]:
    """(number on the wire, sentence) of the error that waiting clients get for a loader's exception."""
    told = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, (LookupError, FileNotFoundError)):
        return NOT_FOUND, told or type(error).__name__
    return UNAVAILABLE, f"{type(error).__name__}: {told}" if told else type(error).__name__


class Book:
    """The names that are being made, each with its request. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: Dict[str, Wanted] = {}

    def ask(self, name: str, request: int, uid: int, gid: int) -> Optional[Wanted]:
        """The name to be made now; None: it is being made, and this request has the same outcome."""
        with self._lock:
            wanted = self._making.get(name)
            if wanted is not None:
                wanted.request = request
                return None
            wanted = self._making[name] = Wanted(name)
            wanted.request, wanted.uid, wanted.gid = request, uid, gid
            return wanted

    def over(self, request: int) -> None:
        """Notes that no client waits for a request any more; 0: for any request."""
        with self._lock:
            for wanted in self._making.values():
                if request in (0, wanted.request):
                    wanted.request = 0

    def drop(self, wanted: Wanted, seen: int) -> bool:
        """Removes a name, unless another request than `seen` asks for it. Whether it did."""
        with self._lock:
            if wanted.request not in (0, seen):
                return False
            self._making.pop(wanted, None)
            return True

    def fail(self, wanted: Wanted) -> int:
        """Removes a name; returns the request to decline, 0: none."""
        with self._lock:
            self._making.pop(wanted, None)
            return wanted.request


class _Work:
    """A provider's own connection, a thread that listens to it, and threads that load.

    It has no reference to the Provider, so that the Provider's finalizer can end it.
    """

    def __init__(
        self, client: Any, prefix: str, load: Callable[[Wanted], Any], threads: int, options: Dict[str, Any]
    ):
        self.client = client
        self.prefix = prefix
        self.load = load
        self.options = options
        self.ending = False
        self.process = os.getpid()
        self.book = Book()
        self.tasks: "queue.SimpleQueue[Optional[Wanted]]" = queue.SimpleQueue()
        self.answered = False
        self.failure: Optional[BaseException] = None  # of the last attempt to provide
        self.connection = 0  # the client's number of the connection that provides
        self.woken, self.waking = socket.socketpair()
        self.woken.setblocking(False)
        self.waking.setblocking(False)
        self.threads = [threading.Thread(target=self._listen, name="gpubufd-provider", daemon=True)]
        self.threads += [
            threading.Thread(target=self._load_all, name=f"gpubufd-loader-{i}", daemon=True) for i in range(threads)
        ]

    # ---- listening ----

    def say(self) -> None:
        """Begins to provide on the current connection, or on the next one after a loss."""
        self.answered, self.failure = False, None
        self.client._provide_async(self.prefix, self._on_wanted, self._on_answer)
        self.connection = self.client._connections

    def _on_answer(self, error: Optional[BaseException], result: Any) -> None:
        self.answered, self.failure = True, error

    def begin(self) -> None:
        """Provides, and waits for the answer."""
        self.say()
        until = time.monotonic() + ANSWER
        while not self.answered:
            self.client._dispatch()
            self._sleep(PAUSE, True)
            if time.monotonic() > until:
                raise _errors.failure("timeout", f"provide was not answered in {ANSWER:.0f} s")
        if self.failure is not None:
            raise self.failure
        for thread in self.threads:
            thread.start()

    def _on_wanted(self, name: Optional[str], request: int, uid: int, gid: int) -> None:
        if name is None:
            self.book.over(request)
            return
        wanted = self.book.ask(name, request, uid, gid)
        if wanted is not None:
            self.tasks.put(wanted)

    def wake(self) -> None:
        try:
            self.waking.send(b"!")
        except OSError:
            pass  # the thread is awake already, or has ended

    def _sleep(self, seconds: Optional[float], listening: bool) -> None:
        poller = select.poll()
        poller.register(self.woken, select.POLLIN)
        if listening:
            poller.register(self.client.fileno(), self.client._events())
        poller.poll(None if seconds is None else seconds * 1000)
        try:
            self.woken.recv(4096)
        except BlockingIOError:
            pass

    def _listen(self) -> None:
        while not self.ending:
            try:
                self.client._dispatch()
                if self.failure is None and self.connection == self.client._connections:
                    self._sleep(None, True)
                    continue
            except _errors.Error:
                pass  # the connection is lost
            if not self.ending:
                self._again()

    def _again(self) -> None:
        """Provides again, on a new connection or after a refusal. The daemon sends open requests again."""
        self.book.over(0)
        try:
            if self.failure is not None:
                self._sleep(PAUSE, False)
            self.say()
        except _errors.Error as error:
            self.failure = error

    # ---- loading ----

    def _load_all(self) -> None:
        while True:
            wanted = self.tasks.get()
            if wanted is None:
                return
            seen = wanted.request
            if seen == 0 and self.book.drop(wanted, 0):
                continue
            try:
                self._make(wanted)
                self._made(wanted, seen)
            except BaseException as error:  # SystemExit ends no thread of the pool
                self._decline(wanted, error)

    def _make(self, wanted: Wanted) -> None:
        value = self.load(wanted)
        if value is not None:
            try:
                self.client.put(str(wanted), value, **self.options)
            except _errors.Exists:
                pass  # another program was quicker
        elif wanted not in self.client:
            raise LookupError(f"the provider of {self.prefix!r} gave nothing")

    def _made(self, wanted: Wanted, seen: int) -> None:
        """Ends the requests that came meanwhile, too: the object answers them, unless it is deleted already."""
        while not self.book.drop(wanted, seen):
            seen = wanted.request
            if seen and wanted not in self.client:
                self.tasks.put(wanted)
                return

    def _decline(self, wanted: Wanted, error: BaseException) -> None:
        request = self.book.fail(wanted)
        if not request:
            return
        try:
            self.client._decline(request, *refusal(error))
            self.wake()  # the listening thread sends what the socket had no room for
        except _errors.Error:
            pass  # the connection is lost, and the request with it

    # ---- the end ----

    def end(self, wait: bool) -> None:
        if self.ending or self.process != os.getpid():
            return
        self.ending = True
        try:
            self.client._provide_end(self.prefix)
        except _errors.Error:
            pass
        while not self.tasks.empty():
            self.tasks.get()
        for _ in self.threads[1:]:
            self.tasks.put(None)
        self.wake()
        mine = threading.current_thread()
        for thread in self.threads if wait else self.threads[:1]:
            if thread is not mine and thread.is_alive():
                thread.join()
        self.client.close()
        if not self.threads[0].is_alive():
            self.woken.close()
            self.waking.close()


class Provider:
    """The result of Client.provide(): close(), or the end of a `with`, ends it. It ends with the client, too."""

    def __init__(
        self, client: Any, prefix: str, load: Callable[[Wanted], Any], threads: int, options: Dict[str, Any]
    ):
        work = self._work = _Work(client, prefix, load, threads, options)
        self._finalize = weakref.finalize(self, work.end, False)
        try:
            work.begin()
        except BaseException:
            self._finalize()
            raise

    @property
    def prefix(self) -> str:
        """The beginning of the names that it makes."""
        return self._work.prefix

    @property
    def closed(self) -> bool:
        """Whether the provider has ended."""
        return self._work.ending

    def close(self) -> None:
        """Ends the provider, and waits for loads under way. Requests not begun yet go to other providers."""
        self._finalize.detach()
        self._work.end(True)

    def _abandon(self) -> None:
        """Closes as close() does, and waits for nothing."""
        self._finalize()

    def __enter__(self) -> "Provider":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<gpubufd.Provider of {self.prefix!r}{', closed' if self.closed else ''}>"


def check(load: Any, threads: int, put: Callable[..., Any], options: Dict[str, Any]) -> None:
    """Raises at once an error that would otherwise end each load."""
    if not callable(load):
        raise TypeError(f"load is {load!r}: expected a function that takes a name")
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"{threads!r} loads at a time: expected 1 or more")
    inspect.signature(put).bind(None, "", None, **options)

