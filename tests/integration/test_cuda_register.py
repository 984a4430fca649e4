"""register: memory of a GPU that the caller owns."""

import os

import pytest

import device as test_device
from device import ID, KIND, MIB, UUIDS
from peer import column

SIZE = 2 * MIB


def layout(count=100, offset=0, handle=0):
    return {"kind": "bytes", "bytes": count,
            "data": {"handle": handle, "offset": offset, "bytes": count}}


def fd_handle(count=SIZE, fd=0, **members):
    return {"kind": f"{KIND}_fd", "fd": fd, "bytes": count, "device": ID, **members}


def ipc_handle(text, count=SIZE, **members):
    return {"kind": f"{KIND}_ipc", "ipc": text, "bytes": count, "device": ID, **members}


@pytest.fixture
def memory(gpu):
    """memory(data, bytes, ordinal): a descriptor to register; closed after the test."""
    fds = []

    def make(data=b"", count=SIZE, ordinal=0):
        fds.append(gpu.create(count, data, ordinal))
        return fds[-1]

    yield make
    for fd in fds:
        os.close(fd)


@pytest.fixture
def legacy(gpu):
    """legacy(byte, bytes): a handle to register; its memory is freed after the test."""
    handles = []

    def make(byte, count=SIZE):
        handles.append(gpu.allocate(count, byte))
        return handles[-1]

    yield make
    for text in handles:
        gpu.free(text)


def register(peer, *fds, name="r", **params):
    """An object of 100 bytes in memory of one or more descriptors."""
    return peer.call("register", fds=list(fds), name=name,
                     **{"layout": layout(), "handles": [fd_handle(fd=i) for i in range(len(fds))], **params})


# ---- descriptors -----------------------------------------------------------------------------------


def test_it_is_adopted(daemon, peer, gpu, memory):
    fd = memory(b"on a GPU")
    before = daemon.fds()["memory"]
    result = register(peer, fd)
    assert set(result) == {"version"}
    assert daemon.comes_to(lambda fds: fds["memory"] == before + 1)
    peer.close()
    opened = daemon.connect().open_object("r")
    assert opened.read()[:8] == b"on a GPU"
    assert opened.object["producer"] == "session" and opened.object["share"] == "fd"
    assert opened.object["device"] == ID and opened.object["tier"] == "device"
    os.pwrite(fd, b"later", 50)
    assert opened.read()[50:55] == b"later"
    (told,) = daemon.connect().call("stats")["devices"]
    assert told["used"] == SIZE and gpu.used() == SIZE


def test_it_outlives_the_process_that_made_it(daemon, gpu):
    another = test_device.Gpu()
    fd = another.create(SIZE, b"stays")
    register(daemon.connect(), fd)
    os.close(fd)
    another.end()
    assert gpu.used() == SIZE
    assert daemon.connect().open_object("r").read()[:5] == b"stays"


def test_offsets_and_several(daemon, peer, memory):
    one, two = memory(bytes(range(200))), memory(b"\2\0\0\0" * 100, 4 * MIB)
    wide = column("int32", 10, data={"handle": 1, "offset": 40, "bytes": 40})
    wide["mask"] = {"handle": 0, "offset": 64, "bytes": 2}
    register(peer, one, two, layout=wide, handles=[fd_handle(), fd_handle(4 * MIB, fd=1)])
    opened = daemon.connect().open_object("r")
    assert opened.read() == b"\2\0\0\0" * 10
    assert opened.read("mask") == bytes([64, 65])


def test_its_segment_is_the_drivers_again(daemon, peer, gpu, memory):
    before = daemon.fds()["memory"]
    for _ in range(3):
        register(peer, memory())
        reader = daemon.connect()
        opened = reader.open_object("r")
        peer.call("delete", name="r")
        assert peer.call("stats")["devices"][0]["segments"] == 1
        opened.release()
        reader.unmap()
        peer.wait_until_given_back()
        assert daemon.comes_to(lambda fds: fds["memory"] == before)


