"""Answers of gpubufd-peer to the programs of its machine (--query): gpubufctl where, ls --cluster, and its metrics
through the gateway."""

import base64
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import termios

import pytest

from cluster import SHARED, Asker, fetched, path_of
from conftest import runs_as
from ctl import FAILED, NO_DAEMON, USAGE, Ctl
from device import BUILD, ROOT
from http_client import get
from peer import DEADLINE, wait_until
from test_metrics import parse


def ctl(machine, tmp_path):
    one = Ctl(machine.daemon.path, str(tmp_path))
    one.env["GPUBUFD_PEER_SOCKET"] = path_of(machine)
    return one


def unread(end):
    """How many bytes that were sent the other end has not yet read."""
    return struct.unpack("i", fcntl.ioctl(end, termios.TIOCOUTQ, b"\0\0\0\0"))[0]


def places(machine, name):
    with Asker(machine) as asker:
        answer = asker.ask("where", name=name)
    return {place["node"]: (place["origin"], place["version"], place["bytes"]) for place in answer.get("places", [])}


def test_where_a_name_is(cluster, tmp_path):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        version = here.put("x", b"12345", **SHARED)
        here.put("own", b"1", mode="0644")
        wait_until(lambda: places(b, "x") == {"a": ("a", version, 5)})
        assert fetched(there, "x") == b"12345"
        copy = there.call("stat", name="x")["object"]["version"]
        expected = {"a": ("a", version, 5), "b": ("a", copy, 5)}
        wait_until(lambda: places(a, "x") == expected and places(b, "x") == expected)
        here.put("secret", b"1", scope="cluster", mode="0600")  # for its owner alone
        assert places(a, "own") == places(a, "secret") == {}
        assert os.stat(path_of(a)).st_mode & 0o777 == 0o660
        shown = ctl(b, tmp_path)
        assert json.loads(shown.raw("where", "x", "--json").stdout)["node"] == "b"
        rows = [line.split() for line in shown.raw("where", "x").stdout.decode().splitlines()]
        assert sorted(row[:2] for row in rows[1:]) == [["a", "owner"], ["b", "copy"]]
        assert any(f"127.0.0.1:{a.lane.port}" in row for row in rows)
        done = shown.raw("where", "absent")
        assert done.returncode == FAILED and b"has" in done.stderr


def test_all_names_of_the_cluster(cluster, tmp_path):
    a, b = cluster.start("a", "b")
    names = [f"many/{i:03}" for i in range(300)]  # more than a page
    with a.connect() as here, b.connect() as there:
        for name in names:
            here.put(name, b"1", **SHARED)
        there.put("one", b"12", **SHARED)
        shown = ctl(b, tmp_path)

        def told(*words):
            return json.loads(shown.raw("ls", "--cluster", "--json", *words).stdout)["names"]

        wait_until(lambda: [one["name"] for one in told()] == [*names, "one"])
        assert fetched(there, "many/007") == b"1"
        wait_until(lambda: told("many/007")[0]["copies"] == 1)
        assert told("on")[0]["node"] == "b" and told("on")[0]["bytes"] == 2
        assert [one["name"] for one in told("many/29")] == names[290:]
        assert shown.raw("ls", "-c", "-1", "many/").stdout.decode().split() == names
        assert shown.raw("ls", "-c").stdout.decode().splitlines()[-1].split()[:2] == ["one", "b"]
        assert told("none") == []
        assert shown.raw("ls", "--cluster", "--long").returncode == USAGE
        with Asker(b) as asker:
            listed = asker.ask("list", after="many/298")["names"]
            assert [one["name"] for one in listed] == ["many/299", "one"]
            since = [one["since"] for one in listed + asker.ask("where", name="many/007")["places"]]
        created = there.call("stat", name="one")["object"]["created_ms"]
        assert len(since) == 4 and all(abs(told - created) < 600_000 for told in since)


def test_which_machines_there_are(cluster):
    a, b = cluster.start("a", "b")
    with Asker(a) as asker:
        expected = {"node": "a", "peers": [{"node": "b", "host": "127.0.0.1", "port": b.lane.port}]}
        wait_until(lambda: asker.ask("peers") == expected)
        b.peer.stop()
        wait_until(lambda: asker.ask("peers")["peers"] == [])


