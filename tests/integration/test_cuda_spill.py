"""Races while content moves: with a driver that is held up in the middle of a copy, and with every
failure of one."""

import os
import signal

import pytest

import device as test_device
from device import KIND, MIB
from peer import DEADLINE, RpcError, bytes_layout, wait_until
from test_cuda_faults import Switch
from tiers import SIZE, content, start  # noqa: F401  (a fixture)

OUT, IN = "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"


class Gate(Switch):
    """Holds up every call of a function of the driver while it is on, so that a copy is under way for
    as long as a test wants."""

    def __init__(self, directory, function):
        super().__init__(f"{directory}/gate-{function}")
        self.function = function
        self.trace = f"{directory}/trace"
        self.before = 0
        self.env = {"FAKECUDA_DELAY": f"{function}:{int(DEADLINE * 3000)}@{self.path}",
                    "FAKECUDA_TRACE": self.trace}

    def calls(self):
        if not os.path.exists(self.trace):
            return 0
        with open(self.trace) as file:
            return sum(line.split()[1] == self.function for line in file)

    def on(self):
        self.before = self.calls()
        super().on()

    def wait(self):
        """Waits until a call is held up."""
        wait_until(lambda: self.calls() != self.before)


@pytest.fixture
def gate(directory):
    return lambda function: Gate(directory, function)


@pytest.fixture
def gated(start, gate):
    """gated(OUT, "ab"): a gate for copies out, and objects of those names on the device. gated(IN, "ab"):
    one for copies back, and the first of them is spilled."""

    def make(function, names):
        held = gate(function)
        tiered = start(env=held.env)
        for name in names:
            tiered.put(name)
        if function == IN:
            tiered.peer.call("move", name=names[0])
        return held, tiered

    return make


def ask(tiered, method, **params):
    """A new session that has sent a request."""
    peer = tiered.daemon.connect()
    return peer, peer.request(method, **params)


def failure(peer, ident):
    """The error that is the reply."""
    with pytest.raises(RpcError) as caught:
        peer.reply(ident)
    return caught.value


def empty(tiered):
    """Checks that the device and the tiers are empty."""
    tiered.peer.call("trim")
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"])
                               and s["devices"][0]["used"] == 0 and s["objects"] == 0)
    assert tiered.files() == []


# ---- on the way out ----------------------------------------------------------------------------


def test_others_are_opened_at_once_while_one_is_spilled(gated):
    out, tiered = gated(OUT, "ab")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        tiered.check("b")
        tiered.peer.call("hello", protocol=1)
        assert ident not in peer.replies
    assert peer.reply(ident) == {}
    tiered.check("a", "b")


def test_one_that_is_opened_while_it_is_copied_stays(gated):
    out, tiered = gated(OUT, "a")
    reader = tiered.daemon.connect()
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        opened = reader.open_object("a")
        assert opened.read() == content("a", SIZE)
    assert failure(peer, ident).kind == "busy"
    assert tiered.tier_of("a") == "device"
    assert opened.read() == content("a", SIZE)
    opened.release()
    writes = tiered.tier("host")["writes"]
    tiered.peer.call("move", name="a")
    assert tiered.tier("host")["writes"] == writes, "it was copied before"
    tiered.check("a")


def test_one_that_is_used_while_it_is_about_to_leave_is_passed_over(gated):
    out, tiered = gated(OUT, "abc")
    with out:
        peer, ident = ask(tiered, "create", name="d", layout=bytes_layout(SIZE))
        out.wait()
        tiered.check("a")  # which the copy is made of
    peer.call("seal", lease=peer.reply(ident)["lease"], release=True)
    assert tiered.tiers_of("abcd") == ["device", "host"] + ["device"] * 2
    tiered.check("a", "b", "c")


def test_a_delete_during_a_spill(gated):
    out, tiered = gated(OUT, "a")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        assert tiered.peer.call("delete", name="a") == {}
        assert tiered.peer.names() == []
    assert failure(peer, ident).kind == "not_found"
    empty(tiered)


