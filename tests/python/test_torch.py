"""gpubufd.torch as far as it is about names, facts and files: over a stand-in, in processes of their own.

tests/gpu/weights.py checks the same with the real PyTorch.
"""

import textwrap

import pytest
from conftest import ROOT

import weights

pytest.importorskip("numpy")

HEAD = f"""
import gc, os, pickle, sys
sys.path[:0] = {[str(ROOT / "tests" / "python" / "standins"), str(ROOT / "client" / "sglang")]}
import gpubufd, torch
import gpubufd.torch as gt
client = gpubufd.connect()

def fails(error, work):
    try:
        work()
    except error as caught:
        return caught
    raise AssertionError("nothing was raised")

def values(state):
    return {{name: (str(one.dtype), one.tolist()) for name, one in state.items()}}

w = torch.tensor([[1, 2, 3], [4, 5, 6]], torch.float32)
b = torch.tensor([True, False], torch.bool)
"""


@pytest.fixture
def torch_run(client, run):
    """torch_run(code): a program that finds the stand-in, after HEAD."""
    return lambda code: run(HEAD + textwrap.dedent(code))


def test_nothing_else_imports_it(run):
    out = run("import gpubufd.numpy, sys; print('torch' in sys.modules, 'jax' in sys.modules)", fresh=True)
    assert out == "False False\n"


def test_a_state_dict_there_and_back(client, torch_run):
    torch_run("""
        fp8 = torch.tensor([[0x38, 0x40]], torch.uint8).view(torch.float8_e4m3fn)
        scalar, empty = torch.tensor(7, torch.int64), torch.empty((0, 3), torch.float16, torch.device("cpu"))
        turned = w[:, ::2]
        state = {"w": w, "b": b, "fp8": fp8, "scalar": scalar, "empty": empty, "turned": turned}
        ref = gt.put_state_dict(client, "m", state, label="first", keep=1)
        assert (ref.name, ref.version) == ("m", 1) and client.stat("m").label == "first"
        found = gt.get_state_dict(client, "m")
        assert values(found) == values(state) and found["empty"].shape == (0, 3)
        assert client.get("m").dtypes["fp8"] == "float8_e4m3fn" and client.get("m").dtypes["b"] == "bool8"
        assert not found["w"].items.flags.writeable
        assert found["w"].data_ptr() == client.get("m")["w"].buffers.values.pointer
        own = gt.get_state_dict(client, "m", writable="copy")
        own["w"].items[:] = 0
        assert values(gt.get_state_dict(client, "m")) == values(state)
        fails(ValueError, lambda: gt.get_state_dict(client, "m", writable=True))
        gt.put_state_dict(client, "m", {"w": w}, replace=True, keep=1)
        assert set(gt.get_state_dict(client, "m", label="first")) == set(state)
        del found
        gc.collect()
        assert all("cached_ms" in lease for lease in client.leases("m"))  # cached ones
    """)


def test_packed_elements_are_counted_as_pytorch_counts_them(client, torch_run):
    torch_run("""
        fp4 = torch.tensor([[0x12, 0x34]], torch.uint8).view(torch.float4_e2m1fn_x2)
        gt.put_state_dict(client, "m", {"fp4": fp4})
        assert client.get("m").shapes == {"fp4": (1, 4)}
        found = gt.get_state_dict(client, "m")["fp4"]
        assert str(found.dtype) == "torch.float4_e2m1fn_x2" and found.tolist() == [[0x12, 0x34]]
    """)


def test_tied_tensors_are_stored_once(client, torch_run):
    torch_run("""
        state = {"embed": w, "b": b, "head": w, "twin": w.clone(), "part": w[:1]}
        gt.put_state_dict(client, "m", state, metadata={"step": 3})
        bundle = client.get("m")
        assert set(bundle) == {"embed", "b", "twin", "part"} and bundle.metadata["step"] == "3"
        found = gt.get_state_dict(client, "m", expect={"step": 3})
        assert values(found) == values(state) and found["head"] is found["embed"] is not found["twin"]
        own = gt.get_state_dict(client, "m", writable="copy")
        assert own["head"] is own["embed"]
        for nonsense in ("[]", "{", '{"x": "nowhere", "b": "embed", "y": 3}'):
            client.put_bundle("m", {"embed": w.items, "b": b.items}, {"gpubufd.tied": nonsense}, replace=True)
            assert set(gt.get_state_dict(client, "m")) == {"embed", "b"}
    """)


