"""Calls that take long: Ctrl-C ends them, and nothing is published; past a second they show a bar."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest
from conftest import environment

import gpubufd

np = pytest.importorskip("numpy")
import gpubufd.numpy  # noqa: E402

BEGIN = """
import gpubufd, numpy as np, os, pathlib, signal, sys, threading
from gpubufd import _core
client = gpubufd.connect()
place = pathlib.Path(sys.argv[1])
"""
# The signal comes when the first piece has been copied.
COPIES = {
    "array": "client.put('x', np.ones(48 << 20, np.uint8))",
    "strided": "client.put('x', np.broadcast_to(np.uint8(1), (4 << 20,)))",
    "bytes": "client.put('x', bytes(48 << 20))",
    "bundle": "client.put_bundle('x', {'w': np.ones(48 << 20, np.uint8)})",
    "column": "client.put('x', pyarrow.array(np.ones(6 << 20)))",
    "edit": "client.edit('big')",
    "load": "client.load(place / 'in.npy', 'x')",
    "load_file": "gpubufd.numpy.load_file(place / 'in.safetensors', client=client, name='x')",
}


def child(daemon, code, place, stderr=None, **variables):
    return subprocess.run([sys.executable, "-c", BEGIN + textwrap.dedent(code), str(place)], stdout=subprocess.PIPE,
                          stderr=stderr, timeout=300, check=False, text=stderr is None,
                          env=environment(GPUBUFD_SOCKET=daemon.path, **variables))


@pytest.mark.parametrize("call", COPIES)
def test_ctrl_c_ends_a_copy(daemon, client, tmp_path, call):
    if call == "column":
        pytest.importorskip("pyarrow")
    client.put("big", np.ones(48 << 20, np.uint8))
    if call.startswith("load"):
        np.save(tmp_path / "in.npy", client["big"].to_numpy())
        gpubufd.numpy.save_file({"w": client["big"]}, tmp_path / "in.safetensors")
    done = child(daemon, f"""
        {'import pyarrow' if call == 'column' else 'import gpubufd.numpy'}
        _core.on_copied(lambda count: os.kill(os.getpid(), signal.SIGINT))
        try:
            {COPIES[call]}
        except KeyboardInterrupt:
            print("interrupted")
        _core.on_copied(lambda count: None)
        client.put("after", b"")
    """, tmp_path)
    assert done.stdout == "interrupted\n"
    assert [info.name for info in client.list()] == ["after", "big"]


def test_ctrl_c_ends_a_wait_for_room(daemon, client, tmp_path):
    client.put("big", np.ones(200 << 20, np.uint8), evict="keep")
    done = child(daemon, """
        other = gpubufd.connect()
        calls = lambda: other.stats()["methods"]["create"]["calls"]
        before = calls()
        def interrupt():
            while calls() == before:
                pass
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            client.put("x", np.ones(100 << 20, np.uint8), timeout=3000)
        except KeyboardInterrupt:
            print("interrupted")
    """, tmp_path)
    assert done.stdout == "interrupted\n" and [info.name for info in client.list()] == ["big"]


def test_ctrl_c_ends_the_writing_of_a_file(daemon, client, tmp_path):
    """The file is a pipe: the signal comes when it is full, and then it is read to its end."""
    client.put("big", np.ones(48 << 20, np.uint8))
    done = child(daemon, """
        part = place / f".out.npy.{os.getpid()}.part"
        os.mkfifo(part)
        count = 0
        def take():
            global count
            with open(part, "rb", buffering=0) as pipe:
                count += len(pipe.read(4096))
                os.kill(os.getpid(), signal.SIGINT)
                while (piece := pipe.read(1 << 16)):
                    count += len(piece)
        thread = threading.Thread(target=take)
        thread.start()
        try:
            client.save("big", place / "out.npy")
        except KeyboardInterrupt:
            thread.join()
            print("interrupted", count < 40 << 20)
    """, tmp_path)
    assert done.stdout == "interrupted True\n"
    assert list(tmp_path.iterdir()) == []


TQDM = """
import sys
def tqdm(desc, total, **more):
    class Bar:
        done = 0
        def update(self, count): self.done += count
        def close(self): print(desc, self.done, "of", total, file=sys.stderr)
    return Bar()
"""


@pytest.mark.parametrize("terminal, wanted", [(True, True), (True, False), (False, True)])
def test_a_bar_is_shown_on_a_terminal(daemon, client, tmp_path, terminal, wanted):
    (tmp_path / "tqdm").mkdir()
    (tmp_path / "tqdm" / "__init__.py").touch()
    (tmp_path / "tqdm" / "auto.py").write_text(TQDM)
    ours, theirs = pty.openpty() if terminal else os.pipe()
    done = child(daemon, """
        sys.path.insert(0, str(place))
        from gpubufd import _progress
        _progress.AFTER = -1.0
        client.put("big", np.ones(48 << 20, np.uint8))
        print("put", flush=True)
    """, tmp_path, theirs, **({} if wanted else {"GPUBUFD_PROGRESS": "0"}))
    os.write(theirs, b"end\n")
    shown = b""
    while not shown.endswith(b"end\r\n" if terminal else b"end\n"):
        shown += os.read(ours, 4096)
    shown = shown.replace(b"\r", b"").decode()
    os.close(ours), os.close(theirs)
    assert done.stdout == b"put\n"
    if terminal and wanted:
        name, copied, *rest = shown.split()
        assert [name, *rest] == ["big", "of", str(48 << 20), "end"] and 0 < int(copied) <= 48 << 20
    else:
        assert shown == "end\n"
