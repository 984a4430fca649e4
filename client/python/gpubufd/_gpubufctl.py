"""Files that gpubufctl leaves to Python's libraries to read and write.

gpubufctl starts Python with a request in JSON. main() answers with a line of JSON on standard output: {"names": […]},
the names that were published or read; or {"code": the error's number on the wire, or 0, "message": …}.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List

from ._client import Client, connect
from ._files import read_npz, write


def _put(client: Client, request: Dict[str, Any]) -> List[str]:
    name, path, options = request["name"], request["path"], request["options"]
    if request["format"] != "npz":
        return [client.load(path, name, format=request["format"], **options)]
    arrays = {f"{name}/{key}": array for key, array in read_npz(path).items()}
    for key, array in arrays.items():
        client.put(key, array, **options)
    return list(arrays)


def _get(client: Client, request: Dict[str, Any]) -> List[str]:
    with client.get(request["name"], timeout=request.get("timeout"), version=request.get("version") or None) as held:
        column, part = request.get("column"), request.get("slice")
        shown = held if column is None else held[column]
        write(shown if part is None else shown[slice(*part)], request["path"], request["format"], None)
    return [request["name"]]


def main(text: str) -> int:
    request = json.loads(text)
    try:
        with connect(request.get("socket"), name="gpubufctl") as client:
            names = (_put if request["do"] == "put" else _get)(client, request)
        print(json.dumps({"names": names}))
        return 0
    except Exception as error:  # gpubufctl prints it, in one line
        message = " ".join((getattr(error, "_said", "") or str(error)).split()) or type(error).__name__
        print(json.dumps({"code": getattr(error, "code", 0), "message": message}))
        return 1