def test_published_again_it_is_planned_once(client, torch_run):
    torch_run("""
        state = {"w": w, "b": b, "head": w}
        gt.put_state_dict(client, "m", state)
        known = gt._known
        w.items[:] = 9
        again = {name: one.detach() for name, one in state.items()}  # as a model's state_dict() makes them
        gt.put_state_dict(client, "m", again, replace=True)
        assert gt._known is known and values(gt.get_state_dict(client, "m")) == values(state)
        assert gt.get_state_dict(client, "m")["w"].tolist() == [[9] * 3] * 2
        for other, metadata in (({"w": w, "b": b}, None), ({"w": w[:1], "b": b, "head": w[:1]}, None),
                                ({"b": b, "w": w, "head": w}, None), ({"w": w, "b": b, "head": w.clone()}, None),
                                (state, {"step": 1})):
            gt.put_state_dict(client, "m", state, replace=True)
            known = gt._known
            gt.put_state_dict(client, "m", other, metadata=metadata, replace=True)
            assert gt._known is not known
            assert values(gt.get_state_dict(client, "m")) == values(other)
        gt.put_state_dict(client, "m", {"turned": w[:, ::2]}, replace=True)  # copied first: nothing to be kept
        assert "turned" not in gt._known.facts[0]
        assert gt.get_state_dict(client, "m")["turned"].tolist() == [[9, 9]] * 2
        assert not any(one is kept for kept in gc.get_referents(gt._known) for one in state.values())
    """)


def test_mismatch_names_the_fields(client, torch_run):
    torch_run("""
        gt.put_state_dict(client, "m", {"w": w}, metadata={"tp_rank": 0, "dtype": "bf16", "shards": [1, 2]})
        assert set(gt.get_state_dict(client, "m", expect={"tp_rank": 0, "shards": [1, 2], "dtype": "bf16"})) == {"w"}
        other = {"tp_rank": 1, "x": "y", "dtype": "bf16"}
        wrong = fails(gt.Mismatch, lambda: gt.get_state_dict(client, "m", expect=other))
        assert wrong.fields == {"tp_rank": (1, "0"), "x": ("y", None)} and isinstance(wrong, ValueError)
        assert str(wrong) == "'m' is not what was expected: tp_rank: expected 1, found 0; x: expected y, found none"
        again = pickle.loads(pickle.dumps(wrong))
        assert (again.fields, str(again)) == (wrong.fields, str(wrong))
        assert "'d': device is neither" in str(fails(
            TypeError, lambda: gt.put_state_dict(client, "n", {"w": w}, metadata={"d": torch.device("cpu")})))
        gc.collect()
        assert (client.leases("m"), client.list("n")) == ([], []), (client.leases("m"), client.list("n"))
    """)


def test_into_tensors_of_ones_own(client, torch_run):
    torch_run("""
        gt.put_state_dict(client, "m", {"w": w, "b": b})
        mine = {"b": torch.tensor([False, False], torch.bool), "w": torch.tensor([[0] * 3] * 2, torch.float32)}
        found = gt.get_state_dict(client, "m", into=mine)
        assert values(mine) == values({"b": b, "w": w}) and found["w"] is mine["w"]
        wrong = fails(gt.Mismatch, lambda: gt.get_state_dict(client, "m", into={
            "w": torch.tensor([1], torch.float32), "x": torch.tensor([1], torch.int8)}))
        assert wrong.fields == {
            "w": ("float32 (1,)", "float32 (2, 3)"), "x": ("int8 (1,)", None), "b": (None, "bool8 (2,)")}
        many = {f"l{i}": w for i in range(9)}
        said = str(fails(gt.Mismatch, lambda: gt.get_state_dict(client, "m", into=many)))
        assert said.count("expected") == 6 and said.endswith("and 6 more")
    """)


