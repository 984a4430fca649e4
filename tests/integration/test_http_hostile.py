"""Hostile requests to the gateway's HTTP server, and its limits: malformed ones, half ones, connections
that are too many, idle or slow."""

import itertools
import os
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateways import aliases, flood, metric, served, shared_served  # noqa: F401  (two are fixtures)
from http_client import Connection, Ended, Live, UnixConnection, get
from peer import DEADLINE, wait_until

pytestmark = pytest.mark.host_only("the gateway is the same, whatever devices there are")

GOOD = b"GET /api/stats HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


@pytest.mark.parametrize(
    "raw, statuses",
    [
        (b"GET\r\n\r\n", ()),
        (b"GET /\r\n\r\n", (400, 505)),
        (b"GET / HTTP/2.0\r\n\r\n", (400, 505)),
        (b"GET http://H/ HTTP/1.1\r\nHost: H\r\n\r\n", (400,)),
        (b"GET * HTTP/1.1\r\nHost: H\r\n\r\n", (400,)),
        (b"GET /\x01 HTTP/1.1\r\nHost: H\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\n\r\n", (400,)),  # no Host
        (b"GET / HTTP/1.1\r\nHost: H\r\nHost: H\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nOrigin: a\r\norigin: b\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: -1\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 1e3\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 99999999999999999999\r\n\r\n", (400, 413)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nContent-Length: 1025\r\n\r\n", (413,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\n", (501,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\n folded: x\r\n\r\n", (400, 421)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nOrigin: http://H\r\n .evil\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\na: b\r\n\tc\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\na: b\0c\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\0.evil\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nno colon\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\nname : x\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\na: \x01\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\n" + b"a: b\r\n" * 65 + b"\r\n", (431,)),
        (b"GET /" + b"x" * 8200 + b" HTTP/1.1\r\nHost: H\r\n\r\n", (414,)),
        (b"GET / HTTP/1.1\r\nHost: H\r\na: " + b"x" * 20000, (413, 431)),
    ],
)
def test_malformed_requests(shared_served, raw, statuses):
    """Refused, and the connection ends: where the next request would begin is unknown."""
    with Connection(shared_served.port) as connection:
        host = connection.host.encode()
        connection.send(raw.replace(b"Host: H", b"Host: " + host).replace(b"http://H\r", b"http://" + host + b"\r"))
        try:
            said = connection.until_end()
        except ConnectionResetError:
            said = connection.pending
        head = said.split(b"\r\n\r\n")[0].decode()
        assert not said and not statuses or int(head.split()[1]) in statuses, said
        assert not said or "connection: close" in head.lower()
    assert get(shared_served.port, "/api/stats").status == 200


def test_a_request_in_every_split(shared_served):
    raw = GOOD % shared_served.port
    for cut in range(1, len(raw)):
        with Connection(shared_served.port) as connection:
            connection.send(raw[:cut])
            connection.send(raw[cut:])
            assert connection.reply().status == 200


@pytest.fixture
def small(daemon, gateway):
    """Eight connections, seven of them from one address. Ten times as patient: here nobody is to go for being late."""
    daemon.gateway = gateway(daemon, "--http", "127.0.0.1:0", "--connections", 8, haste=0.1)
    daemon.port = daemon.gateway.port
    return daemon


def unread(port):
    """The bytes that have come to connections of that port and that its program has not received."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file][1:]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01")


def test_the_oldest_half_request_makes_room(small):
    def threads():  # one for each connection, which notes when it came
        return len(os.listdir(f"/proc/{small.gateway.process.pid}/task"))

    halves = []
    for _ in range(7):
        before = threads()
        halves.append(Connection(small.port))
        wait_until(lambda before=before: threads() > before)
        halves[-1].send(b"GET / HT")
    wait_until(lambda: unread(small.port) == 0)  # one with unread input goes last
    wait_until(lambda: try_get(small.port) == 200)  # once the oldest has had its time to arrive
    assert halves[0].ended()
    for connection in halves[1:]:  # they were not harmed
        connection.send(f"TP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
        assert connection.reply().status == 200


def dribble(port, count, stop):
    """`count` half requests at any time, opened as fast as can be; each gets another octet now and then."""
    held = []
    while not stop.is_set():
        try:
            held.append((Connection(port), itertools.cycle(HEAD % port)))
            for connection, octets in held[-1:] + random.sample(held, 1):
                connection.send(bytes([next(octets)]))
        except OSError:  # the oldest are hung up on
            pass
        while len(held) > count:
            held.pop(0)[0].close()
    for connection, _ in held:
        connection.close()


def scraped(port):
    """A scraper that is kept from speaking between its connection and its request, which a busy machine
    may do, is the oldest half request itself by then, and asks again."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return get(port, "/metrics")
        except (Ended, ConnectionError):
            assert time.monotonic() < end, "metrics are shut out"


def accepted(port):
    return int(scraped(port).text.split("\ngpubufd_http_connections_accepted_total ")[1].split()[0])


@pytest.mark.parametrize("count", [64, 1200])
# RELIABILITY.md: The gateway 2
def test_half_requests_never_shut_metrics_out(served, count):
    stop = threading.Event()
    attackers = [threading.Thread(target=dribble, args=(served.port, count // 2, stop)) for _ in range(2)]
    for attacker in attackers:
        attacker.start()
    try:
        wait_until(lambda: accepted(served.port) > count)
        assert [scraped(served.port).status for _ in range(50)] == [200] * 50
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()


# RELIABILITY.md: The gateway 2
def test_metrics_where_all_are_served(small):
    """Four listen and three do not read what they asked for: the rest is refused, but metrics are not."""
    aliases(small.connect(), (f"{i:04}{'x' * 240}" for i in range(9000)))
    busy = [Live(small.port) for _ in range(4)]
    for _ in range(3):
        busy.append(Connection(small.port))
        busy[-1].send(f"GET /api/objects HTTP/1.1\r\nHost: {busy[-1].host}\r\n\r\n".encode())
        busy[-1].read_bytes(1)
    assert get(small.port, "/api/stats").status == 503
    for _ in range(10):
        assert get(small.port, "/metrics").status == get(small.port, "/healthz").status == 200
    for connection in busy:
        connection.close()


def test_a_crowd_is_answered(served):
    """Twice as many clients as connections, all at once: each is answered, though it may be by 503."""
    again = []

    def ask_for(path):
        with Connection(served.port) as connection:
            connection.send(f"GET {path} HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
            try:
                return connection.reply().status
            except (Ended, ConnectionError):  # a busy machine held it up: as a half request it gave way
                again.append(path)
        assert len(again) < 64, again
        return ask_for(path)

    def ask(_):
        return [ask_for(path) for path in ("/api/stats", "/metrics", "/healthz")]

    with ThreadPoolExecutor(128) as pool:
        answers = list(pool.map(ask, range(256)))
    assert {status for stats, *_ in answers for status in [stats]} <= {200, 503}
    assert {status for _, *vital in answers for status in vital} == {200}


def test_the_idle_make_room(small):
    idle = [Connection(small.port) for _ in range(7)]
    assert [one.request("/api/stats").status for one in idle] == [200] * 7
    assert try_get(small.port) == 200
    assert idle[0].ended()
    assert idle[6].request("/api/stats").status == 200


def test_connections_are_limited(small):
    """Nobody who is served has to go; past the limit there is 503. Half of all may listen."""
    live = [Live(small.port) for _ in range(4)]
    assert {one.message()["kind"] for one in live} == {"stats"}
    assert Live(small.port).handshake.status == 503
    for one in live:
        one.close()
    wait_until(lambda: metric(small.port, "gpubufd_http_live_connections") == 0)
    assert Live(small.port).handshake.status == 200


def try_get(port):
    return get(port, "/api/stats").status


# Each state of a connection has its time, and what is tested is a clock, twenty times as fast.

HEAD = b"GET /api/stats HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-a: b\r\n"


@pytest.fixture
def hasty(daemon, gateway):
    daemon.port = gateway(daemon, "--http", "127.0.0.1:0", "--connections", 8, haste=20).port
    return daemon


@pytest.mark.parametrize("said", [b"", b"\r\n\r\n", b"G", b"GET /", b"GET / HTTP/1.1\r\n", HEAD,
                                  b"POST /login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                                  b"Content-Length: 9\r\n\r\ntok"])
def test_half_a_request_does_not_stay(hasty, said):
    """Ten seconds for all of it."""
    start = time.monotonic()
    connection = Connection(hasty.port)
    connection.send(said % hasty.port if b"%d" in said else said)
    wait_until(connection.ended)
    assert 0.4 < time.monotonic() - start


def feed_octets(connection, start):
    """(How long a connection stayed whose request comes octet by octet, the longest pause between two of them)."""
    connection.socket.settimeout(0.05)
    last, longest = start, 0
    try:
        for octet in itertools.cycle(b"x"):
            connection.send(bytes([octet]))
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            try:
                if connection.socket.recv(1) == b"":
                    break
            except TimeoutError:
                pass
            assert time.monotonic() - start < DEADLINE
    except (BrokenPipeError, ConnectionResetError):
        pass
    connection.close()
    return last - start, max(longest, time.monotonic() - last)


def test_nor_one_that_comes_octet_by_octet(hasty):
    assert 0.4 < feed_octets(Connection(hasty.port), time.monotonic())[0]


def idle_at(port):
    """A connection that has asked, and since when. Half a second is short on a busy machine: it may take several."""
    for _ in range(20):
        connection, start = Connection(port), time.monotonic()
        try:
            assert connection.request("/api/stats").status == 200
            return connection, start
        except (Ended, ConnectionError):
            connection.close()
    raise AssertionError("nobody is served")


def connections_at(port):
    """How many there are, the one that asks among them. Metrics lack it where the daemon was too slow to answer."""
    told = []
    wait_until(lambda: told.extend(re.findall(r"^gpubufd_http_connections (\d+)$", scraped(port).text, re.M)) or told)
    return int(told[0])


def test_an_idle_connection_does_not_stay(hasty):
    """A minute; libmicrohttpd ends it after thirty seconds without a byte."""
    connection, start = idle_at(hasty.port)
    wait_until(connection.ended)
    assert 0.9 < time.monotonic() - start


# Without an octet a connection ends after a second and a half. Where the test itself was so slow it tries again.
SLOW = 1.2


def test_nor_one_whose_next_request_comes_octet_by_octet(hasty):
    assert 2.5 < next(stayed for stayed, pause in (feed_octets(*idle_at(hasty.port)) for _ in range(10)) if pause < SLOW)


def test_nor_one_that_does_not_read(hasty):
    """Thirty seconds in which nothing can be sent, of an answer and of events."""
    peer = hasty.connect()
    aliases(peer, (f"{i:04}{'x' * 240}" for i in range(9000)))
    for path in ("/api/objects", "/api/events"):
        connection = Connection(hasty.port)
        connection.send(f"GET {path} HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
        connection.read_bytes(1)
        while connections_at(hasty.port) > 1:
            flood(peer, "alias", 500, name="x" * 250, of="base", mode="0604", replace=True)
        connection.close()


def read_slowly(path, port):
    """(How long a connection stayed that reads slowly, the longest pause between two of its reads)."""
    connection = UnixConnection(path)
    start = last = time.monotonic()
    longest = 0
    connection.send(b"GET /api/objects HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while connections_at(port) > 1:
        assert connection.socket.recv(1 << 14) or longest > SLOW
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        time.sleep(0.05)  # slowly is what is tested
    connection.close()
    return time.monotonic() - start, max(longest, time.monotonic() - last)


def test_nor_one_that_reads_slowly(daemon, gateway, directory):
    """Two minutes for an answer. Over a unix socket, where the kernel keeps little of it."""
    path = os.path.join(directory, "http")
    port = gateway(daemon, "--http", "127.0.0.1:0", "--http", f"unix:{path}", haste=20).port
    aliases(daemon.connect(), (f"{i:04}{'x' * 240}" for i in range(9000)))
    stayed = next(stayed for stayed, pause in (read_slowly(path, port) for _ in range(10)) if pause < SLOW)
    assert 5.5 < stayed < DEADLINE


def test_nor_one_that_is_to_be_refused(daemon, gateway):
    """A second for it to ask."""
    small = daemon
    small.port = gateway(daemon, "--http", "127.0.0.1:0", "--connections", 8, haste=1).port
    aliases(small.connect(), (f"{i:04}{'x' * 240}" for i in range(9000)))  # which may take longer than a connection may
    live = [Live(small.port) for _ in range(4)]
    busy = [Connection(small.port) for _ in range(3)]
    for connection in busy:
        connection.send(f"GET /api/objects HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
        connection.read_bytes(1)
    start = time.monotonic()
    refused = Connection(small.port)
    refused.send(b"GET /metr")
    wait_until(refused.ended)
    assert 0.8 < time.monotonic() - start
    for connection in live + busy:
        connection.close()


def test_hanging_up_at_each_step(shared_served):
    request = HEAD % shared_served.port + b"\r\n"
    for cut in range(0, len(request) + 1, 3):
        connection = Connection(shared_served.port)
        connection.send(request[:cut])
        connection.close()
    wait_until(lambda: metric(shared_served.port, "gpubufd_http_connections") <= 4)
