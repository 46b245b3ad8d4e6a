"""Streamed bodies, both ways: back-pressure, full duplex, disconnects and drains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.core.pending import Pending
from headwater.server.serving import ServerLimits
from headwater.wire.http import BodyReader, BodyWriter, Request, Response, StreamedResponse
from tests.server.http1_harness import Deferred, Harness, Peer, chunked, get, request

SMALL_BUFFERS = ServerLimits(write_buffer_bytes_high=1000, write_buffer_bytes_low=100)


class Live:
    """An application whose responses stay open; keeps the writers, and what they are told."""

    def __init__(self) -> None:
        self.writers: list[BodyWriter] = []
        self.events: list[str] = []

    def __call__(self, request: Request) -> Response:
        return StreamedResponse(200, (), self.start)

    def start(self, writer: BodyWriter) -> None:
        writer.on_drain = lambda: self.events.append("drain")
        writer.on_close = lambda: self.events.append("close")
        self.writers.append(writer)


def live(limits: ServerLimits | None = None) -> tuple[Harness, Live, Peer]:
    harness = Harness(limits=limits)
    application = Live()
    harness.application.answer = application
    return harness, application, harness.connect()


def test_the_head_of_a_live_response_leaves_before_its_first_byte() -> None:
    _, application, peer = live()
    peer.send(get())
    reply = peer.reply()
    assert (reply.status, reply.body, reply.whole) == (200, b"", False)
    application.writers[0].write(b"abc")
    application.writers[0].finish()
    reply = peer.reply()
    assert (reply.body, reply.whole) == (b"abc", True)


def test_a_finished_response_gives_the_next_request_its_turn() -> None:
    harness, application, peer = live()
    peer.send(get("/a") + get("/b"))
    assert len(application.writers) == 1
    application.writers[0].finish()
    harness.loop.run()
    assert len(application.writers) == 2


def test_nothing_is_sent_after_finish() -> None:
    _, application, peer = live()
    peer.send(get())
    [writer] = application.writers
    writer.finish()
    sent = bytes(peer.transport.sent)
    assert not writer.write(b"abc")
    writer.finish()
    writer.abort()
    assert bytes(peer.transport.sent) == sent
    peer.vanish()
    assert application.events == []


def test_a_disconnect_closes_the_writer_once_and_for_all() -> None:
    _, application, peer = live()
    peer.send(get())
    [writer] = application.writers
    peer.vanish()
    assert application.events == ["close"]
    assert not writer.write(b"abc")
    writer.finish()
    writer.abort()
    assert application.events == ["close"]


def test_a_follower_that_half_closes_is_gone() -> None:
    _, application, peer = live()
    peer.send(get())
    peer.end_input()
    assert peer.transport.lost
    assert application.events == ["close"]


def test_a_pipelining_follower_with_connection_close_is_noticed() -> None:
    _, application, peer = live()
    peer.send(get("/", "connection: close"), b"ignored")
    peer.end_input()
    assert application.events == ["close"]


def test_abort_leaves_the_body_unfinished() -> None:
    _, application, peer = live()
    peer.send(get())
    application.writers[0].write(b"abc")
    application.writers[0].abort()
    assert not peer.reply().whole
    assert peer.transport.aborted
    assert application.events == ["close"]


def test_the_hook_hears_of_a_response_that_was_cut() -> None:
    heard: list[tuple[int, int]] = []
    harness = Harness(on_response=lambda request, status, size: heard.append((status, size)))
    application = Live()
    harness.application.answer = application
    peer = harness.connect()
    peer.send(get())
    application.writers[0].write(b"abc")
    assert heard == []
    peer.vanish()
    assert heard == [(200, 3)]


def test_a_slow_reader_pushes_back() -> None:
    _, application, peer = live(SMALL_BUFFERS)
    peer.send(get())
    [writer] = application.writers
    peer.transport.stalled = True
    assert writer.write(b"x" * 900)
    assert not writer.write(b"x" * 900)
    assert not writer.write(b"x")
    assert not peer.transport.reading
    peer.transport.flush(1000)
    assert application.events == []
    peer.transport.flush()
    assert application.events == ["drain"]
    assert peer.transport.reading
    assert writer.write(b"x")
    writer.finish()
    peer.transport.flush()
    assert peer.reply().body == b"x" * 1802


def test_a_slow_reader_gets_no_further_answers() -> None:
    harness = Harness(limits=SMALL_BUFFERS)
    harness.application.answer = lambda request: Response(200, (), b"x" * 2000)
    peer = harness.connect()
    peer.transport.stalled = True
    peer.send(get("/a") + get("/b") + get("/c"))
    assert [accepted.path for accepted in harness.application.requests] == ["/a"]
    peer.transport.flush()
    harness.loop.run()
    assert [accepted.path for accepted in harness.application.requests] == ["/a", "/b"]
    peer.transport.stalled = False
    peer.transport.flush()
    harness.loop.run()
    assert [len(reply.body) for reply in peer.replies()] == [2000, 2000, 2000]


def test_a_callback_that_raises_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    harness, application, peer = live(SMALL_BUFFERS)
    other = harness.connect()
    peer.send(get())
    other.send(get())

    def fail() -> None:
        raise LookupError

    application.writers[0].on_drain = fail
    peer.transport.stalled = True
    application.writers[0].write(b"x" * 2000)
    peer.transport.flush()
    harness.loop.run()
    assert peer.transport.aborted and not other.transport.lost


def test_the_same_bytes_are_framed_once() -> None:
    harness, application, peer = live()
    peers = [peer, harness.connect(), harness.connect()]
    for each in peers:
        each.send(get())
    serving = harness.server.serving
    message, changing = b"message", bytearray(b"aa")
    assert serving.frame_chunk(message) is serving.frame_chunk(message)
    for writer in application.writers:
        writer.write(message)
        writer.write(changing)
        changing[0] += 1
        writer.write(memoryview(changing))
    assert [each.reply().body for each in peers] == [
        b"messageaaba",
        b"messagebaca",
        b"messagecada",
    ]


# Draining.


def test_a_drain_closes_idle_connections_at_once() -> None:
    harness = Harness()
    fresh, used = harness.connect(), harness.connect()
    used.send(get())
    harness.drain()
    assert fresh.transport.lost and used.transport.lost


def test_a_drain_lets_running_requests_finish_and_drops_waiting_ones() -> None:
    harness = Harness()
    answers = Deferred()
    harness.application.answer = answers
    peer = harness.connect()
    peer.send(get("/a") + get("/b"))
    harness.drain()
    assert not peer.transport.lost
    answers.resolve("/a")
    reply = peer.reply()
    assert (reply.body, reply["connection"]) == (b"/a", "close")
    assert peer.ended
    peer.end_input()
    assert peer.transport.lost


@pytest.mark.parametrize("sent", [10, 48])
def test_a_drain_lets_a_request_arrive(sent: int) -> None:
    harness = Harness()
    peer = harness.connect()
    data = request("POST", "/", body=b"abc")
    peer.send(data[:sent])
    harness.drain()
    peer.send(data[sent:])
    assert peer.reply()["connection"] == "close"


def test_a_drain_lets_a_live_response_say_goodbye() -> None:
    harness, application, peer = live()
    peer.send(get())
    [writer] = application.writers

    def say_goodbye() -> None:
        writer.write(b"bye")
        writer.finish()

    writer.on_shutdown = say_goodbye
    harness.drain()
    reply = peer.reply()
    assert (reply.body, reply.whole) == (b"bye", True)
    assert application.events == []
    assert peer.ended


def test_a_drain_ends_any_other_streamed_response() -> None:
    harness, application, peer = live()
    peer.send(get())
    application.writers[0].write(b"abc")
    harness.drain()
    reply = peer.reply()
    assert (reply.body, reply.whole) == (b"abc", True)
    assert application.events == ["close"]
    assert peer.ended


def test_a_live_response_that_starts_during_a_drain_is_told_too() -> None:
    harness, application, peer = live()
    answers = Deferred()
    harness.application.answer = answers
    peer.send(get("/a"))
    harness.drain()
    answers.waiting["/a"].resolve(StreamedResponse(200, (), application.start))
    reply = peer.reply()
    assert (reply["connection"], reply.whole) == ("close", True)
    assert application.events == ["close"]
    assert peer.ended


def test_a_drain_happens_once() -> None:
    harness, application, peer = live()
    peer.send(get())
    told: list[str] = []
    application.writers[0].on_shutdown = lambda: told.append("shutdown")
    harness.drain()
    harness.drain()
    assert told == ["shutdown"]
    assert not peer.ended


# Uploads.


class Uploads:
    """An application that streams request bodies, and notes what it is told."""

    def __init__(self, answer: Callable[[Request], Response | Pending[Response]]) -> None:
        self.events: list[str | bytes] = []
        self.readers: list[BodyReader] = []
        self._answer = answer

    def __call__(self, request: Request) -> Response | Pending[Response]:
        reader = request.body_reader
        if reader is not None:
            reader.on_data = self.events.append
            reader.on_end = lambda: self.events.append("end")
            reader.on_abort = lambda: self.events.append("abort")
            self.readers.append(reader)
        return self._answer(request)


def upload(
    answer: Callable[[Request], Response | Pending[Response]],
) -> tuple[Harness, Uploads, Peer]:
    harness = Harness()
    uploads = Uploads(answer)
    harness.application.answer = uploads
    harness.application.streams_body = True
    return harness, uploads, harness.connect()


HEAD = request("POST", "/", "transfer-encoding: chunked")


def test_a_body_and_its_response_stream_at_the_same_time() -> None:
    application = Live()
    harness, uploads, peer = upload(application)
    peer.send(HEAD)
    [writer] = application.writers
    peer.send(b"3\r\nabc\r\n")
    writer.write(b"1")
    assert peer.reply().body == b"1"
    peer.send(b"1\r\nd\r\n0\r\n\r\n")
    writer.write(b"2")
    writer.finish()
    assert uploads.events == [b"abc", b"d", "end"]
    assert peer.reply().body == b"12"
    peer.send(get("/next"))
    assert len(application.writers) == 2


def test_a_body_that_came_with_its_head_is_streamed_after_the_handler_ran() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD + chunked(b"abc", b"d") + get("/next"))
    assert uploads.events == [b"abc", b"d", "end"]
    answers.resolve("/")
    harness.loop.run()
    answers.resolve("/next")
    assert [reply.body for reply in peer.replies()] == [b"/", b"/next"]


def test_a_streamed_body_waits_for_its_turn() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(get("/a") + HEAD + b"3\r\nabc\r\n")
    assert uploads.events == []
    assert not peer.transport.reading
    answers.resolve("/a")
    harness.loop.run()
    assert uploads.events == [b"abc"]
    assert peer.transport.reading
    peer.send(b"0\r\n\r\n")
    answers.resolve("/")
    assert [reply.body for reply in peer.replies()] == [b"/a", b"/"]


def test_a_whole_streamed_body_waits_for_its_turn() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(get("/a") + HEAD + chunked(b"abc"))
    answers.resolve("/a")
    harness.loop.run()
    assert uploads.events == [b"abc", "end"]
    answers.resolve("/")
    assert [reply.body for reply in peer.replies()] == [b"/a", b"/"]


def test_an_upload_can_be_paused() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD)
    uploads.readers[0].pause()
    assert not peer.transport.reading
    peer.send(chunked(b"abc", b"d"))
    assert uploads.events == []
    uploads.readers[0].resume()
    harness.loop.run()
    assert uploads.events == [b"abc", b"d", "end"]


def test_an_upload_paused_inside_a_read_keeps_the_rest() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD)
    [reader] = uploads.readers

    def note_and_pause(data: bytes) -> None:
        uploads.events.append(data)
        reader.pause()

    reader.on_data = note_and_pause
    peer.send(chunked(b"a", b"b", b"c"))
    assert uploads.events == [b"a"]
    reader.resume()
    assert uploads.events == [b"a", b"b"]
    reader.on_data = uploads.events.append
    reader.resume()
    assert uploads.events == [b"a", b"b", b"c", "end"]


def test_an_upload_resumed_inside_its_callback_is_not_entered_again() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD)
    [reader] = uploads.readers
    depths: list[int] = []
    depth = 0

    def note(data: bytes) -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        reader.pause()
        reader.resume()
        depth -= 1

    reader.on_data = note
    peer.send(chunked(b"a", b"b", b"c"))
    assert depths == [1, 1, 1]


def test_an_upload_nobody_listens_to_waits_for_resume() -> None:
    harness = Harness()
    answers = Deferred()
    harness.application.answer = answers
    harness.application.streams_body = True
    peer = harness.connect()
    peer.send(HEAD + b"3\r\nabc\r\n")
    assert not peer.transport.reading
    reader = harness.application.requests[0].body_reader
    assert reader is not None
    received: list[bytes] = []
    reader.on_data = received.append
    reader.resume()
    assert received == [b"abc"]
    assert peer.transport.reading


def test_nothing_can_be_written_once_the_client_has_left() -> None:
    application = Live()
    harness, uploads, peer = upload(application)
    peer.send(HEAD)
    [writer] = application.writers
    wrote: list[bool] = []

    def write_on() -> None:
        wrote.append(writer.write(b"abc"))
        writer.finish()

    uploads.readers[0].on_abort = write_on
    peer.vanish()
    assert wrote == [False]
    assert application.events == ["close"]


def test_an_upload_ends_badly_when_the_client_leaves() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD + b"3\r\nabc\r\n")
    peer.end_input()
    assert uploads.events == [b"abc", "abort"]
    assert answers.cancelled == ["/"]


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"x\r\n", 400), (b"3e8\r\n" + b"x" * 1000 + b"\r\n", 413)],
    ids=["malformed", "too large"],
)
def test_an_upload_that_goes_wrong_is_refused(rest: bytes, status: int) -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD + b"3\r\nabc\r\n")
    peer.send(rest)
    assert uploads.events == [b"abc", "abort"]
    assert answers.cancelled == ["/"]
    assert peer.reply().status == status
    assert peer.ended
    answers.resolve("/")
    assert len(peer.replies()) == 1


def test_an_upload_that_goes_wrong_after_the_head_is_cut() -> None:
    application = Live()
    harness, uploads, peer = upload(application)
    peer.send(HEAD + b"3\r\nabc\r\n")
    peer.send(b"x\r\n")
    assert uploads.events == [b"abc", "abort"]
    assert peer.transport.aborted
    assert application.events == ["close"]


def test_a_queued_upload_that_goes_wrong_is_refused_in_its_turn() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(get("/a") + HEAD + b"x\r\n")
    answers.resolve("/a")
    assert [reply.status for reply in peer.replies()] == [200, 400]
    assert uploads.events == []


def test_a_response_that_does_not_wait_for_its_body_is_the_last() -> None:
    harness, uploads, peer = upload(lambda request: Response(200, (), b"enough"))
    peer.send(HEAD + b"3\r\nabc\r\n")
    reply = peer.reply()
    assert (reply.body, reply["connection"]) == (b"enough", "close")
    peer.send(b"3\r\nabc\r\n")
    assert uploads.events == []
    assert peer.transport.eof_written and not peer.transport.lost


def test_an_upload_that_is_answered_in_the_middle_of_a_long_read_is_answered_once() -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    harness.application.body_bytes_max = 1_000_000
    peer.send(request("POST", "/", "content-length: 500000"))

    def answer(data: bytes) -> None:
        if answers.waiting:
            answers.resolve("/")

    uploads.readers[0].on_data = answer
    peer.send(b"x" * 200_000, b"x" * 50_000)
    assert peer.reply().body == b"/"
    harness.wait(1)
    assert not peer.transport.aborted


def test_a_streamed_response_that_does_not_wait_for_its_body_is_the_last() -> None:
    application = Live()
    harness, uploads, peer = upload(application)
    peer.send(HEAD + b"3\r\nabc\r\n")
    application.writers[0].finish()
    assert peer.ended
    peer.send(b"3\r\nabc\r\n0\r\n\r\n" + get())
    assert uploads.events == [b"abc"]
    assert len(application.writers) == 1


def test_a_streamed_body_is_asked_for_before_the_response_starts() -> None:
    application = Live()
    harness, uploads, peer = upload(application)
    peer.send(request("POST", "/", "expect: 100-continue", "content-length: 3"))
    assert [reply.status for reply in peer.replies()] == [100, 200]
    peer.send(b"abc")
    assert uploads.events == [b"abc", "end"]


def test_an_upload_callback_that_raises_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    answers = Deferred()
    harness, uploads, peer = upload(answers)
    peer.send(HEAD)

    def fail(data: bytes) -> None:
        raise LookupError

    uploads.readers[0].on_data = fail
    peer.send(chunked(b"a", b"b") + get("/next"))
    assert peer.reply().status == 500
    assert answers.cancelled == ["/"]
    assert harness.application.begun == ["/"]
