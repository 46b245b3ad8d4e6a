"""The composition root: `Server` builds the object graph, `App` finds who answers a path.

Routing is on the raw path: the APIs under /v1 in the order of mounting, then the server's own
pages, then buckets. What every API shares is done here once: the client's true address, the rate
limit, the origins of browsers. Sockets, data folders and pages have modules of their own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headwater.core.names import DURABLE_STREAMS_BUCKET, NameRules
from headwater.core.webhook_urls import WebhookPolicy
from headwater.dialects.access import Access
from headwater.dialects.common import base_url, error_response, preflight
from headwater.dialects.durable import access as durable_access
from headwater.dialects.durable.routes import DurableDialect, DurableOptions
from headwater.dialects.durable.rules import ROOT
from headwater.dialects.durable.subscriptions import route as route_subscriptions
from headwater.dialects.log import access as log_access
from headwater.dialects.log.routes import LogDialect, LogOptions
from headwater.dialects.s2 import errors as s2_errors
from headwater.dialects.s2 import routes as s2_routes
from headwater.dialects.s2.access import S2_ACCESS, authorize
from headwater.dialects.s2.control import ControlPlane
from headwater.dialects.s2.data import DataPlane
from headwater.dialects.s2.metrics import MetricsEndpoints
from headwater.dialects.s2.routes import S2Dialect, S2Options
from headwater.dialects.s2.tokens import TokenEndpoints
from headwater.dialects.ursula import access as ursula_access
from headwater.dialects.ursula.routes import UrsulaDialect
from headwater.engine.clock import Clock, SystemClock
from headwater.engine.engine import Engine
from headwater.engine.stats import Served, Stats
from headwater.engine.stored import Stored
from headwater.engine.subscription_registry import Registry
from headwater.engine.subscriptions import Subscriptions
from headwater.engine.tokens import Tokens
from headwater.engine.usage import Usage
from headwater.server.auth import PAGES, Gate
from headwater.server.cors import OriginPolicy
from headwater.server.data import free_bytes_of, open_store
from headwater.server.forwarded import TrustedProxies
from headwater.server.http1 import Http1Server
from headwater.server.http2 import serve_http2
from headwater.server.limits import RateLimiter
from headwater.server.listening import (
    BACKLOG,
    Refused,
    StartFailed,
    cannot_listen,
    close_sockets,
    open_sockets,
    open_tls,
    render_url,
)
from headwater.server.logs import AccessLog
from headwater.server.metrics import Metrics
from headwater.server.probes import Probes
from headwater.server.serving import ServerLimits
from headwater.server.settings import Settings
from headwater.server.traffic import Traffic
from headwater.storage.store import Store
from headwater.wire.http import Answer, Header, Request, Response, Route

log = logging.getLogger("headwater.server")

N = TypeVar("N")
Begin = Callable[[Request], Route | Response]
Refuse = Callable[[int, str, tuple[Header, ...]], Response]
"""An error of the server's own, in the form that an API gives its errors."""

PAGE_METHODS = "GET, HEAD, OPTIONS"
PAGE_BODY_BYTES_MAX = 64 * 1024
"""A body makes no sense there; one this small is read and ignored, to keep the connection."""

RATE_LIMITED = "too many requests from this address; wait as Retry-After says"

_REFUSALS = {
    400: "bad_request",
    408: "request_timeout",
    413: "body_too_large",
    414: "target_too_long",
    417: "expectation_failed",
    429: "rate_limited",
    431: "headers_too_large",
    500: "internal_error",
    501: "not_implemented",
    505: "version_not_supported",
}


