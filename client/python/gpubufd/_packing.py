"""Values as a bundle: the place of each in it, and the copies that fill it."""

from __future__ import annotations

import contextlib
import gc
import operator
import sys
from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _convert, _core, _nodes, cuda
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


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collections: among a hundred thousand new objects these take longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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
    made.nbytes = size
    made.layout = (BUNDLE, size, None, (), False, None, manifest_bytes)
    return made


def again(made: _convert.Plan) -> _convert.Plan:
    """The same Plan, for another call: publishing changes one."""
    return _convert.Plan("bundle", None, parts=made.parts, layout=made.layout, device=made.device, nbytes=made.nbytes)


def copies(made: _convert.Plan) -> Iterable[_nodes.Copy]:
    """The copies that fill the bundle, from start to end: a list, or a generator if some arrays are collected first."""
    found = _copies(made)
    collected = any(not isinstance(plan, Part) and plan.strides is not None for _, plan in made.parts)
    if collected:
        return found
    with uncollected():
        return list(found)


def _copies(made: _convert.Plan) -> Iterator[_nodes.Copy]:
    """Arrays that lie one behind the other in one allocation, as they will in the bundle, are one copy."""
    first = source = size = limit = 0  # of the copy that grows: its place, address and bytes, and where its memory ends
    plan: Any = None
    for at, part in sorted(made.parts, key=operator.itemgetter(0)):
        strided = not isinstance(part, Part) and part.strides is not None
        count = 0 if strided else part.size if isinstance(part, Part) else _convert.bytes_of(part.dtype, part.shape)
        if count and size and at == first + size and part.address == source + size and part.device == plan.device:
            if source + size + count > limit:
                limit = sys.maxsize if part.device is None else cuda.end_of(source, part.device)
            if source + size + count <= limit:
                size += count
                continue
        if size and (count or strided):
            yield _nodes.Copy((), DATA, first, source, size, plan)
            size = 0
        if strided:
            for copy in _convert.strided_copies(part, LIMIT):
                yield copy._replace(at=at + copy.at)
        elif count:
            first, source, size, limit, plan = at, part.address, count, 0, part
    if size:
        yield _nodes.Copy((), DATA, first, source, size, plan)
