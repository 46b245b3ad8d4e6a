"""Routes of the Durable Streams protocol: parse, one engine call, render.

A route is a plain function that returns a response, or a pending one that the commit completes;
only live reads outlast it. At /v1/stream/…, and wherever `DialectRules` says a stream is.
`__ds/…` are the subscriptions (see subscriptions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.core.access import Operation
from headwater.core.errors import HeadwaterError, ReadOnly, TooManyRequests
from headwater.core.limits import MIB
from headwater.core.names import NameRules
from headwater.core.pending import Pending
from headwater.core.types import Position
from headwater.dialects.access import require_live
from headwater.dialects.common import NO_STORE, SECURITY_HEADERS, error_response, preflight
from headwater.dialects.compression import Compressor
from headwater.dialects.durable import requests, responses
from headwater.dialects.durable.access import require_content
from headwater.dialects.durable.incremental import IncrementalAppends
from headwater.dialects.durable.live import LongPoll, SseFeed, SseFollower, is_text
from headwater.dialects.durable.rules import DURABLE, ROOT, Address, DialectRules, ReadQuery
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire.headers import ENCRYPTION_KEY
from headwater.wire.http import Answer, Request, Response, Route, StreamedResponse
from headwater.wire.offsets import AtByte, Sentinel, Start

METHODS = "GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS"
READ_METHODS = "GET, HEAD, OPTIONS"
ENDLESS_BYTES = 2**62
"""An incremental append may go on for as long as it likes; its lines are bounded instead."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)
NO_CACHE = (b"cache-control", b"no-cache")
BASE64 = (b"stream-sse-data-encoding", b"base64")


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """What an operator may choose about this dialect."""

    body_bytes_max: int = 32 * MIB
    chunk_bytes: int = MIB
    long_poll_timeout_s: float = 30.0
    incremental_timeout_s: float = 300.0
    """How long an incremental append may bring nothing."""
    sse_heartbeat_s: float = 15.0
    sse_recycle_s: float = 60.0
    followers_max: int = 100_000
    read_only: bool = False
    private: bool = False
    """Answers are for one client only: tokens are on."""
    names: NameRules = NameRules.LENIENT


