"""Descriptors whose close blocks, to be sent to the daemon."""

import array
import contextlib
import ctypes
import os
import socket
import struct
import threading

LINGER_S = 30


class Lingering:
    """A TCP socket with unread data: its last close takes as long as it lingers."""

    def __init__(self):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.socket = socket.create_connection(listener.getsockname())
            self.peer = listener.accept()[0]
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.send(b"x" * 65536)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))

    def fileno(self):
        return self.socket.fileno()

    def drop(self):
        """Closes the descriptor here; the last close of it, by any process, blocks."""
        self.socket.close()

    def end(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        self.drop()


class Nested:
    """A unix socket in whose queue a lingering one lies."""

    def __init__(self):
        inner = Lingering()
        self.kept = [inner.peer]
        self.other, self.socket = socket.socketpair()
        socket.send_fds(self.other, [b"x"], [inner.fileno()])
        inner.drop()

    def fileno(self):
        return self.socket.fileno()

    def drop(self):
        self.socket.close()


FLUSH, FORGET, INTERRUPT, BATCH_FORGET = 25, 2, 36, 42


class FileSystem:
    """One in user space, by the kernel's own interface: each close of a file of it, by anybody but us, lasts
    until `let_go`. Needs root."""

    def __init__(self, directory):
        self.directory = os.path.join(directory, "fuse")
        os.mkdir(self.directory)
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self.libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self.libc.mount(b"test", self.directory.encode(), b"fuse", 0, options) < 0:
            error = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(error, os.strerror(error))
        self.lock = threading.Condition()
        self.held, self.asked = [], []
        self.free = False
        threading.Thread(target=self.serve, daemon=True).start()

    def answer(self, unique, error=0, data=b""):
        with contextlib.suppress(OSError):  # whoever asked may be dead
            os.write(self.fd, struct.pack("=IiQ", 16 + len(data), -error, unique) + data)

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 17)
            except OSError:
                return
            _, what, unique, node, _, _, pid = struct.unpack_from("=IIQQIII", request)
            with self.lock:
                self.asked.append(what)
                if what == FLUSH and pid != os.getpid() and not self.free:
                    self.held.append(unique)
                    self.lock.notify_all()
                    continue
            self.serve_one(what, unique, node)

    def serve_one(self, what, unique, node):
        attributes = struct.pack("=QQQQQQIIIIIIIIII", node if node > 1 else 1, 4096, 8, 0, 0, 0, 0, 0, 0,
                                 0o40777 if node == 1 else 0o100666, 1, 0, 0, 0, 4096, 0)
        if what == 26:  # INIT
            self.answer(unique, 0, struct.pack("=IIIIHHIIHHIIII", 7, 31, 65536, 0, 12, 9, 65536, 1, 32, 0,
                                               0, 0, 0, 0) + b"\0" * 16)
        elif what == 1:  # LOOKUP
            self.answer(unique, 0, struct.pack("=QQQQII", 2, 1, 100, 100, 0, 0)
                        + struct.pack("=Q", 2) + attributes[8:60] + struct.pack("=I", 0o100666)
                        + attributes[64:])
        elif what == 3:  # GETATTR
            self.answer(unique, 0, struct.pack("=QII", 100, 0, 0) + attributes)
        elif what in (14, 27):  # OPEN, OPENDIR
            self.answer(unique, 0, struct.pack("=QII", 1, 0, 0))
        elif what in (18, 25, 29):  # RELEASE, FLUSH, RELEASEDIR
            self.answer(unique)
        elif what not in (FORGET, INTERRUPT, BATCH_FORGET):
            self.answer(unique, 38)  # ENOSYS

    def wait_for_held(self, count, timeout):
        """Until `count` closes have got stuck."""
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.held) >= count, timeout), self.asked

    def let_go(self):
        with self.lock:
            self.free = True
            held, self.held = self.held, []
        for unique in held:
            self.answer(unique)

    def end(self):
        self.let_go()
        self.libc.umount2(self.directory.encode(), 2)  # MNT_DETACH


class OfFileSystem:
    """A file of a FileSystem."""

    def __init__(self, file_system):
        self.fd = os.open(os.path.join(file_system.directory, "file"), os.O_RDWR | os.O_CLOEXEC)

    def fileno(self):
        return self.fd

    def drop(self):
        os.close(self.fd)


def send(target, data, fds, flags=0):
    """Sends by one sendmsg."""
    return target.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))], flags)
