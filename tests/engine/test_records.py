"""Records by number: spans of runs, forks, ranges; and what appends of records leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.commands import AppendRecords
from headwater.core.errors import InvalidOffset, OffsetTrimmed, StreamNotFound
from headwater.core.records import APPEND_START, HAS_HEADERS
from headwater.core.types import SeqNum, TimestampMs
from headwater.engine import records
from headwater.engine.records import Range, RecordCursor, Span, resolve
from headwater.storage import keys
from headwater.storage.runs import Run
from tests.support.builders import BUCKET, append, claim, create, delete, fork_of, position
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes


@pytest.fixture
def runner() -> Iterator[EngineRunner]:
    with EngineRunner() as runner:
        yield runner


def read(runner: EngineRunner, name: str, first: int = 0, end: int | None = None) -> list[bytes]:
    stream = runner.open(name)
    stop = stream.tail.seq if end is None else SeqNum(end)
    cursor = RecordCursor(runner.engine.shard, stream, SeqNum(first), stop)
    found: list[bytes] = []
    while not cursor.done:
        found += [body for span in cursor.step() for body in bodies_of(span)]
    assert cursor.step() == []
    return found


def bodies_of(span: Span) -> list[bytes]:
    found = [bytes(body) for body in span.run.record_bodies()]
    if span.cut is not None:
        found[span.end - 1] = found[span.end - 1][: span.cut]
    return found[span.start : span.stop]


def add(runner: EngineRunner, name: str, *bodies: bytes, **fields: object) -> None:
    command = AppendRecords(
        BUCKET,
        name,
        TimestampMs(START_MS),
        list(bodies),
        **fields,  # type: ignore[arg-type]
    )
    runner.result(runner.engine.append(command))
    runner.settle()


@pytest.mark.parametrize("packed", [False, True])
def test_every_range_is_read_whatever_the_runs(runner: EngineRunner, packed: bool) -> None:
    with small_sizes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "STEP_BYTES", 100)
        runner.engine.packer.enabled = packed
        runner.create(create("s"))
        for number in range(12):
            runner.append(append("s", b"%02d" % number * 4))
        runner.settle()
        runs = len(runner.keys(keys.RUN_PREFIX))
        assert runs < 12 if packed else runs == 12
        whole = [b"%02d" % number * 4 for number in range(12)]
        for first in range(13):
            for end in range(first, 13):
                assert read(runner, "s", first, end) == whole[first:end]


def test_a_fork_reads_through_its_extents(runner: EngineRunner) -> None:
    with small_sizes():
        runner.create(create("a"))
        add(runner, "a", b"0", b"1", b"2")
        runner.create(create("b", content_type=None, fork=fork_of("a", position(2, 2))))
        add(runner, "b", b"x", b"y")
        runner.create(create("c", content_type=None, fork=fork_of("b", position(3, 3))))
        add(runner, "c", b"z")
        add(runner, "a", b"3")
        assert read(runner, "a") == [b"0", b"1", b"2", b"3"]
        assert read(runner, "b") == [b"0", b"1", b"x", b"y"]
        assert read(runner, "c") == [b"0", b"1", b"x", b"z"]
        assert read(runner, "c", 1, 3) == [b"1", b"x"]


def test_a_step_ends_where_an_extent_does(runner: EngineRunner) -> None:
    runner.create(create("a"))
    add(runner, "a", b"long record", b"next")
    runner.create(create("b", content_type=None, fork=fork_of("a", position(0, 0), 4)))
    add(runner, "b", b"own")
    stream = runner.open("b")
    cursor = RecordCursor(runner.engine.shard, stream, SeqNum(0), SeqNum(2))
    (inherited,) = cursor.step()
    assert (inherited.start, inherited.stop, inherited.end, inherited.cut) == (0, 1, 1, 4)
    (own,) = cursor.step()
    assert (own.start, own.stop, own.end, own.cut) == (0, 1, 1, None)


def test_a_stream_that_is_gone_is_not_read_on(runner: EngineRunner) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "STEP_BYTES", 1)
        runner.create(create("s"))
        runner.append(append("s", b"1"))
        runner.append(append("s", b"2"))
        cursor = RecordCursor(runner.engine.shard, runner.open("s"), SeqNum(0), SeqNum(2))
        assert len(cursor.step()) == 1
        runner.delete(delete("s"))
        with pytest.raises(StreamNotFound):
            cursor.step()


# -- ranges


def test_a_range_is_found(runner: EngineRunner) -> None:
    runner.create(create("s"))
    for number in range(5):
        runner.append(append("s", b"x", at_ms=START_MS + number))
    shard, stream = runner.engine.shard, runner.open("s")

    def numbers(**wanted: int) -> tuple[int, int]:
        return resolve(shard, stream, Range(**wanted))  # type: ignore[arg-type]

    assert numbers() == (0, 5)
    assert numbers(first=2) == (2, 5)
    assert numbers(first=5) == (5, 5)
    assert numbers(end=3) == (0, 3)
    assert numbers(end=99) == (0, 5)
    assert numbers(first=4, end=2) == (4, 4)
    assert numbers(first_ms=START_MS + 2) == (2, 5)
    assert numbers(first_ms=0, end_ms=START_MS + 2) == (0, 2)
    assert numbers(first=1, end=4, end_ms=START_MS + 3) == (1, 3)
    assert numbers(first_ms=START_MS + 99) == (5, 5)
    with pytest.raises(InvalidOffset):
        numbers(first=6)
    stream.state.first_seq = SeqNum(3)
    assert numbers() == (3, 5)
    assert numbers(end=1) == (3, 3)
    with pytest.raises(OffsetTrimmed):
        numbers(first=2)


# -- appends of records


def stored_runs(runner: EngineRunner) -> list[Run]:
    end = keys.prefix_end(keys.RUN_PREFIX)
    entries = runner.store.scan(keys.RUN_PREFIX, end)
    return [Run(keys.split_run(key)[1], value) for key, value in entries]


def test_headers_are_stored_with_their_records(runner: EngineRunner) -> None:
    runner.create(create("s"))
    add(runner, "s", b"a", b"b", b"c", headers=[[], [(b"k", b"v")], []])
    (run,) = stored_runs(runner)
    assert list(run.record_headers()) == [(), [(b"k", b"v")], ()]
    assert list(run.flags) == [APPEND_START, HAS_HEADERS, 0]


def test_headers_and_empty_bodies_fill_a_run_too(runner: EngineRunner) -> None:
    with small_sizes(run_bytes=200):
        runner.engine.packer.enabled = False
        runner.create(create("s"))
        add(runner, "s", *[b""] * 40)
        assert max(run.count for run in stored_runs(runner)) <= 16
        runner.create(create("t"))
        add(runner, "t", *[b"x"] * 9, headers=[[(b"k", b"v" * 100)]] * 9)
        sizes = [run.stored_bytes for run in stored_runs(runner)]
        assert max(sizes) < 500
        assert read(runner, "s") == [b""] * 40


def test_writers_of_records_are_known_after_a_restart(runner: EngineRunner) -> None:
    with small_sizes():
        runner.create(create("s"))
        bodies = [b"%d" % number * 8 for number in range(20)]
        add(runner, "s", *bodies, producer=claim("p", 2, 0))
        runner.settle()
        with EngineRunner(runner.store) as again:
            stream = again.open("s")
            mark = stream.state.producers["p"]
            assert (mark.epoch, mark.seq, stream.tail.seq) == (2, 0, 20)
            assert read(again, "s") == bodies


# -- looking at many


def test_a_peek_takes_no_place_in_memory(runner: EngineRunner) -> None:
    runner.create(create("s", body=b"1"))
    runner.append(append("s", b"2", producer=claim()))
    runner.settle()
    stream_id = runner.open("s").state.id
    with EngineRunner(runner.store) as again:
        shard = again.engine.shard
        found = shard.peek(stream_id)
        assert found is not None and found.tail == (2, 2)
        assert shard.hot_streams() == 0
        assert shard.peek(stream_id) is not found
        loaded = shard.load(stream_id)
        assert shard.peek(stream_id) is loaded
        again.delete(delete("s"))
        again.settle()
        assert shard.peek(stream_id) is None
