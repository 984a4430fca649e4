"""Providers: a function makes the absent objects that clients wait for."""

from __future__ import annotations

import inspect
import math
import os
import select
import socket
import threading
import time
import weakref
from collections import OrderedDict, deque
from typing import Any, Callable, Deque, Dict, Optional, Set, Tuple

from . import _errors

NOT_FOUND, UNAVAILABLE = -32001, -32011
ANSWER = 60.0  # seconds that the daemon has to answer `provide`
PAUSE = 0.5  # seconds between two attempts to provide again
REFUSALS = 10_000  # that a provider remembers at most
LOAD_TIMEOUT = 300.0  # seconds

Refusal = Tuple[int, str]


class Wanted(str):
    """A name that a client waits for: a str. `uid` and `gid` are those of the client that asked first."""

    uid: int
    gid: int
    request: int  # the daemon's number of it; 0: no client waits any more

    @property
    def wanted(self) -> bool:
        """Whether a client still waits; a slow loader may check, and stop."""
        return self.request != 0


def refusal(error: BaseException) -> Tuple[int, str]:
    """(number on the wire, sentence) of the error that waiting clients get for a loader's exception."""
    told = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, (LookupError, FileNotFoundError)):
        return NOT_FOUND, told or type(error).__name__
    return UNAVAILABLE, f"{type(error).__name__}: {told}" if told else type(error).__name__


def overdue(seconds: float) -> TimeoutError:
    """The exception for a load that took longer than it may."""
    return TimeoutError(f"the load has taken more than {seconds:g} s (load_timeout)")


class Book:
    """The names that are being made, each with its request, and those that are refused. For any thread."""

    def __init__(self, keep_refusals: float) -> None:
        self._lock = threading.Lock()
        self._making: Dict[str, Wanted] = {}
        self._keep = keep_refusals
        self._refused: Dict[str, Tuple[float, Refusal]] = {}  # until when, and how

    def empty(self) -> bool:
        """Whether no name is being made."""
        return not self._making

    def refused(self, name: str) -> Optional[Refusal]:
        """How a request for the name is refused without a load; None: it is not."""
        with self._lock:
            until, refused = self._refused.get(name, (0.0, None))
            if refused is not None and until <= time.monotonic():
                del self._refused[name]
                return None
            return refused

    def refuse(self, name: str, seconds: float, refused: Refusal) -> None:
        """Has requests for the name refused from now on; 0 seconds: no more."""
        with self._lock:
            self._refused.pop(name, None)
            if seconds > 0:
                self._refused[name] = (time.monotonic() + seconds, refused)
            if len(self._refused) > REFUSALS:
                self._refused.pop(next(iter(self._refused)))

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

    def fail(self, wanted: Wanted, refused: Refusal) -> int:
        """Removes a name, whose refusal may be remembered; returns the request to decline, 0: none."""
        self.refuse(wanted, self._keep, refused)
        return self.give_up(wanted)

    def give_up(self, wanted: Wanted) -> int:
        """As fail(), and remembers nothing."""
        with self._lock:
            self._making.pop(wanted, None)
            return wanted.request


