"""Chunks that come by UCX, and the way back to TLS where they do not."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import cluster as machines
import device as test_device
from cluster import PATIENT, PEER, WAIT, Asker, fetched
from test_peer import MIB, head, is_nowhere, lying, refused, share  # noqa: F401 (one is a fixture)

UCX = "--ucx=trusted-network"
LYING = [UCX, "--patience-ms=15000"]  # a liar that waits for a processor is not silent


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch):
    """As between machines, also on one; and nothing of another network."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    # LeakSanitizer guesses where a module that is loaded late has its thread's memory, and looks at what is not there.
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":intercept_tls_get_addr=0")


def start(cluster, *nodes):
    """Machines; the second has a lane to the first."""
    a, b = cluster.start(*nodes, options=[UCX])
    with a.connect() as here, b.connect() as there:
        share(here, "first", bytes(MIB))
        assert fetched(there, "first") == bytes(MIB)
    b.peer.wait_for("chunks come by UCX")
    return a, b


# The lines of the unit that systemd makes a filter of system calls of.
FILTERED = ("RestrictAddressFamilies", "MemoryDenyWriteExecute", "SystemCallFilter", "RestrictNamespaces",
            "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "ProtectClock", "ProtectKernelLogs")
CONFINED = """#!{python}
import os, pathlib, sys
sys.path.insert(0, {packaging!r})
sys.dont_write_bytecode = True
import confine
here = confine.Confinement(os.getcwd(), os.getuid())
here.apply({lines!r})
here.apply_NoNewPrivileges("yes")
here.filter.install(notify=False)
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # which wants to trace
os.execv({program!r}, sys.argv)
"""


def test_under_the_filter_of_the_unit(cluster, monkeypatch, tmp_path):
    """UCX finds the network, and has nothing to complain of; with all of its transports."""
    root = pathlib.Path(__file__).resolve().parents[2]
    unit = (root / "systemd" / "gpubufd-peer.service.in").read_text()
    lines = [(key, "\n".join(re.findall(f"^{key}=(.*)$", unit, re.M))) for key in FILTERED]
    assert all(value for _, value in lines)
    confined = tmp_path / "confined"
    confined.write_text(CONFINED.format(python=sys.executable, packaging=str(root / "tests" / "packaging"),
                                        lines=lines, program=str(PEER)))
    confined.chmod(0o755)
    monkeypatch.setattr(machines, "PEER", confined)
    monkeypatch.delenv("UCX_TLS")
    monkeypatch.setenv("UCX_LOG_FILE", str(tmp_path / "ucx-%p"))
    a, b = start(cluster, "a", "b")
    for machine in (a, b):
        status = pathlib.Path(f"/proc/{machine.peer.process.pid}/status").read_text()
        assert re.search(r"^Seccomp:\s2$", status, re.M)
        assert "UCX not used" not in machine.peer.stderr()
    assert failures(b) == 0
    assert "".join(path.read_text() for path in tmp_path.glob("ucx-*")) == ""


def failures(machine):
    """Times that UCX failed, as its peer counts them."""
    with Asker(machine) as asker:
        return asker.figure("lane_failures_total")


@pytest.mark.on_gpus
def test_content_comes_beside_the_link(cluster):
    a, b = start(cluster, "a", "b")
    data = os.urandom(24 * MIB + 5)
    before = a.lane.towards
    with a.connect() as here, b.connect() as there:
        share(here, "large", data)
        assert fetched(there, "large") == data
        assert a.lane.towards - before < MIB
        share(here, "small", b"few")
        assert fetched(there, "small") == b"few"
    assert "UCX not used" not in b.peer.stderr() and failures(b) == 0


def test_one_machine_without(cluster):
    a, b = cluster.start("a", "b")
    b.peer.stop()
    cluster.run(b, [UCX])
    data = os.urandom(9 * MIB)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        assert fetched(there, "x") == data
    b.peer.wait_for("UCX not used .*this machine has no such lane")
    assert failures(b) == 0  # of a machine without it nothing has failed


NO_UCX = {
    "UCX cannot be loaded: .*file too short": lambda path: path.write_bytes(b"no library"),
    "libucp.so.0 has no ucs_status_string": lambda path: path.symlink_to(test_device.BUILD / "lib" / "libgpubuf.so"),
    "UCX cannot be used: No such device": None,
}


@pytest.mark.parametrize("sentence", NO_UCX)
def test_a_machine_without_it_says_why_at_once(cluster, tmp_path, monkeypatch, sentence):
    with monkeypatch.context() as patch:
        if make_library := NO_UCX[sentence]:
            make_library(tmp_path / "libucp.so.0")
            patch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
        else:
            patch.setenv("UCX_NET_DEVICES", "none")
        a, b = cluster.start("a", "b", options=[UCX])
    for machine in (a, b):
        machine.peer.wait_for('UCX not used why="' + sentence)
    with a.connect() as here, b.connect() as there:
        share(here, "x", bytes(2 * MIB))
        assert fetched(there, "x") == bytes(2 * MIB)
    assert failures(b) == 0


@pytest.mark.on_gpus
def test_the_owner_is_killed(cluster):
    """The sums of chunks wait on the link, while the chunks come."""
    a, b = start(cluster, "a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", os.urandom(40 * MIB))
        a.lane.hold_after(2000)
        request = there.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        a.peer.kill()
        a.lane.cut()
        with pytest.raises(Exception, match="unavailable"):
            there.reply(request)
        there.delete(["first"])
        is_nowhere(there, "x")
        share(there, "y", b"1")
    assert b.peer.process.poll() is None


@pytest.mark.on_gpus
def test_a_reader_that_leaves(cluster):
    a, b = start(cluster, "a", "b")
    data = os.urandom(40 * MIB)
    with a.connect() as here, b.connect() as there:
        share(here, "x", data)
        a.lane.hold_after(2000)
        with b.connect() as other:
            other.request("open", name="x", wait_ms=WAIT)
            a.lane.wait_held()
        a.lane.release()
        assert fetched(there, "x") == data


def test_no_option_without_the_word():
    told = subprocess.run([PEER, "--ucx=yes"], capture_output=True, text=True, env=test_device.environment())
    assert told.returncode == 2
    assert "expected trusted-network" in told.stderr


# ---- machines that lie ------------------------------------------------------------------------------


ZEROS = 0x918780B90550BF34  # XXH3 of 1 MiB of zeros


def of_zeros(liar):
    """Nine MiB, which come over TLS as they should."""
    opened = dict(liar.answers["open"], content=9 * MIB,
                  layout={"kind": "bytes", "bytes": 9 * MIB, "data": {"bytes": 9 * MIB}})
    liar.answers.update(open=opened,
                        read=lambda request: head(MIB, b"d", request, ZEROS) + bytes(MIB))


ADDRESSES = {
    "refused": {"error": {"kind": "invalid", "message": "no"}},
    "none": {},
    "empty": {"address": ""},
    "no number": {"address": "!!"},
    "long": {"address": "AAAA" * 9000},
    "a number": {"address": 1},
}


@pytest.mark.parametrize("lying", [[UCX, PATIENT]], indirect=True)
@pytest.mark.parametrize("told", ADDRESSES)
def test_an_address_that_is_none(lying, told):
    b, liar = lying
    of_zeros(liar)
    liar.answers["lane"] = ADDRESSES[told]
    with b.connect() as there:
        assert fetched(there, "x") == bytes(9 * MIB)
    b.peer.wait_for("UCX not used")
    assert failures(b) >= 1
    assert re.search("lane.*lane", " ".join(liar.asked))  # the other side is told


def tagged(answer):
    """A machine that takes the reader's own address for its own, and answers so what has a tag."""
    def lie(liar):
        plain = liar.answers["read"]
        liar.answers.update(lane=lambda _: "address" in liar.last and {"address": liar.last["address"]},
                            read=lambda request: answer(request) if "tag" in liar.last else plain(request))
    return lie


LIES = {
    "nothing": tagged(lambda request: None),
    "a sum without a chunk": tagged(lambda request: {"sum": f"{ZEROS:016x}"}),
    "no sum": tagged(lambda request: {"sum": "x"}),
    "an error": tagged(lambda request: {"error": {"kind": "stale", "message": "no"}}),
}


@pytest.mark.parametrize("lying", [LYING], indirect=True)
@pytest.mark.parametrize("lie", [pytest.param(lie, marks=pytest.mark.on_gpus) if lie == "no sum" else lie for lie in LIES])
def test_what_does_not_come_by_the_lane_comes_by_the_link(lying, lie):
    b, liar = lying
    of_zeros(liar)
    LIES[lie](liar)
    with b.connect() as there:
        assert fetched(there, "x") == bytes(9 * MIB)
        b.peer.wait_for("chunks come by UCX")
        assert fetched(there, "y") == bytes(9 * MIB)
    b.peer.wait_for("UCX not used")
    assert failures(b) >= 1  # or more, on a machine that takes a minute


@pytest.mark.parametrize("lying", [LYING], indirect=True)
def test_data_on_the_link_for_a_chunk_of_the_lane(lying):
    b, liar = lying
    of_zeros(liar)
    tagged(lambda request: head(MIB, b"d", request, ZEROS) + bytes(MIB))(liar)
    with b.connect() as there:
        refused(there, "x", "unavailable")  # the ninth chunk is asked for when the lane is there
        is_nowhere(there, "x")


@pytest.mark.parametrize("lying", [LYING], indirect=True)
def test_data_for_a_request_that_was_asked_anew(lying):
    """Its memory is the fetch's no more."""
    b, liar = lying
    of_zeros(liar)
    left = []
    plain = liar.answers["read"]
    liar.answers["read"] = lambda request: b"".join(map(plain, [*left, request]))
    tagged(left.append)(liar)
    with b.connect() as there:
        refused(there, "x", "unavailable")
        is_nowhere(there, "x")
