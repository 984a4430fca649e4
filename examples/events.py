#!/usr/bin/env python3
"""Events of a gpubufd, by nothing but Python's own library.

    gpubufd-gateway --events ipc:///run/gpubufd-gateway/events.sock
    python3 events.py ipc:///run/gpubufd-gateway/events.sock [PREFIX]

The gateway publishes events on a PUB socket of NNG; this is a SUB socket (with pynng, a few lines).
The protocol is small: a handshake of eight octets, then messages, each after its length. A message
is `KIND NAME`, a newline, and JSON.
"""

import json
import socket
import struct
import sys
from urllib.parse import urlsplit

PUB, SUB = 0x20, 0x21  # the protocols' numbers


class Subscription:
    """An iterator over the messages of one daemon. TimeoutError: no message came for `timeout` seconds; figures come
    every second."""

    def __init__(self, url, timeout=None):
        parts = urlsplit(url)
        self.ipc = parts.scheme == "ipc"
        if self.ipc:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(parts.path)
        else:
            self.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(struct.pack(">4sHH", b"\0SP\0", SUB, 0))
        if self._read(8) != struct.pack(">4sHH", b"\0SP\0", PUB, 0):
            raise ConnectionError(f"{url}: expected a PUB socket of NNG")

    def _read(self, count):
        data = self.file.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def __iter__(self):
        while True:
            try:
                if self.ipc and self._read(1) != b"\1":  # the only kind of message
                    raise ConnectionError("the bytes received are no message of NNG")
                (length,) = struct.unpack(">Q", self._read(8))
                topic, _, event = self._read(length).partition(b"\n")
            except EOFError:
                return
            yield topic.decode(), json.loads(event)

    def close(self):
        self.file.close()
        self.socket.close()


def main(url, prefix=""):
    last = None
    for topic, event in Subscription(url):
        # Numbers are consecutive: a gap is events that this program was too slow for. `stats` repeats the last one.
        lost = event["seq"] - (last if event["kind"] == "stats" else last + 1) if last else 0
        last = event["seq"]
        if lost:
            print(f"{lost} events were lost", flush=True)
        kind, _, name = topic.partition(" ")
        if kind != "stats" and name.startswith(prefix):
            size = event.get("object", {}).get("bytes", "?")
            print(f"{event['seq']:>8}  {kind:<9}  {name or '(private)'}  {size} bytes", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
