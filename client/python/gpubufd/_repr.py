"""How objects show themselves: a few lines of text, and a table with small plots in notebooks."""

from __future__ import annotations

import html as _html
import math
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _fetch, _floats
from ._layout import ARRAY, BUNDLE, BYTES, TABLE

ROWS = 5  # shown at each end
COLUMNS = 12
RECORDS = 50  # of a list of objects
LEFT_OUT = ["…", "…"]
PLOT_POINTS = 60
PLOT_ALL = 1 << 20  # a longer column on the host is sampled for its plot
MATRIX_BYTES = 65536  # a larger array on a GPU is not fetched to be shown


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _value(value: Any, quote: Callable[[Any], str] = repr) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _short(quote(value) if isinstance(value, (str, bytes)) else str(value), 32)


def _plain(value: Any) -> str:
    """Text as it is; in quotes if it would read as the sign of a null or of values left out."""
    return repr(value) if value in ("null", "…") else str(value)


def _short(text: str, most: int = 64) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _where(held: Any) -> str:
    kind = "hip" if held.device.startswith("HIP-") else "cuda"
    return "host" if held._ordinal < 0 else f"{kind}:{held._ordinal}"


def _title(held: Any) -> str:
    kind = type(held).__name__
    name = repr(held.name)
    if held._column_name:
        name += f"[{held._column_name!r}]"
    if held.kind == TABLE:
        many = "" if held._child_count == 1 else "s"
        what = f"{len(held):,} rows × {held._child_count} column{many}"
    elif held.kind == BUNDLE:
        what = _tensors(held)
    elif held.kind == BYTES:
        what = _size(held._length)
    elif held.kind == ARRAY:
        what = f"{held._dtype} {held.shape}"
    else:
        what = f"{held._dtype} × {held._length:,}"
    nulls = 0 if held.kind in (TABLE, BUNDLE) else held._null_count
    state = "" if held.version else ", not sealed"
    extra = "" if not nulls else ", nulls" if nulls < 0 else f", {nulls:,} null"
    return f"gpubufd.{kind} {name}: {what}{extra}, on {_where(held)}{state}"


def _ends(held: Any, length: int) -> List[Any]:
    """Values at both ends, Ellipsis between them."""
    if length <= 2 * ROWS:
        return _fetch.to_list(held)
    return _fetch.elements(held, 0, ROWS) + [...] + _fetch.elements(held, length - ROWS, ROWS)


def _cells(column: Any, quote: Callable[[Any], str] = repr) -> List[str]:
    try:
        values = _ends(column, column._length)
    except Exception as error:  # a repr must not fail: it says what is wrong instead
        return [f"<{error}>"]
    return ["…" if value is ... else _value(value, quote) for value in values]


def _tensors(bundle: Any) -> str:
    try:
        count = len(bundle)
        return f"{count:,} tensor{'' if count == 1 else 's'}, {_size(bundle.nbytes)}"
    except Exception as error:  # a repr must not fail: it says what is wrong instead
        return f"<{error}>"


def _list(bundle: Any) -> List[Tuple[str, str]]:
    """(name, type and shape) of the tensors at both ends."""
    try:
        found = bundle._entries()
    except Exception:  # a repr must not fail
        return []
    all_of_them = len(found) <= 2 * ROWS
    shown = found if all_of_them else found[:ROWS] + found[-ROWS:]
    rows = [(_short(repr(name)), f"{dtype} {shape}") for name, dtype, shape, _, _ in shown]
    return rows if all_of_them else [*rows[:ROWS], ("…", ""), *rows[ROWS:]]


def text(held: Any) -> str:
    if held.released:
        return f"<gpubufd.{type(held).__name__}, released>"
    title = _title(held)
    if held.kind == BUNDLE:
        rows = _list(held)
        width = max((len(name) for name, _ in rows), default=0)
        return f"<{title}>" + "".join(f"\n  {name.ljust(width)}  {what}".rstrip() for name, what in rows)
    if held.kind == BYTES or not held._length or not held.version:
        names = "\n  " + ", ".join(held.names[:COLUMNS]) if held.kind == TABLE else ""
        return f"<{title}>{names}"
    if held.kind == TABLE:
        return f"<{title}>\n" + _grid(held)
    if held.kind == ARRAY and held.ndim != 1:
        return f"<{title}>{_matrix(held)}"
    return f"<{title}>\n  [" + ", ".join(_cells(held)) + "]"


def _matrix(held: Any) -> str:
    """NumPy's text of an array of other than one axis; empty for a large array on a GPU."""
    try:
        if held._ordinal >= 0 and held.nbytes > MATRIX_BYTES:
            return ""
        return "\n" + _numbers(held.to_numpy() if held._ordinal < 0 else held.copy_to_host())
    except Exception:  # a repr must not fail
        return ""


