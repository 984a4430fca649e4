"""Time zones: the names that Arrow has for them, and the objects of the libraries that make some."""

from __future__ import annotations

import datetime
import importlib
import re
from typing import Any, Optional

from ._layout import at_column


def name_of(zone: Any, where: str) -> str:
    """Arrow's name of a tzinfo: one of the IANA's, or an offset such as "+05:30". TypeError: it has none."""
    name = getattr(zone, "zone", None) or getattr(zone, "key", None)  # pytz's and zoneinfo's
    if isinstance(name, str):
        return name
    path = getattr(zone, "_filename", None)  # dateutil's
    if isinstance(path, str) and "local" not in type(zone).__name__:
        name = path.rpartition("zoneinfo/")[2]
        if name and name[0] != "/":
            return name
    offset = None if "local" in type(zone).__name__ else zone.utcoffset(None)
    if offset is None or offset % datetime.timedelta(minutes=1):
        raise TypeError(
            f"{at_column(where)}the time zone {zone} has no name that can be kept: convert the times to another, for "
            "example with dt.tz_convert('UTC') or astimezone(datetime.timezone.utc)"
        )
    if not offset and type(zone).__name__ in ("timezone", "tzutc"):
        return "UTC"
    minutes = offset // datetime.timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def maker_of(zone: Any) -> Optional[str]:
    """Which library made a zone: "pytz", "zoneinfo", "dateutil", or "dateutil/PATH", pandas' own name of a file's zone.

    None: Python itself, or UTC, which are equal whoever made them.
    """
    library = type(zone).__module__.partition(".")[0]
    if library == "dateutil" and isinstance(getattr(zone, "_filename", None), str):
        return f"dateutil/{zone._filename}"
    return library if library in ("pytz", "zoneinfo", "dateutil") and type(zone).__name__ != "tzutc" else None


def of_name(name: str) -> Any:
    """A tzinfo of one of Arrow's names."""
    minutes = _minutes(name)
    if minutes is not None:
        return datetime.timezone(datetime.timedelta(minutes=minutes))
    if name.upper() == "UTC":
        return datetime.timezone.utc
    import zoneinfo

    return zoneinfo.ZoneInfo(name)


def _minutes(name: str) -> Optional[int]:
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    return (int(match[2]) * 60 + int(match[3])) * (-1 if match[1] == "-" else 1) if match else None


def for_pandas(name: str, maker: Any) -> Any:
    """A zone as pandas takes it: a tzinfo, or a name of its own. `maker`: what maker_of() said, or anything else."""
    import zoneinfo

    minutes = _minutes(name)
    try:
        if maker == "pytz":
            pytz = importlib.import_module("pytz")
            return pytz.timezone(name) if minutes is None else pytz.FixedOffset(minutes)
        if isinstance(maker, str) and maker.startswith("dateutil"):
            tz = importlib.import_module("dateutil.tz")
            if minutes is not None:
                return tz.tzoffset(None, minutes * 60)
            # A table is anybody's: no file but that of the zone is opened.
            places = {f"dateutil/{place}" for place in [name, *(f"{path}/{name}" for path in zoneinfo.TZPATH)]}
            if maker in places and ".." not in name:
                found = tz.gettz(name)
                return found if maker == f"dateutil/{getattr(found, '_filename', None)}" else maker
    except ImportError:
        pass
    return name if minutes is None and maker != "zoneinfo" else of_name(name)
