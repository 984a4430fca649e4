"""gpubufd-peer: names of other machines, fetched once, checked, and never half."""

import contextlib
import functools
import json
import os
import random
import re
import signal
import socket
import ssl
import struct
import threading

import pytest

import device as test_device
from cluster import PATIENT, SHARED, WAIT, fetched
from ctl import Ctl
from peer import DEADLINE, Closed, Peer, RpcError, bytes_layout, wait_until
from test_bundle import FILE, publish as publish_bundle
from test_gpubufctl_types import nested, words

MIB = 1 << 20


def share(peer, name, data, **params):
    return peer.put(name, data, **{**SHARED, **params})


def refused(peer, name, kind, wait_ms=WAIT):
    return peer.error(kind, "open", name=name, wait_ms=wait_ms).message


def is_nowhere(peer, *names):
    """Neither are they there, nor is anything being made."""
    assert not set(names) & set(peer.names())
    wait_until(lambda: peer.used() == 0)


def leave(reader, other):
    """Once `other` has an answer the daemon has told the peer that nobody waits."""
    reader.close()
    other.names()
    other.names()  # a turn of the daemon later


# ---- what is fetched ------------------------------------------------------------------------------


SMALL = "name,count,flag\nx,1,true\n,2,\n\"\",,false\n\"a\n\"\"b\",4,true\n"
PARTS = ["1:3", "9:20", "3:", "7:7"]


def rows(count):
    lines = [f"{'' if i % 7 == 3 else 'text ' + str(i)},{i},{['true', 'false', ''][i % 3]}" for i in range(count)]
    return "name,count,flag\n" + "\n".join(lines) + "\n"


def contents(ctl):
    """Each object's content: text; bundles, bytes and long arrays as they are."""
    shown = {}
    with Peer(ctl.path) as peer:
        for name in ctl.names():
            layout = peer.call("stat", name=name)["object"]["layout"]
            if layout["kind"] in ("bundle", "bytes", "array"):
                ctl("get", name, "-f", "raw", "bytes")
                shown[name] = ctl.read("bytes")
            else:
                shown[name] = ctl("get", name)
    return shown


def publish_all(ctl, peer):
    ctl("put", "d/small", ctl.file("small.csv", SMALL), "--mode", "644", "--evict", "drop",
        "--label", "run ä", "--keep", "2")
    ctl("put", "d/rows", ctl.file("rows.csv", rows(100)), "--ttl", "1h")
    ctl("put", "d/empty", ctl.file("empty", ""))
    ctl("put", "d/none", ctl.file("none.csv", "a,b\n"))
    ctl("put", "d/large", ctl.file("large", random.Random(5).randbytes(2_500_001)), "-e", "keep")
    ctl("put", "d/array", "large", "-d", "uint8", "-s", "2500001")
    ctl("pin", "d/large")
    for i, part in enumerate(PARTS):
        ctl("alias", f"d/rows.{i}", "d/rows", "--slice", part)
        ctl("alias", f"d/array.{i}", "d/array", "--slice", part)
    nested(peer)
    ctl("alias", "d/nested", "n")
    for i, part in enumerate(["0:1", "1:3", "2:3"]):
        ctl("alias", f"d/nested.{i}", "n", "--slice", part)
    mask = {"kind": "array", "dtype": "int16", "shape": [5, 5], "mask": {}}
    peer.create_object("d/masked", mask, {"data": words("h", *range(25)), "mask": b"\x2e\x9a\x55\x01"})
    ctl("alias", "d/masked.1", "d/masked", "--slice", "2:4")
    meta = {"kind": "table", "length": 1, "metadata": {"made": "by ä \"test\""},
            "columns": [{"name": "a", "dtype": "int8", "length": 1, "metadata": {"unit": "m"}}]}
    peer.create_object("d/meta", meta, {"columns[0].data": b"\x07"})
    publish_bundle(peer, "d/model", FILE)
    ctl("rm", "n")


class Open(Ctl):
    """gpubufctl whose objects everybody may read."""

    def __call__(self, *words, **settings):
        more = ["--mode", "644"] if words[0] in ("put", "alias") and "--mode" not in words else []
        return super().__call__(*words, *more, **settings)


