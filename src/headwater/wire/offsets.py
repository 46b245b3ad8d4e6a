"""Offset tokens: `%016d_%016d`, the next record's number and the body bytes before it.

Opaque to clients, sorted as text in stream order; all zero is the start. PROTOCOL §8.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from headwater.core.errors import InvalidOffset
from headwater.core.types import ByteOffset, Position, SeqNum, TimestampMs

_FROM_TAIL = re.compile(r"tail:([0-9]{1,16})\Z")
_TOKEN = re.compile(r"([0-9]{16})_([0-9]{16})\Z")


class Sentinel(Enum):
    """The two positions that are not tokens."""

    BEGINNING = "-1"
    NOW = "now"


class FromTail(NamedTuple):
    """`tail:N`: N messages before the tail."""

    messages: int


class Since(NamedTuple):
    """The first record that is not older than this."""

    at_ms: TimestampMs


class AtByte(NamedTuple):
    """The record that begins after exactly so many body bytes."""

    byte: int


class AtRecord(NamedTuple):
    """A message of a JSON stream by its number, or so many before the tail. Ursula: records."""

    number: int
    from_tail: bool = False


Start = Position | Sentinel | FromTail | Since | AtByte | AtRecord
"""Everything a read may begin at."""


def render(position: Position) -> bytes:
    return b"%016d_%016d" % position


def parse_start(text: str) -> Start:
    """What a reader may send as `offset`. Raises InvalidOffset."""
    found = _FROM_TAIL.match(text)
    return parse(text) if found is None else FromTail(int(found[1]))


def parse(text: str) -> Position | Sentinel:
    """Raises InvalidOffset when `text` is neither a token nor a sentinel."""
    found = _TOKEN.match(text)
    if found is not None:
        return Position(SeqNum(int(found[1])), ByteOffset(int(found[2])))
    if text == "-1":
        return Sentinel.BEGINNING
    if text == "now":
        return Sentinel.NOW
    raise InvalidOffset(
        "offset is malformed: send a Stream-Next-Offset value as it was received, -1 or now"
    )
