"""How long memory lives: nothing is lost when a process ends, however it ends, and nothing is kept."""

from harness import MIB, check, equal, expect


@check("released, deleted and trimmed memory is free again")
def memory_returns(t):
    daemon, writer, reader = t.with_workers(2)
    before = t.free()
    count = t.mib(1024, 16)
    writer.put("a", count, 1)
    reader.open("a")
    expect(before - t.free() >= count, "the object takes memory of the GPU")
    reader.release("a")
    daemon.call("delete", name="a")
    for worker in (writer, reader):
        worker.unmap()
    daemon.trim()
    t.free_again(before, "after delete and trim")
    equal(daemon.figures()["segments"], 0)


@check("an object that is deleted while it is read stays until the reader has finished")
def deleted_while_read(t):
    daemon, writer, reader = t.with_workers(2)
    before = t.free()
    count = t.mib(256, 8)
    writer.put("a", count, 5)
    writer.unmap()
    reader.open("a")
    daemon.call("delete", name="a")
    daemon.trim()
    equal(reader.sum("a"), 5 * count)
    writer.put("b", count, 6)  # must not get the same memory
    equal(reader.sum("a"), 5 * count)
    daemon.call("delete", name="b")
    reader.release("a")
    for worker in (writer, reader):
        worker.unmap()
    daemon.trim()
    t.free_again(before, "after the release")


@check("eviction: three times the capacity goes through, the GPU never gives more than the capacity")
def eviction(t):
    daemon, writer, reader = t.with_workers(2)
    before = t.free()
    pieces, count = 24, t.capacity() // 8
    least = before
    for i in range(pieces):
        writer.put(f"o/{i}", count, i + 1, evict="drop")
        writer.unmap()
        least = min(least, t.free())
    figures = daemon.figures()
    expect(figures["evictions"] >= pieces - 8, f"only {figures['evictions']} evictions")
    expect(before - least <= t.capacity() + t.slack(),
           f"{(before - least) // MIB} MiB were taken of {t.capacity() // MIB}")
    reader.open(f"o/{pieces - 1}")
    equal(reader.sum(f"o/{pieces - 1}"), pieces * count)
    reader.fails("not_found", "open", "o/0")
    reader.release(f"o/{pieces - 1}")
    reader.unmap()
    daemon.delete_all()
    daemon.trim()
    t.free_again(before, "after all was deleted")


@check("what a reader has merely kept mapped is asked back when memory is short")
def retired(t):
    daemon, writer, reader = t.with_workers(2)
    count = t.capacity() // 2 + 2 * MIB
    writer.put("a", count, 1, evict="drop")
    writer.unmap()
    reader.open("a")
    reader.release("a")
    # Of another domain, so that the segment cannot be reused.
    writer.begin("create", "b", count, mode="0644", wait_ms=20000)
    equal(len(reader.notified("segments.retire")["segments"]), 1)
    reader.unmap()
    equal(writer.end()["bytes"], count)
    writer.fill("b", 2)
    writer.seal("b")
    reader.open("b")
    equal(reader.sum("b"), 2 * count)


@check("a reader is killed: its lease is gone, and so is the memory once it is deleted")
def reader_killed(t):
    daemon, writer = t.with_workers(1)
    before = t.free()
    count = t.mib(512, 16)
    writer.put("a", count, 1)
    writer.unmap()
    reader = t.worker(daemon)
    reader.open("a")
    equal(daemon.call("stat", name="a")["object"]["leases"], 1)
    reader.kill()
    daemon.sessions(1)
    equal(daemon.call("stat", name="a")["object"]["leases"], 0)
    daemon.call("delete", name="a")
    daemon.trim()
    t.free_again(before, "after the reader was killed")


@check("a writer is killed before it seals: its object was never there, its memory is free")
def writer_killed_unsealed(t):
    daemon, reader = t.with_workers(1)
    before = t.free()
    writer = t.worker(daemon)
    writer.create("a", t.mib(512, 16))
    writer.fill("a", 1)
    writer.kill()
    daemon.sessions(1)
    reader.fails("not_found", "open", "a")
    equal(daemon.figures()["used"], 0)
    daemon.trim()
    t.free_again(before, "after the writer was killed")


@check("a writer is killed after it has sealed: its object is read by processes that start later")
def writer_killed_sealed(t):
    daemon, writer = t.with_workers(1)
    count = t.mib(512, 16)
    writer.put("a", count, 11)
    writer.kill()
    reader = t.worker(daemon)
    reader.open("a")
    equal(reader.sum("a"), 11 * count)
    daemon.call("delete", name="a")
    reader.release("a")
    reader.unmap()


@check("killed at any time: eight processes that write and read, no memory is lost")
def killed_at_any_time(t):
    daemon = t.daemon()
    survivor = t.worker(daemon)
    before = t.free()
    count = t.mib(64, 4)
    survivor.put("shared", count, 1)
    survivor.unmap()
    for turn in range(2):
        workers = [t.worker(daemon, start=False) for _ in range(4)]
        for worker in workers:
            worker.begin("start")
        for worker in workers:
            worker.end()
        for i, worker in enumerate(workers):
            worker.begin("put" if i % 2 else "create", f"w/{turn}/{i}", count,
                         *([i] if i % 2 else []))
        for worker in workers[2:]:
            worker.end()
            worker.open("shared")
            worker.begin("sum", "shared")
        for worker in workers:
            worker.kill()
    daemon.sessions(1)
    survivor.open("shared")
    equal(survivor.sum("shared"), count)
    survivor.release("shared")
    survivor.unmap()
    daemon.delete_all()
    daemon.trim()
    t.free_again(before, "after all were killed")


@check("the daemon is killed with readers in the middle: they read on, and a new daemon serves")
def daemon_killed(t):
    daemon = t.daemon()
    before = t.free()
    writer, readers = t.worker(daemon), [t.worker(daemon) for _ in range(2)]
    count = t.mib(512, 16)
    writer.put("a", count, 13)
    for reader in readers:
        reader.open("a")
    writer.kill()
    daemon.kill()
    for reader in readers:
        equal(reader.sum("a"), 13 * count)
    expect(before - t.free() >= count, "the memory is there as long as it is mapped")
    successor = t.daemon()
    for reader in readers:
        reader.connect(successor.path)
        reader.fails("not_found", "open", "a")
    readers[0].put("b", count, 1)
    t.close_workers()
    successor.sessions(0)
    successor.stop()
    t.free_again(before, "after the readers and both daemons have ended")


@check("the daemon is stopped with a reader in the middle: it reads on, and its memory goes with it")
def daemon_stopped(t):
    daemon = t.daemon()
    before = t.free()
    reader = t.worker(daemon)
    count = t.mib(512, 16)
    reader.put("a", count, 17)
    reader.open("a")
    daemon.stop()
    equal(reader.sum("a"), 17 * count)
    reader.kill()
    t.free_again(before, "after the reader has ended")
