"""Memory to make arrays in, which is published in place: the object is a bundle whose manifest is written last."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _client, _convert, _core, _errors, _packing, cuda
from ._client import Client
from ._ref import Ref
from ._layout import BUNDLE, DATA

GAP = "__gap__"  # begins the names of arrays that readers do not see: safetensors allows no holes
PREFIX = 8  # bytes of the manifest's length
GRANULE = 2 << 20  # bytes: a segment on a GPU is a multiple of it, and read-only as a whole
MANIFEST = GRANULE  # room for the manifest, with its length: some 15 000 arrays


def _rounded(count: int) -> int:
    return (count + GRANULE - 1) // GRANULE * GRANULE


class Pool:
    """An unsealed object on a GPU. `pieces` hands out its memory, and keeps it until all of it is given back."""

    def __init__(self, client: Client, name: str, size: int, options: Tuple[Any, ...], room: int = MANIFEST):
        if size <= 0:
            raise ValueError(f"size is {size}: expected 1 byte or more")
        self.client, self.name = client, name
        self.start = _rounded(max(room, PREFIX + 2))
        whole = self.start + _rounded(size)
        self.object = client._create(name, (BUNDLE, whole, None, (), False, None, self.start - PREFIX), options)
        if self.object._ordinal < 0:
            self.object.release()
            raise _errors.failure("unsupported", f"{name!r} would lie on the host: a pool is for a GPU")
        self.pieces = _core.Pool(self.object, self.start)

    def _places(self, parts: List[Tuple[str, Any]]) -> List[Tuple[int, int, str]]:
        """(begin, end, name) of the arrays in the pool, from its start on. ValueError: one lies elsewhere."""
        first = int(self.object._buffer(DATA).pointer) + self.start
        found = []
        for name, part in parts:
            size = _convert.bytes_of(part.dtype, part.shape)
            begin = part.address - first if size else 0
            if isinstance(part, _convert.Plan) and part.strides is not None:
                raise ValueError(f"tensor {name!r} is not in C order: copy it into C order while the pool is in use")
            if begin < 0 or begin + size > self.pieces.used:
                raise ValueError(f"tensor {name!r} does not lie in the pool: it was not made in it, or was moved since")
            found.append((begin, begin + size, name))
        found.sort()
        for one, other in zip(found, found[1:]):
            if other[0] < one[1]:
                raise ValueError(f"tensors {one[2]!r} and {other[2]!r} overlap: those of a bundle do not")
        return found

    def _manifest(self, plan: _convert.Plan, names: List[str]) -> bytes:
        """The bytes before the arrays. `plan`: as of a put of the arrays; their places in the pool replace its own."""
        _, head = plan.parts[0]
        entries: Dict[str, Any] = json.loads(bytes(head.keep)[PREFIX:])
        at = 0
        places = self._places(list(zip(names, (part for _, part in plan.parts[1:]))))
        for begin, end, name in [*places, (self.pieces.size, self.pieces.size, None)]:
            if begin > at:
                entries[f"{GAP}{at}"] = {"dtype": "U8", "shape": [begin - at], "data_offsets": [at, begin]}
            if name is not None:
                entries[name]["data_offsets"] = [begin, end]
            at = end
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        room = self.start - PREFIX
        if len(text) > room:
            raise ValueError(f"the manifest has {len(text)} bytes, the pool has room for {room}: publish fewer arrays, or shorter "
                             "names and metadata")
        return room.to_bytes(PREFIX, "little") + text.ljust(room)

    def publish(
        self, values: Mapping[str, Any], metadata: Optional[Mapping[str, str]], label: Optional[str],
        keep: Optional[int],
    ) -> Ref:
        """Publishes arrays, or Parts, that lie in the pool. Nothing may write to the pool from then on."""
        plan = _packing.tensors(values, metadata, None)
        _client.wait_for_streams(plan, None)
        head = self._manifest(plan, list(values))
        cuda.Device(self.object._ordinal).synchronize()  # after the seal a write would fault
        address, count = _core.address(head)
        self.object._write(DATA, 0, address, count, 0)
        self.object.set_label(label, -1 if keep is None else keep)
        self.object._seal(None, 0)
        self.pieces.end()
        self.object._protect()
        return self.client._ref(self.name, self.object.version)

    def __repr__(self) -> str:
        state = "published" if self.object.released or self.object.version else "being made"
        return f"<gpubufd pool {self.name!r}, {state}: {self.pieces.used} of {self.pieces.size} bytes given out>"
