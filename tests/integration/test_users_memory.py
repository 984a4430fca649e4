"""Memory that several users share, with a daemon that is a user of its own: who can change what."""

import ctypes
import errno
import fcntl
import mmap
import os

import pytest

from device import BUILD
from peer import RpcError, bytes_layout

pytestmark = [pytest.mark.root, pytest.mark.host_only("about memfds")]

SERVICE, OWNER, READER = 1005, 1001, 1003
F_SEAL_FUTURE_WRITE = 0x10
MFD_HUGETLB = 0x4


@pytest.fixture
def service(daemon_factory, directory):
    """A daemon that is neither root nor any of its users, as the packaged one."""
    place = f"{directory}/run"
    os.mkdir(place, 0o755)
    os.chown(place, SERVICE, SERVICE)
    return daemon_factory("--mode", "0666", socket_path=f"{place}/s", user=SERVICE, group=SERVICE,
                          extra_groups=[])


def failing(function):
    """"ok", or the name of the system's error."""
    try:
        function()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


def memfd(mode=0o777, seals=0, flags=0, size=4096):
    fd = os.memfd_create("mine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.fchmod(fd, mode)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | seals)
    return fd


def register(peer, fd, name="r", size=4096, **more):
    layout = {"kind": "bytes", "bytes": 100, "data": {"handle": 0, "offset": 0, "bytes": 100}}
    handles = [{"kind": "memfd", "fd": 0, "bytes": size, "device": "host"}]
    try:
        peer.call("register", fds=[fd], name=name, layout=layout, handles=handles, mode="0644",
                  **more)
    except RpcError as error:
        return f"{error.kind}: {error.message}"
    return "ok"


def read_only(fd):
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def attack(name):
    """What a reader gets from trying to change an object by the descriptor that it was given."""

    def work(peer):
        opened = peer.open_object(name)
        segment = peer.segment(opened.layout["data"]["segment"])
        path = f"/proc/self/fd/{segment.fd}"
        both = mmap.PROT_READ | mmap.PROT_WRITE
        return {
            "write": failing(lambda: os.pwrite(segment.fd, b"!", 0)),
            "map": failing(lambda: mmap.mmap(segment.fd, segment.bytes, mmap.MAP_SHARED, both)),
            "open": failing(lambda: os.pwrite(os.open(path, os.O_RDWR), b"!", 0)),
            "truncate": failing(lambda: os.truncate(path, 0)),
            "chmod": failing(lambda: os.fchmod(segment.fd, 0o777)),
        }

    return work


# RELIABILITY.md: Users among themselves
@pytest.mark.parametrize("mode,seals,reading,outcome", [
    (0o777, 0, False, "invalid"),
    (0o666, 0, True, "invalid"),
    (0o620, 0, False, "invalid"),
    (0o777, fcntl.F_SEAL_WRITE, False, "ok"),
    (0o777, F_SEAL_FUTURE_WRITE, False, "ok"),
    (0o600, 0, False, "denied"),
    (0o600, 0, True, "ok"),
    (0o400, 0, True, "ok"),
    (0o644, 0, False, "ok"),
], ids=str)
def test_registered_memory_is_the_owners_alone_to_write(service, child, as_user, mode, seals,
                                                        reading, outcome):
    def work(peer):
        fd = memfd(mode, seals)
        return register(peer, read_only(fd) if reading else fd)

    told = child(service, work, uid=OWNER, gid=OWNER).result
    assert told.split(":")[0] == outcome
    if outcome != "ok":
        assert "fchmod" in told, "it says what helps"
        return
    out = as_user(service, READER, READER, attack("r"))
    assert "ok" not in out.values(), out


# RELIABILITY.md: Users among themselves
@pytest.mark.skipif("asan" in str(BUILD) or "tsan" in str(BUILD), reason="the library is loaded")
@pytest.mark.parametrize("mode", [0o777, 0o600, 0o400], ids=oct)
def test_the_library_sees_to_it(service, child, as_user, mode):
    """gpubuf_register_memfd works with any mode and any user's daemon."""

    def work(peer):
        fd = memfd(mode)
        os.pwrite(fd, b"x" * 4096, 0)
        library = ctypes.CDLL(str(BUILD / "lib" / "libgpubuf.so.0"))
        library.gpubuf_errmsg.restype = ctypes.c_char_p
        client = ctypes.c_void_p()
        os.environ["GPUBUFD_SOCKET"] = service.path
        assert library.gpubuf_connect(ctypes.byref(client), None) == 0
        layout = b'{"kind":"bytes","bytes":9,"data":{"handle":0,"offset":0,"bytes":9}}'
        options = (ctypes.c_size_t * 16)(128)  # its size, and zeros
        ctypes.memmove(ctypes.byref(options, 24), ctypes.byref(ctypes.c_uint(0o644)), 4)
        r = library.gpubuf_register_memfd(client, b"r", fd, ctypes.c_uint64(4096), layout,
                                          ctypes.byref(options))
        return [r, library.gpubuf_errmsg(client).decode(), os.fstat(fd).st_mode & 0o777]

    r, why, after = child(service, work, uid=OWNER, gid=OWNER).result
    assert r == 0, why
    assert after == mode & ~0o022
    assert as_user(service, READER, READER, lambda p: p.open_object("r").read().decode()) == "x" * 9
    out = as_user(service, READER, READER, attack("r"))
    assert "ok" not in out.values(), out


# RELIABILITY.md: Hostile clients
@pytest.mark.parametrize("seals,outcome", [
    (0, "invalid"), (fcntl.F_SEAL_GROW, "invalid"), (fcntl.F_SEAL_WRITE, "ok"),
    (F_SEAL_FUTURE_WRITE, "ok"),
], ids=str)
def test_huge_pages_stay_under_their_readers(service, child, seals, outcome):
    def work(peer):
        fd = memfd(0o600, seals, MFD_HUGETLB, 2 << 20)
        told = register(peer, read_only(fd), size=2 << 20)
        punch = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        libc = ctypes.CDLL(None, use_errno=True)
        r = libc.fallocate(fd, punch, ctypes.c_long(0), ctypes.c_long(2 << 20))
        return [told, errno.errorcode.get(ctypes.get_errno()) if r else "ok"]

    told, punched = child(service, work, uid=OWNER, gid=OWNER).result
    assert told.split(":")[0] == outcome
    if outcome == "ok":
        assert punched == "EPERM"
    else:
        assert "huge pages" in told and "F_SEAL_WRITE" in told
