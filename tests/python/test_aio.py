"""gpubufd.aio: nothing blocks the loop, and nothing is left."""

import asyncio
import threading
import time

import pytest

import gpubufd
import gpubufd.aio


def go(daemon, work, **options):
    async def main():
        async with await gpubufd.aio.connect(daemon.path, **options) as client:
            return await asyncio.wait_for(work(client), 120)

    return asyncio.run(main())


def test_all_calls(daemon, client, np, tmp_path):
    async def work(c):
        await c.put("a", np.arange(10))
        await c.put("b", b"hello")
        await c.put("t", {"x": [1, None], "s": ["a", "b"]})
        await c.put("f", np.asfortranarray(np.arange(6).reshape(2, 3)))
        assert (await c.get("a")).tolist() == list(range(10))
        assert bytes(await c.get("b")) == b"hello"
        assert (await c.get("t"))["x"].tolist() == [1, None]
        a, f = await c.get_many(["a", "f"])
        assert f.tolist() == [[0, 1, 2], [3, 4, 5]]
        made = await c.create("made", "int32", 3)
        made.to_numpy()[:] = 7
        await c.seal(made)
        assert [i.name for i in await c.list()] == ["a", "b", "f", "made", "t"]
        assert (await c.stat("a")).bytes == 80
        assert "aio.Client, session" in repr(c) and "aio.Client, session" in c._repr_html_() and ">made<" in c._repr_html_()
        await c.pin("a")
        assert (await c.stat("a")).pinned
        await c.unpin("a")
        await c.alias("part", "a", rows=(2, 5))
        assert (await c.get("part")).tolist() == [2, 3, 4]
        assert len(await c.leases("a")) >= 1
        assert "devices" in await c.stats()
        await c.save("t", tmp_path / "t.jsonl")
        assert await c.load(tmp_path / "t.jsonl", "u", ttl=60) == "u" and (await c.get("u")).tolist() == (await c.get("t")).tolist()
        ref = await c.ref("a")
        assert (await c.get(ref, kind=gpubufd.Array)).version == ref.version
        with pytest.raises(TypeError, match="'a' is of the kind Array, not Bytes"):
            await c.get("a", kind=gpubufd.Bytes)
        await c.delete("a", "b")
        with pytest.raises(gpubufd.Stale, match="is gone"):
            await c.get(ref)
        with pytest.raises(gpubufd.NotFound):
            await c.get("a")
        with pytest.raises(KeyError):
            await c.delete("a")
        await c.delete("a", missing_ok=True)
        results = await c.get_many(["t", "a"], errors="return")
        assert isinstance(results[1], gpubufd.NotFound)
        with pytest.raises(gpubufd.Exists):
            await c.put("t", b"")

    go(daemon, work)


def test_waiting_does_not_block(daemon, client):
    async def work(c):
        waiting = asyncio.ensure_future(c.get("later", timeout=60))
        for _ in range(20):
            await c.stats()
        assert not waiting.done()
        await c.put("later", b"now")
        assert bytes(await waiting) == b"now"
        with pytest.raises(TimeoutError):
            await c.get("never", timeout=0.05)

    go(daemon, work)


def test_cancelling(daemon, client):
    async def work(c):
        waiting = asyncio.ensure_future(c.get("late", timeout=60))
        await c.stats()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await c.put("late", b"x")
        while await c.leases("late"):  # granted all the same, it is on its way back
            pass

    go(daemon, work)
    assert client.leases() == []


def test_close_ends_what_waits(daemon, client):
    async def work(c):
        waiting = asyncio.ensure_future(c.get("late", timeout=60))
        await c.stats()
        c.close()
        with pytest.raises(gpubufd.Error):
            await waiting
        with pytest.raises(gpubufd.Closed):
            await c.stats()

    go(daemon, work)
    client.put("late", b"x")
    assert client.leases("late") == [], "who waited for it is gone"


def test_watch(daemon, client):
    async def work(c):
        await c.put("w/1", b"x")
        seen = []
        async for event in c.watch("w/"):
            seen.append((event.kind, event.name))
            if event.kind == "synced":
                await c.put("w/2", b"y")
                await c.delete("w/1")
            if event.kind == "deleted":
                break
        assert seen == [("sealed", "w/1"), ("synced", None), ("sealed", "w/2"), ("deleted", "w/1")]

    go(daemon, work)


def test_many_at_once(daemon, client, np):
    async def work(c):
        await asyncio.gather(*(c.put(f"n/{i}", np.full(100, i)) for i in range(300)))
        found = await c.get_many([f"n/{i}" for i in range(300)])
        assert [int(a[0]) for a in found] == list(range(300))

    go(daemon, work)


