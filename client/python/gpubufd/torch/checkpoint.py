"""Checkpoints of torch.distributed.checkpoint in the daemon's memory, which survive the trainer:

    from gpubufd.torch.checkpoint import Reader, Writer

    dcp.save(state, storage_writer=Writer(client, "run-7", label="step-100", keep=2))       # or dcp.async_save()
    dcp.load(state, storage_reader=Reader(client, "run-7"))                                 # version=…, label=…

Each rank puts its tensors as one Bundle, whose name begins with that of the checkpoint. The coordinator publishes the
name itself last, so a checkpoint exists completely or not at all. A failed save keeps the previous checkpoint; the
next save deletes its parts. `keep` older checkpoints can be loaded, by version or label. Loading reshards as from
files: each rank maps the parts that it needs, and copies out of them.

All ranks use one daemon. Only one trainer at once may save under a name.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import re
import uuid
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _Device, _parts, _place_of, _ready, _settle, _stream_of, _tensor
from .._bundle import Bundle
from .._client import Client
from .._told import of_this_user

_Id = Union[str, "os.PathLike[str]", None]


def _done(value: Any) -> Any:
    found: Any = Future()
    found.set_result(value)
    return found


def _open(client: Client, name: str, version: Optional[int] = None, label: Optional[str] = None) -> Tuple[str, Metadata]:
    """(beginning of the parts' names, metadata) of a checkpoint. Denied: another user's, since a pickle runs code."""
    with client.get(name, version=version, label=label) as held:
        of_this_user(client.stat(name, version=held.version))
        parts, _, content = held.tobytes().partition(b"\n")
        return parts.decode(), pickle.loads(content)


class _Storage:
    """The part that Reader and Writer have in common."""

    def __init__(self, client: Client, name: str):
        self._client, self._name = client, name

    def _reset(self, checkpoint_id: _Id) -> None:
        if checkpoint_id:
            self._name = os.fspath(checkpoint_id)

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint's name."""
        return self._name

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: _Id) -> bool:
        return isinstance(checkpoint_id, str) and bool(checkpoint_id)


class Writer(_Storage, StorageWriter):  # type: ignore[misc]
    """Save under `name`, or under dcp.save()'s checkpoint_id.

    `device`: as of put_state_dict(); None: where the tensors are. `label`, `keep`, and the others (`mode`, `evict`,
    `ttl`, `timeout`, …) are those of Client.put().
    """

    def __init__(
        self, client: Client, name: str, *, label: Optional[str] = None, keep: int = 0, device: _Device = None,
        **options: Any,
    ):
        super().__init__(client, name)
        self._label, self._keep, self._device, self._options = label, keep, device, options

    def reset(self, checkpoint_id: _Id = None) -> None:
        self._reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *arguments: Any, **keywords: Any) -> None:
        self._parts = f"{self._name}/{uuid.uuid4().hex}/"  # the coordinator's are used

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return [dataclasses.replace(plan, storage_data=f"{self._parts}{rank}") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        """Puts this rank's part."""
        if plan.storage_data is None:
            raise ValueError("use_collectives=False: a checkpoint here is one of all ranks")
        tensors: Dict[str, Any] = {}
        results = []
        for item in plan.items:
            found = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                found = torch.frombuffer(bytearray(found.getbuffer()), dtype=torch.uint8)
            offset = ",".join(map(str, item.index.offset or ()))
            key = f"{item.index.fqn}@{offset}" if offset.strip("0,") else item.index.fqn
            tensors[key] = found
            results.append(WriteResult(item.index, found.nbytes, (plan.storage_data, key)))
        if tensors:
            parts, _ = _parts(tensors, False)
            self._client.put_bundle(
                plan.storage_data, parts, device=_place_of(self._device), stream=_stream_of(parts), **self._options)
        return _done(results)

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        """Publishes the checkpoint, and removes parts that no kept one has."""
        metadata.storage_data = {one.index: one.storage_data for some in results for one in some}
        content = self._parts.encode() + b"\n" + pickle.dumps(metadata)
        self._client.put(
            self._name, content, device="host", replace=True, label=self._label, keep=self._keep, **self._options)
        kept = {_open(self._client, self._name, info.version)[0]
                for info in self._client.list(self._name, versions=True) if info.name == self._name}
        for info in self._client.list(f"{self._name}/"):
            part = re.fullmatch(r"(/[0-9a-f]{32}/)\d+", info.name[len(self._name):])  # and nobody else's name below it
            if part and info.uid == os.getuid() and self._name + part[1] not in kept:
                self._client.delete(info.name, missing_ok=True)


class Reader(_Storage, StorageReader):  # type: ignore[misc]
    """Load the checkpoint `name`, or dcp.load()'s checkpoint_id: the newest, or by `version` or `label`.

    NotFound: there is none. Denied: it is another user's.
    """

    def __init__(self, client: Client, name: str, *, version: Optional[int] = None, label: Optional[str] = None):
        super().__init__(client, name)
        self._which = version, label

    def reset(self, checkpoint_id: _Id = None) -> None:
        self._reset(checkpoint_id)

    def read_metadata(self, *arguments: Any, **keywords: Any) -> Metadata:
        metadata = _open(self._client, self._name, *self._which)[1]
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *arguments: Any, **keywords: Any) -> None:
        self._places: Dict[MetadataIndex, Tuple[str, str]] = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        """Copies what this rank wants out of the parts."""
        by_part: Dict[str, List[Any]] = {}
        for item in plan.items:
            by_part.setdefault(self._places[item.storage_index][0], []).append(item)
        for part, items in by_part.items():
            with self._client.get(part, kind=Bundle) as bundle:
                of_this_user(self._client.stat(part, version=bundle.version))  # it may have expired, and be another's since
                _ready(bundle)
                for item in items:
                    self._read(bundle, self._places[item.storage_index][1], item, planner)
                _settle(bundle)
        return _done(None)

    @staticmethod
    def _read(bundle: Bundle, key: str, item: Any, planner: LoadPlanner) -> None:
        i = bundle._number(key)
        found = _tensor(bundle, i, bundle._entry(i))
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(found.cpu().numpy().tobytes()))
            return
        for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            found = found.narrow(axis, start, length)
        target = planner.resolve_tensor(item).detach()
        if target.size() != found.size():
            raise ValueError(f"{item.dest_index}: expected {tuple(target.size())}, found {tuple(found.size())}")
        target.copy_(found)
        planner.commit_tensor(item, target)
