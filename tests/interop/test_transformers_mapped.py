"""gpubufd.transformers with the real transformers, and a small model that is made here."""

import textwrap

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

PROGRAM = """
    import sys, torch, gpubufd, gpubufd.transformers
    from gpubufd import _weights
    from transformers import AutoModelForCausalLM, modeling_utils
    place = sys.argv[1]
    theirs = modeling_utils.safe_open
    model = gpubufd.transformers.from_pretrained(AutoModelForCausalLM, place)
    plain = AutoModelForCausalLM.from_pretrained(place)
    assert modeling_utils.safe_open is theirs
    tokens = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, plain(tokens).logits)
    regions = [tuple(int(x, 16) for x in line.split()[0].split("-")) for line in open("/proc/self/maps") if "memfd:gpubufd" in line]
    shared = [name for name, p in model.named_parameters() if any(a <= p.data_ptr() < b for a, b in regions)]
    assert shared == [name for name, _ in model.named_parameters()], set(n for n, _ in model.named_parameters()) - set(shared)
    assert not any(a <= p.data_ptr() < b for p in plain.parameters() for a, b in regions)
    half = gpubufd.transformers.from_pretrained(AutoModelForCausalLM, place, dtype=torch.float16)
    assert half.lm_head.weight.dtype == torch.float16
    print(len(gpubufd.connect()), gpubufd.connect().stats()["methods"]["create"]["calls"])
"""


def test_models_map_what_the_first_has_read(client, daemon, tmp_path, run):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
                         num_key_value_heads=2)
    for shard, files in (("1GB", 1), ("20KB", 4)):
        place = tmp_path / shard
        LlamaForCausalLM(config).save_pretrained(place, max_shard_size=shard)
        assert len(list(place.glob("*.safetensors"))) >= files
        code = textwrap.dedent(PROGRAM).replace("sys.argv[1]", repr(str(place)))
        counts = [run(code).splitlines()[-1] for _ in range(2)]  # transformers' bars of progress come before
        assert counts[0] == counts[1], "something was created anew"
        client.delete(*client.keys())


def test_transformers_half():
    """The name that is replaced is the one by which models open files."""
    import inspect

    import safetensors
    from transformers import modeling_utils

    assert modeling_utils.safe_open is safetensors.safe_open
    source = inspect.getsource(modeling_utils.PreTrainedModel)
    assert "safe_open(file, framework=" in source and ".get_slice(" in source
