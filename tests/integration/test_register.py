"""register: memory of the caller's own, shared without a copy."""

import fcntl
import os

import pytest

from peer import table

pytestmark = pytest.mark.host_only("about memfds; test_cuda_register.py is about memory of GPUs")


@pytest.fixture
def memfd():
    """memfd(data, seals): a descriptor to register; closed after the test."""
    fds = []

    def make(data, seals=fcntl.F_SEAL_SHRINK):
        fd = os.memfd_create("mine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(fd, 0o600)
        fds.append(fd)
        os.write(fd, data)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return fd

    yield make
    for fd in fds:
        os.close(fd)


def layout(count, offset=0, handle=0):
    data = {"handle": handle, "offset": offset, "bytes": count}
    return {"kind": "bytes", "bytes": count, "data": data}


def handle(count, fd=0, **members):
    return {"kind": "memfd", "fd": fd, "bytes": count, "device": "host", **members}


def test_sealed_at_once(daemon, peer, memfd):
    fd = memfd(b"hello world".ljust(4096, b"."))
    result = peer.call("register", fds=[fd], name="r", layout=layout(4096), handles=[handle(4096)])
    assert set(result) == {"version"} and result["version"] > 0
    opened = daemon.connect().open_object("r")
    assert opened.read()[:11] == b"hello world"
    assert opened.version == result["version"]
    assert opened.object["state"] == "sealed" and opened.object["producer"] == "session"


def test_it_is_the_same_memory(daemon, peer, memfd):
    fd = memfd(bytes(4096))
    peer.call("register", fds=[fd], name="r", layout=layout(4096), handles=[handle(4096)])
    opened = daemon.connect().open_object("r")
    os.pwrite(fd, b"later", 100)
    assert opened.read()[100:105] == b"later"


def test_a_part_at_an_offset(daemon, peer, memfd):
    fd = memfd(bytes(range(256)) * 32)
    peer.call("register", fds=[fd], name="r", layout=layout(10, offset=512 + 7),
              handles=[handle(8192)])
    assert daemon.connect().open_object("r").read() == bytes(range(7, 17))


def test_several_handles(daemon, peer, memfd):
    """A table over two memfds."""
    one, two = memfd(b"\1\0\0\0" * 1024), memfd(b"ab" * 2048)
    made = table(100, a={"dtype": "int32", "data": {"handle": 0, "offset": 4, "bytes": 400}},
                 b={"dtype": "int8", "data": {"handle": 1, "offset": 1, "bytes": 100}})
    peer.call("register", fds=[one, two], name="r", layout=made,
              handles=[handle(4096), handle(4096, fd=1)])
    opened = daemon.connect().open_object("r")
    assert opened.read("columns[0].data") == b"\1\0\0\0" * 100
    assert opened.read("columns[1].data") == b"ba" * 50


def test_its_descriptor_goes_with_the_object(daemon, peer, memfd):
    before = daemon.fds()["memory"]
    fd = memfd(bytes(4096))
    peer.call("register", fds=[fd], name="r", layout=layout(4096), handles=[handle(4096)])
    assert daemon.fds()["memory"] == before + 1
    reader = daemon.connect()
    opened = reader.open_object("r")
    peer.call("delete", name="r")
    assert daemon.fds()["memory"] == before + 1
    opened.release()
    reader.call("unmap", segments=[opened.layout["data"]["segment"]])
    peer.call("trim")
    assert daemon.fds()["memory"] == before


def test_without_the_seal(peer, memfd):
    """A memfd that could shrink would kill its readers."""
    for seals in (0, fcntl.F_SEAL_GROW):
        error = peer.error("invalid", "register", fds=[memfd(bytes(4096), seals)], name="r",
                           layout=layout(4096), handles=[handle(4096)])
        assert "F_SEAL_SHRINK" in error.message
    assert peer.names() == []


def test_too_small(peer, memfd):
    """It says more bytes than the memfd has."""
    error = peer.error("invalid", "register", fds=[memfd(bytes(4096))], name="r",
                       layout=layout(4097), handles=[handle(4097)])
    assert error.message.startswith("params.handles[0]")


def test_a_regular_file_is_no_memfd(peer, directory):
    with open(f"{directory}/file", "wb+") as file:
        file.write(bytes(4096))
        file.flush()
        peer.error("invalid", "register", fds=[file.fileno()], name="r", layout=layout(4096),
                   handles=[handle(4096)])
    assert peer.names() == []


def test_gpu_handles_without_a_gpu(peer, memfd):
    cuda = {"kind": "cuda_fd", "fd": 0, "bytes": 4096, "device": "cuda:0"}
    peer.error(("unsupported", "invalid", "not_found"), "register", fds=[memfd(bytes(4096))],
               name="r", layout=layout(4096), handles=[cuda])
    ipc = {"kind": "cuda_ipc", "ipc": "A" * 86 + "==", "bytes": 4096, "device": "cuda:0"}
    peer.error(("unsupported", "invalid", "not_found"), "register", name="r", layout=layout(4096),
               handles=[ipc])
    assert peer.names() == []


def test_name_taken_and_replace(daemon, peer, memfd):
    peer.put("r", b"old")
    params = {"name": "r", "layout": layout(4096), "handles": [handle(4096)]}
    peer.error("exists", "register", fds=[memfd(b"new".ljust(4096))], **params)
    peer.call("register", fds=[memfd(b"new".ljust(4096))], replace=True, **params)
    assert daemon.connect().open_object("r").read()[:3] == b"new"


def test_the_same_memfd_twice(daemon, peer, memfd):
    fd = memfd(b"twice".ljust(4096))
    for name in ("r1", "r2"):
        peer.call("register", fds=[fd], name=name, layout=layout(4096), handles=[handle(4096)])
    peer.call("delete", name="r1")
    assert daemon.connect().open_object("r2").read()[:5] == b"twice"
