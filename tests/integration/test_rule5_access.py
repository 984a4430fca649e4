"""Rule 5: who may do what. Each other user is a process of its own."""

import fcntl
import json
import mmap
import os

import pytest

import described
from peer import RpcError, bytes_layout

pytestmark = pytest.mark.root

OWNER, GROUP, OTHER, MEMBER = (1001, 1001), (1002, 1001), (1003, 1003), (1004, 1004)


def kind_of(peer, method, **params):
    """"ok", or the kind of the error."""
    try:
        peer.call(method, **params)
    except RpcError as error:
        return error.kind
    return "ok"


def publish(*modes):
    def work(peer):
        for mode in modes:
            peer.put(mode, mode.encode(), mode=mode)

    return work


def try_all(mode):
    """Outcomes of everything that one may try with an object of that mode."""

    def work(peer):
        out = {m: kind_of(peer, m, name=mode) for m in ("open", "stat")}
        out["set"] = kind_of(peer, "set", name=mode, pinned=True)
        out["alias"] = kind_of(peer, "alias", name=f"alias/{mode}/{os.getuid()}", of=mode)
        out["list"] = "ok" if mode in peer.names() else "not_found"
        peer.call("watch", prefix=mode)
        kind, _, _ = peer.events(1)[0]
        out["watch"] = "ok" if kind == "sealed" else "not_found"
        out["replace"] = kind_of(peer, "create", name=mode, layout=bytes_layout(1), replace=True)
        if out["replace"] == "ok":
            made = peer.create(mode, bytes_layout(1), b"x", replace=True)
            out["replace"] = kind_of(peer, "seal", lease=made["lease"])
        out["delete"] = kind_of(peer, "delete", name=mode)
        return out

    return work


ALL = ("open", "stat", "list", "watch", "alias", "set", "replace", "delete")
NOTHING = dict.fromkeys(ALL, "not_found") | {"replace": "denied"}
READ = dict.fromkeys(ALL, "ok") | dict.fromkeys(("set", "replace", "delete"), "denied")
REPLACE = NOTHING | {"replace": "ok", "delete": "ok"}  # of what is its own then
FULL = dict.fromkeys(ALL, "ok")


@pytest.mark.parametrize("mode,group,other", [
    ("0600", NOTHING, NOTHING),
    ("0640", READ, NOTHING),
    ("0644", READ, READ),
    ("0660", FULL, NOTHING),
    ("0664", FULL, READ),
    ("0666", FULL, FULL),
    ("0604", NOTHING, READ),
    ("0622", REPLACE, REPLACE),
])
def test_modes(daemon, as_user, mode, group, other):
    for who, expected in ((GROUP, group), (OTHER, other)):
        as_user(daemon, *OWNER, publish(mode))
        assert as_user(daemon, *who, try_all(mode)) == expected, who
        as_user(daemon, 0, 0, lambda p: p.delete(p.names()))


def test_supplementary_groups_count(daemon, as_user):
    as_user(daemon, *OWNER, publish("0640"))
    assert as_user(daemon, *MEMBER, lambda p: kind_of(p, "open", name="0640")) == "not_found"
    assert as_user(daemon, *MEMBER, lambda p: kind_of(p, "open", name="0640"),
                   groups=[1001]) == "ok"


def test_the_owner_and_root_may_do_all(daemon, as_user):
    for who in (OWNER, (0, 0)):
        as_user(daemon, *OWNER, publish("0600"))
        assert as_user(daemon, *who, try_all("0600")) == FULL
        as_user(daemon, 0, 0, lambda p: p.delete(p.names()))


def test_objects_belong_to_who_made_them(daemon, peer, as_user):
    as_user(daemon, 1005, 1006, lambda p: p.put("a"))
    told = peer.call("stat", name="a")["object"]
    assert (told["uid"], told["gid"]) == (1005, 1006)


def asked_of(name):
    """Every request that is about a name, but for those that take it."""
    for which in ({}, {"version": 1}, {"label": "best"}):
        for method, more in (("open", {}), ("stat", {}), ("stat", {"why": True}), ("delete", {}), ("set", {"pinned": True}),
                             ("set", {"ttl_ms": 5}), ("move", {}), ("move", {"tier": "device"})):
            yield method, {"name": name, **which, **more}
    for more in ({}, {"exclusive": True}, {"exclusive": True, "wait_ms": 1}):
        yield "open", {"name": name, "access": "write", **more}
    yield "open", {"name": name, "wait_ms": 1}
    yield "open", {"names": [name]}
    yield "delete", {"names": [name]}
    yield "alias", {"name": "mine", "of": name}
    yield "alias", {"name": "mine", "of": name, "slice": {"offset": 0, "length": 1}}
    yield "settle", {"objects": [{"name": name, "version": 1}]}
    yield "leases", {"name": name}
    yield "list", {"prefix": name}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("mode", ["0600", "0602"])
