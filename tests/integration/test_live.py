"""Live memory: written while it is shared, by mode's right to write, and taken over when its writer is over."""

import os
import signal
import threading

import pytest
from child import Child
from conftest import skip_without_root
from peer import Peer, RpcError, bytes_layout, wait_until
from restarts import children_of
from restarts import releasing as daemon  # noqa: F401
from restarts import supervised  # noqa: F401

SIZE = 4096


def make(peer, name="pool", **params):
    return peer.call("create", name=name, layout=bytes_layout(SIZE), live=True, **params)


def claim(peer, name="pool", **params):
    return peer.call("open", name=name, access="write", exclusive=True, **params)


def told(peer, name="pool"):
    return peer.call("stat", name=name)["object"]


def writers(peer, name="pool"):
    """The writers that `why` names."""
    reasons = peer.call("stat", name=name, why=True)["reasons"]
    return [(one["pid"], one.get("exclusive", False), one.get("left", False))
            for one in reasons if one["kind"] == "leased" and one["access"] == "rw"]


def test_whoever_may_write_it(daemon):
    """Its creator's end changes nothing: another opens it for writing."""
    first = Child(daemon.path, lambda peer: make(peer)["object"]["version"])
    version = first.result
    reader = daemon.connect()
    reader.open_object("pool")
    first.kill()
    second = daemon.connect()
    opened = second.call("open", name="pool", access="write")
    assert opened["object"]["version"] == version and "generation" not in opened
    assert opened["segments"][0]["access"] == "rw"
    both = reader.call("open", name="pool", access="write")  # who had it for reading gets it once more
    assert both["segments"][0]["access"] == "rw"
    second.call("release", lease=opened["lease"])
    wait_until(lambda: told(second)["writers"] == 1)
    assert told(second)["state"] == "live" and told(second)["live"] is True


@pytest.mark.root
def test_rights(daemon):
    """Writing takes the mode's bits 4 and 2."""
    skip_without_root()

    def create(mode):
        return lambda peer: make(peer, mode=mode, name=f"m{mode}")["object"]["name"]

    owners = [Child(daemon.path, create(mode), uid=2000, gid=2000) for mode in ("0600", "0644", "0666")]

    def other(peer):
        told = {}
        for mode in ("0600", "0644", "0666"):
            try:
                told[mode] = peer.call("open", name=f"m{mode}", access="write")["segments"][0]["access"]
            except RpcError as error:
                told[mode] = error.kind
        return told

    child = Child(daemon.path, other, uid=2001, gid=2001)
    try:
        assert child.result == {"0600": "not_found", "0644": "denied", "0666": "rw"}
    finally:
        for one in [*owners, child]:
            one.kill()


@pytest.mark.parametrize("params, word", [
    ({"label": "a"}, "label"), ({"keep": 1}, "keep"), ({"scope": "cluster"}, "scope"),
    pytest.param({"final": True}, "final", marks=pytest.mark.host_only("nothing is final there"))])
def test_what_it_cannot_have(daemon, params, word):
    error = daemon.connect().error("invalid", "create", name="x", layout=bytes_layout(8), live=True, **params)
    assert error.message.startswith(f"params.{word}: goes without live: ")


def test_what_cannot_be_done_with_it(daemon):
    peer = daemon.connect()
    lease = make(peer, evict="spill")["lease"]
    assert "on a live object" in peer.error("busy", "seal", lease=lease).message
    assert "is live" in peer.error("unsupported", "alias", name="a", of="pool").message
    peer.put("sealed", b"x")
    error = peer.error("unsupported", "open", name="sealed", access="write")
    assert "never changes" in error.message
    assert "goes with access" in peer.error("invalid", "open", name="pool", exclusive=True).message
    assert "goes with name" in peer.error("invalid", "open", names=["pool"], access="write").message
    assert 'expected "read" or "write"' in peer.error("invalid", "open", name="pool", access="rw").message


def test_it_stays_on_its_device(daemon_factory, tmp_path):
    """It may be dropped when nobody has it open, and never moves to a tier."""
    daemon = daemon_factory("--tier", f"disk:64M:{tmp_path}")
    peer = daemon.connect()
    lease = make(peer)["lease"]
    why = peer.call("stat", name="pool", why=True)
    assert not why["evictable"] and {"kind": "live"} in why["reasons"]
    assert told(peer)["when_short"] == "stays"
    peer.call("release", lease=lease)
    assert "live" in peer.error("unsupported", "move", name="pool").message
    lease = make(peer, "drop", evict="drop")["lease"]
    assert not peer.call("stat", name="drop", why=True)["evictable"]
    peer.call("release", lease=lease)
    why = peer.call("stat", name="drop", why=True)
    assert why["evictable"] and why["goes_to"] == "nowhere"


