"""Record coordinates of JSON streams. Ursula: records."""

from __future__ import annotations

import json

import pytest

from tests.support.durable import JSON, TEXT, token
from tests.support.ursula import UrsulaServer


@pytest.fixture
def numbered(server: UrsulaServer) -> UrsulaServer:
    """demo/s holds the records 0 to 9: [0], [1] … in three appends."""
    server.make(
        "demo/s", b"[[0],[1],[2]]", b"[[3],[4],[5],[6]]", b"[[7],[8],[9]]", content_type=JSON
    )
    return server


@pytest.mark.parametrize(
    ("query", "start", "next_"),
    [
        ("record=0", 0, 10),
        ("record=4", 4, 10),
        ("record=10", 10, 10),
        ("record=now", 10, 10),
        ("tail_records=3", 7, 10),
        ("tail_records=0", 10, 10),
        ("tail_records=99", 0, 10),
        ("record=2&max_records=3", 2, 5),
        ("record=9&max_records=3", 9, 10),
        ("tail_records=5&max_records=1", 5, 6),
    ],
)
def test_reading_by_number(numbered: UrsulaServer, query: str, start: int, next_: int) -> None:
    reply = numbered.query("demo/s", query)
    assert reply.status == 200
    assert json.loads(reply.body) == [[number] for number in range(start, next_)]
    assert reply.headers["stream-record-first"] == "0"
    assert reply.headers["stream-record-start"] == str(start)
    assert reply.headers["stream-record-next"] == str(next_)
    assert reply.up_to_date == (next_ == 10)
    assert reply.next == token(next_, 3 * next_)


def test_record_view_envelope(numbered: UrsulaServer) -> None:
    reply = numbered.query("demo/s", "record=3&max_records=2&record_view=envelope")
    assert reply.headers["content-type"] == "application/vnd.durable-stream-records+ndjson"
    assert reply.body == b'{"record":3,"value":[3]}\n{"record":4,"value":[4]}\n'
    plain = numbered.query("demo/s", "record=3&max_records=2")
    assert reply.etag != plain.etag


@pytest.mark.parametrize(
    "query",
    [
        "record=11",
        "record=x",
        "record=-1",
        "record=0&tail_records=1",
        "record=0&offset=-1",
        "record=0&max_bytes=5",
        "record=0&max_records=0",
        "record=0&record_view=other",
        "max_records=1",
        "record_view=envelope",
        "tail_records=x",
    ],
)
def test_what_makes_no_sense_is_400(numbered: UrsulaServer, query: str) -> None:
    assert numbered.query("demo/s", query).status == 400


@pytest.mark.parametrize("query", ["record=0", "record=now", "tail_records=1"])
def test_other_streams_have_no_record_numbers(server: UrsulaServer, query: str) -> None:
    server.make("demo/s", b"x", content_type=TEXT)
    assert server.query("demo/s", query).status == 400


def test_records_that_are_not_retained_are_410(numbered: UrsulaServer) -> None:
    numbered.request("PATCH", "demo/s", stream_retention="records=4")
    numbered.advance(3)
    reply = numbered.query("demo/s", "record=5")
    assert (reply.status, reply.next) == (410, token(6, 18))
    found = numbered.query("demo/s", "record=6")
    assert found.headers["stream-record-first"] == "6"
    head = numbered.head("demo/s").headers
    assert (head["stream-record-first"], head["stream-record-next"]) == ("6", "10")
    assert head["stream-retained-offset"] == token(6, 18)


def test_long_poll_by_record(numbered: UrsulaServer) -> None:
    answer = numbered.query("demo/s", "record=8&live=long-poll")
    assert json.loads(answer.body) == [[8], [9]]
    assert numbered.query("demo/s", "live=long-poll").status == 400


def test_appends_tell_their_numbers(numbered: UrsulaServer) -> None:
    reply = numbered.post("demo/s", b"[1,2]", content_type=JSON)
    assert reply.headers["stream-record-start"] == "10"
    assert reply.headers["stream-record-next"] == "12"
    closed = numbered.post("demo/s", stream_closed="true")
    assert "stream-record-start" not in closed.headers


def test_stream_record_match(numbered: UrsulaServer) -> None:
    late = numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="9")
    assert (late.status, late.error) == (412, "precondition_failed")
    assert late.headers["stream-record-next"] == "10"
    assert late.next == token(10, 30)
    fits = numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="10")
    assert fits.status == 204
    assert numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="x").status == 400


def test_stream_record_match_needs_a_json_stream(server: UrsulaServer) -> None:
    server.make("demo/s")
    assert server.post("demo/s", b"1", content_type=TEXT, stream_record_match="0").status == 400
