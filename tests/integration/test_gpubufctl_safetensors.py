"""gpubufctl with .safetensors files: one file, sharded ones, and back; made and read by the standard library."""

import json
import os
import re
import subprocess

import pytest

import weights
from ctl import FAILED, USAGE
from peer import DEADLINE, wait_until


def put_file(ctl, name, data, *words):
    ctl.file(name, data)
    return ctl("put", name, *words)


# ---- one file ----


def test_a_file_is_the_same_bytes_again(ctl):
    data = weights.make(weights.EVERY, {"format": "pt", "ключ": "\n\""}, pad=5)
    assert put_file(ctl, "m.safetensors", data).startswith("m: bundle, ")
    ctl("get", "m", "back.safetensors")
    assert ctl.read("back.safetensors") == data
    assert ctl.raw("get", "m").stdout == data  # to what is no terminal
    assert ctl.raw("get", "m", "--format", "raw").stdout == data


def test_names_and_formats(ctl):
    data = weights.make({"a": ("U8", (3,), None)})
    put_file(ctl, "m.safetensors", data, "weights/llama")
    ctl("put", "before", "m.safetensors")
    ctl.file("blob", data)
    ctl("put", "--format", "safetensors", "said", "blob")
    ctl("put", "--format", "raw", "bytes", "m.safetensors")
    os.mkdir(os.path.join(ctl.directory, "sub"))
    put_file(ctl, "sub/Other.SafeTensors", data)
    assert ctl.names() == ["Other", "before", "bytes", "said", "weights/llama"]
    assert ctl.json("stat", "bytes")["layout"]["kind"] == "bytes"
    for name in ("Other", "before", "said", "weights/llama"):
        assert ctl.json("stat", name)["layout"]["kind"] == "bundle"
    assert "exists" in ctl.fails(FAILED, "put", "m.safetensors", "before")
    ctl("put", "-r", "m.safetensors", "before")
    ctl.file("sales.2025.csv", b"a,b\n1,2\n")
    ctl("put", "sales.2025.csv")
    assert ctl("get", "sales.2025") == "a,b\n1,2\n"


def test_what_it_cannot_be(ctl):
    put_file(ctl, "m.safetensors", weights.make({"a": ("U8", (3,), None)}))
    ctl.file("a.bin", b"abc")
    ctl("put", "a", "a.bin")
    assert "it is a bundle" in ctl.fails(FAILED, "get", "m", "--format", "csv")
    assert "it is a bundle" in ctl.fails(FAILED, "get", "m", "m.csv")
    assert "it is no bundle" in ctl.fails(FAILED, "get", "a", "a.safetensors")
    assert not {"m.csv", "a.safetensors"} & set(os.listdir(ctl.directory))
    assert "becomes a bundle" in ctl.fails(USAGE, "put", "m.safetensors", "x", "--kind", "array")
    assert ".safetensors" in ctl.fails(USAGE, "put", "m.safetensors", "x", "--dtype", "int8")
    assert "takes a NAME and a FILE" in ctl.fails(USAGE, "put", "-")
    assert "takes a NAME and a FILE" in ctl.fails(USAGE, "put", ".safetensors")
    assert "not from a pipe" in ctl.fails(USAGE, "put", "--format", "safetensors", "x", "-", input=b"{}" * 20)
    assert ctl.names() == ["a", "m"]


def test_twenty_thousand_tensors(ctl):
    data = weights.make({f"model.layers.{i}.weight": ("BF16", (2, 3), b"%012d" % i) for i in range(20000)})
    put_file(ctl, "m.safetensors", data)
    ctl("get", "m", "back.safetensors")
    assert ctl.read("back.safetensors") == data


@pytest.mark.parametrize("what", [what for what, _ in weights.lies()])
def test_lies(ctl, what):
    ctl.file("m.safetensors", dict(weights.lies())[what])
    sentence = ctl.fails(FAILED, "put", "m.safetensors")
    assert sentence.startswith("gpubufctl: m.safetensors: is no .safetensors file: "), sentence
    assert ctl.names() == []


