"""What is durable about one stream, beyond what a `Stream` keeps at hand.

Its state may be ahead of the disk by the commit under way; these never are.
"""

from __future__ import annotations

from headwater.core.types import SeqNum, TimestampMs
from headwater.engine import seek
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream


def message_count(stream: Stream) -> int:
    """Messages before the durable tail."""
    return seek.message_count(stream)


def first_time_ms(shard: Shard, stream: Stream) -> TimestampMs | None:
    """When the first retained record was written; None when there is none."""
    first = stream.state.first_seq
    if first >= stream.tail.seq:
        return None
    return seek.time_of(shard, stream, first)


def last_time_ms(shard: Shard, stream: Stream) -> TimestampMs | None:
    """When the last record was written, retained or not; None when there never was one."""
    state, tail = stream.state, stream.tail.seq
    if tail == 0:
        return None
    # A fork begins with the time of its source's last record, which it need not have inherited.
    own = tail > state.own_first_seq
    if (own and not stream.builders) or tail <= state.first_seq:
        return state.last_time_ms
    return seek.time_of(shard, stream, SeqNum(tail - 1))
