"""gpubufd.cluster: what gpubufd-peer tells a Python program of names, machines and figures. Daemons a and b."""

import contextlib
import re
import socket
import threading

import etcds
import pytest
from certificates import Authority
from cluster import Cluster, path_of
from conftest import ROOT, standing
from peer import wait_until

import gpubufd
import gpubufd.cluster

SHARED = {"scope": "cluster", "mode": 0o644}


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """a and b; this process asks the peer of a."""
    if not etcds.ETCD:
        pytest.skip("needs etcd")
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(contextlib.closing(etcds.Etcd()))
        cluster = Cluster(lambda: stack.enter_context(standing()).daemon, Authority(tmp_path), etcd)
        try:
            a, b = cluster.start("a", "b")
            monkeypatch.setenv("GPUBUFD_PEER_SOCKET", path_of(a))
            yield a, b
        finally:
            cluster.stop()


def told(function, *args, **options):
    """None while the peer does not know the others yet."""
    try:
        return function(*args, **options)
    except (gpubufd.NotFound, gpubufd.Unavailable):
        return None


def test_what_the_peer_tells(machines, capsys):
    a, b = machines
    with gpubufd.connect(a.daemon.path) as here, gpubufd.connect(b.daemon.path) as there:
        there.put("x/1", b"12345", **SHARED)
        wait_until(lambda: told(gpubufd.cluster.where, "x/1"))
        (place,) = gpubufd.cluster.where("x/1")
        assert (place.node, place.origin, place.bytes, place.is_copy) == ("b", "b", 5, False)
        assert (place.host, place.port) == ("127.0.0.1", b.lane.port)

        assert here.get("x/1", timeout=60).tobytes() == b"12345"
        wait_until(lambda: len(gpubufd.cluster.where("x/1", socket=path_of(b))) == 2)
        copy, owner = gpubufd.cluster.where("x/1")
        assert owner == place and (copy.node, copy.origin, copy.is_copy, copy.host) == ("a", "b", True, None)
        created = [client.stat("x/1").created for client in (here, there)]
        assert abs(copy.since - created[0]) < 600 and abs(owner.since - created[1]) < 600
        with pytest.raises(gpubufd.NotFound):
            gpubufd.cluster.where("absent")

        assert gpubufd.cluster.peers() == [gpubufd.cluster.Peer("b", "127.0.0.1", b.lane.port)]
        figures = gpubufd.cluster.stats()
        assert (figures["up"], figures["fetched_total"], figures["fetched_bytes_total"]) == (1, 1, 5)
        assert figures["fetch_failures_total"] == {}
        names = [f"y/{i:03}" for i in range(300)]  # more than a page
        for name in names:
            there.put(name, b"1", **SHARED)
        wait_until(lambda: [one.name for one in gpubufd.cluster.list()] == ["x/1", *names])
        (one,) = gpubufd.cluster.list("x/")
        assert (one.name, one.node, one.version, one.bytes, one.copies) == ("x/1", "b", owner.version, 5, 1)
        assert gpubufd.cluster.list("z") == []
        there.put("cols/price", b"1", **SHARED)
        wait_until(lambda: told(gpubufd.cluster.where, "cols/price"))
        (block,) = re.findall(r"^```python cluster\n(.*?)^```", (ROOT / "docs" / "PYTHON-CLUSTER.md").read_text(), re.M | re.S)
        exec(block)  # as the guide shows it
        assert "b 1 False 127.0.0.1" in capsys.readouterr().out


def test_no_peer_is_there(tmp_path, monkeypatch):
    path = str(tmp_path / "none.sock")
    monkeypatch.setenv("GPUBUFD_PEER_SOCKET", path)
    for function, args in ((gpubufd.cluster.where, ("x",)), (gpubufd.cluster.list, ()), (gpubufd.cluster.peers, ()),
                           (gpubufd.cluster.stats, ())):
        with pytest.raises(gpubufd.ConnectFailed, match="none.sock.*--query"):
            function(*args)


@pytest.mark.parametrize("answer, error", [
    (b"", gpubufd.ConnectFailed), (b"{\n", gpubufd.ProtocolError), (b"[]\n", gpubufd.ProtocolError),
    (b"\xff\n", gpubufd.ProtocolError), (None, gpubufd.ConnectFailed),
    (b'{"error":{"kind":"unavailable","message":"etcd is away"}}\n', gpubufd.Unavailable),
    (b'{"error":{"kind":"of a later peer","message":"no"}}\n', gpubufd.Error)])
def test_a_peer_that_answers_otherwise(tmp_path, answer, error):
    """None: it does not, for as long as it is waited for."""
    path, over = str(tmp_path / "peer.sock"), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                if answer is None:
                    over.wait()
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(error):
                gpubufd.cluster.peers(socket=path, timeout=0.2 if answer is None else 60)
        finally:
            over.set()
            thread.join()
