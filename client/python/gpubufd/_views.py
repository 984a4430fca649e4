"""Views: the versions of a name, one after another, at the same addresses."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar

from . import _core, _errors, _params
from ._bundle import Bundle
from ._objects import Table
from ._told import Info
from .cuda import handle_or_zero

if TYPE_CHECKING:
    from ._kinds import AnyKind

Self = TypeVar("Self", bound="View")


def _handles(streams: Iterable[Any]) -> Tuple[int, ...]:
    return tuple(handle_or_zero(stream) for stream in streams)


class View(Mapping[str, Any]):
    """Successive versions of a name at the same addresses; made by Client.follow().

        view = client.follow("policy")
        weights = view["layers.0.weight"]     # stays valid, with new content, when the view is switched
        for info in view.versions():
            view.switch()

    A mapping of a Bundle's arrays, or of a Table's columns; `value` is the object itself, of any kind. NumPy arrays,
    tensors and captured graphs made of it show the version that the view shows. Do not read through a view while it is
    switched or parked. Only one thread at a time may call a view: Busy.

    On a GPU the calls wait for the CUDA `streams` that use the view; without any, for all of the context's work.
    """

    value: AnyKind

    def __init__(self, client: Any, name: str, timeout: Optional[float], version: Optional[int], label: Optional[str]):
        self._client = client
        self._name = name
        if timeout is not None:
            client._client.get(name, timeout=timeout, version=version, label=label).release()
        which = _params.which(name, version, label)
        self._view, self.value = client._client._follow(name, which.get("version", 0), label)

    # ---- what is shown ----

    def _parts(self) -> Mapping[str, Any]:
        if not isinstance(self.value, (Bundle, Table)):
            raise TypeError(f"{self._name!r} is of the kind {type(self.value).__name__}, without parts: see view.value")
        parts: Mapping[str, Any] = self.value  # type: ignore[assignment]  # a table is one but for its methods' types
        return parts

    def __getitem__(self, name: str) -> AnyKind:
        return self._parts()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts())

    def __len__(self) -> int:
        return len(self._parts())

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        """The version that is shown, or parked."""
        return int(self.value.version)

    @property
    def label(self) -> Optional[str]:
        label: Optional[str] = self.value.label
        return label

    @property
    def parked(self) -> bool:
        return _core.is_parked(self._held())

    def __repr__(self) -> str:
        if self._view is None:
            return f"<gpubufd.View of {self._name!r}, closed>"
        label = f" ({self.label})" if self.label else ""
        return f"<gpubufd.View of {self._name!r}, version {self.version}{label}{', parked' if self.parked else ''}>"

    def _repr_html_(self) -> str:
        shown = "" if self._view is None or self.parked else self.value._repr_html_()
        return f"<p>{html.escape(repr(self))}</p>{shown}"

    def _held(self) -> Any:
        if self._view is None:
            raise _errors.failure("closed", f"the view of {self._name!r} was closed")
        return self._view

    # ---- changing it ----

    def switch(
        self, *, version: Optional[int] = None, label: Optional[str] = None, timeout: Optional[float] = None,
        streams: Iterable[Any] = (),
    ) -> bool:
        """Show the newest version, or `version`, or the newest with `label`; return False if it was shown already.

        Unsupported: it has another layout, or shares its segment: put() it with own=True. Errors as of Client.get().
        After an error the view is unchanged.
        """
        which = _params.which(self._name, version, label)
        return _core.switch(self._held(), which.get("version", 0), label, _params.ms(timeout), _handles(streams))

    def park(self, *, streams: Iterable[Any] = ()) -> bool:
        """Release the memory, and keep the content and the addresses; return False if it was parked already.

        The daemon may move the content to a tier, but does not drop it. Until resume(), reading through the view is a
        segmentation fault on the host, and ends the CUDA context on a GPU.
        """
        return _core.park(self._held(), _handles(streams))

    def resume(self, *, timeout: Optional[float] = None) -> bool:
        """Show a parked view again; return False if it was not parked. NoSpace.

        `timeout`: how many seconds to wait for room.
        """
        return _core.resume(self._held(), _params.ms(timeout))

    def versions(self, *, timeout: Optional[float] = None) -> Iterator[Info]:
        """Iterate over the Infos of versions newer than the one that is shown; see Client.versions()."""
        for info in self._client.versions(self._name, timeout=timeout):
            if info.version > self.version:
                yield info

    def close(self) -> None:
        """End the view. Arrays that were made of it continue to show the last version."""
        self._view = None
        self.value.release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class AsyncView(View):
    """A view for asyncio: switch(), park() and resume() are awaited, and run in a thread."""

    async def switch(self, **keywords: Any) -> bool:  # type: ignore[override]
        return await asyncio.to_thread(View.switch, self, **keywords)

    async def park(self, **keywords: Any) -> bool:  # type: ignore[override]
        return await asyncio.to_thread(View.park, self, **keywords)

    async def resume(self, **keywords: Any) -> bool:  # type: ignore[override]
        return await asyncio.to_thread(View.resume, self, **keywords)

    async def versions(self, **keywords: Any) -> AsyncIterator[Info]:  # type: ignore[override]
        async for info in self._client.versions(self._name, **keywords):
            if info.version > self.version:
                yield info

    async def __aenter__(self) -> "AsyncView":
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.close()