def _numbers(array: Any) -> str:
    """NumPy's text; of more than two axes, such as a stack of images, only the ends of each."""
    import numpy

    few: Dict[str, Any] = {"edgeitems": 1, "threshold": 64} if array.ndim > 2 else {}
    return str(numpy.array2string(array, **few))


def _shown(table: Any) -> List[Any]:
    """The columns to be shown, None for those that are left out."""
    columns: List[Any] = table.values()
    if len(columns) <= COLUMNS:
        return columns
    half = COLUMNS // 2
    return columns[:half] + [None] + columns[-half:]


def _room() -> int:
    """The columns of the terminal that is printed to; 0: it is none, and a line may be as long as it likes."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (AttributeError, OSError, ValueError):  # somebody's own stdout
        return 0


def _fitting(blocks: List[List[str]], room: int) -> List[List[str]]:
    """The columns at both ends for which a line has room, with "…" in the place of the others."""
    widths = [2 + max(map(len, block)) for block in blocks]
    if not room or len(blocks) == 1 or sum(widths) <= room:
        return blocks
    left, right, used = 1, 0, 3 + widths[0]
    while True:
        following = left if left <= right else len(blocks) - 1 - right
        used += widths[following]
        if used > room:
            return blocks[:left] + [LEFT_OUT] + blocks[len(blocks) - right:]
        left, right = (left + 1, right) if following == left else (left, right + 1)


def _grid(table: Any) -> str:
    blocks = []
    for column in _shown(table):
        if column is None:
            blocks.append(LEFT_OUT)
            continue
        blocks.append([column._column_name or "", column._dtype] + _cells(column))
    blocks = _fitting(blocks, _room()) if blocks else []
    height = max(len(block) for block in blocks) if blocks else 0
    blocks = [block + [""] * (height - len(block)) for block in blocks]
    widths = [max(len(cell) for cell in block) for block in blocks]
    lines = []
    for row in range(height):
        cells = (block[row].rjust(width) for block, width in zip(blocks, widths))
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines)


# ---- notebooks ----

WIDTH, HEIGHT = 120, 28
CELL = "padding:2px 10px;white-space:nowrap"


def _is_numeric(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "float", "bfloat", "decimal"))


def _all_values(column: Any) -> Optional[Any]:
    """A numeric column's values as an array of float64, NaN for nulls; None: too many, or not for NumPy."""
    dtype = column._dtype
    if column._ordinal >= 0 or column._length > PLOT_ALL:
        return None
    if dtype in _floats.FOREIGN or not dtype.startswith(("int", "uint", "float")):
        return None
    try:
        import numpy
    except ImportError:
        return None
    values = numpy.array(column._view().to_numpy(), dtype="f8")
    if column._has_mask and column._null_count != 0:
        values[~column._validity().to_numpy()] = numpy.nan
    values[~numpy.isfinite(values)] = numpy.nan
    return values


def _sample(column: Any) -> List[float]:
    """Some of a numeric column's values, evenly spread; NaN for nulls."""
    length = column._length
    count = min(length, PLOT_POINTS)
    values = []
    for i in range(count):
        at = i * (length - 1) // max(count - 1, 1)
        value = _fetch.elements(column, at, 1)[0]
        good = value is not None and math.isfinite(value)
        values.append(float(value) if good else math.nan)
    return values


def _bands(column: Any) -> List[Tuple[float, float]]:
    """(least, greatest) of each of at most PLOT_POINTS stretches of a column, or of samples of it."""
    values = _all_values(column)
    if values is None or len(values) <= PLOT_POINTS:
        return [(value, value) for value in (_sample(column) if values is None else values.tolist())]
    import numpy

    count = len(values)
    ends = [i * count // PLOT_POINTS for i in range(PLOT_POINTS + 1)]
    bands = []
    for begin, end in zip(ends, ends[1:]):
        part = values[begin:end]
        part = part[~numpy.isnan(part)]
        bands.append((float(part.min()), float(part.max())) if len(part) else (math.nan, math.nan))
    return bands


def plot(column: Any) -> str:
    """A small plot as SVG, and the range of what it shows; empty if there are no numbers to show."""
    if not _is_numeric(column._dtype) or not column._length:
        return ""
    try:
        bands = _bands(column)
    except Exception:  # a repr must not fail
        return ""
    finite = [value for band in bands for value in band if not math.isnan(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)

    def y(value: float) -> str:
        share = 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)
        return f"{HEIGHT - 2 - share * (HEIGHT - 4):.1f}"

    path, drawing = [], False
    for i, (least, greatest) in enumerate(bands):
        if math.isnan(least):
            drawing = False
            continue
        x = f"{1 + i * (WIDTH - 2) / max(len(bands) - 1, 1):.1f}"
        path.append(f"{'L' if drawing else 'M'}{x},{y(least)}")
        path.append(f"V{y(greatest)}" if greatest != least else "" if drawing else "h0.1")
        drawing = True
    label = _html.escape(f"from {low:.6g} to {high:.6g}")
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<title>{label}</title><path d="{"".join(path)}" fill="none" stroke="currentColor" '
        'stroke-linejoin="round"/></svg>'
        f'<br><small style="opacity:.6">{low:.4g} … {high:.4g}</small>'
    )


