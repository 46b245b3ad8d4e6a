"""The outgoing half of HTTP/1.1: rendered responses, and the writer of a streamed body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.server.http1_request import Exchange
from headwater.server.serving import FRAME_BYTES_MAX, Serving
from headwater.wire.http import Buffer, Header, Response, StreamedResponse

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"

# Up to here, copying a body behind its head is cheaper than giving two buffers to the kernel.
JOINED_BODY_BYTES_MAX = 32 * 1024


def has_no_body(status: int) -> bool:
    """RFC 9110 §6.4.1: these never carry content, whatever the request was."""
    return status == 204 or status == 304 or status < 200


def find_length(response: Response) -> int | None:
    """The `content-length` that the application set itself."""
    for headers in (response.headers, response.base.pairs):
        for name, value in headers:
            if name == b"content-length":
                return int(value)
    return None


def render_lines(headers: Sequence[Header]) -> bytes:
    """Field lines. ValueError if a value would start a line of its own (response splitting)."""
    lines = b""
    for header in headers:
        lines += b"%b: %b\r\n" % header
    if len(lines.splitlines()) != len(headers):
        raise ValueError("a response header contains a line break")
    return lines


def connection_line(exchange: Exchange, *, persists: bool) -> bytes:
    """RFC 9112 §9.3: persistence is the default of HTTP/1.1 and must be said in HTTP/1.0."""
    if not persists:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if exchange.http10 else b""


def render_head(serving: Serving, exchange: Exchange, response: Response, own: bytes) -> bytes:
    """A whole head. `own` are the server's lines, about the connection and the body."""
    return b"%bx-request-id: %b\r\n%b%b%b\r\n" % (
        serving.head_prefix(response.status),
        exchange.id.encode(),
        response.base.h1,
        render_lines(response.headers),
        own,
    )


def render_response(
    serving: Serving, exchange: Exchange, response: Response, persists: bool
) -> bytes | list[Buffer]:
    """All of a plain response: one piece, or several when joining them would copy a lot."""
    status = response.status
    body = response.body
    own = b"" if persists and not exchange.http10 else connection_line(exchange, persists=persists)
    if status < 200 or status == 204 or status == 304:
        # RFC 9110 §8.6: a 204 must not have a content-length; in a 304 it would be that of the
        # 200, which only the application knows.
        return render_head(serving, exchange, response, own)
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    if exchange.method == "HEAD":
        # RFC 9110 §8.6: what a GET would send, or nothing where the application did not make it.
        if size and find_length(response) is None:
            own += b"content-length: %d\r\n" % size
        return render_head(serving, exchange, response, own)
    if size > JOINED_BODY_BYTES_MAX:
        head = render_head(serving, exchange, response, own + b"content-length: %d\r\n" % size)
        return [head, body] if isinstance(body, bytes) else [head, *body]
    # The common answer, in one step: the rest of this function would copy it twice.
    return b"%bx-request-id: %b\r\n%b%b%bcontent-length: %d\r\n\r\n%b" % (
        serving.head_prefix(status),
        exchange.id.encode(),
        response.base.h1,
        render_lines(response.headers) if response.headers else b"",
        own,
        size,
        body if isinstance(body, bytes) else b"".join(body),
    )


def count_body(exchange: Exchange, response: Response) -> int:
    """How many bytes of a plain response's body were sent."""
    if exchange.method == "HEAD" or has_no_body(response.status):
        return 0
    body = response.body
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


class Sending(Protocol):
    """The part of a connection that a download steers."""

    def download_finished(self) -> None: ...

    def download_failed(self, reason: str) -> None: ...


class Download:
    """The `BodyWriter` of a streamed response.

    Until `uncork`, what is written waits behind the head, so that a short answer leaves in one
    piece. A buffer that is not `bytes` must not change once it was written.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_corked",
        "_length",
        "_serving",
        "_transport",
        "body_bytes",
        "on_close",
        "on_drain",
        "on_shutdown",
        "status",
        "writable",
    )

    def __init__(
        self,
        connection: Sending,
        transport: asyncio.Transport,
        serving: Serving,
        *,
        exchange: Exchange,
        response: StreamedResponse,
        persists: bool,
        writable: bool,
    ) -> None:
        """ValueError if the head cannot be rendered. Nothing is sent yet."""
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_shutdown: Callable[[], None] | None = None
        self.status = response.status
        self.body_bytes = 0
        self.writable = writable
        self._connection = connection
        self._transport: asyncio.Transport | None = transport
        self._serving = serving
        # RFC 9112 §6.3: a body without a length is chunked, and to HTTP/1.0 ended by closing.
        self._length = find_length(response)
        self._chunked = (
            self._length is None and not exchange.http10 and not has_no_body(response.status)
        )
        framing = connection_line(exchange, persists=persists)
        if self._chunked:
            framing += CHUNKED
        self._corked: list[Buffer] | None = [render_head(serving, exchange, response, framing)]

    def write(self, data: Buffer) -> bool:
        size = len(data)
        transport = self._transport
        # An empty chunk would end the body; a writer that is closed has nobody to tell.
        if size == 0 or transport is None:
            return self.writable
        self.body_bytes += size
        if self._corked is not None:
            self._cork(data, size)
        elif not self._chunked:
            transport.write(data)
        elif size <= FRAME_BYTES_MAX:
            transport.write(self._serving.frame_chunk(data))
        else:
            transport.writelines((b"%x\r\n" % size, data, b"\r\n"))
        return self.writable

    def finish(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._length is not None and self._length != self.body_bytes:
            reason = f"body differs from its content-length. written={self.body_bytes}"
            self._connection.download_failed(reason)
            return
        if self._chunked:
            if self._corked is not None:
                self._corked.append(LAST_CHUNK)
            else:
                transport.write(LAST_CHUNK)
        self.uncork()
        self.detach()
        self._connection.download_finished()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def finish_head(self) -> None:
        """Send the head alone, to HEAD and with a status that has no body."""
        self.uncork()
        self.detach()
        self._connection.download_finished()

    def uncork(self) -> None:
        """Send what waited behind the head."""
        corked, self._corked = self._corked, None
        if corked is None or self._transport is None:
            return
        if self.body_bytes <= JOINED_BODY_BYTES_MAX:
            self._transport.write(b"".join(corked))
        else:
            self._transport.writelines(corked)

    def detach(self) -> None:
        """Nothing reaches the transport any more. Also unties the callbacks' reference cycles."""
        self._transport = None
        self._corked = None
        self.writable = False
        self.on_drain = self.on_close = self.on_shutdown = None

    def _cork(self, data: Buffer, size: int) -> None:
        corked = self._corked
        assert corked is not None
        if self._chunked:
            corked += (b"%x\r\n" % size, data, b"\r\n")
        else:
            corked.append(data)
        # Beyond this nothing is gained, and the transport must see it to push back.
        if self.body_bytes > JOINED_BODY_BYTES_MAX:
            self.uncork()
