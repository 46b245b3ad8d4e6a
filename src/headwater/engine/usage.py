"""How much each bucket was used, by minute, hour and day, kept on disk. S2 API: metrics.

Once a minute what was counted (tally.py) is added to three documents of each bucket that was
used, never on the path of an append; what a crash takes is at most that minute.

    usage / {interval} {bucket} 00 {start}   MessagePack of Counts; `start` in seconds, 12 digits

`interval` is one letter: m, h or d. Frozen. How much is stored is in stored.py.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterator
from enum import Enum

import msgspec

from headwater.core.pending import Pending
from headwater.engine.clock import Timer
from headwater.engine.documents import Documents
from headwater.engine.engine import Engine
from headwater.engine.steps import drive
from headwater.engine.tally import Counts
from headwater.storage import keys

log = logging.getLogger("headwater.usage")

COLLECTION = "usage"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
KEPT_DAYS = {"minute": 2, "hour": 35, "day": 400}
PRUNE_S = HOUR_S
DOCUMENTS_PER_STEP = 500
BUCKETS_PER_STEP = 200
SEPARATOR = "\0"

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Counts)


class Interval(Enum):
    """Over how long counts are added up."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        return {"minute": MINUTE_S, "hour": HOUR_S, "day": DAY_S}[self.value]

    @property
    def kept_s(self) -> int:
        """How long its documents are kept."""
        return KEPT_DAYS[self.value] * DAY_S

    def start(self, at_s: int) -> int:
        return at_s - at_s % self.seconds


Point = tuple[int, int]
"""When an interval began, in seconds, and what was counted in it."""


class Usage:
    """The counts of one server, from the tally of its engine to the disk and back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._documents = Documents(engine)
        self._since_s = self.now_s()
        """What is in the tally was counted from then on."""
        self._timer: Timer | None = None
        self._prune_due_s = 0
        self._pruning: Pending[None] | None = None

    def start(self) -> None:
        self._timer = self._engine.clock.call_later(to_next_minute_s(self._engine), self._tick)

    def stop(self) -> None:
        """Save what was counted. Call it before the engine closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pruning is not None:
            self._pruning.cancel()
        self.flush(per_step=sys.maxsize)  # all at once: there may be no next step

    def now_s(self) -> int:
        return self._engine.clock.now_ms() // 1000

    def _tick(self) -> None:
        self.start()
        self.flush()
        if self.now_s() >= self._prune_due_s:
            self._prune_due_s = self.now_s() + PRUNE_S
            self._pruning = drive(self._engine.loop, self._prune())
            self._pruning.deliver(_pruned)

    def flush(self, *, per_step: int = BUCKETS_PER_STEP) -> None:
        """Add what was counted since the last time to what is stored, some buckets at a time."""
        since_s, self._since_s = self._since_s, self.now_s()
        buckets = self._engine.tally.buckets()

        def go_on(failure: Exception | None) -> None:
            if failure is not None:
                return
            for bucket in buckets[:per_step]:
                self._add_counts(bucket, since_s)
            del buckets[:per_step]
            if buckets:
                self._documents.after(go_on)

        self._documents.after(go_on)

    def _add_counts(self, bucket: str, since_s: int) -> None:
        """Once all that was saved is durable: two additions to one document must not be under way
        together."""
        counts = self._engine.tally.take(bucket)
        for interval in Interval if counts else ():
            name = _name(interval, bucket, interval.start(since_s))
            stored = self._documents.read(COLLECTION, name)
            total = dict(counts) if stored is None else _add(_decoder.decode(stored), counts)
            self._documents.save(COLLECTION, name, _encode(total))

    def series(
        self, bucket: str, interval: Interval, *, start_s: int, end_s: int
    ) -> Pending[dict[str, list[Point]]]:
        """What was counted in the intervals that began from `start_s` up to before `end_s`, those
        with nothing left out: by name, in order of time."""
        answer: Pending[dict[str, list[Point]]] = Pending()

        def read(failure: Exception | None) -> None:
            if failure is not None:
                answer.fail(failure)
                return
            first = interval.start(start_s)
            found: dict[str, list[Point]] = {}
            for at_s, counts in self._scan(bucket, interval, first, end_s):
                for kind, count in counts.items():
                    found.setdefault(kind, []).append((at_s, count))
            answer.resolve(found)

        def flush(failure: Exception | None) -> None:
            if failure is None and self._timer is not None:  # else nothing is noted
                self._add_counts(bucket, self._since_s)
            self._documents.after(read)

        self._documents.after(flush)
        return answer

    def _scan(
        self, bucket: str, interval: Interval, start_s: int, end_s: int
    ) -> Iterator[tuple[int, Counts]]:
        start = keys.document(COLLECTION, _name(interval, bucket, max(0, start_s)))
        end = keys.document(COLLECTION, _name(interval, bucket, max(0, end_s)))
        for key, value in self._engine.store.scan(start, max(start, end)):
            yield _start_of(keys.split_document(key)[1]), _decoder.decode(value)

    def _prune(self) -> Generator[None, None, None]:
        """Drop what is older than it is kept for."""
        now_s = self.now_s()
        letters = {interval.value[0]: interval for interval in Interval}
        for count, (name, _) in enumerate(self._documents.read_all(COLLECTION), 1):
            if _start_of(name) < now_s - letters[name[0]].kept_s:
                self._documents.save(COLLECTION, name, None)
            if count % DOCUMENTS_PER_STEP == 0:
                yield


def to_next_minute_s(engine: Engine) -> float:
    """How long until the next minute begins."""
    return MINUTE_S - engine.clock.now_ms() % (MINUTE_S * 1000) / 1000


def _pruned(outcome: Exception | None) -> None:
    if outcome is not None:
        log.error("old usage could not be dropped", exc_info=outcome)


def _name(interval: Interval, bucket: str, start_s: int) -> str:
    return f"{interval.value[0]}{bucket}{SEPARATOR}{start_s:012d}"


def _start_of(name: str) -> int:
    return int(name.rpartition(SEPARATOR)[2])


def _add(stored: Counts, counts: Counts) -> Counts:
    for kind, count in counts.items():
        stored[kind] = stored.get(kind, 0) + count
    return stored
