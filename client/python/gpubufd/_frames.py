"""Pandas frames as the columns of a table and back, with their index, labels and dtypes.

put() keeps what the columns alone would lose in the table's metadata, under the key "pandas", in the form that pandas
documents for Parquet files and pyarrow reads and writes too
(https://pandas.pydata.org/docs/development/developer.html). A column that comes back unchanged has no entry. Two keys are
this package's: `labels` (see _labels), and `packed`, of frames with more columns than a table may have: {a table's column
of lists of a fixed size: [names of the frame's columns in it, their places as (start, stop) of each run]}.

Dask's partitions share one spec, which lies in the manifest. A spec has, as JSON, what a table cannot say of its
frame: `columns` ({name, label, dtype, and of categoricals categories and ordered}), `label` (of the columns
themselves) and `index` (either `range`, or `name`, `dtype` and perhaps `freq` of a column; and `label`). `series` is
true of a Series.
"""

from __future__ import annotations

import json
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from . import _core, _labels, _series, _values, _zones
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
        described.append({"name": name, "label": _labels.plain(label), **_describe(column.dtype, name)})
    spec: Dict[str, Any] = {"columns": described, "index": _index_spec(frame.index, columns)}
    if series:
        spec["series"] = True
        return columns, spec
    if frame.columns.name is not None:
        spec["label"] = _labels.plain(frame.columns.name)
    if frame.columns.dtype != _pandas().Index([one["label"] for one in described]).dtype:  # not what pandas would make
        spec["labels"] = str(frame.columns.dtype)
    return columns, spec


def _index_spec(index: Any, columns: Dict[str, Any]) -> Dict[str, Any]:
    """The description of an index; one that is not a range is added to the columns."""
    if index.nlevels > 1:
        raise TypeError("the index has several levels: reset_index() makes columns of them")
    if type(index).__name__ == "RangeIndex":
        return {"range": [index.start, index.stop, index.step], "label": _labels.plain(index.name)}
    name = index.name if isinstance(index.name, str) and index.name not in columns else INDEX
    if name in columns:
        raise TypeError(f"a column is called {INDEX!r}, which is the name kept for the index: rename it")
    columns[name] = index
    spec = {"name": name, "label": _labels.plain(index.name), **_describe(index.dtype, name)}
    freq = _freq_of(index)
    return spec if freq is None else {**spec, "freq": freq}


def _freq_of(index: Any) -> Optional[str]:
    """The name of an index' `freq`."""
    try:
        freq = getattr(index, "freq", None)
    except NotImplementedError:  # of cuDF's TimedeltaIndex
        return None
    return None if freq is None else str(freq.freqstr)


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
        return _values.objects(column)
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


def blocks_of(frame: Any) -> List[Tuple[List[int], Any]]:
    """A pandas frame as it lies: (numbers of columns, their array: a row for each, or one array of pandas' own)."""
    return [(block.mgr_locs.as_array.tolist(), block.values) for block in frame._mgr.blocks]


def merged(blocks: List[Tuple[List[int], Any]]) -> List[Tuple[List[int], Any]]:
    """The blocks of a frame, those of numbers of one type as one."""
    import numpy

    alike: Dict[Any, List[Tuple[List[int], Any]]] = {}
    for i, (places, values) in enumerate(blocks):
        alike.setdefault(values.dtype if is_numbers(values) else i, []).append((places, values))
    found = []
    for several in alike.values():
        places = [place for some, _ in several for place in some]
        values = several[0][1] if len(several) == 1 else numpy.concatenate([values for _, values in several])
        if places != sorted(places):
            places, values = sorted(places), values[numpy.argsort(places)]
        found.append((places, values))
    return found


def is_numbers(values: Any) -> bool:
    """Whether an array of a frame has numbers, a row for each column."""
    import numpy

    return isinstance(values, numpy.ndarray) and values.ndim == 2 and values.dtype.kind in "iuf" and values.itemsize <= 8


