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
    assert [info.label for info in client.versions("w", timeout=0.2)] == ["step-0"]
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
                    break
                await reader.put("w", numpy.full(4, len(told)), replace=True, keep=2,
                                 label=f"step-{len(told)}")
            infos = await reader.list("w", versions=True)
            assert [info.label for info in infos] == ["step-2", "step-1", "step-0"]
            assert (await reader.stat("w", label="step-1")).version == infos[1].version
            made = await reader.create("w", "int64", 4, replace=True, label="made", keep=1)
            made.set_label(None, keep=0)
            await reader.seal(made)
            made.release()
            return told

    told = asyncio.run(run())
    assert [value for _, _, value in told] == [0, 1, 2]
    assert all(version == held for version, held, _ in told)
    assert labels(client) == ["made"]
