"""Published objects as files of fsspec, under the protocol "gpubuf", which the package registers:

    pandas.read_parquet("gpubuf://tables/flights.parquet")

A file is the content of Bytes, an Array or a Bundle (a safetensors file). It is published as a whole when it is
closed, and replaces an earlier one. Directories are the parts of names before a "/". Names with a part "." or ".." are
not listed, since a copy of them could be written anywhere. Options: `socket`, and those of Client.put().
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from fsspec import register_implementation
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import _errors
from ._client import Client, default_client
from ._files import content
from ._told import Info


_APART = frozenset((".", ".."))


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """A file over an object as it was when it was opened; or one that is published when it is closed, and not after an exception."""

    def __init__(self, fs: GpubufFileSystem, path: str, mode: str):
        exists = mode != "wb" and fs.exists(path)
        if mode == "xb" and exists:
            raise FileExistsError(path)
        self._before = fs._content(path) if exists or mode == "rb" else memoryview(b"")
        super().__init__(fs, path, mode, cache_type="none", size=len(self._before))

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self._before[start:end])

    def _upload_chunk(self, final: bool = False) -> bool:
        if final:
            value = b"".join([self._before, self.buffer.getvalue()])
            self.fs._client.put(self.path, value, replace=self.mode != "xb", **self.fs._options)
        return final  # before that the buffer is kept

    def __exit__(self, kind: Any = None, *exception: Any) -> None:
        self.closed: bool = self.closed or kind is not None
        self.close()


class GpubufFileSystem(AbstractFileSystem):  # type: ignore[misc]
    protocol = "gpubuf"

    def __init__(self, socket: Optional[str] = None, **options: Any):
        super().__init__(socket=socket, **options)
        self._socket, self._options = socket, options

    @property
    def _client(self) -> Client:
        return default_client(self._socket)

    @staticmethod
    def _entry(info: Info) -> Dict[str, Any]:
        return {"name": info.name, "size": info.bytes, "type": "file", "created": info.created, "mode": info.mode}

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        path = self._strip_protocol(path)
        found: Dict[Any, Dict[str, Any]] = {}
        for info in self._client.list(f"{path}/" if path else ""):
            if not _APART.isdisjoint(info.name.split("/")):
                continue
            first, inside, _rest = info.name[len(path) + bool(path):].partition("/")
            name = f"{path}/{first}" if path else first
            found[name, inside] = {"name": name, "size": 0, "type": "directory"} if inside else self._entry(info)
        there = list(found.values()) or [self.info(path)] * bool(path)
        return there if detail else [one["name"] for one in there]

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        try:
            return self._entry(self._client.stat(path))
        except (_errors.NotFound, _errors.Invalid):
            if path and not self._client.list(f"{path}/"):
                raise FileNotFoundError(path) from None
        return {"name": path, "size": 0, "type": "directory"}

    def _content(self, path: str) -> memoryview:
        try:
            return content(self._client, path)
        except _errors.NotFound:
            raise FileNotFoundError(path) from None

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return _File(self, path, mode)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self.isfile(path1):
            there = bytes(self._content(self._strip_protocol(path1)))
            self._client.put(self._strip_protocol(path2), there, replace=True, **self._options)

    def rm_file(self, path: str) -> None:
        self._client.delete(self._strip_protocol(path), missing_ok=True)


register_implementation("gpubuf", GpubufFileSystem, clobber=True)
