"""Exceptions: one class for each kind of error, all under Error, and under Python's own where it fits."""

from __future__ import annotations

import re
from typing import Dict, Type

from . import _core

# The protocol's names of parameters that have others here.
PARAMETERS = {"slice": "rows", "ttl_ms": "ttl", "wait_ms": "timeout", "prefix": "names"}
PHRASES = {
    "set replace to take its name": "pass replace=True to take its name",
    "; hello says what it can": "",
    "start one (gpubufd --supervise, or systemctl start gpubufd), or set GPUBUFD_SOCKET to where one listens":
        "gpubufd.connect(start=True) starts one of your own, or `python -m gpubufd serve` in another terminal",
    "create it with own": "put() it with own=True",
    "publish a copy with gpubuf_put_bytes or gpubuf_put_array": "put() publishes a copy",
    "; --tier makes one": "; the daemon makes one with its option --tier",
    "(evict=drop, --evict drop)": '(evict="drop", or --evict drop of the daemon)',
}


class Error(Exception):
    """The daemon or the library refused a request.

    `str(error)` is a whole sentence, often the daemon's. `kind` is its short name ("not_found"), for programs; `code`
    its number in the protocol.
    """

    kind: str = "error"
    code: int = 0
    _said: str = ""  # the sentence as it came

    def __str__(self) -> str:  # KeyError would show the sentence in quotes
        return str(self.args[0]) if self.args else ""


class NotFound(Error, KeyError):
    """No such object, or none that this user may read."""


class Exists(Error, FileExistsError):
    """The name is taken; pass replace=True."""


class NoSpace(Error, MemoryError):
    """Not enough memory on the device, even after evicting all objects that may be evicted."""


class Denied(Error, PermissionError):
    """The object is another user's, and its mode does not allow the request."""


class Busy(Error, RuntimeError):
    """The object is in use in a way that forbids the request."""


class Timeout(Error, TimeoutError):
    """The time allowed has passed."""


class Stale(Error, LookupError):
    """The version, lease or watch has ended."""


class Limit(Error, RuntimeError):
    """A limit of the daemon is reached; the message names it."""


class DeviceError(Error, RuntimeError):
    """The GPU or its driver failed; the message has the CUDA error's name."""


class Unsupported(Error, NotImplementedError):
    """Not supported by this build, device or type."""


class Unavailable(Error, RuntimeError):
    """The name's provider cannot make the object now; it may later."""


class Invalid(Error, ValueError):
    """An argument is wrong; the message names it."""


class ConnectFailed(Error, ConnectionError):
    """No daemon answers at that path."""


class Closed(Error, ConnectionError):
    """The connection is closed, or the object has been released."""


class ProtocolError(Error, ConnectionError):
    """The daemon and the library do not understand each other."""


class Forked(Error, RuntimeError):
    """The connection belongs to the parent process: connect anew in the child."""


class Canceled(Error):
    """The request was canceled."""


class SafetensorError(ValueError):
    """The file is not a safetensors file, or has no such tensor (then it is a KeyError, too)."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NoTensor(SafetensorError, KeyError):
    """The file has no such tensor."""


CLASSES: Dict[str, Type[Error]] = {
    "device": DeviceError, "connect": ConnectFailed,
    **dict.fromkeys(("protocol", "parse", "request", "method"), ProtocolError),
    **{re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower(): cls for cls in (
        NotFound, Exists, NoSpace, Denied, Busy, Timeout, Stale, Limit, Unsupported, Unavailable, Invalid, Closed,
        Forked, Canceled)},
}


def failure(kind: str, message: str) -> Error:
    """An error of the package's own, for the caller to raise."""
    return make(getattr(_core, f"E_{kind.upper()}"), kind, message)


def translated(sentence: str) -> str:
    """A sentence of the daemon's or the library's, in the words of this package's arguments, times in seconds."""
    found = re.sub(r"^(params|options)\.", "", sentence)
    found = re.sub(r"^layout\.columns\[(\d+)\]\.name: ", lambda match: f"the name of column {int(match[1]) + 1}: ", found)
    found = re.sub(r"^\w+(?=[:\[])", lambda match: PARAMETERS.get(match[0], match[0]), found)
    found = re.sub(r"\b(\d+) ms\b", lambda match: f"{int(match[1]) / 1000:.4g} s", found)
    for theirs, ours in PHRASES.items():
        found = found.replace(theirs, ours)
    unknown = re.search(r'unknown dtype "(\w+)"$', found)
    if unknown:
        import difflib

        likely = difflib.get_close_matches(unknown[1], [row[0] for row in _core.dtypes()], 1)
        found += f"; did you mean {likely[0]}?" if likely else ""
    return found


def make(code: int, kind: str, message: str) -> Error:
    error = CLASSES.get(kind, Error)(translated(message))
    error._said = message
    error.kind = kind
    error.code = code
    return error
