"""vLLM takes its weights from gpubufd: a loader of processed weights, one of files, sleep, and a weight-transfer engine.

pip install gpubufd-vllm makes them known to vLLM, by its entry point. Then:

    vllm serve /models/llama-8b --load-format gpubufd

The first engine of a kind loads, quantises and lays out, as with --load-format auto, and publishes the result, on its GPU.
It and all others map that, read-only, and keep no copy; an engine that starts anew maps it, too, though the first has
ended. The name is made of all that the layout depends on, which is compared as a whole, too: the files with sizes, inodes and times,
the model's configuration, revision, dtypes, quantisation, kernels, the ranks of tensors, pipelines, data and experts,
VLLM_… variables that make another program, vLLM's and PyTorch's versions, the GPU. Buffers (tables of positions, scales
of the KV cache) are each engine's own, since vLLM writes them. Layers that cannot take processed weights are refused.
Extra config:

    {"name": "policy"}          a name of yours: of other weights, too, which are Mismatch if a fact differs
    {"view": true}              weights that change in place: see below
    {"timeout": 600}            seconds to wait for an engine that loads the same (3600)

With --enable-sleep-mode the weights sleep with the KV cache, at both levels: the daemon keeps them, in another tier when
their memory is wanted. They wake at the same addresses, so graphs stay valid; after level 2, too, without a reload. An
engine that is killed asleep leaves them to the next one.

With --load-format gpubufd-files the files' own tensors are mapped, and each engine computes with a copy of its own.
{"device": "cuda"} has the files in the GPU's memory instead of the host's.

New weights, by vLLM's weight transfer (backend "gpubufd"): the tensors of a checkpoint under a name, which layers
rearrange, {"name": "policy", "label": "step-42"}, as gpubufd.torch.put_state_dict() publishes them. Where engines have
{"view": true}, {"version": 3} or {"label": "step-42"} without a name shows a later version of the processed weights
at the addresses that CUDA graphs know; publish() of an engine that has loaded them makes it.

The interfaces are those that vLLM has had from 0.25 to 0.33, with which the tests run it (docs/INTEROP.md).
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import gpubufd
import gpubufd.torch
import torch
import vllm
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
from vllm.config.utils import normalize_value
from vllm.device_allocator.sleep_mode_backend import CuMemBackend
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.models.interfaces import SupportsEagleBase
from vllm.utils.torch_utils import set_default_torch_dtype

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclasses.dataclass
class _Shown:
    """The weights that an engine's model shows."""

    name: str
    view: Any  # None: it is mapped for good
    buffers: List[Tuple[Any, Any]]  # (the model's own, the published one)


_shown: "weakref.WeakKeyDictionary[Any, _Shown]" = weakref.WeakKeyDictionary()


# ---- the key ----


def _ranks() -> Dict[str, int]:
    from vllm import distributed

    found = {"tp_size": distributed.get_tensor_model_parallel_world_size(),
             "tp_rank": distributed.get_tensor_model_parallel_rank()}
    for name, group in (("pp", distributed.get_pp_group()), ("dp", distributed.get_dp_group())):
        found.update({f"{name}_size": group.world_size, f"{name}_rank": group.rank_in_group})
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _facts(vllm_config: Any, model_config: Any, device: Any, is_draft: bool) -> Dict[str, Any]:
    """All that the processed weights depend on. Made before they are loaded: that changes the model's configuration."""
    parallel, cache, kernels = vllm_config.parallel_config, vllm_config.cache_config, vllm_config.kernel_config
    return {
        "model": model_config.model, "revision": model_config.revision, "is_draft": is_draft,
        "config": _digest(model_config.hf_config.to_dict()), "model_impl": str(model_config.model_impl),
        "dtype": str(model_config.dtype), "quantization": model_config.quantization,
        "quantization_config": _digest(normalize_value(model_config.quantization_config)),
        "kv_cache_dtype": str(cache.cache_dtype), "kv_cache_dtype_skip_layers": sorted(cache.kv_cache_dtype_skip_layers),
        "moe_backend": str(kernels.moe_backend), "linear_backend": str(kernels.linear_backend),
        "linear_backend_per_quant": getattr(kernels, "linear_backend_per_quant", None) or {},
        "expert_parallel": parallel.enable_expert_parallel, "expert_placement": str(parallel.expert_placement_strategy),
        **_ranks(), "environment": _digest(vllm.envs.compile_factors()), "vllm": vllm.__version__, "torch": torch.__version__,
        "gpu": [torch.cuda.get_device_name(device), *torch.cuda.get_device_capability(device)]
        if device.type == "cuda" else None,
    }


