"""What the commands on Spark share: flags, the session, and one line for what went wrong."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.main import EXIT_FAILED, EXIT_USAGE
from headwater.cli.trust import CA_FILE_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.context import Context

URL_VARIABLE = "HEADWATER_URL"
TOKEN_VARIABLE = "HEADWATER_TOKEN"
ENCRYPTION_KEY_VARIABLE = "HEADWATER_ENCRYPTION_KEY"

TWICE_TOLD = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark's that have pages about errors which are raised, and told, all the same."""
PROGRESS_BARS = "spark.ui.showConsoleProgress"


class Failed(Exception):
    """The line that says why, and the exit code."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


def wrong(message: str) -> Failed:
    """What the user has to change."""
    return Failed(message, EXIT_USAGE)


def say(error: Failed) -> int:
    for line in str(error).splitlines():
        print(f"headwater: {line}", file=sys.stderr, flush=True)
    return error.code


def note(message: str) -> None:
    """Something to know that is no error, where no program takes it for output."""
    print(f"headwater: {message}", file=sys.stderr, flush=True)


def note_progress(message: str) -> None:
    """Something takes a while: whoever sits at a terminal is told."""
    if sys.stderr.isatty():
        note(message)


def missing_library(what: str, error: ImportError) -> Failed:
    return Failed(
        f'{what} are not installed: pip install "headwater[spark]" (missing: {error.name})'
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help=f"of the server (default: {URL_VARIABLE}, or port 4437 here)")
    parser.add_argument("--token", help=f"access token (default: {TOKEN_VARIABLE})")


def add_spark(parser: argparse.ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument(
        "--master", help="Spark to run on: spark://host:7077, sc://host:15002 (default: here)"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="of this machine (default: all)")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="setting of Spark"
    )


def is_remote(master: str | None) -> bool:
    """Is it a Spark Connect server, which may reach what is out of our reach?"""
    return (master or "").startswith("sc://")


def context_of(arguments: argparse.Namespace, **values: Any) -> Context:
    """Raises Failed when the URL, or a secret, cannot be one."""
    from headwater.client import ClientError
    from headwater.client.protocol import Endpoint
    from headwater.pipeline.context import DEFAULT_ENDPOINT, Context

    context = Context(
        endpoint=arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_ENDPOINT,
        token=arguments.token or os.environ.get(TOKEN_VARIABLE) or None,
        encryption_key=os.environ.get(ENCRYPTION_KEY_VARIABLE) or None,
        ca_file=os.environ.get(CA_FILE_VARIABLE) or None,
        **values,
    )
    try:
        Endpoint.parse(context.endpoint, token=context.token, encryption_key=context.encryption_key)
    except ClientError as error:
        raise wrong(str(error)) from error
    return context


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, again and again. Raises Failed."""
    for pair in given:
        if "=" not in pair:
            raise wrong(f"{flag} is KEY=VALUE. received={pair!r}")
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in given}


def open_session(arguments: argparse.Namespace, name: str, *, bars: bool = False) -> SparkSession:
    """Raises Failed when there is no Spark, or no Java for it. With `bars`, whoever sits at a
    terminal sees how far it is."""
    settings = pairs("--conf", arguments.conf)
    if arguments.cores is not None and arguments.cores < 1:
        raise wrong(f"--cores is a number from 1. received={arguments.cores}")
    if bars and sys.stderr.isatty():
        settings = {PROGRESS_BARS: "true", **settings}
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    for teller in TWICE_TOLD:
        logging.getLogger(teller).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(is_news)
    from headwater.pipeline.last_words import last_words
    from headwater.spark import session
    from headwater.spark.java import NoJava

    note_progress(f"starting Spark{f' on {arguments.master}' if arguments.master else ''}")
    signal.signal(signal.SIGINT, end_at_once)
    try:
        found = session(
            name, master=arguments.master, cores=arguments.cores, settings=settings, quiet=True
        )
    except NoJava as error:
        raise Failed(str(error)) from error
    except Exception as error:  # Java's, Connect's: whatever they are, nothing has begun
        raise Failed(f"Spark does not start: {last_words(error)}") from error
    signal.signal(signal.SIGINT, end_at_once)  # Spark has one of its own
    return found


def is_news(record: logging.LogRecord) -> bool:
    """Of what is logged without a name: py4j does so when Ctrl-C breaks off what it was doing."""
    return "/py4j/" not in record.pathname


def end_at_once(number: int, _: object) -> None:
    """Spark ends when its input does. To leave in order would have Java and Python print where
    they were."""
    os._exit(128 + number)
