"""One HTTP/1.1 request: what its head may say, and how its body is kept or streamed.

No I/O. What llhttp has already refused (a length beside a coding, bad chunk sizes, folded lines,
bare CR or LF, whitespace before a colon) is not checked again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headwater.wire.http import Request, Response, Route

# RFC 9112 §3.2: anything else in Host is a reason to answer 400. The set is RFC 3986's
# `uri-host [":" port]`; it keeps `@`, `/`, `?` and `#` out of URLs the application may build.
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_SCHEME = re.compile(r"https?://", re.IGNORECASE)

# A second value of these is either an attack or a broken proxy; which of the two counts is a
# guess that two parties make differently. RFC 9112 §3.2, §6.3; RFC 9110 §11.6.2.
SINGLE_VALUED = frozenset(
    (b"authorization", b"content-length", b"host", b"transfer-encoding", b"expect")
)

SMALL_PIECE_BYTES = 4096


class Refusal(Exception):
    """The request is not acceptable as HTTP. Becomes the last response of its connection."""

    def __init__(self, status: int, message: str, response: Response | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.response = response


class Exchange(Request):
    """A request, and what its connection must remember to answer it."""

    __slots__ = (
        "body_bytes",
        "body_bytes_max",
        "chunked",
        "complete",
        "expects_continue",
        "has_body",
        "http10",
        "keep_alive",
        "length",
        "pieces",
        "refusal",
        "replayed",
        "route",
        "upload",
    )

    def __init__(
        self, method: str, headers: dict[bytes, bytes], peer: str, secure: bool, keep_alive: bool
    ) -> None:
        # Spelled out instead of super().__init__: this runs once per request.
        self.method = method
        self.path = ""
        self.query = ""
        self.headers = headers
        self.body = b""
        self.body_reader = None
        self.grant = None
        self.peer = peer
        self.secure = secure
        self.id = ""
        self.received_ns = 0
        self.keep_alive = keep_alive
        self.http10 = False
        self.has_body = False
        self.complete = False
        self.route: Route | None = None
        self.refusal: Response | None = None
        self.upload: Upload | None = None

    def announce_body(self) -> None:
        """The head says that a body follows; what a body needs is set only then."""
        self.has_body = True
        self.body_bytes = 0
        self.body_bytes_max = 0
        self.chunked = False
        self.length = 0
        self.expects_continue = False
        self.replayed = False
        self.pieces: list[bytes | bytearray] | None = None

    def add_piece(self, data: bytes) -> None:
        """Keep a piece of the body. The usual body is one piece and is never copied."""
        if not self.body:
            self.body = data
            return
        if self.pieces is None:
            self.pieces = [self.body]
        # Many tiny pieces would cost fifty bytes each to remember, so they are gathered.
        if len(data) >= SMALL_PIECE_BYTES:
            self.pieces.append(data)
            return
        last = self.pieces[-1]
        if type(last) is bytearray:
            last += data
        else:
            self.pieces.append(bytearray(data))

    def join_pieces(self) -> None:
        if self.pieces is not None:
            self.body = b"".join(self.pieces)
            self.pieces = None


class Reading(Protocol):
    """The part of a connection that an upload steers."""

    def upload_paused(self) -> None:
        """Called when the upload was paused or resumed."""

    def upload_failed(self, error: Exception) -> None:
        """Called when the application's callback raised."""


class Upload:
    """The `BodyReader` of a route that streams its body.

    What arrives while it is paused, or before `on_data` is set, is kept (at most one read, since
    the connection stops reading) and handed over by `resume`.
    """

    __slots__ = (
        "_connection",
        "_delivering",
        "_ended",
        "_finished",
        "_kept",
        "on_abort",
        "on_data",
        "on_end",
        "paused",
    )

    def __init__(self, connection: Reading) -> None:
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_abort: Callable[[], None] | None = None
        self.paused = True
        self._connection = connection
        self._kept: deque[bytes] = deque()
        self._delivering = False
        self._ended = False
        self._finished = False

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self._connection.upload_paused()

    def resume(self) -> None:
        self.paused = False
        self._deliver()
        self._connection.upload_paused()

    def begin(self) -> None:
        """The application has the request. Without `on_data`, wait until it calls `resume`."""
        if self.on_data is not None:
            self.resume()
        else:
            self._connection.upload_paused()

    def count_kept(self) -> int:
        """How many bytes wait here: what HTTP/2 gives no window back for yet."""
        return sum(map(len, self._kept)) if self._kept else 0

    def add_piece(self, data: bytes) -> None:
        self._kept.append(data)
        self._deliver()

    def end(self) -> None:
        self._ended = True
        self._deliver()

    def abort(self) -> None:
        """The body will never be whole."""
        if self._finished:
            return
        self.close()
        if self.on_abort is not None:
            self._call(self.on_abort)

    def close(self) -> None:
        """Nobody wants the rest: the response is complete."""
        self._finished = True
        self._kept.clear()

    def _deliver(self) -> None:
        # A callback that pauses and resumes must not be entered again while it runs.
        if self._delivering:
            return
        self._delivering = True
        while self._kept and not self.paused and not self._finished:
            piece = self._kept.popleft()
            on_data = self.on_data
            if on_data is not None:
                self._call(on_data, piece)
        if self._ended and not self._kept and not self.paused and not self._finished:
            self._finished = True
            if self.on_end is not None:
                self._call(self.on_end)
        self._delivering = False

    def _call(self, callback: Callable[..., None], *arguments: bytes) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._finished = True
            self._connection.upload_failed(error)