# ---- layers that are given processed weights ----

# A layer whose tensors were processed by another engine has this left to do, by the class of its quantisation, in releases
# of vLLM that do not tell (0.25; later ones have supports_pre_processed_weights).


def _nothing(method: Any, layer: Any) -> None:
    pass


def _fp8(method: Any, layer: Any) -> None:
    if not hasattr(layer, "input_scale"):
        layer.input_scale = None


def _kv_cache_scales(method: Any, layer: Any) -> None:
    for name in ("q_scale", "k_scale", "v_scale", "prob_scale"):  # consumed: the buffers have their values
        if hasattr(layer, name):
            delattr(layer, name)
        setattr(layer, f"_{name}_float", getattr(layer, f"_{name}").item())


_LEFT_TO_DO: Dict[str, Callable[[Any, Any], None]] = {
    "linear.UnquantizedLinearMethod": _nothing,
    "vocab_parallel_embedding.UnquantizedEmbeddingMethod": _nothing,
    "fp8.Fp8LinearMethod": _fp8,
    "fp8.Fp8KVCacheMethod": _kv_cache_scales,
}


# Kernels that change nothing but the layer's tensors, and their own logical_output_size.
_FP8_KERNELS = ("CutlassFP8ScaledMMLinearKernel", "PerTensorTorchFP8ScaledMMLinearKernel",
                "ChannelWiseTorchFP8ScaledMMLinearKernel", "FlashInferFP8ScaledMMLinearKernel")


def _left_to_do(method: Any) -> Optional[Callable[[Any, Any], None]]:
    """None: such layers cannot take processed weights, as far as is known."""
    if hasattr(method, "fp8_linear") and type(method.fp8_linear).__name__ not in _FP8_KERNELS:
        return None
    kind = type(method)
    return _LEFT_TO_DO.get(f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}")


def _methods(model: Any) -> Iterator[Tuple[str, Any, Any]]:
    """(name, layer, its quantisation) of the layers that have one."""
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        if isinstance(method, QuantizeMethodBase):
            yield name, layer, method


def _check(model: Any) -> None:
    """ValueError: a layer cannot take processed weights."""
    for name, _, method in _methods(model):
        told = getattr(method, "supports_pre_processed_weights", None)
        if not (_left_to_do(method) if told is None else told):
            raise ValueError(f"--load-format gpubufd: layer {name} has {type(method).__name__}, which cannot take processed weights")


def _finish(model: Any, model_config: Any, device: Any) -> None:
    """Layers make their kernels, and change no weight."""
    from vllm.model_executor import utils

    with contextlib.ExitStack() as stack:
        if hasattr(utils, "weights_already_processed"):
            stack.enter_context(utils.weights_already_processed())
        else:
            for _, _, method in _methods(model):
                method.process_weights_after_loading = functools.partial(_left_to_do(method), method)
                stack.callback(method.__dict__.pop, "process_weights_after_loading", None)  # layers may share one
        process_weights_after_loading(model, model_config, device)
    for _, layer, method in _methods(model):
        kernel = getattr(method, "fp8_linear", None)
        if getattr(kernel, "logical_output_size", 0) is None:  # vLLM's flag leaves it out
            kernel.logical_output_size = layer.output_size_per_partition


def _own_buffers(model: Any) -> List[Tuple[Any, Any]]:
    """Gives the model buffers of its own: (its own, the published one) of each."""
    made: Dict[int, Tuple[Any, Any]] = {}
    for part in model.modules():
        for leaf, one in part._buffers.items():
            if one is not None and not one.is_meta:
                part._buffers[leaf] = made.setdefault(id(one), (one.clone(), one))[0]
    return list(made.values())


