#!/usr/bin/env python3
"""A weight cache daemon as inference engines have one, in few lines: a peer to measure gpubufd against.

    weight_cache.py SOCKET FILE    FILE: JSON, [[name, dtype, shape], …]

It owns a state dict on the GPU, and sends handles of it (cudaIpc) as a pickle to whoever connects to its socket and
says what it wants: "tensors", a handle for each, or "flat", one for a buffer that all of them lie in. It trusts everybody, keeps nothing beyond its end, and gives all who ask memory that they can write to.
"""

import io
import json
import pickle
import socket
import struct
import sys
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing  # noqa: F401  its reductions pickle tensors


def receive(connection):
    """A message: its length in 8 bytes, then a pickle."""
    stream = connection.makefile("rb")
    return pickle.load(io.BytesIO(stream.read(struct.unpack("<Q", stream.read(8))[0])))


def send(connection, value):
    data = bytes(ForkingPickler.dumps(value))
    connection.sendall(struct.pack("<Q", len(data)) + data)


def make(specs):
    """The tensors, and the flat buffer that they lie in, with each one's place there."""
    tensors, places, at = {}, {}, 0
    for name, dtype, shape in specs:
        size = torch.Size(shape).numel() * getattr(torch, dtype).itemsize
        places[name] = (at, size, dtype, shape)
        at += (size + 255) // 256 * 256
        tensors[name] = torch.full(shape, 1.0, dtype=getattr(torch, dtype), device="cuda")
    return tensors, torch.ones(at, dtype=torch.uint8, device="cuda"), places


def views(flat, places):
    """(at a reader) The tensors of a flat buffer."""
    return {name: flat[at : at + size].view(getattr(torch, dtype)).view(shape)
            for name, (at, size, dtype, shape) in places.items()}


def main(path, specs):
    tensors, flat, places = make(specs)
    torch.cuda.synchronize()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection:
            wish = connection.recv(16).decode()
            if wish == "tensors":
                send(connection, tensors)
            elif wish == "flat":
                send(connection, (flat, places))
            connection.recv(1)  # until the reader has opened them


if __name__ == "__main__":
    main(sys.argv[1], json.load(open(sys.argv[2])))
