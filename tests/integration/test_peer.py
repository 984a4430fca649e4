"""gpubufd-peer: names of other machines, fetched once, checked, and never half."""

import os

import pytest

from cluster import Authority, Cluster
from peer import RpcError

MIB = 1 << 20
WAIT = 60_000
SCOPE = {}


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def cluster(daemon_factory, authority):
    one = Cluster(daemon_factory, authority)
    yield one
    one.stop()


def share(peer, name, data, **params):
    return peer.put(name, data, **{**SCOPE, "mode": "0644", **params})


def fetched(peer, name, wait_ms=WAIT, **params):
    opened = peer.open_object(name, wait_ms=wait_ms, **params)
    data = bytes(opened.read())
    opened.release()
    return data


def test_a_name_of_another_machine(cluster):
    a, b = cluster.start("a", "b")
    data = os.urandom(3 * MIB + 17)
    share(a.connect(), "x", data)
    assert fetched(b.connect(), "x") == data