def runs_of(places: List[int]) -> List[List[int]]:
    """(start, stop) of each run of consecutive numbers."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return [[places[0], places[-1] + 1]]
    starts = [i for i, place in enumerate(places) if i == 0 or place != places[i - 1] + 1]
    return [[places[start], places[stop - 1] + 1] for start, stop in zip(starts, [*starts[1:], len(places)])]


def metadata_of(
    frame: Any, names: List[str], columns: Iterable[Any], labels: _labels.Told, packed: Mapping[str, Any] = {},
) -> Tuple[Dict[str, Any], Optional[Tuple[bytes, ...]]]:
    """(columns that the index becomes by name, metadata of the table: key, value, …) of a DataFrame. TypeError.

    `names`, `labels`: what _labels has written. `columns`: of each an array or Series; None: of numbers. `packed`: what
    columns are in which others.
    """
    told = [_told_of(column, name, name) for name, column in zip(names, columns) if column is not None and not _comes_back(column)]
    levels: Dict[str, Any] = {}
    index, entries = _told_of_index(frame.index, levels, set(names))
    pairs = _attrs_of(frame)
    if told or levels or labels.levels or labels.more or packed or not is_plain_index(frame.index):
        text = {"index_columns": index, "column_indexes": labels.levels or [_labels.TEXT], "columns": told + entries,
                "creator": {"library": "gpubufd"}, "pandas_version": _pandas().__version__}
        text.update({key: value for key, value in (("labels", labels.more), ("packed", packed)) if value})
        pairs = (b"pandas", json.dumps(text, ensure_ascii=False).encode(), *pairs)
    return levels, pairs or None


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
    some = getattr(values, "array", values)[:9]
    is_text = isinstance(next((value for value in some if value is not None), None), str)
    kind = "string" if is_text else str(_pandas().api.types.infer_dtype(values, skipna=True))
    # Text is a dtype of its own since pandas 3.
    return "mixed" if kind in ("string", "empty") and not _series.before(3) else kind


def _comes_back(column: Any) -> bool:
    """Whether _series.to_array() restores the column without an entry in the metadata."""
    import numpy

    dtype = column.dtype
    if isinstance(dtype, numpy.dtype) and dtype.kind != "O":
        return bool(dtype.kind in "biufmMc")
    if dtype == object:
        kind = _kind_of(column)
        return kind in ("string", "bytes", "decimal", "time") or kind == "mixed" and _series.before(3)
    if dtype.name.startswith(("period", "interval")):
        return True  # the column's own metadata say it
    if getattr(dtype, "tz", None) is not None:
        return _series.maker_of(dtype.tz) is None and not hasattr(dtype, "pyarrow_dtype")
    if dtype.name in ("list", "struct") or dtype.name.startswith("decimal") and not hasattr(dtype, "pyarrow_dtype"):
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


def _told_of_index(index: Any, levels: Dict[str, Any], names: Set[str]) -> Tuple[List[Any], List[Dict[str, Any]]]:
    """(`index_columns`, entries of `columns` for them); an index that is no range is added to `levels`.

    `names`: the names of other columns.
    """
    if type(index).__name__ == "RangeIndex":
        return [{"kind": "range", "name": _labels.plain(index.name), "start": index.start, "stop": index.stop,
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
        named = isinstance(level.name, str) and level.name not in names
        field = level.name if named else f"__index_level_{i}__"
        if field in names:
            raise TypeError(f"a column is called {field!r}, which is the name kept for the index: rename it")
        names.add(field)
        levels[field] = level if codes is None else _as_categorical(level, codes)
        fields.append(field)
        entries.append(_told_of(level, _labels.plain(level.name), field))
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
    labels: _labels.Told
    trusted: bool  # this package wrote them
    packed: Dict[str, Any]  # columns that are in others
    attrs: Optional[Dict[str, Any]]


NOTHING = Told({}, [], _labels.Told(), False, {}, None)
MALFORMED = (AttributeError, LookupError, NotImplementedError, RecursionError, SyntaxError, TypeError, ValueError)


def read(table: Any) -> Told:
    """Raises one of MALFORMED if the metadata are that."""
    metadata = table.metadata
    attrs = attrs_of(metadata)
    if "pandas" not in metadata:
        return NOTHING._replace(attrs=attrs)
    told = json.loads(metadata["pandas"])
    entries = {entry.get("field_name", entry["name"]): entry for entry in told.get("columns", ())}
    levels = [one for one in told.get("index_columns", ()) if isinstance(one, dict) or one in entries]
    trusted = (told.get("creator") or {}).get("library") == "gpubufd"
    labels = _labels.Told(told.get("column_indexes") or (), told.get("labels") if trusted else None)
    return Told(entries, levels, labels, trusted, told.get("packed") or {} if trusted else {}, attrs)


def attrs_of(metadata: Dict[str, str]) -> Any:
    if ATTRS not in metadata:
        return None
    try:
        found = json.loads(metadata[ATTRS])
    except (RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _more(entry: Dict[str, Any]) -> Any:
    return entry.get("metadata")


def to_frame(table: Any) -> Any:
    """A pandas DataFrame of a table; a plain one if its metadata make no sense, since a table is anybody's."""
    if table._ordinal >= 0:
        raise TypeError(f"{table.name!r} is on a GPU: use to_cudf(), or to_host()")
    try:
        return _frame_of(table, read(table))
    except MALFORMED:
        return _frame_of(table, NOTHING)


