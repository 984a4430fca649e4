"""Prometheus on /metrics, the alerts and the dashboard: its linter, and its tests of rules."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

import device as test_device
from ctl import Ctl
from device import MIB, ROOT
from http_client import get
from peer import DEADLINE, Peer, RpcError, bytes_layout, wait_until
from restarts import supervised  # noqa: F401 (a fixture)

MONITORING = ROOT / "docs" / "monitoring"
ALERTS = MONITORING / "alerts.yml"


@pytest.fixture(scope="module")
def promtool():
    program = shutil.which("promtool")
    if not program:
        pytest.skip("promtool is not installed")

    def run(*words, **more):
        return subprocess.run([program, *words], capture_output=True, timeout=10 * DEADLINE, check=False, **more)

    return run


@pytest.fixture
def port(daemon_factory, gateway, directory, tmp_path):
    """The port of a gateway, whose daemon has a tier, an object and some errors."""
    place = tmp_path / "tier"
    place.mkdir(mode=0o700)
    daemon = daemon_factory("--tier", f"disk:64M:{place}")
    peer = daemon.connect()
    peer.put("a", b"x" * 100_000)
    peer.call("move", name="a", tier="disk")
    peer.call("open", name="a", wait_ms=20_000)
    peer.error("not_found", "open", name="missing")
    return gateway(daemon, "--http", "127.0.0.1:0").port


def configuration(path, target):
    """The one of docs/METRICS.md, with this target, the alerts, and no time to lose."""
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "METRICS.md").read_text(), re.S)
    token = path / "token"
    token.write_text("nothing that is asked for\n")
    text = text.replace("/etc/gpubufd/token", str(token))
    text, count = re.subn(r"127\.0\.0\.1:9464", target, text)
    assert count == 1
    written = path / "prometheus.yml"
    written.write_text("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\n"
                       f"rule_files: ['{ALERTS}']\n{text}")
    return written


# ---- the linter ------------------------------------------------------------------------------


def test_the_linter(promtool, port, tmp_path):
    done = promtool("check", "metrics", input=get(port, "/metrics").body)
    assert done.returncode == 0 and not done.stdout + done.stderr, done
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done
    done = promtool("check", "config", str(configuration(tmp_path, "127.0.0.1:9464")))
    assert done.returncode == 0 and b"rules found" in done.stdout, done


# ---- the alerts ------------------------------------------------------------------------------

HOST, DISK = '{instance="a",device="host"}', '{instance="a",tier="disk"}'
FLAT, GROWS = "0x60", "0+1x60"  # for an hour, at a minute each
FULL = {"gpubufd_device_capacity_bytes" + HOST: "100x60"}
LEFT = ("evictable", "free", "retained")

# For each alert: series that set it off within the hour, and those of a calm day.
CASES = {
    "GpubufdDown": ({'up{job="gpubufd",instance="a"}': "0x60"}, {'up{job="gpubufd",instance="a"}': "1x60"}),
    "GpubufdCrashed": (
        {'gpubufd_start_time_seconds{instance="a"}': "100x55 200x5",
         'gpubufd_crashes_survived_total{instance="a"}': "0x55 1x5"},
        {'gpubufd_start_time_seconds{instance="a"}': "100x55 200x5",
         'gpubufd_crashes_survived_total{instance="a"}': FLAT}),
    "GpubufdDeviceLost": ({"gpubufd_device_lost" + HOST: "1x60"}, {"gpubufd_device_lost" + HOST: FLAT}),
    "GpubufdDeviceNearlyFull": (
        {**FULL, **{f"gpubufd_device_{what}_bytes" + HOST: "1x60" for what in LEFT}},
        {**FULL, **{f"gpubufd_device_{what}_bytes" + HOST: "2x60" for what in LEFT}}),
    "GpubufdMemoryHeldByClients": (
        {**FULL, "gpubufd_device_pinned_by_clients_bytes" + HOST: "11x60"},
        {**FULL, "gpubufd_device_pinned_by_clients_bytes" + HOST: "10x60"}),
    "GpubufdThrashing": (
        {**FULL, "gpubufd_spilled_bytes_total" + HOST: "0+12x60",
         "gpubufd_restored_bytes_total" + HOST: "0+11x60"},
        {**FULL, "gpubufd_spilled_bytes_total" + HOST: "0+12x60",
         "gpubufd_restored_bytes_total" + HOST: "0+1x60"}),
    "GpubufdTierFailing": (
        {"gpubufd_tier_failures_total" + DISK: GROWS}, {"gpubufd_tier_failures_total" + DISK: FLAT}),
    "GpubufdTierOutOfOrder": (
        {'gpubufd_tiers_out_of_order{instance="a"}': "1x60"}, {'gpubufd_tiers_out_of_order{instance="a"}': FLAT}),
    "GpubufdLimitReached": (
        {'gpubufd_limits_reached_total{instance="a",limit="sessions"}': GROWS},
        {'gpubufd_limits_reached_total{instance="a",limit="sessions"}': FLAT}),
    "GpubufdInternalErrors": (
        {'gpubufd_requests_total{instance="a",method="open",result="internal"}': GROWS},
        {'gpubufd_requests_total{instance="a",method="open",result="not_found"}': GROWS}),
    "GpubufdSlowRequests": (
        {f'gpubufd_request_duration_seconds_bucket{{instance="a",method="release",le="{le}"}}': values
         for le, values in (("0.001", "0+1x60"), ("0.01", "0+9x60"), ("+Inf", "0+9x60"))},
        {f'gpubufd_request_duration_seconds_bucket{{instance="a",method="release",le="{le}"}}': values
         for le, values in (("0.0002", "0+9x60"), ("0.01", "0+9x60"), ("+Inf", "0+9x60"))}),
    # Dropped objects were published to be dropped.
    "GpubufdRefusing": (
        {'gpubufd_requests_total{instance="a",method="create",result="no_space"}': GROWS},
        {'gpubufd_requests_total{instance="a",method="create",result="ok"}': GROWS,
         "gpubufd_evictions_total" + HOST: GROWS}),
    # Objects that may go at once count as room.
    "GpubufdTierNearlyFull": (
        {"gpubufd_tier_capacity_bytes" + DISK: "100x60", "gpubufd_tier_used_bytes" + DISK: "95x60",
         "gpubufd_tier_clean_bytes" + DISK: "1x60"},
        {"gpubufd_tier_capacity_bytes" + DISK: "100x60", "gpubufd_tier_used_bytes" + DISK: "95x60",
         "gpubufd_tier_clean_bytes" + DISK: "10x60"}),
    "GpubufdDescriptorsNearlyOut": (
        {'gpubufd_open_fds{instance="a"}': "900x60", 'gpubufd_max_fds{instance="a"}': "1000x60"},
        {'gpubufd_open_fds{instance="a"}': "700x60", 'gpubufd_max_fds{instance="a"}': "1000x60"}),
    "GpubufdTurnsAway": (
        {'gpubufd_event_subscribers_refused_total{instance="a"}': GROWS},
        {'gpubufd_event_subscribers_refused_total{instance="a"}': FLAT}),
    "GpubufdEventsDropped": (
        {'gpubufd_events_dropped_total{instance="a"}': GROWS},
        {'gpubufd_events_dropped_total{instance="a"}': FLAT}),
    "GpubufdSlowTurns": (
        {'gpubufd_loop_longest_turn_seconds{instance="a"}': "0.06x60"},
        {'gpubufd_loop_longest_turn_seconds{instance="a"}': "0.04x60"}),
    "GpubufdPeerDown": ({'gpubufd_peer_up{instance="a"}': FLAT}, {'gpubufd_peer_up{instance="a"}': "1x60"}),
    "GpubufdPeerAlone": (
        {'gpubufd_peer_directory_up{instance="a"}': FLAT}, {'gpubufd_peer_directory_up{instance="a"}': "1x60"}),
    "GpubufdPeerLosesLease": (
        {'gpubufd_peer_joined_total{instance="a"}': "1x9 2x9 3x9 4x9 5x9 6x20"},
        {'gpubufd_peer_joined_total{instance="a"}': "1x30 2x30"}),
    "GpubufdPeerNotPublished": (
        {'gpubufd_peer_names_shared{instance="a"}': "9x60", 'gpubufd_peer_names_published{instance="a"}': "7x60",
         'gpubufd_peer_names_refused{instance="a"}': "1x60"},
        {'gpubufd_peer_names_shared{instance="a"}': "9x60", 'gpubufd_peer_names_published{instance="a"}': "7x60",
         'gpubufd_peer_names_refused{instance="a"}': "2x60"}),
    "GpubufdPeerLaneFails": (
        {'gpubufd_peer_lane_failures_total{instance="a"}': GROWS},
        {'gpubufd_peer_lane_failures_total{instance="a"}': FLAT}),
}


def rules(promtool, path, tests):
    written = path / "tests.yml"
    written.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(written))
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_every_alert_goes_off_and_stays_calm(promtool, tmp_path):
    assert set(CASES) == set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    tests = []
    for which, told in enumerate(([{"labels": "{}", "value": 1}], [])):  # an instance for each alert
        series = [{"series": name.replace('instance="a"', f'instance="{alert}"'), "values": values}
                  for alert, cases in CASES.items() for name, values in cases[which].items()]
        asked = [{"expr": f'count(ALERTS{{alertname="{alert}",instance="{alert}",alertstate="firing"}})',
                  "eval_time": "59m", "exp_samples": told} for alert in CASES]
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": asked})
    rules(promtool, tmp_path, tests)


def scraped(port, pace):
    """The series of /metrics as Prometheus has them, a quarter of a minute apart; each grows by pace(name, value)."""
    series = []
    for line in get(port, "/metrics").text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            labels = name.partition("{")[2].rstrip("}")
            series.append({"series": f"{name.partition('{')[0]}{{{labels}{labels and ','}instance='a',job='gpubufd'}}",
                           "values": f"{float(value):.9g}+{pace(name, float(value))}x60"})
    return series


@pytest.mark.skipif(test_device.ON_GPU, reason="the tier is the host's only one")
@pytest.mark.parametrize("size", [5 * MIB, 18 * MIB])
def test_full_tiers_are_told_before_an_object_is_refused(promtool, daemon_factory, gateway, tmp_path, size):
    """An object is refused when `stats` says that it could not have as much; doctor and the alert warn before."""
    place = tmp_path / "tier"
    place.mkdir(mode=0o700)
    daemon = daemon_factory("--tier", f"disk:100M:{place}")
    port, ctl, peer = gateway(daemon, "--http", "127.0.0.1:0").port, Ctl(daemon.path, str(tmp_path)), daemon.connect()
    steps = []
    for count in range(50):
        wait_until(lambda: peer.call("stats")["devices"][0]["leaving"] == 0)
        (device,) = peer.call("stats")["devices"]
        (room,) = (one for one in json.loads(ctl.raw("--json", "doctor").stdout)["findings"] if "can be made so" in one["text"])
        steps.append((device["free"] + device["evictable"], room, scraped(port, lambda *_: 0)))
        with Peer(daemon.path) as other:
            try:
                other.create_object(f"o/{count}", bytes_layout(size), bytes(size))
            except RpcError as error:
                assert error.kind == "no_space"
                break
    assert steps[-1][0] < size <= steps[-2][0] + device["retained"] and device["stays"] > 0
    assert steps[0][1]["health"] == "ok" and steps[-1][1]["health"] == "warn" and "the tiers are nearly full" in steps[-1][1]["advice"]
    for (_, _, series), told in ((steps[0], []), (steps[-1], [{"labels": "{}", "value": 1}])):
        rules(promtool, tmp_path, [{"interval": "15s", "input_series": series, "promql_expr_test": [{
            "expr": 'count(ALERTS{alertname="GpubufdDeviceNearlyFull",alertstate="firing"})', "eval_time": "14m", "exp_samples": told}]}])


class Prometheus:
    """One that scrapes the gateway five times a second, and for which what lasts for a moment lasts long enough."""

    def __init__(self, path, target):
        written = configuration(path, target)
        text, count = re.subn(r"for: \d+m", "for: 0s", ALERTS.read_text())
        assert count > 5
        (path / "now.yml").write_text(text)
        written.write_text(written.read_text().replace(str(ALERTS), str(path / "now.yml")))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = open(path / "log", "w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={written}", f"--storage.tsdb.path={path}/data", f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=self.log)

    def ask(self, path):
        try:
            return json.loads(get(self.port, f"/api/v1/{path}").text)["data"]
        except (OSError, ValueError):  # it begins
            return None

    def fires(self, *alerts):
        """Waits until all of them do."""
        def all_do():
            assert self.process.poll() is None, self.log.name
            told = {one["labels"]["alertname"] for one in (self.ask("alerts") or {"alerts": []})["alerts"] if one["state"] == "firing"}
            return told >= set(alerts)

        wait_until(all_do)

    def sees_it_up(self):
        wait_until(lambda: [one["value"][1] for one in (self.ask("query?query=up") or {"result": []})["result"]] == ["1"])

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.mark.skipif(test_device.ON_GPU, reason="the tier is the host's only one")
@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")
def test_what_happens_to_a_daemon_sets_off_its_alert(supervised, gateway, tmp_path):
    """By a Prometheus that scrapes it."""
    place = tmp_path / "tier"
    place.mkdir(mode=0o700)
    daemon = supervised("--tier", f"disk:64M:{place}", "--limit", "user_objects=40")
    prometheus = Prometheus(tmp_path, f"127.0.0.1:{gateway(daemon, '--http', '127.0.0.1:0').port}")
    try:
        prometheus.sees_it_up()
        assert prometheus.ask("alerts") == {"alerts": []}
        with Peer(daemon.path) as peer:
            refused = None
            for count in range(100):  # a user past its quota
                try:
                    peer.put(f"small/{count}")
                except RpcError as error:
                    refused = error.kind
                    break
            assert refused == "limit"
            prometheus.fires("GpubufdLimitReached")
            peer.call("delete", names=[f"small/{i}" for i in range(count)])
            for count in range(40):  # device and tier are full, and one is refused
                try:
                    peer.put(f"large/{count}", bytes(8 * MIB))
                except RpcError as error:
                    refused = error.kind
                    break
            assert refused == "no_space"
            prometheus.fires("GpubufdRefusing", "GpubufdDeviceNearlyFull")
        place.rename(tmp_path / "elsewhere")
        for _ in range(3):  # it begins again and again
            daemon.crash()
        prometheus.fires("GpubufdCrashed", "GpubufdTierOutOfOrder")
        os.kill(daemon.child, signal.SIGSTOP)
        prometheus.fires("GpubufdDown")
        os.kill(daemon.child, signal.SIGCONT)
        prometheus.sees_it_up()
    finally:
        prometheus.end()


# ---- the dashboard ---------------------------------------------------------------------------

# Of those that only tell of errors nothing comes on a calm day, and of a peer's or a provider's nothing where there is none.
OF_ERRORS = ("gpubufd_limits_reached_total", "result!=\"ok\"", "gpubufd_peer_", "gpubufd_provider_")


def test_what_is_scraped_fills_the_dashboard_and_sets_off_nothing(promtool, port, tmp_path):
    """As Grafana asks, with everything chosen."""
    series = scraped(port, lambda name, value: 1 if ("_total" in name or "_bucket" in name) and value else 0)
    panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    assert [panel["title"] for panel in panels if panel["type"] != "row" and not panel.get("description")] == []
    expressions = {re.sub(r"\$(instance|device)", ".*", target["expr"]).replace("$__rate_interval", "1m")
                   for panel in panels for target in panel.get("targets", ())}
    assert len(series) > 300 and len(expressions) > 40
    filled = [one for one in expressions if not any(name in one for name in OF_ERRORS)]
    asked = [{"expr": f"count({one}) > bool 0", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": 1}]}
             for one in filled]
    # A daemon that does what it should sets off none, however its machine is loaded: the slow ones are about time.
    calm = {"expr": 'count(ALERTS{alertstate="firing",alertname!~"GpubufdSlow.*"})', "eval_time": "10m", "exp_samples": []}
    rules(promtool, tmp_path, [{"interval": "15s", "input_series": series, "promql_expr_test": [*asked, calm]}])
