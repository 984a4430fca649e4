"""Live objects from the command line: created, written, looked at."""

import pytest

from ctl import FAILED, TIMEOUT, USAGE


def test_create_and_write(ctl, shared_peer):
    assert ctl("create", "pool", "--dtype", "float32", "--shape", "4,4", "-m", "660") == \
        "pool: array of float32, 4 × 4, live\n"
    ctl("write", "pool", ctl.file("f", b"A" * 64))
    ctl("write", "pool", "-", "-o", "60", "-x", input=b"abc")
    assert shared_peer.call("stat", name="pool")["object"]["generation"] == 1
    assert ctl("get", "pool", "-f", "raw", "-") == "A" * 60 + "abcA"
    assert ctl("ls").splitlines()[1].split()[-1] == "live"
    described = [line.split() for line in ctl("stat", "pool").splitlines()]
    assert ["state", "live"] in described and ["writers", "0"] in described and ["generation", "1"] in described
    assert ctl.json("create", "bytes", "-b", "1K")["version"] == 2
    assert "exists" in ctl.fails(FAILED, "create", "bytes", "-b", "1K")


def test_kinds(ctl, shared_peer):
    """A live object that somebody takes part in is a stream; ls tells the kinds apart, and top says what they are."""
    ctl("put", "plain", "-", input=b"x")
    ctl("create", "pool", "-b", "64")
    ctl("create", "cam", "--dtype", "uint8", "--shape", "8,1000")
    writer = shared_peer.call("open", name="cam", access="write", exclusive=True)["lease"]
    shared_peer.call("join", lease=writer)
    for kind, name in (("sealed", "plain"), ("live", "pool"), ("stream", "cam")):
        assert ctl("ls", "-1", "--kind", kind) == ctl("ls", "-1", "-k", kind, name) == f"{name}\n"
        assert [one["name"] for one in ctl.json("ls", "--kind", kind)["objects"]] == [name]
    ctl.fails(USAGE, "ls", "--kind", "array")
    told = {line.split()[-1]: line for line in ctl.raw("top", "--once", env={"COLUMNS": "120"}).stdout.decode().splitlines() if line}
    assert "stream: frame 0, 0 readers  cam" in told["cam"] and "live " in told["pool"] and "live" not in told["plain"]
    shared_peer.call("release", lease=writer)
    assert "no writer" in ctl("ls", "-k", "stream")


def test_who_writes(ctl, shared_peer):
    ctl("create", "pool", "-b", "64")
    claim = shared_peer.call("open", name="pool", access="write", exclusive=True)
    file = ctl.file("f", b"x")
    assert "is claimed by session" in ctl.fails(FAILED, "write", "pool", file)
    assert "is claimed after 10 ms" in ctl.fails(TIMEOUT, "write", "pool", file, "-w", "10ms")
    assert "which alone writes it" in ctl("why", "pool")
    assert "claim" in ctl("ps", "pool").split()
    shared_peer.call("release", lease=claim["lease"])
    shared = shared_peer.call("open", name="pool", access="write")
    ctl("write", "pool", file)
    assert "which writes it" in ctl("why", "pool")
    assert "write" in ctl("ps", "pool").split()
    shared_peer.call("release", lease=shared["lease"])


@pytest.mark.parametrize("words, sentence", [
    (("create", "x"), "create takes --bytes, or --dtype and --shape"),
    (("create", "x", "-b", "1", "-s", "1"), "create takes --bytes, or --dtype and --shape"),
    (("create", "x", "-b", "many"), "many"),
])
def test_wrong_usage(ctl, words, sentence):
    assert sentence in ctl.fails(USAGE, *words)


def test_refused(ctl):
    ctl("put", "sealed", "-", input=b"0123")
    ctl("create", "pool", "-b", "4")
    long = ctl.file("long", b"01234")
    assert "is not live" in ctl.fails(FAILED, "write", "sealed", long)
    assert "no object" in ctl.fails(FAILED, "write", "none", long)
    assert "5 bytes from byte 0 on go past the end of pool, which has 4" in ctl.fails(FAILED, "write", "pool", long)
    assert "go past the end" in ctl.fails(FAILED, "write", "pool", long, "-o", "8")
    assert "unknown dtype" in ctl.fails(FAILED, "create", "x", "-d", "none", "-s", "1")
