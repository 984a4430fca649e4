"""Writes objects into files, and reads files as values to publish, by the libraries that own the formats.

Arrow's and Parquet files need pyarrow, arrays NumPy; lines of JSON need no package.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import decimal
import importlib
import json
import math
import os
import pathlib
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

from . import _frames, _progress, cuda
from ._layout import ARRAY, BUNDLE, BYTES, COLUMN, DATA, TABLE, a_kind

FilePath = Union[str, "os.PathLike[str]"]

SUFFIXES = {
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrows", ".parquet": "parquet",
    ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".npy": "npy", ".npz": "npz",
}
_CSV = "client.put(name, pandas.read_csv({path!r})) reads it, client[name].to_pandas().to_csv({path!r}) writes it"
WAYS = {
    ".csv": _CSV, ".tsv": _CSV,
    ".safetensors": "gpubufd.numpy.load_file({path!r}) reads it, save_file() writes it; so do gpubufd.torch's and jax's",
}
KIND = b"gpubufd.kind"  # in the metadata of a file's schema: what its only column was
ROWS = 8192  # of a table, read at a time to write lines


def _format_of(path: pathlib.Path, format: Optional[str]) -> str:
    if format is not None:
        if format not in SUFFIXES.values():
            raise ValueError(f"format is {format!r}: expected one of {', '.join(sorted(set(SUFFIXES.values())))}")
        return format
    suffix = path.suffix.lower()
    found = SUFFIXES.get(suffix)
    if found is None:
        if suffix in WAYS:
            way = WAYS[suffix].format(path=str(path))
            raise ValueError(f"{str(path)!r}: {way}; the command gpubufctl put NAME {str(path)!r} publishes it")
        raise ValueError(
            f"{str(path)!r} has no known suffix: expected one of {' '.join(SUFFIXES)}, or format=. Read another "
            "format with its own library, for example pandas.read_csv(path), and put() the result"
        )
    return found


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ModuleNotFoundError(
            f"{what} need the package {package}, which is not installed: pip install {package}", name=package
        ) from error


class Sink:
    """A file that is written in pieces."""

    def __init__(self, path: FilePath) -> None:
        self._file = open(path, "wb")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _progress.PIECE):
            _progress.copied(self._file.write(view[at : at + _progress.PIECE]))
        return len(view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.close()


def _apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs work that heeds no signal in a thread of its own, which goes on after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return work(*arguments)
    outcome: "concurrent.futures.Future[Any]" = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(work(*arguments))
        except BaseException as error:  # noqa: B902: raised by result()
            outcome.set_exception(error)

    threading.Thread(target=run, name="gpubufd-read").start()
    return outcome.result()


# ---- Arrow and Parquet ----


def _arrow_table(held: Any, pyarrow: Any) -> Any:
    if held.kind == TABLE:
        table = pyarrow.table(held)
        for name in _frames.numbered_levels(held):  # in a file, a dictionary is a category to pandas
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(at).chunk(0).dictionary_decode())
        return table
    made = pyarrow.table({held.name.rpartition("/")[2]: pyarrow.array(held)})
    return made.replace_schema_metadata({KIND: b"array" if held.kind == ARRAY else b"column"})


def _write_arrow(held: Any, path: str, format: str, compression: Optional[str]) -> None:
    pyarrow = _library("pyarrow", "Arrow's files")
    ipc = _library("pyarrow.ipc", "Arrow's files")
    table = _arrow_table(held, pyarrow)
    options = ipc.IpcWriteOptions(compression=compression)
    make = ipc.new_file if format == "arrow" else ipc.new_stream
    with Sink(path) as sink, make(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _write_parquet(held: Any, path: str, format: str, compression: Optional[str]) -> None:
    parquet = _library("pyarrow.parquet", "Parquet files")
    table = _arrow_table(held, _library("pyarrow", "Parquet files"))
    with Sink(path) as sink:
        parquet.write_table(table, sink, compression=compression or "snappy")


def _of_arrow_table(table: Any, pyarrow: Any) -> Any:
    """The value to be put: the table; of a file that save() made of a column or an array, its only column."""
    kind = (table.schema.metadata or {}).get(KIND)
    if any(pyarrow.types.is_dictionary(field.type) for field in table.schema):
        table = table.unify_dictionaries()
    if kind is None or table.num_columns != 1:
        return table
    if kind == b"array" and not table.column(0).null_count:
        return table.column(0).to_numpy()
    return table.column(0)


def _read_arrow(path: str, format: str) -> Any:
    pyarrow = _library("pyarrow", "Arrow's files")
    ipc = _library("pyarrow.ipc", "Arrow's files")
    source = pyarrow.memory_map(path)
    reader = ipc.open_file(source) if format == "arrow" else ipc.open_stream(source)
    return _of_arrow_table(reader.read_all(), pyarrow)


def _read_parquet(path: str, format: str) -> Any:
    parquet = _library("pyarrow.parquet", "Parquet files")
    return _of_arrow_table(_apart(parquet.read_table, path), _library("pyarrow", "Parquet files"))


# ---- lines of JSON ----


def _plain(value: Any) -> Any:
    """A value that JSON has no type for, as text."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)) or type(value).__module__ in ("numpy", "pandas"):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON: leave the column out, or save() as .arrow")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list) else value


