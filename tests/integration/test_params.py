"""Every method of proto/protocol.json × every way to get its params wrong.

The daemon must hold to the table's row of a param (type, bounds, words), and the message must begin
with the param's path.
"""

import json
import os

import pytest

import device as test_device
from described import METHODS
from peer import Peer, bytes_layout

PARAMS = [(name, param["name"]) for name, method in METHODS.items() for param in method["params"]]

REGISTERED = {
    "layout": {**bytes_layout(8), "data": {"handle": 0, "offset": 0, "bytes": 8}},
    "handles": [test_device.handle(test_device.LEAST)],
}

# For each method, params that would be well-formed; what names nothing is made by `ready`.
GOOD = {
    "hello": {"protocol": 1, "client": "x", "cache": False},
    "create": {"name": "new", "layout": bytes_layout(8), "device": test_device.ID, "share": "fd",
               "mode": "0600", "replace": True, "ttl_ms": 1000000, "evict": "keep", "final": False,
               "wait_ms": 1},
    "seal": {"lease": "UNSEALED", "release": False},
    "settle": {"objects": [{"name": "there", "version": "VERSION"}]},
    "open": {"name": "there", "version": "VERSION", "wait_ms": 1, "segments": "all"},
    "release": {"lease": "LEASE"},
    "register": {"name": "registered", "device": test_device.ID, "share": "fd", "mode": "0600",
                 "replace": True, "ttl_ms": 1000000, "evict": "keep",
                 "wait_ms": 1, **REGISTERED},
    "alias": {"name": "another", "of": "there", "slice": {"offset": 0, "length": 1},
              "mode": "0600", "replace": True},
    "cache": {"leases": [], "used": True},
    "join": {"lease": "STREAM", "hold": 1, "lag": 2, "since": 0},
    "delete": {"name": "there", "version": "VERSION"},
    "list": {"prefix": "a", "limit": 3, "placements": True},
    "stat": {"name": "there"},
    "set": {"name": "there", "version": "VERSION", "ttl_ms": 3600000, "pinned": False},
    "move": {"name": "there", "version": "VERSION", "tier": "device", "wait_ms": 0},
    "leases": {"name": "there"},
    "unmap": {"segments": []},
    "trim": {"device": test_device.ID},
    "watch": {"prefix": "x", "kinds": ["sealed"], "existing": False, "placements": True},
    "unwatch": {"watch": "WATCH"},
    "provide": {"prefix": "x/", "end": False},
    "decline": {"request": "REQUEST", "kind": "unavailable", "message": "m"},
    "segments": {"cursor": 0},
    "sessions": {"cursor": 0},
    "stats": {},
    "describe": {},
}

# One of a pair excludes the other: the pair's second is tried in its place.
INSTEAD = {
    ("open", "names"): ("name", ["there"]),
    ("delete", "names"): ("name", ["there"]),
    ("release", "leases"): ("lease", ["LEASE"]),
}


@pytest.fixture(scope="module")
def memory():
    fd, _ = test_device.own_memory(bytes(4096))
    yield fd
    os.close(fd)


@pytest.fixture
def ready(shared_daemon, shared_peer, memory):
    """ready(method): (params that succeed, descriptors), with what they speak of made first."""
    peer, known = shared_peer, {}

    def make(word):
        if word not in known:
            if word == "UNSEALED":
                known[word] = peer.create("unsealed", bytes_layout(8), replace=True)["lease"]
            elif word == "LEASE":
                known[word] = peer.open_object("there").lease
            elif word == "STREAM":
                stream = {"kind": "array", "dtype": "uint8", "shape": [8, 64]}
                peer.call("release", lease=peer.call("create", name="stream", layout=stream, live=True)["lease"])
                known[word] = peer.call("open", name="stream")["lease"]
            elif word == "WATCH":
                known[word] = peer.call("watch", prefix="nothing", kinds=["evicted"])["watch"]
            elif word == "REQUEST":
                peer.call("provide", prefix="wanted/")
                name = f"wanted/{len(shared_daemon.peers)}"
                shared_daemon.connect().request("open", name=name, wait_ms=600_000)
                known[word] = peer.notification("wanted")["params"]["request"]
        return known[word]

    def fill(value):
        if isinstance(value, list):
            return [fill(v) for v in value]
        if isinstance(value, dict):
            return {k: fill(v) for k, v in value.items()}
        return make(value) if isinstance(value, str) and value.isupper() else value

    # By another session, since hello has to be the first call of this one.
    with Peer(shared_daemon.path) as other:
        known["VERSION"] = other.put("there", b"12345678", replace=True)
        for name in ("new", "registered", "another", "stream"):
            if name in other.names():
                other.call("delete", name=name)

    def run(method):
        fds = [memory] if METHODS[method]["fds"] == "request" else []
        return {k: fill(v) for k, v in GOOD[method].items()}, fds

    run.fill = fill
    yield run
    if "STREAM" in known:  # the end of a session would not end a part in it: this process lives
        peer.call("release", lease=known["STREAM"])


