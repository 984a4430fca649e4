"""gpubufd.dask.publish(replicas=…): daemons a, b and c, a worker beside each."""

import gc
import re

import pytest
from test_dask import assert_same, in_time, running, sample, wait_for  # noqa: F401  skips this file, too

import dask.array as da
import dask.dataframe as dd
import numpy as np

import gpubufd.dask as gd
from gpubufd import _client


@pytest.fixture(scope="module")
def three():
    with running(a1="a", b1="b", c1="c") as one:
        yield one
        one.end()


@pytest.fixture
def cluster(three, monkeypatch):
    """Nothing may be left in its daemons. This process has the daemon a."""
    monkeypatch.setenv("GPUBUFD_SOCKET", three.daemons["a"].path)
    yield three
    gd.delete("x", client=three.client, missing_ok=True)
    gc.collect()
    wait_for(lambda: not any(map(three.list, "abc")), lambda: f"left: {[*map(three.list, 'abc')]}")
    _client._clients.clear()


def partitions(cluster, name):
    return [int(found[1]) for found in (re.search(r"/0000(\d)$", one) for one in cluster.list(name)) if found]


def test_either_of_two_daemons_is_enough(cluster):
    frame, told = sample(), []
    published = gd.publish(dd.from_pandas(frame, npartitions=4), "x", client=cluster.client, replicas=2,
                           progress=lambda *now: told.append(now))
    assert told[0] == (0, 8) and told[-1] == (8, 8)
    assert (published.partitions, published.unreachable) == (4, 0)
    assert sorted(sum((partitions(cluster, name) for name in "abc"), [])) == [0, 0, 1, 1, 2, 2, 3, 3]
    before = gd.load("x", client=cluster.client)
    cluster.end_worker("a1")
    assert gd.list(client=cluster.client)[0].unreachable == 0
    for loaded in (before, gd.load("x", client=cluster.client)):
        assert_same(cluster.compute(loaded), frame)
    cluster.start_workers(a1="a")


def test_two_of_three_have_gone(cluster):
    array = da.arange(8, chunks=2)
    gd.publish(array, "x", client=cluster.client, replicas=3)
    for name in "abc":
        assert partitions(cluster, name) == [0, 1, 2, 3]
    for name in ("a1", "b1"):
        cluster.end_worker(name)
    np.testing.assert_array_equal(cluster.compute(gd.load("x", client=cluster.client)), np.arange(8))
    cluster.start_workers(a1="a", b1="b")


def test_replaced_and_deleted_everywhere(cluster):
    for replicas in (3, 2, 1):
        gd.publish(da.arange(8, chunks=2), "x", client=cluster.client, replicas=replicas, replace=True)
        wait_for(lambda: sum(len(partitions(cluster, name)) for name in "abc") == 4 * replicas,
                 lambda: f"left: {[*map(cluster.list, 'abc')]}")
    gd.delete("x", client=cluster.client)
    assert not any(map(cluster.list, "abc"))


def test_there_are_not_as_many_daemons(cluster):
    for replicas in (0, 4):
        with pytest.raises(ValueError, match=f"replicas is {replicas}, expected 1 to 3, as there are daemons"):
            gd.publish(da.ones(3), "x", client=cluster.client, replicas=replicas)
    with pytest.raises(ValueError, match="expected 1 to 1"):
        gd.publish(da.ones(3), "x", replicas=2)
    assert not any(map(cluster.list, "abc"))


def test_a_replica_that_cannot_be_put_ends_it(cluster):
    """Nothing of it is left, in no daemon."""
    def enough(done, total):
        if done == total:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gd.publish(da.arange(8, chunks=2), "x", client=cluster.client, replicas=2, progress=enough)
    wait_for(lambda: not any(map(cluster.list, "abc")), lambda: f"left: {[*map(cluster.list, 'abc')]}")
