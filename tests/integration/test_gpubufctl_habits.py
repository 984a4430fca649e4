"""Habits of fingers: other programs' words, patterns, new names, JSON of everything, errors in words
of the command line."""

import json
import re

import pytest

from ctl import FAILED, USAGE
from test_gpubufctl import on_terminal


def fill(ctl, *names):
    for name in names:
        ctl("put", name, "-", input=b"x")


# ---- commands ----------------------------------------------------------------------------------


@pytest.mark.parametrize("typed, meant", [
    ("lsit", "ls"), ("sl", "ls"), ("gte", "get"), ("shwo", "show"), ("delete", "rm"),
    ("alais", "alias"), ("rename", "alias"), ("describe", "call"),
])
def test_did_you_mean(ctl, typed, meant):
    assert f'did you mean "{meant}"?' in ctl.fails(USAGE, typed)


def test_no_guess_without_likeness(ctl):
    for typed in ("nosuch", "nope", "x", "", "q" * 5000):
        assert "did you mean" not in ctl.fails(USAGE, typed)


def test_other_words(ctl):
    assert "list, info and cat are other words" in ctl("help")
    ctl("put", "a", "-", input=b"text")
    assert ctl("list", "-1") == "a\n"
    assert ctl("cat", "a") == "text"
    assert ctl("info", "a").splitlines()[0].split() == ["name", "a"]


def test_a_wrong_name_is_wrong_usage(ctl):
    path = ctl.file("f", b"x")
    for words in [("put", "/abs", path), ("rm", "/abs"), ("get", ""), ("stat", "/abs"),
                  ("alias", "/a", "b"), ("pin", "a/"), ("show", "/a")]:
        assert "name" in ctl.fails(USAGE, *words)


# ---- patterns ----------------------------------------------------------------------------------


def test_ls_patterns(ctl):
    fill(ctl, "a", "ab", "d/s1", "d/s2/x", "d/t", "z")
    for pattern, names in [
        ("a*", ["a", "ab"]), ("d/s*", ["d/s1", "d/s2/x"]), ("*", ctl.names()), ("?", ["a", "z"]),
        ("[a-c]*", ["a", "ab"]), ("*/t", ["d/t"]),
        ("d/[!s]*", ["d/t"]), ("d/", ["d/s1", "d/s2/x", "d/t"]),
    ]:
        assert ctl("ls", "-1", pattern).splitlines() == names, pattern
    assert "no object matches" in ctl.fails(FAILED, "ls", "x*")
    assert ctl("ls", "-1", "x") == ""  # a prefix that nothing has yet


def test_names_with_wildcards(ctl):
    fill(ctl, "a*", "ab", "w[1]", "w[2]", "q?")
    assert ctl("ls", "-1", "a\\*") == "a*\n"
    assert ctl("ls", "-1", "w[") == "w[1]\nw[2]\n"
    assert ctl("ls", "-1", "w[1]") == "w[1]\n"
    ctl("rm", "a*")  # the object of that name, and no other
    assert ctl.names() == ["ab", "q?", "w[1]", "w[2]"]
    ctl("rm", "w[1]", "q\\?")
    assert ctl.names() == ["ab", "w[2]"]


def test_rm_patterns(ctl):
    fill(ctl, "a", "d", "d/s1", "d/s2/x", "d/t", "data")
    assert ctl("rm", "d/s*") == "removed: 2 that match d/s*\n"
    assert ctl.names() == ["a", "d", "d/t", "data"]
    assert "no object matches" in ctl.fails(FAILED, "rm", "d/s*")
    assert ctl("rm", "-f", "d/s*") == ""
    ctl("rm", "-r", "d/")
    assert ctl.names() == ["a", "data"]
    assert '"d"' in ctl.fails(FAILED, "rm", "-r", "d")
    for nothing in ("", "/", "//"):
        ctl.fails(USAGE, "rm", "-r", nothing)
    assert ctl.names() == ["a", "data"]
    ctl("pin", "*")
    assert [one["pinned"] for one in ctl.json("ls")["objects"]] == [True, True]


