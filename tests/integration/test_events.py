"""Events by NNG, as docs/EVENTS.md describes them: over each transport, who may see what, loss. The
subscribers speak SP by themselves, by way of examples/events.py, but for the example in C, which uses NNG."""

import contextlib
import functools
import importlib.util
import json
import os
import re
import resource
import select
import socket
import struct
import subprocess
import time

import pytest

import etcds
from device import BUILD, ROOT
from gateways import flood, metric
from http_client import Live, get, refusal
from peer import DEADLINE, wait_until

pytestmark = pytest.mark.host_only("the gateway is the same, whatever devices there are")

spec = importlib.util.spec_from_file_location("events_example", ROOT / "examples" / "events.py")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def free_address():
    """Of the loopback, where no port is taken between here and its listener."""
    return "%s:%d" % etcds.fresh_address()


def at(url):
    """(host, port) of an address, for a socket."""
    host, port = url.removeprefix("tcp://").split(":")
    return host, int(port)


everyone = []


@pytest.fixture(autouse=True)
def nobody_is_left(gateway):
    """Waits until no subscriber is left, before the gateway ends."""
    yield
    while everyone:
        everyone.pop().close()


@pytest.fixture
def gateway(gateway):
    """With the deadlines as they are: by them it sees that a listener has died."""
    return functools.partial(gateway, haste=1)


class Subscriber(example.Subscription):
    """One that has been let in, so that nothing is told before it listens."""

    def __init__(self, url):
        super().__init__(url, DEADLINE)
        everyone.append(self)
        self.messages = iter(self)
        self.event("stats")  # the daemon talks to us

    def event(self, kind=None):
        """The next message: any but `stats`, or the next of that kind."""
        while True:
            topic, event = next(self.messages)
            if event["kind"] == kind or (kind is None and event["kind"] != "stats"):
                assert topic.split(" ")[0] == event["kind"]
                return topic, event


@pytest.fixture
def published(daemon, gateway, directory):
    """A daemon whose events are published on a Unix socket and a TCP port."""
    path = os.path.join(directory, "events")
    daemon.ipc, daemon.tcp, daemon.ipc_path = f"ipc://{path}", f"tcp://{free_address()}", path
    daemon.gateway = gateway(daemon, "--events", daemon.ipc, "--events", daemon.tcp,
                             "--http", "127.0.0.1:0")
    daemon.port = daemon.gateway.port
    return daemon


def test_events_over_ipc(published):
    peer = published.connect()
    subscriber = Subscriber(published.ipc)
    peer.put("sales/price", b"x" * 100)
    peer.put("b", mode="0604")
    peer.call("delete", name="sales/price")
    topic, event = subscriber.event()
    assert topic == "sealed sales/price" and event["seq"] == 1
    assert event["object"]["bytes"] == 100 and event["object"]["mode"] == "0600"
    assert event["placements"] and abs(event["time_ms"] - time.time() * 1000) < 60_000
    assert subscriber.event()[0] == "sealed b"
    topic, event = subscriber.event()
    assert topic == "deleted sales/price" and event["seq"] == 3
    topic, stats = subscriber.event("stats")
    assert topic == "stats " and stats["seq"] == 3 and stats["objects"] == 1


def test_the_object_is_as_watch_tells_it(published):
    peer, watcher = published.connect(), published.connect()
    subscriber = Subscriber(published.ipc)
    watcher.call("watch")
    peer.put("a", b"123")
    told = watcher.events(2)[1][2]["object"]
    assert subscriber.event()[1]["object"] == told