def test_places_of_mistakes(ctl):
    found = dict(weights.lies())
    for what, place in [("another size", 'tensor "a": data_offsets: 4 bytes'), ("no JSON", "byte 0"),
                        ("an unknown dtype", 'tensor "a": dtype'), ("a hole", 'tensor "b": its data begins at byte 5')]:
        ctl.file("m.safetensors", found[what])
        assert place in ctl.fails(FAILED, "put", "m.safetensors")


def test_a_file_that_is_not_there_or_is_none(ctl):
    assert "nothing.safetensors" in ctl.fails(FAILED, "put", "nothing.safetensors")
    os.mkdir(os.path.join(ctl.directory, "d.safetensors"))
    assert "is a directory" in ctl.fails(FAILED, "put", "d.safetensors")


@pytest.fixture
def full(ctl):
    """Memory is full until full() is called, so that a put with --wait stands between manifest and data."""
    path = ctl.file("filler", b"")
    os.truncate(path, 60 << 20)
    ctl("put", "filler", path, "--evict", "keep")
    os.unlink(path)
    return lambda: ctl("rm", "filler")


def waiting(ctl, *words):
    """A put that has read what manifests there are, and waits for memory."""
    process = ctl.start("put", "--wait", "60s", *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE)
    wait_until(lambda: process.pid in [one["pid"] for one in json.loads(ctl("call", "sessions"))["sessions"]])
    return process


def large(ctl, name="m.safetensors", size=24 << 20):
    """A file of zeros that are not on the disk."""
    head = weights.framed(json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}))
    os.truncate(ctl.file(name, head), len(head) + size)
    return len(head) + size


@pytest.mark.parametrize("change, sentence", [(-1, "was cut short while it was read"), (1, "grew while it was read"),
                                              (-(20 << 20), "was cut short while it was read")])
def test_a_file_that_changes_while_it_is_read(ctl, full, change, sentence):
    size = large(ctl)
    process = waiting(ctl, "m.safetensors")
    os.truncate(os.path.join(ctl.directory, "m.safetensors"), size + change)
    full()
    assert process.wait(DEADLINE) == FAILED
    assert f"m.safetensors: {sentence}" in process.stderr.read().decode()
    process.communicate()
    wait_until(lambda: ctl.json("stats")["objects"] == 0)


# ---- sharded ones ----


def shards(ctl, index=None, **files):
    """Writes model-NAME.safetensors for each, and an index of them, or the one given."""
    where = {}
    for name, tensors in files.items():
        ctl.file(f"model-{name}.safetensors", weights.make(tensors, {"format": "pt", name: "yes"}))
        where.update({tensor: f"model-{name}.safetensors" for tensor in tensors})
    text = json.dumps({"metadata": {"total_size": 12}, "weight_map": where if index is None else index})
    ctl.file("model.safetensors.index.json", text)


A = {"layer.0": ("F32", (3, 5), None), "odd": ("U8", (3,), b"abc"), "empty": ("I64", (0, 3), b"")}
B = {"layer.1": ("F32", (4, 5), None), "half": ("BF16", (7,), None), "scalar": ("F64", (), b"12345678")}


def test_shards_become_one(ctl):
    shards(ctl, one=A, two=B)
    assert ctl("put", "model.safetensors.index.json").startswith("model: bundle, ")
    ctl("get", "model", "one.safetensors")
    found, metadata = weights.read(ctl.read("one.safetensors"))
    expected = {**weights.read(ctl.read("model-one.safetensors"))[0],
                **weights.read(ctl.read("model-two.safetensors"))[0]}
    assert found == expected and metadata == {"format": "pt", "one": "yes", "two": "yes"}
    ctl("put", os.path.join(ctl.directory, "model.safetensors.index.json"), "again")
    assert ctl.raw("get", "again").stdout == ctl.read("one.safetensors")
    ctl("put", "--format", "safetensors", "third", "model.safetensors.index.json")
    assert ctl.raw("get", "third").stdout == ctl.read("one.safetensors")


