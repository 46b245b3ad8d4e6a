"""How many bytes buckets and streams hold over time: samples, kept on disk. S2 API: metrics.

Streams that changed are sampled once a minute. Buckets are added up by walking over all streams:
once a minute too, but never for more than a hundredth of the time. A sample is written when its
value differs from the last one; in between it holds.

    usage-stored / {bucket} 00 {minute}            MessagePack of the body bytes retained
    usage-stored / {bucket}/{stream} 00 {minute}   the same, for one stream
    usage-active / {day}                           MessagePack list of the buckets with streams

`minute` and `day` are when they began, in seconds, 12 digits. Frozen.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

import msgspec

from headwater.core.errors import InvalidRequest
from headwater.core.pending import Pending
from headwater.core.stream import StreamState
from headwater.core.types import StreamId
from headwater.engine.clock import Timer
from headwater.engine.documents import Documents
from headwater.engine.engine import Engine
from headwater.engine.listing import Selection, list_streams
from headwater.engine.steps import drive, follow
from headwater.engine.streams import Stream
from headwater.engine.usage import (
    DAY_S,
    DOCUMENTS_PER_STEP,
    HOUR_S,
    PRUNE_S,
    SEPARATOR,
    Interval,
    Point,
    to_next_minute_s,
)
from headwater.storage import keys

log = logging.getLogger("headwater.usage")

STORED = "usage-stored"
ACTIVE = "usage-active"
WALK_SHARE = 100
"""A walk rests for at least this many times as long as the last one took."""
STREAMS_MAX = 250
"""Streams sampled in a minute; the others have their turn in the next."""
CHANGED_MAX = 10_000
"""Streams remembered as changed; of more, some are sampled when they change again."""
MINUTES_KEPT_S = 2 * DAY_S
"""Older samples are thinned to the last of each hour."""
KEPT_S = 35 * DAY_S
ACTIVE_KEPT_S = 400 * DAY_S
POINTS_MAX = 1500
BUCKETS_PER_STEP = 200
EVERY_STREAM = 2**62

_encode = msgspec.msgpack.Encoder().encode
_size_decoder = msgspec.msgpack.Decoder(int)
_active_decoder = msgspec.msgpack.Decoder(list[str])


class Stored:
    """Samples of one server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._documents = Documents(engine)
        self._changed: dict[StreamId, StreamState] = {}
        self._timer: Timer | None = None
        self._walk: Pending[Any] | None = None
        self._walk_due_s = 0.0
        self._prune_due_s = 0

    def start(self) -> None:
        self._engine.observers.append(self._observe)
        self._wait()

    def _wait(self) -> None:
        self._timer = self._engine.clock.call_later(to_next_minute_s(self._engine), self._tick)

    def stop(self) -> None:
        """Call it before the engine closes. What changed since is sampled after a restart, when it
        changes again, or with its bucket."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._engine.observers.remove(self._observe)
        if self._walk is not None:
            self._walk.cancel()
            self._walk = None
        self._sample_streams()

    def _observe(self, changed: list[Stream]) -> None:
        noted = self._changed
        for stream in changed:
            if len(noted) < CHANGED_MAX:
                noted[stream.state.id] = stream.state

    def _tick(self) -> None:
        self._wait()
        self._sample_streams()
        if self._walk is None and self._engine.clock.monotonic_s() >= self._walk_due_s:
            self._walk = drive(self._engine.loop, self._prune_if_due())
            self._walk.deliver(self._begin_walk)

    # -- streams

    def _sample_streams(self) -> None:
        for stream_id in list(islice(self._changed, STREAMS_MAX)):
            state = self._changed.pop(stream_id)
            self._sample(f"{state.bucket}/{state.name}", self._size_of(stream_id))

    def _size_of(self, stream_id: StreamId) -> int:
        stream = self._engine.shard.peek(stream_id)
        return 0 if stream is None or stream.deleted or stream.gone else size_of(stream)

    def _sample(self, series: str, size: int) -> None:
        """Note a value, if it is another one than before, for the minute that ends now."""
        minute_s = Interval.MINUTE.start(self._now_s() - 1)
        last = self._last_before(series, minute_s)
        if last is None or last[1] != size:
            self._documents.save(STORED, _name(series, minute_s), _encode(size))

    # -- buckets

    def _begin_walk(self, failure: Exception | None) -> None:
        self._walk = None
        if failure is not None:
            log.error("old samples could not be dropped", exc_info=failure)
        began_s = self._engine.clock.monotonic_s()
        sizes: Counter[str] = Counter()

        def done(outcome: object) -> None:
            self._walk = None
            if isinstance(outcome, Exception):
                log.error("the streams could not all be looked at", exc_info=outcome)
                return
            took_s = self._engine.clock.monotonic_s() - began_s
            self._walk_due_s = began_s + took_s * WALK_SHARE
            self._walk = drive(self._engine.loop, self._note(sizes))
            self._walk.deliver(self._noted)

        try:
            listed = list_streams(self._engine, Selection(limit=EVERY_STREAM), _adding(sizes))
        except Exception as error:
            done(error)
            return
        if isinstance(listed, Pending):
            self._walk = listed
            listed.deliver(done)
        else:
            done(listed)

    def _note(self, sizes: Counter[str]) -> Generator[None, None, None]:
        """The buckets that have streams, and how much they hold."""
        day = f"{Interval.DAY.start(self._now_s()):012d}"
        known = self._active_on(day)
        if not sizes.keys() <= known:
            self._documents.save(ACTIVE, day, _encode(sorted(known | sizes.keys())))
        for count, bucket in enumerate(sorted(known | sizes.keys()), 1):
            self._sample(bucket, sizes[bucket])
            if count % BUCKETS_PER_STEP == 0:
                yield

    def _noted(self, failure: Exception | None) -> None:
        self._walk = None
        if failure is not None:
            log.error("how much buckets hold could not be noted", exc_info=failure)

    def _active_on(self, day: str) -> set[str]:
        stored = self._documents.read(ACTIVE, day)
        return set() if stored is None else set(_active_decoder.decode(stored))

    # -- questions

    def active(self, *, start_s: int, end_s: int) -> Pending[list[str]]:
        """The buckets that had a stream on any of these days."""
        return drive(self._engine.loop, self._find_active(start_s, end_s))

    def _find_active(self, start_s: int, end_s: int) -> Generator[None, None, list[str]]:
        first = keys.document(ACTIVE, f"{Interval.DAY.start(max(0, start_s)):012d}")
        end = keys.document(ACTIVE, f"{max(0, end_s):012d}")
        found: set[str] = set()
        for _, value in self._engine.store.scan(first, max(first, end)):
            found.update(_active_decoder.decode(value))
            yield
        if end_s > self._now_s():
            for count, bucket in enumerate(self._present(), 1):
                found.add(bucket)
                if count % BUCKETS_PER_STEP == 0:
                    yield
        return sorted(found)

    def _present(self) -> Iterator[str]:
        """The buckets that have a stream now, one look each however many streams they have."""
        start, end = keys.NAME_PREFIX, keys.prefix_end(keys.NAME_PREFIX)
        while True:
            found = next(iter(self._engine.store.scan(start, end)), None)
            if found is None:
                return
            bucket = keys.split_name(found[0])[0]
            yield bucket
            start = keys.name(bucket, "") + b"\xff"

    def of_bucket(
        self, bucket: str, interval: Interval, *, start_s: int, end_s: int
    ) -> list[Point] | Pending[list[Point]]:
        """What a bucket held at the end of each interval. Raises InvalidRequest for too many."""
        _check_points(interval, start_s, end_s)
        sizes: Counter[str] = Counter()
        selection = Selection(bucket=bucket, limit=EVERY_STREAM)
        listed = list_streams(self._engine, selection, _adding(sizes))
        return follow(
            listed, lambda _: self._series(bucket, interval, start_s, end_s, sizes[bucket])
        )

    def of_stream(
        self, stream: Stream, interval: Interval, *, start_s: int, end_s: int
    ) -> list[Point]:
        """What a stream held at the end of each interval. Raises InvalidRequest for too many."""
        _check_points(interval, start_s, end_s)
        state = stream.state
        series = f"{state.bucket}/{state.name}"
        return self._series(series, interval, start_s, end_s, size_of(stream))

    def _series(
        self, series: str, interval: Interval, start_s: int, end_s: int, present: int
    ) -> list[Point]:
        start_s, now_s, step_s = interval.start(start_s), self._now_s(), interval.seconds
        before = self._last_before(series, start_s - 1) if start_s else None
        value = None if before is None else before[1]
        samples = list(self._samples(series, start_s, min(end_s, now_s) + step_s))
        points: list[Point] = []
        at = 0
        for begins_s in range(start_s, min(end_s, now_s + 1), step_s):
            while at < len(samples) and samples[at][0] < begins_s + step_s:
                value = samples[at][1]
                at += 1
            if begins_s + step_s > now_s:
                value = present
            if value is not None:
                points.append((begins_s, value))
        return points

    def _samples(self, series: str, start_s: int, end_s: int) -> Iterator[Point]:
        start = keys.document(STORED, _name(series, start_s))
        end = keys.document(STORED, _name(series, end_s))
        for key, value in self._engine.store.scan(start, max(start, end)):
            yield _start_of(keys.split_document(key)[1]), _size_decoder.decode(value)

    def _last_before(self, series: str, at_s: int) -> Point | None:
        found = self._engine.store.last_before(
            keys.document(STORED, _name(series, at_s)), keys.document(STORED, _name(series, 0))
        )
        if found is None:
            return None
        return _start_of(keys.split_document(found[0])[1]), _size_decoder.decode(found[1])

    # -- what is no longer kept

    def _prune_if_due(self) -> Generator[None, None, None]:
        now_s = self._now_s()
        if now_s < self._prune_due_s:
            return
        self._prune_due_s = now_s + PRUNE_S
        for name, _ in self._documents.read_all(ACTIVE):
            if int(name) < now_s - ACTIVE_KEPT_S:
                self._documents.save(ACTIVE, name, None)
            yield
        previous = ""
        for count, (name, value) in enumerate(self._documents.read_all(STORED), 1):
            if previous and _is_superseded(previous, name, now_s):
                self._documents.save(STORED, previous, None)
            previous = name
            if _start_of(name) < now_s - KEPT_S and _size_decoder.decode(value) == 0:
                self._documents.save(STORED, name, None)  # what is gone leaves no last sample
            if count % DOCUMENTS_PER_STEP == 0:
                yield

    def _now_s(self) -> int:
        return self._engine.clock.now_ms() // 1000


def size_of(stream: Stream) -> int:
    """Body bytes that it retains."""
    return stream.tail.byte - stream.state.first_byte


def _adding(sizes: Counter[str]) -> Callable[[Stream], None]:
    def add(stream: Stream) -> None:
        sizes[stream.state.bucket] += size_of(stream)

    return add


def _check_points(interval: Interval, start_s: int, end_s: int) -> None:
    if (end_s - start_s) // interval.seconds > POINTS_MAX:
        raise InvalidRequest(
            f"more than {POINTS_MAX} points of a {interval.value}; ask for a longer interval or "
            "a shorter time"
        )


def _is_superseded(name: str, following: str, now_s: int) -> bool:
    """Is a sample no longer needed, given the one after it?"""
    if name.rpartition(SEPARATOR)[0] != following.rpartition(SEPARATOR)[0]:
        return False
    at_s, next_s = _start_of(name), _start_of(following)
    if next_s < now_s - KEPT_S:
        return True
    return at_s < now_s - MINUTES_KEPT_S and at_s // HOUR_S == next_s // HOUR_S


def _name(series: str, minute_s: int) -> str:
    return f"{series}{SEPARATOR}{minute_s:012d}"


def _start_of(name: str) -> int:
    return int(name.rpartition(SEPARATOR)[2])
