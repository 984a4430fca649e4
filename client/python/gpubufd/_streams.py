"""Streams: frames under one name, from one writer to many readers, in place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Optional, Tuple, TypeVar

from . import _core, _errors, _params, _repr, _values, cuda
from ._buffers import Exchange

if TYPE_CHECKING:
    import numpy

Self = TypeVar("Self", bound="_Stream")


def _work(stream: Any) -> int:
    return 0 if stream is None else int(cuda.handle_of(stream))


def _wait_ms(timeout: Optional[float]) -> int:
    return -1 if timeout is None else _params.ms(timeout)


class Frame(Exchange):
    """One frame, in its slot. `array` is a NumPy array on the host; on a GPU pass the frame to CuPy, numba or PyTorch.

    `number` grows by one from frame to frame of a writer. `missed`: how many frames were not read before this one.
    `time_ns`: when it was published, by CLOCK_MONOTONIC. A reader's frame does not change until done(), or the end of
    its `with`. A writer's frame is published by publish(), or the end of its `with` without an exception.

    A reader must not write to a frame: it is a fault. CuPy's arrays and PyTorch's tensors of it do not prevent it.
    """

    def __init__(self, stream: Any, told: Tuple[int, int, int, int, int]):
        self._stream = stream
        self._slot, self.bytes, self.number, self.time_ns, self.missed = told

    def __repr__(self) -> str:
        return f"<gpubufd.Frame {self.number} of {self._stream._name!r}, {self.bytes} bytes, {self.missed} missed>"

    def _repr_html_(self) -> str:
        return _repr.of_frame(self)

    @property
    def array(self) -> "numpy.ndarray[Any, Any]":
        return self._stream._slots()[self._slot, ...]  # of one number, too, an array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        return _values.as_asked(self.array, dtype, copy, True)

    @property
    def _dtype(self) -> str:
        return str(self._stream.dtype)

    def _view(self) -> Any:
        return self._stream._object._view()._at(self._slot)

    def _wait_ready(self, stream: int) -> None:
        self.wait(stream=stream)

    def _read(self, which: int, offset: int, address: int, count: int, stream: int) -> None:
        self._wait_ready(stream)
        self._stream._object._read(which, self._slot * self._view().nbytes + offset, address, count, stream)

    def wait(self, *, stream: Any = None) -> None:
        """Make work queued on a CUDA `stream` from now on wait until the frame is complete.

        Only frames that were read `ahead` need it. Taking the frame's memory does it too, for PyTorch's current
        stream, and for the legacy default stream of CuPy and numba.
        """
        if not self._stream._writes:
            self._stream._core.wait(self._slot, self.number, _work(stream))

    def publish(self, bytes: Optional[int] = None, *, stream: Any = None) -> None:
        """Show the frame's first `bytes` bytes (None: all) to readers.

        On a GPU it is complete after the work queued on `stream`.
        """
        self._stream._core.publish(self._slot, self.bytes if bytes is None else bytes, _work(stream))

    def done(self, *, stream: Any = None) -> None:
        """Give a reader's frame back; on a GPU after the work queued on `stream`."""
        self._stream._core.done(self._slot, self.number, _work(stream))

    def __enter__(self) -> "Frame":
        return self

    def __exit__(self, kind: Any, *details: Any) -> None:
        if not self._stream._writes:
            self.done()
        elif kind is None:
            self.publish()


class _Stream:
    _writes = False

    def __init__(self, client: Any, *arguments: Any):
        self._name = arguments[0]
        self._core = _core.Stream(client._client, *arguments)
        self._object = self._core.array()
        self._array: Any = None

    def _slots(self) -> Any:
        if self._array is None:
            self._array = self._object.to_numpy()
        return self._array

    @property
    def dtype(self) -> str:
        return str(self._object.dtype)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of a frame, in elements."""
        return tuple(self._object.shape[1:])

    def __repr__(self) -> str:
        if self._object.released:
            return f"<gpubufd.{type(self).__name__} of {self._name!r}, closed>"
        return f"<gpubufd.{type(self).__name__} of {self._name!r}: frames of {self.dtype} {self.shape}>"

    def _repr_html_(self) -> str:
        return _repr.of_stream(self)

    def close(self) -> None:
        """Leave the stream. Do not use arrays of its frames afterwards."""
        self._core.close()
        self._array = None
        self._object.release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()


class StreamWriter(_Stream):
    """The writer of a stream; made by Client.stream()."""

    _writes = True

    def next(self, timeout: Optional[float] = 0) -> Frame:
        """Return the next slot to write. `timeout`: how long to wait for readers with `waits` (None: no limit)."""
        return Frame(self, self._core.next(_wait_ms(timeout)))


class StreamReader(_Stream):
    """A reader of a stream, and an iterator over its frames; made by Client.read().

    Each frame is given back when the iteration takes the next one. The iteration ends when the stream's writer has
    ended.
    """

    def read(self, timeout: Optional[float] = None) -> Frame:
        """Return the next frame, waiting up to `timeout` seconds.

        Timeout: none came. Unavailable: the writer has ended. Busy: this reader holds `hold` frames already. Canceled:
        the writer ended before a frame that was read `ahead` was complete; discard what was made of it.
        """
        return Frame(self, self._core.read(_wait_ms(timeout)))

    def __iter__(self) -> Iterator[Frame]:
        while True:
            try:
                frame = self.read()
            except _errors.Unavailable:
                return
            with frame:
                yield frame

    async def __aiter__(self) -> AsyncIterator[Frame]:
        while True:
            try:
                frame = await asyncio.to_thread(self.read)
            except _errors.Unavailable:
                return
            with frame:
                yield frame
