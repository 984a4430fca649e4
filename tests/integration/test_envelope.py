"""The envelope: lines, JSON, JSON-RPC. Whatever bytes come, an error or a closed session."""

import json

import pytest

from peer import LINE_BYTES, Closed

REQUEST_BYTES = 65536


def request(**members):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "stats", "params": {}, **members})


def nested(levels):
    """A request whose deepest value is `levels` levels deep (the message itself is the first)."""
    return (
        '{"jsonrpc":"2.0","id":1,"method":"stats","params":{"x":'
        + "[" * (levels - 2)
        + "]" * (levels - 2)
        + "}}"
    ).encode()


# unit/test_json.c has the grammar.
NOT_JSON = {
    "empty": b"",
    "http": b"GET / HTTP/1.1",
    "two values": b'{"jsonrpc":"2.0","id":1,"method":"stats"} {}',
    "thousands of brackets": b"[" * 100000,
}


@pytest.mark.parametrize("line", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_not_json(shared_peer, line):
    shared_peer.send_raw(line + b"\n")
    reply = shared_peer.recv_message()
    assert reply["id"] is None
    assert reply["error"]["code"] == -32700
    assert shared_peer.call("stats")


def test_an_escaped_nul(shared_peer):
    """It is JSON, and in no string of ours: the request knows its answer."""
    for method, params, place in (
            ("open", {"name": "a\0b"}, "params.name"),
            ("open", {"names": ["a", "\0"], "wait_ms": 60000}, "params.names[1]"),
            ("stat", {"name": "\0"}, "params.name"),
            ("delete", {"names": ["\0"]}, "params.names[0]"),
            ("watch", {"prefix": "\0"}, "params.prefix"),
            ("hello", {"protocol": 1, "client": "a\0"}, "params.client"),
            ("create", {"name": "a", "layout": {"kind": "bytes\0", "bytes": 1}}, "params.layout.kind"),
            ("create", {"name": "a", "layout": {"kind": "column", "dtype": "int8", "length": 1,
                                                "metadata": {"k": "\0"}}}, "params.layout.metadata.k"),
            ("create", {"name": "a", "layout": {"kind": "column", "dtype": "int8", "length": 1,
                                                "metadata": {"k\0": "v"}}}, "params.layout.metadata"),
            ("stat", {"name": "a", "name\0": 1}, "params")):
        error = shared_peer.error("invalid", method, **params)
        assert error.message.startswith(f"{place}: \\u0000 is not accepted"), error.message
    shared_peer.send_raw(b'{"jsonrpc":"2.0","id":7,"method":"stats","x\\u0000":1}\n')
    reply = shared_peer.recv_message()
    assert reply["id"] == 7 and reply["error"]["code"] == -32602


# what -> (line, kind of the error). unit/test_rpc.c has every way.
NOT_A_REQUEST = {
    "batch": ("[" + request() + "]", "request"),
    "id fraction": (request(id=1.5), "request"),
    "unknown member": (request(extra=1), "invalid"),
    "fds too many": (request(fds=17), "invalid"),
}


@pytest.mark.parametrize("line, kind", NOT_A_REQUEST.values(), ids=NOT_A_REQUEST.keys())
def test_not_a_request(shared_peer, line, kind):
    shared_peer.send_raw(line.encode() + b"\n")
    reply = shared_peer.recv_message()
    assert reply["error"]["data"]["kind"] == kind, reply
    assert reply["id"] in (None, 1)
    if "fds" not in line:  # how many belong to it is not known, which may close
        assert shared_peer.call("stats")


def test_unknown_method(shared_peer):
    for method in ("", "Stats", "stats ", "rpc.discover", "x" * 1000, "größe"):
        error = shared_peer.error("method", method)
        assert error.code == -32601


def test_requests_without_id_are_done_and_not_answered(shared_peer):
    lease = shared_peer.create("envelope/quiet", {"kind": "bytes", "bytes": 1})["lease"]
    shared_peer.notify("seal", lease=lease, release=True)
    shared_peer.notify("no such method")
    shared_peer.notify("stat", name="envelope/none")
    shared_peer.send_raw(b'{"jsonrpc":"2.0","method":"stats","params":{"x":1}}\n')
    # The next reply is the next request's: nothing was said about the four.
    assert shared_peer.call("stat", name="envelope/quiet")["object"]["state"] == "sealed"
    assert not shared_peer.replies and not shared_peer.notifications


def test_nesting(shared_peer):
    shared_peer.send_raw(nested(32) + b"\n")
    assert shared_peer.recv_message()["error"]["data"]["kind"] == "invalid"
    shared_peer.send_raw(nested(33) + b"\n")
    reply = shared_peer.recv_message()
    assert reply["error"]["data"]["kind"] in ("parse", "limit"), reply
    assert "deep" in reply["error"]["message"]
    assert shared_peer.call("stats")


def test_a_line_of_one_mebibyte(shared_peer):
    layout = {"kind": "bytes", "bytes": 1}
    line = request(method="create", params={"name": "mebibyte", "layout": layout}).encode()
    shared_peer.send_raw(line + b" " * (LINE_BYTES - len(line) - 1) + b"\n")
    lease = shared_peer.recv_message()["result"]["lease"]
    shared_peer.call("release", lease=lease)


def test_a_request_without_a_layout_is_shorter(shared_peer):
    line = request().encode()
    shared_peer.send_raw(line + b" " * (REQUEST_BYTES - 1 - len(line)) + b"\n")
    assert "result" in shared_peer.recv_message()
    shared_peer.send_raw(line + b" " * (REQUEST_BYTES - len(line)) + b"\n")
    error = shared_peer.recv_message()["error"]
    assert error["data"] == {"kind": "limit", "limit": "request_bytes"}
    assert shared_peer.call("stats")


def test_a_line_too_long(shared_daemon, shared_peer):
    other = shared_daemon.connect()
    line = request().encode()
    try:
        shared_peer.send_raw(line + b" " * (LINE_BYTES - len(line)) + b"\n")
    except (BrokenPipeError, ConnectionResetError):
        pass
    try:
        reply = shared_peer.recv_message()
        assert reply["error"]["data"]["kind"] == "limit", reply
        assert reply["error"]["data"]["limit"] == "line_bytes"
        assert str(LINE_BYTES) in reply["error"]["message"]
    except Closed:
        pass
    assert other.call("stats")


def test_a_line_without_end(shared_daemon, shared_peer):
    """Bytes for ever without a newline: an error or the end, in bounded memory."""
    other = shared_daemon.connect()
    ended = False
    for _ in range(64):
        try:
            shared_peer.send_raw(b"x" * LINE_BYTES)
        except (BrokenPipeError, ConnectionResetError):
            ended = True
            break
    assert ended
    for message in shared_peer.expect_closed():
        assert message["error"]["data"]["kind"] == "limit"
    assert other.call("stats")


# RELIABILITY.md: The kernel says no 4
def test_split_at_every_byte(shared_peer):
    line = b'{"jsonrpc":"2.0","id":"\xc3\xbc","method":"stats","params":{}}\n'
    for i in range(1, len(line)):
        shared_peer.send_raw(line[:i])
        shared_peer.wait_until_read()
        shared_peer.send_raw(line[i:])
        reply = shared_peer.recv_message()
        assert reply["id"] == "ü" and "result" in reply


def test_many_in_one_write(shared_peer):
    lines = b"".join(
        b'{"jsonrpc":"2.0","id":%d,"method":"stat","params":{"name":"none"}}\n' % i
        for i in range(2000)
    )
    shared_peer.send_raw(lines)
    ids = [shared_peer.recv_message()["id"] for _ in range(2000)]
    assert ids == list(range(2000))


def test_good_and_bad_lines_mixed(shared_peer):
    shared_peer.send_raw(
        b"{\n" + request(id=10).encode() + b"\n[]\n" + request(id=11).encode() + b"\n\n"
    )
    replies = [shared_peer.recv_message() for _ in range(5)]
    assert [r["id"] for r in replies] == [None, 10, None, 11, None]
    assert ["result" in r for r in replies] == [False, True, False, True, False]


def test_half_close_is_served_to_the_last_whole_line(shared_peer):
    shared_peer.send_raw((request(id=1) + "\n" + request(id=2) + "\n" + request(id=3)).encode())
    shared_peer.socket.shutdown(1)
    assert [m["id"] for m in shared_peer.expect_closed()] == [1, 2]
