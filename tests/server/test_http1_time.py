"""Clients that take too long. Time is the test's."""

from __future__ import annotations

import pytest

from headwater.server.serving import ServerLimits
from headwater.wire.http import BodyWriter, Response, StreamedResponse
from tests.server.http1_harness import Deferred, Harness, get, request

LIMITS = ServerLimits(
    header_timeout_s=10,
    body_timeout_s=30,
    keep_alive_timeout_s=75,
    write_timeout_s=60,
    linger_timeout_s=2,
    write_buffer_bytes_high=1000,
    write_buffer_bytes_low=100,
)
BODY_HEAD = request("POST", "/", "content-length: 100")


@pytest.mark.parametrize("first", [b"", b"G", b"GET / HTTP/1.1\r\nhost: a\r\n", get() + b"GET /"])
def test_a_head_must_be_whole_in_time_however_it_trickles(first: bytes) -> None:
    harness = Harness(limits=LIMITS)
    peer = harness.connect()
    answered = 1 if first.startswith(get()) else 0
    if first:
        peer.send(first)
    else:
        peer.send(b"P")  # which may yet become an HTTP/2 preface
    for _ in range(9):
        harness.wait(1)
        if first.endswith(b"\n"):
            peer.send(b"x: y\r\n")
    assert len(peer.replies()) == answered
    harness.wait(1)
    reply = peer.replies()[-1]
    assert (reply.status, reply["connection"]) == (408, "close")
    assert peer.ended


def test_a_body_may_take_long_but_not_stand_still() -> None:
    harness = Harness(limits=LIMITS)
    peer = harness.connect()
    peer.send(BODY_HEAD)
    for _ in range(5):
        harness.wait(29)
        peer.send(b"x")
    harness.wait(29)
    assert peer.replies() == []
    harness.wait(1)
    assert peer.reply().status == 408
    assert harness.application.requests == []


@pytest.mark.parametrize("first", [b"", get()])
def test_an_idle_connection_is_closed_without_a_word(first: bytes) -> None:
    harness = Harness(limits=LIMITS)
    peer = harness.connect()
    if first:
        harness.wait(50)
        peer.send(first)
    harness.wait(74)
    assert not peer.transport.lost
    harness.wait(1)
    assert peer.transport.lost
    assert len(peer.replies()) == (1 if first else 0)


def test_an_answer_may_take_any_time() -> None:
    harness = Harness(limits=LIMITS)
    answers = Deferred()
    harness.application.answer = answers
    peer = harness.connect()
    peer.send(get("/a") + get("/b") + BODY_HEAD)
    harness.wait(1000)
    answers.resolve("/a")
    harness.loop.run()
    harness.wait(1000)
    answers.resolve("/b")
    assert [reply.body for reply in peer.replies()] == [b"/a", b"/b"]
    harness.wait(30)
    assert peer.replies()[-1].status == 408


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.answer = lambda request: Response(200, (), b"x" * 5000)
    peer = harness.connect()
    peer.transport.stalled = True
    peer.send(get())
    harness.wait(1)
    harness.wait(59)
    assert not peer.transport.lost
    harness.wait(1)
    assert peer.transport.aborted


def test_a_client_that_reads_slowly_is_not() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.answer = lambda request: Response(200, (), b"x" * 5000)
    peer = harness.connect()
    peer.transport.stalled = True
    peer.send(get())
    for _ in range(10):
        harness.wait(50)
        peer.transport.flush(100)
    assert not peer.transport.lost


def test_a_follower_that_reads_nothing_is_cut_off_though_more_is_written() -> None:
    harness = Harness(limits=LIMITS)
    writers: list[BodyWriter] = []
    harness.application.answer = lambda request: StreamedResponse(200, (), writers.append)
    peer = harness.connect()
    peer.send(get())
    peer.transport.stalled = True
    for _ in range(62):
        writers[0].write(b"x")
        harness.wait(1)
    assert peer.transport.aborted


def test_a_quiet_follower_is_kept() -> None:
    harness = Harness(limits=LIMITS)
    writers: list[BodyWriter] = []
    harness.application.answer = lambda request: StreamedResponse(200, (), writers.append)
    peer = harness.connect()
    peer.send(get())
    harness.wait(1000)
    assert not peer.transport.lost


def test_an_upload_must_go_on_until_it_is_answered() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.streams_body = True
    answers = Deferred()
    harness.application.answer = answers
    peer = harness.connect()
    peer.send(BODY_HEAD)
    harness.wait(100)  # nobody listens: it is the application that waits
    assert peer.replies() == []
    reader = harness.application.requests[0].body_reader
    assert reader is not None
    reader.on_data = lambda data: None
    reader.resume()
    harness.wait(29)
    assert peer.replies() == []
    harness.wait(1)
    assert peer.reply().status == 408
    assert answers.cancelled == ["/"]


def test_a_route_may_give_an_upload_more_time() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.body_timeout_s = 100
    peer = harness.connect()
    peer.send(BODY_HEAD)
    harness.wait(99)
    assert peer.replies() == []
    harness.wait(1)
    assert peer.reply().status == 408


def test_a_full_duplex_session_may_be_quiet() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.streams_body = True
    writers: list[BodyWriter] = []
    harness.application.answer = lambda request: StreamedResponse(200, (), writers.append)
    peer = harness.connect()
    peer.send(BODY_HEAD)
    harness.wait(1000)
    assert not peer.transport.lost


def test_lingering_ends() -> None:
    harness = Harness(limits=LIMITS)
    peer = harness.connect()
    peer.send(b"?\r\n\r\n")
    harness.wait(1)
    assert not peer.transport.lost
    harness.wait(1)
    assert peer.transport.lost


def test_lingering_starts_when_the_response_was_read() -> None:
    harness = Harness(limits=LIMITS)
    harness.application.refusal = lambda request: Response(403, (), b"x" * 500)
    peer = harness.connect()
    peer.transport.stalled = True
    peer.send(BODY_HEAD)
    harness.wait(10)
    assert not peer.transport.lost
    peer.transport.flush()
    harness.wait(2)
    assert peer.transport.lost


def test_a_sweep_that_fails_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness(limits=LIMITS)
    broken, other = harness.connect(), harness.connect()

    def fail() -> int:
        raise LookupError

    monkeypatch.setattr(broken.transport, "get_write_buffer_size", fail)
    harness.wait(1)
    assert broken.transport.lost and not other.transport.lost
    assert "sweep" in caplog.text
