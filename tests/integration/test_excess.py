"""Users past their quota by what they hold open and has no name any more: they give way to who lacks room, and
nobody puts others there.

Publishers and readers are users of their own.
"""

import os
import time

import pytest

from child import Child
from peer import bytes_layout
from test_charges import A, B, C, account, adds_up, refused

MIB = 1 << 20
D = 1004

pytestmark = [pytest.mark.root, pytest.mark.host_only("sizes of host memory")]


def publish(peer, name, size, content=b"", **params):
    """A version that anybody may read, which its publisher does not map."""
    peer.create_object(name, bytes_layout(size), content, mode="0644", **params)
    peer.unmap()


def hold(publisher, readers, count=1, size=8 * MIB):
    """Has each reader open its own objects, then deletes them; the leases, by reader."""
    held = []
    for i, reader in enumerate(readers):
        names = [f"held/{i}/{j}" for j in range(count)]
        for name in names:
            publish(publisher, name, size)
        held.append([reader.open_object(name).lease for name in names])
        publisher.call("delete", names=names)
    return held


def asked_for(reader):
    """The lease that the daemon asks for next."""
    (lease,) = reader.notification("leases.recall")["params"]["leases"]
    return lease


def ended(peer):
    (family,) = [f for f in peer.call("stats", families=True)["families"] if f["name"] == "gpubufd_sessions_ended_total"]
    return family["samples"][0]["value"]


# ---- who is past its quota gives way -----------------------------------------------------


def test_a_reader_past_its_quota_does_not_keep_a_device(daemon_factory):
    """Seven deleted objects of 8 MiB by a reader with a quota of 8: it is asked, and its session ends."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=300")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    (held,) = hold(a, [b], 7)
    assert account(b, B)["nameless"] == 56 * MIB
    a.create_object("a", bytes_layout(16 * MIB), wait_ms=20000)
    assert [asked_for(b) for _ in range(2)] == held[:2]  # the oldest first
    b.expect_closed_anyhow()
    assert "session ended: it holds deleted objects past its quota that others lack" in daemon.stderr()
    assert ended(a) == 1
    again = daemon.connect_as(B, B)
    assert account(again, B)["used"] == account(again, B)["held"] == 0 and adds_up(daemon)


def test_a_part_in_a_deleted_stream_ends(daemon_factory):
    """Its process lives, and has hung up or not: seven streams by a reader with a quota of one make room."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=300")
    a = daemon.connect_as(A, A)
    for i in range(7):
        layout = {"kind": "array", "dtype": "uint8", "shape": [8, MIB]}
        a.call("release", lease=a.call("create", name=f"held/{i}", layout=layout, live=True, mode="0644")["lease"])
    a.unmap()

    def join(peer):
        for i in range(7):
            peer.call("join", lease=peer.call("open", name=f"held/{i}")["lease"])

    b = Child(daemon.path, join, uid=B, gid=B)
    a.call("delete", names=[f"held/{i}" for i in range(7)])
    assert account(a, A)["nameless"] == 0
    a.create_object("a", bytes_layout(32 * MIB), wait_ms=60000)
    assert ended(a) == 1
    b.kill()


@pytest.mark.parametrize("lacks", ["device", "tier", "move"])
def test_parked_leases_past_a_quota_end(daemon_factory, directory, lacks):
    """Those on deleted objects, where a device and its tier are full: at once, and no more than have to."""
    tier = ["--tier", f"disk:64M:{directory}", "--watermarks", "100:100"] if lacks != "device" else []
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=200M",
                            "--limit", "unmap_ms=60000", *tier)
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    count, held = {"device": 7, "tier": 14, "move": 7}[lacks], []
    for i in range(count):
        publish(a, f"held/{i}", 8 * MIB, wait_ms=20000)
        held.append(b.open_object(f"held/{i}").lease)
        b.call("release", lease=held[-1], park=True)
        b.unmap()
        if lacks == "move":
            a.call("move", name=f"held/{i}", tier="disk")
    a.call("delete", names=[f"held/{i}" for i in range(count)])
    assert account(b, B)["nameless"] == count * 8 * MIB
    if lacks == "move":
        publish(a, "moved", 8 * MIB)
        a.call("move", name="moved", tier="disk")
    else:
        a.create_object("a", bytes_layout(16 * MIB))
    left = account(b, B)["nameless"] // (8 * MIB)
    assert count - 5 <= left < count
    for lease in held[:count - left]:  # the oldest first
        b.error("stale", "open", lease=lease)
    assert b.call("open", lease=held[-1], wait_ms=20000)["lease"]
    assert ended(a) == 0


