"""The other end of the protocol, written as plainly as it can be: a socket, JSON, descriptors.

Nothing here shares code with the daemon or the C library, so that a test is a second reading of
docs/PROTOCOL.md. A `Peer` checks every message it receives (framing, envelope, the descriptor
count, error codes against kinds) before a test sees it.
"""

import array
import collections
import fcntl
import json
import mmap
import os
import re
import select
import socket
import struct
import termios
import time

import described
import device

DEADLINE = float(os.environ.get("GPUBUF_TEST_DEADLINE", "60"))

LINE_BYTES = 1 << 20
MAX_FDS = 16

CODES = {
    "parse": -32700,
    "request": -32600,
    "method": -32601,
    "invalid": -32602,
    "internal": -32603,
    "not_found": -32001,
    "exists": -32002,
    "no_space": -32003,
    "denied": -32004,
    "busy": -32005,
    "timeout": -32006,
    "stale": -32007,
    "limit": -32008,
    "device": -32009,
    "unsupported": -32010,
    "unavailable": -32011,
}


def wait_until(condition):
    """Polls until the condition holds; fails at the deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def connect(sock, path):
    """Also while the daemon's queue of connections is full, which a socket with a timeout is told."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.001)


class RpcError(Exception):
    """An error reply."""

    def __init__(self, error):
        super().__init__(f"{error['code']} {error['data']['kind']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]
        self.data = error["data"]
        self.kind = error["data"]["kind"]


class Closed(Exception):
    """The daemon closed the connection."""


class Timeout(Exception):
    """Nothing came before the deadline."""


class Segment:
    """A segment that this peer was given: its descriptor and, once asked for, its mapping."""

    def __init__(self, info, fd):
        self.id = info["id"]
        self.bytes = info["bytes"]
        self.access = info["access"]
        self.device = info["device"]
        self.handle = info["handle"]
        self.fd = fd  # -1: of a kind without
        self._map = None

    def map(self):
        if self._map is None:
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if self.access == "rw" else 0)
            self._map = mmap.mmap(self.fd, self.bytes, mmap.MAP_SHARED, prot)
        return self._map

    def unmap(self):
        if self._map is not None:
            self._map.close()
            self._map = None

    def close(self):
        self.unmap()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def check_error(error):
    """Every error on the wire has a code, a message and a kind."""
    assert isinstance(error["code"], int)
    assert isinstance(error["message"], str) and error["message"], error
    kind = error["data"]["kind"]
    assert CODES[kind] == error["code"], error
    assert kind != "internal", error
    if kind == "limit":
        assert isinstance(error["data"].get("limit"), str), error