def test_claims(daemon):
    """One writer at a time; each has a generation, one higher than the last."""
    first, second = daemon.connect(), daemon.connect()
    lease = make(first)["lease"]
    error = second.error("busy", "open", name="pool", access="write", exclusive=True)
    assert '"pool" is written by session' in error.message and str(os.getpid()) in error.message
    first.call("release", lease=lease)
    one = claim(second)
    assert one["generation"] == 1 and told(first)["generation"] == 1
    assert '"pool" is claimed by session' in first.error("busy", "open", name="pool", access="write").message
    error = first.error("timeout", "open", name="pool", access="write", exclusive=True, wait_ms=20)
    assert "claimed after 20 ms" in error.message
    waiting = [first.request("open", name="pool", access="write", exclusive=True, wait_ms=60000) for _ in range(2)]
    first.call("stats")
    assert not first.replies
    second.call("release", lease=one["lease"])
    two = first.reply(waiting[0])
    assert two["generation"] == 2
    first.call("release", lease=two["lease"])
    assert first.reply(waiting[1])["generation"] == 3
    assert writers(second) == [(os.getpid(), True, False)]


def test_a_waiting_claim_has_its_turn(daemon):
    """Writers that overlap do not starve it: while it waits, later requests for writing wait behind it."""
    first, second, third = (daemon.connect() for _ in range(3))
    lease = make(first)["lease"]
    waiting = second.request("open", name="pool", access="write", exclusive=True, wait_ms=60000)
    second.call("stats")
    error = third.error("busy", "open", name="pool", access="write")
    session = second.call("sessions")["sessions"][-2]["session"]
    assert f'"pool" is to be claimed by session {session} ' in error.message
    waits = third.call("stat", name="pool", why=True)["waits"]
    assert (waits["session"], waits["pid"], waits["exclusive"]) == (session, os.getpid(), True)
    behind = [third.request("open", name="pool", access="write", wait_ms=60000) for _ in range(2)]
    last = third.request("open", name="pool", access="write", exclusive=True, wait_ms=60000)
    third.call("stats")
    assert not second.replies and not third.replies
    first.call("release", lease=lease)
    claimed = second.reply(waiting)
    assert claimed["generation"] == 1 and not third.replies
    second.call("release", lease=claimed["lease"])
    leases = [third.reply(one)["lease"] for one in behind]  # beside each other
    third.call("release", leases=leases)
    assert third.reply(last)["generation"] == 2
    assert "waits" not in third.call("stat", name="pool", why=True)


@pytest.mark.parametrize("how", ["timeout", "hangs up", "deleted"])
def test_a_claim_that_waits_no_more_lets_others_go(daemon, how):
    first, third = daemon.connect(), daemon.connect()
    second = Peer(daemon.path)
    lease = make(first)["lease"]
    waiting = second.request("open", name="pool", access="write", exclusive=True,
                             wait_ms=2000 if how == "timeout" else 60000)
    second.call("stats")
    behind = [third.request("open", name="pool", access="write", wait_ms=60000) for _ in range(2)]
    third.call("stats")
    if how == "hangs up":
        second.close()
    elif how == "deleted":  # they wait for the name's next object, in the same order
        first.call("delete", name="pool")
        first.call("release", lease=lease)
        lease = make(first)["lease"]
        assert '"pool" is to be claimed by' in first.error("busy", "open", name="pool", access="write").message
        assert not second.replies and not third.replies
        first.call("release", lease=lease)
        second.call("release", lease=second.reply(waiting)["lease"])
    else:
        with pytest.raises(RpcError, match="is written after 2000 ms by"):
            second.reply(waiting)
    third.call("release", leases=[third.reply(one)["lease"] for one in behind])
    second.close()


def test_hung_up_writer(daemon):
    """A process that has closed its connection may go on writing: its claim ends with the last of its threads."""
    def work(peer):
        claim(peer)
        peer.socket.close()
        for _ in range(8):
            threading.Thread(target=signal.pause).start()
        return True

    peer = daemon.connect()
    peer.call("release", lease=make(peer)["lease"])
    child = Child(daemon.path, work)
    try:
        wait_until(lambda: writers(peer) == [(child.pid, True, True)])
        error = peer.error("busy", "open", name="pool", access="write")
        assert "whose connection has ended; its process has not" in error.message
        peer.call("delete", name="pool")
        peer.call("release", lease=make(peer)["lease"])
        assert told(peer)["generation"] == 0
    finally:
        child.kill()
    assert peer.wait_for_stats(lambda stats: stats["devices"][0]["objects"] == 1)


