"""Values as a bundle: the place of each in it, and the copies that fill it."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _convert, _core, _nodes
from ._layout import BUNDLE, DATA

LIMIT = 16 << 20  # bytes that are collected at a time of an array that is not in C order


class Part(NamedTuple):
    """An array in C order, lighter than a Plan, since a bundle may have twenty thousand. Its maker has the copies
    wait for the work that makes the array."""

    dtype: str
    shape: Tuple[int, ...]  # in elements
    address: int
    size: int  # bytes
    device: Optional[int]  # the ordinal of the GPU that it is on
    keep: Any


def _tensor(name: str, value: Any, stream: Optional[int]) -> _convert.Plan:
    try:
        plan = _convert.plan(value, stream)
    except TypeError as error:
        raise TypeError(f"tensor {name!r}: {error}") from None
    if plan.kind == "bytes":
        return _convert.bytes_at(*_core.address(plan.buffer), plan)
    if plan.kind != "array" or plan.mask is not None:
        raise TypeError(f"tensor {name!r}: {type(value).__name__} is no array of numbers without nulls")
    return plan


def tensors(values: Mapping[str, Any], metadata: Optional[Mapping[str, str]], stream: Optional[int]) -> _convert.Plan:
    """The Plan of a bundle, of arrays or Parts by name; a Plan is one already. TypeError, ValueError: with the tensor's
    name."""
    if isinstance(values, _convert.Plan):
        return values
    if not isinstance(values, Mapping):
        raise TypeError(f"{type(values).__name__} is no bundle: expected a dict of arrays by name")
    made = _convert.Plan("bundle", values)
    found: List[Union[_convert.Plan, Part]] = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"a tensor's name is a str, not {name!r}")
        if isinstance(value, Part):
            found.append(value)
        else:
            plan = _tensor(name, value, stream)
            made.streams += plan.streams
            made.events += plan.events
            found.append(plan)
        if made.device is None:
            made.device = found[-1].device
    pairs = tuple(text for pair in (metadata or {}).items() for text in pair)
    if not all(isinstance(text, str) for text in pairs):
        raise TypeError("metadata: expected a dict of strings")
    head, size, manifest_bytes, offsets = _core.plan_bundle(
        tuple((name, plan.dtype, plan.shape) for name, plan in zip(values, found)), pairs)
    made.parts = [(0, _convert.bytes_at(*_core.address(head), head)), *zip(offsets, found)]
    made.layout = (BUNDLE, size, None, (), False, None, manifest_bytes)
    return made


def again(made: _convert.Plan) -> _convert.Plan:
    """The same Plan, for another call: publishing changes one."""
    return _convert.Plan("bundle", None, parts=made.parts, layout=made.layout, device=made.device)


def copies(made: _convert.Plan) -> Iterable[_nodes.Copy]:
    """The copies that fill the bundle, from start to end: a list, or a generator if some arrays are collected first."""
    found = _copies(made)
    collected = any(not isinstance(plan, Part) and plan.strides is not None for _, plan in made.parts)
    return found if collected else list(found)


def _copies(made: _convert.Plan) -> Iterator[_nodes.Copy]:
    for at, plan in sorted(made.parts, key=lambda part: part[0]):
        if isinstance(plan, Part):
            if plan.size:
                yield _nodes.Copy((), DATA, at, plan.address, plan.size, plan)
        elif plan.strides is not None:
            for copy in _convert.strided_copies(plan, LIMIT):
                yield copy._replace(at=at + copy.at)
        else:
            size = _convert.bytes_of(plan.dtype, plan.shape)
            if size:
                yield _nodes.Copy((), DATA, at, plan.address, size, plan)
