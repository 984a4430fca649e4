"""State dicts for PyTorch, shared by all processes of a machine; the only module that imports PyTorch.

    import gpubufd.torch

    sd = gpubufd.torch.load_file("model.safetensors", device="cuda")   # the first process reads the file
    model.load_state_dict(sd, assign=True)                             # a model made on torch.device("meta")

The tensors are in shared memory and READ-ONLY. PyTorch does not know that: an in-place operation is a segmentation
fault on the host, and an illegal address on a GPU. writable="copy" makes private copies.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Dict, Iterable, List, Literal, Mapping, NamedTuple, Optional, Tuple, Union, overload

import torch

from .. import _bundle, _core, _floats, _packing, _params, _pool, _states, _weights, cuda
from .._client import Client
from .._params import Evict, Mode, Scope, Seconds
from .._ref import Ref
from .._errors import SafetensorError
from .._files import FilePath
from .._layout import DATA
from .._safetensors import SafeOpen, check_writable
from .._states import Mismatch
from .._weights import Loading
from .._views import View

__all__ = [
    "MemPool", "Mismatch", "SafetensorError", "TensorView", "follow", "get_state_dict", "load_file", "mem_pool",
    "put_state_dict", "safe_open", "save_file",
]

LEGACY_STREAM = 1  # a handle; torch calls it 0
REFERENCE = "_gpubufd"  # attribute of a storage over published memory: what `_noted` makes of the object
_Device = Union[str, int, torch.device, None]


# ---- names, devices and streams ----


@functools.lru_cache(None)
def _dtype_name(dtype: Any) -> str:
    """The protocol's name of a dtype of PyTorch's."""
    name = str(dtype).rpartition(".")[2]
    return {"bool": "bool8"}.get(name) or _floats.name_of(dtype) or name


@functools.lru_cache(None)
def _dtype_of(name: str) -> Any:
    """PyTorch's dtype for one of the protocol's. TypeError: this PyTorch has none."""
    return torch.bool if name == "bool8" else _floats.torch_dtype(name)


def _is(tensor: Any) -> str:
    return f"{_dtype_name(tensor.dtype)} {tuple(tensor.shape)}"


def _device_of(device: _Device) -> Any:
    """A torch.device; that of a GPU has its number."""
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cpu")
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {found}: expected the CPU or a CUDA device")
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


def _place_of(device: _Device) -> Optional[str]:
    """A device as the daemon names it: "host", or a GPU's UUID."""
    if device is None or isinstance(device, str) and (device == "host" or device.startswith(("GPU-", "MIG-"))):
        return device
    found = _device_of(device)
    return "host" if found.type == "cpu" else cuda.Device(found.index).uuid


def _stream_on(ordinal: int) -> int:
    """The stream that this thread's work on a GPU is queued on."""
    return torch.cuda.current_stream(ordinal).cuda_stream or LEGACY_STREAM


# ---- tensors that become a bundle ----


def _check(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"tensor {name!r}: {type(value).__name__} is no tensor")
    if type(value) not in (torch.Tensor, torch.nn.Parameter) and hasattr(value, "__tensor_flatten__"):
        kind = type(value).__name__
        raise TypeError(f"tensor {name!r}: a {kind} is several tensors: put these by names of their own")
    if value.layout != torch.strided or value.is_quantized:
        raise TypeError(f"tensor {name!r}: it is {value.layout}, {value.dtype}: expected a dense one of plain numbers")


@functools.lru_cache(None)
def _ordinal_of(device: Any) -> Optional[int]:
    """A GPU's number; None: the CPU. TypeError: another device."""
    if device.type not in ("cpu", "cuda"):
        raise TypeError(f"it is on the device {device}: expected the CPU or a CUDA device")
    ordinal: Optional[int] = device.index if device.type == "cuda" else None
    return ordinal


