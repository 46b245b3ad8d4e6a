"""Retention at work: finds what a stream may forget, and has it trimmed.

Limits by bytes and records are looked at after appends, once a second at most; limits by age when
the oldest record reaches it; what a command record trims a while later. PROTOCOL §4: servers may
drop old data. S2 API: retention, trim.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from headwater.core import marks
from headwater.core.commands import Trim
from headwater.core.types import Position, SeqNum, StreamId, TimestampMs
from headwater.engine import seek
from headwater.engine.shard import TRIM_DELAY_MS, Shard
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
        for stream_id in list(islice(self._grown, STREAMS_PER_SWEEP_MAX)):
            self.trim(self._grown.pop(stream_id), now_ms)

    def trim(self, stream: Stream, now_ms: TimestampMs) -> bool:
        """Submit the trim that a stream's limits or its writers ask for, if any."""
        state = stream.state
        if stream.purged or state.deleted or (state.retention is None and not state.trims):
            return False
        to = self._bound(stream, now_ms)
        if to.seq <= state.first_seq:
            return False
        self.trims_total += 1
        self._submit(Trim(state.bucket, state.name, now_ms, to, state.id))
        return True

    def look(self, stream: Stream, now_ms: TimestampMs) -> TimestampMs | None:
        """Trim if it is time. Returns when to look again."""
        if self.trim(stream, now_ms):
            return TimestampMs(now_ms + 1000)  # should the command be lost
        state, looks = stream.state, []
        for _, asked_ms in state.trims:
            if asked_ms + TRIM_DELAY_MS > now_ms:
                looks.append(asked_ms + TRIM_DELAY_MS)
        if state.retention is not None and state.retention.age_s is not None:
            age_ms = state.retention.age_s * 1000
            looks.append(max(now_ms + 1000, self._oldest_ms(stream, now_ms) + age_ms))
        return TimestampMs(min(looks)) if looks else None

    def _bound(self, stream: Stream, now_ms: TimestampMs) -> Position:
        """Everything before this position passes a limit, or was trimmed by a writer."""
        shard, state, retention = self._shard, stream.state, stream.state.retention
        bound = state.first
        asked = marks.reached(state.trims, now_ms - TRIM_DELAY_MS)
        if asked > bound.seq:
            bound = max(bound, seek.message_of(shard, stream, asked))
        if retention is None:
            return bound
        if retention.age_s is not None:
            bound = max(bound, self._written_by(stream, now_ms - retention.age_s * 1000))
        if retention.bytes is not None and stream.tail.byte - bound.byte > retention.bytes:
            bound = max(bound, seek.find_byte(shard, stream, stream.tail.byte - retention.bytes))
        if retention.records is not None and stream.tail.seq - bound.seq > retention.records:
            oldest = SeqNum(stream.tail.seq - retention.records)
            bound = max(bound, seek.message_start(shard, stream, oldest))
        return bound

    def _written_by(self, stream: Stream, by_ms: int) -> Position:
        """Everything before this position was written by then, as far as is known."""
        state, marked_from = stream.state, stream.state.client_times_from
        if marked_from is None or state.first_seq < marked_from:
            found = seek.find_time(self._shard, stream, TimestampMs(max(0, by_ms + 1)))
            if marked_from is None or found.seq < marked_from:
                return found
        marked = max(state.first_seq, marked_from, marks.reached(state.written, by_ms))
        return seek.message_of(self._shard, stream, marked)

    def _oldest_ms(self, stream: Stream, now_ms: TimestampMs) -> TimestampMs:
        """When the first retained record was written, or a later time."""
        state, first = stream.state, stream.state.first_seq
        if first >= stream.tail.seq:
            return now_ms
        if state.client_times_from is not None and first >= state.client_times_from:
            return marks.next_ms(state.written, first) or now_ms
        return seek.time_of(self._shard, stream, first)