def test_what_may_not_be_seen_is_not_told_apart_from_nothing(daemon, as_user, mode, live):
    """The same answer, word for word, but for the name; also where it might be changed."""
    def make(peer):
        if live:
            peer.call("create", name=mode, layout=bytes_layout(1), live=True, mode=mode)
        else:
            peer.put(mode, b"1", mode=mode, label="best")

    as_user(daemon, *OWNER, make)

    def answers(peer, name):
        for method, params in asked_of(name):
            try:
                told = peer.call(method, **params)
            except RpcError as error:
                told = [error.kind, error.message, error.data]
            yield method, json.dumps(told).replace(name, "NAME")

    def work(peer):
        return [list(answers(peer, mode)), list(answers(peer, "0700"))]

    seen, absent = as_user(daemon, *OTHER, work)
    assert seen == absent and {method for method, _ in seen} == {
        method["name"] for method in described.PROTOCOL["methods"]
        if {"name", "names", "prefix"} & {param["name"] for param in method["params"]}
    } - {"create", "register", "provide", "watch"} | {"settle"}


def test_a_taken_name_of_another(daemon, as_user):
    """One cannot publish under a name that another user's object has, seen or not."""
    as_user(daemon, *OWNER, publish("0600", "0644"))

    def work(peer):
        return [kind_of(peer, "create", name=n, layout=bytes_layout(1), replace=r)
                for n in ("0600", "0644") for r in (False, True)]

    kinds = as_user(daemon, *OTHER, work)
    assert kinds[1] == kinds[3] == "denied"
    assert set(kinds) <= {"denied", "exists"}


def test_waiting_for_what_may_not_be_seen(daemon):
    """The wait is not ended by an object that the waiting one may not open."""
    owner, other = daemon.connect_as(*OWNER), daemon.connect_as(*OTHER)
    ident = other.request("open", name="a", wait_ms=20000)
    other.wait_until_read()
    owner.put("a", b"private")
    assert other.call("stats") and ident not in other.replies
    owner.put("a", b"public", mode="0644", replace=True)
    assert other.read(other.reply(ident)["object"]["layout"]["data"]) == b"public"


def test_a_wait_for_it_ends_like_one_for_nothing(daemon):
    owner, other = daemon.connect_as(*OWNER), daemon.connect_as(*OTHER)
    owner.put("a")
    for name in ("a", "none"):
        error = other.error("timeout", "open", name=name, wait_ms=30)
        assert error.data["name"] == name


def test_events_of_what_may_not_be_seen(daemon):
    """Neither seals nor deletes of others' private objects are told."""
    owner, other = daemon.connect_as(*OWNER), daemon.connect_as(*OTHER)
    owner.put("old", mode="0640")
    other.call("watch")
    for name, mode in (("private", "0600"), ("public", "0644")):
        owner.put(name, mode=mode)
    owner.call("delete", names=["old", "private", "public"])
    told = [e[:2] for e in other.events(3)]
    assert told == [("synced", None), ("sealed", "public"), ("deleted", "public")]
    other.no_notification()


def test_nothing_is_resumed_that_may_not_be_seen(daemon):
    """Whoever knows an object's name, its version and the daemon's instance cannot say it was theirs."""
    owner, other = daemon.connect_as(*OWNER), daemon.connect_as(*OTHER)
    one = {"name": "a", "version": owner.put("a")}
    instance = daemon.connect().call("hello", protocol=1)["instance"]
    resume = {"instance": instance, "objects": [one]}
    assert other.call("hello", protocol=1, resume=resume)["resumed"] == [None]
    assert owner.call("hello", protocol=1, resume=resume)["resumed"] != [None]


def test_groups_are_those_of_the_connection(daemon):
    """Rights are those of the process when it connected."""
    owner = daemon.connect_as(*OWNER)
    member = daemon.connect_as(*MEMBER, groups=[7, 1001])
    owner.put("a", mode="0660")
    member.call("watch")
    assert member.events(1)[0][:2] == ("sealed", "a")
    member.call("set", pinned=True, name="a")
    assert member.names() == ["a"]


