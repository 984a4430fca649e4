"""gpubufd.dask where gpubufd-peer brings what no worker reaches: daemons a and b, a worker beside each."""

import gc
import os
import re

import etcds
import pytest
from certificates import Authority
from cluster import Cluster as Peers
from test_dask import assert_same, in_time, running, sample, wait_for  # noqa: F401  skips this file, too

import gpubufd

import dask.dataframe as dd

import gpubufd.dask as gd
from gpubufd import _client, _dask_places

pytestmark = pytest.mark.skipif(not etcds.ETCD, reason="needs etcd")
OPEN = {"scope": "cluster", "mode": 0o644}


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    with running() as cluster:
        os.chmod(cluster.directory, 0o755)
        names = iter("ab")
        etcd = etcds.Etcd()
        peers = cluster.peers = Peers(lambda: cluster.start_daemon(next(names)), Authority(tmp_path_factory.mktemp("authority")), etcd)
        try:
            peers.start("a", "b")
            yield cluster
            cluster.end()
            peers.stop()
        finally:
            for machine in peers.machines.values():
                machine.lane.close()
                if machine.peer:
                    machine.peer.kill()
            etcd.close()


@pytest.fixture
def machines(standing, monkeypatch):
    """The cluster of Dask's, with the peers in `peers`, and nothing published. This process has the daemon a."""
    standing.start_workers(**{worker: name for worker, name in (("a1", "a"), ("b1", "b")) if worker not in standing.workers})
    monkeypatch.setenv("GPUBUFD_SOCKET", standing.daemons["a"].path)
    yield standing
    gc.collect()
    _client._clients.clear()
    for daemon in standing.daemons.values():
        with gpubufd.connect(daemon.path) as client:
            client.delete(*(info.name for info in client.list()), missing_ok=True)


def publish(machines, value, name, **options):
    """Publishes half of the partitions beside each daemon; the number in b."""
    gd.publish(value, name, client=machines.client, **options)
    there = [one["instance"] for one in machines.manifest(name)["partitions"]]
    with gpubufd.connect(machines.daemons["b"].path) as b:
        return there.count(b.instance)


def halves(machines):
    where = machines.names()
    ddf = dd.from_pandas(sample(), npartitions=4)
    parts = [machines.client.persist(part, workers=[where[name]], allow_other_workers=False)
             for name, part in zip(("a1", "b1", "a1", "b1"), ddf.to_delayed())]
    return dd.from_delayed(parts, meta=ddf._meta, divisions=ddf.divisions, verify_meta=False)


def test_a_worker_has_gone_and_its_daemon_lives(machines):
    assert publish(machines, halves(machines), "x", **OPEN) == 2
    assert publish(machines, halves(machines), "local", mode=0o644) == 2
    before = gd.load("x", client=machines.client)
    machines.end_worker("b1")
    assert_same(machines.compute(before), sample())
    assert_same(machines.compute(gd.load("x", client=machines.client)), sample())
    listed = {one.name: one for one in gd.list(client=machines.client)}
    assert listed["x"].unreachable == listed["local"].unreachable == 2
    with pytest.raises(gpubufd.NotFound, match="partition 1, 3 of 'local': .* No worker of the cluster"):
        gd.load("local", client=machines.client)

    for name in ("x", "local"):
        gd.delete(name, client=machines.client)
    assert {name.partition("/")[0] for name in machines.list("b")} == {"x", "local"}, "nobody was there to do it"
    machines.start_workers(b1="b")
    for name in ("x", "local"):
        gd.delete(name, client=machines.client)
    del before
    wait_for(lambda: machines.list("a") + machines.list("b") == [],
             lambda: f"left: {machines.list('a')}, {machines.list('b')}")


def test_a_program_without_a_cluster(machines):
    """It reads what is in its own daemon, and peers bring the rest."""
    assert publish(machines, halves(machines), "x", **OPEN) == 2
    assert_same(gd.load("x").compute(scheduler="threads"), sample())


def test_the_machine_has_gone_too(machines):
    assert publish(machines, halves(machines), "x", **OPEN) == 2
    back = gd.load("x", client=machines.client)
    machines.end_worker("b1")
    machines.peers.machines["b"].peer.stop()
    machines.peers.machines["b"].lane.cut()
    failed = machines.error(back)
    said = (rf"partition [13] of 'x' \(x/dask-\w+/0000[13]\), on host '{_dask_places.host_name()}': .*"
            r"Its daemon \(\w+\) has ended, or no worker beside it is left, and gpubufd-peer has not brought")
    assert isinstance(failed, gpubufd.NotFound) and re.match(said, str(failed)), failed
