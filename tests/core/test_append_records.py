"""Appends of records with headers: the rules they share with other appends, and their own."""

from __future__ import annotations

import msgspec
import pytest

from headwater.core import append as rules
from headwater.core import limits
from headwater.core.commands import AppendRecords
from headwater.core.errors import (
    FencingTokenMismatch,
    InvalidRecord,
    KeyRequired,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
    StreamNotFound,
)
from headwater.core.marks import Mark
from headwater.core.producer import ProducerClaim
from headwater.core.stream import StreamState, WriterChanges
from headwater.core.stream_config import ARRIVAL, CLIENT_PREFER, CLIENT_REQUIRE
from headwater.core.types import ByteOffset, SeqNum, TimestampMs
from tests.support.builders import BUCKET, JSON, TEXT, append, claim, position, stream_state
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


def test_a_closed_stream_takes_nothing_but_repeats() -> None:
    state = written_state()
    state.closed = True
    for seq in range(5):
        assert rules.judge_records(state, records(b"a", producer=claim("p", 3, seq))) is None
    new = [claim("p", 3, 5), claim("p", 2, 4), claim("p", 4, 0), claim("q", 0, 0), None]
    for each in new:
        with pytest.raises(StreamClosed):
            rules.judge_records(state, records(b"a", producer=each))


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


# -- the rules of S2


def s2(
    *bodies: bytes,
    headers: list[Pairs] | None = None,
    times: list[int | None] | None = None,
    at_ms: int = START_MS,
    fencing_token: str | None = None,
    seal_id: bytes | None = None,
) -> AppendRecords:
    stamps = None if times is None else [None if t is None else TimestampMs(t) for t in times]
    return AppendRecords(
        BUCKET,
        "s",
        TimestampMs(at_ms),
        list(bodies),
        headers,
        times=stamps,
        commands=True,
        fencing_token=fencing_token,
        seal_id=seal_id,
    )


@pytest.mark.parametrize("current", ["", "mine"])
def test_a_fencing_token_must_be_the_streams_if_it_is_given(current: str) -> None:
    state = written_state()
    state.fencing_token = current
    assert rules.judge_records(state, s2(b"a")) == [b"a"]
    assert rules.judge_records(state, s2(b"a", fencing_token=current)) == [b"a"]
    with pytest.raises(FencingTokenMismatch) as caught:
        rules.judge_records(state, s2(b"a", fencing_token="other"))
    assert caught.value.actual == current


def test_the_token_comes_before_the_tail() -> None:
    state = written_state()
    command = msgspec.structs.replace(s2(b"a", fencing_token="x"), expect_seq=SeqNum(9))
    with pytest.raises(FencingTokenMismatch):
        rules.judge_records(state, command)


def test_records_of_an_encrypted_stream_come_sealed_for_it() -> None:
    state = written_state()
    with pytest.raises(StreamNotFound):
        rules.judge_records(state, s2(b"a", seal_id=b"1"))
    state.cipher, state.seal_id = "aegis-256", b"1"
    assert rules.judge_records(state, s2(b"a", seal_id=b"1")) == [b"a"]
    with pytest.raises(StreamNotFound):
        rules.judge_records(state, s2(b"a", seal_id=b"2"))
    with pytest.raises(KeyRequired, match="aegis-256"):
        rules.judge_records(state, s2(b"a"))
    with pytest.raises(KeyRequired, match="aegis-256"):
        rules.judge_append(state, append(body=b"a"))
    assert rules.judge_append(state, append(close=True)) == []


def test_s2_bounds_records_itself_and_only_the_number_of_headers_is_looked_at() -> None:
    large = [(b"k", b"v" * limits.RECORD_HEADERS_BYTES_MAX)]
    assert rules.judge_records(written_state(), s2(b"a", b"b", headers=[[], large])) is not None
    many = [(b"k", b"")] * (limits.RECORD_HEADERS_MAX + 1)
    assert rules.judge_records(written_state(), s2(b"a", headers=[many[1:]])) is not None
    with pytest.raises(InvalidRecord, match="record 1 "):
        rules.judge_records(written_state(), s2(b"a", b"b", headers=[[], many]))


def test_commands_in_a_json_stream_are_no_messages() -> None:
    command = s2(b" 1", b"token", headers=[[], [(b"", b"fence")]])
    assert rules.judge_records(written_state(JSON), command, {1: "token"}) == [b"1", b"token"]