def test_every_kind(published):
    """Every kind that the host can have; evictions by a device that is full."""
    peer = published.connect()
    subscriber = Subscriber(published.ipc)
    capacity = peer.call("stats")["devices"][0]["capacity"]
    for i in range(3):
        peer.put(f"big/{i}", b"x" * (capacity * 2 // 5), evict="drop")
    peer.put("short", ttl_ms=1)
    seen = {subscriber.event()[0] for _ in range(6)}
    assert {"sealed big/2", "evicted big/0", "sealed short", "deleted short"} <= seen


@pytest.mark.root
def test_others_do_not_get_in(published, as_user):
    def attempt(_):
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(published.ipc_path)
        except PermissionError:
            return "refused"
        return "let in"

    assert as_user(published, 12345, 12345, attempt) == "refused"
    assert as_user(published, 12345, os.getegid(), attempt) == "let in"


def test_over_tcp_private_objects_have_no_name(published):
    peer = published.connect()
    subscriber = Subscriber(published.tcp)
    peer.put("secret/plan")
    peer.put("shown", mode="0604")
    topic, event = subscriber.event()
    assert topic == "sealed " and event["private"] and event["seq"] == 1
    assert "secret" not in json.dumps(event) and "object" not in event
    topic, event = subscriber.event()
    assert topic == "sealed shown" and event["seq"] == 2 and event["object"]["name"] == "shown"


def test_a_slow_one_loses_and_sees_it(published):
    """It reads nothing while more is told than all buffers hold; the others and the daemon go on."""
    peer = published.connect()
    slow, fast = Subscriber(published.ipc), Subscriber(published.ipc)
    peer.put("base")
    flood(peer, "alias", 20_000, name="x" * 250, of="base", replace=True)
    last = 0
    while last < 20_001:
        last = fast.event("stats")[1]["seq"]
    assert last == 20_001
    seen, gaps = 0, 0
    while seen < last:
        _, event = next(slow.messages)
        gaps += event["seq"] - seen - (event["kind"] != "stats")
        assert event["seq"] >= seen
        seen = event["seq"]
    assert gaps > 0


def test_a_subscriber_that_says_something(published):
    """PUB is told nothing: whoever does is hung up on, before there is memory for what it announces; nobody else
    notices."""
    rude, other = Subscriber(published.ipc), Subscriber(published.tcp)
    for one, frame in ((rude, b"\1" + struct.pack(">Q", 1 << 40)), (other, struct.pack(">Q", 200 << 20))):
        one.socket.sendall(frame)
        while next(one.messages, None):
            pass  # until the end
    assert resident(published.gateway) < 150 << 20
    for garbage in (b"", b"\0SP", b"\0SP\0\0\x50\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 8,
                    b"\xff" * 64) * 10:
        with socket.create_connection(at(published.tcp)) as one:
            one.sendall(garbage)
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(published.ipc_path)
            one.sendall(garbage)
    for url in (published.ipc, published.tcp):
        until_told(published, url)


def resident(gateway):
    with open(f"/proc/{gateway.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def until_told(daemon, url):
    """Subscribes, anew where that is of no use as NNG's own do, until something that happens then is heard of.
    How long that took."""
    start, peer = time.monotonic(), daemon.connect()
    end = start + DEADLINE
    while time.monotonic() < end:
        try:
            subscriber = example.Subscription(url, timeout=1)
        except (OSError, EOFError):  # nobody listens, or hangs up, or nobody will ever answer
            continue
        subscriber.socket.settimeout(DEADLINE)
        try:
            for _ in range(5):  # it is let in a moment after the greeting has come
                peer.put("heard", mode="0604", replace=True)
                if select.select([subscriber.socket], [], [], 0.05)[0] and next(iter(subscriber), None):
                    return time.monotonic() - start
        finally:
            subscriber.close()
    raise AssertionError(f"nothing is told at {url} for {DEADLINE} s")


def hang_up_in_the_handshake(path):
    """Has the listener for ipc:// of NNG 1.5.2 die. Waits for none whose queue is full, as nobody will ever accept."""
    for said in (b"", b"\0SP\0", b"\0SP\0\0\x21\0") * 10:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False)
            one.connect(path)
            one.sendall(said)


@pytest.mark.parametrize("by", ["ipc", "tcp"])
def test_it_stops_as_soon_as_it_starts(daemon, gateway, directory, by):
    """In the middle of the first look at its own listener."""
    for i in range(12):
        url = f"ipc://{directory}/{i}" if by == "ipc" else f"tcp://{free_address()}"
        one = gateway(daemon, "--events", url, wait=False)
        one.wait_for("publishing events")
        assert one.stop() == 0


# RELIABILITY.md: The gateway 3
def test_the_listener_dies_and_is_made_anew(published):
    """Within five seconds, as EVENTS.md says: a clock is what is tested, and a busy machine has several tries."""
    for _ in range(10):
        before = metric(published.port, "gpubufd_event_listeners_renewed_total")
        hang_up_in_the_handshake(published.ipc_path)
        took = until_told(published, published.ipc)
        renewed = metric(published.port, "gpubufd_event_listeners_renewed_total") - before
        if took < 5 and renewed <= 1:
            break
    assert took < 5 and renewed in (0, 1)


@pytest.mark.hunt
# RELIABILITY.md: The gateway 3
def test_the_listener_dies_a_hundred_times(daemon, gateway, directory):
    """Twenty times as fast; the descriptors of those who came meanwhile are the most that is lost."""
    path = os.path.join(directory, "events")
    one = gateway(daemon, "--events", f"ipc://{path}", "--http", "127.0.0.1:0", haste=20)
    daemon.port = one.port
    rounds = 0
    while metric(daemon.port, "gpubufd_event_listeners_renewed_total") < 100:
        rounds += 1
        hang_up_in_the_handshake(path)
        until_told(daemon, f"ipc://{path}")
        assert rounds < 300
    assert "descriptors run short" not in one.stderr()
    assert one.stderr().count("listening again") >= 100


def test_descriptors_that_the_library_keeps(daemon, gateway, directory):
    """Those of peers that come while its listener is dead are never closed. Before they run out the gateway ends,
    and the service manager starts another."""
    path = os.path.join(directory, "events")
    one = gateway(daemon, "--events", f"ipc://{path}", haste=20,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
    end = time.monotonic() + 6 * DEADLINE
    while one.process.poll() is None:
        assert time.monotonic() < end
        hang_up_in_the_handshake(path)
        with contextlib.suppress(OSError, EOFError):  # nobody listens, or will ever answer
            for _ in range(20):
                example.Subscription(f"ipc://{path}", timeout=0.5).close()
    assert one.process.returncode == 1
    assert "descriptors used up, exiting" in one.stderr()
    again = gateway(daemon, "--events", f"ipc://{path}")  # in the place of that one
    Subscriber(f"ipc://{path}")
    assert again.process.poll() is None


def test_silent_subscribers_are_ended(published):
    """By NNG, after ten seconds: a clock is what is tested."""
    start = time.monotonic()
    silent = [socket.create_connection(at(published.tcp), timeout=DEADLINE) for _ in range(20)]
    half = []
    for _ in range(20):
        half.append(socket.create_connection(at(published.tcp), timeout=DEADLINE))
        half[-1].sendall(b"\0SP\0\0")
        silent.append(socket.socket(socket.AF_UNIX))
        silent[-1].settimeout(DEADLINE)
        silent[-1].connect(published.ipc_path)
    for one in silent + half:
        assert one.recv(8) == b"\0SP\0\0\x20\0\0"
        assert one.recv(8) == b""
        one.close()
    assert 9 < time.monotonic() - start < DEADLINE
    for url in (published.ipc, published.tcp):
        until_told(published, url)


def only_those_who_do_not_read_are_ended(daemon, gateway, path, haste):
    """False: this test was too slow itself, so that one that reads was ended, too."""
    one = gateway(daemon, "--events", f"ipc://{path}", "--http", "127.0.0.1:0", haste=haste)
    daemon.port = one.port
    peer = daemon.connect()
    peer.put("base", mode="0604", replace=True)
    end = time.monotonic() + DEADLINE
    try:
        reads = Subscriber(f"ipc://{path}")
        stalled = []
        for _ in range(3):  # no generator, which may not be ended by StopIteration
            stalled.append(Subscriber(f"ipc://{path}"))
        while metric(daemon.port, "gpubufd_event_subscribers_ended_total") < 3:
            flood(peer, "alias", 500, name="x" * 250, of="base", mode="0604", replace=True)
            reads.event("stats")
            assert time.monotonic() < end
        for subscriber in stalled:
            while next(subscriber.messages, None):
                pass  # until the end
        peer.put("still", mode="0604", replace=True)
        while reads.event()[0] != "sealed still":
            pass
    except (StopIteration, EOFError, ConnectionError):
        return False
    assert metric(daemon.port, "gpubufd_event_subscribers_ended_total") == 3
    return True


# RELIABILITY.md: The gateway 4
def test_subscribers_that_do_not_read_are_ended(daemon, gateway, directory):
    """After a minute, divided by thirty here, or by less where the machine is busy; those who read stay."""
    assert any(only_those_who_do_not_read_are_ended(daemon, gateway, f"{directory}/{haste}", haste)
               for haste in (30, 10, 3))


def stays(peer):
    """Whether the other end keeps the connection."""
    peer.setblocking(False)
    try:
        return bool(peer.recv(64))
    except BlockingIOError:
        return True
    except OSError:
        return False


# RELIABILITY.md: The gateway 4
def test_silent_peers_that_use_up_the_descriptors(daemon, gateway, directory):
    """Of tcp, by as many as the gateway may have: the others are let in again."""
    path, tcp = os.path.join(directory, "events"), f"tcp://{free_address()}"
    one = gateway(daemon, "--events", f"ipc://{path}", "--events", tcp,
                  "--http", "127.0.0.1:0", haste=4,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    daemon.port = one.port
    silent, short = [], 'listening again why="descriptors run short" url=tcp://'
    end = time.monotonic() + DEADLINE
    while short not in one.stderr():  # a busy gateway may hang up on them for its own silence first
        assert time.monotonic() < end, one.stderr()
        if not any(stays(each) for each in silent):
            silent = []
            with contextlib.suppress(ConnectionRefusedError):  # for a moment it does not listen
                for _ in range(300):
                    silent.append(socket.create_connection(at(tcp), timeout=DEADLINE))
        time.sleep(0.01)
    until_told(daemon, f"ipc://{path}")
    until_told(daemon, tcp)
    assert get(one.port, "/healthz").status == 200
    for each in silent:
        each.close()


# RELIABILITY.md: The gateway 4
def test_a_flood_of_tcp_leaves_room_for_ipc(daemon, gateway, directory):
    path, tcp = os.path.join(directory, "events"), f"tcp://{free_address()}"
    one = gateway(daemon, "--events", f"ipc://{path}", "--events", tcp,
                  "--http", "127.0.0.1:0", "--subscribers", 8)
    daemon.port = one.port
    strangers = []
    for _ in range(30):
        strangers.append(socket.create_connection(at(tcp), timeout=DEADLINE))
        strangers[-1].sendall(b"\0SP\0\0\x21\0\0")
    one.wait_for("subscriber refused")
    subscriber = Subscriber(f"ipc://{path}")
    daemon.connect().put("fine")
    assert subscriber.event()[0] == "sealed fine"
    assert metric(daemon.port, "gpubufd_event_subscribers_refused_total") > 0
    for each in strangers:
        each.close()


@pytest.mark.parametrize(
    "url, sentence",
    [
        ("tcp://0.0.0.0:0", "expected an address of this machine"),
        ("tcp://192.0.2.1:5", "expected an address of this machine"),
        ("tcp://example.org:5", "expected an address of this machine"),
        ("ws://127.0.0.1:9466", "is no URL such as"),
        ("ipc:///nonexistent/directory/s", "cannot publish events at ipc:///nonexistent"),
        ("ipc://relative", "is no URL such as"),
        ("tls+tcp://127.0.0.1:1", "is no URL such as"),
        ("http://127.0.0.1:1", "is no URL such as"),
        ("", "is no URL such as"),
    ],
)
def test_urls_that_are_refused(directory, url, sentence):
    assert sentence in refusal(directory, "--events", url)


def test_a_stale_socket_is_taken_over(daemon, gateway, directory):
    path = os.path.join(directory, "events")
    gateway(daemon, "--events", f"ipc://{path}").kill()
    assert os.path.exists(path)
    second = gateway(daemon, "--events", f"ipc://{path}")
    Subscriber(f"ipc://{path}").close()
    second.stop()
    assert not os.path.exists(path)


# ---- the page's feed and this one tell the same --------------------------------------------------


def test_the_same_numbers_everywhere(published):
    peer = published.connect()
    live, subscriber = Live(published.port), Subscriber(published.ipc)
    peer.put("a", mode="0604")
    assert live.event() == subscriber.event()[1]
    assert metric(published.port, "gpubufd_events_total") == 1
    assert metric(published.port, "gpubufd_event_subscribers") in (1, 2)  # the gateway looks itself


# ---- programs that subscribe -----------------------------------------------------------------


def connections(daemon):
    """Inodes of the sockets by which somebody is connected to the one for ipc."""
    needle = os.path.basename(daemon.ipc_path)
    with open("/proc/net/unix") as file:
        return {line.split()[6] for line in file if line.rstrip().endswith(needle) and " 03 " in line}


def until_subscribed(daemon):
    """The gateway's own probe connects, too, but does not stay until the next figures come."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        before = connections(daemon)
        Subscriber(daemon.ipc).close()
        if before & connections(daemon):
            return
    raise AssertionError("nobody subscribes")


@pytest.mark.parametrize("command, lines", [
    ([BUILD / "bin/examples/events", "URL", "sealed sales/"], ["sealed sales/price", r'\{.*"seq": ?2\b.*']),
    (["/usr/bin/env", "python3", "-u", ROOT / "examples/events.py", "URL", "sales/"], [r" *2 +sealed +sales/price +800 +bytes"]),
], ids=["in C", "in Python"])
def test_what_is_told(published, command, lines):
    peer = published.connect()
    with subprocess.Popen([published.ipc if word == "URL" else word for word in command], stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            until_subscribed(published)
            Subscriber(published.ipc)  # a second has passed since: it is let in
            peer.put("other")
            peer.put("sales/price", b"x" * 800)
            peer.call("delete", name="sales/price")
            told = [process.stdout.readline().rstrip("\n") for _ in lines]
        finally:
            process.kill()
    assert all(re.fullmatch(expected, one) for expected, one in zip(lines, told)), told
