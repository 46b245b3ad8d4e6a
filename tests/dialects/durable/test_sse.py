"""GET {stream}?live=sse: what a reader is sent, and when it ends. PROTOCOL §5.8."""

from __future__ import annotations

import base64
import json

import pytest

from headwater.dialects.durable import live
from headwater.wire import cursors
from headwater.wire.http import StreamedResponse
from tests.support.clock import FakeClock
from tests.support.durable import (
    BYTES,
    JSON,
    NOW_MS,
    START,
    TEXT,
    DurableServer,
    Follower,
    Writer,
    token,
)
from tests.support.event_stream import Event

CURRENT = cursors.current(FakeClock(NOW_MS).now_ms())


def control(offset: str, *, up_to_date: bool = True, closed: bool = False) -> dict[str, object]:
    """The control event of a reader that echoed no cursor."""
    found: dict[str, object] = {"streamNextOffset": offset}
    if not closed:
        found["streamCursor"] = str(CURRENT)
    if up_to_date:
        found["upToDate"] = True
    if closed:
        found["streamClosed"] = True
    return found


# -- the head


@pytest.mark.parametrize(
    ("content_type", "encoded"),
    [
        (TEXT, False),
        ("text/html; charset=utf-8", False),
        ("Text/Markdown", False),
        (JSON, False),
        ("application/json; charset=utf-8", False),
        (BYTES, True),
        ("application/x-ndjson", True),
        ("application/jsonl", True),
        ("image/png", True),
        ("application/text", True),
    ],
)
def test_the_head_says_what_follows(
    server: DurableServer, content_type: str, encoded: bool
) -> None:
    server.make("s", content_type=content_type)
    reply = server.follow("s", "-1").reply
    assert reply.headers["content-type"] == "text/event-stream"
    assert "no-cache" in reply.headers["cache-control"]
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.headers.get("stream-sse-data-encoding") == ("base64" if encoded else None)
    assert not {"etag", "content-length", "stream-next-offset"} & reply.headers.keys()


# -- events


def test_a_reader_gets_what_is_there_then_where_it_stands(server: DurableServer) -> None:
    tail = server.make("s", b"hello ", b"world")
    follower = server.follow("s", "-1")
    assert [event.type for event in follower.events] == ["data", "control"]
    assert follower.text == "hello world"
    assert follower.controls == [control(tail)]
    assert len(follower.writer.writes) == 1, "data and control leave together"


def test_every_data_event_has_its_control_event(server: DurableServer) -> None:
    server.make("s", b"one")
    follower = server.follow("s", "-1")
    tails = [server.append("s", b"two"), server.append("s", b"three")]
    assert [event.type for event in follower.events] == ["data", "control"] * 3
    assert follower.data == ["one", "two", "three"]
    assert [c["streamNextOffset"] for c in follower.controls] == [token(1, 3), *tails]
    assert all(c["upToDate"] for c in follower.controls)


@pytest.mark.parametrize("offset", ["now", "tail"])
def test_a_reader_at_the_tail_is_told_so_at_once(server: DurableServer, offset: str) -> None:
    tail = server.make("s", b"hello")
    follower = server.follow("s", tail if offset == "tail" else "now")
    assert follower.events == [Event("control", json.dumps(control(tail), separators=(",", ":")))]
    end = server.append("s", b"world")
    assert (follower.data, follower.controls[-1]) == (["world"], control(end))


def test_a_reader_of_an_empty_stream_is_told_so(server: DurableServer) -> None:
    server.make("s")
    assert server.follow("s", "-1").controls == [control(START)]


def test_a_reader_may_begin_in_the_middle(server: DurableServer) -> None:
    middle = server.make("s", b"one")
    server.append("s", b"two")
    assert server.follow("s", middle).text == "two"


def test_bytes_travel_in_base64_and_every_event_decodes_alone(server: DurableServer) -> None:
    bodies = [bytes(range(256)), b"\xff", b"data: x\n\n"]
    server.make("s", bodies[0], content_type=BYTES)
    follower = server.follow("s", "-1")
    server.append("s", *bodies[1:])
    assert [base64.b64decode(data, validate=True) for data in follower.data] == bodies


