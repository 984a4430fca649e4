"""vLLM takes its weights from gpubufd: a loader of processed weights, one of files, and weight-transfer engines.

pip install gpubufd-vllm makes them known to vLLM, by its entry point. Then:

    vllm serve /models/llama-8b --load-format gpubufd

The first engine of a kind loads, quantises and lays out, as with --load-format auto, and publishes the result, on its GPU.
It and all others map that, read-only, and keep no copy; an engine that starts anew maps it, too, though the first has
ended. The name is made of all that the layout depends on, which is compared as a whole, too: the files with sizes, inodes and times,
revision, dtypes, quantisation, kernels, the ranks of tensors, pipelines, data and experts, vLLM's and PyTorch's versions,
the GPU. Quantisations that do not support it are refused, as vLLM's own weight cache does. Extra config:

    {"name": "policy"}          a name of yours: of other weights, too, which are Mismatch if a fact differs
    {"view": true}              weights that change in place: see below
    {"timeout": 600}            seconds to wait for an engine that loads the same (3600)

With --load-format gpubufd-files the files' own tensors are mapped, and each engine computes with a copy of its own.
{"device": "cuda"} has the files in the GPU's memory instead of the host's.

New weights, by vLLM's weight transfer (backend "gpubufd"): the tensors of a checkpoint under a name, which layers
rearrange, {"name": "policy", "label": "step-42"}, as gpubufd.torch.put_state_dict() publishes them. Where engines have
{"view": true}, {"version": 3} or {"label": "step-42"} without a name shows a later version of the processed weights
at the addresses that CUDA graphs know; publish() of an engine that has loaded them makes it.

The interfaces are those of vLLM 0.33, with which the tests run it (docs/INTEROP.md).
"""

import contextlib
import dataclasses
import os
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple

import gpubufd
import gpubufd.torch
import torch
from gpubufd.torch.processed import (
    connected,
    drop_unread,
    extra_config,
    name_of,
    plain_config,
    published_bytes,
    put_module,
    share_module,
)
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.model_loader.weight_cache.protocol import WeightCacheKey, check_ipc_quant_support
from vllm.model_executor.model_loader.weight_cache.utils import export_model_attrs
from vllm.model_executor.utils import weights_already_processed
from vllm.utils.torch_utils import set_default_torch_dtype

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_shown: "weakref.WeakKeyDictionary[Any, Tuple[gpubufd.Client, str, Any]]" = weakref.WeakKeyDictionary()


# ---- processed weights ----


def _ranks() -> Dict[str, int]:
    from vllm import distributed

    found = {"tp_size": distributed.get_tensor_model_parallel_world_size(),
             "tp_rank": distributed.get_tensor_model_parallel_rank()}
    for name, group in (("pp", distributed.get_pp_group()), ("dp", distributed.get_dp_group())):
        found.update({f"{name}_size": group.world_size, f"{name}_rank": group.rank_in_group})
    return found


def _facts(vllm_config: Any, model_config: Any, device: Any, is_draft: bool) -> Dict[str, Any]:
    """All that the processed weights depend on."""
    parallel = vllm_config.parallel_config
    key = WeightCacheKey.from_model_config(
        model_config, cache_config=vllm_config.cache_config, kernel_config=vllm_config.kernel_config, is_draft=is_draft,
        enable_expert_parallel=parallel.enable_expert_parallel,
        expert_placement_strategy=parallel.expert_placement_strategy, **_ranks())
    gpu = [torch.cuda.get_device_name(device), *torch.cuda.get_device_capability(device)] if device.type == "cuda" else None
    return {**dataclasses.asdict(key), "model": model_config.model, "torch": torch.__version__, "gpu": gpu}


