"""scope of create, register and alias: whether other machines are to know an object."""


import pytest

from ctl import Ctl
from peer import bytes_layout
from restarts import register, supervised  # noqa: F401


def scope(peer, name):
    return peer.call("stat", name=name)["object"].get("scope")


def test_it_is_told_everywhere(daemon, peer):
    watcher = daemon.connect()
    watcher.call("watch", existing=False)
    peer.put("a", scope="cluster")
    peer.put("b", scope="local")
    peer.put("c")
    told = [watcher.events(1)[0][2]["object"] for _ in range(3)]
    listed = peer.call("list")["objects"]
    opened = [peer.call("open", name=name)["object"] for name in "abc"]
    for objects in (told, listed, opened):
        assert [o.get("scope") for o in objects] == ["cluster", None, None]
    assert [scope(peer, name) for name in "abc"] == ["cluster", None, None]


def test_a_name_or_a_label_that_looks_like_it(peer):
    text = 'x","scope":"cluster","y":"'
    peer.put(text, label=text)
    assert scope(peer, text) is None
    peer.put("a", scope="cluster", label=text)
    assert peer.call("stat", name="a")["object"]["label"] == text and scope(peer, "a") == "cluster"


def test_register_and_alias(peer):
    register(peer, "r", b"x" * 4096, scope="cluster")
    assert scope(peer, "r") == "cluster"
    peer.call("alias", name="a", of="r")
    peer.call("alias", name="b", of="a", scope="cluster")
    assert scope(peer, "a") is None and scope(peer, "b") == "cluster"


@pytest.mark.parametrize("value", ["", "Cluster", "global", 1, True])
def test_no_other(peer, value):
    peer.error("invalid", "create", name="a", layout=bytes_layout(1), scope=value)


def test_it_outlives_the_daemon(supervised):  # noqa: F811
    daemon = supervised()
    with daemon.connect() as peer:
        peer.put("a", scope="cluster")
        peer.put("b")
    daemon.crash()
    with daemon.connect() as peer:
        assert scope(peer, "a") == "cluster" and scope(peer, "b") is None


def test_the_command_line(daemon, tmp_path):
    ctl = Ctl(daemon.path, str(tmp_path))
    (tmp_path / "f").write_bytes(b"123")
    ctl("put", "--cluster", "--format", "raw", "a", "f")
    ctl("put", "--format", "raw", "b", "f")
    objects = ctl.json("ls")["objects"]
    assert [o.get("scope") for o in objects] == ["cluster", None]
    a, b = ctl("ls", "--long").splitlines()[1:]
    assert "cluster" in a and "cluster" not in b
    assert "scope" in ctl("stat", "a") and "cluster" in ctl("stat", "a") and "local" in ctl("stat", "b")
