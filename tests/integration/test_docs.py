"""docs/PROTOCOL.md and its two further pages hold: their exchanges are played against a daemon, their tables compared.

In an exchange a line begins with → (to the daemon) or ← (from it) and goes on where the next ones are
indented. In what comes back a string that has … in it, and {…}, stand for anything of their type, and
what differs from run to run (VOLATILE) is not compared.
"""

import json
import pathlib
import re

import pytest

import described
from described import METHODS, NOTIFICATIONS, STRUCTURES
from peer import CODES, Closed, bytes_layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [(ROOT / f"docs/PROTOCOL{page}.md").read_text() for page in ("", "-METHODS", "-SPACE")]
TEXT = "\n".join(PAGES)

SECTIONS = {name: body.split("\n## ")[0] for body in PAGES[1].split("\n### ")[1:] for name in body.split("\n")[0].split(", ")}

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
    header = re.findall(r'^\s+X\((\w+), (\d+), "(.*)"\)', (ROOT / "proto/base/limits.h").read_text(), re.M)
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
    assert {error["kind"]: error["code"] for error in described.PROTOCOL["errors"]} == CODES


def test_every_method_has_its_section():
    assert list(SECTIONS) == list(METHODS)


def paragraphs(name):
    """Those of a method's section, each in one line, without links and what is in parentheses."""
    for text in SECTIONS[name].split("\n\n")[1:]:
        yield re.sub(r"\([^()]*\)", "", " ".join(text.split("\n")))


def params_told(name):
    """{param: whether it is required}, from the paragraph that has them."""
    alone = SECTIONS[name].split("\n")[0] == name
    texts = list(paragraphs(name))
    shared = not alone and not any(text.startswith(f"`{name}`: ") for text in texts)
    (text,) = [t.removeprefix(f"`{name}`: ") for t in texts if t.startswith(f"`{name}`: ")] or texts[:1]
    assert alone or shared or len(texts) > 1
    told = {}
    for item in text.split(" Result:")[0].split(" · "):
        one = re.match(r"`(\w+)(\??)`(?: or `(\w+)\??`)?", item)
        assert one or text.startswith("No params."), (name, item)
        if one:
            told[one[1]] = not one[2] and not one[3]
            told.update({one[3]: False} if one[3] else {})
    return told


@pytest.mark.parametrize("name", METHODS)
def test_the_params_of_each_method(name):
    assert params_told(name) == {param["name"]: param["required"] for param in METHODS[name]["params"]}


@pytest.mark.parametrize("name", METHODS)
def test_the_errors_of_each_method(name):
    alone = SECTIONS[name].split("\n")[0] == name
    label = "Errors: " if alone or "Errors: " in SECTIONS[name] else f"Errors of `{name}`: "
    lists = [part.split(".")[0] for text in paragraphs(name) for part in text.split(label)[1:]]
    expected = set(METHODS[name]["errors"])
    assert len(lists) == 1 or not expected and not lists, (name, lists)
    assert {kind for one in lists for kind in re.findall(r"`(\w+)`", one)} == expected


def test_the_errors_that_all_methods_share():
    text = " ".join(PAGES[1].split("\n\n- ")[0].split()).split("any may end with")[1]
    assert set(re.findall(r"`(\w+)`", text)) == described.COMMON_ERRORS


