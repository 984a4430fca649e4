"""Tests of the packages on a machine that systemd has booted: check-systemd boots one, and runs this in it.

Each test is on its own but for the first, which installs, and the last, which purges. A machine without
a GPU: the device is the host.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

HERE = pathlib.Path(__file__).parent
PACKAGES, NEWER = (sorted(map(str, place.glob("*.deb"))) for place in (HERE, HERE / "newer"))
SOCKET = "/run/gpubufd/gpubufd.sock"
UNITS = ("gpubufd.service", "gpubufd.socket")
GATEWAY = "gpubufd-gateway.service"
DEADLINE = 300  # how long what must come is waited for
EXPOSED_AT_MOST = 10  # of 100, as `make lint` has it
BEFORE = {}  # what there was before the packages


# ---- commands, users, units ----

def run(*command, ok=True, user=None, env=None, **options):
    """Output of the command; None if it fails and may."""
    if user:
        command = ("setpriv", "--reuid", user, "--regid", user, "--init-groups", *command)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=DEADLINE, env={**os.environ, **(env or {})}, **options)
    if ok:
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
    return done.stdout if done.returncode == 0 or ok else None


def fails(*command, **options):
    """Output of a command that has to fail."""
    done = run("sh", "-c", '"$@" && exit 99; true', "sh", *command, **options)
    return done


def systemctl(*words, **options):
    return run("systemctl", *words, **options)


def shown(unit, key, user=None):
    if user:
        return systemctl_of(user, "show", "--value", "-p", key, unit).strip()
    return systemctl("show", "--value", "-p", key, unit).strip()


def uid_of(user):
    return int(run("id", "-u", user))


def own_env(user):
    return {"XDG_RUNTIME_DIR": f"/run/user/{uid_of(user)}", "HOME": f"/home/{user}"}


def systemctl_of(user, *words, **options):
    """systemctl of that user, with a manager of its own."""
    return run("systemctl", "--user", *words, user=user, env=own_env(user), **options)


def main_pid(user=None):
    return int(shown("gpubufd.service", "MainPID", user))


def eventually(condition, what):
    end = time.monotonic() + DEADLINE
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, f"never: {what}\n{log()}"
        time.sleep(0.1)


def log(lines=40):
    return run("journalctl", "--no-pager", "-n", str(lines))


def restarted(before, user=None):
    """Waits for another daemon than that pid to be ready; its pid."""
    def there():
        pid = main_pid(user)
        return pid not in (0, before) and shown("gpubufd.service", "SubState", user) == "running" and pid
    return eventually(there, f"another daemon after {before}")


# ---- clients ----

PUT = """
import gpubufd, random, sys
with gpubufd.connect(timeout=60) as client:
    for name, seed, size, mode in zip(*[iter(sys.argv[1:])] * 4):
        client.put(name, random.Random(int(seed)).randbytes(int(size)), mode=int(mode, 8), replace=True)
"""
DIGESTS = """
import gpubufd, hashlib, json, sys
with gpubufd.connect(timeout=60) as client:
    print(json.dumps({name: hashlib.sha256(bytes(client.get(name))).hexdigest()
                      for name in (entry.name for entry in client.list())}))
"""
HOLDER = """
import gpubufd, hashlib, sys
client = gpubufd.connect(timeout=60, resume_timeout=60)
held = client.get(sys.argv[1])
print("holds", flush=True)
for line in sys.stdin:
    print(hashlib.sha256(bytes(held)).hexdigest(), flush=True)
    if line.strip() == "read":
        continue
    try:
        again = hashlib.sha256(bytes(client.get(sys.argv[1]))).hexdigest()
    except Exception as error:
        again = type(error).__name__
    print(again, flush=True)
