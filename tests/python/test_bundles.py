"""Bundles: many arrays under one name."""

import gc

import pytest

import gpubufd
import weights
from gpubufd import _packing

np = pytest.importorskip("numpy")

TENSORS = {
    "w": np.arange(6, dtype="f4").reshape(2, 3), "mask": np.array([True, False, True]), "scalar": np.float64(2.5),
    "empty": np.zeros((0, 4), "i2"), "turned": np.arange(12).reshape(3, 4).T, "swapped": np.arange(3, dtype=">u4"),
    "half": np.ones(5, "f2"), "z": np.array([1 + 2j], "c8"), "schlüssel/ \n": np.arange(3, dtype="u1"),
    "n" * 4096: np.arange(2, dtype="i8"), "": np.zeros(1, "i1"),
}


def same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == np.asarray(array).dtype.newbyteorder("=") and found[name].shape == np.shape(array)
        assert np.array_equal(found[name], array), name


def leases(client):
    gc.collect()
    return len(client.leases())


def test_a_mapping_of_arrays(client):
    client.put_bundle("m", TENSORS, {"format": "np", "ключ": ""}, ttl=60)
    bundle = client.get("m")
    assert isinstance(bundle, gpubufd.Bundle) and bundle.version == 1 and client.stat("m").ttl == 60
    assert bundle.metadata == {"format": "np", "ключ": ""} and len(bundle) == len(TENSORS) and bundle
    assert list(bundle) == list(bundle.keys()) == list(TENSORS)
    assert bundle.dtypes["w"] == "float32" and bundle.dtypes["mask"] == "bool8" and bundle.shapes["empty"] == (0, 4)
    assert bundle.nbytes == sum(np.asarray(array).nbytes for array in TENSORS.values())
    assert isinstance(bundle["w"], gpubufd.Array) and bundle["w"].tolist() == TENSORS["w"].tolist()
    same({name: array.to_numpy() for name, array in bundle.items()}, TENSORS)
    same(bundle.to_numpy(), TENSORS)
    assert not bundle.to_numpy()["w"].flags.writeable
    assert bundle.to_host() is bundle and bundle == bundle and bundle.get("nothing") is None


def test_names_that_are_not_there(client):
    client.put_bundle("m", {"w": np.zeros(2)})
    bundle = client["m"]
    for name in ("x", "w\0", "\ud800", ""):
        assert name not in bundle
        with pytest.raises(KeyError, match="'m' has no tensor"):
            bundle[name]
    assert 1 not in bundle
    with pytest.raises(TypeError, match="by its name"):
        bundle[0]
    with pytest.raises(TypeError):
        bundle["w"] = 1
    with pytest.raises(TypeError, match="tensor by tensor"):
        bundle == client["m"]
    with pytest.raises(TypeError, match="no single array"):
        np.asarray(bundle)
    with pytest.raises(AttributeError, match="a gpubufd.Bundle has no 'head'"):
        bundle.head(1)


def test_how_it_shows_itself(client):
    client.put_bundle("m", {"w": np.zeros((2, 3), "f4"), "<b>": np.zeros(4, "i1")})
    bundle = client["m"]
    assert repr(bundle).splitlines() == [
        "<gpubufd.Bundle 'm': 2 tensors, 28 bytes, on host>", "  'w'    float32 (2, 3)", "  '<b>'  int8 (4,)"]
    assert "float32 (2, 3)" in bundle._repr_html_() and "<b>'" not in bundle._repr_html_()
    client.put_bundle("many", {f"layer.{i}": np.zeros(1) for i in range(30)})
    assert repr(client["many"]).count("\n") == 11 and "…" in repr(client["many"])
    bundle.release()
    assert repr(bundle) == "<gpubufd.Bundle, released>" and "released" in bundle._repr_html_()
    with pytest.raises(gpubufd.Closed):
        bundle["w"]


