"""Notes of a client of the killing test (tests/soak) outlive it, whenever it is killed."""

import ctypes
import os
import signal
import sys

import pytest
from device import ROOT

sys.path.insert(0, str(ROOT / "tests" / "soak"))

import truth  # noqa: E402

TRACEME, SINGLESTEP = 0, 9
REFUSED = 77  # what a child exits with that may not be traced
VALUES = [(7, 1, 0, 1), (8, 4096, 100, 31), (1 << 63, 2_500_000, 0, 2_500_000)]


pytestmark = pytest.mark.host_only("there is no device in it")


def ptrace(request, pid=0):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, pid, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def traced(work, notes):
    """(in a child) Never returns."""
    status = REFUSED
    try:
        ptrace(TRACEME)
        status = 1
        os.kill(os.getpid(), signal.SIGSTOP)
        work(notes)
        status = 0
    finally:
        os._exit(status)


def seen(work):
    """The notes as work(notes) goes on, looked at before each of its instructions."""
    notes = truth.Notes()
    notes.clear()
    pid = os.fork()
    if pid == 0:
        traced(work, notes)
    states, memory = [], None
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == REFUSED:
        pytest.skip("no process may be traced here")
    while os.WIFSTOPPED(status):
        before, memory = memory, notes.memory[:512]
        if memory != before and notes.read() not in states[-1:]:
            states.append(notes.read())
        ptrace(SINGLESTEP, pid)
        _, status = os.waitpid(pid, 0)
    assert status == 0
    return states


def test_a_note_is_there_or_not_yet():
    """Whatever instruction a client dies at, what it had noted before is there."""
    def work(notes):
        notes.begin()
        for name, value in enumerate(VALUES):
            number = notes.intend(truth.PUT, name, value)
            if name != 1:
                notes.end(number, truth.DONE)

    def note(name, outcome):
        return truth.PUT, outcome, name, VALUES[name]

    first, second = note(0, truth.DONE), note(1, truth.INTENDED)
    assert seen(work) == [
        [], [note(0, truth.INTENDED)], [first], [first, second],
        [first, second, note(2, truth.INTENDED)], [first, second, note(2, truth.DONE)]]


def test_notes_begin_anew():
    notes = truth.Notes()
    for _ in range(2):
        notes.clear()
        notes.begin()
        assert notes.read() == [] and not notes.full()
        while not notes.full():
            notes.end(notes.intend(truth.DELETE, 3), truth.NOT_DONE)
        assert len(notes.read()) > 1000
        assert set(notes.read()) == {(truth.DELETE, truth.NOT_DONE, 3, (0, 0, 0, 0))}
