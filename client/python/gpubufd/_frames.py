"""Pandas frames as the columns of a table and back, with their index, labels and dtypes.

A spec is what a table cannot say of the frame that it was, as JSON: `columns` ({name, label, dtype, and of
categoricals categories and ordered}), `label` (of the columns themselves) and `index` (either `range`, or
`name`, `dtype` and perhaps `freq` of a column; and `label`). `series` is true of a Series.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

from ._layout import at_column

INDEX = "__index__"


def take_apart(frame: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """(columns by name, spec) of a DataFrame or Series. TypeError: what cannot be kept."""
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
    """What to say of an index; one that is not a range is added to the columns."""
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
    """What makes the dtype again."""
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
    """The frame that a table's columns were; numbers without nulls lie over the table's memory."""
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
