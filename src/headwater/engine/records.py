"""Records by number: what of each run a stream shows, in steps, for readers of whole ranges.

Other than a slice (reader.py) it keeps records apart, and what it hands out may be a range of any
length: the caller takes one step, sends it, and takes the next when there is room.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.core.errors import InvalidOffset, OffsetTrimmed, StreamNotFound
from headwater.core.limits import KIB
from headwater.core.types import SeqNum, TimestampMs
from headwater.engine import seek
from headwater.engine.search import extent_of
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage.runs import Run

STEP_BYTES = 256 * KIB
"""Read at most about this much between two turns of the loop: cold data must not freeze it."""


class Range(NamedTuple):
    """Some records of a stream, by number or by time; None for what does not matter."""

    first: SeqNum | None = None
    end: SeqNum | None = None
    """One past the last. Past the tail means up to the tail."""
    first_ms: TimestampMs | None = None
    end_ms: TimestampMs | None = None
    """Only records older than this."""


def resolve(shard: Shard, stream: Stream, wanted: Range) -> tuple[SeqNum, SeqNum]:
    """The numbers of the first record, and of the one after the last.

    Raises InvalidOffset past the tail and OffsetTrimmed before the first retained record.
    """
    kept, tail = stream.state.first_seq, stream.tail.seq
    first, end = wanted.first, tail
    if first is None:
        first = kept
        if wanted.first_ms is not None:
            first = seek.find_time(shard, stream, wanted.first_ms).seq
    elif first > tail:
        raise InvalidOffset(f"from is past the tail. from={first} tail={tail}", tail=stream.tail)
    elif first < kept:
        raise OffsetTrimmed(stream.state.first)
    if wanted.end is not None:
        end = min(end, wanted.end)
    if wanted.end_ms is not None:
        end = min(end, seek.find_time(shard, stream, wanted.end_ms).seq)
    return first, max(first, end)


class Span(NamedTuple):
    """Some records of one run, by their indexes in it."""

    run: Run
    start: int
    stop: int
    """One past the last record asked for."""
    end: int
    """One past the last record of the run that the stream shows; `stop` may be short of it."""
    cut: int | None = None
    """Bytes that the stream shows of the record before `end`, when a fork left inside it."""


class RecordCursor:
    """Reads the records from one number up to another, both known to be there."""

    __slots__ = ("_end", "_id", "_name", "_shard", "seq")

    def __init__(self, shard: Shard, stream: Stream, first: SeqNum, end: SeqNum) -> None:
        assert stream.state.first_seq <= first or first == end
        assert first <= end <= stream.tail.seq
        self.seq = first
        """The next record."""
        self._end = end
        self._shard = shard
        self._id = stream.state.id
        self._name = stream.state.name

    @property
    def done(self) -> bool:
        return self.seq >= self._end

    def step(self) -> list[Span]:
        """The next records, about `STEP_BYTES` of them; none at the end.

        Raises StreamNotFound and OffsetTrimmed when they went away meanwhile.
        """
        if self.done:
            return []
        # Looked up anew: a stream that nobody used may have left memory, and come back as another
        # object, or have been removed.
        stream = self._shard.load(self._id)
        if stream is None:
            raise StreamNotFound(self._name)
        if self.seq < stream.state.first_seq:
            raise OffsetTrimmed(stream.state.first)
        extent = extent_of(stream.state, self.seq)
        end = min(self._end, extent.end)
        spans = []
        for run in self._shard.read_runs(extent.owner, self.seq, end, STEP_BYTES):
            shown = min(run.count, extent.end - run.first)
            cut = extent.cut if run.first + shown == extent.end else None
            stop = min(run.end, end)
            spans.append(Span(run, self.seq - run.first, stop - run.first, shown, cut))
            self.seq = stop
        return spans