@pytest.mark.parametrize("name", METHODS)
def test_the_result_of_each_method(name):
    """Every member is there, and of lists in shorthand every member of an entry."""
    shorthands = [re.findall(r'"(\w+)"(?::|[,}\?])', text) for text in re.findall(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", SECTIONS[name])]
    for member in METHODS[name]["result"]:
        if member["name"] == "...":
            continue
        assert re.search(rf'["`]{member["name"]}["`]', SECTIONS[name]), member
        inner = described.shorthand(member["text"])
        if inner and member["type"].startswith("array") and member["name"] not in ("families", "reasons"):
            told = [one["name"] for one in inner]
            assert any(set(told) <= set(short) for short in shorthands), (member, shorthands)


def table_after(header):
    """{name: the row's other cells} of the table that begins so."""
    rows = TEXT.split(f"\n{header}\n")[1].split("\n\n")[0].splitlines()[1:]
    told = {}
    for row in rows:
        name, *cells = row.strip("| ").split(" | ")
        told.update({one: cells for one in re.findall(r"`([\w.]+\??)`", name)})
    return told


def test_the_members_of_objects_and_devices():
    """A member that may be missing has a question mark."""
    for header, structure in (("| member | |", "object"), ("| member of a device | |", "device")):
        told, members = table_after(header), STRUCTURES[structure]
        assert set(told) == {member["name"] + "?" * bool(member.get("optional")) for member in members}


def test_the_notifications():
    told = table_after("| method | params | |")
    assert list(told) == list(NOTIFICATIONS)
    for name, params in NOTIFICATIONS.items():
        assert re.findall(r"`(\w+\??)`", told[name][0]) == [
            param["name"] + "?" * bool(param.get("optional")) for param in params], name


def test_the_kinds_of_events():
    (kinds,) = [param["values"] for param in NOTIFICATIONS["event"] if param["name"] == "kind"]
    assert list(table_after("| kind of event | |")) == kinds


def test_where_the_socket_is():
    text = TEXT.split("\n**Where is the socket?**")[1].split("The daemon learns")[0]
    told = re.findall(r"`([$/][\w$/.]+)`", text)
    assert told == described.PROTOCOL["transport"]["path"]


def test_what_is_past_each_limit():
    rows = re.findall(r"^\| `(\w+)` ?\*? \| [\d ]+ \| `?([a-z ]+)`? \|", TEXT.split("\n## Limits")[1], re.M)
    assert rows == [(limit["name"], limit["past"]) for limit in described.PROTOCOL["limits"]]
    values = {limit["value"] for limit in described.PROTOCOL["limits"] if limit["past"] == "invalid"}
    largest = {param["max"] for method in METHODS.values() for param in method["params"] if "max" in param}
    assert values <= largest


LONG = "x" * 256
COLUMN = {"dtype": "int8", "length": 1}
TABLE = {"kind": "table", "length": 1}
PAST = {
    "request_bytes": ("list", {"prefix": "x" * 65536}),
    "name_bytes": ("create", {"name": LONG, "layout": bytes_layout(1)}),
    "label_bytes": ("create", {"name": "a", "layout": bytes_layout(1), "label": LONG}),
    "keep": ("create", {"name": "a", "layout": bytes_layout(1), "keep": 9}),
    "decline_bytes": ("decline", {"request": 1, "message": "x" * 501}),
    "names": ("open", {"names": ["a"] * 65}),
    "ids": ("release", {"leases": [1] * 257}),
    "columns": ("create", {"name": "a", "layout": {**TABLE, "columns": [
        {"name": str(i), **COLUMN} for i in range(4097)]}}),
    "ndim": ("create", {"name": "a", "layout": {"kind": "array", "dtype": "int8", "shape": [1] * 33}}),
    "metadata_pairs": ("create", {"name": "a", "layout": {**TABLE, "columns": [], "metadata": {
        str(i): "" for i in range(257)}}}),
    "wait_ms": ("open", {"name": "a", "wait_ms": 86400001}),
    "list": ("list", {"limit": 257}),
    "integer": ("unmap", {"segments": [1 << 52]}),
}


def nested(depth):
    return {"dtype": "struct", "length": 1, "children": [{"name": "c", **nested(depth - 1)}] if depth > 1 else []}


@pytest.mark.parametrize("limit", [*PAST, "layout_depth", "depth", "line_bytes", "fds", "pending_fds", "alias_text"])
def test_each_limit_of_the_protocol(daemon, limit):
    """Past it happens what the table says."""
    (past,) = [one["past"] for one in described.PROTOCOL["limits"] if one["name"] == limit]
    peer = daemon.connect()
    if past == "ends":
        check_that_it_ends(peer, limit)
    elif limit == "depth":
        peer.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"list","params":' + b"[" * 40 + b"]" * 40 + b"}\n")
        assert peer.recv_message()["error"]["data"]["kind"] == past
        assert peer.call("stats")
    elif limit == "alias_text":
        check_alias_text(peer, past)
    else:
        method, params = PAST.get(limit) or ("create", {"name": "a", "layout": {"kind": "column", **nested(13)}})
        error = peer.error(past, method, **params)
        assert error.data.get("limit") == (limit if past == "limit" else None)
        assert past == "limit" or error.message.startswith("params."), error.message
        assert peer.call("stats")


def check_that_it_ends(peer, limit):
    if limit == "line_bytes":
        peer.send_raw(b" " * (1 << 20) + b"\n")
    elif limit == "fds":
        peer.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"list","fds":17}\n', [0] * 17)
    else:
        for _ in range(5):
            peer.send_raw(b" ", [0] * 16)
    with pytest.raises((Closed, ConnectionError)):
        while True:
            peer.recv_message()


def check_alias_text(peer, past):
    column = {"name": "a", **COLUMN, "metadata": {"m": "x" * 900000}}
    peer.create_object("a", {**TABLE, "columns": [column]})
    for i in range(2):
        peer.call("alias", name=f"b{i}", of="a")
    assert peer.error(past, "alias", name="c", of="a").data["limit"] == "alias_text"


def test_how_many_objects_are_resumed_at_a_time(daemon):
    (told,) = re.findall(r"If there are more than (\d+) objects, send `hello` again", " ".join(TEXT.split()))
    peer = daemon.connect()
    instance = peer.call("hello", protocol=1)["instance"]
    objects = [{"name": "a", "version": 1}] * int(told)
    resume = {"instance": instance, "objects": objects}
    assert peer.call("hello", protocol=1, resume=resume)["resumed"] == [None] * int(told)
    resume["objects"] = [*objects, objects[0]]
    assert "expected at most" in peer.error("invalid", "hello", protocol=1, resume=resume).message


def test_every_type_is_there():
    section = TEXT.split("\n### Types")[1].split("\n### ")[0]
    missing = [t["name"] for t in described.PROTOCOL["dtypes"] if t["name"] not in section]
    assert missing in ([], ["uint16", "uint32"])  # said as `uint8` … `uint64`


def test_the_manual_page():
    """gpubuf-protocol(7) names every method, notification and type."""
    protocol = described.PROTOCOL
    manual = (ROOT / "docs/man/gpubuf-protocol.7.scd").read_text()
    table = manual.split("\n## Methods")[1].split("\n\nThe daemon sends")[0]
    assert sorted(re.findall(r"\*(\w+)\*", table)) == sorted(method["name"] for method in protocol["methods"])
    told = re.findall(r"\*([\w.]+)\*", manual.split("\n\nThe daemon sends")[1].split("\n\n")[0])
    assert set(told) - {"unmap"} == {notification["name"] for notification in protocol["notifications"]}
    types = set(re.findall(r"_([a-z]\w*?)(?:[\[(].*?[\])])?_(?=\W)", manual.split("\nThe type D")[1].split("\n\n")[0]))
    meant = {"int16", "int32", "uint16", "uint32"}  # said as _int8_ to _int64_
    assert types | meant == {dtype["name"] for dtype in protocol["dtypes"]}
