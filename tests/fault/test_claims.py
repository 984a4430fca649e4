"""A claim on live memory, and a part in a stream, when the daemon ends: it stays with the process that has it until that
process has ended, whatever the next daemon lacks."""

import contextlib
import errno
import os
import resource
import signal

import pytest
from child import Child
from peer import Closed, Peer, RpcError, bytes_layout, wait_until
from restarts import supervised  # noqa: F401
from test_stream import end_daemon, make, read, roster, write

pytestmark = pytest.mark.host_only("the driver's own memory does not outlive it by itself")
FOR_EVER = 1 << 40


def few_files(count):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))}


def claim(peer, name, **params):
    return peer.call("open", name=name, access="write", exclusive=True, **params)


def claimer(count, prefix="pool/"):
    """A child's work: claims as many objects as `count` says. SIGUSR1 has it come back for them after a crash."""
    def work(peer):
        told = peer.call("hello", protocol=1)
        objects = []
        for i in range(count):
            peer.call("release", lease=peer.call("create", name=f"{prefix}{i}", layout=bytes_layout(64), live=True,
                                                 mode="0666")["lease"])
            version = claim(peer, f"{prefix}{i}")["object"]["version"]
            objects.append({"name": f"{prefix}{i}", "version": version, "write": True})

        def come_back(*_):
            back = come_back.peer = Peer(peer.socket.getpeername())
            for first in range(0, count, 64):
                part = {"objects": objects[first:first + 64], "instance": told["instance"]}
                if first + 64 >= count:
                    part["session"] = told["session"]
                back.call("hello", protocol=1, resume=part)

        signal.signal(signal.SIGUSR1, come_back)
        return True
    return work


