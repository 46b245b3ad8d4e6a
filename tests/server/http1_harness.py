"""An HTTP/1.1 server without sockets: a transport, a loop and a clock that tests move by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from headwater.core.pending import Pending
from headwater.core.types import TimestampMs
from headwater.engine.clock import Timer
from headwater.server.http1 import Http1Server
from headwater.server.http1_connection import Http1Connection
from headwater.server.serving import ResponseHook, ServerLimits
from headwater.wire.http import Answer, Request, Response, Route

BODY_BYTES_MAX = 1000
HOST = b"host: a\r\n"


class ManualClock:
    """Stands still until `advance`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def now_ms(self) -> TimestampMs:
        return TimestampMs(int(self.now_s * 1000))

    def monotonic_s(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        raise NotImplementedError

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def random_fraction(self) -> float:
        return 0.5


class ManualLoop:
    """The one method of an event loop that connections use. Runs its calls when told to."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append((callback, args))

    def run(self) -> None:
        while self._ready:
            callback, args = self._ready.popleft()
            callback(*args)


class ManualTransport(asyncio.Transport):
    """Keeps what is written, as uvloop's would: strict about writing after the end."""

    def __init__(self, protocol: asyncio.Protocol, loop: ManualLoop, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self.protocol: asyncio.Protocol = protocol
        self.sent = bytearray()
        self.writes = 0
        self.unsent = bytearray()
        self.stalled = False
        self.eof_written = False
        self.aborted = False
        self.lost = False
        self.reading = True
        self._loop = loop
        self._arrived: list[bytes] = []
        self._closing = False
        self._paused = False
        self._high, self._low = 64 * 1024, 16 * 1024

    # For the protocol.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None and low is not None
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self._loop.call_soon(self._deliver)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self.lost or self.eof_written:
            raise RuntimeError("written after the end")
        if self._closing:
            return
        self.writes += 1
        self.unsent += b"".join(list_of_data)
        if not self.stalled:
            self.flush()
        elif len(self.unsent) > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.reading = False
            if not self.unsent:
                self._loop.call_soon(self._lose)

    def abort(self) -> None:
        self._closing = self.aborted = True
        self.reading = False
        self.unsent.clear()
        self._loop.call_soon(self._lose)

    # For the test.

    def flush(self, size: int | None = None) -> None:
        """The peer reads `size` bytes, or all."""
        size = len(self.unsent) if size is None else size
        self.sent += self.unsent[:size]
        del self.unsent[:size]
        if self._paused and len(self.unsent) <= self._low:
            self._paused = False
            self.protocol.resume_writing()
        if self._closing and not self.unsent and not self.lost:
            self._loop.call_soon(self._lose)

    def arrive(self, data: bytes) -> None:
        self._arrived.append(data)
        self._deliver()

    def end_input(self) -> None:
        if not self._closing and not self.protocol.eof_received():
            self.close()

    def _deliver(self) -> None:
        while self._arrived and self.reading:
            self.protocol.data_received(self._arrived.pop(0))

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.protocol.connection_lost(None)


@dataclass
class Reply:
    """One response, as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    def __getitem__(self, name: str) -> str:
        return self.headers[name]


def parse_replies(data: bytes, *methods: str) -> list[Reply]:
    """Read every response in `data`; `methods` are those of the requests, GET if left out."""
    replies: list[Reply] = []
    asked = list(methods)
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, f"no whole head in {head!r}"
        status_line, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = status_line.split(" ", 2)
        assert version == "HTTP/1.1"
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name not in headers, f"{name} is there twice"
            headers[name] = value
        reply = Reply(int(status), headers, b"")
        replies.append(reply)
        if reply.status == 100:
            continue
        method = asked.pop(0) if asked else "GET"
        if method != "HEAD" and reply.status not in (204, 304):
            data = _take_body(reply, data)
    return replies


def _take_body(reply: Reply, data: bytes) -> bytes:
    if "content-length" in reply.headers:
        assert "transfer-encoding" not in reply.headers
        size = int(reply["content-length"])
        reply.body, data = data[:size], data[size:]
        reply.whole = len(reply.body) == size
        return data
    if reply.headers.get("transfer-encoding") != "chunked":
        reply.body = data
        return b""
    while True:
        size_line, separator, data = data.partition(b"\r\n")
        if not separator:
            reply.whole = False
            return b""
        size = int(size_line, 16)
        reply.body += data[:size]
        assert data[size : size + 2] == b"\r\n"
        data = data[size + 2 :]
        if size == 0:
            return data


class EchoApplication:
    """Answers with what it was asked, unless a test gives it something else to do."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.begun: list[str] = []
        self.answer: Callable[[Request], Answer] = self.echo
        self.refusal: Callable[[Request], Response | None] = lambda request: None
        self.body_bytes_max = BODY_BYTES_MAX
        self.streams_body = False
        self.body_timeout_s: float | None = None

    def begin(self, request: Request) -> Route | Response:
        self.begun.append(request.path)
        refused = self.refusal(request)
        if refused is not None:
            return refused
        return Route(
            self.handle,
            body_bytes_max=self.body_bytes_max,
            streams_body=self.streams_body,
            body_timeout_s=self.body_timeout_s,
        )

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answer(request)

    def echo(self, request: Request) -> Response:
        return Response(200, (), f"{request.method} {request.path} ".encode() + request.body)

    def refuse(self, status: int, message: str, request: Request | None = None) -> Response:
        return Response(status, ((b"content-type", b"text/plain"),), message.encode())


class Deferred:
    """An application's answers, given later and in any order. A key is a request's path."""

    def __init__(self) -> None:
        self.waiting: dict[str, Pending[Response]] = {}
        self.cancelled: list[str] = []

    def __call__(self, request: Request) -> Pending[Response]:
        pending = Pending[Response]()
        path = request.path
        pending.on_cancel(lambda: self.cancelled.append(path))
        self.waiting[path] = pending
        return pending

    def resolve(self, path: str) -> None:
        self.waiting.pop(path).resolve(Response(200, (), path.encode()))


class Peer:
    """The client's end of one connection."""

    def __init__(self, harness: Harness, extra: dict[str, Any]) -> None:
        self._loop = harness.loop
        self.connection: Http1Connection = harness.server.protocol()
        self.transport = ManualTransport(self.connection, harness.loop, extra)
        self.connection.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.transport.arrive(piece)
        self._loop.run()

    def end_input(self) -> None:
        self.transport.end_input()
        self._loop.run()

    def vanish(self) -> None:
        self.transport.abort()
        self._loop.run()

    def replies(self, *methods: str) -> list[Reply]:
        self._loop.run()
        return parse_replies(bytes(self.transport.sent), *methods)

    def reply(self, *methods: str) -> Reply:
        [reply] = self.replies(*methods)
        return reply

    @property
    def ended(self) -> bool:
        """The server will send nothing more."""
        self._loop.run()
        return self.transport.lost or self.transport.eof_written


class Harness:
    """A server, its application, and its peers."""

    def __init__(
        self,
        *,
        limits: ServerLimits | None = None,
        on_response: ResponseHook | None = None,
        h2_factory: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self.application = EchoApplication()
        self.clock = ManualClock()
        self.loop = ManualLoop()
        self.server = Http1Server(
            self.application,
            clock=self.clock,
            loop=cast(asyncio.AbstractEventLoop, self.loop),
            limits=limits,
            on_response=on_response,
            h2_factory=h2_factory,
        )

    def connect(self, **extra: Any) -> Peer:
        return Peer(self, {"peername": ("192.0.2.1", 1234), **extra})

    def exchange(self, data: bytes, *methods: str) -> list[Reply]:
        """Everything a new connection answers to `data`."""
        peer = self.connect()
        peer.send(data)
        return peer.replies(*methods)

    def wait(self, seconds: float) -> None:
        """Let time pass, with the sweep of each second."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.server.sweep()
        self.loop.run()

    def drain(self) -> None:
        self.server.drain()
        self.loop.run()


def get(path: str = "/", *lines: str) -> bytes:
    return request("GET", path, *lines)


def request(method: str, path: str, *lines: str, body: bytes = b"") -> bytes:
    """A well-formed request; `content-length` is added for a body."""
    all_lines = [f"{method} {path} HTTP/1.1", "host: a", *lines]
    if body:
        all_lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*all_lines, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
