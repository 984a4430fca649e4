"""Prometheus on /metrics, the alerts and the dashboard: its linter, its tests of rules, and a real server
that scrapes."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import etcds
from device import ROOT
from http_client import get
from peer import DEADLINE

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


def test_every_alert_goes_off_and_stays_calm(promtool, tmp_path):
    assert set(CASES) == set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    tests = []
    for alert, cases in CASES.items():
        for series, firing in zip(cases, (True, False)):
            tests.append({
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": "59m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if firing else []}]})
    written = tmp_path / "tests.yml"
    written.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(written))
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


# ---- a real one ------------------------------------------------------------------------------


class Prometheus:
    def __init__(self, program, path, config):
        self.url = "http://%s:%d" % etcds.fresh_address()  # no other program takes it meanwhile
        self.log = open(path / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={path / 'data'}",
             f"--web.listen-address={self.url.removeprefix('http://')}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, what, **query):
        """The API's answer, also when that is an error; None: it is not there yet."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(query)}",
                                        timeout=DEADLINE) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            return json.load(error) if error.code == 400 else None
        except OSError:
            assert self.process.poll() is None, self.words()
            return None

    def until(self, condition, what, **query):
        end = time.monotonic() + DEADLINE
        while not condition(said := self.ask(what, **query)):
            assert time.monotonic() < end, (said, self.words())
            time.sleep(0.05)  # between two looks
        return said

    def words(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.log.close()


@pytest.fixture
def prometheus(port, tmp_path):
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("prometheus is not installed")
    one = Prometheus(program, tmp_path, configuration(tmp_path, f"127.0.0.1:{port}"))
    yield one
    one.stop()


def values(said):
    assert said["status"] == "success", said
    return said["data"]["result"]


def dashboard():
    """Each expression, as Grafana sends it with everything chosen."""
    for panel in json.loads((MONITORING / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield (target["expr"].replace("$instance", ".*").replace("$device", ".*")
                   .replace("$__rate_interval", "1m"))


# Of those that only tell of errors nothing comes on a calm day, and of a peer's or a provider's nothing where there is none.
OF_ERRORS = ("gpubufd_limits_reached_total", "result!=\"ok\"", "gpubufd_peer_", "gpubufd_provider_")


def test_a_real_one_scrapes_and_understands_all(prometheus):
    there = 'up{job="gpubufd"}'
    # Two scrapes: of one alone there is no rate.
    prometheus.until(lambda said: said and values(said) and float(values(said)[0]["value"][1]) >= 2,
                     "query", query=f"count_over_time({there}[1m])")
    assert [float(one["value"][1]) for one in values(prometheus.ask("query", query=there))] == [1]
    assert float(values(prometheus.ask("query", query="gpubufd_objects"))[0]["value"][1]) == 1
    assert len(values(prometheus.ask("query", query='{__name__=~"gpubufd_.*"}'))) > 300

    expressions = list(dashboard())
    assert len(expressions) > 40
    empty = [one for one in expressions if not values(prometheus.ask("query", query=one))]
    assert all(any(name in one for name in OF_ERRORS) for one in empty), empty

    def rules_of(said):
        return [rule for group in said["data"]["groups"] for rule in group["rules"]]

    rules = rules_of(prometheus.until(
        lambda said: said and all(rule["health"] != "unknown" for rule in rules_of(said)), "rules"))
    assert {rule["name"] for rule in rules} == set(CASES)
    assert {rule["health"] for rule in rules} == {"ok"}, rules
    # A daemon that does what it should sets off none, however its machine is loaded: that one is about time.
    assert {rule["name"] for rule in rules if rule["alerts"]} <= {"GpubufdSlowTurns", "GpubufdSlowRequests"}
