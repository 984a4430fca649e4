"""An engine of serve.py, a process of its own: orders come as lines of JSON, [function, arguments], and so do answers."""

import gc
import json
import os
import random
import signal
import socket
import sys
import time

import weights_worker

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine's steps in this process, in the same order each time
LOADS = []  # of each load of weights: {"loader", "seconds", "bytes": of the GPU that are taken, "own": by PyTorch in this process}
KEPT = weights_worker.KEPT


def start():
    """Imports what every engine needs. No context on the GPU: forked processes could not use it."""
    import torch
    import vllm
    from vllm.model_executor.model_loader import base_loader
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # gpubufd-vllm, by its entry point
    import gpubufd_vllm
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()  # which imports vLLM once more

    if not torch.cuda.is_available():
        on_the_host()
    for loader in (base_loader.BaseModelLoader, gpubufd_vllm.GpubufdLoader):
        measure(loader)
    wanted = gpubufd_vllm.GpubufdLoader._wanted
    # Of before the load, which changes the configuration that they are made of.
    gpubufd_vllm.GpubufdLoader._wanted = lambda *given: KEPT.setdefault("wanted", wanted(*given))
    return {"vllm": vllm.__version__, "torch": torch.__version__}


def fork_engines(path):
    """Serves at a socket: each connection is a child of this process, which has imported all, and takes orders."""
    start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(16)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.stdin, weights_worker.OUT = connection.makefile("r"), connection.makefile("w")
        log = os.open(sys.stdin.readline().strip(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        weights_worker.main(globals())
        os._exit(0)


def pid():
    return os.getpid()


def at(path):
    os.environ["GPUBUFD_SOCKET"] = path


def on_the_host():
    """A rehearsal with vLLM's build for CPUs, which would lay the weights out where no tensor of the model shows it."""
    import gpubufd_vllm
    import torch
    from vllm.model_executor.layers import utils

    def linear(_, layer):
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: linear(None, layer)
    for name in ("linear.UnquantizedLinearMethod", "vocab_parallel_embedding.UnquantizedEmbeddingMethod"):
        gpubufd_vllm._LEFT_TO_DO[name] = linear


def allocated():
    """Bytes of the GPU that are in use, by all processes."""
    import torch

    if not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def take_workspace():
    """Layers of FP8 load DeepGEMM, which takes a workspace of 32 MiB whatever the model: no weight."""
    import torch
    from vllm.utils import deep_gemm

    if torch.cuda.is_available():
        deep_gemm._lazy_init()


def measure(loader):
    load = loader.load_model

    def load_model(self, *arguments, **keywords):
        import torch

        take_workspace()
        before, own, begun = allocated(), torch.cuda.memory_reserved(), time.monotonic()
        model = load(self, *arguments, **keywords)
        LOADS.append({"loader": type(self).__name__, "bytes": allocated() - before, "seconds": time.monotonic() - begun,
                      "own": torch.cuda.memory_reserved() - own})
        return model

    loader.load_model = load_model


def load(model, options):
    """Makes the engine; how long its start and its weights (seconds) took. `options`: of vLLM's LLM."""
    import torch
    from vllm import LLM

    begun = time.monotonic()
    allocated()  # makes a context
    given = dict(model=model, skip_tokenizer_init=True, max_model_len=256, max_num_seqs=256, seed=0, enforce_eager=True,
                 enable_prefix_caching=False, gpu_memory_utilization=0.2, kv_cache_memory_bytes=1 << 30)
    given.update(options)
    if not torch.cuda.is_available():
        for name in ("gpu_memory_utilization", "enable_sleep_mode", "compilation_config"):
            given.pop(name, None)
    KEPT["llm"] = LLM(**given)
    return {"start": time.monotonic() - begun, **LOADS[-1]}


def prompts(count):
    rng = random.Random(7)
    return [{"prompt_token_ids": [rng.randrange(3, 1000) for _ in range(rng.randrange(4, 60))]} for _ in range(count)]


def tokens(count, temperature, length=16):
    """The tokens that follow `count` prompts."""
    from vllm import SamplingParams

    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=length, ignore_eos=True, detokenize=False)
              for i in range(count)]
    return [list(out.outputs[0].token_ids) for out in KEPT["llm"].generate(prompts(count), params, use_tqdm=False)]


def next_token():
    """Seconds until there is a token of a new prompt."""
    begun = time.monotonic()
    tokens(1, 0, 1)
    return time.monotonic() - begun


