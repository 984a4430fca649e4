"""A store of Zarr 3 in shared memory: each chunk is an object of its own, and is read in place.

    store = gpubufd.zarr.GpubufStore("run-7")            # the objects run-7/zarr.json, run-7/c/0/0, …
    array = zarr.create_array(store, shape=(1000, 1000), chunks=(100, 100), dtype="f4", compressors=None)

Chunks are on the host. Writing a chunk replaces it; readers of the old chunk keep it. A store can be pickled, and
connects in each process. `socket`: None: where connect() looks. The other options are those of Client.put().
"""

from __future__ import annotations

from typing import Any, AsyncIterator, Iterable, List, Optional, Tuple

import numpy
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from . import _errors
from ._client import Client, default_client
from ._files import content


def _slice(of: Optional[ByteRequest]) -> slice:
    if isinstance(of, RangeByteRequest):
        return slice(of.start, of.end)
    if isinstance(of, SuffixByteRequest):
        return slice(-of.suffix or 1 << 62, None)
    if not isinstance(of, (OffsetByteRequest, type(None))):
        raise ValueError(f"Unexpected byte_range, got {of!r}: expected a ByteRequest")
    return slice(of and of.offset, None)


class GpubufStore(Store):  # type: ignore[misc]
    supports_writes = supports_deletes = supports_listing = True

    def __init__(self, prefix: str, *, socket: Optional[str] = None, read_only: bool = False, **options: Any):
        super().__init__(read_only=read_only)
        self._prefix, self._socket, self._options = prefix.strip("/"), socket, options

    def with_read_only(self, read_only: bool = False) -> "GpubufStore":
        return GpubufStore(self._prefix, socket=self._socket, read_only=read_only, **self._options)

    @property
    def _client(self) -> Client:
        return default_client(self._socket)

    def __repr__(self) -> str:
        return f"GpubufStore({self._prefix!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GpubufStore) and (self._prefix, self._socket, self.read_only, self._options) == (
            other._prefix, other._socket, other.read_only, other._options)

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    async def get(
        self, key: str, prototype: Optional[BufferPrototype] = None, byte_range: Optional[ByteRequest] = None
    ) -> Optional[Buffer]:
        await self._ensure_open()
        which = _slice(byte_range)
        try:
            found = numpy.frombuffer(content(self._client, self._name(key)), "u1")
        except _errors.NotFound:
            return None
        return (prototype or default_buffer_prototype()).buffer.from_array_like(found[which])

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[Tuple[str, Optional[ByteRequest]]]
    ) -> List[Optional[Buffer]]:
        return [await self.get(key, prototype, which) for key, which in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._name(key) in self._client

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._ensure_open()
        if not isinstance(value, Buffer):
            raise TypeError(f"`value` must be a Buffer instance, not {type(value).__name__}")
        self._client.put(self._name(key), value.as_numpy_array(), device="host", replace=True, **self._options)

    async def delete(self, key: str) -> None:
        self._check_writable()
        self._client.delete(self._name(key), missing_ok=True)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for info in self._client.list(self._name(prefix)):
            yield info.name[len(self._prefix) + 1:]

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        prefix = prefix.strip("/") and prefix.strip("/") + "/"
        for first in {key[len(prefix):].partition("/")[0]: None async for key in self.list_prefix(prefix)}:
            yield first
