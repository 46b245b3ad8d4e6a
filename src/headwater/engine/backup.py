"""A copy of the whole store, sent as a tar file while the server goes on.

The store makes a consistent copy beside itself, mostly of links, in a moment. Its files are then
read in a thread, a piece at a time and no faster than the client takes them, and removed at the
end. The copy is of some moment after the request: like what a power loss would leave, it has all
that was acknowledged by then.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from headwater.core.limits import MIB
from headwater.core.pending import Pending
from headwater.engine.engine import Engine
from headwater.wire.http import BodyWriter

log = logging.getLogger("headwater.backup")

PIECE_BYTES = MIB
BLOCK_BYTES = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK_BYTES)
"""Two empty blocks end a tar file."""


def begin_backup(engine: Engine, under: str) -> Pending[Backup]:
    """Make the copy. `under` is the folder that its files have in the tar file.

    Fails with Conflict when there is nothing on disk.
    """
    name = engine.clock.random_bytes(8).hex()
    answer: Pending[Backup] = Pending()
    abandoned = False

    def abandon() -> None:
        nonlocal abandoned
        abandoned = True

    def made(copying: asyncio.Future[Path]) -> None:
        error = copying.exception()
        if isinstance(error, Exception):
            answer.fail(error)
            return
        backup = Backup(engine.loop, copying.result(), under)
        if abandoned:
            backup.remove()
        else:
            answer.resolve(backup)

    answer.on_cancel(abandon)
    engine.loop.run_in_executor(None, engine.store.copy, name).add_done_callback(made)
    return answer


class Backup:
    """A copy on its way to one client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, under: str) -> None:
        self._loop = loop
        self._folder = folder
        self._files = sorted(folder.iterdir())
        self._under = under
        self._pieces = self._read()
        self._writer: BodyWriter | None = None
        self.size = len(END) + sum(
            BLOCK_BYTES + _padded(file.stat().st_size) for file in self._files
        )
        """Of the tar file, in bytes."""

    def start(self, writer: BodyWriter) -> None:
        self._writer = writer
        writer.on_drain = self._go_on
        writer.on_close = self._stop
        # It has an end: ended politely on a shutdown, a part would be taken for the whole.
        writer.on_shutdown = lambda: None
        self._go_on()

    def remove(self) -> None:
        """Give back the space that only the copy still holds."""
        self._loop.run_in_executor(None, shutil.rmtree, self._folder, True)

    def _stop(self) -> None:
        self._writer = None
        self.remove()

    def _go_on(self) -> None:
        reading = self._loop.run_in_executor(None, next, self._pieces, b"")
        reading.add_done_callback(self._send)

    def _send(self, reading: asyncio.Future[bytes]) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            piece = reading.result()
        except Exception:
            log.exception("a backup could not be read to its end")
            self._stop()
            writer.abort()
            return
        if not piece:
            self._stop()
            writer.finish()
        elif writer.write(piece):
            self._go_on()

    def _read(self) -> Iterator[bytes]:
        """The tar file. Runs in a thread, a step at a time."""
        for file in self._files:
            entry = tarfile.TarInfo(f"{self._under}/{file.name}")
            entry.size = file.stat().st_size
            yield entry.tobuf()
            with file.open("rb") as stream:
                left = entry.size
                while left:
                    piece = stream.read(min(PIECE_BYTES, left))
                    if not piece:
                        raise EOFError(f"a file of the copy became shorter. file={file.name}")
                    left -= len(piece)
                    yield piece
            padding = _padded(entry.size) - entry.size
            if padding:
                yield bytes(padding)
        yield END


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
