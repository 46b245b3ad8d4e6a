"""Snapshots, retention by hand and bootstrap: how a reader starts late. Ursula: snapshots.

PUT {stream}/snapshot/{offset} streams in, GET streams out, bootstrap streams the snapshot and every
message after it as one multipart answer. Nothing is held whole.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

from headwater.core import jsonmode
from headwater.core.commands import PublishSnapshot
from headwater.core.errors import (
    Conflict,
    DiskFull,
    HeadwaterError,
    InvalidRequest,
    NotFound,
    OffsetTrimmed,
    StorageFailed,
)
from headwater.core.pending import Pending
from headwater.core.records import COMMAND, CONTINUES
from headwater.core.stream import Snapshot
from headwater.core.types import Position
from headwater.dialects.common import NO_STORE, SECURITY_HEADERS
from headwater.dialects.durable import requests as durable
from headwater.dialects.durable.responses import CLOSED, UP_TO_DATE, next_offset
from headwater.dialects.durable.rules import Address
from headwater.dialects.ursula.records import NUMBERED, record_first, record_next, record_start
from headwater.engine import seek
from headwater.engine.engine import Engine
from headwater.engine.records import RecordCursor, Span
from headwater.engine.snapshots import Upload, read_pieces
from headwater.engine.steps import follow
from headwater.engine.streams import Stream
from headwater.storage.store import StoreBusy
from headwater.wire import offsets
from headwater.wire.headers import ENCRYPTION_KEY
from headwater.wire.http import (
    Answer,
    BodyWriter,
    Buffer,
    Header,
    Request,
    Response,
    StreamedResponse,
)
from headwater.wire.offsets import AtByte, AtRecord

log = logging.getLogger("headwater.ursula")

MATCH_BYTES_MAX = 128
BOUNDARY_BYTES = 16
BUSY_RETRY_S = 0.01
NONE = b"-1"
"""`Stream-Snapshot-Offset` when there is none."""

_BYTE = re.compile(r"[0-9]{1,20}\Z")
Where = Position | AtByte | AtRecord


def parse_where(raw_offset: str, query: str) -> Where:
    """The offset in the path, or `?record=N`. Raises InvalidRequest and InvalidOffset."""
    record = durable.parse_query(query).get("record")
    if raw_offset and record is None:
        if _BYTE.match(raw_offset):
            return AtByte(int(raw_offset))
        found = offsets.parse(raw_offset)
        if isinstance(found, Position):
            return found
    elif record is not None and not raw_offset and _BYTE.match(record):
        return AtRecord(int(record))
    raise InvalidRequest("name a place: /{offset} after a message, or ?record=N on a JSON stream")


def locate(engine: Engine, stream: Stream, where: Where) -> Position:
    """The start of a message, or the tail. Raises Conflict past the tail, InvalidOffset inside a
    message, OffsetTrimmed before what is retained."""
    tail = stream.tail
    past = (
        where.byte > tail.byte
        if isinstance(where, (AtByte, Position))
        else stream.state.json and where.number > seek.message_count(stream)
    )
    if past:
        raise Conflict(f"the offset is past the tail. tail={offsets.render(tail).decode()}")
    position = engine.find_start(stream, where)
    if position != tail and isinstance(where, Position):
        engine.read_now(stream, position, 1)  # a token must be one we gave out
    return position


def locate_first(engine: Engine, stream: Stream, where: Where) -> Position:
    """The same for what is to be the first record. It never goes back: before what is retained it
    is a Conflict."""
    try:
        return locate(engine, stream, where)
    except OffsetTrimmed as error:
        raise Conflict("more than that is dropped already") from error


# -- in


def put_snapshot(engine: Engine, request: Request, address: Address, where: Where) -> Answer:
    """PUT {stream}/snapshot/{offset}. Answered when it is published, and durable."""
    content_type = durable.parse_content_type(request) or jsonmode.DEFAULT_CONTENT_TYPE
    match = request.headers.get(b"stream-snapshot-match")
    if match is not None and len(match) > MATCH_BYTES_MAX:
        raise InvalidRequest("Stream-Snapshot-Match is the digest of a snapshot, or none")
    if engine.sweeper.disk_low:
        raise DiskFull()

    def look() -> tuple[Stream, Position, list[Header]]:
        stream = engine.open(*address)
        if stream.state.cipher is not None:
            raise Conflict("the stream is encrypted, and a snapshot of it would not be")
        position = locate(engine, stream, where)
        return stream, position, _number_headers(engine, stream, position)

    def receive(found: tuple[Stream, Position, list[Header]]) -> Pending[Response]:
        stream, position, number = found
        upload = Upload(
            engine.store, int.from_bytes(engine.clock.random_bytes(8), "big"), content_type
        )

        def publish() -> Pending[bool]:
            snapshot = Snapshot(position, upload.digest, content_type, upload.size, upload.number)
            text = None if match is None else match.decode("latin-1").strip().lower()
            state = stream.state
            return engine.submit(
                PublishSnapshot(*address, engine.clock.now_ms(), state.id, snapshot, text)
            )

        return _Receiving(engine, request, upload, publish).answer.then(
            lambda _: Response(
                204, [*describe(position, upload.digest), *number], base=SECURITY_HEADERS
            )
        )

    return follow(engine.when_settled(*address, look), receive)


def describe(at: Position, digest: str) -> list[Header]:
    return [
        (b"stream-snapshot-offset", offsets.render(at)),
        (b"stream-snapshot-digest", digest.encode()),
    ]


def _number_headers(engine: Engine, stream: Stream, at: Position) -> list[Header]:
    """On a JSON stream the number of the record that follows what a snapshot stands for."""
    if not stream.state.json:
        return []
    return [NUMBERED, record_next(seek.message_number(engine.shard, stream, at.seq))]


class _Receiving:
    """Takes the body in as it arrives, then publishes it. What is not published is removed."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        upload: Upload,
        publish: Callable[[], Pending[bool]],
    ) -> None:
        self.answer: Pending[None] = Pending()
        self._engine = engine
        self._upload = upload
        self._publish = publish
        self._ended = False
        self._dropped = False
        self._reader = request.body_reader
        if self._reader is None:
            self._receive(request.body)
            self._end()
            return
        self._reader.on_data = self._receive
        self._reader.on_end = self._end
        self._reader.on_abort = self._drop
        self._reader.resume()

    def _receive(self, data: bytes) -> None:
        if not self._dropped:
            self._upload.add(data)
            self._store()

    def _end(self) -> None:
        self._ended = True
        self._store()

    def _store(self) -> None:
        """Write what is full. A store that is busy stops the client, not us."""
        if self._dropped:
            return
        try:
            self._upload.flush(whole=self._ended)
        except StoreBusy:
            if self._reader is not None and not self._ended:
                self._reader.pause()
            self._engine.clock.call_later(BUSY_RETRY_S, self._retry)
            return
        except Exception as error:
            self._fail(error)
            return
        if self._ended and not self.answer.done:
            self._ended = False  # once
            self._publish().deliver(self._published)

    def _retry(self) -> None:
        if self._reader is not None and not self._ended:
            self._reader.resume()
        self._store()

    def _published(self, outcome: bool | Exception) -> None:
        # After a failed sync it may be the stream's: the next start knows, and removes it if not.
        if outcome is not True and not isinstance(outcome, StorageFailed):
            self._drop()
        if isinstance(outcome, Exception):
            self.answer.fail(outcome)
        else:
            self.answer.resolve(None)

    def _fail(self, error: Exception) -> None:
        self._drop()
        self.answer.fail(error)

    def _drop(self) -> None:
        """The client is gone, or the snapshot is of no use."""
        if self._dropped:
            return
        self._dropped = True
        try:
            self._upload.discard()
        except StoreBusy:
            self._dropped = False
            self._engine.clock.call_later(BUSY_RETRY_S, self._drop)
        except Exception:
            log.exception("an upload could not be removed; the next start does it")