def _lines(held: Any) -> Iterator[str]:
    if held.kind != TABLE:
        raise TypeError(f"{held.name!r} is no table: lines of JSON are a table's rows")
    for start in range(0, len(held), ROWS):
        for row in held[start : start + ROWS].tolist():
            try:
                yield json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
            except ValueError:  # NaN, for which JSON has null
                yield json.dumps(_without_nan(row), ensure_ascii=False, default=_plain)


def _write_lines(held: Any, path: str, format: str, compression: Optional[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in _lines(held))


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large for a float64")
    return value


def _read_lines(path: str, format: str) -> Dict[str, List[Any]]:
    rows = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_float=_finite)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected an object, one for each row")
            rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


# ---- NumPy ----


def _write_npy(held: Any, path: str, format: str, compression: Optional[str]) -> None:
    numpy = _library("numpy", "NumPy's files")
    if held.kind == TABLE:
        raise TypeError(f"{held.name!r} is a table, and a .npy file an array: save() it as .arrow or .parquet")
    with Sink(path) as file:
        numpy.save(file, held.to_numpy(), allow_pickle=False)


def _read_npy(path: str, format: str) -> Any:
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError(f"{path} is no .npy file")
    return _library("numpy", "NumPy's files").load(path, mmap_mode="r", allow_pickle=False)


def read_npz(path: FilePath) -> Dict[str, Any]:
    """The arrays of a .npz file by name. All are read, so that a damaged one is found before any is put."""
    numpy = _library("numpy", "NumPy's files")
    with numpy.load(path, allow_pickle=False) as file:
        if not hasattr(file, "files"):
            raise ValueError(f"{path} is no .npz file")
        return {name: file[name] for name in file.files}


def _refuse_npz(path: str, format: str) -> Any:
    raise ValueError(f"{path} may have several arrays: for name, array in numpy.load(path).items(): client.put(…)")


def _write_npz(held: Any, path: str, format: str, compression: Optional[str]) -> None:
    numpy = _library("numpy", "NumPy's files")
    parts = {name: held[name] for name in held.names} if held.kind == TABLE else {held.name.rpartition("/")[2]: held}
    for name, part in parts.items():
        if part.kind == COLUMN and part.null_count:
            raise TypeError(f"{name!r} has nulls, for which a .npz file has no place: write .arrow")
    with Sink(path) as file:
        numpy.savez(file, **{name: part.to_numpy() for name, part in parts.items()})


# ---- all of them ----

WRITERS: Dict[str, Callable[[Any, str, str, Optional[str]], None]] = {
    "arrow": _write_arrow, "arrows": _write_arrow, "parquet": _write_parquet, "jsonl": _write_lines, "npy": _write_npy,
    "npz": _write_npz,
}
READERS: Dict[str, Callable[[str, str], Any]] = {
    "arrow": _read_arrow, "arrows": _read_arrow, "parquet": _read_parquet, "jsonl": _read_lines, "npy": _read_npy,
    "npz": _refuse_npz,
}


def write(held: Any, path: FilePath, format: Optional[str], compression: Optional[str]) -> None:
    """Writes a file under a temporary name, and renames it when it is complete."""
    target = pathlib.Path(path)
    found = _format_of(target, format)
    if compression is not None and found in ("jsonl", "npy", "npz"):
        raise ValueError(f"compression is for Arrow's and Parquet files, not for {found}")
    if held.kind == BYTES:
        raise TypeError(f"{held.name!r} is bytes, and no table: pathlib.Path(…).write_bytes(client[…].tobytes())")
    if held.kind == COLUMN and found == "npy" and held.null_count:
        raise TypeError(f"{held.name!r} has nulls, for which a .npy file has no place: save() it as .arrow")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _progress.of(target.name):
            WRITERS[found](held.to_host(), str(part), found, compression)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def read(path: FilePath, format: Optional[str]) -> Any:
    """The content of a file, to be put."""
    os.stat(path)  # a file that is not there is told of before a library that is not
    found = _format_of(pathlib.Path(path), format)
    return READERS[found](os.fspath(path), found)


# ---- objects as files ----


def content(client: Any, name: str) -> memoryview:
    """The bytes of an object: the memory itself on the host, which it keeps; a copy of a GPU's. NotFound, TypeError."""
    held = client.get(name)
    if held.kind not in (ARRAY, BUNDLE, BYTES):
        raise TypeError(f"{name!r} is {a_kind(held)}, which is no file")
    memory = held._buffer(DATA)
    if held._ordinal < 0:
        return memoryview(memory).cast("B")
    held.wait_ready()
    return memoryview(cuda.read_bytes(memory.pointer, memory.nbytes, held._ordinal))