def test_one_wait_for_all(daemon, client):
    """However many requests the names take. A busy machine may make one wait as long as two, and tries again."""
    names = ["none/a", *["here"] * 300, "none/b"]
    client.put("here", [1])

    def took(get):
        began = time.monotonic()
        found = get()
        assert [isinstance(one, TimeoutError) for one in found] == [True, *[False] * 300, True]
        return time.monotonic() - began

    async def work(c):
        return await c.get_many(names, timeout=3, errors="return")

    for get in (lambda: go(daemon, work), lambda: client.get_many(names, timeout=3, errors="return")):
        times = iter(lambda get=get: took(get), None)
        assert any(2.99 < next(times) < 5.9 for _ in range(10))


def test_beside_blocking_calls(daemon, client):
    """Another thread blocks on the same connection, and so may be the one that receives."""

    async def work(c):
        stop = threading.Event()

        def block():
            while not stop.is_set():
                c._client.call("stats")

        thread = threading.Thread(target=block)
        thread.start()
        try:
            for i in range(100):
                await c.put(f"x/{i}", b"x")
                await c.get(f"x/{i}")
        finally:
            stop.set()
            thread.join()

    go(daemon, work)
    assert sorted(info.name for info in client.list()) == sorted(f"x/{i}" for i in range(100))


def test_lost_connection(place):
    async def work(c):
        waiting = asyncio.ensure_future(c.get("late", timeout=60))
        await c.stats()
        place.daemon.kill()
        with pytest.raises(gpubufd.Closed):
            await waiting

    go(place, work, resume_timeout=0)


def test_broken_connection(place, np):
    """Another daemon on the same socket: what was asked for comes, what was mapped stays."""
    async def work(c):
        await c.put("old", np.arange(5))
        old = await c.get("old")
        waiting = asyncio.ensure_future(c.get("late", timeout=60))
        await c.stats()
        place.kill_and_start()
        await c.put("late", np.arange(3))
        assert np.asarray(await waiting).tolist() == [0, 1, 2]
        assert np.asarray(old).tolist() == [0, 1, 2, 3, 4]

    go(place, work)


def test_the_same_calls():
    """Each method of the blocking client is here, with the same parameters."""
    import inspect

    def calls(cls):
        return {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))}

    # These go with brackets, which cannot be awaited.
    mapping = {"clear", "items", "keys", "pop", "popitem", "setdefault", "update", "values"}
    other = {"close", "call", "provide"}  # loaders are threads there, and tasks here
    assert calls(gpubufd.Client) - mapping <= calls(gpubufd.aio.Client)
    for name in calls(gpubufd.Client) & set(vars(gpubufd.Client)) - other - mapping:
        here, there = ({key: value for key, value in inspect.signature(getattr(cls, name)).parameters.items() if key != "default"}
                       for cls in (gpubufd.aio.Client, gpubufd.Client))
        assert list(here) == list(there), name
        assert [p.default for p in here.values()] == [p.default for p in there.values()], name
    assert {"closed", "instance", "session"} <= set(dir(gpubufd.aio.Client))


def test_many_in_one_round_trip(daemon, client):
    async def work(c):
        for i in range(50):
            await c.put(f"m/{i}", [i])
        before = (await c.stats())["methods"]["open"]["calls"]
        found = await c.get_many([f"m/{i}" for i in range(50)], timeout=60)
        assert [column.tolist() for column in found] == [[i] for i in range(50)]
        assert (await c.stats())["methods"]["open"]["calls"] == before + 1
        mixed = await c.get_many(["m/1", "none"], errors="return")
        assert mixed[0].tolist() == [1] and "'none'" in str(mixed[1])
        with pytest.raises(KeyError, match="none"):
            await c.get_many(["m/1", "none"])

    go(daemon, work)


