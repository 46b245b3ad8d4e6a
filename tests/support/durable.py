"""The Durable Streams dialect in process: real routes over a real engine, no sockets, no waiting.

A test names a stream and the headers it cares about; time moves only by `advance`. Every answer
is checked for what all answers must have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from headwater.core.pending import Pending
from headwater.dialects.durable.routes import DurableDialect, DurableOptions
from headwater.dialects.durable.rules import ROOT
from headwater.storage.store import Store
from headwater.wire.http import Buffer, Request, Response, Route, StreamedResponse
from tests.support import event_stream
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.event_stream import Event

ORIGIN = "http://test"
NOW_MS = 1_800_000_000_000
"""2027-01-15T08:00:00Z: after the day from which cursors count."""

TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"

START = "0000000000000000_0000000000000000"
BEYOND = "9999999999999999_9999999999999999"


Headers = dict[str, str]
"""Header names with underscores for hyphens, as keyword arguments have them."""


def producer(producer_id: str = "p", epoch: object = 0, seq: object = 0) -> Headers:
    """The three headers of one batch."""
    return {"producer_id": producer_id, "producer_epoch": str(epoch), "producer_seq": str(seq)}


def token(seq: int, byte: int) -> str:
    return f"{seq:016d}_{byte:016d}"


class Reply:
    """One answer, with what every answer of the dialect must have already checked."""

    def __init__(self, response: Response) -> None:
        pairs = [*response.base.pairs, *response.headers]
        self.response = response
        self.status = response.status
        self.headers: dict[str, str] = {
            name.decode(): value.decode("latin-1") for name, value in pairs
        }
        body = response.body
        self.body = body if isinstance(body, bytes) else b"".join(bytes(part) for part in body)
        assert len(pairs) == len(self.headers), f"a header is sent twice: {pairs}"
        assert all(name == name.lower() for name in self.headers)
        assert self.headers["x-content-type-options"] == "nosniff"
        assert self.headers["cross-origin-resource-policy"] == "cross-origin"
        assert self.headers["access-control-allow-origin"] == "*"
        assert not any(name.startswith("stream-fork") for name in self.headers)
        if self.status in (204, 304):
            assert not self.body
        if self.status >= 400:
            self._check_error()

    def _check_error(self) -> None:
        assert self.headers["content-type"] == "application/json"
        assert self.headers["cache-control"] == "no-store"
        error = json.loads(self.body)["error"]
        assert error.keys() == {"code", "message"}
        assert error["code"] and error["message"]

    def __repr__(self) -> str:
        return f"Reply({self.status}, {self.headers}, {self.body[:200]!r})"

    @property
    def error(self) -> str:
        """The code in the body of an error."""
        code: str = json.loads(self.body)["error"]["code"]
        return code

    @property
    def next(self) -> str:
        return self.headers["stream-next-offset"]

    @property
    def closed(self) -> bool:
        return self._flag("stream-closed")

    @property
    def up_to_date(self) -> bool:
        return self._flag("stream-up-to-date")

    @property
    def cursor(self) -> int:
        return int(self.headers["stream-cursor"])

    @property
    def etag(self) -> str:
        return self.headers["etag"]

    def _flag(self, name: str) -> bool:
        assert self.headers.get(name, "true") == "true"
        return name in self.headers


class Writer:
    """A BodyWriter that keeps what is written, and refuses what a real one must never see."""

    def __init__(self) -> None:
        self.on_drain: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_shutdown: Callable[[], None] | None = None
        self.writes: list[Buffer] = []
        self.slow = False
        """The next write fills the client's buffers."""
        self.broken = False
        """A write raises, as no writer should."""
        self.full = False
        self.finished = False
        self.aborted = False

    def write(self, data: Buffer) -> bool:
        if self.broken:
            raise ConnectionError("the test broke this connection")
        assert not self.finished, "written after the end"
        assert not self.full, "written to a client that is slow"
        assert len(data), "nothing written"
        self.writes.append(data)
        self.full = self.slow
        return not self.full

    def finish(self) -> None:
        assert not self.finished, "ended twice"
        self.finished = True

    def abort(self) -> None:
        self.aborted = True


