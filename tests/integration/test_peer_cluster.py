"""Names that are published, change and end (docs/CLUSTER.md)."""

import os
import re
import signal

import pytest

from cluster import SHARED, WAIT, Asker, Machine, PeerProcess, fetched, path_of
from peer import Closed, RpcError, wait_until
from relay import Proxy
from test_peer import Stranger


@pytest.fixture
def proxy(etcd):
    one = Proxy(etcd)
    yield one
    one.close()


def is_here(peer, name):
    try:
        peer.call("stat", name=name)
    except RpcError as error:
        assert error.kind == "not_found"
        return False
    return True


def is_nowhere(peer, name):
    """Whether an open of it waits; as long as the machine that had it is believed to be there, it does not."""
    try:
        peer.call("open", name=name, wait_ms=300)
    except RpcError as error:
        assert error.kind in ("timeout", "unavailable"), error
        return error.kind == "timeout"


# RELIABILITY.md: Other machines 15
def test_what_is_shared_is_read_elsewhere_until_it_is_deleted(cluster):
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    data = os.urandom(3 << 20)
    here.put("cols/x", data, **SHARED)
    here.put("cols/own", b"local", mode="0644")
    here.put("cols/private", b"its owner's", scope="cluster", mode="0600")
    here.put("cols/y", b"after them", **SHARED)
    assert fetched(there, "cols/x") == data
    wait_until(lambda: "/gpubufd/names/cols/y" in cluster.etcd.keys())
    assert not {"/gpubufd/names/cols/own", "/gpubufd/names/cols/private"} & set(cluster.etcd.keys())
    there.error("timeout", "open", name="cols/own", wait_ms=300)
    here.call("delete", name="cols/x")
    wait_until(lambda: not is_here(there, "cols/x"))
    there.error("timeout", "open", name="cols/x", wait_ms=300)


# RELIABILITY.md: Other machines 15
def test_a_newer_version_takes_the_place_of_a_copy(cluster):
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    here.put("x", b"first", **SHARED)
    assert fetched(there, "x") == b"first"
    here.put("x", b"second", replace=True, **SHARED)
    wait_until(lambda: not is_here(there, "x") or fetched(there, "x") == b"second")
    assert fetched(there, "x") == b"second"


def test_a_name_that_nobody_has_is_waited_for(cluster):
    a, b = cluster.start("a", "b")
    here, there, maker = a.connect(), b.connect(), b.connect()
    wait_until(lambda: "no machine of the cluster has" in there.error("timeout", "open", name="made/a", wait_ms=200).message)
    elsewhere, at_home = (there.request("open", name=name, wait_ms=WAIT) for name in ("made/a", "made/b"))
    here.put("made/a", b"a", **SHARED)
    assert there.reply(elsewhere)["object"]["bytes"] == 1
    maker.put("made/b", b"bb")
    assert there.reply(at_home)["object"]["bytes"] == 2


# RELIABILITY.md: Other machines 12
def test_a_name_that_is_made_while_etcd_is_away_is_fetched_when_it_is_back(cluster, proxy):
    a, b = cluster.add("a"), cluster.add("b", lease=10, url=proxy.url)
    here, there = a.connect(), b.connect()
    waiting = there.request("open", name="made", wait_ms=WAIT)
    b.peer.wait_for('cannot fetch name=made why="no machine of the cluster')  # it stays absent
    proxy.set(cut=True)
    b.peer.wait_for("names of other machines unavailable")
    here.put("made", b"meanwhile", **SHARED)
    wait_until(lambda: "/gpubufd/names/made" in cluster.etcd.keys())
    proxy.set()
    assert there.reply(waiting)["object"]["bytes"] == len(b"meanwhile")


def test_a_name_is_asked_for_until_etcd_has_told_of_its_newer_version(cluster, proxy):
    a, b = cluster.add("a"), cluster.add("b", url=proxy.url)
    here, there = a.connect(), b.connect()
    here.put("x", b"first", **SHARED)
    assert fetched(there, "x") == b"first"  # from then on b remembers its revision
    there.call("delete", name="x")
    wait_until(lambda: not [key for key in cluster.etcd.keys() if "/copies/" in key])
    proxy.set(deaf=True)
    before = cluster.etcd.revision()
    here.put("x", b"second", replace=True, **SHARED)
    wait_until(lambda: cluster.etcd.revision() > before)
    a.lane.hold_after(1300)  # some ten refusals
    waiting = there.request("open", name="x", wait_ms=WAIT)
    a.lane.wait_held()
    proxy.set()
    wait_until(lambda: not proxy.holds_any())
    a.lane.release()
    assert there.reply(waiting)["object"]["bytes"] == len(b"second")


