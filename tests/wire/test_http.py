"""The types between the HTTP servers and the dialects."""

from __future__ import annotations

import pytest

from headwater.wire.http import (
    NO_HEADERS,
    BodyWriter,
    HeaderBlock,
    Request,
    Response,
    Route,
    StreamedResponse,
)


def test_a_block_is_rendered_once_and_kept_as_pairs() -> None:
    block = HeaderBlock(iter([(b"a", b"1"), (b"b", b"2")]))
    assert block.pairs == ((b"a", b"1"), (b"b", b"2"))
    assert block.h1 == b"a: 1\r\nb: 2\r\n"


def test_an_extended_block_leaves_the_first_as_it_was() -> None:
    block = HeaderBlock([(b"a", b"1")])
    assert block.extended((b"b", b"2"), (b"c", b"3")).h1 == b"a: 1\r\nb: 2\r\nc: 3\r\n"
    assert block.h1 == b"a: 1\r\n"


def test_a_request_is_anonymous_and_empty_unless_told_otherwise() -> None:
    request = Request("GET", "/v1/stream/a", "offset=-1", {b"host": b"h"})
    assert (request.body, request.body_reader, request.peer) == (b"", None, "")
    assert (request.secure, request.id, request.received_ns) == (False, "", 0)


def test_a_response_has_no_headers_and_no_body_unless_told_otherwise() -> None:
    response = Response(204)
    assert (response.headers, response.body, response.base) == ((), b"", NO_HEADERS)
    assert repr(response) == "Response(204)"


def test_a_streamed_response_is_a_response_that_starts_later() -> None:
    started: list[BodyWriter] = []
    base = HeaderBlock([(b"a", b"1")])
    response = StreamedResponse(200, (), started.append, base=base)
    assert isinstance(response, Response)
    assert (response.body, response.base, started) == (b"", base, [])


@pytest.mark.parametrize("streams_body", [False, True])
def test_a_route_says_how_much_body_it_takes(streams_body: bool) -> None:
    route = Route(lambda _: Response(200), body_bytes_max=7, streams_body=streams_body)
    assert (route.body_bytes_max, route.streams_body) == (7, streams_body)
    assert not Route(lambda _: Response(200), body_bytes_max=7).streams_body