def test_every_json_event_is_an_array(server: DurableServer) -> None:
    server.make("s", b"[1,2]", b'{"a":\n\n [3]}', content_type=JSON)
    follower = server.follow("s", "-1")
    server.append("s", b"[[4]]")
    assert [json.loads(data) for data in follower.data] == [[1, 2, {"a": [3]}], [[4]]]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(b"a\nb", "a\nb", id="LF"),
        pytest.param(b"a\rb", "a\nb", id="CR"),
        pytest.param(b"a\r\nb", "a\nb", id="CRLF"),
        pytest.param(b"\n\n\n", "\n\n\n", id="empty lines"),
        pytest.param(b"  indented\n more", "  indented\n more", id="spaces in front"),
        pytest.param(b": comment", ": comment", id="a colon in front"),
        pytest.param(
            b'x\n\nevent: control\ndata: {"streamClosed":true}\n\n',
            'x\n\nevent: control\ndata: {"streamClosed":true}\n\n',
            id="a forged control event",
        ),
        pytest.param(
            b"x\revent: control\rdata:{}\r\r", "x\nevent: control\ndata:{}\n\n", id="by CR"
        ),
        pytest.param(b"retry: 1\nid: 7", "retry: 1\nid: 7", id="other fields"),
        pytest.param("\ufeffbom".encode(), "\ufeffbom", id="byte order mark"),
        pytest.param(b"a\0b", "a\0b", id="NUL"),
    ],
)
def test_text_arrives_as_text_and_as_nothing_else(
    server: DurableServer, body: bytes, shown: str
) -> None:
    server.make("s", body)
    follower = server.follow("s", "-1")
    assert [event.type for event in follower.events] == ["data", "control"]
    assert follower.data == [shown]


