"""Routes of the Ursula dialect at /{bucket}/…: parse, one engine call, render.

Streams are served by the routes of the base protocol, told by `URSULA` where the two differ. What
only this dialect has is here: buckets, lists, and the resources of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.core.access import Operation
from headwater.core.buckets import BucketConfig
from headwater.core.commands import TrimToSnapshot
from headwater.core.errors import Conflict, InvalidRequest, NotFound, ReadOnly
from headwater.core.limits import MIB
from headwater.core.pending import Pending
from headwater.core.types import Position
from headwater.dialects.common import error_response, preflight
from headwater.dialects.durable.responses import render_done
from headwater.dialects.durable.routes import DurableDialect, DurableOptions, guard
from headwater.dialects.durable.rules import Address
from headwater.dialects.ursula import requests, responses
from headwater.dialects.ursula.batches import append_batch
from headwater.dialects.ursula.errors import render_read_error, render_write_error
from headwater.dialects.ursula.rules import URSULA
from headwater.dialects.ursula.snapshots import (
    bootstrap,
    delete_snapshot,
    get_snapshot,
    locate_first,
    parse_where,
    put_snapshot,
)
from headwater.dialects.ursula.targets import Kind, Target, parse_bucket, parse_target
from headwater.engine.engine import Engine
from headwater.engine.listing import Selection, list_streams
from headwater.engine.steps import follow
from headwater.wire.http import Answer, Request, Response, Route

READS = frozenset({"GET", "HEAD"})
EVERY_STREAM = 2**62
GIB = 1024 * MIB

Subscribed = Callable[[str, str, Request, str], Answer]
"""Answers a request, given a bucket, the path of its streams, and what follows `__ds/`."""
Handler = Callable[[Request], Answer]


class UrsulaDialect:
    """Buckets and their streams over one engine."""

    def __init__(
        self,
        engine: Engine,
        options: DurableOptions,
        *,
        origin_of: Callable[[Request], str],
        subscriptions: Subscribed | None = None,
        subscribed: Callable[[str], bool] = lambda bucket: False,
        snapshot_bytes_max: int = GIB,
    ) -> None:
        """As for DurableDialect; without `subscriptions` there are none. `subscribed` tells
        whether a bucket has any."""
        self.engine = engine
        self.options = options
        self._origin_of = origin_of
        self._subscriptions = subscriptions
        self._subscribed = subscribed
        self._streams = DurableDialect(engine, options, origin_of=origin_of, rules=URSULA)
        self._routes: dict[Kind, Mapping[str, Route]] = {
            Kind.BUCKET: self._methods(
                GET=self.bucket, PUT=self.put_bucket, DELETE=self.drop_bucket
            ),
            Kind.STREAMS: self._methods(GET=self.list),
            Kind.ATTRIBUTES: self._methods(GET=self.attributes, PUT=self.set_attributes),
            Kind.BATCH: self._methods(POST=self.append_batch),
            Kind.SNAPSHOT: self._methods(
                GET=self.get_snapshot, PUT=self.put_snapshot, DELETE=self.delete_snapshot
            ),
            Kind.RETENTION: self._methods(PUT=self.trim),
            Kind.BOOTSTRAP: self._methods(GET=self.bootstrap),
        }
        self._snapshot_route = self._routes[Kind.SNAPSHOT]["PUT"]
        if not options.read_only:
            self._snapshot_route.streams_body = True
            self._snapshot_route.body_bytes_max = snapshot_bytes_max
        reserved = Route(guard(self.reserved, render_write_error), body_bytes_max=MIB)
        self._reserved = reserved

    def _methods(self, **handlers: Handler) -> Mapping[str, Route]:
        """The routes of one resource; HEAD is GET, whose body the server leaves out."""
        size, found = self.options.body_bytes_max, {}
        for method, handle in handlers.items():
            if method in READS:
                route = Route(guard(handle, render_read_error), body_bytes_max=size)
                found.update({"GET": route, "HEAD": route})
                continue
            if self.options.read_only:
                handle = _refuse_write
            found[method] = Route(guard(handle, render_write_error), body_bytes_max=size)
        answer = preflight(", ".join((*found, "OPTIONS")))
        found["OPTIONS"] = Route(lambda _: answer, body_bytes_max=size)
        return found

    def begin(self, request: Request) -> Route | Response | None:
        """None for a path that is not of a bucket, and for one that could not be."""
        try:
            target = parse_target(request.path)
            if target is None:
                return None
            if target.kind is Kind.BUCKET and request.method != "PUT":
                parse_bucket(target.bucket, self.options.names)
        except InvalidRequest:
            return None
        if target.kind in self._routes:
            return self._choose(request, target)
        if target.kind is Kind.SUBSCRIPTIONS and request.method != "OPTIONS":
            return self._reserved
        return self._streams.choose(request)

    def _choose(self, request: Request, target: Target) -> Route | Response:
        routes = self._routes[target.kind]
        route = routes.get(request.method)
        if route is None:
            allowed = ", ".join(routes)
            message = f"this path takes {allowed}"
            allow = (b"allow", allowed.encode())
            return error_response(405, "method_not_allowed", message, (allow,))
        return route

    def end_waits(self) -> None:
        """The server stops."""
        self._streams.end_waits()

    def reserved(self, request: Request) -> Answer:
        """{bucket}/__ds/…: subscriptions. PROTOCOL §6."""
        if self._subscriptions is None:
            raise ReadOnly()
        target = parse_target(request.path)
        assert target is not None
        bucket = parse_bucket(target.bucket, self.options.names)
        return self._subscriptions(bucket, f"/{bucket}", request, target.rest)

    # -- buckets

    def put_bucket(self, request: Request) -> Answer:
        """PUT {bucket}."""
        bucket = self._bucket(request)
        config = requests.parse_bucket_config(request)
        self.engine.tally.operation(Operation.CREATE_BASIN)
        return self.engine.put_bucket(bucket, config).then(responses.render_bucket_put)

    def drop_bucket(self, request: Request) -> Answer:
        """DELETE {bucket}."""
        bucket = self._bucket(request)
        if self._subscribed(bucket):
            raise Conflict(f"the bucket has subscriptions; delete them first. bucket={bucket}")
        self.engine.tally.operation(Operation.DELETE_BASIN)
        return self.engine.drop_bucket(bucket).then(render_done)

    def bucket(self, request: Request) -> Answer:
        """GET {bucket}."""
        bucket, engine = self._bucket(request), self.engine
        engine.tally.operation(Operation.GET_BASIN_CONFIG)
        contents = responses.BucketContents()
        selection = Selection(bucket=bucket, limit=EVERY_STREAM)
        size = self.options.body_bytes_max

        def add_up(config: BucketConfig) -> Answer:
            return follow(
                list_streams(engine, selection, contents.show),
                lambda _: contents.render(bucket, config, body_bytes_max=size),
            )

        return follow(self._look_up(bucket), add_up)

    def list(self, request: Request) -> Answer:
        """GET {bucket}/streams."""
        bucket, engine = self._bucket(request), self.engine
        selection = requests.parse_selection(request, bucket)
        engine.tally.operation(Operation.LIST_STREAMS, bucket)
        found = responses.StreamList()

        def show(_: BucketConfig) -> Answer:
            return follow(list_streams(engine, selection, found.show), found.render)

        return follow(self._look_up(bucket), show)

    def _look_up(self, bucket: str) -> BucketConfig | Pending[BucketConfig]:
        """The bucket as it is on disk."""

        def look() -> BucketConfig:
            config = self.engine.bucket(bucket)
            if config is None:
                raise NotFound(f"no such bucket. bucket={bucket}")
            return config

        return self.engine.at_rest(look)

    # -- one stream

    def append_batch(self, request: Request) -> Answer:
        """POST {stream}/append-batch."""
        return append_batch(self.engine, request, self._address(request), render_write_error)

    def attributes(self, request: Request) -> Answer:
        """GET {stream}/attrs. Does not renew the TTL."""
        address, engine = self._address(request), self.engine
        engine.tally.operation(Operation.GET_STREAM_CONFIG, address.bucket)
        return engine.at_rest(lambda: responses.render_attributes(engine.open(*address)))

    def set_attributes(self, request: Request) -> Answer:
        """PUT {stream}/attrs: they are replaced whole."""
        command = requests.parse_set_attributes(
            request, self._address(request), self.engine.clock.now_ms()
        )
        self.engine.tally.operation(Operation.RECONFIGURE_STREAM, command.bucket)
        return self.engine.change(command).then(render_done)

    # -- snapshots

    def put_snapshot(self, request: Request) -> Answer:
        """PUT {stream}/snapshot/{offset}, or ?record=N."""
        where = parse_where(_rest(request), request.query)
        return put_snapshot(self.engine, request, self._address(request), where)

    def get_snapshot(self, request: Request) -> Answer:
        """GET {stream}/snapshot[/{offset}]."""
        origin = self._origin_of(request)
        return get_snapshot(self.engine, request, self._address(request), _rest(request), origin)

    def delete_snapshot(self, request: Request) -> Answer:
        """DELETE {stream}/snapshot[/{offset}]."""
        return delete_snapshot(self.engine, self._address(request), _rest(request))

    def bootstrap(self, request: Request) -> Answer:
        """GET {stream}/bootstrap."""
        return bootstrap(self.engine, request, self._address(request))

    def trim(self, request: Request) -> Answer:
        """PUT {stream}/retention/{offset}, or ?record=N: drop everything before."""
        address, engine = self._address(request), self.engine
        where = parse_where(_rest(request), request.query)

        def look() -> Position:
            return locate_first(engine, engine.open(*address), where)

        def submit(to: Position) -> Pending[Response]:
            command = TrimToSnapshot(*address, engine.clock.now_ms(), to)
            return engine.change(command).then(lambda _: responses.render_trimmed(to))

        return follow(engine.when_settled(*address, look), submit)

    def _bucket(self, request: Request) -> str:
        target = parse_target(request.path)
        assert target is not None
        return parse_bucket(target.bucket, self.options.names)

    def _address(self, request: Request) -> Address:
        return URSULA.parse_address(request.path, self.options.names)


def _rest(request: Request) -> str:
    target = parse_target(request.path)
    assert target is not None
    return target.rest


def _refuse_write(_: Request) -> Answer:
    raise ReadOnly()
