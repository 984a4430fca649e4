"""vLLM takes its weights from gpubufd: a model loader, and a weight-transfer engine.

The loader: the first engine that starts reads the checkpoint's files and publishes them. The others, and restarted
ones, map them from the daemon's memory:

    vllm serve /models/llama-8b --load-format gpubufd
    vllm serve /models/llama-8b --load-format gpubufd --model-loader-extra-config '{"device": "cuda"}'

By default the files are in the host's memory, once for all engines and GPUs. With "device" they are in a GPU's memory,
where each engine copies them; this is for engines that start often.

The engine: a trainer publishes each step, and rollouts load it by name and version:

    gpubufd.torch.put_state_dict(client, "policy", model.state_dict(), replace=True, label="step-42")   # trainer
    {"name": "policy", "label": "step-42"}                                                              # update_info

register() makes both known to vLLM, which calls it in each of its processes if a package of yours has this entry point:

    [project.entry-points."vllm.general_plugins"]
    gpubufd = "gpubufd_vllm:register"

vLLM's layers rearrange weights after they are loaded, so that each engine computes with a copy of its own. The
interfaces are those of vLLM 0.33, with which the tests run it (docs/INTEROP.md); the trainer's half of a transfer engine is put_state_dict() itself.
"""

import dataclasses
import os
from typing import Any, Iterator, Optional, Tuple

import gpubufd
import gpubufd.torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


def checkpoint(directory: str) -> str:
    """The file of a model's directory that leads to all its weights. FileNotFoundError."""
    for name in (INDEX, SINGLE):
        if os.path.exists(os.path.join(directory, name)):
            return os.path.join(directory, name)
    raise FileNotFoundError(f"{directory} has neither {INDEX} nor {SINGLE}")


class GpubufdLoader(BaseModelLoader):
    """--load-format gpubufd: the files' tensors, mapped; the model's own code picks what its rank needs."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        extra = dict(load_config.model_loader_extra_config or {})
        self.device: str = extra.pop("device", "cpu")
        if extra:
            raise ValueError(f"model_loader_extra_config has {sorted(extra)}: expected only device")

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


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """`path`: the daemon's socket; None: where connect() looks."""

    path: Optional[str] = None


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """`name`: the published name; `version` or `label`: one of its versions, the newest without either."""

    name: str = ""
    version: Optional[int] = None
    label: Optional[str] = None


class GpubufdTransfer(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Weights by name: all tensors of one version, never half of two."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    client: Optional[gpubufd.Client] = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self.client = gpubufd.connect(init_info.path)

    def start_weight_update(self) -> None:
        """Layers that have rearranged their weights take those of a checkpoint again."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """They are rearranged anew, in the memory that the engine's graphs know."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if self.client is None:
            raise RuntimeError("there is no connection: call init_transfer_engine() first")
        state = gpubufd.torch.get_state_dict(
            self.client, update_info.name, version=update_info.version, label=update_info.label)
        self.model.load_weights(state.items())

    def shutdown(self) -> None:
        if self.client is not None:
            self.client.close()


def register() -> None:
    """For vLLM's plugins: makes the load format and the transfer backend "gpubufd" known."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import register_model_loader

    register_model_loader("gpubufd")(GpubufdLoader)
    WeightTransferEngineFactory.register_engine("gpubufd", GpubufdTransfer)
