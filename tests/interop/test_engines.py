"""gpubufd-vllm and the example for SGLang beside these as they are released: base classes, registries, what is called how.

vLLM itself is imported, as far as that goes without a GPU. SGLang's modules want Triton: their source is read.
"""

import ast
import importlib.util
import inspect
import pathlib
import sys
import types

import conftest
import pytest

sys.path[:0] = [str(conftest.ROOT / "client" / "vllm"), str(conftest.ROOT / "client" / "sglang")]
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def vllm_example():
    pytest.importorskip("vllm")
    import gpubufd_vllm

    gpubufd_vllm.register()
    return gpubufd_vllm


class Model(torch.nn.Module):
    """It loads weights as the models of these engines do."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False)

    def load_weights(self, tensors):
        for name, tensor in tensors:
            param = dict(self.named_parameters())[name]
            load = getattr(param, "weight_loader", lambda param, tensor: param.data.copy_(tensor))
            load(param, tensor)


def called_alike(ours, base):
    """Each method of ours that the base has takes what callers of the base's pass."""
    for name, method in vars(ours).items():
        declared = inspect.getattr_static(base, name, None)
        if not inspect.isfunction(declared) or not inspect.isfunction(method) or name == "__init__":
            continue
        wanted = [one.name for one in inspect.signature(declared).parameters.values()]
        assert [one.name for one in inspect.signature(method).parameters.values()] == wanted, name
    assert not inspect.isabstract(ours)


def test_vllm_makes_the_loader(vllm_example, at_daemon, tmp_path):
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader import BaseModelLoader, get_model_loader

    called_alike(vllm_example.GpubufdFilesLoader, BaseModelLoader)
    weights = torch.arange(6.0).reshape(2, 3)
    import gpubufd.torch as gt

    gt.save_file({"w": weights}, tmp_path / "model.safetensors")
    loader = get_model_loader(LoadConfig(load_format="gpubufd-files", model_loader_extra_config={"device": "cpu"}))
    assert type(loader) is vllm_example.GpubufdFilesLoader
    config, model = types.SimpleNamespace(model=str(tmp_path), revision=None), Model()
    loader.download_model(config)
    loader.load_weights(model, config)
    assert torch.equal(model.w, weights)
    with pytest.raises(ValueError, match="expected device"):
        get_model_loader(LoadConfig(load_format="gpubufd-files", model_loader_extra_config={"x": 1}))


def test_vllm_makes_the_transfer_engine_and_takes_steps(vllm_example, client, daemon):
    import gpubufd.torch as gt
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.base import WeightTransferEngine
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    called_alike(vllm_example.GpubufdTransfer, WeightTransferEngine)
    from vllm.model_executor.model_loader.reload import record_metadata_for_reloading

    model = Model()
    record_metadata_for_reloading(model)  # as the loader does for a model that it makes
    config = types.SimpleNamespace(parallel_config=None, model_config=types.SimpleNamespace(dtype=torch.float32))
    engine = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend="gpubufd"), config, torch.device("cpu"), model)
    assert type(engine) is vllm_example.GpubufdTransfer
    with pytest.raises(ValueError, match="Invalid update_info"):
        engine.parse_update_info({"nothing": 1})
    engine.init_transfer_engine(engine.parse_init_info({"path": daemon.path}))
    for step in range(2):
        gt.put_state_dict(client, "policy", {"w": torch.full((2, 3), float(step))}, replace=True, label=f"step-{step}",
                          keep=1)
        engine.start_weight_update()  # vLLM's own layerwise reload
        engine.receive_weights(engine.parse_update_info({"name": "policy"}))  # update_weights() waits for a GPU
        engine.finish_weight_update()
        assert float(model.w.sum()) == 6 * step
    engine.receive_weights(engine.parse_update_info({"name": "policy", "label": "step-0"}))
    assert float(model.w.sum()) == 0
    draft = Model()  # a draft model takes the place of the engine's own for an update
    engine.set_weight_update_target(draft, config.model_config)
    engine.receive_weights(engine.parse_update_info({"name": "policy"}))
    assert float(draft.w.sum()) == 6 and float(model.w.sum()) == 0
    engine.shutdown()


def test_vllm_finds_plugins_by_the_entry_point_of_the_package(vllm_example):
    import tomllib

    import vllm.plugins as plugins

    project = tomllib.loads((conftest.ROOT / "client" / "vllm" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {plugins.DEFAULT_PLUGINS_GROUP: {"gpubufd": "gpubufd_vllm:register"}}


# ---- SGLang ----


def source_of(name):
    """The syntax tree of a module of SGLang's, by its path below the package."""
    found = importlib.util.find_spec("sglang")
    if found is None:
        pytest.skip("needs sglang")
    return ast.parse((pathlib.Path(found.submodule_search_locations[0]) / name).read_text())


def function(tree, name):
    return next(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and node.name == name)


def test_sglang_calls_a_load_format_by_its_name(at_daemon):
    import gpubufd.torch as gt
    import gpubufd_sglang

    space = {"importlib": importlib}
    imported = ast.Module([function(source_of("srt/utils/common.py"), "dynamic_import")], [])
    exec(compile(imported, "common.py", "exec"), space)
    load = space["dynamic_import"]("gpubufd_sglang.load")
    assert load is gpubufd_sglang.load
    update = function(source_of("srt/model_executor/model_runner_components/weight_updater.py"),
                      "update_weights_from_tensor")
    text = ast.unparse(update)
    assert "load_format in self.custom_weight_loaders" in text and "dynamic_import(load_format)" in text
    assert "custom_loader(self.get_model(), named_tensors)" in text
    model = Model()
    reference = gt.put_state_dict(at_daemon, "policy", {"w": torch.ones(2, 3)})
    load(model, [(name, tensor.to("cpu")) for name, tensor in gpubufd_sglang.named(reference)])
    assert float(model.w.sum()) == 6


def test_sglang_has_the_calls_that_the_example_shows():
    engine = source_of("srt/entrypoints/engine.py")
    shown = (conftest.ROOT / "client" / "sglang" / "gpubufd_sglang.py").read_text()
    for name in ("begin_weight_update", "update_weights_from_tensor", "end_weight_update"):
        assert f"engine.{name}(" in shown and function(engine, name)
    arguments = [one.arg for one in function(engine, "update_weights_from_tensor").args.args]
    assert arguments[:3] == ["self", "named_tensors", "load_format"]
    assert "custom_weight_loader" in ast.unparse(source_of("srt/arg_groups/fields/model.py"))
