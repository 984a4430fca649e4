"""hello: who the daemon is, its devices, its limits."""

import pathlib
import re
import resource

import pytest

import device as test_device

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_result(peer):
    result = peer.call("hello", protocol=1, client="a test")
    assert result["protocol"] == 1
    assert isinstance(result["server"], str) and result["server"]
    assert re.fullmatch(r"[0-9a-f]{8,}", result["instance"])
    assert isinstance(result["session"], int) and result["session"] > 0
    assert "resumed" not in result


def test_devices(peer):
    (device,) = peer.call("hello", protocol=1)["devices"]
    assert device["id"] == test_device.ID
    assert device["capacity"] == 64 << 20
    assert device["used"] == 0
    assert device["share"] == test_device.SHARES
    assert device["default"] is True
    assert isinstance(device["name"], str) and device["name"]


def test_limits_are_those_of_the_header(peer):
    text = (ROOT / "proto/base/limits.h").read_text()
    header = {n: int(v) for n, v in re.findall(r"^\s+X\((\w+), (\d+),", text, re.M)}
    assert len(header) > 10
    limits = peer.call("hello", protocol=1)["limits"]
    by_descriptors = {"sessions", "user_sessions", "user_segments", "held_fds"}
    assert {n: v for n, v in limits.items() if n not in by_descriptors} == {
        n: v for n, v in header.items() if n not in by_descriptors}
    assert all(0 < limits[n] <= header[n] for n in by_descriptors)


@pytest.mark.parametrize("files, sessions, of_a_user, held", [(1024, 896, 448, 64), (4096, 3776, 1888, 256)])
def test_limits_follow_from_the_descriptors(daemon_factory, files, sessions, of_a_user, held):
    """A sixteenth and some are the daemon's own, and a quarter of the rest is for others; what was set stays."""
    daemon = daemon_factory("--limit", "user_segments=5000",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    limits = daemon.connect().call("hello", protocol=1)["limits"]
    assert (limits["sessions"], limits["user_sessions"], limits["held_fds"]) == (sessions, of_a_user, held)
    assert limits["user_segments"] == 5000
    assert f"descriptors limit={files} users={sessions} in_flight={files // 4} kept=0" in daemon.stderr()


def test_another_instance_after_a_restart(daemon_factory):
    one = daemon_factory().connect().call("hello", protocol=1)
    two = daemon_factory().connect().call("hello", protocol=1)
    assert one["instance"] != two["instance"]


def test_another_protocol_is_refused(peer):
    for protocol in (0, 2, 1 << 40):
        error = peer.error(("invalid", "unsupported"), "hello", protocol=protocol)
        assert "protocol" in error.message and "1" in error.message
    assert peer.call("hello", protocol=1), "one may try again with what is spoken here"


def test_it_comes_first_and_once(peer):
    peer.call("hello", protocol=1)
    assert "hello" in peer.error("busy", "hello", protocol=1).message


def test_not_after_other_calls(peer):
    peer.call("stats")
    assert "hello" in peer.error("busy", "hello", protocol=1).message


def test_client_name_is_told(daemon, peer):
    peer.put("a")
    holder = daemon.connect()
    session = holder.call("hello", protocol=1, client="größe/7")["session"]
    holder.call("open", name="a")
    (lease,) = peer.call("leases", name="a")["leases"]
    assert lease["client"] == "größe/7" and lease["session"] == session


@pytest.mark.parametrize("name, told", [
    ("a\x1b[31mb\nc\x7f", "a?[31mb?c?"), ("\x80x\x9b31m\xa0", "?x?31m\xa0"),
    ("a\u202egpj.exe\u202c", "a?gpj.exe?"), ("\u2066\u2069\u200e\u200f\u061c\u2028", "??????"),
    ("a\u200bb\u00adc\ufeffd\U000e0041e", "a?b?c?d?e"),
    ("مرحبا שלום 東京 😀 é", "مرحبا שלום 東京 😀 é"), ("‐—…€", "‐—…€"),
])
def test_client_names_deceive_nobody(daemon, peer, name, told):
    """Characters that move the cursor or turn the direction become question marks."""
    peer.call("hello", protocol=1, client=name)
    assert [s["client"] for s in daemon.connect().call("sessions")["sessions"] if s["client"]] == [told]


def test_resume_of_another_instance_gives_nothing_back(peer):
    """Leases that this daemon never had cannot be resumed: null for each."""
    objects = [{"name": "a", "version": 1}, {"name": "b", "version": 2}]
    result = peer.call("hello", protocol=1, resume={"instance": "00ff" * 4, "objects": objects})
    assert result["resumed"] == [None, None]


def test_bad_resume(peer):
    for resume in ({}, {"instance": 7, "objects": []},
                   {"instance": "00", "objects": {}}, {"instance": "00", "objects": [{}]}):
        error = peer.error("invalid", "hello", protocol=1, resume=resume)
        assert error.message.startswith("params.resume")


def test_a_resume_that_is_refused_changes_nothing(daemon, peer):
    """Neither what was before nor what was granted of it so far: it is read as a whole first."""
    version = peer.put("a")
    again = daemon.connect()
    instance = again.call("hello", protocol=1, client="before")["instance"]
    lease = again.call("open", name="a")["lease"]
    error = again.error("invalid", "hello", protocol=1, client="after", resume={
        "instance": instance, "objects": [{"name": "a", "version": version}, {"name": "a"}]})
    assert error.message.startswith("params.resume.objects[1]")
    (held,) = peer.call("leases", name="a")["leases"]
    assert held["lease"] == lease and held["client"] == "before"
    assert again.call("release", lease=lease) == {}
    assert peer.call("leases")["leases"] == []
