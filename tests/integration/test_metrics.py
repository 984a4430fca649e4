"""/metrics: what Prometheus' linter asks for, that the figures are true, and that docs/METRICS.md, the
dashboard and the alerts know the same metrics."""

import json
import os
import re
import resource
import shutil
import socket
import subprocess

import pytest

from device import BUILD, ROOT
from http_client import get
from peer import DEADLINE, bytes_layout

MONITORING = ROOT / "docs" / "monitoring"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="[^"\\]*",?)*)\})? ([0-9.e+-]+|\+Inf)')


@pytest.fixture
def served(daemon, gateway):
    daemon.port = gateway(daemon, "--http", "127.0.0.1:0").port
    return daemon


def parse(text):
    """{family: (type, help, {(name, labels): value})}, and that it is well-formed on the way."""
    families, family = {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family, help_text = line[7:].split(" ", 1)
            assert family not in families and help_text
            families[family] = [None, help_text, {}]
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == family and families[name][0] is None
            families[name][0] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            base = name
            if families[family][0] == "histogram":
                base = re.sub("_(bucket|sum|count)$", "", name)
            assert base == family, line
            labels = tuple(re.findall(r'([a-z]+)="([^"]*)"', labels or ""))
            assert (name, labels) not in families[family][2], line
            families[family][2][name, labels] = float(value)
    return families


def scrape(daemon):
    reply = get(daemon.port, "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(reply.text)


def value(families, name, **labels):
    family = re.sub("_(bucket|sum|count)$", "", name) if name not in families else name
    return families[family][2].get((name, tuple(labels.items())))


def test_devices_add_up(served):
    peer = served.connect()
    peer.put("a", b"x" * 100_000, keep=True)
    peer.put("b", b"x" * 5000, evict="keep")
    families = scrape(served)
    for device in peer.call("stats")["devices"]:
        def of(name, device=device):
            return value(families, f"gpubufd_device_{name}_bytes", device=device["id"])

        assert of("capacity") == (of("free") + of("used") + of("retained")
                                  + of("pinned_by_clients")) == device["capacity"]
        assert of("used") + of("pinned_by_clients") == device["used"]
        for name in ("free", "retained", "pinned_by_clients", "leased", "pinned", "evictable"):
            assert of(name) == device[name], name
        assert value(families, "gpubufd_device_objects", device=device["id"]) == device["objects"]
        assert value(families, "gpubufd_device_segments", device=device["id"]) == device["segments"]
        assert value(families, "gpubufd_device_lost", device=device["id"]) == 0
    assert value(families, "gpubufd_objects") == 2
    assert value(families, "gpubufd_leases") == 1
    assert value(families, "gpubufd_sessions") == 3  # two of them the gateway's
    assert value(families, "gpubufd_crashes_survived_total") == 0


def test_requests_by_method_and_result(served):
    peer = served.connect()
    before = scrape(served)
    peer.put("a")
    for _ in range(3):
        peer.error("not_found", "open", name="missing")
        peer.call("open", name="a")
    peer.error("not_found", "stat", name="missing")
    peer.error("method", "no_such_method")
    peer.send_raw(b"[]\n")
    peer.recv_message()
    after = scrape(served)

    def grown(name, **labels):
        return (value(after, name, **labels) or 0) - (value(before, name, **labels) or 0)

    requests = "gpubufd_requests_total"
    assert grown(requests, method="open", result="ok") == 3
    assert grown(requests, method="open", result="not_found") == 3
    assert grown(requests, method="stat", result="not_found") == 1
    assert grown(requests, method="unknown", result="method") == 1
    assert grown(requests, method="unknown", result="request") == 1
    assert grown("gpubufd_opened_names_total", result="hit") == 3
    assert grown("gpubufd_opened_names_total", result="miss") == 3
    assert grown("gpubufd_request_duration_seconds_count", method="open") == 6
    total = grown("gpubufd_request_duration_seconds_sum", method="open")
    assert 0 < total < 6 * DEADLINE


def test_histograms_are_cumulative(served):
    peer = served.connect()
    for i in range(50):
        peer.put(f"n/{i}")
    _, _, samples = scrape(served)["gpubufd_request_duration_seconds"]
    methods = {dict(labels)["method"] for _, labels in samples}
    assert {"open", "create", "unknown"} <= methods
    for method in methods:
        buckets = [(float(dict(labels)["le"]), number) for (name, labels), number in samples.items()
                   if name.endswith("_bucket") and dict(labels)["method"] == method]
        assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets})
        assert [number for _, number in buckets] == sorted(number for _, number in buckets)
        assert buckets[-1][0] == float("inf")
        count = samples["gpubufd_request_duration_seconds_count", (("method", method),)]
        assert buckets[-1][1] == count


