"""A driver that fails: answered as `device` with the error's name, nothing leaks, the next one works.
And a GPU that is lost: its objects go, all else stays."""

import base64
import os

import pytest

import device as test_device
from device import ID, MIB, UUIDS
from peer import bytes_layout

NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY",
         304: "CUDA_ERROR_OPERATING_SYSTEM", 999: "CUDA_ERROR_UNKNOWN"}
EVENT = base64.b64encode(bytes(64)).decode()


class Switch:
    """A file while which a rule of the driver holds."""

    def __init__(self, path):
        self.path = path

    def on(self):
        with open(self.path, "w"):
            pass

    def off(self):
        os.unlink(self.path)

    def __enter__(self):
        self.on()

    def __exit__(self, *exc):
        self.off()


@pytest.fixture
def switch(directory):
    return Switch(f"{directory}/switch")


def allocated(peer, index=0):
    told = peer.call("stats")["devices"][index]
    taken = told["used"] + told["retained"] + told["pinned_by_clients"]
    assert told["free"] + taken == told["capacity"], told
    return taken


def memory_of(*ordinals, handle=0):
    """The params that register 2 MiB of each of these GPUs as an object of a byte, which lies in the handle said."""
    return {"layout": {**bytes_layout(1), "data": {"handle": handle, "offset": 0, "bytes": 1}},
            "handles": [{"kind": "cuda_fd", "fd": i, "bytes": 2 * MIB, "device": UUIDS[ordinal]}
                        for i, ordinal in enumerate(ordinals)]}


def failed(error, code, *words):
    assert error.data["cuda"] == NAMES[code], error.data
    for word in (NAMES[code], ID, *words):
        assert word in error.message, error.message


CREATING = [
    ("fd", "cuMemCreate", 2), ("fd", "cuMemCreate", 304), ("fd", "cuMemExportToShareableHandle", 304),
    ("ipc", "cuDevicePrimaryCtxRetain", 2), ("ipc", "cuCtxPushCurrent", 304),
    ("ipc", "cuMemAlloc", 2), ("ipc", "cuIpcGetMemHandle", 1),
]


@pytest.mark.parametrize("size", [100, 20 * MIB], ids=["shared", "own"])
@pytest.mark.parametrize("share,function,code", CREATING)
# RELIABILITY.md: Devices 1
def test_create(daemon_factory, gpu, switch, share, function, code, size):
    daemon = daemon_factory(env={"FAKECUDA_FAIL": f"{function}:*:{code}@{switch.path}"})
    peer, before = daemon.connect(), daemon.fds()
    with switch:
        for i in range(3):
            error = peer.error("device", "create", name=f"a/{i}", layout=bytes_layout(size),
                               share=share, wait_ms=i * 1000)
            failed(error, code)
            assert allocated(peer) == 0 and gpu.used() == 0
            assert daemon.fds()["memory"] == before["memory"]
    made = peer.create("a", bytes_layout(size), share=share)
    assert peer.call("seal", lease=made["lease"])


def test_the_first_call_alone(daemon_factory, gpu):
    """Of requests that wait together, the one whose call failed is told so and the others go on."""
    daemon = daemon_factory(env={"FAKECUDA_FAIL": "cuMemCreate:1:2", "FAKECUDA_DELAY":
                                 "cuMemCreate:100"})
    peer = daemon.connect()
    ids = [peer.request("create", name=f"a/{i}", layout=bytes_layout(20 * MIB)) for i in range(3)]
    outcomes = []
    for ident in ids:
        try:
            peer.reply(ident)
            outcomes.append("made")
        except Exception as error:
            outcomes.append(error.kind)
    assert outcomes == ["device", "made", "made"]
    assert gpu.used() == allocated(peer) == 40 * MIB


def test_one_context_that_fails_leaves_the_other_segments(daemon_factory, gpu, switch):
    daemon = daemon_factory(env={"FAKECUDA_FAIL": f"cuCtxPushCurrent:*:304@{switch.path}"})
    peer = daemon.connect()
    made = peer.create("a", bytes_layout(100), share="ipc")
    with switch:
        error = peer.error("device", "create", name="b", layout=bytes_layout(20 * MIB), share="ipc")
        failed(error, 304)
        assert gpu.used() == 10 * MIB, "the segment and the context that it needs"
    text = made["segments"][0]["handle"]["ipc"]
    gpu.write(text, b"alive")
    assert gpu.read(text, 5) == b"alive"


