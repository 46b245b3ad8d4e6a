"""Answers of the S2 data plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.dialects.common import JSON_TYPE, NO_STORE, SECURITY_HEADERS
from headwater.dialects.s2.requests import EVENTS_TYPE, SESSION_TYPE
from headwater.engine import facts
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.wire.http import BodyWriter, HeaderBlock, Response, StreamedResponse
from headwater.wire.s2 import bodies, protobuf
from headwater.wire.s2.bodies import Format
from headwater.wire.s2.records import Ack, Place, Records

JSON_HEADERS = SECURITY_HEADERS.extended(JSON_TYPE, NO_STORE)
PROTOBUF_HEADERS = SECURITY_HEADERS.extended((b"content-type", b"application/protobuf"), NO_STORE)


def _live(content_type: str) -> HeaderBlock:
    return SECURITY_HEADERS.extended(
        (b"content-type", content_type.encode()),
        (b"x-accel-buffering", b"no"),
    )


SESSION_HEADERS = _live(SESSION_TYPE)
EVENTS_HEADERS = _live(EVENTS_TYPE)

RenderBatch = Callable[[Sequence[Records], Place | None], Response]


def tail_of(shard: Shard, stream: Stream) -> Place:
    """The durable tail: the number of the next record, the time of the last; 0, 0 when new."""
    seq = stream.tail.seq
    if seq <= stream.state.own_first_seq:  # of a fork that has only what it inherited
        return Place(seq, facts.last_time_ms(shard, stream) or 0)
    return Place(seq, stream.tail_time_ms)


def render_ack(ack: Ack, *, as_protobuf: bool) -> Response:
    if as_protobuf:
        return Response(200, (), protobuf.encode_ack(ack), base=PROTOBUF_HEADERS)
    return Response(200, (), bodies.encode_ack(ack), base=JSON_HEADERS)


def render_tail(tail: Place) -> Response:
    return Response(200, (), bodies.encode_tail(tail), base=JSON_HEADERS)


def choose_batch(form: Format | None) -> RenderBatch:
    """How one batch is rendered: as JSON in that format, or as protobuf."""

    def as_protobuf(parts: Sequence[Records], tail: Place | None) -> Response:
        body = b"".join(protobuf.encode_batch(parts, tail))
        return Response(200, (), body, base=PROTOBUF_HEADERS)

    def as_json(parts: Sequence[Records], tail: Place | None) -> Response:
        assert form is not None
        return Response(200, (), bodies.encode_batch(parts, tail, form), base=JSON_HEADERS)

    return as_protobuf if form is None else as_json


def render_session(
    start: Callable[[BodyWriter], None], headers: HeaderBlock, *, sealed: bool
) -> Response:
    """A session; one over `sealed` records is nothing that a cache may keep."""
    kept = b"no-store, no-transform" if sealed else b"no-cache, no-transform"
    return StreamedResponse(200, ((b"cache-control", kept),), start, base=headers)
