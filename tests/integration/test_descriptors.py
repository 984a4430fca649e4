"""Descriptors: a FIFO that stays in step with the messages, or a closed connection."""

import json
import os

import pytest

import device as test_device
from peer import bytes_layout


@pytest.fixture
def memory():
    fd, _ = test_device.own_memory(bytes(4096))
    yield fd
    os.close(fd)


def line(ident=1, method="stats", fds=None, **params):
    message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
    if fds is not None:
        message["fds"] = fds
    return json.dumps(message).encode() + b"\n"


def register(ident, name, fds=1):
    layout = {"kind": "bytes", "bytes": 8, "data": {"handle": 0, "offset": 0, "bytes": 8}}
    handles = [test_device.handle(test_device.LEAST)]
    return line(ident, "register", fds, name=name, layout=layout, handles=handles)


def ends(peer):
    """Whether nothing is served before the daemon closes the connection; it may say why."""
    return all("error" in message for message in peer.expect_closed())


@pytest.mark.parametrize("text, count", [
    pytest.param(line(fds=1), 0, id="none"), pytest.param(line(fds=2), 1, id="fewer than said"),
    pytest.param(register(1, "d/more"), 2, id="more than said"), pytest.param(line(), 1, id="unexpected"),
    pytest.param(b"{no json}\n", 1, id="with a bad line, to which nobody knows how many belong"),
    pytest.param(line(fds="one"), 1, id="of the wrong type"),
    pytest.param(line(fds=17), 17, id="more than one message may bring"),
])
def test_a_number_that_is_wrong(peer, memory, text, count):
    peer.send_raw(text, [memory] * count)
    assert ends(peer)


# RELIABILITY.md: Hostile clients 13
def test_a_flood_without_a_line(peer, memory):
    """Descriptors that no message takes are bounded."""
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(1000):
            peer.send_raw(b" ", [memory] * 16)
    assert ends(peer)


def test_refused_requests_keep_in_step(peer, memory):
    """Descriptors of a refused request are closed, and the next request finds its own."""
    peer.send_raw(line(1, "no such method", fds=2), [memory] * 2)
    peer.send_raw(line(2, "register", fds=1, name="d/x", layout={}, handles=7), [memory])
    peer.send_raw(register(3, "d/ok"), [memory])
    assert peer.recv_message()["error"]["data"]["kind"] in ("method", "invalid")
    assert peer.recv_message()["error"]["data"]["kind"] == "invalid"
    assert "result" in peer.recv_message()
    assert peer.open_object("d/ok").read() == bytes(8)


def test_split_after_the_first_byte(peer, memory):
    """The descriptor comes with the first byte, the rest of the line in pieces."""
    text = register(1, "d/split")
    peer.send_raw(text[:1], [memory])
    peer.wait_until_read()
    peer.send_raw(text[1:40])
    peer.wait_until_read()
    peer.send_raw(text[40:])
    assert "result" in peer.recv_message()


def test_closing_with_descriptors_under_way(daemon, memory):
    """Cut off midway with descriptors queued: they are closed (the fixture counts them)."""
    for text in (b"{", register(1, "d/cut")[:30], b""):
        peer = daemon.connect()
        if text:
            peer.send_raw(text, [memory] * 3)
        peer.close()
    assert daemon.connect().names() == []


def test_replies_bring_descriptors_once(daemon, peer):
    peer.put("d/a", b"abc")
    reader = daemon.connect()
    ident = reader.request("open", name="d/a")
    reader.request("stats")
    message = reader.recv_message()
    assert message["id"] == ident and len(message["_fds"]) == 1
    assert reader.recv_message()["_fds"] == []


def test_received_descriptors_are_of_the_segments_size(peer):
    result = peer.create("d/size", bytes_layout(1000), b"x" * 1000)
    for segment in peer.segments.values():
        assert os.fstat(segment.fd).st_size == segment.bytes
    peer.call("release", lease=result["lease"])


def test_other_kinds_of_descriptors(daemon, peer, directory):
    """Pipes, sockets, directories, /dev/null: refused by name, and closed."""
    pipe = os.pipe()
    opened = [*pipe, os.open("/dev/null", os.O_RDWR), os.open(directory, os.O_RDONLY)]
    try:
        for i, fd in enumerate(opened):
            peer.send_raw(register(i + 1, "d/kind"), [fd])
            reply = peer.recv_message()
            assert reply["error"]["data"]["kind"] in ("invalid", "unsupported"), reply
    finally:
        for fd in opened:
            os.close(fd)
