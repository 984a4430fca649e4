"""Lines that try-hardening applies do withhold what they say: else it would find that everything works."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import confine  # noqa: E402

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def load():
    loader = importlib.machinery.SourceFileLoader("try_hardening", str(HERE / "try-hardening"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


try_hardening = load()

try:
    NUMBERS = confine.read_numbers()
except confine.Cannot as cannot:
    pytest.skip(str(cannot), allow_module_level=True)


def probe(directory, lines, code):
    """Output of Python code under the lines; "EPERM" and the like for an OSError."""
    ours, theirs = socket.socketpair()
    code = (f"import ctypes, errno, mmap, os, socket\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            f"def call(*a):\n if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), '')\n"
            f"try:\n {code}\nexcept OSError as e: print(errno.errorcode[e.errno])")
    spec = {"channel": theirs.fileno(), "place": str(directory), "uid": 65534, "lines": lines,
            "argv": ["/usr/bin/python3", "-c", code], "numbers": NUMBERS, "notify": False}
    with ours, theirs:
        done = subprocess.run([sys.executable, HERE / "try-hardening", "--become", json.dumps(spec)],
                              pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=60,
                              check=False)
        ours.setblocking(False)
        try:
            told = json.loads(ours.recv(1 << 20))
        except BlockingIOError:
            told = {}
    if "cannot" in told:
        pytest.skip(f"cannot be applied here: {told['cannot']}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SET = "@system-service\n~@privileged @resources"

# (line, code, what it prints with the line, what without it)
PROBES = [
    ("NoNewPrivileges", "yes",
     "print([l for l in open('/proc/self/status') if 'NoNewPrivs' in l][0][-2])", "1", "0"),
    ("RestrictAddressFamilies", "AF_UNIX", "print(socket.socket(socket.AF_INET) and 'ok')",
     "EAFNOSUPPORT", "ok"),
    ("RestrictAddressFamilies", "AF_UNIX", "print(socket.socket(socket.AF_UNIX) and 'ok')", "ok", "ok"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET", "print(socket.socket(socket.AF_INET) and 'ok')",
     "ok", "ok"),
    ("MemoryDenyWriteExecute", "yes", "print(mmap.mmap(-1, 4096, prot=6) and 'ok')", "EPERM", "ok"),
    ("MemoryDenyWriteExecute", "yes", "print(mmap.mmap(-1, 4096, prot=3) and 'ok')", "ok", "ok"),
    # One that nobody sets; who runs the tests may have set another.
    ("LockPersonality", "yes", f"call({NUMBERS['personality']}, 0x4000000); print('ok')", "EPERM", "ok"),
    ("RestrictRealtime", "yes", "os.sched_setscheduler(0, 1, os.sched_param(1)); print('ok')",
     "EPERM", None),
    ("RestrictRealtime", "yes", "os.sched_setscheduler(0, 3, os.sched_param(0)); print('ok')",
     "ok", "ok"),
    ("RestrictSUIDSGID", "yes", "os.chmod('file', 0o4755); print('ok')", "EPERM", "ok"),
    ("RestrictSUIDSGID", "yes", "os.chmod('file', 0o755); print('ok')", "ok", "ok"),
    ("RestrictNamespaces", "yes", f"call({NUMBERS['unshare']}, 0x20000); print('ok')", "EPERM", None),
    ("SystemCallFilter", SET, f"call({NUMBERS['mount']}, 0, 0, 0, 0, 0)", "EPERM", "EFAULT"),
    ("SystemCallFilter", SET, f"call({NUMBERS['setpriority']}, 0, 0, 5); print('ok')", "EPERM", "ok"),
    ("SystemCallFilter", SET, f"call({NUMBERS['getpid']}); print('ok')", "ok", "ok"),
    ("ProtectKernelLogs", "yes", f"call({NUMBERS['syslog']}, 99, 0, 0)", "EPERM", None),
    ("LimitCORE", "0", "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))", "(0, 0)",
     None),
    ("UMask", "0077", "print(oct(os.umask(0)))", "0o77", None),
]

AS_ROOT = [
    ("User", "nobody", "print(os.getresuid(), os.getgroups())", "(65534, 65534, 65534) []", None),
    ("CapabilityBoundingSet", "",
     "print([l for l in open('/proc/self/status') if 'CapBnd' in l][0].split()[1].strip('0'))", "",
     None),
    ("ProtectSystem", "strict", "open('/usr/.gpubufd-probe', 'w')", "EROFS", None),
    ("ProtectSystem", "strict", "open('file', 'w'); print('ok')", "ok", "ok"),
    ("ProtectHome", "yes", "print(os.listdir('/root'))", "[]", None),
    ("PrivateTmp", "yes", "print(os.listdir('/tmp'))", "[]", None),
    ("PrivateNetwork", "yes", "print(len(open('/proc/net/dev').readlines()))", "3", None),
    ("ProtectKernelTunables", "yes", "open('/proc/sys/kernel/hostname', 'w')", "EROFS", None),
    ("ProtectHostname", "yes", "socket.sethostname('x')", "EPERM", None),
    ("ProcSubset", "pid", "print(os.path.exists('/proc/devices'))", "False", "True"),
    ("PrivateDevices", "yes", "open('/dev/kmsg'); print('ok')", "EACCES", None),
    ("DeviceAllow", "char-nvidia rw", "open('/dev/kmsg'); print('ok')", "EACCES", None),
    ("DeviceAllow", "char-mem rw", "open('/dev/kmsg'); print('ok')", "ok", None),
    ("DeviceAllow", "char-nvidia rw", "open('/dev/null', 'r+b'); print('ok')", "ok", "ok"),
]


@pytest.mark.parametrize("key,value,code,expected,without",
                         PROBES + [pytest.param(*one, marks=root) for one in AS_ROOT])
def test_it_withholds(key, value, code, expected, without):
    place = pathlib.Path("/run" if os.access("/run", os.W_OK) else "/var/tmp")
    place = place / f"gpubufd-probe-{os.getpid()}"
    place.mkdir()
    code = code.replace("'file'", f"'{place}/file'")
    try:
        (place / "file").touch()
        assert probe(place, [(key, value)], code) == expected
        if without is not None:
            assert probe(place, [], code) == without
    finally:
        shutil.rmtree(place)


def test_the_unit_is_understood():
    """Every line of it is either tried, or known to withhold nothing."""
    lines = try_hardening.read_unit(HERE.parents[1] / "systemd" / "gpubufd.service.in")
    assert len(lines) > 25
    assert dict(lines)["RestrictAddressFamilies"] == "AF_UNIX"
    assert dict(lines)["SystemCallFilter"] == "@system-service\n~@privileged @resources"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", confine.read_sets())
def test_the_sets_are_systemds(name):
    """Another version may know more calls; those that are here are the ones it has."""

    def resolve(one):
        text = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", one],
                              capture_output=True, text=True, check=True).stdout
        for word in re.findall(r"^    ([@\w-]+)$", text, re.M):
            yield from resolve(word) if word.startswith("@") else [word]

    theirs = set(resolve(name)) & set(NUMBERS)
    assert confine.read_sets()[name] & set(NUMBERS) <= theirs
    assert theirs - confine.read_sets()[name] == set() or "252" not in subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout


def test_what_breaks_is_told(tmp_path):
    """A line that the daemon cannot live with, among one that it can."""
    build = pathlib.Path(os.environ.get("GPUBUF_BUILD", HERE.parents[1] / "build")).resolve()
    unit = tmp_path / "unit"
    unit.write_text("[Service]\nExecStart=x\nUMask=0077\nRestrictAddressFamilies=AF_INET\n[Install]\nA=b\n")
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # which wants to trace
    done = subprocess.run([HERE / "try-hardening", "--build", build, "--unit", unit, "--out",
                           tmp_path / "out", "--device", "host:64M"], capture_output=True, text=True,
                          timeout=120, check=False, env={**os.environ, "ASAN_OPTIONS": options})
    assert done.returncode == 1, done.stdout + done.stderr
    told = {one["key"]: one for one in json.loads((tmp_path / "out").read_text())["results"]}
    assert told["UMask"]["verdict"] == "works"
    broken = told["RestrictAddressFamilies"]
    assert broken["verdict"] == "BREAKS" and "cannot make a socket" in broken["why"], broken
    assert broken["refused"].get("socket", 1) >= 1
    assert "1 work, 1 break" in done.stdout
