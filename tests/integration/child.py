"""Sessions in other processes: to be killed, or to speak as other users."""

import json
import os
import select
import signal
import time
import traceback

from peer import DEADLINE, Peer


class Child:
    """A forked process that runs `work(peer)` in a session of its own and then stays, holding it.

    `result` is what `work` returned (anything that JSON knows). kill() is SIGKILL and waitpid, so
    that the kernel has closed its socket when it returns.
    """

    def __init__(self, path, work, uid=None, gid=None, groups=()):
        read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _run(path, work, write_end, uid, gid, groups)
            finally:
                os._exit(1)
        os.close(write_end)
        try:
            answer = json.loads(_read_line(read_end))
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(read_end)
        if "error" in answer:
            self.kill()
            raise AssertionError("in the child:\n" + answer["error"])
        self.result = answer["result"]

    def kill(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _read_line(fd):
    data = b""
    end = time.monotonic() + DEADLINE
    while not data.endswith(b"\n"):
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError("the child does not answer")
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            raise AssertionError("the child died")
        data += chunk
    return data


def _run(path, work, write_end, uid, gid, groups):
    """The child's life. Never returns."""
    # Inherited sockets would keep the parent's sessions alive.
    os.dup2(write_end, 3)
    os.closerange(4, 4096)
    try:
        if gid is not None:
            os.setgroups(list(groups))
            os.setresgid(gid, gid, gid)
        if uid is not None:
            os.setresuid(uid, uid, uid)
        peer = Peer(path)  # held by this frame for the rest of the child's life
        answer = {"result": work(peer)}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(3, data) :]
    while True:
        signal.pause()
