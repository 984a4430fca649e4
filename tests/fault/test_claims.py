"""A claim on live memory when the daemon ends: it stays with the process that has it until that process has ended,
whatever the next daemon lacks."""

import contextlib
import errno
import os
import resource
import signal

import pytest
from child import Child
from peer import Peer, bytes_layout, wait_until
from restarts import supervised  # noqa: F401

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
