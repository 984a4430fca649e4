"""A machine of the cluster that says it has a copy, and lies: its certificate is honest, and its words are not."""

import base64
import contextlib
import hashlib
import json
import os
import threading

import pytest

from cluster import SHARED, fetched
from peer import DEADLINE, wait_until
from test_peer import MIB, SUM, Liar, Stranger, head, is_nowhere, refused, share

TRUE, FALSE = b"true", b"data"  # of the latter, test_peer.py has the checksum
ZEROS, ONES = 0x918780B90550BF34, 0xF35272FFBEF30AA9  # XXH3 of 1 MiB of b"\0", and of b"1"


def bytes_of(count):
    return {"kind": "bytes", "bytes": count, "data": {"bytes": count}}


def compact(answer):
    """As a peer writes it, to the byte."""
    text = json.dumps(answer, separators=(",", ":")).encode()
    return lambda request: head(len(text), request=request) + text


def evil(liar, **opened):
    """Answers that fit each other; the layout is as the origin tells it."""
    liar.answers.update(
        open=compact({"lease": 7, "content": 4, "mode": 0o644, "layout": bytes_of(4),
                      "device": "host", **opened}),
        read=lambda request: head(len(FALSE), b"d", request, SUM) + FALSE,
        word={"described": "A" * 22 + "==", "content": "A" * 22 + "=="})


@contextlib.contextmanager
def busy(authority, machine, name):
    """The machine has as many readers of the name as it takes at a time."""
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            one = Stranger(authority, machine.peer.port, "c")
            stack.callback(one.close)
            assert "lease" in one.ask({"method": "open", "name": name})
        yield


@pytest.fixture
def liar(authority):
    one = Liar(authority, "c")
    yield one
    one.close()


@pytest.fixture
def trio(cluster, liar):
    """(a, b, liar): two machines that know a third, c, which the test plays."""
    a, b = cluster.start("a", "b")
    cluster.play("c", liar.port)
    return a, b, liar


def share_true(cluster, data=TRUE, later=0, **params):
    """The origin publishes x, and etcd tells b of the liar's copy; `later`: by how many revisions that is newer."""
    with cluster.machines["a"].connect() as here:
        share(here, "x", data, **params)
    cluster.await_names("x")
    revision = cluster.revision_of("x")
    cluster.etcd.put(f"/gpubufd/copies/x@{revision + later}/c", {"version": 77, "since": 1})
    cluster.await_news(cluster.machines["b"])
    return revision


@pytest.mark.parametrize("lie", ["content", "layout", "mode", "label"])
# RELIABILITY.md: Other machines 2
def test_who_says_that_it_has_a_copy(trio, cluster, authority, lie):
    """It is asked together with the origin, answers first, and decides nothing."""
    a, b, liar = trio
    share_true(cluster, mode="0604")
    one = Stranger(authority, a.peer.port, "c")
    true = one.ask({"method": "open", "name": "x"})
    assert (true["layout"], true["mode"]) == (bytes_of(4), 0o604) and "label" not in true
    one.close()
    evil(liar, **{"content": {"mode": 0o604}, "mode": {"mode": 0o644}, "label": {"mode": 0o604, "label": "step-1"},
                  "layout": {"mode": 0o604, "layout": {"kind": "array", "dtype": "uint8", "shape": [4]}}}[lie])
    for _ in range(5):
        with b.connect() as there:
            assert fetched(there, "x") == TRUE
            copy = there.call("stat", name="x")["object"]
            assert copy["mode"] in ("604", "0604") and copy["layout"]["kind"] == "bytes"
            assert copy["note"].startswith("copy of a") and "label" not in copy
            there.call("delete", name="x")
    assert "open" in liar.asked
    assert lie == "content" or "read" not in liar.asked


# RELIABILITY.md: Other machines 2
def test_false_content_is_not_sealed(trio, cluster, authority):
    """It comes whole from the liar, while the origin is busy; then from the origin."""
    a, b, liar = trio
    data = os.urandom(17 * MIB)
    share_true(cluster, data)
    evil(liar, content=len(data), layout=bytes_of(len(data)))
    liar.answers["read"] = lambda request: head(MIB, b"d", request, ZEROS) + bytes(MIB)
    with b.connect() as there:
        with busy(authority, a, "x"):
            waiting = there.request("open", name="x", wait_ms=60_000)
            b.peer.wait_for("c .*: it sent other content than a has published")
            assert "x" not in there.names()
        there.reply(waiting)
        assert fetched(there, "x") == data


