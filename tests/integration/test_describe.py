"""describe: the protocol as the daemon knows it is the protocol as it is written down."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]

METHODS = {
    "hello", "create", "seal", "settle", "abort", "open", "release", "keep", "register", "alias",
    "delete", "list", "stat", "pin", "unpin", "expire", "spill", "restore",
    "why", "leases", "unmap", "trim", "watch", "unwatch", "provide", "decline", "segments", "sessions", "stats", "metrics",
    "describe",
}


def test_describe_is_protocol_json(peer):
    assert peer.call("describe") == json.loads((ROOT / "proto/protocol.json").read_text())


def test_every_method_is_described_and_exists(peer):
    methods = peer.call("describe")["methods"]
    names = set(methods) if isinstance(methods, dict) else {m["name"] for m in methods}
    assert names == METHODS
    for name in names:
        message = peer.request(name, surely_no_such_param=1)
        try:
            peer.reply(message)
        except Exception as error:
            assert error.kind == "invalid", (name, error)
        else:
            raise AssertionError(f"{name} takes an unknown param")
