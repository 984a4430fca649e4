"""Fixtures: a daemon on a socket of its own for each test, watched for leaks when it ends.

GPUBUF_BUILD names the build directory (default: build/ in the repository's root), so that the same
tests run against a plain build and against one with sanitizers. GPUBUF_TEST_DEVICE=cuda runs them on
a GPU that is not there: device.py.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import device as test_device  # noqa: E402
from certificates import Authority  # noqa: E402
from child import Child  # noqa: E402
from cluster import cluster  # noqa: E402, F401
from device import BUILD, ROOT  # noqa: E402, F401
from etcds import etcd, etcd_of_file  # noqa: E402, F401
from peer import DEADLINE, Closed, Peer, wait_until  # noqa: E402
from program import SANITIZER, Program  # noqa: E402

GPUBUFD = BUILD / "bin" / "gpubufd"
GATEWAY = BUILD / "bin" / "gpubufd-gateway"

# Files that are about one of the two alone.
collect_ignore_glob = [] if test_device.ON_GPU else ["test_cuda_*.py"]


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs root, to speak as other users")
    config.addinivalue_line("markers", "host_only(reason): not on a GPU, and why")
    config.addinivalue_line("markers", "on_gpus: runs on GPUs, too, where the others of its file do not")
    config.addinivalue_line("markers", "hunt: searches; in `make hunt` and not in `make test`")
    config.addinivalue_line("markers", "programs: random programs, as many as GPUBUF_TEST_PROGRAMS; in both")


def pytest_make_parametrize_id(val):
    """Short ids for long values, or reports cannot be read."""
    if isinstance(val, (str, bytes)) and len(val) > 40:
        return ascii(val)[:40]
    return None


def pytest_collection_modifyitems(config, items):
    if test_device.ON_GPU:
        chosen = {item.path for item in items if item.get_closest_marker("on_gpus")}
        left = [item for item in items if item.path in chosen and not item.get_closest_marker("on_gpus")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))
        host_only = item.get_closest_marker("host_only")
        if test_device.ON_GPU and host_only:
            item.add_marker(pytest.mark.skip(reason=host_only.args[0]))
        if not test_device.ON_GPU and item.path.name.startswith("test_cuda_"):  # named, or not here
            item.add_marker(pytest.mark.skip(reason="needs GPUBUF_TEST_DEVICE=cuda or hip"))


def needs(program):
    """A client's, which `make core` does not build."""
    if not (BUILD / "bin" / program).exists():
        pytest.skip(f"{program} is not built")


