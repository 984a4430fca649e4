"""Saves objects as files, and publishes them again: before a reboot, or for another machine.

    python3 examples/python/snapshot.py save DIR [NAMES]
    python3 examples/python/snapshot.py load DIR

NAMES: a prefix, or a pattern such as 'sales/*'; all objects without it. Tables and columns become files of Arrow, arrays
.npy, bundles .safetensors, bytes files as they are; index.json has their names and options. Older versions, live objects
and streams are left out: save() says which. The directory takes its name when all of it is written. Needs NumPy and
pyarrow.
"""

import json
import os
import pathlib
import sys
from typing import Any, Dict

import gpubufd
import gpubufd.numpy


def write(client: gpubufd.Client, held: Any, path: pathlib.Path) -> str:
    """Writes one object; returns the file's name."""
    if isinstance(held, gpubufd.Bytes):
        path.write_bytes(held.tobytes())
        return path.name
    if isinstance(held, gpubufd.Bundle):
        file = path.with_suffix(".safetensors")
        gpubufd.numpy.save_file(held, file)
        return file.name
    file = path.with_suffix(".npy" if isinstance(held, gpubufd.Array) else ".arrow")
    client.save(held.name, file)
    return file.name


def save(client: gpubufd.Client, directory: pathlib.Path, names: str) -> int:
    made = directory.with_name(f".{directory.name}.{os.getpid()}")
    made.mkdir(mode=0o700)
    index, left = [], 0
    for number, info in enumerate(client.list(names)):
        try:
            if info.state != "sealed":
                raise TypeError(f"it is {info.state}, and changes")
            with client.get(info.name) as held:
                file = write(client, held, made / str(number))
        except (gpubufd.Error, TypeError, ValueError) as error:
            print(f"{info.name}: left out: {error}", file=sys.stderr)
            left += 1
            continue
        options = dict(mode=info.mode, evict=info.evict, label=info.label, keep=info.keep, ttl=info.ttl or None)
        index.append(dict(name=info.name, file=file, pinned=info.pinned, options=options))
    (made / "index.json").write_text(json.dumps(index, indent=1))
    made.rename(directory)
    print(f"{directory}: {len(index)} saved, {left} left out")
    return left


def read(client: gpubufd.Client, entry: Dict[str, Any], path: pathlib.Path) -> None:
    if path.suffix == ".safetensors":
        gpubufd.numpy.load_file(path, client=client, name=".snapshot", ttl=600)  # without label and history
        client.put(entry["name"], client.get(".snapshot"), **entry["options"])
        client.delete(".snapshot")
    elif path.suffix:
        client.load(path, entry["name"], **entry["options"])
    else:
        client.put(entry["name"], path.read_bytes(), **entry["options"])
    if entry["pinned"]:
        client.pin(entry["name"])


def load(client: gpubufd.Client, directory: pathlib.Path) -> int:
    failed = 0
    for entry in json.loads((directory / "index.json").read_text()):
        try:
            read(client, entry, directory / entry["file"])
        except gpubufd.Exists as error:
            print(f"{entry['name']}: left as it is: {error}", file=sys.stderr)
            failed += 1
    print(f"{directory}: {failed} were there already")
    return failed


if __name__ == "__main__":
    what, directory, names = [*sys.argv[1:], ""][:3]
    client, place = gpubufd.connect(), pathlib.Path(directory)
    failed = save(client, place, names) if what == "save" else load(client, place)
    sys.exit(1 if failed else 0)
