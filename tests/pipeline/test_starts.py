"""Where queries begin: at the same records, though a first start is cut off and made again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.lake import archive
from headwater.lake.ranges import Range, add_ranges
from headwater.lake.tables import FORMATS, TableRef, open_table
from headwater.pipeline import starts
from headwater.pipeline.context import Context
from headwater.pipeline.spec import Archive, Source
from headwater.pipeline.spec import Streams as Names
from tests.spark.support import Streams, numbers
from tests.support.inprocess import serving

QUERIES = ("out", "dead-letters-s")
PATTERN = Names(("in/*",), "bucket")


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "bucket", tmp_path) as found:
        yield found


def begin_of(source: Source) -> Any:
    found = source.options.get("startingOffsets")
    return found and json.loads(found)


def begins(
    streams: Streams, names: Names = PATTERN, *, queries: Sequence[str] = QUERIES, **values: Any
) -> Any:
    source = Source("s", names, **values)
    checkpoint = str(streams.folder / "checkpoint")
    (found,) = starts.settle([source], queries, checkpoint, Context(streams.url))
    return begin_of(found)


def begun(streams: Streams, query: str) -> None:
    """As Spark notes that a query has planned its first batch."""
    offsets = streams.folder / "checkpoint" / query / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1")


def test_latest_is_a_number_for_every_stream_that_is_there(streams: Streams) -> None:
    streams.make("in/1", numbers(2))
    streams.make("in/2", numbers(1))
    assert begins(streams) is None
    assert begins(streams, start="2030-01-31T12:00:00Z") is None
    assert begins(streams, start="latest") == {"in/1": 2, "in/2": 1}
    assert begins(streams, options={"startingoffsets": "latest"}) == {"in/1": 2, "in/2": 1}
    some = {"startingOffsets": '{"in/1": "latest"}'}
    assert begins(streams, options=some) == {"in/1": 2}
    everywhere = begins(streams, Names(("in/*",), "*"), start="latest")
    assert everywhere == {"bucket/in/1": 2, "bucket/in/2": 1}


def test_a_first_start_that_was_cut_off_begins_at_the_same_records(streams: Streams) -> None:
    streams.make("in/1", numbers(2))
    assert begins(streams, start="latest") == {"in/1": 2}
    begun(streams, "out")  # and then it was killed, before the other query
    streams.add("in/1", numbers(3))
    streams.make("in/2", numbers(1))
    for _ in range(2):
        assert begins(streams, start="latest") == {"in/1": 2}


def test_a_start_of_which_no_query_has_begun_is_none(streams: Streams) -> None:
    streams.make("in/1", numbers(2))
    begins(streams, start="latest")
    streams.add("in/1", numbers(3))
    assert begins(streams, start="latest") == {"in/1": 5}


def test_what_is_new_in_a_pipeline_begins_at_what_is_latest_now(streams: Streams) -> None:
    streams.make("in/1", numbers(2))
    begins(streams, start="latest")
    begun(streams, "out")
    streams.add("in/1", numbers(3))
    assert begins(streams, start="latest", queries=("out", "new")) == {"in/1": 5}
    assert begins(streams, Names(("**",), "bucket"), start="latest") == {"in/1": 5}


def test_a_checkpoint_may_be_where_we_cannot_write(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.make("in/1", numbers(2))
    source = Source("s", PATTERN, start="latest")
    (found,) = starts.settle([source], QUERIES, "hdfs://away/checkpoint", Context(streams.url))
    assert begin_of(found) == {"in/1": 2}
    assert "cannot note where queries begin in hdfs://away/checkpoint" in caplog.text


# -- archives


def archived(streams: Streams, *ranges: Range, format: str = "parquet", **values: Any) -> Any:
    """Where an archive begins whose table has these records."""
    ref = TableRef(format, str(streams.folder / format / "table"), archive.PARTITIONS)
    table = open_table(ref)
    table.evolve(pa.schema(archive.SCHEMA))
    add_ranges(table.folder, "q", ranges)
    return begin_of(
        starts.continued(Archive(Source("a", PATTERN, **values), ref), Context(streams.url))
    )


def span(streams: Streams, name: str, first: int, end: int) -> Range:
    return Range("bucket", name, streams.at(name).id, first, end)


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_begins_where_its_table_ends(streams: Streams, format: str) -> None:
    streams.make("in/1", numbers(10))
    streams.make("in/2", numbers(10))
    assert archived(streams, span(streams, "in/1", 0, 7), format=format) == {"in/1": 7}


@pytest.mark.parametrize(
    ("start", "other"),
    [
        pytest.param("latest", {"in/2": 10}, id="latest"),
        pytest.param("2030-01-31T12:00:00Z", {"in/2": 10}, id="a time after all"),
        pytest.param("2001-01-31T12:00:00Z", {}, id="a time before all"),
    ],
)
def test_and_what_it_does_not_have_begins_as_asked(
    streams: Streams, start: str, other: dict[str, int]
) -> None:
    streams.make("in/1", numbers(10))
    streams.make("in/2", numbers(10))
    assert archived(streams, span(streams, "in/1", 0, 7), start=start) == {"in/1": 7, **other}


def test_a_stream_that_was_made_again_is_archived_whole(streams: Streams) -> None:
    streams.make("in/1", numbers(10))
    old = span(streams, "in/1", 0, 7)
    streams.remove("in/1")
    streams.make("in/1", numbers(10))
    assert archived(streams, old) == {}


def test_an_archive_goes_on_after_records_that_are_lost(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.make("in/1", numbers(10))
    streams.trim("in/1", 8)
    with caplog.at_level(logging.WARNING):
        assert archived(streams, span(streams, "in/1", 0, 5)) == {"in/1": 8}
    assert "bucket/in/1: the records from 5 to 8 are lost" in caplog.text


def test_an_empty_table_says_nothing(streams: Streams) -> None:
    streams.make("in/1", numbers(10))
    assert archived(streams, start="latest") is None