def _part(name: str, value: Any) -> _packing.Part:
    """The Part of a tensor. A tensor that is not in C order is copied first."""
    dtype = _dtype_name(value.dtype)
    try:
        device = _ordinal_of(value.device)
    except TypeError as error:
        raise TypeError(f"tensor {name!r}: {error}") from None
    if value.dtype.is_complex:
        value = value.resolve_conj()
    elif value.is_neg():
        value = value.resolve_neg()
    tensor = value.contiguous()
    shape = _floats.elements(dtype, tuple(tensor.shape))
    return _packing.Part(dtype, shape, tensor.data_ptr(), tensor.numel() * tensor.element_size(), device, tensor)


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors that begin at the same address have the same dtype, shape and strides."""
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride())


def _parts(tensors: Mapping[str, Any], tie: bool) -> Tuple[Dict[str, _packing.Part], Dict[str, str]]:
    """(the tensors as Parts, {further name: first name}). With `tie`, a tensor with several names is one Part."""
    made, others = {}, {}
    there: Dict[int, str] = {}  # the first tensor at an address …
    further: Dict[int, List[str]] = {}  # … and those that begin there and are others
    for name, value in tensors.items():
        _check(name, value)
        if tie and value.numel() and value.device.type != "meta":
            address = value.data_ptr()
            known = there.setdefault(address, name)
            if known is not name:
                first = next((of for of in (known, *further.get(address, ())) if _same(tensors[of], value)), None)
                if first is not None:
                    others[name] = first
                    continue
                further.setdefault(address, []).append(name)
        made[name] = _part(name, value.detach())
    return made, others


class _Known(NamedTuple):
    """A state dict that was published last, to be published again without looking at each tensor anew. It holds none."""

    facts: Any
    metadata: Dict[str, str]
    plan: Any
    ordinals: List[int]


_known: Optional[_Known] = None


_exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)  # of PyTorch 2.10 and later


def _facts(tensors: Mapping[str, Any]) -> Any:
    """All that a plan depends on; None: of such tensors none is kept."""
    values = tuple(tensors.values())
    if not {type(value) for value in values} <= {torch.Tensor, torch.nn.Parameter}:
        return None
    try:
        if any(map(torch.Tensor.is_neg, values)) or any(map(torch.Tensor.is_conj, values)):
            return None
        if _exchange:
            return tuple(tensors), _core.borrow_all(_exchange, values)
        if any(value.layout != torch.strided for value in values):
            return None
        return tuple(tensors), [(value.data_ptr(), value.dtype, value.shape, value.stride(), value.device) for value in values]
    except RuntimeError:  # one without a place
        return None


def _ordinals(parts: Mapping[str, _packing.Part]) -> List[int]:
    """The GPUs that the tensors are on, each once."""
    return list(dict.fromkeys(part.device for part in parts.values() if part.device is not None))


def _plan(tensors: Mapping[str, Any], metadata: Optional[Mapping[str, Any]]) -> Tuple[Any, List[int]]:
    """(the Plan of a state dict, the GPUs that its tensors are on). metadata: _states.metadata_of()."""
    global _known
    facts, given = _facts(tensors), _states.metadata_of(metadata, {})
    known = _known
    if known is not None and facts is not None and known.facts == facts and known.metadata == given:
        return _packing.again(known.plan), known.ordinals
    with _packing.uncollected():
        parts, others = _parts(tensors, True)
        ordinals = _ordinals(parts)
        plan = _packing.tensors(parts, _states.metadata_of(metadata, others), None)
        if facts is not None and all(part.address == tensors[name].data_ptr() for name, part in parts.items()):
            kept = _packing.again(plan)
            kept.parts = sorted(((at, _packing.Part(*part[:-1], None) if isinstance(part, _packing.Part) else part)
                                 for at, part in plan.parts), key=operator.itemgetter(0))
            _known = _Known(facts, given, kept, ordinals)
        return plan, ordinals


def _stream_of(parts: Mapping[str, _packing.Part]) -> Optional[int]:
    return _stream_behind(_ordinals(parts))


def _stream_behind(ordinals: List[int]) -> Optional[int]:
    """The stream to queue copies on, behind the work that makes the tensors; waits for such work on further GPUs."""
    for ordinal in ordinals[1:]:
        torch.cuda.current_stream(ordinal).synchronize()
    return _stream_on(ordinals[0]) if ordinals else None


def put_state_dict(
    client: Client, name: str, state_dict: Mapping[str, Any], *, metadata: Optional[Mapping[str, Any]] = None,
    device: _Device = None, label: Optional[str] = None, keep: int = 0, **options: Any,
) -> Ref:
    """Publish copies of a state dict's tensors as one Bundle, all of them or nothing.

    `device`: where to put them, as PyTorch names devices; None: where the first tensor on a GPU is, else the daemon's
    default. `metadata`: values of JSON by name, such as {"tp_rank": 0, "dtype": "bfloat16"}, which get_state_dict()
    can compare. `label`, `keep` and the others (`replace`, `mode`, `ttl`, `evict`, `timeout`, `wait`, …) are those of
    Client.put_bundle().

    A tensor with several names (tied weights) is stored once. Copies on a GPU are queued on this thread's current
    stream, after the work that makes the tensors. TypeError names the tensor.
    """
    plan, ordinals = _plan(state_dict, metadata)
    options.setdefault("stream", _stream_behind(ordinals))
    return client.put_bundle(name, plan, device=_place_of(device), label=label, keep=keep, **options)


# ---- tensors that are made where they are published ----


@functools.lru_cache(None)
def _allocator() -> Any:
    """PyTorch's allocator over functions of `_core`; never freed, since tensors may be freed at any time."""
    return torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, "gpubufd_pool_alloc", "gpubufd_pool_free")