def test_a_replacement_during_a_spill(gated):
    """The new version is not what was copied."""
    out, tiered = gated(OUT, "a")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        tiered.put("a", MIB, replace=True)
        tiered.check("a")
    assert peer.reply(ident) == {}  # of whatever has the name
    assert tiered.tier_of("a") == "host"
    tiered.check("a")
    assert tiered.tier("host")["copies"] == 1


def test_an_alias_made_while_a_copy_is_under_way(gated):
    out, tiered = gated(OUT, "a")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        tiered.peer.call("alias", name="b", of="a", slice={"offset": 3 * MIB, "length": 100})
    assert peer.reply(ident) == {}
    assert tiered.tiers_of("ab") == ["host"] * 2
    opened = tiered.peer.open_object("b")
    assert opened.read() == content("a", SIZE)[3 * MIB : 3 * MIB + 100]
    opened.release()
    tiered.check("a")


def test_a_pin_while_a_copy_is_under_way(gated):
    out, tiered = gated(OUT, "a")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        tiered.peer.call("set", pinned=True, name="a")
    assert failure(peer, ident).kind == "busy"
    assert tiered.tier_of("a") == "device"
    assert tiered.stats()["devices"][0]["pinned"] == SIZE


def test_killed_while_it_waits_for_room(gated, child):
    out, tiered = gated(OUT, "abc")

    def work(peer):
        peer.request("create", name="d", layout=bytes_layout(SIZE))

    with out:
        one = child(tiered.daemon, work)
        out.wait()
        one.kill()
        tiered.check("b", "c")
    tiered.wait_for_moves()
    assert tiered.tiers_of("abc") == ["device"] * 3, "nobody wants room any more"
    assert tiered.stats()["devices"][0]["leased"] == 0
    tiered.check("a", "b", "c")


# ---- on the way back ---------------------------------------------------------------------------


def test_two_wait_for_one_restore(gated):
    back, tiered = gated(IN, "a")
    with back:
        waiting = [ask(tiered, "open", name="a") for _ in range(3)]
        waiting.append(ask(tiered, "move", tier="device", name="a"))
        back.wait()
        for peer, _ in waiting:
            peer.wait_until_read()
    for peer, ident in waiting[:3]:
        data = peer.reply(ident)["object"]["layout"]["data"]
        assert peer.read(data) == content("a", SIZE)
    assert waiting[3][0].reply(waiting[3][1]) == {}
    assert tiered.tier("host")["reads"] == 1


def test_a_restore_and_a_delete(gated):
    back, tiered = gated(IN, "a")
    with back:
        opener, opening = ask(tiered, "open", name="a")
        restorer, restoring = ask(tiered, "move", tier="device", name="a")
        back.wait()
        restorer.wait_until_read()
        assert tiered.peer.call("delete", name="a") == {}
        assert tiered.peer.names() == []
    assert failure(opener, opening).kind == "not_found"
    assert failure(restorer, restoring).kind == "not_found"
    empty(tiered)


def test_a_restore_and_a_replacement(gated):
    back, tiered = gated(IN, "a")
    with back:
        peer, ident = ask(tiered, "open", name="a")
        back.wait()
        tiered.put("a", MIB, replace=True)
    told = peer.reply(ident)["object"]
    assert told["bytes"] == MIB, "the name's object is opened, and that is the new one"
    assert peer.read(told["layout"]["data"]) == content("a", MIB)
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))


def test_a_restore_and_an_alias(gated):
    back, tiered = gated(IN, "a")
    with back:
        peer, ident = ask(tiered, "open", name="a")
        back.wait()
        tiered.peer.call("alias", name="b", of="a", slice={"offset": 5, "length": 50})
        tiered.peer.call("delete", name="a")
    assert failure(peer, ident).kind == "not_found"
    opened = tiered.peer.open_object("b")
    assert opened.read() == content("a", SIZE)[5:55]
    assert tiered.tier("host")["reads"] == 1


