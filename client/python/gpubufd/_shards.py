"""An index of safetensors files, model.safetensors.index.json, whose tensors become one bundle."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, BinaryIO, Dict, List, Tuple

from . import _core, _errors
from ._layout import DATA
from ._reading import File
from ._safetensors import DTYPES

NAMES = {theirs: ours for ours, theirs in DTYPES.items()}  # the protocol's dtype for each of safetensors'
SUFFIX = ".index.json"


class Shards(File):
    """The files that an index names, open until close(). ValueError: it is no index, or names no file. OSError."""

    def __init__(self, file: BinaryIO, path: str):
        super().__init__(file, path)
        self.where = self._weight_map()
        self._open = contextlib.ExitStack()
        self.shards: Dict[str, File] = {}
        directory = os.path.dirname(path)
        try:
            for name in sorted(set(self.where.values())):
                shard = os.path.join(directory, name)
                self.shards[name] = File(self._open.enter_context(open(shard, "rb", buffering=0)), shard)
        except BaseException:
            self.close()
            raise
        self.key += tuple(fact for shard in self.shards.values() for fact in shard.key)

    def close(self) -> None:
        self._open.close()

    def _weight_map(self) -> Dict[str, str]:
        try:
            found = json.loads(self.file.read())["weight_map"]
            if not isinstance(found, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise _errors.SafetensorError(f'{self.path}: is no index of .safetensors files: it has no object "weight_map"') from None
        for tensor, name in found.items():
            if not isinstance(name, str):
                raise _errors.SafetensorError(f"{self.path}: weight_map has no file's name for {tensor!r}")
            if "/" in name or "\0" in name or not name or name[0] == ".":
                raise _errors.SafetensorError(f"{self.path}: weight_map names {name!r}, which is no file beside the index")
        return found

    def _entries(self) -> Tuple[Dict[str, Tuple[str, Dict[str, Any]]], Dict[str, str]]:
        """(file's name, entry in its manifest) of each tensor, in the order of their data; and all files' metadata."""
        found: Dict[str, Tuple[str, Dict[str, Any]]] = {}
        metadata: Dict[str, str] = {}
        for name, shard in self.shards.items():
            shard.check()
            manifest = json.loads(shard.manifest)
            metadata = {**manifest.pop("__metadata__", {}), **metadata}
            for tensor, said in sorted(manifest.items(), key=lambda item: item[1]["data_offsets"]):
                if tensor in found:
                    raise _errors.SafetensorError(f"{self.path}: both {found[tensor][0]} and {name} have the tensor {tensor!r}")
                found[tensor] = name, said
        for tensor, name in self.where.items():
            if tensor not in found:
                raise _errors.SafetensorError(f"{self.path}: it names the tensor {tensor!r}, which no shard has")
            if found[tensor][0] != name:
                raise _errors.SafetensorError(
                    f"{self.path}: it says that {name} has the tensor {tensor!r}, but {found[tensor][0]} has it")
        return found, metadata

    def check(self) -> Tuple[int, int]:
        entries, metadata = self._entries()
        tensors = tuple((name, NAMES[said["dtype"]], tuple(said["shape"])) for name, (_, said) in entries.items())
        pairs = tuple(text for pair in metadata.items() for text in pair)
        try:
            self.head, size, count, offsets = _core.plan_bundle(tensors, pairs)
        except _errors.Error as error:
            raise _errors.SafetensorError(f"{self.path}: {error}") from None
        self.parts: List[Tuple[int, File, int, int]] = []  # where to, from which file, from where, bytes
        for at, (name, said) in zip(offsets, entries.values()):
            shard, (start, end) = self.shards[name], said["data_offsets"]
            self.parts.append((at, shard, 8 + len(shard.manifest) + start, end - start))
        return size, count

    def begin(self, made: Any) -> Any:
        made._write(DATA, 0, _core.address(self.head)[0], len(self.head), 0)
        return _core.Fill(made, DATA, tuple(
            (shard.file.fileno(), start, size, at) for at, shard, start, size in sorted(self.parts, key=lambda part: part[0])), self)

    def check_unchanged(self) -> None:
        for shard in self.shards.values():
            shard.check_unchanged()
        super().check_unchanged()
