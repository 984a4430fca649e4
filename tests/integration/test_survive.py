"""Sealed objects outlive the daemon: `--supervise`, hello.resume. test_journal.py has the journal and the
kept descriptors."""

import contextlib
import ctypes
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import device
import pytest
from conftest import GPUBUFD
from device import MIB
from peer import DEADLINE, Peer, RpcError, bytes_layout, wait_until
from restarts import (Supervised, children_of, journals, register,  # noqa: F401  (one is a fixture)
                      segments_of, supervised)


def has_ended(pid):
    """Whether the process has ended, also as a zombie: an orphan's new parent may not reap it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


# RELIABILITY.md: The daemon ends 25
def test_killed_supervisor(supervised):
    """The daemon says that nobody keeps anything any more, serves on, and another may take its place."""
    daemon = supervised()
    peer = daemon.connect()
    peer.put("a", b"before")
    assert peer.call("stats")["handover"] == "kept"
    child = daemon.child
    daemon.process.kill()
    daemon.process.wait()
    wait_until(lambda: "journal discarded" in daemon.stderr())
    assert f"supervisor ended: no daemon will be started after this one pid={child}" in daemon.stderr()
    assert peer.call("stats")["handover"] == "lost"
    peer.put("b", b"after")
    assert [peer.open_object(name).read() for name in "ab"] == [b"before", b"after"]
    second = subprocess.run([GPUBUFD, "--supervise", "--socket", daemon.path, "--device", device.OPTION],
                            env=device.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2 and f"another daemon listens there, pid {child}" in second.stderr
    os.kill(child, signal.SIGTERM)
    assert peer.notification("shutdown")["params"]["resume"] is False
    wait_until(lambda: has_ended(child))
    assert not os.path.exists(daemon.path) and not os.path.exists(f"{daemon.path}.lock")
    assert supervised().connect().names() == []


def described(peer, name):
    told = peer.call("stat", name=name)["object"]
    return {key: told[key] for key in told if key not in ("leases", "idle_ms", "when_short")}


# RELIABILITY.md: The daemon ends 1
def test_everything_that_is_sealed(supervised):
    daemon = supervised()
    daemon.crash()  # with nothing at all
    peer = daemon.connect()
    instance = peer.call("hello", protocol=1)["instance"]
    for i in range(20):
        peer.put(f"small/{i}", bytes([i]) * (100 + i), mode="0640", ttl_ms=3600000)
    peer.put("large", os.urandom(3 * MIB))
    large = peer.open_object("large").read()
    peer.put("empty", b"")
    peer.put("dropped", b"d", evict="drop")
    peer.put("kept", b"k" * 1000, evict="keep")
    peer.call("set", pinned=True, name="small/3")
    peer.call("alias", name="alias", of="small/5", slice={"offset": 10, "length": 20})
    peer.put("replaced", b"old")
    version = peer.put("replaced", b"new", replace=True)
    register(peer, "registered", b"r" * 100)
    peer.put("deleted", b"gone")
    peer.call("delete", name="deleted")
    peer.create("unsealed", bytes_layout(100), b"u" * 100)
    names = peer.names()
    before = {name: described(peer, name) for name in names}
    segments = {s for n in names for s in segments_of(peer, n)}

    for _ in range(3):
        daemon.crash()
        peer = daemon.connect()
        assert peer.call("hello", protocol=1)["instance"] == instance
        assert peer.names() == names
        assert {name: described(peer, name) for name in names} == before
        for i in range(20):
            assert peer.open_object(f"small/{i}").read() == bytes([i]) * (100 + i)
        assert peer.open_object("large").read() == large
        assert peer.open_object("alias").read() == bytes([5]) * 20
        assert peer.open_object("replaced").read() == b"new"
        assert peer.open_object("registered").read() == b"r" * 100
        assert peer.error("not_found", "stat", name="unsealed")
        # Numbers go on where they were, and free ranges of what was handed over are handed out.
        assert peer.put("later", b"later", replace=True) > version
        assert segments_of(peer, "later") <= segments
        names = peer.names()
        before = {name: described(peer, name) for name in names}


@pytest.mark.root
@pytest.mark.parametrize("share", ["fd", "ipc"] if device.ON_GPU else ["fd"])
def test_a_note_is_its_owners(supervised, as_user, share):
    """Wherever it is told of an object, and nobody else's; also of one that went with the earlier daemon."""
    note = 'copy of ä, "7"\\'
    daemon = supervised()
    peer = daemon.connect()
    version = peer.put("x", b"x", mode="0604", note=note, label="step-1", share=share)
    assert peer.error("invalid", "create", name="y", layout=bytes_layout(1), note="n" * 256)
    peer.put("none", b"x", note="")

    def told(peer):
        """Notes by `stat`, `list` and the existing objects of `watch`; those by `open`, whose answers have none."""
        peer.call("watch", prefix="x")
        _, _, event = peer.events(1)[0]
        says = [peer.call("stat", name="x")["object"], peer.call("list", prefix="x")["objects"][0], event["object"]]
        opened = [peer.call("open", name="x", brief=brief)["object"] for brief in (False, True)]
        assert all((one["version"], one["label"]) == (version, "step-1") for one in says + opened)
        return [one.get("note") for one in says], [one.get("note") for one in opened]

    for _ in range(2 if share == "fd" else 1):
        peer = daemon.connect()
        assert told(peer) == ([note] * 3, [None] * 2)
        assert "note" not in peer.call("stat", name="none")["object"]
        assert as_user(daemon, 12345, 12345, told) == [[None] * 3, [None] * 2]
        watch = daemon.connect()  # events of changes are told to many alike
        watch.call("watch", existing=False)
        peer.put("another", b"x", note=note, replace=True)
        assert "note" not in watch.events(1)[0][2]["object"]
        daemon.crash()
    if share == "ipc":
        peer = daemon.connect()
        peer.call("watch", prefix="x")
        kind, _, event = peer.events(1)[0]
        assert kind == "withdrawn" and event["object"]["label"] == "step-1" and "note" not in event["object"]


