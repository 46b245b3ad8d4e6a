"""Engine answers to responses of the Ursula dialect, where they are not the base protocol's."""

from __future__ import annotations

import msgspec

from headwater.core import attributes
from headwater.core.append import Appended
from headwater.core.buckets import BucketConfig
from headwater.core.lifecycle import Created
from headwater.core.retention import render_retention
from headwater.core.types import Position, TimestampMs
from headwater.dialects.common import ERROR_HEADERS, SECURITY_HEADERS
from headwater.dialects.durable import responses as durable
from headwater.dialects.durable.live import PLAIN_EVENTS, EventForm, data_event
from headwater.dialects.durable.responses import Form
from headwater.dialects.durable.rules import ReadQuery
from headwater.dialects.ursula.records import (
    NUMBERED,
    Numbering,
    record_first,
    record_next,
    record_start,
    render_lines,
)
from headwater.engine import seek
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire import offsets
from headwater.wire.headers import render_rfc3339
from headwater.wire.http import Header, Request, Response
from headwater.wire.offsets import AtRecord

JSON_HEADERS = ERROR_HEADERS
"""JSON that nobody may store, as errors have it."""
NDJSON = b"application/x-ndjson"
ENVELOPES = b"application/vnd.durable-stream-records+ndjson"
"""Lines, each a record with its number."""
ENVELOPE = b"application/vnd.durable-stream-record+json"
"""One of them, as an event has it."""
DATA_TYPE = b"stream-data-content-type"
"""What the events of live=sse hold."""
VARY: Header = (b"vary", b"accept")

_encode = msgspec.json.Encoder().encode


