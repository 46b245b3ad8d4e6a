"""Snapshots on their way to disk and back, piece by piece: never one whole in memory.

The pieces of an upload are written as they come, beside a mark that they belong to no stream. The
command that publishes it removes the mark in the same commit; since the store keeps the order of
writes, a published snapshot is on disk whole. What a crash leaves marked is removed at the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core.limits import KIB
from headwater.core.snapshots import begin_digest
from headwater.engine.steps import begin
from headwater.storage import keys
from headwater.storage.store import Store

PIECE_BYTES = 256 * KIB


class Upload:
    """The bytes of one snapshot as they arrive. Raises StoreBusy when it must wait."""

    def __init__(self, store: Store, number: int, content_type: str) -> None:
        """`number` is chance: no other upload may have it."""
        self.number = number
        self.size = 0
        self._store = store
        self._waiting = bytearray()
        self._pieces = 0
        self._digest = begin_digest(content_type)

    @property
    def digest(self) -> str:
        """Of the content type and the bytes that came so far."""
        return self._digest.hexdigest()

    def add(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._waiting += data

    def flush(self, *, whole: bool = False) -> None:
        """Store the pieces that are full; with `whole` the rest too."""
        while len(self._waiting) >= PIECE_BYTES or (whole and self._waiting):
            batch = self._store.batch()
            if not self._pieces:
                batch.put(keys.unpublished(self.number), b"")
            piece = bytes(self._waiting[:PIECE_BYTES])
            batch.put(keys.piece(self.number, self._pieces), piece)
            self._store.write(batch)
            del self._waiting[: len(piece)]
            self._pieces += 1

    def discard(self) -> None:
        """Remove what was stored."""
        self._waiting.clear()
        if self._pieces:
            _remove(self._store, self.number)


def read_pieces(store: Store, upload: int) -> Iterator[bytes]:
    """The bytes of a snapshot as it is now, whatever replaces it while they are read."""
    entries = begin(store.scan(keys.piece(upload, 0), keys.pieces_end(upload)))
    return (value for _, value in entries)


def remove_leftovers(store: Store) -> None:
    """Remove the uploads that a crash left unpublished."""
    prefix = keys.UPLOAD_PREFIX
    for key, _ in store.scan(prefix, keys.prefix_end(prefix)):
        _remove(store, keys.split_unpublished(key))


def _remove(store: Store, upload: int) -> None:
    batch = store.batch()
    batch.delete_range(keys.piece(upload, 0), keys.pieces_end(upload))
    batch.delete(keys.unpublished(upload))
    store.write(batch)
