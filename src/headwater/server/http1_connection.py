"""One HTTP/1.1 connection: requests through the application, responses out in order.

Plain callbacks on the event loop, with no task, future or timer per request. Requests are parsed
as they come and answered one at a time (RFC 9112 §9.3.2). The parser judges what a head says,
`http1_response.py` renders answers; this module holds the turns between them, and the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

from headwater.core.pending import Pending
from headwater.server.http1_parser import RequestParser
from headwater.server.http1_request import Exchange, Refusal, Upload
from headwater.server.http1_response import (
    CONTINUE,
    Download,
    count_body,
    find_length,
    has_no_body,
    render_response,
)
from headwater.server.serving import Serving
from headwater.wire.http import Response, Route, StreamedResponse

LOGGER = logging.getLogger(__name__)

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113 §3.4

# What happens to incoming bytes.
OPENING = 0  # nothing came yet: they may be an HTTP/2 preface
PARSING = 1
HOLDING = 2  # kept until the requests before them are answered
DEAF = 3  # ignored: the last request of this connection is being answered
LINGERING = 4  # ignored: the last response is on its way
CLOSED = 5


class Http1Connection(asyncio.Protocol):
    """Created per accepted connection by `Http1Server`."""

    __slots__ = (
        "_advance_scheduled",
        "_call_soon",
        "_current",
        "_discarded_bytes",
        "_download",
        "_eof",
        "_parser",
        "_pending",
        "_phase",
        "_queue",
        "_reading",
        "_secure",
        "_serving",
        "_since_s",
        "_stalled_since_s",
        "_transport",
        "_unfed",
        "_unsent_bytes",
        "_writable",
    )

    def __init__(self, serving: Serving, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._serving = serving
        self._call_soon = call_soon
        self._transport: asyncio.Transport | None = None
        self._phase = OPENING
        self._unfed = b""
        self._secure = False

        self._queue: deque[Exchange] = deque()
        self._current: Exchange | None = None
        """The request being answered. At most one of the next two belongs to it."""
        self._pending: Pending[Response] | None = None
        self._download: Download | None = None
        self._advance_scheduled = False

        self._reading = True
        self._writable = True
        self._eof = False
        self._discarded_bytes = 0

        self._since_s = serving.tick_s
        self._unsent_bytes = 0
        self._stalled_since_s = 0.0

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the class
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._parser = RequestParser(
            self,
            self._serving,
            peer=str(peer[0]) if isinstance(peer, tuple) else "",
            secure=self._secure,
        )
        limits = self._serving.limits
        transport.set_write_buffer_limits(
            high=limits.write_buffer_bytes_high, low=limits.write_buffer_bytes_low
        )
        self._serving.connections.add(self)
        self._serving.connections_total += 1
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            self._hand_over(b"")

    def data_received(self, data: bytes) -> None:
        if self._phase != PARSING:
            data = self._receive_unparsed(data)
            if not data:
                return
        self._feed(data)

    def eof_received(self) -> bool:
        """True keeps the transport open for writing: the client may wait for its answer."""
        current = self._current
        if current is None and not self._queue:
            return False
        # A live response has no other way to learn that its reader left. TLS cannot half-close.
        if self._download is not None or self._secure:
            return False
        if current is not None and not current.complete:
            return False
        if self._queue and not self._queue[-1].complete:
            self._queue.pop()  # a body to be streamed, of which the rest will never come
            if current is None and not self._queue:
                return False
        self._eof = True
        self._reading = False
        self._deafen()
        if self._pending is not None:
            # It may also be gone, which looks the same: nothing should wait for long.
            self._call(self._pending.hurry)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        parser = self._parser
        exchange, self._current = self._current, None
        incoming = parser.incoming
        pending, self._pending = self._pending, None
        download, self._download = self._download, None
        parser.close()
        self._phase = CLOSED
        self._transport = None
        self._queue.clear()
        self._unfed = b""
        # First make sure that nothing can be written, then tell the application.
        on_close = download.on_close if download is not None else None
        if download is not None:
            download.detach()
        if pending is not None:
            self._call(pending.cancel)
        for unfinished in (exchange, incoming):
            if unfinished is not None and unfinished.upload is not None:
                unfinished.upload.abort()
        if on_close is not None:
            self._call(on_close)
        if download is not None and exchange is not None:
            self._serving.report(exchange, download.status, download.body_bytes)
        self._serving.forget(self)

    def pause_writing(self) -> None:
        self._writable = False
        if self._download is not None:
            self._download.writable = False
        self._update_reading()

    def resume_writing(self) -> None:
        self._writable = True
        download = self._download
        if download is not None:
            download.writable = True
            if download.on_drain is not None:
                self._call(download.on_drain)
        elif self._queue:
            self._schedule_advance()
        self._update_reading()

    # Bytes into the parser.

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        try:
            unfed = parser.feed(data)
            if (parser.fed_bytes or parser.url) and not parser.stopped:
                self._message_unfinished(len(data))
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if unfed:
            self._unfed = unfed
            self._phase = HOLDING

    def _message_unfinished(self, size: int) -> None:
        """A read ended inside a message: check its bounds, note the time."""
        parser = self._parser
        parser.check_bounds()
        exchange = parser.incoming
        # A body's clock starts again with every piece, a head's only with its first bytes.
        if exchange is not None or parser.fed_bytes <= size:
            self._since_s = self._serving.tick_s
        if exchange is None:
            return
        if self._current is None and not self._queue:
            self._send_continue(exchange)
        elif exchange is not self._current:
            if exchange.body_bytes > self._serving.limits.pipeline_bytes_max:
                parser.blocked = True
            self._update_reading()

    def _receive_unparsed(self, data: bytes) -> bytes:
        """Deal with bytes in any phase but PARSING. Returns those to parse after all."""
        if self._phase == OPENING:
            return self._receive_first(data)
        if self._phase == HOLDING:
            self._unfed += data
        elif self._phase != CLOSED:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > self._serving.limits.linger_bytes_max:
                if self._phase == LINGERING:
                    self.abort()
                else:
                    self._update_reading()
        return b""

    def _receive_first(self, data: bytes) -> bytes:
        """RFC 9113 §3.3: a client with prior knowledge opens with the HTTP/2 preface."""
        first = self._unfed + data
        self._unfed = b""
        if first.startswith(HTTP2_PREFACE):
            if self._serving.h2_factory is None:
                self._refuse(Refusal(505, "HTTP/2 is not served here"))
            else:
                self._hand_over(first)
            return b""
        if HTTP2_PREFACE.startswith(first):
            self._unfed = first
            return b""
        self._phase = PARSING
        return first

    def _hand_over(self, data: bytes) -> None:
        """Give the transport to HTTP/2. Nothing of this connection remains."""
        transport = self._transport
        factory = self._serving.h2_factory
        if transport is None or factory is None:
            return
        self._phase = CLOSED
        self._transport = None
        self._serving.connections.discard(self)
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if data:
            protocol.data_received(data)

    # The parser's reports.

    def head_received(self, exchange: Exchange) -> None:
        try:
            answer = self._serving.application.begin(exchange)
        except Exception as error:
            answer = self._serving.render_failure(exchange, error)
        if isinstance(answer, Route):
            exchange.route = answer
            if exchange.has_body:
                self._accept_body(exchange, answer)
        elif exchange.has_body:
            raise Refusal(answer.status, "refused before its body", answer)
        else:
            exchange.refusal = answer

    def _accept_body(self, exchange: Exchange, route: Route) -> None:
        exchange.body_bytes_max = route.body_bytes_max
        if exchange.length > route.body_bytes_max:
            raise Refusal(413, "request body is too large")
        if not self._parser.fed_bytes:
            self._parser.fed_bytes = 1  # the read may end inside this body too
        if route.streams_body:
            exchange.body_reader = exchange.upload = Upload(self)
            self._take_turn(exchange)

    def message_received(self, exchange: Exchange) -> None:
        if not exchange.keep_alive:
            self._deafen()
        if exchange.upload is None:
            self._take_turn(exchange)
        else:
            exchange.upload.end()

    # Turns.

    def _take_turn(self, exchange: Exchange) -> None:
        queue = self._queue
        if self._current is None and self._writable and not queue:
            self._dispatch(exchange)
            return
        queue.append(exchange)
        if len(queue) >= self._serving.limits.pipeline_requests_max:
            self._parser.blocked = True
        self._update_reading()

    def _schedule_advance(self) -> None:
        # Not at once: the caller may be a commit that completes its answers one by one, and the
        # next request must not run in the middle of it.
        if not self._advance_scheduled:
            self._advance_scheduled = True
            self._call_soon(self._advance)

    def _advance(self) -> None:
        """Take up what waited for the response before it."""
        queue = self._queue
        while queue and self._current is None and self._writable:
            self._dispatch(queue.popleft())
        self._advance_scheduled = False
        if queue or self._transport is None:
            return
        if self._eof and self._current is None:
            self._close()
            return
        parser = self._parser
        parser.blocked = False
        if self._phase == HOLDING:
            unfed, self._unfed = self._unfed, b""
            self._phase = PARSING
            self._feed(unfed)
        incoming = parser.incoming
        if incoming is not None and self._current is None:
            self._send_continue(incoming)
        self._update_reading()

    def _send_continue(self, exchange: Exchange) -> None:
        """RFC 9110 §10.1.1: only when the body is wanted, and not if it is already coming."""
        if exchange.expects_continue:
            exchange.expects_continue = False
            if exchange.body_bytes == 0 and self._transport is not None:
                self._transport.write(CONTINUE)

    def _dispatch(self, exchange: Exchange) -> None:
        self._current = exchange
        upload = exchange.upload
        answer: Response | Pending[Response] | None = exchange.refusal
        if answer is None:
            if upload is not None:
                # Its response may start before its body ends: a 100 could not follow a 200.
                self._send_continue(exchange)
            assert exchange.route is not None
            try:
                answer = exchange.route.handle(exchange)
            except Exception as error:
                answer = self._serving.render_failure(exchange, error)
        if isinstance(answer, Response):
            self._respond(answer)
        else:
            self._pending = answer
            answer.deliver(self._settle)
            if self._eof:
                self._call(answer.hurry)
        if upload is not None and self._current is exchange:
            upload.begin()

    def _settle(self, outcome: Response | Exception) -> None:
        """What the pending answer came to. Called by the commit, which must not see us fail."""
        self._pending = None
        exchange = self._current
        if exchange is None:
            return
        if not isinstance(outcome, Response):
            outcome = self._serving.render_failure(exchange, outcome)
        self._respond(outcome)

    # What goes wrong.

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, in its turn, what cannot be read as a request. It is the last answer."""
        exchange = self._parser.incoming
        self._deafen()
        if exchange is None:
            exchange = self._parser.make_blank()
        exchange.keep_alive = False
        response = refusal.response or self._serving.render_refusal(
            refusal.status, refusal.message, exchange
        )
        if exchange is self._current:
            self._fail_current(exchange, response)
            return
        exchange.refusal = response
        if exchange in self._queue:
            return  # its body was to be streamed: it is refused when its turn comes
        if self._current is None and not self._queue:
            self._dispatch(exchange)
        else:
            self._queue.append(exchange)

    def _fail_current(self, exchange: Exchange, response: Response) -> None:
        """The request being answered went wrong while its body was streamed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._call(pending.cancel)
        if exchange.upload is not None:
            exchange.upload.abort()
        if self._current is not exchange:
            return
        if self._download is None:
            self._respond(response)
        else:
            self.abort()  # the status is out: only a cut says that the body is not whole

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call into the application. What it raises ends this connection and no other."""
        try:
            callback(*arguments)
        except Exception:
            LOGGER.exception("the application's callback raised")
            self.abort()

    # Responses.

    def _respond(self, response: Response) -> None:
        exchange = self._current
        transport = self._transport
        if exchange is None or transport is None:
            return
        try:
            if isinstance(response, StreamedResponse):
                self._start_download(exchange, response, transport)
            else:
                self._send(exchange, response, transport)
        except Exception:
            # What can be answered with a 500 was. Something may have left already.
            LOGGER.exception("a response could not be sent. id=%s", exchange.id)
            self.abort()

    def _send(self, exchange: Exchange, response: Response, transport: asyncio.Transport) -> None:
        serving = self._serving
        persists = exchange.keep_alive and exchange.complete and not serving.draining
        try:
            rendered = render_response(serving, exchange, response, persists)
        except Exception as error:
            response = serving.render_failure(exchange, error)
            rendered = render_response(serving, exchange, response, persists)
        if isinstance(rendered, bytes):
            transport.write(rendered)
        else:
            transport.writelines(rendered)
        if serving.on_response is not None:
            serving.report(exchange, response.status, count_body(exchange, response))
        self._finish(exchange, persists=persists)

    def _start_download(
        self, exchange: Exchange, response: StreamedResponse, transport: asyncio.Transport
    ) -> None:
        bodiless = has_no_body(response.status) or exchange.method == "HEAD"
        try:
            if exchange.http10 and not bodiless and find_length(response) is None:
                exchange.keep_alive = False
            download = Download(
                self,
                transport,
                self._serving,
                exchange=exchange,
                response=response,
                persists=exchange.keep_alive and not self._serving.draining,
                writable=self._writable,
            )
        except Exception as error:
            self._send(exchange, self._serving.render_failure(exchange, error), transport)
            return
        self._download = download
        if bodiless:
            download.finish_head()
        else:
            self._call(response.start, download)
            download.uncork()
            if self._serving.draining:
                self.drain()

    def download_finished(self) -> None:
        exchange = self._current
        download, self._download = self._download, None
        if exchange is None or download is None:
            return
        persists = exchange.keep_alive and exchange.complete and not self._serving.draining
        self._serving.report(exchange, download.status, download.body_bytes)
        self._finish(exchange, persists=persists)

    def download_failed(self, reason: str) -> None:
        LOGGER.error("streamed response failed. reason=%s", reason)
        self.abort()

    def upload_paused(self) -> None:
        self._since_s = self._serving.tick_s  # the client is not late for what we did not read
        self._update_reading()

    def upload_failed(self, error: Exception) -> None:
        exchange = self._current
        if exchange is None:
            LOGGER.error("the application's callback raised", exc_info=error)
            return
        self._deafen()
        self._fail_current(exchange, self._serving.render_failure(exchange, error))

    def _finish(self, exchange: Exchange, *, persists: bool) -> None:
        """A response is complete: it is the next request's turn, or the end."""
        serving = self._serving
        self._current = None
        self._since_s = serving.tick_s
        serving.requests_total += 1
        if not persists:
            self._end(exchange)
        elif self._queue or self._parser.blocked or self._parser.incoming is not None:
            self._schedule_advance()
        elif self._eof:
            self._close()

    # The end.

    def _end(self, exchange: Exchange) -> None:
        """The last response was written. RFC 9112 §9.6."""
        self._queue.clear()
        self._deafen()
        if exchange.upload is not None:
            exchange.upload.close()
        if self._eof or (exchange.complete and not exchange.keep_alive):
            self._close()  # the client said that this was its last request
            return
        # It may still be sending. Closing now would answer that with a reset, which can destroy
        # the response before it is read; so stop sending, and discard for a while.
        self._phase = LINGERING
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if transport.can_write_eof():
                transport.write_eof()
            self._update_reading()

    def _deafen(self) -> None:
        self._parser.stop()
        self._unfed = b""
        if self._phase < DEAF:
            self._phase = DEAF

    def _close(self) -> None:
        self._deafen()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._queue.clear()
        self._deafen()
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """What is running learns from `serving.draining` that its response is the last."""
        download = self._download
        if download is None:
            if self._phase <= PARSING and self._is_idle():
                self._close()
            return
        if download.on_shutdown is not None:
            self._call(download.on_shutdown)
            return
        on_close, download.on_close = download.on_close, None
        if on_close is not None:
            self._call(on_close)
        download.finish()

    def _is_idle(self) -> bool:
        unfinished = self._unfed or self._parser.is_unfinished()
        return self._current is None and not self._queue and not unfinished

    # Back-pressure and time.

    def _update_reading(self) -> None:
        """Read or not: as the peer, the queue and the upload can take it."""
        transport = self._transport
        if transport is None or self._eof:
            return
        if self._phase == LINGERING:
            wanted = True
        elif self._phase == DEAF:
            wanted = self._discarded_bytes <= self._serving.limits.linger_bytes_max
        else:
            incoming = self._parser.incoming
            upload = incoming.upload if incoming is not None else None
            held_back = self._parser.blocked or (upload is not None and upload.paused)
            wanted = self._writable and not held_back
        if wanted is not self._reading:
            self._reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def sweep(self, now_s: float) -> None:
        transport = self._transport
        if transport is None:
            return
        unsent_bytes = transport.get_write_buffer_size()
        if not unsent_bytes:
            self._unsent_bytes = 0
            self._sweep_input(now_s - self._since_s)
            return
        if not self._unsent_bytes or unsent_bytes < self._unsent_bytes:
            self._stalled_since_s = now_s  # the peer read something since the last sweep
        elif now_s - self._stalled_since_s >= self._serving.limits.write_timeout_s:
            self.abort()
        self._unsent_bytes = unsent_bytes
        self._since_s = now_s

    def _sweep_input(self, waited_s: float) -> None:
        limits = self._serving.limits
        if self._phase == LINGERING:
            if waited_s >= limits.linger_timeout_s:
                self._close()
        elif self._parser.incoming is not None:
            incoming = self._parser.incoming
            if waited_s >= limits.body_timeout_of(incoming.route) and self._awaits_body(incoming):
                self._refuse(Refusal(408, "request body took too long"))
        elif self._current is not None or self._queue or self._phase > PARSING:
            pass  # the application takes its time, or the transport does to close
        elif self._is_idle():
            if waited_s >= limits.keep_alive_timeout_s:
                self._close()
        elif waited_s >= limits.header_timeout_s:
            self._refuse(Refusal(408, "request head took too long"))

    def _awaits_body(self, exchange: Exchange) -> bool:
        """True if the client is the one to act. A full-duplex session may be quiet."""
        if exchange is not self._current:
            return self._current is None and not self._queue
        upload = exchange.upload
        return self._download is None and upload is not None and not upload.paused
