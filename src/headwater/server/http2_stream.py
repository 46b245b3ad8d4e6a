"""One HTTP/2 stream: its request through the application, its response out.

The connection gives it what arrives; `Output` sends what it answers. RFC 9113 §5.1, §8.1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headwater.core.pending import Pending
from headwater.server.http1_request import Exchange, Refusal, Upload, parse_request_id
from headwater.server.http1_response import count_body, find_length, has_no_body
from headwater.server.http2_frames import (
    CANCEL,
    INTERNAL_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    StreamFailed,
)
from headwater.server.http2_headers import CONTINUE_BLOCK, Head, HeadEncoder
from headwater.server.http2_output import Output
from headwater.server.serving import FRAME_BYTES_MAX, Serving
from headwater.wire.http import Buffer, Response, Route, StreamedResponse

LOGGER = logging.getLogger(__name__)

STREAM_WINDOW_BYTES = 4 * 1024 * 1024
"""What a client may send ahead on one stream."""

STREAM_CREDIT_BYTES = STREAM_WINDOW_BYTES // 4
"""Consumed bytes are given back to a stream in steps of this size."""

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Unfinished bodies that one connection may have us keep, beside a single one of any size."""


class Host(Protocol):
    """The part of a connection that a stream steers."""

    serving: Serving
    output: Output
    encoder: HeadEncoder
    kept_bytes: int
    """Of the bodies that are not whole yet, of all streams together."""

    def reset(self, stream: Stream, code: int) -> None:
        """Send RST_STREAM and forget the stream."""

    def finished(self, stream: Stream) -> None:
        """The response is complete."""

    def consumed(self, stream: Stream, size: int) -> None:
        """Body bytes were used: the client may send as many again."""


