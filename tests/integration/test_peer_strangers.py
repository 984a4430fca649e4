"""Those who would keep gpubufd-peer from others: connections without a certificate, users with many names, machines
past its places; and what each of them can write into its log."""

import contextlib
import os
import re
import signal
import socket
import ssl
import threading

import pytest

from certificates import Authority
from cluster import PATIENT, WAIT, fetched
from peer import DEADLINE, wait_until
from test_peer import MIB, Stranger, lying, share, stranger  # noqa: F401 (two are fixtures)

pytestmark = pytest.mark.host_only("about links, not about memory")


class Flood:
    """Connections that say nothing, `many` at a time, made again as soon as they are closed."""

    def __init__(self, port, many):
        self.port, self.many, self.made, self.ended = port, many, 0, False
        self.open = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _is_open(self, one):
        try:
            return one.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _run(self):
        while not self.ended:
            for one in self.open:
                if not self._is_open(one):
                    one.close()
            self.open = [one for one in self.open if one.fileno() >= 0]
            with contextlib.suppress(OSError):
                while len(self.open) < self.many and not self.ended:
                    self.open.append(socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE))
                    self.open[-1].setblocking(False)
                    self.made += 1

    def close(self):
        self.ended = True
        self.thread.join()
        for one in self.open:
            one.close()


# RELIABILITY.md: Other machines 3
def test_connections_without_a_certificate_keep_nobody_out(cluster):
    """More than there are places for, from the address that the machines have, too."""
    a, b, c = cluster.start("a", "b", "c", options=["--connections=16"])
    with a.connect() as here, b.connect() as there:
        for i in range(5):
            share(here, f"x{i}", b"%d" % i)
        flood = Flood(a.peer.port, 100)
        try:
            wait_until(lambda: flood.made > 200)
            assert fetched(there, "x0") == b"0"
            for i in range(1, 5):  # connected anew, each time
                b.peer.stop()
                cluster.run(b)
                assert fetched(there, f"x{i}") == b"%d" % i
        finally:
            flood.close()
        assert len(re.findall("too many are open", a.peer.stderr())) == 1
    assert len(a.peer.stderr().splitlines()) < 20


def first_handshake_byte(port, source):
    """A connection that begins a handshake, and never goes on."""
    one = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE, source_address=(source, 0))
    one.sendall(b"\x16")
    return one


# RELIABILITY.md: Other machines 3
def test_half_a_handshake_from_many_addresses_ends_no_other(cluster, authority):
    """As many as may be are half done, and more come at the same moment as a machine."""
    _, b = cluster.start("a", "b")
    many = [first_handshake_byte(b.peer.port, f"127.0.{i // 32}.9") for i in range(32, 32 + 1024)]
    try:
        b.peer.process.send_signal(signal.SIGSTOP)  # so that they wait to be accepted together
        mine = socket.create_connection(("127.0.0.1", b.peer.port), timeout=DEADLINE)
        many += [first_handshake_byte(b.peer.port, f"127.0.{i}.8") for i in range(1, 9)]
        b.peer.process.send_signal(signal.SIGCONT)
        one = Stranger(authority, b.peer.port, plain=mine)
        assert one.ask({"method": "open", "name": "x"})["error"]["kind"] == "not_found"
        one.close()
    finally:
        b.peer.process.send_signal(signal.SIGCONT)
        for half in many:
            half.close()


# RELIABILITY.md: Other machines 3
def test_a_machine_past_the_places_is_told_to_wait(cluster, authority):
    _, b, c = cluster.start("a", "b", "c", options=["--connections=1"])
    with b.connect() as here, c.connect() as there:
        share(here, "x", b"1")
        one = Stranger(authority, b.peer.port)
        assert "lease" in one.ask({"method": "open", "name": "x"})
        two = Stranger(authority, b.peer.port, "c")
        assert two.ask({"method": "open", "name": "x"})["error"]["kind"] == "busy"
        waiting = there.request("open", name="x", wait_ms=WAIT)
        c.peer.wait_for(r"fetch waits name=x why=\"b .*: it serves 1 machines, as many as it may \(connections\)")
        one.close()
        assert there.reply(waiting)["object"]["bytes"] == 1
        two.close()


# RELIABILITY.md: Other machines 3
def test_a_machine_counts_once_among_those_that_fetch(cluster, authority):
    """However many connections it has: an object of this size is sent to four at a time."""
    _, b, c = cluster.start("a", "b", "c")
    with b.connect() as here, c.connect() as there:
        share(here, "x", bytes(17 * MIB))
        many = [Stranger(authority, b.peer.port) for _ in range(4)]
        for one in many:
            assert "lease" in one.ask({"method": "open", "name": "x"})
        assert len(fetched(there, "x")) == 17 * MIB
        for one in many:
            one.close()


def test_an_idle_machine_gives_its_place_up(cluster, authority):
    _, b, c = cluster.start("a", "b", "c", options=["--connections=1"])
    with b.connect() as here, c.connect() as there:
        share(here, "x", b"1")
        one = Stranger(authority, b.peer.port)
        one.send({"method": "release", "lease": one.ask({"method": "open", "name": "x"})["lease"]})
        assert fetched(there, "x") == b"1"
        assert one.is_closed()