def held_by(peer, count):
    """The processes that write the objects, and whether they have left their session."""
    return {(one["pid"], one.get("exclusive", False), one.get("left", False))
            for i in range(0, count, 1 + count // 100) for one in peer.call("stat", name=f"pool/{i}", why=True)["reasons"]
            if one["kind"] == "leased" and one["access"] == "rw"}


def refused_all(daemon, count, seen):
    """Somebody else gets none of the claims, and is told who has them."""
    with other_session(daemon) as peer:
        for i in range(count):
            error = peer.error("busy", "open", name=f"pool/{i}", access="write", exclusive=True)
            assert f'"pool/{i}" is claimed by session' in error.message
        assert held_by(peer, count) == {seen}


@contextlib.contextmanager
def other_session(daemon):
    peer = daemon.connect_as(2001, 2001) if os.geteuid() == 0 else daemon.connect()
    yield peer
    peer.close()


def smaller_limit(daemon, shim):
    with open(f"{daemon.directory}/config", "w") as file:
        file.write("limit = session_unsealed=3\n")


def no_pidfd(daemon, shim):
    shim.fail("pidfd", errno.EMFILE, FOR_EVER)


def nothing(daemon, shim):
    pass


CASES = {"files": (64, 100, nothing), "many": (1024, 1000, nothing), "limit": (4096, 20, smaller_limit),
         "pidfd": (4096, 3, no_pidfd)}


# RELIABILITY.md: The daemon ends 11
def test_processes_that_cannot_be_watched(supervised, shim):  # noqa: F811
    """More than are looked for at a time: each keeps its claim as long as it lives, and no longer."""
    daemon = supervised(env=shim.environment())
    holders = []
    try:
        for i in range(40):
            holders.append(Child(daemon.path, claimer(1, f"{i}/")))
        shim.fail("pidfd", errno.EMFILE, FOR_EVER)
        daemon.crash()
        with other_session(daemon) as peer:
            for i in reversed(range(40)):
                peer.error("timeout", "open", name=f"{i}/0", access="write", exclusive=True, wait_ms=1)
                holders[i].kill()
                claimed = claim(peer, f"{i}/0", wait_ms=60000)
                assert claimed["generation"] == 2
                peer.call("release", lease=claimed["lease"])
        assert shim.failed("pidfd") > 0
    finally:
        for holder in holders:
            holder.kill()


@pytest.mark.parametrize("how", ["kill", "hand over"])
@pytest.mark.parametrize("case", CASES)
# RELIABILITY.md: The daemon ends 11
def test_a_claim_outlives_the_daemon(supervised, directory, shim, case, how):  # noqa: F811
    """`kill -9` and SIGHUP; while its holder is away, and when it has come back."""
    files, count, change = CASES[case]
    with open(f"{directory}/config", "w") as file:
        file.write("limit = session_unsealed=2000\n")
    daemon = supervised("--config", f"{directory}/config", "--grace", "200", env=shim.environment(), **few_files(files))
    holder = Child(daemon.path, claimer(count))
    try:
        change(daemon, shim)
        for left in (True, False):
            if left and how == "hand over":
                before = daemon.child
                os.kill(before, signal.SIGHUP)
                daemon.wait_for_another(before)
            elif left:
                daemon.crash()
            else:
                os.kill(holder.pid, signal.SIGUSR1)
                with Peer(daemon.path) as peer:
                    wait_until(lambda: held_by(peer, count) == {(holder.pid, True, False)})
            refused_all(daemon, count, (holder.pid, True, left))
    finally:
        holder.kill()
    assert (shim.failed("pidfd") > 0) == (case == "pidfd")
    with other_session(daemon) as peer:
        for i in range(count):
            claimed = claim(peer, f"pool/{i}", wait_ms=60000)
            assert claimed["generation"] == 2
            peer.call("release", lease=claimed["lease"])


def has_all(daemon, contents, holder):
    """Whether they are there, and the claim; the last one is moved to the tier again. Not yet while the tier is out of
    order, for which the daemon soon hands over, and while grace lasts."""
    with Peer(daemon.path) as peer:
        try:
            for name, data in contents.items():
                opened = peer.open_object(name)
                assert opened.read() == data
                opened.release()
            peer.call("move", name=name)
            peer.call("release", lease=read(peer)[0])
            assert held_by(peer, 1) == {holder}
            return peer.call("stats")["handover"] == "kept"
        except (Closed, OSError):
            return False
        except RpcError as error:
            assert error.kind in ("busy", "not_found"), error
            return False


@pytest.mark.parametrize("call, error", [("open", errno.EMFILE), ("memfd", errno.ENFILE), ("duplicate", errno.EMFILE),
                                         ("truncate", errno.ENOSPC), ("pwrite", errno.ENOSPC), ("map", errno.ENOMEM)])
# RELIABILITY.md: The kernel says no 6
def test_no_failure_of_a_start_costs_an_object(supervised, shim, place, call, error):  # noqa: F811
    """Whatever call fails while a successor starts, it starts, or another one does: with every object, claim, and part in a
    stream."""
    contents = {"small": b"small", "large": b"large" * 1000000, "spilled": b"spilled" * 1000}
    daemon = supervised("--tier", f"disk:64M:{place}", "--grace", "1", env=shim.environment())
    with Peer(daemon.path) as peer:
        for name, data in contents.items():
            peer.put(name, data)
    taking_part = daemon.connect()
    make(taking_part)
    read(taking_part)
    write(taking_part)
    holder = Child(daemon.path, claimer(1))
    skip, failed = 0, True
    try:
        while failed:
            wait_until(lambda: has_all(daemon, contents, (holder.pid, True, skip > 0)))
            shim.fail(call, error, 1, skip)
            daemon.crash()
            assert roster(taking_part)[::3] == ([0], 0)
            failed = shim.failed(call) > 0
            shim.fail(call, error, 0)
            skip += 1
        wait_until(lambda: has_all(daemon, contents, (holder.pid, True, skip > 0)))
    finally:
        holder.kill()
    assert skip > 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("case", ["files", "pidfd"])
# RELIABILITY.md: The daemon ends 28
def test_a_part_in_a_stream_outlives_the_daemon(supervised, shim, case, how):  # noqa: F811
    """Two ends in a row. Its slots are kept from the writer whatever the successor lacks, although nothing may tell when
    its process ends, and come back when it has."""
    daemon = supervised(env=shim.environment(), **few_files(128))
    author = daemon.connect()
    make(author)
    write(author)
    readers = [Child(daemon.path, lambda peer: read(peer)[1]["reader"]) for _ in range(3)]
    CASES[case][2](daemon, shim)
    os.kill(readers[0].pid, signal.SIGSTOP)
    readers[1].kill()
    for _ in range(2):
        if case == "files":  # the supervisor's limit is its daemons'
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (40, 128))
        end_daemon(daemon, how)
    wait_until(lambda: roster(author)[0] == [0, 2])
    readers[2].kill()
    wait_until(lambda: roster(author)[0] == [0])
    if case == "pidfd":  # there is room for another
        assert read(daemon.connect())[1]["reader"] == 1
        wait_until(lambda: roster(author)[0] == [0, 1])
    readers[0].kill()
    wait_until(lambda: roster(author)[0] == [1] * (case == "pidfd"))
    assert (shim.failed("pidfd") > 0) == (case == "pidfd")
