"""The rows of figures of scripts/run-bench, tests/gpu/bench.py and the benches in Python: their summaries, aims and
table.
"""

import statistics


def summary(values):
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "rounds": len(values),
    }


def judge(row, told):
    """Adds the row's description, its aim, and whether it met that, from a line of the bench's ROWS."""
    what, figure, aim, sense, floor_name = told
    row["what"] = what
    if floor_name and "floor" in row:
        row["floor_name"] = floor_name
    if aim is not None and figure in row:
        value = row[figure]["median"]
        row["aim"] = {"of": figure, "is": sense, "value": aim}
        row["met"] = value <= aim if sense == "<=" else value >= aim


def number(value):
    if value >= 10000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def ratio_of(value):
    return f"{value:.2f}" if value < 100 else number(value)


def cells(row):
    floor = ratio = aim = met = ""
    if "floor_name" in row:
        floor = f"{row['floor_name']} {number(row['floor']['median'])}"
    if "ratio" in row:
        median, least, most = (ratio_of(row["ratio"][which]) for which in ("median", "min", "max"))
        ratio = f"{median} ({least} … {most})"
    if "aim" in row:
        sign = {"<=": "≤", ">=": "≥"}[row["aim"]["is"]]
        unit = " ×" if row["aim"]["of"] == "ratio" else f" {row['unit']}"
        aim = f"{sign} {row['aim']['value']:g}{unit}"
        met = "yes" if row["met"] else "NO"
    return row["what"], f"{number(row['measured']['median'])} {row['unit']}", floor, ratio, aim, met


def print_table(rows):
    table = [("what", "measured", "floor or peer", "ratio (min … max)", "aim", "met")]
    table += [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for i, line in enumerate(table):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        if i == 0:
            print("  ".join("-" * width for width in widths))