# RELIABILITY.md: The daemon ends 8
def test_a_time_to_live(supervised):
    """The rest of it goes on, also of one that was given, or taken away, later."""
    daemon = supervised()
    peer = daemon.connect()
    for name in ("given", "kept", "longer"):
        peer.put(name, ttl_ms=0 if name == "given" else 3600000)
    peer.call("set", name="given", ttl_ms=1500)
    peer.call("set", name="kept", ttl_ms=0)
    peer.call("set", name="longer", ttl_ms=7200000)
    time.sleep(1)  # which is what is tested
    daemon.crash()
    peer = daemon.connect()
    assert "expires_ms" not in peer.call("stat", why=True, name="kept")
    assert 3600000 < peer.call("stat", why=True, name="longer")["expires_ms"] <= 7199500
    assert [peer.call("stat", name=n)["object"]["ttl_ms"] for n in ("kept", "longer")] == [0, 7200000]
    end = time.monotonic() + DEADLINE
    while "given" in peer.names():
        assert time.monotonic() < end
    assert peer.names() == ["kept", "longer"]


@pytest.mark.host_only("memory of a GPU cannot be final")
def test_final_stays_final(supervised):
    """The kernel holds it, and so does whoever comes after; what was not sealed is gone."""
    daemon = supervised()
    peer = daemon.connect()
    made = {name: peer.create(name, bytes_layout(9), b"x" * 9, final=True) for name in "ab"}
    segment = peer.segments[(made["a"]["object"]["layout"]["data"]["segment"], "rw")]
    segment.unmap()
    fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    peer.call("seal", lease=made["a"]["lease"], release=True)
    for _ in range(2):
        daemon.crash()
        peer = daemon.connect()
        assert peer.names() == ["a"]
        assert peer.call("stat", name="a")["object"]["final"] is True
        assert peer.open_object("a").read() == b"x" * 9
        peer.error("unsupported", "move", name="a", tier="disk")


# RELIABILITY.md: The daemon ends 2
def test_leases_are_resumed(supervised):
    daemon = supervised("--grace", "600000")
    peer = daemon.connect()
    instance = peer.call("hello", protocol=1)["instance"]
    held = {name: peer.put(name, name.encode() * 100) for name in ("a", "b", "c")}
    opened = {name: peer.call("open", name=name) for name in held}
    places = {n: o["object"]["layout"]["data"] for n, o in opened.items()}
    peer.put("b", b"another", replace=True)
    peer.call("delete", name="c")
    daemon.crash()

    again = daemon.connect()
    wanted = [{"name": n, "version": v, "segment": places[n]["segment"],
               "offset": places[n]["offset"]} for n, v in held.items()]
    wanted.append({"name": "a", "version": held["a"] + 1000})
    wanted.append({**wanted[0], "offset": places["a"]["offset"] + 256})
    resumed = again.call("hello", protocol=1, resume={"instance": instance, "objects": wanted})
    resumed = resumed["resumed"]
    assert None not in resumed[:3], "also of versions that have lost their name"
    assert resumed[3:] == [None, None]
    again.call("release", leases=resumed[:3])
    late = daemon.connect()
    assert late.call("hello", protocol=1, resume={"instance": instance, "objects": wanted[1:2]})[
        "resumed"] != [None], "kept for others who may still come"


