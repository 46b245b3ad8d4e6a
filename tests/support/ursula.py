"""The Ursula dialect in process, as tests/support/durable.py has the base protocol.

Names are raw paths without the first slash: `demo/hello`, `demo/hello/attrs`, `demo`.
"""

from __future__ import annotations

from typing import Any

from headwater.core.pending import Pending
from headwater.dialects.durable.routes import DurableOptions
from headwater.dialects.ursula.routes import UrsulaDialect
from headwater.storage.store import Store
from headwater.wire.http import Request, Response, Route
from tests.support.clock import FakeClock
from tests.support.durable import ORIGIN, DurableServer

STREAM = "demo/s"
NUMBERED = "json-record-coordinates-v1"
"""What `Stream-Extensions` says on answers of JSON streams."""


class UrsulaServer(DurableServer):
    """The dialect over an engine of its own."""

    def __init__(
        self, store: Store | None = None, clock: FakeClock | None = None, **options: Any
    ) -> None:
        super().__init__(store, clock, **options)
        self.ursula = UrsulaDialect(
            self.engine, DurableOptions(**options), origin_of=lambda request: ORIGIN
        )

    def begin(
        self, method: str, name: str, query: str = "", body: bytes = b"", /, **headers: str
    ) -> Response | Pending[Response]:
        given = {
            header.replace("_", "-").encode(): value.encode("utf-8")
            for header, value in headers.items()
        }
        request = Request(method, self.path_of(name), query, given, body=body)
        route = self.choose(request)
        return route.handle(request) if isinstance(route, Route) else route

    def path_of(self, name: str) -> str:
        return f"/{name}"

    def choose(self, request: Request) -> Route | Response:
        route = self.ursula.begin(request)
        assert route is not None, f"nothing is served at {request.path}"
        return route

    def serves(self, path: str, method: str = "GET") -> bool:
        """Is this raw path one of a bucket?"""
        return self.ursula.begin(Request(method, path, "", {})) is not None

    def fork(self, name: str, source: str = STREAM, /, **headers: str) -> str:
        reply = self.put(name, stream_forked_from=source, **headers)
        assert reply.status == 201, reply
        self._types[name] = reply.headers["content-type"]
        return reply.next
