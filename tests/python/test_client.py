"""The client: names, errors, waiting, watching, threads, and when leases end."""

import datetime
import gc
import json
import os
import pathlib
import pickle
import sys
import threading
import time
import weakref

import pytest

import gpubufd
import gpubufd.aio


def leases(client, name, of=None):
    """Those in use: the library may keep others of what was opened twice."""
    return [lease for lease in client.leases(name)
            if "cached_ms" not in lease and (of is None or lease["client"] == of)]


def opens(client):
    """How many `open`s the daemon has seen."""
    return client.stats()["methods"]["open"]["calls"]


def fds():
    return len(os.listdir("/proc/self/fd"))


# ---- names and errors ----


def test_names(client, np):
    client.put("s/a", np.arange(3))
    client.put("s/b", b"xyz", mode=0o640, ttl=600, evict="keep")
    client.put("t", b"")
    assert [i.name for i in client.list("s/")] == ["s/a", "s/b"]
    assert [i.name for i in client.list()] == ["s/a", "s/b", "t"]
    info = client.stat("s/b")
    assert (info.bytes, info.mode, info.ttl, info.evict) == (3, 0o640, 600, "keep")
    assert info.when_short == "stays"
    assert info.layout["kind"] == "bytes" and info.state == "sealed" and info.device == "host"
    assert abs(info.created - time.time()) < 60
    client.pin("s/a")
    assert client.stat("s/a").pinned
    client.unpin("s/a")
    for rows in ((1, 3), slice(1, 3)):
        client.alias("part", "s/a", rows=rows, replace=True)
        assert client["part"].tolist() == [1, 2]
    assert "t" in client and "u" not in client
    client.delete("s/a", "part")
    assert "s/a" not in client
    assert client.devices()[0]["capacity"] == 256 << 20
    assert client.call("describe")["protocol"] == 1
    many = client.get_many(["t", "s/b"])
    assert [bytes(m) for m in many] == [b"", b"xyz"]
    found = client.get_many(["t", "nope"], errors="return")
    assert isinstance(found[1], gpubufd.NotFound)
    with pytest.raises(KeyError, match="nope"):
        client.get_many(["t", "nope"])


def test_modes_are_octal(client):
    for mode in (0o640, "640", "0640"):
        client.put("m", [1], mode=mode, replace=True)
        assert client.stat("m").mode == 0o640 and "mode=0o640," in repr(client.stat("m"))
    for wrong in (640, "1777", -1):
        with pytest.raises(ValueError, match=f"mode is {wrong!r}.*0o640 or '640'"):
            client.put("m", [1], mode=wrong, replace=True)
    with client.watch("m") as events:
        assert repr(next(events).info.mode) == "0o640"
        assert repr(events) == "<gpubufd.Watch of names that begin with 'm'>"
    assert repr(events) == "<gpubufd.Watch of names that begin with 'm', ended>"
    with client.watch() as events:
        assert repr(events) == "<gpubufd.Watch of all names>"


def test_a_time_to_live(client):
    client.put("week", [1], ttl=7 * 86_400)
    assert client.stat("week").ttl == 7 * 86_400
    client.expire("week", ttl=100 * 86_400.0)
    assert client.stat("week").ttl == 100 * 86_400
    for said, seconds in (("90s", 90), ("1.5h", 5400), ("2d", 172_800), (datetime.timedelta(minutes=1), 60)):
        client.put("week", [1], ttl=said, replace=True)
        assert client.stat("week").ttl == seconds
        client.expire("week", ttl=None)
        assert client.stat("week").ttl == 0
        client.expire("week", ttl=said)
        assert client.stat("week").ttl == seconds
    for wrong in (-1, 0, "0s", "1 hour", "", float("nan"), float("inf"), 1e15):
        with pytest.raises(ValueError, match="ttl is"):
            client.expire("week", ttl=wrong)
        with pytest.raises(ValueError, match="ttl is"):
            client.put("never", [1], ttl=wrong)
    with pytest.raises(gpubufd.NotFound):
        client.expire("nothing", ttl=5)


def test_a_thousand_names(client):
    for i in range(1100):
        client.put(f"n/{i:04}", b"")
    assert len(client.list("n/")) == 1100