def test_many_shards_of_many_tensors(ctl):
    files = {f"{k:03}": {f"layers.{i}.w{k}": ("BF16", (2, 3), None) for i in range(20)} for k in range(40)}
    shards(ctl, **files)
    ctl("put", "model.safetensors.index.json")
    found, _ = weights.read(ctl.raw("get", "model").stdout)
    assert len(found) == 800
    for name in files:
        for tensor, what in weights.read(ctl.read(f"model-{name}.safetensors"))[0].items():
            assert found[tensor] == what


def wrong(ctl):
    sentence = ctl.fails(FAILED, "put", "model.safetensors.index.json")
    assert ctl.names() == []
    return sentence


def test_shards_that_are_wrong(ctl):
    shards(ctl, one=A, two=B)
    os.rename(os.path.join(ctl.directory, "model-two.safetensors"), os.path.join(ctl.directory, "x"))
    assert re.search("model-two.safetensors: No such file", wrong(ctl))
    ctl.file("model-two.safetensors", ctl.read("x")[:-1])
    assert "model-two.safetensors: is no .safetensors file: " in wrong(ctl)
    shards(ctl, {"layer.0": "model-one.safetensors", "ghost": "model-one.safetensors"}, one=A)
    assert 'it names the tensor "ghost", which no shard has' in wrong(ctl)
    shards(ctl, {"layer.0": "model-two.safetensors"}, one=A, two=B)
    assert 'names the tensor "layer.0", which no shard has' in wrong(ctl)
    shards(ctl, {"layer.0": "model-two.safetensors", "odd": "model-one.safetensors"}, one=A, two=B)
    assert 'says that model-two.safetensors has the tensor "layer.0", but model-one.safetensors has it' in wrong(ctl)
    shards(ctl, one=A, two={**B, "odd": ("U8", (3,), b"xyz")})
    assert 'both model-one.safetensors and model-two.safetensors have the tensor "odd"' in wrong(ctl)


@pytest.mark.parametrize("text, sentence", [
    ("", "it is no JSON"), ("{", "it is no JSON"), ("[]", 'no object "weight_map"'), ("{}", 'no object "weight_map"'),
    ('{"weight_map":[]}', 'no object "weight_map"'), ('{"weight_map":{"a":1}}', 'no file\'s name for "a"'),
    ('{"weight_map":{"a":"../b.safetensors"}}', "no file beside the index"),
    ('{"weight_map":{"a":"/etc/passwd"}}', "no file beside the index"), ('{"weight_map":{"a":""}}', "no file beside"),
])
def test_indices_that_are_wrong(ctl, text, sentence):
    ctl.file("model.safetensors.index.json", text)
    assert sentence in wrong(ctl)


def test_an_index_of_nothing(ctl):
    ctl.file("model.safetensors.index.json", '{"weight_map":{}}')
    ctl("put", "model.safetensors.index.json")
    assert weights.read(ctl.raw("get", "model").stdout) == ({}, {})


def test_a_shard_that_changes_while_it_is_read(ctl, full):
    shards(ctl, {"a": "model-one.safetensors", **{name: "model-two.safetensors" for name in B}}, two=B)
    large(ctl, "model-one.safetensors")
    process = waiting(ctl, "model.safetensors.index.json")
    path = os.path.join(ctl.directory, "model-two.safetensors")
    os.truncate(path, os.path.getsize(path) - 1)
    full()
    assert process.wait(DEADLINE) == FAILED
    assert process.stderr.read() == b"gpubufctl: model-two.safetensors: was changed while it was read\n"
    process.communicate()
    wait_until(lambda: ctl.json("stats")["objects"] == 0)
