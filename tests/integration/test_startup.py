"""Starting and stopping: clear sentences and exit status 2, sockets taken over or left alone."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest

from conftest import BUILD, GPUBUFD, ROOT, SANITIZER, needs, runs_as
from peer import DEADLINE, Peer, wait_until


def run(*argv, env=None, **options):
    """gpubufd that is to end by itself."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run([str(GPUBUFD), *argv], env=environment, capture_output=True, text=True,
                          timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL, **options)
    assert not SANITIZER.search(done.stderr), done.stderr
    return done


def refused(*argv, words=(), **options):
    """Exit status 2 and one sentence that has the words."""
    done = run(*argv, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().split("\n")
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]


# tests/unit/test_config.c has the others.
BAD_OPTIONS = {
    "unknown option": (["--colour"], ["--colour"]),
    "grace": (["--grace", "long"], ["long", "86400000"]),
    "grace too long": (["--grace", "86400001"], ["86400000"]),
    "quota without value": (["--quota", "default"], ["WHO:NAME=VALUE"]),
    "quota of nobody known": (["--quota", "no-such-user:objects=3"], ["no-such-user"]),
    "quota unknown": (["--quota", "default:cakes=3"], ["cakes", "objects"]),
    "quota zero": (["--quota", "default:objects=0"], ["objects=0"]),
    "quota below a segment": (["--quota", "default:bytes=1M"], ["1048576", "2097152", "segment"]),
    "limit below a segment": (["--limit", "user_bytes=4K"], ["4096", "segment"]),
    "quota of one below a segment": (["--quota", "1000:bytes=1M@host"], ["uid 1000", "segment"]),
    "quota on no device": (["--quota", "1000:bytes=1G@cuda:7"], ["cuda:7", "--device"]),
    "device larger than the machine": (["--device", "host:4096T"], ["host:4096T", "MiB"]),
}


