"""A process of weights.py: orders come as lines of JSON, [function, arguments], and so do answers.

Whoever prints something else does it on stderr.
"""

import gc
import importlib.util
import json
import os
import socket
import sys
import time
import traceback

from common import Skip, expect, mend_numba, need

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

KEPT = {}  # what is to stay from one order to the next


def start():
    """Imports and the CUDA context, which any process of PyTorch has before it loads weights."""
    global torch, gpubufd, gt
    mend_numba()
    import torch

    import gpubufd
    import gpubufd.torch as gt

    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    return torch.__version__


def client():
    if "client" not in KEPT:
        KEPT["client"] = gpubufd.connect(cache_bytes=64 << 30, cache_leases=False)  # two versions stay mapped; leases are counted
    return KEPT["client"]


def bits(tensor):
    """All bytes, to compare what has no comparison of its own."""
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat


def same(found, expected):
    expect(set(found) == set(expected), f"names: {sorted(set(found) ^ set(expected))[:5]}")
    for name, tensor in expected.items():
        other = found[name]
        expect((other.dtype, other.shape) == (tensor.dtype, tensor.shape),
               f"{name}: {other.dtype} {tuple(other.shape)}, expected {tensor.dtype} {tuple(tensor.shape)}")
        expect(torch.equal(bits(other).cpu(), bits(tensor).cpu()), f"{name}: other values")
    return len(expected)


def own(tensor):
    """A copy; by bytes where PyTorch cannot copy elements."""
    tensor = tensor.detach()
    if str(tensor.dtype).startswith(("torch.float8", "torch.float4")):
        return tensor.view(torch.uint8).clone().view(tensor.dtype)
    return tensor.clone()


def left_of(name):
    """How many leases on it there are, once what nobody refers to is gone."""
    gc.collect()
    return len(client().leases(name))


# ---- what comes back ----


def kinds(device):
    """Tensors of every dtype that safetensors has, and lying in every way."""
    state = {}
    for name in ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16",
                 "float32", "float64", "complex64", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
                 "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"):
        dtype = getattr(torch, name, None)
        if dtype is not None:
            size = dtype.itemsize
            raw = torch.arange(24 * size, dtype=torch.uint8, device=device) % (2 if name == "bool" else 251)
            state[name] = raw.view(dtype).reshape(2, 3, 4)
    matrix = torch.arange(12.0, device=device).reshape(3, 4)
    state.update({
        "scalar": torch.tensor(2.5, device=device),
        "bfloat16 scalar": torch.tensor(3, dtype=torch.bfloat16, device=device),
        "empty": torch.zeros((0, 4), device=device), "empty bool": torch.zeros(0, dtype=torch.bool, device=device),
        "turned": matrix.t(), "part": matrix[:, 1:3], "steps": matrix[::2],
        "wide": torch.ones(1, device=device).expand(5),
        "parameter": torch.nn.Parameter(matrix.clone()), "conjugate": torch.tensor([1 + 2j], device=device).conj(),
        "tied": matrix, "tied too": matrix, "odd": torch.arange(3, dtype=torch.uint8, device=device),
    })
    return state


def many_kinds(device):
    state = kinds(device)
    expected = {name: own(tensor) for name, tensor in state.items()}
    reference = gt.put_state_dict(client(), "kinds", state, replace=True)
    expect(reference.name == "kinds", "it is no Ref")
    found = gt.get_state_dict(client(), "kinds")
    same(found, expected)
    for name, tensor in found.items():
        expect(tensor.device.type == device, f"{name} is on {tensor.device}")
        expect(tensor.is_contiguous() and not tensor.requires_grad, f"{name} lies otherwise")
        expect(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size(),
               f"{name} has a storage of {tensor.untyped_storage().nbytes()} bytes")
    expect(found["tied"].data_ptr() == found["tied too"].data_ptr() != 0, "tied tensors are two")
    private = gt.get_state_dict(client(), "kinds", writable="copy")
    same(private, expected)
    for name, tensor in private.items():
        if tensor.numel() and tensor.dtype == torch.float32:
            tensor.add_(1)
    same(gt.get_state_dict(client(), "kinds"), expected)
    expect(private["tied"].data_ptr() == private["tied too"].data_ptr(), "copies of tied tensors are two")
    here = gt.get_state_dict(client(), "kinds", device="cpu")
    expect(all(tensor.device.type == "cpu" for tensor in here.values()), "not all were copied here")
    same(here, expected)
    del found
    expect(left_of("kinds") == 0, "a lease is left")
    for bad in ({"w": "text"}, {"w": torch.zeros(2, device="meta")}, {"w": torch.eye(2).to_sparse()}):
        try:
            gt.put_state_dict(client(), "bad", bad)
        except TypeError as error:
            expect("'w'" in str(error), str(error))
        else:
            raise AssertionError("what is no tensor was put")
    return len(expected)


