"""POST {stream} with `Stream-Append: incremental`: the body is appended as it arrives."""

from __future__ import annotations

import pytest

from headwater.core.types import BatchSeq
from headwater.dialects.durable.rules import ROOT
from headwater.wire.http import Request, Route
from tests.support.durable import BYTES, JSON, TEXT, DurableServer, Reply, producer, token
from tests.support.uploads import IncrementalPost, SlowServer, counted, messages, post

NDJSON = "application/x-ndjson"


# -- pieces of the body become visible as they arrive


def test_every_line_is_seen_while_the_body_goes_on(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    follower = server.follow("s", "-1")
    upload = post(server)
    upload.send_settled(b'{"t":"Hel', b'lo"}\n{"t":', b'" wor', b'ld"}\n', b'"end"')
    assert follower.data == ['[{"t":"Hello"}]', '[{"t":" world"}]']
    assert not upload.answered
    reply = upload.finish()
    assert follower.data[-1] == '["end"]'
    assert (reply.status, counted(reply)) == (204, 3)
    assert reply.next == server.head("s").next
    assert messages(server) == [{"t": "Hello"}, {"t": " world"}, "end"]


def test_a_line_is_seen_after_the_next_commit(slow: SlowServer) -> None:
    """One that arrives while a commit is under way goes into the one after it."""
    slow.make("s")
    follower = slow.follow("s", "-1")
    upload = post(slow, TEXT)
    upload.send_settled(b"1\n")
    slow.hold()
    upload.send(b"2\n", b"3\n", b"4\n")
    assert (follower.text, slow.queued) == ("1\n", 3)
    before = slow.engine.committer.figures.commits
    slow.release()
    slow.settle()
    assert follower.text == "1\n2\n3\n4\n"
    assert slow.engine.committer.figures.commits == before + 2, "the one under way, and theirs"


@pytest.mark.parametrize("content_type", [TEXT, "text/markdown; charset=utf-8", NDJSON])
def test_lines_of_text_keep_their_ends(server: DurableServer, content_type: str) -> None:
    server.make("s", content_type=content_type)
    upload = post(server, content_type)
    upload.send_settled(b"a", b"b\n\r\n", b"\n")
    reply = upload.finish(b"last")
    assert server.content("s") == b"ab\n\r\n\nlast"
    assert (reply.status, reply.next, counted(reply)) == (204, token(4, 10), 4)


def test_bytes_are_appended_as_they_arrive(server: DurableServer) -> None:
    server.make("s", content_type=BYTES)
    upload = post(server, BYTES)
    upload.send_settled(b"\x00\n\xff", b"\n")
    reply = upload.finish(b"end")
    assert server.content("s") == b"\x00\n\xff\nend"
    assert (reply.next, counted(reply)) == (token(3, 7), 3)


@pytest.mark.parametrize("sent", [JSON, NDJSON, "Application/JSON; charset=utf-8"])
def test_a_json_stream_takes_a_value_a_line(server: DurableServer, sent: str) -> None:
    server.make("s", content_type=JSON)
    reply = post(server, sent).finish(b'1\n\n [2, 3] \r\n"x\\n"\n', b"\n\t\n{}")
    assert server.content("s") == b'[1,[2, 3],"x\\n",{}]'
    assert counted(reply) == 4, "an array is one message, a blank line none"


def test_a_body_of_known_length_in_one_piece(server: DurableServer) -> None:
    """Without a reader: the server had nothing to stream, or the body was there already."""
    server.make("s", content_type=JSON)
    for body, count in ((b"", 0), (b"1\n2\n", 2)):
        reply = server.post("s", body, content_type=JSON, stream_append="incremental")
        assert (reply.status, counted(reply), reply.next) == (204, count, token(count, count))
    assert messages(server) == [1, 2]


def test_an_empty_body_changes_nothing(server: DurableServer) -> None:
    tail = server.make("s", b"1", content_type=JSON)
    reply = post(server, **producer("p", 0, 7)).finish()
    assert (reply.status, reply.next, counted(reply)) == (204, tail, 0)


def test_lines_of_one_read_are_one_append(server: DurableServer) -> None:
    server.make("s", b"0", content_type=JSON)
    before = server.engine.committer.figures.commands
    post(server).finish(b"1\n2\n3\n")
    assert server.engine.committer.figures.commands == before + 1
    assert messages(server) == [0, 1, 2, 3]


# -- the request


@pytest.mark.parametrize("value", ["", "true", "incremental, incremental", "whole"])
def test_other_values_of_the_header_are_refused(server: DurableServer, value: str) -> None:
    server.make("s", content_type=JSON)
    reply = post(server, stream_append=value).reply
    assert (reply.status, reply.error, counted(reply)) == (400, "invalid_request", 0)


def test_the_value_is_compared_without_case(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    assert post(server, stream_append="Incremental").finish(b"1").status == 204


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"content_type": ""}, 400, "invalid_request"),
        ({"content_type": "json"}, 400, "invalid_request"),
        ({"content_type": TEXT}, 409, "content_type_mismatch"),
        ({"producer_id": "p"}, 400, "invalid_request"),
        (producer("p", "x"), 400, "invalid_request"),
        ({"stream_seq": "x" * 2000}, 400, "invalid_request"),
        ({"if_match": "soon"}, 400, "invalid_request"),
    ],
)
def test_what_the_headers_show_is_refused_before_the_body(
    server: DurableServer, headers: dict[str, str], status: int, error: str
) -> None:
    server.make("s", content_type=JSON)
    upload = IncrementalPost(server, "s", **{"content_type": JSON, **headers})
    assert (upload.reply.status, upload.reply.error) == (status, error)
    assert counted(upload.reply) == 0
    upload.send(b"1\n")
    upload.end()
    server.settle()
    assert messages(server) == []


