"""Labels, and older versions that a name keeps: `keep`, and what finds them."""


import device
import pytest
from peer import bytes_layout, wait_until
from restarts import register, supervised  # noqa: F401
from test_failpoints import Failpoints, dying  # noqa: F401: a fixture

MIB = 1 << 20


def seal(peer, step, keep, name="w", size=1, **params):
    """Seals a version of the name, whose content is a digit of the step."""
    made = peer.create(name, bytes_layout(size), b"%d" % (step % 10) * size, replace=True,
                       keep=keep, label=f"step-{step}", **params)
    return peer.call("seal", lease=made["lease"], release=True)["version"]


def versions(peer, name="w"):
    """[(version, label, kind)]: of the name, as `list` tells them."""
    return [(o["version"], o.get("label"),
             "older" if o.get("older") else "gone" if o.get("gone") else "current")
            for o in peer.call("list", prefix=name, versions=True)["objects"]]


def labels(peer, name="w"):
    return [label for _, label, kind in versions(peer, name) if kind != "gone"]


# RELIABILITY.md: Older versions 1
def test_never_more_than_that_many_can_be_opened(peer):
    made = [seal(peer, step, 2) for step in range(6)]
    assert versions(peer) == [(made[5], "step-5", "current"), (made[4], "step-4", "older"),
                              (made[3], "step-3", "older")]
    for step in range(3, 6):
        opened = peer.open_object("w", label=f"step-{step}")
        assert opened.version == made[step] and opened.read() == b"%d" % step
        opened.release()
        opened = peer.open_object("w", version=made[step])
        assert opened.read() == b"%d" % step
        opened.release()
    has = f'it has {made[5]} ("step-5"), {made[4]} ("step-4"), {made[3]} ("step-3")'
    error = peer.error("stale", "open", name="w", version=made[2])
    assert error.message == f'"w" has no version {made[2]} to open; {has}'
    error = peer.error("not_found", "open", name="w", label="step-2")
    assert error.message == f'"w" has no version labelled "step-2"; {has}'
    seal(peer, 6, 1)
    assert labels(peer) == ["step-6", "step-5"]
    seal(peer, 7, 0)
    assert labels(peer) == ["step-7"]
    assert peer.call("stats")["devices"][0]["used"] == peer.call(
        "list", placements=True)["objects"][0]["placements"][0][2]


def test_a_label_is_told_everywhere(peer):
    watch = peer.call("watch", prefix="w")["watch"]
    lease = peer.create("w", bytes_layout(1), b"1", label="né\"w\\", keep=3)["lease"]
    peer.call("seal", lease=lease)
    for event in peer.events(2):
        if event[0] == "sealed":
            assert (event[2]["object"]["label"], event[2]["object"]["keep"]) == ("né\"w\\", 3)
    peer.call("unwatch", watch=watch)
    for object in (peer.call("stat", name="w")["object"], peer.call("list")["objects"][0],
                   peer.call("open", name="w", brief=True)["object"],
                   peer.call("open", name="w", label="né\"w\\")["object"],
                   peer.call("stat", why=True, name="w")["object"]):
        assert (object["label"], object["keep"]) == ("né\"w\\", 3)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x7f", "\x9b2J", "exe.\u202egpj", "\u2066", "\u200e", "\u2028"])
def test_a_label_that_is_not_what_it_looks_like(peer, text):
    """Others are shown it, in sentences too."""
    lease = peer.create("w", bytes_layout(1), b"1")["lease"]
    for method, params in {
            "create": {"name": "v", "layout": bytes_layout(1 << 50)}, "seal": {"lease": lease},
            "open": {"name": "w"}, "stat": {"name": "w"}}.items():
        message = peer.error("invalid", method, label=text, **params).message
        assert message.startswith("params.label: the label has a control character"), message
    peer.call("seal", lease=lease, label="plain")
    peer.error("invalid", "alias", name="v", of="w", label=text)
    assert labels(peer) == ["plain"]


