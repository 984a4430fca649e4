"""Files of bundles: written, and read by one process for all.

load() is read-through: of those who want a file at the same time one reads and publishes it, the others wait
and map what it has published, as does everybody who comes later.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import threading
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Optional, Tuple

from . import _bundle, _client, _convert, _core, _errors, _packing, cuda
from ._client import Client
from ._files import FilePath
from ._layout import BUNDLE, DATA

PIECE = 8 << 20  # bytes that are read or written at a time
MANIFEST_MAX = 100_000_000  # bytes, as safetensors has it

# ---- writing ----


def _pieces(copy: Any) -> Iterator[Any]:
    """What is to be copied, as buffers."""
    device = getattr(copy.keep, "device", None)  # of a plan; what was collected is on the host
    for at in range(0, copy.size, PIECE):
        count = min(PIECE, copy.size - at)
        if isinstance(device, int):
            yield cuda.read_bytes(copy.address + at, count, device)
        else:
            yield (ctypes.c_ubyte * count).from_address(copy.address + at)


def save(tensors: Mapping[str, Any], path: FilePath, metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a safetensors file, which is there when all of it is: under another name until then.

    A Bundle without new metadata is written as it is, byte for byte.
    """
    target = pathlib.Path(os.path.realpath(os.fsdecode(path)))
    whole = isinstance(tensors, _bundle.Bundle) and metadata is None
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


class _File:
    """A safetensors file that is open, and what it was then."""

    def __init__(self, file: BinaryIO, path: str):
        self.file, self.path = file, path
        self.key = self._look()
        self.bytes = self.key[2]

    def _look(self) -> Tuple[int, ...]:
        """What another content would change."""
        now = os.fstat(self.file.fileno())
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns

    def check(self) -> int:
        """How long its manifest is, which the library checks. ValueError, with the file's name and the place."""
        head = self.file.read(8)
        count = int.from_bytes(head, "little")
        if len(head) < 8 or count > min(self.bytes - 8, MANIFEST_MAX):
            what = f"its manifest would have {count}" if len(head) == 8 else "8 say how long its manifest is"
            raise ValueError(f"{self.path}: is no safetensors file: it has {self.bytes} bytes, and {what}")
        try:
            _core.check_manifest(self.file.read(count), self.bytes)
        except _errors.Error as error:
            raise ValueError(f"{self.path}: is no safetensors file: {error}") from None
        return count

    def name(self, place: str) -> str:
        """A name for its content as this user's processes see it."""
        path = os.path.realpath(self.path)
        facts = (path, *self.key, os.getuid()) + ((place,) if place else ())
        words = repr(facts).encode("utf-8", "surrogateescape")
        stem = "".join(letter if letter.isprintable() else "_" for letter in os.path.basename(path))
        stem = stem.encode()[:100].decode("utf-8", "ignore")
        return f"safetensors/{stem}-{hashlib.blake2b(words, digest_size=12).hexdigest()}"

    def fill(self, made: Any) -> None:
        """Reads all of it into an object of its size. ValueError: it is being changed."""
        self.file.seek(0)
        memory = None if made._ordinal >= 0 else memoryview(made._buffer(DATA))
        stage = bytearray(min(PIECE, self.bytes)) if memory is None else b""
        at = 0
        while at < self.bytes:
            count = min(PIECE, self.bytes - at)
            piece = memoryview(stage)[:count] if memory is None else memory[at : at + count]
            got = self.file.readinto(piece)  # type: ignore[attr-defined]
            if not got:
                break
            if memory is None:
                made._write(DATA, at, _core.address(stage)[0], got, 0)
            at += got
        if at < self.bytes or self._look() != self.key:
            raise ValueError(f"{self.path}: was changed while it was read")


@contextlib.contextmanager
def _alone(file: BinaryIO) -> Iterator[None]:
    """Holds a lock on the file, which the kernel takes back from a process that dies.

    Where the file system has no such locks the work may be done more than once, and is right all the same.
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
    """The process' own connection for those who have given none; made when it is first asked for."""
    key = os.getpid(), os.environ.get("GPUBUFD_SOCKET")
    with _connecting:
        found = _clients.get(key)
        if found is None or found.closed:
            found = _clients[key] = _client.connect()
        return found


def _published(client: Client, name: str, derived: bool) -> Optional[_bundle.Bundle]:
    """What somebody has published under the name; None: nobody has.

    A name that is derived from a file is one that others can guess, so it must be from whom we believe:
    ourselves, or root.
    """
    try:
        found = client.get(name)
        if not isinstance(found, _bundle.Bundle):
            raise TypeError(f"{name!r} is a {type(found).__name__}, no bundle: say another name=")
        if not derived:
            return found
        info = client.stat(name)
    except _errors.NotFound:
        return None
    if info.version != found.version:  # replaced meanwhile
        return _published(client, name, derived)
    if info.uid not in (os.getuid(), 0):
        raise _errors.make(-32004, "denied", f"{name!r} has been published by user {info.uid}: say name=")
    return found


def _publish(client: Client, file: _File, name: str, options: Tuple[Any, ...]) -> _bundle.Bundle:
    layout = (BUNDLE, file.bytes, None, (), False, None, file.check())
    made: _bundle.Bundle = client._create(name, layout, options)
    try:
        file.fill(made)
        made._seal(None, 0)
    except BaseException:
        made.release()
        raise
    return made


def load(
    path: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None, device: Optional[str] = None,
    share: Optional[str] = None, mode: Any = None, ttl: Optional[float] = None, evict: Optional[str] = None,
    timeout: Optional[float] = None, place: str = "",
) -> _bundle.Bundle:
    """A file as a Bundle: what has been published of it, or, where nobody has, what this publishes.

    `name`: what it is published as. None: a name made of the file's path, size, inode and time of its last
    change, and of the user, so that a changed file is another bundle; a name that is given stands for whatever is
    published under it. `client`: None is a connection of the process' own. `place`: for a name that is made, which
    of several copies is meant, such as a GPU's. The others are those of Client.put().

    ValueError: it is no safetensors file (the sentence says where), or is being changed. OSError. Errors of put().
    """
    asked = default_client() if client is None else client
    options = _client.options(device, share, mode, ttl, evict, False, timeout, False)
    with open(path, "rb", buffering=0) as raw:
        file = _File(raw, os.fsdecode(path))
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
            except _errors.Exists:  # by a way around the lock
                found = _published(asked, called, name is None)
                if found is None:
                    raise
                return found