def test_a_parked_lease_does_not_end_to_make_room_for_itself(daemon_factory, directory):
    """Its user, who is past its quota, opens it where nothing else can leave."""
    daemon = daemon_factory("--quota", f"{B}:bytes=8M", "--tier", f"disk:64M:{directory}", "--watermarks", "100:100")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    held = []
    for i in range(2):
        publish(a, f"held/{i}", 8 * MIB)
        held.append(b.open_object(f"held/{i}").lease)
        b.call("release", lease=held[-1], park=True)
        b.unmap()
        a.call("move", name=f"held/{i}", tier="disk")
    a.call("delete", names=["held/0", "held/1"])
    for i in range(8):
        publish(a, f"kept/{i}", 8 * MIB, evict="keep")
    b.error("no_space", "open", lease=held[0])
    a.call("delete", name="kept/0")
    assert b.call("open", lease=held[0], wait_ms=20000)["object"]["name"] == "held/0"


def test_what_has_a_name_counts_for_its_owner_alone(daemon_factory):
    """So a reader keeps it on its device whatever the reader's quota."""
    daemon = daemon_factory("--quota", f"{B}:bytes=8M")
    a, b, c = (daemon.connect_as(uid, uid) for uid in (A, B, C))
    for i in range(7):
        publish(a, f"o/{i}", 8 * MIB, evict="drop")
        b.open_object(f"o/{i}")
    c.error("no_space", "create", name="c", layout=bytes_layout(16 * MIB))
    assert account(b, B)["used"] == 0
    b.close()
    c.call("create", name="c", layout=bytes_layout(16 * MIB))


def test_parked_leases_within_a_quota_stay(daemon_factory, directory):
    """Also where a tier is full."""
    daemon = daemon_factory("--quota", "default:bytes=64M", "--quota", f"{A}:bytes=200M", "--tier", f"disk:16M:{directory}")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    (held,) = hold(a, [b], 7)
    b.call("release", leases=held, park=True)
    b.unmap()
    a.error("no_space", "create", name="a", layout=bytes_layout(24 * MIB))
    assert account(b, B)["nameless"] == 56 * MIB


def test_who_releases_goes_on(daemon_factory):
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=60000")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    (held,) = hold(a, [b], 7)
    request = a.request("create", name="a", layout=bytes_layout(16 * MIB), wait_ms=60000)
    b.call("release", leases=[asked_for(b) for _ in held[:6]])  # the seventh is within its quota
    b.unmap()
    a.reply(request)
    assert account(b, B)["nameless"] == 8 * MIB and ended(b) == 0


def test_the_time_begins_anew_within_the_quota(daemon_factory):
    """A reader that gave enough back when it was asked, and is past its quota again, is not ended for what was before."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=3000")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    (held,) = hold(a, [b], 7)
    request = a.request("create", name="a", layout=bytes_layout(16 * MIB), wait_ms=60000)
    begun = time.monotonic()
    b.call("release", leases=[asked_for(b) for _ in held[:6]])  # within its quota
    b.unmap()
    a.call("release", lease=a.reply(request)["lease"])
    a.unmap()
    (again,) = hold(a, [b], 6)
    time.sleep(max(0, begun + 3 - time.monotonic()))  # the first time would be over
    second = a.request("create", name="a", layout=bytes_layout(16 * MIB), wait_ms=60000)
    asked_for(b)
    assert b.call("stats")  # asked, and not ended
    b.call("release", leases=again)
    b.unmap()
    a.reply(second)
    assert ended(a) == 0


def test_no_more_end_than_have_to(daemon_factory):
    """Not who is within its quota, nor who is past it while others' excess is enough."""
    daemon = daemon_factory("--quota", "default:bytes=4M", "--quota", f"{A}:bytes=64M", "--quota", f"{D}:bytes=8M",
                            "--limit", "unmap_ms=300")
    a, b, c, d = (daemon.connect_as(uid, uid) for uid in (A, B, C, D))
    hold(a, [d, b, c])
    publish(a, "large", 36 * MIB, evict="keep")
    a.create_object("a", bytes_layout(8 * MIB), wait_ms=20000)
    b.expect_closed_anyhow()
    assert (account(c, C)["nameless"], account(d, D)["nameless"]) == (8 * MIB, 8 * MIB)
    assert ended(c) == 1


