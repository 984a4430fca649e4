"""--load-format gpubufd with vLLM's own base classes, loader, quantisation interface and keys: on the host, by a small model."""

import copy
import json
import os
import sys
import types

import conftest
import pytest

sys.path[:0] = [str(conftest.ROOT / "client" / "vllm")]
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")
from safetensors.torch import load_file  # noqa: E402

gpubufd = conftest.gpubufd
import gpubufd.torch as gt  # noqa: E402
import small_model  # noqa: E402
from gpubufd.torch import processed  # noqa: E402


@pytest.fixture(scope="module")
def plugin():
    import gpubufd_vllm

    # A load would import these: vLLM keeps exceptions of such imports, and with them the frames that led there.
    import vllm.model_executor.layers.quantization.online.base
    import vllm.model_executor.layers.quantization.online.fp8
    import vllm.model_executor.layers.quantization.online.moe_base  # noqa: F401

    gpubufd_vllm.register()
    return gpubufd_vllm


def method_class():
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.utils import is_weights_pre_processed

    class Turned(QuantizeMethodBase):
        supports_pre_processed_weights = True
        processed = 0

        def create_weights(self, layer, *arguments, **keywords):
            pass

        def apply(self, layer, x):
            raise NotImplementedError

        def process_weights_after_loading(self, layer):
            layer.kernel = "made"
            if not is_weights_pre_processed():
                Turned.processed += 1
                small_model.turn(layer)

    return Turned


@pytest.fixture
def engine(plugin, at_daemon, tmp_path, monkeypatch):
    """engine(**what differs): a loaded model, as an engine of this configuration would load it."""
    from vllm.config import CacheConfig, DeviceConfig, KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader import base_loader, get_model_loader

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    turned = method_class()
    for module in (base_loader, plugin):  # which architecture it is, and in which place among others
        monkeypatch.setattr(module, "initialize_model", lambda **given: small_model.Model(turned()))
    monkeypatch.setattr(plugin, "_ranks", lambda: dict(ranks))
    ranks = dict(tp_size=1, tp_rank=0, pp_size=1, pp_rank=0, dp_size=1, dp_rank=0)
    place = small_model.saved(tmp_path / "model")

    def load(extra=None, tp_rank=0, **changed):
        ranks["tp_rank"] = tp_rank
        hf = types.SimpleNamespace(architectures=["Small"], quantization_config=None, rope_parameters=None)
        model_config = types.SimpleNamespace(**{**dict(
            model=str(place), revision=None, dtype=torch.float32, quantization=None, quantization_config=None, hf_config=hf,
            hf_text_config=hf, model_weights=None, multimodal_config=None, is_moe=False,
            word_embeddings_untied_by_checkpoint=False), **changed})
        parallel = types.SimpleNamespace(enable_expert_parallel=False, expert_placement_strategy="linear", enable_eplb=False)
        config = types.SimpleNamespace(
            load_config=LoadConfig(), device_config=types.SimpleNamespace(device=torch.device("cpu")), quant_config=None,
            speculative_config=None, parallel_config=parallel, cache_config=CacheConfig(), kernel_config=KernelConfig(),
            model_config=model_config)
        loader = get_model_loader(LoadConfig(load_format="gpubufd", model_loader_extra_config=extra or {}))
        assert type(loader) is plugin.GpubufdLoader
        before = loader.get_external_weight_memory(config)
        with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
            model = loader.load_model(config, model_config)
        return model, before, loader._wanted(config, model_config)

    yield types.SimpleNamespace(load=load, turned=turned, place=place)
    plugin._shown.clear()


