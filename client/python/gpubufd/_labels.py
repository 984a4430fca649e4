"""The labels of a frame's columns: as names of a table's columns, and back.

A column's name is its label as text. pandas' metadata tell the type of each level of labels, in `column_indexes`, and
read the text by it; so numbers, dates and several levels come back. Labels that do not (of mixed types, intervals,
categories) are in the metadata once more, under the key "labels": `dtypes` of the levels, and `words`, which has a
label as JSON for each name.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import functools
import math
from typing import Any, Callable, Container, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _series, _zones

REMEDY = "frame.rename(columns=str) makes text of the labels"
TEXT = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}  # a level


class Told(NamedTuple):
    """Labels as a table's metadata tell them, by anybody."""

    levels: Sequence[Dict[str, Any]] = ()  # `column_indexes`: of pandas
    more: Optional[Dict[str, Any]] = None  # `labels`: of this package


def written(labels: Any) -> Tuple[List[str], Told]:
    """(the columns' names, what the metadata have to tell) of the labels of a frame. ValueError, TypeError."""
    if not labels.is_unique:
        raise ValueError("several columns have the same name")
    values = labels.tolist()
    kind = str(labels.dtype)
    if kind in ("object", "str") and labels.nlevels == 1 and all(isinstance(label, str) for label in values):
        told = Told([_level(labels)] if labels.name is not None else ())
        return values, told if kind != "object" or _series.before(3) else _exact(values, labels, told)
    if labels.nlevels == 1 and hasattr(labels, "levels"):
        raise TypeError("the labels are a MultiIndex of one level: frame.columns.get_level_values(0) makes plain ones of it")
    parts = [labels.get_level_values(i) for i in range(labels.nlevels)]
    told = Told([_level(part) for part in parts])
    names = _names(values)
    return names, told if kind in ("int64", "uint64") else _exact(names, labels, told)


def unique(name: str, taken: Container[str]) -> str:
    """The name, with a mark behind it if it is taken."""
    while name in taken:
        name += "'"
    return name


def _names(values: List[Any]) -> List[str]:
    """A name for each label, none twice: of 1 and "1" the later one has another."""
    found: Dict[str, None] = {}
    for label in values:
        found[unique(_text(label), found)] = None
    return list(found)


def _text(label: Any) -> str:
    """A label as text; of several levels as pandas' Parquet files have it."""
    return str(tuple(map(_text, label))) if isinstance(label, tuple) else str(label)


def _level(part: Any) -> Dict[str, Any]:
    """A level of labels in `column_indexes`, where all that is not numbers or times is text."""
    dtype, more = part.dtype, None
    kind, text = "unicode", "object"
    if getattr(dtype, "tz", None) is not None:
        kind, text, more = "datetimetz", f"datetime64[{_unit(dtype)}]", {"timezone": _zones.name_of(dtype.tz, "")}
    elif getattr(dtype, "kind", "O") in "iufM" and str(dtype) == getattr(dtype, "name", ""):
        kind = text = str(dtype)
    return {"name": plain(part.name), "field_name": None, "pandas_type": kind, "numpy_type": text, "metadata": more}


def _unit(dtype: Any) -> str:
    return str(getattr(dtype, "unit", "ns"))


def plain(name: Any) -> Any:
    """A name of labels, as JSON has it. TypeError."""
    if hasattr(name, "item") and not isinstance(name, str):
        name = name.item()
    if name is None or isinstance(name, (str, int, float, bool)):
        return name
    raise TypeError(f"{name!r} is the name of a column or an index: expected text or a number; rename it")


# ---- labels that are more than their text ----


def _exact(names: List[str], labels: Any, told: Told) -> Told:
    """`told`, if the labels can be made of it again, else the same with the labels themselves. TypeError: they have no form."""
    try:
        if same(read(names, told), labels):
            return told
    except (SyntaxError, TypeError, ValueError):
        pass
    parts = [labels.get_level_values(i) for i in range(labels.nlevels)]
    try:
        words = {name: _word(label) for name, label in zip(names, labels.tolist())}
        told = told._replace(more={"dtypes": [_dtype(part.dtype) for part in parts], "words": words})
        if same(read(names, told), labels):
            return told
    except (SyntaxError, TypeError, ValueError):
        pass
    kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
    raise TypeError(f"the columns' labels ({kinds}) have no form that can be kept: {REMEDY}")


def same(found: Any, labels: Any) -> bool:
    """Whether two Indexes are equal, with their dtypes and names."""
    dtypes = [[one.get_level_values(i).dtype for i in range(one.nlevels)] for one in (found, labels)]
    return bool(found.equals(labels)) and dtypes[0] == dtypes[1] and list(found.names) == list(labels.names)


def _word(label: Any) -> Any:
    """A label as JSON has it. TypeError: it has no form there."""
    if hasattr(label, "item") and not isinstance(label, str):
        label = label.item()
    if label is None or isinstance(label, (str, bool, int)) or isinstance(label, float) and math.isfinite(label):
        return label
    if isinstance(label, tuple):
        return [_word(part) for part in label]
    kind = type(label).__name__
    if kind == "Interval":
        return {kind: [_word(label.left), _word(label.right), label.closed]}
    if kind == "Period":
        return {kind: [label.ordinal, label.freqstr]}
    if kind not in _makers():
        raise TypeError(kind)
    return {kind: label.isoformat() if hasattr(label, "isoformat") else str(label)}


