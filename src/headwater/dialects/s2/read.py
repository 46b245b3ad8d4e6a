"""Where a read begins, one batch of records, and the wait for it. S2 API: read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headwater.core.errors import HeadwaterError, OffsetTrimmed, StreamGone, StreamNotFound
from headwater.core.pending import Pending
from headwater.core.types import SeqNum, TimestampMs
from headwater.dialects.s2.bounds import Batch, Batcher, Bounds
from headwater.dialects.s2.errors import Unsatisfiable
from headwater.dialects.s2.requests import WAIT_S_MAX, Read
from headwater.dialects.s2.responses import RenderBatch, tail_of
from headwater.dialects.s2.views import show
from headwater.engine import seek
from headwater.engine.clock import Timer
from headwater.engine.engine import Engine
from headwater.engine.opening import Opener
from headwater.engine.records import RecordCursor
from headwater.engine.steps import run
from headwater.engine.streams import Stream
from headwater.wire.http import Answer, Response


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


def read_batch(
    engine: Engine,
    stream: Stream,
    read: Read,
    render: RenderBatch,
    waiting: set[LongPoll],
    opener: Opener | None,
) -> Answer:
    """One batch: what is there, or what comes within the time that the reader waits."""
    wait_s = min(read.wait_s or 0, WAIT_S_MAX)
    first = find_first(engine, stream, read, waits=wait_s > 0)
    engine.touch(stream)
    bounds = Bounds(read)
    if first == stream.tail.seq and may_come(stream, bounds):
        return LongPoll(engine, stream, first, bounds, wait_s, render, waiting, opener).answer
    return gather(engine, stream, first, bounds, render, opener)


def gather(
    engine: Engine,
    stream: Stream,
    first: SeqNum,
    bounds: Bounds,
    render: RenderBatch,
    opener: Opener | None,
) -> Answer:
    """The batch that begins at `first`, as far as there are records."""
    return run(engine.loop, _steps(engine, stream, first, bounds, render, opener))


def _steps(
    engine: Engine,
    stream: Stream,
    first: SeqNum,
    bounds: Bounds,
    render: RenderBatch,
    opener: Opener | None,
) -> Generator[None, None, Response]:
    batch = yield from _collect(engine, stream, first, bounds, opener)
    engine.tally.read(stream.state.bucket, 0 if batch is None else batch.size)
    tail = tail_of(engine.shard, stream)
    if batch is None:
        return render((), tail if first >= tail.seq else None)
    return render(batch.parts, tail if batch.end >= tail.seq else None)


def _collect(
    engine: Engine, stream: Stream, first: SeqNum, bounds: Bounds, opener: Opener | None
) -> Generator[None, None, Batch | None]:
    """Records up to the size of one batch, giving way to others between steps."""
    batcher = Batcher(bounds)
    end = bounds.end_by_count(first, stream.tail.seq)
    cursor = RecordCursor(engine.shard, stream, first, end, opener)
    while not cursor.done and not bounds.reached:
        try:
            spans = cursor.step()
        except OffsetTrimmed as error:
            # Records went away meanwhile: what was read is a batch, else what is still there.
            if batcher.is_empty:
                batch = yield from _collect(engine, stream, error.first.seq, bounds, opener)
                return batch
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

    __slots__ = (
        "_bounds",
        "_engine",
        "_first",
        "_opener",
        "_render",
        "_stream",
        "_timer",
        "_waiting",
        "answer",
    )

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        first: SeqNum,
        bounds: Bounds,
        wait_s: float,
        render: RenderBatch,
        waiting: set[LongPoll],
        opener: Opener | None,
    ) -> None:
        """It is in `waiting` for as long as it waits."""
        self.answer: Pending[Response] = Pending()
        self.answer.on_cancel(self._stop)
        self.answer.on_hurry(self.end)
        self._engine = engine
        self._stream = stream
        self._first = first
        self._bounds = bounds
        self._render = render
        self._opener = opener
        self._waiting = waiting
        self._timer: Timer = engine.clock.call_later(wait_s, self.end)
        waiting.add(self)
        engine.follow(stream, self._woken)

    def _stop(self) -> None:
        self._waiting.discard(self)
        self._timer.cancel()
        self._engine.unfollow(self._stream, self._woken)

    def _woken(self, stream: Stream, _: dict[Any, Any]) -> None:
        error = end_of(stream)
        if error is not None:
            self._stop()
            self.answer.fail(error)
        elif stream.tail.seq > self._first or not may_come(stream, self._bounds):
            self.end()

    def end(self) -> None:
        """Answer with what there is: something came, the time is up, or the server stops."""
        self._stop()
        try:
            found = gather(
                self._engine,
                self._stream,
                self._first,
                self._bounds,
                self._render,
                self._opener,
            )
        except Exception as error:
            self.answer.fail(error)
            return
        if isinstance(found, Pending):
            found.deliver(self._settle)
        else:
            self.answer.resolve(found)

    def _settle(self, outcome: Response | Exception) -> None:
        if isinstance(outcome, Exception):
            self.answer.fail(outcome)
        else:
            self.answer.resolve(outcome)
