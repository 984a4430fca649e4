#!/usr/bin/env python3
"""A cache of the columns of files that fills itself: column_cache.py DIRECTORY [--readers N]

One process provides the columns of the files in a directory (.arrow with pyarrow, .npy, .csv); others read them by name,
loaded or not. A column is loaded once, when the first reader waits for it. From then on it lies in shared memory, until
memory is short and it is the least recently used one.
"""

import argparse
import concurrent.futures
import csv
import multiprocessing
import os
import pathlib
import threading
from typing import Any, Counter, Dict, List, Sequence, Tuple

import numpy as np

import gpubufd

PREFIX = "columns/"
PATIENCE = 60.0  # seconds
PUT: Dict[str, Any] = {"evict": "drop"}


class Files:
    """Reads columns, "columns/FILE/COLUMN", of the files in a directory; "columns/FILE" is the list of their names."""

    def __init__(self, client: gpubufd.Client, directory: str):
        self.client = client
        self.directory = pathlib.Path(directory).resolve()
        self.loads: "Counter[str]" = Counter()
        self._lock = threading.Lock()

    def load(self, name: str) -> Any:
        file, _, column = name[len(PREFIX) :].partition("/")
        path = self.directory / file
        if path.parent != self.directory or file.startswith("."):
            raise LookupError(f"{file!r} is no file of {self.directory}")
        names, read = READERS[path.suffix](path) if path.suffix in READERS else no_reader(path)
        if column and column not in names:
            raise LookupError(f"{file} has no column {column!r}, but {', '.join(names)}")
        if not column:
            return names
        if path.suffix in WHOLE:
            self.fill(file, names, read)
            return None  # the name is there: fill() has published it
        with self._lock:
            self.loads[name] += 1
        return read(column)

    def fill(self, file: str, names: List[str], read: Any) -> None:
        """Publishes all columns of a file that is read as a whole: who waits for another one of them finds it."""
        with self._lock:  # one thread reads, and the others have nothing left to do
            absent = [name for name in names if f"{PREFIX}{file}/{name}" not in self.client]
            columns = read() if absent else {}
            for name in absent:
                self.loads[f"{PREFIX}{file}/{name}"] += 1
                self.client.put(f"{PREFIX}{file}/{name}", columns[name], **PUT)


def no_reader(path: pathlib.Path) -> Any:
    raise LookupError(f"{path.name}: expected a file of one of {', '.join(READERS)}")


def from_arrow(path: pathlib.Path) -> Tuple[List[str], Any]:
    import pyarrow

    table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
    return table.column_names, lambda column: table[column].combine_chunks()


def from_npy(path: pathlib.Path) -> Tuple[List[str], Any]:
    return ["values"], lambda _: np.load(path)


def from_csv(path: pathlib.Path) -> Tuple[List[str], Any]:
    with open(path, newline="", encoding="utf-8") as file:
        names = next(csv.reader(file))

    def read() -> Dict[str, Any]:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {name: numbers([row[name] or None for row in rows]) for name in names}

    return names, read


def numbers(texts: Sequence[Any]) -> List[Any]:
    """The texts as numbers, if they all are; None stays None."""
    try:
        return [None if text is None else float(text) for text in texts]
    except ValueError:
        return list(texts)


WHOLE = {".csv"}  # one read gives all columns
READERS = {".arrow": from_arrow, ".npy": from_npy, ".csv": from_csv}


def read_all(files: List[str]) -> Tuple[int, int, float]:
    """Opens every column of every file, as any reader would; (columns, elements, sum of the numbers)."""
    opened, elements, total = 0, 0, 0.0
    with gpubufd.connect() as client:
        for file in files:
            for name in client.get(PREFIX + file, timeout=PATIENCE).tolist():
                with client.get(f"{PREFIX}{file}/{name}", timeout=PATIENCE) as column:
                    opened += 1
                    elements += len(column)
                    values = column.to_numpy() if isinstance(column, gpubufd.Array) else column.tolist()
                    total += sum(float(x) for x in values if isinstance(x, float) and x == x)
    return opened, elements, total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--readers", type=int, default=4)
    options = parser.parse_args()

    files = sorted(name for name in os.listdir(options.directory) if pathlib.Path(name).suffix in READERS)
    with gpubufd.connect() as client:
        cache = Files(client, options.directory)
        client.provide(PREFIX, cache.load, **PUT)  # until the client ends
        # No fork: a connection belongs to the process that made it.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.readers, mp_context=context) as pool:
            results = list(pool.map(read_all, [files] * options.readers))
    opened, elements, total = results[0]
    assert all(result == results[0] for result in results)
    loads = +cache.loads
    print(f"{options.readers} processes: {opened} columns of {len(files)} files, {elements:,} elements, sum {total:.6g}")
    print(f"{sum(loads.values())} loads of {len(loads)} columns, at most {max(loads.values())} of one")


if __name__ == "__main__":
    main()
