"""Values on GPUs as columns: arrays, and columns of cuDF and of other libraries with Arrow's device forms."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Tuple

from . import _core, _cudf, cuda
from ._cuda_array import CudaArray
from ._layout import COLUMN, CPU, DATA, GPUS, HOST, MASK, TABLE, at_column, called
from ._nodes import OFFSET_WIDTHS, Node, Piece, pieces_of, whole


def is_on_gpu(value: Any) -> bool:
    if isinstance(value, _core.Object):
        return value._ordinal >= 0
    try:
        return value.__cuda_array_interface__ is not None
    except Exception:  # no such attribute; or it raises, as for strings of cuDF
        return False


def node_of(array: CudaArray, where: str) -> Node:
    """The array as a column."""
    if len(array.shape) != 1:
        raise ValueError(f"{at_column(where)}a column has one axis, not {len(array.shape)}")
    if array.strides is not None:
        raise ValueError(f"{at_column(where)}it is not contiguous: copy it first")
    rows, mask, device = array.shape[0], 0, 0
    if array.mask is not None:
        mask = bitmap_of(array.mask, rows, where)
    if array.pointer:
        found = cuda.pointer_device(array.pointer)
        device = HOST if found is None else found
    return Node(array.dtype, rows, null_count=-1 if mask else 0, device=device, data=array.pointer,
                mask=mask, keep=array)


def bitmap_of(mask: Any, rows: int, where: str) -> int:
    """The address of a `mask` as cuDF gives it: typestr "<t1", one bit for each element, 1 = valid.

    Its shape is the number of elements, or of the bytes that were allocated for them. ValueError for a
    mask of any other kind: nothing says whether its True is valid or null.
    """
    interface = mask.__cuda_array_interface__
    shape = tuple(interface["shape"])
    if interface["typestr"][1:2] != "t" or len(shape) != 1 or shape[0] < (rows + 7) // 8:
        raise ValueError(
            f"{at_column(where)}the mask of its __cuda_array_interface__ is not a bitmap of its elements, "
            "and nothing says whether its True is valid or null: put the values, and write the "
            "validity with create()"
        )
    return int(interface["data"][0] or 0)


@dataclasses.dataclass(eq=False)
class Found:
    """A column or table of the caller's: its pieces, and the streams and events to wait for."""

    pieces: List[Piece]
    keep: Any = None
    streams: List[int] = dataclasses.field(default_factory=list)  # CUDA streams whose queued work makes the value
    events: List[Tuple[int, int]] = dataclasses.field(default_factory=list)  # (address of a CUevent, device)

    @property
    def device(self) -> int:
        """The ordinal of the GPU that the column is on; HOST: all of it is on the host."""
        return max((piece.node.device for piece in self.pieces), default=HOST)


def of_capsules(source: Tuple[Any, ...], keep: Any = None) -> Found:
    """The content of a schema capsule and array capsules, of the host or of a GPU."""
    found = Found(pieces_of(source, isinstance(keep, _core.Object)), keep=(source, keep))
    for capsule in source[1]:
        kind, ordinal, event = _core.array_device(capsule)
        if kind in GPUS and event:
            found.events.append((event, ordinal))
    return found


def arrow_source(value: Any) -> Optional[Tuple[Any, ...]]:
    """(schema capsule, [array capsules]) of a value with one of Arrow's interfaces; None: it has none.

    The device forms come first: they alone say where the memory is.
    """
    for name in ("__arrow_c_device_stream__", "__arrow_c_device_array__"):
        if not hasattr(value, name):
            continue
        try:
            given = getattr(value, name)()
        except NotImplementedError:
            continue
        if name == "__arrow_c_device_stream__":
            return _core.read_stream(given)
        return given[0], [given[1]]
    if hasattr(value, "__arrow_c_stream__"):
        return _core.read_stream(value.__arrow_c_stream__())
    if hasattr(value, "__arrow_c_array__"):
        schema, array = value.__arrow_c_array__()
        return schema, [array]
    return None


def is_gpu_source(source: Tuple[Any, ...]) -> bool:
    """Whether Arrow's capsules hold memory of a GPU."""
    return any(_core.array_device(capsule)[0] != CPU for capsule in source[1])


def _note_bounds(node: Node, column: Any) -> None:
    """Of another user's column: notes how many characters there are, since Arrow's device arrays do not say it, and
    forgets the number of nulls, since another user said it."""
    if node.dtype in OFFSET_WIDTHS and not node.children:
        node.characters = getattr(column._buffer(DATA), "nbytes", 0)
    node.null_count = -1 if node.mask or node.dtype == "dictionary" else 0
    for i, child in enumerate(node.children):
        _note_bounds(child, column._child(i))


def check_own(value: Any) -> None:
    """TypeError: another user's object on a GPU has offsets or codes, which are not to become this user's unseen."""
    columns = [value]
    while value._foreign and columns:
        column = columns.pop()
        if column.kind == COLUMN and (column._dtype in OFFSET_WIDTHS or column._dtype == "dictionary"):
            raise TypeError(f"{called(value)} is another user's, on a GPU: put its to_host(), which is checked")
        columns += [column._child(i) for i in range(column._child_count)]


def of_held(value: Any) -> Found:
    """The pieces of an object that this package has opened."""
    if value.kind in (COLUMN, TABLE):
        schema, array = value.__arrow_c_device_array__()
        found = of_capsules((schema, [array]), value)
        if value._foreign:
            _note_bounds(found.pieces[0].node, value)
        return found
    if value.ndim != 1:
        raise ValueError(f"{value.name!r} has {value.ndim} axes, a column has one")
    value._wait_ready(0)
    view, mask, at = value._view(), value._buffer(MASK), value._offset
    if not view.contiguous:
        raise ValueError(f"{value.name!r} is not contiguous: copy it first")
    # The View begins at its first element, a Node's data `offset` before.
    node = Node(value._dtype, value._length, offset=at, null_count=value._null_count, device=value._ordinal,
                data=view.pointer - at * view.itemsize, mask=0 if mask is None else mask.pointer, keep=value)
    return Found([whole(node)])


def opened(held: Any, advice: str) -> Node:
    """The Node of an object on a GPU that this package has opened, once the legacy default stream waits for its producer.
    TypeError: it is on the host."""
    if held._ordinal < 0:
        raise TypeError(f"{called(held)} is on the host: {advice}")
    held._wait_ready(cuda.LEGACY_STREAM)
    return of_held(held).pieces[0].node


def column_on_gpu(value: Any, where: str) -> Optional[Found]:
    """The pieces of a column on a GPU, of any library; None: the value is not on a GPU."""
    if isinstance(value, _core.Object):
        if value._ordinal < 0:
            return None
        check_own(value)
        return of_held(value)
    if type(value).__module__.partition(".")[0] == "pandas":  # which is slow to say what it has not
        return None
    if hasattr(value, "to_pylibcudf") or type(value).__module__ == "pylibcudf.column":
        return Found([whole(_cudf.node_of(value, where))], value, streams=[cuda.LEGACY_STREAM])
    if is_on_gpu(value):
        array = CudaArray(value, where)
        return Found([whole(node_of(array, where))], streams=[] if array.stream is None else [array.stream])
    if hasattr(value, "__arrow_c_device_array__") or hasattr(value, "__arrow_c_device_stream__"):
        source = arrow_source(value)
        return of_capsules(source, value) if source and is_gpu_source(source) else None
    return None
