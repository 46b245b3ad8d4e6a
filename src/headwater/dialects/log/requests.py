"""Requests of the native API to values and commands. Raises InvalidRequest naming the field."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from headwater.core.errors import InvalidRequest
from headwater.core.globs import Glob
from headwater.core.jsonmode import media_type
from headwater.core.names import NameRules, check_bucket, check_stream
from headwater.core.types import SeqNum, TimestampMs
from headwater.dialects.access import narrow
from headwater.dialects.names import NAMES_CACHED_MAX, unescape
from headwater.engine.listing import Selection
from headwater.engine.records import Range
from headwater.wire import headers
from headwater.wire.http import Request

ARROW_TYPE = "application/vnd.apache.arrow.stream"
NDJSON_TYPE = "application/x-ndjson"

STREAMS_QUERY = ("bucket", "prefix", "pattern", "after", "limit", "at_time")
RECORDS_QUERY = ("from", "to", "from_time", "to_time", "view", "limit")
TRIM_QUERY = ("to", "id")
"""The parameters of each request. Others are refused by name."""

STREAMS_LIMIT = 1000
STREAMS_LIMIT_MAX = 10_000
TIMES_MAX = 8
"""Most times that a list tells the records of."""
VIEWS = ("records", "messages")

_NUMBER_MAX = 2**63 - 1


class Address(NamedTuple):
    """Which stream."""

    bucket: str
    name: str


class Listing(NamedTuple):
    """Which streams, and what to tell of them."""

    selection: Selection
    times: list[TimestampMs]
    """Tell the first record that is not older than each."""


class Wanted(NamedTuple):
    """Which records, and how."""

    range: Range
    joined: bool
    """As messages, not as records."""
    limit: int | None


class Cut(NamedTuple):
    """What to forget."""

    to: SeqNum
    stream_id: str | None
    """As a list shows it; None for whichever stream has the name."""


@lru_cache(maxsize=NAMES_CACHED_MAX)
def parse_address(raw: str, rules: NameRules) -> Address | None:
    """`{bucket}/{name}` of the raw path; `%2F` is part of a name. None when the name is missing."""
    bucket, _, name = raw.partition("/")
    if not bucket or not name:
        return None
    return Address(
        check_bucket(unescape(bucket, "the bucket name"), rules),
        check_stream(unescape(name, "the stream name"), rules),
    )


def parse_query(query: str, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters, each known and given once."""
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        raw_name, _, raw_value = part.partition("=")
        name = unescape(raw_name.replace("+", " "), "a parameter")
        if name not in known:
            listed = ", ".join(known) if known else "none"
            raise InvalidRequest(f"parameter {name!r} is not known here; known: {listed}")
        if name in found:
            raise InvalidRequest(f"{name} is given more than once")
        found[name] = unescape(raw_value.replace("+", " "), name)
    return found


def _number(query: dict[str, str], name: str, *, low: int = 0, high: int = _NUMBER_MAX) -> int:
    text = query[name]
    if text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high:
        return int(text)
    raise InvalidRequest(f"{name} is a whole number from {low} to {high}. received={text!r}")


def parse_listing(request: Request) -> Listing:
    """GET streams."""
    query = parse_query(request.query, STREAMS_QUERY)
    bucket, pattern, after = query.get("bucket"), query.get("pattern"), query.get("after")
    limit = STREAMS_LIMIT
    if "limit" in query:
        limit = _number(query, "limit", low=1, high=STREAMS_LIMIT_MAX)
    selection = Selection(
        bucket=None if bucket is None else check_bucket(bucket),
        prefix=query.get("prefix", ""),
        glob=None if pattern is None else Glob(pattern),
        after=None if after is None else _parse_after(after),
        limit=limit,
    )
    times = query["at_time"].split(",") if "at_time" in query else []
    if len(times) > TIMES_MAX:
        raise InvalidRequest(f"at_time has {TIMES_MAX} times at most. received={len(times)}")
    return Listing(
        narrow(selection, request.grant), [_parse_time(text, "at_time") for text in times]
    )


def _parse_after(text: str) -> tuple[str, str]:
    bucket, slash, name = text.partition("/")
    if not bucket or not slash:
        raise InvalidRequest(f"after is a value of next, as it was received. received={text!r}")
    return bucket, name


def render_after(bucket: str, name: str) -> str:
    return f"{bucket}/{name}"


def parse_wanted(request: Request) -> Wanted:
    """GET records."""
    query = parse_query(request.query, RECORDS_QUERY)
    for number, time in (("from", "from_time"), ("to", "to_time")):
        if number in query and time in query:
            raise InvalidRequest(f"send {number} or {time}, not both")
    view = query.get("view", VIEWS[0])
    if view not in VIEWS:
        raise InvalidRequest(f"view is one of {', '.join(VIEWS)}. received={view!r}")
    first = SeqNum(_number(query, "from")) if "from" in query else None
    end = SeqNum(_number(query, "to")) if "to" in query else None
    if first is not None and end is not None and end < first:
        raise InvalidRequest(f"to is before from. from={first} to={end}")
    first_ms, end_ms = (
        _parse_time(query[name], name) if name in query else None
        for name in ("from_time", "to_time")
    )
    return Wanted(
        Range(first, end, first_ms, end_ms),
        joined=view == "messages",
        limit=_number(query, "limit", low=1) if "limit" in query else None,
    )


def parse_cut(request: Request) -> Cut:
    """POST trim."""
    query = parse_query(request.query, TRIM_QUERY)
    if "to" not in query:
        raise InvalidRequest("to is missing: the number of the first record to keep")
    return Cut(SeqNum(_number(query, "to")), query.get("id"))


def _parse_time(text: str, name: str) -> TimestampMs:
    """RFC 3339, or milliseconds since 1970."""
    if text.isascii() and text.isdigit():
        return TimestampMs(_number({name: text}, name))
    return headers.parse_rfc3339(text, field=name)


def wants_arrow(request: Request) -> bool:
    """Does the client like Arrow at least as well as NDJSON? RFC 9110 §12.5.1."""
    accept = request.headers.get(b"accept")
    if not accept:
        return False
    quality = {ARROW_TYPE: 0.0, NDJSON_TYPE: 0.0}
    for part in accept.decode("latin-1").lower().split(","):
        kind, _, parameters = part.partition(";")
        if kind.strip() in quality:
            quality[kind.strip()] = _quality(parameters)
    return 0.0 < quality[ARROW_TYPE] >= quality[NDJSON_TYPE]


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def check_arrow(request: Request) -> None:
    """POST records: is the body said to be Arrow."""
    given = request.headers.get(b"content-type", b"").decode("latin-1")
    if media_type(given) != ARROW_TYPE:
        raise InvalidRequest(f"Content-Type is {ARROW_TYPE}. received={given!r}")


def parse_if_match(request: Request) -> SeqNum | None:
    """The tail a writer expects, by number; `*` only asks that the stream is there."""
    value = request.headers.get(b"if-match")
    if value is None or value.strip() == b"*":
        return None
    text = value.decode("latin-1").strip().strip('"')
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequest(f"If-Match is the seq_num of the tail, or *. received={text!r}")
    return SeqNum(int(text))
