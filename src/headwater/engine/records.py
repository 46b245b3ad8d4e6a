"""Records by number: what of each run a stream shows, in steps, for readers of whole ranges.

Other than a slice (reader.py) it keeps records apart, and what it hands out may be a range of any
length: the caller takes one step, sends it, and takes the next when there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.core.errors import DecryptionFailed, InvalidOffset, OffsetTrimmed, StreamNotFound
from headwater.core.limits import KIB
from headwater.core.records import Buffer
from headwater.core.types import SeqNum, StreamId, TimestampMs
from headwater.engine import seek
from headwater.engine.opening import Opener
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

    @property
    def body_bytes(self) -> int:
        """About how many: exact for a whole run."""
        return self.run.body_bytes * (self.stop - self.start) // self.run.count

    def shown(self, bodies: Sequence[Buffer], index: int) -> Buffer:
        """What the stream shows of one of the run's bodies."""
        is_cut = self.cut is not None and index == self.end - 1
        return bodies[index][: self.cut] if is_cut else bodies[index]


class RecordCursor:
    """Reads the records from one number up to another, both known to be there."""

    __slots__ = ("_ahead", "_end", "_id", "_name", "_opener", "_shard", "bucket", "seq")

    def __init__(
        self,
        shard: Shard,
        stream: Stream,
        first: SeqNum,
        end: SeqNum,
        opener: Opener | None = None,
    ) -> None:
        assert stream.state.first_seq <= first or first == end
        assert first <= end <= stream.tail.seq
        self.seq = first
        """The next record."""
        self._end = end
        self._shard = shard
        self._opener = opener
        self._ahead: tuple[SeqNum, list[Span]] | None = None
        """Read already: what comes, and where it ends."""
        self._id = stream.state.id
        self._name = stream.state.name
        self.bucket = stream.state.bucket

    @property
    def done(self) -> bool:
        return self.seq >= self._end

    def check_key(self) -> None:
        """Raises DecryptionFailed if the next record does not open, while a refusal can still be
        told."""
        if self._opener is not None and not self.done:
            first, spans = self.seq, self.step()
            self._ahead, self.seq = (self.seq, spans), first

    def step(self) -> list[Span]:
        """The next records, about `STEP_BYTES` of them; none at the end. Of an encrypted stream
        those before one that does not open, and then DecryptionFailed.

        Raises StreamNotFound and OffsetTrimmed when they went away meanwhile.
        """
        if self._ahead is not None:
            (self.seq, spans), self._ahead = self._ahead, None
            return spans
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
        if self._opener is not None:
            spans = self._open(self._opener, extent.owner, spans)
        return spans

    def _open(self, opener: Opener, owner: StreamId, spans: list[Span]) -> list[Span]:
        """The same in clear, up to the first record that does not open."""
        found: list[Span] = []
        self.seq = SeqNum(spans[0].run.first + spans[0].start)
        for span in spans:
            run, stop = opener.open_some(owner, span.run, span.start, span.stop)
            if stop > span.start:
                found.append(span._replace(run=run, stop=stop))
                self.seq = SeqNum(run.first + stop)
            if stop < span.stop:
                break
        if not found:
            raise DecryptionFailed(opener.cipher)
        return found