def test_parts_hold_the_lease(client):
    client.put_bundle("m", {"w": np.arange(1000).reshape(100, 10), "b": np.zeros(3)})
    bundle = client["m"]
    part = bundle["w"][10:20]
    assert isinstance(part, gpubufd.Array) and leases(client) == 1
    view = part.to_numpy()[:, 3]
    address = bundle["w"].to_numpy().__array_interface__["data"][0]
    assert view.__array_interface__["data"][0] == address + (10 * 10 + 3) * 8  # nothing is copied
    bundle.release()
    del bundle, part
    assert leases(client) == 1 and view.tolist() == list(range(103, 203, 10))
    client.delete("m")
    assert view.tolist() == list(range(103, 203, 10))
    del view
    assert leases(client) == 0


def test_nothing_in_it(client):
    client.put_bundle("m", {})
    assert not client["m"] and len(client["m"]) == 0 and client["m"].metadata == {} and dict(client["m"]) == {}


@pytest.mark.parametrize("value, error", [
    (["a", None], "is no array of numbers"), (np.array(["x"]), "is no array of numbers"), (object(), "cannot be put"),
    (np.array(["2020-01-01"], "M8[s]"), "safetensors has no timestamp"), (np.zeros(2, "c16"), "safetensors has no"),
    (np.ma.array([1, 2], mask=[True, False]), "is no array of numbers"), ({"a": [1]}, "is no array of numbers"),
])
def test_what_cannot_be_a_tensor(client, value, error):
    with pytest.raises((TypeError, ValueError), match=f"tensor ['\"]bad['\"]: .*{error}"):
        client.put_bundle("m", {"good": np.zeros(3), "bad": value})
    assert "m" not in client


@pytest.mark.parametrize("tensors, metadata", [
    ({1: np.zeros(1)}, None), ({"__metadata__": np.zeros(1)}, None), ({"a\0b": np.zeros(1)}, None),
    ({"\ud800": np.zeros(1)}, None), ({"a": np.zeros(1)}, {"a": 1}), ({"a": np.zeros(1)}, {"\ud800": ""}),
    ({"a": np.zeros(1)}, {1: "a"}),
])
def test_names_and_metadata_that_cannot_be(client, tensors, metadata):
    with pytest.raises((TypeError, ValueError)):
        client.put_bundle("m", tensors, metadata)
    assert "m" not in client


def test_a_bundle_is_put_as_it_is(client):
    client.put_bundle("m", TENSORS, {"a": "b"})
    client.put("again", client["m"])
    same(client["again"].to_numpy(), TENSORS)
    assert client["again"].metadata == {"a": "b"}
    version = client["m"].version
    client["m"] = client["again"]
    assert client["m"].version > version
    whole = [bytes(client[name]._buffer(0)) for name in ("m", "again")]
    assert whole[0] == whole[1]


def test_a_manifest_that_lies(client):
    """The publisher is not believed: the reader finds out, and nothing is read out of place."""
    for what, data in weights.lies():
        if len(data) < 9:
            continue
        length = min(max(int.from_bytes(data[:8], "little"), 1), len(data) - 8)
        opts = gpubufd._params.options(replace=True)
        with client._create("m", (4, len(data), None, (), False, None, length), opts) as made:
            made._write(0, 0, gpubufd._core.address(data)[0], len(data), 0)
            made._seal(None, 0)
        bundle = client["m"]
        with pytest.raises(gpubufd.Invalid):
            raise AssertionError((what, list(bundle)))
        assert repr(bundle) and bundle._repr_html_()