# -- out


def get_snapshot(
    engine: Engine, request: Request, address: Address, raw_offset: str, origin: str
) -> Answer:
    """GET {stream}/snapshot leads to the latest one; with its offset it is the answer."""

    def look() -> Response:
        stream = engine.open(*address)
        snapshot = stream.snapshot
        if snapshot is None or not (raw_offset == "" or _is_at(snapshot, raw_offset)):
            raise NotFound("there is no such snapshot")
        engine.touch(stream)
        at = offsets.render(snapshot.at)
        if not raw_offset:
            location = f"{origin}{request.path}/{at.decode()}".encode("latin-1", "replace")
            headers = [*describe(snapshot.at, snapshot.digest), (b"location", location), NO_STORE]
            return Response(307, headers, base=SECURITY_HEADERS)
        found = [
            *describe(snapshot.at, snapshot.digest),
            *_number_headers(engine, stream, snapshot.at),
            (b"content-type", snapshot.content_type.encode("latin-1")),
            (b"content-length", b"%d" % snapshot.size),
            next_offset(snapshot.at),
            NO_STORE,
        ]
        if snapshot.at == stream.tail:
            found.append(UP_TO_DATE)
        pieces = read_pieces(engine.store, snapshot.upload)
        sending = _Sending(engine, iter(pieces))
        return StreamedResponse(200, found, sending.start, base=SECURITY_HEADERS)

    return engine.at_rest(look)


def delete_snapshot(engine: Engine, address: Address, raw_offset: str) -> Answer:
    """DELETE {stream}/snapshot[/{offset}]: never done. It goes when a later one takes its place,
    or with its stream."""

    def look() -> Response:
        snapshot = engine.open(*address).snapshot
        if snapshot is None or not (raw_offset == "" or _is_at(snapshot, raw_offset)):
            raise NotFound("there is no such snapshot")
        raise Conflict("the latest snapshot cannot be deleted; publish a later one")

    return engine.at_rest(look)