def test_errors(client, daemon, tmp_path):
    with pytest.raises(gpubufd.NotFound) as caught:
        client.get("nope")
    assert isinstance(caught.value, KeyError) and caught.value.kind == "not_found"
    assert caught.value.code == -32001 and str(caught.value).startswith("there is no object")
    client.put("a", b"")
    with pytest.raises(FileExistsError) as caught:
        client.put("a", b"")
    assert isinstance(caught.value, gpubufd.Exists)
    client.put("a", b"new", replace=True)
    with pytest.raises(MemoryError) as caught:
        client.put("big", bytearray(300 << 20))
    assert isinstance(caught.value, gpubufd.NoSpace)
    with pytest.raises(gpubufd.Stale):
        client.get("a", version=1)
    with pytest.raises(TimeoutError) as caught:
        client.get("nope", timeout=0.05)
    assert isinstance(caught.value, gpubufd.Timeout)
    with pytest.raises(ConnectionError) as caught:
        gpubufd.connect(str(tmp_path / "none"), timeout=1)
    assert isinstance(caught.value, gpubufd.ConnectFailed) and "none" in str(caught.value)


def test_every_error_has_a_class():
    """Each kind of the protocol but the daemon's own failure, and they are public."""
    protocol = json.loads((pathlib.Path(__file__).parents[2] / "proto" / "protocol.json").read_text())
    classes = gpubufd._errors.CLASSES
    assert {error["kind"] for error in protocol["errors"]} - {"internal"} <= set(classes)
    for cls in classes.values():
        assert issubclass(cls, gpubufd.Error) and cls.__name__ in gpubufd.__all__
        assert str(cls("a sentence")) == "a sentence"


# ---- waiting ----


def test_ctrl_c_ends_a_wait(run):
    out = run(
        """
        import gpubufd, os, signal, threading, time
        client, other = gpubufd.connect(), gpubufd.connect()
        opens = lambda: other.stats()["methods"]["open"]["calls"]
        before = opens()
        def interrupt():
            while opens() == before:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            client.get("never", timeout=60)
        except KeyboardInterrupt:
            print("interrupted")
        client.put("after", b"")
        client.delete("after")
        """
    )
    assert out == "interrupted\n"


def test_close_ends_a_wait(client, daemon):
    other = gpubufd.connect(daemon.path)
    caught, before = [], opens(client)

    def wait():
        try:
            other.get("never", timeout=60)
        except gpubufd.Error as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while opens(client) == before:
        pass
    other.close()
    thread.join(30)
    assert isinstance(caught[0], gpubufd.Closed)


# ---- watching ----


def test_watch(client):
    client.put("w/a", b"")
    with client.watch("w/", timeout=30) as watch:
        assert [(e.kind, e.name) for e in (next(watch), next(watch))] == [("sealed", "w/a"), ("synced", None)]
        client.put("w/b", b"abc")
        event = next(watch)
        assert (event.kind, event.name, event.info.bytes) == ("sealed", "w/b", 3)
        client.delete("w/a")
        assert next(watch).kind == "deleted"
    assert list(watch) == []
    kinds = []
    while not kinds:  # it comes in time, but on a machine that is busy
        with client.watch("none/", timeout=0.5) as watch:
            kinds = [e.kind for e in watch]
            assert kinds in ([], ["synced"])
            assert not kinds or watch.poll() is None
    assert kinds == ["synced"]


def test_watch_beside_threads(client):
    """Whichever thread receives an event, the iterator wakes."""
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            client.stats()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    with client.watch("w/", timeout=30) as watch:
        assert next(watch).kind == "synced"
        for thread in threads:
            thread.start()
        try:
            for i in range(50):
                client.put(f"w/{i}", b"")
                assert next(watch).name == f"w/{i}"
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_watches_leave_nothing(client):
    client.watch("w/").close()  # the connection's first request without a thread of its own makes descriptors to poll
    before = fds()
    for _ in range(100):
        watch = client.watch("w/")
        assert next(watch).kind == "synced"
        del watch
    assert fds() == before


# ---- when leases end ----


def test_del_release_with(client, np):
    client.put("a", np.arange(3))
    a = client["a"]
    assert len(leases(client, "a")) == 1
    del a
    assert leases(client, "a") == []
    a = client["a"]
    a.release()
    a.release()
    assert a.released and leases(client, "a") == []
    for use in (lambda: a.shape, lambda: a.tolist(), lambda: a[1:], lambda: memoryview(a)):
        with pytest.raises(gpubufd.Closed):
            use()
    with client["a"] as a:
        part = a[1:]
    assert part.tolist() == [1, 2] and len(leases(client, "a")) == 1
    part.release()
    assert leases(client, "a") == []


