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
from conftest import ROOT
from ctl import FAILED, NO_DAEMON, OK, TIMEOUT, USAGE, Ctl
from peer import DEADLINE, wait_until

DATA = ROOT / "examples" / "data"


# ---- put ---------------------------------------------------------------------------------------


def test_put_options(ctl):
    path = ctl.file("f", b"12345678")
    ctl("put", "a", path, "--mode", "640", "--ttl", "1h", "--evict", "drop", "--device", test_device.ID, "--share", "fd",
        "--wait", "1s")
    object_ = ctl.json("stat", "a")
    assert (object_["mode"], object_["ttl_ms"], object_["evict"]) == ("0640", 3600000, "drop")
    assert object_["device"] == test_device.ID and object_["share"] == "fd" and "final" not in object_
    assert "cannot create a" in ctl.fails(FAILED, "put", "a", path)
    assert ctl.json("put", "--replace", "a", path)["version"] > object_["version"]
    for wrong in (("--mode", "999"), ("--ttl", "soon"), ("--evict", "never"), ("--share", "air"),
                  ("--kind", "thing"), ("--format", "pdf"), ("--wait", "-1")):
        ctl.fails(USAGE, "put", "b", path, *wrong)
    ctl.fails(FAILED, "put", "b", path, "--device", "nosuch")
    os.truncate(path, 100 << 20)  # more than the device has
    ctl.fails(FAILED, "put", "b", path)
    assert "cannot create b" in ctl.fails(FAILED, "put", "b", "/dev/null", "--dtype", "int8", "--shape", "999999999999")
    assert ctl.names() == ["a"]


def test_put_final(ctl):
    ctl("put", "--final", "a", ctl.file("f", b"12345678"))
    assert ctl.json("stat", "a")["final"] is True
    assert "final" in ctl("stat", "a") and "final" in ctl("why", "a")


def test_interrupted_put_leaves_nothing(ctl):
    process = ctl.start("put", "x", "-", "--dtype", "int8", "--shape", "1000000", stdin=subprocess.PIPE)
    process.stdin.write(b"1" * 1000)
    process.stdin.flush()
    wait_until(lambda: ctl.json("ps")["leases"])
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == -signal.SIGINT
    process.stdin.close()
    wait_until(lambda: not ctl.json("ps")["leases"])
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
    assert "is a table" in ctl.fails(FAILED, "get", "t", "t.raw")
    ctl.fails(USAGE, "get", "t", "-s", "x")
    ctl.fails(USAGE, "get", "t", "-f", "pdf")
    assert os.listdir(ctl.directory) == []


@pytest.mark.parametrize("column, part, expected", [
    ("i", ":", numpy.arange(1, 11)),
    ("i", "2:5", numpy.array([3, 4, 5])),
    ("f", "2:4", numpy.array([-1.0, 2])),
    ("b", ":", numpy.array([1, 0, 1, 1, 1, 1, 1, 1, 0, 1], dtype="?")),
    ("b", "1:9", numpy.array([0, 1, 1, 1, 1, 1, 1, 0], dtype="?")),
], ids=str)
def test_get_columns_as_bytes(ctl, column, part, expected):
    ctl("put", "t", "-", "-f", "csv",
        input=b"i,f,b\n1,0.5,true\n2,,false\n3,-1,true\n4,2,true\n5,2,true\n6,2,true\n"
              b"7,2,true\n8,2,true\n9,2,false\n10,2,true\n")
    back = ctl.array("t", "-c", column, "-s", part)
    assert back.dtype == expected.dtype and numpy.array_equal(back, expected, equal_nan=expected.dtype.kind == "f")


@pytest.mark.parametrize("array, text", [
    (numpy.array(1.5), "value\n1.5\n"),
    (numpy.array([1, 2], dtype="i2"), "value\n1\n2\n"),
    (numpy.array([[1, 2, 3], [4, 5, 6]]), "0,1,2\n1,2,3\n4,5,6\n"),
    (numpy.array([0.1, 1e300, numpy.nan], dtype="f8"), "value\n0.1\n1e+300\nnan\n"),
    (numpy.array([0.1], dtype="f4"), "value\n0.1\n"),
    (numpy.array([1 + 2j]), "value\n1.0+2.0j\n"),
    (numpy.array([True, False]), "value\ntrue\nfalse\n"),
    (numpy.array(["2012-01-01T12:30:00.5"], dtype="M8[ms]"), "value\n2012-01-01T12:30:00.500\n"),
    (numpy.array(["NaT"], dtype="M8[s]"), "value\nNaT\n"),
    (numpy.array([90], dtype="m8[s]"), "value\nPT90S\n"),
    (numpy.array([b"ab\0"], dtype="S3"), "value\n616200\n"),
], ids=str)
def test_get_arrays_as_csv(ctl, array, text):
    ctl.put_array("a", array)
    assert ctl("get", "a", "-f", "csv") == text


