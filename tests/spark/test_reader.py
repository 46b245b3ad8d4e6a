"""Batch reads without Spark: where they begin and end, and what happens when records go away."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.datasource import Filter, GreaterThanOrEqual, In, LessThan

from headwater.client import Producer, Refused
from headwater.client.protocol import Request
from headwater.lake import archive as archives
from headwater.lake.archive import SCHEMA
from headwater.lake.ranges import Range as Archived
from headwater.lake.ranges import read_ranges as read_archived
from headwater.lake.tables import FORMATS, LakeError, LakeTable, TableRef
from headwater.spark.offsets import Cut
from headwater.spark.options import SourceOptions, parse_sink, parse_source
from headwater.spark.plan import choose_cut
from headwater.spark.reader import DataLoss, PushdownReader, read_ranges
from headwater.spark.streams import Finder
from headwater.spark.writer import write_rows
from tests.lake.test_archive import Archive
from tests.spark.support import Streams, numbers
from tests.support.clock import START_MS
from tests.support.inprocess import serving


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "the-bucket", tmp_path) as found:
        yield found


def make_at(world: Streams, *times_ms: int) -> None:
    """The stream `s`, whose records have these times. By the S2 API, in which clients give them."""
    kept = {"retention_policy": {"infinite": {}}, "timestamping": {"uncapped": True}}
    _send(world, "PUT", f"/v1/basins/{world.bucket}", {})
    _send(world, "PUT", "/v1/streams/s", kept)
    sent = [{"body": "x", "timestamp": time} for time in times_ms]
    _send(world, "POST", "/v1/streams/s/records", {"records": sent})


def _send(world: Streams, method: str, path: str, body: object) -> None:
    headers = {"Content-Type": "application/json", "s2-basin": world.bucket}
    world.client.fetch(Request(method, path, headers, json.dumps(body).encode()))


def options_of(world: Streams, **options: str) -> SourceOptions:
    given = {"endpoint": world.url, "bucket": world.bucket, "subscribe": "s", **options}
    return parse_source(given, streaming=False)


def plan(options: SourceOptions, filters: Iterable[Filter] = ()) -> list[Any]:
    """The ranges of each partition."""
    found = PushdownReader(options)
    found.pushFilters(list(filters))
    return [part.value for part in found.partitions()]


def collect(options: SourceOptions, parts: Iterable[Any]) -> pa.Table:
    batches = [batch for part in parts for batch in read_ranges(options, part)]
    return pa.Table.from_batches(batches) if batches else pa.table({"offset": [], "value": []})


def offsets(world: Streams, *filters: Filter, **options: str) -> list[int]:
    parsed = options_of(world, **options)
    found: list[int] = collect(parsed, plan(parsed, filters))["offset"].to_pylist()
    return found


def archive(world: Streams, end: int, format: str = "delta") -> str:
    """A table with the records of `s` before one, of which the server then forgets them."""
    options = options_of(world, includeHeaders="true", includeStreamId="true")
    rows = collect(options, plan(options)).filter(pc.field("offset") < end)
    fields = pa.schema([field for field in SCHEMA if field.name != "day"])
    table = Archive(world.folder, format)
    table.add(rows.select(fields.names).cast(fields), 0)
    world.trim("s", end)
    return table.ref.location


# -- times, with records in an archive and on the server


def at_ms(number: int) -> int:
    """The time of a record of `days`: they are nine hours apart."""
    return START_MS + number * 9 * 3_600_000


@pytest.fixture
def days(world: Streams) -> Streams:
    """The stream `s` has ten records."""
    make_at(world, *map(at_ms, range(10)))
    return world


@pytest.mark.parametrize("format", FORMATS)
def test_a_time_may_be_of_a_record_that_is_in_the_archive(days: Streams, format: str) -> None:
    given = {"archive": archive(days, 6, format), "archiveFormat": format}
    for number in (0, 3, 5, 6, 8):
        for ms, first in ((at_ms(number), number), (at_ms(number) + 1, number + 1)):
            after = offsets(days, startingTimestamp=str(ms), **given)
            assert after == list(range(first, 10))
            before = offsets(days, endingTimestamp=str(ms), **given)
            assert before == list(range(first))


@pytest.mark.parametrize("archived", [True, False])
def test_times_before_and_after_all_records(days: Streams, archived: bool) -> None:
    given = {"archive": archive(days, 6)} if archived else {}
    everything = list(range(10))
    assert offsets(days, startingTimestamp="1960-01-01T00:00:00Z", **given) == everything
    assert offsets(days, endingTimestamp="1960-01-01T00:00:00Z", **given) == []
    assert offsets(days, startingTimestamp=str(2**62), **given) == []
    assert offsets(days, endingTimestamp=str(2**62), **given) == everything


def test_all_records_may_be_in_the_archive(days: Streams) -> None:
    table = archive(days, 10)
    assert offsets(days, archive=table, startingTimestamp=str(at_ms(7))) == [7, 8, 9]
    assert offsets(days, archive=table, startingTimestamp=str(at_ms(9) + 1)) == []


@pytest.mark.parametrize("archived", [0, 3, 6])
def test_filters_by_time_reach_into_the_archive(days: Streams, archived: int) -> None:
    given = {"archive": archive(days, archived)} if archived else {}
    moment = datetime.fromtimestamp(at_ms(3) / 1000, UTC)
    late = GreaterThanOrEqual(("timestamp",), moment)
    assert offsets(days, late, **given) == list(range(3, 10))
    some = In(("timestamp",), (moment, None))
    assert offsets(days, some, **given) == [3]
    # One more than pass: Spark drops it.
    early = LessThan(("timestamp",), moment)
    assert offsets(days, early, **given) == [0, 1, 2, 3]


def test_records_in_the_archive_count_as_much_as_those_of_the_server(world: Streams) -> None:
    world.make("s", [bytes(1024)] * 100)
    whole = plan_of(options_of(world))
    assert whole == Cut(128 * 1024, 1)
    table = archive(world, 99)
    assert plan_of(options_of(world, archive=table)) == whole


def plan_of(options: SourceOptions) -> Cut:
    with options.connection.open() as client:
        return choose_cut(Finder(client, options).find().values(), options)


def test_ranges_of_an_archive_are_read_again_once_for_all_streams(
    days: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = archive(days, 6)
    for number in range(20):
        days.make(f"other/{number}", numbers(2))
        days.trim(f"other/{number}", 1)
    reads = []

    def counted(*given: Any) -> list[Archived]:
        reads.append(given)
        return read_archived(*given)

    monkeypatch.setattr(archives, "read_ranges", counted)
    selection = {"subscribe": "", "subscribePrefix": "*"}
    parts = plan(options_of(days, archive=table, **selection))
    assert len(parts) == 21
    assert len(reads) == 2


# -- records that go away


def lose(world: Streams, what: str) -> None:
    if what == "trimmed":
        world.trim("s", 3)
        return
    world.remove("s")
    if what == "made again":
        world.make("s", [b"again"] * 9)


@pytest.mark.parametrize("what", ["trimmed", "deleted", "made again"])
def test_records_that_go_away_after_planning_are_a_loss_or_passed_over(
    world: Streams, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.make("s", numbers(5))
    strict, loose = options_of(world), options_of(world, failOnDataLoss="false")
    parts = plan(strict)
    lose(world, what)
    left, end = ([3, 4], 3) if what == "trimmed" else ([], 5)
    lost = f"the-bucket/s from 0 to {end} went away under the query"
    with pytest.raises(DataLoss, match=lost):
        collect(strict, parts)
    assert collect(loose, parts)["offset"].to_pylist() == left
    assert lost in caplog.text


@pytest.mark.parametrize("what", ["trimmed", "deleted", "made again"])
def test_streams_that_go_away_after_planning_may_be_passed_over(world: Streams, what: str) -> None:
    world.make("s", numbers(5))
    options = options_of(world, failOnDeletion="false")
    parts = plan(options)
    lose(world, what)
    if what == "trimmed":
        with pytest.raises(DataLoss):
            collect(options, parts)
    else:
        assert collect(options, parts).num_rows == 0


def test_records_that_a_server_had_before_it_was_set_back_are_a_loss(world: Streams) -> None:
    world.make("s", numbers(5))
    strict, loose = options_of(world), options_of(world, failOnDataLoss="false")
    (part,) = plan(strict)[0]
    parts = [(part._replace(end=9),)]  # as it was planned before
    with pytest.raises(DataLoss, match="the-bucket/s from 5 to 9 went away under the query"):
        collect(strict, parts)
    assert collect(loose, parts)["value"].to_pylist() == numbers(5)


def test_an_archive_that_is_out_of_reach_for_a_while_is_no_loss(
    world: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make("s", numbers(5))
    options = options_of(world, archive=archive(world, 3), failOnDataLoss="false")
    parts = plan(options)

    def is_away(ref: TableRef) -> LakeTable:
        raise LakeError(f"cannot reach {ref.location}")

    with monkeypatch.context() as patched, pytest.raises(LakeError, match="cannot reach"):
        patched.setattr(archives, "reach_table", is_away)
        collect(options, parts)
    assert collect(options, parts)["offset"].to_pylist() == list(range(5))


def test_what_no_archive_has_is_a_loss(world: Streams, caplog: pytest.LogCaptureFixture) -> None:
    world.make("s", numbers(5))
    given = {"archive": str(world.folder / "none")}
    strict, loose = options_of(world, **given), options_of(world, failOnDataLoss="false", **given)
    parts = plan(strict)
    world.trim("s", 3)
    with pytest.raises(DataLoss, match="none has not all of them"):
        collect(strict, parts)
    assert collect(loose, parts)["offset"].to_pylist() == [3, 4]


# -- records out of the ordinary


@pytest.mark.parametrize("at_ms", [9_300_000_000_000_000, 2**63 - 1])
def test_times_beyond_those_of_spark_become_its_last(world: Streams, at_ms: int) -> None:
    make_at(world, START_MS, at_ms)
    options = options_of(world)
    times = collect(options, plan(options))["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [START_MS * 1000, (2**63 - 1) // 1000 * 1000]


def test_records_up_to_the_limit_of_an_append_are_written_and_read(world: Streams) -> None:
    sink = parse_sink(
        {"endpoint": world.url, "bucket": world.bucket, "stream": "s"}, streaming=False
    )

    def write(mebibytes: int) -> None:
        row = pa.record_batch({"value": pa.array([bytes(mebibytes << 20)])})
        write_rows(sink, Producer(f"of {mebibytes}", 0, 0), iter([row]))

    write(31)
    with pytest.raises(Refused) as refused:
        write(32)
    assert refused.value.status == 413
    options = options_of(world)
    values = collect(options, plan(options))["value"]
    assert pc.binary_length(values).to_pylist() == [31 << 20]
