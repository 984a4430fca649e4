"""docs/PROTOCOL.md holds: its exchanges are played against a daemon, its tables compared.

In an exchange a line begins with → (to the daemon) or ← (from it) and goes on where the next ones are
indented. In what comes back a string that has … in it, and {…}, stand for anything of their type, and
what differs from run to run (VOLATILE) is not compared.
"""

import json
import pathlib
import re

import pytest

from peer import CODES

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/PROTOCOL.md").read_text()

VOLATILE = {"instance", "session", "created_ms", "pid", "uid", "gid", "age_ms", "idle_ms", "server"}


def exchanges():
    """(whether in a session of its own, [(arrow, text), …]) for each block."""
    for head, body in re.findall(r"```exchange( fresh)?\n(.*?)```", TEXT, re.S):
        messages = []
        for line in body.splitlines():
            if line[:1] in "→←":
                messages.append([line[0], line[1:].strip()])
            else:
                messages[-1][1] += " " + line.strip()
        yield bool(head), [(arrow, text) for arrow, text in messages]


def compare(told, got, path=""):
    if isinstance(told, str) and "…" in told:
        return
    assert type(told) is type(got), (path, told, got)
    if isinstance(told, dict):
        assert set(told) == set(got), (path, set(told) ^ set(got))
        for key in told:
            if key not in VOLATILE:
                compare(told[key], got[key], f"{path}.{key}")
    elif isinstance(told, list):
        assert len(told) == len(got), (path, told, got)
        for i, (one, other) in enumerate(zip(told, got)):
            compare(one, other, f"{path}[{i}]")
    else:
        assert told == got, (path, told, got)


@pytest.mark.host_only("the exchanges speak of host memory")
def test_the_exchanges(daemon):
    main, count = daemon.connect(), 0
    for fresh, messages in exchanges():
        peer = daemon.connect() if fresh else main
        for arrow, text in messages:
            if arrow == "→":
                peer.send_raw(text.encode() + b"\n")
                continue
            message = peer.recv_message()
            fds = len(message.pop("_fds"))
            if fds:
                message["fds"] = fds
            told = json.loads(re.sub(r"\{…\}", '"…"', text))
            assert told.pop("fds", 0) == message.pop("fds", 0)
            compare(told, message)
            count += 1
    assert count > 10


def test_the_limits():
    header = re.findall(r'^\s+X\((\w+), (\d+), "(.*)"\)', (ROOT / "proto/limits.h").read_text(), re.M)
    table = re.findall(r"^\| `(\w+)` ?\*? \| ([\d ]+) \|", TEXT.split("\n## Limits")[1], re.M)
    assert [(n, v.replace(" ", "")) for n, v in table] == [(n, v) for n, v, _ in header]


def test_which_limits_can_be_changed(daemon_factory):
    """Just those with an asterisk."""
    rows = re.findall(r"^\| `(\w+)` ?(\*?) \|", TEXT.split("\n## Limits")[1], re.M)
    changeable = [name for name, star in rows if star]
    options = []
    for name in changeable:
        options += ["--limit", f"{name}=3000000"]
    limits = daemon_factory(*options).connect().call("hello", protocol=1)["limits"]
    assert {n for n in limits if limits[n] == 3000000} == set(changeable)
    for name, star in rows:
        if not star:
            with pytest.raises(AssertionError, match="cannot be changed"):
                daemon_factory("--limit", f"{name}=100000")


def test_the_errors():
    table = re.findall(r"^\| −(\d+) \| `(\w+)` \|", TEXT.split("\n## Errors")[1], re.M)
    assert {kind: -int(code) for code, kind in table} == CODES
    protocol = json.loads((ROOT / "proto/protocol.json").read_text())
    assert {error["kind"]: error["code"] for error in protocol["errors"]} == CODES


def test_every_method_has_its_section():
    methods = json.loads((ROOT / "proto/protocol.json").read_text())["methods"]
    section = TEXT.split("\n## Methods")[1].split("\n## ")[0]
    told = [n for head in re.findall(r"^### (.*)$", section, re.M) for n in head.split(", ")]
    assert told == [m["name"] for m in methods]
    for method in methods:
        (body,) = [b for b in section.split("\n### ") if method["name"] in b.split("\n")[0].split(", ")]
        for param in method["params"]:
            assert f"`{param['name']}" in body or "As `create`" in body, (method["name"], param)


def test_every_type_is_there():
    types = json.loads((ROOT / "proto/protocol.json").read_text())["dtypes"]
    section = TEXT.split("\n### Types")[1].split("\n### ")[0]
    missing = [t["name"] for t in types if t["name"] not in section]
    assert missing in ([], ["uint16", "uint32"])  # said as `uint8` … `uint64`


def test_the_manual_page():
    """gpubuf-protocol(7) names every method, notification and type."""
    protocol = json.loads((ROOT / "proto/protocol.json").read_text())
    manual = (ROOT / "docs/man/gpubuf-protocol.7.scd").read_text()
    table = manual.split("\n## Methods")[1].split("\n\nThe daemon sends")[0]
    assert sorted(re.findall(r"\*(\w+)\*", table)) == sorted(method["name"] for method in protocol["methods"])
    told = re.findall(r"\*([\w.]+)\*", manual.split("\n\nThe daemon sends")[1].split("\n\n")[0])
    assert set(told) - {"unmap"} == {notification["name"] for notification in protocol["notifications"]}
    types = set(re.findall(r"_([a-z]\w*?)(?:[\[(].*?[\])])?_(?=\W)", manual.split("\nThe type D")[1].split("\n\n")[0]))
    meant = {"int16", "int32", "uint16", "uint32"}  # said as _int8_ to _int64_
    assert types | meant == {dtype["name"] for dtype in protocol["dtypes"]}
