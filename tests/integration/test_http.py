"""The HTTP server, as docs/HTTP.md describes it: the API, who may see what, and the live events. Hostile
requests and limits are in test_http_hostile.py; tests/page has the page."""

import gzip
import json
import os
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import conftest
from device import ROOT
from gateways import aliases, flood, metric, pipelined, served, shared_served  # noqa: F401  (two are fixtures)
from http_client import Connection, Live, UnixConnection, get, refusal
from peer import DEADLINE, wait_until

pytestmark = pytest.mark.host_only("the gateway is the same, whatever devices there are")

TOKEN = "an operator's secret, long enough".replace(" ", "_")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def token_file(directory, text=TOKEN + "\n"):
    path = os.path.join(directory, "token")
    with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
        file.write(text)
    return path


@pytest.fixture
def guarded(daemon_factory, gateway, directory):
    """One with a token."""
    daemon = daemon_factory()
    daemon.gateway = gateway(
        daemon, "--http", "127.0.0.1:0", "--http-token-file", token_file(directory))
    daemon.port = daemon.gateway.port
    return daemon


def objects(port, query="", headers=()):
    answer = get(port, f"/api/objects{query}", headers=headers).json()
    return [dict(zip(answer["fields"], row)) for row in answer["objects"]], answer


# ---- the API -----------------------------------------------------------------------------------


def test_the_page_is_there(served):
    reply = get(served.port, "/")
    assert reply.status == 200 and reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "gpubufd" in reply.text
    assert "default-src 'self'" in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    again = get(served.port, "/", headers={"If-None-Match": reply.headers["etag"]})
    assert again.status == 304 and again.body == b""
    assert get(served.port, "/", headers={"If-None-Match": '"other"'}).status == 200
    tag = reply.headers["etag"].removeprefix("W/")
    for same in (tag, "W/" + tag, f'"other", W/{tag}', f'"other",{tag} ,"more"', "*"):
        assert get(served.port, "/", headers={"If-None-Match": same}).status == 304, same
    for other in ("", "W/", '"', f'"x{tag[1:]}', f'{tag[:-1]}x"', "W/*"):
        assert get(served.port, "/", headers={"If-None-Match": other}).status == 200, other
    for path, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
        assert get(served.port, path).headers["content-type"].startswith(kind)


@pytest.mark.parametrize("path", ["/nix", "/api", "/api/", "/metrics/", "/../etc/passwd", "/%2e%2e/"])
def test_nothing_elsewhere(shared_served, path):
    assert get(shared_served.port, path).status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
def test_read_only(shared_served, method):
    reply = get(shared_served.port, "/api/snapshot", method=method)
    assert reply.status == 405 and reply.headers["allow"] == "GET, HEAD"