@pytest.mark.parametrize("first", ["hangs up", "is released"])
def test_hung_up_while_it_waits(daemon, first):
    """A claim that nobody waits for any more is not granted, though the process that asked for it lives."""
    peer, other = daemon.connect(), Peer(daemon.path)
    lease = make(peer)["lease"]
    other.request("open", name="pool", access="write", exclusive=True, wait_ms=60000)
    other.wait_until_read()
    peer.call("stats")
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)
    if first == "hangs up":
        other.close()
    released = peer.request("release", lease=lease)
    other.close()
    daemon.process.send_signal(signal.SIGCONT)
    peer.reply(released)
    peer.call("release", lease=claim(peer)["lease"])


def test_passed_connection(daemon):
    """A connection that another process has does not hang up with its owner: the claim lasts as long as it."""
    def work(peer):
        generation = claim(peer)["generation"]
        pid = os.fork()
        if pid == 0:
            signal.pause()
        return pid

    peer = daemon.connect()
    peer.call("release", lease=make(peer)["lease"])
    child = Child(daemon.path, work)
    heir = child.result
    try:
        child.kill()
        peer.error("timeout", "open", name="pool", access="write", wait_ms=50)
    finally:
        os.kill(heir, signal.SIGKILL)
    assert claim(peer, wait_ms=60000)["generation"] == 2


def test_replaced(daemon):
    peer, other = daemon.connect(), daemon.connect()
    old = make(peer)
    error = other.error("exists", "create", name="pool", layout=bytes_layout(8), live=True)
    assert "set replace" in error.message
    other.put("pool", b"sealed", replace=True)
    assert other.open_object("pool").object["state"] == "sealed"
    peer.call("release", lease=old["lease"])
    assert peer.call("stats")["devices"][0]["objects"] == 1


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
def test_coming_back(supervised):  # noqa: F811
    """`hello` with `resume` gives a writer its claim again; what it does not know of ends."""
    daemon = supervised()
    peer = daemon.connect()
    instance = peer.call("hello", protocol=1)
    session, instance = instance["session"], instance["instance"]
    for name in ("pool", "lost"):
        peer.call("release", lease=make(peer, name)["lease"])
    held = claim(peer)
    claim(peer, "lost")
    daemon.crash()
    back = daemon.connect()
    one = {"name": "pool", "version": held["object"]["version"], "write": True}
    resumed = back.call("hello", protocol=1, resume={
        "instance": instance, "session": session, "objects": [one, {**one, "version": one["version"] + 1}]})["resumed"]
    assert resumed[1] is None
    assert writers(back) == [(os.getpid(), True, False)] and writers(back, "lost") == []
    other = daemon.connect()
    other.error("busy", "open", name="pool", access="write")
    back.call("release", lease=resumed[0])
    assert claim(other)["generation"] == 2


def resumed(daemon, instance, former, *versions):
    """A session that comes back for what this process wrote in the former one; and what it gets."""
    back = daemon.connect()
    objects = [{"name": "pool", "version": version, "write": True} for version in versions]
    return back, back.call("hello", protocol=1,
                           resume={"instance": instance, "session": former, "objects": objects})["resumed"]


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
def test_two_sessions_come_back(supervised):  # noqa: F811
    """Both have their lease again, whichever comes first: of several leases of a process each session gets its own, and
    none is taken for one that the process does not know of."""
    daemon = supervised()
    peers = [daemon.connect() for _ in range(2)]
    told = [peer.call("hello", protocol=1) for peer in peers]
    version = make(peers[0])["object"]["version"]
    peers[1].call("open", name="pool", access="write")
    daemon.crash()
    for one in reversed(told):
        assert resumed(daemon, one["instance"], one["session"], version)[1] != [None]
    assert writers(daemon.connect()) == [(os.getpid(), False, False)] * 2


