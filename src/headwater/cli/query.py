"""`headwater query`: SQL over streams and lake tables, printed as a table.

What can be told without Spark is told first: a mistake in a call, no server, no such stream.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from headwater.cli.spark import (
    Failed,
    add_spark,
    context_of,
    is_remote,
    missing_library,
    note,
    open_session,
    say,
    wrong,
)
from headwater.cli.tables import add_output, show

LIMIT = 1000
LIMIT_MAX = 2**31 - 2
"""Spark counts rows like this, and is asked for one more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [FLAG ...] \"select … from stream('orders/*') …\""
    parser.add_argument(
        "statement", help="SQL; stream('name or pattern') and lake('folder') are tables"
    )
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"rows at most ({LIMIT})"
    )
    add_output(parser)
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        columns, rows = _ask(arguments)
    except Failed as error:
        return say(error)
    except ImportError as error:
        return say(missing_library("queries", error))
    more = len(rows) > arguments.limit
    show(columns, rows[: arguments.limit], arguments.output)
    if more:
        note(f"these are the first {arguments.limit} rows, and there are more: see --limit")
    return 0


def _ask(arguments: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
    """The rows, one more than are to be shown if there are more."""
    if not 1 <= arguments.limit <= LIMIT_MAX:
        raise wrong(f"--limit is a number from 1 to {LIMIT_MAX}. received={arguments.limit}")
    _use_utc()
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from headwater.client import ClientError
    from headwater.lake.tables import LakeError
    from headwater.pipeline.adhoc import QueryError, answer, prepare
    from headwater.pipeline.last_words import last_words

    try:
        prepared = prepare(
            arguments.statement, context_of(arguments), remote=is_remote(arguments.master)
        )
    except QueryError as error:
        raise wrong(str(error)) from error
    except (ClientError, LakeError) as error:
        raise Failed(str(error)) from error
    for each in prepared.notes:
        note(each)
    spark = open_session(arguments, "headwater query", bars=True)
    try:
        frame = answer(spark, prepared)
        _check_columns(frame.columns, arguments.output)
        found = frame.limit(arguments.limit + 1).collect()
        return frame.columns, [list(row) for row in found]
    except (PySparkException, Py4JError) as error:
        raise Failed(prepared.in_words_of_the_user(last_words(error))) from error
    finally:
        spark.stop()


def _use_utc() -> None:
    """Spark hands times over in the time zone of this process."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def _check_columns(columns: list[str], form: str) -> None:
    """Raises Failed when JSON could not hold them all."""
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if form == "json" and twice is not None:
        raise wrong(f"two columns are named {twice}; name them apart: select a as x, b as y")