def test_all_methods_are_here():
    assert set(GOOD) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_well_formed(shared_peer, ready, method):
    params, fds = ready(method)
    assert isinstance(shared_peer.call(method, fds=fds, **params), dict)  # of the members that described.py checks


@pytest.mark.parametrize("method", METHODS)
def test_only_required_params(shared_peer, ready, method):
    params, fds = ready(method)
    required = {p["name"] for p in METHODS[method]["params"] if p["required"]}
    if (method, "names") in INSTEAD or (method, "leases") in INSTEAD:
        required |= {"name", "lease"}
    answer = shared_peer.call(method, fds=fds, **{k: v for k, v in params.items() if k in required})
    assert isinstance(answer, dict)


@pytest.mark.parametrize("method", METHODS)
def test_unknown(shared_peer, ready, method):
    for name in ("nonsense", "Name", "name ", "", "jsonrpc", "méthode"):
        params, fds = ready(method)
        params[name] = 1
        error = shared_peer.error("invalid", method, fds=fds, **params)
        assert error.message.startswith("params"), error.message
        assert name in error.message


def next_reply(peer):
    """The next message that is no notification."""
    message = peer.recv_message()
    while "method" in message:
        message = peer.recv_message()
    return message


@pytest.mark.parametrize("method", METHODS)
def test_no_params_at_all(shared_peer, method):
    """Refused just where something is required."""
    required = any(p["required"] for p in METHODS[method]["params"])
    one_of = any(m == method for m, _ in INSTEAD)
    for rest in ("", ',"params":{}'):
        text = f'{{"jsonrpc":"2.0","id":1,"method":"{method}"{rest}}}\n'
        shared_peer.send_raw(text.encode())
        message = next_reply(shared_peer)
        if required or one_of:
            assert message["error"]["data"]["kind"] == "invalid", message
            assert message["error"]["message"].startswith("params"), message
        else:
            assert "result" in message, message


@pytest.mark.parametrize("method,param", [
    (m, p["name"]) for m in METHODS for p in METHODS[m]["params"] if p["required"]])
def test_missing(shared_peer, ready, method, param):
    params, fds = ready(method)
    del params[param]
    error = shared_peer.error("invalid", method, fds=fds, **params)
    assert error.message.startswith(f"params.{param}: "), error.message


def good_value(ready, method, param):
    """(params with a good value of `param`, descriptors), or None if we know none."""
    params, fds = ready(method)
    if (method, param) in INSTEAD:
        other, value = INSTEAD[(method, param)]
        params.pop(other)
        params.pop("version", None)
        params[param] = ready.fill(value)
    return params, fds


@pytest.mark.parametrize("method,param", PARAMS)
def test_twice(shared_peer, ready, method, param):
    params, fds = good_value(ready, method, param)
    value = json.dumps(params.pop(param, None))
    rest = "".join(f",{json.dumps(k)}:{json.dumps(v)}" for k, v in params.items())
    count = f',"fds":{len(fds)}' if fds else ""
    text = (f'{{"jsonrpc":"2.0","id":1,"method":"{method}"{count},'
            f'"params":{{"{param}":{value},"{param}":{value}{rest}}}}}\n')
    shared_peer.send_raw(text.encode(), fds)
    message = next_reply(shared_peer)
    assert message["error"]["data"]["kind"] == "invalid", message
    assert message["error"]["message"].startswith(f"params.{param}"), message


