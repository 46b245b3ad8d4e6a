"""Origins other than "all": allowed pages are named, others see no permission at all."""

from __future__ import annotations

import pytest

from headwater.core.pending import Pending
from headwater.dialects.common import SECURITY_HEADERS, error_response, preflight
from headwater.server.cors import OriginPolicy
from headwater.wire.http import Answer, BodyWriter, Request, Response, Route, StreamedResponse

POLICY = OriginPolicy("https://app.example,http://localhost:3000")


def request(origin: bytes | None) -> Request:
    return Request("GET", "/", "", {} if origin is None else {b"origin": origin})


def headers(response: Response) -> dict[bytes, bytes]:
    return dict((*response.base.pairs, *response.headers))


def deliver(outcome: Route | Response, asked: Request) -> Response:
    if isinstance(outcome, Response):
        return outcome
    answer = outcome.handle(asked)
    if isinstance(answer, Response):
        return answer
    got: list[Response | Exception] = []
    answer.deliver(got.append)
    assert isinstance(got[0], Response)
    return got[0]


def test_an_allowed_origin_is_named() -> None:
    asked = request(b"https://app.example")
    found = headers(deliver(POLICY.apply(asked, error_response(404, "c", "m")), asked))
    assert found[b"access-control-allow-origin"] == b"https://app.example"
    assert b"access-control-expose-headers" in found
    assert found[b"vary"] == b"Origin"


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null", b"", None])
def test_any_other_origin_gets_no_permission(origin: bytes | None) -> None:
    asked = request(origin)
    found = headers(deliver(POLICY.apply(asked, preflight("GET")), asked))
    assert not [name for name in found if name.startswith(b"access-control-")]
    assert found[b"vary"] == b"Origin"
    assert found[b"x-content-type-options"] == b"nosniff"


def test_the_constant_response_stays_as_it_was() -> None:
    shared = preflight("GET")
    POLICY.apply(request(b"https://app.example"), shared)
    assert headers(shared)[b"access-control-allow-origin"] == b"*"


def test_an_answer_that_comes_at_once_is_dressed() -> None:
    asked = request(b"http://localhost:3000")
    route = Route(lambda _: Response(200, base=SECURITY_HEADERS), body_bytes_max=7)
    outcome = POLICY.apply(asked, route)
    assert isinstance(outcome, Route)
    assert outcome.body_bytes_max == 7
    found = headers(deliver(outcome, asked))
    assert found[b"access-control-allow-origin"] == b"http://localhost:3000"


def test_an_answer_that_comes_with_the_commit_is_dressed() -> None:
    pending: Pending[Response] = Pending()

    def handle(_: Request) -> Answer:
        return pending

    asked = request(b"https://app.example")
    outcome = POLICY.apply(asked, Route(handle, body_bytes_max=0))
    pending.resolve(Response(204, base=SECURITY_HEADERS))
    found = headers(deliver(outcome, asked))
    assert found[b"access-control-allow-origin"] == b"https://app.example"


def test_a_streamed_answer_still_streams() -> None:
    def start(_: BodyWriter) -> None: ...

    dressed = POLICY.dress(request(None), StreamedResponse(200, (), start, base=SECURITY_HEADERS))
    assert isinstance(dressed, StreamedResponse)
    assert dressed.start is start


def test_no_origin_at_all_can_be_allowed() -> None:
    dressed = OriginPolicy("").dress(request(b""), Response(200, base=SECURITY_HEADERS))
    assert b"access-control-allow-origin" not in headers(dressed)