@pytest.mark.parametrize(
    "take",
    [
        lambda np, t: t["x"].to_numpy(),
        lambda np, t: memoryview(t["x"]),
        lambda np, t: np.from_dlpack(t["x"]),
        lambda np, t: t["x"].buffers.values,
        lambda np, t: t["x"].__dlpack__(),
        lambda np, t: t.__arrow_c_array__(),
        lambda np, t: t.__arrow_c_stream__(),
        lambda np, t: t["x"].__arrow_c_device_array__(),
        lambda np, t: t["x"].buffers.validity or t["x"][1:],
        lambda np, t: t["x"].to_pandas() if "pandas" in sys.modules else t["x"],
    ],
)
def test_what_others_took_keeps_the_lease(client, daemon, np, take):
    client.put("t", {"x": np.arange(10), "y": np.arange(10)})
    other = gpubufd.connect(daemon.path, name="taker")
    taken = take(np, other.get("t"))
    gc.collect()
    del other
    gc.collect()
    assert len(leases(client, "t", "taker")) == 1
    client.put("t", {"x": np.zeros(10)}, replace=True)
    del taken
    gc.collect()
    assert leases(client, "t", "taker") == []


def test_close_spares_what_others_took(client, daemon, np):
    client.put("a", np.arange(1000))
    with gpubufd.connect(daemon.path, name="taker") as other:
        a = other["a"]
        taken = a.to_numpy()
        assert not other.closed
    assert other.closed and a.released
    for call in (lambda: other["a"], lambda: other.put("x", b""), other.stats, lambda: next(other.watch())):
        with pytest.raises(gpubufd.Closed):
            call()
    client.delete("a")
    client.put("b", np.zeros(100000))
    assert taken.sum() == 499500
    del taken
    assert leases(client, None, "taker") == []
    other.close()


def test_cycles(client, np):
    class Node:
        pass

    client.put("a", np.arange(3))
    node = Node()
    node.self, node.held, node.view = node, client["a"], client["a"].to_numpy()
    gone = weakref.ref(node.held)
    del node
    gc.collect()
    assert gone() is None and leases(client, "a") == []


def test_a_client_is_not_kept_by_itself(daemon):
    client = gpubufd.connect(daemon.path)
    gone = weakref.ref(client)
    watch = client.watch("x")
    next(watch)
    del watch, client
    assert gone() is None


def test_gets_leave_nothing(client, np):
    client.put("a", np.arange(10))
    client.put("t", {"x": [1, 2, None]})
    sanitized = "asan" in os.environ.get("GPUBUF_BUILD", "")  # which keeps what was freed for a while

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def work(count):
        for _ in range(count):
            memoryview(client["a"])
        for _ in range(count // 10):
            t = client["t"]
            t["x"].__arrow_c_array__()
            client["a"].__dlpack__()
            np.from_dlpack(client["a"][1:])

    work(2000)
    before, files = rss(), fds()
    work(2000 if sanitized else 100_000)
    assert leases(client, None) == []
    assert fds() == files
    assert sanitized or rss() - before < 2 << 20


def test_refusals_leave_nothing(client, np):
    for i in range(300):
        for value in (object(), {"a": [1, "x"]}, {"a": [1], "b": []}, np.array([object()])):
            with pytest.raises((TypeError, ValueError)):
                client.put("bad", value)
    assert client.list() == []


# ---- threads, processes ----


def test_threads(client, np):
    failures = []

    def work(which):
        try:
            for i in range(100):
                name = f"{which}/{i % 5}"
                client.put(name, np.full(64, i), replace=True)
                a = client[name]
                assert a.to_numpy().sum() == 64 * i
                assert a[1:3].tolist() == [i, i]
        except Exception as error:  # told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_release_in_another_thread(client, np):
    client.put("a", np.arange(3))
    held = [client["a"].to_numpy() for _ in range(100)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert leases(client, "a") == []


def test_fork_while_a_thread_connects(run, tmp_path):
    run(
        f"""
        import os, signal, socket, threading
        from gpubufd._client import default_client
        mute = socket.socket(socket.AF_UNIX)
        mute.bind({str(tmp_path / "mute")!r})
        mute.listen()
        def connect():
            try:
                default_client(mute.getsockname())
            except Exception:
                pass
        thread = threading.Thread(target=connect)
        thread.start()
        there, _ = mute.accept()  # the thread waits for the greeting
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            default_client()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        there.close(), mute.close()
        thread.join()
        """
    )


def test_fork(run):
    out = run(
        """
        import array, gpubufd, os
        client = gpubufd.connect()
        client.put("a", array.array("i", [1, 2, 3]))
        a = client["a"]
        taken = memoryview(a)
        pid = os.fork()
        if pid == 0:
            try:
                client.get("a")
            except gpubufd.Forked as error:
                print("child:", error.kind, flush=True)
            try:
                client.put("b", b"")
            except gpubufd.Forked:
                pass
            assert taken.tolist() == [1, 2, 3]
            del a, taken, client
            with gpubufd.connect() as own:
                assert own["a"].tolist() == [1, 2, 3]
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert client["a"].tolist() == a.tolist() == [1, 2, 3]
        assert len(client.leases("a")) == 1
        client.delete("a")
        """
    )
    assert out == "child: forked\n"


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "client.close()",
        "del client",
        "del a",
        "import sys; sys.modules.clear()",
        "keep = [a, client]; keep.append(keep)",
        "import atexit; atexit.register(lambda: (client.close(), a.release()))",
        "import builtins; builtins.keep = (capsule, view, client)",
        "import threading; threading.Thread(target=lambda: client.get('never', timeout=0.2)).start()",
        "import threading; threading.Thread(target=lambda: next(client.watch('zz', timeout=30)), daemon=True).start()",
        "w = client.watch(); next(w)",
        "raise SystemExit(0)",
    ],
)
def test_exit_in_any_order(client, run, ending):
    run(
        f"""
        import array, gpubufd
        client = gpubufd.connect()
        client.put("exit", array.array("i", [1, 2, 3]), replace=True)
        a = client["exit"]
        view, capsule, arrow = memoryview(a), a.__dlpack__(), a.__arrow_c_array__()
        {ending}
        """
    )
    assert client["exit"].tolist() == [1, 2, 3]


