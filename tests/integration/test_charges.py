"""Everything held is charged to somebody: memory that is deleted and mapped, text, leases, and what readers keep.

The attackers and those beside them are users of their own.
"""

import pytest

from peer import RpcError, bytes_layout
from restarts import supervised  # noqa: F401  (a fixture)

MIB = 1 << 20
MODES = [f"0{a}{b}{c}" for a in "6420" for b in "640" for c in "40"][:16]
A, B, C = 1001, 1002, 1003

pytestmark = [pytest.mark.root, pytest.mark.host_only("sizes of host memory")]


def account(peer, uid):
    """A user's bytes as `stats` shows them: used, nameless, held, pinned_by_clients."""
    (user,) = [u for u in peer.call("stats")["users"] if u["uid"] == uid]
    (bytes_,) = user["bytes"]
    return bytes_ | {name: user[name]["used"] for name in ("objects", "leases", "text_bytes")}


def refused(peer, limit, method, /, **params):
    error = peer.error("limit", method, **params)
    assert error.data["limit"] == limit, error
    return error.message


def adds_up(daemon):
    """The users' sum is the memory that the device has given, to the byte."""
    stats = daemon.connect().call("stats")
    (place,) = stats["devices"]
    held = sum(user["bytes"][0]["held"] for user in stats["users"])
    return held == place["used"] + place["retained"] + place["pinned_by_clients"]


# ---- what is deleted and still mapped ----

def hoard(peer, size, small=0):
    """Takes memory until it is refused, by deleting without unmapping, in domains of its own; how many times."""
    done = 0
    for mode in MODES:
        try:
            peer.create_object(f"h/{mode}", bytes_layout(size), mode=mode)
        except RpcError as error:
            assert error.kind == "limit" and error.data["limit"] == "user_bytes", error
            continue
        peer.call("delete", name=f"h/{mode}")
        if small:
            peer.create_object(f"small/{mode}", bytes_layout(small), mode=mode)
        done += 1
    return done


