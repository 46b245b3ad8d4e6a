"""Streamed bodies over HTTP/2: windows both ways, full duplex, drains, and the clock."""

from __future__ import annotations

import pytest
from h2.settings import SettingCodes

from headwater.server.http2_connection import CONNECTION_WINDOW_BYTES
from headwater.server.http2_frames import (
    CANCEL,
    FLOW_CONTROL_ERROR,
    HEADERS,
    INTERNAL_ERROR,
    NO_ERROR,
    REFUSED_STREAM,
    pack_header,
)
from headwater.server.http2_stream import STREAM_WINDOW_BYTES
from headwater.server.serving import ServerLimits
from headwater.wire.http import Answer, BodyReader, BodyWriter, Request, Response, StreamedResponse
from tests.server.http1_harness import Deferred
from tests.server.http2_harness import Client, Http2Harness

TINY = {SettingCodes.INITIAL_WINDOW_SIZE: 10}


class Live:
    """An application's streamed responses, by path, and what their writers were told."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.writers: dict[str, BodyWriter] = {}
        self.heard: list[str] = []
        self._headers = headers

    def __call__(self, request: Request) -> Answer:
        path = request.path

        def start(writer: BodyWriter) -> None:
            self.writers[path] = writer
            writer.on_drain = lambda: self.heard.append(f"drain {path}")
            writer.on_close = lambda: self.heard.append(f"close {path}")

        return StreamedResponse(200, self._headers, start)


def live(harness: Http2Harness, *headers: tuple[bytes, bytes]) -> Live:
    harness.application.answer = application = Live(*headers)
    return application


def test_the_head_of_a_streamed_response_leaves_at_once() -> None:
    harness = Http2Harness()
    application = live(harness, (b"content-type", b"text/event-stream"))
    client = harness.client()
    stream = client.open("GET", "/sse")
    got = client.got(stream)
    assert (got.status, got.headers["content-type"], got.ended) == (200, "text/event-stream", False)
    writer = application.writers["/sse"]
    assert writer.write(b"data: 1\n\n")
    assert client.got(stream).body == b"data: 1\n\n"
    assert writer.write(memoryview(b"data: 2\n\n"))
    writer.finish()
    got = client.got(stream)
    assert (got.body, got.ended, got.reset) == (b"data: 1\n\ndata: 2\n\n", True, None)
    assert application.heard == []


def test_one_event_reaches_many_followers_of_one_connection() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client()
    streams = [client.open("GET", f"/{n}") for n in range(20)]
    writes = client.peer.transport.writes
    for writer in application.writers.values():
        writer.write(b"event")
    assert [client.got(stream).body for stream in streams] == [b"event"] * 20
    assert client.peer.transport.writes == writes + 1


def test_a_response_waits_for_the_stream_window() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client(settings=TINY, credits=False)
    stream = client.open("GET", "/")
    writer = application.writers["/"]
    assert writer.write(b"0123456789")
    assert not writer.write(b"abcdef")
    assert client.got(stream).body == b"0123456789"
    client.h2.increment_flow_control_window(4, stream)
    assert client.got(stream).body == b"0123456789abcd"
    assert application.heard == []
    client.h2.increment_flow_control_window(4, stream)
    assert client.got(stream).body == b"0123456789abcdef"
    assert application.heard == ["drain /"]
    writer.write(b"12345")
    writer.finish()
    assert not client.got(stream).ended
    client.h2.increment_flow_control_window(100, stream)
    got = client.got(stream)
    assert (got.body, got.ended) == (b"0123456789abcdef12345", True)


def test_an_empty_window_does_not_hold_back_the_end() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client(settings=TINY, credits=False)
    stream = client.open("GET", "/")
    application.writers["/"].write(b"0123456789")
    application.writers["/"].finish()
    assert client.got(stream).ended


@pytest.mark.parametrize("window", [1, 7, 16_384, 65_535, 1_000_000])
def test_a_whole_response_passes_any_window(window: int) -> None:
    harness = Http2Harness()
    size = 300 if window < 100 else 300_000
    body = bytes(range(256)) * (size // 256 + 1)
    harness.application.answer = lambda request: Response(200, (), [body[:100], body[100:]])
    client = harness.client(settings={SettingCodes.INITIAL_WINDOW_SIZE: window})
    stream = client.open("GET", "/")
    for _ in range(1000):
        if client.got(stream).ended:
            break
        client.h2.increment_flow_control_window(window, stream)
        client.h2.increment_flow_control_window(window)
    assert client.got(stream).body == body


def test_the_connection_window_is_shared_in_turns() -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(200, (), bytes(1_000_000))
    client = harness.client(settings={SettingCodes.INITIAL_WINDOW_SIZE: 2_000_000}, credits=False)
    streams = [client.open("GET", f"/{n}") for n in range(4)]
    for _ in range(6):
        client.h2.increment_flow_control_window(100_000)
        client.exchange()
    sizes = [len(client.got(stream).body) for stream in streams]
    assert sum(sizes) == 65_535 + 600_000
    assert min(sizes) >= 65_536
    client.h2.increment_flow_control_window(5_000_000)
    assert all(len(client.got(stream).body) == 1_000_000 for stream in streams)
    assert all(client.got(stream).ended for stream in streams)


def test_a_smaller_initial_window_makes_windows_negative() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client(settings={SettingCodes.INITIAL_WINDOW_SIZE: 100}, credits=False)
    stream = client.open("GET", "/")
    writer = application.writers["/"]
    writer.write(bytes(80))
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 50})
    client.exchange()
    assert not writer.write(bytes(40))
    client.h2.increment_flow_control_window(30, stream)
    assert len(client.got(stream).body) == 80
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
    client.exchange()
    assert len(client.got(stream).body) == 120


def test_a_full_socket_pauses_every_writer_and_wakes_them() -> None:
    harness = Http2Harness()
    application = live(harness)
    window = {SettingCodes.INITIAL_WINDOW_SIZE: 10_000_000}
    client = harness.client(settings=window)
    client.h2.increment_flow_control_window(10_000_000)
    one, two = client.open("GET", "/1"), client.open("GET", "/2")
    client.peer.transport.stalled = True
    assert not application.writers["/1"].write(bytes(300_000))
    assert not application.writers["/2"].write(b"x")
    assert not client.peer.transport.reading
    client.peer.transport.stalled = False
    client.peer.transport.flush()
    assert len(client.got(one).body) == 300_000
    assert client.got(two).body == b"x"
    assert sorted(application.heard) == ["drain /1", "drain /2"]
    assert client.peer.transport.reading


def test_a_reset_tells_the_writer() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client()
    stream = client.open("GET", "/")
    client.h2.reset_stream(stream, CANCEL)
    client.exchange()
    assert application.heard == ["close /"]
    assert not application.writers["/"].write(b"x")
    application.writers["/"].finish()
    client.exchange()
    assert client.goaway is None


def test_an_aborted_response_is_a_reset_of_its_stream_only() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client()
    one, two = client.open("GET", "/1"), client.open("GET", "/2")
    application.writers["/1"].abort()
    assert client.got(one).reset == INTERNAL_ERROR
    application.writers["/2"].write(b"on")
    assert client.got(two).body == b"on"


def test_a_body_that_differs_from_its_content_length_is_cut() -> None:
    harness = Http2Harness()
    application = live(harness, (b"content-length", b"5"))
    client = harness.client(settings={})
    stream = client.open("GET", "/")
    application.writers["/"].write(b"abc")
    application.writers["/"].finish()
    assert client.got(stream).reset == INTERNAL_ERROR


class Uploads:
    """Routes that stream their body, by path; the response echoes in full duplex."""

    def __init__(self, harness: Http2Harness) -> None:
        harness.application.streams_body = True
        harness.application.body_bytes_max = 1 << 40
        harness.application.answer = self
        self.readers: dict[str, BodyReader] = {}
        self.heard: list[bytes] = []
        self.size = 0
        self.echoes = True

    def __call__(self, request: Request) -> Answer:
        reader = request.body_reader
        assert reader is not None
        self.readers[request.path] = reader

        def start(writer: BodyWriter) -> None:
            def on_data(data: bytes) -> None:
                self.size += len(data)
                if self.echoes:
                    writer.write(data.upper())

            def on_abort() -> None:
                self.heard.append(b"abort")

            reader.on_data, reader.on_end, reader.on_abort = on_data, writer.finish, on_abort

        return StreamedResponse(200, (), start)


def test_request_and_response_stream_at_once() -> None:
    harness = Http2Harness()
    Uploads(harness)
    client = harness.client()
    stream = client.open("POST", "/", ends=False)
    assert client.got(stream).status == 200
    for word in (b"one ", b"two ", b"three"):
        client.send_data(stream, word)
        assert client.got(stream).body.endswith(word.upper())
    client.send_data(stream, b"", ends=True)
    got = client.got(stream)
    assert (got.body, got.ended, got.reset) == (b"ONE TWO THREE", True, None)


def test_a_paused_reader_withholds_the_window() -> None:
    harness = Http2Harness()
    uploads = Uploads(harness)
    uploads.echoes = False
    client = harness.client()
    stream = client.open("POST", "/", ends=False)
    uploads.readers["/"].pause()
    while client.h2.local_flow_control_window(stream):
        size = min(client.h2.local_flow_control_window(stream), 1024 * 1024)
        client.send_data(stream, bytes(size))
    assert uploads.size == 0
    connection = client.h2.outbound_flow_control_window
    assert connection == CONNECTION_WINDOW_BYTES - STREAM_WINDOW_BYTES
    uploads.readers["/"].resume()
    client.exchange()
    assert uploads.size == STREAM_WINDOW_BYTES
    assert client.h2.local_flow_control_window(stream) == STREAM_WINDOW_BYTES
    client.send_data(stream, b"x", ends=True)
    assert client.got(stream).ended


def test_a_reset_of_a_paused_upload_gives_its_window_back() -> None:
    harness = Http2Harness()
    uploads = Uploads(harness)
    client = harness.client()
    for number in range(8):
        stream = client.open("POST", f"/{number}", ends=False)
        uploads.readers[f"/{number}"].pause()
        for _ in range(4):
            client.send_data(stream, bytes(1024 * 1024))
        client.h2.reset_stream(stream)
        client.exchange()
    assert uploads.heard == [b"abort"] * 8
    assert client.h2.outbound_flow_control_window > CONNECTION_WINDOW_BYTES // 2


def test_more_than_the_window_is_a_stream_error() -> None:
    harness = Http2Harness()
    uploads = Uploads(harness)
    client = harness.client()
    stream = client.open("POST", "/", ends=False)
    uploads.readers["/"].pause()
    for _ in range(4):
        client.raw(pack_header(1024 * 1024, 0, 0, stream) + bytes(1024 * 1024))
    assert not client.raw(pack_header(0, 0, 0, stream))
    [reset] = client.raw(pack_header(1, 0, 0, stream) + b"x")
    assert getattr(reset, "error_code", None) == FLOW_CONTROL_ERROR


def test_a_callback_that_raises_ends_its_stream_only() -> None:
    harness = Http2Harness()
    harness.application.streams_body = True

    def answer(request: Request) -> Answer:
        def fail(data: bytes) -> None:
            raise RuntimeError("bug")

        assert request.body_reader is not None
        request.body_reader.on_data = fail
        return deferred(request)

    deferred = Deferred()
    harness.application.answer = answer
    client = harness.client()
    other = client.open("POST", "/other", ends=False)
    stream = client.open("POST", "/", body=b"x", ends=False)
    assert client.got(stream).status == 500
    assert deferred.cancelled == ["/"]
    deferred.resolve("/other")
    assert client.got(other).body == b"/other"


def test_too_many_streams_are_refused() -> None:
    harness = Http2Harness()
    harness.application.answer = Deferred()
    client = harness.client()
    for number in range(1000):
        client.h2.send_headers(2 * number + 1, [*HEAD, (":path", f"/{number}")], end_stream=True)
    client.exchange()
    client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 2000
    client.h2.remote_settings.acknowledge()
    stream = client.open("GET", "/more")
    assert client.got(stream).reset == REFUSED_STREAM
    assert client.goaway is None


HEAD = [(":method", "GET"), (":scheme", "http"), (":authority", "a")]


def test_a_drain_finishes_what_runs_and_refuses_what_comes() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    stream = client.open("GET", "/1")
    harness.drain()
    late = client.open("GET", "/2")
    assert client.got(late).reset == REFUSED_STREAM
    assert client.goaway is None
    deferred.resolve("/1")
    assert (client.got(stream).body, client.got(stream).ended) == (b"/1", True)
    assert client.goaway == (late, NO_ERROR)
    assert client.peer.ended
    assert not harness.server.serving.connections


def test_a_drain_closes_idle_connections() -> None:
    harness = Http2Harness()
    client = harness.client()
    client.ask("GET", "/")
    harness.drain()
    client.exchange()
    assert client.goaway == (1, NO_ERROR)
    assert client.peer.transport.lost


def test_a_drain_lets_live_responses_say_goodbye() -> None:
    harness = Http2Harness()
    application = live(harness)
    client = harness.client()
    one, two = client.open("GET", "/1"), client.open("GET", "/2")
    writer = application.writers["/1"]

    def goodbye() -> None:
        writer.write(b"bye")
        writer.finish()

    writer.on_shutdown = goodbye
    harness.drain()
    assert (client.got(one).body, client.got(one).ended) == (b"bye", True)
    assert client.got(two).ended
    assert application.heard == ["close /2"]
    assert client.peer.transport.lost


def test_what_comes_with_a_goodbye_is_not_served() -> None:
    harness = Http2Harness()
    client = harness.client()
    client.h2.send_headers(1, [*HEAD, (":path", "/")], end_stream=True)
    client.raw(pack_header(8, 7, 0, 0) + bytes(8) + client.h2.data_to_send())
    assert client.peer.ended
    assert not harness.application.begun


def test_a_client_that_says_goodbye_is_let_go() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    client.open("GET", "/1")
    client.raw(pack_header(8, 7, 0, 0) + bytes(8))
    assert not client.peer.transport.lost
    deferred.resolve("/1")
    assert client.peer.ended


LIMITS = ServerLimits(
    header_timeout_s=10, body_timeout_s=30, keep_alive_timeout_s=75, write_timeout_s=60
)


def idle(harness: Http2Harness) -> Client:
    client = harness.client()
    client.ask("GET", "/")
    return client


def test_an_idle_connection_is_closed() -> None:
    harness = Http2Harness(limits=LIMITS)
    client = idle(harness)
    harness.wait(74)
    assert not client.peer.ended
    harness.wait(2)
    client.exchange()
    assert client.goaway == (1, NO_ERROR)
    assert client.peer.transport.lost


def test_a_long_poll_may_take_its_time() -> None:
    harness = Http2Harness(limits=LIMITS)
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    stream = client.open("GET", "/poll")
    harness.wait(300)
    deferred.resolve("/poll")
    assert client.got(stream).body == b"/poll"


def test_a_slow_body_gets_a_408_and_others_go_on() -> None:
    harness = Http2Harness(limits=LIMITS)
    client = harness.client()
    stream = client.open("POST", "/", body=b"x", ends=False)
    harness.wait(31)
    assert client.got(stream).status == 408
    assert client.ask("GET", "/").status == 200


def test_a_route_may_give_an_upload_more_time() -> None:
    harness = Http2Harness(limits=LIMITS)
    harness.application.body_timeout_s = 100
    client = harness.client()
    stream = client.open("POST", "/", body=b"x", ends=False)
    harness.wait(99)
    assert not client.got(stream).headers
    harness.wait(2)
    assert client.got(stream).status == 408


def test_a_quiet_full_duplex_session_lives() -> None:
    harness = Http2Harness(limits=LIMITS)
    Uploads(harness)
    client = harness.client()
    stream = client.open("POST", "/", ends=False)
    harness.wait(300)
    client.send_data(stream, b"late", ends=True)
    assert client.got(stream).body == b"LATE"


@pytest.mark.parametrize("beginning", [b"\0\0", pack_header(20, HEADERS, 0, 3) + b"x"])
def test_a_slow_frame_ends_the_connection(beginning: bytes) -> None:
    harness = Http2Harness(limits=LIMITS)
    client = idle(harness)
    client.peer.send(beginning)
    for _ in range(5):
        harness.wait(2)
        client.peer.send(b"\0")
    harness.wait(3)
    client.exchange()
    assert client.goaway == (1, NO_ERROR)
    harness.wait(3)
    assert client.peer.transport.lost


def test_a_slow_header_block_ends_the_connection() -> None:
    harness = Http2Harness(limits=LIMITS)
    client = idle(harness)
    client.peer.send(pack_header(1, HEADERS, 0, 3) + b"\x82")
    for _ in range(11):
        harness.wait(1)
        client.peer.send(pack_header(0, 9, 0, 3))
    client.exchange()
    assert client.goaway == (1, NO_ERROR)


def test_a_client_that_never_widens_its_window_loses_its_stream() -> None:
    harness = Http2Harness(limits=LIMITS)
    application = live(harness)
    client = harness.client(settings=TINY, credits=False)
    stream = client.open("GET", "/")
    application.writers["/"].write(bytes(100))
    harness.wait(61)
    assert client.got(stream).reset == CANCEL
    assert application.heard == ["close /"]
    assert client.ask("HEAD", "/2").status == 200


def test_a_client_that_reads_nothing_is_cut_off_and_its_bodies_are_not_late() -> None:
    harness = Http2Harness(limits=LIMITS)
    application = live(harness)
    client = harness.client(settings={SettingCodes.INITIAL_WINDOW_SIZE: 10_000_000})
    client.h2.increment_flow_control_window(10_000_000)
    client.open("GET", "/")
    harness.application.answer = harness.application.echo
    slow = client.open("POST", "/slow", ends=False)
    transport = client.peer.transport
    transport.stalled = True
    application.writers["/"].write(bytes(400_000))
    harness.wait(50)
    transport.flush(400_009)
    transport.stalled = False
    transport.flush()
    harness.wait(10)
    client.send_data(slow, b"x", ends=True)
    assert client.got(slow).body == b"POST /slow x"
    transport.stalled = True
    application.writers["/"].write(bytes(400_000))
    harness.wait(62)
    assert transport.aborted
    assert application.heard[-1] == "close /"
