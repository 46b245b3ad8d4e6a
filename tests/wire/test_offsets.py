"""Offset tokens: round trips, their order, and everything that is not one. PROTOCOL §8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidOffset
from headwater.core.types import START, ByteOffset, Position, SeqNum
from headwater.wire import offsets
from headwater.wire.offsets import FromTail, Sentinel

NUMBERS = st.integers(0, 10**16 - 1)
POSITIONS = st.builds(
    lambda seq, byte: Position(SeqNum(seq), ByteOffset(byte)), seq=NUMBERS, byte=NUMBERS
)


@given(position=POSITIONS)
def test_a_rendered_position_is_parsed_back(position: Position) -> None:
    assert offsets.parse(offsets.render(position).decode()) == position


@given(one=POSITIONS, other=POSITIONS)
def test_tokens_sort_as_text_in_stream_order(one: Position, other: Position) -> None:
    assert (offsets.render(one) < offsets.render(other)) == (one < other)


@given(position=POSITIONS)
def test_a_token_is_short_and_needs_no_escaping_in_a_url(position: Position) -> None:
    token = offsets.render(position).decode()
    assert len(token) < 256
    assert set(token) <= set("0123456789_")
    assert token not in ("-1", "now")


def test_the_start_of_every_stream_is_all_zero() -> None:
    assert offsets.render(START) == b"0000000000000000_0000000000000000"


@given(messages=st.integers(0, 10**16 - 1))
def test_a_reader_may_begin_some_messages_before_the_tail(messages: int) -> None:
    assert offsets.parse_start(f"tail:{messages}") == FromTail(messages)


@pytest.mark.parametrize("text", ["tail:", "tail:-1", "tail:+1", "tail:1\n", "tail", "Tail:1"])
def test_other_distances_are_refused(text: str) -> None:
    with pytest.raises(InvalidOffset):
        offsets.parse_start(text)


def test_a_start_may_be_a_token_or_a_sentinel_too() -> None:
    assert offsets.parse_start(offsets.render(START).decode()) == START
    assert offsets.parse_start("now") is Sentinel.NOW


def test_a_distance_is_not_a_token() -> None:
    with pytest.raises(InvalidOffset):
        offsets.parse("tail:1")


def test_the_sentinels_are_not_positions() -> None:
    assert offsets.parse("-1") is Sentinel.BEGINNING
    assert offsets.parse("now") is Sentinel.NOW


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("0", id="a bare number"),
        pytest.param("-2", id="another negative number"),
        pytest.param("NOW", id="sentinel in capitals"),
        pytest.param(" now", id="space before"),
        pytest.param("000000000000000_0000000000000000", id="a digit too few"),
        pytest.param("00000000000000000_0000000000000000", id="a digit too many"),
        pytest.param("0000000000000000-0000000000000000", id="another separator"),
        pytest.param("0000000000000000_0000000000000000\n", id="line end after it"),
        pytest.param(" 0000000000000000_0000000000000000", id="space before it"),
        pytest.param("+000000000000000_0000000000000000", id="a sign"),
        pytest.param("000000000000000\u0661_0000000000000000", id="digits of another script"),
        pytest.param("0000000000000000_000000000000000x", id="a letter"),
        pytest.param("0000000000000000_0000000000000000:1", id="something after it"),
        pytest.param("../../etc/passwd", id="a path"),
        pytest.param("\0", id="NUL"),
    ],
)
def test_what_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidOffset) as refusal:
        offsets.parse(text)
    assert refusal.value.tail is None


@given(text=st.text(max_size=40))
def test_any_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        found = offsets.parse(text)
    except InvalidOffset:
        return
    rendered = found.value if isinstance(found, Sentinel) else offsets.render(found).decode()
    assert rendered == text
