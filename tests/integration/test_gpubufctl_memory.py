"""gpubufctl on what memory holds: spill, restore, why, ps, stats, top as text, doctor."""

import json
import os
import pathlib
import re
import resource
import socket
import subprocess

import pytest

import conftest
import device as test_device
from ctl import FAILED, GPUBUFCTL, NO_DAEMON, OK, TIMEOUT, USAGE, Ctl
from peer import DEADLINE, bytes_layout

MIB = 1 << 20
BELOW = "host" if test_device.ON_GPU else "disk"  # the first tier below the device


@pytest.fixture
def tiered(daemon_factory, directory, tmp_path):
    """gpubufctl on a daemon with tiers below its device, which makes no copies ahead."""
    place = os.path.join(directory, "spill")
    os.mkdir(place)
    options = ["--watermarks", "100:100", "--tier", f"disk:128M:{place}"]
    if test_device.ON_GPU:
        options += ["--tier", "host:64M"]
    daemon = daemon_factory(*options)
    ctl = Ctl(daemon.path, str(tmp_path))
    ctl.daemon = daemon
    ctl.put = lambda name, size, *words: ctl(
        "put", *words, name, ctl.file("content", os.urandom(size)))
    return ctl


def tier_of(ctl, name):
    return ctl.json("stat", name)["tier"]


def versions_of(ctl):
    return ctl.json("ls", "--versions")["objects"]


def test_spill_and_restore(tiered):
    for name in ("a", "b", "c"):
        tiered.put(name, 1000)
    assert tiered("spill", "a", "b") == ""
    assert [tier_of(tiered, name) for name in "abc"] == [BELOW, BELOW, "device"]
    tiered("spill", "--tier", "disk", "a", "c")
    assert [tier_of(tiered, name) for name in "abc"] == ["disk", BELOW, "disk"]
    tiered("restore", "a", "c")
    assert [tier_of(tiered, name) for name in "abc"] == ["device", BELOW, "device"]
    assert "nosuch" in tiered.fails(FAILED, "spill", "a", "nosuch", "c")
    assert [tier_of(tiered, name) for name in "ac"] == [BELOW, BELOW]  # all the same
    assert "nosuch" in tiered.fails(FAILED, "restore", "nosuch", "c")
    assert tier_of(tiered, "c") == "device"


def test_one_version(tiered):
    for label in ("one", "two", "three"):
        tiered.put("w", 1000, "-r", "--keep", "2", "--label", label)
    versions = {entry["label"]: entry["version"] for entry in versions_of(tiered)}

    def tiers():
        return [tiered.json("stat", "w", "--label", label)["tier"] for label in versions]

    assert list(versions) == ["three", "two", "one"]
    tiered("spill", "w", "--label", "one")
    tiered("spill", "w", "--version", str(versions["two"]))
    assert tiers() == ["device", BELOW, BELOW]
    tiered("restore", "w", "-v", str(versions["one"]))
    assert tiers() == ["device", BELOW, "device"]
    tiered("expire", "w", "1h", "--label", "one")
    assert [tiered.json("stat", "w", "-l", label)["ttl_ms"] for label in versions] == [0, 0, 3600000]
    tiered("rm", "w", "--label", "one")
    assert "one" in tiered.fails(FAILED, "rm", "w", "--label", "one")
    assert tiered("rm", "-f", "w", "--label", "one") == ""
    assert [entry["label"] for entry in versions_of(tiered)] == ["three", "two"]
    assert "w*" in tiered.fails(FAILED, "rm", "w*", "--label", "two")  # no pattern
    for words in (("--version", "0"), ("--version", "new"), ("--version", "1", "--label", "two"),
                  ("--label", "two", "--recursive")):
        tiered.fails(USAGE, "rm", "w", *words)
    tiered("rm", "w")
    assert versions_of(tiered) == []


def test_restore_waits_for_room(tiered):
    tiered.put("cold", 30 * MIB)
    tiered("spill", "cold")
    tiered.put("kept", 40 * MIB, "--evict", "keep")
    assert "has no room" in tiered.fails(FAILED, "restore", "cold")
    tiered.fails(TIMEOUT, "restore", "cold", "--wait", "30ms")
    tiered("rm", "kept")
    tiered("restore", "cold", "--wait", "20s")
    assert tier_of(tiered, "cold") == "device"