def test_rm_of_a_very_long_name(ctl):
    fill(ctl, "a")
    ctl.fails(USAGE, "rm", "-r", "n" * 5000)
    ctl.fails(USAGE, "ls", "n" * 5000)
    ctl.fails(FAILED, "rm", "-r", "n" * 255)
    ctl.fails(FAILED, "rm", "n" * 100 + "*")
    assert ctl.names() == ["a"]


# ---- numbers, errors, JSON ---------------------------------------------------------------------


def test_plain_digits(ctl):
    text = ctl("put", "b", "-", input=b"x" * 12345)
    assert text.startswith("b: 12345 bytes")
    assert "12345 bytes" in ctl("show", "b")
    assert "12\u202f345" in on_terminal(ctl, "show", "b", env={"LC_ALL": "C.UTF-8"})[1]
    assert "12345 bytes" in on_terminal(ctl, "show", "b", env={"LC_ALL": "C"})[1]


def test_errors_in_words_of_the_command_line(ctl):
    path = ctl.file("f", b"x")
    ctl("put", "a", path)
    assert ctl.fails(FAILED, "put", "a", path).endswith("--replace takes its name\n")
    device = ctl.fails(FAILED, "put", "b", path, "-D", "cuda:7")
    assert "--device: " in device and "it serves host" in device
    ctl.file("long.csv", "n" * 300 + ",b\n1,2\n")
    column = ctl.fails(FAILED, "put", "b", "long.csv")
    assert "long.csv" in column and "the name of column 1" in column
    assert "cannot describe nosuch" in ctl.fails(FAILED, "stat", "nosuch")
    for words in [("put", "b", path, "-D", "cuda:7"), ("put", "b", "long.csv"), ("stat", "/x"),
                  ("alias", "q", "a", "-c", "z")]:
        assert "params" not in ctl.raw(*words).stderr.decode()
    assert "params.limit" in ctl.fails(FAILED, "call", "list", '{"limit": "x"}')


def error_of(ctl, status, *words):
    done = ctl.raw(*words)
    assert done.returncode == status and done.stdout == b"", done
    assert done.stderr.count(b"\n") == 1
    return json.loads(done.stderr)["error"]


def test_json_errors(ctl, tmp_path):
    error = error_of(ctl, FAILED, "--json", "get", "nosuch")
    assert error["kind"] == "not_found" and "nosuch" in error["message"]
    assert error_of(ctl, USAGE, "nosuch", "-j")["kind"] == "usage"
    assert error_of(ctl, USAGE, "ls", "--nosuch", "--json")["kind"] == "usage"
    assert error_of(ctl, 3, "-j", "-S", str(tmp_path / "no"), "ls")["kind"] == "no_daemon"
    assert error_of(ctl, USAGE, "--json", b"\xff\x1b")["kind"] == "usage"


def test_json_of_everything(ctl):
    fill(ctl, "a", "b")
    assert ctl.json("alias", "c", "a") == {"name": "c", "of": "a"}
    assert ctl.json("alias", "d", "a") == {"name": "d", "of": "a"}
    assert ctl.json("pin", "[ab]") == {"pinned": ["a", "b"]}
    assert ctl.json("unpin", "a") == {"unpinned": ["a"]}
    assert ctl.json("rm", "-f", "b", "nosuch", "c") == {"removed": ["b", "c"]}
    done = ctl.raw("--json", "rm", "a", "nosuch", "d")
    assert done.returncode == FAILED and json.loads(done.stdout) == {"removed": ["a", "d"]}
    assert json.loads(done.stderr)["error"]["kind"] == "not_found"


# ---- screens -----------------------------------------------------------------------------------