# RELIABILITY.md: Other machines 12
def test_a_name_that_is_deleted_and_made_again_while_it_is_asked_for(cluster, proxy):
    a, b, c = cluster.add("a"), cluster.add("b", url=proxy.url), cluster.add("c")
    here, there, elsewhere = a.connect(), b.connect(), c.connect()
    elsewhere.put("mark", b"1", **SHARED)
    here.put("warm", b"1", **SHARED)
    here.put("x", b"former", **SHARED)
    assert fetched(there, "mark") == fetched(there, "warm") == b"1"
    wait_until(lambda: "/gpubufd/names/x" in cluster.etcd.keys())
    elsewhere.put("mark", b"2", replace=True, **SHARED)
    wait_until(lambda: not is_here(there, "mark"))  # so b knows of all that was before, of x too
    assert fetched(there, "mark") == b"2"
    proxy.set(deaf=True)
    here.call("delete", name="x")
    wait_until(lambda: "/gpubufd/names/x" not in cluster.etcd.keys())
    a.lane.hold_after(1)
    waiting = there.request("open", name="x", wait_ms=WAIT)
    a.lane.wait_held()  # a's word that it has no x
    here.put("x", b"made anew", **SHARED)
    wait_until(lambda: "/gpubufd/names/x" in cluster.etcd.keys())
    elsewhere.put("mark", b"3", replace=True, **SHARED)
    proxy.set()
    wait_until(lambda: not is_here(there, "mark"))  # now b knows of the new one
    a.lane.release()
    assert there.reply(waiting)["object"]["bytes"] == len(b"made anew")


# RELIABILITY.md: Other machines 12
def test_a_machine_is_let_in_before_etcd_has_told_of_it(cluster, proxy):
    a = cluster.add("a", url=proxy.url)
    a.connect().put("x", b"1", **SHARED)
    wait_until(lambda: "/gpubufd/names/x" in cluster.etcd.keys())
    proxy.set(blind=True)
    b = cluster.add("b")
    there = b.connect()
    waiting = there.request("open", name="x", wait_ms=WAIT)
    a.peer.wait_for('a machine waits: it is not known here yet machine="b ')
    proxy.set()
    assert there.reply(waiting)["object"]["bytes"] == 1
    a.peer.wait_for('a machine has connected machine="b ')


# RELIABILITY.md: Other machines 20
def test_a_machine_that_is_not_in_etcd_gets_nothing(cluster, authority):
    a = cluster.add("a")
    a.connect().put("x", b"1", **SHARED)
    stranger = Stranger(authority, a.peer.port, "stranger")
    stranger.send({"method": "open", "name": "x"})
    with pytest.raises((Closed, OSError)):  # ten seconds later: it could be one that etcd has not told of yet
        stranger.answer()
    a.peer.wait_for('machine="stranger .*" why="it is none of the machines that are known here')


def test_a_small_object_takes_two_round_trips(cluster):
    """To open it and to read it, once the two machines are connected."""
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    here.put("first", b"connects them", **SHARED)
    assert fetched(there, "first") == b"connects them"
    for name in ("one", "two", "three"):
        here.put(name, b"few", **SHARED)
        before = a.lane.turns
        assert fetched(there, name) == b"few"
        assert a.lane.turns - before <= 2


# RELIABILITY.md: Other machines 11
def test_of_two_machines_one_has_the_name(cluster):
    a, b, c = cluster.start("a", "b", "c")
    a.connect().put("x", b"of a", **SHARED)
    assert fetched(c.connect(), "x") == b"of a"
    b.connect().put("x", b"of b", **SHARED)
    b.peer.wait_for('not published name=x version=[0-9]+ why="\\\\"x\\\\" was published by a')
    assert fetched(b.connect(), "x") == b"of b"  # at home it is what it was made
    assert fetched(c.connect(), "x") == b"of a"


