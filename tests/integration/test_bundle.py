"""Kind `bundle`: many arrays in one object, whose content is a safetensors file that the daemon does not read."""

import json
import os
import struct

import pytest

import device as test_device
from ctl import FAILED
from device import MIB
from peer import bytes_layout
from restarts import supervised  # noqa: F401  (a fixture)
from tiers import BELOW, start  # noqa: F401  (a fixture)
from weights import make, read


def file_of(tensors, metadata=None):
    """A safetensors file of {name: (dtype, shape, bytes)} whose data begin at a multiple of eight."""
    (length,) = struct.unpack_from("<Q", make(tensors, metadata))
    return make(tensors, metadata, pad=-length % 8)


def layout_of(content, **data):
    (length,) = struct.unpack_from("<Q", content)
    made = {"kind": "bundle", "bytes": len(content), "manifest_bytes": length}
    return {**made, "data": data} if data else made


MODEL = {
    "layers.0.weight": ("BF16", (64, 100), os.urandom(12800)),
    "layers.0.scale": ("F8_E8M0", (7,), b"0123456"),
    "none": ("F32", (0, 3), b""),
}
FILE = file_of(MODEL, {"format": "pt"})


def publish(peer, name, content=FILE, **params):
    return peer.create_object(name, layout_of(content), content, **params)


@pytest.mark.on_gpus
def test_there_and_back(daemon, peer):
    watch = daemon.connect()
    watch.call("watch", kinds=["sealed"])
    version = publish(peer, "model", mode="0644")
    (event,) = watch.events(1)
    assert event[:2] == ("sealed", "model") and event[2]["object"]["bytes"] == len(FILE)
    reader = daemon.connect()
    opened = reader.open_object("model")
    assert opened.version == version
    assert {key: opened.layout[key] for key in ("kind", "bytes", "manifest_bytes")} == layout_of(FILE)
    assert opened.layout["data"]["offset"] % 256 == 0 and opened.read() == FILE
    assert read(opened.read()) == (MODEL, {"format": "pt"})
    assert peer.call("stat", name="model")["object"]["layout"] == opened.layout
    (listed,) = peer.call("list")["objects"]
    assert listed["name"] == "model" and listed["bytes"] == len(FILE)
    reasons = peer.call("stat", why=True, name="model")["reasons"]
    assert [r["kind"] for r in reasons][:1] == ["leased"]
    assert publish(peer, "model", file_of({}), replace=True) > version
    assert read(peer.open_object("model").read()) == ({}, {})
    assert opened.read() == FILE  # of the version that is held


def test_the_content_is_the_producers(peer):
    """The daemon takes any content, even if it is no manifest."""
    content = struct.pack("<Q", 5) + b"nojsn"
    publish(peer, "odd", content)
    assert peer.open_object("odd").read() == content


def test_aliases(daemon, peer):
    publish(peer, "model")
    peer.call("alias", name="other", of="model")
    peer.call("alias", name="all", of="model", slice={"offset": 0, "length": len(FILE)})
    error = peer.error("invalid", "alias", name="part", of="model", slice={"offset": 8, "length": 8})
    assert "a bundle has one manifest" in error.message and "cannot be sliced" in error.message
    peer.error("invalid", "alias", name="part", of="model", columns=["none"])
    peer.call("delete", name="model")
    assert [daemon.connect().open_object(name).read() for name in ("other", "all")] == [FILE] * 2


def memory_of(peer, name, offset=0, **params):
    """Registers the file at an offset in memory of our own."""
    fd, count = test_device.own_memory(bytes(offset) + FILE)
    try:
        handle = {"kind": test_device.HANDLE, "fd": 0, "bytes": count, "device": test_device.ID}
        layout = layout_of(FILE, handle=0, offset=offset, bytes=len(FILE))
        return params.get("call", peer.call)("register", name=name, fds=[fd], layout=layout, handles=[handle])
    finally:
        os.close(fd)


@pytest.mark.on_gpus
def test_registered(daemon, peer):
    memory_of(peer, "mine", 16)
    assert daemon.connect().open_object("mine").read() == FILE
    error = memory_of(peer, "odd", 4, call=lambda *words, **params: peer.error("invalid", *words, **params))
    assert "params.layout.data.offset: 4 is not a multiple of 8" in error.message


@pytest.mark.on_gpus
# RELIABILITY.md: The daemon ends 1
def test_it_outlives_the_daemon(supervised):
    daemon = supervised()
    peer = daemon.connect()
    version = publish(peer, "model")
    peer.call("alias", name="other", of="model")
    memory_of(peer, "mine")
    peer.create("unsealed", layout_of(FILE), FILE)
    before = {name: peer.call("stat", name=name)["object"]["layout"] for name in peer.names()}
    for _ in range(2):
        daemon.crash()
        peer = daemon.connect()
        assert peer.names() == ["mine", "model", "other"]
        assert {name: peer.call("stat", name=name)["object"]["layout"] for name in peer.names()} == before
        assert [peer.open_object(name).read() for name in peer.names()] == [FILE] * 3
        assert peer.open_object("model").version == version


