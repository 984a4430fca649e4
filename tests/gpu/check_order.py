"""Order between processes on the device, without anybody's CPU waiting."""

from harness import check, equal, expect

OLD, NEW = 0x11, 0x22


def begin(t):
    """A writer whose kernel stands at a gate, and whose object is sealed all the same."""
    daemon, writer, waiting, careless = t.with_workers(3)
    count = t.mib(4, 1)
    writer.create("a", count)
    writer.fill("a", OLD)
    seconds = writer.begin_slow_seal("a", NEW)
    t.note("the writer's CPU was held up for", f"{seconds * 1e6:.0f} us")
    return daemon, writer, waiting, careless, count


@check("seal with an event: the reader's stream waits for the writer's kernel, nobody's CPU does")
def ordered(t):
    daemon, writer, waiting, careless, count = begin(t)
    for reader in (waiting, careless):
        expect("ready" in reader.open("a"), "the object says that its content is yet to come")
    seconds = waiting.begin_sum("a", wait=True)
    t.note("the reader's CPU was held up for", f"{seconds * 1e6:.0f} us")
    # One that does not wait sees what was there before: so this check can fail.
    careless.begin_sum("a", wait=False)
    equal(careless.end_sum(), OLD * count, "without waiting")
    expect(not waiting.sum_is_done(), "the sum that waits is done before the writer's kernel")
    writer.open_gate()
    equal(waiting.end_sum(), NEW * count, "after waiting")
    version = daemon.call("stat", name="a")["object"]["version"]
    writer.call("settle", objects=[{"name": "a", "version": version}])
    expect("ready" not in daemon.call("stat", name="a")["object"], "it is settled")
    late = t.worker(daemon)
    expect("ready" not in late.open("a"), "it is settled")
    equal(late.sum("a"), NEW * count)


@check("a writer that is killed before its kernel is done takes its object with it")
def unsettled_writer_killed(t):
    daemon, writer, waiting, _, _ = begin(t)
    waiting.call("watch", prefix="a", kinds=["withdrawn"])
    writer.kill()
    equal(waiting.notified("event")["kind"], "withdrawn")
    waiting.fails("not_found", "open", "a")
    waiting.unmap()
    equal(daemon.figures()["used"], 0)
