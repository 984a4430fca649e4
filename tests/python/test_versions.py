"""Labels, and older versions of a name: what put() and create() say, what opens them, and the switch."""

import asyncio
import threading

import gpubufd
import gpubufd.aio
import numpy
import pytest


@pytest.fixture
def client(daemon):
    with gpubufd.connect(daemon.path) as client:
        yield client
        client.delete(*client.keys())


def publish(client, step, keep=2):
    client.put("w", numpy.full(4, step), replace=True, label=f"step-{step}", keep=keep)


def labels(client):
    return [info.label for info in client.list("w", versions=True) if not info.gone]


def test_opened_by_label_and_version(client):
    for step in range(5):
        publish(client, step)
    assert labels(client) == ["step-4", "step-3", "step-2"]
    infos = client.list("w", versions=True)
    assert [info.older for info in infos] == [False, True, True] and infos[0].keep == 2
    with client.get("w", label="step-3") as held:
        assert held.to_numpy()[0] == 3 and held.label == "step-3"
        assert held.version == infos[1].version
    with client.get("w", version=infos[2].version) as held:
        assert held.to_numpy()[0] == 2
    with pytest.raises(gpubufd.NotFound, match='it has .*step-4'):
        client.get("w", label="step-0")
    assert client.stat("w", label="step-3").version == infos[1].version
    assert client.stat("w", version=infos[2].version).label == "step-2"
    assert client.stat("w").label == "step-4"
    with client.get("w", version=infos[2].version) as held:
        publish(client, 5, keep=1)
        with pytest.raises(gpubufd.Stale, match="to open; it has"):
            client.get("w", version=infos[2].version)
        assert [i.label for i in client.list("w", versions=True) if i.gone] == ["step-2"]
        assert held.to_numpy()[0] == 2
    assert labels(client) == ["step-5", "step-4"]


def test_create_and_set_label(client):
    publish(client, 1)
    with client.create("w", "int64", 4, replace=True, label="made", keep=1) as made:
        made.to_numpy()[:] = 2
        made.set_label("sealed", keep=2)
        made.seal()
        assert made.label == "sealed"
        with pytest.raises(gpubufd.Busy):
            made.set_label("late")
    assert labels(client) == ["sealed", "step-1"]
    client.put("plain", b"x")
    assert client.stat("plain").label is None
    with client.get("plain") as held:
        assert held.label is None
    for wrong in ({"label": "x" * 256}, {"keep": 9}, {"keep": -1}):
        with pytest.raises(ValueError):
            client.put("w", b"x", replace=True, **wrong)


def test_deleted_by_version_and_label(client):
    for step in range(5):
        publish(client, step, keep=4)
    infos = client.list("w", versions=True)
    client.delete("w", label="step-3")
    client.delete("w", version=infos[2].version)
    assert labels(client) == ["step-4", "step-1", "step-0"]
    with pytest.raises(gpubufd.NotFound, match="step-4"):
        client.delete("w", label="step-3")
    with pytest.raises(gpubufd.Stale):
        client.delete("w", version=infos[2].version)
    client.delete("w", label="step-3", missing_ok=True)
    client.delete("w", version=infos[2].version, missing_ok=True)
    with pytest.raises(ValueError, match="both given"):
        client.delete("w", version=infos[3].version, label="step-1")
    client.put("v", b"another")
    for names in ((), ("w", "v")):
        with pytest.raises(ValueError, match=f"about one name, not {len(names)}"):
            client.delete(*names, label="step-1")
    assert labels(client) == ["step-4", "step-1", "step-0"]
    client.delete("w", label="step-4")  # the current one: the name goes
    assert list(client) == ["v"]


def test_expires_by_version_and_label(client):
    for step in range(3):
        publish(client, step)
    version = client.stat("w", label="step-1").version
    client.expire("w", ttl=3600, label="step-0")
    client.expire("w", ttl=7200, version=version)
    assert [info.ttl for info in client.list("w", versions=True)] == [0, 7200, 3600]
    client.expire("w", ttl=None, version=version)
    assert [info.ttl for info in client.list("w", versions=True)] == [0, 0, 3600]
    with pytest.raises(gpubufd.Stale):
        client.expire("w", ttl=1, version=version + 1000)


def test_moved_by_version_and_label(tiered):
    with gpubufd.connect(tiered.path) as client:
        for step in range(3):
            publish(client, step)

        def tiers():
            return {info.label: info.tier for info in client.list("w", versions=True)}

        client.spill("w", label="step-0")
        client.spill("w", tier="disk", version=client.stat("w", label="step-1").version)
        assert tiers() == {"step-2": "device", "step-1": "disk", "step-0": "disk"}
        client.restore("w", label="step-1")
        client.restore("w", timeout=60, version=client.stat("w", label="step-0").version)
        assert tiers() == {"step-2": "device", "step-1": "device", "step-0": "device"}
        for move in (client.spill, client.restore):
            with pytest.raises(gpubufd.NotFound):
                move("w", label="step-9")


def test_alias_has_versions(client):
    publish(client, 0)
    client.put("v", b"old")
    client.alias("v", "w", replace=True, label="same", keep=1)
    infos = client.list("v", versions=True)
    assert [(info.label, info.keep) for info in infos] == [("same", 1), (None, 0)]
    assert client["v"].tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="keep is 9"):
        client.alias("u", "w", keep=9)
    with pytest.raises(ValueError, match="scope is 'world'"):
        client.alias("u", "w", scope="world")
    client.alias("u", "w", scope="cluster")
    assert client.stat("u").scope == "cluster"


def test_the_switch(daemon, client):
    """A reader is told of each version once, in order, whatever has a name that begins so."""
    publish(client, 0)
    client.put("w2", b"another")
    told = []
    begun = threading.Event()

    def read():
        with gpubufd.connect(daemon.path) as reader:
            for info in reader.versions("w"):
                told.append((info.label, reader.get("w", version=info.version).to_numpy()[0]))
                begun.set()
                if info.label == "step-2":
                    break

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    publish(client, 1)
    client.put("w2", b"another", replace=True)
    publish(client, 2)
    thread.join(60)
    assert told == [("step-0", 0), ("step-1", 1), ("step-2", 2)]


def test_the_switch_ends_by_its_timeout(client):
    publish(client, 0)
    told = []
    for timeout in (0.2, 2, 60):  # a machine that is busy takes longer
        told = told or [info.label for info in client.versions("w", timeout=timeout)]
    assert told == ["step-0"]
    assert list(client.versions("none", timeout=0.05)) == []
    some = client.versions("w")
    assert next(some).label == "step-0"
    some.close()


def test_asyncio(daemon, client):
    async def run():
        async with await gpubufd.aio.connect(daemon.path) as reader:
            told = []
            publish(client, 0)
            async for info in reader.versions("w"):
                with await reader.get("w", label=info.label) as held:
                    told.append((info.version, held.version, held.to_numpy()[0]))
                if len(told) == 3:
                    return told
                await reader.put("w", numpy.full(4, len(told)), replace=True, keep=2, label=f"step-{len(told)}")

    told = asyncio.run(run())
    assert [value for _, _, value in told] == [0, 1, 2]
    assert all(version == held for version, held, _ in told)
