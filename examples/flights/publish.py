#!/usr/bin/env python3
"""Publishes the flights as a table: publish.py [DEVICE [NAME]]. DEVICE is "host", "cuda:0" and so on; without
it the daemon's default. Then run server.mjs, in any other process."""

import pathlib
import sys

import gpubufd

HERE = pathlib.Path(__file__).resolve().parent
NAME = "flights-200k.arrow"


def find():
    """The file of the flights: in the repository, or beside this file if its directory was copied."""
    for path in (HERE.parent / "data" / NAME, HERE / NAME):
        if path.exists():
            return path
    sys.exit(f"publish.py: copy examples/data/{NAME} of the repository to {HERE}")


def read(path):
    """The columns of an Arrow file; without pyarrow by NumPy alone."""
    try:
        import pyarrow
    except ImportError:
        import arrow_file

        return arrow_file.read(path)
    with pyarrow.memory_map(str(path)) as file:
        return pyarrow.ipc.open_file(file).read_all()


def main():
    device, name = (sys.argv[1:] + [None, None])[:2]
    with gpubufd.connect() as client:
        ref = client.put(name or "flights", read(find()), device=device or None, replace=True)
        table = client.get(name or "flights")
        print(f"{name or 'flights'}: {len(table)} rows of {', '.join(table.names)} on {table.device}, version {ref.version}")


if __name__ == "__main__":
    main()
