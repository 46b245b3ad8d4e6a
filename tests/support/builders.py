"""Commands and streams with sensible defaults, so that a test names only what matters to it."""

from __future__ import annotations

from headwater.core.commands import (
    Append,
    AppendRecords,
    Create,
    Delete,
    Expire,
    ForkClaim,
    Touch,
    Trim,
)
from headwater.core.producer import ProducerClaim
from headwater.core.stream import StreamState
from headwater.core.types import (
    BatchSeq,
    ByteOffset,
    Epoch,
    Position,
    SeqNum,
    StreamId,
    TimestampMs,
)
from tests.support.clock import START_MS

BUCKET = "bucket"
TEXT = "text/plain"
JSON = "application/json"


def position(seq: int, byte: int) -> Position:
    return Position(SeqNum(seq), ByteOffset(byte))


def claim(producer_id: str = "p", epoch: int = 0, seq: int = 0) -> ProducerClaim:
    return ProducerClaim(producer_id, Epoch(epoch), BatchSeq(seq))


def fork_of(name: str, at: Position | None = None, sub_offset: int = 0) -> ForkClaim:
    return ForkClaim(BUCKET, name, at, sub_offset)


def create(
    name: str = "s",
    *,
    at_ms: int = START_MS,
    content_type: str | None = TEXT,
    body: bytes = b"",
    closed: bool = False,
    ttl_s: int | None = None,
    expires_at_ms: int | None = None,
    ttl_from_access: bool = True,
    stream_seq: str | None = None,
    producer: ProducerClaim | None = None,
    fork: ForkClaim | None = None,
    attributes: bytes | None = None,
) -> Create:
    return Create(
        BUCKET,
        name,
        TimestampMs(at_ms),
        content_type,
        body,
        closed,
        ttl_s,
        None if expires_at_ms is None else TimestampMs(expires_at_ms),
        ttl_from_access,
        stream_seq,
        producer,
        fork,
        attributes,
    )


def append(
    name: str = "s",
    body: bytes = b"",
    *,
    at_ms: int = START_MS,
    content_type: str | None = None,
    close: bool = False,
    producer: ProducerClaim | None = None,
    stream_seq: str | None = None,
) -> Append:
    return Append(BUCKET, name, TimestampMs(at_ms), content_type, body, close, producer, stream_seq)


def append_records(
    name: str,
    bodies: list[bytes],
    *,
    headers: list[list[tuple[bytes, bytes]]] | None = None,
    at_ms: int = START_MS,
    producer: ProducerClaim | None = None,
) -> AppendRecords:
    return AppendRecords(BUCKET, name, TimestampMs(at_ms), bodies, headers, producer)


def delete(name: str = "s", *, at_ms: int = START_MS) -> Delete:
    return Delete(BUCKET, name, TimestampMs(at_ms))


def expire(name: str = "s", *, at_ms: int = START_MS) -> Expire:
    return Expire(BUCKET, name, TimestampMs(at_ms))


def touch(name: str = "s", *, at_ms: int = START_MS) -> Touch:
    return Touch(BUCKET, name, TimestampMs(at_ms))


def trim(name: str, to: Position, *, at_ms: int = START_MS) -> Trim:
    return Trim(BUCKET, name, TimestampMs(at_ms), to)


def stream_state(content_type: str = TEXT, *, stream_id: int = 1, name: str = "s") -> StreamState:
    return StreamState(
        id=StreamId(stream_id),
        bucket=BUCKET,
        name=name,
        created_at_ms=TimestampMs(START_MS),
        touched_at_ms=TimestampMs(START_MS),
        content_type=content_type,
        json=content_type == JSON,
    )
