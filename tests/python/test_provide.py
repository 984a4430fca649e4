"""Providers: names that are made when somebody waits for them, by threads and by coroutines."""

import asyncio
import gc
import os
import threading

import gpubufd
import gpubufd.aio
import pytest
from peer import wait_until

WAIT = 60.0  # seconds, for what happens at once unless the machine is busy


class Loader:
    """A loader that notes each name it is asked for, and waits while `gate` is not set."""

    def __init__(self, make=lambda name: [len(name), 2, 3]):
        self.asked = []
        self.gate = threading.Event()
        self.gate.set()
        self.make = make

    def __call__(self, name):
        self.asked.append(name)
        assert self.gate.wait(WAIT)
        return self.make(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
# RELIABILITY.md: Hostile clients 8
def test_users_take_turns(place):
    """One load at a time, and one user waits for 40 names: another's name is the next but one."""
    asked, gate = [], threading.Semaphore(0)

    def load(name):
        asked.append(str(name))
        assert gate.acquire(timeout=WAIT)
        return [1]

    with gpubufd.connect(place.path) as client, client.provide("cols/", load, threads=1) as provider:
        os.chmod(place.path, 0o666)
        many, one = place.daemon.connect_as(1001, 1001), place.daemon.connect_as(1002, 1002)
        many.request("open", names=[f"cols/{i}" for i in range(40)], wait_ms=60000)
        wait_until(lambda: asked)
        one.request("open", name="cols/other", wait_ms=60000)
        wait_until(lambda: len(provider._work.tasks._turns) == 2)  # both users' names have come to the provider
        gate.release(100)
        wait_until(lambda: len(asked) == 41)
    assert "cols/other" in asked[1:3], asked[:5]


def test_a_name_is_made_once_however_many_wait(daemon, client):
    load = Loader()
    load.gate.clear()
    with client.provide("cols/", load) as provider:
        assert (provider.prefix, provider.closed) == ("cols/", False)
        found = []

        def read():
            with gpubufd.connect(daemon.path) as other:
                with other.get("cols/a", timeout=WAIT) as column:
                    found.append(column.tolist())

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: load.asked)
        name = load.asked[0]
        assert isinstance(name, str) and name.wanted and (name.uid, name.gid) == (os.getuid(), os.getgid())
        load.gate.set()
        for thread in threads:
            thread.join()
        assert (load.asked, found) == (["cols/a"], [[6, 2, 3]] * 8)
        assert client.get("cols/a", timeout=WAIT).tolist() == [6, 2, 3]  # which is there now
        assert load.asked == ["cols/a"]
    assert provider.closed and "closed" in repr(provider)
    with pytest.raises(gpubufd.Timeout):
        client.get("cols/b", timeout=0.05)


def test_what_a_loader_raises_ends_the_waiting(client):
    def load(name):
        what = name[len("bad/"):]
        if what == "lookup":
            raise LookupError("there is no such column")
        if what == "key":
            raise KeyError("no column of that name")
        if what == "file":
            open("/nonexistent/file")
        if what == "exit":
            raise SystemExit("enough")
        if what == "long":
            raise LookupError("ä" * 2000)
        if what == "value":
            return object()
        if what == "none":
            return None
        raise OSError("the disk is on fire")

    with client.provide("bad/", load):
        for what, kind, text in (
            ("lookup", gpubufd.NotFound, "there is no such column"), ("key", gpubufd.NotFound, "no column of that name"),
            ("file", gpubufd.NotFound, "/nonexistent/file"), ("disk", gpubufd.Unavailable, "OSError: the disk is on fire"),
            ("exit", gpubufd.Unavailable, "enough"), ("value", gpubufd.Unavailable, "TypeError"),
            ("none", gpubufd.NotFound, "gave nothing"), ("long", gpubufd.NotFound, "ää"),
        ):
            for _ in range(2):  # the next get() asks anew
                with pytest.raises(kind, match=text):
                    client.get(f"bad/{what}", timeout=WAIT)
        assert issubclass(gpubufd.Unavailable, RuntimeError)
        mixed = client.get_many(["bad/lookup", "bad/disk"], timeout=WAIT, errors="return")
        assert [error.kind for error in mixed] == ["not_found", "unavailable"]


def test_options_of_put_and_what_loads_by_itself(client):
    def load(name):
        if name.endswith("self"):
            client.put(name, b"by itself")
            return None
        return b"by put"

    with client.provide("o/", load, evict="drop", mode=0o644, ttl=3600.0):
        with client.get("o/a", timeout=WAIT):
            info = client.stat("o/a")
            assert (info.evict, info.mode, info.ttl) == ("drop", 0o644, 3600.0)
        assert bytes(client.get("o/self", timeout=WAIT)) == b"by itself"


