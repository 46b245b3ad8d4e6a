"""Create, fork, and the end of a stream. PROTOCOL §4.2, §5.1, §5.4; Ursula: create."""

from __future__ import annotations

import msgspec

from headwater.core import attributes, jsonmode, producer
from headwater.core.append import check_stream_seq, sealed_messages
from headwater.core.commands import Create, ForkClaim
from headwater.core.errors import (
    ContentTypeMismatch,
    ForkRefused,
    KeyRequired,
    ProducerGap,
    StreamExists,
    StreamNotFound,
)
from headwater.core.marks import clip
from headwater.core.stream import Extent, Origin, StreamState
from headwater.core.types import BatchSeq, ByteOffset, Position, SeqNum, StreamId, TimestampMs


class Created(msgspec.Struct, frozen=True, gc=False):
    """The answer to a create: the stream is there with the configuration asked for."""

    new: bool
    id: StreamId
    content_type: str
    tail: Position
    closed: bool
    ttl_s: int | None
    expires_at_ms: TimestampMs | None
    producer: producer.ProducerMark | None = None
    message_next: int | None = None
    """On a JSON stream: the number that the next message will have."""


class ForkPoint(msgspec.Struct, frozen=True):
    """Where exactly a fork leaves its source, found by reading the source."""

    end: Position
    """Where the fork's own records begin."""
    messages: int
    """Messages before that."""
    cut: int | None = None
    """Bytes of the last inherited record, when it is not inherited whole."""


def judge_existing(state: StreamState, command: Create) -> bool:
    """Accept a repeated create. Returns True when it moved `Stream-Seq` on.

    Raises StreamExists when the configuration differs.
    """
    if state.deleted or state.is_expired(command.at_ms):
        raise StreamExists("this name was deleted and is kept until its forks are gone")
    _compare(state, command)
    if command.producer is not None:
        producer.judge(state.producers.get(command.producer.id), command.producer)
    if command.stream_seq is None:
        return False
    untouched = state.tail_seq == state.created_tail_seq
    if untouched and command.stream_seq == state.stream_seq:
        return False
    check_stream_seq(state, command.stream_seq)
    state.stream_seq = command.stream_seq
    return True


def _compare(state: StreamState, command: Create) -> None:
    is_fork = command.fork is not None
    if command.content_type is not None or not is_fork:
        wanted = command.content_type or jsonmode.DEFAULT_CONTENT_TYPE
        if jsonmode.media_type(wanted) != jsonmode.media_type(state.content_type):
            raise StreamExists(f"the stream exists with content type {state.content_type}")
    if command.closed != state.closed:
        word = "closed" if state.closed else "open"
        raise StreamExists(f"the stream exists and is {word}")
    lifetime = (command.ttl_s, command.expires_at_ms)
    if not (is_fork and lifetime == (None, None)):
        if lifetime != (state.ttl_s, state.expires_at_ms):
            raise StreamExists("the stream exists with another lifetime")
        if command.ttl_s is not None and command.ttl_from_access != state.ttl_from_access:
            raise StreamExists("the stream exists with another Stream-TTL-Anchor")
    if not _same_fork(state.origin, command.fork):
        raise StreamExists("the stream exists with another fork source")
    if not _same_attributes(state.attributes, command.attributes):
        raise StreamExists("the stream exists with other attributes")
    if command.retention is not None and command.retention != state.retention:
        raise StreamExists("the stream exists with another Stream-Retention")


def _same_attributes(stored: bytes | None, claimed: bytes | None) -> bool:
    """None claims nothing; having none and having an empty object is the same."""
    return claimed is None or claimed == (stored or attributes.EMPTY)


def _same_fork(origin: Origin | None, claim: ForkClaim | None) -> bool:
    if origin is None or claim is None:
        return origin is None and claim is None
    if (origin.bucket, origin.name) != (claim.bucket, claim.name):
        return False
    if claim.at_byte is not None:
        return (claim.at_byte, claim.sub_offset) == (origin.at.byte, origin.sub_offset)
    return claim.at is None or (claim.at, claim.sub_offset) == (origin.at, origin.sub_offset)


def judge_source(source: StreamState | None, command: Create) -> StreamState:
    """Return the source of a fork if it may be forked with this command."""
    claim = command.fork
    assert claim is not None
    if source is None:
        raise StreamNotFound(claim.name)
    if source.deleted or source.is_expired(command.at_ms):
        raise ForkRefused("the source was deleted and cannot be forked")
    if command.content_type is not None and not command.fork_retypes:
        received = jsonmode.media_type(command.content_type)
        expected = jsonmode.media_type(source.content_type)
        if received != expected:
            raise ContentTypeMismatch(expected=expected, received=received)
    _check_sealed_after(source, command)
    return source


