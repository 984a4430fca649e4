"""A safetensors file, read into an object's memory."""

from __future__ import annotations

import hashlib
import os
from typing import Any, BinaryIO, Callable, Tuple

from . import _core, _errors
from ._layout import DATA

MANIFEST_MAX = 100_000_000  # bytes, as safetensors has it


class File:
    """An open safetensors file, and its state when it was opened."""

    def __init__(self, file: BinaryIO, path: str):
        self.file, self.path = file, path
        self.key = self._look()
        self.bytes = self.key[2]

    def _look(self) -> Tuple[int, ...]:
        """Facts that change with the content."""
        now = os.fstat(self.file.fileno())
        return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns

    def close(self) -> None:
        """Does nothing: the caller opened the file, and closes it."""

    def check(self) -> Tuple[int, int]:
        """(bytes of the file, bytes of its manifest), when the library has checked the manifest.

        ValueError: with the file's name, and the place of the mistake.
        """
        head = self.file.read(8)
        count = int.from_bytes(head, "little")
        if len(head) < 8 or count > min(self.bytes - 8, MANIFEST_MAX):
            what = f"its manifest would have {count}" if len(head) == 8 else "the manifest's length alone takes 8"
            raise _errors.SafetensorError(f"{self.path}: is no safetensors file: it has {self.bytes} bytes, and {what}")
        self.manifest = self.file.read(count)
        try:
            _core.check_manifest(self.manifest, self.bytes)
        except _errors.Error as error:
            raise _errors.SafetensorError(f"{self.path}: is no safetensors file: {error}") from None
        return self.bytes, count

    def name(self, place: str) -> str:
        """The name under which this user's processes publish the file's content."""
        path = os.path.realpath(self.path)
        facts = (path, *self.key, os.getuid()) + ((place,) if place else ())
        words = repr(facts).encode("utf-8", "surrogateescape")
        stem = "".join(letter if letter.isprintable() else "_" for letter in os.path.basename(path))
        stem = stem.encode()[:100].decode("utf-8", "ignore")
        return f"safetensors/{stem}-{hashlib.blake2b(words, digest_size=12).hexdigest()}"

    def begin(self, made: Any) -> Any:
        """A _core.Fill, whose threads read the whole file into an object of its size."""
        return _core.Fill(made, DATA, ((self.file.fileno(), 0, self.bytes, 0),), self.file)

    def check_unchanged(self) -> None:
        """ValueError: the file has been changed since it was opened."""
        if self._look() != self.key[:4]:
            raise _errors.SafetensorError(f"{self.path}: was changed while it was read")

    def waited(self, wait: Callable[..., None], *stretch: int) -> None:
        """Waits for the threads, for the object's bytes (at, count) or for all. ValueError: the file is being changed."""
        try:
            wait(*stretch)
        except _errors.Invalid as error:
            raise _errors.SafetensorError(str(error)) from None

    def fill(self, made: Any) -> None:
        """Reads the whole file into an object of its size. ValueError: the file is being changed."""
        reading = self.begin(made)
        try:
            self.waited(reading.wait)
        finally:
            reading.end()
        self.check_unchanged()