def test_wrong_usage(tiered):
    assert "tape" in tiered.fails(USAGE, "spill", "a", "--tier", "tape")
    assert "soon" in tiered.fails(USAGE, "restore", "a", "--wait", "soon")
    tiered.fails(USAGE, "spill")


# ---- why ---------------------------------------------------------------------------------------


def test_why_it_stays(tiered):
    tiered.put("a", 2000)
    tiered("alias", "b", "a", "--slice", "0:10")
    reader = tiered.daemon.connect()
    session = reader.call("hello", protocol=1, client="a reader")["session"]
    opened = reader.open_object("b")
    tiered("pin", "a")
    tiered.put("kept", 1, "--evict", "keep")
    told = tiered("why", "a")
    lines = told.splitlines()
    assert lines[0].startswith("a: 2.0 KiB of ") and lines[1] == "stays where it is:"
    assert re.match(rf"  leased +by session {session}: a reader, pid {os.getpid()}, user \S+, for "
                    r"[\d.]+ \S+, as b$", lines[3])
    assert re.match(r"  pinned +gpubufctl unpin a ends that$", lines[2])
    assert lines[4] == "other names of the same memory, with which it goes: b"
    assert len(lines) == 5
    assert re.search(r"^  keep +it was published with --evict keep$", tiered("why", "kept"), re.M)
    tiered.put("none", 0)
    assert tiered("why", "none").splitlines()[1:] == [
        "stays where it is:", "  empty      it has no bytes: evicting it makes no room"]
    assert tiered.json("why", "a")["evictable"] is False
    opened.release()
    tiered("unpin", "a")
    assert "may leave its device" in tiered("why", "a")
    assert "nosuch" in tiered.fails(FAILED, "why", "nosuch")
    assert "\x1b[3" in tiered("--color", "always", "why", "a")


def test_why_when_it_would_go(tiered):
    for name in "abc":
        tiered.put(name, 1000)
    tiered.put("dropped", 1000, "--evict", "drop")
    assert "may leave its device: it is the first of 4 such objects (4.0 KiB)" in tiered("why", "a")
    assert f"goes to the {BELOW} tier" in tiered("why", "a")
    told = tiered("why", "dropped")
    assert "may leave its device: 3 of 4 such objects go first (3.0 KiB of 4.0 KiB)" in told
    assert "may leave its device: 1 of 4 such objects go first (1.0 KiB of 4.0 KiB)" in tiered("why", "b")
    assert "it is gone: none of its names is to be kept" in told
    tiered("spill", "a", "--tier", "disk")
    told = tiered("why", "a")
    assert ", in the disk tier" in told.splitlines()[0] and "may leave its tier" not in told
    assert re.search(r"^  last_tier +cannot be evicted: there is no tier below", told, re.M), told


# ---- ps, stats ---------------------------------------------------------------------------------


def test_what_is_cached_is_told_apart(tiered):
    """Nobody is to take it for something that is held."""
    tiered.put("a", 20 * MIB)
    reader = tiered.daemon.connect()
    reader.call("hello", protocol=1, client="keeper", cache=True)
    opened = reader.open_object("a")
    reader.call("cache", leases=[opened.lease])
    (told,) = tiered.json("ps")["sessions"]
    assert (told["leases"], told["holds"], told["cached"], told["cached_bytes"]) == (0, 0, 1, 20 * MIB)
    assert re.search(r"keeper +cached, idle \S+ \S+ ", tiered("ps", "a"))
    why = tiered("why", "a")
    assert re.search(r"cached +by session \d+: keeper, .*, idle [\d.]+ \S+; it is asked", why)
    assert "may leave its device" in why
    assert re.search(r"leases +0\ncached +1 times", tiered("stat", "a"))
    reader.call("release", lease=opened.lease)