def _check_sealed_after(source: StreamState, command: Create) -> None:
    """What was sealed for a fork was so by what its source said, which another may have replaced
    since."""
    after = command.sealed_after
    unprepared = source.cipher is not None and command.seal_id is None
    if unprepared or (after is not None and after != source.id):
        raise StreamNotFound(source.name)


def first_messages(state: StreamState, command: Create) -> list[bytes]:
    """What a new stream begins with. Raises InvalidRequest and KeyRequired."""
    if command.sealed is not None:
        assert command.sealed.seal_id == state.seal_id
        return sealed_messages(command.sealed)
    if not command.body:
        return []
    if state.cipher is not None:
        raise KeyRequired(state.cipher)
    return jsonmode.flatten(command.body) if state.json else [command.body]


def new_stream(command: Create, stream_id: StreamId) -> StreamState:
    """The state of a stream that begins empty."""
    content_type = command.content_type or jsonmode.DEFAULT_CONTENT_TYPE
    _check_first_claims(command)
    return StreamState(
        id=stream_id,
        bucket=command.bucket,
        name=command.name,
        created_at_ms=command.at_ms,
        touched_at_ms=command.at_ms,
        content_type=content_type,
        json=jsonmode.media_type(content_type) == jsonmode.JSON_MEDIA_TYPE,
        ttl_s=command.ttl_s,
        ttl_from_access=command.ttl_from_access,
        expires_at_ms=command.expires_at_ms,
        attributes=None if command.attributes == attributes.EMPTY else command.attributes,
        retention=command.retention or command.retention_default,
        cipher=command.cipher,
        seal_id=command.seal_id,
    )


def forked_stream(
    command: Create, stream_id: StreamId, source: StreamState, point: ForkPoint
) -> StreamState:
    """The state of a fork: shares the source's offsets up to `point`, then goes its own way."""
    claim = command.fork
    assert claim is not None
    state = new_stream(command, stream_id)
    extents = _extents(source, point)
    if command.content_type is None:
        state.content_type, state.json = source.content_type, source.json
    elif extents and state.json != source.json:
        # JSON messages are stored as such, so what is inherited fits one kind of stream only.
        raise ContentTypeMismatch(
            expected=jsonmode.media_type(source.content_type),
            received=jsonmode.media_type(state.content_type),
        )
    if command.ttl_s is None and command.expires_at_ms is None:
        state.ttl_s = source.ttl_s
        state.ttl_from_access = source.ttl_from_access
        state.expires_at_ms = source.expires_at_ms
    if command.attributes is None:
        state.attributes = source.attributes
    if command.retention is None:
        state.retention = source.retention
    _inherit_s2(state, source, point.end.seq)
    state.tail_seq, state.tail_byte = point.end
    state.tail_message = point.messages
    state.last_time_ms = source.last_time_ms
    state.first_seq = SeqNum(min(source.first_seq, point.end.seq))
    state.first_byte = ByteOffset(min(source.first_byte, point.end.byte))
    state.extents = extents
    state.own_first_seq = point.end.seq
    at = point.end if claim.at_byte is not None else claim.at or source.tail
    state.origin = Origin(claim.bucket, claim.name, source.id, at, claim.sub_offset)
    return state


def _inherit_s2(state: StreamState, source: StreamState, end: SeqNum) -> None:
    """What only S2 can say about a stream, and when the inherited records were written."""
    state.storage_class = source.storage_class
    state.timestamping, state.uncapped = source.timestamping, source.uncapped
    state.delete_on_empty_s = source.delete_on_empty_s
    if source.cipher is not None:
        # With a `seal_id` of its own: what it inherits stays sealed for the stream that wrote it.
        state.cipher = source.cipher
    if source.client_times_from is not None:
        state.client_times_from = min(source.client_times_from, end)
        state.written = clip(source.written, end)


def _extents(source: StreamState, point: ForkPoint) -> tuple[Extent, ...]:
    """Flatten: what the source inherited, clipped, then what it wrote itself."""
    end = point.end.seq
    extents = list(source.extents)
    if source.own_first_seq < source.tail_seq:
        extents.append(Extent(source.id, source.own_first_seq, source.tail_seq))
    kept = []
    for extent in extents:
        if extent.first >= end or extent.end <= source.first_seq:
            continue
        if extent.end < end:
            kept.append(extent)
        else:
            cut = point.cut
            if extent.end == end and extent.cut is not None:
                cut = extent.cut if cut is None else min(cut, extent.cut)
            kept.append(Extent(extent.owner, extent.first, end, cut))
    return tuple(kept)


def _check_first_claims(command: Create) -> None:
    """A new stream knows no producer, so the first batch must be number 0."""
    claim = command.producer
    if claim is not None and claim.seq != 0:
        raise ProducerGap(expected=BatchSeq(0), received=claim.seq)
