"""The bar that a call shows which copies for more than a second: tqdm's, on a terminal or in a notebook.

GPUBUFD_PROGRESS=0 in the environment turns it off. Without tqdm there is none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Optional

from . import _core

AFTER = 1.0  # seconds
PIECE = 8 << 20  # bytes that are copied at a time: between two pieces Ctrl-C ends a call, and its bar moves


class _Thread(threading.local):
    call: Optional["of"] = None  # that the thread is in


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
    call = _here.call
    if call is None:
        return
    call.copied += count
    if call.bar is not None:
        call.bar.update(count)
    elif call.begun and time.monotonic() > call.begun + AFTER:
        call.begun = 0.0
        call.bar = _bar(call.what, call.size) if _is_shown() else None
        if call.bar is not None:
            call.bar.update(call.copied)


class of:  # noqa: N801: a `with` reads well
    """A call, and how many bytes it copies; one within another shows nothing of its own."""

    __slots__ = ("what", "size", "begun", "copied", "bar")

    def __init__(self, what: str, size: Optional[int] = None) -> None:
        self.what, self.size, self.copied = what, size, 0
        self.bar: Any = None

    def __enter__(self) -> None:
        self.begun = time.monotonic()
        if _here.call is None:
            _here.call = self

    def __exit__(self, *exception: Any) -> None:
        if _here.call is not self:
            return
        _here.call = None
        if self.bar is not None:
            self.bar.close()


_core.on_copied(copied)
