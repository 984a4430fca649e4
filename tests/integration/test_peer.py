"""gpubufd-peer: names of other machines, fetched once, checked, and never half."""

import os
import re
import signal

import pytest

import device as test_device
from cluster import Authority, Cluster
from ctl import Ctl
from peer import DEADLINE, Closed, RpcError, wait_until
from test_gpubufctl_snapshot import contents, publish_all

MIB = 1 << 20
WAIT = 60_000
SCOPE = {"scope": "cluster"}


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def cluster(daemon_factory, authority):
    one = Cluster(daemon_factory, authority)
    yield one
    one.stop()


def share(peer, name, data, **params):
    return peer.put(name, data, **{**SCOPE, "mode": "0644", **params})


def fetched(peer, name, wait_ms=WAIT, **params):
    opened = peer.open_object(name, wait_ms=wait_ms, **params)
    data = bytes(opened.read())
    opened.release()
    return data


def refused(peer, name, kind, wait_ms=WAIT):
    return peer.error(kind, "open", name=name, wait_ms=wait_ms).message


def is_nowhere(peer, *names):
    """Neither are they there, nor is anything being made."""
    assert not set(names) & set(peer.names())
    wait_until(lambda: peer.used() == 0)


# ---- what is fetched ------------------------------------------------------------------------------


class Open(Ctl):
    """What it puts everybody may read."""

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
            peer.call("alias", name=f"all/{name}", of=name, mode="0644", **SCOPE)
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


