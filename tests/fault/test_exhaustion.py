"""Descriptors, which all users of the daemon share, are not used up by one of them.

The daemon runs as a user of its own without any privilege, since the kernel grants the privileged more. User B
attacks; user A connects, creates, seals and opens, twenty times of twenty.
"""

import array
import contextlib
import fcntl
import json
import os
import resource
import select
import socket
import time

import pytest

from conftest import Daemon
from peer import DEADLINE, Closed, Peer, RpcError, bytes_layout
from restarts import Supervised

pytestmark = pytest.mark.root

OWN, A, B = 1000, 1001, 1002
MODES = [f"0{owner}{group}0" for owner in (0, 2, 4, 6) for group in (0, 2, 4, 6)]
TIMES = 20


@pytest.fixture
def limited(directory):
    """limited(1024, …): a daemon of an ordinary user that may open 1024 descriptors."""
    os.chmod(directory, 0o777)
    daemons = []

    def start(files, *options, kind=Daemon):
        daemons.append(kind(directory, options, device="host:256M", user=OWN, group=OWN, extra_groups=[],
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


def goes_well(daemon, name="a"):
    """(how often of TIMES A could connect, create, seal and open; the first failure)."""
    good, wrong = 0, None
    for i in range(TIMES):
        try:
            peer = daemon.connect_as(A, A)
            peer.put(f"{name}/{i}", b"%d" % i, mode="0600", replace=True)
            opened = peer.open_object(f"{name}/{i}", segments="all")
            good += opened.read() == b"%d" % i
            peer.close()
            daemon.peers.remove(peer)
        except (OSError, Closed, RpcError, AssertionError) as error:
            wrong = wrong or error
    return good, wrong


def sixteen_segments(daemon, uid=B):
    """Objects of a user that lie in a segment each."""
    peer = daemon.connect_as(uid, uid)
    for mode in MODES:
        peer.put(f"{uid}/{mode}", b"b", mode=mode)
    peer.close()
    daemon.peers.remove(peer)


def asking(daemon, sessions, requests, uid=B):
    """A user's sessions, as many as it may have: each opens sixteen segments again and again, and reads no reply."""
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "open",
                       "params": {"names": [f"{uid}/{mode}" for mode in MODES], "segments": "all"}}).encode() + b"\n"
    kept = []
    with contextlib.suppress(OSError):  # it has as many as it may
        for _ in range(sessions):
            kept.append(daemon.connect_as(uid, uid))
            kept[-1].socket.setblocking(False)
            kept[-1].socket.send(line * requests)
    return kept


def unread(daemon, sessions, requests):
    """The same, of B, once the daemon has begun with each."""
    kept = asking(daemon, sessions, requests)
    for peer in kept:
        wait_until_served(daemon, peer)
    return kept


def wait_until_served(daemon, peer):
    """Waits until the daemon serves no more of these requests before a reply is read."""
    stats = daemon.connect()
    before = -1
    while before != (before := stats.call("stats")["methods"]["open"]["calls"]):
        pass
    daemon.peers.remove(stats)
    stats.close()
    return peer


def nothing_is_left(daemon, peers, users=(B,)):
    for peer in peers:
        peer.close()
    with Peer(daemon.path) as peer:
        peer.wait_for_stats(lambda stats: stats["descriptors"]["in_flight"]["used"] == 0
                            and stats["sessions"] == 1)
        told = [user for user in peer.call("stats")["users"] if user["uid"] in users]
    return len(told) == len(users) and all(
        user["sessions"]["used"] == 0 and user["descriptors"]["open"] == 2 * user["segments"]["used"] for user in told)


# RELIABILITY.md: Hostile clients 6
def test_what_is_sent_and_not_received(limited):
    """Past a limit of descriptors in flight the kernel lets the daemon's user send no more, to any client."""
    daemon = limited(4096)
    sixteen_segments(daemon)
    kept = unread(daemon, 60, 14)
    assert goes_well(daemon) == (TIMES, None)
    for peer in kept[::2]:  # what such a session leaves counts, too
        peer.socket.shutdown(socket.SHUT_WR)
    kept += unread(daemon, 60, 14)
    assert goes_well(daemon) == (TIMES, None)
    assert nothing_is_left(daemon, kept)
    assert goes_well(daemon) == (TIMES, None)


# RELIABILITY.md: Hostile clients 6
def test_what_is_queued(limited):
    daemon = limited(4096)
    sixteen_segments(daemon)
    before = sum(daemon.fds().values())
    kept = unread(daemon, 60, 100)
    assert goes_well(daemon) == (TIMES, None)
    assert nothing_is_left(daemon, kept)
    assert daemon.comes_to(lambda fds: sum(fds.values()) <= before + 8)


# RELIABILITY.md: Hostile clients 11
def test_whoever_reads_late_gets_all(limited):
    """Answers that waited for their turn come, in order, and nothing is refused that fits."""
    daemon = limited(1024)
    sixteen_segments(daemon)
    kept = unread(daemon, 12, 10)
    left = {peer.socket: [peer, 10] for peer in kept}
    while left:
        readable, _, _ = select.select(list(left), [], [], DEADLINE)
        assert readable, [count for _, count in left.values()]
        for one in readable:
            peer, count = left[one]
            assert len(peer.recv_message()["_fds"]) == 16
            left[one][1] -= 1
            if count == 1:
                del left[one]
    assert nothing_is_left(daemon, kept)


