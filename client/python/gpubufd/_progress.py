"""The bar that a call shows which copies for more than a second: tqdm's, on a terminal or in a notebook.

GPUBUFD_PROGRESS=0 in the environment turns it off. Without tqdm there is none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable, Optional

from . import _core

AFTER = 1.0  # seconds
PIECE = 8 << 20  # bytes that are copied at a time: between two pieces Ctrl-C ends a call, and its bar moves


class _Thread(threading.local):
    what: Optional[str] = None  # the call that the thread is in
    size: Optional[Callable[[], Optional[int]]] = None
    begun = 0.0
    copied = 0
    bar: Any = None


_here = _Thread()


def _is_shown() -> bool:
    if os.environ.get("GPUBUFD_PROGRESS") == "0":
        return False
    return "ipykernel" in sys.modules or sys.stderr is not None and sys.stderr.isatty()


def _bar(what: str, size: Optional[int]) -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import]
    except ImportError:
        return None
    return tqdm(desc=what, total=size, unit="B", unit_scale=True, unit_divisor=1024, leave=False)


def copied(count: int) -> None:
    """Notes that the thread's call has copied `count` bytes more."""
    here = _here
    if here.what is None:
        return
    here.copied += count
    if here.bar is not None:
        here.bar.update(count)
    elif here.begun and time.monotonic() > here.begun + AFTER:
        here.begun = 0.0
        here.bar = _bar(here.what, here.size and here.size()) if _is_shown() else None
        if here.bar is not None:
            here.bar.update(here.copied)


class of:  # noqa: N801: a `with` reads well
    """A call, and how many bytes it copies; one within another shows nothing of its own."""

    __slots__ = ("_what", "_size", "_within")

    def __init__(self, what: str, size: Optional[Callable[[], Optional[int]]] = None) -> None:
        self._what, self._size = what, size

    def __enter__(self) -> None:
        here = _here
        self._within = here.what is not None
        if not self._within:
            here.what, here.size, here.begun, here.copied = self._what, self._size, time.monotonic(), 0

    def __exit__(self, *exception: Any) -> None:
        here = _here
        if self._within:
            return
        bar, here.what, here.bar, here.size = here.bar, None, None, None
        if bar is not None:
            bar.close()


_core.on_copied(copied)
