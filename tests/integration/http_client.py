"""A client of the daemon's HTTP server, written from docs/HTTP.md: plain sockets, so that tests can
also send what no library would."""

import base64
import hashlib
import json
import os
import re
import socket
import struct
import subprocess
import time

from device import BUILD
from peer import DEADLINE

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def port_of(daemon):
    """Where a daemon that was started with `--http 127.0.0.1:0` listens."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = re.search(r"serving http url=http://[^ ]*:(\d+)/", daemon.stderr())
        if found:
            return int(found.group(1))
        time.sleep(0.005)
    raise AssertionError(daemon.stderr())


def refusal(directory, *options):
    """What a daemon says that does not start with these options; it leaves no socket."""
    path = os.path.join(directory, "refused")
    done = subprocess.run(
        [BUILD / "bin" / "gpubufd", "--device", "host:64M", "--socket", path, *options],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )
    assert done.returncode == 2 and not os.path.exists(path), done
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
    return done.stderr


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        assert self.headers["content-type"].startswith("application/json"), self.headers
        return json.loads(self.body, object_pairs_hook=once)


def once(pairs):
    """An object whose members are there once each."""
    assert len(dict(pairs)) == len(pairs), [name for name, _ in pairs]
    return dict(pairs)


class Connection:
    """One connection; requests on it one after the other."""

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=DEADLINE)
        self.host = f"{host}:{port}"
        self.pending = b""

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, raw):
        self.socket.sendall(raw)

    def receive(self):
        data = self.socket.recv(1 << 16)
        self.pending += data
        return len(data)

    def line(self):
        while b"\r\n" not in self.pending:
            assert self.receive(), ("the connection ended", self.pending[:200])
        line, self.pending = self.pending.split(b"\r\n", 1)
        return line

    def take(self, count):
        while len(self.pending) < count:
            assert self.receive(), "the connection ended"
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def until_end(self):
        while self.receive():
            pass
        taken, self.pending = self.pending, b""
        return taken

    def reply(self, head=False):
        version, status, _ = self.line().decode().split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {}
        while line := self.line():
            name, value = line.decode().split(": ", 1)
            assert name.lower() not in headers, name
            headers[name.lower()] = value
        body = b""
        if not head and int(status) not in (101, 304):
            if headers.get("transfer-encoding") == "chunked":
                while size := int(self.line(), 16):
                    body += self.take(size)
                    assert self.take(2) == b"\r\n"
                assert self.take(2) == b"\r\n"
            elif "content-length" in headers:
                body = self.take(int(headers["content-length"]))
            else:
                body = self.until_end()
        return Reply(int(status), headers, body)

    def request(self, path, method="GET", headers=(), body=b"", host=None):
        given = {"Host": host or self.host}
        given.update(headers)
        if body:
            given["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return self.reply(head=method == "HEAD")

    def ended(self):
        """Whether the server ends the connection, having sent nothing more."""
        try:
            return self.pending == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def get(port, path, **options):
    with Connection(port) as connection:
        return connection.request(path, **options)


class Live(Connection):
    """A WebSocket on /api/live."""

    def __init__(self, port, path="/api/live", headers=()):
        super().__init__(port)
        key = base64.b64encode(os.urandom(16)).decode()
        reply = self.request(
            path,
            headers={
                "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key,
                "Sec-WebSocket-Version": "13", **dict(headers),
            },
        )
        self.handshake = reply
        if reply.status == 101:
            expected = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
            assert reply.headers["sec-websocket-accept"] == expected

    def frame(self):
        first, second = self.take(2)
        assert first & 0x70 == 0 and second & 0x80 == 0 and first & 0x80
        length = second & 127
        if length == 126:
            (length,) = struct.unpack(">H", self.take(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.take(8))
        return first & 15, self.take(length)

    def send_frame(self, opcode, payload=b""):
        mask = os.urandom(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        head = bytes([0x80 | opcode])
        if len(payload) < 126:
            head += bytes([0x80 | len(payload)])
        else:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(payload))
        self.send(head + mask + data)

    def message(self):
        """The next message, decoded."""
        while True:
            opcode, payload = self.frame()
            if opcode == 1:
                return json.loads(payload)
            assert opcode == 9, opcode
            self.send_frame(10, payload)

    def event(self):
        """The next event but `stats`."""
        while True:
            event = self.message()
            if event["kind"] != "stats":
                return event
