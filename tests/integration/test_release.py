"""release: a lease given back is a lease no more."""


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
