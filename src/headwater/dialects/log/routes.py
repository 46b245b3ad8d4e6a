"""Routes of the native API at /v1/log/…: parse, one engine call, render.

For programs that move many records or look at many streams: Spark, the console, the command line.
Nothing here renews a sliding TTL but an append.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headwater.core import limits
from headwater.core.access import EVERYTHING, Operation
from headwater.core.commands import AppendRecords, Trim
from headwater.core.errors import InvalidOffset, PermissionDenied, ReadOnly, StreamNotFound
from headwater.core.limits import MIB
from headwater.core.names import NameRules
from headwater.core.pending import Pending
from headwater.core.types import SeqNum
from headwater.dialects.common import preflight
from headwater.dialects.compression import Compressor
from headwater.dialects.log import openapi, requests, responses
from headwater.dialects.log.downloads import ArrowForm, Download, Form, NdjsonForm
from headwater.dialects.log.errors import error_response, render_error
from headwater.dialects.log.requests import Address, Wanted
from headwater.dialects.log.responses import StreamInfo
from headwater.engine import lineage, seek
from headwater.engine.backup import begin_backup
from headwater.engine.engine import Engine
from headwater.engine.lineage import Forks
from headwater.engine.listing import list_streams
from headwater.engine.records import RecordCursor, resolve
from headwater.engine.stats import Stats
from headwater.engine.steps import drive, follow
from headwater.engine.subscription_entry import Entry as SubscriptionEntry
from headwater.storage.store import SHARD_FOLDER
from headwater.wire import headers
from headwater.wire.http import Answer, Request, Response, Route

ROOT = "/v1/log"
READ_METHODS = ("GET", "HEAD")
TIMED_PER_STEP = 10
"""A time is searched for in the stream's runs, which may have to come from disk."""

SubscriptionsOf = Callable[[str], Iterable[SubscriptionEntry]]
"""The subscriptions of a bucket."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What an operator may choose about this dialect."""

    body_bytes_max: int = 32 * MIB
    read_only: bool = False
    names: NameRules = NameRules.LENIENT