class App:
    """A `wire.http.Application`: mounted APIs, pages, and 404 for everything else."""

    def __init__(
        self,
        *,
        limiter: RateLimiter | None = None,
        proxies: TrustedProxies | None = None,
        origins: OriginPolicy | None = None,
    ) -> None:
        self._limiter = limiter
        self._proxies = proxies
        self._origins = origins
        self._mounts: list[tuple[str, Begin, Refuse]] = []
        self._pages: dict[str, Begin] = {}
        self._rest: Callable[[Request], Route | Response | None] = lambda _: None
        self._page_preflight = preflight(PAGE_METHODS)

    def mount(self, prefix: str, begin: Begin, refuse: Refuse | None = None) -> None:
        """Give every path that begins with `prefix` to an API. The first that fits is asked.

        `refuse` renders what the server refuses by itself, where errors look different.
        """
        self._mounts.append((prefix, begin, refuse or _refuse))

    def mount_rest(self, begin: Callable[[Request], Route | Response | None]) -> None:
        """Offer what nothing else is for to one more API, which declines with None."""
        self._rest = begin

    def page(
        self,
        path: str,
        render: Callable[[], Response],
        guard: Callable[[Begin], Begin] = lambda begin: begin,
    ) -> None:
        """Answer one exact path. Not limited: probes and scrapes must get through."""
        route = Route(lambda _: render(), body_bytes_max=PAGE_BODY_BYTES_MAX)
        self._pages[path] = guard(lambda _: route)

    def begin(self, request: Request) -> Route | Response:
        if self._proxies is not None:
            self._proxies.apply(request)
        outcome = self._choose(request)
        return outcome if self._origins is None else self._origins.apply(request, outcome)

    def refuse(self, status: int, message: str, request: Request | None = None) -> Response:
        path = "" if request is None else request.path
        render = next((refuse for at, _, refuse in self._mounts if path.startswith(at)), _refuse)
        refusal = render(status, message, ())
        return refusal if self._origins is None else self._origins.dress(None, refusal)

    def _choose(self, request: Request) -> Route | Response:
        path = request.path
        for prefix, begin, refuse in self._mounts:
            if path.startswith(prefix):
                return self._limited(request, refuse) or begin(request)
        page = self._pages.get(path)
        if page is None:
            found = self._rest(request)
            if found is not None:
                return self._limited(request, _refuse) or found
        if request.method == "OPTIONS":
            return self._page_preflight
        if page is None:
            message = f"nothing is served at {path}; streams are at /v1/stream/{{name}}"
            return error_response(404, "not_found", message)
        if request.method not in ("GET", "HEAD"):
            allow = (b"allow", PAGE_METHODS.encode())
            return error_response(
                405, "method_not_allowed", f"{path} takes {PAGE_METHODS}", (allow,)
            )
        return page(request)

    def _limited(self, request: Request, refuse: Refuse) -> Response | None:
        wait_s = 0.0 if self._limiter is None else self._limiter.admit(request.peer)
        if not wait_s:
            return None
        retry_after = (b"retry-after", b"%d" % max(1, math.ceil(wait_s)))
        return refuse(429, RATE_LIMITED, (retry_after,))


def _refuse(status: int, message: str, headers: tuple[Header, ...]) -> Response:
    return error_response(status, _REFUSALS.get(status, "error"), message, headers)


