"""segments, sessions, metrics: the methods for observers."""

import os

import pytest

from peer import RpcError
from restarts import register


def all_of(peer, what, pages=1):
    """Every entry, in that many pages."""
    entries, cursor = [], {}
    while True:
        answer = peer.call(what, **cursor)
        assert 0 < len(answer[what]) <= 256
        entries += answer[what]
        pages -= 1
        assert ("cursor" in answer) == (pages > 0)
        if "cursor" not in answer:
            return entries
        cursor = {"cursor": answer["cursor"]}


def test_segments(daemon, peer):
    peer.put("a", b"1" * 1000)
    peer.put("b", b"2" * 1000, mode="0604")
    segments, (device,) = all_of(peer, "segments"), peer.call("stats")["devices"]
    assert len(segments) == device["segments"] == 2
    assert sum(s["used"] for s in segments) == device["used"]
    assert {(s["domain"]["uid"], s["domain"]["mode"]) for s in segments} == {
        (os.getuid(), "0600"), (os.getuid(), "0604")}
    assert {s["state"] for s in segments} == {"used"} and {s["device"] for s in segments} == {
        device["id"]}


def test_pages_of_segments(peer):
    for i in range(300):
        register(peer, f"registered/{i}", b"x")
    segments = all_of(peer, "segments", pages=2)
    assert len({s["id"] for s in segments}) == len(segments) == 300


def test_a_segment_that_is_no_more_is_a_stale_cursor(daemon, peer):
    with pytest.raises(RpcError) as refused:
        peer.call("segments", cursor=4711)
    assert refused.value.kind == "stale"


def test_sessions(daemon, peer):
    others = [daemon.connect() for _ in range(5)]
    others[3].call("hello", protocol=1, client="a \"client\"")
    others[3].put("a", b"1" * 1000, keep=True)
    sessions = all_of(peer, "sessions")
    assert len(sessions) == peer.call("stats")["sessions"] == 6
    (named,) = [s for s in sessions if s["client"]]
    assert named["client"] == 'a "client"' and named["pid"] == os.getpid()
    assert named["uid"] == os.getuid() and named["leases"] == 1 and named["bytes"] == 1000
    assert named["mapped_bytes"] == all_of(peer, "segments")[0]["bytes"]


def test_pages_of_sessions(daemon, peer):
    others = [daemon.connect() for _ in range(256)]
    others[-1].call("stats")  # it comes last
    sessions = all_of(peer, "sessions", pages=2)
    assert len({s["session"] for s in sessions}) == len(sessions) == 1 + len(others)


def families(peer):
    told = peer.call("stats", families=True)["families"]
    assert len({family["name"] for family in told}) == len(told)
    return {family["name"]: family for family in told}


def value(family, **labels):
    (found,) = [s["value"] for s in family["samples"] if s.get("labels", {}) == labels]
    return found


def test_metrics(peer):
    peer.put("a")
    peer.error("not_found", "open", name="missing")
    told, (device,) = families(peer), peer.call("stats")["devices"]
    assert {f["type"] for f in told.values()} == {"gauge", "counter", "histogram"}
    assert value(told["gpubufd_objects"]) == 1 and value(told["gpubufd_events_total"]) == 1
    assert value(told["gpubufd_device_free_bytes"], device=device["id"]) == device["free"]
    assert value(told["gpubufd_requests_total"], method="open", result="not_found") == 1


def test_the_histograms_of_metrics(peer):
    for i in range(20):
        peer.put(f"n/{i}")
    samples = families(peer)["gpubufd_request_duration_seconds"]["samples"]
    (create,) = [s for s in samples if s["labels"] == {"method": "create"}]
    counts = list(create["buckets"].values())
    assert list(create["buckets"])[-1] == "+Inf" and counts == sorted(counts)
    assert counts[-1] == create["count"] == 20 and 0 < create["sum"] < 20