def test_scope_is_remembered(client):
    with client.provide("s/", lambda name: b"made", scope="cluster"):
        assert bytes(client.get("s/a", timeout=WAIT)) == b"made"
    client.put("s/b", [1], scope="cluster")
    client.put("s/c", b"bytes", scope="local")
    with client.create("s/d", "int8", 1, scope="cluster") as made:
        memoryview(made.to_numpy())[0] = 1
    assert [info.scope for info in client.list("s/")] == ["cluster", "cluster", "local", "cluster"]
    with client.watch("s/b") as watch:
        assert next(watch).info.scope == "cluster"
    with pytest.raises(ValueError, match="scope"):
        client.put("s/e", b"", scope="galaxy")


def test_wrong_arguments(client):
    with pytest.raises(TypeError, match="function"):
        client.provide("w/", 7)
    with pytest.raises(TypeError, match="evicts"):
        client.provide("w/", len, evicts="drop")
    for threads in (0, "4"):
        with pytest.raises(ValueError, match="at a time"):
            client.provide("w/", len, threads=threads)
    with pytest.raises(gpubufd.Invalid):
        client.provide("x" * 300, len)


def test_loads_side_by_side_and_a_wait_that_ends(daemon, client):
    load = Loader()
    load.gate.clear()
    with client.provide("side/", load, threads=3):
        with gpubufd.connect(daemon.path) as other:
            with pytest.raises(gpubufd.Timeout):  # long enough for a busy machine to begin three of them
                other.get_many([f"side/{i}" for i in range(5)], timeout=5)
            wait_until(lambda: len(load.asked) == 3)
            wait_until(lambda: not any(name.wanted for name in load.asked))
            load.gate.set()
            # The object that was loaded all the same is there; the two that nobody had begun are not.
            wait_until(lambda: len(client.list("side/")) == 3)
            assert client.get(f"side/{load.asked[0][-1]}", timeout=WAIT).tolist() == [6, 2, 3]
            assert len(load.asked) == 3
            rest = sorted({f"side/{i}" for i in range(5)} - set(load.asked))
            assert [column.tolist() for column in other.get_many(rest, timeout=WAIT)] == [[6, 2, 3]] * 2


# RELIABILITY.md: A provider 5
def test_loads_that_hang_stop_no_others(client):
    """A pool of two, in which four loads hang for ever: their names are refused, others are made."""
    gate, begun = threading.Event(), []

    def load(name):
        begun.append(name)
        if "hang" in name:
            gate.wait(WAIT)
        return [1]

    def made(name):
        try:
            return client.get(name, timeout=WAIT).tolist() == [1]
        except gpubufd.Unavailable:  # the machine stood still for longer than a load may take
            return False

    with client.provide("cols/", load, threads=2, load_timeout=0.2):
        for i in range(3):
            with pytest.raises(gpubufd.Unavailable, match="more than 0.2 s"):
                client.get(f"cols/hang{i}", timeout=WAIT)
            with pytest.raises(gpubufd.Unavailable, match="more than 0.2 s"):  # at once, without another load
                client.get(f"cols/hang{i}", timeout=WAIT)
        wait_until(lambda: made("cols/quick"))
        assert begun[:4] == ["cols/hang0", "cols/hang1", "cols/hang2", "cols/quick"]
        before = threading.active_count()
        gate.set()
        wait_until(lambda: all(f"cols/hang{i}" in client for i in range(3)))  # what they made counts
        wait_until(lambda: threading.active_count() <= before - 2)  # replaced ones end
        client.delete("cols/hang0")
        wait_until(lambda: "cols/hang0" not in client)
        wait_until(lambda: made("cols/hang0"))


def test_threads_that_cannot_be_started_now(client, monkeypatch):
    """As a user's limit on processes has it; a name is made as soon as there is a thread again."""
    start, failed = threading.Thread.start, []

    def start_later(thread):
        if "loader" in thread.name and len(failed) < 3:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    with client.provide("cols/", lambda name: [1], threads=1):
        monkeypatch.setattr(threading.Thread, "start", start_later)
        assert client.get("cols/a", timeout=WAIT).tolist() == [1]
    assert len(failed) == 3


def test_refusals_that_are_kept(client):
    asked = []

    def load(name):
        asked.append(name)
        raise LookupError("not in the file")

    with client.provide("cols/", load, keep_refusals=WAIT):
        for _ in range(3):
            with pytest.raises(gpubufd.NotFound, match="not in the file"):
                client.get("cols/a", timeout=WAIT)
        assert asked == ["cols/a"]
        client.put("cols/a", [1])
        assert client.get("cols/a", timeout=WAIT).tolist() == [1]

    def asked_again():
        with pytest.raises(gpubufd.NotFound):
            client.get("cols/b", timeout=WAIT)
        return asked.count("cols/b") > 1

    with client.provide("cols/", load, keep_refusals=0.01):
        wait_until(asked_again)
    for wrong in ({"load_timeout": 0}, {"keep_refusals": -1}):
        with pytest.raises(ValueError):
            client.provide("cols/", load, **wrong)


