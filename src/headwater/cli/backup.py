"""`headwater backup URL DIR`: a consistent copy of a server's data, taken while it runs.

The copy is a data folder like any other: `headwater check` verifies it, `headwater restore` makes
another of it, a server can be started on it. It gets its name only when it is whole.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from headwater.cli.main import EXIT_FAILED, fail
from headwater.cli.trust import trusted

TOKEN_VARIABLE = "HEADWATER_TOKEN"
TIMEOUT_S = 60.0
PATH = "/v1/log/backup"


class Incomplete(Exception):
    """The connection ended before the copy did."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="of the server")
    parser.add_argument("folder", metavar="DIR", help="of the copy; it must not be there yet")
    parser.add_argument("--token", help=f"one that permits everything (default: {TOKEN_VARIABLE})")


def run(arguments: argparse.Namespace) -> int:
    target = Path(arguments.folder).expanduser()
    if target.exists():
        return fail(EXIT_FAILED, f"the folder is there already. folder={target}")
    partial = target.with_name(target.name + ".partial")
    token = arguments.token or os.environ.get(TOKEN_VARIABLE, "")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        size = _download(arguments.url.rstrip("/") + PATH, token, partial)
        sync_folder(partial)
        partial.rename(target)
    except HTTPError as error:
        return fail(
            EXIT_FAILED,
            f"the server refused: {error.code} {error.read(1000).decode('utf-8', 'replace')}",
        )
    except (URLError, OSError, HTTPException, tarfile.TarError, Incomplete, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        return fail(EXIT_FAILED, f"the backup failed: {str(reason).strip()}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sys.stdout.write(f"{size} bytes in {target}\n")
    return 0


def _download(url: str, token: str, folder: Path) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(url, headers=headers)
    with urlopen(request, timeout=TIMEOUT_S, context=trusted()) as response:
        body = _Counted(response)
        with tarfile.open(fileobj=body, mode="r|") as archive:  # type: ignore[call-overload]
            for entry in archive:
                _extract(archive, entry, folder)
        while body.read(1 << 16):
            pass  # the padding at the end of the tar file
        if body.count != int(response.headers["Content-Length"] or -1):
            raise Incomplete(f"the connection ended early. bytes={body.count}")
        return body.count


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """One file, and nowhere else than a server puts it."""
    content = archive.extractfile(entry)
    path = PurePosixPath(entry.name)
    if content is None or path.is_absolute() or len(path.parts) != 2 or ".." in path.parts:
        raise tarfile.TarError(f"this is not a backup. entry={entry.name!r}")
    target = folder / path
    target.parent.mkdir(exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


class _Counted:
    """Counts what is read: a body that was cut off looks like one that has ended."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.count = 0
        self._stream = stream

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data


def sync_folder(folder: Path) -> None:
    """A backup that the next power loss takes away is none."""
    for path in (*folder.rglob("*"), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # noqa: TID251 (not the data of a server yet)
        finally:
            os.close(handle)
