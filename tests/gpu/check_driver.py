"""This driver does what gpubufd counts on, and tests/fakecuda answers as the driver does."""

import json

from harness import HERE, Failure, check, equal, expect

ANSWERS = HERE / "probe.json"


def compare(t, found):
    """Whether the answers are those in probe.json, which are the fake driver's. All of them are
    kept among the logs; what differs is told."""
    (t.directory / "answers.json").write_text(json.dumps(found, indent=1) + "\n")
    known = json.loads(ANSWERS.read_text())
    differ = [name for name in found if known.get(name) != found[name]]
    for name in differ:
        t.note(name, f"{found[name]} (the fake driver: {known.get(name, 'not asked')})")
    if differ:
        raise Failure(f"{len(differ)} of {len(found)} answers are not the fake driver's")
    t.note("answers", len(found))


@check("the driver answers as tests/fakecuda does: memory, descriptors, handles, pointers",
       seconds=120)
def answers(t):
    found, worker = {}, t.worker()
    for name in worker.run("probe", "names"):
        try:
            worker.begin("run", "probe", "ask", name)
            found[name], good = worker.end(timeout=30)
        except Failure as failure:  # a driver need not survive every question
            found[name], good = str(failure).partition(";")[0], False
        if not good:
            worker.kill()
            worker = t.worker()
    compare(t, found)


@check("the driver answers as tests/fakecuda does: a process without a context")
def answers_without_context(t):
    worker = t.worker(start=False)
    worker.init()
    compare(t, worker.run("probe", "ask_without_context"))


@check("the driver answers as tests/fakecuda does: between two processes")
def answers_between(t):
    daemon = t.daemon()
    one, two = t.worker(daemon), t.worker(daemon)
    found = {}
    text = one.own_ipc(4 << 20, 5)
    found["open_handle"] = two.open_ipc(text)
    found["open_handle_again"] = two.open_ipc(text)
    one.fill_own(6)
    one.free_own()
    found["open_handle_that_is_open_after_free"] = two.open_ipc(text)
    third = t.worker()
    found["open_handle_after_free"] = third.open_ipc(text)
    text = one.own_ipc(4 << 20, 5)
    one.kill()
    found["open_handle_after_kill"] = third.open_ipc(text)
    compare(t, found)


@check("memory of a descriptor is mapped once for reading and once for writing: PROT_READ is no lock")
def descriptor_is_no_lock(t):
    worker = t.worker()
    equal(worker.run("check_driver", "map_both_ways"), [7, 8])


def map_both_ways(work):
    """(in a worker) what a kernel finds by way of a mapping for reading before and after a kernel
    wrote by way of another."""
    import gpu_driver as cuda

    count = 4 << 20
    fd = work.cu.export(work.cu.create(count))
    write = work.cu.map(work.cu.import_fd(fd), count, cuda.READWRITE)
    read = work.cu.map(work.cu.import_fd(fd), count, cuda.READ)
    found = []
    for value in (7, 8):
        work.cu.fill(write, value, count)
        work.cu.cuCtxSynchronize()
        found.append(work.cu.sum(read, count) // count)
    return found


@check("an exported descriptor keeps the memory when its maker is gone")
def descriptor_keeps(t):
    before = t.free()
    daemon, worker = t.with_workers(1)
    worker.create("a", t.mib(128, 8))
    worker.kill()
    daemon.sessions(0)
    expect(before - t.free() >= 0, "the GPU's memory can be seen")
    daemon.trim()
    t.free_again(before, "after the daemon has given it back")
