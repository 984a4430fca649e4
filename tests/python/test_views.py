"""Views: arrays that stay where they are while their content changes from version to version, and sleep when they are parked."""

import asyncio
import threading

import gpubufd
import gpubufd.aio
import numpy
import pytest

SHAPES = {"a": (64, 64), "b": (1000,)}


def model(value, dtype="float32"):
    return {name: numpy.full(shape, value, dtype) for name, shape in SHAPES.items()}


def publish(client, value, name="policy", **options):
    return client.put_bundle(name, model(value), replace=True, own=True, keep=2, label=f"step-{value}", **options)


def values(arrays):
    """The one value that all of the arrays have."""
    found = {float(x) for array in arrays for x in (array.min(), array.max())}
    assert len(found) == 1, found
    return found.pop()


def test_arrays_stay_where_they_are(client):
    publish(client, 1)
    with client.follow("policy") as view:
        arrays = {name: array.to_numpy() for name, array in view.items()}
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        assert values(arrays.values()) == 1 and view.label == "step-1" and not view.switch()
        ref = publish(client, 2)
        assert values(arrays.values()) == 1
        assert view.switch() and values(arrays.values()) == 2 and view.version == ref.version
        assert {name: array.to_numpy().ctypes.data for name, array in view.items()} == addresses
        assert view.switch(label="step-1") and values(arrays.values()) == 1
        assert view.switch(version=ref.version) and values(arrays.values()) == 2
        assert "version" in repr(view) and "step-2" in repr(view)
    with pytest.raises(gpubufd.Closed):
        view.switch()
    assert values(arrays.values()) == 2  # the arrays hold what the view showed last


def test_any_kind(client):
    client.put("x", numpy.arange(5000), own=True)
    view = client.follow("x")
    array = view.value.to_numpy()
    client.put("x", numpy.arange(5000) * 2, own=True, replace=True)
    view.switch()
    assert array[4999] == 9998
    with pytest.raises(TypeError, match="without parts"):
        view["x"]
    client.put("t", {"n": [1, None, 3], "s": ["a", "b", "c"]}, own=True)
    table = client.follow("t")
    client.put("t", {"n": [None, 5, None], "s": ["x", "y", "z"]}, own=True, replace=True)
    table.switch()
    assert table["n"].tolist() == [None, 5, None] and table["s"].tolist() == ["x", "y", "z"]


def test_refusals_name_what_differs(client):
    publish(client, 1)
    view = client.follow("policy")
    array = view["a"].to_numpy()
    client.put_bundle("policy", model(2, "float64"), replace=True, own=True)
    with pytest.raises(gpubufd.Unsupported, match='another layout: the dtype of "a" is float64, and was float32'):
        view.switch()
    client.put_bundle("policy", {**model(2), "b": numpy.zeros(1001, "float32")}, replace=True, own=True)
    with pytest.raises(gpubufd.Unsupported, match=r'the shape of "b" is \[1001\], and was \[1000\]'):
        view.switch()
    client.put_bundle("policy", {"a": model(2)["a"]}, replace=True, own=True)
    with pytest.raises(gpubufd.Unsupported, match="the number of arrays"):
        view.switch()
    client.put_bundle("policy", model(2), replace=True)
    with pytest.raises(gpubufd.Unsupported, match=r"shares its segment with other objects: put\(\) it with own=True"):
        view.switch()
    with pytest.raises(gpubufd.NotFound, match="step-1"):  # its label went with it
        view.switch(label="step-1")
    assert array[0, 0] == 1
    publish(client, 3)
    view.switch()
    assert array[0, 0] == 3


def test_versions(client, daemon):
    publish(client, 0)
    view = client.follow("policy")
    array = view["b"].to_numpy()

    def produce():
        with gpubufd.connect(daemon.path) as other:
            for step in range(1, 20):
                publish(other, step)

    thread = threading.Thread(target=produce)
    thread.start()
    seen = [0]
    for info in view.versions(timeout=10):
        if view.switch(version=None):
            seen.append(values([array]))
        if seen[-1] == 19:
            break
    thread.join()
    assert seen == sorted(seen)


def test_park(client):
    publish(client, 1)
    view = client.follow("policy")
    array = view["a"].to_numpy()
    assert view.park() and view.parked and not view.park()
    with pytest.raises(gpubufd.Busy, match="is parked"):
        view["a"].to_numpy()
    assert view.resume() and not view.resume() and values([array]) == 1


def test_asyncio(daemon):
    async def main():
        async with await gpubufd.aio.connect(daemon.path) as client:
            await client.put("x", numpy.full(9000, 1), own=True)
            async with await client.follow("x", timeout=5) as view:
                array = view.value.to_numpy()
                await client.put("x", numpy.full(9000, 2), own=True, replace=True)
                async for _ in view.versions():
                    assert await view.switch()
                    break
                assert values([array]) == 2
                assert await view.park() and await view.resume()
                assert values([array]) == 2
            del array
            await client.delete("x")

    asyncio.run(main())


RANDOM = """
import random
import numpy as np, gpubufd

client = gpubufd.connect()
device, seed = DEVICE, SEED
chance, kept, serial = random.Random(seed), [], 0   # the versions that have the name, newest last: (version, value)
view, shown, addresses = None, None, None

def publish():
    global serial
    serial += 1
    keep = chance.randrange(3)
    ref = client.put_bundle("w", {"a": np.full((50, 60), serial, "int32"), "b": np.full(7, serial, "int32")},
                            device=device, replace=True, own=True, keep=keep, label=str(serial),
                            evict=chance.choice(["drop", "spill"]))
    kept.append((ref.version, serial))
    del kept[: -1 - keep]

def look():
    if view is None or view.parked:
        return
    assert view.version == shown[0] and view.label == str(shown[1]), (view, shown)
    for name, array in view.items():
        assert (array.copy_to_host() == shown[1]).all(), (name, shown)
    assert {name: array.buffers.values.pointer for name, array in view.items()} == addresses

for _ in range(400):
    what = chance.randrange(9)
    if what < 3:
        publish()
    elif what == 3 and kept:
        client.delete("w")
        kept.clear()
    elif view is None:
        if kept:
            view, shown = client.follow("w"), kept[-1]
            addresses = {name: array.buffers.values.pointer for name, array in view.items()}
    elif what < 6:
        one = chance.choice(kept) if kept and chance.random() < 0.5 else None
        try:
            asleep, before = view.parked, shown
            changed = view.switch(label=str(one[1])) if one else view.switch()
            shown = one or kept[-1]
            assert changed == (asleep or shown != before)
        except gpubufd.NotFound:
            assert not kept
    elif what == 6:
        assert view.park() in (True, False) and view.parked
    elif what == 7:
        assert view.resume() in (True, False) and not view.parked
    elif chance.random() < 0.2:
        view.close()
        view = None
    look()
    assert client.stats()["parked"] == (view is not None and view.parked)
if view is not None:
    view.close()
client.delete("w", missing_ok=True)
"""


@pytest.mark.parametrize("seed", range(2))
def test_random_operations(run, seed):
    """Every order of switch, park, resume, replace and delete, on the host."""
    run(f'DEVICE, SEED = "host", {seed}\n' + RANDOM)


def test_random_operations_on_a_gpu(gpu_run):
    gpu_run('DEVICE, SEED = "cuda:0", 2\n' + RANDOM)
