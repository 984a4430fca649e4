"""Foundations of the checks: a daemon, workers (worker.py), and the outcome of each check.

A check is a function with the decorator @check. It is given a `Case`, starts daemons and workers
through it, and fails by an exception. Whatever it started is ended after it, and then the GPU must
have as much free memory as before. The process of the checks itself never touches CUDA, so that
nothing that a GPU does can end it.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from peer import Peer  # noqa: E402

DEADLINE = 120  # seconds for one answer of a worker: a framework may be slow to start
MIB = 1 << 20

CHECKS = []


class Skip(Exception):
    """The check cannot be made here; the text says why."""


class Failure(Exception):
    """A check found something other than was promised."""


class WorkerError(Exception):
    """A worker's order failed. `name`: the CUDA error's, or the kind of the daemon's answer."""

    def __init__(self, text, name):
        super().__init__(text)
        self.name = name


def check(title, fake=True, real=True, gpus=1, seconds=200):
    """Adds a check. `fake`, `real`: on which driver it makes sense; `gpus`: how many it needs."""

    def add(function):
        CHECKS.append(
            {"title": title, "function": function, "fake": fake, "real": real, "gpus": gpus,
             "seconds": seconds, "name": function.__name__}
        )
        return function

    return add


def equal(found, expected, what=""):
    if found != expected:
        raise Failure(f"{what + ': ' if what else ''}found {found!r}, expected {expected!r}")


def expect(condition, text):
    if not condition:
        raise Failure(text)


def eventually(condition, text, seconds=60):
    """Waits for a condition that has no event to wait for."""
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"not within {seconds} s: {text}")
        time.sleep(0.01)


def end_with_parent():
    """(in a child) Nothing that was started outlives the checks, however they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Process:
    """A child with a log of its own."""

    def __init__(self, command, log, environment, **options):
        self.log = log
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [str(word) for word in command], stderr=file, env=environment,
                preexec_fn=end_with_parent, **options
            )
        self.pid = self.process.pid

    def kill(self):
        """kill -9; returns when the process has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Worker(Process):
    def __init__(self, case, environment, number, python):
        super().__init__(
            [python, HERE / "worker.py"], case.directory / f"worker{number}.log", environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        )
        self.answers = b""

    def begin(self, method, *arguments, **keywords):
        """Gives an order; end() waits for its answer."""
        line = json.dumps([method, arguments, keywords]) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"a worker has ended ({self.process.wait()}); see {self.log}") from None

    def end(self, timeout=DEADLINE):
        end = time.monotonic() + timeout
        stdout = self.process.stdout.fileno()
        while b"\n" not in self.answers:
            left = end - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise Failure(f"a worker does not answer; see {self.log}")
            data = os.read(stdout, 1 << 20)
            if not data:
                raise Failure(f"a worker has ended ({self.process.wait()}); see {self.log}")
            self.answers += data
        line, _, self.answers = self.answers.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"], answer["name"])
        return answer["result"]

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)

        def order(*arguments, **keywords):
            self.begin(method, *arguments, **keywords)
            return self.end()

        return order

    def fails(self, names, method, *arguments, **keywords):
        """Gives an order that must fail with an error of one of these names; the sentence."""
        names = (names,) if isinstance(names, str) else names
        try:
            result = getattr(self, method)(*arguments, **keywords)
        except WorkerError as error:
            expect(error.name in names, f"{method}: failed with {error.name} ({error}), expected "
                   f"{' or '.join(names)}")
            return str(error)
        raise Failure(f"{method} succeeded ({result!r}), expected {' or '.join(names)}")


