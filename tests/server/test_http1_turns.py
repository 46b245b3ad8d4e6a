"""One request at a time: pipelining, pending answers, early refusals, and how connections end."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.pending import Pending
from headwater.server.serving import ServerLimits
from headwater.wire.http import Request, Response
from tests.server.http1_harness import (
    BODY_BYTES_MAX,
    Deferred,
    Harness,
    Peer,
    chunked,
    get,
    request,
)

EXPECTING = request("POST", "/", "expect: 100-continue", "content-length: 3")


def deferred(limits: ServerLimits | None = None) -> tuple[Harness, Deferred, Peer]:
    harness = Harness(limits=limits)
    answers = Deferred()
    harness.application.answer = answers
    return harness, answers, harness.connect()


def bodies(peer: Peer) -> list[bytes]:
    return [reply.body for reply in peer.replies()]


def test_a_pipelined_request_waits_for_the_response_before_it() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + get("/b"), get("/c"))
    assert list(answers.waiting) == ["/a"]
    answers.resolve("/a")
    assert bodies(peer) == [b"/a"]
    assert list(answers.waiting) == ["/b"]
    answers.resolve("/b")
    harness.loop.run()
    answers.resolve("/c")
    assert bodies(peer) == [b"/a", b"/b", b"/c"]


def test_answers_stay_in_order_whatever_is_pending() -> None:
    harness, answers, peer = deferred()
    harness.application.answer = lambda request: (
        answers(request) if request.path == "/slow" else harness.application.echo(request)
    )
    peer.send(get("/slow") + get("/fast") + get("/fast"))
    assert bodies(peer) == []
    answers.resolve("/slow")
    assert bodies(peer) == [b"/slow", b"GET /fast ", b"GET /fast "]


def test_connections_do_not_wait_for_each_other() -> None:
    harness, answers, first = deferred()
    second = harness.connect()
    first.send(get("/a"))
    second.send(get("/b"))
    answers.resolve("/b")
    assert (bodies(first), bodies(second)) == ([], [b"/b"])
    answers.resolve("/a")
    assert bodies(first) == [b"/a"]


def test_the_next_request_does_not_run_inside_the_commit_that_answers_this_one() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + get("/b"))
    answers.resolve("/a")
    assert "/b" not in answers.waiting
    harness.loop.run()
    assert "/b" in answers.waiting


def test_an_answer_that_is_there_at_once() -> None:
    harness, answers, peer = deferred()

    def answer(request: object) -> object:
        pending = answers(request)  # type: ignore[arg-type]
        answers.resolve("/a")
        return pending

    harness.application.answer = answer  # type: ignore[assignment]
    peer.send(get("/a") + get("/a"))
    assert bodies(peer) == [b"/a", b"/a"]


@pytest.mark.parametrize("pieces", [1, 50])
def test_reading_stops_when_too_much_is_pipelined(pieces: int) -> None:
    harness, answers, peer = deferred(ServerLimits(pipeline_requests_max=4))
    everything = b"".join(get(f"/{number}") for number in range(1000))
    step = len(everything) // pieces + 1
    peer.send(*[everything[at : at + step] for at in range(0, len(everything), step)])
    assert not peer.transport.reading
    assert len(harness.application.begun) < 700  # one slice more than the bound, at most
    for number in range(1000):
        answers.resolve(f"/{number}")
        harness.loop.run()
    assert bodies(peer) == [f"/{number}".encode() for number in range(1000)]
    assert peer.transport.reading


def test_reading_stops_when_a_pipelined_body_is_long() -> None:
    harness, answers, peer = deferred(ServerLimits(pipeline_bytes_max=100))
    body = b"x" * 900
    data = get("/a") + request("POST", "/b", body=body)
    peer.send(*[data[at : at + 50] for at in range(0, len(data), 50)])
    assert not peer.transport.reading
    answers.resolve("/a")
    harness.loop.run()
    assert harness.application.requests[1].body == body


def test_a_malformed_request_is_answered_in_its_turn() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + get("/b") + b"?\r\n\r\n" + get("/c"))
    answers.resolve("/a")
    harness.loop.run()
    answers.resolve("/b")
    replies = peer.replies()
    assert [reply.status for reply in replies] == [200, 200, 400]
    assert replies[-1]["connection"] == "close"
    assert len(harness.application.requests) == 2
    assert peer.ended


def test_a_malformed_body_is_answered_in_its_turn() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + request("POST", "/b", "transfer-encoding: chunked") + b"x\r\n")
    assert peer.replies() == []
    answers.resolve("/a")
    assert [reply.status for reply in peer.replies()] == [200, 400]


def test_nothing_after_a_last_request_is_looked_at() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a", "connection: close") + get("/b"), get("/c"), b"?\r\n\r\n")
    answers.resolve("/a")
    assert bodies(peer) == [b"/a"]
    assert harness.application.begun == ["/a"]
    assert peer.transport.lost


def test_a_disconnect_cancels_what_is_pending() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + get("/b"))
    peer.vanish()
    assert answers.cancelled == ["/a"]
    answers.resolve("/a")
    harness.loop.run()
    assert list(answers.waiting) == []
    assert harness.server.serving.connections == set()


def test_a_client_that_half_closes_still_gets_its_answers() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + get("/b") + b"GET /c")
    peer.end_input()
    assert not peer.transport.lost
    answers.resolve("/a")
    harness.loop.run()
    answers.resolve("/b")
    assert bodies(peer) == [b"/a", b"/b"]
    assert peer.transport.lost


def test_who_half_closes_may_be_gone_so_that_nothing_waits_for_long() -> None:
    harness = Harness()
    hurried: list[str] = []

    def wait(request: Request) -> Pending[Response]:
        answer = Pending[Response]()

        def hurry() -> None:
            hurried.append(request.path)
            answer.resolve(Response(200, (), request.path.encode()))

        answer.on_hurry(hurry)
        return answer

    harness.application.answer = wait
    peer = harness.connect()
    peer.send(get("/a") + get("/b"))
    assert hurried == []
    peer.end_input()
    assert hurried == ["/a", "/b"]
    assert bodies(peer) == [b"/a", b"/b"]
    assert peer.transport.lost


@pytest.mark.parametrize("before", [b"", b"GET / HT", request("POST", "/", body=b"abc")[:-1]])
def test_a_client_that_half_closes_without_a_request_is_gone(before: bytes) -> None:
    harness = Harness()
    peer = harness.connect()
    if before:
        peer.send(before)
    peer.end_input()
    assert peer.transport.lost
    assert peer.replies() == []


def test_tls_cannot_half_close() -> None:
    harness = Harness()
    answers = Deferred()
    harness.application.answer = answers
    peer = harness.connect(sslcontext=object())
    peer.send(get("/a"))
    peer.end_input()
    assert peer.transport.lost
    assert answers.cancelled == ["/a"]


# Bodies that are not wanted.


def test_a_body_that_is_announced_too_large_is_refused_at_once() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(request("POST", "/", f"content-length: {BODY_BYTES_MAX + 1}"))
    assert peer.reply().status == 413
    assert harness.application.requests == []


def test_a_body_at_its_limit_is_accepted() -> None:
    harness = Harness()
    body = b"x" * BODY_BYTES_MAX
    head = request("POST", "/", "transfer-encoding: chunked")
    replies = harness.exchange(request("POST", "/", body=body) + head + chunked(body))
    assert [reply.status for reply in replies] == [200, 200]


def test_a_chunked_body_is_refused_once_it_is_too_large() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(request("POST", "/", "transfer-encoding: chunked"))
    peer.send(b"1f4\r\n" + b"x" * 500 + b"\r\n")
    assert peer.replies() == []
    peer.send(b"1f5\r\n" + b"x" * 501)
    reply = peer.reply()
    assert reply.status == 413
    assert reply["connection"] == "close"


def test_a_refused_body_is_discarded_for_a_while() -> None:
    harness = Harness(limits=ServerLimits(linger_bytes_max=10_000))
    peer = harness.connect()
    peer.send(request("POST", "/", "content-length: 100000"))
    assert peer.reply().status == 413
    assert peer.transport.eof_written and not peer.transport.lost
    peer.send(b"x" * 9000)
    assert not peer.transport.lost
    peer.send(b"x" * 9000)
    assert peer.transport.aborted


def test_a_client_that_stops_sending_ends_the_lingering() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(request("POST", "/", "content-length: 100000"), b"x" * 1000)
    peer.end_input()
    assert peer.transport.lost and not peer.transport.aborted


def test_a_response_from_begin_closes_if_a_body_was_announced() -> None:
    harness = Harness()
    harness.application.refusal = lambda request: Response(401, (), b"who?")
    peer = harness.connect()
    peer.send(request("POST", "/", body=b"abc") + get("/next"))
    reply = peer.reply()
    assert (reply.status, reply["connection"]) == (401, "close")
    assert harness.application.begun == ["/"]
    assert peer.transport.eof_written


# Expect: 100-continue.


def test_the_body_is_asked_for() -> None:
    harness = Harness()
    peer = harness.connect()
    peer.send(EXPECTING)
    assert bytes(peer.transport.sent) == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(b"abc")
    assert [reply.status for reply in peer.replies()] == [100, 200]
    assert harness.application.requests[0].body == b"abc"


@pytest.mark.parametrize(
    "data",
    [
        EXPECTING + b"abc",
        request("POST", "/", "expect: 100-continue", "content-length: 0"),
        request("POST", "/", "expect: 100-continue"),
        EXPECTING.replace(b"1.1", b"1.0") + b"abc",
    ],
    ids=["body is there", "body is empty", "no body", "HTTP/1.0"],
)
def test_the_body_is_not_asked_for(data: bytes) -> None:
    [reply] = Harness().exchange(data)
    assert reply.status == 200


def test_the_body_is_not_asked_for_from_http_1_0() -> None:
    harness = Harness()
    assert harness.exchange(EXPECTING.replace(b"1.1", b"1.0")) == []


def test_a_body_that_has_begun_is_not_asked_for() -> None:
    assert Harness().exchange(EXPECTING + b"a") == []


def test_a_refused_body_is_not_asked_for() -> None:
    harness = Harness()
    head = request("POST", "/", "expect: 100-continue", "content-length: 100000")
    assert harness.exchange(head)[0].status == 413
    harness.application.refusal = lambda request: Response(403)
    assert harness.exchange(EXPECTING)[0].status == 403


def test_a_pipelined_body_is_asked_for_in_its_turn() -> None:
    harness, answers, peer = deferred()
    peer.send(get("/a") + EXPECTING)
    assert peer.replies() == []
    answers.resolve("/a")
    assert [reply.status for reply in peer.replies()] == [200, 100]
    peer.send(b"abc")
    answers.resolve("/")
    assert [reply.status for reply in peer.replies()] == [200, 100, 200]


# HTTP/2.


class Http2(asyncio.Protocol):
    """Notes what it was given."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("step", [1, 10, 100])
