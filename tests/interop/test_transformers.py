"""transformers: small models of random weights, whose state dicts and files go through the daemon, and compute the same."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import gpubufd.torch as gt  # noqa: E402

SMALL = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
MODELS = {
    "llama, tied": lambda: transformers.LlamaConfig(
        **SMALL, intermediate_size=48, num_key_value_heads=2, tie_word_embeddings=True, dtype="float32"),
    "qwen3, bfloat16": lambda: transformers.Qwen3Config(
        **SMALL, intermediate_size=48, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False, dtype="bfloat16"),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4, dtype="float32"),
}
TOKENS = torch.arange(10).reshape(2, 5)


@pytest.fixture
def here(at_daemon, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return at_daemon


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(7)
    return made(MODELS[request.param]())


def made(config):
    return transformers.AutoModelForCausalLM.from_config(config, dtype=config.dtype).eval()


def computed(model):
    with torch.no_grad():
        return model(TOKENS).logits


def same(found, model):
    state = model.state_dict()
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_a_model_over_a_state_dict_that_is_shared(here, model):
    gt.put_state_dict(here, "m", model.state_dict())
    other = made(model.config)
    found = gt.get_state_dict(here, "m")
    same(found, model)
    other.load_state_dict(found, assign=True)
    assert {one.data_ptr() for one in other.parameters()} <= {one.data_ptr() for one in found.values()}
    assert torch.equal(computed(other), computed(model))


@pytest.mark.parametrize("shards", [1, 3])
def test_what_transformers_saves_is_loaded(here, model, tmp_path, shards):
    whole = sum(one.numel() * one.element_size() for one in model.state_dict().values())
    model.save_pretrained(tmp_path, max_shard_size=whole // shards + 1000)
    name = "model.safetensors" if shards == 1 else "model.safetensors.index.json"
    found = gt.load_file(tmp_path / name)
    if shards > 1:
        assert len(set(json.loads((tmp_path / name).read_text())["weight_map"].values())) > 1
    tied = model.state_dict().keys() - found.keys()  # transformers saves a tensor by one of its names
    assert len(tied) == (1 if model.config.tie_word_embeddings else 0)
    other = type(model).from_pretrained(None, config=model.config, state_dict=found, dtype=model.dtype)
    assert torch.equal(computed(other.eval()), computed(model))


def test_what_is_saved_here_is_loaded_by_transformers(here, model, tmp_path):
    model.config.save_pretrained(tmp_path)
    gt.save_file(model.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    other = type(model).from_pretrained(tmp_path, dtype=model.dtype).eval()
    same(other.state_dict(), model)
    assert torch.equal(computed(other), computed(model))
    with torch.device("meta"):
        again = made(model.config)
    again.load_state_dict(gt.load_file(tmp_path / "model.safetensors"), assign=True)
    same(again.state_dict(), model)
