"""Where a read begins, one batch of records, and the wait for it. S2 API: read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from headwater.core.errors import (
    DecryptionFailed,
    HeadwaterError,
    OffsetTrimmed,
    StreamGone,
    StreamNotFound,
)
from headwater.core.pending import Pending
from headwater.core.types import SeqNum, TimestampMs
from headwater.dialects.s2.bounds import Batch, Batcher, Bounds
from headwater.dialects.s2.errors import Unsatisfiable
from headwater.dialects.s2.requests import WAIT_S_MAX, Read
from headwater.dialects.s2.responses import RenderBatch, tail_of
from headwater.dialects.s2.views import show, weigh
from headwater.engine import seek
from headwater.engine.clock import Timer
from headwater.engine.engine import Engine
from headwater.engine.opening import Opener
from headwater.engine.records import RecordCursor
from headwater.engine.steps import run
from headwater.engine.streams import Stream
from headwater.wire.http import Answer, Response


class Reading(NamedTuple):
    """What is read, how far, and what becomes of it."""

    engine: Engine
    stream: Stream
    bounds: Bounds
    render: RenderBatch
    opener: Opener | None


def find_first(engine: Engine, stream: Stream, read: Read, *, waits: bool) -> SeqNum:
    """The number of the first record to read, which may be the tail for a reader that waits.

    Raises Unsatisfiable. S2 API: read, "When reads return 416".
    """
    tail = tail_of(engine.shard, stream)
    beyond = False
    if read.time_ms is not None:
        beyond = read.time_ms > tail.time_ms
        first = tail.seq
        if not beyond:
            first = seek.find_time(engine.shard, stream, TimestampMs(read.time_ms)).seq
    elif read.seq is not None:
        beyond = read.seq > tail.seq
        first = read.seq
    else:
        first = tail.seq - (read.tail_offset or 0)
    if beyond and not read.clamp:
        raise Unsatisfiable(tail)
    first = min(max(first, stream.state.first_seq), tail.seq)
    if first == tail.seq and not waits:
        raise Unsatisfiable(tail)
    return SeqNum(first)


def may_come(stream: Stream, bounds: Bounds) -> bool:
    """May a reader at the tail still get a record?"""
    return not (stream.tail_closed or bounds.reached or bounds.end_before(stream.tail_time_ms))


def end_of(stream: Stream) -> HeadwaterError | None:
    """Why a stream that was there is not any more."""
    name = stream.state.name
    if stream.gone:
        return StreamNotFound(name)
    return StreamGone(name) if stream.deleted else None


def read_batch(reading: Reading, read: Read, waiting: set[LongPoll]) -> Answer:
    """One batch: what is there, or what comes within the time that the reader waits."""
    engine, stream = reading.engine, reading.stream
    wait_s = min(read.wait_s or 0, WAIT_S_MAX)
    first = find_first(engine, stream, read, waits=wait_s > 0)
    engine.touch(stream)
    if first == stream.tail.seq and may_come(stream, reading.bounds):
        return LongPoll(reading, first, wait_s, waiting).answer
    return gather(reading, first)


def gather(reading: Reading, first: SeqNum) -> Answer:
    """The batch that begins at `first`, as far as there are records."""
    return run(reading.engine.loop, _steps(reading, first))


def _steps(reading: Reading, first: SeqNum) -> Generator[None, None, Response]:
    engine, stream = reading.engine, reading.stream
    batch = yield from _collect(reading, first)
    engine.tally.read(stream.state.bucket, 0 if batch is None else batch.size)
    tail = tail_of(engine.shard, stream)
    if batch is None:
        return reading.render((), tail if first >= tail.seq else None)
    return reading.render(batch.parts, tail if batch.end >= tail.seq else None)


def _collect(reading: Reading, first: SeqNum) -> Generator[None, None, Batch | None]:
    """Records up to the size of one batch, giving way to others between steps."""
    engine, stream, bounds = reading.engine, reading.stream, reading.bounds
    batcher = Batcher(bounds)
    end = bounds.end_by_count(first, stream.tail.seq)
    cursor = RecordCursor(engine.shard, stream, first, end, reading.opener)
    while not cursor.done and not bounds.reached:
        try:
            spans = cursor.step()
        except OffsetTrimmed as error:
            # Records went away meanwhile: what was read is a batch, else what is still there.
            if batcher.is_empty:
                batch = yield from _collect(reading, error.first.seq)
                return batch
            break
        except DecryptionFailed:
            # A reader needs the keys of what it is shown, and of nothing else.
            if not batcher.ends_before(*weigh(engine.shard, stream, cursor.seq)):
                raise
            break
        for span in spans:
            for batch in batcher.add(show(span)):
                return batch
        if not cursor.done and not bounds.reached:
            yield
    return batcher.rest()


class LongPoll:
    """One reader that waits for a batch. Completes `answer` with records, with none when the
    time is up, or with an error."""

    __slots__ = ("_first", "_reading", "_timer", "_waiting", "answer")

    def __init__(
        self, reading: Reading, first: SeqNum, wait_s: float, waiting: set[LongPoll]
    ) -> None:
        """It is in `waiting` for as long as it waits."""
        self.answer: Pending[Response] = Pending()
        self.answer.on_cancel(self._stop)
        self.answer.on_hurry(self.end)
        self._reading = reading
        self._first = first
        self._waiting = waiting
        self._timer: Timer = reading.engine.clock.call_later(wait_s, self.end)
        waiting.add(self)
        reading.engine.follow(reading.stream, self._woken)

    def _stop(self) -> None:
        self._waiting.discard(self)
        self._timer.cancel()
        self._reading.engine.unfollow(self._reading.stream, self._woken)

    def _woken(self, stream: Stream, _: dict[Any, Any]) -> None:
        error = end_of(stream)
        if error is not None:
            self._stop()
            self.answer.fail(error)
        elif stream.tail.seq > self._first or not may_come(stream, self._reading.bounds):
            self.end()

    def end(self) -> None:
        """Answer with what there is: something came, the time is up, or the server stops."""
        self._stop()
        try:
            found = gather(self._reading, self._first)
        except Exception as error:
            self.answer.fail(error)
            return
        if isinstance(found, Pending):
            found.deliver(self.answer.complete)
        else:
            self.answer.resolve(found)