def side_stream():
    """A tensor that a stream is still making when it is put."""
    stream = torch.cuda.Stream()
    made = torch.zeros(1 << 24, device="cuda")
    torch.cuda.synchronize()
    for turn in range(5):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            made.fill_(turn)
            gt.put_state_dict(client(), "streamed", {"w": made}, replace=True)
        expect(bool((gt.get_state_dict(client(), "streamed")["w"] == turn).all()), f"turn {turn}: older values")


def files(device, path):
    safetensors = need("safetensors.torch")
    whole = need("safetensors")
    state = {name: own(tensor) for name, tensor in kinds("cpu").items()}
    lacking = []
    for name in list(state):  # what this version of the package cannot write
        try:
            safetensors.save({name: state[name].contiguous()})
        except Exception:  # noqa: BLE001
            lacking.append(name)
    theirs = {name: tensor.contiguous() for name, tensor in state.items() if name not in lacking}
    safetensors.save_file(theirs, path, {"format": "pt"})
    expected = safetensors.load_file(path, device=device)
    before = client().stats()["methods"].get("create", {}).get("calls", 0)
    found = gt.load_file(path, device=device)
    same(found, expected)
    same(gt.load_file(path, device), expected)
    made = client().stats()["methods"]["create"]["calls"] - before
    expect(made == 1, f"{made} objects were made")
    same(gt.load_file(path, device=device, name="by name", client=client()), expected)
    private = gt.load_file(path, device=device, writable="copy")
    private["float32"].zero_()
    same(gt.load_file(path, device=device), expected)
    same(gt.load_file(path), safetensors.load_file(path))
    with gt.safe_open(path, framework="pt", device=device) as ours, whole.safe_open(path, "pt", device) as other:
        expect(sorted(ours.keys()) == sorted(other.keys()) and ours.metadata() == other.metadata(), "other keys")
        same({"w": ours.get_tensor("float32")}, {"w": other.get_tensor("float32")})
        a, b = ours.get_slice("float32"), other.get_slice("float32")
        expect(a.get_shape() == list(b.get_shape()) and a.get_dtype() == b.get_dtype(), "another slice")
        same({"w": a[:, 1:3]}, {"w": b[:, 1:3]})
    # The way back: what is written here is read there.
    gt.save_file({**state, "shared": state["tied"]}, path + ".ours", {"a": "b"})
    try:
        back = safetensors.load_file(path + ".ours")
    except Exception:  # noqa: BLE001: a dtype that it lacks
        gt.save_file(theirs, path + ".ours", {"a": "b"})
        back = safetensors.load_file(path + ".ours")
        same(back, theirs)
    else:
        same(back, {**state, "shared": state["tied"]})
    safetensors.save_file(gt.load_file(path, device=device), path + ".again")  # tensors of ours share no storage
    same(safetensors.load_file(path + ".again"), theirs)
    gt.save_file(gt.load_file(path, device=device), path + ".again")
    same(safetensors.load_file(path + ".again"), theirs)
    for name in list(client()):
        if name == "by name" or name.startswith("safetensors/"):
            client().delete(name)
    return lacking


def model_of(device):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(100, 32)
            self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
            self.norm = torch.nn.BatchNorm1d(32)
            self.head = torch.nn.Linear(32, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.norm(self.layers(self.embed(ids))))

    with torch.device(device):
        return Tied().eval()


def meta_model(device):
    torch.manual_seed(3)
    source = model_of(device)
    gt.put_state_dict(client(), "model", source.state_dict(), metadata={"step": 3}, replace=True)
    model = model_of("meta")
    state = gt.get_state_dict(client(), "model", expect={"step": 3})
    model.load_state_dict(state, assign=True)
    expect(model.embed.weight.data_ptr() == state["embed.weight"].data_ptr(), "the weight is a copy")
    expect(model.head.weight.data_ptr() == model.embed.weight.data_ptr(), "tied weights are two")
    ids = torch.arange(20, device=device)
    with torch.no_grad():
        expect(torch.equal(model(ids), source(ids)), "another result")
    # In place of another model's: copies, in its own memory.
    other = model_of(device)
    gt.get_state_dict(client(), "model", into=other.state_dict())
    with torch.no_grad():
        expect(torch.equal(other(ids), source(ids)), "another result after into=")
    import copy

    twin = copy.deepcopy(model)  # each tensor has a storage of its own, so that this copies no more than it needs
    expect(twin.embed.weight.data_ptr() != model.embed.weight.data_ptr(), "a copy that is none")


