"""seal with an event, and settle: objects whose content is on its way."""

import base64
import re

import pytest

from peer import bytes_layout
from test_failpoints import dying  # noqa: F401: a fixture

EVENT = base64.b64encode(bytes(range(64))).decode()


def seal_with_event(peer, name, ready=EVENT, data=b"on its way", **params):
    made = peer.create(name, bytes_layout(len(data)), data, **params)
    return peer.call("seal", lease=made["lease"], ready=ready, release=True)["version"]


def test_the_object_shows_it_until_it_is_settled(daemon, peer):
    watcher, reader = daemon.connect(), daemon.connect()
    watcher.call("watch")
    version = seal_with_event(peer, "a")
    assert watcher.events(2)[1][2]["object"]["ready"] == EVENT
    opened = reader.open_object("a")
    assert opened.object["ready"] == EVENT and opened.read() == b"on its way"
    assert reader.call("open", name="a", brief=True)["object"]["ready"] == EVENT
    assert reader.call("stat", name="a")["object"]["ready"] == EVENT
    assert reader.call("list")["objects"][0]["ready"] == EVENT
    assert peer.call("settle", objects=[{"name": "a", "version": version}]) == {}
    assert "ready" not in reader.open_object("a").object
    assert "ready" not in reader.call("stat", name="a")["object"]
    assert "ready" not in reader.call("list")["objects"][0]
    late = daemon.connect()
    late.call("watch")
    assert "ready" not in late.events(1)[0][2]["object"]
    peer.close()
    watcher.no_notification()
    assert reader.names() == ["a"], "settled: it needs its producer no more"


def test_no_space_tells_of_it(peer):
    """It is neither leased nor pinned, and cannot leave."""
    bytes_of = re.compile(r"(\d+) (leased|pinned or kept|not ready or coming back for a request)")
    peer.call("seal", lease=peer.create("a", bytes_layout(30 << 20))["lease"], ready=EVENT, release=True)
    message = peer.error("no_space", "create", name="b", layout=bytes_layout(50 << 20)).message
    assert [int(n) for n, _ in bytes_of.findall(message)] == [0, 0, 30 << 20], message


def test_the_producer_ends_first(daemon, peer):
    watcher, reader = daemon.connect(), daemon.connect()
    seal_with_event(peer, "a")
    peer.call("alias", name="b", of="a", slice={"offset": 3, "length": 3})
    assert reader.call("stat", name="b")["object"]["ready"] == EVENT
    opened = reader.open_object("b")
    watcher.call("watch", kinds=["withdrawn"])
    peer.close()
    assert sorted(e[:2] for e in watcher.events(2)) == [("withdrawn", "a"), ("withdrawn", "b")]
    assert reader.names() == []
    assert opened.read() == b"its", "the memory is there as long as it is leased"


def test_an_alias_of_another_session_goes_too(daemon, peer):
    seal_with_event(peer, "a")
    other = daemon.connect()
    other.call("alias", name="b", of="a", slice={"offset": 0, "length": 1})
    peer.close()
    assert other.names() == []


def test_settling_settles_aliases_too(daemon, peer):
    version = seal_with_event(peer, "a")
    daemon.connect().call("alias", name="b", of="a", slice={"offset": 0, "length": 1})
    peer.call("settle", objects=[{"name": "a", "version": version}])
    assert "ready" not in peer.call("stat", name="b")["object"]
    peer.close()
    assert daemon.connect().names() == ["a", "b"]


def test_what_need_not_be_settled(daemon, peer):
    """settle of a version that is deleted, replaced, another one, or was sealed without an event changes nothing."""
    version = seal_with_event(peer, "gone")
    peer.call("delete", name="gone")
    first = seal_with_event(peer, "replaced")
    second = seal_with_event(peer, "replaced", replace=True)
    plain = peer.put("plain", b"x")
    peer.call("settle", objects=[
        {"name": "gone", "version": version}, {"name": "replaced", "version": first},
        {"name": "plain", "version": plain}, {"name": "plain", "version": plain + 1},
        {"name": "never", "version": 1}])
    assert peer.call("stat", name="replaced")["object"]["ready"] == EVENT
    peer.call("settle", objects=[{"name": "replaced", "version": second}])
    assert "ready" not in peer.call("stat", name="replaced")["object"]
    assert peer.call("settle", objects=[]) == {}


