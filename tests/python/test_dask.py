"""gpubufd.dask: with one daemon and Dask's own schedulers, and on a cluster whose workers have daemons of
their own: a1 and a2 share one, b1 has another."""

import contextlib
import datetime
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from conftest import PACKAGE, ROOT, Daemon

import gpubufd

try:
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import distributed
    import numpy as np
    import pandas as pd
except Exception as error:  # whatever a mix of versions raises
    pytest.skip(f"needs dask and distributed: {error}", allow_module_level=True)

import gpubufd.dask as gd  # noqa: E402
from gpubufd import _client, _dask_partitions, _dask_places  # noqa: E402

# Dask would make its own dtype of text: what is compared is what was given. And its scheduler, which is in this process,
# would keep its last messages, with the futures in them, for developers.
dask.config.set({"dataframe.convert-string": False, "distributed.admin.low-level-log-length": 0})

DEADLINE = float(os.environ.get("GPUBUF_TEST_DEADLINE", 60))
EXAMPLE = ROOT / "examples" / "python" / "dask_frame.py"
ROWS = 24


@pytest.fixture(autouse=True)
def in_time():
    """Dask waits for ever where something is amiss: no test does."""

    def end(*_):
        raise TimeoutError(f"not done after {4 * DEADLINE} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(int(4 * DEADLINE))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def wait_for(condition, what):
    """`what`: a sentence, or what makes it when it is needed."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, what() if callable(what) else what
        started = time.monotonic()
        gc.collect()  # Dask's collections and their graphs are in cycles
        time.sleep(max(0.01, time.monotonic() - started))  # the scheduler is a thread that needs its turn
    return True


def sample():
    """A frame with every kind of column that is kept."""
    n = ROWS
    third = [k % 3 == 0 for k in range(n)]
    return pd.DataFrame(
        {
            "int": np.arange(n),
            "float": np.linspace(0, 1, n).astype("f4"),
            "nan": np.where(third, np.nan, 1.5),
            "text": [None if none else f"größer {k}" for k, none in enumerate(third)],
            "category": pd.Categorical.from_codes([k % 3 - 1 for k in range(n)], ["x", "y"], ordered=True),
            "years": pd.Categorical([2000 + k % 2 for k in range(n)]),
            "zone": pd.date_range("2020-01-01", periods=n, tz="Europe/Berlin"),
            "time": [pd.NaT if none else pd.Timestamp(k) for k, none in enumerate(third)],
            "delta": pd.to_timedelta(np.arange(n), "h"),
            "bool": third,
            "Int16": pd.array([None if none else k for k, none in enumerate(third)], dtype="Int16"),
            "boolean": pd.array([None if none else k % 2 for k, none in enumerate(third)], dtype="boolean"),
            "Float64": pd.array([None if none else k / 2 for k, none in enumerate(third)], dtype="Float64"),
            "string": pd.array([None if none else "s" for none in third], dtype="string"),
            "date": [datetime.date(2020, 1, 1 + k) for k in range(n)],
            "lists": [[k] * (k % 3) for k in range(n)],
            7: np.arange(n, dtype="u1"),
        },
        index=pd.date_range("2021-01-01", periods=n, freq="D", name="when"),
    )


def assert_same(got, expected):
    check = pd.testing.assert_series_equal if isinstance(expected, pd.Series) else (
        pd.testing.assert_frame_equal)
    check(got, expected)


# ---- one daemon, no cluster ----


@pytest.fixture
def here(daemon, client, monkeypatch):
    """The client of a daemon that gpubufd.dask finds by the environment."""
    monkeypatch.setenv("GPUBUFD_SOCKET", daemon.path)
    yield client
    gc.collect()
    _client._clients.clear()


def names(client, prefix=""):
    return [info.name for info in client.list(prefix)]


def whole(partitions):
    """How many objects a publication has in a daemon."""
    return partitions + 2


def used(client):
    """The leases in use: the library may keep others of what was opened twice."""
    return [lease for lease in client.leases() if "cached_ms" not in lease]


def test_everything_is_kept(here):
    frame = sample()
    ddf = dd.from_pandas(frame, npartitions=3)
    gd.publish(ddf, "x/sample")
    back = gd.load("x/sample")
    assert back.divisions == ddf.divisions and back.npartitions == 3 and back.known_divisions
    assert_same(back._meta, ddf._meta)
    for scheduler in ("threads", "sync", "processes"):
        assert_same(back.compute(scheduler=scheduler), frame)
    assert_same(back.partitions[1].compute(), ddf.partitions[1].compute())
    assert back["int"].sum().compute() == sum(range(ROWS))
    wait_for(lambda: all(lease["name"].endswith("/lease") for lease in used(here)), "leases are left")
    assert len(used(here)) == 1


def test_nothing_is_copied(here):
    gd.publish(dd.from_pandas(pd.DataFrame({"a": np.arange(1000.0)}), npartitions=2), "x")
    part = gd.load("x").partitions[1].compute(scheduler="sync")
    assert not part["a"].to_numpy().flags.writeable
    name, = (lease["name"] for lease in used(here) if re.match(r"x/dask-\w+/\d", lease["name"]))
    assert name.endswith("/00001")
    with gpubufd.connect(os.environ["GPUBUFD_SOCKET"]) as other:
        before = part["a"].to_numpy().copy()
        other.delete(name)
        np.testing.assert_array_equal(part["a"].to_numpy(), before)


FRAMES = {
    "range": pd.DataFrame({"a": range(10)}),
    "range with step": pd.DataFrame({"a": range(10)}, index=pd.RangeIndex(5, 25, 2, name="i")),
    "integers": pd.DataFrame({"a": range(10)}, index=pd.Index([k * 3 for k in range(10)], name="a")),
    "texts": pd.DataFrame({"a": range(10)}, index=[f"k{k}" for k in range(10)]),
    "zone": pd.DataFrame({"a": range(4)}, index=pd.date_range("2020-03-28", periods=4, tz="Europe/Berlin")),
    "deltas": pd.DataFrame({"a": range(4)}, index=pd.to_timedelta(range(4), "s")),
    "floats": pd.DataFrame({"a": range(4)}, index=[0.5, 1.5, 2.5, 3.5]),
    "labels": pd.DataFrame(np.arange(6).reshape(3, 2), columns=pd.Index([1, "one"], name="what")),
    "named columns": pd.DataFrame({"a": [1]}).rename_axis(columns="what"),
    "no columns": pd.DataFrame(index=pd.RangeIndex(7)),
    "series": pd.Series(range(5), name="s", dtype="Int8"),
    "series without a name": pd.Series(["a", None]),
}


@pytest.mark.parametrize("case", FRAMES)
def test_indexes_and_labels(here, case):
    frame = FRAMES[case]
    ddf = dd.from_pandas(frame, npartitions=2)
    gd.publish(ddf, "x")
    back = gd.load("x")
    assert back.divisions == ddf.divisions
    assert_same(back._meta, ddf._meta)
    assert_same(back.compute(scheduler="sync"), ddf.compute(scheduler="sync"))


def test_empty_partitions(here):
    ddf = dd.from_pandas(sample(), npartitions=4)
    ddf = ddf[ddf["int"] > 13]
    assert (ddf.map_partitions(len).compute() == 0).any()
    gd.publish(ddf, "x")
    assert_same(gd.load("x").compute(), ddf.compute())
    gd.publish(ddf[ddf["int"] < 0], "none")
    assert_same(gd.load("none").compute(), ddf[ddf["int"] < 0].compute())


def test_unknown_divisions_and_categories(here):
    ddf = dd.from_pandas(pd.DataFrame({"a": list("abcabc")}), npartitions=2).clear_divisions()
    ddf["a"] = ddf["a"].astype("category")
    assert not ddf["a"].cat.known
    gd.publish(ddf, "x")
    back = gd.load("x")
    assert not back.known_divisions and not back["a"].cat.known
    assert back["a"].compute().tolist() == list("abcabc")


def test_arrays(here):
    random = da.random.RandomState(1)
    for array in (
        random.random_sample((10, 12), chunks=(4, 5)), da.arange(7, chunks=3).astype("M8[D]"),
        da.from_array(np.array(["a", "bcd"]), chunks=1), da.ones((0, 3)), da.ones(()),
        da.from_array(np.array([True, False]), chunks=1), da.arange(4, chunks=2).astype("c8"),
    ):
        gd.publish(array, "x", replace=True)
        back = gd.load("x")
        assert back.chunks == array.chunks and back.dtype == array.dtype
        np.testing.assert_array_equal(back.compute(), array.compute())
    masked = da.random.random(10, chunks=5)
    masked = masked[masked > 0.5]  # nobody knows how long its blocks are
    masked = masked.persist(scheduler="sync")
    gd.publish(masked, "x", replace=True)
    np.testing.assert_array_equal(gd.load("x").compute(), masked.compute())


def test_manifest_is_for_everybody(here):
    gd.publish(dd.from_pandas(sample(), npartitions=2), "x", mode=0o640)
    manifest = json.loads(here.get("x").tobytes())
    assert manifest["divisions"][0] == {"timestamp": "2021-01-01T00:00:00", "zone": None}
    assert [c["dtype"] for c in manifest["columns"]][:2] == ["int64", "float32"]
    for part in manifest["partitions"]:
        assert part["instance"] == here.instance
        assert len(here.get(part["name"])) == part["rows"] == ROWS // 2
        assert here.stat(part["name"]).mode == 0o640
    assert here.stat("x").mode == 0o640
    gd.publish(da.ones(3), "array", evict="drop")
    assert {info.evict for info in here.list("array/") if info.name.endswith("0")} == {"drop"}


def test_what_is_published_is_listed(here):
    assert gd.list() == []
    ddf = dd.from_pandas(sample(), npartitions=3)
    told = gd.publish(ddf, "x/frame")
    assert (told.name, told.kind, told.partitions, told.rows) == ("x/frame", "frame", 3, ROWS)
    assert told.bytes == sum(info.bytes for info in here.list("x/frame/") if info.name[-5:].isdigit())
    assert told.hosts == (_dask_places.host_name(),) and told.workers == () and told.unreachable == 0
    series = gd.publish(ddf["int"], "x/series")
    array = gd.publish(da.ones((4, 3), chunks=2), "y")
    assert (series.kind, series.rows, array.kind, array.rows) == ("series", ROWS, "array", None)
    assert (array.partitions, array.bytes) == (4, 4 * 3 * 8)
    assert gd.list() == [told, series, array]
    assert gd.list("x/") == [told, series] and gd.list("x/s") == [series] and gd.list("x/series/d") == []
    again = gd.publish(ddf["int"].partitions[:1], "x/series", replace=True)
    assert again.partitions == 1 and gd.list("x/series") == [again]
    loaded = gd.load("y")
    gd.delete("y")
    assert gd.list() == [told, again], "nobody can load what has been deleted"
    del loaded


def test_what_looks_like_a_publication_is_not_listed(here):
    told = gd.publish(da.ones(3), "x")
    right = json.loads(here.get("x").tobytes())
    odd = [[1.5], b"{", {"gpubufd.dask": 2}, {"gpubufd.dask": 1}, {**right, "partitions": 7},
           {**right, "partitions": [{}]}, {**right, "partitions": [[]]}, {**right, "generation": "a"},
           {**right, "generation": float("inf")}, {**right, "generation": None}]
    for i, value in enumerate(odd):
        here.put(f"odd/{i}", json.dumps(value).encode() if isinstance(value, dict) else value)
        here.put(f"odd/{i}/dask-0123456789abcdef/lease", b"")
    here.put("none/dask-0123456789abcdef/lease", b"")
    assert gd.list() == [told]


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_progress(here, scheduler):
    seen = []
    with dask.config.set(scheduler=scheduler):
        gd.publish(da.arange(8, chunks=2) + 1, "x", progress=lambda *counts: seen.append(counts))
    assert seen == [(done, 4) for done in range(5)]


@pytest.mark.parametrize("last", [0, 2, 4])
def test_progress_that_fails(here, last):
    """An exception of it ends the publication; the one before stays."""
    def enough(done, total):
        if done == last:
            raise RuntimeError(f"{done} of {total} are enough")

    gd.publish(da.ones(3), "x")
    with pytest.raises(RuntimeError, match=f"{last} of 4 are enough"):
        gd.publish(da.arange(8, chunks=2), "x", replace=True, progress=enough)
    wait_for(lambda: len(names(here)) == 1 + whole(1), "something of the failed one is left")
    assert gd.load("x").sum().compute() == 3


def test_a_name_with_a_star_is_no_pattern(here):
    ddf = dd.from_pandas(sample(), npartitions=2)
    for name in ("d*", "dx"):
        gd.publish(ddf, name)
    assert [one.name for one in gd.list("d*")] == ["d*"]
    gd.publish(ddf[ddf["int"] < 5], "d*", replace=True)
    gd.delete("d*")
    gd.delete("d*", missing_ok=True)
    assert not any(name.startswith("d*") for name in names(here))
    assert_same(gd.load("dx").compute(), sample())


def test_replaced_while_in_use(here):
    first = dd.from_pandas(sample(), npartitions=3)
    second = first[first["int"] < 5]
    gd.publish(first, "x")
    with pytest.raises(gpubufd.Exists, match="pass replace=True"):
        gd.publish(second, "x")
    old = gd.load("x")
    gd.publish(second, "x", replace=True)
    assert len(names(here)) == 1 + 2 * whole(3)
    assert_same(gd.load("x").compute(), sample().iloc[:5])
    assert_same(old.compute(), sample())
    part = old["int"].partitions[0].compute()
    del old
    wait_for(lambda: len(names(here)) == 1 + whole(3), "the old partitions go with their last reader")
    assert part.tolist() == list(range(8)), "what has been read stays"
    last = gd.load("x")
    gd.delete("x")
    assert names(here, "x/") and "x" not in here
    assert len(last) == 5
    del last
    wait_for(lambda: names(here) == [], "the deleted partitions go with their last reader")


def test_a_reader_that_died_leaves_nothing_for_ever(here, run):
    gd.publish(dd.from_pandas(sample(), npartitions=3), "x")
    run("""
        import os, signal
        import gpubufd.dask
        x = gpubufd.dask.load("x")
        gpubufd.dask.publish(x.partitions[:1], "x", replace=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """, status=-signal.SIGKILL)
    assert len(names(here)) == 1 + whole(3) + whole(1)
    gd.publish(da.ones(1), "x", replace=True)
    assert len(names(here)) == 1 + whole(1)


def test_publishers_and_readers_at_once(here):
    """Every load is one whole publication, whatever happens meanwhile."""
    gd.publish(da.full(30, 0, chunks=10), "x")
    errors = []

    def publish(first):
        try:
            for k in range(8):
                gd.publish(da.full(30, first + k, chunks=10), "x", replace=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        values = set(gd.load("x").compute(scheduler="sync").tolist())
        assert len(values) == 1
        seen |= values
    assert errors == [] and seen
    wait_for(lambda: len(names(here)) == 1 + whole(3), "what was replaced is left")


def test_what_is_loaded_again_and_again_stays(here):
    """A lease that the library caches is none for those who count."""
    gd.publish(da.full(6, 1, chunks=3), "x")
    for _ in range(6):
        loaded = None
        gc.collect()
        loaded = gd.load("x")
    gd.publish(da.full(6, 2, chunks=3), "x", replace=True)
    assert loaded.sum().compute() == 6


def test_what_is_loaded_while_others_tidy_up_stays(here, monkeypatch):
    gd.publish(da.full(6, 1, chunks=3), "x")
    read, loaded = _dask_partitions.read_manifest, []

    def meanwhile(name):
        monkeypatch.setattr(_dask_partitions, "read_manifest", read)
        loaded.append(gd.load("x"))
        gd.publish(da.full(6, 2, chunks=3), "x", replace=True)
        return read(name)

    monkeypatch.setattr(_dask_partitions, "read_manifest", meanwhile)
    _dask_partitions.sweep("x")
    assert loaded.pop().sum().compute() == 6 and gd.load("x").sum().compute() == 12


def broken(part):
    """A frame that cannot be published, in all partitions but the first."""
    mixed = [1] * len(part) if 0 in part["int"].to_numpy() else [1, "a"] * (len(part) // 2)
    return part.assign(text=mixed)


def test_a_failed_publish_leaves_nothing(here):
    ddf = dd.from_pandas(sample()[["int", "text"]], npartitions=3)
    with pytest.raises(TypeError, match=r"partition [12] of 'x', on host .*column 'text': row 0 is a"):
        gd.publish(ddf.map_partitions(broken, meta=ddf._meta), "x")
    wait_for(lambda: names(here) == [], "another thread's partition is left")
    gd.publish(ddf, "x")
    with pytest.raises(TypeError, match="partition"):
        gd.publish(ddf.map_partitions(broken, meta=ddf._meta), "x", replace=True)
    assert_same(gd.load("x").compute(), sample()[["int", "text"]])
    wait_for(lambda: len(names(here)) == 1 + whole(3), "something of the failed one is left")
    big = da.zeros((8, 100_000_000), chunks=(1, 100_000_000))
    with pytest.raises(gpubufd.NoSpace, match="partition .* of 'big', on host"):
        gd.publish(big, "big")
    wait_for(lambda: names(here, "big") == [], "something of the big one is left")


class Nameless(datetime.tzinfo):
    """A time zone that no text names."""

    def utcoffset(self, _):
        return datetime.timedelta(hours=1)

    dst = tzname = utcoffset


def test_refusals(here):
    ddf = dd.from_pandas(sample(), npartitions=2)
    with pytest.raises(KeyError, match="no collection is published as 'none'"):
        gd.load("none")
    with pytest.raises(KeyError, match="no collection is published as 'none'"):
        gd.delete("none")
    gd.delete("none", missing_ok=True)
    here.put("plain", [1, 2])
    for call in (gd.load, gd.delete, lambda name: gd.publish(ddf, name, replace=True)):
        with pytest.raises(gpubufd.Invalid, match="'plain' is not a publication of Dask's, but Column"):
            call("plain")
    assert here.get("plain").tolist() == [1, 2]
    for value, what in ((sample(), "DataFrame is not of Dask.*from_pandas"), (7, "int is not of Dask")):
        with pytest.raises(TypeError, match=what):
            gd.publish(value, "x")
    with pytest.raises(TypeError, match="expected a distributed.Client"):
        gd.load("x", client=here)
    for frame, what in (
        (pd.DataFrame({("a", "b"): [1]}), r"\('a', 'b'\) is the name of a column"),
        (pd.DataFrame({1: [1], "1": [2]}), "two columns are called '1'"),
        (pd.DataFrame({"a": [1], "__index__": 1}, index=[2]), "the name kept for the index"),
        (pd.DataFrame({"a": pd.to_datetime([0]).tz_localize("UTC").tz_convert(Nameless())}), "'a': the time zone .*'UTC'"),
        (pd.DataFrame({"a": [1j]}), "column 'a': Arrow has no complex"),
    ):
        with pytest.raises(TypeError, match=what):
            gd.publish(dd.from_pandas(frame, npartitions=1), "x")
    here.put("future", json.dumps({"gpubufd.dask": 2}).encode())
    with pytest.raises(gpubufd.Unsupported, match="manifest of format 2, expected 1"):
        gd.load("future")
    assert sorted(names(here)) == ["future", "plain"]


def test_parts_that_are_gone(here):
    gd.publish(da.arange(6, chunks=3), "x")
    back = gd.load("x")
    here.delete(next(name for name in names(here) if name.endswith("00001")))
    with pytest.raises(gpubufd.NotFound, match=r"partition 1 of 'x' \(x/dask-\w+/00001\), on host "):
        back.compute()
    del back
    here.delete(next(name for name in names(here) if name.endswith("lease")))
    with pytest.raises(gpubufd.Stale, match="'x' is not whole: .*publish it again .*/lease"):
        gd.load("x")
    gd.publish(da.arange(6, chunks=3), "x", replace=True)
    assert gd.load("x").sum().compute() == 15


def test_no_daemon(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUBUFD_SOCKET", str(tmp_path / "none"))
    with pytest.raises(gpubufd.ConnectFailed, match="no daemon listens at"):
        gd.load("x")


def test_device_is_passed_on(here):
    with pytest.raises(gpubufd.Error, match="partition 0 of 'x', on host .*cuda:0"):
        gd.publish(da.ones(3), "x", device="cuda:0")
    assert names(here) == []


# ---- a cluster ----


class Cluster:
    """A scheduler in this process; workers in processes of their own, each told of one daemon."""

    def __init__(self, directory):
        self.directory = directory
        self.daemons = {}
        self.workers = {}
        # An idle worker would take tasks over from others: right, but not the same every time.
        with dask.config.set({"distributed.scheduler.work-stealing": False}):
            self.scheduler = distributed.LocalCluster(
                n_workers=0, dashboard_address=None, host="127.0.0.1"
            )
        self.client = distributed.Client(self.scheduler, set_as_default=False)
        self.address = self.scheduler.scheduler_address

    def start_daemon(self, name):
        directory = os.path.join(self.directory, name)
        os.mkdir(directory)
        self.daemons[name] = Daemon(directory, device="host:256M")
        return self.daemons[name]

    def environment(self, socket):
        path = [str(PACKAGE), str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH")]
        return dict(os.environ, GPUBUFD_SOCKET=socket, PYTHONPATH=os.pathsep.join(filter(None, path)))

    def start_workers(self, **daemons):
        """Workers by name, each with the daemon of a name (None: none)."""
        for name, daemon in daemons.items():
            socket = self.daemons[daemon].path if daemon else os.path.join(self.directory, "none")
            with open(os.path.join(self.directory, f"{name}.log"), "wb") as log:
                self.workers[name] = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_worker", self.address,
                     "--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", name,
                     "--local-directory", self.directory],
                    env=self.environment(socket), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )
        wait_for(lambda: set(daemons) <= set(self.names()), lambda: f"workers do not come: {self.logs()}")

    def logs(self):
        texts = []
        for name in self.workers:
            with open(os.path.join(self.directory, f"{name}.log"), errors="replace") as file:
                texts.append(file.read()[-1500:])
        return "\n".join(texts)

    def names(self):
        """Addresses by name of the workers that the scheduler knows."""
        known = self.client.scheduler_info()["workers"]
        return {worker["name"]: address for address, worker in known.items()}

    def pid(self, *names):
        return {self.workers[name].pid for name in names}

    def end_worker(self, name, how=signal.SIGKILL):
        self.workers[name].send_signal(how)
        self.workers.pop(name).wait(DEADLINE)
        wait_for(lambda: name not in self.names(), f"the scheduler still knows {name}")

    def compute(self, what):
        return self.outcome(what, lambda future: future.result(timeout=DEADLINE))

    def error(self, what):
        return self.outcome(what, lambda future: future.exception(timeout=2 * DEADLINE))

    def outcome(self, what, ask):
        """For as long as this client knows the outcome, it is that of the next compute(), too."""
        future = self.client.compute(what)
        try:
            return ask(future)
        finally:
            future.release()
            wait_for(lambda: future.key not in self.client.futures, "Dask does not forget what is released")

    def leases(self, daemon):
        """{(pid, number of a partition)} of the leases that a daemon's workers have."""
        with gpubufd.connect(self.daemons[daemon].path) as client:
            return {(lease["pid"], int(lease["name"][-5:])) for lease in client.leases()
                    if lease["name"][-5:].isdigit()}

    def list(self, daemon):
        with gpubufd.connect(self.daemons[daemon].path) as client:
            return names(client)

    def manifest(self, name, daemon="a"):
        with gpubufd.connect(self.daemons[daemon].path) as client:
            return json.loads(client.get(name).tobytes())

    def end(self):
        self.client.close()
        for worker in self.workers.values():
            worker.terminate()
        for worker in self.workers.values():
            try:
                worker.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.scheduler.close()


@contextlib.contextmanager
def running(**workers):
    """A cluster: workers by name, each with the daemon of a name, which is started."""
    directory = tempfile.mkdtemp(prefix="gpubuf-dask-")
    one = Cluster(directory)
    try:
        for name in sorted(set(workers.values())):
            one.start_daemon(name)
        one.start_workers(**workers)
        yield one
    finally:
        for worker in one.workers.values():
            worker.kill()
            worker.wait()
        for daemon in one.daemons.values():
            daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def whole_cluster(request):
    with running(a1="a", a2="a", b1="b") as cluster:
        yield cluster
        cluster.end()
        if not getattr(request.node, "any_failed", False):
            for daemon in cluster.daemons.values():
                daemon.check_no_leaks()
                daemon.stop()


@pytest.fixture
def cluster(whole_cluster, monkeypatch, tmp_path):
    """The cluster; this process has no daemon of its own. Nothing may be left in the daemons."""
    monkeypatch.setenv("GPUBUFD_SOCKET", str(tmp_path / "none"))
    yield whole_cluster
    for name in "ab":
        for one in {n.partition("/")[0] for n in whole_cluster.list(name)}:
            gd.delete(one, client=whole_cluster.client, missing_ok=True)
    gc.collect()
    wait_for(lambda: not any(whole_cluster.list(name) for name in "ab"),
             lambda: f"left: {[whole_cluster.list(name) for name in 'ab']}")


def spread(cluster, frame, npartitions=6):
    """A frame whose partitions lie on b1 and on a1, a2, in turn."""
    where = cluster.names()
    ddf = dd.from_pandas(frame, npartitions=npartitions)
    turns = [[where["b1"]], [where["a1"]], [where["b1"]], [where["a2"]]]
    parts = [
        cluster.client.persist(part, workers=turns[i % 4], allow_other_workers=False)
        for i, part in enumerate(ddf.to_delayed())
    ]
    with cluster.client.as_current():
        distributed.wait(parts, timeout=DEADLINE)
    return dd.from_delayed(parts, meta=ddf._meta, divisions=ddf.divisions, verify_meta=False)


def test_partitions_stay_where_they_are(cluster):
    ddf = spread(cluster, sample())
    gd.publish(ddf, "x", client=cluster.client)
    manifest = cluster.manifest("x")
    assert manifest == cluster.manifest("x", "b")
    parts = {daemon: {int(name[-5:]) for name in cluster.list(daemon) if name[-5:].isdigit()}
             for daemon in "ab"}
    assert parts == {"a": {1, 3, 5}, "b": {0, 2, 4}}

    back = gd.load("x", client=cluster.client)
    assert back.divisions == ddf.divisions
    assert cluster.leases("a") == cluster.leases("b") == set(), "nothing is read yet"
    assert_same(cluster.compute(back), sample())

    # A frame over shared memory has a lease: each partition's is of a worker beside its daemon.
    kept = cluster.client.persist(back[["int", "float"]])
    with cluster.client.as_current():
        distributed.wait(kept, timeout=DEADLINE)
    beside_a, beside_b = cluster.leases("a"), cluster.leases("b")
    assert {number for _, number in beside_a} == {1, 3, 5}
    assert {number for _, number in beside_b} == {0, 2, 4}
    assert {pid for pid, _ in beside_a} <= cluster.pid("a1", "a2")
    assert {pid for pid, _ in beside_b} == cluster.pid("b1")
    del kept, back
    gc.collect()
    wait_for(lambda: not (cluster.leases("a") | cluster.leases("b")), "leases of what nobody has")


def test_both_workers_of_a_daemon_are_local(cluster):
    """Each of two workers reads a partition that the other put."""
    where = cluster.names()
    gd.publish(spread(cluster, sample()), "x", client=cluster.client)
    back = gd.load("x", client=cluster.client)[["int"]]
    for worker, number in (("a1", 3), ("a2", 1)):
        future = cluster.client.compute(back.partitions[number], workers=[where[worker]],
                                        allow_other_workers=False)
        assert_same(future.result(DEADLINE), sample()[["int"]].iloc[number * 4 : number * 4 + 4])
        assert cluster.leases("a") == {(cluster.workers[worker].pid, number)}
        del future
        wait_for(lambda: not cluster.leases("a"), "leases of what nobody has")


def sent(cluster, *names):
    """The number of results that workers have sent to others; one message may have several."""
    where = cluster.names()
    counts = cluster.client.run(lambda dask_worker: sum(len(one["keys"]) for one in dask_worker.transfer_outgoing_log),
                                workers=[where[name] for name in names])
    return sum(counts.values())


def test_what_is_elsewhere_comes_by_dask(cluster):
    where = cluster.names()
    gd.publish(spread(cluster, sample()), "x", client=cluster.client)
    back = gd.load("x", client=cluster.client)

    # Everything is wanted on b1: its own three partitions it opens, the others come from beside a.
    before = sent(cluster, "a1", "a2")
    kept = cluster.client.persist(back[["int"]], workers=[where["b1"]], allow_other_workers=False)
    with cluster.client.as_current():
        distributed.wait(kept, timeout=DEADLINE)
    assert cluster.leases("b") == {(pid, number) for pid in cluster.pid("b1") for number in (0, 2, 4)}
    wait_for(lambda: sent(cluster, "a1", "a2") - before >= 3, "not by Dask")  # noted once the other has answered
    wait_for(lambda: not cluster.leases("a"), "a lease of what has been sent")
    assert_same(cluster.compute(kept), sample()[["int"]])

    # A computed partition is fetched by a task elsewhere, as any result.
    part = cluster.client.compute(back.partitions[1])
    length = cluster.client.submit(lambda p: (len(p), os.getpid()), part, workers=[where["b1"]])
    assert length.result(DEADLINE) == (4, cluster.workers["b1"].pid)


def test_replace_on_a_cluster(cluster):
    gd.publish(spread(cluster, sample()), "x", client=cluster.client)
    old = gd.load("x", client=cluster.client)
    fewer = dd.from_pandas(sample().iloc[:4], npartitions=1)
    gd.publish(fewer, "x", client=cluster.client, replace=True)
    assert cluster.manifest("x") == cluster.manifest("x", "b")
    assert cluster.manifest("x")["generation"] == 2
    assert len(cluster.compute(gd.load("x", client=cluster.client))) == 4
    assert_same(cluster.compute(old), sample())
    del old
    gc.collect()
    left = 2 * (1 + whole(0)) + 1
    wait_for(lambda: len(cluster.list("a") + cluster.list("b")) == left, "the old ones stay")
    gd.delete("x", client=cluster.client)
    with pytest.raises(KeyError):
        gd.load("x", client=cluster.client)


def test_list_and_progress_on_a_cluster(cluster):
    seen = []
    told = gd.publish(spread(cluster, sample()), "x", client=cluster.client,
                      progress=lambda *counts: seen.append(counts))
    assert seen[0] == (0, 6) and seen[-1] == (6, 6) and seen == sorted(set(seen))
    where = cluster.names()
    assert (told.partitions, told.rows, told.unreachable) == (6, ROWS, 0)
    assert told.workers == tuple(sorted(where[name] for name in ("a1", "a2", "b1")))
    on_b = gd.publish(spread(cluster, sample()).partitions[[0, 2]], "y", client=cluster.client)
    assert on_b.workers == (where["b1"],), "b1 alone has a daemon with its partitions"
    assert gd.list(client=cluster.client) == [told, on_b]
    assert gd.list("y", client=cluster.client) == [on_b]


def test_a_failed_publish_on_a_cluster(cluster):
    ddf = spread(cluster, sample()[["int", "text"]])
    with pytest.raises(TypeError, match="partition [1-5] of 'x', on host .*column 'text'"):
        gd.publish(ddf.map_partitions(broken, meta=ddf._meta), "x", client=cluster.client)
    assert wait_for(lambda: cluster.list("a") + cluster.list("b") == [], "something is left")


def test_a_publisher_that_is_killed(cluster, tmp_path):
    """Its partitions go when the scheduler has noticed."""
    gate = tmp_path / "gate"
    code = f"""
import os, time, dask, distributed, gpubufd.dask
import dask.array as da

def block(block_info=None):
    import os, time
    while block_info[None]["chunk-location"][0] == 5 and not os.path.exists({str(gate)!r}):
        time.sleep(0.01)
    return __import__("numpy").ones(1)

with distributed.Client({cluster.address!r}):
    gpubufd.dask.publish(da.map_blocks(block, chunks=((1,) * 6,), dtype="f8"), "x")
"""
    publisher = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], env=cluster.environment("none"),
        stdin=subprocess.DEVNULL,
    )
    try:
        def partitions():
            return [name for name in cluster.list("a") + cluster.list("b") if name[-5:].isdigit()]

        wait_for(lambda: len(partitions()) > 1, "no partitions come")
    finally:
        publisher.kill()
        publisher.wait()
    gate.touch()
    assert wait_for(lambda: cluster.list("a") + cluster.list("b") == [], "something is left")


