"""The planner of a streaming query, without Spark: what it finds, and when it says it is new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.client import Client
from headwater.client.protocol import Request
from headwater.spark import stream_reader, streams
from headwater.spark.offsets import Json, lag
from headwater.spark.options import Selection, parse_source
from headwater.spark.plan import Range
from headwater.spark.reader import DataLoss
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


def test_a_name_that_no_stream_has_is_told_of_when_the_query_begins(
    world: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"subscribe": "in/1,in/2", "subscribePattern": ""}
    world.make("in/1")
    found = reader(world, **names)
    start, _ = step(found, found.initialOffset())
    assert caplog.messages == [
        "there is no stream in/2 in the bucket bucket. Names without the option bucket are "
        "bucket/name; it is waited for"
    ]
    step(found, start)
    assert len(caplog.messages) == 1
    world.make("in/2", numbers(3))
    _, read = step(found, start)
    assert [part.rows for part in read] == [3]
    found.stop()


def test_nothing_new_is_the_same_offset_to_the_letter(world: Streams) -> None:
    world.make("in/1", numbers(4))
    found = reader(world, startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    for _ in range(3):
        assert step(found, start) == (start, [])
    found.stop()


def test_the_end_of_a_stream_is_kept_for_drivers_to_come(world: Streams) -> None:
    world.make("in/1", numbers(4))
    found = reader(world, startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    world.client.close_stream("bucket", "in/1")
    end, read = step(found, start)
    assert read == [] and end["bucket/in/1"]["end"]
    assert step(found, end) == (end, [])
    found.stop()
    world.remove("in/1")  # read to its end, so nothing is lost
    later = reader(world, startingOffsets="earliest")
    assert step(later, end) == (end, [])
    later.stop()


@pytest.mark.parametrize("fewer", [{"subscribe": "in/1"}, {"subscribePattern": "in/1"}])
@pytest.mark.parametrize("strict", ["true", "false"])
def test_streams_that_are_no_longer_read_keep_their_places(
    world: Streams, fewer: dict[str, str], strict: str
) -> None:
    def start_with(start: Json, **options: str) -> tuple[Json, list[tuple[str, int, int]]]:
        """One micro-batch of a query that was started again."""
        given = {"endpoint": world.url, "bucket": world.bucket, "failOnDataLoss": strict, **options}
        found = StreamReader(parse_source(given, streaming=True))
        end, read = step(found, start)
        found.stop()
        return end, [(part.name, part.first, part.end) for part in read]

    both = {"subscribe": "in/1,in/2"}
    world.make("in/1", numbers(3))
    world.make("in/2", numbers(3))
    offset, _ = start_with({}, startingOffsets="earliest", **both)
    assert start_with(offset, **fewer) == (offset, [])
    world.add("in/1", numbers(1))
    world.add("in/2", numbers(2))
    offset, read = start_with(offset, **fewer)
    assert read == [("in/1", 3, 4)]
    assert start_with(offset, **fewer) == (offset, [])
    assert start_with(offset, **both)[1] == [("in/2", 3, 5)]


def test_what_is_deleted_is_a_loss_only_to_those_who_read_it(world: Streams) -> None:
    world.make("in/1", numbers(3))
    world.make("in/2", numbers(3))
    found = reader(world, startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    found.stop()
    world.remove("in/2")
    narrow = reader(world, subscribePattern="in/1")
    assert step(narrow, start) == (start, [])
    narrow.stop()
    wide = reader(world)
    with pytest.raises(DataLoss, match="bucket/in/2 was deleted"):
        step(wide, start)
    wide.stop()


def test_a_query_can_go_on_without_streams_that_were_deleted(world: Streams) -> None:
    for name in ("in/1", "in/2", "in/3"):
        world.make(name, numbers(3))
    found = reader(world, startingOffsets="earliest", failOnDeletion="false")
    start, _ = step(found, found.initialOffset())
    world.remove("in/1")
    world.remove("in/2")
    world.make("in/2", numbers(2))
    again = Range("bucket", "in/2", world.at("in/2").id, 0, 2)
    start, ranges = step(found, start)
    assert ranges == [again]
    world.add("in/3", numbers(3))
    world.trim("in/3", 4)
    with pytest.raises(DataLoss, match="bucket/in/3 begins at 4"):
        step(found, start)
    found.stop()


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (Selection("bucket", (("bucket", "a/1"),)), ["bucket/a/1"]),
        (Selection("bucket", pattern="a/*"), ["bucket/a/1", "bucket/a/2"]),
        (Selection("bucket", prefix="a"), ["bucket/a/1", "bucket/a/2", "bucket/a/b/1"]),
        (Selection(None, pattern="*/1"), ["bucket/a/1", "other/a/1"]),
        (Selection(streams.OWN_BUCKET, prefix=""), [f"{streams.OWN_BUCKET}/a/1"]),
    ],
    ids=["names", "pattern", "prefix", "everywhere", "own"],
)
def test_what_is_selected_is_what_is_found(
    world: Streams, selection: Selection, selected: list[str]
) -> None:
    names = [("bucket", "a/1"), ("bucket", "a/2"), ("bucket", "a/b/1"), ("other", "a/1")]
    names.append((streams.OWN_BUCKET, "a/1"))
    for bucket, name in names:
        world.client.create(bucket, name, "text/plain")
    assert sorted(streams.find(world.client, selection)) == selected
    told = [
        f"{bucket}/{name}" for bucket, name in names if streams.selects(selection, bucket, name)
    ]
    assert sorted(told) == selected


@pytest.mark.parametrize("available_now", [True, False])
def test_times_are_asked_for_in_the_list_that_a_query_begins_with(
    world: Streams, monkeypatch: pytest.MonkeyPatch, available_now: bool
) -> None:
    asked: list[str] = []
    fetch = Client.fetch

    def noted(client: Client, request: Request) -> tuple[Mapping[str, str], bytes]:
        asked.append(request.path)
        return fetch(client, request)

    for name in ("in/1", "in/2", "in/3"):
        world.make(name, numbers(4))
    found = reader(world, startingTimestamp="0")
    monkeypatch.setattr(Client, "fetch", noted)
    if available_now:
        found.prepareForTriggerAvailableNow()
    start, read = step(found, found.initialOffset())
    assert [(part.first, part.end) for part in read] == [(0, 4)] * 3
    assert len(asked) == 1 and "at_time=0" in asked[0]
    step(found, start)
    assert not any("at_time" in path for path in asked[1:])
    found.stop()


def test_a_query_begins_at_its_time_though_it_has_looked_before(
    world: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make("in/1", numbers(4))
    found = reader(world, startingTimestamp="0")
    start, first = step(found, found.initialOffset())
    monkeypatch.setattr(stream_reader, "LOOK_SHARE", 1e-9)
    step(found, start)  # what it sees, without times, is good for a long time
    _, again = step(found, found.initialOffset())
    assert again == first
    found.stop()


def test_a_small_stream_is_read_beside_a_large_one(world: Streams) -> None:
    world.make("in/1", numbers(1000))
    world.make("in/2", numbers(1))
    for limit in ({"maxOffsetsPerTrigger": "10"}, {"maxBytesPerTrigger": "50"}):
        found = reader(world, startingOffsets="earliest", **limit)
        _, read = step(found, found.initialOffset())
        assert [part.name for part in read] == ["in/1", "in/2"]
        found.stop()


def test_lag_does_not_count_what_was_trimmed(world: Streams) -> None:
    world.make("in/1", numbers(10))
    found = reader(world, failOnDataLoss="false", startingOffsets="earliest")
    start, _ = step(found, found.initialOffset())
    world.add("in/1", numbers(10))
    world.trim("in/1", 15)
    world.make("in/2", numbers(10))
    world.trim("in/2", 4)
    step(found, start)
    progress = {"sources": [{"endOffset": start, "latestOffset": found.reportLatestOffset()}]}
    assert lag(progress) == {"bucket/in/1": 5, "bucket/in/2": 6}
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