def test_the_budget_holds_for_it(peer, gpu, memory):
    peer.create_object("keep", layout(40 * MIB) | {"data": {"bytes": 40 * MIB}}, evict="keep")
    error = peer.error("no_space", "register", fds=[memory(count=32 * MIB)], name="r",
                       layout=layout(), handles=[fd_handle(32 * MIB)])
    assert ID in error.message
    error = peer.error("no_space", "register", fds=[memory(count=66 * MIB)], name="r",
                       layout=layout(), handles=[fd_handle(66 * MIB)])
    assert "capacity" in error.message
    register(peer, memory(count=24 * MIB), handles=[fd_handle(24 * MIB)])


def test_it_evicts(peer, memory):
    peer.create_object("old", {"kind": "bytes", "bytes": 50 * MIB}, evict="drop")
    peer.unmap()
    register(peer, memory(count=32 * MIB), handles=[fd_handle(32 * MIB)])
    assert peer.names() == ["r"]


def refused_fd(daemon, peer, gpu, fd, handle=None, words=(), **params):
    before, used = daemon.settled_fds(), gpu.used()
    error = peer.error("invalid", "register", fds=[fd], name="r",
                       **{"layout": layout(), "handles": [handle or fd_handle()], **params})
    assert error.message.startswith("params.handles[0]"), error.message
    for word in words:
        assert word in error.message, error.message
    assert peer.names() == []
    assert daemon.comes_to(lambda fds: fds == before) and gpu.used() == used
    return error


@pytest.mark.parametrize("count,said", [(SIZE, 2 * SIZE), (2 * SIZE, SIZE), (4 * SIZE, 3 * SIZE)])
def test_another_size_than_said(daemon, peer, gpu, memory, count, said):
    error = refused_fd(daemon, peer, gpu, memory(count=count), fd_handle(said))
    assert str(said) in error.message


@pytest.mark.parametrize("said", [1, 4096, SIZE - 1, SIZE + 4096])
def test_a_size_that_memory_cannot_have(daemon, peer, gpu, memory, said):
    error = refused_fd(daemon, peer, gpu, memory(), fd_handle(said), layout=layout(1))
    assert "multiple" in error.message and str(SIZE) in error.message


def test_of_another_gpu(daemon, peer, gpu, memory):
    refused_fd(daemon, peer, gpu, memory(ordinal=1), words=["not on", ID])
    error = peer.error("invalid", "register", fds=[memory()], name="r", layout=layout(),
                       handles=[fd_handle(device=UUIDS[1])])
    assert "device" in error.message


def test_what_is_no_memory_of_a_gpu(daemon, peer, gpu, directory):
    with open(f"{directory}/file", "wb+") as file:
        file.truncate(SIZE)
        refused_fd(daemon, peer, gpu, file.fileno(), words=["no memory of a GPU"])
    memfd = os.memfd_create("no GPU's", os.MFD_CLOEXEC)
    os.ftruncate(memfd, SIZE)
    for fd in (memfd, *os.pipe()):
        refused_fd(daemon, peer, gpu, fd, words=["no memory of a GPU"])
        os.close(fd)
    fd = os.open("/dev/null", os.O_RDWR)
    assert refused_fd(daemon, peer, gpu, fd)
    os.close(fd)


def test_one_of_several_is_bad(daemon, peer, gpu, memory):
    """All or none."""
    before = daemon.settled_fds()
    good, bad = memory(), memory(ordinal=1)
    error = peer.error("invalid", "register", fds=[good, bad], name="r", layout=layout(),
                       handles=[fd_handle(), fd_handle(fd=1)])
    assert error.message.startswith("params.handles[1]"), error.message
    assert daemon.comes_to(lambda fds: fds == before)


