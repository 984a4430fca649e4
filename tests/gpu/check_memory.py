"""Bytes written in one process are read in another, and nobody can change them there."""

import os

from harness import check, equal, expect


@check("two processes: what a kernel of one writes a kernel of the other reads")
def two_processes(t):
    daemon, writer, reader = t.with_workers(2)
    count = t.mib(64, 4)
    writer.put("a", count, 7)
    equal(reader.open("a")["bytes"], count)
    equal(reader.sum("a"), 7 * count)
    equal(writer.open("a")["state"], "sealed")
    equal(writer.sum("a"), 7 * count)


@check("64 columns opened in one call, each with its own content")
def many_columns(t):
    daemon, writer, reader = t.with_workers(2)
    count, names = t.mib(1, 1) // 8, [f"c/{i}" for i in range(64)]
    for i, name in enumerate(names):
        writer.put(name, count, i + 1)
    segments = reader.open_many(names)
    t.note("segments", segments)
    expect(segments < len(names) / 3, f"{segments} segments for {len(names)} columns")
    equal([reader.sum(name) for name in names], [(i + 1) * count for i in range(64)])


@check("copies into a reader's mapping are refused, and the content stays")
def copies_refused(t):
    daemon, writer, reader = t.with_workers(2)
    count = t.mib(8, 2)
    writer.put("a", count, 9)
    reader.open("a")
    equal(reader.try_to_write("a", "HtoD"), "CUDA_ERROR_INVALID_VALUE")
    equal(reader.sum("a"), 9 * count)
    writer.open("a")
    for how in ("DtoD", "memset"):
        reader = t.worker(daemon)  # for each, as it may cost the context
        reader.open("a")
        answer = reader.try_to_write("a", how)
        t.note(how, answer)
        expect(answer in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_ILLEGAL_ADDRESS"), how)
    equal(writer.sum("a"), 9 * count)


@check("a kernel that writes to a reader's mapping fails in its own process, and nowhere else")
def writing_kernel(t):
    daemon, writer, victim, bad = t.with_workers(3)
    count = t.mib(8, 2)
    writer.put("a", count, 9)
    for worker in (victim, bad):
        worker.open("a")
    equal(bad.try_to_write("a", "kernel"), "CUDA_ERROR_ILLEGAL_ADDRESS")
    bad.fails("CUDA_ERROR_ILLEGAL_ADDRESS", "sum", "a")  # its context is done for
    equal(victim.sum("a"), 9 * count)
    another = t.worker(daemon)
    another.open("a")
    equal(another.sum("a"), 9 * count)
    bad.kill()
    daemon.sessions(3)
    writer.put("b", count, 1)
    another.open("b")
    equal(another.sum("b"), count)


@check("offsets and masks: a kernel reads columns, slices of them, and slices of slices")
def slices(t):
    daemon, writer, reader = t.with_workers(2)
    rows = 1000
    values = [float(3 * i + 1) for i in range(rows)]
    valid = [i % 7 != 2 and i % 11 != 5 for i in range(rows)]
    mask = bytearray((rows + 7) // 8)
    for i in range(rows):
        mask[i >> 3] |= valid[i] << (i & 7)
    layout = {"kind": "column", "dtype": "float64", "length": rows, "mask": {}}
    writer.create("c", layout)
    writer.write_column("c", values, mask.hex())
    writer.seal("c", null_counts={"": rows - sum(valid)})
    writer.call("alias", name="c/middle", of="c", slice={"offset": 13, "length": 700})
    writer.call("alias", name="c/inner", of="c/middle", slice={"offset": 5, "length": 101})
    writer.create("plain", {"kind": "column", "dtype": "float64", "length": rows})
    writer.write_column("plain", values)
    writer.seal("plain")
    writer.call("alias", name="plain/end", of="plain", slice={"offset": 999, "length": 1})
    for name, first, length in (("c", 0, rows), ("c/middle", 13, 700), ("c/inner", 18, 101)):
        reader.open(name)
        rows_here = [i for i in range(first, first + length) if valid[i]]
        equal(reader.column_sum(name), [sum(values[i] for i in rows_here), len(rows_here)], name)
    for name, expected in (("plain", [sum(values), rows]), ("plain/end", [values[999], 1])):
        reader.open(name)
        equal(reader.column_sum(name), expected, name)


@check("memory that goes to another domain holds nothing of what was there")
def scrubbed(t):
    daemon, worker = t.with_workers(1)
    count = t.capacity() // 2
    for turn in range(4):
        worker.put("secret", count, 0xAA)
        worker.call("delete", name="secret")
        worker.unmap()
        worker.create("new", count, mode="0640")
        equal(worker.sum("new"), 0, f"turn {turn}")
        worker.call("release", lease=worker.call("leases")["leases"][0]["lease"])
        worker.unmap()


@check("a reader under another uid opens what the mode lets it, by descriptor and by handle")
def other_user(t):
    if os.geteuid() != 0:
        t.skip("needs root, to become another user")
    t.let_others_in()
    daemon = t.daemon()
    writer, reader = t.worker(daemon), t.worker(start=False)
    count = t.mib(4, 1)
    for share in ("fd", "ipc"):
        writer.put(share, count, 7, mode="0604", share=share)
    writer.put("private", count, 7)
    reader.become(65534)
    reader.start()
    reader.connect(daemon.path)
    for share in ("fd", "ipc"):
        equal(reader.open(share)["uid"], 0)
        equal(reader.sum(share), 7 * count, share)
    reader.fails("not_found", "open", "private")
    reader.fails(("denied", "not_found"), "call", "delete", name="fd")
