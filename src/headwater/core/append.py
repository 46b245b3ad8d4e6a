"""May this append happen, and what does it add. PROTOCOL §5.2, §5.2.1, §5.3; S2 API: append.

Order of the checks: closed, sealed, content type, producer, fencing token, the expected tail,
Stream-Seq, then the body itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from headwater.core import jsonmode, limits, producer
from headwater.core.ciphers import AES_256_GCM
from headwater.core.command_records import CommandRecord
from headwater.core.commands import Append, AppendRecords, Sealed
from headwater.core.errors import (
    CipherExhausted,
    ContentTypeMismatch,
    FencingTokenMismatch,
    HeadwaterError,
    InvalidRecord,
    InvalidRequest,
    KeyRequired,
    PreconditionFailed,
    SequenceRegression,
    StreamClosed,
    StreamNotFound,
)
from headwater.core.marks import add_mark
from headwater.core.producer import ProducerClaim, ProducerMark
from headwater.core.stream import StreamState, WriterChanges
from headwater.core.stream_config import ARRIVAL, CLIENT_REQUIRE
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
    first_time_ms: TimestampMs | None = None
    last_time_ms: TimestampMs | None = None
    """Of the records added, where the request asked for records."""


class SeriesAppended(NamedTuple):
    """The answer to an AppendSeries."""

    appended: list[Appended]
    """Of the parts that are in the stream, in order."""
    refusal: HeadwaterError | None
    """Why the next one is not, nor any behind it."""


def judge_append(state: StreamState, command: Append) -> list[bytes] | None:
    """Return the messages to add (none for a close), or None when it is a repeat."""
    if state.closed:
        _judge_closed(state, command)
        return None
    sealed = command.sealed
    if sealed is not None:
        check_seal(state, sealed.seal_id, sum(map(len, sealed.headers)))
    elif state.cipher is not None and command.body:
        raise KeyRequired(state.cipher)
    if command.content_type is not None and (command.body or sealed is not None):
        _check_content_type(state, command.content_type)
    if command.producer is not None:
        if not producer.judge(state.producers.get(command.producer.id), command.producer):
            return None
        producer.check_room(state.producers, command.producer)
    if command.expect is not None or command.expect_message is not None:
        _check_expected(state, command)
    check_stream_seq(state, command.stream_seq)
    if sealed is not None:
        return sealed_messages(sealed)
    return split_body(command.body, json=state.json) if command.body else []


def split_body(body: bytes, *, json: bool) -> list[bytes]:
    """The messages of an append. Raises InvalidRequest."""
    if not json:
        return [body]
    messages = jsonmode.flatten(body)
    if not messages:
        raise InvalidRequest("an append needs at least one message; the JSON array is empty")
    return messages


def _check_content_type(state: StreamState, content_type: str) -> None:
    received = jsonmode.media_type(content_type)
    expected = jsonmode.media_type(state.content_type)
    if received != expected:
        raise ContentTypeMismatch(expected=expected, received=received)


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


def judge_records(
    state: StreamState, command: AppendRecords, commands: Collection[int] = ()
) -> list[bytes] | None:
    """Return the bodies to add, or None when it is a repeat; `commands` are no messages.

    The rules of `judge_append`, for records that come with headers. Of a closed stream, too: they
    never close one, so each repeat is of an append that was accepted before.
    """
    if state.closed:
        if command.producer is None or not producer.has(state.producers, command.producer):
            raise StreamClosed(state.tail)
        return None
    if command.seal_id is not None:
        check_seal(state, command.seal_id, len(command.bodies))
    elif state.cipher is not None:
        raise KeyRequired(state.cipher)
    if command.producer is not None:
        if not producer.judge(state.producers.get(command.producer.id), command.producer):
            return None
        producer.check_room(state.producers, command.producer)
    _check_conditions(state, command)
    if command.refusal is not None:
        raise InvalidRecord(*command.refusal)
    if not command.bodies:
        raise InvalidRequest("an append needs at least one record")
    if command.seal_id is not None:
        return command.bodies  # looked at before they were sealed
    return check_records(command, commands, json=state.json)


def _check_conditions(state: StreamState, command: AppendRecords) -> None:
    token = command.fencing_token
    if token is not None and token != state.fencing_token:
        raise FencingTokenMismatch(state.fencing_token)
    if command.expect_seq is not None and command.expect_seq != state.tail_seq:
        raise PreconditionFailed(state.tail)


def check_records(command: AppendRecords, commands: Collection[int], *, json: bool) -> list[bytes]:
    """The bodies of records in clear, as they are stored. Raises InvalidRecord."""
    if command.headers is not None:
        _check_headers(command.headers, command.commands)
    return _check_values(command.bodies, commands) if json else command.bodies


def check_seal(state: StreamState, seal_id: bytes, count: int) -> None:
    """Was this sealed for this very stream, and has its cipher room for so many more?"""
    if seal_id != state.seal_id:
        raise StreamNotFound(state.name)
    if state.cipher == AES_256_GCM and state.tail_seq + count > limits.AES_RECORDS_MAX:
        raise CipherExhausted(AES_256_GCM, limits.AES_RECORDS_MAX)


def sealed_messages(sealed: Sealed) -> list[bytes]:
    """The messages, unless something was wrong with them."""
    if sealed.refusal is not None:
        raise InvalidRequest(sealed.refusal)
    return sealed.bodies


def _check_headers(headers: Sequence[Sequence[tuple[bytes, bytes]]], from_s2: bool) -> None:
    """S2 bounds a record as a whole, and its headers without a name have been looked at."""
    for index, pairs in enumerate(headers):
        if not pairs:
            continue
        if len(pairs) > limits.RECORD_HEADERS_MAX:
            raise InvalidRecord(index, f"it has over {limits.RECORD_HEADERS_MAX} headers")
        if from_s2:
            continue
        size = sum(2 + len(name) + len(value) for name, value in pairs)
        if size > limits.RECORD_HEADERS_BYTES_MAX:
            raise InvalidRecord(
                index,
                f"its headers are over {limits.RECORD_HEADERS_BYTES_MAX} bytes. bytes={size}",
            )
        if any(not name for name, _ in pairs):
            # S2 API: a header without a name makes a command of its record.
            raise InvalidRecord(index, "a header has no name")


def stamp(state: StreamState, command: AppendRecords) -> TimestampMs | list[TimestampMs]:
    """The time of each record, or one for all of them. Raises InvalidRecord.

    They never decrease along the stream, and lie in the future only if the stream lets them.
    """
    arrival_ms, given = command.at_ms, command.times
    if state.timestamping == CLIENT_REQUIRE and command.commands:
        _check_timed(given)
    if given is None or state.timestamping == ARRIVAL:
        return max(arrival_ms, state.last_time_ms)
    times = [arrival_ms if time is None else time for time in given]
    if not state.uncapped:
        times = [min(time, arrival_ms) for time in times]
    return list(accumulate([max(times[0], state.last_time_ms), *times[1:]], max))


def _check_timed(times: list[TimestampMs | None] | None) -> None:
    if times is None or None in times:
        index = 0 if times is None else times.index(None)
        raise InvalidRecord(index, "it has no timestamp, which this stream requires")


def note_commands(
    state: StreamState,
    changes: WriterChanges,
    commands: Mapping[int, CommandRecord],
    first_seq: SeqNum,
    at_ms: TimestampMs,
) -> None:
    """Carry out the command records of an append whose first record is `first_seq`."""
    for index, said in commands.items():
        if isinstance(said, str):
            state.fencing_token = changes.fencing_token = said
            continue
        known = state.trims[-1][0] if state.trims else state.first_seq
        to = SeqNum(min(said, first_seq + index + 1))
        if to > known:
            changes.trim = (to, at_ms)
            add_mark(state.trims, changes.trim)


def _check_values(bodies: list[bytes], commands: Collection[int]) -> list[bytes]:
    values = []
    for index, body in enumerate(bodies):
        try:
            values.append(body if index in commands else jsonmode.check_value(body))
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
    elif command.close and not command.body and command.sealed is None:
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
    first_time_ms: TimestampMs | None = None,
    count: int = 0,
) -> Appended:
    """The answer as of now; `count` messages were added."""
    mark = None
    if claim is not None:
        known = state.producers[claim.id]
        mark = ProducerMark(known.epoch, known.seq, known.at_ms)
    start = following = None
    if state.json:
        following = state.tail_message
        start = following - count if count else None
    last_time_ms = None if first_time_ms is None else state.last_time_ms
    return Appended(
        state.tail,
        state.closed,
        repeat,
        added,
        mark,
        first_seq,
        start,
        following,
        first_time_ms,
        last_time_ms,
    )