class DurableDialect:
    """The protocol over one engine."""

    def __init__(
        self,
        engine: Engine,
        options: DurableOptions,
        *,
        origin_of: Callable[[Request], str],
        subscriptions: Callable[[Request, str], Answer] | None = None,
        rules: DialectRules = DURABLE,
    ) -> None:
        """`origin_of` gives the scheme and host a client reached us by; `subscriptions` answers
        what is under `__ds/`, except on a read-only server."""
        self.engine = engine
        self.options = options
        self.rules = rules
        self._origin_of = origin_of
        self._subscriptions = subscriptions
        self._waiting: set[LongPoll] = set()
        self._compressor = Compressor(engine.loop)
        self._feed = SseFeed(
            engine, heartbeat_s=options.sse_heartbeat_s, recycle_s=options.sse_recycle_s
        )
        writes: dict[str, Callable[[Request], Answer]] = {
            "PUT": self.create,
            "POST": self.append,
            "DELETE": self.delete,
            "PATCH": self.retain,
        }
        if options.read_only:
            writes = dict.fromkeys(writes, self._refuse_write)
        reads: dict[str, Callable[[Request], Answer]] = {"GET": self.read, "HEAD": self.head}
        size = options.body_bytes_max
        self._routes = {
            **{
                name: Route(self._guarded(call), body_bytes_max=size)
                for name, call in writes.items()
            },
            **{
                name: Route(guard(call, rules.render_read_error), body_bytes_max=size)
                for name, call in reads.items()
            },
        }
        self._incremental = IncrementalAppends(
            engine,
            piece_bytes_max=options.body_bytes_max,
            render_appended=rules.render_appended,
            render_error=rules.render_write_error,
        )
        self._incremental_route = self._routes["POST"]
        if not options.read_only:
            self._incremental_route = Route(
                self._guarded(self.append_incrementally),
                body_bytes_max=ENDLESS_BYTES,
                streams_body=True,
                body_timeout_s=options.incremental_timeout_s,
            )
        self._reserved = Route(self._guarded(self.reserved), body_bytes_max=MIB)
        self._methods = READ_METHODS if options.read_only else METHODS
        self._preflight = Route(lambda _: preflight(self._methods), body_bytes_max=MIB)

    def begin(self, request: Request) -> Route | Response:
        """Choose by method; the path is known to begin with ROOT/."""
        if request.path.startswith("/v1/stream/__ds/") and request.method != "OPTIONS":
            return self._reserved
        return self.choose(request)

    def choose(self, request: Request) -> Route | Response:
        """The route of a request to a stream."""
        if request.method == "OPTIONS":
            return self._preflight
        route = self._routes.get(request.method)
        if b"stream-append" in request.headers and request.method == "POST":
            return self._incremental_route
        if route is None:
            allow = (b"allow", self._methods.encode())
            message = f"a stream takes {self._methods}"
            return error_response(405, "method_not_allowed", message, (allow,))
        return route

    def _guarded(self, handle: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
        return guard(handle, self.rules.render_write_error)

    def _address(self, request: Request) -> Address:
        return self.rules.parse_address(request.path, self.options.names)

    def _refuse_write(self, _: Request) -> Answer:
        raise ReadOnly()

    # -- writes

    def create(self, request: Request) -> Answer:
        """PUT {stream}. PROTOCOL §5.1."""
        address = self._address(request)
        require_content(request, address)
        self.engine.tally.operation(Operation.CREATE_STREAM, address.bucket)
        command = requests.parse_create(
            request,
            address,
            self.engine.clock.now_ms(),
            dialect=self.rules,
            rules=self.options.names,
            bucket=self.engine.bucket(address.bucket),
        )
        location = f"{self._origin_of(request)}{request.path}"
        return self.engine.create(command, request.headers.get(ENCRYPTION_KEY)).then(
            lambda created: self.rules.render_created(self.engine, created, location)
        )

    def append(self, request: Request) -> Answer:
        """POST {stream}. PROTOCOL §5.2, §5.3."""
        bucket, name = self._address(request)
        command = requests.parse_append(request, bucket, name, self.engine.clock.now_ms())
        key = request.headers.get(ENCRYPTION_KEY)
        return self.engine.append(command, key).then(self.rules.render_appended)

    def append_incrementally(self, request: Request) -> Answer:
        """POST {stream} with `Stream-Append: incremental`: the body is appended as it arrives."""
        return self._incremental.append(request, *self._address(request))

    def delete(self, request: Request) -> Answer:
        """DELETE {stream}. PROTOCOL §5.4."""
        bucket, name = self._address(request)
        self.engine.tally.operation(Operation.DELETE_STREAM, bucket)
        command = requests.parse_delete(bucket, name, self.engine.clock.now_ms())
        return self.engine.delete(command).then(responses.render_done)

    def retain(self, request: Request) -> Answer:
        """PATCH {stream}: another Stream-Retention. Not in PROTOCOL."""
        bucket, name = self._address(request)
        command = requests.parse_retain(request, bucket, name, self.engine.clock.now_ms())
        self.engine.tally.operation(Operation.RECONFIGURE_STREAM, bucket)
        return self.engine.change(command).then(responses.render_done)

    def reserved(self, request: Request) -> Answer:
        """{root}/__ds/…: subscriptions. PROTOCOL §6."""
        if self._subscriptions is None:
            raise ReadOnly()
        return self._subscriptions(request, request.path[len(ROOT) + len("/__ds/") :])

    # -- reads

    def head(self, request: Request) -> Answer:
        """HEAD {stream}. PROTOCOL §5.5. Does not renew the TTL."""
        address, engine = self._address(request), self.engine

        def look() -> Response:
            stream = engine.open(*address)
            return self.rules.render_head(engine, stream, engine.clock.now_ms())

        return engine.when_settled(*address, look)

    def read(self, request: Request) -> Answer:
        """GET {stream}. PROTOCOL §5.6 to §5.8."""
        address = self._address(request)
        asked = requests.parse_read(request, self.engine.clock.now_ms(), self.rules)

        def look() -> Answer:
            stream = self.engine.open(*address)
            query = asked
            if stream.state.cipher is not None:
                key = request.headers.get(ENCRYPTION_KEY)
                query = asked._replace(opener=self.engine.opener(stream, key))
            position = self.engine.find_start(stream, query.start)
            if query.touches:
                self.engine.touch(stream)
            if query.live == "sse":
                return self._sse(stream, position, query)
            if query.live == "long-poll":
                return self._long_poll(request, stream, position, query)
            if query.start is Sentinel.NOW:
                return self._now(request, stream, query)
            return self._catch_up(request, stream, position, query)

        return flat(self.engine.when_settled(*address, look))

    def _now(self, request: Request, stream: Stream, query: ReadQuery) -> Response:
        """offset=now: where the tail is, never data. PROTOCOL §8."""
        found = Slice(stream.tail, json=stream.state.json)
        found.at_tail, found.closed = True, stream.tail_closed
        return responses.render_slice(
            found,
            stream,
            tag=None,
            if_none_match=None,
            cache_control=b"no-store",
            form=self.rules.form_of(self.engine, request, stream, query),
        )

    def _catch_up(
        self,
        request: Request,
        stream: Stream,
        position: Position,
        query: ReadQuery,
        cursor: int | None = None,
    ) -> Answer:
        """What is there from `position` on, as much as fits an answer."""

        def render(found: Slice) -> Response:
            return self._render(request, stream, found, query, cursor)

        size_max = self._size_max(stream, position, query)
        found = self.engine.read(stream, position, size_max, query.opener)
        answer = found.then(render) if isinstance(found, Pending) else render(found)
        return answer if query.live else self._compressor.apply(request, answer)

    def _size_max(self, stream: Stream, position: Position, query: ReadQuery) -> int:
        size = self.options.chunk_bytes
        if query.size_max is not None:
            size = min(size, query.size_max)
        if query.records_max is not None:
            size = min(size, self.engine.measure(stream, position, query.records_max))
        return size

    def _render(
        self,
        request: Request,
        stream: Stream,
        found: Slice,
        query: ReadQuery,
        cursor: int | None,
    ) -> Response:
        engine = self.engine
        engine.tally.read(stream.state.bucket, found.size)
        # An empty answer at an open tail is true for a moment only, and so is one whose start
        # depends on when it was asked for. What was encrypted is not to be stored in clear, and
        # not to be had for a tag without its key.
        caching, tag = b"no-store", None
        form = self.rules.form_of(engine, request, stream, query)
        if query.opener is None:
            mark = b"" if form is None else form.mark
            tag = responses.etag(f"{engine.store_tag}{stream.state.id:x}", found, mark)
            if (found.start != found.end or found.closed) and _is_fixed(stream, query.start):
                caching = responses.cache_control(
                    engine.deadline_of(stream), engine.clock.now_ms(), private=self.options.private
                )
        return responses.render_slice(
            found,
            stream,
            tag=tag,
            if_none_match=request.headers.get(b"if-none-match"),
            cache_control=caching,
            cursor=cursor,
            form=form,
        )

    def _long_poll(
        self, request: Request, stream: Stream, position: Position, query: ReadQuery
    ) -> Answer:
        """live=long-poll. A timeout answers with the offset the reader waited at."""
        if position != stream.tail:
            cursor = self._feed.cursor(query.cursor)
            return self._catch_up(request, stream, position, query, cursor)
        if stream.tail_closed:
            return responses.render_waited(position, cursor=None, closed=True)
        self._check_followers()

        def complete(woken: Stream, waited_at: Position, timed_out: bool) -> Response:
            require_live(request, self.engine.clock.now_ms())
            if timed_out or woken.tail == waited_at:
                closed = woken.tail_closed and woken.tail == waited_at
                cursor = None if closed else self._feed.cursor(query.cursor)
                return responses.render_waited(waited_at, cursor=cursor, closed=closed)
            size_max = self._size_max(woken, waited_at, query)
            found = self.engine.read_now(woken, waited_at, size_max, query.opener)
            if query.touches:
                self.engine.touch(woken)
            return self._render(request, woken, found, query, self._feed.cursor(query.cursor))

        timeout_s = query.timeout_s
        if timeout_s is None:
            timeout_s = self.options.long_poll_timeout_s
        poll = LongPoll(
            self.engine,
            stream,
            position,
            timeout_s,
            complete,
            self._waiting,
            renews=query.touches,
        )
        return poll.answer

    def end_waits(self) -> None:
        """The server stops: what waits is answered now, so that its clients come back."""
        for poll in tuple(self._waiting):
            poll.time_out()
        self._incremental.stop()

    def _sse(self, stream: Stream, position: Position, query: ReadQuery) -> Response:
        """live=sse."""
        self._check_followers()
        if position != stream.tail:
            # A token that does not fit must be refused now: once the response has begun it
            # cannot be any more. So must a key that is not the right one.
            self.engine.read_now(stream, position, 1, query.opener)
        form = self.rules.event_form_of(self.engine, stream, query)
        follower = SseFollower(
            self._feed,
            stream,
            position,
            query.cursor,
            form=form,
            touches=query.touches,
            opener=query.opener,
        )
        caching = NO_CACHE if query.opener is None else NO_STORE
        headers = [*SSE_HEADERS, caching, *form.headers]
        if not is_text(stream):
            headers.append(BASE64)
        return StreamedResponse(200, headers, follower.start, base=SECURITY_HEADERS)

    def _check_followers(self) -> None:
        if self.engine.followers >= self.options.followers_max:
            raise TooManyRequests("too many live readers; retry later", retry_after_s=5)


def guard(
    handle: Callable[[Request], Answer], render_error: Callable[[HeadwaterError], Response]
) -> Callable[[Request], Answer]:
    """Errors become responses in one place, whether they come at once or with the commit."""

    def render(error: Exception) -> Response:
        if isinstance(error, HeadwaterError):
            return render_error(error)
        raise error

    def guarded(request: Request) -> Answer:
        try:
            answer = handle(request)
        except HeadwaterError as error:
            return render_error(error)
        return answer.catch(render) if isinstance(answer, Pending) else answer

    return guarded


def _is_fixed(stream: Stream, start: Start | None) -> bool:
    """Does this start mean the same place whenever it is asked for?"""
    if start is None or start is Sentinel.BEGINNING:
        return stream.state.retention is None
    return isinstance(start, (Position, AtByte))


def flat(answer: Any) -> Answer:
    """An answer that had to wait for a commit may itself be a pending one."""
    if isinstance(answer, Response):
        return answer
    assert isinstance(answer, Pending)
    flat: Pending[Response] = Pending()

    def wait_for(pending: Pending[Any]) -> None:
        flat.on_cancel(pending.cancel)
        flat.on_hurry(pending.hurry)
        pending.deliver(settled)

    def settled(outcome: Answer | Exception) -> None:
        if isinstance(outcome, Pending):
            wait_for(outcome)
        else:
            flat.complete(outcome)

    wait_for(answer)
    return flat