def mismatch(device):
    state = {"w": torch.ones(2, 3, device=device), "b": torch.zeros(3, device=device)}
    for step in range(3):
        gt.put_state_dict(client(), "versions", {name: tensor + step for name, tensor in state.items()},
                          metadata={"tp_rank": 0, "dtype": "float32"}, replace=True, label=f"step-{step}", keep=2)
    gt.get_state_dict(client(), "versions", expect={"tp_rank": 0, "dtype": "float32"})
    try:
        gt.get_state_dict(client(), "versions", expect={"tp_rank": 1, "dtype": "float32", "world": 2})
    except gt.Mismatch as error:
        expect(error.fields == {"tp_rank": (1, "0"), "world": (2, None)}, f"fields: {error.fields}")
    else:
        raise AssertionError("no Mismatch")
    old = gt.get_state_dict(client(), "versions", label="step-0")
    expect(float(old["w"].sum()) == 6.0, "it is not step 0")
    into = {"w": torch.zeros(2, 3, device=device), "b": torch.ones(3)}
    filled = gt.get_state_dict(client(), "versions", into=into)
    expect(filled["w"] is into["w"] and float(into["w"].sum()) == 18.0 and float(into["b"].sum()) == 6.0, "not filled")
    try:
        gt.get_state_dict(client(), "versions", into={"w": torch.zeros(3, 2), "x": torch.zeros(1)})
    except gt.Mismatch as error:
        expect(set(error.fields) == {"w", "x", "b"}, f"fields: {error.fields}")
    else:
        raise AssertionError("no Mismatch of tensors")


def put_ones(name, device):
    gt.put_state_dict(client(), name, {"w": torch.ones(1 << 20, device=device)}, replace=True)


def is_ones(name):
    return bool((gt.get_state_dict(client(), name)["w"] == 1).all())


def write_in_place(name):
    tensor = gt.get_state_dict(client(), name)["w"]
    try:
        tensor.zero_()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("the write went through")


# ---- other libraries ----


def jax_trees(kind, path):
    jax = need("jax")
    import numpy

    import gpubufd.jax as gj

    if kind == "gpu" and jax.default_backend() != "gpu":
        raise Skip("JAX sees no GPU")
    device = jax.devices(kind)[0]
    with jax.default_device(device):
        tree = {"layers": [{"kernel": jax.numpy.arange(4096.0).reshape(64, 64),
                            "bias": jax.numpy.ones(3, jax.numpy.bfloat16)},
                           {"kernel": jax.numpy.zeros((0, 3)), "bias": jax.numpy.array([True, False])}],
                "step": jax.numpy.int32(4), "f8": jax.numpy.ones((4, 4), jax.numpy.float8_e4m3fn),
                "z": jax.numpy.array([1 + 2j], "complex64")}
    where = "host" if kind == "cpu" else None
    gj.put_tree(client(), "tree", tree, metadata={"step": 4}, device=where, replace=True)
    found = gj.get_tree(client(), "tree", like=tree, expect={"step": 4})

    def equal(one, other):
        expect(one.dtype == other.dtype and one.shape == other.shape, f"{one.dtype} {one.shape}, {other.dtype}")
        expect(numpy.array_equal(numpy.asarray(one).view("u1"), numpy.asarray(other).view("u1"))
               if one.ndim and one.size else numpy.array_equal(one, other), f"other values: {one}")

    jax.tree_util.tree_map(equal, found, tree)
    flat = gj.get_tree(client(), "tree")
    expect("layers/0/kernel" in flat and len(flat) == 7, f"names: {list(flat)}")
    expect({next(iter(leaf.devices())) for leaf in flat.values()} == {device}, "elsewhere")
    bundle = client().get("tree")
    expect(flat["layers/0/kernel"].unsafe_buffer_pointer() == bundle["layers/0/kernel"].buffers.values.pointer, "a copy")
    result = jax.jit(lambda t: t["layers"][0]["kernel"].sum() + t["step"])(found)
    expect(float(result) == 8386564.0, f"{result}")
    try:
        gj.get_tree(client(), "tree", like={"step": tree["step"], "x": tree["z"]})
    except gj.Mismatch as error:
        expect("x" in error.fields, str(error))
    else:
        raise AssertionError("no Mismatch")
    gj.save_file(flat, path, {"a": "b"})
    again = gj.load_file(path, device=device)
    jax.tree_util.tree_map(equal, again, flat)
    flax = importlib.import_module("safetensors.flax") if importlib.util.find_spec("safetensors") else None
    if flax:
        try:
            theirs = flax.load_file(path)
        except Exception as error:  # noqa: BLE001: a dtype that it lacks
            print("safetensors.flax:", error, file=sys.stderr)
        else:
            jax.tree_util.tree_map(equal, again, theirs)
    with gj.safe_open(path, "flax", device) as f:
        expect(f.get_slice("layers/0/kernel")[1:].shape == (63, 64), "another slice")
    for name in list(client()):
        if name == "tree" or name.startswith("safetensors/"):
            client().delete(name)


