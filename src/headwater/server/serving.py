"""What every connection of one server shares: limits, the second, request ids, framed bytes.

Nothing here knows a socket. HTTP/1.1 and HTTP/2 connections hold the same `Serving`, so that one
sweep and one drain reach them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from itertools import count
from typing import Protocol

from headwater.engine.clock import Clock
from headwater.wire.http import Application, Buffer, Request, Response, Route

LOGGER = logging.getLogger(__name__)

KIB = 1024

FRAME_BYTES_MAX = 16 * KIB
"""Chunks up to this size are copied into one piece with their framing; larger ones are not."""

ResponseHook = Callable[[Request, int, int], None]
"""Called with the request, the status and the body bytes sent, once a response is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much one connection may ask for, and how long it may take, to the second."""

    request_line_bytes_max: int = 8 * KIB  # 414
    header_bytes_max: int = 32 * KIB  # 431
    header_count_max: int = 100  # 431
    header_timeout_s: float = 10.0  # first byte of a head to its last: 408
    body_timeout_s: float = 30.0  # without a byte of the body: 408
    keep_alive_timeout_s: float = 75.0  # between requests, and before the first
    write_timeout_s: float = 60.0  # output waits and the peer reads nothing: cut off
    write_buffer_bytes_high: int = 256 * KIB  # `write` returns False above it
    write_buffer_bytes_low: int = 64 * KIB  # `on_drain` is called below it
    pipeline_requests_max: int = 16  # parsed ahead of the one being answered
    pipeline_bytes_max: int = 64 * KIB  # of a body read ahead of the answer before it
    linger_bytes_max: int = 256 * KIB  # discarded after a last response, so it can be read
    linger_timeout_s: float = 2.0

    def body_timeout_of(self, route: Route | None) -> float:
        """How long a client may send nothing of the body that this route takes."""
        if route is None or route.body_timeout_s is None:
            return self.body_timeout_s
        return route.body_timeout_s


class Connection(Protocol):
    """What a server asks of each of its connections."""

    def sweep(self, now_s: float) -> None:
        """End whatever took too long."""

    def drain(self) -> None:
        """Finish what is running, start nothing new, then close."""

    def abort(self) -> None:
        """Cut the connection now."""


class Serving:
    """Shared by the connections of one server."""

    __slots__ = (
        "application",
        "clock",
        "connections",
        "connections_total",
        "date",
        "draining",
        "h2_factory",
        "head_prefixes",
        "limits",
        "on_empty",
        "on_response",
        "requests_total",
        "tick_s",
        "_framed",
        "_framed_source",
        "_request_id_prefix",
        "_request_numbers",
        "_second",
    )

    def __init__(
        self,
        application: Application,
        *,
        clock: Clock,
        limits: ServerLimits,
        on_response: ResponseHook | None,
        h2_factory: Callable[[], asyncio.Protocol] | None,
    ) -> None:
        self.application = application
        self.clock = clock
        self.limits = limits
        self.on_response = on_response
        self.h2_factory = h2_factory
        self.connections: set[Connection] = set()
        self.connections_total = 0
        self.requests_total = 0
        self.draining = False
        self.on_empty: Callable[[], None] | None = None
        # Every timestamp a connection keeps is a copy of this one, written once per sweep: a
        # request then costs no clock read, and a timeout is late by a second at most.
        self.tick_s = 0.0
        self.date = b""
        self.head_prefixes: dict[int, bytes] = {}
        self._second = -1
        self._framed_source = b""
        self._framed = b""
        self._request_id_prefix = clock.random_bytes(6).hex() + "-"
        self._request_numbers = count(1)
        self.refresh()

    def refresh(self) -> None:
        """Read the clocks. Called once per second."""
        self.tick_s = self.clock.monotonic_s()
        second = self.clock.now_ms() // 1000
        if second != self._second:
            self._second = second
            self.date = formatdate(second, usegmt=True).encode()
            self.head_prefixes.clear()

    def head_prefix(self, status: int) -> bytes:
        """The status line and `date`, which are the same for a second. RFC 9110 §6.6.1."""
        prefix = self.head_prefixes.get(status)
        if prefix is None:
            prefix = b"HTTP/1.1 %d %b\r\ndate: %b\r\n" % (status, _reason(status), self.date)
            self.head_prefixes[status] = prefix
        return prefix

    def next_request_id(self) -> str:
        return self._request_id_prefix + hex(next(self._request_numbers))[2:]

    def render_refusal(self, status: int, message: str, request: Request | None = None) -> Response:
        """The application's answer to what it was not asked, or a bare one if it has none."""
        try:
            return self.application.refuse(status, message, request)
        except Exception:
            LOGGER.exception("the application could not render a refusal. status=%d", status)
            return Response(status, body=message.encode())

    def render_failure(self, request: Request, error: Exception) -> Response:
        """Log what the application did not expect. The client learns the request's id only."""
        LOGGER.error(
            "request failed. id=%s method=%s path=%s",
            request.id,
            request.method,
            request.path,
            exc_info=error,
        )
        return self.render_refusal(500, "internal error", request)

    def report(self, request: Request, status: int, body_bytes: int) -> None:
        """Tell the hook of a complete response."""
        if self.on_response is not None:
            try:
                self.on_response(request, status, body_bytes)
            except Exception:
                LOGGER.exception("the response hook raised. id=%s", request.id)

    def frame_chunk(self, data: Buffer) -> bytes:
        """`data` as one chunk of a chunked body. RFC 9112 §7.1.

        Live delivery writes one object to every follower of a stream, so the last one framed is
        remembered by identity: it is framed once, and the send buffers of slow followers share
        the framed bytes instead of holding a copy each.
        """
        if data is self._framed_source:
            return self._framed
        framed = b"".join((b"%x\r\n" % len(data), data, b"\r\n"))
        if type(data) is bytes:  # the other kinds of buffer may change under the same identity
            self._framed_source = data
            self._framed = framed
        return framed

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()


# What RFC 9110 §15.5 calls them; older Pythons have the names from before.
_RENAMED = {
    413: b"Content Too Large",
    414: b"URI Too Long",
    416: b"Range Not Satisfiable",
    422: b"Unprocessable Content",
}


def _reason(status: int) -> bytes:
    try:
        return _RENAMED.get(status) or HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