class LogDialect:
    """The native API over one engine."""

    def __init__(
        self,
        engine: Engine,
        options: LogOptions,
        stats: Stats,
        *,
        subscriptions_of: SubscriptionsOf = lambda bucket: (),
    ) -> None:
        self.engine = engine
        self.options = options
        self._stats = stats
        self._subscriptions_of = subscriptions_of
        self._compressor = Compressor(engine.loop)
        self._arrow_loaded = False
        self._openapi = openapi.render()
        self._routes = {
            "streams": self._methods(self._whole(self.streams)),
            "records": self._methods(self._addressed(self.read), self._addressed(self.append)),
            "trim": self._methods(None, self._addressed(self.trim)),
            "info": self._methods(self._addressed(self.info)),
            "stats": self._methods(self._whole(self.stats)),
            "backup": self._methods(self._whole(self.backup)),
            "openapi.json": self._methods(self._whole(self.openapi)),
        }

    def begin(self, request: Request) -> Route | Response:
        """Choose by the first segment and the method; the path is known to begin with ROOT/."""
        resource = request.path[len(ROOT) + 1 :].partition("/")[0]
        routes = self._routes.get(resource)
        if routes is None:
            return _not_found(request.path)
        route = routes.get(request.method)
        if route is None:
            allowed = ", ".join(routes)
            message = f"{ROOT}/{resource} takes {allowed}"
            return error_response(405, "method_not_allowed", message, (b"allow", allowed.encode()))
        return route

    def _methods(
        self,
        read: Callable[[Request], Answer] | None,
        write: Callable[[Request], Answer] | None = None,
    ) -> dict[str, Route]:
        size = self.options.body_bytes_max
        found: dict[str, Route] = {}
        if read is not None:
            found = {method: Route(_guarded(read), body_bytes_max=size) for method in READ_METHODS}
        if write is not None:
            handle = _refuse_write if self.options.read_only else write
            found["POST"] = Route(_guarded(handle), body_bytes_max=size)
        answer = preflight(", ".join((*found, "OPTIONS")))
        found["OPTIONS"] = Route(lambda _: answer, body_bytes_max=size)
        return found

    def _whole(self, handle: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
        """For a path that ends with the name of its resource."""

        def checked(request: Request) -> Answer:
            if "/" in request.path[len(ROOT) + 1 :]:
                return _not_found(request.path)
            return handle(request)

        return checked

    def _addressed(
        self, handle: Callable[[Request, Address], Answer]
    ) -> Callable[[Request], Answer]:
        """For a path that goes on with a bucket and a stream."""

        def checked(request: Request) -> Answer:
            raw = request.path[len(ROOT) + 1 :].partition("/")[2]
            address = requests.parse_address(raw, self.options.names)
            return _not_found(request.path) if address is None else handle(request, address)

        return checked

    # -- streams

    def streams(self, request: Request) -> Answer:
        """GET streams."""
        selection, times = requests.parse_listing(request)
        self.engine.tally.operation(Operation.LIST_STREAMS, selection.bucket)
        found = responses.SummaryList(self.engine, request.grant, times)

        def render(last: tuple[str, str] | None) -> Response:
            return found.render(None if last is None else requests.render_after(*last))

        per_step = TIMED_PER_STEP if times else None
        listed = list_streams(self.engine, selection, found.show, per_step)
        return self._compressor.apply(request, follow(listed, render))

    def info(self, request: Request, address: Address) -> Answer:
        """GET info/{bucket}/{name}."""
        requests.parse_query(request.query, ())
        engine = self.engine
        engine.tally.operation(Operation.GET_STREAM_CONFIG, address.bucket)

        def look() -> tuple[StreamInfo, Generator[None, None, Forks]]:
            stream = engine.open(*address)
            state = stream.state
            subscriptions = self._subscriptions_of(state.bucket)
            info = responses.describe(engine, stream, subscriptions, request.grant)
            checkpoints = lineage.checkpoints_after(engine.store, state.id)
            return info, lineage.find_forks(checkpoints, state.id, state.references)

        def find(looked: tuple[StreamInfo, Generator[None, None, Forks]]) -> Pending[Response]:
            info, forks = looked
            return drive(engine.loop, forks).then(
                lambda found: responses.render_info(info, found, request.grant)
            )

        return follow(engine.at_rest(look), find)

    # -- records

    def read(self, request: Request, address: Address) -> Answer:
        """GET records/{bucket}/{name}."""
        wanted, arrow = requests.parse_wanted(request), requests.wants_arrow(request)

        def look() -> Response:
            key = request.headers.get(headers.ENCRYPTION_KEY)
            return self._read(address, wanted, key, arrow=arrow)

        def settled(_: object) -> Answer:
            return self.engine.when_settled(*address, look)

        return follow(self._load_arrow(), settled) if arrow else settled(None)

    def _read(
        self, address: Address, wanted: Wanted, key: bytes | None, *, arrow: bool
    ) -> Response:
        engine = self.engine
        stream = engine.open(*address)
        opener = engine.opener(stream, key)
        first, end = resolve(engine.shard, stream, wanted.range)
        limit, joined = wanted.limit, wanted.joined
        if limit is not None and not joined:
            end, limit = SeqNum(min(end, first + limit)), None
        form: Form
        if arrow:
            form = ArrowForm(joined=joined, limit=limit)
        else:
            form = NdjsonForm(json=stream.state.json, joined=joined, limit=limit)
        cursor = RecordCursor(engine.shard, stream, first, end, opener)
        cursor.check_key()
        download = Download(engine, cursor, form)
        return responses.render_records(first, end, stream, download.start, arrow=arrow)

    def append(self, request: Request, address: Address) -> Answer:
        """POST records/{bucket}/{name}."""
        requests.parse_query(request.query, ())
        requests.check_arrow(request)
        return follow(self._load_arrow(), lambda _: self._append(request, address))

    def _append(self, request: Request, address: Address) -> Answer:
        from headwater.wire import arrow

        sent = arrow.decode_records(
            request.body,
            bytes_max=self.options.body_bytes_max,
            records_max=limits.APPEND_RECORDS_MAX,
        )
        producer = headers.parse_producer(request.headers)
        command = AppendRecords(
            *address,
            self.engine.clock.now_ms(),
            sent.bodies,
            sent.headers,
            producer,
            requests.parse_if_match(request),
        )
        producer_id = None if producer is None else producer.id
        key = request.headers.get(headers.ENCRYPTION_KEY)
        return self.engine.append(command, key).then(
            lambda appended: responses.render_appended(appended, producer_id)
        )

    def trim(self, request: Request, address: Address) -> Answer:
        """POST trim/{bucket}/{name}."""
        cut, engine = requests.parse_cut(request), self.engine

        def look() -> Trim:
            stream = engine.open(*address)
            state, tail = stream.state, stream.tail
            if cut.stream_id is not None and cut.stream_id != responses.show_id(state.id):
                raise StreamNotFound(address.name)
            if cut.to > tail.seq:
                raise InvalidOffset(f"to is past the tail. to={cut.to} tail={tail.seq}", tail=tail)
            to = state.first
            if cut.to > to.seq:
                to = seek.message_of(engine.shard, stream, cut.to)
            return Trim(*address, engine.clock.now_ms(), to, state.id)

        def submit(command: Trim) -> Pending[Response]:
            trimmed = engine.submit(command)
            return trimmed.then(lambda _: responses.render_trimmed(command.to))

        return follow(engine.when_settled(*address, look), submit)

    def _load_arrow(self) -> Pending[None] | None:
        """Bring in pyarrow, in a thread: it takes half a second, and most servers never need it."""
        if self._arrow_loaded:
            return None
        loaded: Pending[None] = Pending()

        def done(imported: Any) -> None:
            error = imported.exception()
            if error is not None:
                loaded.fail(error)
                return
            self._arrow_loaded = True
            loaded.resolve(None)

        future = self.engine.loop.run_in_executor(None, import_module, "headwater.wire.arrow")
        future.add_done_callback(done)
        return loaded

    # -- the server

    def stats(self, request: Request) -> Answer:
        """GET stats."""
        requests.parse_query(request.query, ())
        self.engine.tally.operation(Operation.ACCOUNT_METRICS)
        return responses.render_stats(self._stats, self.engine.clock.now_ms())

    def backup(self, request: Request) -> Answer:
        """GET backup. It has everything, secrets included, so it takes a token for everything."""
        requests.parse_query(request.query, ())
        grant = request.grant
        if grant is not None and grant.scope != EVERYTHING:
            raise PermissionDenied("a backup needs a token that permits everything")
        if request.method == "HEAD":
            return responses.render_backup_head()
        return begin_backup(self.engine, SHARD_FOLDER).then(responses.render_backup)

    def openapi(self, request: Request) -> Answer:
        """GET openapi.json."""
        requests.parse_query(request.query, ())
        return Response(200, (), self._openapi, base=responses.JSON_HEADERS)


def _guarded(handle: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Errors become responses in one place, whether they come at once or with the commit."""

    def guarded(request: Request) -> Answer:
        try:
            answer = handle(request)
        except Exception as error:
            return render_error(error)
        return answer.catch(render_error) if isinstance(answer, Pending) else answer

    return guarded


def _refuse_write(_: Request) -> Answer:
    raise ReadOnly()


def _not_found(path: str) -> Response:
    return error_response(404, "not_found", f"nothing is served at {path}; see {ROOT}/openapi.json")
