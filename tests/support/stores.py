"""Stores that misbehave: one that fails on demand, one that forgets as a power cut would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from headwater.storage.memory import MemoryBatch, MemoryStore
from headwater.storage.store import Batch, Store, StoreBusy

SYNC_WAIT_S = 10.0


class DiskError(Exception):
    """What a broken disk answers."""


class PowerLoss(Exception):
    """The machine is off; nothing reaches the disk any more."""


class FaultyStore:
    """Passes everything on to `inner`, except where the test says otherwise."""

    durable = True

    def __init__(self, inner: Store | None = None) -> None:
        self.inner: Store = MemoryStore() if inner is None else inner
        self.writes = 0
        self.syncs = 0
        self.busy_writes = 0
        """Refuse this many writes with StoreBusy."""
        self.busy_unlogged_writes = 0
        self.write_error: Exception | None = None
        self.sync_error: Exception | None = None
        self._may_sync = threading.Event()
        self._may_sync.set()

    def hold_syncs(self) -> None:
        """Let no sync come back until `release_syncs`."""
        self._may_sync.clear()

    def release_syncs(self) -> None:
        self._may_sync.set()

    def batch(self) -> Batch:
        return self.inner.batch()

    def write(self, batch: Batch) -> None:
        if self.busy_writes:
            self.busy_writes -= 1
            raise StoreBusy("Write stall")
        if self.write_error is not None:
            raise self.write_error
        self.writes += 1
        self.inner.write(batch)

    def write_unlogged(self, batch: Batch) -> None:
        if self.busy_unlogged_writes:
            self.busy_unlogged_writes -= 1
            raise StoreBusy("Write stall")
        self.inner.write_unlogged(batch)

    def sync(self) -> None:
        assert self._may_sync.wait(SYNC_WAIT_S), "the test never released the sync"
        self.syncs += 1
        if self.sync_error is not None:
            raise self.sync_error
        if self.inner.durable:
            self.inner.sync()

    def get(self, key: bytes) -> bytes | None:
        return self.inner.get(key)

    def last_before(self, key: bytes, floor: bytes) -> tuple[bytes, bytes] | None:
        return self.inner.last_before(key, floor)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.inner.scan(start, end)

    def compact(self) -> None:
        self.inner.compact()

    def copy(self, name: str) -> Path:
        return self.inner.copy(name)

    def size_bytes(self) -> int:
        return self.inner.size_bytes()

    def stats(self) -> dict[str, float]:
        return self.inner.stats()

    def close(self) -> None:
        self.inner.close()


class VolatileStore(MemoryStore):
    """A store whose power goes off, and which then keeps only what RocksDB might have kept.

    RocksDB holds batches in a log and in memtables. A memtable that reaches disk brings with it
    every batch before it, logged or not, synced or not. After a crash the log is replayed, up to
    the last sync at least; batches that skipped the log are not in it. So, with the batches
    numbered in the order they were written, what is left is one of these:

        every batch before `flushed`, and from there the logged ones before `logged`

    for some `flushed` from 0 to the end, and some `logged` from the last completed sync to the end.
    """

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self._base: list[tuple[bytes, bytes]] = []
        self._written: list[tuple[bool, MemoryBatch]] = []
        self._synced = 0
        self._operations_left: int | None = None

    def cut_power_after(self, operations: int) -> None:
        """Let so many more writes and syncs succeed, and none after them."""
        self._operations_left = operations

    @property
    def powered(self) -> bool:
        return self._operations_left is None or self._operations_left > 0

    @property
    def batches(self) -> int:
        """Batches written since this store was opened."""
        return len(self._written)

    def _operate(self) -> None:
        if self._operations_left is not None:
            if self._operations_left <= 0:
                raise PowerLoss
            self._operations_left -= 1

    def write(self, batch: Batch) -> None:
        self._take(batch, logged=True)

    def write_unlogged(self, batch: Batch) -> None:
        if self.powered:  # without power nobody is there to hear of a failure
            self._take(batch, logged=False)

    def _take(self, batch: Batch, *, logged: bool) -> None:
        assert isinstance(batch, MemoryBatch)
        self._operate()
        self._written.append((logged, batch))
        super().write(batch)

    def sync(self) -> None:
        covered = len(self._written)
        self._operate()
        self._synced = max(self._synced, covered)

    def crash(self, *, flushed: int = 0, logged: int = 0) -> VolatileStore:
        """What is there when the machine is on again. The log reaches to the last sync at least."""
        keep = max(logged, self._synced)
        after = VolatileStore()
        for key, value in self._base:
            after._entries[key] = value
        for number, (in_log, batch) in enumerate(self._written):
            if number < flushed or (in_log and number < keep):
                MemoryStore.write(after, batch)
        after._base = list(after._entries.items())
        return after
