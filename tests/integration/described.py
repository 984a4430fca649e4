"""The daemon's messages, held against proto/protocol.json: the members of results, notifications, objects, leases
and devices, and which errors a method may end with. `Peer` has every message checked."""

import json
import pathlib
import re

PROTOCOL = json.loads((pathlib.Path(__file__).resolve().parents[2] / "proto/protocol.json").read_text())
METHODS = {method["name"]: method for method in PROTOCOL["methods"]}
NOTIFICATIONS = {one["name"]: one["params"] for one in PROTOCOL["notifications"]}
STRUCTURES = {one["name"]: one["members"] for one in PROTOCOL["structures"]}
COMMON_ERRORS = set(PROTOCOL["common_errors"])
BRIEF = {"name", "version", "label", "keep", "live", "device", "layout", "ready", "foreign", "final"}


def shorthand(text):
    """{"a","b"?} at the beginning of a text, as a list of members."""
    body = re.match(r"\{(.*?)\}", text)
    return [{"name": name, "optional": bool(mark)} for name, mark in re.findall(r'"(\w+)"(\??)', body[1])] if body else None


def check_members(told, got, what, missing=()):
    """`told` are members of the description; `missing` are some that need not be there."""
    names = {member["name"] for member in told}
    needed = {member["name"] for member in told if not member.get("optional")}
    assert set(got) <= names, f"{what} has {sorted(set(got) - names)}, which is not described"
    assert needed <= set(got) | set(missing), f"{what} lacks {sorted(needed - set(got))}"


def check_object(got, what):
    if set(got) <= BRIEF:
        return
    check_members(STRUCTURES["object"], got, f"the object of {what}")


def check_granted(got, what):
    """An entry of `objects`, or the result of `open`."""
    if "object" in got:
        check_object(got["object"], what)


def check_result(method, result):
    told = METHODS[method]["result"]
    if told and told[0]["name"] == "...":  # open-ended
        return
    check_members(told, result, f"the result of {method}")
    check_granted(result, method)
    for one in result.get("objects", []):
        if method == "list":
            check_object(one, method)
        elif "error" not in one:
            check_members(STRUCTURES["lease"], one, f"an entry of {method}")
            check_granted(one, method)
    for device in result.get("devices", []):
        check_members(STRUCTURES["device"], device, "a device")
    for member in told:
        inner = shorthand(member["text"])
        for one in result.get(member["name"], []) if inner and member["type"] == "array" else []:
            if member["name"] not in ("objects", "reasons", "families"):
                check_members(inner, one, f"an entry of {member['name']} of {method}")


def check_reply(method, message):
    if method not in METHODS:
        return
    if "error" in message:
        kind = message["error"]["data"]["kind"]
        assert kind in COMMON_ERRORS | set(METHODS[method]["errors"]), (
            f"{method} ends with {kind}, which is not described: {message['error']['message']}")
    else:
        check_result(method, message["result"])


def check_notification(message):
    told = NOTIFICATIONS[message["method"]]
    check_members(told, message["params"], message["method"])
    if "object" in message["params"]:
        check_object(message["params"]["object"], message["method"])
