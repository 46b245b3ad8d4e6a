"""The protobuf messages of the S2 API, package `s2.v1`.

    StreamPosition   1 seq_num u64, 2 timestamp u64
    Header           1 name bytes, 2 value bytes
    AppendRecord     1 timestamp u64 (optional), 2 headers, 3 body bytes
    AppendInput      1 records, 2 match_seq_num u64 (optional), 3 fencing_token string (optional)
    AppendAck        1 start, 2 end, 3 tail: StreamPosition, all of them always there
    SequencedRecord  1 seq_num u64, 2 timestamp u64, 3 headers, 4 body bytes
    ReadBatch        1 records: SequencedRecord, 2 tail: StreamPosition (optional)

What arrives goes through the protobuf runtime, which parses in C. What leaves is put together
here from the columns of stored records: with a message object for each record it costs twice as
much, and reading is mostly this.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from headwater.wire.http import Buffer
from headwater.wire.s2.records import Ack, Headers, Input, Place, Records, TooManyRecords, WireError

TIMES_CACHED_MAX = 64

_Field = descriptor_pb2.FieldDescriptorProto


def decode_input(data: bytes, *, records_max: int) -> Input:
    """An AppendInput. Raises WireError, and TooManyRecords."""
    try:
        sent: Any = _AppendInput.FromString(data)
    except message.DecodeError as error:
        raise WireError(f"not an AppendInput: {error}") from None
    records = sent.records
    if len(records) > records_max:
        raise TooManyRecords(len(records))
    bodies, times, headers = [], [], []
    timed = headed = False
    for record in records:
        bodies.append(record.body)
        if record.HasField("timestamp"):
            timed = True
            times.append(record.timestamp)
        else:
            times.append(None)
        pairs = record.headers
        if pairs:
            headed = True
            headers.append([(pair.name, pair.value) for pair in pairs])
        else:
            headers.append([])
    return Input(
        bodies,
        headers if headed else None,
        times if timed else None,
        sent.match_seq_num if sent.HasField("match_seq_num") else None,
        sent.fencing_token if sent.HasField("fencing_token") else None,
    )


def encode_ack(ack: Ack) -> bytes:
    """An AppendAck."""
    start, end = encode_place(ack.start), encode_place(ack.end)
    tail = end if ack.tail == ack.end else encode_place(ack.tail)
    return b"\x0a%c%b\x12%c%b\x1a%c%b" % (len(start), start, len(end), end, len(tail), tail)


def encode_place(place: Place) -> bytes:
    """A StreamPosition. Zeros are left out, as the encoding has it."""
    seq = b"\x08" + encode_varint(place.seq) if place.seq else b""
    return seq + _time_field(place.time_ms)


@lru_cache(maxsize=TIMES_CACHED_MAX)
def _time_field(time_ms: int) -> bytes:
    """The field `timestamp`, which many records and answers share."""
    return b"\x10" + encode_varint(time_ms) if time_ms else b""


def encode_batch(parts: Sequence[Records], tail: Place | None) -> list[Buffer]:
    """A ReadBatch, in pieces to be joined. `tail` when it reaches the end of the stream; alone
    it is a heartbeat."""
    pieces: list[Buffer] = []
    for part in parts:
        pieces += encode_records(part)
    if tail is not None:
        pieces.append(_sub_message(b"\x12", encode_place(tail)))
    return pieces


def encode_records(records: Records) -> list[Buffer]:
    """The records of a ReadBatch, in pieces to be joined."""
    if records.headers is None:
        return _encode_plain(records.first, records)
    pieces: list[Buffer] = []
    for index, headers in enumerate(records.headers):
        one = _encode_one(
            records.first + index, records.times[index], headers, records.bodies[index]
        )
        pieces += (b"\x0a", encode_varint(sum(map(len, one))), *one)
    return pieces


def _encode_one(seq: int, time_ms: int, headers: Headers, body: Buffer) -> list[Buffer]:
    fields: list[Buffer] = [encode_place(Place(seq, time_ms))]
    for name, value in headers:
        pair = _bytes_field(b"\x0a", name) + _bytes_field(b"\x12", value)
        fields.append(_sub_message(b"\x1a", pair))
    if len(body):
        fields += (b"\x22" + encode_varint(len(body)), body)
    return fields


def _encode_plain(first: int, records: Records) -> list[Buffer]:
    """Records without headers. Neighbours share most of what stands before their bodies: the
    upper digits of the number, the time, the length."""
    pieces: list[Buffer] = []
    time_before, size_before, upper_before = -1, -1, -1
    time_field = size_field = upper = b""
    seq = first
    for time_ms, body in zip(records.times, records.bodies, strict=True):
        if seq >> 7 != upper_before:
            upper_before = seq >> 7
            upper = encode_varint(upper_before) if upper_before else b""
        if time_ms != time_before:
            time_before, time_field = time_ms, _time_field(time_ms)
        size = len(body)
        if size != size_before:
            size_before = size
            size_field = b"\x22" + encode_varint(size) if size else b""
        digits = (_LAST_DIGITS if not upper else _DIGITS)[seq & 127]
        length = len(digits) + len(upper) + len(time_field) + len(size_field) + size
        head = _LENGTHS[length] if length < 128 else b"\x0a" + encode_varint(length)
        pieces.append(b"%b%b%b%b%b" % (head, digits, upper, time_field, size_field))
        pieces.append(body)
        seq += 1
    return pieces


def encode_varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    if number < 128:
        return _VARINTS[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_VARINTS = [bytes((number,)) for number in range(128)]
_LENGTHS = [b"\x0a" + number for number in _VARINTS]
_DIGITS = [bytes((8, number | 128)) for number in range(128)]
"""The field `seq_num` up to its lowest digit, with more to follow; and with none."""
_LAST_DIGITS = [b"", *(bytes((8, number)) for number in range(1, 128))]


def _sub_message(tag: bytes, encoded: bytes) -> bytes:
    return tag + encode_varint(len(encoded)) + encoded


def _bytes_field(tag: bytes, value: bytes) -> bytes:
    return tag + encode_varint(len(value)) + value if value else b""


def _append_input() -> type[message.Message]:
    """The class of AppendInput, made here: a generated file would say the same in a thousand
    unreadable characters, and pin the version of the runtime. In a pool of its own, as a client
    in the same process may bring the same names."""
    file = descriptor_pb2.FileDescriptorProto(
        name="headwater/s2.proto", package="s2.v1", syntax="proto3"
    )
    header = file.message_type.add(name="Header")
    _add_field(header, 1, "name", _Field.TYPE_BYTES)
    _add_field(header, 2, "value", _Field.TYPE_BYTES)
    record = file.message_type.add(name="AppendRecord")
    _add_field(record, 1, "timestamp", _Field.TYPE_UINT64, optional=True)
    _add_field(record, 2, "headers", _Field.TYPE_MESSAGE, of="Header")
    _add_field(record, 3, "body", _Field.TYPE_BYTES)
    sent = file.message_type.add(name="AppendInput")
    _add_field(sent, 1, "records", _Field.TYPE_MESSAGE, of="AppendRecord")
    _add_field(sent, 2, "match_seq_num", _Field.TYPE_UINT64, optional=True)
    _add_field(sent, 3, "fencing_token", _Field.TYPE_STRING, optional=True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("s2.v1.AppendInput"))


def _add_field(
    owner: descriptor_pb2.DescriptorProto,
    number: int,
    name: str,
    kind: _Field.Type.ValueType,
    *,
    optional: bool = False,
    of: str = "",
) -> None:
    """A field; one of a message type repeats."""
    field = owner.field.add(number=number, name=name, type=kind, label=_Field.LABEL_OPTIONAL)
    if of:
        field.label = _Field.LABEL_REPEATED
        field.type_name = f".s2.v1.{of}"
    if optional:
        field.proto3_optional = True
        field.oneof_index = len(owner.oneof_decl)
        owner.oneof_decl.add(name=f"_{name}")


_AppendInput = _append_input()
