"""`headwater check DIR`: is everything in a data folder whole? Reads all of it, changes nothing.

The server must not be running: it would remove files under our feet. Progress goes to stderr, the
result to stdout.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.main import EXIT_FAILED, fail, why_missing

if TYPE_CHECKING:
    from headwater.storage.check import Findings

MIB = 1024 * 1024
PROGRESS_BYTES = 256 * MIB
"""A line of progress for each so many bytes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the data folder of a server that is stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")


def run(arguments: argparse.Namespace) -> int:
    try:
        from headwater.storage.check import check_store
        from headwater.storage.rocks import RocksStore
        from headwater.storage.store import SHARD_FOLDER
    except ImportError as error:
        return fail(EXIT_FAILED, why_missing(error))

    folder = Path(arguments.folder).expanduser() / SHARD_FOLDER
    problem = why_unusable(folder)
    if problem is not None:
        return fail(EXIT_FAILED, f"{problem}. folder={arguments.folder}")
    try:
        store = RocksStore(folder, read_only=True)
    except Exception as error:  # rocksdict raises nothing more telling
        return fail(
            EXIT_FAILED, f"the data folder cannot be opened (see headwater recover): {error}"
        )
    try:
        found = check_store(store, _Progress(quiet=arguments.quiet).show)
    except Exception as error:  # the same: a block that fails its checksum, a file that is missing
        return fail(EXIT_FAILED, f"the data folder cannot be read to its end: {error}")
    finally:
        store.close()
    _show(found)
    return EXIT_FAILED if found.problems else 0


def why_unusable(folder: Path) -> str | None:
    """Why the store in this folder cannot be opened, if that is known beforehand."""
    if not (folder / "CURRENT").is_file():
        return "there is no data here"
    lock = folder / "LOCK"
    if lock.exists():  # a copy need not have it
        try:
            with lock.open("r+") as held:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "a server uses this folder; stop it first, or check a copy"
        except OSError as error:
            return f"the folder cannot be used: {(error.strerror or '').lower()}"
    return None


class _Progress:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._due = PROGRESS_BYTES

    def show(self, found: Findings) -> None:
        if self._quiet or found.bytes < self._due:
            return
        self._due = found.bytes + PROGRESS_BYTES
        size = found.bytes // MIB
        sys.stderr.write(f"{found.streams} streams, {found.records} records, {size} MiB\n")


def _show(found: Findings) -> None:
    for problem in found.problems:
        sys.stdout.write(f"problem: {problem}\n")
    lines = [
        f"streams    {found.streams}",
        f"records    {found.records} in {found.runs} runs, {found.bytes} bytes",
        f"snapshots  {found.snapshots}",
        f"documents  {found.documents}",
    ]
    if found.unreachable_runs:
        size = found.unreachable_bytes
        lines.append(f"unused     {found.unreachable_runs} runs, {size} bytes: harmless")
    lines.append(f"problems   {len(found.problems) or 'none'}")
    sys.stdout.write("\n".join(lines) + "\n")
