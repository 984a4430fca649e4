"""Pandas frames as the columns of a table and back, with their index, labels and dtypes.

put() keeps what the columns alone would lose in the table's metadata, under the key "pandas", in the form that pandas
documents for Parquet files and pyarrow reads and writes too
(https://pandas.pydata.org/docs/development/developer.html). A column that comes back unchanged has no entry.

Dask's partitions share one spec, which lies in the manifest. A spec has, as JSON, what a table cannot say of its
frame: `columns` ({name, label, dtype, and of categoricals categories and ordered}), `label` (of the columns
themselves) and `index` (either `range`, or `name`, `dtype` and perhaps `freq` of a column; and `label`). `series` is
true of a Series.
"""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _series, _values, _zones
from ._layout import at_column

INDEX = "__index__"


def take_apart(frame: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """(columns by name, spec) of a DataFrame or Series. TypeError: a part of it cannot be kept."""
    series = not hasattr(frame, "columns")
    labelled = [(frame.name, frame)] if series else frame.items()
    columns: Dict[str, Any] = {}
    described = []
    for label, column in labelled:
        name = "values" if series and label is None else str(label)
        if name in columns:
            raise TypeError(f"two columns are called {name!r}: rename one")
        columns[name] = column
        described.append({"name": name, "label": _label(label), **_describe(column.dtype, name)})
    spec: Dict[str, Any] = {"columns": described, "index": _index_spec(frame.index, columns)}
    if series:
        spec["series"] = True
        return columns, spec
    if frame.columns.name is not None:
        spec["label"] = _label(frame.columns.name)
    if frame.columns.dtype != _pandas().Index([one["label"] for one in described]).dtype:  # not what pandas would make
        spec["labels"] = str(frame.columns.dtype)
    return columns, spec


def _index_spec(index: Any, columns: Dict[str, Any]) -> Dict[str, Any]:
    """The description of an index; one that is not a range is added to the columns."""
    if index.nlevels > 1:
        raise TypeError("the index has several levels: reset_index() makes columns of them")
    if type(index).__name__ == "RangeIndex":
        return {"range": [index.start, index.stop, index.step], "label": _label(index.name)}
    name = index.name if isinstance(index.name, str) and index.name not in columns else INDEX
    if name in columns:
        raise TypeError(f"a column is called {INDEX!r}, which is the name kept for the index: rename it")
    columns[name] = index
    spec = {"name": name, "label": _label(index.name), **_describe(index.dtype, name)}
    freq = _freq_of(index)
    return spec if freq is None else {**spec, "freq": freq}


def _freq_of(index: Any) -> Optional[str]:
    """The name of an index' `freq`."""
    try:
        freq = getattr(index, "freq", None)
    except NotImplementedError:  # of cuDF's TimedeltaIndex
        return None
    return None if freq is None else str(freq.freqstr)


def _label(label: Any) -> Any:
    if hasattr(label, "item") and not isinstance(label, str):
        label = label.item()
    if label is None or isinstance(label, (str, int, float, bool)):
        return label
    raise TypeError(f"{label!r} is the name of a column: expected text or a number; rename it")


def _describe(dtype: Any, where: str) -> Dict[str, Any]:
    """The description that makes the dtype again."""
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        categories = _describe(dtype.categories.dtype, where)
        return {"dtype": "category", "categories": categories["dtype"], "ordered": bool(dtype.ordered)}
    text = str(dtype)
    if text == "string":
        text = f"string[{dtype.storage}]"
    if getattr(dtype, "tz", None) is not None:
        import pandas

        try:
            kept = pandas.api.types.pandas_dtype(text) == dtype
        except TypeError:
            kept = False
        if not kept:
            raise TypeError(
                f"{at_column(where)}the time zone {dtype.tz} has no name that can be kept: convert it "
                "with dt.tz_convert('UTC')"
            )
    return {"dtype": text}


def put_together(table: Any, spec: Dict[str, Any]) -> Any:
    """The frame that a table on the host was made of; numbers without nulls lie over the table's memory."""
    import pandas

    count = len(table)
    index = _index(table, spec["index"])
    data = {
        i: pandas.Series(_array(table[column["name"]], column), index=index, copy=False)
        for i, column in enumerate(spec["columns"])
    }
    labels = labels_of_spec(spec)
    if spec.get("series"):
        data[0].name = labels[0]
        return data[0]
    if data and len(index) != count:
        raise ValueError(f"{table.name!r} has {count} rows and an index of {len(index)}")
    frame = pandas.DataFrame(data, index=index, copy=False)
    frame.columns = labels
    return frame


def labels_of_spec(spec: Dict[str, Any]) -> Any:
    """The names of a partition's columns."""
    labels = [column["label"] for column in spec["columns"]]
    return _pandas().Index(labels, dtype=spec.get("labels"), name=spec.get("label"))


def _index(table: Any, spec: Dict[str, Any]) -> Any:
    import pandas

    if "range" in spec:
        return pandas.RangeIndex(*spec["range"], name=spec["label"])
    values = _array(table[spec["name"]], spec)
    if "freq" in spec:
        kind = pandas.TimedeltaIndex if spec["dtype"].startswith("timedelta") else pandas.DatetimeIndex
        return kind(values, freq=spec["freq"], name=spec["label"])
    dtype = object if spec["dtype"] == "object" else None
    return pandas.Index(values, dtype=dtype, name=spec["label"])


def _array(column: Any, spec: Dict[str, Any]) -> Any:
    """A column as a NumPy array, or one of pandas' own, of the dtype that it had."""
    import numpy
    import pandas

    if spec["dtype"] == "category":
        categories = pandas.Index(_array(column._child(1), {"dtype": spec["categories"]}))
        kind = pandas.CategoricalDtype(categories, spec["ordered"])
        return pandas.Categorical.from_codes(_series.codes_of(column), dtype=kind)
    if _series.EXTENSION in column.metadata:
        return _series.to_array(column)
    dtype = pandas.api.types.pandas_dtype(spec["dtype"])
    if dtype == object:
        return _values.objects_array(column.tolist())
    if isinstance(dtype, numpy.dtype):
        return column.to_numpy().astype(dtype, copy=False)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        utc = pandas.DatetimeIndex(column.to_numpy()).tz_localize("UTC")
        return utc.tz_convert(dtype.tz).array
    return _series.of_dtype(column, spec["dtype"])


# ---- frames in tables: the metadata of pandas ----
# Of cuDF's frames, Series and Indexes these functions ask the same as of pandas', but never for their values.

PANDAS_TYPES = {"string": "unicode", "boolean": "bool", "integer": "int64", "floating": "float64"}
ATTRS = "PANDAS_ATTRS"  # the key of a frame's attrs, as in pandas' own Parquet files


def is_cudf(value: Any) -> bool:
    """Whether a value is cuDF's."""
    return type(value).__module__.partition(".")[0] == "cudf"


def is_plain_index(index: Any) -> bool:
    """Whether an index is 0, 1, 2, … without a name, which is the default of a frame. Nobody looks at numbers on a GPU."""
    if index.nlevels > 1 or index.name is not None:
        return False
    if type(index).__name__ == "RangeIndex":
        return bool(index.start == 0 and index.step == 1)
    if str(index.dtype) != "int64" or is_cudf(index):
        return False
    import numpy

    return bool((index.to_numpy() == numpy.arange(len(index))).all())


def block_of(frame: Any) -> Any:
    """The columns of a frame whose numbers lie in one array of one type: that array, a row for each; or None."""
    import numpy

    dtypes = frame.dtypes.tolist()
    if len(dtypes) < 2 or len(frame) < 2 or not isinstance(dtypes[0], numpy.dtype) or dtypes.count(dtypes[0]) != len(dtypes):
        return None
    if dtypes[0].kind not in "iuf" or dtypes[0].itemsize > 8 or not dtypes[0].isnative:
        return None
    # A frame of several arrays would be copied to be one: a small part of it shows whether it is.
    probe, first = frame.iloc[:2].to_numpy(), frame.iloc[:, 0].to_numpy()
    if probe.__array_interface__["data"] != first.__array_interface__["data"]:
        return None
    return numpy.ascontiguousarray(frame.to_numpy().T)


def with_metadata(frame: Any, block: Any = None) -> Tuple[Dict[str, Any], Optional[Tuple[bytes, ...]]]:
    """(columns by name, metadata of the table: key, value, …) of a DataFrame. TypeError, ValueError.

    `block`: what block_of() found; then the columns that are its rows are None.
    """
    labels = frame.columns
    if labels.nlevels > 1:
        raise TypeError(
            "the columns have several levels of names: make one of them, for example with "
            "frame.columns = frame.columns.map(str)"
        )
    if not labels.is_unique:
        raise ValueError("several columns have the same name")
    columns: Dict[str, Any] = {}
    told = []
    numbers = str(labels.dtype).startswith(("int", "uint"))
    for label, column in zip(labels.tolist(), itertools.repeat(None)) if block is not None else frame.items():
        if not isinstance(label, str) and not numbers:
            raise TypeError(
                f"a column's name is a str, or all are whole numbers, not {label!r}: "
                "frame.rename(columns=str) makes text of the names"
            )
        name = str(label)
        columns[name] = column
        if block is None and not _comes_back(column):
            told.append(_told_of(column, name, name))
    index, levels = _told_of_index(frame.index, columns)
    pairs = _attrs_of(frame)
    if told or levels or numbers or labels.name is not None or not is_plain_index(frame.index):
        names = {"name": _label(labels.name), "field_name": None, "metadata": None}
        kind = {"pandas_type": str(labels.dtype), "numpy_type": str(labels.dtype)} if numbers else {
            "pandas_type": "unicode", "numpy_type": "object"}
        text = {"index_columns": index, "column_indexes": [{**names, **kind}], "columns": told + levels,
                "creator": {"library": "gpubufd"}, "pandas_version": _pandas().__version__}
        pairs = (b"pandas", json.dumps(text, ensure_ascii=False).encode(), *pairs)
    return columns, pairs or None


def _attrs_of(frame: Any) -> Tuple[bytes, ...]:
    """The metadata for a frame's attrs, if JSON has all of them; else a warning says that they are not kept."""
    attrs = getattr(frame, "attrs", None)
    if not attrs:
        return ()
    try:
        text = json.dumps(attrs)
        if json.loads(text) == attrs:
            return ATTRS.encode(), text.encode()
    except (TypeError, ValueError):
        pass
    warnings.warn("the frame's attrs are not kept: JSON has no form for all of them; keep text, numbers, lists and "
                  "dicts with text for keys there", stacklevel=7)
    return ()


def _pandas() -> Any:
    import pandas

    return pandas


def _kind_of(values: Any) -> str:
    """The type of a column's objects, as infer_dtype() names it; "": the dtype is not object."""
    if values.dtype != object:
        return ""
    if is_cudf(values):
        return "string"  # cuDF has no other objects
    # Text is known by its beginning, since other objects beside it are refused.
    is_text = isinstance(next((value for value in values.array[:9] if value is not None), None), str)
    kind = "string" if is_text else str(_pandas().api.types.infer_dtype(values, skipna=True))
    # Text is a dtype of its own since pandas 3.
    return "mixed" if kind in ("string", "empty") and not _series.before(3) else kind


def _comes_back(column: Any) -> bool:
    """Whether _series.to_array() restores the column without an entry in the metadata."""
    import numpy

    dtype = column.dtype
    if dtype == object:
        kind = _kind_of(column)
        return kind in ("string", "bytes", "decimal", "time") or kind == "mixed" and _series.before(3)
    if isinstance(dtype, numpy.dtype):
        return bool(dtype.kind in "biufmMc")
    if dtype.name.startswith(("period", "interval")):
        return True  # the column's own metadata say it
    if getattr(dtype, "tz", None) is not None:
        return _series.maker_of(dtype.tz) is None and not hasattr(dtype, "pyarrow_dtype")
    if dtype.name in ("list", "struct") or dtype.name.startswith("decimal"):
        return True  # cuDF's
    return bool(dtype.name == "str" and dtype == _series.text_dtype())


def _told_of(column: Any, name: Any, field: Any) -> Dict[str, Any]:
    """A column's entry in `columns` of the metadata."""
    dtype = column.dtype
    text = str(dtype)
    more: Optional[Dict[str, Any]] = None
    kind = PANDAS_TYPES.get(_kind_of(column), _kind_of(column)) or text.lower()
    if hasattr(dtype, "ordered"):
        import numpy

        kind, text = "categorical", str(numpy.min_scalar_type(-2 - len(dtype.categories)))  # that of the codes
        more = {"num_categories": len(dtype.categories), "ordered": bool(dtype.ordered)}
        if not _comes_back(dtype.categories):
            more["categories"] = _told_of(dtype.categories, None, None)
    elif hasattr(dtype, "pyarrow_dtype"):
        kind = "object"
    elif getattr(dtype, "tz", None) is not None:
        kind, text, more = "datetimetz", "datetime64[ns]", {"timezone": _zones.name_of(dtype.tz, field)}
        if _series.maker_of(dtype.tz):
            more["tzinfo"] = _series.maker_of(dtype.tz)
    elif text.startswith("string"):
        kind, usual = "unicode", _pandas().StringDtype().storage
        text = text if text != "string" or dtype.storage == usual else f"string[{dtype.storage}]"
    elif dtype.kind in "mM":
        kind = "datetime" if dtype.kind == "M" else "timedelta"
    if dtype.kind in "mM" and _freq_of(column):
        more = {**(more or {}), "freq": _freq_of(column)}
    return {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": text, "metadata": more}


def _told_of_index(index: Any, columns: Dict[str, Any]) -> Tuple[List[Any], List[Dict[str, Any]]]:
    """(`index_columns`, entries of `columns` for them); an index that is no range is added to `columns`."""
    if type(index).__name__ == "RangeIndex":
        return [{"kind": "range", "name": _label(index.name), "start": index.start, "stop": index.stop,
                 "step": index.step}], []
    if is_plain_index(index):
        return [{"kind": "range", "name": None, "start": 0, "stop": len(index), "step": 1}], []
    if index.nlevels == 1 and hasattr(index, "levels"):
        raise TypeError("the index is a MultiIndex of one level: frame.index.get_level_values(0) makes a plain one of it")
    fields, entries = [], []
    for i in range(index.nlevels):
        level, codes = index, None
        if is_cudf(index) and index.nlevels > 1:  # which has the rows' values
            level = index.get_level_values(i)
        elif index.nlevels > 1:
            level, codes = index.levels[i], index.codes[i]
        named = isinstance(level.name, str) and level.name not in columns
        field = level.name if named else f"__index_level_{i}__"
        if field in columns:
            raise TypeError(f"a column is called {field!r}, which is the name kept for the index: rename it")
        columns[field] = level if codes is None else _as_categorical(level, codes)
        fields.append(field)
        entries.append(_told_of(level, _label(level.name), field))
    return fields, entries


def _as_categorical(level: Any, codes: Any) -> Any:
    """A level of a MultiIndex as what it is: numbers of distinct values."""
    import numpy

    ordered = False
    if hasattr(level.dtype, "ordered"):
        ordered, inner, level = level.ordered, level.codes, level.categories
        codes = numpy.where(codes < 0, -1, inner[codes]) if len(inner) else codes
    return _series.categorical_of(numpy.asarray(codes), level, ordered)


# ---- tables as frames ----


class Told(NamedTuple):
    """A frame, as the metadata of a table describe it."""

    entries: Dict[str, Dict[str, Any]]  # by the name of the table's column
    levels: List[Any]  # names of the index's columns, or descriptions of ranges
    label: Any  # the name of the columns
    labels: str  # the dtype of the columns' names
    trusted: bool  # this package wrote them


NOTHING = Told({}, [], None, "", False)


def read(table: Any) -> Told:
    """Raises an exception of any kind if the metadata are malformed."""
    if "pandas" not in table.metadata:
        return NOTHING
    told = json.loads(table.metadata["pandas"])
    entries = {entry.get("field_name", entry["name"]): entry for entry in told.get("columns", ())}
    levels = [one for one in told.get("index_columns", ()) if isinstance(one, dict) or one in entries]
    (labels,) = told.get("column_indexes") or [{}]
    trusted = (told.get("creator") or {}).get("library") == "gpubufd"
    return Told(entries, levels, labels.get("name"), str(labels.get("numpy_type")), trusted)


def _more(entry: Dict[str, Any]) -> Any:
    return entry.get("metadata")


def to_frame(table: Any) -> Any:
    """A pandas DataFrame of a table; a plain one if its metadata make no sense, since a table is anybody's."""
    if table._ordinal >= 0:
        raise TypeError(f"{table.name!r} is on a GPU: use to_cudf(), or to_host()")
    try:
        return _frame_of(table, read(table))
    except (AttributeError, LookupError, NotImplementedError, TypeError, ValueError):
        return _frame_of(table, NOTHING)


def _frame_of(table: Any, told: Told) -> Any:
    names = table.names
    index, levels = _index_of(table, told)
    names = [name for name in names if name not in levels]
    values = _block(table, told, names)
    labels = labels_of(names, told)
    if values is not None:
        frame = _pandas().DataFrame(values.T, index=index, columns=labels, copy=False)
    else:
        arrays = {name: _settled(_series.restored(table._column(name), told.entries.get(name, {})), index) for name in names}
        frame = _pandas().DataFrame(arrays, index=index, copy=False)
        frame.columns = labels
    attrs = attrs_of(table)
    if attrs:
        frame.attrs = attrs
    return frame


def _settled(array: Any, index: Any) -> Any:
    """The array; one of objects as a Series, since pandas would look at each object for a type of its own."""
    return _pandas().Series(array, index=index, dtype=object, copy=False) if array.dtype == object else array


def _block(table: Any, told: Told, names: List[str]) -> Any:
    """Columns of one type as one array over the table's memory; None: they are not, or do not lie so."""
    if table.names[: len(names)] != names or not told.entries.keys().isdisjoint(names):
        return None
    return _series.block(table, len(names))


def attrs_of(table: Any) -> Any:
    try:
        found = json.loads(table.metadata.get(ATTRS, "{}"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def labels_of(names: List[str], told: Told) -> Any:
    pandas = _pandas()
    labels = pandas.Index(names, dtype=(_series.text_dtype() if names else None) or object)
    if told.labels.startswith(("int", "uint")):
        try:
            labels = labels.astype(told.labels)
        except (TypeError, ValueError, OverflowError):
            pass  # a column has been added by hand
    return labels.rename(told.label) if told.label is not None else labels


def index_of(table: Any, told: Told) -> Tuple[List[str], Tuple[Any, ...]]:
    """(the columns that an index is made of, else start, stop, step and name of a RangeIndex)"""
    count = len(table)
    for one in told.levels:
        if isinstance(one, dict):
            there = one["start"], one["stop"], one["step"]
            return [], (*(there if len(range(*there)) == count else (0, count, 1)), one.get("name"))
    return [one for one in told.levels if one in table.names], (0, count, 1, None)


def _index_of(table: Any, told: Told) -> Tuple[Any, List[str]]:
    """(the index, the columns that it is made of)"""
    pandas = _pandas()
    fields, (start, stop, step, name) = index_of(table, told)
    if not fields:
        return pandas.RangeIndex(start, stop, step, name=name), []
    if len(told.levels) > 1:
        return _levels(table, told, fields), fields
    entry = told.entries[fields[0]]
    array = _series.restored(table._column(fields[0]), entry)
    return _with_freq(pandas.Index(array, dtype=array.dtype, name=entry["name"], copy=False), entry), fields


def _with_freq(index: Any, entry: Dict[str, Any]) -> Any:
    """The index, with the `freq` that its entry in the metadata tells."""
    freq = (_more(entry) or {}).get("freq")
    if freq is not None:
        try:
            index.freq = freq
        except (AttributeError, TypeError, ValueError):  # the rows are not those of the frame
            pass
    return index


def numbered_levels(table: Any) -> List[str]:
    """The columns that are levels of a MultiIndex and are dictionaries for that reason alone."""
    try:
        told = read(table)
        fields = [one for one in told.levels if isinstance(one, str) and told.trusted and len(told.levels) > 1]
        return [one for one in fields if one in table.names and table._column(one)._dtype == "dictionary"
                and told.entries[one].get("pandas_type") != "categorical"]
    except (AttributeError, LookupError, TypeError, ValueError):
        return []


def _levels(table: Any, told: Told, fields: List[str]) -> Any:
    """A MultiIndex. This package writes its own numbers and values, others write the values of the rows."""
    import numpy

    pandas = _pandas()
    names = [told.entries[field]["name"] for field in fields]
    columns = [table._column(field) for field in fields]
    if not told.trusted or any(column._dtype != "dictionary" for column in columns):
        arrays = [_series.restored(column, told.entries[field]) for field, column in zip(fields, columns)]
        return pandas.MultiIndex.from_arrays(arrays, names=names)
    levels, codes = [], []
    for field, column in zip(fields, columns):
        entry = told.entries[field]
        if entry.get("pandas_type") == "categorical":
            made = _series.categorical(column, entry)
            level = pandas.CategoricalIndex(_series.categorical_of(numpy.arange(len(made.categories)), made.categories,
                                                                   made.ordered))
        else:
            values = _series.restored(column._child(1), entry)
            level = _with_freq(pandas.Index(values, dtype=values.dtype, copy=False), entry)
            made = _series.categorical_of(_series.codes_of(column), level, False)
        levels.append(level)
        codes.append(made.codes)
    return pandas.MultiIndex(levels=levels, codes=codes, names=names, verify_integrity=False)