@pytest.mark.parametrize("what", ["deleted", "replaced"])
# RELIABILITY.md: The daemon ends 11
def test_coming_back_for_what_has_no_name(daemon, what):
    """The connection alone broke: the process has its lease again, on memory that nobody else is given."""
    peer, other = Peer(daemon.path), daemon.connect()
    told = peer.call("hello", protocol=1)
    version = make(peer)["object"]["version"]
    if what == "deleted":
        other.call("delete", name="pool")
    else:
        other.put("pool", b"sealed", replace=True)
    peer.close()
    objects = other.call("stats")["devices"][0]["objects"]
    back, leases = resumed(daemon, told["instance"], told["session"], version, version + 1000)
    assert leases[0] and leases[1] is None
    assert other.call("stats")["devices"][0]["objects"] == objects
    back.call("release", lease=leases[0])
    assert other.call("stats")["devices"][0]["objects"] == objects - 1


@pytest.mark.parametrize("reaped", [False, True])
def test_a_connection_whose_process_has_ended(daemon, reaped):
    """Its heir gets no lease for writing by it: nobody would know when the heir has ended. Leases that the process
    had stay."""
    def work(peer):
        held = claim(peer)["lease"]
        asks, answers = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.read(asks[0], 1)
            try:
                peer.call("open", name="other", access="write")
                told = "granted"
            except RpcError as error:
                told = f"{error.kind} {error.message}"
            os.write(answers[1], told.encode())
            signal.pause()
        return {"held": held, "asks": os.dup(asks[1]), "answers": os.dup(answers[0])}

    peer = daemon.connect()
    for name in ("pool", "other"):
        peer.call("release", lease=make(peer, name)["lease"])
    child = Child(daemon.path, work)
    pipes = {end: os.open(f"/proc/{child.pid}/fd/{child.result[end]}", os.O_RDWR) for end in ("asks", "answers")}
    (heir,) = children_of(child.pid)
    try:
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
        os.write(pipes["asks"], b"x")
        told = os.read(pipes["answers"], 1000).decode()
        assert told.startswith("unsupported the process that connected") and str(child.pid) in told
        assert writers(peer) == [(child.pid, True, False)] and writers(peer, "other") == []
    finally:
        os.kill(heir, signal.SIGKILL)
        if not reaped:
            os.waitpid(child.pid, 0)
        child.pid = 0
        for pipe in pipes.values():
            os.close(pipe)
    peer.call("release", lease=claim(peer, wait_ms=60000)["lease"])


@pytest.mark.host_only("the driver's own memory does not outlive it by itself")
# RELIABILITY.md: The daemon ends 11
def test_sessions_are_not_taken_for_one_another(supervised):  # noqa: F811
    """A process that comes back names its former session: what it had in others stays, whichever daemon served them."""
    daemon = supervised()
    peer = daemon.connect()
    first = peer.call("hello", protocol=1)
    for name in ("pool", "other"):
        peer.call("release", lease=make(peer, name)["lease"])
    held = claim(peer)
    claim(peer, "other")
    peer.socket.close()
    back = daemon.connect()
    one = {"name": "pool", "version": held["object"]["version"], "write": True}
    resume = {"instance": first["instance"], "objects": [one], "session": first["session"]}
    second = back.call("hello", protocol=1, resume=resume)
    assert second["resumed"] != [None] and writers(back, "other") == []
    daemon.crash()
    beside = daemon.connect()  # another session of this process, which has a number of its own
    third = beside.call("hello", protocol=1)
    assert third["session"] > second["session"]
    beside.close()
    for number in (third["session"], first["session"]):
        with Peer(daemon.path) as again:
            again.call("hello", protocol=1, resume={**resume, "objects": [], "session": number})
            assert writers(again) == [(os.getpid(), True, True)]
    with Peer(daemon.path) as again:
        again.call("hello", protocol=1, resume={**resume, "objects": [], "session": second["session"]})
        assert writers(again) == []


def test_sessions_that_leave_their_leases(daemon_factory):
    """A process that writes in session after session, and hangs up, has no more of them than sessions."""
    daemon = daemon_factory("--limit", "user_sessions=8")

    def work(peer):
        for count in range(100):
            with Peer(daemon.path) as other:
                try:
                    other.call("open", name="pool", access="write")
                except RpcError as error:
                    return [count, error.kind, error.data["limit"]]

    peer = daemon.connect()
    peer.call("release", lease=make(peer)["lease"])
    child = Child(daemon.path, work)
    try:
        assert child.result == [8 - 1, "limit", "user_sessions"]  # this process has written, too
        assert writers(peer) == [(child.pid, False, True)] * 7
        peer.error("timeout", "open", name="pool", access="write", exclusive=True, wait_ms=1)
    finally:
        child.kill()
    peer.call("release", lease=claim(peer, wait_ms=60000)["lease"])
