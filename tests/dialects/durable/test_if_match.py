"""If-Match on appends: optimistic concurrency. An addition to PROTOCOL §5.2."""

from __future__ import annotations

import pytest

from tests.support.durable import JSON, TEXT, DurableServer, producer, token


def test_an_append_at_the_expected_tail_is_taken(server: DurableServer) -> None:
    tail = server.make("s", b"a")
    reply = server.post("s", b"b", content_type=TEXT, if_match=tail)
    assert (reply.status, reply.next) == (204, token(2, 2))


@pytest.mark.parametrize("quoted", [False, True])
def test_at_another_tail_it_is_refused_with_the_tail_and_changes_nothing(
    server: DurableServer, quoted: bool
) -> None:
    old = server.make("s")
    tail = server.append("s", b"a")
    reply = server.post("s", b"b", content_type=TEXT, if_match=f'"{old}"' if quoted else old)
    assert (reply.status, reply.error, reply.next) == (412, "precondition_failed", tail)
    assert server.content() == b"a"


def test_of_two_writers_who_saw_the_same_tail_one_wins(server: DurableServer) -> None:
    tail = server.make("s")
    answers = [
        server.begin("POST", "s", "", body, content_type=TEXT, if_match=tail)
        for body in (b"a", b"b")
    ]
    statuses = [server.runner.result(answer).status for answer in answers]
    assert statuses == [204, 412]
    assert server.content() == b"a"


def test_a_star_asks_only_that_the_stream_is_there(server: DurableServer) -> None:
    server.make("s", b"a")
    assert server.post("s", b"b", content_type=TEXT, if_match="*").status == 204
    assert server.post("other", b"b", content_type=TEXT, if_match="*").status == 404


@pytest.mark.parametrize("value", ["", "now", "-1", "5", "tail:1", "W/x"])
def test_what_is_not_an_offset_is_400(server: DurableServer, value: str) -> None:
    server.make("s")
    assert server.post("s", b"b", content_type=TEXT, if_match=value).status == 400


def test_the_repeat_of_an_accepted_batch_is_a_repeat_not_a_conflict(server: DurableServer) -> None:
    tail = server.make("s")
    first = server.post("s", b"a", content_type=TEXT, if_match=tail, **producer())
    again = server.post("s", b"a", content_type=TEXT, if_match=tail, **producer())
    assert (first.status, again.status) == (200, 204)
    assert server.content() == b"a"


def test_a_refused_append_does_not_advance_its_producer(server: DurableServer) -> None:
    old = server.make("s", content_type=JSON)
    server.append("s", b"1")
    assert server.post("s", b"2", content_type=JSON, if_match=old, **producer()).status == 412
    assert server.post("s", b"2", content_type=JSON, **producer()).status == 200


def test_closing_can_be_conditional_too(server: DurableServer) -> None:
    old = server.make("s")
    tail = server.append("s", b"a")
    assert server.post("s", stream_closed="true", if_match=old).status == 412
    assert server.post("s", stream_closed="true", if_match=tail).status == 204
