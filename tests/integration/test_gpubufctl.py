"""The command line against a real daemon: every command, what it prints, how it fails."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import stat as stat_module
import struct
import subprocess
import termios
import threading
import time

import numpy
import pytest

import device as test_device
from conftest import BUILD, ROOT
from ctl import FAILED, GPUBUFCTL, NO_DAEMON, OK, TIMEOUT, USAGE, Ctl, bytes_of_npy
from peer import DEADLINE

DATA = ROOT / "examples" / "data"


# ---- options of put ----------------------------------------------------------------------------


def test_put_options(ctl):
    path = ctl.file("f", b"12345678")
    ctl("put", "a", path, "--mode", "640", "--ttl", "1h", "--evict", "drop", "--device",
        test_device.ID,
        "--share", "fd", "--wait", "1s")
    object_ = ctl.json("stat", "a")
    assert (object_["mode"], object_["ttl_ms"], object_["evict"]) == ("0640", 3600000, "drop")
    assert object_["device"] == test_device.ID and object_["share"] == "fd"
    assert "cannot create a" in ctl.fails(FAILED, "put", "a", path)
    version = ctl.json("stat", "a")["version"]
    assert ctl.json("put", "--replace", "a", path)["version"] > version
    for wrong in (("--mode", "999"), ("--ttl", "soon"), ("--evict", "never"), ("--share", "air"),
                  ("--kind", "thing"), ("--format", "pdf"), ("--wait", "-1")):
        ctl.fails(USAGE, "put", "b", path, *wrong)
    ctl.fails(FAILED, "put", "b", path, "--device", "nosuch")
    assert ctl.names() == ["a"]


@pytest.mark.host_only("memory of a GPU cannot be final")
def test_put_final(ctl):
    path = ctl.file("f", b"12345678")
    ctl("put", "--final", "a", path)
    ctl("put", "b", path)
    assert ctl.json("stat", "a")["final"] is True and "final" not in ctl.json("stat", "b")
    assert "final" in ctl("stat", "a") and "final" not in ctl("stat", "b")
    assert "final" in ctl("why", "a")


@pytest.mark.host_only("the daemon of the other tests has memory of the GPU meanwhile")
def test_put_too_much(daemon, tmp_path):
    ctl = Ctl(daemon.path, str(tmp_path))
    path = ctl.file("big", b"")
    os.truncate(path, 100 << 20)
    ctl.fails(FAILED, "put", "a", path)
    assert "cannot create b" in ctl.fails(
        FAILED, "put", "b", "/dev/null", "--dtype", "int8", "--shape", "999999999999")
    assert ctl.names() == []


def test_interrupted_put_leaves_nothing(ctl, shared_daemon):
    process = subprocess.Popen(
        [str(GPUBUFCTL), "put", "x", "-", "--dtype", "int8", "--shape", "1000000"],
        stdin=subprocess.PIPE, env=ctl.env)
    process.stdin.write(b"1" * 1000)
    process.stdin.flush()
    end = time.monotonic() + DEADLINE
    while not ctl.json("ps")["leases"]:
        assert time.monotonic() < end
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == -signal.SIGINT
    process.stdin.close()
    while ctl.json("ps")["leases"]:
        assert time.monotonic() < end
    assert ctl.names() == []


# ---- get ---------------------------------------------------------------------------------------


def test_get_parts(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"n,s\n1,a\n,b\n3,\n4,d\n5,e\n")
    assert ctl("get", "t", "--slice", "1:3") == "n,s\n,b\n3,\n"
    assert ctl("get", "t", "--slice=-1:") == "n,s\n5,e\n"
    assert ctl("get", "t", "-s", "3:1") == "n,s\n"
    assert ctl("get", "t", "-c", "s", "-f", "csv", "-s", "2:") == "s\n\nd\ne\n"
    assert ctl.raw("get", "t", "-c", "n", "-s", "3:").stdout == numpy.array([4, 5]).tobytes()
    assert ctl.raw("get", "t", "-c", "s", "-s", "1:").stdout == b"bde"
    assert "no column" in ctl.fails(FAILED, "get", "t", "--column", "x", "-f", "csv")
    assert "is a table" in ctl.fails(FAILED, "get", "t", "-o", "t.npy")
    assert "is a table" in ctl.fails(FAILED, "get", "t", "-o", "t.raw")
    assert "1 of its elements" in ctl.fails(FAILED, "get", "t", "-c", "n", "-o", "n.npy")
    ctl.fails(USAGE, "get", "t", "-s", "x")
    ctl.fails(USAGE, "get", "t", "-f", "pdf")
    assert os.listdir(ctl.directory) == []


def test_get_columns_as_npy(ctl):
    ctl("put", "t", "-", "-f", "csv",
        input=b"i,f,b\n1,0.5,true\n2,,false\n3,-1,true\n4,2,true\n5,2,true\n6,2,true\n"
              b"7,2,true\n8,2,true\n9,2,false\n10,2,true\n")
    for column, part, expected in [
        ("i", ":", numpy.arange(1, 11)),
        ("i", "2:5", numpy.array([3, 4, 5])),
        ("f", ":4", numpy.array([0.5, numpy.nan, -1, 2])),
        ("b", ":", numpy.array([1, 0, 1, 1, 1, 1, 1, 1, 0, 1], dtype="?")),
        ("b", "1:9", numpy.array([0, 1, 1, 1, 1, 1, 1, 0], dtype="?")),
    ]:
        ctl("get", "t", "-c", column, "-s", part, "-o", "out.npy")
        back = numpy.load(os.path.join(ctl.directory, "out.npy"))
        assert back.dtype == expected.dtype
        assert numpy.array_equal(back, expected, equal_nan=expected.dtype.kind == "f")


def test_get_arrays_as_csv(ctl):
    for array, text in [
        (numpy.array(1.5), "value\n1.5\n"),
        (numpy.array([1, 2], dtype="i2"), "value\n1\n2\n"),
        (numpy.array([[1, 2, 3], [4, 5, 6]]), "0,1,2\n1,2,3\n4,5,6\n"),
        (numpy.array([0.1, 1e300, numpy.nan], dtype="f8"), "value\n0.1\n1e+300\nnan\n"),
        (numpy.array([0.1], dtype="f4"), "value\n0.1\n"),
        (numpy.array([1 + 2j]), "value\n1.0+2.0j\n"),
        (numpy.array([True, False]), "value\ntrue\nfalse\n"),
        (numpy.array(["2012-01-01T12:30:00.5"], dtype="M8[ms]"),
         "value\n2012-01-01T12:30:00.500\n"),
        (numpy.array(["NaT"], dtype="M8[s]"), "value\nNaT\n"),
        (numpy.array([90], dtype="m8[s]"), "value\nPT90S\n"),
        (numpy.array([b"ab\0"], dtype="S3"), "value\n616200\n"),
    ]:
        ctl("put", "-r", "a", ctl.file("in.npy", bytes_of_npy(array)))
        assert ctl("get", "a", "-f", "csv") == text
    ctl("put", "-r", "a", ctl.file("in.npy", bytes_of_npy(numpy.zeros((2, 2, 2)))))
    assert "one or two axes" in ctl.fails(FAILED, "get", "a", "-f", "csv")


def test_get_writes_whole_files_or_none(ctl):
    ctl("put", "a", ctl.file("f", b"new content"))
    target = ctl.file("target", b"old content, and longer")
    os.chmod(target, 0o640)
    ctl("get", "a", "-o", "target")
    assert open(target, "rb").read() == b"new content"
    assert stat_module.S_IMODE(os.stat(target).st_mode) == 0o640
    os.symlink("target", os.path.join(ctl.directory, "link"))
    ctl("put", "-r", "a", ctl.file("f", b"newer"))
    ctl("get", "a", "-o", "link")
    assert os.path.islink(os.path.join(ctl.directory, "link"))
    assert open(target, "rb").read() == b"newer"
    ctl.fails(FAILED, "get", "nosuch", "-o", "target")
    ctl.fails(FAILED, "get", "a", "-o", "target.csv")
    assert open(target, "rb").read() == b"newer"
    assert "is a directory" in ctl.fails(FAILED, "get", "a", "-o", ctl.directory)
    assert "No such file" in ctl.fails(FAILED, "get", "a", "-o", "nowhere/x")
    assert "No space" in ctl.fails(FAILED, "get", "a", "-o", "/dev/full")
    assert sorted(os.listdir(ctl.directory)) == ["f", "link", "target"]
    mask = os.umask(0o077)
    try:
        ctl("get", "a", "-o", "fresh")
    finally:
        os.umask(mask)
    assert stat_module.S_IMODE(os.stat(os.path.join(ctl.directory, "fresh")).st_mode) == 0o600


def test_get_waits(ctl):
    started = time.monotonic()
    ctl.fails(TIMEOUT, "get", "later", "--wait", "100ms")
    assert time.monotonic() - started >= 0.09
    process = subprocess.Popen([str(GPUBUFCTL), "get", "later", "-w", "60"], env=ctl.env,
                               stdout=subprocess.PIPE)
    ctl("put", "later", ctl.file("f", b"here"))
    assert process.communicate(timeout=DEADLINE)[0] == b"here"
    assert process.returncode == OK


def test_get_a_version(ctl):
    ctl("put", "a", ctl.file("f", b"one"))
    old = ctl.json("stat", "a")["version"]
    assert ctl.raw("get", "a", "-v", str(old)).stdout == b"one"
    ctl("put", "-r", "a", ctl.file("f", b"two"))
    ctl.fails(FAILED, "get", "a", "-v", str(old))
    ctl.fails(USAGE, "get", "a", "-v", "one")


# ---- looking -----------------------------------------------------------------------------------


def test_show(ctl):
    ctl("put", "t", "-", "-f", "csv", input="n,text,f\n1,日本,1.5\n,\"a\nb\",\n30,x,2\n".encode())
    assert ctl("show", "t") == (
        f"t  table, 3 rows × 3 columns · version {ctl.json('stat', 't')['version']}, "
        f"{test_device.ID}\n"
        "  column  type     nulls\n"
        "  n       int64        1\n"
        "  text    utf8         0\n"
        "  f       float64      1\n"
        "\n"
        "     n  text     f\n"
        "     1  日本   1.5\n"
        "  null  a\\nb  null\n"
        "    30  x      2.0\n"
    )
    assert ctl("show", "t", "-n", "1").endswith("… 2 more rows\n")
    assert ctl("show", "t", "-n", "0").count("\n") == 5
    assert "30" in ctl("show", "t", "-c", "n", "-s", "2:")
    ctl.fails(USAGE, "show", "t", "-n", "many")
    ctl.fails(FAILED, "show", "nosuch")


@pytest.mark.host_only("the name of a GPU is longer than the narrow lines of this test")
def test_show_arrays_and_bytes(ctl):
    ctl("put", "a", ctl.file("in.npy", bytes_of_npy(numpy.arange(200).reshape(2, 100))))
    text = ctl("show", "a", env={"COLUMNS": "80"})
    assert "array of int64, 2 × 100" in text and "more to the right" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    ctl("put", "z", ctl.file("in.npy", bytes_of_npy(numpy.zeros((0, 3)))))
    assert "0 × 3" in ctl("show", "z")
    ctl("put", "s", ctl.file("in.npy", bytes_of_npy(numpy.array(7))))
    assert "no axes" in ctl("show", "s")
    ctl.fails(FAILED, "show", "s", "-s", "0:1")
    ctl("put", "b", ctl.file("f", b"Hello\x00\x1b world, hello!"))
    assert "48 65 6c 6c 6f 00 1b" in ctl("show", "b")
    assert "\x1b" not in ctl("show", "b")


def test_show_fits_the_width(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    for width in (40, 80, 132):
        text = ctl("show", "movies", env={"COLUMNS": str(width)})
        assert all(len(line) <= width for line in text.splitlines()[1:])
        assert "more columns to the right" in text


def test_ls(ctl):
    assert ctl("ls") == ""
    assert ctl.json("ls") == {"objects": []}
    for name in ("a/one", "a/two", "b"):
        ctl("put", name, ctl.file("f", b"x" * 2048))
    ctl("pin", "b")
    assert ctl("ls", "--names") == "a/one\na/two\nb\n"
    assert ctl("ls", "a/", "-1") == "a/one\na/two\n"
    assert "2.0 KiB" in ctl("ls") and "pinned" in ctl("ls")
    long = ctl("ls", "-l").splitlines()
    assert long[0].split() == ["mode", "user", "device", "tier", "share", "size", "age", "version",
                               "leases", "short", "name", "notes"]
    assert [line.split()[11] for line in long[1:]] == ["spills", "spills", "stays"]
    assert len(long) == 4 and {line.split()[3] for line in long[1:]} == {"device"}
    objects = ctl.json("ls", "b")["objects"]
    assert len(objects) == 1 and objects[0]["pinned"] is True and objects[0]["bytes"] >= 2048
    again = json.loads(ctl("ls", "--json", "b"))["objects"]  # on either side
    for one in objects + again:
        one.pop("idle_ms")
    assert again == objects


def test_ls_more_than_a_page(ctl, shared_daemon):
    peer = shared_daemon.connect()
    for i in range(1203):
        made = peer.call("create", name=f"n{i:05}", layout={"kind": "bytes", "bytes": 1})
        peer.call("seal", lease=made["lease"], release=True)
    assert len(ctl.json("ls")["objects"]) == 1203
    names = ctl("ls", "--names").splitlines()
    assert len(names) == 1203 and names == sorted(names)
    ctl("rm", *names)
    assert ctl.names() == []


def test_stat(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"a\n1\n")
    assert ctl.json("stat", "t")["layout"]["kind"] == "table"
    text = ctl("stat", "t")
    assert "table, length 1, 1 columns" in text and "sealed" in text
    ctl.fails(FAILED, "stat", "nosuch")


def test_rm_pin_unpin(ctl):
    for name in ("a", "b", "c"):
        ctl("put", name, ctl.file("f", b"x"))
    ctl("pin", "a", "b")
    assert ctl.json("stat", "a")["pinned"] and ctl.json("stat", "b")["pinned"]
    ctl("unpin", "a")
    assert not ctl.json("stat", "a")["pinned"]
    assert "nosuch" in ctl.fails(FAILED, "rm", "a", "nosuch", "c")
    assert ctl.names() == ["b"]
    assert ctl("rm", "-f", "b", "nosuch") == ""
    ctl.fails(FAILED, "pin", "nosuch")
    ctl.fails(FAILED, "unpin", "nosuch")


def test_alias(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b'n,s,"a,b"\n1,a,x\n2,b,y\n3,c,z\n')
    ctl("alias", "part", "t", "--slice=-2:", "--columns", "a\\,b,n", "--mode", "400")
    assert ctl("get", "part") == '"a,b",n\ny,2\nz,3\n'
    assert ctl.json("stat", "part")["mode"] == "0400"
    ctl.fails(FAILED, "alias", "part", "t")
    ctl("alias", "part", "t", "--replace")
    assert ctl("get", "part") == ctl("get", "t")
    ctl.fails(FAILED, "alias", "x", "t", "--columns", "nosuch")
    ctl.fails(FAILED, "alias", "x", "nosuch")
    ctl.fails(USAGE, "alias", "x", "t", "--slice", "?")
    ctl("rm", "t")
    assert ctl("get", "part").startswith("n,s")


def test_ps(ctl, shared_daemon):
    ctl("put", "t", ctl.file("f", b"x"))
    assert ctl.json("ps")["leases"] == []
    peer = shared_daemon.connect()
    peer.call("hello", protocol=1, client="a reader")
    peer.call("open", name="t")
    leases = ctl.json("ps")["leases"]
    assert [(one["name"], one["client"], one["pid"]) for one in leases] == [
        ("t", "a reader", os.getpid())
    ]
    text = ctl("ps", "t").splitlines()
    assert text[0].split() == ["session", "pid", "user", "client", "access", "size", "age",
                               "version", "name"]
    assert "a reader" in text[1] and str(os.getpid()) in text[1] and "read" in text[1]
    assert "mapped" in ctl("ps", "--mapped")
    assert ctl.json("ps", "other")["leases"] == []
    peer.close()


def test_watch(ctl):
    ctl("put", "there", ctl.file("f", b"x"))
    process = subprocess.Popen([str(GPUBUFCTL), "watch", "--json"], env=ctl.env,
                               stdout=subprocess.PIPE)
    received = b""

    def event():
        nonlocal received
        while b"\n" not in received:
            assert select.select([process.stdout], [], [], DEADLINE)[0]
            received += os.read(process.stdout.fileno(), 65536)
        line, received = received.split(b"\n", 1)
        return json.loads(line)

    try:
        first = event()
        assert (first["kind"], first["object"]["name"]) == ("sealed", "there")
        assert event() == {"kind": "synced"}
        ctl("put", "new", ctl.file("f", b"x"))
        one = event()
        assert (one["kind"], one["object"]["name"]) == ("sealed", "new")
        ctl("rm", "new")
        assert event()["kind"] == "deleted"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
        process.stdout.close()
    assert len(ctl("watch", "-n", "2").splitlines()) == 2
    assert ctl("watch", "--new", "--for", "50ms") == ""
    assert "sealed" in ctl("watch", "the", "-n", "1")


def test_watch_ends_when_its_reader_does(ctl):
    process = subprocess.Popen([str(GPUBUFCTL), "watch"], env=ctl.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert select.select([process.stdout], [], [], DEADLINE)[0]
    process.stdout.close()
    assert process.wait(DEADLINE) == OK
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.host_only("the daemon of the other tests has memory of the GPU meanwhile")
def test_watch_ends_when_the_daemon_does(daemon, tmp_path):
    ctl = Ctl(daemon.path, str(tmp_path))
    process = subprocess.Popen([str(GPUBUFCTL), "watch"], env=ctl.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert select.select([process.stdout], [], [], DEADLINE)[0]
    daemon.stop()
    out, error = process.communicate(timeout=DEADLINE)
    assert process.returncode == NO_DAEMON
    assert re.fullmatch(rb"gpubufctl: [^\n]+\n", error)


def test_stats_trim_describe_call(ctl):
    stats = ctl.json("stats")
    told = ctl("stats")
    assert stats["devices"] and "capacity" in told
    assert re.search(rf"^events so far +{stats['seq']}$", told, re.M), told
    assert re.search(r"^uptime +[\d.]+ s$", told, re.M) and "_ms" not in told and "_us" not in told, told
    assert "freed" in ctl.json("trim")
    assert ctl("trim", "--device", test_device.ID, "--bytes", "1M").endswith(" freed\n")
    ctl.fails(USAGE, "trim", "--bytes", "lots")
    ctl.fails(FAILED, "trim", "--device", "nosuch")
    described = json.loads(ctl("describe"))
    assert described == json.loads((ROOT / "proto" / "protocol.json").read_text())
    assert json.loads(ctl("call", "list"))["objects"] == []
    assert json.loads(ctl("call", "list", '{"limit": 5}'))["objects"] == []
    assert "nosuch" in ctl.fails(FAILED, "call", "nosuch")
    ctl.fails(FAILED, "call", "list", '{"limit": "x"}')
    ctl.fails(FAILED, "call", "open", '{"name": "x"}')
    ctl.fails(USAGE, "call", "list", '{"limit": ')
    ctl.fails(USAGE, "call", "list", "[]")
    assert ctl.fails(FAILED, "call", "stat", "{}") == "gpubufctl: stat: params.name: missing\n"


# ---- the frame ---------------------------------------------------------------------------------

COMMANDS = ("put", "create", "write", "get", "save", "load", "show", "ls", "stat", "rm", "pin", "unpin", "expire",
            "spill", "restore", "alias", "mv", "cp", "why", "where", "ps", "top", "watch", "tail", "events", "stats", "trim",
            "ping", "doctor", "call", "describe", "completion", "help", "version")


def test_help(ctl):
    general = ctl("--help")
    manual = (ROOT / "docs/man/gpubufctl.1.scd").read_text()
    for command in COMMANDS:
        assert re.search(rf"^\*{command}\*|, \*{command}\*", manual, re.MULTILINE), command
        assert re.search(rf"^  {command}\b", general, re.MULTILINE)
        own = ctl(command, "--help")
        assert own.startswith(f"usage: gpubufctl {command}")
        assert ctl(command, "-h") == own
        assert max(map(len, own.splitlines())) <= 80
    assert max(map(len, general.splitlines())) <= 80
    assert re.fullmatch(r"gpubufctl \d+\.\d+\.\d+\n", ctl("--version"))


def test_usage(ctl):
    for words in [(), ("nosuch",), ("--nosuch",), ("ls", "--nosuch"), ("ls", "-x"), ("ls", "a", "b"),
                  ("put",), ("put", "a"), ("get",), ("rm",), ("get", "a", "-o"),
                  ("--color", "pink", "ls"), ("ls", "--long=yes"), ("completion", "tcsh"),
                  ("--socket",), ("ping", "x"), ("ping", "--wait", "soon")]:
        assert "--help" in ctl.fails(USAGE, *words)
    assert "\x1b" not in ctl.fails(USAGE, "\x1b[31mred")


def test_no_daemon(ctl, tmp_path):
    nowhere = str(tmp_path / "nobody")
    for words in [("ls",), ("stat", "a"), ("show", "a"), ("get", "a"), ("rm", "a"), ("ps",),
                  ("watch",), ("stats",), ("ping",), ("ping", "--wait", "50ms"), ("put", "a", "/dev/null"), ("call", "list")]:
        assert nowhere in ctl.fails(NO_DAEMON, "--socket", nowhere, *words)
        assert nowhere in ctl.fails(NO_DAEMON, *words, "--socket", nowhere)


def test_ping(ctl):
    assert re.fullmatch(r"gpubufd \d+\.\d+\.\d+ answers\n", ctl("ping"))
    assert ctl("ping") == ctl("ping", "--wait", "5s") == ctl("ping", "-w", "0")
    assert ctl.json("ping") == {"server": ctl.json("stats")["server"]}


def test_ping_waits(ctl, tmp_path):
    """For a socket that is not there, for one that nobody listens on, and for an answer."""
    path = str(tmp_path / "later")
    words = [str(GPUBUFCTL), "ping", "--socket", path, "--wait", f"{DEADLINE}s"]
    process = subprocess.Popen(words, env=ctl.env, stdout=subprocess.PIPE)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        ctl.fails(NO_DAEMON, "--socket", path, "ping")
        silent.listen()
        sentence = ctl.fails(NO_DAEMON, "--socket", path, "ping", "--wait", "100ms")
        assert "not answered in time" in sentence
        for _ in range(2):  # the one that waits, and the one that no longer does
            silent.accept()[0].close()
    os.unlink(path)
    assert process.poll() is None
    os.symlink(ctl.path, path)
    assert process.communicate(timeout=DEADLINE)[0] == ctl("ping").encode()
    assert process.returncode == OK


def test_closed_pipe_and_full_disk(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    process = subprocess.Popen([str(GPUBUFCTL), "get", "movies"], env=ctl.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(DEADLINE) == OK
    process.stderr.close()
    for words in [("get", "movies"), ("ls",), ("show", "movies"), ("--json", "stats"), ("--help",)]:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(GPUBUFCTL), *words], env=ctl.env, stdout=full,
                                  stderr=subprocess.PIPE, timeout=DEADLINE)
        assert done.returncode == FAILED
        assert b"No space left" in done.stderr


def open_terminal():
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal to be had here: {error}")  # a chroot without /dev/pts


def on_terminal(ctl, *words, env=None, columns=80):
    """Output of a command on a terminal."""
    parent, child = open_terminal()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([str(GPUBUFCTL), *words], stdin=subprocess.DEVNULL, stdout=child,
                               stderr=child, env={**ctl.env, "TERM": "xterm", **(env or {})})
    os.close(child)
    text = b""
    while True:
        assert select.select([parent], [], [], DEADLINE)[0]
        try:
            got = os.read(parent, 65536)
        except OSError:
            break
        if not got:
            break
        text += got
    os.close(parent)
    return process.wait(DEADLINE), text.decode()


EVIL = "\x1b[2J\x7f\u009b2J\u202egnp.exe\u2066\u2028"  # clears the screen, turns text around


def test_no_text_of_others_moves_the_cursor(ctl, shared_peer):
    """Metadata is theirs. JSON has the same value, escaped."""
    column = {"name": "a", "dtype": "int8", "length": 1, "metadata": {"m": EVIL}}
    shared_peer.create_object("evil", {"kind": "table", "length": 1, "columns": [column]})
    for words in (["stat", "evil"], ["stat", "evil", "--json"], ["call", "stat", '{"name":"evil"}'], ["ls", "--json"],
                  ["show", "evil"], ["ls", "--versions"], ["show", "evil", "--json"]):
        status, text = on_terminal(ctl, "--color=never", *words)
        assert status == 0 and not set(text) & set(EVIL) - set("[2Jgnp.exe"), (words, text)
    layout = json.loads(ctl("call", "stat", '{"name":"evil"}'))["object"]["layout"]
    assert layout["columns"][0]["metadata"]["m"] == EVIL


def test_nor_does_the_name_of_what_answers(ctl, shared_daemon, tmp_path):
    path = str(tmp_path / "between")

    def relay(listener):
        near, _ = listener.accept()
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(shared_daemon.path)
            while select.select([near, far], [], []):
                for one, other in ((near, far), (far, near)):
                    if select.select([one], [], [], 0)[0]:
                        data = one.recv(1 << 20)
                        if not data:
                            return
                        other.sendall(data.replace(b'"gpubufd', json.dumps(EVIL)[:-1].encode()))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(DEADLINE)
        thread = threading.Thread(target=relay, args=[listener], daemon=True)
        thread.start()
        text = ctl("--socket", path, "ping")
        thread.join()
    assert text.startswith("\\x1b[2J\\x7f\\u009b2J") and text.endswith(" answers\n")
    assert not set(text) & set(EVIL) - set("[2Jgnp.exe")


def test_color(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b"a,b\n1,\n")
    assert "\x1b[2mnull\x1b[0m" in ctl("--color=always", "show", "t")
    assert "\x1b" not in ctl("show", "t")
    assert "\x1b[" in on_terminal(ctl, "show", "t")[1]
    assert "\x1b" not in on_terminal(ctl, "show", "t", env={"NO_COLOR": "1"})[1]
    assert "\x1b[" in on_terminal(ctl, "show", "t", env={"NO_COLOR": ""})[1]
    assert "\x1b" not in on_terminal(ctl, "--color=never", "show", "t")[1]
    assert "\x1b" not in on_terminal(ctl, "show", "t", env={"TERM": "dumb"})[1]


@pytest.mark.host_only("the name of a GPU is longer than the narrow lines of this test")
def test_terminal_width_and_binary(ctl):
    ctl("put", "movies", str(DATA / "movies.csv"))
    status, text = on_terminal(ctl, "--color=never", "show", "movies")
    assert status == OK
    assert all(len(line) <= 80 for line in text.splitlines())
    ctl("put", "b", ctl.file("f", b"\x1b[31m"))
    status, text = on_terminal(ctl, "get", "b")
    assert status == USAGE and "terminal" in text and "gpubufctl show" in text
    status, text = on_terminal(ctl, "get", "movies", "--format", "npy")
    assert status == USAGE and "terminal" in text and "--format csv" in text


def test_a_column_on_a_terminal_is_csv(ctl):
    """A pipe gets its bytes, as ever."""
    ctl("put", "t", "-", "-f", "csv", input=b"a,b\none,1\n\"two, or so\",2\n")
    assert on_terminal(ctl, "get", "t", "-c", "a") == (OK, 'a\r\none\r\n"two, or so"\r\n')
    assert ctl.raw("get", "t", "-c", "a").stdout == b"onetwo, or so"
    ctl("put", "cube", ctl.file("cube", bytes(8)), "-d", "int8", "-s", "2,2,2")
    status, text = on_terminal(ctl, "get", "cube")
    assert status == FAILED and "write raw bytes or .npy" in text


def test_a_file_of_no_known_format_is_stored_with_a_note(ctl):
    unknown, known = ctl.file("file.xyz", b"abc"), ctl.file("file.bin", b"abc")
    done = ctl.raw("put", "x", unknown)
    assert done.returncode == OK and done.stdout.startswith(b"x: 3 bytes, version ")
    assert done.stderr.decode() == (f"gpubufctl: {unknown}: no format that gpubufctl knows, so its bytes are stored "
                                    "as they are (--format raw says so)\n")
    for quiet in (["y", known], ["z", unknown, "-f", "raw"], ["q", unknown, "-k", "bytes"],
                  ["d", unknown, "-d", "int8"], ["n", ctl.file("plain", b"abc")]):
        done = ctl.raw("put", *quiet)
        assert done.returncode == OK and done.stderr == b"", quiet


@pytest.mark.parametrize("columns", (40, 60, 80))
def test_sentences_break_between_words(ctl, columns):
    """Of why, stat and doctor. Without a terminal each is one line."""
    name = "weather/2026/of/all/stations/in/the/country"
    ctl("put", name, str(DATA / "weather.csv"))
    ctl("pin", name)
    for command in (["why", name], ["stat", name], ["doctor"]):
        whole = ctl.raw(*command, env={"COLUMNS": "1000"}).stdout.decode()
        _, text = on_terminal(ctl, "--color=never", *command, columns=columns)
        lines = text.splitlines()
        ages = r"[\d.]+ (s|min|h|KiB|MiB|GiB)"  # what changes from call to call
        assert [re.sub(ages, "", word) for word in text.split() if not re.match(r"[\d.]+$", word)] == [
            re.sub(ages, "", word) for word in whole.split() if not re.match(r"[\d.]+$", word)]
        for line in lines:  # but for a word that has no room, such as a path
            assert len(line) <= columns or max(map(len, line.split())) > columns - 20, text


def test_progress_only_on_a_terminal_and_late(ctl):
    """A slow pipe: the bar appears on a terminal after a second, and is wiped at the end."""
    parent, child = open_terminal()
    process = subprocess.Popen([str(GPUBUFCTL), "put", "slow", "-", "--dtype", "int8", "--shape",
                                "40000000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=child, env={**ctl.env, "TERM": "xterm"})
    os.close(child)
    text = b""
    sent = 0
    while sent < 39000000 and not select.select([parent], [], [], 0.05)[0]:
        process.stdin.write(b"x" * 1000000)  # slowly, until the bar shows
        process.stdin.flush()
        sent += 1000000
    process.stdin.write(b"x" * (40000000 - sent))
    process.stdin.close()
    while True:
        try:
            got = os.read(parent, 65536)
        except OSError:
            break
        text += got
    os.close(parent)
    assert process.wait(DEADLINE) == OK
    text = text.decode()
    assert "slow" in text and "MiB" in text
    assert text.endswith("\r\x1b[K")