ADOPTING = [
    ("cuMemImportFromShareableHandle", 2), ("cuMemGetAllocationPropertiesFromHandle", 304),
    ("cuMemAddressReserve", 2), ("cuMemMap", 2),
]


@pytest.mark.parametrize("function,code", ADOPTING)
# RELIABILITY.md: Devices 1
def test_register(daemon_factory, gpu, switch, function, code):
    daemon = daemon_factory(env={"FAKECUDA_FAIL": f"{function}:*:{code}@{switch.path}"})
    peer = daemon.connect()
    fds = [gpu.create(2 * MIB, b"m") for _ in range(2)]
    used, before, params = gpu.used(), daemon.settled_fds(), memory_of(0, 0, handle=1)
    with switch:
        error = peer.error("device", "register", name="r", fds=fds, **params)
        assert error.data["cuda"] == NAMES[code] and NAMES[code] in error.message
        assert error.message.startswith("params.handles[0]: "), error.message
        assert gpu.used() == used and allocated(peer) == 0 and peer.names() == []
        assert daemon.comes_to(lambda fds: fds == before)
    peer.call("register", name="r", fds=fds, **params)
    for fd in fds:
        os.close(fd)
    assert peer.open_object("r").read() == b"m"


def test_the_second_of_two_handles(daemon_factory, gpu):
    daemon = daemon_factory(env={"FAKECUDA_FAIL": "cuMemImportFromShareableHandle:2:304"})
    peer = daemon.connect()
    fds = [gpu.create(2 * MIB) for _ in range(2)]
    before = daemon.settled_fds()
    error = peer.error("device", "register", name="r", fds=fds, **memory_of(0, 0))
    assert error.message.startswith("params.handles[1]: "), error.message
    assert daemon.comes_to(lambda fds: fds == before)
    for fd in fds:
        os.close(fd)
    assert gpu.used() == 0


@pytest.mark.parametrize("function", ["cuMemFree", "cuCtxPushCurrent"])
# RELIABILITY.md: Devices 1
def test_giving_back(daemon_factory, gpu, switch, function):
    """Not freed, and said so in the log; the context's end frees it all the same."""
    daemon = daemon_factory(env={"FAKECUDA_FAIL": f"{function}:*:304@{switch.path}"})
    peer = daemon.connect()
    made = peer.create("a", bytes_layout(20 * MIB), share="ipc")
    peer.call("release", lease=made["lease"])
    peer.unmap()
    with switch:
        peer.call("trim")
        peer.wait_until_given_back()
        assert gpu.used() == 0
    assert "segment not freed" in daemon.stderr() and NAMES[304] in daemon.stderr()
    assert peer.create("a", bytes_layout(20 * MIB), share="ipc")


# ---- lost --------------------------------------------------------------------------------------


@pytest.fixture
def losing(daemon_factory, switch):
    """A daemon with two GPUs and the host, objects on each, and a session that watches. The first
    GPU is lost when the switch is on."""
    daemon = daemon_factory(device=["cuda:0:64M", "cuda:1:32M", "host:16M"],
                            env={"FAKECUDA_LOST": f"0:{switch.path}"})
    peer = daemon.connect()
    for i, device in enumerate(("cuda:0", "cuda:1", "host")):
        peer.put(f"on/{i}", b"on %d" % i, device=device)
    peer.create_object("on/0/ipc", bytes_layout(10), share="ipc")
    peer.call("alias", name="part", of="on/0", slice={"offset": 0, "length": 2})
    peer.call("set", pinned=True, name="on/0")
    watcher = daemon.connect()
    watcher.call("watch", kinds=["withdrawn", "synced"])
    assert watcher.events(1)[0][0] == "synced"
    return daemon, peer, watcher


def notice(peer):
    """The first that needs the device finds out."""
    return peer.error("device", "create", name="x", layout=bytes_layout(20 * MIB), device="cuda:0")