class LiveBody:
    """A streamed answer under way, read as fast as the test likes."""

    def __init__(self, server: DurableServer, response: Response, *, slow: bool = False) -> None:
        assert response.status == 200 and isinstance(response, StreamedResponse), response
        self.writer = Writer()
        self.writer.slow = slow
        self._server = server
        server.writers.append(self.writer)
        response.start(self.writer)
        server.settle()

    @property
    def received(self) -> bytes:
        return b"".join(bytes(part) for part in self.writer.writes)

    @property
    def ended(self) -> bool:
        return self.writer.finished

    def drain(self) -> None:
        """The client has caught up."""
        self.writer.full = False
        assert self.writer.on_drain is not None
        self.writer.on_drain()
        self._server.settle()

    def disconnect(self) -> None:
        assert self.writer.on_close is not None
        self.writer.on_close()
        self._server.settle()


class Follower(LiveBody):
    """One SSE reader."""

    def __init__(self, server: DurableServer, reply: Reply) -> None:
        self.reply = reply
        super().__init__(server, reply.response)

    @property
    def events(self) -> list[Event]:
        return event_stream.parse(self.received)

    @property
    def comments(self) -> list[str]:
        return event_stream.comments(self.received)

    @property
    def data(self) -> list[str]:
        return [event.data for event in self.events if event.type == "data"]

    @property
    def text(self) -> str:
        return "".join(self.data)

    @property
    def controls(self) -> list[dict[str, Any]]:
        return [json.loads(event.data) for event in self.events if event.type == "control"]

    @property
    def pairs(self) -> list[tuple[str, dict[str, Any]]]:
        """Each data event with the control event right after it."""
        events = self.events
        found = []
        for event, after in zip(events, [*events[1:], None], strict=True):
            if event.type == "data":
                assert after is not None and after.type == "control"
                found.append((event.data, json.loads(after.data)))
        return found


class Poll:
    """One long-poll: answered, or waiting."""

    def __init__(self) -> None:
        self.answer: Pending[Response] | None = None
        self._outcome: Any = None

    def settled(self, outcome: Any) -> None:
        assert self._outcome is None, "answered twice"
        self._outcome = outcome

    @property
    def waiting(self) -> bool:
        return self._outcome is None

    @property
    def reply(self) -> Reply:
        assert self._outcome is not None, "no answer yet"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return Reply(self._outcome)

    def cancel(self) -> None:
        """The client goes away."""
        assert self.answer is not None
        self.answer.cancel()