def test_ps_tells_what_sessions_hold_map_and_pin(tiered):
    assert tiered("ps") == "nobody holds anything\n"
    tiered.put("a", 20 * MIB)
    reader = tiered.daemon.connect()
    session = reader.call("hello", protocol=1, client="reader")["session"]
    opened = reader.open_object("a")
    (mapped,) = [m["bytes"] for m in reader.call("leases")["mapped"]]
    (told,) = tiered.json("ps")["sessions"]
    told.pop("group", None)  # of the test
    assert told == {"session": session, "pid": os.getpid(), "uid": os.geteuid(), "client": "reader",
                    "leases": 1, "holds": 20 * MIB, "cached": 0, "cached_bytes": 0,
                    "maps": mapped, "pins": 0}
    assert [(one["name"], one["client"]) for one in tiered.json("ps")["leases"]] == [("a", "reader")]
    assert tiered.json("ps", "other")["leases"] == []
    sessions, leases = tiered("ps").split("\n\n")
    assert sessions.splitlines()[0].replace(" group", "").split() == ["session", "pid", "user", "client", "leases",
                                                "holds", "caches", "maps", "pins"]
    assert sessions.splitlines()[1].split()[-9:] == ["1", "20", "MiB", "0", "B", "20", "MiB", "0",
                                                     "B"]
    header, line = leases.splitlines()
    assert header.split() == ["session", "pid", "user", "client", "access", "size", "age", "version", "name"]
    assert " reader " in line and f" {os.getpid()} " in line and " read " in line
    opened.release()
    tiered("rm", "a")
    tiered("call", "trim")
    (told,) = tiered.json("ps")["sessions"]
    assert (told["leases"], told["holds"], told["maps"], told["pins"]) == (0, 0, mapped, mapped)
    assert "asked back" in tiered("ps", "--mapped")
    assert tiered("ps", "a") == "no leases\n"


@pytest.mark.root
@pytest.mark.parametrize("path, told", [
    ("kubepods-burstable.slice/kubepods-burstable-pod1234abcd_00.slice/cri-1.scope", "pod1234abcd_00"),
    ("kubepods/burstable/pod5678ef-00/1", "pod5678ef-00"), ("libpod.slice/libpod-1.scope", "libpod-1.scope")])
def test_ps_tells_the_control_group(tiered, child, path, told):
    base = pathlib.Path("/sys/fs/cgroup/memory" if os.path.exists("/sys/fs/cgroup/memory") else "/sys/fs/cgroup")
    top = base / f"gpubufd-{os.getpid()}.slice"
    place = top / path
    try:
        place.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    tiered.put("a", 1000)

    def work(peer):
        (place / "cgroup.procs").write_text("0")
        peer.open_object("a")

    try:
        held = child(tiered.daemon, work)
        (session,) = tiered.json("ps")["sessions"]
        assert (session["pid"], session["group"]) == (held.pid, told)
        assert re.search(rf"group .*\n.* {re.escape(told)} ", tiered("ps"))
        held.kill()
    finally:
        for directory in [place, *place.parents]:
            if directory == base:
                break
            directory.rmdir()


def test_stats_by_what_they_are(tiered):
    tiered.put("a", 1000)
    tiered("spill", "a", "--tier", "disk")
    text = tiered("stats")
    tiers = text.split("\ntiers\n")[1].split("\n\n")[0]
    assert re.search(r"^  disk$", tiers, re.M) and re.search(r"capacity +128 MiB", tiers)
    users = text.split("\nusers\n")[1].split("\n\n")[0]
    assert re.search(r"used +\d+$", users, re.M), "sessions are no bytes"
    assert not re.search(r"(host|GPU-\S+).*\1", users), "a device is named once a row"
    assert re.search(r"none$", users, re.M), "no quota"


# ---- top, where there is no terminal -----------------------------------------------------------


def test_top_once(tiered):
    for i, size in enumerate((1000, 30000, 200)):
        tiered.put(f"o/{i}", size)
    tiered("spill", "o/0", "--tier", "disk")
    reader = tiered.daemon.connect()
    reader.call("hello", protocol=1, client="dashboard")
    reader.open_object("o/2")
    text = tiered("top", env={"COLUMNS": "100"})
    assert tiered("top", "--once", env={"COLUMNS": "100"}).splitlines()[1] == text.splitlines()[1]
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 100
    head, objects, sessions, users = text.split("\n\n")
    assert head.startswith("gpubufd ") and "objects 3" in head.splitlines()[0]
    assert re.search(r"^tier disk +█*░+ +128 MiB$", head, re.M)
    assert objects.splitlines()[0] == "Objects 3, by size"
    assert [line.split()[-1] for line in objects.splitlines()[2:]] == ["o/1", "o/0", "o/2"]
    assert "in use" in objects.splitlines()[4] and "disk" in objects.splitlines()[3]
    assert sessions.splitlines()[2].split()[-1] == "dashboard"
    assert users.splitlines()[0] == "Users 1" and len(users.splitlines()) == 3
    assert len(tiered("top", "-n", "1").split("\n\n")[1].splitlines()) == 3
    idle = tiered("top", "--sort", "idle").split("\n\n")[1].splitlines()
    assert idle[0] == "Objects 3, longest idle first"
    assert [line.split()[-1] for line in idle[2:]] == ["o/0", "o/1", "o/2"]
    recent = tiered("top", "--sort", "recent").split("\n\n")[1].splitlines()
    assert [line.split()[-1] for line in recent[2:]] == ["o/2", "o/1", "o/0"]