def test_one_request_after_the_other(shared_served):
    """HEAD, whose answers have no body; a body that is passed over; and many at once."""
    with Connection(shared_served.port) as connection:
        for path in ("/", "/metrics", "/api/snapshot", "/api/objects", "/nix"):
            reply = connection.request(path, method="HEAD")
            assert reply.body == b"" and reply.status in (200, 404)
        assert connection.request("/api/stats", body=b"x" * 1024).status == 200
        connection.send(f"GET /api/stats HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode() * 20)
        assert [connection.reply().status for _ in range(20)] == [200] * 20


def test_snapshot(guarded):
    peer = guarded.connect()
    peer.call("hello", protocol=1, client="a \"client\"")
    peer.put("a", b"1" * 1000, keep=True)
    peer.put("b", b"2" * 1000, mode="0604")
    snapshot = get(guarded.port, "/api/snapshot", headers=BEARER).json()
    stats = peer.call("stats")
    for shown, known in zip(snapshot["devices"], stats["devices"]):
        segments = shown["segments"]
        assert {name: shown[name] for name in known if name != "segments"} == {
            name: known[name] for name in known if name != "segments"}
        assert sum(s["used"] for s in segments) == known["used"]
        assert len(segments) == known["segments"]
    domains = {(s["domain"]["uid"], s["domain"]["mode"]) for s in segments}
    assert domains == {(os.getuid(), "0600"), (os.getuid(), "0604")}
    assert {s["state"] for s in segments} == {"used"}
    (session,) = [s for s in snapshot["sessions"] if s["client"].startswith("a ")]
    assert session["client"] == 'a "client"' and session["pid"] == os.getpid()
    assert session["uid"] == os.getuid() and session["leases"] == 1 and session["bytes"] == 1000
    assert session["mapped_bytes"] == sum(s["bytes"] for s in segments)
    assert snapshot["objects"] == 2 and snapshot["private_objects"] == 1
    assert snapshot["leases"] == 1 and snapshot["seq"] == 2
    assert abs(snapshot["now_ms"] - time.time() * 1000) < 60_000
    peer.call("delete", names=["a", "b"])
    assert {
        s["state"] for d in get(guarded.port, "/api/snapshot", headers=BEARER).json()["devices"]
        for s in d["segments"]
    } <= {"empty", "used", "retiring"}


def test_objects(guarded):
    peer = guarded.connect()
    peer.put("sales/price", b"1" * 800, mode="0644", keep=True)
    peer.put("sales/ünit \"x\"", b"1" * 300, evict="keep")
    peer.call("set", pinned=True, name="sales/price")
    rows, answer = objects(guarded.port, headers=BEARER)
    assert [row["name"] for row in rows] == ["sales/price", "sales/ünit \"x\""]
    price, unit = rows
    known = peer.call("stat", name="sales/price")["object"]
    for name in ("version", "bytes", "tier", "device", "uid", "mode", "leases", "pinned", "evict", "when_short"):
        assert price[name] == known[name], name
    assert price["leases"] == 1 and price["pinned"] and price["idle_ms"] == 0
    assert 0 <= price["age_ms"] < 60_000
    assert unit["evict"] == "keep" and unit["mode"] == "0600"
    peer.put("will/go", evict="drop")
    assert [row["when_short"] for row in objects(guarded.port, headers=BEARER)[0]] == ["stays", "stays", "drops"]
    data = known["layout"]["data"]
    ((segment, offset, length),) = price["placements"]
    assert (segment, offset) == (data["segment"], data["offset"]) and length >= 800
    assert answer["cursor"] is None
    assert answer["instance"] == get(guarded.port, "/api/snapshot", headers=BEARER).json()["instance"] != ""


def test_live_objects_and_who_holds_them(served):
    """Of a live object who writes it; of a private one not even that it is there."""
    peer = served.connect()
    layout = {"kind": "array", "dtype": "int32", "shape": [4, 16], "data": {}}
    for name, mode in (("open/cam", "0644"), ("secret", "0600"), ("open/pool", "0644")):
        lease = peer.call("create", name=name, layout=layout, live=True, mode=mode)["lease"]
        peer.call("release", lease=lease)
    lease = peer.call("open", name="open/cam", access="write", exclusive=True)["lease"]
    peer.call("join", lease=lease)
    rows, _ = objects(served.port)
    assert [(row["name"], row["cached"], row["parked"], row["live"]) for row in rows] == [
        ("open/cam", 0, 0, {"generation": 1, "writers": 1,
                            "stream": {"readers": 0, "frames": 0, "writer": os.getpid()}}),
        ("open/pool", 0, 0, {"generation": 0, "writers": 0})]

    def holders(name):
        return get(served.port, f"/api/holders?name={name}").json()

    ((holder,), version) = (holders("open%2Fcam")[key] for key in ("holders", "version"))
    assert version == rows[0]["version"] and holder["lease"] == lease and holder["pid"] == os.getpid()
    assert holder["access"] == "rw" and holder["exclusive"] and holder["stream"] == {"frames": 0}
    assert holders("open%2Fpool") == {"version": rows[1]["version"], "holders": []}
    assert holders("secret") == holders("absent") == {"version": 0, "holders": []}
    for bad in ("", "?name=", "?name=%00", "?name=%ff", "?name=" + "x" * 256):
        assert get(served.port, f"/api/holders{bad}").status == 400, bad
    # Another name of the same memory is a private one's secret.
    peer.put("shown", mode="0644")
    peer.call("alias", name="hidden", of="shown", mode="0600")
    opened = peer.call("open", name="hidden")
    assert holders("shown")["holders"] == []
    peer.call("release", leases=[lease, opened["lease"]])
    peer.call("unmap", segments=[segment["id"] for segment in opened["segments"]])
    # The gateway's own sessions are told apart.
    snapshot = get(served.port, "/api/snapshot").json()
    (own,) = [each for each in snapshot["sessions"] if each["session"] == snapshot["session"]]
    assert own["client"] == "gpubufd-gateway"


def test_objects_in_parts(served):
    peer = served.connect()
    names = sorted(f"n/{i:03}" for i in range(95))
    for name in names:
        peer.put(name, mode="0604")
    peer.put("n/050x")  # private: neither shown nor counted
    seen, query = [], "?limit=10"
    while query:
        rows, answer = objects(served.port, query)
        assert len(rows) == min(10, 95 - len(seen))
        seen += [row["name"] for row in rows]
        query = answer["cursor"] and f"?after={answer['cursor'].replace('/', '%2F')}&limit=10"
    assert seen == names
    for bad in ("limit=0", "limit=x", "limit=10001", "limit=-1", "after=%zz", "after=%00",
                "after=" + "x" * 256):
        assert get(served.port, f"/api/objects?{bad}").status == 400, bad


def test_answers_as_gzip(served):
    """Long answers come as gzip to those who take that, with the same content."""
    peer = served.connect()
    aliases(peer, (f"o/{i:05}" for i in range(1000)))
    for path in ("/page.js", "/metrics", "/api/objects", "/"):
        plain = get(served.port, path)
        packed = get(served.port, path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers, path
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert len(packed.body) < len(plain.body) / 2
        text = gzip.decompress(packed.body).decode()
        if path == "/api/objects":
            assert [row[0] for row in json.loads(text)["objects"]] == [row[0] for row in plain.json()["objects"]]
        elif path == "/metrics":
            names = [{line.split()[2] for line in one.splitlines() if line.startswith("# TYPE")} for one in (text, plain.text)]
            assert names[0] == names[1] != set()
        else:
            assert text == plain.text
    for accepts in ("", "identity", "gzip;q=0", "gzip; q=0.000", "x-gzip", "gzipped"):
        assert "content-encoding" not in get(served.port, "/page.js", headers={"Accept-Encoding": accepts}).headers, accepts
    assert "content-encoding" not in get(served.port, "/api/stats", headers={"Accept-Encoding": "gzip"}).headers
    tag = get(served.port, "/page.js", headers={"Accept-Encoding": "gzip"}).headers["etag"]
    assert get(served.port, "/page.js", headers={"If-None-Match": tag, "Accept-Encoding": "gzip"}).status == 304


def test_the_last_ten_minutes(served):
    served.connect().put("some", b"1" * 5000)

    def last():
        answer = get(served.port, "/api/history").json()
        assert answer["step_ms"] == 5000 and len(answer["used"].get("host", [None] * 120)) == 120
        return [bytes for bytes in answer["used"].get("host", ()) if bytes is not None][-1:]
    wait_until(lambda: last() and last()[0] >= 5000)
    used = next(device["used"] for device in get(served.port, "/api/snapshot").json()["devices"])
    wait_until(lambda: last() == [used])


def test_many_objects_come_in_slices(served):
    """More than one slice holds, while others come and go."""
    peer = served.connect()
    aliases(peer, (f"o/{i:05}" for i in range(6000)))
    with Connection(served.port) as connection:
        connection.send(f"GET /api/objects HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
        pipelined(peer, (("delete", {"name": f"o/{i:05}"}) for i in range(0, 6000, 2)))
        reply = connection.reply()
        assert reply.headers["transfer-encoding"] == "chunked"
        names = [row[0] for row in reply.json()["objects"]]
        assert connection.request("/api/stats").json()["kind"] == "stats"
    assert names == sorted(set(names))
    assert {f"o/{i:05}" for i in range(1, 6000, 2)} | {"base"} <= set(names)


def test_a_reader_that_goes_in_the_middle(served):
    peer = served.connect()
    aliases(peer, (f"{i:04}{'x' * 240}" for i in range(3000)))
    for path in ("/api/objects", "/api/snapshot"):
        for _ in range(5):
            connection = Connection(served.port)
            connection.send(f"GET {path} HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
            connection.read_bytes(1)
            connection.socket.setsockopt(  # a reset, with data under way
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()
    assert get(served.port, "/api/stats").json()["objects"] == 3001


def test_old_http_and_close(served):
    peer = served.connect()
    aliases(peer, (f"{i:04}" for i in range(3000)))
    with Connection(served.port) as connection:
        connection.send(f"GET /api/objects HTTP/1.0\r\nHost: {connection.host}\r\n\r\n".encode())
        reply = connection.reply()  # no chunks: until the end
        assert "transfer-encoding" not in reply.headers and len(reply.json()["objects"]) == 3001
    with Connection(served.port) as connection:
        assert connection.request("/", headers={"Connection": "close"}).status == 200
        assert connection.ended()


# ---- who may see what --------------------------------------------------------------------------


def test_private_objects_are_counted_only(served):
    peer = served.connect()
    peer.put("secret/plan", b"x" * 5000, keep=True)
    peer.put("secret/of the group", mode="0640")
    peer.put("shown", mode="0604")
    rows, _ = objects(served.port)
    assert [row["name"] for row in rows] == ["shown"]
    for path in ("/metrics", "/api/snapshot", "/api/objects", "/api/stats", "/"):
        assert b"secret" not in get(served.port, path).body, path
    snapshot = get(served.port, "/api/snapshot").json()
    assert snapshot["private_objects"] == 2 and snapshot["objects"] == 3
    # Not by a cursor that stands before it either.
    _, answer = objects(served.port, "?after=secret&limit=1")
    assert [row[0] for row in answer["objects"]] == ["shown"] and answer["cursor"] is None


def test_the_token(guarded):
    guarded.connect().put("secret")
    for path in ("/", "/metrics", "/api/snapshot", "/api/objects", "/api/stats", "/api/events", "/nix",
                 "/page.js"):
        for headers in ({}, {"Authorization": "Bearer " + TOKEN[:-1]},
                        {"Authorization": "Bearer " + TOKEN + "x"},
                        {"Authorization": "Basic " + TOKEN}, {"Authorization": TOKEN},
                        {"Cookie": "gpubufd="}, {"Cookie": "gpubufd=" + "0" * 32},
                        {"Cookie": "gpubufd=" + TOKEN}):
            reply = get(guarded.port, path, headers=headers)
            assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
            assert b"secret" not in reply.body
    assert objects(guarded.port, headers=BEARER)[0][0]["name"] == "secret"


def sign_in(port, token):
    return get(port, "/login", method="POST", body=b"token=" + token.encode(),
               headers={"Content-Type": "application/x-www-form-urlencoded"})


def test_signing_in_by_the_form(guarded):
    assert "<form" in get(guarded.port, "/").text
    assert sign_in(guarded.port, "wrong" * 10).status == 401
    reply = sign_in(guarded.port, TOKEN.replace("_", "%5F"))
    assert reply.status == 303 and reply.headers["location"] == "/"
    cookie, *attributes = reply.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert TOKEN not in cookie
    assert get(guarded.port, "/", headers={"Cookie": f"a=b; {cookie}; c=d"}).status == 200


def test_another_token_ends_what_the_old_one_began(guarded, directory):
    gateway, port = guarded.gateway, guarded.port
    cookie = {"Cookie": sign_in(port, TOKEN).headers["set-cookie"].split(";")[0]}
    live = Live(port, headers=BEARER)
    token_file(directory, "short\n")
    gateway.process.send_signal(signal.SIGHUP)
    gateway.wait_for("token not reloaded why=.*at least 16 characters")
    token_file(directory)
    gateway.process.send_signal(signal.SIGHUP)
    gateway.wait_for("token reloaded changed=no")
    for headers in (BEARER, cookie):
        assert get(port, "/api/stats", headers=headers).status == 200
    new = TOKEN[::-1]
    token_file(directory, new)
    gateway.process.send_signal(signal.SIGHUP)
    gateway.wait_for("token reloaded changed=yes")
    for headers in (BEARER, cookie):
        assert get(port, "/api/stats", headers=headers).status == 401
    while live.block() is not None:  # what it was told before it ended
        pass
    assert get(port, "/api/stats", headers={"Authorization": f"Bearer {new}"}).status == 200
    assert TOKEN not in gateway.stderr() and new not in gateway.stderr()


def test_the_access_log(daemon, gateway, directory):
    one = gateway(daemon, "--http", "127.0.0.1:0", "--http", f"unix:{directory}/http", "--access-log", "on",
                  "--http-token-file", token_file(directory))
    other = gateway(daemon, "--http", "127.0.0.1:0")
    get(one.port, f"/api/stats?token={TOKEN}", headers=BEARER)
    get(one.port, '/a"b\\', method="HEAD", headers=BEARER)
    get(one.port, "/" + "x" * 2000, headers=BEARER)
    sign_in(one.port, TOKEN)
    with UnixConnection(f"{directory}/http") as connection:
        connection.request("/healthz")
    with Live(one.port, headers=BEARER):
        get(other.port, "/api/stats")
    for line in ('from=127.0.0.1 method=GET path=/api/stats status=200 ms=[0-9]+\n',
                 'from=127.0.0.1 method=HEAD path="/a\\\\"b\\\\\\\\" status=404 ms=',
                 'method=GET path=/x{511} status=404 ms=', 'method=POST path=/login status=303 ms=',
                 'from=unix method=GET path=/healthz status=200 ms=',
                 'method=GET path=/api/events status=200 ms='):
        one.wait_for("info    request .*" + line)
    assert TOKEN not in one.stderr() and "token=" not in one.stderr().split("request ", 1)[1]
    assert " request " not in other.stderr()


def test_the_log_as_json(daemon, gateway, directory):
    """Each line is an object with a level, whatever a peer sends, and those below the level are not there."""
    one = gateway(daemon, "--http", "127.0.0.1:0", "--access-log", "on", "--log-format", "json", wait=False)
    port = one.port
    for path in (b'/a"b\\c', b"/\x1b[31m\x07", b"/\xff\xc2\x9b", b"/%00%0a{}", b"/" + b"x" * 2000):
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as peer:
            peer.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            assert peer.recv(1)
    assert get(port, "/last").status == 404
    one.wait_for('"path":"/last"')
    daemon.kill()
    one.wait_for("daemon disconnected")
    one.stop()
    assert one.stderr().isascii()
    lines = [json.loads(line) for line in one.stderr().splitlines()]
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    paths = [line["path"] for line in lines if line["event"] == "request"]
    assert '/a"b\\c' in paths and "/last" in paths
    assert {line["event"]: line["level"] for line in lines}["daemon disconnected, trying again"] == "warning"
    assert {line["level"] for line in lines if line["event"] in ("serving http", "request", "stopping")} == {"info"}


@pytest.mark.parametrize("name", ["warn", "warning"])
def test_the_level_of_the_log(daemon, gateway, directory, name):
    path = os.path.join(directory, "conf")
    with open(path, "w") as file:
        file.write(f"log-level = {name}\nhttp = unix:{directory}/http\n")
    one = gateway(daemon, "--config", path, wait=False)
    wait_until(lambda: os.path.exists(f"{directory}/http"))
    daemon.kill()
    one.wait_for("Z warning (no daemon yet|daemon disconnected), trying again why=")
    one.stop()
    assert "Z info" not in one.stderr()


def test_other_sites_are_refused(guarded, served):
    for port, headers in ((guarded.port, BEARER), (served.port, {})):
        for host in ("evil.example", f"evil.example:{port}", f"localhost:{port + 1}",
                     f"127.0.0.1.evil.example:{port}", "localhost", "", f"a@127.0.0.1:{port}",
                     f"[::1:{port}", f"127.0.0.1:{port}0", "127.0.0.1:"):
            assert get(port, "/api/stats", host=host or " ", headers=headers).status in (400, 421)
        for host in (f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
            assert get(port, "/api/stats", host=host, headers=headers).status == 200
        for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}",
                       f"http://localhost:{port}", "file://", f"http://127.0.0.1:{port}.evil"):
            reply = get(port, "/api/stats", headers={"Origin": origin, **headers})
            assert reply.status == 403, origin
            assert Live(port, headers={"Origin": origin, **headers}).handshake.status == 403
        own = {"Origin": f"http://127.0.0.1:{port}", **headers}
        assert get(port, "/api/stats", headers=own).status == 200
    assert sign_in(served.port, "x" * 20).status == 401  # no token, no way in
    with Connection(guarded.port) as connection:
        reply = connection.request("/login", method="POST", body=b"token=" + TOKEN.encode(),
                                   headers={"Origin": "http://evil.example"})
        assert reply.status == 403


def test_names_of_ones_own(daemon, gateway):
    port = gateway(daemon, "--http", "127.0.0.1:0", "--http-name", "gpu7.example").port
    for host, status in (("gpu7.example", 200), ("GPU7.example:8443", 200), ("gpu8.example", 421)):
        assert get(port, "/api/stats", host=host).status == status
    reply = get(port, "/api/stats", host="gpu7.example", headers={"Origin": "https://gpu7.example"})
    assert reply.status == 200


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--http", "127.0.0.1:0", "--access-log", "yes"], "expected on or off"),
        (["--log-level", "loud"], "expected debug, info, warning or error"),
        (["--log-format", "xml"], "expected text or json"),
        (["--http", "0.0.0.0:0"], "give --http-token-file"),
        (["--http", "[::]:0"], "give --http-token-file"),
        (["--http", "9464"], "is no address and port"),
        (["--http", "localhost"], "is no address and port"),
        (["--http", "example.org:80"], "is no IP address"),
        (["--http", "127.0.0.1:65536"], "is no address and port"),
        (["--http", "192.0.2.1:1", "--http-token-file", "TOKEN"], "cannot listen"),
        (["--http", "127.0.0.1:0", "--http-token-file", "/nonexistent"], "cannot read the token"),
        (["--http", "127.0.0.1:0", "--http-token-file", "SHORT"], "at least 16 characters"),
        (["--http", "127.0.0.1:0", "--http-token-file", "OPEN"], "chmod 600 it"),
        (["--http-name", "a:1"], "is no host name"),
    ],
)
def test_what_is_refused_at_the_start(directory, options, sentence):
    files = {"TOKEN": (TOKEN, 0o600), "SHORT": ("short", 0o600), "OPEN": (TOKEN, 0o644)}
    for i, option in enumerate(options):
        if option in files:
            text, mode = files[option]
            options[i] = os.path.join(directory, option)
            with open(options[i], "w") as file:
                file.write(text)
            os.chmod(options[i], mode)
    assert sentence in refusal(directory, *options)


def test_a_configuration(daemon, gateway, directory):
    """The service's own, with other addresses; the command line adds to it."""
    path, events = os.path.join(directory, "conf"), [f"ipc://{directory}/events{i}" for i in range(3)]
    text = (ROOT / "systemd/gpubufd-gateway.conf").read_text()
    text = text.replace("127.0.0.1:9464", "0.0.0.0:0").replace("ipc:///run/gpubufd-gateway/events.sock", events[0])
    token_file(directory)
    text = text.replace("#http-token-file = /run/credentials/gpubufd-gateway.service",
                        f"http-token-file = {directory}")
    with open(path, "w") as file:
        file.write(f"{text}\n  events={events[1]}\nconnections = 8\n")
    one = gateway(daemon, "--events", events[2], "--config", path, "--connections", 12)
    port = int(one.wait_for(r"serving http url=http://0.0.0.0:(\d+)/ token=\"asked for\"").group(1))
    assert get(port, "/api/stats").status == 401
    assert get(port, "/api/stats", headers=BEARER).status == 200
    assert [f"url={url}\n" in one.stderr() for url in events] == [True] * 3
    live = [Live(port, headers=BEARER) for _ in range(6)]  # half of twelve
    assert {one.handshake.status for one in live} == {200}
    assert Live(port, headers=BEARER).handshake.status == 503
    for connection in live:
        connection.close()


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("# x\n\ncolour = red\n", ":3: unknown key \"colour\""),
        ("http\n", ":1: expected `key = value`"),
        ("connections = 3\n", ":1: \"3\": expected N, a number from 4 to 4096"),
        ("config = x\n", ":1: unknown key \"config\""),
        ("help = x\n", ":1: unknown key \"help\""),
        ("events = ipc:///x\n" * 9, ":9: given more than 8 times"),
        ("", "nothing to do"),
    ],
)
def test_configurations_that_are_refused(directory, text, sentence):
    path = os.path.join(directory, "conf")
    with open(path, "w") as file:
        file.write(text)
    assert sentence in refusal(directory, "--config", path)
    assert sentence in refusal(directory, f"--config={path}")


