"""Objects sealed on a GPU outlive a daemon that is killed."""

import os
import signal

from harness import MIB, check, equal, eventually, expect

ROUNDS = int(os.environ.get("GPUBUF_ROUNDS", "20"))


def child(daemon):
    """The daemon under its supervisor."""
    with open(f"/proc/{daemon.pid}/task/{daemon.pid}/children", encoding="ascii") as file:
        found = file.read().split()
    return int(found[0]) if found else None


def kill(daemon):
    """kill -9; returns when another daemon answers."""
    before = child(daemon)
    os.kill(before, signal.SIGKILL)

    def another():
        if child(daemon) in (None, before):
            return False
        try:
            return bool(daemon.call("stats"))
        except (OSError, EOFError, AssertionError):
            return False
        except Exception as error:  # noqa: BLE001  (the peer's own: the connection broke)
            expect(type(error).__name__ in ("Closed", "Timeout"), repr(error))
            return False

    eventually(another, "a daemon serves again")


@check("the daemon is killed again and again: what was sealed is there, byte for byte", seconds=600)
def killed(t):
    before = t.free()
    daemon = t.daemon(options=("--supervise", "--grace", "0"))
    worker, reader = t.worker(daemon), t.worker(daemon)
    count = t.mib(16, 2)
    reader_value = 7
    worker.put("kept", count, reader_value)
    reader.open("kept")
    values = {}
    for turn in range(ROUNDS):
        name, value = f"o/{turn % 12}", turn % 250 + 1
        worker.put(name, count, value, replace=True)
        values[name] = value
        if turn % 3 == 2:  # one that is not sealed goes with the daemon
            worker.create("unsealed", count)
        kill(daemon)
        equal(reader.sum("kept"), reader_value * count, "what was mapped before")
        worker.forget()
        worker.connect(daemon.path)
        names = sorted(o["name"] for o in daemon.call("list")["objects"])
        equal(names, sorted([*values, "kept"]), f"names after round {turn}")
        for name, value in values.items():
            worker.open(name)
            equal(worker.sum(name), value * count, f"{name} after round {turn}")
            worker.release(name)
        worker.unmap()
        figures = daemon.figures()
        equal(figures["free"] + figures["used"] + figures["retained"]
              + figures["pinned_by_clients"], figures["capacity"], "the account")
    t.note("rounds", ROUNDS)
    t.close_workers()
    daemon.delete([*values, "kept"])
    daemon.trim()
    t.free_again(before, "after all was deleted")


@check("what was spilled is there after the daemon was killed, and share=ipc is withdrawn", seconds=120)
def spilled(t):
    daemon = t.daemon(options=("--supervise", "--grace", "0",
                               "--tier", f"host:{t.mib(1024, 64) // MIB}M"))
    worker = t.worker(daemon)
    count = t.mib(64, 4)
    for i in range(3):
        worker.put(f"o/{i}", count, i + 1)
    worker.put("legacy", count, 9, share="ipc")
    worker.unmap()
    for i in range(2):
        daemon.call("move", name=f"o/{i}")
    kill(daemon)
    worker.forget()
    worker.connect(daemon.path)
    equal(sorted(o["name"] for o in daemon.call("list")["objects"]), ["o/0", "o/1", "o/2"])
    equal(daemon.call("stat", name="o/0")["object"]["tier"], "host")
    for i in range(3):
        worker.open(f"o/{i}")
        equal(worker.sum(f"o/{i}"), (i + 1) * count)
        worker.release(f"o/{i}")