class GpubufdLoader(BaseModelLoader):
    """--load-format gpubufd."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        extra = extra_config(load_config, name=None, view=False, timeout=3600, is_draft=None)  # the last is vLLM's own
        self.name: Optional[str] = extra["name"]
        self.view, self.timeout = bool(extra["view"]), float(extra["timeout"])

    def _plain(self) -> Any:
        return DefaultModelLoader(plain_config(self.load_config))

    def _device(self, vllm_config: Any) -> Any:
        return torch.device(self.load_config.device or vllm_config.device_config.device)

    def _wanted(self, vllm_config: Any, model_config: Any) -> Tuple[str, Dict[str, Any]]:
        """(name, facts) of the processed weights."""
        speculative = vllm_config.speculative_config
        is_draft = speculative is not None and model_config is speculative.draft_model_config
        device = self._device(vllm_config)
        return name_of(
            "vllm", model_config.model, _facts(vllm_config, model_config, device, is_draft), device, self.name)

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Bytes of the weights that this engine is to map, and does not allocate."""
        return published_bytes(connected("vllm"), self._wanted(vllm_config, vllm_config.model_config)[0])

    def download_model(self, model_config: Any) -> None:
        self._plain().download_model(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Into a model with weights of its own, from the files."""
        self._plain().load_weights(model, model_config)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        if vllm_config.parallel_config.enable_eplb:
            raise ValueError("--load-format gpubufd: experts that are moved (EPLB) need weights that can be written")
        client, device = connected("vllm"), self._device(vllm_config)
        name, facts = self._wanted(vllm_config, model_config)

        def load() -> Any:
            model = self._plain().load_model(vllm_config, model_config, prefix)
            check_ipc_quant_support(model)
            return model

        def make() -> Any:
            with torch.device("meta"):
                model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
            check_ipc_quant_support(model)
            return model

        with set_default_torch_dtype(model_config.dtype):
            model, view = share_module(
                client, name, facts, load, make, device=device, view=self.view, timeout=self.timeout,
                others=bool(self.name), attributes=export_model_attrs)
            with weights_already_processed():  # layers make their kernels, and change no weight
                process_weights_after_loading(model, model_config, device)
        drop_unread(model)
        _shown[model] = client, name, view
        return model.eval()


def publish(
    model: Any, name: str, facts: Dict[str, Any], *, client: Optional[gpubufd.Client] = None, device: Any = None,
    **options: Any,
) -> gpubufd.Ref:
    """Publishes a loaded model's processed weights; with replace=True and a label as the next version for views."""
    return put_module(
        client or connected("vllm"), name, model, facts, device=device, attributes=export_model_attrs(model), **options)


# ---- files ----


def checkpoint(directory: str) -> str:
    """The file of a model's directory that leads to all its weights. FileNotFoundError."""
    for name in (INDEX, SINGLE):
        if os.path.exists(os.path.join(directory, name)):
            return os.path.join(directory, name)
    raise FileNotFoundError(f"{directory} has neither {INDEX} nor {SINGLE}")


class GpubufdFilesLoader(BaseModelLoader):
    """--load-format gpubufd-files: the files' tensors, mapped; the model's own code picks what its rank needs."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        self.device: str = extra_config(load_config, device="cpu")["device"]

    def download_model(self, model_config: Any) -> None:
        self._path(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        model.load_weights(self._tensors(self._path(model_config)))

    def _tensors(self, path: str) -> Iterator[Tuple[str, Any]]:
        with gpubufd.torch.safe_open(path, framework="pt", device=self.device) as f:
            for name in f.offset_keys():
                yield name, f.get_tensor(name)

    @staticmethod
    def _path(model_config: Any) -> str:
        if os.path.isdir(model_config.model):
            return checkpoint(model_config.model)
        from huggingface_hub import snapshot_download

        return checkpoint(snapshot_download(
            model_config.model, revision=model_config.revision, allow_patterns=["*.safetensors", "*.json"]))


# ---- new weights ----


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """`path`: the daemon's socket; None: where connect() looks."""

    path: Optional[str] = None


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """`name`: of a checkpoint's tensors; none: the engine's view of processed weights. `version` or `label`: else the newest."""

    name: str = ""
    version: Optional[int] = None
    label: Optional[str] = None


class GpubufdTransfer(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Weights by name: all tensors of one version, never half of two."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    client: Optional[gpubufd.Client] = None

    def _view(self) -> Any:
        return _shown.get(self.model, (None, None, None))[2]

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self.client = gpubufd.connect(init_info.path)

    def start_weight_update(self) -> None:
        """Layers that have rearranged their weights take those of a checkpoint again."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        if self._view() is None:
            initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """They are rearranged anew, in the memory that the engine's graphs know."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        if self._view() is None:
            finalize_layerwise_reload(self.model, self.model_config)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if self.client is None:
            raise RuntimeError("there is no connection: call init_transfer_engine() first")
        view = self._view()
        if not update_info.name:
            if view is None:
                raise ValueError('update_info has no name: only an engine with {"view": true} shows its next version')
            view.switch(version=update_info.version, label=update_info.label)
            return
        if self.model in _shown:
            raise ValueError("this engine's weights are mapped, and cannot be written: publish() them, and use a view")
        state = gpubufd.torch.get_state_dict(
            self.client, update_info.name, version=update_info.version, label=update_info.label)
        self.model.load_weights(state.items())

    def shutdown(self) -> None:
        if self.client is not None:
            self.client.close()


def register() -> None:
    """For vLLM's plugins, which are called more than once: makes the load formats and the transfer backend known."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import register_model_loader

    register_model_loader("gpubufd")(GpubufdLoader)
    register_model_loader("gpubufd-files")(GpubufdFilesLoader)
    with contextlib.suppress(ValueError):  # it is known
        WeightTransferEngineFactory.register_engine("gpubufd", GpubufdTransfer)