@pytest.mark.parametrize(
    ("mode", "uncapped", "last", "times", "expected"),
    [
        (CLIENT_PREFER, False, 0, None, 100),
        (CLIENT_PREFER, False, 150, None, 150),
        (CLIENT_PREFER, False, 0, [7, None, 50], [7, 100, 100]),
        (CLIENT_PREFER, False, 20, [7, 30, 25], [20, 30, 30]),
        (CLIENT_PREFER, False, 0, [99, 2**64 - 1], [99, 100]),
        (CLIENT_PREFER, True, 0, [99, 2**64 - 1, 5], [99, 2**64 - 1, 2**64 - 1]),
        (CLIENT_PREFER, True, 500, [None], [500]),
        (CLIENT_REQUIRE, False, 0, [7, 8], [7, 8]),
        (CLIENT_REQUIRE, False, 0, None, "record 0 "),
        (CLIENT_REQUIRE, False, 0, [7, None], "record 1 "),
        (ARRIVAL, False, 0, [7, None, 8], 100),
        (ARRIVAL, True, 150, [9999], 150),
    ],
)
def test_the_time_of_a_record(
    mode: str,
    uncapped: bool,
    last: int,
    times: list[int | None] | None,
    expected: int | list[int] | str,
) -> None:
    state = written_state()
    state.timestamping, state.uncapped = mode, uncapped
    state.last_time_ms = TimestampMs(last)
    command = s2(*[b"a"] * len(times or "a"), times=times, at_ms=100)
    if isinstance(expected, str):
        with pytest.raises(InvalidRecord, match=expected):
            rules.stamp(state, command)
    else:
        assert rules.stamp(state, command) == expected


def test_writers_that_know_no_times_need_none() -> None:
    state = written_state()
    state.timestamping = CLIENT_REQUIRE
    assert rules.stamp(state, records(b"a")) == START_MS


def test_the_last_fence_of_an_append_counts() -> None:
    state, changes = written_state(), WriterChanges()
    rules.note_commands(state, changes, {0: "a", 3: "b"}, SeqNum(5), TimestampMs(1))
    assert (state.fencing_token, changes.fencing_token) == ("b", "b")
    rules.note_commands(state, changes, {0: ""}, SeqNum(9), TimestampMs(1))
    assert (state.fencing_token, changes.fencing_token) == ("", "")


@pytest.mark.parametrize(
    ("first", "waiting", "asked", "expected"),
    [
        (0, [], 3, [(3, 50)]),
        (0, [], 8, [(8, 50)]),
        (0, [], 9, [(8, 50)]),
        (0, [], 2**64 - 1, [(8, 50)]),
        (3, [], 3, []),
        (3, [], 0, []),
        (0, [(4, 1)], 3, [(4, 1)]),
        (0, [(4, 1)], 6, [(4, 1), (6, 50)]),
    ],
)
def test_a_trim_goes_no_further_than_its_own_record_and_never_back(
    first: int, waiting: list[Mark], asked: int, expected: list[tuple[int, int]]
) -> None:
    state, changes = written_state(), WriterChanges()
    state.first_seq, state.trims = SeqNum(first), list(waiting)
    rules.note_commands(state, changes, {2: SeqNum(asked)}, SeqNum(5), TimestampMs(50))
    assert state.trims == expected
    assert changes.trim == (expected[-1] if expected != waiting else None)


def test_what_a_run_says_is_replayed() -> None:
    early, late = WriterChanges(), WriterChanges()
    early.fencing_token, late.fencing_token = "a", "b"
    early.trim, late.trim = (SeqNum(1), TimestampMs(5)), (SeqNum(2), TimestampMs(6))
    early.written, late.written = (SeqNum(3), TimestampMs(7)), (SeqNum(4), TimestampMs(8))
    joined = WriterChanges()
    joined.add(early)
    joined.add(WriterChanges())
    assert joined == early
    joined.add(late)
    assert (joined.fencing_token, joined.trim, joined.written) == ("b", (2, 6), (4, 8))
    state = written_state()
    state.replay(early)
    state.replay(late)
    assert (state.fencing_token, state.trims) == ("b", [(1, 5), (2, 6)])


def test_a_stream_remembers_when_it_was_written_to() -> None:
    state = written_state()
    assert state.written_at_ms == START_MS
    state.last_time_ms = TimestampMs(START_MS + 5)
    assert state.written_at_ms == START_MS + 5
    state.note_written(SeqNum(5), (SeqNum(7), TimestampMs(START_MS + 9)))
    state.note_written(SeqNum(7), (SeqNum(9), TimestampMs(START_MS + 5000)))
    state.last_time_ms = TimestampMs(2**63)
    assert (state.client_times_from, state.written_at_ms) == (5, START_MS + 5000)
    assert state.touched_at_ms == START_MS + 5000
    state.tail_seq = SeqNum(9)
    state.trims = [(SeqNum(7), TimestampMs(1)), (SeqNum(8), TimestampMs(2))]
    state.forget_before(position(7, 10))
    assert (state.first, state.trims) == ((7, 10), [(8, 2)])
    assert state.written == [(9, START_MS + 5000)]
    state.forget_before(position(9, 12))
    assert state.written == [(9, START_MS + 5000)]


def test_an_empty_stream_is_abandoned_when_nothing_was_written_for_as_long_as_it_may() -> None:
    state = stream_state()
    at = [TimestampMs(START_MS + wait) for wait in (0, 1999, 2000)]
    assert [state.is_abandoned(now) for now in at] == [False, False, False]
    state.delete_on_empty_s = 2
    assert [state.is_abandoned(now) for now in at] == [False, False, True]
    state.tail_seq = SeqNum(1)
    assert [state.is_abandoned(now) for now in at] == [False, False, False]
