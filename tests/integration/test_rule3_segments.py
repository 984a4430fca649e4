"""Rules 3 and 4: segments that somebody maps, and domains that do not share them."""

import pytest

from peer import bytes_layout

MIB = 1 << 20
SIZE = 40 * MIB  # more than half of the device


@pytest.fixture
def mapped(daemon):
    """A reader that still maps the segment of an object that is no more: (reader, mapping, id)."""
    producer = daemon.connect()
    producer.create_object("a", bytes_layout(SIZE), b"secret", mode="0600")
    reader = daemon.connect()
    opened = reader.open_object("a")
    segment = opened.layout["data"]["segment"]
    mapping = reader.segment(segment).map()
    opened.release()
    producer.call("delete", name="a")
    producer.unmap()
    producer.close()
    return reader, mapping, segment


def test_its_bytes_are_accounted_for(daemon, peer, mapped):
    assert peer.call("trim")["freed"] == 0
    device = peer.call("stats")["devices"][0]
    assert device["pinned_by_clients"] >= SIZE
    assert device["capacity"] == (device["free"] + device["used"] + device["retained"]
                                  + device["pinned_by_clients"])


def test_it_is_not_given_to_another_domain(daemon, peer, mapped):
    reader, mapping, _ = mapped
    peer.error("no_space", "create", name="b", layout=bytes_layout(SIZE), mode="0644")
    assert mapping[:6] == b"secret"


@pytest.mark.parametrize("answer", ["unmap", "end"])
def test_it_is_asked_back(daemon, peer, mapped, answer):
    """segments.retire to who maps it; after unmap, or its end, the waiting create goes through."""
    reader, mapping, segment = mapped
    ident = peer.request("create", name="b", layout=bytes_layout(SIZE), mode="0644", wait_ms=20000)
    told = reader.notification("segments.retire")
    assert told["params"]["segments"] == [segment]
    assert peer.call("stats") and ident not in peer.replies
    reader.unmap() if answer == "unmap" else reader.close()
    made = peer.reply(ident)["object"]
    assert made["layout"]["data"]["segment"] != segment


def test_its_own_domain_uses_it_again(daemon, peer, mapped):
    """No new memory, and the reader needs no new handle."""
    reader, _, segment = mapped
    version = peer.create_object("b", bytes_layout(SIZE), b"again", mode="0600")
    opened = reader.open_object("b")
    assert opened.version == version
    assert opened.layout["data"]["segment"] == segment
    assert opened.read()[:5] == b"again"


def test_what_is_leased_is_not_asked_back(daemon, peer):
    peer.create_object("a", bytes_layout(SIZE), b"a")
    reader = daemon.connect()
    opened = reader.open_object("a")
    peer.error("no_space", "create", name="b", layout=bytes_layout(SIZE), mode="0644")
    assert opened.read()[:1] == b"a"
    reader.no_notification()


def test_a_retired_segment_may_be_opened_anew(daemon, peer, mapped):
    """After unmap the session has not had it: the handle comes again."""
    reader, _, segment = mapped
    reader.unmap()
    peer.create_object("b", bytes_layout(SIZE), b"b", mode="0600")
    assert reader.open_object("b").read()[:1] == b"b"


# ---- domains -----------------------------------------------------------------------------------


def segment_of(peer, name, **params):
    peer.put(name, b"x", **params)
    return peer.call("stat", name=name)["object"]["layout"]["data"]["segment"]


def test_modes_do_not_share(peer):
    modes = ["0600", "0640", "0644", "0604", "0660", "0666"]
    ids = [segment_of(peer, mode, mode=mode) for mode in modes]
    assert len(set(ids)) == len(modes)


@pytest.mark.root
def test_users_and_groups_do_not_share(daemon, peer):
    ids = [segment_of(peer, "mine", mode="0644")]
    for uid, gid in ((1001, 1001), (1002, 1001), (1001, 1003)):
        ids.append(segment_of(daemon.connect_as(uid, gid), f"u/{uid}.{gid}", mode="0644"))
    assert len(set(ids)) == 4
    assert segment_of(daemon.connect_as(1001, 1001), "again", mode="0644") == ids[1]


@pytest.mark.parametrize("size", [SIZE, 1 * MIB])
def test_memory_that_changes_domain_is_zero(daemon, size):
    """Fills the device with a pattern in one domain, then reads it all in another."""
    producer = daemon.connect()
    count = (60 * MIB) // size
    for i in range(count):
        producer.create_object(f"a/{i}", bytes_layout(size), b"\xa5" * size, mode="0600")
    producer.delete([f"a/{i}" for i in range(count)])
    producer.close()
    peer = daemon.connect()
    for i in range(count):
        made = peer.create(f"b/{i}", bytes_layout(size), mode="0644", evict="keep")
        assert peer.read(made["object"]["layout"]["data"]) == bytes(size)


# ---- segments that nobody has used for long ----


@pytest.mark.parametrize("after", ["0", "200"])
def test_an_empty_segment_goes_after_its_time(daemon_factory, after):
    peer = daemon_factory("--retire-after", after).connect()
    kept = peer.create_object("kept", bytes_layout(1), mode="0644", keep=True)
    peer.create_object("a", bytes_layout(SIZE // 2))
    peer.unmap()
    assert peer.call("stats")["devices"][0]["segments"] == 2
    peer.call("delete", name="a")
    stats = peer.wait_for_stats(lambda stats: stats["devices"][0]["segments"] == 1)
    assert stats["devices"][0]["segments_destroyed"] == 1
    assert peer.call("stat", name="kept") and kept


def test_an_empty_segment_that_is_mapped_is_asked_back(daemon_factory):
    daemon = daemon_factory("--retire-after", "50")
    peer, reader = daemon.connect(), daemon.connect()
    peer.create_object("a", bytes_layout(SIZE))
    opened = reader.open_object("a")
    segment = opened.layout["data"]["segment"]
    peer.unmap()
    peer.call("delete", name="a")
    opened.release()
    assert reader.notification("segments.retire")["params"]["segments"] == [segment]
    assert peer.call("stats")["devices"][0]["pinned_by_clients"] == SIZE
    reader.unmap()
    peer.wait_for_stats(lambda stats: stats["devices"][0]["free"] == 64 * MIB)


def test_a_segment_may_be_kept_for_ever(daemon_factory):
    daemon = daemon_factory("--retire-after", "never", "--limit", "half_line_ms=100")
    peer, half = daemon.connect(), daemon.connect()
    peer.create_object("a", bytes_layout(SIZE))
    peer.call("delete", name="a")
    half.send_raw(b"{")
    half.expect_closed_anyhow()  # other clocks go on
    assert peer.call("stats")["devices"][0]["retained"] == SIZE