@pytest.mark.on_gpus
@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_spilled_and_restored(start, size):
    tiered = start(host=None)
    content = file_of({"a": ("U8", (size,), os.urandom(size)), "b": ("F64", (), b"12345678")})
    with tiered.daemon.connect() as producer:
        publish(producer, "model", content)
    tiered.peer.call("move", name="model", tier="disk")
    told = tiered.peer.call("stat", name="model")["object"]
    assert told["tier"] == "disk"
    assert told["layout"] == {**layout_of(content), "data": {"segment": 0, "offset": 0, "bytes": len(content)}}
    if size > MIB:  # in a file of its own, behind a header of 4096 bytes: a safetensors file
        (file,) = tiered.files()
        with open(os.path.join(tiered.directory, file), "rb") as spilled:
            spilled.seek(4096)
            assert spilled.read() == content
    tiered.peer.call("move", tier="device", name="model")
    assert tiered.tier_of("model") == "device"
    with tiered.daemon.connect() as reader:
        assert reader.open_object("model").read() == content


def test_one_place_in_the_order(start):
    """It leaves as a whole, and comes back as a whole, when others want its room."""
    tiered = start()
    content = file_of({str(i): ("U8", (MIB,), bytes([i]) * MIB) for i in range(20)})
    with tiered.daemon.connect() as producer:
        publish(producer, "model", content)
    for name in ("x", "y", "z"):
        tiered.put(name)
    assert tiered.tier_of("model") == BELOW
    with tiered.daemon.connect() as reader:
        assert reader.open_object("model").read() == content


# ---- the command line --------------------------------------------------------------------------


@pytest.fixture
def shown(ctl, shared_peer):
    publish(shared_peer, "model", file_of({**MODEL, "bias": ("F32", (2, 2), struct.pack("<4f", 1, 2, 3, 4))},
                                          {"format": "pt", "step": "42"}))
    yield ctl
    shared_peer.call("delete", name="model")


def test_show(shown):
    lines = [line.split() for line in shown("show", "model").splitlines()]
    assert lines[0][:2] == ["model", "bundle,"]
    assert ["format", "pt"] in lines and ["step", "42"] in lines
    assert ["array", "dtype", "shape", "size"] in lines
    assert ["layers.0.weight", "bfloat16", "64", "×", "100", "12", "KiB"] in lines
    assert ["layers.0.scale", "float8_e8m0fnu", "7", "7", "B"] in lines
    assert ["none", "float32", "0", "×", "3", "0", "B"] in lines
    some = shown("show", "model", "--rows", "1")
    assert "layers.0.weight" in some and "scale" not in some and "3 more arrays" in some
    assert "bundle, manifest of" in shown("stat", "model")


def test_show_as_json(shown):
    told = shown.json("show", "model")
    assert told["kind"] == "bundle" and told["metadata"] == {"format": "pt", "step": "42"}
    assert [one["name"] for one in told["arrays"]] == [*MODEL, "bias"]
    start = told["length"] - 12800 - 7 - 16
    assert told["arrays"][1] == {"name": "layers.0.scale", "dtype": "float8_e8m0fnu", "shape": [7],
                                 "offset": start + 12800, "bytes": 7}


@pytest.mark.on_gpus
def test_one_array(shown):
    told = shown.json("show", "model", "--column", "layers.0.weight")
    assert (told["kind"], told["dtype"], told["shape"]) == ("array", "bfloat16", [64, 100])
    content = shown.raw("get", "model", "--column", "layers.0.weight", "--slice", "63:", "--format", "raw").stdout
    assert content == MODEL["layers.0.weight"][2][-200:]
    sentence = shown.fails(FAILED, "show", "model", "--column", "layers.0.weights")
    assert 'model has no array "layers.0.weights"' in sentence
    # "bias" begins at no multiple of its elements' 4 bytes.
    assert shown.json("show", "model")["arrays"][-1]["offset"] % 4
    if test_device.ON_GPU:  # no copy of it would be on that GPU
        assert "copy the whole bundle" in shown.fails(FAILED, "get", "model", "--column", "bias")
    else:
        assert shown.raw("get", "model", "--column", "bias", "--format", "raw").stdout == struct.pack("<4f", 1, 2, 3, 4)
        assert shown("get", "model", "--column", "bias", "-f", "csv") == "0,1\n1.0,2.0\n3.0,4.0\n"
        assert shown.json("show", "model", "--column", "bias")["dtype"] == "float32"
    assert "cannot be sliced" in shown.fails(FAILED, "show", "model", "--slice", ":8")


def test_show_what_is_no_manifest(ctl, shared_peer):
    shared_peer.create_object("odd", layout_of(struct.pack("<Q", 5) + b"nojsn"), struct.pack("<Q", 5) + b"nojsn")
    shared_peer.create_object("bytes", bytes_layout(4), b"1234")
    assert "odd: the manifest is not JSON: byte 0" in ctl.fails(FAILED, "show", "odd")
    done = ctl.raw("--json", "show", "odd")
    assert done.returncode == FAILED and json.loads(done.stderr)["error"]["kind"] == "invalid"
    ctl.fails(FAILED, "show", "bytes", "--column", "a")
    shared_peer.delete(["odd", "bytes"])
