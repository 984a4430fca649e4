#!/usr/bin/env python3
"""gpubufd among RAPIDS' libraries on a real GPU: cuDF, pylibcudf, RMM, dask-cuDF, cuda.core, where they are installed.

    tests/gpu/rapids.py --daemon build/bin/gpubufd [--package build/python] [--only WORD]

tests/interop/test_rapids.py compares the calls with RAPIDS' own stubs; this script makes them. RMM's and cuda.core's checks have
run on an H200; cuDF's have not, since libcudf's wheel of 301 MB was not there.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))

import frameworks  # noqa: E402
from frameworks import check, equal, need, same_memory  # noqa: E402

frameworks.CHECKS.clear()
COLUMNS = {"i": [1, 2, 3, 4], "f": [0.5, None, 1.5, 2.5], "s": ["a", None, "äöü", ""]}


@check("cuDF reads columns in place, numbers, nulls and text, and holds the lease", on="gpu")
def cudf_reads(client, device):
    need("cudf")
    client.put("t", COLUMNS, device=device)
    table = client.get("t")
    frame = table.to_cudf()
    for name, values in COLUMNS.items():
        equal([None if one is None else one for one in frame[name].to_arrow().to_pylist()], values)
    series = table["i"].to_cudf()
    same_memory(series.to_pylibcudf()[0].data().ptr, table["i"])
    del table, frame
    assert client.leases("t"), "the lease ended under the Series"
    equal((series * 2).to_arrow().to_pylist(), [2, 4, 6, 8])
    del series
    assert not client.leases("t"), "the lease stayed"


@check("cuDF's frames, slices and categories are put", on="gpu")
def cudf_puts(client, device):
    cudf = need("cudf")
    frame = cudf.DataFrame(COLUMNS)
    frame["c"] = frame["s"].astype("category")
    client.put("t", frame, device=device)
    client.put("part", frame["f"][1:3], device=device)
    equal(client.get("part").to_host().tolist(), [None, 1.5])
    host = client.get("t").to_host()
    for name, values in {**COLUMNS, "c": COLUMNS["s"]}.items():
        equal(host[name].tolist(), values)


@check("RMM allocates in a pool, which is published in place", on="gpu")
def rmm_pool(client, device):
    need("rmm")
    cupy = need("cupy")
    import rmm.allocators.cupy

    import gpubufd.rmm

    cupy.cuda.set_allocator(rmm.allocators.cupy.rmm_cupy_allocator)
    try:
        pool = gpubufd.rmm.mem_pool(client, "pool", 64 << 20, device=device)
        with pool:
            x = cupy.arange(1000, dtype="f4")
            y = x.reshape(10, 100) * 2
        pool.publish({"x": x, "y": y})
        found = client.get("pool")
        equal(found["x"].copy_to_host(), range(1000))
        equal(found["y"].copy_to_host().ravel(), range(0, 2000, 2))
        same_memory(x.data.ptr, found["x"])
    finally:
        cupy.cuda.set_allocator()


@check("a collection of dask-cuDF is published and loaded", on="gpu")
def dask_frames(client, device):
    cudf, dask_cudf = need("cudf"), need("dask_cudf")
    import gpubufd.dask

    frame = cudf.DataFrame({"k": list("abab") * 5, "n": list(range(20))})
    gpubufd.dask.publish(dask_cudf.from_cudf(frame, npartitions=4), "frames", device=device)
    loaded = gpubufd.dask.load("frames")
    assert int(loaded["n"].sum().compute()) == 190
    del loaded
    gpubufd.dask.delete("frames")


@check("cuda.core has a Buffer over a column, which holds the lease", on="gpu")
def core_buffer(client, device):
    need("cuda.core")
    client.put("a", list(range(8)), device=device)
    column = client.get("a")
    buffer = column.to_cuda_core()
    same_memory(int(buffer.handle), column)
    assert buffer.size == 64
    del column
    assert client.leases("a")
    buffer.close()


if __name__ == "__main__":
    if "--device" not in sys.argv:
        sys.argv += ["--device", "cuda:0:8G"]
    sys.exit(frameworks.main())
