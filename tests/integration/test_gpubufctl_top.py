"""`gpubufctl top` on a terminal: what its pictures show, in any size, while the daemon comes and goes.

pyte, a terminal of somebody else's making, reads what is written to a pty.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pyte
import pytest

from conftest import SANITIZER
from ctl import GPUBUFCTL, Ctl
from device import environment
from peer import DEADLINE, bytes_layout

CLEAR = "\x1b[H\x1b[2J"


class Top:
    """gpubufctl top, whose terminal we are."""

    def __init__(self, ctl, columns, rows, *words, env=None):
        self.parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.size, self.text = (columns, rows), ""
        self.process = subprocess.Popen(
            [GPUBUFCTL, "top", "--interval", "100ms", *words], stdin=subprocess.DEVNULL, stdout=child,
            stderr=subprocess.PIPE, env={**ctl.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
        os.close(child)

    def until(self, condition):
        """The lines of a picture for which it holds. A picture is whole once the next one begins."""
        end = time.monotonic() + DEADLINE
        seen = 0
        while True:
            if select.select([self.parent], [], [], 0.1)[0]:
                self.text += os.read(self.parent, 65536).decode(errors="replace")
            pictures = self.text.split(CLEAR)
            for picture in pictures[max(seen, 1):-1]:
                self.screen = pyte.Screen(*self.size)
                pyte.Stream(self.screen).feed(picture.replace("\n", "\r\n") if "\r\n" not in picture else picture)
                lines = [line.rstrip() for line in self.screen.display]
                if condition(lines):
                    return lines
            seen = max(seen, len(pictures) - 1)
            assert time.monotonic() < end, pictures[-2:]

    def shows(self, text):
        return self.until(lambda lines: any(text in line for line in lines))

    def close(self):
        """Ctrl-C ends it, and the terminal needs nothing to be undone."""
        self.process.send_signal(signal.SIGINT)
        error = self.process.communicate(timeout=DEADLINE)[1].decode()
        os.close(self.parent)
        assert self.process.returncode == -signal.SIGINT and not SANITIZER.search(error)


@pytest.fixture
def ctl(daemon, tmp_path):
    one = Ctl(daemon.path, str(tmp_path))
    one.daemon = daemon
    with daemon.connect() as peer:
        for i in range(40):
            peer.create_object(f"o/{i:02}", bytes_layout(1000 * (i + 1)))
        peer.unmap()
    return one


@pytest.fixture
def top(ctl):
    running = []

    def start(columns=80, rows=24, *words, **settings):
        running.append(Top(ctl, columns, rows, *words, **settings))
        return running[-1]

    yield start
    for one in running:
        one.close()


def listed(lines):
    return [found[1] for found in (re.search(r" (o/\d\d)$", line) for line in lines) if found]


def test_what_is_there(ctl, top):
    reader = ctl.daemon.connect()
    reader.call("hello", protocol=1, client="a reader")
    reader.open_object("o/07")
    one = top(80, 40, "--sort", "recent")
    lines = one.shows("in use")
    assert lines[0].startswith("gpubufd ") and "objects 40" in lines[0] and re.search(r"\d\d:\d\d:\d\d$", lines[0])
    (bar,) = [line for line in lines if line.startswith("host ")]
    assert re.fullmatch(r"host +█+▓*▒+░+ +64 MiB", bar) and len(bar) == 80
    assert "Objects 40, last used first" in lines and listed(lines)[0] == "o/07"
    assert any("a reader" in line for line in lines) and any(line.startswith("Users 1") for line in lines)
    ctl("put", "o/99", ctl.file("f", b"x" * 100000))
    one.until(lambda lines: "o/99" in listed(lines))
    ctl("rm", "o/99")
    one.until(lambda lines: "o/99" not in listed(lines))


@pytest.mark.parametrize("columns, rows", [(60, 20), (200, 60), (60, 8), (20, 5)])
def test_sizes(top, columns, rows):
    """No line is too long, and none is lost: what is written fits the screen."""
    one = top(columns, rows)
    one.until(lambda lines: lines[0].startswith("gpubufd") and (rows < 10 or listed(lines)))
    picture = one.text.split(CLEAR)[-2]
    assert picture.count("\n") < rows
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line).rstrip("\r")) <= columns for line in picture.split("\n"))


def test_without_colours_and_without_utf8(top):
    one = top(80, 24, env={"NO_COLOR": "1", "LC_ALL": "C"})
    lines = one.shows("o/39")
    assert not re.search(r"\x1b\[[\d;]*m", one.text) and one.text.isascii()
    assert re.fullmatch(r"host +#+\+*-+\.+ +64 MiB", lines[1])
    plain = top(80, 24)
    plain.shows("o/39")
    assert "\x1b[34m" in plain.text


def test_the_daemon_goes_and_another_comes(ctl, top):
    one = top(120, 24)
    one.shows("o/39")
    ctl.daemon.process.kill()
    ctl.daemon.process.wait()
    lines = one.until(lambda lines: "connect" in lines[0] or "daemon" in lines[0][12:])
    assert listed(lines)[0] == "o/39", "the last that was known stays"
    another = subprocess.Popen(ctl.daemon.process.args, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=environment())
    try:
        one.until(lambda lines: "objects 0" in lines[0] and not listed(lines))
    finally:
        another.terminate()
        assert another.wait(DEADLINE) == 0


def test_the_daemon_hangs(ctl, top):
    one = top(100, 24)
    one.shows("o/39")
    ctl.daemon.process.send_signal(signal.SIGSTOP)
    try:
        one.until(lambda lines: "does not answer" in lines[0] and listed(lines))
    finally:
        ctl.daemon.process.send_signal(signal.SIGCONT)
    one.until(lambda lines: "objects 40" in lines[0])
