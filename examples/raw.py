#!/usr/bin/env python3
"""Opens a column and reads it, with nothing but a socket, JSON, and a descriptor.

    examples/raw.py NAME [COLUMN]      (NAME a column of float64 or int64, or a table that has one)
"""
import array, json, mmap, os, socket, sys

path = os.environ.get("GPUBUFD_SOCKET", "/run/gpubufd/gpubufd.sock")
if len(sys.argv) not in (2, 3):
    sys.exit("usage: raw.py NAME [COLUMN]")
name, wanted = (*sys.argv[1:], None)[:2]

# A request is a line of JSON.
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
daemon.connect(path)
request = {"jsonrpc": "2.0", "id": 1, "method": "open", "params": {"name": name}}
daemon.sendall(json.dumps(request).encode() + b"\n")

# So is a reply. Descriptors come with its first byte.
line, descriptors = b"", array.array("i")
while not line.endswith(b"\n"):
    data, extras, flags, _ = daemon.recvmsg(65536, socket.CMSG_SPACE(16 * 4))
    if not data or flags & socket.MSG_CTRUNC:
        sys.exit("the daemon closed the connection")
    line += data
    for _, _, payload in extras:
        descriptors.frombytes(payload)
reply = json.loads(line)
if "error" in reply:
    sys.exit(reply["error"]["message"])

# A segment is mapped once; the layout says where in it the buffers lie.
segments = {}
for s in reply["result"]["segments"]:
    fd = descriptors[s["handle"]["fd"]]
    segments[s["id"]] = mmap.mmap(fd, s["bytes"], mmap.MAP_SHARED, mmap.PROT_READ)
layout = reply["result"]["object"]["layout"]
column = next((c for c in layout.get("columns", [layout]) if wanted in (None, c.get("name"))), None)
types = {"float64": "d", "int64": "q"}
if column is None or column.get("dtype") not in types:
    sys.exit(f"{name} has no such column of float64 or int64")

# Element i is number offset + i of the buffers; a 0 in the mask says that it is null.
view = memoryview(segments[column["data"]["segment"]])
at, first = column["data"]["offset"], column.get("offset", 0)
values = view[at : at + (first + column["length"]) * 8].cast(types[column["dtype"]])
mask = column.get("mask")
bits = memoryview(segments[mask["segment"]])[mask["offset"] :] if mask else None
rows = range(first, first + column["length"])
valid = [values[i] for i in rows if not bits or bits[i >> 3] >> (i & 7) & 1]
print(f"{len(rows)} rows, {len(rows) - len(valid)} null, sum {sum(valid)}")
