"""Which stream a row goes to, by options and columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.client import Producer
from headwater.spark.options import parse_sink
from headwater.spark.targets import split
from headwater.spark.writer import BatchWriter, write_rows
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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "one", tmp_path) as found:
        yield found


def test_what_was_written_is_closed_and_nothing_else(world: Streams) -> None:
    given = {"endpoint": world.url, "stream": "x", "closeOnFinish": "true"}
    sink = parse_sink(given, streaming=False)
    rows = ROWS.select(["value", "bucket"]).slice(0, 2)
    written = write_rows(sink, Producer("p", 0, 0), iter([rows]))
    BatchWriter(sink, "p").commit([written])
    found = [(stream.bucket, stream.name, stream.closed) for stream in world.client.streams()]
    assert found == [("one", "x", True), ("two", "x", True)]


def test_a_stream_to_which_no_rows_go_is_closed_too(world: Streams) -> None:
    given = {"endpoint": world.url, "bucket": "one", "stream": "x", "closeOnFinish": "true"}
    BatchWriter(parse_sink(given, streaming=False), "p").commit([None])
    assert world.at("x").closed
