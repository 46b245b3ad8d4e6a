"""Retention at work: finds what a stream may forget, and has it trimmed.

Limits by bytes and records are looked at after appends, once a second at most; limits by age when
the oldest record reaches it. PROTOCOL §4: servers may drop old data.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.core.commands import Trim
from headwater.core.types import Position, SeqNum, StreamId, TimestampMs
from headwater.engine import seek
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream

STREAMS_PER_SWEEP_MAX = 256


class Retainer:
    """Streams that grew since the last look wait here."""

    def __init__(self, shard: Shard, submit: Callable[[Trim], object]) -> None:
        self.trims_total = 0
        self._shard = shard
        self._submit = submit
        self._grown: dict[StreamId, Stream] = {}

    def note(self, stream: Stream) -> None:
        """A stream with retention has a new durable tail."""
        self._grown[stream.state.id] = stream

    def sweep(self, now_ms: TimestampMs) -> None:
        for stream_id in list(self._grown)[:STREAMS_PER_SWEEP_MAX]:
            self.trim(self._grown.pop(stream_id), now_ms)

    def trim(self, stream: Stream, now_ms: TimestampMs) -> None:
        """Submit the trim that a stream's limits ask for, if any."""
        state = stream.state
        if stream.purged or state.deleted or state.retention is None:
            return
        to = self._bound(stream, now_ms)
        if to.seq > state.first_seq:
            self.trims_total += 1
            self._submit(Trim(state.bucket, state.name, now_ms, to))

    def next_look_ms(self, stream: Stream, now_ms: TimestampMs) -> TimestampMs | None:
        """When the oldest record will have reached the age limit."""
        retention = stream.state.retention
        if retention is None or retention.age_s is None:
            return None
        oldest_ms = now_ms
        to = seek.find_time(self._shard, stream, TimestampMs(now_ms - retention.age_s * 1000 + 1))
        if to.seq < stream.tail.seq:
            oldest_ms = seek.time_of(self._shard, stream, to.seq)
        return TimestampMs(max(now_ms + 1000, oldest_ms + retention.age_s * 1000))

    def _bound(self, stream: Stream, now_ms: TimestampMs) -> Position:
        """Everything before this position passes a limit."""
        shard, retention = self._shard, stream.state.retention
        assert retention is not None
        bound = stream.state.first
        if retention.age_s is not None:
            oldest_ms = TimestampMs(max(0, now_ms - retention.age_s * 1000 + 1))
            bound = max(bound, seek.find_time(shard, stream, oldest_ms))
        if retention.bytes is not None and stream.tail.byte - bound.byte > retention.bytes:
            bound = max(bound, seek.find_byte(shard, stream, stream.tail.byte - retention.bytes))
        if retention.records is not None and stream.tail.seq - bound.seq > retention.records:
            oldest = SeqNum(stream.tail.seq - retention.records)
            bound = max(bound, seek.message_start(shard, stream, oldest))
        return bound