class MemPool:
    """Made by mem_pool(). In a `with pool:` this thread's allocations on the pool's GPU come from the pool.

    Keep the pool as long as its tensors. Its memory is freed when PyTorch has given all of it back: when the pool and
    its tensors are deleted, at the latest with torch.cuda.empty_cache().
    """

    def __init__(self, pool: _pool.Pool):
        self._pool = pool
        self._pieces = pool.pieces
        self._torch = torch.cuda.MemPool(_allocator().allocator())
        self._using: Any = None

    def __enter__(self) -> "MemPool":
        if self._pool.object.released or self._pool.object.version:
            raise ValueError(f"{self._pool.name!r} is published: its memory is not allocated any more")
        self._pieces.enter()
        try:
            using = torch.cuda.use_mem_pool(self._torch, self._pool.object._ordinal)
            using.__enter__()
        except BaseException:
            self._pieces.leave()
            raise
        self._using = using  # only now: a second thread, which fails above, must not replace the first one's
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._using.__exit__(*exception)
        finally:
            self._pieces.leave()

    def publish(
        self, state_dict: Mapping[str, Any], *, metadata: Optional[Mapping[str, Any]] = None,
        label: Optional[str] = None, keep: Optional[int] = None,
    ) -> Ref:
        """Publish a state dict whose tensors are in the pool as one Bundle, in place: nothing is copied.

        The call waits for the GPU. From then on no process may write to the pool, this one included, not even to
        tensors in it that are not published. Tied tensors are stored once. `metadata`, `label`, `keep`: as of
        put_state_dict(). ValueError names the tensor: it is not in the pool, not in C order, or overlaps another. The
        pool is then unchanged.
        """
        for name, tensor in state_dict.items():
            _check(name, tensor)
            if not tensor.is_contiguous():
                raise ValueError(f"tensor {name!r} is not in C order: use contiguous() while the pool is in use")
        parts, others = _parts(state_dict, True)
        ref = self._pool.publish(parts, _states.metadata_of(metadata, others), label, keep)
        _refer(state_dict.values(), self._pool.object)
        return ref

    def __repr__(self) -> str:
        return repr(self._pool)


