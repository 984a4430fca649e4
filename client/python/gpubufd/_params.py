"""Arguments of the calls, as the protocol and `_core` take them: times, modes, versions, names, options."""

from __future__ import annotations

import datetime
import fnmatch
import operator
import re
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, TypedDict, Union

Seconds = Union[float, datetime.timedelta, str]
Mode = Union[int, str, None]
Rows = Union[slice, Tuple[int, int]]
Evict = Optional[Literal["spill", "drop", "keep"]]
Scope = Literal["local", "cluster"]
Errors = Literal["raise", "return"]



class Options(TypedDict, total=False):
    """The options of put(), which other calls take, too."""

    device: Optional[str]
    mode: Mode
    ttl: Optional[Seconds]
    evict: Evict
    replace: bool
    timeout: Optional[float]
    final: bool
    label: Optional[str]
    keep: int
    scope: Scope
    own: bool
    live: bool


TTL_MOST = 2**52 // 1000  # seconds
EVICT = {None: 0, "spill": 1, "drop": 2, "keep": 3}
SCOPE = {"local": 0, "cluster": 1}
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(value: Any, what: str) -> float:
    """Seconds, from a number of them, a timedelta, or text such as "1h"."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    elif isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhd])", value)
        if match is None:
            raise ValueError(f"{what} is {value!r}: expected seconds, or text such as '90s', '15m', '1h' or '2d'")
        value = float(match[1]) * UNITS[match[2]]
    elif not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}: expected seconds, a timedelta, or text such as '1h'")
    if not value >= 0:
        raise ValueError(f"{what} is {value}: expected seconds, 0 or more")
    return float(value)


def ms(value: Any, what: str = "timeout") -> int:
    """Milliseconds, rounded up, at most those of a day; None is 0."""
    return 0 if value is None else int(min(seconds(value, what), 86_400.0) * 1000 + 0.999)


def ttl_ms(value: Any) -> int:
    if value is None:
        return 0
    found = seconds(value, "ttl")
    if not 0 < found < TTL_MOST:
        raise ValueError(f"ttl is {value!r}: expected more than 0 seconds; None: the object stays")
    return int(found * 1000 + 0.999)


def options(
    device: Optional[str] = None, mode: Mode = None, ttl: Optional[Seconds] = None, evict: Evict = None,
    replace: bool = False, timeout: Optional[float] = None, final: bool = False, label: Optional[str] = None,
    keep: int = 0, scope: Scope = "local", own: bool = False, live: bool = False,
) -> Tuple[Any, ...]:
    """The tuple that `_core` takes for struct gpubuf_create_options."""
    if evict not in EVICT:
        raise ValueError(f"evict is {evict!r}: expected one of {', '.join(filter(None, EVICT))}")
    return (  # nothing is called for what is not given: a put of 1 kB would notice
        device, 0 if mode is None else mode_bits(mode), bool(replace), 0 if ttl is None else ttl_ms(ttl), EVICT[evict],
        0 if timeout is None else ms(timeout), bool(final), None if label is None else label_of(label), keep_of(keep),
        SCOPE[scope_of(scope)], bool(own), bool(live),
    )


def label_of(label: Optional[str]) -> Optional[str]:
    if label == "":
        raise ValueError("label is empty: None is no label")
    return label


def keep_of(keep: int) -> int:
    if not isinstance(keep, int) or not 0 <= keep <= 8:
        raise ValueError(f"keep is {keep!r}: expected 0 to 8 older versions")
    return keep


def scope_of(scope: Scope) -> Scope:
    if scope not in SCOPE:
        raise ValueError(f"scope is {scope!r}: expected local or cluster")
    return scope


# ---- names ----


def is_pattern(text: str) -> bool:
    if not isinstance(text, str):
        raise TypeError(f"a name is {text!r}: expected a str")
    return any(letter in text for letter in "*?")


def prefix_of(names: str) -> str:
    """The text before the first wildcard: all names that match begin with it."""
    return re.split(r"[*?]", names, maxsplit=1)[0] if is_pattern(names) else names


def matches(name: str, names: str) -> bool:
    return not is_pattern(names) or fnmatch.fnmatchcase(name, names.replace("[", "[[]"))


def mode_bits(mode: Mode) -> int:
    if mode is None:
        return 0
    try:
        bits = int(mode, 8) if isinstance(mode, str) else operator.index(mode)
    except ValueError:
        bits = -1
    if not 0 <= bits <= 0o777:
        raise ValueError(f"mode is {mode!r}: expected one as chmod has it, such as 0o640 or '640'")
    return bits


def which(name: str, version: Optional[int], label: Optional[str]) -> Dict[str, Any]:
    params: Dict[str, Any] = {"name": name}
    if version is not None:
        if label is not None:
            raise ValueError("version and label are both given: one says which version is meant")
        if not 0 < operator.index(version) < 2**52:
            raise ValueError(f"version is {version}: expected 1 or more")
        params["version"] = operator.index(version)
    if label is not None:
        params["label"] = label_of(label)
    return params


def alias(
    name: str, of: str, rows: Optional[Rows], columns: Optional[Sequence[str]], mode: Mode, replace: bool,
    label: Optional[str], keep: int, scope: Scope,
) -> Dict[str, Any]:
    params: Dict[str, Any] = {"name": name, "of": of}
    if rows is not None:
        start, stop = (rows.start or 0, rows.stop) if isinstance(rows, slice) else rows
        if stop is None or min(start, stop) < 0 or isinstance(rows, slice) and rows.step not in (None, 1):
            raise ValueError(f"rows is {rows!r}: expected (start, stop), both 0 or more")
        params["slice"] = {"offset": start, "length": max(stop - start, 0)}
    if columns is not None:
        params["columns"] = list(columns)
    if mode is not None:
        params["mode"] = f"{mode_bits(mode):04o}"
    said = {"replace": bool(replace), "label": label_of(label), "keep": keep_of(keep)}
    params.update({key: value for key, value in said.items() if value})
    return params if scope_of(scope) == "local" else {**params, "scope": scope}
