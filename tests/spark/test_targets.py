"""Which stream a row goes to, by options and columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.client import Producer, Refused
from headwater.spark.options import parse_sink
from headwater.spark.targets import split
from headwater.spark.writer import (
    ADAPTIVE,
    BatchWriter,
    StreamWriter,
    Written,
    is_adaptive,
    write_rows,
)
from tests.spark.support import Streams
from tests.support.inprocess import serving

ROWS = pa.record_batch(
    {
        "value": pa.array([b"1", b"2", b"3"]),
        "stream": pa.array(["s", "t", "s"]),
        "bucket": pa.array(["one", "two", None]),
    }
)


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        ({"stream": "x", "bucket": "b"}, ["stream", "bucket"], {"b/x": 3}),
        ({"stream": "x"}, ["stream"], {"durable-streams/x": 3}),
        ({"stream": "x"}, ["bucket"], {"one/x": 1, "two/x": 1, "durable-streams/x": 1}),
        ({"bucket": "b"}, ["stream", "bucket"], {"b/s": 2, "b/t": 1}),
        ({}, ["stream"], {"durable-streams/s": 2, "durable-streams/t": 1}),
        ({}, ["stream", "bucket"], {"one/s": 1, "two/t": 1, "durable-streams/s": 1}),
    ],
)
def test_options_say_and_where_they_do_not_the_columns(
    options: dict[str, str], columns: list[str], expected: dict[str, int]
) -> None:
    sink = parse_sink(options, streaming=False)
    found = split(ROWS.select(["value", *columns]), sink)
    assert {f"{to.bucket}/{to.name}": rows.num_rows for to, rows in found} == expected


def test_names_may_be_of_the_large_kind_of_text() -> None:
    rows = ROWS.cast(pa.schema([(name, pa.large_string()) for name in ROWS.schema.names]))
    found = {(to.bucket, to.name) for to, _ in split(rows, parse_sink({}, streaming=False))}
    assert found == {("one", "s"), ("two", "t"), ("durable-streams", "s")}


@pytest.mark.parametrize(
    ("column", "name", "message"),
    [
        ("stream", None, "a row has no stream"),
        ("stream", "", "a row has an empty stream"),
        ("bucket", "", "a row has an empty bucket"),
        ("value", None, "a row has no value"),
    ],
)
def test_a_row_that_does_not_say_where_it_goes_is_an_error(
    column: str, name: str | None, message: str
) -> None:
    row = {"value": "1", "stream": "s", "bucket": "b", column: name}
    fields = pa.schema([(name, pa.string()) for name in row])
    batch = pa.RecordBatch.from_pylist([row], schema=fields)
    with pytest.raises(ValueError, match=message):
        list(split(batch, parse_sink({}, streaming=False)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "one", tmp_path) as found:
        yield found


def test_a_slash_in_the_name_of_a_bucket_does_not_lead_to_another(world: Streams) -> None:
    rows = pa.record_batch({"value": ["1"], "stream": ["s"], "bucket": ["a/b"]})
    sink = parse_sink({"endpoint": world.url}, streaming=False)
    with pytest.raises(Refused, match="a bucket name is"):
        write_rows(sink, Producer("p", 0, 0), iter([rows]))
    assert list(world.client.streams()) == []


def test_what_was_written_is_closed_and_nothing_else(world: Streams) -> None:
    given = {"endpoint": world.url, "stream": "x", "closeOnFinish": "true"}
    sink = parse_sink(given, streaming=False)
    rows = ROWS.select(["value", "bucket"]).slice(0, 2)
    written = write_rows(sink, Producer("p", 0, 0), iter([rows]))
    BatchWriter(sink, "p").commit([written])
    found = [(stream.bucket, stream.name, stream.closed) for stream in world.client.streams()]
    assert found == [("one", "x", True), ("two", "x", True)]


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, True),
        ({ADAPTIVE[0]: "true", ADAPTIVE[1]: "true"}, True),
        ({ADAPTIVE[0]: "false"}, False),
        ({ADAPTIVE[1]: "false"}, False),
    ],
)
def test_a_query_whose_partitions_may_change_is_warned_of_when_it_begins(
    settings: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    writer = StreamWriter(parse_sink({"stream": "x"}, streaming=True))
    written = Written((), 0, 0, 0, is_adaptive(settings.get))
    writer.commit([None, written], 1)
    assert not caplog.text
    writer.commit([None, written], 0)
    assert (f"set {ADAPTIVE[1]} to false" in caplog.text) == warned


def test_a_stream_to_which_no_rows_go_is_closed_too(world: Streams) -> None:
    given = {"endpoint": world.url, "bucket": "one", "stream": "x", "closeOnFinish": "true"}
    BatchWriter(parse_sink(given, streaming=False), "p").commit([None])
    assert world.at("x").closed
