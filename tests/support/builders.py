"""Commands and streams with sensible defaults, so that a test names only what matters to it."""

from __future__ import annotations

from headwater.core import stream_config
from headwater.core.commands import (
    Append,
    AppendRecords,
    Create,
    Delete,
    Expire,
    ForkClaim,
    Provision,
    ProvisionMode,
    Touch,
    Trim,
)
from headwater.core.producer import ProducerClaim
from headwater.core.stream import StreamState
from headwater.core.stream_config import StreamConfig
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


def s2_append(
    name: str,
    *bodies: bytes,
    headers: list[list[tuple[bytes, bytes]]] | None = None,
    at_ms: int = START_MS,
    times: list[int | None] | None = None,
    match_seq_num: int | None = None,
    fencing_token: str | None = None,
) -> AppendRecords:
    return AppendRecords(
        BUCKET,
        name,
        TimestampMs(at_ms),
        list(bodies),
        headers,
        expect_seq=None if match_seq_num is None else SeqNum(match_seq_num),
        times=None if times is None else [t if t is None else TimestampMs(t) for t in times],
        commands=True,
        fencing_token=fencing_token,
    )


def s2_command(
    name: str,
    operation: bytes,
    body: bytes,
    *,
    at_ms: int = START_MS,
    fencing_token: str | None = None,
) -> AppendRecords:
    """One command record."""
    pair = (b"", operation)
    return s2_append(name, body, headers=[[pair]], at_ms=at_ms, fencing_token=fencing_token)


def fence(name: str, token: str, *, at_ms: int = START_MS) -> AppendRecords:
    return s2_command(name, b"fence", token.encode(), at_ms=at_ms)


def trim_record(name: str, to: int, *, at_ms: int = START_MS) -> AppendRecords:
    return s2_command(name, b"trim", to.to_bytes(8, "big"), at_ms=at_ms)


def provision(
    name: str = "s",
    *,
    at_ms: int = START_MS,
    mode: ProvisionMode = ProvisionMode.CREATE,
    config: StreamConfig | None = None,
    creation_token: bytes | None = None,
    bucket: str = BUCKET,
) -> Provision:
    resolved = stream_config.resolve(config)
    return Provision(bucket, name, TimestampMs(at_ms), mode, resolved, creation_token)


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
