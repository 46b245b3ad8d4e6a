"""A series of appends: each judged by itself, up to the first that is refused."""

from __future__ import annotations

from headwater.core.append import SeriesAppended
from headwater.core.commands import AppendRecords, AppendSeries, Delete, Provision, ProvisionMode
from headwater.core.errors import PreconditionFailed, StreamNotFound
from headwater.core.stream_config import resolve
from headwater.core.types import SeqNum, StreamId, TimestampMs
from tests.support.builders import BUCKET
from tests.support.engines import EngineRunner


def make(runner: EngineRunner) -> StreamId:
    now = runner.clock.now_ms()
    runner.result(runner.engine.put_bucket(BUCKET, None))
    made = Provision(BUCKET, "s", now, ProvisionMode.KEEP, resolve())
    runner.result(runner.engine.provision(made))
    return runner.engine.open(BUCKET, "s").state.id


def batch(*bodies: bytes, expect: int | None = None) -> AppendRecords:
    expected = None if expect is None else SeqNum(expect)
    return AppendRecords(BUCKET, "s", TimestampMs(1), list(bodies), None, None, expected)


def append(
    runner: EngineRunner, *parts: AppendRecords, stream_id: StreamId | None = None
) -> SeriesAppended:
    series = AppendSeries(BUCKET, "s", runner.clock.now_ms(), list(parts), stream_id)
    return runner.result(runner.engine.append_series(series))


def test_each_append_of_a_series_has_its_answer() -> None:
    with EngineRunner() as runner:
        make(runner)
        found = append(runner, batch(b"a", b"b"), batch(b"c", expect=2))

        assert found.refusal is None
        assert [(each.first_seq, each.tail.seq) for each in found.appended] == [(0, 2), (2, 3)]
        assert runner.engine.open(BUCKET, "s").tail.seq == 3


def test_nothing_behind_the_first_refusal_is_added() -> None:
    with EngineRunner() as runner:
        make(runner)
        found = append(runner, batch(b"a"), batch(b"b", expect=7), batch(b"c"))

        assert len(found.appended) == 1
        assert isinstance(found.refusal, PreconditionFailed)
        assert runner.engine.open(BUCKET, "s").tail.seq == 1


def test_a_series_is_for_one_stream_and_not_for_a_later_one_of_its_name() -> None:
    with EngineRunner() as runner:
        first = make(runner)
        assert append(runner, batch(b"a"), stream_id=first).refusal is None
        runner.result(runner.engine.delete(Delete(BUCKET, "s", runner.clock.now_ms())))
        assert isinstance(append(runner, batch(b"b"), stream_id=first).refusal, StreamNotFound)
        second = make(runner)
        found = append(runner, batch(b"b"), stream_id=first)

        assert (found.appended, type(found.refusal)) == ([], StreamNotFound)
        assert append(runner, batch(b"b"), stream_id=second).refusal is None


def test_a_series_counts_by_its_bytes_for_the_queue() -> None:
    with EngineRunner(queue_bytes_max=10_000) as runner:
        make(runner)
        series = [batch(bytes(4000)) for _ in range(3)]
        outcome = runner.outcome(
            runner.engine.append_series(AppendSeries(BUCKET, "s", runner.clock.now_ms(), series))
        )

        assert type(outcome).__name__ == "Overloaded"


def test_the_time_of_the_tail_is_that_of_what_is_durable() -> None:
    with EngineRunner() as runner:
        make(runner)
        append(runner, batch(b"a"))
        stream = runner.engine.open(BUCKET, "s")
        before = stream.tail_time_ms
        runner.clock.advance(5.0)
        pending = runner.engine.append(
            AppendRecords(BUCKET, "s", runner.clock.now_ms(), [b"b"], None, None, None)
        )
        assert stream.tail_time_ms == before
        runner.result(pending)

        assert stream.tail_time_ms == runner.clock.now_ms()