def opening(peer):
    """A session that creates what everybody may read."""
    call = peer.call

    def with_mode(method, /, fds=(), **params):
        return call(method, fds=fds, **({**params, "mode": "0644"} if method == "create" else params))

    peer.call = with_mode
    return peer


def test_all_kinds_and_slices_of_them(cluster, tmp_path):
    a, b = cluster.start("a", "b")
    one, other = Open(a.daemon.path, str(tmp_path)), Ctl(b.daemon.path, str(tmp_path))
    with opening(a.connect()) as peer:
        publish_all(one, peer)
        names = one.names()
        before = contents(one)
        for name in names:
            peer.call("alias", name=f"all/{name}", of=name, **SHARED)
    with b.connect() as peer:
        for name in names:
            peer.open_object(f"all/{name}", wait_ms=WAIT).release()
    assert contents(other) == {f"all/{name}": shown for name, shown in before.items()}
    with a.connect() as here, b.connect() as there:
        assert there.call("stat", name="all/d/meta")["object"]["layout"]["metadata"] == {
            "made": "by ä \"test\""}
        # A slice is not sent with what it was cut from.
        whole, slice = (there.call("stat", name=f"all/d/{name}")["object"]["bytes"]
                        for name in ("array", "array.0"))
        assert slice < 65536 < 2_000_000 < whole
        here.delete(here.names())


@pytest.mark.on_gpus
# RELIABILITY.md: Other machines 17
def test_what_a_copy_is_like(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"as it was", mode="0604")
        share(here, "labelled", b"1", label="step-42" + "l" * 248)
        assert fetched(there, "x") == b"as it was"
        copy = there.call("stat", name="x")["object"]
        assert copy["evict"] == "drop" and copy["mode"] in ("604", "0604")
        assert copy["uid"] == os.geteuid(), "the peer's user is charged"
        assert copy["note"] == f"copy of a, revision {cluster.revision_of('x')}"
        assert "scope" not in copy and "label" not in copy
        fetched(there, "labelled")
        copy = there.open_object("labelled", label="step-42" + "l" * 248).object
        assert there.call("stat", name="labelled")["object"]["note"] == f"copy of a, revision {cluster.revision_of('labelled')}"
        assert "note" not in copy


@pytest.mark.on_gpus
# RELIABILITY.md: Other machines 17
def test_a_copy_gives_way_to_what_is_made_here(cluster):
    """Before anything that is not dropped, though it was used last."""
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as reader, b.connect() as there:
        share(here, "x", bytes(24 * MIB))
        there.create_object("own", bytes_layout(16 * MIB))
        there.unmap()
        assert fetched(reader, "x") == bytes(24 * MIB)
        reader.unmap()
        there.error("exists", "create", name="x", layout=bytes_layout(1))
        there.call("release", lease=there.create("large", bytes_layout(40 * MIB))["lease"])
        assert there.names() == ["own"]