def test_a_connection_that_is_refused_is_tried_again(cluster):
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        share(here, "x", b"1")
        a.lane.open = False
        waiting = there.request("open", name="x", wait_ms=WAIT)
        wait_until(lambda: a.lane.refused > 0)
        a.lane.open = True
        assert there.reply(waiting)["object"]["bytes"] == 1


@pytest.mark.root
@pytest.mark.parametrize("lying", [[PATIENT]], indirect=True)
# RELIABILITY.md: Other machines 4
def test_users_take_turns_to_fetch(lying, cluster):  # noqa: F811
    """One waits for more names than are fetched at a time, from a machine that answers nothing."""
    b, liar = lying
    asked = set()
    liar.answers["open"] = lambda request: asked.add(liar.last["name"])
    cluster.play("a", liar.port, "one", *(f"many/{i}" for i in range(100)))
    cluster.await_news(b)
    with b.daemon.connect_as(1001, 1001) as greedy, b.connect() as other:
        for i in range(100):
            greedy.request("open", name=f"many/{i}", wait_ms=WAIT)
        wait_until(lambda: len(asked) >= 32)
        other.request("open", name="one", wait_ms=WAIT)
        wait_until(lambda: "one" in asked)
        assert len(asked) <= 33


# RELIABILITY.md: Other machines 6
def test_what_others_can_write_into_the_log(stranger, authority):  # noqa: F811
    b, connect = stranger
    before = len(b.peer.stderr().splitlines())
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", b.peer.port), timeout=DEADLINE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while plain.recv(4096):
                pass
    for _ in range(30):
        one = connect()
        one.ask({"method": "open", "name": "none"})
        one.close()
    last = connect()
    last.ask({"method": "open", "name": "none"})
    lines = b.peer.stderr().splitlines()[before:]
    assert any("no TLS connection" in line for line in lines)
    assert sum("has connected" in line for line in lines) == 1
    assert len(lines) < 8, lines


def test_what_programs_can_write_into_the_log(cluster):
    """However many names they open: 20 lines of a kind in a minute."""
    a, b = cluster.start("a", "b")
    with a.connect() as here, b.connect() as there:
        for i in range(60):
            share(here, f"x{i}", b"1")
        _, asked = ([there.request("open", name=f"{kind}{i}", wait_ms=WAIT) for i in range(60)] for kind in "yx")
        for one in asked:
            assert there.reply(one)["object"]["bytes"] == 1
        b.peer.wait_for(r"cannot fetch name=y\d+ why=", count=20)
        assert b.peer.stderr().count("cannot fetch") < 60
        assert 0 < b.peer.stderr().count(" fetched ") < 60


class Refusing:
    """A server that refuses the certificate it is shown, and closes with something unread: the other end is reset."""

    def __init__(self, authority, foreign):
        certificate, key = authority.sign("a")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(foreign.certificate)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.set_alpn_protocols(["gpubufd-peer/1"])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def refuse(self, process):
        """The process gets the alert and the reset at once."""
        plain, _ = self.listener.accept()
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.wrap_bio(come, go, server_side=True)
        with plain:
            while True:
                come.write(plain.recv(1))
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    plain.sendall(go.read())
                except ssl.SSLError:
                    break
            process.send_signal(signal.SIGSTOP)
            plain.sendall(go.read())
        process.send_signal(signal.SIGCONT)


def test_a_certificate_that_is_refused(cluster, authority, tmp_path):
    """The alert is told, and not the reset that follows it."""
    server = Refusing(authority, Authority(tmp_path, "foreign"))
    cluster.play("a", server.port, "x")
    (b,) = cluster.start("b")
    with b.connect() as there:
        waiting = there.request("open", name="x", wait_ms=WAIT)
        server.refuse(b.peer.process)
        server.listener.close()
        with pytest.raises(Exception, match="alert unknown ca"):
            there.reply(waiting)


def test_leases_that_are_asked_for_at_once(stranger):  # noqa: F811
    """256 are 256, also if all are asked for before the first is there."""
    b, connect = stranger
    with b.connect() as peer:
        share(peer, "y", b"1")
        one = connect()
        for _ in range(250):
            assert "lease" in one.ask({"method": "open", "name": "y"})
        for _ in range(40):
            one.send({"method": "open", "name": "y"})
        got = []
        while len(got) < 40:
            request, answer = one.receive()
            if request:
                got.append("lease" in answer)
        assert got.count(True) == 6


def test_a_reconnect_ends_what_nobody_waits_for(cluster):
    a, b = cluster.start("a", "b")
    data = os.urandom(24 * MIB)
    with a.connect() as here:
        share(here, "x", data)
        a.lane.hold_after(4 * MIB)
        reader = b.connect()
        reader.request("open", name="x", wait_ms=WAIT)
        a.lane.wait_held()
        b.daemon.process.kill()
        b.daemon.process.wait()
        reader.close()
        alone = b.daemon.baseline
        b.daemon.__init__(b.daemon.directory, [], socket_path=b.daemon.path)
        b.daemon.baseline = alone  # the peer may have connected before it was taken
        with b.connect() as there:
            wait_until(lambda: any(one["client"] == "gpubufd-peer" for one in there.call("sessions")["sessions"]))
            there.names()
        a.lane.release()
        wait_until(lambda: here.call("stat", name="x")["object"]["leases"] == 0)
        assert a.lane.towards < 20 * MIB
