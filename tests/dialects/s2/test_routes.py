"""The table of routes: what is served where, and how everything else is refused."""

from __future__ import annotations

import gzip

import pytest

from headwater.core.access import Operation as Permitted
from headwater.dialects.s2 import errors
from headwater.dialects.s2.routes import (
    OPERATIONS,
    PREFIXES,
    Handler,
    Operation,
    S2Dialect,
    S2Options,
)
from headwater.dialects.s2.targets import Target
from headwater.server.app import App
from headwater.server.limits import RateLimiter
from headwater.wire.http import Answer, Request, Response, Route
from tests.support.clock import FakeClock
from tests.support.s2 import BASIN, S2Reply, S2Server


def filled_in(path: str) -> str:
    return path.replace("{basin}", BASIN).replace("{stream}", "a%2Fb").replace("{id}", "token")


class Recorder:
    """Notes what reaches a handler."""

    def __init__(self, server: S2Server) -> None:
        self.seen: list[tuple[str, Target]] = []
        self.asked: list[tuple[str, Target]] = []
        self.dialect = S2Dialect(server.engine, S2Options(), authorize=self._authorize)
        rows = [(operation.method, operation.path) for operation in OPERATIONS]
        self.dialect.serve({row: self._handler(" ".join(row)) for row in rows})
        self.dialect.serve_sessions(self._handler("session"))

    def _authorize(self, request: Request, operation: str, target: Target) -> Target:
        self.asked.append((operation, target))
        return target

    def _handler(self, name: str) -> Handler:
        def handle(request: Request, target: Target) -> Answer:
            self.seen.append((name, target))
            return Response(200)

        return handle

    def send(self, method: str, path: str, **headers: bytes) -> Response:
        given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
        request = Request(method, f"/v1/{path}", "", {b"s2-basin": BASIN.encode(), **given})
        route = self.dialect.begin(request)
        if isinstance(route, Response):
            return route
        answer = route.handle(request)
        assert isinstance(answer, Response)
        return answer


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_every_row_reaches_its_handler_by_way_of_access(
    server: S2Server, operation: Operation
) -> None:
    recorder = Recorder(server)

    assert recorder.send(operation.method, filled_in(operation.path)).status == 200

    [(reached, target)] = recorder.seen
    assert reached == f"{operation.method} {operation.path}"
    assert recorder.asked == [(operation.name, target)]
    named = "{basin}" in operation.path or operation.path.startswith("streams")
    assert target.basin == (BASIN if named else "")
    expected = {"{stream}": "a/b", "{id}": "token"}
    assert target.name == next((v for k, v in expected.items() if k in operation.path), "")


def test_operations_have_the_names_that_tokens_know() -> None:
    assert {operation.name for operation in OPERATIONS} <= {each.value for each in Permitted}


def test_a_session_is_told_by_its_content_type(server: S2Server) -> None:
    recorder = Recorder(server)
    recorder.send("POST", "streams/s/records", content_type=b"S2S/Proto; x=1")
    recorder.send("POST", "streams/s/records", content_type=b"application/json")
    recorder.send("GET", "streams/s/records", content_type=b"s2s/proto")
    recorder.send("POST", "streams", content_type=b"s2s/proto")

    assert [name for name, _ in recorder.seen] == [
        "session",
        "POST streams/{stream}/records",
        "GET streams/{stream}/records",
        "POST streams",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "basins/",
        "basins/x/y",
        "basinsandmore",
        "streams/s/record",
        "streams/s/records/",
        "streams/s/records/head",
        "streams/a/b/records",
        "metrics/a/b/c",
        "locations/other",
        "access-tokens/a/b",
    ],
)
def test_nothing_is_served_elsewhere(server: S2Server, path: str) -> None:
    reply = server.fetch("GET", path)

    assert reply.code in ("404 not_found", "400 bad_path", "405 method_not_allowed")


def test_another_method_is_told_which_there_are(server: S2Server) -> None:
    reply = server.fetch("PUT", "streams/s/records")

    assert reply.code == "405 method_not_allowed"
    assert reply.headers["allow"] == "GET, POST, OPTIONS"


def test_a_browser_may_ask_first(server: S2Server) -> None:
    reply = server.fetch("OPTIONS", "streams/s/records")

    assert reply.status == 204
    assert reply.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert "S2-Basin" in reply.headers["access-control-allow-headers"]


def test_a_row_that_nobody_serves_is_not_implemented(server: S2Server) -> None:
    dialect = S2Dialect(server.engine, S2Options())
    route = dialect.begin(Request("GET", "/v1/locations", "", {}))
    assert isinstance(route, Route)
    answer = route.handle(Request("GET", "/v1/locations", "", {}))
    assert isinstance(answer, Response)

    assert S2Reply(answer).code == "501 not_implemented"


def test_a_bug_is_an_error_of_this_api_too(
    server: S2Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request, target: Target) -> Answer:
        raise RuntimeError("a bug")

    server.s2.serve({("GET", "streams/{stream}/records/tail"): fail})

    assert server.check_tail().code == "500 other"
    assert "a bug" in caplog.text


def limited_app(server: S2Server) -> App:
    app = App(limiter=RateLimiter(1, monotonic_s=FakeClock().monotonic_s))
    for prefix in PREFIXES:
        app.mount(prefix, server.s2.begin, errors.refuse)
    return app


def test_the_rate_limit_is_refused_in_the_form_of_this_api(server: S2Server) -> None:
    app = limited_app(server)
    request = Request("GET", "/v1/basins", "", {}, peer="1.1.1.1")
    app.begin(request)
    refused = app.begin(request)
    assert isinstance(refused, Response)

    reply = S2Reply(refused)
    assert reply.code == "429 rate_limited"
    assert reply.headers["retry-after"] == "1"
    assert reply.headers["retry-after-ms"] == "1000"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_header"),
        (408, "request_timeout"),
        (413, "body_too_large"),
        (431, "bad_header"),
        (500, "other"),
    ],
)
def test_what_the_server_refuses_itself_has_the_form_of_this_api(
    server: S2Server, status: int, code: str
) -> None:
    app = limited_app(server)
    request = Request("POST", "/v1/streams/s/records", "", {})

    assert S2Reply(app.refuse(status, "why", request)).code == f"{status} {code}"


def test_a_body_in_gzip_is_not_a_way_around_the_control_plane(server: S2Server) -> None:
    body = gzip.compress(b'{"stream": "zipped"}')

    reply = server.fetch(
        "POST", "streams", "", body, content_type="application/json", content_encoding="gzip"
    )
    assert reply.status == 201