def test_other_process_reads_with_no_copy(client, np, run):
    """10 million rows: the reader's memory grows by what it touches of the shared pages alone."""
    rows = 10_000_000
    with client.create("big", "float64", rows) as big:
        big.to_numpy()[:] = np.arange(rows)
        big.seal()
    out = run(
        """
        import gpubufd, numpy
        def anonymous():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
        client = gpubufd.connect()
        before = anonymous()
        big = client["big"]
        values = numpy.asarray(big)
        assert values.ctypes.data == big.buffers.values.pointer
        total = values.sum()
        print(int(total), anonymous() - before)
        """
    )
    total, grown = map(int, out.split())
    assert total == rows * (rows - 1) // 2
    assert grown < 2048  # KiB, of 78 MiB


def test_pickling_is_refused(client):
    client.put("a", b"x")
    for thing in (client, client["a"], client["a"].buffers.values):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)
    for cls in (gpubufd.Array, gpubufd.Table):
        with pytest.raises(TypeError, match="not made by hand"):
            cls()


def test_patterns(client):
    names = ["a", "t/1", "t/2", "u/1", "x[1]"]
    client.put_many({name: name for name in names})
    assert [info.name for info in client.list("t*")] == ["t/1", "t/2"]
    assert [info.name for info in client.list("?/1")] == ["t/1", "u/1"]
    assert [info.name for info in client.list("x[")] == ["x[1]"] and client.list("z*") == []
    client.pin("t/*", "a")
    assert [info.name for info in client.list() if info.pinned] == ["a", "t/1", "t/2"]
    client.unpin("*")
    assert not any(info.pinned for info in client.list())
    client.expire("t/*", "u/1", ttl="1h")
    assert [info.name for info in client.list() if info.ttl == 3600] == ["t/1", "t/2", "u/1"]
    with pytest.raises(KeyError):
        del client["t/*"]
    with pytest.raises(gpubufd.NotFound, match="no object matches 'z[*]'"):
        client.delete("z*")
    client.delete("z*", "y", missing_ok=True)
    with pytest.raises(gpubufd.NotFound, match='"t/[*]"'):
        client.delete("t/*", label="one")
    client.delete("t/*", "x[1]")
    assert list(client) == ["a", "u/1"]


def test_a_bracket_in_a_pattern_is_itself(client):
    client.put_many({"x1": b"", "x[1]": b"", "x[1]/a": b""})
    assert [info.name for info in client.list("x[1]*")] == ["x[1]", "x[1]/a"]
    assert [info.name for info in client.list("?[1]")] == ["x[1]"]
    client.delete("x[1]*")
    assert list(client) == ["x1"]


