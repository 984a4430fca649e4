"""release: a lease given back is a lease no more."""

import pytest

from peer import bytes_layout


def test_one(daemon, peer):
    peer.put("a")
    reader = daemon.connect()
    lease = reader.open_object("a").lease
    assert reader.call("release", lease=lease) == {}
    error = reader.error("stale", "release", lease=lease)
    assert "lease" in error.message


def test_many(daemon, peer):
    peer.put("a")
    reader = daemon.connect()
    leases = [reader.open_object("a").lease for _ in range(100)]
    assert reader.call("release", leases=leases) == {}
    assert reader.call("release", leases=[]) == {}
    assert peer.call("leases")["leases"] == []


def test_valid_ones_go_beside_unknown_ones(daemon, peer):
    peer.put("a")
    reader = daemon.connect()
    leases = [reader.open_object("a").lease for _ in range(4)]
    reader.error("stale", "release", leases=[*leases[:2], 1 << 40, *leases[2:]])
    assert peer.call("leases")["leases"] == []


def test_the_same_lease_twice_in_a_list(daemon, peer):
    peer.put("a")
    reader = daemon.connect()
    one, two = reader.open_object("a").lease, reader.open_object("a").lease
    reader.error("stale", "release", leases=[one, one])
    assert len(peer.call("leases")["leases"]) == 1
    reader.call("release", lease=two)


def test_an_old_number_does_not_come_back(daemon, peer):
    """A lease that is no more stays stale, however many are made afterwards."""
    peer.put("a")
    reader = daemon.connect()
    old = reader.open_object("a").lease
    reader.call("release", lease=old)
    kept = [reader.open_object("a").lease for _ in range(300)]
    assert old not in kept
    reader.error("stale", "release", lease=old)
    assert len(peer.call("leases")["leases"]) == 300


def test_the_mapping_account_stays(daemon, peer):
    """A reader may keep its mapping for later opens."""
    peer.put("a", b"kept")
    reader = daemon.connect()
    opened = reader.open_object("a")
    opened.release()
    assert reader.call("leases")["mapped"]
    again = reader.call("open", name="a")
    assert again["segments"] == []
    assert reader.read(again["object"]["layout"]["data"]) == b"kept"


@pytest.mark.parametrize("params", [
    {}, {"lease": 1, "leases": [1]}, {"lease": "1"}, {"lease": -1}, {"lease": 1.5},
    {"lease": None}, {"leases": 1}, {"leases": ["1"]}, {"leases": [[1]]}, {"lease": 1 << 52},
], ids=str)
def test_bad_params(shared_peer, params):
    assert "params" in shared_peer.error("invalid", "release", **params).message


def test_pipelined_with_the_open(daemon, peer):
    """open, release, open, release without waiting in between."""
    peer.put("a")
    reader = daemon.connect()
    first = reader.call("open", name="a")["lease"]
    opens = [reader.request("open", name="a") for _ in range(200)]
    leases = [reader.reply(i)["lease"] for i in opens]
    for ident in [reader.request("release", lease=lease) for lease in [first, *leases]]:
        assert reader.reply(ident) == {}
    assert peer.call("leases")["leases"] == []


def test_release_of_the_last_lease_frees_a_deleted_object(daemon, peer):
    size = 40 << 20
    peer.create_object("a", bytes_layout(size), b"a")
    reader = daemon.connect()
    opened = reader.open_object("a")
    peer.call("delete", name="a")
    peer.error("no_space", "create", name="b", layout=bytes_layout(size))
    assert opened.read()[:1] == b"a"
    opened.release()
    lease = peer.call("create", name="b", layout=bytes_layout(size))["lease"]
    peer.call("release", lease=lease)