def test_the_time_of_a_request_that_waits(served):
    waiter, peer = served.connect(), served.connect()
    ident = waiter.request("open", name="later", wait_ms=60_000)
    peer.wait_for_stats(lambda stats: stats["methods"]["open"]["calls"] == 1)
    peer.error("timeout", "open", name="never", wait_ms=250)  # the clock's own test: it takes that long
    peer.put("later")
    waiter.reply(ident)
    families = scrape(served)
    assert value(families, "gpubufd_request_duration_seconds_count", method="open") == 2
    assert value(families, "gpubufd_request_duration_seconds_sum", method="open") >= 0.5
    assert value(families, "gpubufd_opened_names_total", result="miss") == 2
    assert value(families, "gpubufd_opened_names_total", result="hit") == 0


@pytest.mark.host_only("how much fits is the same on a GPU, and takes longer there")
def test_evictions(served):
    peer = served.connect()
    capacity = peer.call("stats")["devices"][0]["capacity"]
    for i in range(4):
        peer.put(f"big/{i}", b"x" * (capacity * 2 // 5), evict="drop")
    families = scrape(served)
    device = peer.call("stats")["devices"][0]
    assert value(families, "gpubufd_evictions_total", device="host") == device["evictions"] == 2
    assert value(families, "gpubufd_evicted_bytes_total", device="host") == device["evicted_bytes"]


@pytest.mark.root
def test_what_each_user_has(served, as_user):
    served.connect().put("a", b"x" * 1000)

    def work(peer):
        peer.put("b", b"x" * 5000)
        return peer.call("stats")["users"]

    (mine,) = as_user(served, 1001, 1001, work)
    samples = scrape(served)["gpubufd_user_bytes"][2]
    told = {dict(labels)["uid"]: number for (_, labels), number in samples.items()}
    assert told["1001"] == sum(device["used"] for device in mine["bytes"]) >= 5000
    assert set(told) == {"0", "1001"} and told["0"] >= 1000


def test_what_the_process_has(served):
    peers = [served.connect() for _ in range(5)]
    soft, _ = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
    before = scrape(served)
    assert value(before, "gpubufd_max_fds") == soft
    if os.stat(f"/proc/{served.pid}/fd").st_size > 0:
        assert value(before, "gpubufd_open_fds") == len(os.listdir(f"/proc/{served.pid}/fd"))
    else:  # Linux before 6.2 does not say
        with served.connect() as peer:
            used = peer.call("stats")["descriptors"]["open"]["used"]
        assert len(peers) < value(before, "gpubufd_open_fds") <= used
    for peer in peers:
        peer.put(f"by/{peer.socket.fileno()}")
    after = scrape(served)
    busy = [value(families, "gpubufd_loop_busy_seconds_total") for families in (before, after)]
    assert 0 < busy[0] < busy[1] < DEADLINE
    assert 0 < value(after, "gpubufd_loop_longest_turn_seconds") <= busy[1]


def test_who_is_turned_away(served):
    """Without a descriptor left clients are turned away; the gateway, already connected, still counts them."""
    assert value(scrape(served), "gpubufd_sessions_turned_away_total") == 0
    limit = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{served.pid}/fd"))
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (used, limit[1]))
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(DEADLINE)
            one.connect(served.path)
            told = json.loads(b"".join(iter(lambda: one.recv(4096), b"")))
            assert told["id"] is None and told["error"]["data"]["kind"] == "limit", told
    assert value(scrape(served), "gpubufd_sessions_turned_away_total") == 3
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limit)
    served.connect().put("a")


def test_limits_reached(daemon_factory, gateway):
    daemon = daemon_factory("--limit", "session_watches=1", "--limit", "session_leases=2")
    daemon.port = gateway(daemon, "--http", "127.0.0.1:0").port
    peer = daemon.connect()
    peer.call("watch")
    for _ in range(3):
        peer.error("limit", "watch")
    peer.put("a")
    opened = peer.call("open", names=["a"] * 4)
    assert sum("error" in entry for entry in opened["objects"]) == 2
    families = scrape(daemon)
    assert value(families, "gpubufd_limits_reached_total", limit="session_watches") == 3
    assert value(families, "gpubufd_limits_reached_total", limit="session_leases") == 2
    assert value(families, "gpubufd_limits_reached_total", limit="sessions") == 0