@pytest.mark.parametrize("small", (0, 100))
def test_a_quota_bounds_what_is_held(daemon_factory, small):
    """Deleted and mapped, or free beside something small: a device of 64 MiB stays everybody's."""
    daemon = daemon_factory("--quota", "default:bytes=8M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    assert hoard(b, 8 * MIB, small) == 1
    assert account(b, B)["held"] <= 8 * MIB and account(b, B)["used"] < MIB
    assert (account(b, B)["pinned_by_clients"] > 0) == (not small)
    assert adds_up(daemon)
    for i in range(4):
        a.create_object(f"a/{i}", bytes_layout(2 * MIB))
    assert account(a, A)["held"] == 8 * MIB
    told = b.call("leases")["mapped"]
    assert told and all(entry["uid"] == B for entry in told)
    b.unmap()
    assert hoard(b, 4 * MIB) == (1 if small else 2)
    assert adds_up(daemon)


def test_who_unmaps_goes_on_for_ever(daemon_factory):
    """Within a quota of twice an object, from domain to domain: what is empty goes back first."""
    daemon = daemon_factory("--quota", "default:bytes=8M")
    b = daemon.connect_as(B, B)
    for round_ in range(3):
        for mode in MODES:
            name = f"{round_}/{mode}"
            ident = b.request("create", name=name, layout=bytes_layout(4 * MIB), mode=mode)
            while ident not in b.replies:
                message = b.recv_message()
                if "method" not in message:
                    b.replies[message["id"]] = message
                elif wanted := {*message["params"]["segments"]} & {ident for ident, _ in b.segments}:
                    b.unmap(*wanted)
            b.call("seal", lease=b.reply(ident)["lease"], release=True)
            b.call("delete", name=name)
    assert account(b, B)["used"] == 0 and account(b, B)["held"] <= 8 * MIB
    assert adds_up(daemon)


def test_the_whole_quota_is_of_use(daemon_factory):
    """A small object leaves room for a large one, and free pieces are used at the limit."""
    daemon = daemon_factory("--quota", "default:bytes=16M")
    b = daemon.connect_as(B, B)
    b.create_object("small", bytes_layout(100))
    b.create_object("large", bytes_layout(14 * MIB))
    assert account(b, B)["held"] == 16 * MIB
    message = refused(b, "user_bytes", "create", name="more", layout=bytes_layout(2 * MIB - 100))
    assert f"uid {B}" in message and str(16 * MIB) in message
    b.create_object("beside", bytes_layout(2 * MIB - 512))
    assert account(b, B)["used"] == 16 * MIB - 256


def test_an_empty_segment_is_used_by_large_objects_too(daemon_factory):
    """8 MiB of free ranges hold 7 MiB, though objects of that size have segments of their own."""
    daemon = daemon_factory(device="host:16M")
    b, a = daemon.connect_as(B, B), daemon.connect_as(A, A)
    for i in range(7):
        b.create_object(f"s/{i}", bytes_layout(2 * MIB))
    b.call("delete", names=[f"s/{i}" for i in range(1, 7)])
    assert a.call("stats")["devices"][0]["free"] < 7 * MIB
    assert b.create_object("large", bytes_layout(7 * MIB))
    assert b.names() == ["large", "s/0"]


# ---- asked to unmap ----

def test_a_payer_is_told_who_maps(daemon_factory):
    """B reads what A has deleted since, and does not unmap it: A sees whose session it is."""
    daemon = daemon_factory("--quota", f"{A}:bytes=8M", "--limit", "unmap_ms=300")
    a, b, c = daemon.connect_as(A, A), daemon.connect_as(B, B), daemon.connect_as(C, C)
    b.call("hello", protocol=1, client="reader")
    a.create_object("x", bytes_layout(8 * MIB), mode="0644")
    b.open_object("x").release()
    a.call("delete", name="x")
    a.unmap()
    (told,) = a.call("leases")["mapped"]
    assert (told["uid"], told["client"], told["bytes"]) == (B, "reader", 8 * MIB)
    assert c.call("leases")["mapped"] == []
    message = refused(a, "user_bytes", "create", name="y", layout=bytes_layout(8 * MIB))
    assert f"{8 * MIB} of them in deleted objects that sessions still map" in message
    a.create_object("y", bytes_layout(8 * MIB), mode="0600", wait_ms=20000)
    b.expect_closed()
    assert "does not unmap" in daemon.stderr()
    assert adds_up(daemon)


def test_nobody_is_ended_while_nobody_lacks_it(daemon_factory):
    daemon = daemon_factory("--limit", "unmap_ms=50", "--retire-after", "0")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    b.create_object("x", bytes_layout(MIB))
    b.call("delete", name="x")
    assert b.notification("segments.retire")
    for i in range(20):  # far from full
        a.create_object(f"a/{i}", bytes_layout(MIB), wait_ms=10)
    assert b.call("stats")["sessions"] == 2


# RELIABILITY.md: Memory is short 4
def test_nothing_leaves_in_vain(daemon_factory):
    """A maps what would leave, and does not answer: B's 15 MiB cannot be had, and nothing is gone."""
    daemon = daemon_factory("--limit", "unmap_ms=1000000", device="host:16M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    for i in range(3):
        a.create_object(f"a/{i}", bytes_layout(MIB), keep=True, evict="drop")
    a.call("release", leases=[entry["lease"] for entry in a.call("leases")["leases"]])
    for wait_ms in (0, 500):
        b.error(("no_space", "timeout"), "create", name="b", layout=bytes_layout(15 * MIB),
                wait_ms=wait_ms)
        assert a.names() == ["a/0", "a/1", "a/2"]
    assert a.notification("segments.retire")
    a.unmap()
    b.create_object("b", bytes_layout(15 * MIB))
    assert len(a.names()) < 3 and adds_up(daemon)


# RELIABILITY.md: Memory is short 9
def test_who_does_not_answer_is_ended_for_who_waits(daemon_factory):
    daemon = daemon_factory("--limit", "unmap_ms=300", device="host:16M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    for i in range(3):
        a.create_object(f"a/{i}", bytes_layout(MIB), evict="drop", mode="0644")
    b.create_object("b", bytes_layout(15 * MIB), wait_ms=20000)
    a.expect_closed()
    assert adds_up(daemon)


def test_what_stays_beside_it_keeps_all(daemon_factory):
    """One object of a segment is held: the others' leaving would free nothing for another domain."""
    daemon = daemon_factory(device="host:16M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    for i in range(6):
        a.create_object(f"a/{i}", bytes_layout(2 * MIB), evict="drop")
    a.unmap()
    held = [a.open_object(f"a/{i}") for i in (0, 1, 3)]
    b.error("no_space", "create", name="b", layout=bytes_layout(10 * MIB))
    assert len(a.names()) == 6 and len(held) == 3


# ---- text and leases ----

def test_text_has_a_limit(daemon_factory):
    """Objects of no bytes and much text: by create, alias, register, and while they are written."""
    daemon = daemon_factory("--quota", "default:text_bytes=1M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    pairs = {f"k{i}": "v" * 200 for i in range(200)}
    layout = {"kind": "column", "dtype": "null", "length": 0, "metadata": pairs}
    made = 0
    with pytest.raises(RpcError) as caught:
        while made < 100:
            b.create_object(f"t/{made}", layout)
            made += 1
    assert caught.value.data["limit"] == "user_text_bytes" and f"uid {B}" in str(caught.value)
    assert 15 < made < 30
    b.call("delete", name="t/0")
    while account(b, B)["text_bytes"] < MIB - 50000:  # no draft is needed for it
        b.call("alias", name=f"u/{account(b, B)['text_bytes']}", of="t/1")
    refused(b, "user_text_bytes", "alias", name="u", of="t/1")
    assert account(b, B)["text_bytes"] <= MIB
    a.create_object("t", layout)
    for name in b.names():
        b.call("delete", name=name)
    assert account(b, B)["text_bytes"] == 0
    for i in range(3):
        lease = b.call("create", name="w", layout=layout)["lease"]
        assert account(b, B)["text_bytes"] > 2 * 40000, "what is written, and what is rendered of it"
        b.call("seal", lease=lease, release=True)
        assert 40000 < account(b, B)["text_bytes"] < 60000
        b.call("delete", name="w")
    b.call("create", name="w", layout=layout)
    b.close()
    assert account(daemon.connect_as(B, B), B)["text_bytes"] == 0


def test_leases_have_a_limit_of_the_user(daemon_factory):
    daemon = daemon_factory("--quota", f"{B}:leases=6")
    a = daemon.connect_as(A, A)
    a.put("x", mode="0644")
    sessions = [daemon.connect_as(B, B) for _ in range(3)]
    opened = [session.open_object("x") for session in sessions for _ in range(2)]
    for session in sessions:
        message = refused(session, "user_leases", "open", name="x")
        assert f"uid {B}" in message and "6 of its 6" in message
    refused(sessions[0], "user_leases", "create", name="y", layout=bytes_layout(1))
    a.open_object("x")
    opened[0].release()
    sessions[1].open_object("x")
    sessions[2].close()
    sessions[0].open_object("x")
    sessions[0].open_object("x")
    refused(sessions[1], "user_leases", "open", name="x")
    assert account(sessions[0], B)["leases"] == 6 and account(a, A)["leases"] == 1


# ---- what readers keep of a publisher's ----

def test_aliases_count_for_their_owner(daemon_factory):
    """A publisher with a quota of four versions replaces twenty while a reader has aliases of them."""
    daemon = daemon_factory("--quota", "default:bytes=8M")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    for i in range(20):
        a.create_object("x", bytes_layout(2 * MIB), bytes([i]) * 10, mode="0644", replace=True)
        a.unmap()
        if i < 4:
            b.call("alias", name=f"b/{i}", of="x", mode="0600")
            b.call("alias", name=f"c/{i}", of="x", mode="0600")
        else:
            refused(b, "user_bytes", "alias", name=f"b/{i}", of="x", mode="0600")
        assert account(a, A)["used"] == 2 * MIB
        assert account(b, B)["used"] == min(i + 1, 4) * 2 * MIB, "once, however many aliases"
    assert b.open_object("b/1").read()[:10] == bytes([1]) * 10
    refused(b, "user_bytes", "create", name="y", layout=bytes_layout(2 * MIB))
    b.call("delete", names=[name for name in b.names() if name != "x"])
    b.call("release", leases=[entry["lease"] for entry in b.call("leases")["leases"]])
    assert account(b, B)["used"] == 0 and account(b, B)["nameless"] == 0
    assert account(a, A)["used"] == 2 * MIB


def test_what_is_read_after_its_name_has_gone_counts_for_its_readers(daemon_factory):
    daemon = daemon_factory("--quota", "default:bytes=8M")
    a, b, c = daemon.connect_as(A, A), daemon.connect_as(B, B), daemon.connect_as(C, C)
    for i in range(20):
        a.create_object("x", bytes_layout(2 * MIB), bytes([i]) * 10, mode="0644", replace=True)
        a.unmap()
        if i < 5:
            b.open_object("x")
        assert account(a, A)["used"] == 2 * MIB and account(a, A)["nameless"] == 0
        assert account(a, A)["held"] <= 8 * MIB
        assert account(b, B)["nameless"] == min(i, 5) * 2 * MIB
    c.open_object("x")
    a.call("delete", name="x")
    assert account(c, C)["nameless"] == 2 * MIB and account(a, A)["used"] == 0
    refused(b, "user_bytes", "create", name="y", layout=bytes_layout(1))
    leases = [entry["lease"] for entry in b.call("leases")["leases"] if entry["uid"] == B]
    assert len(leases) == 5
    b.call("release", leases=leases[:2])
    assert account(b, B)["nameless"] == 6 * MIB
    b.close()
    peer = daemon.connect_as(B, B)
    assert account(peer, B)["used"] == account(peer, B)["held"] == 0
