"""The daemon with whoever keeps its descriptors: its own supervisor, or this process, which is then a
service manager as systemd is one."""

import ctypes
import fcntl
import mmap
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from manager import Manager  # noqa: E402

DEADLINE = 60


def failpoints():
    """Their names, in the order of the words."""
    text = (ROOT / "daemon/base/failpoint.h").read_text()
    return re.findall(r"^    X\((\w+),", text, re.MULTILINE)


class Failpoints:
    """The file that is shared with a daemon that was built with GB_FAILPOINTS."""

    ARMED, COUNTDOWN, FIRED, END_GRACE, HITS, WORDS = 0, 1, 2, 3, 8, 128

    def __init__(self, path):
        self.path = path
        self.names = failpoints()
        with open(path, "wb") as file:
            file.write(bytes(8 * self.WORDS))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 8 * self.WORDS)

    def get(self, word):
        return struct.unpack_from("<Q", self.memory, 8 * word)[0]

    def set(self, word, value):
        struct.pack_into("<Q", self.memory, 8 * word, value)

    def arm(self, name, count):
        self.set(self.COUNTDOWN, count)
        self.set(self.ARMED, 1 + self.names.index(name))

    def disarm(self):
        self.set(self.ARMED, 0)

    def fired(self):
        return self.get(self.FIRED)

    def hits(self):
        return {name: self.get(self.HITS + i) for i, name in enumerate(self.names)}


def end_with_parent():
    """(in a child) Nothing that was started outlives the harness."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def descriptors(pid):
    """[(what it is, device and inode)…] of a process' descriptors."""
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            path = f"/proc/{pid}/fd/{entry}"
            status = os.stat(path)
            found.append((f"{entry} {os.readlink(path)}", (status.st_dev, status.st_ino)))
        except FileNotFoundError:
            continue
    return found


class Ended(Exception):
    """The daemon, or its supervisor, ended by itself."""


class Keeper:
    """Starts the daemon again whenever it has ended; pump() has to be called often."""

    def __init__(self, argv, directory, environment):
        self.argv = [str(word) for word in argv]
        self.log = os.path.join(directory, "log")
        self.environment = environment
        self.starts = 0

    def spawn(self, before_exec=lambda: None, argv=None, environment=None):
        pid = os.fork()
        if pid:
            return pid
        try:
            end_with_parent()
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.dup2(log, 2)
            before_exec()
            argv = argv or self.argv
            os.execve(argv[0], argv, {**self.environment, **(environment or {}),
                                      **getattr(self, "handed", {})})
        finally:
            os._exit(127)

    def last_words(self, count=60):
        with open(self.log, errors="replace") as file:
            return "".join(file.readlines()[-count:])


class Supervised(Keeper):
    """`gpubufd --supervise`."""

    def __init__(self, argv, directory, environment):
        super().__init__([argv[0], "--supervise", *argv[1:]], directory, environment)
        self.supervisor = self.spawn()

    def pump(self, timeout=0.0):
        if timeout:
            time.sleep(timeout)
        pid, status = os.waitpid(self.supervisor, os.WNOHANG)
        if pid:
            raise Ended(f"the supervisor ended with {status}: {self.last_words()}")

    def daemon(self):
        """Its process, or 0 while there is none."""
        return (children_of(self.supervisor) or [0])[0]

    def kept(self):
        """How many descriptors are kept; what else the supervisor has does not change."""
        return len(descriptors(self.supervisor))

    def hand_over(self):
        os.kill(self.supervisor, signal.SIGHUP)

    def leave(self):
        pass

    def stop(self):
        os.kill(self.supervisor, signal.SIGTERM)
        return wait_for_end(self.supervisor)

    def kill(self):
        daemon = self.daemon()
        for pid in (self.supervisor, daemon):
            try:
                if pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(self.supervisor, 0)
        except ChildProcessError:
            pass


class Managed(Keeper):
    """A manager of our own, which has the daemon's messages as they come, and those that are still in
    the socket when it has died."""

    def __init__(self, argv, directory, environment):
        super().__init__(argv, directory, environment)
        self.stored = []  # (name, descriptor), in the order in which they came
        self.manager = Manager(os.path.join(directory, "notify"))
        self.manager.socket.setblocking(False)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.listener.bind(self.argv[self.argv.index("--socket") + 1])
        os.chmod(self.listener.getsockname(), 0o666)
        self.listener.listen(128)
        self.stopping = False
        self.start()

    def start(self):
        named = [("gpubufd.socket", self.listener.fileno()), *self.stored]
        self.handed = {"NOTIFY_SOCKET": self.manager.path, "LISTEN_FDS": str(len(named)),
                       "LISTEN_FDNAMES": ":".join(name for name, _ in named)}

        def place():
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 1000) for _, fd in named]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)
            self.handed["LISTEN_PID"] = str(os.getpid())

        self.pid = self.spawn(place)
        self.starts += 1

    def take(self, text, fds):
        said = dict(line.split("=", 1) for line in text.split("\n"))
        if said.get("FDSTORE") == "1":
            assert len(fds) == 1 and said["FDPOLL"] == "0", (said, fds)
            self.stored.append((said["FDNAME"], fds[0]))
        elif said.get("FDSTOREREMOVE") == "1":
            for entry in [e for e in self.stored if e[0] == said["FDNAME"]]:
                self.stored.remove(entry)
                os.close(entry[1])

    def messages(self):
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.manager.socket, 65536, 16)
            except BlockingIOError:
                return
            for fd in fds:
                os.set_inheritable(fd, False)  # recv_fds() has no ear for MSG_CMSG_CLOEXEC
            self.take(data.decode(), fds)

    def pump(self, timeout=0.0):
        select.select([self.manager.socket], [], [], timeout)
        self.messages()
        pid, status = os.waitpid(self.pid, os.WNOHANG) if self.pid else (0, 0)
        if not pid:
            return
        self.messages()  # what it still said
        self.pid = 0
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL or (
                os.WIFEXITED(status) and os.WEXITSTATUS(status) != 75):
            raise Ended(f"the daemon ended with {status}: {self.last_words()}")
        self.start()

    def daemon(self):
        return self.pid

    def kept(self):
        return len(self.stored)

    def hand_over(self):
        if self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def leave(self):
        """(in a child)"""
        self.close()

    def stop(self):
        os.kill(self.pid, signal.SIGINT)  # for good
        status = wait_for_end(self.pid, self.messages)
        self.close()
        return status

    def close(self):
        for _, fd in self.stored:
            os.close(fd)
        self.stored = []
        self.listener.close()
        self.manager.close()

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                pass
        self.close()


def wait_for_end(pid, meanwhile=lambda: None):
    end = time.monotonic() + DEADLINE
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > end:
            raise Ended("it does not stop")
        meanwhile()
        time.sleep(0.002)
