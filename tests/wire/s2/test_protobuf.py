"""The protobuf messages, byte for byte as the official runtime and the official SDK have them."""

from __future__ import annotations

from typing import Any

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.wire.s2 import protobuf
from headwater.wire.s2.records import U64_MAX, Ack, Place, Records, TooManyRecords, WireError

u64 = st.one_of(st.integers(0, 2**15), st.integers(0, U64_MAX))
data = st.binary(max_size=300)
places = st.builds(Place, u64, u64)
headers = st.lists(st.tuples(data, data), max_size=3)


def position(place: Place) -> Any:
    return pb.StreamPosition(seq_num=place.seq, timestamp=place.time_ms)


@st.composite
def some_records(draw: st.DrawFn) -> Records:
    bodies = draw(st.lists(data, min_size=1, max_size=8))
    times = draw(st.lists(u64, min_size=len(bodies), max_size=len(bodies)))
    pairs = draw(st.none() | st.lists(headers, min_size=len(bodies), max_size=len(bodies)))
    first = draw(st.one_of(st.integers(0, 2**15), st.integers(0, U64_MAX - len(bodies))))
    views = [memoryview(body) for body in bodies]
    return Records(first, times, views, pairs)


def expected_batch(parts: list[Records], tail: Place | None) -> bytes:
    records = [
        pb.SequencedRecord(
            seq_num=part.first + index,
            timestamp=part.times[index],
            headers=[
                pb.Header(name=name, value=value)
                for name, value in (part.headers[index] if part.headers is not None else ())
            ],
            body=bytes(part.bodies[index]),
        )
        for part in parts
        for index in range(len(part.bodies))
    ]
    batch = pb.ReadBatch(records=records, tail=None if tail is None else position(tail))
    encoded: bytes = batch.SerializeToString()
    return encoded


@given(st.lists(some_records(), max_size=3), st.none() | places)
def test_a_batch_is_what_the_sdk_would_send(parts: list[Records], tail: Place | None) -> None:
    assert b"".join(protobuf.encode_batch(parts, tail)) == expected_batch(parts, tail)


@pytest.mark.parametrize("first", [0, 1, 126, 127, 128, 16382, 16383, 2**63 - 2, U64_MAX - 4])
@pytest.mark.parametrize("size", [0, 1, 100, 117, 128, 2000])
def test_records_are_right_where_their_numbers_grow_longer(first: int, size: int) -> None:
    records = Records(first, [7, 7, 0, 9], [bytes(size)] * 3 + [b"x"], None)

    assert b"".join(protobuf.encode_batch([records], None)) == expected_batch([records], None)


def test_a_heartbeat_has_a_tail_even_when_all_is_zero() -> None:
    encoded = b"".join(protobuf.encode_batch([], Place(0, 0)))

    assert pb.ReadBatch.FromString(encoded).HasField("tail")


@given(places, places, places)
@example(Place(0, 0), Place(0, 0), Place(0, 0))
def test_an_acknowledgement_is_what_the_sdk_would_send(
    start: Place, end: Place, tail: Place
) -> None:
    encoded = protobuf.encode_ack(Ack(start, end, tail))

    ack = pb.AppendAck(start=position(start), end=position(end), tail=position(tail))
    assert encoded == ack.SerializeToString()
    assert pb.AppendAck.FromString(encoded).HasField("start")


@given(
    st.lists(st.tuples(st.none() | u64, headers, data), max_size=5),
    st.none() | u64,
    st.none() | st.text(max_size=40),
)
def test_an_append_is_read_as_the_sdk_wrote_it(
    records: list[tuple[int | None, list[tuple[bytes, bytes]], bytes]],
    match: int | None,
    token: str | None,
) -> None:
    sent = pb.AppendInput(
        records=[
            pb.AppendRecord(
                timestamp=time,
                headers=[pb.Header(name=name, value=value) for name, value in pairs],
                body=body,
            )
            for time, pairs, body in records
        ],
        match_seq_num=match,
        fencing_token=token,
    )

    found = protobuf.decode_input(sent.SerializeToString(), records_max=100)

    times = [time for time, _, _ in records]
    pairs = [pairs for _, pairs, _ in records]
    assert found.bodies == [body for _, _, body in records]
    assert found.times == (times if any(time is not None for time in times) else None)
    assert found.headers == (pairs if any(pairs) else None)
    assert (found.match_seq_num, found.fencing_token) == (match, token)


@given(st.binary(max_size=40))
def test_what_is_refused_is_what_the_sdk_refuses(junk: bytes) -> None:
    try:
        pb.AppendInput.FromString(junk)
    except Exception:
        with pytest.raises(WireError):
            protobuf.decode_input(junk, records_max=100)
    else:
        protobuf.decode_input(junk, records_max=100)


def test_more_records_than_are_taken_are_refused() -> None:
    sent = pb.AppendInput(records=[pb.AppendRecord()] * 3).SerializeToString()

    assert len(protobuf.decode_input(sent, records_max=3).bodies) == 3
    with pytest.raises(TooManyRecords):
        protobuf.decode_input(sent, records_max=2)


def test_fields_of_later_versions_are_passed_over() -> None:
    known = pb.AppendInput(records=[pb.AppendRecord(body=b"x")]).SerializeToString()

    assert protobuf.decode_input(known + b"\xa2\x06\x03new", records_max=1).bodies == [b"x"]


@given(u64)
def test_a_varint_is_read_back_by_the_runtime(number: int) -> None:
    encoded = b"\x08" + protobuf.encode_varint(number)

    assert pb.StreamPosition.FromString(encoded).seq_num == number
