"""Engine answers to responses of the Durable Streams protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.core.append import Appended
from headwater.core.lifecycle import Created
from headwater.core.producer import ProducerMark
from headwater.core.retention import render_retention
from headwater.core.types import Position, TimestampMs
from headwater.dialects.common import NO_STORE, SECURITY_HEADERS
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire import headers, offsets
from headwater.wire.http import Buffer, Header, Response

CLOSED = (b"stream-closed", b"true")
UP_TO_DATE = (b"stream-up-to-date", b"true")


class Form(NamedTuple):
    """Another way to show what a read found: its type, its mark in the ETag, its bytes."""

    content_type: bytes | None
    """None for the stream's own."""
    mark: bytes
    body: Callable[[Slice], list[Buffer]]
    headers: Callable[[Slice], list[Header]]


MAX_AGE_S = 60
STALE_WHILE_REVALIDATE_S = 300


def next_offset(position: Position) -> Header:
    return (b"stream-next-offset", b"%016d_%016d" % position)


def render_created(created: Created, location: str, *, locates_existing: bool = False) -> Response:
    """201 for a new stream, 200 for one that was there. PROTOCOL §5.1.

    With `locates_existing` a repeat is told the location too.
    """
    found: list[Header] = [
        (b"content-type", created.content_type.encode("latin-1", "replace")),
        next_offset(created.tail),
    ]
    if created.new or locates_existing:
        found.append((b"location", location.encode("latin-1", "replace")))
    found += _lifetime(created.ttl_s, created.expires_at_ms)
    if created.closed:
        found.append(CLOSED)
    if created.producer is not None:
        found += _producer(created.producer)
    found.append(NO_STORE)
    return Response(201 if created.new else 200, found, base=SECURITY_HEADERS)


def render_appended(appended: Appended) -> Response:
    """204; with a producer 200 for new data, 204 for a repeat or a close. PROTOCOL §5.2.1."""
    if appended.producer is None and not appended.closed:
        return Response(204, (next_offset(appended.tail),), base=SECURITY_HEADERS)
    found = [next_offset(appended.tail)]
    status = 204
    if appended.producer is not None:
        found += _producer(appended.producer)
        status = 200 if appended.added else 204
    if appended.closed:
        found.append(CLOSED)
    return Response(status, found, base=SECURITY_HEADERS)


def render_done(_: None) -> Response:
    """204: there is nothing more to say."""
    return Response(204, base=SECURITY_HEADERS)


def render_head(stream: Stream, now_ms: TimestampMs) -> Response:
    """What HEAD tells. Never cached: the tail moves. PROTOCOL §5.5."""
    state = stream.state
    found: list[Header] = [
        (b"content-type", state.content_type.encode("latin-1", "replace")),
        next_offset(stream.tail),
        *_lifetime(state.ttl_s, state.expires_at_ms),
    ]
    if state.ttl_s is not None:
        accessed = max(stream.accessed_at_ms, state.touched_at_ms)
        anchor = accessed if state.ttl_from_access else state.created_at_ms
        remaining_ms = anchor + state.ttl_s * 1000 - now_ms
        found.append((b"stream-ttl-remaining", b"%d" % max(0, remaining_ms // 1000)))
        found.append((b"stream-ttl-anchor", b"access" if state.ttl_from_access else b"creation"))
    if state.retention is not None:
        found.append((b"stream-retention", render_retention(state.retention).encode()))
    if stream.tail_closed:
        found.append(CLOSED)
    found.append(NO_STORE)
    return Response(200, found, base=SECURITY_HEADERS)


def _lifetime(ttl_s: int | None, expires_at_ms: TimestampMs | None) -> list[Header]:
    if ttl_s is not None:
        return [(b"stream-ttl", b"%d" % ttl_s)]
    if expires_at_ms is not None:
        return [(b"stream-expires-at", headers.render_rfc3339(expires_at_ms))]
    return []


def _producer(mark: ProducerMark) -> list[Header]:
    return [(b"producer-epoch", b"%d" % mark.epoch), (b"producer-seq", b"%d" % mark.seq)]


def etag(stream_tag: str, found: Slice, mark: bytes = b"") -> bytes:
    """Stream, range, and whether the stream has ended: a 304 must not hide closure."""
    return b'"%b:%b:%b%b%b"' % (
        stream_tag.encode(),
        offsets.render(found.start),
        offsets.render(found.end),
        b":c" if found.closed else b"",
        mark,
    )


def render_slice(
    found: Slice,
    stream: Stream,
    *,
    tag: bytes | None,
    if_none_match: bytes | None,
    cache_control: bytes,
    cursor: int | None = None,
    form: Form | None = None,
) -> Response:
    """A catch-up or long-poll answer with data. PROTOCOL §5.6."""
    content_type = None if form is None else form.content_type
    result: list[Header] = [
        (
            b"content-type",
            content_type or stream.state.content_type.encode("latin-1", "replace"),
        ),
        next_offset(found.end),
        (b"cache-control", cache_control),
    ]
    if form is not None:
        result += form.headers(found)
    known = None
    if tag is not None:
        if if_none_match is not None:
            known = headers.matching_etag(if_none_match, tag)
        result.append((b"etag", known or tag))
    if found.at_tail:
        result.append(UP_TO_DATE)
    if found.closed:
        result.append(CLOSED)
    if cursor is not None:
        result.append((b"stream-cursor", b"%d" % cursor))
    if known is not None:
        return Response(304, result, base=SECURITY_HEADERS)
    body = found.body() if form is None else form.body(found)
    return Response(200, result, body, base=SECURITY_HEADERS)


def render_waited(position: Position, *, cursor: int | None, closed: bool) -> Response:
    """204 of a long-poll: nothing new after `position`. PROTOCOL §5.7."""
    found = [next_offset(position), UP_TO_DATE, NO_STORE]
    if cursor is not None:
        found.append((b"stream-cursor", b"%d" % cursor))
    if closed:
        found.append(CLOSED)
    return Response(204, found, base=SECURITY_HEADERS)


def cache_control(deadline_ms: TimestampMs | None, now_ms: TimestampMs, *, private: bool) -> bytes:
    """How long a range may be cached: ranges never change, but a stream may end. PROTOCOL §10."""
    scope = b"private" if private else b"public"
    fresh_s, stale_s = MAX_AGE_S, STALE_WHILE_REVALIDATE_S
    if deadline_ms is not None:
        left_s = max(0, deadline_ms - now_ms) // 1000
        fresh_s, stale_s = min(fresh_s, left_s), min(stale_s, max(0, left_s - fresh_s))
        if not fresh_s:
            return b"no-store"
    return b"%b, max-age=%d, stale-while-revalidate=%d" % (scope, fresh_s, stale_s)