def mem_pool(
    client: Client, name: str, size: int, *, device: _Device = None, mode: Mode = None, ttl: Optional[Seconds] = None,
    evict: Evict = None, replace: bool = False, timeout: Optional[float] = None, scope: Scope = "local",
) -> MemPool:
    """Allocate the daemon's memory for a model that is built in place and published without a copy:

        with gpubufd.torch.mem_pool(client, "llama-8b/tp0", 17 << 30, device="cuda:0") as pool:
            model = Model(config).to("cuda:0")
        pool.publish(model.state_dict(), label="step-0")

    `size`: bytes for PyTorch to allocate, in pieces of 2 MiB and more: those of the tensors and a few percent. All of
    them are allocated now; more raises torch.cuda.OutOfMemoryError. PyTorch reuses memory that is freed in the pool.
    `device`: a GPU; None: the current one. The others are those of Client.put(). Until publish() nobody else sees the
    object.
    """
    place = _place_of("cuda" if device is None else device)
    options = _params.options(place, mode, ttl, evict, replace, timeout, scope=scope)
    return MemPool(_pool.Pool(client, name, size, options))


# ---- a bundle's tensors ----


def _whole(bundle: _bundle.Bundle) -> Any:
    """All bytes of a bundle, as a tensor of uint8."""
    return torch.from_dlpack(bundle._buffer(DATA)._dlpack(False, False))


_itemsize = functools.lru_cache(None)(_core.itemsize)
_BY_BYTES = frozenset(_floats.SMALL) | {"bool8"}  # some versions of PyTorch lack these in DLPack


def _tensor(bundle: _bundle.Bundle, i: int, entry: Tuple[str, str, Tuple[int, ...], int, int]) -> Any:
    """Tensor `i` over the bundle's memory, with a storage of its own; a copy if it is not aligned."""
    _, dtype, shape, offset, size = entry
    if not size:
        where = torch.device("cuda", bundle._ordinal) if bundle._ordinal >= 0 else torch.device("cpu")
        return torch.empty(_floats.items(dtype, shape), dtype=_dtype_of(dtype), device=where)
    if offset % _itemsize(dtype):  # as in some other programs' files
        part = _whole(bundle)[offset : offset + size].clone()
        _settle(bundle)
        return part.view(_dtype_of(dtype)).reshape(_floats.items(dtype, shape))
    view = bundle._tensor(i)._view()
    if dtype in _BY_BYTES:
        return torch.from_dlpack(view._as_uint8()._dlpack(False, False)).view(_dtype_of(dtype))
    return torch.from_dlpack(view._dlpack(False, False))


_noted: Optional[Callable[[Any], Any]] = None  # of gpubufd.torch.multiprocessing: 18 900 notes take half as long again


def _refer(tensors: Iterable[Any], held: Any) -> None:
    """Notes at the tensors' storages which object they lie in, so that a tensor can be sent as a reference to it."""
    if _noted is None or not hasattr(torch.Tensor, "untyped_storage"):  # before PyTorch 2
        return
    noted = _noted(held)
    for tensor in tensors:
        setattr(tensor.untyped_storage(), REFERENCE, noted)


def _tensors(bundle: _bundle.Bundle) -> Dict[str, Any]:
    """A bundle's tensors, by all of their names."""
    found = {
        name: torch.from_dlpack(capsule) if capsule else _tensor(bundle, i, bundle._entry(i))
        for i, (name, capsule) in enumerate(bundle._capsules().items())
    }
    for name, of in _states.further_names(bundle):
        found[name] = found[of]
    return found


def _ready(bundle: _bundle.Bundle) -> None:
    """Makes this thread's stream wait until the producer has filled the bundle."""
    if bundle._ordinal >= 0:
        bundle._wait_ready(_stream_on(bundle._ordinal))


def _settle(bundle: _bundle.Bundle) -> None:
    """Waits until copies out of the bundle are done, so that its memory can be released."""
    if bundle._ordinal >= 0:
        torch.cuda.current_stream(bundle._ordinal).synchronize()


def _private(tensor: Any, where: Any, writable: Optional[str]) -> Any:
    """The tensor; or a copy of it, on another device or to be written to."""
    moves = where is not None and tensor.device != where
    if not moves and not writable:
        return tensor
    small = _dtype_name(tensor.dtype) in _floats.SMALL and tensor.dim() > 0 and tensor.is_contiguous()
    items = tensor.view(torch.uint8) if small else tensor  # PyTorch copies hardly any of these by element
    copy = items.to(where) if moves else items.clone()
    return copy.view(tensor.dtype) if small else copy