def test_a_name_with_more_versions_than_are_told(peer):
    """The answer says so."""
    readers = []
    for version in range(70):
        peer.put("w", replace=True)
        readers.append(peer.open_object("w"))
        answer = peer.call("list", versions=True)
        assert len(answer["objects"]) == min(version + 1, 64)
        assert answer.get("truncated", False) is (version >= 64)
    assert [o["version"] for o in answer["objects"][1:]] == [r.object["version"] for r in readers[:63]]


def test_a_version_is_not_waited_for(peer):
    """An absent name is, but a name that does not have the version is `stale` at once."""
    version = peer.put("w")
    other = peer.put("other")
    peer.error("stale", "open", name="w", version=other, wait_ms=86400000)
    ident = peer.request("open", name="absent", version=other + 1, wait_ms=86400000)
    assert peer.open_object("w", version=version, wait_ms=86400000).object["version"] == version
    assert peer.put("absent") == other + 1
    assert peer.reply(ident)["object"]["version"] == other + 1


def test_which_of_two_with_a_label_is_meant(peer):
    """One that can be opened, though one that is gone is newer; nothing of a name that was deleted."""
    def publish(label, keep):
        lease = peer.create("w", bytes_layout(1), b"x", label=label, keep=keep, replace=True)["lease"]
        return peer.call("seal", lease=lease, release=True)["version"]

    def meant(method, **more):
        return peer.call(method, name="w", label="same", **more)["object"]["version"]

    there = publish("same", 2)
    gone = publish("same", 2)
    reader = peer.open_object("w", version=gone)
    publish("other", 2)
    peer.call("delete", name="w", version=gone)
    assert meant("stat") == meant("stat", why=True) == meant("open") == there
    peer.call("delete", name="w", version=there)
    assert meant("stat") == meant("stat", why=True) == gone
    peer.error("not_found", "open", name="w", label="same")
    peer.call("delete", name="w")
    publish("new", 2)
    peer.error("stale", "stat", name="w", version=gone)
    assert reader.read() == b"x"


def test_what_seal_says_counts(peer):
    peer.put("w", b"0")
    lease = peer.create("w", bytes_layout(1), b"1", label="a", keep=0, replace=True)["lease"]
    peer.call("seal", lease=lease, label="b", keep=1, release=True)
    assert labels(peer) == ["b", None]
    lease = peer.create("w", bytes_layout(1), b"1", label="c", keep=1, replace=True)["lease"]
    peer.call("seal", lease=lease, label="", release=True)
    assert labels(peer) == [None, "b"]


def test_register_and_alias_make_versions(peer):
    peer.put("source", b"0123")
    peer.call("alias", name="w", of="source", slice={"offset": 0, "length": 1}, label="a")
    peer.call("alias", name="w", of="source", slice={"offset": 1, "length": 1}, label="b", keep=1,
              replace=True)
    assert labels(peer) == ["b", "a"]
    opened = peer.open_object("w", label="a")
    assert opened.read() == b"0"
    opened.release()
    register(peer, "w", b"registered", replace=True, keep=2, label="c")
    assert labels(peer) == ["c", "b", "a"]
    peer.call("delete", name="source")
    peer.call("delete", name="w")
    assert peer.used() == 0


def test_the_newest_with_a_label_is_meant(peer):
    made = [peer.put("w", b"%d" % i, replace=True) for i in range(1)]
    for i in range(3):
        lease = peer.create("w", bytes_layout(1), b"%d" % i, label="best", keep=5,
                            replace=True)["lease"]
        made.append(peer.call("seal", lease=lease, release=True)["version"])
    assert peer.open_object("w", label="best").version == made[-1]
    peer.call("delete", name="w", version=made[1])
    assert [v for v, _, _ in versions(peer)] == [made[3], made[2], made[0]]


