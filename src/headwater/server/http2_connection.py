"""One HTTP/2 connection: frames in, streams between, time and floods bounded.

Plain callbacks on the event loop, as in HTTP/1.1; requests of different streams run side by side.
`http2_stream.py` holds one request, `http2_output.py` what is sent. RFC 9113.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from headwater.server.http2_frames import (
    ACK,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    ENABLE_PUSH,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_LIMIT,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    INTERNAL_ERROR,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    NO_ERROR,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_BYTES_MAX,
    WINDOW_UPDATE,
    ConnectionFailed,
    StreamFailed,
    pack_goaway,
    pack_header,
    pack_reset,
    pack_settings,
    pack_window_update,
    unpack_settings,
    unpack_u31,
)
from headwater.server.http2_headers import HeadEncoder, HeaderDecoder, check_trailers
from headwater.server.http2_limits import Allowance
from headwater.server.http2_output import Output
from headwater.server.http2_reader import FRAME_BYTES_MAX, FrameReader
from headwater.server.http2_stream import STREAM_CREDIT_BYTES, STREAM_WINDOW_BYTES, Stream
from headwater.server.serving import Serving

LOGGER = logging.getLogger(__name__)

STREAMS_MAX = 1000
CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024 + DEFAULT_WINDOW_BYTES
CONNECTION_CREDIT_BYTES = CONNECTION_WINDOW_BYTES // 4

UNSENT_BYTES_MAX = 32 * 1024 * 1024
"""Of answers that the client does not let us send. Beyond it, new requests are refused."""

CUT_STREAMS_MAX = 2 * STREAMS_MAX
"""Streams remembered because they ended before the client did: what it still sends is ignored."""

# What happens to incoming bytes.
READING = 0
LINGERING = 1  # ignored: the last frame is on its way
CLOSED = 2


class Http2Connection(asyncio.Protocol):
    """Takes a connection over from HTTP/1.1, which has read its first bytes."""

    __slots__ = (
        "_chatter",
        "_cut",
        "_data_ends",
        "_data_stream",
        "_decoder",
        "_discarded_bytes",
        "_draining",
        "_last_stream_id",
        "_leaving",
        "_peer",
        "_phase",
        "_reader",
        "_reading",
        "_received_window",
        "_resets",
        "_secure",
        "_since_s",
        "_stalled_since_s",
        "_streams",
        "_transport",
        "_uncounted",
        "_unsent_bytes",
        "_updates",
        "encoder",
        "kept_bytes",
        "output",
        "serving",
    )

    def __init__(
        self,
        serving: Serving,
        encoder: HeadEncoder,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.serving = serving
        self.encoder = encoder
        self.output = Output(serving.limits, call_soon)
        self.kept_bytes = 0
        self._decoder = HeaderDecoder(serving.limits)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._secure = False
        self._phase = READING
        self._draining = False  # requests that come now are refused
        self._leaving = False  # the connection ends with its last stream

        self._reader = FrameReader(self, serving)
        self._reading = True
        self._discarded_bytes = 0
        self._data_stream: Stream | None = None  # of the DATA frame under way
        self._data_ends = False

        self._streams: dict[int, Stream] = {}
        self._last_stream_id = 0
        self._cut: dict[int, None] = {}
        self._received_window = CONNECTION_WINDOW_BYTES
        self._uncounted = 0  # consumed, and not given back yet

        self._resets = Allowance(STREAMS_MAX, per_s=100)
        self._chatter = Allowance(2000, per_s=500)
        self._updates = Allowance(10_000, per_s=1000)

        self._since_s = serving.tick_s
        self._unsent_bytes = 0
        self._stalled_since_s = 0.0

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the class
        self._transport = self.output.transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self._secure = transport.get_extra_info("sslcontext") is not None
        limits = self.serving.limits
        transport.set_write_buffer_limits(
            high=limits.write_buffer_bytes_high, low=limits.write_buffer_bytes_low
        )
        self.serving.connections.add(self)  # which HTTP/1.1 has counted
        settings = {
            MAX_CONCURRENT_STREAMS: STREAMS_MAX,
            INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            MAX_FRAME_SIZE: FRAME_BYTES_MAX,
            MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
        }
        opening = CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES
        self.output.add(pack_settings(settings) + pack_window_update(0, opening))

    def data_received(self, data: bytes) -> None:
        if self._phase > READING:
            self._discard(len(data))
            return
        try:
            self._reader.feed(data)
            if self.serving.draining and not self._draining:
                self.drain()  # it came while others were told
        except ConnectionFailed as failure:
            self._fail(failure.code, str(failure))
        except Exception:
            LOGGER.exception("an HTTP/2 connection failed")
            self._fail(INTERNAL_ERROR, "internal error")
        self.output.flush()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._phase = CLOSED
        self._transport = None
        self.output.close()
        self._reader.stop()
        self._data_stream = None
        self._end_streams()
        self.serving.forget(self)

    def pause_writing(self) -> None:
        self.output.writable = False
        if self._transport is not None and self._reading and self._phase == READING:
            self._reading = False
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.output.writable = True
        self.output.pump()
        if self.output.writable:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._reading:
            self._reading = True
            self._transport.resume_reading()

    # Frames.

    def frame_received(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self._receive_window_update(stream_id, payload)
        elif kind == RST_STREAM:
            self._receive_reset(stream_id, payload)
        else:
            self._spend(self._chatter)
            self._receive_chatter(kind, flags, stream_id, payload)

    def _receive_chatter(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == SETTINGS:
            self._receive_settings(flags, stream_id, payload)
        elif kind == PING:
            self._receive_ping(flags, stream_id, payload)
        elif kind == GOAWAY:
            self._receive_goaway(stream_id, payload)
        elif kind == PRIORITY:
            if not stream_id:
                raise ConnectionFailed(PROTOCOL_ERROR, "priority without a stream")
            if len(payload) != 5:
                self._reset_id(stream_id, FRAME_SIZE_ERROR)
        elif kind == PUSH_PROMISE:
            raise ConnectionFailed(PROTOCOL_ERROR, "clients cannot push")

    def _receive_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "ping on a stream")
        if len(payload) != 8:
            raise ConnectionFailed(FRAME_SIZE_ERROR, "ping is not eight bytes")
        if not flags & ACK:
            self.output.add(pack_header(8, PING, ACK, 0) + payload)

    def _receive_goaway(self, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "goaway on a stream")
        if len(payload) < 8:
            raise ConnectionFailed(FRAME_SIZE_ERROR, "goaway is cut short")
        self._leaving = True
        self._close_if_drained()

    # Heads.

    def head_received(self, flags: int, stream_id: int, block: bytes) -> None:
        if stream_id <= self._last_stream_id:
            self._receive_trailers(flags, stream_id, block)
            return
        self._last_stream_id = stream_id
        refused = self._draining or len(self._streams) >= STREAMS_MAX
        refused = refused or self.output.unsent_bytes > UNSENT_BYTES_MAX
        try:
            head = self._decoder.decode(block)
        except StreamFailed as failure:
            self._spend(self._resets)
            self._reset_id(stream_id, failure.code)
            return
        if refused:
            self._spend(self._chatter)
            self._reset_id(stream_id, REFUSED_STREAM)
            return
        ends = bool(flags & END_STREAM)
        stream = Stream(self, stream_id, head, self._peer, self._secure, ends)
        self._streams[stream_id] = stream
        try:
            stream.begin(head)
        except StreamFailed as failure:
            self._spend(self._resets)
            self.reset(stream, failure.code)

    def _receive_trailers(self, flags: int, stream_id: int, block: bytes) -> None:
        fields = self._decoder.decode_fields(block)
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id not in self._cut:
                raise ConnectionFailed(STREAM_CLOSED, "headers on a closed stream")
            return
        try:
            if stream.complete:
                raise StreamFailed(STREAM_CLOSED, "headers after the end of the stream")
            if not flags & END_STREAM:
                raise StreamFailed(PROTOCOL_ERROR, "trailers do not end the stream")
            check_trailers(fields)
            stream.end_body()
        except StreamFailed as failure:
            self._spend(self._resets)
            self.reset(stream, failure.code)

    # Bodies.

    def data_begun(self, flags: int, stream_id: int, size: int, content_bytes: int) -> None:
        if not stream_id or stream_id > self._last_stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "data on an idle stream")
        self._received_window -= size
        if self._received_window < 0:
            raise ConnectionFailed(FLOW_CONTROL_ERROR, "connection window is exceeded")
        stream = self._streams.get(stream_id)
        self._data_stream = None
        self._data_ends = bool(flags & END_STREAM)
        if not content_bytes and not self._data_ends:
            self._spend(self._chatter)
        if stream is None or stream.complete or not stream.charge(size):
            self._credit(size - content_bytes)
            self._refuse_data(stream_id, stream)
            return
        self._data_stream = stream
        if size > content_bytes:
            self.consumed(stream, size - content_bytes)
        if not content_bytes:
            self._end_data(stream)

    def _refuse_data(self, stream_id: int, stream: Stream | None) -> None:
        if stream is not None:
            self._spend(self._resets)
            self.reset(stream, STREAM_CLOSED if stream.complete else FLOW_CONTROL_ERROR)
        elif stream_id not in self._cut:
            self._spend(self._resets)
            self._reset_id(stream_id, STREAM_CLOSED)

    def data_arrived(self, piece: bytes, *, last: bool) -> None:
        stream = self._data_stream
        if stream is None or stream.closed:
            self._credit(len(piece))
            return
        try:
            stream.receive(piece)
        except StreamFailed as failure:
            self._spend(self._resets)
            self.reset(stream, failure.code)
            return
        if last:
            self._end_data(stream)

    def _end_data(self, stream: Stream) -> None:
        self._data_stream = None
        if not self._data_ends or stream.closed:
            return
        try:
            stream.end_body()
        except StreamFailed as failure:
            self._spend(self._resets)
            self.reset(stream, failure.code)

    def consumed(self, stream: Stream, size: int) -> None:
        self._credit(size)
        if stream.closed or stream.complete:
            return
        stream.uncounted += size
        if stream.uncounted >= STREAM_CREDIT_BYTES:
            self.output.add(pack_window_update(stream.stream_id, stream.uncounted))
            stream.received_window += stream.uncounted
            stream.uncounted = 0

    def _credit(self, size: int) -> None:
        self._uncounted += size
        if self._uncounted >= CONNECTION_CREDIT_BYTES:
            self.output.add(pack_window_update(0, self._uncounted))
            self._received_window += self._uncounted
            self._uncounted = 0

    # Settings and windows.

    def _receive_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "settings on a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFailed(FRAME_SIZE_ERROR, "settings acknowledged with a payload")
            if not self._reader.settled:
                raise ConnectionFailed(PROTOCOL_ERROR, "the first frame must be settings")
            return
        self._reader.settled = True
        for setting, value in unpack_settings(payload):
            self._apply_setting(setting, value)
        # First the acknowledgement, then what only the new windows allow.
        self.output.add(pack_header(0, SETTINGS, ACK, 0))
        self.output.pump()

    def _apply_setting(self, setting: int, value: int) -> None:
        if setting == INITIAL_WINDOW_SIZE:
            if value > WINDOW_BYTES_MAX:
                raise ConnectionFailed(FLOW_CONTROL_ERROR, "initial window is too large")
            self._shift_windows(value - self.output.stream_window)
        elif setting == MAX_FRAME_SIZE:
            if not DEFAULT_FRAME_BYTES <= value <= FRAME_BYTES_LIMIT:
                raise ConnectionFailed(PROTOCOL_ERROR, "frame size is out of range")
            self.output.frame_bytes_max = min(value, FRAME_BYTES_MAX)
        elif setting == ENABLE_PUSH:
            if value > 1:
                raise ConnectionFailed(PROTOCOL_ERROR, "enable_push is neither 0 nor 1")
        elif setting == HEADER_TABLE_SIZE and value < 4096:
            self.output.empty_table()

    def _shift_windows(self, change: int) -> None:
        """RFC 9113 §6.9.2: it applies to open streams too, whose windows may become negative."""
        self.output.stream_window += change
        for stream in tuple(self._streams.values()):
            stream.window += change
            if stream.window > WINDOW_BYTES_MAX:
                raise ConnectionFailed(FLOW_CONTROL_ERROR, "stream window is too large")

    def _receive_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFailed(FRAME_SIZE_ERROR, "window update is not four bytes")
        output = self.output
        if output.earned:
            self._updates.earn(4 * output.earned)
            output.earned = 0
        self._spend(self._updates)
        size = unpack_u31(payload)
        if not stream_id:
            if not size:
                raise ConnectionFailed(PROTOCOL_ERROR, "window update of nothing")
            output.widen(size)
            return
        if stream_id > self._last_stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "window update on an idle stream")
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.window += size
        if not size or stream.window > WINDOW_BYTES_MAX:
            self._spend(self._resets)
            self.reset(stream, FLOW_CONTROL_ERROR if size else PROTOCOL_ERROR)
            return
        output.pump_stream(stream)

    # Resets and floods.

    def _receive_reset(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFailed(FRAME_SIZE_ERROR, "reset is not four bytes")
        if not stream_id or stream_id > self._last_stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "reset of an idle stream")
        stream = self._streams.get(stream_id)
        if stream is None:
            self._spend(self._chatter)
            return
        self._spend(self._resets)
        del self._streams[stream_id]
        self._since_s = self.serving.tick_s
        stream.detach(answered=False)
        self._close_if_drained()

    def _spend(self, allowance: Allowance) -> None:
        if not allowance.spend(self.serving.tick_s):
            raise ConnectionFailed(ENHANCE_YOUR_CALM, "too many frames that lead nowhere")

    def reset(self, stream: Stream, code: int) -> None:
        if self._streams.pop(stream.stream_id, None) is None:
            return
        self._reset_id(stream.stream_id, code)
        stream.detach(answered=False)
        self._since_s = self.serving.tick_s
        self._close_if_drained()

    def _reset_id(self, stream_id: int, code: int) -> None:
        self._note_cut(stream_id)
        self.output.add(pack_reset(stream_id, code))

    def _note_cut(self, stream_id: int) -> None:
        cut = self._cut
        cut[stream_id] = None
        if len(cut) > CUT_STREAMS_MAX:
            del cut[next(iter(cut))]

    def finished(self, stream: Stream) -> None:
        if self._streams.pop(stream.stream_id, None) is None:
            return
        self._since_s = self.serving.tick_s
        if not stream.complete:
            # RFC 9113 §8.1: the answer is whole, and nobody wants the rest of the request.
            self._reset_id(stream.stream_id, NO_ERROR)
        stream.detach(answered=True)
        self._close_if_drained()

    # The end.

    def _fail(self, code: int, message: str) -> None:
        if self._phase >= LINGERING:
            return
        self.output.add(pack_goaway(self._last_stream_id, code, message))
        self._end()

    def _end(self) -> None:
        """The last frame is written. What the client still sends is discarded for a while."""
        self._phase = LINGERING
        self._since_s = self.serving.tick_s
        self._reader.stop()
        self._data_stream = None
        self.output.flush()
        self._end_streams()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # Closing at once would answer what is on its way with a reset, which can destroy GOAWAY.
        if transport.can_write_eof():
            transport.write_eof()
            self._resume_reading()
        else:
            transport.close()
        self.output.close()

    def _end_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.detach(answered=False)

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > self.serving.limits.linger_bytes_max:
            self.abort()

    def abort(self) -> None:
        self._phase = max(self._phase, LINGERING)
        self._reader.stop()
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Streams run to their end, new ones are refused, GOAWAY comes last.

        RFC 9113 §6.8 lets it come first, but clients on the `h2` library take it for the end of
        the connection: they would lose the answers that are still to come.
        """
        if self._phase >= LINGERING or self._transport is None:
            return
        self._draining = self._leaving = True
        for stream in tuple(self._streams.values()):
            stream.drain()
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._phase >= LINGERING or self._transport is None:
            return
        if self._leaving and not self._streams:
            self._phase = LINGERING
            self._reader.stop()
            self.output.add(pack_goaway(self._last_stream_id, NO_ERROR, ""))
            self.output.flush()
            self._transport.close()

    # Time.

    def sweep(self, now_s: float) -> None:
        transport = self._transport
        if transport is None:
            return
        unsent_bytes = transport.get_write_buffer_size()
        self._sweep_output(unsent_bytes, now_s)
        for stream in tuple(self._streams.values()):
            if self._reading:
                stream.sweep(now_s)
            else:  # nobody is late while we do not read
                stream.since_s = stream.stalled_since_s = now_s
        if unsent_bytes:
            self._since_s = now_s
        else:
            self._sweep_input(now_s - self._since_s)

    def _sweep_output(self, unsent_bytes: int, now_s: float) -> None:
        if not self._unsent_bytes or unsent_bytes < self._unsent_bytes:
            self._stalled_since_s = now_s  # the peer read something since the last sweep
        elif now_s - self._stalled_since_s >= self.serving.limits.write_timeout_s:
            self.abort()
        self._unsent_bytes = unsent_bytes

    def _sweep_input(self, waited_s: float) -> None:
        limits = self.serving.limits
        if self._phase == LINGERING:
            if waited_s >= limits.linger_timeout_s and self._transport is not None:
                self._transport.close()
        elif self._reader.is_unfinished():
            if self.serving.tick_s - self._reader.since_s >= limits.header_timeout_s:
                self._fail(NO_ERROR, "a frame took too long")
        elif not self._streams and waited_s >= limits.keep_alive_timeout_s:
            self._leaving = True
            self._close_if_drained()
