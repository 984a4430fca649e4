"""Memory that a producer has already: adopted by its descriptor, or lent by its 64 octets."""

import base64

from harness import MIB, check, equal, eventually, expect


def bytes_of(count, offset=0):
    return {"kind": "bytes", "bytes": count,
            "data": {"handle": 0, "offset": offset, "bytes": count}}


def fd_handle(uuid, count):
    return {"kind": "cuda_fd", "fd": 0, "bytes": count, "device": uuid}


def ipc_handle(uuid, text, count):
    return {"kind": "cuda_ipc", "ipc": text, "bytes": count, "device": uuid}


@check("memory of cuMemCreate is registered by its descriptor, and outlives its producer")
def adopted(t):
    daemon, reader = t.with_workers(1)
    before = t.free()
    producer = t.worker()
    uuid = producer.connect(daemon.path)["devices"][0]["id"]
    count = t.mib(256, 8)
    producer.own_fd(count, 4)
    producer.register("a", bytes_of(count // 2, count // 4), [fd_handle(uuid, count)])
    producer.kill()
    reader.open("a")
    equal(reader.sum("a"), 4 * count // 2)
    equal(reader.try_to_write("a", "HtoD"), "CUDA_ERROR_INVALID_VALUE", "it is read-only")
    daemon.call("delete", name="a")
    reader.release("a")
    reader.unmap()
    daemon.trim()
    t.free_again(before, "after it was deleted")


@check("memory of cuMemAlloc is registered by its handle, and withdrawn when its producer ends")
def lent(t):
    daemon = t.daemon()
    reader, producer = t.worker(daemon), t.worker()
    uuid = producer.connect(daemon.path)["devices"][0]["id"]
    count = t.mib(64, 8)
    text = producer.own_ipc(count, 4)
    producer.fill_own(6, count // 2)
    producer.register("a", bytes_of(count // 2, count // 2), [ipc_handle(uuid, text, count)])
    equal(reader.open("a")["producer"], "session")
    equal(reader.sum("a"), 6 * count // 2, "the half at the offset")
    reader.call("watch", prefix="a", kinds=["withdrawn"])
    producer.kill()
    equal(reader.notified("event")["kind"], "withdrawn")
    reader.fails("not_found", "open", "a")
    equal(reader.sum("a"), 6 * count // 2, "who has it mapped")


@check("what is no such memory is refused as invalid, and leaves nothing behind")
def forged(t):
    daemon = t.daemon()
    producer = t.worker()
    uuid = producer.connect(daemon.path)["devices"][0]["id"]
    count = 4 * MIB
    producer.own_fd(count, 1)
    descriptors = daemon.descriptors()
    cases = [
        ("a memfd", fd_handle(uuid, 2 * MIB), "memfd"),
        ("/dev/null", fd_handle(uuid, 2 * MIB), "/dev/null"),
        ("too large", fd_handle(uuid, 8 * MIB), None),
        ("too small", fd_handle(uuid, 2 * MIB), None),
        ("an odd size", fd_handle(uuid, 4 * MIB - 4096), None),
        ("another GPU", fd_handle("GPU-00000000-0000-0000-0000-000000000000", count), None),
        ("cut handle", ipc_handle(uuid, base64.b64encode(bytes(63)).decode(), count), None),
        ("long handle", ipc_handle(uuid, base64.b64encode(bytes(65)).decode(), count), None),
        ("no base64", ipc_handle(uuid, "*" * 88, count), None),
    ]
    for what, handle, file in cases:
        sentence = producer.fails(("invalid", "unsupported"), "register", "a",
                                  bytes_of(min(count, handle["bytes"])), [handle], file)
        t.note(what, sentence)
    producer.fails("invalid", "register", "a", bytes_of(count, 256), [fd_handle(uuid, count)])
    eventually(lambda: daemon.descriptors() == descriptors, "the daemon's closers have closed what was refused")
    equal(daemon.figures()["segments"], 0)
    producer.register("a", bytes_of(count), [fd_handle(uuid, count)])


@check("a forged or stale handle fails where it is opened, and its reader lives on")
def stale(t):
    daemon = t.daemon()
    reader, producer = t.worker(daemon), t.worker()
    uuid = producer.connect(daemon.path)["devices"][0]["id"]
    count = 4 * MIB
    text = producer.own_ipc(count, 1)
    octets = bytearray(base64.b64decode(text))
    octets[20] ^= 0xFF
    forged_text = base64.b64encode(octets).decode()
    producer.register("forged", bytes_of(count), [ipc_handle(uuid, forged_text, count)])
    producer.register("stale", bytes_of(count), [ipc_handle(uuid, text, count)])
    producer.free_own()
    for name in ("forged", "stale"):
        try:
            reader.open(name)
        except Exception as error:  # noqa: BLE001
            t.note(name, error)
            expect(getattr(error, "name", "").startswith("CUDA_ERROR"), f"{name}: {error}")
        else:
            t.note(name, "the driver opens it")
            expect(name != "stale", "memory that was freed can be opened")
        reader.unmap()
    reader.put("still here", count, 1)
    reader.open("still here")
    equal(reader.sum("still here"), count)


@check("share=ipc: objects of the daemon's own are opened by their handle, many in one segment")
def daemon_ipc(t):
    daemon, writer, reader = t.with_workers(2)
    count = 64 << 10
    for i in range(3):
        writer.put(f"a/{i}", count, i + 1, share="ipc")
    equal(reader.open_many([f"a/{i}" for i in range(3)]), 1, "segments")
    equal([reader.sum(f"a/{i}") for i in range(3)], [count, 2 * count, 3 * count])
    _, whole = reader.run("check_register", "segment_of", "a/0")
    equal(whole % (2 * MIB), 0, "size of the segment")
    writer.kill()
    equal(reader.sum("a/2"), 3 * count, "after the writer was killed")


def segment_of(work, name):
    """(in a worker) what the driver says of the memory that an object lies in."""
    return work.cu.address_range(work.buffer(name)[0])


@check("the daemon has a context only while there is a segment for share=ipc")
def daemon_context(t):
    t.observer()
    before = t.free()
    daemon = t.daemon()
    t.note("MiB taken by the daemon alone", round((before - t.free()) / MIB, 1))
    expect(before - t.free() <= 16 * MIB, "the daemon takes memory of the GPU from the start")
    writer = t.worker(daemon)
    count = t.mib(256, 8)
    with_writer = t.free()
    writer.put("fd", count, 1)
    segment = daemon.figures()["used"] + daemon.figures()["retained"]
    own = with_writer - t.free() - segment
    t.note("MiB taken by the daemon with 256 MiB of objects", round(own / MIB, 1))
    expect(own <= 16 * MIB, f"the daemon takes {own / MIB:.0f} MiB beside its segments")
    seen = [t.seen_by_nvidia_smi(daemon)]
    writer.create("ipc", count, share="ipc")
    seen.append(t.seen_by_nvidia_smi(daemon))
    if not t.fake:
        t.note("nvidia-smi on the daemon, without a context and with one", seen)
    context = with_writer - t.free() - daemon.figures()["used"] - daemon.figures()["retained"] - own
    t.note("MiB that its context takes", round(context / MIB, 1))
    expect(context >= t.mib(100, 8), "a context is there as long as such a segment is")
    writer.kill()
    daemon.sessions(0)
    daemon.call("delete", name="fd")
    daemon.trim()
    t.free_again(before, "after the last segment for share=ipc")