def test_ndjson_fits_json_streams_and_its_own_only(server: DurableServer) -> None:
    server.make("s")
    assert post(server, NDJSON).reply.error == "content_type_mismatch"


def test_a_stream_that_is_not_there_is_known_before_the_body(server: DurableServer) -> None:
    upload = post(server)
    assert (upload.reply.status, counted(upload.reply)) == (404, 0)
    server.make("s", content_type=JSON)
    server.fork("f")
    server.delete("s")
    assert post(server).reply.status == 410


def test_a_closed_stream_is_known_before_the_body(server: DurableServer) -> None:
    server.make("s", b"1", content_type=JSON)
    tail = server.close("s")
    for headers in ({}, producer()):
        reply = post(server, **headers).reply
        assert (reply.status, reply.error, reply.next) == (409, "stream_closed", tail)
        assert reply.closed and counted(reply) == 0


def test_a_stream_that_is_just_being_created_is_waited_for(
    slow: SlowServer,
) -> None:
    slow.store.hold_syncs()
    created = slow.begin("PUT", "s", content_type=JSON)
    slow.runner.turn(2)
    upload, gone = post(slow), post(slow)
    upload.send(b"1\n")
    gone.send(b"2\n")
    gone.cut()
    assert not upload.answered
    slow.release()
    assert slow.runner.result(created).status == 201
    assert upload.finish().status == 204
    assert messages(slow) == [1]


def test_a_read_only_server_refuses_it() -> None:
    with DurableServer(read_only=True) as server:
        given = {b"stream-append": b"incremental", b"content-type": b"text/plain"}
        request = Request("POST", f"{ROOT}/s", "", given)
        route = server.dialect.begin(request)
        assert isinstance(route, Route) and not route.streams_body
        answer = route.handle(request)
        assert Reply(server.runner.result(answer)).error == "read_only"


def test_only_a_post_can_be_incremental(server: DurableServer) -> None:
    assert server.put("s", b"1", content_type=JSON, stream_append="incremental").status == 201
    assert server.get("s", "-1", stream_append="incremental").body == b"[1]"


# -- Stream-Seq and If-Match belong to the first piece, and nothing overtakes it