# RELIABILITY.md: Older versions 2
def test_one_that_is_not_kept_goes_with_its_last_reader(daemon, peer):
    """`why` names that reader."""
    made = [seal(peer, 0, 0)]
    reader = daemon.connect()
    reader.call("hello", protocol=1, client="slow")
    held = reader.open_object("w")
    made += [seal(peer, step, 1) for step in (1, 2)]
    assert versions(peer) == [(made[2], "step-2", "current"), (made[1], "step-1", "older"),
                              (made[0], "step-0", "gone")]
    peer.error("stale", "open", name="w", version=made[0])
    why = peer.call("stat", why=True, name="w", version=made[0])
    assert why["object"]["gone"]
    assert [(r["kind"], r["client"]) for r in why["reasons"] if r["kind"] == "leased"] == [
        ("leased", "slow")]
    assert peer.call("stat", why=True, name="w", label="step-0")["object"]["version"] == made[0]
    assert held.read() == b"0"
    held.release()
    peer.error("stale", "stat", why=True, name="w", version=made[0])
    assert len(versions(peer)) == 2


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
def test_one_of_an_object_that_was_deleted_is_not_the_next_ones(supervised):  # noqa: F811
    """Another object of that name has versions of its own alone, after a crash of the daemon, too."""
    daemon = supervised("--grace", "60000")
    peer = daemon.connect()
    reader = daemon.connect()
    seal(peer, 0, 0)
    reader.open_object("w")
    peer.call("delete", name="w")
    made = [seal(peer, step, 0) for step in (1, 2)]
    reader.open_object("w")
    made.append(seal(peer, 3, 0))
    told = [(made[2], "step-3", "current"), (made[1], "step-2", "gone")]
    assert versions(peer) == told
    for _ in range(2):
        daemon.crash()
        assert versions(daemon.connect()) == told


def test_a_waiting_reader_gets_the_label(daemon, peer):
    seal(peer, 1, 2)
    reader = daemon.connect()
    ident = reader.request("open", name="w", label="step-2", wait_ms=600000)
    reader.wait_until_read()
    peer.call("stats")
    version = seal(peer, 2, 2)
    assert reader.reply(ident)["object"]["version"] == version
    error = reader.error("timeout", "open", name="w", label="step-3", wait_ms=1)
    assert "did not appear" in error.message


@pytest.mark.root
def test_an_older_version_has_its_own_rights(daemon_factory):
    """Also towards the owner of the one that is current."""
    daemon = daemon_factory()
    peer = daemon.connect()
    seal(peer, 1, 2, mode="0600")
    seal(peer, 2, 2, mode="0666")
    with daemon.connect_as(1001, 1001) as other:
        assert labels(other) == ["step-2"]
        error = other.error("not_found", "open", name="w", label="step-1")
        assert "step-1\"; it has" in error.message and error.message.count("step-1") == 1
        seal(other, 3, 2, mode="0600")
    assert labels(peer) == ["step-3", "step-2", "step-1"]  # root may all


def test_its_own_time_to_live(peer):
    for i in range(10):  # until the second is older before its time is over
        made = [seal(peer, 1, 2), seal(peer, 2, 2, ttl_ms=100 << i), seal(peer, 3, 2)]
        if len(versions(peer)) == 3:
            break
    wait_until(lambda: [v for v, _, _ in versions(peer)] == [made[2], made[0]])
    peer.call("set", name="w", ttl_ms=1)
    wait_until(lambda: versions(peer) == [])
    assert peer.used() == 0


def test_one_that_is_not_current_is_meant(peer):
    made = [seal(peer, step, 2) for step in (1, 2, 3)]
    peer.call("move", tier="device", name="w", version=made[0])
    peer.error("unsupported", "move", name="w", version=made[1])
    peer.call("set", name="w", label="step-2", ttl_ms=1)
    wait_until(lambda: labels(peer) == ["step-3", "step-1"])
    peer.call("delete", name="w", label="step-1")
    assert labels(peer) == ["step-3"]
    for method, more in (("set", {"ttl_ms": 1}), ("move", {}), ("move", {"tier": "device"}), ("delete", {})):
        peer.error("stale", method, name="w", version=made[0], **more)
        peer.error("not_found", method, name="w", label="step-1", **more)
        peer.error("invalid", method, name="w", label="step-3", version=made[2], **more)
    peer.error("invalid", "delete", names=["w"], label="step-3")
    assert labels(peer) == ["step-3"]


