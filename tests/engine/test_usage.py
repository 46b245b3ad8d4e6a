"""What was counted is kept by minute, hour and day, survives, and goes when it is old."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.access import Operation
from headwater.engine import usage as module
from headwater.engine.tally import ACCOUNT, Counts, Tally
from headwater.engine.usage import COLLECTION, DAY_S, HOUR_S, MINUTE_S, Interval, Point, Usage
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from tests.support.builders import BUCKET, append, create
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.stores import DiskError, FaultyStore

START_S = 1_800_000_000  # a whole hour
START_MS = START_S * 1000


def take(tally: Tally) -> dict[str, Counts]:
    return {bucket: tally.take(bucket) for bucket in tally.buckets()}


class UsageRunner(EngineRunner):
    """An engine whose use is noted."""

    def __init__(self, store: Store | None = None, clock: FakeClock | None = None) -> None:
        super().__init__(store, clock or FakeClock(START_MS))
        self.usage = Usage(self.engine)
        self.usage.start()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def series(
        self,
        kind: str,
        interval: Interval = Interval.MINUTE,
        bucket: str = BUCKET,
        start_s: int = 0,
        end_s: int = 2**31,
    ) -> list[Point]:
        found = self.usage.series(bucket, interval, start_s=start_s, end_s=end_s)
        return self.result(found).get(kind, [])

    def documents(self) -> list[str]:
        return [name for name, _ in self.engine.shard.documents(COLLECTION)]


@pytest.fixture
def runner() -> Iterator[UsageRunner]:
    with UsageRunner() as runner:
        yield runner


# -- counting


def test_appends_are_counted_by_storage_class() -> None:
    tally = Tally()
    tally.append("b", None, 5)
    tally.append("b", None, 7)
    tally.append("b", "standard", 1)
    tally.append("c", "express", 2)
    assert take(tally) == {
        "b": {
            "append-ops/express": 2,
            "append-bytes/express": 12,
            "append-ops/standard": 1,
            "append-bytes/standard": 1,
        },
        "c": {"append-ops/express": 1, "append-bytes/express": 2},
    }
    assert take(tally) == {}


def test_reads_are_counted_by_their_kind() -> None:
    tally = Tally()
    tally.read("b", 5)
    tally.read("b", 0, streaming=True)
    tally.read("b", 7, streaming=True, requests=0)
    assert take(tally) == {"b": {"read-ops/unary": 1, "read-ops/streaming": 1, "read-bytes": 12}}


def test_operations_are_of_their_basin_or_of_the_account() -> None:
    tally = Tally()
    tally.operation(Operation.CREATE_STREAM, "b")
    tally.operation(Operation.LIST_STREAMS)
    tally.operation(Operation.GET_BASIN_CONFIG, "b")
    tally.operation(Operation.APPEND, "b")
    assert take(tally) == {
        "b": {"op/create-stream": 1},
        ACCOUNT: {"op/list-streams": 1, "op/get-basin-config": 1},
    }


def test_made_up_buckets_are_not_counted_for() -> None:
    tally = Tally(lambda bucket: bucket == "b")
    for bucket in ("b", "none", "another"):
        tally.operation(Operation.LIST_STREAMS, bucket)
    assert take(tally) == {"b": {"op/list-streams": 1}}


def test_what_is_appended_to_streams_is_counted(runner: UsageRunner) -> None:
    runner.create(create("s", body=b"four"))
    runner.append(append("s", body=b"sixsix"))
    assert runner.series("append-ops/express") == [(START_S, 2)]
    assert runner.series("append-bytes/express") == [(START_S, 10)]


# -- keeping


def test_counts_add_up_by_minute_hour_and_day(runner: UsageRunner) -> None:
    tally = runner.engine.tally
    expected = [(0, 1), (30, 1), (MINUTE_S, 1), (HOUR_S, 1), (HOUR_S + MINUTE_S, 1), (DAY_S, 1)]
    passed = 0.0
    for after_s, count in expected:
        runner.pass_time(after_s - passed)
        passed = after_s
        tally.read(BUCKET, 100 * count)
    assert runner.series("read-bytes") == [
        (START_S, 200),
        (START_S + MINUTE_S, 100),
        (START_S + HOUR_S, 100),
        (START_S + HOUR_S + MINUTE_S, 100),
        (START_S + DAY_S, 100),
    ]
    assert runner.series("read-bytes", Interval.HOUR) == [
        (START_S, 300),
        (START_S + HOUR_S, 200),
        (START_S + DAY_S, 100),
    ]
    day = START_S - START_S % DAY_S
    assert runner.series("read-bytes", Interval.DAY) == [(day, 500), (day + DAY_S, 100)]


def test_a_range_is_of_intervals_that_begin_in_it(runner: UsageRunner) -> None:
    for _ in range(3):
        runner.engine.tally.read(BUCKET, 1)
        runner.pass_time(MINUTE_S)
    first, second, third = START_S, START_S + 60, START_S + 120
    assert runner.series("read-bytes") == [(first, 1), (second, 1), (third, 1)]
    assert runner.series("read-bytes", start_s=second + 59, end_s=third + 1) == [
        (second, 1),
        (third, 1),
    ]
    assert runner.series("read-bytes", start_s=second, end_s=third) == [(second, 1)]
    assert runner.series("read-bytes", start_s=third + 60) == []
    assert runner.series("read-bytes", start_s=5, end_s=5) == []


def test_buckets_do_not_mix(runner: UsageRunner) -> None:
    tally = runner.engine.tally
    for size, bucket in enumerate(("a", "a.b", "a-b", "ab"), 1):
        tally.read(bucket, size)
    assert [runner.series("read-bytes", bucket=name)[0][1] for name in ("a", "a.b", "a-b", "ab")]
    for size, bucket in enumerate(("a", "a.b", "a-b", "ab"), 1):
        assert runner.series("read-bytes", bucket=bucket) == [(START_S, size)]
    assert runner.series("read-bytes", bucket=ACCOUNT) == []


def test_nothing_is_written_while_nothing_happens(runner: UsageRunner) -> None:
    runner.pass_time(HOUR_S)
    assert runner.documents() == []


def test_counts_are_written_once_a_minute_and_not_before(runner: UsageRunner) -> None:
    runner.engine.tally.read(BUCKET, 1)
    runner.pass_time(MINUTE_S - 1)
    assert runner.documents() == []
    runner.pass_time(1)
    assert len(runner.documents()) == 3


def test_counts_survive_a_restart_within_the_minute() -> None:
    store, clock = MemoryStore(), FakeClock(START_MS)
    with UsageRunner(store, clock) as runner:
        runner.engine.tally.read(BUCKET, 5)
        runner.usage.stop()
        runner.settle()
    with UsageRunner(store, clock) as runner:
        runner.engine.tally.read(BUCKET, 7)
        for interval in Interval:
            assert runner.series("read-bytes", interval)[0][1] == 12


def test_additions_do_not_overtake_one_another(runner: UsageRunner) -> None:
    """Each reads what the one before has written."""
    tally, answers = runner.engine.tally, []
    for _ in range(3):
        tally.read(BUCKET, 1)
        runner.usage.flush()
        tally.read(BUCKET, 1)
        answers.append(runner.usage.series(BUCKET, Interval.MINUTE, start_s=0, end_s=2**31))
    for answer in answers:
        runner.result(answer)
    assert runner.series("read-bytes") == [(START_S, 6)]


def test_many_buckets_are_noted_some_at_a_time(runner: UsageRunner) -> None:
    buckets = [f"b{number}" for number in range(7)]
    for bucket in buckets:
        runner.engine.tally.read(bucket, 5)
    runner.usage.flush(per_step=2)
    assert len(runner.engine.tally.buckets()) == 5
    runner.settle()
    assert runner.engine.tally.buckets() == []
    for bucket in buckets:
        assert runner.series("read-bytes", bucket=bucket) == [(START_S, 5)]


def test_a_question_about_one_bucket_is_about_no_other(runner: UsageRunner) -> None:
    runner.engine.tally.read("a", 1)
    runner.engine.tally.read("b", 1)
    runner.series("read-bytes", bucket="a")
    assert runner.engine.tally.buckets() == ["b"]


def test_what_is_not_noted_is_not_written_for_a_question() -> None:
    with EngineRunner(clock=FakeClock(START_MS)) as runner:
        runner.engine.tally.read(BUCKET, 1)
        idle = Usage(runner.engine)
        found = idle.series(BUCKET, Interval.MINUTE, start_s=0, end_s=2**31)
        assert runner.result(found) == {}
        assert list(runner.engine.shard.documents(COLLECTION)) == []


def test_what_is_old_goes(runner: UsageRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_PER_STEP", 1)
    monkeypatch.setattr(module, "KEPT_DAYS", {"minute": 1, "hour": 2, "day": 4})
    runner.engine.tally.read(BUCKET, 1)
    runner.pass_time(MINUTE_S)
    kinds = [sorted(name[0] for name in runner.documents())]
    for days in (1.5, 1, 3):
        runner.pass_time(days * DAY_S)
        runner.turn(20)
        runner.settle()
        kinds.append(sorted(name[0] for name in runner.documents()))
    assert kinds == [["d", "h", "m"], ["d", "h"], ["d"], []]


def test_a_broken_disk_is_the_answer() -> None:
    store = FaultyStore(MemoryStore())
    with UsageRunner(store) as runner:
        runner.engine.tally.read(BUCKET, 1)
        store.sync_error = DiskError()
        found = runner.usage.series(BUCKET, Interval.MINUTE, start_s=0, end_s=1)
        assert isinstance(runner.outcome(found), Exception)
