"""The same through libgpubuf."""

from harness import MIB, WorkerError, check, equal, eventually, expect


def client(t, daemon, ordinal=0, needs=(), **environment):
    worker = t.worker(ordinal=ordinal, **environment)
    lacking = worker.run("library", "lacks", ["gpubuf_device_ordinal", *needs])
    if lacking:
        t.skip(f"this libgpubuf has no {', '.join(lacking)}")
    worker.run("library", "connect", daemon.path)
    return worker


def uuids(worker):
    return worker.run("check_devices", "uuids")


@check("libgpubuf: what a kernel of one process writes a kernel of another reads, read-only")
def lib_two_processes(t):
    daemon = t.daemon()
    writer, reader = client(t, daemon), client(t, daemon)
    count, uuid = t.mib(64, 4), uuids(writer)[0]
    for share in ("fd", "ipc"):
        writer.run("library", "put", share, count, 7, share=share)
        found = reader.run("library", "open_and_sum", share, keep=share == "fd")
        equal(found[:1] + found[2:], [7 * count, uuid, 0], share)
        expect(not found[1], f"{share}: it says that it is writable")
    equal(reader.run("library", "write_kernel", "fd"), "CUDA_ERROR_ILLEGAL_ADDRESS")
    equal(writer.run("library", "open_and_sum", "fd")[0], 7 * count)


@check("libgpubuf: put of device and of host memory, write and read of parts, on a stream and not")
def lib_copies(t):
    daemon = t.daemon()
    writer = client(t, daemon, needs=("gpubuf_read", "gpubuf_write"))
    reader = client(t, daemon)
    count = t.mib(16, 2)
    for where, value in (("device", 5), ("host", 6)):
        writer.run("library", "put_bytes", where, count, value, where)
        equal(reader.run("library", "open_and_sum", where)[0], value * count, where)
    found = writer.run("library", "copy", "parts", count)
    equal(found, [3 * count // 2, 4 * count // 2, "busy", "invalid"])
    equal(reader.run("library", "open_and_sum", "parts")[0], 7 * count // 2)


@check("libgpubuf: seal_on and wait_ready keep the order on the device, release_on defers")
def lib_order(t):
    daemon = t.daemon()
    needs = ("gpubuf_seal_on", "gpubuf_wait_ready", "gpubuf_release_on")
    writer, waiting, careless = (client(t, daemon, needs=needs) for _ in range(3))
    count = 4 * MIB
    writer.run("library", "begin_slow_seal", "a", count, 1, 2)
    waiting.run("library", "begin_sum", "a", True)
    careless.run("library", "begin_sum", "a", False)
    equal(careless.end_sum(), count, "without waiting")
    expect(not waiting.sum_is_done(), "the sum that waits is done before the writer's kernel")
    writer.open_gate()
    equal(waiting.end_sum(), 2 * count, "after waiting")
    writer.run("library", "dispatch")
    expect("ready" not in daemon.call("stat", name="a")["object"], "the library settles it")
    for worker in (waiting, careless):
        worker.run("library", "release_kept", "a")
    writer.run("library", "release_kept", "a")

    reader = client(t, daemon)
    reader.run("library", "release_on", "a")
    reader.run("library", "dispatch")
    leases = [o for o in daemon.call("leases", name="a")["leases"]]
    equal(len(leases), 1, "leases while the stream is busy")
    reader.run("library", "end_release")
    reader.run("library", "dispatch")

    def gone():
        reader.run("library", "dispatch")
        return not daemon.call("leases", name="a")["leases"]

    eventually(gone, "the lease ends when the stream is done")


@check("libgpubuf: registers memory of cuMemCreate and cuMemAlloc, and refuses what cannot be shared")
def lib_register(t):
    daemon = t.daemon()
    reader = client(t, daemon, needs=("gpubuf_register_device",))
    count = t.mib(32, 4)
    for kind, offset in (("vmm", 0), ("alloc", 0), ("vmm", MIB), ("alloc", 4096)):
        producer = client(t, daemon)
        name = f"{kind}/{offset}"
        producer.run("library", "register", name, kind, count, 9, offset)
        equal(reader.run("library", "open_and_sum", name)[0], 9 * (count - offset), name)
        producer.kill()
        if kind == "vmm":
            equal(reader.run("library", "open_and_sum", name)[0], 9 * (count - offset), name)
    refused = ["vmm, not exportable", "host"] + ([] if t.fake else ["managed", "stream-ordered"])
    for kind in refused:
        producer = client(t, daemon)
        sentence = producer.fails(("unsupported", "invalid"), "run", "library", "register", "no",
                                  kind, count, 1)
        t.note(kind, sentence)
        producer.kill()


@check("libgpubuf: a column as ArrowDeviceArray")
def lib_arrow(t):
    daemon = t.daemon()
    worker = client(t, daemon, needs=("gpubuf_export_arrow_device",))
    found = worker.run("library", "arrow", "a", 1000)
    equal(found, ["g", 2, 0, 2, False, 499500.0, None, None])


@check("libgpubuf, two GPUs: finds its GPU where it is another number, says so where it is hidden",
       gpus=2)
def lib_devices(t):
    daemon = t.daemon_of_two()
    writer = client(t, daemon)
    count, seen = 4 * MIB, uuids(writer)
    for share in ("fd", "ipc"):
        writer.run("library", "put", share, count, 3, device=seen[0], share=share)
        other = client(t, daemon, ordinal=1, CUDA_VISIBLE_DEVICES="1,0")
        equal(other.run("library", "open_and_sum", share), [3 * count, False, seen[0], 1], share)
        blind = client(t, daemon, CUDA_VISIBLE_DEVICES="1")
        try:
            blind.run("library", "open_and_sum", share)
        except WorkerError as error:
            t.note(share, error)
            equal(error.name, "unsupported", share)
            expect(seen[0] in str(error), "the sentence names the GPU")
        else:
            expect(False, f"{share}: opened on a GPU that is hidden")
        for worker in (other, blind):
            worker.kill()
