"""Processes of other users for whose sessions a test speaks: each connects, and hands its connection over.

To the daemon the session is the process' own: its uid, its pid, and with them the rights and when a writer is over. So one
test plays many clients in one thread, and kills or stops whom it likes. When the process is killed, close its sessions,
too: their descriptors are the test's.
"""

import os
import signal
import socket

from peer import DEADLINE


class Actor:
    def __init__(self, path, uid=None, gid=None):
        self.path, self.uid, self.gid = path, uid, gid
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(theirs.fileno(), path, uid, gid)
        theirs.close()
        ours.settimeout(DEADLINE)
        self.control = ours

    @property
    def alive(self):
        return self.pid != 0

    def connect(self):
        """A connected socket of this process, which has no descriptor of it any more."""
        self.control.send(b"c")
        word, fds, _, _ = socket.recv_fds(self.control, 8, 1)
        if not fds:
            number = int(word or b"0")
            raise OSError(number, os.strerror(number))
        os.set_inheritable(fds[0], False)
        return socket.socket(fileno=fds[0])

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """Returns when the process is over."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            self.control.close()


def _serve(control, path, uid, gid):
    """The process' life. Never returns."""
    try:
        os.dup2(control, 3)
        os.closerange(4, 1 << 20)
        if gid is not None:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
        if uid is not None:
            os.setresuid(uid, uid, uid)
        mine = socket.socket(fileno=3)
        while mine.recv(1):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
                try:
                    one.connect(path)
                    socket.send_fds(mine, [b"0"], [one.fileno()])
                except OSError as error:
                    mine.send(str(error.errno).encode())
    finally:
        os._exit(0)
