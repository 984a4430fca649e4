"""connect(start=True): a daemon of the user's own, whoever begins first, and its end. `python -m gpubufd`."""

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings

import pytest
from conftest import BUILD, PACKAGE
from peer import DEADLINE, wait_until

import gpubufd
import gpubufd.aio
from gpubufd import _start

OPTIONS = ["--device", "host:64M"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A path for a socket, a log of its own, and the end of the daemons that were started there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{BUILD / 'bin'}:{os.environ['PATH']}")
    path = str(tmp_path / "own.sock")
    yield path
    stop(path)
    for child in _start._children:
        child.wait(DEADLINE)


def stop(path):
    subprocess.run([BUILD / "bin" / "gpubufctl", "-S", path, "stop"], check=False, timeout=DEADLINE, capture_output=True)


def kill_with_supervisor():
    """kill -9 of all; waits until nobody listens any more."""
    _start._children[0].kill()
    os.kill(started()[-1], signal.SIGKILL)
    wait_until(lambda: has_ended(started()[-1]))
    _start._children[0].wait(DEADLINE)


def log():
    return _start.log_path().read_text() if _start.log_path().exists() else ""


def started():
    return [int(pid) for pid in re.findall(r"\blistening\b.* pid=(\d+)", log())]


def connect(path, *options, **more):
    return gpubufd.connect(path, start=[*OPTIONS, *options], timeout=DEADLINE, **more)


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_nothing_is_started_unless_one_says_so(place):
    with pytest.raises(gpubufd.ConnectFailed):
        gpubufd.connect(place, timeout=0.1)
    assert not _start.log_path().exists()
    with pytest.raises(TypeError, match="list of the daemon's options"):
        gpubufd.connect(place, start="--device")


def test_it_outlives_who_started_it_and_serves_the_user_alone(place):
    program = textwrap.dedent(f"""
        import gpubufd
        with gpubufd.connect({place!r}, start={OPTIONS!r}, timeout={DEADLINE}) as client:
            client.put("greeting", b"hello")
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=2 * DEADLINE,
                   env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    with gpubufd.connect(place, timeout=DEADLINE) as client:  # which starts nothing
        assert bytes(client.get("greeting")) == b"hello"
    assert os.stat(place).st_mode & 0o777 == 0o600
    with connect(place):
        assert len(started()) == 1


def test_it_ends_when_nobody_uses_it_and_says_so(place):
    with connect(place, "--idle-exit", "300") as client:
        time.sleep(0.5)  # longer than that: who is connected uses it
        client.put("kept", b"so long")
        assert bytes(client.get("kept")) == b"so long"
    wait_until(lambda: _start._children[-1].poll() == 0)
    assert has_ended(started()[-1])
    assert "stopping: no client connected for the time of --idle-exit" in log()
    assert "idle_ms=300" in log() and "objects=1" in log()
    assert not os.path.exists(place)
    with connect(place) as client:  # and another one begins
        assert "kept" not in client


def test_of_many_that_begin_at_once_one_serves_all(place):
    program = textwrap.dedent(f"""
        import gpubufd, sys
        sys.stdin.read()
        with gpubufd.connect({place!r}, start={OPTIONS!r}, timeout={DEADLINE}) as client:
            print(client.instance, flush=True)
            sys.stdin.read()
    """)
    gates = [os.pipe() for _ in range(6)]
    clients = []
    for read_end, _ in gates:
        clients.append(subprocess.Popen([sys.executable, "-c", program], stdin=read_end, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}))
    for ends in gates:
        for end in ends:
            os.close(end)
    instances = [client.communicate(timeout=2 * DEADLINE)[0] for client in clients]
    assert instances[0] and instances == instances[:1] * len(instances), log()
    assert len(started()) == 1, log()


def test_a_socket_that_a_killed_one_left(place):
    with connect(place, resume_timeout=0):
        kill_with_supervisor()
        assert os.path.exists(place)
    with connect(place) as client:
        client.put("after", b"")
    assert len(started()) == 2


def test_a_killed_one_loses_nothing(place):
    with connect(place) as client:
        client.put("a", [1, 2, 3])
        held, instance = client["a"], client.instance
        for crashes in range(1, 4):
            os.kill(started()[-1], signal.SIGKILL)
            wait_until(lambda: len(started()) == crashes + 1)
            assert client["a"].tolist() == [1, 2, 3] and client.instance == instance and not held.stale


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_where_none_is_left_a_client_starts_another(place, how):
    """Which it would wait for without an end otherwise."""
    with connect(place, resume_timeout=None) as client:
        client.put("before", b"")
        for starts in range(2, 4):
            stop(place) if how == "stopped" else kill_with_supervisor()
            try:
                client.put("after", b"", replace=True)
            except gpubufd.Closed:  # it was under way when the daemon ended
                client.put("after", b"", replace=True)
            assert list(client) == ["after"] and len(started()) == starts


def test_a_client_of_asyncio_starts_another(place):
    async def work():
        async with await gpubufd.aio.connect(place, start=OPTIONS, timeout=DEADLINE) as client:
            await client.put("before", b"")
            await asyncio.to_thread(stop, place)
            await client.put("after", b"", replace=True)
            return [info.name for info in await client.list()]

    assert asyncio.run(work()) == ["after"]


def test_options_that_it_lacks_are_told(place):
    with connect(place), warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (True, OPTIONS, ["--device=host:64M"], []):
            gpubufd.connect(place, start=same).close()
        gpubufd.connect(place).close()
        with pytest.raises(RuntimeWarning, match=f"{place} was started without --device host:1G --evict drop; `gpubufctl st"):
            gpubufd.connect(place, start=["--device", "host:1G", "--evict=drop", "--idle-exit", "600000"])


def test_one_that_cannot_start_says_why(place):
    with pytest.raises(gpubufd.ConnectFailed, match="ended with status 2: gpubufd: .*--device.*nonsense"):
        gpubufd.connect(place, start=["--device", "nonsense"], timeout=DEADLINE)


@pytest.fixture
def open_place():
    """A directory that other users may enter and write, as /tmp."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="gpubuf-start-"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_daemon_of_another_user_is_not_ones_own(place, open_place):
    path = str(open_place / "s")
    program = shutil.copy(BUILD / "bin" / "gpubufd", open_place)  # others may not get at what was built

    def answers():
        try:
            gpubufd.connect(path, timeout=1, resume_timeout=0).close()
        except (gpubufd.Closed, gpubufd.ConnectFailed, gpubufd.Timeout):
            return False
        return True

    @contextlib.contextmanager
    def theirs():
        for name in (path, path + ".lock"):  # as if they had made them
            if os.path.exists(name):
                os.chown(name, 61803, 61803)
        with subprocess.Popen([program, "--socket", path, "--mode", "0666", *OPTIONS], user=61803,
                              group=61803, extra_groups=[], cwd="/", stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(answers)
                yield
            finally:
                process.kill()
        wait_until(lambda: not answers())

    with theirs():
        with pytest.raises(gpubufd.Denied, match=f"{path}: user 61803 runs the daemon there, and one of your own"):
            connect(path)
    with connect(path, resume_timeout=0.5) as client:
        kill_with_supervisor()
        wait_until(lambda: not answers())
        with theirs():  # nor is one that takes its place
            with pytest.raises((gpubufd.Closed, gpubufd.Denied), match="Permission denied|user 61803"):
                client.put("mine", b"x")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_program_that_others_could_have_laid_is_not_taken(open_place, monkeypatch):
    monkeypatch.setenv("PATH", "/nothing")
    found = {}
    for package in ("gpubufd", "python/gpubufd", "a/python/gpubufd"):
        (open_place / package).mkdir(parents=True)
        shutil.copy(_start.__file__, open_place / package)
    for directory, owner in (("bin", 61803), ("a/bin", 0), ("python/bin", 0)):
        (open_place / directory).mkdir(exist_ok=True)
        program = open_place / directory / "gpubufd-tried"
        program.write_text("#!/bin/sh")
        program.chmod(0o755)
        os.chown(open_place / directory, owner, 0)
    (open_place / "python" / "bin").chmod(0o777)
    for package in ("gpubufd", "python/gpubufd", "a/python/gpubufd"):
        monkeypatch.setattr(_start, "__file__", str(open_place / package / "_start.py"))
        try:
            found[package] = _start.program("gpubufd-tried")
        except FileNotFoundError:
            found[package] = None
    assert found == {"gpubufd": None, "python/gpubufd": None, "a/python/gpubufd": str(open_place / "a/bin/gpubufd-tried")}


def test_the_module_runs_the_programs(place):
    def run(*words):
        return subprocess.run([sys.executable, "-m", "gpubufd", *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE), "GPUBUFD_SOCKET": place}, timeout=DEADLINE)

    assert run("serve", "--version").stdout == f"gpubufd {gpubufd.__version__}\n"
    assert run("--help").stdout.startswith("python -m gpubufd serve [OPTION]…")
    assert run("--version").stdout == f"gpubufctl {gpubufd.__version__}\n"
    with connect(place) as client:
        client.put("seen", b"x")
        assert "seen" in run("ls").stdout


def test_the_module_serves_supervised(place):
    with subprocess.Popen([sys.executable, "-m", "gpubufd", "serve", "--socket", place, *OPTIONS], stderr=subprocess.PIPE,
                          text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}) as process:
        def listening():
            return next(int(line.rpartition("pid=")[2]) for line in process.stderr if " listening " in line)

        daemon = listening()
        with gpubufd.connect(place, timeout=DEADLINE) as client:
            client.put("a", [1])
            os.kill(daemon, signal.SIGKILL)
            assert listening() != daemon
            assert client["a"].tolist() == [1]
        stop(place)
        assert process.wait(DEADLINE) == 0
