"""Requests and responses over HTTP/2: what reaches the application, what comes back."""

from __future__ import annotations

import hpack
import pytest
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, RstStreamFrame, WindowUpdateFrame

from headwater.core.pending import Pending
from headwater.server.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PADDED,
    PRIORITIZED,
    PROTOCOL_ERROR,
    STREAM_CLOSED,
    pack_header,
)
from headwater.server.http2_stream import STREAM_WINDOW_BYTES
from headwater.server.serving import ServerLimits
from headwater.wire.http import Answer, HeaderBlock, Request, Response
from tests.server.http1_harness import Deferred, get
from tests.server.http2_harness import Http2Harness, find

HEAD = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]


def test_a_request_is_answered() -> None:
    harness = Http2Harness()
    got = harness.client().ask("POST", "/x?y=1", ("content-type", "text/plain"), body=b"hello")
    assert (got.status, got.body, got.ended, got.reset) == (200, b"POST /x hello", True, None)
    assert got.headers["content-length"] == "13"
    assert got.headers["x-request-id"] == harness.application.requests[0].id
    assert got.headers["date"] == "Thu, 01 Jan 1970 00:16:40 GMT"
    [request] = harness.application.requests
    assert (request.path, request.query, request.peer) == ("/x", "y=1", "192.0.2.1")
    assert request.headers[b"host"] == b"a"
    assert request.headers[b"content-type"] == b"text/plain"


def test_http1_is_served_on_the_same_port() -> None:
    harness = Http2Harness()
    harness.client().ask("GET", "/")
    [reply] = harness.exchange(get("/old"))
    assert (reply.status, reply.body) == (200, b"GET /old ")


def test_a_preface_may_come_in_pieces() -> None:
    harness = Http2Harness()
    client = harness.client(greets=False)
    client.h2.initiate_connection()
    for byte in client.h2.data_to_send():
        client.peer.send(bytes((byte,)))
    assert client.ask("GET", "/").status == 200


def test_every_byte_may_come_alone() -> None:
    client = Http2Harness().client()
    client.h2.send_headers(1, [*HEAD[1:], (":method", "POST")])
    client.h2.send_data(1, b"hello", end_stream=True)
    for byte in client.h2.data_to_send():
        client.peer.send(bytes((byte,)))
    assert client.got(1).body == b"POST / hello"


@pytest.mark.parametrize("status", [200, 204, 304, 404])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_bodies_are_left_out_where_they_must_be(method: str, status: int) -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(status, (), b"body")
    got = harness.client().ask(method, "/")
    bodiless = method == "HEAD" or status in (204, 304)
    assert got.ended and got.status == status
    assert got.body == (b"" if bodiless else b"body")
    assert ("content-length" in got.headers) == (status not in (204, 304))


def test_constant_and_own_headers_are_sent_and_connection_headers_are_not() -> None:
    harness = Http2Harness()
    base = HeaderBlock(((b"cache-control", b"no-store"), (b"x-long", b"v" * 300)))
    own = ((b"Stream-Next-Offset", b"7"), (b"connection", b"close"))
    harness.application.answer = lambda request: Response(201, own, [b"a", b"", b"b"], base=base)
    got = harness.client().ask("GET", "/")
    assert got.headers["cache-control"] == "no-store"
    assert got.headers["x-long"] == "v" * 300
    assert got.headers["stream-next-offset"] == "7"
    assert "connection" not in got.headers
    assert (got.status, got.body) == (201, b"ab")


def test_a_header_that_would_split_the_response_becomes_a_500() -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(200, ((b"x", b"a\r\nb: c"),))
    assert harness.client().ask("GET", "/").status == 500


def test_a_long_head_is_continued() -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(200, ((b"x-long", b"v" * 40_000),), b"ok")
    got = harness.client(settings={}).ask("GET", "/")
    assert (len(got.headers["x-long"]), got.body) == (40_000, b"ok")


def test_requests_run_side_by_side_and_are_answered_in_any_order() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    first, second, third = (client.open("GET", path) for path in ("/1", "/2", "/3"))
    for path in ("/3", "/1", "/2"):
        deferred.resolve(path)
    bodies = [client.got(stream).body for stream in (first, second, third)]
    assert bodies == [b"/1", b"/2", b"/3"]


