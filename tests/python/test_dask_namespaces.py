"""gpubufd.dask on machines with a network each: a scheduler on the first, and on each a worker, a daemon and a peer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import namespaces
import pytest
from certificates import Authority
from cluster import PeerProcess
from conftest import PACKAGE, ROOT, Daemon
from test_dask import DEADLINE, in_time, wait_for  # noqa: F401  skips this file, too

import gpubufd

REFUSAL = namespaces.refusal()
pytestmark = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "never")

# The kernel of a machine that answers nothing for so long is gone; a busy process is not.
QUICK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s", "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}

# A program on a machine: it executes what it is sent, and answers with `said` or with the exception.
PROGRAM = """
import json, sys
import numpy as np, dask.array as da, distributed
import gpubufd, gpubufd.dask as gd
OPEN = {"scope": "cluster", "mode": 0o644}
for line in sys.stdin:
    said = None
    try:
        exec(json.loads(line))
        answer = {"said": said}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
"""
# A task that is known still stays where it was sent, be that worker dead.
NOTHING = "parts = array = before = None\nfor published in gd.list(): gd.delete(published.name)"
CONNECT = f"client = distributed.Client('tcp://10.77.0.1:8786', timeout={DEADLINE})"


def start_peer(network, number, daemon, authority):
    """A peer in the network of machine `number` of three."""
    others = [f"--peer=n{other}={network.address(other)}:9470" for other in (1, 2, 3) if other != number]
    return PeerProcess(
        daemon.directory, daemon, authority.certificate, authority.sign(f"n{number}"), others, network, number)


class Program:
    def __init__(self, machines, number):
        self.log = open(os.path.join(machines.directory, f"program{number}.log"), "ab")
        self.process = subprocess.Popen(
            [*machines.network.inside(number), sys.executable, "-W", "ignore", "-c", PROGRAM], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=machines.environment(number))

    def ask(self, code):
        """The program's answer: {"said"}, or {"error"} with its exception."""
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, open(self.log.name, errors="replace").read()[-4000:]
        return json.loads(answer)

    def __call__(self, code):
        answer = self.ask(code)
        assert "error" not in answer, answer["error"]
        return answer["said"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE)
        self.process.stdout.close()
        self.log.close()


class Machines:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="gpubuf-dask-")
        os.chmod(self.directory, 0o755)
        self.network = namespaces.Network(3)
        self.daemons, self.peers, self.workers, self.programs, self.scheduler = {}, {}, {}, [], None

    def start_peers(self, authority):
        for number in (1, 2, 3):
            directory = os.path.join(self.directory, str(number))
            os.mkdir(directory)
            self.daemons[number] = Daemon(directory, device="host:256M")
            self.peers[number] = start_peer(self.network, number, self.daemons[number], authority)

    def environment(self, number):
        path = [str(PACKAGE), str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH")]
        return dict(os.environ, **QUICK, GPUBUFD_SOCKET=self.daemons[number].path,
                    PYTHONPATH=os.pathsep.join(filter(None, path)))

    def start(self, number, module, *words):
        with open(os.path.join(self.directory, f"{module}{number}.log"), "ab") as log:
            return subprocess.Popen(
                [*self.network.inside(number), sys.executable, "-W", "ignore", "-m", f"distributed.cli.{module}",
                 *words, "--host", self.network.address(number), "--no-dashboard"],
                env=self.environment(number), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_worker(self, number):
        self.workers[number] = self.start(
            number, "dask_worker", f"tcp://{self.network.address(1)}:8786", "--no-nanny", "--nthreads", "1",
            "--name", f"m{number}", "--local-directory", self.directory)

    def begin(self):
        """The program on the first machine, which knows the scheduler and three workers; nothing is published."""
        if not self.scheduler:
            self.scheduler = self.start(1, "dask_scheduler", "--port", "8786")
            self.program(1)(CONNECT)  # once the scheduler is there
        for number in (1, 2, 3):
            if number not in self.workers or self.workers[number].poll() is not None:
                self.start_worker(number)
        self.wait_workers(self.programs[0], 1, 2, 3)
        self.programs[0](NOTHING)
        return self.programs[0]

    def wait_workers(self, program, *numbers):
        expected = [f"m{number}" for number in numbers]
        known = "said = sorted(one['name'] for one in client.scheduler_info()['workers'].values())"
        wait_for(lambda: program(known) == expected, self.logs)

    def program(self, number):
        self.programs.append(Program(self, number))
        return self.programs[-1]

    def part(self, number):
        for other in {1, 2, 3} - {number}:
            self.network.pull(*sorted((number, other)))

    def join(self, number):
        for other in {1, 2, 3} - {number}:
            self.network.plug(*sorted((number, other)))

    def objects(self, number):
        with gpubufd.connect(self.daemons[number].path) as client:
            return [info.name for info in client.list()]

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.directory)):
            if name.endswith(".log"):
                with open(os.path.join(self.directory, name), errors="replace") as file:
                    texts.append(f"{name}: {file.read()[-1500:]}")
        return "\n".join(texts)

    def end(self):
        for program in self.programs:
            program.end()
        for peer in self.peers.values():
            if peer.process.returncode is None:
                peer.stop()

    def kill(self):
        ours = [*self.workers.values(), self.scheduler, *(program.process for program in self.programs)]
        for process in filter(None, ours):
            process.kill()
            process.wait()
        for one in (*self.peers.values(), *self.daemons.values()):
            one.kill()
        self.network.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    one = Machines()
    try:
        one.start_peers(Authority(tmp_path_factory.mktemp("authority")))
        yield one
        one.end()
    finally:
        one.kill()


