"""Stream names in the raw path: `%2F` is part of a name, and names compare decoded."""

from __future__ import annotations

import pytest

from headwater.core.names import NameRules
from headwater.dialects.common import SECURITY_HEADERS
from headwater.dialects.durable.routes import DurableDialect, DurableOptions
from headwater.wire.http import Request, Response
from tests.support.durable import ORIGIN, TEXT, DurableServer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("a/b", "a%2Fb", id="an encoded slash"),
        pytest.param("a/b", "a%2fb", id="an encoded slash in small letters"),
        pytest.param("name", "n%61me", id="a letter that needs no encoding"),
        pytest.param("n%C3%A4me", "n%c3%a4me", id="UTF-8, letters of the escape"),
        pytest.param("a+b", "a%2Bb", id="a plus is a plus"),
        pytest.param("a%20b", "%61%20%62", id="a space"),
        pytest.param("%25", "%25", id="a percent sign"),
    ],
)
def test_the_same_name_spelt_two_ways(server: DurableServer, one: str, other: str) -> None:
    server.make(one, b"hello")
    assert server.get(other).body == b"hello"
    assert server.put(other, content_type=TEXT).status == 200


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("a", "A", id="case"),
        pytest.param("a", "a/", id="a slash at the end"),
        pytest.param("a/b", "a//b", id="two slashes"),
        pytest.param("%C3%A4", "a%CC%88", id="composed and decomposed"),
        pytest.param("a%2520b", "a%20b", id="encoded twice"),
    ],
)
def test_names_that_are_different(server: DurableServer, one: str, other: str) -> None:
    server.make(one, b"hello")
    assert server.get(other).status == 404


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("%00", id="NUL"),
        pytest.param("a%00b", id="NUL inside"),
        pytest.param(".", id="dot"),
        pytest.param("..", id="two dots"),
        pytest.param("a/../b", id="two dots as a segment"),
        pytest.param("a/%2e%2e/b", id="two dots, encoded"),
        pytest.param("a%2F..%2Fb", id="slashes encoded around two dots"),
        pytest.param("./a", id="dot as first segment"),
        pytest.param("%ff", id="not UTF-8"),
        pytest.param("%ed%a0%80", id="a surrogate"),
        pytest.param("x" * 513, id="513 bytes"),
        pytest.param("%C3%A4" * 257, id="514 bytes in 257 characters"),
        pytest.param("__ds", id="reserved"),
        pytest.param("%5F%5Fds", id="reserved, encoded"),
        pytest.param("%5F%5Fds/subscriptions/x", id="under the reserved name, encoded"),
        pytest.param("__ds%2Fsubscriptions", id="under the reserved name, slash encoded"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD", "DELETE"])
def test_an_invalid_name_is_refused(server: DurableServer, method: str, name: str) -> None:
    reply = server.request(method, name, "", b"x", content_type=TEXT)
    assert (reply.status, reply.error) == (400, "invalid_request")


@pytest.mark.parametrize(
    "name",
    [
        "x" * 512,
        "...",
        "..a",
        "a..",
        "a/.b",
        "__dsx",
        "x/__ds",
        "%zz",
        "%",
        "__registry__",
        "a%0Ab",
    ],
)
def test_unusual_names_are_names(server: DurableServer, name: str) -> None:
    server.make(name, b"hello")
    assert server.get(name).body == b"hello"


def test_strict_names_are_short() -> None:
    with DurableServer(names=NameRules.STRICT) as server:
        assert server.put("x" * 122).status == 201
        assert server.put("x" * 123).status == 400
        assert server.put("f", stream_forked_from="/v1/stream/" + "x" * 123).status == 400


@pytest.mark.parametrize("method", ["PUT", "GET", "POST", "DELETE"])
def test_what_is_under_the_reserved_name_is_never_a_stream(
    server: DurableServer, method: str
) -> None:
    asked: list[str] = []

    def answer(request: Request, rest: str) -> Response:
        asked.append(rest)
        return Response(204, base=SECURITY_HEADERS)

    server.dialect = DurableDialect(
        server.engine,
        DurableOptions(),
        origin_of=lambda request: ORIGIN,
        subscriptions=answer,
    )
    assert server.request(method, "__ds/subscriptions/a%2Fb").status == 204
    assert asked == ["subscriptions/a%2Fb"]
