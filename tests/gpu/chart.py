"""Bars as SVG, with nothing but Python."""

import math
from html import escape

WIDTH, LABELS, RIGHT, BAR, GAP, TOP = 760, 300, 90, 18, 8, 56
INK, GRID = "#222", "#ddd"
COLOURS = {"ours": "#2a7f62", "other": "#9aa5b1"}


def figure(value):
    """Three digits of it, or all before the point, with thin spaces between thousands."""
    if value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def ticks(least, most, log):
    if log:
        first = math.floor(math.log10(least))
        last = max(math.ceil(math.log10(most)), first + 1)
        return [10.0**k for k in range(first, last + 1)]
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if most / s <= 6)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def bars(title, unit, rows, log=False):
    """`rows`: (label, value, "ours" or "other"); the picture as text."""
    values = [value for _, value, _ in rows]
    marks = ticks(min(values), max(values), log)
    low, high = (math.log10(marks[0]), math.log10(marks[-1])) if log else (0, marks[-1])
    plot = WIDTH - LABELS - RIGHT
    bottom = TOP + len(rows) * (BAR + GAP)

    def x(value):
        at = math.log10(value) if log else value
        return LABELS + plot * (at - low) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 34}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{bottom + 34}" fill="#fff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="16" y="42" fill="#666">{escape(unit)}{", logarithmic" if log else ""}</text>',
    ]
    for mark in marks:
        out.append(f'<path d="M{x(mark):.1f} {TOP - 4}V{bottom}" stroke="{GRID}"/>')
        out.append(f'<text x="{x(mark):.1f}" y="{bottom + 16}" text-anchor="middle" fill="#666">'
                   f"{figure(mark)}</text>")
    for i, (label, value, kind) in enumerate(rows):
        y = TOP + i * (BAR + GAP)
        out.append(f'<text x="{LABELS - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>')
        out.append(f'<rect x="{LABELS}" y="{y}" width="{max(1, x(value) - LABELS):.1f}" '
                   f'height="{BAR}" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{x(value) + 6:.1f}" y="{y + 13}">{figure(value)}</text>')
    return "\n".join(out) + "\n</svg>\n"
