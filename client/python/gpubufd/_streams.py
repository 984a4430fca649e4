"""Streams: frames under one name, from one writer to many readers, in place."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Dict, Iterator, Optional, Tuple

from . import _core, _errors, _params, cuda
from ._buffers import cuda_interface


def _work(stream: Any) -> int:
    return 0 if stream is None else int(cuda.handle_of(stream))


def _wait_ms(timeout: Optional[float]) -> int:
    return -1 if timeout is None else _params.ms(timeout)


class Frame:
    """One frame, in its slot. `array` is NumPy's on the host; on a GPU give the frame itself to CuPy or numba.

    PyTorch takes a writer's frame, and refuses a reader's, which is read-only: give it cupy.asarray(frame).

    `number` grows, and numbers of one writer follow one another; `missed` frames were not read before it; `time_ns` is
    when it was published, by CLOCK_MONOTONIC. A frame of a reader does not change until it is given back, by done() or
    the end of its `with`; one of a writer is published by publish() or the end of its `with`, if that raises nothing.
    """

    def __init__(self, stream: Any, told: Tuple[int, int, int, int, int]):
        self._stream = stream
        self._slot, self.bytes, self.number, self.time_ns, self.missed = told

    @property
    def array(self) -> Any:
        return self._stream._slots()[self._slot]

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        array = self.array
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        interface = dict(cuda_interface(self._stream._object._view()))
        shape = interface["shape"]
        pointer, readonly = interface["data"]
        step = self._stream._object.nbytes // shape[0]
        return {**interface, "shape": shape[1:], "data": (pointer + self._slot * step, readonly), "strides": None}

    def publish(self, bytes: Optional[int] = None, *, stream: Any = None) -> None:
        """Shows the frame to readers, `bytes` of it; waits for work on `stream`, on a GPU."""
        self._stream._core.publish(self._slot, self.bytes if bytes is None else bytes, _work(stream))

    def done(self, *, stream: Any = None) -> None:
        """Gives the frame back, after work on `stream`, on a GPU."""
        self._stream._core.done(self._slot, _work(stream))

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
        """Of a frame."""
        return tuple(self._object.shape[1:])

    def close(self) -> None:
        """Ends it; arrays of its frames are not to be used any more."""
        self._core.close()
        self._array = None
        self._object.release()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()


class StreamWriter(_Stream):
    """The writer of a stream; made by Client.stream()."""

    _writes = True

    def next(self, timeout: Optional[float] = 0) -> Frame:
        """A slot to write. With a `timeout` (None: for ever) it first waits for readers that want to be waited for."""
        return Frame(self, self._core.next(_wait_ms(timeout)))


class StreamReader(_Stream):
    """A reader of a stream, and an iterator over its frames; made by Client.read().

    Each frame is given back when the iteration goes on. The iteration ends when the stream's writer has ended.
    """

    def read(self, timeout: Optional[float] = None) -> Frame:
        """The next frame. Timeout: none came; Unavailable: the writer has ended; Busy: all are held that may be."""
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
