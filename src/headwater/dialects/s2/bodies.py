"""JSON bodies, and the parameters that all lists of the S2 API share."""

from __future__ import annotations

from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from headwater.core.limits import MIB
from headwater.dialects.s2.errors import Refused
from headwater.dialects.s2.requests import is_json, media_type, unpack
from headwater.wire.http import Request

PAGE_MAX = 1000
PAGE_PARAMETERS = ("prefix", "start_after", "limit")
JSON_BYTES_MAX = MIB
"""Of a compressed body, once it is not."""

T = TypeVar("T")


class PageQuery(NamedTuple):
    """Which part of a list."""

    prefix: str
    start_after: str
    limit: int


def decode_json(request: Request, kind: type[T]) -> T:
    """The body of a request. Raises Refused, whatever is wrong with it. S2 API: error codes."""
    if not is_json(request):
        given = media_type(request.headers.get(b"content-type"))
        raise Refused("bad_json", f"send the body as application/json. received={given!r}")
    body = unpack(request, "bad_json", JSON_BYTES_MAX)
    try:
        return msgspec.json.decode(body.decode(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("bad_json", f"the body is not what this request needs: {error}") from None


def parse_query(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters of these names; others are ignored. Raises Refused, also for one that comes
    twice."""
    try:
        given = parse_qsl(request.query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise Refused("bad_query", "the query is not valid UTF-8") from None
    found: dict[str, str] = {}
    for name, value in given:
        if name in found:
            raise Refused("bad_query", f"{name} is given more than once")
        if name in known:
            found[name] = value
    return found


def parse_page(request: Request) -> PageQuery:
    """`prefix`, `start_after`, and `limit`: 0, or more than a page holds, means a whole page."""
    query = parse_query(request, PAGE_PARAMETERS)
    text = query.get("limit") or str(PAGE_MAX)
    if not (text.isascii() and text.isdigit()):
        raise Refused("bad_query", f"limit is a whole number up to {PAGE_MAX}. received={text!r}")
    prefix, start_after = query.get("prefix", ""), query.get("start_after", "")
    if "\0" in prefix + start_after:
        raise Refused("bad_query", "prefix and start_after have no NUL")
    limit = int(text[:9])
    return PageQuery(prefix, start_after, limit if 1 <= limit <= PAGE_MAX else PAGE_MAX)