# ---- elsewhere ---------------------------------------------------------------------------------


def test_over_a_unix_socket(daemon, gateway, directory):
    """Whoever may open it sees what the gateway sees, as the daemon's group does."""
    path = os.path.join(directory, "http")
    one = gateway(daemon, "--http", f"unix:{path}")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    daemon.connect().put("secret")
    with UnixConnection(path) as connection:
        assert connection.request("/healthz").text == "ok\n"
        (row,) = connection.request("/api/objects").json()["objects"]
        assert row[0] == "secret"
        assert connection.request("/api/stats", host="evil.example").status == 421
    one.stop()
    assert not os.path.exists(path)


def test_a_stale_unix_socket_is_taken_over(daemon, gateway, directory):
    path = os.path.join(directory, "http")
    gateway(daemon, "--http", f"unix:{path}").kill()
    assert os.path.exists(path)
    gateway(daemon, "--http", f"unix:{path}")
    with UnixConnection(path) as connection:
        assert connection.request("/healthz").status == 200


def test_a_file_that_is_no_socket_stays(directory):
    path = os.path.join(directory, "http")
    with open(path, "w") as file:
        file.write("precious")
    assert "cannot listen at --http unix:" in refusal(directory, "--http", f"unix:{path}")
    with open(path) as file:
        assert file.read() == "precious"


