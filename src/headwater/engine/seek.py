"""Where to begin reading: the record of a time, or of a message number.

A binary search over runs: each look reads one run, however long the stream is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from headwater.core.records import COMMAND, CONTINUES
from headwater.core.types import Position, SeqNum, TimestampMs
from headwater.engine.forks import extent_of
from headwater.engine.shard import Shard, Stream
from headwater.storage.runs import Run


def find_time(shard: Shard, stream: Stream, at_ms: TimestampMs) -> Position:
    """The first retained record that is not older than `at_ms`; the tail when there is none."""
    return _find(shard, stream, at_ms, _times)


def find_message(shard: Shard, stream: Stream, number: int) -> Position:
    """The record with which message `number` begins, or the first retained one after it."""
    return _find(shard, stream, number, _message_numbers)


def find_byte(shard: Shard, stream: Stream, byte: int) -> Position:
    """The first message that begins at or after this byte offset."""
    found = _find(shard, stream, byte, _byte_offsets)
    return message_start(shard, stream, found.seq)


def message_start(shard: Shard, stream: Stream, seq: SeqNum) -> Position:
    """The start of the message that begins at record `seq`, or of the next one."""
    while seq < stream.tail.seq:
        run = shard.read_run(extent_of(stream.state, seq).owner, seq)
        index = seq - run.first
        if index == 0 or run.plain or not run.flags[index - 1] & CONTINUES:
            return run.position(seq)
        seq = SeqNum(seq + 1)
    return stream.tail


def time_of(shard: Shard, stream: Stream, seq: SeqNum) -> TimestampMs:
    """When a record was written."""
    run = shard.read_run(extent_of(stream.state, seq).owner, seq)
    return TimestampMs(_times(run)[seq - run.first])


def from_tail(shard: Shard, stream: Stream, count: int) -> Position:
    """`count` messages before the durable tail, or as far back as data is retained."""
    if count == 0 or stream.tail == stream.state.first:
        return stream.tail
    return find_message(shard, stream, _messages_until_tail(shard, stream) - count)


def _messages_until_tail(shard: Shard, stream: Stream) -> int:
    """Messages before the durable tail; the state may already count a commit under way."""
    last = SeqNum(stream.tail.seq - 1)
    run = shard.read_run(extent_of(stream.state, last).owner, last)
    return _message_numbers(run)[last - run.first] + 1


def _find(
    shard: Shard, stream: Stream, wanted: int, values_of: Callable[[Run], Sequence[int]]
) -> Position:
    """The first record whose value is at least `wanted`; values never decrease."""
    low, high = stream.state.first_seq, stream.tail.seq
    while low < high:
        middle = SeqNum((low + high) // 2)
        extent = extent_of(stream.state, middle)
        run = shard.read_run(extent.owner, middle)
        begin, end = max(low, run.first), min(high, run.end, extent.end)
        index = bisect_left(values_of(run), wanted, begin - run.first, end - run.first)
        found = SeqNum(run.first + index)
        if found == end:
            low = end
        elif found > begin:
            return run.position(found)
        else:
            high = begin
    return _position(shard, stream, low)


def _position(shard: Shard, stream: Stream, seq: SeqNum) -> Position:
    if seq >= stream.tail.seq:
        return stream.tail
    return shard.read_run(extent_of(stream.state, seq).owner, seq).position(seq)


def _times(run: Run) -> Sequence[int]:
    times = array("Q")
    times.frombytes(bytes(run.times))
    return times


def _byte_offsets(run: Run) -> Sequence[int]:
    return list(accumulate(run.shown_lengths()[:-1], initial=run.bytes_before))


def _message_numbers(run: Run) -> Sequence[int]:
    """The message each record belongs to; a command belongs to the one after it."""
    if run.plain:
        return range(run.messages_before, run.messages_before + run.count)
    ends = [0 if flag & (CONTINUES | COMMAND) else 1 for flag in run.flags]
    return list(accumulate(ends[:-1], initial=run.messages_before))
