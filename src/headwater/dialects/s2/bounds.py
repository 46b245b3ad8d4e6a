"""How far a read goes: its bounds, and the size of one batch. S2 API: read, bounds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple

from headwater.core.types import SeqNum
from headwater.dialects.s2.requests import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Read
from headwater.wire.s2.records import Records


class Batch(NamedTuple):
    """Records that are sent together."""

    parts: tuple[Records, ...]
    end: int
    """The number after the last."""
    records: int
    size: int
    """Metered bytes."""


class Bounds:
    """What is left of a read. Over once `reached`."""

    __slots__ = ("_count", "_size", "_until_ms", "reached")

    def __init__(self, read: Read) -> None:
        self._count = read.records
        self._size = read.size
        self._until_ms = read.until_ms
        self.reached = 0 in (read.records, read.size, read.until_ms)

    @property
    def unlimited(self) -> bool:
        return self._count is None and self._size is None and self._until_ms is None

    def end_before(self, time_ms: int) -> bool:
        """May no record of this time or later be read?"""
        return self._until_ms is not None and time_ms >= self._until_ms

    def exclude(self, time_ms: int, size: int) -> bool:
        """Is a record of this time, and of this size or more, one too many?"""
        return self.end_before(time_ms) or (self._size is not None and size > self._size)

    def end_by_count(self, first: SeqNum, tail: SeqNum) -> SeqNum:
        """The number after the last record that there may be, of those before the tail."""
        return tail if self._count is None else SeqNum(min(tail, first + self._count))

    def take(self, records: Records, ends: list[int], start: int, stop: int) -> int:
        """Of the records `start` to `stop`, how far the bounds let the read go: an index.

        `ends` are metered bytes up to and including each record.
        """
        before = ends[start - 1] if start else 0
        allowed = stop
        if self._count is not None:
            allowed = min(allowed, start + self._count)
        if self._size is not None:
            allowed = min(allowed, bisect_right(ends, before + self._size, start))
        if self._until_ms is not None:
            allowed = min(allowed, bisect_left(records.times, self._until_ms, start))
        self._consume(allowed - start, (ends[allowed - 1] if allowed else 0) - before)
        self.reached = self.reached or allowed < stop
        return allowed

    def _consume(self, count: int, size: int) -> None:
        if count and self._count is not None:
            self._count -= count
            self.reached = self.reached or not self._count
        if count and self._size is not None:
            self._size -= size
            self.reached = self.reached or not self._size


class Batcher:
    """Puts records that follow one another into batches of the size that the API allows."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._parts: list[Records] = []
        self._count = self._size = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def ends_before(self, time_ms: int, size: int) -> bool:
        """Is the batch over before the next record, which is of this time and of this size or
        more?"""
        full = self._count == BATCH_RECORDS_MAX or self._size + size > BATCH_BYTES_MAX
        return (full and not self.is_empty) or self._bounds.exclude(time_ms, size)

    def add(self, records: Records) -> list[Batch]:
        """Take what the bounds allow. Returns the batches that are full."""
        found: list[Batch] = []
        ends = list(accumulate(records.sizes()))
        start, stop = 0, len(ends)
        while start < stop and not self._bounds.reached:
            fitting = self._fitting(ends, start)
            if fitting == start:
                found.append(self._close())
                continue
            end = self._bounds.take(records, ends, start, fitting)
            if end > start:
                self._parts.append(records.part(start, end))
                self._count += end - start
                self._size += ends[end - 1] - (ends[start - 1] if start else 0)
            start = end
        return found

    def _fitting(self, ends: list[int], start: int) -> int:
        """How far a batch can go; a first record always fits."""
        before = ends[start - 1] if start else 0
        room = before + BATCH_BYTES_MAX - self._size
        by_size = bisect_right(ends, room, start)
        if by_size == start and not self._count:
            by_size = start + 1
        return min(by_size, start + BATCH_RECORDS_MAX - self._count)

    def _close(self) -> Batch:
        parts, count, size = tuple(self._parts), self._count, self._size
        self._parts, self._count, self._size = [], 0, 0
        last = parts[-1]
        return Batch(parts, last.first + len(last.bodies), count, size)

    def rest(self) -> Batch | None:
        """What is not in a full batch."""
        return self._close() if self._parts else None
