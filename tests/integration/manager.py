"""A service manager as the daemon sees one: a socket that is notified, descriptors that are handed over.

Run as a program it is what an execution by such a manager looks like: `manager.py NAME=FD… -- PROGRAM
ARGUMENT…` gives those descriptors the numbers from 3 on, and says so in the environment.
"""

import array
import fcntl
import os
import select
import socket
import sys
import time

from peer import DEADLINE


class Manager:
    """Listens at `path`; `messages` are those received, each a dict."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.bind(path)
        os.chmod(path, 0o666)

    def environment(self, watchdog_ms=None):
        env = {"NOTIFY_SOCKET": self.path}
        if watchdog_ms is not None:
            env["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        return env

    def receive(self, timeout=DEADLINE):
        """(the next message, its descriptors); None if there is none in that time."""
        if not select.select([self.socket], [], [], timeout)[0]:
            return None
        data, ancillary, flags, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(253 * 4))
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        fds = array.array("i")
        for _, _, payload in ancillary:
            fds.frombytes(payload)
        return dict(line.split("=", 1) for line in data.decode().split("\n")), list(fds)

    def wait_for(self, key, timeout=DEADLINE):
        """The value of the next message that has the key; others before it are dropped."""
        end = time.monotonic() + timeout
        while True:
            got = self.receive(max(0, end - time.monotonic()))
            assert got, f"no {key} in {timeout} s"
            for fd in got[1]:
                os.close(fd)
            if key in got[0]:
                return got[0][key]

    def drain(self):
        """Takes what there is, and keeps no descriptor of it."""
        while got := self.receive(0):
            for fd in got[1]:
                os.close(fd)

    def close(self):
        self.socket.close()


def handed_over(fds, argv):
    """The command that runs `argv` with descriptors [(name, fd)…]; pass them with pass_fds."""
    named = [f"{name}={fd}" for name, fd in fds]
    return [sys.executable, os.path.abspath(__file__), *named, "--", *argv]


def main(words):
    split = words.index("--")
    named = [word.rsplit("=", 1) for word in words[:split]]
    high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 1000) for _, fd in named]
    for _, fd in named:
        os.close(int(fd))
    for i, fd in enumerate(high):
        os.dup2(fd, 3 + i)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(named))
    os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in named)
    os.execv(words[split + 1], words[split + 1:])


if __name__ == "__main__":
    main(sys.argv[1:])
