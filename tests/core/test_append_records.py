"""Appends of records with headers: the rules they share with other appends, and their own."""

from __future__ import annotations

import pytest

from headwater.core import append as rules
from headwater.core import limits
from headwater.core.commands import AppendRecords
from headwater.core.errors import (
    InvalidRecord,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
)
from headwater.core.producer import ProducerClaim
from headwater.core.stream import StreamState, WriterChanges
from headwater.core.types import ByteOffset, SeqNum, TimestampMs
from tests.support.builders import BUCKET, JSON, TEXT, claim, stream_state
from tests.support.clock import START_MS

Pairs = list[tuple[bytes, bytes]]


def records(
    *bodies: bytes,
    headers: list[Pairs] | None = None,
    producer: ProducerClaim | None = None,
    expect_seq: int | None = None,
) -> AppendRecords:
    expected = None if expect_seq is None else SeqNum(expect_seq)
    return AppendRecords(
        BUCKET, "s", TimestampMs(START_MS), list(bodies), headers, producer, expected
    )


def written_state(content_type: str = TEXT) -> StreamState:
    """Five records, and a producer that has sent batch 4 of epoch 3."""
    state = stream_state(content_type)
    state.tail_seq, state.tail_byte = SeqNum(5), ByteOffset(10)
    rules.note_writer(
        state,
        WriterChanges(),
        TimestampMs(START_MS),
        claim=claim("p", 3, 0),
        stream_seq=None,
        close=False,
    )
    for seq in range(1, 5):
        rules.note_writer(
            state,
            WriterChanges(),
            TimestampMs(START_MS),
            claim=claim("p", 3, seq),
            stream_seq=None,
            close=False,
        )
    return state


def test_bodies_are_added_as_they_are() -> None:
    assert rules.judge_records(written_state(), records(b"a", b"", b" c ")) == [b"a", b"", b" c "]


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (claim("p", 3, 5), None),
        (claim("p", 4, 0), None),
        (claim("q", 0, 0), None),
        (claim("p", 2, 0), ProducerFenced),
        (claim("p", 3, 6), ProducerGap),
        (claim("q", 0, 1), ProducerGap),
    ],
)
def test_a_producer_is_judged_as_in_every_append(
    producer: ProducerClaim, error: type[Exception] | None
) -> None:
    state, command = written_state(), records(b"a", producer=producer)
    if error is None:
        assert rules.judge_records(state, command) == [b"a"]
    else:
        with pytest.raises(error):
            rules.judge_records(state, command)


def test_a_repeat_comes_before_the_tail_that_is_expected() -> None:
    state = written_state()
    repeated = records(b"a", producer=claim("p", 3, 4), expect_seq=4)
    assert rules.judge_records(state, repeated) is None


@pytest.mark.parametrize("expected", [0, 4, 6])
def test_another_tail_than_the_expected_one_refuses(expected: int) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        rules.judge_records(written_state(), records(b"a", expect_seq=expected))
    assert caught.value.tail == (5, 10)
    assert rules.judge_records(written_state(), records(b"a", expect_seq=5)) == [b"a"]


def test_a_closed_stream_takes_nothing_not_even_a_repeat() -> None:
    state = written_state()
    state.closed = True
    for command in (records(b"a"), records(b"a", producer=claim("p", 3, 4))):
        with pytest.raises(StreamClosed):
            rules.judge_records(state, command)


def test_values_of_a_json_stream_lose_the_space_around_them() -> None:
    found = rules.judge_records(written_state(JSON), records(b" 1\n", b"[1, 2]", b'{"a": 1}'))
    assert found == [b"1", b"[1, 2]", b'{"a": 1}']


@pytest.mark.parametrize("bad", [b"", b" ", b"1 2", b"1,2", b"x", b"\xff", b'"\xff"', b"[" * 9999])
def test_a_body_of_a_json_stream_that_is_not_one_value_is_named(bad: bytes) -> None:
    with pytest.raises(InvalidRecord, match="record 1 ") as caught:
        rules.judge_records(written_state(JSON), records(b"1", bad))
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("pairs", "taken"),
    [
        ([(b"k", b"")], True),
        ([(b"k", b"v"), (b"k", b"v")], True),
        ([(b"", b"v")], False),
        ([(b"k", b"v" * (limits.RECORD_HEADERS_BYTES_MAX - 3))], True),
        ([(b"k", b"v" * (limits.RECORD_HEADERS_BYTES_MAX - 2))], False),
        ([(b"k", b"")] * (limits.RECORD_HEADERS_BYTES_MAX // 3), True),
        ([(b"k", b"")] * (limits.RECORD_HEADERS_BYTES_MAX // 3 + 1), False),
    ],
    ids=["plain", "twice", "no name", "largest", "too large", "most", "too many"],
)
def test_headers_have_names_and_a_size(pairs: Pairs, taken: bool) -> None:
    command = records(b"a", b"b", headers=[[], pairs])
    if taken:
        assert rules.judge_records(written_state(), command) == [b"a", b"b"]
    else:
        with pytest.raises(InvalidRecord, match="record 1 "):
            rules.judge_records(written_state(), command)


def test_a_command_knows_its_size() -> None:
    assert records(b"abc", b"").size == 3
    assert records(b"abc", b"", headers=[[(b"k", b"vv")], [(b"x", b"")]]).size == 7