def test_an_alias_does_not_make_one_that_comes_back_leave(gated):
    """It has room on the device, and is not there yet."""
    back, tiered = gated(IN, "ab")
    with back:
        peer, ident = ask(tiered, "open", name="a")
        back.wait()
        tiered.peer.call("alias", name="c", of="a", slice={"offset": 5, "length": 50})
        device = tiered.stats()["devices"][0]
        assert device["evictable"] == SIZE, "that is b"
        tiered.put("d")
        tiered.peer.call("open", name="b")
        tiered.peer.call("open", name="d")
        tiered.peer.error("no_space", "create", name="e", layout=bytes_layout(SIZE))
    data = peer.reply(ident)["object"]["layout"]["data"]
    assert peer.read(data) == content("a", SIZE)
    tiered.check("a", "b", "d")
    opened = tiered.peer.open_object("c")
    assert opened.read() == content("a", SIZE)[5:55]


def test_pinned_while_it_is_restored(gated):
    back, tiered = gated(IN, "a")
    with back:
        peer, ident = ask(tiered, "move", tier="device", name="a")
        back.wait()
        tiered.peer.call("set", pinned=True, name="a")
    assert peer.reply(ident) == {}
    for name in "bcd":
        tiered.put(name)
    assert tiered.tier_of("a") == "device"
    assert tiered.stats()["devices"][0]["pinned"] == SIZE
    tiered.peer.call("set", pinned=False, name="a")
    assert tiered.stats()["devices"][0]["pinned"] == 0


def test_killed_while_it_waits_for_a_restore(gated, child):
    back, tiered = gated(IN, "a")
    with back:
        one = child(tiered.daemon, lambda peer: peer.request("open", name="a"))
        back.wait()
        one.kill()
        assert tiered.peer.call("leases") == {"leases": [], "mapped": []}
    tiered.peer.wait_for_stats(lambda s: s["devices"][0]["restores"] == 1)
    assert tiered.stats()["devices"][0]["leased"] == 0
    tiered.check("a")
    for name in "bcd":  # and it may leave again
        tiered.put(name)
    assert tiered.tier_of("a") == "host"


def test_others_are_opened_while_one_comes_back(gated):
    back, tiered = gated(IN, "ab")
    with back:
        peer, ident = ask(tiered, "open", name="a")
        back.wait()
        tiered.check("b")
        tiered.put("c")
        assert tiered.peer.call("move", name="b") == {}, "both directions at once"
    assert peer.reply(ident)["object"]["tier"] == "device"


# ---- failures ----------------------------------------------------------------------------------


@pytest.fixture
def broken(directory):
    """broken(function, error): (switch, environment)"""
    switch = Switch(f"{directory}/broken")

    def make(function, error=999):
        rules = [f"{function}:*:{error}@{switch.path}"]
        if function == "cuEventSynchronize":  # which is called for copies that are not soon done
            rules.append(f"cuEventQuery:*:600@{switch.path}")
        return switch, {"FAKECUDA_FAIL": ",".join(rules)}

    return make


@pytest.mark.parametrize("function,tier", [
    (OUT, "host"), (OUT, "disk"), ("cuMemMap", "host"), ("cuMemSetAccess", "host"), ("cuMemImportFromShareableHandle", "host"),
    ("cuEventRecord", "disk"), ("cuEventQuery", "host"), ("cuEventSynchronize", "disk")])
def test_a_copy_out_that_fails(start, broken, function, tier):
    switch, env = broken(function)
    tiered = start(env=env)
    tiered.put("a")
    with switch:
        error = tiered.peer.error("device", "move", name="a", tier=tier)
        assert "CUDA_ERROR_UNKNOWN" in error.message, error.message
        assert tiered.tier_of("a") == "device"
        tiered.check("a")
        assert tiered.tier(tier)["failures"] == 0, "it is not the tier that fails"
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))
    assert tiered.peer.call("move", name="a", tier=tier) == {}
    assert tiered.tier_of("a") == tier
    tiered.check("a")