"""

LOAD = """
import gpubufd, random, sys, threading, time
client = gpubufd.connect(timeout=60, resume_timeout=60)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
content, rounds, worst = random.Random(1).randbytes(100_000), 0, 0.0
client.put(sys.argv[1], content)
held = client.get(sys.argv[1])
print("loads", flush=True)
while not ended.is_set():
    began = time.monotonic()
    name = f"{sys.argv[1]}/{rounds % 8}"
    client.put(name, content + rounds.to_bytes(8, "big"), replace=True)
    with client.get(name) as read:
        assert bytes(read) == content + rounds.to_bytes(8, "big")
    worst, rounds = max(worst, time.monotonic() - began), rounds + 1
assert bytes(held) == content
print(rounds, round(worst * 1000), flush=True)
"""


def python(code, *words, user, env=None):
    return run("python3", "-c", code, *words, user=user, env=env, cwd="/")


# name: seed, bytes, mode; one of several segments, one with a segment to itself, small ones
OBJECTS = {"small": (1, 1000, 0o600), "public": (2, 300_000, 0o644), "large": (3, 20_000_000, 0o600)}


def digest(name):
    seed, size, _ = OBJECTS[name]
    return hashlib.sha256(random.Random(seed).randbytes(size)).hexdigest()


ALL = {name: digest(name) for name in OBJECTS}


def put_all(user, env=None):
    words = [str(word) for name, (seed, size, mode) in OBJECTS.items()
             for word in (name, seed, size, oct(mode))]
    python(PUT, *words, user=user, env=env)


def digests(user, env=None):
    return json.loads(python(DIGESTS, user=user, env=env))


class Holder:
    """A process that has an object open."""

    def __init__(self, name, user, env=None):
        self.process = subprocess.Popen(
            ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "python3", "-c", HOLDER, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={**os.environ, **(env or {})})
        assert self.process.stdout.readline() == "holds\n"

    def ask(self, word, answers):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return [self.process.stdout.readline().strip() for _ in range(answers)]

    def mapped(self):
        """The digest of what it holds, without a word to the daemon."""
        return self.ask("read", 1)[0]

    def goes_on(self, name):
        """It reads what it holds, and opens it once more."""
        assert self.ask("open", 2) == [ALL[name]] * 2

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(DEADLINE) == 0


@contextlib.contextmanager
def holding(name, user, env=None):
    holder = Holder(name, user, env)
    try:
        yield holder
        holder.end()
    finally:
        holder.process.kill()
        holder.process.wait()


@contextlib.contextmanager
def drop_in(unit, text):
    """Settings of a unit for a while, as `systemctl edit` makes them."""
    path = pathlib.Path(f"/etc/systemd/system/{unit}.d/checks.conf")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="ascii")
    systemctl("daemon-reload")
    try:
        yield
    finally:
        path.unlink()
        path.parent.rmdir()
        systemctl("daemon-reload")


@contextlib.contextmanager
def configured(text, program="gpubufd"):
    """Another /etc/gpubufd.conf for a while."""
    path = pathlib.Path(f"/etc/{program}.conf")
    good = path.read_bytes()
    try:
        path.write_text(text, encoding="ascii")
        yield
    finally:
        path.write_bytes(good)


@pytest.fixture
def daemon():
    """The service as it is installed, without objects."""
    systemctl("stop", *UNITS)
    systemctl("reset-failed", *UNITS, ok=False)
    systemctl("start", *UNITS)
    yield
    assert systemctl("is-active", *UNITS).split() == ["active", "active"]


# ---- installing ----

def snapshot():
    """All files but the package manager's own books and what there is between two boots; who there is;
    which units."""
    pruned = [word for place in ("checks", "proc", "sys", "dev", "run", "tmp", "var/tmp", "var/lib/dpkg",
                                 "var/lib/apt", "var/cache", "var/log", "var/lib/systemd/timers",
                                 "var/lib/systemd/linger")
              for word in ("-o", "-path", f"/{place}")][1:]
    files = run("find", "/", "-xdev", "(", *pruned, ")", "-prune", "-o", "-print").splitlines()
    named = run("find", "/run", "/tmp", "/var/tmp", "-name", "*gpubuf*").splitlines()
    users = [f"{kind} {line.split(':')[0]}" for kind in ("passwd", "group")
             for line in run("getent", kind).splitlines()]
    units = systemctl("list-units", "--all", "--plain", "--no-legend", "gpubufd*").splitlines()
    unit_files = systemctl("list-unit-files", "--no-legend", "gpubufd*", ok=False) or ""
    return {*files, *named, *users, *units, *unit_files.splitlines()}


def test_the_machine_has_booted():
    assert pathlib.Path("/proc/1/comm").read_text(encoding="ascii") == "systemd\n"
    state = run("systemctl", "is-system-running", "--wait", ok=False) or systemctl("--failed")
    assert state == "running\n"
    for user in ("alice", "bob", "carol"):
        run("useradd", "-m", user)
    BEFORE["all"] = snapshot()


def test_installing_starts_and_enables():
    run("dpkg", "-i", *PACKAGES)
    assert systemctl("is-active", *UNITS).split() == ["active", "active"]
    assert systemctl("is-enabled", *UNITS).split() == ["enabled", "enabled"]
    assert run("systemctl", "--global", "is-enabled", *UNITS, ok=False) is None
    assert digests("alice") == {}
    assert (systemctl("is-enabled", GATEWAY), systemctl("is-active", GATEWAY)) == ("enabled\n", "active\n")
    systemctl("stop", GATEWAY)  # it would start a daemon that is stopped, as each client does


# ---- starting ----

def test_the_first_client_starts_it(daemon):
    systemctl("stop", *UNITS)
    assert not os.path.exists(SOCKET)
    systemctl("start", "gpubufd.socket")
    assert systemctl("is-active", "gpubufd.service", ok=False) is None
    put_all("alice")
    assert systemctl("is-active", "gpubufd.service") == "active\n"
    assert digests("alice") == ALL


def test_status_says_what_it_does(daemon):
    put_all("alice")
    assert shown("gpubufd.service", "Type") == "notify"
    assert shown("gpubufd.service", "WatchdogUSec") == "1min"
    text = systemctl("status", "--no-pager", "--full", "gpubufd.service")
    assert "Active: active (running)" in text
    assert "TriggeredBy: ● gpubufd.socket" in text
    # The line is of the last sign of life; there are three in a minute.
    eventually(lambda: "3 objects" in shown("gpubufd.service", "StatusText"), "the status tells objects")
    assert re.search(r'Status: ".*3 objects.*"', systemctl("status", "--no-pager", "--full", UNITS[0]))


# RELIABILITY.md: The daemon ends 21
def test_a_bad_configuration_loses_nothing(daemon):
    """One sentence says what is wrong; when it is mended the service comes by itself, also for clients that wait."""
    put_all("alice")
    with holding("large", "alice") as holder:
        with configured("device = host\ndevice = nothing:1G\n"):
            before = time.time()
            assert systemctl("restart", "gpubufd.service", ok=False) is None
            eventually(lambda: int(shown("gpubufd.service", "NRestarts")) > 20, "it is tried again and again")
            assert systemctl("is-active", "gpubufd.socket") == "active\n"
            said = run("journalctl", "-u", "gpubufd", "--since", f"@{before:.6f}", "-o", "cat")
            assert "/etc/gpubufd.conf:2: " in said
            waiting = subprocess.Popen(["gpubufctl", "ls"], stdout=subprocess.DEVNULL)
        assert waiting.wait(DEADLINE) == 0
        holder.goes_on("large")
        assert digests("alice") == ALL


# ---- surviving ----


ENDS = {
    "restart": ["systemctl", "restart", "gpubufd.service"],
    "kill -9": ["systemctl", "kill", "-s", "KILL", "--kill-who=main", "gpubufd.service"],
    "hand over": ["systemctl", "kill", "-s", "HUP", "--kill-who=main", "gpubufd.service"],
    "upgrade": ["dpkg", "-i", *NEWER],
    "the former packages again": ["dpkg", "-i", *PACKAGES],
}


@pytest.mark.parametrize("how", ["restart", "kill -9", "hand over"])
# RELIABILITY.md: The daemon ends 21
def test_another_daemon_has_it_all(daemon, how):
    put_all("alice")
    before = main_pid()
    with holding("large", "alice") as holder:
        run(*ENDS[how])
        restarted(before)
        holder.goes_on("large")
        assert digests("alice") == ALL
        assert digests("bob") == {"public": ALL["public"]}


# RELIABILITY.md: The daemon ends 21
def test_an_upgrade_under_load(daemon):
    """Two programs put, get and hold meanwhile: no call fails, and none finds other content."""
    programs = [subprocess.Popen(
        ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "python3", "-c", LOAD, user],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") for user in ("alice", "bob")]
    assert [program.stdout.readline() for program in programs] == ["loads\n"] * 2
    for how in ENDS:
        before = main_pid()
        run(*ENDS[how])
        restarted(before)
        if how == "upgrade":
            assert run("dpkg-query", "-Wf", "${Version}", "gpubufd").endswith("+newer")
    for program in programs:
        told, _ = program.communicate(timeout=DEADLINE)
        assert program.returncode == 0
        print(f"\n  {told.split()[0]} rounds of put and get, 0 errors, the longest {told.split()[1]} ms", flush=True)


# RELIABILITY.md: The daemon ends 21
def test_kill_9_again_and_again(daemon):
    """As soon as there is another one, while clients come all the time: nobody is turned away."""
    put_all("alice")
    with holding("large", "alice") as holder:
        for _ in range(20):
            before = eventually(main_pid, "a daemon")
            os.kill(before, signal.SIGKILL)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(SOCKET)
            eventually(lambda killed=before: main_pid() != killed, "it has noticed")
        holder.goes_on("large")
        assert digests("alice") == ALL


# RELIABILITY.md: The daemon ends 21
def test_the_watchdog(daemon):
    with drop_in("gpubufd.service", "[Service]\nWatchdogSec=10s\n"):
        systemctl("restart", "gpubufd.service")
        put_all("alice")
        began = time.time()
        before = main_pid()
        with holding("large", "alice") as holder:
            os.kill(before, signal.SIGSTOP)
            assert holder.mapped() == ALL["large"]
            restarted(before)
            holder.goes_on("large")
            assert digests("alice") == ALL
        assert "Watchdog timeout" in run("journalctl", "--no-pager", "-u", "gpubufd.service",
                                         "--since", f"@{began:.6f}")
    systemctl("restart", "gpubufd.service")
    assert digests("alice") == ALL


# RELIABILITY.md: The daemon ends 21
def test_a_manager_that_is_executed_anew(daemon):
    """systemd's own upgrade does the same."""
    put_all("alice")
    before = main_pid()
    systemctl("daemon-reexec")
    assert main_pid() == before
    os.kill(before, signal.SIGKILL)
    restarted(before)
    assert digests("alice") == ALL