# RELIABILITY.md: The daemon ends 9
def test_what_is_kept_for_those_who_may_come(supervised, place):
    """Nobody's lease keeps it, and `why` and `leases` say so, until the grace period is over."""
    daemon = supervised("--grace", "600000", "--tier", f"disk:64M:{place}")
    daemon.connect().put("a", evict="drop")
    daemon.crash()
    peer = daemon.connect()
    message = peer.error("busy", "move", name="a").message
    assert re.search(r"0 leases, 0 pins or keeps, and grace .*, (5\d\d|600) s more$", message), message
    assert peer.call("stat", name="a")["object"]["leases"] == 0
    assert peer.call("list")["objects"][0]["leases"] == 0
    assert peer.call("stats")["leases"] == 0
    told = peer.call("stat", why=True, name="a")
    assert told["reasons"] == [{"kind": "grace", "name": "a"}] and told["evictable"] is False
    assert peer.call("leases", name="a")["leases"] == []
    lease = peer.call("open", name="a")["lease"]
    kinds = [(r["kind"], r.get("lease")) for r in peer.call("stat", why=True, name="a")["reasons"]]
    assert sorted(kinds) == [("grace", None), ("leased", lease)]
    assert peer.call("stat", name="a")["object"]["leases"] == peer.call("stats")["leases"] == 1
    peer.call("release", lease=lease)
    daemon.stop()
    daemon = supervised("--grace", "1000")
    daemon.connect().put("a", evict="drop")
    daemon.crash()
    peer = daemon.connect()
    wait_until(lambda: peer.call("stat", why=True, name="a")["evictable"])


def test_what_is_lost_while_others_may_come_does_not_come_again(supervised, place):
    """The one whose file is damaged, and only that one, over yet another crash."""
    daemon = supervised("--tier", f"disk:64M:{place}")
    peer = daemon.connect()
    for name in "ab":
        with daemon.connect() as producer:
            producer.put(name, name.encode() * 3 * MIB)
        peer.call("move", name=name, tier="disk")
    daemon.crash()
    (file, _) = sorted(f for f in os.listdir(place) if f.endswith(".spill"))
    os.truncate(os.path.join(place, file), 5000)
    peer = daemon.connect()
    peer.error(("not_found", "device"), "open", name="a")
    assert peer.names() == ["b"]
    daemon.crash()
    peer = daemon.connect()
    assert peer.names() == ["b"]
    assert peer.open_object("b").read() == b"b" * 3 * MIB
    peer.error("not_found", "open", name="a")


# RELIABILITY.md: The disk 1
def test_a_file_of_an_earlier_time(supervised, directory, place):
    """Whole, of the same size, of the same name: but it was another object's, before the crash."""
    daemon = supervised("--tier", f"disk:64M:{place}")
    peer = daemon.connect()
    peer.put("a", b"a" * 3 * MIB)
    peer.call("move", name="a", tier="disk")
    (file,) = [f for f in os.listdir(place) if f.endswith(".spill")]
    shutil.copy(os.path.join(place, file), os.path.join(directory, "earlier"))
    peer.call("delete", name="a")
    wait_until(lambda: file not in os.listdir(place))
    daemon.crash()
    peer = daemon.connect()
    for name in "bc":
        with daemon.connect() as producer:
            producer.put(name, name.encode() * 3 * MIB)
        peer.call("move", name=name, tier="disk")
    assert file in os.listdir(place), "the name is given again"
    shutil.copy(os.path.join(directory, "earlier"), os.path.join(place, file))
    error = peer.error("device", "open", name="b")
    assert "is another object's, or of an earlier time" in error.message
    assert peer.open_object("c").read() == b"c" * 3 * MIB