TYPES = {"null": None, "true": True, "1": 1, "1.5": 1.5, "1e300": 1e300, "text": "x", "[]": [],
         "{}": {}, "[[]]": [[]], "[{}]": [{}], "[null]": [None]}


def wrong_values(param):
    """Values of another type than the param's."""
    kind = param["type"]
    for name, value in TYPES.items():
        if kind == "integer" and name == "1":
            continue
        if kind == "boolean" and name == "true":
            continue
        if kind == "string" and name == "text":
            continue
        if kind.startswith("array") and name == "[]":
            continue
        if kind in ("object", "layout") and name == "{}":
            continue
        yield value


@pytest.mark.parametrize("method,param", PARAMS)
def test_wrong_type(shared_peer, ready, method, param):
    told = next(p for p in METHODS[method]["params"] if p["name"] == param)
    for value in wrong_values(told):
        params, fds = good_value(ready, method, param)
        params[param] = value
        error = shared_peer.error("invalid", method, fds=fds, **params)
        assert error.message.startswith(f"params.{param}"), (value, error.message)


@pytest.mark.parametrize("method,param", PARAMS)
def test_out_of_range(shared_peer, ready, method, param):
    told = next(p for p in METHODS[method]["params"] if p["name"] == param)
    bad = []
    if told["type"] == "integer":
        bad += [-1, -(1 << 63), 1 << 52, 1 << 53, 1 << 63, 1 << 64, 10**30]
        bad += [told["min"] - 1] if "min" in told else []
        bad += [told["max"] + 1] if "max" in told else []
    elif told["type"] == "string":
        bad += ["x" * (told["max"] + 1)] if "max" in told else []
        bad += [""] if told.get("min") else []
        bad += ["", "x", told["values"][0].upper(), told["values"][0] + " "] \
            if "values" in told else []
    elif told["type"].startswith("array") and "max" in told and told["max"] < 10000:
        item = {"array of string": "x", "array of integer": 1}.get(told["type"], {})
        bad.append([item] * (told["max"] + 1))
    for value in bad:
        if (method, value) == ("leases", ""):
            continue  # nothing is leased by that name
        params, fds = good_value(ready, method, param)
        params[param] = value
        # A protocol that is not spoken is `unsupported`; where an object is looked for, what cannot be a
        # name is merely not there.
        kinds = ("invalid", "unsupported") if param == "protocol" else ("invalid",)
        if value == "" and "values" not in told:
            kinds += ("not_found", "timeout")
        error = shared_peer.error(kinds, method, fds=fds, **params)
        assert param in error.message or "not_found" in kinds, (value, error.message)


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m]["fds"] != "request"])
def test_descriptors_that_the_method_does_not_take(shared_peer, ready, memory, method):
    """Counted right, but unwanted: refused, closed, and the session in step."""
    params, _ = ready(method)
    shared_peer.request(method, fds=[memory], **params)
    assert next_reply(shared_peer)["error"]["data"]["kind"] == "invalid"
    assert shared_peer.call("stats")


@pytest.mark.parametrize("method", METHODS)
def test_cut_off_midway(shared_daemon, ready, method):
    """The client dies after any part of the request: nothing happens, and nothing leaks."""
    params, fds = ready(method)
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if fds:
        message["fds"] = len(fds)
    text = json.dumps(message).encode()
    for at in (1, len(text) // 3, len(text) // 2, len(text) - 1, len(text)):
        peer = shared_daemon.connect()
        peer.send_raw(text[:at], fds)
        peer.close()
    assert shared_daemon.connect().call("stats")


@pytest.mark.parametrize("method", METHODS)
def test_dead_before_the_reply(shared_daemon, ready, method):
    params, fds = ready(method)
    params = {k: v for k, v in params.items() if k not in ("lease", "watch")} \
        if method in ("seal", "release", "unwatch") else params
    peer = shared_daemon.connect()
    peer.request(method, fds=fds, **params)
    peer.close()
    assert shared_daemon.connect().call("stats")
