"""Requests that wait for room for content that lies in a tier: all are answered once it is back, and none
of them holds memory meanwhile."""

import re

import pytest

import device
from device import MIB
from peer import RpcError, bytes_layout
from tiers import BELOW, start  # noqa: F401  (a fixture)

DAY_MS = 86400000
AWAY = 20 * MIB  # of 32 MiB, and as much is held
METHODS = {"open": ("open", {"name": "away"}),
           "names": ("open", {"names": ["away"]}),
           "move": ("move", {"name": "away", "tier": "device"})}
PAIRS = ["open open", "open names", "names names", "names move", "move move", "move open"]


@pytest.fixture
def tiered(start):  # noqa: F811
    return start(device=device.OPTION.replace("64M", "32M"))


class Short:
    """`away` and `also` lie in a tier, and a writer holds what each of them needs of the device."""

    def __init__(self, tiered):
        self.tiered, self.daemon = tiered, tiered.daemon
        for name in ("also", "away"):
            tiered.put(name, AWAY)
            tiered.peer.call("move", name=name)
        self.writer = self.daemon.connect()
        self.writer.create("written", bytes_layout(AWAY))

    def make_room(self):
        self.writer.close()

    def ask(self, peer, kind, **params):
        """Sends a request that waits, and returns its id once it does."""
        method, which = METHODS[kind]
        ident = peer.request(method, **which, wait_ms=DAY_MS, **params)
        peer.call("stats")
        return ident

    def why(self, name):
        return self.tiered.peer.call("stat", why=True, name=name)


@pytest.fixture
def short(tiered):
    return Short(tiered)


def leases_of(answer):
    return [one["lease"] for one in answer.get("objects", [answer]) if "lease" in one]


@pytest.mark.parametrize("sessions, kinds", [(2, pair) for pair in PAIRS] + [(1, "open move"), (1, "names open")])
# RELIABILITY.md: Memory is short 8
def test_two_that_wait_for_one_object(short, kinds, sessions):
    """Both are answered when it is back, and others have memory while they wait, and afterwards."""
    peers = [short.daemon.connect() for _ in range(sessions)] * (3 - sessions)
    idents = [short.ask(peer, kind) for peer, kind in zip(peers, kinds.split())]
    other = short.daemon.connect()
    other.create("meanwhile", bytes_layout(10 * MIB))
    assert short.why("away")["reasons"] in ([], [{"kind": "last_tier"}])
    short.make_room()
    for peer, ident in zip(peers, idents):
        leases = leases_of(peer.reply(ident))
        if leases:
            peer.call("release", leases=leases)
    assert short.tiered.tier_of("away") == "device"
    assert short.why("away")["evictable"] is True
    for peer in peers:
        peer.unmap()
    other.create("afterwards", bytes_layout(15 * MIB))


@pytest.mark.parametrize("kind", METHODS)
def test_one_of_two_is_deleted(short, kind):
    """The other one is waited for, and comes."""
    first, second = short.daemon.connect(), short.daemon.connect()
    waits = short.ask(first, kind)
    also = second.request("move", tier="device", name="also", wait_ms=DAY_MS)
    second.call("stats")
    short.tiered.peer.call("delete", name="also")
    with pytest.raises(RpcError, match="not_found"):
        second.reply(also)
    short.make_room()
    first.reply(waits)


@pytest.mark.parametrize("which, waits", [({}, 3), ({"version": 1}, 1), ({"label": "best"}, 1)], ids=str)
# RELIABILITY.md: Memory is short 8
def test_one_that_is_deleted_is_not_found_at_once(tiered, which, waits):
    tiered.put("away", AWAY, label="best")
    tiered.peer.call("move", name="away")
    tiered.daemon.connect().create("written", bytes_layout(AWAY))
    peer = tiered.daemon.connect()
    idents = [peer.request("move", tier="device", name="away", wait_ms=DAY_MS, **which) for _ in range(waits)]
    peer.call("stats")
    tiered.peer.call("delete", name="away")
    for ident in idents:
        with pytest.raises(RpcError, match='not_found: there is no object "away"'):
            peer.reply(ident)


@pytest.mark.parametrize("kind", METHODS)
def test_one_that_is_replaced(short, kind):
    """The name means something that is there: no room is wanted any more."""
    peer = short.daemon.connect()
    ident = short.ask(peer, kind)
    version = short.tiered.peer.put("away", b"new one", replace=True)
    answer = peer.reply(ident)
    for one in answer.get("objects", [answer] if "object" in answer else []):
        assert one["object"]["version"] == version


def test_an_older_version_that_goes(short):
    """The name has others, but not the one that is waited for."""
    peer = short.daemon.connect()
    version = peer.call("stat", name="away")["object"]["version"]
    ident = peer.request("move", tier="device", name="away", version=version, wait_ms=DAY_MS)
    peer.call("stats")
    short.tiered.peer.put("away", b"new one", replace=True)
    with pytest.raises(RpcError, match="stale"):
        peer.reply(ident)


@pytest.mark.parametrize("kind", ["open", "names"])
# RELIABILITY.md: Memory is short 8
def test_one_that_waits_for_its_name_only_is_in_nobodys_way(short, kind):
    """Its object is deleted while it waits for room: it needs none before the name is back."""
    peer, other = short.daemon.connect(), short.daemon.connect()
    ident = short.ask(peer, kind)
    short.tiered.peer.call("delete", name="away")
    short.make_room()
    other.create("large", bytes_layout(25 * MIB))
    other.close()
    version = short.tiered.peer.put("away", b"new one")
    answer = peer.reply(ident)
    assert [one["object"]["version"] for one in answer.get("objects", [answer])] == [version]


# RELIABILITY.md: Memory is short 8
def test_what_a_waiting_request_also_wants_may_leave(short):
    """An `open` of names holds none of them while it waits for others' leases to end."""
    short.tiered.put("there", 10 * MIB)
    peer = short.daemon.connect()
    ident = peer.request("open", names=["there", "away"], wait_ms=DAY_MS)
    peer.call("stats")
    assert short.why("there")["evictable"] is True
    message = short.tiered.peer.error("no_space", "create", name="z", layout=bytes_layout(AWAY)).message
    figures = dict(re.findall(r"(\d+) (pinned or kept|of objects that may leave)", message))
    assert {what: int(n) for n, what in figures.items()} == {
        "pinned or kept": 0, "of objects that may leave": 10 * MIB}, message
    short.tiered.peer.call("move", name="there")
    assert short.tiered.tier_of("there") == BELOW
    short.make_room()
    opened = peer.reply(ident)["objects"]
    assert [one["object"]["tier"] for one in opened] == ["device"] * 2


def test_more_names_than_the_device_holds(short):
    """They do not take turns at leaving for one another; and each that fits is answered."""
    short.tiered.put("there", 10 * MIB)
    peer = short.daemon.connect()
    ident = peer.request("open", names=["there", "away", "there"], wait_ms=300)
    peer.call("stats")
    restores = short.tiered.stats()["devices"][0]["restores"]
    told = peer.reply(ident)["objects"]
    assert "lease" in told[0] and "lease" in told[2]
    assert told[1]["error"]["data"]["kind"] == "timeout"
    assert short.tiered.stats()["devices"][0]["restores"] == restores
