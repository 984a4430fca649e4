"""Files of bundles: written, and read by one process for all.

load() is read-through: of the processes that want a file at the same time, one reads and publishes it. The others wait
and map the published bundle, as do all later ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pathlib
import threading
from typing import Any, BinaryIO, Callable, Iterator, Mapping, Optional, Tuple

from . import _bundle, _client, _convert, _errors, _packing, _params, _progress, cuda
from ._client import Client, default_client
from ._files import FilePath, Sink
from ._layout import BUNDLE, DATA
from ._params import Evict, Mode, Seconds
from ._reading import File
from ._shards import SUFFIX, Shards
from ._told import of_this_user

# ---- writing ----


def _pieces(copy: Any) -> Iterator[Any]:
    """The bytes of a copy's source, as buffers."""
    device = getattr(copy.keep, "device", None)  # of a Plan or a Part; a collected array is on the host
    for at in range(0, copy.size, _progress.PIECE):
        count = min(_progress.PIECE, copy.size - at)
        if isinstance(device, int):
            yield cuda.read_bytes(copy.address + at, count, device)
        else:
            yield (ctypes.c_ubyte * count).from_address(copy.address + at)


def save(tensors: Mapping[str, Any], path: FilePath, metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a safetensors file under a temporary name, and renames it when it is complete.

    A Bundle without new metadata keeps its own, and is written byte for byte.
    """
    target = pathlib.Path(os.path.realpath(os.fsdecode(path)))
    whole = isinstance(tensors, _bundle.Bundle) and metadata is None
    plan = _convert.plan(tensors) if whole else _packing.tensors(tensors, metadata, None)
    _client.wait_for_streams(plan, None)
    part = target.with_name(f".gpubufd-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with _progress.of(target.name, plan.nbytes), Sink(part) as file:
            for copy in _packing.copies(plan):
                for piece in _pieces(copy):
                    file.write(piece)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


# ---- reading ----


@contextlib.contextmanager
def _alone(file: BinaryIO) -> Iterator[None]:
    """Holds a lock on the file, which the kernel releases if the process dies.

    Without locks in the file system several processes may read the file; the result is the same.
    """
    locked = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        locked = False
    try:
        yield
    finally:
        if locked:  # a child of fork() has the file open, too
            fcntl.flock(file, fcntl.LOCK_UN)


def _published(client: Client, name: str, derived: bool) -> Optional[_bundle.Bundle]:
    """The bundle published under the name; None: there is none.

    Other users can guess a name that is derived from a file. Such a bundle must be of this user or of root: Denied.
    """
    try:
        found = client.get(name)
        if not isinstance(found, _bundle.Bundle):
            raise TypeError(f"{name!r} is a {type(found).__name__}, no bundle: give another name=")
        if not derived:
            return found
        info = client.stat(name)
    except _errors.NotFound:
        return None
    if info.version != found.version:  # replaced meanwhile
        return _published(client, name, derived)
    of_this_user(info, "; give another name=")
    return found


def _spread(client: Client, file: File, made: _bundle.Bundle, place: str) -> bool:
    """Fills a Bundle on a GPU with the one that the file has on another GPU. False: it has none that can be copied."""
    for device in client.devices() if place else ():
        if device["id"] in ("host", place):
            continue
        try:
            there = _published(client, file.name(device["id"]), True)
            if there is None or there._length != made._length:
                continue
            with there:
                there._wait_ready(0)
                made._write(DATA, 0, there._buffer(DATA).pointer, there._length, 0)
                return True
        except (_errors.Unsupported, _errors.DeviceError, _errors.Denied, _errors.Stale):  # such as a GPU that is hidden here
            pass
    return False


class Reading:
    """A file that this process' threads read into a Bundle, which is published when all is there, and the file unchanged.

    Then `held` is closed. On a failure nothing is published, and wait() raises it.
    """

    def __init__(self, file: File, made: _bundle.Bundle, held: contextlib.ExitStack):
        self._file, self._made, self._held = file, made, held
        self._error: Optional[BaseException] = None
        self._fill = file.begin(made)
        self._thread = threading.Thread(target=self._finish, name="gpubufd-load")
        self._thread.start()  # no daemon: the program's end waits for it

    def _finish(self) -> None:
        try:
            self._file.waited(self._fill.wait)
            self._file.check_unchanged()
            self._made._seal(None, 0)
        except _errors.Exists:  # published by a process that did not take the lock; this one keeps its own
            pass
        except BaseException as error:  # noqa: B902: told by wait()
            self._error = error
        finally:
            self._fill.end()
            if self._error is not None:
                self._made.release()
            self._held.close()

    def wait(self, at: int = 0, count: int = -1) -> None:
        """Until these bytes of the Bundle are there; all, and published: without arguments. The errors of load()."""
        if count < 0:
            self._thread.join()
        elif self._thread.is_alive():
            try:
                self._file.waited(self._fill.wait, at, count)
                return
            except ValueError:  # it failed, or ended meanwhile
                self._thread.join()
        if self._error is not None:
            raise self._error


class Loading(Mapping[str, Any]):
    """A file's tensors by name, usable before all of them are there: each is waited for when it is taken.

    They are read in the order of the file. wait() waits for all, and until other processes can map them. Errors of
    reading are raised by it, and where a tensor is taken.
    """

    def __init__(self, bundle: _bundle.Bundle, reading: Optional[Reading], make: Callable[[int, Any], Any]):
        self._reading, self._make = reading, make
        self._entries = {entry[0]: (i, entry) for i, entry in enumerate(bundle._entries())}

    def __getitem__(self, name: str) -> Any:
        i, entry = self._entries[name]
        if self._reading is not None:
            self._reading.wait(*entry[3:])
        try:
            return self._make(i, entry)
        except _errors.Closed:  # the reading has failed meanwhile
            self.wait()
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def wait(self) -> None:
        """Wait until all is read and published. ValueError: the file was changed meanwhile. OSError."""
        if self._reading is not None:
            self._reading.wait()


def _publish(
    client: Client, file: File, name: str, place: str, options: Tuple[Any, ...], later: Optional[contextlib.ExitStack]
) -> Tuple[_bundle.Bundle, Optional[Reading]]:
    """The file's Bundle, published; or its Reading, which takes over what `later` has."""
    size, manifest_bytes = file.check()
    layout = (BUNDLE, size, None, (), False, None, manifest_bytes)
    made: _bundle.Bundle = client._create(name, layout, options)
    try:
        if not _spread(client, file, made, place):
            if later is not None:
                reading = Reading(file, made, later.pop_all())
                reading.wait(0, 8 + manifest_bytes)
                return made, reading
            with _progress.of(os.path.basename(file.path), size):
                file.fill(made)
        made._seal(None, 0)
    except BaseException:
        made.release()
        raise
    return made, None


def _open(raw: BinaryIO, path: str) -> File:
    return (Shards if path.endswith(SUFFIX) else File)(raw, path)


def begin(
    path: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None, device: Optional[str] = None,
    mode: Mode = None, ttl: Optional[Seconds] = None, evict: Evict = None,
    timeout: Optional[float] = None, place: str = "", wait: bool = False, backend: str = "mmap",
) -> Tuple[_bundle.Bundle, Optional[Reading]]:
    """load(), and without `wait` the Reading of a Bundle that this process is to publish; None: it is published."""
    if backend not in ("mmap", "pread"):
        raise ValueError(f'backend is "mmap" or "pread", not {backend!r}')
    asked = default_client() if client is None else client
    options = _params.options(device, mode, ttl, evict, False, timeout)
    held = contextlib.ExitStack()
    try:
        raw = held.enter_context(open(path, "rb", buffering=0))
        file = held.enter_context(contextlib.closing(_open(raw, os.fsdecode(path))))
        called = file.name(place) if name is None else name
        found = _published(asked, called, name is None)
        if found is None:
            held.enter_context(_alone(raw))
            found = _published(asked, called, name is None)
        if found is not None:
            return found, None
        try:
            return _publish(asked, file, called, place if name is None else "", options, None if wait else held)
        except _errors.Exists:  # by a process that did not take the lock
            found = _published(asked, called, name is None)
            if found is None:
                raise
            return found, None
    finally:
        held.close()


def load(path: FilePath, **options: Any) -> _bundle.Bundle:
    """A file, or the files of an index, as a Bundle: the published one, or one that this call publishes.

    `name`: the name of the Bundle. None: a name made of the file's path, size, inode and time of its last
    change, and of the user, so that a changed file is another Bundle. With a given name the call returns whatever
    Bundle has it. `client`: None: a connection of the process' own. `place`: a part of a made name, to tell several
    copies of a file apart, such as those of GPUs: a GPU's UUID, whose Bundle is copied from another GPU's if there is
    one. `backend`: taken, and without effect, since safetensors has it. The others are those of Client.put().

    ValueError: it is no safetensors file (the sentence says where), or is being changed. OSError. Errors of put().
    """
    return begin(path, wait=True, **options)[0]
