"""Engine answers to responses of the Ursula dialect, where they are not the base protocol's."""

from __future__ import annotations

import re

import msgspec

from headwater.core import attributes
from headwater.core.append import Appended
from headwater.core.buckets import BucketConfig
from headwater.core.retention import render_retention
from headwater.core.types import Position, SeqNum, TimestampMs
from headwater.dialects.common import ERROR_HEADERS, SECURITY_HEADERS
from headwater.dialects.durable import responses as durable
from headwater.dialects.durable.responses import Form
from headwater.dialects.durable.rules import ReadQuery
from headwater.engine import seek
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire import offsets
from headwater.wire.headers import render_rfc3339
from headwater.wire.http import Buffer, Header, Request, Response
from headwater.wire.offsets import AtRecord

JSON_HEADERS = ERROR_HEADERS
"""JSON that nobody may store, as errors have it."""
NDJSON = b"application/x-ndjson"
ENVELOPES = b"application/vnd.durable-stream-records+ndjson"
VARY: Header = (b"vary", b"accept")

_LINE_ENDS = re.compile(rb"[\r\n]")
_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[msgspec.Raw])


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
        found[b"stream-record-first"] = b"%d" % first
        found[b"stream-record-next"] = b"%d" % seek.message_count(stream)
    return Response(200, list(found.items()), base=SECURITY_HEADERS)


def render_appended(appended: Appended) -> Response:
    """The base protocol's answer, and on a JSON stream the numbers of the records."""
    response = durable.render_appended(appended)
    if appended.message_next is not None:
        found: list[Header] = [*response.headers, _record_next(appended.message_next)]
        if appended.message_start is not None:
            found.append((b"stream-record-start", b"%d" % appended.message_start))
        response.headers = found
    return response


def _record_next(number: int) -> Header:
    return (b"stream-record-next", b"%d" % number)


# -- the form of a read


def form_of(engine: Engine, request: Request, stream: Stream, query: ReadQuery) -> Form | None:
    """JSON as lines for who asks for lines, otherwise as the protocol's array."""
    if not stream.state.json:
        return None
    form = _LINES if NDJSON in request.headers.get(b"accept", b"").lower() else _ARRAY
    if isinstance(query.start, AtRecord):
        return _NumberedForm(engine, stream, form).form(envelope=query.view is not None)
    return form


class _NumberedForm:
    """A read by record number: says which numbers it has, and may show each with its number."""

    def __init__(self, engine: Engine, stream: Stream, plain: Form) -> None:
        self._shard = engine.shard
        self._stream = stream
        self._plain = plain

    def form(self, *, envelope: bool) -> Form:
        plain = self._plain
        if not envelope:
            return plain._replace(headers=self._headers)
        return Form(ENVELOPES, b":e", self._envelopes, self._headers)

    def _number(self, seq: SeqNum) -> int:
        return seek.message_number(self._shard, self._stream, seq)

    def _headers(self, found: Slice) -> list[Header]:
        first = seek.first_message(self._shard, self._stream)
        return [
            VARY,
            (b"stream-record-first", b"%d" % first),
            (b"stream-record-start", b"%d" % self._number(found.start.seq)),
            _record_next(self._number(found.end.seq)),
        ]

    def _envelopes(self, found: Slice) -> list[Buffer]:
        return [
            b'{"record":%d,"value":%b}\n' % (number, one_line(bytes(message)))
            for number, message in enumerate(split(found), self._number(found.start.seq))
        ]


def split(found: Slice) -> list[msgspec.Raw]:
    """The messages of a JSON stream, one by one."""
    return _messages.decode(b"".join(found.body()))


def render_lines(found: Slice) -> list[Buffer]:
    """Each message on a line of its own."""
    return [one_line(bytes(message)) + b"\n" for message in split(found)]


def one_line(message: bytes) -> bytes:
    """Line ends in JSON text are between its tokens: inside a string they would be escaped."""
    return _LINE_ENDS.sub(b" ", message)


_LINES = Form(NDJSON, b":n", render_lines, lambda _: [VARY])
_ARRAY = Form(None, b"", Slice.body, lambda _: [VARY])


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