# RELIABILITY.md: The daemon ends 1
def test_aliases_without_end(supervised):
    """An object and its aliases are one record: more of them than it may have are refused, and nobody
    else loses anything."""
    daemon = supervised("--grace", "1")
    peer = daemon.connect()
    peer.put("other", b"o")
    metadata = {str(k): "x" * 200 for k in range(200)}
    layout = {"kind": "table", "length": 1, "columns": [
        {"name": str(i), "dtype": "null", "length": 1, "metadata": metadata} for i in range(20)]}
    peer.call("seal", lease=peer.create("a", layout)["lease"], release=True)
    error, count = None, 0
    while not error and count < 100:
        try:
            peer.call("alias", name=f"alias/{count}", of="a")
            count += 1
        except RpcError as e:
            error = e
    assert error.kind == "limit" and error.data["limit"] == "alias_text"
    assert count >= 2
    peer.call("delete", name="alias/0")
    peer.call("alias", name="again", of="a")
    names = peer.names()
    daemon.crash()
    assert daemon.connect().names() == names
    assert "journal discarded" not in daemon.stderr()


# RELIABILITY.md: The daemon ends 8
def test_a_number_is_used_once(supervised):
    """Also one whose object is gone by the time of the crash: seal, delete, kill -9, seal."""
    daemon = supervised()
    peer = daemon.connect()
    kept = peer.put("kept")
    told, segments = [kept], set()
    for crash in range(3):
        gone = peer.put("x", bytes([crash]) * 100)
        peer.put("large", bytes(20 * MIB))  # in a segment of its own
        segments |= segments_of(peer, "large")
        aliases = [peer.call("alias", name=f"alias/{i}", of="kept")["version"] for i in range(3)]
        peer.call("delete", names=["x", "large", "alias/0", "alias/1", "alias/2"])
        assert min(gone, *aliases) > max(told)
        told += [gone, *aliases]
        daemon.crash()
        peer = daemon.connect()
        assert peer.error("not_found", "open", name="x", version=gone)
        new = peer.put("x", replace=True)
        assert new > max(told)
        told.append(new)
        peer.call("delete", name="x")
    assert len(set(told)) == len(told)
    assert len(segments) == 3, "a segment's number means one segment"
    assert peer.call("stat", name="kept")["object"]["version"] == kept


def withdrawn_or_not(peer, **params):
    """A watch's events up to `synced`, without their details of the objects."""
    peer.call("watch", **params)
    events = []
    while not events or events[-1][0] != "synced":
        events += peer.events(1)
    return [event[:2] for event in events[:-1]], {e[1]: e[2].get("object") for e in events}


@pytest.mark.skipif(not device.ON_GPU, reason="whatever is on the host outlives the daemon")
# RELIABILITY.md: Time 6
def test_what_went_with_it(supervised):
    """Watches are told of what dies with the daemon, as often as it dies, until nobody can know it."""
    from test_cuda_ready import EVENT, seal_with_event
    from test_cuda_register import ipc_handle, layout

    daemon = supervised("--grace", "600000")
    peer = daemon.connect()
    instance = peer.call("hello", protocol=1)["instance"]
    peer.put("stays", b"s")
    held = {"dies": peer.put("dies", b"d", share="ipc", mode="0640"),
            "unsettled": seal_with_event(peer, "unsettled", data=b"u")}
    held["settled"] = seal_with_event(peer, "settled", data=b"t")
    peer.call("settle", objects=[{"name": "settled", "version": held["settled"]}])
    mine = device.gpu().allocate(2 * MIB)
    held["mine"] = peer.call("register", name="mine", layout=layout(),
                             handles=[ipc_handle(mine)])["version"]
    peer.call("alias", name="alias", of="unsettled", slice={"offset": 0, "length": 1})
    peer.put("deleted", b"d", share="ipc")
    peer.call("delete", name="deleted")
    peer.put("taken", b"d", share="ipc")
    peer.put("taken", b"again", replace=True)
    stat = {name: described(peer, name) for name in held}
    assert stat["unsettled"].pop("ready") == EVENT
    gone = {"dies", "unsettled", "mine", "alias"}
    for _ in range(2):
        daemon.crash()
        peer = daemon.connect()
        wanted = [{"name": n, "version": v} for n, v in held.items()]
        resumed = peer.call("hello", protocol=1, resume={"instance": instance, "objects": wanted})
        assert [lease is not None for lease in resumed["resumed"]] == [False, False, True, False]
        told, objects = withdrawn_or_not(peer)
        assert told[:3] == [("sealed", n) for n in ("settled", "stays", "taken")]
        assert sorted(told[3:]) == sorted(("withdrawn", n) for n in gone)
        for name in gone & set(held):
            assert objects[name]["version"] == held[name]
            del stat[name]["layout"], objects[name]["leases"]
            assert objects[name] == stat[name]
            stat[name]["layout"] = None
        assert peer.names() == ["settled", "stays", "taken"]
    # Limited as every watch is; and not told where the name is taken again.
    peer.put("dies", b"new")
    assert withdrawn_or_not(daemon.connect(), prefix="d")[0] == [("sealed", "dies")]
    assert withdrawn_or_not(daemon.connect(), prefix="uns", kinds=["withdrawn", "synced"])[0] == [
        ("withdrawn", "unsettled")]
    assert withdrawn_or_not(daemon.connect(), kinds=["sealed", "synced"])[0][0][0] == "sealed"
    daemon.stop()
    device.gpu().free(mine)
    daemon = supervised("--grace", "1000")
    seal_with_event(daemon.connect(), "unsettled", data=b"u")
    for _ in range(2):
        daemon.crash()
        wait_until(lambda: withdrawn_or_not(daemon.connect())[0] == [])