MANY = """
import gpubufd, os, sys
some = (0, 2, 4, 6)
modes = [64 * owner + 8 * group + others for owner in (4, 6) for group in some for others in some]
users = range(5000, 5012)
for user in users:
    if os.fork() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        with gpubufd.connect(timeout=60) as client:
            for mode in modes:
                name, value = f"{user}/{mode:o}", f"{user} {mode}".encode()
                if sys.argv[1] == "put":
                    client.put(name, value, mode=mode)
                else:
                    assert bytes(client.get(name)) == value, name
        os._exit(0)
    assert os.wait()[1] == 0
print(len(users) * len(modes))
"""


def test_many_segments(daemon):
    """For each user and mode one: the manager keeps them all."""
    segments = int(run("python3", "-c", MANY, "put"))
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    assert int(run("python3", "-c", MANY, "get")) == segments
    assert int(shown("gpubufd.service", "NFileDescriptorStore")) > segments  # and a journal


def test_stopping_gives_all_of_it_up(daemon):
    put_all("alice")
    with holding("large", "alice") as holder:
        systemctl("stop", *UNITS)
        assert systemctl("is-active", *UNITS, ok=False) is None
        assert not os.path.exists(SOCKET)
        assert holder.mapped() == ALL["large"]
        systemctl("start", *UNITS)
        assert digests("alice") == {}
        mapped, again = holder.ask("open", 2)
        assert mapped == ALL["large"]
        assert again == "NotFound"
    put_all("alice")
    systemctl("stop", "gpubufd.service")
    assert shown("gpubufd.service", "Result") == "success"
    assert os.path.exists(SOCKET)
    assert digests("alice") == {}  # started by the one who asks


