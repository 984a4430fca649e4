"""open: one, many, waiting, by version, and which segments come along."""


import pytest

from peer import bytes_layout
from restarts import register


@pytest.mark.on_gpus
def test_reply(daemon, peer):
    version = peer.put("a", b"hello")
    result = daemon.connect().call("open", name="a")
    assert set(result) == {"lease", "object", "segments"}
    assert result["object"]["name"] == "a" and result["object"]["version"] == version
    (segment,) = result["segments"]
    assert segment["access"] == "r"
    assert result["object"]["layout"]["data"]["segment"] == segment["id"]


def test_brief(daemon, peer):
    """The same members as ever, but for those that it takes nothing of to map the object."""
    essence = ("name", "version", "device", "layout")
    created = peer.call("create", name='b",\"share\":"', layout=bytes_layout(5), brief=True)
    assert set(created) == {"lease", "object", "segments"}
    assert tuple(created["object"]) == essence and created["object"]["version"] == 0
    peer.call("seal", lease=created["lease"])
    reader = daemon.connect()
    whole = reader.call("open", name='b",\"share\":"')["object"]
    expected = {member: whole[member] for member in essence}
    assert reader.call("open", name='b",\"share\":"', brief=True)["object"] == expected
    many = reader.call("open", names=['b",\"share\":"', "none"], brief=True)["objects"]
    assert many[0]["object"] == expected and many[1]["error"]["data"]["kind"] == "not_found"
    assert "uid" in reader.call("open", name='b",\"share\":"', brief=False)["object"]


def test_no_object_is_a_prefix_of_its_name(peer):
    peer.put("a/b")
    for name in ("a", "a/b/c", "a/B", "a/b "):
        assert name in peer.error("not_found", "open", name=name).message


@pytest.mark.on_gpus
def test_a_session_is_given_a_segment_once(daemon, peer):
    peer.put("a", b"1")
    peer.put("b", b"2")
    assert peer.call("open", name="a")["segments"] == [], "its creator has it"
    assert len(daemon.connect().call("open", name="a")["segments"]) == 1
    reader = daemon.connect()
    assert len(reader.call("open", name="a")["segments"]) == 1
    assert reader.call("open", name="a")["segments"] == []
    assert reader.call("open", name="b", segments="new")["segments"] == []
    assert len(reader.call("open", name="a", segments="all")["segments"]) == 1
    assert reader.open_object("b").read() == b"2"


def test_many_with_errors_among_them(daemon, peer):
    peer.put("a")
    peer.put("b")
    reader = daemon.connect()
    result = reader.call("open", names=["a", "none", "b", "a"])
    kinds = ["error" if "error" in e else "object" for e in result["objects"]]
    assert kinds == ["object", "error", "object", "object"]
    error = result["objects"][1]["error"]
    assert error["code"] == -32001 and error["data"] == {"kind": "not_found", "name": "none"}
    assert result["objects"][0]["lease"] != result["objects"][3]["lease"]
    assert [o["name"] for o in map(lambda e: e["object"], result["objects"][2:])] == ["b", "a"]


def test_none(peer):
    assert peer.call("open", names=[]) == {"objects": [], "segments": []}


def test_as_many_names_as_one_request_may_have(daemon, peer):
    peer.put("a", b"x")
    for i in range(4):
        peer.call("alias", name=f"b{i}", of="a")
    names = [f"b{i % 4}" for i in range(64)]
    reader = daemon.connect()
    answer = reader.call("open", names=names)
    entries = answer["objects"]
    assert len(answer["segments"]) == 1
    assert [entry["object"]["name"] for entry in entries] == names
    assert all(reader.read(entry["object"]["layout"]["data"]) == b"x" for entry in entries)
    leases = [entry["lease"] for entry in entries]
    assert len(set(leases)) == 64
    assert sum(peer.call("stat", name=f"b{i}")["object"]["leases"] for i in range(4)) == 64
    reader.call("release", leases=leases)
    assert peer.call("leases")["leases"] == []


@pytest.mark.parametrize("method, member", [("release", "leases"), ("unmap", "segments")])
def test_an_id_too_many(peer, method, member):
    error = peer.error("invalid", method, **{member: [1] * 257})
    assert "256" in error.message
    peer.error("stale", method, **{member: [1] * 256})


@pytest.mark.on_gpus
def test_more_segments_than_one_message_carries(daemon, peer):
    """Each has a segment of its own: 16 descriptors fit, the others are asked for again."""
    count = 24
    for i in range(count):
        register(peer, f"s/{i}", b"%d" % i)
    reader = daemon.connect()
    names = [f"s/{i}" for i in range(count)]
    got = {}
    rounds = 0
    while names:
        rounds += 1
        result = reader.call("open", names=names)
        again = []
        for name, entry in zip(names, result["objects"]):
            if "error" in entry:
                assert entry["error"]["data"]["kind"] == "limit"
                assert entry["error"]["data"]["limit"] == "fds"
                again.append(name)
            else:
                got[name] = reader.read(entry["object"]["layout"]["data"])
        assert len(again) < len(names)
        names = again
    assert rounds == 2
    assert got == {f"s/{i}": b"%d" % i for i in range(count)}


def test_wait_is_for_the_seal_not_the_create(daemon, peer):
    reader = daemon.connect()
    ident = reader.request("open", name="later", wait_ms=20000)
    lease = peer.create("later", bytes_layout(1), b"1")["lease"]
    assert reader.call("stats") and ident not in reader.replies
    peer.call("seal", lease=lease)
    assert reader.reply(ident)["lease"]


def test_wait_zero_does_not_wait(daemon):
    assert "never" in daemon.connect().error("not_found", "open", name="never", wait_ms=0).message


def test_wait_for_many(daemon, peer):
    reader = daemon.connect()
    peer.put("w/0")
    ident = reader.request("open", names=["w/0", "w/1", "w/2"], wait_ms=20000)
    peer.put("w/2")
    assert reader.call("stats") and ident not in reader.replies
    peer.put("w/1")
    assert [e["object"]["name"] for e in reader.reply(ident)["objects"]] == ["w/0", "w/1", "w/2"]


def test_wait_for_many_ends_with_what_there_is(daemon, peer):
    reader = daemon.connect()
    peer.put("w/0")
    entries = reader.call("open", names=["w/0", "w/1"], wait_ms=100)["objects"]
    assert entries[0]["object"]["name"] == "w/0"
    assert entries[1]["error"]["data"]["kind"] == "timeout"


def test_one_who_waits_and_goes(daemon, peer):
    """No lease is made for a session that has ended."""
    reader = daemon.connect()
    reader.request("open", name="a", wait_ms=20000)
    reader.wait_until_read()
    reader.close()
    peer.put("a")
    assert peer.call("leases")["leases"] == []


@pytest.mark.parametrize("method", ["open", "delete"])
@pytest.mark.parametrize("params", [{}, {"name": "a", "names": ["a"]}, {"names": [1]}], ids=str)
def test_bad_params(shared_peer, method, params):
    assert "params" in shared_peer.error("invalid", method, **params).message
