"""torch.multiprocessing with tensors that travel by name; everything else in it is PyTorch's own:

    import gpubufd.torch.multiprocessing as mp      # instead of torch.multiprocessing

The tensors of a message (of a Queue, a Pipe, the arguments of spawn) are copied into the daemon's memory on their
device, in objects of up to 16 MiB, or of one tensor. The receiver maps these and deletes their names, so the memory of
an object is freed with the receiver's last tensor in it. An object that nobody receives is deleted after `ttl`
seconds. A tensor outlives its sender, crosses containers that share the daemon's socket, and may come from expandable
segments.

- A tensor of a published object (load_file(), get_state_dict(), safe_open(), MemPool.publish(), or one that
  was received as such) is sent as a reference, if this module was imported before it was opened. The object must
  still be published when it arrives.
- A tensor of up to `inline` bytes on the CPU travels in the message itself.
- A received tensor is the receiver's alone: sender and receiver do not see each other's changes. A larger one is
  READ-ONLY, as all published memory is; options(writable="copy") in the receiver makes private copies.
- A tensor is received once: a message that is loaded twice raises NotFound.
- Tensors that share_memory_() has moved, sparse and quantised ones, and subclasses travel as PyTorch sends them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import pickle
import threading
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.multiprocessing
from torch.multiprocessing import reductions

from . import REFERENCE, _place_of, _settle, _stream_on, _whole
from .. import _client, _errors, _nodes, _params, torch as _ours
from .._client import default_client
from .._layout import ARRAY, DATA
from .._safetensors import check_writable


@dataclasses.dataclass
class _Options:
    ttl: _params.Seconds = 60.0
    mode: _params.Mode = None
    inline: int = 8 << 10
    writable: Optional[str] = None


_KINDS = (torch.Tensor, torch.nn.Parameter)
_TOGETHER, _ALIGN = 16 << 20, 256  # bytes: what several tensors are sent in, where each begins
_Reduced = Tuple[Callable[..., Any], Tuple[Any, ...]]
_options = _Options()
_open: Dict[Tuple[str, int, str], Any] = {}  # weak references to storages over objects that are still published


def options(**changed: Any) -> None:
    """Change how this process, and children that it forks later, send and receive.

    `ttl`: seconds within which a tensor must be received (60). `mode`: who else may receive it, such as 0o660, the
    group. `inline`: up to how many bytes a tensor on the CPU travels in the message (8192). writable="copy": received
    tensors are private copies.
    """
    check_writable(changed.get("writable"))
    _params.options(ttl=changed.get("ttl", 1), mode=changed.get("mode"))
    for name, value in dataclasses.replace(_options, **changed).__dict__.items():
        setattr(_options, name, value)


os.register_at_fork(after_in_child=_open.clear)  # their leases are the parent's


# ---- sending ----


class _Published:
    """A published object, noted at the storages that lie in it. In a message it is their storage, and is opened once."""

    def __init__(self, held: Any):
        memory = held._buffer(DATA)
        self.key, self.start, self.size = (held.name, held.version, held._instance), memory.pointer, memory.nbytes

    def __reduce__(self) -> _Reduced:
        return _storage, self.key


class _Sent(_Published):
    """An object for tensors of one message on one device, which is published when the message is complete. It has no
    version until then, and is told by that: the receiver takes its name away. Nobody can guess the name; others who may
    receive it see it, and could take it later: so the message says whose it is."""

    def __init__(self, device: Any):
        self.client, self.device, self.size = default_client(), device, 0
        self.key = f"torch.mp/{os.getpid()}-{os.urandom(12).hex()}", 0, self.client.instance
        self.owner = None if _options.mode is None else os.getuid()
        self.copies: List[_nodes.Copy] = []

    def __reduce__(self) -> _Reduced:
        return _storage, (*self.key, self.owner)

    def add(self, tensor: Any, count: int) -> int:
        """Where in it `count` bytes of a dense tensor will be."""
        at = -(-self.size // _ALIGN) * _ALIGN
        self.copies.append(_nodes.Copy((), DATA, at, tensor.data_ptr(), count, tensor))
        self.size = at + count
        return at

    def put(self) -> None:
        opts = _params.options(_place_of(self.device), _options.mode, _options.ttl)
        ordinal = self.device.index if self.device.type == "cuda" else None
        if ordinal is None and len(self.copies) == 1:  # half as long as by the way below
            self.client._put_array(self.key[0], "uint8", (self.size,), None, self.copies[0].address, opts)
            return
        with self.client._create(self.key[0], (ARRAY, 0, "uint8", (self.size,), False, None), opts) as made:
            stream = 0 if ordinal is None else _stream_on(ordinal)
            _client.fill_and_seal(made, ordinal, self.copies, stream, True)


class _Messages(threading.local):
    """The objects of the message that a thread is pickling; None: it pickles none."""

    sent: Optional[List[_Sent]] = None


_messages = _Messages()


def _dump(self: Any, value: Any) -> None:
    """ForkingPickler.dump(): when it returns, the tensors are there."""
    outer, _messages.sent = _messages.sent, []
    done: List[_Sent] = []
    try:
        pickle.Pickler.dump(self, value)
        for one in _messages.sent:
            one.put()
            done.append(one)
    except BaseException:
        for one in done:
            one.client.delete(one.key[0], missing_ok=True)
        raise
    finally:
        _messages.sent = outer


def _placed(tensor: Any, count: int) -> Tuple[_Sent, int]:
    """The object that a dense tensor goes to, and where in it."""
    sent, device = _messages.sent, tensor.device
    large = count >= _TOGETHER
    for last in () if sent is None or large else reversed(sent):
        if last.device == device:
            if last.size + count < _TOGETHER:
                return last, last.add(tensor, count)
            break
    made = _Sent(device)
    at = made.add(tensor, count)
    if sent is None:  # another pickler, which does not say when it is done
        made.put()
    else:
        sent.insert(0 if large else len(sent), made)
    return made, at


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is nothing but numbers, and its graph and hooks are left behind."""
    if type(tensor) not in _KINDS or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_neg():
        return False
    if tensor.requires_grad and (not tensor.is_leaf or tensor._backward_hooks):
        return False
    return (tensor.is_cpu or tensor.is_cuda) and not (tensor.dtype.is_complex and tensor.is_conj())


