"""How answers are rendered, and what an application that fails gets sent instead."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headwater.core.pending import Pending
from headwater.wire.http import BodyWriter, Buffer, HeaderBlock, Request, Response, StreamedResponse
from tests.server.http1_harness import Harness, Reply, get, request

SENT_DATE = "Thu, 01 Jan 1970 00:16:40 GMT"


def answered(
    response: Response, method: str = "GET", *lines: str, version: str = "1.1"
) -> tuple[Reply, bytes, bool]:
    """The reply, its raw bytes, and whether the connection ended."""
    harness = Harness()
    harness.application.answer = lambda request: response
    peer = harness.connect()
    peer.send(request(method, "/", *lines).replace(b"HTTP/1.1", b"HTTP/" + version.encode()))
    return peer.reply(method), bytes(peer.transport.sent), peer.ended


def streamed(status: int, *pieces: Buffer, headers: Any = ()) -> StreamedResponse:
    def start(writer: BodyWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        writer.finish()

    return StreamedResponse(status, headers, start)


def test_a_response_carries_its_headers_and_the_servers() -> None:
    base = HeaderBlock([(b"cache-control", b"no-store")])
    response = Response(201, [(b"location", b"/x")], b"made", base=base)
    reply, raw, ended = answered(response, "POST", "x-request-id: r1")
    assert raw.startswith(b"HTTP/1.1 201 Created\r\n")
    assert reply.headers == {
        "date": SENT_DATE,
        "x-request-id": "r1",
        "cache-control": "no-store",
        "location": "/x",
        "content-length": "4",
    }
    assert reply.body == b"made"
    assert not ended


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 1_000_000])
@pytest.mark.parametrize("as_list", [False, True])
def test_bodies_of_any_size_have_their_length(size: int, as_list: bool) -> None:
    body = b"x" * size
    pieces: list[Buffer] = [body[: size // 2], bytearray(), memoryview(body)[size // 2 :]]
    reply, _, _ = answered(Response(200, (), pieces if as_list else body))
    assert reply["content-length"] == str(size)
    assert reply.body == body


def test_a_small_response_is_one_write() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(get())
    assert peer.transport.writes == 1


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_statuses_without_content_have_no_body_and_no_length(status: int, method: str) -> None:
    for response in (Response(status, (), b"ignored"), streamed(status, b"ignored")):
        reply, raw, ended = answered(response, method)
        assert raw.endswith(b"\r\n\r\n")
        assert "content-length" not in reply.headers
        assert "transfer-encoding" not in reply.headers
        assert not ended


def test_a_304_may_tell_the_length_of_the_200() -> None:
    reply, _, _ = answered(Response(304, [(b"content-length", b"7")]))
    assert reply["content-length"] == "7"


def test_head_gets_the_length_but_not_the_body() -> None:
    reply, raw, _ = answered(Response(200, (), b"abc"), "HEAD")
    assert reply["content-length"] == "3"
    assert raw.endswith(b"\r\n\r\n")


def test_head_may_be_given_another_length() -> None:
    reply, _, _ = answered(Response(200, [(b"content-length", b"9")]), "HEAD")
    assert reply["content-length"] == "9"
    base = HeaderBlock([(b"content-length", b"8")])
    reply, _, _ = answered(Response(200, base=base), "HEAD")
    assert reply["content-length"] == "8"


def test_head_of_a_streamed_response_does_not_start_it() -> None:
    def start(writer: BodyWriter) -> None:
        raise AssertionError

    reply, raw, ended = answered(StreamedResponse(200, (), start), "HEAD")
    assert reply.status == 200
    assert raw.endswith(b"\r\n\r\n")
    assert not ended


def test_an_unknown_status_has_no_reason() -> None:
    _, raw, _ = answered(Response(299))
    assert raw.startswith(b"HTTP/1.1 299 \r\n")


def test_the_date_follows_the_clock() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(get())
    harness.wait(2)
    peer.send(get())
    assert [reply["date"] for reply in peer.replies()] == [
        SENT_DATE,
        "Thu, 01 Jan 1970 00:16:42 GMT",
    ]


@pytest.mark.parametrize(
    ("version", "lines", "connection", "ends"),
    [
        ("1.1", [], None, False),
        ("1.1", ["connection: keep-alive"], None, False),
        ("1.1", ["connection: close"], "close", True),
        ("1.1", ["connection: x, Close"], "close", True),
        ("1.0", [], "close", True),
        ("1.0", ["connection: close"], "close", True),
        ("1.0", ["connection: keep-alive"], "keep-alive", False),
    ],
)
def test_persistence(version: str, lines: list[str], connection: str | None, ends: bool) -> None:
    reply, _, ended = answered(Response(200), "GET", *lines, version=version)
    assert reply.headers.get("connection") == connection
    assert ended == ends


def test_a_streamed_body_is_chunked() -> None:
    reply, raw, ended = answered(streamed(200, b"ab", b"", bytearray(b"c"), memoryview(b"de")))
    assert reply["transfer-encoding"] == "chunked"
    assert raw.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n2\r\nde\r\n0\r\n\r\n")
    assert not ended


def test_a_streamed_body_that_is_ready_leaves_in_one_write() -> None:
    harness = Harness()
    harness.application.answer = lambda request: streamed(200, b"a", b"b")
    peer = harness.connect()
    peer.send(get())
    assert peer.transport.writes == 1


@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1, 100_000])
def test_streamed_pieces_of_any_size(size: int) -> None:
    pieces = [b"a" * size, b"b" * size, b"c" * size]
    reply, _, _ = answered(streamed(200, *pieces))
    assert reply.body == b"".join(pieces)


@pytest.mark.parametrize("lines", [[], ["connection: keep-alive"]])
def test_a_streamed_body_to_http_1_0_ends_by_closing(lines: list[str]) -> None:
    reply, raw, ended = answered(streamed(200, b"ab", b"c"), "GET", *lines, version="1.0")
    assert reply["connection"] == "close"
    assert raw.endswith(b"\r\n\r\nabc")
    assert ended


def test_a_streamed_body_may_have_a_length() -> None:
    response = streamed(200, b"ab", b"c", headers=[(b"content-length", b"3")])
    for version, lines in [("1.1", []), ("1.0", ["connection: keep-alive"])]:
        reply, raw, ended = answered(response, "GET", *lines, version=version)
        assert raw.endswith(b"\r\n\r\nabc")
        assert "transfer-encoding" not in reply.headers
        assert not ended


def test_a_streamed_body_that_misses_its_length_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    response = streamed(200, b"ab", headers=[(b"content-length", b"3")])
    harness.application.answer = lambda request: response
    peer = harness.connect()
    peer.send(get())
    assert peer.transport.aborted
    assert "content-length" in caplog.text


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb"])
def test_a_header_cannot_start_another_line(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    for response in (Response(200, [(b"x", value)]), streamed(200, headers=[(b"x", value)])):
        reply, _, _ = answered(response)
        assert reply.status == 500
        assert "x" not in reply.headers
    assert "line break" in caplog.text


def test_a_body_of_the_wrong_type_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = ["not bytes"]
    reply, _, _ = answered(Response(200, (), broken))
    assert reply.status == 500
    harness = Harness()
    harness.application.answer = lambda request: Response(200, (), broken * 10_000)
    peer = harness.connect()
    peer.send(get())
    assert peer.transport.aborted
    assert "could not be sent" in caplog.text


def raise_error(request: Request) -> Response:
    raise LookupError("inner")


def fail_pending(request: Request) -> Pending[Response]:
    pending = Pending[Response]()
    pending.fail(LookupError("inner"))
    return pending


@pytest.mark.parametrize("answer", [raise_error, fail_pending])
def test_an_exception_becomes_a_500_and_the_connection_goes_on(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness()
    harness.application.answer = answer
    peer = harness.connect()
    peer.send(get("/a", "x-request-id: r1"))
    harness.application.answer = harness.application.echo
    peer.send(get("/b"))
    first, second = peer.replies()
    assert (first.status, first.body) == (500, b"internal error")
    assert second.body == b"GET /b "
    assert "id=r1" in caplog.text and "inner" in caplog.text


def test_an_exception_in_begin_becomes_a_500(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.application.refusal = raise_error
    assert [reply.status for reply in harness.exchange(get() + get())] == [500, 500]
    peer = harness.connect()
    peer.send(request("POST", "/", body=b"abc"))
    assert peer.reply().status == 500
    assert peer.ended


def test_a_refusal_that_cannot_be_rendered_is_still_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness()

    def refuse(status: int, message: str, request: Request) -> Response:
        raise LookupError

    monkeypatch.setattr(harness.application, "refuse", refuse)
    [reply] = harness.exchange(b"?\r\n\r\n")
    assert reply.status == 400


def test_an_exception_after_the_head_cuts_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def start(writer: BodyWriter) -> None:
        writer.write(b"ab")
        raise LookupError

    harness = Harness()
    harness.application.answer = lambda request: StreamedResponse(200, (), start)
    peer = harness.connect()
    peer.send(get())
    assert peer.transport.aborted


def test_the_hook_hears_of_every_response(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, int, int]] = []
    harness = Harness(
        on_response=lambda request, status, size: heard.append((request.path, status, size))
    )
    answers: dict[str, Response] = {
        "/plain": Response(200, (), b"abc"),
        "/list": Response(200, (), [b"ab", b"cd"]),
        "/none": Response(204, (), b"ignored"),
        "/stream": streamed(200, b"abcd", b"e"),
    }
    harness.application.answer = lambda request: answers[request.path]
    peer = harness.connect()
    for path in answers:
        peer.send(get(path))
    peer.send(request("HEAD", "/plain"))
    peer.send(b"?\r\n\r\n")
    assert heard == [
        ("/plain", 200, 3),
        ("/list", 200, 4),
        ("/none", 204, 0),
        ("/stream", 200, 5),
        ("/plain", 200, 0),
        ("", 400, len("malformed request: Invalid method encountered")),
    ]
    assert harness.application.requests[0].received_ns == 1000 * 10**9


def test_a_hook_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def hook(request: Request, status: int, size: int) -> None:
        raise LookupError

    harness = Harness(on_response=hook)
    with caplog.at_level(logging.ERROR):
        replies = harness.exchange(get() + get())
    assert [reply.status for reply in replies] == [200, 200]
    assert "hook" in caplog.text