def model():
    return KEPT["llm"].apply_model(lambda model: model)[0]


def name():
    """The object that this engine's weights lie in."""
    import gpubufd_vllm

    return gpubufd_vllm._shown[model()].name


def key():
    """(name, facts) of the weights that this engine shows, as its loader has made them."""
    return KEPT["wanted"]


def publish(name, facts, label):
    import gpubufd_vllm

    return gpubufd_vllm.publish(model(), name, facts, device=next(model().parameters()).device, replace=True, label=label, keep=2).version


def switch(label):
    """By vLLM's own calls for new weights; how long they took."""
    llm = KEPT["llm"]
    if not KEPT.get("transfer"):
        llm.init_weight_transfer_engine({"init_info": {}})
        KEPT["transfer"] = True
    begun = time.monotonic()
    llm.start_weight_update()
    llm.update_weights({"update_info": {"label": label}})
    llm.finish_weight_update()
    return time.monotonic() - begun


def sleep(level):
    begun, before = time.monotonic(), allocated()
    KEPT["llm"].sleep(level)
    return {"seconds": time.monotonic() - begun, "freed": before - allocated()}


def wake(tags=None):
    begun = time.monotonic()
    KEPT["llm"].wake_up(tags)
    return time.monotonic() - begun


def parked():
    import gpubufd_vllm

    return [shown.view.parked for shown in gpubufd_vllm._shown.values() if shown.view is not None]


def write():
    """An operation in place on a weight: what it says."""
    import torch

    try:
        next(iter(model().parameters())).data.add_(1)
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "nothing"


def end():
    KEPT.pop("llm", None)
    gc.collect()


# ---- checkpoints ----

SIZES = {"small": (64, 2, 192, 1024), "100m": (1024, 8, 3072, 16384), "16g": (4096, 36, 14336, 32768)}


def checkpoint(place, size, seed, fp8=False):
    """Writes a Llama of random weights; its bytes."""
    import torch

    hidden, layers, inner, vocabulary = SIZES[size]
    heads = max(2, hidden // 64)
    kv = max(1, heads // 4) * 64 if hidden > 64 else 64
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv // 64, head_dim=64,
        vocab_size=vocabulary, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
        tie_word_embeddings=False, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
    if fp8:
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(seed)
    state = {}

    def random_matrix(name, rows, columns, scale, plain=False):
        made = (torch.randn(rows, columns, generator=generator, device=device) * scale)
        if fp8 and not plain:
            top = made.abs().max() / 448
            state[name + ".weight_scale"] = top.float()
            made = (made / top).to(torch.float8_e4m3fn)
        state[name + ".weight"] = made if made.dtype == torch.float8_e4m3fn else made.to(torch.bfloat16)

    random_matrix("model.embed_tokens", vocabulary, hidden, 1.0, plain=True)
    random_matrix("lm_head", vocabulary, hidden, 0.2, plain=True)
    for i in range(layers):
        at = f"model.layers.{i}."
        for part, rows in (("q", heads * 64), ("k", kv), ("v", kv)):
            random_matrix(f"{at}self_attn.{part}_proj", rows, hidden, hidden ** -0.5)
        random_matrix(f"{at}self_attn.o_proj", hidden, heads * 64, (heads * 64) ** -0.5)
        for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            random_matrix(f"{at}mlp.{part}_proj", *shape, shape[1] ** -0.5)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            state[f"{at}{norm}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    state["model.norm.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "config.json"), "w") as file:
        json.dump(config, file)
    return save(state, os.path.join(place, "model.safetensors"))


def save(state, path):
    """As safetensors' save_file(), from the GPU straight into the file, which takes a third of the time."""
    import torch

    names = {torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3", torch.float32: "F32"}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, one in state.items():
        header[name] = {"dtype": names[one.dtype], "shape": list(one.shape), "data_offsets": [end, end + one.nbytes]}
        end += one.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    whole = torch.from_file(path, shared=True, size=8 + len(text) + end, dtype=torch.uint8)[8 + len(text):]
    for name, one in state.items():
        begin, end = header[name]["data_offsets"]
        whole[begin:end].copy_(one.reshape(-1).view(torch.uint8))
    return end


if __name__ == "__main__":
    if len(sys.argv) > 1:
        fork_engines(sys.argv[1])
    weights_worker.main(globals())