def _label(word: Any) -> Any:
    """The label of a word. An exception of any kind: it is none."""
    if isinstance(word, list):
        return tuple(_label(part) for part in word)
    if not isinstance(word, dict):
        return word
    ((kind, told),) = word.items()
    return _makers()[kind](told)


def _makers() -> Dict[str, Callable[[Any], Any]]:
    import pandas

    return {
        "Interval": lambda told: pandas.Interval(_label(told[0]), _label(told[1]), closed=told[2]),
        "Period": lambda told: pandas.Period(ordinal=told[0], freq=told[1]),
        "Timestamp": pandas.Timestamp, "Timedelta": pandas.Timedelta, "float": float, "Decimal": decimal.Decimal,
        "NaTType": lambda told: pandas.NaT, "NAType": lambda told: pandas.NA, "date": datetime.date.fromisoformat,
        "datetime": datetime.datetime.fromisoformat, "time": datetime.time.fromisoformat,
    }


def _dtype(dtype: Any) -> Any:
    """A dtype as JSON has it."""
    if not hasattr(dtype, "categories"):
        return str(dtype)
    values = [_word(label) for label in dtype.categories.tolist()]
    return {"categories": values, "dtype": str(dtype.categories.dtype), "ordered": bool(dtype.ordered)}


def _of_dtype(told: Any) -> Any:
    import pandas

    if not isinstance(told, dict):
        return told
    categories = [_label(word) for word in told["categories"]]
    return pandas.CategoricalDtype(pandas.Index(categories, dtype=told["dtype"], tupleize_cols=False), told["ordered"])


# ---- names as labels ----


def are_names(told: Told) -> bool:
    """Whether the labels are the names of the columns, as most are: text that has no name of its own."""
    level = told.levels[0] if told.levels else {}
    text = str(level.get("numpy_type", "object")) in ("object", "str")
    return told.more is None and len(told.levels) < 2 and text and level.get("name") is None


def read(names: List[str], told: Told) -> Any:
    """The labels of a table's columns, as an Index. An exception of many kinds: what the metadata tell makes no sense."""
    import pandas

    dtype = _series.text_dtype()
    if names and are_names(told) and dtype is not None and _series.lies_in_arrow(dtype):
        return pandas.Index(dtype.__from_arrow__(_text_of(tuple(names))), copy=False)
    title = [level.get("name") for level in told.levels] or [None]
    if told.more is not None:
        words = told.more["words"]
        values = [_label(words[name]) if name in words else name for name in names]
        dtypes = [_of_dtype(one) for one in told.more["dtypes"]]
        if len(dtypes) == 1:
            return pandas.Index(values, dtype=dtypes[0], name=title[0], tupleize_cols=False)
        parts = [pandas.Index(part, dtype=dtype, tupleize_cols=False) for part, dtype in zip(_turned(values, dtypes), dtypes)]
        return pandas.MultiIndex.from_arrays(parts, names=title)
    if len(told.levels) > 1:
        texts = _turned([ast.literal_eval(name) for name in names], told.levels)
        return pandas.MultiIndex.from_arrays([_typed(part, level) for part, level in zip(texts, told.levels)], names=title)
    return _typed(names, told.levels[0] if told.levels else {}, title[0])


@functools.lru_cache(64)
def _text_of(names: Tuple[str, ...]) -> Any:
    """Names as pyarrow's text, which nobody can change: pandas takes long to make it of a list."""
    import pyarrow

    return pyarrow.array(names, pyarrow.large_string())


def _turned(rows: List[Any], levels: Sequence[Any]) -> List[List[Any]]:
    """The labels of each level, of tuples that have one of each."""
    if any(not isinstance(row, tuple) or len(row) != len(levels) for row in rows):
        raise ValueError("a label has not as many levels as the others")
    return [[row[i] for row in rows] for i in range(len(levels))]


def _typed(texts: List[str], level: Dict[str, Any], title: Any = None) -> Any:
    """Labels of the type that `column_indexes` gives them, called `title`."""
    import pandas

    kind = str(level.get("numpy_type"))
    if kind.startswith(("int", "uint")):
        try:
            return pandas.Index([int(text) for text in texts], dtype=kind, name=title)
        except (TypeError, ValueError, OverflowError):  # a column has been added by hand
            pass
    found = pandas.Index(texts, dtype=(_series.text_dtype() if texts else None) or object, name=title)
    if kind.startswith("float"):
        return found.astype(kind)
    if kind.startswith("datetime64"):
        zone = (level.get("metadata") or {}).get("timezone")
        times = pandas.to_datetime(found, utc=zone is not None)
        times = times if _series.before(2) else times.as_unit(kind[len("datetime64[") : -1])
        return times if zone is None else times.tz_convert(_zones.for_pandas(zone, None))
    return found