# ---- what it may do ----

def hardened(unit, at_most):
    """Checks what is withheld from the unit's process; (its pid, its status)."""
    run("systemd-analyze", "security", "--no-pager", f"--threshold={at_most}", unit)
    pid = shown(unit, "MainPID")
    status = dict(line.split(":\t", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    assert status["Gid"].split() == [run("id", "-g", "gpubufd").strip()] * 4
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert int(status["Cap" + kind], 16) == 0
    root = f"/proc/{pid}/root"
    for place in ("/", "/usr", "/etc", "/var/lib"):
        assert os.statvfs(root + place).f_flag & os.ST_RDONLY, place
    assert os.listdir(root + "/home") == []
    return pid, status


def test_hardening_is_active(daemon):
    pid, status = hardened("gpubufd.service", EXPOSED_AT_MOST)
    assert status["Uid"].split() == [run("id", "-u", "gpubufd").strip()] * 4
    for space in ("net", "mnt"):
        assert os.readlink(f"/proc/{pid}/ns/{space}") != os.readlink(f"/proc/1/ns/{space}")
    root = f"/proc/{pid}/root"
    for place in ("/run/gpubufd", "/var/lib/gpubufd", "/tmp"):
        assert not os.statvfs(root + place).f_flag & os.ST_RDONLY, place
    assert os.listdir(root + "/tmp") == []
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    most = pathlib.Path("/proc/1/limits").read_text(encoding="ascii")
    most = min(65536, int(re.search(r"Max open files +\d+ +(\d+)", most)[1]))  # a container's manager may not raise it
    assert re.search(rf"Max open files +{most} +{most}", limits)
    assert re.search(r"Max core file size +0 +0", limits)


def test_who_may_connect(daemon):
    put_all("alice")
    assert (os.stat(SOCKET).st_mode & 0o7777) == 0o666
    assert run("stat", "-c", "%a %U %G", "/run/gpubufd") == "755 gpubufd gpubufd\n"
    assert run("stat", "-c", "%a %U %G", "/var/lib/gpubufd") == "700 gpubufd gpubufd\n"
    assert digests("bob") == {"public": ALL["public"]}
    assert "no object" in fails("gpubufctl", "get", "small", user="bob")


def test_a_group_alone(daemon):
    put_all("alice")
    run("groupadd", "gpu-users")
    run("usermod", "-aG", "gpu-users", "alice")
    try:
        with drop_in("gpubufd.socket", "[Socket]\nSocketMode=0660\nSocketGroup=gpu-users\n"):
            systemctl("restart", "gpubufd.socket")
            assert run("stat", "-c", "%a %U %G", SOCKET) == "660 root gpu-users\n"
            assert digests("alice") == ALL
            assert "ermission denied" in fails("gpubufctl", "ls", user="bob")
    finally:
        systemctl("restart", "gpubufd.socket")
        run("groupdel", "gpu-users")
    assert digests("bob") == {"public": ALL["public"]}


def test_a_disk_tier_below_the_state_directory(daemon):
    with configured("device = host:64M\ntier = disk:500M:/var/lib/gpubufd\n"):
        systemctl("restart", "gpubufd.service")
        put_all("alice")
        python(PUT, "more", "4", "40000000", "600", user="alice")
        before = main_pid()
        os.kill(before, signal.SIGKILL)
        restarted(before)
        found = digests("alice")
        del found["more"]
        assert found == ALL
        assert "disk" in run("gpubufctl", "stats")


# ---- the gateway ----

EVENTS = "/run/gpubufd-gateway/events.sock"


def asked(path):
    """The gateway's answer; None while there is none, or not with 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:9464{path}", timeout=DEADLINE) as answer:
            return answer.read().decode()
    except OSError:
        return None


@pytest.fixture
def gateway(daemon):
    """Its service as it is installed, which has found the daemon."""
    systemctl("reset-failed", GATEWAY, ok=False)
    systemctl("start", GATEWAY)
    eventually(lambda: asked("/healthz") == "ok\n", "the gateway's answer")
    yield
    systemctl("stop", GATEWAY)  # it would start a daemon that is stopped, as each client does


def test_the_gateway_as_it_is_installed(gateway):
    put_all("alice")
    assert "\ngpubufd_objects 3\n" in asked("/metrics")
    told = json.loads(asked("/api/objects"))
    assert [row[0] for row in told["objects"]] == ["public"]
    assert "<title>" in asked("/")
    assert run("stat", "-c", "%a %G", EVENTS) == "660 gpubufd\n"
    systemctl("stop", GATEWAY)
    assert asked("/healthz") is None and not os.path.exists(EVENTS)
    assert shown(GATEWAY, "Result") == "success"


# RELIABILITY.md: The gateway 6
def test_the_gateway_is_killed(gateway):
    """Another one comes; the daemon is not concerned."""
    of_daemon, before = main_pid(), int(shown(GATEWAY, "MainPID"))
    for _ in range(3):
        os.kill(before, signal.SIGKILL)
        before = eventually(lambda pid=before: int(shown(GATEWAY, "MainPID")) not in (0, pid)
                            and int(shown(GATEWAY, "MainPID")), "another gateway")
        eventually(lambda: asked("/healthz") == "ok\n", "its answer")
        assert os.path.exists(EVENTS)
    assert main_pid() == of_daemon and int(shown(GATEWAY, "NRestarts")) == 3


# RELIABILITY.md: The gateway 6
def test_the_gateway_outlives_the_daemon(gateway):
    """It is the same one that tells of what is there again."""
    put_all("alice")
    pid, before = shown(GATEWAY, "MainPID"), main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    eventually(lambda: "\ngpubufd_objects 3\n" in (asked("/metrics") or ""), "its figures")
    assert (shown(GATEWAY, "MainPID"), shown(GATEWAY, "NRestarts")) == (pid, "0")


def test_a_gateway_with_a_bad_configuration(gateway):
    """It is not tried again and again, and its log says what is wrong."""
    with configured("http = 0.0.0.0:9464\n", "gpubufd-gateway"):
        systemctl("restart", GATEWAY)
        eventually(lambda: shown(GATEWAY, "ActiveState") == "failed", "it fails")
    assert (shown(GATEWAY, "ExecMainStatus"), shown(GATEWAY, "NRestarts")) == ("2", "0")
    assert "give --http-token-file" in run("journalctl", "-u", "gpubufd-gateway", "-n", "20", "-o", "cat")
    systemctl("start", GATEWAY)
    eventually(lambda: asked("/healthz") == "ok\n", "the gateway's answer")


def test_the_gateway_asks_for_a_token_of_the_managers(gateway):
    """The configuration's LoadCredential= gives the token."""
    text = pathlib.Path("/etc/gpubufd-gateway.conf").read_text(encoding="ascii")
    line = "#http-token-file = /run/credentials/gpubufd-gateway.service/token"
    assert line in text
    token = pathlib.Path("/etc/gpubufd/token")
    token.parent.mkdir()
    token.touch(0o600)
    token.write_text("a-token-of-many-letters\n", encoding="ascii")
    try:
        with (configured(text.replace(line, line[1:]), "gpubufd-gateway"),
              drop_in(GATEWAY, "[Service]\nLoadCredential=token:/etc/gpubufd/token\n")):
            systemctl("restart", GATEWAY)
            eventually(lambda: asked("/healthz") == "ok\n", "the gateway's answer")
            assert asked("/metrics") is None
            request = urllib.request.Request("http://127.0.0.1:9464/metrics",
                                             headers={"Authorization": "Bearer a-token-of-many-letters"})
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                assert b"gpubufd_objects" in answer.read()
    finally:
        token.unlink()
        token.parent.rmdir()


def test_hardening_of_the_gateway(gateway):
    (owner,) = set(hardened(GATEWAY, 20)[1]["Uid"].split())
    assert 61184 <= int(owner) <= 65519  # one of DynamicUser='s


# ---- a daemon of one's own ----

# RELIABILITY.md: The daemon ends 21
def test_a_daemon_of_ones_own(daemon):
    systemctl("stop", *UNITS)  # whose socket clients look for first
    env = own_env("carol")
    run("loginctl", "enable-linger", "carol")
    eventually(lambda: systemctl_of("carol", "is-system-running", ok=False), "carol's manager")
    try:
        systemctl_of("carol", "enable", "--now", "gpubufd.socket")
        path = f"{env['XDG_RUNTIME_DIR']}/gpubufd.sock"
        assert run("stat", "-c", "%a %U %G", path) == "600 carol carol\n"
        assert systemctl_of("carol", "is-active", "gpubufd.service", ok=False) is None
        put_all("carol", env)
        assert systemctl_of("carol", "is-active", "gpubufd.service") == "active\n"
        with holding("large", "carol", env) as holder:
            before = main_pid("carol")
            systemctl_of("carol", "restart", "gpubufd.service")
            before = restarted(before, "carol")
            holder.goes_on("large")
            for _ in range(2):
                os.kill(before, signal.SIGKILL)
                before = restarted(before, "carol")
            holder.goes_on("large")
            assert digests("carol", env) == ALL
        assert "ermission denied" in fails("gpubufctl", "ls", user="bob", env={"GPUBUFD_SOCKET": path})
        status = pathlib.Path(f"/proc/{before}/status").read_text(encoding="ascii")
        assert "NoNewPrivs:\t1\n" in status and "Seccomp:\t2\n" in status
        assert f"Uid:\t{uid_of('carol')}\t" in status
        systemctl("start", *UNITS)  # one does not hinder the other
        assert digests("carol", {"GPUBUFD_SOCKET": path}) == ALL
        assert digests("carol", env) == {}
        systemctl_of("carol", "stop", *UNITS)
        assert not os.path.exists(path)
        systemctl_of("carol", "start", "gpubufd.socket")
        assert digests("carol", {"GPUBUFD_SOCKET": path}) == {}
    finally:
        systemctl_of("carol", "disable", "--now", *UNITS, ok=False)
        run("loginctl", "disable-linger", "carol")
        systemctl("start", *UNITS)


# ---- removing ----

def test_a_purge_leaves_nothing():
    put_all("alice")
    names = [run("dpkg-deb", "-f", package, "Package").strip() for package in PACKAGES]
    run("dpkg", "--remove", *names)
    assert run("pgrep", "-x", "gpubufd", ok=False) is None
    assert os.path.exists("/etc/gpubufd.conf")
    run("dpkg", "--purge", *names)
    run("rm", "-rf", "/home/carol/.config")
    after = snapshot()
    assert (sorted(after - BEFORE["all"]), sorted(BEFORE["all"] - after)) == ([], [])


class Tell:
    """Why something failed is told at once: a run takes minutes."""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.failed:
            print(f"\n{report.longreprtext}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "--tb=short", "--color=no", "--no-summary", "--capture=no",
                          "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Tell()]))