def test_a_preface_hands_the_connection_over(step: int) -> None:
    http2 = Http2()
    harness = Harness(h2_factory=lambda: http2)
    peer = harness.connect()
    data = PREFACE + b"frames"
    peer.send(*[data[at : at + step] for at in range(0, len(data), step)])
    assert http2.received == data
    assert http2.transport is peer.transport
    assert peer.transport.protocol is http2
    assert harness.server.serving.connections == set()


def test_alpn_hands_the_connection_over() -> None:
    class Tls:
        def selected_alpn_protocol(self) -> str:
            return "h2"

    http2 = Http2()
    harness = Harness(h2_factory=lambda: http2)
    peer = harness.connect(ssl_object=Tls(), sslcontext=object())
    peer.send(PREFACE)
    assert http2.received == PREFACE


@pytest.mark.parametrize("method", ["POST", "PROPFIND", "PUT", "PATCH", "PURGE"])
def test_a_method_that_begins_like_the_preface_is_http_1(method: str) -> None:
    harness = Harness(h2_factory=Http2)
    peer = harness.connect()
    data = request(method, "/")
    peer.send(*[data[at : at + 1] for at in range(len(data))])
    assert peer.reply().status == 200


def test_a_preface_later_on_is_not_one() -> None:
    harness = Harness(h2_factory=Http2)
    assert [reply.status for reply in harness.exchange(get() + PREFACE)] == [200, 400]
