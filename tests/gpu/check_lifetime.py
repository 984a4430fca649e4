"""How long memory lives: nothing is lost when a process ends, however it ends, and nothing is kept."""

from harness import check, equal, expect


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