@pytest.mark.root
def test_where_somebody_outside_the_group_asks(directory):
    path = os.path.join(directory, "peer.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o660)
        done = subprocess.run([runs_as("nobody", BUILD / "bin" / "gpubufctl", directory), "where", "x"],
                              user="nobody", group="nogroup", extra_groups=[], capture_output=True, text=True,
                              env={**os.environ, "GPUBUFD_PEER_SOCKET": path})
    assert done.returncode == NO_DAEMON
    assert "Permission denied; are you in the group of its socket, gpubufd?" in done.stderr


def test_where_there_is_no_peer(cluster, tmp_path):
    a, b = cluster.start("a", "b")
    shown = ctl(a, tmp_path)
    a.peer.kill()
    done = shown.raw("where", "x")
    assert done.returncode == NO_DAEMON and path_of(a).encode() in done.stderr and b"--query" in done.stderr
    assert os.path.exists(path_of(a))
    cluster.etcd.end_lease("a")
    cluster.run(a)  # takes the place of what was left
    assert shown.raw("where", "x").returncode == FAILED and places(a, "x") == {}
    a.peer.stop()
    assert not os.path.exists(path_of(a))


# RELIABILITY.md: Other machines 22
def test_questions_that_make_no_sense(cluster):
    a, _ = cluster.start("a", "b")
    with Asker(a) as asker:
        assert asker.refused(b"") == "parse" and asker.refused(b"[") == "parse"
        assert asker.refused(b"[]") == asker.refused(b"{}") == "invalid"
        assert asker.refused(b'{"method":"drop"}') == "method"
        assert asker.refused(b'{"method":"where"}') == "invalid"
        assert asker.refused(b'{"method":"where","name":""}') == "invalid"
        assert asker.refused(b'{"method":"where","name":"' + b"n" * 5000 + b'"}') == "invalid"
        assert asker.refused(b'{"method":"where","name":"x"}') == "not_found"
        asker.socket.sendall(b"{" * 9000)
        with pytest.raises((json.JSONDecodeError, ConnectionError)):
            asker.line(b"")  # it has hung up
    with Asker(a) as asker:
        asker.socket.sendall(b'{"method":"where","name":"x"}\n' * 200)  # at once
        assert all(json.loads(asker.file.readline())["error"]["kind"] == "not_found" for _ in range(200))


# RELIABILITY.md: Other machines 22
def test_who_asks_at_a_time(cluster):
    """A connection too many takes the place of the oldest."""
    a, _ = cluster.start("a", "b")
    askers = [Asker(a) for _ in range(33)]
    assert askers[-1].refused(b"{}") == "invalid"
    assert askers[0].file.readline() == b""
    assert askers[1].refused(b"{}") == "invalid"
    for asker in askers:
        asker.__exit__()
    leaver = Asker(a)
    leaver.socket.sendall(b'{"method":"where","name":"x"}\n')
    leaver.__exit__()  # before it is answered
    with Asker(a) as asker:
        assert asker.refused(b"{}") == "invalid"


# RELIABILITY.md: Other machines 22
def test_questions_of_those_who_have_hung_up_are_bounded(cluster):
    """Each waits for the answer of a daemon that stands still."""
    a, _ = cluster.start("a", "b")
    os.kill(a.daemon.process.pid, signal.SIGSTOP)

    def is_refused():
        with Asker(a) as asker, contextlib.suppress(ConnectionError):
            asker.socket.sendall(b'{"method":"peers"}\n')
            return asker.file.readline() == b""
        return True

    def one_more_is_refused():
        with Asker(a) as leaver, contextlib.suppress(ConnectionError):
            leaver.socket.sendall(b'{"method":"where","name":"x"}\n')
            wait_until(lambda: not unread(leaver.socket))
        return is_refused()

    try:
        wait_until(one_more_is_refused)
    finally:
        os.kill(a.daemon.process.pid, signal.SIGCONT)
    wait_until(lambda: not is_refused())


def test_a_peer_stops_while_it_is_asked(cluster):
    """An answer is written and the loop has not told so yet; further questions have come."""
    a, _ = cluster.start("a", "b")
    with Asker(a) as asker:
        asker.ask("metrics")
        os.kill(a.peer.process.pid, signal.SIGSTOP)
        asker.socket.sendall(b'{"method":"metrics"}\n' * 200)
        os.kill(a.peer.process.pid, signal.SIGTERM)
        os.kill(a.peer.process.pid, signal.SIGCONT)
        a.peer.process.wait(DEADLINE)
    a.peer.stop()  # it has: with status 0, and without a word of a sanitizer


def published(cluster):
    """The names in etcd, in the order in which they were published."""
    kvs = cluster.etcd.post("kv/range", {"key": "AA==", "range_end": "AA==", "keys_only": True}).get("kvs", [])
    named = [(int(kv["mod_revision"]), base64.b64decode(kv["key"]).decode().partition("/names/")[2]) for kv in kvs]
    return [name for _, name in sorted(named) if name]


def shared(asker):
    """How many names the peer wants to have published."""
    return asker.figure("names_shared")


# RELIABILITY.md: Other machines 21
def test_many_names_are_withdrawn_a_few_at_a_time(cluster):
    """Programs may delete any number at once; the peer's connections are not theirs to use up."""
    a, _ = cluster.start("a", "b")
    names = [f"many/{i:03}" for i in range(200)]
    with a.connect() as here, Asker(a) as asker:
        for name in names:
            here.put(name, b"1", **SHARED)
        wait_until(lambda: len(published(cluster)) == len(names))
        cluster.etcd.signal(signal.SIGSTOP)
        try:
            here.delete(names)
            wait_until(lambda: shared(asker) == 0)
            here.put(names[-1], b"2", **SHARED)  # again, while the first withdrawal waits
            wait_until(lambda: shared(asker) == 1)
            here.delete(names[-1:])
            wait_until(lambda: shared(asker) == 0)
            assert len(os.listdir(f"/proc/{a.peer.process.pid}/fd")) < 150
        finally:
            cluster.etcd.signal(signal.SIGCONT)
        wait_until(lambda: not published(cluster))
        here.put("later", b"1", **SHARED)
        wait_until(lambda: published(cluster) == ["later"])


def put_many(peer):
    for i in range(400):
        peer.put(f"many/{i:03}", b"1", **SHARED)


@pytest.mark.root
# RELIABILITY.md: Other machines 4
def test_users_take_turns_to_publish(cluster, as_user):
    a, _ = cluster.start("a", "b")
    with a.connect() as here, Asker(a) as asker:
        cluster.etcd.signal(signal.SIGSTOP)
        try:
            as_user(a.daemon, 1001, 1001, put_many)
            here.put("other", b"1", **SHARED)
            wait_until(lambda: shared(asker) == 401)
        finally:
            cluster.etcd.signal(signal.SIGCONT)
        wait_until(lambda: len(published(cluster)) == 401)
        assert published(cluster).index("other") <= 300  # 200 were under way before it, 100 are in its transaction


@pytest.mark.root
# RELIABILITY.md: Other machines 4
def test_names_that_a_user_may_have_in_the_cluster(cluster, as_user):
    a, _ = cluster.start("a", "b", options=["--user-names", 3])
    with a.connect() as here, Asker(a) as asker:
        as_user(a.daemon, 1001, 1001, put_many)
        here.put("other", b"1", **SHARED)
        wait_until(lambda: asker.figure("names_published") == 4)  # the peer has its answers
        assert sorted(published(cluster)) == ["many/000", "many/001", "many/002", "other"]
        assert "the user 1001 has 3 names in the cluster already" in a.peer.stderr()
        assert asker.figure("names_over_total") == 397
        assert 20 <= a.peer.stderr().count("not published name=") < 150  # 20 in a minute
        here.delete(["many/001"])
        wait_until(lambda: shared(asker) == 3)
        as_user(a.daemon, 1001, 1001, lambda peer: peer.put("many/x", b"1", **SHARED))
        wait_until(lambda: sorted(published(cluster)) == ["many/000", "many/002", "many/x", "other"])


# ---- metrics ----


def scrape(port):
    return parse(get(port, "/metrics").text)


def test_the_metrics_of_the_peer(cluster, gateway, tmp_path):
    a, b = cluster.start("a", "b")
    port = gateway(b.daemon, "--http", "127.0.0.1:0", "--peer-socket", path_of(b)).port
    with a.connect() as here, b.connect() as there:
        here.put("x", b"12345", **SHARED)
        there.put("y", b"1", **SHARED)
        wait_until(lambda: places(b, "x"))  # what is asked for before it is shared counts as a failure, too
        assert fetched(there, "x") == b"12345"
        there.error("timeout", "open", name="absent", wait_ms=300)

        def value(name, *labels):
            return scrape(port)[f"gpubufd_peer_{name}"][2].get((f"gpubufd_peer_{name}", labels))

        wait_until(lambda: value("names_published") == 1)
        assert [value(name) for name in ("up", "fetched_total", "fetched_bytes_total", "copies", "machines_read",
                                         "directory_up", "joined_total", "names_shared", "names_refused")
                ] == [1, 1, 5, 1, 1, 1, 1, 1, 0]
        wait_until(lambda: value("fetch_failures_total", ("kind", "not_found")) == 1)
        assert value("etcd_requests_total") > 3 and 0 < value("etcd_seconds_total") < 600
        other = gateway(a.daemon, "--http", "127.0.0.1:0", "--peer-socket", path_of(a)).port
        served = scrape(other)["gpubufd_peer_served_bytes_total"][2]
        assert list(served.values()) == [5]
        told = {name: kind for name, (kind, _, _) in scrape(port).items() if name.startswith("gpubufd_peer_")}
        page = re.findall(r"`(gpubufd_peer_\w+)`", (ROOT / "docs" / "METRICS.md").read_text().split("\n## Of other")[1])
        assert set(page) == set(told)
        assert all((kind == "counter") == name.endswith("_total") for name, kind in told.items())
        b.peer.kill()
        assert value("up") == 0 and "gpubufd_peer_copies" not in scrape(port)
