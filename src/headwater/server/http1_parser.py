"""Bytes to requests: llhttp through httptools, with the bounds that it does not have.

The callbacks are plain methods, called by the parser in the middle of `feed`. They raise
`Refusal`, which httptools wraps and `feed` finds again.
"""

from __future__ import annotations

import re
from typing import Protocol

import httptools

from headwater.server.http1_request import (
    Exchange,
    Refusal,
    add_repeated,
    check_host,
    parse_expectation,
    parse_framing,
    parse_request_id,
    parse_target,
    parse_version,
)
from headwater.server.serving import Serving

_REQUEST_LINE = re.compile(rb"(?:\r\n)*[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/1\.[01]\r")

# httptools cannot be stopped inside a read, so a longer read is given to it in slices: that
# bounds how many requests are parsed before `blocked` is looked at.
SLICE_BYTES = 16 * 1024

# A chunked body may spend this many bytes of framing per byte of content, beyond the room for
# trailers. Chunks of one byte spend five; chunk extensions without end are refused.
CHUNK_OVERHEAD_MAX = 16


class _Ignored(Exception):
    """Stops the parser: what follows the last request is not looked at."""


class Receiver(Protocol):
    """What the parser reports to."""

    def head_received(self, exchange: Exchange) -> None:
        """May raise Refusal."""

    def message_received(self, exchange: Exchange) -> None: ...