class Server:
    """One server: a store, an engine, the APIs over it, and the sockets they are served on.

    Runs on the loop that calls `start`. Tests pass their own `store` and `clock`.
    """

    def __init__(
        self, settings: Settings, *, store: Store | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.url = ""
        self.failed = asyncio.Event()
        """Set when storage failed: nothing can be promised any more, the server must end."""
        self._store = store
        self._clock = clock
        self._engine: Engine | None = None
        self._probes: Probes | None = None
        self._http: Http1Server | None = None
        self._registry: Registry | None = None
        self._gate: Gate | None = None
        self._traffic = Traffic()
        self._listeners: list[asyncio.Server] = []
        self._on_drain: list[Callable[[], None]] = []
        self._on_close: list[Callable[[], None]] = []
        self._closed: bool | None = None

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "the server was never started"
        return self._engine

    async def start(self) -> None:
        """Open the data and listen. Raises StartFailed, and then nothing stays open."""
        settings = self.settings
        # What fails fast comes first: a port that is taken must not cost a recovery.
        tls = open_tls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
        sockets = open_sockets(settings.host, settings.port)
        try:
            self._build(asyncio.get_running_loop())
            self.url = render_url(sockets[0], secure=tls is not None)
            await self._listen(sockets, tls)
        except BaseException:
            close_sockets(sockets)
            await self.stop(grace_s=0)
            raise

    async def _listen(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Take the sockets over, one by one."""
        loop = asyncio.get_running_loop()
        try:
            while sockets:
                listener = await loop.create_server(
                    self._accept, sock=sockets[0], ssl=tls, backlog=BACKLOG
                )
                self._listeners.append(listener)
                del sockets[0]
        except OSError as error:
            raise cannot_listen(self.settings.host, self.settings.port, error) from error

    def _build(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self.settings
        clock = SystemClock(loop) if self._clock is None else self._clock
        store = open_store(settings) if self._store is None else self._store
        self._engine = engine = _open_engine(store, clock, loop, settings, self.failed.set)
        self._probes = probes = Probes(engine)

        rate = settings.requests_per_second_max
        limiter = RateLimiter(rate, monotonic_s=clock.monotonic_s) if rate else None
        app = App(
            limiter=limiter,
            proxies=TrustedProxies(settings.trusted_proxies) if settings.trusted_proxies else None,
            origins=None if settings.cors_origins == "*" else OriginPolicy(settings.cors_origins),
        )
        if settings.access_log:
            self._traffic = Traffic(AccessLog(clock.monotonic_s))
        self._http = Http1Server(
            app,
            clock=clock,
            loop=loop,
            limits=_limits(settings),
            on_response=self._traffic.note,
        )
        serve_http2(self._http.serving, loop.call_soon)
        metrics = Metrics(
            engine=engine,
            serving=self._http.serving,
            traffic=self._traffic,
            limiter=limiter,
            connections_max=settings.connections_max,
        )
        tokens = Tokens(engine, root_secret=settings.root_token)
        if settings.auth:
            self._gate = _open_gate(tokens, clock)
        self._mount_dialects(app, engine, tokens)
        app.page("/health", probes.health)
        app.page("/ready", probes.ready)
        app.page("/metrics", metrics.page, partial(self._guarded, access=PAGES))
        engine.start()
        self._http.start_sweeping()

    def _guarded(
        self, begin: Callable[[Request], Route | Response | N], access: Access
    ) -> Callable[[Request], Route | Response | N]:
        """What answers requests, behind the gate if there is one."""
        return begin if self._gate is None else self._gate.guard(begin, access)

    def _mount_dialects(self, app: App, engine: Engine, tokens: Tokens) -> None:
        """Where every HTTP API is built and mounted. The first prefix that fits is asked.

        An API with readers that wait (long-polls) adds to `_on_drain` what ends their wait.
        """
        settings = self.settings
        origin_of = partial(base_url, public_url=settings.public_url)
        options = DurableOptions(
            body_bytes_max=settings.body_bytes_max,
            chunk_bytes=settings.chunk_bytes,
            long_poll_timeout_s=settings.long_poll_timeout_s,
            incremental_timeout_s=settings.incremental_timeout_s,
            sse_heartbeat_s=settings.sse_heartbeat_s,
            sse_recycle_s=settings.sse_recycle_s,
            followers_max=settings.followers_max,
            read_only=settings.read_only,
            private=settings.auth,
            names=NameRules(settings.names),
        )
        subscribed = None if settings.read_only else self._subscriptions(engine, origin_of)
        registry = self._registry
        durable = DurableDialect(
            engine,
            options,
            origin_of=origin_of,
            subscriptions=subscribed and partial(subscribed, DURABLE_STREAMS_BUCKET, ROOT),
        )
        ursula = UrsulaDialect(
            engine,
            options,
            origin_of=origin_of,
            subscriptions=subscribed,
            subscribed=lambda bucket: bool(registry and registry.of_bucket(bucket)),
            snapshot_bytes_max=settings.snapshot_bytes_max,
        )
        names = options.names
        app.mount("/v1/stream/", self._guarded(durable.begin, durable_access.access_of(names)))
        app.mount_rest(self._guarded(ursula.begin, ursula_access.access_of(names, engine)))
        self._on_drain += [durable.end_waits, ursula.end_waits]
        self._mount_s2(app, engine, tokens)
        self._mount_log(app, engine)

    def _mount_s2(self, app: App, engine: Engine, tokens: Tokens) -> None:
        settings = self.settings
        s2 = S2Dialect(
            engine,
            S2Options(
                body_bytes_max=settings.body_bytes_max,
                read_only=settings.read_only,
                names=NameRules(settings.names),
                domain=settings.s2_domain,
                followers_max=settings.followers_max,
            ),
            authorize=authorize,
        )
        records = DataPlane(engine, s2.options)
        s2.serve(records.handlers())
        s2.serve(ControlPlane(engine, s2.options).handlers())
        s2.serve(TokenEndpoints(tokens).handlers())
        s2.serve(self._metrics(engine).handlers())
        s2.serve_sessions(records.append_session)
        self._on_drain.append(records.end_waits)
        for prefix in s2_routes.PREFIXES:
            app.mount(prefix, self._guarded(s2.begin, S2_ACCESS), s2_errors.refuse)

    def _metrics(self, engine: Engine) -> MetricsEndpoints:
        """How the server was used, noted by and by. A read-only server notes nothing."""
        usage, stored = Usage(engine), Stored(engine)
        if not self.settings.read_only:
            for part in (usage, stored):
                part.start()
                self._on_close.append(part.stop)
        return MetricsEndpoints(engine, usage, stored)

    def _mount_log(self, app: App, engine: Engine) -> None:
        """The native API. Comes after the subscriptions, which it tells of."""
        settings, registry = self.settings, self._registry
        stats = Stats(engine, self._served)
        stats.start()
        self._on_close.append(stats.stop)
        native = LogDialect(
            engine,
            LogOptions(
                body_bytes_max=settings.body_bytes_max,
                read_only=settings.read_only,
                names=NameRules(settings.names),
            ),
            stats,
            subscriptions_of=lambda bucket: registry.of_bucket(bucket).values() if registry else (),
        )
        access = log_access.access_of(native.options.names)
        app.mount("/v1/log/", self._guarded(native.begin, access))

    def _served(self) -> Served:
        assert self._http is not None
        serving = self._http.serving
        return Served(
            len(serving.connections), serving.requests_total, self._traffic.response_bytes_total
        )

    def _subscriptions(
        self, engine: Engine, origin_of: Callable[[Request], str]
    ) -> Callable[[str, str, Request, str], Answer]:
        """What answers `__ds/…`, given a bucket and the root of its streams.

        Not on a read-only server: subscriptions write by themselves.
        """
        hosts = tuple(filter(None, self.settings.webhook_hosts.split(",")))
        policy = WebhookPolicy(self.settings.allow_local_webhooks, hosts)
        subscriptions = Subscriptions(engine, policy)
        subscriptions.start()
        self._registry = subscriptions.registry
        self._on_close.append(subscriptions.close)

        def answer(bucket: str, root: str, request: Request, tail: str) -> Answer:
            return route_subscriptions(
                subscriptions,
                bucket=bucket,
                root_url=origin_of(request) + root,
                request=request,
                tail=tail,
            )

        return answer

    def _accept(self) -> asyncio.Protocol:
        assert self._http is not None
        if len(self._http.serving.connections) >= self.settings.connections_max:
            self._traffic.connections_refused_total += 1
            return Refused()
        return self._http.protocol()

    async def stop(self, grace_s: float | None = None) -> bool:
        """Stop accepting, let requests and commits finish, close the data.

        False if the data could not be closed in order: commits failed, or took longer than
        `grace_s` (`shutdown_grace_s` unless given). What was acknowledged is on disk either way.
        """
        grace_s = self.settings.shutdown_grace_s if grace_s is None else grace_s
        if self._probes is not None:
            self._probes.draining = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._http is not None:
            await self._end_connections(self._http, grace_s)
        while self._on_close:
            self._on_close.pop()()
        if self._closed is None and self._engine is not None:
            self._closed = await self._close_engine(self._engine, grace_s)
        return self._closed is not False

    async def _end_connections(self, http: Http1Server, grace_s: float) -> None:
        http.drain()
        for end_waits in self._on_drain:
            end_waits()
        # The loop's own timer beside the clock's: a clock that stands still must not hold us.
        try:
            async with asyncio.timeout(grace_s):
                await http.shut_down(grace_s=grace_s)
        except TimeoutError:
            for connection in tuple(http.serving.connections):
                connection.abort()
            await http.shut_down(grace_s=0)

    async def _close_engine(self, engine: Engine, grace_s: float) -> bool:
        if self.failed.is_set():
            # Closing would sync again, and a sync that failed once proves nothing by succeeding.
            return False
        closed: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def settle(outcome: object) -> None:
            if not closed.done():
                closed.set_result(outcome)

        engine.close().deliver(settle)
        failed = asyncio.ensure_future(self.failed.wait())
        await asyncio.wait(
            (closed, failed), timeout=max(grace_s, 1.0), return_when=asyncio.FIRST_COMPLETED
        )
        failed.cancel()
        if not closed.done() or isinstance(closed.result(), Exception):
            log.error("the data could not be closed in order; it is checked at the next start")
            return False
        return True


def _open_engine(
    store: Store,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    settings: Settings,
    on_failed: Callable[[], None],
) -> Engine:
    try:
        engine = Engine(
            store,
            clock,
            loop,
            hot_streams_max=settings.hot_streams_max,
            queue_bytes_max=settings.queue_bytes_max,
            disk_reserve_bytes=settings.disk_reserve_bytes,
            free_bytes=free_bytes_of(settings),
            on_failed=on_failed,
        )
    except Exception as error:
        store.close()
        raise StartFailed(f"cannot use the data folder {settings.data_dir}: {error}") from error
    engine.packer.enabled = settings.packing
    return engine


def _open_gate(tokens: Tokens, clock: Clock) -> Gate:
    if not len(tokens):
        log.warning("auth is on and there is no token: stop, run headwater token init, start")
    return Gate(tokens, clock)


def _limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        keep_alive_timeout_s=settings.keep_alive_timeout_s,
        write_timeout_s=settings.write_timeout_s,
    )