def test_the_first_engine_processes_and_all_map(engine, client):
    first, before, (name, facts) = engine.load()
    assert engine.turned.processed == 1 and before == 0
    second, before, _ = engine.load()
    assert engine.turned.processed == 1 and before == client.stat(name).bytes  # nothing was processed anew
    assert small_model.over(client.get(name), first, second)
    assert first.layer.kernel == second.layer.kernel == "made" and not any(one.is_meta for one in second.parameters())
    x = torch.tensor([0, 2])
    given = load_file(engine.place / "model.safetensors")
    assert torch.allclose(first(x), given["embed.weight"][x] @ given["layer.weight"].t())
    assert facts["revision"] is None and facts["tp_rank"] == 0 and facts["files"][0][0] == "model.safetensors"


def test_whatever_differs_is_another_object(engine, client):
    _, _, (plain, _) = engine.load()
    for changed in (dict(tp_rank=1), dict(revision="main"), dict(dtype=torch.bfloat16), dict(quantization="fp8")):
        _, before, (name, _) = engine.load(**changed)
        assert name != plain and before == 0, changed
    os.utime(engine.place / "model.safetensors", ns=(1, 1))
    _, before, (name, _) = engine.load()
    assert name != plain and before == 0
    count = len(client)
    engine.load({"name": "mine"})
    with pytest.raises(gt.Mismatch, match="tp_rank: expected 1, found 0"):
        engine.load({"name": "mine"}, tp_rank=1)
    assert len(client) == count + 1


def test_a_view_shows_the_next_version_in_place(engine, plugin, client):
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    model, _, (name, facts) = engine.load({"view": True})
    weight = model.embed.weight
    address, before = weight.data_ptr(), weight.clone()
    config = types.SimpleNamespace(parallel_config=None, model_config=types.SimpleNamespace(dtype=torch.float32))
    transfer = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend="gpubufd"), config, torch.device("cpu"), model)
    transfer.init_transfer_engine(transfer.parse_init_info({}))
    changed = copy.deepcopy(model)  # in the place of another engine's, with other weights
    changed.embed.weight.data += 1
    plugin.publish(changed, name, facts, client=client, replace=True, label="step-1")
    transfer.start_weight_update()
    transfer.receive_weights(transfer.parse_update_info({"label": "step-1"}))
    transfer.finish_weight_update()
    assert weight.data_ptr() == address and torch.equal(weight, before + 1) and weight is model.embed.weight
    with pytest.raises(ValueError, match="cannot be written"):
        transfer.receive_weights(transfer.parse_update_info({"name": "policy"}))
    transfer.shutdown()


def test_layers_that_do_not_support_it_are_refused(engine, client, monkeypatch):
    from vllm.model_executor.model_loader.weight_cache.protocol import UnsupportedQuantForIPCError

    monkeypatch.setattr(engine.turned, "supports_pre_processed_weights", False)
    with pytest.raises(UnsupportedQuantForIPCError):
        engine.load()
    assert not list(client.keys())


@conftest.needs_root
def test_what_another_user_published_under_a_name_of_facts_is_not_mapped(engine, client, daemon):
    _, _, (name, _) = engine.load()
    client.delete(name)
    conftest.as_another_user(daemon, f"c.put({name!r}, b'', mode=0o644)")
    with pytest.raises(PermissionError, match="published by user 1001"):
        engine.load()


def test_another_engine_is_waited_for_and_not_for_ever():
    with processed.alone("x", 1):
        with pytest.raises(TimeoutError, match="another engine has been loading 'x'"):
            with processed.alone("x", 0.1):
                pass


def test_vllms_half():
    """The key has the fields that the loader relies on, and the loaders' base the calls."""
    import dataclasses

    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.weight_cache.protocol import WeightCacheKey

    fields = {field.name for field in dataclasses.fields(WeightCacheKey)}
    assert fields >= {"checkpoint", "revision", "dtype", "quantization", "quant_config_hash", "tp_rank", "pp_rank", "dp_rank",
                      "vllm_version", "moe_backend", "linear_backend"}
    assert json.dumps(sorted(fields))
    assert {"load_model", "load_weights", "download_model", "get_external_weight_memory"} <= set(vars(BaseModelLoader))