class Peer:
    """One session, spoken by hand."""

    def __init__(self, path, receive_fds=MAX_FDS, connected=None):
        """`connected`: a socket that is connected already."""
        self.socket = connected or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.settimeout(DEADLINE)
        if not connected:
            connect(self.socket, path)
        self.input = bytearray()
        self.fds = collections.deque()
        self.eof = False
        self.next_id = 1
        self.asked = {}  # id -> the method of a request() that is not answered
        self.replies = {}
        self.notifications = collections.deque()
        self.segments = {}  # (id, access) -> Segment
        self.receive_fds = receive_fds
        self.longest = 0  # bytes of the longest line received
        self.page = None  # of kept leases, mapped; its descriptor
        self.page_fd = -1
        self.joined = {}  # descriptors of a stream's pages, by "page", "roster", "front" or the reader's number

    def credentials(self):
        """The pid, uid and gid of the process that listens, as it was when it began to."""
        return struct.unpack(
            "iII", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )

    # ---- sending -------------------------------------------------------------------------

    def send_raw(self, data, fds=()):
        """Writes bytes; descriptors ride on the first of them."""
        if fds:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = self.socket.sendmsg([data], ancillary)
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def send(self, message, fds=()):
        if fds:
            message = {**message, "fds": len(fds)}
        self.send_raw(json.dumps(message).encode() + b"\n", fds)

    def request(self, method, /, fds=(), **params):
        """Sends a request and returns its id; reply() gets what becomes of it."""
        ident = self.next_id
        self.next_id += 1
        self.asked[ident] = method
        self.send({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}, fds)
        return ident

    def notify(self, method, /, fds=(), **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params}, fds)

    def unread(self):
        """How many bytes that were sent here the daemon has not yet read (0: it has them all)."""
        return struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, b"\0\0\0\0"))[0]

    def wait_until_read(self):
        """Returns when the daemon has received all that was sent."""
        end = time.monotonic() + DEADLINE
        while self.unread():
            if time.monotonic() > end:
                raise Timeout("the daemon does not read")
            time.sleep(0.0005)

    # ---- receiving -----------------------------------------------------------------------

    def _receive(self, deadline):
        """One recvmsg; False at the end of the stream."""
        left = deadline - time.monotonic()
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self.socket, select.POLLIN)
        if left <= 0 or not poll.poll(1000 * left):
            raise Timeout("no message before the deadline")
        space = socket.CMSG_SPACE(self.receive_fds * 4)
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(
                1 << 18, space, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            data, ancillary, flags = b"", [], 0
        for level, kind, payload in ancillary:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            fds = array.array("i")
            fds.frombytes(payload[: len(payload) - len(payload) % 4])
            self.fds.extend(fds)
        assert not flags & socket.MSG_CTRUNC
        if not data:
            self.eof = True
            return False
        self.input += data
        return True

    def recv_line(self, timeout=DEADLINE):
        deadline = time.monotonic() + timeout
        searched = 0
        while True:
            end = self.input.find(b"\n", searched)
            if end >= 0:
                line = bytes(self.input[:end])
                del self.input[: end + 1]
                assert end + 1 <= LINE_BYTES, "the daemon sent a line that is too long"
                self.longest = max(self.longest, end + 1)
                return line
            searched = len(self.input)
            if self.eof or not self._receive(deadline):
                assert not self.input, "the daemon closed in the middle of a line"
                raise Closed()

    def recv_message(self, timeout=DEADLINE):
        """The next message, with its descriptors as its member "_fds"."""
        message = json.loads(self.recv_line(timeout).decode("utf-8"))
        assert isinstance(message, dict) and message["jsonrpc"] == "2.0", message
        count = message.pop("fds", 0)
        assert 0 <= count <= MAX_FDS
        assert len(self.fds) >= count, "fewer descriptors than the message says"
        message["_fds"] = [self.fds.popleft() for _ in range(count)]
        if "method" in message:
            assert "id" not in message and isinstance(message["params"], dict), message
            described.check_notification(message)
        else:
            assert ("result" in message) != ("error" in message), message
            assert "id" in message, message
        if "error" in message:
            check_error(message["error"])
        if message.get("id") in self.asked:
            described.check_reply(self.asked.pop(message["id"]), message)
        if "error" not in message:
            self._keep_segments(message)
        return message

    def _keep_segments(self, message):
        """Takes in the segments of a reply; every descriptor must belong to one."""
        result = message.get("result")
        used = set()
        segments = result.get("segments") if isinstance(result, dict) else None
        if not isinstance(segments, list):  # `stats` has a number there
            segments = []
        for info in segments:
            if "state" in info:  # told by `segments`, not granted
                continue
            assert info["access"] in ("r", "rw"), info
            fd = -1
            if info["handle"]["kind"] in ("cuda_ipc", "hip_ipc"):
                assert set(info["handle"]) == {"kind", "ipc", "uuid"}, info
            else:
                assert set(info["handle"]) == {"kind", "fd"}, info
                assert info["handle"]["kind"] == device.kind_of(info["device"]), info
                k = info["handle"]["fd"]
                assert k not in used
                used.add(k)
                fd = message["_fds"][k]
            segment = Segment(info, fd)
            old = self.segments.pop((segment.id, segment.access), None)
            if old:
                old.close()
            self.segments[(segment.id, segment.access)] = segment
        if isinstance(result, dict) and "cache" in result:  # the page of kept leases
            used |= {result["cache"]["fd"], result["cache"]["pulse"]}
            with os.fdopen(message["_fds"][result["cache"]["pulse"]], "rb") as file:
                self.pulse = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
            self.page_fd = message["_fds"][result["cache"]["fd"]]
            self.page = mmap.mmap(self.page_fd, 8 * result["cache"]["slots"], mmap.MAP_SHARED,
                                  mmap.PROT_READ)
        if isinstance(result, dict) and "writer" in result:  # pages of a stream
            pages = {name: result[name] for name in ("page", "roster", "front") if name in result}
            pages.update((claim["reader"], claim["fd"]) for claim in result.get("claims", ()))
            used |= set(pages.values())
            for name, k in pages.items():
                if name in self.joined:
                    os.close(self.joined[name])
                self.joined[name] = message["_fds"][k]
        assert len(used) == len(message["_fds"]), "descriptors that no segment uses"

    def reply(self, ident, timeout=DEADLINE):
        """The reply to request `ident`: its result, or RpcError. Keeps what else comes."""
        deadline = time.monotonic() + timeout
        while ident not in self.replies:
            message = self.recv_message(deadline - time.monotonic())
            if "method" in message:
                self.notifications.append(message)
            else:
                assert message["id"] not in self.replies, "two replies to one request"
                self.replies[message["id"]] = message
        message = self.replies.pop(ident)
        if "error" in message:
            raise RpcError(message["error"])
        return message["result"]

    def call(self, method, /, fds=(), **params):
        return self.reply(self.request(method, fds=fds, **params))

    def error(self, kinds, method, /, fds=(), **params):
        """Calls what must fail with an error of one of `kinds` (a word or a tuple of them)."""
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        try:
            result = self.call(method, fds=fds, **params)
        except RpcError as error:
            assert error.kind in kinds, error
            return error
        raise AssertionError(f"{method} {params} succeeded: {result}")

    def notification(self, method=None, timeout=DEADLINE):
        """The next notification (of that name; others are skipped)."""
        deadline = time.monotonic() + timeout
        while True:
            while not self.notifications:
                message = self.recv_message(deadline - time.monotonic())
                if "method" in message:
                    self.notifications.append(message)
                else:
                    self.replies[message["id"]] = message
            message = self.notifications.popleft()
            if method in (None, message["method"]):
                return message

    def events(self, count):
        """The next `count` events as (kind, name, params)."""
        out = []
        for _ in range(count):
            params = self.notification("event")["params"]
            out.append((params["kind"], params.get("object", {}).get("name"), params))
        return out

    def no_notification(self):
        """Asserts that none is under way: what was told before a reply has come before it."""
        self.call("stats")
        assert not self.notifications, list(self.notifications)

    def expect_closed(self, timeout=DEADLINE):
        """Reads on to the end of the stream and returns the messages that came before it."""
        messages = []
        try:
            while True:
                messages.append(self.recv_message(timeout))
        except Closed:
            return messages

    def expect_closed_anyhow(self, timeout=DEADLINE):
        """Reads on to the end of the stream, which may come in the middle of a line; returns how
        many bytes came before it."""
        deadline = time.monotonic() + timeout
        count = len(self.input)
        self.input.clear()
        while self._receive(deadline):
            count += len(self.input)
            self.input.clear()
        return count

    # ---- objects -------------------------------------------------------------------------

    def segment(self, ident):
        return self.segments.get((ident, "rw")) or self.segments[(ident, "r")]

    def read(self, buffer):
        if buffer["bytes"] == 0:
            return b""  # nothing lies anywhere: it may be in no segment at all
        segment = self.segment(buffer["segment"])
        assert buffer["offset"] + buffer["bytes"] <= segment.bytes
        return segment.map()[buffer["offset"] : buffer["offset"] + buffer["bytes"]]

    def write(self, buffer, data):
        assert len(data) <= buffer["bytes"], (len(data), buffer)
        segment = self.segments[(buffer["segment"], "rw")]
        segment.map()[buffer["offset"] : buffer["offset"] + len(data)] = bytes(data)

    def create(self, name, layout, data=b"", **params):
        """`create`, and the data written; not sealed. `data` is the bytes of the layout's data, or
        {path: bytes} such as {"columns[0].mask": b"\\x05"}."""
        result = self.call("create", name=name, layout=layout, **params)
        parts = data if isinstance(data, dict) else {"data": data}
        for path, content in parts.items():
            if content:
                self.write(at(result["object"]["layout"], path), content)
        return result

    def create_object(self, name, layout, data=b"", keep=False, **params):
        """create, write, seal; the version. With `keep` the lease is kept: (version, lease)."""
        lease = self.create(name, layout, data, **params)["lease"]
        version = self.call("seal", lease=lease, release=not keep)["version"]
        return (version, lease) if keep else version

    def put(self, name, data=b"x", keep=False, **params):
        """A sealed object of kind bytes."""
        return self.create_object(name, bytes_layout(len(data)), data, keep=keep, **params)

    def open_object(self, name, **params):
        return Opened(self, self.call("open", name=name, **params))

    def names(self, prefix=None):
        """All names that `list` tells, over all its pages."""
        names, params = [], {} if prefix is None else {"prefix": prefix}
        while True:
            page = self.call("list", **params)
            names += [o["name"] for o in page["objects"]]
            if "cursor" not in page:
                return names
            params["cursor"] = page["cursor"]

    def delete(self, names):
        """Deletes names, as many in a request as the protocol allows."""
        for i in range(0, len(names), 64):
            self.call("delete", names=names[i:i + 64])

    def used(self):
        """Bytes of the device that are in use."""
        return self.call("stats")["devices"][0]["used"]

    def pinned_by_clients(self):
        """Bytes of the device that are to go, but that a session still maps."""
        return self.call("stats")["devices"][0]["pinned_by_clients"]

    def wait_for_stats(self, condition):
        """Returns the `stats` for which condition(stats) holds."""
        end = time.monotonic() + DEADLINE
        while True:
            stats = self.call("stats")
            if condition(stats):
                return stats
            if time.monotonic() > end:
                raise Timeout(f"it does not come to that: {stats['devices']}")
            time.sleep(0.001)

    def wait_until_given_back(self):
        """Returns when no device has a segment any more: a GPU's driver takes its time."""
        return self.wait_for_stats(lambda stats: all(d["segments"] == 0 for d in stats["devices"]))

    def unmap(self, *idents):
        """Closes segments and says so; without any named, all."""
        idents = idents or {ident for ident, _ in self.segments}
        for key in [key for key in self.segments if key[0] in idents]:
            self.segments.pop(key).close()
        self.call("unmap", segments=sorted(idents))

    def slot(self, index):
        """The content of a slot in the page of kept leases."""
        return struct.unpack_from("<Q", self.page, 8 * index)[0]

    # ---- ending --------------------------------------------------------------------------

    def close(self):
        self.socket.close()
        for segment in self.segments.values():
            segment.close()
        self.segments.clear()
        if self.page_fd >= 0:
            self.page.close()
            self.pulse.close()
            os.close(self.page_fd)
            self.page_fd = -1
        while self.joined:
            os.close(self.joined.popitem()[1])
        while self.fds:
            os.close(self.fds.popleft())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Opened:
    """An open object: lease, object, and its bytes."""

    def __init__(self, peer, result):
        self.peer = peer
        self.lease = result["lease"]
        self.slot = result.get("slot")
        self.object = result["object"]
        self.version = self.object["version"]
        self.layout = self.object["layout"]

    def read(self, path="data"):
        return self.peer.read(at(self.layout, path))

    def release(self):
        self.peer.call("release", lease=self.lease)


def at(value, path):
    """The member of a layout at a path such as columns[2].children[0].data."""
    for key, index in re.findall(r"([a-z_]+)|\[(\d+)\]", path):
        value = value[key] if key else value[int(index)]
    return value


def bytes_layout(count):
    return {"kind": "bytes", "bytes": count}


def column(dtype, length, **members):
    return {"kind": "column", "dtype": dtype, "length": length, **members}


def table(length, **columns):
    """table(3, a={"dtype":"int32"}, …): every column gets its name and the table's length."""
    return {
        "kind": "table",
        "length": length,
        "columns": [{"name": n, "length": length, **c} for n, c in columns.items()],
    }


def buffers(layout):
    """All buffers of a layout in a reply, as (path, buffer)."""
    out = []

    def walk(node, path):
        for which in ("data", "mask", "offsets"):
            if which in node:
                out.append((f"{path}{which}", node[which]))
        for group in ("columns", "children"):
            for i, child in enumerate(node.get(group, [])):
                walk(child, f"{path}{group}[{i}].")

    walk(layout, "")
    return out