@pytest.mark.root
@pytest.mark.skipif(not device.ON_GPU, reason="whatever is on the host outlives the daemon")
# RELIABILITY.md: Time 6
def test_only_who_could_see_it_is_told(supervised, as_user):
    daemon = supervised()
    peer = daemon.connect()
    peer.put("secret", b"s", share="ipc")
    peer.put("group", b"g", share="ipc", mode="0640")
    peer.put("all", b"a", share="ipc", mode="0604")
    daemon.crash()
    names = lambda p: sorted(n for _, n in withdrawn_or_not(p)[0])  # noqa: E731
    assert names(daemon.connect()) == ["all", "group", "secret"]
    assert as_user(daemon, 12345, 12345, names) == ["all"]
    assert as_user(daemon, 12345, 0, names) == ["group"]


# RELIABILITY.md: Time 5
def test_one_that_hangs(supervised):
    """A daemon whose loop stands still is killed, and nothing is lost."""
    daemon = supervised("--watchdog", "3000")
    daemon.connect().put("a", b"hello")
    before = daemon.child
    os.kill(before, signal.SIGSTOP)
    daemon.wait_for_another(before)
    assert "no sign of life" in daemon.stderr()
    assert daemon.connect().open_object("a").read() == b"hello"


# RELIABILITY.md: Time 5
def test_one_that_begins_slowly(directory, supervised):
    """A daemon that asks its supervisor to wait on is not killed before it is ready."""
    program = shutil.copy(GPUBUFD, f"{directory}/gpubufd")
    daemon = supervised("--watchdog", "3000", program=program)
    daemon.connect().put("a", b"hello")
    os.rename(program, f"{directory}/real")
    with open(program, "w", encoding="ascii") as file:
        file.write(f"""#!/bin/sh
for i in 1 2 3 4 5 6 7 8; do printf EXTEND_TIMEOUT_USEC=60000000 >&4; sleep 0.5; done
exec {directory}/real "$@"
""")
    os.chmod(program, 0o755)
    daemon.crash()
    assert daemon.connect().open_object("a").read() == b"hello"
    assert "no sign of life" not in daemon.stderr()


@pytest.mark.skipif(not device.ON_GPU, reason="the host has no driver that could hang")
# RELIABILITY.md: Time 5
def test_a_driver_that_hangs(supervised, directory):
    """The loop turns, but the GPU's thread does not come back: that is no sign of life."""
    gate = f"{directory}/hang"
    daemon = supervised("--watchdog", "3000", env={"FAKECUDA_DELAY": f"cuMemCreate:60000@{gate}"})
    peer, reader = daemon.connect(), daemon.connect()
    peer.put("a", b"hello")
    opened = reader.open_object("a")
    before = daemon.child
    with open(gate, "w", encoding="ascii"):
        pass
    peer.request("create", name="b", layout=bytes_layout(20 * MIB))
    assert opened.read() == b"hello"
    daemon.wait_for_another(before)
    os.unlink(gate)  # its successor's driver does not hang
    assert "driver hangs" in daemon.stderr()
    assert "no sign of life" in daemon.stderr()
    peer = daemon.connect()
    assert peer.names() == ["a"] and peer.open_object("a").read() == b"hello"
    peer.put("b", bytes(20 * MIB))


