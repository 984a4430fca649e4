"""A daemon that dies again and again, each time before the grace period is over: what survived one
crash survives the next ones, nobody is refused, and nobody's memory is given to another."""

from peer import at, bytes_layout, wait_until
from restarts import supervised  # noqa: F401 (a fixture)

GRACE = ("--grace", "600000")


def of_device(daemon, key):
    return daemon.connect().call("stats")["devices"][0][key]


# RELIABILITY.md: The daemon ends 4
def test_memory_does_not_run_out(supervised):  # noqa: F811
    """Free memory stays free, however often the daemon dies."""
    daemon = supervised(*GRACE)
    peer = daemon.connect()
    for i in range(20):
        peer.put(f"there/{i}", bytes([i]) * 80_000)
    peer.create("open", bytes_layout(8000))
    before = of_device(daemon, "free")
    for i in range(10):
        daemon.crash()
        daemon.connect().put(f"later/{i}", b"l" * 8000)
        assert of_device(daemon, "free") == before
    peer = daemon.connect()
    for i in range(20):
        assert peer.open_object(f"there/{i}").read() == bytes([i]) * 80_000


def place_of(made):
    buffer = at(made["object"]["layout"], "data")
    return buffer["segment"], buffer["offset"]


# RELIABILITY.md: The daemon ends 5
def test_what_is_written_to_is_nobody_elses(supervised):  # noqa: F811
    """A range that somebody writes to as the daemon dies is left alone by its successors until the
    grace period is over. The free ranges beside it are handed out at once."""
    daemon = supervised(*GRACE)
    writer = daemon.connect()
    writer.put("a", b"a" * 8000)
    written = writer.create("w", bytes_layout(8000))
    writer.put("b", b"b" * 8000)
    for i in range(3):
        daemon.crash()
        peer = daemon.connect()
        for j in range(50):
            writer.write(at(written["object"]["layout"], "data"), b"?" * 8000)
            peer.put(f"n{i}/{j}", b"n" * 8000)
    writer.write(at(written["object"]["layout"], "data"), b"?" * 8000)
    contents = {name: peer.open_object(name).read() for name in peer.names()}
    places = {name: place_of(peer.call("open", name=name)) for name in contents}
    assert contents == {name: name[:1].encode() * 8000 for name in contents}
    assert len(contents) == 152
    assert len(set(places.values())) == 152 and place_of(written) not in places.values()
    assert {segment for segment, _ in places.values()} == {place_of(written)[0]}


def test_it_is_handed_out_in_the_end(supervised):  # noqa: F811
    daemon = supervised("--grace", "300")
    peer = daemon.connect()
    peer.put("a", b"a" * 8000)
    place = place_of(peer.create("w", bytes_layout(8000)))
    peer.put("b", b"b" * 8000)
    daemon.crash()
    peer = daemon.connect()

    def is_handed_out():
        made = peer.create("w", bytes_layout(8000))
        peer.call("release", lease=made["lease"])
        return place_of(made) == place

    wait_until(is_handed_out)
    assert peer.open_object("b").read() == b"b" * 8000