def test_on_a_gpu(gpu_run):
    gpu_run("""
        tensors = {"w": np.arange(6, dtype="f4").reshape(2, 3), "t": np.arange(6).reshape(2, 3).T, "s": np.int8(3)}
        client.put_bundle("m", tensors, {"a": "b"}, device="cuda:0")
        bundle = client["m"]
        assert bundle._ordinal == 0 and isinstance(bundle, gpubufd.Bundle) and bundle.metadata == {"a": "b"}, bundle
        assert bundle["w"].copy_to_host().tolist() == tensors["w"].tolist()
        assert bundle["w"].__cuda_array_interface__["shape"] == (2, 3)
        here = bundle.to_host()
        found = here.to_numpy()
        assert list(found) == list(tensors) and all(np.array_equal(found[k], tensors[k]) for k in tensors)
        assert isinstance(here, gpubufd.Bundle) and here.device == "host" and here.to_host() is here
        assert "float32 (2, 3)" in repr(bundle) and "float32 (2, 3)" in repr(here)
        assert here.metadata == {"a": "b"} and here["w"][1:].tolist() == [[3, 4, 5]] and here.get("x") is None
        client.put("k", here, device="host")
        assert client["k"]["t"].tolist() == tensors["t"].tolist() and client["k"].metadata == here.metadata
        client.put("n", bundle)                            # from the GPU
        client.put("h", bundle, device="host")
        assert client["n"]._ordinal == 0 and client["h"]._ordinal == -1
        assert client["h"]["t"].tolist() == tensors["t"].tolist()
        client.put_bundle("o", {**bundle, "more": np.zeros(2)}, device="host")    # from both
        assert client["o"]["t"].tolist() == tensors["t"].tolist() and client["o"].keys() == {"w", "t", "s", "more"}
        client.put_bundle("p", client["o"], device="host")
        assert client["p"]["more"].tolist() == [0, 0]
    """)


def copies_of(values):
    """The copies that fill a bundle of these arrays, without that of its head: (place in the bundle's data, bytes)."""
    plan = _packing.tensors(values, None, None)
    head, *rest = _packing.copies(plan)
    return [(copy.at - head.size, copy.size) for copy in rest]


def test_arrays_that_lie_one_behind_the_other_are_one_copy(client):
    whole = np.arange(4096, dtype="u1")
    parts = [whole[at : at + 512] for at in range(0, 4096, 512)]
    apart, turned = np.ones(512, "u1"), np.arange(512, dtype="u1")[::-1]
    for values, copies in (
        (parts, [(0, 4096)]), (parts[::-1], [(512 * i, 512) for i in range(8)]),
        ([*parts[:3], apart, *parts[3:]], [(0, 1536), (1536, 512), (2048, 2560)]),
        ([*parts[:3], turned, *parts[3:]], [(0, 1536), (1536, 512), (2048, 2560)]),
        ([parts[0], parts[0][:0], *parts[1:]], [(0, 4096)]), ([parts[0], parts[0]], [(0, 512), (512, 512)]),
    ):
        named = {str(i): part for i, part in enumerate(values)}
        assert copies_of(named) == copies
        client.put_bundle("m", named, replace=True)
        same(client.get("m").to_numpy(), named)


def test_one_copy_on_a_gpu_stays_within_an_allocation(gpu_run):
    gpu_run("""
        import ctypes, gpubufd, numpy
        from gpubufd import _packing, cuda
        one = cuda.to_device(numpy.arange(4096, dtype="u1"))
        assert cuda.end_of(one.ptr + 7, 0) == one.ptr + 4096 and cuda.end_of(8, 0) == 0
        parts = {str(i): one[512 * i : 512 * i + 512] for i in range(8)}
        copies = lambda: [copy.size for copy in _packing.copies(_packing.tensors(parts, None, None))][1:]
        assert copies() == [4096]
        client = gpubufd.connect()
        client.put_bundle("m", parts)
        found = client.get("m").to_host().to_numpy()
        assert all((found[str(i)] == numpy.arange(512 * i, 512 * i + 512).astype("u1")).all() for i in range(8))
        ends = iter([one.ptr + 1024, one.ptr + 1024, one.ptr + 4096])
        cuda.end_of = lambda address, device: next(ends)
        assert copies() == [1024, 3072]
    """)