def skip_without_root():
    """Nobody else becomes another user. A test that begins with it is marked `root`."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def runs_as(user, program, directory):
    """A copy of a program where that user may run it, since the checkout may lie where he may not go."""
    os.chmod(directory, os.stat(directory).st_mode | 0o711)
    place = os.path.join(directory, f"as-{user}")
    for folder in ("bin", "lib"):
        os.makedirs(os.path.join(place, folder), exist_ok=True)
    for library in (BUILD / "lib").glob("libgpubuf.so.?"):
        shutil.copy(library, os.path.join(place, "lib"))
    for folder in ("", "bin", "lib"):  # whatever the umask is
        os.chmod(os.path.join(place, folder), 0o755)
    copy = shutil.copy(program, os.path.join(place, "bin"))
    os.chmod(copy, 0o755)
    return copy


class Daemon(Program):
    """A running gpubufd."""

    def __init__(self, directory, options=(), device=test_device.OPTION, socket_path=None, env=None,
                 program=GPUBUFD, **popen):
        """`device`: one, several, or None. `env`: settings of the driver."""
        self.directory = directory
        self.tiers = "--tier" in options
        self.path = socket_path or os.path.join(directory, "s")
        self.stderr_path = os.path.join(directory, "stderr")
        self.peers = []
        if "user" in popen:
            program = runs_as(popen["user"], program, directory)
        argv = [str(program), "--socket", self.path, "--log-level", "debug"]
        for one in [device] if isinstance(device, str) else device or ():
            argv += ["--device", one]
        with open(self.stderr_path, "ab") as stderr:
            self.process = subprocess.Popen(
                argv + list(options), stdin=subprocess.DEVNULL, stderr=stderr,
                env=test_device.environment(**(env or {})), **popen
            )
        try:
            self._wait_for_listening()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.baseline = self._baseline()

    def _wait_for_listening(self):
        """Whoever was killed at this path may listen a moment longer than there is a process."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                with contextlib.closing(Peer(self.path)) as peer:
                    listener, _, _ = peer.credentials()
                if os.path.exists(f"/proc/{listener}"):
                    return
                raise ConnectionRefusedError("the listener is dead")
            except OSError:
                if self.process.poll() is not None:
                    raise AssertionError(
                        f"gpubufd ended with {self.process.returncode}: {self.stderr()}"
                    ) from None
                if time.monotonic() > end:
                    raise AssertionError(f"gpubufd does not listen: {self.stderr()}") from None
                time.sleep(0.005)

    @property
    def pid(self):
        return self.process.pid

    def connect(self, **options):
        """A new session; closed with the daemon at the latest."""
        peer = Peer(self.path, **options)
        self.peers.append(peer)
        return peer

    def connect_as(self, uid, gid, groups=()):
        """A session of another user: the kernel notes who connects when it connects."""
        skip_without_root()
        before = os.getgroups()
        os.setgroups(list(groups))
        os.setegid(gid)
        os.seteuid(uid)
        try:
            return self.connect()
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)

    def fds(self):
        """Numbers of the daemon's descriptors: of memory, contexts, sockets, and others."""
        count = {"memory": 0, "context": 0, "socket": 0, "other": 0}
        directory = f"/proc/{self.pid}/fd"
        for entry in os.listdir(directory):
            try:
                target = os.readlink(f"{directory}/{entry}")
            except FileNotFoundError:
                continue
            kind = "other"
            if target.startswith("/memfd:") or re.search(r"/[vl]-\d+-\d+-[0-9a-f]{16}", target):
                kind = "memory"
            elif re.search(r"/c-\d+-\d+-[0-9a-f]{16}", target):
                kind = "context"
            elif target.startswith("socket:"):
                kind = "socket"
            count[kind] += 1
        return count

    def comes_to(self, condition):
        """Whether condition(fds) holds before long: what peers have sent is closed by other processes."""
        end = time.monotonic() + DEADLINE
        while not condition(self.fds()):
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def settled_fds(self):
        """fds() with one session, when those before it have ended: their ends are seen a little later."""
        end = time.monotonic() + DEADLINE
        while (fds := self.fds())["socket"] != self.baseline["socket"] and time.monotonic() < end:
            time.sleep(0.005)
        return fds  # and no later ones: the present session may not have been accepted yet

    def _baseline(self):
        with Peer(self.path) as peer:
            peer.call("stats")
            return self.fds()

    def close_peers(self):
        for peer in self.peers:
            peer.close()
        self.peers.clear()

    def check_no_leaks(self):
        """Ends every session, deletes every object, trims: all must be as at the start."""
        self.close_peers()
        with self._served_again() as peer:
            peer.delete(peer.names())
            assert peer.names() == []
            leases = peer.call("leases")
            assert leases["leases"] == [] and leases["mapped"] == [], leases
            peer.wait_for_stats(lambda _: self._is_empty_after_trim(peer))
            assert [d["used"] for d in peer.call("stats")["devices"] if d["used"]] == []
            self._wait_for_descriptors()

    @staticmethod
    def _is_empty_after_trim(peer):
        """A segment that a mover still works on is empty only afterwards, so this is asked again."""
        peer.call("trim")
        return all(d["segments"] == 0 for d in peer.call("stats")["devices"])

    def _served_again(self):
        """A session. While those of a flood end, their user has no room for one more."""
        end = time.monotonic() + DEADLINE
        while True:
            peer = Peer(self.path)
            try:
                peer.call("stats")
                return peer
            except (Closed, OSError):
                peer.close()
                if time.monotonic() > end:
                    raise

    def _wait_for_descriptors(self):
        """Other processes close the descriptors that peers sent, and a tier's
        files are removed one after the other, each of them open for a moment. Fewer than at the
        start are left if a client, a gateway for example, was there before it was counted."""
        end = time.monotonic() + DEADLINE
        while any((left := self._left())[kind] > count for kind, count in self.baseline.items()):
            assert time.monotonic() < end, (left, self.baseline)
            time.sleep(0.005)

    def _left(self):
        left = self.fds()
        if self.tiers:  # what copies keeps its context
            left["context"] = self.baseline["context"]
        return left

    def stop(self, status=0):
        """The same, and expects no socket left."""
        try:
            got = super().stop(status)
        finally:
            self.close_peers()
        assert not os.path.exists(self.path), "the socket is still there"
        return got

    def kill(self):
        super().kill()
        self.close_peers()