@pytest.mark.on_gpus
def test_sizes_around_a_chunk(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        for size in (0, 1, MIB - 1, MIB, MIB + 1, 9 * MIB + 5):
            data = os.urandom(size)
            share(here, f"of {size}", data)
            assert fetched(there, f"of {size}") == data


# RELIABILITY.md: Other machines 13
def test_many_readers_cause_one_transfer(cluster):
    a, b = cluster.start("a", "b")
    data = os.urandom(8 * MIB)
    with a.connect() as here:
        share(here, "x", data)
    readers = [b.connect() for _ in range(64)]
    asked = [(reader, reader.request("open", name="x", wait_ms=WAIT)) for reader in readers]
    for reader, ident in asked:
        assert reader.reply(ident)["object"]["bytes"] >= len(data)
    b.peer.wait_for("fetched name=x ")  # which it says after the readers have it
    assert len(re.findall("fetched name=x ", b.peer.stderr())) == 1
    assert len(data) < a.lane.towards < 1.1 * len(data)


def test_many_names_at_once(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        for i in range(200):
            share(here, f"n{i}", b"%d" % i)
        asked = [there.request("open", name=f"n{i}", wait_ms=WAIT) for i in range(200)]
        for ident in asked:
            there.reply(ident)
        assert [fetched(there, f"n{i}") for i in range(200)] == [b"%d" % i for i in range(200)]
        assert a.lane.connections == 1


def test_from_the_machine_that_has_a_copy(cluster, authority):
    """While the origin serves others, and only says what the content is."""
    a, b, c, *_ = cluster.start(*"abcdefg")
    data = os.urandom(17 * MIB)
    with a.connect() as here, c.connect() as there:
        share(here, "x", data, label="step-42")
        assert fetched(there, "x") == data
    c.peer.wait_for("fetched name=x ")  # from then on it knows that this is a copy
    cluster.await_copy("x", "c")
    cluster.await_news(b)
    with contextlib.ExitStack() as stack:
        for node in "defg":
            one = Stranger(authority, a.peer.port, node)
            stack.callback(one.close)
            assert "lease" in one.ask({"method": "open", "name": "x"})
        before = a.lane.towards
        with b.connect() as there:
            assert fetched(there, "x") == data
            assert there.call("stat", name="x")["object"]["label"] == "step-42"
        assert a.lane.towards - before < MIB


# ---- who may ------------------------------------------------------------------------------------


@pytest.mark.root
# RELIABILITY.md: Other machines 20
def test_what_is_not_for_other_machines(cluster):
    a, b = cluster.start("a", "b")
    with a.daemon.connect_as(1001, 1001) as here, b.connect() as there:  # whose group is not the peer's
        for name, params in {"x": {"mode": "0600"}, "y": {"mode": "0640"}, "z": {"scope": "local"}}.items():
            share(here, name, b"mine", **params)
        share(here, "after them", b"everybody's")
        assert fetched(there, "after them") == b"everybody's"
        cluster.await_names("after them")
        assert not {f"/gpubufd/names/{name}" for name in "xyz"} & set(cluster.etcd.keys())


def test_the_log_as_json(cluster):
    """Each line is an object, whatever names there are, and says how bad it is."""
    a, b = cluster.start("a", "b", options=["--log-format", "json"])
    names = ['quo"te\\', "new\nline\x1b[31m", "x} {", "é"]
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        assert fetched(there, "x") == b"1"
        for name in [*names, "absent"]:
            there.request("open", name=name, wait_ms=WAIT)
        b.peer.wait_for('"absent"')
    b.peer.stop()
    told = [json.loads(line) for line in b.peer.stderr().splitlines()]
    assert {"absent", names[0]} <= {line["name"] for line in told if line["event"] == "cannot fetch"}
    levels = {line["event"]: line["level"] for line in told}
    assert levels["cannot fetch"] == "warning" and levels["fetched"] == levels["listening"] == "info"


# ---- machines that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [1, pytest.param(99, marks=pytest.mark.on_gpus)])
# RELIABILITY.md: Other machines 1
def test_the_owner_is_killed_in_the_middle(cluster, percent):
    a, b = cluster.start("a", "b")
    size = 32 * MIB
    with a.connect() as here:
        share(here, "x", os.urandom(size))
    a.lane.hold_after(size * percent // 100)
    with b.connect() as there:
        ident = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        a.peer.process.kill()
        a.lane.cut()
        with pytest.raises(RpcError) as error:
            there.reply(ident)
        assert error.value.kind == "unavailable"
        assert f"a (127.0.0.1:{a.lane.port})" in error.value.message
        is_nowhere(there, "x")
    a.peer.process.wait()


@pytest.mark.parametrize("how", [pytest.param("dies", marks=pytest.mark.on_gpus), "stalls"])
# RELIABILITY.md: Other machines 18
def test_another_copy_takes_over(cluster, how):
    a, b, c = cluster.start("a", "b", "c", options=["--patience-ms=5000"])
    data = os.urandom(32 * MIB)
    with a.connect() as here, c.connect() as there:
        share(here, "x", data)
        assert fetched(there, "x") == data
    cluster.await_copy("x", "c")
    wait_until(lambda: cluster.keys("words"))  # by which b can check c's
    cluster.await_news(b)
    c.lane.hold_after(MIB // 2)  # which one is asked first is chance
    a.lane.hold_after(4 * MIB)
    with b.connect() as there:
        ident = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        c.lane.release()
        if how == "dies":
            a.peer.kill()
            a.lane.cut()
        there.reply(ident)
        assert fetched(there, "x") == data


@pytest.mark.on_gpus
@pytest.mark.skipif(not test_device.ON_GPU, reason="about work on a GPU")
# RELIABILITY.md: Other machines 19
def test_content_that_is_never_complete(cluster, another_gpu):
    """Whoever opens it waits in a thread, of those that chunks need, too."""
    a, b = cluster.start("a", "b")
    ready = another_gpu.event(int(4000 * DEADLINE))
    with a.connect() as here, b.connect() as waiting, b.connect() as there:
        for i in range(20):
            made = here.create(f"never{i}", bytes_layout(10), **SHARED)
            here.call("seal", lease=made["lease"], ready=ready, release=True)
            waiting.request("open", name=f"never{i}", wait_ms=WAIT)
        share(here, "x", bytes(3 * MIB))
        assert fetched(there, "x") == bytes(3 * MIB)
    another_gpu.process.kill()


# RELIABILITY.md: Other machines 18
def test_a_machine_that_stands_still(cluster):
    a, b = cluster.start("a", "b", options=["--patience-ms=500"])
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        cluster.await_names("x")
        a.peer.process.send_signal(signal.SIGSTOP)
        try:
            assert "does not answer" in refused(there, "x", "unavailable")
        finally:
            a.peer.process.send_signal(signal.SIGCONT)


@pytest.mark.on_gpus
# RELIABILITY.md: Other machines 1
def test_a_bit_that_is_another(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        data = os.urandom(4 * MIB)
        share(here, "large", data)
        a.lane.spoil_at = 2 * MIB  # of a side link: what is missing comes by the first one
        assert fetched(there, "large") == data
        assert a.lane.towards > a.lane.spoil_at
        there.call("delete", name="large")
        share(here, "x", os.urandom(60_000))
        a.lane.spoil_at = a.lane.towards + 30_000
        sentence = refused(there, "x", "unavailable")
        assert "bad record mac" in sentence and "a (127.0.0.1" in sentence
        is_nowhere(there, "x")


@pytest.mark.parametrize("came", [1, 4 * MIB])
def test_a_peer_that_stops_in_the_middle(cluster, came):
    """Without a word: the program waits on, for the peer that comes next."""
    a, b = cluster.start("a", "b")
    data = os.urandom(16 * MIB)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        cluster.await_names("x")  # before that a fetch finds no machine, and says so
        cluster.await_news(b)
        a.lane.hold_after(came)
        ident = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        b.peer.stop()
        assert "cannot fetch" not in b.peer.stderr()
        a.lane.release()
        cluster.run(b)
        there.reply(ident)
        assert fetched(there, "x") == data


@pytest.mark.on_gpus
def test_no_room_for_a_copy(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", os.urandom(20 * MIB))
        there.put("mine", bytes(50 * MIB), evict="keep")
        ident = there.request("open", name="x", wait_ms=WAIT)
        with pytest.raises(RpcError) as error:
            there.reply(ident)
        assert error.value.kind == "unavailable" and "a copy could not be made here" in error.value.message
        assert there.names() == ["mine"]
    with a.connect() as here:
        wait_until(lambda: here.call("stat", name="x")["object"]["leases"] == 0)


def test_a_copy_that_is_too_large(cluster):
    a, b = cluster.start("a", "b", options=["--largest", MIB])
    with a.connect() as here, b.connect() as there:
        share(here, "x", bytes(MIB + 1))
        assert "largest" in refused(there, "x", "unavailable")
        is_nowhere(there, "x")


@pytest.mark.on_gpus
def test_a_daemon_that_is_killed(cluster):
    """Its peer connects to the next one, provides again, and finds what that one has."""
    a, b = cluster.start("a", "b")
    b.daemon.process.kill()
    b.daemon.process.wait()
    alone = b.daemon.baseline
    b.daemon.__init__(b.daemon.directory, [], socket_path=b.daemon.path)
    b.daemon.baseline = alone  # the peer may have connected before it was taken
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        assert fetched(there, "x") == b"1"


# ---- machines that lie ------------------------------------------------------------------------

SUM = 0xE4B7943FD57D5D1E  # XXH3 of b"data"


def head(length, kind=b"c", request=1, total=0):
    return struct.pack("<IcxxxQQ", length, kind, request, total)


class Liar:
    """A machine of the cluster that a test plays: it answers each request as `answers`, by method, say."""

    def __init__(self, authority, node="a"):
        certificate, key = authority.sign(node)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(authority.certificate)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.set_alpn_protocols(["gpubufd-peer/1"])
        self.answers = {}
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(plain,), daemon=True).start()

    def _answer(self, plain):
        try:
            with self.context.wrap_socket(plain, server_side=True) as stream:
                file = stream.makefile("rb")
                while len(start := file.read(24)) == 24:
                    length, _, request, _ = struct.unpack("<IcxxxQQ", start)
                    asked = json.loads(file.read(length))
                    self.asked.append(asked["method"])
                    self.last = asked
                    answer = self.answers.get(asked["method"])
                    if callable(answer):
                        answer = answer(request)
                    if isinstance(answer, dict):
                        text = json.dumps(answer).encode()
                        answer = head(len(text), request=request) + text
                    if answer:
                        stream.sendall(answer)
        except OSError:
            pass

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def lying(cluster, authority, request):
    """(machine, liar): a machine, with what options the test says, and one that a test plays, whose node is a."""
    liar = Liar(authority)
    cluster.play("a", liar.port, "x", "y")
    (b,) = cluster.start("b", options=["--patience-ms=1000", *getattr(request, "param", [])])
    liar.answers = {
        "open": {"lease": 1, "content": 4, "mode": 0o644, "device": "gpu" if test_device.ON_GPU else "host",
                 "layout": {"kind": "bytes", "bytes": 4, "data": {"bytes": 4}}},
        "read": lambda request: head(4, b"d", request, SUM) + b"data",
    }
    yield b, liar
    liar.close()


def changed(what, **members):
    return lambda answers: answers[what].update(members)


def layout_of(**members):
    return changed("open", layout=members)


LIES = {
    "junk": lambda answers: answers.update(open=b"\0" * 100),
    "no JSON": lambda answers: answers.update(open=lambda request: head(4, request=request) + b"{{{{"),
    "huge control": lambda answers: answers.update(open=lambda request: head(1 << 31, request=request)),
    "unasked data": lambda answers: answers.update(open=lambda request: head(1 << 30, b"d", request)),
    "longer data": lambda answers: answers.update(read=lambda request: head(5, b"d", request) + b"data1"),
    "shorter data": lambda answers: answers.update(read=lambda request: head(3, b"d", request) + b"dat"),
    "other request": lambda answers: answers.update(read=lambda request: head(4, b"d", request + 9) + b"data"),
    "wrong sum": lambda answers: answers.update(read=lambda request: head(4, b"d", request, 1) + b"data"),
    "nothing": lambda answers: answers.update(open=None),
    "no data": lambda answers: answers.update(read=None),
    "JSON for data": lambda answers: answers.update(read={"data": 1}),
    "refuses to read": lambda answers: answers.update(read={"error": {"kind": "stale", "message": "no"}}),
    "no kind": lambda answers: answers.update(open={"error": {"kind": "of", "message": "no"}}),
    "more bytes": layout_of(kind="bytes", bytes=1 << 40),
    "too many": layout_of(kind="bytes", bytes=1 << 53),
    "negative": layout_of(kind="bytes", bytes=-4),
    "no layout": layout_of(),
    "a larger buffer": layout_of(kind="bytes", bytes=4, data={"bytes": 1 << 45}),
    "a smaller buffer": layout_of(kind="bytes", bytes=4, data={"bytes": 1}),
    "many columns": layout_of(kind="table", length=0, columns=[
        {"name": str(i), "dtype": "int8", "length": 0} for i in range(5000)]),
    "deep": layout_of(kind="column", length=0, **functools.reduce(
        lambda child, _: {"dtype": "list", "children": [{"length": 0, **child}]}, range(30), {"dtype": "int8"})),
    "a mode": changed("open", mode=0o777),
    "no lease": changed("open", lease=0),
}


@pytest.mark.parametrize("lie", LIES)
# RELIABILITY.md: Other machines 20
def test_nothing_is_believed(lying, lie):
    """Each wait ends with a sentence, nothing is made, and the peer serves on. Each has a peer of its own: one that was
    lied to asks that machine no more for a while."""
    b, liar = lying
    LIES[lie](liar.answers)
    with b.connect() as there:
        refused(there, "x", "unavailable")
        assert liar.asked
        is_nowhere(there, "x")
        share(there, "own", b"1")
    assert b.peer.process.poll() is None


@pytest.mark.parametrize("lying", [[PATIENT]], indirect=True)
def test_the_truth_is_believed(lying):
    """The honest case, from which those above differ."""
    b, liar = lying
    with b.connect() as there:
        assert fetched(there, "x") == b"data"
    wait_until(lambda: liar.asked == ["open", "read", "release"])


class Stranger:
    """A machine that a test plays, connected to a peer."""

    def __init__(self, authority, port, node="a", pair=None, plain=None):
        """`pair`: its certificate and key, if they were signed before; `plain`: its connection, if it was made."""
        certificate, key = pair or authority.sign(node)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(authority.certificate)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["gpubufd-peer/1"])
        plain = plain or socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.stream = context.wrap_socket(plain)
        self.last = 0

    def send(self, value):
        self.last += 1
        text = json.dumps(value).encode()
        self.stream.sendall(head(len(text), request=self.last) + text)

    def receive(self):
        """(request, what came)"""
        length, kind, request, _ = struct.unpack("<IcxxxQQ", self.exactly(24))
        data = self.exactly(length)
        return request, data if kind == b"d" else json.loads(data)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise Closed
            data += more
        return data

    def answer(self):
        """To the last request; before it the peer may say that it takes longer."""
        while (answer := self.receive()) == (0, {}):
            pass
        assert answer[0] == self.last
        return answer[1]

    def ask(self, value):
        self.send(value)
        return self.answer()

    def is_closed(self):
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while self.stream.recv(1 << 16):
                pass
        return True

    def close(self):
        self.stream.close()


@pytest.fixture
def stranger(cluster, authority):
    """(machine, connect): connect() gives a Stranger of the node a."""
    cluster.play("a", 1)
    (b,) = cluster.start("b", options=["--connections=6"])
    strangers = []

    def connect():
        strangers.append(Stranger(authority, b.peer.port))
        return strangers[-1]

    yield b, connect
    for one in strangers:
        one.close()


def test_a_stranger_sends_junk(stranger):
    _, connect = stranger
    for sent in (b"\xff" * 4096, head(0), head(1 << 31), head(4, b"d"), head(4, b"z"), b"\1\0\0\0c\1" + bytes(18)):
        one = connect()
        one.stream.sendall(sent)
        assert one.is_closed()
        two = connect()
        assert two.ask({"method": "open", "name": "none"})["error"]["kind"] == "not_found"
        two.close()


NONSENSE = [
    [], 1, "x", {}, {"method": "x"}, {"method": "open"}, {"method": "open", "name": "y", "version": 1 << 40},
    {"method": "read", "lease": 99, "chunk": 0}, {"method": "read", "lease": 1, "chunk": 1},
    {"method": "read", "lease": 1, "chunk": 1 << 51}, {"method": "sum", "lease": 1}, {"method": "open", "name": ""},
    {"method": "open", "name": "x" * 300}, {"method": "open", "name": "private"}, {"method": "open", "name": "local"},
]


def test_a_stranger_asks_what_makes_no_sense(stranger):
    b, connect = stranger
    with b.connect() as peer:
        share(peer, "y", b"1")
        share(peer, "private", b"1", mode="0600")
        share(peer, "local", b"1", scope="local")
        one = connect()
        assert one.ask({"method": "open", "name": "y"})["content"] == 1
        for asked in NONSENSE:
            assert one.ask(asked)["error"]["message"], asked
            assert one.ask({"method": "read", "lease": 1, "chunk": 0}) == b"1"


def test_what_a_stranger_may_have_at_a_time(stranger):
    """Leases, requests that are not read, connections."""
    b, connect = stranger
    with b.connect() as peer:
        share(peer, "y", bytes(MIB))
        one = connect()
        for _ in range(256):
            assert "lease" in one.ask({"method": "open", "name": "y"})
        assert one.ask({"method": "open", "name": "y"})["error"]["kind"] == "limit"
        one.send({"method": "release", "lease": 1})
        assert "lease" in one.ask({"method": "open", "name": "y"})
        # A part that is asked for and not taken is neither read nor kept.
        one.stream.settimeout(0.2)
        with pytest.raises(TimeoutError):
            for _ in range(1_000_000):
                one.send({"method": "read", "lease": 2, "chunk": 0})
        with open(f"/proc/{b.peer.process.pid}/status") as file:
            resident = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
        assert resident < 300_000
        more = [connect() for _ in range(14)]
        for two in more[:3]:
            assert "lease" in two.ask({"method": "open", "name": "y"})
        for two in more[3:]:  # which takes no place
            assert two.ask({"method": "lane", "address": "AAAA"})["error"]["kind"] == "unsupported"
        with pytest.raises((Closed, ConnectionError, ssl.SSLError)):
            connect().ask({"method": "open", "name": "y"})
        one.close()
        for two in more:
            two.close()
        wait_until(lambda: peer.call("stat", name="y")["object"]["leases"] == 0)
        assert "lease" in connect().ask({"method": "open", "name": "y"})


def test_a_fifth_machine_waits_its_turn(cluster, authority):
    """Of a large object; what is small goes to all, and more leases to one that has some."""
    _, b, c, *_ = cluster.start(*"abcdefg")
    data, small = bytes(64 * MIB // 4), bytes(64 * MIB // 5)
    with b.connect() as here, c.connect() as there, contextlib.ExitStack() as stack:
        share(here, "large", data)
        share(here, "small", small)
        four = [Stranger(authority, b.peer.port, node) for node in "defg"]
        leases = []
        for one in four:
            stack.callback(one.close)
            leases.append([one.ask({"method": "open", "name": name})["lease"] for name in ("small", "large", "large")])
        waiting = there.request("open", name="large", wait_ms=WAIT)
        c.peer.wait_for('fetch waits name=large why="b .*: 4 machines are fetching large from it')
        assert fetched(c.connect(), "small") == small
        four[0].send({"method": "release", "lease": leases[0][1]})
        four[1].send({"method": "release", "lease": leases[1][1]})
        four[1].send({"method": "release", "lease": leases[1][2]})
        assert there.reply(waiting)["object"]["bytes"] >= len(data)
        assert fetched(there, "large") == data


def test_a_stranger_is_told_to_wait(stranger):
    """By a message without a request, as long as the daemon takes."""
    b, connect = stranger
    with b.connect() as peer:
        share(peer, "y", b"1")
        one = connect()
        b.daemon.process.send_signal(signal.SIGSTOP)
        try:
            one.send({"method": "open", "name": "y"})
            assert one.receive() == (0, {})
        finally:
            b.daemon.process.send_signal(signal.SIGCONT)
        assert "lease" in one.answer()


# RELIABILITY.md: Other machines 20
def test_a_stranger_without_a_certificate(stranger):
    b, _ = stranger
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["gpubufd-peer/1"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with context.wrap_socket(socket.create_connection(("127.0.0.1", b.peer.port))) as stream:
            stream.sendall(head(4) + b"null")
            assert stream.recv(1) == b""
            raise ConnectionError
    b.peer.wait_for("peer did not return a certificate")


