"""Processed weights: a module's tensors as its code has laid them out, published by one process, mapped by others.

    put_module(client, "llama-8b/tp0", model, facts, device="cuda:0")      # after quantising, repacking, fusing
    with torch.device("meta"):
        model = Model(config)
    map_module(client, "llama-8b/tp0", model, facts)                      # nothing is copied

share_module() does both: the first process loads and publishes, and all map.

Unlike a state dict this covers all parameters and buffers, those that are not saved too, with their strides, and those
that the code has added or tied. `facts`: what the layout depends on, values of JSON by name. They are compared:
Mismatch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import gc
import hashlib
import itertools
import json
import os
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import torch

from . import _Device, _device_of, _place_of, follow, get_state_dict, put_state_dict
from .. import _errors, _states
from .._client import Client, default_client
from .._ref import Ref
from .._told import of_this_user
from .._views import View

LAYOUT = "gpubufd.module"  # metadata: {"parameters": names, "strides": {name: [shape, strides]}, "cpu": names, "set": {…}} as JSON


def put_module(
    client: Client, name: str, module: Any, facts: Optional[Mapping[str, Any]] = None, *, device: _Device = None,
    attributes: Optional[Mapping[str, Any]] = None, **options: Any,
) -> Ref:
    """Publish copies of all of a module's tensors.

    `attributes`: what else map_module() sets on the module, values of JSON. `options`: those of put_state_dict(), such
    as `label` and `replace`.
    """
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
    told = {"parameters": parameters, "strides": strides, "set": dict(attributes or {}),
            "cpu": [key for key, tensor in tensors.items() if on_gpu and tensor.is_cpu]}
    options.setdefault("own", True)  # for views
    return put_state_dict(
        client, name, tensors, metadata={**_states.facts(facts), LAYOUT: json.dumps(told)}, device=device, **options)


def map_module(
    client: Client, name: str, module: Any, facts: Optional[Mapping[str, Any]] = None, *, view: bool = False,
    timeout: Optional[float] = None, version: Optional[int] = None, label: Optional[str] = None,
) -> Optional[View]:
    """Give a module, usually one on the meta device, the tensors of a published one: read-only, in place.

    With `view` return the view that holds them, which shows later versions at the same addresses when it is switched.
    Mismatch: other facts. ValueError: the module has no submodule for a tensor. NotFound.
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
    for key, value in told["set"].items():
        setattr(module, key, value)


# ---- the first process loads, and all map: what the loaders of engines are made of ----


def connected(engine: str) -> Client:
    """This process' own connection, which `gpubufctl ps` shows under the engine's name."""
    return default_client(name=engine)


def extra_config(load_config: Any, **known: Any) -> Dict[str, Any]:
    """Return a loader's extra config, with the values of `known` as defaults. ValueError: it has other keys."""
    extra = load_config.model_loader_extra_config or {}
    if extra.keys() - known.keys():
        raise ValueError(f"model_loader_extra_config has {sorted(extra.keys() - known.keys())}: expected {' or '.join(known)}")
    return {**known, **extra}


def plain_config(load_config: Any) -> Any:
    """Return the configuration with which the engine's default loader reads the files."""
    return dataclasses.replace(load_config, load_format="auto", model_loader_extra_config={})


def published_bytes(client: Client, name: str) -> int:
    """Return how many bytes an engine will map, and does not allocate; 0: it loads."""
    try:
        return client.stat(name).bytes
    except _errors.NotFound:
        return 0


def _files_of(model: str) -> Any:
    """A fact: the files of a checkpoint, since two of equal headers need not have equal weights; else its name."""
    if not os.path.isdir(model):
        return model
    there = sorted((entry.name, entry.stat()) for entry in os.scandir(model) if entry.is_file())
    return [[name, told.st_size, told.st_ino, told.st_mtime_ns] for name, told in there]


def name_of(
    engine: str, model: str, facts: Mapping[str, Any], device: Any, name: Optional[str] = None
) -> Tuple[str, Dict[str, Any]]:
    """(`name`, or one made of a model's facts; the facts as they are compared, and the model's files)."""
    told = json.loads(json.dumps({**facts, "files": _files_of(model)}, default=str))
    digest = hashlib.sha256(json.dumps([told, _place_of(device)], sort_keys=True).encode()).hexdigest()[:32]
    return name or f"{engine}/{os.path.basename(model.rstrip('/'))}/{digest}", told


@contextlib.contextmanager
def alone(name: str, seconds: float) -> Iterator[None]:
    """Let one process of this user and temporary directory at a time run the block. TimeoutError."""
    place = os.path.join(tempfile.gettempdir(), f"gpubufd-{os.getuid()}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock")
    end = time.monotonic() + seconds
    with open(os.open(place, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"another engine has been loading {name!r} for {seconds:g} seconds") from None
                time.sleep(0.05)
        yield


def share_module(
    client: Client, name: str, facts: Mapping[str, Any], load: Callable[[], Any], make: Callable[[], Any], *,
    device: _Device, view: bool = False, timeout: float = 3600.0, others: bool = False, pooled: bool = False,
    attributes: Callable[[Any], Mapping[str, Any]] = lambda _: {},
) -> Tuple[Any, Optional[View]]:
    """Return the module with the published tensors, and with `view` the view of them.

    It is load()'s module if this call publishes it, else make()'s: engines that record their layers can make only one.
    `device`: where load() puts the tensors. `timeout`: how many seconds to wait for another process that loads them.
    `others`: another user's are accepted, too; else Denied, since others can guess a name that is made of facts.
    `pooled`: the caller has load() allocate from a pool, and empties that.
    """
    with alone(name, timeout):
        loads = name not in client
        if loads:
            module = load()
            put_module(client, name, module, facts, device=device, attributes=attributes(module))
    found = client.stat(name)
    if not others:
        of_this_user(found, "; give another name")
    if not loads:
        module = make()
    shown = map_module(client, name, module, facts, view=view, version=found.version)
    if loads:  # its own tensors have gone
        gc.collect()
        if _device_of(device).type == "cuda" and not pooled:
            torch.cuda.empty_cache()
    return module, shown


def drop_unread(module: Any) -> None:
    """Set to None the tensors that the loading process' layers have consumed, so that they take no memory."""
    for part in module.modules():
        for kept in (part._parameters, part._buffers):
            kept.update({leaf: None for leaf, one in kept.items() if one is not None and one.is_meta})