def test_where_the_daemon_goes_away_and_comes_back(daemon_factory, gateway, directory):
    path = os.path.join(directory, "of its own")
    daemon = daemon_factory(socket_path=path)
    one = gateway(daemon, "--http", "127.0.0.1:0")
    live = Live(one.port)
    first = live.message()
    daemon.stop()
    wait_until(lambda: get(one.port, "/healthz").status == 503)
    for asked in ("/metrics", "/api/stats", "/api/snapshot", "/api/objects"):
        reply = get(one.port, asked)
        assert reply.status == 503 and "the daemon does not answer" in reply.text
    assert get(one.port, "/").status == 200
    again = daemon_factory(socket_path=path)
    one.wait_for("connected instance=", 2)
    again.connect().put("new", mode="0604")
    assert get(one.port, "/api/objects").json()["objects"][0][0] == "new"
    assert live.event()["object"]["name"] == "new"
    assert live.message()["instance"] != first["instance"]


def test_where_the_daemon_hangs(daemon, gateway):
    """Five seconds, here one. Requests made meanwhile end, too, and the gateway with them."""
    one = gateway(daemon, "--http", "127.0.0.1:0", haste=5)
    assert get(one.port, "/healthz").status == 200
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: get(one.port, "/healthz").status == 503)
        # Whoever waits behind others for a daemon that is silent hears of its silence, not of the others.
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: get(one.port, "/api/stats"), range(8)))
        assert {(reply.status, reply.text) for reply in replies} == {
            (503, "the daemon does not answer: the daemon has not answered in time\n")}
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: get(one.port, "/healthz").status == 200)
    assert get(one.port, "/metrics").status == 200


