"""Who answers which path, and what every answer of the server's own carries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.dialects.common import base_url
from headwater.server.app import App
from headwater.server.cors import OriginPolicy
from headwater.server.forwarded import TrustedProxies
from headwater.server.limits import RateLimiter
from headwater.wire.http import Request, Response, Route
from tests.support.clock import FakeClock


def request(path: str, method: str = "GET", peer: str = "1.1.1.1", **headers: bytes) -> Request:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Request(method, path, "", {b"host": b"a.example", **given}, peer=peer)


def names(name: str) -> Route:
    """A route that answers with its own name."""
    return Route(lambda _: Response(200, (), name.encode()), body_bytes_max=0)


def answer(outcome: Route | Response, asked: Request) -> Response:
    if isinstance(outcome, Response):
        return outcome
    found = outcome.handle(asked)
    assert isinstance(found, Response)
    return found


def ask(app: App, asked: Request) -> Response:
    return answer(app.begin(asked), asked)


def headers(response: Response) -> dict[bytes, bytes]:
    return dict((*response.base.pairs, *response.headers))


def error(response: Response) -> dict[str, Any]:
    assert isinstance(response.body, bytes)
    found: dict[str, Any] = json.loads(response.body)["error"]
    return found


def app(**parts: Any) -> App:
    made = App(**parts)
    made.mount("/v1/stream/", lambda _: names("durable"))
    made.mount("/v1/log/", lambda _: names("log"))
    made.page("/health", lambda: Response(200, (), b"health"))
    return made


@pytest.mark.parametrize(
    ("path", "who"),
    [
        ("/v1/stream/a", b"durable"),
        ("/v1/stream/", b"durable"),
        ("/v1/stream/a/b%2Fc", b"durable"),
        ("/v1/log/streams", b"log"),
        ("/health", b"health"),
    ],
)
def test_a_path_is_answered_by_what_is_mounted_there(path: str, who: bytes) -> None:
    assert ask(app(), request(path)).body == who


@pytest.mark.parametrize(
    "path", ["/", "/v1/stream", "/v1/streams", "/v1/", "/%761/stream/a", "/health/", "/HEALTH", "*"]
)
def test_any_other_path_is_not_found(path: str) -> None:
    response = ask(app(), request(path))
    assert response.status == 404
    assert error(response)["code"] == "not_found"
    assert path in error(response)["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_page_is_only_read(method: str) -> None:
    response = ask(app(), request("/health", method))
    assert response.status == 405
    assert headers(response)[b"allow"] == b"GET, HEAD, OPTIONS"


@pytest.mark.parametrize("path", ["/health", "/nothing", "*"])
def test_a_preflight_is_answered_everywhere(path: str) -> None:
    response = ask(app(), request(path, "OPTIONS"))
    assert response.status == 204
    found = headers(response)
    assert found[b"access-control-allow-origin"] == b"*"
    assert b"If-None-Match" in found[b"access-control-allow-headers"]
    assert found[b"access-control-max-age"] == b"86400"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (408, "request_timeout"),
        (413, "body_too_large"),
        (414, "target_too_long"),
        (431, "headers_too_large"),
        (500, "internal_error"),
        (501, "not_implemented"),
        (505, "version_not_supported"),
        (418, "error"),
    ],
)
def test_what_is_no_request_is_refused_as_an_error_like_any_other(status: int, code: str) -> None:
    response = app().refuse(status, "why")
    assert response.status == status
    assert error(response) == {"code": code, "message": "why"}


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(ask(app(), request("/nothing")), id="404"),
        pytest.param(ask(app(), request("/health", "POST")), id="405"),
        pytest.param(app().refuse(400, "why"), id="400"),
    ],
)
def test_every_error_carries_the_security_headers(response: Response) -> None:
    found = headers(response)
    assert found[b"content-type"] == b"application/json"
    assert found[b"x-content-type-options"] == b"nosniff"
    assert found[b"cross-origin-resource-policy"] == b"cross-origin"
    assert found[b"access-control-allow-origin"] == b"*"
    assert found[b"access-control-expose-headers"] == b"*"
    assert found[b"cache-control"] == b"no-store"


def test_too_many_requests_are_refused_with_a_time_to_come_back() -> None:
    clock = FakeClock()
    limited = app(limiter=RateLimiter(1, monotonic_s=clock.monotonic_s))
    assert ask(limited, request("/v1/stream/a")).status == 200
    refused = ask(limited, request("/v1/stream/a"))
    assert refused.status == 429
    assert error(refused)["code"] == "rate_limited"
    assert headers(refused)[b"retry-after"] == b"1"
    assert ask(limited, request("/v1/stream/a", peer="2.2.2.2")).status == 200
    clock.advance(1)
    assert ask(limited, request("/v1/stream/a")).status == 200


def test_probes_get_through_whatever_the_limit() -> None:
    limited = app(limiter=RateLimiter(1, monotonic_s=FakeClock().monotonic_s))
    assert {ask(limited, request("/health")).status for _ in range(5)} == {200}


def test_behind_a_proxy_the_limit_is_per_client() -> None:
    limited = app(
        limiter=RateLimiter(1, monotonic_s=FakeClock().monotonic_s),
        proxies=TrustedProxies("10.0.0.1"),
    )

    def status(client: bytes) -> int:
        asked = request("/v1/stream/a", peer="10.0.0.1", x_forwarded_for=client)
        return ask(limited, asked).status

    assert [status(b"1.1.1.1"), status(b"1.1.1.2"), status(b"1.1.1.1")] == [200, 200, 429]


def test_configured_origins_reach_every_answer() -> None:
    strict = app(origins=OriginPolicy("https://a"))
    asked = request("/v1/stream/a", origin=b"https://a")
    assert headers(ask(strict, asked))[b"access-control-allow-origin"] == b"https://a"
    assert b"access-control-allow-origin" not in headers(strict.refuse(400, "why"))


@pytest.mark.parametrize(
    ("secure", "host", "public_url", "url"),
    [
        pytest.param(False, b"a:1", "", "http://a:1", id="as asked"),
        pytest.param(True, b"a:1", "", "https://a:1", id="as asked, with TLS"),
        pytest.param(True, b"a:1", "https://b/c", "https://b/c", id="as configured"),
        pytest.param(False, b"", "", "http://localhost", id="HTTP/1.0 without host"),
    ],
)
def test_urls_are_those_that_clients_can_use(
    secure: bool, host: bytes, public_url: str, url: str
) -> None:
    asked = Request("GET", "/", "", {b"host": host}, secure=secure)
    assert base_url(asked, public_url) == url
