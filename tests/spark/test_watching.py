"""The planner of a streaming query, without Spark: what it finds, and when it says it is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.spark import stream_reader, streams
from headwater.spark.offsets import Json
from headwater.spark.options import Selection, parse_source
from headwater.spark.plan import Range
from headwater.spark.stream_reader import StreamReader
from tests.spark.support import Streams, numbers
from tests.support.inprocess import serving


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "bucket", tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "LOOK_SHARE", 1.0)


def reader(world: Streams, **options: str) -> StreamReader:
    given = {"endpoint": world.url, "bucket": world.bucket, "subscribePattern": "in/*", **options}
    return StreamReader(parse_source(given, streaming=True))


def step(found: StreamReader, start: Json) -> tuple[Json, list[Range]]:
    """One micro-batch: its end, and what it reads."""
    end = found.latestOffset(start, found.getDefaultReadLimit())
    parts = found.partitions(start, end)
    return end, [piece for part in parts for piece in part.value]


def test_a_query_begins_where_its_first_look_found_the_streams(world: Streams) -> None:
    world.make("in/1", numbers(5))
    found = reader(world)
    start, read = step(found, found.initialOffset())
    assert read == []
    world.make("in/2", numbers(3))
    world.add("in/1", numbers(2))
    end, read = step(found, start)
    assert [(part.name, part.first, part.end) for part in read] == [("in/1", 5, 7), ("in/2", 0, 3)]
    # Repeated after a crash, by another process, when the world has moved on.
    world.add("in/1", numbers(9))
    again = reader(world, maxRecordsPerPartition="1").partitions(start, end)
    assert [piece for part in again for piece in part.value] == read
    found.stop()


def test_a_query_that_found_no_stream_reads_all_of_those_that_come(world: Streams) -> None:
    found = reader(world)
    start, read = step(found, found.initialOffset())
    assert read == [] and start != found.initialOffset()
    world.make("in/1", numbers(4))
    _, read = step(found, start)
    assert [(part.first, part.end) for part in read] == [(0, 4)]
    found.stop()


def test_nothing_new_is_the_same_offset_to_the_letter(world: Streams) -> None:
    world.make("in/1", numbers(4))
    found = reader(world, startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    for _ in range(3):
        assert step(found, start) == (start, [])
    world.client.close_stream("bucket", "in/1")
    assert step(found, start) == (start, [])
    world.remove("in/1")  # read to its end, so nothing is lost
    assert step(found, start) == (start, [])
    found.stop()


def test_what_is_told_to_stop_there_does(world: Streams) -> None:
    world.make("in/1", numbers(4))
    found = reader(world, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    found.prepareForTriggerAvailableNow()
    world.add("in/1", numbers(4))
    world.make("in/2", numbers(4))
    start, read = step(found, found.initialOffset())
    assert [part.rows for part in read] == [3]
    start, read = step(found, start)
    assert [part.rows for part in read] == [1]
    assert step(found, start) == (start, [])
    found.stop()


def test_a_trigger_that_asks_for_everything_gets_it(world: Streams) -> None:
    world.make("in/1", numbers(10))
    found = reader(world, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    end = found.latestOffset({}, ReadAllAvailable())
    assert end["bucket/in/1"]["seq"] == 10
    found.stop()


def test_streams_are_looked_at_for_a_share_of_the_time(
    world: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "LOOK_SHARE", 1e-9)
    world.make("in/1", numbers(4))
    found = reader(world, startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    world.add("in/1", numbers(1))
    assert step(found, start) == (start, [])
    found.stop()


def test_many_names_are_picked_from_a_list(world: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1", "a/2", "a/3", "b"):
        world.make(name)
    names = (("bucket", "a/1"), ("bucket", "a/3"), ("bucket", "a/9"), ("other", "a/1"))
    one_by_one = streams.find(world.client, Selection("bucket", names))
    monkeypatch.setattr(streams, "NAMES_ASKED_MAX", 2)
    assert streams.find(world.client, Selection("bucket", names)) == one_by_one
    assert sorted(one_by_one) == ["bucket/a/1", "bucket/a/3"]