class Stream(Exchange):
    """A request with its own stream, and what its connection remembers of it."""

    __slots__ = (
        "closed",
        "download",
        "ending",
        "host",
        "kept_bytes",
        "pending",
        "received_window",
        "response",
        "since_s",
        "stalled_since_s",
        "stream_id",
        "uncounted",
        "uncredited",
        "unsent",
        "unsent_bytes",
        "window",
    )

    def __init__(
        self, host: Host, stream_id: int, head: Head, peer: str, secure: bool, ends: bool
    ) -> None:
        super().__init__(head.method, dict(head.headers), peer, secure, True)
        serving = host.serving
        self.path = head.path
        self.query = head.query
        given_id = head.headers.get(b"x-request-id")
        self.id = parse_request_id(given_id) or serving.next_request_id()
        if serving.on_response is not None:
            self.received_ns = int(serving.clock.monotonic_s() * 1e9)
        self.host = host
        self.stream_id = stream_id
        self.window = host.output.stream_window
        self.received_window = STREAM_WINDOW_BYTES
        self.uncredited = 0  # received, and not consumed yet
        self.uncounted = 0  # consumed, and not given back to the stream yet
        self.unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        self.ending = False
        self.kept_bytes = 0
        self.closed = False
        self.pending: Pending[Response] | None = None
        self.download: StreamDownload | None = None
        self.response: Response | None = None
        self.since_s = self.stalled_since_s = serving.tick_s
        self.complete = ends
        if not ends:
            self.announce_body()
            self.length = head.length

    # The request.

    def begin(self, head: Head) -> None:
        """The head is complete. May raise StreamFailed."""
        if self.complete and head.length > 0:
            raise StreamFailed(PROTOCOL_ERROR, "body is shorter than its content-length")
        if head.refusal is not None:
            self.refuse(head.refusal)
            return
        try:
            answer = self.host.serving.application.begin(self)
        except Exception as error:
            answer = self.host.serving.render_failure(self, error)
        if isinstance(answer, Response):
            self.respond(answer)
            return
        self.route = answer
        if self.complete:
            self.dispatch(answer)
            return
        self.body_bytes_max = answer.body_bytes_max
        if self.length > answer.body_bytes_max:
            self.refuse(Refusal(413, "request body is too large"))
            return
        if head.expects_continue:
            self.host.output.send_head(self.stream_id, CONTINUE_BLOCK, ends=False)
        if answer.streams_body:
            self.body_reader = self.upload = Upload(self)
            self.dispatch(answer)

    def dispatch(self, route: Route) -> None:
        try:
            answer = route.handle(self)
        except Exception as error:
            answer = self.host.serving.render_failure(self, error)
        if isinstance(answer, Response):
            self.respond(answer)
        else:
            self.pending = answer
            answer.deliver(self._settle)
        if self.upload is not None and not self.closed:
            self.upload.begin()

    def _settle(self, outcome: Response | Exception) -> None:
        """What the pending answer came to. Called by the commit, which must not see us fail."""
        self.pending = None
        if self.closed:
            return
        if not isinstance(outcome, Response):
            outcome = self.host.serving.render_failure(self, outcome)
        self.respond(outcome)

    def receive(self, data: bytes) -> None:
        """A piece of the body, whose size the connection has charged to the windows."""
        size = len(data)
        self.since_s = self.host.serving.tick_s
        self.body_bytes += size
        if self.length >= 0 and self.body_bytes > self.length:
            self.host.consumed(self, size)
            raise StreamFailed(PROTOCOL_ERROR, "body is longer than its content-length")
        if self.response is not None and self.upload is None:
            self.host.consumed(self, size)  # answered: nobody wants the rest
            return
        if self.body_bytes > self.body_bytes_max:
            self.host.consumed(self, size)
            self._fail(self.host.serving.render_refusal(413, "request body is too large", self))
            return
        if self.upload is None:
            self.add_piece(data)
            self.host.consumed(self, size)
            self.kept_bytes += size
            self.host.kept_bytes += size
            if self.host.kept_bytes > KEPT_BYTES_MAX and self.host.kept_bytes > self.kept_bytes:
                raise StreamFailed(REFUSED_STREAM, "too many unfinished bodies")
            return
        self.uncredited += size
        self.upload.add_piece(data)
        self.upload_paused()

    def end_body(self) -> None:
        """The client's half of the stream is over. May raise StreamFailed."""
        if self.length >= 0 and self.body_bytes != self.length:
            raise StreamFailed(PROTOCOL_ERROR, "body is shorter than its content-length")
        self._release_kept()
        self.complete = True
        self.join_pieces()
        if self.upload is not None:
            self.upload.end()
        elif self.response is None and self.route is not None:
            self.dispatch(self.route)

    def _release_kept(self) -> None:
        self.host.kept_bytes -= self.kept_bytes
        self.kept_bytes = 0

    def charge(self, size: int) -> bool:
        """False if the client sent more than it was allowed to."""
        self.received_window -= size
        return self.received_window >= 0

    def upload_paused(self) -> None:
        """Called whenever the upload may have consumed something."""
        if self.upload is None:
            return
        kept = self.upload.count_kept()
        used, self.uncredited = self.uncredited - kept, kept
        self.since_s = self.host.serving.tick_s
        if used:
            self.host.consumed(self, used)

    def upload_failed(self, error: Exception) -> None:
        self._fail(self.host.serving.render_failure(self, error))

    def refuse(self, refusal: Refusal) -> None:
        self._fail(self.host.serving.render_refusal(refusal.status, refusal.message, self))

    def _fail(self, response: Response) -> None:
        """The request went wrong: say so, or cut the response that already began."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self.call(pending.cancel)
        if self.upload is not None:
            self.upload.abort()
            self.upload_paused()
        if self.closed:
            return
        if self.response is None:
            self.respond(response)
        else:
            self.host.reset(self, INTERNAL_ERROR)

    def call(self, callback: Callable[..., object]) -> None:
        """Call into the application. What it raises ends this stream and no other."""
        try:
            callback()
        except Exception:
            LOGGER.exception("the application's callback raised. id=%s", self.id)
            if not self.closed:
                self.host.reset(self, INTERNAL_ERROR)

    # The response.

    def respond(self, response: Response) -> None:
        if self.closed or self.response is not None:
            return
        try:
            block, ends = self._encode(response)
        except Exception as error:
            response = self.host.serving.render_failure(self, error)
            block, ends = self._encode(response)
        self.response = response
        output = self.host.output
        output.send_head(self.stream_id, block, ends=ends)
        if ends:
            self.body_sent()
        elif isinstance(response, StreamedResponse):
            self._start(response)
        else:
            body = response.body
            if isinstance(body, bytes) and output.send_whole(self, body):
                self.body_sent()
            else:
                self._send_pieces([body] if isinstance(body, bytes) else body)

    def _encode(self, response: Response) -> tuple[bytes, bool]:
        """The head, and whether nothing follows it. RFC 9110 §8.6 on its length."""
        encoder = self.host.encoder
        status = response.status
        if isinstance(response, StreamedResponse):
            bodiless = has_no_body(status) or self.method == "HEAD"
            return encoder.encode(response, self.id, None), bodiless
        if has_no_body(status):
            return encoder.encode(response, self.id, None), True
        body = response.body
        size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        if self.method == "HEAD":
            said = not size or find_length(response) is not None
            return encoder.encode(response, self.id, None if said else size), True
        return encoder.encode(response, self.id, size), size == 0

    def _send_pieces(self, pieces: list[Buffer]) -> None:
        output = self.host.output
        if len(pieces) > 1 and sum(map(len, pieces)) < len(pieces) * FRAME_BYTES_MAX:
            pieces = [b"".join(pieces)]  # cheaper than a frame for each
        self.ending = True  # so that the last frame says it
        for piece in pieces:
            if len(piece):
                self.unsent.append(piece)
                self.unsent_bytes += len(piece)
        output.unsent_bytes += self.unsent_bytes
        output.waiting[self.stream_id] = self
        output.pump_stream(self)

    def _start(self, response: StreamedResponse) -> None:
        self.download = download = StreamDownload(self, find_length(response))
        self.call(lambda: response.start(download))
        if self.host.serving.draining and not self.closed:
            self.drain()

    def body_moved(self) -> None:
        self.stalled_since_s = self.host.serving.tick_s

    def body_sent(self) -> None:
        if self.closed:
            return
        response, serving = self.response, self.host.serving
        assert response is not None
        serving.requests_total += 1
        if serving.on_response is not None:
            download = self.download
            size = count_body(self, response) if download is None else download.body_bytes
            serving.report(self, response.status, size)
        self.host.finished(self)

    def drained(self) -> None:
        download = self.download
        if download is not None and not self.closed:
            download.writable = True
            if download.on_drain is not None:
                self.call(download.on_drain)

    # The end.

    def drain(self) -> None:
        """The server shuts down: a live response says goodbye."""
        download = self.download
        if download is None or self.ending:
            return
        if download.on_shutdown is not None:
            self.call(download.on_shutdown)
            return
        on_close, download.on_close = download.on_close, None
        if on_close is not None:
            self.call(on_close)
        download.finish()

    def detach(self, *, answered: bool) -> None:
        """The stream is over. Unless it was `answered`, the application is told."""
        if self.closed:
            return
        self.closed = True
        self.host.output.forget(self)
        self._release_kept()
        pending, self.pending = self.pending, None
        download = self.download
        on_close = download.on_close if download is not None else None
        if download is not None:
            download.detach()
        upload = self.upload
        if answered:
            if upload is not None:
                upload.close()
                self.upload_paused()
            return
        if pending is not None:
            self.call(pending.cancel)
        if upload is not None:
            upload.abort()
            self.upload_paused()
        if on_close is not None:
            self.call(on_close)
        if download is not None and self.response is not None:
            self.host.serving.report(self, self.response.status, download.body_bytes)

    def sweep(self, now_s: float) -> None:
        limits = self.host.serving.limits
        if self.unsent:
            if now_s - self.stalled_since_s >= limits.write_timeout_s:
                self.host.reset(self, CANCEL)
            return
        self.stalled_since_s = now_s
        if self.complete or self.response is not None:
            return  # a full-duplex session may be quiet
        if self.upload is not None and self.upload.paused:
            self.since_s = now_s  # the client is not late for what we did not ask for
        elif now_s - self.since_s >= limits.body_timeout_of(self.route):
            self.refuse(Refusal(408, "request body took too long"))


class StreamDownload:
    """The `BodyWriter` of a streamed response. A buffer must not change once it was written."""

    __slots__ = (
        "_length",
        "_stream",
        "body_bytes",
        "on_close",
        "on_drain",
        "on_shutdown",
        "writable",
    )

    def __init__(self, stream: Stream, length: int | None) -> None:
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_shutdown: Callable[[], None] | None = None
        self.body_bytes = 0
        self.writable = stream.host.output.writable
        self._stream: Stream | None = stream
        self._length = length

    def write(self, data: Buffer) -> bool:
        stream = self._stream
        if stream is None or not len(data):
            return self.writable
        self.body_bytes += len(data)
        output = stream.host.output
        self.writable = output.send(stream, data)
        if not self.writable:
            output.waiting[stream.stream_id] = stream
        return self.writable

    def finish(self) -> None:
        stream = self._stream
        if stream is None:
            return
        if self._length is not None and self._length != self.body_bytes:
            LOGGER.error("streamed response failed. id=%s written=%d", stream.id, self.body_bytes)
            stream.host.reset(stream, INTERNAL_ERROR)
            return
        self._stream = None
        self.writable = False
        self.on_close = self.on_shutdown = self.on_drain = None
        stream.host.output.end(stream)

    def abort(self) -> None:
        if self._stream is not None:
            self._stream.host.reset(self._stream, INTERNAL_ERROR)

    def detach(self) -> None:
        """Nothing is sent any more. Also unties the callbacks' reference cycles."""
        self._stream = None
        self.writable = False
        self.on_drain = self.on_close = self.on_shutdown = None