def test_two_publishers_on_a_cluster(cluster):
    """Whoever is last, all daemons agree, and what they agree on is whole."""
    errors = []

    def publish(first):
        try:
            with distributed.Client(cluster.address, set_as_default=False) as client:
                for k in range(3):
                    gd.publish(da.full(6, first + k, chunks=1), "x", client=client, replace=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert errors == []
    assert cluster.manifest("x") == cluster.manifest("x", "b")
    assert len(set(cluster.compute(gd.load("x", client=cluster.client)).tolist())) == 1


def test_workers_and_daemons_that_end(cluster):
    cluster.start_daemon("c")
    try:
        cluster.start_workers(c1="c")
        where = cluster.names()
        ddf = dd.from_pandas(sample(), npartitions=4)
        parts = [cluster.client.persist(part, workers=[where[name]])
                 for name, part in zip(("a1", "b1", "c1", "c1"), ddf.to_delayed())]
        with cluster.client.as_current():
            distributed.wait(parts, timeout=DEADLINE)
        gd.publish(dd.from_delayed(parts, meta=ddf._meta, verify_meta=False), "x", client=cluster.client)
        back = gd.load("x", client=cluster.client)

        cluster.end_worker("c1")  # the daemon lives on, with nobody beside it
        host = _dask_places.host_name()
        ended = rf"partition [23] of 'x' \(x/dask-\w+/0000[23]\), on host '{host}': its daemon .* has ended"
        failed = cluster.error(back)
        assert isinstance(failed, gpubufd.NotFound) and re.match(ended, str(failed)), failed
        with pytest.raises(gpubufd.NotFound, match=f"partition 2, 3 of 'x': .* of host '{host}'. No worker .*"
                           " start a worker on that host"):
            gd.load("x", client=cluster.client)
        listed, = gd.list(client=cluster.client)
        assert (listed.name, listed.partitions, listed.unreachable, listed.hosts) == ("x", 4, 2, (host,))

        cluster.start_workers(c2="c")  # another worker beside it: all is well again
        assert_same(cluster.compute(gd.load("x", client=cluster.client)), sample())
        assert_same(cluster.compute(back), sample())

        cluster.daemons["c"].kill()  # and now the daemon itself
        failed = cluster.error(back)
        assert isinstance(failed, gpubufd.NotFound) and re.match(ended, str(failed)), failed
        with pytest.raises(gpubufd.NotFound, match="partition 2, 3 of 'x'"):
            gd.load("x", client=cluster.client)
        assert_same(cluster.compute(back.partitions[:2]), sample().iloc[:12].asfreq(None))
    finally:
        for name in ("c1", "c2"):
            if name in cluster.workers:
                cluster.end_worker(name)
        cluster.daemons.pop("c").kill()


def test_workers_without_a_daemon(cluster):
    """They make partitions for others to put, and read what others open."""
    cluster.start_workers(n1=None)
    try:
        gd.publish(dd.from_pandas(sample(), npartitions=6), "x", client=cluster.client)
        back = gd.load("x", client=cluster.client)
        total = cluster.client.compute(back["int"].sum(), workers=[cluster.names()["n1"]],
                                       allow_other_workers=False)
        assert total.result(DEADLINE) == sum(range(ROWS))
        only = _dask_places.Cluster(cluster.client)
        only.client = type("OneWorker", (), {
            "run": cluster.client.run, "nthreads": lambda self: [cluster.names()["n1"]]})()
        with pytest.raises(gpubufd.ConnectFailed, match="no worker reaches a daemon; tcp:.*no daemon listens"):
            only.survey()
    finally:
        cluster.end_worker("n1")


def test_the_current_client_is_found(cluster):
    array = da.arange(8, chunks=2)
    with cluster.client.as_current(), dask.config.set(scheduler="dask.distributed"):
        gd.publish(array, "x")
        np.testing.assert_array_equal(gd.load("x").compute(), np.arange(8))
        with dask.config.set(scheduler="sync"), pytest.raises(gpubufd.ConnectFailed):
            gd.load("x")
        gd.delete("x")


# ---- what people see first ----


def test_example(cluster):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", EXAMPLE, cluster.address], env=cluster.environment("none"),
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "partitions published" in done.stdout and "2012" in done.stdout, done.stdout


def test_guide(here, run):
    text = (ROOT / "docs" / "PYTHON-CLUSTER.md").read_text()
    blocks = text.split("```python dask\n")[1:]
    assert blocks
    run("import warnings; warnings.simplefilter('ignore')\n" + "".join(b.split("```")[0] for b in blocks))


def test_the_types_may_lie_on_a_gpu(gpu_run):
    """As where Node published: its empty table is no rows of a partition, where that lies."""
    gpu_run("""
        import dask, pandas as pd, dask.dataframe as dd, gpubufd.dask as gd
        dask.config.set({"dataframe.convert-string": False, "scheduler": "synchronous"})
        frame = pd.DataFrame({"n": [1, 2, 3], "text": ["a", None, "c"]})
        gd.publish(dd.from_pandas(frame, npartitions=1), "d")
        (name,) = [name for name in client.keys() if name.endswith("/schema")]
        client.put(name, client.get(name), device="cuda:0", replace=True)
        assert gd.load("d").compute().equals(frame)
    """)