def test_what_is_no_plain_tensor(client, torch_run):
    torch_run("""
        class Parts(torch.Tensor):
            def __tensor_flatten__(self): ...

        sparse, elsewhere = torch.tensor([1], torch.int8), torch.tensor([1], torch.int8)
        sparse.layout, elsewhere.device = "torch.sparse_coo", torch.device("meta")
        for bad, what in (("text", "str is no tensor"), (Parts(w.items, w.dtype), "a Parts is several tensors"),
                          (sparse, "it is torch.sparse_coo"), (elsewhere, "on the device meta"),
                          (torch.Tensor(w.items, torch.dtype("qint8", "f4")), "qint8")):
            said = str(fails((TypeError, ValueError), lambda: gt.put_state_dict(client, "m", {"good": w, "bad": bad})))
            assert "bad" in said and what in said, said
        fails(RuntimeError, lambda: gt.put_state_dict(client, "m", {"w": w}, device="nowhere"))
        client.put("bytes", b"abc")
        fails(TypeError, lambda: gt.get_state_dict(client, "bytes"))
        fails(KeyError, lambda: gt.get_state_dict(client, "nothing"))
        assert list(client) == ["bytes"]
    """)


def test_files(client, torch_run, tmp_path):
    path = tmp_path / "m.safetensors"
    torch_run(f"""
        path = {str(path)!r}
        gt.save_file({{"w": w, "again": w, "turned": w[:, ::2]}}, path, {{"format": "pt"}})
        calls = lambda: client.stats()["methods"]["create"]["calls"] if "create" in client.stats()["methods"] else 0
        before = calls()
        found = gt.load_file(path)
        assert values(gt.load_file(path, "cpu")) == values(found) and calls() == before + 1
        assert values(found)["again"] == values(found)["w"] == ("torch.float32", [[1, 2, 3], [4, 5, 6]])
        gt.load_file(path, writable="copy")["w"].items[:] = 0
        (name,) = [name for name in client if name.startswith("safetensors/")]
        client.delete(name)
        later = gt.load_file(path, wait=False)
        assert values(later) == values(found)
        later.wait()
        assert calls() == before + 2 and values(gt.load_file(path, wait=False)) == values(found)
        with gt.safe_open(path, framework="pt", device="cpu") as f:
            assert f.keys() == ["again", "turned", "w"] and f.metadata() == {{"format": "pt"}}
            whole, part = f.get_tensor("w"), f.get_slice("w")
            assert part.get_shape() == [2, 3] and part.get_dtype() == "F32" and part[1:].tolist() == [[4, 5, 6]]
            fails(KeyError, lambda: f.get_tensor("x"))
            fails(KeyError, lambda: f.get_slice("x"))
        assert whole.tolist() == [[1, 2, 3], [4, 5, 6]]
        fails(ValueError, lambda: gt.safe_open(path, framework="np"))
        gt.load_file(path, name="mine", client=client, ttl=60)
        assert client.stat("mine").ttl == 60 and calls() == before + 3
        gt.save_file(client.get("mine"), path + ".copy")
        assert open(path, "rb").read() == open(path + ".copy", "rb").read()
        import gpubufd.numpy
        gpubufd.numpy.load_file(path)
        assert calls() == before + 3  # the same name, whoever loads it
    """)
    found, metadata = weights.read(path.read_bytes())
    assert metadata == {"format": "pt"} and found["again"] == found["w"] and found["turned"][1] == (2, 2)


def test_a_file_whose_tensors_are_not_aligned(client, torch_run, tmp_path):
    """As others may write it: a byte before a tensor of eight."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(weights.make({"a": ("U8", (1,), b"x"), "w": ("F64", (2,), bytes(16)), "v": ("U8", (0,), b"")}))
    out = torch_run(f"print(values(gt.load_file({str(path)!r})))")
    assert out == "{'a': ('torch.uint8', [120]), 'w': ('torch.float64', [0.0, 0.0]), 'v': ('torch.uint8', [])}\n"


# ---- inference engines, over stand-ins of their base classes ----

MODEL = """
class Model:
    def load_weights(self, tensors):
        self.loaded = {name: tensor.tolist() for name, tensor in tensors}

class Config:
    def __init__(self, **members):
        self.__dict__.update(members)

model = Model()
"""


def test_sglang_takes_a_version_by_name(client, torch_run):
    torch_run(MODEL + """
import gpubufd_sglang
first = gt.put_state_dict(client, "policy", {"w": torch.tensor([1], torch.int64)}, keep=1)
second = gt.put_state_dict(client, "policy", {"w": torch.tensor([2], torch.int64)}, replace=True, keep=1)
for reference, value in ((second, 2), (first, 1)):
    gpubufd_sglang.load(model, gpubufd_sglang.named(reference))
    assert model.loaded == {"w": [value]}
""")