# RELIABILITY.md: Other machines 15
def test_the_owner_is_killed_and_its_copies_are_read_on(cluster):
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    here.put("x", b"kept", **SHARED)
    here.put("y", b"never fetched", **SHARED)
    assert fetched(there, "x") == b"kept"
    wait_until(lambda: "/gpubufd/names/y" in cluster.etcd.keys())
    a.peer.kill()
    cluster.etcd.end_lease("a")
    assert not [key for key in cluster.etcd.keys() if "/copies/" not in key and key != "/gpubufd/nodes/b"]
    wait_until(lambda: is_nowhere(there, "y"))
    assert fetched(there, "x") == b"kept"
    cluster.run(a)
    assert fetched(there, "y") == b"never fetched"


# RELIABILITY.md: Other machines 16
def test_a_daemon_that_begins_anew_numbers_its_versions_anew(cluster):
    a, b = cluster.start("a", "b")
    here, there = a.connect(), b.connect()
    there.put("copy", b"of b", **SHARED)
    versions = [here.put("x", b"first", **SHARED)]
    assert fetched(here, "copy") == b"of b"
    versions.append(here.call("stat", name="copy")["object"]["version"])
    for data in (b"1", b"2", b"former"):
        here.put("lower", data, replace=True, **SHARED)
    here.put("gone", b"gone", **SHARED)
    for name, data in (("x", b"first"), ("lower", b"former"), ("gone", b"gone")):
        assert fetched(there, name) == data
    wait_until(lambda: [key for key in cluster.etcd.keys() if key.startswith("/gpubufd/copies/copy@")])
    a.peer.process.send_signal(signal.SIGSTOP)  # until the names are there again
    try:
        a.daemon.kill()
        a.daemon.__init__(a.daemon.directory)
        here = a.connect()
        assert [here.put("x", b"second", **SHARED), here.put("copy", b"of a", mode="0644")] == versions
        here.put("lower", b"latter", **SHARED)
    finally:
        a.peer.process.send_signal(signal.SIGCONT)
    wait_until(lambda: fetched(there, "x") == b"second" and fetched(there, "lower") == b"latter")
    wait_until(lambda: not is_here(there, "gone"))
    wait_until(lambda: not [key for key in cluster.etcd.keys() if key.startswith("/gpubufd/copies/copy@")])


# RELIABILITY.md: Other machines 14
def test_without_etcd_local_work_and_copies_go_on(cluster):
    a, b = cluster.add("a"), cluster.add("b", lease=10)
    here, there = a.connect(), b.connect()
    here.put("x", b"kept", **SHARED)
    here.put("y", b"never fetched", **SHARED)
    assert fetched(there, "x") == b"kept"
    cluster.etcd.signal(signal.SIGSTOP)
    try:
        b.peer.wait_for("names of other machines unavailable")
        there.put("local", b"1", **SHARED)
        assert fetched(there, "local") == b"1" and fetched(there, "x") == b"kept"
        refused = there.error("unavailable", "open", name="y", wait_ms=WAIT)
        assert re.search("the lease could not be renewed|etcd at", refused.message)  # later it tells of its last try
    finally:
        cluster.etcd.signal(signal.SIGCONT)
    wait_until(lambda: there_has(there, "y"))
    wait_until(lambda: there_has(here, "local"))


def test_a_sentence_that_is_no_utf8_is_told_all_the_same(daemon, authority):
    machine = Machine("a", daemon, None)
    peer = PeerProcess(daemon.directory, daemon, authority.certificate, authority.sign("a"), [
        "--etcd", "http://h\udcff:1", "--advertise", "127.0.0.1:1", f"--query={path_of(machine)}"])  # a byte of its own
    try:
        with Asker(machine) as asker:
            assert "etcd at http://h?:1: " in asker.ask("where", name="x")["error"]["message"]
        peer.stop()
    finally:
        peer.kill()


def there_has(peer, name):
    """Whether an open of it gets it; while the directory is not there again, it does not."""
    try:
        return bool(fetched(peer, name))
    except RpcError as error:
        assert error.kind in ("unavailable", "timeout", "not_found"), error
        return False
