"""Objects as files of fsspec, which pandas and others open by name, and as the chunks of an array of Zarr.

It needs a daemon, fsspec, Zarr 3 and pandas:

    python3 examples/python/files_and_chunks.py
"""

import fsspec
import numpy as np
import pandas as pd
import zarr

import gpubufd
import gpubufd.fsspec
import gpubufd.zarr


def main() -> None:
    client = gpubufd.connect()
    pd.DataFrame({"city": ["Linz", "Graz"], "degrees": [21.5, 19.0]}).to_csv("gpubuf://example/weather.csv", index=False)
    print(pd.read_csv("gpubuf://example/weather.csv")["degrees"].sum())
    print([one["name"] for one in fsspec.filesystem("gpubuf").ls("example")])

    store = gpubufd.zarr.GpubufStore("example/heat")
    array = zarr.create_array(store, data=np.arange(10_000.0).reshape(100, 100), chunks=(50, 50), compressors=None)
    print(float(zarr.open_array(store, mode="r")[99, 99]), len(client.list("example/heat/c/")), "chunks", array.shape)
    client.delete("example/*")


if __name__ == "__main__":
    main()