# RELIABILITY.md: The gateway 1
def test_a_gateway_in_trouble(daemon, gateway):
    """Flooded, stopped with much to be told, killed: a session that watches, too, is told all."""
    one = gateway(daemon, "--http", "127.0.0.1:0")
    peer, watcher = daemon.connect(), daemon.connect()
    peer.put("base", mode="0604")
    halves = [Connection(one.port) for _ in range(200)]
    for connection in halves:
        connection.send(b"GET /api/objects HTTP/1.1\r\nX: ")
    one.process.send_signal(signal.SIGSTOP)
    watcher.call("watch", prefix="x")
    for _ in range(20):
        flood(peer, "alias", 500, name="x" * 250, of="base", mode="0604", replace=True)
        watcher.call("stats")  # takes in what came before
    told = [n["params"] for n in watcher.notifications if n["method"] == "event"]
    assert sum(event["kind"] == "sealed" for event in told) == 20 * 500
    one.kill()
    for connection in halves:
        connection.close()
    assert peer.call("stat", name="base")["object"]["name"] == "base"
    assert gateway(daemon, "--http", "127.0.0.1:0").port


def test_it_may_be_there_before_the_daemon(daemon_factory, gateway, directory):
    import types

    path = os.path.join(directory, "later")
    place = types.SimpleNamespace(directory=directory, path=path)
    one = gateway(place, "--http", "127.0.0.1:0", wait=False)
    one.wait_for("no daemon yet")
    assert get(one.port, "/healthz").status == 503
    daemon_factory(socket_path=path)
    one.wait_for("connected instance=")
    wait_until(lambda: get(one.port, "/healthz").status == 200)