# RELIABILITY.md: Other machines 2
def test_a_machine_whose_layout_differs_is_left_at_once(trio, cluster):
    """It answers while the origin sends: nothing is read of it."""
    a, b, liar = trio
    data = os.urandom(17 * MIB)
    share_true(cluster, data)
    evil(liar, content=len(data), layout={"kind": "array", "dtype": "uint8", "shape": [len(data)], "data": {"bytes": len(data)}})
    answer, sends = liar.answers["open"], threading.Event()
    liar.answers["open"] = lambda request: sends.wait(DEADLINE) and answer(request)
    a.lane.hold_after(2 * MIB)
    with b.connect() as there:
        waiting = there.request("open", name="x", wait_ms=60_000)
        a.lane.wait_held()
        sends.set()
        wait_until(lambda: {"read", "release"} & set(liar.asked))
        assert "read" not in liar.asked
        a.lane.release()
        there.reply(waiting)
        assert fetched(there, "x") == data


# RELIABILITY.md: Other machines 1
def test_an_origin_that_has_begun_anew_in_the_middle(cluster, authority):
    """Its link ends, and then it has other content of the same version: nothing of the former one is sealed."""
    origin = Liar(authority)
    cluster.play("a", origin.port, "x", size=9 * MIB)
    (b,) = cluster.start("b")
    first, then = bytes(MIB), b"1" * MIB
    whole = hashlib.sha256(then * 9).digest()[:16]

    def read(request):
        if origin.asked.count("open") > 1:
            return head(MIB, b"d", request, ONES) + then
        if origin.last["chunk"] == 8:  # is asked for when one of the eight before it has come
            raise OSError("the link ends")
        return head(MIB, b"d", request, ZEROS) + first if origin.last["chunk"] == 0 else None

    origin.answers = {
        "open": {"lease": 1, "content": 9 * MIB, "mode": 0o644, "layout": bytes_of(9 * MIB),
                 "device": "host"},
        "word": {"described": "A" * 22 + "==", "content": base64.b64encode(whole).decode()},
        "read": read,
    }
    with b.connect() as there:
        assert fetched(there, "x") == then * 9
    origin.close()


# RELIABILITY.md: Other machines 2
def test_a_higher_revision_of_another_machines(trio, cluster):
    _, b, liar = trio
    revision = share_true(cluster, later=1)
    evil(liar)
    with b.connect() as there:
        assert fetched(there, "x") == TRUE
        assert there.call("stat", name="x")["object"]["note"] == f"copy of a, revision {revision}"
    assert "open" not in liar.asked


# RELIABILITY.md: Other machines 2
def test_the_origin_has_died_without_a_word(trio, cluster):
    a, b, liar = trio
    share_true(cluster)
    evil(liar)
    a.lane.cut()
    with b.connect() as there:
        assert f"a (127.0.0.1:{a.lane.port})" in refused(there, "x", "unavailable")
        is_nowhere(there, "x")
    assert "read" not in liar.asked


# RELIABILITY.md: Other machines 2
def test_the_origins_word_outlives_it_in_etcd(cluster, liar):
    """A copy is checked by what the origin wrote, after its death: an honest one is taken, a false one is not."""
    a, b, c, d = cluster.start("a", "b", "honest", "d")
    evil(liar)
    data = os.urandom(3 * MIB)
    with a.connect() as here, c.connect() as elsewhere, b.connect() as there:
        here.put("x", data, **SHARED)
        assert fetched(elsewhere, "x") == data
        here.put("false", TRUE, **SHARED)
        assert fetched(elsewhere, "false") == TRUE
        elsewhere.call("delete", name="false")
        wait_until(lambda: len(cluster.keys("words")) == 2)
        cluster.play("c", liar.port)
        cluster.etcd.put(f"/gpubufd/copies/false@{cluster.revision_of('false')}/c", {"version": 77, "since": 1})
        wait_until(lambda: len(cluster.keys("copies")) == 2)
        a.peer.kill()
        a.lane.cut()
        assert fetched(there, "x") == data
        there.error("unavailable", "open", name="false", wait_ms=60_000)
        b.peer.wait_for("c .*: it sent other content than a has published")
        assert "false" not in there.names()
        key = base64.b64encode(b"/gpubufd/words/").decode()
        end = base64.b64encode(b"/gpubufd/words0").decode()
        cluster.etcd.post("kv/deleterange", {"key": key, "range_end": end})
    with d.connect() as there:  # it joined before, and knows the word all the same
        assert fetched(there, "x") == data
    e = cluster.add("e")
    with e.connect() as there:
        assert "a (127.0.0.1" in there.error("unavailable", "open", name="x", wait_ms=60_000).message
        assert there.names() == []
