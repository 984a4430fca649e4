"""Rules 6 and 7: waits are bounded, and so is everything else."""

import contextlib
import os
import subprocess
import time

import pytest

from conftest import needs, runs_as
from ctl import GPUBUFCTL
from peer import DEADLINE, Closed, bytes_layout


def limit(peer, name, method, /, **params):
    """The call meets the limit, says its name, and the session lives on."""
    error = peer.error("limit", method, **params)
    assert error.data["limit"] == name
    assert peer.call("stats")
    return error


@pytest.fixture
def limited(daemon_factory):
    """limited(name=value, …): a daemon with those limits."""

    def start(**limits):
        options = []
        for name, value in limits.items():
            options += ["--limit", f"{name}={value}"]
        return daemon_factory(*options)

    return start


# RELIABILITY.md: Hostile clients 19
def test_watches(daemon, peer):
    watches = [peer.call("watch", prefix=str(i))["watch"] for i in range(64)]
    error = limit(peer, "session_watches", "watch")
    assert "64" in error.message
    peer.call("unwatch", watch=watches[0])
    peer.call("watch")
    assert daemon.connect().call("watch")


def test_waits(daemon, peer):
    ids = [peer.request("open", name=f"w/{i}", wait_ms=60000) for i in range(256)]
    limit(peer, "session_waits", "open", name="one/more", wait_ms=60000)
    daemon.connect().put("w/17")  # on a GPU it may have to wait itself
    assert peer.reply(ids[17])["lease"]
    other = daemon.connect()
    ident = other.request("open", name="w/other", wait_ms=60000)
    assert other.call("stats") and ident not in other.replies


def test_unsealed(limited):
    daemon = limited(session_unsealed=20)
    peer = daemon.connect()
    leases = [peer.call("create", name=f"u/{i}", layout=bytes_layout(1))["lease"]
              for i in range(20)]
    error = limit(peer, "session_unsealed", "create", name="more", layout=bytes_layout(1))
    assert "20" in error.message
    peer.call("seal", lease=leases[0])
    peer.call("release", lease=leases[1])
    for name in ("v", "w"):
        peer.call("create", name=name, layout=bytes_layout(1))
    limit(peer, "session_unsealed", "create", name="more", layout=bytes_layout(1))
    assert daemon.connect().call("create", name="more", layout=bytes_layout(1))


# RELIABILITY.md: Hostile clients 19
def test_leases(limited):
    daemon = limited(session_leases=10)
    daemon.connect().put("a")
    peer = daemon.connect()
    leases = [peer.open_object("a").lease for _ in range(10)]
    limit(peer, "session_leases", "open", name="a")
    limit(peer, "session_leases", "create", name="b", layout=bytes_layout(1))
    peer.call("release", lease=leases[0])
    peer.open_object("a")
    # Of many: those that still may be opened are, the others say why not.
    peer.call("release", leases=leases[1:4])
    entries = peer.call("open", names=["a"] * 5)["objects"]
    assert ["error" in e for e in entries] == [False] * 3 + [True] * 2
    assert {e["error"]["data"]["limit"] for e in entries[3:]} == {"session_leases"}


def test_objects_of_a_user(limited):
    daemon = limited(user_objects=10)
    peer = daemon.connect()
    for i in range(10):
        daemon.connect().put(f"o/{i}")
    limit(peer, "user_objects", "create", name="more", layout=bytes_layout(1))
    limit(peer, "user_objects", "alias", name="more", of="o/1")
    peer.call("delete", name="o/3")
    assert peer.put("more")


@pytest.mark.root
def test_a_user_at_the_limit_is_not_in_anothers_way(limited):
    daemon = limited(user_objects=3, user_sessions=3, user_segments=3)
    one = daemon.connect_as(1001, 1001)
    for i in range(3):
        one.put(f"o/{i}")
    limit(one, "user_objects", "create", name="more", layout=bytes_layout(1))
    assert daemon.connect_as(1002, 1002).put("theirs")


def test_segments_of_a_user(limited):
    daemon = limited(user_segments=3)
    peer = daemon.connect()
    for mode in ("0600", "0640", "0644"):
        peer.put(mode, mode=mode)
    limit(peer, "user_segments", "create", name="more", layout=bytes_layout(1), mode="0666")
    assert peer.put("fits", mode="0644")


@pytest.mark.root
@pytest.mark.parametrize("name", ["sessions", "user_sessions"])
# RELIABILITY.md: Hostile clients 9, 10
def test_a_refused_session_is_told_why(limited, name):
    """Each one, by one line; the log has one line a minute of each user."""
    daemon = limited(**{name: 3})
    os.chmod(daemon.path, 0o666)
    held = [daemon.connect_as(1001, 1001) for _ in range(3)]
    assert all(peer.call("stats") for peer in held)
    for _ in range(30):
        peer = daemon.connect_as(1001, 1001)
        message = peer.recv_message()
        assert message["id"] is None and message["error"]["data"]["kind"] == "limit", message
        assert message["error"]["data"]["limit"] == name
        peer.expect_closed()
        peer.close()
    assert all(peer.call("stats") for peer in held)
    needs("gpubufctl")
    program = runs_as(1001, GPUBUFCTL, daemon.directory)
    got = subprocess.run([program, "--socket", daemon.path, "ls"], capture_output=True, text=True,
                         timeout=DEADLINE, user=1001, group=1001, check=False)
    assert got.returncode != 0 and f"the limit {name} is 3" in got.stderr, got
    lines = [line for line in daemon.stderr().splitlines() if "session turned away" in line]
    assert len(lines) == 1 and "uid=1001" in lines[0], lines
    held[1].close()
    assert daemon.connect_as(1001, 1001).call("stats"), "there is room again"
    daemon.close_peers()