# RELIABILITY.md: Devices 2
def test_its_objects_are_withdrawn(losing, switch):
    daemon, peer, watcher = losing
    reader = daemon.connect()
    opened = reader.open_object("on/0")
    switch.on()
    error = notice(peer)
    assert error.data["cuda"] == "CUDA_ERROR_DEVICE_UNAVAILABLE"
    events = watcher.events(3)
    assert sorted(e[1] for e in events) == ["on/0", "on/0/ipc", "part"]
    assert all(e[0] == "withdrawn" and e[2]["lost"] is True for e in events)
    assert reader.names() == ["on/1", "on/2"]
    for name in ("on/0", "part"):
        reader.error("not_found", "open", name=name)
    opened.release()
    assert "device lost" in daemon.stderr()


# RELIABILITY.md: Devices 2
def test_all_else_goes_on(losing, switch):
    daemon, peer, watcher = losing
    switch.on()
    notice(peer)
    reader = daemon.connect()
    for i, device in ((1, "cuda:1"), (2, "host")):
        assert reader.open_object(f"on/{i}").read() == b"on %d" % i
        peer.put(f"new/{i}", b"new", device=device)
        assert reader.open_object(f"new/{i}").read() == b"new"
        peer.create_object(f"big/{i}", bytes_layout(8 * MIB), device=device)
    fd = test_device.gpu().create(2 * MIB, b"r", ordinal=1)
    peer.call("register", fds=[fd], name="r", device="cuda:1", **memory_of(1))
    os.close(fd)
    assert reader.open_object("r").read() == b"r"


def test_nothing_more_is_made_on_it(losing, switch):
    daemon, peer, watcher = losing
    peer.call("delete", name="on/0/ipc")
    switch.on()
    notice(peer)
    switch.off()  # lost is lost: what a driver says of it afterwards is not to be trusted
    for share in ("fd", "ipc"):
        error = peer.error("device", "create", name="y", layout=bytes_layout(1), share=share)
        assert "lost" in error.message and UUIDS[0] in error.message
    fd = test_device.gpu().create(2 * MIB)
    peer.error("device", "register", fds=[fd], name="r", **memory_of(0))
    os.close(fd)


def test_what_was_being_written(losing, switch):
    """It cannot be sealed any more; it can be given up."""
    daemon, peer, watcher = losing
    made = [peer.create(f"half/{i}", bytes_layout(10), device="cuda:0") for i in range(2)]
    other = peer.create("whole", bytes_layout(10), device="cuda:1")
    switch.on()
    notice(peer)
    for one in made:
        error = peer.error("device", "seal", lease=one["lease"], ready=EVENT)
        assert "lost" in error.message
    peer.call("release", lease=made[0]["lease"])
    peer.call("seal", lease=other["lease"])
    assert "half/1" not in peer.names()


def test_who_waits_for_it_is_told(losing, switch):
    daemon, peer, watcher = losing
    holder, waiter = daemon.connect(), daemon.connect()
    holder.create("held", bytes_layout(40 * MIB), device="cuda:0")
    ident = waiter.request("create", name="w", layout=bytes_layout(40 * MIB), wait_ms=60000,
                           device="cuda:0")
    waiter.wait_until_read()
    assert waiter.call("stats")
    switch.on()
    error = peer.error("device", "create", name="x", layout=bytes_layout(17 * MIB), device="cuda:0")
    assert error.kind == "device"
    with pytest.raises(Exception, match="lost"):
        waiter.reply(ident)


def test_lost_while_adopting(losing, switch):
    daemon, peer, watcher = losing
    fd = test_device.gpu().create(2 * MIB)
    switch.on()
    error = peer.error("device", "register", fds=[fd], name="r", **memory_of(0))
    os.close(fd)
    assert error.data["cuda"] == "CUDA_ERROR_DEVICE_UNAVAILABLE"
    assert len(watcher.events(3)) == 3
    assert "on/0" not in peer.names()


def test_out_of_memory_is_no_loss(daemon_factory, switch):
    daemon = daemon_factory(env={"FAKECUDA_FAIL": f"cuMemCreate:*:2@{switch.path}"})
    peer = daemon.connect()
    peer.put("a", b"x")
    with switch:
        for _ in range(5):
            peer.error("device", "create", name="b", layout=bytes_layout(20 * MIB))
    assert peer.names() == ["a"]
    assert peer.create("b", bytes_layout(20 * MIB))
