"""Gateways, as tests of more than one file want them: fixtures that start one, and what makes it work."""

import json
import shutil
import tempfile

import pytest

import conftest
from http_client import get


@pytest.fixture
def served(daemon, gateway):
    """A daemon with a gateway that asks for no token; its port is `served.port`."""
    daemon.gateway = gateway(daemon, "--http", "127.0.0.1:0")
    daemon.port = daemon.gateway.port
    return daemon


@pytest.fixture(scope="module")
def shared_served():
    """One gateway for many cases of a file; some wait for the end of half a request."""
    path = tempfile.mkdtemp(prefix="gpubuf-")
    daemon = conftest.Daemon(path, [])
    gateway = conftest.Gateway(path, daemon.path, ["--http", "127.0.0.1:0"], haste=1)
    daemon.port = gateway.port
    yield daemon
    try:
        gateway.stop()
        daemon.stop()
    finally:
        gateway.kill()
        daemon.kill()
        shutil.rmtree(path, ignore_errors=True)


def pipelined(peer, requests):
    """Sends many requests at a time, then reads their replies."""
    requests = list(requests)
    for first in range(0, len(requests), 500):
        idents = [peer.request(method, **params) for method, params in requests[first:first + 500]]
        for ident in idents:
            peer.reply(ident)


def flood(peer, method, count, **params):
    """The same request so often, without looking at the replies."""
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).encode()
    for _ in range(count // 500):
        peer.socket.sendall((line + b"\n") * 500)
        left = 500
        while left:
            data = peer.socket.recv(1 << 20)
            assert data and b'"error"' not in data
            left -= data.count(b"\n")


def aliases(peer, names, **params):
    """Many names for a little: each base has as many as one object may have, by their text."""
    names = list(names)
    for first in range(0, len(names), 4000):
        base = f"base{first or ''}"
        peer.put(base, mode="0604")
        pipelined(peer, (("alias", dict(name=name, of=base, mode="0604", **params))
                         for name in names[first:first + 4000]))


def metric(port, name):
    for line in get(port, "/metrics").text.splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise AssertionError(f"no metric {name}")
