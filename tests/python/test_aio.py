"""gpubufd.aio: nothing blocks the loop, and nothing is left."""

import asyncio
import threading

import pytest

import gpubufd
import gpubufd.aio


def go(daemon, work, **options):
    async def main():
        async with await gpubufd.aio.connect(daemon.path, **options) as client:
            return await asyncio.wait_for(work(client), 30)

    return asyncio.run(main())


def test_all_calls(daemon, client, np):
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
        await c.pin("a")
        assert (await c.stat("a")).pinned
        await c.unpin("a")
        await c.alias("part", "a", rows=(2, 5))
        assert (await c.get("part")).tolist() == [2, 3, 4]
        assert len(await c.leases("a")) >= 1
        assert "devices" in await c.stats()
        await c.delete("a", "b")
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
        waiting = asyncio.ensure_future(c.get("later", timeout=20))
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


def test_beside_blocking_calls(daemon, client):
    """Another thread blocks on the same connection, and so may be the one that receives."""

    async def work(c):
        stop = threading.Event()

        def block():
            while not stop.is_set():
                c.sync.call("stats")

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


def test_lost_connection(tmp_path, daemon):
    import conftest

    own = conftest.Daemon(str(tmp_path), device="host:16M")
    try:

        async def work(c):
            waiting = asyncio.ensure_future(c.get("late", timeout=60))
            await c.stats()
            own.kill()
            with pytest.raises(gpubufd.Closed):
                await waiting

        go(own, work, resume_timeout=0)
    finally:
        own.kill()


def test_broken_connection(tmp_path, daemon, np):
    """Another daemon on the same socket: what was asked for comes, what was mapped stays."""
    import conftest

    own = conftest.Daemon(str(tmp_path), device="host:16M")
    try:

        async def work(c):
            nonlocal own
            await c.put("old", np.arange(5))
            old = await c.get("old")
            waiting = asyncio.ensure_future(c.get("late", timeout=60))
            await c.stats()
            own.kill()
            own = conftest.Daemon(str(tmp_path), device="host:16M")
            await c.put("late", np.arange(3))
            assert np.asarray(await waiting).tolist() == [0, 1, 2]
            assert np.asarray(old).tolist() == [0, 1, 2, 3, 4]

        go(own, work)
    finally:
        own.kill()
