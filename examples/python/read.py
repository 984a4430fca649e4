#!/usr/bin/env python3
"""Reads what publish.py published, in place: read.py [NAME [COLUMN [FIRST [LAST]]]]"""

import sys

import gpubufd


def main() -> None:
    name, column, first, last = (sys.argv[1:] + ["movies", "US Gross", "0", "1000"][len(sys.argv) - 1 :])[:4]
    with gpubufd.connect() as client:
        table = client.get(name, timeout=10)
        print(f"{len(table)} rows of {len(table.names)} columns: {', '.join(table.names)}")
        part = table[int(first) : int(last)][column]  # nothing has been copied so far
        values = [value for value in part.tolist() if value is not None]
        print(f"{column}, rows {first} to {last}: {len(values)} values, {len(part) - len(values)} nulls")
        if values and not isinstance(values[0], str):
            print(f"mean {sum(values) / len(values):,.2f}, largest {max(values):,}")


if __name__ == "__main__":
    main()
