"""What the commands on Spark share: flags, the session, and one line for what went wrong."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from headwater.cli.main import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.context import Context

URL_VARIABLE = "HEADWATER_URL"
TOKEN_VARIABLE = "HEADWATER_TOKEN"
ENCRYPTION_KEY_VARIABLE = "HEADWATER_ENCRYPTION_KEY"
CA_FILE_VARIABLE = "HEADWATER_CA_FILE"


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


def context_of(arguments: argparse.Namespace, **values: Any) -> Context:
    from headwater.pipeline.context import DEFAULT_ENDPOINT, Context

    endpoint = arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_ENDPOINT
    token = arguments.token or os.environ.get(TOKEN_VARIABLE) or None
    return Context(
        endpoint=endpoint,
        token=token,
        encryption_key=os.environ.get(ENCRYPTION_KEY_VARIABLE) or None,
        ca_file=os.environ.get(CA_FILE_VARIABLE) or None,
        **values,
    )


def open_session(arguments: argparse.Namespace, name: str) -> SparkSession:
    """Raises Failed when there is no Spark, or no Java for it."""
    settings = {}
    for pair in arguments.conf:
        key, equals, value = pair.partition("=")
        if not equals:
            raise wrong(f"--conf is KEY=VALUE. received={pair!r}")
        settings[key] = value
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    try:
        from headwater.spark import session
        from headwater.spark.java import NoJava
    except ImportError as error:
        raise Failed(
            f'Spark is not installed: pip install "headwater[spark]" (missing: {error.name})'
        ) from error
    try:
        return session(
            name, master=arguments.master, cores=arguments.cores, settings=settings, quiet=True
        )
    except NoJava as error:
        raise Failed(str(error)) from error
