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


def test_one_version_is_meant_by_label_or_number(tiered):
    """By every call that takes one of them, with a refusal of each."""
    with gpubufd.connect(tiered.path) as client:
        for step in range(3):
            publish(client, step)
        newest, middle, oldest = infos = client.list("w", versions=True)
        assert [(info.label, info.older, info.keep) for info in infos] == [
            ("step-2", False, 2), ("step-1", True, 2), ("step-0", True, 2)]
        with client.get("w", label="step-1") as held, client.get("w", version=oldest.version) as last:
            assert (held.to_numpy()[0], held.label, held.version) == (1, "step-1", middle.version)
            assert last.to_numpy()[0] == 0
        assert client.stat("w", version=oldest.version).label == "step-0" and client.stat("w").version == newest.version
        client.expire("w", ttl=3600, label="step-0")
        client.expire("w", ttl=7200, version=middle.version)
        assert [info.ttl for info in client.list("w", versions=True)] == [0, 7200, 3600]
        client.spill("w", label="step-0")
        client.spill("w", tier="disk", version=middle.version)
        assert [info.tier for info in client.list("w", versions=True)] == ["device", "disk", "disk"]
        client.restore("w", label="step-1")
        client.restore("w", timeout=60, version=oldest.version)
        assert {info.tier for info in client.list("w", versions=True)} == {"device"}
        for call in (client.get, client.stat, client.delete, client.spill, client.restore):
            with pytest.raises(gpubufd.NotFound, match="step-2"):
                call("w", label="step-9")
            with pytest.raises(gpubufd.Stale):
                call("w", version=newest.version + 1000)
        with client.get("w", label="step-1"):
            client.delete("w", label="step-1")
            assert [info.label for info in client.list("w", versions=True) if info.gone] == ["step-1"]
        client.delete("w", version=oldest.version)
        assert labels(client) == ["step-2"]


def test_deletes_that_mean_no_version(client):
    publish(client, 1)
    version = client.stat("w").version
    client.delete("w", label="step-3", missing_ok=True)
    client.delete("w", version=version + 1, missing_ok=True)
    with pytest.raises(ValueError, match="both given"):
        client.delete("w", version=version, label="step-1")
    for names in ((), ("w", "v")):
        with pytest.raises(ValueError, match=f"about one name, not {len(names)}"):
            client.delete(*names, label="step-1")
    assert labels(client) == ["step-1"]


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
