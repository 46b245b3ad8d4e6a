"""Samples of what is stored: by stream and bucket, kept, thinned, and true for now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.commands import Append, Create, Delete, Trim
from headwater.core.errors import InvalidRequest
from headwater.core.types import ByteOffset, Position, SeqNum
from headwater.engine import stored as module
from headwater.engine.stored import ACTIVE, STORED, Stored
from headwater.engine.usage import DAY_S, HOUR_S, MINUTE_S, Interval, Point
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from tests.support.builders import BUCKET
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner

START_S = 1_800_000_000  # a whole hour
START_MS = START_S * 1000


class StoredRunner(EngineRunner):
    """An engine whose contents are sampled."""

    def __init__(self, store: Store | None = None, clock: FakeClock | None = None) -> None:
        super().__init__(store, clock or FakeClock(START_MS))
        self.stored = Stored(self.engine)
        self.stored.start()

    def pass_time(self, seconds: float) -> None:
        """Time passes, and what is due comes to its end."""
        self.clock.advance(seconds)
        for _ in range(4):
            self.turn(20)
            self.settle()

    def add(self, name: str, size: int, bucket: str = BUCKET) -> None:
        now, text = self.clock.now_ms(), "text/plain"
        if self.engine.shard.find(bucket, name) is None:
            self.create(Create(bucket, name, now, text))
        self.append(Append(bucket, name, now, text, b"x" * size))

    def stream(
        self,
        name: str = "s",
        interval: Interval = Interval.MINUTE,
        start_s: int = START_S,
        end_s: int = START_S + HOUR_S,
    ) -> list[Point]:
        found = self.open(name)
        return self.stored.of_stream(found, interval, start_s=start_s, end_s=end_s)

    def bucket(
        self, interval: Interval = Interval.HOUR, start_s: int = START_S, hours: int = 24
    ) -> list[Point]:
        end_s = start_s + hours * HOUR_S
        return self.result(self.stored.of_bucket(BUCKET, interval, start_s=start_s, end_s=end_s))

    def samples(self, series: str) -> list[int]:
        names = (name for name, _ in self.engine.shard.documents(STORED))
        return [
            int(name.rpartition("\0")[2]) - START_S
            for name in names
            if name.rpartition("\0")[0] == series
        ]


@pytest.fixture
def runner() -> Iterator[StoredRunner]:
    with StoredRunner() as runner:
        yield runner


def test_the_present_is_told_before_any_sample(runner: StoredRunner) -> None:
    runner.add("s", 10)
    assert runner.stream() == [(START_S, 10)]
    assert runner.bucket() == [(START_S, 10)]


def test_a_stream_is_sampled_in_the_minutes_it_changes(runner: StoredRunner) -> None:
    runner.add("s", 10)
    runner.pass_time(MINUTE_S)
    runner.pass_time(3 * MINUTE_S)
    runner.add("s", 5)
    runner.pass_time(MINUTE_S)
    assert runner.samples(f"{BUCKET}/s") == [0, 240]
    values = [(at - START_S, value) for at, value in runner.stream()]
    assert values == [(0, 10), (60, 10), (120, 10), (180, 10), (240, 15), (300, 15)]
    # It holds from a sample that is before the range.
    later = runner.stream(start_s=START_S + 150, end_s=START_S + 240)
    assert later == [(START_S + 120, 10), (START_S + 180, 10)]


def test_the_value_of_a_longer_interval_is_the_last_one_in_it(runner: StoredRunner) -> None:
    for size in (1, 2, 4):
        runner.add("s", size)
        runner.pass_time(40 * MINUTE_S)
    runner.pass_time(HOUR_S)
    hours = runner.stream(interval=Interval.HOUR, end_s=START_S + 3 * HOUR_S)
    assert hours == [(START_S, 3), (START_S + HOUR_S, 7), (START_S + 2 * HOUR_S, 7)]
    day = START_S - START_S % DAY_S
    assert runner.stream(interval=Interval.DAY, end_s=START_S + DAY_S) == [(day, 7)]


def test_a_bucket_is_the_sum_of_its_streams(runner: StoredRunner) -> None:
    runner.add("s", 10)
    runner.add("t", 5)
    runner.add("elsewhere", 3, "other")
    runner.pass_time(MINUTE_S)
    runner.add("t", 5)
    runner.pass_time(MINUTE_S)
    runner.pass_time(2 * HOUR_S)
    hours = range(START_S, START_S + 2 * HOUR_S + 1, HOUR_S)
    assert runner.bucket() == [(at, 20) for at in hours]
    assert runner.bucket(Interval.MINUTE)[:2] == [(START_S, 15), (START_S + 60, 20)]


def test_what_is_trimmed_or_deleted_counts_no_more(runner: StoredRunner) -> None:
    runner.add("s", 10)
    runner.add("t", 5)
    runner.add("s", 10)
    runner.pass_time(MINUTE_S)
    now = runner.clock.now_ms()
    runner.result(runner.submit(Trim(BUCKET, "s", now, Position(SeqNum(1), ByteOffset(10)))))
    runner.delete(Delete(BUCKET, "t", now))
    runner.pass_time(MINUTE_S)
    runner.pass_time(HOUR_S)
    minutes = [value for _, value in runner.bucket(Interval.MINUTE, hours=1)]
    assert (minutes[0], minutes[-1]) == (25, 10)
    assert runner.samples(f"{BUCKET}/t") == [0, 60]
    # A new stream of the name goes on where the old one was nothing.
    runner.add("t", 7)
    assert [value for _, value in runner.stream("t")][:3] == [5, 0, 0]


def test_samples_survive_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock(START_MS)
    with StoredRunner(store, clock) as runner:
        runner.add("s", 10)
        runner.pass_time(MINUTE_S + 1)
        runner.add("s", 1)
        runner.stored.stop()
        runner.settle()
    with StoredRunner(store, clock) as runner:
        runner.pass_time(2 * MINUTE_S)
        assert [value for _, value in runner.stream()] == [10, 11, 11, 11]


def test_nothing_is_written_while_nothing_changes(runner: StoredRunner) -> None:
    runner.add("s", 10)
    for _ in range(5):
        runner.pass_time(MINUTE_S)
    assert runner.samples(f"{BUCKET}/s") == [0]
    assert len(runner.samples(BUCKET)) == 1


def test_only_so_many_streams_are_sampled_in_a_minute(
    runner: StoredRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STREAMS_MAX", 2)
    for name in ("a", "b", "c"):
        runner.add(name, 1)
    runner.pass_time(MINUTE_S)
    runner.pass_time(MINUTE_S)
    assert [runner.samples(f"{BUCKET}/{name}") for name in "abc"] == [[0], [0], [60]]


def test_only_so_many_changes_are_remembered(
    runner: StoredRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGED_MAX", 1)
    runner.add("a", 1)
    runner.add("b", 1)
    runner.pass_time(MINUTE_S)
    assert [runner.samples(f"{BUCKET}/{name}") for name in "ab"] == [[0], []]


def test_a_walk_that_takes_long_rests_long(
    runner: StoredRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.add("s", 1)
    walks = []

    def slow(*args: object) -> None:
        walks.append(runner.clock.now_ms() // 1000 - START_S)
        runner.clock.advance(3)

    monkeypatch.setattr(module, "list_streams", slow)
    for _ in range(8):
        runner.pass_time(MINUTE_S)
    assert len(walks) == 2
    assert walks[1] - walks[0] >= 3 * module.WALK_SHARE


def test_a_walk_that_fails_is_tried_again(
    runner: StoredRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a broken disk")

    runner.add("s", 1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "list_streams", fail)
        runner.pass_time(MINUTE_S)
    assert runner.samples(BUCKET) == []
    runner.pass_time(MINUTE_S)
    assert runner.samples(BUCKET) == [60]


def test_old_samples_are_thinned_and_then_dropped_but_for_the_last(runner: StoredRunner) -> None:
    for _ in range(5):
        runner.add("s", 1)
        runner.pass_time(MINUTE_S)
    runner.pass_time(HOUR_S)
    runner.add("s", 1)
    runner.pass_time(MINUTE_S)
    assert runner.samples(f"{BUCKET}/s") == [0, 60, 120, 180, 240, 3900]
    runner.pass_time(3 * DAY_S)
    assert runner.samples(f"{BUCKET}/s") == [240, 3900]
    runner.pass_time(36 * DAY_S)
    assert runner.samples(f"{BUCKET}/s") == [3900]
    runner.delete(Delete(BUCKET, "s", runner.clock.now_ms()))
    runner.pass_time(MINUTE_S)
    runner.pass_time(36 * DAY_S)
    runner.pass_time(HOUR_S)
    assert runner.samples(f"{BUCKET}/s") == []


def test_the_buckets_that_had_streams_are_known_by_day(
    runner: StoredRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACTIVE_KEPT_S", 5 * DAY_S)
    monkeypatch.setattr(module, "BUCKETS_PER_STEP", 1)

    def active(start_s: int, end_s: int) -> list[str]:
        return runner.result(runner.stored.active(start_s=start_s, end_s=end_s))

    runner.add("s", 1)
    assert active(START_S, START_S + 1) == [BUCKET]
    runner.pass_time(MINUTE_S)
    runner.delete(Delete(BUCKET, "s", runner.clock.now_ms()))
    runner.pass_time(2 * DAY_S)
    runner.add("x", 1, "later")
    runner.add("y", 1, "later")
    now_s = runner.clock.now_ms() // 1000
    assert active(START_S, START_S + HOUR_S) == [BUCKET]
    assert active(now_s - DAY_S, now_s) == []
    assert active(now_s - DAY_S, now_s + 1) == ["later"]
    assert active(0, now_s + 1) == sorted((BUCKET, "later"))
    runner.pass_time(6 * DAY_S)
    runner.pass_time(HOUR_S)
    assert len(list(runner.engine.shard.documents(ACTIVE))) == 1


def test_more_points_than_anybody_can_look_at_are_refused(runner: StoredRunner) -> None:
    runner.add("s", 1)
    with pytest.raises(InvalidRequest, match="longer interval"):
        runner.stream(end_s=START_S + 2 * DAY_S)
    with pytest.raises(InvalidRequest, match="longer interval"):
        runner.bucket(Interval.MINUTE, hours=48)
