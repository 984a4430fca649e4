"""stats: counters that count and gauges that add up."""

import pytest

import device as test_device
from peer import bytes_layout, wait_until

MIB = 1 << 20


def numbers(value, path=""):
    """Every number of the answer, by its path."""
    if isinstance(value, bool):
        return {}
    if isinstance(value, (int, float)):
        return {path: value}
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    out = {}
    for key, item in items:
        out.update(numbers(item, f"{path}.{key}"))
    return out


def test_gauges_come_back(daemon, peer):
    """After everything is gone, what counts what is there is as before; counters only grow."""
    before = numbers(peer.call("stats"))
    other = daemon.connect()
    other.put("a", b"a" * 1000)
    other.open_object("a")
    other.create("b", bytes_layout(20 * MIB))
    other.call("watch")
    during = numbers(peer.call("stats"))
    other.close()
    peer.call("delete", name="a")
    peer.call("trim")
    grown = {k for k in during if during[k] > before.get(k, 0)}

    def between():
        """Numbers that are neither back nor only grown: the daemon notices a hang-up a moment later."""
        after = numbers(peer.call("stats"))
        back = {k for k in grown if after[k] == before.get(k, 0)}
        return [k for k in grown - back if after[k] < during[k]] or not back

    wait_until(lambda: not between())


@pytest.mark.on_gpus
def test_who_it_is(peer):
    stats, hello = peer.call("stats"), peer.call("hello", protocol=1, resume={
        "instance": "", "objects": []})
    assert (stats["server"], stats["instance"]) == (hello["server"], hello["instance"])
    assert [(d["id"], d["name"]) for d in stats["devices"]] == [
        (d["id"], d["name"]) for d in hello["devices"]]
    assert [d.get("alias") for d in stats["devices"]] == (["cuda:0"] if test_device.ON_GPU else [None])


def test_what_is_used_is_counted(peer):
    """By method and parameter, once a request is answered; what was never given is not listed."""
    peer.put("counted", b"x")
    peer.call("open", name="counted", wait_ms=0)
    peer.error("not_found", "open", name="nothing", wait_ms=0)
    stats = peer.call("stats")
    assert stats["methods"]["open"] == {"calls": 2, "errors": 1}
    assert stats["params"]["open"] == {"name": 2, "wait_ms": 2} and stats["params"]["trim"] == {}
