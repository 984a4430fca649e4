"""torch.multiprocessing, whose tensors travel by name; everything else in it is PyTorch's own:

    import gpubufd.torch.multiprocessing as mp      # in the place of torch.multiprocessing

A tensor that is sent (by a Queue, a Pipe, as an argument of spawn) is copied into the daemon's memory, where it is.
The receiver maps it and deletes its name, so that the memory is freed with the receiver's last tensor over it. A
tensor that nobody receives is deleted after `ttl` seconds. So a tensor outlives its sender, and needs neither descriptors
from it nor `cudaIpc`: it crosses containers that share the daemon's socket, and comes from expandable segments, too.

- A tensor that lies in a published object (load_file(), get_state_dict(), safe_open(), MemPool.publish(), or one that
  was received as such) is sent as a reference of some 200 bytes, if this module was imported before it was opened. The
  object must still be published when it arrives.
- A tensor of up to `inline` bytes on the CPU travels in the message itself.
- A tensor that arrives is the receiver's alone: sender and receiver do not see each other's changes. A larger one is
  READ-ONLY, as all published memory is; options(writable="copy") in the receiver makes private copies instead.
- A tensor is received once: a message that is loaded twice raises NotFound.
- Tensors that share_memory_() has moved, sparse and quantised ones, and subclasses go PyTorch's own way.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import json
import os
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
import torch.multiprocessing
from torch.multiprocessing import reductions

from . import REFERENCE, _settle, _stream_on, _whole
from .. import _errors, _params, torch as _ours
from .._safetensors import check_writable
from .._weights import default_client

_Where = Union[bytes, Tuple[str, int, str, int, bool]]  # content; name, version, instance, offset in bytes, to be taken


@dataclasses.dataclass
class _Options:
    ttl: _params.Seconds = 60.0
    mode: _params.Mode = None
    inline: int = 8 << 10
    writable: Optional[str] = None


_KINDS = (torch.Tensor, torch.nn.Parameter)
_options = _Options()
_count = itertools.count()
_open: Dict[Tuple[str, int, str], Any] = {}  # weak references to storages over objects that are still published


def options(**changed: Any) -> None:
    """Changes how this process sends and receives, and the children that it forks later.

    `ttl`: seconds for the receiver to receive (60). `mode`: who else may receive, such as 0o660, the group. `inline`: up
    to how many bytes a tensor on the CPU travels in the message (8192). `writable="copy"`: what arrives is a private
    copy.
    """
    check_writable(changed.get("writable"))
    _params.options(ttl=changed.get("ttl", 1), mode=changed.get("mode"))
    for name, value in dataclasses.replace(_options, **changed).__dict__.items():
        setattr(_options, name, value)


@functools.lru_cache(None)
def _prefix(process: int) -> str:
    """The beginning of the names that a process gives."""
    return f"torch.mp/{process}-{os.urandom(6).hex()}/"


# ---- sending ----


def _published(tensor: Any) -> Optional[_Where]:
    """Where a tensor lies in a published object; None: in none."""
    found = getattr(tensor.untyped_storage(), REFERENCE, None)
    if found is None:
        return None
    name, version, instance, base, length = found
    at = tensor.data_ptr() - base
    inside = 0 <= at and at + tensor.nbytes <= length and not at % tensor.itemsize
    return (name, version, instance, at, False) if inside else None


def _put(tensor: Any) -> _Where:
    """Publishes a copy of a dense tensor's bytes; where they are."""
    client, name = default_client(), f"{_prefix(os.getpid())}{next(_count)}"
    if tensor.is_cpu:
        opts = _params.options("host", _options.mode, _options.ttl)
        version = client._put_array(name, "uint8", (tensor.nbytes,), None, tensor.data_ptr(), opts)
    else:
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        flat.set_(tensor.untyped_storage(), tensor.storage_offset() * tensor.itemsize, (tensor.nbytes,), (1,))
        stream = _stream_on(tensor.device.index)
        version = client.put(name, flat, mode=_options.mode, ttl=_options.ttl, stream=stream).version
    return name, version, client.instance, 0, True


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is nothing but numbers, and its graph and hooks are left behind."""
    return (type(tensor) in _KINDS and tensor.layout == torch.strided and (tensor.is_cpu or tensor.is_cuda)
            and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg()
            and not tensor._backward_hooks and (tensor.is_leaf or not tensor.requires_grad))


def _reduce(tensor: Any) -> Tuple[Callable[..., Any], Tuple[Any, ...]]:
    """The function and the arguments that the pickle of a tensor has."""
    plain = _is_plain(tensor)
    where = _published(tensor) if plain else None
    if where is None and (not plain or tensor.is_cpu and tensor.is_shared()):
        theirs: Tuple[Callable[..., Any], Tuple[Any, ...]] = reductions.reduce_tensor(tensor)
        return theirs
    given = tensor
    if where is None:
        given = tensor.detach()
        if not given.is_contiguous():
            given = given.clone()  # dense, in the same order of axes if there is one
        inline = given.is_cpu and given.nbytes <= _options.inline or not given.nbytes
        where = ctypes.string_at(given.data_ptr(), given.nbytes) if inline else _put(given)
    device = given.device if given.is_cuda and not given.nbytes else None
    return _rebuild, (where, device, given.dtype, tuple(given.shape), given.stride(), tensor.requires_grad,
                      type(tensor) is torch.nn.Parameter)


# ---- receiving ----


def _take(where: Tuple[str, int, str, int, bool]) -> Any:
    """The storage of the object that a tensor lies in."""
    name, version, instance, _, taken = where
    key = name, version, instance
    there = None if taken else _open.get(key, lambda: None)()
    if there is not None:
        return there
    client = default_client()
    if client.instance != instance:
        raise _errors.failure("stale", f"{name!r} was sent by way of another daemon, or one that was stopped since")
    try:
        held = client._open(name, version, None)
    except _errors.NotFound as error:
        if not taken:
            raise
        raise _errors.failure("not_found", f"the tensor {name!r} was received already, or not within its ttl: {error}") from None
    with held:
        if held._ordinal >= 0:
            held._wait_ready(_stream_on(held._ordinal))
        whole = _whole(held)
        storage = whole.untyped_storage()
        if _options.writable:
            storage = whole.clone().untyped_storage()
            _settle(held)
        elif not taken:
            setattr(storage, REFERENCE, (*key, storage.data_ptr(), storage.nbytes()))
            _open[key] = weakref.ref(storage, lambda _: _open.pop(key, None))
    if taken:  # nobody waits for the answer: a name that stays ends by its ttl
        client._call_async("delete", json.dumps({"name": name, "version": version}), lambda *answer: None)  # type: ignore[attr-defined]
    return storage


def _rebuild(
    where: _Where, device: Any, dtype: Any, shape: Tuple[int, ...], stride: Tuple[int, ...], grad: bool, parameter: bool
) -> Any:
    """The tensor that was sent."""
    if isinstance(where, bytes) and not where:
        made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    else:
        inline = isinstance(where, bytes)
        storage = torch.frombuffer(bytearray(where), dtype=torch.uint8).untyped_storage() if inline else _take(where)  # type: ignore[arg-type]
        at = 0 if inline else where[3]
        made = torch.empty(0, dtype=dtype, device=storage.device)
        made.set_(storage, at // made.element_size(), shape, stride)
    if parameter:
        return torch.nn.Parameter(made, requires_grad=grad)
    return made.requires_grad_() if grad else made


def init_reductions() -> None:
    """Registers the reductions, as the import of this module does; torch.multiprocessing.reductions has PyTorch's own."""
    _ours._referring = True
    for kind in _KINDS:
        ForkingPickler.register(kind, _reduce)


def __getattr__(name: str) -> Any:
    return getattr(torch.multiprocessing, name)


init_reductions()