@pytest.mark.parametrize("argv,words", BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_bad_options(directory, argv, words):
    refused("--socket", f"{directory}/s", *argv, words=words)
    assert not os.path.exists(f"{directory}/s")


BAD_FILES = {
    "bad value": ("log-level = debug\ndevice = host:much\n", 2, ["much"]),
    "device larger than the machine": ("\ndevice = host:4096T\n", 2, ["host:4096T", "MiB"]),
    "GPU that is not there": ("device = host:64M\ndevice = cuda:63\n", 2, ["cuda:63"]),
    "no directory for a tier": ("device = host:64M\n\ntier = disk:40M:/nonexistent/spill\n", 3,
                                ["/nonexistent/spill", "No such file"]),
    "a file in its place": ("tier = disk:40M:/proc/version\n", 1, ["/proc/version"]),
    "tier larger than its file system": ("tier = disk:9999999G:/tmp\n", 1, ["more than the file system has"]),
    "tier on a file system that is read-only": ("tier = disk:40M:/proc/self\n", 1, ["/proc/self"]),
    "unknown option": ("sokcet = /tmp/s\n", 1, ["sokcet"]),
    "value without an option": ("64M\n", 1, ["64M"]),
    "limit that there is not": ("limit = cakes=3\n", 1, ["cakes"]),
    "limit of the protocol": ("limit = line_bytes=3\n", 1, ["line_bytes"]),
    "quota of nobody": ("quota = nobody-at-all:bytes=1G\n", 1, ["nobody-at-all"]),
    "watermarks upside down": ("watermarks = 90:80\n", 1, ["90:80"]),
    "evict": ("evict = never\n", 1, ["never"]),
    "two devices of one name": ("device = host:64M\ndevice = host:32M\n", 2, ["host"]),
    "size": ("device = host:0\n", 1, ["host:0"]),
    "tier without a place": ("tier = disk:40M\n", 1, ["disk:40M"]),
    "tier that is too small": ("tier = disk:1M:/tmp\n", 1, ["2M"]),
    "log level": ("log-level = loud\n", 1, ["loud"]),
    "provider": ("provider = alice\n", 1, ["alice"]),
}


@pytest.mark.parametrize("text,line,words", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_files(directory, text, line, words):
    path = f"{directory}/gpubufd.conf"
    with open(path, "w") as file:
        file.write(text)
    told = refused("--socket", f"{directory}/s", "--config", path, words=words)
    assert f"{path}:{line}:" in told
    assert refused("--check", path, words=words) == told


@contextlib.contextmanager
def running(*argv, **options):
    """A gpubufd that ends well when it is told to."""
    process = subprocess.Popen([*argv, str(GPUBUFD), "--device", "host:64M"], **options)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def test_a_file_is_checked_beside_the_daemon_that_runs(directory, daemon_factory):
    """Nothing is started, and nothing is made or taken in the places that the file names."""
    place = f"{directory}/tier"
    os.mkdir(place)
    daemon = daemon_factory("--tier", f"disk:64M:{place}")
    before = os.listdir(place)
    path = f"{directory}/gpubufd.conf"
    with open(path, "w") as file:
        file.write(f"socket = {daemon.path}\ndevice = host:64M\ntier = disk:64M:{place}\nlog-level = warn\n")
    done = run("--check", path)
    assert (done.returncode, done.stderr) == (0, "") and "fine" in done.stdout
    assert os.listdir(place) == before
    assert daemon.connect().call("stats")
    refused("--check", path, "--limit", "cakes=3", words=["cakes"])


ACTIVATED = """
import fcntl, os, sys
high = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, 100)
for number in range(int(sys.argv[2])):
    os.dup2(high, 3 + number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"""


def test_a_socket_without_a_name(directory):
    """As systemd-socket-activate hands it over: one descriptor can only be the socket, of two nobody knows."""
    path = f"{directory}/activated"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    argv = [sys.executable, "-c", ACTIVATED, str(listener.fileno())]
    with running(*argv, "1", stderr=subprocess.PIPE, text=True, pass_fds=[listener.fileno()]) as daemon, Peer(path) as peer:
        assert peer.call("stats")
    assert f"socket={path}" in daemon.communicate()[1]
    done = subprocess.run([*argv, "2", str(GPUBUFD)], capture_output=True, text=True, timeout=DEADLINE, check=False,
                          pass_fds=[listener.fileno()])
    listener.close()
    assert done.returncode == 2 and "LISTEN_FDNAMES" in done.stderr


def test_a_file_and_the_command_line_over_it(directory, daemon_factory):
    path = f"{directory}/gpubufd.conf"
    with open(path, "w") as file:
        file.write("# A comment\n\n device = host:32M \nlimit=session_watches=5\n"
                   "limit = session_waits=6\nlog-level = error\n")
    hello = daemon_factory("--config", path, device=None).connect().call("hello", protocol=1)
    assert hello["devices"][0]["capacity"] == 32 << 20
    assert hello["limits"]["session_watches"] == 5 and hello["limits"]["session_waits"] == 6
    hello = daemon_factory("--config", path, "--limit", "session_waits=7").connect().call(
        "hello", protocol=1)
    assert hello["devices"][0]["capacity"] == 64 << 20
    assert hello["limits"]["session_watches"] == 5 and hello["limits"]["session_waits"] == 7


# RELIABILITY.md: The daemon ends 27
def test_a_live_daemon_is_never_taken_over(daemon):
    peer = daemon.connect()
    peer.put("a", b"mine")
    inode = os.stat(daemon.path).st_ino
    refused("--socket", daemon.path, words=[daemon.path])
    assert os.stat(daemon.path).st_ino == inode
    assert daemon.connect().open_object("a").read() == b"mine"


def test_a_live_stranger_is_never_taken_over(directory):
    """Somebody else listens there, who knows nothing of our lock."""
    path = f"{directory}/s"
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(path)
        stranger.listen()
        inode = os.stat(path).st_ino
        refused("--socket", path, words=[path])
        assert os.stat(path).st_ino == inode


def test_a_stale_socket_is_taken_over(directory, daemon_factory):
    path = f"{directory}/stale"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    assert daemon_factory(socket_path=path).connect().call("stats")


def test_of_many_that_begin_at_once_one_serves(directory):
    path = f"{directory}/stale"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    begun = [subprocess.Popen([str(GPUBUFD), "--device", "host:64M", "--log-level", "error", "--socket", path],
                              stderr=subprocess.DEVNULL) for _ in range(4)]
    try:
        wait_until(lambda: [one.poll() for one in begun].count(2) == 3)
        winner, = (one for one in begun if one.poll() is None)
        with Peer(path) as peer:
            assert peer.call("stats")
        winner.terminate()
        assert winner.wait(DEADLINE) == 0 and not os.path.exists(path)
    finally:
        for one in begun:
            one.kill()
            one.wait()


def test_a_directory_that_was_cleared(daemon_factory):
    """Another daemon began there since, and what is its own stays."""
    first = daemon_factory()
    os.unlink(first.path)
    os.unlink(first.path + ".lock")
    second = daemon_factory(socket_path=first.path)
    first.process.terminate()
    first.process.wait(DEADLINE)
    assert second.connect().names() == [] and os.path.exists(second.path + ".lock")


# RELIABILITY.md: The daemon ends 27
def test_after_kill_9_the_next_one_takes_over(daemon_factory):
    first = daemon_factory()
    first.kill()
    assert os.path.exists(first.path)
    second = daemon_factory(socket_path=first.path)
    assert second.connect().names() == []


def test_what_is_no_socket_is_left_alone(directory):
    path = f"{directory}/precious"
    with open(path, "w") as file:
        file.write("data")
    refused("--socket", path, words=[path])
    assert open(path).read() == "data"
    os.mkdir(f"{directory}/dir")
    refused("--socket", f"{directory}/dir", words=[f"{directory}/dir"])


def test_a_path_of_107_bytes_and_one_more(directory, daemon_factory):
    path = f"{directory}/".ljust(107, "x")
    assert daemon_factory(socket_path=path).connect().call("stats")
    refused("--socket", path + "x", words=["107"])
    assert not os.path.exists(path + "x")


def test_no_such_directory(directory):
    assert f"{directory}/none" in refused("--socket", f"{directory}/none/s")


@pytest.mark.root
def test_an_unwritable_directory(directory):
    program = runs_as(65534, GPUBUFD, directory)
    place = f"{directory}/closed"
    os.mkdir(place, 0o755)
    done = subprocess.run([program, "--socket", f"{place}/s"], user=65534,
                          group=65534, extra_groups=[], capture_output=True, text=True,
                          timeout=DEADLINE, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and place in done.stderr
    assert "Permission denied" in done.stderr


def test_mode_of_the_socket(daemon_factory):
    assert stat.S_IMODE(os.stat(daemon_factory().path).st_mode) == 0o666
    assert stat.S_IMODE(os.stat(daemon_factory("--mode", "0600").path).st_mode) == 0o600


def test_default_socket_from_the_environment(directory):
    """$GPUBUFD_SOCKET names the socket where --socket does not."""
    path = f"{directory}/from-environment"
    with running(env={**os.environ, "GPUBUFD_SOCKET": path}):
        wait_until(lambda: os.path.exists(path))
        with Peer(path) as peer:
            assert peer.call("stats")


@pytest.mark.root
def test_the_place_in_tmp_is_of_its_user_alone(directory):
    """Where there is no other, and only if nobody else may enter or has put something there."""
    uid = 30000 + os.getpid() % 30000
    program, place = runs_as(uid, GPUBUFD, directory), f"/tmp/gpubufd-{uid}"
    env = {key: value for key, value in os.environ.items() if key not in ("GPUBUFD_SOCKET", "XDG_RUNTIME_DIR")}

    def says():
        done = subprocess.run([program, "--device", "host:64M"], user=uid, group=uid, extra_groups=[], env=env,
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 2, done.stderr
        return done.stderr

    try:
        os.mkdir(place)
        os.chmod(place, 0o755)
        os.chown(place, uid, uid)
        assert "alone; give --socket" in says()
        os.rmdir(place)
        os.symlink(directory, place)
        assert "alone; give --socket" in says()
    finally:
        (os.unlink if os.path.islink(place) else os.rmdir)(place)


def test_socket_in_the_directory_of_a_claim(directory):
    """Containers with the same claim on GPUs have a directory in common: daemon and clients meet there, and a client
    looks elsewhere where nobody listens in it."""
    needs("gpubufctl")
    env = {key: value for key, value in os.environ.items() if key != "GPUBUFD_SOCKET"}
    shared, own = f"{directory}/claim", f"{directory}/own"
    os.mkdir(shared)
    os.mkdir(own)
    env.update(NVIDIA_DRA_LOCAL_IPC_DIR=shared, XDG_RUNTIME_DIR=own, TMPDIR=directory)
    control = str(GPUBUFD.parent / "gpubufctl")
    with running(env=env) as process:
        subprocess.run([control, "ping", "--wait", f"{DEADLINE}s"], env=env, check=True, timeout=2 * DEADLINE)
        assert stat.S_ISSOCK(os.stat(f"{shared}/gpubufd.sock").st_mode)
        doctor = subprocess.run([control, "doctor"], env=env, capture_output=True, text=True, check=False)
        assert f"{shared}/gpubufd.sock (in $NVIDIA_DRA_LOCAL_IPC_DIR): pid {process.pid}" in doctor.stdout
    done = subprocess.run([control, "ping"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and shared not in done.stderr, done.stderr


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("--socket", "--device", "--config", "--log-level", "--probe", "Usage"):
        assert word in done.stdout
    done = run("--version")
    version = re.search(r'#define GPUBUF_VERSION "(.*)"', (ROOT / "include" / "gpubuf.h").read_text())[1]
    assert done.returncode == 0 and done.stdout == f"gpubufd {version}\n"


@pytest.mark.parametrize("program", ["gpubufd", "gpubufd-gateway", "gpubufd-peer"])
def test_help_is_no_wider_than_a_screen(program):
    needs(program)
    done = subprocess.run([BUILD / "bin" / program, "--help"], capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_probe():
    done = run("--probe", "--device", "host:64M")
    assert done.returncode == 0, done.stderr
    devices = json.loads(done.stdout)["devices"]
    assert devices[0]["id"] == "host" and devices[0]["capacity"] == 64 << 20


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
# RELIABILITY.md: The daemon ends 27
def test_signals_stop_cleanly(daemon, name):
    """Sessions are told, and end; the socket goes; nothing leaks; status 0."""
    peer = daemon.connect()
    peer.put("a", b"a" * 100)
    peer.open_object("a")
    peer.create("unsealed", {"kind": "bytes", "bytes": 10})
    peer.call("watch")
    peer.events(2)
    peer.request("open", name="never", wait_ms=60000)
    peer.wait_until_read()
    daemon.connect().send_raw(b'{"half')
    daemon.process.send_signal(getattr(signal, name))
    told = [m for m in peer.expect_closed() if m.get("method") == "shutdown"]
    assert len(told) == 1
    params = told[0]["params"]
    assert isinstance(params["reason"], str) and params["resume"] is False
    assert daemon.process.wait(DEADLINE) == 0
    assert not os.path.exists(daemon.path)
    assert not SANITIZER.search(daemon.stderr())


def test_logs_are_structured(daemon_factory):
    daemon = daemon_factory("--log-format", "json")
    daemon.connect().call("stats")
    for line in daemon.stderr().strip().split("\n"):
        assert isinstance(json.loads(line), dict), line
