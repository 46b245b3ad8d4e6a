"""HTTP/2 clients that break the rules, or keep them in bad faith."""

from __future__ import annotations

import hpack
import pytest
from hyperframe.frame import Frame, GoAwayFrame, PingFrame, RstStreamFrame, SettingsFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.server.http2_frames import (
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INTERNAL_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    pack_goaway,
    pack_header,
    pack_reset,
    pack_settings,
    pack_window_update,
)
from headwater.server.http2_reader import FRAME_BYTES_MAX
from headwater.wire.http import BodyWriter, Request, Response, StreamedResponse
from tests.server.http1_harness import Deferred
from tests.server.http2_harness import Client, Http2Harness, parse_frames

FIELDS = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    return pack_header(len(payload), kind, flags, stream_id) + payload


def head(stream_id: int, *, ends: bool = True) -> bytes:
    """A request that touches no dynamic table."""
    block = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*field) for field in FIELDS])
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream_id, block)


def goaway_of(frames: list[Frame]) -> int | None:
    codes = [frame.error_code for frame in frames if isinstance(frame, GoAwayFrame)]
    assert len(codes) <= 1
    return codes[0] if codes else None


BROKEN = {
    "data on stream 0": (PROTOCOL_ERROR, frame(DATA, 0, 0, b"x")),
    "data on an idle stream": (PROTOCOL_ERROR, frame(DATA, 0, 5, b"x")),
    "padding beyond data": (PROTOCOL_ERROR, head(1, ends=False) + frame(DATA, PADDED, 1, b"\5abc")),
    "padded data without a length": (
        FRAME_SIZE_ERROR,
        head(1, ends=False) + frame(DATA, PADDED, 1, b""),
    ),
    "headers on stream 0": (PROTOCOL_ERROR, frame(HEADERS, END_HEADERS, 0, b"\x82")),
    "headers on an even stream": (PROTOCOL_ERROR, frame(HEADERS, END_HEADERS, 2, b"\x82")),
    "headers on a lower stream": (STREAM_CLOSED, head(5) + head(3)),
    "padding beyond headers": (PROTOCOL_ERROR, frame(HEADERS, PADDED | END_HEADERS, 1, b"\x09x")),
    "priority cut short": (FRAME_SIZE_ERROR, frame(HEADERS, PRIORITIZED | END_HEADERS, 1, b"x")),
    "bad header block": (COMPRESSION_ERROR, frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff")),
    "index out of the table": (COMPRESSION_ERROR, frame(HEADERS, END_HEADERS, 1, b"\xfe")),
    "truncated literal": (COMPRESSION_ERROR, frame(HEADERS, END_HEADERS, 1, b"\x00\x05ab")),
    "interrupted block": (
        PROTOCOL_ERROR,
        frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, bytes(8)),
    ),
    "block interrupted by data": (
        PROTOCOL_ERROR,
        frame(HEADERS, 0, 1, b"\x82") + frame(DATA, 0, 1),
    ),
    "block of another stream": (
        PROTOCOL_ERROR,
        frame(HEADERS, 0, 1, b"\x82") + frame(CONTINUATION, 0, 3, b""),
    ),
    "continuation of nothing": (PROTOCOL_ERROR, frame(CONTINUATION, END_HEADERS, 1, b"\x82")),
    "priority on stream 0": (PROTOCOL_ERROR, frame(PRIORITY, 0, 0, bytes(5))),
    "reset of stream 0": (PROTOCOL_ERROR, pack_reset(0, 8)),
    "reset of an idle stream": (PROTOCOL_ERROR, pack_reset(5, 8)),
    "reset cut short": (FRAME_SIZE_ERROR, head(1) + frame(RST_STREAM, 0, 1, b"abc")),
    "settings on a stream": (PROTOCOL_ERROR, frame(SETTINGS, 0, 1)),
    "settings cut short": (FRAME_SIZE_ERROR, frame(SETTINGS, 0, 0, b"abc")),
    "settings acknowledged with a payload": (FRAME_SIZE_ERROR, frame(SETTINGS, 1, 0, bytes(6))),
    "enable_push 2": (PROTOCOL_ERROR, pack_settings({2: 2})),
    "initial window too large": (FLOW_CONTROL_ERROR, pack_settings({4: 2**31})),
    "frame size too small": (PROTOCOL_ERROR, pack_settings({5: 16_383})),
    "frame size too large": (PROTOCOL_ERROR, pack_settings({5: 2**24})),
    "push": (PROTOCOL_ERROR, frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4))),
    "ping on a stream": (PROTOCOL_ERROR, frame(PING, 0, 1, bytes(8))),
    "ping of the wrong size": (FRAME_SIZE_ERROR, frame(PING, 0, 0, bytes(7))),
    "goaway on a stream": (PROTOCOL_ERROR, frame(GOAWAY, 0, 1, bytes(8))),
    "goaway cut short": (FRAME_SIZE_ERROR, frame(GOAWAY, 0, 0, bytes(7))),
    "window update of nothing": (PROTOCOL_ERROR, pack_window_update(0, 0)),
    "window update cut short": (FRAME_SIZE_ERROR, frame(WINDOW_UPDATE, 0, 0, bytes(3))),
    "window update on an idle stream": (PROTOCOL_ERROR, pack_window_update(1, 1)),
    "connection window too large": (FLOW_CONTROL_ERROR, pack_window_update(0, 2**31 - 1)),
    "frame too large": (
        FRAME_SIZE_ERROR,
        head(1, ends=False) + pack_header(FRAME_BYTES_MAX + 1, 0, 0, 1),
    ),
    "settings too large": (FRAME_SIZE_ERROR, pack_header(60_000, SETTINGS, 0, 0)),
    "headers too large": (ENHANCE_YOUR_CALM, pack_header(1_000_000, HEADERS, 0, 1)),
}


