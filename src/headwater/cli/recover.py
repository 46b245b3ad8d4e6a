"""`headwater recover DIR --drop-damaged-tail`: open a data folder whose log is damaged.

The server never does this by itself: what is dropped may have been acknowledged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headwater.cli import check
from headwater.cli.main import EXIT_FAILED, EXIT_USAGE, fail, why_missing

FLAG = "--drop-damaged-tail"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the data folder of a server that is stopped")
    parser.add_argument(
        FLAG,
        action="store_true",
        help="drop the log from its first damaged record on; copy the folder before",
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.drop_damaged_tail:
        return fail(EXIT_USAGE, f"say {FLAG} if that is what you want; copy the folder first")
    try:
        from headwater.storage.rocks import RocksStore
        from headwater.storage.store import SHARD_FOLDER
    except ImportError as error:
        return fail(EXIT_FAILED, why_missing(error))

    folder = Path(arguments.folder).expanduser() / SHARD_FOLDER
    problem = check.why_unusable(folder)
    if problem is not None:
        return fail(EXIT_FAILED, f"{problem}. folder={arguments.folder}")
    try:
        RocksStore(folder, drop_damaged_tail=True).close()
    except Exception as error:  # rocksdict raises nothing more telling
        return fail(EXIT_FAILED, f"the data folder cannot be opened: {error}")
    return check.run(argparse.Namespace(folder=arguments.folder, quiet=False))