def waits_for_the_grace_period(place, grace_ms):
    """Whether an object was still there while a request waited for its room; None where the test was too slow."""
    daemon = Supervised(place, ["--grace", str(grace_ms)])
    try:
        peer = daemon.connect()
        instance = peer.call("hello", protocol=1)["instance"]
        version = peer.put("a", b"old")
        peer.put("large", b"l" * (40 * MIB), evict="drop")
        peer.call("open", name="a")
        peer.put("a", b"new", replace=True)
        begun = time.monotonic()
        daemon.crash()
        peer = daemon.connect()
        create = peer.request("create", name="x", layout=bytes_layout(30 * MIB))
        there = sorted(daemon.connect().names()) == ["a", "large"]
        if not there and time.monotonic() - begun > 0.9 * grace_ms / 1000:
            return None
        peer.reply(create)  # it has waited, though it did not say so: "large" is evicted for it
        assert peer.names() == ["a"]
        late = daemon.connect()
        wanted = [{"name": "a", "version": version}]
        assert late.call("hello", protocol=1, resume={"instance": instance, "objects": wanted})[
            "resumed"] == [None]
        daemon.check_no_leaks()
        daemon.stop()
        return there
    finally:
        daemon.kill()


# RELIABILITY.md: The daemon ends 2
def test_after_the_grace_period(daemon_factory, directory):
    """Leases that nobody resumed have ended, memory kept back is handed out, and nothing is left behind."""
    for grace_ms in (3000, 12000, 40000):
        waited = waits_for_the_grace_period(tempfile.mkdtemp(dir=directory), grace_ms)
        if waited is not None:
            break
    assert waited


@pytest.mark.parametrize("to", ["the supervisor", "the daemon"])
# RELIABILITY.md: The daemon ends 12
def test_handing_over(supervised, directory, to):
    """SIGHUP: clients are told, and what is started is the program's file as it is now."""
    program = os.path.join(directory, "gpubufd")
    shutil.copy(GPUBUFD, program)
    daemon = supervised(program=program)
    peer = daemon.connect()
    peer.put("a", b"hello")
    shutil.copy(GPUBUFD, program + ".new")
    os.rename(program + ".new", program)
    before = daemon.child
    os.kill(daemon.child if to == "the daemon" else daemon.pid, signal.SIGHUP)
    told = peer.notification("shutdown")
    assert told["params"]["resume"] is True
    peer.expect_closed()
    daemon.wait_for_another(before)
    assert os.readlink(f"/proc/{daemon.child}/exe") == program
    assert daemon.connect().open_object("a").read() == b"hello"
    assert daemon.stderr().count("handing over") == 1
    # One that stops for good says so.
    peer = daemon.connect()
    peer.call("stats")
    daemon.process.send_signal(signal.SIGTERM)
    assert peer.notification("shutdown")["params"]["resume"] is False
    assert daemon.process.wait(DEADLINE) == 0
    assert not os.path.exists(daemon.path)


# RELIABILITY.md: The daemon ends 15
def test_what_lies_below(supervised, place):
    daemon = supervised("--tier", "host:16M", "--tier", f"disk:64M:{place}")
    peer = daemon.connect()
    content = {f"s{i}": os.urandom(MIB + 1000 * i) for i in range(5)}
    content.update((f"p{i}", os.urandom(100 + 1000 * i)) for i in range(9))  # these share a file
    for name, data in content.items():
        peer.put(name, data)
    below = {"s0": "disk", "s1": "disk", **{f"p{i}": "disk" for i in range(8)}}
    if device.ON_GPU:
        below |= {"s3": "host", "s4": "host"}
    for name, tier in below.items():
        peer.call("move", name=name, tier=tier)
        assert peer.call("stat", name=name)["object"]["tier"] == tier
    for name in ("s1", "s4", "p1", "p4", "p7"):
        peer.call("delete", name=name)
        del content[name]
    for _ in range(2):
        daemon.crash()
        peer = daemon.connect()
        tiers = {name: peer.call("stat", name=name)["object"]["tier"] for name in peer.names()}
        assert sorted(tiers) == sorted(content)
        for name, data in content.items():
            assert peer.open_object(name, wait_ms=10000).read() == data
        files = [f for f in os.listdir(place) if f.endswith(".spill")]
        assert len(files) <= 2