@pytest.mark.parametrize(("code", "data"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_the_protocol_ends_the_connection(code: int, data: bytes) -> None:
    harness = Http2Harness()
    client = harness.client()
    assert goaway_of(client.raw(data)) == code
    assert client.peer.ended
    client.peer.send(b"more" * 100)  # is ignored
    harness.wait(3)
    assert not harness.server.serving.connections


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE + frame(PING, 0, 0, bytes(8)),
        PREFACE + frame(SETTINGS, 1),
    ],
)
def test_what_does_not_open_as_http2_does_ends_the_connection(first: bytes) -> None:
    class Negotiated:
        def selected_alpn_protocol(self) -> str:
            return "h2"

    harness = Http2Harness()
    peer = harness.connect(ssl_object=Negotiated(), sslcontext=object())
    peer.send(first)
    assert goaway_of(parse_frames(bytes(peer.transport.sent))) == PROTOCOL_ERROR
    assert peer.ended


def test_alpn_starts_with_http2() -> None:
    class Negotiated:
        def selected_alpn_protocol(self) -> str:
            return "h2"

    harness = Http2Harness()
    client = Client(harness.connect(ssl_object=Negotiated(), sslcontext=object()))
    assert client.ask("GET", "/").status == 200
    assert harness.application.requests[0].secure


STREAM_ERRORS = {
    "priority of the wrong size": (FRAME_SIZE_ERROR, frame(PRIORITY, 0, 1, bytes(4))),
    "window update of nothing": (PROTOCOL_ERROR, pack_window_update(1, 0)),
    "stream window too large": (FLOW_CONTROL_ERROR, pack_window_update(1, 2**31 - 1)),
    "trailers that do not end": (PROTOCOL_ERROR, head(1, ends=False)),
    "trailers with pseudo-headers": (PROTOCOL_ERROR, head(1)),
}


@pytest.mark.parametrize(("code", "data"), STREAM_ERRORS.values(), ids=STREAM_ERRORS.keys())
def test_what_breaks_a_stream_ends_that_stream(code: int, data: bytes) -> None:
    client = Http2Harness().client()
    answer = client.raw(head(1, ends=False) + data)
    [reset] = [frame for frame in answer if isinstance(frame, RstStreamFrame)]
    assert (reset.stream_id, reset.error_code) == (1, code)
    assert len(client.raw(head(3))) == 2


def test_unknown_frames_and_settings_are_ignored() -> None:
    client = Http2Harness().client()
    client.raw(
        frame(0xFA, 0xFF, 7, b"grease"), pack_settings({0xFAFA: 5}), frame(PRIORITY, 0, 9, bytes(5))
    )
    assert client.ask("GET", "/").status == 200


def test_pings_are_answered() -> None:
    client = Http2Harness().client()
    [pong] = client.raw(frame(PING, 0, 0, b"12345678"))
    assert isinstance(pong, PingFrame) and pong.opaque_data == b"12345678" and "ACK" in pong.flags
    assert not client.raw(frame(PING, 1, 0, b"12345678"))


def count_until_goaway(client: Client, data: bytes, times: int) -> int:
    for number in range(times):
        code = goaway_of(client.raw(data))
        if code is not None:
            assert code == ENHANCE_YOUR_CALM
            return number
    raise AssertionError("the flood was not ended")