@pytest.fixture
def many_files():
    """This process has more descriptors than the daemon."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(8192, before[0]), max(8192, before[1])))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def read_to_the_end(peers):
    """Everything that comes, until the daemon has ended each of the sessions."""
    poll, left = select.poll(), {peer.socket.fileno(): peer.socket for peer in peers}
    for one in left:
        poll.register(one, select.POLLIN)
    end = time.monotonic() + DEADLINE
    while left:
        assert time.monotonic() < end, len(left)
        for one, _ in poll.poll(1000):
            data, control = b"", []
            with contextlib.suppress(ConnectionResetError):
                data, control, _, _ = left[one].recvmsg(1 << 18, socket.CMSG_SPACE(253 * 4))
            for _, _, fds in control:
                for fd in array.array("i", fds):
                    os.close(fd)
            if not data:
                poll.unregister(one)
                del left[one]


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("files", [36, 48, 64])
# RELIABILITY.md: Hostile clients 6
def test_few_descriptors(limited, files):
    """However few there are: beside as many connections of one user another publishes and reads."""
    daemon = limited(files)
    assert goes_well(daemon, "alone") == (TIMES, None)
    crowd = [daemon.connect_as(B, B) for _ in range(files)]
    assert goes_well(daemon, "beside") == (TIMES, None)
    for one in crowd:
        one.close()


def test_too_few_descriptors(limited):
    """It does not start: one user would leave no other any."""
    with pytest.raises(AssertionError, match=r"it may have 24 descriptors open, and needs [34]\d at least: raise RLIMIT_NOFILE"):
        limited(24)


# RELIABILITY.md: Hostile clients 6
def test_several_users(limited):
    """Each user leaves the others a part of the remaining descriptors; sessions that hang up end."""
    daemon = limited(1024)
    users = range(B, B + 5)
    for uid in users:
        with contextlib.suppress(OSError, Closed, RpcError):  # its last ones find no descriptor left
            sixteen_segments(daemon, uid)
    kept = [peer for uid in users for peer in asking(daemon, 200, 14, uid)]
    wait_until_served(daemon, None)
    assert goes_well(daemon) == (TIMES, None)
    for peer in kept[::2]:
        with contextlib.suppress(OSError):  # it was turned away
            peer.socket.shutdown(socket.SHUT_WR)
    assert goes_well(daemon) == (TIMES, None)
    read_to_the_end(kept[::2])
    assert goes_well(daemon) == (TIMES, None)
    assert nothing_is_left(daemon, kept, users)


def memfd(count=4096):
    fd = os.memfd_create("b", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, count)
    os.fchmod(fd, 0o644)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


def register_many(daemon, most):
    """B's registered memory of a page each: how many were taken until it was refused, and why."""
    peer = daemon.connect_as(B, B)
    fd = memfd()
    try:
        for i in range(most):
            try:
                peer.call("register", [fd], name=f"r/{i}", layout={**bytes_layout(4096), "data": {"handle": 0, "offset": 0, "bytes": 4096}},
                          handles=[{"kind": "memfd", "fd": 0, "device": "host", "bytes": 4096}])
            except RpcError as error:
                return i, error
    finally:
        os.close(fd)
    return most, None


@pytest.mark.parametrize("files", [1024, 4096])
# RELIABILITY.md: Hostile clients 6
def test_registered_memory(limited, files):
    daemon = limited(files)
    taken, why = register_many(daemon, files)
    assert files / 3 < taken < files / 2
    assert (why.kind, why.data["limit"]) in [("limit", "open_files"), ("limit", "user_segments")]
    assert goes_well(daemon) == (TIMES, None)


# RELIABILITY.md: Hostile clients 7
def test_killed_beside_registered_memory(limited):
    """A daemon comes back, with A's object, even if its supervisor keeps nearly all of its descriptors."""
    daemon = limited(1024, kind=Supervised)
    with daemon.connect_as(A, A) as peer:
        peer.put("a", b"mine", mode="0600")
    taken, _ = register_many(daemon, 1024)
    assert taken > 1024 / 3
    for _ in range(3):
        daemon.crash()
        with daemon.connect_as(A, A) as peer:
            assert peer.open_object("a").read() == b"mine"
        assert goes_well(daemon) == (TIMES, None)
    with daemon.connect_as(B, B) as peer:
        assert len(peer.names("r/")) == taken


# RELIABILITY.md: Hostile clients 7
def test_killed_beside_descriptors_in_flight(limited):
    """Descriptors in flight when the daemon died stay so, and its successor knows nothing of them."""
    daemon = limited(4096, kind=Supervised)
    sixteen_segments(daemon)
    kept = []
    for _ in range(6):
        kept += unread(daemon, 60, 14)
        assert goes_well(daemon) == (TIMES, None)
        daemon.crash()
        assert goes_well(daemon) == (TIMES, None)
    assert nothing_is_left(daemon, kept)
