"""The programs that come with the package, and a daemon of the user's own: connect(start=True)."""

from __future__ import annotations

import os
import pathlib
import stat
import warnings
from typing import TYPE_CHECKING, List, Optional, Sequence, Set, Tuple

from . import _core
from ._errors import ConnectFailed

if TYPE_CHECKING:
    import subprocess

IDLE_MS = 600_000
_children: List["subprocess.Popen[bytes]"] = []  # those that were started here, to be reaped


def _is_as_safe(directory: pathlib.Path, package: pathlib.Path) -> bool:
    """Whether only users who may write the package may write a directory beside it."""
    try:
        found, own = directory.lstat(), package.lstat()
    except OSError:
        return False
    alike = (found.st_uid, found.st_gid) == (own.st_uid, own.st_gid)
    return stat.S_ISDIR(found.st_mode) and alike and not found.st_mode & 0o022 & ~own.st_mode


def program(name: str) -> str:
    """The path of a program of this package, as pip or make left it, else as the PATH has it."""
    import shutil  # these take time, and few programs come here
    import sysconfig

    package = pathlib.Path(__file__).resolve().parent
    beside = (package.parent / "bin", package.parent.parent / "bin")  # of pip's --target, and of make
    places = [str(place) for place in beside if _is_as_safe(place, package)]
    places += [sysconfig.get_path("scripts")]
    places += [sysconfig.get_path("scripts", scheme) for scheme in ("posix_prefix", "posix_user")]
    found = shutil.which(name, path=os.pathsep.join(places)) or shutil.which(name)
    if not found:
        raise FileNotFoundError(f"there is no {name} beside this package, nor on the PATH: install the wheel, which has "
                                "it, or the daemon's own package")
    return found


def log_path() -> pathlib.Path:
    """Where daemons that connect() started write their log."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return pathlib.Path(state, "gpubufd", "log")


class Starter:
    """Starts a daemon for a client: called while nobody listens, again and again until somebody does.

    Of two that are started for one path the second ends: the first holds the lock.
    """

    def __init__(self, path: Optional[str], options: Sequence[str]) -> None:
        self._path, self._options = path, options
        self._child: Optional["subprocess.Popen[bytes]"] = None
        self._began = 0  # where the child's part of the log begins

    def __call__(self) -> None:
        if self._child is None:
            self._child = self._spawn()
        elif self._child.poll() is not None:
            status, self._child = self._child.returncode, None
            with log_path().open("rb") as log:
                log.seek(self._began)
                said = log.read(1 << 16).decode(errors="replace")
            if " is in use" not in said and " listening " not in said:  # else another has begun, or it has served
                raise ConnectFailed(f"a daemon was started and ended with status {status}: "
                                    f"{(said.strip().splitlines() or ['it said nothing'])[-1]}")

    def _spawn(self) -> "subprocess.Popen[bytes]":
        import subprocess

        _children[:] = [child for child in _children if child.poll() is None]
        log_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        socket = [] if self._path is None else ["--socket", os.path.abspath(self._path)]
        command = [program("gpubufd"), "--supervise", "--mode", "0600", "--idle-exit", str(IDLE_MS), *socket]
        with log_path().open("ab") as log:
            self._began = log.tell()
            child = subprocess.Popen([*command, *self._options], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, cwd="/")
        _children.append(child)
        return child

    def tell_missing(self) -> None:
        """Warns of options that a daemon lacks which was there before."""
        if self._child is not None or not self._options:
            return
        missing = _pairs(self._options) - _pairs(_words_of_listener(self._path))
        if missing:
            warnings.warn(
                f"the daemon that runs at {_core.socket_path(self._path)} was started without "
                f"{' '.join(word for pair in sorted(missing) for word in pair if word)}; `gpubufctl stop` ends it, "
                "with its objects", RuntimeWarning, stacklevel=4)


def _pairs(words: Sequence[str]) -> Set[Tuple[str, str]]:
    """The options among a program's words, each with its value or ""."""
    flat = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return {(word, "" if value.startswith("--") else value)
            for word, value in zip(flat, [*flat[1:], "--"]) if word.startswith("--")}


def _words_of_listener(path: Optional[str]) -> List[str]:
    """The command line of the process that listens there: the daemon or its supervisor; empty where /proc has none."""
    import socket
    import struct

    with socket.socket(socket.AF_UNIX) as one:
        one.connect(_core.socket_path(path))
        pid = struct.unpack("iII", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