# ---- live --------------------------------------------------------------------------------------


def test_live_events(guarded):
    peer = guarded.connect()
    live = Live(guarded.port, headers=BEARER)
    peer.put("a", b"123")
    name = "b\\\"</script>é"
    peer.put(name, mode="0604")
    peer.call("delete", name="a")
    first, second, third = (live.event() for _ in range(3))
    assert (first["kind"], first["object"]["name"], first["seq"]) == ("sealed", "a", 1)
    assert (second["kind"], second["object"]["name"], second["seq"]) == ("sealed", name, 2)
    assert (third["kind"], third["object"]["name"], third["seq"]) == ("deleted", "a", 3)
    stat_of_b = peer.call("stat", name=name)["object"]
    data = stat_of_b["layout"]["data"]
    del stat_of_b["layout"], stat_of_b["idle_ms"]
    assert {**second["object"], "leases": 0} == {**stat_of_b, "leases": 0}
    assert second["placements"][0][:2] == [data["segment"], data["offset"]]
    assert abs(second["time_ms"] - time.time() * 1000) < 60_000
    stats = live.message()
    assert stats["kind"] == "stats" and stats["seq"] == 3 and stats["objects"] == 1
    assert stats["devices"][0]["used"] == peer.call("stats")["devices"][0]["used"]


