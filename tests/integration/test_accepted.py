"""Accepted layouts survive: every layout that create, seal, register and alias take is there after
kill -9, word for word; and a layout that the next daemon would refuse is refused at the beginning.

`GPUBUF_TEST_PROGRAMS=1000` tries more than the few of a usual run."""

import fcntl
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import device
from layouts import a_layout, counts, replaced
from peer import RpcError, column, table
from restarts import supervised  # noqa: F401, a fixture

EXAMPLES = int(os.environ.get("GPUBUF_TEST_PROGRAMS", 12))
LAYOUTS = 24  # in an example, which is one crash
MEMORY = 1 << 17


def first_offset(layout):
    found = []
    replaced(layout, lambda buffer: found.append(buffer) or buffer)
    return min((b["offset"] for b in found if b["bytes"]), default=0)


class Accepted:
    """A session that makes objects of all kinds, and knows which were accepted."""

    def __init__(self, peer):
        self.peer, self.random, self.tried, self.names = peer, None, 0, []
        self.memory = []

    def tries(self, method, fds=(), **params):
        self.tried += 1
        name = f"{method}/{self.tried}"
        try:
            self.peer.call(method, fds=fds, name=name, **params)
        except RpcError as error:
            assert error.kind in ("invalid", "limit", "no_space"), error
            return None
        self.names.append(name)
        return name

    def create(self, layout):
        self.tried += 1
        name = f"create/{self.tried}"
        final = not device.ON_GPU and self.random.random() < 0.2
        try:
            lease = self.peer.create(name, layout, mode="0644", final=final)
        except RpcError as error:
            assert error.kind in ("invalid", "limit", "no_space"), error
            return None
        for segment in lease["segments"] if final else []:
            fd = self.peer.segments[(segment["id"], "rw")].fd
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        for told in (counts(self.random, layout), {}):
            try:
                self.peer.call("seal", lease=lease["lease"], release=True, null_counts=told)
                break
            except RpcError as error:
                assert error.kind == "invalid" and told, error
        self.names.append(name)
        return name

    def register(self, name):
        """The layout that `name` has, over memory of our own: in one piece or in two."""
        layout = self.peer.call("stat", name=name)["object"]["layout"]
        base = first_offset(layout) // 256 * 256
        pieces = self.random.choice([1, 2])
        odd = self.random.choice([0, 0, 1, 100])
        layout = replaced(layout, lambda buffer: {
            "handle": self.random.randrange(pieces), "bytes": buffer["bytes"],
            "offset": buffer["offset"] - base if buffer["bytes"] else 0})
        also = self.random.choice([0, fcntl.F_SEAL_WRITE])
        fds = [sealed(MEMORY, also) for _ in range(pieces)]
        handles = [{"kind": "memfd", "fd": i, "device": "host", "bytes": MEMORY - odd}
                   for i in range(pieces)]
        try:
            return self.tries("register", fds=fds, layout=layout, handles=handles, mode="0604")
        finally:
            for fd in fds:
                os.close(fd)

    def alias(self, name):
        layout = self.peer.call("stat", name=name)["object"]["layout"]
        params = {}
        if layout["kind"] == "table" and self.random.random() < 0.5:
            names = [c["name"] for c in layout["columns"]]
            params["columns"] = self.random.sample(names, self.random.randint(0, len(names)))
        extent = {"bytes": lambda: layout["bytes"], "bundle": lambda: layout["bytes"],
                  "array": lambda: (layout["shape"] or [0])[0]}.get(layout["kind"], lambda: layout["length"])()
        if self.random.random() < 0.8:
            offset = self.random.randint(0, extent)
            params["slice"] = {"offset": offset, "length": self.random.choice(
                [0, extent - offset, self.random.randint(0, extent - offset)])}
        return self.tries("alias", of=name, **params)

    def step(self):
        """One layout in every way."""
        name = self.create(a_layout(self.random))
        if name and not device.ON_GPU and self.random.random() < 0.5:
            name = self.register(name) or name
        for _ in range(self.random.randint(0, 3)):
            name = name and self.alias(name) or name
        if name and self.random.random() < 0.3:
            try:
                self.peer.call("move", name=name)
            except RpcError as error:
                assert error.kind in ("unsupported", "invalid", "busy", "no_space"), error


