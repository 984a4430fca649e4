"""TCP proxies before servers: a test may look at, hold, spoil and cut what goes through."""

import collections
import contextlib
import socket
import threading

from peer import DEADLINE


class Relay:
    """Forwards to the address `target` what look() returns. Its own port is known before there is a target."""

    def __init__(self, target=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.target = target
        self.connections = self.refused = 0
        self.open = True
        self.pairs = []
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def pass_on(self, near, answers, data):
        """The part of `data`, which has come by the connection `near` or as an answer to it, that goes on. It may wait."""
        raise NotImplementedError

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                if not self.open or self.target is None:
                    raise OSError("cut")
                far = socket.create_connection(self.target)
            except OSError:
                self.refused += 1
                near.close()
                continue
            with self.lock:
                self.connections += 1
                self.pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(near, source, sink), daemon=True).start()

    def _pump(self, near, source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(self.pass_on(near, sink is near, data))
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def reset(self):
        """Connections end; what is held of them never comes."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for end in pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.open = False
        self.reset()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Lane(Relay):
    """Before a peer. `towards` counts the bytes of answers, `turns` the answers that follow a request: round trips,
    where one waits for the other. At `hold_at` bytes it waits for release(), at `stall_at` each connection that has brought
    as many; `spoil_at`: one bit of that byte is another."""

    def __init__(self):
        super().__init__()
        self.towards = self.turns = 0
        self.asked = False
        self.hold_at = self.spoil_at = self.stall_at = None
        self.brought = collections.Counter()  # by connection
        self.released = threading.Event()
        self.held = threading.Event()

    def pass_on(self, near, answers, data):
        self.turns += answers and self.asked
        self.asked = not answers
        if not answers:
            return data
        before, self.towards = self.towards, self.towards + len(data)
        if self.spoil_at is not None and before <= self.spoil_at < self.towards:
            data = bytearray(data)
            data[self.spoil_at - before] ^= 1
        self.brought[near] += len(data)
        late = self.stall_at is not None and self.brought[near] >= self.stall_at
        if late or self.hold_at is not None and self.towards >= self.hold_at:
            self.held.set()
            self.released.wait()
        return data

    def hold_after(self, count):
        """Holds everything back after `count` more bytes."""
        self.released.clear()
        self.held.clear()
        self.hold_at = self.towards + count

    def stall(self, count):
        """Holds back each connection that has brought `count` bytes."""
        self.released.clear()
        self.held.clear()
        self.stall_at = count

    def wait_held(self):
        assert self.held.wait(DEADLINE), "it was never reached"

    def release(self):
        self.hold_at = self.stall_at = None
        self.released.set()

    def cut(self):
        """Connections end, and no new one is made; held bytes are lost."""
        self.open = False
        self.reset()
        self.release()

    def close(self):
        super().close()
        self.release()


class Proxy(Relay):
    """Before an etcd. Cut, it takes what comes and holds it back: a network that is parted. Deaf, it holds answers back;
    blind, those of connections that watch. Slow, it holds a connection back from a request on that has these bytes in it."""

    def __init__(self, etcd):
        self.cut = self.deaf = self.blind = False
        self.slow = None
        self.watching = set()  # connections
        self.held = 0
        self.changed = threading.Condition()
        super().__init__((etcd.address, etcd.port))
        self.url = f"http://127.0.0.1:{self.port}"

    def set(self, cut=False, deaf=False, blind=False, slow=None):
        with self.changed:
            self.cut, self.deaf, self.blind, self.slow = cut, deaf, blind, slow
            self.changed.notify_all()

    def holds_any(self):
        """Whether anything is held back."""
        return self.held > 0

    def _passes(self, near, answers, data):
        if answers:
            return not (self.cut or self.deaf or (self.blind and near in self.watching))
        return not (self.cut or (self.slow is not None and self.slow in data))

    def pass_on(self, near, answers, data):
        with self.changed:
            if not answers and b"POST /v3/watch" in data:
                self.watching.add(near)
            self.held += 1
            self.changed.wait_for(lambda: self._passes(near, answers, data))
            self.held -= 1
        return data

    def close(self):
        super().close()
        self.set()