def test_live_events_of_private_objects(served):
    peer = served.connect()
    live = Live(served.port)
    peer.put("secret")
    peer.put("shown", mode="0604")
    hidden, shown = live.event(), live.event()
    device = peer.call("stat", name="shown")["object"]["device"]
    del hidden["time_ms"]
    assert hidden == {"seq": 1, "kind": "sealed", "private": True, "device": device}
    assert shown["seq"] == 2 and shown["object"]["name"] == "shown"


def test_gathered_events(served):
    peer = served.connect()
    live = Live(served.port, "/api/events?gather=20")
    for i in range(500):
        peer.put(f"n/{i}", mode="0604")
    events, messages = [], 0
    while len(events) < 500:
        message = live.message()
        assert isinstance(message, list) and message
        messages += 1
        events += [event for event in message if event["kind"] == "sealed"]
    assert [event["seq"] for event in events] == list(range(1, 501))
    assert messages < 500
    for bad in ("gather=1", "gather=19", "gather=10001", "gather=x"):
        assert Live(served.port, f"/api/events?{bad}").handshake.status == 400


# RELIABILITY.md: The gateway 5
def test_what_was_missed_is_told(served):
    """By the header that a browser sends, and by the query."""
    peer = served.connect()
    live = Live(served.port)
    peer.put("a", mode="0604")
    last = live.event()["seq"]
    live.close()
    for i in range(50):
        peer.put(f"n/{i}", mode="0604")
    for again in (Live(served.port, headers={"Last-Event-ID": str(last)}),
                  Live(served.port, f"/api/events?after={last}")):
        events = [again.event() for _ in range(50)]
        assert [e["seq"] for e in events] == list(range(last + 1, last + 51))
        assert events[0]["object"]["name"] == "n/0"


