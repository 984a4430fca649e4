"""The libraries that people use, over the same memory."""

import importlib.util

from check_library import client
from harness import MIB, check, equal, expect

NAMES = ("cupy", "numba", "torch", "jax")


def installed(t, *names):
    found = [name for name in names if importlib.util.find_spec(name)]
    if not found:
        t.skip(f"not installed: {', '.join(names)}")
    return found


@check("CuPy, numba, PyTorch and JAX: each reads what each of them wrote", fake=False, seconds=200)
def frameworks(t):
    daemon = t.daemon()
    workers = {name: t.worker(daemon) for name in installed(t, *NAMES)}
    for name, worker in workers.items():  # all start at once: they take their time
        worker.begin("run", "frameworks", "load", name)
    problems = []
    for name in list(workers):
        version = attempt(problems, f"{name} is loaded", workers[name].end)
        t.note(name, {FAILED: "fails", None: "has no GPU here"}.get(version, version))
        if version in (FAILED, None):
            del workers[name]
    expect(workers, "none of them sees the GPU: " + "; ".join(problems))
    for name, worker in workers.items():
        worker.begin("run", "frameworks", "produce", name, f"by/{name}")
    made = [name for name, worker in workers.items()
            if attempt(problems, f"{name} writes", worker.end) is not FAILED]
    for reader, worker in workers.items():
        for writer in made:
            sum_ = attempt(problems, f"{reader} reads what {writer} wrote", worker.run, "frameworks",
                           "consume", reader, f"by/{writer}")
            expected = (NAMES.index(writer) + 1) * 1023 * 1024 / 2
            if sum_ is not FAILED and sum_ != expected:
                problems.append(f"{reader} reads {sum_} of {writer}'s, expected {expected}")
    expect(not problems, "; ".join(problems))
    t.note("pairs", len(made) * len(workers))


FAILED = object()


def attempt(problems, what, function, *arguments):
    """The function's result, or FAILED, which is noted: one pair must not hide the others."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001
        problems.append(f"{what}: {error}")
        return FAILED


@check("arrays of CuPy's and PyTorch's pools are registered where they are, at their offsets",
       fake=False, seconds=200)
def pools(t):
    daemon = t.daemon()
    reader = t.worker(daemon)
    size = MIB + 512
    for framework in installed(t, "cupy", "torch"):
        producer = t.worker()
        uuid = producer.connect(daemon.path)["devices"][0]["id"]
        offset = producer.run("frameworks", "register_raw", framework, framework, size, uuid)
        t.note(f"{framework}: offset", offset)
        reader.open(framework)
        equal(reader.sum(framework), 5 * size, framework)
        reader.release(framework)
        producer.kill()
        reader.unmap()


@check("libgpubuf registers arrays of CuPy's and PyTorch's pools", fake=False, seconds=200)
def lib_pools(t):
    daemon = t.daemon()
    reader = client(t, daemon, needs=("gpubuf_register_device",))
    size = MIB + 512
    for framework in installed(t, "cupy", "torch"):
        producer = client(t, daemon)
        producer.run("frameworks", "register_library", framework, framework, size)
        equal(reader.run("library", "open_and_sum", framework)[0], 5 * size, framework)
        producer.kill()


@check("a kernel that CuPy compiles reads a masked slice", fake=False, seconds=120)
def rawkernel(t):
    installed(t, "cupy")
    daemon = t.daemon()
    writer, reader = t.worker(daemon), t.worker(daemon)
    rows = 400
    mask = bytes(0b01101101 for _ in range(rows // 8))
    writer.create("c", {"kind": "column", "dtype": "float64", "length": rows, "mask": {}})
    writer.write_column("c", [float(i) for i in range(rows)], mask.hex())
    writer.seal("c")
    writer.call("alias", name="c/part", of="c", slice={"offset": 11, "length": 333})
    valid = [i for i in range(11, 344) if mask[i >> 3] >> (i & 7) & 1]
    found = reader.run("frameworks", "rawkernel", "c/part")
    equal(found, [float(sum(valid)), float(len(valid))])