class Tasks:
    """Names that wait to be loaded, and threads that wait for names. Users take turns, so that nobody waits behind all
    that one user wants."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: "OrderedDict[int, Deque[Wanted]]" = OrderedDict()  # by user; whose turn it is comes first
        self._names = self._idle = 0  # that wait: names, and threads
        self._ended = False

    def put(self, wanted: Wanted) -> None:
        with self._changed:
            self._turns.setdefault(wanted.uid, deque()).append(wanted)
            self._names += 1
            self._changed.notify()

    def lacks_threads(self) -> bool:
        """Whether more names wait than threads."""
        with self._changed:
            return self._names > self._idle

    def get(self) -> Optional[Wanted]:
        """The next name; waits for one. None: it has ended."""
        with self._changed:
            self._idle += 1
            while not self._turns and not self._ended:
                self._changed.wait()
            self._idle -= 1
            if self._ended:
                return None
            uid, names = self._turns.popitem(last=False)
            wanted = names.popleft()
            if names:
                self._turns[uid] = names
            self._names -= 1
            return wanted

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class _Load:
    """A load under way."""

    def __init__(self, wanted: Wanted, until: float):
        self.wanted, self.until, self.thread = wanted, until, threading.current_thread()
        self.late = False  # it was given up
        self.replaced = False  # another thread has taken its thread's place


class _Work:
    """A provider's own connection, a thread that listens to it, and threads that load, started as they are needed.

    It has no reference to the Provider, so that the Provider's finalizer can end it.
    """

    def __init__(
        self, client: Any, prefix: str, load: Callable[[Wanted], Any], threads: int, load_timeout: Optional[float],
        keep_refusals: float, options: Dict[str, Any],
    ):
        self.client = client
        self.prefix = prefix
        self.load = load
        self.load_timeout = load_timeout
        self.options = options
        self.ending = False
        self.process = os.getpid()
        self._book = Book(keep_refusals)
        self.lock = threading.Lock()
        self.loads: Set[_Load] = set()
        self.room = threads  # that may be started
        self.spare = threads  # that may take the place of threads whose loads are late
        self.tasks = Tasks()
        self.answered = False
        self.failure: Optional[BaseException] = None  # of the last attempt to provide
        self.connection = 0  # the client's number of the connection that provides
        self.woken, self.waking = socket.socketpair()
        self.woken.setblocking(False)
        self.waking.setblocking(False)
        self.threads = [threading.Thread(target=self._listen, name="gpubufd-provider", daemon=True)]

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
        self.threads[0].start()

    def _on_wanted(self, name: Optional[str], request: int, uid: int, gid: int) -> None:
        if name is None:
            self._book.over(request)
            return
        refused = self._book.refused(name)
        if refused is not None:
            self._say_no(request, refused)
            return
        wanted = self._book.ask(name, request, uid, gid)
        if wanted is not None:
            self.tasks.put(wanted)
            self._start_loader()

    def _decline(self, wanted: Wanted, error: BaseException) -> None:
        refused = refusal(error)
        self._say_no(self._book.fail(wanted, refused), refused)

    def _say_no(self, request: int, refused: Refusal) -> None:
        if not request or self.client.closed:
            return
        try:
            self.client._decline(request, *refused)
            self.wake()  # the listening thread sends it
        except _errors.Error:
            pass  # the connection is lost, and the request with it

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
                    seconds = self._give_up()
                    self._sleep(seconds if self._start_loader() else PAUSE, True)
                    continue
            except _errors.Error:
                pass  # the connection is lost
            if not self.ending:
                self._again()

    def _again(self) -> None:
        """Provides again, on a new connection or after a refusal. The daemon sends open requests again."""
        self._book.over(0)
        try:
            if self.failure is not None:
                self._sleep(PAUSE, False)
            self.say()
        except _errors.Error as error:
            self.failure = error

    # ---- loading ----

    def _start_loader(self) -> bool:
        """Starts a thread if a name waits for one, and there may be one more. False: it cannot be started now."""
        with self.lock:
            if not self.room or not self.tasks.lacks_threads():
                return True
            thread = threading.Thread(target=self._load_all, name=f"gpubufd-loader-{len(self.threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user, or the machine, has as many as there may be
                return False
            self.room -= 1
            self.threads.append(thread)
            return True

    def _load_all(self) -> None:
        while True:
            wanted = self.tasks.get()
            if wanted is None:
                return
            seen = wanted.request
            if seen == 0 and self._book.drop(wanted, 0):
                continue
            load = _Load(wanted, time.monotonic() + (self.load_timeout or math.inf))
            with self.lock:
                self.loads.add(load)
            try:
                self._make(wanted)
                if self._in_time(load):
                    self._made(wanted, seen)
            except BaseException as error:  # SystemExit ends no thread of the pool
                if self._in_time(load):
                    self._decline(wanted, error)
            if load.late:
                self._book.refuse(wanted, 0, (0, ""))
            if load.replaced:
                with self.lock:
                    self.spare += 1
            if load.replaced or self.ending:
                return
            if load.late:
                self.threads.append(load.thread)

    def _in_time(self, load: _Load) -> bool:
        """Notes that a load has ended. Whether it was not given up before."""
        with self.lock:
            self.loads.discard(load)
            return not load.late

    def _give_up(self) -> Optional[float]:
        """Declines the names of loads that take too long, and has other threads take the place of theirs. Until such
        a load ends, its name is refused without another one. Returns the seconds until the next look; None: for now
        none is needed.
        """
        if self.load_timeout is None or self._book.empty():
            return None
        now = time.monotonic()
        with self.lock:
            late = [load for load in self.loads if load.until <= now]
            for load in late:
                self.loads.discard(load)
                load.late = True
                load.replaced = self.spare > 0
                self.spare -= load.replaced
                self.room += load.replaced
                self._book.refuse(load.wanted, math.inf, refusal(overdue(self.load_timeout)))
        for load in late:
            self._say_no(self._book.give_up(load.wanted), refusal(overdue(self.load_timeout)))
            self.threads.remove(load.thread)  # nobody waits for it
            self._start_loader()
        return min(1.0, self.load_timeout / 4)

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
        while not self._book.drop(wanted, seen):
            seen = wanted.request
            if seen and wanted not in self.client:
                self.tasks.put(wanted)
                return

    # ---- the end ----

    def end(self, wait: bool) -> None:
        if self.ending or self.process != os.getpid():
            return
        self.ending = True
        try:
            self.client._provide_end(self.prefix)
        except _errors.Error:
            pass
        self.tasks.end()
        self.wake()
        mine = threading.current_thread()
        for thread in self.threads[:] if wait else self.threads[:1]:
            if thread is not mine and thread.is_alive():
                thread.join(self.load_timeout)
        self.client.close()
        if not self.threads[0].is_alive():
            self.woken.close()
            self.waking.close()


class Provider:
    """A provider, made by Client.provide(). close(), the end of a `with`, or the client's close() ends it."""

    def __init__(
        self, client: Any, prefix: str, load: Callable[[Wanted], Any], threads: int, load_timeout: Optional[float],
        keep_refusals: float, options: Dict[str, Any],
    ):
        work = self._work = _Work(client, prefix, load, threads, load_timeout, keep_refusals, options)
        self._finalize = weakref.finalize(self, work.end, False)
        try:
            work.begin()
        except BaseException:
            self._finalize()
            raise

    @property
    def prefix(self) -> str:
        """The beginning of the names that it provides."""
        return self._work.prefix

    @property
    def closed(self) -> bool:
        """Whether the provider has ended."""
        return self._work.ending

    def close(self) -> None:
        """End the provider, and wait for loads in progress, for `load_timeout` at most.

        Requests that have not begun go to other providers.
        """
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


def check(
    load: Any, threads: int, load_timeout: Optional[float], keep_refusals: float, put: Callable[..., Any],
    options: Dict[str, Any],
) -> None:
    """Raises at once an error that would otherwise end each load."""
    if not callable(load):
        raise TypeError(f"load is {load!r}: expected a function that takes a name")
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"{threads!r} loads at a time: expected 1 or more")
    if load_timeout is not None and not load_timeout > 0:
        raise ValueError(f"load_timeout={load_timeout!r}: expected seconds above 0, or None for no bound")
    if not keep_refusals >= 0:
        raise ValueError(f"keep_refusals={keep_refusals!r}: expected seconds; 0: none is kept")
    inspect.signature(put).bind(None, "", None, **options)

