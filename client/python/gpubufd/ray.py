"""Tensors that Ray's actors pass to each other by name, a transport of Ray Direct Transport:

    import gpubufd.ray

    gpubufd.ray.register()                                   # before the actors are made, in the process that makes them

    @ray.remote
    class Trainer:
        @ray.method(tensor_transport="gpubufd")
        def weights(self):
            return model.state_dict()

    @ray.remote(enable_tensor_transport=True)                # an actor that only receives
    class Rollout: ...

    weights = trainer.weights.remote()
    ray.get([rollout.load.remote(weights) for rollout in rollouts])     # they map what the trainer has put

The tensors that a method returns are copied once into the daemon of the actor's machine, as one Bundle, where they are:
on the host or a GPU. Receivers on the same machine map it, any number of them, in containers that share the daemon's
socket, too. Their tensors are READ-ONLY, and stay when the source has freed its own or has ended. The name goes when Ray
counts no reference any more, and after TTL seconds if the source was killed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional

import ray
import torch

from . import _errors
from ._client import default_client
from ._params import Seconds
from .torch import get_state_dict, put_state_dict

try:
    from ray.experimental import (
        CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata, register_tensor_transport)
except ImportError:
    raise ImportError(f"Ray {ray.__version__} takes no tensor transports of others: gpubufd.ray is for Ray 2.60") from None

NAME = "GPUBUFD"
TTL: Seconds = "1h"  # until then a receiver has opened what a killed source had put


@dataclasses.dataclass
class Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """Where the tensors are: one version of a name, in one daemon."""

    name: str = ""
    version: int = 0
    instance: str = ""


class Transport(TensorTransportManager):  # type: ignore[misc]
    """The transport; Ray makes one in each process."""

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: List[Any]) -> Metadata:
        """Puts the tensors. An error of it is the task's."""
        told = [(one.shape, one.dtype) for one in rdt_object]
        if not rdt_object:
            return Metadata(told)
        ref = put_state_dict(
            default_client(), f"ray/{obj_id}", {str(i): one for i, one in enumerate(rdt_object)}, ttl=TTL, replace=True)
        return Metadata(told, rdt_object[0].device.type, ref.name, ref.version, ref.instance)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Optional[str] = None) -> Any:
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Metadata, communicator_metadata: Any,
        target_buffers: Optional[List[Any]] = None,
    ) -> List[Any]:
        """Maps the tensors, or copies them into `target_buffers`."""
        told = tensor_transport_metadata
        if not told.tensor_meta:
            return []
        client = default_client()
        if client.instance != told.instance:
            raise _errors.failure("stale", f"{told.name!r} is in another daemon: the actors are on two machines, or the "
                                            "daemon was stopped since")
        into = {str(i): one for i, one in enumerate(target_buffers)} if target_buffers else None
        state = get_state_dict(client, told.name, version=told.version, into=into)
        return [state[str(i)] for i in range(len(told.tensor_meta))]

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        raise NotImplementedError("a receiver opens the tensors itself")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: Any) -> None:
        if tensor_transport_meta.name:
            default_client().delete(tensor_transport_meta.name, missing_ok=True)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Nothing is under way."""


def register() -> None:
    """Register the transport, for `tensor_transport="gpubufd"`. ValueError: it is registered already."""
    register_tensor_transport(NAME, ["cpu", "cuda"], Transport, torch.Tensor)
