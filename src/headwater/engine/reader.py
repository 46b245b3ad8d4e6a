"""Catch-up: the bytes of a stream from a position, in slices cut on message boundaries.

Where a slice ends depends on the data and the asked size alone, never on how records are packed,
so that two reads of the same range give the same bytes and the same ETag.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator

from headwater.core.errors import InvalidOffset, OffsetTrimmed, StreamNotFound
from headwater.core.limits import KIB
from headwater.core.records import COMMAND, CONTINUES, Buffer
from headwater.core.stream import Extent
from headwater.core.types import START, ByteOffset, Position, SeqNum
from headwater.engine.opening import Opener
from headwater.engine.search import extent_of
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage.runs import JSON, Run

STEP_BYTES = 256 * KIB
"""Read at most about this much between two turns of the loop: cold data must not freeze it."""
STEP_OPENED = 2048
"""Of an encrypted stream about so many records at most: to open one takes some microseconds."""


class Slice:
    """Part of a stream. `buffers` hold bodies as stored: JSON messages each with a comma after."""

    __slots__ = ("at_tail", "buffers", "closed", "end", "json", "size", "start")

    def __init__(self, start: Position, *, json: bool) -> None:
        self.start = start
        self.end = start
        self.json = json
        self.buffers: list[Buffer] = []
        self.size = 0
        """Body bytes, commas not counted."""
        self.at_tail = False
        """Nothing durable follows."""
        self.closed = False
        """Nothing will ever follow."""

    def body(self) -> list[Buffer]:
        """The bytes of a response: joined messages, or a JSON array. PROTOCOL §9.1."""
        if not self.json:
            return self.buffers
        if not self.buffers:
            return [b"[]"]
        last = self.buffers[-1]
        return [b"[", *self.buffers[:-1], last[:-1], b"]"]


def resolve(stream: Stream, position: Position | None) -> Position:
    """Check a position against what is there: None is the first retained record.

    Raises InvalidOffset past the tail and OffsetTrimmed before the first retained record.
    """
    state = stream.state
    if position is None or (position == START and state.first_seq == 0):
        return state.first
    tail = stream.tail
    if position.seq >= tail.seq and position != tail:
        raise InvalidOffset("the offset is past the tail of the stream", tail=tail)
    if position.seq < state.first_seq:
        raise OffsetTrimmed(state.first)
    return position


def read(
    shard: Shard,
    stream: Stream,
    start: Position,
    size_max: int,
    opener: Opener | None = None,
) -> Generator[None, None, Slice]:
    """Read from `start`, already resolved, up to `size_max` body bytes but at least one message.

    A generator so that the caller can let others run between steps. The tail is the one of the
    first step: what is appended meanwhile belongs to the next slice.
    """
    tail, closed = stream.tail, stream.tail_closed
    found = Slice(start, json=stream.state.json)
    stepped, stepped_seq = 0, start.seq
    while found.end.seq < tail.seq:
        if found.end.seq < stream.state.first_seq:  # trimmed since the last step
            if not found.size:
                raise OffsetTrimmed(stream.state.first)
            break
        extent = extent_of(stream.state, found.end.seq)
        run = shard.read_run(extent.owner, found.end.seq)
        if opener is not None:
            run = opener.open(extent.owner, run)
        if found.end is start:
            _check_boundary(run, start, stream)
        if not _take(found, run, extent, tail.seq, size_max):
            break
        if found.size >= size_max:
            break
        long = opener is not None and found.end.seq - stepped_seq >= STEP_OPENED
        if long or found.size - stepped >= STEP_BYTES:
            stepped, stepped_seq = found.size, found.end.seq
            yield
            if stream.gone:
                # Its records may be removed already: not there any more, which is no corruption.
                raise StreamNotFound(stream.state.name)
    found.at_tail = found.end.seq >= tail.seq
    found.closed = found.at_tail and closed
    return found


def read_now(
    shard: Shard,
    stream: Stream,
    start: Position,
    size_max: int,
    opener: Opener | None = None,
) -> Slice:
    """Read in one go: for small slices at the tail."""
    steps = read(shard, stream, start, size_max, opener)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: Slice = stop.value
            return found


def _check_boundary(run: Run, start: Position, stream: Stream) -> None:
    """The token must be one we could have given out for this stream."""
    index = start.seq - run.first
    inside_message = index > 0 and run.flags[index - 1] & CONTINUES if not run.plain else False
    if run.byte_at(start.seq) != start.byte or inside_message:
        raise InvalidOffset("the offset does not fit this stream", tail=stream.tail)


def _take(found: Slice, run: Run, extent: Extent, tail: SeqNum, size_max: int) -> bool:
    """Add what fits of one run. False when the next message does not fit."""
    begin = found.end.seq - run.first
    stop = min(run.end, extent.end, tail) - run.first
    if not run.plain or (extent.cut is not None and run.first + stop == extent.end):
        return _take_by_record(found, run, extent, begin, stop, size_max)
    room = size_max - found.size
    if begin == 0 and stop == run.count and run.shown_bytes() < room:
        found.buffers.append(run.all_bodies())
        _advance(found, run.end, run.shown_bytes())
        return True
    ends = run.shown_ends()
    base = ends[begin - 1] if begin else 0
    # Up to the record that fills the slice, but no empty ones after it: those begin the next
    # slice however the records are packed.
    fits = min(
        bisect_right(ends, base + room, begin, stop),
        bisect_left(ends, base + room, begin, stop) + 1,
    )
    if fits == begin and found.size:
        return False
    if not found.size and base == (ends[fits - 1] if fits else 0) and fits < stop:
        fits += 1  # the first message that is not empty, however long
    found.buffers.append(run.bodies(begin, fits))
    _advance(found, SeqNum(run.first + fits), ends[fits - 1] - base)
    return fits == stop


def _take_by_record(
    found: Slice, run: Run, extent: Extent, begin: int, stop: int, size_max: int
) -> bool:
    """The slow way: messages in parts, command records, a record cut by a fork."""
    bodies, lengths, flags = run.record_bodies(), run.lengths, run.flags
    message: list[int] = []
    size = 0
    for index in range(begin, stop):
        if not message and found.size >= size_max:
            return False
        if flags[index] & COMMAND:
            if not message:
                _advance(found, SeqNum(run.first + index + 1), 0)
            continue
        cut = extent.cut if run.first + index == extent.end - 1 else None
        message.append(index)
        size += lengths[index] if cut is None else cut
        if flags[index] & CONTINUES and cut is None:
            continue
        if found.size and found.size + size > size_max:
            return False
        found.buffers += [bodies[part] for part in message]
        if cut is not None:
            found.buffers[-1] = found.buffers[-1][:cut]
        if run.bits & JSON:
            found.buffers.append(b",")
        _advance(found, SeqNum(run.first + index + 1), size)
        message, size = [], 0
    assert not message, "a message never spans two runs"
    return True


def _advance(found: Slice, seq: SeqNum, size: int) -> None:
    found.end = Position(seq, ByteOffset(found.end.byte + size))
    found.size += size
