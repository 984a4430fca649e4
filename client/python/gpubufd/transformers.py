"""transformers' from_pretrained() over shared memory: the first process reads a model's files, the others map them.

    import gpubufd.transformers
    from transformers import AutoModelForCausalLM

    model = gpubufd.transformers.from_pretrained(AutoModelForCausalLM, "/models/llama-8b", dtype="auto")

A weight that is used as the file has it (its dtype, whole, not converted) is the shared memory itself, and READ-ONLY:
for inference. Others are copies. device="cuda" loads the files into that GPU's memory; pass device_map the same.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

from transformers import modeling_utils

from .torch import _Device, safe_open


@contextlib.contextmanager
def reading(device: Optional[_Device] = None, **options: Any) -> Iterator[None]:
    """Have all of transformers' models in the block read safetensors files through gpubufd.torch.safe_open().

    The arguments are its options.
    """
    theirs = modeling_utils.safe_open

    def ours(filename: Any, framework: str = "pt", device: Any = "cpu", backend: Any = None) -> Any:
        return safe_open(filename, framework, asked if asked is not None else device, **options)

    asked = device
    modeling_utils.safe_open = ours
    try:
        yield
    finally:
        modeling_utils.safe_open = theirs


def from_pretrained(kind: Any, *arguments: Any, device: Optional[_Device] = None, **keywords: Any) -> Any:
    """Return kind.from_pretrained(…), with its files read through the daemon.

    `device`: where to load the files; None: on the host.
    """
    with reading(device):
        return kind.from_pretrained(*arguments, **keywords)
