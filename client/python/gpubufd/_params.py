"""Parameters of the protocol's methods, for Client and aio.Client: times, modes, versions, aliases."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

TTL_MOST = 2**52 // 1000  # seconds


def ms(seconds: Optional[float], what: str = "timeout") -> int:
    """Milliseconds, rounded up, at most those of a day; None is 0."""
    if seconds is None:
        return 0
    if isinstance(seconds, (str, bytes)) or not hasattr(seconds, "__float__"):
        raise TypeError(f"{what} is {seconds!r}: expected seconds, or None")
    if not seconds >= 0:
        raise ValueError(f"{what} is {seconds}: expected seconds, 0 or more")
    return int(min(seconds, 86_400.0) * 1000 + 0.999)


def ttl_ms(seconds: Optional[float]) -> int:
    if seconds is None:
        return 0
    if not 0 <= seconds < TTL_MOST:
        raise ValueError(f"ttl is {seconds}: expected seconds, 0 or more; None: it stays")
    return int(seconds * 1000 + 0.999)


def mode_bits(mode: Union[int, str, None]) -> int:
    if mode is None:
        return 0
    bits = int(mode, 8) if isinstance(mode, str) else int(mode)
    if not 0 <= bits <= 0o777:
        raise ValueError(f"mode is {mode!r}: expected one as chmod has it, such as 0o640 or '640'")
    return bits


def which(name: str, version: int, label: Optional[str]) -> Dict[str, Any]:
    params: Dict[str, Any] = {"name": name}
    if version:
        params["version"] = version
    if label is not None:
        params["label"] = label
    return params


def deleted(names: Sequence[str], version: int, label: Optional[str]) -> bool:
    """Whether delete() is about one version, which is one of one name, and not about all versions of its names."""
    one = bool(version) or label is not None
    if one and len(names) != 1:
        raise ValueError(f"version and label are about one name, not {len(names)}")
    return one


def expire(name: str, ttl: Optional[float], version: int, label: Optional[str]) -> Dict[str, Any]:
    return {**which(name, version, label), "ttl_ms": ttl_ms(ttl)}


def spill(name: str, tier: Optional[str], version: int, label: Optional[str]) -> Dict[str, Any]:
    params = which(name, version, label)
    return params if tier is None else {**params, "tier": tier}


def restore(name: str, timeout: Optional[float], version: int, label: Optional[str]) -> Dict[str, Any]:
    return {**which(name, version, label), "wait_ms": ms(timeout)}


def alias(
    name: str, of: str, rows: Optional[Tuple[int, int]], columns: Optional[Sequence[str]],
    parts: Optional[Sequence[str]], layout: Optional[Mapping[str, Any]], mode: Union[int, str, None], replace: bool,
    label: Optional[str], keep: int, scope: str,
) -> Dict[str, Any]:
    params: Dict[str, Any] = {"name": name, "of": of}
    if rows is not None:
        start, stop = rows
        params["slice"] = {"offset": start, "length": max(stop - start, 0)}
    if columns is not None:
        params["columns"] = list(columns)
    if parts is not None:
        params["parts"] = list(parts)
    if layout is not None:
        params["layout"] = dict(layout)
    if mode is not None:
        params["mode"] = f"{mode_bits(mode):04o}"
    if replace:
        params["replace"] = True
    if label is not None:
        params["label"] = label
    if keep:
        params["keep"] = keep
    if scope != "local":
        params["scope"] = scope
    return params