def test_csv_has_two_axes(ctl):
    ctl.put_array("a", numpy.zeros((2, 2, 2)))
    assert "one or two axes" in ctl.fails(FAILED, "get", "a", "-f", "csv")


def test_get_writes_whole_files_or_none(ctl):
    ctl("put", "a", ctl.file("f", b"new content"))
    target = ctl.file("target", b"old content, and longer")
    os.chmod(target, 0o640)
    ctl("get", "a", "target")
    assert ctl.read("target") == b"new content"
    assert stat_module.S_IMODE(os.stat(target).st_mode) == 0o640
    os.symlink("target", os.path.join(ctl.directory, "link"))
    ctl("put", "-r", "a", ctl.file("f", b"newer"))
    ctl("get", "a", "link")
    assert os.path.islink(os.path.join(ctl.directory, "link"))
    assert ctl.read("target") == b"newer"
    ctl.fails(FAILED, "get", "nosuch", "target")
    ctl.fails(FAILED, "get", "a", "target.csv")
    assert ctl.read("target") == b"newer"
    for path, why in ((ctl.directory, "is a directory"), ("nowhere/x", "No such file"), ("/dev/full", "No space")):
        assert why in ctl.fails(FAILED, "get", "a", path)
    assert sorted(os.listdir(ctl.directory)) == ["f", "link", "target"]
    mask = os.umask(0o077)
    try:
        ctl("get", "a", "fresh")
    finally:
        os.umask(mask)
    assert stat_module.S_IMODE(os.stat(os.path.join(ctl.directory, "fresh")).st_mode) == 0o600


def test_get_waits(ctl):
    started = time.monotonic()
    ctl.fails(TIMEOUT, "get", "later", "--wait", "100ms")
    assert time.monotonic() - started >= 0.09
    process = ctl.start("get", "later", "-w", "60", stdout=subprocess.PIPE)
    ctl("put", "later", ctl.file("f", b"here"))
    assert process.communicate(timeout=DEADLINE)[0] == b"here"
    assert process.returncode == OK


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
    text = ctl("stat", "t")
    assert "table, length 3, 3 columns" in text and "sealed" in text


def test_show_tells_null_from_text(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b'a,b\nnull,x\n,y\n"""q""",z\nnullo,w\n')
    rows = [line.split()[0] for line in ctl("show", "t").splitlines()[-4:]]
    assert rows == ['"null"', "null", '"\\"q\\""', "nullo"]


def test_show_arrays_and_bytes(ctl):
    ctl.put_array("a", numpy.arange(200).reshape(2, 100))
    text = ctl("show", "a", env={"COLUMNS": "80"})
    assert "array of int64, 2 × 100" in text and "more to the right" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    ctl.put_array("z", numpy.zeros((0, 3)))
    assert "0 × 3" in ctl("show", "z")
    ctl.put_array("s", numpy.array(7))
    assert "no axes" in ctl("show", "s")
    ctl.fails(FAILED, "show", "s", "-s", "0:1")
    ctl("put", "b", ctl.file("f", b"Hello\x00\x1b world, hello!"))
    text = ctl("show", "b")
    assert "48 65 6c 6c 6f 00 1b" in text and "\x1b" not in text


@pytest.mark.parametrize("width", [40, 132])
def test_show_fits_the_width(ctl, width):
    ctl("put", "movies", str(DATA / "movies.csv"))
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
    text = ctl("ls")
    assert "2.0 KiB" in text and "pinned" in text
    long = ctl("ls", "-l").splitlines()
    assert long[0].split() == ["mode", "user", "device", "tier", "share", "size", "age", "version",
                               "leases", "short", "name", "notes"]
    assert [line.split()[11] for line in long[1:]] == ["spills", "spills", "stays"]
    assert len(long) == 4 and {line.split()[3] for line in long[1:]} == {"device"}
    (one,) = ctl.json("ls", "b")["objects"]
    (again,) = json.loads(ctl("ls", "--json", "b"))["objects"]  # on either side
    assert one["pinned"] is True and one["bytes"] >= 2048 and {**one, "idle_ms": 0} == {**again, "idle_ms": 0}