def test_bad_params(peer):
    peer.put("w")
    for params in ({"label": "x" * 256}, {"label": 1}, {"keep": -1}, {"keep": 9}, {"keep": True}):
        peer.error("invalid", "create", name="w", layout=bytes_layout(1), replace=True, **params)
    for params in ({"label": ""}, {"label": "a", "version": 1}):
        for method, more in (("open", {}), ("stat", {}), ("stat", {"why": True})):
            peer.error("invalid", method, name="w", **params, **more)
    peer.error("invalid", "open", names=["w"], label="a")
    peer.error("stale", "stat", name="w", version=999)
    peer.error("not_found", "stat", why=True, name="w", label="a")


def test_no_slot_for_an_older_version(peer):
    """A kept lease answers for the name, which never means an older version."""
    peer.call("hello", protocol=1, cache=True)
    old = seal(peer, 1, 2)
    seal(peer, 2, 2)
    assert "slot" not in peer.call("open", name="w", version=old)
    assert "slot" in peer.call("open", name="w")


# RELIABILITY.md: Older versions 3
def test_a_thousand_steps(daemon_factory):
    """A trainer publishes, readers switch; what is used never exceeds what `keep` allows."""
    daemon = daemon_factory()
    trainer, readers = daemon.connect(), [daemon.connect() for _ in range(3)]
    held = [None] * len(readers)
    size = 4096
    for step in range(1000):
        lease = trainer.create("w", bytes_layout(size), b"%d" % (step % 10) * size, keep=2,
                               label=f"step-{step}", replace=True)["lease"]
        # Kept: three versions and the one that is written; what a reader holds of before.
        assert trainer.used() <= (4 + len(readers)) * size
        trainer.call("seal", lease=lease, release=True)
        i = step % len(readers)
        if held[i]:
            held[i].release()
        held[i] = readers[i].open_object("w", label=f"step-{max(step - step % 4 // 2, 0)}")
        assert held[i].read()[:1] == b"%d" % (max(step - step % 4 // 2, 0) % 10)
        assert trainer.used() <= (3 + len(readers)) * size
    for one in held:
        one.release()
    assert trainer.used() == 3 * size
    assert labels(trainer) == ["step-999", "step-998", "step-997"]
    stats = trainer.call("stats")
    assert (stats["objects"], stats["names"], stats["leases"]) == (3, 1, 0)
    trainer.call("delete", name="w")
    assert trainer.used() == 0


# ---- the daemon dies ----


@pytest.mark.parametrize("point", ["APPEND_BEGIN", "APPEND_TORN", "APPEND_DONE", "PUBLISH_BEGIN",
                                   "PUBLISH_NAMED", "OLDER_GONE", "PUBLISH_DONE"])
# RELIABILITY.md: Older versions 4
def test_killed_while_it_publishes(dying, point):  # noqa: F811
    """Either all of it has happened, or nothing, and nobody was answered."""
    one = dying()
    peer = one.daemon.connect()
    for step in range(4):
        seal(peer, step, 2)
    made = peer.create("w", bytes_layout(1), b"4", replace=True, keep=2, label="step-4")
    peer = one.at(point, peer, "seal", lease=made["lease"], release=True)
    has = labels(peer)
    nothing = point in ("APPEND_BEGIN", "APPEND_TORN", "PUBLISH_BEGIN")
    last = 3 if nothing else 4
    assert has == [f"step-{last - i}" for i in range(3)]
    for label in has:
        assert peer.open_object("w", label=label).read() == label[-1].encode()
    one.points.set(Failpoints.END_GRACE, 1)
    peer.call("stats")
    peer.close()
    peer = one.crash()
    assert labels(peer) == has
    one.points.set(Failpoints.END_GRACE, 1)
    peer.call("delete", name="w")
    peer.wait_for_stats(lambda stats: stats["objects"] == 0)


@pytest.mark.parametrize("point", ["OLDER_GONE", "UNNAME_DONE"])
# RELIABILITY.md: Older versions 4
def test_killed_while_it_deletes(dying, point):  # noqa: F811
    """The oldest go first: the name means what it meant, or is no more."""
    one = dying()
    peer = one.daemon.connect()
    for step in range(4):
        seal(peer, step, 2)
    peer = one.at(point, peer, "delete", name="w")
    assert labels(peer) == ([] if point == "UNNAME_DONE" else ["step-3", "step-2"])
