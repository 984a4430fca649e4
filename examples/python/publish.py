#!/usr/bin/env python3
"""Publishes a CSV file as a table: publish.py [FILE.csv [NAME]]. Then run read.py in another shell."""

import csv
import pathlib
import sys
from typing import Any, List, Sequence

import gpubufd

MOVIES = pathlib.Path(__file__).resolve().parents[1] / "data" / "movies.csv"


def convert(texts: Sequence[str]) -> List[Any]:
    """A column as numbers if all its texts are, else as text; None for an empty text."""
    kinds: List[Any] = [int, float]
    for kind in kinds:
        try:
            return [kind(text) if text else None for text in texts]
        except ValueError:
            continue
    return [text or None for text in texts]


def main() -> None:
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else MOVIES
    name = sys.argv[2] if len(sys.argv) > 2 else path.stem
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns = {key: convert(texts) for key, texts in zip(header, zip(*rows))}
    with gpubufd.connect() as client:
        client.put(name, columns, replace=True)
        print(client.get(name))


if __name__ == "__main__":
    main()
