"""--load-format gpubufd with vLLM's own base classes, loader, quantisation interface and keys: on the host, by a small model."""

import copy
import json
import os
import re
import shlex
import subprocess
import sys
import types

import conftest
import pytest

sys.path[:0] = [str(conftest.ROOT / "client" / "vllm")]
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")
transformers = pytest.importorskip("transformers")
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


def method_class(plugin, monkeypatch):
    """A quantisation: of the releases of vLLM that have a flag for processed weights, or of those before."""
    from vllm.model_executor import utils
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    flag = getattr(utils, "is_weights_pre_processed", None)

    class Turned(QuantizeMethodBase):
        processed = 0

        def create_weights(self, layer, *arguments, **keywords):
            pass

        def apply(self, layer, x):
            raise NotImplementedError

        def process_weights_after_loading(self, layer):
            layer.kernel = "made"
            if flag is None or not flag():
                Turned.processed += 1
                small_model.turn(layer)

    def refuse():
        Turned.supports_pre_processed_weights = False

    Turned.refuse = refuse
    if flag is None:
        name = f"{Turned.__module__}.{Turned.__qualname__}"
        monkeypatch.setitem(plugin._LEFT_TO_DO, name, lambda method, layer: setattr(layer, "kernel", "made"))
    else:
        Turned.supports_pre_processed_weights = True
    return Turned


@pytest.fixture
def engine(plugin, at_daemon, tmp_path, monkeypatch):
    """engine(**what differs): a loaded model, as an engine of this configuration would load it."""
    from vllm.config import CacheConfig, DeviceConfig, KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader import base_loader, get_model_loader

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    turned = method_class(plugin, monkeypatch)
    made = []  # identities, which keep no memory

    def initialize(**given):
        model = small_model.Model(turned())
        made.append(id(model))
        return model

    for module in (base_loader, plugin):  # which architecture it is, and in which place among others
        monkeypatch.setattr(module, "initialize_model", initialize)
    monkeypatch.setattr(plugin, "_ranks", lambda: dict(ranks))
    ranks = dict(tp_size=1, tp_rank=0, pp_size=1, pp_rank=0, dp_size=1, dp_rank=0)
    place = small_model.saved(tmp_path / "model")

    def load(extra=None, tp_rank=0, **changed):
        ranks["tp_rank"] = tp_rank
        hf = transformers.PretrainedConfig(architectures=["Small"])
        model_config = types.SimpleNamespace(**{**dict(
            model=str(place), revision=None, dtype=torch.float32, quantization=None, quantization_config=None, hf_config=hf,
            hf_text_config=hf, model_impl="auto", enable_sleep_mode=False, sleep_mode_backend="cumem",
            model_weights=None, multimodal_config=None, is_moe=False,
            word_embeddings_untied_by_checkpoint=False), **changed})
        parallel = types.SimpleNamespace(enable_expert_parallel=False, expert_placement_strategy="linear", enable_eplb=False)
        config = types.SimpleNamespace(
            load_config=LoadConfig(), device_config=types.SimpleNamespace(device=torch.device("cpu")), quant_config=None,
            speculative_config=None, parallel_config=parallel, cache_config=CacheConfig(), kernel_config=KernelConfig(),
            model_config=model_config)
        engine.config = config
        loader = get_model_loader(LoadConfig(load_format="gpubufd", model_loader_extra_config=extra or {}))
        assert type(loader) is plugin.GpubufdLoader
        before = loader.get_external_weight_memory(config)
        with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
            model = loader.load_model(config, model_config)
        return model, before, loader._wanted(config, model_config)

    engine = types.SimpleNamespace(load=load, turned=turned, place=place, made=made)
    yield engine
    plugin._shown.clear()


def test_the_first_engine_processes_and_all_map(engine, client):
    first, before, (name, facts) = engine.load()
    assert engine.turned.processed == 1 and before == 0
    assert engine.made == [id(first)]  # vLLM refuses a second one, whose layers have the names of the first
    second, before, _ = engine.load()
    assert engine.turned.processed == 1 and before == client.stat(name).bytes  # nothing was processed anew
    assert small_model.over(client.get(name), first, second, own_buffers=True)
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
    changed.layer.table += 1
    table, place = model.layer.table, model.layer.table.data_ptr()
    plugin.publish(changed, name, facts, client=client, replace=True, label="step-1")
    transfer.start_weight_update()
    transfer.receive_weights(transfer.parse_update_info({"label": "step-1"}))
    transfer.finish_weight_update()
    assert weight.data_ptr() == address and torch.equal(weight, before + 1) and weight is model.embed.weight
    assert table is model.layer.table and table.data_ptr() == place and table.tolist() == [1, 2, 3, 4, 5]  # its own buffer
    with pytest.raises(ValueError, match="cannot be written"):
        transfer.receive_weights(transfer.parse_update_info({"name": "policy"}))
    transfer.shutdown()


