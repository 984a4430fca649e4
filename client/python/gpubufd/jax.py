"""Trees of arrays for JAX, shared by all processes of a machine; the only module that imports JAX.

    import gpubufd.jax

    params = gpubufd.jax.load_file("model.safetensors")     # arrays by name; the first process reads the file

    gpubufd.jax.put_tree(client, "policy", params, replace=True, label="step-42")
    params = gpubufd.jax.get_tree(client, "policy", like=params)

JAX never writes to its arrays, so they need no copies. Do not donate them to a jitted function.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import jax

from . import _bundle, _buffers, _core, _errors, _floats, _packing, _states, _weights, cuda
from ._client import Client
from ._ref import Ref
from ._errors import SafetensorError
from ._files import FilePath
from ._safetensors import SafeOpen
from ._states import Mismatch

__all__ = ["Mismatch", "SafetensorError", "get_tree", "load_file", "put_tree", "safe_open", "save_file"]

ALIGNMENT = 16  # bytes that XLA's kernels need


# ---- names and devices ----


def _name_of(path: Any) -> str:
    """The name of a leaf: "layers/0/kernel"."""
    parts = []
    for key in path:
        for attribute in ("key", "name", "idx"):  # of a dict, of a class, of a sequence
            if hasattr(key, attribute):
                parts.append(str(getattr(key, attribute)))
                break
        else:
            parts.append(str(key))
    return "/".join(parts)


def _leaves(tree: Any) -> Tuple[Dict[str, Any], Any]:
    """A tree's leaves by name, and its structure. ValueError: two have one name."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    found: Dict[str, Any] = {}
    for path, leaf in pairs:
        name = _name_of(path)
        if name in found:
            raise ValueError(f"two leaves have the name {name!r}")
        found[name] = leaf
    return found, structure


def _is(leaf: Any) -> str:
    name = str(leaf.dtype)
    return f"{'bool8' if name == 'bool' else name} {tuple(leaf.shape)}"


def _device_of(device: Any) -> Any:
    """JAX's device for a device of JAX's, "cpu" or "cuda:0"; None: the default."""
    if device is None:
        return jax.devices()[0]
    if not isinstance(device, str):
        return device
    kind, _, number = device.partition(":")
    return jax.devices("cpu" if kind in ("cpu", "host") else kind)[int(number or 0)]


def _is_gpu(device: Any) -> bool:
    return device.platform in ("gpu", "cuda")


def _place_of(device: Any) -> str:
    """A device of JAX's as the daemon names it: "host", or a GPU's UUID."""
    if not _is_gpu(device):
        return "host"
    return cuda.Device(getattr(device, "local_hardware_id", None) or 0).uuid


# ---- arrays that become a bundle ----


def _part(name: str, leaf: Any) -> Any:
    """The value for put_bundle(): a Part of a leaf on one GPU, else a NumPy array; a leaf of other types itself."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise TypeError(f"leaf {name!r}: {leaf.dtype} is no plain number: put jax.random.key_data() of it")
    devices = list(leaf.devices())
    if len(devices) > 1 or not _is_gpu(devices[0]):
        import numpy

        return numpy.asarray(leaf)
    leaf.block_until_ready()
    dtype = {"bool": "bool8"}.get(str(leaf.dtype), str(leaf.dtype))
    if dtype in _floats.PACKED or _core_lacks(dtype):
        raise TypeError(f"leaf {name!r}: {leaf.dtype} cannot be put from a GPU: copy it with jax.device_get()")
    ordinal = getattr(devices[0], "local_hardware_id", None) or 0
    return _packing.Part(dtype, tuple(leaf.shape), leaf.unsafe_buffer_pointer(), leaf.nbytes, ordinal, leaf)


def _core_lacks(dtype: str) -> bool:
    try:
        return not _core.itemsize(dtype)
    except (_errors.Error, TypeError, ValueError):
        return True


def put_tree(
    client: Client, name: str, tree: Any, *, metadata: Optional[Mapping[str, Any]] = None,
    device: Optional[str] = None, label: Optional[str] = None, keep: int = 0, **options: Any,
) -> Ref:
    """Publish copies of a tree's arrays as one Bundle, all of them or nothing.

    Leaves are named by their path, "layers/0/kernel". An array that is sharded over several devices is gathered on the
    host. `device`: where to put them, as the daemon names devices; None: where the first leaf on a GPU is, else the
    daemon's default. `metadata`: values of JSON by name, which get_tree() can compare. `label`, `keep` and the other
    options are those of Client.put_bundle(). TypeError names the leaf.
    """
    leaves, _ = _leaves(tree)
    parts = {key: _part(key, leaf) for key, leaf in leaves.items()}
    facts = _states.metadata_of(metadata, {})
    return client.put_bundle(name, parts, facts, device=device, label=label, keep=keep, **options)


# ---- a bundle's arrays ----


def _array(bundle: _bundle.Bundle, name: str) -> Any:
    """A tensor over the bundle's memory; a copy if JAX can take it in no other way."""
    i = bundle._number(name)
    if i < 0:
        raise KeyError(name)
    try:
        array = bundle._tensor(i)
        if array._view().pointer % ALIGNMENT:
            raise BufferError("the memory is not aligned for XLA's kernels")
        if array._dtype not in _floats.SMALL and array._dtype != "bool8":
            return jax.dlpack.from_dlpack(array)
        if array._dtype not in _floats.PACKED:
            return _bitcast(jax.dlpack.from_dlpack(_buffers.AsBytes(array)), array._dtype)
    except (_errors.Error, BufferError, TypeError, ValueError, RuntimeError):  # not aligned, or not known to DLPack
        pass
    where = jax.devices("cuda")[bundle._ordinal] if bundle._ordinal >= 0 else jax.devices("cpu")[0]
    return jax.device_put(bundle._numpy(name, True), where)