# ---- figures ----


def make(specs, path):
    """The state dict on the GPU, and as a file that safetensors has written."""
    safetensors = need("safetensors.torch")
    torch.manual_seed(1)
    state = KEPT["state"] = {
        name: torch.empty(shape, dtype=getattr(torch, dtype), device="cuda").normal_(0, 0.02)
        for name, dtype, shape in specs}
    safetensors.save_file(state, path)
    return sum(tensor.nbytes for tensor in state.values())


def timed(work):
    torch.cuda.synchronize()
    begun = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - begun


def publish(name):
    """The state dict that make() has made."""
    gt.put_state_dict(client(), name, KEPT["state"], replace=True)


def pool(name):
    """A model that is made in a pool and published there; what it computes afterwards, and what is refused."""
    torch.manual_seed(7)
    with gt.mem_pool(client(), name, 256 << 20, device="cuda") as made:
        model = model_of("cuda")
        big = torch.empty(32 << 20, dtype=torch.uint8, device="cuda").fill_(3)
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            pass
        else:
            raise AssertionError("the pool gave more than it has")
    ids = torch.arange(20, device="cuda")
    outside = torch.ones(3, device="cuda")
    with torch.no_grad():
        before = model(ids)
    try:
        made.publish({"outside": outside})
    except ValueError as error:
        expect("'outside' does not lie in the pool" in str(error), str(error))
    else:
        raise AssertionError("a tensor of elsewhere was published")
    free = torch.cuda.mem_get_info()[0]
    seconds = timed(lambda: made.publish({**model.state_dict(), "big": big}, metadata={"rank": 0}))
    expect(free - torch.cuda.mem_get_info()[0] < 16 << 20, "publishing took memory")
    with torch.no_grad():
        expect(torch.equal(model(ids), before), "another result over read-only weights")
    state = gt.get_state_dict(client(), name, expect={"rank": 0})
    same(state, {**model.state_dict(), "big": big})
    expect(state["big"].data_ptr() == big.data_ptr(), "this process has it mapped twice")
    try:
        made.__enter__()
    except ValueError:
        pass
    else:
        raise AssertionError("what is published is given out")
    return seconds


def pool_state(name):
    """Another process reads what pool() has published."""
    state = gt.get_state_dict(client(), name)
    expect(bool((state["big"] == 3).all()), "other bytes")
    torch.manual_seed(7)
    model = model_of("cuda")
    expected = model.state_dict()
    same({key: state[key] for key in expected}, expected)
    return len(state)


def pool_written(name):
    """A pool's maker cannot write what it has published; its context is lost then."""
    with gt.mem_pool(client(), name, 1 << 30, device="cuda") as made:  # a segment of its own
        w = torch.ones(1 << 20, device="cuda")
    made.publish({"w": w})
    try:
        w.zero_()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("the write went through")


def pools_come_and_go(name):
    """The device's account after pools whose tensors are gone: in bytes."""
    for step in range(5):
        with gt.mem_pool(client(), name, 64 << 20, device="cuda", replace=True) as made:
            w = torch.full((1 << 20,), float(step), device="cuda")
        if step % 2:
            made.publish({"w": w})
        else:
            del w
        del made
        w = None
        gc.collect()
        torch.cuda.empty_cache()
        expect(left_of(name) == 0, f"step {step}: a lease is left")
    expect(float(gt.get_state_dict(client(), name)["w"][0]) == 3.0, "another version")
    client().delete(name)