def test_ls_more_than_a_page(ctl, shared_peer):
    for i in range(600):
        shared_peer.create_object(f"n{i:05}", {"kind": "bytes", "bytes": 1})
    names = ctl("ls", "--names").splitlines()
    assert len(names) == 600 and names == sorted(names)
    ctl("rm", *names)
    assert ctl.names() == []


def test_rm_pin_unpin(ctl):
    for name in ("a", "b", "c"):
        ctl("put", name, ctl.file("f", b"x"))
    ctl("pin", "a", "b")
    ctl("unpin", "a")
    assert [ctl.json("stat", name)["pinned"] for name in "abc"] == [False, True, False]
    assert "nosuch" in ctl.fails(FAILED, "rm", "a", "nosuch", "c")
    assert ctl.names() == ["b"]
    assert ctl("rm", "-f", "b", "nosuch") == ""
    for command in ("pin", "unpin", "stat"):
        ctl.fails(FAILED, command, "nosuch")


def test_alias(ctl):
    ctl("put", "t", "-", "-f", "csv", input=b'n,s,"a,b"\n1,a,x\n2,b,y\n3,c,z\n')
    ctl("alias", "part", "t", "--slice=-2:", "--column", "a\\,b,n", "--mode", "400")
    assert ctl("get", "part") == '"a,b",n\ny,2\nz,3\n'
    assert ctl.json("stat", "part")["mode"] == "0400"
    ctl.fails(FAILED, "alias", "part", "t")
    ctl("alias", "part", "t", "--replace")
    assert ctl("get", "part") == ctl("get", "t")
    ctl.fails(FAILED, "alias", "x", "t", "--column", "nosuch")
    ctl.fails(FAILED, "alias", "x", "nosuch")
    ctl.fails(USAGE, "alias", "x", "t", "--slice", "?")
    for past in ("0:9", "4:", "4:9"):
        assert "goes past the end of t, which has 3" in ctl.fails(FAILED, "alias", "x", "t", "--slice", past)
    ctl("rm", "t")
    assert ctl("get", "part").startswith("n,s")


def test_watch(ctl):
    ctl("put", "there", ctl.file("f", b"x"))
    process = ctl.start("watch", "--json", stdout=subprocess.PIPE, bufsize=0)

    def event():
        assert select.select([process.stdout], [], [], DEADLINE)[0]
        return json.loads(process.stdout.readline())

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
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert len(ctl("watch", "-n", "2").splitlines()) == 2
    assert "sealed" in ctl("watch", "the", "-n", "1")


def test_watch_of_new_objects_alone(ctl):
    file = ctl.file("f", b"x")
    ctl("put", "there", file)
    process = ctl.start("watch", "--new", "-n", "1", stdout=subprocess.PIPE, text=True)
    while process.poll() is None:  # until it watches
        ctl("put", "-r", "new", file)
    assert "new" in (said := process.communicate()[0]) and "there" not in said