def test_what_a_copy_is_like(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        version = share(here, "x", b"as it was", mode="0604")
        share(here, "labelled", b"1", label="step-42")
        assert fetched(there, "x") == b"as it was"
        copy = there.call("stat", name="x")["object"]
        assert copy["evict"] == "drop" and copy["mode"] in ("604", "0604")
        assert copy["label"] == f"copy of a, revision {version}"
        assert "scope" not in copy
        fetched(there, "labelled")
        assert there.call("stat", name="labelled")["object"]["label"] == "step-42"


def test_nothing_in_it(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "none", b"")
        assert fetched(there, "none") == b""


@pytest.mark.parametrize("size", [1, MIB - 1, MIB, MIB + 1, 9 * MIB + 5])
def test_sizes_around_a_chunk(cluster, size):
    a, b = cluster.start("a", "b")
    data = os.urandom(size)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        assert fetched(there, "x") == data


def test_many_readers_cause_one_transfer(cluster):
    a, b = cluster.start("a", "b")
    data = os.urandom(8 * MIB)
    with a.connect() as here:
        share(here, "x", data)
    readers = [b.connect() for _ in range(64)]
    asked = [(reader, reader.request("open", name="x", wait_ms=WAIT)) for reader in readers]
    for reader, ident in asked:
        assert reader.reply(ident)["object"]["bytes"] >= len(data)
    assert len(re.findall("fetched x", b.peer.stderr())) == 1
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


def test_from_the_machine_that_has_a_copy(cluster):
    a, b, c = cluster.start("a", "b", "c")
    data = os.urandom(3 * MIB)
    with a.connect() as here:
        share(here, "x", data)
    with c.connect() as there:
        assert fetched(there, "x") == data
    a.lane.cut()
    with b.connect() as there:
        assert fetched(there, "x") == data
        assert "copy of a" in there.call("stat", name="x")["object"]["label"]


# ---- who may ------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize("params", [{"mode": "0600"}, {"mode": "0640"}, {"scope": "local"}])
def test_what_is_not_for_other_machines(cluster, params):
    a, b = cluster.start("a", "b")
    with a.daemon.connect_as(1001, 1001) as here: # whose group is not the peer's
        share(here, "x", b"mine", **params)
        with b.connect() as there:
            assert "no machine has it" in refused(there, "x", "not_found")
            is_nowhere(there, "x")


def test_nobody_has_it(cluster):
    _, b = cluster.start("a", "b")
    with b.connect() as there:
        assert refused(there, "x", "not_found").endswith("no machine has it")


def test_two_machines_have_different_ones(cluster):
    a, b, c = cluster.start("a", "b", "c")
    with a.connect() as one, b.connect() as two, c.connect() as there:
        share(one, "x", b"1")
        share(two, "x", b"2")
        sentence = refused(there, "x", ("exists", "unavailable"))
        assert "ambiguous" in sentence and "a and b" in sentence or "b and a" in sentence
        is_nowhere(there, "x")


# ---- machines that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [1, 50, 99])
def test_the_owner_is_killed_in_the_middle(cluster, percent):
    a, b = cluster.start("a", "b")
    size = 32 * MIB
    with a.connect() as here:
        share(here, "x", os.urandom(size))
    a.lane.hold(size * percent // 100)
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


def test_another_copy_takes_over(cluster):
    a, b, c = cluster.start("a", "b", "c")
    data = os.urandom(32 * MIB)
    with a.connect() as here, c.connect() as there:
        share(here, "x", data)
        assert fetched(there, "x") == data
    a.lane.hold(4 * MIB)
    with b.connect() as there:
        ident = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        a.peer.process.kill()
        a.lane.cut()
        there.reply(ident)
        assert fetched(there, "x") == data
    a.peer.process.wait()


def test_a_machine_that_stands_still(cluster):
    a, b = cluster.start("a", "b", options=["--patience-ms=500"])
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        a.peer.process.send_signal(signal.SIGSTOP)
        try:
            assert "does not answer" in refused(there, "x", "unavailable")
        finally:
            a.peer.process.send_signal(signal.SIGCONT)


def test_a_machine_that_comes_back(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        a.lane.open = False
        assert f"a (127.0.0.1:{a.lane.port})" in refused(there, "x", "unavailable")
        a.lane.open = True

        def is_there():
            try:
                return fetched(there, "x") == b"1"
            except RpcError as error:
                assert error.kind == "unavailable"

        wait_until(is_there)


def test_a_bit_that_is_another(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", os.urandom(4 * MIB))
        a.lane.spoil_at = 2 * MIB
        sentence = refused(there, "x", "unavailable")
        assert "bad record mac" in sentence and "a (127.0.0.1" in sentence
        is_nowhere(there, "x")


def test_a_reader_that_leaves(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", os.urandom(16 * MIB))
    a.lane.hold(4 * MIB)
    reader = b.connect()
    reader.request("open", name="x", wait_ms=WAIT)
    a.lane.wait_held()
    reader.close()
    a.lane.release()
    with b.connect() as there:
        is_nowhere(there, "x")


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


def test_the_daemon_goes_on_in_the_place_of_another(cluster, daemon_factory):
    """The peer connects anew, and provides again."""
    a, b = cluster.start("a", "b")
    with a.connect() as here:
        share(here, "x", b"1")
        b.peer.wait_for("listens")
        with b.connect() as there:
            assert fetched(there, "x") == b"1"


# ---- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how, sentence", [
    ("expired", "certificate has expired"),
    ("foreign", "unable to get local issuer certificate"),
    ("name", "its certificate is that of z"),
])
def test_a_wrong_certificate(cluster, authority, tmp_path, how, sentence):
    """Of the machine that has the name: neither is it believed, nor may it read here."""
    wrong = {
        "expired": lambda: authority.sign("a", days=-1, stem="expired"),
        "foreign": lambda: Authority(tmp_path, "foreign").sign("a"),
        "name": lambda: authority.sign("z"),
    }[how]()
    a, b = cluster.start("a", "b", certificates={"a": wrong})
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        share(there, "y", b"1")
        assert sentence in refused(there, "x", "unavailable")
        refused(here, "y", "unavailable")
        assert here.names() == ["x"] and there.names() == ["y"]


def test_new_certificates(cluster, authority):
    """SIGHUP reads them anew; connections that there are stay."""
    a, b = cluster.start("a", "b")
    certificate, key = authority.sign("a", stem="a")
    a.peer.process.send_signal(signal.SIGHUP)
    a.peer.wait_for("the certificates were read anew")
    with open(certificate, "w") as file:
        file.write("no certificate")
    a.peer.process.send_signal(signal.SIGHUP)
    a.peer.wait_for("the certificates stay as they are: .*a.pem")
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        assert fetched(there, "x") == b"1"
