"""A small model as engines have theirs: tied weights, and a layer whose weights are turned and scaled once, for kernels."""

import pytest

torch = pytest.importorskip("torch")
import gpubufd.torch as gt  # noqa: E402


class Layer(torch.nn.Module):
    def __init__(self, quant_method):
        super().__init__()
        self.quant_method = quant_method
        self.weight = torch.nn.Parameter(torch.zeros(4, 6), requires_grad=False)
        self.input_scale = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.register_buffer("table", torch.arange(5.0), persistent=False)


class Model(torch.nn.Module):
    def __init__(self, quant_method):
        super().__init__()
        self.embed = torch.nn.Embedding(3, 6)
        self.layer = Layer(quant_method)
        self.head = torch.nn.Linear(6, 3, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.embed(x) @ self.layer.weight * self.layer.scale

    def load_weights(self, weights):
        found = dict(self.named_parameters())
        loaded = set()
        for name, tensor in weights:
            found[name].data.copy_(tensor)
            loaded.add(name)
        return loaded


def turn(layer):
    scale = layer.weight.abs().amax()
    layer.weight = torch.nn.Parameter((layer.weight.data / scale).t(), requires_grad=False)
    layer.register_parameter("scale", torch.nn.Parameter(scale, requires_grad=False))
    del layer.input_scale


def saved(place):
    """The directory of the model's files, which is made."""
    place.mkdir()
    gt.save_file({"embed.weight": torch.rand(3, 6), "layer.weight": torch.rand(4, 6), "layer.input_scale": torch.ones(1)},
                 place / "model.safetensors")
    return place


def over(there, *models, own_buffers=False):
    """Whether all models lie over the memory of a bundle, as they were processed, and compute the same."""
    start, size = there._buffer(0).pointer, there._buffer(0).nbytes
    x = torch.tensor([0, 2])
    for model in models:
        assert model.layer.weight.stride() == (1, 6) and not model.training
        assert model.head.weight is model.embed.weight  # still tied
        assert getattr(model.layer, "input_scale", None) is None  # as it was consumed
        assert all(start <= one.data_ptr() < start + size for one in model.parameters())
        assert all((start <= one.data_ptr() < start + size) != own_buffers for one in model.buffers())
        assert model.layer.table.tolist() == [0, 1, 2, 3, 4]
        assert torch.equal(model(x), models[0](x)) and float(model(x).abs().sum()) > 0
    return True
