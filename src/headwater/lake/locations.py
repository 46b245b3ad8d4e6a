"""Folders on a disk or in an object store, behind one set of calls."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from headwater.lake.stores import open_filesystem

LISTED_PREFIX = "_headwater"
"""Our own files in a table's folder. Readers of lake tables skip names with an underscore."""


class Found(NamedTuple):
    """A file of a folder."""

    path: str
    bytes: int
    written_s: float
    """Seconds since 1970."""


def is_url(location: str) -> bool:
    return "://" in location


def absolute(location: str) -> str:
    """A path that does not depend on the working directory; URLs as they are."""
    if location.startswith("file:/"):  # followed by two more, or as Java has it by none
        location = f"/{location.removeprefix('file:').lstrip('/')}"
    return location.rstrip("/") if is_url(location) else os.path.abspath(location)


class Folder:
    """A folder and what is below it. Paths are relative, with slashes."""

    def __init__(self, location: str, storage: Mapping[str, str] | None = None) -> None:
        self.location = absolute(location)
        self.storage = dict(storage or {})
        self._fs, self._root = _open(self.location, self.storage)

    @property
    def _is_local(self) -> bool:
        return isinstance(self._fs, pafs.LocalFileSystem)

    def check(self) -> None:
        """Raises OSError when an object store cannot be used: no answer, no right, no bucket."""
        if self._is_local:
            return
        try:
            self._fs.get_file_info(pafs.FileSelector(self._root))
        except FileNotFoundError:
            # Nothing is there yet. S3 has said so of the folder, others may mean the bucket.
            bucket = self._root.partition("/")[0]
            if not isinstance(self._fs, pafs.S3FileSystem) and not self._has(bucket):
                raise

    def _has(self, full: str) -> bool:
        return bool(self._fs.get_file_info(full).type != pafs.FileType.NotFound)

    def url(self, path: str) -> str:
        """The full name of a file, as other programs take it."""
        return f"{self.location}/{path}"

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def write(self, path: str, data: bytes) -> None:
        """Replace a file in one step: a reader sees the old one or the new one whole."""
        if self._is_local:
            os.replace(self._written_aside(path, data), self._full(path))
        else:
            self._put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """The same for a file that is not there; False if it is. On a disk, of two that come at the
        same moment one is refused. An object store is asked first, which leaves a moment."""
        if self._is_local:
            return _link(self._written_aside(path, data), self._full(path))
        if self.exists(path):
            return False
        self._put(path, data)
        return True

    def _put(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(self._full(path)) as stream:
            stream.write(data)

    def _written_aside(self, path: str, data: bytes) -> str:
        """On disk when this returns: a loss of power must not leave the name without the bytes."""
        full = self._full(path)
        self._make_parent(full)
        temporary = f"{full}.{secrets.token_hex(8)}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # noqa: TID251 (of a table, not of the server)
        return temporary

    def read(self, path: str) -> bytes | None:
        """None when there is no such file."""
        try:
            with self._fs.open_input_stream(self._full(path)) as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None

    def open_input(self, path: str) -> Any:
        return self._fs.open_input_file(self._full(path))

    def open_output(self, path: str) -> Any:
        full = self._full(path)
        self._make_parent(full)
        return self._fs.open_output_stream(full)

    def _make_parent(self, full: str) -> None:
        if self._is_local:
            os.makedirs(os.path.dirname(full), exist_ok=True)

    def exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(self._full(path)).type == pafs.FileType.File)

    def move(self, source: str, target: str) -> None:
        """Nothing happens when the source is gone, and the target there."""
        try:
            self._fs.move(self._full(source), self._full(target))
        except (OSError, pa.ArrowException):  # S3 has no error of its own for a missing source
            if not self.exists(target):
                raise

    def touch(self, path: str) -> None:
        """Have a file dated now, unless it is somebody else's. An object store does so by itself
        when it is moved."""
        if self._is_local:
            with suppress(FileNotFoundError, PermissionError):
                os.utime(self._full(path))

    def sync(self) -> None:
        """Returns when all that was written is on disk, by whichever library. Object stores are
        always so."""
        if self._is_local:
            os.sync()

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._full(path))

    def now_s(self) -> float:
        """The time by the clock that dates the files, which need not be this machine's."""
        path = f"{LISTED_PREFIX}/now"
        self.write(path, b"")
        return max(file.written_s for file in self.walk(LISTED_PREFIX) if file.path == path)

    def walk(self, path: str = "") -> Iterator[Found]:
        """Every file below."""
        selector = pafs.FileSelector(self._full(path), recursive=True, allow_not_found=True)
        for info in self._fs.get_file_info(selector):
            if info.type == pafs.FileType.File:
                written = 0.0 if info.mtime_ns is None else info.mtime_ns / 1e9
                yield Found(info.path[len(self._root) + 1 :], info.size, written)


def _link(temporary: str, full: str) -> bool:
    try:
        os.link(temporary, full)
    except FileExistsError:
        return False
    except OSError:  # a disk without links
        if os.path.exists(full):
            return False
        os.replace(temporary, full)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return True


def _open(location: str, storage: Mapping[str, str]) -> tuple[Any, str]:
    if not is_url(location):
        return pafs.LocalFileSystem(), location
    return open_filesystem(location, storage)