class Daemon(Process):
    def __init__(self, case, devices, options, path):
        self.path = str(path)
        command = [case.place.gpubufd, "--socket", path, "--log-level", "debug"]
        for device in devices:
            command += ["--device", device]
        super().__init__(command + list(options), case.directory / "gpubufd.log",
                         case.environment())
        eventually(self._answers, f"the daemon listens; see {self.log}")

    def _answers(self):
        try:
            Peer(self.path).close()
        except OSError:
            expect(self.process.poll() is None,
                   f"gpubufd has ended ({self.process.returncode}); see {self.log}")
            return False
        return True

    def call(self, method, **params):
        """Calls a method in a session of its own, which maps nothing."""
        with Peer(self.path) as peer:
            return peer.call(method, **params)

    def delete(self, names):
        """Deletes names, as many in a request as the protocol allows."""
        for at in range(0, len(names), 64):
            self.call("delete", names=names[at:at + 64])

    def delete_all(self):
        self.delete([o["name"] for o in self.call("list")["objects"]])

    def figures(self, device=0):
        return self.call("stats")["devices"][device]

    def trim(self):
        return self.call("trim")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def sessions(self, count):
        """Waits until `count` other sessions are left."""
        eventually(lambda: self.call("stats")["sessions"] - 1 == count, f"{count} sessions are left")

    def stop(self):
        """SIGTERM; it must end well."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure("gpubufd does not end on SIGTERM") from None
        equal(status, 0, f"exit status of gpubufd (see {self.log})")


class Case:
    """One check under way."""

    def __init__(self, place, name):
        self.place = place
        self.fake = place.fake
        self.directory = place.out / name
        self.directory.mkdir(parents=True)
        # Short, as the path of a socket has at most 107 bytes.
        self.private = Path(tempfile.mkdtemp(prefix="gpubuf-gpu-"))
        self.workers, self.daemons, self.notes = [], [], {}
        self.devices = self.directory / "devices"
        if self.fake:
            shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            self.devices = Path(tempfile.mkdtemp(prefix="fakecuda-", dir=shm))
        self.own_observer = None

    # ---- processes ----

    def environment(self, **more):
        environment = dict(self.place.environment, **more)
        if self.fake:
            environment["FAKECUDA_DIR"] = str(self.devices)
        return environment

    def daemon(self, *devices, options=()):
        """A daemon with these devices (by default the first GPU, with capacity())."""
        path = self.private / f"s{len(self.daemons)}"
        devices = devices or (f"cuda:0:{self.capacity() // MIB}M",)
        self.daemons.append(Daemon(self, devices, options, path))
        return self.daemons[-1]

    def daemon_of_two(self):
        """A daemon with the first two GPUs."""
        return self.daemon(*(f"cuda:{i}:{self.capacity() // MIB}M" for i in range(2)))

    def with_workers(self, count):
        """A daemon, and workers that are connected to it."""
        daemon = self.daemon()
        return daemon, *(self.worker(daemon) for _ in range(count))

    def worker(self, daemon=None, ordinal=0, start=True, python=None, **environment):
        """A process with a context on a device, connected to the daemon."""
        worker = Worker(self, self.environment(**environment), len(self.workers),
                        python or sys.executable)
        self.workers.append(worker)
        if start:
            worker.start(ordinal)
        if daemon:
            worker.connect(daemon.path)
        return worker

    def command(self, command, timeout=60, **environment):
        """Runs a program to its end: (status, output)."""
        log = self.directory / "commands.log"
        try:
            done = subprocess.run(
                [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", env=self.environment(**environment), timeout=timeout,
                stdin=subprocess.DEVNULL, cwd=ROOT, check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{command[0]} is not done after {timeout} s") from None
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"$ {command}\n{done.stdout}\n[{done.returncode}]\n")
        return done.returncode, done.stdout

    # ---- sizes: a fake GPU has little memory ----

    def mib(self, real, fake):
        return (fake if self.fake else real) * MIB

    def capacity(self):
        return self.mib(4096, 64)

    def slack(self):
        """Bytes by which what is free may differ: a driver keeps books of its own."""
        return 0 if self.fake else 8 * MIB

    # ---- memory of the GPU ----

    def observer(self):
        """A process that watches a GPU's memory. Its own context is part of what it sees."""
        if not self.fake:
            return self.place.observer(self)
        if self.own_observer is None:
            self.own_observer = Worker(self, self.environment(), "-observer", sys.executable)
            self.own_observer.start()
        return self.own_observer

    def free(self):
        return self.observer().free()

    def let_others_in(self):
        """Other users may reach the socket and, where it is fake, the GPU."""
        os.chmod(self.private, 0o755)
        if self.fake:
            os.chmod(self.devices, 0o777)

    def seen_by_nvidia_smi(self, daemon):
        """The daemon's memory as nvidia-smi shows it; None where it does not list the daemon."""
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
        lines = self.command(query)[1].splitlines() if shutil.which(query[0]) else []
        return next((li for li in lines if li.split(",")[0] == str(daemon.pid)), None)

    def free_again(self, before, what):
        """Waits until as much is free as before; a process that was killed is cleared away by the
        driver in its own time."""
        found = []

        def enough():
            found[:] = [self.free()]
            return abs(found[0] - before) <= self.slack()

        try:
            eventually(enough, what)
        except Failure:
            raise Failure(f"{what}: {(before - found[0]) / MIB:.1f} MiB of the GPU are not free "
                          "again") from None

    def note(self, name, value):
        """Something measured or found, for the report."""
        self.notes[name] = value if isinstance(value, (int, float)) else str(value)

    def skip(self, why):
        raise Skip(why)

    # ---- the end ----

    def close_workers(self):
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def close(self):
        """Ends all that still runs; returns sentences about what did not end well."""
        problems = []
        self.close_workers()
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                try:
                    daemon.stop()
                except Failure as failure:
                    problems.append(str(failure))
        return problems

    def clear(self):
        if self.own_observer:
            self.own_observer.kill()
        shutil.rmtree(self.private, ignore_errors=True)
        if self.fake:
            shutil.rmtree(self.devices, ignore_errors=True)


