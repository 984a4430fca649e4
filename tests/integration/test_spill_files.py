"""The disk tier's files: what is damaged is noticed, small ones share a file, a disk that fails, what
an earlier daemon left; and tiers that cannot be."""

import json
import os
import re
import signal
import subprocess

import pytest

import device as test_device
from conftest import GPUBUFD
from ctl import Ctl
from device import MIB
from peer import DEADLINE, RpcError, bytes_layout, wait_until
from tiers import SIZE, start  # noqa: F401  (a fixture)

# ---- when they fail ----------------------------------------------------------------------------


def damage(path, how, size, header, other):
    """Damages the first content of a file, of `size` bytes behind `header` bytes. `other` is another's, whole."""
    with open(path, "r+b") as file:
        if how == "flipped":
            file.seek(header + size // 2)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        elif how == "cut":
            file.truncate(header + size - 1)
        elif how == "header":
            file.seek(17)
            file.write(b"\xff")
        elif how == "empty":
            file.truncate(0)
        elif how == "another's":  # of the same size, and not what it should be
            file.write(other)
    if how in ("gone", "pipe", "directory"):
        os.unlink(path)
    if how == "pipe":  # which nobody ever writes to
        os.mkfifo(path)
    elif how == "directory":
        os.mkdir(path)


@pytest.mark.parametrize(
    "how", ["flipped", "cut", "gone", "header", "empty", "another's", "pipe", "directory"]
)
@pytest.mark.on_gpus
# RELIABILITY.md: The disk 1
def test_a_file_that_is_not_what_was_written(start, how):
    tiered = start(host=None)
    watch = tiered.daemon.connect()
    watch.call("watch", kinds=["withdrawn"])
    for name in "ab":
        tiered.put(name, MIB)
        tiered.peer.call("move", name=name)
    path, other = (os.path.join(tiered.directory, file) for file in tiered.files())
    with open(other, "rb") as file:
        damage(path, how, MIB, 4096, file.read())
    error = tiered.peer.error("device", "open", name="a")
    assert "lost" in error.message and path in error.message, error.message
    assert watch.events(1)[0][:2] == ("withdrawn", "a")
    assert tiered.peer.names() == ["b"]
    tiered.check("b")
    assert tiered.tier("disk")["failures"] == 1
    tiered.put("a")
    tiered.check("a")


# ---- small ones, which share a file ------------------------------------------------------------


def pack_of(tiered):
    return os.path.join(tiered.directory, "gpubufd.pack")


def on_disk(size):
    """Bytes on disk of a small object: its own and a header of 96, rounded up."""
    return -(-(size + 96) // 256) * 256


@pytest.mark.on_gpus
def test_small_ones_share_a_file(start):
    """Small objects take hardly more than their bytes of the tier and of the disk, also after some are deleted."""
    tiered = start(host=None, disk="2M")
    sizes = [480] * 300 + [1, 160, 161, 4000, 4096, 20_000, 65_536]
    names = [f"s/{i:03}" for i in range(len(sizes))]
    for name, size in zip(names, sizes):
        tiered.put(name, size)
        tiered.peer.call("move", name=name, tier="disk")
    assert tiered.files() == [] and tiered.tier("disk")["copies"] == len(names)
    assert tiered.tier("disk")["used"] == sum(on_disk(size) for size in sizes)
    tiered.put("large", 65_537)
    tiered.peer.call("move", name="large", tier="disk")
    assert len(tiered.files()) == 1
    tiered.check(*names, "large")
    gone = [name for i, name in enumerate(names) if i % 100]
    for at in range(0, len(gone), 64):
        tiered.peer.call("delete", names=gone[at:at + 64])
    left = [name for name in names if name not in gone]
    used = sum(on_disk(tiered.sizes[name]) for name in left) + 65_537 + 4096
    tiered.peer.wait_for_stats(lambda s: s["tiers"][-1]["used"] == used)
    assert os.stat(pack_of(tiered)).st_blocks * 512 <= 8192 * len(left)
    tiered.check(*left)
    for name in names[1:50]:  # in place of what has gone
        tiered.put(name, 480)
        tiered.peer.call("move", name=name, tier="disk")
    tiered.check(*left, *names[1:50])


@pytest.mark.parametrize("how", ["flipped", "empty", "header", "another's", "gone", "pipe", "directory"])
# RELIABILITY.md: The disk 2
def test_a_pack_that_is_not_what_was_written(start, how):
    """The damaged object is lost, and nothing else in the pack is."""
    tiered = start(host=None)
    for name in "abc":
        tiered.put(name, 1000)
        tiered.peer.call("move", name=name, tier="disk")
    path, room = pack_of(tiered), on_disk(1000)
    with open(path, "rb") as file:
        damage(path, how, 1000, 96, file.read()[room:2 * room])
    error = tiered.peer.error("device", "open", name="a")
    assert "lost" in error.message and path in error.message, error.message
    if how in ("flipped", "header", "another's"):
        tiered.check("b", "c")
        return
    for name in "bc":
        assert tiered.peer.error("device", "open", name=name)
    assert tiered.peer.names() == []
    assert tiered.daemon.stderr().count("object lost") == 3, "each has a line"


# RELIABILITY.md: The disk 1
def test_a_pack_of_an_earlier_time(start):
    """Without a journal, too: what lay in the same place before is not taken for what should be there."""
    tiered = start(host=None)
    path, room = pack_of(tiered), on_disk(1000)

    def put_and_read():
        tiered.put("a", 1000)
        tiered.peer.call("move", name="a", tier="disk")
        with open(path, "rb") as file:
            return file.read(room)

    before = put_and_read()
    tiered.peer.call("delete", name="a")
    tiered.peer.wait_for_stats(lambda s: s["tiers"][-1]["used"] == 0)
    after = put_and_read()
    assert before[40:48] == after[40:48] and before[48:80] == after[48:80], "the same place and daemon"
    with open(path, "r+b") as file:
        file.write(before)
    error = tiered.peer.error("device", "open", name="a")
    assert "of an earlier time" in error.message, error.message


@pytest.mark.on_gpus
# RELIABILITY.md: The disk 3
def test_a_disk_that_fails_keeps_what_can_be_kept(start):
    """Nothing can be written there: what may be dropped is, and all else stays."""
    tiered = start(host=None)
    tiered.put("kept", evict="keep")
    tiered.put("a")
    os.chmod(tiered.directory, 0o700)
    os.rename(tiered.directory, tiered.directory + "x")
    os.unlink(os.path.join(tiered.directory + "x", "gpubufd.lock"))
    os.rmdir(tiered.directory + "x")
    tiered.directory = None
    error = tiered.peer.error("device", "move", name="a")
    assert "cannot open" in error.message, error.message
    tiered.check("a", "kept")
    tiered.put("b", evict="drop")
    tiered.put("c", evict="drop")
    assert tiered.peer.names() == ["a", "c", "kept"]
    tiered.check("a", "c", "kept")
    reader = tiered.daemon.connect()
    reader.open_object("c")
    error = reader.error("no_space", "create", name="d", layout=bytes_layout(SIZE))
    assert "failed lately" in error.message, error.message
    assert tiered.tier("disk")["failures"] >= 1 and "cannot open" in tiered.tier("disk")["fault"]


@pytest.mark.root
# RELIABILITY.md: The disk 3
def test_a_disk_that_is_full(start, place):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", place],
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount")
    try:
        tiered = start(host=None, disk="30M", place=place)
        with open(os.path.join(place, "other"), "wb") as other:
            other.write(bytes(20 * MIB))
        tiered.put("a")
        error = tiered.peer.error("device", "move", name="a")
        assert "No space left" in error.message, error.message
        assert tiered.tier_of("a") == "device" and tiered.files() == []
        tiered.check("a")
        tiered.peer.error("no_space", "move", name="a")  # it is left alone for a while
        assert "No space left" in tiered.tier("disk")["fault"]
        told = json.loads(Ctl(tiered.daemon.path, place).raw("--json", "doctor").stdout)
        (finding,) = (one for one in told["findings"] if one["text"].startswith("tier disk"))
        assert finding["health"] == "warn" and "nothing can be written there: " in finding["text"]
        assert finding["text"].endswith(tiered.tier("disk")["fault"]) and "its room" in finding["advice"]
        for name in "bcd":
            tiered.put(name, evict="drop")
        assert tiered.peer.names() == ["a", "c", "d"]
        tiered.check("a", "c", "d")
        assert tiered.tier("disk")["used"] == 0
        os.unlink(os.path.join(place, "other"))

        def moves():
            try:
                return tiered.peer.call("move", name="a") is not None
            except RpcError as error:
                assert error.kind == "no_space"  # it has failed lately
                return False

        wait_until(moves)
        assert "fault" not in tiered.tier("disk") and tiered.tier_of("a") == "disk"
        tiered.daemon.check_no_leaks()
        tiered.daemon.stop()
    finally:
        tiered.daemon.kill()
        subprocess.run(["umount", place], check=True)


# ---- beginning and ending ----------------------------------------------------------------------


def test_files_are_removed_at_the_end(start):
    tiered = start(host=None)
    for name in "abcdef":
        tiered.put(name)
    assert len(tiered.files()) == 3
    tiered.daemon.stop()
    assert tiered.files() == []


# RELIABILITY.md: The disk 4
def test_files_that_were_left_are_removed_at_the_start(start, place):
    for name in ("0000000000000007.spill", "gpubufd.pack", "mine.spill", "notes"):
        with open(os.path.join(place, name), "wb"):
            pass
    tiered = start(place=place)
    wait_until(lambda: sorted(os.listdir(place)) == ["gpubufd.lock", "mine.spill", "notes"])
    tiered.put("a")
    assert tiered.daemon.stop() == 0


# RELIABILITY.md: The disk 4
def test_many_files_that_were_left_keep_nobody_waiting(start, place):
    """It serves first, and new files have names of their own."""
    for i in range(1000):
        with open(os.path.join(place, f"{i:016x}.spill"), "wb"):
            pass
    tiered = start(host=None, place=place)
    for name in "abcdef":
        tiered.put(name)
    wait_until(lambda: tiered.files() == [f"{1000 + i:016x}.spill" for i in range(3)])
    for name in "abcdef":
        tiered.check(name)
    log = tiered.daemon.stderr()
    assert re.search("files of an earlier daemon removed files=1000 left=0", log)
    assert log.index("listening socket=") < log.index("files of an earlier daemon removed")


def refused(*options, device=test_device.OPTION):
    done = subprocess.run([GPUBUFD, "--socket", "/nonexistent/s", "--device", device, *options],
                          env=test_device.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    return done.stderr


@pytest.mark.parametrize("spec, says", [
    ("disk:1G:/nonexistent/place", "cannot look at the directory /nonexistent/place"),
    ("disk:1G:/etc/hostname", "cannot open the directory /etc/hostname"),
    ("disk:1G", "expected disk:SIZE:DIRECTORY"),
    ("disk:1G:", "expected disk:SIZE:DIRECTORY"),
    ("disk:lots:/tmp", "no size"),
    ("disk:1M:/tmp", "at least 2M"),
    ("disk:900T:/tmp", "more than the file system has"),
    ("host:900T", "more than the machine has"),
    ("host:101%", "1% to 100%"),
    ("host:0", "no size"),
    ("tape:1G", "expected host:SIZE or disk:SIZE:DIRECTORY"),
])
def test_tiers_that_cannot_be(spec, says):
    assert says in refused("--tier", spec)


def test_a_directory_that_cannot_be_written():
    said = refused("--tier", "disk:2M:/proc/self")
    assert "/proc/self" in said


@pytest.mark.parametrize("marks", ["90", "90:80", "80:101", "a:b", "80:90:95", ""])
def test_watermarks_that_cannot_be(marks):
    assert "expected LOW:HIGH" in refused("--watermarks", marks)


def test_two_daemons_and_one_directory(start):
    tiered = start()
    assert "another daemon" in refused("--tier", f"disk:2M:{tiered.directory}")


@pytest.mark.on_gpus
def test_it_stops_while_it_spills(start):
    """Copies under way are given up, and nothing is left behind."""
    tiered = start(host=None)
    for name in "abc":
        tiered.put(name)
    peers = [tiered.daemon.connect() for _ in range(3)]
    for peer, name in zip(peers, "abc"):
        peer.request("move", name=name)
        peer.wait_until_read()
    tiered.daemon.process.send_signal(signal.SIGTERM)
    assert tiered.daemon.process.wait(DEADLINE) == 0
    assert tiered.files() == []