def _frame_of(table: Any, told: Told) -> Any:
    import numpy

    index, levels = _index_of(table, told)
    fields = table.names
    names: List[str] = []
    blocks = []
    packed = {}
    for first, count, apart in _runs(table, fields, {*told.entries, *told.packed, *levels}):
        column, inside = table._child(first), fields[first : first + count]
        if fields[first] in levels:
            continue
        if fields[first] in told.packed:
            inside, packed[len(names)] = told.packed[fields[first]]
            values = _series.unpacked(column, len(inside))
        elif count > 1:
            values = _series.block(column, count, apart)
        else:
            values = _series.restored(column, told.entries.get(fields[first], {}))
        blocks.append((values, numpy.arange(len(names), len(names) + len(inside))))
        names += inside
    if packed:
        names, blocks = _in_order(names, blocks, packed)
    frame = _of_blocks(blocks, index, _labels.read(names, told.labels))
    if told.attrs:
        frame.attrs = told.attrs
    return frame


def _runs(table: Any, fields: List[str], alone: Set[str]) -> Iterator[Tuple[int, int, int]]:
    """(first, how many, bytes from one to the next) of a table's columns: of several in one array, and of each other one.

    `alone`: names of columns that are not as they lie.
    """
    found = table._runs() if isinstance(table, _core.Object) else [(i, 1, 0) for i in range(len(fields))]
    for first, count, apart in found:
        end = first + count
        cuts = [] if count == 1 or alone.isdisjoint(fields[first:end]) else [i for i in range(first, end) if fields[i] in alone]
        for i in [*cuts, end]:
            if i > first:
                yield first, i - first, apart
            if i < end:
                yield i, 1, 0
            first = i + 1


def _in_order(names: List[str], blocks: List[Any], packed: Dict[int, List[List[int]]]) -> Tuple[List[str], List[Any]]:
    """Names and blocks as the frame had them. `packed`: from where on names have which places, as (start, stop) of each run.

    Of some columns of a table they stay as they are.
    """
    import numpy

    places = numpy.full(len(names), -1)
    for at, runs in packed.items():
        there = numpy.concatenate([numpy.arange(start, stop) for start, stop in runs])
        places[at : at + len(there)] = there
    places[places < 0] = numpy.setdiff1d(numpy.arange(len(names)), places)[: (places < 0).sum()]
    order = numpy.argsort(places)
    if (places[order] != numpy.arange(len(names))).any():
        return names, blocks
    return [names[i] for i in order.tolist()], [(values, places[at]) for values, at in blocks]


def _of_blocks(blocks: List[Any], index: Any, labels: Any) -> Any:
    """A frame of arrays of pandas' own, and of arrays with a row for each column."""
    import numpy

    pandas = _pandas()
    shaped = [(values.reshape(1, -1) if isinstance(values, numpy.ndarray) and values.ndim == 1 else values, places)
              for values, places in blocks]
    if not _series.before(3):
        from pandas.api import internals as public

        return public.create_dataframe_from_blocks(shaped, index, labels)
    from pandas.core import internals

    made = internals.BlockManager(tuple(internals.make_block(values, placement=at) for values, at in shaped), [labels, index])
    return pandas.DataFrame._from_mgr(made, made.axes) if hasattr(pandas.DataFrame, "_from_mgr") else pandas.DataFrame(made)


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
            if _is_even(index, freq):
                holder = index if hasattr(type(index), "_freq") else index._data  # the index' own since pandas 3.1
                holder._freq = _pandas().tseries.frequencies.to_offset(freq)
            if index.freq != freq:
                index.freq = freq
        except (AttributeError, TypeError, ValueError):  # the rows are not those of the frame
            pass
    return index


def _is_even(index: Any, freq: str) -> bool:
    """Whether an index has times at the constant distance of its `freq`: pandas takes several times as long to say so."""
    pandas = _pandas()
    offset = pandas.tseries.frequencies.to_offset(freq)
    days = isinstance(offset, pandas.offsets.Day) and getattr(index, "tz", None) is None
    if not days and not hasattr(offset, "delta") and not isinstance(offset, pandas.offsets.Tick) or len(index) < 2:
        return False
    step = pandas.Timedelta(offset.n, "D") if days else pandas.Timedelta(offset)
    times = index.asi8
    first, second = index[:2]
    return bool(second - first == step) and _core.is_even(times, int(times[1] - times[0]))


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