class Place:
    """Where the checks are made: which binaries, which driver, and where the logs go."""

    def __init__(self, bundle, gpubufd, fake_directory, out):
        self.bundle = bundle
        self.gpubufd = gpubufd
        self.fake = fake_directory is not None
        self.out = out
        environment = dict(os.environ)
        for name in list(environment):
            if name.startswith("FAKECUDA_") or name == "GPUBUFD_SOCKET":
                del environment[name]
        environment["CUDA_MODULE_LOADING"] = "EAGER"
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["PYTHONUNBUFFERED"] = "1"
        environment["GPUBUF_LIBRARY"] = str(bundle / "lib" / "libgpubuf.so")
        if self.fake:
            # A copy where other users reach it, too: a checkout may lie where they do not.
            self.driver = Path(tempfile.mkdtemp(prefix="fakecuda-driver-"))
            shutil.copy2(fake_directory / "libcuda.so.1", self.driver)
            os.chmod(self.driver, 0o755)
            # In front, so that it is taken where a real driver is installed as well.
            paths = [str(self.driver), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
            environment["FAKECUDA_MEMORY"] = "512M"
            environment["FAKECUDA_DEVICES"] = "2"
        else:
            self.driver = None
        self.environment = environment
        self.kernels = None
        self.common = None

    def observer(self, case):
        if self.common is None or self.common.process.poll() is not None:
            self.common = Worker(case, self.environment, "-observer", sys.executable)
            self.common.log.rename(self.out / "observer.log")
            self.common.log = self.out / "observer.log"
            self.common.start()
        return self.common

    def close(self):
        if self.common:
            self.common.kill()
        if self.driver:
            shutil.rmtree(self.driver, ignore_errors=True)

    # ---- the GPU ----

    def find(self):
        """GPUs of this machine: {"uuids", "names", "cuda", "capability"}; Skip where there is none."""
        program = (
            "import ctypes, json, sys; sys.path.insert(0, sys.argv[1]); import gpu_driver\n"
            "d = gpu_driver.Driver(); d.cuInit(0); v = ctypes.c_int(); "
            "d.cuDriverGetVersion(ctypes.byref(v)); u = d.devices()\n"
            "n = [d.device_name(i) for i in range(len(u))]\n"
            "c = [d.attribute(a, 0) for a in (75, 76)] if u else []\n"
            "print(json.dumps({'uuids': u, 'names': n, 'cuda': v.value, 'capability': c,"
            " 'fake': d.fake}))"
        )
        environment = dict(self.environment)
        if self.fake:
            environment["FAKECUDA_DIR"] = tempfile.mkdtemp(prefix="fakecuda-")
        try:
            done = subprocess.run(
                [sys.executable, "-c", program, str(HERE)], env=environment, timeout=120,
                capture_output=True, text=True, check=False,
            )
        except subprocess.TimeoutExpired:
            raise Skip("the CUDA driver does not answer within 120 s") from None
        finally:
            if self.fake:
                shutil.rmtree(environment["FAKECUDA_DIR"], ignore_errors=True)
        if done.returncode != 0:
            raise Skip((done.stderr.strip().splitlines() or ["no CUDA driver"])[-1])
        found = json.loads(done.stdout)
        if not found["uuids"]:
            raise Skip("the CUDA driver shows no GPU")
        if found["fake"] != self.fake:
            raise Skip("the CUDA driver found is tests/fakecuda, which wants --fake"
                       if found["fake"] else "the driver found is a real one")
        return found

    def compile_kernels(self, capability):
        """kernels.cu by nvcc, for this GPU; without nvcc checks that need a kernel fail."""
        if self.fake:
            return
        nvcc = find_nvcc()
        if not nvcc:
            print("  (no nvcc: what needs a kernel cannot be checked)")
            return
        cubin = self.out / "kernels.cubin"
        architecture = "sm_%d%d" % tuple(capability)
        done = subprocess.run(
            [nvcc, "-cubin", f"-arch={architecture}", "-o", cubin, HERE / "kernels.cu"],
            capture_output=True, text=True, timeout=120, check=False,
        )
        if done.returncode != 0:
            print("  (nvcc failed: " + done.stderr.strip() + ")")
            return
        self.environment["GPUBUF_GPU_KERNELS"] = str(cubin)

    def compile(self, source, *others):
        """A C program over libgpubuf, with the bundle's header and library: its path."""
        program, lib = self.out / "bin" / Path(source).stem, self.bundle / "lib"
        program.parent.mkdir(exist_ok=True)
        include = self.bundle / "include"
        if not include.exists():
            include = ROOT / "include"
        sources = [HERE / source, *(ROOT / other for other in others)]
        command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread",
                   "-I", include, "-I", ROOT, *sources, "-o", program, "-L", lib, "-lgpubuf",
                   "-ldl", "-lm", f"-Wl,-rpath,{lib}"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=120, check=False)
        if done.returncode != 0:
            raise Failure(f"{source} does not compile: {done.stderr.strip()[-2000:]}")
        return program