def test_layers_that_do_not_support_it_are_refused(engine, client):
    engine.turned.refuse()
    with pytest.raises(ValueError, match="layer layer has Turned, which cannot take processed weights"):
        engine.load()
    assert not list(client.keys())


def test_weights_sleep(engine, client, monkeypatch):
    """Parked when vLLM sleeps, and back at their addresses; the KV cache is its own allocator's, which has none here."""
    import vllm.device_allocator
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    told = []
    allocator = types.SimpleNamespace(
        sleep=lambda offload_tags: told.append("sleep"), wake_up=lambda tags: told.append(tags))
    monkeypatch.setattr(vllm.device_allocator, "get_mem_allocator_instance", lambda: allocator)
    model, _, (name, _) = engine.load(enable_sleep_mode=True)
    backend = SleepModeBackendFactory.create_backend(engine.config.model_config)
    assert type(backend).__name__ == "GpubufdSleep" and backend.supports_durable_storage()
    weight, x = model.layer.weight, torch.tensor([0, 2])
    address, wanted, table = weight.data_ptr(), model(x).clone(), model.layer.table
    view = sys.modules["gpubufd_vllm"]._shown[model].view
    for level in (1, 2):
        backend.suspend(level)
        assert view.parked and backend.state() == "SUSPENDED" and told == ["sleep"]
        assert table.tolist() == [0, 1, 2, 3, 4]  # vLLM saves and restores buffers itself
        backend.resume(["kv_cache"])
        assert view.parked
        backend.resume(["weights"])
        backend.resume()
        assert not view.parked and backend.state() == "RUNNING" and told == ["sleep", ["kv_cache"], ["weights"], None]
        assert weight.data_ptr() == address and torch.equal(model(x), wanted)
        told.clear()
    backend.suspend(2)
    processed = engine.turned.processed
    successor, _, _ = engine.load(enable_sleep_mode=True)  # while the first one sleeps, or has been killed
    assert engine.turned.processed == processed and torch.equal(successor(x), wanted)
    engine.load(enable_sleep_mode=True, sleep_mode_backend="another")
    assert engine.config.model_config.sleep_mode_backend == "another"  # as its user wanted it


def test_fp8_is_refused_where_its_kernel_is_not_known(plugin):
    from vllm.model_executor.layers.quantization.fp8 import Fp8LinearMethod

    for kernel, known in (("CutlassFP8ScaledMMLinearKernel", True), ("CutlassFp8BlockScaledMMKernel", False),
                          ("MarlinFP8ScaledMMLinearKernel", False)):
        method = object.__new__(Fp8LinearMethod)
        method.fp8_linear = type(kernel, (), {})()
        assert (plugin._left_to_do(method) is not None) == known, kernel


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


def test_the_page(engine, daemon, monkeypatch):
    """The commands of docs/VLLM.md: vLLM takes their options, and the list has the model. The rest wants a GPU."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    monkeypatch.setattr(current_platform, "device_type", "cpu")  # none, where vLLM's wheel for CUDA has no GPU
    page = re.search(r"^```sh\n(.*?)^```", (conftest.ROOT / "docs" / "VLLM.md").read_text(), re.M | re.S)[1]
    commands = [shlex.split(line, comments=True) for line in page.splitlines()]
    parser, served = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()), 0
    for command in commands:
        if command[:3] == ["vllm", "serve", "MODEL"]:
            told, rest = parser.parse_known_args(command[3:])
            assert told.load_format == "gpubufd" and told.kv_cache_memory_bytes == 8 << 30 and rest in ([], ["--port", "8001"])
            served += 1
    assert served == 2
    _, _, (name, _) = engine.load()
    (listing,) = (command for command in commands if command[0] == "gpubufctl")
    said = subprocess.run([conftest._module.BUILD / "bin" / "gpubufctl", "--socket", daemon.path, *listing[1:]],
                          capture_output=True, text=True, check=True).stdout
    assert name in said


def test_vllms_half():
    """The configurations have what the key is made of, and the loaders' base has the calls."""
    from vllm import envs
    from vllm.config import CacheConfig, KernelConfig, ModelConfig, ParallelConfig
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    for kind, names in ((CacheConfig, "cache_dtype kv_cache_dtype_skip_layers"), (KernelConfig, "moe_backend linear_backend"),
                        (ParallelConfig, "enable_expert_parallel expert_placement_strategy enable_eplb"),
                        (ModelConfig, "model revision hf_config model_impl dtype quantization quantization_config "
                                      "enable_sleep_mode sleep_mode_backend")):
        assert set(names.split()) <= set(kind.__dataclass_fields__), kind
    assert {"load_model", "load_weights", "download_model"} <= set(vars(BaseModelLoader))
    assert json.dumps(envs.compile_factors(), default=str) == json.dumps(envs.compile_factors(), default=str)