def _is_at(snapshot: Snapshot, raw_offset: str) -> bool:
    if _BYTE.match(raw_offset):
        return int(raw_offset) == snapshot.at.byte
    return raw_offset.encode() == offsets.render(snapshot.at)


def bootstrap(engine: Engine, request: Request, address: Address) -> Answer:
    """GET {stream}/bootstrap: the snapshot, then each message after it, as parts of one answer."""
    if "live" in durable.parse_query(request.query):
        raise InvalidRequest("bootstrap is not live: follow from its Stream-Next-Offset")

    def look() -> Response:
        stream = engine.open(*address)
        opener = engine.opener(stream, request.headers.get(ENCRYPTION_KEY))
        engine.touch(stream)
        snapshot, state, tail = stream.snapshot, stream.state, stream.tail
        first = state.first_seq
        pieces: Iterator[bytes] = iter(())
        kind = jsonmode.DEFAULT_CONTENT_TYPE
        at = NONE
        if snapshot is not None:
            first = snapshot.at.seq  # never before what is retained
            pieces = read_pieces(engine.store, snapshot.upload)
            kind, at = snapshot.content_type, offsets.render(snapshot.at)
        boundary = b"headwater-" + engine.clock.random_bytes(BOUNDARY_BYTES).hex().encode()
        cursor = RecordCursor(engine.shard, stream, min(first, tail.seq), tail.seq, opener)
        cursor.check_key()
        headers: list[Header] = [
            (b"content-type", b"multipart/mixed; boundary=" + boundary),
            (b"stream-snapshot-offset", at),
            (b"stream-retained-offset", offsets.render(state.first)),
            next_offset(tail),
            UP_TO_DATE,
            NO_STORE,
        ]
        if stream.tail_closed:
            headers.append(CLOSED)
        if state.json:
            headers += [
                NUMBERED,
                record_first(seek.first_message(engine.shard, stream)),
                record_start(seek.message_number(engine.shard, stream, min(first, tail.seq))),
                record_next(seek.message_count(stream)),
            ]
        size = tail.byte - max(state.first_byte, 0 if snapshot is None else snapshot.at.byte)
        engine.tally.read(state.bucket, size, streaming=True)
        parts = _parts(boundary, kind, pieces, state.content_type, cursor)
        return StreamedResponse(200, headers, _Sending(engine, parts).start, base=SECURITY_HEADERS)

    return engine.at_rest(look)


def _parts(
    boundary: bytes, kind: str, pieces: Iterator[bytes], own_kind: str, cursor: RecordCursor
) -> Iterator[Buffer]:
    yield b"--%b\r\nContent-Type: %b\r\n\r\n" % (boundary, kind.encode("latin-1"))
    yield from pieces
    head = b"\r\n--%b\r\nContent-Type: %b\r\n\r\n" % (boundary, own_kind.encode("latin-1"))
    while not cursor.done:
        found: list[Buffer] = []
        for span in cursor.step():
            for message in messages_of(span):
                found += [head, *message]
        yield b"".join(found)
    yield b"\r\n--%b--\r\n" % boundary


def messages_of(span: Span) -> Iterator[list[Buffer]]:
    """The messages of a span, each in one part or several; commands are none."""
    bodies, flags = span.run.record_bodies(), span.run.flags
    message: list[Buffer] = []
    for index in range(span.start, span.stop):
        if flags[index] & COMMAND:
            continue
        is_cut = span.cut is not None and index == span.end - 1
        message.append(span.shown(bodies, index))
        if is_cut or not flags[index] & CONTINUES:
            yield message
            message = []


class _Sending:
    """The body of an answer, one buffer a turn of the loop and never ahead of a slow client."""

    def __init__(self, engine: Engine, buffers: Iterator[Buffer]) -> None:
        self._engine = engine
        self._buffers = buffers
        self._writer: BodyWriter | None = None

    def start(self, writer: BodyWriter) -> None:
        self._writer = writer
        writer.on_drain = self._go_on
        writer.on_close = self._stop
        # It has an end: ended politely on a shutdown, a part would be taken for the whole.
        writer.on_shutdown = lambda: None
        self._go_on()

    def _stop(self) -> None:
        self._writer = None

    def _go_on(self) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            data = next((buffer for buffer in self._buffers if len(buffer)), None)
        except Exception as error:
            # The head has left, so all that can still be told is that the body is not whole.
            self._writer = None
            writer.abort()
            if not isinstance(error, HeadwaterError):
                log.exception("an answer could not be read to its end")
            return
        if data is None:
            self._writer = None
            writer.finish()
        elif writer.write(data):
            self._engine.loop.call_soon(self._go_on)
