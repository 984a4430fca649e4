"""--load-format gpubufd with SGLang's own loaders, weight cache and hooks: on the host, by a small model."""

import os
import sys
import types

import conftest
import pytest

sys.path[:0] = [str(conftest.ROOT / "client" / "sglang")]
torch = pytest.importorskip("torch")
pytest.importorskip("sglang")
pytest.importorskip("triton")

gpubufd = conftest.gpubufd
import gpubufd.torch as gt  # noqa: E402
import small_model  # noqa: E402


@pytest.fixture(scope="module")
def plugin():
    import gpubufd_sglang
    import sglang.srt.lora.layers  # noqa: F401  A load does this otherwise: errors that it keeps would hold the model
    from sglang.srt.plugins.hook_registry import HookRegistry

    gpubufd_sglang.register()
    gpubufd_sglang.register()
    HookRegistry.apply_hooks()  # as load_plugins() does after all have registered
    import gpubufd_sglang_loader

    return gpubufd_sglang_loader


class Turned:
    processed = 0

    def process_weights_after_loading(self, layer):
        Turned.processed += 1
        small_model.turn(layer)


@pytest.fixture
def engine(plugin, at_daemon, tmp_path, monkeypatch):
    """engine.load(**what differs): (a loaded model, its loader), as an engine of this configuration would load it."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader as theirs

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ranks = {name: 1 for name in plugin._FROM_PARALLEL.values()}
    for module in (theirs, plugin):  # which architecture it is, and in which place among others
        monkeypatch.setattr(module, "_initialize_model", lambda *given: small_model.Model(Turned()))
        monkeypatch.setattr(module, "_get_quantization_config", lambda *given: None)
    how = types.SimpleNamespace(
        weight_loader_disable_mmap=False, weight_loader_prefetch_checkpoints=False, weight_loader_prefetch_num_threads=1,
        weight_loader_drop_cache_after_load=False, model_checksum=None)
    monkeypatch.setattr(theirs, "get_server_args", lambda: None)
    monkeypatch.setattr(theirs, "get_model", lambda: how)
    monkeypatch.setattr(plugin, "get_parallel", lambda: types.SimpleNamespace(**ranks))
    monkeypatch.setattr(plugin, "get_exec", lambda: types.SimpleNamespace(moe=types.SimpleNamespace(moe_a2a_backend="none")))
    place = small_model.saved(tmp_path / "model")

    def load(extra=None, tp_rank=0, **changed):
        ranks["tp_rank"] = tp_rank
        model_config = types.SimpleNamespace(**{**dict(
            model_path=str(place), model_weights=None, revision=None, dtype=torch.float32, quantization=None,
            hf_config=types.SimpleNamespace(architectures=["Small"], quantization_config=None)), **changed})
        made = theirs.get_model_loader(LoadConfig(load_format="gpubufd", model_loader_extra_config=extra or {}))
        assert type(made) is plugin.GpubufdLoader
        model = made.load_model(model_config=model_config, device_config=types.SimpleNamespace(device="cpu", gpu_id=0))
        return model, made, made._wanted(model_config, torch.device("cpu"))

    Turned.processed = 0
    return types.SimpleNamespace(load=load, place=place)


def test_the_first_engine_processes_and_all_map(engine, client):
    first, made, (name, facts) = engine.load()
    assert Turned.processed == 1 and made.preloaded_weights_bytes == 0
    second, made, _ = engine.load()
    assert Turned.processed == 1 and made.preloaded_weights_bytes == client.stat(name).bytes
    assert small_model.over(client.get(name), first, second)
    assert facts["tp_rank"] == 0 and facts["files"][0][0] == "model.safetensors"


def test_whatever_differs_is_another_object(engine, client):
    _, _, (plain, _) = engine.load()
    for changed in (dict(tp_rank=1), dict(revision="main"), dict(dtype=torch.bfloat16)):
        _, made, (name, _) = engine.load(**changed)
        assert name != plain and made.preloaded_weights_bytes == 0, changed
    os.utime(engine.place / "model.safetensors", ns=(1, 1))
    _, _, (name, _) = engine.load()
    assert name != plain
    engine.load({"name": "mine"})
    with pytest.raises(gt.Mismatch, match="tp_rank: expected 1, found 0"):
        engine.load({"name": "mine"}, tp_rank=1)
    with pytest.raises(ValueError, match="expected name or timeout"):
        engine.load({"nam": "mine"})


def test_what_sglang_does_not_share_is_refused(engine, client):
    from sglang.srt.weight_cache.protocol import UnsupportedQuantForIPCError

    engine.load()
    count = len(client)
    with pytest.raises(UnsupportedQuantForIPCError):
        engine.load(quantization="awq")
    assert len(client) == count


def test_sglangs_half(plugin):
    """The loader relies on these: fields of the fingerprint, attributes of the ranks, a loader class as a load format."""
    import inspect

    from sglang.srt.model_loader.loader import BaseModelLoader, DefaultModelLoader, _initialize_model
    from sglang.srt.plugins import GENERAL_PLUGINS_GROUP
    from sglang.srt.weight_cache.ipc_loader import IpcModelLoader
    from sglang.srt.weight_cache.protocol import CacheConfig

    other = {"model_path", "model_arch", "moe_a2a_backend", "quant_method", "quant_config_hash", "dtype", "revision",
             "device_capability", "torch_version"}
    assert set(CacheConfig.__struct_fields__) == other | set(plugin._FROM_PARALLEL)
    theirs = inspect.getsource(IpcModelLoader._fetch_from_cache)
    assert all(f"parallel.{name}" in theirs for name in plugin._FROM_PARALLEL.values())
    assert "get_exec().moe.moe_a2a_backend" in theirs
    assert list(inspect.signature(BaseModelLoader.load_model).parameters) == ["self", "model_config", "device_config"]
    assert list(inspect.signature(_initialize_model).parameters)[:3] == ["model_config", "load_config", "quant_config"]
    assert callable(IpcModelLoader._rebuild_stale_views) and callable(IpcModelLoader._resolve_engine_quant)
    assert callable(DefaultModelLoader.download_model) and BaseModelLoader.preloaded_weights_bytes == 0
    text = (conftest.ROOT / "client" / "sglang" / "pyproject.toml").read_text()
    assert f'[project.entry-points."{GENERAL_PLUGINS_GROUP}"]' in text
