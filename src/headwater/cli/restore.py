"""`headwater restore BACKUP DIR`: a data folder for a server, from a backup that is verified first.

The backup stays as it is. Where it is not needed any more a server can be started on it directly.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from headwater.cli import check
from headwater.cli.backup import sync_folder
from headwater.cli.main import EXIT_FAILED, fail


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="what `headwater backup` made")
    parser.add_argument("folder", metavar="DIR", help="the data folder; it must not be there yet")


def run(arguments: argparse.Namespace) -> int:
    target = Path(arguments.folder).expanduser()
    try:
        if target.exists() and any(target.iterdir()):
            return fail(EXIT_FAILED, f"the folder is not empty. folder={target}")
    except OSError as error:
        reason = (error.strerror or "").lower()
        return fail(EXIT_FAILED, f"the folder cannot be used: {reason}. folder={target}")
    code = check.run(argparse.Namespace(folder=arguments.backup, quiet=False))
    if code:
        return fail(code, "the backup is not restored")
    try:
        shutil.copytree(Path(arguments.backup).expanduser(), target, dirs_exist_ok=True)
        sync_folder(target)
    except OSError as error:
        return fail(EXIT_FAILED, f"the backup could not be copied: {error}")
    sys.stdout.write(f"restored to {target}\n")
    return 0