def test_a_sequence_counts_for_the_request(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    upload = post(server, stream_seq="b")
    upload.send_settled(b"1\n")
    assert upload.finish(b"2\n3\n").status == 204
    reply = post(server, stream_seq="b").finish(b"4\n", b"5\n", b"6\n")
    assert (reply.status, reply.error, counted(reply)) == (409, "sequence_regression", 0)
    assert messages(server) == [1, 2, 3]
    assert server.post("s", b"7", content_type=JSON, stream_seq="c").status == 204


def test_the_tail_is_compared_once(server: DurableServer) -> None:
    tail = server.make("s", b"1", content_type=JSON)
    assert post(server, if_match=tail).finish(b"2\n", b"3\n").status == 204
    reply = post(server, if_match=tail).finish(b"4\n", b"5\n")
    assert (reply.status, reply.next, counted(reply)) == (412, token(3, 3), 0)
    assert messages(server) == [1, 2, 3]
    assert post(server, if_match="*").finish(b"4").status == 204


def test_nothing_is_submitted_behind_the_first_until_it_is_accepted(
    slow: SlowServer,
) -> None:
    slow.make("s")
    slow.hold()
    upload = post(slow, TEXT)
    upload.send(b"1\n2\n3\n")
    assert slow.queued == 1
    assert upload.paused
    slow.release()
    assert counted(upload.finish()) == 3


# -- producers


def test_the_sequence_counts_lines(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    reply = post(server, **producer("p", 0, 0)).finish(b"1\n2\n", b"3")
    assert (reply.status, counted(reply)) == (200, 3)
    assert (reply.headers["producer-epoch"], reply.headers["producer-seq"]) == ("0", "2")
    after = server.post("s", b"4", content_type=JSON, **producer("p", 0, 3))
    assert after.status == 200
    assert messages(server) == [1, 2, 3, 4]


def test_a_repeated_request_skips_what_was_accepted(server: DurableServer) -> None:
    server.make("s")
    upload = post(server, TEXT, **producer("p", 3, 0))
    upload.send_settled(b"a\nb\n", b"c\nd")
    upload.cut()
    reply = post(server, TEXT, **producer("p", 3, 0)).finish(b"a\n", b"b\nc\nd\ne")
    assert (reply.status, counted(reply), reply.headers["producer-seq"]) == (200, 5, "4")
    assert server.content("s") == b"a\nb\nc\nd\ne"
    again = post(server, TEXT, **producer("p", 3, 0)).finish(b"a\nb\nc\nd\ne")
    assert (again.status, counted(again), again.headers["producer-seq"]) == (204, 5, "4")
    assert (again.next, server.content("s")) == (reply.next, b"a\nb\nc\nd\ne")


def test_a_repeat_may_begin_while_the_first_try_is_still_being_committed(
    slow: SlowServer,
) -> None:
    slow.make("s")
    upload = post(slow, TEXT, **producer())
    upload.send_settled(b"a\n")
    slow.hold()
    upload.send(b"b\nc\nd")
    upload.cut()
    again = post(slow, TEXT, **producer())
    again.send(b"a\nb\nc\nd\ne\n")
    slow.release()
    assert counted(again.finish()) == 5
    assert slow.content("s") == b"a\nb\nc\nd\ne\n"


def test_a_gap_is_refused_and_nothing_behind_it_counts(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    reply = post(server, **producer("p", 0, 1)).finish(b"1\n2\n3\n")
    assert (reply.status, reply.error, counted(reply)) == (409, "producer_gap", 0)
    assert reply.headers["producer-expected-seq"] == "0"
    assert messages(server) == []


def test_a_newer_epoch_stops_the_older_in_the_middle(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    upload = post(server, **producer("p", 0, 0))
    upload.send_settled(b"1\n2\n")
    assert server.post("s", b"3", content_type=JSON, **producer("p", 1, 0)).status == 200
    reply = upload.finish(b"4\n5\n")
    assert (reply.status, reply.error, counted(reply)) == (403, "producer_fenced", 2)
    assert (reply.headers["producer-epoch"], reply.next) == ("1", token(2, 2))
    assert messages(server) == [1, 2, 3]


def test_bytes_without_lines_have_no_sequence(server: DurableServer) -> None:
    server.make("s", content_type=BYTES)
    reply = post(server, BYTES, **producer()).reply
    assert (reply.status, reply.error) == (400, "invalid_request")


def test_a_sequence_that_runs_out_is_refused(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    server.post("s", b"0", content_type=JSON, **producer())
    stream = server.engine.open("durable-streams", "s")
    stream.state.producers["p"].seq = BatchSeq(2**53 - 3)
    reply = post(server, **producer("p", 0, 2**53 - 2)).finish(b"1\n2\n3\n")
    assert (reply.status, counted(reply)) == (400, 2)
    assert messages(server) == [0, 1, 2]


# -- closing


@pytest.mark.parametrize("headers", [{}, producer()], ids=["plain", "producer"])
@pytest.mark.parametrize("body", [b"", b"1\n2\n", b"1\n2"])
def test_the_stream_is_closed_with_the_end_of_the_body(
    server: DurableServer, headers: dict[str, str], body: bytes
) -> None:
    server.make("s", content_type=JSON)
    follower = server.follow("s", "-1")
    upload = post(server, stream_closed="true", **headers)
    upload.send_settled(body)
    assert not server.head("s").closed
    reply = upload.finish()
    assert reply.closed and counted(reply) == (2 if body else 0)
    assert reply.status == (200 if headers and body else 204)
    assert server.head("s").closed and follower.ended


def test_a_cut_connection_does_not_close_the_stream(server: DurableServer) -> None:
    server.make("s")
    upload = post(server, TEXT, stream_closed="true")
    upload.send_settled(b"a\n")
    upload.cut()
    server.settle()
    assert not server.head("s").closed
    assert not server.dialect._incremental.open  # noqa: SLF001


def test_a_request_that_closed_the_stream_can_be_repeated(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    headers = {"stream_closed": "true", **producer("p", 0, 0)}
    first = post(server, **headers).finish(b"1\n2\n3\n")
    assert (first.status, first.headers["producer-seq"]) == (200, "3"), "the close counts too"
    again = post(server, **headers).finish(b"1\n2\n3\n")
    assert (again.status, again.closed, counted(again)) == (204, True, 3)
    assert again.headers["producer-seq"] == "3"
    more = post(server, **headers).finish(b"1\n2\n3\n4\n5\n")
    assert (more.status, more.error, counted(more)) == (409, "stream_closed", 4)
    plain = server.post("s", b"1", content_type=JSON, **producer("p", 0, 0))
    assert plain.error == "stream_closed", "an ordinary repeat is refused: PROTOCOL §5.2.1"
    assert messages(server) == [1, 2, 3]