def test_a_name_that_is_there_is_no_pattern(client):
    client.put_many({"t*": b"", "tt": b""})
    client.delete("t*")
    assert list(client) == ["tt"]


def test_many_at_once(client):
    refs = client.put_many({"a": [1], "b": "text"}, label="one")
    assert {name: client.get(ref).label for name, ref in refs.items()} == {"a": "one", "b": "one"}
    with pytest.raises(gpubufd.Exists):
        client.put_many({"c": [1], "a": [2], "d": [3]})
    assert list(client) == ["a", "b", "c"], "those before it stay"
    assert client.get_many([]) == [] == client.get_many(iter(())) and client.put_many({}) == {}


@pytest.mark.parametrize("text", ["text", "", "größer \u0000 \U0001f600"])
def test_text_comes_back(client, text):
    client.put("t", text)
    held = client["t"]
    assert isinstance(held, gpubufd.Bytes) and held.decode() == text and held == text and held == text.encode()
    assert held != text + "x"


class Lazy:
    """As polars has it: no frame yet."""

    def collect(self):
        raise AssertionError


@pytest.mark.parametrize("error, call, words", [
    (ValueError, lambda c: c.get("a", version=0), "version is 0: expected 1 or more"),
    (ValueError, lambda c: c.get("a", version=-1), "version is -1: expected 1 or more"),
    (ValueError, lambda c: c.stat("a", version=2**52), "version is 4503599627370496"),
    (ValueError, lambda c: c.get("a", version=1, label="x"), "version and label are both given"),
    (ValueError, lambda c: c.get("a", label=""), "label is empty"),
    (ValueError, lambda c: c.put("b", [1], label=""), "label is empty"),
    (ValueError, lambda c: c.put("b", [1], ttl=0), "ttl is 0: expected more than 0 seconds; None"),
    (ValueError, lambda c: c.put("b", [1], ttl="1 year"), "ttl is '1 year': expected seconds, or text such as"),
    (ValueError, lambda c: c.put("b", [1], mode="9"), "mode is '9': expected one as chmod has it"),
    (ValueError, lambda c: c.put("b", [1], keep=9), "keep is 9: expected 0 to 8"),
    (ValueError, lambda c: c.alias("b", "a", rows=slice(0, None)), "rows is slice"),
    (ValueError, lambda c: c.put("b//a", b""), "name: the name has an empty part"),
    (ValueError, lambda c: c.put("b", b"", evict="never"), "evict is 'never': expected one of spill, drop, keep"),
    (ValueError, lambda c: c.get("nope", timeout=-1), "timeout is -1"),
    (ValueError, lambda c: c.get("a\0b"), "embedded null character"),
    (TypeError, lambda c: c.get(5), "get() argument 1 must be str, not int"),
    (ValueError, lambda c: gpubufd.connect(cache_bytes=-1), "cache_bytes is -1"),
    (ValueError, lambda c: gpubufd.connect(cache_leases=-1), "cache_leases"),
    (FileExistsError, lambda c: c.put("a", [1]), '"a" exists; pass replace=True to take its name'),
    (ValueError, lambda c: c.put("b", [1], device="gpu"),
     'device: this daemon serves no device "gpu"; it serves host'),
    (ValueError, lambda c: c.put("b", {"x" * 300: [1]}),
     "the name of column 1: expected a string of at most 255 bytes, found 300"),
    (ValueError, lambda c: c.alias("b", "a", rows=(0, 99)), "rows: offset 0 and length 99 go past the end"),
    (NotImplementedError, lambda c: c.spill("a"),
     "there is no tier below host; the daemon makes one with its option --tier"),
    (ValueError, lambda c: c.spill("a", tier="tape"), "tier: expected"),
    (ValueError, lambda c: c.restore("a", timeout=-1), "timeout is -1"),
    (ValueError, lambda c: c.put("b", [1], label="x" * 300), "label: expected at most 255 bytes"),
    (TimeoutError, lambda c: c.get("none", timeout=0.25), '"none" did not appear within 0.25 s'),
    (TypeError, lambda c: c.put("p", {"lr": 0.1, "n": 3}),
     "column 'lr': 0.1 is one value: [0.1] is a column of one row. A dict that is no table goes as json.dumps("),
    (TypeError, lambda c: c.put("p", {"x": "yes"}), "column 'x': 'yes' is one value: ['yes'] is a column"),
    (TypeError, lambda c: c.put("p", Lazy()), "Lazy cannot be put: collect() makes a frame of it"),
    (TypeError, lambda c: c.put("p", {1, 2}), "set cannot be put: list(…) of it can be"),
    (TypeError, lambda c: c.put("p", (x for x in [1])), "generator cannot be put: list(…) of it can be"),
    (TypeError, lambda c: c.put("p", object()), "object cannot be put. Things that can be put: NumPy arrays"),
    (TypeError, lambda c: c.put([1], "p"), "put(name, value): the name is a str, not list"),
    (NotImplementedError, lambda c: c.read("a"), '"a" is no stream, which is a live array of 2 to 128 slots: it is a column'),
    (FileExistsError, lambda c: c.stream("a", "uint8", 3), '"a" exists, and is no stream: delete it first'),
    (RuntimeError, lambda c: (c.stream("s", "uint8", 3), c.stream("s", "uint8", 3)), '"s" has a writer: session '),
    (TimeoutError, lambda c: (c.stream("s", "uint8", 3), c.stream("s", "uint8", 3, timeout=0.01)), '"s" has a writer: sess'),
    (ValueError, lambda c: c.create("x", "flaot64", 1), 'unknown dtype "flaot64"; did you mean float64?'),
    (ValueError, lambda c: c.create("x", "text", 1), 'unknown dtype "text"'),
    (ValueError, lambda c: c.load(__file__, "x", format="npy"), f"{__file__} is no .npy file"),
    (TypeError, lambda c: c.list(5), "a name is 5: expected a str"),
    (ValueError, lambda c: c.create("w", {"x": "f8"}, "x"), "shape is 'x': expected a table's number of rows"),
    (TypeError, lambda c: c.put("p", [1.5], stream="x"), "stream is 'x': expected a library's stream"),
    (TypeError, lambda c: c.put_bundle("p", [1]), "list is no bundle: expected a dict of arrays by name"),
    (TypeError, lambda c: c.get("a", kind="table"), "kind is 'table': expected gpubufd.Table"),
    (TypeError, lambda c: c.get_many("ab"), "names is 'ab': expected several"),
    (ConnectionError, lambda c: gpubufd.connect("/etc/passwd"),
     "cannot connect to the daemon at /etc/passwd: it is no socket"),
    (ConnectionError, lambda c: gpubufd.connect("/no/s"), "no daemon listens at /no/s: gpubufd.connect(start=True) starts "
     "one of your own, or `python -m gpubufd serve` in another terminal"),
    (ConnectionError, lambda c: gpubufd.connect("localhost:6379"), "localhost:6379 is no address: gpubufd listens at a path"),
    (OSError, lambda c: c.load("/nothing.parquet"), "[Errno 2] No such file or directory: '/nothing.parquet'"),
    (OSError, lambda c: c.load(__file__[:-2] + "csv"), "[Errno 2]"),
])
def test_sentences_are_in_words_of_python(client, error, call, words):
    client.put("a", [1, 2])
    with pytest.raises(error) as caught:
        call(client)
    assert str(caught.value).startswith(words)