def test_its_end_without_a_word(daemon):
    """It ends with its client, closed or collected, and leaves no session."""
    def sessions():
        with gpubufd.connect(daemon.path) as other:
            return len(other.call("sessions")["sessions"]) - 1

    before = sessions()
    client = gpubufd.connect(daemon.path)
    client.provide("e/", lambda name: b"e")
    assert bytes(client.get("e/a", timeout=WAIT)) == b"e"
    assert sessions() == before + 2
    client.close()
    wait_until(lambda: sessions() == before)
    client = gpubufd.connect(daemon.path)
    client.provide("e/", lambda name: b"e")
    del client
    gc.collect()
    wait_until(lambda: sessions() == before)
    with gpubufd.connect(daemon.path) as other:
        other.delete("e/a")


def test_a_program_that_ends_with_a_provider(run):
    assert run("""
        import time, threading, gpubufd
        client = gpubufd.connect()
        begun = threading.Event()
        def load(name):
            begun.set()
            time.sleep(600)
        client.provide("end/", load)
        threading.Thread(target=lambda: client.get("end/a", timeout=600), daemon=True).start()
        assert begun.wait(60)
        print("ends")
    """) == "ends\n"


@pytest.mark.parametrize("how", ["kill_and_start", "restart"])
def test_it_outlives_its_daemon(place, how):
    load = Loader(lambda name: b"again")
    with gpubufd.connect(place.path) as client, client.provide("r/", load):
        assert bytes(client.get("r/a", timeout=WAIT)) == b"again"
        getattr(place, how)()
        with gpubufd.connect(place.path) as other:
            other.delete("r/a", missing_ok=True)
            assert bytes(other.get("r/a", timeout=WAIT)) == b"again"
        assert load.asked == ["r/a"] * 2


# ---- asyncio ----


def test_coroutines(daemon, client):
    async def work():
        asked = []

        async def load(name):
            asked.append((str(name), name.uid, name.wanted))
            await asyncio.sleep(0)
            if name.endswith("bad"):
                raise KeyError("no such thing")
            if name.endswith("worse"):
                raise OSError("no such disk")
            return [1, 2, 3]

        async with await gpubufd.aio.connect(daemon.path) as c:
            async with await c.provide("co/", load, evict="drop") as provider:
                assert (provider.prefix, provider.closed) == ("co/", False)
                found = await asyncio.gather(*(c.get("co/a", timeout=WAIT) for _ in range(8)))
                assert [one.tolist() for one in found] == [[1, 2, 3]] * 8
                assert asked == [("co/a", os.getuid(), True)]
                many = await c.get_many([f"co/{i}" for i in range(30)], timeout=WAIT)
                assert len(many) == 30 and len(asked) == 31
                with pytest.raises(gpubufd.NotFound, match="no such thing"):
                    await c.get("co/bad", timeout=WAIT)
                with pytest.raises(gpubufd.Unavailable, match="OSError: no such disk"):
                    await c.get("co/worse", timeout=WAIT)
                assert (await c.stat("co/a")).evict == "drop"
            assert provider.closed
            with pytest.raises(gpubufd.Timeout):
                await c.get("co/none", timeout=0.05)
            with pytest.raises(TypeError, match="function"):
                await c.provide("co/", 7)
            del found, many

    asyncio.run(work())


def test_coroutines_that_take_too_long(daemon, client):
    async def main():
        asked = []

        async def load(name):
            asked.append(name)
            await asyncio.Event().wait()

        async with await gpubufd.aio.connect(daemon.path) as other:
            async with await other.provide("cols/", load, tasks=1, load_timeout=0.05, keep_refusals=WAIT):
                for _ in range(2):
                    with pytest.raises(gpubufd.Unavailable, match="more than 0.05 s"):
                        await asyncio.get_running_loop().run_in_executor(
                            None, lambda: client.get("cols/a", timeout=WAIT))
        assert asked == ["cols/a"]

    asyncio.run(main())


def test_coroutines_are_cancelled_with_their_client(daemon):
    async def work():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def load(name):
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        async with await gpubufd.aio.connect(daemon.path) as c, await gpubufd.aio.connect(daemon.path) as other:
            await c.provide("can/", load)
            waiting = asyncio.ensure_future(other.get("can/a", timeout=WAIT))
            await begun.wait()
            c.close()
            await ended.wait()
            async with await gpubufd.aio.connect(daemon.path) as third:

                async def instead(name):
                    return b"instead"

                async with await third.provide("can/", instead):
                    assert bytes(await waiting) == b"instead"
                    await third.delete("can/a")

    asyncio.run(work())