SPREAD = """
where = {one["name"]: address for address, one in client.scheduler_info()["workers"].items()}
array = da.arange(6, chunks=2)
parts = [client.persist(part, workers=[where[name]], allow_other_workers=False)
         for name, part in zip(("m1", "m2", "m3"), array.to_delayed())]
array = da.concatenate([da.from_delayed(part, (2,), array.dtype) for part in parts])
"""
LOADED = "said = gd.load('x').compute().tolist()"
WHOLE = [0, 1, 2, 3, 4, 5]


def parts_of(machines, number):
    return [name for name in machines.objects(number) if name.startswith("x/") and name[-5:].isdigit()]


def test_published_on_one_and_read_on_the_others(machines):
    one = machines.begin()
    one(SPREAD + "gd.publish(array, 'x', **OPEN)")
    assert [len(parts_of(machines, number)) for number in (1, 2, 3)] == [1, 1, 1]
    assert one(LOADED) == WHOLE
    for number in (2, 3):  # a program without the cluster: the peers bring the rest
        other = machines.program(number)
        assert other("said = gd.load('x').compute(scheduler='threads').tolist()") == WHOLE
        assert len(parts_of(machines, number)) == 3
        assert machines.program(number)(CONNECT + "; said = gd.load('x').sum().compute().item()") == 15


def test_a_machine_is_parted_from_the_others(machines):
    one = machines.begin()
    one(SPREAD + "gd.publish(array, 'x', **OPEN); gd.publish(array, 'twice', replicas=2, **OPEN)")
    machines.part(2)
    machines.wait_workers(one, 1, 3)
    assert one("said = gd.load('twice').compute().tolist()") == WHOLE, "each partition is elsewhere, too"
    assert one("said = [published.unreachable for published in gd.list()]") == [0, 1]  # twice, x
    failed = one.ask(LOADED)["error"]
    assert failed.startswith("NotFound: partition 1 of 'x'"), failed
    assert machines.program(2)("with gpubufd.connect() as c: said = len(c.list('x/'))") > 0, "local work goes on"

    machines.join(2)
    machines.workers[2].send_signal(signal.SIGKILL)
    machines.workers[2].wait(DEADLINE)
    machines.start_worker(2)
    machines.wait_workers(one, 1, 2, 3)
    assert one(LOADED) == WHOLE
    assert one("gd.delete('x'); gd.delete('twice'); said = gd.list()") == []