def get(name):
    """(connect, until all tensors are there) in seconds."""
    begun = time.monotonic()
    client()
    connected = time.monotonic()
    KEPT["state"] = gt.get_state_dict(client(), name)
    return connected - begun, time.monotonic() - connected


def equal_to(path):
    from safetensors import safe_open

    with safe_open(path, "pt", "cuda") as f:
        for name in f.keys():
            expect(torch.equal(KEPT["state"][name], f.get_tensor(name)), f"{name}: other values")
        return len(list(f.keys()))


def peer_safetensors(path):
    from safetensors.torch import load_file

    return timed(lambda: KEPT.update(state=load_file(path, device="cuda")))


def peer_cache(path, wish):
    """Seconds until all tensors are usable, from a daemon of tests/bench/weight_cache.py."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
    import weight_cache

    connection = socket.socket(socket.AF_UNIX)
    begun = time.monotonic()
    connection.connect(path)
    connection.sendall(wish.encode())
    found = weight_cache.receive(connection)
    KEPT["state"] = weight_cache.views(*found) if wish == "flat" else found
    seconds = time.monotonic() - begun
    expect(all(float(tensor.flatten()[0]) != 0 for tensor in list(KEPT["state"].values())[:3]), "no content")
    return seconds


def free():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def matmul(name):
    """The speed over mapped weights, as a part of that over own memory."""
    mapped = next(t for t in KEPT["state"].values() if t.shape == (14336, 4096))
    own = mapped.clone()
    x = torch.randn(4096, 512, dtype=mapped.dtype, device="cuda")
    for tensor in (mapped, own):
        timed(lambda: [tensor @ x for _ in range(20)])
    pairs = [(timed(lambda: [mapped @ x for _ in range(200)]), timed(lambda: [own @ x for _ in range(200)]))
             for _ in range(7)]
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    return ratios[3]


def train(name, steps):
    """Publishes steps. ([version, time of the seal], peak of the account in versions, steps)"""
    state = {f"w{i}": torch.zeros(1 << 22, device="cuda") for i in range(8)}
    size = sum(tensor.nbytes for tensor in state.values())
    base = used()
    sealed, peak = [], 0
    for step in range(steps):
        for tensor in state.values():
            tensor.fill_(step)
        reference = gt.put_state_dict(client(), name, state, replace=True, label=f"step-{step}")
        sealed.append((reference.version, time.monotonic()))
        peak = max(peak, used() - base)
        end = time.monotonic() + 30
        while {lease["version"] for lease in client().leases(name)} != {reference.version}:
            expect(time.monotonic() < end, f"the reader does not follow: {client().leases(name)}")
            time.sleep(0.0002)  # until the reader has this one, and no other
    gt.put_state_dict(client(), name, state, replace=True, label="end")
    return sealed, peak / size, steps


def used():
    return sum(device["used"] for device in client().devices() if device["id"] != "host")


def follow(name):
    """Follows a name's versions to the one labelled "end". (seen, mixed, {version: time of its first kernel's end})"""
    seen, mixed, times = 0, 0, {}
    for info in client().versions(name, timeout=30):
        try:
            state = gt.get_state_dict(client(), name, version=info.version)
        except (gpubufd.NotFound, gpubufd.Stale):
            continue
        one = state["w0"][0].item()
        times[info.version] = time.monotonic()
        values = {one} | {float(tensor[i].item()) for i, tensor in enumerate(state.values())}
        seen, mixed = seen + 1, mixed + (len(values) > 1)
        if info.label == "end":
            break
    return seen, mixed, times


def publish_small(name, value):
    state = {f"w{i}": torch.full((1 << 20,), float(value), device="cuda") for i in range(20)}
    gt.put_state_dict(client(), name, state, replace=True)


def publish_for_ever(name):
    for value in range(1 << 30):
        publish_small(name, value)


def all_same(name):
    state = gt.get_state_dict(client(), name)
    return len({float(value) for tensor in state.values() for value in (tensor.min(), tensor.max())}) == 1


def main(functions):
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            answer = {"result": functions[method](*arguments)}
        except Skip as why:
            answer = {"skip": str(why)}
        except Exception as error:  # noqa: BLE001: the others go on
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        OUT.write(json.dumps(answer) + "\n")
        OUT.flush()


if __name__ == "__main__":
    main(globals())
