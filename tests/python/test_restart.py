"""A client outlives its daemon: one that was stopped and started again, and one that was killed."""

import asyncio
import signal
import threading
import time

import conftest
import pytest

import gpubufd
import gpubufd.aio


COMES_BACK = """
import gpubufd
with gpubufd.connect() as client:
    print("ready", flush=True)
    input()
    print(client.list())
"""


# RELIABILITY.md: Hostile clients 9
def test_a_limit_on_sessions(begin):
    """Whoever connects past it is told at once; a client that comes back waits for room."""
    with conftest.standing("--limit", "sessions=1") as place:
        client = begin(place.path, COMES_BACK)
        assert client.stdout.readline() == "ready\n"
        begun = time.monotonic()
        with pytest.raises(gpubufd.Limit, match="the limit sessions is 1"):
            gpubufd.connect(place.path, timeout=120)
        assert time.monotonic() - begun < 60
        client.send_signal(signal.SIGSTOP)  # else it may be back first
        place.kill_and_start()
        daemon = place.daemon
        with daemon.connect() as other:
            assert other.call("stats")
            before = daemon.stderr().count("session turned away")
            client.send_signal(signal.SIGCONT)
            client.stdin.write("go on\n")
            client.stdin.flush()
            while daemon.stderr().count("session turned away") == before:
                time.sleep(0.01)
        assert client.communicate()[0] == "[]\n"


WATCHES = """
import gpubufd
with gpubufd.connect() as client, client.watch("w/") as watch:
    for event in watch:
        print(event.kind, flush=True)
"""


def test_a_watch_that_is_refused_when_it_is_made_anew(begin):
    """It says so, and is tried again with the next connection."""
    with conftest.standing("--limit", "user_watches=1") as place:
        client = begin(place.path, WATCHES)
        assert client.stdout.readline() == "synced\n"
        client.send_signal(signal.SIGSTOP)  # else it may be back first
        place.kill_and_start()
        place.daemon.connect().call("watch")
        client.send_signal(signal.SIGCONT)
        assert [client.stdout.readline() for _ in range(2)] == ["reconnected\n", "refused\n"]
        place.kill_and_start()
        assert [client.stdout.readline() for _ in range(2)] == ["reconnected\n", "synced\n"]
        client.kill()


def test_the_next_call_goes_on(place):
    with gpubufd.connect(place.path, name="notebook") as client:
        client.put("a", {"x": [1, None, 3]})
        held, before = client["a"], client.instance
        column = held["x"]
        assert not held.stale
        for round_number in range(3):
            place.restart()
            assert client.list() == [] and client.instance != before and not client.closed
            assert [one["client"] for one in client.call("sessions")["sessions"]] == ["notebook"]
            with pytest.raises(gpubufd.NotFound):
                client["a"]
            client.put("a", [round_number])
            assert client["a"].tolist() == [round_number] and not client["a"].stale
            before = client.instance
        # Held objects say that they are stale, and read as before.
        assert held.stale and column.stale and not held.released
        assert held.tolist() == [{"x": 1}, {"x": None}, {"x": 3}] and column[2:].tolist() == [3]
        assert len(client.leases()) == 0
    assert held.released and column.released
    with pytest.raises(gpubufd.Closed):
        held.tolist()
    with pytest.raises(gpubufd.Closed):
        client.stats()


def test_while_there_is_no_daemon(place):
    quick, never = gpubufd.connect(place.path, resume_timeout=0.01), gpubufd.connect(place.path, resume_timeout=0)
    place.stop()
    for _ in range(3):
        with pytest.raises(gpubufd.ConnectFailed, match=f"no daemon listens at {place.path}: gpubufd.connect.start=True. starts"):
            quick.stats()
        with pytest.raises(gpubufd.Closed, match="the daemon stops"):
            never.stats()
    place.start()
    assert quick.list() == []
    with pytest.raises(gpubufd.Closed, match="the daemon stops"):
        never.list()
    never.close(), quick.close()


def test_close_ends_a_wait_for_the_next_daemon(place):
    client = gpubufd.connect(place.path, resume_timeout=None)
    place.stop()
    caught = []

    def call():
        try:
            client.stats()
        except gpubufd.Error as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    client.close()
    thread.join(60)
    assert isinstance(caught[0], gpubufd.Closed)


def test_what_was_being_made_is_gone_and_says_so(place, np):
    client = gpubufd.connect(place.path)
    for end in (place.restart, place.kill_and_start):
        made = client.create("m", "f8", 3)
        table = client.create("t", {"x": "f8"}, 3)
        made.to_numpy()[:] = 1
        end()
        client.stats()
        uses = (
            made.to_numpy, lambda made=made: made.buffers.values, lambda table=table: table["x"].to_numpy(),
            lambda made=made: made.write(np.zeros(3)), made.seal, table.seal, lambda table=table: table.__exit__(),
        )
        for use in uses:
            with pytest.raises(gpubufd.Stale, match="create.. it anew"):
                use()
        assert client.list() == []
    client.close()


def test_watches_go_on(place):
    with gpubufd.connect(place.path) as client, client.watch("w/", timeout=60) as watch:
        client.put("w/a", b"1")
        assert [next(watch).kind for _ in range(2)] == ["synced", "sealed"]
        place.restart()
        assert [next(watch).kind for _ in range(2)] == ["reconnected", "synced"]  # by the watch itself
        client.put("w/b", b"2")
        assert next(watch).name == "w/b"
        place.restart()
        client.put("w/c", b"3")  # by another call, before the watch looks
        events = [next(watch) for _ in range(3)]
        assert [(event.kind, event.name) for event in events] == [
            ("reconnected", None), ("sealed", "w/c"), ("synced", None)]
    with gpubufd.connect(place.path, resume_timeout=0.01) as client, client.watch() as watch:
        while next(watch).kind != "synced":
            pass
        place.stop()
        with pytest.raises(gpubufd.ConnectFailed):
            next(watch)
        place.start()
        assert next(watch).kind == "reconnected"


def test_put_with_replace_is_done_again(place):
    """Daemons are killed while it is under way; a name that may be replaced is put once more."""
    client, done, errors = gpubufd.connect(place.path, resume_timeout=60), threading.Event(), []
    counts = [0]

    def work():
        while not done.is_set():
            try:
                client.put("a", {"x": list(range(100)), "s": ["y"] * 100}, replace=True)
                counts[0] += 1
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(5):
        before = counts[0]
        while counts[0] < before + 3 and not errors:
            pass
        place.kill_and_start()
    done.set()
    thread.join(60)
    assert errors == []
    client.put("a", [1], replace=True)
    assert client["a"].tolist() == [1]
    client.close()


def test_with_asyncio(place):
    async def work():
        async with await gpubufd.aio.connect(place.path) as client:
            await client.put("a", [1, 2])
            held = await client.get("a")
            events = client.watch("b")
            assert (await events.__anext__()).kind == "synced"
            await asyncio.to_thread(place.restart)
            assert [event async for event in events] == []  # it has ended
            await client.put("b", [3])
            assert held.stale and held.tolist() == [1, 2]
            async with client.watch("b") as events:
                assert [(await events.__anext__()).kind for _ in range(2)] == ["sealed", "synced"]
                waiting = asyncio.ensure_future(client.get("b/later", timeout=60))
                await client.put("b/later", b"x")
                assert (await events.__anext__()).name == "b/later" and bytes(await waiting) == b"x"
            await asyncio.to_thread(place.stop)
            with pytest.raises(gpubufd.ConnectFailed):
                await client.stats()
            await asyncio.to_thread(place.start)
            assert await client.list() == []

    asyncio.run(work())
