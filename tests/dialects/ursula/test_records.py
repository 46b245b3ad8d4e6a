"""Record coordinates of JSON streams. Ursula: records."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from tests.support.builders import fence
from tests.support.durable import JSON, TEXT, token
from tests.support.ursula import NUMBERED, UrsulaServer


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
    assert reply.headers["stream-extensions"] == NUMBERED
    assert reply.headers["stream-record-first"] == "0"
    assert reply.headers["stream-record-start"] == str(start)
    assert reply.headers["stream-record-next"] == str(next_)
    assert reply.up_to_date == (next_ == 10)
    assert reply.next == token(next_, 3 * next_)


def test_the_last_records_are_not_those_of_commands(numbered: UrsulaServer) -> None:
    numbered.runner.together(structs.replace(fence("s", "new writer"), bucket="demo"))
    for query in ("tail_records=1", "offset=tail:1"):
        assert json.loads(numbered.query("demo/s", query).body) == [[9]]


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
    assert reply.headers["stream-record-first"] == "6"
    assert reply.headers["stream-record-next"] == "10"
    assert "stream-record-first" not in numbered.get("demo/s", "3").headers
    found = numbered.query("demo/s", "record=6")
    assert found.headers["stream-record-first"] == "6"
    head = numbered.head("demo/s").headers
    assert (head["stream-record-first"], head["stream-record-next"]) == ("6", "10")
    assert head["stream-retained-offset"] == token(6, 18)


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_record_past_the_next_is_400_and_says_which_there_are(
    numbered: UrsulaServer, live: str
) -> None:
    reply = numbered.query("demo/s", f"record=11{live}")
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert reply.headers["stream-record-first"] == "0"
    assert reply.headers["stream-record-next"] == "10"


def test_reads_by_offset_say_that_records_have_numbers(server: UrsulaServer) -> None:
    server.make("demo/s", b"1", content_type=JSON)
    server.make("demo/t", b"1")
    assert server.get("demo/s").headers["stream-extensions"] == NUMBERED
    assert "stream-extensions" not in server.get("demo/t").headers


def test_sse_by_record_tells_the_numbers(numbered: UrsulaServer) -> None:
    follower = numbered.follow_query("demo/s", "record=8&live=sse")
    assert follower.reply.headers["stream-data-content-type"] == JSON
    numbered.append("demo/s", b"[[10],[11]]")
    assert [json.loads(data) for data in follower.data] == [[[8], [9]], [[10], [11]]]
    assert [control["streamNextRecord"] for control in follower.controls] == [10, 12]
    assert [control["streamFirstRecord"] for control in follower.controls] == [0, 0]
    assert follower.controls[-1]["streamNextOffset"] == token(12, 38)


def test_sse_by_record_after_the_last(numbered: UrsulaServer) -> None:
    follower = numbered.follow_query("demo/s", "record=now&live=sse")
    assert follower.data == []
    assert follower.controls[0]["streamNextRecord"] == 10


def test_sse_of_envelopes_has_an_event_for_each_record(numbered: UrsulaServer) -> None:
    query = "record=8&live=sse&record_view=envelope"
    follower, plain = (numbered.follow_query("demo/s", q) for q in (query, "record=8&live=sse"))
    kind = "application/vnd.durable-stream-record+json"
    assert follower.reply.headers["stream-data-content-type"] == kind
    numbered.append("demo/s", b'["a\\n",\n{"b":\n1}]')
    assert [json.loads(data) for data in follower.data] == [
        {"record": 8, "value": [8]},
        {"record": 9, "value": [9]},
        {"record": 10, "value": "a\n"},
        {"record": 11, "value": {"b": 1}},
    ]
    types = [event.type for event in follower.events]
    assert types == ["data", "data", "control", "data", "data", "control"]
    assert json.loads(plain.data[-1]) == ["a\n", {"b": 1}]


def test_sse_by_offset_is_as_the_base_protocol_has_it(numbered: UrsulaServer) -> None:
    by_offset = numbered.follow("demo/s", "-1")
    numbered.follow_query("demo/s", "record=0&live=sse&record_view=envelope")
    numbered.append("demo/s", b"[[10]]")
    assert by_offset.data[-1] == "[[10]]"
    assert "streamNextRecord" not in by_offset.controls[-1]


def test_long_poll_by_record(numbered: UrsulaServer) -> None:
    answer = numbered.query("demo/s", "record=8&live=long-poll")
    assert json.loads(answer.body) == [[8], [9]]
    assert numbered.query("demo/s", "live=long-poll").status == 400


def test_appends_tell_their_numbers(numbered: UrsulaServer) -> None:
    reply = numbered.post("demo/s", b"[1,2]", content_type=JSON)
    assert reply.headers["stream-record-start"] == "10"
    assert reply.headers["stream-record-next"] == "12"
    assert reply.headers["stream-extensions"] == NUMBERED
    closed = numbered.post("demo/s", stream_closed="true")
    assert "stream-record-start" not in closed.headers


def test_stream_record_match(numbered: UrsulaServer) -> None:
    late = numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="9")
    assert (late.status, late.error) == (412, "precondition_failed")
    assert late.headers["stream-record-next"] == "10"
    assert late.headers["stream-extensions"] == NUMBERED
    assert late.next == token(10, 30)
    fits = numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="10")
    assert fits.status == 204
    assert numbered.post("demo/s", b"1", content_type=JSON, stream_record_match="x").status == 400


def test_stream_record_match_needs_a_json_stream(server: UrsulaServer) -> None:
    server.make("demo/s")
    assert server.post("demo/s", b"1", content_type=TEXT, stream_record_match="0").status == 400
