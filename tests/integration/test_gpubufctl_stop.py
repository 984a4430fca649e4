"""gpubufctl stop: whatever runs the daemon, and whom it obeys; how doctor tells a supervisor."""

import os
import subprocess

import conftest
import pytest
from ctl import FAILED, GPUBUFCTL, NO_DAEMON, Ctl
from peer import DEADLINE, wait_until
from restarts import supervised  # noqa: F401  (a fixture)
from test_manager import listening, start
from test_survive import has_ended


@pytest.fixture
def ctl_of(tmp_path):
    return lambda daemon: Ctl(daemon.path, str(tmp_path))


def test_a_daemon_alone(daemon_factory, ctl_of):
    daemon = daemon_factory()
    ctl = ctl_of(daemon)
    assert ctl("stop") == f"the daemon at {daemon.path} has ended\n"
    assert daemon.process.wait(DEADLINE) == 0 and not os.path.exists(daemon.path)
    assert daemon.path in ctl.fails(NO_DAEMON, "stop")


def test_with_its_supervisor(supervised, ctl_of):  # noqa: F811
    daemon = supervised()
    ctl, child = ctl_of(daemon), daemon.child
    assert f"pid {daemon.pid} of user" in ctl("doctor") and "gpubufctl stop ends both" in ctl("doctor")
    assert ctl.json("stop") == {"pid": daemon.pid}
    assert daemon.process.wait(DEADLINE) == 0 and has_ended(child) and not os.path.exists(daemon.path)


def test_without_its_supervisor(supervised, ctl_of):  # noqa: F811
    daemon = supervised()
    ctl, child = ctl_of(daemon), daemon.child
    daemon.process.kill()
    daemon.process.wait()
    wait_until(lambda: "journal discarded" in daemon.stderr())
    told = " ".join(ctl("doctor").split())
    assert "its supervisor, or the service manager, has ended" in told and f"pid {child} of user" in told
    assert ctl.json("stop") == {"pid": child}
    assert has_ended(child) and not os.path.exists(daemon.path)


def test_of_a_service_manager(directory, tmp_path):
    """Whoever listens there for the daemon is no gpubufd, and is left alone."""
    path = f"{directory}/s"
    with listening(path) as listener:
        process = start([("gpubufd.socket", listener.fileno())])
        try:
            assert f"but pid {os.getpid()}: end it" in Ctl(path, str(tmp_path)).fails(FAILED, "stop")
            assert process.poll() is None
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE)


@pytest.mark.root
def test_of_another_user(daemon_factory, ctl_of):
    daemon = daemon_factory("--mode", "0666")
    os.chmod(daemon.directory, 0o755)
    program = conftest.runs_as(1001, GPUBUFCTL, daemon.directory)
    done = subprocess.run([program, "stop"], env=ctl_of(daemon).env, user=1001, group=1001, extra_groups=[],
                          timeout=DEADLINE, capture_output=True, text=True, check=False)
    assert done.returncode == FAILED
    assert f"cannot stop the daemon, pid {daemon.pid} of user root: Operation not permitted" in done.stderr
