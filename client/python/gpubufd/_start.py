"""The programs that come with the package, and a daemon of the user's own: connect(start=True)."""

from __future__ import annotations

import os
import pathlib
import stat
import time
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence, Tuple, TypeVar, Union

from ._errors import Closed, ConnectFailed, Timeout

if TYPE_CHECKING:
    import subprocess

IDLE_MS = 600_000
_Client = TypeVar("_Client")
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
    schemes = ({}, {"scheme": "posix_prefix"}, {"scheme": "posix_user"})
    places += [sysconfig.get_path("scripts", **scheme) for scheme in schemes]
    found = shutil.which(name, path=os.pathsep.join(places)) or shutil.which(name)
    if not found:
        raise FileNotFoundError(f"there is no {name} beside this package, nor on the PATH: install the wheel, which has "
                                "it, or the daemon's own package")
    return found


def log_path() -> pathlib.Path:
    """Where daemons that connect() started write their log."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return pathlib.Path(state, "gpubufd", "log")


def _spawn(path: Optional[str], options: Sequence[str]) -> Tuple["subprocess.Popen[bytes]", int]:
    """(a daemon that begins, where its part of the log begins)"""
    import subprocess

    log_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket = [] if path is None else ["--socket", os.path.abspath(path)]
    command = [program("gpubufd"), "--mode", "0600", "--idle-exit", str(IDLE_MS), *socket, *options]
    with log_path().open("ab") as log:
        began = log.tell()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                 cwd="/")
    _children.append(child)
    return child, began


def connect(
    once: Callable[[float], _Client], path: Optional[str], start: Union[bool, Sequence[str]], timeout: Optional[float],
) -> _Client:
    """Connects by the given function, and starts a daemon if none answers. Of two that are started
    for one path the second ends: the first holds the lock."""
    _children[:] = [child for child in _children if child.poll() is None]
    tries_until = None if timeout is None else time.monotonic() + timeout
    child = None
    while True:
        try:
            return once(0.2)
        except (Closed, ConnectFailed, Timeout):  # Closed: it is just ending
            if tries_until is not None and time.monotonic() > tries_until:
                raise
        if child is None:
            child, began = _spawn(path, [] if isinstance(start, bool) else start)
        elif child.poll() is not None:
            with log_path().open("rb") as log:
                log.seek(began)
                said = log.read().decode(errors="replace")
            if " is in use" in said:
                child = None  # another one begins, or ends
            else:
                raise ConnectFailed(f"a daemon was started and ended with status {child.returncode}: "
                                    f"{(said.strip().splitlines() or ['it said nothing'])[-1]}")
        time.sleep(0.05)
