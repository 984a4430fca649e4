"""Users get from each other, whatever they try, no bytes, handles, paths or secrets.

test_rule5_access.py has users' rights by objects' modes."""

import base64
import fcntl
import mmap
import os
import random
import re

import pytest

import device as test_device
from device import MIB, SHARES, handle, own_memory
from http_client import get
from peer import DEADLINE, Peer, RpcError, bytes_layout
from restarts import supervised  # noqa: F401

pytestmark = pytest.mark.root

ALICE, BOB = (1001, 1001), (1002, 1002)
MARK = b"alice's secret!!"  # 16 bytes


def contents(peer, made, gpu):
    """Everything that whoever creates an object can read: the whole of each segment it was given."""
    out = b""
    for told in made["segments"]:
        segment = peer.segment(told["id"])
        if told["handle"]["kind"] == "cuda_ipc":
            out += gpu.read(told["handle"]["ipc"], told["bytes"])
        else:
            out += os.pread(segment.fd, segment.bytes, 0)
    return out


def fill(peer, name, count, gpu, share="fd", **params):
    """An object with MARK in every byte of it, sealed."""
    made = peer.call("create", name=name, layout=bytes_layout(count), share=share,
                     **{"evict": "drop", **params})
    buffer = made["object"]["layout"]["data"]
    segment = peer.segments[(buffer["segment"], "rw")]
    data = (MARK * (count // len(MARK) + 1))[:count]
    if share == "ipc":
        gpu.write(segment.handle["ipc"], b"\0" * buffer["offset"] + data)
    else:
        os.pwrite(segment.fd, data, buffer["offset"])
    peer.call("seal", lease=made["lease"], release=True)


# ---- memory that changes hands -----------------------------------------------------------------


@pytest.mark.parametrize("share,count", [("fd", 1000), ("fd", 300_000), ("fd", 5 * MIB), ("fd", 20 * MIB)]
                         + [("ipc", 1000), ("ipc", 300_000), ("ipc", 5 * MIB)] * ("ipc" in SHARES))
def test_freed_memory_shows_nothing(daemon, gpu, share, count):
    """More than is left over is made anew by another user, so that memory has to be used again."""
    for round_ in range(3):
        alice, bob = daemon.connect_as(*ALICE), daemon.connect_as(*BOB)
        number = min(40 * MIB // count, 2 if share == "ipc" else 8)
        for i in range(number):
            fill(alice, f"a/{i}", count, gpu, share)
        names = [f"a/{i}" for i in range(number)]
        if round_ == 1:
            alice.call("delete", names=names)
            alice.unmap()
        elif round_ == 2:  # gone without a word, its objects evicted
            alice.close()
        else:
            alice.call("delete", names=names)
            alice.close()
        made = []
        for i in range(number):
            one = bob.call("create", name=f"b/{i}", layout=bytes_layout(count), share=share,
                           wait_ms=int(DEADLINE * 1000))
            assert MARK[:8] not in contents(bob, one, gpu), "what was alice's is bob's"
            made.append(one)
        for one in made:
            bob.call("release", lease=one["lease"])
        bob.close()
        with Peer(daemon.path) as root:
            for name in root.names():
                root.call("delete", name=name)


def test_memory_of_what_was_never_sealed(daemon, gpu):
    """A writer that dies midway leaves nothing to another user."""
    alice, bob = daemon.connect_as(*ALICE), daemon.connect_as(*BOB)
    made = alice.create("a", bytes_layout(40 * MIB), MARK * (40 * MIB // len(MARK)))
    assert made["lease"]
    alice.close()
    one = bob.call("create", name="b", layout=bytes_layout(40 * MIB), wait_ms=int(DEADLINE * 1000))
    assert MARK[:8] not in contents(bob, one, gpu)
    bob.call("release", lease=one["lease"])


def test_domains_of_one_user_are_apart(daemon, gpu):
    """Whoever may open a public object is given a segment, and with it all that lies there: nothing
    that is private may."""
    alice = daemon.connect_as(*ALICE)
    for i in range(20):
        fill(alice, f"private/{i}", 2000, gpu)
    alice.call("delete", names=[f"private/{i}" for i in range(0, 20, 2)])
    alice.put("public", b"x" * 2000, mode="0644")
    bob = daemon.connect_as(*BOB)
    opened = bob.open_object("public")
    segment = bob.segment(opened.layout["data"]["segment"])
    assert MARK[:8] not in os.pread(segment.fd, segment.bytes, 0)


def test_random_users(daemon, gpu):
    """Users, sizes and modes as they come: every byte that somebody is given is his own or zero."""
    rng = random.Random(7)
    users = [(1001, 1001), (1002, 1002), (1003, 1001)]
    peers = {user: daemon.connect_as(*user) for user in users}
    held = []
    for step in range(80):
        user, mode = rng.choice(users), rng.choice(["0600", "0640", "0644"])
        peer, count = peers[user], rng.choice([100, 5000, 400_000, 3 * MIB])
        if len(held) > 6 or (held and rng.random() < 0.4):
            owner, name = held.pop(rng.randrange(len(held)))
            peers[owner].call("delete", name=name)
            if rng.random() < 0.5:
                peers[owner].unmap()
            continue
        mark = b"<%d:%d:%s>" % (*user, mode.encode())
        try:
            made = peer.call("create", name=f"o/{step}", layout=bytes_layout(count), mode=mode,
                             wait_ms=int(DEADLINE * 1000))
        except RpcError as error:
            assert error.kind in ("no_space", "timeout"), error
            continue
        seen = contents(peer, made, gpu)
        buffer = made["object"]["layout"]["data"]
        others = set(re.findall(rb"<\d+:\d+:\d+>", seen)) - {mark}
        assert not others, f"{mark} is given a segment with {others}"
        segment = peer.segments[(buffer["segment"], "rw")]
        os.pwrite(segment.fd, (mark * (count // len(mark) + 1))[:count], buffer["offset"])
        peer.call("seal", lease=made["lease"], release=True)
        held.append((user, f"o/{step}"))


# ---- handles of others -------------------------------------------------------------------------


def register(peer, fd, count, **params):
    return peer.call("register", fds=[fd], handles=[handle(count)],
                     layout={"kind": "bytes", "bytes": 16,
                             "data": {"handle": 0, "offset": 0, "bytes": 16}}, **params)


@pytest.mark.host_only("a GPU's memory has one kind of descriptor")
def test_a_readers_descriptor_registered_gives_no_more(daemon):
    """It shares on what it could read anyway, and nobody can write by it: not even its new owner."""
    alice, bob = daemon.connect_as(*ALICE), daemon.connect_as(*BOB)
    alice.put("public", MARK * 100, mode="0644")
    opened = bob.open_object("public")
    segment = bob.segment(opened.layout["data"]["segment"])
    try:
        register(bob, segment.fd, segment.bytes, name="mine", mode="0666")
    except RpcError as error:
        assert error.kind in ("invalid", "denied"), error
        return
    again = daemon.connect_as(*BOB).open_object("mine")
    assert again.read() == (MARK)[:16]
    for peer in (bob, alice):
        for one in peer.segments.values():
            if one.access == "r":
                assert fcntl.fcntl(one.fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
                with pytest.raises(OSError):
                    mmap.mmap(one.fd, one.bytes, mmap.MAP_SHARED, mmap.PROT_WRITE)
    bob.call("delete", name="mine")


def test_a_segment_is_no_handle(daemon):
    """A handle is a descriptor that the caller has: no number means somebody else's memory."""
    alice, bob = daemon.connect_as(*ALICE), daemon.connect_as(*BOB)
    fd, count = own_memory(MARK)
    register(alice, fd, count, name="a")
    layout = {"kind": "bytes", "bytes": 16, "data": {"segment": 1, "offset": 0, "bytes": 16}}
    bob.error("invalid", "register", fds=[fd], name="b", handles=[handle(count)], layout=layout)
    os.close(fd)
    assert bob.names() == []


@pytest.mark.skipif(not test_device.ON_GPU, reason="the host has no legacy handles")
def test_a_legacy_handle_that_is_guessed(daemon, gpu, another_gpu):
    """Handles with a bit changed open nothing; one that was handed out is a bearer's (SECURITY.md)."""
    alice, bob = daemon.connect_as(*ALICE), daemon.connect_as(*BOB)
    fill(alice, "a", 1000, gpu, share="ipc")
    opened = alice.call("open", name="a", segments="all")
    ipc = base64.b64decode(opened["segments"][0]["handle"]["ipc"])
    for position in (0, 20, 63):
        guess = bytearray(ipc)
        guess[position] ^= 0x10
        with pytest.raises(AssertionError, match="INVALID"):
            another_gpu.read(base64.b64encode(guess).decode(), 16)
    assert another_gpu.read(base64.b64encode(ipc).decode(), 2 * MIB).count(MARK) > 50, "and this one does"
    assert bob.names() == []
    alice.call("release", lease=opened["lease"])


# ---- names are no paths ------------------------------------------------------------------------

TRAVERSALS = ["../../etc/passwd", "..", ".", "a/../../b", "~root/.ssh", "proc/self/mem", "-rf", "%2e%2e",
              "a" * 255, "C:\\x", "$(id)", "`id`", "*", "lock", "gpubufd.lock", "0" * 16 + ".spill"]


def tree(path):
    return sorted(os.path.join(place, name) for place, directories, files in os.walk(path)
                  for name in directories + files)


@pytest.mark.parametrize("tier", [False, True])
def test_names_touch_no_files(daemon_factory, directory, tier):
    """Whatever an object is called: nothing comes to be, or to be read, by that name. With a tier on
    disk, files have names of the daemon's own."""
    spill = f"{directory}/spill"
    os.mkdir(spill)
    # Files that a name might reach, beside those that it must not create.
    with open(f"{directory}/passwd", "wb") as file:
        file.write(b"root:secret")
    options = ["--tier", f"disk:256M:{spill}"] if tier else []
    daemon = daemon_factory(*options, cwd=spill)
    before = tree(directory)
    peer = daemon.connect()
    for name in TRAVERSALS + [f"{directory}/passwd".strip("/"), "../passwd", "../../passwd"]:
        try:
            peer.put(name, os.urandom(3 * MIB))
        except RpcError as error:
            assert error.kind == "invalid", error
            continue
        assert peer.open_object(name).release() is None
        if tier:
            peer.call("move", name=name)
    made = [path for path in tree(directory) if path not in before]
    made = [path for path in made if not re.search(r"/spill/[0-9a-f]{16}\.spill$", path)]
    assert made == []
    for name in peer.names():
        peer.call("delete", name=name)
    assert open(f"{directory}/passwd", "rb").read() == b"root:secret"
    for bad in ("/etc/passwd", "a//b", "a/", "a\nb", ""):
        peer.error("invalid", "create", name=bad, layout=bytes_layout(1))


def test_spilled_content_is_the_daemons_alone(daemon_factory, directory):
    """Files on disk can be read by nobody but the daemon's user."""
    spill = f"{directory}/spill"
    os.mkdir(spill)
    os.chmod(spill, 0o755)
    daemon = daemon_factory("--tier", f"disk:64M:{spill}")
    alice = daemon.connect_as(*ALICE)
    alice.put("a", MARK * (8 * MIB // len(MARK)), mode="0644")
    daemon.connect().call("move", name="a")
    assert alice.call("stat", name="a")["object"]["tier"] == "disk"
    files = [f"{spill}/{name}" for name in os.listdir(spill)]
    assert any(name.endswith(".spill") for name in files)
    assert all(os.stat(name).st_mode & 0o077 == 0 for name in files)
    assert alice.open_object("a").read()[:16] == MARK


def test_the_daemon_has_no_network(supervised):  # noqa: F811
    """All sockets of it and of its helpers are of Unix, also while it serves."""
    daemon = supervised()
    with daemon.connect() as peer:
        peer.put("a")
        processes, sockets = [daemon.pid], set()
        for pid in processes:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                processes += file.read().split()
            for entry in os.scandir(f"/proc/{pid}/fd"):
                sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry.path)))
        with open("/proc/net/unix") as file:
            known = {line.split()[6] for line in file}
    assert len(processes) > 3 and sockets and sockets <= known


# ---- what is written down ----------------------------------------------------------------------


def test_secrets_are_not_logged(daemon_factory, gateway, directory, gpu):
    """At the daemon's most talkative: no content, no handle, no token, nor what a name maps to."""
    token, path = base64.b64encode(os.urandom(24)).decode(), f"{directory}/token"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(token + "\n")
    daemon = daemon_factory("--log-level", "debug")
    looks_on = gateway(daemon, "--http", "127.0.0.1:0", "--http-token-file", path)
    peer, secrets = daemon.connect(), [token, MARK.decode()]
    for share in SHARES:
        fill(peer, f"private/{share}", 1000, gpu, share)
        opened = peer.call("open", name=f"private/{share}", segments="all")
        secrets += [one["handle"].get("ipc", MARK.decode()) for one in opened["segments"]]
        peer.call("release", lease=opened["lease"])
    peer.call("create", name="meta", layout={
        "kind": "column", "dtype": "int8", "length": 1, "metadata": {"password": "hunter22"}})
    secrets.append("hunter22")
    # Also what goes wrong.
    peer.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"name":"%s"}\n' % MARK)
    for bad in ({"name": "x", "wrong": MARK.decode()}, {"name": MARK.decode() + "\n"}):
        try:
            peer.call("open", **bad)
        except RpcError:
            pass
    assert get(looks_on.port, f"/api/objects?token={token}").status == 401
    text = daemon.stderr() + looks_on.stderr()
    assert "session began" in text
    assert [secret for secret in secrets if secret in text] == []
    peer.delete(peer.names())