class Gateway(Program):
    """A running gpubufd-gateway, connected to its daemon; its first port is `port`. `haste` divides its
    deadlines; those of a test that is not about them are long enough for a busy machine."""

    def __init__(self, directory, socket_path, options, wait=True, haste=0.1, **popen):
        env = {**os.environ, "GPUBUFD_GATEWAY_HASTE": str(haste)}
        # NNG's listener that has died gives not all back; and TSan does not see how NNG counts who has a message.
        for name, kind in (("LSAN_OPTIONS", "leak"), ("TSAN_OPTIONS", "race")):
            suppressions = os.path.join(directory, kind)
            with open(suppressions, "w") as file:
                file.write(f"{kind}:libnng.so\n")
            env[name] = f"{env.get(name, '')}:suppressions={suppressions}:print_suppressions=0"
        handle, self.stderr_path = tempfile.mkstemp(prefix="gateway-", dir=directory)
        program = runs_as(popen["user"], GATEWAY, directory) if "user" in popen else GATEWAY
        with open(handle, "wb") as stderr:
            self.process = subprocess.Popen(
                [program, "--socket", socket_path, *map(str, options)],
                stdin=subprocess.DEVNULL, stderr=stderr, env=env, **popen,
            )
        self.port = None
        try:
            if "--http" in options:
                self.wait_for("serving http.*\n", options.count("--http"))
                found = re.search(r"serving http.*http://[^ ]*:(\d+)/", self.stderr())
                self.port = found and int(found.group(1))
            if wait:
                self.wait_for("connected instance=")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """That of a cluster's certificates."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def gateway(daemon_factory):
    """gateway(daemon, "--http", "127.0.0.1:0"): one beside a daemon. It ends before its daemon, whose sessions
    it has."""
    gateways = []
    needs("gpubufd-gateway")

    def start(daemon, *options, **more):
        gateways.append(Gateway(daemon.directory, daemon.path, options, **more))
        return gateways[-1]

    yield start
    try:
        for one in gateways:
            if one.process.returncode is None:
                one.stop()
    finally:
        for one in gateways:
            one.kill()


@pytest.fixture
def directory():
    """A short path of one's own that every user may enter."""
    path = tempfile.mkdtemp(prefix="gpubuf-")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def place(directory):
    """A directory for a disk tier, empty."""
    path = os.path.join(directory, "tier")
    os.mkdir(path)
    return path


def _finish(daemon, failed):
    """Ends a test's daemon: with every check after a test that passed, else telling its last words."""
    if failed or daemon.process.poll() is not None:
        daemon.process.terminate()
        try:
            daemon.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pass
        daemon.kill()
        text = daemon.stderr()
        assert not SANITIZER.search(text), text[-6000:]
        print(f"--- gpubufd {daemon.pid} ended with {daemon.process.returncode} ---\n{text[-6000:]}")
        return
    try:
        daemon.check_no_leaks()
        daemon.stop()
    finally:
        daemon.kill()


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed_call = report.failed
        if report.failed:
            item.parent.any_failed = True


@pytest.fixture
def daemon_factory(directory, request):
    """start(*options, device=…): daemons with options of their own; one socket each."""
    daemons = []

    def start(*options, **settings):
        place = tempfile.mkdtemp(dir=directory)
        os.chmod(place, 0o755)
        daemon = Daemon(place, options, **settings)
        daemons.append(daemon)
        return daemon

    yield start
    failed = getattr(request.node, "failed_call", True)
    problems = []
    for daemon in daemons:
        try:
            _finish(daemon, failed)
        except AssertionError as error:
            problems.append(error)
    if test_device.ON_GPU and not failed and not problems:
        for ordinal in (0, 1):
            # The closers of a daemon that was killed share its descriptors, and end just after it.
            wait_until(lambda ordinal=ordinal: test_device.gpu().used(ordinal) == 0)
    if problems:
        raise problems[0]


@pytest.fixture
def daemon(daemon_factory):
    """A daemon with 64 MiB of host memory, or of a GPU."""
    return daemon_factory()


@pytest.fixture
def peer(daemon):
    return daemon.connect()


@pytest.fixture(scope="session")
def gpu():
    """A process that uses the same GPUs by the driver itself (device.py)."""
    return test_device.gpu()


@pytest.fixture
def another_gpu():
    """Another such process, ended after the test."""
    one = test_device.Gpu()
    yield one
    one.end()


@pytest.fixture(scope="module")
def shared_daemon(request):
    """One daemon for a whole file of small cases that do not disturb each other."""
    path = tempfile.mkdtemp(prefix="gpubuf-")
    os.chmod(path, 0o755)
    daemon = Daemon(path, ["--tier", f"disk:64M:{path}"])
    yield daemon
    try:
        _finish(daemon, getattr(request.node, "any_failed", False))
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def ctl(shared_daemon, tmp_path):
    """gpubufctl on the file's daemon; the names that are left are removed after the test."""
    from ctl import Ctl  # not above: ctl.py imports this file

    one = Ctl(shared_daemon.path, str(tmp_path))
    yield one
    with Peer(shared_daemon.path) as peer:
        peer.delete(peer.names())


@pytest.fixture
def shared_peer(shared_daemon):
    """A session on the file's daemon, ended after the test."""
    with Peer(shared_daemon.path) as peer:
        yield peer


# ---- other processes ---------------------------------------------------------------------------


@pytest.fixture
def child(daemon_factory):
    """child(daemon, work, uid=…, gid=…, groups=…): starts a Child; killed after the test."""
    children = []

    def start(daemon, work, **who):
        if who.get("uid") is not None:
            skip_without_root()
        one = Child(daemon.path, work, **who)
        children.append(one)
        return one

    yield start
    for one in children:
        one.kill()


@pytest.fixture
def as_user(child):
    """as_user(daemon, uid, gid, work): what work(peer) returns when run as that user."""

    def run(daemon, uid, gid, work, groups=()):
        one = child(daemon, work, uid=uid, gid=gid, groups=groups)
        one.kill()
        return one.result

    return run
