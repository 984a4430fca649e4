"""The calls of gpubufd.rmm, to_cudf(), to_cuda_core() and gpubufd.dask beside the stubs and sources in RAPIDS' wheels.

Their modules want the CUDA driver and libraries of some gigabytes, so their text is read. With a GPU and RAPIDS
installed tests/gpu/rapids.py runs them.
"""

import ast
import importlib.metadata
import re

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


def test_pylibcudf_takes_arrow_in_place():
    stubs = text_of("pylibcudf-cu13", "pylibcudf/column.pyi")
    assert parameters(stubs, "from_arrow", "Column")[0] == "obj"
    source = text_of("pylibcudf-cu13", "pylibcudf/column.pyx")
    body = re.search(r"    def from_arrow\(.*?(?=\n    (?:cpdef|def|@))", source, re.S)[0]
    order = [body.index(f'hasattr(obj, "{one}")') for one in ("__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__")]
    assert order == sorted(order), "it asks for the GPU's memory first"
    assert "zero-copy construction for device arrays" in body and "from_column_view_of_arbitrary(" in body
    assert "__arrow_c_device_array__" in source.replace(body, ""), "and gives it"


@pytest.mark.parametrize("file,owner", [("core/series.py", "Series"), ("core/index.py", "Index")])
def test_cudf_gives_and_takes_columns_of_pylibcudf(file, owner):
    source = text_of("cudf-cu13", file)
    assert parameters(source, "to_pylibcudf", owner) == ["self"]
    assert parameters(source, "from_pylibcudf", owner)[:2] == ["cls", "col"]
    body = re.search(rf"\nclass {owner}\b.*", source, re.S)[0]
    assert re.search(r"def to_pylibcudf\(self\) -> tuple\[plc.Column, dict\]", body)  # _gpu.py takes the first of them


def test_cudf_has_what_frames_are_made_with():
    assert {"self", "data", "index"} <= set(parameters(text_of("cudf-cu13", "core/dataframe.py"), "__init__", "DataFrame"))
    named = text_of("cudf-cu13", "cudf/__init__.py")
    for name in ("DataFrame", "Series", "RangeIndex", "from_pandas"):
        assert name in named
    index = text_of("cudf-cu13", "core/index.py")
    assert parameters(index, "__init__", "RangeIndex")[1:4] == ["start", "stop", "step"]
    categories = text_of("cudf-cu13", "column/categorical.py")
    assert "codes" in categories and "categories" in categories


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