def _taken(bundle: _bundle.Bundle, shared: Any, where: Any, writable: Optional[str]) -> Any:
    """A tensor of the bundle, or its copy, when that is done."""
    made = _private(shared, where, writable)
    if made is not shared:
        _settle(bundle)
    return made


def _state(bundle: _bundle.Bundle, where: Any, writable: Optional[str]) -> Dict[str, Any]:
    """The state dict of a bundle. A tensor with several names is one tensor in it."""
    _ready(bundle)
    found = _tensors(bundle)
    _refer(found.values(), bundle)
    if where is None and not writable:
        return found
    made = {id(tensor): _private(tensor, where, writable) for tensor in found.values()}
    state = {name: made[id(tensor)] for name, tensor in found.items()}
    if any(state[name] is not tensor for name, tensor in found.items()):
        _settle(bundle)
    return state


def _copy_into(bundle: _bundle.Bundle, target: Mapping[str, Any]) -> None:
    _ready(bundle)
    found = _tensors(bundle)
    _states.check_tensors(
        bundle.name, {name: _is(tensor) for name, tensor in target.items()},
        {name: _is(tensor) for name, tensor in found.items()})
    with torch.no_grad():
        for name, tensor in target.items():
            tensor.copy_(found[name], non_blocking=True)
    for ordinal in {tensor.device.index for tensor in target.values() if tensor.device.type == "cuda"}:
        torch.cuda.current_stream(ordinal).synchronize()
    _settle(bundle)


def get_state_dict(
    client: Client, name: str, *, expect: Optional[Mapping[str, Any]] = None, into: Optional[Mapping[str, Any]] = None,
    writable: Optional[str] = None, device: _Device = None, version: Optional[int] = None, label: Optional[str] = None,
    timeout: Optional[float] = None,
) -> Dict[str, Any]:
    """Return a state dict over the memory of a published Bundle: nothing is copied, and the tensors are read-only.

    `expect`: metadata that put_state_dict() must have been given; other metadata is ignored. `into`: tensors by name
    to fill with copies, and to return as a dict; they must have the same names, dtypes and shapes. writable="copy":
    private copies. `device`: where the tensors are wanted; those elsewhere are copied there. `version`, `label`,
    `timeout`: as of Client.get().

    Mismatch (a ValueError): the Bundle is not the expected one; its `fields` say what differs. NotFound (a KeyError).
    """
    check_writable(writable)
    bundle = client.get(name, timeout=timeout, version=version, label=label, kind=_bundle.Bundle)
    with bundle:
        _states.check_facts(bundle, expect)
        if into is None:
            return _state(bundle, None if device is None else _device_of(device), writable)
        _copy_into(bundle, into)
        return dict(into)


# ---- views ----


class TensorView(View):
    """A View whose values are tensors; made by follow()."""

    def __init__(
        self, client: Client, name: str, timeout: Optional[float], version: Optional[int], label: Optional[str]
    ):
        super().__init__(client, name, timeout, version, label)
        bundle = self.value
        try:
            if not isinstance(bundle, _bundle.Bundle):
                raise TypeError(f"{name!r} is of the kind {type(bundle).__name__}, not Bundle")
            for entry in bundle._entries():
                if entry[3] % _itemsize(entry[1]):
                    raise ValueError(f"tensor {entry[0]!r} of {name!r} is not aligned, and would be a copy")
            _ready(bundle)
            self._state: Dict[str, Any] = dict(_tensors(bundle))
        except BaseException:
            self.close()
            raise

    def _parts(self) -> Mapping[str, Any]:
        return self._state


def follow(
    client: Client, name: str, *, timeout: Optional[float] = None, version: Optional[int] = None,
    label: Optional[str] = None,
) -> TensorView:
    """Return a state dict whose tensors keep their addresses while their content changes from version to version:

        state = gpubufd.torch.follow(client, "policy")
        model.load_state_dict(state, assign=True)      # then capture graphs, compile
        for info in state.versions():
            state.switch(streams=[torch.cuda.current_stream()])

    The tensors are read-only. Arguments and errors as of Client.follow(); ValueError: a tensor is not aligned.
    """
    return TensorView(client, name, timeout, version, label)


