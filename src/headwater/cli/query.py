"""`headwater query`: SQL over streams and lake tables, printed as a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.cli.spark import Failed, add_spark, context_of, open_session, say, wrong

FORMS = ("table", "json", "csv")
CELL_CHARS_MAX = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [FLAG ...] \"select … from stream('orders/*') …\""
    parser.add_argument(
        "statement", help="SQL; stream('name or pattern') and lake('folder') are tables"
    )
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="rows at most (1000)")
    parser.add_argument("--output", choices=FORMS, default=FORMS[0], help="table, json or csv")
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        columns, rows = _ask(arguments)
    except Failed as error:
        return say(error)
    show(columns, rows, arguments.output)
    return 0


def _ask(arguments: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
    spark = open_session(arguments, "headwater query")
    from pyspark.errors import PySparkException

    from headwater.client import ClientError
    from headwater.lake.tables import LakeError
    from headwater.pipeline.adhoc import QueryError, query
    from headwater.pipeline.progress import last_words

    try:
        frame = query(spark, arguments.statement, context_of(arguments))
        found = frame.limit(arguments.limit).collect()
        return frame.columns, [list(row) for row in found]
    except QueryError as error:
        raise wrong(str(error)) from error
    except (ClientError, PySparkException, LakeError) as error:
        raise Failed(last_words(error)) from error
    finally:
        spark.stop()


def show(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> None:
    if form == "json":
        for row in rows:
            print(json.dumps(dict(zip(columns, map(_value, row), strict=True)), ensure_ascii=False))
    elif form == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_text(cell) for cell in row] for row in rows])
    else:
        print_table(columns, [[_text(cell) for cell in row] for row in rows])


def _value(cell: Any) -> Any:
    """What JSON can hold."""
    if cell is None or isinstance(cell, (bool, int, float, str)):
        return cell
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).decode("utf-8", "replace")
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


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns side by side; long cells are cut."""
    cut = [[_short(cell) for cell in row] for row in rows]
    widths = [max(len(str(cell)) for cell in column) for column in zip(columns, *cut, strict=True)]
    for row in (columns, ["-" * width for width in widths], *cut):
        print(
            "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    print(f"({len(cut)} row{'' if len(cut) == 1 else 's'})")


def _short(cell: str) -> str:
    plain = " ".join(cell.split())
    return plain if len(plain) <= CELL_CHARS_MAX else plain[: CELL_CHARS_MAX - 1] + "…"