# ---- processed weights ----


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
        if getattr(model_config, "sleep_preserve_parameter_names", None):
            raise ValueError("--load-format gpubufd: sleep_preserve_parameter_names writes weights; all are kept without it")
        client, device = connected("vllm"), self._device(vllm_config)
        name, facts = self._wanted(vllm_config, model_config)
        sleeps = vllm_config.model_config.enable_sleep_mode

        def load() -> Any:
            model = self._plain().load_model(vllm_config, model_config, prefix)
            _check(model)
            return model

        def make() -> Any:
            with torch.device("meta"):
                model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
            _check(model)
            return model

        with set_default_torch_dtype(model_config.dtype):
            model, view = share_module(
                client, name, facts, load, make, device=device, view=self.view or sleeps, timeout=self.timeout,
                others=bool(self.name), pooled=sleeps, attributes=_attributes)
            buffers = _own_buffers(model)
            _finish(model, model_config, device)
        drop_unread(model)
        _shown[model] = _Shown(name, view, buffers)
        if sleeps and vllm_config.model_config.sleep_mode_backend == "cumem":  # the default, which does not know them
            vllm_config.model_config.sleep_mode_backend = "gpubufd"
        return model.eval()


def _attributes(model: Any) -> Dict[str, bool]:
    """Attributes that load_weights() has set at a draft model: an engine that maps it does not call that."""
    return {name: bool(getattr(model, name)) for name in SupportsEagleBase.__annotations__ if hasattr(model, name)}


def publish(
    model: Any, name: str, facts: Dict[str, Any], *, client: Optional[gpubufd.Client] = None, device: Any = None,
    **options: Any,
) -> gpubufd.Ref:
    """Publishes a loaded model's processed weights; with replace=True and a label as the next version for views."""
    return put_module(
        client or connected("vllm"), name, model, facts, device=device, attributes=_attributes(model), **options)


# ---- sleep ----


class GpubufdSleep(CuMemBackend):
    """The KV cache is discarded as ever; the weights are parked, and stay the daemon's."""

    def suspend(self, level: int = 1) -> None:
        for view in self._views():
            view.park()
        super().suspend(level)

    def resume(self, tags: Optional[List[str]] = None) -> None:
        self._state = "RESUMING"
        if tags is None or "weights" in tags:
            for view in self._views():
                view.resume()
        super().resume(tags)

    @staticmethod
    def _views() -> List[Any]:
        return [shown.view for shown in _shown.values() if shown.view is not None]

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        return True

    @classmethod
    def supports_durable_storage(cls) -> bool:
        return True


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

    def _mapped(self) -> Optional[_Shown]:
        return _shown.get(self.model)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self.client = gpubufd.connect(init_info.path)

    def start_weight_update(self) -> None:
        """Layers that have rearranged their weights take those of a checkpoint again."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        if self._mapped() is None:
            initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """They are rearranged anew, in the memory that the engine's graphs know."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        if self._mapped() is None:
            finalize_layerwise_reload(self.model, self.model_config)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if self.client is None:
            raise RuntimeError("there is no connection: call init_transfer_engine() first")
        mapped = self._mapped()
        if not update_info.name:
            if mapped is None or mapped.view is None:
                raise ValueError('update_info has no name: only an engine with {"view": true} shows its next version')
            mapped.view.switch(version=update_info.version, label=update_info.label)
            for own, published in mapped.buffers:
                own.copy_(published)
            return
        if mapped is not None:
            raise ValueError("this engine's weights are mapped, and cannot be written: publish() them, and use a view")
        state = gpubufd.torch.get_state_dict(
            self.client, update_info.name, version=update_info.version, label=update_info.label)
        self.model.load_weights(state.items())

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None:
        """vLLM 0.25 wants it to be there. Trainers publish: gpubufd.torch.put_state_dict()."""
        raise NotImplementedError(GpubufdTransfer.trainer_send_weights.__doc__)

    def shutdown(self) -> None:
        if self.client is not None:
            self.client.close()


def register() -> None:
    """For vLLM's plugins, which are called more than once: makes the load formats and the backends known."""
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import register_model_loader

    register_model_loader("gpubufd")(GpubufdLoader)
    register_model_loader("gpubufd-files")(GpubufdFilesLoader)
    with contextlib.suppress(ValueError):  # they are known
        WeightTransferEngineFactory.register_engine("gpubufd", GpubufdTransfer)
        SleepModeBackendFactory.register_backend("gpubufd", __name__, GpubufdSleep.__name__)