def sealed(size, also=0):
    fd = os.memfd_create("mine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o600)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | also)
    return fd


def texts(peer, names):
    """Each object as `stat` tells it, member by member, but for how long ago it was used."""
    told = {}
    for name in names:
        members = peer.call("stat", name=name)["object"]
        members.pop("idle_ms")
        told[name] = json.dumps(members)
    return told


def survives(daemon, made):
    peer = made.peer
    before = texts(peer, made.names)
    assert sorted(made.names) == peer.names()
    daemon.crash()
    peer = daemon.connect()
    assert peer.names() == sorted(made.names)
    after = texts(peer, made.names)
    assert after == before
    for name in made.names:  # also what was below comes back, and reads as it should
        opened = peer.call("open", name=name)
        peer.call("release", lease=opened["lease"])
    assert "record ignored" not in daemon.stderr() and "lost=0" in daemon.stderr()
    return peer


@pytest.fixture
def tiered(supervised, place):  # noqa: F811
    return supervised("--tier", f"disk:1G:{place}", "--grace", "1",  # each crash closes what there was
                      device="cuda:0:256M" if device.ON_GPU else "host:512M")


# RELIABILITY.md: The daemon ends 1
def test_every_accepted_layout(tiered):
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=True))
    def run(random):
        made = Accepted(tiered.connect())
        made.random = random
        made.peer.delete(made.peer.names())
        for _ in range(LAYOUTS):
            made.step()
        survives(tiered, made)

    run()


INT8 = {"dtype": "int8", "length": 3}
ODD = {
    "dictionary of no mask, counted": (column("dictionary", 3, children=[INT8, INT8]), {"": 1}),
    "dictionary with a mask, counted": (
        column("dictionary", 3, children=[{**INT8, "mask": {}}, INT8]), {"": 3}),
    "dictionary of dictionaries": (column("dictionary", 3, children=[
        {**INT8, "mask": {}},
        {"dtype": "dictionary", "length": 3, "null_count": -1, "children": [INT8, INT8]}]), {"": 2}),
    "dictionary whose values have the mask": (
        column("dictionary", 3, children=[INT8, {**INT8, "mask": {}}]), {"": 1}),
    "nothing but nulls": (column("null", 1 << 51, null_count=1 << 51), {"": 5}),
    "no columns": (table(1 << 51), {}),
    "no rows": (table(0, a={"dtype": "utf8", "data": {"bytes": 0}}), {"a": 0}),
    "no fields": (column("struct", 3, mask={}), {"": 3}),
    "far away": ({"kind": "array", "dtype": "int8", "shape": [0, 1 << 51]}, {}),
    "32 axes": ({"kind": "array", "dtype": "bfloat16", "shape": [1] * 32, "mask": {}}, {}),
    "packed": ({"kind": "array", "dtype": "float6_e3m2fn", "shape": [3, 4], "mask": {}}, {}),
    "packed, one axis": ({"kind": "array", "dtype": "float4_e2m1fn", "shape": [6]}, {}),
    "no axis": ({"kind": "array", "dtype": "complex128", "shape": []}, {}),
    "twelve deep": (None, {}),
    "4096 columns": (table(1, **{f"{i}": {"dtype": "bool", "mask": {}} for i in range(4096)}),
                     {"7": 1, "9": 0, "11": -1}),
    "all that can be said": (table(1, **{f"{i}\x01": {"dtype": "null", "metadata": {
        "\"\\" * 20 + str(k): "\u2028" * 100 for k in range(200)}} for i in range(3)}), {}),
}


# RELIABILITY.md: The daemon ends 1
def test_odd_layouts(tiered):
    """By hand: each once as it is, and narrowed to nothing and to all."""
    made = Accepted(tiered.connect())
    deep = INT8
    for _ in range(11):
        deep = {"dtype": "fixed_list(1)", "length": 3, "mask": {}, "children": [deep]}
    refused = set()
    for what, (layout, told) in ODD.items():
        layout = layout or {"kind": "column", **deep}
        lease = made.peer.create(what, layout)["lease"]
        try:
            made.peer.call("seal", lease=lease, release=True, null_counts=told)
        except RpcError as error:
            assert error.kind == "invalid"
            refused.add(what)
            made.peer.call("seal", lease=lease, release=True)
        made.names.append(what)
        if layout.get("shape") == []:
            continue
        extent = layout["shape"][0] if "shape" in layout else layout["length"]
        for length in {0, extent}:
            made.names.append(f"{what}, {length}")
            made.peer.call("alias", name=made.names[-1], of=what,
                           slice={"offset": extent - length, "length": length})
    assert refused == {"dictionary of no mask, counted", "dictionary whose values have the mask"}
    survives(tiered, made)