# ---- files ----


def _load(
    filename: FilePath, device: _Device, options: Dict[str, Any], wait: bool = True
) -> Tuple[_bundle.Bundle, Any, Optional[_weights.Reading]]:
    """(a file's bundle, the device of its tensors, its reading under way). Each GPU has a bundle of its own."""
    where = _device_of(device)
    place = _place_of(where)
    if place is None or where.type == "cpu":
        bundle, reading = _weights.begin(filename, device="host", wait=wait, **options)
    else:
        bundle, reading = _weights.begin(filename, device=place, place=place, wait=wait, **options)
    return bundle, where, reading


@overload
def load_file(
    filename: FilePath, device: Union[str, int, torch.device] = "cpu", *, client: Optional[Client] = None,
    name: Optional[str] = None, writable: Optional[str] = None, wait: Literal[True] = True, **options: Any,
) -> Dict[str, Any]: ...


@overload
def load_file(
    filename: FilePath, device: Union[str, int, torch.device] = "cpu", *, wait: Literal[False], **options: Any
) -> Loading: ...


def load_file(
    filename: FilePath, device: Union[str, int, torch.device] = "cpu", *, client: Optional[Client] = None,
    name: Optional[str] = None, writable: Optional[str] = None, wait: bool = True, **options: Any,
) -> Any:
    """Return a safetensors file's tensors by name: the first process reads the file, the others map it.

    The tensors are read-only; writable="copy": private copies. `device`: where they are wanted. `name`: the name to
    publish; None: one made of path, size, inode, time, user and GPU. `client`: None: a connection of this process'
    own. wait=False: a mapping, from which tensors can be taken while others are still read. Others, such as `mode` and
    `ttl`, are those of Client.put().

    ValueError: it is not a safetensors file (the message says where), or is being changed. OSError. Errors of put().
    """
    check_writable(writable)
    bundle, where, reading = _load(filename, device, {"client": client, "name": name, **options}, wait)
    if not wait:
        return Loading(bundle, reading, lambda i, entry: _taken(bundle, _tensor(bundle, i, entry), where, writable))
    with bundle:
        return _state(bundle, where, writable)


def save_file(
    tensors: Mapping[str, Any], filename: FilePath, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Write tensors into a safetensors file, which replaces an existing one when it is complete.

    Tensors that share memory are written under each of their names. A Bundle without new metadata is written byte for
    byte. TypeError names the tensor.
    """
    if not isinstance(tensors, _bundle.Bundle):
        tensors, _ = _parts(tensors, False)
        for ordinal in {part.device for part in tensors.values() if part.device is not None}:
            torch.cuda.current_stream(ordinal).synchronize()
    _weights.save(tensors, filename, metadata)


class safe_open(SafeOpen):  # named as in the safetensors package
    """A safetensors file, mapped as by load_file(), to take single tensors of it:

        with safe_open("model.safetensors", framework="pt", device="cuda:0") as f:
            for name in f.keys():
                tensor = f.get_tensor(name)

    The tensors stay valid after the end of the `with`.
    """

    _frameworks = ("pt", "torch", "pytorch")

    def __init__(
        self, filename: FilePath, framework: str = "pt", device: Union[str, int, torch.device] = "cpu", *,
        client: Optional[Client] = None, name: Optional[str] = None, writable: Optional[str] = None, **options: Any,
    ):
        self._check(framework, writable)
        bundle, self._where, _ = _load(filename, device, {"client": client, "name": name, **options})
        super().__init__(bundle, writable, filename)
        _ready(bundle)

    def _shared(self, name: str) -> Any:
        i = self._bundle._number(name)
        found = _tensor(self._bundle, i, self._bundle._entry(i))
        _refer([found], self._bundle)
        return found

    def _made(self, shared: Any) -> Any:
        return _taken(self._bundle, shared, self._where, self._writable)

    def _whole(self, name: str) -> Any:
        return self._made(self._shared(name))

    def _part(self, name: str, key: Any) -> Any:
        return self._made(self._shared(name)[key])
