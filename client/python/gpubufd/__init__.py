"""gpubufd: arrays, tables and model weights shared between processes by name, on a GPU or on the host.

    import gpubufd

    client = gpubufd.connect()
    client.put("prices", {"day": days, "price": prices})     # in one process

    table = client.get("prices")                             # in another: nothing is copied
    price = table["price"].to_numpy()

NumPy, pandas, Arrow, PyTorch, JAX and CuPy take these objects as their own, through the buffer protocol, DLPack,
Arrow's capsules and `__cuda_array_interface__`. Published objects never change.
"""

from . import _core
from ._errors import (
    Busy,
    Canceled,
    Closed,
    ConnectFailed,
    Denied,
    DeviceError,
    Error,
    Exists,
    Forked,
    Invalid,
    Limit,
    NoSpace,
    NotFound,
    ProtocolError,
    Stale,
    Timeout,
    Unavailable,
    Unsupported,
    make as _make,
)

_core.set_error_factory(_make)

from ._buffers import Buffer, Buffers, Validity  # noqa: E402
from ._client import Client, connect  # noqa: E402
from ._ref import Ref  # noqa: E402
from . import _kinds as _kinds  # noqa: E402
from ._layout import Interval  # noqa: E402
from ._bundle import Bundle  # noqa: E402
from ._provide import Provider, Wanted  # noqa: E402
from ._objects import Array, Bytes, Column, Table  # noqa: E402
from ._told import Event, Info, Watch  # noqa: E402
from ._streams import Frame, StreamReader, StreamWriter  # noqa: E402
from ._views import View  # noqa: E402

__version__ = _core.version

__all__ = [
    "Array", "Buffer", "Buffers", "Bundle", "Busy", "Bytes", "Canceled", "Client", "Closed", "Column",
    "ConnectFailed", "Denied", "DeviceError", "Error", "Event", "Exists", "Forked", "Frame", "Info", "Interval",
    "Invalid", "Limit", "NoSpace", "NotFound", "ProtocolError", "Provider", "Ref", "Stale", "StreamReader",
    "StreamWriter", "Table", "Timeout",
    "Unavailable", "Unsupported", "Validity", "View", "Wanted", "Watch", "connect",
]

for _name in set(__all__) - {"Event", "Info"}:  # dataclasses' types are looked up in their own module
    globals()[_name].__module__ = __name__
