"""gpubufctl: labels, and older versions of a name."""

import re

from ctl import FAILED, USAGE


def publish(ctl, step, *options):
    path = ctl.file("step", b"%d" % step)
    return ctl.json("put", "--replace", "--label", f"step-{step}", *options, "w", path)["version"]


def test_put_keeps_older_versions(ctl):
    made = [publish(ctl, step, "--keep", "2") for step in range(4)]
    assert ctl("get", "w") == "3"
    assert ctl("get", "w", "--label", "step-2") == "2"
    assert ctl("get", "w", "--version", str(made[1])) == "1"
    said = ctl.fails(FAILED, "get", "w", "-l", "step-0")
    assert '"w" has no version labelled "step-0"; it has' in said and '"step-3"' in said
    ctl.fails(FAILED, "show", "w", "-v", str(made[0]))
    assert ctl.json("stat", "w", "-l", "step-1")["older"]
    assert re.search(r"label +step-1\n", ctl("stat", "w", "--label", "step-1"))
    assert re.search(r"keeps +2 older versions\n", ctl("stat", "w"))
    assert "an older version" in ctl("stat", "w", "-v", str(made[2]))
    assert ctl.names() == ["w"]
    told = ctl.json("ls", "--versions")["objects"]
    assert [(o["version"], o["label"]) for o in told] == [(made[i], f"step-{i}") for i in (3, 2, 1)]
    lines = ctl("ls", "-v").splitlines()
    assert len(lines) == 4 and lines[0].split() == ["name", "version", "size", "leases", "age", "notes"]
    assert lines[2].split()[:2] == ["w", str(made[2])] and "older" in lines[2] and "step-2" in lines[2]


def test_why_names_the_last_reader(ctl, shared_daemon):
    made = [publish(ctl, step, "--keep", "1") for step in range(2)]
    reader = shared_daemon.connect()
    reader.call("hello", protocol=1, client="slow reader")
    reader.call("open", name="w", version=made[0])
    made.append(publish(ctl, 2, "--keep", "1"))
    said = ctl("why", "w")
    assert f"version {made[1]} (step-1), 1 B: kept, open 0 times" in said, said
    assert f"version {made[0]} (step-0), 1 B: there for its readers only, open 1 time" in said, said
    said = ctl("why", "w", "--version", str(made[0]))
    assert f"w, version {made[0]}, which can be opened no more:" in said, said
    assert "slow reader" in said and "leased" in said
    assert "kept" not in ctl("why", "w", "--label", "step-1")


def test_wrong_words(ctl):
    publish(ctl, 1)
    path = ctl.file("f", b"1")
    for keep in ("9", "-1", "x"):
        ctl.fails(USAGE, "put", "x", path, "--keep", keep)
    ctl.fails(USAGE, "stat", "w", "--version", "x")
    ctl.fails(FAILED, "why", "w", "--version", "1", "--label", "a")
    ctl.fails(FAILED, "put", "x", path, "--label", "x" * 256)
