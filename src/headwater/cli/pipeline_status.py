"""`headwater pipeline status`: what the reports of pipelines say, once or again and again."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from headwater.cli.spark import Failed, add_server, context_of, note, wrong
from headwater.cli.tables import FORMS, add_output, fit_last, show

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.pipeline.progress import Status

COLUMNS = [
    *("pipeline", "query", "state", "batches", "rows", "rows/s", "lag"),
    *("last batch", "last error"),
]

WATCH_S = 2.0
RETRY_TIMEOUT_S = 5.0
CLEAR = "\x1b[H\x1b[2J"


def add_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="of one pipeline (default: all)")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=WATCH_S,
        metavar="SECONDS",
        help=f"show it again and again, every {WATCH_S:g} seconds unless given, until Ctrl-C",
    )
    add_output(parser)
    add_server(parser)


def run_status(arguments: argparse.Namespace) -> int:
    """Raises Failed."""
    if arguments.watch is not None and arguments.watch <= 0:
        raise wrong(f"--watch is a number of seconds above 0. received={arguments.watch:g}")
    with context_of(arguments).client(retry_timeout_s=RETRY_TIMEOUT_S) as client:
        if arguments.watch is None:
            _show(_read(client, arguments.name), arguments.output)
            return 0
        while True:
            _show_again(client, arguments)
            time.sleep(arguments.watch)


def _read(client: Client, name: str | None) -> list[Status]:
    """Raises Failed when there is nothing to show."""
    from headwater.client import ClientError
    from headwater.pipeline.progress import read_status

    try:
        found = read_status(client, name)
        if name is not None and not found:
            known = sorted({each.pipeline for each in read_status(client)})
            have = f"; those that have: {', '.join(known)}" if known else ""
            raise Failed(f"no pipeline {name} has reported to {client.endpoint}{have}")
    except ClientError as error:
        raise Failed(str(error)) from error
    return found


def _show_again(client: Client, arguments: argparse.Namespace) -> None:
    """A server that is away for a while is no reason to end: pipelines wait for it too."""
    try:
        found = _read(client, arguments.name)
    except Failed as error:
        note(str(error))
        return
    if sys.stdout.isatty():
        print(CLEAR, end="")
        print(f"{client.endpoint}  {time.strftime('%H:%M:%S', time.gmtime())} UTC\n")
    _show(found, arguments.output)
    sys.stdout.flush()


def _show(found: list[Status], form: str) -> None:
    from headwater.pipeline.progress import Status

    if form != FORMS[0]:
        names = list(Status.__slots__)
        show(names, [list(asdict(each).values()) for each in found], form)
    elif not found:
        print("no pipeline has reported yet")
    else:
        today = time.strftime("%Y-%m-%d", time.gmtime())
        short = [replace(each, at=short_time(each.at, today)) for each in found]
        show(COLUMNS, fit_last(COLUMNS, [list(asdict(each).values()) for each in short]), form)


def short_time(at: str, today: str) -> str:
    """The time of today's, the day of others."""
    day, _, time_of_day = at.partition("T")
    return time_of_day[:8] if day == today else day