class RequestParser:
    """Reports each head and each whole message of one connection to its receiver."""

    __slots__ = (
        "_headers",
        "_host",
        "_parser",
        "_peer",
        "_receiver",
        "_repeated",
        "_replaying",
        "_secure",
        "_serving",
        "blocked",
        "fed_bytes",
        "incoming",
        "stopped",
        "url",
    )

    def __init__(self, receiver: Receiver, serving: Serving, *, peer: str, secure: bool) -> None:
        self._receiver = receiver
        self._serving = serving
        self._peer = peer
        self._secure = secure
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._repeated = 0
        self._replaying = False
        self._host = b""  # the last one found valid
        self.url = b""  # of the head being parsed
        # Of the message being parsed. 0 between messages, except that a message may begin in
        # the read that ended the one before: then `url` or `incoming` tells.
        self.fed_bytes = 0
        self.incoming: Exchange | None = None
        """The request whose head is complete and whose body is not."""
        self.blocked = False
        """Set to leave the rest of a long read unparsed."""
        self.stopped = False
        """Set when no further request is wanted from this connection."""

    def feed(self, data: bytes) -> bytes:
        """Parse `data`. Returns what was not parsed because `blocked` was set meanwhile."""
        if len(data) > SLICE_BYTES:
            return self._feed_slices(data)
        self._feed(data)
        return b""

    def _feed_slices(self, data: bytes) -> bytes:
        view = memoryview(data)
        start = 0
        while start < len(data) and not self.stopped:
            if self.blocked:
                return data[start:]
            end = self._slice_end(data, start)
            self._feed(view[start:end])
            start = end
        return b""

    def stop(self) -> None:
        """Report nothing more."""
        self.stopped = True
        self.incoming = None

    def close(self) -> None:
        """The connection is gone. Unties the reference cycles with httptools and the receiver."""
        self.stop()
        del self._parser, self._receiver

    def make_blank(self) -> Exchange:
        """What stands for a request that could not be read."""
        exchange = Exchange("", {}, self._peer, self._secure, False)
        exchange.id = self._serving.next_request_id()
        return exchange

    def is_unfinished(self) -> bool:
        """True inside a message."""
        return bool(self.fed_bytes or self.url or self.incoming is not None)

    def check_bounds(self) -> None:
        """Refuse an unfinished message that already took too much."""
        limits = self._serving.limits
        exchange = self.incoming
        if exchange is None:
            if self.fed_bytes > limits.header_bytes_max + limits.request_line_bytes_max:
                raise Refusal(431, "request head is too large")
        elif exchange.chunked:
            overhead_max = CHUNK_OVERHEAD_MAX * exchange.body_bytes + SLICE_BYTES
            if self.fed_bytes - exchange.body_bytes > overhead_max + limits.header_bytes_max:
                raise Refusal(400, "chunked body has too much framing")

    def _slice_end(self, data: bytes, start: int) -> int:
        """Where a part of the message ends that is known to, so that a body stays in one piece."""
        exchange = self.incoming
        if exchange is None:
            head_end = data.find(b"\r\n\r\n", start, start + SLICE_BYTES)
            if head_end >= 0:
                return head_end + 4
        elif not exchange.chunked:
            return start + exchange.length - exchange.body_bytes
        return start + SLICE_BYTES

    def _feed(self, data: bytes | memoryview) -> None:
        self.fed_bytes += len(data)
        rest: bytes | memoryview | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, _Ignored):
                raise cause from None
        except httptools.HttpParserError as error:
            if not self.stopped:
                raise self._explain(error, data) from None
        # Not in the handler above: an exception being handled would take the place of the one
        # that httptools leaves in `__context__`.
        if rest is not None and not self.stopped:
            self._ignore_upgrade(rest)

    def _ignore_upgrade(self, rest: bytes | memoryview) -> None:
        """Go on after a request that asked for another protocol. RFC 9110 §7.8 lets us ignore it.

        Clients that offer `h2c` do so on ordinary requests. llhttp stops after such a head and
        takes what follows for the other protocol, so a new parser gets the rest; when a body is
        due, it first gets a head that announces the same one.
        """
        self._parser = httptools.HttpRequestParser(self)
        exchange = self.incoming
        if exchange is not None:
            exchange.replayed = True
            framing = b"content-length: %d" % exchange.length
            if exchange.chunked:
                framing = b"transfer-encoding: chunked"
            self._replaying = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        if rest:
            self._feed(rest)

    # The callbacks of httptools.

    def on_url(self, url: bytes) -> None:
        url = self.url + url
        if len(url) > self._serving.limits.request_line_bytes_max:
            raise Refusal(414, "request target is too long")
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        name = name.lower()
        value = value.rstrip(b" \t")  # llhttp strips only the whitespace in front
        if name not in headers:
            headers[name] = value
            return
        self._repeated += 1
        if self._repeated > self._serving.limits.header_count_max:
            raise Refusal(431, "too many headers")
        add_repeated(headers, name, value)

    def on_headers_complete(self) -> None:
        headers = self._headers
        url = self.url
        self._headers = {}  # trailers land here, and are dropped (RFC 9110 §6.5.1)
        self.url = b""
        if self._replaying:
            self._replaying = False
            return
        if self.stopped:
            raise _Ignored
        parser = self._parser
        exchange = Exchange(
            parser.get_method().decode(),
            headers,
            self._peer,
            self._secure,
            parser.should_keep_alive(),
        )
        given_id = headers.get(b"x-request-id")
        exchange.id = parse_request_id(given_id) or self._serving.next_request_id()
        self.incoming = exchange
        # Without a connection header, only HTTP/1.1 is persistent: the usual request need not
        # ask for the version, which httptools formats as a string.
        if not exchange.keep_alive or b"connection" in headers:
            parse_version(exchange, parser.get_http_version())
        serving = self._serving
        if serving.on_response is not None:
            exchange.received_ns = int(serving.clock.monotonic_s() * 1e9)
        self._check_size(headers)
        host = headers.get(b"host")
        parse_target(exchange, url)
        if host is None or host != self._host:
            check_host(exchange, host)
            self._host = host or b""
        length = headers.get(b"content-length")
        encoding = headers.get(b"transfer-encoding")
        if length is not None or encoding is not None:
            parse_framing(exchange, length, encoding)
        expect = headers.get(b"expect")
        if expect is not None:
            parse_expectation(exchange, expect)
        self._receiver.head_received(exchange)

    def on_body(self, data: bytes) -> None:
        exchange = self.incoming
        if exchange is None:
            raise _Ignored
        exchange.body_bytes += len(data)
        if exchange.body_bytes > exchange.body_bytes_max:
            raise Refusal(413, "request body is too large")
        if exchange.upload is None:
            exchange.add_piece(data)
        else:
            exchange.upload.add_piece(data)

    def on_message_complete(self) -> None:
        exchange = self.incoming
        self._headers.clear()
        self._repeated = 0
        if exchange is None:
            raise _Ignored
        if exchange.has_body:
            if not exchange.replayed and self._parser.should_upgrade():
                return  # its body is still to come: see _ignore_upgrade
            exchange.join_pieces()
        self.fed_bytes = 0
        self.incoming = None
        exchange.complete = True
        if not exchange.keep_alive:
            self.stopped = True
        self._receiver.message_received(exchange)

    def _check_size(self, headers: dict[bytes, bytes]) -> None:
        limits = self._serving.limits
        if len(headers) + self._repeated > limits.header_count_max:
            raise Refusal(431, "too many headers")
        # Only a head that came with this many bytes can be too large; then count exactly.
        if self.fed_bytes > limits.header_bytes_max:
            total = sum(len(name) + len(value) + 4 for name, value in headers.items())
            if total > limits.header_bytes_max:
                raise Refusal(431, "request headers are too large")

    def _explain(self, error: Exception, data: bytes | memoryview) -> Refusal:
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            # RFC 9110 §9.1: 501 if the line is well formed and only its method is unknown here.
            # It can be looked at only if it begins with this read.
            if self.fed_bytes == len(data) and _REQUEST_LINE.match(data):
                return Refusal(501, "unknown method")
        elif str(error) == "Invalid HTTP version":
            return Refusal(505, "HTTP version is not supported")
        return Refusal(400, f"malformed request: {error}")