class DurableServer:
    """The dialect over an engine of its own."""

    def __init__(
        self, store: Store | None = None, clock: FakeClock | None = None, **options: Any
    ) -> None:
        self.clock = FakeClock(NOW_MS) if clock is None else clock
        self.runner = EngineRunner(store, self.clock)
        self.engine = self.runner.engine
        self.engine.start()
        self.dialect = DurableDialect(
            self.engine, DurableOptions(**options), origin_of=lambda request: ORIGIN
        )
        self.writers: list[Writer] = []
        self._types: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.runner.abandon()

    # -- time and the loop

    def settle(self) -> None:
        """Run until nothing is left to commit, and no live reader is still catching up."""
        while True:
            self.runner.settle()
            before = sum(len(writer.writes) for writer in self.writers)
            self.runner.turn(2)
            if before == sum(len(writer.writes) for writer in self.writers):
                return

    def advance(self, seconds: float) -> None:
        """Let time pass, and let what it causes be committed, a second at a time."""
        while seconds > 0:
            self.clock.advance(min(seconds, 1.0))
            self.settle()
            seconds -= 1.0

    # -- requests as they are

    def begin(
        self, method: str, name: str, query: str = "", body: bytes = b"", /, **headers: str
    ) -> Response | Pending[Response]:
        """Send a request; what comes back may still be pending. `name` is the raw path's end."""
        given = {
            header.replace("_", "-").encode(): value.encode("latin-1")
            for header, value in headers.items()
        }
        request = Request(method, self.path_of(name), query, given, body=body)
        route = self.choose(request)
        return route.handle(request) if isinstance(route, Route) else route

    def path_of(self, name: str) -> str:
        return f"{ROOT}/{name}"

    def choose(self, request: Request) -> Route | Response:
        """The route that the dialect has for a request."""
        return self.dialect.begin(request)

    def request(
        self, method: str, name: str = "s", query: str = "", body: bytes = b"", /, **headers: str
    ) -> Reply:
        answer = self.begin(method, name, query, body, **headers)
        return Reply(self.runner.result(answer))

    def put(self, name: str = "s", body: bytes = b"", /, **headers: str) -> Reply:
        return self.request("PUT", name, "", body, **headers)

    def post(self, name: str = "s", body: bytes = b"", /, **headers: str) -> Reply:
        return self.request("POST", name, "", body, **headers)

    def get(self, name: str = "s", offset: str | None = None, /, **headers: str) -> Reply:
        return self.query(name, "" if offset is None else f"offset={offset}", **headers)

    def query(self, name: str, query: str, /, **headers: str) -> Reply:
        return self.request("GET", name, query, **headers)

    def head(self, name: str = "s", /, **headers: str) -> Reply:
        return self.request("HEAD", name, **headers)

    def delete(self, name: str = "s", /, **headers: str) -> Reply:
        return self.request("DELETE", name, **headers)

    # -- requests that are to succeed

    def make(
        self, name: str = "s", *appends: bytes, content_type: str = TEXT, **headers: str
    ) -> str:
        """Create a stream, then append each body. Returns the tail."""
        created = self.put(name, content_type=content_type, **headers)
        assert created.status == 201, created
        self._types[name] = content_type
        return self.append(name, *appends) if appends else created.next

    def append(self, name: str, *bodies: bytes, **headers: str) -> str:
        """Append each body. Returns the tail."""
        assert bodies
        content_type = self._types[name]
        for body in bodies:
            reply = self.post(name, body, content_type=content_type, **headers)
            assert reply.status in (200, 204), reply
        self.settle()
        return reply.next

    def close(self, name: str = "s") -> str:
        reply = self.post(name, stream_closed="true")
        assert reply.status == 204 and reply.closed, reply
        self.settle()
        return reply.next

    def fork(self, name: str, source: str = "s", /, **headers: str) -> str:
        """Returns the fork's tail."""
        reply = self.put(name, stream_forked_from=f"{ROOT}/{source}", **headers)
        assert reply.status == 201, reply
        self._types[name] = reply.headers["content-type"]
        return reply.next

    def content(self, name: str = "s", offset: str = "-1") -> bytes:
        """Everything from `offset` on, chunk after chunk; JSON arrays end to end."""
        parts = []
        while True:
            reply = self.get(name, offset)
            assert reply.status == 200, reply
            parts.append(reply.body)
            offset = reply.next
            if reply.up_to_date:
                return b"".join(parts)

    # -- live

    def poll(
        self, name: str = "s", offset: str = "now", /, cursor: object = None, **headers: str
    ) -> Poll:
        echo = "" if cursor is None else f"&cursor={cursor}"
        answer = self.begin("GET", name, f"offset={offset}&live=long-poll{echo}", **headers)
        poll = Poll()
        if isinstance(answer, Pending):
            poll.answer = answer
            answer.deliver(poll.settled)
            self.settle()
        else:
            poll.settled(answer)
        return poll

    def follow(
        self, name: str = "s", offset: str = "now", /, cursor: object = None, **headers: str
    ) -> Follower:
        echo = "" if cursor is None else f"&cursor={cursor}"
        return self.follow_query(name, f"offset={offset}&live=sse{echo}", **headers)

    def follow_query(self, name: str, query: str, /, **headers: str) -> Follower:
        return Follower(self, self.query(name, query, **headers))
