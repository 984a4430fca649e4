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
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Optional, Tuple

from . import _bundle, _client, _convert, _core, _errors, _packing, _params, cuda
from ._client import Client
from ._files import FilePath
from ._layout import BUNDLE
from ._params import Evict, Mode, Seconds
from ._reading import File
from ._shards import SUFFIX, Shards

PIECE = 8 << 20  # bytes that are written at a time

# ---- writing ----


def _pieces(copy: Any) -> Iterator[Any]:
    """The bytes of a copy's source, as buffers."""
    device = getattr(copy.keep, "device", None)  # of a Plan or a Part; a collected array is on the host
    for at in range(0, copy.size, PIECE):
        count = min(PIECE, copy.size - at)
        if isinstance(device, int):
            yield cuda.read_bytes(copy.address + at, count, device)
        else:
            yield (ctypes.c_ubyte * count).from_address(copy.address + at)


def save(tensors: Mapping[str, Any], path: FilePath, metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a safetensors file under a temporary name, and renames it when it is complete.

    A Bundle without new metadata keeps its own, and is written byte for byte, unless it is a part of another bundle.
    """
    target = pathlib.Path(os.path.realpath(os.fsdecode(path)))
    whole = False
    if isinstance(tensors, _bundle.Bundle) and metadata is None:
        whole, metadata = not tensors._is_part(), tensors.metadata
    plan = _convert.plan(tensors) if whole else _packing.tensors(tensors, metadata, None)
    _client.wait_for_streams(plan, None)
    part = target.with_name(f".gpubufd-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(part, "wb") as file:
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


_clients: Dict[Tuple[int, Optional[str]], Client] = {}
_connecting = threading.Lock()


def default_client() -> Client:
    """The process' own connection for calls without a client; made at its first use."""
    key = os.getpid(), os.environ.get("GPUBUFD_SOCKET")
    with _connecting:
        found = _clients.get(key)
        if found is None or found.closed:
            found = _clients[key] = _client.connect()
        return found


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
    if info.uid not in (os.getuid(), 0):
        raise _errors.failure("denied", f"{name!r} has been published by user {info.uid}: expected this user or root; "
                                        "give another name=")
    return found


def _publish(client: Client, file: File, name: str, options: Tuple[Any, ...]) -> _bundle.Bundle:
    size, manifest_bytes = file.check()
    layout = (BUNDLE, size, None, (), False, None, manifest_bytes)
    made: _bundle.Bundle = client._create(name, layout, options)
    try:
        file.fill(made)
        made._seal(None, 0)
    except BaseException:
        made.release()
        raise
    return made


def _open(raw: BinaryIO, path: str) -> File:
    return (Shards if path.endswith(SUFFIX) else File)(raw, path)


def load(
    path: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None, device: Optional[str] = None,
    mode: Mode = None, ttl: Optional[Seconds] = None, evict: Evict = None,
    timeout: Optional[float] = None, place: str = "",
) -> _bundle.Bundle:
    """A file, or the files of an index, as a Bundle: the published one, or one that this call publishes.

    `name`: the name of the Bundle. None: a name made of the file's path, size, inode and time of its last
    change, and of the user, so that a changed file is another Bundle. With a given name the call returns whatever
    Bundle has it. `client`: None: a connection of the process' own. `place`: a part of a made name, to tell several
    copies of a file apart, such as those of GPUs. The others are those of Client.put().

    ValueError: it is no safetensors file (the sentence says where), or is being changed. OSError. Errors of put().
    """
    asked = default_client() if client is None else client
    options = _params.options(device, mode, ttl, evict, False, timeout)
    with open(path, "rb", buffering=0) as raw, contextlib.closing(_open(raw, os.fsdecode(path))) as file:
        called = file.name(place) if name is None else name
        found = _published(asked, called, name is None)
        if found is not None:
            return found
        with _alone(raw):
            found = _published(asked, called, name is None)
            if found is not None:
                return found
            try:
                return _publish(asked, file, called, options)
            except _errors.Exists:  # by a process that did not take the lock
                found = _published(asked, called, name is None)
                if found is None:
                    raise
                return found
