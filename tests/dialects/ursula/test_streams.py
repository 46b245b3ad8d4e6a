"""The base protocol on a bucket's URLs, and where it differs there."""

from __future__ import annotations

import json

import pytest

from headwater.dialects.durable.errors import RENDERERS as DURABLE_RENDERERS
from headwater.dialects.ursula.errors import RENDERERS
from tests.support.durable import JSON, START, TEXT, token
from tests.support.uploads import IncrementalPost
from tests.support.ursula import UrsulaServer

NDJSON = "application/x-ndjson"


def test_every_error_is_rendered() -> None:
    assert RENDERERS.keys() == DURABLE_RENDERERS.keys()


def test_append_read_close_delete(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", b"c")
    assert server.content("demo/s") == b"abc"
    assert server.close("demo/s") == token(2, 3)
    assert server.get("demo/s").closed
    assert server.delete("demo/s").status == 204
    assert server.get("demo/s").status == 404
    assert server.post("demo/s", b"x", content_type=TEXT).status == 404


def test_streams_of_two_buckets_are_two(server: UrsulaServer) -> None:
    server.make("one/s", b"1")
    server.make("two/s", b"2")
    assert (server.content("one/s"), server.content("two/s")) == (b"1", b"2")


@pytest.mark.parametrize("offset", ["4", "99999999999999999999", token(3, 4), token(2, 9)])
def test_offset_past_the_tail_is_416(server: UrsulaServer, offset: str) -> None:
    server.make("demo/s", b"ab", b"c")
    reply = server.get("demo/s", offset)
    assert (reply.status, reply.error, reply.next) == (416, "invalid_offset", token(2, 3))


@pytest.mark.parametrize("offset", ["1", token(1, 1)])
def test_offset_that_does_not_fit_is_416(server: UrsulaServer, offset: str) -> None:
    server.make("demo/s", b"ab", b"c")
    assert server.get("demo/s", offset).status == 416


@pytest.mark.parametrize("offset", ["x", "1.5", "", "-2"])
def test_offset_that_is_none_is_400(server: UrsulaServer, offset: str) -> None:
    server.make("demo/s", b"ab", b"c")
    assert server.get("demo/s", offset).status == 400


@pytest.mark.parametrize(("offset", "body"), [("0", b"abc"), ("2", b"c"), ("0003", b"")])
def test_offset_may_be_a_byte_position(server: UrsulaServer, offset: str, body: bytes) -> None:
    server.make("demo/s", b"ab", b"c")
    reply = server.get("demo/s", offset)
    assert (reply.status, reply.body) == (200, body)


def test_offset_that_is_trimmed_is_410(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", b"c", stream_retention="records=1")
    server.advance(2)
    for offset in ("0", START):
        reply = server.get("demo/s", offset)
        assert (reply.status, reply.next) == (410, token(1, 2))
    assert server.get("demo/s", "-1").body == b"c"


def test_max_bytes_bounds_an_answer_at_a_message(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", b"cd", b"ef")
    reply = server.query("demo/s", "max_bytes=5")
    assert (reply.body, reply.next, reply.up_to_date) == (b"abcd", token(2, 4), False)
    assert server.query("demo/s", "max_bytes=1").body == b"ab"
    assert server.query("demo/s", "max_bytes=0").status == 400


def test_max_bytes_bounds_an_event(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", b"cd", b"efghi", "é".encode())
    small = server.follow_query("demo/s", "offset=-1&live=sse&max_bytes=4")
    whole = server.follow_query("demo/s", "offset=-1&live=sse")
    assert small.data == ["abcd", "efghi", "é"]
    assert whole.data == ["abcdefghié"]
    server.append("demo/s", b"12345")
    server.append("demo/s", b"6")
    assert small.data[3:] == whole.data[1:] == ["12345", "6"]


def test_timeout_ms_is_how_long_a_long_poll_waits(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab")
    answer = server.begin("GET", "demo/s", "offset=now&live=long-poll&timeout_ms=1500")
    outcome: list[object] = []
    assert not hasattr(answer, "status")
    answer.deliver(outcome.append)
    server.clock.advance(1.4)
    server.settle()
    assert not outcome
    server.clock.advance(0.2)
    server.settle()
    assert len(outcome) == 1


def test_sse_follows(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab")
    follower = server.follow("demo/s", "0")
    server.append("demo/s", b"cd")
    assert follower.text == "abcd"


def test_incremental_appends(server: UrsulaServer) -> None:
    server.make("demo/a/b", b"[0]", content_type=JSON)
    follower = server.follow("demo/a/b")
    upload = IncrementalPost(server, "demo/a/b", content_type=JSON)
    upload.send_settled(b"1\n", b"2\n3\n", b"4")
    assert follower.data == ["[1]", "[2,3]"]
    reply = upload.finish()
    assert (reply.status, reply.headers["stream-append-count"]) == (204, "4")
    assert reply.headers["stream-record-start"] == "1"
    assert reply.headers["stream-record-next"] == "5"
    assert json.loads(server.content("demo/a/b")) == [0, 1, 2, 3, 4]


def test_head_has_the_record_numbers_of_json_only(server: UrsulaServer) -> None:
    server.make("demo/s", b"[1,2]", content_type=JSON)
    found = server.head("demo/s").headers
    assert (found["stream-record-first"], found["stream-record-next"]) == ("0", "2")
    assert found["stream-retained-offset"] == START
    server.make("demo/t")
    assert "stream-record-next" not in server.head("demo/t").headers


# -- NDJSON


def test_json_reads_are_the_protocols_array(server: UrsulaServer) -> None:
    server.make("demo/s", b'[{"a":1},2]', content_type=JSON)
    reply = server.get("demo/s")
    assert reply.body == b'[{"a":1},2]'
    assert reply.headers["content-type"] == JSON
    assert reply.headers["vary"] == "accept, accept-encoding"


def test_ndjson_on_accept(server: UrsulaServer) -> None:
    server.make("demo/s", b'[{"a":\r\n1}, "x\\ny"]', content_type=JSON)
    reply = server.get("demo/s", accept=NDJSON)
    assert reply.headers["content-type"] == NDJSON
    assert reply.headers["vary"] == "accept, accept-encoding"
    assert [json.loads(line) for line in reply.body.splitlines()] == [{"a": 1}, "x\ny"]
    assert reply.body.endswith(b"\n")
    assert reply.next == server.get("demo/s").next


def test_ndjson_has_a_tag_of_its_own(server: UrsulaServer) -> None:
    server.make("demo/s", b"1", content_type=JSON)
    lines, array = server.get("demo/s", accept=NDJSON), server.get("demo/s")
    assert lines.etag != array.etag
    assert server.get("demo/s", accept=NDJSON, if_none_match=lines.etag).status == 304
    assert server.get("demo/s", if_none_match=lines.etag).status == 200


def test_ndjson_of_nothing_is_nothing(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=JSON)
    assert server.get("demo/s", accept=NDJSON).body == b""
    assert server.get("demo/s", "now", accept=NDJSON).body == b""


def test_other_streams_do_not_vary_by_accept(server: UrsulaServer) -> None:
    server.make("demo/s", b"x")
    reply = server.get("demo/s", accept=NDJSON)
    assert (reply.headers["vary"], reply.headers["content-type"]) == ("accept-encoding", TEXT)


# -- attributes


def test_attributes_are_replaced(server: UrsulaServer) -> None:
    server.make("demo/s")
    assert server.get("demo/s/attrs").body == b"{}"
    body = b'{"title":"x","metadata":{"b":1,"a":[2]},"other":1}'
    assert server.request("PUT", "demo/s/attrs", "", body, content_type=JSON).status == 204
    assert server.get("demo/s/attrs").body == b'{"metadata":{"a":[2],"b":1},"title":"x"}'
    server.close("demo/s")
    assert server.request("PUT", "demo/s/attrs", "", b"{}", content_type=JSON).status == 204
    assert server.get("demo/s/attrs").body == b"{}"


def test_attributes_need_json_and_a_stream(server: UrsulaServer) -> None:
    server.make("demo/s")
    assert server.request("PUT", "demo/s/attrs", "", b"{}").status == 400
    assert server.request("PUT", "demo/s/attrs", "", b"[]", content_type=JSON).status == 400
    assert server.request("PUT", "demo/no/attrs", "", b"{}", content_type=JSON).status == 404
    assert server.get("demo/no/attrs").status == 404
    assert server.request("POST", "demo/s/attrs").status == 405


# -- routing


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/x", "/health/x", "/metrics/a/b", "/__x/y", "/%761/s", "*", "/a%20b"]
)
def test_what_is_reserved_or_no_bucket_is_not_ours(server: UrsulaServer, path: str) -> None:
    assert not server.serves(path)


@pytest.mark.parametrize("path", ["/streams/my-stream", "/events/topic", "/a", "/a/streams"])
def test_what_is_a_bucket_is_ours(server: UrsulaServer, path: str) -> None:
    assert server.serves(path)


def test_streams_is_a_list_only_right_below_a_bucket(server: UrsulaServer) -> None:
    server.make("demo/streams/x", b"1")
    assert server.content("demo/streams/x") == b"1"
    assert server.put("demo/streams").status == 405


def test_a_tail_needs_a_name_before_it(server: UrsulaServer) -> None:
    server.make("demo/attrs", b"1")
    assert server.content("demo/attrs") == b"1"
    assert server.get("demo/attrs/attrs").body == b"{}"


def test_read_only_refuses_writes() -> None:
    with UrsulaServer(read_only=True) as server:
        assert server.put("demo/s").status == 405
        assert server.request("PUT", "demo").status == 405
        assert server.get("demo/s").status == 404
