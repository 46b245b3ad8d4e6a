"""May this append happen, and what does it add. PROTOCOL §5.2, §5.2.1, §5.3.

Order of the checks: closed, content type, producer, If-Match, Stream-Seq, then the body itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.core import jsonmode, limits, producer
from headwater.core.commands import Append, AppendRecords
from headwater.core.errors import (
    ContentTypeMismatch,
    InvalidRecord,
    InvalidRequest,
    PreconditionFailed,
    SequenceRegression,
    StreamClosed,
)
from headwater.core.producer import ProducerClaim, ProducerMark
from headwater.core.stream import StreamState, WriterChanges
from headwater.core.types import Position, SeqNum, TimestampMs


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The answer to an append that is in the stream."""

    tail: Position
    closed: bool
    repeat: bool
    """This very request had been accepted before."""
    added: bool
    """Data was added: neither a repeat nor a mere close."""
    producer: ProducerMark | None
    """The highest batch accepted from the producer, when the request named one."""
    first_seq: SeqNum | None = None
    """Of the first record added, where the request asked for records."""
    message_start: int | None = None
    """On a JSON stream: the number of the first message added, None when none was."""
    message_next: int | None = None
    """On a JSON stream: the number that the next message will have."""


def judge_append(state: StreamState, command: Append) -> list[bytes] | None:
    """Return the messages to add (none for a close), or None when it is a repeat."""
    if state.closed:
        _judge_closed(state, command)
        return None
    if command.body and command.content_type is not None:
        received = jsonmode.media_type(command.content_type)
        expected = jsonmode.media_type(state.content_type)
        if received != expected:
            raise ContentTypeMismatch(expected=expected, received=received)
    if command.producer is not None:
        if not producer.judge(state.producers.get(command.producer.id), command.producer):
            return None
        producer.check_room(state.producers, command.producer)
    if command.expect is not None or command.expect_message is not None:
        _check_expected(state, command)
    check_stream_seq(state, command.stream_seq)
    if not command.body:
        return []
    if not state.json:
        return [command.body]
    messages = jsonmode.flatten(command.body)
    if not messages:
        raise InvalidRequest("an append needs at least one message; the JSON array is empty")
    return messages


def _check_expected(state: StreamState, command: Append) -> None:
    """Is the stream where the writer believes it to be?"""
    if command.expect is not None and command.expect != state.tail:
        raise PreconditionFailed(state.tail)
    if command.expect_message is None:
        return
    if not state.json:
        raise InvalidRequest("Stream-Record-Match is for JSON streams")
    if command.expect_message != state.tail_message:
        raise PreconditionFailed(state.tail, message_next=state.tail_message)


def judge_records(state: StreamState, command: AppendRecords) -> list[bytes] | None:
    """Return the bodies to add, one message each, or None when it is a repeat.

    The rules of `judge_append`, for records that come with headers. They never close a stream, so
    no repeat of one is welcome once it is closed.
    """
    if state.closed:
        raise StreamClosed(state.tail)
    if command.producer is not None:
        if not producer.judge(state.producers.get(command.producer.id), command.producer):
            return None
        producer.check_room(state.producers, command.producer)
    if command.expect_seq is not None and command.expect_seq != state.tail_seq:
        raise PreconditionFailed(state.tail)
    if not command.bodies:
        raise InvalidRequest("an append needs at least one record")
    _check_headers(command.headers or ())
    return _check_values(command.bodies) if state.json else command.bodies


def _check_headers(headers: Sequence[Sequence[tuple[bytes, bytes]]]) -> None:
    for index, pairs in enumerate(headers):
        size = sum(2 + len(name) + len(value) for name, value in pairs)
        if size > limits.RECORD_HEADERS_BYTES_MAX:
            raise InvalidRecord(
                index,
                f"its headers are over {limits.RECORD_HEADERS_BYTES_MAX} bytes. bytes={size}",
            )
        if any(not name for name, _ in pairs):
            # S2 API: a header without a name makes a command of its record.
            raise InvalidRecord(index, "a header has no name")


def _check_values(bodies: list[bytes]) -> list[bytes]:
    values = []
    for index, body in enumerate(bodies):
        try:
            values.append(jsonmode.check_value(body))
        except InvalidRequest as error:
            raise InvalidRecord(index, str(error)) from None
    return values


def _judge_closed(state: StreamState, command: Append) -> None:
    """Only a repeat of what closed the stream is still welcome."""
    if command.producer is not None:
        if command.producer == state.closed_by:
            return
        if command.part_of is not None and led_to_close(state, command.producer):
            return
    elif command.close and not command.body:
        return
    raise StreamClosed(state.tail)


def led_to_close(state: StreamState, claim: ProducerClaim) -> bool:
    """Was this batch one of those before the close, by the producer that closed the stream?

    A request that makes many appends and then closes is repeated from its first append on.
    """
    closer = state.closed_by
    return (
        closer is not None
        and (claim.id, claim.epoch) == (closer.id, closer.epoch)
        and claim.seq <= closer.seq
    )


def check_stream_seq(state: StreamState, stream_seq: str | None) -> None:
    """`Stream-Seq` is per stream and compared bytewise (code point order is UTF-8 byte order)."""
    last = state.stream_seq
    if stream_seq is not None and last is not None and stream_seq <= last:
        raise SequenceRegression(last=last, received=stream_seq)


def note_writer(
    state: StreamState,
    changes: WriterChanges,
    at_ms: TimestampMs,
    *,
    claim: ProducerClaim | None,
    stream_seq: str | None,
    close: bool,
) -> None:
    """Record who wrote, in the state and in what the run will say about it."""
    if claim is not None:
        producer.remember(state.producers, claim, at_ms)
        changes.producers.pop(claim.id, None)
        changes.producers[claim.id] = state.producers[claim.id]
    if stream_seq is not None:
        state.stream_seq = changes.stream_seq = stream_seq
    if close:
        state.closed = changes.closed = True
        state.closed_by = changes.closed_by = claim


def acknowledge(
    state: StreamState,
    claim: ProducerClaim | None,
    *,
    repeat: bool,
    added: bool,
    first_seq: SeqNum | None = None,
    count: int = 0,
) -> Appended:
    """The answer as of now; `count` messages were added."""
    mark = None
    if claim is not None:
        known = state.producers[claim.id]
        mark = ProducerMark(known.epoch, known.seq, known.at_ms)
    if not state.json:
        return Appended(state.tail, state.closed, repeat, added, mark, first_seq)
    following = state.tail_message
    start = following - count if count else None
    return Appended(state.tail, state.closed, repeat, added, mark, first_seq, start, following)