def add_repeated(headers: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """A field line whose name was seen before. RFC 9110 §5.3."""
    if name in SINGLE_VALUED:
        raise Refusal(400, f"repeated header. name={name.decode('latin-1')}")
    headers[name] = headers[name] + b", " + value


def parse_version(exchange: Exchange, version: str) -> None:
    if version == "1.0":
        exchange.http10 = True
    elif version != "1.1":
        raise Refusal(505, "HTTP version is not supported")


def parse_request_id(given: bytes | None) -> str | None:
    """The client's own id for the request, if it is one that can go into logs and headers."""
    if given is None or _REQUEST_ID.fullmatch(given) is None:
        return None
    return given.decode()


def parse_target(exchange: Exchange, target: bytes) -> None:
    """Set `path` and `query`. RFC 9112 §3.2."""
    try:
        text = target.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(400, "request target is not ASCII") from None
    # llhttp refuses control characters, and a space ends the target.
    if "#" in text:
        raise Refusal(400, "request target has a fragment")
    if text[:1] != "/":
        text = _reduce_target(exchange, text)
    exchange.path, _, exchange.query = text.partition("?")


def _reduce_target(exchange: Exchange, text: str) -> str:
    if exchange.method == "CONNECT":
        raise Refusal(501, "this is not a proxy")
    if text == "*" and exchange.method == "OPTIONS":
        return text
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise Refusal(400, "request target is not a path")
    rest = text[scheme.end() :]
    cuts = [cut for cut in (rest.find("/"), rest.find("?")) if cut >= 0]
    end = min(cuts, default=len(rest))
    authority = rest[:end].encode()
    # RFC 9110 §4.2.4: user information in a target is a way to disguise it.
    if not authority or _HOST.fullmatch(authority) is None:
        raise Refusal(400, "request target has an invalid authority")
    # RFC 9112 §3.2.2: the target's authority replaces what Host says.
    exchange.headers[b"host"] = authority
    path = rest[end:]
    return path if path.startswith("/") else "/" + path


def check_host(exchange: Exchange, host: bytes | None) -> None:
    """RFC 9112 §3.2: exactly one valid Host in HTTP/1.1. Repeats were refused earlier."""
    if host is None:
        if not exchange.http10:
            raise Refusal(400, "missing host header")
    elif _HOST.fullmatch(host) is None:
        raise Refusal(400, "invalid host header")


def parse_framing(exchange: Exchange, length: bytes | None, encoding: bytes | None) -> None:
    """How the body ends. llhttp has checked that `length` is digits and that only one is given."""
    if encoding is not None:
        # RFC 9112 §6.1: from HTTP/1.0 it is a faulty message; other codings are 501.
        if exchange.http10:
            raise Refusal(400, "transfer-encoding in HTTP/1.0")
        if encoding.lower() != b"chunked":
            raise Refusal(501, "only the chunked transfer coding is supported")
        exchange.announce_body()
        exchange.chunked = True
    elif length is not None and (size := int(length)):
        exchange.announce_body()
        exchange.length = size


def parse_expectation(exchange: Exchange, expect: bytes) -> None:
    """RFC 9110 §10.1.1. Ignored from HTTP/1.0, and without a body."""
    if exchange.http10:
        return
    if expect.lower() != b"100-continue":
        raise Refusal(417, "unknown expectation")
    if exchange.has_body:
        exchange.expects_continue = True