def test_answers_of_one_turn_leave_in_one_write() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    for index in range(10):
        client.open("GET", f"/{index}")
    writes = client.peer.transport.writes
    for index in range(10):
        deferred.resolve(f"/{index}")
    client.exchange()
    assert client.peer.transport.writes == writes + 1


def test_a_reset_cancels_what_was_pending() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    stream = client.open("GET", "/poll")
    client.h2.reset_stream(stream, 8)
    client.exchange()
    assert deferred.cancelled == ["/poll"]
    deferred.resolve("/poll")
    assert client.ask("GET", "/poll2").headers == {}
    assert client.goaway is None


def test_a_disconnect_cancels_every_stream() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    client.open("GET", "/1")
    client.open("GET", "/2")
    client.peer.vanish()
    assert deferred.cancelled == ["/1", "/2"]
    assert not harness.server.serving.connections


def test_a_failure_is_a_500_and_ends_no_other_stream() -> None:
    harness = Http2Harness()
    client = harness.client()

    def fail(request: Request) -> Answer:
        if request.path == "/bad":
            raise RuntimeError("bug")
        pending = Pending[Response]()
        pending.fail(RuntimeError("later"))
        return pending

    harness.application.answer = fail
    assert client.ask("GET", "/bad").status == 500
    assert client.ask("GET", "/later").status == 500


def test_the_same_head_is_not_shared_between_requests() -> None:
    harness = Http2Harness()

    def spoil(request: Request) -> Answer:
        seen = request.headers.get(b"x-a", b"")
        request.headers[b"x-a"] = b"changed"
        return Response(200, (), seen)

    harness.application.answer = spoil
    client = harness.client()
    assert [client.ask("GET", "/", ("x-a", "1")).body for _ in range(4)] == [b"1"] * 4


