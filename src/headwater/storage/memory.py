"""Store in memory: for tests and for `--memory`. The same contract, nothing survives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sortedcontainers import SortedDict

from headwater.core.errors import Conflict
from headwater.storage.store import Batch


class MemoryBatch:
    """A list of changes."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[tuple[str, bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self.changes.append(("delete", key, b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.changes.append(("delete_range", start, end))


class MemoryStore:
    """A sorted dictionary."""

    durable = False

    def __init__(self) -> None:
        self._entries: SortedDict[bytes, bytes] = SortedDict()
        self._bytes = 0

    def batch(self) -> MemoryBatch:
        return MemoryBatch()

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, MemoryBatch)
        for kind, key, value in batch.changes:
            if kind == "put":
                self._remove(key)
                self._entries[key] = value
                self._bytes += len(key) + len(value)
            elif kind == "delete":
                self._remove(key)
            else:
                for doomed in list(self._entries.irange(key, value, inclusive=(True, False))):
                    self._remove(doomed)

    def _remove(self, key: bytes) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= len(key) + len(old)

    def write_unlogged(self, batch: Batch) -> None:
        self.write(batch)

    def sync(self) -> None:
        """Nothing to do: this store promises nothing."""

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._entries.get(key)
        return value

    def last_before(self, key: bytes, floor: bytes) -> tuple[bytes, bytes] | None:
        for found in self._entries.irange(floor, key, reverse=True):
            return found, self._entries[found]
        return None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = self._entries.irange(start, end, inclusive=(True, False))
        yield from [(key, self._entries[key]) for key in keys]

    def compact(self) -> None:
        """Removed entries are gone already."""

    def copy(self, name: str) -> Path:
        raise Conflict("this server keeps nothing on disk, so there is nothing to copy")

    def size_bytes(self) -> int:
        return self._bytes

    def stats(self) -> dict[str, float]:
        return {"keys": float(len(self._entries))}

    def close(self) -> None:
        self._entries.clear()
        self._bytes = 0