def test_many_leases_buy_no_time(daemon_factory):
    """Not all of them are looked at in one try of a request, but the time is their user's."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=3000")
    a = daemon.connect_as(A, A)
    readers = [daemon.connect_as(B, B) for _ in range(5)]
    publish(a, "held", 56 * MIB)
    for reader in readers:
        for _ in range(10):
            reader.call("open", names=["held"] * 64)
    a.call("delete", name="held")
    a.create_object("a", bytes_layout(16 * MIB), wait_ms=14000)  # less than 3000 for each session
    assert ended(a) == 5


def test_leases_of_others_are_no_shield(daemon_factory):
    """More of them than are looked at in one try, on a small object that its reader opens last."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=60M", "--limit", "unmap_ms=500")
    a, b, c = (daemon.connect_as(uid, uid) for uid in (A, B, C))
    publish(a, "shield", 100)
    for _ in range(40):
        c.call("open", names=["shield"] * 64)
    b.call("open", name="shield")
    a.call("delete", name="shield")
    hold(a, [b], 7)
    a.create_object("a", bytes_layout(16 * MIB), wait_ms=20000)
    b.expect_closed_anyhow()
    assert ended(a) == 1 and c.call("stats")


def test_nobody_is_asked_in_vain(daemon_factory):
    """There would not be room without the reader's excess, either."""
    daemon = daemon_factory("--quota", f"{B}:bytes=4M", "--limit", "unmap_ms=1")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    hold(a, [b])
    publish(a, "large", 40 * MIB, evict="keep")
    a.error("no_space", "create", name="a", layout=bytes_layout(30 * MIB))
    time.sleep(0.05)
    a.error("no_space", "create", name="a", layout=bytes_layout(30 * MIB))
    assert account(b, B)["nameless"] == 8 * MIB
    b.no_notification()


# ---- nobody puts others past their quota -------------------------------------------------


@pytest.fixture
def replaced(daemon_factory):
    """A reader with a quota of 8 MiB, the lease of a model of 16 MiB that was replaced, and the publisher."""

    def make(keep):
        daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=48M")
        a, b, c = (daemon.connect_as(uid, uid) for uid in (A, B, C))
        b.call("hello", protocol=1, cache=True)
        publish(a, "model", 16 * MIB)
        publish(c, "other", 100)
        publish(b, "mine", 100)
        opened = b.open_object("model")
        b.unmap()
        if keep:
            b.call("cache", leases=[opened.lease])
        publish(a, "model", 16 * MIB, replace=True)
        return daemon, b, opened.lease

    return make


@pytest.mark.parametrize("keep", (False, True), ids=("used", "kept"))
def test_a_replacement_locks_no_reader_out(replaced, keep):
    """It opens what it likes: what has a name adds nothing to its account."""
    daemon, b, _ = replaced(keep)
    for name in ("model", "other", "mine"):
        b.open_object(name)
        daemon.connect_as(B, B).open_object(name)
    assert account(b, B)["nameless"] == 16 * MIB


def test_what_is_merely_kept_is_recalled_before_a_refusal(replaced):
    _, b, lease = replaced(True)
    request = b.request("create", name="new", layout=bytes_layout(100))
    assert asked_for(b) == lease
    b.call("release", leases=[lease])
    b.call("release", lease=b.reply(request)["lease"])


def test_so_it_is_before_an_alias(replaced):
    _, b, lease = replaced(True)
    request = b.request("alias", name="b/alias", of="other", mode="0600")
    assert asked_for(b) == lease
    b.call("release", leases=[lease])
    b.reply(request)


def test_what_is_used_counts(replaced):
    """And so does what its holder keeps and says nothing of."""
    for keep in (False, True):
        _, b, lease = replaced(keep)
        assert f"uid {B} uses" in refused(b, "user_bytes", "create", name="new", layout=bytes_layout(100))
        b.call("release", leases=[lease])
        publish(b, "new", 100)


# ---- both together -----------------------------------------------------------------------


def test_weights_larger_than_a_quota_are_swapped(daemon_factory):
    """By a reader that holds the old version until it has the new one, and publishes things of its own. A count of
    rounds; $GPUBUF_SWAP_SECONDS says for how long instead."""
    daemon = daemon_factory("--quota", "default:bytes=8M", "--quota", f"{A}:bytes=48M", "--limit", "unmap_ms=1000")
    a, b = daemon.connect_as(A, A), daemon.connect_as(B, B)
    until = time.monotonic() + float(os.environ.get("GPUBUF_SWAP_SECONDS", 0))
    held, rounds = None, 0
    while rounds < 50 or time.monotonic() < until:
        content = b"%016d" % rounds
        publish(a, "model", 16 * MIB, content, replace=True)
        opened = b.open_object("model")
        assert opened.read()[:16] == content
        if held:
            assert held.read()[:16] == b"%016d" % (rounds - 1)
            held.release()
            b.unmap(held.layout["data"]["segment"])
        held = opened
        b.put("step", content, replace=True)
        rounds += 1
    assert ended(a) == 0 and adds_up(daemon)
    assert account(b, B)["used"] <= MIB and account(a, A)["used"] == 16 * MIB
