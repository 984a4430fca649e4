"""A real etcd, a proxy before it that can be cut, and nodes of a cluster: tests/peer/directory."""

import base64
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest

from device import BUILD

ETCD = shutil.which("etcd")
DIRECTORY = BUILD / "tests" / "peer" / "directory"
UNAVAILABLE = -32011
PATIENCE = 90  # of a condition, on a machine that is busy
_count = itertools.count(1)


def fresh_address():
    """One of the loopback's that nobody else has, so that ports need no choosing."""
    return f"127.{os.getpid() >> 16 & 127 | 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", 20000 + next(_count) * 2


class Etcd:
    """A server of one member. Its data are in memory: what is tested is no disk. `options` may name its url; `inside`:
    what its command begins with, where this process does not reach `place`, its address and port."""

    def __init__(self, *options, scheme="http", ca=None, inside=(), place=None):
        self.address, self.port = place or fresh_address()
        self.inside = inside
        self.scheme = scheme
        self.url = f"{scheme}://{self.address}:{self.port}"
        self.data = tempfile.mkdtemp(prefix="gpubufd-etcd-", dir="/dev/shm")
        self.options = options
        self.ca = ca
        self.process = None
        self.start()

    def start(self):
        peers = f"http://{self.address}:{self.port + 1}"
        self.log = open(os.path.join(self.data, "log"), "ab")
        self.process = subprocess.Popen(
            [*self.inside, ETCD, "--data-dir", os.path.join(self.data, "d"), "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peers,
             "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
             *(option.replace("{url}", self.url) for option in self.options)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if self.scheme == "http" and not self.inside:
            end = time.monotonic() + PATIENCE
            while not self.answers():
                assert self.process.poll() is None, pathlib.Path(self.data, "log").read_text()[-2000:]
                assert time.monotonic() < end, "etcd does not answer"
                time.sleep(0.02)

    def answers(self):
        try:
            self.post("kv/range", {"key": "AA=="})
        except OSError:
            return False
        return True

    def put(self, key, value):
        self.post("kv/put", {"key": base64.b64encode(key.encode()).decode(),
                             "value": base64.b64encode(json.dumps(value).encode()).decode()})

    def post(self, method, body):
        request = urllib.request.Request(f"{self.url}/v3/{method}", json.dumps(body).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)

    def keys(self):
        """All keys in etcd."""
        kvs = self.post("kv/range", {"key": "AA==", "range_end": "AA==", "keys_only": True}).get("kvs", [])
        return [base64.b64decode(kv["key"]).decode() for kv in kvs]

    def end_lease(self, node):
        """As when its time is over."""
        key = base64.b64encode(f"/gpubufd/nodes/{node}".encode()).decode()
        self.post("lease/revoke", {"ID": self.post("kv/range", {"key": key})["kvs"][0]["lease"]})

    def revision(self):
        return int(self.post("kv/range", {"key": "AA=="})["header"]["revision"])

    def compact(self):
        self.post("kv/compaction", {"revision": str(self.revision()), "physical": True})

    def signal(self, number):
        """Where it stops, every thread of it has stopped afterwards."""
        self.process.send_signal(number)
        end = time.monotonic() + PATIENCE
        while number == signal.SIGSTOP and set(self.states()) != {"T"}:
            assert time.monotonic() < end, "etcd does not stop"
            time.sleep(0.001)

    def states(self):
        for path in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            yield path.read_text().rpartition(")")[2].split()[0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wipe(self):
        """As a new one, whatever a test has left of it; revisions go on."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.start()
        for lease in self.post("lease/leases", {}).get("leases", []):
            self.post("lease/revoke", lease)
        self.post("kv/deleterange", {"key": "AA==", "range_end": "AA=="})

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)


@pytest.fixture(scope="module")
def etcd_of_file():
    one = Etcd()
    yield one
    one.close()


@pytest.fixture
def etcd(etcd_of_file):
    """One with nothing in it."""
    etcd_of_file.wipe()
    return etcd_of_file


class Node:
    """A process with a directory in etcd: what it tells is kept as it came."""

    def __init__(self, name, *urls, ttl=60, port=7000, timeout_ms=10000, options=()):
        self.name = name
        argv = [str(DIRECTORY), "--node", name, "--ttl", str(ttl), "--port", str(port),
                "--timeout", str(timeout_ms)]
        for url in urls:
            argv += ["--etcd", url]
        self.process = subprocess.Popen(argv + list(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.told = []
        self.ended = False
        self.news = threading.Condition()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                self.told.append(json.loads(line))
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def send(self, *lines):
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()

    def count(self):
        with self.news:
            return len(self.told)

    def wait(self, since=0, many=1, **members):
        """The next `many` tellings, from the since-th on, that have these members (a list if several)."""
        end, found = time.monotonic() + PATIENCE, []
        with self.news:
            while True:
                found += [one for one in self.told[since:]
                          if all(one.get(key, KeyError) == value for key, value in members.items())]
                since = len(self.told)
                if len(found) >= many:
                    return found[0] if many == 1 else found[:many]
                assert not self.ended, f"{self.name} ended: {self.process.stderr.read()}"
                assert time.monotonic() < end, f"{self.name}: no {members} in {self.told[-20:]}"
                self.news.wait(end - time.monotonic())

    def ask(self, line, many=1, **members):
        since = self.count()
        self.send(line)
        return self.wait(since, many=many, **members)

    def joined(self, since=0):
        self.wait(since, event="state", why=None)
        return self

    def _ask_again(self, line, once, **members):
        """Asks until etcd has answered, unless `once`: on a busy machine it may answer too late."""
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(line, **members)
            if once or answer["status"] != UNAVAILABLE or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def publish(self, name, version=1, size=10, seen=0, once=False):
        return self._ask_again(f"publish {name} {version} {size} {seen}", once, event="published", name=name)

    def find(self, name, once=False):
        return self._ask_again(f"find {name}", once, event="found", name=name)

    def list(self, prefix=""):
        answer = self.ask(f"list {prefix}".rstrip(), event="listed", last=True)
        return answer["names"] if answer["status"] == 0 else answer

    def close(self):
        """In good order; what a sanitizer finds comes to light."""
        if self.process.poll() is None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self.process.stdin.close()
            try:
                status = self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            assert status == 0, self.process.stderr.read()
        self.thread.join()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
