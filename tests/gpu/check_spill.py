"""Tiers below a GPU: more than fits goes through it, and every byte comes back."""

import os
import time

from harness import MIB, check, equal, eventually, expect


def tiers(t, host, disk=None):
    options = ["--tier", f"host:{host // MIB}M"]
    if disk:
        place = t.directory / "spill"
        place.mkdir()
        options += ["--tier", f"disk:{disk // MIB}M:{place}"]
    return options


def accounted(t, daemon, before, context):
    """The daemon's figures of the device agree with the driver's figure of free memory, but for the
    daemon's context."""

    def agrees():
        figures = daemon.figures()
        allocated = figures["used"] + figures["retained"] + figures["pinned_by_clients"]
        equal(figures["free"] + allocated, figures["capacity"], "the account")
        return abs(before - t.free() - allocated - context) <= 2 * MIB + t.slack()

    eventually(agrees, "what the driver misses is what the daemon has and its context")


@check("a working set of four times the budget is cycled through, and every object is verified",
       seconds=240)
def four_times(t):
    budget = t.mib(8192, 64)
    daemon = t.daemon(f"cuda:0:{budget // MIB}M", options=tiers(t, 5 * budget))
    count = budget // 32
    names = [f"o/{i}" for i in range(4 * 32)]
    writer = t.worker(daemon)
    for i, name in enumerate(names):
        writer.put(name, count, i % 251 + 1)
        writer.unmap()
    figures = daemon.figures()
    equal(figures["evictions"], 0, "evictions")
    expect(figures["spilled"] >= 3 * 32 - 8, f"{figures['spilled']} objects are below")
    for _ in range(2):
        for i, name in enumerate(names):
            writer.open(name)
            equal(writer.sum(name), (i % 251 + 1) * count, name)
            writer.release(name)
            writer.unmap()
    figures = daemon.figures()
    equal(figures["evictions"], 0, "evictions")
    expect(figures["restores"] >= 7 * 32, f"{figures['restores']} restores")
    tier = daemon.call("stats")["tiers"][0]
    t.note("restored GB/s", round(tier["read_bytes"] / tier["read_us"] / 1e3, 2))
    t.note("spilled GB/s", round(tier["written_bytes"] / tier["write_us"] / 1e3, 2))
    daemon.delete(names)
    expect(daemon.call("stats")["tiers"][0]["used"] == 0, "the tier is empty")


@check("from the GPU to a file and back", seconds=120)
def to_disk(t):
    daemon = t.daemon(options=tiers(t, t.mib(512, 32), t.mib(4096, 128)))
    worker = t.worker(daemon)
    count = t.mib(256, 4)
    for i in range(8):
        worker.put(f"o/{i}", count, i + 1)
        worker.unmap()
        daemon.call("move", name=f"o/{i}", tier="disk")
    equal(len([f for f in os.listdir(t.directory / "spill") if f.endswith(".spill")]), 8, "files")
    for i in range(8):
        worker.open(f"o/{i}")
        equal(worker.sum(f"o/{i}"), (i + 1) * count)
        worker.release(f"o/{i}")
        worker.unmap()
    disk = daemon.call("stats")["tiers"][1]
    t.note("written GB/s", round(disk["written_bytes"] / disk["write_us"] / 1e3, 2))
    t.note("read GB/s", round(disk["read_bytes"] / disk["read_us"] / 1e3, 2))


@check("the account of a device that spills, against the driver's")
def account(t):
    before = t.free()
    daemon = t.daemon(options=tiers(t, t.mib(8192, 128)))
    accounted(t, daemon, before, 0)

    def fill(turn):
        worker = t.worker(daemon)
        for i in range(24):
            worker.put(f"o/{turn}/{i}", t.capacity() // 10 + (i + turn) * 4096, i + 1)
            worker.unmap()
        t.close_workers()
        daemon.sessions(0)

    def overhead():
        """The daemon's own memory, once the driver has cleared the worker away: two figures in a row
        are the same."""
        found = [None, None]

        def settled():
            figures = daemon.figures()
            taken = figures["used"] + figures["retained"] + figures["pinned_by_clients"]
            found[:] = [found[1], before - t.free() - taken]
            time.sleep(0.2)
            return found[0] == found[1] and not figures["leaving"]

        eventually(settled, "the driver's figures stay as they are")
        return found[1]

    fill(0)  # the first copies make a context, and what the driver keeps beside it
    context = overhead()
    t.note("context MiB", round(context / MIB, 1))
    daemon.delete_all()
    fill(1)
    accounted(t, daemon, before, context)
    daemon.delete_all()
    daemon.trim()
    accounted(t, daemon, before, context)
    daemon.stop()
    t.free_again(before, "after the daemon's end")


@check("share=ipc memory is spilled and restored, too")
def legacy(t):
    daemon = t.daemon(options=tiers(t, t.mib(512, 32)))
    worker = t.worker(daemon)
    count = t.mib(64, 2)
    worker.put("a", count, 7, share="ipc")
    worker.unmap()
    daemon.call("move", name="a")
    equal(daemon.call("stat", name="a")["object"]["tier"], "host")
    worker.open("a")
    equal(worker.sum("a"), 7 * count)


@check("a reader's mapping stays good while what it reads is copied below and others leave")
def read_while_spilling(t):
    daemon = t.daemon(options=(*tiers(t, t.mib(8192, 128)), "--watermarks", "20:30"))
    writer, reader = t.worker(daemon), t.worker(daemon)
    count = t.capacity() // 4
    writer.put("read", count, 9)
    writer.unmap()
    reader.open("read")
    for i in range(12):
        writer.put(f"o/{i}", count // 2, i + 1)
        writer.unmap()
        equal(reader.sum("read"), 9 * count)
    equal(daemon.call("stat", name="read")["object"]["tier"], "device")
    for i in range(12):
        reader.open(f"o/{i}")
        equal(reader.sum(f"o/{i}"), (i + 1) * (count // 2))
        reader.release(f"o/{i}")
    reader.release("read")
