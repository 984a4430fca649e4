"""transformers' from_pretrained() over shared memory: two processes have one copy of a model's weights.

It needs a daemon, PyTorch and transformers, and makes a small model of its own:

    python3 examples/python/transformers_model.py
"""

import multiprocessing
import tempfile

import transformers

import gpubufd.transformers


def use(path: str) -> None:
    model = gpubufd.transformers.from_pretrained(transformers.AutoModelForCausalLM, path, dtype="auto")
    client = gpubufd.connect()
    shared = [info for info in client.list() if path in info.name or info.name.startswith("safetensors")]
    print(f"{sum(one.numel() for one in model.parameters()):,} numbers, {len(shared)} object", flush=True)


def main() -> None:
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    with tempfile.TemporaryDirectory() as path:
        transformers.LlamaForCausalLM(config).save_pretrained(path)
        for _ in range(2):
            reader = multiprocessing.get_context("spawn").Process(target=use, args=(path,))
            reader.start()
            reader.join()


if __name__ == "__main__":
    main()
