"""Routes of the S2 API: one table, and the way from a request to its handler.

A handler is `def append(self, request: Request, target: Target) -> Answer`. It may raise Refused
and the errors of core. Each route has the name of its operation, by which access is judged
(`authorize`) and use is counted: both happen here, in one place, before any handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from headwater.core import access
from headwater.core.errors import ReadOnly
from headwater.core.limits import MIB
from headwater.core.names import NameRules
from headwater.core.pending import Pending
from headwater.dialects.common import preflight
from headwater.dialects.s2.errors import Refused, error_response, explain
from headwater.dialects.s2.requests import is_session
from headwater.dialects.s2.targets import Basins, Target, id_of_path, stream_of_path
from headwater.engine.engine import Engine
from headwater.wire.http import Answer, Request, Response, Route

log = logging.getLogger("headwater.s2")

ROOT = "/v1"
BODY_BYTES_MAX = 8 * MIB
"""The largest batch fits even as JSON with every byte escaped; a larger body only takes time."""
ENDLESS_BYTES = 2**62
"""A session has no length."""
PREFIXES = tuple(
    f"{ROOT}/{first}" for first in ("basins", "streams", "access-tokens", "metrics", "locations")
)

Handler = Callable[[Request, Target], Answer]
Authorize = Callable[[Request, str, Target], Target]
"""May this request do this operation? Raises Refused. What it returns is what the request is
about, which differs where a token prefixes the names of streams."""


class Operation(NamedTuple):
    """One row of the table of routes."""

    method: str
    path: str
    """Segments below ROOT, in which `{basin}`, `{stream}` and `{id}` stand for a name."""
    name: str
    """As the API calls it in the scope of an access token."""
    writes: bool = False


OPERATIONS = (
    Operation("GET", "basins", "list-basins"),
    Operation("POST", "basins", "create-basin", writes=True),
    Operation("PUT", "basins/{basin}", "create-basin", writes=True),
    Operation("GET", "basins/{basin}", "get-basin-config"),
    Operation("PATCH", "basins/{basin}", "reconfigure-basin", writes=True),
    Operation("DELETE", "basins/{basin}", "delete-basin", writes=True),
    Operation("GET", "streams", "list-streams"),
    Operation("POST", "streams", "create-stream", writes=True),
    Operation("PUT", "streams/{stream}", "create-stream", writes=True),
    Operation("GET", "streams/{stream}", "get-stream-config"),
    Operation("PATCH", "streams/{stream}", "reconfigure-stream", writes=True),
    Operation("DELETE", "streams/{stream}", "delete-stream", writes=True),
    Operation("GET", "streams/{stream}/records/tail", "check-tail"),
    Operation("GET", "streams/{stream}/records", "read"),
    Operation("POST", "streams/{stream}/records", "append", writes=True),
    Operation("GET", "access-tokens", "list-access-tokens"),
    Operation("POST", "access-tokens", "issue-access-token", writes=True),
    Operation("DELETE", "access-tokens/{id}", "revoke-access-token", writes=True),
    Operation("GET", "metrics", "account-metrics"),
    Operation("GET", "metrics/{basin}", "basin-metrics"),
    Operation("GET", "metrics/{basin}/{stream}", "stream-metrics"),
    Operation("GET", "locations", "list-locations"),
    Operation("GET", "locations/default", "get-default-location"),
    Operation("PUT", "locations/default", "set-default-location", writes=True),
)


PATHS_CACHED_MAX = 4096
CACHED_PATH_MAX = 2048
"""Paths that are not looked at again, and how long one may be: the longest name fits."""

_BASIN_HEADER_FIRST = "streams"
"""What is below this segment names its basin outside the path."""


@dataclass(frozen=True, slots=True)
class S2Options:
    """What an operator may choose about this dialect."""

    body_bytes_max: int = 32 * MIB
    read_only: bool = False
    names: NameRules = NameRules.LENIENT
    domain: str = ""
    """Hosts `{basin}.{domain}` name a basin."""
    followers_max: int = 10_000

    @property
    def request_bytes_max(self) -> int:
        """Of a body that comes whole, packed and unpacked."""
        return min(self.body_bytes_max, BODY_BYTES_MAX)


class S2Dialect:
    """The S2 API over one engine."""

    def __init__(
        self, engine: Engine, options: S2Options, *, authorize: Authorize | None = None
    ) -> None:
        self.engine = engine
        self.options = options
        self.basins = Basins(
            domain=options.domain, exists=lambda name: engine.bucket(name) is not None
        )
        self._authorize = authorize or _allow
        self._routes: dict[tuple[str, ...], dict[str, Route]] = {}
        """By the shape of a path: its segments, with `{}` for each name."""
        # The same few paths come over and over.
        self._known_routes = lru_cache(maxsize=PATHS_CACHED_MAX)(self._find_routes)
        self._known_names = lru_cache(maxsize=PATHS_CACHED_MAX)(self._parse_names)
        for operation in OPERATIONS:
            self._add(operation, _not_implemented)
        self._append = self._sessions = self._routes["streams", "{}", "records"]["POST"]

    def serve(self, handlers: dict[tuple[str, str], Handler]) -> None:
        """Answer rows of the table, each named by method and path, with these handlers."""
        rows = {(operation.method, operation.path): operation for operation in OPERATIONS}
        for row, handler in handlers.items():
            self._add(rows[row], handler)

    def serve_sessions(self, handler: Handler) -> None:
        """Answer append sessions, whose body goes on arriving, with this handler."""
        append = next(operation for operation in OPERATIONS if operation.name == "append")
        handle = self._guarded(append, handler)
        self._append = self._routes[_shape(append.path)][append.method]
        self._sessions = Route(handle, body_bytes_max=ENDLESS_BYTES, streams_body=True)

    def _add(self, operation: Operation, handler: Handler) -> None:
        routes = self._routes.setdefault(_shape(operation.path), {})
        handle = self._guarded(operation, handler)
        routes[operation.method] = Route(handle, body_bytes_max=self.options.request_bytes_max)

    def begin(self, request: Request) -> Route | Response:
        """Choose by path and method; the path is known to begin with one of PREFIXES."""
        path = request.path
        find = self._known_routes if len(path) <= CACHED_PATH_MAX else self._find_routes
        routes = find(path)
        if routes is None:
            return error_response("not_found", f"nothing is served at {request.path}")
        route = routes.get(request.method)
        if route is not None:
            if route is self._append and is_session(request):
                return self._sessions
            return route
        allowed = ", ".join((*routes, "OPTIONS"))
        if request.method == "OPTIONS":
            return preflight(allowed)
        allow = (b"allow", allowed.encode())
        return error_response("method_not_allowed", f"{request.path} takes {allowed}", allow)

    def _find_routes(self, path: str) -> dict[str, Route] | None:
        segments = path[len(ROOT) + 1 :].split("/")
        exact = self._routes.get(tuple(segments))
        if exact is not None:
            return exact
        return self._routes.get(_mask(segments))

    def _guarded(self, operation: Operation, handler: Handler) -> Callable[[Request], Answer]:
        """Who is meant, may they, then the handler. Errors become responses here, whether they
        come at once or with the commit."""
        named = tuple(operation.path.split("/"))
        refused = operation.writes and self.options.read_only
        known = access.Operation(operation.name)
        counted = access.TRAITS[known].group is not access.Group.STREAM

        def guarded(request: Request) -> Answer:
            try:
                if refused:
                    raise ReadOnly()
                target = self._target(named, request)
                target = self._authorize(request, operation.name, target)
                answer = handler(request, target)
                if counted:
                    self.engine.tally.operation(known, target.basin)
            except Exception as error:
                return explain(error, log)
            return answer.catch(explained) if isinstance(answer, Pending) else answer

        def explained(error: Exception) -> Response:
            return explain(error, log)

        return guarded

    def _target(self, named: tuple[str, ...], request: Request) -> Target:
        path = request.path
        parse = self._known_names if len(path) <= CACHED_PATH_MAX else self._parse_names
        raw_basin, name = parse(named, path)
        if raw_basin is not None:
            return Target(self.basins.of_path(request, raw_basin), name)
        if named[0] == _BASIN_HEADER_FIRST:
            return Target(self.basins.of_request(request), name)
        return Target("", name)

    def _parse_names(self, named: tuple[str, ...], path: str) -> tuple[str | None, str]:
        """The basin as it stands in a path, if it does, and the other name. Raises Refused."""
        basin, name = None, ""
        for kind, raw in zip(named, path[len(ROOT) + 1 :].split("/"), strict=True):
            if kind == "{basin}":
                basin = raw
            elif kind == "{stream}":
                name = stream_of_path(raw, self.options.names)
            elif kind == "{id}":
                name = id_of_path(raw)
        return basin, name


def _shape(path: str) -> tuple[str, ...]:
    return tuple("{}" if part.startswith("{") else part for part in path.split("/"))


def _mask(segments: list[str]) -> tuple[str, ...]:
    """The shape that a path with names in it has: the second segment is one, and of metrics the
    third too."""
    names_end = 3 if segments[0] == "metrics" else 2
    return tuple("{}" if 0 < at < names_end else part for at, part in enumerate(segments))


def _allow(request: Request, operation: str, target: Target) -> Target:
    return target


def _not_implemented(request: Request, target: Target) -> Answer:
    raise Refused("not_implemented", "this server does not do that yet")
