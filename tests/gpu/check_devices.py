"""Which GPU is meant: UUIDs and numbers, several GPUs, processes that see them in another order."""

from harness import MIB, WorkerError, check, equal


@check("a GPU is named by its number, by its UUID, or by the beginning of that")
def names(t):
    worker = t.worker()
    uuid, *others = worker.run("check_devices", "uuids")
    for name in ("cuda:0", uuid, beginning(uuid, others)):
        daemon = t.daemon(f"{name}:64M")
        equal(daemon.figures()["id"], uuid, name)
        for device in (uuid, "cuda:0"):
            worker.connect(daemon.path)
            worker.put("a", MIB, 1, device=device, replace=True)
            equal(daemon.call("stat", name="a")["object"]["device"], uuid)
        worker.unmap()
        worker.fails(("invalid", "unsupported", "not_found"), "put", "b", MIB, 1, device="cuda:77")
        daemon.stop()


def beginning(uuid, others):
    """As much of it as tells it from the others."""
    count = next(i for i in range(8, 41) if not any(o.startswith(uuid[:i]) for o in others))
    return uuid[:count]


def uuids(work):
    """(in a worker) the GPUs that the process sees."""
    return work.cu.devices()


@check("two GPUs: a process that sees them in the other order finds the right one by its UUID", gpus=2)
def reordered(t):
    daemon = t.daemon_of_two()
    writer = t.worker(daemon, 0)
    other = t.worker(daemon, 1, CUDA_VISIBLE_DEVICES="1,0")  # its 1 is our 0
    count = t.mib(16, 2)
    seen = writer.run("check_devices", "uuids")
    equal(other.run("check_devices", "uuids"), seen[::-1])
    writer.put("a", count, 21, device=seen[0])
    equal(other.open("a")["device"], seen[0])
    equal(other.sum("a"), 21 * count)


@check("two GPUs: an object on one that a process does not see cannot be mapped there", gpus=2)
def hidden(t):
    daemon = t.daemon_of_two()
    writer = t.worker(daemon, 0)
    blind = t.worker(daemon, 0, CUDA_VISIBLE_DEVICES="1")
    count = t.mib(4, 2)
    writer.put("a", count, 1, device="cuda:0")
    writer.put("i", count, 1, device="cuda:0", share="ipc")
    for name in ("a", "i"):
        try:
            blind.open(name)
        except WorkerError as error:
            t.note({"a": "by descriptor", "i": "by handle"}[name], error)
        else:
            t.note({"a": "by descriptor", "i": "by handle"}[name], "the driver maps it all the same")
    blind.put("b", count, 3, device=blind.run("check_devices", "uuids")[0])
    blind.open("b")
    equal(blind.sum("b"), 3 * count)


@check("two GPUs: memory of one is read by a kernel on the other where they reach each other", gpus=2)
def peer_read(t):
    daemon = t.daemon_of_two()
    writer, reader = t.worker(daemon, 0), t.worker(daemon, 1)
    if not reader.run("check_devices", "can_reach", 1, 0):
        t.skip("these GPUs do not reach each other's memory")
    count = t.mib(64, 4)
    writer.put("a", count, 9, device="cuda:0")
    writer.put("i", count, 8, device="cuda:0", share="ipc")
    reader.open("a", ordinals=[1])
    equal(reader.sum("a"), 9 * count, "by descriptor")
    reader.open("i")
    equal(reader.sum("i"), 8 * count, "by handle")
    equal(reader.try_to_write("a", "kernel"), "CUDA_ERROR_ILLEGAL_ADDRESS")


def can_reach(work, device, peer):
    """(in a worker) whether kernels on one GPU reach the memory of another."""
    import ctypes

    can = ctypes.c_int()
    work.cu.cuDeviceCanAccessPeer(ctypes.byref(can), device, peer)
    return bool(can.value)


@check("two GPUs: memory of one is refused where it is registered as the other's", gpus=2)
def wrong_gpu(t):
    daemon = t.daemon_of_two()
    producer = t.worker(daemon, 0)
    uuid = producer.run("check_devices", "uuids")[1]
    producer.own_fd(4 * MIB, 1)
    layout = {"kind": "bytes", "bytes": MIB, "data": {"handle": 0, "offset": 0, "bytes": MIB}}
    handle = {"kind": "cuda_fd", "fd": 0, "bytes": 4 * MIB, "device": uuid}
    t.note("the daemon says", producer.fails("invalid", "register", "a", layout, [handle],
                                              device=uuid))
