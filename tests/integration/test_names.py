"""Names that no object can have: refused at once, wherever a name is asked for."""

import time

import pytest

from peer import bytes_layout

IMPOSSIBLE = ["", "a\n"]  # unit/test_layout_parts.c has every way
LAYOUT = bytes_layout(1)
SLICE = {"offset": 0, "length": 1}
CALLS = {
    "create": ("name", lambda n: ("create", {"name": n, "layout": LAYOUT})),
    "register": ("name", lambda n: ("register", {"name": n, "layout": LAYOUT, "handles": [{}]})),
    "alias": ("name", lambda n: ("alias", {"name": n, "of": "a"})),
    "alias of": ("of", lambda n: ("alias", {"name": "b", "of": n})),
    "alias of, sliced": ("of", lambda n: ("alias", {"name": "b", "of": n, "slice": SLICE})),
    "open": ("name", lambda n: ("open", {"name": n})),
    "open, waiting": ("name", lambda n: ("open", {"name": n, "wait_ms": 600000})),
    "open version": ("name", lambda n: ("open", {"name": n, "version": 1})),
    "open names": ("names[1]", lambda n: ("open", {"names": ["a", n]})),
    "open names, waiting": ("names[2]", lambda n: ("open", {"names": ["a", "none", n],
                                                           "wait_ms": 600000})),
    "stat": ("name", lambda n: ("stat", {"name": n})),
    "why": ("name", lambda n: ("stat", {"name": n, "why": True})),
    "leases": ("name", lambda n: ("leases", {"name": n})),
    "delete": ("name", lambda n: ("delete", {"name": n})),
    "delete names": ("names[0]", lambda n: ("delete", {"names": [n, "none"]})),
    "set": ("name", lambda n: ("set", {"name": n, "pinned": True})),
    "move": ("name", lambda n: ("move", {"name": n})),
    "move back": ("name", lambda n: ("move", {"name": n, "tier": "device", "wait_ms": 600000})),
    "settle": ("objects[0].name", lambda n: ("settle", {"objects": [{"name": n, "version": 1}]})),
    "resume": ("resume.objects[0].name", lambda n: ("hello", {"protocol": 1, "resume": {
        "instance": "x", "objects": [{"name": n, "version": 1}]}})),
}


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=ascii)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_impossible(shared_daemon, shared_peer, call, name):
    place, make = call
    method, params = make(name)
    shared_peer.put("a", b"x", replace=True)
    error = shared_peer.error("invalid", method, **params)
    assert error.message.startswith(f"params.{place}: "), error.message


# Unicode's Default_Ignorable_Code_Point: first and last of each range.
HIDDEN = """ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8
            1bca0-1bca3 1d173-1d17a e0000-e0fff""".split()


def test_characters_that_show_nothing(shared_peer):
    """Two names that differ do not look the same by these; their neighbours show something."""
    for told in HIDDEN:
        first, last = int(told.partition("-")[0], 16), int(told.rpartition("-")[2], 16)
        for hidden in (first, (first + last) // 2, last):
            shared_peer.error("invalid", "create", name=f"a{chr(hidden)}b", layout=LAYOUT)
            shared_peer.error("invalid", "create", name="labelled", label=f"a{chr(hidden)}b", layout=LAYOUT)
        for shown in {first - 1, last + 1} - {0x2029}:  # which separates lines
            shared_peer.error("not_found", "stat", name=f"a{chr(shown)}b")


def test_a_name_that_may_come_is_waited_for(shared_peer):
    """Only a name that can exist is waited for. The daemon's clock has milliseconds."""
    began = time.monotonic()
    shared_peer.error("timeout", "open", name="a/b", wait_ms=50)
    assert time.monotonic() - began >= 0.04
    shared_peer.error("not_found", "open", name="a/b")


def test_prefixes_are_no_names(shared_peer):
    """They are the beginning of one, or of none."""
    shared_peer.put("a/b")
    assert [o["name"] for o in shared_peer.call("list", prefix="a/")["objects"]] == ["a/b"]
    assert shared_peer.call("list", prefix="/")["objects"] == []
    assert shared_peer.call("watch", prefix="a/")