def test_top_on_narrow_terminals(tiered):
    """Columns go before names are cut to nothing."""
    tiered.put("sales/prices", 5000)
    reader = tiered.daemon.connect()
    reader.open_object("sales/prices")
    headers = {}
    for width in (40, 60, 80, 120):
        blocks = tiered("top", env={"COLUMNS": str(width)}).split("\n\n")
        assert max(len(line) for block in blocks for line in block.splitlines()) <= width
        assert blocks[1].splitlines()[2].endswith("  sales/prices")
        headers[width] = [block.splitlines()[1].split() for block in blocks[1:]]
    objects, sessions, users = headers[40]
    assert objects == ["size", "idle", "leases", "name"]
    assert sessions == ["pid", "leases", "holds", "client"]
    assert users == ["user", "objects", "used", "held"]
    assert headers[60][0] == ["size", "idle", "tier", "leases", "short", "name"]
    assert headers[80][0] == ["size", "idle", "tier", "leases", "short", "kind", "name"]
    assert headers[120][0] == ["size", "idle", "tier", "leases", "short", "device", "user", "version", "kind", "name"]


def test_top_adds_up(tiered):
    tiered.put("a", 20 * MIB)
    tiered.put("b", 5000)
    reader = tiered.daemon.connect()
    reader.open_object("a").release()
    tiered("rm", "a")
    tiered("call", "trim")
    told = tiered.json("top")
    for device in told["devices"]:
        assert device["capacity"] == (device["free"] + device["used"] + device["retained"]
                                      + device["pinned_by_clients"])
    assert told["devices"][0]["pinned_by_clients"] == sum(s["pins"] for s in told["sessions"]) > 0
    for tier in told["tiers"]:
        assert tier["capacity"] == tier["free"] + tier["used"]
    assert [o["name"] for o in told["objects"]] == ["b"]
    assert told["devices"][0]["name"] == ("cuda:0" if test_device.ON_GPU else "host")


def test_top_of_more_than_a_page(tiered):
    peer = tiered.daemon.connect()
    for i in range(600):
        peer.create_object(f"o/{i:04}", bytes_layout(1 + i * 7919 % 600))
    told = tiered.json("top", "-n", "300")["objects"]
    assert [o["bytes"] for o in told] == list(range(600, 300, -1))
    assert "Objects 600, by size" in tiered("top")


def test_top_usage(tiered):
    tiered.fails(USAGE, "top", "--sort", "name")
    tiered.fails(USAGE, "top", "--interval", "10ms")
    tiered.fails(USAGE, "top", "--rows", "x")
    nowhere = os.path.join(tiered.directory, "nobody")
    assert nowhere in tiered.fails(NO_DAEMON, "--socket", nowhere, "top")


# ---- doctor ------------------------------------------------------------------------------------


def findings(ctl, *words, **settings):
    """(exit status, {part: [finding, …]})."""
    done = ctl.raw("--json", *words, "doctor", **settings)
    assert done.stderr == b""
    told = json.loads(done.stdout)
    assert told["healthy"] == (done.returncode == OK) == all(
        f["health"] != "fail" for f in told["findings"])
    parts = {}
    for finding in told["findings"]:
        assert finding["health"] == "ok" or finding.get("advice"), finding
        parts.setdefault(finding["part"], []).append(finding)
    return done.returncode, parts


def test_doctor_of_a_healthy_daemon(tiered):
    status, parts = findings(tiered)
    assert status == OK
    assert set(parts) == {"socket", "version", "descriptors", "memory", "driver", "limits", "system"}
    (socket_,) = parts["socket"]
    assert f"pid {tiered.daemon.pid}" in socket_["text"] and "$GPUBUFD_SOCKET" in socket_["text"]
    assert len(parts["memory"]) == (3 if test_device.ON_GPU else 2)  # the device and its tiers
    if test_device.ON_GPU:
        assert any("the daemon serves it" in f["text"] for f in parts["driver"])
    text = tiered("doctor")
    assert re.search(r"^ok    socket    ", text, re.M) and "\x1b" not in text