def test_room_for_which_no_copy_can_be_made(start, broken):
    """A request for room is told in time why there is none; and nothing is lost."""
    switch, env = broken(OUT)
    tiered = start(env=env)
    for name in "abc":
        tiered.put(name)
    with switch:
        for wait_ms in (0, 300):
            error = tiered.peer.error("device", "create", name="d", layout=bytes_layout(SIZE),
                                      wait_ms=wait_ms)
            assert "CUDA_ERROR_UNKNOWN" in error.message, error.message
        tiered.check("a", "b", "c")
        assert tiered.stats()["devices"][0]["leaving"] == 0
    tiered.put("d")
    tiered.check("a", "b", "c", "d")


@pytest.mark.parametrize("function,tier", [(IN, "host"), (IN, "disk"), ("cuMemMap", "host"), ("cuEventSynchronize", "disk")])
def test_a_copy_in_that_fails(start, broken, function, tier):
    switch, env = broken(function)
    tiered = start(env=env)
    tiered.put("a")
    tiered.peer.call("move", name="a", tier=tier)
    tiered.peer.call("trim")
    tiered.peer.wait_until_given_back()
    with switch:
        for method, more in (("open", {}), ("move", {"tier": "device"})):
            error = tiered.peer.error("device", method, name="a", **more)
            assert "CUDA_ERROR_UNKNOWN" in error.message, error.message
            assert tiered.tier_of("a") == tier
            assert tiered.stats()["devices"][0]["used"] == 0
    tiered.check("a")
    assert tiered.tier(tier)["failures"] == 0


def test_a_context_that_cannot_be_made(start, broken):
    switch, env = broken("cuDevicePrimaryCtxRetain", 2)
    tiered = start(env=env)
    tiered.put("a")
    with switch:
        error = tiered.peer.error("device", "move", name="a")
        assert "CUDA_ERROR_OUT_OF_MEMORY" in error.message, error.message
    tiered.peer.call("move", name="a")
    tiered.check("a")


def test_memory_that_cannot_be_pinned(start, broken):
    switch, env = broken("cuMemHostRegister", 2)
    tiered = start(env=env)
    names = [f"o/{i}" for i in range(6)]
    with switch:
        for name in names:
            tiered.put(name)
        tiered.peer.call("move", name=names[-1], tier="disk")
        tiered.check(*names)
    said = [line for line in tiered.daemon.stderr().splitlines() if "not pinned" in line]
    assert len(said) == 1 and "CUDA_ERROR_OUT_OF_MEMORY" in said[0], said


def test_a_gpu_that_is_lost_while_it_spills(start, gate, directory):
    out = gate(OUT)
    lost = Switch(f"{directory}/lost")
    tiered = start(env={**out.env, "FAKECUDA_LOST": f"0:{lost.path}"}, device=f"{KIND}:all:64M")
    tiered.put("a")
    tiered.put("b")
    tiered.put("other", device=test_device.UUIDS[1])
    tiered.peer.call("move", name="b")
    with out:
        peer, ident = ask(tiered, "move", name="a")
        out.wait()
        lost.on()
    assert failure(peer, ident).kind in ("device", "not_found")
    tiered.peer.wait_for_stats(lambda s: s["names"] == 1)
    assert tiered.peer.names() == ["other"]
    tiered.peer.call("move", name="other")
    tiered.check("other")
    tiered.peer.wait_for_stats(lambda s: s["devices"][0]["used"] == 0)
    tiered.peer.call("delete", name="other")
    tiered.peer.wait_for_stats(lambda s: all(t["used"] == 0 for t in s["tiers"]))
    tiered.daemon.stop()


# ---- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [OUT, IN])
@pytest.mark.parametrize("tier", ["host", "disk"])
def test_it_stops_during_a_move(start, gate, gpu, function, tier):
    held = gate(function)
    tiered = start(env=held.env)
    for name in "ab":
        tiered.put(name)
    if function == IN:
        tiered.peer.call("move", name="a", tier=tier)
    with held:
        method = "open" if function == IN else "move"
        params = {} if function == IN else {"tier": tier}
        ask(tiered, method, name="a", **params)
        held.wait()
        tiered.daemon.process.send_signal(signal.SIGTERM)
        tiered.daemon.wait_for("stopping")
    assert tiered.daemon.process.wait(DEADLINE) == 0
    assert tiered.files() == [] and gpu.used() == 0