def _cell(tag: str, content: str, style: str) -> str:
    return f'<{tag} style="{CELL};{style}">{content}</{tag}>'


def _row(cells: List[str]) -> str:
    return "<tr>" + "".join(cells) + "</tr>"


def _body(cell: str, align: str) -> str:
    faint = ";opacity:.45" if cell in ("null", "…") else ""
    return _cell("td", _html.escape(cell), f"text-align:{align}{faint}")


def records(rows: Sequence[Any]) -> str:
    """An HTML table of dicts, or of what the daemon says of objects: of these the members that most ask for."""
    if not rows:
        return "<p>none</p>"
    found = [row if isinstance(row, dict) else _told(row) for row in rows[:RECORDS]]
    keys = list(dict.fromkeys(key for row in found for key in row))
    heads = _row([_cell("th", _html.escape(key), "text-align:left") for key in keys])
    lines = [_row([_body(_short(str(row.get(key, ""))), "left") for key in keys]) for row in found]
    more = f"<p>… {len(rows):,} in all</p>" if len(rows) > RECORDS else ""
    return f'<table style="border-collapse:collapse">{heads}{"".join(lines)}</table>{more}'


def _told(info: Any) -> Dict[str, Any]:
    more = {"label": info.label} if info.label else {}
    return {"name": info.name, "version": info.version, "size": _size(info.bytes), "tier": info.tier, "device": info.device,
            "leases": info.leases, **more}


def of_client(client: Any, name: str = "") -> str:
    title = f"<p><b>{_html.escape((name or repr(client))[1:-1])}</b></p>"
    if client.closed:
        return title
    try:
        return title + records(client.list())
    except Exception as error:  # a repr must not fail: it says what is wrong instead
        return f"{title}<p>{_html.escape(str(error))}</p>"


def of_frame(frame: Any) -> str:
    try:
        shown = _numbers(frame.array)
    except Exception as error:  # a repr must not fail: on a GPU, or given back
        shown = str(error)
    return f"<p><b>{_html.escape(repr(frame)[1:-1])}</b></p><pre>{_html.escape(shown)}</pre>"


def of_stream(stream: Any) -> str:
    title = f"<p><b>{_html.escape(repr(stream)[1:-1])}</b></p>"
    held = stream._object
    if held.released:
        return title
    return title + records([{"slots": held.shape[0], "size of a frame": _size(held.nbytes // held.shape[0]),
                             "device": _where(held)}])


def html(held: Any) -> str:
    if held.released:
        return _html.escape(text(held))
    title = f"<p><b>{_html.escape(_title(held))}</b></p>"
    if held.kind == BYTES or not held.version:
        return title
    if held.kind == BUNDLE:
        lines = [_row([_body(cell, "left") for cell in row]) for row in _list(held)]
        return f'{title}<table style="border-collapse:collapse">{"".join(lines)}</table>'
    if held.kind == ARRAY and held.ndim != 1:
        return f"{title}<pre>{_html.escape(_matrix(held)[1:])}</pre>"
    heads: List[str] = []
    plots: List[str] = []
    bodies: List[List[str]] = []
    for column in _shown(held) if held.kind == TABLE else [held]:
        if column is None:
            heads.append(_cell("th", "…", ""))
            plots.append(_cell("td", "", ""))
            bodies.append([])
            continue
        align = "right" if _is_numeric(column._dtype) else "left"
        name = _html.escape(column._column_name or column.name)
        dtype = f'<small style="font-weight:normal;opacity:.6">{_html.escape(column._dtype)}</small>'
        heads.append(_cell("th", f"{name}<br>{dtype}", f"text-align:{align}"))
        plots.append(_cell("td", plot(column), f"text-align:{align};border-bottom:1px solid"))
        bodies.append([_body(cell, align) for cell in _cells(column, _plain)])
    height = max((len(body) for body in bodies), default=0)
    empty = _cell("td", "", "")
    rows = [_row(heads), _row(plots)]
    rows += [_row([body[i] if i < len(body) else empty for body in bodies]) for i in range(height)]
    style = "border-collapse:collapse;font-variant-numeric:tabular-nums"
    return f'{title}<table style="{style}">{"".join(rows)}</table>'
