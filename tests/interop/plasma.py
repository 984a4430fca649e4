"""Plasma over gpubufd, a shim for pyarrow 11's own tests of it: see test_plasma.py.

An object is an array of octets, its data and then its metadata; the array's own metadata say how many the data are.
"""

import contextlib
import hashlib
import pickle
import socket
import struct
import tempfile
import threading
import time
import warnings

import conftest
import pyarrow as pa
from pyarrow._plasma import (  # noqa: F401
    ObjectID, ObjectNotAvailable, PlasmaClient, PlasmaObjectExists, PlasmaObjectNotFound, PlasmaStoreFull)

gpubufd = conftest.gpubufd
FOR_EVER = 86_400
LEAST = 2 << 20  # of a device; a smaller store's is as large


@contextlib.contextmanager
def start_plasma_store(plasma_store_memory, use_valgrind=False, external_store=None):
    warnings.warn("Plasma is deprecated", DeprecationWarning)
    with tempfile.TemporaryDirectory() as place:
        options = ["--tier", f"disk:64M:{place}"] if external_store else ["--evict", "drop"]
        with conftest.standing(*options, device=f"host:{max(plasma_store_memory, LEAST)}") as there:
            yield there.path, there.daemon.process


def connect(path, num_retries=-1):
    client = Client()
    client.daemon = gpubufd.connect(path)
    return client


class Client(PlasmaClient):
    """put(), get() and put_raw_buffer() are Plasma's own, and call these."""

    def __init__(self):
        self.unsealed, self.times, self.oldest = {}, {}, []

    def create(self, object_id, data_size, metadata=b""):
        if object_id in self.unsealed:  # gpubufd gives a name to who seals first
            raise PlasmaObjectExists(object_id)
        try:
            made = self.daemon.create(object_id.binary().hex(), "uint8", data_size + len(metadata),
                                      metadata={"data": str(data_size)})
        except gpubufd.Exists as error:
            raise PlasmaObjectExists(error) from None
        except gpubufd.NoSpace as error:
            raise PlasmaStoreFull(error) from None
        memory = memoryview(made)
        memory[data_size:] = metadata
        self.unsealed[object_id] = made, data_size
        self.times[object_id] = time.time(), 0
        return pa.py_buffer(memory[:data_size])

    def seal(self, object_id):
        self.unsealed.pop(object_id)[0].seal()
        created = self.times[object_id][0]
        self.times[object_id] = created, time.time() - created

    def create_and_seal(self, object_id, data, metadata=b""):
        memoryview(self.create(object_id, len(data), metadata)).cast("B")[:] = data
        self.seal(object_id)

    def _parts(self, object_ids, timeout_ms):
        """(data, metadata) of each, or None."""
        until = time.monotonic() + (FOR_EVER if timeout_ms < 0 else timeout_ms / 1000)
        for object_id in object_ids:
            try:
                held = self.daemon.get(object_id.binary().hex(), timeout=max(0, until - time.monotonic()))
            except (gpubufd.NotFound, gpubufd.Timeout):
                yield None, None
                continue
            memory, size = memoryview(held), int(held.metadata["data"])
            yield pa.py_buffer(memory[:size]), pa.py_buffer(memory[size:])

    def get_buffers(self, object_ids, timeout_ms=-1, with_meta=False):
        parts = list(self._parts(object_ids, timeout_ms))
        return [(meta and meta.to_pybytes(), data) for data, meta in parts] if with_meta else [data for data, _ in parts]

    def get_metadata(self, object_ids, timeout_ms=-1):
        return [meta for _, meta in self._parts(object_ids, timeout_ms)]

    def contains(self, object_id):
        return object_id.binary().hex() in self.daemon

    def hash(self, object_id):
        [(data, meta)] = self._parts([object_id], 0)
        if data is None:
            raise PlasmaObjectNotFound(object_id)
        return hashlib.sha256(struct.pack("Q", data.size) + data.to_pybytes() + meta.to_pybytes()).digest()

    def evict(self, num_bytes):
        evicted = 0
        self.oldest = self.oldest or sorted(self.daemon.list(), key=lambda info: -info.version)
        while self.oldest and evicted < num_bytes:
            info = self.oldest.pop()
            if not self.daemon.stat(info.name).leases:
                self.daemon.delete(info.name)
                evicted += info.bytes
        return evicted

    def store_capacity(self):
        return self.daemon.devices()[0]["capacity"]

    def list(self):
        infos = {info.name: info for info in self.daemon.list()}
        found = {}
        for object_id, (created, duration) in self.times.items():
            name, made = object_id.binary().hex(), self.unsealed.get(object_id)
            if made or name in infos:
                data, size = (made[1], made[0].nbytes) if made else (self._data_size(name), infos[name].bytes)
                found[object_id] = {
                    "data_size": data, "metadata_size": size - data, "create_time": created, "construct_duration": duration,
                    "ref_count": 1 if made else infos[name].leases, "state": "created" if made else "sealed"}
        return found

    def _data_size(self, name):
        return int(self.daemon.stat(name).layout["metadata"]["data"])

    def subscribe(self):
        self.watch = self.daemon.watch()
        assert next(self.watch).kind == "synced"

    def get_next_notification(self):
        event = next(self.watch)
        object_id = ObjectID(bytes.fromhex(event.name))
        if event.kind != "sealed":
            return object_id, -1, -1
        data = self._data_size(event.name)
        return object_id, data, event.info.bytes - data

    def get_notification_socket(self):
        ours, theirs = socket.socketpair()

        def pump():
            with contextlib.suppress(Exception):  # until the store has ended
                while True:
                    content = pickle.dumps([[one] for one in self.get_next_notification()])
                    ours.sendall(struct.pack("L", len(content)) + content)

        threading.Thread(target=pump, daemon=True).start()
        return theirs

    def decode_notifications(self, content):
        return pickle.loads(content)
