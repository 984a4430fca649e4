"""list: names in order, by prefix, a page at a time."""

import pytest

NAMES = ["a", "a/b", "a/b/c", "a-", "a0", "ab", "b", "B", "z/1", "z/10", "z/2", "ä", "日本", "😀"]


@pytest.fixture
def filled(peer):
    for name in reversed(NAMES):
        peer.put(name)
    return peer


def ordered(names):
    return sorted(names, key=lambda n: n.encode())


def test_empty(peer):
    assert peer.call("list") == {"seq": 0, "objects": []}


def test_prefix(filled):
    for prefix in ("", "a", "a/", "z/1", "z/", "ä", "日", "none", "b"):
        assert filled.names(prefix) == ordered(n for n in NAMES if n.startswith(prefix)), prefix


def test_members(filled):
    """The members of stat, without the layout."""
    for told in filled.call("list")["objects"]:
        assert "layout" not in told
        full = filled.call("stat", name=told["name"])["object"]
        del full["layout"]
        assert told.pop("idle_ms") <= full.pop("idle_ms")
        assert told == full


@pytest.mark.parametrize("limit, prefix", [(1, None), (5, None), (14, None), (256, None), (2, "a"), (1, "z/")])
def test_pages(filled, limit, prefix):
    expected = ordered(n for n in NAMES if n.startswith(prefix or ""))
    params = {} if prefix is None else {"prefix": prefix}
    got, pages = [], 0
    while True:
        page = filled.call("list", limit=limit, **params)
        pages += 1
        assert len(page["objects"]) <= limit
        got += [o["name"] for o in page["objects"]]
        if "cursor" not in page:
            break
        params["cursor"] = page["cursor"]
        assert page["objects"], "a page without objects, and yet a cursor"
    assert got == expected
    assert pages <= len(expected) // limit + 1


def test_changes_between_pages(filled):
    """Objects that stay are told exactly once, whatever comes and goes meanwhile."""
    page = filled.call("list", limit=5)
    got = [o["name"] for o in page["objects"]]
    stay = set(NAMES)
    for i, name in enumerate([got[0], got[-1], "b"]):
        filled.call("delete", name=name)
        stay.discard(name)
        filled.put(f"a/new/{i}")
    while "cursor" in page:
        page = filled.call("list", limit=3, cursor=page["cursor"])
        got += [o["name"] for o in page["objects"]]
    assert got == ordered(set(got))
    assert stay <= set(got)


def test_more_than_a_page(peer):
    """256 an answer at most, and the default is a page too."""
    names = [f"n/{i:04}" for i in range(603)]
    peer.put("source")
    for ident in [peer.request("alias", name=n, of="source") for n in names]:
        peer.reply(ident)
    page = peer.call("list", prefix="n/", limit=256)
    assert [o["name"] for o in page["objects"]] == names[: len(page["objects"])]
    assert len(page["objects"]) <= 256 and "cursor" in page
    assert peer.names("n/") == names


def test_bad_cursors(filled):
    """Made up, or cut: an error, or a page like any other; never more."""
    cursor = filled.call("list", limit=3)["cursor"]
    for bad in ("", "x", cursor[:-1], cursor + "x", "\x01", "z" * 300, "ü", "'; drop"):
        ident = filled.request("list", cursor=bad)
        message = filled.recv_message()
        assert message["id"] == ident
        if "error" in message:
            assert message["error"]["data"]["kind"] in ("invalid", "stale")
        else:
            names = [o["name"] for o in message["result"]["objects"]]
            assert names == ordered(names) and set(names) <= set(NAMES)
