"""safetensors' own tests, from its source distribution, with gpubufd's functions in the place of safetensors'.

Its modules of tests are imported as they are; then the names in them that gpubufd has are gpubufd's. A test in
DIFFERENT has to fail, with these words.
"""

import functools
import importlib.metadata
import importlib.util
import pathlib
import sys
import tempfile
import types
import unittest

import conftest
import pytest

safetensors = pytest.importorskip("safetensors.torch")
VERSION = importlib.metadata.version("safetensors")
HOME = pathlib.Path(sys.prefix) / "sources" / f"safetensors-{VERSION}" / "bindings" / "python" / "tests"
if not HOME.is_dir():
    pytest.skip(f"needs the source distribution of safetensors {VERSION}", allow_module_level=True)

import gpubufd.numpy  # noqa: E402
import gpubufd.torch  # noqa: E402

MODULES = ["test_simple", "test_pt_comparison", "test_pt_model", "test_pread_backend", "test_multithreaded", "test_handle"]
# The words that each test then fails with; docs/WEIGHTS.md says why.
ALIGNED = "^b'.* != b'"  # the head of a file is longer, so that tensors are aligned where they are mapped
ORDER = "test1.* != .*test2"  # tensors stay in the order that they are given in
NOT_REFUSED = " not raised"  # any order is made C order; tensors that share memory are written one by one
NO_PREFETCH = "no attribute 'prefetch'"
NO_GPU = "there is no CUDA driver"  # the file is loaded when it is opened
DIFFERENT = {
    "test_simple": {
        "test_serialization": ALIGNED, "test_serialization_metadata": ALIGNED, "test_serialization_no_big_endian": ALIGNED,
        "test_serialization_forces_alignment": ORDER, "test_serialization_order_invariant": ORDER,
        "test_get_correctly_dropped": "the object has been released", "test_file_not_found": r"\[Errno 2\] No such file",
        "test_numpy_slice": "index -6 is out of bounds for axis 1",
    },
    "test_pt_comparison": {
        "test_serialization": ALIGNED, "test_complex": ALIGNED, "test_in_memory": ALIGNED,
        "test_bogus": "tensor 'test': dict is no tensor", "test_sparse": "expected a dense one",
        "test_meta_tensor": "it is on the device meta", "test_cannot_serialize_a_non_contiguous_tensor": NOT_REFUSED,
        "test_cannot_serialize_shared": NOT_REFUSED,
    },
    "test_pt_model": {"test_save": ALIGNED, "test_failure": NOT_REFUSED, "test_workaround_non_contiguous": NOT_REFUSED},
    "test_pread_backend": {
        "test_get_tensor_meta_matches_header": "has no tensor 'nope'", "test_prefetch_requires_pt": NO_PREFETCH,
        "test_prefetch_requires_cuda": NO_PREFETCH, "test_prefetch_works_from_any_backend": NO_PREFETCH,
        "test_prefetch_plan_rejects_bad_entries": NO_GPU, "test_prefetch_rejects_unsupported_dtype": NO_GPU,
        "test_prefetch_device_overrides_the_handle": NO_GPU,
    },
}
# Of these gpubufd has nothing: they would hold safetensors against itself.
NOT_OURS = [
    "test_safetensor_error_module_is_importable", "test_exception", "test_pt_sf_save_model_overlapping_storage",
    "test_is_complete", "test_find_shared_tensors", "test_find_shared_non_shared_tensors", "test_end_ptr",
    "test_remove_duplicate_names", "test_fsspec", "test_fsspec_s3", "test_prefetch_loader_is_exported",
]


def safe_open(filename, framework, device="cpu", **options):
    ours = gpubufd.torch if framework == "pt" else gpubufd.numpy
    return ours.safe_open(filename, framework, device, evict="drop", **options)


def saved(tensors, metadata=None):
    """The bytes of a bundle that is put, got, and written."""
    with gpubufd.connect() as client, tempfile.TemporaryDirectory() as place:
        client.put_bundle("saved", tensors, metadata, replace=True)
        with client.get("saved") as bundle:
            gpubufd.numpy.save_file(bundle, f"{place}/x")
        client.delete("saved")
        return pathlib.Path(place, "x").read_bytes()


def loads(load_file):
    def load(content):
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "x").write_bytes(content)
            return load_file(f"{place}/x")

    return load


# By the module of safetensors: gpubufd's.
OURS = {"": {"SafetensorError": gpubufd.torch.SafetensorError, "safe_open": safe_open}}
for name, module in ((".numpy", gpubufd.numpy), (".torch", gpubufd.torch)):
    load = functools.partial(module.load_file, evict="drop")  # of many files that are read once
    OURS[name] = {"load_file": load, "save_file": module.save_file, "save": saved, "load": loads(load)}
for name in ("load_model", "save_model"):  # they find gpubufd's in their module
    theirs = getattr(safetensors, name)
    OURS[".torch"][name] = types.FunctionType(theirs.__code__, {**vars(safetensors), **OURS[".torch"]}, name, theirs.__defaults__)
    OURS[".torch"][name].__kwdefaults__ = theirs.__kwdefaults__


def take(module):
    """Imports a module of theirs. Its tests, by names for this one, which begin with the module's."""
    spec = importlib.util.spec_from_file_location(f"safetensors_{module}", HOME / f"{module}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    ours = {id(getattr(importlib.import_module(f"safetensors{of}"), name)): made
            for of, names in OURS.items() for name, made in names.items()}
    for name, value in list(vars(found).items()):
        setattr(found, name, ours.get(id(value), value))
    different, tests = dict(DIFFERENT.get(module, {})), {}
    for name, value in vars(found).items():
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            for test in [one for one in vars(value) if one.startswith("test")]:
                if test in NOT_OURS:
                    delattr(value, test)
                elif test in different:
                    setattr(value, test, conftest.differs(getattr(value, test), different.pop(test)))
            tests[f"{module}_{name}"] = value
        elif name.startswith("test") and callable(value) and name not in NOT_OURS:
            tests[f"{module}_{name}"] = value
    assert not different, f"{module} has no test {', '.join(different)}"
    return tests


for one in MODULES:
    globals().update(take(one))


@pytest.fixture(autouse=True)
def ours_is_there(at_daemon, tmp_path, monkeypatch):
    """Their tests write where they are."""
    (tmp_path / "tests" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