def broken_lines(daemon, peer):
    for _ in range(200):
        peer.send_raw(b"}{\n")
        assert peer.recv_message()["error"]["data"]["kind"] == "parse"


def lacking_descriptors(daemon, peer):
    for _ in range(50):
        with daemon.connect_as(1001, 1001) as other:
            other.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"stats","fds":3}\n')
            with contextlib.suppress(OSError):
                other.expect_closed()


def impossible_sizes(daemon, peer):
    for _ in range(200):
        assert peer.error("no_space", "create", name="x", layout=bytes_layout(1 << 50))


def beyond_the_quota(daemon, peer):
    for name in ("one", "two", "three"):
        peer.put(name, b"1")
    for _ in range(200):
        peer.error("limit", "create", name="four", layout=bytes_layout(1))


def expiries(daemon, peer):
    for _ in range(100):
        peer.put("one", b"1", replace=True, ttl_ms=1)


def timeouts(daemon, peer):
    for _ in range(100):
        peer.error("timeout", "open", name="nobody's", wait_ms=1)


@pytest.mark.root
@pytest.mark.parametrize("flood", [broken_lines, lacking_descriptors, impossible_sizes, beyond_the_quota, expiries,
                                   timeouts])
# RELIABILITY.md: Hostile clients 10
def test_nobody_fills_the_log(daemon_factory, flood):
    daemon = daemon_factory("--log-level", "info", "--quota", "1001:objects=3")
    os.chmod(daemon.path, 0o666)
    with daemon.connect_as(1001, 1001) as peer:
        peer.call("stats")
        before = daemon.stderr()
        flood(daemon, peer)
        peer.call("stats")
    assert daemon.stderr().count("\n") - before.count("\n") <= 1, daemon.stderr()[len(before):]


# RELIABILITY.md: Hostile clients 13
def test_a_reader_that_never_reads(limited):
    """Past the output limit it is closed; the others never notice."""
    daemon = limited(output_bytes="256K")
    lazy, peer = daemon.connect(), daemon.connect()
    session = lazy.call("hello", protocol=1)["session"]
    for i in range(64):
        lazy.request("watch", kinds=["sealed", "deleted"])
    lazy.put("mark")
    lazy.open_object("mark")
    assert [e["session"] for e in peer.call("leases")["leases"]] == [session]
    end = time.monotonic() + DEADLINE
    turns = 0
    while peer.call("leases")["leases"]:
        peer.put("flood", b"x", replace=True)
        turns += 1
        assert time.monotonic() < end and turns < 20000
    messages = lazy.expect_closed_anyhow()
    assert 0 < messages
    assert peer.call("stats")


# RELIABILITY.md: Time 4
def test_a_half_sent_line_is_closed_in_time(limited):
    daemon = limited(half_line_ms=100)
    half, whole = daemon.connect(), daemon.connect()
    assert whole.call("stats")
    start = time.monotonic()
    half.send_raw(b'{"jsonrpc"')
    half.expect_closed_anyhow()
    assert time.monotonic() - start >= 0.09
    assert whole.call("stats"), "an idle session without half a line is left alone"


# RELIABILITY.md: Time 4
def test_a_line_that_trickles_is_closed_too(limited):
    """The clock starts with the line's first byte, not with its latest."""
    daemon = limited(half_line_ms=200)
    peer = daemon.connect()
    start = time.monotonic()
    try:
        while time.monotonic() - start < DEADLINE:
            peer.send_raw(b" ")
            time.sleep(0.01)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert time.monotonic() - start < DEADLINE


def test_each_line_has_its_own_time(limited):
    """A busy session whose lines always come in halves is not closed."""
    daemon = limited(half_line_ms=2000)
    line = b'{"jsonrpc":"2.0","id":1,"method":"stats"}\n'

    def stays():
        """Whether it is served for longer than a line may take; None where the test itself was too slow."""
        with daemon.connect() as peer:
            start = last = time.monotonic()
            slowest = 0
            try:
                peer.send_raw(line[:10])
                while time.monotonic() - start < 2.5:
                    peer.send_raw(line[10:] + line[:10])
                    slowest, last = max(slowest, time.monotonic() - last), time.monotonic()
                    assert "result" in peer.recv_message()
                    time.sleep(0.02)
                peer.send_raw(line[10:])
                return "result" in peer.recv_message()
            except (Closed, OSError):
                return False if max(slowest, time.monotonic() - last) < 1.5 else None

    assert next(result for result in (stays() for _ in range(20)) if result is not None)
