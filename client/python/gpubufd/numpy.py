"""Files of tensors for NumPy, shared by all processes, with the signatures of the safetensors package.

    from gpubufd.numpy import load_file

    weights = load_file("model.safetensors")     # a dict of arrays, in shared memory

The first process that loads a file publishes it; the others map it, and copy nothing. The arrays are read-only:
`writable="copy"` makes private copies of them.
"""

from __future__ import annotations

from typing import Any, Dict, Literal, Mapping, Optional, overload

from . import _weights
from ._bundle import Bundle
from ._client import Client
from ._errors import SafetensorError
from ._files import FilePath
from ._safetensors import DTYPES, SafeOpen, check_writable
from ._weights import Loading

__all__ = ["DTYPES", "SafetensorError", "load_file", "safe_open", "save_file"]


def _copies(bundle: Bundle, writable: Optional[str]) -> bool:
    return writable == "copy" or bundle._ordinal >= 0


@overload
def load_file(
    filename: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None,
    writable: Optional[str] = None, device: str = "host", wait: Literal[True] = True, **options: Any,
) -> Dict[str, Any]: ...


@overload
def load_file(filename: FilePath, *, wait: Literal[False], **options: Any) -> Loading: ...


def load_file(
    filename: FilePath, *, client: Optional[Client] = None, name: Optional[str] = None,
    writable: Optional[str] = None, device: str = "host", wait: bool = True, **options: Any,
) -> Any:
    """Return a safetensors file's tensors by name, as NumPy arrays: the first process reads it, the others map it.

    The arrays are read-only; writable="copy": private copies. `device`: where to publish the file; from a GPU each
    array is a copy. wait=False: a mapping, from which tensors can be taken while others are still read. `name`: the
    name to publish; None: one made of path, size, inode, time and user. `client`: None: a connection of this process'
    own. The other options are those of Client.put().
    """
    check_writable(writable)
    bundle, reading = _weights.begin(filename, client=client, name=name, device=device, wait=wait, **options)
    copy = _copies(bundle, writable)
    if wait:
        return bundle._arrays(copy)
    return Loading(bundle, reading, lambda i, entry: bundle._array(bundle._content(copy), i, entry, copy))


def save_file(
    tensor_dict: Mapping[str, Any], filename: FilePath, metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Write arrays into a safetensors file, which replaces an existing one when it is complete.

    The values are arrays as put() takes them, on a GPU too. A Bundle without new metadata is written byte for byte.
    TypeError names the tensor: safetensors has no such dtype.
    """
    _weights.save(tensor_dict, filename, metadata)


class safe_open(SafeOpen):  # named as in the safetensors package
    """A safetensors file, mapped as by load_file(), to take single tensors of it:

        with safe_open("model.safetensors", framework="np") as f:
            for name in f.keys():
                tensor = f.get_tensor(name)

    The tensors stay valid after the end of the `with`.
    """

    _frameworks = ("np", "numpy")

    def __init__(
        self, filename: FilePath, framework: str = "np", device: str = "host", *, client: Optional[Client] = None,
        name: Optional[str] = None, writable: Optional[str] = None, **options: Any,
    ):
        self._check(framework, writable)
        where = "host" if device == "cpu" else device
        super().__init__(_weights.load(filename, client=client, name=name, device=where, **options), writable, filename)

    def _whole(self, name: str) -> Any:
        return self._bundle._numpy(name, _copies(self._bundle, self._writable))

    def _part(self, name: str, key: Any) -> Any:
        part = self._bundle._numpy(name, _copies(self._bundle, None))[key]
        return part.copy() if self._writable else part
