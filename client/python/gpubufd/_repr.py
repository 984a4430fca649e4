"""How objects show themselves: a few lines of text, and a table with small plots in notebooks."""

from __future__ import annotations

import html as _html
import math
from typing import Any, List, Optional

from ._objects import Array, Bytes, Column, Table

ROWS = 5  # shown at each end
COLUMNS = 12
PLOT_POINTS = 60


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value) if not isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= 32 else text[:31] + "…"


def _where(held: Any) -> str:
    return "host" if held._ordinal < 0 else f"cuda:{held._ordinal}"


def _title(held: Any) -> str:
    kind = type(held).__name__
    name = repr(held.name)
    if held._column_name:
        name += f"[{held._column_name!r}]"
    if isinstance(held, Table):
        what = f"{len(held):,} rows × {held._child_count} columns"
    elif isinstance(held, Bytes):
        what = _size(held._length)
    elif isinstance(held, Array):
        what = f"{held.dtype} {held.shape}"
    else:
        what = f"{held.dtype} × {held._length:,}"
    nulls = 0 if isinstance(held, Table) else held._null_count
    state = "" if held.version else ", not sealed"
    extra = "" if not nulls else ", nulls" if nulls < 0 else f", {nulls:,} null"
    return f"gpubufd.{kind} {name}: {what}{extra}, on {_where(held)}{state}"


def _ends(held: Any, length: int) -> List[Any]:
    """Values at both ends, Ellipsis between them."""
    if length <= 2 * ROWS:
        return held.tolist()
    head = held._slice(0, ROWS).tolist()
    return head + [...] + held._slice(length - ROWS, ROWS).tolist()


def _cells(column: Any) -> List[str]:
    try:
        values = _ends(column, column._length)
    except Exception as error:  # a repr must not fail: it says what is wrong instead
        return [f"<{error}>"]
    return ["…" if value is ... else _value(value) for value in values]


def text(held: Any) -> str:
    if held.released:
        return f"<gpubufd.{type(held).__name__}, released>"
    title = _title(held)
    if held._ordinal >= 0 or isinstance(held, Bytes) or not held._length or not held.version:
        names = "\n  " + ", ".join(held.names[:COLUMNS]) if isinstance(held, Table) else ""
        return f"<{title}>{names}"
    if isinstance(held, Table):
        return f"<{title}>\n" + _grid(held)
    if isinstance(held, Array) and held.ndim != 1:
        try:
            return f"<{title}>\n{held.to_numpy()}"
        except (ImportError, TypeError, ValueError):
            return f"<{title}>"
    return f"<{title}>\n  [" + ", ".join(_cells(held)) + "]"


def _shown(table: Table) -> List[Optional[Column]]:
    """The columns to be shown, None for those that are left out."""
    columns: List[Optional[Column]] = list(table)
    if len(columns) <= COLUMNS:
        return columns
    half = COLUMNS // 2
    return columns[:half] + [None] + columns[-half:]


def _grid(table: Table) -> str:
    blocks = []
    for column in _shown(table):
        if column is None:
            blocks.append(["…", "…"])
            continue
        blocks.append([column._column_name or "", column.dtype] + _cells(column))
    height = max(len(block) for block in blocks) if blocks else 0
    blocks = [block + [""] * (height - len(block)) for block in blocks]
    widths = [max(len(cell) for cell in block) for block in blocks]
    lines = []
    for row in range(height):
        cells = (block[row].rjust(width) for block, width in zip(blocks, widths))
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines)


# ---- notebooks ----


def _sample(column: Any) -> List[float]:
    """Some of a numeric column's values, evenly spread; NaN where there is none."""
    length = column._length
    count = min(length, PLOT_POINTS)
    values = []
    for i in range(count):
        at = i * (length - 1) // max(count - 1, 1)
        value = column._slice(at, 1).tolist()[0]
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        values.append(float(value) if good and math.isfinite(value) else math.nan)
    return values


def plot(column: Any) -> str:
    """A small line plot as SVG; empty if the column is not numeric or has nothing to show."""
    if not column.dtype.startswith(("int", "uint", "float")) or column._ordinal >= 0:
        return ""
    values = _sample(column)
    finite = [v for v in values if not math.isnan(v)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    width, height = 120, 28
    lines: List[List[str]] = [[]]
    for i, value in enumerate(values):
        if math.isnan(value):
            lines.append([])
            continue
        x = 1 + i * (width - 2) / max(len(values) - 1, 1)
        share = 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)
        lines[-1].append(f"{x:.1f},{height - 2 - share * (height - 4):.1f}")
    paths = "".join(
        f'<polyline points="{" ".join(line)}" fill="none" stroke="currentColor"/>'
        for line in lines
        if line
    )
    label = _html.escape(f"from {low:.6g} to {high:.6g}")
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{label}</title>{paths}</svg>"
    )


def _row(cells: List[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def html(held: Any) -> str:
    if held.released:
        return _html.escape(text(held))
    title = f"<p><b>{_html.escape(_title(held))}</b></p>"
    if isinstance(held, Bytes) or held._ordinal >= 0 or not held.version:
        return title
    if isinstance(held, Array) and held.ndim != 1:
        return f"{title}<pre>{_html.escape(text(held).partition(chr(10))[2])}</pre>"
    columns = _shown(held) if isinstance(held, Table) else [held]
    heads: List[str] = []
    plots: List[str] = []
    bodies: List[List[str]] = []
    for column in columns:
        if column is None:
            heads.append("…")
            plots.append("")
            bodies.append([])
            continue
        name = _html.escape(column._column_name or column.name)
        heads.append(f"{name}<br><small>{_html.escape(column.dtype)}</small>")
        plots.append(plot(column))
        bodies.append([_html.escape(cell) for cell in _cells(column)])
    height = max((len(body) for body in bodies), default=0)
    rows = [_row(heads, "th")]
    if any(plots):
        rows.append(_row(plots, "td"))
    rows += [_row([body[i] if i < len(body) else "" for body in bodies], "td") for i in range(height)]
    return f"{title}<table>{''.join(rows)}</table>"
