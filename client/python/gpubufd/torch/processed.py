"""Processed weights: a module's tensors as its code has laid them out, published by the first process, mapped by others.

    put_module(client, "llama-8b/tp0", model, facts, device="cuda:0")      # after quantising, repacking, fusing
    with torch.device("meta"):
        model = Model(config)
    map_module(client, "llama-8b/tp0", model, facts)                      # nothing is copied

Unlike a state dict it has all parameters and buffers, those that are not saved too, with their strides, and with those
that the code has added or tied. `facts` say what the layout depends on, and are compared: Mismatch.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Dict, Mapping, Optional, Tuple

import torch

from . import _Device, follow, get_state_dict, put_state_dict
from .. import _states
from .._client import Client
from .._ref import Ref
from .._views import View

LAYOUT = "gpubufd.module"  # metadata: {"parameters": names, "strides": {name: [shape, strides]}, "cpu": names} as JSON


def put_module(
    client: Client, name: str, module: Any, facts: Optional[Mapping[str, Any]] = None, *, device: _Device = None,
    **options: Any,
) -> Ref:
    """Publishes copies of all of a module's tensors. `options`: those of put_state_dict(), such as `label` and `replace`."""
    tensors: Dict[str, Any] = {}
    strides: Dict[str, Any] = {}
    parameters = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    for key, given in itertools.chain(
            module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        tensor = given.data if isinstance(given, torch.nn.Parameter) else given
        if not tensor.is_contiguous():  # all that lies between its first element and its last
            strides[key] = [tuple(tensor.shape), tensor.stride()]
            last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
            tensor = tensor.as_strided((last + 1,), (1,))
        tensors[key] = tensor
    on_gpu = any(tensor.is_cuda for tensor in tensors.values())
    told = {"parameters": parameters, "strides": strides,
            "cpu": [key for key, tensor in tensors.items() if on_gpu and tensor.is_cpu]}
    options.setdefault("own", True)  # for views
    return put_state_dict(
        client, name, tensors, metadata={**_states.facts(facts), LAYOUT: json.dumps(told)}, device=device, **options)


def map_module(
    client: Client, name: str, module: Any, facts: Optional[Mapping[str, Any]] = None, *, view: bool = False,
    timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None,
) -> Optional[View]:
    """Gives a module, as a rule one on the meta device, the tensors of a published one: read-only, in place.

    With `view` returns the view that they lie in, which shows later versions at the same addresses when it is switched.
    Mismatch: other facts. ValueError: the module has no part of a tensor's name. NotFound.
    """
    with client.get(name, timeout=timeout, version=version, label=label) as held:
        _states.check_facts(held, facts)
        told, shown = json.loads(held.metadata.get(LAYOUT, "null")), held.version
    if told is None:
        raise ValueError(f"{name!r} is no module of put_module()")
    state: Any = follow(client, name, version=shown) if view else get_state_dict(client, name, version=shown)
    try:
        _assign(module, state, told)
    except BaseException:
        if view:
            state.close()
        raise
    return state if view else None


def _assign(module: Any, state: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    modules = dict(module.named_modules(remove_duplicate=False))
    parameters = set(told["parameters"])
    made: Dict[Tuple[int, str, bool], Any] = {}  # a tied tensor is one Parameter
    for key, tensor in state.items():
        owner, _, leaf = key.rpartition(".")
        if owner not in modules:
            raise ValueError(f"tensor {key!r}: the module has no part {owner!r}")
        shape = told["strides"].get(key)
        kind = id(tensor), str(shape), key in parameters
        if kind not in made:
            value = tensor if shape is None else tensor.as_strided(*shape)
            value = value.cpu() if key in told["cpu"] else value
            made[kind] = torch.nn.Parameter(value, requires_grad=False) if key in parameters else value
        part = modules[owner]
        part._parameters.pop(leaf, None)
        part._buffers.pop(leaf, None)
        (part.register_parameter if key in parameters else part.register_buffer)(leaf, made[kind])
