"""Rows as people and programs read them: a table, lines of JSON, CSV."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

FORMS = ("table", "json", "csv")
CELL_CHARS_MAX = 60
LAST_CHARS_MIN = 10
"""A terminal may be too narrow: then lines are longer than it is."""

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        "--format",
        choices=FORMS,
        default=FORMS[0],
        help="a table (default), a line of JSON for each row, or csv",
    )


def show(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> None:
    if form == "json":
        for row in rows:
            print(json.dumps(dict(zip(columns, map(_value, row), strict=True)), ensure_ascii=False))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_text(cell) for cell in row] for row in rows])
    else:
        print_table(columns, list(rows))


def _value(cell: Any) -> Any:
    """What JSON can hold. Bytes that are no text are shown by their numbers."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return _NOT_FINITE[str(cell)]
    if cell is None or isinstance(cell, (bool, int, float, str)):
        return cell
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).decode("utf-8", "backslashreplace")
    if hasattr(cell, "asDict"):
        return {name: _value(value) for name, value in cell.asDict().items()}
    if isinstance(cell, dict):
        return {str(name): _value(value) for name, value in cell.items()}
    if isinstance(cell, (list, tuple)):
        return [_value(value) for value in cell]
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def _text(cell: Any) -> str:
    value = _value(cell)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- tables


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns side by side; one below the other on a terminal that is too narrow."""
    cut = [[_short(_text(cell), CELL_CHARS_MAX) for cell in row] for row in rows]
    lines = _side_by_side(columns, rows, cut)
    if any(_width(line) > terminal_width() for line in lines) and len(columns) > 1:
        lines = _below_each_other(columns, cut)
    for line in lines:
        print(line)
    print(f"({len(cut)} row{'' if len(cut) == 1 else 's'})")


def fit_last(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows with their last cells as short as a terminal asks for."""
    widths = [
        max(_width(_text(cell)) for cell in column)
        for column in list(zip(columns, *rows, strict=True))[:-1]
    ]
    left = max(LAST_CHARS_MIN, terminal_width() - sum(widths) - 2 * len(widths))
    return [[*row[:-1], _short(_text(row[-1]), min(left, CELL_CHARS_MAX))] for row in rows]


def terminal_width() -> int:
    """As far as lines may go: elsewhere than on a terminal, as far as they do."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return sys.maxsize


def _side_by_side(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], cut: Sequence[Sequence[str]]
) -> list[str]:
    widths = [max(map(_width, column)) for column in zip(columns, *cut, strict=True)]
    numbers = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    right = numbers or [False] * len(columns)
    return [
        "  ".join(map(_padded, row, widths, right)).rstrip()
        for row in (columns, ["-" * width for width in widths], *cut)
    ]


def _below_each_other(columns: Sequence[str], cut: Sequence[Sequence[str]]) -> list[str]:
    width = max(map(_width, columns))
    lines = []
    for number, row in enumerate(cut, 1):
        lines.append(f"-- {number} --")
        lines += [
            f"{_padded(name, width, False)}  {cell}".rstrip()
            for name, cell in zip(columns, row, strict=True)
        ]
    return lines


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, (int, float, Decimal)) and not isinstance(cell, bool))


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space


def _width(text: str) -> int:
    """In columns of a terminal: some letters take two, accents none."""
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _short(cell: str, chars_max: int) -> str:
    """One line, which cannot do anything to a terminal."""
    plain = "".join(each if each.isprintable() else "�" for each in " ".join(cell.split()))
    return plain if len(plain) <= chars_max else plain[: chars_max - 1] + "…"