def test_a_long_catch_up_comes_in_several_events(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVENT_BYTES", 10)
    server.make("s", b"aaaa", b"bbbb", b"cccc", b"d" * 30, b"e")
    follower = server.follow("s", "-1")
    assert follower.data == ["aaaabbbb", "cccc", "d" * 30, "e"]
    assert ["upToDate" in c for c in follower.controls] == [False, False, False, True]
    assert server.content("s", str(follower.controls[1]["streamNextOffset"])) == b"d" * 30 + b"e"


def test_a_long_catch_up_lets_others_run_between_two_events(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVENT_BYTES", 1)
    server.make("s", *[b"x"] * 50)
    response = server.query("s", "offset=-1&live=sse").response
    assert isinstance(response, StreamedResponse)
    writer = Writer()
    response.start(writer)
    assert len(writer.writes) == 1
    server.runner.turn(60)
    assert len(writer.writes) == 50


# -- the end


def test_a_close_ends_the_response_with_its_last_control_event(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    follower = server.follow("s", "-1")
    server.close()
    assert follower.controls == [control(tail), control(tail, closed=True)]
    assert follower.ended
    assert server.engine.followers == 0


def test_append_and_close_delivers_the_data_before_the_end(server: DurableServer) -> None:
    server.make("s", b"hello")
    follower = server.follow()
    tail = server.append("s", b"bye", stream_closed="true")
    assert [event.type for event in follower.events] == ["control", "data", "control"]
    assert (follower.data, follower.controls[-1]) == (["bye"], control(tail, closed=True))
    assert follower.ended


@pytest.mark.parametrize("offset", ["now", "tail"])
def test_at_the_end_of_a_closed_stream_one_control_event_is_all(
    server: DurableServer, offset: str
) -> None:
    server.make("s", b"hello")
    tail = server.close()
    follower = server.follow("s", tail if offset == "tail" else "now")
    assert follower.controls == [control(tail, closed=True)]
    assert (len(follower.events), follower.ended) == (1, True)
    assert server.engine.followers == 0


def test_a_closed_stream_is_read_to_its_end(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVENT_BYTES", 4)
    server.make("s", b"aaaa", b"bbbb")
    tail = server.close()
    follower = server.follow("s", "-1")
    assert follower.text == "aaaabbbb"
    assert ["streamClosed" in c for c in follower.controls] == [False, True]
    assert follower.controls[-1] == control(tail, closed=True)
    assert follower.ended


@pytest.mark.parametrize("how", ["deleted", "deleted with forks", "expired"])
def test_a_stream_that_goes_away_ends_the_response(server: DurableServer, how: str) -> None:
    server.make("s", b"hello", stream_ttl="20", stream_ttl_anchor="creation")
    if how == "deleted with forks":
        server.fork("f")
    follower = server.follow()
    if how == "expired":
        server.advance(21)
    else:
        server.delete()
    assert follower.ended
    assert len(follower.events) == 1, "nothing more is said"
    assert "streamClosed" not in follower.controls[-1]
    assert server.engine.followers == 0


def test_a_stream_deleted_before_the_response_begins_ends_it(server: DurableServer) -> None:
    server.make("s", b"hello")
    reply = server.query("s", "offset=-1&live=sse")
    server.delete()
    follower = Follower(server, reply)
    assert (follower.events, follower.ended) == ([], True)
    assert server.engine.followers == 0


def test_a_reader_that_goes_away_is_forgotten(server: DurableServer) -> None:
    server.make("s", b"hello")
    follower = server.follow()
    assert server.engine.followers == 1
    follower.disconnect()
    follower.disconnect()
    assert server.engine.followers == 0
    server.append("s", b"world")
    server.advance(120)
    assert (follower.data, follower.comments, follower.ended) == ([], [], False)


def test_a_server_that_stops_ends_the_response_properly(server: DurableServer) -> None:
    server.make("s", b"hello")
    follower = server.follow()
    assert follower.writer.on_shutdown is not None
    follower.writer.on_shutdown()
    assert follower.ended
    assert server.engine.followers == 0


# -- time


def test_an_idle_connection_shows_that_it_lives(server: DurableServer) -> None:
    server.make("s", b"hello")
    follower = server.follow()
    server.advance(14)
    assert follower.comments == []
    server.advance(1)
    assert len(follower.comments) == 1
    server.advance(30)
    assert len(follower.comments) == 3
    assert len(follower.events) == 1


@pytest.mark.parametrize("later_s", [0.0, 0.5, 7.3])
def test_a_connection_is_recycled_after_about_a_minute(
    server: DurableServer, later_s: float
) -> None:
    server.make("s", b"hello")
    first = server.follow()
    server.advance(later_s)
    follower = server.follow()
    server.advance(59)
    assert not follower.ended
    server.advance(16)
    assert first.ended and follower.ended
    assert "streamClosed" not in follower.controls[-1], "the client is to come back"
    assert server.engine.followers == 0


def test_nothing_ticks_when_nobody_reads(server: DurableServer) -> None:
    server.make("s", b"hello")
    timers = server.clock.timers
    follower = server.follow()
    server.advance(5)
    follower.disconnect()
    server.advance(20)
    assert server.clock.timers == timers
    again = server.follow()
    server.advance(15)
    assert len(again.comments) == 1


def test_heartbeat_and_recycling_are_settings() -> None:
    with DurableServer(sse_heartbeat_s=2, sse_recycle_s=6) as server:
        server.make("s", b"hello")
        follower = server.follow()
        server.advance(5)
        assert len(follower.comments) == 2
        server.advance(3)
        assert follower.ended


# -- cursors


@pytest.mark.parametrize("cursor", [None, "x", CURRENT - 1])
def test_a_reader_without_a_current_cursor_gets_the_current_one(
    server: DurableServer, cursor: object
) -> None:
    server.make("s", b"hello")
    follower = server.follow("s", "-1", cursor=cursor)
    assert follower.controls[0]["streamCursor"] == str(CURRENT)


@pytest.mark.parametrize("ahead", [0, 1000])
def test_an_echoed_cursor_is_followed_by_later_ones_only(server: DurableServer, ahead: int) -> None:
    server.make("s", b"hello")
    follower = server.follow("s", "-1", cursor=CURRENT + ahead)
    for _ in range(5):
        server.advance(11)
        server.append("s", b"more")
    found = [int(c["streamCursor"]) for c in follower.controls]
    assert found == sorted(found)
    assert found[0] > CURRENT + ahead


def test_the_cursor_moves_on_with_time(server: DurableServer) -> None:
    server.make("s", b"hello")
    follower = server.follow("s", "-1")
    server.advance(40)
    server.append("s", b"more")
    assert [int(c["streamCursor"]) - CURRENT for c in follower.controls] == [0, 2]