def test_arguments_that_are_wrong(directory):
    """Those, too, that only the daemon finds out about."""
    for option, value in (("--device", "nix"), ("--tier", f"disk:64M:{directory}/none")):
        done = subprocess.run([GPUBUFD, "--supervise", "--socket", f"{directory}/s", option, value],
                              stderr=subprocess.PIPE, timeout=DEADLINE, text=True)
        assert done.returncode == 2 and value.rpartition(":")[2] in done.stderr
        assert not os.path.exists(f"{directory}/s")


LATE = "service manager does not respond"


def make_and_free(peer):
    """Eight segments, so sixteen notices at least."""
    idents = [peer.request("create", name="made", layout=bytes_layout(MIB), own=True) for _ in range(8)]
    made = [peer.reply(ident) for ident in idents]
    peer.call("release", leases=[one["lease"] for one in made])
    peer.unmap(*{one["object"]["layout"]["data"]["segment"] for one in made})
    peer.call("trim")


def seal_held_back(daemon, busy, other):
    """Stops the supervisor until it takes no more, and the reply to a request to seal is held back."""
    for _ in range(10):
        os.kill(daemon.pid, signal.SIGSTOP)
        while other.call("stats")["handover"] == "kept":
            make_and_free(busy)
            lease = busy.create("held", bytes_layout(3 * MIB), b"h" * 3 * MIB, replace=True)["lease"]
            ident = busy.request("seal", lease=lease, release=True)
            for _ in range(10):  # each is served after the seal
                other.call("leases")
            if not select.select([busy.socket], [], [], 0)[0]:
                return ident
            busy.reply(ident)
        os.kill(daemon.pid, signal.SIGCONT)  # a busy machine: the second of grace was over before
        wait_until(lambda: other.call("stats")["handover"] == "kept")
    assert False, "never held back"


@pytest.mark.host_only("descriptors that wait in the socket of a stopped manager keep a GPU's memory")
# RELIABILITY.md: The daemon ends 22
def test_a_stopped_supervisor(supervised):
    """Nobody waits for it but, for a second, who is told that an object outlives the daemon. When it goes on
    it gets all that it missed."""
    daemon = supervised()
    busy, other = daemon.connect(), daemon.connect()
    other.put("before", b"b" * 100)
    ident = seal_held_back(daemon, busy, other)
    assert busy.reply(ident)["version"]
    wait_until(lambda: LATE in daemon.stderr())
    assert other.call("stats")["handover"] == "lost"
    for i in range(10):
        make_and_free(busy)
        busy.put(f"meanwhile/{i}", b"%d" % i * MIB)
    os.kill(daemon.pid, signal.SIGCONT)
    wait_until(lambda: other.call("stats")["handover"] == "kept")
    assert daemon.stderr().count("service manager responds again") == daemon.stderr().count(LATE)
    assert "journal discarded" not in daemon.stderr()
    daemon.crash()
    peer = daemon.connect()
    assert peer.names() == ["before", "held", *(f"meanwhile/{i}" for i in range(10))]
    assert peer.open_object("held").read() == b"h" * 3 * MIB
    for i in range(10):
        assert peer.open_object(f"meanwhile/{i}").read() == b"%d" % i * MIB


@pytest.mark.host_only("descriptors that wait in the socket of a stopped manager keep a GPU's memory")
# RELIABILITY.md: The daemon ends 23
def test_killed_beside_a_stopped_supervisor(supervised):
    """All that it had got is there, though the journal should have been written anew long ago. The rest is
    lost, and the log says so."""
    daemon = supervised()
    busy = daemon.connect()
    for i in range(50):
        busy.put(f"n{i}", b"x")
    os.kill(daemon.pid, signal.SIGSTOP)
    while LATE not in daemon.stderr():
        make_and_free(busy)
    for i in range(3000):
        busy.put(f"n{i % 50}", b"%d" % i, replace=True)
    assert len(journals(daemon.child)) == 2, "the new one waits for the supervisor"
    busy.put("new", b"n" * 20 * MIB)
    child = daemon.child
    os.kill(child, signal.SIGKILL)
    os.kill(daemon.pid, signal.SIGCONT)
    daemon.wait_for_another(child)
    peer = daemon.connect()
    assert sorted(peer.names()) == sorted(f"n{i}" for i in range(50))
    for i in range(50):
        assert peer.open_object(f"n{i}").read() == b"%d" % (2950 + i)
    assert "segment lost" in daemon.stderr() and "lost=1" in daemon.stderr()
    assert peer.call("stats")["handover"] == "kept"
    peer.put("new", b"again")
    daemon.crash()
    assert daemon.connect().open_object("new").read() == b"again"


