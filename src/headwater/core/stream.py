"""What one stream remembers between commands. Saved whole as its checkpoint.

No I/O: the engine loads it, the rules in append.py and lifecycle.py read and change it.
"""

from __future__ import annotations

import msgspec

from headwater.core import limits
from headwater.core.marks import Mark, add_mark
from headwater.core.producer import ProducerClaim, ProducerMark
from headwater.core.retention import Retention
from headwater.core.stream_config import CLIENT_PREFER
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
    fencing_token: str | None = None
    trim: Mark | None = None
    """The last that was asked for."""
    written: Mark | None = None
    """The records before its number, this run's included, were written by its time. Only where
    the times of the records do not tell."""

    def add(self, later: WriterChanges) -> None:
        """Take over the changes of the run that follows."""
        for producer_id, mark in later.producers.items():
            self.producers.pop(producer_id, None)
            self.producers[producer_id] = mark
        if later.stream_seq is not None:
            self.stream_seq = later.stream_seq
        if later.closed:
            self.closed, self.closed_by = True, later.closed_by
        if later.fencing_token is not None:
            self.fencing_token = later.fencing_token
        self.trim = later.trim or self.trim
        self.written = later.written or self.written


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

    fencing_token: str = ""
    trims: list[Mark] = msgspec.field(default_factory=list)
    """Asked for by command records, and not carried out yet."""
    client_times_from: SeqNum | None = None
    """From this record on, times are what the writers made them; see `written`."""
    written: list[Mark] = msgspec.field(default_factory=list)
    """When the records from there on were written."""

    storage_class: str | None = None
    timestamping: str = CLIENT_PREFER
    uncapped: bool = False
    delete_on_empty_s: int = 0
    creation_token: bytes | None = None
    """Tells a repeated request to create this stream from another one."""
    cipher: str | None = None
    seal_id: bytes | None = None
    """Of an encrypted stream: what its records are sealed for."""

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

    @property
    def written_at_ms(self) -> TimestampMs:
        """When a record was last written, or the stream made."""
        last_ms = self.written[-1][1] if self.written else self.last_time_ms
        return max(last_ms, self.created_at_ms)

    def is_abandoned(self, at_ms: TimestampMs) -> bool:
        """Empty, not written to for as long as it may be, and to be deleted for that."""
        idle_ms = self.delete_on_empty_s * 1000
        empty = self.first_seq == self.tail_seq
        return bool(idle_ms) and empty and self.written_at_ms + idle_ms <= at_ms

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
        if changes.fencing_token is not None:
            self.fencing_token = changes.fencing_token
        if changes.trim is not None:
            add_mark(self.trims, changes.trim)

    def forget_before(self, first: Position) -> None:
        """The records before a position are no longer retained."""
        self.first_seq, self.first_byte = first
        self.trims = [trim for trim in self.trims if trim[0] > first.seq]
        # The last mark stays: it tells when the stream was last written to.
        last = self.written[-1:]
        self.written = [mark for mark in self.written[:-1] if mark[0] > first.seq] + last

    def note_written(self, first: SeqNum, mark: Mark) -> None:
        """The records from `first` on have times of their own, and were written by `mark`."""
        if self.client_times_from is None:
            self.client_times_from = first
        add_mark(self.written, mark)
        self.touch(mark[1])


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
