"""Where to begin reading: the record of a time, of a message number, or of a byte position.

What is found is durable: a commit under way may already be in a stream's state, not before its
durable tail.
"""

from __future__ import annotations

from headwater.core.errors import InvalidRequest, OffsetTrimmed, RecordRange
from headwater.core.types import Position, SeqNum, TimestampMs
from headwater.engine import search
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.wire.offsets import AtRecord


def find_time(shard: Shard, stream: Stream, at_ms: TimestampMs) -> Position:
    """The first retained record that is not older than `at_ms`; the tail when there is none."""
    return search.find(shard, stream.state, stream.tail, at_ms, search.times)


def find_message(shard: Shard, stream: Stream, number: int) -> Position:
    """The record with which message `number` begins, or the first retained one after it."""
    return search.find(shard, stream.state, stream.tail, number, search.message_numbers)


def find_byte(shard: Shard, stream: Stream, byte: int) -> Position:
    """The first message that begins at or after this byte offset."""
    found = search.find(shard, stream.state, stream.tail, byte, search.byte_offsets)
    return message_start(shard, stream, found.seq)


def find_boundary(shard: Shard, stream: Stream, byte: int) -> Position:
    """The message that begins at exactly this byte offset; see `search.find_boundary`."""
    return search.find_boundary(shard, stream.state, stream.tail, byte)


def message_start(shard: Shard, stream: Stream, seq: SeqNum) -> Position:
    """The start of the message that begins at record `seq`, or of the next one."""
    while seq < stream.tail.seq:
        if not search.continues_before(shard, stream.state, seq):
            return search.run_of(shard, stream.state, seq).position(seq)
        seq = SeqNum(seq + 1)
    return stream.tail


def message_of(shard: Shard, stream: Stream, seq: SeqNum) -> Position:
    """The start of the message that record `seq`, retained or the tail, belongs to."""
    if seq >= stream.tail.seq:
        return stream.tail
    while search.continues_before(shard, stream.state, seq):
        seq = SeqNum(seq - 1)
    return search.run_of(shard, stream.state, seq).position(seq)


def time_of(shard: Shard, stream: Stream, seq: SeqNum) -> TimestampMs:
    """When a record was written."""
    run = search.run_of(shard, stream.state, seq)
    return TimestampMs(search.times(run)[seq - run.first])


def message_at(shard: Shard, stream: Stream, seq: SeqNum) -> int:
    """The number of the message that record `seq`, a retained one, belongs to."""
    run = search.run_of(shard, stream.state, seq)
    return search.message_numbers(run)[seq - run.first]


def find_record(shard: Shard, stream: Stream, start: AtRecord) -> Position:
    """A message by its number. Raises InvalidRequest past the next, OffsetTrimmed before the
    first retained."""
    if not stream.state.json:
        raise InvalidRequest("records are numbered on JSON streams only")
    if start.from_tail:
        return from_tail(shard, stream, start.number)
    there = RecordRange(first_message(shard, stream), message_count(stream))
    if start.number > there.next:
        raise InvalidRequest(f"record is past the next one. next={there.next}", records=there)
    if start.number == there.next:
        return stream.tail
    if start.number < there.first:
        raise OffsetTrimmed(stream.state.first, records=there)
    return find_message(shard, stream, start.number)


def message_count(stream: Stream) -> int:
    """Messages before the durable tail."""
    if stream.builders:
        return stream.builders[0].messages_before
    return stream.state.tail_message


def first_message(shard: Shard, stream: Stream) -> int:
    """The number of the first retained message."""
    return message_number(shard, stream, stream.state.first_seq)


def message_number(shard: Shard, stream: Stream, seq: SeqNum) -> int:
    """The number of the message that begins at `seq`, which may be the tail."""
    if seq == 0:
        return 0
    return message_count(stream) if seq >= stream.tail.seq else message_at(shard, stream, seq)


def from_tail(shard: Shard, stream: Stream, count: int) -> Position:
    """`count` messages before the durable tail, or as far back as data is retained."""
    if count == 0 or stream.tail == stream.state.first:
        return stream.tail
    # Not told from the last record: that may be a command, which is no message.
    return find_message(shard, stream, message_count(stream) - count)
