"""SGLang takes its weights from gpubufd: a loader of processed weights, and a load format for new ones.

pip install gpubufd-sglang makes the loader known to SGLang, by its entry point:

    python -m sglang.launch_server --model-path /models/llama-8b --load-format gpubufd

The first engine loads, quantises and lays out, as with --load-format auto, and publishes the result, on its GPU. It and
all others map that, read-only, and keep no copy (gpubufd_sglang_loader says more).

New weights: a trainer publishes them, and every rank of an engine loads them by name and version into weights of its own:

    python -m sglang.launch_server --model-path /models/llama-8b --load-format dummy \\
        --custom-weight-loader gpubufd_sglang.load

    reference = gpubufd.torch.put_state_dict(client, "policy", model.state_dict(), replace=True)     # trainer
    engine.begin_weight_update()
    engine.update_weights_from_tensor(gpubufd_sglang.named(reference), load_format="gpubufd_sglang.load")
    engine.end_weight_update()       # layers rearrange their new weights

The engine gets a tensor of one number, the version, under the name of the published object. With
`--load-format dummy` a server begins without reading a file, and gets its first weights in the same way. The interfaces
are those of SGLang 0.5.23.
"""

from typing import Any, Iterable, List, Tuple

import torch

import gpubufd
import gpubufd.torch
from gpubufd.torch.processed import connected


def named(reference: gpubufd.Ref) -> List[Tuple[str, Any]]:
    """The argument of update_weights_from_tensor() for the result of put_state_dict()."""
    return [(reference.name, torch.tensor(reference.version, dtype=torch.int64))]


def load(model: Any, named_tensors: Iterable[Tuple[str, Any]]) -> None:
    """The load format: called in each rank with its model."""
    for name, version in named_tensors:
        state = gpubufd.torch.get_state_dict(connected("sglang"), name, version=int(version.item()))
        model.load_weights(state.items())


def register() -> None:
    """For SGLang's plugins: makes --load-format gpubufd known, a name that becomes the loader's class."""
    from sglang.srt.arg_groups.choices import LOAD_FORMAT_CHOICES, add_load_format_choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def verify(theirs: Any, config: Any) -> None:
        if config.load_format != "gpubufd":
            theirs(config)
            return
        from gpubufd_sglang_loader import GpubufdLoader

        config.load_format = GpubufdLoader

    if "gpubufd" not in LOAD_FORMAT_CHOICES:
        add_load_format_choices(["gpubufd"])
        HookRegistry.register("sglang.srt.configs.load_config.LoadConfig._verify_load_format", verify, HookType.AROUND)
