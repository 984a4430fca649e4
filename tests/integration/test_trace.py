"""--trace: Chrome's trace format, at any moment, after any end; what is in it is true."""

import json
import os
import re
import shutil
import subprocess

import pytest

from device import BUILD
from gateways import flood
from http_client import refusal
from peer import DEADLINE, wait_until


def load(path):
    """The array as viewers read it: its end may be missing."""
    with open(path) as file:
        text = file.read()
    text = text.rstrip() or "["  # nothing has been written yet
    if not text.endswith("]"):
        text = text.removesuffix(",") + "]"
    return json.loads(text)


def check(events):
    """Requirements of the format for each kind of event."""
    open_ones = {}
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int), event
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["args"]["name"]
            continue
        assert event["ts"] >= 0, event
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
        elif event["ph"] == "b":
            assert (event["cat"], event["id"]) not in open_ones
            open_ones[event["cat"], event["id"]] = event
        elif event["ph"] == "e":
            assert open_ones.pop((event["cat"], event["id"]))["ts"] <= event["ts"]
        else:
            assert event["ph"] == "i", event
    assert not open_ones
    return events


@pytest.fixture
def traced(daemon_factory, directory):
    path = os.path.join(directory, "trace.json")
    daemon = daemon_factory("--trace", path)
    daemon.trace = path
    return daemon


def wait_for(daemon, condition):
    wait_until(lambda: condition(load(daemon.trace)))
    return load(daemon.trace)


def requests(events, method):
    return [e for e in events if e.get("cat") == "request" and e["name"] == method]


def test_requests_and_waits(traced):
    peer, waiter = traced.connect(), traced.connect()
    hello = peer.call("hello", protocol=1, client='a "loader"\n')
    ident = waiter.request("open", name="later", wait_ms=60_000)
    peer.wait_for_stats(lambda stats: stats["methods"]["open"]["calls"] == 1)
    peer.error("not_found", "open", name="missing")
    peer.put("later")
    waiter.reply(ident)
    waited = lambda events: [e for e in events if e.get("cat") == "wait" and e["name"] == "open"]  # noqa: E731
    events = check(wait_for(traced, lambda e: len(waited(e)) == 2 and requests(e, "seal")))
    (failed,) = requests(events, "open")
    assert failed["args"] == {"result": "not_found"} and failed["tid"] == hello["session"]
    assert requests(events, "seal")[0]["args"] == {"result": "ok"}
    assert 0 < failed["dur"] < DEADLINE * 1e6
    began, ended = waited(events)
    assert (began["ph"], ended["ph"]) == ("b", "e")
    assert ended["args"] == {"session": ended["tid"], "result": "ok"}
    assert began["ts"] < failed["ts"] < ended["ts"]  # to the microsecond, as everything else
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[hello["session"]] == f'a "loader"? (session {hello["session"]}, pid {os.getpid()})'
    assert {e["pid"] for e in events} == {traced.pid}


def test_in_order_and_whole_after_a_clean_end(traced):
    """The requests of a session follow each other."""
    peer = traced.connect()
    for i in range(200):
        peer.put(f"n/{i}")
    traced.stop()
    with open(traced.trace) as file:
        events = check(json.load(file))
    assert events[-1]["name"] == "end" and events[-1]["args"] == {"dropped": 0}
    assert len(requests(events, "seal")) == 200
    tid = requests(events, "seal")[0]["tid"]
    mine = [e for e in events if e["ph"] == "X" and e["tid"] == tid]
    for one, other in zip(mine, mine[1:]):
        assert one["ts"] + one["dur"] <= other["ts"] + 0.002


def test_readable_after_a_kill(daemon_factory, directory):
    """At moments that nobody chose, in the middle of many requests."""
    for round_ in range(3):
        trace = os.path.join(directory, f"trace{round_}")
        daemon = daemon_factory("--trace", trace)
        flood(daemon.connect(), "stats", 500 * (round_ + 1))
        daemon.kill()
        assert {event["ph"] for event in load(trace)} <= {"X", "M"}


def test_moves(daemon_factory, directory):
    path = os.path.join(directory, "trace.json")
    spill = os.path.join(directory, "spill")
    os.mkdir(spill, 0o700)
    daemon = daemon_factory("--trace", path, "--tier", f"disk:256M:{spill}")
    daemon.trace = path
    peer = daemon.connect()
    capacity = peer.call("stats")["devices"][0]["capacity"]
    for i in range(4):
        peer.put(f"big/{i}", b"x" * (capacity * 2 // 5))
    peer.call("release", lease=peer.call("open", name="big/0")["lease"])
    events = check(wait_for(daemon, lambda events: any(e["name"] == "restore" for e in events)))
    moves = [e for e in events if e.get("cat") == "move" and e["ph"] == "b"]
    assert {"spill", "restore"} == {e["name"] for e in moves}
    for move in moves:
        assert move["args"]["bytes"] >= capacity * 2 // 5 and move["args"]["tier"] in ("host", "disk")


def test_a_disk_that_is_full(daemon_factory):
    """The daemon goes on; it says so once."""
    daemon = daemon_factory("--trace", "/dev/full")
    peer = daemon.connect()
    for i in range(50):
        peer.put(f"n/{i}")
    wait_until(lambda: "the trace ends here" in daemon.stderr())
    peer.put("fine")
    assert daemon.stderr().count("the trace ends here") == 1


def test_a_file_that_cannot_be_written(directory):
    assert "cannot write the trace" in refusal(directory, "--trace", "/nonexistent/trace", program="gpubufd")


def test_probes():
    """As docs/METRICS.md lists them, where the build had <sys/sdt.h>."""
    if not shutil.which("readelf") or not os.path.exists(
            "/usr/include/x86_64-linux-gnu/sys/sdt.h"):
        pytest.skip("no readelf, or no <sys/sdt.h>")
    notes = subprocess.run(["readelf", "-n", BUILD / "bin/gpubufd"], capture_output=True, text=True,
                           check=True).stdout
    there = set(re.findall(r"Provider: gpubufd\s+Name: (\w+)", notes))
    assert there == {"request", "move", "event"}