def place_of_options(parser):
    """The Place that a command line asks for, with the options that are common to all programs; its
    `options` has the whole command line."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bundle", type=Path, help="what `make dist` made, unpacked")
    where.add_argument("--build", type=Path, help="what `make` made (default: build)")
    parser.add_argument("--daemon", type=Path, help="another gpubufd than the one in there")
    parser.add_argument("--fake", nargs="?", type=Path, const=True, metavar="DIR",
                        help="use the driver of tests/fakecuda, in DIR (default: BUILD/fakecuda)")
    parser.add_argument("--out", type=Path, help="where logs and results go")
    options = parser.parse_args()
    bundle = (options.bundle or options.build or ROOT / "build").resolve()
    fake = bundle / "fakecuda" if options.fake is True else options.fake
    gpubufd = options.daemon or bundle / "bin" / "gpubufd"
    for path in filter(None, (gpubufd, fake and fake / "libcuda.so.1")):
        if not path.exists():
            parser.error(f"{path} is not there")
    out = options.out or Path(tempfile.mkdtemp(prefix="gpubuf-gpu-"))
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):  # nothing of an earlier run is overwritten
        out = Path(tempfile.mkdtemp(prefix="again-", dir=out))
    place = Place(bundle, gpubufd.resolve(), fake and fake.resolve(), out.resolve())
    place.options = options
    return place


def find_nvcc():
    places = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    candidates = [shutil.which("nvcc")] + [f"{p}/bin/nvcc" for p in places if p]
    candidates.append("/usr/local/cuda/bin/nvcc")
    candidates += sorted(str(p) for p in Path("/usr/local").glob("cuda-*/bin/nvcc"))
    return next((c for c in candidates if c and os.access(c, os.X_OK)), None)


@contextlib.contextmanager
def alarm(seconds, what):
    """Failure when the block takes longer."""

    def ring(*_):
        raise Failure(f"{what} is not done after {seconds} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def run_check(place, row):
    """Makes one check: ("passed" | "failed" | "skipped", sentence, notes)."""
    case = Case(place, row["name"])
    state, sentence, before = "passed", "", None
    try:
        with alarm(row["seconds"], "the check"):
            before = case.free()
            row["function"](case)
    except Skip as skip:
        state, sentence = "skipped", str(skip)
    except Exception as error:  # noqa: BLE001  (one check must not end the others)
        state, sentence = "failed", f"{type(error).__name__}: {error}"
        if isinstance(error, (Failure, WorkerError)):
            sentence = str(error)
        (case.directory / "failure").write_text(traceback.format_exc())
    try:
        with alarm(200, "clearing up"):
            problems = case.close()
            if before is not None:
                case.free_again(before, "after everything has ended")
    except Exception as error:  # noqa: BLE001
        problems = [str(error)]
    for problem in problems:
        sentence = f"{sentence}; {problem}" if sentence else problem
        state = "failed"
    case.clear()
    return state, sentence, case.notes