FLOODS = {
    "ping": frame(PING, 0, 0, bytes(8)),
    "settings": pack_settings({4: 1000}),
    "empty settings": frame(SETTINGS),
    "priority": frame(PRIORITY, 0, 1, bytes(5)),
    "unknown": frame(0xFA),
    "empty data": frame(DATA, 0, 1),
    "padding": frame(DATA, PADDED, 1, b"\x03abc"),
    "resets of nothing": pack_reset(1, 8),
}


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS.keys())
def test_chatter_without_end_ends_the_connection(data: bytes) -> None:
    client = Http2Harness().client()
    client.raw(head(1, ends=False))
    assert count_until_goaway(client, data, 3000) > 100
    assert client.peer.ended


def test_chatter_within_reason_goes_on_for_ever() -> None:
    harness = Http2Harness()
    client = harness.client()
    for _ in range(30):
        for _ in range(100):
            client.raw(FLOODS["ping"])
        harness.wait(1)
    assert client.ask("GET", "/").status == 200


def test_rapid_resets_end_the_connection() -> None:
    harness = Http2Harness()
    harness.application.answer = deferred = Deferred()
    client = harness.client()
    for number in range(1, 4001, 2):
        if goaway_of(client.raw(head(number) + pack_reset(number, 8))) is not None:
            break
    assert number < 2100
    assert len(deferred.cancelled) == len(harness.application.requests)
    assert client.peer.ended


def test_making_us_reset_ends_the_connection_too() -> None:
    harness = Http2Harness()
    harness.application.answer = Deferred()
    client = harness.client()
    for number in range(1, 4001, 2):
        if goaway_of(client.raw(head(number) + pack_window_update(number, 0))) is not None:
            break
    assert number < 2100


def test_a_continuation_flood_ends_the_connection() -> None:
    client = Http2Harness().client()
    client.raw(frame(HEADERS, 0, 1, b"\x82"))
    assert count_until_goaway(client, frame(CONTINUATION, 0, 1), 100) < 70


def test_a_block_without_end_ends_the_connection() -> None:
    client = Http2Harness().client()
    client.raw(frame(HEADERS, 0, 1, b"\x82"))
    assert count_until_goaway(client, frame(CONTINUATION, 0, 1, bytes(16_000)), 20) < 7


def test_tiny_window_updates_without_end_end_the_connection() -> None:
    harness = Http2Harness()
    harness.application.answer = lambda request: Response(200, (), bytes(100_000))
    client = harness.client()
    client.raw(pack_settings({4: 1}) + head(1))
    assert count_until_goaway(client, pack_window_update(1, 1), 12_000) > 5000


def test_window_updates_that_answer_data_are_welcome() -> None:
    harness = Http2Harness()
    writers: list[BodyWriter] = []
    harness.application.answer = lambda request: StreamedResponse(200, (), writers.append)
    client = harness.client()
    client.raw(head(1))
    for _ in range(12_000):
        writers[0].write(b"event")
        answer = client.raw(pack_window_update(1, 5), pack_window_update(0, 5))
        assert goaway_of(answer) is None


SCRIPT = b"".join(
    (
        pack_settings({4: 20, 5: 20_000}),
        head(1),
        head(3, ends=False),
        frame(DATA, 0, 3, b"hello"),
        frame(DATA, PADDED | END_STREAM, 3, b"\x02xx\0\0"),
        frame(PING, 0, 0, bytes(8)),
        pack_window_update(1, 5),
        pack_window_update(0, 5),
        head(5, ends=False),
        pack_reset(5, 8),
        frame(HEADERS, PRIORITIZED, 7, bytes(5) + b"\x82\x86"),
        frame(CONTINUATION, END_HEADERS, 7, b"\x84\x41\x01a"),
        frame(DATA, END_STREAM, 7),
        frame(SETTINGS, 1),
        pack_goaway(0, 0, ""),
    )
)


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(SCRIPT) - 1), st.binary(max_size=3), st.integers(0, 3)),
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, len(SCRIPT)), max_size=4),
    streams=st.booleans(),
)
def test_no_bytes_break_more_than_their_connection(
    edits: list[tuple[int, bytes, int]], cuts: list[int], streams: bool
) -> None:
    data = SCRIPT
    for start, new, removed in edits:
        data = data[:start] + new + data[start + removed :]
    harness = Http2Harness()
    harness.application.streams_body = streams

    def answer(request: Request) -> Response:
        if request.body_reader is not None:
            request.body_reader.on_data = lambda data: None
        return Response(200, (), bytes(50))

    harness.application.answer = answer
    peer = harness.connect()
    peer.send(PREFACE)
    ends = sorted(cuts)
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        peer.send(data[start:end])
    frames = parse_frames(bytes(peer.transport.sent))
    assert isinstance(frames[0], SettingsFrame)
    assert goaway_of(frames) != INTERNAL_ERROR
    harness.wait(200)
    assert not harness.server.serving.connections
    assert harness.server.serving.application is harness.application
