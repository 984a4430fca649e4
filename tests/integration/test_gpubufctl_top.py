"""`gpubufctl top` on a terminal: what is on the screen, keys, sizes, and how it leaves the terminal.

pyte, a terminal of somebody else's making, reads what is written to a pty.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pyte
import pytest

import device as test_device
from ctl import GPUBUFCTL, OK, Ctl
from conftest import SANITIZER
from peer import DEADLINE, bytes_layout

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MIB = 1 << 20
DEVICE = "host"
MODES = ("\x1b[?1049h", "\x1b[?25l", "\x1b[?7l")  # the other screen, no cursor, no wrapping


# A shell above its jobs: a job's group without a parent in its session cannot be stopped.
SHELL = """
import os, signal, sys
for number in (signal.SIGTTOU, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.close(int(sys.argv[1]))
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
with os.fdopen(int(sys.argv[1]), "w") as out:
    out.write(str(pid))
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(status if status >= 0 else 100 - status)
"""


class Top:
    """gpubufctl top as the job of a session whose terminal we are."""

    def __init__(self, ctl, columns=80, rows=24, *words, env=None):
        self.parent, child = pty.openpty()
        self.before = termios.tcgetattr(child)
        self.resize(columns, rows, tell=False)
        self.error = os.path.join(ctl.directory, "stderr")
        source, told = os.pipe()
        with open(self.error, "wb") as error:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SHELL, str(told), str(GPUBUFCTL), "top", "--interval", "100ms",
                 *words], stdin=child, stdout=child, stderr=error, pass_fds=[told],
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), start_new_session=True,
                env={**ctl.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
        os.close(told)
        with os.fdopen(source) as file:
            self.pid = int(file.read())
        self.child = child  # kept, so that the terminal can be asked after the end
        self.text = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def resize(self, columns, rows, tell=True):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.Stream(self.screen)
        fcntl.ioctl(self.parent, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            os.kill(self.pid, signal.SIGWINCH)

    def read(self, timeout=0.05):
        """The output so far, if anything comes in time."""
        if not select.select([self.parent], [], [], timeout)[0]:
            return
        got = self.decoder.decode(os.read(self.parent, 65536))  # which may end within a character
        self.text += got
        self.stream.feed(got)

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def until(self, condition):
        """Returns the lines of a whole screen for which it holds."""
        end = time.monotonic() + DEADLINE
        while True:
            self.read()
            whole = self.text.endswith(("\x1b[?2026l", "\x1b[?1049l"))  # not in between
            if whole and condition(self.lines()):
                return self.lines()
            assert time.monotonic() < end, "\n".join(self.lines())

    def shows(self, text):
        return self.until(lambda lines: any(text in line for line in lines))

    def type(self, keys):
        os.write(self.parent, keys.encode())

    def settings(self):
        return termios.tcgetattr(self.child)

    def wait_given_back(self):
        """Until the terminal is as it was."""
        end = time.monotonic() + DEADLINE
        while self.settings() != self.before or not self.text.endswith("\x1b[?1049l"):
            self.read()
            assert time.monotonic() < end, repr(self.text[-200:])
        given = self.text[self.text.rindex(MODES[0]):]
        for mode, undone in (("?25l", "?25h"), ("?7l", "?7h")):
            assert given.rindex(undone) > given.rindex(mode)

    def end(self, status=OK):
        """Its exit status, once the terminal is as it was."""
        self.wait_given_back()
        got = self.process.wait(DEADLINE)
        assert (got if got < 100 else 100 - got) == status

    def until_stopped(self):
        end = time.monotonic() + DEADLINE
        while True:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "T":
                    return
            self.read()
            assert time.monotonic() < end

    def kill(self):
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)

    def close(self):
        self.kill()
        os.close(self.parent)
        os.close(self.child)
        with open(self.error, encoding="utf-8") as file:
            assert not SANITIZER.search(file.read())


@pytest.fixture
def ctl(daemon_factory, directory, tmp_path):
    place = os.path.join(directory, "spill")
    os.mkdir(place)
    daemon = daemon_factory("--tier", f"disk:128M:{place}")
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
    """Names of the objects in the list."""
    return [m.group(1) for m in (re.search(r" (o/\d\d)$", line) for line in lines) if m]


def tab(lines):
    (line,) = [line for line in lines if re.search(r"\[(Objects|Sessions|Users)", line)]
    return re.search(r"\[(.*?)\]", line).group(1)


# ---- what is shown -----------------------------------------------------------------------------


def test_what_is_there(ctl, top):
    reader = ctl.daemon.connect()
    reader.call("hello", protocol=1, client="a reader")
    reader.open_object("o/07")
    one = top(80, 24, "--sort", "recent")
    lines = one.shows("in use")
    assert lines[0].startswith("gpubufd ") and "objects 40" in lines[0]
    assert re.search(r"\d\d:\d\d:\d\d$", lines[0])
    (bar,) = [line for line in lines if line.startswith(DEVICE + " ")]
    assert re.fullmatch(rf"{DEVICE} +█+▓*▒+░+ +64 MiB", bar) and len(bar) == 80
    text = "\n".join(lines)
    stats = ctl.json("stats")["devices"][0]
    for what, key in (("used", "used"), ("clean", "clean"), ("retained", "retained"),
                      ("pinned by clients", "pinned_by_clients"), ("free", "free")):
        number, unit = re.search(rf"{what} ([\d.]+) (B|KiB|MiB)", text).groups()
        size = float(number) * {"B": 1, "KiB": 1 << 10, "MiB": MIB}[unit]
        assert abs(size - stats[key]) <= 0.06 * stats[key], (what, size, stats[key])
    assert tab(lines) == "Objects 40, last used first"
    assert listed(lines)[0] == "o/07"
    assert lines[-1].startswith("q quit") and lines[-1].endswith("of 40")
    one.type("q")
    one.end()


def test_users_and_what_counts_for_them(ctl, top):
    one = top(100, 30)
    one.shows("o/39")
    one.type("\x1b[Z")
    lines = one.until(lambda lines: "Users 1" in tab(lines))
    (at,) = [i for i, line in enumerate(lines) if line.split()[:2] == ["user", "objects"]]
    shown = dict(zip(lines[at].split(), re.sub(r" (B|KiB|MiB)", r"\1", lines[at + 1]).split()))
    (told,) = ctl.json("stats")["users"]
    assert shown["objects"] == str(told["objects"]["used"]) == "40"
    assert shown["nameless"] == "0B" and shown["flying"] == "0"
    text = told["text_bytes"]["used"]
    assert abs(float(shown["text"].removesuffix("KiB")) * 1024 - text) <= 0.06 * text
    (user,) = ctl.json("top", "--once")["users"]
    (bytes_,) = told["bytes"]
    assert {key: user[key] for key in ("uid", "objects", "used", "nameless", "held", "text_bytes")} == {
        "uid": os.getuid(), "objects": 40, "used": bytes_["used"], "nameless": bytes_["nameless"],
        "held": bytes_["held"], "text_bytes": told["text_bytes"]["used"]}
    assert (user["kept"], user["in_flight"]) == (told["descriptors"]["kept"], 0)


@pytest.mark.root
def test_each_user_is_told_of_himself(ctl, as_user):
    """Root is told of everybody, who has most first."""
    def publish(peer):
        peer.create_object("theirs", bytes_layout(8_000_000))
        return [user["uid"] for user in peer.call("stats")["users"]]

    os.chmod(ctl.daemon.path, 0o666)
    assert as_user(ctl.daemon, 12345, 12345, publish) == [12345]
    assert [user["uid"] for user in ctl.json("top", "--once")["users"]] == [12345, os.getuid()]


def test_it_goes_on_showing(ctl, top):
    one = top()
    one.shows("o/39")
    ctl("put", "o/99", ctl.file("f", b"x" * 100000))
    assert listed(one.shows("o/99"))[0] == "o/99"
    ctl("rm", "o/99")
    one.until(lambda lines: "o/99" not in listed(lines) and "Objects 40" in tab(lines))


@pytest.mark.parametrize("columns, rows", [(60, 20), (200, 60), (60, 8), (20, 5)])
def test_sizes(top, columns, rows):
    """No line is too long, none is lost: what is written takes the whole screen, and no more."""
    one = top(columns, rows)
    lines = one.until(lambda lines: lines[0].startswith("gpubufd") and lines[-1].startswith("q"))
    if columns >= 60 and rows >= 20:
        assert lines[1].startswith(DEVICE) and lines[1].endswith("64 MiB")
        assert len(listed(lines)) >= rows // 3
        assert "in tiers only" in "\n".join(lines) or rows < 24
    assert not one.screen.dirty - set(range(rows))


def test_more_objects_than_it_keeps(ctl, top):
    with ctl.daemon.connect() as peer:
        for i in range(1100):
            peer.create_object(f"many/{i:05}", bytes_layout(1))
        peer.unmap()
    one = top(80, 24, env={"LC_ALL": "C"})
    lines = one.shows("o/39")
    assert "objects 1140" in lines[0] and one.text.isascii()
    assert lines[-1].endswith("of the first 1000")
    one.type("\x1b[F")
    one.until(lambda lines: lines[-1].endswith("-1000 of the first 1000"))


def test_resizing(top):
    one = top(80, 24)
    few = len(listed(one.shows("o/39")))
    one.resize(120, 50)
    lines = one.until(lambda lines: lines[-1].startswith("q quit") and "version" in "".join(lines))
    assert len(listed(lines)) > few and len(lines[1]) == 120
    one.resize(60, 20)
    lines = one.until(lambda lines: lines[-1].startswith("q quit") and listed(lines))
    assert len(lines[1]) == 60 and len(listed(lines)) <= few


def test_without_colours_and_without_utf8(top):
    one = top(80, 24, env={"NO_COLOR": "1", "LC_ALL": "C"})
    lines = one.shows("o/39")
    assert not re.search(r"\x1b\[[\d;]+m", one.text)
    assert re.fullmatch(rf"{DEVICE} +#+\+*-+\.+ +64 MiB", lines[1])
    assert one.text.isascii()
    plain = top(80, 24)
    plain.shows("o/39")
    assert "\x1b[34m" in plain.text


# ---- keys --------------------------------------------------------------------------------------


def test_lists_and_orders(ctl, top):
    readers = []
    for i in range(3):
        readers.append(ctl.daemon.connect())
        readers[-1].call("hello", protocol=1, client=f"reader {i}")
        readers[-1].open_object(f"o/{i:02}")
    one = top(100, 30)
    one.shows("o/39")
    for forth, back in (("\t", "\x1b[Z"), ("\x1b[C", "\x1b[D"), ("\x1bOC", "\x1bOD")):
        one.type(forth)
        lines = one.until(lambda lines: "Sessions 3" in tab(lines))
        assert [line.split()[-2:] for line in lines if "reader" in line] == [
            ["reader", "2"], ["reader", "1"], ["reader", "0"]], "who holds most is first"
        one.type(forth)
        one.until(lambda lines: "Users 1" in tab(lines))
        one.type(back)
        one.until(lambda lines: "Sessions 3" in tab(lines))
        one.type(forth + forth)
        one.until(lambda lines: "Objects" in tab(lines))
    one.type("s")
    lines = one.until(lambda lines: "last used first" in tab(lines))
    assert set(listed(lines)[:3]) == {"o/00", "o/01", "o/02"}
    one.type("s")
    lines = one.until(lambda lines: "longest idle first" in tab(lines) and "o/03" in listed(lines))
    assert listed(lines)[:3] == ["o/03", "o/04", "o/05"]
    one.type("s")
    one.until(lambda lines: listed(lines)[:1] == ["o/39"])
    one.type("xyz\x1b[99~\x1b[Mé")  # nothing that it knows
    one.type("Q")
    one.end()


def test_help_reverse_and_filter(top):
    one = top(80, 24)
    one.shows("q quit  h help")
    one.type("r")
    lines = one.until(lambda lines: "reversed" in tab(lines) and "o/00" in listed(lines))
    assert listed(lines)[:2] == ["o/00", "o/01"]
    one.type("r")
    one.until(lambda lines: listed(lines)[:1] == ["o/39"])
    one.type("?")
    one.shows("these keys")
    one.type("r")  # only goes back
    one.until(lambda lines: "reversed" not in tab(lines) and listed(lines)[:1] == ["o/39"])
    one.type("/1q")
    one.shows("names with: 1q_")
    one.type("\x7f2")
    lines = one.until(lambda lines: listed(lines) == ["o/12"])
    assert "with 12" in tab(lines)
    one.type("\x15*/?1\r")
    lines = one.until(lambda lines: listed(lines) == ["o/31", "o/21", "o/11", "o/01"])
    assert lines[-1].startswith("q quit")
    one.type("/\x15" + "é" * 50)  # cut where there is no room
    one.until(lambda lines: listed(lines) == [])
    one.type("\x7f" * 60 + "\r")
    one.until(lambda lines: listed(lines)[:1] == ["o/39"])
    one.type("q")
    one.end()


def test_scrolling(top):
    one = top(80, 24)
    shown = len(listed(one.shows("o/39")))
    one.type("\x1b[B\x1b[B")
    one.until(lambda lines: listed(lines)[0] == "o/37")
    one.type("\x1b[A")
    one.until(lambda lines: listed(lines)[0] == "o/38")
    one.type("j")
    one.until(lambda lines: listed(lines)[0] == "o/37")
    one.type("k")
    one.until(lambda lines: listed(lines)[0] == "o/38")
    one.type("\x1b[6~")
    one.until(lambda lines: listed(lines)[0] == f"o/{38 - shown + 1:02}")
    one.type("\x1b[5~")
    one.until(lambda lines: listed(lines)[0] == "o/38")
    one.type("\x1b[F")
    assert one.until(lambda lines: listed(lines)[-1] == "o/00")[-1].endswith("-40 of 40")
    one.type("\x1b[6~\x1b[B")  # past the end
    one.type("\x1b[H")
    one.until(lambda lines: listed(lines)[0] == "o/39")


def test_a_key_in_pieces(top):
    one = top(80, 24)
    one.shows("o/39")
    for piece in "\x1b[B":
        one.type(piece)
        one.read()
    assert one.until(lambda lines: listed(lines)[0] == "o/38")


# ---- ends, and interruptions -------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT])
def test_signals_end_it_as_they_should(top, number):
    one = top()
    one.shows("o/39")
    assert one.settings() != one.before and all(mode in one.text for mode in MODES)
    os.kill(one.pid, number)
    one.end(-number)


def test_control_c(top):
    one = top()
    one.shows("o/39")
    one.type("\x03")
    one.end(-signal.SIGINT)


def test_stopping_and_going_on(top):
    one = top()
    one.shows("o/39")
    for _ in range(2):
        one.text = one.text[-20:]
        os.kill(one.pid, signal.SIGTSTP)
        one.until_stopped()
        end = time.monotonic() + DEADLINE
        while not one.text.endswith("\x1b[?1049l"):
            one.read()
            assert time.monotonic() < end
        assert one.settings() == one.before
        one.screen.reset()
        os.kill(one.pid, signal.SIGCONT)
        assert listed(one.shows("o/39"))[0] == "o/39"
        assert one.settings() != one.before
    one.type("q")
    one.end()


def test_stopped_without_a_word(top):
    """SIGSTOP cannot be seen coming; whoever used the terminal meanwhile has changed it."""
    one = top()
    one.shows("o/39")
    os.kill(one.pid, signal.SIGSTOP)
    one.until_stopped()
    termios.tcsetattr(one.child, termios.TCSADRAIN, one.before)
    one.text = ""
    os.kill(one.pid, signal.SIGCONT)
    # A screen that it wrote before it was stopped may be read only now: the new one follows on the modes.
    one.until(lambda lines: MODES[0] in one.text and one.settings() != one.before and "o/39" in listed(lines))


def test_the_terminal_is_gone(ctl):
    one = Top(ctl)
    try:
        one.shows("o/39")
        os.close(one.child)
        os.close(one.parent)
        assert one.process.wait(DEADLINE) == OK
    finally:
        one.kill()


# ---- the daemon --------------------------------------------------------------------------------


def test_the_daemon_goes_and_another_comes(ctl, top, daemon_factory):
    one = top()
    one.shows("o/39")
    ctl.daemon.process.kill()
    ctl.daemon.process.wait()
    one.until(lambda lines: "connect" in lines[0] or "daemon" in lines[0][12:])
    assert listed(one.lines())[0] == "o/39", "the last that was known stays"
    argv = ctl.daemon.process.args
    another = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=test_device.environment())
    try:
        one.until(lambda lines: "objects 0" in lines[0] and not listed(lines))
    finally:
        another.terminate()
        assert another.wait(DEADLINE) == 0


def test_the_daemon_hangs(ctl, top):
    """It says so, and keys are heard all the same."""
    one = top()
    one.shows("o/39")
    os.kill(ctl.daemon.pid, signal.SIGSTOP)
    try:
        one.shows("no answer for")
        one.type("\x1b[B")
        one.until(lambda lines: listed(lines)[0] == "o/38")
        one.type("q")
        one.end()
    finally:
        os.kill(ctl.daemon.pid, signal.SIGCONT)


def test_no_terminal_is_wanted_where_there_is_none(ctl, top):
    """On a dumb terminal it prints once."""
    one = top(80, 24, env={"TERM": "dumb"})
    assert one.process.wait(DEADLINE) == OK
    while select.select([one.parent], [], [], 0)[0]:
        one.read()
    assert "o/39" in one.text and "\x1b" not in one.text
    assert one.settings() == one.before