def test_another_session_may_not(daemon, peer):
    """Be it of the same user: it cannot know."""
    version = seal_with_event(peer, "a")
    daemon.connect().call("settle", objects=[{"name": "a", "version": version}])
    assert "ready" in peer.call("stat", name="a")["object"]
    peer.call("settle", objects=[{"name": "a", "version": version}])
    assert "ready" not in peer.call("stat", name="a")["object"]


@pytest.mark.parametrize("ready", [
    "", "x", "A" * 84, "A" * 88, "A" * 86 + "=", "A" * 85 + "+ =", "é" * 44, "A" * 1000,
    base64.b64encode(bytes(63)).decode(), base64.b64encode(bytes(65)).decode()])
def test_what_is_no_event(peer, ready):
    made = peer.create("a", bytes_layout(1))
    error = peer.error("invalid", "seal", lease=made["lease"], ready=ready)
    assert error.message.startswith("params.ready: ") and "64" in error.message, error.message
    assert peer.call("seal", lease=made["lease"], ready=EVENT), "it can be tried again"


@pytest.mark.parametrize("objects,path", [
    ([1], "params.objects[0]"), ([{}], "params.objects[0].name"),
    ([{"name": "a"}], "params.objects[0].version"),
    ([{"name": "a", "version": 0}], "params.objects[0].version"),
    ([{"name": "a", "version": 1, "more": 1}], "params.objects[0].more"),
    ([{"name": "a", "version": 1}, {"name": 1, "version": 1}], "params.objects[1].name"),
], ids=str)
def test_bad_objects(peer, objects, path):
    error = peer.error("invalid", "settle", objects=objects)
    assert error.message.startswith(path), error.message


def test_the_host_has_no_events(daemon_factory):
    daemon = daemon_factory(device="host:8M")
    peer = daemon.connect()
    made = peer.create("a", bytes_layout(1))
    error = peer.error("invalid", "seal", lease=made["lease"], ready=EVENT)
    assert error.message.startswith("params.ready: "), error.message
    assert peer.call("seal", lease=made["lease"])


def labels(peer):
    return [one["label"] for one in peer.call("list", versions=True)["objects"]]


# RELIABILITY.md: Older versions 5
def test_what_was_not_settled_leaves_the_name_to_the_version_before(dying):  # noqa: F811
    """Be it the daemon that was killed, or the producer that has gone."""
    one = dying()
    peer = one.daemon.connect()

    def publish(producer, step, **params):
        made = producer.create("w", bytes_layout(1), b"%d" % step, replace=True, keep=2,
                               label=f"step-{step}")
        producer.call("seal", lease=made["lease"], **params)

    for step in range(3):
        publish(peer, step, release=True)
    publish(peer, 3, ready=EVENT)
    assert labels(peer) == ["step-3", "step-2", "step-1"]
    peer.close()
    peer = one.crash()
    assert labels(peer) == ["step-2", "step-1"]
    peer.call("watch", existing=False)
    with one.daemon.connect() as producer:
        publish(producer, 4, ready=EVENT)
    told = [(kind, event["object"]["label"]) for kind, _, event in peer.events(3)]
    assert told == [("sealed", "step-4"), ("withdrawn", "step-4"), ("sealed", "step-2")]
    assert peer.open_object("w").read() == b"2"


def test_older_versions_are_settled_too(peer):
    made = [seal_with_event(peer, "w", replace=True, data=b"1"),
            seal_with_event(peer, "w", replace=True, data=b"2")]
    lease = peer.create("w", bytes_layout(1), b"3", replace=True, keep=2)["lease"]
    made.append(peer.call("seal", lease=lease, keep=1)["version"])
    peer.call("settle", objects=[{"name": "w", "version": made[1]}])
    assert "ready" not in peer.call("stat", name="w", version=made[1])["object"]
