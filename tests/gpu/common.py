"""Helpers of the scripts for a machine with a GPU: a daemon of their own, a skip for modules that are missing, and a loop of
checks that goes on when one fails."""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback


class Skip(Exception):
    """The check cannot be made here; the text says why."""


def need(name):
    """A module, or Skip."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(f"{name} is not here: {error}") from None


def mend_numba():
    """numba 0.68 overloads a function that NumPy 2.5 has no more."""
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def end_with_parent():
    """(in a child) Neither the checks nor a daemon outlive the program, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def serving(program, path, *words, env=None, log=None):
    """A process of the daemon that listens at the path, and ends with the block; what it says goes to the file `log`."""
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(open(log, "ab")) if log else subprocess.DEVNULL
        daemon = subprocess.Popen([program, "--socket", path, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=said, preexec_fn=end_with_parent)
        try:
            end = time.monotonic() + 60
            while not os.path.exists(path):
                if daemon.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the daemon does not listen: {daemon.poll()}" + (f"; see {log}" if log else ""))
                time.sleep(0.01)
            yield daemon
        finally:
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def check(checks):
    """A decorator of functions: adds (title, function)."""

    def titled(title):
        def add(function):
            checks.append((title, function))
            return function

        return add

    return titled


def make_checks(checks, place, seconds, limit=0, after=lambda: None):
    """{state: how many}. None is begun after `seconds`, and one is interrupted after `limit` if that is not 0. Prints a line
    for each, and then the table of place.rows."""

    def late(signum, frame):
        raise TimeoutError("it takes too long")

    counts = {"passed": 0, "failed": 0, "skipped": 0}
    begun = time.monotonic()
    signal.signal(signal.SIGALRM, late)
    for title, function in checks:
        started, state, said = time.monotonic(), "passed", ""
        if started - begun > seconds:
            state, said = "skipped", "no time left"
        else:
            signal.alarm(limit)
            try:
                function(place)
            except Skip as why:
                state, said = "skipped", str(why)
            except Exception as error:  # noqa: BLE001: the next one is made all the same
                state, said = "failed", f"{type(error).__name__}: {error}"
                traceback.print_exc(file=sys.stderr)
            signal.alarm(0)
        counts[state] += 1
        print(f"{state:8}{title} ({time.monotonic() - started:.1f} s){said and ': ' + said[:1500]}", flush=True)
        after()
    print("\n| | measured | beside it | |\n|---|---|---|---|")
    for row in place.rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(f"{time.monotonic() - begun:.0f} s")
    return counts
