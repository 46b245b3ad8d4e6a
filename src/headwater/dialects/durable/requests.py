"""Requests of the Durable Streams protocol to commands. Raises InvalidRequest and InvalidOffset."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.core import jsonmode, limits
from headwater.core.buckets import BucketConfig
from headwater.core.commands import Append, Create, Delete, ForkClaim, Retain
from headwater.core.errors import InvalidOffset, InvalidRequest
from headwater.core.names import NameRules
from headwater.core.retention import Retention, parse_retention
from headwater.core.types import Position, TimestampMs
from headwater.dialects.durable.rules import Address, DialectRules, ForkStart, ReadQuery
from headwater.wire import cursors, headers, offsets
from headwater.wire.http import Request

LIVE_MODES = ("long-poll", "sse")


def parse_query(query: str) -> dict[str, str]:
    """The parameters; a repeated `offset` is refused, of others the last one counts."""
    found: dict[str, str] = {}
    for part in query.split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        if "%" in part or "+" in part:
            name, value = _unquote(name), _unquote(value)
        if name == "offset" and name in found:
            raise InvalidOffset("offset is given more than once")
        found[name] = value
    return found


def _unquote(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


def parse_read(request: Request, now_ms: TimestampMs, dialect: DialectRules) -> ReadQuery:
    """GET {stream}. PROTOCOL §5.6 to §5.8; `since` and `offset=tail:N` are additions."""
    query = parse_query(request.query) if request.query else {}
    live = query.get("live")
    if live is not None and live not in LIVE_MODES:
        raise InvalidRequest(f"live is one of {', '.join(LIVE_MODES)}. received={live!r}")
    start = _parse_start(query, now_ms, dialect)
    touches = not headers.parse_flag(request.headers, b"stream-no-touch")
    cursor = cursors.parse(query.get("cursor"))
    found = dialect.parse_extras(query, ReadQuery(start, live, cursor, touches))
    if found.start is None and live is not None:
        raise InvalidRequest(f"live={live} needs an offset: a token, -1 or now")
    return found


def _parse_start(
    query: dict[str, str], now_ms: TimestampMs, dialect: DialectRules
) -> offsets.Start | None:
    offset, since = query.get("offset"), query.get("since")
    if since is None:
        return None if offset is None else dialect.parse_start(offset)
    if offset is not None:
        raise InvalidRequest("send offset or since, not both")
    if since.isascii() and since.isdigit() and len(since) <= 12:
        return offsets.Since(TimestampMs(max(0, now_ms - int(since) * 1000)))
    return offsets.Since(headers.parse_rfc3339(since, field="since"))


def parse_append(request: Request, bucket: str, name: str, at_ms: TimestampMs) -> Append:
    """POST {stream}. PROTOCOL §5.2, §5.3."""
    given = request.headers
    body = request.body
    close = headers.parse_flag(given, b"stream-closed") if b"stream-closed" in given else False
    content_type = None
    if body:
        content_type = parse_content_type(request)
        if content_type is None:
            raise InvalidRequest("Content-Type is required with a body")
    elif not close:
        raise InvalidRequest("the body is empty; send data, or Stream-Closed: true to close")
    producer = headers.parse_producer(given) if _names_producer(given) else None
    stream_seq = None
    if b"stream-seq" in given:
        stream_seq = headers.parse_text(given, b"stream-seq", bytes_max=limits.STREAM_SEQ_BYTES_MAX)
    expect = parse_if_match(given[b"if-match"]) if b"if-match" in given else None
    command = Append(bucket, name, at_ms, content_type, body, close, producer, stream_seq, expect)
    if b"stream-record-match" in given:
        number = _parse_record_match(given[b"stream-record-match"])
        command = msgspec.structs.replace(command, expect_message=number)
    return command


def _parse_record_match(value: bytes) -> int:
    """The number a writer expects its first message to have. Ursula: records."""
    if not value.isdigit() or len(value) > 16:
        raise InvalidRequest("Stream-Record-Match is a whole number: that of the next record")
    return int(value)


def parse_if_match(value: bytes) -> Position | None:
    """The tail a writer expects; `*` only asks that the stream is there."""
    text = value.decode("latin-1").strip()
    if text == "*":
        return None
    try:
        position = offsets.parse(text.strip('"'))
    except InvalidOffset:
        position = offsets.Sentinel.NOW
    if not isinstance(position, Position):
        raise InvalidRequest("If-Match is a Stream-Next-Offset value, or *")
    return position


def _names_producer(given: headers.Headers) -> bool:
    return b"producer-id" in given or b"producer-epoch" in given or b"producer-seq" in given


def parse_create(
    request: Request,
    address: Address,
    at_ms: TimestampMs,
    *,
    dialect: DialectRules,
    rules: NameRules,
    bucket: BucketConfig | None = None,
) -> Create:
    """PUT {stream}. PROTOCOL §5.1, §4.2; Ursula: create. `bucket` has defaults."""
    given, defaults = request.headers, bucket or BucketConfig()
    ttl_s, expires_at_ms = headers.parse_lifetime(given)
    fork = _parse_fork(given, dialect, rules)
    return Create(
        *address,
        at_ms,
        content_type=parse_content_type(request)
        or (defaults.content_type if fork is None else None),
        body=request.body if fork is None or dialect.fork_takes_body else b"",
        closed=headers.parse_flag(given, b"stream-closed"),
        ttl_s=ttl_s,
        expires_at_ms=expires_at_ms,
        ttl_from_access=parse_anchor(given, default=dialect.ttl_anchor),
        stream_seq=headers.parse_text(given, b"stream-seq", bytes_max=limits.STREAM_SEQ_BYTES_MAX),
        producer=headers.parse_producer(given),
        fork=fork,
        attributes=dialect.parse_attributes(given),
        retention=parse_retention_header(given),
        retention_default=defaults.retention,
        fork_retypes=dialect.fork_retypes,
    )


def parse_retention_header(given: headers.Headers) -> Retention | None:
    """`Stream-Retention`, None when it is absent or `none`."""
    text = headers.parse_text(given, b"stream-retention", bytes_max=256)
    return None if text is None else parse_retention(text)


def parse_retain(request: Request, bucket: str, name: str, at_ms: TimestampMs) -> Retain:
    """PATCH {stream}: change what may be changed, which is retention."""
    if b"stream-retention" not in request.headers:
        raise InvalidRequest("PATCH changes Stream-Retention; send it, or none to keep everything")
    return Retain(bucket, name, at_ms, parse_retention_header(request.headers))


def parse_delete(bucket: str, name: str, at_ms: TimestampMs) -> Delete:
    return Delete(bucket, name, at_ms)


def parse_content_type(request: Request) -> str | None:
    """The content type, which must have the form type/subtype."""
    value = request.headers.get(b"content-type")
    return _check_content_type(value) if value else None


@lru_cache(maxsize=1024)
def _check_content_type(value: bytes) -> str:
    return check_content_type(value.decode("latin-1"))


def check_content_type(text: str) -> str:
    """Return `text`, which must have that form."""
    if len(text) > limits.CONTENT_TYPE_BYTES_MAX:
        raise InvalidRequest(f"Content-Type is longer than {limits.CONTENT_TYPE_BYTES_MAX} bytes")
    main, slash, sub = jsonmode.media_type(text).partition("/")
    if not (main and slash and sub) or " " in main or " " in sub:
        raise InvalidRequest(f"Content-Type has the form type/subtype. received={text!r}")
    return text


def parse_anchor(given: headers.Headers, *, default: str) -> bool:
    """`Stream-TTL-Anchor`: does the TTL count from the last access (True) or from creation."""
    value = given.get(b"stream-ttl-anchor", default.encode()).decode("latin-1").lower()
    if value not in ("access", "creation"):
        raise InvalidRequest("Stream-TTL-Anchor is access or creation")
    return value == "access"


def _parse_fork(
    given: headers.Headers, dialect: DialectRules, rules: NameRules
) -> ForkClaim | None:
    source = given.get(b"stream-forked-from")
    offset, sub = given.get(b"stream-fork-offset"), given.get(b"stream-fork-sub-offset")
    if source is None:
        if offset is not None or sub is not None:
            raise InvalidRequest(
                "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From"
            )
        return None
    bucket, name = dialect.parse_source(source.decode("latin-1"), rules)
    start = ForkStart()
    if offset is not None:
        start = dialect.parse_fork_start(offset.decode("latin-1"))
    return ForkClaim(bucket, name, start.at, _parse_sub_offset(sub, start.at), start.byte)


def _parse_sub_offset(value: bytes | None, at: Position | None) -> int:
    if value is None:
        return 0
    if not value.isdigit() or len(value) > 16:
        raise InvalidRequest("Stream-Fork-Sub-Offset is a whole number")
    if int(value) and at is None:
        raise InvalidRequest("Stream-Fork-Sub-Offset needs a token in Stream-Fork-Offset")
    return int(value)
