"""Finding a record of a stream by a value that never decreases: time, message number, bytes.

A binary search over runs: each look reads one run, however long the stream is. It needs only a
state and somebody who can read runs, so it serves readers and commands alike.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from headwater.core.errors import InvalidOffset, OffsetTrimmed
from headwater.core.records import COMMAND, CONTINUES
from headwater.core.stream import Extent, StreamState
from headwater.core.types import START, Position, SeqNum, StreamId
from headwater.storage.runs import Run


class RunSource(Protocol):
    """Whoever can find the run that holds a record."""

    def read_run(self, owner: StreamId, seq: SeqNum) -> Run: ...


def extent_of(state: StreamState, seq: SeqNum) -> Extent:
    """The extent that holds record `seq`: inherited, or the stream's own records."""
    for extent in state.extents:
        if extent.first <= seq < extent.end:
            return extent
    return Extent(state.id, state.own_first_seq, state.tail_seq)


def run_of(runs: RunSource, state: StreamState, seq: SeqNum) -> Run:
    """The run that holds record `seq`."""
    return runs.read_run(extent_of(state, seq).owner, seq)


def find(
    runs: RunSource,
    state: StreamState,
    tail: Position,
    wanted: int,
    values_of: Callable[[Run], Sequence[int]],
) -> Position:
    """The first record before `tail` whose value is at least `wanted`, or `tail`."""
    low, high = state.first_seq, tail.seq
    while low < high:
        middle = SeqNum((low + high) // 2)
        extent = extent_of(state, middle)
        run = runs.read_run(extent.owner, middle)
        begin, end = max(low, run.first), min(high, run.end, extent.end)
        index = bisect_left(values_of(run), wanted, begin - run.first, end - run.first)
        found = SeqNum(run.first + index)
        if found == end:
            low = end
        elif found > begin:
            return run.position(found)
        else:
            high = begin
    return tail if low >= tail.seq else run_of(runs, state, low).position(low)


def find_boundary(runs: RunSource, state: StreamState, tail: Position, byte: int) -> Position:
    """The message that begins at exactly this byte; 0 is the start, the last byte the tail.

    Raises InvalidOffset past the tail and inside a message, OffsetTrimmed for what is not
    retained.
    """
    if byte == 0 and state.first_seq == 0:
        return START
    if byte == tail.byte:
        return tail
    if byte > tail.byte:
        raise InvalidOffset(f"byte {byte} is past the tail of the stream", tail=tail)
    if byte < state.first_byte:
        raise OffsetTrimmed(state.first)
    found = find(runs, state, tail, byte, byte_offsets)
    if found.byte != byte or continues_before(runs, state, found.seq):
        raise InvalidOffset(f"byte {byte} is not the start of a record", tail=tail)
    return found


def continues_before(runs: RunSource, state: StreamState, seq: SeqNum) -> bool:
    """Is record `seq` in the middle of a message? A message never spans two runs."""
    run = run_of(runs, state, seq)
    index = seq - run.first
    return index > 0 and not run.plain and bool(run.flags[index - 1] & CONTINUES)


def times(run: Run) -> Sequence[int]:
    found = array("Q")
    found.frombytes(bytes(run.times))
    return found


def byte_offsets(run: Run) -> Sequence[int]:
    return list(accumulate(run.shown_lengths()[:-1], initial=run.bytes_before))


def message_numbers(run: Run) -> Sequence[int]:
    """The message each record belongs to; a command belongs to the one after it."""
    if run.plain:
        return range(run.messages_before, run.messages_before + run.count)
    ends = [0 if flag & (CONTINUES | COMMAND) else 1 for flag in run.flags]
    return list(accumulate(ends[:-1], initial=run.messages_before))