def watching(ctl):
    """A process of `watch` that has said something."""
    process = ctl.start("watch", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert select.select([process.stdout], [], [], DEADLINE)[0]
    return process


def test_watch_ends_when_its_reader_does(ctl):
    process = watching(ctl)
    process.stdout.close()
    assert process.wait(DEADLINE) == OK
    assert process.stderr.read() == b""
    process.stderr.close()


def test_watch_ends_when_the_daemon_does(daemon, tmp_path):
    process = watching(Ctl(daemon.path, str(tmp_path)))
    daemon.stop()
    _, error = process.communicate(timeout=DEADLINE)
    assert process.returncode == NO_DAEMON
    assert re.fullmatch(rb"gpubufctl: [^\n]+\n", error)


def test_stats_and_call(ctl):
    stats = ctl.json("stats")
    told = ctl("stats")
    assert stats["devices"] and "capacity" in told
    assert re.search(rf"^events so far +{stats['seq']}$", told, re.M), told
    assert re.search(r"^uptime +[\d.]+ s$", told, re.M) and "_ms" not in told and "_us" not in told, told
    assert "freed" in ctl.json("call", "trim")
    assert json.loads(ctl("call", "describe")) == json.loads((ROOT / "proto" / "protocol.json").read_text())
    assert json.loads(ctl("call", "list", '{"limit": 5}'))["objects"] == json.loads(ctl("call", "list"))["objects"] == []
    assert "nosuch" in ctl.fails(FAILED, "call", "nosuch")
    for params, status in (('{"limit": "x"}', FAILED), ('{"limit": ', USAGE), ("[]", USAGE)):
        ctl.fails(status, "call", "list", params)
    ctl.fails(FAILED, "call", "open", '{"name": "x"}')
    assert ctl.fails(FAILED, "call", "stat", "{}") == "gpubufctl: stat: params.name: missing\n"


# ---- the frame ---------------------------------------------------------------------------------

COMMANDS = ("put", "create", "write", "get", "show", "ls", "stat", "rm", "pin", "unpin", "expire",
            "spill", "restore", "alias", "why", "where", "ps", "top", "watch", "tail", "stats",
            "ping", "doctor", "stop", "call", "completion", "help")


def test_help(ctl):
    general = ctl("--help")
    manual = (ROOT / "docs/man/gpubufctl.1.scd").read_text()
    for command in COMMANDS:
        assert re.search(rf"^\*{command}\*|, \*{command}\*", manual, re.MULTILINE), command
        assert re.search(rf"^  {command}\b", general, re.MULTILINE)
        own = ctl(command, "--help")
        assert own.startswith(f"usage: gpubufctl {command}")
        assert max(map(len, own.splitlines())) <= 80
    assert max(map(len, general.splitlines())) <= 80
    assert ctl("help") == ctl("-h") == general
    assert ctl("help", "list") == ctl("help", "ls") == ctl("ls", "-h") == ctl("ls", "--help")
    assert '"ls"' in ctl.fails(USAGE, "help", "lsit")


def test_version(ctl):
    assert re.fullmatch(r"gpubufctl \d+\.\d+\.\d+\n", ctl("--version"))
    assert ctl.json("--version") == {"version": ctl("--version").split()[1]}


def test_usage(ctl):
    for words in [(), ("nosuch",), ("--nosuch",), ("ls", "--nosuch"), ("ls", "-x"), ("ls", "a", "b"),
                  ("put",), ("put", "a"), ("get",), ("rm",), ("get", "a", "b", "c"),
                  ("--color", "pink", "ls"), ("ls", "--long=yes"), ("completion", "tcsh"),
                  ("--socket",), ("ping", "x"), ("ping", "--wait", "soon")]:
        assert "--help" in ctl.fails(USAGE, *words)
    assert "\x1b" not in ctl.fails(USAGE, "\x1b[31mred")


def test_no_daemon(ctl, tmp_path):
    nowhere = str(tmp_path / "nobody")
    for words in [("ls",), ("stat", "a"), ("show", "a"), ("get", "a"), ("rm", "a"), ("ps",), ("watch",), ("stats",), ("ping",),
                  ("ping", "--wait", "50ms"), ("put", "a", "/dev/null"), ("call", "list")]:
        assert nowhere in ctl.fails(NO_DAEMON, "--socket", nowhere, *words)
    assert ctl.fails(NO_DAEMON, "ls", "--socket", nowhere) == (
        f"gpubufctl: no daemon listens at {nowhere}: start one (gpubufd --supervise, or systemctl start gpubufd), or set "
        "GPUBUFD_SOCKET to where one listens\n")


def test_ping(ctl):
    assert re.fullmatch(r"gpubufd \d+\.\d+\.\d+ answers\n", ctl("ping"))
    assert ctl("ping") == ctl("ping", "--wait", "5s") == ctl("ping", "-w", "0")
    assert ctl.json("ping") == {"server": ctl.json("stats")["server"]}


def test_ping_waits(ctl, tmp_path):
    """For a socket that is not there, for one that nobody listens on, and for an answer."""
    path = str(tmp_path / "later")
    process = ctl.start("ping", "--socket", path, "--wait", f"{DEADLINE}s", stdout=subprocess.PIPE)
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
    process = ctl.start("get", "movies", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(DEADLINE) == OK
    process.stderr.close()
    for words in [("get", "movies"), ("ls",), ("show", "movies"), ("--json", "stats"), ("--help",)]:
        with open("/dev/full", "wb") as full:
            process = ctl.start(*words, stdout=full, stderr=subprocess.PIPE)
        assert b"No space left" in process.communicate(timeout=DEADLINE)[1]
        assert process.returncode == FAILED


def open_terminal():
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal to be had here: {error}")  # a chroot without /dev/pts


def all_of(parent):
    """All that comes on a terminal, to its end."""
    text = b""
    while True:
        assert select.select([parent], [], [], DEADLINE)[0]
        try:
            text += os.read(parent, 65536)
        except OSError:
            os.close(parent)
            return text.decode()


def on_terminal(ctl, *words, env=None, columns=80):
    """Output of a command on a terminal."""
    parent, child = open_terminal()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = ctl.start(*words, stdin=subprocess.DEVNULL, stdout=child, stderr=child,
                        env={**ctl.env, "TERM": "xterm", **(env or {})})
    os.close(child)
    text = all_of(parent)
    return process.wait(DEADLINE), text


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


def test_nor_does_the_name_of_what_answers(ctl, tmp_path):
    path = str(tmp_path / "between")

    def relay(listener):
        near, _ = listener.accept()
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(ctl.path)
            while True:
                for one in select.select([near, far], [], [])[0]:
                    data = one.recv(1 << 20)
                    if not data:
                        return
                    (far if one is near else near).sendall(data.replace(b'"gpubufd', json.dumps(EVIL)[:-1].encode()))

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
    assert "\x1b" not in on_terminal(ctl, "--color=never", "show", "t")[1]
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)):
        assert ("\x1b[" in on_terminal(ctl, "show", "t", env=env)[1]) == coloured, env


