"""The server is told to forget only what the table has, back to the first record it retains."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client.protocol import Request
from headwater.lake.ranges import Range, join
from headwater.pipeline.lake_source import trim_settled
from tests.spark.support import Streams, numbers
from tests.support.inprocess import serving


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "bucket", tmp_path) as found:
        yield found


def span(streams: Streams, first: int, end: int, *, batch: int = 0, settled: int = 0) -> Range:
    return Range("bucket", "s", streams.at("s").id, first, end, batch, settled)


def test_what_is_archived_from_the_first_record_on_is_forgotten(streams: Streams) -> None:
    streams.make("s", numbers(20))
    own = [span(streams, 0, 10)]
    assert trim_settled(streams.client, own, None, own) == 1
    assert streams.at("s").first == 10
    assert trim_settled(streams.client, own, None, own) == 0


def test_records_before_the_archived_ones_are_kept(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.make("s", numbers(20))
    late = span(streams, 5, 20, settled=5)
    for batch in (0, None):
        assert trim_settled(streams.client, [late], batch, [late]) == 0
    assert streams.at("s").first == 0
    assert "bucket/s is not trimmed: the table has its records from 5 on" in caplog.text
    # Another query has archived the first ones.
    assert trim_settled(streams.client, [late], None, join([late, span(streams, 0, 5)])) == 1
    assert streams.at("s").first == 20


def test_what_the_server_has_forgotten_need_not_be_in_the_table(streams: Streams) -> None:
    streams.make("s", numbers(20))
    streams.trim("s", 5)
    own = [span(streams, 5, 10)]
    assert trim_settled(streams.client, own, None, own) == 1
    assert streams.at("s").first == 10


def test_commands_before_the_archived_records_do_not_count(streams: Streams) -> None:
    streams.make("s")
    fence = {"records": [{"headers": [["", "fence"]], "body": "token"}]}
    headers = {"s2-basin": "bucket", "content-type": "application/json"}
    streams.client.fetch(
        Request("POST", "/v1/streams/s/records", headers, json.dumps(fence).encode())
    )
    streams.add("s", numbers(5))
    own = [span(streams, 1, 6)]
    assert trim_settled(streams.client, own, None, own) == 1
    assert streams.at("s").first == 6


def test_a_stream_that_was_made_again_is_left_alone(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.make("s", numbers(5))
    own = [span(streams, 0, 5)]
    streams.remove("s")
    assert trim_settled(streams.client, own, None, own) == 0
    streams.make("s", numbers(5))
    with caplog.at_level(logging.WARNING):
        assert trim_settled(streams.client, own, None, own) == 0
    assert streams.at("s").first == 0 and not caplog.text