@pytest.fixture
def subreaper():
    """This process gets what processes that end leave, and does not reap it."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    yield
    libc.prctl(36, 0, 0, 0, 0)


def test_ps_has_a_name_for_each_role(supervised):
    def titles(*pids):
        found = set()
        for pid in pids:
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/cmdline") as file:
                words = file.read().rstrip("\0").split("\0")
                found.add(words[0] + (", with options" if "--socket" in words else ""))
        return found

    daemon = supervised()
    assert titles(daemon.pid) == {"gpubufd: supervisor, with options"}
    assert titles(daemon.child) == {"gpubufd: daemon, with options"}
    wait_until(lambda: titles(*children_of(daemon.child)) == {"gpubufd: sweeper"})
    wait_until(lambda: titles(*children_of(children_of(daemon.child)[0])) == {"gpubufd: closer"})


@pytest.mark.parametrize("how", ["idle", "SIGINT"])
def test_a_daemon_that_ends_for_good_ends_its_supervisor(supervised, how):
    daemon = supervised("--idle-exit", "300" if how == "idle" else "600000")
    with Peer(daemon.path) as peer:
        peer.put("a", b"x")
        if how == "SIGINT":
            os.kill(daemon.child, signal.SIGINT)
            assert peer.notification("shutdown")["params"]["resume"] is False
    assert daemon.process.wait(DEADLINE) == 0
    assert not os.path.exists(daemon.path) and daemon.stderr().count("daemon started") == 1


# RELIABILITY.md: The daemon ends 26
def test_nothing_is_left_of_a_crashed_daemon(supervised, subreaper):
    """The supervisor reaps the daemon's helpers, also those of the last daemon when it stops."""
    daemon = supervised()
    left = []
    for _ in range(3):
        daemon.connect().call("stats")
        left += children_of(daemon.child)
        daemon.crash()
    assert left
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left))
    left = [daemon.pid, daemon.child, *children_of(daemon.child)]
    daemon.stop()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in left)


def test_a_program_that_does_not_start(supervised, directory):
    """It is tried more and more seldom, and nothing is lost meanwhile."""
    program = os.path.join(directory, "gpubufd")
    shutil.copy(GPUBUFD, program)
    daemon = supervised(program=program)
    daemon.connect().put("a", b"hello")
    with open(program + ".new", "w") as file:
        file.write("#!/bin/sh\necho started >&2\nexit 1\n")
    os.chmod(program + ".new", 0o755)
    os.rename(program, program + ".good")
    os.rename(program + ".new", program)
    begin = time.monotonic()
    os.kill(daemon.child, signal.SIGKILL)
    wait_until(lambda: daemon.stderr().count("started\n") >= 5)
    assert time.monotonic() - begin > 0.05 + 0.1 + 0.2 + 0.4
    os.rename(program + ".good", program)
    assert daemon.connect().open_object("a").read() == b"hello"


def test_without_a_manager(daemon, peer):
    """SIGHUP changes nothing where nobody keeps what a new daemon would need."""
    peer.put("a", b"b")
    daemon.process.send_signal(signal.SIGHUP)
    peer.call("stats")
    assert peer.names() == ["a"]
    wait_until(lambda: "handover refused" in daemon.stderr())


def test_what_looks_on_sees_it(supervised, gateway):
    """The gateway finds the daemon again, and tells of it by HTTP."""
    from http_client import get

    daemon = supervised()
    looks_on = gateway(daemon, "--http", "127.0.0.1:0")
    port = looks_on.port
    daemon.connect().put("kept", mode="0604")
    before = get(port, "/api/snapshot").json()
    assert before["seq"] == 1
    assert "\ngpubufd_crashes_survived_total 0\n" in get(port, "/metrics").text
    daemon.crash()
    looks_on.wait_for("connected instance=", 2)
    after = get(port, "/api/snapshot").json()
    assert after["instance"] == before["instance"] and after["seq"] > before["seq"] + 1_000_000
    assert [row[0] for row in get(port, "/api/objects").json()["objects"]] == ["kept"]
    assert "\ngpubufd_crashes_survived_total 1\n" in get(port, "/metrics").text