def test_size_does_not_grow_with_objects(served):
    peer = served.connect()
    peer.put("first")
    before = get(served.port, "/metrics").body.count(b"\n")
    for i in range(200):
        peer.request("create", name=f"n/{i}", layout=bytes_layout(1))
    for i in range(200):
        peer.recv_message()
    after = get(served.port, "/metrics").body.count(b"\n")
    assert after == before


# ---- what knows the metrics ------------------------------------------------------------------


def known(served):
    names = set()
    for name, (kind, _, _) in scrape(served).items():
        names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")} if kind == "histogram" \
            else {name}
    return names | of_peers()


def of_peers():
    """Those of gpubufd-peer, as the page has them, which test_peer_query.py holds to what a peer tells."""
    return {name for name in told_by_the_page() if name.startswith("gpubufd_peer_")}


def mentioned(text):
    return set(re.findall(r"\bgpubufd_[a-z_]+\b", text))


def expressions():
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        yield variable["query"]


def test_the_dashboard_can_be_imported():
    """As Grafana documents a dashboard's JSON: what it is told apart by, panels in a grid of 24 columns where none lies
    on another, and a variable for the data source, which every panel uses."""
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    assert dashboard["title"] and dashboard["uid"] and len(dashboard["uid"]) <= 40
    assert dashboard["schemaVersion"] >= 36 and "id" not in dashboard
    (source,) = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    assert source["query"] == "prometheus"
    wanted = {"type": "prometheus", "uid": "${%s}" % source["name"]}
    assert all(each["datasource"] == wanted for each in dashboard["templating"]["list"] if each["type"] == "query")
    panels, taken = dashboard["panels"], set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert cells and max(x for x, _ in cells) < 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] == "row":
            assert panel["collapsed"] is False and panel["panels"] == []
            continue
        assert panel["datasource"] == wanted and panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters and len(set(letters)) == len(letters)


def test_the_dashboard_and_the_alerts_use_what_there_is(served):
    shown = set().union(*map(mentioned, expressions()))
    text = (MONITORING / "alerts.yml").read_text()
    alerting = set()
    for expression in re.findall(r"expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", text):
        alerting |= mentioned("".join(expression))
    assert len(shown) > 20 and len(alerting) > 8
    assert shown | alerting <= known(served), (shown | alerting) - known(served)
    assert of_peers() - shown == {"gpubufd_peer_fetched_total"}, "the same is told in bytes"
    assert text.count("- alert:") == text.count("description:") == text.count("severity:")


def told_by_the_page():
    """{metric: its labels}, of both lists."""
    text = (ROOT / "docs" / "METRICS.md").read_text()
    items = re.findall(r"^- \*\*[^*]+\*\*(?:, by ([^:]*))?:((?:.|\n(?=  ))*)", text, re.M)
    return {name: set(re.findall(r"`(\w+)`", labels)) for labels, names in items
            for name in re.findall(r"`(gpubufd_\w+)`", names)}


def test_the_lists_of_metrics(served):
    """docs/METRICS.md has each with its labels, and no other; a name says the type."""
    served.connect().put("a")  # so that its user has something
    served.connect().call("provide", prefix="p/")
    told = {name: labels for name, labels in told_by_the_page().items() if not name.startswith("gpubufd_peer_")}
    families = scrape(served)
    assert set(told) == set(families)
    for name, (kind, _, samples) in families.items():
        there = {key for _, pairs in samples for key, _ in pairs} - {"le"}
        assert told[name] == there or (told[name] == {"tier"} and not there), name
        assert kind == ("counter" if name.endswith("_total") else
                        "histogram" if name == "gpubufd_request_duration_seconds" else "gauge"), name


def test_probes():
    """As docs/METRICS.md lists them, where the build had <sys/sdt.h>."""
    if not shutil.which("readelf") or not os.path.exists("/usr/include/x86_64-linux-gnu/sys/sdt.h"):
        pytest.skip("no readelf, or no <sys/sdt.h>")
    notes = subprocess.run(["readelf", "-n", BUILD / "bin/gpubufd"], capture_output=True, text=True,
                           check=True).stdout
    there = set(re.findall(r"Provider: gpubufd\s+Name: (\w+)", notes))
    listed = set(re.findall(r"`gpubufd:(\w+)`", (ROOT / "docs/METRICS.md").read_text()))
    assert there == listed and listed