def _reduce(tensor: Any) -> _Reduced:
    """The function and the arguments that the pickle of a tensor has."""
    if not _is_plain(tensor):
        theirs: _Reduced = reductions.reduce_tensor(tensor)
        return theirs
    storage = tensor.untyped_storage()
    where: Any = getattr(storage, REFERENCE, None)
    count, size, given = tensor.nbytes, tensor.itemsize, tensor
    at = -1 if where is None else tensor.data_ptr() - where.start
    if at < 0 or at + count > where.size or at % size:
        if tensor.is_cpu and storage.is_shared():
            theirs = reductions.reduce_tensor(tensor)
            return theirs
        given, at = tensor.detach(), 0
        if not given.is_contiguous():
            given = given.clone()  # dense, in the same order of axes if there is one
        if not count:
            where = given.device
        elif count <= _options.inline and given.is_cpu:
            where = ctypes.string_at(given.data_ptr(), count)
        else:
            where, at = _placed(given, count)
    stride = None if given.is_contiguous() else given.stride()
    plain = type(tensor) is torch.Tensor and not tensor.requires_grad
    kind = () if plain else (tensor.requires_grad, type(tensor) is torch.nn.Parameter)
    return _rebuild, (where, at // size, given.dtype, tuple(given.shape), stride, *kind)


# ---- receiving ----


def _storage(name: str, version: int, instance: str, owner: Optional[int] = None) -> Any:
    """The storage over a published object; or, without a version, over one that was sent (by `owner`), and is taken."""
    key = name, version, instance
    there = _open.get(key, lambda: None)()
    if there is not None:
        return there
    client = default_client()
    if client.instance != instance:
        raise _errors.failure("stale", f"{name!r} was sent by way of another daemon, or one that was stopped since")
    try:
        held = client._open(name, version, None)
    except _errors.NotFound as error:
        if version:
            raise
        raise _errors.failure("not_found", f"the tensor {name!r} was received already, or not within its ttl: {error}") from None
    with held:
        if owner is not None and client.stat(name, version=held.version).uid != owner:
            raise _errors.failure("denied", f"{name!r} is another user's: the one that was sent was not received within its ttl")
        if held._ordinal >= 0:
            held._wait_ready(_stream_on(held._ordinal))
        whole = _whole(held)
        storage = whole.untyped_storage()
        if _options.writable:
            storage = whole.clone().untyped_storage()
            _settle(held)
        elif version:
            setattr(storage, REFERENCE, _Published(held))
            _open[key] = weakref.ref(storage, lambda _: _open.pop(key, None))
    if not version:  # nobody waits for the answer: a name that stays ends by its ttl
        client._call_async("delete", json.dumps({"name": name}), lambda *answer: None)  # type: ignore[attr-defined]
    return storage


@functools.lru_cache(None)
def _empty(dtype: Any, device: Any) -> Any:
    with torch.inference_mode(False):  # for all who come later
        return torch.empty(0, dtype=dtype, device=device)


def _rebuild(
    where: Any, at: int, dtype: Any, shape: Tuple[int, ...], stride: Optional[Tuple[int, ...]], grad: bool = False,
    parameter: bool = False
) -> Any:
    """The tensor that was sent. `where`: its storage, its content, or the device of one without elements."""
    if isinstance(where, torch.device):
        made = torch.empty(shape, dtype=dtype, device=where)
    else:
        if type(where) is bytes:
            where = torch.frombuffer(bytearray(where), dtype=torch.uint8).untyped_storage()
        made = _empty(dtype, where.device).data  # cheaper than a new one, and counts its changes by itself, too
        made.set_(where, at, shape, stride or ())
    if parameter:
        return torch.nn.Parameter(made, requires_grad=grad)
    return made.requires_grad_() if grad else made


def init_reductions() -> None:
    """Register the reductions, as the import of this module does; torch.multiprocessing.reductions has PyTorch's own.
    """
    _ours._noted = _Published
    setattr(ForkingPickler, "dump", _dump)  # noqa: B010 ; an assignment to a method has no type
    for kind in _KINDS:
        ForkingPickler.register(kind, _reduce)


def __getattr__(name: str) -> Any:
    return getattr(torch.multiprocessing, name)


init_reductions()