def test_an_alias_opens_no_door(daemon):
    """A reader's alias cannot let in who could not open the source: it keeps the source's group, and
    its mode is no wider. (Whoever opens it is given segments with others of the source's domain.)"""
    owner = daemon.connect_as(*OWNER)
    member = daemon.connect_as(*MEMBER, groups=[1001])
    friend = daemon.connect_as(1005, MEMBER[1])  # of the member's own group, not of the owner's
    owner.put("source", b"secret", mode="0640")
    member.call("alias", name="alias", of="source")
    told = member.call("stat", name="alias")["object"]
    assert (told["uid"], told["gid"], told["mode"]) == (MEMBER[0], OWNER[1], "0640")
    assert member.open_object("alias").read() == b"secret"
    friend.error("not_found", "open", name="alias")
    member.error("denied", "alias", name="wide", of="source", mode="0644")
    member.error("denied", "alias", name="alias", of="source", mode="0660", replace=True)


def test_trim_is_for_root_and_the_daemons_own(daemon, peer, as_user):
    assert as_user(daemon, *OTHER, lambda p: kind_of(p, "trim")) == "denied"
    assert kind_of(peer, "trim") == "ok"


def test_leases_of_objects_that_may_not_be_seen(daemon, peer, as_user):
    """Names of private objects are not told to others."""
    as_user(daemon, *OWNER, publish("0600"))
    peer.open_object("0600")
    told = as_user(daemon, *OTHER, lambda p: [e["name"] for e in p.call("leases")["leases"]])
    assert "0600" not in told


def failing(function):
    try:
        function()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "ok"


@pytest.mark.host_only("the driver has no descriptors for reading only")
def test_a_readers_descriptor_cannot_be_upgraded(daemon, as_user):
    as_user(daemon, *OWNER, lambda p: p.put("shared", b"x" * 1000, mode="0644"))

    def work(peer):
        opened = peer.open_object("shared")
        segment = peer.segment(opened.layout["data"]["segment"])
        fd, out = segment.fd, {}
        out["mode"] = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        out["write"] = failing(lambda: os.pwrite(fd, b"!", opened.layout["data"]["offset"]))
        out["map"] = failing(lambda: mmap.mmap(fd, segment.bytes, mmap.MAP_SHARED,
                                               mmap.PROT_READ | mmap.PROT_WRITE))
        out["reopen rw"] = failing(lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
        out["reopen w"] = failing(lambda: os.open(f"/proc/self/fd/{fd}", os.O_WRONLY))
        out["truncate"] = failing(lambda: os.ftruncate(fd, 0))
        out["truncate path"] = failing(lambda: os.truncate(f"/proc/self/fd/{fd}", 0))
        out["chmod"] = failing(lambda: os.fchmod(fd, 0o777))
        out["read"] = opened.read()[:1] == b"x"
        return out

    for uid, gid in (OTHER, GROUP, OWNER):
        out = as_user(daemon, uid, gid, work)
        assert out.pop("mode") == os.O_RDONLY and out.pop("read") is True
        assert "ok" not in out.values(), out


@pytest.mark.host_only("memory of a GPU has no size to change")
# RELIABILITY.md: Hostile clients 16
def test_not_even_the_owner_can_shrink_or_grow_a_segment(daemon, as_user):
    """Readers would die of it, so a writer's descriptor is sealed against it too."""

    def work(peer):
        made = peer.create("a", bytes_layout(1000), b"x")
        segment = peer.segments[(made["object"]["layout"]["data"]["segment"], "rw")]
        return [failing(lambda: os.ftruncate(segment.fd, 0)),
                failing(lambda: os.ftruncate(segment.fd, segment.bytes * 2)),
                os.fstat(segment.fd).st_size == segment.bytes]

    shrink, grow, same = as_user(daemon, *OWNER, work)
    assert shrink != "ok" and grow != "ok" and same


def test_another_users_session_number_gives_nothing(daemon, peer, as_user):
    """Leases, watches and segments of other sessions are out of reach."""
    made = peer.create("a", bytes_layout(1), b"x")
    watch = peer.call("watch")["watch"]
    segment = made["object"]["layout"]["data"]["segment"]

    def work(session):
        return [kind_of(session, "seal", lease=made["lease"]),
                kind_of(session, "release", lease=made["lease"]),
                kind_of(session, "unwatch", watch=watch),
                kind_of(session, "unmap", segments=[segment])]

    assert set(as_user(daemon, *OTHER, work)) <= {"stale", "not_found"}
    peer.call("seal", lease=made["lease"])