def test_doctor_without_a_daemon(tiered, tmp_path):
    nowhere = str(tmp_path / "nobody")
    status, parts = findings(tiered, "--socket", nowhere)
    assert status == FAILED
    assert parts["socket"][0]["health"] == "fail" and nowhere in parts["socket"][0]["text"]
    assert "memory" not in parts and parts["limits"], "it goes on all the same"
    file = tiered.file("file", b"")
    assert "no socket" in findings(tiered, "--socket", file)[1]["socket"][0]["text"]
    stale = str(tmp_path / "stale")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(stale)
    assert "nobody listens" in findings(tiered, "--socket", stale)[1]["socket"][0]["text"]


def test_doctor_of_another_server(tiered, tmp_path):
    """Something listens there that is no gpubufd."""
    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(5)
        process = tiered.start("--json", "-S", path, "doctor", stdout=subprocess.PIPE)
        server.settimeout(DEADLINE)
        server.accept()[0].close()  # which looks who it is
        with server.accept()[0] as session:
            session.recv(65536)
            session.sendall(b"220 mail.example ESMTP\r\n")
            out = process.communicate(timeout=DEADLINE)[0]
    assert process.returncode == FAILED
    (finding,) = [f for f in json.loads(out)["findings"] if f["part"] == "daemon"]
    assert finding["health"] == "fail" and "is it gpubufd" in finding["advice"]


def test_doctor_tells_who_holds_most(tiered):
    tiered.put("a", 30 * MIB)
    tiered.put("b", 30 * MIB)
    reader = tiered.daemon.connect()
    session = reader.call("hello", protocol=1, client="hog")["session"]
    opened = [reader.open_object(name) for name in "ab"]
    status, parts = findings(tiered)
    finding = parts["memory"][0]
    assert status == OK and finding["health"] == "warn", "a warning is no failure"
    assert f"session {session} (hog, pid {os.getpid()})" in finding["advice"]
    for one in opened:
        one.release()
    tiered("rm", "a", "b")
    tiered("call", "trim")
    finding = findings(tiered)[1]["memory"][1]
    assert "60 MiB were given back but are still mapped" in finding["text"]
    assert f"session {session} (hog" in finding["advice"]


def few_descriptors(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_doctor_of_few_descriptors(tiered):
    out = tiered.start("doctor", preexec_fn=few_descriptors(64), stdout=subprocess.PIPE).communicate(timeout=DEADLINE)[0].decode()
    assert re.search(r"^warn  limits +this process may have 64 descriptors open\n +-> .*ulimit", out, re.M)


@pytest.mark.root
def test_doctor_of_a_daemon_with_few_descriptors(daemon_factory, tmp_path):
    daemon = daemon_factory("--mode", "0666", preexec_fn=few_descriptors(256))
    os.chmod(daemon.directory, 0o755)
    ctl = Ctl(daemon.path, str(tmp_path))
    _, parts = findings(ctl)
    assert "may open 256" in parts["descriptors"][0]["text"] and parts["descriptors"][0]["health"] == "warn"
    assert [f["health"] for f in parts["descriptors"][1:]] == ["ok", "ok"]
    peers = [daemon.connect_as(uid, uid) for uid in (1001, 1002) for _ in range(50 if uid == 1001 else 40)]
    peers += [daemon.connect() for _ in range(10)]
    peers[-1].call("stats")
    _, parts = findings(ctl)
    assert re.match(r"10\d of the 176 ", parts["descriptors"][1]["text"])
    assert parts["descriptors"][1]["health"] == "warn"


@pytest.mark.root
def test_doctor_of_somebody_who_may_not_connect(tiered):
    os.chmod(tiered.path, 0o600)
    os.chmod(tiered.daemon.directory, 0o755)
    program = conftest.runs_as(1001, GPUBUFCTL, tiered.daemon.directory)
    done = subprocess.run([program, "--json", "doctor"], env=tiered.env, user=1001,
                          group=1001, extra_groups=[], timeout=DEADLINE, stdout=subprocess.PIPE,
                          check=False)
    assert done.returncode == FAILED
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["part"] == "socket"]
    assert "you may not connect" in finding["text"] and "--mode" in finding["advice"]
