"""Rule 1: the connection is the lease. Nothing here polls: by the time that another session asks,
everything of a session that is gone is gone."""

import os
import signal

import pytest

from peer import bytes_layout

MIB = 1 << 20


def holds(peer):
    """For a child: opens, leaves an unsealed object, watches, waits; its session's number."""
    session = peer.call("hello", protocol=1, client="holder")["session"]
    peer.open_object("a")
    peer.create("unsealed", bytes_layout(MIB), b"x")
    peer.call("watch")
    peer.request("open", name="never", wait_ms=60000)
    peer.wait_until_read()
    return session


def everything(peer):
    leases = peer.call("leases")
    return leases["leases"], leases["mapped"]


@pytest.mark.on_gpus
# RELIABILITY.md: Clients that end 1
def test_kill_9(daemon, peer, child):
    peer.put("a", b"a")
    before = peer.used()
    mine = everything(peer)
    for _ in range(10):
        holder = child(daemon, holds)
        leases, mapped = everything(peer)
        assert [e["session"] for e in leases] == [holder.result] * 2
        assert holder.result in [m["session"] for m in mapped]
        holder.kill()
        assert everything(daemon.connect()) == mine
    peer.call("trim")
    assert peer.used() <= before


def test_requests_already_in_the_pipe(daemon, peer):
    """Asked after the other's end, though sent in one burst with what came before."""
    peer.put("a")
    others = [daemon.connect() for _ in range(10)]
    for other in others:
        other.open_object("a")
    for left, other in zip(range(9, -1, -1), others):
        other.close()
        ids = [peer.request("stat", name="a") for _ in range(3)]
        assert [peer.reply(i)["object"]["leases"] for i in ids] == [left] * 3


@pytest.mark.on_gpus
# RELIABILITY.md: Clients that end 2
def test_memory_of_the_dead_is_free_at_once(daemon, peer, child):
    def work(session):
        session.create("big", bytes_layout(40 * MIB), b"x")

    for _ in range(2):
        holder = child(daemon, work)
        peer.error("no_space", "create", name="mine", layout=bytes_layout(40 * MIB))
        holder.kill()
        lease = peer.call("create", name="mine", layout=bytes_layout(40 * MIB))["lease"]
        peer.call("release", lease=lease)
        for key in list(peer.segments):
            peer.segments.pop(key).close()
        peer.call("unmap", segments=[m["segment"] for m in everything(peer)[1]])
        assert peer.used() == 0


# RELIABILITY.md: Clients that end 6
def test_a_stopped_holder_keeps_its_lease(daemon, peer, child):
    """No heartbeats: who merely stands still loses nothing."""
    peer.put("a")
    holder = child(daemon, lambda s: s.open_object("a").lease)
    os.kill(holder.pid, signal.SIGSTOP)
    assert len(everything(peer)[0]) == 1
    os.kill(holder.pid, signal.SIGCONT)
    holder.kill()
    assert everything(peer)[0] == []


# RELIABILITY.md: Clients that end 3
def test_the_last_word_is_heard(daemon, peer):
    """Requests sent before the end count: a seal, then close."""
    other = daemon.connect()
    lease = other.create("a", bytes_layout(1), b"1")["lease"]
    other.request("seal", lease=lease)
    other.close()
    assert peer.call("stat", name="a")["object"]["state"] == "sealed"


@pytest.mark.parametrize("how", ["shutdown both", "shutdown write"])
def test_other_ends(daemon, peer, how):
    peer.put("a")
    other = daemon.connect()
    other.open_object("a")
    other.socket.shutdown({"shutdown both": 2, "shutdown write": 1}[how])
    other.expect_closed()
    assert everything(peer)[0] == []


def long_line(elements, element):
    """A request that a thread checks, since it is long, and that is refused then."""
    items = b",".join([element] * elements)
    return b'{"jsonrpc":"2.0","id":1,"method":"create","params":{"name":"x","odd":[' + items + b"]}}\n"


# RELIABILITY.md: Clients that end 3
def test_hanging_up_while_a_request_is_checked(daemon, peer):
    """The session waits for its turn with an answer that it had no room for, and its next request is being checked."""
    peer.request("stats")
    burst = 240_000 // len(peer.recv_line())  # of answers: more than a socket takes
    heavy = long_line(170_000, b"[1,2]")
    for _ in range(2):
        before = [daemon.connect() for _ in range(12)]  # whose requests are checked first
        gone = daemon.connect()
        gone.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"stats"}\n' * burst)
        gone.wait_until_read()
        for other in before:
            other.send_raw(heavy[:-2])
            other.wait_until_read()
        peer.notify("x")
        peer.wait_until_read()
        for other in before:
            other.send_raw(heavy[-2:])
        gone.send_raw(b'{"jsonrpc":"2.0","method":"x"}\n' * 8 + long_line(8250, b"1"))
        gone.wait_until_read()
        daemon.process.send_signal(signal.SIGSTOP)  # what follows comes in one turn
        gone.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            while gone.socket.recv(1 << 20):
                pass
        request = peer.request("stats")
        gone.close()
        daemon.process.send_signal(signal.SIGCONT)
        assert peer.reply(request)["sessions"] >= 1
        for other in before:
            other.close()
    peer.wait_for_stats(lambda stats: stats["sessions"] == 1)
