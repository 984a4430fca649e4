"""describe: the protocol as the daemon knows it is the protocol as it is written down."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_describe_is_protocol_json(peer):
    assert peer.call("describe") == json.loads((ROOT / "proto/protocol.json").read_text())


def test_every_method_that_is_described_exists(peer):
    for name in [method["name"] for method in peer.call("describe")["methods"]]:
        message = peer.request(name, surely_no_such_param=1)
        try:
            peer.reply(message)
        except Exception as error:
            assert error.kind == "invalid", (name, error)
        else:
            raise AssertionError(f"{name} takes an unknown param")
