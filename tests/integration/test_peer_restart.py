"""A gpubufd-peer that another follows on its machine: what the new one knows again, and who waits on."""

import contextlib
import signal
import threading

import pytest

from cluster import SHARED, WAIT, Asker, fetched
from peer import wait_until
from test_peer_cluster import is_here


def log_of(program):
    with contextlib.suppress(FileNotFoundError):  # it is removed before the next one begins
        return program.stderr()
    return ""


def version_of(peer, name):
    return peer.call("stat", name=name)["object"]["version"]


@pytest.mark.parametrize("killed", [False, True], ids=["SIGTERM", "SIGKILL"])
# RELIABILITY.md: Other machines 7
def test_copies_are_known_again(cluster, killed):
    """Names that were replaced or deleted meanwhile are not read any more; others are not fetched again."""
    a, b, c = cluster.start("a", "b", "c")
    here, there = a.connect(), b.connect()
    for name in ("replaced", "labelled", "deleted", "kept"):
        here.put(name, b"old", **SHARED, **({"label": "step-42"} if name == "labelled" else {}))
        assert fetched(there, name) == b"old"
    there.put("own", b"mine", mode="0644", note="copy of my own", label="copy of a, revision 1", evict="drop")
    assert there.call("stat", name="labelled")["object"]["label"] == "step-42"
    versions = {name: version_of(there, name) for name in ("kept", "own")}
    if killed:
        b.peer.kill()
        cluster.etcd.end_lease("b")
    else:
        b.peer.stop()
    for name in ("replaced", "labelled"):
        here.put(name, b"new", replace=True, **SHARED)
    here.call("delete", name="deleted")
    wait_until(lambda: "/gpubufd/names/deleted" not in cluster.etcd.keys())
    cluster.run(b)
    wait_until(lambda: not is_here(there, "deleted"))
    for name in ("replaced", "labelled"):
        wait_until(lambda name=name: not is_here(there, name) or fetched(there, name) == b"new")
        assert fetched(there, name) == b"new"
    assert {name: version_of(there, name) for name in versions} == versions
    # Others may fetch it from here again.
    wait_until(lambda: [key for key in cluster.etcd.keys() if key.startswith("/gpubufd/copies/kept@")])
    here.put("kept", b"newer", replace=True, **SHARED)
    wait_until(lambda: not is_here(there, "kept") or fetched(there, "kept") == b"newer")
    assert fetched(there, "own") == b"mine"


# RELIABILITY.md: Other machines 7
def test_who_waits_waits_on(cluster):
    """For the peer that comes next, also while that one has no word of etcd yet."""
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    waiting = there.request("open", name="late", wait_ms=WAIT)
    b.peer.wait_for('cannot fetch name=late why="no machine of the cluster')
    b.peer.stop()
    cluster.etcd.signal(signal.SIGSTOP)
    try:
        runs = threading.Thread(target=cluster.run, args=(b,))
        runs.start()
        wait_until(lambda: "cannot fetch name=late why=\"the cluster's names" in log_of(b.peer))
    finally:
        cluster.etcd.signal(signal.SIGCONT)
    runs.join()
    here.put("late", b"in time", **SHARED)
    assert there.reply(waiting)["object"]["bytes"] == len(b"in time")


# RELIABILITY.md: Other machines 8
def test_a_name_that_changes_hands(cluster):
    a, b, c = cluster.start("a", "b", "c")
    a.connect().put("x", b"of a", **SHARED)
    assert fetched(c.connect(), "x") == b"of a"
    there = b.connect()
    there.put("x", b"of b", **SHARED)
    b.peer.wait_for('not published name=x ')
    a.connect().call("delete", name="x")
    wait_until(lambda: "/gpubufd/names/x" not in cluster.etcd.keys())
    there.put("x", b"newer, of b", replace=True, **SHARED)
    b.peer.wait_for('name taken over from another machine name=x ')
    there.put("y", b"of b from the beginning", **SHARED)
    assert fetched(c.connect(), "y").startswith(b"of b")
    assert "another machine name=y " not in b.peer.stderr()
    with Asker(b) as asker:
        assert asker.figure("names_taken_total") == 1
