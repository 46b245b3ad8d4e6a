"""Read sessions of server-sent events. S2 API: read, SSE."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support import event_stream
from tests.support.durable import NOW_MS
from tests.support.s2 import S2Server, Session


@pytest.fixture
def filled(server: S2Server) -> S2Server:
    """Records 0 to 4, a second apart, of nine metered bytes each."""
    server.make_stream("s")
    server.fill("s", "a", "b", "c", "d", "e", seconds=1.0)
    return server


def batches(session: Session) -> list[dict[str, Any]]:
    found = event_stream.parse(session.received)
    return [json.loads(event.data) for event in found if event.type == "batch"]


def numbers(session: Session) -> list[int]:
    return [record["seq_num"] for batch in batches(session) for record in batch["records"]]


def ids(session: Session) -> list[str]:
    return re.findall(r"^id: (.*)$", session.received.decode(), re.MULTILINE)


def types(session: Session) -> list[str]:
    return [event.type for event in event_stream.parse(session.received)]


def test_a_batch_is_an_event_with_the_id_of_how_far_the_reader_is(filled: S2Server) -> None:
    session = filled.events("seq_num=4&count=1")

    assert session.reply.headers["content-type"] == "text/event-stream"
    assert session.received == (
        b"event: batch\n"
        b"id: 4,1,9\n"
        b'data: {"records":[{"seq_num":4,"timestamp":%d,"body":"e"}],'
        b'"tail":{"seq_num":5,"timestamp":%d}}\n\n'
        b"data: [DONE]\n\n"
    ) % (NOW_MS + 4000, NOW_MS + 4000)
    assert session.ended


def test_the_id_counts_the_records_and_bytes_of_the_whole_session(filled: S2Server) -> None:
    session = filled.events("seq_num=2")
    filled.fill("s", "f", "g")

    assert ids(session) == ["4,3,27", "5,4,36", "6,5,45"]


def test_a_ping_tells_the_time_and_the_tail(filled: S2Server) -> None:
    session = filled.events("seq_num=5")

    assert types(session) == ["ping"]
    ping = json.loads(event_stream.parse(session.received)[0].data)
    assert ping == {
        "timestamp": NOW_MS + 5000,
        "tail": {"seq_num": 5, "timestamp": NOW_MS + 4000},
    }
    filled.advance(16.0)
    assert len(types(session)) > 1


def test_a_clean_end_is_done(filled: S2Server) -> None:
    session = filled.events("seq_num=0&wait=0")

    assert numbers(session) == [0, 1, 2, 3, 4]
    assert session.received.endswith(b"\n\ndata: [DONE]\n\n")
    assert session.ended


def test_a_bound_that_allows_nothing_is_done_at_once(filled: S2Server) -> None:
    """A batch is never empty."""
    assert filled.events("seq_num=0&count=0").received == b"data: [DONE]\n\n"


def test_an_error_ends_the_session_without_done(filled: S2Server) -> None:
    session = filled.events("seq_num=5")
    session.shut_down()
    filled.advance(2.0)

    last = event_stream.parse(session.received)[-1]
    assert last.type == "error"
    assert json.loads(last.data)["code"] == "server_draining"
    assert session.ended
    assert b"[DONE]" not in session.received


def test_last_event_id_starts_behind_that_record_whatever_the_query_says(
    filled: S2Server,
) -> None:
    for query in ("seq_num=0", "timestamp=0", "tail_offset=1", ""):
        session = filled.events(query + "&wait=0", last_event_id="2,3,27")
        assert numbers(session) == [3, 4]


def test_last_event_id_takes_what_was_consumed_off_the_bounds(filled: S2Server) -> None:
    assert numbers(filled.events("seq_num=0&count=4", last_event_id="2,3,27")) == [3]
    assert numbers(filled.events("seq_num=0&bytes=45", last_event_id="2,3,27")) == [3, 4]
    assert numbers(filled.events("seq_num=0&bytes=44", last_event_id="2,3,27")) == [3]
    assert numbers(filled.events("seq_num=0&count=2", last_event_id="2,3,27")) == []


def test_ids_go_on_counting_after_a_reconnect(filled: S2Server) -> None:
    """A browser repeats the first query: the bounds are those of all its sessions together."""
    assert ids(filled.events("seq_num=0&count=5", last_event_id="2,3,27")) == ["4,5,45"]


@pytest.mark.parametrize(
    "given", ["2", "2,3", "2,3,4,5", "a,3,4", "2,-3,4", "2,,4", "18446744073709551616,1,1", "2;3;4"]
)
def test_a_malformed_last_event_id_is_a_bad_header(filled: S2Server, given: str) -> None:
    reply = filled.read("seq_num=0", accept="text/event-stream", last_event_id=given)

    assert reply.code == "400 bad_header"


def test_last_event_id_means_nothing_to_other_reads(filled: S2Server) -> None:
    assert filled.read("seq_num=4", last_event_id="nonsense").numbers == [4]


def test_base64_is_for_bytes(server: S2Server) -> None:
    server.make_stream("s")
    server.add("s", {"body": "AP8="}, format="base64")

    session = server.events("seq_num=0&count=1", s2_format="base64")
    assert batches(session)[0]["records"][0]["body"] == "AP8="


def test_line_breaks_stay_inside_their_event(server: S2Server) -> None:
    server.make_stream("s")
    body = "a\r\nb\n\nevent: x\u2028\x00"
    server.add("s", body)

    session = server.events("seq_num=0&count=1")
    assert batches(session)[0]["records"][0]["body"] == body


def test_an_event_stream_is_never_compressed(server: S2Server) -> None:
    server.make_stream("s")
    server.add("s", "x" * 5000)

    session = server.events("seq_num=0&count=1", accept_encoding="zstd, gzip")
    assert "content-encoding" not in session.reply.headers
    assert numbers(session) == [0]


def test_a_slow_client_gets_done_when_it_reads_again(filled: S2Server) -> None:
    session = filled.events("seq_num=0&wait=0", slow=True)
    assert not session.ended
    session.drain()

    assert session.received.endswith(b"data: [DONE]\n\n")
    assert session.ended


def test_416_comes_before_the_session(filled: S2Server) -> None:
    reply = filled.read("seq_num=6", accept="text/event-stream")

    assert (reply.status, reply.tail) == (416, 5)
