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

import json
from typing import Any, Dict, List, Optional, Tuple

from . import _values
from ._layout import at_column

INDEX = "__index__"


def take_apart(frame: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """(columns by name, spec) of a DataFrame or Series. TypeError: a part of it cannot be kept."""
    series = not hasattr(frame, "columns")
    labelled = [(frame.name, frame)] if series else [
        (label, frame.iloc[:, i]) for i, label in enumerate(frame.columns)
    ]
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
    elif frame.columns.name is not None:
        spec["label"] = _label(frame.columns.name)
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
    if getattr(index, "freq", None) is not None:
        spec["freq"] = index.freqstr
    return spec


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
    """The frame that a table was made of; numbers without nulls lie over the table's memory."""
    if table._ordinal >= 0:
        return _on_gpu(table, spec)
    import pandas

    count = table.num_rows
    index = _index(table, spec["index"])
    data = {
        i: pandas.Series(_array(table[column["name"]], column), index=index, copy=False)
        for i, column in enumerate(spec["columns"])
    }
    labels = [column["label"] for column in spec["columns"]]
    if spec.get("series"):
        data[0].name = labels[0]
        return data[0]
    if data and len(index) != count:
        raise ValueError(f"{table.name!r} has {count} rows and an index of {len(index)}")
    frame = pandas.DataFrame(data, index=index, copy=False)
    frame.columns = pandas.Index(labels, dtype=None if labels else object, name=spec.get("label"))
    return frame


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
        codes, values = column.children
        categories = pandas.Index(_array(values, {"dtype": spec["categories"]}))
        kind = pandas.CategoricalDtype(categories, spec["ordered"])
        return pandas.Categorical.from_codes(codes.to_numpy(fill=-1), dtype=kind)
    dtype = pandas.api.types.pandas_dtype(spec["dtype"])
    if dtype == object:
        array = numpy.empty(len(column), dtype=object)
        for i, value in enumerate(column.tolist()):
            array[i] = value
        return array
    if isinstance(dtype, numpy.dtype):
        return column.to_numpy().astype(dtype, copy=False)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        utc = pandas.DatetimeIndex(column.to_numpy()).tz_localize("UTC")
        return utc.tz_convert(dtype.tz).array
    if hasattr(dtype, "numpy_dtype") and not hasattr(dtype, "pyarrow_dtype"):
        masked = column.to_numpy(masked=True)
        values = numpy.asarray(masked.data).astype(dtype.numpy_dtype)
        nulls = numpy.zeros(len(values), bool) | masked.mask
        return dtype.construct_array_type()(values, nulls)
    if _values.lies_in_arrow(dtype):
        return _values.arrow_array(column, dtype)
    return pandas.array(column.tolist(), dtype=dtype)


def _on_gpu(table: Any, spec: Dict[str, Any]) -> Any:
    """A cuDF frame over the table's memory."""
    import cudf

    made = table.to_cudf()
    index = spec["index"]
    if "range" in index:
        made.index = cudf.RangeIndex(*index["range"], name=index["label"])
    else:
        made = made.set_index(index["name"])
        made.index.name = index["label"]
    made.columns = [column["label"] for column in spec["columns"]]
    return made.iloc[:, 0] if spec.get("series") else made


# ---- frames in tables: the metadata of pandas ----

PANDAS_TYPES = {"string": "unicode", "boolean": "bool", "integer": "int64", "floating": "float64"}


def is_plain_index(index: Any) -> bool:
    """Whether an index is 0, 1, 2, … without a name, which is the default of a frame."""
    if index.nlevels > 1 or index.name is not None:
        return False
    if type(index).__name__ == "RangeIndex":
        return bool(index.start == 0 and index.step == 1)
    if index.dtype.kind not in "iu":
        return False
    import numpy

    return bool((index.to_numpy() == numpy.arange(len(index))).all())


def with_metadata(frame: Any) -> Tuple[Dict[str, Any], Optional[Tuple[bytes, ...]]]:
    """(columns by name, metadata of the table: key and value) of a DataFrame. TypeError, ValueError."""
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
    numbers = labels.dtype.kind in "iu"
    for i, label in enumerate(labels):
        if not isinstance(label, str) and not numbers:
            raise TypeError(f"a column's name is a str, not {label!r}")
        columns[str(label)] = frame.iloc[:, i]
        if not _comes_back(columns[str(label)]):
            told.append(_told_of(columns[str(label)], str(label), str(label)))
    index, levels = _told_of_index(frame.index, columns)
    if not (told or levels or numbers or labels.name is not None or not is_plain_index(frame.index)):
        return columns, None
    names = {"name": _label(labels.name), "field_name": None, "metadata": None}
    kind = {"pandas_type": str(labels.dtype), "numpy_type": str(labels.dtype)} if numbers else {
        "pandas_type": "unicode", "numpy_type": "object"}
    text = {"index_columns": index, "column_indexes": [{**names, **kind}], "columns": told + levels,
            "creator": {"library": "gpubufd"}, "pandas_version": _pandas().__version__}
    return columns, (b"pandas", json.dumps(text, ensure_ascii=False).encode())


def _pandas() -> Any:
    import pandas

    return pandas


def _kind_of(values: Any) -> str:
    """The type of a column's objects, as infer_dtype() names it; "": the dtype is not object."""
    return str(_pandas().api.types.infer_dtype(values, skipna=True)) if values.dtype == object else ""


def _comes_back(column: Any) -> bool:
    """Whether to_series() restores the column without an entry in the metadata."""
    import numpy

    dtype = column.dtype
    if dtype == object:
        return _kind_of(column) in ("string", "bytes", "decimal", "time", "mixed")
    if isinstance(dtype, numpy.dtype):
        return bool(dtype.kind in "biufmMc")
    if hasattr(dtype, "ordered"):
        return not dtype.ordered
    return getattr(dtype, "tz", None) is not None


def _told_of(column: Any, name: Any, field: str) -> Dict[str, Any]:
    """A column's entry in `columns` of the metadata."""
    dtype = column.dtype
    text = str(dtype)
    more: Optional[Dict[str, Any]] = None
    kind = PANDAS_TYPES.get(_kind_of(column), _kind_of(column)) or text.lower()
    if hasattr(dtype, "ordered"):
        kind, text = "categorical", str(column.cat.codes.dtype if hasattr(column, "cat") else column.codes.dtype)
        more = {"num_categories": len(dtype.categories), "ordered": bool(dtype.ordered)}
    elif getattr(dtype, "tz", None) is not None:
        kind, text, more = "datetimetz", "datetime64[ns]", {"timezone": str(dtype.tz)}
    elif text.startswith("string"):
        kind, usual = "unicode", _pandas().StringDtype().storage
        text = text if text != "string" or dtype.storage == usual else f"string[{dtype.storage}]"
    elif dtype.kind in "mM":
        kind = "datetime" if dtype.kind == "M" else "timedelta"
    if getattr(column, "freq", None) is not None:
        more = {**(more or {}), "freq": column.freqstr}
    return {"name": name, "field_name": field, "pandas_type": kind, "numpy_type": text, "metadata": more}


def _told_of_index(index: Any, columns: Dict[str, Any]) -> Tuple[List[Any], List[Dict[str, Any]]]:
    """(`index_columns`, entries of `columns` for them); an index that is no range is added to `columns`."""
    if type(index).__name__ == "RangeIndex":
        return [{"kind": "range", "name": _label(index.name), "start": index.start, "stop": index.stop,
                 "step": index.step}], []
    if is_plain_index(index):
        return [{"kind": "range", "name": None, "start": 0, "stop": len(index), "step": 1}], []
    fields, entries = [], []
    for i in range(index.nlevels):
        level = index.get_level_values(i) if index.nlevels > 1 else index
        named = isinstance(level.name, str) and level.name not in columns
        field = level.name if named else f"__index_level_{i}__"
        if field in columns:
            raise TypeError(f"a column is called {field!r}, which is the name kept for the index: rename it")
        columns[field] = level
        fields.append(field)
        entries.append(_told_of(level, _label(level.name), field))
    return fields, entries


def to_frame(table: Any) -> Any:
    """A pandas DataFrame of a table."""
    if table._ordinal >= 0:
        raise TypeError(f"{table.name!r} is on a GPU: use to_cudf(), or to_host()")
    columns = {name: _values.to_series(table[name]) for name in table.names}
    if "pandas" in table.metadata:
        return _restored(table, columns)
    pandas = _pandas()
    return pandas.DataFrame(columns, index=pandas.RangeIndex(len(table)), copy=False)


def _restored(table: Any, series: Dict[str, Any]) -> Any:
    """The DataFrame that a table's metadata describe; a plain one if the metadata are malformed."""
    pandas = _pandas()
    try:
        told = json.loads(table.metadata.get("pandas", "{}"))
        entries = {entry.get("field_name", entry["name"]): entry for entry in told.get("columns", ())}
        columns = {name: _as_told(table[name], one, entries.get(name, {})) for name, one in series.items()}
        index = _restored_index(told.get("index_columns", ()), columns, entries, len(table))
        (labels,) = told.get("column_indexes") or [{}]
    except (AttributeError, KeyError, TypeError, ValueError):
        return pandas.DataFrame(series, index=pandas.RangeIndex(len(table)), copy=False)
    values = {name: one.array for name, one in columns.items()}
    frame = pandas.DataFrame(values, index=index, columns=list(values), copy=False)
    frame.columns.name = labels.get("name")
    if str(labels.get("numpy_type")).startswith(("int", "uint")):
        try:
            frame.columns = frame.columns.astype(labels["numpy_type"])
        except (TypeError, ValueError):
            pass  # a column has been added by hand
    return frame


def _as_told(column: Any, series: Any, entry: Dict[str, Any]) -> Any:
    """The Series with the dtype that its entry names; unchanged without one."""
    text = entry.get("numpy_type") or ""
    if entry.get("pandas_type") == "categorical" and hasattr(series, "cat"):
        ordered = bool((entry.get("metadata") or {}).get("ordered"))
        return series.cat.as_ordered() if ordered else series
    if text == "object" and series.dtype != object and entry.get("pandas_type") not in ("unicode", "bytes"):
        return _pandas().Series(_values.objects_array(column.tolist()), dtype=object, name=series.name)
    if not text[:1].isupper() and not text.startswith(("string", "boolean")) and "[pyarrow]" not in text:
        return series
    if str(series.dtype) == text:
        return series
    try:
        made = _array(column, {"dtype": text})
    except TypeError:  # a dtype that is not known here
        return series
    return _pandas().Series(made, name=series.name)


def _restored_index(told: Any, columns: Dict[str, Any], entries: Dict[str, Any], count: int) -> Any:
    """The index; its levels are taken out of the columns."""
    pandas = _pandas()
    levels, names = [], []
    for one in told:
        if isinstance(one, dict):
            made = pandas.RangeIndex(one["start"], one["stop"], one["step"], name=one["name"])
            return made if len(made) == count else pandas.RangeIndex(count, name=one["name"])
        if one in columns:
            levels.append(columns.pop(one))
            names.append(entries[one]["name"])
    if not levels:
        return pandas.RangeIndex(count)
    if len(told) > 1:
        return pandas.MultiIndex.from_arrays(levels, names=names)
    index = pandas.Index(levels[0])
    index.name = names[0]
    freq = (entries[told[0]].get("metadata") or {}).get("freq")
    if freq is not None:
        try:
            index.freq = freq
        except ValueError:  # the rows are not those of the frame
            pass
    return index
