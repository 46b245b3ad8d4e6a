"""Store: the dozen methods through which the engine keeps bytes. Two versions: RocksDB, memory.

`write` makes a batch visible at once and durable with the next `sync`. Reads see what was
written, durable or not; that readers of streams see only durable data is the engine's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

SHARD_FOLDER = "shard-000"
"""Where in a data folder the store is."""


class Batch(Protocol):
    """Changes that are applied all or none."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove the keys from `start` up to, not including, `end`."""


class StoreBusy(Exception):
    """The store cannot take a write just now; nothing was written, try again shortly."""


class Store(Protocol):
    """An ordered map of bytes with atomic batches."""

    durable: bool
    """Whether `sync` promises anything; if not, the engine does not call it."""

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None:
        """Apply a batch. Raises StoreBusy when it must wait (never blocks for long)."""

    def write_unlogged(self, batch: Batch) -> None:
        """Apply a batch that may be lost, whole, in a crash: for what can be made again."""

    def sync(self) -> None:
        """Make every earlier `write` survive a power loss. Blocks; call it from a thread."""

    def get(self, key: bytes) -> bytes | None: ...

    def last_before(self, key: bytes, floor: bytes) -> tuple[bytes, bytes] | None:
        """The greatest entry with `floor` <= its key <= `key`."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` up to, not including, `end`, in order.

        The iterator sees the store as it was when the scan began.
        """

    def compact(self) -> None:
        """Give the space of removed data back. Blocks; call it from a thread."""

    def copy(self, name: str) -> Path:
        """Make a consistent copy in a new folder, which the caller removes. Blocks; call it from
        a thread. Raises Conflict when nothing is on disk."""

    def size_bytes(self) -> int:
        """Bytes on disk (or held, in memory)."""

    def stats(self) -> dict[str, float]:
        """Figures for the metrics page."""

    def close(self) -> None: ...
