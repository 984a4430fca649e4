"""The calls of gpubufd.rmm, to_cuda_core() and gpubufd.dask beside the stubs and sources in RAPIDS' wheels.

Their modules want the CUDA driver, so their text is read. test_cudf.py runs cuDF itself, and tests/gpu/rapids.py all of them.
"""

import ast
import importlib.metadata

import pytest


def text_of(distribution, ending):
    """The text of the file of an installed distribution whose path ends so."""
    try:
        files = importlib.metadata.files(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs {distribution}")
    return next(file for file in files if str(file).endswith(ending)).locate().read_text()


def parameters(text, name, owner=None):
    """The names of a function's parameters, of a method's if there is an owner."""
    nodes = ast.parse(text).body
    if owner:
        nodes = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == owner).body
    found = next(node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
    return [one.arg for one in found.args.posonlyargs + found.args.args + found.args.kwonlyargs]


def test_rmm_has_a_resource_of_callbacks():
    """mem_pool() makes it of take(size, stream) and give_back(address, size, stream), and makes it a device's."""
    stubs = text_of("rmm-cu13", "memory_resource/_memory_resource.pyi")
    assert parameters(stubs, "__init__", "CallbackMemoryResource") == ["self", "allocate_func", "deallocate_func"]
    assert "allocate_func: Callable[[int, Stream], int]" in stubs
    assert "deallocate_func: Callable[[int, int, Stream], None]" in stubs
    assert parameters(stubs, "get_per_device_resource") == ["device"]
    assert parameters(stubs, "set_per_device_resource") == ["device", "mr"]
    exported = text_of("rmm-cu13", "rmm/mr/__init__.py")
    for name in ("CallbackMemoryResource", "get_per_device_resource", "set_per_device_resource"):
        assert name in exported


def test_dask_cudf_registers_itself_where_dask_looks():
    entries = importlib.metadata.entry_points(group="dask.dataframe.backends")
    if not any(entry.name == "cudf" for entry in entries):
        pytest.skip("needs dask-cudf-cu13")
    assert "dask_cudf" in next(entry for entry in entries if entry.name == "cudf").value


def test_cuda_core_makes_a_buffer_of_a_handle():
    pytest.importorskip("cuda.core")
    from cuda.core import Buffer

    told = Buffer.from_handle.__doc__ or ""
    assert "owner" in told and "ptr" in told and "size" in told
