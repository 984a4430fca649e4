"""expire: an object that is given a time after it was published, or another time, or none."""

import pytest


@pytest.fixture
def watcher(daemon):
    watcher = daemon.connect()
    watcher.call("watch", prefix="")
    watcher.events(1)
    return watcher


def gone(watcher, count):
    """The next events, those of seals left out."""
    return [(kind, name) for kind, name, _ in watcher.events(count) if kind != "sealed"]


def test_another_time(peer, watcher):
    """Later, sooner, never: what was said last counts."""
    for name in ("later", "never", "sooner"):
        peer.put(name, ttl_ms=3600000)
    peer.call("set", name="later", ttl_ms=7200000)
    peer.call("set", name="never", ttl_ms=0)
    peer.call("set", name="sooner", ttl_ms=1)
    assert gone(watcher, 4) == [("deleted", "sooner")]
    told = {o["name"]: o["ttl_ms"] for o in peer.call("list")["objects"]}
    assert told == {"later": 7200000, "never": 0}
    assert "expires_ms" not in peer.call("stat", why=True, name="never")
    assert 3600000 < peer.call("stat", why=True, name="later")["expires_ms"] <= 7200000


@pytest.mark.root
def test_of_another_user(daemon, peer, as_user):
    peer.put("shown", mode="0644")
    peer.put("hidden", mode="0600")
    peer.put("everybody's", mode="0666")

    def work(other):
        other.error("denied", "set", name="shown", ttl_ms=1)
        other.error("not_found", "set", name="hidden", ttl_ms=1)
        return other.call("set", name="everybody's", ttl_ms=3600000)

    assert as_user(daemon, 1001, 1001, work) == {}
    assert [o["ttl_ms"] for o in peer.call("list")["objects"]] == [3600000, 0, 0]
