"""What one stream remembers between commands. Saved whole as its checkpoint.

No I/O: the engine loads it, the rules in append.py and lifecycle.py read and change it.
"""

from __future__ import annotations

import msgspec

from headwater.core import limits
from headwater.core.producer import ProducerClaim, ProducerMark
from headwater.core.retention import Retention
from headwater.core.types import ByteOffset, Position, SeqNum, StreamId, TimestampMs


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A range of records that a fork reads from the stream that wrote them."""

    owner: StreamId
    first: SeqNum
    end: SeqNum
    """One past the last record."""
    cut: int | None = None
    """Only this many bytes of the last record belong to the fork."""


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a fork was asked for, to recognise a repeated request."""

    bucket: str
    name: str
    source: StreamId
    at: Position
    sub_offset: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a reader would know after reading up to an offset, given by a client."""

    at: Position
    digest: str
    content_type: str
    size: int
    upload: int
    """The number under which its bytes are stored."""


class WriterChanges(msgspec.Struct, array_like=True, gc=False):
    """The changes of writer state that came with one run. Stored in it."""

    producers: dict[str, ProducerMark] = msgspec.field(default_factory=dict)
    stream_seq: str | None = None
    closed: bool = False
    closed_by: ProducerClaim | None = None

    def add(self, later: WriterChanges) -> None:
        """Take over the changes of the run that follows."""
        for producer_id, mark in later.producers.items():
            self.producers.pop(producer_id, None)
            self.producers[producer_id] = mark
        if later.stream_seq is not None:
            self.stream_seq = later.stream_seq
        if later.closed:
            self.closed, self.closed_by = True, later.closed_by


class StreamState(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One stream. Fields are only ever added, with a default: old checkpoints must load."""

    id: StreamId
    bucket: str
    name: str
    created_at_ms: TimestampMs
    content_type: str
    json: bool = False

    tail_seq: SeqNum = SeqNum(0)
    tail_byte: ByteOffset = ByteOffset(0)
    tail_message: int = 0
    last_time_ms: TimestampMs = TimestampMs(0)
    first_seq: SeqNum = SeqNum(0)
    """First retained record, and the bytes before it."""
    first_byte: ByteOffset = ByteOffset(0)

    closed: bool = False
    closed_by: ProducerClaim | None = None
    producers: dict[str, ProducerMark] = msgspec.field(default_factory=dict)
    stream_seq: str | None = None
    created_tail_seq: SeqNum = SeqNum(0)
    """The tail right after creation: has anything been appended since?"""

    ttl_s: int | None = None
    ttl_from_access: bool = True
    touched_at_ms: TimestampMs = TimestampMs(0)
    expires_at_ms: TimestampMs | None = None

    extents: tuple[Extent, ...] = ()
    own_first_seq: SeqNum = SeqNum(0)
    """The first record this stream wrote itself; those before it come from `extents`."""
    origin: Origin | None = None
    references: int = 0
    """Streams that read this one's records, or were forked from it."""
    deleted: bool = False
    """Deleted or expired, and kept only for `references`."""

    attributes: bytes | None = None
    retention: Retention | None = None
    partial_chunks: list[tuple[SeqNum, int]] = msgspec.field(default_factory=list)
    """First record and bytes of the packed chunks at the end that are not yet full."""
    snapshot: Snapshot | None = None

    @property
    def key(self) -> str:
        return f"{self.bucket}/{self.name}"

    @property
    def tail(self) -> Position:
        return Position(self.tail_seq, self.tail_byte)

    @property
    def first(self) -> Position:
        return Position(self.first_seq, self.first_byte)

    @property
    def deadline_ms(self) -> TimestampMs | None:
        """When the stream's life ends, as far as is known now."""
        if self.expires_at_ms is not None:
            return self.expires_at_ms
        if self.ttl_s is None:
            return None
        anchor = self.touched_at_ms if self.ttl_from_access else self.created_at_ms
        return TimestampMs(min(anchor + self.ttl_s * 1000, limits.LIFETIME_MS_MAX))

    def is_expired(self, at_ms: TimestampMs) -> bool:
        deadline = self.deadline_ms
        return deadline is not None and deadline <= at_ms

    def touch(self, at_ms: TimestampMs) -> None:
        """Restart a sliding TTL."""
        if at_ms > self.touched_at_ms:
            self.touched_at_ms = at_ms

    def owners(self) -> set[StreamId]:
        """The streams that must be kept while this one lives."""
        owners = {extent.owner for extent in self.extents}
        if self.origin is not None:
            owners.add(self.origin.source)
        return owners

    def replay(self, changes: WriterChanges) -> None:
        """Take over the writer state that a run brought, when loading a stream."""
        for producer_id, mark in changes.producers.items():
            self.producers.pop(producer_id, None)
            self.producers[producer_id] = mark
            self.touch(mark.at_ms)
        if changes.stream_seq is not None:
            self.stream_seq = changes.stream_seq
        if changes.closed:
            self.closed = True
            self.closed_by = changes.closed_by


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StreamState)
_changes_decoder = msgspec.msgpack.Decoder(WriterChanges)


def encode_state(state: StreamState) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> StreamState:
    return _decoder.decode(data)


def encode_changes(changes: WriterChanges) -> bytes:
    return _encoder.encode(changes)


def decode_changes(data: bytes) -> WriterChanges:
    return _changes_decoder.decode(data)