def test_files_that_others_read(client, tmp_path):
    for name, way in (("t.csv", "pandas.read_csv('{}')"), ("t.tsv", "pandas.read_csv('{}')"),
                      ("m.safetensors", "gpubufd.numpy.load_file('{}')")):
        (tmp_path / name).write_text("a\n1\n")
        with pytest.raises(ValueError) as caught:
            client.load(tmp_path / name)
        assert way.format(tmp_path / name) in str(caught.value) and "gpubufctl put" in str(caught.value)


def test_names_of_classes_are_public():
    for name in gpubufd.__all__:
        one = getattr(gpubufd, name)
        assert one.__module__ == "gpubufd" or name in ("Event", "Info"), name
    assert gpubufd.aio.Provider.__module__ == gpubufd.aio.Client.__module__ == "gpubufd.aio"


def test_methods_look_as_if_they_were_written_in_the_client(client):
    import inspect

    assert str(inspect.signature(client.expire)).startswith("(*names: 'str', ttl: 'Optional[Seconds]', version:")
    assert "deletes the objects in `ttl` seconds" in client.expire.__doc__
    with pytest.raises(TypeError, match=r"^Client.expire\(\) missing 1 required keyword-only argument: 'ttl'"):
        client.expire("a", 60)
    with pytest.raises(TypeError, match=r"^Client.pin\(\) got an unexpected keyword argument 'version'"):
        client.pin("a", version=1)