def test_what_a_terminal_does_not_get(ctl):
    """Bytes, which a pipe gets; a column goes there as CSV."""
    ctl("put", "t", "-", "-f", "csv", input=b"a,b\none,1\n\"two, or so\",2\n")
    assert on_terminal(ctl, "get", "t", "-c", "a") == (OK, 'a\r\none\r\n"two, or so"\r\n')
    assert ctl.raw("get", "t", "-c", "a").stdout == b"onetwo, or so"
    ctl("put", "cube", ctl.file("cube", bytes(8)), "-d", "int8", "-s", "2,2,2")
    ctl("put", "b", ctl.file("f", b"\x1b[31m"))
    for words, expected, told in [
        (("get", "b"), USAGE, "gpubufctl show"), (("get", "t", "-c", "a", "--format", "raw"), USAGE, "--format csv"),
        (("get", "cube"), FAILED, "write raw bytes or .npy"),
    ]:
        status, text = on_terminal(ctl, *words)
        assert status == expected and told in text, text


def test_a_file_of_no_known_format_is_stored_with_a_note(ctl):
    unknown, known = ctl.file("file.xyz", b"abc"), ctl.file("file.bin", b"abc")
    done = ctl.raw("put", "x", unknown)
    assert done.returncode == OK and done.stdout.startswith(b"x: 3 bytes, version ")
    assert done.stderr.decode() == (f"gpubufctl: {unknown}: no format that gpubufctl knows, so its bytes are stored "
                                    "as they are (--format raw silences this)\n")
    for quiet in (["y", known], ["z", unknown, "-f", "raw"], ["q", unknown, "-k", "bytes"],
                  ["d", unknown, "-d", "int8"], ["n", ctl.file("plain", b"abc")]):
        ctl("put", *quiet)


@pytest.mark.parametrize("columns", (40, 80))
def test_sentences_break_between_words(ctl, columns):
    """Of why, stat and doctor. Without a terminal each is one line."""
    name = "weather/2026/of/all/stations/in/the/country"
    ctl("put", name, str(DATA / "weather.csv"))
    ctl("pin", name)
    for command in (["why", name], ["stat", name], ["doctor"]):
        whole = ctl.raw(*command, env={"COLUMNS": "1000"}).stdout.decode()
        _, text = on_terminal(ctl, "--color=never", *command, columns=columns)
        ages = r"[\d.]+ (s|min|h|KiB|MiB|GiB)"  # what changes from call to call
        assert [re.sub(ages, "", word) for word in text.split() if not re.match(r"[\d.]+$", word)] == [
            re.sub(ages, "", word) for word in whole.split() if not re.match(r"[\d.]+$", word)]
        for line in text.splitlines():  # but for a word that has no room, such as a path
            assert len(line) <= columns or max(map(len, line.split())) > columns - 20, text


def test_progress_only_on_a_terminal_and_late(ctl):
    """A slow pipe: the bar appears on a terminal after a second, and is wiped at the end."""
    parent, child = open_terminal()
    process = ctl.start("put", "slow", "-", "--dtype", "int8", "--shape", "40000000", stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL, stderr=child, env={**ctl.env, "TERM": "xterm"})
    os.close(child)
    sent = 0
    while sent < 39000000 and not select.select([parent], [], [], 0.05)[0]:
        process.stdin.write(b"x" * 1000000)  # slowly, until the bar shows
        process.stdin.flush()
        sent += 1000000
    process.stdin.write(b"x" * (40000000 - sent))
    process.stdin.close()
    text = all_of(parent)
    assert process.wait(DEADLINE) == OK
    assert "slow" in text and "MiB" in text
    assert text.endswith("\r\x1b[K")