def test_remembered_heads_follow_the_dynamic_table() -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(200, (), request.headers[b"x-n"])
    client = harness.client()
    values = [str(n // 3 % 7) for n in range(100)]
    assert [client.ask("GET", "/", ("x-n", v)).body.decode() for v in values] == values


def test_a_refusal_before_the_body_does_not_hurt_the_connection() -> None:
    harness = Http2Harness()
    harness.application.refusal = lambda request: (
        Response(404, (), b"no") if "x" in request.path else None
    )
    client = harness.client()
    stream = client.open("POST", "/x", ends=False)
    got = client.got(stream)
    assert (got.status, got.body, got.ended, got.reset) == (404, b"no", True, 0)
    # A client that has not noticed yet.
    answer: list[Frame] = []
    for _ in range(2000):
        answer += client.raw(pack_header(16_384, DATA, 0, stream) + bytes(16_384))
    answer += client.raw(pack_header(0, DATA, END_STREAM, stream))
    assert {type(frame) for frame in answer} == {WindowUpdateFrame}
    credit = sum(frame.window_increment for frame in answer if isinstance(frame, WindowUpdateFrame))
    assert credit >= 0.75 * 2000 * 16_384
    assert client.ask("POST", "/", body=b"y").body == b"POST / y"


def test_a_body_that_is_too_large_is_refused() -> None:
    harness = Http2Harness()
    client = harness.client()
    announced = client.open("POST", "/", ("content-length", "1001"), ends=False)
    assert client.got(announced).status == 413
    found = client.open("POST", "/", body=b"x" * 1001, ends=False)
    assert client.got(found).status == 413
    assert client.ask("POST", "/", body=b"x" * 1000).status == 200


def test_a_large_body_is_credited_as_it_comes() -> None:
    harness = Http2Harness()
    harness.application.body_bytes_max = 64 * 1024 * 1024
    harness.application.answer = lambda request: Response(200, (), b"%d" % len(request.body))
    client = harness.client()
    stream = client.open("POST", "/", ends=False)
    left = 5 * STREAM_WINDOW_BYTES
    while left:
        size = min(left, client.h2.local_flow_control_window(stream), 1024 * 1024)
        assert size > 0
        client.send_data(stream, bytes(size))
        left -= size
    client.send_data(stream, b"", ends=True)
    assert client.got(stream).body == b"%d" % (5 * STREAM_WINDOW_BYTES)


def test_a_client_that_expects_100_gets_it() -> None:
    client = Http2Harness().client()
    stream = client.open("POST", "/", ("expect", "100-continue"), ends=False)
    assert client.got(stream).informational == ["100"]
    client.send_data(stream, b"x", ends=True)
    assert client.got(stream).body == b"POST / x"


def test_trailers_are_ignored() -> None:
    harness = Http2Harness()
    client = harness.client()
    stream = client.open("POST", "/", body=b"x", ends=False)
    client.h2.send_headers(stream, [("x-checksum", "1")], end_stream=True)
    assert client.got(stream).body == b"POST / x"
    assert b"x-checksum" not in harness.application.requests[0].headers


def test_padding_priority_and_continuation_are_understood() -> None:
    client = Http2Harness().client()
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/p")]
    block = hpack.Encoder().encode([*fields, ("x-long", "v" * 5000)])
    first = b"\x03" + bytes(5) + block[:10] + bytes(3)
    answer = client.raw(
        pack_header(len(first), HEADERS, PADDED | PRIORITIZED, 1) + first,
        pack_header(100, CONTINUATION, 0, 1) + block[10:110],
        pack_header(len(block) - 110, CONTINUATION, END_HEADERS, 1) + block[110:],
        pack_header(10, DATA, PADDED | END_STREAM, 1) + b"\x04hello" + bytes(4),
    )
    assert find(answer, DataFrame).data == b"POST /p hello"


MALFORMED = {
    "no method": HEAD[1:],
    "no scheme": [HEAD[0], *HEAD[2:]],
    "no path": HEAD[:3],
    "empty path": [*HEAD[:3], (":path", "")],
    "relative path": [*HEAD[:3], (":path", "x")],
    "star": [*HEAD[:3], (":path", "*")],
    "space in path": [*HEAD[:3], (":path", "/a b")],
    "bad method": [(":method", "G T"), *HEAD[1:]],
    "method twice": [*HEAD, (":method", "GET")],
    "unknown pseudo-header": [*HEAD, (":status", "200")],
    "pseudo-header after a header": [*HEAD[:3], ("x", "1"), HEAD[3]],
    "upper case": [*HEAD, ("X-Upper", "1")],
    "space in name": [*HEAD, ("x y", "1")],
    "empty name": [*HEAD, ("", "1")],
    "line break in value": [*HEAD, ("x", "1\r\ny: 2")],
    "zero in value": [*HEAD, ("x", "1\0")],
    "space around value": [*HEAD, ("x", " 1")],
    "connection": [*HEAD, ("connection", "close")],
    "transfer-encoding": [*HEAD, ("transfer-encoding", "chunked")],
    "upgrade": [*HEAD, ("upgrade", "h2c")],
    "te": [*HEAD, ("te", "gzip")],
    "host differs": [*HEAD, ("host", "b")],
    "content-length twice": [*HEAD, ("content-length", "0"), ("content-length", "0")],
    "content-length is no number": [*HEAD, ("content-length", "-1")],
    "content-length without a body": [*HEAD, ("content-length", "1")],
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_reset(fields: list[tuple[str, str]]) -> None:
    harness = Http2Harness()
    client = harness.client()
    block = hpack.Encoder().encode(fields)
    answer = client.raw(pack_header(len(block), HEADERS, END_HEADERS | END_STREAM, 1) + block)
    reset = find(answer, RstStreamFrame)
    assert (len(answer), reset.stream_id, reset.error_code) == (1, 1, PROTOCOL_ERROR)
    assert not harness.application.begun
    block = hpack.Encoder().encode(HEAD)
    answer = client.raw(pack_header(len(block), HEADERS, END_HEADERS | END_STREAM, 3) + block)
    assert find(answer, DataFrame).data == b"GET / "


ACCEPTED = {
    "te: trailers": [*HEAD, ("te", "trailers")],
    "host and no authority": [HEAD[0], HEAD[1], HEAD[3], ("host", "a")],
    "host and the same authority": [*HEAD, ("host", "a")],
    "options *": [(":method", "OPTIONS"), HEAD[1], HEAD[2], (":path", "*")],
    "content-length 0": [*HEAD, ("content-length", "0")],
}


@pytest.mark.parametrize("fields", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_proper_request_is_accepted(fields: list[tuple[str, str]]) -> None:
    harness = Http2Harness()
    client = harness.client()
    client.h2.send_headers(1, fields, end_stream=True)
    assert client.got(1).status == 200
    assert harness.application.requests[0].headers[b"host"] == b"a"


def test_cookies_are_joined_as_one_and_others_as_a_list() -> None:
    harness = Http2Harness()
    harness.client().ask("GET", "/", ("cookie", "a=1"), ("cookie", "b=2"), ("x", "1"), ("x", "2"))
    headers = harness.application.requests[0].headers
    assert (headers[b"cookie"], headers[b"x"]) == (b"a=1; b=2", b"1, 2")


REFUSED = {
    "no host": (400, [HEAD[0], HEAD[1], HEAD[3]]),
    "bad host": (400, [HEAD[0], HEAD[1], (":authority", "a@b"), HEAD[3]]),
    "fragment": (400, [*HEAD[:3], (":path", "/a#b")]),
    "long path": (414, [*HEAD[:3], (":path", "/" + "a" * 9000)]),
    "many headers": (431, [*HEAD, *((f"x-{n}", "") for n in range(101))]),
    "large headers": (431, [*HEAD, *((f"x-{n}", "v" * 1000) for n in range(33))]),
    "connect": (501, [(":method", "CONNECT"), (":authority", "a")]),
    "expectation": (417, [*HEAD, ("expect", "a miracle")]),
}


@pytest.mark.parametrize(("status", "fields"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_acceptable_is_refused(status: int, fields: list[tuple[str, str]]) -> None:
    harness = Http2Harness()
    client = harness.client()
    client.h2.send_headers(1, fields, end_stream=True)
    assert client.got(1).status == status
    assert client.got(1).headers["content-type"] == "text/plain"
    assert client.ask("GET", "/").status == 200


@pytest.mark.parametrize("body", [b"1234", b"123456"])
def test_a_body_that_differs_from_its_length_is_reset(body: bytes) -> None:
    harness = Http2Harness()
    client = harness.client()
    stream = client.open("POST", "/", ("content-length", "5"), body=body)
    assert client.got(stream).reset == PROTOCOL_ERROR
    assert not harness.application.requests


def test_data_after_the_end_is_a_stream_error() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    stream = client.open("GET", "/wait")
    answer = client.raw(pack_header(1, DATA, 0, stream) + b"x")
    assert find(answer, RstStreamFrame).error_code == STREAM_CLOSED
    assert deferred.cancelled == ["/wait"]


def test_a_header_list_beyond_reason_ends_the_connection() -> None:
    client = Http2Harness(limits=ServerLimits(header_bytes_max=1000)).client()
    block = hpack.Encoder().encode([*HEAD, *[("x", "v" * 3000)] * 100])
    answer = client.raw(pack_header(len(block), HEADERS, END_HEADERS | END_STREAM, 1) + block)
    assert find(answer, GoAwayFrame).error_code == ENHANCE_YOUR_CALM


def test_responses_are_reported_like_those_of_http1() -> None:
    reports: list[tuple[str, int, int]] = []
    harness = Http2Harness(
        on_response=lambda r, status, size: reports.append((r.path, status, size))
    )
    client = harness.client()
    client.ask("POST", "/a", body=b"xyz")
    client.ask("HEAD", "/b")
    assert reports == [("/a", 200, 11), ("/b", 200, 0)]
    assert harness.server.serving.requests_total == 2
    assert harness.server.serving.connections_total == 1
    assert harness.application.requests[0].received_ns > 0


def test_a_small_header_table_is_respected() -> None:
    client = Http2Harness().client(settings={SettingCodes.HEADER_TABLE_SIZE: 0})
    client.h2.decoder.max_allowed_table_size = 0
    assert [client.ask("GET", "/").status for _ in range(3)] == [200] * 3