def _bitcast(items: Any, dtype: str) -> Any:
    """uint8 as elements of a dtype of one byte."""
    if dtype == "bool8":
        return items.astype(bool)
    return jax.lax.bitcast_convert_type(items, dtype)


def _arrays(bundle: _bundle.Bundle, device: Any) -> Dict[str, Any]:
    found = {name: _array(bundle, name) for name in bundle}
    if device is not None:
        found = {name: jax.device_put(array, device) for name, array in found.items()}
    jax.block_until_ready(found)  # copies out of the memory are done before it is let go
    return found


def get_tree(
    client: Client, name: str, *, like: Any = None, expect: Optional[Mapping[str, Any]] = None, device: Any = None,
    version: Optional[int] = None, label: Optional[str] = None, timeout: Optional[float] = None,
) -> Any:
    """Return a tree over the memory of a published Bundle, without a copy.

    `like`: a tree of arrays, or of jax.ShapeDtypeStruct, of the same structure, dtypes and shapes; None: the result is
    a dict of arrays by name. `expect`: metadata that put_tree() must have been given. `device`: where the arrays are
    wanted; those elsewhere are copied there. `version`, `label`, `timeout`: as of Client.get().

    Mismatch (a ValueError): the Bundle is not the expected one; its `fields` say what differs. NotFound (a KeyError).
    """
    bundle = client.get(name, timeout=timeout, version=version, label=label, kind=_bundle.Bundle)
    with bundle:
        _states.check_facts(bundle, expect)
        where = None if device is None else _device_of(device)
        if like is None:
            return _arrays(bundle, where)
        leaves, structure = _leaves(like)
        there = {key: f"{dtype} {shape}" for (key, dtype, shape, *_) in bundle._entries()}
        _states.check_tensors(name, {key: _is(leaf) for key, leaf in leaves.items()}, there)
        found = _arrays(bundle, where)
        ordered: List[Any] = [found[key] for key in leaves]
        return jax.tree_util.tree_unflatten(structure, ordered)


# ---- files ----


def _load(filename: FilePath, device: Any, options: Dict[str, Any]) -> Tuple[_bundle.Bundle, Any]:
    """(a file's bundle, the device of its arrays). Each GPU has a bundle of its own."""
    where = _device_of(device)
    place = _place_of(where)
    return _weights.load(filename, device=place, place="" if place == "host" else place, **options), where


def load_file(
    filename: FilePath, *, device: Any = None, client: Optional[Client] = None, name: Optional[str] = None,
    **options: Any,
) -> Dict[str, Any]:
    """A safetensors file's tensors by name, as JAX arrays. The first process reads the file, the others map it.

    `device`: where the arrays are wanted; None: JAX's default device. `name`: the name to publish; None: a name
    made of its path, size, inode, time of its last change, of the user and the GPU. `client`: None: a connection of
    the process' own. Others are those of Client.put().
    """
    bundle, where = _load(filename, device, {"client": client, "name": name, **options})
    with bundle:
        return _arrays(bundle, where)


def save_file(
    tensors: Mapping[str, Any], filename: FilePath, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Writes arrays into a safetensors file, which replaces an existing one when it is complete."""
    if not isinstance(tensors, _bundle.Bundle):
        tensors = {name: _part(name, leaf) for name, leaf in tensors.items()}
    _weights.save(tensors, filename, metadata)


class safe_open(SafeOpen):  # named as in the safetensors package
    """A safetensors file, mapped as by load_file(), to take single tensors of it as JAX arrays."""

    _frameworks = ("flax", "jax")

    def __init__(
        self, filename: FilePath, framework: str = "flax", device: Any = None, *, client: Optional[Client] = None,
        name: Optional[str] = None, **options: Any,
    ):
        self._check(framework, None)
        bundle, self._where = _load(filename, device, {"client": client, "name": name, **options})
        super().__init__(bundle, None, filename)

    def _whole(self, name: str) -> Any:
        return jax.block_until_ready(jax.device_put(_array(self._bundle, name), self._where))

    def _part(self, name: str, key: Any) -> Any:
        return self._whole(name)[key]