def test_a_memfd_is_not_for_a_gpu(daemon, peer, gpu):
    fd = os.memfd_create("host's", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    handle = {"kind": "memfd", "fd": 0, "bytes": SIZE, "device": "host"}
    peer.error("invalid", "register", fds=[fd], name="r", layout=layout(), handles=[handle])
    peer.error("invalid", "register", fds=[fd], name="r", layout=layout(),
               handles=[{**handle, "device": ID}])
    assert peer.names() == []
    os.close(fd)


def test_a_gpus_memory_is_not_for_the_host(daemon_factory, memory):
    daemon = daemon_factory(device=["host:64M", f"{KIND}:0:64M"])
    peer = daemon.connect()
    fd = memory(b"x")
    error = peer.error("invalid", "register", fds=[fd], name="r", layout=layout(),
                       handles=[fd_handle()])
    assert "device" in error.message, "the object's device is the host, unless it says otherwise"
    peer.error("invalid", "register", fds=[fd], name="r", layout=layout(),
               handles=[fd_handle(device="host")])
    register(peer, fd, device=ID)
    assert daemon.connect().open_object("r").read()[:1] == b"x"


def test_a_client_that_dies_before_the_answer(daemon, gpu, memory):
    fd = memory()
    for _ in range(20):
        peer = daemon.connect()
        peer.request("register", fds=[fd], name="r", layout=layout(), handles=[fd_handle()],
                     replace=True)
        peer.wait_until_read()
        peer.close()
    peer = daemon.connect()
    peer.call("delete", name="r") if peer.names() else None
    peer.wait_until_given_back()
    assert peer.used() == 0


# ---- legacy handles ----------------------------------------------------------------------------------


def test_a_legacy_handle(daemon, peer, another_gpu, legacy):
    text = legacy(0x5A)
    register(peer, layout=layout(64, offset=4096), handles=[ipc_handle(text)])
    result = daemon.connect().call("open", name="r")
    assert result["object"]["share"] == "ipc" and result["object"]["producer"] == "session"
    assert result["object"]["layout"]["data"]["offset"] == 4096
    (segment,) = result["segments"]
    assert segment["handle"] == {"kind": f"{KIND}_ipc", "ipc": text, "uuid": ID}
    assert segment["bytes"] == SIZE and segment["access"] == "r"
    assert another_gpu.read(text, 4) == b"\x5a" * 4


def test_it_is_the_producers_memory(daemon, peer, gpu, legacy):
    """Nothing of it is in the daemon's account, and no context is there for it."""
    text = legacy(1, 50 * MIB)
    used = gpu.used()
    for i in range(3):
        register(peer, name=f"r/{i}", handles=[ipc_handle(text, 50 * MIB)])
    (told,) = peer.call("stats")["devices"]
    assert told["used"] == 0 and told["free"] == told["capacity"] and told["objects"] == 3
    assert gpu.used() == used


def test_it_is_withdrawn_with_its_producer(daemon, peer, legacy):
    watcher, reader = daemon.connect(), daemon.connect()
    watcher.call("watch")
    register(peer, handles=[ipc_handle(legacy(1))])
    peer.call("alias", name="part", of="r", slice={"offset": 0, "length": 10})
    peer.put("stays", b"x")
    reader.open_object("r")
    assert [e[1] for e in watcher.events(4)] == [None, "r", "part", "stays"]
    peer.close()
    events = watcher.events(2)
    assert sorted(e[:2] for e in events) == [("withdrawn", "part"), ("withdrawn", "r")]
    assert not any("lost" in e[2] for e in events)
    watcher.no_notification()
    assert watcher.names() == ["stays"]
    for name in ("r", "part"):
        reader.error("not_found", "open", name=name)
    assert len(reader.call("leases")["leases"]) == 1, "who has it open has until it releases it"


def test_replaced_or_deleted_before_the_producer_ends(daemon, peer, legacy):
    text = legacy(1)
    for name in ("replaced", "deleted"):
        register(peer, name=name, handles=[ipc_handle(text)])
    other = daemon.connect()
    other.put("replaced", b"new", replace=True)
    other.call("delete", name="deleted")
    watcher = daemon.connect()
    watcher.call("watch", kinds=["withdrawn"])
    peer.close()
    assert other.open_object("replaced").read() == b"new"
    watcher.no_notification()


def test_kinds_do_not_mix(peer, memory, legacy):
    error = peer.error("invalid", "register", fds=[memory()], name="r", layout=layout(),
                       handles=[fd_handle(), ipc_handle(legacy(1))])
    assert "kind" in error.message