def test_put_of_everything(daemon, client, np, pd):
    """Everything that the blocking put() takes comes out the same."""
    import arrowc
    import test_tables

    values = {
        **test_tables.LISTS, "zero-size": np.zeros((0, 3)), "0-d": np.array(5), "strided": np.arange(24).reshape(4, 6)[::-1, ::2],
        "times": np.array(["2020-01-01", "NaT"], "M8[us]"), "bool": np.array([True, False, True]),
        "memoryview": memoryview(bytes(range(12))).cast("B", (3, 4)), "masked": np.ma.masked_array([1, 2], [0, 1]),
        "table": {"a": [1, None], "s": ["x", None], "l": [[1], []], "n": [None, None]}, "no rows": {"a": []}, "none": {},
        "structured": np.array([(1, b"a")], dtype=[("i", "i2"), ("s", "S3")]), "text": np.array(["a", "bcd"]),
        "frame": pd.DataFrame({"c": pd.Categorical(["x", None]), "z": pd.date_range("2020", periods=2, tz="Europe/Vienna")}),
        "batches": arrowc.StreamProducer(test_tables.BATCHES),
    }

    async def work(c):
        for name, value in values.items():
            await c.put("a", value, replace=True)
            client.put("b", value, replace=True)
            a, b = await c.get("a"), client["b"]
            assert type(a) is type(b) and a.tolist() == b.tolist(), name
            assert plain(client.stat("a").layout) == plain(client.stat("b").layout), name
            await c.put("c", a, replace=True)
            assert (await c.get("c")).tolist() == b.tolist(), name

    go(daemon, work)


def plain(layout):
    """A layout without the places of its buffers."""
    if isinstance(layout, dict):
        places = {"segment", "offset"} if "segment" in layout else set()
        return {key: plain(value) for key, value in layout.items() if key not in places}
    return [plain(value) for value in layout] if isinstance(layout, list) else layout


def test_a_large_put_lets_others_run(daemon, client, np):
    """64 MiB are copied in parts; what else the loop has to do is done in between."""
    large = np.arange(8 << 20)

    async def work(c):
        for value in (large, {"x": large}, large.reshape(1024, -1).T):
            turns = 0

            async def other():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.ensure_future(other())
            await c.put("large", value, replace=True)
            beside.cancel()
            assert turns >= 4, turns
        assert (await c.get("large")).to_numpy()[5, 3] == large.reshape(1024, -1).T[5, 3]

    go(daemon, work)


def test_watches_end(daemon, client):
    async def work(c):
        async with c.watch("w/") as watch:
            assert (await watch.__anext__()).kind == "synced"
            await c.put("w/1", b"x")
            assert (await watch.__anext__()).name == "w/1"
        assert [event async for event in watch] == []
        kinds = []
        while kinds != ["sealed", "synced"]:  # all of them come in time, but on a machine that is busy
            kinds = [event.kind async for event in c.watch("w/", timeout=0.5)]
            assert kinds == ["sealed", "synced"][:len(kinds)]
        watch = c.watch("w/")
        await watch.__anext__()
        del watch
        waiting = asyncio.ensure_future(c.watch("none/").__anext__())
        assert (await waiting).kind == "synced"
        last = c.watch("none/")
        await last.__anext__()
        waiting = asyncio.ensure_future(last.__anext__())
        await c.stats()
        c.close()
        with pytest.raises(StopAsyncIteration):
            await waiting

    go(daemon, work)


def test_seal_with_counts_and_devices(daemon, client):
    async def work(c):
        made = await c.create("t", {"x": "int32"}, 3, nulls=True)
        memoryview(made["x"].buffers.validity.bits)[0] = 0b101
        await c.seal(made, [1])
        assert (await c.get("t"))["x"].null_count == 1
        assert (await c.devices())[0]["id"] == "host"
        with pytest.raises(TypeError, match="put\\(\\) copies"):
            await c.share_mine("x", [1])
        with pytest.raises(TimeoutError):
            await c.call("stats", timeout=0)

    go(daemon, work)


def test_more_waiting_gets_than_a_session_may_have(daemon, client):
    """They take turns. One whose name is there is not held up by those that wait."""

    async def work(c):
        names = [f"late/{i}" for i in range(400)]
        waiting = [asyncio.ensure_future(c.get(name, timeout=60)) for name in names]
        while not c._turns:
            await c.stats()
        for name in reversed(names):
            await c.put(name, name)
        assert [held.decode() for held in await asyncio.gather(*waiting)] == names
        never = [asyncio.ensure_future(c.get(f"never/{i}", timeout=1)) for i in range(300)]
        errors = await asyncio.gather(*never, return_exceptions=True)
        assert all(isinstance(error, (gpubufd.Timeout, gpubufd.Limit)) for error in errors)
        assert not c._turns and not c._waits

    go(daemon, work)


def test_a_turn_is_cancelled(daemon, client):
    async def work(c):
        waiting = [asyncio.ensure_future(c.get(f"late/{i}", timeout=60)) for i in range(300)]
        while not c._turns:
            await c.stats()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(task.cancelled() for task in waiting) and not c._turns and not c._waits

    go(daemon, work)


def test_public_names():
    assert sorted(gpubufd.aio.__all__) == ["Client", "Provider", "Watch", "connect"]
