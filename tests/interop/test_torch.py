"""PyTorch, JAX and safetensors: each dtype both ways, in place where that is promised, and files byte for byte."""

import conftest
import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

gpubufd = conftest.gpubufd
DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
          "float8_e8m0fnu"]


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


@pytest.mark.parametrize("name", DTYPES)
def test_pytorch_there_and_back(there, name):
    kind = getattr(torch, name)
    flat = torch.arange(24).to(kind) if name != "bool" else torch.arange(24) % 3 == 0
    cube = flat.reshape(2, 3, 4)
    for tensor in (flat, cube, cube[:, :, ::2], flat[:0], flat[0]):
        held = there(tensor)
        got = held.to_torch()
        assert got.dtype == kind and got.shape == tensor.shape and torch.equal(bits(got), bits(tensor))
        if tensor.numel():
            assert got.data_ptr() == held.buffers.values.pointer
        del got


@pytest.mark.parametrize("name", DTYPES)
def test_safetensors_write_and_read_the_same_files(at_daemon, tmp_path, name):
    safetensors = pytest.importorskip("safetensors.torch")
    import gpubufd.torch as gt

    kind = getattr(torch, name)
    given = {"a": torch.arange(24).to(kind).reshape(4, 6), "empty": torch.empty((0, 3), dtype=kind)}
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    try:
        safetensors.save_file(given, theirs, {"format": "pt"})
    except KeyError as error:
        pytest.skip(f"safetensors does not write {name}: {error}")
    gt.save_file(given, ours, {"format": "pt"})
    for one in (gt.load_file(theirs), safetensors.load_file(ours)):
        assert one.keys() == given.keys()
        for key, tensor in given.items():
            assert one[key].dtype == kind and one[key].shape == tensor.shape and torch.equal(bits(one[key]), bits(tensor))


@pytest.mark.parametrize("name", DTYPES)
def test_jax_there_and_back(there, name):
    jax = pytest.importorskip("jax")
    wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)  # else it has no numbers of 64 bits
    try:
        with jax.default_device(jax.devices("cpu")[0]):  # this daemon has no GPU, where there may be one
            array = (jax.numpy.arange(24).reshape(4, 6) % 7).astype(name)
            assert array.dtype == name
            for given in (array, array[:, ::2], array[:0], array[0, 0]):
                held = there(given)
                got = held.to_jax()
                assert got.dtype == given.dtype and got.shape == given.shape
                np.testing.assert_array_equal(np.asarray(got).view(bits_of(got)), np.asarray(given).view(bits_of(given)))
                del got, held
    finally:
        jax.config.update("jax_enable_x64", wide)


def bits_of(array):
    return f"u{array.dtype.itemsize}" if array.dtype.itemsize < 8 else array.dtype


def test_a_state_dict_published_again_is_known_by_what_its_tensors_are(at_daemon):
    import gpubufd.torch as gt

    client, w = at_daemon, torch.arange(12.0).reshape(3, 4)
    numbers = torch.arange(3) + 1j
    states = [{"w": w}, {"w": torch.nn.Parameter(w)}, {"w": w.t()}, {"w": w.view(torch.int32)}, {"w": w[1:]}, {"x": w},
              {"w": numbers}, {"w": numbers.conj()}, {"w": numbers.imag}, {"w": numbers.conj().imag}, {"w": w}]
    for state in states:
        for _ in range(2):
            gt.put_state_dict(client, "m", state, replace=True)
            found = gt.get_state_dict(client, "m")
            assert list(found) == list(state)
            assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in state.items())
    gt.put_state_dict(client, "m", {"w": w}, replace=True)
    known = gt._known
    w += 1
    gt.put_state_dict(client, "m", {"w": torch.nn.Parameter(w)}, replace=True)
    assert gt._known is known and torch.equal(gt.get_state_dict(client, "m")["w"], w)
    with pytest.raises(TypeError, match="'w': it is torch.sparse"):
        gt.put_state_dict(client, "m", {"w": w.to_sparse()}, replace=True)


def versions_of(client):
    """publish(n): version n of a bundle whose weights are n and biases n + 1."""
    def publish(value):
        client.put_bundle("module", {"weight": np.full((4, 4), value, "f4"), "bias": np.full(4, value + 1, "f4")}, own=True,
                          replace=True)

    return publish


def test_a_compiled_module_over_a_view_goes_on_with_the_next_version(client):
    from gpubufd.torch import follow

    publish = versions_of(client)
    publish(1)
    with follow(client, "module") as view:
        module = torch.nn.Linear(4, 4)
        module.load_state_dict(dict(view), assign=True)
        with torch.no_grad():
            compiled = torch.compile(module)
            assert compiled(torch.ones(4)).tolist() == [6] * 4
            address = module.weight.data_ptr()
            publish(2)
            assert compiled(torch.ones(4)).tolist() == [6] * 4
            assert view.switch() and module.weight.data_ptr() == address
            assert compiled(torch.ones(4)).tolist() == [11] * 4
        del module, compiled
    torch._dynamo.reset()


def test_jax_reads_a_view_and_leaves_it_alone_where_it_donates(client):
    jax = pytest.importorskip("jax")
    publish = versions_of(client)
    publish(1)
    with jax.default_device(jax.devices("cpu")[0]), client.follow("module") as view:
        array, held = view["weight"].to_jax(), view["weight"].to_numpy()
        assert array.unsafe_buffer_pointer() == held.ctypes.data, "it is a copy"
        total = jax.jit(lambda x: x.sum())
        assert total(array) == 16
        publish(2)
        view.switch()
        assert total(array) == 32
        more = jax.jit(lambda x: x + 1, donate_argnums=0)(array)
        assert more.ravel().tolist() == [3] * 16
        assert array.is_deleted(), "it was not donated"
        assert held.ravel().tolist() == [2] * 16  # the result has memory of its own
        del array, more