def test_ls_sort_and_total(ctl):
    for name, size in (("a", 10), ("b", 3000), ("c", 200)):
        ctl("put", name, "-", input=b"x" * size)
    assert ctl("ls", "-1", "--sort", "size") == "b\nc\na\n"
    assert ctl("ls", "-1", "--sort", "idle").splitlines()[0] == "a"
    assert ctl("ls", "-1", "-s", "name") == "a\nb\nc\n"
    assert sorted(ctl("ls", "-1", "-s", "created").split()) == ["a", "b", "c"]
    assert ctl("ls", "--total").splitlines()[-1].startswith("3 objects, ")
    assert ctl.json("ls", "-t")["total_bytes"] == sum(
        one["bytes"] for one in ctl.json("ls")["objects"])
    ctl.fails(USAGE, "ls", "--sort", "colour")


def test_the_name_is_the_last_to_be_cut(ctl):
    name = "a/rather/long/name/of/forty/characters/x"
    ctl("put", name, "-", input=b"x")
    for columns in ("50", "60", "80"):
        done = ctl.raw("ls", "-l", env={"COLUMNS": columns})
        assert name in done.stdout.decode()
        assert max(map(len, done.stdout.decode().splitlines())) <= int(columns)
        assert name in ctl.raw("ls", env={"COLUMNS": columns}).stdout.decode()


@pytest.mark.parametrize("end", ["orc", "xlsx", "JSON", "pkl"])
def test_files_that_are_not_read(ctl, end):
    path = ctl.file(f"f.{end}", b"12345678")
    sentence = ctl.fails(USAGE, "put", "x", path)
    assert "--format raw" in sentence and f"f.{end}" in sentence
    assert ctl.names() == []
    assert ctl("put", "x", path, "-f", "raw").startswith("x: 8 bytes")
    assert ctl("put", "y", path, "-k", "bytes").startswith("y: 8 bytes")


# ---- CSV files as people have them ---------------------------------------------------------------


def put_csv(ctl, text, *options, name="f.csv"):
    ctl("put", "-r", "t", ctl.file(name, text), *options)
    return ctl("get", "t")


def test_delimiters(ctl):
    rows = 'a,b\n1,"x,y"\n2,z\n'
    assert put_csv(ctl, "a;b\n1;x,y\n2;z\n", "--delimiter", ";") == rows
    assert put_csv(ctl, "a\tb\n1\tx,y\n2\tz\n", name="f.tsv") == rows
    assert put_csv(ctl, "a\tb\n1\tx,y\n2\tz\n", "--delimiter", "tab") == rows
    ctl("put", "-r", "t", "-", "--delimiter", "|", input=b"a|b\n1|2\n")
    assert ctl("get", "t") == "a,b\n1,2\n"
    for wrong in ("", ";;", '"', "\n", "\u00a7"):
        ctl.fails(USAGE, "put", "x", ctl.file("f.csv", "a\n1\n"), "--delimiter", wrong)
    ctl.fails(USAGE, "put", "x", ctl.file("f.npy", "a"), "--delimiter", ";")


def test_expire(ctl):
    fill(ctl, "a", "d/1", "d/2", "e")
    assert ctl("expire", "a", "d/*", "2h") == ""
    assert [ctl.json("stat", name)["ttl_ms"] for name in ("a", "d/1", "d/2", "e")] == [7200000] * 3 + [0]
    assert ctl.json("expire", "a", "never") == {"expiring": ["a"]}
    assert ctl.json("stat", "a")["ttl_ms"] == 0
    ctl("expire", "e", "1ms")
    while "e" in ctl.names():
        pass
    for time in ("soon", "0", "-1", "1e99"):
        ctl.fails(USAGE, "expire", "a", time)
    ctl.fails(USAGE, "expire", "a")
    assert "cannot set the time of none" in ctl.fails(FAILED, "expire", "none", "5m")


def test_a_time_has_its_zone(ctl):
    ctl("put", "t", ctl.file("t.csv", "a\n1\n"))
    for zone, offset in (("UTC0", "+0000"), ("IST-5:30", "+0530")):
        shown = ctl("stat", "t", env={"TZ": zone})
        assert re.search(rf"^created +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \{offset}$", shown, re.MULTILINE), shown
