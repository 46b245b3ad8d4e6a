"""The small request/response interface between the HTTP servers and the dialects.

HTTP/1.1 and HTTP/2 both speak it, so a route never knows which one carried it. Header names are
lower-case bytes on the way in; values are bytes as they came. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headwater.core.access import Grant
from headwater.core.pending import Pending

Header = tuple[bytes, bytes]
Buffer = bytes | bytearray | memoryview


class BodyReader(Protocol):
    """The incoming half of a request whose route asked to stream it."""

    on_data: Callable[[bytes], None] | None
    on_end: Callable[[], None] | None
    on_abort: Callable[[], None] | None
    """The client went away, or sent a malformed body, before the end."""

    def pause(self) -> None:
        """Stop reading from the client: back-pressure."""

    def resume(self) -> None: ...


class BodyWriter(Protocol):
    """The outgoing half of a streamed response."""

    on_drain: Callable[[], None] | None
    """Called when a slow client has caught up after `write` returned False."""
    on_close: Callable[[], None] | None
    """Called once if the client goes away before `finish`."""
    on_shutdown: Callable[[], None] | None
    """If set, called instead of `on_close` when the server drains: say goodbye, then `finish`."""

    def write(self, data: Buffer) -> bool:
        """Send `data`. False means the client is slow: write no more until `on_drain`."""

    def finish(self) -> None:
        """End the body. Nothing may be written afterwards."""

    def abort(self) -> None:
        """Cut the connection, so that the client can tell the body is not whole."""


class Request:
    """One request. `path` is the raw, still percent-encoded path; `query` what follows `?`."""

    __slots__ = (
        "body",
        "body_reader",
        "grant",
        "headers",
        "id",
        "method",
        "path",
        "peer",
        "query",
        "received_ns",
        "secure",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[bytes, bytes],
        *,
        body: bytes = b"",
        peer: str = "",
        secure: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.body_reader: BodyReader | None = None
        self.grant: Grant | None = None
        """What its access token permits; None on a server that asks for none."""
        self.peer = peer
        self.secure = secure
        self.id = ""
        self.received_ns = 0


class HeaderBlock:
    """Headers that never change, rendered once for HTTP/1.1 and kept as pairs for HTTP/2."""

    __slots__ = ("h1", "pairs")

    def __init__(self, pairs: Iterable[Header]) -> None:
        self.pairs = tuple(pairs)
        self.h1 = b"".join(b"%b: %b\r\n" % pair for pair in self.pairs)

    def extended(self, *pairs: Header) -> HeaderBlock:
        return HeaderBlock((*self.pairs, *pairs))


NO_HEADERS = HeaderBlock(())


class Response:
    """A whole answer. `base` holds the constant headers, `headers` the ones of this answer.

    The server adds `content-length`, `date`, and the headers of its own (request id, connection).
    """

    __slots__ = ("base", "body", "headers", "status")

    def __init__(
        self,
        status: int,
        headers: tuple[Header, ...] | list[Header] = (),
        body: bytes | list[Buffer] = b"",
        *,
        base: HeaderBlock = NO_HEADERS,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.base = base

    def __repr__(self) -> str:
        return f"Response({self.status})"


class StreamedResponse(Response):
    """An answer whose body is written as it comes. `start` is called once the head has left."""

    __slots__ = ("start",)

    def __init__(
        self,
        status: int,
        headers: tuple[Header, ...] | list[Header],
        start: Callable[[BodyWriter], None],
        *,
        base: HeaderBlock = NO_HEADERS,
    ) -> None:
        super().__init__(status, headers, b"", base=base)
        self.start = start


Answer = Response | Pending[Response]


class Route:
    """What the application wants done with a request, decided when its headers are complete."""

    __slots__ = ("body_bytes_max", "body_timeout_s", "handle", "streams_body")

    def __init__(
        self,
        handle: Callable[[Request], Answer],
        *,
        body_bytes_max: int,
        streams_body: bool = False,
        body_timeout_s: float | None = None,
    ) -> None:
        self.handle = handle
        self.body_bytes_max = body_bytes_max
        self.streams_body = streams_body
        self.body_timeout_s = body_timeout_s
        """How long the client may send nothing of its body; None as the server has it."""

    def with_handle(self, handle: Callable[[Request], Answer]) -> Route:
        """The same route, answered by another function."""
        return Route(
            handle,
            body_bytes_max=self.body_bytes_max,
            streams_body=self.streams_body,
            body_timeout_s=self.body_timeout_s,
        )


class Application(Protocol):
    """What an HTTP server serves."""

    def begin(self, request: Request) -> Route | Response:
        """Called when the headers are complete.

        A Response refuses the request before its body is read (no `100 Continue` is sent; the
        connection is closed if a body was announced). A Route is called with the whole body in
        `request.body`, or at once with `request.body_reader` when it streams the body.
        """

    def refuse(self, status: int, message: str, request: Request | None = None) -> Response:
        """The answer to what is not a valid request: 400, 408, 413, 414, 431, 501, 505.

        `request` is as much of it as is known, if there is anything.
        """
