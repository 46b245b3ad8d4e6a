"""What happens by itself: the end of streams, removal of deleted data, the look at the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.core.commands import Expire
from headwater.core.limits import LIFETIME_MS_MAX
from headwater.core.stream import StreamState
from headwater.core.types import SeqNum, StreamId, TimestampMs
from headwater.engine.basins import BucketRemover
from headwater.engine.clock import Clock, Timer
from headwater.engine.retention import Retainer
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage import keys
from headwater.storage.store import StoreBusy

log = logging.getLogger("headwater.sweep")

SWEEP_INTERVAL_S = 1.0
EXPIRIES_PER_SWEEP_MAX = 256
GARBAGE_KEYS_PER_SWEEP_MAX = 512
GARBAGE_STREAMS_PER_SWEEP_MAX = 64
EMPTY_LOOK_MS = 60_000
"""How often a stream that is to go when it is empty is looked at while it is not."""


class Sweeper:
    """Looks once a second; each look is bounded."""

    def __init__(
        self,
        shard: Shard,
        clock: Clock,
        *,
        deadline_of: Callable[[Stream], TimestampMs | None],
        expire: Callable[[Expire], object],
        retainer: Retainer,
        remover: BucketRemover,
        free_bytes: Callable[[], int] | None,
        disk_reserve_bytes: int,
    ) -> None:
        self.disk_low = False
        self._shard = shard
        self._clock = clock
        self._deadline_of = deadline_of
        self._expire = expire
        self._retainer = retainer
        self._remover = remover
        self._free_bytes = free_bytes
        self._disk_reserve_bytes = disk_reserve_bytes
        self._timer: Timer | None = None

    def start(self) -> None:
        self._look_at_disk()
        self._timer = self._clock.call_later(SWEEP_INTERVAL_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        try:
            self.sweep()
        except Exception:
            log.exception("a sweep failed; it is tried again")
        self._timer = self._clock.call_later(SWEEP_INTERVAL_S, self._tick)

    def sweep(self) -> None:
        self._look_at_disk()
        try:
            self._expire_streams()
            self._retainer.sweep(self._clock.now_ms())
            self._collect_garbage()
            self._remover.sweep(self._clock.now_ms())
        except StoreBusy:
            pass  # the next look does it

    def _look_at_disk(self) -> None:
        if self._free_bytes is None:
            return
        low = self._free_bytes() < self._disk_reserve_bytes
        if low != self.disk_low:
            log.warning("disk space is %s", "low: writes are refused" if low else "free again")
        self.disk_low = low

    def _expire_streams(self) -> None:
        """Look at the streams whose indexed deadline has come; it may have moved since."""
        store, now = self._shard.store, self._clock.now_ms()
        start = keys.deadline(TimestampMs(0), StreamId(0))
        end = keys.deadline(TimestampMs(now + 1), StreamId(0))
        batch, changes = store.batch(), 0
        for key, _ in store.scan(start, end):
            _, stream_id = keys.split_deadline(key)
            stream = self._shard.load(stream_id)
            next_ms = None if stream is None else self._look_at(stream, now)
            if next_ms is not None:
                batch.put(keys.deadline(TimestampMs(min(next_ms, LIFETIME_MS_MAX)), stream_id), b"")
            batch.delete(key)
            changes += 1
            if changes >= EXPIRIES_PER_SWEEP_MAX:
                break
        if changes:
            store.write(batch)

    def _look_at(self, stream: Stream, now: TimestampMs) -> TimestampMs | None:
        """Expire or trim a stream if it is time. Returns when to look again."""
        state = stream.state
        if state.deleted:
            return None
        deadline = self._deadline_of(stream)
        if deadline is not None and deadline <= now:
            self._expire(Expire(state.bucket, state.name, now))
            return TimestampMs(now + 1000)  # look again, should the command be lost
        if state.is_abandoned(now):
            self._expire(Expire(state.bucket, state.name, now))
            return TimestampMs(now + 1000)
        looks = (deadline, self._retainer.look(stream, now), _empty_look_ms(state, now))
        return min((at for at in looks if at is not None), default=None)

    def _collect_garbage(self) -> None:
        store = self._shard.store
        batch, streams, removed = store.batch(), 0, 0
        prefix = keys.GARBAGE_PREFIX
        for key, _ in store.scan(prefix, keys.prefix_end(prefix)):
            stream_id = keys.split_garbage(key)
            start, end = keys.run(stream_id, SeqNum(0)), keys.run_end(stream_id)
            count = 0
            for run_key, _ in store.scan(start, end):
                batch.delete(run_key)
                count += 1
                if count > GARBAGE_KEYS_PER_SWEEP_MAX:
                    batch.delete_range(start, end)
                    break
            batch.delete(key)
            streams += 1
            removed += count
            if streams >= GARBAGE_STREAMS_PER_SWEEP_MAX or removed >= GARBAGE_KEYS_PER_SWEEP_MAX:
                break
        if streams:
            store.write(batch)


def _empty_look_ms(state: StreamState, now: TimestampMs) -> TimestampMs | None:
    """When to see whether a stream that goes when it is empty is to go."""
    if not state.delete_on_empty_s:
        return None
    idle_until = state.written_at_ms + state.delete_on_empty_s * 1000
    if state.first_seq == state.tail_seq:
        return TimestampMs(idle_until)
    return TimestampMs(max(idle_until, now + EMPTY_LOOK_MS))
