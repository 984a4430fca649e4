"""--load-format gpubufd: SGLang's processed weights, loaded by the first engine and mapped by all.

The name is made of all that the layout depends on, which is compared as a whole, too: SGLang's own fingerprint for its weight cache
(model, revision, dtype, quantisation, ranks, PyTorch, the GPU's capability), and the files with sizes, inodes and times.
Quantisations that SGLang's weight cache refuses are refused. Extra config:

    {"name": "policy"}          a name of yours: of other weights, too, which are Mismatch if a fact differs
    {"timeout": 600}            seconds to wait for an engine that loads the same (3600)
"""

from typing import Any, Dict, Optional, Tuple

import torch
from gpubufd.torch.processed import (
    connected,
    drop_unread,
    extra_config,
    name_of,
    plain_config,
    published_bytes,
    share_module,
)
from sglang.srt.model_loader.loader import DefaultModelLoader, _get_quantization_config, _initialize_model
from sglang.srt.model_loader.utils import set_default_torch_dtype
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.weight_cache.ipc_loader import IpcModelLoader
from sglang.srt.weight_cache.protocol import (
    CacheConfig,
    check_ipc_quant_support,
    compute_env_stamp,
    hash_quant_config,
)

_FROM_PARALLEL = {  # a field of CacheConfig: the attribute of get_parallel()
    "ep_size": "moe_ep_size", **{name: name for name in (
        "tp_size tp_rank pp_size pp_rank dp_size moe_dp_size moe_dp_rank moe_ep_rank attn_dp_size enable_dp_lm_head "
        "attn_cp_size moe_dense_tp_size").split()}}


class GpubufdLoader(IpcModelLoader):
    """In the place of the loader that asks SGLang's weight cache."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        extra = extra_config(load_config, name=None, timeout=3600)
        self.name: Optional[str] = extra["name"]
        self.timeout = float(extra["timeout"])

    def _plain(self) -> Any:
        return DefaultModelLoader(plain_config(self.load_config))

    def _wanted(self, model_config: Any, device: Any) -> Tuple[str, Dict[str, Any]]:
        """(name, facts) of the processed weights. UnsupportedQuantForIPCError."""
        method, quantisation = self._resolve_engine_quant(model_config)
        check_ipc_quant_support(method, quantisation, where="gpubufd")
        parallel, architectures = get_parallel(), model_config.hf_config.architectures
        fingerprint = CacheConfig(
            model_path=model_config.model_path, model_arch=architectures[0] if architectures else "",
            moe_a2a_backend=get_exec().moe.moe_a2a_backend, quant_method=method,
            quant_config_hash=hash_quant_config(quantisation), dtype=str(model_config.dtype),
            revision=model_config.revision or "", **compute_env_stamp(),
            **{field: getattr(parallel, name) for field, name in _FROM_PARALLEL.items()})
        facts = {**fingerprint.to_dict(), "draft": self.load_config.draft_model_idx}
        return name_of("sglang", model_config.model_path, facts, device, self.name)

    def download_model(self, model_config: Any) -> None:
        self._plain().download_model(model_config)

    def load_model(self, *, model_config: Any, device_config: Any) -> Any:
        client, device = connected("sglang"), torch.device(device_config.device)
        name, facts = self._wanted(model_config, device)

        def load() -> Any:
            return self._plain().load_model(model_config=model_config, device_config=device_config)

        def make() -> Any:
            with set_default_torch_dtype(model_config.dtype), torch.device("meta"):
                return _initialize_model(
                    model_config, self.load_config, _get_quantization_config(model_config, self.load_config))

        # Bytes that were there before SGLang looked at how much memory is free; this engine's own are counted by that.
        self.preloaded_weights_bytes = published_bytes(client, name)
        model, _ = share_module(
            client, name, facts, load, make, device=device, timeout=self.timeout, others=bool(self.name))
        drop_unread(model)
        self._rebuild_stale_views(model)
        return model.eval()