@pytest.mark.parametrize("known", ["4711", "x", "", "9" * 30, "-1"])
def test_numbers_that_nobody_was_told(shared_served, known):
    live = Live(shared_served.port, headers={"Last-Event-ID": known})
    assert live.message()["kind"] == "stats"


def test_who_does_not_read_loses_and_sees_it(served):
    """More than every buffer between us holds; the daemon goes on, and so does the rest."""
    peer = served.connect()
    live, fast = Live(served.port), Live(served.port)
    assert live.message()["kind"] == "stats"
    peer.put("base", mode="0604")
    for told in range(5000, 50_001, 5000):
        flood(peer, "alias", 5000, name="x" * 250, of="base", mode="0604", replace=True)
        while fast.message()["seq"] < told:  # no faster than the gateway is, whose session would be ended
            pass
    last = get(served.port, "/api/stats").json()["seq"]
    seen, gaps = 0, 0
    while seen < last:
        event = live.message()
        gaps += event["seq"] != seen + (event["kind"] != "stats")
        assert event["seq"] >= seen
        seen = event["seq"]
    assert gaps > 0 and metric(served.port, "gpubufd_events_dropped_total") > 0


@pytest.mark.root
def test_what_the_gateway_may_not_see(daemon, directory):
    """As another user it sees what that user may open, and tells of the rest that it was."""
    os.chmod(daemon.path, 0o666)
    one = conftest.Gateway(directory, daemon.path, ["--http", "127.0.0.1:0"],
                           user=12345, group=12345, extra_groups=[])
    try:
        peer = daemon.connect()
        live = Live(one.port)
        assert live.message()["kind"] == "stats"
        peer.put("secret/1")
        peer.put("secret/2")
        peer.put("shown", mode="0604")
        hidden = live.event()
        assert (hidden["kind"], hidden["seq"], hidden["private"]) == ("private", hidden["count"], True)
        while hidden["seq"] < 2:  # the figures may have come in between
            hidden = live.event()
        assert live.event()["object"]["name"] == "shown"
        assert [row[0] for row in get(one.port, "/api/objects").json()["objects"]] == ["shown"]
        assert get(one.port, "/api/snapshot").json()["private_objects"] == 2
        one.stop()
    finally:
        one.kill()


def test_stopping_with_everything_under_way(daemon, gateway):
    """SIGTERM while pages are live, half read and half asked for; the fixtures check the rest."""
    one = gateway(daemon, "--http", "127.0.0.1:0")
    aliases(daemon.connect(), (f"{i:04}{'x' * 240}" for i in range(3000)))
    open_ones = [Live(one.port) for _ in range(3)]
    for path in ("/api/objects", "/api/snapshot", "/metrics"):
        connection = Connection(one.port)
        connection.send(f"GET {path} HTTP/1.1\r\nHost: {connection.host}\r\n\r\n".encode())
        open_ones.append(connection)
    connection = Connection(one.port)
    connection.send(b"GET")
    open_ones.append(connection)
    open_ones[3].read_bytes(1)
    assert one.stop() == 0
    for connection in open_ones:
        connection.close()
