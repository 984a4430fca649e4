"""Memory that several users share, with a daemon that is a user of its own: who can change what."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import time

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
    """Outcomes of a reader's attempts to change an object by the descriptor that it was given."""

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


@pytest.mark.parametrize("seals,outcome", [
    (0, "invalid"), (fcntl.F_SEAL_GROW, "invalid"), (fcntl.F_SEAL_WRITE, "ok"),
    (F_SEAL_FUTURE_WRITE, "ok"),
], ids=str)
# RELIABILITY.md: Hostile clients 16
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


# RELIABILITY.md: Hostile clients 16
def test_a_lease_on_memory_holds_up_nobody(service, child):
    """To open a file is to wait, for most of a minute, for whoever has a lease on it."""
    def work(peer):
        first = memfd(0o644)
        fd = os.open(f"/proc/self/fd/{first}", os.O_RDWR)
        os.close(first)
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGWINCH)  # ignored
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        start = time.monotonic()
        return [register(peer, fd), time.monotonic() - start]

    told, seconds = child(service, work, uid=OWNER, gid=OWNER).result
    assert told.startswith("invalid") and "lease" in told and seconds < 30  # it may be kept for 45


# ---- final objects ----


def make_final(peer, data=b"x" * 5000, **more):
    return peer.create("f", bytes_layout(len(data)), data, final=True, mode="0644", **more)


def hold(peer, made, unmap=True):
    """A producer's work before the seal: it unmaps, and has the kernel hold the memory."""
    segment = peer.segments[(made["object"]["layout"]["data"]["segment"], "rw")]
    if unmap:
        segment.unmap()
    fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    return segment


def test_final_is_not_even_the_producers_to_change(service, child, as_user):
    def work(peer):
        made = make_final(peer)
        try:
            said = peer.call("seal", lease=made["lease"])
        except RpcError as error:
            said = [error.kind, error.message]
        said = [said, failing(lambda: hold(peer, made, unmap=False))]
        segment = hold(peer, made)
        peer.call("seal", lease=made["lease"])
        path, both = f"/proc/self/fd/{segment.fd}", mmap.PROT_READ | mmap.PROT_WRITE
        libc = ctypes.CDLL(None, use_errno=True)
        punched = libc.fallocate(segment.fd, 3, ctypes.c_long(0), ctypes.c_long(4096))
        out = {
            "write": failing(lambda: os.pwrite(segment.fd, b"!", 0)),
            "map": failing(lambda: mmap.mmap(segment.fd, segment.bytes, mmap.MAP_SHARED, both)),
            "open": failing(lambda: os.pwrite(os.open(path, os.O_RDWR), b"!", 0)),
            "punch": errno.errorcode[ctypes.get_errno()] if punched else "ok",
            "truncate": failing(lambda: os.ftruncate(segment.fd, 0)),
        }
        return [said, out, peer.call("stat", name="f")["object"].get("final")]

    (early, busy), out, final = child(service, work, uid=OWNER, gid=OWNER).result
    assert early[0] == "busy" and "F_SEAL_WRITE" in early[1] and busy == "EBUSY"
    assert "ok" not in out.values(), out
    assert final is True

    def read(peer):
        opened = peer.open_object("f")
        segment = peer.segment(opened.layout["data"]["segment"])
        seals = fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS)
        return [opened.read() == b"x" * 5000, bool(seals & fcntl.F_SEAL_WRITE),
                opened.object.get("final")]

    assert as_user(service, READER, READER, read) == [True, True, True]


def test_final_has_memory_of_its_own(daemon, peer):
    """No other object's, before or after; and so it goes back at once."""
    peer.put("other", b"y" * 5000)
    before = daemon.fds()["memory"]
    peer.call("release", lease=make_final(peer)["lease"])
    peer.unmap()
    assert daemon.fds()["memory"] <= before
    made = make_final(peer)
    segment = made["object"]["layout"]["data"]["segment"]
    assert segment != peer.call("stat", name="other")["object"]["layout"]["data"]["segment"]
    hold(peer, made)
    peer.call("seal", lease=made["lease"], release=True)
    assert daemon.fds()["memory"] == before + 2  # for writing and for reading
    peer.put("other", b"z" * 5000, replace=True)
    peer.call("delete", name="f")
    peer.unmap()
    assert daemon.fds()["memory"] <= before


def test_final_stays_on_its_device(daemon_factory, directory):
    daemon = daemon_factory("--tier", f"disk:64M:{directory}")
    peer = daemon.connect()
    made = make_final(peer)
    hold(peer, made)
    peer.call("seal", lease=made["lease"], release=True)
    error = peer.error("unsupported", "move", name="f")
    assert "final" in error.message
    why = peer.call("stat", why=True, name="f")
    assert "goes_to" not in why and why["reasons"] == [{"kind": "final"}], why


def test_registered_memory_that_the_kernel_holds_is_final(peer):
    fd = memfd(0o777, fcntl.F_SEAL_WRITE)
    assert register(peer, fd) == "ok"
    assert register(peer, memfd(0o600), "s") == "ok"
    assert peer.call("stat", name="r")["object"]["final"] is True
    assert "final" not in peer.call("stat", name="s")["object"]


def test_an_alias_of_final_is_final(peer):
    made = make_final(peer)
    hold(peer, made)
    peer.call("seal", lease=made["lease"])
    peer.call("alias", name="part", of="f", slice={"offset": 10, "length": 5})
    assert peer.call("stat", name="part")["object"]["final"] is True


def test_final_counts_as_a_segment(daemon_factory):
    peer = daemon_factory("--limit", "user_segments=3").connect()
    for i in range(3):
        peer.create(f"f{i}", bytes_layout(9), b"x", final=True)
    error = peer.error("limit", "create", name="more", layout=bytes_layout(9), final=True)
    assert error.data["limit"] == "user_segments"


def test_final_takes_room_as_others_do(daemon, peer):
    """64 MiB: what may go goes for it, what is too much is refused, and the figures add up."""
    mib = 1 << 20
    for i in range(15):
        peer.put(f"old/{i}", b"x" * (4 * mib), evict="drop")
    peer.unmap()
    error = peer.error("no_space", "create", name="f", layout=bytes_layout(65 * mib), final=True)
    assert "capacity" in error.message
    made = peer.create("f", bytes_layout(40 * mib + 1), b"x", final=True)
    assert len(peer.names("old/")) < 7
    told = peer.call("stats")["devices"][0]
    assert told["free"] + told["used"] + told["retained"] + told["pinned_by_clients"] == 64 * mib
    hold(peer, made)
    peer.call("seal", lease=made["lease"], release=True)
    peer.call("delete", name="f")
    peer.unmap()
    told = peer.wait_for_stats(lambda s: s["devices"][0]["pinned_by_clients"] == 0)["devices"][0]
    assert told["used"] == 4 * mib * len(peer.names("old/")), told
