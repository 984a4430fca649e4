"""A client of the gateway's HTTP server, written from docs/HTTP.md: plain sockets, so that tests can
also send what no library would."""

import json
import os
import socket
import subprocess

from device import BUILD
from peer import DEADLINE


class Ended(AssertionError):
    """The connection ended before the answer did."""


def refusal(directory, *options, program="gpubufd-gateway"):
    """The error of a program that does not start with these options."""
    done = subprocess.run(
        [BUILD / "bin" / program, "--socket", os.path.join(directory, "none"), *options],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )
    assert done.returncode == 2, done
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
            if not self.receive():
                raise Ended(self.pending[:200])
        line, self.pending = self.pending.split(b"\r\n", 1)
        return line

    def read_bytes(self, count):
        while len(self.pending) < count:
            if not self.receive():
                raise Ended(self.pending[:200])
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def until_end(self):
        while self.receive():
            pass
        taken, self.pending = self.pending, b""
        return taken

    def head(self):
        """(status, headers)"""
        version, status, _ = self.line().decode().split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {}
        while line := self.line():
            name, value = line.decode().split(": ", 1)
            assert name.lower() not in headers, name
            headers[name.lower()] = value
        return int(status), headers

    def chunk(self):
        """b"": there are no more"""
        data = self.read_bytes(int(self.line(), 16))
        assert self.read_bytes(2) == b"\r\n"
        return data

    def reply(self, head=False):
        status, headers = self.head()
        body = b""
        if not head and status not in (101, 304):
            if headers.get("transfer-encoding") == "chunked":
                while data := self.chunk():
                    body += data
            elif "content-length" in headers:
                body = self.read_bytes(int(headers["content-length"]))
            else:
                body = self.until_end()
        return Reply(status, headers, body)

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


class UnixConnection(Connection):
    """A Connection over a unix socket."""

    def __init__(self, path):  # pylint: disable=super-init-not-called
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(path)
        self.host = "localhost"
        self.pending = b""


def get(port, path, **options):
    with Connection(port) as connection:
        return connection.request(path, **options)


class Live(Connection):
    """Server-sent events of /api/events."""

    def __init__(self, port, path="/api/events", headers=()):
        super().__init__(port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in dict(headers).items())
        self.send(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n{lines}\r\n".encode())
        status, fields = self.head()
        self.handshake = Reply(status, fields, b"")
        self.text = b""
        if status == 200:
            assert fields["content-type"] == "text/event-stream"
            assert fields["transfer-encoding"] == "chunked"

    def block(self):
        """The next message's fields; comments are passed over. None at the end."""
        while True:
            while b"\n\n" not in self.text:
                data = self.chunk()
                if not data:
                    return None
                self.text += data
            block, self.text = self.text.split(b"\n\n", 1)
            if block != b":":
                return dict(line.split(": ", 1) for line in block.decode().split("\n"))

    def message(self):
        """The next message, decoded."""
        block = self.block()
        assert block is not None, "the stream ended"
        message = json.loads(block["data"])
        assert int(block["id"]) == (message[-1] if isinstance(message, list) else message)["seq"]
        return message

    def event(self):
        """The next event but `stats`."""
        while True:
            event = self.message()
            if event["kind"] != "stats":
                return event