def render_head(engine: Engine, stream: Stream, now_ms: TimestampMs) -> Response:
    """The base protocol's HEAD, with what remains of the TTL, and what is retained.

    Seconds are rounded up: nothing is left only when the stream is gone.
    """
    response = durable.render_head(stream, now_ms)
    found = dict(response.headers)
    deadline_ms = engine.deadline_of(stream)
    if found.pop(b"stream-ttl-remaining", None) is not None and deadline_ms is not None:
        found[b"stream-ttl"] = b"%d" % -((now_ms - deadline_ms) // 1000)
    state = stream.state
    found[b"stream-retained-offset"] = offsets.render(state.first)
    if stream.snapshot is not None:
        found[b"stream-snapshot-offset"] = offsets.render(stream.snapshot.at)
        found[b"stream-snapshot-digest"] = stream.snapshot.digest.encode()
    if state.json:
        first = seek.first_message(engine.shard, stream)
        found.update([NUMBERED, record_first(first), record_next(seek.message_count(stream))])
    return Response(200, list(found.items()), base=SECURITY_HEADERS)


def render_created(engine: Engine, created: Created, location: str) -> Response:
    """The base protocol's answer with the address on repeats too; for a new JSON stream the
    numbers of the records it begins with."""
    response = durable.render_created(created, location, locates_existing=True)
    if created.new and created.message_next is not None:
        # What a fork begins with need not begin with record 0.
        stream = engine.shard.load(created.id)
        start = 0 if stream is None else seek.first_message(engine.shard, stream)
        found = (NUMBERED, record_start(start), record_next(created.message_next))
        response.headers = [*response.headers, *found]
    return response


def render_appended(appended: Appended) -> Response:
    """The base protocol's answer, and on a JSON stream the numbers of the records."""
    response = durable.render_appended(appended)
    if appended.message_next is not None:
        found: list[Header] = [*response.headers, NUMBERED, record_next(appended.message_next)]
        if appended.message_start is not None:
            found.append(record_start(appended.message_start))
        response.headers = found
    return response


# -- the form of a read


def form_of(engine: Engine, request: Request, stream: Stream, query: ReadQuery) -> Form | None:
    """JSON as lines for who asks for lines, otherwise as the protocol's array."""
    if not stream.state.json:
        return None
    form = _LINES if NDJSON in request.headers.get(b"accept", b"").lower() else _ARRAY
    if not isinstance(query.start, AtRecord):
        return form
    numbering = Numbering(engine, stream)
    if query.view is not None:
        form = Form(ENVELOPES, b":e", numbering.lines, numbering.headers)
    return form._replace(headers=lambda found: [VARY, *numbering.headers(found)])


def event_form_of(engine: Engine, stream: Stream, query: ReadQuery) -> EventForm:
    """As the base protocol has it, with the type of the data; by record number, with numbers."""
    kind = stream.state.content_type.encode("latin-1", "replace")
    if not isinstance(query.start, AtRecord):
        headers = [(DATA_TYPE, kind), *([NUMBERED] if stream.state.json else ())]
        size = query.size_max
        mark = "" if size is None else f"{size}"
        return PLAIN_EVENTS._replace(mark=mark, headers=headers, bytes_max=size)
    numbering = Numbering(engine, stream)
    if query.view is None:
        headers = [(DATA_TYPE, kind), NUMBERED]
        return EventForm("records", headers, data_event, numbering.control)
    headers = [(DATA_TYPE, ENVELOPE), NUMBERED]
    return EventForm("envelopes", headers, numbering.events, numbering.control)


_LINES = Form(NDJSON, b":n", render_lines, lambda _: [VARY, NUMBERED])
_ARRAY = Form(None, b"", Slice.body, lambda _: [VARY, NUMBERED])


def render_trimmed(to: Position) -> Response:
    retained = (b"stream-retained-offset", offsets.render(to))
    return Response(204, (retained,), base=SECURITY_HEADERS)


# -- attributes


def render_attributes(stream: Stream) -> Response:
    return Response(200, (), stream.state.attributes or attributes.EMPTY, base=JSON_HEADERS)


# -- buckets


def render_bucket_put(new: bool) -> Response:
    """201 for a new bucket, 200 for one that was there."""
    return Response(201 if new else 200, base=SECURITY_HEADERS)


class BucketContents:
    """Adds up the streams of a bucket as they are listed."""

    def __init__(self) -> None:
        self.streams = 0
        self.bytes = 0
        self.records = 0

    def show(self, stream: Stream) -> None:
        self.streams += 1
        self.bytes += stream.tail.byte - stream.state.first_byte
        self.records += stream.tail.seq - stream.state.first_seq

    def render(self, bucket: str, config: BucketConfig, *, body_bytes_max: int) -> Response:
        retention, made = config.retention, config.created_at_ms
        body = {
            "name": bucket,
            "created_at": render_rfc3339(made).decode() if made else None,
            "streams": self.streams,
            "bytes": self.bytes,
            "records": self.records,
            "defaults": {
                "retention": None if retention is None else render_retention(retention),
                "content_type": config.content_type,
            },
            "limits": {
                "streams_max": config.streams_max,
                "bytes_max": config.bytes_max,
                "body_bytes_max": body_bytes_max,
            },
        }
        return Response(200, (), _encode(body), base=JSON_HEADERS)


class StreamList:
    """The streams of a bucket, each as one object."""

    def __init__(self) -> None:
        self._shown: list[dict[str, object]] = []

    def show(self, stream: Stream) -> None:
        state = stream.state
        self._shown.append(
            {
                "name": state.name,
                "content_type": state.content_type,
                "next_offset": offsets.render(stream.tail).decode(),
                "retained_offset": offsets.render(state.first).decode(),
                "bytes": stream.tail.byte - state.first_byte,
                "closed": stream.tail_closed,
                "created_at": render_rfc3339(state.created_at_ms).decode(),
                "attrs": msgspec.Raw(state.attributes or attributes.EMPTY),
            }
        )

    def render(self, last: tuple[str, str] | None) -> Response:
        """`next` is the `after` of the page that follows; null on the last one."""
        body = {"streams": self._shown, "next": None if last is None else last[1]}
        return Response(200, (), _encode(body), base=JSON_HEADERS)
