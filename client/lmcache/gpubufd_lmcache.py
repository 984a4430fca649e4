"""LMCache's KV memory between containers that share gpubufd's socket, and nothing else.

LMCache 0.5.6 shares memory of cuMemCreate (vLLM's with sleep mode, PyTorch's expandable segments) as descriptors, and leaves it
to others to bring them from the engine to its server. Here the daemon does: the engine registers its memory under the
wrapper's export id, and the server opens it.

    pip install gpubufd-lmcache      # in the engine and in the server; vLLM calls install() by the entry point
    gpubufd-lmcache server …         # in the place of: lmcache server …

Of an engine that was killed the daemon keeps nothing for longer than TTL seconds: an engine renews the names of its open
wrappers. A server keeps what it has mapped until it closes its wrapper. Only the engine's user, and root, may open them.
It is not for LMCache's isolated_ipc, which refuses descriptors.
"""

import functools
import json
import os
import socket
import threading
import time
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

TTL = 15.0
_shared: "Dict[bytes, weakref.ref[Any]]" = {}  # this process' wrappers, by export id
_path: Optional[str] = None
_renewing: Optional[threading.Thread] = None


class _Session:
    """A connection to the daemon (docs/PROTOCOL.md): lines of JSON, and descriptors with the first byte of a line."""

    def __init__(self) -> None:
        driver = os.environ.get("NVIDIA_DRA_LOCAL_IPC_DIR")
        usual = f"{driver}/gpubufd.sock" if driver else "/run/gpubufd/gpubufd.sock"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(30)
            self.socket.connect(_path or os.environ.get("GPUBUFD_SOCKET") or usual)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.socket.close()

    def call(self, method: str, descriptors: Sequence[int] = (), **params: Any) -> List[int]:
        """The descriptors of the answer, which are the caller's. LookupError: there is no such name. RuntimeError."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **({"fds": len(descriptors)} if descriptors else {})}
        socket.send_fds(self.socket, [json.dumps(request).encode() + b"\n"], descriptors)
        answer: bytes = b""
        found: List[int] = []
        while not answer.endswith(b"\n"):
            data, more, _, _ = socket.recv_fds(self.socket, 1 << 16, 16, socket.MSG_CMSG_CLOEXEC)
            found += more
            if not data:
                raise RuntimeError("gpubufd closed the connection")
            answer += data
        error = json.loads(answer).get("error")
        if error:
            raise (LookupError if error["data"]["kind"] == "not_found" else RuntimeError)(f"gpubufd: {error['message']}")
        return found


def _name(export_id: bytes) -> str:
    return f"lmcache/{export_id.hex()}"


def _register(session: _Session, wrapper: Any, payload: Tuple[bytes, int]) -> None:
    told, (export_id, descriptor) = wrapper.to_wire(), payload
    session.call(
        "register", [descriptor], name=_name(export_id), ttl_ms=int(TTL * 1000), evict="keep",
        handles=[{"kind": "cuda_fd", "fd": 0, "bytes": told.alloc_size,
                  "device": f"GPU-{told.metadata.device_uuid.removeprefix('GPU-')}"}],
        layout={"kind": "bytes", "bytes": told.alloc_size, "data": {"handle": 0, "offset": 0, "bytes": told.alloc_size}})


def _renew() -> None:
    while True:
        time.sleep(TTL / 3)
        try:
            with _Session() as session:
                for export_id, reference in list(_shared.items()):
                    wrapper = reference()
                    payload = wrapper.fd_payload() if wrapper is not None else None
                    if payload is None:  # it was closed
                        del _shared[export_id]
                        continue
                    try:
                        session.call("set", name=_name(export_id), ttl_ms=int(TTL * 1000))
                    except LookupError:  # this process, or the daemon, stood still for too long
                        _register(session, wrapper, payload)
        except (OSError, RuntimeError):
            pass  # the daemon is away: once more, later


def share(wrapper: Any) -> None:
    """In the engine: others may resolve the wrapper's export id. Nothing, for one of a fabric handle."""
    global _renewing
    payload = wrapper.fd_payload()
    if payload is None:
        return
    with _Session() as session:
        _register(session, wrapper, payload)
    _shared[payload[0]] = weakref.ref(wrapper)
    if _renewing is None or not _renewing.is_alive():
        _renewing = threading.Thread(target=_renew, name="gpubufd_lmcache", daemon=True)
        _renewing.start()


def resolve(export_id: bytes) -> int:
    """In the server: the descriptor of an export id, which is the caller's. LookupError: its engine has ended."""
    with _Session() as session:
        return session.call("open", name=_name(export_id))[0]


def install(path: Optional[str] = None) -> None:
    """Has this process share what LMCache wraps, and resolve what others share. `path`: of the daemon's socket."""
    global _path
    try:
        from lmcache.v1.platform.devices.cuda import ipc_wrapper
    except ImportError:  # an engine without LMCache
        return
    _path = path
    ipc_wrapper.set_vmm_fd_resolver(resolve)
    wrapped = ipc_wrapper.VmmCudaIPCWrapper.__init__
    if hasattr(wrapped, "__wrapped__"):  # vLLM calls this more than once
        return

    @functools.wraps(wrapped)
    def init(self: Any, tensor: Any) -> None:
        wrapped(self, tensor)
        share(self)

    ipc_wrapper.VmmCudaIPCWrapper.__init__ = init


def main() -> None:
    """gpubufd-lmcache …: the command line of LMCache, with its server's resolver."""
    from lmcache.cli.main import main as run

    install()
    run()
